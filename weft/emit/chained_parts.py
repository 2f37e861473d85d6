"""Parts of chained products that blocks have left in memory: a launch after combines them."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.chained_products import ChainEntry
from weft.emit.expressions import register_type
from weft.plan.chain import PARTS_BLOCK, RUN_OF_PARTS, pieces_of
from weft.plan.fold import PACKET_BYTES


@dataclass
class ChainedPartsEntry(ChainEntry):
    """A thread has a run of lanes of a row, and combines all its parts in their order."""

    def shape(self) -> str:
        return f"a thread has {RUN_OF_PARTS} of {self.chain.lane} of a row, in {self.whole_plan.parts} parts"

    def bounds(self) -> str:
        return f"__launch_bounds__({PARTS_BLOCK})"

    def parameters(self) -> list[str]:
        return [*self.parameters_of_slots(), *self.parameters_of_parts()]

    def body(self) -> None:
        line, chain, plan, (rows, lanes, _) = self.writer.line, self.chain, self.whole_plan, self.plan.tile
        pieces, runs = pieces_of(plan), lanes // RUN_OF_PARTS
        self.sizes_of_call()
        self.place_of_tile(f"int32_t(blockIdx.x) / {pieces}" if pieces > 1 else "int32_t(blockIdx.x)")
        line(f"const int32_t item = int32_t(blockIdx.x % {pieces}) * {PARTS_BLOCK} + threadIdx.x;")
        line(f"const int32_t own_row = item / {runs}, own_column = item % {runs} * {RUN_OF_PARTS};")
        line(f"if (own_row >= {rows} || first_row + own_row >= {self.wholes['rows']}) return;")
        line(f"const int64_t first_place = int64_t(blockIdx.x / {pieces}) * {plan.parts} * {rows} + own_row;")
        for f in (*chain.leading, *chain.following):
            own = self.names[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            line(f"{register_type(f.types[0])} {own} = {self.algebra(f)}::identity();")
        for f in chain.sums.folds:
            own = self.fresh.fresh(f"{f.names[0]}_own")
            self.whole[f.results[0]] = f"{own}[{{0}}]"
            line(f"float {own}[{RUN_OF_PARTS}] = {{}};")
        each = f"for (int32_t part = 0; part < {plan.parts}; ++part)"
        place = f"first_place + part * {rows}"
        line("#pragma unroll 8")
        with self.writer.block(each):
            for f in chain.leading:
                own = self.names[f.results[0]]
                line(f"{own} = {self.algebra(f)}::combine({own}, {self.left_in[f.results[0]]}[{place}]);")
        moved = dict.fromkeys(r.extremum for r in chain.repairs)
        last = {n: self.names[n] for n in moved}
        if chain.bounded and moved:
            self.statements(tuple(map(self.let, self.of_bounds)))
            last = self.of_columns("first_row + own_row", last)
        line("#pragma unroll 8")
        with self.writer.block(each):
            line(f"const int64_t place = {place};")
            by: dict[str, str] = {}
            old = {n: f"{self.left_in[n]}[place]" for n in moved}
            for text, sums in self.factors(old, last, settled=True).items():
                own = self.fresh.fresh("factor")
                line(f"const float {own} = {text};")
                by |= dict.fromkeys(sums, f" * {own}")
            for f in chain.following:
                own, name = self.names[f.results[0]], f.results[0]
                line(f"{own} = {self.algebra(f)}::combine({own}, {self.left_in[name]}[place]{by.get(name, '')});")
            for f in chain.sums.folds:
                own, name, run = self.whole[f.results[0]].format("v"), f.results[0], self.fresh.fresh(f"{f.names[0]}_run")
                packet = f"weft::fetch<{RUN_OF_PARTS}, {PACKET_BYTES // f.types[0].size}>"
                line(f"float {run}[{RUN_OF_PARTS}];")
                line(f"weft::unpack({packet}({self.left_in[name]} + place * {lanes} + own_column), {run});")
                self.unrolled([f"for (int32_t v = 0; v < {RUN_OF_PARTS}; ++v)"], f"{own} += {run}[v]{by.get(name, '')};")
        self.divisors()
        self.results()
        self.write_rows()

    def divisor(self, name: str, kind: str, value: str) -> str:
        self.writer.line(f"const {kind} {name}({value});")
        return name

    def write_rows(self) -> None:
        if self.chain.writes:
            with self.writer.block("if (own_column == 0)"):
                row = self.declare(self.chain.row)
                self.writer.line(f"const int64_t {row} = first_row + own_row;")
                self.write_row()
