"""Launches beside that of chained products: after it, which combines the parts that blocks have left in memory, or before it,
which tells these that none is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.chained_products import ChainEntry
from weft.emit.expressions import register_type
from weft.plan.chain import PARTS_BLOCK, RUN_OF_PARTS, Brought, looked_at, pieces_of, sharing_of
from weft.plan.product import MATRIX_POINTS


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
        if self.whole_plan.skips:
            return "no tile is taken but the first ones; a block looks at the columns of a turn"
        return "no tile is taken but the first ones" if self.whole_plan.taken else "no part of a tile is there"

    def parameters(self) -> list[str]:
        if self.whole_plan.skips and looked_at(self.chain, self.whole_plan):
            return ChainEntry.parameters(self)
        return super().parameters()

    def body(self) -> None:
        line = self.writer.line
        if self.whole_plan.taken:
            line(f"// {self.shape()}")
            line("// parts: of the blocks, each of which begins with the tile that has its number")
            line(f"if ({'blockIdx.x == 0 && ' if self.whole_plan.skips else ''}threadIdx.x == 0) tickets[0] = parts;")
            if self.whole_plan.skips:
                self.tell_turn()
            return
        self.sizes_of_call()
        self.number_of_tiles()
        line(f"const int32_t item = int32_t(blockIdx.x) * {PARTS_BLOCK} + threadIdx.x;")
        line(f"if (item < tiles / {self.whole_plan.parts}) tickets[item] = 0;")

    def tell_turn(self) -> None:
        """What a turn's columns of one of the batch have, from the least to the largest, and whether that is finite."""
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        for axis in chain.sums.batch:
            self.counts[axis] = self.span(self.axes[axis], f"{axis}_count")
        sides = chain.sides
        line(f"const int32_t batches = {' * '.join(self.counts[a] for a in chain.sums.batch) or '1'};")
        line("const int32_t turn = int32_t(blockIdx.x) / batches, batch = int32_t(blockIdx.x) % batches;")
        self.places([self.axes[a] for a in chain.sums.batch], "batch", self.counts)
        looked = looked_at(chain, self.whole_plan)
        self.bring_looked_at(looked)
        for k, e in enumerate(sides.columns):
            line(f"weft::Interval<{register_type(e.type)}> columns_{k};")
        line("bool finite = true;")
        exprs = [*sides.columns, *sides.finite_columns]
        if exprs:
            column, values = self.declare(chain.column), self.needed(exprs)
            with self.writer.block(f"for (int32_t point = threadIdx.x; point < {columns}; point += {PARTS_BLOCK})"):
                line(f"const int64_t {column} = {self.inside(f'int64_t(turn) * {columns} + point', values)};")
                self.statements(tuple(map(self.let, values)))
                for k, e in enumerate(sides.columns):
                    line(f"columns_{k}.take({self.printer.value(e)});")
                if sides.finite_columns:
                    numbers = (f"weft::is_number({self.printer.value(e)})" for e in sides.finite_columns)
                    line(f"finite = finite && {' && '.join(numbers)};")
        if looked:
            line("full.wait(0);")
            for b in looked:
                name = self.tile_names[self.tiles_of.index(b)]
                line(f"finite = finite && !weft::any_infinite<{b.tiles}>({self.tile_at_first(name, b)});")
        line("uint32_t told = __syncthreads_and(finite) != 0;")
        for k, e in enumerate(sides.columns):
            type_ = register_type(e.type)
            line(f"told |= uint32_t(__syncthreads_and(columns_{k}.ordered) != 0) << {k + 1};")
            line(f"__shared__ {type_} scratch_{k}[2][{PARTS_BLOCK // 32}];")
            for n, (algebra, own) in enumerate((("Min", "least"), ("Max", "most"))):
                reduced = f"weft::reduce<weft::{algebra}<{type_}>, {PARTS_BLOCK}>(columns_{k}.{own}, scratch_{k}[{n}])"
                line(f"columns_{k}.{own} = {reduced};")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"{self.tables['told']}[blockIdx.x] = told;")
            for k in range(len(sides.columns)):
                for own in ("least", "most"):
                    line(f"{self.tables[f'{own}.{k}']}[blockIdx.x] = columns_{k}.{own};")

    def bring_looked_at(self, looked: tuple[Brought, ...]) -> None:
        """The tiles of the turn that are looked at."""
        if not looked:
            return
        line, offset = self.writer.line, 0
        line("extern __shared__ __align__(1024) unsigned char memory[];")
        for b in looked:
            name = self.tile_names[self.tiles_of.index(b)]
            along, points = ("true" if b.along_points else "false"), f", {b.points}" if b.points != MATRIX_POINTS else ""
            type_ = f"weft::MatrixTile<weft::{self.plan.type}, {b.rows}, {along}{points}>"
            type_ += f"(*)[{b.tiles}]" if b.tiles > 1 else "*"
            line(f"auto* const {name} = reinterpret_cast<{type_}>(memory{f' + {offset}' if offset else ''});")
            offset += b.bytes
        line("__shared__ weft::Mbarrier full;")
        with self.writer.block("if (threadIdx.x == 0)"):
            line("full.init(1);")
            line("weft::fence_mbarrier_init();")
        line("__syncthreads();")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"full.arrive_expect({offset});")
            self.others = [self.other_places(k) if b in looked else [] for k, b in enumerate(self.tiles_of)]
            for k, b in enumerate(self.tiles_of):
                if b in looked:
                    self.bring_boxes(k, "full", "0", f"turn * {self.plan.tile[2]}")

    def tile_at_first(self, name: str, b: Brought) -> str:
        return f"{name}[0]" if b.tiles > 1 else name
