"""Closed forms of carried scalars: the loop without the carry computes what the loop with it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests.examples import chunks
from tests.fuzz_oracle import replay
from tests.fuzz_programs import compiled
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.automatic.induction import close
from weft.loops.interpret import interpret
from weft.loops.ir import For, Function, validate, walk
from weft.loops.normalize import normalize
from weft.pytorch.call import argument_types


def parsed(function: Callable[..., Any], *args: Any) -> Function:
    signature = read_signature(function)
    names = [p.name for p in signature.parameters]
    return parse(function, dict(zip(names, argument_types(signature, args), strict=True)))


def closed(function: Callable[..., Any], *args: Any) -> tuple[Function, dict[str, tuple[str, ...]]]:
    """The closed form of a function; that it means what the function means is checked on the way."""
    before = normalize(parsed(function, *args))
    after = close(before)
    validate(after.function)
    ours, theirs = ([a.clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    found, expected = interpret(after.function, *ours), interpret(before, *theirs)
    for a, b in zip((*found, *ours), (*expected, *theirs), strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
    return after.function, after.transforms


def carried(function: Function) -> list[str]:
    return [c.name for s in walk(function.body) if isinstance(s, For) for c in s.carries]


def kinds(function: Callable[..., Any], *args: Any) -> dict[str, str]:
    return {v.var: v.kind for v in schedule(parsed(function, *args)).loops}


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


# ---------------------------------------------------------------- what is closed, and what is not


def running(x, y):
    j = -1
    for i in range(x.shape[0] // 2):
        j += 1
        y[j] = x[i]
        j += 1
        y[j] = 2.0 * x[i]


def rows_of_a_triangle(x, flat):
    k = 0
    for i in range(x.shape[0]):
        for j in range(1, x.shape[0]):
            flat[k] = x[i, j]
            k += 1
        k += 1


def downwards(x, y):
    k = x.shape[0]
    for i in range(x.shape[0] - 1, -1, -1):
        k -= 1
        y[k] = x[i]


def by_a_number_of_the_call(x, y, step: int):
    k = 0
    for i in range(3):
        y[i] = x[k]
        k += step
    y[3] = k


def last_value(x, y):
    k = 5
    for i in range(2, x.shape[0], 3):
        y[i] = x[i]
        k += 6
    y[0] = k


def conditional(x, y):
    j = 0
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            y[j] = x[i]
            j += 1


def by_what_grows(x, y):
    j = 0
    k = 0
    for i in range(4):
        y[i] = x[k]
        k += j
        j += 1  # noqa: SIM113 - what is tested


def by_a_float(x, y):
    s = 1.0
    for i in range(x.shape[0]):
        y[i] = s * x[i]
        s += 0.25


def before(x, y):
    last = x[x.shape[0] - 1]
    for i in range(x.shape[0]):
        y[i] = x[i] + last
        last = x[i]
    y[0] = last


def two_before(x, y):
    a = 1.0
    b = 2.0
    for i in range(1, x.shape[0], 2):
        y[i] = a * b
        a = b
        b = x[i] * 3.0
    y[0] = a + b


def before_of_what_is_stored(x):
    last = 0.0
    for i in range(x.shape[0]):
        t = x[i]
        x[i] = x[i] + last
        last = t


def only_the_first(x, y):
    first = True
    for i in range(x.shape[0]):
        y[i] = 0.0 if first else x[i]
        first = False


def a_stop_that_the_loop_changes(counts: torch.Tensor, y):
    k = 0
    last = 7
    for i in range(counts[0]):
        counts[0] = 1
        k += 2
        last = i
    y[0] = k + last


def test_a_last_value_is_not_told_by_a_stop_that_has_changed() -> None:
    ours, theirs = ([torch.tensor([4]), torch.zeros(1, dtype=torch.float64)] for _ in range(2))
    closed(a_stop_that_the_loop_changes, *ours)
    weft.kernel(a_stop_that_the_loop_changes)(*ours)
    a_stop_that_the_loop_changes(*theirs)
    assert ours == theirs and theirs[1].item() == 11.0


@pytest.mark.parametrize(
    ("function", "shapes", "left", "transforms"),
    [
        (running, ((6,), (6,)), 0, {"i": 1}),
        (rows_of_a_triangle, ((4, 4), (17,)), 0, {"i": 1, "j": 1}),
        (downwards, ((5,), (5,)), 0, {"i": 1}),
        (by_a_number_of_the_call, ((7,), (4,), 2), 0, {"i": 1}),
        (by_a_number_of_the_call, ((7,), (4,), 0), 0, {"i": 1}),
        (last_value, ((9,), (9,)), 0, {"i": 1}),
        (last_value, ((2,), (2,)), 0, {"i": 1}),
        (conditional, ((6,), (6,)), 1, {}),
        (by_what_grows, ((9,), (4,)), 1, {"i": 1}),
        (by_a_float, ((6,), (6,)), 0, {"i": 1}),
        (before, ((6,), (6,)), 0, {"i": 1}),
        (before, ((1,), (1,)), 0, {"i": 1}),
        (two_before, ((8,), (8,)), 0, {"i": 2}),
        (two_before, ((1,), (1,)), 0, {"i": 2}),
        (before_of_what_is_stored, ((6,),), 1, {}),
        (only_the_first, ((6,), (6,)), 0, {"i": 1}),
    ],
)
def test_closed_forms(function: Callable[..., Any], shapes: tuple[Any, ...], left: int, transforms: dict[str, int]) -> None:
    args = [numbers(*s) if isinstance(s, tuple) else s for s in shapes]
    after, done = closed(function, *args)
    assert len(carried(after)) == left
    assert {var: len(reasons) for var, reasons in done.items()} == transforms


def test_a_loop_whose_carry_is_closed_is_parallel_and_says_why() -> None:
    verdict = schedule(parsed(running, numbers(6), numbers(6))).loops[0]
    assert verdict.kind == "parallel"
    assert verdict.requires[0] == "induction: j in closed form"
    verdict = schedule(parsed(before, numbers(6), numbers(6))).loops[0]
    assert verdict.kind == "parallel"
    assert verdict.requires[0] == "wrap-around: last_1 is what the iteration before gives"


def test_a_subscript_that_has_a_closed_form_is_checked_at_the_call() -> None:
    kernel = weft.kernel(running)
    x, y = numbers(6), numbers(5)
    with pytest.raises(weft.errors.OutOfRange):
        kernel(x, y)
    assert torch.equal(y, numbers(5))


@pytest.mark.parametrize("function", [running, downwards, last_value, by_a_float, before, two_before, only_the_first])
def test_the_whole_road(function: Callable[..., Any]) -> None:
    kernel = weft.kernel(function)
    for n in (1, 2, 8, 33):
        ours, theirs = ([numbers(n), torch.zeros(n, dtype=torch.float64)] for _ in range(2))
        kernel(*ours)
        function(*theirs)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("function", [running, before])
def test_the_cuda_of_a_closed_form_runs_on_the_simulator(function: Callable[..., Any]) -> None:
    report = weft.kernel(function).check("float32[70]", "float32[70]")
    assert report.ok, str(report)


# ---------------------------------------------------------------- random loops


def random_source(seed: int) -> str:
    """Nested loops with carries that grow, wrap around, depend on each other, or on the data."""
    r = random.Random(seed)
    lines = [
        "def program(x: torch.Tensor, p: int):",
        "    n = x.shape[0]",
        "    y = torch.zeros(400, dtype=torch.float64)",
        "    c = 0",
    ]
    names = ["u", "v", "w"][: r.randint(1, 3)]
    kinds = {}
    for name in names:
        kinds[name] = r.choice(["int", "int", "float"])
        start = {"int": ["0", "p", "n - 1", "2 * p + 1"], "float": ["0.0", "1.5", "x[0]"]}[kinds[name]]
        lines.append(f"    {name} = {r.choice(start)}")

    def update(loop: str, depth: int) -> None:
        name = r.choice(names)
        whole = [
            f"{name} + 3", f"{name} - 2", f"{name} + p", f"{loop}", f"2 * {loop} - p", f"{name} + {loop}", f"{name} + n + 1",
            f"{r.choice([m for m in names if kinds[m] == 'int'] or ['p'])}", "7",
        ]  # fmt: skip
        real = [f"x[{loop}]", f"{name} + 0.5", f"x[{loop}] * 0.5 + 1.0", f"{name} - 0.25", f"{name} + x[{loop}]", "2.0"]
        real += [m for m in names if kinds[m] == "float"]
        value = r.choice(whole if kinds[name] == "int" else real)
        if r.random() < 0.2:
            lines.append(f"{'    ' * depth}if x[{loop}] > 0.0:")
            lines.append(f"{'    ' * (depth + 1)}{name} = {value}")
        else:
            lines.append(f"{'    ' * depth}{name} = {value}")

    def use(loop: str, depth: int) -> None:
        name = r.choice(names)
        lines.append(f"{'    ' * depth}y[c % 400] = {name} + 0.5 * {loop}")
        lines.append(f"{'    ' * depth}c += 1")

    def nest(depth: int) -> None:
        loop = "ijk"[depth - 1]
        steps = ["range(n)", "range(1, n)", "range(n - 1, -1, -1)", "range(0, n, 2)", "range(1, n, 3)", "range(n - 2, 0, -2)"]
        if depth > 1:
            steps += [f"range({'ijk'[depth - 2]}, n)", f"range({'ijk'[depth - 2]} + 1)"]
        lines.append(f"{'    ' * depth}for {loop} in {r.choice(steps)}:")
        for _ in range(r.randint(1, 3)):
            r.choice([update, update, use])(loop, depth + 1)
        if depth < 3 and r.random() < 0.5:
            nest(depth + 1)
            r.choice([update, use])(loop, depth + 1)
        use(loop, depth + 1)

    for _ in range(r.randint(1, 2)):
        nest(1)
    lines += [f"    y[{390 + k}] = {name}" for k, name in enumerate(names)]
    return "\n".join([*lines, "    return y"]) + "\n"


@pytest.mark.parametrize("first", chunks(200, 20, 40))
def test_random_loops_keep_their_meaning(first: int) -> None:
    done = 0
    for seed in range(first, first + 20):
        source = random_source(seed)
        function = compiled(source, f"<carries {seed}>")
        program = normalize(parsed(function, numbers(1), 0))
        after = close(program)
        validate(after.function)
        done += bool(after.transforms)
        found = schedule(program)
        for n, p in ((1, -1), (2, 3), (5, 0)):
            expected = function(numbers(n), p)
            for result in (
                interpret(after.function, numbers(n), p)[0],
                replay(program, found, [numbers(n), p], random.Random(seed))[0],
            ):
                torch.testing.assert_close(result, expected, equal_nan=True, msg=lambda m: f"{m}\n{source}")  # noqa: B023
    assert done >= 5
