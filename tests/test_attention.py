"""`weft.kernels.attention` against `scaled_dot_product_attention` in float64."""

from __future__ import annotations

import functools
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from weft.errors import ShapeMismatch, TypeMismatch, WeftError
from weft.kernels import attention
from weft.kernels.attention import attended, attended_biased, attended_biased_alone, attended_causal, attended_masked

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def exact(*args: Tensor, **options: Any) -> Tensor:
    made = {k: v.double() if isinstance(v, Tensor) and v.dtype != torch.bool else v for k, v in options.items()}
    return F.scaled_dot_product_attention(*(t.double() for t in args), **made)


def some(*shape: int) -> Tensor:
    """A mask in which every query has a key."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        (((17, 16), (20, 16), (20, 24)), {}),
        (((3, 17, 16), (3, 20, 16), (3, 20, 24)), {"scale": 0.3}),
        (((2, 3, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24)), {"is_causal": True}),
        (((2, 3, 27, 16), (2, 3, 20, 16), (2, 3, 20, 24)), {"is_causal": True}),
        (((2, 2, 3, 17, 16), (2, 2, 3, 20, 16), (2, 2, 3, 20, 24)), {}),
        (((2, 6, 17, 16), (1, 6, 20, 16), (6, 20, 24)), {}),
        (((2, 6, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24)), {"enable_gqa": True}),
        (((2, 6, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24)), {"enable_gqa": True, "attn_mask": some(2, 6, 17, 20)}),
        (((2, 6, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24)), {"enable_gqa": True, "attn_mask": some(2, 1, 17, 20)}),
        (((2, 6, 17, 16), (2, 6, 20, 16), (2, 6, 20, 24)), {"attn_mask": some(17, 20)}),
        (((2, 6, 17, 16), (2, 6, 20, 16), (2, 6, 20, 24)), {"attn_mask": torch.linspace(-3, 3, 6 * 20).reshape(6, 1, 20)}),
        (((2, 6, 17, 16), (2, 6, 0, 16), (2, 6, 0, 24)), {}),
        (((2, 6, 0, 16), (2, 6, 20, 16), (2, 6, 20, 24)), {}),
    ],
    ids=str,
)  # fmt: skip
def test_it_is_that_of_pytorch(shapes: tuple[tuple[int, ...], ...], options: dict[str, Any]) -> None:
    given = tensors(*shapes)
    torch.testing.assert_close(attention(*given, **options).double(), exact(*given, **options), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", [torch.tensor(2.0), torch.linspace(-3, 3, 20), torch.arange(20) < 13])
def test_masks_of_few_dimensions(mask: Tensor) -> None:
    given = tensors((2, 3, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24))
    expected = exact(*given, attn_mask=mask.expand(17, 20))
    torch.testing.assert_close(attention(*given, attn_mask=mask).double(), expected, rtol=1e-5, atol=1e-5)


def test_rows_without_width_have_the_mean_of_all_values() -> None:
    q, k, v = tensors((2, 17, 0), (2, 20, 0), (2, 20, 24))
    torch.testing.assert_close(attention(q, k, v), v.mean(-2, keepdim=True).expand(2, 17, 24))


def test_autocast() -> None:
    """Norms of queries and keys are float32 beside values in half."""
    q, k, v = tensors((2, 17, 16), (2, 20, 16), (2, 20, 24))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, theirs = attention(q, k, v.bfloat16()), F.scaled_dot_product_attention(q, k, v.bfloat16())
    assert out.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(out, attention(q.bfloat16(), k.bfloat16(), v.bfloat16()))


@pytest.mark.parametrize(
    "dtypes",
    [
        (torch.float32, torch.float64, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.float32),
        (torch.int64, torch.int64, torch.int64),
        (torch.bool, torch.bool, torch.bool),
        (torch.complex64, torch.complex64, torch.complex64),
    ],
)
def test_tensors_of_other_dtypes_are_refused(dtypes: tuple[torch.dtype, ...]) -> None:
    """Integers would be rounded to integers."""
    given = [t.to(dtype) for t, dtype in zip(tensors((17, 16), (20, 16), (20, 24)), dtypes, strict=True)]
    with pytest.raises(TypeMismatch, match="one floating type"):
        attention(*given)


def test_an_integer_mask_is_refused() -> None:
    with pytest.raises(TypeMismatch, match=r"attn_mask is torch\.int64"):
        attention(*tensors((17, 16), (20, 16), (20, 24)), attn_mask=torch.ones(17, 20, dtype=torch.int64))


def test_any_strides() -> None:
    given = [t.transpose(1, 2) for t in tensors((2, 17, 6, 16), (2, 20, 6, 16), (2, 20, 6, 24))]
    out = attention(*given)
    torch.testing.assert_close(out.double(), exact(*given), rtol=1e-5, atol=1e-5)
    assert out.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types(dtype: torch.dtype) -> None:
    given = tensors((1, 2, 33, 64), (1, 2, 50, 64), (1, 2, 50, 64), dtype=dtype)
    out, expected = attention(*given), exact(*given)
    theirs = F.scaled_dot_product_attention(*given)
    assert out.dtype == dtype
    assert (out - expected).abs().max() <= 1.5 * (theirs - expected).abs().max()


def test_a_query_without_keys_is_0_and_so_are_its_gradients() -> None:
    q, k, v = (t.requires_grad_() for t in tensors((1, 2, 5, 3), (1, 2, 5, 3), (1, 2, 5, 3), dtype=torch.float64))
    mask = some(5, 5)
    mask[4] = False
    assert not attention(q, k, v, attn_mask=mask)[:, :, 4].any()
    for options in ({}, {"is_causal": True}, {"attn_mask": mask}):
        own = functools.partial(attention, **options)
        assert torch.autograd.gradcheck(own, (q, k, v), fast_mode=True)


def test_nan_and_infinities_are_seen() -> None:
    q, k, v = tensors((1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8))
    q[0, 0, 3, 2], k[0, 1, 5, 1] = torch.nan, torch.inf
    out, expected = attention(q, k, v), exact(q, k, v)
    assert (out.isnan() == expected.isnan()).all()


def test_torch_compile_sees_one_graph() -> None:
    q, k, v = tensors((1, 2, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8))

    def joined(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)

    torch.testing.assert_close(torch.compile(joined, fullgraph=True, backend="aot_eager")(q, k, v), joined(q, k, v))


@pytest.mark.parametrize("kernel", [attended, attended_causal, attended_biased, attended_masked], ids=lambda k: k.name)
def test_they_are_chains_of_products(kernel: Any) -> None:
    assert "multiply_scores" in kernel.source(*kernel.example.values(), arch="sm_90a")


@pytest.mark.parametrize("keys", [90, 104])  # in pairs, and in packets, of which four threads have less than four in the end
def test_rows_of_masked_keys_on_the_simulator(keys: int) -> None:
    q, k, v = tensors((1, 2, 2, 70, 64), (1, 2, keys, 64), (1, 2, keys, 64), dtype=torch.bfloat16)
    mask = some(1, 2, 2, 70, keys)
    mask[0, 0, 0, 3], mask[0, 1, 1, 60:] = False, False
    report = attended_masked.check(q, k, v, mask, 0.125)
    assert report.ok, str(report)


@pytest.mark.parametrize(("dtype", "keys"), [(torch.bfloat16, 42), (torch.float32, 41)])
def test_biases_of_pairs_on_the_simulator(dtype: torch.dtype, keys: int) -> None:
    q, k, v = tensors((1, 2, 70, 32), (1, 2, keys, 32), (1, 2, keys, 32), dtype=torch.bfloat16)
    report = attended_biased_alone.check(q, k, v, some(1, 1, 70, keys).to(dtype).expand(1, 2, 70, keys), 0.125)
    assert report.ok, str(report)


def test_bad_input() -> None:
    q, k, v = tensors((2, 6, 17, 16), (2, 3, 20, 16), (2, 3, 20, 24))
    with pytest.raises(ShapeMismatch, match="leading dimensions"):
        attention(q, k, v)
    with pytest.raises(ShapeMismatch, match="do not fit"):
        attention(q, k[..., :8], v)
    with pytest.raises(ShapeMismatch, match="share"):
        attention(q[:, :4], k, v, enable_gqa=True)
    with pytest.raises(ShapeMismatch, match="leading dimensions"):
        attention(q, k, v, enable_gqa=True, attn_mask=some(5, 17, 20))
    with pytest.raises(WeftError, match="dropout"):
        attention(q, k, v, dropout_p=0.1)
    with pytest.raises(WeftError, match="two masks"):
        attention(q, k, v, enable_gqa=True, attn_mask=some(17, 20), is_causal=True)


def test_a_gpt_learns_what_it_does_with_pytorch() -> None:
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "gpt.py"))
    (ours, _), (theirs, _) = (example["trained"](example[name], 3, "cpu") for name in ("WEFT", "PYTORCH"))
    assert ours == pytest.approx(theirs, abs=1e-5)
