"""The rings of chained products as CUDA C++: places in shared memory for the tiles of turns, and what brings these as places
become free.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from weft.emit.chained_tiles import TilesEntry
from weft.emit.rings import WARPS_OF_A_GROUP, given_back
from weft.plan.product import MATRIX_POINTS


def done(which: str, place: str) -> str:
    return given_back(f"{which}_empty[{place}]")


def _plus(first: str, more: int) -> str:
    return f"{first} + {more}" if more else first


@dataclass
class RingsEntry(TilesEntry):
    """Tiles that come and go."""

    def rings(self) -> None:
        line, offset, stages = self.writer.line, 0, self.plan.stages
        line(f"// {stages} turns have a place in shared memory, and the rows of {self.whole_plan.row_places} tiles")
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        for b, name in zip(self.tiles_of, self.tile_names, strict=True):
            along = "true" if b.along_points else "false"
            points = f", {b.points}" if b.points != MATRIX_POINTS else ""
            type_ = f"weft::MatrixTile<weft::{self.plan.type}, {b.rows}, {along}{points}>"
            if b.of:
                of = next(n for o, n in zip(self.tiles_of, self.tile_names, strict=True) if o.operand.name == b.of)
                line(f"auto* const {name} = reinterpret_cast<{type_}*>({of});  // by its points: lines are the same")
            elif b.tiles > 1:
                line(f"auto* const {name} = reinterpret_cast<{type_}(*)[{b.tiles}]>(memory{f' + {offset}' if offset else ''});")
            else:
                line(f"auto* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            offset += b.bytes * (self.whole_plan.row_places if b.once else stages)
        rings = ", ".join(f"{which}_{state}[{stages}]" for which in self.which for state in ("full", "empty"))
        rows = self.whole_plan.row_places
        line(f"__shared__ weft::Mbarrier rows_full[{rows}], rows_empty[{rows}], {rings};")
        if self.whole_plan.taken:
            axes = ", ".join(["the number among tiles of rows", *self.chain.sums.batch])
            line(f"// of the tiles that these are of: {axes}")
            line(f"__shared__ int32_t taken[{rows}][{1 + len(self.chain.sums.batch)}];")
        self.shared_turns()
        self.declare_lines()
        with self.writer.block("if (threadIdx.x == 0)"):
            with self.writer.block(f"for (int32_t place = 0; place < {rows}; ++place)"):
                line("rows_full[place].init(1);")
                line(f"rows_empty[place].init({self.whole_plan.warpgroups * WARPS_OF_A_GROUP});")
            with self.writer.block(f"for (int32_t place = 0; place < {stages}; ++place)"):
                for which in self.which:
                    line(f"{which}_full[place].init(1);")
                    line(f"{which}_empty[place].init({self.whole_plan.warpgroups * WARPS_OF_A_GROUP});")
            line("weft::fence_mbarrier_init();")
            for name in dict.fromkeys(name for name, b in zip(self.maps, self.tiles_of, strict=True) if not b.of):
                line(f"weft::prefetch({name});")
        line("__syncthreads();")
        if self.launch.early:
            self.launch.begin(self.writer)

    def begin_places(self) -> None:
        """Where in the rings a thread is, over all turns of all tiles."""
        self.writer.line("int32_t place = 0;")
        self.writer.line("uint32_t phase = 0;  // how often all places have been taken")
        self.writer.line("uint32_t rows = 0;  // of so many tiles so far")

    @property
    def next_place(self) -> str:
        return f"if (++place == {self.plan.stages}) place = 0, phase ^= 1;"

    # ---------------------------------------------------------------- what brings tiles

    def bring_all(self, alone: str) -> None:
        """alone: which thread does, where all of a warp ask rows."""
        groups: dict[str, list[int]] = {"rows": [], "scores": [], "sums": []}
        for k, b in enumerate(self.tiles_of):
            if b.of:
                continue
            groups["rows" if b.once else "scores" if b.product is self.chain.scores else "sums"].append(k)
        size = {which: sum(self.tiles_of[k].bytes for k in own) for which, own in groups.items()}
        self.begin_places()
        with self.each_tile_brought(alone):
            self.look()
            if self.skips:
                self.ask_turns()
            with self.writer.block(alone) if alone and not self.together_bring else nullcontext():
                self.others = [self.other_places(k) for k in range(len(self.tiles_of))]
                self.begin_lines()
                self.bring_turns(groups, size)
                if self.whole_plan.taken:
                    with self.writer.block("if (first)" if self.skips else "if (first_turn >= turns)"):
                        self.hand_tile()
                        with self.one_lane():
                            self.writer.line(f"rows_full[{self.rows_place}].arrive();")
                        self.writer.line("++rows;")

    def bring_turns(self, groups: Mapping[str, list[int]], size: Mapping[str, int]) -> None:
        line = self.writer.line
        each = "for (int32_t turn = first_turn; turn < turns; ++turn)"
        if self.skips:
            line("bool first = true;")
            each = "for (int32_t next = left.next(), turn; (turn = next / 4) < turns;)"
        with self.writer.block(each):
            if self.skips:
                line("const int32_t told = next;")
                line("next = left.next();")
            for which in self.which:
                for k in groups[which]:
                    self.find_pages(k)
            self.load_lines()
            for which in self.which:
                line(f"{which}_empty[place].wait(phase ^ 1);")
                if which == "scores":
                    self.store_lines()
                if self.skips and which == "scores":
                    with self.one_lane():
                        line("turn_of[place] = told;")
                self.bring_group(groups[which], f"{which}_full[place]", size[which], "place", self.first_of("turn"))
            line(self.next_place)
            line("if (!first) continue;" if self.skips else "if (turn > first_turn) continue;")
            if self.skips:
                line("first = false;")
            line("// the rows of a tile come after its first columns, which need not wait for those of the tile before")
            if self.whole_plan.taken:
                self.hand_tile()
            else:
                line(f"rows_empty[{self.rows_place}].wait({self.rows_phase} ^ 1);")
            self.bring_group(groups["rows"], f"rows_full[{self.rows_place}]", size["rows"], self.rows_place, "first_row")
            line("++rows;")

    def bring_group(self, operands: list[int], barrier: str, size: int, place: str, first: str) -> None:
        """The boxes of some operands, which a barrier counts."""
        with self.one_lane():
            self.writer.line(f"{barrier}.arrive_expect({size});")
            for k in operands:
                if self.pages_of(k) is None:
                    self.bring_boxes(k, barrier, place, first)
        for k in operands:
            if self.pages_of(k) is not None:
                self.writer.line("__syncwarp();  // the barrier knows what comes")
                self.bring_pages(k, barrier)

    def bring_boxes(self, k: int, barrier: str, place: str, first: str) -> None:
        """The boxes of the k-th operand's tiles. first: the first row, or the first column."""
        b, name, map_ = self.tiles_of[k], self.tile_names[k], self.maps[k]
        self.writer.cite(self.read_of(k).location)
        of_sums = b.product is self.chain.sums  # whose points are the columns
        for t in range(b.tiles):
            tile = self.tile_at(name, b, place, str(t))
            for begin in range(0, b.rows, b.rows if b.along_points else MATRIX_POINTS):
                point, row = (_plus(first, t * b.points), str(begin)) if of_sums else (str(t * b.points), _plus(first, begin))
                pair = [point, f"int({row})" if row.startswith("first") else row]
                pair = pair if b.along_points else pair[::-1]
                element = f"{tile}.element{f' + {begin * b.points}' if begin else ''}"
                self.writer.line(f"weft::tensor_load({element}, {map_}, {barrier}, {', '.join([*pair, *self.others[k]])});")

    # ---------------------------------------------------------------- what gives places back

    @property
    def which(self) -> tuple[str, ...]:
        """The products whose columns come to shared memory in each turn."""
        alone = any(b.product is self.chain.sums and not b.of for b in self.tiles_of)
        return ("scores", "sums") if alone else ("scores",)

    @property
    def lent(self) -> bool:
        """Whether sums have tiles of the scores."""
        return any(b.of for b in self.tiles_of)

    def scores_done(self, place: str) -> None:
        if not self.lent:
            self.writer.line(done("scores", place))

    def sums_done(self, place: str) -> None:
        for which in self.which:
            if which == "sums" or self.lent:
                self.writer.line(done(which, place))

    def await_columns_of_sums(self, place: str) -> None:
        if "sums" in self.which:
            self.writer.line(f"sums_full[{place}].wait(phase);")

    def leave_rows(self) -> None:
        self.writer.line(done("rows", self.rows_place))
        self.writer.line("++rows;")
