"""Transforms by hand: what is accepted changes no result, what is refused changes one."""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import weft
from tests.suites.classify import SUITES
from tests.suites.execute import Cell, Machine, Node, Watch
from tests.test_python_printer import assert_same, executed, outcome, type_of
from weft import HandSchedule
from weft.errors import IllegalTransform, InapplicableTransform
from weft.language import TensorType
from weft.loops.ir import For, Function, walk
from weft.loops.types import FLOAT64
from weft.loops.variables import variables

Transform = Callable[..., HandSchedule]

MATRIX = TensorType(FLOAT64, 2)
VECTOR = TensorType(FLOAT64, 1)


def scheduled(text: str) -> HandSchedule:
    """A program on float64 matrices a, b and vectors c, d, whichever it has."""
    names = {"a": MATRIX, "b": MATRIX, "c": VECTOR, "d": VECTOR}
    head = text.strip().splitlines()[0]
    return weft.schedule(text, {k: v for k, v in names.items() if f"{k}," in head or f"{k})" in head})


def arguments(function: Function, n: int, seed: int, m: int | None = None) -> dict[str, torch.Tensor]:
    """Square matrices (or n by m) and vectors of integers for the arguments of a program."""
    generator = random.Random(seed)
    shapes = {2: (n, n if m is None else m), 1: (n,)}
    ranks = {a.name: len(a.shape) for a in function.arrays}

    def drawn(rank: int) -> torch.Tensor:
        count = int(torch.Size(shapes[rank]).numel())
        return torch.tensor([float(generator.randint(-99, 99)) for _ in range(count)], dtype=torch.float64).view(shapes[rank])

    return {name: drawn(ranks[name]) for name in function.parameters}


class Written(Watch):
    """The values that each element of an array gets, one after another."""

    def __init__(self) -> None:
        self.machine: Machine | None = None
        self.values: dict[Cell, list[Any]] = {}

    def write(self, cell: Cell, node: Node) -> None:
        if cell[0] != "name" and self.machine is not None:
            self.values.setdefault(cell, []).append(self.machine.get(cell))


def exactly(function: Function, given_: dict[str, torch.Tensor]) -> tuple[dict[str, dict[tuple[int, ...], Fraction]], Any]:
    """What the arrays of the call hold at the end, as rationals, and all that their elements held in between."""
    watch = Written()
    machine = Machine(function, given_, watch=watch)
    watch.machine = machine
    machine.run()
    outside = {*function.parameters, *function.results}
    ends = {name: elements for name, elements in machine.results().items() if name in outside}
    return ends, {cell: values for cell, values in watch.values.items() if cell[0] in outside}


def assert_equal_programs(before: HandSchedule, after: HandSchedule, sizes: range = range(5)) -> None:
    """For these sizes of all axes, exactly; and as plain Python."""
    for n in sizes:
        given_ = arguments(before.function, n, n)
        assert exactly(after.function, given_)[0] == exactly(before.function, given_)[0], f"n = {n}\n{before}\n{after}"
    given_ = arguments(before.function, 3, 3)
    assert_same(outcome(executed(after.text), given_), outcome(executed(before.text), given_))


def assert_refusal_is_true(before: HandSchedule, transform: Transform, error: IllegalTransform) -> None:
    """Made all the same, the transform changes what some element holds for sizes such as the error names."""
    violation: Any = error.violation
    assert violation.exact, error
    forced = transform(before, force=True)
    assert forced.steps[-1].forced and str(error) == forced.steps[-1].why
    near = max((v for _, v in violation.example.sizes), default=3)
    for n in (near, near + 1, near + 2):
        for seed in range(3):
            given_ = arguments(before.function, n, seed)
            try:
                if exactly(forced.function, given_) != exactly(before.function, given_):
                    return
            except IndexError:  # pragma: no cover - a subscript that a forced order takes outside
                return
    raise AssertionError(f"refused, but nothing changes:\n{error}\n{before}\n{forced}")


def check(before: HandSchedule, transform: Transform) -> bool:
    """Accepted and equal, or refused and different; False where it does not fit the program."""
    try:
        after = transform(before)
    except InapplicableTransform:
        return False
    except IllegalTransform as error:
        assert_refusal_is_true(before, transform, error)
        return True
    assert_equal_programs(before, after)
    return True


# ---------------------------------------------------------------- random programs


@st.composite
def offset(draw: st.DrawFn) -> str:
    k = draw(st.integers(-1, 1))
    return "" if k == 0 else f" + {k}" if k > 0 else f" - {-k}"


@st.composite
def element(draw: st.DrawFn) -> str:
    array = draw(st.sampled_from(("a", "a", "b", "c")))
    if array == "c":
        return f"c[{draw(st.sampled_from('ij'))}{draw(offset())}]"
    first, second = draw(st.sampled_from((("i", "j"), ("i", "j"), ("j", "i"))))
    return f"{array}[{first}{draw(offset())}, {second}{draw(offset())}]"


@st.composite
def statement(draw: st.DrawFn, scalars: tuple[str, ...], number: int) -> list[str]:
    kind = draw(st.sampled_from(("store", "store", "store", "sum", "mixed", "update")))
    value = f"{draw(st.integers(2, 5))}.0 * {draw(element())} - {draw(element())} + {number}.0 + 7.0 * i - 11.0 * j"
    if kind == "sum" and "s" in scalars:
        return [f"s = s + {draw(element())}"]
    if kind == "mixed" and "s" in scalars:
        return [f"s = 3.0 * {draw(element())} - 2.0 * s + 5.0 * i + j", f"{draw(element())} = s"]
    target = draw(element())
    if kind == "update":
        return [f"{target} = {target} + ({draw(element())} + 7.0 * i - 11.0 * j)"]
    return [f"{target} = {value}"]


@st.composite
def nests(draw: st.DrawFn, most: int = 2) -> str:
    """Two loops around one to three statements, the bounds of the inner one perhaps needing the outer one."""
    carried = draw(st.booleans())
    outer = draw(st.sampled_from(("range(1, n - 1)", "range(1, n - 1)", "range(n - 2, 0, -1)", "range(1, n - 1, 2)")))
    inner = draw(
        st.sampled_from(("range(1, n - 1)", "range(1, n - 1)", "range(1, i + 1)", "range(i, n - 1)", "range(n - 2, 0, -1)"))
    )
    lines = ["def program(a, b, c, d):", "    n = a.shape[0]"]
    lines += ["    s = 0.0"] if carried else []
    lines += [f"    for i in {outer}:", f"        for j in {inner}:"]
    for k in range(draw(st.integers(1, most))):
        lines += [f"            {line}" for line in draw(statement(("s",) if carried else (), k + 1))]
    lines += ["    if n > 0:", "        d[0] = s"] if carried else []
    return "\n".join(lines) + "\n"


def transforms(draw: st.DrawFn) -> Transform:
    kind = draw(st.sampled_from(("interchange", "reverse", "strip_mine", "tile", "skew", "distribute", "peel", "parallel")))
    loop = draw(st.sampled_from("ij"))
    size = draw(st.integers(1, 3))
    match kind:
        case "interchange":
            return lambda s, **o: s.interchange("i", "j", **o)
        case "reverse":
            return lambda s, **o: s.reverse(loop, **o)
        case "strip_mine":
            return lambda s, **o: s.strip_mine(loop, size, **o)
        case "tile":
            other = draw(st.integers(1, 3))
            return lambda s, **o: s.tile(("i", "j"), (size, other), **o)
        case "skew":
            factor = draw(st.sampled_from((-2, -1, 1, 2)))
            return lambda s, **o: s.skew("j", by="i", factor=factor, **o)
        case "distribute":
            return lambda s, **o: s.distribute(loop, **o)
        case "parallel":
            return lambda s, **o: s.parallel(loop)
    which = draw(st.sampled_from(("first", "last")))
    return lambda s, **o: s.peel(loop, **{which: size}, **o)


quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@quick
@given(nests(), st.data())
def test_random_nests(text: str, data: st.DataObject) -> None:
    """Up to three transforms, one after another."""
    schedule = scheduled(text)
    fits = False
    for _ in range(data.draw(st.integers(1, 3))):
        transform = transforms(data.draw)
        try:
            after = transform(schedule)
        except InapplicableTransform:
            continue
        except IllegalTransform as error:
            if "parallel" not in str(error):
                assert_refusal_is_true(schedule, transform, error)
            fits = True
            continue
        assert_equal_programs(schedule, after)
        schedule, fits = after, True
    assume(fits)


@pytest.mark.parametrize("kind", ["interchange", "reverse i", "reverse j", "tile"])
@pytest.mark.parametrize("di", range(-2, 3))
@pytest.mark.parametrize("dj", range(-2, 3))
def test_all_distances(di: int, dj: int, kind: str) -> None:
    text = (
        "def program(a):\n    n = a.shape[0]\n"
        "    for i in range(2, n - 2):\n        for j in range(2, n - 2):\n"
        f"            a[i, j] = 2.0 * a[i + {di}, j + {dj}] + 1.0\n"
    )
    before = scheduled(text)
    # a reads what was written (-di, -dj) iterations before, or what is overwritten as much later
    distance = max((di, dj), (-di, -dj))
    made: dict[str, tuple[Transform, tuple[int, ...]]] = {
        "interchange": (lambda s, **o: s.interchange("i", "j", **o), (distance[1], distance[0])),
        "reverse i": (lambda s, **o: s.reverse("i", **o), (-distance[0], distance[1])),
        "reverse j": (lambda s, **o: s.reverse("j", **o), (distance[0], -distance[1])),
        "tile": (lambda s, **o: s.tile(("i", "j"), (2, 2), **o), (distance[1] if distance[0] == 1 else 0, 0)),
    }
    transform, after = made[kind]
    try:
        transformed = transform(before)
    except IllegalTransform as error:
        violation: Any = error.violation
        assert violation.before == distance
        assert after < (0, 0)
        if kind != "tile":
            assert violation.after == after
        assert_refusal_is_true(before, transform, error)
        return
    assert after >= (0, 0)
    assert_equal_programs(before, transformed, range(5, 8))


# ---------------------------------------------------------------- two loops, scalars, arrays of an iteration


@st.composite
def neighbours(draw: st.DrawFn) -> str:
    """Two loops over one range."""

    def line(var: str, number: int) -> str:
        target, *read = (f"{draw(st.sampled_from('cd'))}[{var}{draw(offset())}]" for _ in range(3))
        return f"        {target} = 3.0 * {read[0]} - {read[1]} + {number}.0"

    lines = ["def program(c, d):", "    n = c.shape[0]", "    s = 1.0", "    for i in range(1, n - 1):", line("i", 1)]
    lines += ["        s = s + c[i]"] if draw(st.booleans()) else []
    lines += ["    for j in range(1, n - 1):", line("j", 2)]
    lines += ["        s = s - 2.0 * d[j]"] if draw(st.booleans()) else []
    lines += ["    if n > 0:", "        d[0] = s"]
    return "\n".join(lines) + "\n"


@quick
@given(neighbours(), st.booleans())
def test_fusion(text: str, peeled: bool) -> None:
    before = scheduled(text)
    assume(check(before, lambda s, **o: s.fuse("i", "j", **o)))


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """One loop with scalars, an induction variable, a condition and statements that share elements."""

    def read() -> str:
        return f"{draw(st.sampled_from('cd'))}[{draw(st.sampled_from(('i', 'i - 1', 'i + 1', '1')))}]"

    step = draw(st.sampled_from(("1, n - 1", "n - 2, 0, -1", "1, n - 1, 2")))
    lines = ["def program(a, c, d):", "    n = c.shape[0]", "    k = 0", "    r = 1.0", f"    for i in range({step}):"]
    lines += [f"        h = c[1] - {draw(st.sampled_from(('d[1]', '1.0 / n', '1.0')))}"]
    lines.append(f"        t = {read()} + 2.0 * {read()} + 7.0 * i")
    if draw(st.booleans()):
        lines += ["        t = t * 2.0 if i > 1 else t"]
    for target in draw(st.lists(st.sampled_from(("c[i]", "d[i]", "c[i + 1]", "d[1]", "a[k, i]")), min_size=1, max_size=3)):
        value = draw(st.sampled_from(("t", "h", "r + i", f"{read()} - 5.0 * i", f"t - {read()}", f"3.0 * {read()} + i")))
        if draw(st.booleans()):
            lines += [f"        if {read()} > 0.0:", f"            {target} = {value}"]
            lines += ["        else:", f"            r = r + {read()}"] if draw(st.booleans()) else []
        else:
            lines.append(f"        {target} = {value}")
    lines += [f"        r = {draw(st.sampled_from(('r + t * h', 'r - t * h', 'h * t - 2.0 * r')))}"]
    lines += ["        k = k + 1"]
    lines += ["    if n > 1:", "        d[0] = r", "        d[1] = k"]
    return "\n".join(lines) + "\n"


def one_loop(draw: st.DrawFn) -> Transform:
    kind = draw(
        st.sampled_from(
            ("expand", "expand r", "hoist", "hoist S", "distribute", "at", "substitute", "convert", "rename", "peel", "reverse")
        )
    )
    label = draw(st.sampled_from(("S1", "S2", "S3", "S4", "S5", "S6")))
    scalar = draw(st.sampled_from("trk"))
    count = draw(st.integers(1, 2))
    made: dict[str, Transform] = {
        "expand": lambda s, **o: s.expand("t", "i", **o),
        "expand r": lambda s, **o: s.expand("t", "i").distribute("i", **o),
        "hoist": lambda s, **o: s.hoist("h", "i", **o),
        "hoist S": lambda s, **o: s.hoist(label, "i", **o),
        "distribute": lambda s, **o: s.distribute("i", **o),
        "at": lambda s, **o: s.distribute("i", at=label, **o),
        "substitute": lambda s, **o: s.substitute(scalar, **o),
        "convert": lambda s, **o: s.convert_if(label, **o),
        "rename": lambda s, **o: s.rename("c", **o),
        "peel": lambda s, **o: s.peel("i", last=count, **o),
        "reverse": lambda s, **o: s.reverse("i", **o),
    }
    return made[kind]


@quick
@given(bodies(), st.data())
def test_random_bodies(text: str, data: st.DataObject) -> None:
    schedule = scheduled(text)
    fits = False
    for _ in range(data.draw(st.integers(1, 3))):
        transform = one_loop(data.draw)
        try:
            after = transform(schedule)
        except InapplicableTransform:
            continue
        except IllegalTransform as error:
            fits = True
            if error.violation.exact:  # type: ignore[attr-defined]
                assert_refusal_is_true(schedule, transform, error)
            continue
        assert_equal_programs(schedule, after)
        schedule, fits = after, True
    assume(fits)


# ---------------------------------------------------------------- the classical cases

DIAGONAL = """
def diagonal(a):
    n = a.shape[0]
    for i in range(1, n):
        for j in range(n - 1):
            a[i, j] = a[i - 1, j + 1] + 1.0
"""
CYCLE = """
def cycle(c, d):
    n = c.shape[0]
    for i in range(1, n):
        c[i] = d[i - 1] + 1.0
        d[i] = 2.0 * c[i]
"""
AHEAD = """
def ahead(c, d):
    n = c.shape[0]
    for i in range(n - 1):
        c[i] = 2.0 * d[i]
    for j in range(n - 1):
        d[j] = c[j + 1]
"""
PREFIX = """
def prefix(c, d):
    n = c.shape[0]
    s = 0.0
    for i in range(n):
        s = 2.0 * s + c[i]
        d[i] = s
"""
TOTAL = """
def total(a, d):
    n = a.shape[0]
    s = 0.0
    for i in range(n):
        for j in range(i):
            s = s + a[i, j]
    if n > 0:
        d[0] = s
"""
CHANGED = """
def changed(a, c):
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            f = c[i]
            a[i, j] = f * a[i, j]
            c[0] = 1.0 + a[i, j]
"""
SHIFT = """
def shift(c):
    n = c.shape[0]
    for i in range(n - 1):
        c[i] = c[i + 1] + 1.0
"""
MATVEC = """
def matvec(a, c, d):
    n = a.shape[0]
    for i in range(n):
        s = 0.0
        for j in range(n):
            s = s + a[i, j] * c[j]
        d[i] = s
"""
SCRATCH = """
def scratch(a, b):
    n = a.shape[0]
    t = torch.empty(n, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            t[j] = 2.0 * a[i, j]
        for k in range(n):
            b[i, k] = t[k] + t[0]
"""
GATHER = """
def gather(c, d):
    n = c.shape[0]
    for i in range(n):
        d[int(abs(c[i])) % n] = c[i]
"""
BRANCH = """
def branch(c, d):
    n = d.shape[0]
    m = 0.0
    for i in range(n):
        if c[i] > 0.0:
            t = 2.0 * c[i]
            d[i] = t
            m = m + t
        else:
            d[i] = -1.0
    if n > 0:
        c[0] = m
"""
STEPS = """
def steps(a, c):
    n = c.shape[0]
    k = 0
    for i in range(n // 2):
        c[k] = a[k, 0]
        k = k + 2
"""


def test_interchange_of_a_diagonal_is_refused_and_legal_when_skewed() -> None:
    before = scheduled(DIAGONAL)
    with pytest.raises(IllegalTransform) as caught:
        before.interchange("i", "j")
    violation: Any = caught.value.violation
    assert (violation.before, violation.after) == ((1, -1), (-1, 1))
    assert violation.kind == "RAW" and violation.source.label == violation.sink.label == "S1"
    assert_refusal_is_true(before, lambda s, **o: s.interchange("i", "j", **o), caught.value)
    skewed = before.skew("j", by="i")
    after = skewed.interchange("i", "j")
    assert_equal_programs(before, after)
    assert after.loops["j"].kind == "parallel"
    with pytest.raises(IllegalTransform):
        before.tile(("i", "j"), (2, 3))
    assert_equal_programs(before, skewed.tile(("i", "j"), (2, 3)), range(9))


@pytest.mark.parametrize(
    ("name", "text", "transform"),
    [
        ("interchange", DIAGONAL, lambda s, **o: s.interchange("i", "j", **o)),
        ("tile", DIAGONAL, lambda s, **o: s.tile(("i", "j"), (2, 3), **o)),
        ("reverse", PREFIX, lambda s, **o: s.reverse("i", **o)),
        ("distribute", CYCLE, lambda s, **o: s.distribute("i", **o)),
        ("fuse", AHEAD, lambda s, **o: s.fuse("i", "j", **o)),
        ("hoist", CHANGED, lambda s, **o: s.hoist("f", "j", **o)),
    ],
)
def test_refusals_say_why_and_are_true(name: str, text: str, transform: Transform, golden: Callable[[str, str], None]) -> None:
    before = scheduled(text)
    with pytest.raises(IllegalTransform) as caught:
        transform(before)
    golden(f"transforms/{name}.txt", f"{before.text}\n{caught.value}\n")
    assert_refusal_is_true(before, transform, caught.value)


@pytest.mark.parametrize(
    ("text", "transform", "says"),
    [
        (PREFIX, lambda s: s.parallel("i"), "S1 reads what it wrote"),
        (SHIFT, lambda s: s.parallel("i"), "S1 overwrites what it read (WAR) at distance (1)"),
        (GATHER, lambda s: s.reverse("i"), "is not affine in the loops"),
        (GATHER, lambda s: s.parallel("i"), "is not affine in the loops"),
    ],
)
def test_other_refusals(text: str, transform: Transform, says: str) -> None:
    with pytest.raises(IllegalTransform, match=r"change a result") as caught:
        transform(scheduled(text))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "transform", "says"),
    [
        (DIAGONAL, lambda s: s.interchange("i", "k"), "has no loop over k"),
        (DIAGONAL, lambda s: s.interchange("j", "i"), "not inside"),
        (MATVEC, lambda s: s.interchange("i", "j"), "not all of the body"),
        (DIAGONAL, lambda s: s.tile(("i", "j"), (2,)), "2 loops and 1 sizes"),
        (DIAGONAL, lambda s: s.strip_mine("i", 0), "a block of 0"),
        (AHEAD, lambda s: s.fuse("j", "i"), "does not follow"),
        (PREFIX, lambda s: s.expand("d", "i"), "is an argument"),
        (BRANCH, lambda s: s.expand("k", "i"), "no statement of the body"),
        (PREFIX, lambda s: s.distribute("i", at="S2"), "is made in one part and used in another"),
        (PREFIX, lambda s: s.hoist("S1", "i"), "not the same in every iteration"),
        (PREFIX, lambda s: s.substitute("s"), "no closed form"),
        (PREFIX, lambda s: s.convert_if("S1"), "no condition is around S1"),
        (PREFIX, lambda s: s.rename("c"), "no loop reads an element of c"),
        (PREFIX, lambda s: s.peel("i"), "pass first=n or last=n"),
        (SCRATCH, lambda s: s.expand("b", "i"), "is an argument"),
    ],
)
def test_what_does_not_fit_is_told_from_what_is_illegal(text: str, transform: Transform, says: str) -> None:
    with pytest.raises(InapplicableTransform) as caught:
        transform(scheduled(text))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "transform"),
    [
        (TOTAL, lambda s: s.interchange("i", "j")),
        (TOTAL, lambda s: s.tile(("i", "j"), (2, 3)).reverse("i_tile")),
        (TOTAL, lambda s: s.reverse("i").reverse("j").interchange("i", "j")),
        (MATVEC, lambda s: s.expand("s", "i").distribute("i")),
        (MATVEC, lambda s: s.strip_mine("j", 3).strip_mine("i", 2)),
        (SHIFT, lambda s: s.rename("c").parallel("i")),
        (PREFIX, lambda s: s.expand("s", "i")),
        (SCRATCH, lambda s: s.expand("t", "i").parallel("i").distribute("i")),
        (BRANCH, lambda s: s.convert_if("S3").reverse("i")),
        (STEPS, lambda s: s.substitute("k").reverse("i")),
        (STEPS, lambda s: s.peel("i", first=2).peel("i", last=1)),
        (CYCLE, lambda s: s.peel("i", first=1).strip_mine("i", 2)),
    ],
)
def test_chains_of_transforms(text: str, transform: Transform) -> None:
    before = scheduled(text)
    after = transform(before)
    assert_equal_programs(before, after, range(8))
    assert [s.forced for s in after.steps] == [False] * len(after.steps)


def test_updates_in_any_order_are_told() -> None:
    step = scheduled(TOTAL).interchange("i", "j").steps[-1]
    assert step.why == "the sum in s may be taken in any order"
    assert "in any order" not in scheduled(MATVEC).strip_mine("i", 2).steps[-1].why


def test_a_sum_whose_values_are_used_keeps_its_order() -> None:
    with pytest.raises(IllegalTransform):
        scheduled(TOTAL.replace("s = s + a[i, j]", "s = s + a[i, j]\n            a[i, j] = s")).interchange("i", "j")


def test_a_refusal_survives_pickling() -> None:
    with pytest.raises(IllegalTransform) as caught:
        scheduled(DIAGONAL).interchange("i", "j")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.violation == caught.value.violation


def test_schedules_are_values() -> None:
    before = scheduled(DIAGONAL)
    after = before.skew("j", by="i").interchange("i", "j")
    assert before.steps == () and before.text != after.text
    assert [step.transform for step in after.steps] == ["skewing of j by 1 * i", "interchange of i and j"]
    assert after.steps[-1].text == after.text == str(after) + "\n"
    assert after == before.skew("j", by="i").interchange("i", "j")


def test_a_schedule_is_a_kernel() -> None:
    before = scheduled(DIAGONAL)
    after = before.skew("j", by="i").interchange("i", "j")
    ours, theirs = (torch.randn(7, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    after.kernel()(ours)
    before.py(theirs)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("update", "free"),
    [
        ("s = s + x", True),
        ("s = x + s", True),
        ("s = s - x", True),
        ("s = x - s", False),
        ("s = max(s, x)", True),
        ("s = max(x, s)", False),  # the last NaN but one is lost
        ("s = torch.maximum(x, s)", True),
        ("s = s + x if x > 0.0 else s", True),
        ("s = s + x if s > 0.0 else s", False),
        ("s = s * x + 1.0", False),
        ("s = s + x * s", False),
        ("s = s", True),
    ],
)
def test_which_updates_have_no_order(update: str, free: bool) -> None:
    before = scheduled(
        "def program(c, d):\n    n = c.shape[0]\n    s = d[0].clone()\n    for i in range(n):\n"
        f"        x = c[i]\n        {update}\n    d[0] = s\n"
    )
    assert accepted(before, lambda s: s.reverse("i")) == free
    in_place = re.sub(r"\bs\b", "d[0]", update)
    stored = scheduled(
        f"def program(c, d):\n    n = c.shape[0]\n    for i in range(n):\n        x = c[i]\n        {in_place}\n"
    )
    if "if" not in update and update != "s = s":
        assert accepted(stored, lambda s: s.reverse("i")) == free


def accepted(before: HandSchedule, transform: Transform) -> bool:
    try:
        transform(before)
    except IllegalTransform:
        return False
    return True


def test_an_update_is_not_hoisted() -> None:
    before = scheduled("def program(c, d):\n    for i in range(c.shape[0]):\n        d[0] = d[0] + 1.0\n")
    assert not accepted(before, lambda s: s.hoist("S1", "i"))
    step = before.parallel("i").steps[-1]
    assert step.why.startswith("the sum in d may be taken in any order, which is a reduction")


def test_a_value_from_before_the_inner_loop_keeps_the_loops_in_their_order() -> None:
    text = TOTAL.replace("        for j", "        t = s\n        for j").replace("s = s + a[i, j]", "s = s + a[i, j] * t")
    with pytest.raises(InapplicableTransform, match="uses what s was before it"):
        scheduled(text).interchange("i", "j")


@pytest.mark.parametrize("value", ["1.0 / n", "c[1]", "1.0 * (7 // n)"])
def test_what_is_hoisted_out_of_a_loop_that_does_not_run_is_not_evaluated(value: str) -> None:
    before = scheduled(
        f"def program(c, d):\n    n = d.shape[0]\n    for i in range(n):\n        h = {value}\n        d[i] = h\n"
    )
    after = before.hoist("h", "i")
    for n in (0, 3):
        given_ = {"c": torch.arange(float(n), dtype=torch.float64), "d": torch.zeros(n, dtype=torch.float64)}
        assert_same(outcome(executed(after.text), given_), outcome(executed(before.text), given_))
        assert exactly(after.function, given_)[0] == exactly(before.function, given_)[0]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (SCRATCH, None),
        (SCRATCH.replace("for j in range(n)", "for j in range(i, n)"), IllegalTransform),  # t[0] is of iteration 0
        (SCRATCH.replace("for j in range(n)", "for j in range(1, n)"), InapplicableTransform),  # nobody writes t[0]
        (SCRATCH.replace("            t[j] =", "            if a[i, j] > 0.0:\n                t[j] ="), IllegalTransform),
        (SCRATCH + "    if n > 0:\n        b[0, 0] = t[0]\n", IllegalTransform),  # of the last iteration
        (SCRATCH.replace("t[0]", "t[int(abs(a[i, k])) % n]"), InapplicableTransform),
    ],
)
def test_an_array_is_expanded_where_each_iteration_writes_what_it_reads(text: str, error: type[Exception] | None) -> None:
    before = scheduled(text)
    if error is None:
        assert_equal_programs(before, before.expand("t", "i"))
        return
    with pytest.raises(error):
        before.expand("t", "i")


def test_fresh_arrays_stay_with_their_iteration() -> None:
    before = scheduled(
        "def program(a, b):\n    n = a.shape[0]\n    for i in range(n):\n        t = torch.empty(2, dtype=torch.float64)\n"
        "        t[0] = 2.0 * a[i, i]\n        for j in range(n):\n            b[i, j] = t[0] + a[i, j]\n"
    )
    with pytest.raises(InapplicableTransform, match="used in two parts"):
        before.distribute("i")
    after = before.expand("t", "i").distribute("i").interchange("i_1", "j")
    assert_equal_programs(before, after)
    assert_equal_programs(before, before.peel("i", first=1).strip_mine("i", 2))


@st.composite
def deep_nests(draw: st.DrawFn) -> str:
    """Three loops around a statement; each of the inner ones perhaps bounded by those around it."""
    second = draw(st.sampled_from(("range(1, n - 1)", "range(i, n - 1)", "range(1, i + 1)")))
    third = draw(
        st.sampled_from(
            (
                "range(1, n - 1)",
                "range(j, n - 1)",
                "range(1, j + 1)",
                "range(max(i, j), n - 1)",
                "range(i, i + j)",
                "range(0, n, 2)",
            )
        )
    )

    def place() -> str:
        first, other = draw(st.sampled_from(("ij", "jk", "ik", "ji")))
        if third == "range(i, i + j)" or third == "range(0, n, 2)":
            first, other = draw(st.sampled_from(("ij", "ji")))
        return f"{draw(st.sampled_from('ab'))}[{first}{draw(offset())}, {other}{draw(offset())}]"

    target = place()
    value = draw(
        st.sampled_from((f"{target} + ({place()} + i - 3.0 * k)", f"3.0 * {place()} - {target} + 5.0 * i + j - 3.0 * k"))
    )
    return (
        f"def program(a, b):\n    n = a.shape[0]\n    for i in range(1, n - 1):\n        for j in {second}:\n"
        f"            for k in {third}:\n                {target} = {value}\n"
    )


@quick
@given(deep_nests(), st.data())
def test_three_loops(text: str, data: st.DataObject) -> None:
    outer, inner = data.draw(st.sampled_from((("i", "j"), ("j", "k"), ("i", "k"))))
    loops = data.draw(st.sampled_from((("i", "j"), ("j", "k"), ("i", "j", "k"))))
    sizes = tuple(data.draw(st.integers(1, 3)) for _ in loops)
    transform = data.draw(
        st.sampled_from(
            (
                lambda s, **o: s.interchange(outer, inner, **o),
                lambda s, **o: s.tile(loops, sizes, **o),
                lambda s, **o: s.skew(inner, by=outer).interchange(outer, inner, **o),
                lambda s, **o: s.reverse(inner, **o),
                lambda s, **o: s.strip_mine(outer, sizes[0]).reverse(outer, **o),
            )
        )
    )
    assume(check(scheduled(text), transform))


# ---------------------------------------------------------------- whole suites

CASES = {name: case for suite in SUITES.values() for name, case in suite.items()}


def every_transform(schedule: HandSchedule) -> Iterator[tuple[str, Transform]]:
    """All transforms of all loops, scalars, statements and arrays of a program, with a name for each."""
    function = schedule.function
    loops = [s for s in walk(function.body) if isinstance(s, For)]
    names = sorted(set(variables(function).of.values()))
    for loop in loops:
        v = loop.var
        yield f"reverse {v}", lambda s, v=v: s.reverse(v)
        yield f"strip-mine {v}", lambda s, v=v: s.strip_mine(v, 3)
        yield f"peel {v}", lambda s, v=v: s.peel(v, first=1)
        yield f"peel the end of {v}", lambda s, v=v: s.peel(v, last=1)
        yield f"distribute {v}", lambda s, v=v: s.distribute(v)
        for name in names:
            yield f"expand {name} over {v}", lambda s, v=v, name=name: s.expand(name, v)
        for what in (*names, *(s.label for s in schedule.statements)):
            yield f"hoist {what} out of {v}", lambda s, v=v, what=what: s.hoist(what, v)
        for inner in loop.body:
            if isinstance(inner, For):
                yield f"interchange {v}, {inner.var}", lambda s, v=v, w=inner.var: s.interchange(v, w)
                yield f"tile {v}, {inner.var}", lambda s, v=v, w=inner.var: s.tile((v, w), (2, 3))
    for body in (function.body, *(loop.body for loop in loops)):
        own = [s.var for s in body if isinstance(s, For)]
        for v, w in zip(own, own[1:], strict=False):
            yield f"fuse {v}, {w}", lambda s, v=v, w=w: s.fuse(v, w)
    for statement_ in schedule.statements:
        yield f"convert {statement_.label}", lambda s, label=statement_.label: s.convert_if(label)
    for name in names:
        yield f"substitute {name}", lambda s, name=name: s.substitute(name)
    for array in function.arrays:
        yield f"rename {array.name}", lambda s, name=array.name: s.rename(name)


# Programs of many loops take long; these have what the others have: triangles, steps in time, loops in a row.
_SAMPLE = {"cholesky", "jacobi_1d", "mvt", "trisolv", "bicg"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SUITES["polybench"].keys() - _SAMPLE else [])
        for name in CASES
    ],
)
def test_what_is_accepted_of_a_suite_changes_no_result(name: str) -> None:
    given_ = next(iter(CASES[name].arguments(1)))
    before = weft.schedule(CASES[name].function, {k: type_of(v) for k, v in given_.items()})
    try:
        expected = exactly(before.function, given_)[0]
    except OverflowError:
        pytest.skip("its values grow too long to be computed exactly")
    for what, transform in every_transform(before):
        try:
            after = transform(before)
        except (IllegalTransform, InapplicableTransform):
            continue
        assert exactly(after.function, given_)[0] == expected, f"{what}\n{after}"
