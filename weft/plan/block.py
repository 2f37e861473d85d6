"""The plan of a block that computes every value's tile of a graph: which axes the grid cuts, along which blocks go in turns,
what is in shared memory and where, which warps have which results of products.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from weft.graph.blocks import Blocks, Multiplied, memory_of
from weft.graph.tile import Fold, Map, NotTiles, Read, Write, uses
from weft.loops.ir import Expr, Function, Op, Ref, free_names, walk_expr
from weft.loops.operators import COSTLY
from weft.loops.types import INT64, ScalarType
from weft.plan.arguments import Facts
from weft.plan.choices import NoChoice
from weft.plan.extents import extents_of
from weft.plan.fusion import Chain, Stage, chains, stages
from weft.plan.layouts import ALONE, Layout, Walk, laid_out
from weft.plan.machine import Machine
from weft.plan.memory import Placement, Tenant, placed
from weft.plan.order import Task, levels

PACKET_BYTES, WARP, FRAGMENT = 16, 32, 16
# Extents along axes of products that the grid cuts, along others, and of a turn; warps of a block; turns that have a place.
EXTENTS, OTHER_EXTENTS, TURNS, WARPS, RINGS = (16, 32, 64, 128), (1, 2, 4, 8, 16, 32), (64, 128, 32), (4, 8), (6, 4, 3, 2)
LARGEST_GRID = (1 << 31) - 1
MOST_SHARED, LARGEST_WHOLE, MOST_ACCUMULATED, MOST_FOLDED = 227 * 1024 - 1024, 1 << 14, 128, 32
# Seconds: of a launch, of a level of chains, of a turn and of what it waits for, which as many turns share as are on their way;
# what a multiprocessor multiplies by matrix instructions and computes of points in a second; bytes that it has from L2.
# (Measured on an H200.)
LAUNCH_SECONDS, LEVEL_SECONDS, TURN_SECONDS, LATENCY = 1.2e-6, 4.5e-7, 1.5e-7, 8e-7
PRODUCTS, POINTS, L2_BYTES = 1.2e12, 1e11, 1e11
REACHED = 0.85  # of what memory has, as a part


@dataclass(frozen=True)
class Cut:
    """How a block goes through an axis: `extent` points of it for its place in the grid, or in each turn, or all. even: whether
    the axis is a multiple of that.
    """

    axis: str
    extent: int
    by: Literal["grid", "turns", "whole"]
    even: bool


@dataclass(frozen=True)
class Tile:
    """A value's tile in shared memory: a line for each point of `lines`, with the points of `along` side by side. ring: how
    many turns have a place; vector: of what is copied, elements that one copy moves; 1 where threads move single ones. offset:
    where it is, from its first step to its last.
    """

    value: str
    lines: tuple[str, ...]
    along: tuple[str, ...]
    shape: tuple[int, int]
    type: ScalarType
    ring: int = 1
    vector: int = 1
    offset: int = 0
    first: int = 0
    last: int = 0

    @property
    def swizzled(self) -> bool:
        """Whether packets of a line change places: as `BlockTile` of `runtime/device/block.cuh` has it."""
        packets, rest = divmod(self.shape[1], PACKET_BYTES // self.type.size)
        return not rest and packets > 1 and packets & (packets - 1) == 0

    @property
    def step(self) -> int:
        """Elements from one line to the next: as `BlockTile` of `runtime/device/block.cuh` has it."""
        packet, length = PACKET_BYTES // self.type.size, self.shape[1]
        even = length % (2 * packet) == 0 and not self.swizzled
        return length + packet * even

    @property
    def bytes(self) -> int:
        """Of one turn, in whole lines of banks."""
        return -(-self.shape[0] * self.step * self.type.size // 128) * 128


@dataclass(frozen=True)
class Warps:
    """How a product's results are shared out: warps below each other and side by side."""

    down: int
    across: int


@dataclass(frozen=True)
class Levels:
    """A stage, whose chains are in levels with a barrier between them. What a turn's copies bring is there before the first."""

    turns: str
    copies: tuple[Chain, ...]
    levels: tuple[tuple[Chain, ...], ...]
    ring: int = 1


@dataclass(frozen=True)
class BlockPlan:
    """lanes: of each fold or chain of points, how many threads have a row of points, and how many neighbours a thread has at a
    time; sides: along which axis. products: of each chain of products. scratch: where warps tell each other what they fold.
    even: which axes have an even number of points. shared: bytes of shared memory; apart: if no tiles had the same places.
    """

    cuts: tuple[Cut, ...]
    warps: int
    stages: tuple[Levels, ...]
    tiles: tuple[Tile, ...]
    lanes: tuple[tuple[str, int, int], ...]
    products: tuple[tuple[str, Warps], ...]
    scratch: tuple[tuple[str, int], ...]
    sides: tuple[tuple[str, str], ...]
    even: tuple[tuple[str, bool], ...]
    shared: int
    apart: int
    seconds: float

    @property
    def threads(self) -> int:
        return self.warps * WARP

    def cut(self, axis: str) -> Cut:
        return next(c for c in self.cuts if c.axis == axis)

    def tile(self, value: str) -> Tile:
        return next(t for t in self.tiles if t.value == value)

    def grid(self, extents: Mapping[str, int]) -> int:
        """How many blocks there are."""
        return math.prod(-(-extents[c.axis] // c.extent) for c in self.cuts if c.by == "grid")


@dataclass(frozen=True)
class Pinned:
    """Extents that were given by hand: of axes that the grid cuts, and of the one that blocks go along in turns."""

    grid: tuple[tuple[str, int], ...] = ()
    turns: tuple[tuple[str, int], ...] = ()


def plan_block(
    function: Function,
    blocks: Blocks,
    facts: Facts,
    names: Mapping[str, int],
    machine: Machine,
    pinned: Pinned | None,
    limit: float,
) -> BlockPlan:
    """The plan of least cost, of no more than so many seconds. Raises NotTiles, which says why there is none."""
    extents = extents_of(blocks.axes, names)
    if not all(extents.values()):
        raise NotTiles("an axis has no points")
    slower = "separate launches are quicker"
    moved, multiplied = work(function, blocks, extents)
    least = max(moved / (REACHED * machine.bandwidth), multiplied / (PRODUCTS * machine.multiprocessors))
    if LAUNCH_SECONDS + LEVEL_SECONDS + least > limit:
        raise NotTiles(slower)
    best: tuple[BlockPlan, _Planning] | None = None
    why = "no tiles fit"  # no exception, whose frames keep what is in them
    fused: dict[frozenset[str], tuple[Stage, ...]] = {}
    for cuts in _cuts(blocks, extents, pinned):
        turned = frozenset(c.axis for c in cuts if c.by == "turns")
        if _least(blocks, extents, cuts, machine) >= min(limit, math.inf if best is None else best[0].seconds):
            why = slower
            continue
        try:
            if turned not in fused:
                fused[turned] = stages(chains(blocks, turned))
        except NotTiles as no:
            why = no.why
            continue
        for warps in WARPS:
            most = max((-(-extents[c.axis] // c.extent) for c in cuts if c.by == "turns"), default=0)
            for ring in [r for r in RINGS if r <= max(most, 2)] if turned else (1,):
                planning = _Planning(function, blocks, facts, machine, extents, cuts, warps, ring)
                try:
                    plan = planning.plan(fused[turned])
                except NotTiles as no:
                    why = no.why
                    continue
                if best is None or plan.seconds < best[0].seconds:
                    best = plan, planning
                break  # fewer turns on their way are no quicker
    if best is None:
        raise NotTiles(why)
    plan, planning = best
    if plan.seconds > limit:
        raise NotTiles(slower)
    found = fused[frozenset(c.axis for c in plan.cuts if c.by == "turns")]
    try:
        planning.laid_out(plan, found)
        return planning.plan(found)
    except (NoChoice, NotTiles):  # its tiles are larger
        return plan


def _least(blocks: Blocks, extents: Mapping[str, int], cuts: Iterable[Cut], machine: Machine) -> float:
    """Seconds that no plan with these cuts is quicker than: those of its products."""
    cut = {c.axis: c for c in cuts}
    tiles = math.prod(-(-extents[c.axis] // c.extent) for c in cut.values() if c.by == "grid")

    def points(axis: str) -> int:
        own = cut[axis]
        return own.extent * (-(-extents[axis] // own.extent) if own.by == "turns" else 1)

    products = sum(math.prod(points(a) for a in (*p.rows, *p.columns, *p.over)) for p in blocks.products)
    return LAUNCH_SECONDS + products / PRODUCTS * max(1.0, tiles / machine.multiprocessors)


def work(function: Function, blocks: Blocks, extents: Mapping[str, int]) -> tuple[float, float]:
    """Bytes of memory that have to be moved, and products that have to be made."""
    bytes_: dict[str, float] = {}
    for item in (*blocks.graph.values, *blocks.graph.writes):
        if isinstance(item, Read | Write):
            own = math.prod(extents[a] for a in item.axes) * function.array(item.array).dtype.size
            bytes_[item.array] = max(own, bytes_.get(item.array, 0.0))
    products = (math.prod(extents[a] for a in (*p.batch, *p.rows, *p.columns, *p.over)) for p in blocks.products)
    return sum(bytes_.values()), sum(products)


def _cuts(blocks: Blocks, extents: Mapping[str, int], pinned: Pinned | None) -> Iterator[tuple[Cut, ...]]:
    """The ways of cutting the axes."""
    folded = {a for f in blocks.folds for a in f.over}
    writes = [{*w.axes} for w in blocks.graph.writes]
    common = set.intersection(*writes) - folded if writes else set()
    sides = {a for p in blocks.products for a in (*p.rows, *p.columns)}
    multiplied = {a for p in blocks.products for a in p.over}
    batch = {a for p in blocks.products for a in p.batch}

    def whole(axis: str) -> Cut:
        n = extents[axis]
        extent = -(-n // FRAGMENT) * FRAGMENT if axis in sides | multiplied else n
        return Cut(axis, extent, "whole", extent == n)

    def cut(axis: str, extent: int, by: Literal["grid", "turns"]) -> Cut:
        return Cut(axis, extent, by, extents[axis] % extent == 0)

    options: list[list[Cut]] = []
    if pinned is not None:
        grid, turns = dict(pinned.grid), dict(pinned.turns)
        for a in extents:
            least = FRAGMENT if a in sides | multiplied else 1
            if a in grid:
                options.append([cut(a, -(-grid[a] // least) * least, "grid")])
            elif a in turns:
                options.append([cut(a, -(-turns[a] // least) * least, "turns")])
            else:
                options.append([cut(a, 1, "grid") if a in batch else whole(a)])
    else:
        for a in extents:
            if a in batch:
                options.append([cut(a, 1, "grid")] if a in common else [])
            elif a in common:
                tried = EXTENTS if a in sides else OTHER_EXTENTS
                options.append([cut(a, e, "grid") for e in tried if e < 2 * extents[a] or e == tried[0]])
            elif a in folded:
                turned = [cut(a, e, "turns") for e in TURNS if e < extents[a]]
                options.append(([whole(a)] if extents[a] <= LARGEST_WHOLE else []) + turned)
            else:
                options.append([whole(a)] if extents[a] <= LARGEST_WHOLE else [])
    if not all(options):
        missing = next(a for a, own in zip(extents, options, strict=True) if not own)
        raise NotTiles(f"a block would have to go through all of {missing}")
    yield from itertools.product(*options)


@dataclass
class _Planning:
    function: Function
    blocks: Blocks
    facts: Facts
    machine: Machine
    extents: Mapping[str, int]
    cuts: tuple[Cut, ...]
    warps: int
    ring: int

    def __post_init__(self) -> None:
        self.known: dict[Chain, list[tuple[str, tuple[Expr, ...]]]] = {}
        self.cut = {c.axis: c for c in self.cuts}
        self.chosen: dict[str, Tile] = {}  # tiles and sides that were chosen together
        self.sides: dict[str, str] = {}
        self.threads = self.warps * WARP

    def points(self, axes: Iterable[str]) -> int:
        return math.prod(self.cut[a].extent for a in axes)

    def plan(self, found: Sequence[Stage]) -> BlockPlan:
        tiles = {n: self.tile(n, c) for s in found for c in s.chains for n in c.makes}
        lanes = {c.name: self.lanes(c, tiles) for s in found for c in s.chains if c.kind != "finish"}
        own: list[Levels] = []
        tenants, scratch, first = [], [], 0
        life: dict[str, list[int]] = {}
        for stage in found:
            copies = tuple(c for c in stage.chains if c.kind == "copy") if stage.turns else ()
            others = tuple(c for c in stage.chains if c not in copies)
            tasks = [Task(c.name, {n: tiles[n].bytes for n in c.makes}, c.needs) for c in others]
            later = frozenset(n for s in found[len(own) + 1 :] for c in s.chains for n in c.needs)
            names, by_name = levels(tasks, later), {c.name: c for c in others}
            ordered = tuple(tuple(by_name[n] for n in level) for level in names)
            last = first + max(len(ordered), 1) - 1
            for c in copies:
                life.setdefault(c.name, []).extend((first, last))
                tiles[c.name] = replace(tiles[c.name], ring=self.ring)
            for k, level in enumerate(ordered):
                for c in level:
                    for n in (*c.makes, *c.needs):
                        inside = n in c.makes or any(n in o.makes for o in others)
                        life.setdefault(n, []).extend((first + k,) if inside or not stage.turns else (first, last))
                    if words := self.scratch(c, lanes):
                        scratch.append((c.name, 0))
                        tenants.append(Tenant(f"scratch {c.name}", words, first + k, first + k, 128))
            own.append(Levels(stage.turns, copies, ordered, self.ring if copies else 1))
            first = last + 1
        self.there = [frozenset(n for n, own in life.items() if min(own) <= k <= max(own)) for k in range(first)]
        for n, t in tiles.items():
            tenants.append(Tenant(n, t.bytes * t.ring, min(life[n]), max(life[n]), 128))
        places = placed(tenants, worth=1 << 40)
        if places.size > min(self.machine.shared - 1024, MOST_SHARED):
            raise NotTiles(f"tiles of {places.size // 1024} KB do not fit shared memory")
        done = tuple(
            replace(t, offset=places.offsets[n], first=min(life[n]), last=max(life[n])) for n, t in tiles.items()
        )
        every = [c for s in own for level in s.levels for c in level]
        products = tuple((c.name, self.shared_out(c)) for c in every if c.kind == "product")
        if math.prod(-(-self.extents[c.axis] // c.extent) for c in self.cuts if c.by == "grid") > LARGEST_GRID:
            raise NotTiles("there are too many blocks for a grid")
        plan = BlockPlan(
            self.cuts, self.warps, tuple(own), done, tuple((n, *own) for n, own in lanes.items()), products,
            tuple((n, places.offsets[f"scratch {n}"]) for n, _ in scratch),
            tuple((c.name, self.side(c)) for s in found for c in s.chains if c.kind in ("points", "fold")),
            tuple((a, n % 2 == 0) for a, n in self.extents.items()), places.size, places.apart, 0.0,
        )  # fmt: skip
        return replace(plan, seconds=self.seconds(plan, places))

    # ---- tiles

    def product_of(self, value: str) -> Multiplied | None:
        return next((p for p in self.blocks.products if value in (p.left, p.right)), None)

    def tile(self, name: str, chain: Chain) -> Tile:
        """A value's tile: the one that was chosen, or along the axis that is side by side in memory, or in the registers of the
        threads that make it.
        """
        if name in self.chosen:
            return self.chosen[name]
        options = self.options(name)
        side = self.lane_of(name, chain)
        return next((t for t in options if side in t.along), options[0])

    def wide(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of which a tile has more than one point, in order."""
        return tuple(a for a in self.extents if a in axes and self.cut[a].extent > 1)

    def options(self, name: str) -> list[Tile]:
        """The tiles that a value may have: what products take has lines of rows, or of what they fold."""
        value = self.blocks.graph.made[name]
        assert isinstance(value, Read | Map | Fold)
        axes, product = self.wide(value.axes), self.product_of(name)
        ways: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ())]
        if axes:
            ways = [(tuple(a for a in axes if a != side), (side,)) for side in axes]
        if product is not None:
            rows = product.rows if name == product.left else product.columns
            groups = tuple(tuple(a for a in axes if a in own) for own in (rows, product.over))
            for p in self.blocks.products:
                if name in (p.left, p.right):
                    own = {frozenset(p.rows if name == p.left else p.columns) & {*axes}, frozenset(p.over) & {*axes}}
                    if own != {frozenset(g) for g in groups}:
                        raise NotTiles(f"products take the axes of {name} in different groups")
            if any(self.points(g) % FRAGMENT for g in groups):
                raise NotTiles(f"{name} has no whole fragments")
            ways = [(groups[0], groups[1]), (groups[1], groups[0])]
        type_, found = memory_of(self.blocks, self.function, name), []
        for lines, along in ways:
            vector = self.copied(value, along, type_) if isinstance(value, Read) else 1
            found.append(Tile(name, lines, along, (self.points(lines), self.points(along)), type_, vector=vector))
        return found

    def laid_out(self, plan: BlockPlan, found: Sequence[Stage]) -> None:
        """Choose the layouts of tiles and the sides of chains together, for a plan that is otherwise made. Raises NoChoice."""
        tiles = {t.value: self.options(t.value) for t in plan.tiles}
        rings = {t.value: t.ring for t in plan.tiles}
        layouts = {
            n: [Layout(t.lines, t.along, t.bytes * rings[n], self.bringing(t)) for t in own] for n, own in tiles.items()
        }
        walks = [w for s in found for c in s.chains if (w := self.walk(c)) is not None]
        best = laid_out(layouts, walks, self.there, min(self.machine.shared - 1024, MOST_SHARED))
        self.chosen = {n: own[best.layouts[n]] for n, own in tiles.items()}
        self.sides = dict(best.sides)

    def bringing(self, t: Tile) -> int:
        """What it costs to copy a tile, if it is copied."""
        if not isinstance(self.blocks.graph.made[t.value], Read):
            return 0
        packets = t.vector * t.type.size == PACKET_BYTES
        return math.prod(t.shape) * (1 if packets else ALONE)

    def walk(self, chain: Chain) -> Walk | None:
        """What a chain touches, of those that go through points or have results of products."""
        own = self.points((*chain.axes, *(chain.over if chain.kind == "fold" else ())))
        if chain.kind == "copy":
            return None
        if chain.folds and chain.folds[0] in self.blocks.multiplied:
            columns = self.wide(self.blocks.multiplied[chain.folds[0]].columns)
            return Walk(chain.name, columns[-1:], (0,), tuple((n, own) for n in chain.makes))
        sides = self.wide(chain.over if chain.kind == "fold" else chain.axes)
        if not sides or chain.kind == "finish":
            return None
        costs = tuple(sum(self.touched(a, i, s, own) for a, i in self.accesses(chain)) for s in sides)
        return Walk(chain.name, sides, costs, tuple((n, own) for n in sorted({*chain.needs, *chain.makes})))

    def touched(self, array: str, index: Sequence[Expr], side: str, points: int) -> int:
        """What accesses to an array cost where neighbours are those of an axis."""
        along = [k for k, i in enumerate(index) if side in free_names(i)]
        if along and all((array, k) in self.facts.unit and index[k] == Ref(side, INT64) for k in along):
            return points
        return ALONE * points if any(isinstance(i, Ref) and (array, k) in self.facts.unit for k, i in enumerate(index)) else 0

    def lane_of(self, name: str, chain: Chain) -> str:
        """The axis of which neighbours of a value's tile lie side by side."""
        value = self.blocks.graph.made[name]
        assert isinstance(value, Read | Map | Fold)
        axes = self.wide(value.axes)
        if isinstance(value, Read):
            for k, index in enumerate(value.index):
                if (value.array, k) in self.facts.unit:
                    found = [a for a in axes if index == Ref(a, INT64)]
                    if found:
                        return found[0]
        if chain.kind == "product" or (chain.kind == "finish" and chain.folds[0] in self.blocks.multiplied):
            columns = self.blocks.multiplied[chain.folds[0]].columns
            own = [a for a in axes if a in columns]
            return own[-1] if own else axes[-1]
        return axes[-1] if axes else ""

    def copied(self, read: Read, along: tuple[str, ...], type_: ScalarType) -> int:
        """How many neighbours a copy moves."""
        if not along:
            return 1
        side = along[-1]
        for k, index in enumerate(read.index):
            if (read.array, k) in self.facts.unit and index == Ref(side, INT64):
                packet = PACKET_BYTES // type_.size
                whole = math.gcd(self.facts.vector(read.array), packet, self.cut[side].extent, self.extents[side])
                return whole if whole * type_.size >= 4 else 1
        return 1

    # ---- who does what

    def shared_out(self, chain: Chain) -> Warps:
        """Warps of a product, of which each reads as little as it can."""
        product = self.blocks.multiplied[chain.folds[0]]
        rows, columns = self.points(product.rows) // FRAGMENT, self.points(product.columns) // FRAGMENT
        ways = [
            Warps(down, across)
            for down, across in itertools.product((1, 2, 4, 8), repeat=2)
            if down * across <= self.warps and rows % down == 0 and columns % across == 0
        ]
        best = max(ways, key=lambda w: (w.down * w.across, -abs(rows // w.down - columns // w.across)))
        words = (rows // best.down) * (columns // best.across) * 8 * len(chain.folds)
        if words > MOST_ACCUMULATED:
            raise NotTiles(f"{chain.name} has {words} sums a thread")
        return best

    def lanes(self, chain: Chain, tiles: Mapping[str, Tile]) -> tuple[int, int]:
        """Threads of a row of points, or of all, and neighbours of each."""
        if chain.kind == "copy":
            return self.threads, tiles[chain.name].vector
        if chain.kind == "product":
            return self.threads, 2
        side = self.side(chain)
        vector = self.vector(chain, side) if side else 1
        if chain.kind == "points":
            return self.threads, vector
        return self.fold_lanes(chain, vector), vector

    def fold_lanes(self, chain: Chain, vector: int) -> int:
        """Threads that fold a row: a part of a warp, or all of them where rows are few and long."""
        rows, runs = self.points(chain.axes), self.points(chain.over) // vector
        if rows * WARP < self.threads and runs >= 2 * WARP:
            return self.threads
        lanes = 1 << (max(1, min(WARP, runs)).bit_length() - 1)
        most = MOST_FOLDED * self.threads // len(chain.folds)
        while lanes > 1 and rows * lanes > most:
            lanes //= 2
        if rows * lanes > most:
            raise NotTiles(f"a thread would fold more than {MOST_FOLDED} rows of {chain.name}")
        return lanes

    def side(self, chain: Chain) -> str:
        """The axis along which a thread has neighbours."""
        if chain.name in self.sides:
            return self.sides[chain.name]
        axes = [a for a in self.extents if a in (chain.over if chain.kind == "fold" else chain.axes) and self.cut[a].extent > 1]
        if not axes:
            return ""
        votes = dict.fromkeys(axes, 0)
        for array, index in self.accesses(chain):
            for k, i in enumerate(index):
                if (array, k) in self.facts.unit and isinstance(i, Ref) and i.name in votes:
                    votes[i.name] += 1
        return max(axes, key=lambda a: (votes[a], axes.index(a)))

    def accesses(self, chain: Chain) -> list[tuple[str, tuple[Expr, ...]]]:
        """What a chain reads and writes in memory itself."""
        if chain not in self.known:
            self.known[chain] = self._accesses(chain)
        return self.known[chain]

    def _accesses(self, chain: Chain) -> list[tuple[str, tuple[Expr, ...]]]:
        found: list[tuple[str, tuple[Expr, ...]]] = []
        pending = [n for f in chain.folds for n in self.blocks.uses(f)] + [n for n in chain.makes if n not in chain.folds]
        for k in chain.writes:
            w = self.blocks.graph.writes[k]
            found.append((w.array, w.index))
            pending += [n for e in (*w.index, w.value) for n in free_names(e) if n in self.blocks.graph.made]
        seen = set(chain.needs) | set(chain.folds)
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            value = self.blocks.graph.made[name]
            if isinstance(value, Read):
                found.append((value.array, value.index))
            pending += self.blocks.uses(name)
        return found

    def vector(self, chain: Chain, side: str) -> int:
        """How many neighbours along an axis all that a chain reads and writes along it has in whole packets."""
        widest = 8
        for array, index in self.accesses(chain):
            along = [k for k, i in enumerate(index) if side in free_names(i)]
            if not along:
                continue
            if along != [k for k in along if (array, k) in self.facts.unit and index[k] == Ref(side, INT64)]:
                return 1
            widest = math.gcd(widest, self.facts.vector(array), PACKET_BYTES // self.function.array(array).dtype.size)
        return math.gcd(widest, self.cut[side].extent, self.extents[side])

    def scratch(self, chain: Chain, lanes: Mapping[str, tuple[int, int]]) -> int:
        """Bytes in which warps tell each other what they have folded."""
        if not chain.folds or chain.folds[0] in self.blocks.multiplied or chain.ends:
            return 0
        if lanes[chain.of or chain.name][0] <= WARP:
            return 0
        return 8 * self.warps * self.points(chain.axes) * len(chain.folds)

    # ---- what it costs

    def seconds(self, plan: BlockPlan, places: Placement) -> float:
        """About how long the launch takes."""
        blocks = plan.grid(self.extents)
        turns = {c.axis: -(-self.extents[c.axis] // c.extent) for c in self.cuts if c.by == "turns"}
        registers = 65536 // (self.threads * 128)
        resident = max(1, min(registers, self.machine.shared // max(1, places.size + 1024), 8))
        bytes_, products, points, waits = 0.0, 0.0, 0.0, 0.0
        for stage in plan.stages:
            times = turns.get(stage.turns, 1)
            ahead = LATENCY / max(1, stage.ring - 1) if stage.copies else 0.0
            turn = TURN_SECONDS * len(stage.levels) + ahead
            waits += times * turn + LATENCY if stage.turns else LEVEL_SECONDS * len(stage.levels)
            for c in (*stage.copies, *(c for level in stage.levels for c in level)):
                if c.kind == "copy":
                    t = plan.tile(c.name)
                    bytes_ += times * math.prod(t.shape) * t.type.size * (1 if t.vector * t.type.size >= 4 else 4)
                elif c.kind == "product":
                    products += times * self.points((*c.axes, *c.over)) * len(c.folds)
                else:
                    own = self.points((*c.axes, *(c.over if c.kind == "fold" else ())))
                    points += times * own * self.costly(c)
                    bytes_ += times * sum(
                        self.function.array(a).dtype.size * own for a, _ in self.accesses(c) if c.kind != "finish"
                    )
        alone = products / PRODUCTS + bytes_ / L2_BYTES + points / POINTS  # one after the other, between barriers
        waves = -(-blocks // (self.machine.multiprocessors * resident))
        full = blocks * alone / self.machine.multiprocessors
        busy = max(alone, full) + waits * waves
        moved, _ = work(self.function, self.blocks, self.extents)
        return LAUNCH_SECONDS + max(busy, moved / (REACHED * self.machine.bandwidth))

    def costly(self, chain: Chain) -> int:
        """About how many instructions a chain has for a point."""
        made = self.blocks.graph.made
        values = [made[n] for n in (*chain.makes, *chain.folds)]
        exprs = [e for v in values if isinstance(v, Map | Fold) for e in uses(v)]
        exprs += [self.blocks.graph.writes[k].value for k in chain.writes]
        return sum(4 + 8 * sum(isinstance(x, Op) and x.name in COSTLY for x in walk_expr(e)) for e in exprs)

