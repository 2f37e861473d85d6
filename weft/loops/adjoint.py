"""The adjoint of a function: a function whose loops compute the vector-Jacobian product, by reverse mode on the nest.

The adjoint of a block is the block again, without its stores, for the values that derivatives need (the sweep), then
the adjoints of its statements, last first. A loop becomes the loop over the same iterations, last first, whose body is
the adjoint of the body; it carries the adjoints of the scalars that the loop carried. What the adjoint needs of earlier
iterations is read back from results where the function stored it, and else saved by the sweep. Nothing is computed in
vain: what no gradient needs is dead code and dropped at the end.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from weft.errors import Location, NotDifferentiable
from weft.loops.accumulate import accumulate, accumulate_into, accumulation, from_the_start, store_once
from weft.loops.algebra.counters import settle
from weft.loops.algebra.half_sums import half_sums
from weft.loops.algebra.recurrences import dependents
from weft.loops.by_rows import by_rows
from weft.loops.derivatives import cancels, contributions, is_unknown, keeps_zero, passed_through, sources, taken
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.in_steps import accumulate_before_use, accumulate_in_steps
from weft.loops.ir import (
    ONE,
    Array,
    Carry,
    Cast,
    Const,
    Equality,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Round,
    Size,
    Stmt,
    Store,
    bodies,
    bound_names,
    free_names,
    loaded_arrays,
    operands,
    statement_exprs,
    substitute,
    validate,
    walk,
    walk_expr,
    with_operands,
    without_checks,
)
from weft.loops.live import Uses
from weft.loops.memory import Memory
from weft.loops.names import Names, rename_array
from weft.loops.normalize import normalize
from weft.loops.orders import ordered_as_beside
from weft.loops.phases import in_phases
from weft.loops.simplify import (
    add,
    base_name,
    bound_inside,
    div,
    drop_dead,
    fold,
    hoist_invariants,
    inline,
    mul,
    number,
    propagate,
    select,
    share,
    sub,
    tidy_names,
)
from weft.loops.types import BOOL, INT64, ScalarType


def differentiable(function: Function) -> tuple[str, ...]:
    """The parameters for which a gradient makes sense: floating arrays that are only read.

    Empty for a function that writes into its arguments.
    """
    arrays = {a.name: a for a in function.arrays}
    if any(a.role == "inout" for a in function.arrays):
        return ()
    named = (arrays[p] for p in function.parameters if p in arrays)
    return tuple(a.name for a in named if a.role == "input" and a.dtype.category == "float")


def adjoint(function: Function, wanted: tuple[str, ...], seeded: tuple[int, ...] | None = None) -> Function:
    """The function whose results are the gradients of `wanted` (names of floating input arrays of `function`).

    seeded: the places of the floating results that have a gradient, all of them if None. What only the others are made of
    has none: a zero for it would become NaN where a derivative is infinite.

    Its parameters: those of `function`; the results of `function` as they were returned; the gradient of each seeded
    result, of the result's dtype and shape. Its results: one gradient for each wanted name, of that array's dtype and
    shape. Raises NotDifferentiable.
    """
    # what it computes again has been checked
    function = replace(function, body=without_checks(function.body), demands=())
    _refuse(function, wanted)
    return _Adjoint(settle(normalize(function, derivatives=True)), wanted, seeded).build()


def _refuse(function: Function, wanted: tuple[str, ...]) -> None:
    written = [a for a in function.arrays if a.role == "inout"]
    if written:
        raise NotDifferentiable(
            f"{function.name} writes into its argument {written[0].name}, so no gradient can pass through it",
            location=written[0].location or function.location,
            evidence=[f"the values that {written[0].name} had are overwritten by the call"],
            remedy="return a new array instead, or call it without gradients (torch.no_grad, detach)",
        )
    allowed = differentiable(function)
    for name in wanted:
        if name not in allowed:
            raise NotDifferentiable(
                f"{name} of {function.name} has no gradient",
                location=function.location,
                evidence=[f"the floating arrays it reads are ({', '.join(allowed)})"],
                remedy="ask for gradients of floating tensors alone",
            )


# ---------------------------------------------------------------- what it takes and gives


@dataclass(frozen=True)
class Frame:
    """An adjoint without its body: its gradients begin as 0. saved: the parameter that holds each result as it was returned.
    seeds: those that hold gradients of it. gradients: the array of each that is wanted.
    """

    function: Function
    saved: dict[str, str]
    seeds: dict[str, list[str]]
    gradients: dict[str, str]


def frame(f: Function, wanted: tuple[str, ...], seeded: tuple[int, ...], names: Names) -> Frame:
    """What an adjoint of a function takes and gives, as `adjoint` says."""
    parameters, sizes, equalities = list(f.parameters), list(f.sizes), list(f.equalities)
    arrays = [a for a in f.arrays if a.name in f.parameters]
    saved: dict[str, str] = {}
    seeds: dict[str, list[str]] = {}

    def parameter(name: str, like: Array) -> None:
        """A new input with the dtype and shape of an array of the function."""
        shape: list[Expr] = []
        for axis, extent in enumerate(like.shape):
            size = Size(names.fresh(f"{name}_size_{axis}"), name, axis)
            sizes.append(size)
            shape.append(Ref(size.name, INT64))
            equalities.append(Equality(shape[-1], extent, f"{name} has the shape of {like.name}", like.location))
        parameters.append(name)
        arrays.append(Array(name, like.dtype, tuple(shape), "input", location=like.location))

    for result in f.results:
        name = result if result not in parameters else names.fresh(result)
        saved.setdefault(result, name)
        parameter(name, f.array(result))
    for k in seeded:
        result = f.results[k]
        name = names.fresh(f"grad_{result}")
        seeds.setdefault(result, []).append(name)
        parameter(name, f.array(result))
    gradients = {w: names.fresh(f"grad_{w}") for w in wanted}
    for w, gradient in gradients.items():
        array = f.array(w)
        zero = number(0, array.dtype.opmath)
        arrays.append(Array(gradient, array.dtype, array.shape, "result", zero, rounds=False))
    made = Function(
        f"{f.name}_adjoint", tuple(parameters), f.scalars, tuple(sizes), tuple(arrays), (), tuple(gradients.values()),
        tuple(equalities), f.location,
    )  # fmt: skip
    return Frame(made, saved, seeds, gradients)


def floating_results(function: Function) -> tuple[int, ...]:
    """The places of the results that may have gradients."""
    floating = {a.name for a in function.arrays if a.dtype.category == "float"}
    return tuple(k for k, r in enumerate(function.results) if r in floating)


# ---------------------------------------------------------------- what the derivative touches


def _active(
    function: Function, wanted: tuple[str, ...], seeded: tuple[str, ...]
) -> tuple[frozenset[str], frozenset[str]]:
    """The scalars and the arrays that depend on a wanted input and on which a seeded result depends."""
    after: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def flow(target: tuple[str, str], *exprs: Expr) -> None:
        for e in exprs:
            for s in sources(e):
                key = ("array", s.array) if isinstance(s, Load) else ("name", s.name)
                after.setdefault(key, set()).add(target)

    for stmt in walk(function.body):
        match stmt:
            case Let():
                flow(("name", stmt.name), stmt.value)
            case Store():
                flow(("array", stmt.array), stmt.value)
            case For():
                for c in stmt.carries:
                    flow(("name", c.name), c.init, c.next)
                    flow(("name", c.result), c.init, c.next)
            case If():
                for m in stmt.merges:
                    flow(("name", m.name), m.then, m.orelse)
    before: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for source, targets in after.items():
        for target in targets:
            before.setdefault(target, set()).add(source)
    varied = _reached({("array", n) for n in wanted}, after)
    useful = _reached({("array", n) for n in seeded}, before)
    both = varied & useful
    return frozenset(n for k, n in both if k == "name"), frozenset(n for k, n in both if k == "array")


def _infinite(function: Function) -> frozenset[str]:
    """The scalars and arrays with values that are made of constants which are infinite or NaN."""
    made: dict[str, list[Expr]] = {a.name: [a.fill] for a in function.arrays if a.fill is not None}
    for stmt in walk(function.body):
        match stmt:
            case Let():
                made.setdefault(stmt.name, []).append(stmt.value)
            case Store():
                made.setdefault(stmt.array, []).append(stmt.value)
            case For():
                for c in stmt.carries:
                    made.setdefault(c.name, []).extend((c.init, c.next))
                    made.setdefault(c.result, []).extend((c.init, c.next))
            case If():
                for m in stmt.merges:
                    made.setdefault(m.name, []).extend((m.then, m.orelse))
    after: dict[tuple[str, str], set[tuple[str, str]]] = {}
    found: set[tuple[str, str]] = set()
    for name, exprs in made.items():
        for e in (e for top in exprs for e in walk_expr(top)):
            if isinstance(e, Const) and not math.isfinite(e.value):
                found.add(("", name))
            elif isinstance(e, (Ref, Load)):
                after.setdefault(("", e.array if isinstance(e, Load) else e.name), set()).add(("", name))
    return frozenset(n for _, n in _reached(found, after)) if found else frozenset()


def _reached(
    start: set[tuple[str, str]], edges: Mapping[tuple[str, str], set[tuple[str, str]]]
) -> set[tuple[str, str]]:
    seen, pending = set(start), list(start)
    while pending:
        for node in edges.get(pending.pop(), ()):
            if node not in seen:
                seen.add(node)
                pending.append(node)
    return seen


# ---------------------------------------------------------------- extrema


@dataclass(frozen=True)
class _Extremum:
    """A carried maximum or minimum of which the last value alone is used: `element` where `condition` holds.

    ties: who has the adjoint among the elements that attain the extremum. Python's max(h, x) keeps the object it has, so the
    first one; max(x, h) takes the last one; all have equal shares in torch.amax. None: what torch.maximum makes of them, who
    halves it at every tie, hangs on every value carried. nan: of an extremum that is NaN, who has it: no element, those that
    are NaN, or all of them a NaN. update: the best after an element. wins: the comparison of a better element with the best so
    far, where that decides. nested: the loop in the body that carries the same one on, and what it is there. around: the loops
    around it of which it is the same one. kept: the name under which the adjoint has saved the elements, if it has.
    """

    carry: Carry
    element: Expr
    condition: Expr | None
    ties: Literal["first", "last", "shared"] | None
    update: Op
    nan: Literal["none", "nan", "all"] = "none"
    wins: Literal["gt", "lt", "ge", "le", ""] = ""
    nested: tuple[For, _Extremum] | None = None
    around: tuple[For, ...] = ()
    kept: str = ""

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops in the body that lead to the elements."""
        return () if self.nested is None else (self.nested[0], *self.nested[1].loops)

    @property
    def names(self) -> frozenset[str]:
        """What it is called in its loops."""
        return frozenset({self.carry.name}) | (frozenset() if self.nested is None else self.nested[1].names)


# Operators whose value is one of their arguments, or exact: it has the same bits wherever it is computed.
_EXACT = frozenset(
    (
        *("max", "min", "maximum", "minimum", "fmax", "fmin", "where", "neg", "abs"),
        *("and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite"),
    )
)
# Operators that round once, and to the same bits unless they are contracted with what they are made of.
_ROUNDED_ONCE = frozenset({"add", "sub", "mul"})
_SHARED: dict[str, Literal["nan", "all"]] = {"amax": "all", "amin": "all", "max_of_all": "nan", "min_of_all": "nan"}
_EXTREMA = frozenset({"max", "min", "maximum", "minimum", "fmax", "fmin"})


def _extremum(loop: For, carry: Carry) -> _Extremum | None:
    nested = _nested_extremum(loop, carry)
    if nested is not None:
        return nested
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    own = dependents(loop.body, carry.name) - {carry.name}
    value = carry.next
    chain = set()
    while isinstance(value, Ref) and value.name in lets and value.name in own:
        chain.add(value.name)
        value = lets[value.name]
    # where it is, and whether it has changed, are numbers through which no derivative passes
    told = {s.name for s in loop.body if isinstance(s, Let) and s.name in own - chain and s.value.type.category != "float"}
    used = [
        n
        for s in walk(loop.body)
        if not (isinstance(s, Let) and s.name in chain | told)
        for e in statement_exprs(s)
        for n in free_names(e)
    ]
    used += [n for c in loop.carries if c is not carry and c.type.category == "float" for n in free_names(c.next)]
    if own - chain - told or any(n in chain or n == carry.name for n in used):
        return None
    condition: Expr | None = None
    itself = Ref(carry.name, carry.type)
    match value:
        case Op(name="where", args=(test, then, orelse), derivative="") if carry.name not in free_names(test):
            if itself == orelse:
                condition, value = test, then
            elif itself == then:
                condition, value = Op("not", (test,), BOOL), orelse
    match value:
        case Op(name=name, args=(a, b), derivative=rule) as update if name in _EXTREMA and itself in (a, b):
            element = b if a == itself else a
            ties: Literal["first", "last", "shared"] | None = "first" if a == itself else "last"
            nan: Literal["none", "nan", "all"] = "nan" if ties == "last" else "none"
            if name in ("maximum", "minimum"):
                ties = "shared" if rule in _SHARED else None
                nan = _SHARED.get(rule, "none")
            wins: dict[str, Literal["gt", "lt"]] = {"max": "gt", "min": "lt"} if nan == "none" else {}
            found = _Extremum(carry, element, condition, ties, update, nan, wins.get(name, ""))
        case Op(name="where", args=(Op(name="ge" | "le" as order, args=(a, b)), then, orelse), derivative="") as update if (
            orelse == itself and itself in (a, b) and then in (a, b)
        ):  # x if x >= h else h
            found = _Extremum(carry, then, condition, "last", update, wins="ge" if (order == "ge") == (a == then) else "le")
        case _:
            return None
    free = free_names(found.element) | (set() if condition is None else free_names(condition))
    return None if carry.name in free else found


def _nested_extremum(loop: For, carry: Carry) -> _Extremum | None:
    """An extremum over several axes: a loop in the body goes on with the same one."""
    for stmt in loop.body:
        for c in stmt.carries if isinstance(stmt, For) else ():
            if (c.init, carry.next) != (Ref(carry.name, carry.type), Ref(c.result, c.type)):
                continue
            uses = [n for s in walk(loop.body) for e in statement_exprs(s) for n in free_names(e)]
            uses += [n for k in loop.carries for n in free_names(k.next)]
            inner = _extremum(stmt, c)  # type: ignore[arg-type]
            if inner is None or uses.count(carry.name) + uses.count(c.result) != 2:
                return None
            bounds = free_names(stmt.start) | free_names(stmt.stop)  # type: ignore[union-attr]
            if inner.ties != "shared" and (bounds & bound_inside(loop) or (loop.step, stmt.step) != (1, 1)):  # type: ignore[union-attr]
                return None
            return replace(inner, carry=carry, nested=(stmt, inner))  # type: ignore[arg-type]
    return None


# ---------------------------------------------------------------- values that cannot be had


@dataclass(frozen=True)
class _Element:
    """A place of a loop over elements. before: what is carried there. place: which element it is. out: the loop's body."""

    before: tuple[Expr, ...]
    place: Expr
    scope: _Scope
    out: list[Stmt]


def _element(extremum: str) -> str:
    return f"{extremum}_element"


def _there(extremum: str) -> str:
    return f"{extremum}_there"


@dataclass(frozen=True)
class _Lost:
    """A value that cannot be had in the adjoint: why, where, and what to write instead."""

    why: str
    location: Location | None
    remedy: str = "keep every such value in an element of its own, or differentiate the plain Python function"


def _unbounded(name: str, loop: For) -> _Lost:
    """The values that a name takes in a loop of which nothing bounds the iterations."""
    return _Lost(
        f"{name} takes a new value in every iteration of the loop over {loop.var}, and data decide how many there are: "
        "how much memory would keep them all is not known before the run",
        loop.location,
        f"run the loop to a size of a tensor and put its body under a condition, or read or store an element of the "
        f"iteration's own (x[{loop.var}]) in it, which shows how far it goes, outside of loops that may have no iteration",
    )


# ---------------------------------------------------------------- names of the function, in the adjoint

# A load of an array under this name yields what the function returned in the end, whenever it is evaluated.
_RETURNED = "returned "


def _returned(array: str) -> str:
    return _RETURNED + array


@dataclass(frozen=True)
class _Scope:
    """A place in the adjoint.

    loops: the function's loops around it. root: how many of them are around the block whose sweep this is.
    names: the function's names that have a value here, and which. copies: the local copy of each written array that
    this place reads. sweeping: the arrays whose copies hold what the function's own array held at the same moment.
    adjoints: the array that holds the adjoint of each array here.
    """

    loops: tuple[For, ...] = ()
    root: int = 0
    names: dict[str, Expr] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    sweeping: frozenset[str] = frozenset()
    adjoints: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(f.var for f in self.loops)

    def fork(self) -> _Scope:
        return replace(self, names=dict(self.names), copies=dict(self.copies), adjoints=dict(self.adjoints))


@dataclass(frozen=True)
class _Seed:
    """The adjoint of a value.

    when: where something was handed to it at all; always, if None. In PyTorch nothing passes through what no result was made
    of: no 0 times infinity, as in `1 / sqrt(x)` on the branch that was not taken. The value is 0 elsewhere, unless it is
    `spoilt`: an operator may have made NaN of the 0. across: `when` speaks of iterations of a loop, too many words for
    products, which make NaN of infinite operands alone (those that the function's own constants make infinite are known).
    """

    value: Expr
    when: Expr | None = None
    across: bool = False
    spoilt: bool = False

    @property
    def settled(self) -> Expr:
        """The value, 0 where nothing was handed to it."""
        return select(self.when, self.value, number(0, self.type)) if self.when is not None and self.spoilt else self.value

    @property
    def type(self) -> ScalarType:
        return self.value.type

    def __add__(self, other: _Seed) -> _Seed:
        if self.when == other.when:
            value, spoilt = add(self.value, other.value), self.spoilt or other.spoilt
        else:
            value, spoilt = add(self.settled, other.settled), False
        return _Seed(value, _either(self.when, other.when), self.across or other.across, spoilt)


_TRUE, _FALSE = Const(True, BOOL), Const(False, BOOL)
# A carried value is computed again from what the iteration before stored and read where that takes at most as many operations
# and loads, a name that is used twice counted twice; else it is saved.
_MOST_READ_BACK = 64


def _not(condition: Expr) -> Expr:
    return condition.args[0] if isinstance(condition, Op) and condition.name == "not" else Op("not", (condition,), BOOL)


def _either(a: Expr | None, b: Expr | None) -> Expr | None:
    """a or b; None is what always holds."""
    if a is None or b is None or a == _not(b):
        return None
    match a, b:
        case Op(name="and", args=(x, p)), Op(name="and", args=(y, q)) if x == y:
            rest = _either(p, q)
            return x if rest is None else Op("and", (x, rest), BOOL)
    return a if a == b else Op("or", (a, b), BOOL)


def _both(a: Expr | None, b: Expr) -> Expr:
    """a and b; None is what always holds."""
    return b if a is None or a == b else Op("and", (a, b), BOOL)


Seeds = dict[str, _Seed]


class _Adjoint:
    def __init__(self, function: Function, wanted: tuple[str, ...], seeded: tuple[int, ...] | None) -> None:
        self.seeded = floating_results(function) if seeded is None else seeded
        self.names = Names.of(function)
        self.memory = Memory.of(function)
        self.named: dict[str, str] = {}  # names of loads of elements that change later, by the array
        function = self._name_passing_loads(function)
        self.function, self.wanted = function, wanted
        self.memory = Memory.of(function)
        self.of = {a.name: a for a in function.arrays}
        results = tuple(function.results[k] for k in self.seeded)
        self.active, self.active_arrays = _active(function, wanted, results)
        self.active -= self._stabilisers()
        self.infinite = _infinite(function)
        self.half_sums = half_sums(function)
        self.moving: dict[Expr, bool] = {}
        self.rounded: dict[str, ScalarType] = {}  # names that are bound to numbers of such a type, exactly
        self.arrays: list[Array] = []
        self.temporary: set[str] = set()
        self.owner: dict[str, str] = {}  # the function's array that a copy or an adjoint stands for
        self.broken: dict[str, _Lost] = {}
        self.handed: dict[str, str] = {}  # where something was handed to the elements that save a scalar, by their adjoint
        self.tapes: dict[str, tuple[str, tuple[For, ...]]] = {}
        self.asked: dict[Expr, Location | None] = {}  # sizes above 0, without which no tape's size were known
        self.divided: dict[str, tuple[_Extremum, Expr, _Seed]] = {}  # extrema that a loop around goes on with, by the carry
        written = dict.fromkeys(s.array for s in walk(function.body) if isinstance(s, Store))
        self.written = tuple(written)
        self.homes = {a: self._home(a) for a in self.written}
        self.final = {
            (a.array, a.index)
            for a in self.memory.accesses
            if not a.write and a.array in written and self.memory.last(a.array, a.index, False)
        }
        self.location: Location | None = None
        self.lets = {n.name: n.value for n in walk(function.body) if isinstance(n, Let)}
        self.roundings: dict[str, float] = {}  # of names, where they have been asked for
        self.unchanging = {n.name for n in function.sizes} | {n.name for n in function.scalars}
        self.unchanging |= {f.var for f in walk(function.body) if isinstance(f, For)}
        self.stored = self._stored_values()

    # ---- the function that is built

    def build(self) -> Function:
        f = self.function
        made = frame(f, self.wanted, self.seeded, self.names)
        self.arrays, self.saved, self.seeds, self.gradients = [*made.function.arrays], made.saved, made.seeds, made.gradients
        self.sums: list[str] = []  # adjoints of arrays that start as zero and are added to alone
        self._classify()
        scope = _Scope()
        body: list[Stmt] = []
        for name in self.copied:
            if not self.of[name].within:
                scope.adjoints[name] = self._adjoint_array(name, scope)
                if self.of[name].role == "result" and self.kept[name] == "copied":
                    body += self._copy(scope.adjoints[name], name)
        block, _ = self.block(f.body, scope, {}, ())
        body += block
        for w in self.wanted:
            if w in f.results:
                body += self._pass_through(w)
        sizes: dict[Expr, str] = {Ref(s.name, INT64): f"{s.array}.shape[{s.axis}]" for s in f.sizes}
        above = tuple(
            Equality(
                Op("min", (size, ONE), INT64), ONE,
                f"the gradient knows how far this loop goes where {sizes.get(size, 'the one inside')} is above 0 alone", where,
            )
            for size, where in self.asked.items()
        )  # fmt: skip
        equalities = (*made.function.equalities, *above)
        return self._finish(replace(made.function, arrays=tuple(self.arrays), body=tuple(body), equalities=equalities))

    def _finish(self, made: Function) -> Function:
        targets = tuple(self.gradients.values())
        bases = {base_name(n) for n in self.temporary}
        made = drop_dead(propagate(made))
        self._check(made)
        made, phases = in_phases(from_the_start(made, targets), targets, self.names)
        made, rows = by_rows(made, targets, self.names)
        made = accumulate(made, (*phases, *rows, *targets), self.names)
        made = accumulate_before_use(accumulate_in_steps(made, self.names), self.names)
        kept = {a.name for a in made.arrays}
        stores = [s for s in walk(made.body) if isinstance(s, Store)]
        for array in self.sums:
            if array in kept and all(accumulation(s) for s in stores if s.array == array):
                made = store_once(made, array)
        made = drop_dead(propagate(made))
        made = share(hoist_invariants(share(made, self.names), self.names), self.names)
        made = inline(made, lambda n: base_name(n) in bases)
        made = self._in_opmath(made)
        made = ordered_as_beside(tidy_names(drop_dead(propagate(made))))
        validate(made)
        return made

    def _check(self, made: Function) -> None:
        """Refuse what needs values that cannot be had."""
        needed = loaded_arrays(made.body) & self.broken.keys()
        for name in sorted(needed):
            lost = self.broken[name]
            raise NotDifferentiable(
                f"the gradient of {self.function.name} needs values that are gone when it is computed",
                location=lost.location or self.function.location,
                evidence=[lost.why],
                remedy=lost.remedy,
            )

    def _in_opmath(self, made: Function) -> Function:
        """Half-precision gradients that are summed in memory are summed in the op-math type and rounded at the end."""
        for target in self.gradients.values():
            array = made.array(target)
            summed = any(isinstance(s, Store) and s.array == target and accumulation(s) for s in walk(made.body))
            if not summed or array.dtype == array.dtype.opmath:
                continue
            total = replace(array, name=self.names.fresh(f"{target}_sum"), dtype=array.dtype.opmath, role="local")
            total = replace(total, fill=number(0, total.dtype) if array.fill is not None else None)
            body = rename_array(made.body, target, total.name)
            body = (*body, *self._elementwise(target, array.shape, _loader(total)))
            arrays = (*(replace(a, fill=None) if a.name == target else a for a in made.arrays), total)
            made = replace(made, body=body, arrays=arrays)
        return made

    # ---- preparation

    def _stored_values(self) -> dict[str, Load]:
        """Names that depend on what a loop carries and that every iteration stores, unrounded, in a result; what a loop has
        carried in the end, where it is stored so.
        """
        found = self._stored_ends(self.function.body)
        for loop in walk(self.function.body):
            if not isinstance(loop, For):
                continue
            lets = {s.name for s in loop.body if isinstance(s, Let)}
            carried = {n for c in loop.carries for n in dependents(loop.body, c.name)}
            for s in loop.body:
                if not (isinstance(s, Store) and isinstance(s.value, Ref) and s.value.name in lets & carried):
                    continue
                if self._returned_as_stored(s):
                    found.setdefault(s.value.name, Load(_returned(s.array), s.index, s.value.type))
        return found

    def _returned_as_stored(self, s: Store) -> bool:
        """Whether a result holds in the end what a statement stores there, unrounded."""
        exact = self.of[s.array].dtype == s.value.type and s.array in self.function.results
        return exact and self.memory.last(s.array, s.index, write=True)

    def _stored_ends(self, statements: tuple[Stmt, ...]) -> dict[str, Load]:
        """What loops have carried in the end and the statements beside them store in a result, at places known before."""
        found: dict[str, Load] = {}
        for k, loop in enumerate(statements):
            found |= {n: load for body in bodies(loop) for n, load in self._stored_ends(body).items()}
            ends = {c.result for c in loop.carries} if isinstance(loop, For) else set()
            later = {n for s in statements[k:] for n in bound_names(s)} if ends else set()
            for s in statements[k + 1 :] if ends else ():
                if not (isinstance(s, Store) and isinstance(s.value, Ref) and s.value.name in ends):
                    continue
                if self._returned_as_stored(s) and not any(free_names(i) & later for i in s.index):
                    found.setdefault(s.value.name, Load(_returned(s.array), s.index, s.value.type))
        return found

    def _stabilisers(self) -> frozenset[str]:
        """Carried extrema that cancel: however they are chosen, the results are the same."""
        found: set[str] = set()
        for loop in walk(self.function.body):
            if isinstance(loop, For):
                for c in loop.carries:
                    if c.result in self.active and _extremum(loop, c) and cancels(self.function, c.result):
                        found |= {c.result, c.name}
        return frozenset(found)

    def _name_passing_loads(self, function: Function) -> Function:
        """Bind loads of elements that are stored to later on to names, which a sweep can save."""
        written = {s.array for s in walk(function.body) if isinstance(s, Store)}
        passing: dict[tuple[str, tuple[Expr, ...]], bool] = {}

        def passes(e: Expr) -> bool:
            if not isinstance(e, Load) or e.array not in written:
                return False
            key = (e.array, e.index)
            if key not in passing:
                passing[key] = not self.memory.last(*key, write=False)
            return passing[key]

        def pull(e: Expr, out: list[Stmt], location: Location | None) -> Expr:
            if not any(map(passes, walk_expr(e))):
                return e
            match e:
                case Op(name="where", args=(condition, a, b)):
                    return choose(condition, a, b, out, location)
                case Op(name="and", args=(a, b)):
                    return choose(a, b, Const(False, BOOL), out, location)
                case Op(name="or", args=(a, b)):
                    return choose(a, Const(True, BOOL), b, out, location)
            new = with_operands(e, tuple(pull(o, out, location) for o in operands(e)))
            if not (isinstance(e, Load) and passes(e)):
                return new
            name = self.names.fresh(f"{e.array}_before")
            self.named[name] = e.array
            out.append(Let(name, new, e.location or location))
            return Ref(name, e.type)

        def choose(condition: Expr, a: Expr, b: Expr, out: list[Stmt], location: Location | None) -> Expr:
            """A branch in place of an expression that evaluates a or b, so that what is loaded there can be named."""
            condition = pull(condition, out, location)
            if not any(map(passes, (*walk_expr(a), *walk_expr(b)))):
                return Op("where", (condition, a, b), a.type)
            then, orelse = list[Stmt](), list[Stmt]()
            merge = Merge(self.names.fresh("chosen"), pull(a, then, location), pull(b, orelse, location))
            out.append(If(condition, tuple(then), tuple(orelse), (merge,), location))
            return Ref(merge.name, merge.type)

        def block(statements: tuple[Stmt, ...], ends: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], list[Expr]]:
            out: list[Stmt] = []
            for stmt in statements:
                at = stmt.location
                match stmt:
                    case Let(value=Load(array=array)) if passes(stmt.value):
                        self.named[stmt.name] = array
                        out.append(stmt)
                    case Let():
                        value = pull(stmt.value, out, at)
                        out.append(replace(stmt, value=value))
                    case Store():
                        own = accumulation(stmt, alone=False)
                        if own is not None:  # its own element is added to, whatever it is
                            out.append(accumulate_into(stmt.array, stmt.index, pull(own, out, at), stmt))
                        else:
                            index = tuple(pull(i, out, at) for i in stmt.index)
                            out.append(replace(stmt, index=index, value=pull(stmt.value, out, at)))
                    case For():
                        start, stop = pull(stmt.start, out, at), pull(stmt.stop, out, at)
                        inits = [pull(c.init, out, at) for c in stmt.carries]
                        body, nexts = block(stmt.body, tuple(c.next for c in stmt.carries))
                        carries = tuple(
                            replace(c, init=i, next=n) for c, i, n in zip(stmt.carries, inits, nexts, strict=True)
                        )
                        out.append(replace(stmt, start=start, stop=stop, carries=carries, body=body))
                    case If():
                        condition = pull(stmt.condition, out, at)
                        then, a = block(stmt.then, tuple(m.then for m in stmt.merges))
                        orelse, b = block(stmt.orelse, tuple(m.orelse for m in stmt.merges))
                        merges = tuple(replace(m, then=x, orelse=y) for m, x, y in zip(stmt.merges, a, b, strict=True))
                        out.append(replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges))
            last = [pull(e, out, None) for e in ends]
            return tuple(out), last

        return replace(function, body=block(function.body, ())[0])

    def _home(self, array: str) -> tuple[str, ...]:
        """The outermost loops that all accesses share and whose iterations have the array to themselves."""
        mine = [a for a in self.memory.accesses if a.array == array]
        written = [a for a in mine if a.write]
        within = frozenset(self.function.array(array).within)
        path: list[str] = []
        for k, loop in enumerate(mine[0].loops):
            if not all(len(a.loops) > k and a.loops[k].var == loop.var for a in mine):
                break
            if loop.var not in within and any(
                self.memory.polyhedra.carried(a, b, loop, within) is not None for a in written for b in mine
            ):
                break
            path.append(loop.var)
        return tuple(path)

    def _classify(self) -> None:
        """How the adjoint of each written array is kept.

        direct: it is the gradient of the result, for no element is loaded with a gradient or stored twice. once: the
        gradient of the result, if it is one, plus what later loads contributed, in an array. copied: an array that
        starts as the gradient and is updated backwards through every store.
        """
        self.kept: dict[str, Literal["direct", "once", "copied"]] = {}
        loaded = {
            s.array
            for stmt in walk(self.function.body)
            for e in self._differentiated(stmt)
            for s in sources(e)
            if isinstance(s, Load)
        }
        for name in self.written:
            if name not in self.active_arrays:
                continue
            stores = [s for s in walk(self.function.body) if isinstance(s, Store) and s.array == name]
            summed = all(accumulation(s, alone=False) is not None for s in stores)
            once = summed or self.of[name].saves or self.memory.stored_once(name)
            if name in loaded or not once:
                self.kept[name] = "once" if once and not summed else "copied"
            else:
                self.kept[name] = "direct"
        self.copied = [n for n, k in self.kept.items() if k != "direct"]

    def _differentiated(self, stmt: Stmt) -> tuple[Expr, ...]:
        """The expressions of a statement that a derivative passes through."""
        match stmt:
            case Let():
                return (stmt.value,)
            case Store():
                own = accumulation(stmt, alone=False)
                return (stmt.value,) if own is None else (own,)
            case For():
                return tuple(e for c in stmt.carries for e in (c.init, c.next))
            case If():
                return tuple(e for m in stmt.merges for e in (m.then, m.orelse))
        raise TypeError(stmt)

    # ---- arrays of the adjoint

    def _within(self, array: Array, scope: _Scope) -> tuple[str, ...]:
        out = []
        for v in array.within:
            ref = scope.names[v]
            assert isinstance(ref, Ref)
            out.append(ref.name)
        return tuple(out)

    def _copy_array(self, name: str, scope: _Scope) -> str:
        """A local array with the life of an array of the function."""
        array = self.of[name]
        fresh = self.names.fresh(f"{name}_again")
        within = self._within(array, scope)
        self.arrays.append(replace(array, name=fresh, role="local", within=within))
        self.owner[fresh] = name
        return fresh

    def _adjoint_array(self, name: str, scope: _Scope) -> str:
        array = self.of[name]
        type_ = array.dtype.opmath
        fresh = self.names.fresh(f"d_{name}")
        self.owner[fresh] = name
        whole = array.role == "result" and self.kept[name] == "copied"
        if self.kept[name] == "once":
            self.sums.append(fresh)
            if array.saves:
                there = self.handed[fresh] = self.names.fresh(f"{fresh}_there")
                self.owner[there] = name
                self.arrays.append(Array(there, BOOL, array.shape, "local", _FALSE))
        fill = None if whole else number(0, type_)
        self.arrays.append(Array(fresh, type_, array.shape, "local", fill, self._within(array, scope)))
        return fresh

    def _elementwise(
        self, array: str, shape: tuple[Expr, ...], value: Callable[[tuple[Expr, ...]], Expr]
    ) -> list[Stmt]:
        """Store `value(index)` to every element."""
        variables = [self.names.fresh("i") for _ in shape]
        index = tuple(Ref(v, INT64) for v in variables)
        stmt: Stmt = Store(array, index, value(index))
        for v, extent in reversed(list(zip(variables, shape, strict=True))):
            stmt = For(v, number(0, INT64), extent, 1, (), (stmt,))
        return [stmt]

    def _copy(self, adjoint_array: str, name: str) -> list[Stmt]:
        return self._elementwise(adjoint_array, self.of[name].shape, lambda i: self._result_seed(name, i))

    def _pass_through(self, name: str) -> list[Stmt]:
        """An input that the function returns as it is."""
        gradient = self.gradients[name]
        type_ = self.of[name].dtype.opmath

        def value(index: tuple[Expr, ...]) -> Expr:
            return Op("add", (Load(gradient, index, type_), self._result_seed(name, index)), type_)

        return self._elementwise(gradient, self.of[name].shape, value)

    def _result_seed(self, name: str, index: tuple[Expr, ...]) -> Expr:
        type_ = self.of[name].dtype.opmath
        total: Expr = number(0, type_)
        for seed in self.seeds.get(name, ()):
            total = add(total, Load(seed, index, type_))
        return total

    def _lost(self, lost: _Lost, type_: ScalarType) -> Expr:
        """A value that cannot be had: an error, should the gradient turn out to need it."""
        name = self.names.fresh("lost")
        self.arrays.append(Array(name, type_, (), "local"))
        self.broken[name] = lost
        return Load(name, (), type_)

    # ---- values of the function

    def primal(self, e: Expr, scope: _Scope) -> Expr:
        """An expression of the function, evaluated in the adjoint."""
        match e:
            case Ref(name=name):
                return scope.names.get(name, e)
            case Load():
                index = tuple(self.primal(i, scope) for i in e.index)
                source = self._source(e, scope)
                if source is None:
                    return self._unavailable(e)
                return replace(e, array=source, index=index)
        old = operands(e)
        new = tuple(self.primal(o, scope) for o in old)
        return with_operands(e, new) if any(a is not b for a, b in zip(old, new, strict=True)) else e

    def _source(self, load: Load, scope: _Scope) -> str | None:
        """The array of the adjoint that holds what a load of the function yields."""
        array = load.array
        if array.startswith(_RETURNED):
            return self.saved[array.removeprefix(_RETURNED)]
        if self.of[array].role == "input":
            return array
        if array in self.saved and (array not in self.written or (array, load.index) in self.final):
            return self.saved[array]
        if array in scope.sweeping or (array, load.index) in self.final:
            return scope.copies.get(array)
        return None

    def _unavailable(self, load: Load) -> Expr:
        array = self.of[load.array]
        if array.name in self.written:
            why = f"an element of {array.name} is read here and overwritten later"
            return self._lost(_Lost(why, load.location), load.type)
        if array.fill is not None:
            return Const(array.fill.value, load.type)
        return self._lost(_Lost(f"no element of {array.name} is ever stored", load.location), load.type)

    def _tape(self, name: str, type_: ScalarType, loops: tuple[For, ...]) -> str | None:
        """The array that saves a name in every iteration of the loops around it; None where their sizes are unknown."""
        if name not in self.tapes:
            asked: list[Expr] = []
            found = extents(self.function, loops, asked)
            if found is None:
                return None
            if asked:
                unbounded = next(f for k, f in enumerate(loops) if extents(self.function, loops[: k + 1]) is None)
                self.asked |= dict.fromkeys(asked, unbounded.location)
            tape = self.names.fresh(f"{name}_saved")
            self.arrays.append(replace(expanded(tape, type_, found), saves=True))
            self.tapes[name] = (tape, loops)
        return self.tapes[name][0]

    def _tape_index(self, name: str, scope: _Scope) -> tuple[Expr, ...]:
        loops = self.tapes[name][1]
        found = extents(self.function, loops, [])
        assert found is not None
        return expanded_index(found, (scope.names[f.var] for f in loops))

    def _save(self, name: str, value: Ref, loops: tuple[For, ...], scope: _Scope, out: list[Stmt]) -> None:
        tape = self._tape(name, value.type, loops)
        if tape is not None:
            out.append(Store(tape, self._tape_index(name, scope), value))

    def _saved_value(self, name: str, type_: ScalarType, scope: _Scope) -> Expr:
        if name in self.tapes:
            return Load(self.tapes[name][0], self._tape_index(name, scope), type_)
        unbounded = next(f for k, f in enumerate(scope.loops) if extents(self.function, scope.loops[: k + 1], []) is None)
        return self._lost(_unbounded(self.named.get(name, base_name(name)), unbounded), type_)

    # ---- the sweep: the function again

    def sweep_block(self, statements: tuple[Stmt, ...], scope: _Scope, branch: bool, save: bool = True) -> list[Stmt]:
        """The sweep of a block; binds its names in scope. branch: it is a branch, where no array has its home.

        save: whether what the adjoints of the block's loops need of earlier iterations is saved.
        """
        depth = len(scope.path)
        here = [a for a in self.written if self.homes[a][:depth] == scope.path]
        if branch:
            here = [a for a in here if len(self.homes[a]) > depth]
        for array in here:
            if all(v in scope.names for v in self.of[array].within):
                scope.copies[array] = self._copy_array(array, scope)
        return self.sweep(statements, replace(scope, sweeping=frozenset(here), root=depth), save)

    def sweep(self, statements: tuple[Stmt, ...], scope: _Scope, top: bool) -> list[Stmt]:
        """The statements again; binds their names in scope. top: they are the block's own, whose loops are saved."""
        out: list[Stmt] = []
        for stmt in statements:
            self.location = stmt.location
            match stmt:
                case Let():
                    self._sweep_let(stmt, scope, top, out)
                case Store():
                    if stmt.array in scope.sweeping:
                        index = tuple(self.primal(i, scope) for i in stmt.index)
                        own = accumulation(stmt, alone=False)
                        copy = scope.copies[stmt.array]
                        if own is not None:
                            out.append(accumulate_into(copy, index, self.primal(own, scope), stmt))
                        else:
                            out.append(Store(copy, index, self.primal(stmt.value, scope), stmt.location))
                case If():
                    self._sweep_if(stmt, scope, out)
                case For():
                    self._sweep_loop(stmt, scope, top, out)
        return out

    def _sweep_let(self, stmt: Let, scope: _Scope, top: bool, out: list[Stmt]) -> None:
        if top and stmt.name in self.stored:
            scope.names[stmt.name] = self.primal(self.stored[stmt.name], scope)
            return
        array = self.named.get(stmt.name)
        if array is not None and array not in scope.sweeping:
            scope.names[stmt.name] = self._saved_value(stmt.name, stmt.value.type, scope)
            return
        ref = Ref(self.names.fresh(stmt.name), stmt.value.type)
        out.append(Let(ref.name, self.primal(stmt.value, scope), stmt.location))
        scope.names[stmt.name] = ref
        if array is not None and len(self.homes[array]) == scope.root:
            self._save(stmt.name, ref, scope.loops, scope, out)

    def _sweep_if(self, stmt: If, scope: _Scope, out: list[Stmt]) -> None:
        condition = self.primal(stmt.condition, scope)
        left, right = scope.fork(), scope.fork()
        then, orelse = self.sweep(stmt.then, left, False), self.sweep(stmt.orelse, right, False)
        merges = []
        for m in stmt.merges:
            name = self.names.fresh(m.name)
            merges.append(Merge(name, self.primal(m.then, left), self.primal(m.orelse, right)))
            scope.names[m.name] = Ref(name, m.type)
        out.append(If(condition, tuple(then), tuple(orelse), tuple(merges), stmt.location))

    def _sweep_loop(self, stmt: For, scope: _Scope, top: bool, out: list[Stmt]) -> None:
        var = self.names.fresh(stmt.var)
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        inner.names[stmt.var] = Ref(var, INT64)
        body: list[Stmt] = []
        carried = {c.name: Ref(self.names.fresh(c.name), c.type) for c in stmt.carries}
        inner.names.update(carried)
        for array in self.written:
            if array in scope.sweeping and self.of[array].within[-1:] == (stmt.var,):
                inner.copies[array] = self._copy_array(array, inner)
        if top:
            for c in stmt.carries:
                self._save(c.name, carried[c.name], inner.loops, inner, body)
        body += self.sweep(stmt.body, inner, False)
        carries = []
        for c in stmt.carries:
            result = self.names.fresh(c.result)
            init, after = self.primal(c.init, scope), self.primal(c.next, inner)
            carries.append(Carry(carried[c.name].name, init, after, result))
            stored = self.stored.get(c.result) if top else None
            scope.names[c.result] = Ref(result, c.type) if stored is None else self.primal(stored, scope)
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        out.append(replace(stmt, var=var, start=start, stop=stop, carries=tuple(carries), body=tuple(body)))

    # ---- the adjoint of statements

    def block(
        self,
        statements: tuple[Stmt, ...],
        scope: _Scope,
        seeds: Seeds,
        tail: Iterable[tuple[Expr, _Seed]],
        extrema: Iterable[tuple[_Extremum, Expr, _Seed]] = (),
        branch: bool = False,
    ) -> tuple[list[Stmt], Seeds]:
        """The sweep of a block and its adjoint; returns the statements and the adjoints of the names from around it.

        tail: pairs (an expression at the end of the block, its adjoint). extrema: (which, the last value or the iteration
        that has the adjoint, the share of each such element). branch: the block is a branch, where no array has its home.
        """
        for array in self.copied:
            within = self.of[array].within
            if within and scope.path[-1:] == within[-1:] and not branch:
                scope.adjoints[array] = self._adjoint_array(array, scope)
        out = self.sweep_block(statements, scope, branch)
        adj = dict(seeds)
        for e, seed in tail:
            self.backward(e, seed, scope, adj, out)
        for extremum, at, share_ in extrema:
            self._hand_to_elements(extremum, at, share_, scope, adj, out)
        for stmt in reversed(statements):
            self.location = stmt.location
            match stmt:
                case Let():
                    self._reverse_let(stmt, scope, adj, out)
                case Store():
                    self._reverse_store(stmt, scope, adj, out)
                case If():
                    self._reverse_if(stmt, scope, adj, out)
                case For():
                    self._reverse_loop(stmt, scope, adj, out)
        return out, adj

    def _bind(self, value: Expr, name: str, out: list[Stmt]) -> Expr:
        if isinstance(value, (Ref, Const)):
            return value
        fresh = self.names.fresh(name)
        self.temporary.add(fresh)
        if isinstance(value, Round):
            self.rounded[fresh] = value.to
        out.append(Let(fresh, value, self.location))
        return Ref(fresh, value.type)

    def _reverse_let(self, stmt: Let, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        seed = adj.pop(stmt.name, None)
        if seed is not None:
            bound = self._bind(self._rounded(stmt.name, seed.value), f"d_{stmt.name}", out)
            self.backward(stmt.value, replace(seed, value=bound), scope, adj, out)

    def _rounded(self, name: str, seed: Expr) -> Expr:
        """What is handed back to a name. To PyTorch a sum of products of two numbers of a 16-bit type is one of them, and so is
        its gradient: then the gradients of the factors are sums of products of two such numbers as well.
        """
        type_ = self.half_sums.get(name)
        if type_ is None or isinstance(seed, Const) or (isinstance(seed, Ref) and self.rounded.get(seed.name) == type_):
            return seed
        return Round(seed, type_)

    def _reverse_store(self, stmt: Store, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        kept = self.kept.get(stmt.array)
        if kept is None or (self.of[stmt.array].role == "local" and not self.memory.loaded_after(stmt.array, stmt.index)):
            return
        type_ = stmt.value.type
        index = tuple(self.primal(i, scope) for i in stmt.index)
        own = accumulation(stmt, alone=False)
        seed: Expr = number(0, type_)
        if kept != "copied" and self.of[stmt.array].role == "result":
            seed = self._result_seed(stmt.array, index)
        if stmt.array in scope.adjoints:
            seed = add(seed, Load(scope.adjoints[stmt.array], index, type_))
        handed = self.handed.get(scope.adjoints.get(stmt.array, ""))
        there = None if handed is None else Load(handed, index, BOOL)
        seed = self._bind(seed, f"d_{stmt.array}", out)
        if kept == "copied" and own is None and not self.memory.first(stmt.array, stmt.index):
            out.append(Store(scope.adjoints[stmt.array], index, number(0, type_), stmt.location))
        found = _Seed(seed, there, across=there is not None)
        self.backward(stmt.value if own is None else own, found, scope, adj, out)

    def _reverse_if(self, stmt: If, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        seeds = {m.name: adj.pop(m.name) for m in stmt.merges if m.name in adj}
        bound = {n: replace(s, value=self._bind(s.value, f"d_{n}", out)) for n, s in seeds.items()}
        left, right = scope.fork(), scope.fork()
        then, a = self.block(stmt.then, left, {}, _pairs(stmt.merges, bound, "then"), branch=True)
        orelse, b = self.block(stmt.orelse, right, {}, _pairs(stmt.merges, bound, "orelse"), branch=True)
        self._join(self.primal(stmt.condition, scope), (then, a), (orelse, b), adj, out)

    def _join(
        self,
        condition: Expr,
        then: tuple[list[Stmt], Seeds],
        orelse: tuple[list[Stmt], Seeds],
        adj: Seeds,
        out: list[Stmt],
    ) -> None:
        """A branch whose two sides contribute to adjoints."""
        names = tuple(dict.fromkeys((*then[1], *orelse[1])))
        if names:
            condition = self._bind(condition, "taken", out)
        merges: list[Merge] = []
        for name in names:
            sides = (then[1].get(name), orelse[1].get(name))
            type_ = next(s.type for s in sides if s is not None)
            values = [number(0, type_) if s is None else s.settled for s in sides]
            merge = Merge(self.names.fresh(f"d_{name}"), *values)
            self.temporary.add(merge.name)
            merges.append(merge)
            there = [_FALSE if s is None else _TRUE if s.when is None else s.when for s in sides]
            when: Expr | None
            if there == [_TRUE, _TRUE]:
                when = None
            elif set(there) == {_TRUE, _FALSE}:
                when = condition if there[0] == _TRUE else _not(condition)
            else:
                handed = Merge(self.names.fresh(f"d_{name}_there"), *there)
                merges.append(handed)
                when = Ref(handed.name, BOOL)
            across = any(s.across for s in sides if s is not None)
            self._contribute(adj, name, _Seed(Ref(merge.name, type_), when, across))
        if merges or then[0] or orelse[0]:
            out.append(If(condition, tuple(then[0]), tuple(orelse[0]), tuple(merges), self.location))

    def _contribute(self, adj: Seeds, name: str, seed: _Seed) -> None:
        adj[name] = adj[name] + seed if name in adj else seed

    # ---- loops

    def _reverse_loop(self, stmt: For, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        location = stmt.location
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        var = Ref(self.names.fresh(stmt.var), INT64)
        inner.names[stmt.var] = var
        prologue: list[Stmt] = []
        for c in stmt.carries:
            before = self._before(stmt, c, inner)
            ref = Ref(self.names.fresh(c.name), c.type)
            prologue.append(Let(ref.name, before, location))
            inner.names[c.name] = ref
        extrema: list[tuple[_Extremum, Expr, _Seed]] = []
        carried: dict[str, tuple[Carry, _Seed, _Seed | None]] = {}
        for c in stmt.carries:
            seed = adj.pop(c.result, None)
            if seed is not None:
                seed = replace(seed, value=self._bind(self._rounded(c.result, seed.value), f"d_{c.result}", out))
            if c.name in self.divided:
                extrema.append(self.divided.pop(c.name))
                continue
            if c.name not in self.active and c.result not in self.active:
                continue
            extremum = _extremum(stmt, c)
            if extremum is not None and extremum.ties is not None:
                if seed is not None:
                    extrema.append(self._divided(stmt, extremum, seed, scope, adj, out))
                continue
            ref = Ref(self.names.fresh(f"d_{c.name}"), c.type)
            there = Ref(self.names.fresh(f"d_{c.name}_there"), BOOL)
            carried[c.name] = (c, _Seed(ref, there, across=True), seed)
        tail = [(c.next, own) for c, own, _ in carried.values()]
        body, contributed = self.block(stmt.body, inner, {}, tail, extrema)
        carries: list[Carry] = []
        handed: list[tuple[Carry, _Seed]] = []
        unchanged = True
        for name, (c, own, last) in carried.items():
            after = contributed.pop(name, None)
            carries += self._carried_seed(own, last, after)
            unchanged = unchanged and after is not None and after.settled == own.value
            handed.append((c, _Seed(Ref(carries[-2].result, c.type), Ref(carries[-1].result, BOOL), across=True)))
        for name, seed in contributed.items():
            total = Ref(self.names.fresh(f"d_{name}_sum"), seed.type)
            result = Ref(self.names.fresh(f"d_{name}_sum"), seed.type)
            carries.append(Carry(total.name, number(0, seed.type), add(total, seed.settled), result.name))
            self._contribute(adj, name, _Seed(result, self._in_some_iteration(stmt, seed, scope, carries), across=True))
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        step = stmt.step
        if not unchanged or self._orders_memory(body, stmt.var):
            start, stop, step = _reversed(start, stop, step)
        loop = For(var.name, start, stop, step, tuple(carries), (*prologue, *body), stmt.implied, location)
        out.append(loop)
        self.location = location
        for c, seed in handed:
            self.backward(c.init, seed, scope, adj, out)

    def _carried_seed(self, own: _Seed, init: _Seed | None, after: _Seed | None) -> tuple[Carry, Carry]:
        """The carries of the adjoint of a carried scalar and of where it is: what it starts with, and what comes after an
        iteration.
        """

        def value(seed: _Seed | None) -> Expr:
            return number(0, own.type) if seed is None else seed.settled

        def there(seed: _Seed | None) -> Expr:
            return _FALSE if seed is None else _TRUE if seed.when is None else seed.when

        assert isinstance(own.value, Ref) and isinstance(own.when, Ref)
        results = [self.names.fresh(base_name(n)) for n in (own.value.name, own.when.name)]
        return (
            Carry(own.value.name, value(init), value(after), results[0]),
            Carry(own.when.name, there(init), there(after), results[1]),
        )

    def _in_some_iteration(self, loop: For, seed: _Seed, scope: _Scope, carries: list[Carry]) -> Expr | None:
        """Where an iteration of a loop handed something on; loops over sizes are taken to have iterations."""
        if seed.when is None:
            sizes = {s.name for s in self.function.sizes}
            if free_names(loop.start) | free_names(loop.stop) <= sizes:
                return None
            ends = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
            return self.primal(Op("lt", ends, BOOL), scope)
        there, result = Ref(self.names.fresh("there"), BOOL), Ref(self.names.fresh("there"), BOOL)
        carries.append(Carry(there.name, _FALSE, Op("or", (there, seed.when), BOOL), result.name))
        return result

    def _orders_memory(self, statements: Iterable[Stmt], var: str) -> bool:
        """Whether the statements change memory that iterations of the loop over `var` share, so that order matters."""
        gradients = set(self.gradients.values())
        saved = {tape for tape, _ in self.tapes.values()}
        made = {s.array for s in walk(tuple(statements)) if isinstance(s, Store)}
        return any(self.memory.shared(self.owner[a], var) for a in made - gradients - saved)

    def _before(self, loop: For, c: Carry, scope: _Scope) -> Expr:
        """The value of a carried scalar when an iteration starts, in the adjoint's iteration."""
        back = self._read_back(loop, c)
        if back is not None:
            return self.primal(back, scope)
        return self._saved_value(c.name, c.type, scope)

    def _read_back(self, loop: For, c: Carry) -> Expr | None:
        """The value at the start of an iteration, from what the iteration before stored, or from what it read."""
        stored: dict[Expr, Load] = {}
        for s in loop.body:
            if isinstance(s, Store) and s.array in self.saved and self.memory.last(s.array, s.index, write=True):
                stored.setdefault(s.value, Load(_returned(s.array), s.index, s.value.type))
        lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
        inside = {n for s in loop.body for n in bound_names(s)} | {k.name for k in loop.carries}

        nodes = itertools.count()  # of what is written out, in which a name that is used twice is there twice

        def resolve(e: Expr) -> Expr | None:
            if next(nodes) > _MOST_READ_BACK:
                return None
            if e in stored:
                target = stored[e]
                index = [resolve(i) for i in target.index]
                found = [i for i in index if i is not None]
                return replace(target, index=tuple(found)) if len(found) == len(index) else None
            if isinstance(e, Ref) and e.name in inside:
                return resolve(lets[e.name]) if e.name in lets and e.name not in self.named else None
            if isinstance(e, Load) and e.array in self.written:
                if (e.array, e.index) not in self.final or e.array not in self.saved:
                    return None
                e = replace(e, array=_returned(e.array))
            old = operands(e)
            new = [resolve(o) for o in old]
            known = tuple(o for o in new if o is not None)
            if len(known) != len(old):
                return None
            return with_operands(e, known) if known != old else e

        after = resolve(c.next)
        if after is None:
            return None
        var = Ref(loop.var, INT64)
        earlier = fold(Op("sub", (var, Const(loop.step, INT64)), INT64))
        later = Op("gt" if loop.step > 0 else "lt", (var, loop.start), BOOL)
        moved = _substitute_loads(after, {loop.var: earlier})
        return select(later, moved, c.init)

    # ---- extrema

    def _divided(
        self, stmt: For, extremum: _Extremum, seed: _Seed, scope: _Scope, adj: Seeds, out: list[Stmt]
    ) -> tuple[_Extremum, Expr, _Seed]:
        """Find who attains the extremum, the start among them, and what of the adjoint each of them has."""
        c, loops = extremum.carry, (stmt, *extremum.loops)
        last, init = scope.names[c.result], self.primal(c.init, scope)
        same = self._has_same_bits(extremum)
        if not same and not extremum.wins:
            init = self._bind(init, "start", out)
            extremum, last = self._kept(extremum, loops, init, scope, out)
        starts: Expr = Op("eq", (init, last), BOOL)
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        value = self._bind(seed.settled, f"d_{c.name}", out)
        share_, at = value, last
        if extremum.ties == "shared":
            infinite = isinstance(c.init, Const) and abs(float(c.init.value)) == float("inf")
            one, zero = number(1, c.type), number(0, c.type)
            count = zero if infinite else select(starts, one, zero)

            def counted(element: _Element) -> tuple[Expr, ...]:
                return (add(element.before[0], select(self._attains(extremum, last, element.scope), one, zero)),)

            (count,) = self._over_elements(extremum, loops, {"ties": count}, scope, out, counted)
            if extremum.nan == "all":
                count = select(Op("isnan", (last,), BOOL), number(math.nan, c.type), count)
            share_ = self._bind(div(value, count), f"d_{c.name}", out)
        else:
            nowhere = stop if extremum.ties == "first" else _moved(start, -stmt.step // abs(stmt.step))
            if extremum.loops:
                counts = [self._count(f, scope) for f in loops]
                nowhere = functools.reduce(mul, counts) if extremum.ties == "first" else Const(-1, INT64)
            # Python's max keeps the start where it is attained by it
            if same or extremum.kept:
                # a minimum or a maximum of the iterations that attain it
                least = "min" if (extremum.ties == "first") == (stmt.step > 0) else "max"

                def placed(element: _Element) -> tuple[Expr, ...]:
                    attains = self._attains(extremum, last, element.scope)
                    return (Op(least, (element.before[0], select(attains, element.place, nowhere)), INT64),)

                (at,) = self._over_elements(extremum, loops, {"place": nowhere}, scope, out, placed)
                at = self._bind(select(starts, nowhere, at) if extremum.ties == "first" else at, "place", out)
            else:
                at = self._place_of_best(extremum, loops, init, nowhere, scope, out)
            starts = Op("eq", (at, nowhere), BOOL)
        if any(True for _ in sources(c.init)):
            starts = self._bind(starts, "starts", out)
            own = self._bind(select(starts, share_, number(0, c.type)), f"d_{c.name}", out)
            self.backward(c.init, _Seed(own, _both(seed.when, starts), seed.across), scope, adj, out)
        return extremum, at, replace(seed, value=share_, spoilt=False)

    def _place_of_best(
        self, extremum: _Extremum, loops: tuple[For, ...], init: Expr, nowhere: Expr, scope: _Scope, out: list[Stmt]
    ) -> Expr:
        """The place of the element that was the best in the end. What is compared are elements that one loop computes: others
        may be told apart from them by their last bits (sums in another order, products that are contracted with sums).
        """

        def better(element: _Element) -> tuple[Expr, ...]:
            (best, place), value = element.before, self.primal(extremum.element, element.scope)
            wins: Expr = Op(extremum.wins, (value, best), BOOL)
            if extremum.condition is not None:
                wins = Op("and", (self.primal(extremum.condition, element.scope), wins), BOOL)
            return select(wins, value, best), select(wins, element.place, place)

        return self._over_elements(extremum, loops, {"best": init, "place": nowhere}, scope, out, better)[1]

    def _kept(
        self, extremum: _Extremum, loops: tuple[For, ...], init: Expr, scope: _Scope, out: list[Stmt]
    ) -> tuple[_Extremum, Expr]:
        """The extremum with its elements saved, and its last value, found of what was saved."""
        name, type_ = extremum.carry.name, extremum.carry.type
        condition = _TRUE if extremum.condition is None else extremum.condition
        innermost = extremum
        while innermost.nested is not None:
            innermost = innermost.nested[1]
        itself = Ref(innermost.carry.name, type_)

        def saved(element: _Element) -> tuple[Expr, ...]:
            around = element.scope.loops
            there, value = Ref(self.names.fresh("there"), BOOL), Ref(self.names.fresh("element"), type_)
            element.out.append(Let(there.name, self.primal(condition, element.scope), self.location))
            element.out.append(Let(value.name, self.primal(extremum.element, element.scope), self.location))
            self._save(_there(name), there, around, element.scope, element.out)
            self._save(_element(name), value, around, element.scope, element.out)
            best = element.before[0]
            update = replace(extremum.update, args=tuple(best if a == itself else value for a in extremum.update.args))
            return (select(there, update, best),)

        (last,) = self._over_elements(extremum, loops, {"best": init}, scope, out, saved)
        return replace(extremum, kept=name), last

    def _has_same_bits(self, extremum: _Extremum) -> bool:
        """Whether elements, and when they are any, have the same bits wherever they are computed."""
        made_of = [extremum.element] if extremum.condition is None else [extremum.element, extremum.condition]
        return all(self._roundings(e) <= 1 for e in made_of)

    def _roundings(self, e: Expr) -> float:
        """Of how many operators that round an expression is made; infinity where it may have other bits elsewhere."""
        match e:
            case Const():
                return 0
            case Ref(name=name):
                if name not in self.roundings:  # once for each name: names that are used twice would double the work each time
                    other = 0 if name in self.unchanging else math.inf
                    self.roundings[name] = self._roundings(self.lets[name]) if name in self.lets else other
                return self.roundings[name]
            case Load():
                exact = self.of[e.array].role == "input" and all(self._roundings(i) == 0 for i in e.index)
                return 0 if exact else math.inf
            case Op(name=name):
                inside = [self._roundings(o) for o in operands(e)]
                if name in _EXACT or e.type.category != "float" and name in _ROUNDED_ONCE:
                    return max(inside)
                return 1 + sum(inside) if name in _ROUNDED_ONCE else math.inf
            case Cast() | Round():
                return sum(self._roundings(o) for o in operands(e))
        return math.inf

    def _over_elements(
        self,
        extremum: _Extremum,
        loops: tuple[For, ...],
        inits: Mapping[str, Expr],
        scope: _Scope,
        out: list[Stmt],
        update: Callable[[_Element], tuple[Expr, ...]],
        around: tuple[For, ...] = (),
    ) -> tuple[Expr, ...]:
        """What loops over the elements carry, by names with what they start with. around: of these loops, those that are around
        the statements already.
        """
        stmt, *inside = loops
        var = Ref(self.names.fresh(stmt.var), INT64)
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        inner.names[stmt.var] = var
        last = scope.names[extremum.carry.result]
        body: list[Stmt] = []
        made_of = [] if extremum.kept else [extremum.element]
        made_of += [e for f in extremum.loops for e in (f.start, f.stop)]
        made_of += [] if extremum.condition is None or extremum.kept else [extremum.condition]
        uses = Uses.of(stmt.body)
        needed = uses.closure({n for e in made_of for n in free_names(e)})
        if around:  # what a loop inside carries is not saved here: it is carried again
            while more := {n for k in stmt.carries if k.name in needed for n in uses.closure(free_names(k.next))} - needed:
                needed = needed | more
        again: list[tuple[Carry, str]] = []
        for k in stmt.carries:
            if extremum.nested is not None and k.name in extremum.names:
                continue
            if k.name not in needed:  # as where it is: nothing that uses it is left
                inner.names[k.name] = number(0, k.type)
                continue
            ref = Ref(self.names.fresh(k.name), k.type)
            if around:
                again.append((k, ref.name))
            else:
                body.append(Let(ref.name, self._before(stmt, k, inner), stmt.location))
            inner.names[k.name] = ref
        body += self.sweep_block(stmt.body, inner, branch=False, save=False)
        before = [Ref(self.names.fresh(n), e.type) for n, e in inits.items()]
        results = [Ref(self.names.fresh(n), e.type) for n, e in inits.items()]
        if inside:
            inner.names[extremum.carry.result] = last
            own = dict(zip(inits, before, strict=True))
            after = self._over_elements(extremum, tuple(inside), own, inner, body, update, (*around, stmt))
        else:
            after = update(_Element(tuple(before), self._place((*around, stmt), inner), inner, body))
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        carries = [Carry(b.name, e, a, r.name) for b, e, a, r in zip(before, inits.values(), after, results, strict=True)]
        for k, carried in again:
            carries.append(Carry(carried, self.primal(k.init, scope), self.primal(k.next, inner), self.names.fresh(k.result)))
        out.append(For(var.name, start, stop, stmt.step, tuple(carries), tuple(body), stmt.implied, stmt.location))
        return tuple(results)

    def _place(self, loops: tuple[For, ...], scope: _Scope) -> Expr:
        """Which iteration of loops in each other this is: their number, of one loop its variable."""
        if len(loops) == 1:
            return scope.names[loops[0].var]
        place: Expr = Const(0, INT64)
        for f in loops:
            place = add(mul(place, self._count(f, scope)), sub(scope.names[f.var], self.primal(f.start, scope)))
        return place

    def _count(self, loop: For, scope: _Scope) -> Expr:
        return fold(sub(self.primal(loop.stop, scope), self.primal(loop.start, scope)))

    def _attains(self, extremum: _Extremum, last: Expr, scope: _Scope) -> Expr:
        condition = extremum.condition
        if extremum.kept:
            element = self._saved_value(_element(extremum.kept), extremum.carry.type, scope)
            there = None if condition is None else self._saved_value(_there(extremum.kept), BOOL, scope)
        else:
            element = self.primal(extremum.element, scope)
            there = None if condition is None else self.primal(condition, scope)
        attains: Expr = Op("eq", (element, last), BOOL)
        if extremum.nan != "none":
            neither: Expr = Op("isnan", (last,), BOOL)
            if extremum.nan == "nan":
                neither = Op("and", (Op("isnan", (element,), BOOL), neither), BOOL)
            attains = Op("or", (attains, neither), BOOL)
        return attains if there is None else Op("and", (there, attains), BOOL)

    def _hand_to_elements(
        self, extremum: _Extremum, at: Expr, share_: _Seed, scope: _Scope, adj: Seeds, out: list[Stmt]
    ) -> None:
        if extremum.nested is not None:
            nested = replace(extremum.nested[1], around=(*extremum.around, scope.loops[-1]), kept=extremum.kept)
            self.divided[nested.carry.name] = (nested, at, share_)
            return
        inside: list[Stmt] = []
        taken_: Seeds = {}
        self.backward(extremum.element, share_, scope, taken_, inside)
        if extremum.ties == "shared":
            condition = self._attains(extremum, at, scope)
        else:
            condition = Op("eq", (self._place((*extremum.around, scope.loops[-1]), scope), at), BOOL)
        self._join(condition, (inside, taken_), ([], {}), adj, out)

    # ---- expressions

    def _moves(self, e: Expr) -> bool:
        """Whether the expression has an active source."""
        known = self.moving.get(e)
        if known is None:
            match e:
                case Load():
                    known = e.type.category == "float" and e.array in self.active_arrays
                case Ref():
                    known = e.type.category == "float" and e.name in self.active
                case _:
                    known = any([self._moves(o) for o in passed_through(e)])
            self.moving[e] = known
        return known

    def backward(self, e: Expr, seed: _Seed, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        """Hand the adjoint of an expression on to the names and elements it is made of."""
        if self._moves(e):
            self._backward(e, self.primal(e, scope), seed, scope, adj, out)

    def _backward(self, e: Expr, primal: Expr, seed: _Seed, scope: _Scope, adj: Seeds, out: list[Stmt]) -> None:
        """`backward`; primal: the expression evaluated in the adjoint."""
        if not self._moves(e) or (isinstance(seed.value, Const) and seed.value.value == 0):
            return
        match e:
            case Ref(name=name):
                self._contribute(adj, name, seed)
            case Load():
                self._deposit(e, seed, scope, out)
            case Cast(value=value) | Round(value=value):
                if seed.type != value.type:
                    seed = replace(seed, value=Cast(seed.value, value.type))
                self._backward(value, operands(primal)[0], seed, scope, adj, out)
            case Op(name="where", args=(_, a, b), derivative=""):
                condition, *sides = operands(primal)
                seed = replace(seed, value=self._bind(seed.value, "d", out))
                then: tuple[list[Stmt], Seeds] = ([], {})
                orelse: tuple[list[Stmt], Seeds] = ([], {})
                self._backward(a, sides[0], seed, scope, then[1], then[0])
                self._backward(b, sides[1], seed, scope, orelse[1], orelse[0])
                self._join(condition, then, orelse, adj, out)
            case Op():
                self._through_operator(e, operands(primal), seed, scope, adj, out)

    def _through_operator(
        self, e: Op, primal: tuple[Expr, ...], seed: _Seed, scope: _Scope, adj: Seeds, out: list[Stmt]
    ) -> None:
        if sum(map(self._moves, e.args)) > 1:
            seed = replace(seed, value=self._bind(seed.value, "d", out))
        args = e.args
        result = replace(e, args=primal)
        parts, chosen = contributions(e, seed.value, primal, result), taken(e, primal)
        if len(args) == 2 and args[0] == args[1] and None not in parts:
            args, parts, chosen = args[:1], (add(parts[0], parts[1]),), None  # type: ignore[arg-type]
        if seed.when is not None and not keeps_zero(result, seed.across and not self._may_be_infinite(e)):
            seed = replace(seed, spoilt=True)
        for k, (a, part) in enumerate(zip(args, parts, strict=True)):
            if not self._moves(a):
                continue
            if is_unknown(e, k):
                raise NotDifferentiable(
                    f"the derivative of {e.name} with respect to its operand {k} is not known",
                    location=self.function.location,
                    remedy="compute it without gradients (torch.no_grad, detach), or write it as a function of your own",
                )
            if part is None:
                continue
            when = seed.when if chosen is None else _both(seed.when, self._bind(chosen[k], "taken", out))
            self._backward(a, primal[k], replace(seed, value=part, when=when), scope, adj, out)

    def _may_be_infinite(self, e: Expr) -> bool:
        return bool(self.infinite) and any(
            (isinstance(x, Const) and not math.isfinite(x.value))
            or (isinstance(x, Ref) and x.name in self.infinite)
            or (isinstance(x, Load) and x.array in self.infinite)
            for x in walk_expr(e)
        )

    def _deposit(self, load: Load, seed: _Seed, scope: _Scope, out: list[Stmt]) -> None:
        index = tuple(self.primal(i, scope) for i in load.index)
        target = self.gradients.get(load.array) or scope.adjoints[load.array]
        location = load.location or self.location
        out.append(replace(accumulate_into(target, index, seed.settled), location=location))
        handed = self.handed.get(target)
        if handed is not None:
            there: Expr = _TRUE if seed.when is None else Op("or", (Load(handed, index, BOOL), seed.when), BOOL)
            out.append(Store(handed, index, there, location))


# ---------------------------------------------------------------- helpers


def _loader(array: Array) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda index: Load(array.name, index, array.dtype.opmath)


def _pairs(merges: tuple[Merge, ...], seeds: Seeds, side: Literal["then", "orelse"]) -> list[tuple[Expr, _Seed]]:
    return [(getattr(m, side), seeds[m.name]) for m in merges if m.name in seeds]


def _moved(index: Expr, by: int) -> Expr:
    return fold(Op("add", (index, Const(by, INT64)), INT64))


def _reversed(start: Expr, stop: Expr, step: int) -> tuple[Expr, Expr, int]:
    """The same iterations, last first."""
    one = Const(1, INT64)
    if step == 1:
        return fold(Op("sub", (stop, one), INT64)), fold(Op("sub", (start, one), INT64)), -1
    if step == -1:
        return fold(Op("add", (stop, one), INT64)), fold(Op("add", (start, one), INT64)), 1
    ends = (stop, start) if step > 0 else (start, stop)
    span = Op("sub", (fold(Op("sub", ends, INT64)), one), INT64)
    count = Op("floordiv", (fold(span), Const(abs(step), INT64)), INT64)
    last = Op("add", (start, Op("mul", (count, Const(step, INT64)), INT64)), INT64)
    return last, fold(Op("sub" if step > 0 else "add", (start, one), INT64)), -step


def _substitute_loads(expr: Expr, names: dict[str, Expr]) -> Expr:
    """Substitute and fold the indices, keeping the shape of the expression around them."""
    if isinstance(expr, Load):
        return replace(expr, index=tuple(fold(substitute(i, names)) for i in expr.index))
    if isinstance(expr, Ref):
        return names.get(expr.name, expr)
    old = operands(expr)
    new = tuple(_substitute_loads(o, names) for o in old)
    return with_operands(expr, new) if any(a is not b for a, b in zip(old, new, strict=True)) else expr
