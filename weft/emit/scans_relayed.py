"""Scans whose neighbouring threads have neighbouring rows, by clusters of blocks that share these: of each row one block hears
of the others for all of its cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.scans_beside import ScansBeside
from weft.graph.tile import Read, Scan, Write
from weft.plan.scan import (
    WARP,
    Laid,
    begins_anywhere,
    composing_threads,
    gathering_warps,
    laid_of,
    made_bytes,
    passing_warps,
    sent_writes,
    slot_bytes,
)


@dataclass
class ScansRelayed(ScansBeside):
    """Warps have roles, so that none waits for what another one does. Some go through points, which stay in their registers
    until the others have been heard of; some compose what runs of points do to a row; one brings tiles, one sends results.
    What a block's tile does goes to the cluster's blocks, each of which has some of the rows; of these a warp tells the other
    clusters what all of its own do, others pass on what all clusters do, and the states before tiles come back by themselves.
    """

    group = "group"

    def cluster(self) -> str:
        return f" __cluster_dims__({self.plan.cluster}, 1, 1)"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.member, self.copier, self.copiers = "member", f"threadIdx.x % {WARP}", WARP
        self.sent = sent_writes(self.scans, self.plan, self.facts) if self.plan.sends else ()
        self.stores = "keep" if self.plan.sends else "store"

    @property
    def runs_below(self) -> int:
        """Runs of a row in a tile."""
        return self.plan.threads // self.plan.side

    @property
    def number(self) -> str:
        return f"turn - {self.plan.late - 1}"

    def part(self) -> None:
        self.writer.line("const uint32_t part = blockIdx.x % uint32_t(parts), group = blockIdx.x / uint32_t(parts);")

    def rows(self) -> None:
        threads = self.plan.threads
        self.writer.line(f"const int32_t member = threadIdx.x % {threads};  // of those that have points")
        super().rows()
        if not self.goes_along():
            count = f"weft::minimum<int64_t>({self.lane_count} - {self.stem(f'{self.plan.lane}_block')}, {self.wide})"
            self.writer.line(f"const int32_t rows_here = int32_t({count});")
            heard, least = self.stem(f"{self.plan.lane}_heard"), f"{self.beside}, rows_here - {self.plan.vector}"
            self.writer.line(f"const int32_t {heard} = weft::minimum<int32_t>({least});  // what lies beyond hears of the last")

    def in_block(self) -> str:
        """One of a thread's rows among those of its block."""
        return f"{self.beside} + v" if self.first else self.beside

    def heard(self) -> str:
        """The one of which it hears."""
        beside = self.stems.get(f"{self.plan.lane}_heard", self.beside)
        return f"{beside} + v" if self.first else beside

    # ---------------------------------------------------------------- memory

    def chain(self, s: Scan, across: int, values: int = 1) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        state, name, told = register_type(s.types[0]), self.stem(f"{stem}_relay"), self.stem(f"{stem}_told")
        last = str(bool(self.scans.last)).lower()
        counts = f"{plan.wide}, {plan.cluster}, {max(1, plan.heard)}, {plan.in_turn}, {plan.kept}"
        type_, runs = f"weft::Relay<{self.algebra(s)}, {state}, {counts}>", self.stem(f"{stem}_runs")
        line(f"__shared__ {self.algebra(s)}::Value {runs}[{plan.kept}][{self.runs_below * plan.wide}];  // what runs do")
        line(f"__shared__ {type_}::Shared {self.stem(f'{stem}_relayed')};")
        row = self.row.format(self.stem(f"{plan.lane}_block"))
        given = f"{self.stem(f'{stem}_relayed')}, {told}, {row}, {self.all_rows}, rows_here, part, parts"
        line(f"const {type_} {name}({given});")
        line(f"if (threadIdx.x == 0) {name}.init<{last}>({composing_threads(plan) // WARP}, turns);")
        with self.each_row():
            first = f"{self.stem(f'{stem}_relayed')}.first[{self.in_block()}]"
            line(f"if (here && threadIdx.x < {plan.side}) {first} = {self.names[s.results[0]]};")

    def ring(self) -> None:
        plan, line = self.plan, self.writer.line
        more = f", made[{plan.sends}], sent[{plan.sends}]" if plan.sends else ""
        line(f"__shared__ weft::Mbarrier emptied[{plan.stages}], composed[{plan.kept}]{more};")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"for (int32_t k = 0; k < {plan.stages}; ++k) emptied[k].init({plan.threads // WARP});")
            line(f"for (int32_t k = 0; k < {plan.kept}; ++k) composed[k].init({plan.threads // WARP});")
            if plan.sends:
                line(f"for (int32_t k = 0; k < {plan.sends}; ++k) made[k].init({plan.threads // WARP}), sent[k].init(1);")
        super().ring()
        offset = plan.stages * sum(slot_bytes(self.function, self.scans, plan, r, self.facts) for r in self.of_ring())
        for array, size in made_bytes(self.function, self.scans, plan, self.facts).items():
            type_ = memory_type(self.function.array(array).dtype)
            line(f"{type_}* const {self.stem(f'{array}_made')} = reinterpret_cast<{type_}*>(memory + {offset});")
            offset += size
        alike = [read for read in self.of_ring() if not self.laid(read).anywhere]
        if alike and all(map(self.may_be_dense, alike)):
            dense = [self.dense(read) for read in alike]
            asked = [*dense, f"{self.lane_count} == {plan.wide}"]
            line(f"const bool {self.stem('at_once')} = {' && '.join(asked)};  // the points of a tile are one run")
            for read in alike:
                line(f"const int32_t {self.stem(f'{read.name}_pitch')} = {plan.wide};")
        for w in self.sent:
            own = self.laid_where(w)
            if own.anywhere:
                self.lies_loosely(w.array, w.array, w.index, own)
                continue
            past, pace = self.stem(f"{w.array}_past"), self.stem(f"{w.array}_pace")
            line(f"const uint32_t {past} = 0, {pace} = {self.pace(w.array, w.index)};")
            line(f"const int32_t {self.stem(f'{w.array}_pitch')} = {plan.wide};")
            down = f"member / {plan.side} * {plan.runs * plan.wide} + " if self.runs_below > 1 else ""
            line(f"const int32_t {self.stem(f'{w.array}_slot')} = {down}{self.beside};")

    def pitch_of(self, own: Laid, pace: str) -> str:
        return super().pitch_of(own, pace).replace(" ? ", f" && {pace} == {self.lane_count} ? ", 1)

    def laid_where(self, w: Write) -> Laid:
        return laid_of(self.function, self.plan, w.array, begins_anywhere(self.function, w.array, self.facts))

    def first_copied(self) -> str:
        return self.copier

    def copying(self) -> int:
        return 2 * WARP  # when what they have started is there, and what they have brought themselves

    def copied_alike(self, laid: Laid, reads: Sequence[Read], stage: str) -> None:
        if "at_once" not in self.stems:
            super().copied_alike(laid, reads, stage)
            return
        block, line = self.stem(f"{self.plan.lane}_block"), self.writer.line
        with self.writer.block(f"if ({self.stems['at_once']})"):
            for read in reads:
                type_, (rows, to) = memory_type(self.function.array(read.array).dtype), self.tile_of(read)
                with self.spelled({self.axis.name: "first", self.plan.lane: block}):
                    line(f"const {type_}* const {rows} = {self.address(read.array, read.index)};")
                name, elements = self.slots[read.name]
                line(f"{type_}* const {to} = {name} + {stage} * {elements};")
            self.run_at_once(reads, stage)
        with self.writer.block("else"):
            super().copied_alike(laid, reads, stage)

    # ---------------------------------------------------------------- roles

    def tiles(self) -> None:
        plan, line = self.plan, self.writer.line
        (level,) = self.scans.levels
        self.row_stop()
        stop, origin = self.printer.index(self.axis.stop, SUM), self.printer.index(self.origin)
        length = factor(stop) if origin == "0" else f"{factor(stop)} - {factor(origin)}"
        line(f"const int64_t tiles = ({length} + {plan.tile - 1}) / {plan.tile};")
        line("const int32_t turns = int32_t((tiles + parts - 1) / parts);")
        for s in level:
            self.chain(s, plan.side, plan.vector)
        self.ring()
        line("weft::cluster_sync();  // all blocks of it have begun")
        with self.writer.block(f"if (threadIdx.x < {plan.threads * plan.groups})"), self.apart():
            self.goes_through(level)
        with self.writer.block("else"):
            self.beside_points(level)
        line("__syncwarp();")
        line("weft::cluster_sync();  // until then others send to this block")

    def beside_points(self, level: Sequence[Scan]) -> None:
        """The roles of warps that have no points."""
        plan, first = self.plan, self.plan.threads * self.plan.groups
        composes = partial(self.composes, level)
        roles: list[tuple[int, Callable[[], None]]] = [(composing_threads(plan), composes), (WARP, self.brings)]
        roles += [(WARP, self.sends)] if plan.sends else []
        for k, (threads, role) in enumerate(roles):
            first += threads
            with self.writer.block(f"{'else ' if k else ''}if (threadIdx.x < {first})"), self.apart():
                role()
        with self.writer.block("else"), self.apart():
            self.passes_on(first)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is declared here is not known after."""
        stems, names = dict(self.stems), dict(self.names)
        yield
        self.stems, self.names = stems, names

    def ends(self) -> None:
        """It has been written already."""

    def arrive(self, barrier: str) -> None:
        """One arrival of each warp."""
        self.writer.line("__syncwarp();")
        self.writer.line(f"{barrier}.arrive_if(threadIdx.x % {WARP} == 0);")

    def goes_through(self, level: Sequence[Scan]) -> None:
        """Turns in which threads go through their points of the tile of one some turns ago, of which the others have told
        since, and compose this one's.
        """
        plan, line, late = self.plan, self.writer.line, self.plan.late
        line(f"// these go through points, {plan.groups} groups in turn")
        line(f"// what blocks tell each other is heard {late} turns later")
        first, step = (f"threadIdx.x / {plan.threads}", f"turn += {plan.groups}") if plan.groups > 1 else ("0", "++turn")
        with self.writer.block(f"for (int32_t turn = {first}; turn < turns + {late}; {step})"):
            with self.writer.block("if (turn < turns)"), self.apart():
                line(f"const int32_t k = turn % {plan.kept};")
                self.takes(level)
            with self.writer.block(f"if (turn >= {late})"), self.apart():
                line(f"const int32_t k = (turn - {late}) % {plan.kept}, stage = (turn - {late}) % {plan.stages};")
                self.goes_on(level)
                self.arrive("emptied[stage]")
        if not self.scans.last:
            return
        for s in level:
            relay = self.stem(f"{s.names[0]}_relay")
            line(f"{relay}.hear_end();")
            with self.each_row():
                line(f"{self.names[s.results[0]]} = {relay}.known_end({self.heard()});")
        super().ends()

    def goes_on(self, level: Sequence[Scan]) -> None:
        plan, line, late = self.plan, self.writer.line, self.plan.late
        self.at_tile(f"(turn - {late})")
        self.staged()
        for s in level:
            self.composed(s, "")
        if plan.sends:
            line(f"const int32_t place_made = (turn - {late}) % {plan.sends};")
            line(f"sent[place_made].wait(((turn - {late}) / {plan.sends} & 1) ^ 1);")
        self.finish(level)
        if plan.sends:
            line("weft::fence_proxy_async();  // before bulk copies send what has been made")
            self.arrive("made[place_made]")

    def takes(self, level: Sequence[Scan]) -> None:
        plan, line = self.plan, self.writer.line
        self.at_tile("turn")
        line(f"const int32_t stage = turn % {plan.stages};")
        line(f"arrived[stage].wait(turn / {plan.stages} & 1);")
        self.staged()
        self.compose(level, [])
        self.arrive("composed[k]")

    def at_tile(self, turn: str) -> None:
        line = self.writer.line
        self.begin = self.stem(f"{self.axis.name}_first")
        line(f"const int64_t tile = {turn} * parts + part;")
        line(f"const {self.index} {self.begin} = {self.first_of('tile')};")
        self.begun()

    def first_of_tile(self) -> str:
        """The first point of a thread's tile."""
        return self.begin if self.runs_below == 1 else f"{self.begin} - {self.stem(f'{self.axis.name}_own')}"

    def declare_tiles(self) -> None:
        """Points are taken out of the ring as they are gone through."""

    # ---------------------------------------------------------------- states

    def own_run(self, s: Scan) -> str:
        """Where it lies what a thread's run of one of its rows does, and then what those before it do."""
        run = f"member / {self.plan.side} * {self.plan.wide} + " if self.runs_below > 1 else ""
        return f"{self.stem(f'{s.names[0]}_runs')}[k][{run}{self.heard()}]"

    def combine(self, s: Scan, own: str) -> None:
        with self.each_row():
            self.writer.line(f"if (here) {self.own_run(s)} = {self.own(own)};")

    def composed(self, s: Scan, own: str) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        type_, relay, before = register_type(s.types[0]), self.stem(f"{stem}_relay"), self.before(stem)
        line(f"{relay}.hear({self.number});")
        self.declared(type_, before)
        with self.each_row():
            known = self.stem(f"{stem}_known")
            line(f"const auto {known} = {relay}.known({self.heard()}, {self.number});  // before the tile")
            line(f"{self.own(before)} = {known}.value;")
            self.applied(s, self.own_run(s), [self.own(before)])
            if not self.may_overflow(s):
                return
            line("// what overflows when points are composed is computed in their order, as they are in memory")
            stuck = f" && !weft::is_nan({known}.value)" if self.sticks(s) else ""
            first = self.first_of_tile()
            ahead, rest, final = f"{first}, {self.begin}", f"{self.begin}, {first} + {plan.tile}", self.runs_below - 1
            if self.scans.reverse:
                end = f"{self.begin} + {plan.runs}"
                ahead, rest, final = f"{end}, {first} + {plan.tile}", f"{first}, {end}", 0
            change, after = self.stem(f"{stem}_change"), self.stem(f"{stem}_after")
            with self.writer.block(f"if ((!weft::is_finite({self.own(before)}){stuck}) || {known}.asked[0])"):
                self.define_change(s, change)
                with self.writer.block(f"if (!weft::is_finite({self.own(before)}){stuck})"):
                    line(f"{self.own(before)} = {known}.value;")
                    line(f"{change}({ahead}, {self.own(before)});")
                own = f"here && {known}.asked[0]" + (f" && member / {plan.side} == {final}" if self.runs_below > 1 else "")
                with self.writer.block(f"if ({own})"):
                    line(f"{type_} {after} = {self.own(before)};")
                    line(f"{change}({rest}, {after});")
                    line(f"{relay}.answer({self.in_block()}, {after}, {self.number});")

    def define_change(self, s: Scan, change: str) -> None:
        """Define what points do to a state, one after the other."""
        line, name, state = self.writer.line, self.declare(self.axis.name), self.stem(s.names[0])
        start, buffers, names = self.printer.index(self.axis.start), self.buffers, dict(self.names)
        given = f"int64_t from, int64_t to, {register_type(s.types[0])}& {state}"
        with self.writer.block(f"const auto {change} = [&]({given})", "};"):
            low, high = f"weft::maximum<int64_t>(from, {start})", f"weft::minimum<int64_t>(to, {self.end})"
            order = f"int64_t {name} = {low}; {name} < {high}; ++{name}"
            if self.scans.reverse:
                order = f"int64_t {name} = {high} - 1; {name} >= {low}; --{name}"
            line("#pragma unroll 1")
            with self.writer.block(f"for ({order})"):
                self.buffers, self.names[s.names[0]] = {}, state
                self.at_point(s.nexts)
                self.advance_states((s,))
        self.buffers, self.names = buffers, names

    def composes(self, level: Sequence[Scan]) -> None:
        line, kept = self.writer.line, self.plan.kept
        line("// these compose what runs of a row do, and tell that")
        with self.writer.block("for (int32_t turn = 0; turn < turns; ++turn)"):
            line(f"composed[turn % {kept}].wait(turn / {kept} & 1);")
            first, threads = self.plan.threads * self.plan.groups, composing_threads(self.plan)
            over = f"int32_t own = threadIdx.x - {first}; own < rows_here; own += {threads}"
            with self.writer.block(f"for ({over})"):
                for s in level:
                    stem, all_ = s.names[0], self.stem(f"{s.names[0]}_all")
                    composed = f"weft::compose_runs<{self.algebra(s)}, {self.runs_below}, {self.backwards}>"
                    runs = f"{self.stem(f'{stem}_runs')}[turn % {kept}] + own"
                    line(f"const auto {all_} = {composed}({runs}, {self.plan.wide});")
                    line(f"{self.stem(f'{stem}_relay')}.tell(own, {all_}, turn + 1);")
            line("__syncwarp();")
            for s in level:
                relay = self.stem(f"{s.names[0]}_relay")
                line(f"if (threadIdx.x % {WARP} == 0) {relay}.expect(turn + 1, threadIdx.x == {first});")

    def brings(self) -> None:
        line = self.writer.line
        line("// these bring tiles")
        with self.writer.block("for (int32_t turn = 0; turn < turns; ++turn)"):
            line("const int64_t tile = turn * parts + part;")
            line(f"const int32_t stage = turn % {self.plan.stages};")
            line(f"emptied[stage].wait((turn / {self.plan.stages} & 1) ^ 1);")
            line("weft::fence_proxy_async();  // what threads have brought themselves comes before bulk copies to its place")
            line("__syncwarp();")
            self.copied("tile", "stage")
            line("arrived[stage].arrive();  // what threads have brought themselves")

    # ---------------------------------------------------------------- results

    def walked(self, begin: str, stored: Sequence[tuple[Write, str]]) -> list[Write]:
        if not self.sent:
            return super().walked(begin, stored)
        found = []
        for w in self.sent if self.writes_of_points else ():
            pointer = self.fresh.fresh(f"{w.array}_to")
            last = f" + {self.plan.runs - 1} * {self.stem(f'{w.array}_pitch')}" if self.scans.reverse else ""
            at = f"{self.made_at(w, 'place_made', self.first_of_tile())} + {self.stem(f'{w.array}_slot')}{last}"
            self.writer.line(f"{memory_type(self.function.array(w.array).dtype)}* {pointer} = {at};")
            self.pointers[w.array] = (pointer, frozenset(range(len(w.index))))
            found.append(w)
        return found

    def made_at(self, w: Write, place: str, first: str) -> str:
        """Where the first point of a tile lies."""
        past, pace, made = (self.stem(f"{w.array}_{x}") for x in ("past", "pace", "made"))
        size = made_bytes(self.function, self.scans, self.plan, self.facts)[w.array] // self.plan.sends
        elements, own = size // self.function.array(w.array).dtype.size, self.laid_where(w)
        there = f" + ({past} + uint32_t({first}) * {pace}) % {own.frame}" if own.anywhere else ""
        return f"{made} + {place} * {elements}{there}"

    def step_of(self, w: Write) -> str:
        return self.stem(f"{w.array}_pitch") if self.sent else super().step_of(w)

    def sends(self) -> None:
        plan, line = self.plan, self.writer.line
        line("// these send results")
        with self.writer.block("for (int32_t turn = 0; turn < turns; ++turn)"):
            line("const int64_t tile = turn * parts + part;")
            number = "(tiles - 1 - tile)" if self.scans.reverse else "tile"
            origin = self.printer.index(self.origin, SUM)
            line(f"const int64_t first = {'' if origin == '0' else f'{origin} + '}{number} * {plan.tile};")
            start, stop = self.printer.index(self.axis.start, SUM), self.printer.index(self.axis.stop, SUM)
            below = f"weft::minimum<int64_t>(weft::maximum<int64_t>({start} - first, 0), {plan.tile})"
            line(f"const int32_t low = int32_t({below});")
            line(f"const int32_t high = int32_t(weft::minimum<int64_t>({stop} - first, {plan.tile}));")
            line(f"const int32_t place_made = turn % {plan.sends};")
            line(f"made[place_made].wait(turn / {plan.sends} & 1);")
            for w in self.sent:
                self.sent_here(w)
            line("weft::bulk_commit();")
            line("weft::bulk_wait_read<0>();")
            self.arrive("sent[place_made]")
        line("weft::bulk_wait<0>();")

    def sent_here(self, w: Write) -> None:
        line, array, lane = self.writer.line, self.function.array(w.array), self.plan.lane
        pitch, pace, rows, source = (self.stem(f"{w.array}_{x}") for x in ("pitch", "pace", "rows", "from"))
        type_ = memory_type(array.dtype)
        with self.spelled({self.axis.name: "first", lane: self.stem(f"{lane}_block")}):
            line(f"{type_}* const {rows} = {self.address(w.array, w.index)};")
        line(f"const {type_}* const {source} = {self.made_at(w, 'place_made', 'first')};")
        self.writer.cite(w.location)
        with self.writer.block(f"if ({pitch} == int32_t({pace}) && rows_here == {pitch})"):
            count = f"(high - low) * {pitch}"
            line(f"if ({self.copier} == 0) weft::send_run({rows} + int64_t(low) * {pace}, {source} + low * {pitch}, {count});")
        with self.writer.block("else"):
            line(f"for (int32_t place = low + {self.copier}; place < high; place += {WARP})")
            line(f"    weft::send_run({rows} + int64_t(place) * {pace}, {source} + place * {pitch}, rows_here);")

    def passes_on(self, first: int) -> None:
        line, gathering, passing = self.writer.line, gathering_warps(self.plan), passing_warps(self.plan)
        line("// these tell what the cluster does, and pass on what all clusters do")
        line(f"const int warp = (int(threadIdx.x) - {first}) / {WARP};")
        begin = 0
        for s in self.scans.scans:
            relay = self.stem(f"{s.names[0]}_relay")
            flags = ", ".join(str(x).lower() for x in (self.may_overflow(s), self.sticks(s), bool(self.scans.last)))
            line(f"{'else ' if begin else ''}if (warp < {begin + gathering}) {relay}.gather(turns, warp - {begin});")
            begin += gathering
            line(f"else if (warp < {begin + passing}) {relay}.pass_on<{flags}>(turns, warp - {begin});")
            begin += passing
