"""Transforms that visit the iterations of a band of loops in another order: interchange, reversal, skewing, strip-mining
and tiling. None changes what an iteration does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.errors import InapplicableTransform
from weft.loops.affine import affine
from weft.loops.ir import Const, Expr, For, Function, Op, Ref, substitute, substitute_statements
from weft.loops.names import Names
from weft.loops.normalize import simplify
from weft.loops.transforms.bounds import hull, reordered, shifted
from weft.loops.transforms.nest import (
    Band,
    Header,
    Proposal,
    around,
    band,
    checked,
    find_loop,
    fresh_arrays_move,
    refusal,
    replaced,
    sentence,
)
from weft.loops.transforms.order import Instance, Order, Retime, Time, Violation, counted
from weft.loops.types import INT64


def _int(value: int) -> Const:
    return Const(value, INT64)


def retimed(function: Function, found: Band, new: Sequence[Expr]) -> Retime:
    """New times for all that is in a band: these expressions in place of its loops."""
    depth = len(around(function, found.loops[0]))
    outer, inner = found.vars[0], found.vars[-1]
    first, last = 2 * depth + 1, 2 * (depth + len(found.loops))

    def retime(instance: Instance) -> Time | None:
        loops = [loop.var for loop in instance.access.loops]
        if inner not in loops:
            return () if instance.scalar and outer in loops else None  # the innermost loop carries the same scalar
        return (*instance.time[:first], *new, *instance.time[last:])

    return retime


def interchange(function: Function, outer: str, inner: str) -> Proposal:
    """The loop over `inner` around the one over `outer`; the loops between them stay between them."""
    what = f"interchange of {outer} and {inner}"
    inside = find_loop(function, inner)
    path = [f.var for f in around(function, inside)]
    if outer not in path:
        find_loop(function, outer)
        raise InapplicableTransform(
            f"{what}: the loop over {inner} is not inside the one over {outer}",
            location=inside.location,
            remedy="name the outer loop first",
        )
    found = band(function, [*path[path.index(outer) :], inner], what)
    order = [inner, *found.vars[1:-1], outer]
    headers = reordered(function, found.headers, order, what)
    by_var = {loop.var: loop for loop in found.loops}
    dependence_order = Order.of(function)
    retime = retimed(function, found, [counted(by_var[v]) for v in order])
    violation = checked(dependence_order, retime, what, found.loops[0].location)
    arrays = fresh_arrays_move(function, found.vars, tuple(order), what)
    made = replaced(function, found.loops[0], (found.nested(headers, Names.of(function)),))
    remedy = _skewing(violation, outer, inner)
    return Proposal(
        what,
        replace(made, arrays=arrays),
        sentence(dependence_order, found.loops, f"keep their direction with {inner} around {outer}", retime),
        refusal(what, violation, found.loops[0].location, remedy),
    )


def _skewing(violation: Violation | None, outer: str, inner: str) -> str:
    """What to skew so that a distance (positive, negative) has two numbers that are not negative."""
    if violation is None or not {outer, inner} <= set(violation.loops):
        return ""
    distance = dict(zip(violation.loops, violation.before, strict=True))
    first, second = distance[outer], distance[inner]
    if isinstance(first, int) and isinstance(second, int) and first > 0 > second:
        return f'skew {inner} by {outer} first: .skew("{inner}", by="{outer}", factor={-(second // first)})'
    return ""


def reverse(function: Function, var: str) -> Proposal:
    """The iterations of a loop from the last to the first."""
    what = f"reversal of {var}"
    found = band(function, [var], what)
    (loop,) = found.loops
    header = found.headers[0]
    step = header.step
    one = _int(1 if step > 0 else -1)
    first = last_value(header)
    backwards = Header(var, first, simplify(Op("sub", (header.start, one), INT64)), -step, header.location)
    order = Order.of(function)
    retime = retimed(function, found, [Op("neg", (counted(loop),), INT64)])
    violation = checked(order, retime, what, loop.location)
    made = replaced(function, loop, (found.nested([backwards], Names.of(function)),))
    why = sentence(order, (loop,), f"are not carried by {var}", retime)
    return Proposal(what, made, why, refusal(what, violation, loop.location))


def last_value(header: Header) -> Expr:
    """The last value of a loop's variable; something before the first one where there is none."""
    one = _int(1 if header.step > 0 else -1)
    end = simplify(Op("sub", (header.stop, one), INT64))
    if abs(header.step) == 1:
        return end
    ends = (end, header.start) if header.step > 0 else (header.start, end)
    whole = Op("floordiv", (simplify(Op("sub", ends, INT64)), _int(abs(header.step))), INT64)
    passed = Op("mul", (_int(header.step), whole), INT64)
    return passed if header.start == _int(0) else simplify(Op("add", (header.start, passed), INT64))


def skew(function: Function, inner: str, by: str, factor: int) -> Proposal:
    """The variable of a loop counts from later on in each iteration of a loop around it: inner + factor * by."""
    what = f"skewing of {inner} by {factor} * {by}"
    loop = find_loop(function, inner)
    if by not in {f.var for f in around(function, loop)}:
        find_loop(function, by)
        raise InapplicableTransform(
            f"{what}: the loop over {by} is not around the one over {inner}",
            location=loop.location,
            remedy="name a loop around it",
        )
    if factor == 0:
        raise InapplicableTransform(f"{what} changes nothing", location=loop.location, remedy="use another factor")
    old = {inner: shifted(Ref(inner, INT64), -factor, by)}
    start, stop = shifted(loop.start, factor, by), shifted(loop.stop, factor, by)
    carries = tuple(replace(c, next=substitute(c.next, old)) for c in loop.carries)
    skewed = replace(loop, start=start, stop=stop, carries=carries, body=substitute_statements(loop.body, old))
    why = f"every iteration happens when it did: {inner} is only counted from another start in each iteration of {by}"
    return Proposal(what, replaced(function, loop, (skewed,)), why)


def strip_mine(function: Function, var: str, size: int) -> Proposal:
    """A loop over blocks of `size` iterations around one over the iterations of a block."""
    what = f"strip-mining of {var} by {size}"
    _check_size(what, size)
    found = band(function, [var], what)
    (loop,) = found.loops
    names = Names.of(function)
    block = names.fresh(f"{var}_block")
    headers = _blocks(found.headers, found.headers, [block], [size])
    arrays = fresh_arrays_move(function, (var,), (block, var), what)
    made = replaced(function, loop, (found.nested(headers, names),))
    return Proposal(what, replace(made, arrays=arrays), "the iterations happen in the same order")


def tile(function: Function, variables: Sequence[str], sizes: Sequence[int]) -> Proposal:
    """Loops over tiles around loops over the iterations of a tile: `sizes` iterations along each of the loops."""
    what = f"tiling of {', '.join(variables)} by {', '.join(map(str, sizes))}"
    if len(variables) != len(sizes) or not variables:
        raise InapplicableTransform(f"{what}: {len(variables)} loops and {len(sizes)} sizes", remedy="give each loop its size")
    for size in sizes:
        _check_size(what, size)
    found = band(function, variables, what)
    names = Names.of(function)
    tiles = [names.fresh(f"{v}_tile") for v in variables]
    outer = hull(function, found.headers, what)
    headers = _blocks(found.headers, outer, tiles, sizes)
    numbers = []
    for header, size in zip(outer, sizes, strict=True):
        here = Ref(header.var, INT64)
        ends: tuple[Expr, Expr] = (here, header.start) if header.step > 0 else (header.start, here)
        numbers.append(Op("floordiv", (Op("sub", ends, INT64), _int(size * abs(header.step))), INT64))
    order = Order.of(function)
    retime = retimed(function, found, [*numbers, *map(counted, found.loops)])
    violation = checked(order, retime, what, found.loops[0].location)
    arrays = fresh_arrays_move(function, found.vars, (*tiles, *found.vars), what)
    made = replaced(function, found.loops[0], (found.nested(headers, names),))
    remedy = next((r for a in variables for b in variables if (r := _skewing(violation, a, b))), "")
    return Proposal(
        what,
        replace(made, arrays=arrays),
        sentence(order, found.loops, "never lead from a tile to an earlier one", retime),
        refusal(what, violation, found.loops[0].location, remedy),
    )


def _check_size(what: str, size: int) -> None:
    if size < 1:
        raise InapplicableTransform(f"{what}: a block of {size} iterations", remedy="use a size of 1 or more")


def _blocks(
    headers: Sequence[Header], outer: Sequence[Header], blocks: Sequence[str], sizes: Sequence[int]
) -> tuple[Header, ...]:
    """Loops over blocks, then over the iterations in each. outer: bounds that hold for all iterations, for the blocks."""
    around_all, inside = [], []
    for header, whole, block, size in zip(headers, outer, blocks, sizes, strict=True):
        stride = header.step * size
        around_all.append(Header(block, whole.start, whole.stop, stride, header.location))
        here = Ref(block, INT64)
        later, earlier = ("min", "max") if header.step > 0 else ("max", "min")
        end = shifted_by(here, stride)
        start = here if header.start == whole.start else Op(earlier, (here, header.start), INT64)
        inside.append(replace(header, start=start, stop=Op(later, (end, header.stop), INT64)))
    return (*around_all, *inside)


def shifted_by(expr: Expr, amount: int) -> Expr:
    """expr + amount."""
    return simplify(Op("add", (expr, _int(amount)), INT64))


def same_range(first: For, second: For) -> bool:
    """Whether two loops run over the same values, as far as sums tell it."""

    def same(a: Expr, b: Expr) -> bool:
        left, right = affine(a), affine(b)
        return a == b or (left is not None and left == right)

    return first.step == second.step and same(first.start, second.start) and same(first.stop, second.stop)
