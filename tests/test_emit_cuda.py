"""The CUDA that calls get, as text: golden files for every kernel of the library and every kind of plan
(`pytest --update-golden`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

import weft
from tests.fuzz_programs import compiled
from weft.cli import arguments
from weft.kernels import LIBRARY
from weft.plan import fold
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine
from weft.pytorch.simulated import simulate_call
from weft.runtime.nvrtc import compile_cubin

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_text_of_a_library_kernel(name: str, golden: Golden) -> None:
    """At its example: rows held in registers, rows in tiles, columns shared by blocks."""
    golden(f"cuda/{name}.cu", LIBRARY[name].source(*arguments(LIBRARY[name], {}), arch="sm_90a"))


@pytest.mark.parametrize(
    "title, name, specs",
    [
        ("softmax_short", "softmax", ("float32[4096,100]",)),  # a row a warp, columns that no vector divides
        ("softmax_long", "softmax", ("bfloat16[512,262144]",)),  # too long to be held
        ("softmax_few_rows", "softmax", ("bfloat16[8,262144]",)),  # which blocks share
        ("cumsum_one_row", "cumsum", ("float16[1,100]",)),
        ("cumsum_by_columns", "cumsum", ("float32[64,262144]:(1,64)",)),  # strided, which blocks share
    ],
)
def test_the_text_of_other_plans(title: str, name: str, specs: tuple[str, ...], golden: Golden) -> None:
    golden(f"cuda/{title}.cu", LIBRARY[name].source(*specs, arch="sm_90a"))


@weft.kernel
def scaled_to_sum_to_one(g):
    s = 0.0
    for i in range(g.shape[0]):
        s = s + g[i]
    for i in range(g.shape[0]):
        g[i] = g[i] / s


@weft.kernel
def prefix_sums(x):
    h = 0.0
    for i in range(x.shape[0]):
        h = h + x[i]
        x[i] = h


@pytest.mark.parametrize("kernel", [scaled_to_sum_to_one, prefix_sums], ids=lambda k: k.name)
def test_the_text_without_rows(kernel: weft.Kernel, golden: Golden) -> None:
    golden(f"cuda/{kernel.name}.cu", kernel.source("float32[100]", arch="sm_90a"))


UPDATES = {
    "sum": "h + x[r, i]",
    "product": "h * x[r, i]",
    "max": "max(h, x[r, i])",
    "min": "min(x[r, i], h)",
    "bits": "h | x[r, i]",
    "affine": "h * x[r, i] + x[r, i]",
    "segmented": "x[r, i] + 0 if x[r, i] > 2 else max(h, x[r, i])",
    "clamp": "min(max(h + x[r, i], 0), 5)",
}


@pytest.mark.parametrize("k, dtype", list(enumerate(["uint8", "int8", "int16", "int32", "int64"])))
def test_integers_are_carried_in_types_that_agree(k: int, dtype: str) -> None:
    """A Python integer, a size and an element as the start, of every algebra: NVRTC takes all of it as one text."""
    starts = ("0", "3", "r + 1", "2 * x[r, 0]")
    text = "def program(x):\n    n, m = x.shape\n    y = torch.zeros(n, 8, dtype=torch.int64)\n    for r in range(n):\n"
    for column, update in enumerate(UPDATES.values()):
        start = starts[(column + k) % 4]
        text += f"        h = {start}\n        for i in range(m):\n            h = {update}\n        y[r, {column}] = h\n"
    kernel = weft.kernel(compiled(text + "    return y\n", f"<integers of {dtype}>"))
    compile_cubin(kernel.source(f"{dtype}[3,40]", arch="sm_90a"), "sm_90a", name="integers.cu")
    if dtype in ("uint8", "int64"):
        report = kernel.check(f"{dtype}[3,40]")
        assert report.ok, report.text()


@pytest.mark.parametrize(
    "condition, function",
    [("i == 0", "math.exp"), ("i <= 0", "math.log"), ("i + 1 == m", "math.sin"), ("k == 0", "0.3 **")],
)
def test_functions_of_what_a_loop_carries_in_some_iterations(condition: str, function: str) -> None:
    """Texts on which NVRTC itself may crash, and the process with it."""
    text = f"""
def program(x, m: int):
    y = torch.zeros(2, dtype=x.dtype)
    s, low = 0.5, 0.0
    for i in range(x.shape[0]):
        k = i - m
        least = min(low, x[i])
        if {condition}:
            s = s * {function}(low - s * least) + x[i]
        low = least
    y[0] = s
    y[1] = low
    return y
"""
    source = weft.kernel(compiled(text, "<some iterations>")).source("float64[9]", 3, arch="sm_90a")
    code = "import sys; from weft.runtime.nvrtc import compile_cubin as c; c(sys.stdin.read(), 'sm_90a', name='text.cu')"
    done = subprocess.run([sys.executable, "-c", code], input=source, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "weft::opaque(i_counter)" in source


@weft.kernel
def sums_between(x, starts, scale):
    """Sums between bounds that data decide, of two arrays as long as each other or not; some bounds count from the end."""
    n, m = len(starts) - 1, x.shape[1]
    y = torch.empty(n, m)
    for s in range(n):
        for d in range(m):
            total = 0.0
            for i in range(starts[s], starts[s + 1]):
                if i % 5 != 3:
                    total += x[i, d] * scale[i]
            y[s, d] = total
    return y


STARTS = [[0, 3, 3, 17, 40, 41, 60], [-7, 5, 2, 20, -60, -50, 60], [59, 60, 0, 60, 60, 0, 1]]


@pytest.mark.parametrize("starts", STARTS)
@pytest.mark.parametrize("longer", [0, 9])
def test_bounds_that_are_inside_are_looked_at_once(starts: list[int], longer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MANY_ROWS", 1)
    for width, line, plan in (12, 1 << 10, ThreadPlan), (16, 32, fold.FoldPlan), (3, 32, fold.FoldPlan):
        monkeypatch.setattr(fold, "SHORTEST_LINE", line)
        args = torch.randn(60, width), torch.tensor(starts), torch.randn(60 + longer)
        found = [type(launch.variant.plan) for launch in examine(sums_between, args).launches()]
        assert {*found} == {plan}
        looked_at_once(*args)


def looked_at_once(*args: torch.Tensor) -> None:
    text = sums_between.source(*args, arch="sm_90a")
    quick = [part.split("else {")[0] for part in text.split("// all subscripts are inside")[1:]]
    assert quick and not any("inside(" in part for part in quick) and "weft::inside(" in text
    report = sums_between.check(*args, seeds=2)
    assert not report.findings and report.ok, str(report)


def test_bounds_that_are_outside_end_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MANY_ROWS", 1)
    args = [torch.randn(60, 7), torch.tensor([0, 61]), torch.randn(60)]
    with pytest.raises(IndexError):
        sums_between.py(*args)
    ran = simulate_call(sums_between.program, args, "sm_90a", 1, "call")
    assert {f.kind for launch in ran.launches for s in launch.simulations for f in s.findings} >= {"trap"}


@weft.kernel
def windows_inside(x, places, stride: int):
    n, many = x.shape[0], places.shape[0]
    y = torch.empty(many)
    for i in range(many):
        s = 0.0
        for a in range(3):
            first = places[i] + a
            if 0 <= first < n:
                s += x[places[i] + a]
            if 0 <= stride * i + a - 1 < n:
                s += x[stride * i + a - 1] * 2
        y[i] = s
    return y


def test_what_a_condition_compares_is_not_looked_at_again() -> None:
    assert "weft::inside(" not in windows_inside.source("float32[700]", "int64[5000]", 2, arch="sm_90a")
    x, places = torch.randn(7), torch.tensor([0, -2, 5, 6, -9, 30])
    report = windows_inside.check(x, places, 2)
    assert not report.findings and report.ok, str(report)
    torch.testing.assert_close(windows_inside(x, places, 2), windows_inside.py(x, places, 2))


@weft.kernel
def doubled_place(x, places):
    n, many = x.shape[0], places.shape[0]
    y = torch.zeros(many)
    for i in range(many):
        first = int(places[i]) + int(places[i])
        if 0 <= first < n:
            y[i] = x[first]
    return y


def test_a_place_that_no_integer_holds_is_none_of_an_array() -> None:
    """What its check takes instead is compared, and read."""
    args = [torch.randn(7), torch.tensor([float(1 << 62), 3.0])]
    ran = simulate_call(doubled_place.program, args, "sm_90a", 1, "call")
    assert {f.kind for launch in ran.launches for s in launch.simulations for f in s.findings} == {"trap"}
