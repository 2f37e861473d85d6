"""In which order a graph of reads, maps and folds can be gone through: rows, and for each row sweeps over its points.

A row is a point of the axes that everything has. Its folds need one sweep over their points, or as many as there are folds
that wait for others: softmax's maximum, its sum, its values. What is written once a row comes last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.graph.even import Box, even
from weft.graph.needs import by_need
from weft.graph.running import Repair, repairs, unguarded
from weft.graph.steady import once, steady
from weft.graph.tile import Axis, Fold, Map, Moved, NotTiles, Read, Scan, TileGraph, Write, names_of, uses, uses_of_write
from weft.loops.algebra.table import ALGEBRAS, EXTREMA
from weft.loops.ir import Expr, free_arrays, free_names

# By the names of arrays, of each axis how long it is, and what is equal to that.
Shapes = Mapping[str, tuple[tuple[Expr, ...], ...]]


@dataclass(frozen=True)
class Sweep:
    """The points of `over`, from the slowest to the fastest, gone through once: what is folded, and what is written.
    bounded: the bounds of the fastest depend on the others, so it comes after them. repairs: of the sums that are relative to
    an extremum of the same sweep.
    """

    over: tuple[str, ...]
    bounded: bool
    folds: tuple[Fold, ...]
    writes: tuple[Write, ...]
    repairs: tuple[Repair, ...] = ()

    def repair(self, fold: Fold) -> Repair | None:
        """How a sum of this sweep is kept relative to an extremum of it, if it is."""
        return next((r for r in self.repairs if r.sum == fold.results[0]), None)


@dataclass(frozen=True)
class Sweeps:
    """values: in order; a read or a map may be computed wherever its axes are known. Those that may not are written out in the
    expressions, as loads, where they are needed. stages: what each computes needs the folds of those
    before it. last: written once a row, after the last stage. apart: the last stage stores to what others read, so all reads
    of a row come before it, and all of its stores after. running: the same with fewer stages, where sums are kept relative to
    the extrema that threads have so far, if that is so of any. shapes: of arrays. box: where rows have points that the program
    has not.
    """

    axes: Mapping[str, Axis]
    rows: tuple[str, ...]
    values: tuple[Read | Map | Fold, ...]
    stages: tuple[tuple[Sweep, ...], ...]
    last: tuple[Write, ...]
    apart: bool
    running: Sweeps | None = None
    box: Box | None = None
    shapes: Shapes = field(default_factory=dict, compare=False)

    @property
    def read_once(self) -> bool:
        """Whether one sweep over a row's points does."""
        return len(self.stages) == 1 and not any(s.writes for s in self.stages[0])

    @property
    def writes(self) -> tuple[Write, ...]:
        return (*(w for stage in self.stages for s in stage for w in s.writes), *self.last)

    @property
    def loaded(self) -> frozenset[str]:
        """The arrays that are read where they are needed."""
        bounds = [e for a in self.axes.values() for e in (a.start, a.stop)]
        exprs = [*bounds, *(e for v in self.values for e in uses(v)), *(e for w in self.writes for e in uses_of_write(w))]
        return frozenset(a for e in exprs for a in free_arrays(e))

    @property
    def arrays(self) -> frozenset[str]:
        """The arrays that are read or written."""
        return self.loaded | {v.array for v in self.values if isinstance(v, Read)} | {w.array for w in self.writes}

    @property
    def folds(self) -> tuple[Fold, ...]:
        return tuple(v for v in self.values if isinstance(v, Fold))


def sweeps(graph: TileGraph, sizes: Collection[str] = (), shapes: Shapes | None = None) -> Sweeps:
    """The sweeps of a graph. sizes: names of numbers that are not below 0. shapes: of arrays. Raises NotTiles where values are
    not found so.
    """
    try:
        return _of(graph, sizes, shapes)
    except NotTiles as no:
        try:
            wider, box = even(graph)
        except NotTiles:
            raise no from None
        return replace(_of(wider, sizes, shapes), box=box)


def _of(graph: TileGraph, sizes: Collection[str], shapes: Shapes | None) -> Sweeps:
    graph = steady(by_need(graph))
    for value in graph.values:
        if isinstance(value, Scan):
            raise NotTiles(f"{value.names[0]} is no fold", value.location)
    found = replace(_sweeps(graph, {}), shapes=shapes or {})
    moving = {r.sum: r for r in repairs(graph.values, sizes)}
    if not moving:
        return found
    running = replace(_sweeps(replace(graph, values=unguarded(graph.values, moving.values())), moving), shapes=shapes or {})
    used = [r for t in running.stages for s in t for r in s.repairs]
    return replace(found, running=running) if used and all(r in used for r in moving.values() if r.guarded) else found


def _sweeps(graph: TileGraph, moving: Mapping[str, Repair]) -> Sweeps:
    """The sweeps of a graph, whose sums in `moving` are found beside the extrema that they are relative to if they can be."""
    folds = [v for v in graph.values if isinstance(v, Fold)]
    if not folds:
        raise NotTiles("nothing is folded")
    if graph.copied:
        remedy = f"read a copy: old = {graph.copied[0]}.clone() before the loops"
        raise NotTiles(f"{graph.copied[0]} is read at other elements than it is written at", None, remedy)
    common = set.intersection(*(set(w.axes) for w in graph.writes), *(set(f.axes) for f in folds))
    axes = {a.name: a for a in graph.axes}
    rows = tuple(a for a in axes if a in common)
    graph = once(graph, rows)
    for fold in folds:
        if fold.algebra not in (*ALGEBRAS, *EXTREMA):
            raise NotTiles(f"{fold.results[0]} is folded by {fold.algebra}", fold.location)
        if fold.algebra in EXTREMA and any(_depend(a, fold.over, graph, axes) for a in fold.over):
            raise NotTiles(f"{fold.results[0]} is found over axes that bound each other", fold.location)
        if set(fold.axes) != common:
            remedy = "store it in an array, and go on in loops after it"
            raise NotTiles(f"{fold.results[0]} has axes that not all results have", fold.location, remedy)
    if any(w.join for w in graph.writes):
        raise NotTiles("values are joined to an array")
    for name in rows:
        if any(free_names(e) & (axes.keys() | graph.made.keys()) for e in _bounds((name,), axes)):
            raise NotTiles(f"the bounds of {name} are not the same everywhere")
    levels, beside = _levels(graph, axes, moving)
    most = max(levels[f.results[0]] for f in folds)
    stages: list[dict[tuple[str, ...], tuple[list[Fold], list[Write]]]] = [{} for _ in range(most + 1)]
    for fold in folds:
        stages[levels[fold.results[0]] - 1].setdefault(_over(fold.over, graph, axes), ([], []))[0].append(fold)
    last, apart = [], False
    for write in graph.writes:
        again = write.array in graph.read
        apart = apart or again
        if set(write.axes) == common:
            last.append(write)
            continue
        over = _over([a for a in write.axes if a not in common], graph, axes)
        stage = most if again else _level((*uses_of_write(write), *_bounds(over, axes)), levels)
        stages[stage].setdefault(over, ([], []))[1].append(write)
    if apart and len(stages[-1]) > 1:
        raise NotTiles("arrays are read and written over different axes")
    found = [
        tuple(
            Sweep(over, _depend(over[-1], over, graph, axes), tuple(f), tuple(w), _moved(f, moving, beside))
            for over, (f, w) in stage.items()
        )
        for stage in stages
    ]
    values = tuple(v for v in graph.values if isinstance(v, (Read, Map, Fold)))
    return Sweeps(axes, rows, values, tuple(s for s in found if s), tuple(last), apart)


def _moved(folds: Iterable[Fold], moving: Mapping[str, Repair], beside: Collection[str]) -> tuple[Repair, ...]:
    return tuple(moving[n] for n in _results(folds) if n in beside)


def _over(names: Iterable[str], graph: TileGraph, axes: Mapping[str, Axis]) -> tuple[str, ...]:
    """Axes in their order. Raises NotTiles where others than the fastest are bounded by one another, or by what varies."""
    wanted = set(names)
    over = tuple(a for a in axes if a in wanted)
    for name in over[:-1]:
        if _depend(name, over, graph, axes):
            raise NotTiles(f"the bounds of {name} depend on other axes")
    return over


def _depend(name: str, over: Iterable[str], graph: TileGraph, axes: Mapping[str, Axis]) -> bool:
    """Whether the bounds of an axis depend on others, or on values that differ along them."""
    told = {n for e in _bounds((name,), axes) for n in free_names(e)}
    told |= {a for n in told & graph.made.keys() for a in graph.made[n].axes}
    return bool(told & set(over))


def _bounds(over: Iterable[str], axes: Mapping[str, Axis]) -> tuple[Expr, ...]:
    return tuple(e for a in over for e in (axes[a].start, axes[a].stop))


def _level(exprs: Iterable[Expr], levels: Mapping[str, int]) -> int:
    return max((levels.get(n, 0) for e in exprs for n in free_names(e)), default=0)


def _levels(
    graph: TileGraph, axes: Mapping[str, Axis], moving: Mapping[str, Repair]
) -> tuple[dict[str, int], frozenset[str]]:
    """How many folds one after another each value waits for, itself among them, and the sums that do not wait for the extremum
    that they are relative to.
    """
    levels: dict[str, int] = {}
    beside: set[str] = set()
    for value in graph.values:
        level = _level(uses(value), levels)
        if isinstance(value, Fold):
            level = 1 + max(level, _level(_bounds(value.over, axes), levels))
            repair = moving.get(value.results[0])
            if repair is not None and level == 1 + levels[repair.extremum]:
                others = {n for n in _folds_of(graph, value) if levels[n] == levels[repair.extremum]}
                if others == {repair.extremum} and not _depend(value.over[-1], value.over, graph, axes):
                    beside.add(value.results[0])
                    level -= 1
        levels |= dict.fromkeys(names_of(value), level)
    return levels, frozenset(beside)


def _folds_of(graph: TileGraph, fold: Fold) -> set[str]:
    """The results of other folds that a fold's points are made of."""
    return {n for n in graph.below(uses(fold), Read | Map | Moved | Scan) if isinstance(graph.made.get(n), Fold)}


def _results(folds: Iterable[Fold]) -> list[str]:
    return [f.results[0] for f in folds]
