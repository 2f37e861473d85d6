"""What the analysis makes of loops: parallel axes, promoted elements, and a verdict with a reason for every loop."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_oracle import replay
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.schedule import Schedule, Verdict
from weft.pytorch.call import argument_types


def rows(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


def scheduled(function: Callable[..., Any], *args: Any) -> Schedule:
    """The schedule for these arguments; that it computes what the Python does is checked on the way."""
    names = [p.name for p in read_signature(function).parameters]
    parsed = parse(function, dict(zip(names, argument_types(read_signature(function), args), strict=True)))
    found = schedule(parsed)
    ours, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    results = replay(parsed, found, ours, random.Random(0))
    expected = function(*theirs)
    expected = expected if isinstance(expected, tuple) else () if expected is None else (expected,)
    for a, b in zip((*results, *ours), (*expected, *theirs), strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
    return found


def verdicts(found: Schedule) -> dict[str, Verdict]:
    return {v.var: v for v in found.loops}


def kinds(found: Schedule) -> dict[str, str]:
    return {v.var: v.kind for v in found.loops}


# ---------------------------------------------------------------- linear recurrences


def linrec_scalar(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


def linrec_commuted(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            t = h * c[r, l]
            h = x[r, l] + t
            y[r, l] = h
    return y


def linrec_memory(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        y[r, 0] = x[r, 0]
        for l in range(1, length):
            y[r, l] = y[r, l - 1] * c[r, l] + x[r, l]
    return y


def linrec_guarded(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for l in range(length):
            if l == 0:
                y[r, l] = x[r, l]
            else:
                y[r, l] = y[r, l - 1] * c[r, l] + x[r, l]
    return y


def linrec_conditional(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for l in range(length):
            y[r, l] = y[r, l - 1] * c[r, l] + x[r, l] if l > 0 else x[r, l]
    return y


def linrec_cloned(x, c):
    rows, length = x.shape
    y = x.clone()
    for r in range(rows):
        for l in range(1, length):
            y[r, l] += c[r, l] * y[r, l - 1]
    return y


def linrec_backwards(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length - 1, -1, -1):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


def linrec_subtracted(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = x[r, l] - (-h) * c[r, l]
            y[r, l] = h
    return y


def moving_average(x, c):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h += c[r, l] * (x[r, l] - h)
            y[r, l] = h
    return y


@pytest.mark.parametrize(
    "function",
    [linrec_scalar, linrec_commuted, linrec_memory, linrec_guarded, linrec_conditional, linrec_cloned, linrec_backwards,
     linrec_subtracted, moving_average],
)  # fmt: skip
def test_linear_recurrences_in_all_spellings_scan_by_affine_composition(function: Callable[..., Any]) -> None:
    found = scheduled(function, rows(3, 7), rows(3, 7))
    assert kinds(found).items() >= {"r": "parallel", "l": "scan"}.items()
    assert verdicts(found)["l"].algebra == ("affine",)
    assert len(found.nests) == 1 and len(found.nests[0].axes) == 1


def test_the_recurrence_over_an_ellipsis_has_its_leading_axis_parallel() -> None:
    def reference(x, c):
        y = torch.empty_like(x)
        y[..., 0] = x[..., 0]
        for l in range(1, x.shape[-1]):
            y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
        return y

    found = scheduled(reference, rows(3, 7), rows(3, 7))
    assert verdicts(found)["l"].kind == "scan" and len(found.nests) == 1
    assert len(found.nests[0].axes) == 1


def test_time_major_rows_are_the_axis_and_time_the_scan() -> None:
    def time_major(x, c):
        length, rows = x.shape
        y = torch.empty_like(x)
        for l in range(1, length):
            for r in range(rows):
                y[l, r] = c[l, r] * y[l - 1, r] + x[l, r]
        return y

    x = rows(7, 3)

    def python(x, c):
        y = torch.zeros_like(x)
        for l in range(1, x.shape[0]):
            y[l] = c[l] * y[l - 1] + x[l]
        return y

    found = scheduled(python, x, x)
    assert verdicts(found)["l"].kind == "scan"
    found = schedule(parse(time_major, dict(zip("xc", argument_types(read_signature(time_major), (x, x)), strict=True))))
    assert [a.var for a in found.nests[0].axes] == ["r"]
    assert kinds(found) == {"l": "scan", "r": "parallel"}
    assert any("interchange" in r for r in verdicts(found)["r"].requires)


# ---------------------------------------------------------------- carried through memory


def test_a_distance_of_two_is_carried_in_two_scalars() -> None:
    def second_order(x):
        rows, length = x.shape
        y = torch.zeros_like(x)
        for r in range(rows):
            for l in range(2, length):
                y[r, l] = 0.5 * y[r, l - 2] + x[r, l]
        return y

    found = scheduled(second_order, rows(2, 9))
    loop = found.nests[0].loops()[0]
    assert len(loop.carries) == 2
    assert verdicts(found)["r"].kind == "parallel"


def test_two_distances_are_two_numbers_that_change_together() -> None:
    def fibonacci(x):
        rows, length = x.shape
        y = torch.zeros_like(x)
        for r in range(rows):
            for l in range(2, length):
                y[r, l] = 0.5 * y[r, l - 1] + 0.3 * y[r, l - 2] + x[r, l]
        return y

    found = verdicts(scheduled(fibonacci, rows(2, 9)))
    assert found["r"].kind == "parallel" and found["l"].kind == "scan"
    assert found["l"].algebra == ("linear",) and len(found["l"].updates[0].names) == 2


def test_a_stencil_in_place_is_sequential_with_a_collision_named() -> None:
    def relax(y):
        rows, length = y.shape
        for r in range(1, rows - 1):
            for l in range(1, length - 1):
                y[r, l] = 0.25 * (y[r - 1, l] + y[r + 1, l] + y[r, l - 1] + y[r, l + 1])

    found = scheduled(relax, rows(5, 6))
    assert not found.nests[-1].axes
    outer = verdicts(found)["r"]
    assert outer.kind == "sequential" and outer.cycle == ("y",)
    assert "r = 1" in outer.why and "r = 2" in outer.why


def test_a_stencil_into_another_array_is_parallel() -> None:
    def smooth(x):
        rows, length = x.shape
        y = torch.zeros_like(x)
        for r in range(1, rows - 1):
            for l in range(1, length - 1):
                y[r, l] = 0.25 * (x[r - 1, l] + x[r + 1, l] + x[r, l - 1] + x[r, l + 1])
        return y

    assert set(kinds(scheduled(smooth, rows(5, 6))).values()) == {"parallel"}


def test_a_wavefront_has_no_parallel_loop() -> None:
    def longest(x):
        rows, length = x.shape
        y = torch.zeros(rows + 1, length + 1, dtype=x.dtype)
        for i in range(rows):
            for j in range(length):
                y[i + 1, j + 1] = max(y[i, j + 1], y[i + 1, j]) + x[i, j]
        return y

    found = verdicts(scheduled(longest, rows(4, 5)))
    assert "parallel" not in {v.kind for v in found.values()}
    assert found["i"].kind == "sequential"


def test_anti_dependences_are_not_crossed() -> None:
    def shift_left(y):
        for i in range(y.shape[0] - 1):
            y[i] = y[i + 1] + 1

    found = scheduled(shift_left, rows(6))
    assert verdicts(found)["i"].requires == ("renaming: y is copied first",)
    assert [len(n.axes) for n in found.nests] == [1, 1]  # the copy is whole before anything is overwritten


def test_a_scatter_through_an_index_adds_up_in_cells() -> None:
    def histogram(x, index):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[index[i]] += x[i]
        return y

    assert kinds(scheduled(histogram, rows(6), torch.tensor([0, 1, 1, 2, 0, 5]))) == {"i": "reduction"}


def test_a_gather_is_parallel() -> None:
    def gather(x, index):
        y = torch.zeros_like(x)
        for i in range(x.shape[0]):
            y[i] = x[index[i]]
        return y

    assert kinds(scheduled(gather, rows(6), torch.tensor([0, 1, 1, 2, 0, 5]))) == {"i": "parallel"}


# ---------------------------------------------------------------- reductions


def reduction(update: str, start: str = "0.0", dtype: torch.dtype = torch.float64) -> Verdict:
    source = f"""
def reduce(x):
    n, m = x.shape
    y = torch.zeros(n, dtype=x.dtype)
    for i in range(n):
        s = {start}
        for j in range(m):
            {update.replace(chr(10), chr(10) + " " * 12)}
        y[i] = s
    return y
"""
    from tests.fuzz_programs import compiled

    scope = compiled(source.replace("def reduce", "def program"), f"<reduce by {update}>")
    x = rows(2, 6) if dtype.is_floating_point else torch.arange(-6, 6, dtype=dtype).reshape(2, 6)
    return verdicts(scheduled(scope, x))["j"]


@pytest.mark.parametrize(
    "update",
    ["s = s + x[i, j]", "s += x[i, j]", "s -= x[i, j]", "s = x[i, j] + s", "t = x[i, j] * 2\ns = s + t",
     "t = s + x[i, j]\ns = t", "if x[i, j] > 0:\n    s = s + x[i, j]", "s = s + x[i, j] if j > 1 else s",
     "s = x[i, j] + (s + 1.0)"],
)  # fmt: skip
def test_sums(update: str) -> None:
    found = reduction(update)
    assert (found.kind, found.algebra) == ("reduction", ("sum",))


@pytest.mark.parametrize("update", ["s = s * x[i, j]", "s *= x[i, j]", "s = x[i, j] * (s * 2.0)", "s = -s", "s = s / x[i, j]"])
def test_products(update: str) -> None:
    found = reduction(update, "1.0")
    assert (found.kind, found.algebra) == ("reduction", ("product",))


@pytest.mark.parametrize(
    ("update", "algebra"),
    [("if x[i, j] > s:\n    s = x[i, j]", "max"), ("s = x[i, j] if x[i, j] > s else s", "max"),
     ("s = max(s, x[i, j])", "max"), ("if s < x[i, j]:\n    s = x[i, j]", "max"), ("s = min(s, x[i, j])", "min"),
     ("t = max(s, x[i, j])\ns = t", "max"), ("t = 2 * x[i, j]\nif t < s:\n    s = t", "min"),
     ("s = s if s < x[i, j] else x[i, j]", None)],
)  # fmt: skip
def test_extrema(update: str, algebra: str | None) -> None:
    found = reduction(update, "-math.inf")
    if algebra is None:
        assert found.kind == "sequential"  # with a NaN it keeps what it meets last: no maximum
    else:
        assert (found.kind, found.algebra) == ("reduction", (algebra,))


def test_the_order_of_max_matters_with_nan_for_floats_and_never_for_integers() -> None:
    assert reduction("s = max(x[i, j], s)", "-math.inf").kind == "sequential"
    assert reduction("s = max(x[i, j], s)", "-100", torch.int64).kind == "reduction"


def test_a_carry_that_starts_anew_within_a_row_is_no_affine_map() -> None:
    """0 * h is NaN for an infinite h, and the program does not compute it: the algebra knows of the start."""
    found = reduction("if x[i, j] > 0:\n    s = x[i, j] * 2\nelse:\n    s = s * 0.5", "-math.inf")
    assert found.algebra == ("segmented product",)
    found = reduction("if x[i, j] > 0:\n    s = x[i, j] * 2\nelse:\n    s = s * 2", "x[i, 0] + 0", torch.int64)
    assert found.kind == "reduction"


def test_an_update_that_is_not_associative_is_sequential_and_named() -> None:
    found = reduction("s = math.tanh(s + x[i, j])")
    assert found.kind == "sequential" and found.cycle == ("s",)


def test_an_update_may_read_what_the_iteration_then_overwrites() -> None:
    def cumulative(z):
        n, m = z.shape
        for i in range(n):
            s = 0.0
            for l in range(m):
                s = s + z[i, l]
                z[i, l] = s

    found = scheduled(cumulative, rows(2, 6))
    assert (verdicts(found)["l"].kind, verdicts(found)["l"].algebra) == ("scan", ("sum",))


def test_softmax_is_one_nest_of_two_reductions_and_a_parallel_loop() -> None:
    def softmax(x):
        n, m = x.shape
        y = torch.empty_like(x)
        for i in range(n):
            top = -math.inf
            for j in range(m):
                top = max(top, x[i, j])
            total = 0.0
            for k in range(m):
                y[i, k] = math.exp(x[i, k] - top)
                total += y[i, k]
            for l in range(m):
                y[i, l] = y[i, l] / total
        return y

    found = scheduled(softmax, rows(3, 5))
    assert kinds(found) == {"i": "parallel", "j": "reduction", "k": "reduction", "l": "parallel"}
    assert len(found.nests) == 1


def test_online_softmax_carries_a_maximum_and_a_sum_that_it_rescales() -> None:
    def online(x):
        n, m = x.shape
        y = torch.zeros(n, dtype=x.dtype)
        for i in range(n):
            top = -math.inf
            total = 0.0
            for j in range(m):
                new = max(top, x[i, j])
                total = total * math.exp(top - new) + math.exp(x[i, j] - new)
                top = new
            y[i] = top + math.log(total)
        return y

    found = verdicts(scheduled(online, rows(3, 5)))["j"]
    assert set(found.algebra) == {"max", "affine"}


def test_accumulation_into_a_cell_becomes_a_scalar() -> None:
    def matrix_vector(x, w):
        n, m = x.shape
        y = torch.zeros(n, dtype=x.dtype)
        for i in range(n):
            for j in range(m):
                y[i] += x[i, j] * w[j]
        return y

    found = scheduled(matrix_vector, rows(3, 5), rows(5))
    assert kinds(found) == {"i": "parallel", "j": "reduction"}
    assert any("scalar replacement of y" in r for r in verdicts(found)["j"].requires)


def test_coupled_carries_are_one_linear_map() -> None:
    def rotate(x):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n):
            a = 0.0
            b = 1.0
            for l in range(m):
                a, b = 0.5 * a - 0.4 * b + x[i, l], 0.4 * a + 0.5 * b
                y[i, l] = a
        return y

    found = verdicts(scheduled(rotate, rows(2, 6)))["l"]
    assert found.kind == "scan" and set(found.updates[0].names) == {"a", "b"}


def test_a_local_state_array_is_private_to_its_row() -> None:
    def states(x):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n):
            state = torch.zeros(3, dtype=x.dtype)
            for l in range(m):
                for k in range(3):
                    state[k] = 0.5 * state[k] + x[i, l]
                y[i, l] = state[0] + state[1] + state[2]
        return y

    found = kinds(scheduled(states, rows(2, 6)))
    assert found["i"] == "parallel" and found["k"] == "parallel"


# ---------------------------------------------------------------- several nests


def test_loops_that_meet_out_of_step_are_not_fused() -> None:
    def shifted(x):
        n = x.shape[0]
        t = torch.zeros_like(x)
        y = torch.zeros_like(x)
        for i in range(n):
            t[i] = 2 * x[i]
        for j in range(n):
            y[j] = t[n - 1 - j]
        return y

    found = scheduled(shifted, rows(6))
    assert len(found.nests) == 2
    assert set(kinds(found).values()) == {"parallel"}
    assert not any("fusion" in r for v in found.loops for r in v.requires)


def test_loops_that_meet_in_step_are_fused() -> None:
    def aligned(x):
        n = x.shape[0]
        t = torch.zeros_like(x)
        y = torch.zeros_like(x)
        for i in range(n):
            t[i] = 2 * x[i]
        for j in range(n):
            y[j] = t[j] + 1
        return y

    found = scheduled(aligned, rows(6))
    assert len(found.nests) == 1
    assert any("fusion" in r for v in found.loops for r in v.requires)


def test_a_total_of_everything_separates_what_needs_it() -> None:
    def centred(x):
        n = x.shape[0]
        y = torch.zeros_like(x)
        s = 0.0
        for i in range(n):
            s += x[i]
        for j in range(n):
            y[j] = x[j] - s
        return y

    found = kinds(scheduled(centred, rows(6)))
    assert found["i"] == "reduction"


def test_negative_and_larger_steps_are_axes() -> None:
    def stepped(x):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n - 1, -1, -2):
            for j in range(1, m, 3):
                y[i, j] = x[i, j] * 2
        return y

    assert set(kinds(scheduled(stepped, rows(5, 8))).values()) == {"parallel"}


def test_a_triangle_has_its_rows_parallel() -> None:
    def triangle(x):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n):
            for j in range(i + 1):
                y[i, j] = x[i, j]
        return y

    assert kinds(scheduled(triangle, rows(4, 4))) == {"i": "parallel", "j": "parallel"}


def test_every_loop_that_must_run_in_order_says_why() -> None:
    def mixed(x, y):
        n = x.shape[0]
        for i in range(1, n):
            y[i] = math.sin(y[i - 1]) + x[i]
        h = 0.0
        for j in range(n):
            h = math.tanh(h + y[j])
        y[0] = h

    for verdict in scheduled(mixed, rows(5), rows(5)).loops:
        assert verdict.kind == "sequential" and verdict.why and verdict.cycle


def test_analyze_takes_a_function_or_its_text() -> None:
    source = "def total(x):\n    y = torch.zeros(1)\n    for i in range(x.shape[0]):\n        y[0] += x[i]\n    return y\n"
    found = weft.analyze(source)
    assert found.loops["i"].kind == "reduction"
    assert weft.analyze(linrec_scalar).loops["l"].kind == "scan"
