"""A nest as C++17 with OpenMP: one translation unit, one function.

The axes of a nest are parallel: threads share the outer ones. How one thread works through its part depends on what the
body carries and on where memory is consecutive:

- no loop in the body: the axis along consecutive memory is innermost and vectorised;
- a loop with carries, an axis along consecutive memory (time-major): the lanes of that axis run side by side under the
  loop, their carries in a small array;
- a loop with carries that must run in order, along consecutive memory: several rows run side by side, their elements
  transposed by tiles;
- otherwise one iteration of the axes at a time; scans and reductions of a known algebra are vectorised along the loop.
"""

from __future__ import annotations

from dataclasses import replace

from weft.emit.cpp_body import ORDERED, Body, Lanes, scan_levels
from weft.emit.expressions import PRODUCT, SUM, TERNARY, is_rarely_wrong, literal, memory_type, register_type
from weft.emit.lanes import loads, needed, passed_on, pieces, runs_in_lanes, stores, tiles
from weft.emit.names import Names, host_entry
from weft.emit.subscripts import affine, at, coefficient, constant, simplify
from weft.emit.text import Writer
from weft.loops.affine import is_bound
from weft.loops.ir import (
    Array,
    Check,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Stmt,
    bound_names,
    free_names,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.operators import COSTLY
from weft.loops.schedule import Axis, Nest
from weft.loops.types import FLOAT64, INT64, ScalarType
from weft.plan.arguments import Facts, Slot, nest_arrays, slots, stride_name

PARALLEL_WORK = 32768  # iterations below which threads cost more than they bring
VECTOR_BLOCK = 4096  # elements of a vectorised axis that one thread takes at a time
PREFETCHED_BLOCK = 1024  # the same, where they are asked for beforehand: they stay in the nearest cache
LEAST_LANES, MOST_LANES = 256, 4096  # lanes consecutive in memory, as many as keep what they carry in a near cache
INSTRUCTIONS = 16  # of a costly operator, about; from as many on a body is long
ROWS = 8  # rows side by side where tiles transpose them
LINE = 64  # bytes that memory moves together

# Names the unit uses itself.
_OWN = frozenset({"slots", "threads", "outside", "fault", "block", "lanes", "most"})


def emit(function: Function, nest: Nest, facts: Facts) -> str:
    """The C++ translation unit of one nest.

    It defines `extern "C" int64_t ENTRY(const weft_slot* slots, int threads)`, ENTRY as `host_entry` says, the slots
    as `weft.plan.arguments.slots(function, nest, facts)` does. The function gives 0, or, where a subscript that depends on
    data leaves its array, the position of that array in `function.arrays`, counted from 1; nothing outside an array is
    read or written even then.
    """
    return _Unit(function, nest, facts).text()


class _Unit:
    def __init__(self, function: Function, nest: Nest, facts: Facts) -> None:
        self.function, self.facts = function, facts
        self.nest = Nest(nest.name, nest.axes, without_unused(function, nest), nest.verdicts)
        self.touched = nest_arrays(function, self.nest)
        self.slots = slots(function, nest, facts)
        self.fresh = Names(_OWN | {host_entry(nest.name)})
        varies = varying(self.nest, set())
        large = varying(self.nest, {s.name for s in function.scalars})
        self.body = Body(function, self.nest, facts, Writer(), self.fresh, {}, {}, varies, large)
        for slot in self.slots:
            name = self.fresh.fresh(slot.name)
            if slot.kind == "pointer":
                self.body.arrays[slot.array] = name
            else:
                self.body.names[slot.name] = name
        self.checked = self.body.checked(self.nest.body)

    # ------------------------------------------------------------ the unit

    def text(self) -> str:
        rows = self._rows_axis()
        channel = None if rows is not None else self._channel_axis()
        turned = None if rows is not None or channel is not None else self._turned_axes()
        straight = rows is None and channel is None and turned is None and self._straight()
        helper = Writer()
        main = Writer()
        self.body.writer = main
        width = "WEFT_WIDEST " if straight else ""
        with main.block(f'extern "C" {width}int64_t {host_entry(self.nest.name)}(const weft_slot* slots, int threads)'):
            self._unpack()
            if self.checked:
                main.line("uint64_t outside = 0;")
            main.line()
            if rows is not None:
                self._tiled_rows(rows, helper, ROWS)
            elif channel is not None:
                self._channels(channel)
            elif turned is not None:
                inner, across = turned
                self._tiled_rows(inner, helper, self._line(), across)
            elif straight:
                self._elementwise()
            else:
                self._plain()
            main.line(f"return {'int64_t(outside)' if self.checked else '0'};")
        head = Writer()
        head.line('#include "weft/host.hpp"')
        head.line()
        for algebra, type_ in sorted(self.body.reductions, key=str):
            self._declare_reduction(head, algebra, type_)
        code = helper.text() + "\n" if helper.text().strip() else ""
        return head.text() + code + main.text()

    def _unpack(self) -> None:
        writer, used = self.body.writer, self._used()
        for position, slot in enumerate(self.slots):
            if slot.kind == "pointer":
                if slot.array not in {a.name for a in self.touched}:
                    continue
                kind = self._pointer(self.function.array(slot.array))
                name = self.body.arrays[slot.array]
                cast = kind.replace(" __restrict__", "").strip()
                writer.line(f"{kind} {name} = static_cast<{cast}>(slots[{position}].pointer);")
            elif slot.name in used:
                name, kind = self.body.names[slot.name], self._value_type(slot)
                field = "number" if slot.type == FLOAT64 else "integer"
                writer.line(f"const {kind} {name} = slots[{position}].{field}{' != 0' if kind == 'bool' else ''};")

    def _value_type(self, slot: Slot) -> str:
        scalar = next((s for s in self.function.scalars if s.name == slot.name), None)
        return register_type(slot.type if scalar is None else scalar.type)

    def _pointer(self, array: Array) -> str:
        """No two arrays share an element that is written: the call has seen to it."""
        return f"{'const ' if array.role == 'input' else ''}{memory_type(array.dtype)}* __restrict__"

    def _used(self) -> set[str]:
        """Names of slots that the code spells: strides, and the sizes and scalars in expressions or checked extents."""
        used = {
            stride_name(a.name, axis)
            for a in self.touched
            for axis in range(len(a.shape))
            if (a.name, axis) not in self.facts.unit and self._subscripted(a.name, axis)
        }
        exprs = [e for axis in self.nest.axes for e in (axis.start, axis.stop)]
        for stmt in walk(self.nest.body):
            exprs += statement_exprs(stmt)
        exprs += [e for a in self.touched if self.body.unproven_array(a.name) for e in a.shape]
        return used.union(*(free_names(e) for e in exprs))

    def _subscripted(self, array: str, axis: int) -> bool:
        """Whether any access has another subscript than 0 there."""
        indices = [e.index for e in loads(self.nest.body) if e.array == array]
        indices += [s.index for s in stores(self.nest.body) if s.array == array]
        return any(simplify(i[axis]) != constant(0) for i in indices)

    def _declare_reduction(self, writer: Writer, algebra: str, type_: ScalarType) -> None:
        function = ORDERED[algebra]
        writer.pragma(
            f"omp declare reduction({function} : {register_type(type_)} : omp_out = weft::{function}(omp_out, omp_in))"
            f" initializer(omp_priv = {neutral(algebra, type_)})"
        )
        writer.line()

    # ------------------------------------------------------------ the axes

    def _threads(self, collapse: int, axes: tuple[Axis, ...]) -> None:
        clauses = f" collapse({collapse})" if collapse > 1 else ""
        clauses += " num_threads(threads) schedule(static)"
        clauses += " reduction(max : outside)" if self.checked else ""
        work = self._work(axes, self.nest.body)
        clauses += f" if ({work} > {PARALLEL_WORK})" if work else ""
        self.body.writer.pragma(f"omp parallel for{clauses}")

    def _work(self, axes: tuple[Axis, ...], statements: tuple[Stmt, ...]) -> str:
        """The number of innermost iterations of statements inside these axes, as far as the sizes tell it."""
        factors = [(a.start, a.stop, a.step) for a in axes]
        while loops := [s for s in statements if isinstance(s, For)]:
            known = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
            shown = [s for s in loops if all(affine(simplify(e), known) for e in (s.start, s.stop))]
            if not shown:
                break
            deepest = max(shown, key=lambda s: sum(isinstance(t, For) for t in walk((s,))))
            factors.append((deepest.start, deepest.stop, deepest.step))
            statements = deepest.body
        texts = [t for f in factors if (t := self._trips(*f)) != "1"]
        return " * ".join(texts)

    def _trips(self, start: Expr, stop: Expr, step: int) -> str:
        """The number of iterations, or about it where the step is larger."""
        low, high = (start, stop) if step > 0 else (stop, start)
        return self.body.printer.index(Op("sub", (high, low), INT64), PRODUCT)

    def _axis_header(self, axis: Axis) -> str:
        printer = self.body.printer
        loop = For(axis.var, axis.start, axis.stop, axis.step, (), ())
        return self.body.header(loop, self.body.declare(axis.var), printer.index(axis.start), printer.index(axis.stop, SUM))

    def _straight(self) -> bool:
        return bool(self.nest.axes) and not any(isinstance(s, For) for s in self.nest.body)

    def _elementwise(self) -> None:
        """Outer axes and blocks of the inner one to the threads, the inner one vectorised."""
        body, writer = self.body, self.body.writer
        inner = self._consecutive(self.nest.axes) or self.nest.axes[-1]
        outer = [a for a in self.nest.axes if a is not inner]
        first, last = (self.fresh.fresh(f"{inner.var}_{part}") for part in ("0", "end"))
        start, stop = body.printer.index(inner.start), body.printer.index(inner.stop, SUM)
        ahead = self._read_ahead(inner) if self._fills_window() else []
        block = (PREFETCHED_BLOCK if ahead else VECTOR_BLOCK) * abs(inner.step)
        forward = inner.step > 0
        compare, sign, least = ("<", "+", "min") if forward else (">", "-", "max")
        self._threads(len(outer) + 1, self.nest.axes)
        with writer.blocks([self._axis_header(a) for a in outer]):
            header = f"for (int64_t {first} = {start}; {first} {compare} {stop}; {first} {sign}= {block})"
            with writer.block(header):
                writer.line(f"const int64_t {last} = std::{least}<int64_t>({first} {sign} {block}, {stop});")
                body.hoist(self.nest.body, [a.var for a in outer])
                for a in outer:
                    body.local_arrays(a.var, inner.var)
                for array, index in ahead:
                    place = body.element(array, tuple(at(i, inner.var, body.raw(first)) for i in index))
                    writer.line(f"weft::prefetch<1>(&{place}, int({last} - {first}));")
                statements = body.declare_steady(self.nest.body, inner.var)
                if not self._may_do_again():
                    self._in_vectors(inner, first, last, statements)
                    return
                rare = self.fresh.fresh("rare")
                writer.line(f"int {rare} = 0;")
                exact, body.printer = body.printer, replace(body.printer, rare=rare)
                self._in_vectors(inner, first, last, statements, f" reduction(| : {rare})")
                body.printer = exact
                with writer.block(f"if ({rare})"):
                    self._in_vectors(inner, first, last, statements)

    def _in_vectors(self, inner: Axis, first: str, last: str, statements: tuple[Stmt, ...], clauses: str = "") -> None:
        body = self.body
        body.pragma_simd(f"omp simd{clauses}", statements)
        loop = For(inner.var, inner.start, inner.stop, inner.step, (), ())
        with body.writer.block(body.header(loop, body.declare(inner.var), first, last)), body.vectorised():
            body.local_arrays(inner.var, inner.var)
            body.statements(statements)

    def _may_do_again(self) -> bool:
        """Whether the loop may run with functions that are rarely wrong, and again with others where one was: it has such, and
        reads nothing that it writes.
        """
        exprs = [e for s in walk(self.nest.body) for x in statement_exprs(s) for e in walk_expr(x)]
        read = {e.array for e in exprs if isinstance(e, Load)}
        written = {s.array for s in stores(self.nest.body)}
        return any(map(is_rarely_wrong, exprs)) and not read & written and not self.checked

    def _fills_window(self) -> bool:
        """Whether one vector of the body is so many instructions that those that a CPU has under way at a time do not reach far
        enough ahead in memory: it must be asked for what comes. The hardware does so too, but begins anew on every page that is
        written for the first time.
        """
        ops = [e for s in walk(self.nest.body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Op)]
        return sum(INSTRUCTIONS if e.name in COSTLY else 1 for e in ops) >= INSTRUCTIONS

    def _read_ahead(self, inner: Axis) -> list[tuple[str, tuple[Expr, ...]]]:
        """What is read along consecutive memory; of accesses a constant apart the first."""
        if inner.step != 1:
            return []
        known = self._uniform([*self.nest.axes])
        found: dict[tuple[str, tuple[Expr, ...]], tuple[str, tuple[Expr, ...]]] = {}
        for load in loads(self.nest.body):
            index = tuple(map(simplify, load.index))
            forward = all(affine(i, known) and coefficient(i, inner.var) in (0, 1) for i in index)
            if forward and self._moves_by_one(load.array, index, inner.var) and not self.function.array(load.array).within:
                found.setdefault((load.array, tuple(map(_unshifted, index))), (load.array, index))
        return list(found.values())

    def _plain(self) -> None:
        """All axes to the threads; the body in order. Without axes the iterations of its reductions are shared out."""
        body, writer = self.body, self.body.writer
        if not self.nest.axes and any(map(self._shared_out, self.nest.body)):
            for stmt in self.nest.body:
                if isinstance(stmt, For) and self._shared_out(stmt):
                    self._in_parts(stmt)
                else:
                    body.statements((stmt,))
            return
        if self.nest.axes:
            self._threads(len(self.nest.axes), self.nest.axes)
        with writer.blocks([self._axis_header(a) for a in self.nest.axes]):
            variables = [a.var for a in self.nest.axes]
            body.hoist(self.nest.body, variables)
            for var in variables:
                body.local_arrays(var)
            body.statements(self.nest.body)

    # ------------------------------------------------------------ reductions of everything

    def _shared_out(self, stmt: Stmt) -> bool:
        """Whether threads may each reduce a part of the iterations: what they find is combined in the order of the parts."""
        verdict = dict(self.nest.verdicts).get(stmt.var) if isinstance(stmt, For) else None
        if verdict is None or not isinstance(stmt, For) or not stmt.carries or self.body.stops(stmt):
            return False
        updated = {n for u in verdict.updates for n in u.names}
        return updated == {c.name for c in stmt.carries} and self.body.free_of_order(verdict, stmt)

    def _in_parts(self, loop: For) -> None:
        body, writer = self.body, self.body.writer
        algebras = {n: u.algebra for u in dict(self.nest.verdicts)[loop.var].updates for n in u.names}
        part, parts, count = (self.fresh.fresh(n) for n in ("part", "parts", "count"))
        ends = tuple(self.fresh.fresh(f"{loop.var}_{end}") for end in ("from", "to"))
        start = body.printer.index(loop.start, SUM)
        trips = self._trips(loop.start, loop.stop, loop.step)
        step = abs(loop.step)
        writer.cite(loop.location)
        writer.line(f"const int64_t {count} = {trips if step == 1 else f'({trips} + {step - 1}) / {step}'};")
        work = " * ".join(filter(None, (count, self._work((), loop.body))))
        writer.line(f"const int {parts} = {work} > {PARALLEL_WORK} ? std::clamp(threads, 1, weft::most_parts) : 1;")
        for c in loop.carries:
            body.declare(c.name)
            writer.line(f"{register_type(c.type)} {body.names[c.name]}_of[weft::most_parts];")
        outside = " reduction(max : outside)" if body.checked(loop.body) else ""
        writer.pragma(f"omp parallel for num_threads({parts}) schedule(static){outside} if ({parts} > 1)")
        with writer.block(f"for (int {part} = 0; {part} < {parts}; ++{part})"):
            for end, at in zip(ends, (part, f"({part} + 1)"), strict=True):
                passed = f"{count} * {at} / {parts}"
                sign = "+" if loop.step > 0 else "-"
                move = passed if step == 1 else f"{step} * ({passed})"
                writer.line(f"const int64_t {end} = {move if start == '0' and sign == '+' else f'{start} {sign} {move}'};")
            carries = []
            for c in loop.carries:
                first, other = body.printer.value(c.init, TERNARY + 1), neutral(algebras[c.name], c.type)
                carries.append(replace(c, init=body.raw(f"{part} == 0 ? {first} : {other}", c.type)))
            body.loop(replace(loop, start=body.raw(ends[0]), stop=body.raw(ends[1]), carries=tuple(carries)))
            for c in loop.carries:
                writer.line(f"{body.names[c.name]}_of[{part}] = {body.names[c.name]};")
        for c in loop.carries:
            name = body.names[c.name]
            writer.line(f"{register_type(c.type)} {name} = {name}_of[0];")
        with writer.block(f"for (int {part} = 1; {part} < {parts}; ++{part})"):
            for c in loop.carries:
                name = body.names[c.name]
                both = body.raw(name, c.type), body.raw(f"{name}_of[{part}]", c.type)
                body.large |= {e.name for e in both}
                writer.line(f"{name} = {body.combined(algebras[c.name], *both)};")

    # ------------------------------------------------------------ axes along consecutive memory

    def _consecutive(self, axes: tuple[Axis, ...]) -> Axis | None:
        """The axis along which most accesses are consecutive, None where none is."""
        scores = [(self._unit_accesses(a.var), position) for position, a in enumerate(axes)]
        best, position = max(scores, default=(0, 0))
        return axes[position] if best else None

    def _unit_accesses(self, var: str, statements: tuple[Stmt, ...] | None = None) -> int:
        """How many accesses, of all or of some statements, move by one element with a variable."""
        body = self.nest.body if statements is None else statements
        accesses = [(e.array, e.index) for e in loads(body)]
        accesses += [(s.array, s.index) for s in stores(body)]
        return sum(self._moves_by_one(array, index, var) for array, index in accesses)

    def _moves_by_one(self, array: str, index: tuple[Expr, ...], var: str) -> bool:
        return all(
            coefficient(i, var) in ((1, -1) if (array, axis) in self.facts.unit else (0,))
            for axis, i in enumerate(index)
            if var in free_names(i)
        ) and any(var in free_names(i) for i in index)

    def _carried(self) -> list[For]:
        return [s for s in self.nest.loops() if s.carries]

    def _channel_axis(self) -> Axis | None:
        """The axis whose lanes run side by side under the loops: consecutive for more accesses than any loop is."""
        if not self.nest.loops():
            return None
        axis = self._consecutive(self.nest.axes)
        if axis is None or axis.step != 1 or not runs_in_lanes(self.function, self.nest.body, {axis.var}):
            return None
        along_loops = max(self._unit_accesses(s.var) for s in self.nest.loops())
        loops: tuple[Stmt, ...] = tuple(s for s in self.nest.body if isinstance(s, For))
        if loops and not self._unit_accesses(axis.var, loops):
            return None  # only what is accessed once a row
        return axis if self._unit_accesses(axis.var) > along_loops else None

    def _channels(self, axis: Axis) -> None:
        body, writer = self.body, self.body.writer
        outer = [a for a in self.nest.axes if a is not axis]
        first, index = self.fresh.fresh(f"{axis.var}_0"), self.fresh.fresh("w")
        start, stop = body.printer.index(axis.start), body.printer.index(axis.stop, SUM)
        lanes = self._trips(axis.start, axis.stop, 1)
        groups = " * ".join(self._trips(a.start, a.stop, a.step) for a in outer) or "1"
        body_pieces = pieces(self.nest.body)
        held = len(passed_on(body_pieces)) + sum(len(s.carries) for s in self.nest.loops())
        writer.line(f"constexpr int most = {max(LEAST_LANES, MOST_LANES >> (held - 1).bit_length())};")
        writer.line(f"const int64_t block = weft::lane_block({lanes}, {groups}, most, threads);")
        self._threads(len(outer) + 1, self.nest.axes)
        with writer.blocks([self._axis_header(a) for a in outer]):
            header = f"for (int64_t {first} = {start}; {first} < {stop}; {first} += block)"
            with writer.block(header):
                left = body.printer.index(Op("sub", (axis.stop, body.raw(first)), INT64))
                writer.line(f"const int lanes = int(std::min<int64_t>(block, {left}));")
                body.lanes = Lanes(axis.var, first, index, "lanes", "most", False, f"block < {lanes}")
                body.hoist(self.nest.body, [a.var for a in outer])
                body.in_lanes(body_pieces, self._uniform(outer))

    # ------------------------------------------------------------ rows by tiles

    def _turned_axes(self) -> tuple[Axis, Axis] | None:
        """Of a body without loops, the axis along which most of memory is consecutive, and another along which some is."""
        if not self._straight() or not runs_in_lanes(self.function, self.nest.body, {a.var for a in self.nest.axes}):
            return None
        inner = self._consecutive(self.nest.axes)
        if inner is None or inner.step != 1:
            return None
        others = [a for a in self.nest.axes if a is not inner and a.step == 1]
        return next(((inner, a) for a in others if self._turned(inner, a)), None)

    def _turned(self, inner: Axis, across: Axis) -> bool:
        """Whether tiles of rows along `inner` serve accesses that are consecutive along `across`."""
        outer = [a for a in self.nest.axes if a is not inner and a is not across]
        found = tiles(_loop(across, across.start, across.stop, self.nest.body), inner.var, self._uniform(outer), self.facts)
        return bool(found.loads or found.stores)

    def _line(self) -> int:
        """How many elements of the widest type that is touched fill what memory moves together."""
        return LINE // max(a.dtype.opmath.size for a in self.touched)

    def _rows_axis(self) -> Axis | None:
        """The axis of the rows that run side by side, where a loop must run in order along consecutive memory."""
        carried = self._carried()
        if not carried or not self.nest.axes or self._channel_axis() is not None:
            return None
        axis = self.nest.axes[-1]
        if axis.step != 1 or not runs_in_lanes(self.function, self.nest.body, {axis.var}):
            return None
        uniform = self._uniform([a for a in self.nest.axes if a is not axis]) | {s.var for s in self.nest.loops()}
        chained = [s for s in carried if not self._vectorised_along(s)]
        return axis if any(tiles(s, axis.var, uniform - {s.var}, self.facts).loads for s in chained) else None

    def _vectorised_along(self, loop: For) -> bool:
        verdict = dict(self.nest.verdicts).get(loop.var)
        if verdict is None or verdict.kind not in ("reduction", "scan"):
            return False
        updates = {u.name: u for u in verdict.updates}
        if any(c.name not in updates for c in loop.carries) or any(isinstance(s, For) for s in walk(loop.body)):
            return False
        if self.body.free_of_order(verdict, loop):
            return True
        return bool(scan_levels(loop, updates)) and not self.body.checked(loop.body)

    def _uniform(self, outer: list[Axis]) -> set[str]:
        sizes = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars if s.type == INT64}
        return sizes | {a.var for a in outer}

    def _tiled_rows(self, axis: Axis, helper: Writer, most: int, across: Axis | None = None) -> None:
        """The body becomes a function template of the number of rows: `most` at a time, the rest one at a time.

        across: an axis that is a loop in the function, over as many iterations as a tile has.
        """
        body, main = self.body, self.body.writer
        outer = [a for a in self.nest.axes if a is not axis and a is not across]
        statements = self.nest.body
        name = self.fresh.fresh(f"{self.nest.name}_rows")
        first = self.fresh.fresh(f"{axis.var}_0")
        declared = {body.arrays[a.name]: f"{self._pointer(a)} " for a in self.touched}
        for slot in self.slots:
            if slot.kind != "pointer":
                declared[body.names[slot.name]] = self._value_type(slot) + " "
        declared |= {body.declare(a.var): "int64_t " for a in outer} | {first: "int64_t "}
        ends: tuple[str, ...] = ()
        if across is not None:
            ends = tuple(self.fresh.fresh(f"{across.var}_{part}") for part in ("from", "to"))
            declared |= dict.fromkeys(ends, "int64_t ")
            statements = (_loop(across, body.raw(ends[0]), body.raw(ends[1]), self.nest.body),)

        body.writer = inside = Writer(depth=1)
        if self.checked:
            inside.line("uint64_t outside = 0;")
        body.lanes = Lanes(axis.var, first, self.fresh.fresh("w"), "lanes", "lanes", tiled=True)
        body.hoist(statements, [a.var for a in outer])
        body.in_lanes(pieces(statements), self._uniform(outer))
        if self.checked:
            inside.line("return outside;")
        arguments = [n for n in declared if n != first and inside.mentions(n, 0)]
        helper.line(f"// `lanes` rows side by side, from {first} on")
        helper.line("template <int lanes>")
        parameters = [declared[n] + n for n in (*arguments, first)]
        helper.wrapped(f"static {'uint64_t' if self.checked else 'void'} {name}(", parameters, ") {")
        helper.append(inside)
        helper.line("}")

        body.writer, body.lanes, body.passed = main, None, frozenset()
        row = body.declare(axis.var)
        stop = body.printer.index(axis.stop, SUM)
        rows = self._trips(axis.start, axis.stop, 1)
        headers = [self._axis_header(a) for a in outer]
        if across is None:
            count = " * ".join([*(self._trips(a.start, a.stop, a.step) for a in outer), rows])
            main.line(f"const int64_t block = {count} >= {most} * threads ? {most} : 1;")
        else:
            main.line(f"constexpr int block = {most};")
            start, end = body.printer.index(across.start), body.printer.index(across.stop, SUM)
            headers.append(f"for (int64_t {ends[0]} = {start}; {ends[0]} < {end}; {ends[0]} += weft::tile_steps)")
        self._threads(len(headers) + 1, self.nest.axes)

        def call(lanes: int, at: str) -> str:
            text = f"{name}<{lanes}>({', '.join([*arguments, at])})"
            return f"outside = std::max(outside, {text});" if self.checked else f"{text};"

        with main.blocks(headers):
            header = f"for (int64_t {first} = {body.printer.index(axis.start)}; {first} < {stop}; {first} += block)"
            with main.block(header):
                if across is not None:
                    main.line(f"const int64_t {ends[1]} = std::min<int64_t>({ends[0]} + weft::tile_steps, {end});")
                whole = f"{first} + {most} <= {stop}"
                with main.block(f"if ({whole if across is not None else f'block == {most} && {whole}'})", ""):
                    main.line(call(most, first))
                with main.block("} else"):
                    last = f"std::min<int64_t>({first} + block, {stop})"
                    with main.block(f"for (int64_t {row} = {first}; {row} < {last}; ++{row})"):
                        main.line(call(1, row))


def _unshifted(index: Expr) -> Expr:
    """A subscript without the constant that is added."""
    match index:
        case Op(name="add" | "sub", args=(place, Const())):
            return place
    return index


def neutral(algebra: str, type_: ScalarType) -> str:
    """The value that changes no other in a reduction that may run in any order."""
    bits = 8 * type_.size - (1 if type_.signed else 0)
    lowest = -(1 << bits) if type_.signed else 0
    floating = type_.category == "float"
    match algebra:
        case "sum":
            return literal(-0.0 if floating else 0, type_, typed=True)
        case "product":
            return literal(1.0 if floating else 1, type_, typed=True)
        case "and" | "or":
            return literal(algebra == "and", type_)
        case "bitor" | "bitxor":
            return literal(0, type_, typed=True)
        case "bitand":
            return literal(-1 if type_.signed else (1 << bits) - 1, type_, typed=True)
        case "fmax" | "fmin" if floating:
            return literal(float("nan"), type_)
    if floating:
        return literal(float("-inf") if "max" in algebra else float("inf"), type_)
    return literal(lowest if "max" in algebra else (1 << bits) - 1, type_, typed=True)


def _loop(axis: Axis, start: Expr, stop: Expr, body: tuple[Stmt, ...]) -> For:
    """An axis as a loop, from one place to another."""
    return For(axis.var, start, stop, axis.step, (), body)


def varying(nest: Nest, seeds: set[str]) -> frozenset[str]:
    """`seeds`, and names whose value depends on them or on data, or is not a sum of loop variables and sizes."""
    found = set(seeds)
    for stmt in walk(nest.body):
        if isinstance(stmt, Let):
            known = free_names(stmt.value) - found
            if stmt.value.type != INT64 or not affine(simplify(stmt.value), known):
                found.add(stmt.name)
        elif isinstance(stmt, For):
            if not all(is_bound(e, free_names(e) - found) for e in (stmt.start, stmt.stop)):
                found.add(stmt.var)
            found |= {c.name for c in stmt.carries} | {c.result for c in stmt.carries}
        else:
            found |= set(bound_names(stmt))
    return frozenset(found)


def without_unused(function: Function, nest: Nest) -> tuple[Stmt, ...]:
    """The body without names that nothing reads, unless finding their value may leave an array or fail."""
    varies = varying(nest, set())
    risky = {
        stmt.name
        for stmt in walk(nest.body)
        if isinstance(stmt, Let)
        for e in walk_expr(stmt.value)
        if isinstance(e, Check)
        or (
            isinstance(e, Load)
            and (e.array in function.checked or any(not affine(simplify(i), free_names(i) - varies) for i in e.index))
        )
    }
    return needed(nest.body, (), risky)
