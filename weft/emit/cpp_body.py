"""Statements of a nest as C++ for the CPU: loops with OpenMP's `simd`, scans by blocks, and the same body in lanes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.emit.expressions import PRODUCT, SUM, TERNARY, Printer, Text, literal, memory_type, register_type
from weft.emit.lanes import (
    Advance,
    Begin,
    Item,
    Nested,
    Piece,
    Straight,
    Tiles,
    arrays_of,
    item_exprs,
    loads,
    needed,
    own_elements_only,
    passed_on,
    steady,
    stores,
    straights,
    tiles,
)
from weft.emit.names import Names
from weft.emit.subscripts import add, affine, coefficient, constant, simplify, sub
from weft.emit.text import Writer
from weft.loops.accesses import counted_from_end
from weft.loops.affine import is_bound
from weft.loops.algebra.evaluation import decided_by_state
from weft.loops.algebra.stops import stops, while_running
from weft.loops.algebra.table import overflows
from weft.loops.ir import (
    Array,
    Carry,
    Check,
    Const,
    Expr,
    Fault,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    bound_names,
    certain_in,
    checks_in,
    free_arrays,
    free_names,
    statement_exprs,
    substitute,
    unchecked,
    walk,
    walk_expr,
)
from weft.loops.schedule import Nest, Update, Verdict
from weft.loops.types import BFLOAT16, BOOL, FLOAT16, INT64, ScalarType
from weft.plan.arguments import Facts, faults_of, stride_name

_LONG = 100  # operations of an integer above which it is not written out
STACK_LIMIT = 64 * 1024  # bytes of a local array above which it is kept off the stack

# How OpenMP names the reductions that it knows; the others are declared where they are used.
_OPENMP = {"sum": "+", "product": "*", "and": "&&", "or": "||", "bitand": "&", "bitor": "|", "bitxor": "^"}
ORDERED = {
    "max": "python_max",
    "min": "python_min",
    "maximum": "maximum",
    "minimum": "minimum",
    "fmax": "drop_nan_max",
    "fmin": "drop_nan_min",
}
_SCANS = {"affine": "scan_affine", "sum": "scan_sum", "product": "scan_product"} | {
    name: f"scan_{function}" for name, function in ORDERED.items()
}


@dataclass(frozen=True)
class Lanes:
    """How a body runs in lanes: lane `index` of `count` handles the axis `axis` at `first` + `index`.

    extent: what sizes the arrays of one element a lane. tiled: several rows by tiles, otherwise lanes are consecutive
    in memory. jumps: the condition that the lanes do not reach over the whole axis.
    """

    axis: str
    first: str
    index: str
    count: str
    extent: str
    tiled: bool
    jumps: str = "false"


@dataclass
class Body:
    """Writes the statements of one nest. Its state is where the writing stands: names, row pointers, tiles."""

    function: Function
    nest: Nest
    facts: Facts
    writer: Writer
    fresh: Names
    arrays: dict[str, str]
    names: dict[str, str]
    varies: frozenset[str]  # names whose value depends on data: subscripts by them are checked
    large: frozenset[str]  # names whose integer arithmetic may overflow: it wraps
    lanes: Lanes | None = None
    passed: frozenset[str] = frozenset()
    pointers: dict[str, tuple[str, frozenset[int]]] = field(default_factory=dict)
    tile_loads: dict[tuple[str, tuple[Expr, ...]], str] = field(default_factory=dict)
    tile_stores: dict[tuple[str, tuple[Expr, ...]], str] = field(default_factory=dict)
    instead: dict[str, str] = field(default_factory=dict)
    known_inside: dict[tuple[str, int, Expr], str] = field(default_factory=dict)
    reductions: set[tuple[str, ScalarType]] = field(default_factory=set)
    faults: dict[Fault, int] = field(default_factory=dict)
    failed: str = "outside"  # the variable that takes the code of what fails
    meanings: dict[str, Expr] = field(default_factory=dict)  # of names of conditions and integers
    # what is compared where the writing stands, by what holds: whether a <= b or a < b, a and b
    compared: dict[tuple[bool, Expr, Expr], Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = len(self.function.arrays) + 1
        self.faults = {f: first + k for k, f in enumerate(faults_of(self.nest))}
        # what loops whose bounds data decide are known to stay below
        self.known_below = {f.var: f.segment.limits for f in self.nest.loops() if f.segment is not None}
        self.printer = Printer(self._name, self._load, lambda name: name not in self.large, fault=self._fault,
                               short=dict(self.facts.short), under=self.under_condition)  # fmt: skip

    # ------------------------------------------------------------ names and elements

    def declare(self, name: str) -> str:
        """The C++ name of a name of the nest: bound names are unique, so scopes that repeat a statement share it."""
        if name not in self.names:
            self.names[name] = self.fresh.fresh(name)
        return self.names[name]

    def raw(self, text: str, type_: ScalarType = INT64) -> Ref:
        """C++ as an expression: a name, or what is used alone."""
        self.names[f"@{text}"] = text
        return Ref(f"@{text}", type_)

    def _fault(self, fault: Fault) -> str:
        return f"{self.faults[fault]}, {self.failed}"

    def _name(self, ref: Ref) -> str:
        if ref.name in self.instead:
            return self.instead[ref.name]
        name = self.names[ref.name]
        return f"{name}[{self.lanes.index}]" if self.lanes and ref.name in self.passed else name

    def _load(self, load: Load) -> Text:
        tile = self.tile_loads.get((load.array, load.index))
        if tile is not None:
            return Text(tile)
        array = self.function.array(load.array)
        load = replace(load, index=self.as_compared(load.array, load.index))
        text = self.element(load.array, load.index)
        if memory_type(array.dtype) != register_type(array.dtype):
            text = f"{register_type(array.dtype)}({text})"
        checks = self.checks(load.array, load.index)
        if not checks:
            return Text(text)
        other = literal(0, array.dtype.opmath, typed=True)
        return Text(f"{' && '.join(checks)} ? {text} : {other}", TERNARY)

    def element(self, array: str, index: tuple[Expr, ...]) -> str:
        if self.function.array(array).within:
            return self.arrays[array] + ("".join(f"[{self.printer.index(i)}]" for i in index) or "[0]")
        pointer, hoisted = self.pointers.get(array, (self.arrays[array], frozenset()))
        return f"{pointer}[{self.offset(array, index, hoisted)}]"

    def offset(self, array: str, index: tuple[Expr, ...], without: frozenset[int] = frozenset()) -> str:
        """The offset in elements of these subscripts, the axes in `without` left out."""
        terms = [self._term(array, axis, simplify(i)) for axis, i in enumerate(index) if axis not in without]
        return " + ".join(t for t in terms if t) or "0"

    def _term(self, array: str, axis: int, index: Expr) -> str:
        if isinstance(index, Const) and index.value == 0:
            return ""
        if (array, axis) in self.facts.unit:
            return self.printer.index(index, SUM)
        stride = self.stride(array, axis)
        if isinstance(index, Const) and index.value == 1:
            return stride
        return f"{self.printer.index(index, PRODUCT)} * {stride}"

    def stride(self, array: str, axis: int) -> str:
        if (array, axis) in self.facts.unit:
            return "1"
        return self.names[stride_name(array, axis)]

    def checks(self, array: str, index: tuple[Expr, ...]) -> list[str]:
        """Conditions for the subscripts that only the data can show to be inside."""
        asked = [self.check(array, axis, i) for axis, i in enumerate(index) if self.unproven(array, axis, i)]
        return [text for text in asked if text != "true"]

    def check(self, array: str, axis: int, index: Expr) -> str:
        """That a subscript is inside; the name of the answer where it is known already."""
        declared = self.function.array(array)
        if self.inside_where_compared(index, declared.shape[axis]) is not None:
            return "true"
        code = self.function.arrays.index(declared) + 1
        asked = f"weft::inside({self.printer.index(index)}, {self.printer.index(declared.shape[axis])}, {code}, {self.failed})"
        return self.known_inside.get((array, axis, index), asked)

    @contextmanager
    def under_condition(self, condition: Expr) -> Iterator[None]:
        """Where a condition holds: what it says of subscripts need not be looked at."""
        before, pending, compared = self.compared, [condition], dict(self.compared)
        while pending:
            match pending.pop():
                case Op(name="and", args=args):
                    pending += args
                case Ref(name=name) if name in self.meanings:
                    pending.append(self.meanings[name])
                case Op(name="le" | "lt" as name, args=(a, b)) | Op(name="ge" | "gt" as name, args=(b, a)) if a.type == INT64:
                    key = name in ("le", "ge"), self.meaning(a), self.meaning(b)
                    compared[key] = a if name in ("lt", "gt") else b
        self.compared = compared
        yield
        self.compared = before

    def meaning(self, e: Expr) -> Expr:
        """An integer in terms of what its names stand for, unless that is long; where no check of it fails."""
        while names := free_names(e) & self.meanings.keys():
            if sum(1 for _ in walk_expr(e)) > _LONG:
                break
            e = substitute(e, {n: self.meanings[n] for n in names})
        return simplify(unchecked(e))

    def as_compared(self, array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Subscripts that a condition tells to be inside, as it has them: where a check fails, of what is taken instead."""
        if not self.compared:
            return index
        shape = self.function.array(array).shape
        return tuple(self.inside_where_compared(i, e) or i for i, e in zip(index, shape, strict=True))

    def inside_where_compared(self, index: Expr, extent: Expr) -> Expr | None:
        """A subscript that a condition tells to be inside of an axis, and thus not to count from the end."""
        own, end = self.meaning(counted_from_end(index)[0]), self.meaning(extent)
        there = self.compared and (True, Const(0, INT64), own) in self.compared
        return self.compared.get((False, own, end)) if there else None

    def declare_steady(self, statements: tuple[Stmt, ...], var: str) -> tuple[Stmt, ...]:
        """Declare what every iteration of an axis loads alike, and whether subscripts that are alike are inside; the
        statements, which use it.
        """
        own = {a.name for a in self.function.arrays if var in a.within}
        lets, statements = steady(statements, {var, *self.passed}, own, lambda base: self.raw(self.fresh.fresh(base)).name)
        self.varies |= {let.name for let in lets}
        self.passed -= {let.name for let in lets}  # one for all lanes
        for let in lets:
            self.writer.cite(let.location)
            whole = let.value.type == INT64 and not isinstance(let.value, Load)
            self.bind(let.name, let.value.type, (self.printer.index if whole else self.printer.value)(let.value))
        bound = {var, *self.passed, *(n for s in walk(statements) for n in (*bound_names(s), *_loop_names(s)))}
        # of a branch only its condition is evaluated whichever side is taken
        exprs = [x for s in statements for x in ((s.condition,) if isinstance(s, If) else statement_exprs(s))]
        accesses = [(e.array, e.index) for x in exprs for e in certain_in(x) if isinstance(e, Load)]
        accesses += [(s.array, s.index) for s in statements if isinstance(s, Store)]
        for array, index in dict.fromkeys(accesses):
            for axis, i in enumerate(index):
                alike = not free_names(i) & bound and not free_arrays(i)
                if alike and self.unproven(array, axis, i) and (array, axis, i) not in self.known_inside:
                    name = self.fresh.fresh(f"inside_{array}")
                    self.writer.line(f"const bool {name} = {self.check(array, axis, i)};")
                    self.known_inside[array, axis, i] = name
        return statements

    def unproven(self, array: str, axis: int, index: Expr) -> bool:
        """Whether the call could not tell that this subscript of an axis is inside."""
        if array in self.function.checked:
            return True
        if (array, axis) in self.function.sized.axes:
            return False
        extent = self.function.array(array).shape[axis]
        if isinstance(index, Ref) and extent in self.known_below.get(index.name, ()):
            return False
        return not affine(simplify(index), free_names(index) - self.varies) or not is_bound(extent, free_names(extent))

    def unproven_access(self, array: str, index: tuple[Expr, ...]) -> bool:
        return any(self.unproven(array, axis, i) for axis, i in enumerate(index))

    def checked(self, statements: tuple[Stmt, ...]) -> bool:
        """Whether any subscript or value in these statements is checked."""
        if checks_in(statements):
            return True
        accesses = [(e.array, e.index) for e in loads(statements)] + [(s.array, s.index) for s in stores(statements)]
        return any(
            self.unproven(array, axis, i) and (array, axis, i) not in self.known_inside
            for array, index in accesses
            for axis, i in enumerate(index)
        )

    def unproven_array(self, array: str) -> bool:
        """Whether any access to an array is checked."""
        accesses = [e.index for e in loads(self.nest.body) if e.array == array]
        accesses += [s.index for s in stores(self.nest.body) if s.array == array]
        return any(self.unproven_access(array, index) for index in accesses)

    def hoist(self, statements: tuple[Stmt, ...], variables: list[str]) -> None:
        """Declare row pointers: `x_r` for the axes of x that every access subscripts alike, by `variables` alone."""
        accesses: dict[str, list[tuple[Expr, ...]]] = {}
        for stmt in walk(statements):
            if isinstance(stmt, Store):
                accesses.setdefault(stmt.array, []).append(stmt.index)
            for expr in statement_exprs(stmt):
                for e in walk_expr(expr):
                    if isinstance(e, Load):
                        accesses.setdefault(e.array, []).append(e.index)
        inner = {n for s in walk(statements) for n in (*bound_names(s), *_loop_names(s))}
        for array in self.function.arrays:
            if array.name not in accesses or array.within:
                continue
            first, *rest = accesses[array.name]
            known = set(self.names) - inner - {self.lanes.axis if self.lanes else ""}
            axes = [
                axis
                for axis, i in enumerate(first)
                if free_names(i) & set(variables)
                and free_names(i) <= known
                and not self.unproven(array.name, axis, i)
                and all(other[axis] == i for other in rest)
            ]
            if not axes:
                continue
            used = [v for v in variables if any(v in free_names(first[axis]) for axis in axes)]
            name = self.fresh.fresh("_".join((array.name, *used)))
            others = frozenset(range(len(first))) - set(axes)
            const = "const " if array.role == "input" else ""
            offset = self.offset(array.name, first, others)
            self.writer.line(f"{const}{memory_type(array.dtype)}* {name} = {self.arrays[array.name]} + {offset};")
            self.pointers[array.name] = (name, frozenset(axes))

    def local_arrays(self, var: str, innermost: str = "") -> None:
        """Declare the arrays that every iteration of the loop `var` has afresh. innermost: an axis that was moved inside all
        others.
        """
        touched = arrays_of(self.nest.body)
        for array in self.function.arrays:
            if not array.within or array.name not in touched:
                continue
            if var == (innermost if innermost in array.within else array.within[-1]):
                self._local(array)

    def _local(self, array: Array) -> None:
        name = self.arrays[array.name] = self.fresh.fresh(array.name)
        extents = [simplify(e) for e in array.shape]
        sizes = [int(e.value) if isinstance(e, Const) else None for e in extents]
        elements = 1
        for size in sizes:
            elements *= size or 0
        large = elements * array.dtype.size > STACK_LIMIT
        shape = "".join(f"[{max(1, s or 0)}]" for s in sizes) or "[1]"
        self.writer.cite(array.location)
        storage = "static thread_local " if large else ""
        zeroed = array.fill is not None and not large and not array.fill.value
        kind = memory_type(array.dtype)
        self.writer.line(f"{storage}{kind} {name}{shape}{' = {}' if zeroed else ''};")
        if array.fill is not None and not zeroed:
            value = literal(array.fill.value, array.dtype.opmath, typed=True)
            first = f"&{name}{'[0]' * max(1, len(sizes))}"
            self.writer.line(f"std::fill_n({first}, {max(1, elements)}, {kind}({value}));")

    # ------------------------------------------------------------ statements in order

    def statements(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value):
                    self.writer.cite(stmt.location)
                    self.bind(name, value.type, self.printer.value(value))
                    steady = all(self.function.array(a).role == "input" for a in free_arrays(value))
                    if value.type in (BOOL, INT64) and steady:
                        self.meanings[name] = value
                case Store():
                    self.writer.cite(stmt.location)
                    self.store(stmt)
                case If():
                    self.branch(stmt)
                case For():
                    self.loop(stmt)

    def bind(self, name: str, type_: ScalarType, value: str) -> None:
        if self.lanes and name in self.passed:
            self.writer.line(f"{self.names[name]}[{self.lanes.index}] = {value};")
        else:
            self.writer.line(f"const {register_type(type_)} {self.declare(name)} = {value};")

    def store(self, store: Store) -> None:
        key = (store.array, store.index)
        place = self.tile_stores.get(key)
        if place is None:
            key = (store.array, self.as_compared(*key))
            place = self.element(*key)
        checks, value, known = self.checks(*key), store.value, dict(self.known_inside)
        self.known_inside |= {(store.array, axis, i): "true" for axis, i in enumerate(store.index)}
        if isinstance(value, Load) and self._moved(store, value):
            checks += self.checks(value.array, value.index)
            text = self.element(value.array, value.index)
            if self.function.array(store.array).dtype in (FLOAT16, BFLOAT16):
                place, text = f"weft::bits({place})", f"weft::bits({text})"
        else:
            text = self.printer.value(value)
        self.known_inside = known
        guard = f"if ({' && '.join(checks)}) " if checks else ""
        self.writer.line(f"{guard}{place} = {text};")

    def _moved(self, store: Store, load: Load) -> bool:
        """Whether a store only moves an element of memory, which is not converted then."""
        if (store.array, store.index) in self.tile_stores or (load.array, load.index) in self.tile_loads:
            return False
        dtype = self.function.array(store.array).dtype
        return dtype != BOOL and dtype == self.function.array(load.array).dtype

    def branch(self, branch: If) -> None:
        self.writer.cite(branch.location)
        if not branch.then and not branch.orelse and len(branch.merges) == 1:
            (merge,) = branch.merges
            condition = self.printer.value(branch.condition, TERNARY + 1)
            with self.under_condition(branch.condition):
                then = self.printer.exact(merge.then, TERNARY + 1)
            orelse = self.printer.exact(merge.orelse, TERNARY + 1)
            self.bind(merge.name, merge.type, f"{condition} ? {then} : {orelse}")
            return
        targets = {}
        for m in branch.merges:
            if self.lanes and m.name in self.passed:
                targets[m.name] = f"{self.names[m.name]}[{self.lanes.index}]"
            else:
                targets[m.name] = self.declare(m.name)
                self.writer.line(f"{register_type(m.type)} {targets[m.name]};")
        condition = self.printer.value(branch.condition)
        otherwise = bool(branch.orelse or branch.merges)
        with self.under_condition(branch.condition), self.writer.block(f"if ({condition})", "" if otherwise else "}"):
            self.statements(branch.then)
            for m in branch.merges:
                self.writer.line(f"{targets[m.name]} = {self.printer.value(m.then)};")
        if otherwise:
            with self.writer.block("} else"):
                self.statements(branch.orelse)
                for m in branch.merges:
                    self.writer.line(f"{targets[m.name]} = {self.printer.value(m.orelse)};")

    # ------------------------------------------------------------ loops in order

    def loop(self, loop: For) -> None:
        self.writer.cite(loop.location)
        verdict = dict(self.nest.verdicts).get(loop.var)
        for c in loop.carries:
            init = self.printer.value(c.init)
            self.names[c.result] = self.declare(c.name)
            self.writer.line(f"{register_type(c.type)} {self.names[c.name]} = {init};")
        straight = not any(isinstance(s, For) for s in walk(loop.body))
        start, stop = self.printer.index(loop.start), self.stop(loop)
        updates = {u.name: u for u in verdict.updates} if verdict else {}
        known = all(c.name in updates for c in loop.carries)
        if verdict and straight and verdict.kind == "parallel" and not loop.carries:
            self.pragma_simd("omp simd", loop.body)
            return self._in_vectors(loop, start, stop)
        elif verdict and straight and known and loop.carries and self.free_of_order(verdict, loop):
            used = [updates[c.name] for c in loop.carries]
            if not self.stops(loop):  # OpenMP takes no loop that may end early
                self.pragma_simd("omp simd" + "".join(map(self.reduction, loop.carries, used)), loop.body)
                return self._in_vectors(loop, start, stop)
        elif verdict and straight and known and loop.carries and self.block_scan(loop, updates, start, stop):
            return
        self.in_order(loop, start, stop)

    def in_order(self, loop: For, start: str, stop: str = "") -> None:
        """The loop from `start` on, one iteration after another. stop: its bound, where that is spelled already."""
        stop = stop or self.stop(loop)
        flags = self.stops(loop)
        going = "".join(f" && {self._name(f)}" for f in flags)
        loop = while_running(loop, flags) if flags else loop
        with self.writer.block(self.header(loop, self.declare(loop.var), start, stop, going)):
            self._iteration(loop)

    def _in_vectors(self, loop: For, start: str, stop: str) -> None:
        with self.writer.block(self.header(loop, self.declare(loop.var), start, stop)), self.vectorised():
            self._iteration(loop)

    def _iteration(self, loop: For) -> None:
        self.local_arrays(loop.var)
        self.statements(loop.body)
        self.advance(loop.carries)

    def pragma_simd(self, text: str, body: tuple[Stmt, ...]) -> None:
        self.writer.pragma(text + (" reduction(max : outside)" if self.checked(body) else ""))

    @contextmanager
    def vectorised(self) -> Iterator[None]:
        """An iteration of a vectorised loop. What fails in it has a variable of its own, told once at the end: a reduction's
        variable that an iteration changes at several places, under conditions, has values from nowhere by GCC 13.
        """
        mark, self.failed = self.writer.mark(), "fault"
        yield
        self.failed = "outside"
        if self.writer.mentions("fault", mark):
            self.writer.insert(mark, "uint64_t fault = outside;")
            self.writer.line("outside = fault;")

    def free_of_order(self, verdict: Verdict, loop: For) -> bool:
        """Whether OpenMP may take the iterations in any order: each may check what it evaluates, whatever was before."""
        return free_of_order(verdict, loop) and not any(
            isinstance(e, Check) or self.unproven_access(e.array, e.index) for e in decided_by_state(loop)
        )

    def reduction(self, carry: Carry, update: Update) -> str:
        if update.algebra not in _OPENMP:
            self.reductions.add((update.algebra, carry.type))
        operation = _OPENMP.get(update.algebra) or ORDERED[update.algebra]
        return f" reduction({operation} : {self.names[carry.name]})"

    def combined(self, algebra: str, a: Ref, b: Ref) -> str:
        """What two parts of a reduction that may run in any order give together."""
        if algebra in ("sum", "product"):
            return self.printer.value(Op("add" if algebra == "sum" else "mul", (a, b), a.type))
        names = self.names[a.name], self.names[b.name]
        return f" {_OPENMP[algebra]} ".join(names) if algebra in _OPENMP else f"weft::{ORDERED[algebra]}({', '.join(names)})"

    def stop(self, loop: For) -> str:
        """The bound of a loop, evaluated once where that is more than a sum of names."""
        text = self.printer.index(loop.stop)
        if affine(simplify(loop.stop), free_names(loop.stop)):
            return text
        name = self.fresh.fresh(f"{loop.var}_stop")
        self.writer.line(f"const int64_t {name} = {text};")
        return name

    def stops(self, loop: For) -> tuple[Ref, ...]:
        """The flags after whose fall nothing happens in a loop."""
        return stops(loop, lambda e: isinstance(e, Check) or (isinstance(e, Load) and self.unproven_access(e.array, e.index)))

    def header(self, loop: For, var: str, start: str, stop: str, going: str = "") -> str:
        compare = "<" if loop.step > 0 else ">"
        return f"for (int64_t {var} = {start}; {var} {compare} {stop}{going}; {_step(var, loop.step)})"

    def advance(self, carries: tuple[Carry, ...]) -> None:
        """The carries take their next values, as if at once."""
        moving = [c for c in carries if not (isinstance(c.next, Ref) and c.next.name == c.name)]
        values = {}
        for position, c in enumerate(moving):
            assigned = {m.name for m in moving[:position]}
            values[c.name] = self.printer.value(c.next)
            if free_names(c.next) & assigned:
                name = self.fresh.fresh(f"{c.name}_next")
                self.writer.line(f"const {register_type(c.type)} {name} = {values[c.name]};")
                values[c.name] = name
        for c in moving:
            self.writer.line(f"{self._name(Ref(c.name, c.type))} = {values[c.name]};")

    # ------------------------------------------------------------ scans by blocks

    def block_scan(self, loop: For, updates: dict[str, Update], start: str, stop: str) -> bool:
        """A scan along consecutive memory, a vector at a time: what each iteration adds is computed side by side, the
        algebra composes it in log steps, and the body runs side by side on the carries so found. False, with nothing
        written, where the loop is not of that form, or has arrays of its own.
        """
        levels = scan_levels(loop, updates)
        own = any(loop.var in self.function.array(array).within for array in arrays_of(loop.body))
        if not levels or abs(loop.step) != 1 or self.checked(loop.body) or own:
            return False
        types = sorted({c.type for c in loop.carries}, key=lambda t: -t.size)
        first = self.fresh.fresh(f"{loop.var}_0")
        lane, width = self.fresh.fresh("w"), self.fresh.fresh("width")
        forward = loop.step > 0
        sign, compare = ("+", "<=") if forward else ("-", ">=")
        variable = f"const int64_t {{}} = {first} {sign} {lane};"
        self.writer.line(f"constexpr int {width} = weft::scan_lanes<{register_type(types[0])}>;")
        self.writer.line(f"int64_t {first} = {start};")
        over_lanes = f"for (int {lane} = 0; {lane} < {width}; ++{lane})"
        with self.writer.block(f"for (; {first} {sign} {width} {compare} {stop}; {first} {sign}= {width})"):
            done: list[Carry] = []
            for level in levels:
                done += level
                self._scan_level(loop, [updates[c.name] for c in level], level, done, lane, width, over_lanes, variable)
            body = needed(loop.body, ())
            if body:
                with self._side_by_side(over_lanes, loop.var, variable, body):
                    self.statements(body)
        self.instead.clear()
        self.in_order(loop, first, stop)
        return True

    def _scan_level(
        self,
        loop: For,
        updates: list[Update],
        carries: list[Carry],
        done: list[Carry],
        lane: str,
        width: str,
        over_lanes: str,
        variable: str,
    ) -> None:
        buffers: dict[str, tuple[str, ...]] = {}
        roots: list[Expr] = []
        for c, u in zip(carries, updates, strict=True):
            parts = ("coefficient", "addend", "before") if u.algebra == "affine" else ("addend", "before")
            buffers[c.name] = tuple(self.fresh.fresh(f"{c.name}_{part}") for part in parts)
            declared = ", ".join(f"{b}[{width}]" for b in buffers[c.name])
            self.writer.line(f"{register_type(c.type)} {declared};")
            roots += u.parts
        without_stores = tuple(s for s in loop.body if not isinstance(s, Store))
        body = needed(without_stores, roots)
        with self._side_by_side(over_lanes, loop.var, variable, body):
            self.statements(body)
            for c, u in zip(carries, updates, strict=True):
                for buffer, value in zip(buffers[c.name], u.parts, strict=False):
                    self.writer.line(f"{buffer}[{lane}] = {self.printer.value(value)};")
        for c, u in zip(carries, updates, strict=True):
            arguments = ", ".join((*buffers[c.name][:-1], self.names[c.name], buffers[c.name][-1]))
            call = f"weft::{_SCANS[u.algebra]}({arguments})"
            self.instead[c.name] = f"{buffers[c.name][-1]}[{lane}]"
            if not overflows(u.algebra, c.type):
                self.writer.line(f"{call};")
                continue
            with self.writer.block(f"if (!{call})"):  # the loop after this one goes on from here
                for carry in done[: done.index(c) + 1]:
                    self.writer.line(f"{self.names[carry.name]} = {self.instead[carry.name].removesuffix(f'[{lane}]')}[0];")
                self.writer.line("break;")

    @contextmanager
    def _side_by_side(self, header: str, var: str, variable: str, body: tuple[Stmt, ...]) -> Iterator[None]:
        """A vectorised loop over lanes; the loop's own variable is declared if something in it is spelled with it."""
        self.pragma_simd("omp simd", body)
        with self.writer.block(header):
            name = self.declare(var)
            mark = self.writer.mark()
            with self.vectorised():
                yield
            if self.writer.mentions(name, mark):
                self.writer.insert(mark, variable.format(name))

    # ------------------------------------------------------------ lanes

    def in_lanes(self, body: tuple[Piece, ...], uniform: set[str]) -> None:
        """A body for all lanes: uniform are the names that are the same in every lane."""
        self.passed = passed_on(body)
        for piece in straights(body):
            for item in piece.items:
                if isinstance(item, Begin):
                    self.passed |= {item.carry.name, item.carry.result}
        self._pieces(body, uniform)

    def _pieces(self, body: tuple[Piece, ...], uniform: set[str]) -> None:
        for piece in body:
            if isinstance(piece, Straight):
                self._straight(piece)
            else:
                self._nested(piece, uniform)

    def _straight(self, piece: Straight) -> None:
        lanes = self.lanes
        assert lanes is not None
        statements = tuple(i for i in piece.items if not isinstance(i, Begin | Advance))
        items, known = piece.items, dict(self.known_inside)
        if not lanes.tiled:
            statements = self.declare_steady(statements, lanes.axis)
            first = next((k for k, i in enumerate(items) if not isinstance(i, Begin | Advance)), len(items))
            others = [i for i in items if isinstance(i, Begin | Advance)]
            items = (*others[:first], *statements, *others[first:])
        for item in items:
            bound: list[tuple[str, ScalarType]] = []
            if isinstance(item, Begin):
                self.names[item.carry.result] = self.declare(item.carry.name)
                self.writer.line(f"{register_type(item.carry.type)} {self.names[item.carry.name]}[{lanes.extent}];")
            elif isinstance(item, Let):
                bound = [(item.name, item.value.type)]
            elif isinstance(item, If):
                bound = [(m.name, m.type) for m in item.merges]
            for name, type_ in bound:
                if name in self.passed:
                    self.writer.line(f"{register_type(type_)} {self.declare(name)}[{lanes.extent}];")
        header = f"for (int {lanes.index} = 0; {lanes.index} < {lanes.count}; ++{lanes.index})"
        variable = f"const int64_t {{}} = {lanes.first} + {lanes.index};"
        carried = tuple(Let("", e) for i in items if isinstance(i, Begin | Advance) for e in item_exprs(i))
        with self._side_by_side(header, lanes.axis, variable, (*statements, *carried)):
            for item in items:
                self._item(item)
        self.known_inside = known

    def _item(self, item: Item) -> None:
        if isinstance(item, Begin):
            name = self._name(Ref(item.carry.name, item.carry.type))
            self.writer.line(f"{name} = {self.printer.value(item.carry.init)};")
        elif isinstance(item, Advance):
            self.advance(item.carries)
        else:
            self.statements((item,))

    def _nested(self, piece: Nested, uniform: set[str]) -> None:
        loop, lanes = piece.loop, self.lanes
        assert lanes is not None
        self.writer.cite(loop.location)
        found = tiles(loop, lanes.axis, uniform, self.facts) if lanes.tiled else Tiles((), ())
        if found.loads or found.stores:
            self._tiled(piece, found)
            return
        stop = self.stop(loop)
        start = self.printer.index(loop.start)
        with self.writer.block(self.header(loop, self.declare(loop.var), start, stop)):
            if all(isinstance(p, Straight) for p in piece.body):
                self._prefetch(loop)
            self._pieces(piece.body, uniform | {loop.var})
            self._stop_lanes(loop)

    def _prefetch(self, loop: For) -> None:
        """Ask for what the next iteration reads and writes along the lanes, where that does not follow in memory."""
        lanes = self.lanes
        assert lanes is not None
        accesses = [(e.array, e.index) for e in loads(loop.body)] + [(s.array, s.index) for s in stores(loop.body)]
        following = {loop.var: add(Ref(loop.var, INT64), constant(loop.step)), lanes.axis: self.raw(lanes.first)}
        lines = []
        for array, index in dict.fromkeys(accesses):
            along = [axis for axis, i in enumerate(index) if coefficient(i, lanes.axis) != 0]
            consecutive = len(along) == 1 and (array, along[0]) in self.facts.unit
            if consecutive and any(coefficient(i, loop.var) for i in index) and not self.unproven_access(array, index):
                pointer, hoisted = self.pointers.get(array, (self.arrays[array], frozenset()))
                offset = self.offset(array, tuple(simplify(substitute(i, following)) for i in index), hoisted)
                lines.append(f"weft::prefetch({pointer} + {offset}, {lanes.count});")
        if lines:
            with self.writer.block(f"if ({lanes.jumps})"):
                for text in lines:
                    self.writer.line(text)

    def _tiled(self, piece: Nested, found: Tiles) -> None:
        loop, lanes = piece.loop, self.lanes
        assert lanes is not None
        start, stop = self.printer.index(loop.start), self.stop(loop)
        first, steps, step = (self.fresh.fresh(n) for n in (f"{loop.var}_0", "steps", "step"))
        forward = loop.step > 0
        sign, compare = ("+", "<") if forward else ("-", ">")
        left = f"{stop} - {first}" if forward else f"{first} - {factor(stop)}"
        places: dict[tuple[str, tuple[Expr, ...]], tuple[str, str, str, str]] = {}
        header = f"for (int64_t {first} = {start}; {first} {compare} {stop}; {first} {sign}= weft::tile_steps)"
        with self.writer.block(header):
            self.writer.line(f"const int {steps} = int(std::min<int64_t>(weft::tile_steps, {left}));")
            accesses = [(e.array, e.index, d) for e, d in found.loads]
            accesses += [(s.array, s.index, d) for s, d in found.stores]
            for array, index, direction in accesses:
                if (array, index) in places:
                    continue
                tile = self.fresh.fresh(f"{array}_tile")
                kind = register_type(self.function.array(array).dtype)
                self.writer.line(f"weft::tile<{kind}, {lanes.count}> {tile};")
                position = step if direction > 0 else f"{steps} - 1 - {step}"
                places[array, index] = (
                    tile,
                    f"{tile}[{position}][{lanes.index}]",
                    self._tile_address(array, index, loop, direction, first, steps),
                    self._row_stride(array, index),
                )
            for load, _ in found.loads:
                tile, _, address, stride = places[load.array, load.index]
                self.writer.line(f"weft::load_tile<{lanes.count}>({tile}, {address}, {stride}, {steps});")
            self.tile_loads = {(e.array, e.index): places[e.array, e.index][1] for e, _ in found.loads}
            self.tile_stores = {(s.array, s.index): places[s.array, s.index][1] for s, _ in found.stores}
            with self.writer.block(f"for (int {step} = 0; {step} < {steps}; ++{step})"):
                name = self.declare(loop.var)
                mark = self.writer.mark()
                self._pieces(piece.body, set())
                if self.writer.mentions(name, mark):
                    self.writer.insert(mark, f"const int64_t {name} = {first} {sign} {step};")
            self.tile_loads, self.tile_stores = {}, {}
            for store, _ in found.stores:
                tile, _, address, stride = places[store.array, store.index]
                self.writer.line(f"weft::store_tile<{lanes.count}>({tile}, {address}, {stride}, {steps});")
            self._stop_lanes(loop)

    def _stop_lanes(self, loop: For) -> None:
        """End a loop where nothing happens any more in any lane."""
        flags, lanes = self.stops(loop), self.lanes
        if not flags or lanes is None:
            return
        going = self.fresh.fresh("going")
        self.writer.line(f"bool {going} = false;")
        with self.writer.block(f"for (int {lanes.index} = 0; {lanes.index} < {lanes.count}; ++{lanes.index})"):
            self.writer.line(f"{going} |= {' && '.join(map(self._name, flags))};")
        self.writer.line(f"if (!{going}) break;")

    def _tile_address(
        self, array: str, index: tuple[Expr, ...], loop: For, direction: int, first: str, steps: str
    ) -> str:
        """The lowest address of a tile: the first step's in memory that ascends, else the last step's."""
        lanes = self.lanes
        assert lanes is not None
        value: Expr = self.raw(first)
        if direction < 0:
            past = sub(self.raw(steps), constant(1))
            value = add(value, past) if loop.step > 0 else sub(value, past)
        here = {loop.var: value, lanes.axis: self.raw(lanes.first)}
        offset = self.offset(array, tuple(simplify(substitute(i, here)) for i in index), self._hoisted(array))
        pointer = self.pointers.get(array, (self.arrays[array], frozenset()))[0]
        return pointer if offset == "0" else f"{pointer} + {offset}"

    def _hoisted(self, array: str) -> frozenset[int]:
        return self.pointers.get(array, ("", frozenset[int]()))[1]

    def _row_stride(self, array: str, index: tuple[Expr, ...]) -> str:
        """The distance in memory from one lane to the next."""
        lanes = self.lanes
        assert lanes is not None
        terms = []
        for axis, i in enumerate(index):
            factor = coefficient(i, lanes.axis)
            if factor:
                stride = self.stride(array, axis)
                terms.append(stride if factor == 1 else f"{factor} * {stride}")
        return " + ".join(terms)


def _step(var: str, step: int) -> str:
    if abs(step) == 1:
        return f"{'++' if step > 0 else '--'}{var}"
    return f"{var} {'+' if step > 0 else '-'}= {abs(step)}"


def factor(text: str) -> str:
    """A text as an operand of a product."""
    return text if re.fullmatch(r"[\w.]+", text) else f"({text})"


def _loop_names(stmt: Stmt) -> tuple[str, ...]:
    return (stmt.var, *(c.name for c in stmt.carries)) if isinstance(stmt, For) else ()


def free_of_order(verdict: Verdict, loop: For) -> bool:
    """Whether a loop is a reduction of scalars whose iterations OpenMP may take in any order, whatever they are."""
    if not {n for u in verdict.updates for n in u.names} <= {c.name for c in loop.carries}:
        return False
    types = {c.name: c.type for c in loop.carries}
    simple = all(u.algebra in _OPENMP or u.algebra in ORDERED for u in verdict.updates)
    simple = simple and not any(overflows(u.algebra, types[u.name]) for u in verdict.updates)
    return verdict.kind == "reduction" and simple and not any(u.feeds for u in verdict.updates)


def scan_levels(loop: For, updates: dict[str, Update]) -> list[list[Carry]]:
    """The carries of a loop in groups, each computable by a scan once those before are known; [] if the loop has other
    dependences or an algebra without a scan.
    """
    if not loop.carries or any(isinstance(s, For) for s in walk(loop.body)) or not own_elements_only(loop.body):
        return []
    if any(updates[c.name].algebra not in _SCANS or c.type.size < 4 or c.type.category == "bool" for c in loop.carries):
        return []
    if len({c.type.size for c in loop.carries}) > 1:
        return []
    without_stores = tuple(s for s in loop.body if not isinstance(s, Store))
    if any(isinstance(s, Store) for s in walk(without_stores)):
        return []
    left = {c.name: c for c in loop.carries}
    needs: dict[str, set[str]] = {}
    for name in left:
        u = updates[name]
        roots = u.parts
        used = set().union(*(free_names(e) for e in roots))
        for stmt in walk(needed(without_stores, roots)):
            used |= {n for e in statement_exprs(stmt) for n in free_names(e)}
        needs[name] = used & set(left)
    levels: list[list[Carry]] = []
    while left:
        level = [c for name, c in left.items() if not needs[name] & set(left)]
        if not level:
            return []
        levels.append(level)
        for c in level:
            del left[c.name]
    return levels
