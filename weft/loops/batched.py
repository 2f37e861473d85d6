"""A function for many calls at once: the loop nest of the function, in one more loop over the elements of a batch.

Arguments that carry the batch have it as their first axis, as do all arrays that the function makes. So two elements of the
batch never touch one element of an array with a write among them, and the analysis proves the loop parallel like any other.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Ref,
    Size,
    Stmt,
    Store,
    bound_names,
    free_arrays,
    free_names,
    map_statement,
    rewrite,
    statement_exprs,
    validate,
    walk,
)
from weft.loops.names import Names
from weft.loops.types import INT64


def batched(function: Function, carried: frozenset[str]) -> Function:
    """The function that computes `function` for every element of a batch.

    carried: the arguments, arrays, that have an axis of the batch before their own, all of one size; one at least, and every
    array that the function writes. Others are the same for all elements. What the function makes has that axis too; what it
    returns as numbers are arrays of them.
    """
    names = Names.of(function)
    own = {a.name: a for a in function.arrays}
    assert carried and all(a.role != "inout" or a.name in carried for a in function.arrays)
    size = Size(names.fresh("batch"), next(p for p in function.parameters if p in carried), 0)
    extent = Ref(size.name, INT64)
    wide = frozenset(n for n, a in own.items() if n in carried or (a.role not in ("input", "inout") and not a.within))
    steady, segments = _segments(function)
    body: list[Stmt] = list(steady)
    within: dict[str, str] = {}  # the batch's loop around each of the function's
    for segment in segments:
        loop = _over_batch(segment, wide, names.fresh("b"), extent)
        within |= {s.var: loop.var for s in walk(segment) if isinstance(s, For)}
        body.append(loop)

    def array(a: Array) -> Array:
        if a.name in wide:
            return replace(a, shape=(extent, *a.shape), batches=a.batches + 1)
        return replace(a, within=(within[a.within[0]], *a.within)) if a.within and a.within[0] in within else a

    def moved(name: str, axis: int) -> int:
        return axis + 1 if name in wide else axis

    made = replace(
        function,
        name=f"{function.name}_batched",
        sizes=(size, *(replace(s, axis=moved(s.array, s.axis)) for s in function.sizes)),
        arrays=tuple(map(array, function.arrays)),
        body=tuple(body),
        numbers=(),
        container="",
        joints=tuple(
            replace(j, parts=tuple((moved(j.array, axis), step, n) for axis, step, n in j.parts)) for j in function.joints
        ),
        direct=frozenset((name, moved(name, axis)) for name, axis in function.direct),
        ends=frozenset((name, moved(name, axis), count) for name, axis, count in function.ends),
    )
    validate(made)
    return made


def _segments(function: Function) -> tuple[tuple[Let, ...], list[tuple[Stmt, ...]]]:
    """The numbers that sizes and arguments alone decide, and the other statements in runs that share no scalar: what need not
    be in one loop over the batch may become kernels of its own, as it would be without a batch.
    """
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    steady: list[Let] = []
    segments: list[tuple[Stmt, ...]] = []
    for stmt in function.body:
        if isinstance(stmt, Let) and not free_arrays(stmt.value) and free_names(stmt.value) <= known:
            steady.append(stmt)
            known.add(stmt.name)
            continue
        uses = {n for s in walk((stmt,)) for e in statement_exprs(s) for n in free_names(e)}
        first = next((k for k, s in enumerate(segments) if uses & {n for t in s for n in bound_names(t)}), len(segments))
        together = tuple(s for segment in segments[first:] for s in segment)
        segments[first:] = [(*together, stmt)]
    return tuple(steady), segments


def _over_batch(statements: tuple[Stmt, ...], wide: frozenset[str], var: str, extent: Expr) -> For:
    """The loop that executes statements for every element of the batch."""
    here = Ref(var, INT64)

    def element(e: Expr) -> Expr | None:
        return replace(e, index=(here, *e.index)) if isinstance(e, Load) and e.array in wide else None

    def block(inner: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(statement, inner))

    def statement(stmt: Stmt) -> Stmt:
        stmt = map_statement(stmt, lambda e: rewrite(e, element), block)
        return replace(stmt, index=(here, *stmt.index)) if isinstance(stmt, Store) and stmt.array in wide else stmt

    return For(var, Const(0, INT64), extent, 1, (), block(statements))
