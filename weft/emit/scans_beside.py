"""Scans whose neighbouring threads have neighbouring rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from weft.emit.algebras import algebra_of
from weft.emit.expressions import SUM, register_type
from weft.emit.scan_body import ScanBody
from weft.emit.values import ZERO
from weft.graph.tile import Map, Read, Scan, Write
from weft.loops.affine import affine
from weft.loops.ir import Const, Expr, free_names
from weft.plan.fold import is_run


@dataclass
class ScansBeside(ScanBody):
    """Neighbouring threads have neighbouring rows; those below each other share them, each a run of points."""

    def rows(self) -> None:
        plan, line = self.plan, self.writer.line
        axes = [self.axes[a] for a in plan.rows]
        counts = {a.name: self.span(a, f"{a.name}_count") for a in axes}
        lane, side, vector = axes[-1], plan.side, plan.vector
        count, wide = counts[lane.name], side * vector
        tiles, place = self.fresh.fresh(f"{lane.name}_tiles"), self.fresh.fresh(f"{lane.name}_first")
        each = f"{vector} of them" if vector > 1 else "one"
        line(f"// {wide} neighbours along {lane.name}, {plan.threads // side} threads for each; a thread has {each},")
        line(f"// and {plan.runs} points of a tile of {plan.tile}")
        line(f"const int64_t {tiles} = ({count} + {wide - 1}) / {wide};")
        x = "threadIdx.x" if side == plan.threads else f"threadIdx.x % {side}"
        place_of = f"int64_t(blockIdx.x % {tiles}) * {wide} + {f'{x} * {vector}' if vector > 1 else x}"
        plain = vector == 1 and lane.start == ZERO
        own = self.declare(lane.name) if plain else place
        line(f"const int64_t {own} = {place_of};")
        line(f"const bool here = {own} < {count};")
        self.first = own if vector > 1 else ""
        if vector == 1 and not plain:  # in vectors rows start at 0
            line(f"const int64_t {self.declare(lane.name)} = {self.printer.index(lane.start, SUM)} + {own};")
        self.places(axes[:-1], f"int64_t(blockIdx.x / {tiles})", counts)
        self.all_rows = " * ".join(counts[a.name] for a in axes)
        self.place, self.lane_count = own, count
        self.row = "{}" if len(axes) == 1 else f"int64_t(blockIdx.x / {tiles}) * {count} + {{}}"
        self.hoist(self.everything(), [a for a in plan.rows if a != lane.name or vector == 1])
        if side < plan.threads:
            by = f" * {plan.runs}" if plan.runs > 1 else ""
            line(f"const int64_t {self.stem(f'{self.axis.name}_own')} = threadIdx.x / {side}{by};")

    def own(self, name: str) -> str:
        return f"{name}[v]" if self.first else name

    def of_row(self, name: str) -> str:
        return self.own(name)

    def declared(self, type_: str, name: str) -> None:
        self.writer.line(f"{type_} {name}{self.dimension()};")

    def dimension(self) -> str:
        return f"[{self.plan.vector}]" if self.first else ""

    def of_each_row(self, type_: str, name: str) -> None:
        self.declared(type_, name)

    def starts(self, type_: str, name: str, init: Expr) -> None:
        self.writer.line(f"{type_} {name}{self.dimension()} = {{}};")
        if init != Const(0, init.type) and init != Const(0.0, init.type):
            with self.each_row():
                self.writer.line(f"if (here) {self.own(name)} = {self.printer.exact(init)};")

    @contextmanager
    def each_row(self) -> Iterator[None]:
        if not self.first:
            yield
            return
        self.writer.line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.plan.vector}; ++v)"):
            name, mark = self.declare(self.plan.lane), self.writer.mark()
            yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, f"const int64_t {name} = {self.first} + v;")

    def value_of_row(self, value: Read | Map) -> None:
        if self.plan.lane not in value.axes:
            super().value_of_row(value)
            return
        let, name = self.let(value), self.stem(value.name)
        self.writer.cite(value.location)
        self.writer.line(f"{register_type(value.type)} {name}{self.dimension() or ''} = {{}};")
        with self.each_row(), self.writer.block("if (here)"):
            self.writer.line(f"{self.own(name)} = {self.printer.value(let.value)};")
        self.names[value.name] = self.own(name)

    def row_stop(self) -> None:
        self.end = self.stem(f"{self.axis.name}_stop")
        start, stop = self.printer.index(self.axis.start), self.printer.index(self.axis.stop)
        self.writer.line(f"const int64_t {self.end} = here ? {stop} : {start};  // what lies beyond has no points")

    # ---------------------------------------------------------------- reads

    def ahead(self, read: Read) -> bool:
        lanes = [f for f in map(affine, read.index) if f is not None and f.coefficient(self.plan.lane)]
        beside = len(lanes) <= 1 and all(f.coefficient(self.plan.lane) == 1 for f in lanes)
        return super().ahead(read) and (not self.first or beside)

    def buffer(self, read: Read) -> tuple[str, str, str]:
        if not self.first or self.plan.lane not in read.axes:
            return "{}", "", "[step]"
        return f"weft::Run<{{}}, {self.plan.vector}>", f"[{self.plan.vector}]", "[step][v]"

    def fetched(self, read: Read, target: str, name: str) -> None:
        conditions = [*self.inside(name), *self.outside(read, range(len(read.index)))]
        if not self.first or self.plan.lane not in read.axes:
            taken = self.element(read.array, read.index)
        else:
            vector = self.plan.vector
            axis = next(k for k, i in enumerate(read.index) if self.plan.lane in free_names(i))
            with self.named(self.plan.lane, self.first):
                at = self.address(read.array, read.index)
            if (read.array, axis) in self.facts.unit:
                plain = is_run(read.array, read.index, self.plan.lane, self.facts)
                taken = f"weft::fetch<{vector}, {self.width(read.array, vector) if plain else 1}>({at})"
            else:
                taken = f"weft::fetch_strided<{vector}>({at}, {self.stride(read.array, axis)})"
        if not read.always:
            self.writer.line(f"{target} = {{}};")
        self.writer.line(f"if ({' && '.join(conditions)}) {target} = {taken};")

    # ---------------------------------------------------------------- points

    def points(self, body: Callable[[], None], begin: Callable[[], None], stored: Sequence[tuple[Write, str]] = ()) -> None:
        with self.writer.block("") if self.scans.levels[1:] else nullcontext():  # states have their names in each pass
            begin()
            self.steps(body, self.each_row, stored)

    def points_of_one(self, body: Callable[[], None], begin: Callable[[], None]) -> None:
        begin()
        self.steps(body, nullcontext)

    def steps(self, body: Callable[[], None], each: Callable[[], Any], stored: Sequence[tuple[Write, str]] = ()) -> None:
        runs, vector, line, name = self.plan.runs, self.plan.vector, self.writer.line, self.declare(self.axis.name)
        order = f"int32_t step = 0; step < {runs}; ++step"
        if self.scans.reverse:
            order = f"int32_t step = {runs - 1}; step >= 0; --step"
        line("#pragma unroll")
        with self.writer.block(f"for ({order})"):
            line(f"const int64_t {name} = {self.point_of(self.begin, 'step')};")
            with self.writer.block(f"if ({' && '.join(self.inside(name))})"):
                for w, tile in stored:
                    line(f"{register_type(w.value.type)} {tile}[{vector}];")
                with each():
                    body()
                with self.named(self.plan.lane, self.first):
                    for w, tile in stored:
                        at = self.address(w.array, w.index)
                        line(f"weft::store<{self.width(w.array, vector)}>({at}, {tile});")

    def in_packets(self, w: Write) -> bool:
        return bool(self.first) and w.guard is None and is_run(w.array, w.index, self.plan.lane, self.facts)

    def begin_states(self, scans: Sequence[Scan]) -> None:
        for s in scans:
            for n, type_ in zip(s.names, s.types, strict=True):
                self.declared(register_type(type_), self.stem(n))
                self.names[n] = self.own(self.stem(n))
                with self.each_row():
                    self.writer.line(f"{self.names[n]} = {self.own(self.before(n))};")

    # ---------------------------------------------------------------- composition

    def scratch(self, scan: Scan) -> None:
        plan = self.plan
        if plan.side < plan.threads:
            name = self.stem(f"{scan.names[0]}_scratch")
            self.writer.line(f"__shared__ {algebra_of(scan)}::Value {name}[2][{plan.threads * plan.vector}];  // in turn")
        if plan.shared:
            self.chain(scan, plan.side, plan.vector)

    def combine(self, s: Scan, own: str) -> None:
        """The threads below each other do so as states are found."""

    def composed(self, s: Scan, own: str) -> None:
        plan, line, algebra, stem = self.plan, self.writer.line, algebra_of(s), s.names[0]
        types = [register_type(t) for t in s.types]
        lasts = [self.names[r] for r in s.results]
        befores = [self.before(n) for n in s.names]
        composed, finite = self.stem(f"{stem}_composed"), self.stem(f"{stem}_finite")
        number = "turn" if plan.shared else "tile"
        scratch = f"{self.stem(f'{stem}_scratch')}[{number} & 1]" if plan.side < plan.threads else "nullptr"
        line(f"weft::Prefix<{algebra}> {composed}{self.dimension()};")
        line(f"weft::scan_down<{algebra}, {plan.side}, {plan.threads}, {self.backwards}>({own}, {composed}, {scratch});")
        tiles = [self.stem(f"{n}_tile") for n in s.names]
        for t, tile, b in zip(types, tiles, befores, strict=True):
            self.declared(t, tile)
            self.declared(t, b)
        if plan.shared:
            self.exchanged(s, composed)
        if self.may_overflow(s):
            line(f"bool {finite} = {self.stem(f'{stem}_whole') if plan.shared else 'true'};")
        with self.each_row():
            own_tiles, own_befores = [self.own(x) for x in tiles], [self.own(b) for b in befores]
            for tile, last in zip(own_tiles, lasts, strict=True):
                line(f"{tile} = {last};  // before the tile")
            if plan.shared:
                others = self.own(self.stem(f"{stem}_others"))
                self.applied(s, f"{others}.before", own_tiles)
                self.replayed_chain(s, f"{others}.all", own_tiles, lasts, ", v" if self.first else "")
            else:
                self.applied(s, f"{self.own(composed)}.all", lasts)
            for b, tile in zip(own_befores, own_tiles, strict=True):
                line(f"{b} = {tile};")
            self.applied(s, f"{self.own(composed)}.before", own_befores)
            if self.may_overflow(s):
                told = " && ".join(f"weft::is_finite({x})" for x in (*lasts, *own_befores))
                settled = self.settled(s, f"({told})" if len(lasts) + len(own_befores) > 1 else told, own_tiles)
                line(f"{finite} = {finite} && ({settled});")
        if not self.may_overflow(s) or (plan.side == plan.threads and not plan.shared):
            return
        line("// what overflows when points are composed is computed in their order")
        with self.writer.block(f"if (!weft::all_of_team<{plan.threads}>({finite}))"):
            call = f"weft::down_in_turn<{plan.side}, {plan.threads}, {self.backwards}>"
            with self.each_row():
                for last, tile in zip(lasts, own_tiles, strict=True) if not plan.shared else ():
                    line(f"{last} = {tile};")
                with self.turns_of_blocks(s, own_tiles, lasts, ", v" if self.first else ""):
                    self.changed_in_order(s, own_tiles if plan.shared else lasts, call, "", "[v]" if self.first else "")

    def exchanged(self, s: Scan, composed: str) -> None:
        stem, algebra, line = s.names[0], algebra_of(s), self.writer.line
        others, whole, totals = (self.stem(f"{stem}_{what}") for what in ("others", "whole", "totals"))
        chain, parts = self.stem(f"{stem}_chain"), self.stem(f"{stem}_parts")
        line(f"bool {whole} = true;  // what all blocks tell can be composed")
        if self.may_overflow(s):
            self.of_each_row(register_type(s.types[0]), self.stem(f"{stem}_turn"))
        if not self.first:
            line(f"{chain}.tells_of({composed}.all, turn + 1);")
            line(f"const auto {others} = {chain}.hear(turn + 1, {parts}, {whole});")
            return
        line(f"{algebra}::Value {totals}[{self.plan.vector}];")
        with self.each_row():
            line(f"{totals}[v] = {composed}[v].all;")
        line(f"weft::Prefix<{algebra}> {others}[{self.plan.vector}];")
        line(f"{chain}.tells_of({totals}, turn + 1);")
        line(f"{chain}.hear({others}, turn + 1, {parts}, {whole});")

    # ---------------------------------------------------------------- ends

    def one_of_row(self) -> list[str]:
        return ["here"] + ([f"threadIdx.x < {self.plan.side}"] if self.plan.side < self.plan.threads else [])

    def fold_places(self) -> int:
        return self.plan.side * (self.plan.threads // max(32, self.plan.side))

    def reduced(self, algebra: str, own: str, scratch: str) -> str:
        return f"weft::reduce_down<{algebra}, {self.plan.side}, {self.plan.threads}>({own}, {scratch})"
