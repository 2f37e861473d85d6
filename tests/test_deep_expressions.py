"""Expressions of hundreds of terms: trees as deep, which Python's own limit of recursion does not reach to the leaves of."""

from __future__ import annotations

import pickle
import sys
import threading

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from weft.errors import UnsupportedSyntax, WeftError
from weft.loops.ir import Cast, Expr, Load, Op, Ref, free_arrays, free_names
from weft.loops.types import FLOAT32, INT64
from weft.runtime import stack
from weft.runtime.nvrtc import compile_cubin


def kernel_of(body: str, label: str) -> weft.Kernel:
    text = "def program(x):\n    y = torch.zeros_like(x)\n    for i in range(x.shape[0]):\n" + body + "    return y\n"
    return weft.kernel(compiled(text, f"<{label}>"))


def sum_of(terms: int) -> weft.Kernel:
    return kernel_of("        y[i] = " + " + ".join(["x[i]"] * terms) + "\n", f"{terms} terms")


def test_a_sum_of_many_terms() -> None:
    """In its order: no regrouping makes the sum of floats less deep."""
    kernel = sum_of(300)
    x = torch.rand(37)
    assert torch.equal(kernel(x), kernel.py(x))
    assert kernel.check(x).ok
    compile_cubin(kernel.source(x, arch="sm_90a"), "sm_90a", name="sum.cu")
    assert kernel.explain(x)


def test_the_gradient_of_a_deep_sum() -> None:
    x = torch.rand(37, requires_grad=True)
    sum_of(150)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((37,), 150.0))


def test_a_sum_of_a_thousand_terms_is_one_or_is_refused_by_name() -> None:
    x = torch.rand(5)
    try:
        kernel = sum_of(1000)
        assert torch.equal(kernel(x), kernel.py(x))
    except WeftError as error:
        assert "nested too deeply" in str(error)


def test_a_condition_of_many_parts() -> None:
    kernel = kernel_of(
        "        if " + " and ".join(f"x[i] > {k}.0" for k in range(200)) + ":\n            y[i] = 1.0\n", "parts"
    )
    x = torch.tensor([198.5, 199.5, -1.0])
    assert torch.equal(kernel(x), kernel.py(x))


def test_python_s_limit_is_as_it_was() -> None:
    before, size = sys.getrecursionlimit(), threading.stack_size()

    @stack.deep
    def count(n: int) -> int:
        def down(k: int) -> int:
            return 0 if k == 0 else 1 + down(k - 1)

        return down(n)

    assert count(20_000) == 20_000
    assert (sys.getrecursionlimit(), threading.stack_size()) == (before, size)


def test_what_goes_on_without_end_is_refused() -> None:
    @stack.deep
    def endless(n: int) -> int:
        return endless.__wrapped__(n + 1)

    with pytest.raises(UnsupportedSyntax, match="nested too deeply"):
        endless(0)


def test_errors_come_through() -> None:
    @stack.deep
    def fails(n: int) -> None:
        def down(k: int) -> None:
            if k == 0:
                raise KeyError("here")
            down(k - 1)

        down(n)

    with pytest.raises(KeyError, match="here"):
        fails(5_000)


def test_what_expressions_remember_stays_in_the_process() -> None:
    """Hashes of strings differ from process to process: an expression from the disk cache must not bring its own."""
    deep: Expr = Load("a", (Ref("i", INT64),), FLOAT32)
    for k in range(50):
        deep = Op("add", (deep, Cast(Load(f"b{k % 3}", (Ref("j", INT64),), FLOAT32), FLOAT32)), FLOAT32)
    fresh = pickle.dumps(deep)
    assert free_names(deep) == {"i", "j"} and free_arrays(deep) == {"a", "b0", "b1", "b2"}
    assert len({deep, pickle.loads(fresh)}) == 1
    assert pickle.dumps(deep) == fresh
