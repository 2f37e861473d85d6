"""What functions a kernel can be made of."""

from __future__ import annotations

import pytest
import torch

import weft

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


@pytest.mark.parametrize("owner", [Functions, Functions()])
def test_static_methods(owner: Functions) -> None:
    x = torch.rand(5)
    torch.testing.assert_close(owner.outside(x), 2 * x)
    torch.testing.assert_close(owner.inside(x), 3 * x)
