"""Reductions split by their algebra: the parts, combined, are what the loop gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import InapplicableTransform

# before the loop; one iteration; what is kept
LOOPS = {
    "sum": ("s = 0.5", "s = s + x[i]", "s"),
    "product": ("s = 1.5", "s = s * x[i]", "s"),
    "maximum": ("s = -math.inf", "s = max(s, x[i])", "s"),
    "minimum": ("s = 0.0", "s = min(s, x[i])", "s"),
    "affine": ("s = 2.0", "s = y[i] * s + x[i]", "s"),
    "two, one of the other": ("s = 0.0; t = 1.0", "s = s + x[i]; t = t * y[i]", "s * t"),
    "select": ("s = -1.0", "if x[i] > 0: s = y[i]", "s"),
    "argmax": ("m = -math.inf; s = -1.0", "if x[i] > m: m = x[i].clone(); s = 1.0 * i", "s + 100.0 * max(m, -1000.0)"),
    "argmin": ("m = 0.0; s = -1.0", "if x[i] < m: m = x[i].clone(); s = 1.0 * i", "s + 100.0 * m"),
    "log-sum-exp": (
        "m = -1000.0; s = 0.0",
        "n = max(m, x[i]); s = s * torch.exp(m - n) + torch.exp(x[i] - n); m = n",
        "m + s",
    ),
    "attention": (
        "m = -1000.0; l = 0.0; o = 0.0",
        "n = max(m, x[i]); k = l * torch.exp(m - n) + torch.exp(x[i] - n); "
        "o = o * torch.exp(m - n) * l / k + torch.exp(x[i] - n) * y[i] / k; m = n; l = k",
        "o + m + l",
    ),
    "absolute maximum": ("m = 0.001; s = 0.0", "n = max(m, abs(x[i])); s = s * (m / n) + x[i] / n; m = n", "m + s"),
}


def program(name: str, header: str = "range(x.shape[0])") -> str:
    before, update, kept = LOOPS[name]
    iteration = []
    for line in update.split("; "):
        condition, colon, rest = line.partition(": ") if line.startswith("if") else ("", "", line)
        if colon:
            iteration.append(f"{condition}:")
        inside = "    " if condition or (iteration and iteration[0].startswith("if")) else ""
        iteration.append(f"{inside}{rest}")
    return "\n".join([
        "import math", "import torch", "def f(x, y, out):",
        *(f"    {line}" for line in before.split("; ")),
        f"    for i in {header}:",
        *(f"        {line}" for line in iteration),
        f"    out[0] = {kept}", "",
    ])  # fmt: skip


def result(function: Any, x: torch.Tensor, y: torch.Tensor) -> float:
    out = torch.zeros(1, dtype=x.dtype)
    function(x, y, out)
    return float(out[0])


@pytest.mark.parametrize("name", LOOPS)
@given(n=st.integers(0, 12), size=st.integers(1, 5), seed=st.integers(0, 1000))
def test_parts_combined_are_the_whole(name: str, n: int, size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, n, generator=generator, dtype=torch.float64)
    written = weft.schedule(program(name))
    done = written.split("i", size)
    assert result(done.py, x, y) == pytest.approx(result(written.py, x, y), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_over_parts_is_a_reduction_again(name: str) -> None:
    done = weft.schedule(program(name)).split("i", 4)
    assert {v: found.kind for v, found in done.loops.items()} == {"i_block": "reduction", "i": "reduction"}


def test_backwards_and_by_steps() -> None:
    x, y = torch.randn(2, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for header in ("range(x.shape[0] - 1, -1, -1)", "range(1, x.shape[0], 3)", "range(x.shape[0] - 2, 1, -2)"):
        written = weft.schedule(program("affine", header))
        assert result(written.split("i", 4).py, x, y) == pytest.approx(result(written.py, x, y))


def test_elements_of_an_array_are_parts_too() -> None:
    written = weft.schedule("""
def f(x, y):
    n, d = x.shape
    for i in range(n):
        for c in range(d):
            y[c] = y[c] + x[i, c]
""")
    done = written.split("i", 3)
    x = torch.randn(10, 4)
    one, other = torch.ones(4), torch.ones(4)
    written.py(x, one)
    done.py(x, other)
    assert torch.allclose(one, other)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("s = s + x[i]\n        y[i] = s", "values of s are used before the loop ends"),
        ("s = s * s + x[i]", "no associative operation"),
        ("y[i] = x[i]", "it carries nothing"),
    ],
)
def test_what_is_no_reduction_is_refused(body: str, why: str) -> None:
    loop = f"    for i in range(x.shape[0]):\n        {body}\n"
    written = weft.schedule(f"def f(x, y, out):\n    s = 0.0\n{loop}    out[0] = s\n")
    with pytest.raises(InapplicableTransform, match="is no reduction") as refused:
        written.split("i", 4)
    assert why in str(refused.value)


def test_forgetting_to_rescale_is_told() -> None:
    text = program("attention").replace("o * torch.exp(m - n) * l / k", "o * l / k")
    with pytest.raises(InapplicableTransform) as refused:
        weft.schedule(text).split("i", 4)
    assert "o is multiplied by l / l', where l*exp(m - m')/l' would keep its earlier terms right" in str(refused.value)
