"""The plan of states that grow by outer products: which of them a block has, and how many blocks share the points of a row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.outer_states import OuterStates
from weft.graph.tile import Map, Read, Value, Write
from weft.loops.ir import Const, Expr, Function, Ref, Round
from weft.loops.types import BFLOAT16, FLOAT16, FLOAT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of
from weft.plan.fold import is_run
from weft.plan.machine import Machine

# Points of a chunk, neighbours of a line of a tile and of a packet, and the parts that a float32 is the sum of (chunk.cuh).
CHUNK, LINE, PACKET, PARTS = 64, 64, 8, 3
# The widest sides of the states that a block has, which has all of a side that is summed over; and of a part of the other one.
MOST_SIDE, TILED_SIDE = 128, 64
# Below these there is nothing to gain.
LEAST_SIDE, LEAST_LENGTH = 16, 2 * CHUNK
RESIDENT, RESIDENT_APART = 12, 16  # warps of a multiprocessor, where shared memory has room; with half of the states each
DOTS = 4 * CHUNK  # of early states at the points of a chunk, by groups of four warps
JOINING = 128  # threads of a block that joins what blocks of a row leave, of which each has four states
SHARED_BITS = 32  # of the number of blocks whose states are joined, of one scan
FEW_TOLD = 8  # blocks of a row whose sums are read by each of those after them
MOST_SHARED = 224 * 1024  # of blocks that registers are to leave room for
_ALIGNED = 1024  # bytes of shared memory of which tiles begin at a multiple
# Bytes of ChunkWeights, of ChunkStates, and of what ChunkPairs and ChunkMeeting have besides.
_WEIGHTS, _STATES = 4 * (4 * 16 * 24 + 2 * 64 + 4), 4 * (8 * 64 + 32)
_PAIRS, _MEETING = 4 * 7 * 64, 4 * (2 * 64 + 4 + 4 * 16 * 24 + 4 * 64)
_LARGEST_GRID = (1 << 31) - 1


@dataclass(frozen=True)
class OuterPlan:
    """widths: of the states that a block has, of either side, in multiples of 16. packets: of either side, whether it
    is whole packets. tiled: blocks share the second side. warps: of a block. stages: of either
    scan, chunks that have a place in shared memory. shared: blocks share the points of a row. pieces: of either scan, blocks of
    the launch before for the points of a block. joins: of either, blocks of the launch that joins what these leave of a row's
    states to those that each block begins with; 0 where they are so few that blocks do that themselves.
    """

    widths: tuple[int, int]
    packets: tuple[bool, bool]
    tiled: bool
    warps: int
    stages: tuple[int, ...]
    shared: bool
    pieces: tuple[int, ...]
    joins: tuple[int, ...]


@dataclass(frozen=True)
class OuterExtents:
    """How a plan meets a call. rows: of the batch; tiles: of the second side; parts: of either scan, blocks that share the
    points of a row, which has so many chunks."""

    rows: int
    tiles: int
    parts: tuple[int, ...]
    chunks: int

    def sharing(self, plan: OuterPlan, step: OuterStep) -> int:
        """Blocks of a launch that share a row; of one that joins what several leave, those of either scan, SHARED_BITS each."""
        if step.joins:
            told = [p * n if blocks else 0 for p, n, blocks in zip(self.parts, plan.pieces, plan.joins, strict=True)]
            return sum(n << SHARED_BITS * k for k, n in enumerate(told))
        return self.parts[step.growth] * (1 if step.takes else plan.pieces[step.growth])

    def blocks(self, plan: OuterPlan, step: OuterStep) -> int:
        return self.rows * self.tiles * (sum(plan.joins) if step.joins else self.sharing(plan, step))


@dataclass(frozen=True)
class Brought:
    """How an operand comes to shared memory: as so many parts, for so many chunks; copied: by packets, as it is in memory."""

    value: Expr
    side: int
    parts: int
    stages: int
    copied: Read | None


@dataclass(frozen=True)
class OuterStep:
    """A launch that goes through the points of one scan. takes: with what is taken of its states; else with what other blocks
    need to know. joins: one that joins what these tell instead, of all scans.
    """

    entry: str
    growth: int
    takes: bool
    joins: bool = False

    def apart(self, found: OuterStates, plan: OuterPlan) -> bool:
        """Whether two sums over states are taken by four warps each, which have half of the states besides; elsewhere groups of
        four warps share the places of each sum, and each weighs all pairs of its points.
        """
        several = self.takes and len(found.taken_of(self.growth)) > 1
        return several and (plan.warps == 8 or (plan.widths[0] == 64 and plan.widths[1] % 32 == 0))

    def warps(self, found: OuterStates, plan: OuterPlan) -> int:
        """Warps of a block."""
        if self.joins:
            return JOINING // 32
        return 8 if self.apart(found, plan) else plan.warps

    def stages(self, plan: OuterPlan) -> int:
        """Chunks that have a place in shared memory."""
        return plan.stages[self.growth] if self.takes else 2


def outer_steps(found: OuterStates, plan: OuterPlan, entry: str) -> tuple[OuterStep, ...]:
    """The launches, of which the last one has this name."""
    growths, last = range(len(found.growths)), len(found.growths) - 1
    names = ("_early", "") if last else ("",)
    sums = [OuterStep(f"{entry}{names[k]}_before", k, False) for k in growths if plan.shared]
    sums += [OuterStep(f"{entry}_joined", last, False, True)] if any(plan.joins) else []
    return (*sums, *(OuterStep(f"{entry}{names[k]}", k, True) for k in growths))


def brought(
    function: Function, found: OuterStates, plan: OuterPlan, facts: Facts, step: OuterStep
) -> tuple[Brought, ...]:
    made = {v.name: v for v in found.found.values if isinstance(v, Read | Map)}
    growth, own = found.growths[step.growth], []
    for value, side in found.operands(step.growth, step.takes).items():
        type_ = _type_of(function, made, value)
        read = made.get(value.name) if isinstance(value, Ref) else None
        number, parts = found.sides.index(side), {BFLOAT16: 1, FLOAT16: 2}.get(type_, PARTS)
        run = isinstance(read, Read) and type_ == BFLOAT16 and is_packets(read, found, plan, side, facts)
        # what is only taken with has its place free before the chunk's states are found
        stages = step.stages(plan) if value in (growth.left, growth.right) or step.apart(found, plan) else 1
        own.append(Brought(value, number, parts, stages, read if run and isinstance(read, Read) else None))
    return tuple(own)


def is_packets(access: Read | Write, found: OuterStates, plan: OuterPlan, side: str, facts: Facts) -> bool:
    """Whether eight neighbours of a side are a packet in memory."""
    run = found.found.axes[side].start == Const(0, INT64) and is_run(access.array, access.index, side, facts)
    return run and plan.packets[found.sides.index(side)] and facts.vector(access.array) % PACKET == 0


def _type_of(function: Function, made: Mapping[str, Value], value: Expr) -> ScalarType:
    """The type of which all values of an operand are."""
    while isinstance(value, Ref) and isinstance(own := made.get(value.name), Map):
        value = own.value
    if isinstance(value, Round):
        return value.to
    read = made.get(value.name) if isinstance(value, Ref) else None
    return function.array(read.array).dtype if isinstance(read, Read) else FLOAT32


def plan_outer_states(
    function: Function, found: OuterStates, facts: Facts, names: Mapping[str, int], machine: Machine
) -> tuple[OuterPlan, OuterExtents] | None:
    """The plan for a call; None where there are few points or states, or more than a block has room for."""
    extents = extents_of(found.found.axes, names)
    rows, columns = (extents[a] for a in found.sides)
    length, batch = extents[found.found.along], math.prod(extents[a] for a in found.rows)
    if min(rows, columns) < LEAST_SIDE or length < LEAST_LENGTH or rows > MOST_SIDE or not batch:
        return None
    whole = bool(found.meetings) or any(t.over == found.sides[1] for t in found.taken)
    if whole and columns > MOST_SIDE:
        return None
    width = columns if whole or columns <= TILED_SIDE else TILED_SIDE
    widths = _width(rows), _width(width)
    states = math.prod(widths)
    warps = 8 if states >= 8192 else 4  # a thread has room for what is added to 64 states
    packets = rows % PACKET == 0, columns % PACKET == 0
    both = len(found.growths)
    plan = OuterPlan(widths, packets, width < columns, warps, (2,) * both, False, (1,) * both, (0,) * both)

    def at_once(plan: OuterPlan, step: OuterStep) -> int:
        return blocks_at_once(found, plan, step, shared_bytes(function, found, plan, facts, step), machine.shared)

    steps = outer_steps(found, plan, "")
    for step in steps:  # blocks rather than chunks that are on their way
        one = replace(plan, stages=tuple(1 if k == step.growth else n for k, n in enumerate(plan.stages)))
        plan = one if step.takes and at_once(one, step) > at_once(plan, step) else plan
    if not all(at_once(plan, step) for step in steps):
        return None
    tiles = -(-columns // widths[1])
    chunks = -(-length // CHUNK)
    parts, pieces, joins = [], [], []
    for step in steps[-both:]:
        most = at_once(plan, step) * machine.multiprocessors // (batch * tiles)
        own = max(1, min(most, chunks // 2))
        parts.append(-(-chunks // -(-chunks // own)))  # all have some
        before = replace(step, takes=False)
        more = at_once(plan, before) * machine.multiprocessors // (batch * tiles * parts[-1])
        pieces.append(max(1, min(more, chunks // parts[-1])))
        told = parts[-1] * pieces[-1]
        joins.append(-(-states // (4 * JOINING)) if told > FEW_TOLD else 0)
    extent = OuterExtents(batch, tiles, tuple(parts), chunks)
    plan = replace(plan, shared=max(parts) > 1, pieces=tuple(pieces), joins=tuple(joins))
    return (plan, extent) if max(extent.blocks(plan, step) for step in outer_steps(found, plan, "")) <= _LARGEST_GRID else None


def blocks_at_once(found: OuterStates, plan: OuterPlan, step: OuterStep, size: int, shared: int) -> int:
    """Blocks that a multiprocessor has at once, of so many bytes of its shared memory."""
    few = not step.takes or (step.apart(found, plan) and plan.warps == 4)  # registers of a thread
    most = RESIDENT_APART if few else RESIDENT
    return 0 if size > shared else max(1, min(most // step.warps(found, plan), shared // (size + _ALIGNED)))


def _width(extent: int) -> int:
    """Places for a side of the states."""
    return MOST_SIDE if extent > LINE else -(-extent // 16) * 16


def tile_bytes(rows: int, width: int, parts: int) -> int:
    return rows * -(-width // LINE) * LINE * 2 * parts


def shared_bytes(function: Function, found: OuterStates, plan: OuterPlan, facts: Facts, step: OuterStep) -> int:
    """Of all that a block has in shared memory."""
    if step.joins:
        return 0
    states = tile_bytes(*plan.widths, PARTS) if step.takes else 0
    more = _STATES + (_PAIRS if in_pairs(found) else _MEETING) if meets(found, step) else 0
    own = brought(function, found, plan, facts, step)
    tiles = sum(o.stages * tile_bytes(CHUNK, plan.widths[o.side], o.parts) for o in own)
    size = tiles + step.stages(plan) * CHUNK * 4 * len({*numbers(found, step).values()}) + states + _WEIGHTS + more
    return -(-size // _ALIGNED) * _ALIGNED


def meets(found: OuterStates, step: OuterStep) -> bool:
    return bool(found.meetings) and step.takes and step.growth == 1


def in_pairs(found: OuterStates) -> bool:
    """Whether what early and late states make together is a sum over pairs of points on either side."""
    return all(found.around(m) is not None for m in found.meetings)


def numbers(found: OuterStates, step: OuterStep) -> dict[str, Expr]:
    """Numbers of a point, by what they are for."""
    growth = found.growths[step.growth]
    own = {"decay": growth.decay, "weight": growth.weight}
    for k, t in enumerate(found.taken_of(step.growth) if step.takes else ()):
        own |= {f"before_{k}": t.before} | ({} if t.own is None else {f"own_{k}": t.own})
    if meets(found, step):
        own |= {"early_decay": found.growths[0].decay, "early_weight": found.growths[0].weight}
        for k, m in enumerate(found.meetings):
            if in_pairs(found) and (factor := found.around(m)) is not None:
                own[f"met_{k}"] = factor
                continue
            for early, late in ((True, True), (False, True), (True, False), (False, False)):
                own[f"met_{k}_{early:d}{late:d}"] = m.factors.get((early, late), Const(0.0, FLOAT32))
    return own


def held_states(found: OuterStates, plan: OuterPlan, step: OuterStep) -> int:
    """How many states a thread has (`OuterStates`)."""
    (rows, columns), warps = plan.widths, step.warps(found, plan)
    below = min(rows // 16, warps)
    beside = next(n for n in (4, 2, 1) if n == 1 or (below * n <= warps and columns % (16 * n) == 0))
    return -(-rows // 16 // below) * (columns // 8 // beside) * 4


def held(found: OuterStates, plan: OuterPlan, step: OuterStep) -> int:
    """Places in memory for the states of a block: the same ones for each launch of a plan."""
    step = replace(step, joins=False)
    return held_states(found, plan, step) * 32 * step.warps(found, plan)


def outer_memory(found: OuterStates, plan: OuterPlan, extent: OuterExtents) -> list[tuple[str, ScalarType, int]]:
    """(name, type, elements) of what the blocks of a row leave for each other, and early scans for late ones."""
    memory, steps = [], outer_steps(found, plan, "")
    own = held(found, plan, steps[0])
    for step in steps:
        if not step.takes and not step.joins:
            name, blocks = found.growths[step.growth].scan.names[0], extent.blocks(plan, step)
            memory += [(f"{name}.sums", FLOAT32, blocks * own), (f"{name}.left", FLOAT32, blocks)]
    if found.meetings:
        name, chunks = found.growths[0].scan.names[0], extent.rows * extent.chunks
        memory += [(f"{name}.kept", FLOAT32, chunks * own), (f"{name}.dots", FLOAT32, chunks * DOTS)]
    return memory
