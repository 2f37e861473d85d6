"""Interchange inside a nest: a loop around a parallel loop goes into it, and adds up one element at a time.

In `for k: for j: c[j] += a[j, k]` every iteration of k updates the whole of c. Where no two iterations of j touch the same
element, whatever the iterations of k (isl decides), each j may run through all of k by itself: in the same order for every
element, which a scalar then holds meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.loops.affine import Affine, affine
from weft.loops.cells import written
from weft.loops.ir import Expr, For, If, Let, Load, Op, Stmt, free_names, has_load, walk_expr
from weft.loops.names import names_bound_in
from weft.loops.types import INT64

# Whether no two iterations of a loop, in these loops, touch the same element with a write among them.
Free = Callable[[For, tuple[For, ...]], bool]


def sink(statements: tuple[Stmt, ...], loops: tuple[For, ...], stuck: frozenset[str], free: Free) -> tuple[Stmt, ...]:
    """The statements with the loops `stuck` moved into the parallel loops that are all of their bodies."""
    return tuple(_statement(s, loops, stuck, free) for s in statements)


def _statement(stmt: Stmt, loops: tuple[For, ...], stuck: frozenset[str], free: Free) -> Stmt:
    match stmt:
        case For():
            if stmt.var in stuck:
                swapped = _swapped(stmt)
                if swapped is not None and free(swapped, loops):
                    return replace(swapped, body=sink(swapped.body, (*loops, swapped), stuck - {swapped.var}, free))
            return replace(stmt, body=sink(stmt.body, (*loops, stmt), stuck, free))
        case If():
            then, orelse = sink(stmt.then, loops, stuck, free), sink(stmt.orelse, loops, stuck, free)
            return replace(stmt, then=then, orelse=orelse)
    return stmt


def _swapped(outer: For) -> For | None:
    """The loop in a loop's body around that loop; None where they are not perfectly nested, or it might mean another thing."""
    if not outer.body:
        return None
    *lets, inner = outer.body
    if not isinstance(inner, For) or outer.carries or inner.carries or not all(isinstance(s, Let) for s in lets):
        return None
    bounds = (outer.start, outer.stop, inner.start, inner.stop)
    if any(has_load(e) for e in bounds):
        return None
    if (free_names(inner.start) | free_names(inner.stop)) & names_bound_in(lets):
        return None
    stored = set(written((inner,)))
    loaded = {e.array for s in lets if isinstance(s, Let) for e in walk_expr(s.value) if isinstance(e, Load)}
    if stored & loaded:
        return None
    ranges = _ranges(outer, inner)
    if ranges is None:
        return None
    (start, stop), (inner_start, inner_stop) = ranges
    within = replace(outer, start=inner_start, stop=inner_stop, body=(*lets, *inner.body))
    return replace(inner, start=start, stop=stop, body=(within,))


# Where a loop starts and stops.
Ends = tuple[Expr, Expr]


def _ranges(outer: For, inner: For) -> tuple[Ends, Ends] | None:
    """The ends of the inner loop around the outer one, and those of the outer one in it; None for a shape unknown here.

    A rectangle has the same ends. Of the two triangles, k < i + d becomes i > k - d, and k >= i + d becomes i <= k - d.
    """
    if outer.var not in free_names(inner.start) | free_names(inner.stop):
        return (inner.start, inner.stop), (outer.start, outer.stop)
    first, last, low, high = map(affine, (outer.start, outer.stop, inner.start, inner.stop))
    if first is None or last is None or low is None or high is None or (outer.step, inner.step) != (1, 1):
        return None
    here, one = Affine(((inner.var, 1),), 0), Affine((), 1)
    slopes = low.coefficient(outer.var), high.coefficient(outer.var)
    if slopes == (0, 1):
        shift = high - Affine(((outer.var, 1),), 0)
        above = here - shift + one
        start = above.expr() if _at_least(low - shift + one, first) else Op("max", (first.expr(), above.expr()), INT64)
        return (low.expr(), (last + shift - one).expr()), (start, outer.stop)
    if slopes == (1, 0):
        shift = low - Affine(((outer.var, 1),), 0)
        below = here - shift + one
        stop = below.expr() if _at_least(last, high - shift) else Op("min", (last.expr(), below.expr()), INT64)
        return ((first + shift).expr(), high.expr()), (outer.start, stop)
    return None


def _at_least(a: Affine, b: Affine) -> bool:
    """Whether a >= b for all values of their names, as far as their difference shows."""
    difference = a - b
    return not difference.terms and difference.constant >= 0
