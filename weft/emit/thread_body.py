"""The statements of one thread, and what it is given: the parameters of a kernel, and how many iterations an axis has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.emit.cpp_body import Body
from weft.emit.expressions import PRODUCT, SUM, literal, memory_type, register_type
from weft.loops.accesses import not_below_0
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    free_arrays,
    has_check,
    map_statement,
    rewrite,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.operators import OPERATORS
from weft.loops.schedule import Axis, Nest
from weft.loops.types import BOOL, FLOAT64, INT64, ScalarType
from weft.plan.arguments import Facts, nest_arrays, slots
from weft.plan.asked import Asked, all_of
from weft.plan.threads import BLOCK

# Iterations of an innermost loop that the compiler may overlap: loads of later ones go out before earlier ones end. Of one in
# which nothing is looked at.
_UNROLL, _UNROLL_INSIDE = 4, 8


@dataclass
class ThreadBody(Body):
    """The statements of one thread. asked: the loops that its block asks for all of its elements, by their variables.
    firsts, lasts: of axes, among these elements. there: whether the thread has any of them, and stores; "": it has.
    """

    asked: Mapping[str, Asked] = field(default_factory=dict)
    firsts: dict[str, Expr] = field(default_factory=dict)
    lasts: dict[str, Expr] = field(default_factory=dict)
    there: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = replace(self.printer, fuses=True)

    def store(self, store: Store) -> None:
        if not self.there:
            super().store(store)
            return
        with self.writer.block(f"if ({self.there})"):
            super().store(store)

    def pragma_simd(self, text: str, body: object) -> None:
        """A thread has no lanes of its own."""

    def several(self, axis: Axis, place: str, count: str) -> None:
        """Begin with some iterations of an axis, whose places among `count` are told with their number among these."""

    def loop(self, loop: For) -> None:
        self.writer.cite(loop.location)
        for c in loop.carries:
            init = self.printer.value(c.init)
            self.names[c.result] = self.declare(c.name)
            self.writer.line(f"{register_type(c.type)} {self.names[c.name]} = {init};")
        if loop.var in self.asked or any(isinstance(s, For) for s in walk(loop.body)):
            self.in_order(loop, self.printer.index(loop.start))
            return
        inside, own = self.all_inside(loop)
        start, stop = self.printer.index(loop.start), self.stop(loop)
        if own is None:
            self.writer.line(f"#pragma unroll {_UNROLL}")
            self.in_order(loop, start, stop)
            return
        extents = dict.fromkeys(self.printer.index(self.function.array(a).shape[k], SUM) for a, k, _ in inside)
        known = dict(self.known_inside)
        checks = [] if start.isdigit() else [f"{self.printer.index(loop.start, SUM)} >= 0"]
        checks += [f"{stop} <= {extent}" for extent in extents]
        with self.writer.block(f"if ({' && '.join(checks)})"):
            self.writer.line("// all subscripts are inside: nothing is looked at in the loop")
            self.writer.line(f"#pragma unroll {_UNROLL_INSIDE}")
            self.known_inside |= {key: "true" for key in inside}
            self.in_order(own, start, stop)
            self.known_inside = known
        with self.writer.block("else"):
            self.in_order(loop, start, stop)

    def all_inside(self, loop: For) -> tuple[list[tuple[str, int, Ref]], For | None]:
        """The subscripts of a loop that are its variable, or what that counts from the end where it is below 0, and that are
        looked at; and the loop as it is where bounds tell that the variable is inside. None where there is nothing to gain.
        """
        var = Ref(loop.var, INT64)

        def rewritten(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(map_statement(s, lambda e: not_below_0(e, var), rewritten) for s in statements)

        if loop.step != 1:
            return [], None
        carries = tuple(replace(c, next=not_below_0(c.next, var)) for c in loop.carries)
        own = replace(loop, body=rewritten(loop.body), carries=carries)
        exprs = [e for s in walk(own.body) for e in statement_exprs(s)] + [c.next for c in carries]
        accesses = [(e.array, e.index) for x in exprs if free_arrays(x) for e in walk_expr(x) if isinstance(e, Load)]
        accesses += [(s.array, s.index) for s in walk(own.body) if isinstance(s, Store)]
        found = [(a, k, var) for a, index in accesses for k, i in enumerate(index) if i == var and self.unproven(a, k, i)]
        return found, own if found else None

    def in_order(self, loop: For, start: str, stop: str = "") -> None:
        if loop.var in self.asked:
            return self.asked_together(loop, start, stop or self.stop(loop))
        if not _crashes_nvrtc(loop):
            return super().in_order(loop, start, stop)
        counter = self.fresh.fresh(f"{loop.var}_counter")
        with self.writer.block(self.header(loop, counter, start, stop or self.stop(loop))):
            self.writer.line("// a number that NVRTC does not follow: it crashes where it splits this loop at one")
            self.writer.line(f"const int64_t {self.declare(loop.var)} = weft::opaque({counter});")
            self.local_arrays(loop.var)
            self.statements(loop.body)
            self.advance(loop.carries)

    def asked_together(self, loop: For, start: str, stop: str) -> None:
        """The iterations of a loop that reach any element of the block, in their order: each thread asks one of them."""
        names = (f"{loop.var}_first", f"{loop.var}_asked", "reaches", "reaching", "word", "rest", "k")
        first, asked, reaches, reaching, word, rest, k = map(self.fresh.fresh, names)
        line, block, words = self.writer.line, self.writer.block, BLOCK // 32
        line(f"__shared__ uint32_t {reaching}[{words}];  // which iterations reach any element of the block")
        with block(f"for (int64_t {first} = {start}; {first} < {stop}; {first} += {BLOCK})"):
            line(f"const int64_t {asked} = {first} + threadIdx.x;")
            line(f"bool {reaches} = false;")
            with block(f"if ({asked} < {stop})"):
                self.names[loop.var] = asked
                line(f"{reaches} = {self.printer.value(self.asked[loop.var].reaches(self.firsts, self.lasts))};")
                del self.names[loop.var]
            line(f"const uint32_t {word} = __ballot_sync(0xffffffffu, {reaches});")
            line(f"if (threadIdx.x % 32 == 0) {reaching}[threadIdx.x / 32] = {word};")
            line("__syncthreads();")
            of_word = f"for (uint32_t {rest} = {reaching}[{k}]; {rest} != 0; {rest} &= {rest} - 1)"
            line("#pragma unroll 1")
            with block(f"for (int32_t {k} = 0; {k} < {words}; ++{k})"), block(of_word):
                line(f"const int64_t {self.declare(loop.var)} = {first} + {k} * 32 + __ffs({rest}) - 1;")
                self.statements(self.asked_at_once(loop))
                self.advance(loop.carries)
            line("__syncthreads();  // which reach the block is not needed any more")

    def asked_at_once(self, loop: For) -> tuple[Stmt, ...]:
        """The body of a loop, whose condition is found before: what its parts read is on its way together."""
        condition, found = self.asked[loop.var].condition, self.fresh.fresh("reached")
        known = self.raw(found, BOOL)

        def rewritten(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
            return tuple(map_statement(s, lambda e: rewrite(e, lambda x: known if x == condition else None), rewritten)
                         for s in statements)  # fmt: skip

        body = rewritten(loop.body)
        if body != loop.body:
            self.writer.line(f"const bool {found} = {self.at_once(condition)};")
        return body

    def at_once(self, condition: Expr) -> str:
        """A condition whose parts are all found: what they read is on its way together. Where some may be outside of its array,
        one part after the other.
        """
        parts = [*all_of(condition)]
        loads = [x for x in walk_expr(condition) if isinstance(x, Load)]
        if len(parts) == 1 or has_check(condition) or not loads or any(self.unproven_access(x.array, x.index) for x in loads):
            return self.printer.value(condition)
        return " & ".join(f"({self.printer.value(e)})" for e in parts)

    def _local(self, array: Array) -> None:
        name = self.arrays[array.name] = self.fresh.fresh(array.name)
        sizes = [int(e.value) for e in array.shape if isinstance(e, Const)]
        elements = 1
        for size in sizes:
            elements *= size
        self.writer.cite(array.location)
        shape = "".join(f"[{max(1, s)}]" for s in sizes) or "[1]"
        self.writer.line(f"{memory_type(array.dtype)} {name}{shape};")
        if array.fill is not None:
            value = literal(array.fill.value, array.dtype.opmath, typed=True)
            k = self.fresh.fresh("k")
            first = f"(&{name}{'[0]' * max(1, len(sizes))})[{k}]"
            self.writer.line(f"for (int32_t {k} = 0; {k} < {max(1, elements)}; ++{k}) {first} = {value};")


def parameters(function: Function, nest: Nest, facts: Facts, body: Body) -> list[str]:
    """The parameters of a kernel that takes the slots of its nest, whose names the body knows from then on."""
    touched = {a.name for a in nest_arrays(function, nest)}
    alone = all(a.role != "inout" for a in function.arrays)
    # what a launch before writes is as it is there only from where that is awaited on
    read = {x.array for s in walk(nest.body) for e in statement_exprs(s) for x in walk_expr(e) if isinstance(x, Load)}
    found = []
    for slot in slots(function, nest, facts):
        name = body.fresh.fresh(slot.name)
        if slot.kind == "pointer":
            assert slot.array in touched
            body.arrays[slot.array] = name
            given = function.array(slot.array).role == "input"
            restrict = " __restrict__" if alone and (given or slot.array not in read) else ""
            found.append(f"{'const ' if given else ''}{memory_type(slot.type)}*{restrict} {name}")
        else:
            body.names[slot.name] = name
            found.append(f"const {_parameter_type(function, slot.name, slot.type)} {name}")
    return found


def _parameter_type(function: Function, name: str, type_: ScalarType) -> str:
    # a bool comes as an int64, as every integer slot does
    scalar = next((s for s in function.scalars if s.name == name), None)
    return "int64_t" if scalar is not None and scalar.type == BOOL else register_type(type_)


def count_of(axis: Axis, body: ThreadBody) -> str:
    low, high = (axis.start, axis.stop) if axis.step > 0 else (axis.stop, axis.start)
    span = body.printer.index(high, SUM)
    if low != Const(0, INT64):
        span += f" - {body.printer.index(low, PRODUCT)}"
    size = abs(axis.step)
    if size == 1:
        sizes = {s.name for s in body.function.sizes}
        never_negative = isinstance(high, Const) or (isinstance(high, Ref) and high.name in sizes)
        simple = low == Const(0, INT64) and axis.step > 0 and never_negative
        return span if simple else f"weft::maximum<int64_t>({span}, 0)"
    return f"(weft::maximum<int64_t>({span}, 0) + {size - 1}) / {size}"


def value_of(axis: Axis, position: str, body: ThreadBody) -> str:
    if abs(axis.step) != 1:
        position = f"({position}) * {abs(axis.step)}" if " " in position else f"{position} * {abs(axis.step)}"
    start = body.printer.index(axis.start, SUM)
    if axis.step < 0:
        return f"{start} - {f'({position})' if ' ' in position else position}"
    return position if axis.start == Const(0, INT64) else f"{start} + {position}"


def _crashes_nvrtc(loop: For) -> bool:
    """Whether NVRTC may crash on a loop whose counter it knows: one that carries what a function of doubles, which branches
    inside, makes of it in the iterations that a comparison of integers tells (NVRTC 13.5 does, for sm_80 and sm_90a).
    """
    made = [e for stmt in walk(loop.body) for x in statement_exprs(stmt) for e in walk_expr(x)]
    made += [e for c in loop.carries for e in walk_expr(c.next)]
    operators = [(OPERATORS[e.name], e) for e in made if isinstance(e, Op)]
    compares = any(o.rule == "comparison" and e.args[0].type.category == "int" for o, e in operators)
    calls = any(e.type == FLOAT64 and (o.name == "pow" or (o.rule == "float" and "{" not in o.spelling)) for o, e in operators)
    return bool(loop.carries) and compares and calls
