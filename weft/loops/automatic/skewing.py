"""Skewing: two loops whose dependences all run along a diagonal become a loop over diagonals around a loop along each.

`aa[i, j] = aa[i - 1, j - 1] + bb[i, j]` needs what the iteration (i - 1, j - 1) stored, so that no diagonal needs another:
they may run at once, and along each is a recurrence of one element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Nested, loops_in, pairs_in
from weft.loops.affine import Affine, affine
from weft.loops.automatic.residues import distance, independent
from weft.loops.automatic.rewriting import Rewriting, copied, keeps_array, replaced
from weft.loops.cells import written
from weft.loops.ir import Expr, For, Function, Let, Load, Op, free_names, substitute_statements, walk_expr
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import fold_names
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import INT64

_ONE = Affine((), 1)


def skewings(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with one of the loops `stuck` and the loop that is its body replaced by loops over and along diagonals."""
    for nested in loops_in(function.body):
        if nested.loop.var not in stuck or keeps_array(function, nested.loop):
            continue
        inner = _inner(nested.loop)
        slope = 0 if inner is None else _slope(function, nested, inner)
        if inner is None or slope not in (1, -1):
            continue
        names = Names.of(function)
        whole, halves = _skewed(nested.loop, inner, slope, names)
        if not independent(_with(function, nested.loop, (whole,)), whole.var):
            continue
        first, second = halves
        other, came_from = copied(second, names)
        roles = {whole.var: inner.var, nested.loop.var: nested.loop.var}
        origin = {whole.var: inner.var, **{new: roles.get(old, old) for new, old in came_from.items()}}
        what = f"skewing: over the diagonals of ({nested.loop.var}, {inner.var})"
        reasons = {nested.loop.var: (what,), inner.var: (what,)}
        made = _with(function, nested.loop, (first, other))
        yield Rewriting(made, reasons, frees=frozenset(reasons), origin=origin)


def _with(function: Function, loop: For, made: tuple[For, ...]) -> Function:
    return replace(function, body=replaced(function.body, loop.var, lambda _: made))


def _inner(outer: For) -> For | None:
    """The loop that is all of the body of a loop, up to scalars; None where there is none, or no rectangle of iterations."""
    if not outer.body:
        return None
    *lets, inner = outer.body
    if not isinstance(inner, For) or outer.carries or inner.carries or (outer.step, inner.step) != (1, 1):
        return None
    bounds = (outer.start, outer.stop, inner.start, inner.stop)
    if any(affine(e) is None for e in bounds):
        return None
    if (free_names(inner.start) | free_names(inner.stop)) & {outer.var, *names_bound_in(tuple(lets))}:
        return None
    stored = set(written((inner,)))
    for s in lets:  # evaluated again for every iteration of the inner loop
        if not isinstance(s, Let) or any(isinstance(e, Load) and e.array in stored for e in walk_expr(s.value)):
            return None
    return inner


def _slope(function: Function, nested: Nested, inner: For) -> int | None:
    """How far the inner variable moves for each step of the outer one, along all dependences; None where they disagree."""
    polyhedra = Polyhedra(function)
    found: set[int] = set()
    for a, b, private in pairs_in(function, nested):
        if polyhedra.carried(a, b, nested.loop, private) is not None:
            over, along = distance(a, b, nested.loop.var), distance(a, b, inner.var)
            if not over or along is None or along % over:
                return None
            found.add(along // over)
    return found.pop() if len(found) == 1 else None


def _skewed(outer: For, inner: For, slope: int, names: Names) -> tuple[For, tuple[For, For]]:
    """The loop over the diagonals `inner - slope * outer`, and the same in two halves, in the first of which, or in the
    second, all diagonals start at the first iteration of the outer loop.
    """
    low, high, first, last = (affine(e) for e in (outer.start, outer.stop, inner.start, inner.stop))
    assert low is not None and high is not None and first is not None and last is not None
    var = names.fresh(f"{inner.var}_diagonal")
    diagonal, row = Affine(((var, 1),), 0), Affine(((outer.var, 1),), 0)
    column = diagonal + row * slope
    names_inside: dict[str, Expr] = {inner.var: column.expr()}
    body = fold_names(substitute_statements((*outer.body[:-1], *inner.body), names_inside), {})
    if slope > 0:  # the column reaches `first` in row first - diagonal, `last` in row last - diagonal
        begin, middle, end = first - high + _ONE, first - low, last - low
        enters, leaves = first - diagonal, last - diagonal
        starts = enters, low
    else:  # the column falls below `last` in row diagonal - last + 1, below `first` in row diagonal - first + 1
        begin, middle, end = low + first, low + last, high + last - _ONE
        enters, leaves = diagonal - last + _ONE, diagonal - first + _ONE
        starts = low, enters
    stop = Op("min", (high.expr(), leaves.expr()), INT64)

    def over(begin: Affine, end: Affine, start: Expr) -> For:
        along = replace(outer, start=start, stop=stop, body=body)
        return replace(inner, var=var, start=begin.expr(), stop=end.expr(), body=(along,), implied=False)

    whole = over(begin, end, Op("max", (low.expr(), enters.expr()), INT64))
    return whole, (over(begin, middle, starts[0].expr()), over(middle, end, starts[1].expr()))
