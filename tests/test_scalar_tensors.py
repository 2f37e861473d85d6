"""Tensors in the place of numbers: `x[i] * alpha` means for a tensor alpha what it means in the plain Python."""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.test_numbers import agree, program
from weft.errors import DeviceMismatch, NotDifferentiable, ShapeMismatch, StoreOverflow, TypeMismatch, UnsupportedSyntax

pytestmark = pytest.mark.usefixtures("quickly_compiled")

T = torch.tensor

EXPRESSIONS = (
    *("x[i] * a", "a - x[i]", "x[i] * float(a)", "x[int(a) % 3]", "x[i] if a > 1 else -x[i]"),
    *("x[i] if a else 0", "(a and x[i]) or 7", "max(a, x[i]) - min(a, 2)", "a // 3 + a % 2", "abs(-a)", "a"),
    *("torch.where(torch.as_tensor(a) > 1, x[i], a)", "(a < x[i]) + (a == 2)", "math.sqrt(abs(a))"),
)


def scaled(x, alpha=1.0):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * alpha
    return y


def counted(x, n):
    y = torch.zeros(n)
    for i in range(n):
        y[i] = x[i] * n + x[n]
    return y


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, pytest.param(torch.uint8, marks=pytest.mark.long)], ids=str
)
def test_expressions_of_numbers_and_tensors_alike(dtype: torch.dtype) -> None:
    columns = "\n".join(f"        y[i, {j}] = {e}" for j, e in enumerate(EXPRESSIONS))
    text = f"""
def f(x, a):
    y = torch.zeros(x.shape[0], {len(EXPRESSIONS)}, dtype=torch.float64)
    for i in range(x.shape[0]):
{columns}
    return y
"""
    function = program(text)
    kernel = weft.kernel(function)
    x = T([1, 2, 5]).to(dtype)
    for a in (T(2.5), T(2), 2.5, T(2, dtype=torch.uint8), 2, T(2.0, dtype=torch.float64), T(-3)):
        torch.testing.assert_close(kernel(x, a), function(x, a), rtol=0, atol=0)


def test_methods_of_a_scalar_tensor() -> None:
    def f(x, a):
        y = torch.zeros(x.shape[0], dtype=torch.float64)
        for i in range(x.shape[0]):
            y[i] = x[i] * a.item() + a.float().sqrt() + a.view(1)[0] + torch.exp(a) + len(a.shape)
        return y

    for a in (T(2.0), T(2), T(2.0, dtype=torch.float64)):
        torch.testing.assert_close(weft.kernel(f)(torch.ones(3), a), f(torch.ones(3), a), rtol=1e-6, atol=0)


def test_a_kernel_of_numbers_and_tensors_by_turns() -> None:
    """Each kind has its own program, and none answers for another one, however the kernel was called before."""
    kernel, x = weft.kernel(scaled), torch.arange(4, dtype=torch.int32)
    values = (2, T(2), T(2.5), 2.5, T(2, dtype=torch.int32), T(3.0, dtype=torch.float64), True)
    for first, second in itertools.permutations(values, 2):
        for alpha in (first, second, second, first):
            y = scaled(torch.ones(3), alpha)
            torch.testing.assert_close(kernel(torch.ones(3), alpha), y, rtol=0, atol=0)
            torch.testing.assert_close(kernel(x, alpha=alpha), scaled(x, alpha), rtol=0, atol=0)
    assert torch.equal(kernel(x), x)


def test_numbers_of_numpy_and_of_classes_beside_tensors() -> None:
    """Both parameters may be numbers: that one is a tensor is seen at the call."""
    numpy = pytest.importorskip("numpy")
    kernel = weft.kernel("def f(x, a):\n    return x * a\n")
    for number in (numpy.float32(0.5), numpy.float64(0.5), numpy.int64(3), numpy.bool_(True), enum.IntEnum("Kind", "A B").B):
        made, expected = kernel(T([1.0, 2.0]), number), T([1.0, 2.0]) * number
        assert made.dtype == expected.dtype and torch.equal(made, expected)


def test_what_a_tensor_holds_is_read_at_each_call() -> None:
    kernel, alpha = weft.kernel(scaled), T(2.0)
    for value in (2.0, 3.0, -1.0):
        alpha.fill_(value)
        assert torch.equal(kernel(torch.ones(2), alpha), torch.full((2,), value))
    kernel, n = weft.kernel(counted), T(2)
    for count in (2, 3, 0):
        n.fill_(count)
        assert torch.equal(kernel(torch.arange(6.0), n), counted(torch.arange(6.0), n))


def test_an_int_that_is_a_tensor_is_one_in_ranges_sizes_and_arithmetic() -> None:
    agree(counted, torch.arange(6.0), T(3))
    text = """
def f(x, n):
    y = torch.zeros(n, dtype=torch.float64)
    for i in range(n):
        y[i] = x[i] * n  # int32 of x and int64 of a tensor: 64 bits
    return y
"""
    x = T([2**30, 5, 7], dtype=torch.int32)
    agree(program(text), x, T(3))
    agree(program(text), x, 3)
    text = "def f(x, n):\n    y = torch.zeros(3)\n    for i in range(n):\n        y[i] = x[n - i]\n    return y\n"
    for dtype in (torch.int64, torch.int32, torch.int16):
        agree(program(text), torch.arange(5.0), T(2, dtype=dtype))
    with pytest.raises(RuntimeError):  # a mask
        program(text)(torch.arange(5.0), T(2, dtype=torch.uint8))
    with pytest.raises(TypeMismatch, match="n is a tensor") as caught:
        weft.kernel(program(text))(torch.arange(5.0), T(2, dtype=torch.uint8))
    assert "a subscript that is one uint8 element" in caught.value.evidence
    with pytest.raises(TypeMismatch, match="n is a tensor, and counted uses it as an int") as caught:
        weft.kernel(counted)(torch.ones(3), T(2, dtype=torch.int32))  # whose size would be known to the kernel alone
    assert "n.item()" in caught.value.remedy
    with pytest.raises(TypeMismatch, match="uses it as an int"):
        weft.kernel(counted)(torch.ones(3), T(2.0))


def test_a_tensor_that_is_written_or_given_back_is_the_one_that_was_passed() -> None:
    def grown(x, n):
        for i in range(n):
            x[i] += n
        n += 1
        return n

    def added(x, n):
        n += x[0]
        return x * n

    for function in (grown, added):
        kernel = weft.kernel(function)
        for dtype in (torch.int64, torch.float32) if function is added else (torch.int64,):
            (x, n), (z, m) = ((torch.ones(4, dtype=dtype), T(2, dtype=dtype)) for _ in range(2))
            made = kernel(x, n)
            assert torch.equal(made, function(z, m))
            assert torch.equal(n, m) and torch.equal(x, z)
            assert (made is n) == (function is grown)
    with pytest.raises(NotDifferentiable, match="writes in place"):
        weft.kernel(added)(torch.ones(3), T(1.0, requires_grad=True))


def test_what_a_helper_writes_of_a_scalar_tensor_is_written() -> None:
    def bump(a):
        a += 1
        return a

    def f(x, a):
        b = bump(a)
        return x * b, b

    kernel, a = weft.kernel(f), T(1.0)
    version = a._version
    y, b = kernel(torch.ones(2), a)
    assert b is a and float(a) == 2 and a._version > version
    assert torch.equal(y, T([2.0, 2.0]))


def test_gradients_reach_the_tensor() -> None:
    def f(x, alpha, beta):
        y = torch.empty_like(x)
        h = 0.0
        for i in range(x.shape[0]):
            h = alpha * h + x[i] * beta if alpha > 0 else x[i]
            y[i] = h
        return y

    kernel = weft.kernel(f)
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    alpha = T(0.5, dtype=torch.float64, requires_grad=True)
    for beta in (2.0, T(2.0, dtype=torch.float64), T(3.0, dtype=torch.float64, requires_grad=True)):
        inputs = [v for v in (x, alpha, beta) if isinstance(v, torch.Tensor) and v.requires_grad]
        mine = torch.autograd.grad(kernel(x, alpha, beta).square().sum(), inputs)
        theirs = torch.autograd.grad(f(x, alpha, beta).square().sum(), inputs)
        torch.testing.assert_close(mine, theirs)
    assert torch.autograd.gradgradcheck(lambda x, a: kernel(x, a, 2.0), (x, alpha))


def test_under_transforms() -> None:
    kernel, x = weft.kernel(scaled), torch.arange(3.0)
    alphas = T([1.0, 2.0])
    assert torch.equal(torch.vmap(kernel, (None, 0))(x, alphas), alphas[:, None] * x)
    value, tangent = torch.func.jvp(kernel, (x, T(2.0)), (torch.ones(3), T(1.0)))
    assert torch.equal(value, 2 * x) and torch.equal(tangent, 2 + x)
    assert float(torch.func.grad(lambda a: kernel(x, a).sum())(T(2.0))) == 3.0


def test_under_compile() -> None:
    kernel, x = weft.kernel(scaled), torch.arange(3.0)
    graph = torch.compile(lambda x, a: kernel(x, a).sum() + 1, backend="aot_eager", fullgraph=True)
    alpha = T(2.0, requires_grad=True)
    graph(x, alpha).backward()
    assert float(alpha.grad) == 3.0
    for a in (2.0, T(2), 3, T(1.5)):
        assert float(graph(x, a)) == 3 * a + 1
    counting = torch.compile(weft.kernel(counted), backend="eager")
    assert torch.equal(counting(x, 2), counted(x, 2))


def test_a_tensor_of_more_dimensions_needs_no_annotation() -> None:
    def f(x, scale, shift=None):
        y = x * scale
        if shift is not None:
            y = y + shift
        return y

    x = torch.rand(3, 4)
    for scale, shift in ((2.0, None), (torch.rand(4), None), (T(2.0), torch.rand(4)), (torch.rand(3, 4), 1.5)):
        torch.testing.assert_close(weft.kernel(f)(x, scale, shift), f(x, scale, shift))
    with pytest.raises(ShapeMismatch, match="does not fit into 0"):
        weft.kernel(scaled)(torch.ones(3), torch.ones(2))


def test_among_other_arguments() -> None:
    def f(parts, scale, mode, *more):
        y = torch.zeros_like(parts[0])
        for i in range(len(y)):
            y[i] = parts[0][i] * scale + parts[1] * more[0] if mode == "sum" else 0
        return y

    for scale, extra in ((T(2.0), T(3.0)), (2.0, T(3.0)), (T(2), 3.0)):
        agree(f, [torch.ones(3), T(0.5)], scale, "sum", extra)

    def named(x, *, alpha, n=2):
        y = torch.zeros_like(x)
        for i in range(n):
            y[i] = x[i] * alpha
        return y

    x = torch.ones(4)
    assert torch.equal(weft.kernel(named)(x, alpha=T(3.0), n=T(3)), named(x, alpha=T(3.0), n=T(3)))


def test_looking_inside() -> None:
    kernel = weft.kernel(scaled, example={"x": "float32[40]", "alpha": "float32[]"})
    assert "alpha: float32[]" in str(kernel.explain())
    assert "const float* __restrict__ alpha" in kernel.source("float32[40]", "float32[]", arch="sm_90a")
    assert "alpha: float" in str(kernel.explain("float32[40]", 0.5))
    for alpha in (T(2.0), "float32[]", 2.0):
        assert kernel.check("float32[40]", alpha, gradients=True).ok
    assert kernel.check(gradients=True).ok
    counting = weft.kernel(counted)
    assert "n = 3" in str(counting.explain("float32[6]", T(3)))
    assert counting.check(torch.ones(6), T(3)).ok


def test_a_scalar_on_the_cpu_joins_tensors_on_another_device() -> None:
    kernel, x = weft.kernel(scaled), torch.ones(3, device="meta")
    for alpha in (T(2.0), T(2.0, requires_grad=True)):
        assert kernel(x, alpha).device.type == "meta"
        assert kernel(x.clone().requires_grad_(), alpha).requires_grad

    def given_back(x, alpha):
        return x * alpha, alpha

    with pytest.raises(DeviceMismatch, match="different devices"):
        weft.kernel(given_back)(x, T(2.0))
    with pytest.raises(DeviceMismatch, match="different devices"):
        weft.kernel("def f(x, w: torch.Tensor): return x * w")(x, torch.ones(3))


def test_constants_that_are_tensors_hold_what_their_type_holds() -> None:
    text = "def f(x, n: int):\n    x[0] = torch.tensor(n, dtype=torch.uint8)\n"
    for n in (255, -3):
        x, z = torch.zeros(1), torch.zeros(1)
        weft.kernel(program(text))(x, n)
        program(text)(z, n)
        assert torch.equal(x, z)
    with pytest.raises(StoreOverflow):
        weft.kernel(program(text))(torch.zeros(1), 300)
    text = "def f(x, n: int):\n    m = torch.tensor(n, dtype=torch.int32)\n    return torch.zeros(m)\n"
    with pytest.raises(UnsupportedSyntax, match="size of .* is not known"):
        weft.kernel(program(text))(torch.zeros(1), 3)


def test_errors_are_told_at_the_users_function() -> None:
    text = "def f(x, alpha, beta):\n    x[0] = alpha.no_such_thing + beta\n"
    function: Callable[..., Any] = program(text)
    with pytest.raises(Exception, match="no_such_thing") as caught:
        weft.kernel(function)(torch.ones(2), T(1.0), T(2.0))
    location = getattr(caught.value, "location")  # noqa: B009
    assert location.file == function.__code__.co_filename and location.line == 2
    assert math.isfinite(location.column)


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    kernel, counting = weft.kernel(scaled), weft.kernel(counted)
    x = torch.rand(1000, device="cuda")
    for alpha in (T(2.0), T(2.0, device="cuda"), T(2), 2.0):
        assert torch.equal(kernel(x, alpha), x * alpha)
    for n in (T(30), T(30, device="cuda"), 30):
        assert torch.allclose(counting(x, n).cpu(), x[:30].cpu() * 30 + x[30].cpu())
    for device in ("cpu", "cuda"):
        alpha = T(2.0, device=device, requires_grad=True)
        kernel(x, alpha).sum().backward()
        assert alpha.grad is not None and alpha.grad.device.type == device
        torch.testing.assert_close(alpha.grad.cpu(), x.sum().cpu())
