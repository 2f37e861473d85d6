"""The search for a plan of products: what there is to take, and what it costs by axes and sizes alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.products import Operand, Products, multiplied_type, products
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Read
from weft.loops.ir import ZERO, Function, Ref, free_names
from weft.loops.types import FLOAT32, FLOAT64, INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.extents import extents_of
from weft.plan.facts import Geometry
from weft.plan.few_rows import FEWEST_COLUMNS, few_rows
from weft.plan.few_rows import FEWEST_POINTS as FEW_POINTS
from weft.plan.fold import PACKET_BYTES, WARP, Extents, is_run, power_of_two, stored_in_packets
from weft.plan.machine import Machine
from weft.plan.merged import Pairs, merged, pairs_in_memory
from weft.plan.neighbours import neighbours
from weft.plan.product import (
    MATRIX_LINE,
    RUN,
    WORD,
    ProductPlan,
    Staged,
    factor_read,
    in_a_run,
    late_reads,
    operand_reads,
    packed_elements,
    packed_type,
    placed,
    result_reads,
    ring_bytes,
    shared_bytes,
)
from weft.plan.window import Window, window_of, windowed

# Rows and columns from which on squares of results pay, and points. Blocks of a grid, and rows, columns or points, at the most:
# with those of a tile beyond, 32 bits count them.
FEWEST_ROWS, FEWEST_POINTS, MOST_BLOCKS, MOST_ROWS = 16, 8, 1 << 31, (1 << 31) - (1 << 12)
# Rows, or columns, that are few; points that are folded for each of their results by itself.
MOST_FEW, MOST_ENDING = 32, 64
# Tiles of rows whose blocks run beside each other: they share columns in L2.
NEAR_TILES = 8
# By threads: (rows, columns, points of a turn), (rows, columns) of a thread, groups of threads that share the points of a turn;
# bytes of shared memory of a block at the most.
TILES = (
    ((128, 128, 16), (8, 8), 1), ((64, 128, 16), (4, 8), 1), ((128, 64, 16), (8, 4), 1), ((64, 64, 16), (4, 4), 1),
    ((64, 32, 32), (4, 4), 2), ((32, 64, 32), (4, 4), 2), ((32, 32, 32), (4, 4), 4), ((32, 32, 64), (4, 4), 4),
)  # fmt: skip
MOST_SHARED = 48 * 1024
# By matrix instructions, of floats in parts: (rows, columns, points of a turn), (rows, columns) of a warp.
OF_FLOATS = (((128, 128, 16), (64, 32)), ((128, 64, 16), (64, 32)), ((64, 128, 16), (32, 64)), ((64, 64, 16), (32, 32)))
# By matrix instructions: (rows, columns), (rows, columns) of a warpgroup, blocks that stay on a multiprocessor; the same of
# warps.
Square = tuple[tuple[int, int], tuple[int, int], int]
BY_WARPGROUPS = (
    ((128, 256), (64, 256), 1), ((256, 128), (128, 128), 1), ((128, 128), (64, 128), 2), ((64, 128), (64, 128), 2),
    ((128, 64), (64, 64), 2), ((64, 64), (64, 64), 2), ((64, 256), (64, 256), 1),
)  # fmt: skip
# Of two crews of a warpgroup, each of which has squares of its own: (rows, columns).
CREWS, BY_CREWS = 2, ((128, 128), (64, 128))
# The same of few columns.
NARROW_TILES = (
    ((128, 8), (64, 8), 1), ((64, 8), (64, 8), 1), ((128, 16), (64, 16), 1), ((64, 16), (64, 16), 1),
    ((128, 32), (64, 32), 1), ((64, 32), (64, 32), 1),
)  # fmt: skip
BY_WARPS = (((128, 128), (64, 32), 0), ((128, 64), (32, 32), 0), ((64, 64), (32, 32), 0))
# The same of doubles, of whose sums a warp has few or a multiprocessor few warps.
OF_DOUBLES = (((128, 128), (64, 32), 0), ((64, 64), (32, 32), 0))
# Turns whose tiles have a place in shared memory: of boxes at the least and at the most, of copies; bytes besides tiles. Bytes
# of tiles of few columns at the most: more are not on their way at a time, and blocks of launches before or after fit beside.
FEWEST_BOXES, MOST_BOXES, COPIES_AHEAD, OTHER_SHARED, NARROW_RING = 3, 24, 4, 2048, 110 * 1024
# Bytes of a copy at the least.
LEAST_COPIED = 8
# Of a box: dimensions, and bytes from one element to the next; of an operand that is packed, elements: at the most.
MOST_RANK, MOST_STRIDE, MOST_PACKED = 5, 1 << 40, (1 << 31) - 1
# Bytes of neighbours that a thread stores together at the least: of less, the threads of a warp have neighbours.
LEAST_STORED = 8
# Registers of a multiprocessor. Words of results that a thread has at the most, by multiply-adds, where operands lie between
# packets too, and by matrix instructions, and what the rest takes of each, and more by the latter where something is made of
# sums: two blocks of 128 x 128 results and an activation took 73 us where one of 128 x 256 took 69, gated ones 68 and 57.
REGISTERS = 1 << 16
MOST_WORDS, MOST_BESIDE, MOST_SUMS = 64, 32, 128
OTHER_WORDS, FLOAT_WORDS, MATRIX_WORDS, MADE_WORDS = 56, 100, 44, 16
# What a multiprocessor does in a cycle: multiply-adds, the same of floats as sums of bfloat16, products of bytes of points by
# an engine and of float64; bytes of shared memory, of L2 and of memory where all ask, and those that a block brings; a box of
# memory costs as much as so many rows more. What crews bring, whose ring no writing interrupts, to that.
LANES, FLOATS, PRODUCT_BYTES, DOUBLES, DOUBLES_OF_WARP, SHARED_BYTES = 107, 113, {"mma": 2048, "wgmma": 4096}, 128, 14, 121
L2_BYTES, MEMORY_BYTES, L2_BLOCK_BYTES, MEMORY_BLOCK_BYTES, BOX_ROWS, CREWS_BRING = 60, 22, 42, 34, 8, 1.1
# Cycles: of a turn that waits for memory, times threads, of one that waits to shift what comes, of one of floats as sums of
# bfloat16 at the least, and of what does not come in aligned packets to that. What these take of packed lines, to what is told
# else: from .93 (2047 x 2049 x 2050) to 1.33 (1000 x 777 x 1500) was measured.
WAITING, SHIFTED_WAITING, FLOAT_TURN, LOOSE_TURN, PACKED_FLOATS = 240 * 128, 1600, 1800, 2600, 1.17
# Cycles: until a tile is there; of a turn at the least; before the first. Results that are written in one, by threads and by
# lines, and bytes of these where all multiprocessors write.
FETCH_CYCLES, TURN_CYCLES, START_CYCLES, END_RESULTS, END_LINES, WRITTEN_BYTES = 3200, 250, 2400, 17, 4.9, 22
RESULTS_OF_GROUP, LINES_OF_GROUP = 4.2, 1.7
# Blocks that share the points of a square, and turns of each at the least; bytes of parts that a multiprocessor moves in a
# cycle, cycles of another launch.
PARTS = (*range(2, 9), *range(10, 17, 2), *range(20, 33, 4), *range(40, 65, 8), *range(80, 113, 16))
FEWEST_TURNS, PART_BYTES, LAUNCH_CYCLES = 4, 18, 4100
# Blocks that share rows and tell each other what these fold, at the most; cycles until all have heard.
MOST_ACROSS, MEETING_CYCLES = 64, 7000
# Multiply-adds that take as long as four words of shared memory, and for groups of threads that share points, how much longer;
# as an element that is brought from between packets, and one that is alone. Of a launch that packs an operand: cycles, and
# bytes that a multiprocessor moves in one.
TAKEN, SHARING, ANYWHERE, APART, PLACED, PACK_CYCLES, PACK_BYTES = 0.8, 0.3, 12, 75, 10, 4000, 23


def plan_products(
    function: Function,
    sweeps: Sweeps,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    arrays: Mapping[str, Geometry],
) -> tuple[ProductPlan, Extents] | None:
    """The plan for a call; None where sweeps over the points of each result do as well."""
    extents = extents_of(sweeps.axes, names)
    pairs = pairs_in_memory(function, sweeps, arrays, extents, rows=True)
    sweeps = merged(sweeps, pairs)
    lane = _lane(sweeps, facts)
    extents = extents_of(sweeps.axes, names)
    first = sweeps.stages[0]
    counts = [math.prod(extents[a] for a in own.over) for own in first]
    main = counts.index(max(counts))
    found = products(sweeps, lane, main) if lane else None
    if found is None or any(n > MOST_ENDING for k, n in enumerate(counts) if k != main):
        return None
    groups = (found.batch, found.rows, found.columns, found.over)
    batch, rows, columns, points = (math.prod(extents[a] for a in axes) for axes in groups)
    if not batch or not rows or not columns or max(rows, columns, points) > MOST_ROWS:
        return None
    each = sum(function.array(w.array).dtype.size for w in found.sweeps.last)
    work = _Work(found, batch, rows, columns, points, machine, extents, each)
    small = max(rows, columns) < FEWEST_COLUMNS  # of both: a cluster has all points
    few = min(rows, columns) <= MOST_FEW and points >= FEW_POINTS
    if few and not (found.owns or found.exact or found.across):
        turned = products(sweeps, found.rows[-1], main)
        assert turned is not None
        other = replace(work, found=turned, rows=columns, columns=rows)
        tall, wide = (work, other) if columns < rows else (other, work)
        plain = ProductPlan(wide.found.columns[-1], (0, 0, 0), (0, 0), 1, (), merged=pairs, main=main)
        streamed = few_rows(function, wide.found, plain, facts, extents, machine)
        read_along = streamed is not None and streamed[0].engine == "mma" and all(s.along_points for s in streamed[0].staged)
        narrow = None if read_along or small else _squares(function, tall, pairs, facts, arrays, main, narrow=True)
        if narrow is not None:
            return narrow
        if streamed is not None and streamed[1] < MOST_BLOCKS:
            own = replace(streamed[0], vector=written_together(wide.found, facts, streamed[0].run, extents))
            return own, Extents(batch * rows * columns, streamed[1], streamed[1] // own.parts)
    if found.ending or min(rows, columns) < FEWEST_ROWS or points < FEWEST_POINTS:
        return None
    return _squares(function, work, pairs, facts, arrays, main)


def _squares(
    function: Function,
    work: _Work,
    pairs: Pairs,
    facts: Facts,
    arrays: Mapping[str, Geometry],
    main: int,
    narrow: bool = False,
) -> tuple[ProductPlan, Extents] | None:
    """The plan by squares of results. narrow: by those of few columns alone, and matrix instructions."""
    plain = _plain(function, work, pairs, facts, main, narrow)
    ways: list[tuple[_Work, ProductPlan]]
    ways = [(work, plan) for plan in _by_matrices(function, plain, work, facts, arrays, narrow)]
    if ways and not narrow:
        for other in work.apart(main):
            own = replace(_plain(function, other, pairs, facts, main), apart=other.found.batch)
            ways += [(other, plan) for plan in _by_matrices(function, own, other, facts, arrays, narrow)]
        for other, window in work.windows(function):
            own = replace(_plain(function, other, pairs, facts, main), window=window)
            ways += [(other, plan) for plan in _by_matrices(function, own, other, facts, arrays, narrow)]
    if not ways and not narrow:
        owns = (plain, _in_packets(function, plain, work))
        ways = [(work, plan) for own in owns for plan in _by_threads(_stored(function, own, work, facts), work)]
        ways += [(work, plan) for own in owns for plan in _by_floats(function, own, work, facts)]
    if not ways:
        return None
    shared = [(w, p) for w, one in ways for p in w.shared((one,))]
    if work.found.across:
        shared = work.meeting([p for w, p in shared if w is work])
    if not shared:
        return None
    work, plan = min(shared, key=lambda way: way[0].cycles(way[1]))
    row_tiles, column_tiles = -(-work.rows // plan.tile[0]), -(-work.columns // plan.tile[1])
    near = min(NEAR_TILES, power_of_two(row_tiles))
    blocks = work.batch * row_tiles * column_tiles * plan.parts
    squares = blocks // plan.parts
    if blocks >= MOST_BLOCKS:
        return None
    if plan.resident and plan.parts == 1:
        blocks = min(blocks, work.at_once(plan))
    return replace(plan, near=1 if plan.across else near), Extents(work.batch * work.rows * work.columns, blocks, squares)


def _plain(
    function: Function, work: _Work, pairs: Pairs, facts: Facts, main: int, narrow: bool = False
) -> ProductPlan:
    """How operands come to shared memory, whatever the squares."""
    found, count = work.found, len(work.found.left)
    staged = tuple(staged_of(function, found, o, k < count, facts, work.extents) for k, o in enumerate(found.operands))
    if narrow:  # a line of less than 64 columns is none of a tile
        staged = tuple(s if k < count or s.along_points else Staged(True, 1) for k, s in enumerate(staged))
    return ProductPlan(found.columns[-1], (0, 0, 0), (0, 0), 1, staged, merged=pairs, main=main)


@dataclass(frozen=True)
class _Work:
    """What a call multiplies, and on what. each: bytes of a result."""

    found: Products
    batch: int
    rows: int
    columns: int
    points: int
    machine: Machine
    extents: Mapping[str, int]
    each: int

    def apart(self, main: int) -> Iterator[_Work]:
        """The same with all axes of one side but the fastest in the batch: what has several is packed, one is a box's."""
        for side in (self.found.rows, self.found.columns):
            found = products(self.found.sweeps, self.found.columns[-1], main, side[:-1]) if len(side) > 1 else None
            if found is not None:
                groups = (found.batch, found.rows, found.columns)
                batch, rows, columns = (math.prod(self.extents[a] for a in axes) for axes in groups)
                yield replace(self, found=found, batch=batch, rows=rows, columns=columns)

    def windows(self, function: Function) -> Iterator[tuple[_Work, Window]]:
        """The same with a window that moves over an operand."""
        factors = multiplied_type(function, self.found, self.points)
        if factors is None or not self.machine.bulk or factors.size > 2:
            return
        for k, operand in enumerate(self.found.operands):
            read = factor_read(function, factors, self.found, operand)
            window = window_of(self.found, k, read, MATRIX_LINE // factors.size)
            if window is not None:
                found, extents = windowed(self.found, window), window.extents(self.extents)
                groups = (found.rows, found.columns, found.over)
                rows, columns, points = (math.prod(extents[a] for a in axes) for axes in groups)
                if max(rows, columns, points) <= MOST_ROWS:
                    own = replace(self, found=found, rows=rows, columns=columns, points=points, extents=extents)
                    yield own, window

    def squares(self, plan: ProductPlan) -> int:
        return self.batch * -(-self.rows // plan.tile[0]) * -(-self.columns // plan.tile[1])

    def at_once(self, plan: ProductPlan) -> int:
        """Blocks that stay: as many as there is room for, of those that share rows all."""
        room = plan.resident * self.machine.multiprocessors
        return room // plan.across * plan.across if plan.across else room

    def meeting(self, plans: Iterable[ProductPlan]) -> list[tuple[_Work, ProductPlan]]:
        """The plans by which blocks tell each other what rows fold; none where it is quicker to leave all results in memory."""
        found = self.found
        if set(found.across[0][0].over) != {*found.columns} or found.ending or found.exact:
            return []
        each = sum(f.types[0].size for f in found.folds)
        moved = self.batch * self.rows * self.columns * (each + self.each) / (self.machine.multiprocessors * MEMORY_BYTES)
        most = min(map(replace(self, each=each).cycles, plans)) + LAUNCH_CYCLES + moved
        staying = [p for p in plans if p.boxes and p.parts == 1 and not any(p.packed) and not p.lines]
        across = [replace(p, across=-(-self.columns // p.tile[1])) for p in staying]
        across = [p for p in across if p.across <= min(MOST_ACROSS, p.resident * self.machine.multiprocessors)]
        return [(self, p) for p in across if self.cycles(p) <= most]

    def cycles(self, plan: ProductPlan) -> float:
        """About how many cycles a plan takes."""
        (m, n, k), blocks = plan.tile, self.squares(plan) * plan.parts
        turns = -(-self.points // (k * plan.parts))
        at_once = self.at_once(replace(plan, resident=1)) if plan.across else self.machine.multiprocessors
        several = -(-blocks // at_once)  # of a multiprocessor, one beside or after the other
        if plan.engine == "fma":
            own = math.prod(plan.each) * self.words + OTHER_WORDS
            resident = self.resident(plan, own)
            beside = min(resident, several)
            waiting = WAITING / plan.threads if all(s.aligned for s in plan.staged) else SHIFTED_WAITING
            turn = beside * self.by_threads(plan) + waiting / beside
            took = -(-several // resident) * turns * turn
        elif plan.engine == "floats":
            resident = self.resident(plan, math.prod(plan.each) * self.words // WARP + FLOAT_WORDS)
            rounds, left = divmod(several, resident)
            together = [resident] * rounds + [left] * (left > 0)
            late = 0 if all(s.aligned and s.vector > 1 for s in plan.staged) else LOOSE_TURN
            each = [max(n * self.by_threads(plan), FLOAT_TURN) + late for n in together]
            took = sum(START_CYCLES + turns * own + self.written(plan) for own in each)
            took *= PACKED_FLOATS if any(plan.packed) else 1
        elif plan.crews > 1:  # which wait for products, or for who writes
            products, writes = turns * self.turn(plan, blocks, CREWS_BRING), self.writing(plan) + self.written(plan)
            writes += self.meetings(plan)
            took = START_CYCLES + several * max(products, (products + writes) / plan.crews, self.written(plan)) + writes
        elif plan.resident:
            rounds, left = divmod(blocks, self.at_once(plan))
            took = (rounds + (left > 0)) * self.meetings(plan)
            took += START_CYCLES + rounds * self.round(plan, turns, blocks) + self.round(plan, turns, left)
        else:
            own = math.prod(plan.each) * self.words // WARP + OTHER_WORDS
            resident = self.resident(plan, own)
            turn = min(resident, several) * self.by_matrices(plan, blocks, min(resident, several))
            took = -(-several // resident) * (START_CYCLES + turns * turn + m * n / END_RESULTS)
        took += sum(self.packing(plan, k) for k, packed in enumerate(plan.packed) if packed)
        if plan.parts > 1:  # what is left and taken again, and a launch
            took += LAUNCH_CYCLES + blocks * m * n * self.words * 8 / (self.machine.multiprocessors * PART_BYTES)
        return took

    def meetings(self, plan: ProductPlan) -> float:
        """Cycles in which blocks hear what rows of a square fold."""
        return sum(map(len, self.found.across)) * MEETING_CYCLES * (plan.across > 1)

    def round(self, plan: ProductPlan, turns: int, blocks: int) -> float:
        """Cycles of so many blocks by matrix instructions, all at once."""
        beside = min(plan.resident, -(-blocks // self.machine.multiprocessors))
        if not beside:
            return 0
        products = turns * self.turn(plan, blocks, beside)
        return beside * (products + self.written(plan)) + self.writing(plan, beside)

    def turn(self, plan: ProductPlan, blocks: int, beside: float) -> float:
        """Cycles of a turn by matrix instructions of blocks that stay."""
        return max(self.by_matrices(plan, blocks, beside), FETCH_CYCLES / (plan.stages * beside), TURN_CYCLES / beside)

    def writing(self, plan: ProductPlan, beside: int = 1) -> float:
        """Cycles that threads take for the results of the squares of blocks beside each other."""
        of_all, of_group = (END_LINES, LINES_OF_GROUP) if plan.lines else (END_RESULTS, RESULTS_OF_GROUP)
        return math.prod(plan.tile[:2]) * max(beside / of_all, 4 * WARP / (of_group * plan.folding))

    def written(self, plan: ProductPlan) -> float:
        """Cycles in which they come to memory: squares end together, and all write at once."""
        active = min(self.squares(plan), self.machine.multiprocessors) / self.machine.multiprocessors
        return math.prod(plan.tile[:2]) * self.each * active / WRITTEN_BYTES

    @property
    def words(self) -> int:
        """What the sums of a result take, and what it has of its own."""
        types = [f.types[0] for f in self.found.folds] + [o.value.type for o in self.found.owns]
        return sum(max(WORD, t.size) // WORD for t in types)

    def resident(self, plan: ProductPlan, registers: int) -> int:
        """Blocks that a multiprocessor has at a time, of so many registers a thread."""
        room = self.machine.shared // shared_bytes(plan, self.found)
        return max(1, min(REGISTERS // (plan.threads * registers), 2048 // plan.threads, room))

    def packing(self, plan: ProductPlan, k: int) -> float:
        """Cycles of a launch that packs the k-th operand."""
        bytes_ = packed_elements(plan, self.found, k, self.extents) * self.found.operands[k].value.type.size * 2
        return PACK_CYCLES + bytes_ / (self.machine.multiprocessors * PACK_BYTES)

    def by_threads(self, plan: ProductPlan) -> float:
        """Cycles of a turn: of multiply-adds, of what threads take of shared memory for them, and of what comes there between
        packets.
        """
        (m, n, k), (own_m, own_n) = plan.tile, plan.each
        size = max(o.value.type.size for o in self.found.operands)
        if plan.engine == "floats":
            each = sum(len(self.found.terms(f)) for f in self.found.folds) * LANES / FLOATS
        else:
            each = len(self.found.folds) + TAKEN * (1 / own_m + 1 / own_n) * (1 + SHARING * (plan.groups - 1))
        sides = [(m if i < len(self.found.left) else n, s) for i, s in enumerate(plan.staged)]
        brought = sum(rows * k * _bringing(s) for rows, s in sides)
        return (m * n * k * each * max(1, size // WORD) + brought) / LANES

    def by_matrices(self, plan: ProductPlan, blocks: int, beside: float) -> float:
        """Cycles of a turn: of products, of shared memory, of what a block brings, or of what all of them do, from L2, or from
        memory where one square alone takes it. beside: blocks that a multiprocessor has.
        """
        (m, n, k), (own_m, own_n), found = plan.tile, plan.each, self.found
        folds = sum(len(found.terms(f)) for f in found.folds)
        reads = folds * m // 64 * (64 + n) if plan.engine == "wgmma" else math.prod(plan.squares) * (own_m + own_n)
        active = min(blocks, self.machine.multiprocessors) / self.machine.multiprocessors
        brought = ((len(found.left) * m, self.columns <= n), (len(found.right) * n, self.rows <= m))
        sides = [(rows + BOX_ROWS * once, once) for rows, once in brought]
        moved = sum(rows * active / (MEMORY_BYTES if once else L2_BYTES) for rows, once in sides)
        alone = sum(rows / (MEMORY_BLOCK_BYTES if once else L2_BLOCK_BYTES) for rows, once in sides) / beside
        line = k * plan.factors.size
        if plan.factors == FLOAT64:
            products = min(DOUBLES, DOUBLES_OF_WARP * beside * plan.threads / WARP)
        else:
            products = PRODUCT_BYTES[plan.engine] / plan.factors.size
        shared = (reads + len(found.left) * m + len(found.right) * n) * line / SHARED_BYTES
        return max(m * n * k * folds / products, shared, max(moved, alone) * line)

    def shared(self, plans: Iterable[ProductPlan]) -> Iterator[ProductPlan]:
        """The plans, and where blocks are few those by which they share the points."""
        for plan in plans:
            yield plan
            turns = -(-self.points // plan.tile[2])
            for parts in PARTS if plan.crews == 1 else ():
                if self.squares(plan) < self.machine.multiprocessors and turns >= FEWEST_TURNS * parts:
                    stages = max(FEWEST_BOXES, min(plan.stages, -(-turns // parts))) if plan.boxes else plan.stages
                    yield replace(plan, parts=parts, lines=False, stages=stages)


def _bringing(staged: Staged) -> int:
    """Multiply-adds that take as long as bringing an element."""
    if staged.vector == 1:
        return PLACED if staged.placed else APART
    return 0 if staged.aligned else ANYWHERE


def _in_packets(function: Function, plain: ProductPlan, work: _Work) -> ProductPlan:
    """The plan with operands in packets that are not read so."""
    staged, packed = list(plain.staged), []
    for k, (operand, own) in enumerate(zip(work.found.operands, plain.staged, strict=True)):
        size = packed_type(function, plain, work.found, operand).size
        few = packed_elements(plain, work.found, k, work.extents) <= MOST_PACKED
        packed.append((own.vector == 1 or not own.aligned) and size >= WORD and few)
        if packed[-1]:
            staged[k] = Staged(own.along_points, min(RUN, PACKET_BYTES // size))
    return replace(plain, staged=tuple(staged), packed=tuple(packed)) if any(packed) else plain


def _by_threads(plain: ProductPlan, work: _Work) -> Iterator[ProductPlan]:
    """The plans by multiply-adds, or by what else rows and columns meet in."""
    for tile, each, groups in TILES:
        plan = replace(plain, tile=tile, each=each, groups=groups)
        words = math.prod(each) * work.words
        if words > MOST_BESIDE and not all(s.aligned for s in plan.staged):
            continue  # no registers are left for what is shifted
        if words <= MOST_WORDS and shared_bytes(plan, work.found) <= MOST_SHARED:
            yield plan


def _by_floats(function: Function, plain: ProductPlan, work: _Work, facts: Facts) -> Iterator[ProductPlan]:
    """The plans by matrix instructions of floats in parts, where products of such are summed."""
    found = work.found
    types = {o.value.type for o in found.operands} | {f.types[0] for f in found.folds}
    if types != {FLOAT32} or not all(map(found.neutral, found.folds)) or found.owns:
        return
    for tile, each in OF_FLOATS:
        plan = _stored(function, replace(plain, engine="floats", tile=tile, each=each), work, facts)
        words = math.prod(each) * work.words // WARP
        if words <= MOST_WORDS and shared_bytes(plan, found) <= MOST_SHARED - OTHER_SHARED * any(s.placed for s in plan.staged):
            yield plan


def _by_matrices(
    function: Function, plain: ProductPlan, work: _Work, facts: Facts, arrays: Mapping[str, Geometry], narrow: bool
) -> Iterator[ProductPlan]:
    """The plans by matrix instructions, where all factors are values of a type that these multiply, and sums are of theirs."""
    found, machine, factors = work.found, work.machine, multiplied_type(function, work.found, work.points)
    if factors is None:
        return
    count, boxes = range(len(found.operands)), machine.bulk and factors != FLOAT64
    if plain.window is not None:
        staged: tuple[Staged, ...] = tuple(Staged(True, 1) for _ in count)
    else:
        staged = tuple(_brought(function, work, s, k, factors, facts, arrays, boxes) for k, s in enumerate(plain.staged))
    packet = PACKET_BYTES // factors.size
    packed = tuple(not _copied(function, found, k, s, factors, arrays, boxes) for k, s in enumerate(staged))
    staged = tuple(replace(s, vector=packet if own else s.vector) for s, own in zip(staged, packed, strict=True))
    plain = replace(plain, staged=staged, packed=packed)
    if any(packed[k] and packed_elements(plain, found, k, work.extents) > MOST_PACKED for k in count):
        return
    plain = replace(plain, type=factors.name, boxes=boxes, engine="wgmma" if boxes else "mma")
    fewest, most = (FEWEST_BOXES, MOST_BOXES) if boxes else (COPIES_AHEAD, COPIES_AHEAD)
    squares: tuple[Square, ...] = BY_WARPGROUPS if boxes else OF_DOUBLES if factors == FLOAT64 else BY_WARPS
    if narrow:  # what is read once is not packed
        width = min((n for (_, n), *_ in NARROW_TILES if work.columns <= n), default=0)
        squares = tuple(t for t in NARROW_TILES if t[0][1] == width) if boxes and not any(packed[: len(found.left)]) else ()
    crews = tuple((tile, tile, 1, CREWS) for tile in BY_CREWS) if boxes and not narrow else ()
    for (m, n), each, blocks, crew in (*((*own, 1) for own in squares), *crews):
        tile = (m, n, MATRIX_LINE // factors.size)
        plan = _stored(function, replace(plain, tile=tile, each=each, crews=crew), work, facts)
        sums = m * n * work.words // plan.folding
        tiles = ring_bytes(replace(plan, stages=1), found)
        other = OTHER_SHARED + shared_bytes(plan, found) - ring_bytes(plan, found)
        room = machine.shared // (fewest * tiles + other)
        needed = -(-work.squares(plan) // machine.multiprocessors)
        words = sums + MATRIX_WORDS + MADE_WORDS * made_of_sums(found)
        resident = max(1, min(blocks, REGISTERS // (plan.threads * words), room, needed))
        stages = min((machine.shared // resident - other) // tiles, most)
        if narrow:
            stages = min(stages, max(fewest, NARROW_RING // tiles))
        if sums <= MOST_SUMS and stages >= fewest and needed >= crew:
            large = sums == MOST_SUMS and plan.writing == 8 * WARP and resident == 1
            roomy = boxes and large and bool(found.across or (plan.vector > 1 and late_reads(found, found.columns[-1])))
            yield replace(plan, stages=stages, resident=resident if boxes else 0, roomy=roomy)


def _brought(
    function: Function,
    work: _Work,
    plain: Staged,
    k: int,
    factors: ScalarType,
    facts: Facts,
    arrays: Mapping[str, Geometry],
    boxes: bool,
) -> Staged:
    """How the k-th operand of matrix instructions comes in whole packets; by single elements where it does not, and is packed.
    Bytes lie along the points, since instructions take them so. boxes: these end where an array does, also within a packet.
    """
    found = work.found
    read = factor_read(function, factors, found, found.operands[k])
    along = plain.along_points or factors.size == 1
    axes = found.over if along else found.rows if k < len(found.left) else found.columns
    if read is None or len(axes) > 1:
        return Staged(along, 1)
    packet, (lane,) = PACKET_BYTES // factors.size, axes
    inside = is_run(read.array, read.index, lane, facts) and not read.checked and read.always
    geometry = arrays[read.array]
    whole = geometry.in_packets(packet) if boxes else geometry.vector(packet) == packet and not work.extents[lane] % packet
    return Staged(along, packet if inside and whole and found.sweeps.axes[lane].start == ZERO else 1)


def made_of_sums(found: Products) -> bool:
    """Whether anything but one sum is written of a result."""
    return len(found.folds) > 1 or any(not isinstance(w.value, Ref) for w in found.sweeps.last) or len(found.sweeps.last) > 1


def _copied(
    function: Function,
    found: Products,
    k: int,
    staged: Staged,
    factors: ScalarType,
    arrays: Mapping[str, Geometry],
    boxes: bool,
) -> bool:
    """Whether tiles of the k-th operand of matrix instructions are copied from where it is: as boxes, in packets, or, where
    one is large enough for a copy, element by element.
    """
    if boxes:
        return boxed(function, found, k, staged, factors, arrays)
    read = factor_read(function, factors, found, found.operands[k])
    if staged.vector > 1 or read is None or factors.size < LEAST_COPIED:
        return staged.vector > 1
    return read.always and not read.checked and read.array not in {w.array for w in found.sweeps.writes}


def boxed(
    function: Function,
    found: Products,
    k: int,
    staged: Staged,
    factors: ScalarType,
    arrays: Mapping[str, Geometry],
    paged: str = "",
) -> bool:
    """Whether a tile of the k-th operand is a box of an array: it has an axis of rows and one of points, as they are. paged: of
    these, the one whose points lie in pages, each of which is a box.
    """
    read = factor_read(function, factors, found, found.operands[k])
    rows = found.rows if k < len(found.left) else found.columns
    if read is None or staged.vector * factors.size < PACKET_BYTES or not staged.aligned:
        return False
    if len(rows) > 1 or len(found.over) > 1 or len(read.index) > MOST_RANK:
        return False
    geometry = arrays[read.array]
    strides = [s * geometry.dtype.size for n, s in zip(geometry.shape, geometry.strides, strict=True) if n > 1]
    if not all(0 < s < MOST_STRIDE for s in strides):  # none of an array that repeats itself
        return False
    for axis in (*rows, *found.over):
        if axis == paged:
            continue
        at = [d for d, i in enumerate(read.index) if axis in free_names(i)]
        if len(at) != 1 or read.index[at[0]] != Ref(axis, INT64) or found.sweeps.axes[axis].start != ZERO:
            return False
    return True


def _lane(sweeps: Sweeps, facts: Facts) -> str:
    """The axis of the results along which most of what is written lies side by side."""
    votes = dict.fromkeys(sweeps.rows, 0)
    for w in sweeps.last:
        for a in neighbours(w.array, w.index, facts):
            if a in votes:
                votes[a] += 1
    return max(votes, key=lambda a: (votes[a], sweeps.rows.index(a))) if votes else ""


def staged_of(
    function: Function, found: Products, operand: Operand, left: bool, facts: Facts, extents: Mapping[str, int]
) -> Staged:
    """Along which axis what is read for an operand lies side by side, and how many of it come together."""
    reads = [v for v in operand_reads(found, operand) if isinstance(v, Read)]
    own = found.rows if left else found.columns
    ways = []
    for along_points, axes in ((False, own), (True, found.over)):
        lane = axes[-1]
        along = [v for v in reads if lane in v.axes]
        if not any(lane in neighbours(v.array, v.index, facts) for v in along):
            continue
        vector = _vector(function, found, along, lane, facts, extents) if len(axes) == 1 else 1
        if vector == 1 and len(axes) == 1 and in_a_run(found, operand, lane, facts):
            ways.append((1, RUN, extents[lane], Staged(along_points, RUN, aligned=False)))
        else:
            ways.append((vector, vector, extents[lane], Staged(along_points, vector)))
    best = max(ways, key=lambda w: w[:3])[3] if ways else Staged(along_points=False, vector=1)
    return replace(best, placed=True) if best.vector == 1 and placed(found, operand) is not None else best


def _vector(
    function: Function, found: Products, reads: list[Read], lane: str, facts: Facts, extents: Mapping[str, int]
) -> int:
    """How many neighbours along an axis all reads have in whole packets."""
    packets = all(is_run(v.array, v.index, lane, facts) and not v.checked and v.always for v in reads)
    if not packets or found.sweeps.axes[lane].start != ZERO:
        return 1
    sizes = [function.array(v.array).dtype.size for v in reads]
    most = RUN if max(sizes) >= WORD else 2 * RUN
    vector = min(most, *(PACKET_BYTES // s for s in sizes), *(facts.vector(v.array) for v in reads))
    return 1 if extents[lane] % vector else vector


def _stored(function: Function, plan: ProductPlan, work: _Work, facts: Facts) -> ProductPlan:
    """The plan with the way in which results are written: packets of a thread, or what is less by lines of a warp."""
    found, lane = work.found, work.found.columns[-1]
    vector = written_together(found, facts, plan.run, work.extents)
    written = [w.array for w in found.sweeps.last if lane in neighbours(w.array, w.index, facts)]
    sizes = [function.array(a).dtype.size for a in written]
    wide = plan.engine == "fma" or plan.each[1] % WARP == 0  # enough for a line
    lines = wide and vector < plan.run and any(vector * s < LEAST_STORED for s in sizes)
    return replace(plan, vector=1 if lines else vector, lines=lines)


def written_together(found: Products, facts: Facts, run: int, extents: Mapping[str, int]) -> int:
    """How many of so many neighbouring columns what is read and written once a result has in whole packets."""
    writes = found.sweeps.last
    if len(found.columns) > 1 or not writes:
        return 1
    (lane,) = found.columns
    if found.sweeps.axes[lane].start != ZERO or not all(stored_in_packets(w, lane, facts) for w in writes):
        return 1
    reads = result_reads(found, lane)
    if not all(is_run(v.array, v.index, lane, facts) and v.always and not v.checked for v in reads):
        return 1
    vector = min(run, *(facts.vector(w.array) for w in writes), *(facts.vector(v.array) for v in reads))
    return 1 if extents[lane] % vector else vector
