"""Dependences against brute force: programs are executed at small sizes, every access seen, every pair compared."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests.examples import chunks
from tests.fuzz_programs import arguments, compiled, generate
from tests.suites import polybench, tsvc
from tests.suites.case import Case
from tests.suites.execute import Cell, Machine, Node, Watch
from weft.cli import main
from weft.errors import WeftError
from weft.kernels import linrec
from weft.language import infer_types, parse, read_signature
from weft.loops.accesses import Access
from weft.loops.affine import Affine
from weft.loops.analyze import schedule
from weft.loops.dependences import Dependence, Program, dependences
from weft.loops.ir import For, Function, If, Let, Store, walk
from weft.loops.polyhedra import Polyhedra
from weft.pytorch.call import argument_types

ROOT = Path(__file__).parent.parent

Distance = tuple[int, ...]
Pair = tuple[str, str, str, str]  # kind, array, source, sink
Point = tuple[int, ...]
Observed = dict[Pair, dict[Distance, set[tuple[Point, Point]]]]


def found(function: Callable[..., Any]) -> dict[str, list[str]]:
    """The flow, WAR and WAW of a function in words."""
    out: dict[str, list[str]] = {"flow": [], "RAW": [], "WAR": [], "WAW": []}
    for d in dependences(parse(function, infer_types(function))):
        out[d.kind].append(str(d))
    return out


def test_a_recurrence() -> None:
    def running(x):
        for i in range(2, x.shape[0]):
            x[i] = x[i - 1] + x[i - 2]

    assert found(running)["flow"] == [
        "S1 -> S1 flow x at distance (1), carried by i",
        "S1 -> S1 flow x at distance (2), carried by i",
    ]


def test_isl_is_not_asked_of_lines_that_numbers_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(y, x):
        for j in range(x.shape[0]):
            y[0, j] = x[j]
        for j in range(x.shape[0]):
            y[1, j] = y[0, j] + x[j]

    asked: list[tuple[Affine | None, ...]] = []
    pair = Polyhedra._pair

    def noted(self: Polyhedra, a: Access, b: Access, *rest: Any) -> Any:
        asked.append((a.subscript[0], b.subscript[0]))
        return pair(self, a, b, *rest)

    monkeypatch.setattr(Polyhedra, "_pair", noted)
    (nest,) = schedule(parse(lines, infer_types(lines))).nests
    assert len(nest.axes) == 1
    assert asked and all(i == j for i, j in asked)


def test_conditions_on_a_parameter() -> None:
    def shifted(a, b, k: int):
        for i in range(b.shape[0]):
            a[i] = a[i + k] + b[i]

    told = dependences(parse(shifted, infer_types(shifted)))
    assert {(d.kind, d.condition) for d in told} == {("flow", "k < 0"), ("RAW", "k < 0"), ("WAR", "k > 0")}
    assert str(next(d for d in told if d.kind == "WAR").example) == "iterations (i = 0) and (i = 1) with b_size_0 = 2, k = 1"


def test_parity_keeps_elements_apart() -> None:
    def halves(a):
        for i in range(a.shape[0] // 2):
            a[2 * i] = a[2 * i + 1]

    assert not any(found(halves).values())


def test_a_last_write_hides_those_before_it() -> None:
    def twice(a, b):
        for i in range(a.shape[0]):
            a[i] = 1.0
            a[i] = 2.0
            b[i] = a[i]

    told = found(twice)
    assert told["flow"] == ["S2 -> S3 flow a at distance (0)"]
    assert told["RAW"] == ["S1 -> S3 RAW a at distance (0)", "S2 -> S3 RAW a at distance (0)"]
    assert told["WAW"] == ["S1 -> S2 WAW a at distance (0)"]


def test_scalars_carried_by_loops() -> None:
    def pair(x):
        a = 0.0
        b = 1.0
        for i in range(x.shape[0]):
            t = a + b
            a = b
            b = t
            x[i] = a

    assert found(pair)["flow"] == [
        "S1 -> S1 flow a at distance (2), carried by i",
        "S1 -> S1 flow b at distance (1), carried by i",
        "S1 -> S2 flow b at distance (1), carried by i",
    ]

    def rows(x, y):
        s = 0.0
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                s = s + x[i, j]
            y[i] = s

    assert "S1 -> S1 flow s at distance (0, 1), carried by j" in found(rows)["flow"]
    assert "S1 -> S1 flow s at distance (1, >=), carried by i" in found(rows)["flow"]


def test_what_is_not_affine_is_not_sure() -> None:
    def scattered(y, x, index):
        for i in range(x.shape[0]):
            y[int(index[i])] = x[i]

    assert found(scattered)["WAW"] == ["S1 -> S1 WAW y at distance (<), carried by i, perhaps"]


# ---------------------------------------------------------------- the graph


def test_a_condition_on_values_closes_a_cycle() -> None:
    def largest(a, y):
        m = 1.0 * a[0]
        for i in range(a.shape[0]):
            if a[i] > m:
                m = 1.0 * a[i]
            y[i] = m

    graph = weft.analyze(largest).graph
    assert [(s.label, s.loops, s.under) for s in graph.statements] == [
        ("S1", (), None), ("S2", ("i",), None), ("S3", ("i",), "S2"), ("S4", ("i",), None),
    ]  # fmt: skip
    assert graph.cycles == (("S2", "S3"),)
    assert graph.components == (("S1",), ("S2", "S3"), ("S4",))


def test_components_come_after_those_they_need() -> None:
    def backwards(a, b):
        for i in range(1, a.shape[0]):
            a[i] = b[i - 1] * 2.0
            b[i] = 1.0 + b[i]

    graph = weft.analyze(backwards).graph
    assert graph.components == (("S2",), ("S1",)) and graph.cycles == ()


def test_the_graph_as_json() -> None:
    told = json.loads(weft.analyze(linrec.py).graph.to_json())
    assert list(told) == ["format", "name", "statements", "arrows", "components"]
    assert list(told["statements"][0]) == ["label", "line", "text", "loops", "under"]
    assert list(told["arrows"][0]) == [
        "source", "sink", "kind", "name", "loops", "carrier", "distance", "condition", "when", "exact", "example",
    ]  # fmt: skip
    assert told["arrows"][0]["example"] == {
        "sizes": {"rows": 1, "length": 2}, "source": {"r": 0, "l": 0}, "sink": {"r": 0, "l": 1},
    }  # fmt: skip


def test_the_documentation_shows_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "explain.md").read_text()
    for form in ("graph", "graph-mermaid"):
        assert main(["explain", f"{ROOT}/weft/kernels/linrec.py:linrec", "--format", form]) == 0
        assert capsys.readouterr().out in text
    source = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "def coupled" in block)
    assert weft.analyze(source).graph.to_text() in text


# ---------------------------------------------------------------- brute force


@dataclass
class Recorder(Watch):
    """Every access of arrays in the order of execution, by element."""

    program: Program
    nodes: dict[Node, str]
    machine: Machine | None = None
    epoch: dict[str, int] = field(default_factory=dict)
    events: dict[Cell, list[tuple[bool, str, tuple[int, ...]]]] = field(default_factory=lambda: defaultdict(list))

    def see(self, cell: Cell, node: Node, write: bool) -> None:
        if cell[0] == "name":
            return
        assert self.machine is not None
        label = self.nodes[node]
        loops = self.loops[label]
        at = tuple(self.machine.names[var] for var in loops)
        self.events[cell[0], self.epoch.get(cell[0], 0), *cell[1:]].append((write, label, at))

    def __post_init__(self) -> None:
        self.loops = {s.label: s.loops for s in self.program.statements}

    def read(self, cell: Cell, node: Node) -> None:
        self.see(cell, node, False)

    def write(self, cell: Cell, node: Node) -> None:
        self.see(cell, node, True)

    def forget(self, array: str) -> None:
        self.epoch[array] = self.epoch.get(array, 0) + 1


def nodes(program: Program) -> dict[Node, str]:
    """The statement of everything that reads or writes when the nest is executed."""
    out: dict[Node, str] = {}
    for stmt in walk(program.function.body):
        label = program.labels.get(id(stmt))
        if label is not None:
            match stmt:
                case Let(name=name):
                    out["let", name] = label
                case Store():
                    out["store", id(stmt)] = label
                case If():
                    out["if", id(stmt)] = label
                    out |= {("merge", m.name): label for m in stmt.merges}
                case For():
                    out["bounds", stmt.var] = label
                    out |= {(role, c.name): label for c in stmt.carries for role in ("init", "next")}
    return out


def observe(program: Program, given: dict[str, Any]) -> tuple[Observed, dict[str, int]]:
    """The pairs of iterations that touch one element, by kind and statements; the values of sizes and numbers."""
    recorder = Recorder(program, nodes(program))
    machine = Machine(program.function, given)
    machine.watch = recorder
    recorder.machine = machine
    names = {s.name: machine.names[s.name] for s in program.function.sizes}
    names |= {s.name: machine.names[s.name] for s in program.function.scalars}
    machine.run()
    steps = {s.var: 1 if s.step > 0 else -1 for s in walk(program.function.body) if isinstance(s, For)}
    loops = recorder.loops
    seen: Observed = defaultdict(lambda: defaultdict(set))
    for (array, *_), events in recorder.events.items():
        last: tuple[str, tuple[int, ...]] | None = None
        before: dict[tuple[bool, str, tuple[int, ...]], None] = {}
        for write, label, at in events:
            pairs = [
                ("WAW" if w and write else "RAW" if w else "WAR", source, where)
                for w, source, where in before
                if w or write
            ]
            if not write and last is not None:
                pairs.append(("flow", *last))
            for kind, source, where in pairs:
                common = [v for v, u in zip(loops[source], loops[label], strict=False) if v == u]
                apart = tuple(steps[v] * (at[k] - where[k]) for k, v in enumerate(common))
                if source != label or any(apart):
                    seen[kind, array, source, label][apart].add((where, at))
            before[write, label, at] = None
            if write:
                last = label, at
    return seen, names


def matches(d: Dependence, distance: Distance) -> bool:
    signs = {"<": lambda x: x > 0, ">": lambda x: x < 0, "<=": lambda x: x >= 0, ">=": lambda x: x <= 0, "*": lambda x: True}
    carrier = next((d.loops[k] for k, x in enumerate(distance) if x), None)
    return carrier == d.carrier and all(
        x == a if isinstance(a, int) else signs[a](x) for x, a in zip(distance, d.distance, strict=True)
    )


def holds(d: Dependence, names: dict[str, Any]) -> bool:
    words = {"floord": lambda a, b: a // b, "min": min, "max": max}
    return d.when is None or bool(eval(d.when, words, dict(names)))


def compare(program: Program, told: tuple[Dependence, ...], seen: Observed, names: dict[str, Any]) -> int:
    """Every pair that happens is told; every dependence told to be exact, and to exist at these sizes, happens."""
    arrays = {a.name for a in program.function.arrays}
    at = {k: v for k, v in names.items() if isinstance(v, int)}
    for (kind, array, source, sink), distances in seen.items():
        candidates = [d for d in told if (d.kind, d.name, d.source, d.sink) == (kind, array, source, sink)]
        for distance in distances:
            assert any(matches(d, distance) and holds(d, at) for d in candidates), (
                f"{source} -> {sink} {kind} {array} at {distance} is not told at {at}: {[str(d) for d in candidates]}"
            )
    checked = 0
    for d in told:
        if d.name in arrays and d.exact and holds(d, at):
            checked += 1
            happened = seen.get((d.kind, d.name, d.source, d.sink), {})
            pairs = {pair for distance, some in happened.items() if matches(d, distance) for pair in some}
            assert pairs, f"{d} (when {d.when}) does not happen at {at}"
            assert d.example is not None
            if all(at[name] == value for name, value in d.example.sizes):
                first, second = (tuple(v for _, v in values) for values in (d.example.first, d.example.second))
                assert (first, second) in pairs, f"{d}: {d.example} does not happen"
    return checked


def check(function: Function, given: list[dict[str, Any]]) -> tuple[int, int]:
    """(exact dependences met, others than flow that may be) of a function, compared at several arguments."""
    program = Program.of(function)
    told = program.dependences()
    met = 0
    for one in given:
        try:
            seen, names = observe(program, one)
        except (IndexError, OverflowError):
            continue  # the Python fails there
        met += compare(program, told, seen, names)
    return met, sum(not d.exact and d.kind != "flow" for d in told)


def cases() -> list[Case]:
    return [*tsvc.SUITE.values(), *polybench.SUITE.values()]


@pytest.mark.parametrize("part", range(8))
def test_suites_by_brute_force(part: int) -> None:
    for case in cases()[part::8]:
        try:
            function = parse(case.function, infer_types(case.function))
        except WeftError:
            continue
        check(function, list(case.arguments(1)))


def sized(program: Any, function: Callable[..., Any], sizes: dict[str, int], seed: int) -> tuple[Function, dict[str, Any]]:
    args = [a.nan_to_num() if isinstance(a, torch.Tensor) else a for a in arguments(program, sizes, seed)]
    types = argument_types(read_signature(function), args)
    return parse(function, dict(zip(program.parameters, types, strict=True))), dict(zip(program.parameters, args, strict=True))


@pytest.mark.fuzz
@pytest.mark.parametrize("first", chunks(50, 10, 10))
def test_random_programs_by_brute_force(first: int) -> None:
    for seed in range(200_000 + first, 200_000 + first + 10):
        program = generate(seed)
        function = compiled(program.source, f"<program {seed} for dependences>")
        try:
            given = [sized(program, function, {"n": n, "m": m, "d": 2}, n) for n, m in ((3, 4), (1, 2), (4, 3))]
        except WeftError:
            continue
        check(given[0][0], [one for _, one in given])


# ---------------------------------------------------------------- random affine programs


def affine_program(seed: int) -> str:
    """Nests with steps of either sign, triangular bounds, guards, offsets, parity, an integer parameter."""
    draw = random.Random(seed)
    lines = ["def program(a: torch.Tensor, b: torch.Tensor, k: int):", "    n = b.shape[0]"]
    count = 0

    def index(variables: list[str], arity: int) -> str:
        def one() -> str:
            parts = draw.sample(variables, min(len(variables), draw.choice((1, 1, 2))))
            text = " + ".join(f"{draw.choice((1, 1, 2))} * {v}" for v in parts)
            return f"{text or '3'} + {draw.choice((3, 4, 5, 6))}" + draw.choice(("", "", " + k"))

        return ", ".join(one() for _ in range(arity))

    def element(variables: list[str]) -> str:
        return f"a[{index(variables, 1)}]" if draw.random() < 0.6 else f"b[{index(variables, 2)}]"

    def body(variables: list[str], depth: int) -> None:
        nonlocal count
        pad = "    " * (depth + 1)
        for _ in range(draw.choice((1, 2)) if depth else 2):
            what = draw.random()
            if what < 0.5 and depth < 3 or depth == 0:
                var = f"i{count}"
                count += 1
                low = draw.choice(["0", "1", *variables])
                head = draw.choice((f"{low}, 5", f"{low}, 6, 2", f"5, {low}, -1", f"6, {low}, -3"))
                lines.append(f"{pad}for {var} in range({head}):")
                body([*variables, var], depth + 1)
            else:
                inner = pad
                if what > 0.8:
                    v = draw.choice(variables)
                    guard = draw.choice((f"{v} > k", f"{v} % 2 == 0", f"{v} < 2 or {v} == 4", f"not ({v} == k)", f"{v} != 3"))
                    lines.append(f"{pad}if {guard}:")
                    inner += "    "
                lines.append(f"{inner}{element(variables)} = {element(variables)} + {element(variables)}")

    body([], 0)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("first", chunks(40, 10, 10))
def test_random_affine_programs_are_exact(first: int) -> None:
    met = 0
    for seed in range(first, first + 10):
        source = affine_program(seed)
        function = compiled(source, f"<affine program {seed}>")
        tensors = {"a": torch.ones(60, dtype=torch.float64), "b": torch.ones(60, 60, dtype=torch.float64)}
        given = [{**tensors, "k": k} for k in (-2, 0, 1, 3)]
        types = argument_types(read_signature(function), [*tensors.values(), 1])
        parsed = parse(function, dict(zip(("a", "b", "k"), types, strict=True)))
        try:
            exact, perhaps = check(parsed, given)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{source}") from None
        assert perhaps == 0, f"all of it is affine\n{source}"
        met += exact
    assert met > 20
