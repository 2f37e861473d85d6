"""Joins to few elements that the data choose whose order shows, as CUDA C++: each warp joins its points in their order."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from weft.emit.algebras import join
from weft.emit.sorts import SortBody
from weft.plan.join import BLOCK, WARP, BinsPlan, JoinStep

# Points whose keys and values a thread makes before it joins them: as many loads are on their way.
TOGETHER = 8


@dataclass
class BinsBody(SortBody):
    """A step of what is joined to few elements."""

    def threads(self, step: JoinStep) -> int:
        assert isinstance(self.plan, BinsPlan)
        return WARP * self.plan.warps if step.kind == "bins" else BLOCK

    def step(self, step: JoinStep, own: list[str]) -> None:
        if step.kind == "bins":
            self.bins(*own)
        else:
            self.total(*own)

    def bins(self, left: str) -> None:
        """What a block's points join to each element."""
        assert isinstance(self.plan, BinsPlan)
        line, plan, (type_, algebra) = self.writer.line, self.plan, self.types
        points = [self.axes[a] for a in self.group.points]
        counts = self.spans(points)
        line("// each warp has elements of its own, to which it joins a run of points in their order")
        line(f"__shared__ {type_} bins[{plan.warps}][{plan.elements}];")
        line(f"{type_}* const own = bins[threadIdx.x / {WARP}];")
        line(f"const int32_t lane = threadIdx.x % {WARP};")
        line(f"for (int32_t k = lane; k < {plan.elements}; k += {WARP}) own[k] = {algebra}::identity();")
        line("__syncwarp();")
        line(f"const int64_t turns = (count - 1) / (int64_t(gridDim.x) * {plan.warps * WARP * TOGETHER}) + 1;")
        line(f"const int64_t run = turns * {WARP * TOGETHER};")
        line(f"const int64_t first = (int64_t(blockIdx.x) * {plan.warps} + threadIdx.x / {WARP}) * run;")
        line("const int64_t last = weft::minimum<int64_t>(first + run, count);")
        self.joined("first", "last", counts)
        line("__syncthreads();")
        with self.writer.block(f"for (int32_t k = threadIdx.x; k < {self.elements}; k += {WARP * plan.warps})"):
            line(f"{type_} total = bins[0][k];")
            line("#pragma unroll")
            line(f"for (int32_t v = 1; v < {plan.warps}; ++v) total = {algebra}::combine(total, bins[v][k]);")
            line(f"{left}[int64_t(blockIdx.x) * ({self.elements}) + k] = total;")

    def joined(self, first: str, last: str, counts: dict[str, str]) -> None:
        """Points of a warp, joined to its elements."""
        line = self.writer.line
        with self.writer.block(f"for (int64_t start = {first}; start < {last}; start += {WARP * TOGETHER})"):
            self.together(f"start + v * {WARP} + lane", last, counts)
            line("#pragma unroll")
            algebra = self.types[1]
            line(f"for (int32_t v = 0; v < {TOGETHER}; ++v) weft::join_in_order<{algebra}>(own, keys[v], value[v]);")

    def together(self, place: str, last: str, counts: dict[str, str]) -> None:
        """The keys and values of several points. place: each one's."""
        w, line, (type_, algebra) = self.group.write, self.writer.line, self.types
        line(f"int32_t keys[{TOGETHER}];")
        line(f"{type_} value[{TOGETHER}];")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {TOGETHER}; ++v)"):
            line(f"const int64_t place = {place};")
            line("int32_t key = -1;")
            line(f"value[v] = {algebra}::identity();")
            with self.writer.block(f"if (place < {last})"):
                self.places([self.axes[a] for a in self.group.points], "uint32_t(place)", counts)
                exprs = [w.index[k] for k in self.group.keys] + ([w.guard] if w.guard is not None else [])
                self.statements(tuple(map(self.let, self.needed([*exprs, w.value]))))
                self.writer.cite(w.location)
                guarded = self.writer.block(f"if ({self.printer.value(w.guard)})") if w.guard is not None else nullcontext()
                with guarded:
                    self.key()
                    line(f"if (key >= 0) value[v] = {self.printer.value(w.value)};")
            line("keys[v] = key;")

    def total(self, left: str) -> None:
        """What all blocks join to each element, joined to memory: `count` blocks, in their order."""
        w, line, (type_, algebra) = self.group.write, self.writer.line, self.types
        strands = BLOCK // WARP
        line(f"__shared__ {type_} strands[{strands}][{WARP}];")
        line(f"const int32_t lane = threadIdx.x % {WARP}, strand = threadIdx.x / {WARP};")
        line(f"const int32_t key = int32_t(blockIdx.x) * {WARP} + lane;")
        line(f"const int64_t run = (count + {strands - 1}) / {strands};")
        line("const int64_t last = weft::minimum<int64_t>((strand + 1) * run, count);")
        line(f"{type_} total = {algebra}::identity();")
        with self.writer.block(f"if (key < {self.elements})"):
            line("#pragma unroll 8")
            with self.writer.block("for (int64_t at = strand * run; at < last; ++at)"):
                line(f"total = {algebra}::combine(total, {left}[at * ({self.elements}) + key]);")
        line("strands[strand][lane] = total;")
        line("__syncthreads();")
        line(f"if (strand > 0 || key >= {self.elements}) return;")
        line(f"for (int32_t v = 1; v < {strands}; ++v) total = {algebra}::combine(total, strands[v][lane]);")
        line(f"if (total == {algebra}::identity()) return;")
        place = f"{self.element(w.array, self.decoded())}"
        line(f"{place} = {join(w.join, self.function.array(w.array).dtype).format(place, 'total')};")
