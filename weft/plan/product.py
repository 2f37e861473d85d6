"""The plan of products: which square of results a block has, and how its threads share it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from weft.graph.products import BYTES, Operand, Products, factor_type, products, source
from weft.graph.sweeps import Sweeps
from weft.graph.tile import Fold, Map, Read, uses, uses_of_write
from weft.loops.affine import affine
from weft.loops.ir import Expr, Function, Op, Ref, free_arrays, free_names
from weft.loops.simplify import add, fold, sub
from weft.loops.types import FLOAT64, SCALAR_TYPES, ScalarType
from weft.plan.arguments import Facts
from weft.plan.box import Box
from weft.plan.facts import Geometry
from weft.plan.fold import PACKET_BYTES, WARP, ZERO, axis_along
from weft.plan.merged import Pairs, merged
from weft.plan.window import Window, windowed

if TYPE_CHECKING:
    from weft.layout import Atom, Layout

# Neighbouring rows that a thread takes at a time; threads of a warp along columns and rows. Those next to each other have the
# same columns, those two apart the same rows: then what a warp reads of shared memory takes half as many turns.
RUN, ACROSS, DOWN, NEAREST = 4, 8, 4, 2
# Of matrix instructions: bytes of a line of a tile, which are the points of a turn; of 16-bit types, points of a turn; threads
# of a block that packs an operand, and its rows and points where memory has these the other way around.
MATRIX_LINE, MATRIX_POINTS, PACK_BLOCK, TURNED = 128, 64, 256, 128
WORD = 4
# Registers of a thread that multiplies in a roomy block, and of one that brings tiles.
ROOMY = (232, 40)
# Of a few rows: those of a fragment of a matrix instruction; threads of a warp that have points of their own; columns that a
# thread writes together.
FRAGMENT_ROWS, QUAD, FEW_WRITTEN = 8, 4, 4
# Warps of a block that combines parts at the most. Words between lines that the threads of a warp tell each other.
COMBINING, LINE_PAD = 8, 4
# Bytes of a float in three parts.
PARTS_BYTES = 6
_TOGETHER = {"fma": 1, "floats": WARP, "mma": WARP, "wgmma": 4 * WARP}  # threads that have a square of results


@dataclass(frozen=True)
class Staged:
    """How an operand comes to shared memory: `vector` neighbours at a time, along the points or along its rows. aligned: they
    are packets of memory. placed: one by one, from where its row is and what is added to that at its point, each found once.
    """

    along_points: bool
    vector: int
    aligned: bool = True
    placed: bool = False


@dataclass(frozen=True)
class ProductPlan:
    """lane: the fastest axis of the columns. tile: rows and columns of a block, and points of a turn. engine: what folds
    points: multiply-adds, or whatever rows and columns meet in, of threads; matrix instructions of warps, of floats as sums of
    bfloat16 or of their own types, or of warpgroups.
    each: rows and columns of one of these. groups: of threads, which share the points of a turn. staged: of the operands, in
    order. near: tiles of rows whose blocks follow each other. vector: columns that are written together. lines: a warp writes
    lines of columns, which its threads tell each other: what one has is in no packets. merged: axes that are
    counted as one. stages: turns whose tiles have a place in shared memory. boxes: a warp more brings tiles as boxes of
    arrays. resident: so many blocks are on a multiprocessor, which stay and go from square to square, 0: a block has one.
    packed: which operands a launch before writes to memory in whole packets, since they are made of what is read, or lie
    between packets. type: of the factors of matrix instructions. parts: blocks that share the points of a square; a launch
    after combines what they leave. together: they are blocks of a cluster, which combine it. streamed: of a few rows with
    many columns; operands go from memory to the registers of the threads that take them, `stages` runs ahead; groups are warps.
    main: of sweeps over different axes, which is multiplied. apart: axes of the batch that one side alone has. crews: of
    warpgroups of a block that stays; each has squares of its own, and one writes what another follows with its products.
    across: blocks that have a row's columns, where rows fold results; all run at once, and tell each other what theirs fold to.
    roomy: a warpgroup brings tiles, and gives registers to those that multiply. window: moves over an operand, which is packed
    once.
    """

    lane: str
    tile: tuple[int, int, int]
    each: tuple[int, int]
    groups: int
    staged: tuple[Staged, ...]
    near: int = 1
    vector: int = 1
    lines: bool = False
    merged: Pairs = ()
    engine: Literal["fma", "floats", "mma", "wgmma"] = "fma"
    stages: int = 2
    boxes: bool = False
    resident: int = 0
    packed: tuple[bool, ...] = ()
    type: str = ""
    parts: int = 1
    together: bool = False
    streamed: bool = False
    main: int = 0
    apart: tuple[str, ...] = ()
    crews: int = 1
    across: int = 0
    roomy: bool = False
    window: Window | None = None

    @property
    def by_threads(self) -> bool:
        """Whether threads bring operands by their registers, as the values that they are."""
        return self.engine in ("fma", "floats")

    @property
    def leaves_parts(self) -> bool:
        """Whether a launch after combines what blocks leave."""
        return self.parts > 1 and not self.together

    @property
    def cluster(self) -> int:
        """Blocks that run together."""
        return self.parts if self.together else 1

    @property
    def combining(self) -> int:
        """Of what combines parts: warps of a block, which share them; of single columns as many as a run has, one for each."""
        if self.vector == 1 and self.parts <= COMBINING and self.parts % self.run == 0:
            return self.run
        return max(n for n in range(1, COMBINING + 1) if self.parts % n == 0)

    @property
    def pieces(self) -> int:
        """Of what combines parts: blocks of a square."""
        return self.tile[0] * self.tile[1] // (WARP * self.run)

    @property
    def run_points(self) -> int:
        """Neighbouring points of each column that a thread of a few rows' takes at a time."""
        return self.tile[2] // (QUAD * self.groups * self.stages)

    def arranged(self, sweeps: Sweeps) -> Products:
        """The products as this plan computes them."""
        found = products(merged(sweeps, self.merged), self.lane, self.main, self.apart)
        assert found is not None
        return found if self.window is None else windowed(found, self.window)

    @property
    def squares(self) -> tuple[int, int]:
        """Threads along the rows and along the columns of a group; or warpgroups, or warps."""
        return self.tile[0] // self.each[0], self.tile[1] // self.each[1]

    @property
    def folding(self) -> int:
        """Threads that share a square of results."""
        return WARP if self.streamed else math.prod(self.squares) * _TOGETHER[self.engine]

    @property
    def writing(self) -> int:
        """Threads of a block that have results."""
        return self.folding * self.crews

    @property
    def threads(self) -> int:
        return self.writing * self.groups + (4 * WARP if self.roomy else WARP if self.boxes else 0)

    @property
    def run(self) -> int:
        """Neighbouring columns that a thread has."""
        if self.streamed:
            return FEW_WRITTEN
        return RUN if self.engine == "fma" else 8 if self.exchanged else 2

    @property
    def exchanged(self) -> bool:
        """Whether threads of a quad exchange sums of a matrix instruction, until each has eight neighbours."""
        return self.engine == "wgmma" and self.each[1] % (8 * QUAD) == 0

    @property
    def line_rows(self) -> int:
        """Of what a warp tells its threads together, a line a row: rows."""
        return DOWN if self.engine == "fma" else WARP // QUAD

    @property
    def factors(self) -> ScalarType:
        """The type that matrix instructions multiply."""
        return SCALAR_TYPES[self.type]

    @property
    def deep(self) -> int:
        """Points of a matrix instruction."""
        return points_of_instruction(self.factors)

    @property
    def packet(self) -> int:
        """Of matrix instructions: neighbours of an operand that come together."""
        return PACKET_BYTES // self.factors.size

    @property
    def atom(self) -> Atom:
        """The matrix instruction."""
        from weft.layout import mma, wgmma

        return wgmma(self.type, self.each[1]) if self.engine == "wgmma" else mma(self.type, self.deep)

    @property
    def rows(self) -> Layout:
        """(thread of a group, value) -> row of the tile."""
        from weft.layout import Layout

        down, across = self.squares
        runs = self.each[0] // RUN
        return Layout(
            ((NEAREST, ACROSS, DOWN // NEAREST, across // ACROSS, down // DOWN), (RUN, runs)),
            ((RUN, 0, RUN * NEAREST, 0, RUN * DOWN), (1, self.tile[0] // runs)),
        )

    @property
    def columns(self) -> Layout:
        """(thread of a group, value) -> column of the tile."""
        from weft.layout import Layout

        down, across = self.squares
        runs = self.each[1] // RUN
        return Layout(
            ((NEAREST, ACROSS, DOWN // NEAREST, across // ACROSS, down // DOWN), (RUN, runs)),
            ((0, RUN, 0, RUN * ACROSS, 0), (1, self.tile[1] // runs)),
        )


def points_of_instruction(factors: ScalarType) -> int:
    """Points of a matrix instruction: 32 bytes of them, or 8 of float64."""
    return 8 if factors == FLOAT64 else 32 // factors.size


def placed(found: Products, operand: Operand) -> tuple[Read, tuple[Expr, ...], tuple[Expr, ...]] | None:
    """The one read that an operand is, whose subscripts are sums of what rows and what points say: these; None where they are
    not so.
    """
    reads, over = operand_reads(found, operand), {*found.over}
    read = reads[0] if len(reads) == 1 else None
    if not isinstance(read, Read) or operand.value != Ref(read.name, operand.value.type) or not read.always or read.checked:
        return None
    sides = [_sides(i, over, {a for a in read.axes if a not in over}) for i in read.index]
    told = [s for s in sides if s is not None]
    return (read, tuple(s[0] for s in told), tuple(s[1] for s in told)) if len(told) == len(sides) else None


def _sides(e: Expr, over: set[str], others: set[str]) -> tuple[Expr, Expr] | None:
    """What names of others and of points say in a sum."""
    names = free_names(e)
    if not names & over or not names & others:
        return (e, ZERO) if not names & over else (ZERO, e)
    if not isinstance(e, Op) or e.name not in ("add", "sub"):
        return None
    first, second = (_sides(a, over, others) for a in e.args)
    if first is None or second is None:
        return None
    join = add if e.name == "add" else sub
    return fold(join(first[0], second[0])), fold(join(first[1], second[1]))


def packed_points(plan: ProductPlan, found: Products, k: int) -> tuple[str, ...]:
    """The points that the k-th operand has in packets."""
    return (plan.window.along,) if plan.window is not None and plan.window.operand == k else found.over


def packed_shape(plan: ProductPlan, found: Products, k: int, extents: Mapping[str, int]) -> tuple[int, int, int]:
    """Of the k-th operand in packets: how many of the batch, lines, and elements of a line."""
    rows, staged = found.rows if k < len(found.left) else found.columns, plan.staged[k]
    own = found.batch, rows, packed_points(plan, found, k)
    batch, rows_, points = (math.prod(extents[a] for a in axes) for axes in own)
    lines, line = (rows_, points) if staged.along_points else (points, rows_)
    return batch, lines, line


def packed_elements(plan: ProductPlan, found: Products, k: int, extents: Mapping[str, int]) -> int:
    batch, lines, line = packed_shape(plan, found, k, extents)
    return batch * lines * pitch(plan, k, line)


def pitch(plan: ProductPlan, k: int, line: int) -> int:
    """How far the next line of the k-th operand in packets is: whole packets, of boxes whole lines of L2."""
    unit = whole_line(plan, k)
    return -(-line // unit) * unit


def whole_line(plan: ProductPlan, k: int) -> int:
    """Elements of which each line of the k-th operand in packets has room for a multiple."""
    return MATRIX_LINE // plan.factors.size if plan.boxes else plan.staged[k].vector


def packed_type(function: Function, plan: ProductPlan, found: Products, operand: Operand) -> ScalarType:
    """What the elements of an operand are in packets."""
    if not plan.by_threads:
        return own_factors(function, plan.factors, found, operand)
    read = operand_read(found, operand)
    return operand.value.type if read is None else function.array(read.array).dtype


def turned_read(function: Function, plan: ProductPlan, found: Products, k: int, facts: Facts) -> Read | None:
    """The read of the k-th operand, of bytes, which memory has side by side along the rows, and packets along the points."""
    if plan.by_threads or plan.factors.size > 1 or plan.window is not None:
        return None
    if asked_of(found, found.operands[k]) is not None:  # whole packets hold what nobody asks of
        return None
    read = factor_read(function, plan.factors, found, found.operands[k])
    rows = found.rows if k < len(found.left) else found.columns
    if read is None or len(rows) > 1 or len(found.over) > 1 or found.sweeps.axes[found.over[0]].start != ZERO:
        return None
    return read if runs_along(found, read, rows[0], facts) else None


def pack_blocks(
    function: Function, plan: ProductPlan, found: Products, k: int, facts: Facts, extents: Mapping[str, int]
) -> int:
    """Blocks of the launch that packs the k-th operand."""
    batch, lines, line = packed_shape(plan, found, k, extents)
    if turned_read(function, plan, found, k, facts) is not None:
        return batch * -(-lines // TURNED) * -(-line // TURNED)
    return -(-batch * lines * -(-line // plan.staged[k].vector) // PACK_BLOCK)


def told_words(fold: Fold) -> int:
    """Words of 8 bytes in which a block tells what a row's columns fold to."""
    return -(-fold.types[0].size // WORD)


def packed_name(found: Products, k: int) -> str:
    """The name of the memory that an operand is packed in."""
    return f"{found.operands[k].name}.packed"


def operand_read(found: Products, operand: Operand) -> Read | None:
    """The read that an operand is, if it is one."""
    read = source(found, operand)
    return read if isinstance(read, Read) else None


def widened_read(found: Products, operand: Operand) -> Read | None:
    """The read that an operand is, in a type that may be larger than memory's."""
    read = source(found, operand, widened=True)
    return read if isinstance(read, Read) else None


def own_factors(function: Function, factors: ScalarType, found: Products, operand: Operand) -> ScalarType:
    """The type of the factors on one side: of bytes each has its own."""
    return (factors in BYTES and factor_type(function, found, operand)) or factors


def factor_read(function: Function, factors: ScalarType, found: Products, operand: Operand) -> Read | None:
    """The read that an operand of matrix instructions is, if memory has it in the type of the factors."""
    read, own = widened_read(found, operand), own_factors(function, factors, found, operand)
    return read if read is not None and function.array(read.array).dtype == own else None


def boxes_of(
    function: Function, found: Products, plan: ProductPlan, arrays: Mapping[str, Geometry], extents: Mapping[str, int]
) -> tuple[Box, ...]:
    """The boxes that tiles are: of the axis along lines, of the other one, and of one element of the rest."""
    boxes, points = [], plan.tile[2]
    for k, (operand, staged) in enumerate(zip(found.operands, plan.staged, strict=True)):
        read, left = factor_read(function, plan.factors, found, operand), k < len(found.left)
        if plan.packed[k]:
            batch, lines_, line = packed_shape(plan, found, k, extents)
            width = pitch(plan, k, line)
            packed = Geometry(packed_type(function, plan, found, operand), (batch, lines_, line), (lines_ * width, width, 1), 0)
            across = (plan.tile[0] if left else plan.tile[1]) if staged.along_points else points
            boxes.append(Box(packed_name(found, k), (2, 1, 0), (points, across, 1), packed.shape[::-1], packed))
            continue
        assert read is not None
        rows = (found.rows if left else found.columns)[0]
        lines = {found.over[0]: points, rows: plan.tile[0] if left else plan.tile[1]}
        names = (found.over[0], rows) if staged.along_points else (rows, found.over[0])
        along = tuple(axis_along(read.index, a) for a in names)
        rest = tuple(d for d in reversed(range(len(read.index))) if d not in along)
        # as many as the axes have: those that are counted as one have more than the array's own, and points may have fewer
        own = arrays[read.array].shape
        others = [max(own[d], *(extents[n] for n in free_names(read.index[d]) & extents.keys()), 0) for d in rest]
        shape = (*(extents[a] for a in names), *others)
        boxes.append(Box(read.array, (*along, *rest), (points, lines[names[1]], *(1 for _ in rest)), shape))
    return tuple(boxes)


def shared_bytes(plan: ProductPlan, found: Products) -> int:
    """Bytes of a block's shared memory: tiles of all operands, what groups tell each other, and the lines of warps."""
    m, n, _ = plan.tile
    each = sum(max(4, f.types[0].size) for f in found.folds)
    if plan.streamed:
        return plan.groups * m * n * each
    lines = plan.lines * plan.writing // WARP * plan.line_rows * (WARP + LINE_PAD) * each
    return ring_bytes(plan, found) + (plan.groups - 1) * m * n * each + lines


def ring_bytes(plan: ProductPlan, found: Products) -> int:
    """Bytes of the tiles of all operands."""
    m, n, k = plan.tile
    if plan.engine == "floats":
        sizes = [PARTS_BYTES for _ in found.operands]
    else:
        sizes = [o.value.type.size if plan.by_threads else plan.factors.size for o in found.operands]
    return sum(plan.stages * k * (m if i < len(found.left) else n) * size for i, size in enumerate(sizes))


def streamed_read(found: Products, operand: Operand) -> Read | None:
    """The read of an operand of columns that has a value for each column at each point; None where it has several, or none."""
    lanes = {found.columns[-1], found.over[-1]}
    reads = [v for v in operand_reads(found, operand) if isinstance(v, Read) and lanes <= set(v.axes)]
    return reads[0] if len(reads) == 1 else None


def operand_reads(found: Products, operand: Operand) -> tuple[Read | Map, ...]:
    """The values that an operand is made of, in order."""
    return made_of(found, (operand.value,))


def asked_of(found: Products, operand: Operand) -> Expr | None:
    """What all folds ask of a row and a point before they use what an operand has there, where that reads nothing."""
    name, asking = operand.name, set[str]()
    side = {o.name: o for o in (found.left if operand in found.left else found.right)}
    for part in (p for f in found.folds for p in f.parts if name in free_names(p)):
        match part:
            case Op(name="where", args=(Ref(name=condition), _, other)) if condition in side and name not in free_names(other):
                asking.add(condition)
            case _:
                return None
    own = side[asking.pop()] if len(asking) == 1 else None
    return None if own is None or own is operand or operand_reads(found, own) else own.value


def arrays_of_operands(found: Products) -> frozenset[str]:
    """All that is read of memory for operands: as values, and where it is needed."""
    made = made_of(found, (o.value for o in found.operands))
    exprs = [*(o.value for o in found.operands), *(e for v in made for e in uses(v))]
    return frozenset(a for e in exprs for a in free_arrays(e)) | {v.array for v in made if isinstance(v, Read)}


def made_of(found: Products, exprs: Iterable[Expr]) -> tuple[Read | Map, ...]:
    """The reads and maps that expressions need, in order."""
    made = {v.name: v for v in found.sweeps.values if isinstance(v, Read | Map)}
    pending, wanted = [n for e in exprs for n in free_names(e)], set()
    while pending:
        name = pending.pop()
        if name in made and name not in wanted:
            wanted.add(name)
            value = made[name]
            inner = value.index if isinstance(value, Read) else (value.value,)
            pending += [n for e in inner for n in free_names(e)]
    return tuple(v for v in made.values() if v.name in wanted)


def in_a_run(found: Products, operand: Operand, lane: str, facts: Facts) -> bool:
    """Whether an operand is a read whose neighbours along an axis lie side by side, in memory that nobody writes meanwhile."""
    read = operand_read(found, operand)
    return read is not None and runs_along(found, read, lane, facts)


def runs_along(found: Products, read: Read, lane: str, facts: Facts) -> bool:
    """Whether the neighbours of a read along an axis lie side by side, in memory that nobody writes meanwhile."""
    written = {w.array for w in found.sweeps.writes}
    if read.array in written or read.checked or not read.always or found.sweeps.axes[lane].start != ZERO:
        return False
    along = [k for k, i in enumerate(read.index) if lane in free_names(i)]
    if len(along) != 1 or (read.array, along[0]) not in facts.unit:
        return False
    form = affine(read.index[along[0]])
    return form is not None and form.coefficient(lane) == 1


def late_reads(found: Products, lane: str) -> list[Read]:
    """Those of them that each result has by itself."""
    return [v for v in result_reads(found, lane) if {*v.axes} & {*found.rows}]


def result_reads(found: Products, lane: str) -> list[Read]:
    """What is read along an axis of the columns once a result."""
    exprs = [*(e for w in found.sweeps.last for e in uses_of_write(w)), *found.inits]
    exprs += [e for stage in found.across for f in stage for e in f.parts]
    return [v for v in made_of(found, exprs) if isinstance(v, Read) and lane in v.axes]
