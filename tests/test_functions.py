"""What functions a kernel can be made of."""

from __future__ import annotations

import pytest
import torch

import weft
from weft.errors import TypeMismatch

TEXT = """
def twice(v):
    return 2 * v

def doubled(x):
    y = torch.empty_like(x)
    for i, v in enumerate(x):
        y[i] = twice(v) + math.pi
    return y
"""


def test_a_kernel_of_a_source_text() -> None:
    kernel = weft.kernel(TEXT)
    x = torch.rand(5)
    assert kernel.name == "doubled"
    torch.testing.assert_close(kernel(x), kernel.py(x))
    assert "for i, v in enumerate(x):" in kernel.explain("float32[5]")


def test_a_kernel_of_a_lambda_and_of_a_function_under_an_if() -> None:
    x = torch.rand(5)
    torch.testing.assert_close(weft.kernel(lambda x: 2 * x[:])(x), 2 * x)
    if x.numel():

        @weft.kernel
        def halved(x):
            return x[:] / 2

    torch.testing.assert_close(halved(x), x / 2)


class Functions:
    @staticmethod
    @weft.kernel
    def outside(x):
        return 2 * x[:]

    @weft.kernel
    @staticmethod
    def inside(x):
        return 3 * x[:]


@weft.kernel
def joined(parts, scale: float = 1.0, bias=None, mode="sum"):
    """The sum or the mean of several tensors."""
    y = torch.zeros_like(parts[0])
    for part in parts:
        for i, v in enumerate(part):
            y[i] += scale * v
    if bias is not None:
        for i in range(len(y)):
            y[i] += bias[i]
    if mode == "mean":
        y /= len(parts)
    return y


@weft.kernel
def total(*parts, weights=(1.0, 2.0)):
    s = 0.0
    for part, weight in zip(parts, weights, strict=False):
        for v in part:
            s = s + weight * v
    return s


@weft.kernel
def filled(parts, shape, dtype):
    made = torch.ones(shape, dtype=dtype)
    for part in parts:
        for i in range(len(part)):
            part[i] = shape[0]
    return made


def test_constants_and_containers_are_parts_of_the_program() -> None:
    x, w = torch.rand(5), torch.rand(5)
    for args in (([x, w],), ((x, w, x), 2.0), ([x], 0.5, w), ([x, w], 1.0, None, "mean"), ((x, w), 3.0, w, "mean")):
        for _ in range(2):
            torch.testing.assert_close(joined(*args), joined.py(*args))
    torch.testing.assert_close(joined([x, w], mode="mean"), joined.py([x, w], mode="mean"))
    torch.testing.assert_close(total(x, w), total.py(x, w))
    torch.testing.assert_close(total(x, w, weights=[0.5, 3]), total.py(x, w, weights=[0.5, 3]))
    ours, theirs = ([x.clone(), w.clone()] for _ in range(2))
    made, expected = filled(ours, (3, 2), torch.float64), filled.py(theirs, (3, 2), torch.float64)
    torch.testing.assert_close(made, expected)
    torch.testing.assert_close(ours, theirs)


def test_gradients_reach_the_tensors_of_a_list() -> None:
    x, w = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    joined([x, w, x], 3.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((5,), 6.0))
    torch.testing.assert_close(w.grad, torch.full((5,), 3.0))


def test_a_list_breaks_a_graph_and_is_called_outside() -> None:
    x, w = torch.rand(5), torch.rand(5)
    compiled = torch.compile(lambda x, w: joined([x, w]) + 1, backend="eager")
    torch.testing.assert_close(compiled(x, w), x + w + 1)


def test_methods_are_told_what_to_be() -> None:
    class Scaled:
        scale = 2.0

        @weft.kernel
        def forward(self, x):
            return self.scale * x[:]

    with pytest.raises(TypeMismatch, match="static method"):
        Scaled().forward(torch.rand(3))
    with pytest.raises(TypeMismatch, match="self is a"):
        Scaled.forward(Scaled(), torch.rand(3))


@pytest.mark.parametrize("owner", [Functions, Functions()])
def test_static_methods(owner: Functions) -> None:
    x = torch.rand(5)
    torch.testing.assert_close(owner.outside(x), 2 * x)
    torch.testing.assert_close(owner.inside(x), 3 * x)


def test_kernels_of_a_text_are_called_under_torch_compile() -> None:
    area = weft.kernel("def area(r):\n    return math.pi * r * r")  # reads a number that torch.compile guards
    r = torch.rand(5)
    torch.testing.assert_close(torch.compile(lambda r: area(r) + 1, backend="eager", fullgraph=True)(r), area(r) + 1)
