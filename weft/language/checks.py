"""What Python raises while it computes with numbers: found here, checked at the call or by the kernel itself.

Python's ints have no width, so sums and products of ints of 64 bits are checked unless their ranges show that they fit.
A divisor is checked unless it is known not to be zero, and the argument of a function of math unless it is known to be in
its domain. A condition on sizes and scalars alone becomes a demand of the call; another is a `Check` in the nest. Those of
floats and of elements are made on a CPU alone: on a GPU such values are what IEEE arithmetic and PyTorch's kernels give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.language.arithmetic import of_each_kind, operate
from weft.language.builder import Builder, Loop
from weft.language.kinds import (
    KindMatters,
    choice,
    converted,
    expressions_of,
    has_doubles,
    one_of_each_kind,
    plain,
    storable,
)
from weft.language.values import Mixed, Scalar, has_load
from weft.loops.affine import affine
from weft.loops.faults import OVERFLOW, fails_as_it_runs, leaves_64_bits, may_fail
from weft.loops.ir import (
    Cast,
    Check,
    Const,
    Demand,
    Expr,
    Fault,
    For,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    checks_in,
    free_names,
    operands,
    rewrite,
    unchecked,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.show import show_expr
from weft.loops.types import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT64,
    ScalarType,
    Typed,
)

Span = tuple[int, int]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
# No tensor is larger along an axis, and no loop runs more often before the machine is scrapped.
MOST = 1 << 46
# Nor does any program do more updates, in all its loops together.
MOST_UPDATES = 1 << 56
# What sizes and bounds are where products of two must fit, and sums of such.
ORDINARY = 1 << 31, 1 << 29
_TRUE = Const(True, BOOL)
_FITS = {"add": "fits_add", "sub": "fits_sub", "mul": "fits_mul", "shl": "fits_shl"}


def operated(b: Builder, name: str, *values: Scalar) -> Scalar:
    """An operator of weft.loops.operators on values of any types, with the checks that Python makes."""
    if all(v.mixed is None for v in values):
        return checked(b, of_all(b, lambda *vs: operate(name, vs, b.default_float), *values))
    values = tuple(b.share(one_of_each_kind(v)) if has_doubles(v) else v for v in values)
    with b.path():
        value = of_each_kind(lambda *sides: operated(b, name, *sides), name, values, b.default_float)
    return checked(b, value)


def of_all(b: Builder, function: Callable[..., Scalar], first: Scalar, *rest: Scalar) -> Scalar:
    """An operator of PyTorch on these values. It computes them all, where a choice that weft makes of it may leave out all but
    the first: what may be wrong with them as the kernel runs has a name before it.
    """
    result = function(first, *rest)
    if not (isinstance(result.expr, Op) and result.expr.name in ("and", "or", "where")):
        return result
    return function(first, *(_computed(b, value) for value in rest))


def _computed(b: Builder, value: Scalar) -> Scalar:
    if fails_as_it_runs(value.expr) and value.mixed is None and value.exact is None:
        return replace(value, expr=b.let("value", value.expr))
    for expr in expressions_of(value):
        b.evaluated(expr)  # what the call looks at
    return value


def checked(b: Builder, value: Scalar) -> Scalar:
    """The result of an operator, with the check that Python makes."""
    mixed = value.mixed
    if mixed is not None:
        with b.path():
            then, orelse = checked(b, mixed.then), checked(b, mixed.orelse)
        if (then, orelse) == (mixed.then, mixed.orelse):
            return value
        if mixed.test is None:
            raise KindMatters(mixed.name)
        type_ = value.typed.register
        expr = choice(mixed.test, converted(then, type_), converted(orelse, type_))
        return replace(value, expr=expr, mixed=replace(mixed, then=then, orelse=orelse))
    expr = value.expr
    if not isinstance(expr, Op):
        return value
    own, integer = value.typed.weight == 0, expr.type.category == "int"
    if expr.name in ("floordiv", "mod", "div") and (own or integer):
        zero = Const(0 if integer else 0.0, expr.type)
        what = "integer division or modulo by zero" if integer else "float division by zero"
        # PyTorch's own kernels divide elements by zero on a GPU without a word
        return _with(b, value, Op("ne", (expr.args[1], zero), BOOL), Fault("division", what, own and integer))
    if not own or expr.type != INT64:
        return value
    if expr.name in ("shl", "shr") and not _at_least_zero(b, expr.args[1]):
        amount = Op("ge", (expr.args[1], Const(0, INT64)), BOOL)
        value = _with(b, value, amount, Fault("domain", "negative shift count"))
    stepped = expr.name in ("add", "sub") and b.reach(expr) & b.carried
    steps = frozenset(free_names(expr) & b.integers) if stepped else frozenset[str]()
    if expr.name in _FITS and not _fits(b, lambda: span(b, expr) is not None, steps):
        return _with(b, value, Op(_FITS[expr.name], expr.args, BOOL), OVERFLOW)
    if expr.name in ("neg", "abs") and not _fits(b, lambda: span(b, expr) is not None):
        return _with(b, value, Op("ne", (expr.args[0], Const(LOWEST, INT64)), BOOL), OVERFLOW)
    return value


def power(b: Builder, base: Scalar, exponent: Scalar, value: Scalar) -> Scalar:
    """`base ** exponent` with the checks that Python makes of numbers, and PyTorch of integers to the power of one. base: cheap
    to repeat.
    """
    if value.typed.weight and value.mixed is None and value.typed.scalar.category == "int":
        n = exponent.expr
        if exponent.typed == Typed(INT64, 0) and not isinstance(n, Const) and not _at_least_zero(b, n):
            fault = Fault("power", "integers to a negative integer power")
            return _with(b, value, Op("ge", (n, Const(0, INT64)), BOOL), fault)
    if value.typed.weight or value.mixed is not None or isinstance(value.expr, Const) or base.mixed or exponent.mixed:
        return value
    if value.expr.type == INT64:
        if not _at_least_zero(b, exponent.expr):
            negative = Fault("power", "an int to the power of an int below 0, which is a float in Python,")
            value = _with(b, value, Op("ge", (converted(exponent, INT64), Const(0, INT64)), BOOL), negative)
        if isinstance(value.expr, Ref) or _fits(b, lambda: span(b, value.expr) is not None):
            return value
        exact = Op("fits_pow", (converted(base, INT64), converted(exponent, INT64)), BOOL)
        return _with(b, value, exact, OVERFLOW)
    if value.typed.scalar != FLOAT64:
        return value
    x, y = converted(base, FLOAT64), converted(exponent, FLOAT64)
    constant = float(y.value) if isinstance(y, Const) else None
    zero, below = _compared("eq", x, 0.0), _compared("lt", y, 0.0)
    if constant is None or constant < 0:
        fault = Fault("division", "0.0 cannot be raised to a negative power", False)
        value = _with(b, value, _not(_both(zero, below)), fault)
    if constant is None or not constant.is_integer():
        bare = _both(_compared("lt", x, 0.0), Op("ne", (Op("floor", (y,), FLOAT64), y), BOOL))
        bare = _both(bare, _both(_finite(x), _finite(y)))
        if not _at_least_zero(b, x):
            fault = Fault("domain", "a negative number to a power that is no whole number is complex", False)
            value = _with(b, value, _not(bare), fault)
    if constant is not None and 0 <= constant <= 1:
        return value
    large = _both(Op("isinf", (unchecked(value.expr),), BOOL), _both(_finite(x), _finite(y)))
    fault = Fault("overflow", "a power of a float is too large for a float", False)
    return _with(b, value, _not(_both(large, _not(zero))), fault)


def at_least_zero(b: Builder, x: Scalar, what: str) -> Scalar:
    """An int that is checked to be 0 or more."""
    if _at_least_zero(b, x.expr):
        return x
    return _with(b, x, Op("ge", (x.expr, Const(0, INT64)), BOOL), Fault("domain", what))


def whole_number(b: Builder, x: Scalar, value: Scalar) -> Scalar:
    """`int(x)` of a float, which has no integer where it is nan or infinite. x: cheap to repeat."""
    number = x.expr
    if isinstance(value.expr, Const) or value.mixed is not None or number.type.category != "float":
        return value
    nan = Fault("domain", "cannot convert float NaN to integer", False)
    value = _with(b, value, _not(Op("isnan", (number,), BOOL)), nan)
    outside = [Op("lt", (number, Const(float(LOWEST), number.type)), BOOL),
               Op("ge", (number, Const(float(1 << 63), number.type)), BOOL)]  # fmt: skip
    large = Fault("overflow", "cannot convert a float beyond 64 bits to an integer", False)
    return _with(b, value, _not(Op("or", (outside[0], outside[1]), BOOL)), large)


# Where functions of math of one argument raise ValueError, and where OverflowError.
_LARGEST_POWER, _LARGEST_COSH = 709.782712893384, 710.4758600739439
_ERRORS: dict[str, Callable[[Expr], Expr]] = {
    "sqrt": lambda x: _compared("lt", x, 0.0),
    **dict.fromkeys(("log", "log2", "log10"), lambda x: _compared("le", x, 0.0)),
    "log1p": lambda x: _compared("le", x, -1.0),
    "acosh": lambda x: _compared("lt", x, 1.0),
    **dict.fromkeys(("asin", "acos"), lambda x: _compared("gt", _size(x), 1.0)),
    "atanh": lambda x: _compared("ge", _size(x), 1.0),
    **dict.fromkeys(("sin", "cos", "tan"), lambda x: Op("isinf", (x,), BOOL)),
}
_TOO_LARGE: dict[str, Callable[[Expr], Expr]] = {
    **dict.fromkeys(("exp", "expm1"), lambda x: _both(_compared("gt", x, _LARGEST_POWER), _finite(x))),
    "exp2": lambda x: _both(_compared("ge", x, 1024.0), _finite(x)),
    **dict.fromkeys(("sinh", "cosh"), lambda x: _both(_compared("gt", _size(x), _LARGEST_COSH), _finite(x))),
}


def may_raise(b: Builder, name: str, args: tuple[Scalar, ...]) -> bool:
    """Whether a function of math may raise for these floats."""
    if name in _ERRORS:
        return not _in_domain(b, name, args[0].expr)
    return name in ("fmod", "pow", "hypot") or (name in _TOO_LARGE and not _at_most_zero(b, args[0].expr))


def of_math(b: Builder, name: str, args: tuple[Scalar, ...], value: Scalar) -> Scalar:
    """The result of a function of math, which raises for some floats. args: floats, cheap to repeat."""
    xs = tuple(a.expr for a in args)
    domain = Fault("domain", f"math domain error: {name}", False)
    large = Fault("overflow", f"math range error: {name}", False)
    if name in _ERRORS:
        return _with(b, value, _not(_ERRORS[name](xs[0])), domain)
    if name in _TOO_LARGE:
        return _with(b, value, _not(_TOO_LARGE[name](xs[0])), large)
    result = value.expr
    known = [_not(Op("isnan", (x,), BOOL)) for x in xs]
    finite = _both(_finite(xs[0]), _finite(xs[1]))
    if name == "fmod":
        value = _with(b, value, _not(_both(Op("isnan", (result,), BOOL), _both(*known))), domain)
    if name == "pow":
        zero = _both(_compared("eq", xs[0], 0.0), _both(_compared("lt", xs[1], 0.0), _finite(xs[1])))
        value = _with(b, value, _not(zero), domain)
        value = _with(b, value, _not(_both(Op("isnan", (result,), BOOL), _both(*known))), domain)
        finite = _both(finite, _compared("ne", xs[0], 0.0))
    if name in ("pow", "hypot"):
        value = _with(b, value, _not(_both(Op("isinf", (result,), BOOL), finite)), large)
    return value


def _both(a: Expr, c: Expr) -> Expr:
    return Op("and", (a, c), BOOL)


def _not(a: Expr) -> Expr:
    return Op("not", (a,), BOOL)


def _finite(x: Expr) -> Expr:
    return Op("isfinite", (x,), BOOL)


def _size(x: Expr) -> Expr:
    return Op("abs", (x,), FLOAT64)


def _compared(name: str, x: Expr, bound: float) -> Expr:
    return Op(name, (x, Const(bound, FLOAT64)), BOOL)


# ---------------------------------------------------------------- what is known of floats


def _in_domain(b: Builder, name: str, x: Expr) -> bool:
    if name in ("sqrt", "log1p"):
        return _at_least_zero(b, x)
    return name in ("log", "log2", "log10") and _positive(b, x)


def _meaning(b: Builder, expr: Expr) -> Expr:
    """What a name stands for, where it is one thing; exact conversions between floats, and checks, left out."""
    for _ in range(20):
        match expr:
            case Ref(name=name) if len(b.choices.get(name, ())) == 1 and name not in b.carried:
                expr = b.choices[name][0]
            case Cast(value=value) if value.type.category == "float" and value.type.size <= expr.type.size:
                if expr.type.category != "float":
                    return expr
                expr = value
            case Op(name="check", args=(value, _)):
                expr = value
            case _:
                break
    return expr


def _at_least_zero(b: Builder, expr: Expr) -> bool:
    """Whether a number is 0 or more, or not a number."""
    expr = _meaning(b, expr)
    if expr.type.category == "int":
        found = span(b, expr)
        return found is not None and found[0] >= 0
    match expr:
        case Const(value=value):
            return value >= 0
        case Cast(value=value) if value.type.category != "float":
            return value.type == BOOL or _at_least_zero(b, value)
        case Op(name="exp" | "exp2" | "abs" | "sqrt" | "cosh" | "hypot" | "sigmoid"):
            return True
        case Op(name="mul", args=(x, y)) if _meaning(b, x) == _meaning(b, y):
            return True
        case Op(name="add" | "mul" | "min" | "minimum", args=args):
            return all(_at_least_zero(b, a) for a in args)
        case Op(name="maximum", args=args):
            return any(_at_least_zero(b, a) for a in args)
        case Op(name="where", args=(_, x, y)):
            return _at_least_zero(b, x) and _at_least_zero(b, y)
    return False


def _positive(b: Builder, expr: Expr) -> bool:
    """Whether a float is more than 0, or not a number."""
    match _meaning(b, expr):
        case Const(value=value):
            return value > 0
        case Cast(value=value) if value.type.category == "int":
            found = span(b, value)
            return found is not None and found[0] > 0
        case Op(name="cosh"):
            return True
        case Op(name="add", args=args):
            return all(_at_least_zero(b, a) for a in args) and any(_positive(b, a) for a in args)
        case Op(name="sqrt", args=(x,)):
            return _positive(b, x)
    return False


def _at_most_zero(b: Builder, expr: Expr) -> bool:
    """Whether a number is 0 or less, or not a number: less the greatest of several, itself among them."""
    match _meaning(b, expr):
        case Const(value=value):
            return value <= 0
        case Op(name="neg", args=(x,)):
            return _at_least_zero(b, x)
        case Op(name="sub", args=(x, y)):
            x, y = _meaning(b, x), _meaning(b, y)
            return isinstance(y, Op) and y.name in ("max", "maximum") and any(_meaning(b, a) == x for a in y.args)
    return False


LARGEST_FLOATS = {FLOAT32: float.fromhex("0x1.fffffep+127"), FLOAT16: 65504.0, BFLOAT16: float.fromhex("0x1.fep+127"),
                  FLOAT8_E4M3FN: 448.0, FLOAT8_E5M2: 57344.0}  # fmt: skip
# Functions of floats whose values are small, or not finite.
_SMALL_RESULTS = frozenset(("sin", "cos", "tanh", "sigmoid", "erf", "erfc", "atan", "atan2", "asin", "acos",
                            "log", "log2", "log10", "log1p", "asinh", "acosh", "atanh"))  # fmt: skip


def stored(b: Builder, value: Scalar, dtype: ScalarType) -> Scalar:
    """A scalar that is stored where elements are of a dtype, into which PyTorch lets no Python number that does not fit. (An
    element wraps.)
    """
    if dtype == FLOAT32:
        return _stored_float(b, value)
    if dtype.category != "int":
        return value
    whole = True

    def fits(v: Scalar) -> Expr:
        nonlocal whole
        if v.mixed is not None:
            return _of_each(v.mixed, fits)
        type_ = v.expr.type
        if v.typed.weight or type_ in (BOOL, dtype):
            return _TRUE
        low, high = storable(type_, dtype)
        if isinstance(v.expr, Const):  # alone, it is looked at where it is stored
            return Const(value.mixed is None or bool(low <= v.expr.value <= high), BOOL)

        def proof() -> bool:
            found = _left(b, v.expr) or span(b, v.expr)
            return found is not None and low <= found[0] and found[1] <= high

        if type_ == INT64 and _fits(b, proof):
            return _TRUE
        whole = whole and type_ == INT64
        ends = tuple(Const(e if type_ == INT64 else float(e), type_) for e in (low, high))
        return _both(Op("ge", (v.expr, ends[0]), BOOL), Op("le", (v.expr, ends[1]), BOOL))

    if fits(value) == _TRUE:
        return value
    value = b.share(value, "value")
    condition = fits(value)
    value = plain(value, Typed(dtype, 1)) if value.mixed is not None else value
    return _with(b, value, condition, Fault("store", f"a number does not fit into {dtype}", whole))


def taken(b: Builder, value: Scalar, dtype: ScalarType) -> Scalar:
    """A number of Python's that a function of PyTorch's takes as one of a dtype, whether or not it comes to use; elements are
    what they are.
    """
    if value.typed.weight or value.mixed is not None:
        return value
    number, what = value.expr, Fault("store", f"a number does not fit into {dtype}")
    if isinstance(number, Const) and dtype.category == "int":
        low, high = storable(number.type, dtype)
        return value if low <= number.value <= high else _with(b, value, Const(False, BOOL), what)
    largest = LARGEST_FLOATS.get(dtype, 0.0)
    if number.type == FLOAT64 and largest:
        value = _stored_float(b, value, dtype, largest)
    elif dtype.category == "int":
        value = stored(b, value, dtype)
    return b.share(value, "value") if may_fail(value.expr) else value


def _stored_float(
    b: Builder, value: Scalar, dtype: ScalarType = FLOAT32, largest: float = LARGEST_FLOATS[FLOAT32]
) -> Scalar:
    """The same for elements of float32, where PyTorch stores no larger finite float. (Those of half types get inf.)"""

    def fits(v: Scalar) -> Expr:
        if v.mixed is not None:
            return _of_each(v.mixed, fits)
        if v.typed.weight or v.expr.type != FLOAT64 or _within(b, v.expr, largest):
            return _TRUE
        return Op("or", (_compared("le", _size(v.expr), largest), _not(_finite(v.expr))), BOOL)

    if fits(value) == _TRUE:
        return value
    value = b.share(value, "value")
    condition = fits(value)
    value = plain(value, Typed(FLOAT32, 1)) if value.mixed is not None else value
    return _with(b, value, condition, Fault("store", f"a number does not fit into {dtype}", False))


def _of_each(mixed: Mixed, condition: Callable[[Scalar], Expr]) -> Expr:
    """A condition on what a scalar is of each kind, as one on the scalar."""
    then, orelse = condition(mixed.then), condition(mixed.orelse)
    if mixed.test is not None:
        return choice(mixed.test, then, orelse)
    if then != orelse:
        raise KindMatters(mixed.name)
    return then


def _within(b: Builder, expr: Expr, largest: float) -> bool:
    """Whether a float is known to be no larger than the largest of a narrower type, or not finite."""
    match _meaning(b, expr):
        case Const(value=value):
            return abs(value) <= largest or math.isinf(value) or math.isnan(value)
        case Cast(value=value):
            return value.type != FLOAT64 and largest == LARGEST_FLOATS[FLOAT32]
        case Op(name=name) if name in _SMALL_RESULTS:
            return True
        case Op(name="exp" | "exp2", args=(x,)):
            return _at_most_zero(b, x)
        case Op(name="neg" | "abs" | "min" | "max" | "minimum" | "maximum", args=args):
            return all(_within(b, a, largest) for a in args)
        case Op(name="where", args=(_, *args)):
            return all(_within(b, a, largest) for a in args)
        case expr:
            return expr.type != FLOAT64


def _with(b: Builder, value: Scalar, condition: Expr, fault: Fault) -> Scalar:
    fault = replace(fault, location=b.location, condition=show_expr(condition))
    if isinstance(condition, Op) and condition.name == "ne" and _not_zero(b, condition.args[0]):
        return value
    if isinstance(condition, Const) and condition.value:
        return value
    known = b.in_sizes(condition)
    loops = [e for loop in b.loops for e in (loop.start, loop.stop)]
    fixed = all(free_names(b.in_sizes(e)) <= b.fixed and not has_load(e) for e in (known, *loops))
    if fixed and len(b.blocks) == 1 + len(b.loops):
        if not free_names(condition) <= b.fixed.union(*map(set, b.environments)):  # names that are not the user's
            fault = replace(fault, condition=show_expr(known))
        for loop in b.loops:  # Python does not come here where a loop around does not run
            pair = (b.in_sizes(loop.start), b.in_sizes(loop.stop))
            known = Op("or", (Op("ge" if loop.step > 0 else "le", pair, BOOL), known), BOOL)
        demand = Demand(known, fault)
        if demand not in b.demands:
            b.demands.append(demand)
        return value
    return replace(value, expr=Check("check", (value.expr, condition), value.expr.type, fault=fault))


def _fits(b: Builder, proof: Callable[[], bool], numbers: frozenset[str] = frozenset()) -> bool:
    """Whether a proof about ranges succeeds, if need be for tensors, loops and `numbers` of ordinary size; calls then see
    to that.
    """
    if proof():
        return True
    bounds = {n for loop in b.loops for e in (loop.start, loop.stop) for n in free_names(b.in_sizes(e))} & b.fixed | numbers
    sizes = sorted(n for n in b.fixed if n in b.spans or (n in bounds and n in b.integers))
    before = dict(b.spans)
    for limit in ORDINARY:
        b.spans = before | {n: (-limit if n not in before else 0, limit) for n in sizes}
        try:
            proven = proof()
        finally:
            b.spans = before
        if proven:
            for name in sizes:
                size = Ref(name, INT64) if name in before else Op("abs", (Ref(name, INT64),), INT64)
                small = Op("le", (size, Const(limit, INT64)), BOOL)
                if all(d.condition != small for d in b.demands):
                    fault = Fault("overflow", "a Python int may leave 64 bits", location=b.location)
                    b.demands.append(Demand(small, fault))
            return True
    return False


# ---------------------------------------------------------------- carried ints


@dataclass(frozen=True)
class Moves:
    """Updates of a carried int by at least `low` and at most `high` each, `count` of them at most."""

    low: int
    high: int
    count: int = 1

    @property
    def far(self) -> int:
        return max(abs(self.low), abs(self.high)) * self.count


@dataclass(frozen=True)
class Advance:
    """What a loop leaves of a carried int: what it started from, and what an iteration did."""

    init: Expr
    end: Expr
    carry: str
    loop: Loop


def room(depth: int) -> int:
    """How far an int that a loop inside `depth` others carries may go from where it starts: outer loops leave room."""
    return 1 << min(62, 58 + depth)


def assumed(b: Builder, init: Expr, depth: int) -> Span | None:
    """The values that a carried int is first taken to have."""
    found = span(b, init)
    if found is None or max(-found[0], found[1]) + room(depth) > HIGHEST:
        return None
    return found[0] - room(depth), found[1] + room(depth)


def stays(b: Builder, advance: Advance, depth: int) -> bool:
    """Whether a carried int keeps to what it was taken to have: it gets values in small steps, or of a range of their own."""

    def proof() -> bool:
        steps = _steps(b, advance.end, advance.carry, 0)
        if steps is None:
            return False
        moves, values = steps
        trips = _trips(b, advance.loop)
        far = max((replace(m, count=min(MOST_UPDATES, m.count * trips)).far for m in moves), default=0)
        return far + max((abs(e) for s in values for e in s), default=0) <= room(depth)

    numbers = frozenset(n for n in free_names(b.in_sizes(advance.end)) if n in b.integers)
    return _fits(b, proof, numbers)


def _left(b: Builder, expr: Expr) -> Span | None:
    """The values that a carried int has after its loop: fewer than it is taken to have inside; None where not known."""
    found = b.advances.get(expr.name) if isinstance(expr, Ref) else None
    if not isinstance(found, Advance):
        return None
    b.loops.append(found.loop)
    try:
        steps, init = _steps(b, found.end, found.carry, 0), span(b, found.init)
    finally:
        b.loops.pop()
    if steps is None or init is None:
        return None
    moves, values = steps
    far = sum(replace(m, count=min(MOST_UPDATES, m.count * _trips(b, found.loop))).far for m in moves)
    return min(init[0], *(low for low, _ in values), init[0]) - far, max(init[1], *(high for _, high in values), init[1]) + far


def _trips(b: Builder, loop: Loop) -> int:
    low, high = span(b, loop.start), span(b, loop.stop)
    if low is None or high is None:
        return MOST
    return min(MOST, max(0, high[1] - low[0] if loop.step > 0 else low[1] - high[0]))


def _steps(b: Builder, expr: Expr, carry: str, depth: int) -> tuple[list[Moves], list[Span]] | None:
    """How far from the carry an expression may be, and its values where it does not depend on it; None if unknown."""
    if depth > 20:
        return None
    match expr:
        case Ref(name=name) if name == carry:
            return [Moves(0, 0)], []
        case Ref(name=name) if isinstance(found := b.advances.get(name), Advance) and carry in b.reach(expr):
            before, inner = _steps(b, found.init, carry, depth + 1), _steps(b, found.end, found.carry, depth + 1)
            if before is None or inner is None or inner[1] or carry in b.reach(found.end) - b.reach(found.init):
                return None
            trips = _trips(b, found.loop)
            often = [replace(m, count=min(MOST_UPDATES, m.count * trips)) for m in inner[0]]
            moves = [
                Moves(min(m.low, n.low), max(m.high, n.high), min(MOST_UPDATES, m.count + n.count))
                for m in before[0]
                for n in often
            ]
            return moves, [(low - n.far, high + n.far) for low, high in before[1] for n in often]
        case Ref(name=name) if name in b.choices and carry in b.reach(expr):
            sides = [_steps(b, e, carry, depth + 1) for e in b.choices[name]]
        case Op(name="where", args=(_, *args)) | Op(name="max" | "min", args=args):
            sides = [_steps(b, e, carry, depth + 1) for e in args]
        case Op(name="check", args=(value, _)):
            return _steps(b, value, carry, depth + 1)
        case Op(name="add" | "sub" as name, args=(x, y)) if carry in b.reach(expr):
            if name == "add" and carry not in b.reach(x):
                x, y = y, x
            before, by = _steps(b, x, carry, depth + 1), span(b, y)
            if before is None or by is None or carry in b.reach(y):
                return None
            low, high = by if name == "add" else (-by[1], -by[0])
            return [replace(m, low=m.low + low, high=m.high + high) for m in before[0]], [
                (p + low, q + high) for p, q in before[1]
            ]
        case _:
            known = None if carry in b.reach(expr) else span(b, expr)
            return None if known is None else ([], [known])
    if any(s is None for s in sides):
        return None
    both = [s for s in sides if s is not None]
    return [m for s in both for m in s[0]], [v for s in both for v in s[1]]


def _not_zero(b: Builder, expr: Expr) -> bool:
    if isinstance(expr, Const):
        return expr.value != 0
    if isinstance(expr, Cast) and expr.value.type.category == "int":
        return _not_zero(b, expr.value)
    if expr.type.category != "int":
        return _positive(b, expr)
    found = span(b, expr)
    if found is not None and not found[0] <= 0 <= found[1]:
        return True
    # a loop that runs has a bound that is not zero, and so is each factor of it
    return any(
        loop.start == Const(0, INT64) and loop.step > 0 and b.canonical(expr) in _factors(b.canonical(loop.stop))
        for loop in b.loops
    )


def _factors(expr: Expr) -> list[Expr]:
    match expr:
        case Op(name="mul", args=(a, c)):
            return [expr, *_factors(a), *_factors(c)]
    return [expr]


def span(b: Builder, expr: Expr) -> Span | None:
    """The least and the largest value of an integer; None where 64 bits may not hold it."""
    found = _span(b, expr)
    return found if found is not None and found[0] >= LOWEST and found[1] <= HIGHEST else None


def _span(b: Builder, expr: Expr) -> Span | None:
    if expr.type == BOOL:
        return 0, 1
    whole = (LOWEST, HIGHEST)
    if expr.type != INT64:
        bits = 8 * expr.type.size - expr.type.signed
        return (-(1 << bits) if expr.type.signed else 0, (1 << bits) - 1) if expr.type.category == "int" else None
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Ref(name=name):
            return _of_name(b, name) or whole
        case Cast(value=value):
            return whole if value.type.category == "float" else _span(b, value)
        case Op(name="check", args=(value, _)):
            found = _span(b, value)
            return None if found is None else (max(found[0], LOWEST), min(found[1], HIGHEST))
        case Op(name="where", args=(_, *args)) | Op(args=args):
            spans = [_span(b, a) for a in args]
            if any(s is None for s in spans):
                return None
            return _combined(expr.name, [s for s in spans if s is not None]) or whole
    return whole


def _of_name(b: Builder, name: str) -> Span | None:
    if name in b.spans:
        return b.spans[name]
    if name in b.definitions:
        return span(b, b.definitions[name])
    for loop in b.loops:
        if loop.var == name:
            low, high = _span(b, loop.start), _span(b, loop.stop)
            if low is None or high is None:
                return None
            if loop.step < 0:
                return max(high[0] + 1, low[0] - MOST), low[1]
            return low[0], min(high[1] - 1, low[1] + MOST)
    return None


def _combined(name: str, spans: list[Span]) -> Span | None:
    match name, spans:
        case "neg", [(a, z)]:
            return -z, -a
        case "abs", [(a, z)]:
            return 0 if a <= 0 <= z else min(abs(a), abs(z)), max(abs(a), abs(z))
        case "add", [(a, z), (c, y)]:
            return a + c, z + y
        case "sub", [(a, z), (c, y)]:
            return a - y, z - c
        case "mul", [(a, z), (c, y)]:
            ends = [a * c, a * y, z * c, z * y]
            return min(ends), max(ends)
        case "floordiv", [(a, z), (c, y)]:
            return (min(a // c, a // y), max(z // c, z // y)) if c > 0 else None
        case "mod", [_, (c, y)]:
            return min(c + 1, 0), max(y - 1, 0)
        case "shl", [(a, z), (c, y)] if c >= 0 and y < 64:
            return min(a << c, a << y), max(z << c, z << y)
        case "shr", [(a, z), (c, y)] if c >= 0:
            return min(a >> c, a >> min(y, 64)), max(z >> c, z >> min(y, 64))
        case "bitand", [(a, z), (c, y)] if c >= 0 or a >= 0:
            return 0, min(high for low, high in ((a, z), (c, y)) if low >= 0)
        case "pow", [(a, z), (c, y)] if c == y and 0 <= c < 64:
            return (-(max(-a, z) ** c) if a < 0 else a**c), max(abs(a), abs(z)) ** c
        case "shl" | "pow", _:
            return 2 * LOWEST, 2 * HIGHEST
        case "max" | "maximum", [(a, z), (c, y)]:
            return max(a, c), max(z, y)
        case "min" | "minimum", [(a, z), (c, y)]:
            return min(a, c), min(z, y)
        case "where", [(a, z), (c, y)]:
            return min(a, c), max(z, y)
    return None


# ---------------------------------------------------------------- subscripts and bounds


def position(b: Builder, expr: Expr) -> Expr:
    """An int as a subscript or a bound, without the checks for overflow that need not be made: what leaves 64 bits by one sum
    or multiple is in no array. Other products, and remainders of what overflowed, may be. What is no int, as that of a nan,
    stops a GPU too.
    """
    if not any(isinstance(e, Check) for e in walk_expr(expr)):
        return expr

    def rule(e: Expr, summand: bool = True) -> Expr:
        if leaves_64_bits(e):
            value = operands(e)[0]
            if _leaves_every_array(b, value) if summand else _fits_in_calls(b, value):
                return rule(value, summand)
        parts = _summands(e)
        if not parts and isinstance(e, Op) and e.name in ("min", "max", "floordiv", "mod") and e.type == INT64:
            parts, summand = e.args, False  # the largest or a part of what overflowed may be inside
        if not parts:
            return e
        return with_operands(e, tuple(rule(o, summand) if o in parts else o for o in operands(e)))

    return rewrite(rule(expr), _stopping)


def _fits_in_calls(b: Builder, expr: Expr) -> bool:
    """Whether an int of sizes, loops and scalars fits into 64 bits in calls with ordinary ones, to which calls then see."""
    value = unchecked(expr)
    numbers = frozenset(n for n in free_names(b.in_sizes(value)) if n in b.integers)
    return not b.is_dynamic(value) and _fits(b, lambda: span(b, value) is not None, numbers)


def _stopping(expr: Expr) -> Expr | None:
    if not isinstance(expr, Check) or expr.fault.kind == "division" or expr.fault.traps:
        return None
    return replace(expr, fault=replace(expr.fault, traps=True))


def _leaves_every_array(b: Builder, expr: Expr) -> bool:
    """Whether an int that 64 bits do not hold is not inside an array by what they hold instead: a sum of which sizes, loops or
    scalars are a part; a product of two sums of such, which leaves the array in an early iteration.
    """
    match expr:
        case Op(name="add" | "sub", args=(x, y)):
            return not (b.is_dynamic(x) and b.is_dynamic(y))
        case Op(name="mul", args=(x, y)) if not isinstance(x, Const) and not isinstance(y, Const):
            return not b.is_dynamic(expr) and affine(x) is not None and affine(y) is not None
    return isinstance(expr, Op) and expr.name in ("neg", "mul")


def _summands(expr: Expr) -> tuple[Expr, ...]:
    """The operands of an int that is a sum, a multiple or one of several: where they leave 64 bits, it leaves every array."""
    match expr:
        case Op(name="add" | "sub" | "neg", args=args, type=type_) if type_ == INT64:
            return args
        case Op(name="mul", args=(x, Const()), type=type_) | Op(name="mul", args=(Const(), x), type=type_) if type_ == INT64:
            return (x,)
        case Op(name="where", args=(_, *args), type=type_) if type_ == INT64:
            return tuple(args)
        case Op(name="check", args=(value, _), type=type_) if type_ == INT64:
            return (value,)
        case Cast(value=value, type=type_) if type_ == value.type == INT64:
            return (value,)
    return ()


def subscripts_unchecked(b: Builder, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The same for names that are summands of subscripts and bounds alone."""
    made: dict[str, tuple[Expr, ...]] = {}
    used: set[str] = set()
    for stmt in walk(body):
        match stmt:
            case Let(name=name, value=value):
                made[name] = (value,)
            case Store(value=value, index=index):
                used |= _values(value) | _parts_of(index)
            case For(carries=carries):
                made |= {n: (c.init, c.next) for c in carries for n in (c.name, c.result)}
                used |= _parts_of((stmt.start, stmt.stop))
            case If(condition=condition, merges=merges):
                used |= _values(condition)
                made |= {m.name: (m.then, m.orelse) for m in merges}
    for values in made.values():
        used |= _parts_of(values)
    pending = list(used)
    while pending:
        more = {n for e in made.get(pending.pop(), ()) for n in _values(e)} - used
        used |= more
        pending += more

    def clean(expr: Expr, *names: str) -> Expr:
        return position(b, expr) if expr.type == INT64 and not used.intersection(names) else expr

    def cleaned(stmt: Stmt) -> Stmt:
        match stmt:
            case Let():
                return replace(stmt, value=clean(stmt.value, stmt.name))
            case For():
                carries = tuple(
                    replace(c, init=clean(c.init, c.name, c.result), next=clean(c.next, c.name, c.result))
                    for c in stmt.carries
                )
                return replace(stmt, carries=carries, body=block(stmt.body))
            case If():
                merges = tuple(
                    replace(m, then=clean(m.then, m.name), orelse=clean(m.orelse, m.name)) for m in stmt.merges
                )
                return replace(stmt, then=block(stmt.then), orelse=block(stmt.orelse), merges=merges)
        return stmt

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(cleaned, statements))

    return block(body) if checks_in(body) else body


def _parts_of(exprs: tuple[Expr, ...]) -> set[str]:
    """The names that subscripts compute with other than by adding them."""
    found: set[str] = set()
    for e in exprs:
        parts = _summands(e)
        if parts:
            found |= _parts_of(parts)
            match e:  # of one below 0, the end is a part too
                case Op(name="where", args=(Op(name="lt", args=(x, Const())), *_)):
                    found |= _parts_of((x,))
                case Op(name="where", args=(condition, *_)):
                    found |= _values(condition)
        elif not isinstance(e, Ref):
            found |= _values(e)
    return found


def _values(expr: Expr) -> set[str]:
    """The names that an expression computes with, those left out that are but added up in a subscript."""
    match expr:
        case Load(index=index):
            return _parts_of(index)
        case Ref(name=name):
            return {name}
        case Check(args=(value, _)) if leaves_64_bits(expr):
            return _values(value)
    return {n for e in operands(expr) for n in _values(e)}
