"""What rows of chained products fold of their scores, in the registers of the threads that have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cached_property

from weft.emit.chained_columns import PAIRS
from weft.emit.chained_pairs import PairsEntry
from weft.emit.column_places import ColumnPrinter
from weft.emit.cpp_body import factor
from weft.emit.expressions import PRODUCT, TERNARY, register_type
from weft.emit.powers import POWER, Powers
from weft.emit.values import ZERO
from weft.graph.chains import Chain
from weft.graph.running import Repair, before
from weft.graph.steady import counts_from_one
from weft.graph.tile import Fold, Map, Read, mapped, names_of, uses, uses_of_write
from weft.loops.ir import Cast, Check, Const, Expr, Load, Op, Ref, Round, free_names, rewrite, walk_expr
from weft.loops.types import BOOL, FLOAT32, FLOAT64, INT64

MOST_ROW_WORDS = 8  # of a thread, of what its rows have alone
HELD = "held"  # the name of whether a pair has a condition, or all of a turn have it
LACKED = "(lacks[u] >> (h * 2 + v) & 1)"  # whether a thread's pair has it not, as bits tell
MOST_ASKED = 128  # columns of a turn of which bits of a word tell which a row lacks
MASKED = 8  # of 8 columns each that a quad has, so many are masked, or passed over, together
MOST_LANES_BESIDE = 128  # of the sums of a row, beside which what is the same in all turns stays in registers


@dataclass
class RowFoldsEntry(PairsEntry):
    """What is made of the scores of a turn: leading folds, which sums may be relative to, what follows these, and the left
    operands of the sums.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = ColumnPrinter(**{f.name: getattr(self.printer, f.name) for f in fields(self.printer)})
        if self.whole_plan.skips and self.chain.given is None:
            self.settle_mask()

    def settle_mask(self) -> None:
        """The values of turns in which all pairs have the mask's condition are those without it. In the others, scores are
        masked as beyond bounds if that is all that the condition does, else a bit tells what it is of a pair.
        """
        chain, mask = self.chain, self.chain.mask
        assert mask is not None

        def without(e: Expr) -> Expr | None:
            match e:
                case Op(name="where", args=(condition, x, Const(value=value))) if condition == mask.condition:
                    return rewrite(x, without) if value == -math.inf else None
            return None

        def held(e: Expr) -> Expr | None:
            own = Ref(HELD, BOOL)
            return (own if self.asks_ahead else Op("or", (own, e), BOOL)) if e == mask.condition else None

        self.take_values(chain, without)
        early, late, exprs = self.early_and_late()
        named = {n for v in self.middle for e in uses(v) for n in free_names(e)}
        alone = not named & {v.name for v in self.needed((mask.condition,)) if isinstance(v, Read)}
        kept = {v.name: v.name for v in early} | self.scored
        self.stripped = alone and bool(self.masks([v for v in late if v not in early], exprs, kept))
        if not self.stripped:
            self.held = True
            self.take_values(chain, held)
            self.instead[HELD] = f"!(edge && {LACKED})" if self.asks_ahead else "!edge"

    def take_values(self, chain: Chain, change: Callable[[Expr], Expr | None]) -> None:
        """Have the values of a chain, changed."""
        values = tuple(mapped(v, lambda e: rewrite(e, change)) for v in chain.values)
        sums = replace(
            chain.sums, sweeps=replace(chain.sums.sweeps, values=values),
            left=tuple(replace(o, value=rewrite(o.value, change)) for o in chain.sums.left),
        )  # fmt: skip
        self.chain, self.products, self.values = replace(chain, sums=sums), sums, values
        self.made = {n: v for v in values for n in names_of(v)}

    @property
    def scored(self) -> dict[str, str]:
        return {f.results[0]: f.results[0] for f in self.chain.scores.folds}

    def sums_done(self, place: str) -> None:
        """Sums of the columns at a place are done, which nobody needs there any more."""
        raise NotImplementedError

    def told_of_tile(self, k: int) -> str:
        """What is told of a tile that was taken: its number among those of rows, and of which of the batch it is."""
        raise NotImplementedError

    def mend_first(self, place: str) -> None:
        """Where the sums of a first turn tell of an infinity that some rows lack, they are made again without it."""
        raise NotImplementedError

    def begin_folds(self) -> None:
        line, chain, columns = self.writer.line, self.chain, self.plan.tile[2]
        for which in self.each_asked:
            rows = (f"weft::minimum<int64_t>(first_row + first_own_row{more}, last_row)" for more in ("", " + 8"))
            line(f"const int32_t {which}_of_row[2] = {{{', '.join(f'{which}_of({row})' for row in rows)}}};")
        self.scores: dict[str, str] = {}
        self.rows_own: dict[str, str] = {}
        for f in (*chain.leading, *chain.following):
            own = self.rows_own[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            identity = f"{self.algebra(f)}::identity()"
            pair = f"{{{identity}, {identity}}}"
            if f in chain.following:  # a thread's columns in two parts, which wait for each other half as often
                line(f"{register_type(f.types[0])} {own}[2][2] = {{{pair}, {pair}}};")
            else:
                line(f"{register_type(f.types[0])} {own}[2] = {pair};")
        for f in chain.scores.folds:
            own = self.scores[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_own")
            line(f"float {own}[{columns // 2}];")
        self.left: dict[str, str] = {}
        self.left_of: dict[Expr, str] = {}
        for f in chain.sums.folds:
            value = self.left_value(f)
            if value not in self.left_of:
                base = value.name if isinstance(value, Ref) else "left"
                self.left_of[value] = self.fresh.fresh(f"{base}_own")
                line(f"uint32_t {self.left_of[value]}[{columns // 16}][4];")
            self.left[f.results[0]] = self.left_of[value]
        exprs = self.exprs_of_middle
        loads = any(isinstance(x, Load) for e in (*exprs, *self.left_of) for x in walk_expr(e))
        middle: list[Read | Map] = [*self.middle]
        middle += [v for v in self.needed(() if self.asked is None else (self.asked,)) if v not in middle]
        self.reads_rows = loads or any(isinstance(v, Read) and chain.row in v.axes for v in middle)
        told = self.of_bounds if chain.bounded else []
        of_batch = [v for v in middle if set(v.axes) <= {*chain.sums.batch} and v not in told]
        self.statements(tuple(map(self.let, of_batch)))
        self.keep_rows(told)
        self.begin_pairs()
        self.divide_alike()

    def round_scalars(self) -> None:
        """Scalars as floats, once for all tiles."""
        assert isinstance(self.printer, ColumnPrinter)
        scalars = {Ref(s.name, s.type) for s in self.function.scalars if s.type == FLOAT64}
        lefts = map(self.left_value, self.chain.sums.folds)
        for e in (x for root in (*self.exprs_of_middle, *lefts) for x in walk_expr(root)):
            if isinstance(e, Cast) and e.type == FLOAT32 and e.value in scalars and e.value not in self.printer.rounded:
                assert isinstance(e.value, Ref)
                own = self.fresh.fresh(f"{e.value.name}_float")
                self.writer.line(f"const float {own} = {self.staying(self.printer.value(e))};")
                self.printer.rounded[e.value] = own

    @property
    def late(self) -> bool:
        """Whether sums of a turn are under way still while the leading folds of the next one are made, which bring these sums
        to what they are relative to.
        """
        return self.whole_plan.overlapped and bool(self.chain.repairs)

    @property
    def begins_at_edge(self) -> bool:
        """Whether sums begin with columns that some rows lack; without, a turn at an edge is the last one as a rule."""
        return self.late and self.starts and not self.whole_plan.skips

    @property
    def roomy(self) -> bool:
        """Whether sums leave registers for what is the same in all turns."""
        return len(self.chain.sums.folds) * self.plan.tile[1] <= MOST_LANES_BESIDE

    def staying(self, value: str) -> str:
        """What is the same in all turns, in a register if there is one: the compiler would rather compute it again."""
        return f"weft::opaque({value})" if self.roomy else value

    def keep_rows(self, told: Sequence[Read | Map]) -> None:
        """What rows have alone of what is made of scores, in registers for all turns. told: what bounds of columns are of."""
        chain, line = self.chain, self.writer.line
        inner = [v for v in self.middle if chain.column in v.axes]
        named = {n for v in inner for n in self.direct(v)}.union(*map(free_names, [*self.exprs_of_folds, *self.left_of]))
        if self.whole_plan.skips and chain.mask is not None:  # which turns at edges alone ask
            named -= free_names(chain.mask.condition)
        own, words = list[Read | Map](), 0
        for v in self.middle:
            if v.name not in named or v in told or v in inner or chain.row not in v.axes:
                continue
            if any(isinstance(w, Fold) for w in self.needed((Ref(v.name, v.type),))):
                continue  # which changes from turn to turn
            words += 2 * max(1, v.type.size // 4)
            own += [v] if words <= MOST_ROW_WORDS else []
        if not own:
            return
        kept = {v.name: self.fresh.fresh(f"{v.name}_of_row") for v in own}
        for v in own:
            line(f"{register_type(v.type)} {kept[v.name]}[2];")
        wanted = self.needed([Ref(v.name, v.type) for v in own])
        with self.each_row_of_thread([v for v in wanted if set(v.axes) - {*chain.sums.batch} and not isinstance(v, Fold)]):
            for v in own:
                line(f"{kept[v.name]}[u] = {self.names[v.name]};")
        self.names |= {name: f"{place}[u]" for name, place in kept.items()}
        self.leaves |= kept.keys()

    def divide_alike(self) -> None:
        """What all scores of a tile are divided by: its reciprocal is taken once."""
        assert isinstance(self.printer, ColumnPrinter)
        exprs = self.exprs_of_middle
        self.alike, self.before_scores = dict[Expr, str](), self.writer.mark()
        for e in (x for root in (*exprs, *self.left_of) for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, by), type=type_) if type_ == FLOAT32 and by not in self.alike:
                    if self.axes_of(by) <= {*self.chain.sums.batch} and not any(isinstance(x, Load) for x in walk_expr(by)):
                        self.alike[by] = self.fresh.fresh("divisor")
        self.printer.divisors.update(self.alike)

    def declare_divisors(self) -> None:
        for by, name in self.alike.items():
            if self.writer.mentions(name, self.before_scores):
                self.writer.insert(self.before_scores, f"const auto {name} = weft::Divisor<float>({self.printer.exact(by)});")

    def left_value(self, f: Fold) -> Expr:
        """What a left operand of sums is, before it is rounded."""
        value = next(o.value for o in self.chain.sums.left if o.name in free_names(f.parts[0]))
        made = self.made.get(value.name) if isinstance(value, Ref) else None
        value = made.value if isinstance(made, Map) and isinstance(made.value, Round) else value
        return value.value if isinstance(value, Round) else value

    @property
    def middle(self) -> list[Read | Map]:
        """The values that scores become."""
        chain = self.chain
        exprs = self.exprs_of_folds + [self.left_value(f) for f in chain.sums.folds]
        return [v for v in self.needed(exprs) if not isinstance(v, Fold)]

    @property
    def exprs_of_folds(self) -> list[Expr]:
        """What rows fold of them."""
        return [e for f in (*self.chain.leading, *self.chain.following) for e in f.parts]

    @property
    def exprs_of_middle(self) -> list[Expr]:
        """What these are made of, and what rows fold of them."""
        return [e for v in self.middle for e in uses(v)] + self.exprs_of_folds

    def fold_lambda(self) -> None:
        """What is made of the scores of a turn."""
        chain, line, columns = self.chain, self.writer.line, self.plan.tile[2]
        inner = [v for v in self.middle if chain.column in v.axes]
        of_rows = [v for v in self.middle if v not in inner and set(v.axes) - {*chain.sums.batch}]
        early, late, late_exprs = self.early_and_late()
        kept = self.kept(early, late, late_exprs)
        late = [v for v in late if v.name not in kept]
        elements = {n: f"{own}[h * 4 + u * 2 + v]" for n, own in (*self.scores.items(), *kept.items())}
        elements |= self.line_elements() | self.pair_elements()
        self.masked = self.masks(late, late_exprs, elements)
        self.powers = Powers.of(chain, early, late, late_exprs, {**self.scores, **kept}) if self.masked else None
        if self.powers is not None:
            self.powers.slope(self.writer, "" if self.powers.unit is None else self.printer.value(self.powers.unit))
        moved = list(dict.fromkeys(r.extremum for r in chain.repairs))
        references = {n: self.fresh.fresh(f"{self.made[n].names[0]}_reference") for n in moved}  # type: ignore[union-attr]
        axis = self.axes[chain.column]
        bounds = {"column_start": "start"} if axis.start != ZERO else {}
        bounds["column_stop"] = "stop"
        if self.masked and self.based:
            within = ", ".join(f"{which}_within[2]" for which in bounds.values())
            line(f"int32_t {within};  // counted from where the turns begin")
            with self.each_row_of_thread([]):
                for which in bounds.values():
                    line(f"{which}_within[u] = {self.within_turns(self.bound_of_row(which))};")
        takes = ["const int32_t turn", *(["const bool edge"] * (not self.masked))]
        takes += ["const bool summing", "const int32_t summed"] * self.late
        if self.begins_at_edge:
            line("bool fresh = true;  // the sums are those of the turn before alone, and rows lack columns of that")
        with self.writer.block(f"const auto fold_turn = [&]({', '.join(takes)}) WEFT_INLINE", "};"):
            line(f"const int64_t first_column = {self.first_of('turn', 'int64_t')} + threadIdx.x % 4 * 2;")
            if not self.masked:
                line(f"int32_t {', '.join(f'{name}[2]' for name in bounds)};")
            if moved:
                line(f"float {', '.join(f'{name}[2]' for name in references.values())};")
            mark = self.writer.mark()
            self.exchange_pairs()
            if self.powers is not None:
                line("weft::MaximumPower power[2];")
                if self.powers.unit is not None:
                    of_each = [f"for (int32_t h = 0; h < {columns // 2}; ++h)"]
                    with self.writer.block("if (!rising)"):
                        self.unrolled(of_each, f"{self.powers.own}[h] {self.powers.by}= factor_of_scores;")
            first = self.needed(e for f in chain.leading for e in f.parts)
            of_rows_first = [v for v in of_rows if v in first]
            if self.masked:
                if early and (self.powers is None or self.powers.unit is None):
                    with self.each_row_of_thread(of_rows_first):
                        self.make(early, elements, kept)
                for name, which in bounds.items():
                    self.mask(name, which)
                self.mask_pairs()
                with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]):
                    moved_by = self.move(self.lead([], elements, kept), references)
            else:
                if self.asks_ahead and self.asked is not None:
                    self.ask_pairs(self.asked)
                with self.each_row_of_thread(of_rows_first):
                    for name, which in bounds.items():
                        line(f"{name}[u] = {self.bound_of_thread(which)};")
                    moved_by = self.move(self.lead(early, elements, kept), references)
            if moved_by:
                factors = ", ".join(f"{own}[2]" for own in moved_by)
                self.writer.insert(mark, f"float {factors};  // what brings sums to these")
            if self.powers is not None:
                self.bring_far(references)  # a branch on the maxima: the compiler would wait for sums before it finds these
            self.bring_sums(moved_by)
            self.follow(late, of_rows, elements, {n: f"{own}[u]" for n, own in references.items()})
        self.declare_divisors()

    def early_and_late(self) -> tuple[list[Read | Map], list[Read | Map], list[Expr]]:
        """What leading folds are made of, what is made after them, and what that is made for."""
        chain = self.chain
        inner = [v for v in self.middle if chain.column in v.axes]
        early = [v for v in inner if v in self.needed(e for f in chain.leading for e in f.parts)]
        exprs = [e for f in chain.following for e in f.parts] + [*map(self.left_value, chain.sums.folds)]
        return early, [v for v in inner if v in self.needed(exprs)], [*dict.fromkeys(exprs)]

    @contextmanager
    def each_row_of_thread(self, of_rows: list[Read | Map]) -> Iterator[None]:
        """What is written here is done for both rows of a thread, whose values are there."""
        self.writer.line("#pragma unroll")
        with self.writer.block("for (int32_t u = 0; u < 2; ++u)"):
            mark, row = self.writer.mark(), self.declare(self.chain.row)
            self.statements(tuple(map(self.let, of_rows)))
            yield
            if self.writer.mentions(row, mark):
                own = "first_row + first_own_row + u * 8"
                if self.reads_rows:  # a row that is not there reads what the last one does
                    own = f"weft::minimum<int64_t>({own}, {self.counts[self.chain.row]} - 1)"
                self.writer.insert(mark, f"const int64_t {row} = {own};")

    def kept(self, early: list[Read | Map], late: list[Read | Map], exprs: list[Expr]) -> dict[str, str]:
        """Values that are made before the leading folds end, and taken after: in the place of scores that are not needed then,
        by the names of these, or in registers of their own.
        """
        wanted = [v for v in early if v in late and isinstance(v, Map) and v.type == FLOAT32]
        taken = {v.name for v in wanted}
        # of values that are made of one another, what is nearest to the end
        inner = {n for v in wanted for n in self.below(v) if n in taken}
        later = {n for v in late if v not in wanted for n in self.direct(v)} | {n for e in exprs for n in free_names(e)}
        wanted = [v for v in wanted if v.name not in inner or v.name in later]
        free = [own for n, own in self.scores.items() if n not in later]
        found = {}
        for v in wanted:
            if free:
                found[v.name] = free.pop(0)
            else:
                found[v.name] = self.fresh.fresh(f"{v.name}_own")
                self.writer.line(f"float {found[v.name]}[{self.plan.tile[2] // 2}];")
        return found

    def direct(self, v: Read | Map) -> frozenset[str]:
        exprs = v.index if isinstance(v, Read) else (v.value,)
        return frozenset(n for e in exprs for n in free_names(e))

    def below(self, v: Read | Map) -> set[str]:
        return {w.name for w in self.needed([Ref(n, FLOAT32) for n in self.direct(v)]) if isinstance(w, Read | Map)}

    def masks(self, late: list[Read | Map], exprs: list[Expr], elements: Mapping[str, str]) -> dict[str, str]:
        """What the columns that a row does not have are made, if they need not be left out: identities of the maximum, in the
        place of its parts, if all that is taken of these later is an exponential of what they are below it, which is 0 then.
        """
        own = {f.parts[0].name: f for f in self.chain.leading if isinstance(f.parts[0], Ref)}
        own = {n: f for n, f in own.items() if n in elements and f.algebra in ("max", "maximum")}
        values = {v.name: v.value for v in late if isinstance(v, Map)}

        def vanishes(e: Expr) -> bool:
            match values.get(e.name, e) if isinstance(e, Ref) else e:
                case Op(name="exp_flushed", args=(Op(name="sub", args=(Ref(name=x), Ref(name=m))),)):
                    return x in own and m == own[x].results[0]
            return False

        if self.chain.given is not None or self.held:
            return {}
        reads = any(isinstance(x, Load) for v in self.middle for e in uses(v) for x in walk_expr(e))
        told = self.own_pairs.keys()  # which are there beyond what rows have
        reads = reads or any(isinstance(v, Read) and self.chain.column in v.axes and v.name not in told for v in self.middle)
        reads = reads or any(self.direct(v) & self.column_lines.keys() for v in self.middle)
        if reads or len(self.chain.leading) != len(own) or not all(map(vanishes, (*values.values(), *exprs))):
            return {}
        return {elements[n]: f"{self.algebra(f)}::identity()" for n, f in own.items()}

    @cached_property
    def everywhere(self) -> bool:
        """Whether all that is made of scores may be made of those as well that a row does not have, and left out of its sums in
        the end: a branch around each score would have threads wait for every exponential by itself.
        """
        exprs = [*self.exprs_of_middle, *self.left_of]
        asks = any(isinstance(x, Load | Check) for e in exprs for x in walk_expr(e))
        reads = [v for v in self.middle if isinstance(v, Read) and self.chain.column in v.axes]
        return not self.masked and not asks and all(
            i == Ref(self.chain.column, INT64) or self.chain.column not in free_names(i)
            for v in reads for i in v.index
        )  # fmt: skip

    @property
    def asks_ahead(self) -> bool:
        """Whether the condition of pairs is asked before what is made of scores, where these leave few registers."""
        return not self.whole_plan.overlapped and self.plan.tile[2] <= MOST_ASKED

    def ask_pairs(self, asked: Expr) -> None:
        """Which columns of a turn at an edge rows lack by a condition."""
        line, row, column = self.writer.line, self.declare(self.chain.row), self.declare(self.chain.column)
        line("uint32_t lacks[2] = {};  // a bit for each of a thread's columns")
        with self.writer.block(f"if (edge && {self.unsure})"):
            begin, batch = self.writer.mark(), self.chain.sums.batch
            line("#pragma unroll 1  // scores leave few registers for what is asked")
            with self.writer.block(self.runs), self.spelled(self.line_elements()):
                both = [f"for (int32_t {name} = 0; {name} < 2; ++{name})" for name in "vu"]
                with self.unrolled_block(both):
                    mark = self.writer.mark()
                    self.statements(tuple(map(self.let, self.of_pairs)))
                    line(f"lacks[u] |= uint32_t(!({self.printer.value(asked)})) << (h * 2 + v);")
                    if self.writer.mentions(column, mark):
                        place = self.inside(f"first_column + h * {PAIRS} + v", self.of_pairs)
                        self.writer.insert(mark, f"const int64_t {column} = {place};")
                    if of_rows := self.writer.mentions(row, mark):
                        self.writer.insert(mark, f"const int64_t {row} = asking[u];")
            if of_rows:
                last = f"{self.counts[self.chain.row]} - 1"
                rows = (f"weft::minimum<int64_t>(first_row + first_own_row{more}, {last})" for more in ("", " + 8"))
                self.writer.insert(begin, f"const int64_t asking[2] = {{{', '.join(rows)}}};")
            for k, a in enumerate(batch, 1):  # told again, for no register to have it in other turns
                if self.whole_plan.taken and self.writer.mentions(self.declare(a), begin):
                    self.writer.insert(begin, f"const int64_t {self.declare(a)} = {self.told_of_tile(k)};")

    def had(self, value: str, otherwise: str) -> str:
        """A value where a row has the column, and another one where that is made as well and it has not."""
        return f"has ? {value} : {otherwise}" if self.everywhere else value

    @contextmanager
    def columns(self, spelled: Mapping[str, str]) -> Iterator[None]:
        """What is written here is done for both columns of a run that a thread has: where they are there, or masked, or
        `everywhere`.
        """
        line, chain = self.writer.line, self.chain
        line("#pragma unroll")
        with self.writer.block("for (int32_t v = 0; v < 2; ++v)"), self.spelled(spelled):
            outside = factor(self.outside) if "||" in self.outside else self.outside
            if self.everywhere:
                line(f"{'const ' if chain.given is None else ''}bool has = !(edge && {outside});")
            elif not self.masked:
                line(f"if (edge && {outside}) continue;")
            mark, column, beyond = self.writer.mark(), self.declare(chain.column), f"h * {PAIRS} + v"
            if chain.given is not None:
                lacks = LACKED
                if not self.asks_ahead:
                    self.statements(tuple(map(self.let, self.of_pairs)))
                    lacks = f"!({self.printer.value(chain.given)})"
                line(f"has = has && !(edge && {lacks});" if self.everywhere else f"if (edge && {lacks}) continue;")
            plain = self.printer
            assert isinstance(plain, ColumnPrinter)
            row = chain.row if len(chain.sums.folds) < 2 else ""  # what is shared takes registers
            self.printer = replace(
                plain, column=chain.column, first="first_column", beyond=beyond, row=row, below="u * 8",
                first_row="(first_row + first_own_row)",
            )  # fmt: skip
            yield
            self.printer = plain
            if self.writer.mentions(column, mark):
                place, reads = f"first_column + {beyond}", [*self.middle, *self.of_pairs]
                inside = self.inside(place, reads) if self.everywhere else place
                if inside != place:  # what a row does not have is read inside its array, and left out
                    place = f"edge ? {inside} : {place}"
                self.writer.insert(mark, f"const int64_t {column} = {place};")

    @property
    def runs(self) -> str:
        return f"for (int32_t h = 0; h < {self.plan.tile[2] // PAIRS}; ++h)"

    def lead(self, early: list[Read | Map], elements: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
        """Fold what waits for nothing; the names of what the row has then."""
        line, chain, latest = self.writer.line, self.chain, {}
        if not chain.leading:
            return {}
        for f in chain.leading:
            name = latest[f.results[0]] = self.fresh.fresh(f"{f.names[0]}_latest")
            own = f"{self.rows_own[f.results[0]]}[u]"
            none = f"{self.algebra(f)}::identity()"  # in four parts, of which each waits for itself alone
            line(f"{register_type(f.types[0])} {name}[4] = {{{own}, {none}, {none}, {none}}};")
        if self.masked:
            with self.unrolled_block([self.runs]), self.columns(elements):
                self.take_in(latest)
        else:
            self.make(early, elements, kept, latest)
        return latest

    def make(
        self,
        early: list[Read | Map],
        elements: Mapping[str, str],
        kept: Mapping[str, str],
        latest: Mapping[str, str] | None = None,
    ) -> None:
        """The values that leading folds are made of, and what is kept of them; and these folds, if they are at hand."""
        if not early and latest is None:
            return
        with self.unrolled_block([self.runs]), self.columns({n: e for n, e in elements.items() if n not in kept}):
            for v in early:
                if v.name in kept:
                    self.writer.cite(v.location)
                    self.writer.line(f"{kept[v.name]}[h * 4 + u * 2 + v] = {self.printer.value(self.let(v).value)};")
                    self.names[v.name] = elements[v.name]
                else:
                    self.statements((self.let(v),))
            if latest is not None:
                self.take_in(latest)
        for name in kept.keys() & self.names.keys():
            del self.names[name]

    def mask(self, name: str, which: str) -> None:
        """Make columns that rows do not have, before they start or after they stop, what they need not be left out for."""
        before, element = which == "start", "for (int32_t v = 0; v < 2; ++v)"
        outside = f"h * {PAIRS} + v {'<' if before else '>='} {name}"
        with self.writer.block(f"if ({'turn < first_whole_turn' if before else 'turn >= whole_turns'})"):
            if self.starts:
                self.mask_runs(name, which, outside)
                return
            with self.each_row_of_thread([]):
                self.writer.line(f"const int32_t {name} = {self.bound_of_thread(which)};")
                self.unrolled([self.runs, element], *(f"if ({outside}) {own} = {i};" for own, i in self.masked.items()))

    def mask_runs(self, name: str, which: str, outside: str) -> None:
        """The same in a few runs of a thread's columns, of which those are passed over that both its rows have:
        where these start and stop, edges meet a part of a turn.
        """
        line, count = self.writer.line, self.plan.tile[2] // PAIRS
        line(f"int32_t {name}[2];")
        with self.each_row_of_thread([]):
            line(f"{name}[u] = {self.bound_of_thread(which)};")
        with self.unrolled_block([f"for (int32_t run = 0; run < {count}; run += {MASKED})"]):
            if which == "start":
                some = f"run * {PAIRS} < weft::maximum({name}[0], {name}[1])"
            else:
                some = f"(run + {MASKED}) * {PAIRS} > weft::minimum({name}[0], {name}[1])"
            stop = f"run + {MASKED}" if count % MASKED == 0 else f"weft::minimum(run + {MASKED}, {count})"
            with self.writer.block(f"if ({some})"):
                rows, elements = (f"for (int32_t {n} = 0; {n} < 2; ++{n})" for n in "uv")
                each = [rows, f"for (int32_t h = run; h < {stop}; ++h)", elements]
                self.unrolled(each, *(f"if ({outside}[u]) {own} = {i};" for own, i in self.masked.items()))

    def mask_pairs(self) -> None:
        """The same of columns that rows lack by a condition."""
        if self.asked is None:
            return
        line, row, column = self.writer.line, self.declare(self.chain.row), self.declare(self.chain.column)
        both = [f"for (int32_t {name} = 0; {name} < 2; ++{name})" for name in "vu"]
        of_rows = [v for v in self.of_pairs if self.chain.column not in v.axes]
        kept = {v.name: self.fresh.fresh(f"{v.name}_of_row") for v in of_rows}
        with self.writer.block(f"if ({self.unsure})"):
            if of_rows:
                line(" ".join(f"{register_type(v.type)} {kept[v.name]}[2];" for v in of_rows))
                with self.each_row_of_thread(of_rows):
                    for v in of_rows:
                        line(f"{kept[v.name]}[u] = {self.names[v.name]};")
            spelled = {name: f"{own}[u]" for name, own in kept.items()}
            with self.unrolled_block([self.runs, *both]), self.spelled({**self.line_elements(), **spelled}):
                mark = self.writer.mark()
                self.statements(tuple(self.let(v) for v in self.of_pairs if v not in of_rows))
                asked = self.printer.value(self.asked)
                for own, identity in self.masked.items():
                    line(f"if (!({asked})) {own} = {identity};")
                if self.writer.mentions(column, mark):
                    place = self.inside(f"first_column + h * {PAIRS} + v", self.of_pairs)
                    self.writer.insert(mark, f"const int64_t {column} = {place};")
                if self.writer.mentions(row, mark):
                    last = f"{self.counts[self.chain.row]} - 1"
                    own = f"weft::minimum<int64_t>(first_row + first_own_row + u * 8, {last})"
                    self.writer.insert(mark, f"const int64_t {row} = {own};")

    def bound_of_thread(self, which: str) -> str:
        """A bound of the u-th row of a thread, from the first of its columns in a turn on."""
        if self.masked and self.based:
            return f"{which}_within[u] - turn * {self.plan.tile[2]} - int32_t(threadIdx.x) % 4 * 2"
        return f"weft::minimum<int64_t>({self.bound_of_row(which)} - first_column, {self.plan.tile[2]})"

    def take_in(self, latest: Mapping[str, str]) -> None:
        for f in self.chain.leading:
            self.writer.cite(f.location)
            own = f"{latest[f.results[0]]}[h % 2 * 2 + v]"
            self.writer.line(f"{own} = {self.had(self.taken_in(f, own), own)};")

    def taken_in(self, f: Fold, own: str) -> str:
        fused = self.printer.accumulated(own, f.parts[0]) if f.algebra == "sum" else None
        return fused or f"{self.algebra(f)}::combine({own}, {self.printer.value(f.parts[0])})"

    def move(self, latest: Mapping[str, str], references: Mapping[str, str]) -> dict[str, list[str]]:
        """Bring what the row has to the folds so far, which values are relative to then. What brings sums of products there, of
        both rows, and these sums: they may be under way still.
        """
        line, chain = self.writer.line, self.chain
        for f in chain.leading:
            name = f.results[0]
            pairs = (f"{self.algebra(f)}::combine({latest[name]}[{k}], {latest[name]}[{k + 1}])" for k in (0, 2))
            whole = f"{self.algebra(f)}::combine({', '.join(pairs)})"
            if name in references:
                whole = f"weft::reduce_lanes<{self.algebra(f)}, 4>({whole})"
                line(f"{latest[name]}[0] = {whole};  // of the four threads of a row")
                line(f"{references[name]}[u] = {self.algebra(f)}::reference({latest[name]}[0]);")
            else:
                line(f"{latest[name]}[0] = {whole};")
        factors: dict[str, list[str]] = {}
        if self.powers is not None:
            ((name, own),) = references.items()
            algebra = self.algebra(self.chain.leading[0])
            line(f"const float before = {algebra}::reference({self.rows_own[name]}[u]);")
            line(f"power[u] = weft::maximum_power({own}[u], slope);")
            lost = "power[u].lost - weft::maximum_power(before, slope).lost"
            factors[f"weft::exp2_estimate(weft::fma(before - {own}[u], slope, {lost}))"] = [r.sum for r in chain.repairs]
        elif chain.repairs:
            old = {n: f"{self.rows_own[n]}[u]" for n in references}
            factors = self.factors(old, {n: f"{own}[u]" for n, own in references.items()})
        moved = {}
        for text, sums in factors.items():
            own = self.fresh.fresh("factor")
            line(f"{own}[u] = {text};")
            self.of_each_row(sums, f"{own}[u]")
            moved[own] = [name for name in sums if name not in self.rows_own]
        for f in chain.leading:
            line(f"{self.rows_own[f.results[0]]}[u] = {latest[f.results[0]]}[0];")
        return moved

    def bring_sums(self, moved: Mapping[str, list[str]]) -> None:
        """Sums of products move with what they are relative to, when those of the turn before are done."""
        if not moved:
            return
        if self.late:
            with self.writer.block("if (summing)"):
                self.writer.line(f"weft::wgmma_wait<0>({', '.join(self.accumulators())});")
                if self.begins_at_edge:
                    self.mend_first("summed")
                self.sums_done("summed")
        for own, sums in moved.items():
            for name in sums:
                total = f"{self.totals[name]}[0][h * 4 + u * 2 + v]"
                self.unrolled(["for (int32_t u = 0; u < 2; ++u)", *self.lanes_of_row], f"{total} *= {own}[u];")

    @property
    def lanes_of_row(self) -> list[str]:
        return [f"for (int32_t h = 0; h < {self.plan.tile[1] // PAIRS}; ++h)", "for (int32_t v = 0; v < 2; ++v)"]

    def of_each_row(self, sums: Sequence[str], factor_: str) -> None:
        """Multiply what rows have folded by a factor."""
        for name in sums:
            if name in self.rows_own:
                for v in (0, 1):
                    self.writer.line(f"{self.rows_own[name]}[u][{v}] *= {factor_};")

    def bring_to(self, factor_: str, sums: list[str]) -> None:
        """Multiply sums of a row by a factor."""
        own = self.fresh.fresh("factor")
        self.writer.line(f"const float {own} = {factor_};")
        self.of_each_row(sums, own)
        for name in sums:
            if name not in self.rows_own:
                self.unrolled(self.lanes_of_row, f"{self.totals[name]}[0][h * 4 + u * 2 + v] *= {own};")

    def factors(self, old: Mapping[str, str], new: Mapping[str, str], *, settled: bool = False) -> dict[str, list[str]]:
        """What brings sums relative to some extrema to others, and the sums. settled: which stay as they are."""
        found: dict[str, list[str]] = {}
        for r in self.chain.repairs:
            f = self.extremum(r)
            before_it = f"{self.algebra(f)}::reference({old[r.extremum]})"
            self.instead[r.extremum] = new[r.extremum]
            if settled and r.guarded:
                self.instead[r.extremum] = self.printer.value(r.guard, TERNARY + 1)
            self.instead[before(r.extremum)] = before_it
            found.setdefault(self.printer.value(r.factor, PRODUCT), []).append(r.sum)
            del self.instead[before(r.extremum)], self.instead[r.extremum]
        return found

    def extremum(self, repair: Repair) -> Fold:
        return next(f for f in self.chain.leading if f.results[0] == repair.extremum)

    def bring_far(self, references: Mapping[str, str]) -> None:
        """Where a power is none, scores are made relative themselves."""
        assert self.powers is not None
        ((_, own),) = references.items()
        with self.writer.block("if (power[0].far || power[1].far)"), self.unrolled_block(
            ["for (int32_t u = 0; u < 2; ++u)", self.runs, "for (int32_t v = 0; v < 2; ++v)"]
        ):
            element = f"{self.powers.own}[h * 4 + u * 2 + v]"
            self.writer.line(f"if (power[u].far) {element} -= {own}[u];")

    def follow(
        self, late: list[Read | Map], of_rows: list[Read | Map], elements: Mapping[str, str], references: Mapping[str, str]
    ) -> None:
        """Fold what waits for others, and make the left operands of the sums."""
        line = self.writer.line
        pairs = {own: self.fresh.fresh(f"{own}_pair") for own in self.left_of.values()}
        wanted = [v for v in of_rows if v in self.needed(e for v in late for e in uses(v))]
        with self.unrolled_block([self.runs]), self.each_row_of_thread(wanted):
            for pair in pairs.values():
                line(f"float {pair}[2] = {{}};")
            if self.powers is not None:
                late = [self.powers.told(v) for v in late]
                element = f"{self.powers.own}[h * 4 + u * 2 + v]"
                self.instead[POWER] = f"weft::exp2_estimate(weft::fma({element}, slope, -power[u].power))"
            with self.columns({**elements, **references}):
                self.statements(tuple(map(self.let, late)))
                for f in self.chain.following:
                    self.writer.cite(f.location)
                    own = f"{self.rows_own[f.results[0]]}[u][v]"
                    line(f"{own} = {self.had(self.taken_in(f, own), own)};")
                for value, own in self.left_of.items():
                    line(f"{pairs[own]}[v] = {self.had(self.printer.value(value), '0.0f')};")
            for own, pair in pairs.items():
                line(f"{own}[h / 2][h % 2 * 2 + u] = weft::pack<weft::{self.plan.type}>({pair}[0], {pair}[1]);")

    def end_folds(self) -> None:
        """What the threads of a row have folded meets; sums are relative to the last extrema."""
        line, chain = self.writer.line, self.chain
        moved = {r.extremum for r in chain.repairs}
        folded = bool(chain.leading or chain.following or chain.repairs)
        with self.unrolled_block(["for (int32_t u = 0; u < 2; ++u)"]) if folded else nullcontext():
            power = "" if self.powers is None else self.end_powers(self.powers)
            for f in (*chain.leading, *chain.following):
                name = f.results[0]
                own = f"{self.rows_own[name]}[u]"
                if f in chain.following:
                    whole = f"{self.algebra(f)}::combine({own}[0], {own}[1])"
                    line(f"{own}[0] = weft::reduce_lanes<{self.algebra(f)}, 4>({whole});")
                elif name not in moved:
                    line(f"{own} = weft::reduce_lanes<{self.algebra(f)}, 4>({own});")
            last = {n: f"{self.rows_own[n]}[u]" for n in moved}
            if self.whole_plan.parts == 1:  # else what combines them does
                extrema = dict(last)
                if chain.bounded and moved:
                    last = self.of_columns("first_row + first_own_row + u * 8", last)
                for text, sums in self.factors(extrema, last, settled=True).items():
                    self.bring_to(f"{text} * {power}" if power else text, sums)
            elif power:
                self.bring_to(power, [r.sum for r in chain.repairs])
        halves = {f.results[0] for f in chain.following}
        for name, own in self.rows_own.items():
            self.names[name] = f"{own}[u][0]" if name in halves else f"{own}[u]"

    def divisors(self) -> None:
        """What all lanes of a row are divided by is the same: its reciprocal is taken once."""
        assert isinstance(self.printer, ColumnPrinter)
        rows = {f.results[0] for f in (*self.chain.leading, *self.chain.following)}
        written = self.needed(e for w in self.products.sweeps.last for e in uses_of_write(w))
        exprs = [v.value for v in written if isinstance(v, Map)] + [w.value for w in self.products.sweeps.last]
        for e in (x for root in exprs for x in walk_expr(root)):
            match e:
                case Op(name="div", args=(_, Ref(name=name) as by)) if name in rows and by not in self.printer.divisors:
                    kind = f"weft::{'OrdinaryDivisor' if counts_from_one(by, self.made) else 'Divisor'}<float>"
                    self.printer.divisors[by] = self.divisor(self.fresh.fresh(f"{name}_divisor"), kind, self.names[name])

    def divisor(self, name: str, kind: str, value: str) -> str:
        """Declare what the rows of a thread, or its only one, are divided by; its name for the u-th of them."""
        if "[u]" not in value:
            self.writer.line(f"const {kind} {name}({value});")
            return name
        each = (f"{kind}({value.replace('[u]', f'[{u}]', 1)})" for u in (0, 1))
        self.writer.line(f"const {kind} {name}[2] = {{{', '.join(each)}}};")
        return f"{name}[u]"

    def end_powers(self, powers: Powers) -> str:
        """The maximum as the program has it, and what brings sums of powers to it."""
        own = f"{self.rows_own[powers.maximum]}[u]"
        reference = f"{self.algebra(self.chain.leading[0])}::reference({own})"
        self.writer.line(f"const float lost = weft::maximum_power({reference}, slope).lost;")
        if powers.unit is not None:
            self.writer.line(f"{own} {powers.by}= unit;")
        return "weft::exp2_estimate(-lost)"
