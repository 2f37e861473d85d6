"""What threads have folded of a row, as CUDA C++: a thread by itself, relative to an extremum or not, all threads of the row
together, and blocks that share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from weft.emit.algebras import algebra_type, is_place, join
from weft.emit.cpp_body import factor
from weft.emit.expressions import PRODUCT, SUM, TERNARY, register_type
from weft.emit.fold_rows import FoldRows
from weft.emit.names import Names
from weft.emit.values import ZERO
from weft.graph.running import Repair, before
from weft.graph.tile import Fold, Map, Read, names_of, starts_neutral
from weft.loops.algebra.table import EXTREMA
from weft.loops.ir import Const, Ref, free_names
from weft.plan.fold import PACKET_BYTES


def alias(fold: Fold) -> str:
    """The C++ name of the algebra of an extremum with what goes with it."""
    return Names().fresh(f"{fold.names[0]}_algebra")


@dataclass
class FoldTotals(FoldRows):
    """The values of a row, folds among them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.known: set[str] = set()  # the values of a row that the text has computed
        self.partials: dict[str, str] = {}
        self.counts: dict[str, str] = {}  # how many points axes have that tell the places of extrema
        self.last: dict[str, str] = {}  # of extrema: what sums are relative to in the end
        self.repairs = {r.sum: r for stage in self.sweeps.stages for s in stage for r in s.repairs}

    def of_rows(self, wanted: Iterable[Read | Map | Fold]) -> None:
        """Compute the values of a row that are not there yet."""
        rows, wanted = set(self.sweeps.rows), list(wanted)
        for value in wanted:
            name = names_of(value)[0]
            if name in self.known or not set(value.axes) <= rows or (self.of_each_row(value) and not isinstance(value, Fold)):
                continue
            if isinstance(value, Fold):
                left = [v for v in wanted if isinstance(v, Fold) and names_of(v)[0] not in self.known]
                together = [v for v in left if self.alone(v)]
                group = together if value in together else [value]
                self.known |= {names_of(v)[0] for v in group}
                self.gathered(group)
            else:
                self.known.add(name)
                self.statements((self.let(value),))

    def alone(self, fold: Fold) -> bool:
        """Whether the parts of a fold are combined without looking at other values."""
        return fold.results[0] not in self.repairs and fold.algebra not in EXTREMA and not free_names(fold.inits[0])

    def fold(self, result: str) -> Fold:
        fold = self.made[result]
        assert isinstance(fold, Fold)
        return fold

    # ---------------------------------------------------------------- what a thread has of a fold

    def algebra(self, fold: Fold) -> str:
        return alias(fold) if fold.algebra in EXTREMA else algebra_type(fold.algebra, register_type(fold.types[0]))

    def value_type(self, fold: Fold) -> str:
        """What threads have of a fold."""
        return f"{self.algebra(fold)}::Value" if fold.algebra in EXTREMA else register_type(fold.types[0])

    def taken(self, fold: Fold, own: str) -> str:
        """What a thread has of a fold after one more point."""
        if fold.algebra not in EXTREMA:
            return f"{self.algebra(fold)}::combine({own}, {self.printer.value(fold.parts[0])})"
        kept = [e for k, e in enumerate(fold.parts) if k < 2 or not is_place(fold, k - 1, self.axes)]
        return f"{self.algebra(fold)}::next({', '.join([own, self.place_of_point(fold), *map(self.printer.exact, kept)])})"

    def place_of_point(self, fold: Fold) -> str:
        """The place of a point among all of its fold, in their order."""
        text = ""
        for name in fold.over:
            start = self.axes[name].start
            own = self.names[name] + ("" if start == ZERO else f" - {self.printer.index(start, PRODUCT)}")
            text = own if not text else f"{factor(text)} * {factor(self.counts[name])} + {own}"
        return text

    # ---------------------------------------------------------------- sums relative to extrema

    def reference(self, extremum: Fold, value: str) -> str:
        """What sums are relative to while an extremum has this value."""
        return f"{self.algebra(extremum)}::reference({value})"

    def factor(self, repair: Repair, old: str, new: str) -> str:
        """What brings a sum that is relative to one value of its extremum to another one."""
        self.instead |= {before(repair.extremum): old, repair.extremum: new}
        text = self.printer.value(repair.factor, PRODUCT)
        del self.instead[before(repair.extremum)], self.instead[repair.extremum]
        return text

    def repair(self, fold: Fold, owns: Mapping[str, str], new: str) -> None:
        """Bring what a thread has summed to a later value of the extremum."""
        repair = self.repairs[fold.results[0]]
        old = self.reference(self.fold(repair.extremum), owns[repair.extremum])
        self.writer.line(f"{owns[fold.results[0]]} *= {self.factor(repair, old, new)};")

    def settled(self, repair: Repair) -> str:
        """The last value of an extremum, which a sum is relative to in the end; of a row without points, a finite one."""
        fold = self.fold(repair.extremum)
        if repair.guarded:
            return self.printer.value(repair.guard, TERNARY + 1)
        last, init = self.names[repair.extremum], fold.inits[0]
        if isinstance(init, Const) and math.isfinite(init.value):
            return last
        if repair.extremum not in self.last:
            name = self.last[repair.extremum] = self.fresh.fresh(f"{fold.names[0]}_last")
            axes = [self.axes[a] for a in fold.over]
            points = " && ".join(f"{self.printer.index(a.start, SUM)} < {self.printer.index(a.stop, SUM)}" for a in axes)
            line = f"const {register_type(fold.types[0])} {name} = {points} ? {last} : {self.reference(fold, last)};"
            self.writer.line(line)
        return self.last[repair.extremum]

    # ---------------------------------------------------------------- what the threads of a row have together

    def meet(self, folds: Sequence[Fold], owns: Mapping[str, str]) -> None:
        """What comes before the totals of folds that are ready together."""

    def combined_by_team(self, fold: Fold, own: str) -> None:
        """The result of a fold, in all threads of its row."""
        if fold.algebra in EXTREMA:
            self.result_of_extremum(fold, own)
            return
        self.joined_to_init(fold, self.total(fold, own))

    def result_of_extremum(self, fold: Fold, own: str) -> None:
        """The states after an extremum with what goes with it, in all threads of its row."""
        self.writer.cite(fold.location)
        for name, init in zip(fold.results, fold.inits, strict=True):
            self.writer.line(f"{register_type(init.type)} {self.declare(name)} = {self.printer.exact(init)};")
        total, found = self.total(fold, own), self.fresh.fresh(f"{fold.names[0]}_total")
        self.writer.line(f"const auto {found} = {total};")
        results = [self.names[n] for n in fold.results]
        kept = [r for k, r in enumerate(results) if not is_place(fold, k, self.axes)]
        places, rest = {}, f"{found}.column"
        for name in reversed(fold.over):
            start = self.axes[name].start
            own_place = rest if name == fold.over[0] else f"{rest} % {factor(self.counts[name])}"
            places[name] = own_place if start == ZERO else f"{self.printer.index(start, SUM)} + {own_place}"
            rest = f"{rest} / {factor(self.counts[name])}" if name != fold.over[0] else rest
        told = [(r, fold.parts[k + 1]) for k, r in enumerate(results) if is_place(fold, k, self.axes)]
        moves = [f"{r} = {places[p.name] if isinstance(p, Ref) else f'{found}.column'};" for r, p in told]
        applied = f"{self.algebra(fold)}::apply({', '.join([found, *kept])})"
        if not moves:
            self.writer.line(f"{applied};")
        elif len(moves) == 1:
            self.writer.line(f"if ({applied}) {moves[0]}")
        else:
            with self.writer.block(f"if ({applied})"):
                for move in moves:
                    self.writer.line(move)

    def total(self, fold: Fold, own: str) -> str:
        """What the threads of a row have folded together."""
        threads, algebra = self.plan.threads, self.algebra(fold)
        if not self.plan.beside and threads <= 32:
            return f"weft::reduce<{algebra}, {threads}>({self.own(own)}, nullptr)"
        side = self.plan.across[0][0] if self.plan.beside else 1
        if self.plan.beside and side == threads:
            return self.own(own)
        if self.plan.beside and threads <= 32:
            return f"weft::reduce_down<{algebra}, {side}, {threads}>({self.own(own)}, nullptr)"
        places = side * (threads // max(side, 32)) if self.plan.beside else threads // 32
        each, scratch = f"[{self.many}]" if self.first else "", self.fresh.fresh(f"{fold.names[0]}_scratch")
        self.writer.line(f"__shared__ {self.value_type(fold)} {scratch}{each}[{places}];")
        if not self.plan.beside:
            return f"weft::reduce<{algebra}, {threads}>({self.own(own)}, {self.own(scratch)})"
        return f"weft::reduce_down<{algebra}, {side}, {threads}>({self.own(own)}, {self.own(scratch)})"

    def joined_to_init(self, fold: Fold, total: str) -> None:
        """The result of a fold, of what all threads of its row have together."""
        type_, result = register_type(fold.types[0]), self.declare(fold.results[0])
        template = "{1}" if starts_neutral(fold) else join(fold.algebra, fold.types[0])
        self.writer.cite(fold.location)
        if self.first:
            self.declared(type_, result)
            self.names[fold.results[0]] = f"{result}[v]"
        with self.each_row(self.needed(fold.inits)):
            joined = template.format(self.printer.exact(fold.inits[0], PRODUCT), total)
            self.writer.line(f"{result}[v] = {joined};" if self.first else f"const {type_} {result} = {joined};")

    # ---------------------------------------------------------------- what blocks have of a row

    def keep(self, fold: Fold, own: str) -> str:
        """Store what this block has folded of its row; its name."""
        kept, type_ = self.partials[fold.results[0]], self.value_type(fold)
        total, name = self.total(fold, own), self.fresh.fresh(f"{fold.names[0]}_total")
        with self.each_row():
            self.writer.line(f"const {type_} {name} = {total};")
            if self.plan.beside:
                side = self.plan.across[0][0]
                first = "here" if side == self.plan.threads else f"here && threadIdx.x < {side}"
                place = f"part * {self.rows_name} + {self.row}{' + v' if self.first else ''}"
                self.writer.line(f"if ({first}) {kept}[{place}] = {name};")
            else:
                own = f" && v >= {self.elsewhere}" if self.elsewhere else ""
                self.writer.line(f"if (threadIdx.x == 0{own}) {kept}[{self.place('part')}] = {name};")
        return name

    def place(self, part: str) -> str:
        """Where a part of this row is kept: the parts of a row lie side by side."""
        return f"{f'({self.row} + v)' if self.first else self.row} * parts + {part}" if self.row else part

    def gathered(self, folds: Sequence[Fold]) -> None:
        """The results of folds whose parts another launch has stored: of several, all are on their way together."""
        k, owns = self.fresh.fresh("other"), {}
        for fold in folds:
            repair, algebra = self.repairs.get(fold.results[0]), self.algebra(fold)
            if repair is not None:
                self.of_rows((self.fold(repair.extremum),))
                self.settled(repair)
            own = owns[fold.results[0]] = self.fresh.fresh(f"{fold.names[0]}_own")
            self.declared(self.value_type(fold), own, f"{algebra}::identity()")
            if fold.algebra in EXTREMA:
                self.counts |= {a: self.span(self.axes[a], f"{a}_count") for a in fold.over[1:] if a not in self.counts}
        side = self.plan.across[0][0] if self.plan.beside else 1
        first = "0" if side == self.plan.threads else "threadIdx.x" if side == 1 else f"threadIdx.x / {side}"
        place = f"{k} * {self.rows_name} + {self.row}" if self.plan.beside else self.place(k)
        turns = f"for (int64_t {k} = {first}; {k} < parts; {k} += {self.plan.threads // side})"
        with self.writer.block(turns):
            parts = {f.results[0]: self.parts_of_rows(f, place) for f in folds}
            with self.each_row():
                for fold in folds:
                    value, repair, own = parts[fold.results[0]], self.repairs.get(fold.results[0]), owns[fold.results[0]]
                    if repair is not None:
                        old = self.reference(self.fold(repair.extremum), f"{self.partials[repair.extremum]}[{place}]")
                        value += f" * {self.factor(repair, old, self.settled(repair))}"
                    taken = f"{self.algebra(fold)}::combine({self.own(own)}, {value})"
                    self.writer.line(f"{self.own(own)} = {taken};")
        for fold in folds:
            self.combined_by_team(fold, owns[fold.results[0]])

    def parts_of_rows(self, fold: Fold, place: str) -> str:
        """A part of a fold, as text; of neighbouring rows whose parts the nest before has left in packets, one packet."""
        kept = self.partials[fold.results[0]]
        if not (self.plan.left and self.first):
            return f"{kept}[{place}{' + v' if self.first and self.plan.beside else ''}]"
        tile, vector = self.fresh.fresh(f"{fold.names[0]}_run"), self.plan.vector
        self.writer.line(f"{register_type(fold.types[0])} {tile}[{vector}];")
        width = min(vector, PACKET_BYTES // fold.types[0].size)
        self.writer.line(f"weft::unpack(weft::fetch<{vector}, {width}>({kept} + {place}), {tile});")
        return f"{tile}[v]"
