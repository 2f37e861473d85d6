"""Where parts of the columns meet that several blocks have gone through: in memory, for a launch after or for the block that
comes last, or in the shared memory of a cluster. They are combined in their order, to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.chained_columns import PAIRS
from weft.emit.chained_pages import PagesEntry
from weft.emit.expressions import register_type
from weft.graph.tile import Fold, uses_of_write
from weft.plan.chain import RUN_OF_PARTS, WARPGROUP
from weft.plan.fold import PACKET_BYTES

_BARRIER = 8  # of all who multiply: those before are of warpgroups


@dataclass
class MeetingEntry(PagesEntry):
    """left_in: the memory that each fold's parts are left in, by its result."""

    @property
    def in_parts(self) -> tuple[Fold, ...]:
        """The folds of which parts are left."""
        return (*self.chain.leading, *self.chain.following, *self.chain.sums.folds)

    def parameters_of_parts(self) -> list[str]:
        """The memory that parts of rows are left in."""
        if self.whole_plan.taken:
            return ["uint32_t* tickets", "const int64_t parts"]
        if not self.whole_plan.leaves_parts:
            return []
        self.left_in = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_parts") for f in self.in_parts}
        memory = [f"{register_type(f.types[0])}* {self.left_in[f.results[0]]}" for f in self.in_parts]
        return [*memory, *(["uint32_t* tickets"] if self.whole_plan.meeting == "tickets" else []), "const int64_t parts"]

    def meet(self) -> None:
        """What follows where all parts are combined."""
        match self.whole_plan.meeting:
            case "after":
                self.leave_parts_at(f"int64_t(tile) * {self.plan.tile[0]} + ")
            case "cluster":
                self.meet_in_cluster()
            case "tickets":
                self.take_ticket()

    def leave_parts_at(self, first_row: str) -> None:
        """What a thread has of a part of the columns: tiles of rows as they lie, the first row at a place."""
        line, chain, (_, lanes, _) = self.writer.line, self.chain, self.plan.tile
        with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
            line(f"if (first_row + first_own_row + u * 8 >= {self.wholes['rows']}) break;")
            line(f"const int64_t place_of_row = {first_row}first_own_row + u * 8;")
            with self.writer.block("if (threadIdx.x % 4 == 0)"):
                for f in (*chain.leading, *chain.following):
                    line(f"{self.left_in[f.results[0]]}[place_of_row] = {self.names[f.results[0]]};")
            for f in chain.sums.folds:
                own, place = f"{self.totals[f.results[0]]}[0]", f"place_of_row * {lanes} + threadIdx.x % 4 * 2 + h * {PAIRS}"
                pair = [f"{own}[h * 4 + u * 2{more}]" for more in ("", " + 1")]
                each = f"for (int32_t h = 0; h < {lanes // PAIRS}; ++h)"
                if self.whole_plan.meeting == "cluster":
                    stores = (f"{self.left_in[f.results[0]]}[{place} + {k}] = {value};" for k, value in enumerate(pair))
                    self.unrolled([each], *stores)
                    continue
                with self.unrolled_block([each]):
                    line(f"const float part_run[2] = {{{', '.join(pair)}}};")
                    line(f"weft::store<2>({self.left_in[f.results[0]]} + {place}, part_run);")

    def meet_in_cluster(self) -> None:
        """Each block leaves its part where its tiles have been, and combines a share of the rows and lanes of all parts."""
        line, plan, (rows, lanes, _) = self.writer.line, self.whole_plan, self.plan.tile
        line(f"weft::barrier_sync({_BARRIER}, {plan.warpgroups * WARPGROUP});  // no tile is read any more")
        offset = 0
        self.left_in = {}
        for f in reversed(self.in_parts):  # whole packets first
            name, type_ = self.fresh.fresh(f"{f.names[0]}_part"), register_type(f.types[0])
            self.left_in[f.results[0]] = name
            line(f"{type_}* const {name} = reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''});")
            offset += rows * f.types[0].size * (lanes if f in self.chain.sums.folds else 1)
        self.leave_parts_at("")
        line("weft::cluster_sync();")
        with self.runs_of_tile(f"threadIdx.x * {plan.parts} + part", plan.parts):
            self.combine_parts({n: f"weft::peer({own}, part)" for n, own in self.left_in.items()}, "own_row")
        line("weft::cluster_sync();  // others may read what this block has")

    def take_ticket(self) -> None:
        """Each block leaves its part in memory, and the one that comes last combines those of all."""
        line, plan, rows = self.writer.line, self.whole_plan, self.plan.tile[0]
        self.launch.end(self.writer)
        self.leave_parts_at(f"int64_t(tile) * {rows} + ")
        together = f"weft::barrier_sync({_BARRIER}, {plan.warpgroups * WARPGROUP});"
        line(together)
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"ticket = weft::atomic_add_acquire_release<weft::Scope::gpu>(tickets + tile / {plan.parts}, 1u);")
        line(together)
        with self.writer.block(f"if (ticket == {plan.parts - 1})"):
            line(f"const int64_t first_place = int64_t(tile - part) * {rows};")
            with self.runs_of_tile("threadIdx.x", 1):
                self.combine_parts(self.left_in, f"first_place + part * {rows} + own_row")

    @contextmanager
    def runs_of_tile(self, first: str, blocks: int) -> Iterator[None]:
        """What is written here is done for every so manieth run of lanes of the rows of a tile."""
        (rows, lanes, _), each = self.plan.tile, self.whole_plan.warpgroups * WARPGROUP * blocks
        with self.writer.block(f"for (int32_t item = {first}; item < {rows * lanes // RUN_OF_PARTS}; item += {each})"):
            self.run_of_item()
            self.writer.line(f"if (first_row + own_row >= {self.wholes['rows']}) break;")
            yield

    def run_of_item(self) -> None:
        runs = self.plan.tile[1] // RUN_OF_PARTS
        self.writer.line(f"const int32_t own_row = item / {runs}, own_column = item % {runs} * {RUN_OF_PARTS};")

    def combine_parts(self, left_in: Mapping[str, str], place: str, share: int = 1) -> None:
        """The results of a run of lanes of a row. left_in: what each fold's parts are in, for the one that is called part;
        place: of the row in these. share: neighbouring threads that have some of the parts each, the first of which writes.
        """
        line, chain, plan, (_, lanes, _) = self.writer.line, self.chain, self.whole_plan, self.plan.tile
        for f in (*chain.leading, *chain.following):
            own = self.names[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            line(f"{register_type(f.types[0])} {own} = {self.algebra(f)}::identity();")
        for f in chain.sums.folds:
            own = self.fresh.fresh(f"{f.names[0]}_own")
            self.whole[f.results[0]] = f"{own}[{{0}}]"
            line(f"float {own}[{RUN_OF_PARTS}] = {{}};")
        own_parts = -(-plan.parts // share)
        each = f"for (int32_t part = 0; part < {plan.parts}; ++part)"
        if share > 1:
            line(f"const int32_t first_part = threadIdx.x % {share} * {own_parts};")
            stop = f"weft::minimum<int32_t>(first_part + {own_parts}, {plan.parts})" if plan.parts % share else ""
            each = f"for (int32_t part = first_part; part < {stop or f'first_part + {own_parts}'}; ++part)"
        line("#pragma unroll 8")
        with self.writer.block(each):
            for f in chain.leading:
                own = self.names[f.results[0]]
                line(f"{own} = {self.algebra(f)}::combine({own}, {left_in[f.results[0]]}[{place}]);")
        if share > 1:
            for f in chain.leading:
                line(self.of_lanes(self.names[f.results[0]], f, share))
        moved = dict.fromkeys(r.extremum for r in chain.repairs)
        last = {n: self.names[n] for n in moved}
        if chain.bounded and moved:
            last = self.of_columns("first_row + own_row", last)
        line("#pragma unroll 8")
        with self.writer.block(each):
            line(f"const int64_t place = {place};")
            by: dict[str, str] = {}
            old = {n: f"{left_in[n]}[place]" for n in moved}
            for text, sums in self.factors(old, last, settled=True).items():
                own = self.fresh.fresh("factor")
                line(f"const float {own} = {text};")
                by |= dict.fromkeys(sums, f" * {own}")
            for f in chain.following:
                own, name = self.names[f.results[0]], f.results[0]
                line(f"{own} = {self.algebra(f)}::combine({own}, {left_in[name]}[place]{by.get(name, '')});")
            for f in chain.sums.folds:
                own, name, run = self.whole[f.results[0]].format("v"), f.results[0], self.fresh.fresh(f"{f.names[0]}_run")
                packet = f"weft::fetch<{RUN_OF_PARTS}, {PACKET_BYTES // f.types[0].size}>"
                line(f"float {run}[{RUN_OF_PARTS}];")
                line(f"weft::unpack({packet}({left_in[name]} + place * {lanes} + own_column), {run});")
                self.unrolled([f"for (int32_t v = 0; v < {RUN_OF_PARTS}; ++v)"], f"{own} += {run}[v]{by.get(name, '')};")
        if share > 1:
            for f in chain.following:
                line(self.of_lanes(self.names[f.results[0]], f, share))
            sums = [self.of_lanes(self.whole[f.results[0]].format("v"), f, share) for f in chain.sums.folds]
            self.unrolled([f"for (int32_t v = 0; v < {RUN_OF_PARTS}; ++v)"], *sums)
            line(f"if (threadIdx.x % {share}) return;")
        self.divisors()
        self.results()
        if chain.writes:
            with self.writer.block("if (own_column == 0)"):
                row = self.declare(chain.row)
                line(f"const int64_t {row} = first_row + own_row;")
                self.write_row()

    def of_lanes(self, own: str, f: Fold, share: int) -> str:
        """A statement that makes of what a thread has of a fold what so many neighbouring ones have, in their order."""
        return f"{own} = weft::reduce_lanes<{self.algebra(f)}, {share}>({own}, weft::lanes_of_team<{share}>());"

    def write_row(self) -> None:
        """What is written once a row."""
        exprs = [e for w in self.chain.writes for e in uses_of_write(w)]
        wanted = [v for v in self.needed(exprs) if not isinstance(v, Fold)]
        self.statements(tuple(map(self.let, wanted)))
        for w in self.chain.writes:
            self.write(w)
