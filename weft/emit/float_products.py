"""Products of floats by matrix instructions: each is the sum of three numbers of bfloat16, whose products a warp sums.

Operands come to shared memory as multiply-adds have them, by registers, where they are taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.emit.expressions import register_type
from weft.emit.products import Fragment, Tile
from weft.emit.square_products import SquareEntry
from weft.graph.tile import Fold
from weft.plan.fold import WARP
from weft.plan.product import QUAD, ProductPlan


@dataclass
class FloatEntry(SquareEntry):
    @classmethod
    def included(cls, plan: ProductPlan) -> str:
        return "weft/parts.cuh"

    def shape(self) -> str:
        (m, n, k), (own_m, own_n) = self.plan.tile, self.plan.each
        return f"a block has {m} x {n} results, a warp {own_m} x {own_n}; a turn takes {k} points"

    @property
    def fragment(self) -> Fragment:
        m, n = self.plan.each
        return Fragment(m // 8, "first_own_row + u % 2 * 8 + u / 2 * 16", n // 8, self.plan.run, "first_own_column + h * 8")

    @property
    def lane_row(self) -> str:
        return f"threadIdx.x % {WARP} / {QUAD}"

    @property
    def lane_column(self) -> str:
        return f"threadIdx.x % {QUAD} * {self.plan.run}"

    def total(self, f: Fold, column: str) -> str:
        at = f"({column})" if " " in column else column
        return f"{self.totals[f.results[0]]}[u / 2][{at} / 2][u % 2 * 2 + {at} % 2]"

    def tile_type(self, tile: Tile) -> str:
        return f"PartsOfFloats<{self.tile_shape(tile)}>"

    def places_of_thread(self) -> None:
        line, (m, n), across = self.writer.line, self.plan.each, self.plan.squares[1]
        warp = f"threadIdx.x / {WARP}"
        rows, columns = (f"{warp} * {m}", "0") if across == 1 else (f"{warp} / {across} * {m}", f"{warp} % {across} * {n}")
        line(f"const int32_t own_row = {rows}, own_column = {columns};  // of the warp")
        line(f"const int32_t first_own_row = own_row + {self.lane_row};")
        line(f"const int32_t first_own_column = own_column + {self.lane_column};")

    def begin_totals(self) -> None:
        m, n = self.plan.each
        for f in self.products.folds:
            own = self.totals[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            self.writer.line(f"{register_type(f.types[0])} {own}[{m // 16}][{n // 8}][4] = {{}};")

    def multiply(self, tiles: list[Tile], stop: str) -> None:
        """The products of a turn. What there is not of it is 0."""
        for f in self.products.folds:
            for left, right in self.operands_of(f, tiles):
                self.writer.cite(f.location)
                places = f"{left.tile}[now], {right.tile}[now], own_row, own_column, 0"
                self.writer.line(f"weft::multiply_floats({self.totals[f.results[0]]}, {places});")

    def end(self, results: Callable[[], None]) -> None:
        if self.plan.parts == 1:  # of parts who combines them looks at what they are together
            for f in self.products.folds:
                self.sum_again(f)
        results()

    def sum_again(self, f: Fold) -> None:
        """Results that are not finite by multiply-adds: an infinity has no such parts."""
        line, own, (_, n), found = self.writer.line, self.totals[f.results[0]], self.plan.each, self.products
        with self.writer.block(f"if (!weft::all_finite({own}))"):
            line("// what is infinite, or near the largest float, is no sum of such parts")
            name = self.fresh.fresh(f"{f.names[0]}_sum")
            with self.writer.block(f"for (int32_t item = 0; item < {self.plan.each[0] * n // WARP}; ++item)"):
                line(f"if (weft::is_finite(weft::one_of({own}, item))) continue;")
                row = f"first_own_row + item / {n // 2} * 16 + item % 4 / 2 * 8"
                column = f"first_own_column + item / 4 % {n // 8} * 8 + item % 2"
                here = [
                    self.place_of(found.rows, self.firsts["rows"], row, self.wholes["rows"]),
                    self.place_of(found.columns, self.firsts["columns"], column, self.wholes["columns"]),
                ]
                line(f"if (!({' && '.join(here)})) continue;")
                line(f"{register_type(f.types[0])} {name} = {self.algebra(f)}::identity();")
                self.each_point(found.over, (self.whole_fold(f),), {f.results[0]: name}, 1)
                line(f"weft::set_one({own}, item, {name});")
