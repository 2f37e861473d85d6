"""Maxima and minima however they are spelled: which operand Python takes of equals, of zeros of two signs and of NaN."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.fuzz_programs import compiled
from tests.gradients import assert_same_derivatives
from tests.test_cells import kinds
from weft.pytorch.simulated import simulate_call

pytestmark = pytest.mark.usefixtures("quickly_compiled")

VALUES = (-0.0, 0.0, math.nan, math.inf, -math.inf, 1.0, -1.0)
SPELLINGS = [f"{x} if a {test} b else {y}" for test in (">", ">=", "<", "<=") for x, y in (("a", "b"), ("b", "a"))]
SPELLINGS += ["max(a, b)", "min(a, b)", "max(b, a)", "min(b, a)"]
# Those that keep the state where the element is a NaN: the others run in order.
KEEPING = {"b if a < b else a", "b if a <= b else a", "b if a > b else a", "b if a >= b else a", "max(a, b)", "min(a, b)"}


def identical(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal, NaN to NaN and each zero to its own sign."""
    same = (found == wanted) & (torch.signbit(found) == torch.signbit(wanted)) | (found.isnan() & wanted.isnan())
    return bool(same.all())


def text(body: str, spelled: str) -> str:
    a, b = ("h", "x[r, i]") if "h = " in body else ("a[i]", "b[i]")
    words = [{"a": a, "b": b}.get(w, w) for w in spelled.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()]
    return body.replace("CHOSEN", " ".join(words))


ELEMENTS = """
def program(a: torch.Tensor, b: torch.Tensor):
    y = torch.empty_like(a)
    for i in range(a.shape[0]):
        y[i] = CHOSEN
    return y
"""

LAST = """
def program(x, first):
    rows, n = x.shape
    y = torch.empty_like(first)
    for r in range(rows):
        h = first[r]
        for i in range(n):
            h = CHOSEN
        y[r] = h
    return y
"""

EVERY = """
def program(x, first):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = first[r]
        for i in range(n):
            h = CHOSEN
            y[r, i] = h
    return y
"""


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_of_two_elements_python_s_choice_is_taken(spelled: str, dtype: torch.dtype) -> None:
    function = compiled(text(ELEMENTS, spelled), f"<elements {spelled}>")
    a, b = (torch.tensor(v, dtype=dtype) for v in zip(*itertools.product(VALUES, VALUES), strict=True))
    kernel = weft.kernel(function)
    assert identical(kernel(a, b), function(a, b))
    if dtype == torch.float32:
        run = simulate_call(kernel, [a.clone(), b.clone()], "sm_90a", 0, "forward")
        assert identical(run.arrays["y"], function(a, b))


@pytest.mark.parametrize("bound", ["0.0", "-0.0", "1.0", "math.nan", "math.inf"])
@pytest.mark.parametrize("test", [">", ">=", "<", "<="])
def test_so_it_is_beside_a_constant(test: str, bound: str) -> None:
    for x, y in (("a[i]", bound), (bound, "a[i]")):
        source = ELEMENTS.replace("CHOSEN", f"{x} if a[i] {test} {bound} else {y}").replace(", b: torch.Tensor", "")
        function = compiled(source, f"<{x} {test} {y} {bound}>")
        a = torch.tensor(VALUES)
        assert identical(weft.kernel(function)(a), function(a))


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("body", [LAST, EVERY], ids=["last", "every"])
def test_of_a_state_and_elements_too(body: str, spelled: str) -> None:
    """All sequences of four values, from each value."""
    function = compiled(text(body, spelled), f"<{spelled} {len(body)}>")
    some = (-0.0, math.nan, math.inf, 1.0, -1.0)
    rows = torch.tensor(list(itertools.product(some, repeat=4)))
    x, first = rows[:, 1:].contiguous(), rows[:, 0].contiguous()
    torch.testing.assert_close(weft.kernel(function)(x, first), function(x, first), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_which_run_in_any_order(spelled: str) -> None:
    floats = (torch.ones(2, 3), torch.ones(2))
    function = compiled(text(EVERY, spelled), f"<kinds {spelled}>")
    assert kinds(function, *floats)["i"] == ("scan" if spelled in KEEPING else "sequential")
    assert kinds(function, *(t.int() for t in floats))["i"] == "scan"


@given(
    st.lists(st.sampled_from(VALUES), min_size=40, max_size=80),
    st.sampled_from(SPELLINGS),
    st.sampled_from([LAST, EVERY]),
)
def test_long_sequences(values: list[float], spelled: str, body: str) -> None:
    function = compiled(text(body, spelled), f"<long {spelled} {len(body)}>")
    x = torch.tensor(values)[None]
    torch.testing.assert_close(
        weft.kernel(function)(x[:, 1:], x[:, 0]), function(x[:, 1:], x[:, 0]), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("spelled", ["torch.amax(x[r])", "torch.amin(x[r])", "torch.max(x[r])", "x[r].min()"])
def test_the_gradient_of_reductions_of_nan(spelled: str) -> None:
    """All elements have a NaN of amax; those of max that are NaN share it."""
    source = f"""
def program(x):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for r in range(x.shape[0]):
        y[r] = {spelled}
    return y
"""
    rows = torch.tensor(list(itertools.product((1.0, 2.0, math.nan), repeat=3)), dtype=torch.float64)
    assert_same_derivatives(weft.kernel(compiled(source, f"<reduction {spelled}>")), rows)


@weft.kernel
def partly_relative(x, mask):
    rows, n = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = -math.inf
        for j in range(n):
            m = max(m, x[r, j])
        shift = m if mask[r] else 0.0
        total = 0.0
        for j in range(n):
            total += torch.exp(x[r, j] - m)
        for j in range(n):
            y[r, j] = torch.exp(x[r, j] - shift) / total
    return y


def test_a_maximum_that_cancels_in_some_rows_alone() -> None:
    """Where something else stands in its place, the result changes with it: its gradient goes on to the largest element."""
    x = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.tensor([True, False, True, False])
    largest = x.amax(1, keepdim=True)
    shift = torch.where(mask[:, None], largest, 0.0)
    expected = (x - shift).exp() / (x - largest).exp().sum(1, keepdim=True)
    found, wanted = (torch.autograd.grad(y.sin().sum(), x, retain_graph=True)[0] for y in (partly_relative(x, mask), expected))
    torch.testing.assert_close(found, wanted)
