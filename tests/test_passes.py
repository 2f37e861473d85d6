"""Tile graphs as plain loops again, and online programs that are run and differentiated as such."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path

import pytest
import torch

import weft
from tests.graphs import built, in_passes_of, parsed, run
from tests.test_joins_apart import function_of
from tests.test_tile import ARGUMENTS, copied, drawn, kernels, made
from weft.compiler import planning
from weft.compiler.keeping import keeping, kept_folds
from weft.compiler.settled import settled
from weft.graph.passes import passes
from weft.graph.tile import Fold, NotTiles, TileGraph
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.loops.ir import Const, For, walk
from weft.loops.names import Names
from weft.loops.show import show
from weft.plan.product import ProductPlan
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine

attention = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "attention.py"))["attention"]


def online(q, k, v):
    rows, width = q.shape
    keys = k.shape[0]
    out = torch.empty(rows, 8, dtype=q.dtype)
    for i in range(rows):
        largest, total = -math.inf, 0.0
        acc = torch.zeros(8, dtype=torch.float64)
        for j in range(keys):
            score = 0.0
            for e in range(width):
                score = score + q[i, e] * k[j, e]
            new = max(largest, score)
            old = torch.exp(largest - new)
            p = torch.exp(score - new)
            total = total * old + p
            for e in range(8):
                acc[e] = acc[e] * old + p * v[j, e]
            largest = new
        for e in range(8):
            out[i, e] = acc[e] / total
    return out


def added(y, x, w, scale):
    """What is added up in place, and what it is multiplied by outside of the sum."""
    rows, columns = y.shape
    for i in range(rows):
        r = scale[i]
        for j in range(columns):
            s = y[i, j]
            for k in range(4):
                s = s + x[i, k] * w[j, k] * r
            y[i, j] = s


RECTIFIED = True
ONLINE = (drawn(3, 4), drawn(5, 4), drawn(5, 8))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_passes_mean_what_the_python_does(name: str, together: bool) -> None:
    ours, theirs = copied(ARGUMENTS[name]()), copied(ARGUMENTS[name]())
    found = getattr(kernels, name)(*theirs)
    want = () if found is None else (found,)
    for a, b in zip((*run(made(name), ours, together), *ours), (*want, *theirs), strict=True):
        torch.testing.assert_close(a, b)


def test_folds_over_axes_of_their_own_are_nests_of_their_own() -> None:
    found = built(schedule(parsed(online, ONLINE)))
    own = in_passes_of(found.schedule, found.schedule.nests[0], found.only, together=False)
    assert own is not None
    around = [[s.carries for s in walk(nest) if isinstance(s, For) and not s.carries] for nest in own.nests]
    assert [len(loops) for loops in around] == [2, 1, 2]  # scores; maxima and sums; outputs
    assert [len(a.shape) for a in own.memory] == [2, 1, 1]  # scores, maxima, sums
    torch.testing.assert_close(run(found, list(ONLINE), False)[0], online(*ONLINE))
    torch.testing.assert_close(run(found, list(ONLINE), True)[0], online(*ONLINE))


def test_what_a_sum_began_with_and_its_steady_factors_are_outside_of_it() -> None:
    args = (drawn(3, 5), drawn(3, 4), drawn(5, 4), drawn(3))
    found = built(schedule(parsed(added, args)))
    ours, theirs = copied(args), copied(args)
    added(*theirs)
    run(found, ours, False)
    torch.testing.assert_close(ours[0], theirs[0])
    own = in_passes_of(found.schedule, found.schedule.nests[0], found.only, together=False)
    assert own is not None
    (sums,) = (s for s in walk(own.nests[0]) if isinstance(s, For) and s.carries)
    assert "scale" not in str(sums) and all(isinstance(c.init, Const) for c in sums.carries)


def test_scans_have_no_passes() -> None:
    found = made("linrec")
    with pytest.raises(NotTiles, match="a scan"):
        passes(found.only, found.schedule.function, Names.of(found.schedule.function))


def test_what_is_written_of_what_was_written_before_is_refused() -> None:
    def twice(x, y):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                s = s + x[i, j]
            y[i] = s
            for j in range(x.shape[1]):
                x[i, j] = x[i, j] / s

    args = (drawn(3, 4), drawn(3))
    found = built(schedule(parsed(twice, args)))
    for together in (False, True):
        ours, theirs = copied(args), copied(args)
        twice(*theirs)
        run(found, ours, together)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)


# ---------------------------------------------------------------- sums in two steps


def form(x, a, z):
    y = torch.empty(x.shape[0], dtype=x.dtype)
    for n in range(x.shape[0]):
        s = 0.0
        for i in range(x.shape[1]):
            for j in range(z.shape[1]):
                s += x[n, i] * a[i, j] * z[n, j]
        y[n] = s
    return y


def whole_and_parts(x, w, sums, y):
    """Sums of a row's points, of each of its channels', and backwards of their differences from the first."""
    for n in range(x.shape[0]):
        s = 0.0
        for c in range(x.shape[1]):
            t = 0.0
            for p in range(x.shape[2]):
                s += x[n, c, p] * w[c]
                t += x[n, c, p]
            sums[n, c] = t
        d = 0.0
        for c in range(x.shape[1] - 1, -1, -1):
            for p in range(x.shape[2]):
                d += x[n, c, p] - s
        y[n] = d


def test_a_sum_of_three_factors_is_a_product_of_matrices_whose_results_are_summed() -> None:
    args = (drawn(3, 4), drawn(4, 5), drawn(3, 5))
    found = built(schedule(parsed(form, args)))
    own = in_passes_of(found.schedule, found.schedule.nests[0], found.only, together=False)
    assert own is not None and len(own.nests) == 2 and [len(a.shape) for a in own.memory] == [2]
    for sizes in ((3, 4, 5), (3, 0, 5)):
        n, i, j = sizes
        args = (drawn(n, i), drawn(i, j), drawn(n, j) / 0)
        torch.testing.assert_close(run(found, list(args), False)[0], form(*args), equal_nan=True)
    shapes = ("float32[4096,256]", "float32[256,256]", "float32[4096,256]")
    assert isinstance(examine(weft.kernel(form), shapes).launches()[0].variant.plan, ProductPlan)


def divergence(x, z):
    """Of all rows together: what each row adds needs sums of the row, and is in memory or registers where these are."""
    loss = 0.0
    for i in range(x.shape[0]):
        a, b = 0.0, 0.0
        for j in range(x.shape[1]):
            a += torch.exp(x[i, j])
            b += torch.exp(z[i, j])
        for j in range(x.shape[1]):
            loss += torch.exp(x[i, j]) / a * (x[i, j] - torch.log(a) - z[i, j] + torch.log(b))
    return loss


def test_sums_of_all_rows_are_found_row_by_row_where_they_need_sums_of_these() -> None:
    args = (drawn(3, 4), drawn(3, 4))
    found = built(schedule(parsed(divergence, args)))
    own = in_passes_of(found.schedule, found.schedule.nests[0], found.only, together=False)
    assert own is not None and sum("'x'" in str(nest) for nest in own.nests) == 1
    torch.testing.assert_close(run(found, list(args), False)[0], divergence(*args), check_dtype=False)


def test_one_pass_goes_through_points_for_sums_over_some_of_their_axes_and_over_all() -> None:
    args = (drawn(2, 3, 4), drawn(3), drawn(2, 3), drawn(2))
    found = built(schedule(parsed(whole_and_parts, args)))
    assert all(len(v.over) == 2 for v in found.only.values if isinstance(v, Fold) and v.names[0] in ("s", "d"))
    own = in_passes_of(found.schedule, found.schedule.nests[0], found.only, together=False)
    assert own is not None
    reading = [nest for nest in own.nests if any("'x'" in str(s) for s in nest)]
    assert len(reading) == 2  # for s and the sums of channels; for d, which needs s
    ours, theirs = copied(args), copied(args)
    whole_and_parts(*theirs)
    run(found, ours, False)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


# ---------------------------------------------------------------- folds that are the same for iterations around them


def cosine_distances(x, z):
    y = torch.empty(x.shape[0], z.shape[0], dtype=x.dtype)
    for n in range(x.shape[0]):
        for m in range(z.shape[0]):
            dot, xx, zz = 0.0, 0.0, 0.0
            for d in range(x.shape[1]):
                dot += x[n, d] * z[m, d]
                xx += x[n, d] * x[n, d]
                zz += z[m, d] * z[m, d]
            y[n, m] = 1 - dot / torch.sqrt(xx * zz)
    return y


def test_the_adjoint_keeps_a_fold_once_for_all_iterations_that_it_is_the_same_for() -> None:
    function = function_of(weft.kernel(cosine_distances), (drawn(5, 3), drawn(7, 3)))
    derived = adjoint(settled(function), ("x", "z"))
    kept = [len(a.shape) for a in derived.arrays if a.role == "local"]
    assert kept.count(2) < [len(a.shape) for a in adjoint(function, ("x", "z")).arrays if a.role == "local"].count(2)
    # of squares a number a row; of products what both factors' gradients need, and what is added up of each
    assert kept.count(2) == 2 and kept.count(1) > 0


def test_gradients_of_folds_that_are_the_same_for_iterations_around_them() -> None:
    x, z = (torch.randn(n, 3, dtype=torch.float64, requires_grad=True) for n in (5, 4))
    assert torch.autograd.gradcheck(weft.kernel(cosine_distances), (x, z))
    assert torch.autograd.gradgradcheck(weft.kernel(cosine_distances), (x, z))


# ---------------------------------------------------------------- products that are kept for gradients


def rectified(x, w):
    y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[k, j]
            y[i, j] = max(s, 0.0) if RECTIFIED else 2 * s + 1
    return y


def test_products_that_gradients_need_are_results_of_a_call_that_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    function = function_of(weft.kernel(cosine_distances), (drawn(5, 3), drawn(7, 3)))
    folds = kept_folds(function).folds
    whole = keeping(function, folds)
    assert whole is not None and [len(whole.array(r).shape) for r in whole.results] == [2] * (1 + len(folds))
    again, before = (show(adjoint(f, ("x", "z"), (0,))) for f in (settled(whole), settled(function)))
    product = re.compile(r"x\[\w+, \w+\] \* z\[")
    assert product.search(before) and not product.search(again)  # none of x and z is made again
    for factor, kept in ((True, 1), (False, 0)):  # a term of the result has a gradient without it
        monkeypatch.setitem(globals(), "RECTIFIED", factor)
        assert len(kept_folds(function_of(weft.kernel(rectified), (drawn(5, 3), drawn(3, 4)))).folds) == kept


def test_gradients_of_sums_in_two_steps_with_sizes_that_agree_or_do_not() -> None:
    for more in (0, 2):
        x, z = (torch.randn(n, 3 + m, dtype=torch.float64, requires_grad=True) for n, m in ((5, 0), (4, more)))
        assert torch.autograd.gradcheck(weft.kernel(cosine_distances), (x, z))
        args = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((3, 4), (4 + more, 5), (3, 5))]
        assert torch.autograd.gradcheck(weft.kernel(form), args)


# ---------------------------------------------------------------- online programs


def test_the_adjoint_of_an_online_program_keeps_no_state_of_its_iterations() -> None:
    function = parsed(online, ONLINE)
    derived = adjoint(settled(function), ("q", "k", "v"))
    kept = [a for a in derived.arrays if a.role == "local"]
    assert max(len(a.shape) for a in kept) == 2  # scores and their gradients, but no [rows, keys, width]
    before = adjoint(function, ("q", "k", "v"))
    assert max(len(a.shape) for a in before.arrays if a.role == "local") == 3


def test_programs_without_repairs_are_left_as_they_are() -> None:
    for name in ("softmax", "linrec", "matmul", "attention", "argmax"):
        function = made(name).schedule.function
        assert settled(function) is function


def test_gradients_of_an_online_program() -> None:
    kernel = weft.kernel(online)
    q, k, v = (t.clone().requires_grad_() for t in ONLINE)
    assert torch.autograd.gradcheck(kernel, (q, k, v))


def test_an_online_program_runs_as_products_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    shapes = ("float32[1024,64]", "float32[1024,64]", "float32[1024,64]")
    found = examine(attention, shapes).launches()
    assert sum(isinstance(one.variant.plan, ProductPlan) for one in found) >= 2  # one more where blocks share points
    assert not any(isinstance(one.variant.plan, ThreadPlan) for one in found)


def test_an_online_program_is_right_in_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1e12)
    args = tuple(torch.randn(n, 64) for n in (20, 33, 33))
    report = attention.check(*args, arch="sm_90a")
    assert report.ok and not report.findings, report.text()


def test_graphs_of_online_programs_are_folds_alone() -> None:
    graph = built(schedule(parsed(online, ONLINE))).only
    assert isinstance(graph, TileGraph)
    assert sum(isinstance(v, Fold) for v in graph.values) == 4


def test_a_fold_is_no_pass_where_what_it_reads_is_there_for_iterations_alone() -> None:
    """c has a second row if there is a third element of x."""

    def sums(x, c):
        y = torch.zeros_like(x)
        for k in range(2, x.shape[0]):
            s = 0.0
            for j in range(c.shape[1]):
                s += c[1, j]
            y[k] = s * x[k]
        return y

    kernel = weft.kernel(sums)
    function = function_of(kernel, (drawn(5), drawn(2, 4)))
    assert settled(function) is function
    x, c = torch.randn(2, requires_grad=True), torch.randn(1, 4, requires_grad=True)
    found = torch.autograd.grad(kernel(x, c).sum(), (x, c))
    assert not any(g.any() for g in found)


def test_passes_on_a_gpu_read_nothing_that_loops_without_iterations_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "GAIN", 1e12)

    def scaled_products(a, b, c):
        y = torch.zeros(a.shape[0], b.shape[0])
        for k in range(2, a.shape[0]):
            for m in range(b.shape[0]):
                s, t = 0.0, 0.0
                for d in range(a.shape[1]):
                    s += a[k, d] * b[m, d]
                    t += c[1, d] * b[m, d]
                y[k, m] = s * t
        return y

    for rows, given in ((6, 2), (2, 1)):
        report = weft.kernel(scaled_products).check(torch.randn(rows, 8), torch.randn(9, 8), torch.randn(given, 8))
        assert report.ok and not report.findings, report.text()
