"""Scans of many states a row as CUDA C++: a row's threads take a tile of points, and go through it once for each state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass

from weft.emit import entries
from weft.emit.algebras import algebra_of, element_of, join
from weft.emit.cpp_body import factor
from weft.emit.expressions import SUM, memory_type, register_type
from weft.emit.names import Names, kernel_entry, words
from weft.emit.rough import rough_scans
from weft.emit.state_steps import StateSteps
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ZERO, deciding
from weft.graph.factors import regrouped
from weft.graph.state_scans import StateScans
from weft.graph.tile import Carried, Fold, Read, Scan, Write, uses_of_write
from weft.loops.ir import Expr, Function, Stmt, trapping
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.fold import stored_in_packets
from weft.plan.state_scan import StatePlan, kept, met_bytes


def emit(function: Function, nest: Nest, scans: StateScans, plan: StatePlan, facts: Facts) -> str:
    """The kernels' translation unit: an entry for each launch, named by `entries.of_states`. Each takes the slots of
    `weft.plan.arguments`, and where there are several, pointers to what they leave for each other and how many blocks share
    the rows along their last axis.
    """
    own = Nest(nest.name, nest.axes, trapping(nest.body), nest.verdicts)
    scans = regrouped(rough_scans(scans, scans.writes, scans.ends, scans.after))
    writer = Writer()
    if plan.stages:
        writer.line('#include "weft/async.cuh"')
    writer.line('#include "weft/memory.cuh"')
    writer.line('#include "weft/team.cuh"')
    taken = words("outside parts here k s p y met place point part item items state_count tile tiles number memory change keep")
    taken |= {*entries.of_states(nest, scans), "all", "own", "told", "turn"}
    varies = deciding(scans.axes, scans.values)
    large = varies | {s.name for s in function.scalars}
    for entry in entries.of_states(nest, scans):
        writer.line()
        kind = {"_before": BeforeEntry, "_after": AfterEntry}.get(entry.removeprefix(kernel_entry(nest.name)), StateEntry)
        own_plan = plan if kind is StateEntry else plan.apart
        kind(
            function, own, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
            axes=scans.axes, values=scans.values, scans=scans, plan=own_plan,
        ).emit(entry)  # fmt: skip
    return writer.text()


@dataclass
class StateEntry(StateSteps):
    """The launch that goes through all points, and writes what is known there."""

    # ---------------------------------------------------------------- the kernel

    def emit(self, entry: str) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        passed = [(n, t) for s in self.scans.early for n, t in zip(s.names, s.types, strict=True)]
        passed += [(f.results[0], f.types[0]) for f in self.scans.crossed]
        given += [f"{register_type(t)}* {self.memory_of(n)}" for n, t in passed]
        given += ["const int64_t parts"] if passed else []
        lines = ",\n    ".join(given)
        resident = f", {self.plan.resident}" if self.plan.resident else ""
        bounds = f"{self.plan.threads * self.plan.teams}{resident}"
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({bounds}) {entry}(\n    {lines})'):
            mark = self.writer.mark()
            self.body()
            self.stop_outside(mark)

    def body(self) -> None:
        self.rows()
        self.hoist(self.everything(), list(self.scans.rows))
        self.values_of_rows()
        self.begin()
        self.tiles()
        self.ends()

    def rows(self) -> None:
        """Which row a thread works for."""
        plan, line = self.plan, self.writer.line
        axes = [self.axes[a] for a in self.scans.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        line(f"// {plan.threads} threads a row, each with {plan.points} neighbours of a tile of {plan.tile} points")
        if not axes:
            self.stems["row"] = "0"
            return
        *others, last = axes
        count, place, group = counts[last.name], self.fresh.fresh(f"{last.name}_place"), f"{last.name}_blocks"
        blocks = factor(count)
        if plan.teams > 1:
            blocks = self.fresh.fresh(group)
            line(f"const int64_t {blocks} = ({count} + {plan.teams - 1}) / {plan.teams};")
        within = f"int64_t(blockIdx.x % {blocks})" if others else "int64_t(blockIdx.x)"
        start = self.printer.index(last.start, SUM)
        if plan.teams > 1:
            within = f"{within} * {plan.teams} + threadIdx.y"
            if not plan.full:
                line(f"const bool here = {within} < {count};  // else the last row is looked at again")
                within = f"weft::minimum<int64_t>({within}, {count} - 1)"
                self.here = "here"
        plain = last.start == ZERO
        own = self.declare(last.name) if plain else place
        line(f"const int64_t {own} = {within};")
        if not plain:
            line(f"const int64_t {self.declare(last.name)} = {start} + {own};")
        self.places(others, f"int64_t(blockIdx.x / {blocks})", counts)
        self.stems["row"] = f"(int64_t(blockIdx.x / {blocks}) * {count} + {own})" if others else own
        self.stems["others"] = f"int64_t(blockIdx.x / {blocks})" if others else "0"
        self.stems["group"] = f"blockIdx.x % {blocks}" if others else "blockIdx.x"
        self.stems["others_count"] = " * ".join(counts[a.name] for a in others) or "1"

    def count_states(self) -> None:
        """How many states a row has, and the name of a state's number."""
        axes = [self.axes[a] for a in self.scans.states]
        if len(axes) == 1 and axes[0].start == ZERO:
            self.s = self.declare(axes[0].name)
        counts = {a: self.span(self.axes[a], f"{a}_count") for a in self.scans.states}
        self.stems |= {f"{a} span": text for a, text in counts.items()}
        product = [factor(c) if len(counts) > 1 else c for c in counts.values()]
        self.writer.line(f"const int32_t state_count = {' * '.join(product)};")

    def coordinates(self) -> None:
        """Which state the s-th is, where it is not so named."""
        axes = [self.axes[a] for a in self.scans.states]
        if self.s != "s":
            return
        self.places(axes, "s", {a.name: self.stems[f"{a.name} span"] for a in axes})

    def values_of_rows(self) -> None:
        """What the points of a row have in common, computed once."""
        for value in self.needed([*self.state_exprs(), *self.point_exprs(), *self.end_exprs()]):
            if isinstance(value, Carried) or not set(value.axes) <= set(self.scans.rows) or value.name in self.moved:
                continue
            if self.after_points(value):
                continue
            self.statements((self.let(value),))
            self.leaves.add(value.name)

    # ---------------------------------------------------------------- what a row keeps

    def begin(self) -> None:
        """Shared memory for what a row keeps of each state, and what is there at first."""
        plan, line = self.plan, self.writer.line
        self.count_states()
        kinds = {n for s in self.kept_scans() for n in s.names} | {f.results[0] for f in self.sums_of_states}
        wanted = [one for one in kept(self.scans, plan) if one[0] in kinds]
        line("extern __shared__ __align__(16) unsigned char memory[];")
        at = 0
        for read in self.staged_reads():
            type_ = memory_type(self.function.array(read.array).dtype)
            self.rings[read.name] = ring = self.fresh.fresh(f"{read.array}_ring")
            line(f"{type_}* const {ring} = reinterpret_cast<{type_}*>({f'memory + {at}' if at else 'memory'});")
            at += plan.stages * plan.tile * self.function.array(read.array).dtype.size
        offset, each = at + (met_bytes(self.scans, plan) if self.crossed else 0), 0
        for f in self.crossed:
            type_ = register_type(f.types[0])
            place = f"memory + {at}" if at else "memory"
            met = self.stem(f"{f.results[0]}_met")
            line(f"{type_}* const {met} = reinterpret_cast<{type_}*>({place});  // of all rows, in turn")
            at += 2 * plan.teams * plan.slot * f.types[0].size
        for name, kind, count in wanted:
            text = register_type(kind)
            parts = [*([str(offset)] if offset else []), *([f"state_count * {each}"] if each else [])]
            place = " + ".join(["memory", *parts])
            each_thread = plan.spread and name not in {n for s in self.kept_scans() for n in s.names}
            own = f" + threadIdx.y * state_count{f' * {plan.threads}' if each_thread else ''}" if plan.teams > 1 else ""
            line(f"{text}* const {self.stem(f'{name}_kept')} = reinterpret_cast<{text}*>({place}){own};")
            each += kind.size * count * plan.teams
        with self.writer.block(f"for (int32_t {self.s} = threadIdx.x; {self.s} < state_count; {self.s} += {plan.threads})"):
            self.coordinates()
            self.values_of_states([e for s in self.kept_scans() for e in s.inits])
            for s in self.kept_scans():
                self.writer.cite(s.location)
                for n, e in zip(s.names, s.inits, strict=True):
                    line(f"{self.stem(f'{n}_kept')}[{self.s}] = {self.printer.exact(e)};")
            for f in self.sums_of_states if not plan.spread else ():
                line(f"{self.kept_sum(f)} = {algebra_of(f)}::identity();")
        if self.sums_of_states and plan.spread:
            with self.writer.block(f"for (int32_t {self.s} = 0; {self.s} < state_count; ++{self.s})"):
                for f in self.sums_of_states:
                    line(f"{self.kept_sum(f)} = {algebra_of(f)}::identity();")
        for f in self.sums_of_rows:
            line(f"auto {self.stem(f'{f.results[0]}_own')} = {algebra_of(f)}::identity();")
        given = self.needed([e for s in self.kept_scans() for e in s.inits])
        written = {w.array for w in self.scans.ends}
        again = bool(self.here) and any(isinstance(v, Read) and v.array in written for v in given)
        # threads without a row look at what the last row begins with, which it may write in the end
        line("__syncthreads();" if again else self.team_barrier())

    def team_barrier(self) -> str:
        if self.crossed or self.plan.threads > 32:
            return "__syncthreads();"
        return f"weft::sync_team<{self.plan.threads}>();"

    # ---------------------------------------------------------------- tiles

    @property
    def reverse(self) -> bool:
        return self.scans.reverse

    def tiles(self) -> None:
        plan, line, axis = self.plan, self.writer.line, self.axis
        start, self.end = self.printer.index(axis.start, SUM), self.printer.index(axis.stop, SUM)
        length = factor(self.end) if axis.start == ZERO else f"{factor(self.end)} - {factor(start)}"
        line(f"const int64_t tiles = ({length} + {plan.tile - 1}) / {plan.tile};")
        for s in self.own_scans:
            if plan.threads > 32:
                line(f"__shared__ {algebra_of(s)}::Value {self.stem(f'{s.names[0]}_scratch')}[2][{plan.threads // 32}];")
        for f in (*self.sums_of_states, *self.sums_of_rows):
            if plan.threads > 32:
                type_ = register_type(f.types[0])
                line(f"__shared__ {type_} {self.stem(f'{f.results[0]}_scratch')}[2][{plan.threads // 32}];")
        with self.writer.block("for (int64_t tile = 0; tile < tiles; ++tile)"):
            number = "tile"
            if self.reverse:
                number = "number"
                line("const int64_t number = tiles - 1 - tile;")
            self.stems["number"] = number
            self.first = self.stem(f"{axis.name}_first")
            begin = f"{number} * {plan.tile} + threadIdx.x * {plan.points}"
            line(f"const {self.index} {self.first} = {begin if start == '0' else f'{start} + {begin}'};")
            leaves = set(self.leaves)
            self.tile()
            line(self.team_barrier())
            self.leaves = leaves

    def tile(self) -> None:
        """One tile: what its points have in common for all states, then each state, then what is known of all."""
        line = self.writer.line
        if self.rings:
            self.first_copies()
        self.kept_at_points(self.state_exprs(), set(self.scans.rows) | {self.scans.along}, made_once=True)
        self.coefficients()
        for f in self.totals:
            own = self.stem(f"{f.results[0]}_own")
            line(f"{algebra_of(f)}::Value {own}[{self.plan.points}];")
            line("#pragma unroll")
            line(f"for (int32_t k = 0; k < {self.plan.points}; ++k) {own}[k] = {algebra_of(f)}::identity();")
        self.first_state()
        for s in self.own_scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.places_of_states(n, register_type(type_), s)
        self.take_ahead("0")
        if self.rings:
            self.copies_there(self.plan.stages - 1)
        self.meeting()
        with self.writer.block(f"for (int32_t {self.s} = 0; {self.s} < state_count; ++{self.s})"):
            leaves = set(self.leaves)
            self.coordinates()
            self.state()
            self.leaves = leaves
        self.runs, self.ahead, self.tile_loads = {}, {}, {}
        self.finish()

    # ---------------------------------------------------------------- one state

    def state(self) -> None:
        """One state of a tile: what it is before each thread's points, and what is made of it at each of them."""
        exprs = self.state_exprs()
        inside = [v for v in self.needed(exprs) if not isinstance(v, Carried) and self.scans.along not in v.axes]
        for value in inside:
            if not self.late(value):
                self.statements((self.let(value),))
                self.leaves.add(value.name)
        self.kept_at_points(exprs, {*self.scans.rows, *self.scans.states, self.scans.along})
        kept_states: list[Scan] = []
        for level in self.levels():
            self.composed(level)
            for s in level:
                if s in self.scans.early or self.followed(s):
                    self.replayed(s)
                    kept_states.append(s)
        self.at_states([s for s in self.own_scans if s not in kept_states])

    def followed(self, s: Scan) -> bool:
        """Whether another scan needs the states of this one at points."""
        return any(self.follows(o, s) for o in self.own_scans if o is not s)

    def at_states(self, moving: Sequence[Scan]) -> None:
        """Go through the points with the states: what is folded of them and written."""
        line = self.writer.line
        for s in moving:
            self.names |= {n: self.before(n) for n in s.names}
        for f in self.sums_of_states:
            line(f"auto {self.stem(f'{f.results[0]}_own')} = {algebra_of(f)}::identity();")
        if self.crossed:
            turn = f"({self.s} & 1)"
            row = turn if self.plan.teams == 1 else f"({turn} * {self.plan.teams} + threadIdx.y)"
            line(f"const int32_t met = {row} * {self.plan.slot} + threadIdx.x;  // where the rows of the block meet")
        exprs = [e for f in (*self.totals, *self.sums_of_states, *self.crossed) for e in f.parts]
        exprs += [e for w in self.of_states for e in uses_of_write(w)]

        def body() -> None:
            self.at_point([*exprs, *(e for s in moving for e in s.nexts)])
            for f in (*self.totals, *self.sums_of_states):
                self.writer.cite(f.location)
                own = self.stem(f"{f.results[0]}_own") + ("[k]" if f in self.totals else "")
                line(f"{own} = {element_of(self.printer, f, own)};")
            for f in self.crossed:
                self.writer.cite(f.location)
                value = self.printer.exact(f.parts[0])
                value = f"{self.here} ? {value} : {algebra_of(f)}::identity()" if self.here else value
                line(f"{self.stem(f'{f.results[0]}_met')}[met + k * {self.plan.pitch}] = {value};")
            self.written(self.of_states)
            self.advance_states(moving)

        self.steps(body, self.scans.reverse)
        for f in self.sums_of_states:
            own, total = self.stem(f"{f.results[0]}_own"), self.kept_sum(f)
            if self.plan.spread:
                line(f"{total} = {algebra_of(f)}::combine({total}, {own});")
                continue
            all_ = self.stem(f"{f.results[0]}_all")
            line(f"const auto {all_} = {self.reduced(f, own, f'{self.s} & 1')};")
            line(f"if (threadIdx.x == 0) {total} = {algebra_of(f)}::combine({total}, {all_});")
        self.next_state()
        self.meet()

    def kept_sum(self, f: Fold, thread: str = "threadIdx.x") -> str:
        """Where a sum is kept of a state."""
        place = f"{self.s} * {self.plan.threads} + {thread}" if self.plan.spread else self.s
        return f"{self.stem(f'{f.results[0]}_kept')}[{place}]"

    def written(self, writes: Iterable[Write]) -> None:
        for w in writes:
            if self.here:
                with self.writer.block(f"if ({self.here})"):
                    self.write(w)
            else:
                self.write(w)

    def reduced(self, f: Fold, own: str, turn: str) -> str:
        scratch = f"{self.stem(f'{f.results[0]}_scratch')}[{turn}]" if self.plan.threads > 32 else "nullptr"
        return f"weft::reduce<{algebra_of(f)}, {self.plan.threads}>({own}, {scratch})"

    def meeting(self) -> None:
        """Declare where a thread's point is, of those that it folds the rows of, and where that goes."""
        plan, line = self.plan, self.writer.line
        if not self.crossed:
            return
        start = self.printer.index(self.axis.start, SUM)
        self.length = factor(self.end if start == "0" else f"{self.end} - {factor(start)}")
        block = f"({self.stems['group']} * ({self.stems['others_count']}) + {self.stems['others']})"
        flat = "threadIdx.x" if plan.teams == 1 else f"threadIdx.y * {plan.threads} + threadIdx.x"
        if plan.tile < plan.threads * plan.teams:
            flat = f"({flat}) % {plan.tile}"
        line(f"const int32_t own = {flat};  // the point, or the first of them, of which this thread folds the rows")
        line(f"int64_t told = {block} * state_count * {self.length} + {self.stems['number']} * {plan.tile} + own;")

    def meet(self) -> None:
        """Fold the rows of a block, and leave what they make for the launch after this one."""
        plan, line = self.plan, self.writer.line
        if not self.crossed:
            if self.rings:
                self.copies_there(plan.stages - 2)
                self.copy_state(f"{self.s} + {plan.stages}")
            return
        if self.rings:
            self.copies_there(plan.stages - 2)
            self.copy_state(f"{self.s} + {plan.stages}")
        else:
            line("__syncthreads();")
        threads = plan.threads * plan.teams
        apart = max(1, threads // plan.tile)  # threads that have a point of one fold and not of the next one
        line(f"const int32_t turn = ({self.s} & 1) * {plan.teams * plan.slot};")
        for k, f in enumerate(self.crossed):
            all_, met = self.stem(f"{f.results[0]}_all"), self.stem(f"{f.results[0]}_met")
            with ExitStack() as around:
                p, told = "own", "told"
                if apart > 1:
                    first = plan.tile * (k % apart) // plan.threads
                    rows = plan.tile // plan.threads
                    mine = f"threadIdx.y / {rows} == {first // rows}"
                    around.enter_context(self.writer.block(f"if ({mine})"))
                elif plan.tile == threads:
                    around.enter_context(self.writer.block(""))
                else:
                    around.enter_context(self.writer.block(f"for (int32_t p = own; p < {plan.tile}; p += {threads})"))
                    p, told = "p", "told + (p - own)"
                point = f"{self.stems['number']} * {plan.tile} + {p} < {self.length}"
                around.enter_context(nullcontext() if plan.whole else self.writer.block(f"if ({point})"))
                place = f"turn + {p} % {plan.points} * {plan.pitch} + {p} / {plan.points}"
                line(f"const int32_t place = {place};")
                line(f"auto {all_} = {met}[place];")
                if plan.teams > 1:
                    line("#pragma unroll")
                    own = f"{met}[place + y * {plan.slot}]"
                    line(f"for (int32_t y = 1; y < {plan.teams}; ++y) {all_} = {algebra_of(f)}::combine({all_}, {own});")
                line(f"{self.memory_of(f.results[0])}[{told}] = {all_};")
        line(f"told += {self.length};")

    # ---------------------------------------------------------------- what is known of all states

    def finish(self) -> None:
        """What is written at points, and folded along rows."""
        line, points = self.writer.line, self.plan.points
        exprs = self.point_exprs()
        if not exprs:
            return
        folds = [v for v in self.needed(exprs) if v in self.totals]
        for v in self.needed([*exprs, *(e for f in folds for e in f.inits)]):
            if isinstance(v, Read) and self.scans.along in v.axes and self.in_runs(v):
                self.fetch(v, again=v.name in self.names)
        packed = {w: self.stem(f"{w.array}_run") for w in self.of_points if self.in_packets(w)}
        for w, run in packed.items():
            line(f"{register_type(w.value.type)} {run}[{points}];")

        def body() -> None:
            self.at_point(exprs)
            for f in self.sums_of_rows:
                self.writer.cite(f.location)
                own = self.stem(f"{f.results[0]}_own")
                line(f"{own} = {element_of(self.printer, f, own)};")
            for w, run in packed.items():
                self.writer.cite(w.location)
                line(f"{run}[k] = {self.printer.value(w.value)};")
            self.written(w for w in self.of_points if w not in packed)

        self.steps(body, self.scans.reverse)
        start = self.printer.index(self.axis.start)
        here = f"if ({self.here}) " if self.here else ""
        with self.spelled({self.axis.name: self.first}):
            for w, run in packed.items():
                at = self.address(w.array, w.index)
                aligned = self.axis.start == ZERO
                width = self.width(w.array, points) if aligned else 1
                if self.plan.whole:
                    line(f"{here}weft::store<{width}>({at}, {run});")
                else:
                    known = width if width > 1 else 0
                    line(f"{here}weft::store_run<{known}>({at}, {self.first}, {start}, {self.end}, {run});")

    def in_packets(self, w: Write) -> bool:
        return stored_in_packets(w, self.axis.name, self.facts)

    def ends(self) -> None:
        """What is written once a row."""
        line, plan = self.writer.line, self.plan
        if not self.scans.ends:
            return
        for f in self.sums_of_rows:
            own, name = self.stem(f"{f.results[0]}_own"), self.declare(f.results[0])
            text = join(f.algebra, f.types[0]).format(self.printer.exact(f.inits[0]), self.reduced(f, own, "0"))
            line(f"const {register_type(f.types[0])} {name} = {text};")
        here = [self.here] if self.here else []
        of_rows = [w for w in self.scans.ends if not set(w.axes) & set(self.scans.states)]
        if of_rows:
            with self.writer.block(f"if ({' && '.join([*here, 'threadIdx.x == 0'])})"):
                self.at_end(of_rows)
        rest = [w for w in self.scans.ends if w not in of_rows]
        if not rest:
            return
        if plan.spread and self.sums_of_states:
            with self.writer.block(f"for (int32_t {self.s} = 0; {self.s} < state_count; ++{self.s})"):
                for f in self.sums_of_states:
                    all_ = self.stem(f"{f.results[0]}_all")
                    line(f"const auto {all_} = {self.reduced(f, self.kept_sum(f), f'{self.s} & 1')};")
                    line(f"if (threadIdx.x == 0) {self.kept_sum(f, '0')} = {all_};")
            line(self.team_barrier())
        bound = " && ".join([*here, f"{self.s} < state_count"])
        with self.writer.block(f"for (int32_t {self.s} = threadIdx.x; {bound}; {self.s} += {plan.threads})"):
            self.coordinates()
            for s in self.scans.scans:
                for n, r in zip(s.names, s.results, strict=True):
                    self.names[r] = f"{self.stem(f'{n}_kept')}[{self.turn('tiles')} + {self.s}]"
            self.at_end(rest)

    def at_end(self, writes: Sequence[Write]) -> None:
        for value in self.needed([e for w in writes for e in uses_of_write(w)]):
            if isinstance(value, Fold) and value in self.sums_of_states:
                own, name = self.kept_sum(value, "0"), self.declare(value.results[0])
                text = join(value.algebra, value.types[0]).format(self.printer.exact(value.inits[0]), own)
                self.writer.line(f"const {register_type(value.types[0])} {name} = {text};")
            elif not isinstance(value, Carried):
                self.statements((self.let(value),))
        for w in writes:
            self.write(w)


@dataclass
class BeforeEntry(StateEntry):
    """The launch that finds the states of early scans before each tile."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own_scans = self.scans.early

    totals = writes = sums_of_states = sums_of_rows = crossed = property(lambda self: ())

    def end_exprs(self) -> list[Expr]:
        return [e for s in self.own_scans for e in s.inits]

    def everything(self) -> tuple[Stmt, ...]:
        return self.statements_of([*self.state_exprs(), *self.end_exprs()])

    @property
    def reverse(self) -> bool:
        return not self.scans.reverse

    def kept_scans(self) -> tuple[Scan, ...]:
        return self.scans.early

    def state_before(self, name: str) -> str:
        return f"{self.stem(f'{name}_kept')}[{self.stem(f'{name}_now')} + {self.s}]"

    def state(self) -> None:
        exprs = self.state_exprs()
        for value in self.needed(exprs):
            if not isinstance(value, Carried) and self.scans.along not in value.axes and not self.late(value):
                self.statements((self.let(value),))
                self.leaves.add(value.name)
        self.kept_at_points(exprs, {*self.scans.rows, *self.scans.states, self.scans.along})
        first = " && ".join([*([self.here] if self.here else []), "threadIdx.x == 0"])
        for level in self.levels():
            self.composed(level)
            for s in level:
                for n in s.names:
                    self.writer.line(f"if ({first}) *{self.stem(f'{n}_tiles')} = {self.start(n)};")
                if self.followed(s):
                    self.replayed(s)
        self.next_state()

    def finish(self) -> None:
        """Nothing is written."""

    def ends(self) -> None:
        """Nothing is known at the end."""


@dataclass
class AfterEntry(StateEntry):
    """The launch that folds what blocks have left of the rows that they have, a thread for each point."""

    def body(self) -> None:
        line, axes = self.writer.line, [self.axes[a] for a in (*self.scans.rows[:-1], *self.scans.states, self.scans.along)]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        line(f"const int64_t items = {' * '.join(factor(counts[a.name]) for a in axes)};")
        each = self.plan.threads * self.plan.teams
        flat = "threadIdx.x" if self.plan.teams == 1 else f"threadIdx.y * {self.plan.threads} + threadIdx.x"
        step = f"item += int64_t(gridDim.x) * {each}"
        with self.writer.block(f"for (int64_t item = int64_t(blockIdx.x) * {each} + {flat}; item < items; {step})"):
            self.places(axes, "item", counts)
            for f in self.crossed:
                all_ = self.stem(f"{f.results[0]}_all")
                line(f"auto {all_} = {algebra_of(f)}::identity();")
                memory = f"{self.memory_of(f.results[0])}[part * items + item]"
                combined = f"{all_} = {algebra_of(f)}::combine({all_}, {memory});"
                line(f"for (int64_t part = 0; part < parts; ++part) {combined}")
            for value in self.needed([e for w in self.scans.after for e in uses_of_write(w)]):
                if isinstance(value, Fold):
                    self.writer.cite(value.location)
                    own, name = self.stem(f"{value.results[0]}_all"), self.declare(value.results[0])
                    text = join(value.algebra, value.types[0]).format(self.printer.exact(value.inits[0]), own)
                    line(f"const {register_type(value.types[0])} {name} = {text};")
                else:
                    self.statements((self.let(value),))
            for w in self.scans.after:
                self.write(w)
