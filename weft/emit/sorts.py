"""Joins to elements that the data choose whose order shows, as CUDA C++: points are sorted by their elements, and joined in
order, or the last of each is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from weft.emit.algebras import algebra_type, join
from weft.emit.dependent import Dependence
from weft.emit.expressions import PRODUCT, register_type
from weft.emit.names import Names
from weft.emit.text import Writer
from weft.emit.thread_body import parameters
from weft.emit.values import ValueBody, deciding
from weft.graph.joins import Joins, Ordered
from weft.graph.tile import Axis
from weft.loops.ir import Const, Expr, Function, Let, Ref
from weft.loops.schedule import Nest
from weft.loops.types import INT64
from weft.plan.arguments import Facts
from weft.plan.join import BLOCK, BinsPlan, JoinStep, RowsPlan, SortPlan
from weft.plan.latest import LastPlan

# Points whose values a thread loads before it joins them: as many loads are on their way. Of what neighbours leave, which is
# little, few threads have more.
_TOGETHER, _LEFT_TOGETHER = 8, 16
# Points whose keys a thread makes together.
_KEYS_TOGETHER = 4


@dataclass
class SortBody(ValueBody):
    """A step of what is joined in the order of keys."""

    group: Ordered = None  # type: ignore[assignment]
    plan: SortPlan | BinsPlan | RowsPlan | LastPlan = None  # type: ignore[assignment]

    @classmethod
    def begun(
        cls,
        function: Function,
        nest: Nest,
        facts: Facts,
        writer: Writer,
        joins: Joins,
        group: Ordered,
        plan: SortPlan | BinsPlan | RowsPlan | LastPlan,
    ) -> Self:
        taken = {"outside", "place", "places", "key", "next", "at", "sum", "first", "last", "before", "after", "chunk", "lane"}
        taken |= {"lanes", "point", "count", "join", "start", "v", "value", "old", "held", "element", "digits", "tile"}
        taken |= {"warp", "chunks", "lane_first", "open", "carried", "carried_key", "here", "ends", "same"}
        taken |= {"tile_end", "bins", "own", "keys", "turns", "run", "strand", "strands", "total", "row"}
        varies = deciding(joins.axes, joins.values)
        large = varies | {s.name for s in function.scalars}
        return cls(
            function, nest, facts, writer, Names(frozenset(taken)), {}, {}, varies, large,
            axes=joins.axes, values=joins.values, group=group, plan=plan,
        )  # fmt: skip

    def emit(self, entry: str, step: JoinStep, memory: tuple[str, ...], dependence: Dependence) -> None:
        given = parameters(self.function, self.nest, self.facts, self)
        own = [self.fresh.fresh(name) for name in memory]
        value = register_type(self.function.array(self.group.write.array).dtype)
        types = [value if name.startswith(("sums", "bins")) else "int32_t" for name in memory]
        # what another launch may still be writing is not promised to be alone: it would be read before that is awaited
        alone = "" if dependence.awaits else " __restrict__"
        given += [f"{type_}*{alone} {name}" for type_, name in zip(types, own, strict=True)]
        lines = ",\n    ".join([*given, *(["const int64_t count"] if memory else [])])
        with self.writer.block(f'extern "C" __global__ void __launch_bounds__({self.threads(step)}) {entry}(\n    {lines})'):
            dependence.begin(self.writer)
            mark = self.writer.mark()
            self.step(step, own)
            self.stop_outside(mark)

    def threads(self, step: JoinStep) -> int:
        """The threads of a block."""
        return BLOCK

    def step(self, step: JoinStep, own: list[str]) -> None:
        """What a step does, with the names of its memory."""
        assert not isinstance(self.plan, BinsPlan | RowsPlan)
        shift = 8 * step.number
        match step.kind:
            case "keys":
                self.keys(*own)
            case "count":
                self.writer.line(f"weft::count_digits<{shift}, {self.plan.rounds}>({own[0]}, count, {own[1]});")
            case "place":
                self.writer.line(f"weft::place_digits({own[0]}, count, {own[1]});")
            case "move":
                keys, *others = own
                points = others.pop(0) if step.number else "nullptr"
                counts, *totals, keys_after, points_after = others
                total, few = (totals[0], "false") if totals else ("nullptr", "true")
                found = f"{keys}, {points}, count, {counts}, {total}, {keys_after}, {points_after}"
                self.writer.line(f"weft::move_by_digit<{shift}, {self.plan.rounds}, {few}>({found});")
            case "last":
                *given, last = own
                how = "last_points" if len(given) == 1 else "last_in_order"
                self.writer.line(f"weft::{how}({', '.join(given)}, count, int32_t({self.elements}), {last});")
            case _:
                self.sums(own, step.number)

    @property
    def types(self) -> tuple[str, str]:
        """The C++ types of a value and of the algebra."""
        type_ = register_type(self.function.array(self.group.write.array).dtype)
        return type_, algebra_type(self.group.write.join, type_)

    @property
    def elements(self) -> str:
        """How many keys there are."""
        shape = self.function.array(self.group.write.array).shape
        return " * ".join(self.printer.value(shape[k], PRODUCT) for k in self.group.keys) or "1"

    def spans(self, axes: Sequence[Axis]) -> dict[str, str]:
        """How many points axes have, in 32 bits: all points are fewer than 2^31, or none."""
        found = {}
        for a in axes:
            span = self.span(a, f"{a.name}_span")
            found[a.name] = span if span.isdigit() else self.fresh.fresh(f"{a.name}_count")
            if not span.isdigit():
                self.writer.line(f"const uint32_t {found[a.name]} = {span};")
        return found

    # ---------------------------------------------------------------- keys

    def keys(self, keys: str, other: str) -> None:
        """The key of every point, and one behind all for those that join nothing. other: of keys that are sorted, how many of a
        block have each first digit; else the last point of each key, which is none yet.
        """
        assert not isinstance(self.plan, BinsPlan | RowsPlan)
        w, line = self.group.write, self.writer.line
        first, stop, step = f"int64_t(blockIdx.x) * {BLOCK} + threadIdx.x", "count", f"int64_t(gridDim.x) * {BLOCK}"
        if self.plan.digits:
            line("__shared__ int32_t digits[256];")
            line("weft::begin_digits(digits);")
            line(f"const int64_t tile = int64_t(blockIdx.x) * {BLOCK * self.plan.rounds};")
            first, stop, step = "tile + threadIdx.x", "tile_end", str(BLOCK)
            line(f"const int64_t tile_end = weft::minimum<int64_t>(tile + {BLOCK * self.plan.rounds}, count);")
            line(f"#pragma unroll {_KEYS_TOGETHER}")
        axes = [self.axes[a] for a in self.group.points]
        counts = self.spans(axes)
        with self.writer.block(f"for (int64_t place = {first}; place < {stop}; place += {step})"):
            self.places(axes, "uint32_t(place)", counts)
            exprs = [w.index[k] for k in self.group.keys] + ([w.guard] if w.guard is not None else [])
            self.statements(tuple(map(self.let, self.needed(exprs))))
            self.writer.cite(w.location)
            if w.guard is None:
                line("int32_t key = 0;")
                self.key()
            else:
                line(f"int32_t key = int32_t({self.elements});  // behind all others: nothing is joined")
                with self.writer.block(f"if ({self.printer.value(w.guard)})"):
                    self.key()
            line(f"{keys}[place] = key;")
            if self.plan.digits:
                line("weft::count_digit<0>(digits, key);")
            else:
                line(f"weft::store_relaxed<weft::Scope::gpu>({other} + key, -1);  // as others of the key do")
        if self.plan.digits:
            line(f"weft::leave_digits(digits, {other});")

    def key(self) -> None:
        w, shape = self.group.write, self.function.array(self.group.write.array).shape
        index, checks, text = list(w.index), [], ""
        for k in self.group.keys:
            i: Expr = index[k]
            if self.unproven(w.array, k, i) and not isinstance(i, Ref | Const):
                name = f"{w.array}.{k}"
                self.names[name] = self.fresh.fresh(f"{w.array}_at" if len(index) == 1 else f"{w.array}_at_{k}")
                self.varies |= {name}
                self.statements((Let(name, i),))
                i = index[k] = Ref(name, INT64)
            own = self.printer.value(i)
            text = f"({text}) * {self.printer.value(shape[k], PRODUCT)} + {own}" if text else own
        checks = self.checks(w.array, tuple(index))
        guard = f"if ({' && '.join(checks)}) " if checks else ""
        self.writer.line(f"{guard}key = int32_t({text or '0'});")

    # ---------------------------------------------------------------- sums

    def sums(self, memory: list[str], level: int) -> None:
        """The sums of neighbours in the order of keys, of each lane: those of one thread alone are joined to their element, the
        others left for the next level.
        """
        assert isinstance(self.plan, SortPlan)
        w, line, neighbours = self.group.write, self.writer.line, self.plan.chunks[level]
        together = _LEFT_TOGETHER if level else _TOGETHER
        array = self.function.array(w.array)
        type_ = register_type(array.dtype)
        algebra = algebra_type(w.join, type_)
        keys, sources, *left = memory
        lanes = [self.axes[a] for a in self.plan.lanes]
        line(f"// a thread has {neighbours} neighbours in the order of keys{', of a lane' if lanes else ''}")
        counts = {a.name: self.span(a, f"{a.name}_count") for a in lanes}
        points = [self.axes[a] for a in self.group.points] if level == 0 else []
        counts |= self.spans(points)
        line(f"const int64_t place = int64_t(blockIdx.x) * {BLOCK} + threadIdx.x;")
        chunk = "place"
        if lanes:
            line(f"const int64_t lanes = {' * '.join(counts[a.name] for a in lanes)};")
            line("const int64_t chunk = place / lanes, lane = place % lanes;")
            chunk = "chunk"
        line(f"const int64_t first = {chunk} * {neighbours};")
        line("if (first >= count) return;")
        line(f"const int64_t last = weft::minimum<int64_t>(first + {neighbours}, count);")
        self.places(lanes, "lane", counts)
        line(f"int32_t key = {keys}[first];")
        if left:
            line(f"bool before = first > 0 && {keys}[first - 1] == key;  // the first sum goes on one of the thread before")
            line(f"const bool after = last < count && {keys}[last] == {keys}[last - 1];")
            once = "if (lane == 0) " if lanes else ""
            line(f"{once}{left[0]}[2 * {chunk}] = before ? key : -1;")
            line(f"{once}{left[0]}[2 * {chunk} + 1] = after ? {keys}[last - 1] : -1;")
        with self.writer.block("const auto element = [&](int32_t key)", "};"):
            line(f"return &{self.element(w.array, self.decoded())};")
        line(f"{type_} sum = {algebra}::identity();")
        line(f"{type_} held = {'before || ' if left else ''}uint32_t(key) >= uint32_t({self.elements}) ? 0 : *element(key);")
        joined = join(w.join, array.dtype).format("held", "sum")
        with self.writer.block("const auto join = [&]", "};"):
            line(f"if (uint32_t(key) < uint32_t({self.elements})) *element(key) = {joined};")
        with self.writer.block(f"for (int64_t start = first; start < last; start += {together})"):
            line(f"int32_t next[{together}];")
            line(f"{type_} value[{together}], old[{together}];  // joined; held by elements at which sums begin")
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t v = 0; v < {together}; ++v)"):
                line("const int64_t at = start + v;")
                line(f"next[v] = at < last ? {keys}[at] : -1;")
                line(f"value[v] = {algebra}::identity();")
                line("old[v] = 0;")
                line(f"if (uint32_t(next[v]) >= uint32_t({self.elements})) continue;")
                line("if (next[v] != (v == 0 ? key : next[v - 1])) old[v] = *element(next[v]);")
                if level:
                    line(f"value[v] = {sources}[at * lanes + lane];" if lanes else f"value[v] = {sources}[at];")
                else:
                    self.value(points, sources, counts)
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t v = 0; v < {together}; ++v)"):
                line("if (start + v >= last) break;")
                with self.writer.block("if (next[v] != key)"):
                    if left:
                        line(f"if (before) {self.slot(left[1], chunk, 0)} = sum;")
                        line("else join();")
                        line("before = false;")
                    else:
                        line("join();")
                    line("key = next[v];")
                    line("held = old[v];")
                    line(f"sum = {algebra}::identity();")
                line(f"sum = {algebra}::combine(sum, value[v]);")
        if not left:
            line("join();")
            return
        line(f"if (before) {self.slot(left[1], chunk, 0)} = sum;")
        line("else if (!after) join();")
        line(f"if (after) {self.slot(left[1], chunk, 1)} = before ? {algebra}::identity() : sum;")

    def slot(self, sums: str, chunk: str, which: int) -> str:
        place = f"2 * {chunk} + 1" if which else f"2 * {chunk}"
        return f"{sums}[({place}) * lanes + lane]" if self.group.lanes else f"{sums}[{place}]"

    def value(self, points: list[Axis], sources: str, counts: dict[str, str]) -> None:
        """What a point joins."""
        w = self.group.write
        self.place(points, sources, counts)
        self.statements(tuple(map(self.let, self.needed([w.value]))))
        self.writer.cite(w.location)
        self.writer.line(f"value[v] = {self.printer.value(w.value)};")

    def place(self, points: list[Axis], sources: str, counts: dict[str, str]) -> None:
        """The coordinates of the point that comes next in the order of keys."""
        if len(points) == 1:
            self.places(points, f"{sources}[at]", counts)
        else:
            self.writer.line(f"const uint32_t point = {sources}[at];")
            self.places(points, "point", counts)

    def decoded(self) -> tuple[Expr, ...]:
        """The subscripts of the element of a key and a lane."""
        shape, index = self.function.array(self.group.write.array).shape, list(self.group.write.index)
        rest = "uint32_t(key)"
        for n, k in enumerate(reversed(self.group.keys)):
            extent = f"uint32_t({self.printer.value(shape[k])})"
            index[k] = self.raw(f"int64_t({rest})" if n == len(self.group.keys) - 1 else f"int64_t({rest} % {extent})")
            rest = f"{rest} / {extent}"
        return tuple(index)
