"""Functions that also return what their gradients would else compute again: of chained products what their rows fold, and
else products of matrices.

Of a softmax of 16-bit scores that is the maximum and the sum of each row. They are stored where the function has them, after
the loops that carry them. Of multiply-adds it is each product that a gradient needs, as cosines of all pairs do theirs, if an
argument or a result has as many elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.compiler.recomputed import chain_of, may_chain
from weft.compiler.settled import in_loops
from weft.graph.contraction import contraction
from weft.graph.tile import Fold, Map, Read, TileGraph, Write, names_of, uses
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    Let,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    bodies,
    free_names,
    walk,
    walk_expr,
    without_checks,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.types import INT64

if TYPE_CHECKING:
    from weft.graph.chains import Chain


def kept_folds(function: Function) -> tuple[str, ...]:
    """The folds that each row of a function has once and its gradients need; none where it is no chain whose gradients are
    computed again.
    """
    if not may_chain(function) or any(a.role == "inout" for a in function.arrays):
        return ()
    chain = chain_of(function)
    if chain is None or (chain.asked and not chain.told_by_rows) or chain.together is not None:
        return ()
    folds = tuple(f.results[0] for f in (*chain.leading, *chain.following))
    whole = keeping(function, folds)
    again = chain_of(whole) if whole is not None else None
    return folds if whole is not None and again is not None and _has(again, folds, whole.results[-len(folds) :]) else ()


def keeping_products(function: Function) -> Function | None:
    """The function in passes, with one more result for each product of matrices that its gradients need; None where there is no
    such, or where passes ask something else of sizes.
    """
    from weft.graph.build import build
    from weft.graph.passes import passes
    from weft.graph.tile import NotTiles
    from weft.loops.analyze import requirements, schedule

    bare = without_checks(function.body) == function.body and not function.demands
    if not bare or not _may_multiply(function.body) or any(a.role == "inout" for a in function.arrays):
        return None
    found = schedule(function)
    names = Names.of(found.function)
    for nest in found.nests:
        names.taken |= names_bound_in(nest.body) | {a.var for a in nest.axes}
    body: list[Stmt] = []
    memory: list[Array] = []
    kept: list[str] = []
    for nest in found.nests:
        try:
            made = passes(build(found, nest), found.function, names, keeping=_products_needed)
        except NotTiles:
            made = None
        if made is None or not made.kept:
            body += in_loops(nest)
            continue
        body += itertools.chain(*made.nests)
        memory += (replace(a, role="result") if a.name in made.kept else a for a in made.memory)
        kept += made.kept
    if not kept:
        return None
    arrays, results = (*found.function.arrays, *memory), (*found.function.results, *kept)
    whole = replace(found.function, body=tuple(body), arrays=arrays, results=results)
    asked = ({(r.condition, r.array, r.axis) for r in requirements(f)} for f in (whole, found.function))
    return whole if next(asked) == next(asked) else None


def keeping_nothing(function: Function, like: Function) -> Function:
    """The function with as many results as one that keeps something, which have no elements: for calls whose sizes do not
    agree, of which passes would ask more.
    """
    kept = [like.array(name) for name in like.results[len(function.results) :]]
    names, nought = Names.of(function), Const(0, INT64)
    empty = [Array(names.fresh(a.name), a.dtype, (nought,) * len(a.shape), "result", Const(0.0, a.dtype)) for a in kept]
    results = (*function.results, *(a.name for a in empty))
    return replace(function, arrays=(*function.arrays, *empty), results=results)


def _may_multiply(statements: tuple[Stmt, ...]) -> bool:
    """Whether a loop inside of two others, or of more, may sum products of elements."""
    for depth, loop in _carrying(statements):
        exprs = [c.next for c in loop.carries] + [s.value for s in loop.body if isinstance(s, Let)]
        if depth >= 2 and any(isinstance(x, Op) and x.name == "mul" for e in exprs for x in walk_expr(e)):
            return True
    return False


def _carrying(statements: tuple[Stmt, ...], around: int = 0) -> Iterator[tuple[int, For]]:
    """The innermost loops that carry, each with the number of loops around it."""
    for s in statements:
        if isinstance(s, For) and s.carries and not any(isinstance(inner, For) for inner in walk(s.body)):
            yield around, s
        for body in bodies(s):
            yield from _carrying(body, around + isinstance(s, For))


def _products_needed(graph: TileGraph) -> tuple[str, ...]:
    """The products of matrices that are no terms of the results alone, and lie over the axes of an array."""
    folds = [v for v in graph.values if isinstance(v, Fold) and v.types[0].category == "float" and contraction(graph, v)]
    lying = {frozenset(v.axes) for v in (*graph.values, *graph.writes) if isinstance(v, Read | Write)}
    return tuple(v.results[0] for v in folds if frozenset(v.axes) in lying and not _plain(graph, v.results[0]))


def _plain(graph: TileGraph, name: str) -> bool:
    """Whether the results of a graph are terms of a value and others, so that no gradient needs the value."""
    for w in graph.writes:
        if any(name in free_names(e) for e in (*w.index, *(() if w.guard is None else (w.guard,)))):
            return False
        if not _term(w.value, name, graph):
            return False
    for v in graph.values:
        if any(name in free_names(e) for e in uses(v)):
            part = v.value if isinstance(v, Map) else v.parts[0] if isinstance(v, Fold) and v.algebra == "sum" else None
            if part is None or not _term(part, name, graph) or not _plain(graph, names_of(v)[0]):
                return False
    return True


def _term(e: Expr, name: str, graph: TileGraph) -> bool:
    """Whether an expression has a value as a term alone, with factors that are the same for all points."""
    match e:
        case _ if name not in free_names(e):
            return True
        case Ref():
            return True
        case Op(name="add" | "sub" | "neg", args=args):
            return all(_term(a, name, graph) for a in args)
        case Op(name="mul", args=(a, b)):
            return any(_term(x, name, graph) and not free_names(y) & graph.made.keys() for x, y in ((a, b), (b, a)))
        case Op(name="div", args=(a, b)):
            return _term(a, name, graph) and not free_names(b) & graph.made.keys()
        case Round(value=value):
            return _term(value, name, graph)
    return False


def keeping(function: Function, folds: Sequence[str]) -> Function | None:
    """The function with one more result for each of these folds; None where it does not have them once a row."""
    names, arrays = Names.of(function), list(function.arrays)
    body, kept = function.body, []
    for fold in folds:
        own = [s for s in walk(body) if isinstance(s, For) and any(c.name == fold for c in s.carries)]
        made = _stored(function, body, own[0], names, fold) if len(own) == 1 else None
        if made is None:
            return None
        body, array = made
        arrays.append(array)
        kept.append(array.name)
    return replace(function, body=body, arrays=tuple(arrays), results=(*function.results, *kept)) if kept else None


def _has(again: Chain, folds: Sequence[str], kept: Sequence[str]) -> bool:
    """Whether what is kept are the folds themselves."""
    written = {w.array: w.value for w in again.writes}
    return written.keys() >= {*kept} and all(written[a] == Ref(n, written[a].type) for a, n in zip(kept, folds, strict=True))


def _stored(
    function: Function, body: tuple[Stmt, ...], loop: For, names: Names, name: str
) -> tuple[tuple[Stmt, ...], Array] | None:
    """The body with a store of what a loop has carried in the end, an element for each iteration of the loops around it."""
    around = _around(body, loop)
    found = extents(function, around)
    if not around or found is None:
        return None
    carry: Carry = next(c for c in loop.carries if c.name == name)
    array = replace(expanded(names.fresh(f"{name}_kept"), carry.type, found), role="result")
    index = expanded_index(found, [Ref(f.var, INT64) for f in around])
    store = Store(array.name, index, Ref(carry.result, carry.type), loop.location)

    def after(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in statements:
            out.append(replace(s, body=after(s.body)) if isinstance(s, For) and s is not loop else s)
            out += [store] if s is loop else []
        return tuple(out)

    return after(body), array


def _around(statements: tuple[Stmt, ...], loop: For) -> tuple[For, ...]:
    """The loops around a loop; none where a branch is."""
    for s in statements:
        if isinstance(s, For) and any(inner is loop for inner in walk(s.body)):
            return (s, *_around(s.body, loop))
    return ()
