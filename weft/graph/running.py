"""Sums relative to an extremum of the same points, which one sweep finds together: softmax's sum beside its maximum.

A thread keeps its sum relative to the extremum m that it has so far: its terms are w * exp(rate * (x - m)), where m is the
largest x and rate is no less than 0. Where m moves to m', the sum is multiplied by the exponential of rate * (m - m'), which
is that of a term whose x is the old m. No exponent is above 0, so nothing overflows that would not in the end.

Instead of m a term may have what guards it: m wherever it is finite, and some number where no point has come or all are
masked, so that such rows are no difference of infinities.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from weft.graph.tile import Fold, Map, Value, mapped
from weft.loops.ir import Cast, Const, Expr, Op, Ref, free_names, operands, substitute, with_operands

_LARGEST_OF, _LEAST_OF = ("max", "maximum", "fmax"), ("min", "minimum", "fmin")


@dataclass(frozen=True)
class Repair:
    """What brings a sum to a later extremum. sum, extremum: results of folds. factor: an expression of the extremum that the
    sum is to be relative to, by its name, and of the one that it has been relative to, by the name `before(extremum)`.
    guard: what it is relative to in the end, an expression of the extremum.
    """

    sum: str
    extremum: str
    factor: Expr
    guard: Expr

    @property
    def guarded(self) -> bool:
        return not isinstance(self.guard, Ref)


def before(extremum: str) -> str:
    """The name, which no value has, of an extremum before it moves."""
    return f"{extremum}'"


def repairs(values: Collection[Value], sizes: Collection[str]) -> tuple[Repair, ...]:
    """The sums that can be found beside the extrema that they are relative to. sizes: names of what is not below 0."""
    folds = {v.results[0]: v for v in values if isinstance(v, Fold)}
    maps = {v.name: v for v in values if isinstance(v, Map)}
    found = []
    for fold in folds.values():
        if len(fold.relative) == 1 and fold.scale is not None:
            extremum = folds.get(fold.relative[0])
            if extremum is not None and (repair := _repair(fold, extremum, maps, frozenset(sizes))) is not None:
                found.append(repair)
    return tuple(found)


def _repair(fold: Fold, extremum: Fold, maps: Mapping[str, Map], sizes: frozenset[str]) -> Repair | None:
    m = extremum.results[0]
    if extremum.algebra not in (*_LARGEST_OF, *_LEAST_OF) or fold.over != extremum.over:
        return None
    if not set(extremum.axes) <= set(fold.axes):
        return None
    part, x = (_written_out(f.parts[0], maps, f.over) for f in (fold, extremum))
    own = Ref(m, x.type)
    guard = next((v for v in maps.values() if v.name in free_names(part) and v.type == x.type and _guards(v.value, m)), None)
    if guard is not None:
        part = substitute(part, {guard.name: own})
    exponential = _factor(part, m)
    if exponential is None or x.type != fold.types[0] or x.type != extremum.types[0]:
        return None
    difference = Op("sub", (x, own) if extremum.algebra in _LARGEST_OF else (own, x), x.type)
    if not _rises(exponential.args[0], difference, sizes):
        return None
    factor = _replaced(exponential, x, Ref(before(m), x.type))
    return Repair(fold.results[0], m, factor, own if guard is None else guard.value)


def unguarded(values: tuple[Value, ...], moving: Collection[Repair]) -> tuple[Value, ...]:
    """The values, with the terms of sums that are repaired relative to extrema themselves, which are finite meanwhile.

    Who else is made of what guards an extremum stays so: the maps in between are there twice.
    """
    sums = {r.sum for r in moving}
    guards = {r.guard: Ref(r.extremum, r.guard.type) for r in moving if r.guarded}
    instead: dict[str, Expr] = {v.name: guards[v.value] for v in values if isinstance(v, Map) and v.value in guards}
    found: list[Value] = []
    for v in values:
        if isinstance(v, Fold) and v.results[0] in sums:
            v = mapped(v, lambda e: substitute(e, instead))
        found.append(v)
        if isinstance(v, Map) and free_names(v.value) & instead.keys():
            found.append(replace(v, name=f"{v.name}.running", value=substitute(v.value, instead)))
            instead[v.name] = Ref(f"{v.name}.running", v.type)
    return tuple(found)


def _guards(e: Expr, m: str) -> bool:
    """Whether e is m, but a number where m is infinite."""
    match e:
        case Op(name="where", args=(Op(name="eq", args=(Ref(name=a), Const(value=bound))), Const(), Ref(name=b))):
            return a == b == m and math.isinf(bound)
        case Op(name="where", args=(Op(name="gt" | "lt" | "ne", args=(Ref(name=a), Const(value=bound))), Ref(name=b), Const())):
            return a == b == m and math.isinf(bound)
    return False


def _written_out(e: Expr, maps: Mapping[str, Map], over: tuple[str, ...]) -> Expr:
    """e with the maps over these axes written out."""
    while names := {n: maps[n].value for n in free_names(e) & maps.keys() if set(maps[n].axes) & set(over)}:
        e = substitute(e, names)
    return e


def _factor(e: Expr, m: str) -> Op | None:
    """The exponential in which m is, where e is a product of it and of what m is not in, and is evaluated at every point."""
    match e:
        case Op(name="exp" | "exp2"):
            return e
        case Op(name="neg", args=(a,)) | Cast(value=a) if a.type == e.type:
            return _factor(a, m)
        case Op(name="mul" | "div" as name, args=(a, b)):
            inside = [m in free_names(x) for x in (a, b)]
            if inside == [True, False]:
                return _factor(a, m)
            if inside == [False, True] and name == "mul":
                return _factor(b, m)
    return None


def _rises(e: Expr, difference: Op, sizes: frozenset[str]) -> bool:
    """Whether e is a difference times what is not below 0."""
    (a, b) = difference.args
    match e:
        case Op(name="sub") if e == difference:
            return True
        case Op(name="add", args=(x, Op(name="neg", args=(y,)))) if (x, y) == (a, b):
            return True
        case Op(name="neg", args=(Op(name="sub", args=(y, x)),)) if (x, y) == (a, b):
            return True
        case Op(name="mul", args=(x, y)):
            return (_rises(x, difference, sizes) and _not_below_0(y, sizes)) or (
                _rises(y, difference, sizes) and _not_below_0(x, sizes)
            )
        case Op(name="div", args=(x, y)):
            return _rises(x, difference, sizes) and _not_below_0(y, sizes)
    return False


def _not_below_0(e: Expr, sizes: frozenset[str]) -> bool:
    match e:
        case Const(value=value):
            return value >= 0
        case Ref(name=name):
            return name in sizes
        case Cast(value=a):
            return _not_below_0(a, sizes)
        case Op(name="sqrt" | "rsqrt" | "exp" | "exp2" | "abs"):
            return True
        case Op(name="mul" | "div" | "add", args=(a, b)):
            return _not_below_0(a, sizes) and _not_below_0(b, sizes)
    return False


def _replaced(e: Expr, x: Expr, by: Expr) -> Expr:
    if e == x:
        return by
    below = operands(e)
    return with_operands(e, tuple(_replaced(o, x, by) for o in below)) if below else e
