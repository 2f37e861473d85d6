"""What depends on a carried scalar: whatever differs between two executions that start with different ones is told."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.loops.algebra.flow import Flow, leaks
from weft.loops.interpret import _Machine
from weft.loops.ir import Carry, Const, Expr, For, Function, If, Let, Load, Merge, Op, Ref, Stmt, Store, free_names, walk_expr
from weft.loops.types import BOOL, FLOAT64, INT64

ARRAYS = ("a", "b", "c")
SIZE = 4
STARTS = (0.375, -1.5, 2.25)


class Bodies:
    """Random bodies of a loop that carries `h`: stores and loads, branches that merge, loops that carry, some of them reading
    each other's arrays.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fresh = 0

    def name(self, base: str) -> str:
        self.fresh += 1
        return f"{base}{self.fresh}"

    def value(self, floats: list[str], integers: list[str], depth: int = 2) -> Expr:
        kind = self.random.random()
        if depth == 0 or kind < 0.3:
            return self.random.choice([Ref(n, FLOAT64) for n in floats] + [Const(self.random.choice([0.5, 2.0]), FLOAT64)])
        if kind < 0.5:
            return Load(self.random.choice(ARRAYS), (self.place(floats, integers),), FLOAT64)
        a, b = self.value(floats, integers, depth - 1), self.value(floats, integers, depth - 1)
        if kind < 0.6:
            return Op("where", (self.test(floats, integers), a, b), FLOAT64)
        return Op(self.random.choice(["add", "sub", "mul", "max"]), (a, b), FLOAT64)

    def test(self, floats: list[str], integers: list[str]) -> Expr:
        return Op("gt", (self.value(floats, integers, 1), Const(0.25, FLOAT64)), BOOL)

    def place(self, floats: list[str], integers: list[str]) -> Expr:
        if self.random.random() < 0.15:
            return Op("where", (self.test(floats, []), Const(1, INT64), Const(2, INT64)), INT64)
        return self.random.choice([Ref(n, INT64) for n in integers] + [Const(k, INT64) for k in range(SIZE)])

    def block(self, floats: list[str], integers: list[str], depth: int) -> tuple[Stmt, ...]:
        """floats, integers: the names in scope, to which those of the block are added."""
        return tuple(self.statement(floats, integers, depth) for _ in range(self.random.randint(1, 4)))

    def statement(self, floats: list[str], integers: list[str], depth: int) -> Stmt:
        kind = self.random.random()
        if depth and kind < 0.2:
            condition = self.test(floats, integers)
            inside = [list(floats), list(floats)]
            then, orelse = (self.block(own, list(integers), depth - 1) for own in inside)
            merge = Merge(self.name("m"), *(self.value(own, integers, 1) for own in inside))
            floats.append(merge.name)
            return If(condition, then, orelse, (merge,))
        if depth and kind < 0.45:
            var, own = self.name("i"), list(floats)
            names = [self.name("s") for _ in range(self.random.randint(0, 2))]
            inits = [self.value(floats, integers, 1) for _ in names]
            stop = self.random.choice([Const(2, INT64), Const(3, INT64), self.place(floats, integers)])
            body = self.block((own := [*own, *names]), [*integers, var], depth - 1)
            carries = tuple(
                Carry(n, init, self.value(own, [*integers, var], 1), f"{n}_last") for n, init in zip(names, inits, strict=True)
            )
            floats += [c.result for c in carries]
            return For(var, Const(0, INT64), stop, 1, carries, body)
        if kind < 0.7:
            return Store(self.random.choice(ARRAYS), (self.place(floats, integers),), self.value(floats, integers))
        let = Let(self.name("t"), self.value(floats, integers))
        floats.append(let.name)
        return let


def machine(**names: Any) -> _Machine:
    function = Function("f", (), (), (), (), (), ())
    generator = torch.Generator().manual_seed(3)
    arrays = {n: torch.rand(SIZE, dtype=torch.float64, generator=generator) for n in ARRAYS}
    return _Machine(function, arrays, names)


def differing(first: _Machine, second: _Machine, names: list[str]) -> tuple[set[str], set[str]]:
    """The names and the arrays that are not the same after two executions."""
    arrays = {n for n in ARRAYS if not torch.equal(first.arrays[n], second.arrays[n])}
    return {n for n in names if first.names[n] != second.names[n]}, arrays


@given(st.integers(0, 1 << 30))
def test_what_differs_depends(seed: int) -> None:
    names = ["h"]
    body = Bodies(seed).block(names, [], 3)
    flow = Flow.of(body, ("h",))
    runs = [machine(h=h) for h in STARTS]
    for run in runs:
        run.run(body)
    for other in runs[1:]:
        changed, written = differing(runs[0], other, names)
        assert changed <= flow.names
        assert written <= flow.arrays


@given(st.integers(0, 1 << 30))
def test_what_differs_with_what_an_array_holds_depends_on_it(seed: int) -> None:
    names = ["h"]
    body = Bodies(seed).block(names, [], 3)
    flow = Flow.of(body, (), ("a",))
    first, second = machine(h=STARTS[0]), machine(h=STARTS[0])
    second.arrays["a"] += 1.5
    first.run(body)
    second.run(body)
    changed, written = differing(first, second, names)
    assert changed <= flow.names
    assert written <= flow.arrays


@given(st.integers(0, 1 << 30))
def test_a_value_that_is_not_read_again_is_told_by_its_expression(seed: int) -> None:
    """Of straight code: with the meanings of names in their place, a value that is not `reread` is an expression of `h` and
    of what the arrays held, wherever else it is evaluated: here, after everything.
    """
    names = ["h"]
    body = Bodies(seed).block(names, [], 0)
    flow = Flow.of(body, ("h",))
    meanings = {s.name: s.value for s in body if isinstance(s, Let)}
    loaded = {n for n, e in meanings.items() if flow.loads(e)}
    assert flow.reread <= loaded | {n for n in meanings if n in flow.names}
    first, second = machine(h=STARTS[0]), machine(h=STARTS[0])
    first.run(body)
    second.run(tuple(s for s in body if isinstance(s, Let)))  # nothing is stored
    kept = [n for n in meanings if n not in flow.reread]
    stored = {s.array for s in body if isinstance(s, Store)}
    for name in kept:
        if not reaches(meanings, name, flow.reread) and not loads_of(meanings, name) & (stored - flow.arrays):
            assert first.names[name] == second.names[name]


def reaches(meanings: dict[str, Expr], name: str, wanted: set[str]) -> bool:
    """Whether the value of a name is made from one of the wanted names."""
    return name in wanted or any(reaches(meanings, n, wanted) for n in free_names(meanings[name]) if n in meanings)


def loads_of(meanings: dict[str, Expr], name: str) -> set[str]:
    own = {e.array for e in walk_expr(meanings[name]) if isinstance(e, Load)}
    return own.union(*(loads_of(meanings, n) for n in free_names(meanings[name]) if n in meanings))


@given(st.integers(0, 1 << 30))
def test_what_leaks_into_a_loop_besides_what_it_starts_with(seed: int) -> None:
    """Some carries of the loop begin with the same values after two executions of what comes before it: what still differs
    of them leaks in through other names, through memory, and through what the other carries start with.
    """
    bodies = Bodies(seed)
    names = ["h"]
    before = bodies.block(names, [], 2)
    carries = 1 + seed % 2
    made = (bodies.statement(list(names), [], 2) for _ in range(1000))
    inner = next(s for s in made if isinstance(s, For) and len(s.carries) == carries)
    if carries > 1:  # one of them uses the other
        first, second = inner.carries
        used = Op("add", (second.next, Ref(first.name, FLOAT64)), FLOAT64)
        inner = replace(inner, carries=(first, replace(second, next=used)))
    outside = Flow.of((*before, inner), ("h",))
    own = {c.name for c in inner.carries if bodies.random.random() < 0.6}
    leaked = leaks(inner, outside, own)
    alike = tuple(replace(c, init=Const(0.625, FLOAT64)) if c.name in own else c for c in inner.carries)
    runs = [machine(h=h) for h in STARTS]
    for run in runs:
        run.run(before)
        run.run((replace(inner, carries=alike),))
    for other in runs[1:]:
        changed, _ = differing(runs[0], other, [c.result for c in inner.carries if c.name in own])
        told = {c.result for c in inner.carries if c.name in leaked.names} if not outside.depends(inner.stop) else changed
        assert changed <= told


def test_what_goes_through_memory_is_told() -> None:
    """h is stored and loaded again: no expression of h tells what t is."""
    zero, h = Const(0, INT64), Ref("h", FLOAT64)
    body = (Store("a", (zero,), h), Let("t", Load("a", (zero,), FLOAT64)), Let("u", Load("b", (zero,), FLOAT64)))
    flow = Flow.of(body, ("h",))
    assert (flow.names, flow.reread, flow.arrays) == ({"h", "t"}, {"t"}, {"a"})
