"""Wavefronts: which two loops in order are some, by which slope, and that their kernels compute what the Python does."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import weft
from tests.kernels_of_wavefronts import CASES, backwards, leaning, solved, warped, whole_row_before
from tests.suites.classify import SUITES
from weft.compiler import unused
from weft.language import infer_types, parse
from weft.loops.analyze import schedule
from weft.loops.ir import For
from weft.loops.wavefronts import Wavefront, wavefront_of
from weft.plan import wavefront as plans
from weft.plan.wavefront import WavefrontPlan
from weft.pytorch.inspection import examine


def found(source: Any) -> list[Wavefront]:
    own = schedule(parse(source, infer_types(source)))
    made = (wavefront_of(own.function, n, s) for n in own.nests for s in n.body if isinstance(s, For))
    return [w for w in made if w is not None]


def told(w: Wavefront) -> tuple[str, str, int, set[tuple[int | None, int | None]]]:
    return w.rows, w.points, w.slope, {(d.rows, d.points) for d in w.dependences}


# ---------------------------------------------------------------- which loops are wavefronts


def test_the_slope_is_the_least_by_which_all_dependences_advance() -> None:
    assert [told(w) for w in found(warped.py)] == [("i", "j", 1, {(1, 1), (1, 0), (0, 1)})]
    assert [told(w) for w in found(leaning.py)] == [("i", "j", 2, {(1, -1), (0, 1)})]
    assert [told(w) for w in found(backwards.py)] == [("i", "j", 1, {(1, 0), (1, 1), (0, 1)})]
    assert [told(w) for w in found(solved.py)] == [("i", "j", 1, {(None, None), (0, 1)})]


def test_rows_that_need_the_end_of_the_row_before_are_none() -> None:
    assert not found(whole_row_before.py)


def test_wavefronts_of_the_suites() -> None:
    """What two loops in order are run as one; the list may only grow."""
    names = {name for suite in SUITES for name, case in SUITES[suite].items() if found(case.function)}
    assert names >= {"s2111", "ludcmp", "trisolv", "nussinov", "seidel_2d"}


# ---------------------------------------------------------------- how they are planned


def test_blocks_share_the_strips_of_items() -> None:
    launches = examine(warped, ("float32[64,1024,1024]",)).launches()
    (plan,) = [one for one in launches if isinstance(one.variant.plan, WavefrontPlan)]
    assert plan.grid == (64, 8, 1) and plan.together
    launches = examine(warped, ("float32[1000,256,1024]",)).launches()
    (plan,) = [one for one in launches if isinstance(one.variant.plan, WavefrontPlan)]
    assert plan.grid == (1000, 1, 1) and not plan.together


def test_explain_tells_the_skewing_and_the_dependences() -> None:
    examined = examine(warped, ("float32[64,1024,1024]",))
    text = str(warped.explain("float32[64,1024,1024]", detail=True))
    assert "skewed by (1, 1): point (i, j) happens at step i + j" in " ".join(text.split())
    assert not [u for one in examined.launches() for u in unused(one, examined.names)]


# ---------------------------------------------------------------- what their kernels compute


@pytest.fixture
def strips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are several strips."""
    monkeypatch.setattr(plans, "STRIP", 32)
    monkeypatch.setattr(plans, "STEP_SECONDS", 1e-9)


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_the_python_does(name: str) -> None:
    torch.manual_seed(0)
    kernel, make = CASES[name]
    report = kernel.check(*make())
    assert report.ok, report


@pytest.mark.usefixtures("strips")
def test_gradients_are_wavefronts_backwards() -> None:
    torch.manual_seed(0)
    report = warped.check(torch.rand(1, 40, 35), gradients=True)
    assert report.ok, report


@pytest.mark.gpu
@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("name", CASES)
def test_blocks_wait_for_each_other_on_the_gpu(name: str) -> None:
    """In memory that held other words before."""
    torch.manual_seed(0)
    kernel, make = CASES[name]
    args = make()

    def made(device: str) -> list[Any]:
        own = [a.to(device, copy=True) if isinstance(a, torch.Tensor) else a for a in args]
        return [kernel(*own), *own]

    want = made("cpu")
    for _ in range(3):
        torch.full((1 << 20,), -1, dtype=torch.int64, device="cuda")
        for a, b in zip(made("cuda"), want, strict=True):
            assert b is None or isinstance(b, int) or torch.allclose(a.cpu(), b)


_POINT = "y[i, j] = max({first}, {second}) * 0.5 + x[i, j]"


@pytest.mark.usefixtures("strips")
@pytest.mark.parametrize("seed", range(4))
def test_random_dependences(seed: int) -> None:
    """Whatever is found to be a wavefront gives what the Python does; what leads backwards is of the row before."""
    draw = random.Random(seed)
    before = f"y[i - {draw.choice((1, 1, 2))}, j + {draw.randint(-2, 3)}]"
    later = draw.choice((f"y[i, j - {draw.choice((1, 2))}]", f"y[i + 1, j + {draw.randint(-2, 2)}] - y[i, j - 1]"))
    inner = draw.choice(("range(3, m - 3)", "range(3, i)", "range(m - 4, 2, -1)"))
    text = f"""
def program(x, y):
    n, m = x.shape
    for i in range(2, n - 1):
        for j in {inner}:
            {_POINT.format(first=before, second=later)}
    return y
"""
    report = weft.kernel(text).check(torch.rand(66, 66), torch.rand(66, 66))
    assert report.ok, (text, report)
