"""Loops that stay in order around parallel ones: what they are taken apart into, and what the launches of their steps give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels_of_steps import (
    CASES,
    back_and_forth,
    elimination,
    floyd_warshall,
    jacobi,
    nested,
    own_arrays,
    power_iteration,
    recurrent,
    scaled_rows,
    there_and_back,
    viterbi,
)
from weft.compiler import Launch, planning
from weft.compiler.points import most_points
from weft.loops.affine import evaluate
from weft.loops.intervals import bounds, farthest_apart
from weft.loops.ir import Const, Op, Ref
from weft.loops.types import INT64
from weft.plan.fold import FoldPlan
from weft.plan.threads import ThreadPlan
from weft.pytorch import simulated
from weft.pytorch.inspection import examine

Golden = Callable[[str, str], None]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are launches of their own, however small they are."""
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1e12)


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(kernel, args).launches()


def stepped(kernel: Any, *args: Any) -> list[tuple[str, ...]]:
    """The loops around each launch, by their variables."""
    return [tuple(a.var for a in one.steps) for one in launches(kernel, *args)]


# ---------------------------------------------------------------- which steps are launches


def test_steps_of_a_large_grid_are_launches() -> None:
    found = launches(jacobi, "float32[2048,2048]", 100)
    assert [[a.var for a in one.steps] for one in found] == [[], ["_"], ["_"]]
    assert all(one.grid[0] * one.block[0] * one.block[1] > 100_000 for one in found[1:])


def test_what_is_small_or_runs_in_enough_threads_is_one_launch() -> None:
    assert ("_",) not in stepped(jacobi, "float32[4,4]", 100)
    assert stepped(recurrent, "float32[1000000,64,4]", "float32[4,4]") == [()]
    assert stepped(recurrent, "float32[4,64,512]", "float32[512,512]") == [("t",)]


def test_threads_share_the_loops_of_a_row_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the pivot's column, it, and after it: a launch for the rows above the pivot's, one for it, one for those below."""
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1.0)
    inside = [one for one in launches(floyd_warshall, "float32[1024,1024]") if one.steps]
    assert [(type(one.variant.plan), one.variant.plan.shared) for one in inside] == [(ThreadPlan, True)] * 3
    assert "unused parallelism" not in floyd_warshall.explain("float32[1024,1024]")
    negative = torch.rand(17, 17)
    negative[3, 3] = negative[5, 5] = -0.25  # the pivot's row and column change in their step
    for kernel, args in ((floyd_warshall, (negative,)), (scaled_rows, (torch.rand(3, 700),))):
        report = kernel.check(*args)
        assert any(getattr(one.variant.plan, "shared", False) for one in launches(kernel, *args))
        assert not report.findings and report.ok, report.text()


def test_ends_of_windows_move_together() -> None:
    """Whatever the element, two windows of three places that begin two apart have it."""
    element = Ref("e", INT64)
    past = [Op("add", (Op("floordiv", (e, Const(2, INT64)), INT64), Const(1, INT64)), INT64)
            for e in (Op("sub", (element, Const(3, INT64)), INT64), element)]  # fmt: skip
    low, high = Op("max", (Const(0, INT64), past[0]), INT64), Op("min", (Ref("n", INT64), past[1]), INT64)
    ends = [(max(0, (e - 3) // 2 + 1), min(50, e // 2 + 1)) for e in range(101)]
    assert farthest_apart(low, high, {"n": 50}, {"e": (0, 100)}) == max(b - a for a, b in ends) == 2


def test_the_verdicts_stay() -> None:
    text = jacobi.explain("float32[2048,2048]", 100)
    assert "_      sequential" in text or "_    sequential" in text
    assert "once for each _" in text and "unused parallelism" not in text


def test_a_branch_that_the_steps_decide_is_no_launch_where_it_is_not_taken() -> None:
    found = [one for one in launches(back_and_forth, "float32[2048,2048]", 5) if one.steps]
    held = [[one.when[0].holds({"t": t}) for t in range(5)] for one in found]
    assert held == [[True, False, True, False, True], [False, True, False, True, False]]
    assert "once for each t with t % 2 == 0" in back_and_forth.explain("float32[2048,2048]", 5)


def test_a_step_reads_what_lies_in_memory_before_it_stores_there(always: None) -> None:
    """Its passes took what a step stores later for what it reads, if no one has that array in the end."""
    import weft

    @weft.kernel
    def taken_once(x, at):
        rows, length = x.shape
        left = torch.empty_like(x)
        for r in range(rows):
            for j in range(length):
                left[r, j] = x[r, j]
        y = torch.empty(len(at), length)
        for n in range(len(at)):
            s = 0.0
            for j in range(length):
                s += left[at[n], j] * left[at[n], j]
            for j in range(length):
                y[n, j] = left[at[n], j] / (s + 1)
                left[at[n], j] = 0.0
        return y

    report = taken_once.check(torch.rand(4, 9) + 1, torch.tensor([2, 0, 2, 3]))
    assert report.ok, report.text()
    assert any(loop for loop in stepped(taken_once, "float32[4,9]", "int64[4]"))


def test_branches_of_many_steps_are_known_by_their_period() -> None:
    (even, odd) = [one for one in launches(back_and_forth, "float32[2048,2048]", 10_000_001) if one.steps]
    assert (len(even.when[0].taken), len(odd.when[0].taken)) == (2, 2)
    assert [even.when[0].holds({"t": t}) for t in (0, 1, 10_000_000)] == [True, False, True]


def test_several_loops_may_decide_a_branch(always: None) -> None:
    import weft

    @weft.kernel
    def chequered(u, rounds: int, steps: int):
        a = u.clone()
        b = u.clone()
        for r in range(rounds):
            for t in range(1, steps):
                if (r + t) % 2 == 0 or t == 3:
                    for i in range(1, len(u) - 1):
                        b[i] = 0.5 * (a[i - 1] + a[i + 1])
                else:
                    for i in range(1, len(u) - 1):
                        a[i] = 0.5 * (b[i - 1] + b[i + 1]) + r
        return a

    args = (torch.rand(30), 3, 6)
    assert any(len(one.when[0].turns) == 2 for one in launches(chequered, *args) if one.when)
    report = chequered.check(*args)
    assert report.ok, report.text()


def test_reductions_inside_of_a_step_have_threads_that_share_them() -> None:
    found = launches(power_iteration, "float32[4096,4096]", "float32[4096]", 10)
    inside = [one for one in found if one.steps]
    assert inside and not any(isinstance(one.variant.plan, ThreadPlan) for one in inside)


def test_what_an_iteration_makes_for_others_is_stored_where_that_frees_its_loop() -> None:
    assert {*stepped(there_and_back, "float32[2000,2000]", "float32[2000]", 10)} == {(), ("t",)}


def test_a_loop_that_may_end_early_is_repeated_where_a_step_is_much() -> None:
    import weft

    @weft.kernel
    def converging(x, most: int):
        y = x.clone()
        for t in range(most):  # noqa: B007 - its name is told
            change = 0.0
            for i in range(len(x)):
                z = 0.5 * y[i] + x[i]
                change = max(change, abs(z - y[i]))
                y[i] = z
            if change < 0.001:
                break
        return y

    assert ("t",) not in stepped(converging, "float32[100]", 100_000)
    assert ("t",) in stepped(converging, "float32[1000000]", 1000)


def test_what_fails_beside_an_empty_loop_still_does() -> None:
    """As an axis of a launch, a loop without iterations in some step would leave out what stands before it there."""
    import weft

    @weft.kernel
    def beside(x, idx, first: int):
        y = torch.zeros(len(x) + 1)
        z = torch.zeros(len(x) + 1)
        for t in range(first, len(idx)):
            s = x[idx[t]]
            for j in range(t):
                z[j + 1] = 0.5 * y[j] + s
            for j in range(t):
                y[j] = z[j]
        return y

    assert {*stepped(beside, "float32[100000]", "int64[100000]", 1)} == {("t",)}
    assert stepped(beside, "float32[100000]", "int64[100000]", 0) == [()]


def test_steps_have_names_of_any_alphabet() -> None:
    import weft

    @weft.kernel
    def diffusion(u, étapes: int):
        a = u.clone()
        b = u.clone()
        for τ in range(étapes):
            for ι in range(1, len(u) - 1):
                b[ι] = 0.5 * (a[ι - 1] + a[ι + 1]) + τ
            for ι in range(1, len(u) - 1):
                a[ι] = b[ι]
        return a

    inside = [one for one in launches(diffusion, "float32[1000000]", 10) if one.steps]
    assert len(inside) == 2 and all(one.grid[0] > 100 for one in inside)


def test_grids_hold_the_largest_of_the_steps() -> None:
    (first, *_) = [one for one in launches(elimination, "float32[3000,3000]") if one.steps]
    assert first.where is not None and first.where.ranges["k"] == (0, 2999)


def test_loops_whose_number_of_steps_data_decide_stay_whole() -> None:
    import weft

    @weft.kernel
    def until(x, steps):
        y = x.clone()
        for _ in range(int(steps[0])):
            for i in range(1, len(x) - 1):
                y[i] = 0.5 * (x[i - 1] + x[i + 1])
            for i in range(len(x)):
                x[i] = y[i]

    assert ("_",) not in stepped(until, "float32[100000]", "int64[1]")


def test_bounds_hold_every_value() -> None:
    t, n = Ref("t", INT64), Ref("n", INT64)
    exprs = [
        Op("sub", (n, t), INT64),
        Op("sub", (Op("mul", (Const(2, INT64), t), INT64), t), INT64),
        Op("max", (Op("sub", (t, Const(3, INT64)), INT64), Const(0, INT64)), INT64),
        Op("mod", (t, Const(3, INT64)), INT64),
        Op("floordiv", (Op("neg", (t,), INT64), Const(2, INT64)), INT64),
        Op("mul", (t, Op("sub", (n, t), INT64)), INT64),
    ]
    for e in exprs:
        low, high = bounds(e, {"n": 7}, {"t": (2, 9)})
        assert all(low <= evaluate(e, {"n": 7, "t": v}) <= high for v in range(2, 10)), e
    with pytest.raises(KeyError):
        bounds(Ref("m", INT64), {"n": 7}, {"t": (2, 9)})


def test_windows_have_no_more_points_than_they_are_wide() -> None:
    t, n, zero = Ref("t", INT64), Ref("n", INT64), Const(0, INT64)

    def moved(by: int) -> Op:
        return Op("add", (t, Const(by, INT64)), INT64)

    cases = [
        (Op("max", (zero, moved(-9)), INT64), Op("min", (n, moved(3)), INT64), 1),
        (Op("max", (moved(-4), zero), INT64), moved(1), 2),
        (Op("min", (n, moved(5)), INT64), Op("max", (moved(-1), Const(-1, INT64)), INT64), -2),
        (t, n, 1),
        (moved(2), t, 1),
    ]
    for start, stop, step in cases:
        each = [{"t": value, "n": 50} for value in range(50)]
        found = [len(range(evaluate(start, names), evaluate(stop, names), step)) for names in each]
        assert most_points(start, stop, step, {"n": 50}, {"t": (0, 49)}) == max(found)


# ---------------------------------------------------------------- what they compute


@pytest.mark.parametrize("name", CASES)
def test_steps_compute_what_the_python_does(name: str, always: None) -> None:
    kernel, make, gradients = CASES[name]
    args = make()
    report = kernel.check(*args, gradients=gradients)
    assert report.ok, report.text()
    if name != "no_steps":
        assert any(stepped(kernel, *args))


@pytest.mark.parametrize("name", ["pairs_across", "fewer_rows", "fewer_columns"])
def test_rows_that_only_some_steps_have(name: str, always: None) -> None:
    """A launch has blocks for the most rows that a step may have, and those beyond the rows of a step do nothing."""
    kernel, make, _ = CASES[name]
    plans = [p for one in launches(kernel, *make()) if isinstance(p := one.variant.plan, FoldPlan)]
    assert plans and all(p.fewer and p.beside == (name == "fewer_columns") for p in plans)


def test_what_is_found_in_a_later_step_is_told(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = simulated.cuda_source
    guard = "if (row >= batch * j_count) return;"
    monkeypatch.setattr(simulated, "cuda_source", lambda *args: emitted(*args).replace(guard, ""))
    kernel, make, _ = CASES["fewer_rows"]
    assert {f.finding.kind for f in kernel.check(*make()).findings} == {"out of bounds"}


def test_the_same_for_another_architecture_and_order(always: None) -> None:
    for kernel, args in [(viterbi, CASES["viterbi"][1]()), (own_arrays, CASES["own_arrays"][1]())]:
        report = kernel.check(*args, seeds=2, arch="sm_80")
        assert report.ok, report.text()


def test_steps_in_steps(always: None) -> None:
    assert ("r", "i") in stepped(nested, "float32[50,60]", 4)


def test_the_text_of_steps(golden: Golden) -> None:
    args = ("float32[2048,2048]", 100)
    golden("cuda/steps_back_and_forth.cu", back_and_forth.source(*args, arch="sm_90a"))


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_steps_on_a_gpu(name: str, always: None) -> None:
    kernel, make, _ = CASES[name]
    args = make()
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    given = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    want, found = kernel.py(*own), kernel(*given)
    wanted, got = (r if isinstance(r, tuple) else (r,) for r in (want, found))
    for a, b in zip((*wanted, *own), (*got, *given), strict=True):
        torch.testing.assert_close(b.cpu() if isinstance(b, torch.Tensor) else b, a, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_a_graph_captures_all_steps() -> None:
    u = torch.rand(512, 512, device="cuda")
    want = jacobi(u, 20)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = jacobi(u, 20)
    u.add_(1.0)
    graph.replay()
    torch.testing.assert_close(found, want + 1.0, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_large_steps_on_a_gpu() -> None:
    u = torch.rand(1000, 1203)
    torch.testing.assert_close(jacobi(u.cuda(), 7).cpu(), jacobi(u, 7))
    d = torch.rand(300, 300)
    torch.testing.assert_close(floyd_warshall(d.cuda()).cpu(), floyd_warshall(d))
