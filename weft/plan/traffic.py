"""How many bytes of memory a launch has to move, and how many its plan does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import prod

from weft.loops.affine import affine
from weft.loops.ir import Expr
from weft.plan.facts import Geometry
from weft.plan.machine import Machine

# What a launch costs by itself, in seconds; the part of a memory's bandwidth that streams reach. Measured (bench/results).
LAUNCH_SECONDS, REACHED = 2.5e-6, 0.87


@dataclass(frozen=True)
class Access:
    """What a launch reads or writes at the points of `axes`. sweeps: how often the plan goes through it."""

    array: str
    index: tuple[Expr, ...]
    axes: tuple[str, ...]
    written: bool = False
    sweeps: int = 1


@dataclass(frozen=True)
class Traffic:
    """Bytes that have to be read and written, each element once; moved: those that the plan reads and writes."""

    read: int
    written: int
    moved: int

    def floor(self, machine: Machine) -> float:
        """The seconds that a memory needs at the least."""
        return (self.read + self.written) / machine.bandwidth

    def estimate(self, machine: Machine) -> float:
        """The seconds that a launch takes about, if memory is what it waits for."""
        return LAUNCH_SECONDS + self.moved / (REACHED * machine.bandwidth)


def traffic(
    accesses: Iterable[Access], arrays: Mapping[str, Geometry], extents: Mapping[str, int], known: Collection[str]
) -> Traffic:
    """The bytes of a launch. extents: the points of each axis. known: names of numbers that are the same at all points.
    Elements that data choose count as if all were different.
    """
    numbers = frozenset(known)
    found: dict[tuple[str, bool], dict[object, tuple[int, int]]] = {}
    for a in accesses:
        if a.array not in arrays:
            continue
        # what differs by constants alone, as the neighbours of a stencil, touches the same elements but for the edges
        way = tuple(i if (form := affine(i)) is None else form.terms or form.constant for i in a.index)
        count = _elements(a, arrays[a.array], extents, numbers)
        ways = found.setdefault((a.array, a.written), {})
        most, sweeps = ways.get(way, (0, 0))
        ways[way] = max(most, count), max(sweeps, a.sweeps)
    read = written = moved = 0
    for (array, stored), ways in found.items():
        geometry = arrays[array]
        most = prod(n for n, s in zip(geometry.shape, geometry.strides, strict=True) if s)
        once = min(most, sum(count for count, _ in ways.values())) * geometry.dtype.size
        moved += once * max(sweeps for _, sweeps in ways.values())
        read, written = (read, written + once) if stored else (read + once, written)
    return Traffic(read, written, moved)


def _elements(access: Access, geometry: Geometry, extents: Mapping[str, int], known: frozenset[str]) -> int:
    """The elements that an access touches, at the most."""
    sides = []
    for index, size, stride in zip(access.index, geometry.shape, geometry.strides, strict=True):
        form = affine(index)
        if stride == 0:
            continue
        if form is None or not form.names - known <= extents.keys():
            sides.append(size)  # data decide
            continue
        steps = (abs(form.coefficient(a)) * max(0, extents[a] - 1) for a in form.names - known)
        sides.append(min(size, 1 + sum(steps)))
    return min(prod(sides), prod(extents[a] for a in access.axes if a in extents))
