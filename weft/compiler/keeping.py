"""Functions that also return what their gradients would else compute again: of chained products what their rows fold, of
others the sums that derivatives are taken at, and the counts that tell which there are.

Of a softmax that is the maximum and the sum of each row; of a linear layer what its activation is applied to; of a rank how
many are above, which tells whether there is a gradient. They are stored where the function has them, after the loops that
carry them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weft.compiler.recomputed import chain_of, may_chain
from weft.compiler.settled import settled
from weft.errors import NotDifferentiable
from weft.loops.affine import evaluate
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Carry,
    Const,
    Expr,
    For,
    Function,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_names,
    loaded_arrays,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.simplify import fold as simplified
from weft.loops.types import BFLOAT16, FLOAT16, INT64

if TYPE_CHECKING:
    from weft.graph.chains import Chain


# Points of a fold from which on keeping it costs less than computing it again: it moves 8 bytes a result, in whose time tensor
# cores multiply some 600 times, and multiply-adds 50 times.
FEWEST_OF_HALVES, FEWEST_POINTS = 512, 64


@dataclass(frozen=True)
class Kept:
    """Folds that a function returns for its gradients, in calls in which they have so many points at the least. points: how
    many; None: in all calls. sizes: the names in it, each with the argument and the axis that it is of.
    """

    folds: tuple[str, ...] = ()
    points: Expr | None = None
    sizes: tuple[tuple[str, str, int], ...] = ()
    least: int = 0

    def pays(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether it does in a call with arguments of these shapes."""
        names = {name: shapes[argument][axis] for name, argument, axis in self.sizes}
        return self.points is None or evaluate(self.points, names) >= self.least


def kept_folds(function: Function) -> Kept:
    """The folds of a function that its gradients need and would take many points for."""
    if any(a.role == "inout" for a in function.arrays):
        return Kept()
    if rows := _of_rows(function):
        return Kept(rows)
    folds = _of_products(function)
    return _counted(function, folds) if folds else Kept()


def _counted(function: Function, folds: tuple[str, ...]) -> Kept:
    """Folds with the number of their points, as far as that is told by sizes."""
    loop = next(s for s in walk(function.body) if isinstance(s, For) and any(c.name in folds for c in s.carries))
    points: Expr = Const(1, INT64)
    for own in (loop, *(s for s in walk(loop.body) if isinstance(s, For))):
        points = simplified(Op("mul", (points, Op("sub", (own.stop, own.start), INT64)), INT64))
    used = [s for s in function.sizes if s.name in free_names(points)]
    if len(used) != len(free_names(points)) or not all(s.array in function.parameters for s in used):
        return Kept(folds)
    arrays = {e.array for s in walk((loop,)) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)}
    halves = all(function.array(a).dtype in (FLOAT16, BFLOAT16) for a in arrays)
    sizes = tuple((s.name, s.array, s.axis) for s in used)
    return Kept(folds, points, sizes, FEWEST_OF_HALVES if halves else FEWEST_POINTS)


def _of_products(function: Function) -> tuple[str, ...]:
    """The folds of what rows and columns have together whose values derivatives are taken at, and counts that gradients ask
    for, one for each element of a result: more, as the scores of attention, are computed again, and so is what is made of such.
    """
    from weft.loops.adjoint import adjoint, differentiable, floating_results

    stores = [s for s in walk(function.body) if isinstance(s, Store) and s.array in function.results]
    elements = [{n for i in s.index for n in free_names(i)} for s in stores]
    local = frozenset(a.name for a in function.arrays if a.role == "local")
    found = _products(function.body, (), local)
    folds = tuple(dict.fromkeys(fold for fold, around in found if {*around} in elements))
    whole = keeping(function, folds) if folds else None
    if whole is None:
        return ()
    kept = whole.results[len(function.results) :]
    try:
        made = adjoint(settled(whole), differentiable(function), floating_results(function))
    except NotDifferentiable:
        return ()
    read = loaded_arrays(made.body)
    return tuple(fold for fold, array in zip(folds, kept, strict=True) if array in read)


def _products(
    statements: tuple[Stmt, ...], around: tuple[str, ...], local: frozenset[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What loops carry of elements that some of the loops around them have in common, and other elements that others have, and
    what they count; the variables of these. local: arrays whose elements are made in between, of which it is not told.
    """
    for s in statements:
        if isinstance(s, For) and not s.carries:
            yield from _products(s.body, (*around, s.var), local)
        elif isinstance(s, For) and not isinstance(s.stop, Const):
            inner = {s.var, *(own.var for own in walk(s.body) if isinstance(own, For))}
            loads = [e for own in walk(s.body) for x in statement_exprs(own) for e in walk_expr(x) if isinstance(e, Load)]
            loads += [e for c in s.carries for e in walk_expr(c.next) if isinstance(e, Load)]
            named = [{n for i in e.index for n in free_names(i)} for e in loads]
            sides = [own & {*around} for own in named if own & inner]
            made = any(e.array in local for e in loads)
            if not made and any(a - b and b - a for a in sides for b in sides):
                yield from ((c.name, around) for c in s.carries if c.type.category == "float")
            elif not made and len(s.carries) == 1 and s.carries[0].type.category == "int":
                yield s.carries[0].name, around


def _of_rows(function: Function) -> tuple[str, ...]:
    """The folds that each row of chained products has once, if their gradients are computed again."""
    if not may_chain(function):
        return ()
    chain = chain_of(function)
    if chain is None or (chain.asked and not chain.told_by_rows) or chain.together is not None or chain.pages:
        return ()
    folds = tuple(f.results[0] for f in (*chain.leading, *chain.following))
    whole = keeping(function, folds)
    again = chain_of(whole) if whole is not None else None
    return folds if whole is not None and again is not None and _has(again, folds, whole.results[-len(folds) :]) else ()


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
