"""Parts of products that blocks have left in memory: a launch after combines them."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.expressions import register_type
from weft.emit.products import ProductEntry
from weft.plan.fold import WARP


@dataclass
class CombineEntry(ProductEntry):
    """A thread has a run of columns of some of the parts, then of all of them."""

    def bounds(self) -> str:
        return f"__launch_bounds__({WARP * self.plan.combining})"

    def shape(self) -> str:
        return f"a block has {WARP} runs of columns; {self.plan.combining} warps share the parts of each"

    def body(self) -> None:
        line, plan, (m, n, _), run = self.writer.line, self.plan, self.plan.tile, self.plan.run
        warps, pieces = plan.combining, plan.pieces
        self.sizes()
        self.square(f"int32_t(blockIdx.x) / {pieces}" if pieces > 1 else "int32_t(blockIdx.x)")
        line(f"const int32_t warp = threadIdx.x / {WARP};")
        line(f"const int32_t item = int32_t(blockIdx.x % {pieces}) * {WARP} + threadIdx.x % {WARP};")
        self.place_of_run("item")
        each = plan.parts // warps
        part = f"int64_t(blockIdx.x / {pieces}) * {plan.parts} + warp * {each} + g"
        place = f"(({part}) * {m} + own_row) * {n} + own_column"
        self.combine_runs(lambda f: f"{self.parts[f.results[0]]} + {place}", each)
        own, kept = self.whole, {}
        for f in self.products.folds:
            kept[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_kept")
            line(f"__shared__ __align__(16) {register_type(f.types[0])} {kept[f.results[0]]}[{warps}][{WARP}][{run}];")
            text = f"{kept[f.results[0]]}[warp][threadIdx.x % {WARP}][v] = {own[f.results[0]].format('v')};"
            self.unrolled([f"for (int32_t v = 0; v < {run}; ++v)"], text)
        line("__syncthreads();")
        line("if (warp > 0) return;")
        self.combine_runs(lambda f: f"{kept[f.results[0]]}[g][threadIdx.x]", warps)
        self.results()
