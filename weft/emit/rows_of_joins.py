"""Joins to elements that the data choose in the points' own row, as CUDA C++: a warp, or a thread for each lane, joins the
points of a row in their order to elements that it has in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.emit.algebras import join
from weft.emit.bins import TOGETHER, BinsBody
from weft.plan.join import WARP, JoinStep, RowsPlan


def _product(counts: Iterable[str]) -> str:
    return " * ".join(counts) or "1"


@dataclass
class RowsBody(BinsBody):
    """The launch of what is joined to elements of rows."""

    def threads(self, step: JoinStep) -> int:
        assert isinstance(self.plan, RowsPlan)
        return self.plan.threads

    def step(self, step: JoinStep, own: list[str]) -> None:
        assert isinstance(self.plan, RowsPlan)
        rows, points, lanes = (
            [self.axes[a] for a in axes] for axes in (self.group.rows, self.group.points, self.plan.lanes)
        )
        counts = {a.name: self.span(a, f"{a.name}_count") for a in (*rows, *lanes)} | self.spans(points)
        if lanes:
            self.writer.line(f"const int64_t lanes = {_product(counts[a.name] for a in lanes)};")
        self.writer.line(f"const int64_t count = {_product([counts[a.name] for a in rows] + ['lanes'] * bool(lanes))};")
        self.writer.line(f"const int64_t last = {_product(counts[a.name] for a in points)};")
        if lanes:
            self.by_lanes(self.plan, counts)
        else:
            self.by_warps(self.plan, counts)

    def by_warps(self, plan: RowsPlan, counts: dict[str, str]) -> None:
        line, (type_, algebra), warps = self.writer.line, self.types, plan.threads // WARP
        line("// each warp has the elements of a row, to which it joins the points of the row in their order")
        line(f"__shared__ {type_} bins[{warps}][{plan.elements}];")
        line(f"{type_}* const own = bins[threadIdx.x / {WARP}];")
        line(f"const int32_t lane = threadIdx.x % {WARP};")
        line(f"const int64_t row = int64_t(blockIdx.x) * {warps} + threadIdx.x / {WARP};")
        line("if (row >= count) return;")
        self.places([self.axes[a] for a in self.group.rows], "row", counts)
        line(f"for (int32_t k = lane; k < {plan.elements}; k += {WARP}) own[k] = {algebra}::identity();")
        line("__syncwarp();")
        self.joined("0", "last", counts)
        self.given("lane", str(WARP), "own[key]")

    def by_lanes(self, plan: RowsPlan, counts: dict[str, str]) -> None:
        line, (type_, algebra) = self.writer.line, self.types
        lanes = [self.axes[a] for a in plan.lanes]
        line("// each thread has the elements of a row and a lane, to which it joins the points of the row in their order")
        line(f"__shared__ {type_} bins[{plan.elements}][{plan.threads}];")
        line(f"const int64_t at = int64_t(blockIdx.x) * {plan.threads} + threadIdx.x;")
        line("if (at >= count) return;")
        line("const int64_t row = at / lanes, lane = at % lanes;")
        self.places([self.axes[a] for a in self.group.rows], "row", counts)
        self.places(lanes, "lane", counts)
        line(f"for (int32_t k = 0; k < {plan.elements}; ++k) bins[k][threadIdx.x] = {algebra}::identity();")
        with self.writer.block(f"for (int64_t start = 0; start < last; start += {TOGETHER})"):
            self.together("start + v", "last", counts)
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t v = 0; v < {TOGETHER}; ++v)"):
                line("if (keys[v] < 0) continue;")
                own = "bins[keys[v]][threadIdx.x]"
                line(f"{own} = {algebra}::combine({own}, value[v]);")
        self.given("0", "1", "bins[key][threadIdx.x]")

    def given(self, first: str, step: str, own: str) -> None:
        """What there is of each element of a row, joined to memory."""
        w, line, (type_, algebra) = self.group.write, self.writer.line, self.types
        with self.writer.block(f"for (int32_t key = {first}; key < {self.elements}; key += {step})"):
            line(f"const {type_} total = {own};")
            line(f"if (total == {algebra}::identity()) continue;")
            place = f"{self.element(w.array, self.decoded())}"
            line(f"{place} = {join(w.join, self.function.array(w.array).dtype).format(place, 'total')};")
