"""The plan of chained products: which rows a block has, and how many columns it takes in a turn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.chains import Chain
from weft.graph.products import Operand, Products, exact_type
from weft.loops.ir import Function
from weft.loops.types import FLOAT32
from weft.plan.arguments import Facts
from weft.plan.box import Box
from weft.plan.extents import extents_of
from weft.plan.facts import Geometry
from weft.plan.fold import ZERO, axis_along
from weft.plan.machine import Machine
from weft.plan.product import MATRIX_POINTS, ProductPlan, operand_read
from weft.plan.product_search import OTHER_SHARED, boxed, staged_of, written_together

WARPGROUP, FRAGMENT_ROWS = 128, 64
# Columns of a turn, warpgroups of a block, and turns whose tiles have a place in shared memory, that are tried.
TURNS, WARPGROUPS, STAGES = (128, 112, 96, 80, 64, 48, 32, 192), (3, 2, 1), (4, 3, 2)
# Registers of a thread, by warpgroups of a block: of those that multiply, and of the one that brings tiles.
REGISTERS = {1: (240, 240), 2: (240, 24), 3: (160, 32)}
# Words of a thread: besides sums, scores and operands, and where rows have columns of their own, a part of which goes with the
# lanes; what part of its registers it fills. Points of the first products and lanes of the second at the most.
OTHER_WORDS, BOUNDED_WORDS, BOUNDED_LANES, FILLED, MOST_POINTS, MOST_LANES = 20, 18, 16, 0.93, 256, 256
# Of several scores, whose values are made of each other: what part is filled where sums and scores have registers at once;
# columns of a turn at the most where they have not (measured on an H200).
FILLED_BY_SEVERAL, MOST_ALONE = 0.875, 64
# Tiles of rows in all, and columns, at the most.
MOST_TILES = 1 << 30
# Cycles: of what is made of a score, by warpgroups that take turns at the tensor cores; of a product, of a turn besides, and
# of it for each warpgroup where rows have columns of their own; of a tile of rows besides (measured on an H200).
SCORE_CYCLES, PRODUCT_CYCLES = {1: 0.09, 2: 0.07, 3: 0.056}, 1 / 1780
TURN_CYCLES, BOUNDED_CYCLES, ALONE_CYCLES, TILE_CYCLES = 200, 130, 100, 4000


@dataclass(frozen=True)
class ChainPlan:
    """scores, sums: the two products, whose tiles are (rows, columns, points) and (rows, lanes, columns). A warpgroup has 64 of
    a block's rows; one warp more brings tiles of columns as boxes, `sums.stages` turns ahead. paired: tiles of rows are taken
    in pairs, that with the most columns and that with the fewest. overlapped: the sums of a turn are multiplied together with
    the scores of the next one; else, if there are any, before them, so that both need not have registers.
    """

    scores: ProductPlan
    sums: ProductPlan
    paired: bool = False
    overlapped: bool = True

    @property
    def warpgroups(self) -> int:
        return self.sums.tile[0] // FRAGMENT_ROWS

    @property
    def threads(self) -> int:
        return (self.warpgroups + 1) * WARPGROUP

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies, and of one that brings tiles: as many of both where there are enough."""
        return REGISTERS[self.warpgroups]


def plan_chain(
    function: Function,
    chain: Chain,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    arrays: Mapping[str, Geometry],
) -> tuple[ChainPlan, int] | None:
    """The plan for a call, and how many blocks it has; None where tensor cores or bulk copies do not do."""
    extents = extents_of(chain.axes, names)
    batch = math.prod(extents[a] for a in chain.sums.batch)
    rows, columns, points = (extents[a] for a in (chain.row, chain.column, chain.point))
    lanes = math.prod(extents[a] for a in chain.sums.columns)  # 1 if there are no sums
    if max(batch * -(-rows // FRAGMENT_ROWS), columns) >= MOST_TILES:
        return None
    if not machine.bulk or not min(batch, rows, columns, points, lanes) or points > MOST_POINTS or lanes > MOST_LANES:
        return None
    type_ = exact_type(function, chain.scores, chain.scores.left[0])
    exact = all(exact_type(function, p, o) == type_ for p in (chain.scores, chain.sums) for o in p.operands)
    if type_ is None or not exact or any(f.types[0] != FLOAT32 for f in chain.folds):
        return None
    scores, sums = (
        _whole(function, from_first(p, chain.column), facts, extents, type_.name) for p in (chain.scores, chain.sums)
    )
    for product, own, operands in ((chain.scores, scores, chain.scores.operands), (chain.sums, sums, chain.sums.right)):
        for operand in operands:
            k = product.operands.index(operand)
            if not boxed(from_first(product, chain.column), k, own.staged[k], arrays):
                return None
    plans = list(_plans(chain, ChainPlan(scores, sums), points, lanes * bool(chain.sums.folds), machine))
    if not plans:
        return None

    def cycles(plan: ChainPlan) -> float:
        own_rows, own_lanes, turn = plan.sums.tile
        products: float = plan.scores.tile[2] * len(chain.scores.folds) + own_lanes * len(chain.sums.folds)
        if len(chain.scores.folds) > 1:  # of few columns, a left operand in shared memory is read as long as it is multiplied
            products += plan.scores.tile[2] * len(chain.scores.folds) * max(0.0, 32 / turn - 0.5)
        each = TURN_CYCLES + own_rows * turn * (SCORE_CYCLES[plan.warpgroups] + products * PRODUCT_CYCLES)
        each += chain.bounded * BOUNDED_CYCLES * plan.warpgroups + (not plan.overlapped) * ALONE_CYCLES
        turns = -(-columns // turn) if not (chain.start or chain.stop) else (columns // 2 + own_rows) / turn + 1
        waves = -(-batch * -(-rows // own_rows) // machine.multiprocessors)
        return waves * (TILE_CYCLES + turns * each)

    plan = min(plans, key=cycles)
    vector = written_together(chain.sums, facts, plan.sums.run, extents)
    tiles = -(-rows // plan.sums.tile[0])
    # blocks stay, and go from tile to tile; where these differ, one each, the longest first, if pairs of them are too few
    pairs = batch * -(-tiles // 2)
    paired = bool(chain.start or chain.stop) and pairs >= machine.multiprocessors
    stay = paired or not (chain.start or chain.stop)
    number = min(pairs if paired else batch * tiles, machine.multiprocessors) if stay else batch * tiles
    return replace(plan, sums=replace(plan.sums, vector=vector), paired=paired), number


def from_first(found: Products, axis: str) -> Products:
    """Products that have all columns from the first on, as boxes of these lie."""
    axes = found.sweeps.axes
    return replace(found, sweeps=replace(found.sweeps, axes={**axes, axis: replace(axes[axis], start=ZERO)}))


def _whole(function: Function, found: Products, facts: Facts, extents: Mapping[str, int], type_: str) -> ProductPlan:
    count = len(found.left)
    staged = tuple(staged_of(function, found, o, k < count, facts, extents) for k, o in enumerate(found.operands))
    lane = found.columns[-1] if found.columns else ""
    return ProductPlan(
        lane, (0, 0, 0), (0, 0), 1, staged, engine="wgmma", type=type_, boxes=True, resident=1,
        packed=(False,) * len(found.operands),
    )  # fmt: skip


def _plans(chain: Chain, plain: ChainPlan, points: int, lanes: int, machine: Machine) -> Iterator[ChainPlan]:
    points, lanes = -(-points // 16) * 16, -(-lanes // 32) * 32
    left, sums = len(chain.sums.left), len(chain.sums.folds)
    lines = any(not s.along_points for s in plain.scores.staged[len(chain.scores.left) :])  # of 64 columns
    for groups in WARPGROUPS:
        for turn in TURNS:
            if lines and turn % MATRIX_POINTS:
                continue
            rows = groups * FRAGMENT_ROWS
            scores = len(chain.scores.folds) * turn // 2
            words = scores + left * turn // 4 + sums * lanes // 2
            words += OTHER_WORDS + chain.bounded * (BOUNDED_WORDS + lanes // BOUNDED_LANES)
            overlapped, alone = sums > 0 and words <= FILLED * REGISTERS[groups][0], not sums
            if len(chain.scores.folds) > 1:
                own = words + (not chain.bounded) * lanes // BOUNDED_LANES
                overlapped = own <= FILLED_BY_SEVERAL * REGISTERS[groups][0]
                alone = turn <= MOST_ALONE and groups < 3
            if not overlapped and not (alone and words - left * turn // 4 <= FILLED * REGISTERS[groups][0]):
                continue
            for stages in STAGES:
                plan = ChainPlan(
                    replace(plain.scores, tile=(rows, turn, points), each=(FRAGMENT_ROWS, turn), stages=stages),
                    replace(plain.sums, tile=(rows, lanes, turn), each=(FRAGMENT_ROWS, lanes), stages=stages),
                    overlapped=overlapped,
                )
                whole = all(b.points * b.tiles == turn for b in brought(plan, chain) if b.product is chain.sums)
                if whole and shared_bytes(plan, chain) <= machine.shared - OTHER_SHARED:
                    yield plan
                    break


@dataclass(frozen=True)
class Brought:
    """An operand that comes to shared memory: so many tiles, of so many rows and points. once: of the block; others have as
    many in each turn.
    """

    operand: Operand
    product: Products
    k: int
    along_points: bool
    rows: int
    points: int
    tiles: int
    once: bool

    @property
    def bytes(self) -> int:
        return self.tiles * self.rows * self.points * 2


def brought(plan: ChainPlan, chain: Chain) -> tuple[Brought, ...]:
    """The operands in shared memory: those of rows, which stay, those of columns in scores, and in sums."""
    found = []
    for k, o in enumerate(chain.scores.operands):
        left, (rows, columns, points) = k < len(chain.scores.left), plan.scores.tile
        own, along = rows if left else columns, plan.scores.staged[k].along_points
        found.append(Brought(o, chain.scores, k, along, own, MATRIX_POINTS, -(-points // MATRIX_POINTS), left))
    for k, o in enumerate(chain.sums.operands):
        if k >= len(chain.sums.left):
            _, lanes, columns = plan.sums.tile
            along = plan.sums.staged[k].along_points
            own = lanes if along else -(-lanes // MATRIX_POINTS) * MATRIX_POINTS
            each = MATRIX_POINTS if along else columns  # lines have 64 points, or a point of 64 lanes
            found.append(Brought(o, chain.sums, k, along, own, each, columns // each, False))
    return tuple(found)


def shared_bytes(plan: ChainPlan, chain: Chain) -> int:
    return sum(b.bytes * (1 if b.once else plan.sums.stages) for b in brought(plan, chain))


def chain_boxes(chain: Chain, plan: ChainPlan, arrays: Mapping[str, Geometry], extents: Mapping[str, int]) -> tuple[Box, ...]:
    """The boxes that tiles are: of the axis along lines, of the other one, and of one element of the rest."""
    boxes = []
    for b in brought(plan, chain):
        read = operand_read(b.product, b.operand)
        assert read is not None
        rows, points = (b.product.rows if b.k < len(b.product.left) else b.product.columns)[0], b.product.over[0]
        names = (points, rows) if b.along_points else (rows, points)
        along = tuple(axis_along(read.index, a) for a in names)
        rest = tuple(d for d in reversed(range(len(read.index))) if d not in along)
        own = arrays[read.array].shape
        whole = {a: min(own[d], extents[a]) for a, d in zip(names, along, strict=True)}
        if chain.bounded and chain.column in whole:
            whole[chain.column] = own[along[names.index(chain.column)]]
        shape = (*(whole[a] for a in names), *(own[d] for d in rest))
        across = b.rows if b.along_points else b.points
        boxes.append(Box(read.array, (*along, *rest), (MATRIX_POINTS, across, *(1 for _ in rest)), shape))
    return tuple(boxes)
