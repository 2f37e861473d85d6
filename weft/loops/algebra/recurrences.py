"""Recognising what a loop does to the scalars it carries, against the table of algebras (`weft.loops.algebra.table`).

Carries that need each other's values are matched together, others one after another, each free to use those before it. What
a loop inside the body does to a carry is one element of its own algebra, of parts that only running it gives.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from weft.loops.algebra.cascades import Cascade, Running, cascade
from weft.loops.algebra.flow import Flow, leaks
from weft.loops.algebra.match import Element, extremum, linear_map, match
from weft.loops.algebra.search import taken
from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, EXTREMA, FIRST, LINEAR, SELECT, segmented, words
from weft.loops.ir import (
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    free_names,
    operands,
    reachable,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import names_bound_in
from weft.loops.schedule import Update
from weft.loops.simplify import number
from weft.loops.types import BOOL


def definitions(body: tuple[Stmt, ...]) -> dict[str, Expr]:
    """The Lets at the top of a loop body, by name."""
    return {s.name: s.value for s in body if isinstance(s, Let)}


# No more operations than this are written out: each branch on a carried value, one after another, doubles them.
_LARGEST = 2_000


def expand(expr: Expr, lets: Mapping[str, Expr], through: Container[str]) -> Expr:
    """Substitute the Lets named in `through` into an expression, repeatedly; it stays as it is where that is too large."""
    if _expanded_size(expr, lets, through) > _LARGEST:
        return expr
    while True:
        names = {n: lets[n] for n in free_names(expr) if n in through}
        if not names:
            return expr
        expr = substitute(expr, names)


def _expanded_size(expr: Expr, lets: Mapping[str, Expr], through: Container[str]) -> int:
    """How many operations an expression has with these names written out."""
    sizes: dict[str, int] = {}

    def size(e: Expr) -> int:
        if isinstance(e, Ref) and e.name in through:
            if e.name not in sizes:
                sizes[e.name] = size(lets[e.name])
            return sizes[e.name]
        return 1 + sum(map(size, operands(e)))

    return size(expr)


def dependents(body: tuple[Stmt, ...], name: str) -> set[str]:
    """Names bound in the body whose value depends on `name` (itself included)."""
    tainted = {name}

    def visit(statements: tuple[Stmt, ...]) -> None:
        for s in statements:
            match s:
                case Let():
                    if free_names(s.value) & tainted:
                        tainted.add(s.name)
                case For():
                    before = len(tainted)
                    for _ in range(2 + len(s.carries)):
                        for c in s.carries:
                            if (free_names(c.init) | free_names(c.next)) & tainted:
                                tainted.update((c.name, c.result))
                        visit(s.body)
                        if len(tainted) == before:
                            break
                        before = len(tainted)
                case If():
                    visit(s.then)
                    visit(s.orelse)
                    condition = free_names(s.condition) & tainted
                    for m in s.merges:
                        if condition or (free_names(m.then) | free_names(m.orelse)) & tainted:
                            tainted.add(m.name)
                case Store():
                    pass

    visit(body)
    return tainted


@dataclass
class _Body:
    """What the names bound in a loop's body are. meanings: of Lets and merges, and of what loops inside make of the values
    they start with. branch: names bound under conditions, which end there. inner: the updates of loops inside, by variable.
    unknown: names that stand for the parts of elements that loops inside make.
    """

    meanings: dict[str, Expr] = field(default_factory=dict)
    branch: set[str] = field(default_factory=set)
    inner: dict[str, tuple[Update, ...]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)

    @staticmethod
    def of(statements: tuple[Stmt, ...]) -> _Body:
        found = _Body()
        found._read(statements, False)
        return found

    def _read(self, statements: tuple[Stmt, ...], conditional: bool) -> None:
        for s in statements:
            match s:
                case Let(name=name, value=value):
                    self.meanings[name] = value
                    if conditional:
                        self.branch.add(name)
                case If():
                    self._read(s.then, True)
                    self._read(s.orelse, True)
                    for m in s.merges:
                        self.meanings[m.name] = Op("where", (s.condition, m.then, m.orelse), m.type)
                        if conditional:
                            self.branch.add(m.name)
                case For() if s.carries:
                    updates, why, _ = match_updates(s)
                    if not why:
                        self.inner[s.var] = updates
                        for u in updates:
                            self._summary(s, u, conditional)

    def _summary(self, loop: For, u: Update, conditional: bool) -> None:
        """The results of a loop inside as one element applied to what they start with."""
        carries = {c.name: c for c in loop.carries}
        own = [carries[n] for n in u.names]

        def part(k: int | str, like: Expr) -> Expr:
            name = f"{u.names[0]}@{k}"
            self.unknown.add(name)
            return Ref(name, like.type)

        states = [c.init for c in own]
        for c, result in zip(own, _applied(u.algebra, states, part), strict=True):
            self.meanings[c.result] = result
            if conditional:
                self.branch.add(c.result)


def _applied(algebra: str, states: list[Expr], part) -> list[Expr]:  # type: ignore[no-untyped-def]
    """An element of unknown parts applied to states."""
    h, n = states[0], len(states)
    condition = Ref("", BOOL)
    inner = segmented(algebra)
    if inner is not None:
        (rest,) = _applied(inner, states, part)
        return [Op("where", (part("starts", condition), part("state", h), rest), h.type)]
    if algebra in ALGEBRAS:
        return [Op(ALGEBRAS[algebra].join, (h, part("value", h)), h.type)]
    if algebra == AFFINE:
        return [Op("add", (Op("mul", (part("coefficient", h), h), h.type), part("addend", h)), h.type)]
    if algebra == SELECT:
        return [Op("where", (part("given", condition), part("value", h), h), h.type)]
    if algebra == CLAMP:
        moved = Op("add", (h, part("shift", h)), h.type)
        return [Op("min", (Op("max", (moved, part("low", h)), h.type), part("high", h)), h.type)]
    if algebra == FIRST:
        stays = part("stays", h)
        falls = Op("where", (h, Op("not", (stays,), BOOL), Const(False, BOOL)), BOOL)
        others = [Op("where", (falls, part(k, s), s), s.type) for k, s in enumerate(states[1:])]
        return [Op("where", (h, stays, Const(False, BOOL)), BOOL), *others]
    if algebra in EXTREMA:
        join = algebra.removesuffix("_last").removeprefix("arg")
        value = part("value", h)
        test = {"argmax": "gt", "argmin": "lt", "argmax_last": "ge", "argmin_last": "le"}[algebra]
        better = Op(test, (value, h), BOOL)
        others = [Op("where", (better, part(k, s), s), s.type) for k, s in enumerate(states[1:])]
        return [Op(join, (h, value), h.type), *others]
    assert algebra == LINEAR
    out: list[Expr] = []
    for i in range(n):
        total: Expr = part(f"addend_{i}", h)
        for j in range(n):
            total = Op("add", (total, Op("mul", (part(f"{i}_{j}", h), states[j]), h.type)), h.type)
        out.append(total)
    return out


@dataclass(frozen=True)
class _Unmatched(Exception):
    why: str
    cycle: tuple[str, ...]


def match_updates(loop: For) -> tuple[tuple[Update, ...], str, tuple[str, ...]]:
    """The updates of all carries of a loop, in an order in which each needs only those before it.

    Returns (updates, "", ()) or, where one is not understood, ((), why, the names on its cycle).
    """
    if not loop.carries:
        return (), "", ()
    try:
        return _Matcher(loop).updates(), "", ()
    except _Unmatched as reason:
        return (), reason.why, reason.cycle


def told(updates: tuple[Update, ...]) -> str:
    """What a loop with these updates carries, in words."""
    carried = ", ".join(f"{' and '.join(u.names)} by {words(u.algebra, len(u.names))}" for u in updates)
    used = any(u.used for u in updates)
    what = "every value is used" if used else "only the last value is used"
    repaired = [f"{u.name} is repaired by {u.repair} when what it is relative to changes" for u in updates if u.repair]
    disorder = [u.disorder for u in updates if u.disorder and used]
    return "; ".join((f"it carries {carried}", *repaired, *disorder, what))


class _Matcher:
    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.body = _Body.of(loop.body)
        self.carries = {c.name: c for c in loop.carries}
        self.flows = {c.name: Flow.of(loop.body, (c.name,)) for c in loop.carries}
        self.tainted = {n: flow.names for n, flow in self.flows.items()}
        self.needs = {
            c.name: {d for d in self.carries if self.flows[d].depends(c.next)} for c in loop.carries
        }  # fmt: skip
        self.stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}

    def updates(self) -> tuple[Update, ...]:
        groups = self._groups()
        elements = {group: self._element(group) for group in groups}
        self._attach(elements)
        cascades = {group: self._cascade(group, e, elements) for group, e in elements.items()}
        return tuple(self._update(group, e, cascades) for group, e in elements.items())

    # ---- which carries change together

    def _groups(self) -> list[tuple[str, ...]]:
        """The carries that need each other's values of the iteration before, each group after those it needs."""
        reaches = {n: set(m) for n, m in self.needs.items()}
        for k in reaches:
            for n in reaches:
                if k in reaches[n]:
                    reaches[n] |= reaches[k]
        left = list(self.carries)
        groups: list[tuple[str, ...]] = []
        while left:
            done = {n for g in groups for n in g}
            together = {n: {n, *(m for m in reaches[n] if n in reaches[m])} for n in left}
            first = next(n for n in left if reaches[n] <= done | together[n])
            groups.append(tuple(n for n in left if n in together[first]))
            left = [n for n in left if n not in together[first]]
        return groups

    def _next(self, name: str, group: tuple[str, ...]) -> Expr:
        """The next value of a carry as an expression of the group's values. Raises _Unmatched."""
        carry = self.carries[name]
        tainted = set().union(*(self.tainted[n] for n in group)) - set(group)
        chain = self._chain(carry.next, tainted)
        top = {s.name for s in self.loop.body if isinstance(s, Let)}
        for n in sorted(chain):
            loaded = {e.array for e in walk_expr(self.body.meanings[n]) if isinstance(e, Load)}
            overwritten = overwritten_after(self.loop.body, n) if n in top else sorted(loaded & self.stored)
            if overwritten:
                why = f"the update of {name} reads {overwritten[0]}, which the iteration then overwrites"
                raise _Unmatched(why, (name,))
        next_ = expand(carry.next, self.body.meanings, chain)
        if free_names(next_) & chain:
            raise _Unmatched(f"the update of {name} has too many branches one after another to be told", (name,))
        inside = [s for s in walk(self.loop.body) if isinstance(s, For) and any(c.result in chain for c in s.carries)]
        flow = Flow.of(self.loop.body, group)
        if flow.loads(carry.next) or chain & flow.reread or any(self._entangled(s, flow, chain) for s in inside):
            raise _Unmatched(f"the update of {name} reads again what the iteration has stored of it", group)
        if free_names(next_) & tainted:
            raise _Unmatched(self._why_not(group), group)
        return next_

    def _entangled(self, inner: For, flow: Flow, chain: set[str]) -> bool:
        """Whether what a loop inside does to the values of the chain depends on values of the group in another way than
        by starting with them: each update by itself, for what others start with decides about the elements that use them.
        """
        if flow.depends(inner.start, inner.stop):
            return True
        ours = [u for u in self.body.inner.get(inner.var, ()) if _results(inner, u) & chain]
        return any(leaks(inner, flow, u.names).names & set(u.names) for u in ours)

    def _chain(self, e: Expr, tainted: set[str]) -> set[str]:
        """The names through which an expression depends on what is tainted, and those that end with their branch."""
        return self._chain_through(e, tainted | self.body.branch)

    def _chain_through(self, e: Expr, names: set[str]) -> set[str]:
        """Those of some names of values through which an expression is made of them."""
        names = names & self.body.meanings.keys()
        return reachable(free_names(e) & names, lambda name: free_names(self.body.meanings[name]) & names)

    def _why_not(self, group: tuple[str, ...]) -> str:
        for name in group:
            types = [e.to for e in walk_expr(expand(self.carries[name].next, self.body.meanings, set(self.body.meanings)))
                     if isinstance(e, Round)]  # fmt: skip
            if types and types[0] == self.carries[name].type:
                return f"{name} takes steps of one size and decides something: in another grouping it may be off by a rounding"
            if types:
                return f"{name} is rounded to {types[0]} in every iteration, which other groupings would not be"
        if len(group) > 1:
            return f"{' and '.join(group)} each need the other's value of the iteration before"
        return f"the update of {group[0]} is no associative operation on {group[0]}"

    def _element(self, group: tuple[str, ...]) -> Element:
        nexts = tuple(self._next(n, group) for n in group)
        alone = len(group) == 1
        found = match(self.carries[group[0]], nexts[0], self.loop) if alone else linear_map(group, nexts)
        if found is None:
            raise _Unmatched(self._why_not(group), group)
        return found

    # ---- what goes with an extremum, or with the end of a search

    def _attach(self, elements: dict[tuple[str, ...], Element]) -> None:
        """Make one group of an extremum, or of a flag that falls, and the values that are taken with it."""
        for group, element in list(elements.items()):
            if len(group) > 1 or element[0] not in ("max", "min", FIRST):
                continue
            others: tuple[str, ...] = ()
            found = element
            for (k, *more), (algebra, _) in list(elements.items()):
                alone = not more and k != group[0] and self.needs[k] - {k} == {group[0]}
                if alone and (element[0] == FIRST or algebra in (SELECT, AFFINE)):
                    made = self._together(group[0], element, (*others, k))
                    found, others = (found, others) if made is None else (made, (*others, k))
            if not others:
                continue
            place = list(elements.items())
            elements.clear()
            for g, e in place:
                if g == group:
                    elements[(*group, *others)] = found
                elif g[0] not in others:
                    elements[g] = e

    def _together(self, name: str, element: Element, others: tuple[str, ...]) -> Element | None:
        """The element of an extremum, or of a flag, and of what is taken with it; None where others are taken elsewhere."""
        nexts = self._nexts((name, *others))
        if nexts is None:
            return None
        if element[0] != FIRST:
            return extremum(name, element, others, nexts[1:])
        values = [taken(self.carries[k], e, name, element[1][0]) for k, e in zip(others, nexts[1:], strict=True)]
        known = [v for v in values if v is not None]
        return (*element[:1], (*element[1], *known)) if len(known) == len(values) else None

    def _nexts(self, group: tuple[str, ...]) -> tuple[Expr, ...] | None:
        try:
            return tuple(self._next(n, group) for n in group)
        except _Unmatched:
            return None

    # ---- cascades

    def _cascade(
        self, group: tuple[str, ...], element: Element, elements: dict[tuple[str, ...], Element]
    ) -> Cascade | None:
        """Whether a sum is repaired whenever a running value that it uses changes; None where it uses none."""
        name = group[0]
        uses = {n for g, (algebra, _) in elements.items() for n in g if g != group and n in self._uses(name)}
        if len(group) > 1 or not uses or element[0] not in ("sum", "product", AFFINE):
            return None
        type_ = self.carries[name].type
        if type_.category != "float":
            return None
        algebra, parts = element
        coefficient = {"sum": number(1, type_), "product": parts[0], AFFINE: parts[0]}[algebra]
        addend = number(0, type_) if algebra == "product" else parts[-1]
        tainted = set().union(*(self.tainted[n] for n in uses))
        after = {n: self._after(n) for n in sorted(uses)}
        keep = {e.name for es in after.values() for e in es if isinstance(e, Ref)}

        def told(e: Expr) -> Expr:
            return expand(e, self.body.meanings, self._chain_through(e, tainted - keep))

        def whole(e: Expr) -> Expr:
            return expand(e, self.body.meanings, self._chain_through(e, tainted))

        spelled = {n: dict.fromkeys((*es, *map(told, es), *map(whole, es))) for n, es in after.items()}
        running = tuple(Running(n, tuple(es)) for n, es in spelled.items())
        own = told(coefficient), told(addend)
        if any(free_names(e) & (tainted - keep - uses) for e in own):
            return None
        return cascade(name, *own, running)

    def _uses(self, name: str) -> set[str]:
        return self.needs[name] - {name}

    def _after(self, name: str) -> tuple[Expr, ...]:
        """The expressions of a carry's next value, as the body may spell it."""
        out = [self.carries[name].next]
        while isinstance(out[-1], Ref) and out[-1].name in self.body.meanings:
            out.append(self.body.meanings[out[-1].name])
        return tuple(out)

    # ---- the updates

    def _update(
        self, group: tuple[str, ...], element: Element, cascades: dict[tuple[str, ...], Cascade | None]
    ) -> Update:
        algebra, parts = element
        proven = {g[0] for g, c in cascades.items() if c is not None and c.repair and self._uses(g[0]) & set(group)}
        own = cascades[group]
        used = self._used(group, proven)
        inside = any(free_names(e) & self.body.unknown for e in parts)
        return Update(
            group,
            algebra,
            () if inside else parts,
            used,
            feeds=bool(proven),
            repair="" if own is None else own.repair,
            disorder="" if own is None or algebra == "sum" else own.disorder,
            factor=None if own is None else own.factor,
            term=None if own is None else own.term,
            nested=parts if inside else (),
        )

    def _used(self, group: tuple[str, ...], proven: set[str]) -> bool:
        """Whether anything but the group's own update, and the cascades it feeds, reads a value before the loop ends."""
        tainted = set().union(*(self.tainted[n] for n in group))
        own = {*group, *proven}
        through = set().union(*(self._chain(self.carries[n].next, tainted) for n in own))
        for n in proven:  # what leads from the group to a cascade's update, and nowhere else
            through |= self._chain(self.carries[n].next, tainted | self.tainted[n])
        if any(free_names(c.next) & tainted for c in self.loop.carries if c.name not in own):
            return True
        return self._reads(self.loop.body, tainted, through)

    def _reads(self, statements: Iterable[Stmt], tainted: set[str], through: set[str]) -> bool:
        """Whether statements read what is tainted for anything but the names `through`."""
        for s in statements:
            match s:
                case Let(name=name):
                    if name not in through and free_names(s.value) & tainted:
                        return True
                case If():
                    merged = [e for m in s.merges if m.name not in through for e in (m.then, m.orelse)]
                    only_chosen = not s.then and not s.orelse and not merged
                    tests = () if only_chosen or (not merged and not _effects((*s.then, *s.orelse))) else (s.condition,)
                    if any(free_names(e) & tainted for e in (*merged, *tests)):
                        return True
                    if self._reads((*s.then, *s.orelse), tainted, through):
                        return True
                case For() if s.var in self.body.inner and any(c.result in through for c in s.carries):
                    if (free_names(s.start) | free_names(s.stop)) & tainted:
                        return True
                    ours = [u for u in self.body.inner[s.var] if _results(s, u) & through]
                    others = [c for c in s.carries if all(c.name not in u.names for u in ours)]
                    if any(u.used for u in ours) or any(free_names(e) & tainted for c in others for e in (c.init, c.next)):
                        return True
                    direct = tainted - names_bound_in((s,))
                    if any(free_names(e) & direct for x in walk(s.body) for e in statement_exprs(x)):
                        return True
                case _:
                    if any(free_names(e) & tainted for x in walk((s,)) for e in statement_exprs(x)):
                        return True
        return False


def _results(loop: For, u: Update) -> set[str]:
    return {c.result for c in loop.carries if c.name in u.names}


def _effects(statements: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Store) for s in walk(statements))


def overwritten_after(body: tuple[Stmt, ...], name: str) -> list[str]:
    """Arrays that the Let of `name`, at the top of a loop body, loads and that later statements of the body store."""
    at = next(k for k, s in enumerate(body) if isinstance(s, Let) and s.name == name)
    stored = {s.array for s in walk(body[at + 1 :]) if isinstance(s, Store)}
    let = body[at]
    assert isinstance(let, Let)
    return [e.array for e in walk_expr(let.value) if isinstance(e, Load) and e.array in stored]
