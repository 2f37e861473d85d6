"""Launches beside that of chained products: after it, which combines the parts that blocks have left in memory, or before it,
which tells these that none is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.chained_products import ChainEntry
from weft.plan.chain import PARTS_BLOCK, RUN_OF_PARTS, pieces_of, sharing_of


@dataclass
class ChainedPartsEntry(ChainEntry):
    """Some threads have a run of lanes of a row, and combine all its parts in their order."""

    def shape(self) -> str:
        share, parts = sharing_of(self.whole_plan), self.whole_plan.parts
        who = f"{share} threads have" if share > 1 else "a thread has"
        return f"{who} {RUN_OF_PARTS} of {self.chain.lane} of a row, in {parts} parts"

    @property
    def sets_up(self) -> bool:
        return False

    def bounds(self) -> str:
        return f"__launch_bounds__({PARTS_BLOCK})"

    def parameters(self) -> list[str]:
        return [*self.parameters_of_slots(), *self.parameters_of_parts()]

    def body(self) -> None:
        line, plan, rows = self.writer.line, self.whole_plan, self.plan.tile[0]
        pieces, share = pieces_of(plan), sharing_of(plan)
        self.sizes_of_call()
        self.place_of_tile(f"int32_t(blockIdx.x) / {pieces}" if pieces > 1 else "int32_t(blockIdx.x)")
        each = f" / {share}" if share > 1 else ""
        line(f"const int32_t item = int32_t(blockIdx.x % {pieces}) * {PARTS_BLOCK // share} + threadIdx.x{each};")
        self.run_of_item()
        line(f"if (own_row >= {rows} || first_row + own_row >= {self.wholes['rows']}) return;")
        line(f"const int64_t first_place = int64_t(blockIdx.x / {pieces}) * {plan.parts} * {rows} + own_row;")
        if self.chain.bounded and self.chain.repairs:
            self.statements(tuple(map(self.let, self.of_bounds)))
        self.combine_parts(self.left_in, f"first_place + part * {rows}", share)


@dataclass
class TicketsEntry(ChainedPartsEntry):
    """A thread has a tile of rows, or one has all of them."""

    def shape(self) -> str:
        return "no tile is taken but the first ones" if self.whole_plan.taken else "no part of a tile is there"

    def body(self) -> None:
        line = self.writer.line
        if self.whole_plan.taken:
            line(f"// {self.shape()}")
            line("// parts: of the blocks, each of which begins with the tile that has its number")
            line("if (threadIdx.x == 0) tickets[0] = parts;")
            return
        self.sizes_of_call()
        self.number_of_tiles()
        line(f"const int32_t item = int32_t(blockIdx.x) * {PARTS_BLOCK} + threadIdx.x;")
        line(f"if (item < tiles / {self.whole_plan.parts}) tickets[item] = 0;")
