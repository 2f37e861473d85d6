"""Renaming: loops that overwrite what later iterations read are free once the old elements are read from a copy."""

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
from weft.loops.automatic.renaming import renamings
from weft.loops.interpret import interpret
from weft.loops.ir import For, Function, validate, walk
from weft.loops.normalize import normalize
from weft.loops.schedule import Schedule
from weft.pytorch.call import argument_types

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def parsed(function: Callable[..., Any], args: list[Any]) -> Function:
    signature = read_signature(function)
    names = [p.name for p in signature.parameters]
    return parse(function, dict(zip(names, argument_types(signature, args), strict=True)))


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


def scheduled(function: Callable[..., Any], *runs: tuple[Any, ...]) -> Schedule:
    """The schedule for arguments like these; every renaming that is offered, and the schedule in a random order, compute
    for each of them what the Python does.
    """
    program = parsed(function, list(runs[0]))
    normal = normalize(program)
    offered = list(renamings(normal, frozenset(s.var for s in walk(normal.body) if isinstance(s, For))))
    found = schedule(program)
    for renaming in offered:
        validate(renaming.function)
    for args in runs:
        theirs = copied(args)
        expected = function(*theirs)
        expected = () if expected is None else expected if isinstance(expected, tuple) else (expected,)
        for renaming in offered:
            ours = copied(args)
            compare((*interpret(renaming.function, *ours), *ours), (*expected, *theirs), f"{renaming.whatever}")
        ours = copied(args)
        compare((*replay(program, found, ours, random.Random(0)), *ours), (*expected, *theirs), "the schedule")
    return found


def copied(args: tuple[Any, ...]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def compare(found: tuple[Any, ...], expected: tuple[Any, ...], what: str) -> None:
    for a, b in zip(found, expected, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, msg=lambda m: f"{what}: {m}")


def kinds(found: Schedule) -> dict[str, str]:
    return {v.var: v.kind for v in found.loops}


def renamed(found: Schedule) -> list[str]:
    return [f"{v.var}: {r}" for v in found.loops for r in v.requires if r.startswith("renaming")]


# ---------------------------------------------------------------- what is renamed, and what is not


def ahead(a, b):
    for i in range(a.shape[0] - 1):
        a[i] = a[i + 1] + b[i]


def ahead_downwards(a, b):
    for i in range(a.shape[0] - 2, -1, -1):
        a[i + 1] = a[i] + b[i]


def behind(a, b):
    for i in range(1, a.shape[0]):
        a[i] = a[i - 1] * a[i - 1] + b[i]


def both(a, b):
    for i in range(1, a.shape[0] - 1):
        a[i] = a[i - 1] * a[i + 1] * a[i - 1] + b[i]


def by_hand(a, b):
    for i in range(0, a.shape[0] - 3, 3):
        a[i] = a[i + 1] * b[i]
        a[i + 1] = a[i + 2] * b[i]
        a[i + 2] = a[i + 3] * b[i]


def stored_twice(a, b):
    for i in range(a.shape[0] - 1):
        a[i] = b[i] + 1.0
        b[i] = a[i] * 2.0
        a[i] = b[i] + a[i + 1] * 3.0


def two_arrays(a, b):
    for i in range(a.shape[0] - 2):
        a[i] = a[i + 1] + b[i + 2]
        b[i] = a[i + 2] - b[i + 1]


def in_rows(aa):
    for r in range(aa.shape[0]):
        for i in range(aa.shape[1] - 1):
            aa[r, i] = aa[r, i + 1] * 2.0


def triangle(aa, bb):
    for i in range(bb.shape[0]):
        for j in range(bb.shape[1]):
            for k in range(i + 1, bb.shape[0]):
                bb[i, j] += aa[k, i] * bb[k, j]


def transposed_in_place(aa):
    for i in range(aa.shape[0]):
        for j in range(aa.shape[0]):
            aa[i, j] = aa[j, i] + 1.0


def repeated(a, b):
    for t in range(3):
        for i in range(a.shape[0] - 1):
            a[i] = a[i + 1] * a[i + 1] + b[t]


def made_here(b):
    a = b.clone()
    for i in range(b.shape[0] - 1):
        a[i] = a[i + 1] + b[i]
    return a


def partly_written(b):
    a = torch.empty_like(b)
    for i in range(1, b.shape[0]):
        a[i] = b[i]
    for j in range(b.shape[0] - 1):
        a[j] = a[j + 1] + b[j]
    return a


def under_a_condition(a, b, k: int):
    if k > 0:
        for i in range(a.shape[0] - k):
            a[i] = a[i + k] + b[i]


def by_data(a, ip):
    for i in range(a.shape[0]):
        a[i] = a[ip[i]] + 1.0


def made_of_what_was_there(a, b):
    s = 0.0
    for i in range(a.shape[0]):
        a[i] = s * 2.0
        s = b[i] + 1.0
        b[i] = a[i] - b[i]


def only_at_some(a, b):
    for i in range(a.shape[0]):
        if i < a.shape[0] - 2:
            a[i] = a[i + 2] + b[i]


_N = (numbers(9), numbers(9))


@pytest.mark.parametrize(
    ("function", "args", "expected", "renamings_"),
    [
        (ahead, _N, {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (ahead, (numbers(1), numbers(1)), {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (ahead_downwards, _N, {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (behind, _N, {"i": "sequential"}, []),
        (both, _N, {"i": "sequential"}, []),
        (by_hand, _N, {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (stored_twice, _N, {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (two_arrays, _N, {"i": "parallel"}, ["i: renaming: a and b are copied first"]),
        (in_rows, (numbers(4, 6),), {"r": "parallel", "i": "parallel"}, ["i: renaming: aa is copied first"]),
        (transposed_in_place, (numbers(4, 4),), {"i": "sequential", "j": "parallel"}, []),
        (repeated, _N, {"t": "sequential", "i": "sequential"}, []),
        (partly_written, (numbers(9),), {"i": "parallel", "j": "sequential"}, []),
        (by_data, (numbers(9), torch.arange(8, -1, -1)), {"i": "sequential"}, []),
        (only_at_some, _N, {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (made_of_what_was_there, _N, {"i": "parallel"}, []),  # what reads b runs before what stores it
        (under_a_condition, (*_N, 2), {"i": "parallel"}, ["i: renaming: a is copied first"]),
        (under_a_condition, (*_N, -2), {"i": "parallel"}, ["i: renaming: a is copied first"]),
    ],
)
def test_renamings(
    function: Callable[..., Any], args: tuple[Any, ...], expected: dict[str, str], renamings_: list[str]
) -> None:
    found = scheduled(function, args)
    assert kinds(found) == expected
    assert renamed(found) == renamings_


def test_a_triangle_of_sums_reads_the_rows_below_as_they_were() -> None:
    found = scheduled(triangle, (numbers(5, 5), numbers(5, 3)))
    assert kinds(found) == {"i": "parallel", "j": "parallel", "k": "reduction"}
    assert "i: renaming: bb is copied first" in renamed(found)


def test_a_copy_takes_what_is_read_alone_and_a_whole_array_where_that_is_not_known() -> None:
    def bounds(function: Callable[..., Any], *args: Any) -> list[str]:
        from weft.loops.show import show_expr

        found = schedule(parsed(function, list(args)))
        return [f"{show_expr(a.start)} .. {show_expr(a.stop)}" for a in found.nests[0].axes]

    assert bounds(ahead, *_N) == ["1 .. a_size_0"]
    assert bounds(ahead_downwards, *_N) == ["0 .. a_size_0 - 1"]
    assert bounds(by_hand, *_N) == ["3 .. a_size_0"]
    assert bounds(under_a_condition, *_N, 2) == ["0 .. a_size_0"]


def test_an_array_made_here_is_copied_once_it_is_whole() -> None:
    found = scheduled(made_here, (numbers(9),))
    assert kinds(found)["i"] == "parallel"
    assert renamed(found) == ["i: renaming: a is copied first"]


@pytest.mark.parametrize("function", [ahead, ahead_downwards, by_hand, stored_twice, two_arrays, only_at_some])
def test_the_whole_road(function: Callable[..., Any]) -> None:
    kernel = weft.kernel(function)
    for n in (0, 1, 2, 5, 33):
        ours, theirs = ([numbers(n), numbers(n)] for _ in range(2))
        kernel(*ours)
        function(*theirs)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool])
def test_a_copy_has_the_type_of_its_array(dtype: torch.dtype) -> None:
    def moved(a):
        for i in range(a.shape[0] - 1):
            a[i] = a[i + 1]

    ours, theirs = ((numbers(20) * 9).to(dtype) for _ in range(2))
    weft.kernel(moved)(ours)
    moved(theirs)
    assert torch.equal(ours, theirs)


def test_strided_arrays_and_gradients() -> None:
    kernel = weft.kernel(made_here)
    x = numbers(40)[::2].requires_grad_()
    kernel(x).square().sum().backward()
    y = numbers(40)[::2].requires_grad_()
    made_here(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def from_the_second(a: torch.Tensor) -> None:
    for i in range(1, a.shape[0] - 1):
        a[i] = a[i] + a[i + 1]
        a[i - 1] = a[i + 1]


@pytest.mark.parametrize(
    ("function", "shapes"), [(ahead, 2), (made_here, 1), (stored_twice, 2), (from_the_second, 1)]
)
def test_the_cuda_of_a_renamed_loop_runs_on_the_simulator(function: Callable[..., Any], shapes: int) -> None:
    report = weft.kernel(function).check(*["float32[70]"] * shapes)
    assert report.ok, str(report)


# ---------------------------------------------------------------- random loops


def random_source(seed: int) -> str:
    """Loops that read and write two arrays at small distances, some under conditions, some nested."""
    r = random.Random(seed)
    lines = ["def program(a: torch.Tensor, b: torch.Tensor, z: torch.Tensor):", "    n = a.shape[0]"]

    def element(var: str, write: bool) -> str:
        name = r.choice(["a", "a", "b"])
        d = r.choice([0, 0, 1, 1, 2, -1])
        return f"{name}[{var}{f' + {d}' if d > 0 else f' - {-d}' if d < 0 else ''}]"

    def statement(var: str, depth: int) -> None:
        value = " + ".join(f"0.5 * {element(var, False)}" for _ in range(r.randint(1, 3)))
        indent = "    " * depth
        if r.random() < 0.2:
            lines.append(f"{indent}if {r.choice([f'b[{var}] > 0.0', f'{var} < n - 3', f'{var} > 3'])}:")
            indent += "    "
        lines.append(f"{indent}{element(var, True)} = {value}")

    for _ in range(r.randint(1, 2)):
        header = r.choice(
            ["range(1, n - 2)", "range(1, n - 2)", "range(n - 3, 0, -1)", "range(1, n - 2, 2)", "range(n - 3, 0, -2)"]
        )
        if r.random() < 0.3:
            lines.append("    for r in range(z.shape[0]):")
            lines.append(f"        for i in {header}:")
            di, dr = r.choice([0, 1, -1]), r.choice([0, 0, 1])
            if dr:
                lines[-2] = "    for r in range(z.shape[0] - 1):"
            lines.append(f"            z[r, i] = z[r + {dr}, i + {di}] * a[i] + z[r, i + {r.choice([0, 1])}]")
            if r.random() < 0.4:
                lines.append(f"            b[i] = b[i] + z[r + {dr}, i]")
        else:
            lines.append(f"    for i in {header}:")
            for _ in range(r.randint(1, 3)):
                statement("i", 2)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("first", chunks(120, 20, 20))
def test_random_loops_keep_their_meaning(first: int) -> None:
    taken = 0
    for seed in range(first, first + 20):
        function = compiled(random_source(seed), f"<renaming {seed}>")
        taken += bool(renamed(scheduled(function, *((numbers(n), numbers(n + 1)[:n], numbers(3, n)) for n in (2, 4, 9)))))
    assert taken >= 3
