"""Gradients of chained products as loops: what rows keep, then what rows add up, and what columns do.

The adjoint of loops saves what it needs of them; of attention that is the scores, rows x columns of them. Here these are
computed again, in each row and in each column, and what is saved has an element for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.loops.affine import affine
from weft.loops.ir import (
    Array,
    Const,
    Equality,
    Expr,
    For,
    Function,
    Op,
    Ref,
    Stmt,
    bodies,
    statement_exprs,
    walk,
    walk_expr,
    without_checks,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.types import BFLOAT16, FLOAT16, INT64

if TYPE_CHECKING:
    from weft.graph.chains import Chain
    from weft.graph.tile import TileGraph, Write

# Rules of derivatives that are those of the plain operator, or of an extremum that cancels.
_PLAIN = frozenset({"", "amax", "amin", "max_of_all", "min_of_all"})


def recomputing(
    function: Function, wanted: tuple[str, ...], seeded: tuple[int, ...] | None = None, agree: bool = False
) -> Function | None:
    """The adjoint of a function, as `weft.loops.adjoint` has it, if that is one nest of chained products of a 16-bit type,
    whose scores no memory need hold; None where it is not, or has other gradients than those of operands of its products.
    agree: it is for calls whose sizes are as expected; points and lanes are, as many as each other.
    """
    if not may_chain(function):
        return None
    from weft.graph.build import build
    from weft.graph.chains import chain, inside, prepared
    from weft.graph.gradients import gradients
    from weft.graph.passes import passes
    from weft.graph.tile import NotTiles
    from weft.loops.adjoint import differentiable, floating_results, frame
    from weft.loops.algebra.counters import settle
    from weft.loops.analyze import schedule
    from weft.loops.normalize import normalize

    bare = replace(function, body=without_checks(function.body), demands=())
    bare = settle(normalize(bare, derivatives=True))
    if not {*wanted} <= {*differentiable(bare)}:
        return None
    found = schedule(bare)
    if len(found.nests) != 1:
        return None
    names = Names.of(found.function)
    names.taken |= names_bound_in(found.nests[0].body) | {a.var for a in found.nests[0].axes}
    made = frame(bare, wanted, floating_results(bare) if seeded is None else seeded, names)
    try:
        graph = build(found, found.nests[0])
        own = chain(graph, [s.name for s in found.function.sizes])
        if (own.asked and not own.told_by_rows) or own.together is not None:
            return None
        names.taken |= {*graph.made, *(a.name for a in graph.axes)}
        result = gradients(prepared(inside(graph)[0]), own, made.function, made.seeds, made.saved, made.gradients, names)
        body: list[Stmt] = []
        arrays: list[Array] = [*made.function.arrays, *result.kept]
        for one in result.graphs:
            loops = passes(one, made.function, names, together=True)
            body += (replace(s, apart=bool(body)) if isinstance(s, For) else s for nest in loops.nests for s in nest)
            arrays += loops.memory
    except NotTiles:
        return None
    equalities = made.function.equalities
    points = own.axes[own.point]
    for lanes in (own.axes[a] for a in own.sums.columns):
        if agree and lanes != points and all(a.start == Const(0, INT64) and isinstance(a.stop, Ref) for a in (points, lanes)):
            what = f"the numbers of {own.point} and {own.lane}"
            equalities = (*equalities, Equality(points.stop, lanes.stop, what, function.location, expected=True))
    writes = [(w, _covers(one, w, made.function)) for one in result.graphs for w in one.writes]
    if agree:
        for w, pairs in writes:
            for size, extent in pairs or ():
                what = f"the numbers of rows of {w.array} and of what they are made of"
                equalities = (*equalities, Equality(size, extent, what, function.location, expected=True))
    covered = {w.array for w, pairs in writes if pairs is not None and (agree or not pairs)}
    arrays = [replace(a, fill=None) if a.name in covered else a for a in arrays]
    return replace(made.function, arrays=tuple(arrays), body=tuple(body), equalities=equalities)


def _depths(statements: tuple[Stmt, ...], around: int = 0) -> Iterator[int]:
    """Of each loop that carries, the number of those around it."""
    for s in statements:
        if isinstance(s, For):
            yield from [around] if s.carries else []
        for body in bodies(s):
            yield from _depths(body, around + isinstance(s, For))


def _covers(graph: TileGraph, write: Write, function: Function) -> tuple[tuple[Ref, Ref], ...] | None:
    """The sizes that have to be equal for a write to reach every element of its array; None where none say so."""
    axes, sizes = {a.name: a for a in graph.axes}, {s.name for s in function.sizes}
    shape = function.array(write.array).shape if any(a.name == write.array for a in function.arrays) else ()
    found: list[tuple[Ref, Ref]] = []
    for i, extent in zip(write.index, shape, strict=bool(shape)):
        axis = axes.get(i.name) if isinstance(i, Ref) else None
        if axis is None or axis.start != Const(0, INT64):
            return None
        if affine(axis.stop) == affine(extent):
            continue
        least = _least_of(axis.stop)
        if not isinstance(extent, Ref) or any(n.name not in sizes for n in (extent, *least)) or not least:
            return None
        found += [(n, extent) for n in least if n != extent]
    return tuple(found) if shape else None


def _least_of(expr: Expr) -> tuple[Ref, ...]:
    """The names that an expression is the least one of, if it is; sizes are no less than 0."""
    match expr:
        case Ref():
            return (expr,)
        case Op(name="min", args=(a, b)) if (first := _least_of(a)) and (second := _least_of(b)):
            return tuple(dict.fromkeys((*first, *second)))
        case Op(name="max", args=(a, Const(value=0)) | (Const(value=0), a)):
            return _least_of(a)
    return ()


def chain_of(function: Function) -> Chain | None:
    """The chained products that a function is; None where it is none."""
    from weft.graph.build import build
    from weft.graph.chains import chain
    from weft.graph.tile import NotTiles
    from weft.loops.analyze import schedule

    found = schedule(replace(function, body=without_checks(function.body), demands=()))
    if len(found.nests) != 1:
        return None
    try:
        return chain(build(found, found.nests[0]), [s.name for s in found.function.sizes])
    except NotTiles:
        return None


def may_chain(function: Function) -> bool:
    """Whether a product of a 16-bit type may be folded again: loops that carry are then inside of more others, or fewer."""
    if not any(a.dtype in (FLOAT16, BFLOAT16) for a in function.arrays):
        return False
    exprs = (e for s in walk(function.body) for x in statement_exprs(s) for e in walk_expr(x))
    if any(isinstance(e, Op) and e.derivative not in _PLAIN for e in exprs):
        return False
    return len(set(_depths(function.body))) > 1
