"""The plan of a block graph of rows and columns: which thread holds which columns, and what is kept in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.graph.block import BlockGraph, Input, Output, Stage
from weft.loops.algebra.table import EXTREMA
from weft.loops.ir import Const, Expr, Function, Ref, free_names
from weft.plan.arguments import Facts

if TYPE_CHECKING:
    from weft.layout import Layout

# The columns a thread has in flight at a time.
COLUMNS_IN_FLIGHT = 16
# (threads of a row, rows of a block) that a kernel that goes through tiles has entries for: short rows, many, few.
TEAMS = ((32, 4), (128, 1), (256, 1))
# Registers of a multiprocessor, and of a thread besides the tiles that it holds.
REGISTERS, OTHER_REGISTERS = 1 << 16, 32
# Parts of an element up to which a scan costs its threads less than their columns do. (Most of an extremum's are one.)
LIGHT_PARTS = 2
# Rows from which on the middle team fills the machine; below, the largest does.
MANY_ROWS = 2048


@dataclass(frozen=True)
class TilePlan:
    """Which columns of a tile each of `threads` threads holds: `chunks` runs of `vector` neighbours, as `layout` says.

    held: a row is one tile, loaded once, and `teams` rows share a block. Otherwise each stage runs over tiles, threads are
    those of the largest team, and the launch picks one of `shapes`. alone: there are no rows, so that one team of one block
    does all the work.
    """

    threads: int
    vector: int
    chunks: int
    teams: int = 1
    held: bool = False
    alone: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(threads of a row, rows of a block) of each entry of the kernel, the smallest team first."""
        if self.held:
            return ((self.threads, self.teams),)
        return tuple((threads, 1 if self.alone else teams) for threads, teams in TEAMS)

    @property
    def layout(self) -> Layout:
        """(thread, (vector, chunk)) -> column within a tile: the runs of the threads lie side by side."""
        from weft.layout import Layout

        vector = self.vector
        return Layout((self.threads, (vector, self.chunks)), (vector, (1, vector * self.threads)))

    @property
    def block(self) -> int:
        return self.threads * self.teams


def vector_of(function: Function, graph: BlockGraph) -> int:
    """Columns that 16 bytes of the narrowest array hold, 8 at the most."""
    arrays = {o.array for s in graph.stages() for o in s.operators if isinstance(o, (Input, Output))}
    sizes = [function.array(a).dtype.size for a in arrays]
    return min(8, 16 // min(sizes)) if sizes else 4


def power_of_two_class(n: int) -> int:
    """The smallest power of two that is at least n (and at least 32)."""
    return max(32, 1 << max(0, n - 1).bit_length())


def common_range(graph: BlockGraph) -> tuple[Expr, Expr] | None:
    """The range of columns, if all stages run over the same one."""
    ranges = {(s.start, s.stop) for s in graph.stages()}
    return next(iter(ranges)) if len(ranges) == 1 else None


def plan(function: Function, graph: BlockGraph, columns: int, certain: bool = True) -> TilePlan:
    """The plan for columns up to the power-of-two class of `columns`, which matters only for rows held in registers.

    certain: whether no row has more; rows that may have are not held.
    """
    vector = vector_of(function, graph)
    chunks = max(1, COLUMNS_IN_FLIGHT // vector)
    if certain and not any(s.scans() for s in graph.stages()) and common_range(graph) is not None:
        held = held_plan(graph, vector, power_of_two_class(columns))
        if held is not None:
            return held
    if any(len(o.parts) > LIGHT_PARTS and o.algebra not in EXTREMA for s in graph.stages() for o in s.scans()):
        # threads tell each other more than a column costs: longer runs, fewer of them
        vector, chunks = 2 * vector, max(1, chunks // 2)
    scans = max((len(s.scans()) for s in graph.stages()), default=1)
    return TilePlan(TEAMS[-1][0], vector, max(1, chunks // max(1, scans)), alone=not graph.rows)


def held_plan(graph: BlockGraph, vector: int, columns: int) -> TilePlan | None:
    """A plan that keeps whole rows of up to `columns` (a power of two) in registers, if they fit."""
    rows = {a.var for a in graph.rows}
    inputs = {o.name: o for s in graph.stages() for o in s.inputs()}
    alone = not rows
    tiles = sum(alone or any(free_names(i) & rows for i in o.index) for o in inputs.values())
    threads = min(1024, max(32, columns // COLUMNS_IN_FLIGHT))
    vector = max(1, min(vector, columns // threads))
    chunks = columns // (threads * vector)
    # a row's own tiles, the one of the next row that is fetched meanwhile, and what else a thread needs
    if chunks * vector * (tiles + (not alone)) + OTHER_REGISTERS > REGISTERS // threads:
        return None
    return TilePlan(threads, vector, chunks, teams=4 if threads == 32 and not alone else 1, held=True, alone=alone)


def team(plan: TilePlan, rows: int, columns: int) -> tuple[int, int]:
    """(threads of a row, rows of a block) for a launch: short rows get a warp each, few long ones the largest team."""
    if plan.held:
        return plan.threads, plan.teams
    warp, many, few = plan.shapes
    per_thread = plan.vector * plan.chunks
    if columns <= warp[0] * per_thread:
        return warp
    return many if rows >= MANY_ROWS or columns <= many[0] * per_thread else few


def team_entry(name: str, threads: int) -> str:
    """The entry of a kernel for a team of so many threads."""
    return f"{name}_{threads}"


def divisible(stage: Stage, function: Function, facts: Facts, vector: int) -> bool:
    """Whether the stage's columns start at 0 and are known to be a multiple of the vector: a run is then all in or out."""
    if stage.start != Const(0, stage.start.type) or not isinstance(stage.stop, Ref):
        return False
    for o in stage.operators:
        if isinstance(o, (Input, Output)) and o.axis is not None:
            extent = function.array(o.array).shape[o.axis]
            if extent == stage.stop and (o.array, o.axis) in facts.unit and facts.vector(o.array) >= vector:
                return True
    return False
