"""A verdict is a promise: loops that could run in parallel and do not are told, by `explain` and by a warning at the call."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests.parallelism import lines, whole
from weft.compiler import Unused, unused
from weft.pytorch.executable import adjoint_of
from weft.pytorch.inspection import examine
from weft.pytorch.telling import tell_unused

GOLDEN = Path(__file__).parent / "golden" / "parallelism.txt"


@weft.kernel
def relaxed(x, steps):
    """Only the data tell how many steps there are, so no step is a launch of its own."""
    y = x.clone()
    for t in range(int(steps[0])):  # noqa: B007 - its name is told
        for i in range(1, len(x) - 1):
            x[i] = 0.5 * (y[i - 1] + y[i + 1])
        y[:] = x


@weft.kernel
def filtered(x):
    """Loops of a few constant iterations are no parallelism to speak of."""
    n, m = x.shape
    y = torch.zeros_like(x)
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            s = 0.0
            for k in range(-1, 2):
                for e in range(-1, 2):
                    s += x[i + k, j + e] * x[i, j]
            y[i, j] = s
    return y


@weft.kernel
def totals(x):
    """A thread for each row, of which there are enough, does as well as many."""
    y = torch.empty(x.shape[0])
    for i in range(x.shape[0]):
        s = 0.0
        for j in range(x.shape[1]):
            s += x[i, j]
        y[i] = s
    return y


def left(kernel: Any, *args: Any) -> list[Unused]:
    found = examine(kernel, args)
    return [u for launch in found.launches() for u in unused(launch, found.names)]


def test_what_is_inside_a_loop_in_order_is_left_in_order() -> None:
    found = {u.name: u for u in left(relaxed, "float32[5000]", "int64[1]")}
    assert {u.loop.kind for u in found.values()} == {"parallel"}
    u = found["i"]
    assert u.why == "loop t around it runs in order"
    assert u.where is not None and "for t" in u.where.text()
    assert u.remedy == "write what is inside t as a kernel of its own, and call it for each t"


def test_what_is_small_and_what_would_be_no_faster_is_not_told() -> None:
    assert left(relaxed, "float32[20]", "int64[1]") == []
    assert left(filtered, "float32[500,500]") == []
    assert left(totals, "float32[1000000,50]") == []
    assert left(totals, "float32[100,5000]") == []


def test_explain_lists_it() -> None:
    line = relaxed.py.__code__.co_firstlineno + 5
    text = relaxed.explain("float32[5000]", "int64[1]")
    assert f"unused parallelism: i (test_parallelism.py:{line}), parallel, runs in order inside a thread: loop t" in text
    assert "; remedy: write what is inside t as a kernel" in text
    detail = relaxed.explain("float32[5000]", "int64[1]", detail=True)
    assert "\nUnused parallelism\n" in detail
    assert "unused parallelism: i" in relaxed.explain("float32[5000]", "int64[1]", format="html")
    assert "unused" not in totals.explain("float32[100,5000]").lower()


def told(meaning: str, found: list[Unused], known: set[Any]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tell_unused(meaning, found, None, known)
    return caught


def test_each_loop_is_warned_of_once_at_its_line() -> None:
    found = [u for u in left(relaxed, "float32[5000]", "int64[1]") if u.name == "i"]
    known: set[Any] = set()
    (warning,) = told("relaxed", found, known)
    assert told("relaxed", found, known) == []
    assert warning.category is weft.PerformanceWarning
    assert (warning.filename, warning.lineno) == (__file__, relaxed.py.__code__.co_firstlineno + 5)
    assert str(warning.message).startswith("relaxed leaves loop i (parallel) in order inside a thread: loop t around it")


def test_a_gradient_is_called_one() -> None:
    adjoint = adjoint_of(totals.program, tuple(examine_types(totals, torch.zeros(3, 3))), ("x",))
    assert adjoint.meaning == "the gradient of totals"


@weft.kernel
def beside_the_first(x, w):
    n, m = x.shape
    y = torch.zeros_like(x)
    for r in range(1, n):
        for i in range(m):
            s = -4.0
            for a in range(w.shape[0]):
                s = torch.maximum(x[r, i] * a, s * w[a])
            if w.shape[0] > 0:
                y[0, 0] += s
        for i in range(m):
            y[r, i] += x[r, i]
    return y


def test_a_nest_of_one_thread_is_told_as_such() -> None:
    found = left(beside_the_first, "float32[17,40]", "float32[1]")
    assert any("has threads for its iterations" in u.why for u in found)


def examine_types(kernel: Any, *args: Any) -> Any:
    from weft.pytorch.call import argument_types

    return argument_types(kernel.signature, args)


def test_the_parallelism_that_programs_use_grows(request: pytest.FixtureRequest) -> None:
    found = lines()
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text("".join(f"{line}\n" for line in found))
    kept = GOLDEN.read_text().split("\n")[:-1]
    assert not whole(kept) - whole(found), "these used all of it"


@pytest.mark.gpu
def test_a_call_on_a_gpu_warns_once() -> None:
    kernel = weft.kernel(relaxed.py)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (5000, 6000):
            kernel(torch.zeros(n, device="cuda"), torch.tensor([10], device="cuda"))
    assert [w.lineno for w in caught if issubclass(w.category, weft.PerformanceWarning)].count(
        relaxed.py.__code__.co_firstlineno + 5
    ) == 1
