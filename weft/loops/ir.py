"""The loop nest: the one program form between the language and the tile graph.

A function is a list of statements in static single assignment: every bound name is unique in its function, a
scalar carried by a loop is an explicit `Carry`, and a scalar merged by a branch is an explicit `Merge`. So a scalar
that is private to an iteration is private by construction, and the only hidden dependences are through arrays.

Expressions are typed by register types (`weft.loops.types`): all operands of an `Op` already have the type it computes in,
with explicit `Cast`s where the Python has implicit ones. A `Load` yields the op-math type of its array's memory type, a
`Store` rounds to the memory type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from operator import is_not
from typing import Literal, TypeVar

from weft.errors import Location
from weft.loops.operators import OPERATORS
from weft.loops.types import BOOL, INT64, ScalarType

# ---------------------------------------------------------------- expressions


T = TypeVar("T")


def _made_quickly(kind: type[T]) -> type[T]:
    """A frozen dataclass with an `__init__` that puts the fields where they lie. The dataclass's own calls
    `object.__setattr__` for each, which takes twice as long, and programs are expressions above all.
    """
    own = fields(kind)  # type: ignore[arg-type]
    parameters = (f.name if f.default is MISSING else f"{f.name}=default_{f.name}" for f in own)
    lines = [f"def __init__(self, {', '.join(parameters)}):", "known = self.__dict__"]
    scope = {f"default_{f.name}": f.default for f in own}
    exec("\n    ".join([*lines, *(f"known[{f.name!r}] = {f.name}" for f in own)]), scope)
    kind.__init__ = scope["__init__"]  # type: ignore[assignment]
    return kind


class _Hashed:
    """Expressions are trees, as deep as the program's own, and are looked up by what they are again and again: each
    remembers its hash and the names in it, so that asking takes no walk to its leaves.
    """

    def _parts(self) -> tuple[object, ...]:
        raise NotImplementedError

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = hash(self._parts())
            object.__setattr__(self, "_hash", known)
        return known

    def __getstate__(self) -> dict[str, object]:
        # what is remembered is not the expression's, and hashes of strings are the process's own
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


@_made_quickly
@dataclass(frozen=True)
class Const:
    value: bool | int | float
    type: ScalarType


@_made_quickly
@dataclass(frozen=True)
class Ref:
    """A size, a scalar parameter, a loop variable, or a name bound by Let, Carry or Merge."""

    name: str
    type: ScalarType


@_made_quickly
@dataclass(frozen=True)
class Load(_Hashed):
    """`array[index]`, one element. Indices are int64 expressions, never negative when executed."""

    array: str
    index: tuple[Expr, ...]
    type: ScalarType
    location: Location | None = field(default=None, compare=False)

    __hash__ = _Hashed.__hash__

    def _parts(self) -> tuple[object, ...]:
        return self.array, self.index, self.type


@_made_quickly
@dataclass(frozen=True)
class Op(_Hashed):
    """An operator of `weft.loops.operators.OPERATORS`. `where`, `and`, `or` evaluate only what they need.

    derivative: the rule of `weft.loops.derivatives` for it, where that is not the operator's own: `relu(x)` has the value of
    `maximum(x, 0)`, and another derivative at 0. It does not tell values apart.
    """

    name: str
    args: tuple[Expr, ...]
    type: ScalarType
    derivative: str = field(default="", compare=False)

    __hash__ = _Hashed.__hash__

    def _parts(self) -> tuple[object, ...]:
        return self.name, self.args, self.type


FaultKind = Literal["division", "overflow", "domain", "power", "store", "index", "overlap"]


@dataclass(frozen=True)
class Fault:
    """What Python raises where a condition does not hold. traps: a GPU stops there too; without it, code for a GPU goes on
    with what the operation gives. condition: what must hold, as text.
    """

    kind: FaultKind
    what: str
    traps: bool = True
    location: Location | None = None
    condition: str = ""


@_made_quickly
@dataclass(frozen=True)
class Check(Op):
    """The operator `check`: its first operand where the second holds, else the program ends with `fault`."""

    fault: Fault = Fault("overflow", "")

    __hash__ = _Hashed.__hash__

    def _parts(self) -> tuple[object, ...]:
        return *super()._parts(), self.fault


@_made_quickly
@dataclass(frozen=True)
class Cast(_Hashed):
    """Conversion to a register type, as C does it (float to int truncates)."""

    value: Expr
    type: ScalarType

    __hash__ = _Hashed.__hash__

    def _parts(self) -> tuple[object, ...]:
        return self.value, self.type


@_made_quickly
@dataclass(frozen=True)
class Round(_Hashed):
    """Rounding to a memory type (float16, bfloat16) and back to its op-math type: `.half()`, `.to(dtype)`."""

    value: Expr
    to: ScalarType

    __hash__ = _Hashed.__hash__

    def _parts(self) -> tuple[object, ...]:
        return self.value, self.to

    @property
    def type(self) -> ScalarType:
        return self.to.opmath


Expr = Const | Ref | Load | Op | Cast | Round
ZERO, ONE = Const(0, INT64), Const(1, INT64)
TRUE, FALSE = Const(True, BOOL), Const(False, BOOL)

# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Let:
    name: str
    value: Expr
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Store:
    array: str
    index: tuple[Expr, ...]
    value: Expr
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Carry:
    """A scalar that a loop carries: `name` is its value when an iteration starts, `init` (in scope before the loop)
    when the first one does, `next` (in scope at the end of the body) when it ends; `result` names it after the loop.
    """

    name: str
    init: Expr
    next: Expr
    result: str

    @property
    def type(self) -> ScalarType:
        return self.init.type


@dataclass(frozen=True)
class Segment:
    """What is known of the ranges of a loop whose bounds data decide: those of one `name` have no number in common, where they
    are of different `owner`s `among` the same, and all lie in 0 <= number < each of `limits`.
    """

    name: str
    owner: Expr
    among: tuple[Expr, ...]
    limits: tuple[Expr, ...]

    def mapped(self, change: Callable[[Expr], Expr]) -> Segment:
        """The segment with other names of loops."""
        return replace(self, owner=change(self.owner), among=tuple(map(change, self.among)))


@dataclass(frozen=True)
class For:
    """`for var in range(start, stop, step)`. step is a non-zero constant. `implied`: it came from a slice, not a for.
    segment: what a condition around it says of its ranges. apart: it is no kernel together with what is before it.
    """

    var: str
    start: Expr
    stop: Expr
    step: int
    carries: tuple[Carry, ...]
    body: tuple[Stmt, ...]
    implied: bool = False
    location: Location | None = field(default=None, compare=False)
    segment: Segment | None = None
    apart: bool = False

    def __hash__(self) -> int:
        # accesses are kept in dictionaries with the loops around them: a whole body is too much to hash each time
        return hash((self.var, self.step))


@dataclass(frozen=True)
class Merge:
    """After an If, `name` is `then` (in scope at the end of the then-branch) or `orelse`."""

    name: str
    then: Expr
    orelse: Expr

    @property
    def type(self) -> ScalarType:
        return self.then.type


@dataclass(frozen=True)
class If:
    """rare: the condition holds for inputs that nobody expects, and then it is of no account how long the branch takes."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]
    merges: tuple[Merge, ...]
    location: Location | None = field(default=None, compare=False)
    rare: bool = False


Stmt = Let | Store | For | If

# ---------------------------------------------------------------- functions


@dataclass(frozen=True)
class Array:
    """An array of the function.

    role: "input" (a tensor argument that is only read), "inout" (an argument that is written), "result" (made here and
    returned), "local" (made here, not returned).
    shape: int64 expressions over sizes and scalar parameters; for an argument each is a Ref to the size of that axis.
    fill: the value every element has at first; None where it has none (`torch.empty`).
    within: the loop variables around its creation, outermost first: a fresh one for every iteration of them; its shape
    is then constant. () for arrays of the whole call.
    rounds: a value that is stored and read again is the rounded one. Gradients are sums whose order is not the program's:
    what is added up in them may stay in the op-math type for as long as it is in a scalar.
    saves: its elements are what a scalar was in each iteration, kept for the adjoint, and no elements of the user's.
    contiguous: it is so whatever the strides of the arguments are (`torch.empty(shape)`); a result that is not takes the
    order of strides of an argument that has its shape, as `torch.empty_like` and operators do. like: of which, where told.
    batches: so many first axes are the elements of batches, for each of which the order of strides is decided alone.
    called: what the user calls it, "" where that is its name. stands_for: of the array that is called so, the axis whose
    subscripts this one's are; None where it is an array like any.
    """

    name: str
    dtype: ScalarType
    shape: tuple[Expr, ...]
    role: Literal["input", "inout", "result", "local"]
    fill: Const | None = None
    within: tuple[str, ...] = ()
    location: Location | None = field(default=None, compare=False)
    rounds: bool = True
    saves: bool = False
    contiguous: bool = False
    like: str = ""
    batches: int = 0
    called: str = field(default="", compare=False)
    stands_for: int | None = field(default=None, compare=False)

    @property
    def user_name(self) -> str:
        return self.called or self.name


@dataclass(frozen=True)
class Size:
    """`name` is the size of axis `axis` of the argument `array`."""

    name: str
    array: str
    axis: int


@dataclass(frozen=True)
class Scalar:
    """A scalar parameter, of type bool, int64 or float64; or a number that is computed from sizes and other scalars.

    value: what it is computed by; None: it is a parameter.
    """

    name: str
    type: ScalarType
    value: Expr | None = None


@dataclass(frozen=True)
class Equality:
    """What the Python would check when the call runs: these two sizes agree (`what` says why).

    expected: the Python does not ask for it; the function is for those calls alone in which it holds.
    """

    left: Expr
    right: Expr
    what: str
    location: Location | None = field(default=None, compare=False)
    expected: bool = False


@dataclass(frozen=True)
class Demand:
    """A condition on sizes and scalars without which the Python raises `fault`, whatever the tensors hold."""

    condition: Expr
    fault: Fault


@dataclass(frozen=True)
class Idle:
    """Where a condition on sizes and scalars holds, loops do not run whose accesses tell that subscripts of an array are inside
    it: calls then need kernels that check the array's own (`checked`).
    """

    array: str
    condition: Expr


@dataclass(frozen=True)
class Asked:
    """What a call's sizes are to show of an integer, or condition, over them and the variables of loops: what it checks holds,
    and it lies in 0 <= index < extent (None: anywhere). name: of the subscript or the name that it is. loops: those around it
    that it depends on, without bodies; guard: what holds where it is evaluated.
    """

    name: str
    index: Expr
    extent: Expr | None
    loops: tuple[For, ...]
    guard: tuple[tuple[Expr, bool], ...]


@dataclass(frozen=True)
class Sized:
    """What is taken to be shown by the sizes of the calls that a function is for (`weft.loops.sized`). axes: (array, axis) of
    which every subscript is inside wherever it is evaluated; everywhere: those of which it is so in all iterations of the loops
    around, whatever the conditions.
    """

    axes: frozenset[tuple[str, int]]
    everywhere: frozenset[tuple[str, int]]
    asked: tuple[Asked, ...]


NOT_SIZED = Sized(frozenset(), frozenset(), ())


@dataclass(frozen=True)
class Joint:
    """What PyTorch asks of a view that merges dimensions: that each steps over all of the next one.

    parts: the axis of the array that each walks, the elements of that axis that it walks in one step, and its size.
    """

    array: str
    parts: tuple[tuple[int, Expr, Expr], ...]
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Widening:
    """An expression of the Python that is computed in double precision of elements of a narrower type, as Python's floats are
    doubles, in every iteration of a loop. text: the expression; instead: what stays narrow.
    """

    text: str
    dtype: ScalarType
    instead: str
    location: Location | None = None


@dataclass(frozen=True)
class Assumption:
    """What is taken to hold: a Python condition on sizes and integer scalars. loops: the variables of those it helps."""

    condition: str
    loops: tuple[str, ...]


# (array, axis, by what, parts): the grid, or the turns of a block, cut an axis of an array into so many parts.
Tiles = tuple[tuple[str, int, Literal["grid", "turns"], int], ...]


@dataclass(frozen=True)
class Function:
    """A whole kernel, specialised to the ranks and dtypes of its arguments, general in its sizes, strides and scalars.

    parameters: names in the order of the Python signature, each an Array or a Scalar.
    results: what the Python returns, in order: names of arrays (an "inout" argument may be among them).
    assumption: what holds in the calls that it is for.
    numbers: the results that the Python returns as numbers; each is an array without dimensions.
    pairs: the results that are complex numbers in the Python: their arrays have a last axis of the real and the imaginary part.
    container: what the Python returns the results in, where that is not usual (one as it is, several in a tuple).
    checked: arrays whose every subscript is checked where it is evaluated, since data decide which are; of the others the
    call has checked those that sizes decide.
    direct: axes of arrays, (array, axis), that every subscript of the Python is itself one of, so that one below 0 counts from
    the axis's end; not those of a slice.
    ends: (array, axis, count): some subscript of the Python is the constant -count, here the size less the count, which does
    not count from the end again where that is below 0.
    widenings: what is computed in double precision because Python's floats are doubles.
    sized: what else the sizes of the calls that it is for show.
    tiles: into how many parts blocks are to cut axes of arrays.
    """

    name: str
    parameters: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    sizes: tuple[Size, ...]
    arrays: tuple[Array, ...]
    body: tuple[Stmt, ...]
    results: tuple[str, ...]
    equalities: tuple[Equality, ...] = ()
    location: Location | None = field(default=None, compare=False)
    assumption: Assumption | None = None
    numbers: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
    container: Literal["", "tuple", "list"] = ""
    checked: frozenset[str] = frozenset()
    demands: tuple[Demand, ...] = ()
    joints: tuple[Joint, ...] = ()
    idle: tuple[Idle, ...] = ()
    direct: frozenset[tuple[str, int]] = frozenset()
    ends: frozenset[tuple[str, int, int]] = frozenset()
    widenings: tuple[Widening, ...] = field(default=(), compare=False)
    sized: Sized = NOT_SIZED
    tiles: Tiles = ()

    def array(self, name: str) -> Array:
        return next(a for a in self.arrays if a.name == name)


def with_copies(function: Function, copies: Mapping[str, Array]) -> Function:
    """The function with arrays that hold what others of it do, by the names of these: their subscripts are as sure."""
    checked = {copy.name for name, copy in copies.items() if name in function.checked}
    arrays = (replace(copy, called=function.array(name).user_name) for name, copy in copies.items())
    told = function.sized
    axes, everywhere = (
        own | {(copies[name].name, axis) for name, axis in own if name in copies} for own in (told.axes, told.everywhere)
    )
    sized = replace(told, axes=axes, everywhere=everywhere)
    return replace(function, arrays=(*function.arrays, *arrays), checked=function.checked | checked, sized=sized)


# ---------------------------------------------------------------- walking


def operands(expr: Expr) -> tuple[Expr, ...]:
    # no `match`: this is what an analysis calls most
    if isinstance(expr, Op):
        return expr.args
    if isinstance(expr, Load):
        return expr.index
    if isinstance(expr, (Cast, Round)):
        return (expr.value,)
    return ()


def with_operands(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    if isinstance(expr, Op):
        return _replaced(expr, "args", new)
    if isinstance(expr, Load):
        return _replaced(expr, "index", new)
    if isinstance(expr, (Cast, Round)):
        return _replaced(expr, "value", new[0])
    return expr


E = TypeVar("E", bound=_Hashed)


def _replaced(expr: E, name: str, value: object) -> E:
    """dataclasses.replace for one field, without asking about each: most expressions are made here."""
    made = object.__new__(type(expr))
    made.__dict__.update(expr.__getstate__())
    made.__dict__[name] = value
    return made


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """expr and everything below it, top first, however deep it is."""
    pending = [expr]
    while pending:
        expr = pending.pop()
        yield expr
        pending.extend(reversed(operands(expr)))


def certain_operands(expr: Expr) -> tuple[Expr, ...]:
    """The operands that evaluating expr evaluates for certain."""
    below = operands(expr)
    return below[:1] if isinstance(expr, Op) and expr.name in ("where", "and", "or") else below


def certain_in(expr: Expr) -> Iterator[Expr]:
    """The subexpressions that evaluating expr evaluates for certain, largest first."""
    pending = [expr]
    while pending:
        expr = pending.pop()
        yield expr
        pending.extend(reversed(certain_operands(expr)))


def reachable(start: Iterable[T], after: Callable[[T], Iterable[T]]) -> set[T]:
    """All that is come to from `start`, this among it, by going on from each to what is after it."""
    found = set(start)
    pending = [*found]
    while pending:
        for one in after(pending.pop()):
            if one not in found:
                found.add(one)
                pending.append(one)
    return found


def rewrite(expr: Expr, rule: Callable[[Expr], Expr | None]) -> Expr:
    """Apply `rule` bottom up; None keeps the (rebuilt) expression."""
    if old := operands(expr):
        new = tuple([rewrite(o, rule) for o in old])
        if any(map(is_not, old, new)):
            expr = with_operands(expr, new)
    changed = rule(expr)
    return expr if changed is None else changed


def substitute(expr: Expr, names: dict[str, Expr]) -> Expr:
    """Replace every Ref whose name is in `names`."""
    if isinstance(expr, Ref):
        return names.get(expr.name, expr)
    if names.keys().isdisjoint(free_names(expr)):
        return expr
    return with_operands(expr, tuple(substitute(o, names) for o in operands(expr)))


def checks_in(statements: tuple[Stmt, ...]) -> dict[Fault, Expr]:
    """The faults that statements check for as they run, each once, in the order of the text, and what must hold."""
    tops = (top for s in walk(statements) for top in statement_exprs(s) if has_check(top))
    return {e.fault: e.args[1] for top in tops for e in walk_expr(top) if isinstance(e, Check)}


def has_load(expr: Expr) -> bool:
    """Whether a load is in an expression."""
    return bool(free_arrays(expr))


def has_check(expr: Expr) -> bool:
    """Whether a check is in an expression."""
    return not isinstance(expr, (Const, Ref)) and bool(_remembered(expr, "_checks", _what_is_checked))


def _what_is_checked(expr: Expr) -> str | None:
    return expr.fault.what if isinstance(expr, Check) else None


def unchecked(expr: Expr) -> Expr:
    """The expression without its checks."""
    return rewrite(expr, lambda e: e.args[0] if isinstance(e, Check) else None)


def without_checks(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(map_statement(s, unchecked, without_checks) for s in statements)


def trapping(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements with those of their checks alone that stop a GPU."""
    if all(fault.traps for fault in checks_in(statements)):
        return statements
    return tuple(map_statement(s, trapping_alone, trapping) for s in statements)


def trapping_alone(expr: Expr) -> Expr:
    """The expression with those of its checks alone that stop a GPU."""
    return rewrite(expr, lambda e: e.args[0] if isinstance(e, Check) and not e.fault.traps else None)


_NONE: frozenset[str] = frozenset()


def free_names(expr: Expr) -> frozenset[str]:
    """The names that an expression refers to."""
    if isinstance(expr, Const):
        return _NONE
    if isinstance(expr, Ref):
        return frozenset((expr.name,))
    return _remembered(expr, "_names", lambda e: e.name if isinstance(e, Ref) else None)


def name_of(variable: Expr) -> str:
    """The name that an expression is; for those that are known to be names."""
    assert isinstance(variable, Ref)
    return variable.name


def free_names_of(exprs: Iterable[Expr]) -> set[str]:
    return {name for e in exprs for name in free_names(e)}


def free_arrays(expr: Expr) -> frozenset[str]:
    """The arrays that an expression loads from."""
    if isinstance(expr, (Const, Ref)):
        return _NONE
    return _remembered(expr, "_arrays", lambda e: e.array if isinstance(e, Load) else None)


def _remembered(top: Expr, slot: str, own: Callable[[Expr], str | None]) -> frozenset[str]:
    """The union of what each expression below has of its own, remembered in each but the leaves."""
    found: frozenset[str] | None = top.__dict__.get(slot)
    if found is not None:
        return found
    pending = [top]
    while pending:
        e = pending[-1]
        names, parts, missing = set[str](), [_NONE], list[Expr]()
        for below in (e, *operands(e)):
            if below is e or isinstance(below, Ref):
                if (name := own(below)) is not None:
                    names.add(name)
            elif isinstance(below, Const):
                continue
            elif (part := below.__dict__.get(slot)) is None:
                missing.append(below)
            else:
                parts.append(part)
        if missing:
            pending += missing
            continue
        largest = max(parts, key=len)
        found = largest.union(*parts, names)
        object.__setattr__(e, slot, largest if len(found) == len(largest) else found)
        pending.pop()
    return found or _NONE


def statement_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement holds itself (not those of its body)."""
    match stmt:
        case Let(value=value):
            return (value,)
        case Store(index=index, value=value):
            return (*index, value)
        case For():
            return (stmt.start, stmt.stop, *(e for c in stmt.carries for e in (c.init, c.next)))
        case If():
            return (stmt.condition, *(e for m in stmt.merges for e in (m.then, m.orelse)))
    raise TypeError(stmt)


def bodies(stmt: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    match stmt:
        case For(body=body):
            return (body,)
        case If(then=then, orelse=orelse):
            return (then, orelse)
    return ()


def walk(statements: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements, in textual order, a loop before its body."""
    for stmt in statements:
        yield stmt
        for body in bodies(stmt):
            yield from walk(body)


def loaded_arrays(statements: tuple[Stmt, ...]) -> frozenset[str]:
    """The arrays that statements load from."""
    return frozenset[str]().union(*(free_arrays(e) for s in walk(statements) for e in statement_exprs(s)))


def map_statement(
    stmt: Stmt, on_expr: Callable[[Expr], Expr], on_body: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]
) -> Stmt:
    """Rebuild a statement with its expressions and bodies mapped; bound names stay."""
    match stmt:
        case Let():
            return replace(stmt, value=on_expr(stmt.value))
        case Store():
            return replace(stmt, index=tuple(map(on_expr, stmt.index)), value=on_expr(stmt.value))
        case For():
            carries = tuple(replace(c, init=on_expr(c.init), next=on_expr(c.next)) for c in stmt.carries)
            start, stop = on_expr(stmt.start), on_expr(stmt.stop)
            segment = stmt.segment and stmt.segment.mapped(on_expr)
            return replace(stmt, start=start, stop=stop, carries=carries, body=on_body(stmt.body), segment=segment)
        case If():
            merges = tuple(replace(m, then=on_expr(m.then), orelse=on_expr(m.orelse)) for m in stmt.merges)
            condition = on_expr(stmt.condition)
            return replace(
                stmt, condition=condition, then=on_body(stmt.then), orelse=on_body(stmt.orelse), merges=merges
            )
    raise TypeError(stmt)


def filtered(statements: Iterable[Stmt], keep: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """Those statements that are kept, in loops and branches too."""
    return tuple(map_statement(s, lambda e: e, lambda body: filtered(body, keep)) for s in statements if keep(s))


def substitute_statements(statements: tuple[Stmt, ...], names: dict[str, Expr]) -> tuple[Stmt, ...]:
    """Replace free Refs in whole statements (bound names are unique, so nothing is captured)."""
    if not names:
        return statements
    return tuple(
        map_statement(s, lambda e: substitute(e, names), lambda b: substitute_statements(b, names)) for s in statements
    )


def bound_names(stmt: Stmt) -> tuple[str, ...]:
    """Names a statement binds for what follows it (not those that live in its body alone)."""
    match stmt:
        case Let(name=name):
            return (name,)
        case For(carries=carries):
            return tuple(c.result for c in carries)
        case If(merges=merges):
            return tuple(m.name for m in merges)
    return ()


def bound_scalars(stmt: Stmt) -> list[tuple[str, ScalarType]]:
    """The same, with their types."""
    match stmt:
        case Let(name=name, value=value):
            return [(name, value.type)]
        case For(carries=carries):
            return [(c.result, c.type) for c in carries]
        case If(merges=merges):
            return [(m.name, m.type) for m in merges]
    return []


# ---------------------------------------------------------------- the rules


def validate(function: Function) -> None:
    """Raise AssertionError (an internal fault, never the user's) if the function breaks a rule of this form."""
    arrays = {a.name: a for a in function.arrays}
    bound: set[str] = set()

    def bind(name: str, scope: dict[str, ScalarType], type_: ScalarType) -> None:
        assert name not in bound, f"{name} is bound twice"
        bound.add(name)
        scope[name] = type_

    def check(expr: Expr, scope: dict[str, ScalarType]) -> None:
        for e in walk_expr(expr):
            match e:
                case Ref():
                    assert e.name in scope, f"{e.name} is not in scope"
                    assert scope[e.name] == e.type, f"{e.name} is {scope[e.name]}, read as {e.type}"
                case Load():
                    array = arrays[e.array]
                    assert len(e.index) == len(array.shape), f"{e.array} has rank {len(array.shape)}"
                    assert e.type == array.dtype.opmath, f"load of {e.array}"
                    assert all(i.type == INT64 for i in e.index), f"index of {e.array}"
                case Op():
                    OPERATORS[e.name].check(tuple(a.type for a in e.args), e.type)
                case Const() | Cast():
                    assert e.type.opmath == e.type, f"{e.type} is no register type"

    def block(statements: tuple[Stmt, ...], scope: dict[str, ScalarType]) -> dict[str, ScalarType]:
        scope = dict(scope)
        for stmt in statements:
            match stmt:
                case Let():
                    check(stmt.value, scope)
                    bind(stmt.name, scope, stmt.value.type)
                case Store():
                    array = arrays[stmt.array]
                    assert array.role != "input", f"{array.name} is written"
                    assert len(stmt.index) == len(array.shape), f"{array.name} has rank {len(array.shape)}"
                    for e in (*stmt.index, stmt.value):
                        check(e, scope)
                    assert stmt.value.type == array.dtype.opmath, f"store to {array.name} of {stmt.value.type}"
                case For():
                    assert stmt.step != 0
                    check(stmt.start, scope)
                    check(stmt.stop, scope)
                    for e in () if stmt.segment is None else (stmt.segment.owner, *stmt.segment.among, *stmt.segment.limits):
                        check(e, scope)
                    inner = dict(scope)
                    bind(stmt.var, inner, INT64)
                    for c in stmt.carries:
                        check(c.init, scope)
                        bind(c.name, inner, c.type)
                    end = block(stmt.body, inner)
                    for c in stmt.carries:
                        check(c.next, end)
                        assert c.next.type == c.type, f"{c.name} changes type"
                        bind(c.result, scope, c.type)
                case If():
                    check(stmt.condition, scope)
                    assert stmt.condition.type == BOOL
                    then, orelse = block(stmt.then, scope), block(stmt.orelse, scope)
                    for m in stmt.merges:
                        check(m.then, then)
                        check(m.orelse, orelse)
                        assert m.then.type == m.orelse.type, f"{m.name} changes type"
                        bind(m.name, scope, m.type)
        return scope

    top: dict[str, ScalarType] = {}
    for size in function.sizes:
        bind(size.name, top, INT64)
    for scalar in function.scalars:
        if scalar.value is not None:
            check(scalar.value, top)
        bind(scalar.name, top, scalar.type)
    for array in function.arrays:
        for extent in array.shape:
            check(extent, top)
    block(function.body, top)
    assert all(r in arrays for r in function.results)
