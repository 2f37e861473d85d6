"""Parts of products that blocks have left in memory: a launch after combines them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, register_type
from weft.emit.products import Fragment, ProductEntry
from weft.emit.values import ZERO
from weft.graph.tile import Fold, Read, names_of, uses, uses_of_write
from weft.loops.ir import free_arrays, free_names
from weft.plan.fold import WARP
from weft.plan.product import made_of


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
        self.fetch_ahead()
        self.launch.end(self.writer)
        alone = plan.vector == 1 and warps == run  # a warp has one of the columns of each run
        if alone:
            self.values_ahead()
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
        if not alone:
            line("if (warp > 0) return;")
            self.combine_runs(lambda f: f"{kept[f.results[0]]}[g][threadIdx.x]", warps)
            self.results()
            return
        for f in self.products.folds:
            name = f.results[0]
            whole = self.fresh.fresh(f"{f.names[0]}_whole")
            line(f"{register_type(f.types[0])} {whole} = {self.algebra(f)}::identity();")
            text = f"{whole} = {self.algebra(f)}::combine({whole}, {kept[name]}[g][threadIdx.x % {WARP}][warp]);"
            self.unrolled([f"for (int32_t g = 0; g < {warps}; ++g)"], text)
            own[name] = whole
        self.results(Fragment(1, "own_row", 1, 1, "own_column + warp"))

    def values_ahead(self) -> None:
        """What a result is made of beside its totals, while the parts of these are on their way; of threads beyond the last row
        or column that of the last one.
        """
        found, names = self.products, {}
        written = [*(e for w in found.sweeps.last for e in uses_of_write(w)), *found.inits]
        made = made_of(found, [*written, *(e for s in found.ending for f in s.folds for e in f.parts)])
        places = ((found.rows, "rows", "own_row"), (found.columns, "columns", "own_column + warp"))
        stored = {w.array for w in found.sweeps.writes}
        if any(isinstance(v, Read) and (v.checked or not v.always or v.array in stored) for v in made):
            return
        if any(len(axes) != 1 or self.axes[axes[0]].start != ZERO for axes, *_ in places):
            return
        if not found.ending and not any(isinstance(v, Read) for v in self.needed(written)):
            return
        for (axis,), side, own in places:
            name = names[axis] = self.fresh.fresh(f"{axis}_here")
            last = f"{factor(self.wholes[side])} - 1"
            self.writer.line(f"const int64_t {name} = weft::minimum<int64_t>({self.firsts[side]} + {own}, {last});")
        graph = {name for v in found.sweeps.values for name in names_of(v)}
        with self.spelled(names):
            for v in self.needed(written):
                if not isinstance(v, Fold) and not {n for e in uses(v) for n in free_names(e)} & graph - self.known_early:
                    self.statements((self.let(v),))
                    self.known_early.add(v.name)
            for sweep in found.ending:
                self.fold_ending(sweep)
                self.known_early |= {name for f in sweep.folds for name in names_of(f)}

    def fetch_ahead(self) -> None:
        """What results need of arguments, which no launch before writes, is on its way to L2 before that is awaited."""
        found, axes = self.products, {*self.products.rows, *self.products.columns}
        for sweep in found.ending:
            made = made_of(found, (e for f in sweep.folds for e in f.parts))
            whole = [v for v in made if isinstance(v, Read) and axes & {*v.axes} and self.given(v)]
            for over_columns in (False, True):
                reads = [v for v in whole if bool({*found.columns} & {*v.axes}) == over_columns]
                if not reads:
                    continue
                with self.writer.block("if (warp == 0)" if self.plan.combining > 1 else ""), ExitStack() as stack:
                    here = [self.place_of(found.rows, self.firsts["rows"], "own_row", self.wholes["rows"])]
                    if over_columns:
                        stack.enter_context(self.unrolled_block([f"for (int32_t v = 0; v < {self.plan.run}; ++v)"]))
                        column = self.place_of(found.columns, self.firsts["columns"], "own_column + v", self.wholes["columns"])
                        here.append(column)
                    stack.enter_context(self.writer.block(f"if ({' && '.join(here)})"))
                    for axis in (self.axes[a] for a in sweep.over):
                        start, stop = self.printer.index(axis.start), self.printer.index(axis.stop, SUM)
                        name = self.declare(axis.name)
                        loop = f"for (int64_t {name} = {start}; {name} < {stop}; ++{name})"
                        stack.enter_context(self.writer.block(loop))
                    for v in reads:
                        self.writer.cite(v.location)
                        self.writer.line(f"weft::fetch_ahead({self.address(v.array, v.index)});")

    def given(self, read: Read) -> bool:
        """Whether a read is inside an argument of the call, at places that are known before anything is read."""
        made = {name for v in self.products.sweeps.values for name in names_of(v)}
        known = not any(free_names(i) & made or free_arrays(i) for i in read.index)
        return known and read.always and not read.checked and self.function.array(read.array).role == "input"
