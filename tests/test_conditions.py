"""Conditions that a program names, chains or makes of branches guard what they are about."""

from __future__ import annotations

import pytest
import torch

import weft
from weft.errors import OutOfRange
from weft.language import infer_types, parse
from weft.language.types import TensorType
from weft.loops.accesses import Conditions, collect
from weft.loops.ir import Const, Merge, Op, Ref
from weft.loops.types import BOOL, INT64

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def chained(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        for d in range(-1, 2):
            if d != 0 and 0 <= i + d < n:
                y[i] += x[i + d]
    return y


def named(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        inside = i + 1 < n
        if inside:
            y[i] = x[i + 1]
    return y


def named_of_named(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        low = i - 2 >= 0
        high = i + 2 < n
        both = low and high
        if both:
            y[i] = x[i - 2] + x[i + 2]
        elif low:
            y[i] = x[i - 2]
        elif high:
            y[i] = x[i + 2]
    return y


def denied(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        outside = i < 1 or i >= n - 1
        y[i] = x[i] if outside else x[i - 1] + x[i + 1]
    return y


def of_branches(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        if i % 2 == 0:  # noqa: SIM108
            fits = i + 3 < n
        else:
            fits = i >= 5
        if fits:
            y[i] = x[i + 3] if i % 2 == 0 else x[i - 5]
    return y


def with_data(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        taken = x[i] > 0.0 and i + 1 < n
        if taken:
            y[i] = x[i + 1]
    return y


def around_a_loop(x):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        room = i + 4 <= n
        if room:
            for k in range(4):
                y[i] += x[i + k]
    return y


@pytest.mark.parametrize(
    "program", [chained, named, named_of_named, denied, of_branches, with_data, around_a_loop], ids=lambda f: f.__name__
)
def test_a_condition_guards_by_what_it_stands_for(program):
    kernel = weft.kernel(program)
    for n in (0, 1, 2, 3, 8, 33):
        x = torch.randn(n)
        torch.testing.assert_close(kernel(x), program(x))


def test_a_convolution_that_skips_what_lies_outside():
    def convolution(x, k):
        n, m = x.shape
        y = torch.zeros_like(x)
        for i in range(n):
            for j in range(m):
                for a in range(3):
                    for b in range(3):
                        if 0 <= i + a - 1 < n and 0 <= j + b - 1 < m:
                            y[i, j] += x[i + a - 1, j + b - 1] * k[a, b]
        return y

    kernel = weft.kernel(convolution)
    for shape in ((1, 1), (5, 7)):
        x, k = torch.randn(shape), torch.randn(3, 3)
        torch.testing.assert_close(kernel(x, k), convolution(x, k))
    assert weft.analyze(convolution).loops["i"].kind == "parallel"


def test_a_condition_that_does_not_guard_enough_is_refused():
    def short(x):
        n = x.shape[0]
        y = torch.zeros_like(x)
        for i in range(n):
            inside = i + 1 < n
            if inside:
                y[i] = x[i + 2]
        return y

    with pytest.raises(OutOfRange, match=r"outside axis 0, at index i \+ 2"):
        weft.kernel(short)(torch.randn(4))


def test_loops_around_a_condition_on_data_that_a_branch_makes_are_distributed_soundly():
    def program(a, x, idx, o):
        n = o.shape[0]
        for i in range(n):
            if i > 0:  # noqa: SIM102
                if a[i] > 0 and x[idx[idx[i % n]]] > 0:
                    o[i] = i
            a[n - 1 - i] = 1

    own = [torch.ones(4), torch.ones(4), torch.zeros(4, dtype=torch.int64), torch.zeros(4)]
    theirs = [t.clone() for t in own]
    weft.kernel(program)(*own)
    program(*theirs)
    for mine, other in zip(own, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_a_guard_says_what_names_stand_for():
    i, n = Ref("i", INT64), Ref("n", INT64)
    low, high = Op("ge", (i, Const(0, INT64)), BOOL), Op("lt", (i, n), BOOL)
    opaque = Ref("opaque", BOOL)
    conditions = Conditions()
    conditions.bind("inside", Op("and", (low, high), BOOL))
    conditions.merge(opaque, Merge("taken", Ref("inside", BOOL), Const(False, BOOL)))

    both = Op("and", (low, high), BOOL)
    assert conditions.guard(Ref("inside", BOOL), True) == ((both, True),)
    assert conditions.guard(Ref("inside", BOOL), False) == ((both, False),)
    assert conditions.guard(Ref("taken", BOOL), True) == ((Op("and", (opaque, both), BOOL), True),)
    assert conditions.guard(opaque, True) == ((opaque, True),)


def test_accesses_are_guarded_by_the_facts_and_not_by_their_names():
    function = parse(with_data, infer_types(with_data))
    read = next(a for a in collect(function.body) if a.array == "x" and a.index[0] != Ref("i", INT64))
    (_, taken), (fits, holds) = read.guard  # what data decide goes by its name
    assert taken and holds
    assert isinstance(fits, Op) and fits.name == "lt" and fits.args[1] == Ref("n", INT64)


# ---------------------------------------------------------------- what only data keep from being evaluated


def masked(x, mask):
    n = x.shape[0]
    y = torch.zeros_like(x)
    for i in range(n):
        if mask[i]:
            y[i] = x[i + 1]
    return y


def until(x, lengths):
    rows, n = x.shape
    y = torch.zeros(rows)
    for r in range(rows):
        for t in range(lengths[r]):
            y[r] += x[r, t] * x[r, 3]
    return y


def larger(x, y, limit):
    n = x.shape[0]
    for i in range(n):
        if x[i] > limit:
            y[i + 2] = x[i]


def test_a_subscript_that_a_mask_guards_is_checked_where_it_is_evaluated():
    kernel = weft.kernel(masked)
    x, mask = torch.randn(40), torch.rand(40) > 0.5
    mask[-1] = False
    torch.testing.assert_close(kernel(x, mask), masked(x, mask))
    mask[-1] = True
    with pytest.raises(OutOfRange, match="leaves x"):
        kernel(x, mask)
    longer = torch.randn(41)[:-1]
    torch.testing.assert_close(kernel(longer, mask & False), torch.zeros(40))


def test_a_subscript_in_a_range_that_data_decide_is_checked_where_it_is_evaluated():
    kernel = weft.kernel(until)
    narrow, wide = torch.randn(3, 2), torch.randn(3, 5)
    none, some = torch.zeros(3, dtype=torch.int64), torch.tensor([2, 0, 5])
    torch.testing.assert_close(kernel(narrow, none), until(narrow, none))
    torch.testing.assert_close(kernel(wide, some), until(wide, some))
    with pytest.raises(OutOfRange):
        kernel(narrow, some)


def test_a_store_that_data_guard_is_checked_and_kept_inside():
    kernel = weft.kernel(larger)
    x = torch.randn(64)
    x[-2:] = -9.0
    mine, theirs = torch.zeros(64), torch.zeros(64)
    kernel(x, mine, 0.0)
    larger(x, theirs, 0.0)
    torch.testing.assert_close(mine, theirs)
    with pytest.raises(OutOfRange, match="leaves y"):
        kernel(x, mine, -10.0)


def test_gradients_flow_through_what_a_mask_guards():
    x, mask = torch.randn(12, dtype=torch.float64, requires_grad=True), torch.rand(12) > 0.5
    mask[-1] = False
    kernel = weft.kernel(masked)
    (mine,) = torch.autograd.grad(kernel(x, mask).square().sum(), x)
    (theirs,) = torch.autograd.grad(masked(x, mask).square().sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_the_emitted_cuda_checks_what_data_guard():
    report = weft.kernel(masked).check(torch.randn(40), torch.zeros(40, dtype=torch.bool))
    assert report.ok, str(report)
    source = weft.kernel(masked).source(torch.randn(40), torch.zeros(40, dtype=torch.bool), arch="sm_90a")
    assert "weft::inside(i + 1" in source


def test_a_tensor_without_memory_is_outside_as_others_are():
    with pytest.raises(OutOfRange):
        weft.kernel(named_too_far)(torch.randn(4, device="meta"))


def named_too_far(x):
    y = torch.zeros_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i + 1]
    return y


def longer_than_a_product(x):
    n, m = x.shape
    y = torch.zeros(n * m)
    for i in range(n + m + 3):
        y[i] = 2.0
    return y


def test_a_size_that_is_a_product_is_checked_where_a_call_does_not_tell():
    kernel = weft.kernel(longer_than_a_product)
    torch.testing.assert_close(kernel(torch.ones(4, 5)), longer_than_a_product(torch.ones(4, 5)))
    with pytest.raises(OutOfRange):
        kernel(torch.ones(1, 1))
    assert "weft::inside(i" in kernel.source("float32[1,1]", arch="sm_90a")
    assert "weft::inside(i" not in kernel.source("float32[4,5]", arch="sm_90a")


def test_a_tensor_without_memory_may_hold_a_mask():
    x, mask = torch.randn(4, device="meta"), torch.ones(4, dtype=torch.bool, device="meta")
    assert weft.kernel(masked)(x, mask).shape == (4,)


def first_five(x):
    y = torch.zeros(5)
    t = x[:5]
    for i in range(len(t)):
        y[i] = 1.0
    return y


def test_a_slice_that_python_cuts_is_refused():
    kernel = weft.kernel(first_five)
    torch.testing.assert_close(kernel(torch.ones(6)), first_five(torch.ones(6)))
    with pytest.raises(OutOfRange, match="Python cuts"):
        kernel(torch.ones(3))


def test_conditions_are_written_out_for_loads_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice among a hundred numbers says nothing of any access: each look at it costs what the whole is long."""
    asked: list[bool] = []
    guard = Conditions.guard
    monkeypatch.setattr(Conditions, "guard", lambda *a: asked.append(True) or guard(*a))

    def chosen(x, k: int):
        for i in range(x.shape[0]):
            v = 0
            for j in (1, 2, 3, 4, 5, 6, 7, 8):
                v = v + j if k > j else j
            x[i] = v
        return x

    def read(x, k: int):
        for i in range(x.shape[0]):
            x[i] = x[i] if k > 1 else 0
        return x

    types = {"x": TensorType(INT64, 1), "k": INT64}
    collect(parse(chosen, types).body)
    assert not asked
    found = collect(parse(read, types).body)
    assert len(asked) == 1 and [len(a.guard) for a in found] == [1, 0]
