"""The functions of PyTorch that work element by element, as functions of scalars that are lifted over tensors.

A function takes the builder and its operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.language import arithmetic, checks
from weft.language.arithmetic import as_type, choose, common, differentiated, operate, power, truth
from weft.language.builder import Builder
from weft.language.kinds import distribute, paths, select
from weft.language.values import Scalar, number
from weft.loops.ir import Const, Merge
from weft.loops.types import BOOL, FLOAT64, Typed

ScalarFunction = Callable[..., Scalar]


def operator(name: str) -> ScalarFunction:
    return lambda b, *args: checks.of_all(b, lambda *vs: operate(name, vs, b.default_float), *args)


def checked_operator(name: str) -> ScalarFunction:
    """An operator that raises for integers that are divided by 0."""
    return lambda b, *args: checks.operated(b, name, *args)


def _rounding(name: str) -> ScalarFunction:
    """floor, ceil, trunc, round of PyTorch: integers stay as they are."""

    def function(b: Builder, x: Scalar) -> Scalar:
        return x if x.typed.scalar.category != "float" else operate(name, (x,), b.default_float)

    return function


def of_each_kind(function: ScalarFunction) -> ScalarFunction:
    """A function of scalars that asks for their types, for scalars of several kinds too."""

    def each(b: Builder, *args: Scalar) -> Scalar:
        mixed = next((v.mixed for v in args if v.mixed is not None), None)
        if mixed is None:
            return function(b, *args)
        if mixed.test is None:
            with b.path():
                found = distribute(lambda *vs: each(b, *vs), args, b.default_float)
            assert found is not None
            return found
        sides = []
        for values in paths(args, mixed):
            with b.block() as statements:
                sides.append((each(b, *values), statements))
        (then, made), (orelse, other) = sides
        if not made and not other:
            return select(mixed.test, then, orelse, b.default_float)
        merges: list[Merge] = []
        merged = b.merge("t", then, orelse, mixed.test, merges)
        b.branch(mixed.test, made, other, tuple(merges))
        return merged

    return each


def _in(b: Builder, x: Scalar) -> Scalar:
    """x as a float, cheap to repeat."""
    return b.share(as_type(x, arithmetic.floating(x.typed, b.default_float)), "x")


def _op(b: Builder, name: str, *args: Scalar | float) -> Scalar:
    return operate(name, tuple(a if isinstance(a, Scalar) else number(a) for a in args), b.default_float)


def _silu(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return _op(b, "mul", x, _op(b, "sigmoid", x))


def gelu(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return _op(b, "mul", _op(b, "mul", 0.5, x), _op(b, "add", 1.0, _op(b, "erf", _op(b, "mul", x, 0.5**0.5))))


def gelu_tanh(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    cube = _op(b, "mul", _op(b, "mul", x, x), x)
    inner = _op(b, "mul", 0.7978845608028654, _op(b, "add", x, _op(b, "mul", 0.044715, cube)))
    return _op(b, "mul", _op(b, "mul", 0.5, x), _op(b, "add", 1.0, _op(b, "tanh", inner)))


def _softplus(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return choose(_op(b, "gt", x, 20.0), x, _op(b, "log1p", _op(b, "exp", x)), b.default_float)


def _relu(b: Builder, x: Scalar) -> Scalar:
    return as_type(differentiated(_op(b, "maximum", x, 0), "relu"), x.typed)


def _square(b: Builder, x: Scalar) -> Scalar:
    x = b.share(x, "x")
    return operate("mul", (x, x), b.default_float)


def clamp(b: Builder, x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
    bounds = tuple(v for v in (low, high) if v is not None)
    typed = common((x, *bounds), b.default_float)
    low, high = (None if v is None else as_type(checks.taken(b, v, typed.scalar), typed) if v.typed.weight == 0 else v
                 for v in (low, high))  # fmt: skip
    if low is not None and high is not None and all(v.typed.weight and v.typed.scalar.category == "float" for v in bounds):
        # of bounds that are equal, PyTorch gives the lower one no gradient
        bound = differentiated(operate("minimum", (low, high), b.default_float), "none")
        low = choose(operate("eq", (low, high), b.default_float), bound, low, b.default_float)
    if low is not None:
        x = differentiated(operate("maximum", (x, low), b.default_float), "clamp_min")
    if high is not None:
        x = differentiated(operate("minimum", (x, high), b.default_float), "clamp_max")
    return as_type(x, typed)


def _pow(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return power(b.share(x, "x"), y, b.default_float)


def _float_mod(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """C's fmod, the sign of the dividend, for integers too."""
    typed = common((x, y), b.default_float)
    if typed.scalar.category == "float":
        return operate("fmod", (x, y), b.default_float)
    x, y = b.share(as_type(x, typed), "x"), b.share(as_type(y, typed), "y")
    rest = b.share(checks.checked(b, _op(b, "mod", x, y)), "rest")  # of y's sign; the lowest number has no absolute value
    if typed.scalar.category == "bool" or not typed.scalar.signed:
        return rest
    other = _op(b, "ne", _op(b, "lt", x, 0), _op(b, "lt", rest, 0))
    return choose(_op(b, "and", _op(b, "ne", rest, 0), other), _op(b, "sub", rest, y), rest, b.default_float)


def _predicate(name: str, of_integer: bool) -> ScalarFunction:
    def function(b: Builder, x: Scalar) -> Scalar:
        if x.typed.scalar.category != "float":
            return Scalar(Const(of_integer, BOOL), Typed(BOOL, x.typed.weight))
        return operate(name, (x,), b.default_float)

    return function


def leaky_relu(b: Builder, x: Scalar, slope: Scalar) -> Scalar:
    x = _in(b, x)
    return choose(_op(b, "gt", x, 0.0), x, _op(b, "mul", x, slope), b.default_float)


def _where(b: Builder, condition: Scalar, then: Scalar, orelse: Scalar) -> Scalar:
    typed = common((then, orelse), b.default_float)
    if typed.weight == 0:  # of two numbers, PyTorch makes a tensor
        typed = Typed(b.default_float if typed.scalar == FLOAT64 else typed.scalar, max(1, condition.typed.weight))
        then, orelse = (as_type(checks.taken(b, v, typed.scalar), typed) for v in (then, orelse))
    elif typed.scalar.category != "float" or typed.scalar.size > 2:  # elements of halves get infinities
        then, orelse = (checks.taken(b, v, typed.scalar) for v in (then, orelse))
    made = checks.of_all(b, lambda c, x, y: choose(c, x, y, b.default_float), condition, then, orelse)
    chosen = replace(made, alias=None)
    return chosen if isinstance(truth(condition).expr, Const) else differentiated(chosen, "both")


FLOAT_FUNCTIONS = [
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "sqrt",
    "log",
    "log2",
    "log10",
    "log1p",
    "rsqrt",
    "sigmoid",
]

# Functions of torch, and methods of tensors, that work element by element: (function, number of operands).
ELEMENTWISE: dict[str, tuple[ScalarFunction, int]] = {
    **{name: (operator(name), 1) for name in (*FLOAT_FUNCTIONS, "abs", "neg")},
    **{name: (_rounding(name), 1) for name in ("floor", "ceil", "trunc", "round")},
    "absolute": (operator("abs"), 1),
    "negative": (operator("neg"), 1),
    "sign": (lambda b, x: as_type(_op(b, "sign", x), x.typed), 1),
    "square": (_square, 1),
    "reciprocal": (lambda b, x: _op(b, "div", 1.0, as_type(x, arithmetic.floating(x.typed, b.default_float))), 1),
    "relu": (_relu, 1),
    "isnan": (_predicate("isnan", False), 1),
    "isinf": (_predicate("isinf", False), 1),
    "isfinite": (_predicate("isfinite", True), 1),
    "logical_not": (operator("not"), 1),
    "bitwise_not": (operator("bitnot"), 1),
    **{name: (operator(name), 2) for name in ("mul", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign")},
    "multiply": (operator("mul"), 2),
    "true_divide": (operator("div"), 2),
    "floor_divide": (checked_operator("floordiv"), 2),
    "remainder": (checked_operator("mod"), 2),
    "fmod": (_float_mod, 2),
    "pow": (_pow, 2),
    "logical_and": (operator("and"), 2),
    "logical_or": (operator("or"), 2),
    "logical_xor": (lambda b, x, y: _op(b, "ne", arithmetic.truth(x), arithmetic.truth(y)), 2),
    "bitwise_and": (operator("bitand"), 2),
    "bitwise_or": (operator("bitor"), 2),
    "bitwise_xor": (operator("bitxor"), 2),
    **{name: (operator(name), 2) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "where": (_where, 3),
}
# Those that ask for the types of their operands.
BY_TYPE = frozenset(
    (*("floor", "ceil", "trunc", "round", "sign", "square", "reciprocal", "relu", "isnan", "isinf", "isfinite"),
     *("bitwise_not", "fmod", "pow"))
)  # fmt: skip
NEURAL: dict[str, ScalarFunction] = {
    "silu": _silu,
    "softplus": _softplus,
    "relu": _relu,
    "sigmoid": ELEMENTWISE["sigmoid"][0],
    "tanh": ELEMENTWISE["tanh"][0],
    "logsigmoid": lambda b, x: _op(b, "neg", _softplus(b, _op(b, "neg", x))),
}
