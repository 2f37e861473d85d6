"""Scans whose neighbouring threads have neighbouring rows, by clusters of blocks that share these: of each row one block hears
of the others for all of its cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from weft.emit.expressions import register_type
from weft.emit.scans_beside import ScansBeside
from weft.graph.tile import Scan
from weft.plan.scan import WARP, passing_warps

BARRIER = 1  # of the threads that have points


@dataclass
class ScansRelayed(ScansBeside):
    """What a block's tile does goes to the cluster's blocks, each of which has some of the rows; of these a warp passes on what
    all clusters do, and the states before tiles come back by themselves.
    """

    group = "group"
    kept: ClassVar[tuple[str, ...]] = ()

    def cluster(self) -> str:
        return f" __cluster_dims__({self.plan.cluster}, 1, 1)"

    def part(self) -> None:
        self.writer.line("const uint32_t part = blockIdx.x % uint32_t(parts), group = blockIdx.x / uint32_t(parts);")

    def meet(self) -> str:
        return f"weft::barrier_sync({BARRIER}, {self.plan.threads});"

    def down(self, *first: str) -> str:
        return f"{super().down(*first)}, {BARRIER}"

    def rows(self) -> None:
        super().rows()
        if not self.goes_along():
            count = f"weft::minimum<int64_t>({self.lane_count} - {self.stem(f'{self.plan.lane}_block')}, {self.wide})"
            self.writer.line(f"const int32_t rows_here = int32_t({count});")
            heard, least = self.stem(f"{self.plan.lane}_heard"), f"{self.beside}, rows_here - {self.plan.vector}"
            self.writer.line(f"const int32_t {heard} = weft::minimum<int32_t>({least});  // what lies beyond hears of the last")

    def chain(self, s: Scan, across: int, values: int = 1) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        state, name, told = register_type(s.types[0]), self.stem(f"{stem}_relay"), self.stem(f"{stem}_told")
        type_ = f"weft::Relay<{self.algebra(s)}, {state}, {plan.wide}, {plan.cluster}, {max(1, plan.heard)}, {plan.in_turn}>"
        line(f"__shared__ {type_}::Shared {self.stem(f'{stem}_relayed')};")
        row = self.row.format(self.stem(f"{plan.lane}_block"))
        given = f"{self.stem(f'{stem}_relayed')}, {told}, {row}, {self.all_rows}, rows_here, part, parts"
        line(f"const {type_} {name}({given});")
        line(f"if (threadIdx.x == 0) {name}.init();")
        with self.each_row():
            first = f"{self.stem(f'{stem}_relayed')}.first[{self.in_block()}]"
            line(f"if (here && threadIdx.x < {plan.side}) {first} = {self.names[s.results[0]]};")

    def in_block(self) -> str:
        """One of a thread's rows among those of its block."""
        return f"{self.beside} + v" if self.first else self.beside

    def heard(self) -> str:
        """The one of which it hears."""
        beside = self.stems.get(f"{self.plan.lane}_heard", self.beside)
        return f"{beside} + v" if self.first else beside

    def others(self) -> None:
        """Warps for each scan pass on what all clusters do."""
        line = self.writer.line
        line("weft::cluster_sync();  // all blocks of it have begun")
        with self.writer.block(f"if (threadIdx.x >= {self.plan.threads})"):
            warps = passing_warps(self.plan)
            warp = f"int(threadIdx.x) / {WARP} - {self.plan.threads // WARP}"
            if warps > 1 or self.scans.scans[1:]:
                line(f"const int warp = {warp};")
            for k, s in enumerate(self.scans.scans):
                flags = ", ".join(str(x).lower() for x in (self.may_overflow(s), self.sticks(s), bool(self.scans.last)))
                asked = f"if (warp / {warps} == {k}) " if self.scans.scans[1:] else ""
                own = "0" if warps == 1 else f"warp % {warps}"
                line(f"{asked}{self.stem(f'{s.names[0]}_relay')}.pass_on<{flags}>(turns, {own});")
            line("weft::cluster_sync();  // until then others send to this block")
            line("return;")

    def leave(self) -> None:
        self.writer.line("weft::cluster_sync();  // until then others send to this block")

    def declare_kept(self, s: Scan) -> None:
        super().declare_kept(s)
        kept = f"{self.stem(f'{s.names[0]}_kept')}[{self.plan.late}]{self.dimension()}"
        self.writer.line(f"{self.algebra(s)}::Value {kept};  // before runs of the turns before")

    def copy_kept(self, s: Scan) -> None:
        kept, composed, line = self.stem(f"{s.names[0]}_kept"), self.stem(f"{s.names[0]}_composed"), self.writer.line
        with self.each_row():
            for k in range(self.plan.late - 1, 0, -1):
                line(f"{self.own(f'{kept}[{k}]')} = {self.own(f'{kept}[{k - 1}]')};")
            line(f"{self.own(f'{kept}[0]')} = {self.own(composed)}.before;")

    def asked(self, s: Scan) -> None:
        """What is told comes by itself."""

    def told(self, s: Scan, composed: str) -> None:
        relay, line = self.stem(f"{s.names[0]}_relay"), self.writer.line
        line(f"if (threadIdx.x == 0) {relay}.expect(turn + 1);")
        with self.each_row():
            all_ = f"{self.own(composed)}.all"
            line(f"if (here && threadIdx.x < {self.plan.side}) {relay}.tell({self.in_block()}, {all_}, turn + 1);")

    def composed(self, s: Scan, own: str) -> None:
        plan, line, stem = self.plan, self.writer.line, s.names[0]
        type_, relay = register_type(s.types[0]), self.stem(f"{stem}_relay")
        tile, before = self.stem(f"{stem}_tile"), self.before(s.names[0])
        asked, finite = self.stem(f"{stem}_asked"), self.stem(f"{stem}_finite")
        line(f"{relay}.hear({self.number});")
        self.declared(type_, tile)
        self.declared(type_, before)
        if self.may_overflow(s):
            self.declared("bool", asked)
            line(f"bool {finite} = true;")
        with self.each_row():
            known = self.stem(f"{stem}_known")
            line(f"const auto {known} = {relay}.known({self.heard()}, {self.number});  // before the tile")
            line(f"{self.own(tile)} = {self.own(before)} = {known}.value;")
            kept = f"{self.stem(f'{stem}_kept')}[{self.plan.late - 1}]"
            self.applied(s, self.own(kept), [self.own(before)])
            if self.may_overflow(s):
                line(f"{self.own(asked)} = {known}.asked[0];")
                stuck = f" || weft::is_nan({self.own(tile)})" if self.sticks(s) else ""
                line(f"{finite} = {finite} && !{self.own(asked)} && (weft::is_finite({self.own(before)}){stuck});")
        if not self.may_overflow(s):
            return
        line("// what overflows when points are composed is computed in their order")
        given = f"{finite}, {self.number}, {self.stem(f'{stem}_relayed')}.failed"
        with self.writer.block(f"if (!weft::all_of_threads<{plan.threads}>({given}))"), self.each_row():
            keeps = "[v]" if self.first else ""
            self.changed_in_order(s, [self.own(tile)], f"weft::down_in_turn<{self.down()}>", "", keeps)
            condition = f"here && threadIdx.x < {plan.side} && {self.own(asked)}"
            line(f"if ({condition}) {relay}.answer({self.in_block()}, {self.own(tile)}, {self.number});")

    def ends(self) -> None:
        """The states after all turns are told as those of one more."""
        if not self.scans.last:
            return
        line = self.writer.line
        for s in self.scans.scans:
            relay = self.stem(f"{s.names[0]}_relay")
            line(f"if (threadIdx.x == 0) {relay}.expect(turns + 1);")
            line(f"{relay}.hear(turns + 1);")
            with self.each_row():
                line(f"{self.names[s.results[0]]} = {relay}.known({self.heard()}, turns + 1).value;")
        super().ends()
