"""PyTorch's elementwise functions that are formulas in operators of weft.loops.operators.

The side that a formula does not choose hands no gradient back; what is chosen at a border is what has PyTorch's gradient there.
"""

from __future__ import annotations

import math

from weft.errors import TypeMismatch
from weft.language.arithmetic import in_common
from weft.language.checks import LARGEST_FLOATS, taken
from weft.language.terms import Term, where
from weft.loops.types import BOOL, FLOAT16, FLOAT32, FLOAT64, ScalarType

# ---------------------------------------------------------------- of one operand


def _exp(x: Term) -> Term:
    return x.apply("exp")


def _log(x: Term) -> Term:
    return x.apply("log")


def _log1p_exp(x: Term) -> Term:
    """log(1 + e^x), which is x from 40 on: e^-40 is less than half a unit in the last place of 40 in double precision."""
    return where(x > 40.0, x, _exp(x).apply("log1p"))


def _either_infinity(x: Term) -> Term:
    return x.equals(math.inf) | x.equals(-math.inf)


def frac(x: Term) -> Term:
    return x - x.apply("trunc")


def angle(x: Term) -> Term:
    """The argument of a number on the real line: pi below 0, else 0."""
    return where(x.apply("isnan"), math.nan, where(x < 0.0, math.pi, 0.0)).like(x)


def sign(x: Term) -> Term:
    return x if x.dtype == BOOL else x.apply("sign").like(x)


def signbit(x: Term) -> Term:
    if x.is_float:
        return Term.of(1.0, x).apply("copysign", x) < 0.0
    return x < 0


def is_infinity(x: Term, infinity: float) -> Term:
    return x.equals(infinity) if x.is_float else Term.of(False, x).to(BOOL)


def is_real(x: Term) -> Term:
    return Term.of(True, x).to(BOOL)


def rounded(x: Term, decimals: int = 0) -> Term:
    """Halves to even, at so many decimals after the point."""
    if not x.is_float or decimals == 0:
        return x.apply("round") if x.is_float else x
    power = math.pow(10.0, abs(decimals))
    return (x * power).apply("round") / power if decimals > 0 else (x / power).apply("round") * power


def nan_to_num(x: Term, nan: Term | None, posinf: Term | None, neginf: Term | None) -> Term:
    if not x.is_float:
        return x
    largest = LARGEST_FLOATS.get(x.dtype, 1.7976931348623157e308)
    low, high = -largest if neginf is None else neginf, largest if posinf is None else posinf
    finite = where(x.equals(math.inf), high, where(x.equals(-math.inf), low, x))
    return where(x.apply("isnan"), 0.0 if nan is None else nan, finite).like(x)


def neighbour(x: Term, towards: Term, dtype: ScalarType) -> Term:
    """The next half from x: a step of a little more than half the distance to it, computed in float32, and rounded."""
    digits, half_of_least = (11, 2.0**-25) if dtype == FLOAT16 else (8, 2.0**-134)
    x, y = x.to(dtype).to(FLOAT32).shared(), towards.to(dtype).to(FLOAT32).shared()
    step = (abs(x) * (1.01 * 2.0**-digits)).apply("maximum", 1.01 * half_of_least).shared()
    largest = LARGEST_FLOATS[dtype]
    inwards = where(x > 0.0, largest, -largest)
    beside = where(_either_infinity(x), inwards, where(x < y, x + step, x - step))
    return where(x.equals(y) | y.apply("isnan"), y, beside).differentiated("none").to(dtype)


def sinc(x: Term) -> Term:
    """sin(pi x) / (pi x), and 1 at 0."""
    scaled = (x * math.pi).shared()
    return where(x.equals(0.0), 1.0, scaled.apply("sin") / scaled)


def logit(x: Term, eps: Term | None) -> Term:
    """log(x / (1 - x)) of x between eps and 1 - eps."""
    if eps is not None:
        high = 1.0 - eps
        x = where(x < eps, eps, where(x > high, high, x)).shared()
    return x.apply("logit")


def mvlgamma(x: Term, p: int) -> Term:
    """The logarithm of the gamma function of p dimensions: p (p - 1) log(pi) / 4 and the lgamma(x - k / 2), k < p."""
    if p < 1:
        raise TypeMismatch(f"mvlgamma of p = {p}", remedy="p is 1 or more")
    total = x.apply("lgamma") + p * (p - 1) / 4 * math.log(math.pi)
    for k in range(1, p):
        total = total + (x - 0.5 * k).apply("lgamma")
    return total


# ---------------------------------------------------------------- activations


def softplus(x: Term, beta: Term, threshold: Term) -> Term:
    scaled = (x * beta).shared()
    return where(scaled > threshold, x, _exp(scaled).apply("log1p") / beta)


def logsigmoid(x: Term) -> Term:
    return -_log1p_exp(-x)


def silu(x: Term) -> Term:
    return x * x.apply("sigmoid")


def mish(x: Term) -> Term:
    return x * _log1p_exp(x).apply("tanh")


def gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + (0.7978845608028654 * (x + 0.044715 * (x * x * x))).apply("tanh"))
    if approximate != "none":
        raise TypeMismatch(f"gelu with approximate={approximate!r}", remedy="use 'none' or 'tanh'")
    return x.apply("gelu")


def relu(x: Term) -> Term:
    return x.apply("maximum", 0).differentiated("relu").like(x)


def leaky_relu(x: Term, negative_slope: Term) -> Term:
    return where(x > 0.0, x, x * negative_slope)


def rrelu(x: Term, lower: Term, upper: Term, training: bool = False) -> Term:
    """As outside of training, where its slope is the mean of its bounds."""
    if training:
        raise TypeMismatch("rrelu in training is random", remedy="pass a tensor of slopes: torch.where(x >= 0, x, x * s)")
    return leaky_relu(x, (lower + upper) * 0.5)


def elu(x: Term, alpha: Term) -> Term:
    return where(x <= 0.0, x.apply("expm1") * alpha, x)


def celu(x: Term, alpha: Term) -> Term:
    return where(x <= 0.0, (x * (1.0 / alpha)).apply("expm1") * alpha, x)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def selu(x: Term) -> Term:
    return where(x <= 0.0, x.apply("expm1") * (_SELU_ALPHA * _SELU_SCALE), x * _SELU_SCALE)


def hardtanh(x: Term, min_val: Term, max_val: Term) -> Term:
    low, high = min_val.like(x), max_val.like(x)
    return where(x <= low, low, where(x >= high, high, x))


def relu6(x: Term) -> Term:
    return hardtanh(x, Term.of(0.0, x), Term.of(6.0, x))


def hardshrink(x: Term, lambd: Term) -> Term:
    return where((x >= -lambd) & (x <= lambd), 0.0, x)


def softshrink(x: Term, lambd: Term) -> Term:
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, where(x.apply("isnan"), x, 0.0)))


def tanhshrink(x: Term) -> Term:
    return x - x.apply("tanh")


def softsign(x: Term) -> Term:
    return x / (abs(x) + 1.0)


def hardsigmoid(x: Term) -> Term:
    outside = where(x >= 3.0, 1.0, where(x <= -3.0, 0.0, math.nan)).like(x)
    return where((x > -3.0) & (x < 3.0), (x + 3.0) / 6.0, outside)


def hardswish(x: Term) -> Term:
    inside = x * (x + 3.0) / 6.0
    return where(x <= -3.0, where(x.equals(-math.inf), math.nan, 0.0).like(x), where(x < 3.0, inside, x * 6.0 / 6.0))


def threshold(x: Term, threshold: Term, value: Term) -> Term:
    return where(x <= threshold, value.like(x), x)


# ---------------------------------------------------------------- of several operands


def float_power(x: Term, exponent: Term) -> Term:
    return x.to(FLOAT64).power(exponent.to(FLOAT64) if exponent.scalar.constant is None else exponent)


def heaviside(x: Term, values: Term) -> Term:
    return where(x.equals(0), values, (x > 0).like(values))


def logaddexp(x: Term, y: Term) -> Term:
    rest = _exp(-abs(x - y)).apply("log1p")
    return where(_either_infinity(x) & x.equals(y), x, x.apply("maximum", y) + rest)


def logaddexp2(x: Term, y: Term) -> Term:
    rest = (-abs(x - y)).apply("exp2").apply("log1p") * (1 / math.log(2))
    return where(_either_infinity(x) & x.equals(y), x, x.apply("maximum", y) + rest)


def ldexp(x: Term, other: Term) -> Term:
    return x * other.apply("exp2")


def isclose(x: Term, y: Term, rtol: Term, atol: Term, equal_nan: bool = False) -> Term:
    """Equal, or with a finite difference of at most atol + rtol |y|."""
    error = abs(x.floating() - y.floating()).shared()
    close = x.equals(y) | (error.apply("isfinite") & (error <= abs(rtol * y.floating()) + atol))
    return close | (x.apply("isnan") & y.apply("isnan")) if equal_nan else close


def lerp(start: Term, end: Term, weight: Term) -> Term:
    """From the end that is nearer, so that it is reached exactly."""
    distance = (end - start).shared()
    return where(abs(weight) < 0.5, start + weight * distance, end - distance * (1.0 - weight))


def addcmul(x: Term, tensor1: Term, tensor2: Term, value: Term) -> Term:
    """Of integers, a float's whole part is its value, as PyTorch takes it."""
    x, tensor1, tensor2 = _in_common(x, tensor1, tensor2)
    if all(t.dtype.category == "int" for t in (x, tensor1, tensor2)):
        value = Term(x.builder, taken(x.builder, value.scalar, x.dtype)).like(x)
    return x + value * tensor1 * tensor2


def addcdiv(x: Term, tensor1: Term, tensor2: Term, value: Term) -> Term:
    x, tensor1, tensor2 = _in_common(x, tensor1, tensor2)
    return x + value * tensor1 / tensor2


def _in_common(*terms: Term) -> tuple[Term, ...]:
    b = terms[0].builder
    return tuple(Term(b, s) for s in in_common(tuple(t.scalar for t in terms), b.default_float))


# ---------------------------------------------------------------- losses, before they are reduced


def squared_error(x: Term, y: Term) -> Term:
    difference = (x - y).shared()
    return difference * difference


def absolute_error(x: Term, y: Term) -> Term:
    return abs(x - y)


def smooth_l1(x: Term, y: Term, beta: Term) -> Term:
    error = abs(x - y).shared()
    return where(error >= beta, error - 0.5 * beta, 0.5 * error * error / beta)


def huber(x: Term, y: Term, delta: Term) -> Term:
    error = abs(x - y).shared()
    return where(error > delta, delta * (error - 0.5 * delta), 0.5 * error * error)


def soft_margin(x: Term, y: Term) -> Term:
    return _exp(-y * x).apply("log1p")


def binary_cross_entropy(x: Term, y: Term, weight: Term | None) -> Term:
    loss = x.apply("binary_cross_entropy", y)
    return loss if weight is None else loss * weight


def binary_cross_entropy_with_logits(x: Term, y: Term, weight: Term | None, pos_weight: Term | None) -> Term:
    rest = logsigmoid(x)
    loss = (1.0 - y) * x - (rest if pos_weight is None else (1.0 + (pos_weight - 1.0) * y) * rest)
    return loss if weight is None else loss * weight


def kl_div(x: Term, y: Term, log_target: bool = False) -> Term:
    return _exp(y) * (y - x) if log_target else y.apply("xlogy", y) - y * x


def poisson_nll(x: Term, y: Term, eps: Term, log_input: bool = True, full: bool = False) -> Term:
    loss = _exp(x) - y * x if log_input else x - y * _log(x + eps)
    if not full:
        return loss
    stirling = y * _log(y) - y + 0.5 * _log(y * (2 * math.pi))
    return loss + where(y <= 1.0, 0.0, stirling)


def _at_least_zero(x: Term) -> Term:
    return x.apply("maximum", 0.0).differentiated("clamp_min")


def hinge_embedding(x: Term, y: Term, margin: Term) -> Term:
    return where(y.equals(1), 0.0, _at_least_zero(margin - x)) + where(y.equals(-1), 0.0, x)


def margin_ranking(x: Term, other: Term, y: Term, margin: Term) -> Term:
    return _at_least_zero(-y * (x - other) + margin)
