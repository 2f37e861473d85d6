"""What a call launches: the variant of a nest, its grid and block, the loops around it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.compiler.analysis import Analysis
from weft.compiler.guards import Guard
from weft.loops.intervals import Ranges
from weft.loops.schedule import Axis, Nest
from weft.loops.types import ScalarType
from weft.plan.arguments import Facts
from weft.plan.block import BlockPlan
from weft.plan.box import Box
from weft.plan.chain import ChainPlan
from weft.plan.facts import Geometry
from weft.plan.fold import FoldPlan
from weft.plan.join import JoinPlan
from weft.plan.leaning import PLANNED, Leaning
from weft.plan.machine import Machine
from weft.plan.map import MapPlan
from weft.plan.outer_states import OuterPlan
from weft.plan.product import ProductPlan
from weft.plan.recurrence import RecurrencePlan
from weft.plan.scan import ScanPlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.plan.wavefront import WavefrontPlan


@dataclass(frozen=True)
class Variant:
    """How one nest runs for some calls: maps, sweeps, products, chains of these, joins, scans, recurrences, or a thread for
    each iteration of the axes. overlaps: it may begin before what is launched before it has ended, which it awaits, and what is
    launched after it before it has. first: nothing is launched before it in its call, so that all it reads may be written by
    what else is on the stream. crowded: what is launched after it begins when its blocks have ended.
    """

    nest: int
    facts: Facts
    plan: (
        BlockPlan | ChainPlan | FoldPlan | JoinPlan | MapPlan | OuterPlan | ProductPlan | RecurrencePlan | ScanPlan | StatePlan
        | ThreadPlan | WavefrontPlan
    )
    overlaps: bool = False
    first: bool = False
    crowded: bool = False

    @property
    def key(self) -> str:
        """A text that tells the variants of an analysis apart."""
        around = "".join(f" {name}" for name in ("overlaps", "first", "crowded") if getattr(self, name))
        return f"{self.nest} {self.facts.key} {self.plan!r}{around}"


H200 = Machine()  # stands for a device that is not told


@dataclass(frozen=True)
class Where:
    """Where a nest stands in a call: its analysis, the geometries of all arrays that this one has. memory: of those that the
    call makes for it alone, what tells them from others. path: tells the nest from others. machine: the device. leaning: of
    its plans. first: whether nothing is launched before it in the call.
    """

    analysis: Analysis
    arrays: Mapping[str, Geometry]
    memory: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Axis, ...] = ()
    ranges: Ranges = field(default_factory=dict)
    path: str = ""
    when: tuple[Guard, ...] = ()
    machine: Machine = H200
    leaning: Leaning = PLANNED
    first: bool = True


@dataclass(frozen=True)
class Launch:
    """A launch of a variant for one call: the entry of its source, grid and block.

    partial: (name, type, elements) of the memory that the launches of the variant share; a pointer each follows the slots of
    `arguments`, and then `parts`. zero: it is 0 at first. together: all blocks run at once. shared: bytes of memory that
    a block has beside its own. steps: the loops around it, outermost first: it is launched in every iteration, but for those in
    which a guard of `when` does not hold; launches one after another that have a loop in common are so together. The loops'
    variables are scalars of its function. course: of maps. cluster: blocks that run together, as the text says. boxes: the maps
    that follow all other parameters. dependent: it may begin before the launch before it has ended, and awaits it by itself;
    first: before all else, as nothing is launched before it in its call.
    """

    variant: Variant
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    partial: tuple[tuple[str, ScalarType, int], ...] = ()
    parts: int = 1
    zero: bool = False
    together: bool = False
    course: int = 0
    shared: int = 0
    cluster: int = 1
    boxes: tuple[Box, ...] = ()
    dependent: bool = False
    first: bool = False
    where: Where | None = field(default=None, compare=False, repr=False)
    steps: tuple[Axis, ...] = ()
    when: tuple[Guard, ...] = ()

    @property
    def nest(self) -> Nest:
        assert self.where is not None
        return self.where.analysis.schedule.nests[self.variant.nest]


def of_a_call(nests: Iterable[tuple[Launch, ...]]) -> list[tuple[Launch, ...]]:
    """The launches of all nests of a call. What the first one needs may be written by whatever is on the stream: it begins when
    that has ended, unless it awaits that before all else; launches that do not happen in each such call are no first ones.
    """
    begun, found = False, []
    for own in nests:
        launches = []
        for one in own:
            launches.append(one if begun or one.steps or one.first else replace(one, dependent=False))
            begun = begun or not (0 in one.grid or one.steps or one.when)
        found.append(tuple(launches))
    return found


# Launches in order; a loop with those that are repeated in each of its iterations.
Grouped = list["Launch | tuple[Axis, Grouped]"]


def grouped(program: Sequence[Launch], depth: int = 0) -> Grouped:
    """Launches with the loops around them, from the depth-th on."""
    out: Grouped = []
    for var, run in itertools.groupby(program, lambda one: one.steps[depth].var if len(one.steps) > depth else None):
        together = list(run)
        out += together if var is None else [(together[0].steps[depth], grouped(together, depth + 1))]
    return out
