"""Nests without a parallel axis on a GPU: one team does all the work. Executed by the simulator, values and races."""

from __future__ import annotations

import math
from textwrap import dedent, indent
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from weft.check.report import Report
from weft.plan.scan import ScanPlan
from weft.pytorch.inspection import examine
from weft.runtime.nvrtc import compile_cubin

# The states of a loop over i, one of every algebra: (before the loop, in the loop). `h` is what it gives.
STATES: dict[str, tuple[str, str]] = {
    "sum": ("h = 0.0", "h = h + x[i]"),
    "sum from 5": ("h = 5.0", "h = h + x[i]"),
    "product": ("h = 1.0", "h = h * c[i]"),
    "max": ("h = -math.inf", "h = max(h, 1.0 * x[i])"),
    "min from 0": ("h = 0.0", "h = min(h, 1.0 * x[i])"),
    "maximum": ("h = 2.0 * x[0]", "h = torch.maximum(h, 2.0 * x[i])"),
    "affine": ("h = 0.0", "h = 0.5 * c[i] * h + x[i]"),
    "two sums": ("h = 0.0\ng = 0.0", "g = g + x[i] * x[i]\nh = h + g * c[i]"),
    "linear": ("h = 0.0\ng = 0.0", "g, h = h, 0.5 * h - 0.25 * g + x[i]"),
    "select": ("h = 0.0", "if x[i] > 0.5:\n    h = c[i]"),
    "segmented": ("h = 0.0", "h = 2.0 * x[i] if c[i] > 0.9 else h + x[i]"),
    "clamp": ("h = 0.0", "h = min(max(h + x[i], -1.0), 1.0)"),
    "argmax": ("h = -1\nm = -math.inf", "v = 2.0 * x[i]\nif v > m:\n    m = v\n    h = i"),
    "count": ("h = 0", "h = h + 1 if x[i] > 0.0 else h"),
    "conjunction": ("h = True", "h = h and x[i] > -2.0"),
    "softmax": ("m = -math.inf\nh = 0.0", "v = 1.0 * x[i]\nn = max(m, v)\nh = h * torch.exp(m - n) + torch.exp(v - n)\nm = n"),
}
FORMS = {
    "reduction": """
        def program(x: torch.Tensor, c: torch.Tensor):
            y = torch.zeros(1)
            {before}
            for i in range(x.shape[0]):
                {each}
            y[0] = h
            return y
        """,
    "added": """
        def program(x: torch.Tensor, c: torch.Tensor, y):
            {before}
            for i in range(x.shape[0]):
                {each}
            y[0] += h
        """,
    "scan": """
        def program(x: torch.Tensor, c: torch.Tensor):
            y = torch.empty(x.shape[0])
            {before}
            for i in range(x.shape[0]):
                {each}
                y[i] = h
            return y
        """,
    "scan in place": """
        def program(x: torch.Tensor, c: torch.Tensor):
            {before}
            for i in range(x.shape[0]):
                {each}
                x[i] = h
        """,
    "from the end": """
        def program(x: torch.Tensor, c: torch.Tensor):
            {before}
            for i in range(x.shape[0] - 1, -1, -1):
                {each}
                x[i] = h
        """,
    "then an update in place": """
        def program(x: torch.Tensor, c: torch.Tensor):
            {before}
            for i in range(x.shape[0]):
                {each}
            for i in range(x.shape[0]):
                x[i] = x[i] - h
        """,
}


def kernel_of(form: str, state: str) -> weft.Kernel:
    before, each = STATES[state]
    text = dedent(FORMS[form])
    for name, lines in (("before", before), ("each", each)):
        margin = next(line for line in text.splitlines() if f"{{{name}}}" in line).split("{")[0]
        text = text.replace(f"{margin}{{{name}}}", indent(lines, margin))
    return weft.kernel(compiled(text, f"<{form} {state}>"))


def vectors(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """x of either sign, c about 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, generator=generator), 0.9 + 0.2 * torch.rand(n, generator=generator)


def checked(kernel: weft.Kernel, *args: Any, **options: Any) -> None:
    report: Report = kernel.check(*args, **options)
    assert report.ok, report.text()


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_found_in_one_row(state: str) -> None:
    """A reduction held in registers; a scan in place, tile after tile, by eight warps."""
    checked(kernel_of("reduction", state), *vectors(100))
    checked(kernel_of("scan in place", state), *vectors(4099))


@pytest.mark.parametrize("state", ["affine", "select", "argmax"])
@pytest.mark.parametrize("n", [31, 513])
def test_nothing_is_found_in_a_row_of_one_tile(state: str, n: int) -> None:
    """By a warp and by four, which hand over a state of one number and of several alike, whatever joins them."""
    checked(kernel_of("scan in place", state), *vectors(n))


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_found_in_any_form(form: str) -> None:
    for state in ("sum from 5", "affine"):
        kernel = kernel_of(form, state)
        for n in (66, 2050):
            x, c = vectors(n)
            checked(kernel, *[x, c, torch.tensor([0.25])][: len(kernel.signature.parameters)])


@pytest.mark.parametrize("form", ["reduction", "scan", "then an update in place"])
def test_nothing_is_found_in_a_long_row(form: str) -> None:
    checked(kernel_of(form, "sum"), *vectors(70_000))


def test_nothing_is_found_in_other_orders_of_the_threads() -> None:
    for form in ("scan", "scan in place"):
        checked(kernel_of(form, "affine"), *vectors(200), seeds=5)


def test_an_empty_row() -> None:
    for form in FORMS:
        kernel = kernel_of(form, "sum from 5")
        x, c = vectors(0)
        checked(kernel, *[x, c, torch.tensor([0.25])][: len(kernel.signature.parameters)])


@weft.kernel
def prefix_sums(x):
    y = torch.empty_like(x)
    h = 0.0
    for i in range(x.shape[0]):
        h = h + x[i]
        y[i] = h
    return y


@weft.kernel
def softmax(x):
    y = torch.empty_like(x)
    largest = -math.inf
    total = 0.0
    for i in range(x.shape[0]):
        largest = max(largest, x[i])
    for i in range(x.shape[0]):
        total = total + torch.exp(x[i] - largest)
    for i in range(x.shape[0]):
        y[i] = torch.exp(x[i] - largest) / total
    return y


@weft.kernel
def squared_norm(x):
    y = torch.empty(1)
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i] * x[i]
    y[0] = s
    return y


@pytest.mark.parametrize("kernel", [prefix_sums, softmax, squared_norm], ids=lambda k: k.name)
def test_nothing_is_found_in_gradients_of_one_row(kernel: weft.Kernel) -> None:
    for n in (5, 1000):
        checked(kernel, vectors(n)[0], gradients=True)


@weft.kernel
def scaled_to_sum_to_one(g):
    s = 0.0
    for i in range(g.shape[0]):
        s = s + g[i]
    for i in range(g.shape[0]):
        g[i] = g[i] / s


def test_a_row_held_in_registers_is_updated_in_place() -> None:
    for n in (100, 32_768):
        checked(scaled_to_sum_to_one, vectors(n)[1])
    compile_cubin(scaled_to_sum_to_one.source("float32[100]", arch="sm_90a"), "sm_90a", name="g.cu")


@pytest.mark.parametrize("n, threads", [(1, 1), (512, 32), (513, 64), (2048, 128), (4096, 256), (16_000, 256)])
def test_one_team_works_on_a_row(n: int, threads: int) -> None:
    """Whatever the length: a second team would do the same work again, and race with the first."""
    for form in ("scan", "scan in place"):
        (launch,) = examine(kernel_of(form, "sum"), vectors(n)).launches()
        assert isinstance(launch.variant.plan, ScanPlan)
        assert (launch.grid, launch.block) == ((1, 1, 1), (threads, 1, 1))


@weft.kernel
def sums_of_chosen(x, p):
    s = 0.0
    y = torch.ones_like(x)
    for i in range(len(x)):
        s += x[p[i]]
        y[i] = y[i] + s
    return y


def test_a_row_without_others_has_a_block_for_itself() -> None:
    report = sums_of_chosen.check(torch.randn(20), torch.randperm(20))
    assert report.ok, report.text()
