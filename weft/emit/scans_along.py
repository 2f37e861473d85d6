"""Scans whose neighbouring threads have neighbouring points of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.emit.scan_body import ScanBody
from weft.emit.values import ZERO
from weft.graph.tile import Read, Scan, Write
from weft.loops.affine import affine
from weft.loops.ir import Ref, free_names
from weft.loops.types import INT64
from weft.plan.fold import PACKET_BYTES, stored_in_packets
from weft.plan.scan import anchor_of, anywhere, ring_reads, shift_of


@dataclass(frozen=True)
class Loose:
    """Of a read whose rows begin anywhere, names: how many elements packets of it begin before those of runs, and between which
    of its elements all packets are the row's.
    """

    before: str
    low: str
    high: str


@dataclass
class ScansAlong(ScanBody):
    """Neighbouring threads have neighbouring runs of a row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.whole = self.divides()
        self.stored = {w.array for w in (*self.scans.writes, *self.scans.last)}
        self.anchored = anchor_of(self.scans, self.plan, self.facts)  # the access whose packets runs are, where `past` tells
        self.loose: dict[str, Loose] = {}  # reads in the ring whose rows begin anywhere
        self.even: dict[str, str] = {}  # of reads whose packets may begin where these do: the name of whether they do

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

    @property
    def runs_are_packets(self) -> bool:
        """Whether a thread's runs begin where packets of arrays whose rows are whole ones do."""
        return not self.past and self.origin == ZERO

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
        whole = f"a row is one tile of {plan.tile} points at the most" if plan.single else f"a tile is {plan.tile} points"
        line(f"// {whole}; a thread has {plan.runs} times {plan.vector} of them, beside those of its warp")
        lane = f"threadIdx.x / 32 * {warp} + threadIdx.x % 32" if plan.threads > 32 else "threadIdx.x"
        by = f" * {plan.vector}" if plan.vector > 1 else ""
        self.anchor()
        past = f" - {self.past}" if self.past else ""
        # a place in a tile: signed, for runs that begin at a packet may begin before the row
        line(f"const int32_t {self.stem(f'{self.axis.name}_own')} = {lane}{by}{past};")

    def anchor(self) -> None:
        """Where rows are not known to be aligned, runs begin at packets of what is written, or else of what is read."""
        if self.anchored is None:
            return
        array, index = self.anchored
        self.past = self.stem(f"{self.axis.name}_past")
        with self.spelled({self.axis.name: "0"}):
            at = self.address(array, index).removesuffix(" + 0")
        ring = ring_reads(self.function, self.scans, self.plan, self.facts) if self.plan.stages else ()
        declared = set()
        self.writer.line("// runs begin where packets do")
        self.writer.line(f"const int32_t {self.past} = weft::past_packet<{self.plan.vector}>({at});")
        for read in self.values:
            if not isinstance(read, Read) or read in ring or self.axis.name not in read.axes:
                continue
            if self.ahead(read) and self.shift(read) is not None:
                axis = next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))
                base = self.base(read, axis)
                even = self.even[read.name] = self.stem(f"{base}_even" if base.isidentifier() else f"{read.name}_even")
                if even not in declared:
                    past = f"weft::past_packet<{self.plan.vector}>({base})"
                    self.writer.line(f"const bool {even} = {past} == {self.past};")
                declared.add(even)

    def shift(self, read: Read) -> int | None:
        """How far a read of neighbours is from its points, by one at the most; None of others."""
        axis = next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))
        form = affine(read.index[axis])
        if (read.array, axis) not in self.facts.unit or form is None or form.names != {self.axis.name}:
            return None
        # beside what is stored lies what other threads store
        return form.constant if abs(form.constant) <= (read.array not in self.stored) else None

    def packet(self, read: Read, axis: int, shift: int, width: int, name: str) -> str:
        """Neighbours of a run that is inside of the array, of which packets begin where the run does."""
        vector, extent = self.plan.vector, self.printer.index(self.function.array(read.array).shape[axis])
        if not shift:
            return f"weft::fetch<{vector}, {width}>({self.address(read.array, read.index)})"
        if shift < 0:
            return f"weft::fetch_before<{vector}, {width}>({self.base(read, axis)}, {name})"
        return f"weft::fetch_after<{vector}, {width}>({self.base(read, axis)}, {name}, {extent})"

    def inside_packets(self, read: Read, axis: int, name: str) -> str:
        """The condition that a run is a whole packet of an array."""
        extent = self.printer.index(self.function.array(read.array).shape[axis])
        return f"{self.even[read.name]} && {name} >= 0 && {name} + {self.plan.vector} <= {extent}"

    def fetch_run(self, begin: str) -> None:
        super().fetch_run(begin)
        ragged = [read for read in self.reads() if read.name in self.even]
        if not ragged:
            return
        name, vector = self.stem(f"{self.axis.name}_edge"), self.plan.vector
        self.writer.line("// what no whole packet has, once the others are on their way")
        with self.each_run(), self.spelled({self.axis.name: name}):
            self.writer.line(f"const {self.index} {name} = {self.point_of(begin, 'run')};")
            for read in ragged:
                axis = next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))
                conditions = self.outside(read, (k for k in range(len(read.index)) if k != axis))
                conditions = [*conditions, f"!({self.inside_packets(read, axis, name)})"]
                first, low, high = self.ranged(read, axis, name)
                at = self.address(read.array, read.index)
                taken = f"weft::fetch_run<{vector}, 1>({at}, {first}, {low}, {high})"
                self.writer.line(f"if ({' && '.join(conditions)}) {self.buffers[read.name][0]}[run] = {taken};")

    def ranged(self, read: Read, axis: int, name: str) -> tuple[str, str, str]:
        """The first of a run, and between what it is inside: of the points, or of the array where these do not tell."""
        if read.always:
            return name, self.printer.index(self.axis.start), self.end
        return self.printer.index(read.index[axis]), "0", self.printer.index(self.function.array(read.array).shape[axis])

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
        if as_long and (shift == 0 or (shift in (-1, 1) and read.array not in self.stored)):
            taken = self.packet(read, axis, shift, width, name)
            self.writer.line(f"if ({' && '.join([*self.inside(name), *conditions])}) {target} = {taken};")
            return
        if read.name in self.even:
            widest = min(vector, PACKET_BYTES // self.function.array(read.array).dtype.size)
            taken = self.packet(read, axis, self.shift(read) or 0, widest, name)
            conditions = [*conditions, self.inside_packets(read, axis, name)]
            self.writer.line(f"if ({' && '.join(conditions)}) {target} = {taken};")
            return
        if unit:
            first, low, high = self.ranged(read, axis, name)
            known = self.runs_are_packets and shift == 0 and self.facts.vector(read.array) >= vector
            at = self.address(read.array, read.index)
            taken = f"weft::fetch_run<{vector}, {width if known else 0}>({at}, {first}, {low}, {high})"
            only = f"if ({' && '.join(conditions)}) " if conditions else ""
            self.writer.line(f"{only}{target} = {taken};")
            return
        start = self.printer.index(self.axis.start)
        first = name if start == "0" else f"{name} - {factor(start)}"
        size = self.end if start == "0" else f"{self.end} - {factor(start)}"
        if not read.always:
            first, size = self.printer.index(index), self.printer.index(extents[axis])
        at = f"{self.address(read.array, read.index)}, {self.stride(read.array, axis)}"
        only = f"if ({' && '.join(conditions)}) " if conditions else ""
        self.writer.line(f"{only}{target} = weft::fetch_within<{vector}>({at}, {first}, {size});")

    def ring(self) -> None:
        super().ring()
        line, past = self.writer.line, self.past
        for read in self.of_ring():
            if not anywhere(self.function, self.scans, self.plan, read, self.facts):
                continue
            width = PACKET_BYTES // self.function.array(read.array).dtype.size
            own, before, low, high = (self.stem(f"{read.name}_{what}") for what in ("past", "before", "low", "high"))
            line("// packets of what is copied may begin elsewhere")
            line(f"const int32_t {own} = weft::past_packet<{width}>({self.base(read, self.along(read))});")
            line(f"const int32_t {before} = {f'({own} + {width} - {past} % {width}) % {width}' if past else own};")
            line(f"const int64_t {low} = ({width} - {own}) % {width}, {high} = {self.end} - ({self.end} + {own}) % {width};")
            self.loose[read.name] = Loose(before, low, high)

    def along(self, read: Read) -> int:
        """The axis of an array along which its points are those of the row."""
        return next(k for k, i in enumerate(read.index) if self.axis.name in free_names(i))

    def copied(self, tile: str, stage: str) -> None:
        plan, line, stop, past = self.plan, self.writer.line, self.end, self.past
        line("if (threadIdx.x != 0) return;")
        number = f"(tiles - 1 - {tile})" if self.scans.reverse else tile
        line(f"const int64_t first = {number} * {plan.tile}{f' - {past}' if past else ''};")
        outside = f"first < {f'-{past}' if past else '0'}" if self.scans.reverse else f"first >= {stop}"
        with self.writer.block(f"if ({outside})"):
            line(f"arrived[{stage}].arrive();")
            line("return;")
        if any(read.name not in self.loose for read in self.of_ring()):
            line(f"const int64_t last = weft::minimum<int64_t>(first + {plan.tile}, {stop});")
        copies, sizes = [], []
        for read in self.of_ring():
            name, elements = self.slots[read.name]
            size, first, last, only = self.function.array(read.array).dtype.size, "first", "last", ""
            place, pad = f"{name} + {stage} * {elements}", PACKET_BYTES // size
            if read.name in self.loose or shift_of(read, plan.lane):  # with what lies beside the tile
                first, last = self.stem(f"{name}_first"), self.stem(f"{name}_last")
            if read.name in self.loose:
                loose = self.loose[read.name]
                line(f"const int64_t {first} = weft::maximum<int64_t>(first - {pad} - {loose.before}, {loose.low});")
                end = f"first + {plan.tile + 2 * pad} - {loose.before}"
                line(f"const int64_t {last} = weft::minimum<int64_t>({end}, {loose.high});")
                place, only = f"{place} + ({first} - first + {pad} + {loose.before})", f"if ({first} < {last}) "
            elif shift_of(read, plan.lane):
                line(f"const int64_t {first} = weft::maximum<int64_t>(first - {pad}, 0);")
                line(f"const int64_t {last} = weft::minimum<int64_t>(last + {pad}, {stop});")
                place = f"{place} + ({first} - first + {pad})"
            base, bytes_ = self.base(read, self.along(read)), f"({last} - {first}) * {size}"
            sizes.append(f"weft::maximum<int64_t>({last} - {first}, 0) * {size}" if only else bytes_)
            copies.append(f"{only}weft::bulk_load({place}, {base} + {first}, {bytes_}, arrived[{stage}]);")
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
        if read.name in self.loose:
            self.taken_anywhere(read, name, place, shift)
            return
        if not shift:
            run = f"weft::fetch<{plan.vector}, {min(plan.vector, PACKET_BYTES // size)}>({place})"
            self.writer.line(f"if ({' && '.join(self.inside(name))}) weft::unpack({run}, {tile}[run]);")
            return
        place = f"{place} + {PACKET_BYTES // size + shift}"
        run = f"weft::fetch_within<{plan.vector}>({place}, 1, {name} {'+' if shift > 0 else '-'} 1, {self.end})"
        self.writer.line(f"if ({' && '.join(self.inside(name))}) weft::unpack({run}, {tile}[run]);")

    def take(self) -> None:
        if not self.loose:
            super().take()
            return
        most = max(PACKET_BYTES // self.function.array(read.array).dtype.size for read in self.of_ring())
        with self.asked_once(2 * most):
            super().take()

    def taken_anywhere(self, read: Read, name: str, place: str, shift: int) -> None:
        """Take a run whose packets may begin elsewhere; what is in no whole packet of the row, out of memory."""
        plan, (_, tile), line, loose = self.plan, self.buffers[read.name], self.writer.line, self.loose[read.name]
        size = self.function.array(read.array).dtype.size
        further = f" + {shift}" if shift > 0 else f" - {-shift}" if shift else ""
        place = " + ".join([place, *([self.past] if self.past else []), f"{PACKET_BYTES // size}", loose.before]) + further
        at, width = f"{name}{further}", min(plan.vector, PACKET_BYTES // size)
        apart = f"weft::unpack(weft::fetch<{plan.vector}, 1>({place}), {tile}[run]);"
        with self.writer.block(f"if (whole || ({at} >= {loose.low} && {at} + {plan.vector} <= {loose.high}))"):
            if shift:
                line(apart)
            else:
                line(f"if ({loose.before} == 0) weft::unpack(weft::fetch<{plan.vector}, {width}>({place}), {tile}[run]);")
                line(f"else {apart}")
        with self.writer.block(f"else if ({name} > -{plan.vector} && {name} < {self.end})"):
            base = self.base(read, self.along(read))
            line(f"weft::unpack(weft::fetch_within<{plan.vector}>({base} + {at}, 1, {at}, {self.end}), {tile}[run]);")

    @contextmanager
    def asked_once(self, beside: int) -> Iterator[None]:
        """What is written here is there twice once it is compiled: `whole` tells that all of a thread's runs, and so many
        elements beside them, are the row's, so that nothing has to be asked of each.
        """
        line, go, plan = self.writer.line, self.fresh.fresh("go"), self.plan
        with self.writer.block(f"const auto {go} = [&](const bool whole)", "};"):
            yield
        last = (plan.runs - 1) * min(32, plan.threads) * plan.vector + plan.vector
        start = self.printer.index(self.axis.start, SUM)
        low = start if not beside else f"{beside}" if start == "0" else f"{start} + {beside}"
        line(f"if ({self.begin} >= {low} && {self.begin} + {last + beside} <= {self.end}) {go}(true);")
        line(f"else {go}(false);")

    # ---------------------------------------------------------------- points

    def points(self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()) -> None:
        once = bool(self.past and self.loose)
        with self.asked_once(0) if once else nullcontext(), self.each_run():
            self.points_of_one(body, begin, stored, once)

    def points_of_one(
        self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = (), told: bool = False
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
                inside = [] if self.whole else self.inside(name)
                with self.guarded([f"whole || ({' && '.join(inside)})"] if told else inside):
                    body()
                if self.writer.mentions(name, mark):
                    self.writer.insert(mark, f"const {self.index} {name} = {first} + v;")
            with self.spelled({self.axis.name: first}):
                for w, tile in stored:
                    at = self.address(w.array, w.index)
                    if self.whole:
                        line(f"weft::store<{self.width(w.array, vector)}>({at}, {tile});")
                        continue
                    width = self.width(w.array, vector) if self.runs_are_packets and self.facts.vector(w.array) >= vector else 0
                    if (w.array, w.index) == self.anchored:
                        width = min(vector, PACKET_BYTES // self.function.array(w.array).dtype.size)
                    low = self.printer.index(self.axis.start)
                    line(f"weft::store_run<{width}>({at}, {first}, {low}, {self.end}, {tile});")

    @contextmanager
    def guarded(self, conditions: Sequence[str]) -> Iterator[None]:
        if not conditions:
            yield
            return
        with self.writer.block(f"if ({' && '.join(conditions)})"):
            yield

    def in_packets(self, w: Write) -> bool:
        return stored_in_packets(w, self.axis.name, self.facts)

    def begin_states(self, scans: Sequence[Scan]) -> None:
        for s in scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.names[n] = self.stem(n)
                self.writer.line(f"{register_type(type_)} {self.names[n]} = {self.before(n)}[run];")

    # ---------------------------------------------------------------- composition

    def scratch(self, scan: Scan) -> None:
        algebra, stem, warps = self.algebra(scan), scan.names[0], self.plan.threads // 32
        if self.plan.threads > 32:
            places, why = (1, "") if self.plan.single else (2, "  // in turn, so that one barrier does")
            self.writer.line(f"__shared__ {algebra}::Value {self.stem(f'{stem}_scratch')}[{places}][{warps}];{why}")
        if self.plan.shared:
            self.chain(scan, 1)

    def combine(self, s: Scan, own: str) -> None:
        plan, line, algebra, stem = self.plan, self.writer.line, self.algebra(s), s.names[0]
        maps, composed = self.stem(f"{stem}_maps"), self.stem(f"{stem}_composed")
        scratch = f"{self.stem(f'{stem}_scratch')}[{self.turn}]" if plan.threads > 32 else "nullptr"
        call = f"weft::scan_runs<{algebra}, {plan.threads}, {self.backwards}>"
        if plan.delayed:
            line(f"{composed} = {call}({own}, {maps}, {scratch});")
            line(f"{self.stem(f'{stem}_chain')}.tells_of({composed}.all, turn + 1);")
            return
        line(f"{algebra}::Value {maps}[{plan.runs}];  // what the warp's runs before each do")
        line(f"const auto {composed} = {call}({own}, {maps}, {scratch});")

    kept = ("maps", "composed")

    def declare_kept(self, s: Scan) -> None:
        algebra, stem = self.algebra(s), s.names[0]
        maps = f"{self.stem(f'{stem}_maps')}[{self.plan.runs}]"
        self.writer.line(f"{algebra}::Value {maps};  // what the warp's runs before each do")
        self.writer.line(f"weft::Runs<{algebra}> {self.stem(f'{stem}_composed')};")

    def copy_kept(self, s: Scan) -> None:
        line, stem = self.writer.line, s.names[0]
        line(f"{self.algebra(s)}::Value {self.stem(f'{stem}_maps_before')}[{self.plan.runs}];")
        with self.each_run():
            line(f"{self.stem(f'{stem}_maps_before')}[run] = {self.stem(f'{stem}_maps')}[run];")
        line(f"const auto {self.stem(f'{stem}_composed_before')} = {self.stem(f'{stem}_composed')};")

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
            self.asked(s)
        asked = self.stem(f"{stem}_asked")
        line(f"const auto {others} = {chain}.hear({asked}, {self.number}, {parts}, {whole});")
        self.applied(s, f"{others}.before", tiles)
        self.replayed_chain(s, f"{others}.all", tiles, lasts, "")

    # ---------------------------------------------------------------- ends

    def one_of_row(self) -> list[str]:
        return ["threadIdx.x == 0"]

    def fold_places(self) -> int:
        return self.plan.threads // 32 if self.plan.threads > 32 else 0

    def reduced(self, algebra: str, own: str, scratch: str) -> str:
        return f"weft::reduce<{algebra}, {self.plan.threads}>({own}, {scratch})"
