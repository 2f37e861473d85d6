"""The plan of scans: how many threads a row has, which of its points each of them holds, and whether blocks share it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.graph.scans import Scanned
from weft.graph.tile import Read, Scan
from weft.loops.affine import affine, evaluate
from weft.loops.algebra.table import overflows
from weft.loops.ir import Const, Expr, Function, free_names
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.fold import BLOCK, PACKET_BYTES, Extents, axis_along, is_run

# Points of a tile that a thread holds; blocks of BLOCK threads that a multiprocessor has at a time; threads of a row.
POINTS, BLOCKS_BESIDE, TEAMS = 16, 2, (32, 128, 256)
# Bytes of neighbouring rows that a thread reads with one instruction, and that neighbouring threads read side by side.
ROWS_BYTES, LINE_BYTES = 8, 256
# Rows from which on a team of a part of a block fills the machine.
MANY_ROWS = 2048
# Tiles of a row from which on blocks share it.
LONG_ROW = 4


@dataclass(frozen=True)
class ScanPlan:
    """lane: the axis along which neighbouring threads lie, the scanned one or the fastest of the rows. threads: of a row, or,
    where rows lie side by side, of a block, `side` of them beside each other. teams: rows of a block that have threads for
    themselves. vector: neighbours along the lane that a thread moves at a time; runs: so many of them, apart from each
    other along the scanned axis (of a warp's lanes, side by side), or one after another where rows lie side by side.
    shared: blocks share a row, a tile each; all of them run at once.
    """

    rows: tuple[str, ...]
    lane: str
    threads: int
    side: int
    teams: int
    vector: int
    runs: int
    shared: bool = False

    @property
    def beside(self) -> bool:
        """Whether neighbouring threads have rows of their own."""
        return self.lane in self.rows

    @property
    def tile(self) -> int:
        """Points along the scanned axis that a block takes at a time."""
        return self.threads // self.side * self.runs * (1 if self.beside else self.vector)


def plan_scan(
    function: Function, scans: Scanned, facts: Facts, names: Mapping[str, int], multiprocessors: int
) -> tuple[ScanPlan, Extents]:
    """The plan for a call. names: the values of sizes and integers."""
    extents = {a: _extent(scans, a, names) for a in (*scans.rows, scans.along)}
    length, rows = extents[scans.along], math.prod(extents[a] for a in scans.rows)
    lane = _lane(scans, facts, extents)
    if lane in scans.rows:
        order = tuple(a for a in scans.rows if a != lane) + (lane,)
        vector = _vector_of_rows(function, scans, facts, lane)
        size = min(function.array(a).dtype.size for a, _, _ in _accesses(scans))
        side = max(1, min(BLOCK, _power(-(-extents[lane] // vector)), LINE_BYTES // (size * vector)))
        groups = -(-extents[lane] // (side * vector)) * (rows // max(1, extents[lane]))
        plan = ScanPlan(order, lane, BLOCK, side, 1, vector, max(1, POINTS // vector))
    else:
        size = min((function.array(a).dtype.size for a, _, axes in _accesses(scans) if scans.along in axes), default=4)
        vector = min(8, PACKET_BYTES // size)
        runs = max(1, POINTS // vector // len(scans.scans))
        small, middle, large = TEAMS
        each = runs * vector
        threads = middle if rows >= MANY_ROWS or length <= middle * each else large
        threads = small if length <= small * each else threads
        while runs > 1 and length <= threads * vector * runs // 2:
            runs //= 2
        teams = 128 // threads if threads < 128 and scans.rows else 1
        plan = ScanPlan(scans.rows, scans.along, threads, 1, teams, vector, runs)
        groups = rows
    blocks = -(-groups // plan.teams)
    parts = 1
    states = all(len(s.names) == 1 or not overflows(s.algebra, s.types[0]) for s in scans.scans)
    few = 0 < groups < multiprocessors * BLOCKS_BESIDE and length >= LONG_ROW * plan.tile
    if few and plan.threads == BLOCK and states and not scans.bounded and not scans.folds:
        parts = max(1, min(multiprocessors * BLOCKS_BESIDE // groups, -(-length // plan.tile), BLOCK))
    if parts > 1:
        plan = ScanPlan(plan.rows, plan.lane, plan.threads, plan.side, 1, plan.vector, plan.runs, True)
    return plan, Extents(rows, blocks, parts)


def _extent(scans: Scanned, axis: str, names: Mapping[str, int]) -> int:
    own = scans.axes[axis]
    try:
        return max(0, evaluate(own.stop, names) - evaluate(own.start, names))
    except KeyError:
        return 1024  # other axes or data decide


def _accesses(scans: Scanned) -> Iterator[tuple[str, tuple[Expr, ...], frozenset[str]]]:
    """Arrays, subscripts, and the axes of the points at which they are loaded or stored."""
    for v in scans.values:
        if isinstance(v, Read):
            yield v.array, v.index, frozenset(v.axes)
    for w in (*scans.writes, *scans.last):
        yield w.array, w.index, frozenset(w.axes)


def _lane(scans: Scanned, facts: Facts, extents: Mapping[str, int]) -> str:
    """The axis along which most of what is loaded and stored lies side by side; of rows, where they are all as long."""
    votes = dict.fromkeys((scans.along, *scans.rows), 0)
    for array, index, axes in _accesses(scans):
        for k, i in enumerate(index):
            form = affine(i)
            if (array, k) in facts.unit and form is not None:
                for a in axes & form.names & votes.keys():
                    if abs(form.coefficient(a)) == 1:
                        votes[a] += math.prod(extents[x] for x in axes if x in extents)
    best = max(votes, key=lambda a: votes[a])
    return scans.along if scans.bounded else best


def _vector_of_rows(function: Function, scans: Scanned, facts: Facts, lane: str) -> int:
    """How many neighbouring rows all that is read and written at points has in whole packets, of which rows are a multiple."""
    swept = [(a, i) for a, i, axes in _accesses(scans) if scans.along in axes and lane in axes]
    if not swept or scans.axes[lane].start != Const(0, INT64) or not all(is_run(a, i, lane, facts) for a, i in swept):
        return 1
    if not any(function.array(a).shape[axis_along(i, lane)] == scans.axes[lane].stop for a, i in swept):
        return 1
    if any(w.guard is not None and lane in free_names(w.guard) for w in scans.writes):
        return 1
    widest = max(1, ROWS_BYTES // min(function.array(a).dtype.size for a, _ in swept))
    return min(widest, *(facts.vector(a) for a, _ in swept))


def _power(n: int) -> int:
    return 1 << (max(1, n) - 1).bit_length()


def told_words(scan: Scan) -> int:
    """Words of 8 bytes by which a block tells what its tile does to a scan's states, and the state after it, at the most."""
    widest = max(4, *(e.type.size for e in (*scan.parts, *scan.inits)))
    return (len(scan.parts) + 2 * len(scan.inits) + 1) * widest // 4
