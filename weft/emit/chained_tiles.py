"""Which tiles of rows a block of chained products has: those at its place, or what it takes when it has done others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from weft.emit.chained_turns import TurnsEntry

# Tiles that blocks take side by side, for each of them; where columns move with rows, tiles of one of the batch at a time.
ROUNDS_TOGETHER, TILES_BESIDE = 3, 4


@dataclass
class TilesEntry(TurnsEntry):
    """A tile of rows is of one of the batch. row_step: from the first row of a tile to that of the next one, as C++."""

    row_step: str = ""

    @property
    def all_together(self) -> bool:
        """Whether tiles of all of the batch are taken side by side: where data tell how many columns a tile has, rows side by
        side have others, and few of them are needed at a time.
        """
        return self.chain.told_by_rows or self.skips

    def number_of_tiles(self) -> None:
        """How many tiles of rows there are, or parts of these."""
        line, tiles = self.writer.line, self.squares["rows"]
        batch = [self.counts[a] for a in self.chain.sums.batch]
        if self.whole_plan.taken:
            line(f"const int32_t batches = {' * '.join(batch) or '1'};")
            if not self.all_together:
                each = f"{ROUNDS_TOGETHER} * int32_t(gridDim.x) / {tiles}"
                if self.chain.start != 0 and self.chain.stop != 0:  # few columns are needed at a time
                    each = f"weft::maximum<int32_t>({each}, gridDim.x / {TILES_BESIDE})"
                line("// of so many of these, tiles are taken side by side")
                line(f"const int32_t together = weft::maximum<int32_t>({each}, 1);")
            line(f"const int32_t tiles = {tiles} * batches;")
            return
        parts = [str(self.whole_plan.parts)] if self.whole_plan.parts > 1 else []
        line(f"const int32_t tiles = {' * '.join([tiles, *batch, *parts])};")

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        """What is written here is done for each tile of rows of a block, at its place; blocks of a cluster have one."""
        if self.whole_plan.taken:
            with self.writer.block("while (true)"):
                self.tile_of_rows()
                self.turns_of_tile()
                yield
            return
        if self.whole_plan.cluster > 1:
            with self.writer.block(""):
                self.writer.line("const int32_t tile = blockIdx.x;")
                self.place_of_tile(f"tile / {self.whole_plan.parts}")
                self.turns_of_tile()
                yield
            return
        with self.writer.block("for (int32_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)"):
            self.place_of_tile(f"tile / {self.whole_plan.parts}" if self.whole_plan.parts > 1 else "tile")
            self.turns_of_tile()
            yield

    @contextmanager
    def each_tile_brought(self, alone: str) -> Iterator[None]:
        """What is written here is done for each tile that a block brings. alone: which thread takes them, for all of a warp."""
        if not self.whole_plan.taken:
            with self.each_tile():
                yield
            return
        line = self.writer.line
        self.number_of_tiles()
        with self.writer.block("for (int32_t tile = blockIdx.x; tile < tiles;)"):
            self.place_of_taken()
            self.turns_of_tile()
            yield
            line("uint32_t ticket = 0;")
            with self.writer.block(alone) if alone else nullcontext():
                line("ticket = weft::atomic_add_relaxed<weft::Scope::gpu>(tickets, 1u);")
            line(f"tile = {'__shfl_sync(0xffffffffu, ticket, 0)' if alone else 'ticket'};")
        with self.writer.block(alone) if alone else nullcontext():
            line(f"rows_empty[{self.rows_place}].wait({self.rows_phase} ^ 1);")
            line(f"taken[{self.rows_place}][0] = -1;  // no tile is left")
            line(f"rows_full[{self.rows_place}].arrive();")

    def place_of_taken(self) -> None:
        """The first row of a tile that a block takes, and of which of the batch it is: of a few of these, whose columns stay in
        the cache, the tiles with the most columns come first, so that the last ones are short.
        """
        line, chain, tiles = self.writer.line, self.chain, self.squares["rows"]
        if self.all_together:
            line("const int32_t nth = uint32_t(tile) / uint32_t(batches);")
            of_batch = "tile - nth * batches"
        else:
            line(f"const int32_t section = uint32_t(tile) / uint32_t(together * {tiles}), first_batch = section * together;")
            line("const int32_t few = weft::minimum<int32_t>(together, batches - first_batch);")
            within = f"tile - first_batch * {tiles}"
            line(f"const int32_t within_section = {within}, nth = uint32_t(within_section) / uint32_t(few);")
            of_batch = "first_batch + within_section - nth * few"
        if chain.sums.batch:
            line(f"const uint32_t batch = {of_batch};")
            self.places_of_batch()
        line(f"const int32_t row_tile = {f'{tiles} - 1 - nth' if self.whole_plan.from_last else 'nth'};")
        self.rows_of_tile()

    def hand_tile(self) -> None:
        """Tell those who multiply which tile comes."""
        line = self.writer.line
        line(f"rows_empty[{self.rows_place}].wait({self.rows_phase} ^ 1);")
        with self.one_lane():
            for k, name in enumerate(["row_tile", *(self.declare(a) for a in self.chain.sums.batch)]):
                line(f"taken[{self.rows_place}][{k}] = {name};")
            if self.skips:
                self.hand_turns()

    def told_of_tile(self, k: int) -> str:
        return f"taken[{self.rows_place}][{k}]"

    def tile_of_rows(self) -> None:
        """The tile that has been told, when its rows have come."""
        line = self.writer.line
        line(f"rows_full[{self.rows_place}].wait{self.rows_phase};")
        line(f"const int32_t row_tile = {self.told_of_tile(0)};")
        line("if (row_tile < 0) break;")
        for k, a in enumerate(self.chain.sums.batch, 1):
            line(f"{'' if self.skips else 'const '}int64_t {self.declare(a)} = {self.told_of_tile(k)};")
        if self.skips:
            line(f"const weft::TurnsOfGroup own_part = turns_of[{self.rows_place}][{self.group}];")
        line("__syncwarp();  // all of a warp have read it, before it gives their place back")
        self.rows_of_tile()

    def place_of_tile(self, number: str) -> None:
        """The first row of a tile of this number, and of which of the batch it is."""
        line, chain, tiles = self.writer.line, self.chain, self.squares["rows"]
        if chain.sums.batch:
            line(f"const uint32_t batch = {number} / {tiles};")
            self.places_of_batch()
            number = f"{number} % {tiles}"
        if self.whole_plan.from_last and not chain.told_by_rows:
            line(f"const int32_t row_tile = {tiles} - 1 - {number};  // the rows with the most columns first")
        else:
            line(f"const int32_t row_tile = {number};")
        self.rows_of_tile()

    def places_of_batch(self) -> None:
        """Which of the batch a number is: in 32 bits, which no plan has more of, since divisions of more take a while."""
        counts = {a: f"uint32_t({self.counts[a]})" for a in self.chain.sums.batch}
        self.places([self.axes[a] for a in self.chain.sums.batch], "batch", counts)

    def rows_of_tile(self) -> None:
        line, chain = self.writer.line, self.chain
        line(f"const int64_t first_row = int64_t(row_tile) * {self.row_step};")
        if chain.together is not None:
            line(f"const int64_t row_stop = weft::minimum<int64_t>(first_row + {self.row_step}, {self.counts[chain.row]});")
            self.wholes["rows"] = "row_stop"
