"""What the ranges of loops tell: where they run, whether subscripts of them are inside an array, and reach all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from weft.loops.accumulate.sites import accumulation
from weft.loops.affine import Affine, affine
from weft.loops.ir import Carry, Const, Expr, For, Function, Op, Ref, Stmt, Store, free_names, substitute, walk
from weft.loops.names import Names
from weft.loops.simplify import add, fold, number
from weft.loops.types import BOOL, INT64


def surely_inside(function: Function, array: str, index: tuple[Expr, ...], loops: Collection[For]) -> bool:
    """Whether the index is inside the array for all iterations of these loops, as their bounds alone show."""
    return all(in_range(i, extent, loops) for i, extent in zip(index, function.array(array).shape, strict=True))


def in_range(i: Expr, extent: Expr, loops: Collection[For]) -> bool:
    """Whether a subscript is the variable of a loop that an axis of this extent has all points of."""
    loop = next((f for f in loops if isinstance(i, Ref) and f.var == i.name), None)
    found = None if loop is None else ascending(loop)
    return found is not None and not found[0].terms and found[0].constant >= 0 and found[1] == affine(extent)


def runs_at_all(loop: For) -> Expr:
    """Whether a loop has an iteration."""
    bounds = ascending(loop)
    if bounds is not None:
        return Op("lt", (bounds[0].expr(), bounds[1].expr()), BOOL)
    return Op("lt", (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start), BOOL)


def ascending(loop: For) -> tuple[Affine, Affine, int] | None:
    """The same iterations as range(start, stop, step) with step > 0."""
    start, stop = affine(loop.start), affine(loop.stop)
    if start is None or stop is None:
        return None
    if loop.step > 0:
        return start, stop, loop.step
    return (stop + Affine((), 1), start + Affine((), 1), 1) if loop.step == -1 else None


def as_long(function: Function, loop: For, extent: Expr) -> bool:
    """Whether how often a loop runs has to do with how long an axis is."""
    values = {s.name: s.value for s in function.scalars if s.value is not None}

    def sizes(e: Expr) -> set[str]:
        return {n for name in free_names(e) for n in (sizes(values[name]) if name in values else {name})}

    return bool(sizes(loop.stop if loop.step > 0 else loop.start) & sizes(extent))


def no_less_than_0(function: Function, e: Expr, known: Collection[Expr] = ()) -> bool:
    """Whether an integer is not below 0. known: those that are not."""
    match e:
        case _ if e in known:
            return True
        case Const(value=value):
            return value >= 0
        case Ref(name=name):
            made = next((s.value for s in function.scalars if s.name == name), None)
            return any(s.name == name for s in function.sizes) or (made is not None and no_less_than_0(function, made, known))
        case Op(name="max", args=args):
            return any(no_less_than_0(function, a, known) for a in args)
        case Op(name="add" | "mul" | "floordiv" | "min", args=args):
            return all(no_less_than_0(function, a, known) for a in args)
    return False


def upwards(loop: For) -> For:
    """A loop whose iterations are in ascending order, if it goes down by one."""
    if loop.step != -1:
        return loop
    start, stop = (fold(add(e, Const(1, INT64))) for e in (loop.stop, loop.start))
    return replace(loop, start=start, stop=stop, step=1)


def summing(loop: For, body: Iterable[Stmt], value: Expr, target: str, names: Names) -> tuple[list[Stmt], Expr]:
    """A loop that sums a value of its body, and the sum."""
    carried, result = names.fresh(f"{target}_sum"), names.fresh(f"{target}_sum")
    carry = Carry(carried, number(0, value.type), add(Ref(carried, value.type), value), result)
    return [replace(loop, carries=(carry,), body=tuple(body))], Ref(result, value.type)


def clipped(loop: For, extent: Expr) -> For:
    """The iterations of an ascending loop that are inside an axis."""
    if in_range(Ref(loop.var, INT64), extent, (loop,)):
        return loop
    start = loop.start if loop.start == number(0, INT64) else Op("max", (loop.start, number(0, INT64)), INT64)
    return replace(loop, start=start, stop=Op("min", (loop.stop, extent), INT64))


def ascending_loop(loop: For, names: dict[str, Expr]) -> For:
    """The iterations of a loop in ascending order, with other names in its bounds and nothing in it."""
    bounds = ascending(loop)
    assert bounds is not None or loop.step == 1
    ends = (loop.start, loop.stop) if bounds is None else (bounds[0].expr(), bounds[1].expr())
    start, stop = (fold(substitute(e, names)) for e in ends)
    return For(loop.var, start, stop, 1 if bounds is None else bounds[2], (), (), location=loop.location)


def has_state_arrays(loop: For) -> bool:
    """Whether iterations of a loop store to the same elements, and not just add to them."""
    stores = [s for s in walk(loop.body) if isinstance(s, Store) and accumulation(s) is None]
    return any(not any(loop.var in free_names(i) for i in s.index) for s in stores)


def reaches_all(function: Function, store: Store, loops: Collection[For]) -> bool:
    """Whether a store in these loops, under no condition, reaches every element of its array."""
    shape = function.array(store.array).shape
    if len(loops) != len(shape):
        return False
    for loop in loops:
        bounds = ascending(loop)
        axis = next((k for k, i in enumerate(store.index) if i == Ref(loop.var, INT64)), None)
        if axis is None or bounds is None or bounds != (Affine((), 0), affine(shape[axis]), 1):
            return False
    return True
