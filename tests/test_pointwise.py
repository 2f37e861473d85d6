"""`weft.pointwise`: what a scalar function of tensors gives is what PyTorch gives for the same expression, dtype, shape and
strides included.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_batch import all_of
from weft.errors import (
    DeviceMismatch,
    NotDifferentiable,
    NumberOverflow,
    OverlapError,
    ShapeMismatch,
    StateChanged,
    StoreOverflow,
    TypeMismatch,
    WeftError,
)
from weft.language.pointwise import Elementwise, Operand
from weft.loops.types import FLOAT16, INT64, Typed

_NAMES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
DTYPES = [getattr(torch, name) for name in _NAMES]


@weft.pointwise
def add(a, b, alpha=1):
    return a + alpha * b


@weft.pointwise
def product_and_order(a, b):
    return a * b, a > b


# ---------------------------------------------------------------- layouts


def layouts(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Iterator[torch.Tensor]:
    def new(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).to(dtype)

    yield new(2, 3, 4, 5)
    yield new(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield new(5, 4, 3, 2).permute(3, 2, 1, 0)
    yield new(2, 3, 4, 10)[..., ::2]
    yield new(2, 3, 4, 1).expand(2, 3, 4, 5)
    yield new(3, 1, 1)
    yield new(6)[1:]
    yield new()


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return found.dtype == wanted.dtype and found.shape == wanted.shape and found.stride() == wanted.stride()


@pytest.mark.parametrize("kind", ["values", "gradients"])
def test_pairs_of_layouts(kind: str) -> None:
    def look(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = pair
        if kind == "values":
            found, wanted = add(x, y), torch.add(x, y)
            assert same(found, wanted), (x.stride(), y.stride())
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
            return
        own = [t.clone().requires_grad_() for t in (x, y)]
        other = [t.clone().requires_grad_() for t in (x, y)]
        add(own[0], own[1], 3.0).sin().sum().backward()
        torch.add(other[0], other[1], alpha=3.0).sin().sum().backward()
        for a, b in zip(own, other, strict=True):
            torch.testing.assert_close(a.grad, b.grad)

    all_of(list(itertools.product(layouts(), layouts())), look)


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), device="meta")


@pytest.mark.parametrize(
    ("dtype", "device"),
    [
        (torch.float16, "cpu"),
        pytest.param(torch.int32, "cpu", marks=pytest.mark.long),
        *(pytest.param(d, "cuda", marks=pytest.mark.gpu) for d in (torch.float32, torch.float16, torch.int32)),
    ],
    ids=str,
)
@pytest.mark.usefixtures("quickly_compiled")
def test_pairs_of_layouts_and_dtypes(dtype: torch.dtype, device: str) -> None:
    """On CUDA dtypes say nothing about strides, so that those are what PyTorch gives for tensors of one dtype; its CPU copies
    an operand of another dtype first. The values are those of float32, rounded once.
    """

    def look(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        x, y = pair
        strides = torch.add(without_memory(x), without_memory(y)).stride()
        values = torch.add(x.float(), y.float()).to(torch.result_type(x, y))
        wanted = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=device)
        if device == "cuda":
            assert same(torch.add(x, y), wanted), (x.stride(), y.stride())
        found = add(x, y)
        assert same(found, wanted), (x.stride(), y.stride())
        assert torch.equal(found, values)
        assert torch.equal(add(x, y, out=wanted), values)

    all_of(list(itertools.product(layouts(dtype, device), layouts(device=device))), look)


def test_strides_follow_the_expression_not_the_parameters() -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 3).t()
    assert same(weft.pointwise(lambda a, b: b - a)(x, y), y - x)
    assert same(weft.ops.rsub(x, y), torch.rsub(x, y))
    assert same(weft.ops.sub(x, y), torch.sub(x, y))
    assert same(weft.ops.where(y > 0, x, 1.0), torch.where(y > 0, x, 1.0))


def test_gradients_of_expanded_tensors_are_their_own() -> None:
    leaf = torch.randn(3, 1).expand(3, 4).requires_grad_()
    add(leaf, torch.ones(3, 4)).square().sum().backward()
    torch.testing.assert_close(leaf.grad, 2 * (leaf.detach() + 1))


def test_gradients_of_what_is_broadcast_along_an_axis_without_elements() -> None:
    x, y = torch.ones(1, 3, requires_grad=True), torch.ones((), requires_grad=True)
    add(torch.ones(0, 3), add(x, y)).sum().backward()
    add(torch.ones(0, 3), x).sum().backward()
    assert not x.grad.any() and x.grad.shape == (1, 3) and y.grad == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (1, 1), (1,) * 20 + (3,) + (1,) * 4])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    found = add(x, x)
    assert same(found, x + x)
    torch.testing.assert_close(found, x + x)


def test_many_dimensions_that_do_not_merge() -> None:
    x = torch.randn((2,) * 12).permute(*range(11, -1, -1))
    y = torch.randn((2,) * 12)[..., None].expand((2,) * 13)[..., 0]
    assert same(add(x, y), x + y)
    torch.testing.assert_close(add(x, y), x + y)


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.long), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_as_many_dimensions_as_an_iterator_of_pytorch_has(device: str) -> None:
    x, y = (torch.randint(0, 99, (2,) * 25, dtype=torch.int8, device=device) for _ in range(2))
    x = x.permute(*range(24, -1, -1))
    found = add(x, y)
    assert same(found, x + y) and torch.equal(found, x + y)


# ---------------------------------------------------------------- dtypes


def kinds(dtype: torch.dtype) -> Iterator[Any]:
    yield torch.zeros(2, dtype=dtype, device="meta")
    yield torch.zeros((), dtype=dtype, device="meta")


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "quotient": lambda a, b: a / b,
    "comparison": lambda a, b: a < b,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_dtypes_are_promoted_as_pytorch_does(name: str) -> None:
    """Of every pair of dtypes and numbers, with dimensions and without. Nothing is compiled for tensors without memory."""
    expression = EXPRESSIONS[name]
    own = weft.pointwise(expression)
    tensors = [t for dtype in DTYPES for t in kinds(dtype)]
    pairs = itertools.combinations_with_replacement(tensors, 2)
    for a, b in (*pairs, *itertools.product(tensors, (True, 2, 2.5))):
        for x, y in ((a, b), (b, a)):
            assert own(x, y).dtype == expression(x, y).dtype, (x, y)


def test_what_is_chosen_has_the_dimensions_of_the_condition() -> None:
    """And so outweighs what has none, or weighs as much as what has some."""

    def chosen(c, a, b):
        return torch.where(c > 0, a, 0.0) * b

    own = weft.pointwise(chosen)
    for wide, narrow in ((torch.float64, torch.float32), (torch.float32, torch.float16)):
        c, a = torch.zeros(2, device="meta"), torch.zeros((), dtype=wide, device="meta")
        b = torch.zeros(2, dtype=narrow, device="meta")
        assert own(c, a, b).dtype == chosen(c, a, b).dtype == wide
        assert own(c, b[0], a).dtype == chosen(c, b[0], a).dtype == narrow


def test_default_dtype_decides_for_integers() -> None:
    x = torch.tensor([1, 2])
    assert add(x, 0.5).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert add(x, 0.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert add(x, 0.5).dtype == torch.float32


HARD = [0.1, 1 / 3, 70000.0, 2049.0, 1e-7, 2049, -3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_numbers_enter_in_the_precision_of_arithmetic(dtype: torch.dtype) -> None:
    """They are not rounded to the dtype of the tensor: the oracle computes in float32 and rounds once."""
    x = torch.tensor([1.0, 3.0, 0.5, 1000.0, -2.0, 0.1], dtype=dtype)
    cases: list[tuple[Callable[..., Any], Callable[[torch.Tensor, float], torch.Tensor]]] = [
        (lambda a, b: a + b, lambda a, s: a + s),
        (lambda a, b: b - a, lambda a, s: s - a),
        (lambda a, b: a * b, lambda a, s: a * s),
        (lambda a, b: a / b, lambda a, s: a / s),
        (lambda a, b: b / a, lambda a, s: s / a),
    ]
    for function, oracle in cases:
        own = weft.pointwise(function)
        for s in HARD:
            wanted = oracle(x.float(), torch.tensor(s, dtype=torch.float32).item()).to(dtype)
            torch.testing.assert_close(own(x, s), wanted, rtol=0, atol=0, equal_nan=True)
    for alpha in HARD:
        product = torch.tensor(alpha, dtype=torch.float32) * x.float()
        torch.testing.assert_close(add(x, x, float(alpha)), (x.float() + product).to(dtype), rtol=1e-3, atol=0)
    assert torch.isfinite(add(torch.tensor([1.0], dtype=torch.float16), torch.tensor([1e-3], dtype=torch.float16), 7e4)).all()


def test_an_element_of_another_dtype_is_rounded_to_the_common_one() -> None:
    x = torch.tensor([2048.0, 1.5, 3.0], dtype=torch.float16)
    w = torch.tensor([2049, 1, 70000], dtype=torch.int64)
    for expression in (lambda a, b: a == b, lambda a, b: a - b, lambda a, b: a * b):
        torch.testing.assert_close(weft.pointwise(expression)(x, w), expression(x, w), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["add", "sub", "rsub", "mul", "div"])
def test_an_integer_without_dimensions_is_rounded_as_one_of_another_dtype(name: str) -> None:
    """On a CPU, as PyTorch does it there; not where it multiplies or divides."""
    x, w = torch.tensor([2048.0, -1.5, 3.0], dtype=torch.float16), torch.tensor(2049)
    torch.testing.assert_close(getattr(weft.ops, name)(x, w), getattr(torch, name)(x, w), rtol=0, atol=0)


def test_an_integer_on_the_cpu_is_a_number_beside_tensors_on_a_gpu() -> None:
    """It is passed as one, and not rounded, as PyTorch has it."""
    operands = (Operand("a", Typed(FLOAT16, 2), (0,)), Operand("b", Typed(INT64, 1), None))
    call = Elementwise(operands, (), 1, checked=False)
    x = torch.tensor([2048.0, -1.5, 3.0], dtype=torch.float16)
    for function in (lambda a, b: a - b, lambda a, b: b - a, lambda a, b: a + 1 * b, lambda a, b: a + 3 * b):
        made = weft.pointwise(function).program.applied(call)
        want = function(x.float(), torch.tensor(2049.0)).to(torch.float16)
        torch.testing.assert_close(made.program.operator(x, 2049), want, rtol=0, atol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_an_integer_on_the_cpu_beside_a_tensor_on_a_gpu(name: str) -> None:
    x, w = torch.tensor([2048.0, -1.5, 3.0], dtype=torch.float16, device="cuda"), torch.tensor(2049)
    torch.testing.assert_close(getattr(weft.ops, name)(x, w), getattr(torch, name)(x, w), rtol=0, atol=0)


def test_the_least_integer_by_minus_one_wraps() -> None:
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        least = torch.full((3,), torch.iinfo(dtype).min, dtype=dtype)
        for divisor in (-1, -torch.ones_like(least)):
            assert torch.equal(weft.ops.floor_divide(least, divisor), least)
            assert torch.equal(weft.ops.div(least, divisor, "trunc"), least)
            assert not weft.ops.remainder(least, divisor).any() and not weft.ops.fmod(least, divisor).any()


# ---------------------------------------------------------------- results that are given


def test_results_that_are_given() -> None:
    x, y = torch.randn(3, 4), torch.randn(4)
    out = torch.empty(4, 3).t()
    assert add(x, y, out=out) is out
    torch.testing.assert_close(out, x + y)
    assert out.stride() == (1, 3)
    wide = torch.empty(3, 4, dtype=torch.float64)
    torch.testing.assert_close(add(x.half(), y.half(), out=wide), (x.half() + y.half()).double())
    narrow = torch.empty(3, 4, dtype=torch.float16)
    torch.testing.assert_close(add(x, y, out=narrow), (x + y).half())
    small = torch.empty(3, 4, dtype=torch.int8)
    big = torch.full((3, 4), 300)
    torch.testing.assert_close(add(big, big, out=small), (big + big).to(torch.int8))
    first, second = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.bool)
    product_and_order(x, y, out=(first, second))
    torch.testing.assert_close(first, x * y)
    assert torch.equal(second, x > y)


def test_casts_into_a_given_result_are_those_of_pytorch() -> None:
    for made, given in itertools.product(DTYPES, repeat=2):
        a, out = torch.zeros(2, dtype=made, device="meta"), torch.zeros(2, dtype=given, device="meta")
        try:
            torch.mul(a, a, out=out)
            refused = False
        except RuntimeError:
            refused = True
        try:
            weft.ops.mul(a, a, out=out)
            assert not refused, (made, given)
        except TypeMismatch:
            assert refused, (made, given)


def test_results_in_place() -> None:
    x, y = torch.randn(3, 4), torch.randn(4)
    wanted = x + 2 * y
    assert add(x, y, 2.0, out=x) is x
    torch.testing.assert_close(x, wanted)
    add(x, x, out=x)
    torch.testing.assert_close(x, 2 * wanted)


def test_an_empty_result_is_resized() -> None:
    x = torch.randn(2, 3, 4).permute(2, 0, 1)
    found, wanted = torch.empty(0), torch.empty(0)
    add(x, x, out=found)
    torch.add(x, x, out=wanted)
    assert same(found, wanted)
    torch.testing.assert_close(found, wanted)


BAD: dict[str, tuple[Callable[[], Any], type[WeftError], str]] = {
    "shapes": (lambda: add(torch.ones(3), torch.ones(4)), ShapeMismatch, "do not broadcast"),
    "shape of a result": (lambda: add(torch.ones(3), torch.ones(3), out=torch.ones(4)), ShapeMismatch, "another shape"),
    "in place with a broadcast": (lambda: (x := torch.ones(3), add(x, torch.ones(2, 3), out=x)), ShapeMismatch, "shape"),
    "float into int": (lambda: add(torch.ones(3), 1.0, out=torch.ones(3, dtype=torch.int32)), TypeMismatch, "not written into"),
    "int into bool": (lambda: add(torch.ones(3).int(), 1, out=torch.ones(3).bool()), TypeMismatch, "not written into"),
    "overlap within a result": (lambda: add(torch.ones(3), 1.0, out=torch.ones(1).expand(3)), OverlapError, "."),
    "overlap of a result": (lambda: (x := torch.ones(4), add(x[:3], 1.0, out=x[1:])), OverlapError, "."),
    "float alpha of ints": (lambda: weft.ops.add(*[torch.ones(3).int()] * 2, 1.5), TypeMismatch, "alpha of float"),
    "bools subtracted": (lambda: weft.ops.sub(*[torch.ones(3).bool()] * 2), TypeMismatch, "sub of a bool tensor"),
    "a bool subtracted": (lambda: weft.ops.sub(torch.ones(3), True), TypeMismatch, "sub of a bool beside a tensor"),
    "bool alpha": (lambda: weft.ops.sub(torch.ones(3), torch.ones(3), True), TypeMismatch, "alpha of bool"),
    "no tensor": (lambda: add(1, 2), TypeMismatch, "without a tensor"),
    "text": (lambda: add(torch.ones(3), "a"), WeftError, "."),
    "an object": (lambda: add(torch.ones(3), object()), TypeMismatch, "takes tensors, numbers"),
    "half complex": (lambda: add(torch.ones(3), torch.ones(3, dtype=torch.complex32)), TypeMismatch, "complex32"),
    "devices": (lambda: add(torch.ones(3), torch.ones(3, device="meta")), DeviceMismatch, "different devices"),
    "arguments": (lambda: add(torch.ones(3)), TypeMismatch, "missing"),
    "a negative power": (lambda: weft.ops.pow(torch.ones(3).int(), -2), WeftError, "negative integer power"),
    "number of results": (lambda: add(torch.ones(3), 1.0, out=(torch.ones(3), torch.ones(3))), TypeMismatch, "1 results"),
    "a result that is none": (lambda: add(torch.ones(3), 1.0, out=3), TypeMismatch, "out is 3"),
    "a mode of rounding": (lambda: weft.ops.div(torch.ones(3), 2.0, "up"), TypeMismatch, "rounding_mode='up'"),
    "an approximation": (lambda: weft.ops.gelu(torch.ones(3), "erf"), TypeMismatch, "approximate='erf'"),
    "an int beyond 64 bits": (lambda: add(torch.ones(3), 2**63), NumberOverflow, "b is an int"),
    "a recorded gradient": (lambda: add(torch.ones(3, requires_grad=True), 1.0, out=torch.ones(3)), NotDifferentiable, "out="),
}  # fmt: skip


@pytest.mark.parametrize("call", BAD)
def test_bad_calls_name_what_is_wrong(call: str) -> None:
    run, error, words = BAD[call]
    with pytest.raises(error, match=words) as told:
        run()
    assert told.value.remedy


@weft.pointwise
def declared(x: torch.float16, scale: float = 2.0, bias: torch.Tensor | None = None):
    return x * scale if bias is None else x * scale + bias


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_cast_to_a_declared_type(compiled: bool) -> None:
    half, wide = torch.ones(3, dtype=torch.float16), torch.ones(3)
    call = torch.compile(declared, fullgraph=True, backend="aot_eager") if compiled else declared
    for args in ((half,), (half, 3), (half, half), (half, True, wide)):
        assert torch.equal(call(*args), declared.py(*args))
    for args, told in (
        ((wide,), r"x is a tensor of torch.float32, and declared declares a tensor of torch.float16"),
        ((half, 1j), r"scale is a complex number, and declared declares a float"),
        ((half, wide.to(torch.complex64)), r"scale is a tensor of torch.complex64, and declared declares a float"),
    ):
        with pytest.raises(Exception if compiled else TypeMismatch, match=told):
            call(*args)


def test_true_and_false_are_constants_where_the_default_is_one() -> None:
    @weft.pointwise
    def scaled_or_not(x, half=False):
        return torch.floor(x) if half else x * 2

    x, n = torch.randn(4), torch.arange(3)
    for half in (True, False, True, True, False):
        assert torch.equal(scaled_or_not(x, half), torch.floor(x) if half else x * 2)
        assert torch.equal(scaled_or_not(n, half=half), n if half else n * 2)
        wanted = torch.nn.functional.kl_div(x, x.abs(), reduction="none", log_target=half)
        torch.testing.assert_close(weft.ops.kl_div(x, x.abs(), log_target=half), wanted)


def test_integers_to_the_power_of_a_number() -> None:
    n = torch.tensor([-3, 0, 2, 7])
    for power in (0, 1, 2, 5, 5, 3):
        for base in (n, n[2], n.to(torch.uint8), n > 0):
            found, wanted = weft.ops.pow(base, power), torch.pow(base, power)
            assert same(found, wanted)
            assert torch.equal(found, wanted)


@pytest.mark.usefixtures("quickly_compiled")
@weft.pointwise
def multiplied_and_added(x, y, z):
    return torch.addcmul(x, y, z)


def test_the_value_of_addcmul_enters_in_the_common_dtype() -> None:
    x, y = torch.tensor([1, 2, 3], dtype=torch.uint8), torch.tensor([3, -2, 1])
    for args, value in (((x, x, x), 2.7), ((x, x, y), 300.9), ((y, x, x), -2.5), ((x, x.half(), y), 2.5)):
        found, wanted = (f(*args, value=value) for f in (weft.ops.addcmul, torch.addcmul))
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
    assert torch.equal(multiplied_and_added(x, x, y), torch.addcmul(x, x, y))
    for value in (300.0, -1.5, float("nan")):
        with pytest.raises(StoreOverflow, match="does not fit into uint8"):
            weft.ops.addcmul(x, x, x, value=value)


def test_alpha_enters_in_the_common_dtype() -> None:
    """Operands are converted to it before they are scaled, and an integer that it does not hold is refused."""

    def look(call: tuple[str, str, str, Any]) -> None:
        name, *kinds, alpha = call
        x, y = (torch.tensor([1, 2, 3, 0], dtype=getattr(torch, k)) for k in kinds)
        try:
            wanted = getattr(torch, name)(x, y, alpha=alpha)
        except RuntimeError:
            with pytest.raises(WeftError):
                getattr(weft.ops, name)(x, y, alpha=alpha)
            return
        found = getattr(weft.ops, name)(x, y, alpha=alpha)
        assert same(found, wanted)
        assert torch.equal(found, wanted)

    kinds = ("bool", "uint8", "int32", "float32", "float16")
    all_of(list(itertools.product(("add", "sub"), kinds, kinds, (-1, 2, 256, 1.5, True))), look)
    u = torch.tensor([1, 2, 3, 0], dtype=torch.uint8)
    x = torch.ones(4)
    torch.testing.assert_close(weft.ops.addcmul(x, u, u, value=-1), torch.addcmul(x, u, u, value=-1))


def test_numbers_that_are_parameters_are_no_operands() -> None:
    """Of an operator's parameters PyTorch asks for no strides, which shows where an axis has one element or none."""
    for x in (torch.ones(3, 1).as_strided((3, 1), (1, 5)), torch.ones(3, 0, 1, 0)):
        for function, wanted in (
            (lambda x: weft.ops.clamp(x, 0.5), torch.clamp(x, 0.5)),
            (lambda x: weft.ops.pow(x, 3.5), torch.pow(x, 3.5)),
            (lambda x: weft.ops.celu(x, 0.5), torch.nn.functional.celu(x, 0.5)),
            (lambda x: weft.ops.mul(x, 3.5), x * 3.5),
        ):
            for _ in range(2):
                assert same(function(x), wanted), wanted.stride()


# ---------------------------------------------------------------- autograd, transforms, torch.compile


@weft.pointwise
def gated(x, gate, bias, slope=0.5):
    return torch.where(gate > 0, torch.tanh(x) * gate, slope * x) + bias


def plain_gated(x: torch.Tensor, gate: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.where(gate > 0, torch.tanh(x) * gate, 0.5 * x) + bias


def test_first_and_second_derivatives_over_broadcast_dimensions() -> None:
    torch.manual_seed(1)
    args = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4,), (3, 1))]
    assert torch.autograd.gradcheck(gated, args)
    assert torch.autograd.gradgradcheck(gated, args)


def test_transforms() -> None:
    x, y = torch.randn(3, 4), torch.randn(4)
    torch.testing.assert_close(torch.vmap(add, in_dims=(0, None))(x, y), x + y)
    torch.testing.assert_close(torch.func.grad(lambda x: add(x, x).square().sum())(x), 8 * x)
    value, tangent = torch.func.jvp(lambda x: add(x, y, 2.0), (x,), (torch.ones(3, 4),))
    torch.testing.assert_close((value, tangent), (x + 2 * y, torch.ones(3, 4)))


def test_opcheck() -> None:
    args = (torch.randn(4, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64))
    for function, own in ((add, (*args, 2.0)), (gated, (*args, args[1]))):
        one, own = function._inspected(own, {})
        own = tuple(a.detach().clone().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in own)
        torch.library.opcheck(one.program.operator.overload, own)


def test_torch_compile_records_calls() -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x, gate, bias):
        first, second = product_and_order(gated(x, gate, bias), bias)
        return first * 2, second

    torch.manual_seed(2)
    for size in (4, 6):
        x, gate, bias = torch.randn(size, 4, requires_grad=True), torch.randn(4), torch.randn(size, 1)
        found, order = f(x, gate, bias)
        wanted = plain_gated(x, gate, bias) * bias
        torch.testing.assert_close(found, 2 * wanted)
        assert order.dtype == torch.bool
        (gradient,) = torch.autograd.grad(found.sum(), x)
        torch.testing.assert_close(gradient, torch.autograd.grad(2 * wanted.sum(), x)[0])


# ---------------------------------------------------------------- functions


SCALE = 2.0


@weft.pointwise
def scaled(x):
    return SCALE * x


def test_what_is_read_from_outside_is_what_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)
    for value in (2.0, 5.0, 3):
        monkeypatch.setattr(f"{__name__}.SCALE", value)
        for _ in range(2):
            assert scaled(x).tolist() == [value] * 3


def test_pointwise_functions_are_called_in_others_and_in_kernels() -> None:
    @weft.pointwise
    def both(x, y):
        return scaled(add(x, y)), math.pi

    @weft.kernel
    def rows(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = add(x[i], 1.0, 2)
        return y

    x, y = torch.randn(3, 4), torch.randn(4)
    first, second = both(x, y)
    torch.testing.assert_close(first, 2 * (x + y))
    torch.testing.assert_close(second, torch.full((3, 4), math.pi))
    torch.testing.assert_close(rows(y), y + 2)


def test_branches_and_loops_of_scalars() -> None:
    @weft.pointwise
    def collatz(n, most: int):
        steps = 0
        for _ in range(most):
            if n > 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                steps += 1
        return steps

    assert collatz(torch.tensor([1, 2, 3, 7, 27]), 200).tolist() == [0, 1, 7, 16, 111]


def test_strict_chains_round_every_operation() -> None:
    def chain(a, b):
        c = a * b
        c = c + 1.0
        d = torch.exp(c) - a / 3
        d += b
        return d * d

    torch.manual_seed(3)
    a, b = torch.randn(1000).half(), torch.randn(1000).half()
    wanted = chain(a.clone(), b.clone())
    assert torch.equal(weft.pointwise(chain, strict=True)(a, b), wanted)
    fused = weft.pointwise(chain)(a, b)
    assert not torch.equal(fused, wanted)
    torch.testing.assert_close(fused, chain(a.float(), b.float()).half(), rtol=2e-3, atol=0)


def test_comparisons_see_what_is_stored() -> None:
    @weft.pointwise
    def overflowing(a):
        y = a * a if a > 0 else a * 2
        return y, torch.isinf(y), y > 70000.0, y - y

    a = torch.tensor([60000.0, 3.0, -40000.0, 0.1], dtype=torch.float16)
    y, infinite, above, difference = overflowing(a)
    assert torch.isinf(y).tolist() == infinite.tolist() == [True, False, True, False]
    assert above.tolist() == (y > 70000.0).tolist()
    torch.testing.assert_close(difference, y - y, equal_nan=True)


def test_a_second_call_takes_the_quick_way() -> None:
    x, y = torch.randn(4, 5).t(), torch.randn(4)
    first = add(x, y)
    again = add.quick(x, y)
    assert same(again, first)
    assert torch.equal(again, first)
    assert repr(add.quick(x.contiguous(), y)) == "MISS"
    assert repr(add.quick(x.clone().requires_grad_(), y)) == "MISS"


def test_names_and_text_take_the_quick_way_too() -> None:
    x, y = torch.randn(4, 5), torch.randn(5)
    torch.testing.assert_close(add(x, b=y, alpha=2.0), x + 2 * y)
    torch.testing.assert_close(add.quick(x, y, 2.0), x + 2 * y)
    for mode in ("floor", "trunc", None, "floor"):
        for _ in range(2):
            torch.testing.assert_close(weft.ops.div(x, y, mode), torch.div(x, y, rounding_mode=mode))
            torch.testing.assert_close(weft.ops.div(x, y, rounding_mode=mode), torch.div(x, y, rounding_mode=mode))
    assert repr(weft.ops.div.quick(x, y, y)) == "MISS"
    for mode in ("floor", "trunc"):
        torch.testing.assert_close(weft.ops.div.quick(x, y, mode), torch.div(x, y, rounding_mode=mode))


class Counted:
    """How often a call went the long way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: weft.Pointwise) -> None:
        self.long, way = 0, function._called

        def called(*args: Any) -> Any:
            self.long += 1
            return way(*args)

        monkeypatch.setattr(function, "_called", called)


def test_parameters_of_modules_take_the_quick_way_recorded_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = torch.randn(4, 5), torch.nn.Parameter(torch.randn(5))
    counted = Counted(monkeypatch, weft.ops.mul)
    for _ in range(2):
        with torch.no_grad():
            assert not weft.ops.mul(x, weight).requires_grad
            assert not weft.ops.mul(x, weight).requires_grad
        with torch.inference_mode():
            assert weft.ops.mul(x, weight).is_inference()
        weight.grad = None
        weft.ops.mul(x, weight).sum().backward()
        torch.testing.assert_close(weight.grad, x.sum(0))
    assert counted.long == 3  # the first of each mode


def test_slices_take_the_quick_way_where_they_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    x, counted = torch.randn(100), Counted(monkeypatch, weft.ops.sub)
    for k in (1, 1, 9, 2, 10, 1):  # 9 and 10 are as far past 32 bytes as 1 and 2
        assert torch.equal(weft.ops.sub(x[k : k + 40], x[:40]), x[k : k + 40] - x[:40])
    assert counted.long == 2


def test_parameters_in_gaps_take_the_quick_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    x, counted = torch.randn(4, 5), Counted(monkeypatch, weft.ops.clamp)
    for high in (0.0, 0.5, -1.0):
        assert torch.equal(weft.ops.clamp(x, max=high), x.clamp(max=high))
        assert torch.equal(weft.ops.clamp(x, min=high), x.clamp(min=high))
    assert torch.equal(weft.ops.clamp(max=1.0, min=-1.0, input=x), x.clamp(-1.0, 1.0))
    assert torch.equal(weft.ops.clamp(x, -1.0, max=1.0), x.clamp(-1.0, 1.0))
    assert counted.long == 3


def test_floats_that_elements_have_to_hold_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that float32 does not hold is refused by PyTorch, an infinite one is not."""
    x, mask = torch.randn(4, 5), torch.randn(4, 5) > 0
    counted = Counted(monkeypatch, weft.ops.where)
    for number in (0.0, -0.0, -math.inf, math.nan, 1e30, -3.4028234663852886e38):
        found, wanted = weft.ops.where(mask, x, number), torch.where(mask, x, number)
        assert torch.equal(found.view(torch.int32), wanted.view(torch.int32))
    assert counted.long == 1
    for number in (1e39, -1e300):
        with pytest.raises(WeftError, match="does not fit into float32"):
            weft.ops.where(mask, x, number)
    assert counted.long == 3


def test_parameters_are_passed_as_python_passes_them() -> None:
    @weft.pointwise
    def by_name(x, *, alpha=1):
        return x * alpha

    @weft.pointwise
    def by_place(x, /, alpha=1):
        return x * alpha

    x = torch.randn(3)
    for _ in range(2):
        for found in (by_name(x, alpha=2.5), by_place(x, 2.5), by_place(x, alpha=2.5)):
            assert torch.equal(found, x * 2.5)
        for function, args, named in ((by_name, (x, 2.5), {}), (by_place, (), {"x": x, "alpha": 2.5})):
            with pytest.raises(TypeError):
                function.py(*args, **named)
            with pytest.raises(TypeMismatch):
                function(*args, **named)
    assert by_place.check("float32[8]", 2.0).ok


def test_calls_of_several_kinds_in_turn_take_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    @weft.pointwise
    def scaled(x, y=2.0):
        return x * y

    counted = Counted(monkeypatch, scaled)
    x = torch.randn(4, 8)
    kinds: list[tuple[Any, ...]] = [(x,), (x, x[0]), (x.half(), 0.5), (x.t(), x.t()), (x.double(),)]
    for _ in range(3):
        for args in kinds:
            torch.testing.assert_close(scaled(*args), args[0] * (args[1] if len(args) > 1 else 2.0))
    assert counted.long == len(kinds)
    outs = [torch.empty(4, 8, dtype=d) for d in (torch.float32, torch.float64)]
    for _ in range(3):
        for out in outs:
            torch.testing.assert_close(scaled(x, out=out), (x * 2.0).to(out.dtype))
    assert counted.long == len(kinds) + len(outs)
    many = [torch.randn(n) for n in range(20)]  # more than are tried in turn
    before = counted.long
    for _ in range(3):
        for one in many:
            assert torch.equal(scaled(one), one * 2.0)
            assert torch.equal(scaled(one, one), one * one)
            assert scaled(one, out=(out := torch.empty_like(one))) is out
            assert torch.equal(out, one * 2.0)
    assert counted.long == before + 3 * len(many)


def test_a_given_result_takes_the_quick_way_while_it_lies_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, out = torch.randn(4, 8), torch.randn(8), torch.empty(4, 8)
    counted = Counted(monkeypatch, add)
    for alike in (out, out, torch.empty(4, 8), torch.empty(4, 8)):
        alike.fill_(7.0)
        version = alike._version
        assert add(x, y, 2.0, out=alike) is alike
        assert alike._version == version + 1  # autograd sees what is written
        assert torch.equal(alike, x + 2.0 * y)
    assert counted.long == 1
    wanted = x + 2.0 * y
    unaligned, steps = torch.empty(33)[1:].view(4, 8), torch.empty(4, 16)[:, ::2]
    for other in (torch.empty(4, 8, dtype=torch.float64), torch.empty(8, 4).t(), steps, torch.empty(0), unaligned):
        before = counted.long
        assert add(x, y, 2.0, out=other) is other
        assert counted.long == before + 1
        assert other.shape == (4, 8)
        torch.testing.assert_close(other, wanted.to(other.dtype), rtol=0, atol=0)
        add(x, y, 2.0, out=out)
    one, another = torch.empty(4, 8), torch.empty(4, 8, dtype=torch.bool)
    for _ in range(3):
        first, second = product_and_order(x, y, out=(one, another))
        assert (first is one, second is another) == (True, True)
        assert torch.equal(one, x * y)
        assert torch.equal(another, x > y)


def test_what_shares_memory_is_told_after_what_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = torch.randn(64)
    x, y, out = memory[:32], torch.randn(32), memory[32:]
    counted = Counted(monkeypatch, add)
    for _ in range(2):
        add(x, y, 2.0, out=out)
    assert counted.long == 1
    with pytest.raises(OverlapError):
        add(x, y, 2.0, out=memory[16:48])
    for apart in (True, False):
        other = torch.empty(32, dtype=torch.bool) if apart else out.view(torch.bool)[:32]
        with nullcontext() if apart else pytest.raises(OverlapError):
            product_and_order(x, y, out=(out, other))
    with pytest.raises(NotDifferentiable):
        add(x.clone().requires_grad_(), y, 2.0, out=out)
    with pytest.raises(TypeMismatch, match="missing"):
        add(x, out=(y, out))


def test_in_place_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, add)
    x, y = torch.zeros(4, 8), torch.randn(4, 8)
    for k in range(1, 4):
        add(x, y, 2.0, out=x)
        torch.testing.assert_close(x, 2.0 * k * y)
    assert counted.long == 1
    out = torch.empty(4, 8)
    add(x, y, 2.0, out=out)
    assert torch.equal(out, x + 2.0 * y)
    wanted = out + 2.0 * y
    assert add(out.view(4, 8), y, 2.0, out=out) is out  # another tensor of the same memory
    assert torch.equal(out, wanted)
    twice = torch.ones(4, 8)
    add(twice, twice, 2.0, out=twice)
    add(twice, twice, 2.0, out=twice)
    assert torch.equal(twice, torch.full((4, 8), 9.0))


def test_one_tensor_twice_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, add)
    x, y, out = torch.randn(4, 8), torch.randn(4, 8), torch.empty(4, 8)
    for own in (x, x, y):
        assert torch.equal(add(own, own), own + own)
    assert counted.long == 1
    assert torch.equal(add(x, y), x + y)  # each its own again
    assert torch.equal(add(x, x.view(4, 8)), x + x)
    assert counted.long == 2
    for _ in range(3):
        add(x, x, 3.0, out=out)
        torch.testing.assert_close(out, 4 * x)
    assert counted.long == 3


def test_what_fails_halfway_is_not_run_again() -> None:
    x, y = torch.arange(1, 9), torch.arange(8, 0, -1)
    weft.ops.floor_divide(x, y, out=torch.empty(8, dtype=torch.int64))
    for _ in range(2):
        weft.ops.floor_divide(x, y, out=x)
    y[7] = 0
    with pytest.raises(WeftError, match="."):
        weft.ops.floor_divide(x, y, out=x)


def test_an_integer_takes_the_quick_way_while_it_is_the_same() -> None:
    x, n = torch.randn(4, 5), torch.arange(6)
    for number in (2, 2, 3, True, 1, 2.5, 2, -1):
        for tensor in (x, n):
            found, wanted = weft.ops.mul(tensor, number), tensor * number
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
            again = weft.ops.mul.quick(tensor, number)
            assert torch.equal(again, wanted)
            for other in (None, "2", torch.ones(())):
                assert repr(weft.ops.mul.quick(tensor, other)) == "MISS"
            for other in (4, True, 1):  # a number that came before has its own way
                again = weft.ops.mul.quick(tensor, other)
                wanted = tensor * other
                assert repr(again) == "MISS" or (again.dtype == wanted.dtype and torch.equal(again, wanted))
    for alpha in (3, 4, 3):
        assert torch.equal(weft.ops.add(n, n, alpha=alpha), torch.add(n, n, alpha=alpha))


# ---------------------------------------------------------------- explanations

# operands -> what is said of the second, and what its load is in the text
READ: dict[str, tuple[tuple[str, str], str, str]] = {
    "a tail": (("float32[1001]", "float16[1001]"), "4 elements (8 B) an access", "fetch_run<4, 4>(b"),
    "rows in whole packets": (("float32[64,128]", "float16[128]"), "4 elements (8 B) an access", "fetch<4, 4>(b"),
    "longer rows": (
        ("float32[64,127]", "float32[64,127]:(130,1)"),
        "packets of 4 elements (16 B), shifted into place; its rows begin 130 elements apart, and 4 are a vector: pad the rows",
        "fetch_over<4, 1>(b",
    ),
    "a row for odd rows": (
        ("float32[64,127]", "float32[127]"),
        "packets of 4 elements (16 B), shifted into place; rows of 127 elements are no multiple of 4, a vector: pad the rows",
        "fetch_over<4, 1>(b",
    ),
    "steps": (
        ("float32[64,128]", "float32[64,128]:(256,2)"),
        "one element an access: neighbours lie 2 elements apart; .contiguous() of it would be read in vectors",
        "b[i_n * b_stride_0]",
    ),
    "a column": (("float32[64,128]", "float32[64,1]"), "repeated along the innermost axis", "b["),
    "turned": (("float32[64,96]", "float32[64,96]:(1,64)"), "along another axis than the result, and turned", "weft::Turned"),
}


@pytest.mark.parametrize("case", READ)
def test_explanations_say_how_an_operand_is_read(case: str) -> None:
    args, told, text = READ[case]
    (line,) = (line for line in str(add.explain(*args)).splitlines() if line.strip().startswith("b "))
    assert told in line
    assert text in add.source(*args, arch="sm_90a")


# ---------------------------------------------------------------- the emitted CUDA

CHECKED = {
    "flat": ("float16[1000]", "float16[1000]"),
    "a row": ("float16[40,256]", "float32[256]"),
    "a column": ("float32[40,257]", "float32[40,1]"),
    "a transposed operand": ("float32[64,96]", "float32[64,96]:(1,64)"),
    "channels-last beside contiguous": ("float32[2,8,6,5]", "float32[2,8,6,5]:(240,1,40,8)"),
    "steps": ("bfloat16[33,64]:(200,3)", "int32[33,64]"),
    "unaligned": ("float32[7,9,11]", "float32[9,1]"),
    "no elements": ("float32[0,7]", "float16[7]"),
}


@pytest.mark.parametrize("call", CHECKED)
def test_the_emitted_cuda_is_clean(call: str) -> None:
    report = add.check(*CHECKED[call], gradients=call in ("a row", "a transposed operand"))
    assert report.ok, str(report)


def test_a_kernel_is_not_the_function_of_its_name_in_the_c_library() -> None:
    assert weft.ops.conj.check("float32[5]").ok


def test_a_graph_does_not_go_on_with_what_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3)
    monkeypatch.setattr(f"{__name__}.SCALE", 4.0)
    compiled = torch.compile(lambda x: scaled(x) + 1, fullgraph=True, backend="aot_eager")
    assert compiled(x).tolist() == [5.0] * 3
    monkeypatch.setattr(f"{__name__}.SCALE", 7.0)
    assert scaled(x).tolist() == [7.0] * 3
    with pytest.raises(StateChanged, match="SCALE"):
        compiled(x)


# ---------------------------------------------------------------- on a GPU

PLACES = [(a, b) for a in (0, 1, 2, 3, 7) for b in (0, 1, 6)]  # elements past the beginnings of two operands' memory


@pytest.mark.parametrize("dtypes", [("float16", "float16"), ("uint8", "float32"), ("float64", "bool")], ids=str)
def test_misaligned_operands_on_the_simulator(dtypes: tuple[str, str]) -> None:
    memory = torch.randn(64)
    first, second = (memory.to(getattr(torch, d)) for d in dtypes)
    for a, b in PLACES:
        report = add.check(first[a : a + 37], second[b : b + 37])
        assert report.ok, (a, b, report)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_misaligned_on_a_gpu(dtype: str) -> None:
    """Every place of an operand, of another one and of a given result, in rows of even and odd lengths."""
    memory = torch.randn(3, 5000, device="cuda").mul_(9).to(getattr(torch, dtype))
    for k in range(16):
        x, y, out = memory[0, k : k + 1001], memory[1, 3 * k % 16 :][:1001], memory[2, 5 * k % 16 :][:1001]
        assert torch.equal(add(x, y), x + y)
        assert torch.equal(add(x, y, out=out), x + y)
        rows, row = memory[0, k : k + 7 * 96].view(7, 96)[:, : 64 + k], memory[1, k : k + 64 + k]
        assert torch.equal(add(rows, row), rows + row)
        square, other = (memory[n, k : k + 64 * 64].view(64, 64) for n in range(2))
        assert torch.equal(add(square, other.t()), square + other.t())


@pytest.mark.gpu
def test_more_elements_than_32_bits_count_on_a_gpu() -> None:
    rows, columns = 2**16 + 2, 2**15 + 1
    matrix, other = (torch.ones(columns, rows, dtype=torch.int8, device="cuda") for _ in range(2))
    matrix[-1, -1] = 5
    for operand in (other, other.view(rows, columns).t(), other[:, :1]):
        found = add(matrix, operand)
        assert int(found[-1, -1]) == 6 and int(found.sum(dtype=torch.int64)) == 2 * rows * columns + 4


@pytest.mark.gpu
def test_integers_are_divided_by_0_without_a_trap_on_a_gpu() -> None:
    dividend = torch.tensor([5, 6, -(2**63)], device="cuda")
    quotient = weft.ops.floor_divide(dividend, torch.tensor([2, 0, -1], device="cuda"))
    assert quotient.tolist()[0] == 2  # by 0: some number
    assert weft.ops.remainder(dividend, -1).tolist() == [0, 0, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_tensors_without_dimensions_on_a_gpu(dtype: torch.dtype) -> None:
    """Those that lie there are converted as elements are, and rounded to a half; one on the CPU is a number, which is not."""
    x = torch.tensor([1.0, 3.0, 0.5, 1000.0, -2.0, 0.1], dtype=dtype, device="cuda")
    for value, wide in itertools.product((0.1, 1 / 3, 2049.0, 2049, 70000.0), (torch.float32, torch.float64)):
        there = torch.tensor(value, dtype=wide if isinstance(value, float) else torch.int64, device="cuda")
        for name in ("add", "sub", "rsub", "mul", "div", "maximum", "eq", "addcmul"):
            args = (x, there, x) if name == "addcmul" else (x, there)
            found, wanted = getattr(weft.ops, name)(*args), getattr(torch, name)(*args)
            assert same(found, wanted)
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
        here = there.cpu()
        for _ in range(2):
            wanted = (x.float() * float(value)).to(dtype)
            assert torch.equal(weft.ops.mul(x, here), wanted)
            assert torch.equal(weft.ops.mul(x, here.clone() * 2), (x.float() * (2 * float(value))).to(dtype))
