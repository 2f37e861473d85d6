"""The functions of PyTorch that work element by element, as one table.

A function takes the builder and its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import checks, complexes, formulas, tensors
from weft.language.arguments import Arguments, static_bool
from weft.language.arithmetic import (
    as_type,
    choose,
    common,
    differentiated,
    floating,
    in_common,
    no_complex,
    operate,
    power,
    truth,
)
from weft.language.builder import Builder
from weft.language.kinds import distribute, paths, select
from weft.language.terms import Term, where
from weft.language.values import Computed, Scalar, Static, Value, describe, number
from weft.loops.ir import Const, Merge
from weft.loops.operators import POLYNOMIALS, SPECIAL_OF_ONE
from weft.loops.types import BOOL, COMPLEX128, FLOAT64, INT64, Typed, complex_of

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


def _abs(b: Builder, x: Scalar) -> Scalar:
    """Of bools, as PyTorch's on a GPU, they themselves."""
    return x if x.typed.weight and x.typed.scalar == BOOL else operate("abs", (x,), b.default_float)


def _square(b: Builder, x: Scalar) -> Scalar:
    if x.typed == Typed(BOOL, x.typed.weight):
        x = as_type(x, Typed(INT64, x.typed.weight))
    x = b.share(x, "x")
    return operate("mul", (x, x), b.default_float)


def _clamp(b: Builder, x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
    bounds = tuple(v for v in (low, high) if v is not None)
    if not bounds:
        raise TypeMismatch("clamp without a bound", remedy="pass min or max")
    typed = common((x, *bounds), b.default_float)
    if low is not None and high is not None and common((x, low), b.default_float) != typed:
        x, low, high = in_common((x, low, high), b.default_float)  # all three, before two of them meet
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
    x = b.share(x, "x")
    return checks.power(b, x, y, power(x, y, b.default_float))


def float_mod(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """C's fmod, the sign of the dividend, for integers too."""
    typed = common((x, y), b.default_float)
    if typed.scalar.category == "float":
        return operate("fmod", (x, y), b.default_float)
    x, y = b.share(as_type(x, typed), "x"), b.share(as_type(y, typed), "y")
    # of y's sign; the lowest number has no absolute value
    found = b.share(checks.checked(b, operate("mod", (x, y), b.default_float)), "rest")
    if typed.scalar.category == "bool" or not typed.scalar.signed:
        return found
    rest, dividend, divisor = Term(b, found), Term(b, x), Term(b, y)
    other = (dividend < 0).apply("ne", rest < 0)
    return where(rest.apply("ne", 0) & other, rest - divisor, rest).scalar


def divide_towards_zero(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """div with rounding_mode="trunc": integers stay integers."""
    typed = common((x, y), b.default_float)
    if typed.scalar.category == "float":
        return operate("trunc", (operate("div", (x, y), b.default_float),), b.default_float)
    x, y = b.share(as_type(x, typed), "x"), b.share(as_type(y, typed), "y")
    whole = operate("sub", (x, float_mod(b, x, y)), b.default_float)
    return operate("floordiv", (whole, y), b.default_float)


def _predicate(name: str, of_integer: bool) -> ScalarFunction:
    def function(b: Builder, x: Scalar) -> Scalar:
        if x.typed.scalar.category not in ("float", "complex"):
            return Scalar(Const(of_integer, BOOL), Typed(BOOL, x.typed.weight))
        return operate(name, (x,), b.default_float)

    return function


def _where(b: Builder, condition: Scalar, then: Scalar, orelse: Scalar) -> Scalar:
    typed = common((then, orelse), b.default_float)
    if typed.weight == 0:  # of two numbers, PyTorch makes a tensor
        own = {FLOAT64: b.default_float, COMPLEX128: complex_of(b.default_float)}
        typed = Typed(own.get(typed.scalar, typed.scalar), max(1, condition.typed.weight))
        then, orelse = (as_type(checks.taken(b, v, typed.scalar), typed) for v in (then, orelse))
    elif typed.scalar.category != "float" or typed.scalar.size > 2:  # elements of halves get infinities
        then, orelse = (checks.taken(b, v, typed.scalar) for v in (then, orelse))
    made = checks.of_all(b, lambda c, x, y: choose(c, x, y, b.default_float), condition, then, orelse)
    typed = replace(made.typed, weight=max(made.typed.weight, condition.typed.weight))  # with the condition's dimensions
    chosen = replace(made, typed=typed, alias=None)
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


@dataclass(frozen=True)
class Elementwise:
    """A function of PyTorch that works element by element.

    function: the builder, an operand for each name (None for one that is not given and may be left out) and the options, to the
    result. operands: the names of those after the first, with the numbers that they are by default (NEEDED: they have none;
    None: it may be left out). named: those of them that are given by name alone. options: what has to be known while parsing,
    and what it is by default. typed: it asks for the types of its operands. loss: it has a `reduction`.
    """

    function: ScalarFunction
    operands: Mapping[str, float | None] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    options: Mapping[str, bool | int | str] = field(default_factory=dict)
    typed: bool = True
    loss: bool = False


NEEDED = math.nan  # no function has it for a default


def _function(function: ScalarFunction, *operands: str) -> Elementwise:
    return Elementwise(function, dict.fromkeys(operands, NEEDED), typed=False)


def _formula(
    formula: Callable[..., Term], *needed: str, integers: bool = False, loss: bool = False, **others: float | str | None
) -> Elementwise:
    """A formula of terms. integers: it is one of integers too, which otherwise become floats. others: operands that may be left
    out, with what they are then; options, if that is a bool, an int or a string. What is called `value` is given by name alone.
    """
    options = {name: v for name, v in others.items() if isinstance(v, (bool, int, str))}
    operands: dict[str, float | None] = dict.fromkeys(needed, NEEDED)
    operands |= {n: v for n, v in others.items() if v is None or (n not in options and not isinstance(v, str))}

    def function(b: Builder, *values: Scalar | None, **chosen: object) -> Scalar:
        given = [v for v in values if v is not None]
        typed = floating(common(tuple(given), b.default_float), b.default_float)
        terms = [None if v is None else Term(b, b.share(v if integers else as_type(v, typed), "x")) for v in values]
        return formula(*terms, **chosen).scalar

    return Elementwise(function, operands, frozenset(("value",)) & frozenset(others), options, loss=loss)


def _operator(name: str, *operands: str) -> Elementwise:
    return _function(operator(name), *operands)


def _typed(function: ScalarFunction, *operands: str) -> Elementwise:
    """A function that asks for the types of its operands."""
    return Elementwise(function, dict.fromkeys(operands, NEEDED))


def _heaviside(b: Builder, x: Scalar, values: Scalar) -> Scalar:
    """Of the type that both have in common: PyTorch takes two tensors of one dtype."""
    typed = common((x, values), b.default_float)
    return formulas.heaviside(*(Term(b, b.share(as_type(v, typed), "x")) for v in (x, values))).scalar


def _reciprocal(b: Builder, x: Scalar) -> Scalar:
    return operate("div", (number(1.0), as_type(x, floating(x.typed, b.default_float))), b.default_float)


def _nextafter(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    typed = common((x, y), b.default_float)
    if typed.scalar.opmath != typed.scalar:
        return formulas.neighbour(Term(b, as_type(x, typed)), Term(b, as_type(y, typed)), typed.scalar).scalar
    return operate("nextafter", (x, y), b.default_float)


_BINARY = ("mul", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "lt", "le", "gt", "ge", "eq", "ne")

# Functions of torch, torch.special and torch.nn.functional, and methods of tensors, under the first of their names.
_FUNCTIONS: dict[str, Elementwise] = {
    **{name: _operator(name) for name in (*FLOAT_FUNCTIONS, "neg")},
    "abs": _typed(_abs),
    **{name: _typed(_rounding(name)) for name in ("floor", "ceil", "trunc")},
    **{name: _operator(name, "other") for name in _BINARY},
    "round": _formula(formulas.rounded, integers=True, decimals=0),
    "frac": _formula(formulas.frac),
    "sign": _formula(formulas.sign, integers=True),
    "signbit": _formula(formulas.signbit, integers=True),
    "angle": _formula(formulas.angle),
    "square": _typed(_square),
    "reciprocal": _typed(_reciprocal),
    "isnan": _typed(_predicate("isnan", False)),
    "isinf": _typed(_predicate("isinf", False)),
    "isfinite": _typed(_predicate("isfinite", True)),
    "isposinf": _formula(lambda x: formulas.is_infinity(x, math.inf), integers=True),
    "isneginf": _formula(lambda x: formulas.is_infinity(x, -math.inf), integers=True),
    "isreal": _formula(formulas.is_real, integers=True),
    "nan_to_num": _formula(formulas.nan_to_num, integers=True, nan=None, posinf=None, neginf=None),
    "deg2rad": _formula(lambda x: x * (math.pi / 180)),
    "rad2deg": _formula(lambda x: x * (180 / math.pi)),
    "sinc": _formula(formulas.sinc),
    **{name: _operator(name) for name in ("lgamma", "digamma", "erfinv", "i0", *SPECIAL_OF_ONE)},
    "modified_bessel_i0": _operator("i0"),
    "modified_bessel_i1": _operator("i1"),
    "mvlgamma": _formula(formulas.mvlgamma, p=1),
    **{name: _operator(name, "n") for name in POLYNOMIALS},
    "zeta": _operator("zeta", "other"),
    "igamma": _operator("igamma", "other"),
    "igammac": _operator("igammac", "other"),
    "xlogy": _operator("xlogy", "other"),
    "xlog1py": _operator("xlog1py", "other"),
    "nextafter": _typed(_nextafter, "other"),
    "gcd": _operator("gcd", "other"),
    "lcm": _operator("lcm", "other"),
    "logit": _formula(formulas.logit, eps=None),
    "logical_not": _operator("not"),
    "bitwise_not": _typed(operator("bitnot")),
    "true_divide": _operator("div", "other"),
    "floor_divide": _function(checked_operator("floordiv"), "other"),
    "remainder": _function(checked_operator("mod"), "other"),
    "fmod": _typed(float_mod, "other"),
    "pow": _typed(_pow, "exponent"),
    "float_power": _formula(formulas.float_power, "exponent", integers=True),
    "logical_and": _operator("and", "other"),
    "logical_or": _operator("or", "other"),
    "logical_xor": _function(lambda b, x, y: operate("ne", (truth(x), truth(y)), b.default_float), "other"),
    "bitwise_and": _operator("bitand", "other"),
    "bitwise_or": _operator("bitor", "other"),
    "bitwise_xor": _operator("bitxor", "other"),
    "bitwise_left_shift": _operator("shl", "other"),
    "bitwise_right_shift": _operator("shr", "other"),
    "heaviside": _typed(_heaviside, "values"),
    "logaddexp": _formula(formulas.logaddexp, "other"),
    "logaddexp2": _formula(formulas.logaddexp2, "other"),
    "ldexp": _formula(formulas.ldexp, "other"),
    "isclose": _formula(formulas.isclose, "other", integers=True, rtol=1e-05, atol=1e-08, equal_nan=False),
    "lerp": _formula(formulas.lerp, "end", "weight"),
    "addcmul": _formula(formulas.addcmul, "tensor1", "tensor2", integers=True, value=1.0),
    "addcdiv": _formula(formulas.addcdiv, "tensor1", "tensor2", value=1.0),
    "clamp": Elementwise(_clamp, {"min": None, "max": None}),
    "clamp_min": _typed(lambda b, x, low: _clamp(b, x, low, None), "min"),
    "clamp_max": _typed(lambda b, x, high: _clamp(b, x, None, high), "max"),
    "where": _function(_where, "input", "other"),
    # activations
    "relu": _formula(formulas.relu, integers=True),
    "relu6": _formula(formulas.relu6, integers=True),
    "leaky_relu": _formula(formulas.leaky_relu, negative_slope=0.01),
    "rrelu": _formula(formulas.rrelu, lower=1 / 8, upper=1 / 3, training=False),
    "elu": _formula(formulas.elu, alpha=1.0),
    "celu": _formula(formulas.celu, alpha=1.0),
    "selu": _formula(formulas.selu),
    "silu": _formula(formulas.silu),
    "mish": _formula(formulas.mish),
    "gelu": _formula(formulas.gelu, approximate="none"),
    "softplus": _formula(formulas.softplus, beta=1.0, threshold=20.0),
    "logsigmoid": _formula(formulas.logsigmoid),
    "hardtanh": _formula(formulas.hardtanh, integers=True, min_val=-1.0, max_val=1.0),
    "hardshrink": _formula(formulas.hardshrink, lambd=0.5),
    "softshrink": _formula(formulas.softshrink, lambd=0.5),
    "hardsigmoid": _formula(formulas.hardsigmoid),
    "hardswish": _formula(formulas.hardswish),
    "softsign": _formula(formulas.softsign),
    "tanhshrink": _formula(formulas.tanhshrink),
    "threshold": _formula(formulas.threshold, "threshold", "value", integers=True),
    # losses
    "mse_loss": _formula(formulas.squared_error, "target", loss=True),
    "l1_loss": _formula(formulas.absolute_error, "target", loss=True),
    "smooth_l1_loss": _formula(formulas.smooth_l1, "target", loss=True, beta=1.0),
    "huber_loss": _formula(formulas.huber, "target", loss=True, delta=1.0),
    "soft_margin_loss": _formula(formulas.soft_margin, "target", loss=True),
    "binary_cross_entropy_with_logits": _formula(
        formulas.binary_cross_entropy_with_logits, "target", loss=True, weight=None, pos_weight=None
    ),
    "binary_cross_entropy": _formula(formulas.binary_cross_entropy, "target", loss=True, weight=None),
    "kl_div": _formula(formulas.kl_div, "target", loss=True, log_target=False),
    "poisson_nll_loss": _formula(formulas.poisson_nll, "target", loss=True, eps=1e-8, log_input=True, full=False),
    "hinge_embedding_loss": _formula(formulas.hinge_embedding, "target", loss=True, margin=1.0),
    "margin_ranking_loss": _formula(formulas.margin_ranking, "input2", "target", loss=True, margin=0.0),
}
# The other names that they have.
_NAMES = {
    "abs": ("absolute",), "neg": ("negative",), "sign": ("sgn",), "trunc": ("fix",), "sigmoid": ("expit",),
    "acos": ("arccos",), "asin": ("arcsin",), "atan": ("arctan",), "acosh": ("arccosh",), "asinh": ("arcsinh",),
    "atanh": ("arctanh",), "atan2": ("arctan2",), "mul": ("multiply",), "clamp": ("clip",),
    "lgamma": ("gammaln",), "digamma": ("psi",), "mvlgamma": ("multigammaln",),
    "igamma": ("gammainc",), "igammac": ("gammaincc",),
    "lt": ("less",), "le": ("less_equal",), "gt": ("greater",), "ge": ("greater_equal",), "ne": ("not_equal",),
}  # fmt: skip
_OF_COMPLEX = complexes.functions(lambda name: _FUNCTIONS[name].function)
ELEMENTWISE = _FUNCTIONS | {other: _FUNCTIONS[name] for name, others in _NAMES.items() for other in others}


def call(b: Builder, what: Elementwise, arguments: Arguments, x: Value) -> Scalar | Computed:
    """Such a function of a first operand and of the arguments of its call."""
    given: list[Value | None] = [x]
    for name, default in what.operands.items():
        value = arguments.named(name) if name in what.named else arguments.take(name)
        if value is None or (isinstance(value, Static) and value.value is None):
            if default is NEEDED:
                arguments.need(name)  # which there is none of
            value = None if default is None else number(default)
        given.append(value)
    take = arguments.named if what.loss else arguments.take
    options = {name: _option(take(name), default) for name, default in what.options.items()}
    if static_bool(arguments.named("inplace")):
        raise UnsupportedSyntax(f"{arguments.name} with inplace=True", remedy="leave it out, and store the result")
    reduction = _option(arguments.named("reduction"), "mean") if what.loss else "none"
    arguments.done()
    operands = [v for v in given if v is not None]

    plain = arguments.name.rpartition(".")[2]

    def function(builder: Builder, *scalars: Scalar) -> Scalar:
        rest = iter(scalars)
        values = tuple(None if v is None else next(rest) for v in given)
        if any(v is not None and v.mixed is None and complexes.is_complex(v) for v in values):
            return _of_complex(what, plain)(builder, *values, **options)
        return what.function(builder, *values, **options)

    typed = what.typed or any(map(complexes.is_complex, operands))
    result = tensors.lift(b, of_each_kind(function) if typed else function, *operands)
    if reduction == "none" or isinstance(result, Scalar):
        return result
    if reduction not in ("mean", "sum"):
        raise TypeMismatch(f"reduction={reduction!r} of {arguments.name}", remedy="use mean, sum or none")
    return tensors.reduce(b, reduction, result, tuple(range(len(result.dims))), False)


def _of_complex(what: Elementwise, name: str) -> ScalarFunction:
    """Such a function of complex numbers. Raises TypeMismatch where there is none."""
    known = next(n for n, found in _FUNCTIONS.items() if found is what)
    known = name if name == "sgn" else known  # which is `sign` of real numbers
    if known in _OF_COMPLEX:
        return _OF_COMPLEX[known]
    if known not in complexes.ALIKE:
        raise no_complex(name)
    return what.function


def _option(value: Value | None, default: bool | int | str) -> bool | int | str:
    """An argument that is known while parsing."""
    if value is None:
        return default
    found = value.value if isinstance(value, Static) else value.constant if isinstance(value, Scalar) else None
    if not isinstance(found, type(default)):
        raise TypeMismatch(f"{describe(value)} where a constant is needed", remedy=f"write it as {default!r} is written")
    return found
