"""A block that computes every value's tile of a graph as CUDA C++: stage after stage, level after level, chain after chain.

What a chain makes in registers is declared where the loops around tell all that it is made of. Points of a tile that are none
of an axis fold nothing, and are 0 in shared memory: products take them, and 0 adds nothing to these on either side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from weft.emit.algebras import algebra_of, element_of
from weft.emit.dependent import ALONE, Dependence, include
from weft.emit.expressions import literal, memory_type, register_type
from weft.emit.names import Names, kernel_entry, words
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ValueBody, deciding
from weft.graph.blocks import Blocks, Multiplied
from weft.graph.tile import Fold, Map, Read, Write
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Function, Ref, free_names, trapping
from weft.loops.schedule import Nest
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.block import WARP, BlockPlan, Cut, Levels, Tile, Warps
from weft.plan.fusion import Chain

UNROLLED = 16  # turns of a loop that threads share
_OWN = "memory lane warp turn place row column line at here v r f g h p team"


def emit(
    function: Function, nest: Nest, blocks: Blocks, plan: BlockPlan, facts: Facts, around: Dependence = ALONE
) -> str:
    """The kernel's translation unit: one entry, named by `kernel_entry`, which takes the slots of `weft.plan.arguments`."""
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    for header in ("weft/block.cuh", "weft/team.cuh"):
        writer.line(f'#include "{header}"')
    include(writer, [around])
    writer.line()
    values = blocks.graph.values
    varies = deciding(blocks.axes, values)
    large = varies | {s.name for s in function.scalars}
    names = Names(words(_OWN) | {kernel_entry(nest.name)})
    entry = BlockEntry(
        function, own, facts, writer, names, {}, {}, varies, large, axes=blocks.axes, values=values, blocks=blocks, plan=plan
    )
    entry.emit(around)
    return writer.text()


@dataclass
class BlockEntry(ValueBody):
    """The one launch of a plan. tiles: where they are; firsts: of each axis, where the block's points begin, or the turn's;
    counts: how many points it has; totals: the registers of what is folded.
    """

    blocks: Blocks = None  # type: ignore[assignment]
    plan: BlockPlan = None  # type: ignore[assignment]
    tiles: dict[str, str] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    firsts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, str] = field(default_factory=dict)
    totals: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shares = {name: (threads, vector) for name, threads, vector in self.plan.lanes}
        self.warps: dict[str, Warps] = dict(self.plan.products)
        self.inner: dict[str, str] = {}  # of each axis, the place of a point in the tile
        self.runs: dict[str, str] = {}  # of values that a thread has neighbours of, the v-th
        self.run_types: dict[str, str] = {}
        self.row_exists = ""  # that a thread's row of a fold is one of the tile's
        self.spellings: dict[str, str] = {}

    def spell(self, name: str) -> str:
        """A C++ name, the same in all scopes."""
        if name not in self.spellings:
            self.spellings[name] = self.fresh.fresh(name)
        return self.spellings[name]

    # ---------------------------------------------------------------- the kernel

    def emit(self, launch: Dependence) -> None:
        line, plan = self.writer.line, self.plan
        self.writer.cite(self.function.location)
        lines = ",\n    ".join(parameters(self.function, self.nest, self.facts, self))
        entry = kernel_entry(self.nest.name)
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({plan.threads}) {entry}(\n    {lines})'):
            launch.begin(self.writer)
            line(f"// {self.shape()}")
            line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;")
            self.place_block()
            self.place_tiles()
            for k, stage in enumerate(plan.stages):
                if k:
                    line("__syncthreads();")
                self.turns(stage) if stage.turns else self.once(stage.levels)

    def shape(self) -> str:
        """What a block has, in words."""
        words_ = {"grid": "{0} of {1}", "turns": "{1} in turns of {0}", "whole": "all of {1}"}
        return "a block has " + ", ".join(words_[c.by].format(c.extent, c.axis) for c in self.plan.cuts)

    def place_block(self) -> None:
        """How many points axes have, and where the block's begin."""
        line, rest = self.writer.line, "blockIdx.x"
        for c in self.plan.cuts:
            self.counts[c.axis] = self.span(self.axes[c.axis], f"{c.axis}_count")
        cut = [c for c in self.plan.cuts if c.by == "grid"]
        for k, c in reversed([*enumerate(cut)]):
            tiles = self.counts[c.axis] if c.extent == 1 else f"weft::tiles<{c.extent}>({self.counts[c.axis]})"
            name = self.firsts[c.axis] = self.fresh.fresh(f"{c.axis}_first")
            place = f"int64_t({f'{rest} % {tiles}' if k else rest})"
            line(f"const int64_t {name} = {place}{f' * {c.extent}' if c.extent > 1 else ''};")
            rest = f"{rest} / {tiles}"
        for c in self.plan.cuts:
            if c.by == "grid" and c.extent == 1:
                self.names[c.axis] = self.firsts[c.axis]

    def place_tiles(self) -> None:
        line = self.writer.line
        if not self.plan.tiles and not self.plan.scratch:
            return
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        for t in self.plan.tiles:
            name = self.tiles[t.value] = self.fresh.fresh(f"{t.value}_tile")
            type_ = f"weft::BlockTile<{memory_type(t.type)}, {t.shape[0]}, {t.shape[1]}>"
            at = f"memory + {t.offset}" if t.offset else "memory"
            ring = f"  // {t.ring} turns have a place" if t.ring > 1 else ""
            line(f"auto* const {name} = reinterpret_cast<{type_}*>({at});{ring}")

    def once(self, levels: Sequence[Sequence[Chain]]) -> None:
        """Chains, with a barrier between levels."""
        for k, level in enumerate(levels):
            if k:
                self.writer.line("__syncthreads();")
            for chain in level:
                self.chain(chain)
            if any(c.kind == "copy" and self.plan.tile(c.name).vector > 1 for c in level):
                self.writer.line("weft::commit_copies();")
                self.writer.line("weft::wait_copies<0>();")

    def turns(self, stage: Levels) -> None:
        """A stage in turns along an axis: what is copied for a turn is on its way while others are computed."""
        line, axis, ring = self.writer.line, stage.turns, stage.ring
        extent = self.plan.cut(axis).extent
        for level in stage.levels:
            for chain in level:
                if chain.ends:
                    self.begin_totals(chain)
        turns = self.fresh.fresh(f"{axis}_turns")
        line(f"const int {turns} = int(weft::tiles<{extent}>({self.counts[axis]}));")
        first = self.fresh.fresh(f"{axis}_first")
        if stage.copies:
            bring = self.fresh.fresh("bring")
            with self.writer.block(f"const auto {bring} = [&](int turn)", "};"), self.turn(axis, first):
                for chain in stage.copies:
                    self.slots[chain.name] = f"[turn % {ring}]"
                    self.chain(chain)
            with self.writer.block(f"for (int turn = 0; turn < {ring - 1}; ++turn)"):
                line(f"if (turn < {turns}) {bring}(turn);")
                line("weft::commit_copies();")
        with self.writer.block(f"for (int turn = 0; turn < {turns}; ++turn)"):
            if stage.copies:
                line(f"weft::wait_copies<{ring - 2}>();")
            line("__syncthreads();  // what others have copied is there, and nobody reads the turn before any more")
            if stage.copies:
                line(f"if (turn + {ring - 1} < {turns}) {bring}(turn + {ring - 1});")
                line("weft::commit_copies();")
            with self.turn(axis, first):
                self.once(stage.levels)

    @contextmanager
    def turn(self, axis: str, first: str) -> Iterator[None]:
        """Where the turn's points begin, for a while."""
        mark = self.writer.mark()
        self.writer.line(f"const int64_t {first} = int64_t(turn) * {self.plan.cut(axis).extent};")
        self.firsts[axis] = first
        yield
        del self.firsts[axis]
        if not self.writer.mentions(first, mark + 1):
            self.writer.drop(mark)

    def chain(self, chain: Chain) -> None:
        names = dict(self.names)
        self.chained(chain)
        self.names = names

    def chained(self, chain: Chain) -> None:
        match chain.kind:
            case "copy":
                self.copy(chain)
            case "points":
                self.points(chain)
            case "fold":
                self.fold(chain)
            case "product":
                self.product(chain)
            case "finish" if chain.folds[0] in self.blocks.multiplied:
                self.fragments(chain)
            case "finish":
                self.finish(chain)

    # ---------------------------------------------------------------- places of points

    def extent(self, axes: Iterable[str]) -> int:
        n = 1
        for a in axes:
            n *= self.plan.cut(a).extent
        return n

    def wide(self, axes: Iterable[str]) -> list[str]:
        """Those of which a tile has more than one point."""
        return [a for a in axes if self.plan.cut(a).extent > 1]

    @contextmanager
    def placed(self, axes: Sequence[str], place: str) -> Iterator[None]:
        """Axes at a place of a tile in their order, for a while: names of each point's place in the tile, and of the point."""
        own, rest, lines = self.wide(axes), place, []
        kept = {a: (self.names.get(a), self.inner.get(a)) for a in axes}
        for k, a in reversed([*enumerate(own)]):
            extent = self.plan.cut(a).extent
            text = f"{rest} % {extent}" if k else rest
            if text.isidentifier():
                inner = text
            else:
                inner = self.spell(f"{a}_in")
                lines.append(f"const int {inner} = {text};")
            rest = f"{f'({rest})' if ' ' in rest and not rest.endswith(')') else rest} / {extent}"
            self.inner[a] = inner
        declared = []
        for text in reversed(lines):
            declared.append((self.writer.mark(), text.split()[2]))
            self.writer.line(text)
        for a in own:
            declared.append((self.writer.mark(), self.declare_point(a)))
        for a in axes:
            if a not in own:
                self.inner[a] = "0"
                if a not in self.names:
                    self.names[a] = self.firsts.get(a, "0")
        yield
        for at, name in reversed(declared):
            if not self.writer.mentions(name, at + 1):
                self.writer.drop(at)
        for a, (known, inner_) in kept.items():
            self._restore(self.names, a, known)
            self._restore(self.inner, a, inner_)

    def declare_point(self, axis: str) -> str:
        """The point of an axis whose place in the tile is known: its name."""
        inner = self.inner[axis]
        name = self.spell(axis)
        first = self.firsts.get(axis)
        self.writer.line(f"const int64_t {name} = {f'{first} + {inner}' if first else inner};")
        self.names[axis] = name
        return name

    @staticmethod
    def _restore(names: dict[str, str], key: str, value: str | None) -> None:
        if value is None:
            names.pop(key, None)
        else:
            names[key] = value

    def inside(self, axes: Iterable[str]) -> str:
        """That a point is one of its axes; "" where all are."""
        return " && ".join(f"{self.names[a]} < {self.counts[a]}" for a in axes if not self.plan.cut(a).even)

    def flat(self, axes: Sequence[str]) -> str:
        """The place of a point among those of some axes in a tile."""
        text = ""
        for a in axes:
            inner, extent = self.inner[a], self.plan.cut(a).extent
            text = inner if not text else f"({text}) * {extent} + {inner}" if " " in text else f"{text} * {extent} + {inner}"
        return text or "0"

    def place(self, t: Tile) -> str:
        """The line of a tile and the place in it, of the point that the axes are at."""
        return f"{self.flat(t.lines)}, {self.flat(t.along)}"

    # ---------------------------------------------------------------- values at a point

    def section(self, roots: Iterable[str], chain: Chain, known: Iterable[str]) -> list[str]:
        """What is made in registers for these, in order. known: what is there."""
        seen, pending = set[str](), [*roots]
        while pending:
            name = pending.pop()
            if name in seen or name in known:
                continue
            seen.add(name)
            if name not in chain.needs:
                pending += self.blocks.uses(name)
        return [n for n in self.made if n in seen]

    def axes_of(self, name: str) -> tuple[str, ...]:
        value = self.made[name]
        assert isinstance(value, Read | Map | Fold)
        return value.axes

    def let_values(self, names: Iterable[str], chain: Chain, runs: Mapping[str, str]) -> None:
        """Declare values at the point that the axes are at. runs: of those that a thread has neighbours of, the v-th."""
        for name in names:
            value = self.made[name]
            own = self.names.setdefault(name, self.spell(f"{name}_value" if name in self.arrays else name))
            if name in runs:
                self.writer.line(f"const {self.run_types[name]} {own} = {runs[name]};")
            elif name in chain.needs:
                t = self.plan.tile(name)
                type_ = register_type(t.type)
                text = f"{self.tiles[name]}{self.slot(name)}{self.arrow(name)}at({self.place(t)})"
                self.writer.line(f"const {type_} {own} = {text if type_ == memory_type(t.type) else f'{type_}({text})'};")
            else:
                assert isinstance(value, Read | Map)
                self.statements((self.let(value),))

    def slot(self, name: str) -> str:
        return self.slots.get(name, "")

    def arrow(self, name: str) -> str:
        return "." if self.slot(name) else "->"

    def run(self, name: str, chain: Chain, side: str, vector: int) -> bool:
        """Read neighbours of a value along an axis at a time, if it has any and they lie so; whether that is done."""
        value = self.made[name]
        if side not in self.axes_of(name):
            return False
        if name in chain.needs:
            t = self.plan.tile(name)
            if not t.along or t.along[-1] != side or vector * t.type.size > 16 or t.shape[1] % vector:
                return False
            if t.shape[1] * t.type.size % 16 and vector > 1:
                return False
            type_ = register_type(t.type)
            text = f"{self.tiles[name]}{self.slot(name)}{self.arrow(name)}fetch<{vector}>({self.place(t)})"
        elif isinstance(value, Read):
            along = [k for k, i in enumerate(value.index) if side in free_names(i)]
            if len(along) != 1 or (value.array, along[0]) not in self.facts.unit or value.index[along[0]] != Ref(side, INT64):
                return False
            dtype = self.function.array(value.array).dtype
            width = self.width(value.array, vector)
            type_ = register_type(dtype)
            text = f"weft::fetch<{vector}, {width}>({self.address(value.array, value.index)})"
        else:
            return False
        name_ = self.spell(f"{name}_run")
        self.writer.line(f"{type_} {name_}[{vector}];")
        self.writer.line(f"weft::unpack({text}, {name_});")
        self.runs[name], self.run_types[name] = f"{name_}[v]", type_
        return True

    @contextmanager
    def neighbours(self, section: Sequence[str], chain: Chain, side: str, vector: int) -> Iterator[None]:
        """A loop over neighbours along an axis, of which the first is where the axis is at: the values of a section at each of
        them.
        """
        early = [n for n in section if side not in self.axes_of(n)]
        late = [n for n in section if n not in early]
        self.runs = {}
        self.let_values(early, chain, {})
        if vector == 1:
            self.let_values(late, chain, {})
            yield
            return
        for n in late:
            self.run(n, chain, side, vector)
        first, inner = self.names[side], self.inner[side]
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int v = 0; v < {vector}; ++v)"):
            self.names[side], self.inner[side] = f"({first} + v)", f"({inner} + v)" if inner != "0" else "v"
            self.let_values(late, chain, self.runs)
            yield
        self.names[side], self.inner[side] = first, inner

    # ---------------------------------------------------------------- copies

    def copy(self, chain: Chain) -> None:
        """Elements of an array to shared memory; 0 where there are none."""
        t, read = self.plan.tile(chain.name), self.made[chain.name]
        assert isinstance(read, Read)
        line, (lines, length) = self.writer.line, t.shape
        self.writer.cite(read.location)
        packets = length // t.vector
        with self.shared_among(lines * packets, "p") as p:
            line(f"const int line = {p} / {packets}, at = {p} % {packets}{f' * {t.vector}' if t.vector > 1 else ''};")
            with self.placed(t.lines, "line"), self.placed(t.along, "at"), self.placed(self.narrow(read.axes), "0"):
                here = self.inside(read.axes)
                tile = f"{self.tiles[chain.name]}{self.slot(chain.name)}{self.arrow(chain.name)}"
                element = self.element(read.array, read.index)
                if t.vector > 1:
                    line(f"{tile}copy<{t.vector}>(line, at, {self.address(read.array, read.index)}, {here or 'true'});")
                else:
                    line(f"{tile}at(line, at) = {f'{here} ? {element} : {self.zero(t)}' if here else element};")

    @staticmethod
    def zero(t: Tile) -> str:
        type_ = memory_type(t.type)
        return literal(0, t.type, typed=True) if type_ == register_type(t.type) else f"{type_}({literal(0, t.type.opmath)})"

    def narrow(self, axes: Iterable[str]) -> list[str]:
        return [a for a in axes if self.plan.cut(a).extent == 1]

    @contextmanager
    def shared_among(self, count: int, name: str) -> Iterator[str]:
        """A loop that the threads share."""
        threads = self.plan.threads
        if count % threads == 0 and count <= UNROLLED * threads:
            self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int {name} = threadIdx.x; {name} < {count}; {name} += {threads})"):
            yield name

    # ---------------------------------------------------------------- points

    def points(self, chain: Chain) -> None:
        """Values at all points of a tile, in shared memory or stored."""
        _, vector = self.shares[chain.name]
        side = self.side_of(chain)
        order = [*(a for a in chain.axes if a != side), *((side,) if side else ())]
        with (
            self.shared_among(self.extent(chain.axes) // vector, "p") as p,
            self.placed(order, p if vector == 1 else f"{p} * {vector}"),
        ):
            self.ending(chain, chain.axes, side, vector, ())

    def side_of(self, chain: Chain) -> str:
        return dict(self.plan.sides)[chain.name]

    def ending(self, chain: Chain, axes: Sequence[str], side: str, vector: int, known: Iterable[str]) -> None:
        """What a chain makes for others and writes, at neighbours along an axis."""
        writes = [self.blocks.graph.writes[k] for k in chain.writes]
        roots = [n for n in chain.makes if n not in known]
        roots += [n for w in writes for n in self.names_of_write(w)]
        here = self.inside(axes)
        section = self.section(roots, chain, known)
        results = {n: self.spell(f"{n}_made") for n in chain.makes} if vector > 1 or here else {}
        for n, own in results.items():
            type_ = register_type(self.plan.tile(n).type)
            self.writer.line(f"{type_} {own}{f'[{vector}]' if vector > 1 else ''} = {'{}' if vector > 1 else self.zero_of(n)};")
        with ExitStack() as stack:
            if here and (section or writes or results):
                stack.enter_context(self.writer.block(f"if ({here})"))
            stored = {}
            if vector > 1:
                for k, w in enumerate(writes):
                    if self.in_run(w, side):
                        stored[k] = self.spell(f"{w.array}_made")
                        self.writer.line(f"{register_type(self.function.array(w.array).dtype)} {stored[k]}[{vector}];")
            with self.neighbours(section, chain, side, vector):
                for n, own in results.items():
                    self.writer.line(f"{own}{'[v]' if vector > 1 else ''} = {self.names[n]};")
                for k, w in enumerate(writes):
                    if k in stored:
                        self.writer.line(f"{stored[k]}[v] = {self.printer.value(w.value)};")
                    else:
                        self.guarded_write(w)
            for k, own in stored.items():
                w, width = writes[k], self.width(writes[k].array, vector)
                self.writer.cite(w.location)
                text = f"weft::store<{width}>({self.address(w.array, w.index)}, {own});"
                condition = self.only_here(w)
                self.writer.line(f"if ({condition}) {text}" if condition else text)
        for n in chain.makes:
            t, value = self.plan.tile(n), results.get(n) or self.names[n]
            tile = f"{self.tiles[n]}{self.slot(n)}{self.arrow(n)}"
            if vector == 1:
                type_ = memory_type(t.type)
                self.writer.line(f"{tile}at({self.place(t)}) = {type_}({value});")
            elif t.along and t.along[-1] == side and vector * t.type.size <= 16 and t.shape[1] * t.type.size % 16 == 0:
                self.writer.line(f"{tile}put<{vector}>({self.place(t)}, {value});")
            else:
                first = self.inner[side]
                self.writer.line("#pragma unroll")
                with self.writer.block(f"for (int v = 0; v < {vector}; ++v)"):
                    self.inner[side] = f"({first} + v)" if first != "0" else "v"
                    self.writer.line(f"{tile}at({self.place(t)}) = {memory_type(t.type)}({value}[v]);")
                self.inner[side] = first

    def zero_of(self, name: str) -> str:
        return literal(0, self.plan.tile(name).type.opmath, typed=True)

    def names_of_write(self, w: Write) -> list[str]:
        return [n for e in (*w.index, w.value) for n in free_names(e) if n in self.made]

    def in_run(self, w: Write, side: str) -> bool:
        """Whether neighbours are stored together."""
        along = [k for k, i in enumerate(w.index) if side in free_names(i)]
        return len(along) == 1 and (w.array, along[0]) in self.facts.unit and w.index[along[0]] == Ref(side, INT64)

    def only_here(self, w: Write) -> str:
        """That a block is the one which writes what several have."""
        cut = [c for c in self.plan.cuts if c.by == "grid" and c.axis not in w.axes]
        return " && ".join(f"{self.firsts[c.axis]} == 0" for c in cut)

    def guarded_write(self, w: Write) -> None:
        condition = self.only_here(w)
        with ExitStack() as stack:
            if condition:
                stack.enter_context(self.writer.block(f"if ({condition})"))
            self.write(w)

    # ---------------------------------------------------------------- folds

    def rows_of(self, chain: Chain) -> tuple[int, int, int]:
        """Threads of a row of a fold, rows that are folded at a time, and how often."""
        threads, _ = self.shares[chain.of or chain.name]
        teams = max(1, self.plan.threads // threads)
        return threads, teams, -(-self.extent(chain.axes) // teams)

    def begin_totals(self, chain: Chain) -> None:
        """Registers for what is folded."""
        if chain.kind == "product":
            down, across = self.fragments_of(chain)
            for f in chain.folds:
                name = self.totals[f] = self.fresh.fresh(f"{self.fold_named(f).names[0]}_sums")
                self.writer.line(f"float {name}[{down}][{across}][4] = {{}};")
            return
        _, _, times = self.rows_of(chain)
        for f in chain.folds:
            fold = self.fold_named(f)
            name = self.totals[f] = self.fresh.fresh(f"{fold.names[0]}_total")
            identity = literal(ALGEBRAS[fold.algebra].identity(fold.types[0]).value, fold.types[0], typed=True)
            self.writer.line(f"{register_type(fold.types[0])} {name}[{times}];")
            self.writer.line("#pragma unroll")
            self.writer.line(f"for (int r = 0; r < {times}; ++r) {name}[r] = {identity};")

    def fold_named(self, name: str) -> Fold:
        fold = self.made[name]
        assert isinstance(fold, Fold)
        return fold

    @contextmanager
    def each_row(self, chain: Chain) -> Iterator[None]:
        """A loop over a thread's rows of a fold."""
        threads, teams, times = self.rows_of(chain)
        rows = self.extent(chain.axes)
        team = "" if teams == 1 else "threadIdx.x" if threads == 1 else f"threadIdx.x / {threads}"
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int r = 0; r < {times}; ++r)"):
            if not self.wide(chain.axes):
                self.row_exists = f"threadIdx.x < {threads}" if teams > 1 else ""
                with self.placed(chain.axes, "0"):
                    yield
                self.row_exists = ""
                return
            self.writer.line(f"const int row = r{f' * {teams} + {team}' if team else ''};")
            with ExitStack() as stack:
                self.row_exists = f"row < {rows}" if rows % teams else ""
                stack.enter_context(self.placed(chain.axes, "row"))
                yield
        self.row_exists = ""

    def fold(self, chain: Chain) -> None:
        if not chain.ends:
            self.begin_totals(chain)
        threads, _, _ = self.rows_of(chain)
        _, vector = self.shares[chain.name]
        side = self.side_of(chain)
        folds = [self.fold_named(f) for f in chain.folds]
        over = [*(a for a in chain.over if a != side), *((side,) if side else ())]
        points = self.extent(chain.over)
        lane = "0" if threads == 1 else "threadIdx.x" if threads == self.plan.threads else f"threadIdx.x % {threads}"
        roots = [n for f in folds for n in self.blocks.uses(f.results[0])]
        with self.each_row(chain):
            rows = [n for n in self.section(roots, chain, ()) if not {*self.axes_of(n)} & {*chain.over}]
            here = " && ".join(t for t in (self.row_exists, self.inside(chain.axes)) if t)
            with ExitStack() as stack:
                if here:
                    stack.enter_context(self.writer.block(f"if ({here})"))
                self.let_values(rows, chain, {})
                first = lane if vector == 1 else f"{lane} * {vector}" if lane != "0" else "0"
                step = threads * vector
                header = f"for (int p = {first}; p < {points}; p += {step})"
                with self.writer.block(header), self.placed(over, "p"):
                    section = self.section(roots, chain, rows)
                    here = self.inside(chain.over)
                    with ExitStack() as inner:
                        if here:
                            inner.enter_context(self.writer.block(f"if ({here})"))
                        with self.neighbours(section, chain, side, vector):
                            for f in folds:
                                total = f"{self.totals[f.results[0]]}[r]"
                                self.writer.cite(f.location)
                                self.writer.line(f"{total} = {element_of(self.printer, f, total)};")
        if not chain.ends:
            self.finish(chain)

    def finish(self, chain: Chain) -> None:
        """What is done with what is folded, by the first thread of each row."""
        threads, _, times = self.rows_of(chain)
        lane = "threadIdx.x" if threads == self.plan.threads else f"threadIdx.x % {threads}"
        offsets = dict(self.plan.scratch)
        folds = [self.fold_named(f) for f in chain.folds]
        if threads > WARP:
            scratch = self.fresh.fresh("scratch")
            self.writer.line(f"auto* const {scratch} = memory + {offsets[chain.name]};")
            per, at = self.plan.warps, 0
            pointers = {}
            for f in folds:
                type_ = register_type(f.types[0])
                pointers[f] = f"reinterpret_cast<{type_}*>({scratch} + {at})"
                at += 8 * per * times
            self.writer.line("#pragma unroll")
            with self.writer.block(f"for (int r = 0; r < {times}; ++r)"):
                for f in folds:
                    total = f"{self.totals[f.results[0]]}[r]"
                    self.writer.line(f"weft::tell<{algebra_of(f)}>({total}, {pointers[f]} + r * {per});")
            self.writer.line("__syncthreads();")
            self.writer.line("#pragma unroll")
            with self.writer.block(f"for (int r = 0; r < {times}; ++r)"):
                for f in folds:
                    total = f"{self.totals[f.results[0]]}[r]"
                    self.writer.line(f"{total} = weft::told<{algebra_of(f)}, {threads}>({pointers[f]} + r * {per});")
        elif threads > 1:
            self.writer.line("#pragma unroll")
            with self.writer.block(f"for (int r = 0; r < {times}; ++r)"):
                for f in folds:
                    total = f"{self.totals[f.results[0]]}[r]"
                    self.writer.line(f"{total} = weft::reduce_lanes<{algebra_of(f)}, {threads}>({total});")
        if not chain.makes and not chain.writes:
            return
        with self.each_row(chain):
            here = " && ".join(t for t in (self.row_exists, f"{lane} == 0" if threads > 1 else "") if t)
            with ExitStack() as stack:
                if here:
                    stack.enter_context(self.writer.block(f"if ({here})"))
                for f in folds:
                    self.names[f.results[0]] = self.spell(f.results[0])
                    type_ = register_type(f.types[0])
                    self.writer.line(f"const {type_} {self.names[f.results[0]]} = {self.totals[f.results[0]]}[r];")
                self.ending(chain, chain.axes, "", 1, chain.folds)

    # ---------------------------------------------------------------- products

    def fragments_of(self, chain: Chain) -> tuple[int, int]:
        """How many 16 rows and 8 columns of results a warp has."""
        product, warps = self.blocks.multiplied[chain.folds[0]], self.warps[chain.of or chain.name]
        return self.extent(product.rows) // 16 // warps.down, self.extent(product.columns) // 8 // warps.across

    def product(self, chain: Chain) -> None:
        if not chain.ends:
            self.begin_totals(chain)
        down, across = self.fragments_of(chain)
        warps = self.warps[chain.name]
        with ExitStack() as stack:
            if warps.down * warps.across < self.plan.warps:
                stack.enter_context(self.writer.block(f"if (warp < {warps.down * warps.across})"))
            for f in chain.folds:
                p, fold = self.blocks.multiplied[f], self.fold_named(f)
                self.writer.cite(fold.location)
                tiles = ((self.tiles[n], self.slot(n)) for n in (p.left, p.right))
                left, right = (f"{name}{slot}" if slot else f"*{name}" for name, slot in tiles)
                flags = ", ".join(str(self.along_points(p, n)).lower() for n in (p.left, p.right))
                row = f"warp / {warps.across} * {16 * down}" if warps.across > 1 else f"warp * {16 * down}"
                row = "0" if warps.down == 1 else row
                column = "0" if warps.across == 1 else f"warp % {warps.across} * {8 * across}"
                self.writer.line(
                    f"weft::multiply_tiles<{memory_type(p.type)}, {self.extent(p.over)}, {flags}>"
                    f"({self.totals[f]}, {left}, {right}, {row}, {column});"
                )
            if not chain.ends:
                self.results(chain)

    def along_points(self, product: Multiplied, operand: str) -> bool:
        """Whether a line of an operand's tile has the points of a row."""
        along = {*self.plan.tile(operand).along}
        return along == {a for a in product.over if self.plan.cut(a).extent > 1}

    def fragments(self, chain: Chain) -> None:
        """What is done with the results of products, where the registers of threads have them."""
        if not chain.makes and not chain.writes:
            return
        warps = self.warps[chain.of]
        with ExitStack() as stack:
            if warps.down * warps.across < self.plan.warps:
                stack.enter_context(self.writer.block(f"if (warp < {warps.down * warps.across})"))
            self.results(chain)

    def results(self, chain: Chain) -> None:
        """The same of the warps that have results."""
        if not chain.makes and not chain.writes:
            return
        product, warps = self.blocks.multiplied[chain.folds[0]], self.warps[chain.of or chain.name]
        down, across = self.fragments_of(chain)
        line = self.writer.line
        with ExitStack() as stack:
            line("#pragma unroll")
            stack.enter_context(self.writer.block(f"for (int f = 0; f < {2 * down}; ++f)"))
            below = f"warp / {warps.across} * {16 * down} + " if warps.down > 1 else ""
            line(f"const int row = {below}f * 8 + lane / 4;")
            stack.enter_context(self.placed(product.batch, "0"))
            stack.enter_context(self.placed(product.rows, "row"))
            side = self.wide(product.columns)[-1]
            rows = self.of_rows(chain, product)
            self.let_values(rows, chain, {})
            known = (*chain.folds, *rows)
            line("#pragma unroll")
            stack.enter_context(self.writer.block(f"for (int g = 0; g < {across}; ++g)"))
            beside = f"warp % {warps.across} * {8 * across} + " if warps.across > 1 else ""
            line(f"const int column = {beside}g * 8 + lane % 4 * 2;")
            stack.enter_context(self.placed(product.columns, "column"))
            if self.pairs(chain, side):
                self.spell_sums(chain, "v")
                self.ending(chain, chain.axes, side, 2, known)
                return
            line("#pragma unroll")
            with self.writer.block("for (int h = 0; h < 2; ++h)"):
                names, inner = self.names[side], self.inner[side]
                self.inner[side] = f"({inner} + h)"
                self.declare_point(side)
                self.spell_sums(chain, "h")
                self.ending(chain, chain.axes, side, 1, known)
                self.names[side], self.inner[side] = names, inner

    def of_rows(self, chain: Chain, product: Multiplied) -> list[str]:
        """What is the same for all columns, and may be looked at where a row of the tile is none of the axes."""
        roots = [n for n in chain.makes if n not in chain.folds]
        roots += [n for k in chain.writes for n in self.names_of_write(self.blocks.graph.writes[k])]
        found = [n for n in self.section(roots, chain, chain.folds) if not {*self.axes_of(n)} & {*product.columns}]
        here = self.inside((*product.batch, *product.rows))
        return [] if here and any(isinstance(self.made[n], Read) and n not in chain.needs for n in found) else found

    def spell_sums(self, chain: Chain, v: str) -> None:
        for f in chain.folds:
            self.names[f] = f"{self.totals[f]}[f / 2][g][f % 2 * 2 + {v}]"

    def pairs(self, chain: Chain, side: str) -> bool:
        """Whether two neighbouring columns are there together, and stored so."""
        cut: Cut = self.plan.cut(side)
        even = cut.even or self.plan_even(side)
        writes = [self.blocks.graph.writes[k] for k in chain.writes]
        return even and all(not self.in_run(w, side) or self.facts.vector(w.array) > 1 for w in writes)

    def plan_even(self, axis: str) -> bool:
        """Whether an axis is known to have an even number of points."""
        return dict(self.plan.even).get(axis, False)
