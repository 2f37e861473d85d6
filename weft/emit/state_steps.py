"""States of scans in a text: what a thread's points do to them, and what they are at its points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from weft.emit.algebras import algebra_of, element_of, join
from weft.emit.cpp_body import factor
from weft.emit.expressions import PRODUCT, literal, register_type
from weft.emit.state_reads import StateReads
from weft.graph.factors import composed_by_step
from weft.graph.tile import Map, Scan
from weft.loops.algebra.table import overflows, segmented
from weft.loops.ir import Expr, Op, Ref, free_names
from weft.loops.types import FLOAT32


@dataclass
class StateSteps(StateReads):
    """How a launch finds the states of its scans."""

    def kept_scans(self) -> tuple[Scan, ...]:
        """The scans whose states are kept from tile to tile."""
        return self.scans.scans

    def state_before(self, name: str) -> str:
        """The text of a state before the tile."""
        if name in {n for s in self.scans.early for n in s.names}:
            return self.stem(f"{name}_ahead") if self.crossed else f"*{self.stem(f'{name}_tiles')}"
        return f"{self.stem(f'{name}_kept')}[{self.stem(f'{name}_now')} + {self.s}]"

    def places_of_states(self, name: str, type_: str, s: Scan) -> None:
        """Where a row's states are before a tile, and after it."""
        line = self.writer.line
        if s in self.scans.early:
            at = f"{self.memory_of(name)} + ({self.stems['row']} * tiles + {self.stems['number']}) * state_count"
            tiles = self.stem(f"{name}_tiles")
            line(f"{type_}* {tiles} = {at};")
            self.pointers_of_states.append((tiles, "1"))
            if self.crossed:
                self.stems[f"{name}_ahead"] = self.read_ahead(f"{name}_ahead", type_, f"*{tiles}")
        if s in self.kept_scans():
            for which, tile in (("now", "tile"), ("next", "tile + 1")):
                line(f"const int32_t {self.stem(f'{name}_{which}')} = weft::opaque(int32_t({self.turn(tile)}));")

    def turn(self, tile: str) -> str:
        """The offset of the states before a tile."""
        rows = f"{self.plan.teams} * " if self.plan.teams > 1 else ""
        return f"({factor(tile)} & 1) * {rows}state_count"

    def levels(self) -> list[list[Scan]]:
        """The scans, those together that need no states of each other."""
        levels: list[list[Scan]] = []
        for s in self.own_scans:
            if not levels or any(self.follows(s, other) for other in levels[-1]):
                levels.append([])
            levels[-1].append(s)
        return levels

    def follows(self, s: Scan, other: Scan) -> bool:
        """Whether a scan needs the states of another one at points."""
        exprs = (*s.parts, *s.nexts)
        used = {n for e in exprs for n in free_names(e)}
        used |= {n for v in self.needed(exprs) if isinstance(v, Map) for n in free_names(v.value)}
        return bool(used & set(other.names))

    def composed(self, level: Sequence[Scan]) -> None:
        """The states of scans before each thread's points and after the tile."""
        plan, line = self.plan, self.writer.line
        owns: dict[str, str] = {}
        for s in level:
            self.writer.cite(s.location)
            for n, t in zip(s.names, s.types, strict=True):
                line(f"const {register_type(t)} {self.start(n)} = {self.state_before(n)};")
            owns[s.names[0]] = self.composed_step(s) if composed_by_step(s) else self.composed_parts(s)
        together = [s for s in level if composed_by_step(s) and plan.threads <= 32]
        if together:
            for s in together:
                line(f"{owns[s.names[0]]};")
            ways = ", ".join("true" if s.reverse else "false" for s in together)
            names = ", ".join(self.stem(f"{s.names[0]}_through") for s in together)
            line(f"weft::states_through<{plan.threads}, {ways}>({names});")
        for s in level:
            self.through(s, owns[s.names[0]])
        careful = [s for s in level if overflows(s.algebra, s.types[0])]
        if careful:
            finite = " && ".join(f"weft::is_finite({self.after(n)})" for s in careful for n in s.names)
            line("// what overflows when points are composed is computed in their order")
            with self.writer.block(f"if (!weft::all_of_team<{plan.threads}>({finite}))"):
                sticking = [s for s in careful if segmented(s.algebra) is None and len(s.names) == 1]
                several = len(careful) - len(sticking) > 1  # which have no block of their own
                for s in careful:
                    own = f"_{self.stem(s.names[0])}" if several else ""
                    alone = self.writer.block(f"if (!weft::is_nan({self.start(s.names[0])}))")
                    with alone if s in sticking else nullcontext():
                        self.one_after_another(s, f"change{own}", f"keep{own}")
        for s in level:
            if s not in self.kept_scans():
                continue
            end = 0 if s.reverse else plan.threads - 1
            with self.writer.block(f"if (threadIdx.x == {end})") if len(s.names) > 1 else nullcontext():
                for n in s.names:
                    place = f"{self.stem(f'{n}_kept')}[{self.stem(f'{n}_next')} + {self.s}]"
                    line(f"{'' if len(s.names) > 1 else f'if (threadIdx.x == {end}) '}{place} = {self.after(n)};")

    def start(self, name: str) -> str:
        """The C++ name of a state before the tile."""
        return self.stem(f"{name}_start")

    def after(self, name: str) -> str:
        """The C++ name of a state after the thread's points; after the tile, where it is kept."""
        return self.stem(f"{name}_after")

    def composed_parts(self, s: Scan) -> str:
        """What a thread's points do to states, one after the other."""
        own, names = self.stem(f"{s.names[0]}_own"), " and ".join(s.names)
        self.writer.line(f"auto {own} = {algebra_of(s)}::identity();  // what the thread's points do to {names}")

        def body() -> None:
            self.at_point(s.parts)
            self.writer.line(f"{own} = {element_of(self.printer, s, own)};")

        self.steps(body, s.reverse)
        return own

    def through(self, s: Scan, own: str) -> None:
        """From what points do, the states after each thread's points, or the tile's, and before. own: what a thread's do."""
        plan, line, algebra, stem = self.plan, self.writer.line, algebra_of(s), s.names[0]
        backwards, several = "true" if s.reverse else "false", plan.threads > 32
        lasts, warps = [self.after(n) for n in s.names], [self.stem(f"{n}_warp") for n in s.names]
        if composed_by_step(s) and not several:
            line(f"{register_type(s.types[0])} {lasts[0]} = {self.stem(f'{stem}_through')}.addend;")
        else:
            found = self.stem(f"{stem}_composed")
            scratch = f"{self.stem(f'{stem}_scratch')}[{self.s} & 1]" if several else "nullptr"
            line(f"const auto {found} = weft::scan_through<{algebra}, {plan.threads}, {backwards}>({own}, {scratch});")
            for n, t, warp, last in zip(s.names, s.types, warps, lasts, strict=True):
                line(f"{register_type(t)} {last} = {self.start(n)}{f', {warp} = {self.start(n)}' if several else ''};")
            line(f"{algebra}::apply({found}.all, {', '.join(lasts)});")
            if several:
                line(f"{algebra}::apply({found}.warps, {', '.join(warps)});")
        for n, t, warp, last in zip(s.names, s.types, warps, lasts, strict=True):
            first = warp if several else self.start(n)
            taken = f"weft::from_lane_before<{min(plan.threads, 32)}, {backwards}>({last}, {first})"
            line(f"{register_type(t)} {self.before(n)} = {taken};")

    def composed_step(self, s: Scan) -> str:
        """What a thread's points do to a state: the product of what it is multiplied by, and what they make of 0. The first
        points of a tile, where that is a warp's, begin with the state before them and need no other.
        """
        line, type_, (name,) = self.writer.line, register_type(s.types[0]), s.names
        zero, first = literal(0, s.types[0]), self.first_of_tile(s)
        own = self.stem(f"{name}_own")
        begin = f"{first} ? {self.start(name)} : {zero}" if first else zero
        line(f"{type_} {own} = {begin};  // what the thread's points make of it")
        power, known = self.powers.get(name), self.multiples.get(name)
        product = known or self.stem(f"{name}_product")
        if not power and not known:
            line(f"{type_} {product} = {literal(1, s.types[0])};")
        before = dict(self.names)
        self.names[name] = own

        def body() -> None:
            self.at_point([*s.nexts, *([] if power or known else [s.parts[0]])])
            if not power and not known:
                by = self.printer.exact(s.parts[0], PRODUCT)
                line(f"{product} = {join('product', s.types[0]).format(product, by)};")
            self.advance_states([s])

        self.steps(body, s.reverse)
        self.names = before
        if power:
            total, rate = power
            product = f"weft::exp2_estimate({total} * {self.printer.value(rate)})"
        if not first:
            return f"{algebra_of(s)}::Value{{{product}, {own}}}"
        through = self.stem(f"{name}_through")
        if known:
            return f"weft::Multiplied<{self.plan.threads}, {type_}> {through} = {{{known}, {own}}}"
        return f"{algebra_of(s)}::Value {through} = {{{first} ? {zero} : {product}, {own}}}"

    def first_of_tile(self, s: Scan) -> str:
        """Whether a thread has the first points of a tile; "" where several warps have one."""
        return "" if self.plan.threads > 32 else f"threadIdx.x == {self.plan.threads - 1 if s.reverse else 0}"

    def coefficients(self) -> None:
        """What states are multiplied by, as far as they have it in common: a product of powers is the power of a sum, and one
        that is the same for all of them is composed once.
        """
        sums: dict[Expr, str] = {}
        self.powers, self.multiples = {}, {}
        for s in self.own_scans:
            if not composed_by_step(s):
                continue
            (name,), coefficient = s.names, s.parts[0]
            value = self.made.get(coefficient.name) if isinstance(coefficient, Ref) else None
            if not self.axes_of(coefficient) & set(self.scans.states) and not free_names(coefficient) & self.moved:
                self.multiples[name] = self.multiple(s)
                continue
            match value.value if isinstance(value, Map) else None:
                case Op(name="exp2_flushed", args=(Op(name="mul", args=(own, Ref() as rate)),)):
                    of_states = self.axes_of(own) & set(self.scans.states)
                    if of_states or self.scans.along not in self.axes_of(own) or self.scans.along in self.axes_of(rate):
                        continue
                    if own not in sums:
                        sums[own] = self.stem(f"{name}_powers")
                        self.gathered(sums[own], own, literal(0, own.type), join("sum", own.type))
                    self.powers[name] = sums[own], rate

    def multiple(self, s: Scan) -> str:
        """The product of what a thread's points multiply states by; in a warp, of those of lanes before it, step by step."""
        (name,), coefficient, first = s.names, s.parts[0], self.first_of_tile(s)
        product, backwards = self.stem(f"{name}_product"), "true" if s.reverse else "false"
        self.gathered(product, coefficient, literal(1, s.types[0]), join("product", s.types[0]))
        if not first:
            return product
        steps, zero = self.stem(f"{name}_multiples"), literal(0, s.types[0])
        taken = f"weft::multiples_through<{self.plan.threads}, {backwards}>({first} ? {zero} : {product})"
        self.writer.line(f"const auto {steps} = {taken};")
        return steps

    def gathered(self, name: str, expr: Expr, start: str, joined: str) -> None:
        """Declare what a thread's points of a tile come to, once for all states."""
        self.writer.line(f"{register_type(expr.type)} {name} = {start};")

        def body() -> None:
            self.at_point([expr])
            self.writer.line(f"{name} = {joined.format(name, self.printer.exact(expr, PRODUCT))};")

        self.steps(body, False)
        if expr.type == FLOAT32:
            self.writer.line(f"{name} = weft::opaque({name});")

    def before(self, name: str) -> str:
        """The C++ name of a state before the thread's points."""
        return self.stem(f"{name}_before")

    def one_after_another(self, s: Scan, change: str, keep: str) -> None:
        """The states before each thread's points, and after the tile, found point by point. change, keep: names of two."""
        line, backwards = self.writer.line, "true" if s.reverse else "false"
        own = [self.stem(n) for n in s.names]
        given = ", ".join(f"{register_type(t)}& {n}" for n, t in zip(own, s.types, strict=True))
        before = dict(self.names)
        with self.writer.block(f"const auto {change} = [&]({given})", "};"):
            self.names |= dict(zip(s.names, own, strict=True))

            def body() -> None:
                self.at_point(s.nexts)
                self.advance_states([s])

            self.steps(body, s.reverse)
        self.names = before
        kept_here = " ".join(f"{self.before(name)} = {n};" for name, n in zip(s.names, own, strict=True))
        line(f"const auto {keep} = [&]({given}) {{ {kept_here} }};")
        lasts = [self.after(n) for n in s.names]
        for n, last in zip(s.names, lasts, strict=True):
            line(f"{last} = {self.start(n)};")
        line(f"weft::in_turn<{self.plan.threads}, {backwards}>({change}, {keep}, {', '.join(lasts)});")

    def replayed(self, s: Scan) -> None:
        """Keep the states before each point, which are those after the points before it."""
        line, tiles = self.writer.line, [self.stem(f"{n}_tile") for n in s.names]
        before, after = ("k + 1", "k") if s.reverse else ("k", "k + 1")
        for n, t, tile in zip(s.names, s.types, tiles, strict=True):
            line(f"{register_type(t)} {tile}[{self.plan.points + 1}];")
            self.names[n] = self.before(n)

        def body() -> None:
            for n, tile in zip(s.names, tiles, strict=True):
                line(f"{tile}[{before}] = {self.names[n]};")
            self.at_point(s.nexts)
            self.advance_states([s])
            for n, tile in zip(s.names, tiles, strict=True):
                line(f"{tile}[{after}] = {self.names[n]};")

        self.steps(body, s.reverse)
        self.names |= {n: f"{tile}[{before}]" for n, tile in zip(s.names, tiles, strict=True)}
        known = {e.name: f"{tile}[{after}]" for e, tile in zip(s.nexts, tiles, strict=True) if isinstance(e, Ref)}
        self.names |= known
        self.leaves |= known.keys()
