"""Scans whose neighbouring threads have neighbouring rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.scan_body import ScanBody
from weft.emit.values import ZERO
from weft.graph.tile import Map, Read, Scan, Write
from weft.loops.affine import affine
from weft.loops.ir import Const, Expr, free_names, substitute
from weft.plan.fold import PACKET_BYTES, axis_along, is_run, stored_in_packets
from weft.plan.scan import WARP, WORD_BYTES, Laid, in_bulk, laid, ring_reads

KEPT_PLACES = 22  # points of a tile whose places a thread has in registers from turn to turn, at the most


@dataclass
class ScansBeside(ScanBody):
    """Neighbouring threads have neighbouring rows; those below each other share them, each a run of points."""

    group: ClassVar[str] = "blockIdx.x"  # of rows that a block has
    writes_of_points: tuple[Write, ...] = ()  # what is written at the points that are gone through

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stores = "store"  # what writes neighbours
        self.asks = ""  # what spares the question whether a point is the row's
        self.places_of: dict[Laid, str] = {}  # the names of where a thread's points lie in a tile
        self.wide = ""  # rows side by side of a block
        self.member = "threadIdx.x"  # a thread among those that go through points
        self.copier, self.copiers = "threadIdx.x", self.plan.threads  # a thread among those that copy tiles, how many there are
        self.beside = ""  # which of them a thread has

    def rows(self) -> None:
        plan, line = self.plan, self.writer.line
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        lane, side, vector = axes[-1], plan.side, plan.vector
        count, wide = counts[lane.name], side * vector
        tiles, place = self.fresh.fresh(f"{lane.name}_tiles"), self.fresh.fresh(f"{lane.name}_first")
        each = f"{vector} of them" if vector > 1 else "one"
        line(f"// {wide} neighbours along {lane.name}, {plan.threads // side} threads for each; a thread has {each},")
        line(f"// and {plan.runs} points of a tile of {plan.tile}")
        line(f"const int64_t {tiles} = ({count} + {wide - 1}) / {wide};")
        x = self.member if side == plan.threads else f"{self.member} % {side}"
        self.wide = f"{wide}"
        if self.shares_rows():
            self.wide = self.fresh.fresh(f"{lane.name}_wide")
            line(f"const int32_t {self.wide} = int32_t(({count} + {tiles} - 1) / {tiles});  // blocks have about as many")
        first = f"int64_t({self.group} % {tiles}) * {self.wide}"
        if plan.stages:
            line(f"const int64_t {self.stem(f'{lane.name}_block')} = {first};  // of the block's rows")
            first = self.stem(f"{lane.name}_block")
        self.beside = f"{x} * {vector}" if vector > 1 else x
        if self.goes_along():
            line(f"const int32_t rows_here = int32_t(weft::minimum<int64_t>({count} - {first}, {self.wide}));")
            own_row, self.beside = self.beside, self.stem(f"{lane.name}_beside")
            line(f"const bool here = int32_t({own_row}) < rows_here;  // else it goes along with the last, and writes nothing")
            line(f"const int32_t {self.beside} = here ? int32_t({own_row}) : rows_here - {vector};")
        plain = vector == 1 and lane.start == ZERO
        own = self.declare(lane.name) if plain else place
        line(f"const int64_t {own} = {first} + {self.beside};")
        if not self.goes_along():
            line(f"const bool here = {own} < {count};")
        self.first = own if vector > 1 else ""
        if vector == 1 and not plain:  # in vectors rows start at 0
            line(f"const int64_t {self.declare(lane.name)} = {self.printer.index(lane.start, SUM)} + {own};")
        self.places(axes[:-1], f"int64_t({self.group} / {tiles})", counts)
        self.all_rows = " * ".join(counts[a.name] for a in axes)
        self.place, self.lane_count = own, count
        self.row = "{}" if len(axes) == 1 else f"int64_t({self.group} / {tiles}) * {count} + {{}}"
        alone = vector == 1 and not plan.stages  # whose addresses are of one row
        self.hoist(self.everything(), [a for a in plan.rows if a != lane.name or alone])
        if side < plan.threads:
            by = f" * {plan.runs}" if plan.runs > 1 else ""
            line(f"const int64_t {self.stem(f'{self.axis.name}_own')} = {self.member} / {side}{by};")

    def goes_along(self) -> bool:
        """Whether threads without a row go along with the last one. Where rows are aligned, most of those are whole warps, and
        have no points instead: nothing that is written needs to be asked about.
        """
        return bool(self.plan.stages) and any(
            self.laid(read).anywhere for read in ring_reads(self.function, self.scans, self.plan, self.facts)
        )

    def shares_rows(self) -> bool:
        """Whether blocks have as many rows side by side as the others, where they could have more: rows begin anywhere."""
        if self.plan.full or not self.plan.stages or self.plan.vector > 1:
            return False
        reads = ring_reads(self.function, self.scans, self.plan, self.facts)
        return all(self.laid(read).anywhere for read in reads)

    def own(self, name: str) -> str:
        return f"{name}[v]" if self.first else name

    def of_row(self, name: str) -> str:
        return self.own(name)

    def declared(self, type_: str, name: str) -> None:
        self.writer.line(f"{type_} {name}{self.dimension()};")

    def dimension(self) -> str:
        return f"[{self.plan.vector}]" if self.first else ""

    def of_each_row(self, type_: str, name: str) -> None:
        self.declared(type_, name)

    def starts(self, type_: str, name: str, init: Expr) -> None:
        self.writer.line(f"{type_} {name}{self.dimension()} = {{}};")
        if init != Const(0, init.type) and init != Const(0.0, init.type):
            with self.each_row():
                self.writer.line(f"{self.asked_row()}{self.own(name)} = {self.printer.exact(init)};")

    @contextmanager
    def each_row(self) -> Iterator[None]:
        if not self.first:
            yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.plan.vector}; ++v)"):
            name, mark = self.declare(self.plan.lane), self.writer.mark()
            yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.first} + v;")

    def value_of_row(self, value: Read | Map) -> None:
        if self.plan.lane not in value.axes:
            super().value_of_row(value)
            return
        let, name = self.let(value), self.stem(value.name)
        self.writer.cite(value.location)
        self.writer.line(f"{register_type(value.type)} {name}{self.dimension() or ''} = {{}};")
        with self.each_row(), self.writer.block("if (here)") if self.asked_row() else nullcontext():
            self.writer.line(f"{self.own(name)} = {self.printer.value(let.value)};")
        self.names[value.name] = self.own(name)

    def asked_row(self) -> str:
        """What asks whether a thread has a row, where else it has none to go along with."""
        return "" if self.goes_along() else "if (here) "

    def row_stop(self) -> None:
        if self.goes_along():
            super().row_stop()
            return
        self.end = self.stem(f"{self.axis.name}_stop")
        start, stop = self.printer.index(self.axis.start), self.printer.index(self.axis.stop, SUM)
        self.writer.line(f"const int64_t {self.end} = here ? {stop} : {start};  // what lies beyond has no points")

    # ---------------------------------------------------------------- reads

    def ahead(self, read: Read) -> bool:
        lanes = [f for f in map(affine, read.index) if f is not None and f.coefficient(self.plan.lane)]
        beside = len(lanes) <= 1 and all(f.coefficient(self.plan.lane) == 1 for f in lanes)
        return super().ahead(read) and (not self.first or beside)

    def buffer(self, read: Read) -> tuple[str, str, str]:
        step = "" if self.plan.delayed else "[step]"
        if not self.first or self.plan.lane not in read.axes:
            return "{}", "", step
        return f"weft::Run<{{}}, {self.plan.vector}>", f"[{self.plan.vector}]", f"{step}[v]"

    def fetched(self, read: Read, target: str, name: str) -> None:
        conditions = [*self.inside(name), *self.outside(read, range(len(read.index)))]
        if not self.first or self.plan.lane not in read.axes:
            taken = self.element(read.array, read.index)
        else:
            vector = self.plan.vector
            axis = next(k for k, i in enumerate(read.index) if self.plan.lane in free_names(i))
            with self.spelled({self.plan.lane: self.first}):
                at = self.address(read.array, read.index)
            if (read.array, axis) in self.facts.unit:
                plain = is_run(read.array, read.index, self.plan.lane, self.facts)
                taken = f"weft::fetch<{vector}, {self.width(read.array, vector) if plain else 1}>({at})"
            else:
                taken = f"weft::fetch_strided<{vector}>({at}, {self.stride(read.array, axis)})"
        if not read.always:
            self.writer.line(f"{target} = {{}};")
        self.writer.line(f"if ({' && '.join(conditions)}) {target} = {taken};")

    def ring(self) -> None:
        super().ring()
        plan, line = self.plan, self.writer.line
        loose = [read for read in self.of_ring() if self.laid(read).anywhere]
        for read in self.of_ring():
            own = self.laid(read)
            if own.anywhere or own in self.places_of:
                continue
            self.places_of[own] = self.fresh.fresh(f"{self.axis.name}_slot")
            down = f"{self.member} / {plan.side} * {plan.runs * own.pitch + own.skew} + " if plan.side < plan.threads else ""
            line(f"const int32_t {self.places_of[own]} = {down}{self.beside};  // of its first point in a tile")
        dense = [self.dense(read) for read in loose if self.may_be_dense(read)]
        if plan.full and len(dense) == len(loose) > 0:
            line(f"const bool {self.stem('at_once')} = {' && '.join(dense)};  // the points of a tile are one run")
        for read in loose:
            self.loosely(read)

    def laid(self, read: Read) -> Laid:
        return laid(self.function, self.scans, self.plan, read, self.facts)

    def loosely(self, read: Read) -> None:
        """How far rows are past a frame, how far points are from each other in a tile, and where a thread's begin."""
        self.lies_loosely(read.name, read.array, read.index, self.laid(read))

    def lies_loosely(self, name: str, array: str, index: tuple[Expr, ...], own: Laid) -> None:
        plan, line = self.plan, self.writer.line
        past, pace, pitch = (self.stem(f"{name}_{what}") for what in ("past", "pace", "pitch"))
        start = tuple(substitute(i, {self.axis.name: ZERO}) for i in index)
        with self.spelled({plan.lane: self.stem(f"{plan.lane}_block")}):
            at = self.address(array, start)
        line(f"const uint32_t {past} = weft::past_packet<{own.frame}>({at}), {pace} = {self.pace(array, index)};")
        line(f"const int32_t {pitch} = {self.pitch_of(own, pace)};  // from a point to the next one in a tile")
        self.first_places(name, f"{self.member} / {plan.side}")

    def pitch_of(self, own: Laid, pace: str) -> str:
        pitch_of = "one_pitch_of" if not self.plan.shared or self.plan.runs > KEPT_PLACES else "pitch_of"
        found = f"weft::{pitch_of}<{own.frame}>({own.least}, {pace})"
        return f"{self.stems['at_once']} ? {pace} : {found}" if "at_once" in self.stems else found

    def first_places(self, name: str, run: str) -> None:
        """Where the first point of a run lies in a tile."""
        plan, slot, pitch = self.plan, self.stem(f"{name}_slot"), self.stem(f"{name}_pitch")
        down = f"{run}{f' * {plan.runs}' if plan.runs > 1 else ''} * {pitch} + "
        place = f"{down if plan.side < plan.threads else ''}{self.beside}"
        self.writer.line(f"const int32_t {slot} = {place};  // of its first point in a tile")

    def dense(self, read: Read) -> str:
        """Name whether the points of a read end where the next begin."""
        along, lane = (axis_along(read.index, a) for a in (self.axis.name, self.plan.lane))
        name, extent = self.stem(f"{read.name}_dense"), self.printer.index(self.function.array(read.array).shape[lane])
        asked = f"{self.stride(read.array, along)} == {extent}"
        self.writer.line(f"const bool {name} = {asked};  // points end where the next begin")
        return name

    def may_be_dense(self, read: Read) -> bool:
        """Whether it can be known that what lies beside a row is the array's, and inside of it."""
        forms = [f for f in map(affine, read.index) if f is not None and self.axis.name in f.names]
        if [f.coefficient(self.axis.name) for f in forms] != [1]:
            return False
        along = axis_along(read.index, self.axis.name)
        return not self.outside(read, (k for k in range(len(read.index)) if k != along))

    def copying(self) -> int:
        return self.copiers

    def copied(self, tile: str, stage: str) -> None:
        plan, line = self.plan, self.writer.line
        number = f"(tiles - 1 - {tile})" if self.scans.reverse else tile
        origin = self.printer.index(self.origin, SUM)
        line(f"const int64_t first = {'' if origin == '0' else f'{origin} + '}{number} * {plan.tile};")
        copies: dict[Laid, list[Read]] = {}
        for read in self.of_ring():
            copies.setdefault(self.laid(read), []).append(read)
        for own, reads in copies.items():
            with self.writer.block("") if len(copies) > 1 else nullcontext():
                (self.copied_anywhere if own.anywhere else self.copied_alike)(own, reads, stage)
        line(f"weft::arrive_on_copies(arrived[{stage}]);")

    def copied_alike(self, laid: Laid, reads: Sequence[Read], stage: str) -> None:
        """Packets of neighbours: neighbouring threads bring those of a point, then those of the next ones."""
        plan, line, elements = self.plan, self.writer.line, laid.packet
        beside = plan.wide // elements  # copies of a point; a power of two, as the threads are
        step, turns = self.copiers // beside, -(-plan.tile * beside // self.copiers)
        own, left = self.stem(f"{plan.lane}_copied"), self.stem("left")
        by = f" * {elements}" if elements > 1 else ""
        line(f"const int32_t place = {self.copier} / {beside}, beside = {self.copier} % {beside}{by};")
        line(f"const int64_t {own} = {self.stem(f'{plan.lane}_block')} + beside;")
        stop = self.printer.index(self.axis.stop, SUM)
        line(f"const int32_t {left} = {own} < {self.lane_count} ? {self.points_from('first', stop, plan.tile)} : 0;")
        sources = []
        for read in reads:
            pointer = self.stem(f"{read.name}_from")
            sources.append(pointer)
            with self.spelled({self.axis.name: "(first + place)", plan.lane: own}):
                type_ = memory_type(self.function.array(read.array).dtype)
                line(f"const {type_}* {pointer} = {self.address(read.array, read.index)};")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t k = 0; k < {turns}; ++k)"):
            further = f"place + k * {step}"
            with self.writer.block(f"if ({' && '.join(self.copied_points(further, left))})"):
                line(f"const int32_t slot = {self.slot(laid, reads[0], stage, further)} + beside;")
                for read, source in zip(reads, sources, strict=True):
                    name, _ = self.slots[read.name]
                    inside = self.inside_at(read, further, own)
                    self.writer.cite(read.location)
                    if inside:
                        line(f"weft::copy_async_or_zero<{PACKET_BYTES}>({name} + slot, {source}, {' && '.join(inside)});")
                    else:
                        line(f"weft::copy_async<{PACKET_BYTES}>({name} + slot, {source});")
            for read, source in zip(reads, sources, strict=True):
                line(f"{source} += {f'{step} * ' if step > 1 else ''}{self.pace(read.array, read.index)};")

    def copied_anywhere(self, laid: Laid, reads: Sequence[Read], stage: str) -> None:
        """The same of rows that begin anywhere: packets that have elements of them."""
        plan, line = self.plan, self.writer.line
        block, left = self.stem(f"{plan.lane}_block"), self.stem("left")
        stop = self.printer.index(self.axis.stop, SUM)
        line(f"const int32_t {left} = {self.points_from('first', stop, plan.tile)};")
        for read in reads:
            type_, (rows, to) = memory_type(self.function.array(read.array).dtype), self.tile_of(read)
            with self.spelled({self.axis.name: "first", plan.lane: block}):
                line(f"const {type_}* const {rows} = {self.address(read.array, read.index)};")
            past, pace = self.stem(f"{read.name}_past"), self.stem(f"{read.name}_pace")
            name, elements = self.slots[read.name]
            there = f"({past} + uint32_t(first) * {pace}) % {laid.frame}"
            line(f"{type_}* const {to} = {name} + {stage} * {elements} + {there};")
        if self.in_bulk(laid):
            if "at_once" in self.stems:
                with self.writer.block(f"if ({self.stems['at_once']})"):
                    self.run_at_once(reads, stage)
            with self.writer.block("else" if "at_once" in self.stems else ""):
                if not all(map(self.may_be_dense, reads)):
                    self.runs_of_points(reads, stage, left)
                    return
                line(f"const bool whole = {' && '.join(c for read in reads for c in self.among_others(read, laid.packet))};")
                with self.writer.block("if (whole)"):
                    self.whole_points(laid, reads, stage)
                with self.writer.block("else"):
                    self.runs_of_points(reads, stage, left)
        elif not all(map(self.may_be_dense, reads)):
            self.packets_anywhere(laid, reads, left)
        else:
            line(f"const bool whole = {' && '.join(c for read in reads for c in self.among_others(read, laid.packet))};")
            with self.writer.block("if (whole)"):
                self.whole_packets(laid, reads)
            with self.writer.block("else"):
                self.packets_anywhere(laid, reads, left)

    def tile_of(self, read: Read) -> tuple[str, str]:
        """Names of where the first point of a tile lies, in memory and in the ring."""
        return self.stem(f"{read.name}_rows"), self.stem(f"{read.name}_to")

    def point_to(self, read: Read) -> str:
        """Where a point of a tile, whose name is `place`, lies in the ring."""
        return f"{self.stem(f'{read.name}_to')} + place * {self.stem(f'{read.name}_pitch')}"

    def along_at(self, read: Read, point: str) -> tuple[str, str]:
        """A read's subscript along the scanned axis, at a point, and what it has to be below."""
        along = axis_along(read.index, self.axis.name)
        with self.spelled({self.axis.name: point}):
            return self.printer.index(read.index[along], SUM), self.printer.index(self.function.array(read.array).shape[along])

    def among_others(self, read: Read, elements: int) -> list[str]:
        """Conditions that a whole tile, and the packets around it, lie inside of an array without gaps."""
        index, extent = self.along_at(read, "first")
        dense = self.stem(f"{read.name}_dense")
        return [dense, f"{index} >= {elements}", f"{index} + {self.plan.tile + elements} <= {extent}"]

    def in_bulk(self, laid: Laid) -> bool:
        """Whether bulk copies bring the rows of a point: of few bytes each they would be too many."""
        return laid.anywhere and (in_bulk(self.plan, laid.size) or "at_once" in self.stems)

    def run_at_once(self, reads: Sequence[Read], stage: str) -> None:
        """The points of a tile as one run."""
        line, tile = self.writer.line, self.plan.tile
        for read in reads:
            (rows, to), pitch = self.tile_of(read), self.stem(f"{read.name}_pitch")
            index, extent = self.along_at(read, "first")
            low, high = (self.stem(f"{read.name}_{what}") for what in ("low", "high"))
            line(f"const int64_t {low} = weft::maximum<int64_t>(-({index}), 0);  // the first point that is there")
            line(f"const int64_t {high} = weft::minimum<int64_t>({extent} - ({index}), {tile});")
            self.writer.cite(read.location)
            with self.writer.block(f"if ({self.copier} == 0)"):
                count = f"int32_t(({high} - {low} - 1) * {pitch}) + rows_here"
                before, after = f"({index} + {low}) * {pitch}", f"({extent} - ({index}) - {high}) * {pitch}"
                line(f"weft::copy_run({to} + {low} * {pitch}, {rows} + {low} * {pitch}, {count},")
                line(f"               {before}, {after}, arrived[{stage}]);")
            if not read.always:
                bounds = f"{tile} * {pitch}, {low} * {pitch}, {high} * {pitch}"
                line(f"weft::zero_but({to}, {bounds}, {self.copier}, {self.copiers});")

    def whole_points(self, laid: Laid, reads: Sequence[Read], stage: str) -> None:
        """Packets of which none leaves its array: as many for each point, by as many warps as there are."""
        plan, line, elements = self.plan, self.writer.line, laid.packet
        line(f"const uint32_t bytes = (rows_here + {2 * (elements - 1)}) / {elements} * {PACKET_BYTES};  // of a point")
        line(f"if ({self.copier} == 0) arrived[{stage}].expect({plan.tile * len(reads)} * bytes);")
        line("#pragma unroll 1")
        with self.writer.block(f"for (int32_t place = {self.first_copied()}; place < {plan.tile}; place += {self.copiers})"):
            for read in reads:
                rows, pace = self.stem(f"{read.name}_rows"), self.pace(read.array, read.index)
                self.writer.cite(read.location)
                packets = f"weft::packet_of({self.point_to(read)}), weft::packet_of({rows} + place * {pace})"
                line(f"weft::bulk_load({packets}, bytes, arrived[{stage}]);")

    def first_copied(self) -> str:
        """The first point that a thread copies: threads of all warps copy points side by side."""
        return f"threadIdx.x / {WARP} + threadIdx.x % {WARP} * {self.plan.threads // WARP}"

    def runs_of_points(self, reads: Sequence[Read], stage: str, left: str) -> None:
        """The same at the ends of an array, and of rows with gaps between them."""
        plan, line, block = self.plan, self.writer.line, self.stem(f"{self.plan.lane}_block")
        line("#pragma unroll 1")
        with self.writer.block(f"for (int32_t place = {self.first_copied()}; place < {plan.tile}; place += {self.copiers})"):
            line(f"if (!({' && '.join(self.copied_points('place', left))})) continue;")
            for read in reads:
                (rows, _), shape = self.tile_of(read), self.function.array(read.array).shape
                to, pace = self.point_to(read), self.pace(read.array, read.index)
                lane = axis_along(read.index, plan.lane)
                with self.spelled({plan.lane: block}):
                    before = self.printer.index(read.index[lane], SUM)
                after = f"{self.printer.index(shape[lane], SUM)} - ({before} + rows_here)"
                if self.may_be_dense(read):
                    index, extent = self.along_at(read, "(first + place)")
                    dense = self.stem(f"{read.name}_dense")
                    before += f" + ({dense} && {index} > 0 ? {pace} : 0)"
                    after += f" + ({dense} && {index} + 1 < {extent} ? {pace} : 0)"
                self.writer.cite(read.location)
                inside = self.inside_at(read, "place", block)
                with self.writer.block(f"if ({' && '.join(inside)})") if inside else nullcontext():
                    line(f"weft::copy_run({to}, {rows} + place * {pace}, rows_here,")
                    line(f"               {before}, {after}, arrived[{stage}]);")
                if inside:
                    with self.writer.block("else"):
                        line(f"for (int32_t k = 0; k < rows_here; ++k) ({to})[k] = {{}};")

    def whole_packets(self, laid: Laid, reads: Sequence[Read]) -> None:
        """Packets of which none leaves its array, a few a point, each of them by a thread."""
        line, tile, elements, sources = self.writer.line, self.plan.tile, laid.packet, []
        lanes = self.packets_of_point(laid)
        points = self.copiers // lanes
        needed = [f"{self.copier} < {points * lanes}"] if self.copiers % lanes else []
        line(f"const int32_t place = {self.copier} / {lanes}, beside = {self.copier} % {lanes} * {elements};")
        for read in reads:
            (rows, to), pace = self.tile_of(read), self.pace(read.array, read.index)
            source, slot, pitch = (self.stem(f"{read.name}_{x}") for x in ("from", "goes", "pitch"))
            type_ = memory_type(self.function.array(read.array).dtype)
            line(f"const {type_}* {source} = {rows} + place * {pace};")
            line(f"{type_}* {slot} = {to} + place * {pitch};")
            sources.append((read, source, slot, pitch, pace))
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t k = 0; k < {-(-tile // points)}; ++k)"):
            asked = [*needed, f"place + k * {points} < {tile}", f"beside < rows_here + {elements - 1}"]
            with self.writer.block(f"if ({' && '.join(asked)})"):
                for read, source, slot, _, _ in sources:
                    self.writer.cite(read.location)
                    to, from_ = f"weft::packet_of({slot}) + beside", f"weft::packet_of({source}) + beside"
                    line(f"weft::copy_async<{PACKET_BYTES}>({to}, {from_});")
            for _, source, slot, pitch, pace in sources:
                line(f"{source} += {points} * {pace};")
                line(f"{slot} += {points} * {pitch};")

    def packets_of_point(self, laid: Laid) -> int:
        """Packets that have elements of a point's rows, at the most."""
        return -(-(self.plan.wide + laid.packet - 1) // laid.packet)

    def packets_anywhere(self, laid: Laid, reads: Sequence[Read], left: str) -> None:
        """Packets of which some may have elements that are not the array's."""
        line, block, beside = self.writer.line, self.stem(f"{self.plan.lane}_block"), self.packets_of_point(laid)
        asked = " && ".join(self.copied_points("place", left))
        line("#pragma unroll 1")
        over = f"for (int32_t k = {self.copier}; k < {self.plan.tile * beside}; k += {self.copiers})"
        with self.writer.block(over):
            line(f"const int32_t place = k / {beside}, beside = k % {beside} * {laid.packet};")
            line(f"if (!({asked})) continue;")
            for read in reads:
                self.writer.cite(read.location)
                (rows, to), before = self.tile_of(read), self.stem(f"{read.name}_before")
                lane = axis_along(read.index, self.plan.lane)
                extent = self.printer.index(self.function.array(read.array).shape[lane], SUM)
                pitch, pace = self.stem(f"{read.name}_pitch"), self.pace(read.array, read.index)
                line(f"const int32_t {before} = beside - weft::past_packet<{laid.packet}>({rows} + place * {pace});")
                inside = self.inside_at(read, "place", block)
                high = f"{extent} - ({block} + {before})"
                high = f"{' && '.join(inside)} ? {high} : 0" if inside else high
                from_, to = f"{rows} + place * {pace} + {before}", f"{to} + place * {pitch} + {before}"
                line(f"if ({before} < rows_here) weft::copy_packet({to}, {from_}, -({block} + {before}), {high});")

    def begun_copies(self) -> None:
        loose = [read for read in self.of_ring() if self.laid(read).anywhere]
        if any(self.laid(read).size < WORD_BYTES or not read.always for read in loose):
            self.writer.line("__syncthreads();  // what threads have brought themselves is there")

    def before_copies(self) -> None:
        if any(self.in_bulk(self.laid(read)) for read in self.of_ring()):
            self.writer.line("weft::fence_proxy_async();  // what threads have brought comes before bulk copies to its place")

    def copied_points(self, further: str, left: str) -> list[str]:
        """Conditions that something is copied of a point of a tile."""
        below = [f"first + {further} >= {self.printer.index(self.axis.start)}"] if self.axis.start != self.origin else []
        return [f"{further} < {left}", *below]

    def inside_at(self, read: Read, further: str, row: str) -> list[str]:
        with self.spelled({self.axis.name: f"(first + {further})", self.plan.lane: row}):
            return self.outside(read, range(len(read.index)))

    def slot(self, laid: Laid, read: Read, stage: str, point: str) -> str:
        """Where a point lies in the ring."""
        skew = f" + {factor(point)} / {self.plan.runs} * {laid.skew}" if laid.skew else ""
        return f"{stage} * {self.slots[read.name][1]} + {factor(point)} * {laid.pitch}{skew}"

    def pace(self, array: str, index: Sequence[Expr]) -> str:
        """Elements from a point to the next one."""
        forms = [(k, f.coefficient(self.axis.name)) for k, f in enumerate(map(affine, index)) if f is not None]
        terms = [f"{f'{by} * ' if by != 1 else ''}{self.stride(array, k)}" for k, by in forms if by]
        return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"

    def points_from(self, first: str, stop: str, most: int) -> str:
        """How many of so many points from one on are inside the row, at least up to the first one that is outside."""
        count = f"int32_t(weft::minimum<int64_t>(weft::maximum<int64_t>({stop} - {first}, 0), {most}))"
        if self.scans.reverse and self.plan.shared:  # of tiles before the first one there is nothing
            return f"({first} < {self.printer.index(self.origin)} ? 0 : {count})"
        return count

    def begun(self) -> None:
        count = self.points_from(self.begin, self.end, self.plan.runs)
        self.writer.line(f"const int32_t {self.stem('points')} = {count};  // of its own")

    def staged(self) -> None:
        for read in self.of_ring():
            own = self.laid(read)
            if own.anywhere:
                (ring, elements), type_ = self.slots[read.name], memory_type(self.function.array(read.array).dtype)
                here, past, pace, slot = (self.stem(f"{read.name}_{what}") for what in ("here", "past", "pace", "slot"))
                first = self.begin
                if self.plan.side < self.plan.threads:
                    first += f" - {self.stem(f'{self.axis.name}_own')}"
                there = f"({past} + uint32_t({first}) * {pace}) % {own.frame}"
                self.writer.line(f"const {type_}* const {here} = {ring} + stage * {elements} + {slot} + {there};")

    def within(self, name: str) -> list[str]:
        """Conditions that a step is a point of the row's."""
        below = [f"{name} >= {self.printer.index(self.axis.start)}"] if self.axis.start != self.origin else []
        return [*below, f"step < {self.stem('points')}"]

    def declare_tiles(self) -> None:
        if not self.plan.delayed:
            super().declare_tiles()

    def take(self) -> None:
        """Where the tile stays for a turn more, points are taken out of the ring as they are gone through."""
        if self.plan.delayed:
            return
        line, name = self.writer.line, self.stem(f"{self.axis.name}_there")
        with self.asked_once():
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t step = 0; step < {self.plan.runs}; ++step)"):
                conditions = self.within(name)
                if len(conditions) > 1:
                    line(f"const {self.index} {name} = {self.point_of(self.begin, 'step')};")
                with self.writer.block(f"if ({self.asked_of(conditions)})"):
                    for read in self.of_ring():
                        self.writer.cite(read.location)
                        for text in self.taken_here(read, "[step]"):
                            line(text)

    def take_again(self) -> None:
        self.take()

    def taken_here(self, read: Read, at: str) -> list[str]:
        """Take a point out of the ring to this place of the read's tile; a declaration of it where there is none."""
        plan, (_, tile), slot = self.plan, self.buffers[read.name], self.slot_of(read)
        type_ = register_type(self.function.array(read.array).dtype)
        if not self.first:
            array, place = slot.split(" + ", 1)
            return [f"{'' if at else f'const {type_} '}{tile}{at} = {type_}({array}[{place}]);"]
        taken = f"weft::unpack(weft::fetch<{plan.vector}, {plan.vector}>({slot}), {tile}{at});"
        return [taken] if at else [f"{type_} {tile}[{plan.vector}];", taken]

    def slot_of(self, read: Read) -> str:
        """Where the point of a step lies in the ring."""
        (ring, elements), own = self.slots[read.name], self.laid(read)
        if own.anywhere:
            return f"{self.stem(f'{read.name}_here')} + step * {self.stem(f'{read.name}_pitch')}"
        return f"{ring} + stage * {elements} + {self.places_of[own]} + step * {own.pitch}"

    # ---------------------------------------------------------------- points

    def points(self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()) -> None:
        with self.writer.block("") if self.scans.levels[1:] else nullcontext():  # states have their names in each pass
            begin()
            with self.asked_once() if self.plan.stages else nullcontext(""):
                self.steps(body, self.each_row, stored)

    @contextmanager
    def asked_once(self) -> Iterator[None]:
        """What is written here is there twice once it is compiled: `whole` tells that all of a thread's points are the
        row's, so that what they need comes out of shared memory side by side.
        """
        line, go = self.writer.line, self.fresh.fresh("go")
        with self.writer.block(f"const auto {go} = [&](const bool whole)", "};"):
            self.asks = "whole || "
            yield
            self.asks = ""
        below = [f"{self.begin} >= {self.printer.index(self.axis.start)}"] if self.axis.start != self.origin else []
        whole = [f"{self.stem('points')} == {self.plan.runs}", *below]
        line(f"if ({' && '.join(whole)}) {go}(true);")
        line(f"else {go}(false);")

    def asked_of(self, conditions: Sequence[str]) -> str:
        """What is asked of a point, where that has not been answered for all of a thread's."""
        asked = " && ".join(conditions)
        return f"{self.asks}({asked})" if self.asks and len(conditions) > 1 else f"{self.asks}{asked}"

    def points_of_one(self, body: Callable[[], None], begin: Callable[[], None]) -> None:
        begin()
        self.steps(body, nullcontext)

    def steps(self, body: Callable[[], None], each: Callable[[], Any], stored: Sequence[tuple[Write, str]] = ()) -> None:
        runs, vector, line, name = self.plan.runs, self.plan.vector, self.writer.line, self.declare(self.axis.name)
        order, begin = f"int32_t step = 0; step < {runs}; ++step", self.begin
        if self.scans.reverse:
            order, begin = f"int32_t step = {runs - 1}; step >= 0; --step", f"({begin} + {runs - 1})"
        pointers = dict(self.pointers)
        walked = self.walked(begin, stored) if each == self.each_row else []
        line("#pragma unroll")
        with self.writer.block(f"for ({order})"):
            mark = self.writer.mark()
            with self.writer.block(f"if ({self.asked_of(self.within(name))})"):
                inner = self.writer.mark()
                for w, tile in stored:
                    line(f"{register_type(w.value.type)} {tile}[{vector}];")
                with each():
                    body()
                with self.spelled({self.plan.lane: self.first}):
                    for w, tile in stored:
                        at = self.address(w.array, w.index).removesuffix(" + 0")
                        asked = "if (here) " if self.goes_along() else ""
                        line(f"{asked}weft::{self.stores}<{self.width(w.array, vector)}>({at}, {tile});")
                for read in reversed(self.of_ring()) if self.plan.delayed else ():
                    if self.writer.mentions(self.buffers[read.name][1], inner):
                        for text in reversed(self.taken_here(read, "")):
                            self.writer.insert(inner, text)
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.point_of(self.begin, 'step')};")
            for w in walked:
                pointer, _ = self.pointers[w.array]
                line(f"{pointer} {'-' if self.scans.reverse else '+'}= {self.step_of(w)};")
        self.pointers = pointers

    def step_of(self, w: Write) -> str:
        """From where something is written of a point to where it is of the next one."""
        return self.pace(w.array, w.index)

    def walked(self, begin: str, stored: Sequence[tuple[Write, str]]) -> list[Write]:
        """Declare where what is written at every point goes from the first one on, and have it written there."""
        packets = [w for w, _ in stored]
        found = []
        for w in self.writes_of_points if self.plan.stages else ():
            alone = sum(x.array == w.array for x in (*self.scans.writes, *self.scans.last)) == 1
            alone = alone and not any(isinstance(v, Read) and v.array == w.array for v in self.values)
            forms = [affine(i) for i in w.index]
            names = {n for f in forms if f is not None for n in f.names} - {*self.plan.rows, self.axis.name}
            steps = [f.coefficient(self.axis.name) for f in forms if f is not None and self.axis.name in f.names]
            if not alone or None in forms or names & self.made.keys() or steps != [1] or (self.first and w not in packets):
                continue
            pointer = self.fresh.fresh(f"{w.array}_to")
            with self.spelled({self.axis.name: begin, self.plan.lane: self.first or self.names[self.plan.lane]}):
                at = self.address(w.array, w.index)
            self.writer.line(f"{memory_type(self.function.array(w.array).dtype)}* {pointer} = {at};")
            self.pointers[w.array] = (pointer, frozenset(range(len(w.index))))
            found.append(w)
        return found

    def finish(self, done: Sequence[Scan]) -> None:
        self.writes_of_points = self.scans.writes
        super().finish(done)
        self.writes_of_points = ()

    def write(self, w: Write) -> None:
        asked = self.goes_along() and w in self.writes_of_points
        with self.writer.block("if (here)") if asked else nullcontext():
            super().write(w)

    def in_packets(self, w: Write) -> bool:
        return bool(self.first) and stored_in_packets(w, self.plan.lane, self.facts)

    def begin_states(self, scans: Sequence[Scan]) -> None:
        for s in scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.declared(register_type(type_), self.stem(n))
                self.names[n] = self.own(self.stem(n))
                with self.each_row():
                    self.writer.line(f"{self.names[n]} = {self.own(self.before(n))};")

    # ---------------------------------------------------------------- composition

    def scratch(self, scan: Scan) -> None:
        plan = self.plan
        if plan.side < plan.threads:
            name = self.stem(f"{scan.names[0]}_scratch")
            places = plan.vector * plan.side * (plan.threads // max(32, plan.side))
            self.writer.line(f"__shared__ {self.algebra(scan)}::Value {name}[2][{places}];  // in turn")
        if plan.shared:
            self.chain(scan, plan.side, plan.vector)

    kept: ClassVar[tuple[str, ...]] = ("composed",)

    def declare_kept(self, s: Scan) -> None:
        self.declared(f"weft::Prefix<{self.algebra(s)}>", self.stem(f"{s.names[0]}_composed"))

    def copy_kept(self, s: Scan) -> None:
        composed = self.stem(f"{s.names[0]}_composed")
        before = self.stem(f"{s.names[0]}_composed_before")
        if not self.first:
            self.writer.line(f"const auto {before} = {composed};")
            return
        self.declared(f"weft::Prefix<{self.algebra(s)}>", before)
        self.writer.line("#pragma unroll")
        self.writer.line(f"for (int32_t v = 0; v < {self.plan.vector}; ++v) {before}[v] = {composed}[v];")

    def combine(self, s: Scan, own: str) -> None:
        plan, line, algebra, stem = self.plan, self.writer.line, self.algebra(s), s.names[0]
        composed = self.stem(f"{stem}_composed")
        scratch = f"{self.stem(f'{stem}_scratch')}[{self.turn}]" if plan.side < plan.threads else "nullptr"
        if not plan.delayed:
            line(f"weft::Prefix<{algebra}> {composed}{self.dimension()};")
        line(f"weft::scan_down<{self.down(algebra)}>({own}, {composed}, {scratch});")
        if plan.delayed:
            self.told(s, composed)

    def down(self, *first: str) -> str:
        """How threads lie one below the other, as parameters of a template."""
        return ", ".join((*first, f"{self.plan.side}", f"{self.plan.threads}", self.backwards))

    def told(self, s: Scan, composed: str) -> None:
        """Tell the other blocks what the tile does."""
        stem, line = s.names[0], self.writer.line
        totals, chain = self.stem(f"{stem}_totals"), self.stem(f"{stem}_chain")
        if not self.first:
            line(f"{chain}.tells_of({composed}.all, turn + 1);")
            return
        line(f"{self.algebra(s)}::Value {totals}[{self.plan.vector}];")
        with self.each_row():
            line(f"{totals}[v] = {composed}[v].all;")
        line(f"{chain}.tells_of({totals}, turn + 1);")

    def composed(self, s: Scan, own: str) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        types = [register_type(t) for t in s.types]
        lasts = [self.names[r] for r in s.results]
        befores = [self.before(n) for n in s.names]
        composed, finite = self.stem(f"{stem}_composed"), self.stem(f"{stem}_finite")
        tiles = [self.stem(f"{n}_tile") for n in s.names]
        for t, tile, b in zip(types, tiles, befores, strict=True):
            self.declared(t, tile)
            self.declared(t, b)
        if plan.shared:
            self.exchanged(s, composed)
        if self.may_overflow(s):
            line(f"bool {finite} = {self.stem(f'{stem}_whole') if plan.shared else 'true'};")
        with self.each_row():
            own_tiles, own_befores = [self.own(x) for x in tiles], [self.own(b) for b in befores]
            for tile, last in zip(own_tiles, lasts, strict=True):
                line(f"{tile} = {last};  // before the tile")
            if plan.shared:
                others = self.own(self.stem(f"{stem}_others"))
                self.applied(s, f"{others}.before", own_tiles)
                self.replayed_chain(s, f"{others}.all", own_tiles, lasts, ", v" if self.first else "")
            else:
                self.applied(s, f"{self.own(composed)}.all", lasts)
            for b, tile in zip(own_befores, own_tiles, strict=True):
                line(f"{b} = {tile};")
            self.applied(s, f"{self.own(composed)}.before", own_befores)
            if self.may_overflow(s):
                told = " && ".join(f"weft::is_finite({x})" for x in (*lasts, *own_befores))
                settled = self.settled(s, f"({told})" if len(lasts) + len(own_befores) > 1 else told, own_tiles)
                line(f"{finite} = {finite} && ({settled});")
        if not self.may_overflow(s) or (plan.side == plan.threads and not plan.shared):
            return
        line("// what overflows when points are composed is computed in their order")
        with self.writer.block(f"if (!weft::all_of_team<{plan.threads}>({finite}))"):
            call = f"weft::down_in_turn<{self.down()}>"
            with self.each_row():
                for last, tile in zip(lasts, own_tiles, strict=True) if not plan.shared else ():
                    line(f"{last} = {tile};")
                with self.turns_of_blocks(s, own_tiles, lasts, ", v" if self.first else ""):
                    self.changed_in_order(s, own_tiles if plan.shared else lasts, call, "", "[v]" if self.first else "")

    def exchanged(self, s: Scan, composed: str) -> None:
        stem, algebra, line = s.names[0], self.algebra(s), self.writer.line
        others, whole = (self.stem(f"{stem}_{what}") for what in ("others", "whole"))
        chain, parts = self.stem(f"{stem}_chain"), self.stem(f"{stem}_parts")
        line(f"bool {whole} = true;  // what all blocks tell can be composed")
        if self.may_overflow(s):
            self.of_each_row(register_type(s.types[0]), self.stem(f"{stem}_turn"))
        asked = self.stem(f"{stem}_asked")
        if not self.plan.delayed:
            self.told(s, composed)
            self.asked(s)
        if not self.first:
            line(f"const auto {others} = {chain}.hear({asked}, {self.number}, {parts}, {whole});")
            return
        line(f"weft::Prefix<{algebra}> {others}[{self.plan.vector}];")
        line(f"{chain}.hear({asked}, {others}, {self.number}, {parts}, {whole});")

    # ---------------------------------------------------------------- ends

    def one_of_row(self) -> list[str]:
        return ["here"] + ([f"threadIdx.x < {self.plan.side}"] if self.plan.side < self.plan.threads else [])

    def fold_places(self) -> int:
        return self.plan.side * (self.plan.threads // max(32, self.plan.side))

    def reduced(self, algebra: str, own: str, scratch: str) -> str:
        return f"weft::reduce_down<{algebra}, {self.plan.side}, {self.plan.threads}>({own}, {scratch})"
