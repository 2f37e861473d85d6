"""Folds relative to earlier ones: sums of terms g * scale, where earlier folds over the same axes are in the scale alone.

A part of such a sum can be told before those folds are finished: relative to values m that they have so far, it is brought to
their later values m' by scale(m') / scale(m). (A running maximum in a softmax is one: exp(x - m) = exp(x) * exp(-m).) That is
the distributive law, of real numbers. What is found here is found by the form of the term; a plan need not make use of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from weft.graph.tile import Fold, Map, TileGraph, axes_of_name, uses
from weft.loops.ir import Cast, Expr, Op, free_names, free_names_of, reachable, substitute
from weft.loops.simplify import is_number, number


def related(graph: TileGraph) -> TileGraph:
    """The graph, whose sums say which earlier folds they are relative to."""
    done: list[Fold] = []
    values = []
    for v in graph.values:
        if isinstance(v, Fold) and v.algebra == "sum" and v.types[0].category == "float":
            v = _Relating(graph, v, tuple(done)).related()
        if isinstance(v, Fold):
            done.append(v)
        values.append(v)
    return replace(graph, values=tuple(values))


@dataclass
class _Relating:
    graph: TileGraph
    fold: Fold
    before: tuple[Fold, ...]

    def related(self) -> Fold:
        fold = self.fold
        part = self.written_out(fold.parts[0])
        running = {n for n in free_names(part) if self.folds(n)}
        if not running or any(set(fold.over) & set(self.axes(n)) for n in running):
            return fold
        found = self.product(part, running)
        if found is None or self.over(found[1]):
            return fold
        names = {r for n in running for r in self.folds(n)}
        relative = tuple(r for f in self.before for r in f.results if r in names)
        return replace(fold, relative=relative, scale=found[1])

    def axes(self, name: str) -> tuple[str, ...]:
        value = self.graph.made.get(name)
        if value is not None:
            return axes_of_name(value, name)
        return (name,) if any(a.name == name for a in self.graph.axes) else ()

    def over(self, e: Expr) -> bool:
        """Whether an expression is another one at other points of the fold."""
        return any(set(self.axes(n)) & set(self.fold.over) for n in free_names(e))

    def folds(self, name: str) -> frozenset[str]:
        """The earlier folds over the same axes that a value is made of."""
        own = {r: f for f in self.before if f.over == self.fold.over for r in f.results}

        def after(n: str) -> Iterable[str]:
            return free_names_of(uses(self.graph.made[n])) if n in self.graph.made and n not in own else ()

        return frozenset(reachable([name], after) & own.keys())

    def written_out(self, e: Expr) -> Expr:
        """e with the maps over the fold's axes written out that earlier folds are in."""
        while True:
            names: dict[str, Expr] = {}
            for n in free_names(e):
                value = self.graph.made.get(n)
                if isinstance(value, Map) and set(value.axes) & set(self.fold.over) and self.folds(n):
                    names[n] = value.value
            if not names:
                return e
            e = substitute(e, names)

    # ---- what a term is made of: (without the running values, of them)

    def product(self, e: Expr, running: set[str]) -> tuple[Expr, Expr] | None:
        one = number(1, e.type)
        if not free_names(e) & running:
            return e, one
        if not self.over(e):
            return one, e
        match e:
            case Cast(value=inner, type=type_) if inner.type.category == "float":
                found = self.product(inner, running)
                return None if found is None else (Cast(found[0], type_), Cast(found[1], type_))
            case Op(name="mul" | "div" as name, args=(a, b)):
                left, right = self.product(a, running), self.product(b, running)
                if left is None or right is None:
                    return None
                return _by(name, left[0], right[0]), _by(name, left[1], right[1])
            case Op(name="neg", args=(a,)):
                found = self.product(a, running)
                return None if found is None else (Op("neg", (found[0],), e.type), found[1])
            case Op(name="exp" | "exp2" as name, args=(a,)):
                found = self.sum(a, running)
                return None if found is None else (Op(name, (found[0],), e.type), Op(name, (found[1],), e.type))
            case Op(name="where", args=(condition, x, y)) if not free_names(condition) & running and is_number(y, 0):
                found = self.product(x, running)
                return None if found is None else (Op("where", (condition, found[0], y), e.type), found[1])
            case Op(name="where", args=(condition, x, y)) if not free_names(condition) & running and is_number(x, 0):
                found = self.product(y, running)
                return None if found is None else (Op("where", (condition, x, found[0]), e.type), found[1])
        return None

    def sum(self, e: Expr, running: set[str]) -> tuple[Expr, Expr] | None:
        zero = number(0, e.type)
        if not free_names(e) & running:
            return e, zero
        if not self.over(e):
            return zero, e
        match e:
            case Op(name="add" | "sub" as name, args=(a, b)):
                left, right = self.sum(a, running), self.sum(b, running)
                if left is None or right is None:
                    return None
                return _plus(name, left[0], right[0]), _plus(name, left[1], right[1])
            case Op(name="neg", args=(a,)):
                found = self.sum(a, running)
                return None if found is None else (_plus("sub", zero, found[0]), _plus("sub", zero, found[1]))
            case Op(name="mul" | "div" as name, args=(a, b)) if not free_names(b) & running and not self.over(b):
                found = self.sum(a, running)
                return None if found is None else (_by(name, found[0], b), _by(name, found[1], b))
            case Op(name="mul", args=(a, b)) if not free_names(a) & running and not self.over(a):
                return self.sum(Op("mul", (b, a), e.type), running)
        return None


def _by(name: str, a: Expr, b: Expr) -> Expr:
    if is_number(b, 1) or is_number(a, 0):
        return a
    return b if name == "mul" and is_number(a, 1) else Op(name, (a, b), a.type)


def _plus(name: str, a: Expr, b: Expr) -> Expr:
    if is_number(b, 0):
        return a
    if is_number(a, 0):
        return b if name == "add" else Op("neg", (b,), b.type)
    return Op(name, (a, b), a.type)

