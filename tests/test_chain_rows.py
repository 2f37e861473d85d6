"""Chained products on a CPU: rows lie side by side in lanes, whatever their scores become and whichever columns they have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.attention import online
from tests import kernels_of_chains as kernels
from tests.test_chain_gradients import any_begins, begins_of_documents, scores_of
from weft.errors import OutOfRange
from weft.kernels.attention import attention

pytestmark = pytest.mark.usefixtures("quickly_compiled")

BEGINS = any_begins(2, 40)
CASES: dict[str, tuple[Any, list[Any]]] = {
    "full": (kernels.full, [(2, 40, 16), (2, 150, 16), (2, 150, 24), 0.25]),
    "few_of_all": (kernels.full, [(1, 9, 3), (1, 5, 3), (1, 5, 1), 0.25]),
    "causal": (kernels.causal, [*[(2, 100, 16)] * 3, 0.25]),
    "near": (kernels.near, [*[(2, 100, 16)] * 3, 0.25, 7]),
    "documents": (kernels.from_first, [*[(2, 40, 16)] * 3, begins_of_documents(2, 40), 0.25]),
    "prefix": (kernels.prefix, [*[(2, 40, 16)] * 3, 13, 0.25]),
    "between": (
        kernels.between, [(2, 40, 16), *[(2, 60, 16)] * 2, BEGINS, BEGINS.clamp(min=0) + torch.randint(1, 30, (2, 40)), 0.25],
    ),
    "sharpened": (kernels.sharpened, [*[(2, 40, 16)] * 3, (2, 40)]),
    "biased": (kernels.biased, [*[(2, 2, 40, 16)] * 3, (2, 40, 40), (2,), 0.25, 3.0]),
    "log_sums": (kernels.log_sums, [(2, 40, 16), (2, 60, 16), 0.25]),
    "online": (online, [*[(2, 40, 64)] * 3, 0.125]),
}  # fmt: skip


def made(given: list[Any], dtype: torch.dtype) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(a, generator=generator, dtype=dtype) if isinstance(a, tuple) else a for a in given]


def in_lanes(kernel: Any, args: list[Any]) -> bool:
    return "weft::multiply_rows" in kernel.source(*args, arch="cpu")


def expected(kernel: Any, args: list[Any]) -> Tensor:
    """The last result of a program, of its operands as they are."""
    q, k, *rest = (a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
    if kernel is kernels.log_sums:
        return torch.logsumexp(q @ k.transpose(-1, -2) * rest[0], -1)
    if kernel is kernels.sharpened:
        return torch.softmax(q @ k.transpose(-1, -2) * rest[1][..., None], -1) @ rest[0]
    scores = scores_of(kernel, q, k, *rest[1:])
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return weights @ rest[0]


@pytest.mark.parametrize("name", CASES)
def test_what_rows_in_lanes_compute(name: str) -> None:
    kernel, given = CASES[name]
    dtypes = {torch.float32: 2e-5} if kernel is online else {torch.float32: 2e-5, torch.bfloat16: 2e-2}
    for dtype, within in dtypes.items():
        args = made(given, dtype)
        assert in_lanes(kernel, args)
        found = kernel(*args)
        found, want = (found[0] if isinstance(found, tuple) else found).double(), expected(kernel, args)
        assert (found - want).norm() <= within * want.norm()


def test_an_infinity_of_a_key_that_a_query_does_not_have() -> None:
    q, k, v = made([(1, 40, 16)] * 3, torch.float32)
    v[0, 30] = math.inf
    k[0, 35] = math.nan
    found = kernels.causal(q, k, v, 0.25)
    torch.testing.assert_close(found[:, :30], kernels.causal(*(t[:, :30] for t in (q, k, v)), 0.25))
    assert not found[:, 30:].isfinite().any()


def test_queries_without_keys() -> None:
    q, k, v = made([(1, 40, 16), *[(1, 60, 16)] * 2], torch.float32)
    first = torch.full((1, 40), 20)
    last = torch.where(torch.arange(40) % 3 == 0, 20, 50)[None]
    found = kernels.between(q, k, v, first, last, 0.25)
    assert (found[:, ::3] == 0).all()
    assert (found[:, 1::3] != 0).all()


def test_keys_that_are_not_there() -> None:
    q, k, v = made([(2, 40, 16)] * 3, torch.float32)
    lengths = torch.tensor([7, 41])
    with pytest.raises(OutOfRange, match="k"):
        kernels.ragged(q, k[:, :30], v, lengths, 0.25)


def test_doubles() -> None:
    q, k, v = made([(2, 3, 40, 16)] * 3, torch.float64)
    found = attention(q, k, v, is_causal=True)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, is_causal=True), rtol=1e-12, atol=1e-12)


def test_few_queries_are_no_lines() -> None:
    assert not in_lanes(kernels.full, made([(2, 4, 16), *[(2, 60, 16)] * 2, 0.25], torch.float32))
