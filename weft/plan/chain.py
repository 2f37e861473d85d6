"""The plan of chained products: which rows a block has, and how many columns it takes in a turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from weft.graph.chains import Chain, by_rows
from weft.graph.pages import Pages
from weft.graph.products import Operand, Products, exact_type
from weft.graph.tile import Map, Read, names_of
from weft.loops.intervals import bounds
from weft.loops.ir import ZERO, Expr, Function, Ref, free_names, substitute
from weft.loops.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.box import Box
from weft.plan.extents import are_inside, extents_of, ranges_of
from weft.plan.facts import Geometry
from weft.plan.fold import axis_along
from weft.plan.leaning import PLANNED, Leaning, Meeting
from weft.plan.machine import Machine
from weft.plan.product import MATRIX_POINTS, ProductPlan, made_of, operand_read
from weft.plan.product_search import OTHER_SHARED, boxed, staged_of, written_together

WARPGROUP, FRAGMENT_ROWS = 128, 64
# Columns of a turn, warpgroups of a block, and turns and tiles of rows that have a place in shared memory, that are tried.
TURNS, WARPGROUPS, STAGES, ROW_PLACES = (128, 112, 96, 80, 64, 48, 32, 192, 176), (1, 2, 3), (4, 3, 2), (2, 1)
# Registers of a thread, by warpgroups of a block: of those that multiply, and of the one that brings tiles; where that takes
# tiles of rows of one score, and scores, sums and left operands have so many words at the most, and not many lanes; and where
# it asks rows for their columns.
REGISTERS = {1: (240, 240), 2: (240, 24), 3: (160, 32)}
REGISTERS_TAKING, MOST_WORDS_TAKING = {1: (240, 240), 2: (232, 40), 3: (160, 32)}, 168
REGISTERS_ASKING = {1: (240, 240), 2: (232, 40), 3: (152, 56)}
# Words of a thread: besides sums, scores and operands, and where rows have columns of their own, a part of which goes with the
# lanes, or where lanes are many; for each axis of the batch after the first, and each other read; all of them at the most, by
# warpgroups of a block, and how many more a lone one has where else nothing fits, or columns lie in pages, which another warp
# is told. Points of the first products and lanes of the second at the most.
OTHER_WORDS, BOUNDED_WORDS, BOUNDED_LANES, MANY_LANES, MANY_WORDS, AXIS_WORDS, READ_WORDS = 20, 18, 16, 128, 16, 4, 8
WITHIN_WORDS = 4  # fewer, where bounds are counted from where the turns begin
ASKED_WORDS = 8  # fewer, of several scores, where what rows lack is asked ahead, and sums come before the next scores
SKIPPING_WORDS = 12  # of one score, where turns are left out
# Of several scores: words of a thread for each read that rows have alone, which stay, and for each scalar. Places of lines that
# columns have alone, for each turn that has one.
ROW_WORDS, SCALAR_WORDS, LINE_PLACES, LINED = 2, 2, 2, (FLOAT32, FLOAT64, INT32, INT64)
MOST_WORDS, SPARE_WORDS, MOST_POINTS, MOST_LANES = {1: 218, 2: 218, 3: 148}, 4, 256, 256
# Of several scores, whose values are made of each other, or of no sums: columns of a turn that are tried; what part of the
# registers is filled, and where several scores have them with sums at once, or have not; columns of a turn at the most then.
TURNS_OF_SEVERAL, FILLED, FILLED_BY_SEVERAL, MOST_ALONE = TURNS[:-1], 0.93, 0.875, 64
FILLED_ALONE = {1: 0.93, 2: 1.0, 3: 0.93}  # by warpgroups
# And tiles of rows and turns that have a place: those of rows are many, and turns that wait cost more.
PLACES_OF_SEVERAL = [(2, 4), (2, 3), (1, 4), (1, 3), (1, 2)]
# Elements of a packet of bytes that pairs of rows and columns have, and of those that the threads of a row bring together; the
# types that pairs have.
PACKET_OF_BYTES, QUAD_OF_BYTES, PAIRED = 8, 32, (BOOL, FLOAT16, BFLOAT16, FLOAT32)
# Columns of a page, that are whole lines of a swizzle: a multiple of so many.
LEAST_PAGE = 8
# Tiles of rows beyond which turns are rather left out than shared by several blocks, and columns of such a turn at the most.
FEW_TILES, MOST_LEFT_OUT = 32, 128
# Rows in all, and columns, at the most. Tiles of rows that are looked at for how many columns they have.
MOST_TILES, MOST_SAMPLES = 1 << 30, 16
# Cycles: of what is made of a score, by warpgroups that take turns at the tensor cores; of a product, of a turn besides, of a
# tile of rows besides, and of both for each warpgroup after the first where rows have columns of their own. Of the bytes that
# memory has in a second, how many are one in a cycle; how many times as long a turn takes that nobody else reads. (Measured on
# an H200.)
SCORE_CYCLES, PRODUCT_CYCLES = {1: 0.05, 2: 0.034, 3: 0.028}, 1 / 1780
TURN_CYCLES, TILE_CYCLES, BOUNDED_TURN_CYCLES, BOUNDED_TILE_CYCLES, A_CYCLE, UNSHARED = 500, 2200, 60, 1700, 2.14e9, 1.35
# The same of several scores, or of no sums.
SCORE_CYCLES_OF_SEVERAL, TURN_CYCLES_OF_SEVERAL, BOUNDED_CYCLES, ALONE_CYCLES = {1: 0.09, 2: 0.07, 3: 0.056}, 200, 130, 100
TILE_CYCLES_OF_SEVERAL = 4000
# Parts of the columns at the most, and blocks of parts for each multiprocessor; groups of multiprocessors, of one of which a
# cluster is, and each of which may be of an odd number of pairs; cycles in which parts are combined, by who does, and the bytes
# of parts that one block combines in a cycle. (Measured on an H100.)
MOST_PARTS, MOST_WAVES, GROUPS, TICKET_BYTES = 64, 2, 8, 40
MEETING_CYCLES: dict[Meeting, int] = {"": 0, "after": 5000, "cluster": 3100, "tickets": 4500}
# Columns that a thread of that launch combines, and threads of a block; threads that share the parts of such a run at the most,
# and parts of each at the least: it waits for few of them, one round of loads after the other.
RUN_OF_PARTS, PARTS_BLOCK, MOST_SHARING, FEWEST_SHARED = 8, 128, 8, 4


@dataclass(frozen=True)
class BroughtPairs:
    """A read of a row and a column that comes before their scores: so many neighbours at once, of elements of so many bytes.
    standing: these are rows, else columns.
    """

    read: str
    packet: int
    size: int
    standing: bool = False

    @property
    def words(self) -> int:
        """Registers of a thread for 8 columns of two rows, of which it has two each: packets are of all four threads, or, of
        standing ones, of all threads of a warp.
        """
        if self.standing:
            return 3
        return 1 if self.packet == PACKET_OF_BYTES else 2 * (2 // self.packet) * max(1, self.packet * self.size // 4)


@dataclass(frozen=True)
class ChainPlan:
    """scores, sums: the two products, whose tiles are (rows, columns, points) and (rows, lanes, columns). A warpgroup has 64 of
    a block's rows; one warp more brings tiles of columns as boxes, `sums.stages` turns ahead, and rows, of so many tiles of
    these. taken: blocks take tiles of rows as they have done others, and nobody knows before which. from_last: those of the
    last rows are first, which have more columns. skips: blocks leave turns out in which no pair of a row and a column has the
    mask's condition, as a launch before tells. overlapped: the sums of a turn are multiplied together with the scores of the
    next one; else, if there are any, before them, so that both need not have registers. together: how many of a tile's rows
    there are; 0: all. parts: of the columns, which as many blocks fold. meeting: who combines what they leave. page: columns of
    a page, where they lie in such. pairs: what comes of rows and columns before their
    scores. same: operands of sums whose tiles are those of operands of scores.
    """

    scores: ProductPlan
    sums: ProductPlan
    row_places: int = 1
    taken: bool = False
    from_last: bool = False
    skips: bool = False
    overlapped: bool = True
    together: int = 0
    parts: int = 1
    asking: bool = False
    row: str = ""
    page: int = 0
    pairs: tuple[BroughtPairs, ...] = ()
    meeting: Meeting = ""
    same: tuple[tuple[str, str], ...] = ()

    def arranged(self, chain: Chain) -> Chain:
        """The chain with the rows of the plan."""
        return chain if self.row == chain.row else by_rows(chain)[self.row]

    @property
    def step(self) -> int:
        """From the first row of a tile to that of the next one."""
        return self.together or self.sums.tile[0]

    @property
    def leaves_parts(self) -> bool:
        """Whether parts are left in memory."""
        return self.meeting in ("after", "tickets")

    @property
    def counts(self) -> bool:
        """Whether blocks count in memory, where a launch before begins."""
        return self.taken or self.meeting == "tickets"

    @property
    def cluster(self) -> int:
        """Blocks that run together."""
        return self.parts if self.meeting == "cluster" else 1

    @property
    def box_columns(self) -> int:
        """Columns that a box has of operands that lie in pages."""
        return min(self.page, self.sums.tile[2])

    @property
    def page_of_turn(self) -> str:
        """Which page of the columns the n-th box of a turn is of, as C++; and where in it that begins."""
        turn = self.sums.tile[2]
        return f"turn * {turn // self.page} + n" if turn >= self.page else f"turn / {self.page // turn}"

    @property
    def place_in_page(self) -> str:
        turn = self.sums.tile[2]
        return "0" if turn >= self.page else f"turn % {self.page // turn} * {turn}"

    @property
    def warpgroups(self) -> int:
        return self.sums.tile[0] // FRAGMENT_ROWS

    @property
    def threads(self) -> int:
        return (self.warpgroups + 1) * WARPGROUP

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies, and of one that brings tiles: as many of both where there are enough."""
        _, lanes, turn = self.sums.tile
        few = lanes <= MANY_LANES and turn * 3 // 4 + lanes // 2 <= MOST_WORDS_TAKING
        taking = self.taken and len(self.scores.staged) == 2 and few
        return (REGISTERS_ASKING if self.asking else REGISTERS_TAKING if taking else REGISTERS)[self.warpgroups]


@dataclass(frozen=True)
class _Cycles:
    """What plans of a call cost. columns_of_tiles: of some tiles of so many rows, as `columns_of_tiles` tells it."""

    chain: Chain
    machine: Machine
    batch: int
    rows: int
    columns: int
    together: int
    columns_of_tiles: Callable[[int], list[int]]

    def of_turn(self, plan: ChainPlan) -> float:
        chain = self.chain
        own_rows, own_lanes, turn = plan.sums.tile
        products: float = plan.scores.tile[2] * len(chain.scores.folds) + own_lanes * len(chain.sums.folds)
        if len(chain.scores.folds) > 1:  # of few columns, a left operand in shared memory is read as long as it is multiplied
            products += plan.scores.tile[2] * len(chain.scores.folds) * max(0.0, 32 / turn - 0.5)
        if several(chain):
            each = TURN_CYCLES_OF_SEVERAL + own_rows * turn * (
                SCORE_CYCLES_OF_SEVERAL[plan.warpgroups] + products * PRODUCT_CYCLES
            )
            return each + chain.bounded * BOUNDED_CYCLES * plan.warpgroups + (not plan.overlapped) * ALONE_CYCLES
        each = TURN_CYCLES + own_rows * turn * (SCORE_CYCLES[plan.warpgroups] + products * PRODUCT_CYCLES)
        return each + chain.bounded * BOUNDED_TURN_CYCLES * (plan.warpgroups - 1)

    def of_call(self, plan: ChainPlan, each: float, memory: int) -> float:
        """each: of a turn; memory: bytes that it brings and no other block does."""
        chain, machine, rows, columns = self.chain, self.machine, self.rows, self.columns
        parts, (own_rows, own_lanes, turn) = plan.parts, plan.sums.tile
        turns: float = -(-columns // turn)
        if each_tile := self.columns_of_tiles(own_rows):
            turns = sum(-(-one // turn) for one in each_tile) / len(each_tile)
        elif chain.start != 0 or chain.stop != 0:  # half of them, and what is left of the last one
            turns = (columns + own_rows) / 2 / turn + (1 - math.gcd(own_rows, turn) / turn) / 2
            turns = (columns // 2 + own_rows) / turn + 1 if several(chain) else turns
        turns = -(-turns // parts) if parts > 1 else turns
        tile_cycles = TILE_CYCLES + chain.bounded * BOUNDED_TILE_CYCLES * (plan.warpgroups - 1)
        tile_cycles = TILE_CYCLES_OF_SEVERAL if several(chain) else tile_cycles
        blocks, running = self.batch * -(-rows // plan.step) * parts, machine.multiprocessors
        if plan.cluster > 1:
            running = max(running - GROUPS * (parts - 2), parts) // parts * parts
        if memory:  # which pairs of multiprocessors share evenly, however many of a pair are busy
            pairs = max(1, machine.multiprocessors // 2)
            busy = -(-min(blocks, running) // pairs) * pairs
            each = max(each * UNSHARED, memory * busy * A_CYCLE / machine.bandwidth)
        meeting: float = MEETING_CYCLES[plan.meeting]
        if plan.meeting == "tickets":
            meeting += min(self.together or rows, own_rows) * own_lanes * 4 * parts / TICKET_BYTES
        return -(-blocks // running) * (tile_cycles + turns * each) + meeting


def plan_chain(
    function: Function,
    chain: Chain,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    arrays: Mapping[str, Geometry],
    leaning: Leaning = PLANNED,
) -> tuple[ChainPlan, int] | None:
    """The plan for a call, and how many blocks it has; None where tensor cores or bulk copies do not do."""
    page = page_of(chain, names, arrays)
    if page is None:
        return None
    extents = _extents(chain, names, arrays, page)
    chain = min(by_rows(chain).values(), key=lambda c: _fragments(c, extents))
    if page and chain.start != 0:  # rows of a tile might have pages between which none of them has any
        return None
    batch = math.prod(extents[a] for a in chain.sums.batch)
    rows, columns, points = (extents[a] for a in (chain.row, chain.column, chain.point))
    lanes = math.prod(extents[a] for a in chain.sums.columns)  # 1 if there are no sums
    if max(batch * rows, columns) >= MOST_TILES or not all_inside(chain, names, arrays):
        return None
    if not machine.bulk or not min(batch, rows, columns, points, lanes) or points > MOST_POINTS or lanes > MOST_LANES:
        return None
    products = _products(function, chain, facts, extents, arrays)
    if products is None:
        return None
    scores, sums = products
    together = 0 if chain.together is None else bounds(chain.together, names, {})[0]
    same = same_tiles(chain, scores, sums, extents)
    skips = chain.mask is not None and not page and not together  # if no block shares a tile's columns
    asking = chain.asks_rows or skips
    pairs = () if page or skips else tuple(p for p in pairs_of(function, chain, facts) if not (p.standing and together))
    whole = ChainPlan(scores, sums, together=together, asking=asking, row=chain.row, page=page, pairs=pairs, same=same)
    found = partial(_plans, chain, whole, points, lanes * bool(chain.sums.folds), machine)
    plans = list(found(SPARE_WORDS if chain.pages else 0)) or list(found(SPARE_WORDS))
    if not plans or together < 0 or chain.together is not None and not together:
        return None

    of_tiles = cache(lambda own: columns_of_tiles(chain, names, rows, own))
    cycles = _Cycles(chain, machine, batch, rows, columns, together, of_tiles)
    costs = []
    for plan in plans:
        each, tiles = cycles.of_turn(plan), batch * -(-rows // plan.step)
        alone = not several(chain) and bool(together or rows <= plan.sums.tile[0])
        memory = alone * sum(b.bytes for b in brought(plan, chain) if not b.once)
        # more than one part where tiles of rows are too few to keep the device busy
        most = min(-(-columns // plan.sums.tile[2]), MOST_PARTS, MOST_WAVES * machine.multiprocessors // tiles)
        most = 1 if several(chain) or chain.told_by_rows or leaning.alone or skips and tiles > FEW_TILES else max(1, most)
        costs.append((cycles.of_call(plan, each, memory), plan))
        for meeting in leaning.meetings:
            for parts in range(2, 1 + (min(most, machine.cluster) if meeting == "cluster" else most)):
                shared = replace(plan, parts=parts, meeting=meeting)
                costs.append((cycles.of_call(shared, each, memory), shared))
    _, plan = min(costs, key=lambda cost: cost[0])
    most = min(-(-columns // plan.sums.tile[2]), machine.cluster if plan.cluster > 1 else MOST_PARTS)
    plan = replace(plan, parts=leaning.shared_by(plan.parts, most))
    vector = written_together(chain.sums, facts, plan.sums.run, extents)
    tiles = -(-rows // plan.step)
    # blocks stay, and go from tile to tile; where these differ, each takes the next one that nobody has
    number, alike = batch * tiles * plan.parts, chain.start == chain.stop == 0
    skips = skips and plan.parts == 1
    taken = skips or chain.bounded and not chain.pages and plan.parts == 1 and number > machine.multiprocessors
    stay = (taken or alike) and plan.cluster == 1
    number = min(number, machine.multiprocessors) if stay else number
    from_last = last_have_most(chain, names, rows, plan.sums.tile[0])
    return replace(plan, sums=replace(plan.sums, vector=vector), taken=taken, skips=skips, from_last=from_last), number


def _products(
    function: Function, chain: Chain, facts: Facts, extents: Mapping[str, int], arrays: Mapping[str, Geometry]
) -> tuple[ProductPlan, ProductPlan] | None:
    """The plans of both products, as yet without tiles; None where tensor cores do not take them, or no boxes bring them."""
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
            pages = chain.pages_of(operand)
            paged = "" if pages is None else pages.column
            if not boxed(function, from_first(product, chain.column), k, own.staged[k], type_, arrays, paged):
                return None
            if pages is not None and own.staged[k].along_points != (product is chain.scores):  # a page is a part of each line
                return None
    return scores, sums


def _fragments(chain: Chain, extents: Mapping[str, int]) -> int:
    """How many tiles of a warpgroup the rows are: columns are multiplied as often."""
    return math.prod(extents[a] for a in chain.sums.batch) * -(-extents[chain.row] // FRAGMENT_ROWS)


def columns_of_tiles(chain: Chain, names: Mapping[str, int], rows: int, own: int) -> list[int]:
    """How many columns some tiles of so many rows have, where turns begin with the first one; none where nobody knows."""
    if chain.start in (None, 0) or chain.stop is None or several(chain):
        return []
    tiles = -(-rows // own)
    found = [columns_of_tile(chain, names, rows, own, tile) for tile in range(0, tiles, max(1, tiles // MOST_SAMPLES))]
    return [] if None in found else [n for n in found if n is not None]


def columns_of_tile(chain: Chain, names: Mapping[str, int], rows: int, own: int, tile: int) -> int | None:
    """How many columns the rows of a tile have together; None where data tell."""
    axis, ends = chain.axes[chain.column], (tile * own, min((tile + 1) * own, rows) - 1)
    try:
        start = min(bounds(axis.start, {**names, chain.row: row}, {})[0] for row in ends)
        stop = max(bounds(axis.stop, {**names, chain.row: row}, {})[1] for row in ends)
    except KeyError:
        return None
    return max(0, stop - start)


def last_have_most(chain: Chain, names: Mapping[str, int], rows: int, own: int) -> bool:
    """Whether the last rows have more columns than the first ones, as far as that is known."""
    first, last = (columns_of_tile(chain, names, rows, own, tile) for tile in (0, -(-rows // own) - 1))
    if first is None or last is None or first == last:
        return chain.stop == 1
    return last > first


def several(chain: Chain) -> bool:
    """Whether a chain has several scores, or no sums: what a gradient is made of."""
    return len(chain.scores.folds) > 1 or not chain.sums.folds


def all_inside(chain: Chain, names: Mapping[str, int], arrays: Mapping[str, Geometry]) -> bool:
    """Whether the reads that are asked for are inside their arrays, but for what the kernel looks at."""
    ranges = ranges_of(chain.axes, names)
    for read in chain.asked:
        told = [
            (e, size)
            for d, (e, size) in enumerate(zip(read.index, arrays[read.array].shape, strict=True))
            if not ((read.array, d) in chain.looked_at and e == Ref(chain.column, INT64))
        ]
        if not are_inside(told, names, ranges):
            return False
    return True


def page_of(chain: Chain, names: Mapping[str, int], arrays: Mapping[str, Geometry]) -> int | None:
    """How many columns a page has; 0 where none lie in pages, None where these are no boxes, or not known to be inside their
    arrays but for which page it is.
    """
    try:
        if any(low <= 0 <= high for low, high in (bounds(e, names, {}) for e in chain.divisors)):
            return None
        sizes = {bounds(p.size, names, {})[0] for p in chain.pages}
    except KeyError:
        return None
    if not sizes:
        return 0
    size = sizes.pop()
    if sizes or size < LEAST_PAGE or size % LEAST_PAGE:
        return None
    ranges, made = ranges_of(chain.axes, names), {v.name: v for v in chain.values if isinstance(v, Read)}
    for p in chain.pages:
        index, shape = made[p.read].index, arrays[made[p.read].array].shape
        rest = [(e, n) for d, (e, n) in enumerate(zip(index, shape, strict=True)) if d not in (p.place, p.number)]
        many = max(_most_pages(chain, p, arrays) * size, shape[p.number]) >= MOST_TILES
        if many or shape[p.place] < size or not are_inside(rest, names, ranges):
            return None
    return size


def _most_pages(chain: Chain, pages: Pages, arrays: Mapping[str, Geometry]) -> int:
    """How many pages of columns what tells them has."""
    made = {v.name: v for v in chain.values if isinstance(v, Read)}
    tables = [arrays[made[n].array].shape for n in pages.asked if pages.column in made[n].axes]
    return max((max(shape) for shape in tables), default=arrays[made[pages.read].array].shape[pages.number])


def _extents(chain: Chain, names: Mapping[str, int], arrays: Mapping[str, Geometry], page: int) -> dict[str, int]:
    """The most points of each axis; of columns whose number data decide for all rows of a tile, as many as arrays have."""
    found = extents_of(chain.axes, names)
    data = {n for v in chain.values for n in names_of(v)} & free_names(chain.axes[chain.column].stop)
    if data and not chain.told_by_rows:
        most = [arrays[array].shape[d] for array, d in chain.looked_at]
        most += [_most_pages(chain, p, arrays) * page for p in chain.pages]
        found[chain.column] = min(most, default=found[chain.column])
    return found


def from_first(found: Products, axis: str) -> Products:
    """Products that have all columns from the first on, as boxes of these lie."""
    axes = found.sweeps.axes
    return replace(found, sweeps=replace(found.sweeps, axes={**axes, axis: replace(axes[axis], start=ZERO)}))


def same_tiles(
    chain: Chain, scores: ProductPlan, sums: ProductPlan, extents: Mapping[str, int]
) -> tuple[tuple[str, str], ...]:
    """Operands of sums whose tiles are those of operands of scores: lines of a column's points, which are its lanes. Gradients
    have such: what a query gets is a product with keys, as its scores are.
    """
    if len(chain.sums.columns) != 1:
        return ()
    point, lane = chain.point, chain.lane
    chunks = [-(-extents[axis] // MATRIX_POINTS) for axis in (point, lane)]
    if extents[lane] > extents[point] or chunks[0] != chunks[1]:
        return ()
    lines: dict[tuple[str, tuple[Expr, ...]], str] = {}
    for k, o in enumerate(chain.scores.operands):
        read = operand_read(chain.scores, o)
        if k >= len(chain.scores.left) and scores.staged[k].along_points and read is not None:
            lines[read.array, tuple(substitute(e, {point: Ref(lane, INT64)}) for e in read.index)] = o.name
    found = []
    for k, o in enumerate(chain.sums.operands):
        read = operand_read(chain.sums, o)
        if k >= len(chain.sums.left) and not sums.staged[k].along_points and read is not None:
            name = lines.get((read.array, read.index))
            found += [] if name is None else [(o.name, name)]
    return tuple(found)


def _whole(function: Function, found: Products, facts: Facts, extents: Mapping[str, int], type_: str) -> ProductPlan:
    count = len(found.left)
    staged = tuple(staged_of(function, found, o, k < count, facts, extents) for k, o in enumerate(found.operands))
    lane = found.columns[-1] if found.columns else ""
    return ProductPlan(
        lane, (0, 0, 0), (0, 0), 1, staged, engine="wgmma", type=type_, boxes=True, resident=1,
        packed=(False,) * len(found.operands),
    )  # fmt: skip


def _plans(
    chain: Chain, plain: ChainPlan, points: int, lanes: int, machine: Machine, spare_words: int
) -> Iterator[ChainPlan]:
    """spare_words: how many more than usual the threads of a lone warpgroup have."""
    points, lanes = -(-points // 16) * 16, -(-lanes // 32) * 32
    left, sums = len(chain.sums.left), len(chain.sums.folds)
    lines = any(not s.along_points for s in plain.scores.staged[len(chain.scores.left) :])  # of 64 columns
    brought_alone = {o.name for p in (chain.scores, chain.sums) for o in p.operands}
    brought_alone |= {n for p in chain.pages for n in p.asked}
    asked = set[str]()  # at the edges alone
    if plain.asking and chain.mask is not None:
        asked = {n for v in made_of(chain.sums, (chain.mask.condition,)) for n in names_of(v)}
    reads = sum(isinstance(v, Read) and v.name not in brought_alone | asked for v in chain.values)
    made = made_of(chain.sums, (o.value for o in chain.sums.left))
    kept = (v for v in made if isinstance(v, Read) and v.name not in asked)
    of_rows = sum(chain.row in v.axes and chain.column not in v.axes for v in kept)
    line_bytes = sum(v.type.size for v in lines_of(chain, bool(asked))) * LINE_PLACES
    known = {*chain.axes, *(n for v in chain.values for n in names_of(v))}
    scalars = len({n for v in made if isinstance(v, Map) for n in free_names(v.value)} - known)
    more = AXIS_WORDS * max(0, len(chain.sums.batch) - 1) + READ_WORDS * reads
    pair_words = sum(p.words for p in plain.pairs)
    registers = REGISTERS_ASKING if chain.asks_rows else REGISTERS
    for groups in WARPGROUPS:
        for turn in TURNS_OF_SEVERAL if several(chain) else TURNS:
            if lines and turn % MATRIX_POINTS or plain.page and turn % plain.page and plain.page % turn:
                continue
            if turn % QUAD_OF_BYTES and any(p.packet == PACKET_OF_BYTES and not p.standing for p in plain.pairs):
                continue
            rows = groups * FRAGMENT_ROWS
            if plain.together > rows or asked and turn > MOST_LEFT_OUT:
                continue
            scores = len(chain.scores.folds) * turn // 2
            words = scores + left * turn // 4 + sums * lanes // 2 + pair_words * turn // 8
            overlapped, places = True, [*itertools.product(ROW_PLACES, STAGES)]
            if several(chain):
                words += OTHER_WORDS + ROW_WORDS * of_rows + chain.bounded * (BOUNDED_WORDS + lanes // BOUNDED_LANES)
                overlapped, alone = sums > 0 and words <= FILLED * registers[groups][0], not sums
                if len(chain.scores.folds) > 1:
                    own = words + (not chain.bounded) * lanes // BOUNDED_LANES
                    overlapped = own <= FILLED_BY_SEVERAL * registers[groups][0]
                    alone = turn <= MOST_ALONE and groups < 3
                words -= plain.asking * ASKED_WORDS + left * turn // 4
                room = FILLED_ALONE[groups] * registers[groups][0]
                if not overlapped and not (alone and words + SCALAR_WORDS * scalars <= room):
                    continue
                places = PLACES_OF_SEVERAL
            else:
                many = MANY_WORDS * max(0, lanes - MANY_LANES) // MANY_LANES
                words += OTHER_WORDS + more + bool(asked) * SKIPPING_WORDS
                words += BOUNDED_WORDS + lanes // BOUNDED_LANES if chain.bounded else many
                words -= WITHIN_WORDS * (chain.start not in (None, 0))
                if words > MOST_WORDS[groups] + (groups == 1) * spare_words:
                    continue
            for row_places, stages in places:
                plan = replace(
                    plain,
                    scores=replace(plain.scores, tile=(rows, turn, points), each=(FRAGMENT_ROWS, turn), stages=stages),
                    sums=replace(plain.sums, tile=(rows, lanes, turn), each=(FRAGMENT_ROWS, lanes), stages=stages),
                    row_places=row_places,
                    overlapped=overlapped,
                )
                whole = all(b.points * b.tiles == turn for b in brought(plan, chain) if b.product is chain.sums)
                beside = line_bytes * stages * turn
                if whole and shared_bytes(plan, chain) + beside <= machine.shared - OTHER_SHARED:
                    yield plan
                    break


@dataclass(frozen=True)
class Brought:
    """An operand that comes to shared memory: so many tiles, of so many rows and points. once: of the block; others have as
    many in each turn. of: the operand whose tiles these are, if it is not brought by itself.
    """

    operand: Operand
    product: Products
    k: int
    along_points: bool
    rows: int
    points: int
    tiles: int
    once: bool
    of: str = ""

    @property
    def bytes(self) -> int:
        return 0 if self.of else self.tiles * self.rows * self.points * 2


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
            found.append(Brought(o, chain.sums, k, along, own, each, columns // each, False, dict(plan.same).get(o.name, "")))
    return tuple(found)


def lines_of(chain: Chain, skips: bool) -> tuple[Read, ...]:
    """The reads that columns have alone, of several scores, and of conditions. skips: those of masks are asked of turns."""
    exprs: list[Expr] = [chain.given] if chain.given is not None else []
    exprs += [chain.mask.condition] if skips and chain.mask is not None else []
    if several(chain):
        exprs += [*(o.value for o in chain.sums.left), *(e for f in (*chain.leading, *chain.following) for e in f.parts)]
    own, column = {*chain.sums.batch, chain.column}, Ref(chain.column, INT64)
    return tuple(
        v for v in made_of(chain.sums, exprs)
        if isinstance(v, Read) and v.type in LINED and column.name in v.axes and own >= {*v.axes} and not v.checked
        and all(i == column or column.name not in free_names(i) for i in v.index)
    )  # fmt: skip


def pairs_of(function: Function, chain: Chain, facts: Facts) -> tuple[BroughtPairs, ...]:
    """The reads of a row and a column, of which those of a row's columns lie side by side, or bytes of a column's rows."""
    if chain.axes[chain.column].start != ZERO:
        return ()  # turns may begin between packets
    exprs = [*(o.value for o in chain.sums.left), *(e for f in (*chain.leading, *chain.following) for e in f.parts)]
    column, found = Ref(chain.column, INT64), []
    for v in made_of(chain.sums, exprs):
        if not isinstance(v, Read) or not {chain.row, chain.column} <= {*v.axes} or not v.always or v.checked:
            continue
        along, type_ = [d for d, e in enumerate(v.index) if chain.column in free_names(e)], function.array(v.array).dtype
        if type_ in PAIRED and [v.index[d] for d in along] == [column] and (v.array, along[0]) in facts.unit:
            many = facts.vector(v.array)
            packed = type_.size == 1 and many == PACKET_OF_BYTES
            found.append(BroughtPairs(v.name, many if packed else min(many, 2), type_.size))
        elif not along or [v.index[d] for d in along] == [column]:
            standing = [d for d, e in enumerate(v.index) if chain.row in free_names(e)]
            whole = [v.index[d] for d in standing] == [Ref(chain.row, INT64)] and chain.axes[chain.row].start == ZERO
            if whole and type_ == BOOL and (v.array, standing[0]) in facts.unit and facts.vector(v.array) == PACKET_OF_BYTES:
                found.append(BroughtPairs(v.name, PACKET_OF_BYTES, type_.size, standing=True))
    return tuple(found)


def shared_bytes(plan: ChainPlan, chain: Chain) -> int:
    return sum(b.bytes * (plan.row_places if b.once else plan.sums.stages) for b in brought(plan, chain))


def chain_boxes(chain: Chain, plan: ChainPlan, arrays: Mapping[str, Geometry], extents: Mapping[str, int]) -> tuple[Box, ...]:
    """The boxes that tiles are: of the axis along lines, of the other one, and of one element of the rest."""
    boxes = []
    for b in brought(plan, chain):
        if b.of:
            continue
        read = operand_read(b.product, b.operand)
        assert read is not None
        rows, points = (b.product.rows if b.k < len(b.product.left) else b.product.columns)[0], b.product.over[0]
        names = (points, rows) if b.along_points else (rows, points)
        pages = None if b.once else chain.pages_of(b.operand)
        along = tuple(pages.place if pages and a == pages.column else axis_along(read.index, a) for a in names)
        rest = tuple(d for d in reversed(range(len(read.index))) if d not in along)
        own = arrays[read.array].shape
        whole = {a: min(own[d], extents[a]) for a, d in zip(names, along, strict=True)}
        if (chain.bounded or pages) and chain.column in whole:
            whole[chain.column] = own[along[names.index(chain.column)]]
        shape = (*(whole[a] for a in names), *(own[d] for d in rest))
        across = plan.box_columns if pages else b.rows if b.along_points else b.points
        boxes.append(Box(read.array, (*along, *rest), (MATRIX_POINTS, across, *(1 for _ in rest)), shape))
    return tuple(boxes)


def parts_of(chain: Chain, plan: ChainPlan, tiles: int, turns: int) -> tuple[tuple[str, ScalarType, int], ...]:
    """The memory that parts of rows are left in, of so many tiles, and where these are counted: name, type and elements. turns:
    of all of the batch, of which something is told.
    """
    if plan.taken:
        return (("tickets", INT32, 1), *((name, type_, turns) for name, type_ in (tables_of(chain) if plan.skips else ())))
    rows, lanes, _ = plan.sums.tile
    of_rows = [(f"{f.results[0]}.parts", f.types[0], tiles * plan.parts * rows) for f in (*chain.leading, *chain.following)]
    of_rows += [(f"{f.results[0]}.parts", f.types[0], tiles * plan.parts * rows * lanes) for f in chain.sums.folds]
    return (*of_rows, *([("tickets", INT32, tiles)] if plan.meeting == "tickets" else []))


def tables_of(chain: Chain) -> tuple[tuple[str, ScalarType], ...]:
    """What is told of each turn: the least and the largest of what the mask compares of columns, and of each in a bit whether
    it is ordered, after the first one, whether what has to be finite is.
    """
    sides = [(f"{which}.{k}", e.type) for k, e in enumerate(chain.sides.columns) for which in ("least", "most")]
    return (("told", INT32), *sides)


def looked_at(chain: Chain, plan: ChainPlan) -> tuple[Brought, ...]:
    """The tiles of a turn that are looked at for what is not finite: of operands of sums, or of scores that these have; of all
    sums where rows lack columns by bounds, which takes less time than that each tile of rows looks.
    """
    own, wanted = brought(plan, chain), () if chain.mask is None else chain.mask.operands
    wanted = tuple(o.name for o in chain.sums.right) if chain.bounded else wanted
    asked = {b.of or b.operand.name for b in own if b.product is chain.sums and b.operand.name in wanted}
    return tuple(b for b in own if not b.once and not b.of and b.operand.name in asked)


def turns_of(chain: Chain, plan: ChainPlan, names: Mapping[str, int], arrays: Mapping[str, Geometry]) -> int:
    """How many turns all of the batch have at the most."""
    extents = _extents(chain, names, arrays, plan.page)
    return math.prod(extents[a] for a in chain.sums.batch) * -(-extents[chain.column] // plan.sums.tile[2])


def pieces_of(plan: ChainPlan) -> int:
    """The blocks that combine the parts of a tile."""
    rows, lanes, _ = plan.sums.tile
    return -(-(plan.together or rows) * lanes * sharing_of(plan) // (RUN_OF_PARTS * PARTS_BLOCK))


def sharing_of(plan: ChainPlan) -> int:
    """The threads of that launch that share the parts of a run."""
    share = 1
    while 2 * share <= MOST_SHARING and 2 * share * FEWEST_SHARED <= plan.parts:
        share *= 2
    return share
