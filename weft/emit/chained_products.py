"""Chained products as CUDA C++ (sm_90a): scores stay in the registers of the warpgroup that has their rows.

A warpgroup multiplies the rows that it has by the columns of a turn, makes of the scores what their rows fold, and multiplies
it by what the columns have of the sums: the scores of a thread are its part of the left operand where they are. One warp more
brings the tiles of all turns, as their places become free.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Self

from weft.emit import entries
from weft.emit.chained_rings import done
from weft.emit.chained_turn_products import TurnProductsEntry
from weft.emit.cpp_body import factor
from weft.emit.dependent import Dependence, dependences, include
from weft.emit.matrix_products import MatrixEntry
from weft.emit.names import Names, kernel_entry, words
from weft.emit.rough import rough_chain
from weft.emit.text import Writer
from weft.emit.values import deciding
from weft.graph.chains import Chain
from weft.loops.ir import Function, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.chain import FRAGMENT_ROWS, WARPGROUP, ChainPlan, brought

_OWN = """
    outside here memory u v h g place turn turns batch edge fold_turn first_row first_column own_row own_column
    first_own_row first_own_column first_turn last_row near_row far_row whole_turns own_turns first_own_turn all_turns
    first_whole_turn column_start column_stop start_of stop_of start_of_tile stop_of_tile start_of_group stop_of_group
    start_of_row stop_of_row asking has point told begin end any last phase leave_turn rows_empty tile tiles taken batches
    together section within_section nth first_batch few ticket row_tile any_turn any_own rows multiply_scores multiply_sums
    rows_full scores_full scores_empty sums_full sums_empty before power slope lost unit rising factor_of_scores part parts
    part_run item row_stop first_place place_of_row infinite n tickets first_part summing
    summed turn_of turns_of own_part own_left sure after left ask counts lacks from to told_of_turn last_column
    finite_rows finite_of_row last_turn next first of_row_0 of_row_1 of_row_2 rows_0 rows_1 rows_2 columns_0 columns_1
    columns_2 finite column_base start_within stop_within fresh at near of
"""


def emit(
    function: Function, nest: Nest, chain: Chain, plan: ChainPlan, facts: Facts, beside: type[ChainEntry], around: Dependence
) -> str:
    """The kernel's translation unit. Its entry takes the slots of `weft.plan.arguments`, and the maps of its boxes. beside: the
    other launch, where the plan has one.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    writer = Writer()
    within = ["weft/within.cuh"] if chain.bounded else ["weft/barrier.cuh"]
    within += ["weft/bounds.cuh"] if chain.bounded else []
    within += ["weft/atomic.cuh"] if plan.counts else []
    within += ["weft/turns.cuh"] if plan.skips else []
    within += ["weft/within.cuh"] if plan.skips and not chain.bounded else []
    within += ["weft/cluster.cuh"] if plan.cluster > 1 else []
    for header in sorted(("weft/matrix_tile.cuh", "weft/power.cuh", "weft/registers.cuh", "weft/team.cuh", *within)):
        writer.line(f'#include "{header}"')
    names = entries.of_chain(nest, plan)
    # what it multiplies may be what launches before have made: those after it, which read it too, begin when that is awaited
    launches = dependences([number > 0 for number in range(len(names))], replace(around, ahead=False))
    kinds: tuple[type[ChainEntry], ...] = (beside, ChainEntry) if plan.counts else (ChainEntry, beside)
    if plan.meeting == "tickets":
        launches = (launches[0], replace(launches[1], late=True))
    launches = tuple(replace(one, full=kind is ChainEntry) for one, kind in zip(launches, kinds, strict=False))
    include(writer, launches)
    rough = rough_chain(chain, function)
    for name, launch, kind in zip(names, launches, kinds, strict=False):
        writer.line()
        kind.of(function, own, facts, writer, rough, plan, launch).emit(name)
    return writer.text()


@dataclass
class ChainEntry(TurnProductsEntry):
    """The one launch of a plan. Its products are the sums, which end it."""

    @classmethod
    def of(
        cls, function: Function, nest: Nest, facts: Facts, writer: Writer, chain: Chain, plan: ChainPlan, launch: Dependence
    ) -> Self:
        varies = deciding(chain.axes, chain.values)
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, nest, facts, writer, Names(frozenset({*words(_OWN), kernel_entry(nest.name)})), {}, {}, varies, large,
            axes=chain.axes, values=chain.values, products=chain.sums, plan=plan.sums, launch=launch, chain=chain,
            whole_plan=plan,
        )  # fmt: skip

    def shape(self) -> str:
        (rows, lanes, columns), chain = self.plan.tile, self.chain
        own = f"{rows} x {lanes} of {chain.row} and {chain.lane}" if chain.sums.folds else f"{rows} of {chain.row}"
        return f"a block has {own}, a warpgroup {FRAGMENT_ROWS} of its rows; a turn takes {columns} of {chain.column}"

    def bounds(self) -> str:
        cluster = f" __cluster_dims__({self.whole_plan.cluster}, 1, 1)" if self.whole_plan.cluster > 1 else ""
        return f"__launch_bounds__({self.whole_plan.threads}, 1){cluster}"

    def parameters(self) -> list[str]:
        self.tiles_of = brought(self.whole_plan, self.chain)
        bases = [b.operand.name if "operand." not in b.operand.name else "right" for b in self.tiles_of]
        self.tile_names = [self.fresh.fresh(f"{base}_tile") for base in bases]
        self.maps = [self.fresh.fresh(f"{base}_map") for base in bases]
        own = [name for name, b in zip(self.maps, self.tiles_of, strict=True) if not b.of]
        maps = [f"const __grid_constant__ weft::TensorMap {name}" for name in own]
        return [*self.parameters_of_slots(), *self.parameters_of_parts(), *maps]

    def parameters_of_slots(self) -> list[str]:
        return super(MatrixEntry, self).parameters()

    # ---------------------------------------------------------------- the kernel

    def body(self) -> None:
        line, own = self.writer.line, self.whole_plan.warpgroups * WARPGROUP
        self.sizes_of_call()
        if not self.whole_plan.taken:
            self.number_of_tiles()
        self.rings()
        bring, take = self.whole_plan.registers
        with self.writer.block(f"if (threadIdx.x >= {own})"):
            line("// one of these threads brings the tiles of all turns, as their places become free")
            if bring != take:
                line(f"weft::decrease_registers<{take}>();")
            warp = self.chain.asks_rows or self.together_bring or bool(self.chain.pages)  # all of it ask rows, or have pages
            line(f"if (threadIdx.x > {own + 31 if warp else own}) return;")
            if self.chain.pages:
                line("const int32_t n = threadIdx.x % 32;  // which of the pages of a turn is this lane's")
            elif self.together_bring:
                line("const int32_t n = threadIdx.x % 32;  // of what all of a warp ask for, and bring")
            alone = (self.chain.asks_rows or self.together_bring) and not self.chain.pages
            self.bring_all(f"if (threadIdx.x == {own})" if alone else "")
            line("return;")
        if bring != take:
            line(f"weft::increase_registers<{bring}>();")
        self.places_of_thread()
        if self.whole_plan.warpgroups > 1:
            line(f"if ({self.group} == {self.whole_plan.warpgroups - 1}) weft::barrier_arrive(1, 256);  // the first may begin")
        if self.chain.bounded and self.chain.sums.folds and not self.skips:
            line(f"__shared__ int32_t told[{self.whole_plan.warpgroups}][4];")
        if self.whole_plan.meeting == "tickets":
            line("__shared__ uint32_t ticket;  // how many parts of a tile were there before this block's")
        self.begin_places()
        self.round_scalars()
        with self.each_tile():
            self.begin_folds()
            self.begin_totals()
            self.turns_of_warpgroup()
            if self.skips:
                line("bool sure = false;  // all pairs of a turn have the condition")
                if self.chain.bounded and self.chain.sums.folds:
                    line("bool finite = true;  // all that sums are multiplied by in it")
            self.fold_lambda()
            self.go_through_columns()
            self.end_folds()
            if self.whole_plan.parts > 1:
                self.meet()
            else:
                if self.chain.sums.folds:
                    self.divisors()
                    self.end(self.results)
                self.write_rows()
        if self.whole_plan.warpgroups > 1:
            line(f"if ({self.group} == 0) weft::barrier_sync(1, 256);  // what the last one has handed over")
        self.launch.done(self.writer)

    def sizes_of_call(self) -> None:
        line, chain, rows = self.writer.line, self.chain, str(self.plan.tile[0])
        line(f"// {self.shape()}")
        for axis in (*chain.sums.batch, chain.row, *chain.sums.columns, *([] if chain.bounded else [chain.column])):
            self.counts[axis] = self.span(self.axes[axis], f"{axis}_count")
        self.wholes["rows"] = self.counts[chain.row]
        if chain.sums.folds:
            self.wholes["columns"] = self.counts[chain.lane]
        self.firsts = {"rows": "first_row", "columns": "0"}
        if chain.bounded:
            self.shorten_bounds()
        tiles = self.squares["rows"] = self.fresh.fresh("row_tiles")
        if chain.together is not None:
            rows = self.fresh.fresh("rows_together")
            line(f"const int32_t {rows} = {self.printer.index(chain.together)};  // of a tile, which have columns in common")
        self.row_step = rows
        more = f"{int(rows) - 1}" if rows.isdigit() else f"{rows} - 1"
        line(f"const int32_t {tiles} = ({factor(self.counts[chain.row])} + {more}) / {rows};")

    def places_of_thread(self) -> None:
        line, sums = self.writer.line, bool(self.chain.sums.folds)
        few = self.skips and not self.whole_plan.overlapped
        if sums and not few:
            super().places_of_thread()
            return
        line(f"const int32_t own_row = {self.group} * {FRAGMENT_ROWS}{', own_column = 0' * sums};  // of the warpgroup")
        if few:
            line("const weft::OwnRow first_own_row;  // told wherever it is asked: scores and sums leave few registers")
        else:
            line("const int32_t first_own_row = own_row + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;")
        if sums:
            line(f"const int32_t first_own_column = own_column + threadIdx.x % 4 * {self.plan.run};")

    def write_rows(self) -> None:
        """What is written once a row."""
        if not self.chain.writes:
            return
        with self.writer.block("if (threadIdx.x % 4 == 0)"), self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
            row = self.declare(self.chain.row)
            self.writer.line(f"const int64_t {row} = first_row + first_own_row + u * 8;")
            self.writer.line(f"if ({row} >= {factor(self.wholes['rows'])}) break;")
            self.write_row()

    # ---------------------------------------------------------------- turns

    def go_through_columns(self) -> None:
        """All turns of a warpgroup. The sums of a turn are multiplied with the scores of the next one, so that warpgroups take
        turns at the tensor cores: one has them while others make what they multiply next.
        """
        line, chain = self.writer.line, self.chain
        before = self.starts
        edge = f"turn >= whole_turns{' || turn < first_whole_turn' if before else ''}"
        edge = edge if chain.given is None else f"{edge} || !sure" if self.skips else "true"
        self.product_lambdas()
        if self.skips:
            line("int32_t turn = own_part.first, own_left = own_part.own;")
        else:
            line("int32_t turn = first_turn;")
        if chain.bounded and not self.whole_plan.taken:
            line("const bool any_turn = first_turn < turns;")
        if not self.whole_plan.taken:  # else they have come
            line(f"{'if (any_turn) ' if chain.bounded else ''}rows_full[{self.rows_place}].wait{self.rows_phase};")
        if chain.bounded:
            with self.writer.block("const auto leave_turn = [&]", "};"):
                line("// no row of the warpgroup has any of these columns")
                for which in self.which:
                    line(f"{which}_full[place].wait(phase);")
                if self.whole_plan.warpgroups > 1:
                    self.take_turn()
                else:
                    line("__syncwarp();  // all of a warp have seen them, before it gives their places back")
                for which in self.which:
                    line(done(which, "place"))
                self.hand_over()
                line(self.next_place)
            if self.skips:
                line("for (int32_t n = 0; n < own_part.before; ++n) leave_turn();")
            elif before:
                line("for (; turn < first_own_turn && turn < turns; ++turn) leave_turn();")
        if not self.whole_plan.overlapped:
            self.take_turns_alone(edge)
        else:
            self.overlap_turns(edge)

    def leave_others(self) -> None:
        """The turns after the last one that some row of a warpgroup has."""
        if self.chain.bounded:
            each = "int32_t n = 0; n < after; ++n" if self.skips else "; turn < turns; ++turn"
            self.writer.line(f"for ({each}) leave_turn();")

    def tell_again(self, declared: str) -> None:
        """What is told of a tile, and only needed when its turns are done: so late, for no register to have it meanwhile.
        declared: how many turns follow.
        """
        if not self.skips:
            return
        line = self.writer.line
        if self.chain.bounded:
            line(f"{declared} = turns_of[{self.rows_place}][{self.group}].after;")
        for k, a in enumerate(self.chain.sums.batch, 1):
            line(f"{self.declare(a)} = {self.told_of_tile(k)};")
        line("__syncwarp();")

    def begin_turn(self) -> None:
        self.load_pairs()
        self.writer.line("scores_full[place].wait(phase);")
        if self.skips:
            self.writer.line("turn = turn_of[place] / 4, sure = turn_of[place] & 1;")
            if self.chain.bounded and self.chain.sums.folds:
                self.writer.line("finite = turn_of[place] & 2;")
            if self.whole_plan.warpgroups == 1:
                self.writer.line("__syncwarp();  // all of a warp have read it, before it gives its place back")
        self.take_turn()

    def start(self, sums: str = "") -> None:
        """The products of a turn, until scores are done: these, and sums of the turn before, where these are wanted. The tensor
        cores are handed over when no scores wait for them: earlier, two warpgroups would share them, and wait together.
        """
        line, scores, totals = self.writer.line, ", ".join(self.scores.values()), ", ".join(self.accumulators())
        products = ["multiply_scores(place);", *([f"multiply_sums({sums});"] if sums else [])]
        for product in products if self.late else reversed(products):
            line(product)
            line("weft::wgmma_commit();")
        if self.late and sums:
            line(f"weft::wgmma_wait<1>({scores});")
            self.hand_over()
            return
        if sums:
            line(f"weft::wgmma_wait<1>({totals});")
        self.hand_over()
        line(f"weft::wgmma_wait<0>({scores});")

    def take_turn(self) -> None:
        if self.whole_plan.warpgroups > 1:
            self.writer.line(f"weft::barrier_sync(1 + {self.group}, 256);")

    def hand_over(self) -> None:
        """The next warpgroup may have the tensor cores."""
        count = self.whole_plan.warpgroups
        if count > 1:
            self.writer.line(f"weft::barrier_arrive({self.group} == {count - 1} ? 1 : 2 + {self.group}, 256);")

    @property
    def asks_edge(self) -> bool:
        """Whether it is told of each turn that some rows have not all of its columns."""
        return not self.masked or self.chain.bounded and bool(self.chain.sums.folds)

    def fold_scores(self, edge: str, *, first: bool = False) -> None:
        """What is made of a turn whose scores are there. first: no sums are under way."""
        line = self.writer.line
        self.scores_done("place")
        if self.late:  # before what is made of scores: no instruction of that comes before those above, then
            self.await_columns_of_sums("place")
        if self.asks_edge:
            line(f"edge = {edge};")
        summed = "false, place" if first else "true, last"
        self.fold_at_edges(f", {summed}" if self.late else "", apart=not first)

    def fold_at_edges(self, summed: str = "", *, apart: bool = True) -> None:
        """What is made of a turn: where columns that rows do not have need be left out, there may be two texts of it, apart."""
        line = self.writer.line
        if self.masked or not apart:
            asked = " || !sure" if self.skips and self.chain.given is None else ""
            line(f"fold_turn(turn{'' if self.masked else f', edge{asked}'}{summed});")
        else:
            asked = " || !sure" if self.skips and self.chain.given is None else ""
            line(f"if (edge{asked}) fold_turn(turn, true{summed});")
            line(f"else fold_turn(turn, false{summed});")

    @property
    def gone(self) -> str:
        """The turn that has been folded last."""
        return "turn" if self.skips else "turn - 1"

    def no_more(self, stop: str) -> str:
        """Whether no turn follows, when one has been folded."""
        return "--own_left == 0" if self.skips else f"++turn == {stop}"

    def take_turns_alone(self, edge: str) -> None:
        """Turns one after another, whose sums are multiplied before the scores of the next one."""
        line, chain, sums = self.writer.line, self.chain, self.accumulators()
        each = "own_left > 0; --own_left" if self.skips else f"turn < {'own_turns' if chain.bounded else 'turns'}; ++turn"
        with self.writer.block(f"for (; {each})"):
            self.begin_turn()
            self.start()
            self.scores_done("place")
            if self.asks_edge:
                line(f"const bool edge = {edge};")
            self.fold_at_edges()
            if sums:
                self.await_columns_of_sums("place")
                if chain.bounded:
                    with self.within(f"edge && {self.any_infinite('place')}", "turn", "place"):
                        pass
                with self.writer.block("else") if chain.bounded else nullcontext():
                    line("multiply_sums(place);")
                    line("weft::wgmma_commit();")
                    line(f"weft::wgmma_wait<0>({', '.join(sums)});")
                self.sums_done("place")
            line(self.next_place)
        self.tell_again("const int32_t after")
        self.leave_others()
        with self.writer.block("if (any_turn)") if chain.bounded and not self.whole_plan.taken else nullcontext():
            self.leave_rows()

    # ---------------------------------------------------------------- sums with the scores of the next turn

    def overlap_turns(self, edge: str) -> None:
        """Turns whose sums are multiplied together with the scores of the next one."""
        line, chain, sums = self.writer.line, self.chain, self.accumulators()
        stop = "own_turns" if chain.bounded else "turns"
        some = chain.bounded or self.skips
        if self.skips and chain.bounded:
            line("int32_t after = own_part.after;")
        if some:
            line(f"const bool any_own = {'own_left > 0' if self.skips else 'turn < own_turns'};")
        with self.writer.block("if (any_own)") if some else nullcontext():
            if self.asks_edge:
                line("bool edge;")
            if self.late:
                self.go_on_late(edge, stop)
            else:
                self.go_on(edge, stop)
            self.tell_again("after")
            self.leave_rows()
            if not self.late:
                self.await_columns_of_sums("place")
            infinite = f"edge && {self.any_infinite('place')}" if chain.bounded and not self.apart else ""
            if infinite and self.starts:
                line(f"const bool infinite = {infinite};")
                infinite = "infinite"
            self.begin_last()
            if self.apart:
                with self.writer.block("if (edge)"):
                    self.multiply_apart()
            elif chain.bounded:
                with self.within(infinite, self.gone, "place"):
                    self.end_last()
            with self.writer.block("else") if chain.bounded else nullcontext():
                line("multiply_sums(place);")
                line("weft::wgmma_commit();")
                line(f"weft::wgmma_wait<0>({', '.join(sums)});")
                self.end_last()
            if self.column_lines:  # and where a tile has one turn, nothing else has waited for that
                line("__syncwarp();  // all of a warp have read the lines")
            self.sums_done("place")
            line(self.next_place)
        if self.starts and self.whole_plan.warpgroups > 1:
            with self.writer.block("else"):
                self.begin_last()
                self.end_last()
        self.leave_others()
        if some:
            brought = "" if self.whole_plan.taken else "any_turn && "
            with self.writer.block(f"if ({brought}!any_own)"):  # when all of the warpgroup know that the rows came
                self.leave_rows()

    def go_on(self, edge: str, stop: str) -> None:
        """All turns but for the sums of the last one."""
        line, chain = self.writer.line, self.chain
        self.begin_turn()
        self.start()
        with self.writer.block("while (true)"):
            self.fold_scores(edge)
            line(f"if ({self.no_more(stop)}) break;")
            line(f"const int32_t last = place{', last_turn = turn' if self.skips and chain.bounded else ''};")
            self.await_columns_of_sums("last")
            if chain.bounded:
                line(f"const bool infinite = edge && {self.any_infinite('last')};")
            line(self.next_place)
            self.begin_turn()
            if chain.bounded:
                with self.within("infinite", "last_turn" if self.skips else "turn - 1", "last"):
                    self.start()
            with self.writer.block("else") if chain.bounded else nullcontext():
                self.start("last")
            self.sums_done("last")

    def go_on_late(self, edge: str, stop: str) -> None:
        """The same where sums are under way while the next turn is folded. After sums with an infinity that is not for all
        rows, which are made by themselves, the next turn begins as the first one does.
        """
        line, chain = self.writer.line, self.chain
        with self.writer.block("while (true)") if chain.bounded else nullcontext():
            self.begin_turn()
            self.start()
            self.fold_scores(edge, first=True)
            if self.begins_at_edge:
                line("fresh = fresh && edge;")
            with self.writer.block(f"while (!({self.no_more(stop)}))" if self.skips else f"while (++turn != {stop})"):
                if chain.bounded:
                    asked = "edge && !fresh" if self.begins_at_edge else "edge"
                    line(f"if ({asked} && {self.any_infinite('place')}) break;")
                line("const int32_t last = place;")
                line(self.next_place)
                self.begin_turn()
                self.start("last")
                self.fold_scores(edge)
            if chain.bounded:
                line("if (own_left == 0) break;" if self.skips else f"if (turn == {stop}) break;")
                self.multiply_within(self.gone, "place")
                line(self.all_have_read)
                self.sums_done("place")
                line(self.next_place)

    def begin_last(self) -> None:
        """The last sums of a tile have a turn of their own, where tiles have few: others need not wait until the next tile
        begins. (Measured on an H200: where rows have all columns from the first on, that takes longer.)
        """
        if self.starts:
            self.take_turn()

    def end_last(self) -> None:
        if self.starts:
            self.hand_over()

    @property
    def apart(self) -> bool:
        """Whether the sums of a last turn, in which rows lack columns, have room where the scores have been."""
        chain, (_, lanes, columns) = self.chain, self.plan.tile
        return chain.bounded and not self.skips and len(chain.scores.folds) == 1 and len(chain.sums.folds) * lanes <= columns

    def multiply_apart(self) -> None:
        """The sums of a last turn by themselves, which tell whether there was an infinity."""
        line, chain, lanes = self.writer.line, self.chain, self.plan.tile[1]
        own = {f.results[0]: self.fresh.fresh(f"{f.names[0]}_last") for f in chain.sums.folds}
        line(f"float {', '.join(f'{name}[{lanes // 2}]' for name in own.values())};")
        self.multiply(chain.sums, [*own.values()], fresh=True)
        line("weft::wgmma_commit();")
        line(f"weft::wgmma_wait<0>({', '.join(own.values())});")
        self.end_last()
        finite = " && ".join(f"weft::all_finite({name})" for name in own.values())
        with self.writer.block(f"if (__all_sync(0xffffffffu, {finite}))"):
            totals = [f"{self.totals[result]}[0][h] += {name}[h];" for result, name in own.items()]
            self.unrolled([f"for (int32_t h = 0; h < {lanes // 2}; ++h)"], *totals)
        with self.writer.block("else"):
            self.multiply_within(self.gone, "place")
            line("__syncwarp();  // all of a warp have read the tiles")
