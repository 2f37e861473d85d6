"""The products of a turn as CUDA C++: scores, sums, and sums where columns that a row does not have hold an infinity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.chained_rings import RingsEntry
from weft.graph.tile import Fold
from weft.loops.ir import Expr, free_names
from weft.plan.chain import several
from weft.plan.product import MATRIX_POINTS


@dataclass
class TurnProductsEntry(RingsEntry):
    """What warpgroups multiply."""

    def product_lambdas(self) -> None:
        """The products of a turn."""
        chain, of_sums = self.chain, [f"{self.totals[f.results[0]]}[0]" for f in self.chain.sums.folds]
        with self.writer.block("const auto multiply_scores = [&](const int32_t place) WEFT_INLINE", "};"):
            self.multiply(chain.scores, [self.scores[f.results[0]] for f in chain.scores.folds], fresh=True)
        if of_sums:
            with self.writer.block("const auto multiply_sums = [&](const int32_t place) WEFT_INLINE", "};"):
                self.multiply(chain.sums, of_sums, fresh=False)

    def multiply(self, product: object, totals: list[str], fresh: bool) -> None:
        """The products of a turn, from the first to the last. fresh: nothing is added up yet."""
        line, chain = self.writer.line, self.chain
        of_scores = product is chain.scores
        found = chain.scores if of_scores else chain.sums
        points = self.whole_plan.scores.tile[2] if of_scores else self.plan.tile[2]
        registers = totals if of_scores else [*totals, *dict.fromkeys(self.left.values())]
        places = {"at": "place"}
        if of_scores:
            places |= {"near": "own_row"} | ({} if self.rows_place.isdigit() else {"of": self.rows_place})
        if not several(chain):  # whose turns take 2 % longer with these, those of one score up to 4 % less (on an H200)
            line(f"const int32_t {', '.join(f'{name} = weft::uniform({place})' for name, place in places.items())};")
            places = {name: name for name in places}
        line(f"weft::wgmma_fence({', '.join(registers)});")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t g = 0; g < {points}; g += 16)"):
            for f, total in zip(found.folds, totals, strict=True):
                left, right = self.pair(f, found)
                own = self.tiles_of[right]
                turned = "weft::Major::k" if own.along_points else "weft::Major::rows"
                tile = self.tile_at(self.tile_names[right], own, places["at"], f"g / {own.points}")
                b = f"{tile}.matrix(0, g{f' % {own.points}' if own.tiles > 1 else ''})"
                if of_scores:
                    rows = self.tiles_of[left]
                    first = "weft::Major::k" if rows.along_points else "weft::Major::rows"
                    template = "" if (first, turned) == ("weft::Major::k",) * 2 else f", {first}, {turned}"
                    of = places.get("of", self.rows_place)
                    a = self.tile_at(self.tile_names[left], rows, of, f"g / {MATRIX_POINTS}")
                    a += f".matrix({places['near']}, g{f' % {MATRIX_POINTS}' if rows.tiles > 1 else ''})"
                else:
                    template = f", {turned}" if turned != "weft::Major::k" else ""
                    a = f"{self.left[f.results[0]]}[g / 16]"
                self.writer.cite(f.location)
                line(f"weft::wgmma<weft::{self.plan.type}{template}>({total}, {a}, {b}, {'g > 0' if fresh else 'true'});")

    def pair(self, f: Fold, found: object) -> tuple[int, int]:
        """Which tiles the operands of a product are; of sums, the right one."""
        names = free_names(f.parts[0])
        mine = [k for k, b in enumerate(self.tiles_of) if b.product is found and b.operand.name in names]
        left = next((k for k in mine if self.tiles_of[k].once), -1)
        return left, next(k for k in mine if not self.tiles_of[k].once)

    def of_sums(self) -> list[int]:
        return [self.pair(f, self.chain.sums)[1] for f in self.chain.sums.folds]

    def tiles_at(self, k: int, place: str) -> str:
        return f"{self.tile_names[k]}{f'[{place}]' if self.tiles_of[k].tiles > 1 else f' + {place}'}"

    # ---------------------------------------------------------------- infinities

    def any_infinite(self, place: str) -> str:
        """Whether the other operands of sums have an infinity, as all threads of a warpgroup are told."""
        if self.skips:
            return "!finite"
        infinite = [f"weft::any_infinite<{self.tiles_of[k].tiles}>({self.tiles_at(k, place)})" for k in self.of_sums()]
        return f"weft::any_of_warpgroup({' || '.join(infinite)}, told[{self.group}], {self.barrier_of_group})"

    @contextmanager
    def within(self, condition: str, turn: str, place: str) -> Iterator[None]:
        """Where columns that a row does not have hold an infinity, sums of those that it has; and what is written here."""
        with self.writer.block(f"if ({condition})"):
            self.multiply_within(turn, place)
            self.writer.line(self.all_have_read)
            yield

    @property
    def barrier_of_group(self) -> str:
        return f"{1 + self.whole_plan.warpgroups} + {self.group}"

    @property
    def all_have_read(self) -> str:
        return f"weft::barrier_sync({self.barrier_of_group}, 128);  // all have read the tiles"

    def multiply_within(self, turn: str, place: str) -> None:
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        line("// 0 times an infinity that a row does not have is none of its: these products leave it out")
        line("int32_t begin[2], end[2];")
        with self.writer.block("for (int32_t u = 0; u < 2; ++u)"):
            row = self.declare(chain.row)
            line(f"const int64_t {row} = first_row + first_own_row + u * 8;")
            for name, which in (("begin", "start"), ("end", "stop")):
                near = f"weft::maximum<int64_t>({self.within_turns(self.bound_of_row(which))} - ({turn}) * {columns}, 0)"
                line(f"{name}[u] = weft::minimum<int64_t>({near}, {columns});")
        if chain.given is not None:
            self.has_pair(chain.given, turn, place)
        for f, k in zip(chain.sums.folds, self.of_sums(), strict=True):
            total, left = self.totals[f.results[0]], self.left[f.results[0]]
            has = ", has" if chain.given is not None else ""
            line(f"weft::multiply_within({total}[0], {left}, {self.tiles_at(k, place)}, begin, end{has});")

    def has_pair(self, given: Expr, turn: str, place: str) -> None:
        """Whether a row of a thread has a column of a turn by a condition, whose lines are there of the turn folded last."""
        line, row, column = self.writer.line, self.declare(self.chain.row), self.declare(self.chain.column)
        lines = {name: f"{own}[{self.line_place}][point]" for name, (_, own) in self.column_lines.items()}
        with (
            self.writer.block("const auto has = [&](const int32_t u, const int32_t point) WEFT_INLINE", "};"),
            self.spelled(lines) if place == "place" else self.read_in_memory(),
        ):
            mark = self.writer.mark()
            last = f"{self.counts[self.chain.row]} - 1"
            line(f"const int64_t {row} = weft::minimum<int64_t>(first_row + first_own_row + u * 8, {last});")
            self.statements(tuple(map(self.let, self.of_pairs)))
            line(f"return {self.printer.value(given)};")
            if self.writer.mentions(column, mark):
                self.writer.insert(mark, f"const int64_t {column} = {self.first_of(turn, 'int64_t')} + point;")

    def mend_first(self, place: str) -> None:
        """The sums of a first turn, in which rows lack columns, tell by themselves whether there was an infinity."""
        line, (_, lanes, _) = self.writer.line, self.plan.tile
        finite = " && ".join(f"weft::all_finite({total})" for total in self.accumulators())
        with self.writer.block("if (fresh)"):
            with self.writer.block(f"if (!__all_sync(0xffffffffu, {finite}))"):
                for total in self.accumulators():
                    self.unrolled([f"for (int32_t h = 0; h < {lanes // 2}; ++h)"], f"{total}[h] = 0.0f;")
                self.multiply_within("turn - 1", place)
                line("__syncwarp();  // all of a warp have read the tiles")
            line("fresh = false;")
