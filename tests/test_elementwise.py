"""Every elementwise function of the language against PyTorch's: values, dtypes of results, derivatives, over hard numbers.

Float16 and bfloat16 are computed in float32 and rounded once: there the measure is PyTorch's function of float32.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import weft
from tests.fuzz_programs import compiled
from tests.gradients import assert_same_derivatives
from weft.errors import TypeMismatch, UnsupportedSyntax

torch.set_num_threads(1)

# Functions by their operands. F is torch.nn.functional, S torch.special; {a}, {b}, {c} are tensors of one shape.
EXACT_OF_ONE = [
    *(f"torch.{name}({{a}})" for name in (
        "frac", "fix", "sgn", "sign", "signbit", "isposinf", "isneginf", "isreal", "positive", "nan_to_num", "real", "conj",
        "isnan", "isinf", "isfinite", "neg", "negative", "absolute", "floor", "ceil", "trunc", "round", "conj_physical",
    )),
    "torch.nan_to_num({a}, nan=0.1)", "torch.nan_to_num({a}, 1.0, posinf=2.0, neginf=-3.0)", "{a}.nan_to_num(neginf=0.0)",
    "F.relu6({a})", "F.hardtanh({a})", "F.hardtanh({a}, -2.0, 0.5)", "F.relu({a})",
    "F.hardshrink({a})", "F.hardshrink({a}, 2.0)", "F.softshrink({a})", "F.softshrink({a}, lambd=0.25)",
    "F.threshold({a}, 0.0, 7.0)", "{a}.clamp_min(0.5)", "{a}.clip(-1.0, 2.0)", "torch.clamp_max({a}, 0.5)", "{a}.sgn()",
]  # fmt: skip
OF_ONE = [
    *(f"torch.{name}({{a}})" for name in (
        "deg2rad", "rad2deg", "angle", "arccos", "arcsinh", "sinc", "logit", "exp2", "reciprocal", "square", "rsqrt", "selu",
    )),
    *(f"F.{name}({{a}})" for name in (
        "elu", "celu", "selu", "hardsigmoid", "hardswish", "mish", "silu", "softsign", "logsigmoid", "softplus",
        "leaky_relu", "sigmoid", "tanh", "rrelu",
    )),
    *(f"S.{name}({{a}})" for name in ("expit", "sinc", "exp2", "log1p")),
    "torch.logit({a}, 0.1)", "S.logit({a}, eps=0.01)", "torch.round({a}, decimals=1)", "{a}.round(decimals=-2)",
    "F.elu({a}, 0.3)", "F.celu({a}, alpha=2.0)", "F.softplus({a}, 2.0, 3.0)", "F.leaky_relu({a}, 0.2)",
    "F.gelu({a}, approximate='tanh')",
    # where PyTorch's own on a CPU keeps its digits, or makes no NaN of an infinity
    "F.gelu({a}.clamp(-1.0, 1e4))", "F.tanhshrink({a}.clamp_min(1.5))",
]  # fmt: skip
EXACT_OF_TWO = [
    *(f"torch.{name}({{a}}, {{b}})" for name in (
        "heaviside", "copysign", "nextafter", "greater", "less_equal", "not_equal", "maximum", "fmin",
    )),
    "torch.clamp({a}, min={b})", "torch.clamp_max({a}, {b})", "{a}.floor_divide({b})",
]  # fmt: skip
OF_TWO = [
    *(f"torch.{name}({{a}}, {{b}})" for name in ("logaddexp", "logaddexp2", "xlogy", "hypot", "arctan2", "float_power")),
    "torch.isclose({a}, {b}, rtol=0.5, atol=0.1)", "torch.isclose({a}, {b}, equal_nan=True)", "torch.isclose({a}, {b})",
    "torch.div({a}, {b}, rounding_mode='trunc')", "torch.div({a}, {b}, rounding_mode='floor')", "torch.div({a}, {b})",
    "torch.rsub({a}, {b}, alpha=0.1)", "torch.add({a}, {b}, alpha=0.1)", "torch.sub({a}, {b}, alpha=3)", "S.xlog1py({a}, {b})",
    "torch.lerp({a}, {b}, 0.3)", "torch.lerp({a}, {b}, 0.7)", "{a}.float_power(3)", "{a}.xlogy({b})",
    *(f"F.{name}({{a}}, {{b}}, reduction='none')" for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")),
    *(f"F.{name}({{a}}, {{b}}, reduction='none')" for name in ("soft_margin_loss", "binary_cross_entropy_with_logits")),
    "F.kl_div({a}, {b}.clamp(-100.0, 100.0), reduction='none')",
    "F.smooth_l1_loss({a}, {b}, reduction='none', beta=0.5)", "F.huber_loss({a}, {b}, reduction='none', delta=0.5)",
    "F.kl_div({a}, {b}, reduction='none', log_target=True)", "F.poisson_nll_loss({a}.clamp(-9.0, 9.0), {b}, reduction='none')",
    "F.poisson_nll_loss({a}, {b}.clamp(-9.0, 9.0), log_input=False, reduction='none')",
    "F.hinge_embedding_loss({a}, {b}, reduction='none')",
]  # fmt: skip
OF_THREE = [
    "torch.lerp({a}, {b}, {c})", "torch.addcmul({a}, {b}, {c})", "torch.addcmul({a}, {b}, {c}, value=0.1)",
    "torch.addcdiv({a}, {b}, {c}, value=3.0)", "torch.clamp({a}, {b}, {c})", "torch.where({a} > 0, {b}, {c})",
    "F.margin_ranking_loss({a}, {b}, {c}, margin=0.5, reduction='none')",
    "F.binary_cross_entropy_with_logits({a}, {b}, {c}, reduction='none')",
    "F.binary_cross_entropy_with_logits({a}.clamp(-9, 9), {b}.clamp(0, 0.5), pos_weight={c}.clamp(1, 2), reduction='none')",
]  # fmt: skip
# of numbers from 0 to 1
UNIT = ["F.binary_cross_entropy({a}, {b}, reduction='none')", "F.binary_cross_entropy({a}, {b}, {b}, reduction='none')"]

# Those that integers have: functions that keep them, and ones that make floats of them.
INTEGERS_OF_ONE = [
    *(f"torch.{name}({{a}})" for name in (
        "sgn", "sign", "signbit", "isposinf", "isneginf", "isreal", "positive", "nan_to_num", "floor", "round", "isfinite",
        "deg2rad", "rad2deg", "sinc", "logit", "expm1", "sigmoid", "angle", "square", "absolute", "bitwise_not",
    )),
    "F.relu6({a})", "F.hardtanh({a}, 2, 5)", "{a}.clamp_min(1)", "{a}.clip(1, 5)", "S.expit({a})",
]  # fmt: skip
INTEGERS_OF_TWO = [
    *(f"torch.{name}({{a}}, {{b}})" for name in (
        "bitwise_left_shift", "bitwise_right_shift", "heaviside", "copysign", "xlogy", "isclose",
        "arctan2", "ldexp", "float_power", "fmax", "maximum", "less", "logical_xor", "bitwise_xor", "clamp",
    )),
    "torch.rsub({a}, {b}, alpha=2)", "torch.addcmul({a}, {b}, {b}, value=2)", "torch.add({a}, {b}, alpha=3)",
]  # fmt: skip
DIVISORS = ["torch.gcd({a}, {b})", "torch.lcm({a}, {b})"]  # of numbers that have an absolute value
DIVISIONS = [
    "torch.div({a}, {b}, rounding_mode='trunc')", "torch.div({a}, {b}, rounding_mode='floor')", "torch.div({a}, {b})",
    "torch.fmod({a}, {b})", "torch.remainder({a}, {b})", "torch.floor_divide({a}, {b})",
]  # fmt: skip
BOOLS_OF_ONE = [f"torch.{name}({{a}})" for name in (
    "sgn", "sign", "signbit", "isposinf", "isneginf", "isreal", "nan_to_num", "deg2rad", "sinc", "sigmoid", "angle", "isnan",
)]  # fmt: skip

_TINY = {torch.float64: 5e-324, torch.float32: 1e-45, torch.float16: 6e-8, torch.bfloat16: 1e-40}
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, 2.5, -2.5, 3.0, -3.0, 6.0, 0.1, 1 / 3, 0.9, 20.5, -7.25, 41.0, 1e-7,
            2049.0, 70000.0, -70000.0, math.inf, -math.inf, math.nan)  # fmt: skip
_FEW = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.1, 1 / 3, 1e-7, 2049.0, 70000.0, math.inf, -math.inf, math.nan)


def points(dtype: torch.dtype, count: int) -> list[Tensor]:
    """Vectors of hard numbers, every one with every other."""
    if dtype == torch.bool:
        rows: Sequence[object] = [False, True]
    elif dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        rows = [*(_NUMBERS if count == 1 else _FEW), _TINY[dtype], -_TINY[dtype], largest, -largest][:: 2 if count == 3 else 1]
    else:
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        some = {low, low + 1, high, high - 1, -9, -6, -2, -1, 0, 1, 2, 3, 4, 6, 7, 12, 31, 64}
        rows = sorted(v for v in some if low <= v <= high)
    columns = zip(*itertools.product(rows, repeat=count), strict=True)
    return [torch.tensor(c, dtype=torch.float64 if dtype.is_floating_point else dtype).to(dtype) for c in columns]


def written(expression: str, a: str, b: str, c: str) -> str:
    return expression.format(a=a, b=b, c=c).replace("F.", "torch.nn.functional.").replace("S.", "torch.special.")


def kernel_of(expressions: list[str], name: str) -> weft.Kernel:
    """A kernel of tensors a, b, c that gives all of these."""
    text = [written(e, "a", "b", "c") for e in expressions]
    operands = sorted({n for e in expressions for n in re.findall(r"\{(\w)\}", e)})
    source = f"def program({', '.join(operands)}):\n    return (\n" + "".join(f"        {t},\n" for t in text) + "    )\n"
    return weft.kernel(compiled(source, f"<elementwise {name}, {len(operands)}>"))


def rows_of(expressions: list[str], name: str) -> weft.Kernel:
    """A kernel of matrices a, b, c with a row for each of these, and one of what it makes of their elements."""
    operands = sorted({n for e in expressions for n in re.findall(r"\{(\w)\}", e)})
    stores = "".join(
        f"    y[{k}] = {written(e, f'a[{k}]', f'b[{k}]', f'c[{k}]')}\n" for k, e in enumerate(expressions)
    )
    source = f"def program({', '.join(operands)}):\n    y = torch.empty_like(a)\n{stores}    return y\n"
    return weft.kernel(compiled(source, f"<{name} of elementwise functions, {len(operands)}>"))


def agree(expressions: list[str], arguments: list[Tensor], exact: bool, ulps: float = 4) -> None:
    half = arguments[0].dtype in (torch.float16, torch.bfloat16)
    kernel = kernel_of(expressions, str(arguments[0].dtype))
    found = kernel(*arguments)
    given = kernel.py(*arguments)
    expected = kernel.py(*(a.float() for a in arguments)) if half and not exact else given
    wrong = []
    for text, got, own, measure in zip(expressions, found, given, expected, strict=True):
        if got.dtype != own.dtype:
            wrong.append(f"{text} of {arguments[0].dtype} is {got.dtype}, not {own.dtype}")
            continue
        want = measure.to(own.dtype)
        floating = own.dtype.is_floating_point and not exact
        tolerance, smallest = (ulps * torch.finfo(own.dtype).eps, torch.finfo(own.dtype).tiny) if floating else (0.0, 0.0)
        other = ~torch.isclose(got.double(), want.double(), rtol=tolerance, atol=smallest, equal_nan=True)
        if own.dtype == torch.int64:
            other = got != want
        if SIGNED_ZEROS.search(text) and got.is_floating_point():
            other |= (torch.signbit(got) != torch.signbit(want)) & ~got.isnan()
        if other.any():
            at = [tuple(a[other][:4].tolist()) for a in arguments]
            wrong.append(f"{text} of {arguments[0].dtype} at {at}: {got[other][:4].tolist()}, not {want[other][:4].tolist()}")
    assert not wrong, "\n".join(wrong)


# Of others, PyTorch's own zeros have one sign in vectors and another in what is left over.
SIGNED_ZEROS = re.compile(r"\b(frac|fix|sgn|sign|nan_to_num|neg|floor|ceil|trunc|round|copysign|heaviside|nextafter)\(\{a\}")

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.usefixtures("rounded_once")
@pytest.mark.parametrize(
    "dtype",
    [d if d is not torch.float16 else pytest.param(d, marks=pytest.mark.long) for d in FLOATS],  # bfloat16 is computed as it is
    ids=str,
)
def test_floats(dtype: torch.dtype) -> None:
    agree(EXACT_OF_ONE, points(dtype, 1), exact=True)
    agree(OF_ONE, points(dtype, 1), exact=False)
    agree(EXACT_OF_TWO, points(dtype, 2), exact=True)
    agree(OF_TWO, points(dtype, 2), exact=False)
    agree(OF_THREE, points(dtype, 3), exact=False)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.int8], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    agree(INTEGERS_OF_ONE, points(dtype, 1), exact=False)
    a, b = points(dtype, 2)
    agree(INTEGERS_OF_TWO, [a, b], exact=False)
    # (PyTorch divides the lowest number by -1, and dies of it)
    small = torch.where(a == torch.iinfo(dtype).min, 5, a).to(dtype)
    agree(DIVISORS, [small, small.flip(0)], exact=True)
    agree(DIVISIONS, [small, torch.where(b == 0, 5, b).to(dtype)], exact=False)


def test_bools() -> None:
    agree(BOOLS_OF_ONE, points(torch.bool, 1), exact=False)


def differentiable(expressions: list[str]) -> list[str]:
    """Those that have a gradient and are not asked for theirs in test_special_points.py, with respect to all of their operands
    where PyTorch has that.
    """
    none = r"is\w*inf|isreal|isnan|isfinite|signbit|heaviside|nextafter|greater|less|equal|isclose|floor|power\(3"
    there = r"fix|sgn|real|conj|neg|absolute|ceil|trunc|arc|exp|reciprocal|square|sqrt|sigmoid|log1p|relu\(\{a\}\)|hypot"
    return [
        e.replace("{b}", "({b} > 0).to({b}.dtype)") if "soft_margin" in e
        else e.replace("{c}", "({c} > 0).to({c}.dtype)") if "logits" in e else e
        for e in expressions if not re.search(none, e) and not re.search(there, e)
    ]  # fmt: skip


OF_SO_MANY = {1: differentiable(EXACT_OF_ONE + OF_ONE), 2: differentiable(EXACT_OF_TWO + OF_TWO), 3: differentiable(OF_THREE)}
_BORDERS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.3, 2.0, -2.0, 3.0, -3.0, 6.0, 0.1, 20.0, 45.0, -800.0,
            math.inf, -math.inf, math.nan)  # fmt: skip
_PAIRS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.3, math.nan)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize(("count", "rows"), [(1, _BORDERS), (2, _PAIRS), (3, (0.0, 1.0, -1.0, 0.5, 0.3))])
def test_gradients_at_borders(count: int, rows: tuple[float, ...]) -> None:
    columns = zip(*itertools.product(rows, repeat=count), strict=True)
    expressions = OF_SO_MANY[count]
    given = [torch.tensor(c, dtype=torch.float64).repeat(len(expressions), 1) for c in columns]
    assert_same_derivatives(rows_of(expressions, "gradients"), *given, second=False)


def test_cross_entropy_of_probabilities() -> None:
    rows = itertools.product((0.0, 1e-45, 0.1, 0.5, 0.9, 1.0), repeat=2)
    a, b = (torch.tensor(c, dtype=torch.float64) for c in zip(*rows, strict=True))
    for dtype in FLOATS:
        agree(UNIT, [a.to(dtype), b.to(dtype)], exact=False)
    kernel = rows_of([e.replace("{b}, {b}", "{b}, 2.0 * ({b} > 0).to({b}.dtype)") for e in UNIT], "cross entropies")
    assert_same_derivatives(kernel, a.repeat(2, 1), b.repeat(2, 1), second=False)


def test_losses_are_reduced_as_they_are_told() -> None:
    @weft.kernel
    def losses(x, y):
        F = torch.nn.functional
        return F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.huber_loss(x, y, reduction="mean", delta=0.3)

    x, y = torch.rand(3, 5), torch.rand(3, 5)
    torch.testing.assert_close(losses(x, y), losses.py(x, y))
    with pytest.raises(TypeMismatch, match="reduction"):
        weft.kernel(lambda x, y: torch.nn.functional.mse_loss(x, y, reduction="all"))(x, y)


def test_names_that_pytorch_has_not_are_refused() -> None:
    x = torch.rand(3)
    for function in (lambda x: torch.expit(x), lambda x: x.silu(), lambda x: torch.special.frac(x)):
        with pytest.raises(UnsupportedSyntax):
            weft.kernel(function)(x)
    with pytest.raises(UnsupportedSyntax, match="inplace"):
        weft.kernel(lambda x: torch.nn.functional.elu(x, inplace=True))(x)
    with pytest.raises(TypeMismatch, match="positive of bools"):
        weft.kernel(lambda x: torch.positive(x))(x > 0)


def test_the_simulator_runs_them() -> None:
    @weft.kernel
    def mixed(x, y):
        F = torch.nn.functional
        z = torch.empty_like(x)
        for i in range(x.shape[0]):
            z[i] = F.mish(x[i]) + torch.xlogy(x[i], y[i]) + torch.lerp(x[i], y[i], 0.7) + F.hardswish(x[i])
        return z

    report = mixed.check(torch.rand(300), torch.rand(300))
    assert report.ok, report


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_second_derivatives(count: int) -> None:
    once = r"hardsigmoid"  # PyTorch has no second derivative of it
    expressions = [e for e in OF_SO_MANY[count] if not re.search(once, e)]
    given = [torch.tensor([0.23, 0.62, 0.41, 0.87], dtype=torch.float64).roll(k) for k in range(count)]
    assert_same_derivatives(rows_of(expressions, "second derivatives"), *(g.repeat(len(expressions), 1) for g in given))
