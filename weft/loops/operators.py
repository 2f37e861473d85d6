"""The operators of expressions, as one table: type rule, meaning in Python, spelling in C++.

Spelling: `{0} + {1}` is C++ infix; a bare word is a function of `runtime/device/scalar.cuh`, and `special::word` one of
`runtime/device/special.cuh`, `complex::word` of `runtime/device/complex.cuh`, overloaded on the register types and meaning the
same on the host and on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from weft.loops.types import BOOL, ScalarType

Rule = Literal[
    "arithmetic",  # T, T -> T for int and float
    "float",  # float T, ... -> T
    "integer",  # int or bool T, ... -> T
    "comparison",  # T, T -> bool
    "logical",  # bool, ... -> bool
    "predicate",  # T -> bool
    "where",  # bool, T, T -> T
    "check",  # T, bool -> T
]


@dataclass(frozen=True)
class Operator:
    """module: where a function of this name is, for a program that is written as Python; or the text of such an expression, the
    operands in braces.
    """

    name: str
    arity: int
    rule: Rule
    spelling: str
    evaluate: Callable[..., Any]
    module: str = "torch"

    def check(self, args: tuple[ScalarType, ...], result: ScalarType) -> None:
        """Raise AssertionError if these register types break the operator's type rule."""
        assert len(args) == self.arity, f"{self.name} takes {self.arity} operands"
        if self.rule == "where":
            assert args[0] == BOOL and args[1] == args[2] == result, self.name
            return
        if self.rule == "check":
            assert args == (result, BOOL), self.name
            return
        assert all(a == args[0] for a in args), f"{self.name} of {args}"
        category = args[0].category
        if self.rule in ("comparison", "predicate"):
            assert result == BOOL, self.name
        elif self.rule == "logical":
            assert args[0] == BOOL == result, self.name
        else:
            assert result == args[0], f"{self.name}: {args} -> {result}"
            allowed = {"arithmetic": ("int", "float"), "float": ("float",), "integer": ("bool", "int")}[self.rule]
            assert category in allowed, f"{self.name} of {category}"


def _guard(function: Callable[..., float]) -> Callable[..., float]:
    """The IEEE result where Python's math raises."""

    def evaluate(*args: float) -> float:
        try:
            return function(*args)
        except OverflowError:
            return math.inf
        except (ValueError, ZeroDivisionError):
            return math.nan

    return evaluate


def _divide(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _floor_divide(a: Any, b: Any) -> Any:
    if b == 0:
        return _divide(a, b) if isinstance(a, float) else 0
    return a // b


def _mod(a: Any, b: Any) -> Any:
    if b == 0:
        return math.nan if isinstance(a, float) else 0
    return a % b


def _fits(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _check(value: Any, condition: bool) -> Any:
    if not condition:
        raise ArithmeticError("a check does not hold")
    return value


def _log(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: -math.inf if x == 0 else _guard(function)(x)


def _maximum(a: Any, b: Any) -> Any:
    return a if a != a or a > b else b


def _minimum(a: Any, b: Any) -> Any:
    return a if a != a or a < b else b


def _fmax(a: Any, b: Any) -> Any:
    return b if a != a else a if b != b else max(a, b)


def _fmin(a: Any, b: Any) -> Any:
    return b if a != a else a if b != b else min(a, b)


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and b < 0:  # the whole part of the inverse, 0 of 0's too
        return (1 if b % 2 == 0 else a) if a in (1, -1) else 0
    return a**b


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _gelu(x: float) -> float:
    return math.nan if x == -math.inf else x * 0.5 * math.erfc(-x * math.sqrt(0.5))


def _of_torch(name: str) -> Callable[..., float]:
    """PyTorch's function in double precision: the meaning that device functions of our own are held against."""

    def evaluate(*args: float) -> float:
        import torch

        found = getattr(torch.special, name) if hasattr(torch.special, name) else getattr(torch, name)
        return float(found(*(a if isinstance(a, int) else torch.tensor(a, dtype=torch.float64) for a in args)))

    return evaluate


def _product_of_log(log: Callable[[float], float]) -> Callable[[float, float], float]:
    """a log(b), 0 where a is 0."""
    return lambda a, b: math.nan if b != b else 0.0 if a == 0 else a * log(b)


def _log1p(x: float) -> float:
    return -math.inf if x == -1 else _guard(math.log1p)(x)


def _cross_entropy(a: float, b: float) -> float:
    """-b log(a) - (1 - b) log(1 - a), the logarithms at least -100."""
    return float((b - 1) * _maximum(_log1p(-a), -100.0) - b * _maximum(_log(math.log)(a), -100.0))


def _special(name: str, arity: int, evaluate: Callable[..., Any] | None = None, module: str = "torch.special") -> Operator:
    return Operator(name, arity, "float", f"special::{name}", evaluate or _of_torch(name), module)


# Functions of complex numbers that are operators for each of their parts: of a number of two parts, and of two numbers. Their
# names, and those of PyTorch's functions, which are the meaning.
COMPLEX_OF_ONE = ("exp", "expm1", "log", "log1p", "sqrt", "sinh", "cosh", "tanh", "asinh", "acos", "acosh", "atanh")
COMPLEX_OF_TWO = {"divide": "div", "power": "pow"}


def _complex(name: str, function: str, arity: int) -> tuple[Operator, ...]:
    """The operators of both parts of a function of complex numbers."""

    def evaluate(*parts: float) -> complex:
        import torch

        numbers = [torch.complex(*(torch.tensor(float(p), dtype=torch.float64) for p in parts[k : k + 2]))
                   for k in range(0, arity, 2)]  # fmt: skip
        return complex(getattr(torch, function)(*numbers))

    numbers = ", ".join(f"torch.complex({{{k}}}, {{{k + 1}}})" for k in range(0, arity, 2))
    text = f"torch.{function}({numbers})"
    return (
        Operator(f"complex_{name}_re", arity, "float", f"complex::{name}_re", lambda *p: evaluate(*p).real, f"{text}.real"),
        Operator(f"complex_{name}_im", arity, "float", f"complex::{name}_im", lambda *p: evaluate(*p).imag, f"{text}.imag"),
    )


SPECIAL_OF_ONE = (
    *("erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"),
    *("modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
    *("spherical_bessel_j0", "airy_ai"),
)
POLYNOMIALS = (
    *(f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"),
)

# Operators that no program has: some texts for a GPU have them in place of others.
ROUGH = frozenset({"exp_rough", "exp_flushed", "exp2_flushed", "one_and_tanh", "one_less_tanh_squared", "divide_rough"})

_TABLE = [
    Operator("add", 2, "arithmetic", "{0} + {1}", lambda a, b: a + b),
    Operator("sub", 2, "arithmetic", "{0} - {1}", lambda a, b: a - b),
    Operator("mul", 2, "arithmetic", "{0} * {1}", lambda a, b: a * b),
    Operator("neg", 1, "arithmetic", "-{0}", lambda a: -a),
    Operator("abs", 1, "arithmetic", "absolute", abs),
    # Python's // and %: towards minus infinity, the sign of the divisor; an integer divided by 0 gives 0
    Operator("floordiv", 2, "arithmetic", "floor_divide", _floor_divide),
    Operator("mod", 2, "arithmetic", "modulo", _mod),
    # Python's max(a, b) is b if b > a else a; maximum and minimum propagate NaN, fmax and fmin drop it
    Operator("max", 2, "arithmetic", "python_max", lambda a, b: b if b > a else a),
    Operator("min", 2, "arithmetic", "python_min", lambda a, b: b if b < a else a),
    Operator("maximum", 2, "arithmetic", "maximum", _maximum),
    Operator("minimum", 2, "arithmetic", "minimum", _minimum),
    Operator("fmax", 2, "arithmetic", "drop_nan_max", _fmax),
    Operator("fmin", 2, "arithmetic", "drop_nan_min", _fmin),
    Operator("sign", 1, "arithmetic", "sign", lambda a: (a > 0) - (a < 0)),
    Operator("pow", 2, "arithmetic", "power", _guard(_power)),
    Operator("div", 2, "float", "{0} / {1}", _divide),
    Operator("fmod", 2, "float", "fmod", _guard(math.fmod)),
    Operator("atan2", 2, "float", "atan2", math.atan2),
    Operator("hypot", 2, "float", "hypot", math.hypot),
    Operator("copysign", 2, "float", "copysign", math.copysign),
    *(
        Operator(name, 1, "float", name, _guard(getattr(math, name)))
        for name in (
            *("exp", "exp2", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
            *("asinh", "acosh", "atanh", "erf", "erfc", "sqrt"),
        )
    ),
    # the same, right to |x| 2^-24 + 2^-22 of itself, on a GPU; where it is below 2^-126 the second is 0: see weft.emit.rough
    *(Operator(name, 1, "float", name, _guard(math.exp)) for name in ("exp_flushed", "exp_rough")),
    # 1 + tanh(x), 1 - tanh(x)^2, and a / b for a b of 1 or more, right to 2^-20 of itself, on a GPU
    Operator("one_and_tanh", 1, "float", "one_and_tanh", lambda x: 1.0 + math.tanh(x)),
    Operator("one_less_tanh_squared", 1, "float", "one_less_tanh_squared", lambda x: 1.0 - math.tanh(x) ** 2),
    Operator("divide_rough", 2, "float", "divide_rough", _divide),
    # 2^x, of two units of the last place; 0 where it is below 2^-126
    Operator("exp2_flushed", 1, "float", "exp2_estimate", _guard(lambda x: 2.0**x)),
    *(Operator(name, 1, "float", name, _log(getattr(math, name))) for name in ("log", "log2", "log10")),
    Operator("log1p", 1, "float", "log1p", _log1p),
    Operator("rsqrt", 1, "float", "rsqrt", lambda x: math.inf if x == 0 else _guard(lambda v: 1 / math.sqrt(v))(x)),
    Operator("sigmoid", 1, "float", "sigmoid", _sigmoid),
    Operator("gelu", 1, "float", "gelu", _gelu, "torch.nn.functional"),
    Operator("nextafter", 2, "float", "nextafter", math.nextafter),
    _special("logit", 1, lambda x: math.nan if not 0 <= x <= 1 else _log(math.log)(_divide(x, 1 - x)), "torch"),
    _special("xlogy", 2, _product_of_log(_log(math.log)), "torch"),
    _special("xlog1py", 2, _product_of_log(_log1p)),
    *(_special(name, 1, module="torch") for name in ("lgamma", "digamma", "erfinv", "i0")),
    *(_special(name, 1) for name in SPECIAL_OF_ONE if name != "ndtr"),
    _special("ndtr", 1, lambda x: 0.5 * math.erfc(-x * math.sqrt(0.5))),  # PyTorch's loses it where it is small
    _special("polygamma", 2, lambda n, x: _of_torch("polygamma")(int(n), x), "torch"),
    *(_special(name, 2, module="torch") for name in ("igamma", "igammac")),
    *(_special(name, 2) for name in ("zeta", *POLYNOMIALS)),
    *(operator for name in COMPLEX_OF_ONE for operator in _complex(name, name, 2)),
    *(operator for name, function in COMPLEX_OF_TWO.items() for operator in _complex(name, function, 4)),
    _special("binary_cross_entropy", 2, _cross_entropy, "torch.nn.functional"),
    *(
        Operator(name, 1, "float", name, lambda x, f=function: float(f(x)) if math.isfinite(x) else x)
        for name, function in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("round", round))
    ),
    Operator("lt", 2, "comparison", "{0} < {1}", lambda a, b: a < b),
    Operator("le", 2, "comparison", "{0} <= {1}", lambda a, b: a <= b),
    Operator("gt", 2, "comparison", "{0} > {1}", lambda a, b: a > b),
    Operator("ge", 2, "comparison", "{0} >= {1}", lambda a, b: a >= b),
    Operator("eq", 2, "comparison", "{0} == {1}", lambda a, b: a == b),
    Operator("ne", 2, "comparison", "{0} != {1}", lambda a, b: a != b),
    Operator("isnan", 1, "predicate", "is_nan", lambda a: a != a),
    Operator("isinf", 1, "predicate", "is_inf", lambda a: abs(a) == math.inf),
    Operator("isfinite", 1, "predicate", "is_finite", lambda a: a == a and abs(a) != math.inf),
    Operator("and", 2, "logical", "{0} && {1}", lambda a, b: a and b),
    Operator("or", 2, "logical", "{0} || {1}", lambda a, b: a or b),
    Operator("not", 1, "logical", "!{0}", lambda a: not a),
    Operator("bitand", 2, "integer", "{0} & {1}", lambda a, b: a & b),
    Operator("bitor", 2, "integer", "{0} | {1}", lambda a, b: a | b),
    Operator("bitxor", 2, "integer", "{0} ^ {1}", lambda a, b: a ^ b),
    Operator("bitnot", 1, "integer", "bit_not", lambda a: (not a) if isinstance(a, bool) else ~a),
    Operator("gcd", 2, "integer", "gcd", math.gcd),
    Operator("lcm", 2, "integer", "lcm", math.lcm),
    # shifts by the width or more, or by a negative amount, give 0 or -1
    Operator("shl", 2, "integer", "shift_left", lambda a, b: a << b if 0 <= b < 64 else 0),
    Operator("shr", 2, "integer", "shift_right", lambda a, b: a >> (b if b >= 0 else 64)),
    # Python's ints have no width: whether one of 64 bits holds the result
    Operator("fits_add", 2, "comparison", "fits_add", lambda a, b: _fits(a + b)),
    Operator("fits_sub", 2, "comparison", "fits_sub", lambda a, b: _fits(a - b)),
    Operator("fits_mul", 2, "comparison", "fits_mul", lambda a, b: _fits(a * b)),
    Operator("fits_shl", 2, "comparison", "fits_shl", lambda a, b: a == 0 or (b < 64 and _fits(a << max(b, 0)))),
    Operator("fits_pow", 2, "comparison", "fits_pow", lambda a, b: abs(a) < 2 or (b < 64 and _fits(a ** max(b, 0)))),
    # what Python raises where the second operand does not hold: see weft.loops.ir.Check
    Operator("check", 2, "check", "check", _check),
    Operator("where", 3, "where", "{0} ? {1} : {2}", lambda c, a, b: a if c else b),
]

OPERATORS: dict[str, Operator] = {operator.name: operator for operator in _TABLE}

# Operators that cost more than the registers their result takes.
COSTLY = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "hypot", "fmod", "mod"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("erf", "erfc", "sigmoid", "gelu", *(o.name for o in _TABLE if o.spelling.startswith(("special::", "complex::")))),
    )
)
