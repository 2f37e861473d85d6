"""Axes of sweeps that follow each other in memory: counted as one, they are gone through without a nest. What is told by one of
them alone, as the weight of a channel, finds it by a division.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Axis, Fold, Map, Read, Write, names_of, uses
from weft.loops.affine import is_bound
from weft.loops.algebra.table import EXTREMA
from weft.loops.ir import ZERO, Expr, Function, Load, Op, Ref, free_names, substitute, walk_expr
from weft.loops.types import INT64
from weft.plan.facts import Geometry

# Pairs of axes, the slower first, in the order in which they are counted as one; one may be such a one.
Pairs = tuple[tuple[str, str], ...]


def pairs_in_memory(
    function: Function,
    sweeps: Sweeps,
    arrays: Mapping[str, Geometry],
    extents: Mapping[str, int],
    apart: bool = False,
    rows: bool = False,
) -> Pairs:
    """The axes that every sweep goes through together, where a step of the slower is as far as all of the faster everywhere.
    apart: where it is so of what has both of them. rows: so are those of the rows, which are gone through in any order.
    """
    found: list[tuple[str, str]] = []
    extents = dict(extents)
    while (pair := _pair(function, sweeps, arrays, extents, apart, rows)) is not None:
        found.append(pair)
        extents[one_name(*pair)] = extents[pair[0]] * extents[pair[1]]
        sweeps = merged(sweeps, (pair,))
    return tuple(found)


def one_name(slow: str, fast: str) -> str:
    """The name of the axis that counts both, which is none of the user's."""
    return f"{slow.split('.')[0]}.{fast.split('.')[-1]}"


def merged(sweeps: Sweeps, pairs: Pairs) -> Sweeps:
    """The sweeps over axes that count these pairs as one, where they do not yet."""
    for slow, fast in pairs:
        sweeps = _merged(sweeps, slow, fast) if slow in sweeps.axes else sweeps
    return sweeps


def told_apart(sweeps: Sweeps, pairs: Pairs) -> frozenset[str]:
    """The axes that are counted in others and values of their own, since something is told by them alone."""
    return frozenset(a for pair in pairs for a in pair) & {n for v in sweeps.values for n in names_of(v)}


def _pair(
    function: Function, sweeps: Sweeps, arrays: Mapping[str, Geometry], extents: Mapping[str, int], apart: bool, rows: bool
) -> tuple[str, str] | None:
    overs = [s.over for stage in sweeps.stages for s in stage]
    candidates = [(a, b) for over in overs for a, b in zip(over, over[1:], strict=False)]
    candidates += itertools.permutations(sweeps.rows, 2) if rows else []
    for slow, fast in dict.fromkeys(candidates):
        together = all((slow in over) == (fast in over) and _adjacent(over, slow, fast) for over in overs)
        # two stops below 0 would have a product above
        if together and extents[slow] and extents[fast] and _one(
            function, sweeps, arrays, slow, fast, extents[fast], apart
        ):
            return slow, fast
    return None


def _adjacent(over: tuple[str, ...], slow: str, fast: str) -> bool:
    return slow not in over or over[over.index(slow) + 1 :][:1] == (fast,)


def _one(
    function: Function, sweeps: Sweeps, arrays: Mapping[str, Geometry], slow: str, fast: str, extent: int, apart: bool
) -> bool:
    """Whether all that is read and written moves as if the two were one axis, and nothing else tells them apart; apart: whether
    what has both does.
    """
    both = {slow, fast}
    for axis in sweeps.axes.values():
        bounds = free_names(axis.start) | free_names(axis.stop)
        own = axis.name in both
        if bounds & both or (own and (axis.start != ZERO or not _is_count(axis.stop, bounds - sweeps.axes.keys()))):
            return False
        if own and bounds & {n for v in sweeps.values for n in names_of(v)}:
            return False
    if any(f.algebra in EXTREMA for f in sweeps.folds) or any(s.bounded for stage in sweeps.stages for s in stage):
        return False
    if apart:
        accesses = [(array, index) for array, index in _accesses(sweeps) if has_both(index, slow, fast)]
        return bool(accesses) and all(_follows(function, arrays, *access, slow, fast, extent) for access in accesses)
    if any(free_names(e) & both for e in _numbers(sweeps)):
        return False
    return all(_follows(function, arrays, array, index, slow, fast, extent) for array, index in _accesses(sweeps))


def _is_count(stop: Expr, names: Collection[str]) -> bool:
    """Whether a bound is made of sizes, or of those of axes that are counted as one."""
    if isinstance(stop, Op) and stop.name == "mul":
        return all(_is_count(a, names) for a in stop.args)
    return is_bound(stop, names)


def _follows(
    function: Function, arrays: Mapping[str, Geometry], array: str, index: tuple[Expr, ...], slow: str, fast: str, extent: int
) -> bool:
    along = {a: [k for k, i in enumerate(index) if a in free_names(i)] for a in (slow, fast)}
    if not along[slow] and not along[fast]:
        return True
    if array in function.checked or any(len(places) != 1 for places in along.values()):
        return False
    (s,), (f,) = along[slow], along[fast]
    plain = index[s] == Ref(slow, INT64) and index[f] == Ref(fast, INT64)
    shape = function.array(array).shape
    told = all(is_bound(shape[k], free_names(shape[k])) for k in (s, f))
    return plain and told and arrays[array].strides[s] == arrays[array].strides[f] * extent


def has_both(index: tuple[Expr, ...], slow: str, fast: str) -> bool:
    """Whether two axes tell where an access is."""
    return {slow, fast} <= {n for i in index for n in free_names(i)}


def _accesses(sweeps: Sweeps) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    for e in (*_numbers(sweeps), *_subscripts(sweeps)):
        yield from ((x.array, x.index) for x in walk_expr(e) if isinstance(x, Load))
    yield from ((v.array, v.index) for v in sweeps.values if isinstance(v, Read))
    yield from ((w.array, w.index) for w in sweeps.writes)


def _subscripts(sweeps: Sweeps) -> Iterator[Expr]:
    yield from (i for v in sweeps.values if isinstance(v, Read) for i in v.index)
    yield from (i for w in sweeps.writes for i in w.index)


def _numbers(sweeps: Sweeps) -> Iterator[Expr]:
    """What is computed with, apart from the subscripts of what is read and written."""
    for v in sweeps.values:
        if not isinstance(v, Read):
            yield from uses(v)
    for w in sweeps.writes:
        yield from (w.value, *(() if w.guard is None else (w.guard,)))


def _merged(sweeps: Sweeps, slow: str, fast: str) -> Sweeps:
    one = one_name(slow, fast)
    instead: dict[str, Expr] = {slow: ZERO, fast: Ref(one, INT64)}
    stop = Op("mul", (sweeps.axes[slow].stop, sweeps.axes[fast].stop), INT64)
    axes = {one if a.name == fast else a.name: Axis(one, ZERO, stop) if a.name == fast else a
            for a in sweeps.axes.values() if a.name != slow}  # fmt: skip

    def over(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one if a in instead else a for a in names))

    def exprs(found: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(e, instead) for e in found) if has_both(found, slow, fast) else found

    def write(w: Write) -> Write:
        return replace(w, axes=over(w.axes), index=exprs(w.index))

    def fold(f: Fold) -> Fold:
        return replace(f, axes=over(f.axes), over=over(f.over))

    def sweep(s: Sweep) -> Sweep:
        return replace(s, over=over(s.over), folds=tuple(map(fold, s.folds)), writes=tuple(map(write, s.writes)))

    values = []
    for v in sweeps.values:
        moved = replace(v, index=exprs(v.index)) if isinstance(v, Read) else v
        values.append(fold(moved) if isinstance(moved, Fold) else replace(moved, axes=over(moved.axes)))
    made = replace(
        sweeps, axes=axes, rows=over(sweeps.rows), values=tuple(values),
        stages=tuple(tuple(map(sweep, stage)) for stage in sweeps.stages),
        last=tuple(map(write, sweeps.last)), running=None if sweeps.running is None else _merged(sweeps.running, slow, fast),
    )  # fmt: skip
    return replace(made, values=(*_parts(made, one, slow, fast, sweeps.axes[fast].stop), *made.values))


def _parts(sweeps: Sweeps, one: str, slow: str, fast: str, size: Expr) -> Iterator[Map]:
    """The axes that are counted in one, as values, where something is told by them."""
    wanted = {n for e in (*_numbers(sweeps), *_subscripts(sweeps)) for n in free_names(e)}
    for name, what in ((slow, "floordiv"), (fast, "mod")):
        if name in wanted:
            yield Map(name, (one,), Op(what, (Ref(one, INT64), size), INT64))
