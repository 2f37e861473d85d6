"""Columns of chained products that lie in pages: which pages a turn has, and a box for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from weft.emit.chained_folds import RowFoldsEntry
from weft.emit.values import ZERO
from weft.graph.pages import Pages
from weft.graph.tile import Read
from weft.loops.ir import Expr, Let, Ref
from weft.loops.types import INT64
from weft.plan.chain import Brought
from weft.plan.product import MATRIX_POINTS, operand_read

_OUTSIDE = "if (outside) __trap();  // a subscript leaves its array"


@dataclass
class PagesEntry(RowFoldsEntry):
    """tiles_of: the operands in shared memory, with the names of their tiles and of the maps of their boxes. numbers: where the
    pages of a turn are told, of operands that have some.
    """

    tiles_of: tuple[Brought, ...] = ()
    tile_names: list[str] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)

    def tile_at(self, name: str, b: Brought, place: str, t: str) -> str:
        return f"{name}[{place}]" if b.tiles == 1 else f"{name}[{place}][{t}]"

    def pages_of(self, k: int) -> Pages | None:
        b = self.tiles_of[k]
        return None if b.once else self.chain.pages_of(b.operand)

    def look_at_last_pages(self) -> None:
        """Whether as many columns as data decide have pages at all."""
        if not self.of_bounds:
            return
        for k in range(len(self.tiles_of)):
            pages = self.pages_of(k)
            if pages is not None:
                with self.writer.block(f"if ({self.stop_of_columns} > 0)"):
                    self.writer.line(f"const int64_t {self.declare(self.chain.column)} = {self.stop_of_columns} - 1;")
                    self.tell_page(self._read(k), pages)
                    self.writer.line(_OUTSIDE)

    def find_pages(self, k: int) -> None:
        """Which pages the k-th operand has in a turn, before there is room for them: memory takes a while to tell."""
        pages, page, axis = self.pages_of(k), self.whole_plan.page, self.axes[self.chain.column]
        if pages is None:
            return
        line, read, column = self.writer.line, self._read(k), self.declare(self.chain.column)
        own = self.numbers[k] = self.fresh.fresh(f"{pages.read}_pages")
        has = f"{column} < {self.stop_of_columns}"
        has += "" if axis.start == ZERO else f" && {column} + {page} > {self.bound('start', 'tile', least=True)}"
        line(f"int32_t {own}[{self.plan.tile[2] // page}];")
        with self.each_page():
            line(f"{own}[n] = {self.printer.index(self.function.array(read.array).shape[pages.number])};  // beyond all: zeros")
            with self.writer.block(f"if ({has})"):
                self.tell_page(read, pages)
                line(f"{own}[n] = {self.printer.index(read.index[pages.number])};")
        line(_OUTSIDE)

    def tell_page(self, read: Read, pages: Pages) -> None:
        """What tells the page of a column, and whether that is inside."""
        number = read.index[pages.number]
        self.statements(self.told([number]))
        if self.unproven(read.array, pages.number, number):
            self.writer.line(f"{self.check(read.array, pages.number, number)};")

    def told(self, exprs: Iterable[Expr]) -> tuple[Let, ...]:
        """The values of a column that these are made of: those of its bounds are there already."""
        return tuple(self.let(v) for v in self.needed(exprs) if v not in self.of_bounds)

    @property
    def stop_of_columns(self) -> str:
        """Of those that some row of a tile has."""
        return self.bound("stop", "tile", least=False) if self.chain.bounded else self.counts[self.chain.column]

    def bring_pages(self, k: int, pages: Pages, barrier: str) -> None:
        """The boxes of the k-th operand in a turn: lines of 64 points."""
        b, read, page = self.tiles_of[k], self._read(k), self.whole_plan.page
        of_sums = b.product is self.chain.sums
        (along,) = self.chain.sums.columns if of_sums else self.chain.scores.over
        place = "0"  # of a turn with several pages; what is less than a page may begin inside
        self.writer.cite(read.location)
        with self.each_page():
            if page == self.plan.tile[2]:
                self.statements(self.told([read.index[pages.place]]))
                place = f"int({self.printer.index(read.index[pages.place])})"
            others = [d for d in reversed(range(len(read.index))) if d != pages.place and read.index[d] != Ref(along, INT64)]
            with self.spelled({self.chain.row: "first_row"}):
                told = {d: f"int({self.printer.index(read.index[d])})" for d in others if d != pages.number}
            rest = [told.get(d, f"{self.numbers[k]}[n]") for d in others]
            for first in range(0, b.rows if of_sums else b.tiles * b.points, MATRIX_POINTS):
                # lines of sums are points of one tile, those of scores of a tile each
                tile = self.tile_at(self.tile_names[k], b, "place", "0" if of_sums else str(first // MATRIX_POINTS))
                begin = f"{first * b.points} + " if of_sums and first else ""
                element = f"{tile}.element + {begin}n * {page * MATRIX_POINTS}"
                box = ", ".join([str(first), place, *rest])
                self.writer.line(f"weft::tensor_load({element}, {self.maps[k]}, {barrier}, {box});")

    @contextmanager
    def each_page(self) -> Iterator[None]:
        """What is written here is done for the n-th page of a turn, or for the part of a page that a turn is."""
        columns, page = self.plan.tile[2], self.whole_plan.page
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t n = 0; n < {columns // page}; ++n)"):
            self.writer.line(f"const int64_t {self.declare(self.chain.column)} = int64_t(turn) * {columns} + n * {page};")
            yield

    def _read(self, k: int) -> Read:
        read = operand_read(self.tiles_of[k].product, self.tiles_of[k].operand)
        assert read is not None
        return read
