"""Integers that meet elements of float16 and bfloat16: PyTorch rounds them to the half type where the other is an element, and
not where it is a number. Each program here rounds once after that, so that results are the same bits.
"""

from __future__ import annotations

import re

import pytest
import torch

import weft

pytestmark = pytest.mark.usefixtures("quickly_compiled")

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
# Where one of them says it of both: they are told apart by where they round, which is asked of each
A_HALF = pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.long)], ids=str)
SIGNS = ("+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=")
BOTH_WAYS = [f"{a} {sign} {b}" for sign in SIGNS for a, b in (("v", "w[i]"), ("w[i]", "v"))]

X = [3.0, 0.1, -1.0, 2048.0, 258.0, 70000.0, 5.0, -0.1, float("nan")]
W = [70000, 2049, -70000, 257, 3, 1, -2049, 1 << 28, 8]
F = [2049.0, 0.1, 1 / 3, 70000.0, -1e-7, 3.0, 257.0, -0.1, 5.0]


def agree(expressions: list[str], dtype: torch.dtype, before: str = "", made: str = "v = x[i]", after: str = "") -> None:
    """The expressions, stored as halves in each of nine iterations, are what the plain Python stores. before: a statement
    before the loop; made: statements that make v; after: what ends an iteration.
    """
    inside = [*made.split("\n"), *(f"y[i, {k}] = {e}" for k, e in enumerate(expressions)), *after.split("\n")]
    lines = [f"y = torch.zeros(9, {len(expressions)}, dtype=x.dtype)", before, "for i in range(9):"]
    lines += [f"    {line}" for line in inside]
    kernel = weft.kernel("def f(x, w, f):\n" + "".join(f"    {line}\n" for line in [*lines, "return y"] if line.strip()))
    args = torch.tensor(X).to(dtype), torch.tensor(W, dtype=torch.int32), torch.tensor(F)
    want, found = kernel.py(*args), kernel(*args)
    same = (found == want) | (found.isnan() & want.isnan())
    wrong = [f"{expressions[k]} at {i}: {found[i, k].item()}, not {want[i, k].item()}" for i, k in (~same).nonzero().tolist()]
    assert not wrong, "\n".join(wrong)


@HALVES
def test_integers_that_meet_elements_of_a_half_type_are_rounded_to_it(dtype: torch.dtype) -> None:
    """But not what one multiplies or divides by, on a CPU."""
    whole = ["(x / f[i])[i]", "(f[i] < x)[i]"]
    pairs = (("x", "w"), ("x", "w[i]"), ("x[i]", "w"))
    signs = [s for s in SIGNS if s != "//"]  # PyTorch rounds within that of tensors
    whole += [f"({a} {sign} {b})[i]" for sign in signs for pair in pairs for a, b in (pair, pair[::-1])]
    functions = ["torch.maximum(v, w[i])", "torch.fmod(v, w[i])", "torch.remainder(w[i], v)", "torch.where(v > 5, w[i], v)"]
    agree([*BOTH_WAYS, *functions, *whole, "(v if v > 5 else w[i]) < v", "(v if v > 5 else w[i]) + v"], dtype)


NUMBERS = {
    "a float": "v = x[i] if i % 2 else 0.5",
    "one that no half holds": "v = x[i] if i % 2 else 0.1",
    "an int": "v = 3 if i % 2 else x[i]",
    "one that elements choose": "v = x[i] if x[i] > 1 else 0.1",
    "the larger": "v = max(0.1, x[i])",
    "the smaller": "v = min(x[i], 5.5)",
    "one of a branch": "v = x[i]\nif x[i] < 3:\n    v = 0.1",
    "one of three": "v = x[i] if i % 3 == 0 else 0.1 if i % 3 == 1 else 7",
    "computed of one": "v = -max(0.5, x[i])",
    "a float32 that an integer has made of one": "v = (x[i] if i % 2 else 0.1) * (w[i] // w[i])",
    "the larger of what may be one": "v = max(x[i] if i % 2 else 0.1, x[1])",
}


@A_HALF
@pytest.mark.parametrize("made", NUMBERS.values(), ids=NUMBERS)
def test_nothing_is_rounded_for_a_number_in_the_place_of_an_element(made: str, dtype: torch.dtype) -> None:
    """max(0.0, x[i]) * w[i] is 0 of the number 0.0, and not 0 times infinity."""
    agree(BOTH_WAYS, dtype, made=made)


@HALVES
def test_a_float_beside_a_tensor_of_halves_is_not_rounded(dtype: torch.dtype) -> None:
    """PyTorch makes a half of it before it adds; here arithmetic runs in float32."""
    kernel = weft.kernel("def f(x, f):\n    x[:] = x + f[0]\n")
    x, f = torch.tensor([-2048.0, 1.0]).to(dtype), torch.tensor([2049.5, 3.0])
    want = (x.float() + f[0]).to(dtype)
    kernel(x, f)
    assert torch.equal(x, want)


@A_HALF
def test_numbers_and_elements_compare_with_halves_as_what_they_are(dtype: torch.dtype) -> None:
    pairs = (("v", "x[1]"), ("x[7]", "v"), ("v", "0.1"))
    for made in NUMBERS.values():
        agree([f"{a} {sign} {b}" for sign in ("==", "<", ">=") for a, b in pairs], dtype, made=made)


CARRIED = {
    "until the first iteration": ("v = 0.5", "v = x[i]"),
    "until a later one": ("v = 3", "if i == 4:\n    v = x[i]"),
    "again": ("v = x[0]", "v = x[i] if i % 3 else 0.5"),
    "a running maximum": ("v = 0.5", "v = max(v, x[i])"),
}


@A_HALF
@pytest.mark.parametrize(("before", "after"), CARRIED.values(), ids=CARRIED)
def test_a_loop_carries_whether_it_is_a_number(before: str, after: str, dtype: torch.dtype) -> None:
    agree([e for e in BOTH_WAYS if "%" not in e], dtype, before, "u = 1", after)


WIDER = {
    "one that a condition chooses": "v = x[3] if i % 2 else f[i]",
    "one of a branch": "v = f[0]\nif i % 3:\n    v = x[3]",
    "the larger": "v = max(x[3], f[i])",
    "what is not 0": "v = (f[i] * 0.0) or x[3]",
}


@A_HALF
@pytest.mark.parametrize("made", WIDER.values(), ids=WIDER)
def test_an_integer_is_rounded_where_it_meets_a_half_and_not_where_it_meets_a_wider_element(
    made: str, dtype: torch.dtype
) -> None:
    agree(["v - w[1]", "w[6] + v", "v < w[1]", "v + w[i] > w[2]"], dtype, made=made)


@HALVES
def test_a_loop_carries_whether_it_is_a_half(dtype: torch.dtype) -> None:
    agree(["v - w[1]", "w[6] + v"], dtype, "v = f[0]", "u = 1", "v = x[3]")
    agree(["v - w[1]", "w[6] + v"], dtype, "v = x[3]", "u = 1", "v = f[i]")
    agree(["v - w[1]"], dtype, "v = f[1]", "u = 1", "v = max(v, x[i % 4])")


@HALVES
def test_a_loop_carries_an_int_that_becomes_an_element(dtype: torch.dtype) -> None:
    """What meets a half is rounded to it once it is an element."""
    for after in ("s = s ^ w[i]", "s = w[i] + 0", "s = max(s, w[i])"):
        agree(["x[3] - s", "max(-0.5, x[3] - s)"], dtype, "s = 3", "v = x[i]", after)


@HALVES
def test_a_number_after_a_loop_that_did_not_run(dtype: torch.dtype) -> None:
    agree(BOTH_WAYS, dtype, made="v = 0.5\nfor j in range(i % 3, 2):\n    v = x[j]")


@HALVES
def test_who_meets_no_integer_carries_no_more(dtype: torch.dtype) -> None:
    """A running maximum of halves, and a sum of them, are reductions still."""
    kernel = weft.kernel("""
def f(x):
    y = torch.zeros(2)
    m, s = -1e30, 0.0
    for i in range(len(x)):
        if x[i] > m:
            m = x[i]
        s = 0.5 + s + x[i] * 2
    y[0], y[1] = m, s
    return y
""")
    assert re.search(r"\bi +reduction", str(kernel.explain(torch.ones(9, dtype=dtype))))


@HALVES
def test_a_running_maximum_that_an_integer_meets_is_a_scan_still(dtype: torch.dtype) -> None:
    """Beside it the loop carries whether it is the number that it began with."""
    kernel = weft.kernel("""
def f(x, w):
    y = torch.zeros(9)
    m = -1e30
    for i in range(len(x)):
        m = max(m, x[i])
        y[i] = m + w[i]
    return y
""")
    args = torch.ones(9, dtype=dtype), torch.ones(9, dtype=torch.int32)
    assert re.search(r"\bi +scan", str(kernel.explain(*args)))


@weft.kernel
def gathered_where(y, x, k, m):
    for i in range(len(y)):
        if m[i] > 0:
            y[i] = x[k[i]]


@HALVES
def test_halves_that_are_only_moved_are_on_a_gpu_too(dtype: torch.dtype) -> None:
    x, k, m = torch.tensor(X).to(dtype), torch.arange(40) * 7 % 9, torch.arange(40) % 3
    report = gathered_where.check(torch.zeros(40, dtype=dtype), x, k, m)
    assert not report.findings and report.ok, str(report)
    half = str(dtype).removeprefix("torch.")
    text = gathered_where.source(f"{half}[40]", f"{half}[9]", "int64[40]", "int64[40]", arch="sm_90a")
    assert "weft::bits" in text
