"""Scans whose neighbouring threads have neighbouring points of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.algebras import algebra_of
from weft.emit.cpp_body import factor
from weft.emit.expressions import register_type
from weft.emit.scan_body import ScanBody
from weft.emit.values import ZERO
from weft.graph.tile import Read, Scan, Write
from weft.loops.affine import affine
from weft.loops.ir import Ref, free_names
from weft.loops.types import INT64
from weft.plan.fold import PACKET_BYTES, is_run
from weft.plan.scan import shift_of


@dataclass
class ScansAlong(ScanBody):
    """Neighbouring threads have neighbouring runs of a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.whole = self.divides()

    def divides(self) -> bool:
        """Whether runs are inside the row or outside as a whole, since an array that is known to have whole ones is as long."""
        accesses = [(v.array, v.index) for v in self.values if isinstance(v, Read)]
        accesses += [(w.array, w.index) for w in self.scans.writes]
        return self.axis.start == ZERO and any(
            i == Ref(self.axis.name, INT64)
            and (array, k) in self.facts.unit
            and self.facts.vector(array) >= self.plan.vector
            and self.function.array(array).shape[k] == self.axis.stop
            for array, index in accesses
            for k, i in enumerate(index)
        )

    def rows(self) -> None:
        plan, line = self.plan, self.writer.line
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        if axes:
            team = f" * {plan.teams} + threadIdx.y" if plan.teams > 1 else ""
            self.row = self.declare(axes[0].name) if len(axes) == 1 and axes[0].start == ZERO else "row"
            line(f"const int64_t {self.row} = int64_t(blockIdx.x){team};")
            if plan.teams > 1:
                line(f"if ({self.row} >= {' * '.join(counts[a.name] for a in axes)}) return;")
            if self.row == "row":
                self.places(axes, "row", counts)
            self.all_rows = " * ".join(counts[a.name] for a in axes)
        self.hoist(self.everything(), list(plan.rows))
        warp = 32 * plan.runs * plan.vector
        line(f"// a tile is {plan.tile} points; a thread has {plan.runs} times {plan.vector} of them, beside those of its warp")
        lane = f"threadIdx.x / 32 * {warp} + threadIdx.x % 32" if plan.threads > 32 else "threadIdx.x"
        by = f" * {plan.vector}" if plan.vector > 1 else ""
        line(f"const {self.index} {self.stem(f'{self.axis.name}_own')} = {lane}{by};")

    def own(self, name: str) -> str:
        return f"{name}[run]"

    def declared(self, type_: str, name: str) -> None:
        self.writer.line(f"{type_} {name}[{self.plan.runs}];")

    @contextmanager
    def each_run(self) -> Iterator[None]:
        """What is written here is done for every run of a thread."""
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t run = 0; run < {self.plan.runs}; ++run)"):
            yield

    @contextmanager
    def each_row(self) -> Iterator[None]:
        yield

    # ---------------------------------------------------------------- reads

    def ahead(self, read: Read) -> bool:
        forms = [affine(i) for i in read.index]
        steps = [f.coefficient(self.axis.name) for f in forms if f is not None and f.coefficient(self.axis.name)]
        return super().ahead(read) and steps == [1]

    def buffer(self, read: Read) -> tuple[str, str, str]:
        return f"weft::Run<{{}}, {self.plan.vector}>", f"[{self.plan.vector}]", "[run][v]"

    def fetched(self, read: Read, target: str, name: str) -> None:
        vector, extents = self.plan.vector, self.function.array(read.array).shape
        axis = next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))
        index, unit = read.index[axis], (read.array, axis) in self.facts.unit
        width = self.width(read.array, vector)
        form = affine(index)
        shift = form.constant if form is not None and form.names == {self.axis.name} else None
        conditions = self.outside(read, (k for k in range(len(read.index)) if k != axis))
        as_long = unit and self.whole and extents[axis] == self.axis.stop
        if as_long and shift in (-1, 0, 1):
            at = self.address(read.array, read.index)
            taken = f"weft::fetch<{vector}, {width}>({at})"
            if shift:
                base = self.address(read.array, tuple(ZERO if k == axis else i for k, i in enumerate(read.index)))
                base = base.removesuffix(" + 0")
                taken = f"weft::fetch_before<{vector}, {width}>({base}, {name})"
                if shift > 0:
                    taken = f"weft::fetch_after<{vector}, {width}>({base}, {name}, {self.printer.index(extents[axis])})"
            self.writer.line(f"if ({' && '.join([*self.inside(name), *conditions])}) {target} = {taken};")
            return
        start = self.printer.index(self.axis.start)
        first = name if start == "0" else f"{name} - {factor(start)}"
        size = self.end if start == "0" else f"{self.end} - {factor(start)}"
        if not read.always:
            first, size = self.printer.index(index), self.printer.index(extents[axis])
        at = f"{self.address(read.array, read.index)}, {self.stride(read.array, axis)}"
        only = f"if ({' && '.join(conditions)}) " if conditions else ""
        self.writer.line(f"{only}{target} = weft::fetch_within<{vector}>({at}, {first}, {size});")

    def copied(self, tile: str, stage: str) -> None:
        plan, line, stop = self.plan, self.writer.line, self.end
        line("if (threadIdx.x != 0) return;")
        number = f"(tiles - 1 - {tile})" if self.scans.reverse else tile
        line(f"const int64_t first = {number} * {plan.tile};")
        outside = "first < 0" if self.scans.reverse else f"first >= {stop}"
        with self.writer.block(f"if ({outside})"):
            line(f"arrived[{stage}].arrive();")
            line("return;")
        line(f"const int64_t last = weft::minimum<int64_t>(first + {plan.tile}, {stop});")
        copies, sizes = [], []
        for read in self.of_ring():
            name, elements = self.slots[read.name]
            size, first, last = self.function.array(read.array).dtype.size, "first", "last"
            axis = next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))
            place = f"{name} + {stage} * {elements}"
            if shift_of(read, plan.lane):  # with what lies beside the tile
                pad = PACKET_BYTES // size
                first, last = self.stem(f"{name}_first"), self.stem(f"{name}_last")
                line(f"const int64_t {first} = weft::maximum<int64_t>(first - {pad}, 0);")
                line(f"const int64_t {last} = weft::minimum<int64_t>(last + {pad}, {stop});")
                place = f"{place} + ({first} - first + {pad})"
            base = self.base(read, axis)
            sizes.append(f"({last} - {first}) * {size}")
            copies.append(f"weft::bulk_load({place}, {base} + {first}, ({last} - {first}) * {size}, arrived[{stage}]);")
        line(f"arrived[{stage}].arrive_expect({' + '.join(sizes)});")
        for copy in copies:
            line(copy)

    def base(self, read: Read, axis: int) -> str:
        """The address of the row's first element."""
        return self.address(read.array, tuple(ZERO if k == axis else i for k, i in enumerate(read.index))).removesuffix(" + 0")

    def taken(self, read: Read, name: str) -> None:
        plan, (ring, elements), (_, tile) = self.plan, self.slots[read.name], self.buffers[read.name]
        shift, own = shift_of(read, plan.lane), self.stems[f"{self.axis.name}_own"]
        size = self.function.array(read.array).dtype.size
        place = f"{ring} + stage * {elements} + {own} + run * {min(32, plan.threads) * plan.vector}"
        if not shift:
            run = f"weft::fetch<{plan.vector}, {min(plan.vector, PACKET_BYTES // size)}>({place})"
            self.writer.line(f"if ({' && '.join(self.inside(name))}) weft::unpack({run}, {tile}[run]);")
            return
        place = f"{place} + {PACKET_BYTES // size + shift}"
        run = f"weft::fetch_within<{plan.vector}>({place}, 1, {name} {'+' if shift > 0 else '-'} 1, {self.end})"
        self.writer.line(f"if ({' && '.join(self.inside(name))}) weft::unpack({run}, {tile}[run]);")

    # ---------------------------------------------------------------- points

    def points(self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()) -> None:
        with self.each_run():
            self.points_of_one(body, begin, stored)

    def points_of_one(
        self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()
    ) -> None:
        name, first = self.declare(self.axis.name), self.stem(f"{self.axis.name}_run")
        vector, line = self.plan.vector, self.writer.line
        line(f"const {self.index} {first} = {self.point_of(self.begin, 'run')};")
        begin()
        with self.guarded(self.inside(first) if self.whole else []):
            for w, tile in stored:
                line(f"{register_type(w.value.type)} {tile}[{vector}];")
            line("#pragma unroll")
            order = f"int32_t v = {vector - 1}; v >= 0; --v" if self.scans.reverse else f"int32_t v = 0; v < {vector}; ++v"
            with self.writer.block(f"for ({order})"):
                mark = self.writer.mark()
                with self.guarded([] if self.whole else self.inside(name)):
                    body()
                if self.writer.mentions(name, mark):
                    self.writer.insert(mark, f"const {self.index} {name} = {first} + v;")
            with self.named(self.axis.name, first):
                for w, tile in stored:
                    at = self.address(w.array, w.index)
                    line(f"weft::store<{self.width(w.array, vector)}>({at}, {tile});")

    @contextmanager
    def guarded(self, conditions: Sequence[str]) -> Iterator[None]:
        if not conditions:
            yield
            return
        with self.writer.block(f"if ({' && '.join(conditions)})"):
            yield

    def in_packets(self, w: Write) -> bool:
        return self.whole and w.guard is None and is_run(w.array, w.index, self.axis.name, self.facts)

    def begin_states(self, scans: Sequence[Scan]) -> None:
        for s in scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.names[n] = self.stem(n)
                self.writer.line(f"{register_type(type_)} {self.names[n]} = {self.before(n)}[run];")

    # ---------------------------------------------------------------- composition

    def scratch(self, scan: Scan) -> None:
        algebra, stem, warps = algebra_of(scan), scan.names[0], self.plan.threads // 32
        if self.plan.threads > 32:  # two, in turn, so that one barrier does
            self.writer.line(f"__shared__ {algebra}::Value {self.stem(f'{stem}_scratch')}[2][{warps}];")
        if self.plan.shared:
            self.chain(scan, 1)

    def combine(self, s: Scan, own: str) -> None:
        plan, line, algebra, stem = self.plan, self.writer.line, algebra_of(s), s.names[0]
        maps, composed = self.stem(f"{stem}_maps"), self.stem(f"{stem}_composed")
        number = "turn" if plan.shared else "tile"
        scratch = f"{self.stem(f'{stem}_scratch')}[{number} & 1]" if plan.threads > 32 else "nullptr"
        call = f"weft::scan_runs<{algebra}, {plan.threads}, {self.backwards}>"
        if plan.delayed:
            line(f"{composed} = {call}({own}, {maps}, {scratch});")
            line(f"{self.stem(f'{stem}_chain')}.tells_of({composed}.all, turn + 1);")
            return
        line(f"{algebra}::Value {maps}[{plan.runs}];  // what the warp's runs before each do")
        line(f"const auto {composed} = {call}({own}, {maps}, {scratch});")

    def delayed(self) -> None:
        plan, line = self.plan, self.writer.line
        (level,) = self.scans.levels
        stems = [(s, algebra_of(s), s.names[0]) for s in level]
        line("// what blocks tell each other of a turn is heard in the next one")
        for _, algebra, stem in stems:
            line(f"{algebra}::Value {self.stem(f'{stem}_maps')}[{plan.runs}];  // what the warp's runs before each do")
            line(f"weft::Runs<{algebra}> {self.stem(f'{stem}_composed')};")
        with self.writer.block("for (int64_t turn = 0; turn <= turns; ++turn)"):
            for _, algebra, stem in stems:
                line(f"{algebra}::Value {self.stem(f'{stem}_maps_before')}[{plan.runs}];")
                with self.each_run():
                    line(f"{self.stem(f'{stem}_maps_before')}[run] = {self.stem(f'{stem}_maps')}[run];")
                line(f"const auto {self.stem(f'{stem}_composed_before')} = {self.stem(f'{stem}_composed')};")
            self.begin = self.stem(f"{self.axis.name}_first")
            with self.writer.block("if (turn < turns)"):
                line("const int64_t tile = turn * parts + part;")
                line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
                line(f"const int32_t stage = turn % {plan.stages};")
                line(f"arrived[stage].wait(turn / {plan.stages} & 1);")
                self.declare_tiles()
                self.take()
                self.compose(level, [])
            line("if (turn == 0) continue;")
            line("const int64_t tile = (turn - 1) * parts + part;")
            line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
            line(f"const int32_t stage = (turn - 1) % {plan.stages};")
            self.declare_tiles()
            self.take()
            for s, _, stem in stems:
                kept = {what: self.stem(f"{stem}_{what}") for what in ("maps", "composed")}
                self.stems |= {f"{stem}_{what}": self.stem(f"{stem}_{what}_before") for what in kept}
                self.composed(s, "")
                self.stems |= {f"{stem}_{what}": name for what, name in kept.items()}
            self.finish(level)
            line("__syncthreads();  // all have gone through it")
            line(f"if (turn - 1 + {plan.stages} < turns) copy_tile(tile + {plan.stages} * parts, stage);")

    def composed(self, s: Scan, own: str) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        types = [register_type(t) for t in s.types]
        lasts = [self.names[r] for r in s.results]
        tiles, warps, befores = ([self.stem(f"{n}_{what}") for n in s.names] for what in ("tile", "warp", "before"))
        maps, composed, finite = (self.stem(f"{stem}_{what}") for what in ("maps", "composed", "finite"))
        for t, tile, last in zip(types, tiles, lasts, strict=True):
            line(f"{t} {tile} = {last};  // before the tile")
        if plan.shared:
            self.exchanged(s, f"{composed}.all", tiles, lasts)
        else:
            self.applied(s, f"{composed}.all", lasts)
        for t, warp, tile in zip(types, warps, tiles, strict=True):
            line(f"{t} {warp} = {tile};")
        self.applied(s, f"{composed}.warp", warps)
        if self.may_overflow(s):
            whole = [self.stem(f"{stem}_whole")] if plan.shared else []
            line(f"bool {finite} = {' && '.join([*whole, *(f'weft::is_finite({x})' for x in lasts)])};")
        for t, b in zip(types, befores, strict=True):
            line(f"{t} {b}[{plan.runs}];  // before each run")
        with self.each_run():
            for b, warp in zip(befores, warps, strict=True):
                line(f"{b}[run] = {warp};")
            self.applied(s, f"{maps}[run]", [f"{b}[run]" for b in befores])
            if self.may_overflow(s):
                line(f"{finite} = {finite} && {' && '.join(f'weft::is_finite({b}[run])' for b in befores)};")
        if not self.may_overflow(s):
            return
        line("// what overflows when points are composed is computed in their order")
        with self.writer.block(f"if (!weft::all_of_team<{plan.threads}>({self.settled(s, finite, tiles)}))"):
            for last, tile in zip(lasts, tiles, strict=True) if not plan.shared else ():
                line(f"{last} = {tile};")
            call = f"weft::runs_in_turn<{plan.threads}, {self.backwards}, {plan.runs}>"
            with self.turns_of_blocks(s, tiles, lasts):
                self.changed_in_order(s, tiles if plan.shared else lasts, call, "int32_t run, ", "[run]")

    def exchanged(self, s: Scan, total: str, tiles: Sequence[str], lasts: Sequence[str]) -> None:
        """The states before this block's tile and after those of all blocks."""
        stem, line = s.names[0], self.writer.line
        others, whole = self.stem(f"{stem}_others"), self.stem(f"{stem}_whole")
        line(f"bool {whole} = true;  // what all blocks tell can be composed")
        if self.may_overflow(s):
            self.of_each_row(register_type(s.types[0]), self.stem(f"{stem}_turn"))
        chain, parts = self.stem(f"{stem}_chain"), self.stem(f"{stem}_parts")
        if not self.plan.delayed:
            line(f"{chain}.tells_of({total}, turn + 1);")
        line(f"const auto {others} = {chain}.hear({self.number}, {parts}, {whole});")
        self.applied(s, f"{others}.before", tiles)
        self.replayed_chain(s, f"{others}.all", tiles, lasts, "")

    # ---------------------------------------------------------------- ends

    def one_of_row(self) -> list[str]:
        return ["threadIdx.x == 0"]

    def fold_places(self) -> int:
        return self.plan.threads // 32 if self.plan.threads > 32 else 0

    def reduced(self, algebra: str, own: str, scratch: str) -> str:
        return f"weft::reduce<{algebra}, {self.plan.threads}>({own}, {scratch})"
