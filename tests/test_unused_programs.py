"""Random programs most of whose values nothing uses, at sizes of 0 to 3: they raise where the plain Python does, and nowhere
else.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_batch import Batch
from tests.fuzz_programs import compiled
from weft.errors import WeftError
from weft.runtime import host

POINTS, _FEW_POINTS = 40, 16  # calls of a program, and in the ordinary suite
_PROGRAMS, _TOGETHER = 6, 6  # in the ordinary suite; of one translation unit
_FLAGS = tuple({"-O3": "-O0", "-ffp-contract=fast": "-ffp-contract=off"}.get(f, f) for f in host.FLAGS)
_FAULTS = (IndexError, ZeroDivisionError, OverflowError, ValueError, RuntimeError)


class Programs:
    """Draws a program. x, v: float32 [n]; grid: float32 [n, m]; a: int64 [n], subscripts; b: int32 [n]; k: an int."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: list[tuple[str, str]] = []  # views that have a name, and of which rank
        self.places = ["0"]
        self.unsigned: set[str] = set()

    def source(self) -> str:
        self.lines = [
            "def program(x, v, grid, a, b, k: int):",
            "    n, m = grid.shape",
            "    used = x.shape[0] + v.shape[0] + a.shape[0] + b.shape[0]",
            "    y, z = torch.zeros(n), torch.zeros(3)",
            "    s, t, p, q = 0.0, 0.0, 0, 0",
        ]
        if self.chance(0.2):
            self.statement(1, 0)
        for _ in range(self.random.choice((1, 1, 2))):
            self.loop(1, 0)
        if self.chance(0.3):
            self.statement(1, 0)
        self.lines.append(f"    return y{self.random.choice(('', ', z', ', s + 0 * t', ', p + q'))}")
        return "\n".join(self.lines) + "\n"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def loop(self, depth: int, loops: int) -> None:
        var = "ijl"[loops]
        stop = self.random.choice(("n", "n", "m", "n - 1", "k", "int(b[0])" if self.chance(0.2) else "n", "3"))
        step = self.random.choice(("", "", "", f"{stop} - 1, -1, -1"))
        self.line(depth, f"for {var} in range({step or stop}):")
        known, rows = list(self.places), list(self.rows)
        self.places.append(var)
        if "b[" in stop:  # weft refuses subscripts below 0 in loops that data end
            self.unsigned.add(var)
        for _ in range(self.random.choice((1, 2, 2, 3, 4))):
            self.statement(depth + 1, loops + 1)
        self.places, self.rows = known, rows

    def statement(self, depth: int, loops: int) -> None:
        pick = self.random.random()
        if pick < 0.12 and loops in (1, 2) and depth < 5:
            return self.loop(depth, loops)
        if pick < 0.26 and depth < 5:
            self.line(depth, f"if {self.condition()}:")
            rows = list(self.rows)
            for _ in range(self.random.choice((1, 1, 2))):
                self.statement(depth + 1, loops)
            self.rows = rows
            if self.chance(0.3):
                self.line(depth, "else:")
                self.statement(depth + 1, loops)
                self.rows = rows
            return None
        if pick < 0.30 and loops:
            self.line(depth, f"if {self.condition()}:")
            return self.line(depth + 1, self.random.choice(("break", "continue")))
        if pick < 0.36:
            name = self.random.choice(("row", "column"))
            self.line(depth, f"{name} = grid[{self.index() if name == 'row' else ':, ' + self.index()}]")
            self.rows = [*[r for r in self.rows if r[0] != name], (name, name)]
            return None
        if pick < 0.62:
            return self.line(depth, f"{self.random.choice('st')} = {self.number()}")
        if pick < 0.74:
            return self.line(depth, f"{self.random.choice('pq')} = {self.integer()}")
        if pick < 0.90:
            return self.line(depth, f"y[{self.inner()}] {self.random.choice(('=', '=', '=', '+='))} {self.number()}")
        if pick < 0.97:
            return self.line(depth, f"z[{self.random.choice(('0', '1', '2', self.index()))}] = {self.number()}")
        return self.line(depth, f"{self.random.choice(('x', 'v'))}[{self.index()}] = {self.number()}")

    def inner(self) -> str:
        """A subscript of y that is inside more often than not."""
        return self.random.choice((*self.places, *self.places, "0", "-1", self.index()))

    def index(self, depth: int = 0) -> str:
        place = self.random.choice(self.places)
        before = place if place in self.unsigned else f"{place} - 1"
        usual = (place, place, place, f"{place} + 1", before, "k", "0", "1", "n - 1", f"a[{place}]", f"a[{place}]")
        return self.random.choice(
            usual
            + ((f"int(b[{self.index(1)}])", f"a[{self.index(1)}]", self.integer(1)) if depth == 0 else ())
        )

    def integer(self, depth: int = 0) -> str:
        choices = [
            lambda: str(self.random.choice((0, 1, 2, 3))),
            lambda: self.random.choice(("p", "q", "k", "n", "m", *self.places)),
            lambda: f"int(b[{self.index(1)}])",
            lambda: f"int(v[{self.index(1)}])",
        ]
        if depth < 2:
            choices += [
                lambda: f"6 {self.random.choice(('//', '%'))} {self.factor(depth)}",
                lambda: f"{self.factor(depth)} {self.random.choice(('+', '-', '*'))} {self.factor(depth)}",
                lambda: f"({self.integer(depth + 1)} if {self.condition(1)} else {self.integer(depth + 1)})",
                lambda: f"1 << {self.factor(depth)} % 5" if self.chance(0.5) else f"min({self.factor(depth)}, 2)",
            ]
        return self.random.choice(choices)()

    def factor(self, depth: int) -> str:
        text = self.integer(depth + 1)
        return text if text.isalnum() or text.startswith(("int(", "(")) and text.count("(") == 1 else f"({text})"

    def number(self, depth: int = 0) -> str:
        choices = [
            lambda: self.random.choice(("0.5", "1.0", "2.0", "s", "t")),
            lambda: f"x[{self.index()}]",
            lambda: f"v[{self.index()}]",
            lambda: f"grid[{self.index()}, {self.index()}]",
        ]
        choices += [lambda: f"{self.random.choice(self.rows)[0]}[{self.index(1)}]"] * (2 * bool(self.rows))
        if depth < 2:
            choices += [
                lambda: f"({self.number(depth + 1)} if {self.condition(1)} else {self.number(depth + 1)})",
                lambda: f"({self.number(depth + 1)} if {self.condition(1)} else {self.number(depth + 1)})",
                lambda: f"({self.number(depth + 1)} {self.random.choice('+-*')} {self.number(depth + 1)})",
                lambda: f"max({self.number(depth + 1)}, {self.number(depth + 1)})",
                lambda: f"math.{self.random.choice(('log', 'sqrt', 'exp'))}(v[{self.index(1)}])",
                lambda: f"(x[{self.index(1)}] * (1.0 / {self.factor(1)}))",
            ]
        return self.random.choice(choices)()

    def condition(self, depth: int = 0) -> str:
        choices = [
            lambda: f"v[{self.index(1)}] > 0",
            lambda: f"b[{self.index(1)}] < 2",
            lambda: " ".join(self.random.choice(c) for c in (self.places, ("<", ">", "=="), ("k", "1", "n - 1"))),
            lambda: f"0 <= a[{self.random.choice(self.places)}] < n",
            lambda: f"b[{self.random.choice(self.places)}] != 0",
        ]
        if depth < 2:
            choices += [
                lambda: f"({self.condition(depth + 1)} {self.random.choice(('and', 'or'))} {self.condition(depth + 1)})",
                lambda: f"not {self.condition(2)}",
                lambda: f"{self.integer(1)} > 1",
            ]
        return self.random.choice(choices)()


def arguments(seed: int) -> list[Any]:
    """Subscripts and divisors are in order more often than not."""
    draw = random.Random(seed)
    n, m = draw.choice((0, 1, 2, 3, 3)), draw.choice((0, 1, 2, 3, 3))
    bad = draw.random() < 0.5

    def some(usual: list[Any], rare: list[Any]) -> Any:
        return draw.choice(rare if bad and draw.random() < 0.25 else usual)

    x = torch.tensor([draw.choice((-1.0, 0.0, 0.5, 2.0)) for _ in range(n)])
    v = torch.tensor([some([0.5, 1.0, 2.0], [0.0, -1.0, 1000.0, float("nan")]) for _ in range(n)])
    grid = torch.tensor([draw.choice((-1.0, 0.0, 1.0)) for _ in range(n * m)]).reshape(n, m)
    a = torch.tensor([some(list(range(n)), [n, -n - 1, 3, -1]) for _ in range(n)], dtype=torch.int64)
    b = torch.tensor([some([1, 2, 3], [0, -1]) for _ in range(n)], dtype=torch.int32)
    return [x, v, grid, a, b, draw.choice((0, 1, 2))]


@dataclass
class Outcome:
    wrong: list[str] = field(default_factory=list)
    refusal: str = ""
    raised: int = 0
    equal: int = 0


def called(function: Any, args: list[Any]) -> tuple[Any, Exception | None]:
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        found = function(*own)
    except Exception as error:
        return None, error
    results = found if isinstance(found, tuple) else (found,)
    return [*(torch.as_tensor(r, dtype=torch.float64) for r in results), *own[:2]], None


def shown(error: Exception | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {error}".split("\n")[0]


def check(seed: int, points: int = POINTS) -> Outcome:
    out = Outcome()
    function = compiled(Programs(seed).source(), f"<unused {seed}>")
    kernel = weft.kernel(function)
    for point in range(points):
        args = arguments(1000 * seed + point)
        want, must = called(function, args)
        if must is not None and not isinstance(must, _FAULTS):
            continue  # a name that has no value
        found, error = called(kernel, args)
        at = [a.tolist() if isinstance(a, torch.Tensor) else a for a in args]
        constant = "is outside dimension" in str(error)  # is refused wherever it stands
        if isinstance(error, WeftError) and (constant or not isinstance(error, _FAULTS)):
            out.refusal = str(error)
            return out
        if error is not None and not isinstance(error, WeftError):
            out.wrong.append(f"{type(error).__name__}: {error} at {at}")
        elif (error is None) != (must is None):
            out.wrong.append(f"the Python raises {shown(must)}, weft {shown(error)} at {at}")
        elif must is not None:
            out.raised += 1
        elif not all(torch.allclose(f, w, rtol=1e-5, equal_nan=True) for f, w in zip(found, want, strict=True)):
            out.wrong.append(f"gives {found}, the Python {want} at {at}")
        else:
            out.equal += 1
    return out


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        count = metafunc.config.getoption("--programs") or _PROGRAMS
        metafunc.parametrize("first", range(0, count, _PROGRAMS))


def test_unused_values_raise_what_python_raises(
    first: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    points = POINTS if request.config.getoption("--programs") else _FEW_POINTS
    monkeypatch.setattr(host, "FLAGS", _FLAGS)
    monkeypatch.setattr(host.build, "__defaults__", (_FLAGS,))
    found: dict[int, Outcome] = {}

    def look(seed: int) -> None:
        try:
            found[seed] = check(seed, points)
        except Exception as error:
            found[seed] = Outcome([f"{type(error).__name__}: {error}"])

    seeds = range(first, first + _PROGRAMS)
    batch = Batch()
    with batch.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch.map(look, seeds, _TOGETHER)
    wrong = [f"{seed}:\n{Programs(seed).source()}{o.wrong[0]}" for seed, o in found.items() if o.wrong]
    assert not wrong, "\n\n".join(wrong)
    assert sum(o.raised > 0 for o in found.values()) > _PROGRAMS / 4
    assert sum(o.equal > 0 for o in found.values()) > _PROGRAMS / 4
