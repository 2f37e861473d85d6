"""Columns of chained products that lie in pages: which pages a turn has, and a box for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from weft.emit.chained_folds import RowFoldsEntry
from weft.emit.values import ZERO
from weft.graph.pages import Pages
from weft.graph.tile import Read, mapped
from weft.loops.ir import Expr, Op, Ref, free_names, rewrite
from weft.loops.types import INT64
from weft.plan.chain import Brought
from weft.plan.product import MATRIX_POINTS, operand_read

_OUTSIDE = "if (outside) __trap();  // a subscript leaves its array"


@dataclass
class PagesEntry(RowFoldsEntry):
    """tiles_of: the operands in shared memory, with the names of their tiles and of the maps of their boxes. numbers: where a
    lane has its page of a turn, of operands that have some. others: where boxes are along the axes that no tile has.
    """

    tiles_of: tuple[Brought, ...] = ()
    tile_names: list[str] = field(default_factory=list)
    maps: list[str] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)
    others: list[list[str]] = field(default_factory=list)

    def tile_at(self, name: str, b: Brought, place: str, t: str) -> str:
        return f"{name}[{place}]" if b.tiles == 1 else f"{name}[{place}][{t}]"

    def pages_of(self, k: int) -> Pages | None:
        b = self.tiles_of[k]
        return None if b.once else self.chain.pages_of(b.operand)

    def find_pages(self, k: int) -> None:
        """Which page of the k-th operand a lane has in a turn, before there is room for it: memory takes a while to tell."""
        pages, box, axis = self.pages_of(k), self.whole_plan.box_columns, self.axes[self.chain.column]
        if pages is None:
            return
        line, columns, column = self.writer.line, self.plan.tile[2], self.declare(self.chain.column)
        own = self.numbers[k] = self.fresh.fresh(f"{pages.read}_pages")
        has = f"{column} < {self.stop_of_columns}"
        has += "" if axis.start == ZERO else f" && {column} + {box} > {self.bound('start', 'tile', least=True)}"
        beyond = self.printer.index(self.function.array(self.read_of(k).array).shape[pages.number])
        line(f"int32_t {own} = {beyond};  // beyond the array, where all is 0")
        with self.each_page():
            line(f"const int64_t {column} = int64_t(turn) * {columns} + n * {box};")
            with self.writer.block(f"if ({has})"):
                line(f"{own} = {self.tell_page(k, self.whole_plan.page_of_turn)};")
        line(_OUTSIDE)

    def tell_page(self, k: int, of_columns: str) -> str:
        """Which page of the array, by the number of the page among those of the columns: looked at, as is what tells it."""
        pages, read = self.pages_of(k), self.read_of(k)
        assert pages is not None
        told = self.raw(self.fresh.fresh("page_of_columns"))
        self.varies |= {told.name}
        self.writer.line(f"const int64_t {self.names[told.name]} = {of_columns};")
        quotient = Op("floordiv", (Ref(pages.column, INT64), pages.size), INT64)

        def by_page(e: Expr) -> Expr:
            return rewrite(e, lambda x: told if x == quotient else None)

        number = read.index[pages.number]
        values = [mapped(v, by_page) for v in self.needed([number]) if v not in self.of_bounds]
        self.statements(tuple(map(self.let, values)))
        number = by_page(number)
        if self.unproven(read.array, pages.number, number):
            self.writer.line(f"{self.check(read.array, pages.number, number)};")
        return self.printer.index(number)

    @property
    def stop_of_columns(self) -> str:
        """Of those that some row of a tile has."""
        return self.bound("stop", "tile", least=False) if self.chain.bounded else self.counts[self.chain.column]

    def bring_pages(self, k: int, barrier: str) -> None:
        """The boxes of the k-th operand in a turn: lines of 64 points."""
        b, plan = self.tiles_of[k], self.whole_plan
        of_sums = b.product is self.chain.sums
        rest = [plan.place_in_page, *(place or self.numbers[k] for place in self.others[k])]
        self.writer.cite(self.read_of(k).location)
        with self.each_page():
            for first in range(0, b.rows if of_sums else b.tiles * b.points, MATRIX_POINTS):
                # lines of sums are points of one tile, those of scores of a tile each
                tile = self.tile_at(self.tile_names[k], b, "place", "0" if of_sums else str(first // MATRIX_POINTS))
                begin = f"{first * b.points} + " if of_sums and first else ""
                element = f"{tile}.element + {begin}n * {plan.box_columns * MATRIX_POINTS}"
                self.writer.line(f"weft::tensor_load({element}, {self.maps[k]}, {barrier}, {', '.join([str(first), *rest])});")

    def other_places(self, k: int) -> list[str]:
        """Where the boxes of the k-th operand are along the axes that no tile has; "" for the number of a page."""
        b, index, pages = self.tiles_of[k], self.read_of(k).index, self.pages_of(k)
        axes, found = {b.product.rows[0] if b.once else b.product.columns[0], b.product.over[0]}, list[str]()
        for d in reversed(range(len(index))):
            if pages is not None and d == pages.number:
                found.append("")
            elif not free_names(index[d]) & axes and (pages is None or d != pages.place):
                with self.spelled({self.chain.row: "first_row"}):
                    text = self.printer.index(index[d])
                if not text.replace("_", "").isalnum():  # a division takes as long as a turn does
                    name = self.fresh.fresh(f"{b.operand.name}_place")
                    self.writer.line(f"const int64_t {name} = {text};")
                    text = name
                found.append(f"int({text})")
        return found

    @contextmanager
    def each_page(self) -> Iterator[None]:
        """What is written here is done by the n-th lane for that page of a turn, or for the part of a page that a turn is."""
        with self.writer.block(f"if (n < {self.plan.tile[2] // self.whole_plan.box_columns})"):
            yield

    def one_lane(self) -> AbstractContextManager[None]:
        """What is written here is done by one lane, where others have pages, or ask for turns."""
        return self.writer.block("if (n == 0)") if self.chain.pages or self.together_bring else nullcontext()

    def read_of(self, k: int) -> Read:
        read = operand_read(self.tiles_of[k].product, self.tiles_of[k].operand)
        assert read is not None
        return read
