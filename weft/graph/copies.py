"""Values at other points of their axes: what makes them is made again there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.graph.draft import Draft
from weft.graph.tile import IN_ORDER, Map, Moved, Read, Scan, uses
from weft.loops.algebra.meaning import changed
from weft.loops.ir import Expr, Ref, free_names, rewrite, substitute, walk_expr
from weft.loops.types import INT64

_LARGEST = 400  # what an expression of a state may be written out to


class Copies:
    """Of the values of a graph in the making. States are not made again: they are taken from the points where they are made."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    # ---- what depends on what

    def axes(self, name: str, known: dict[str, frozenset[str]]) -> frozenset[str]:
        """The axes that a value depends on; of a state of an open loop, all those that it may."""
        if name in known:
            return known[name]
        known[name] = frozenset()
        draft = self.draft
        value = draft.values.get(name)
        if value is None:
            found = draft.opened.get(name, frozenset())
        elif isinstance(value, Read):
            found = self._of(value.index, known)
        elif isinstance(value, Map):
            found = self._of((value.value,), known)
        elif isinstance(value, Moved):
            found = self.axes(value.of, known) - {a for a, _ in value.at} | self._of(tuple(e for _, e in value.at), known)
        else:
            assert isinstance(value, Scan)
            inside = value.nexts if value.algebra == IN_ORDER else value.parts
            bounds = tuple(e for a in value.over for e in draft.bounds(a))
            found = self._of((*inside, *value.inits, *bounds), known) - set(value.over)
            if name in value.names:
                found |= set(value.over)
        known[name] = found
        return found

    def _of(self, exprs: tuple[Expr, ...], known: dict[str, frozenset[str]]) -> frozenset[str]:
        axes = {a.name for a in self.draft.axes.axes}
        found: set[str] = set()
        for e in exprs:
            for name in free_names(e):
                found |= {name} if name in axes else self.axes(name, known)
        return frozenset(found)

    def reaches(self, e: Expr, target: str) -> bool:
        """Whether an expression needs a value."""
        pending, done = list(free_names(e)), set()
        while pending:
            name = pending.pop()
            if name == target:
                return True
            value = self.draft.values.get(name)
            if name in done or value is None:
                continue
            done.add(name)
            match value:
                case Read():
                    exprs: tuple[Expr, ...] = value.index
                case Map() | Moved():
                    exprs = uses(value)
                case _:
                    assert isinstance(value, Scan)
                    exprs = (*value.parts, *value.inits, *value.nexts)
            pending += [n for x in exprs for n in free_names(x)]
        return False

    def written_out(self, e: Expr, state: str) -> Expr | None:
        """e with the maps written out that lead from a state to it; None where something else leads there."""
        while True:
            names: dict[str, Expr] = {}
            for name in free_names(e):
                value = self.draft.values.get(name)
                if name == state or value is None or not self.reaches(Ref(name, INT64), state):
                    continue
                if not isinstance(value, Map):
                    return None
                names[name] = value.value
            if not names:
                return e
            e = substitute(e, names)
            if sum(1 for _ in walk_expr(e)) > _LARGEST:
                return None

    # ---- copies

    def at(self, e: Expr, mapping: Mapping[str, Expr]) -> Expr:
        """The expression where axes are these expressions."""
        if not mapping:
            return e

        def rule(x: Expr) -> Expr | None:
            if not isinstance(x, Ref):
                return None
            if x.name in mapping:
                return mapping[x.name]
            return self.value(x, mapping)

        return rewrite(e, rule)

    def value(self, ref: Ref, mapping: Mapping[str, Expr]) -> Expr:
        draft = self.draft
        axes = self.axes(ref.name, {})
        moved = {a: e for a, e in mapping.items() if a in axes}
        if not moved:
            return ref
        value = draft.values.get(ref.name)
        match value:
            case Read():
                index = tuple(self.at(i, moved) for i in value.index)
                return draft.before(value.array, index, value.type, False, value.location)
            case Map():
                return draft.named(self.at(value.value, moved), ref.name, value.location)
            case Moved():
                old = dict(value.at)
                kept = {a: e for a, e in moved.items() if a not in old}
                return draft.moved(value.of, {**kept, **{a: self.at(e, moved) for a, e in old.items()}}, value.type)
            case Scan() if ref.name in value.results and value.algebra != IN_ORDER:
                return self.carried(ref, value, moved)
        return draft.moved(ref.name, moved, ref.type)

    def carried(self, ref: Ref, value: Scan, moved: dict[str, Expr]) -> Expr:
        draft = self.draft
        inside = {a: e for a, e in moved.items() if a not in value.over}
        bounds = {n for a in value.over for e in draft.bounds(a) for n in self._of((e,), {})}
        captured = {n for e in inside.values() for n in (free_names(e) | self._of((e,), {}))} & set(value.over)
        renamed: dict[str, Expr] = {}
        over = value.over
        if bounds & set(inside) or captured:
            over = ()
            for a in value.over:
                start, stop = (self.at(e, {**inside, **renamed}) for e in draft.bounds(a))
                taken = {*draft.open_axes, *over, *(n for e in inside.values() for n in self._of((e,), {}))}
                new = draft.axes.take(a, start, stop, taken, draft.axes.along[a])
                over = (*over, new)
                renamed[a] = Ref(new, INT64)
        key = (value.results, tuple(sorted(inside.items(), key=lambda kv: kv[0])))
        made = draft.copied.get(key)
        if made is None:
            parts = tuple(self.at(p, {**inside, **renamed}) for p in value.parts)
            inits = tuple(self.at(p, inside) for p in value.inits)
            names = tuple(draft.names.fresh(n) for n in value.names)
            results = tuple(draft.names.fresh(n) for n in value.results)
            nexts = changed(value.algebra, [Ref(n, i.type) for n, i in zip(names, inits, strict=True)], parts)
            made = replace(value, names=names, results=results, over=over, parts=parts, inits=inits, nexts=nexts)
            draft.copied[key] = made
            for n in (*names, *results):
                draft.values[n] = made
        return Ref(made.results[value.results.index(ref.name)], ref.type)
