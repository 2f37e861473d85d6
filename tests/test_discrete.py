"""Floating steps of one size: where they decide something they are added up in Python's order, else they are free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.fuzz_programs import compiled
from tests.test_cells import kinds, outputs

pytestmark = pytest.mark.usefixtures("quickly_compiled")

BODY = """
def program(x: torch.Tensor, step: float):
    n = x.shape[0]
    y = torch.zeros(n, dtype=torch.float64)
    z = torch.zeros(n)
    p = 0.0
    for i in range(n):
        UPDATE
        USE
    return y, z
"""
UPDATES = ("p = p + 0.1", "p = p - 0.1", "p = 0.1 + p", "p += step", "p = p + 0.1 if x[i] > 0.0 else p", "p = 0.9 * p + 0.1")
DECIDED = (
    "z[i] = x[abs(int(p)) % n]",
    "z[i] = 1.0 if abs(p) >= 0.5 else 0.0",
    "z[i] = p // 0.1",
    "z[i] = p % 0.1",
    "z[i] = math.floor(p)",
    "z[i] = int(p * 10.0)",
    "q = p * 2.0\n        z[i] = 1.0 if q > 1.0 else 2.0",
    "y[i] = p\n        z[i] = 3.0 if y[i] >= 1.0 else 4.0",
)
FREE = ("z[i] = p * x[i]", "y[i] = p", "z[i] = math.sin(p)", "z[i] = max(p, 0.5)", "z[i] = p if x[i] > 0.0 else 1.0")


def made(update: str, use: str) -> Callable[..., Any]:
    label = f"<{update} / {' '.join(use.split())}>"
    return compiled(BODY.replace("UPDATE", update).replace("USE", use), label)


@pytest.mark.parametrize("use", DECIDED)
@pytest.mark.parametrize("update", UPDATES[:-1])
def test_what_decides_something_is_added_up_in_order(update: str, use: str) -> None:
    function, x = made(update, use), torch.linspace(-1, 8, 60)
    assert kinds(function, x, 0.1)["i"] == "sequential"
    for found, wanted in zip(outputs(weft.kernel(function), x, 0.1), outputs(function, x, 0.1), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("use", FREE)
@pytest.mark.parametrize("update", UPDATES)
def test_what_is_a_quantity_is_free(update: str, use: str) -> None:
    function, x = made(update, use), torch.linspace(-1, 8, 60)
    assert kinds(function, x, 0.1)["i"] != "sequential"
    for found, wanted in zip(outputs(weft.kernel(function), x, 0.1), outputs(function, x, 0.1), strict=True):
        torch.testing.assert_close(found, wanted)


def test_sums_of_data_are_scans_whatever_they_decide() -> None:
    function = made("p = p + x[i]", DECIDED[1])
    assert kinds(function, torch.ones(3), 0.1)["i"] == "scan"


def test_integers_are_closed_whatever_they_decide() -> None:
    def taken(x):
        y = torch.zeros_like(x)
        k = 0
        for i in range(x.shape[0] // 2):
            y[i] = x[k]
            k = k + 2
        return y

    assert kinds(taken, torch.ones(6))["i"] == "parallel"


def test_the_explanation_says_why_and_what_to_write() -> None:
    text = weft.kernel(made(UPDATES[0], DECIDED[0])).explain("float32[100]", 0.1, detail=True)
    assert "p takes steps of one size and decides something" in text
    assert "tell p by the number of the iteration" in text


@given(st.sampled_from(UPDATES[:-1]), st.sampled_from(DECIDED), st.floats(-2, 2), st.integers(0, 200))
def test_whatever_the_step(update: str, use: str, step: float, n: int) -> None:
    function, x = made(update.replace("0.1", "step"), use), torch.linspace(-1, 8, n)
    for found, wanted in zip(outputs(weft.kernel(function), x, step), outputs(function, x, step), strict=True):
        assert torch.equal(found, wanted)
