"""How far roundings may move results, and that `kernel.check` allows as much and no more."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import weft
from tests import kernels_of_chains as chains
from tests.test_chains import three
from weft.pytorch import simulated
from weft.pytorch.deviations import deviations
from weft.pytorch.reference import TOLERANCES, UNITS

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def log_of_sum(x, w):
    y = torch.zeros(1, dtype=x.dtype)
    total = 0.0
    for i in range(x.shape[0]):
        total += math.exp(x[i]) / w[i]
    y[0] = math.log(total)
    return y


def of_branches(x, w):
    """Each element is used once: some are left out, some negated, one is a maximum."""
    y = torch.zeros(2, dtype=x.dtype)
    largest = -math.inf
    for i in range(x.shape[0]):
        largest = max(largest, x[i])
        if w[i] > 0.5:
            y[1] = y[1] - torch.sqrt(w[i])
        elif w[i] < 0.2:
            y[1] = y[1] + w[i] * 3.0
    y[0] = largest
    return y


@pytest.mark.parametrize("function", [log_of_sum, of_branches])
def test_errors_of_elements_are_handed_on_by_partial_derivatives(function: Any) -> None:
    x, w = torch.randn(9, dtype=torch.float64), torch.rand(9, dtype=torch.float64)
    kernel = weft.kernel(function)
    (found,) = deviations(kernel.program, [x, w], UNITS).values()
    slopes = torch.autograd.functional.jacobian(kernel, (x, w))
    unit = TOLERANCES[torch.float64]
    want = sum((unit * slope * value).square().sum(1) for slope, value in zip(slopes, (x, w), strict=True)).sqrt()
    torch.testing.assert_close(found, want)


@weft.kernel
def rounded_factors(x, w):
    y = torch.empty(x.shape[0])
    for r in range(x.shape[0]):
        total = 0.0
        for i in range(x.shape[1]):
            total += torch.exp(x[r, i]).to(torch.bfloat16) * w[r, i]
        y[r] = total
    return y


def test_what_a_program_rounds_counts_by_the_type_that_it_rounds_to() -> None:
    x, w = torch.randn(3, 50), torch.randn(3, 50)
    (found,) = deviations(rounded_factors.program, [x, w], UNITS).values()
    terms = (x.double().exp() * w.double()).square().sum(1).sqrt()
    torch.testing.assert_close(found, TOLERANCES[torch.bfloat16] * terms, rtol=1e-2, atol=0)


def test_results_that_are_inputs_or_integers_have_no_deviation() -> None:
    @weft.kernel
    def counted(x):
        n = torch.zeros(1, dtype=torch.int64)
        for i in range(x.shape[0]):
            if x[i] > 0:
                n[0] += 1
        return n, x

    assert deviations(counted.program, [torch.randn(5)], UNITS) == {}


def test_rows_of_few_keys_are_not_held_to_the_size_of_the_others() -> None:
    """Gradients of causal attention in bfloat16, some of which are small among large terms: 1 of 384 differed."""
    torch.manual_seed(0)
    report = chains.causal.check(*three(1, 24, 24, 16), 0.25, gradients=True)
    assert report.ok, report.text()


def test_a_key_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = simulated.cuda_source
    planted: list[bool] = []

    def changed(*args: Any) -> str:
        text: str = emitted(*args)
        wrong = text.replace("int32_t(i) + 1", "int32_t(i) + 2")
        planted.append(wrong != text)
        return wrong

    monkeypatch.setattr(simulated, "cuda_source", changed)
    report = chains.causal.check(*three(1, 40, 40, 16), 0.25)
    assert any(planted)
    assert [c.name for c in report.differences] == ["out"]
