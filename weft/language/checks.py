"""What Python raises while it computes with numbers: found here, checked at the call or by the kernel itself.

Python's ints have no width, so sums and products of ints of 64 bits are checked unless their ranges show that they fit.
A divisor is checked unless it is known not to be zero, and the argument of a function of math unless it is known to be in
its domain. A condition on sizes and scalars alone becomes a demand of the call; another is a `Check` in the nest. Those of
floats and of elements are made on a CPU alone: on a GPU such values are what IEEE arithmetic and PyTorch's kernels give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from weft.language.arithmetic import of_each_kind, operate
from weft.language.builder import Builder
from weft.language.kinds import KindMatters, choice, converted, expressions_of, has_doubles, one_of_each_kind, plain, storable
from weft.language.signs import in_domain, is_at_least_zero, is_at_most_zero, is_not_zero, meaning
from weft.language.spans import LOWEST, span, span_left, surely_fits
from weft.language.values import Mixed, Scalar
from weft.loops.faults import OVERFLOW, fails_as_it_runs, may_fail
from weft.loops.ir import TRUE, Cast, Check, Const, Demand, Expr, Fault, Op, Ref, free_names, has_load, unchecked
from weft.loops.show import show_expr
from weft.loops.types import BFLOAT16, BOOL, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT16, FLOAT32, FLOAT64, INT64, ScalarType, Typed

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
    if expr.name in ("shl", "shr") and not is_at_least_zero(b, expr.args[1]):
        amount = Op("ge", (expr.args[1], Const(0, INT64)), BOOL)
        value = _with(b, value, amount, Fault("domain", "negative shift count"))
    stepped = expr.name in ("add", "sub") and b.reach(expr) & b.carried
    steps = frozenset(free_names(expr) & b.integers) if stepped else frozenset[str]()
    if expr.name in _FITS and not surely_fits(b, lambda: span(b, expr) is not None, steps):
        return _with(b, value, Op(_FITS[expr.name], expr.args, BOOL), OVERFLOW)
    if expr.name in ("neg", "abs") and not surely_fits(b, lambda: span(b, expr) is not None):
        return _with(b, value, Op("ne", (expr.args[0], Const(LOWEST, INT64)), BOOL), OVERFLOW)
    return value


def power(b: Builder, base: Scalar, exponent: Scalar, value: Scalar) -> Scalar:
    """`base ** exponent` with the checks that Python makes of numbers, and PyTorch of integers to the power of one. base: cheap
    to repeat.
    """
    if value.typed.weight and value.mixed is None and value.typed.scalar.category == "int":
        n = exponent.expr
        if exponent.typed == Typed(INT64, 0) and not isinstance(n, Const) and not is_at_least_zero(b, n):
            fault = Fault("power", "integers to a negative integer power")
            return _with(b, value, Op("ge", (n, Const(0, INT64)), BOOL), fault)
    if value.typed.weight or value.mixed is not None or isinstance(value.expr, Const) or base.mixed or exponent.mixed:
        return value
    if value.expr.type == INT64:
        if not is_at_least_zero(b, exponent.expr):
            negative = Fault("power", "an int to the power of an int below 0, which is a float in Python,")
            value = _with(b, value, Op("ge", (converted(exponent, INT64), Const(0, INT64)), BOOL), negative)
        if isinstance(value.expr, Ref) or surely_fits(b, lambda: span(b, value.expr) is not None):
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
        if not is_at_least_zero(b, x):
            fault = Fault("domain", "a negative number to a power that is no whole number is complex", False)
            value = _with(b, value, _not(bare), fault)
    if constant is not None and 0 <= constant <= 1:
        return value
    large = _both(Op("isinf", (unchecked(value.expr),), BOOL), _both(_finite(x), _finite(y)))
    fault = Fault("overflow", "a power of a float is too large for a float", False)
    return _with(b, value, _not(_both(large, _not(zero))), fault)


def at_least_zero(b: Builder, x: Scalar, what: str) -> Scalar:
    """An int that is checked to be 0 or more."""
    if is_at_least_zero(b, x.expr):
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
        return not in_domain(b, name, args[0].expr)
    return name in ("fmod", "pow", "hypot") or (name in _TOO_LARGE and not is_at_most_zero(b, args[0].expr))


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
            return TRUE
        low, high = storable(type_, dtype)
        if isinstance(v.expr, Const):  # alone, it is looked at where it is stored
            return Const(value.mixed is None or bool(low <= v.expr.value <= high), BOOL)

        def proof() -> bool:
            found = span_left(b, v.expr) or span(b, v.expr)
            return found is not None and low <= found[0] and found[1] <= high

        if type_ == INT64 and surely_fits(b, proof):
            return TRUE
        whole = whole and type_ == INT64
        ends = tuple(Const(e if type_ == INT64 else float(e), type_) for e in (low, high))
        return _both(Op("ge", (v.expr, ends[0]), BOOL), Op("le", (v.expr, ends[1]), BOOL))

    if fits(value) == TRUE:
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
            return TRUE
        return Op("or", (_compared("le", _size(v.expr), largest), _not(_finite(v.expr))), BOOL)

    if fits(value) == TRUE:
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
    match meaning(b, expr):
        case Const(value=value):
            return abs(value) <= largest or math.isinf(value) or math.isnan(value)
        case Cast(value=value):
            return value.type != FLOAT64 and largest == LARGEST_FLOATS[FLOAT32]
        case Op(name=name) if name in _SMALL_RESULTS:
            return True
        case Op(name="exp" | "exp2", args=(x,)):
            return is_at_most_zero(b, x)
        case Op(name="neg" | "abs" | "min" | "max" | "minimum" | "maximum", args=args):
            return all(_within(b, a, largest) for a in args)
        case Op(name="where", args=(_, *args)):
            return all(_within(b, a, largest) for a in args)
        case expr:
            return expr.type != FLOAT64


def _with(b: Builder, value: Scalar, condition: Expr, fault: Fault) -> Scalar:
    fault = replace(fault, location=b.location, condition=show_expr(condition))
    if isinstance(condition, Op) and condition.name == "ne" and is_not_zero(b, condition.args[0]):
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
