"""Stores round to the array's memory type, and what is read again is the rounded value: on the CPU, in the simulated CUDA
code and in what the analysis makes of a program. Each statement here does one operation, so that the plain Python, which
rounds after every one, gives the same bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.fuzz_programs import compiled
from tests.test_cells import kinds, outputs
from weft.loops.rounding import rounded
from weft.loops.types import BFLOAT16, FLOAT16, FLOATS8, SCALAR_TYPES
from weft.pytorch.simulated import simulate_call

HALF = (torch.float16, torch.bfloat16)


def equal(function: Callable[..., Any], *args: Any, simulate: bool = False) -> None:
    """The kernel, and if `simulate` its CUDA code, give what the Python gives, bit by bit."""
    made = weft.kernel(function)
    want = outputs(function, *args)
    found = [outputs(made, *args)]
    if simulate:
        own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        run = simulate_call(made, own, "sm_90a", 0, "forward")
        given_ = [run.arrays.get(p.name, a) for p, a in zip(made.signature.parameters, own, strict=True)]
        found.append([run.arrays[r] for r in run.results] + [a for a in given_ if isinstance(a, torch.Tensor)])
    for got in found:
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            assert torch.equal(a.nan_to_num(nan=7.0), b.nan_to_num(nan=7.0)), (a, b)


def split(x):
    hi = torch.empty(x.shape[0], dtype=torch.bfloat16)
    lo = torch.empty_like(x)
    for i in range(x.shape[0]):
        hi[i] = x[i]
        lo[i] = x[i] - hi[i]
    return hi, lo


def through_half(x):
    n = x.shape[0]
    h = torch.empty(n, dtype=torch.float16)
    y = torch.empty_like(x)
    for i in range(n):
        h[i] = x[i]
    for i in range(n):
        y[i] = h[i]
    return y


def through_branches(x):
    n = x.shape[0]
    h = torch.zeros(n, dtype=torch.float16)
    y = torch.empty_like(x)
    for i in range(n):
        if x[i] > 0.0:
            h[i] = x[i] * 3.0
        else:
            h[i] = x[i]
        y[i] = h[i]
    return y


def filled(x):
    n = x.shape[0]
    h = torch.full((1,), 0.1, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    for i in range(n):
        h[0] = h[0] * 1.0
        y[i] = h[0] - x[i]
    return y


@pytest.mark.parametrize("program", [split, through_half, through_branches, filled], ids=lambda f: f.__name__)
def test_what_is_read_again_is_what_was_stored(program: Callable[..., Any]) -> None:
    equal(program, torch.tensor([1.001, -0.3, 70000.0, 1e-9, -1e6, 2.0]), simulate=True)


def running_sum(x):
    y = x.clone()
    for i in range(1, x.shape[0]):
        y[i] = y[i - 1] + x[i]
    return y


def total(x):
    y = torch.zeros(1, dtype=x.dtype)
    for i in range(x.shape[0]):
        y[0] += x[i]
    return y


def largest(x):
    y = torch.zeros(1, dtype=x.dtype)
    for i in range(x.shape[0]):
        y[0] = max(y[0], x[i])
    return y


def running_largest(x):
    y = x.clone()
    for i in range(1, x.shape[0]):
        y[i] = max(y[i - 1], x[i])
    return y


def two_back(x):
    y = x.clone()
    for i in range(2, x.shape[0]):
        y[i] = y[i - 2] + x[i]
    return y


def counted(x, k):
    y = torch.zeros(4, dtype=x.dtype)
    for i in range(x.shape[0]):
        y[k[i]] += x[i]
    return y


ROUNDED = (running_sum, total, two_back)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("program", [*ROUNDED, largest, running_largest], ids=lambda f: f.__name__)
def test_what_is_added_up_in_an_array_is_rounded_at_every_step(program: Callable[..., Any], dtype: torch.dtype) -> None:
    equal(program, torch.ones(300, dtype=dtype), simulate=True)
    equal(program, torch.randn(300, generator=torch.Generator().manual_seed(0)).to(dtype))


def test_a_thousand_ones_in_bfloat16_are_256() -> None:
    assert weft.kernel(running_sum)(torch.ones(1000, dtype=torch.bfloat16))[-1] == 256
    assert weft.kernel(total)(torch.ones(1000, dtype=torch.bfloat16))[0] == 256
    assert weft.kernel(total)(torch.ones(5000, dtype=torch.float16))[0] == 2048


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_counts_in_cells_that_the_data_choose_are_rounded(dtype: torch.dtype) -> None:
    equal(counted, torch.ones(3000, dtype=dtype), torch.zeros(3000, dtype=torch.int64))


def test_what_rounds_runs_in_order_and_what_does_not_is_free() -> None:
    ones = torch.ones(8)
    for program in ROUNDED:
        assert kinds(program, ones.bfloat16())["i"] == "sequential"
        assert kinds(program, ones)["i"] != "sequential"
        assert kinds(program, ones.double())["i"] != "sequential"
    # a maximum of what the type holds is held by it
    assert kinds(largest, ones.bfloat16())["i"] == "reduction"
    assert kinds(running_largest, ones.bfloat16())["i"] == "scan"
    assert kinds(counted, ones.bfloat16(), torch.zeros(8, dtype=torch.int64))["i"] == "sequential"
    assert kinds(counted, ones, torch.zeros(8, dtype=torch.int64))["i"] == "reduction"


def test_the_explanation_says_what_rounds_and_what_to_write() -> None:
    text = weft.kernel(running_sum).explain("bfloat16[100]", detail=True)
    assert "is rounded to bfloat16 in every iteration" in text
    assert "keep the running value in a name and store it" in text


def test_a_name_is_not_rounded() -> None:
    def summed(x):
        y = torch.empty_like(x)
        h = 0.0
        for i in range(x.shape[0]):
            h = h + x[i].float()
            y[i] = h
        return y

    equal(summed, torch.ones(1000, dtype=torch.bfloat16), simulate=True)
    assert kinds(summed, torch.ones(8, dtype=torch.bfloat16))["i"] == "scan"


def test_gradients_are_added_up_unrounded() -> None:
    @weft.kernel
    def weighted(x, w):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] * w[0]
        return y

    x = torch.ones(1000, dtype=torch.bfloat16)
    w = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)
    weighted(x, w).backward(torch.ones_like(x))
    assert w.grad is not None
    assert w.grad.item() == 1000


def test_integers_wrap_and_conditions_hold_what_is_stored() -> None:
    def narrow(x):
        n = x.shape[0]
        a = torch.empty(n, dtype=torch.int8)
        b = torch.empty(n, dtype=torch.bool)
        y = torch.empty_like(x)
        for i in range(n):
            a[i] = x[i]
            b[i] = x[i]
            y[i] = 10 * a[i].long() + b[i].long()
        return y

    equal(narrow, torch.tensor([1, 0, 127, -128, 2]), simulate=True)


def test_a_float64_result_in_a_float32_array_is_rounded() -> None:
    def narrowed(x):
        y = torch.zeros(x.shape[0], dtype=torch.float32)
        z = torch.empty_like(x)
        for i in range(1, x.shape[0]):
            y[i] = y[i - 1] + x[i]
            z[i] = x[i] - y[i]
        return y, z

    x = torch.rand(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    want, found = narrowed(x), weft.kernel(narrowed)(x)
    assert torch.equal(found[0], want[0])
    assert torch.equal(found[1][1:], want[1][1:])


@given(st.floats(width=32) | st.floats())
def test_numbers_round_as_pytorch_rounds_them(value: float) -> None:
    for type_ in (FLOAT16, BFLOAT16):
        want = torch.tensor(value, dtype=torch.float32).to(getattr(torch, type_.name)).item()
        found = rounded(value, type_)
        assert found == want or (math.isnan(found) and math.isnan(want))


# ---------------------------------------------------------------- random programs


def written(seed: int) -> str:
    """A program on a tensor: loops that store to arrays of several types and read them again."""
    choice = random.Random(seed)
    arrays = ["x", "a", "b"]
    dtypes = [choice.choice(("float16", "bfloat16", "float32")) for _ in arrays[1:]]
    lines = ["def program(x):", "    n = x.shape[0]"]
    lines += [f"    {a} = torch.zeros(n, dtype=torch.{d})" for a, d in zip(arrays[1:], dtypes, strict=True)]
    for _ in range(choice.randint(1, 2)):
        lines.append("    for i in range(2, n):")
        for _ in range(choice.randint(1, 3)):
            target = choice.choice(arrays)
            place = choice.choice(("i", "i", "i", "0"))
            places = ("i", "i", "i - 1", "i - 2", "0")
            one, other = (f"{choice.choice(arrays)}[{choice.choice(places)}].float()" for _ in range(2))
            value = choice.choice((one, f"{one} + {other}", f"max({one}, {other})", f"{one} - {other}", f"-{one}"))
            guard = choice.choice(("", "", f"if {other} > 0.25: "))
            lines.append(f"        {guard}{target}[{place}] = {value}")
    return "\n".join((*lines, f"    return {', '.join(arrays[1:])}"))


@given(seed=st.integers(0, 1 << 30), dtype=st.sampled_from((*HALF, torch.float32)))
def test_random_programs_give_the_bits_of_the_python(seed: int, dtype: torch.dtype) -> None:
    source = written(seed)
    function = compiled(source, f"<stores {seed}>")
    # sums of these are exact in float32, in whatever order they are taken; half types round them
    x = (torch.randint(-2048, 2048, (9,), generator=torch.Generator().manual_seed(seed)) / 1024).to(dtype)
    for a, b in zip(outputs(weft.kernel(function), x), outputs(function, x), strict=True):
        assert torch.equal(a, b), source


def test_every_type_is_known() -> None:
    assert {t for t in SCALAR_TYPES.values() if t != t.opmath} == {FLOAT16, BFLOAT16, *FLOATS8}
