"""How many bytes of memory a launch has to move."""

from __future__ import annotations

from math import prod

import pytest

from weft.loops.ir import Const, Expr, Load, Op, Ref
from weft.loops.types import FLOAT32, INT64
from weft.plan.facts import Geometry
from weft.plan.machine import Machine
from weft.plan.traffic import Access, traffic

I, J = Ref("i", INT64), Ref("j", INT64)
EXTENTS = {"i": 100, "j": 40}


def array(*shape: int, strides: tuple[int, ...] | None = None) -> Geometry:
    dense = tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
    return Geometry(FLOAT32, shape, strides or dense, 0)


def plus(e: Expr, n: int) -> Expr:
    return Op("add", (e, Const(n, INT64)), INT64)


@pytest.mark.parametrize(
    ("accesses", "geometry", "elements"),
    [
        ([Access("x", (I, J), ("i", "j"))], array(100, 40), 4000),
        ([Access("x", (I, J), ("i", "j"))], array(100, 40, strides=(0, 1)), 40),  # one row, expanded
        ([Access("x", (J,), ("j",))], array(500), 40),  # a part of it
        ([Access("x", (plus(I, k),), ("i",)) for k in range(3)], array(103), 100),  # neighbours: each element once
        ([Access("x", (I, Const(k, INT64)), ("i",)) for k in range(3)], array(100, 3), 300),  # columns of their own
        ([Access("x", (Load("at", (I,), INT64), J), ("i", "j"))], array(30, 40), 1200),  # as many as there are
        ([Access("x", (Load("at", (I,), INT64), J), ("i", "j"))], array(900, 40), 4000),  # as many as points
        ([Access("x", (plus(I, 1), J), ("i", "j")), Access("x", (J, I), ("i", "j"))], array(100, 100), 8000),
    ],
)
def test_each_element_counts_once(accesses: list[Access], geometry: Geometry, elements: int) -> None:
    found = traffic(accesses, {"x": geometry}, EXTENTS, ())
    assert (found.read, found.written, found.moved) == (4 * elements, 0, 4 * elements)


def test_what_a_plan_reads_twice_is_moved_twice() -> None:
    x, y = Access("x", (I, J), ("i", "j"), sweeps=2), Access("y", (I, J), ("i", "j"), written=True)
    found = traffic([x, y], {"x": array(100, 40), "y": array(100, 40)}, EXTENTS, ())
    assert (found.read, found.written, found.moved) == (16000, 16000, 48000)
    machine = Machine(bandwidth=1e12)
    assert found.floor(machine) == pytest.approx(32e-9)
    assert found.estimate(machine) > found.floor(machine)
