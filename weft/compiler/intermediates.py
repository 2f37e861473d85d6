"""The memory of a call for what its launches leave for each other: one allocation, shared by lifetime.

A step is a launch, or all of those that loops repeat together. An intermediate is there from the first step that has its
address to the last one, and its bytes are another one's before and after. That is safe where launches begin early, too: until
it has awaited the one before it, a launch writes nothing, and reads only what was whole when that one began
(weft.emit.dependent).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.compiler.launch import Grouped, Launch, grouped
from weft.compiler.sources import arguments
from weft.loops.ir import Array, Function
from weft.loops.types import ScalarType
from weft.plan.facts import Geometry
from weft.plan.memory import Placement, Tenant, placed

# Whole lines of L2, and what tensor maps and packets ask of an address.
ALIGNMENT = 256
# Bytes from which on memory that is 0 at first is another one's until its first launch; less is cleared before all launches,
# which then may begin before those before them have ended.
MUCH = 1 << 20
# Bytes that a search has to be able to save, for a first call to wait for it, and how long it may.
WORTH, MOST_WORK = 1 << 24, 1.0


@dataclass(frozen=True)
class Intermediate:
    """Memory that a call has while it runs. zero: it is 0 at first."""

    name: str
    type: ScalarType
    elements: int
    zero: bool = False

    @property
    def bytes(self) -> int:
        return self.elements * self.type.size


@dataclass(frozen=True)
class Workspace:
    """Which intermediates lie where. cleared: those that are 0 at first, by the step before which they are cleared."""

    tenants: tuple[Tenant, ...] = ()
    placement: Placement = field(default_factory=lambda: placed(()))
    cleared: Mapping[int, tuple[Tenant, ...]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.placement.size

    @property
    def offsets(self) -> Mapping[str, int]:
        return self.placement.offsets


def workspace(
    function: Function,
    arrays: Mapping[str, Geometry],
    steps: Sequence[Collection[str]],
    own: Iterable[Intermediate],
    clears: bool,
) -> Workspace:
    """A place for each intermediate: arrays that a function makes and does not return, and what its launches have besides.
    steps: the names that each step has the addresses of. arrays: of the function. clears: whether there is a way to clear
    memory between steps; without one, what is 0 at first is left out, as is what has other values.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, names in enumerate(steps):
        for name in names:
            first.setdefault(name, step)
            last[name] = step
    every = {i.name: i for i in (*_local(function, arrays), *own) if i.name in first}
    tenants: list[Tenant] = []
    cleared: dict[int, tuple[Tenant, ...]] = {}
    for name, one in every.items():
        if one.zero and not clears:
            continue
        begin = 0 if one.zero and one.bytes < MUCH else first[name]
        tenants.append(Tenant(name, one.bytes, begin, last[name], ALIGNMENT))
        if one.zero:
            cleared[begin] = (*cleared.get(begin, ()), tenants[-1])
    return Workspace(tuple(tenants), placed(tenants, WORTH, MOST_WORK), cleared)


def _local(function: Function, arrays: Mapping[str, Geometry]) -> Iterator[Intermediate]:
    """The arrays that a function makes and does not return, but for those that have other values than 0 at first."""
    for a in function.arrays:
        inside = a.role == "local" and not a.within and a.name not in function.results
        if inside and a.name in arrays and (a.fill is None or is_cleared(a)):
            yield Intermediate(a.name, a.dtype, arrays[a.name].span(), is_cleared(a))


def is_cleared(array: Array) -> bool:
    """Whether all bits of an array are 0 at first."""
    return array.fill is not None and array.fill.value == 0 and math.copysign(1, array.fill.value) > 0


def workspace_of(function: Function, arrays: Mapping[str, Geometry], launches: Sequence[Launch]) -> Workspace:
    """The same for the launches of a call on a GPU."""
    own = (i for one in launches for i in own_memory(one))
    return workspace(function, arrays, [frozenset(_pointers([item])) for item in grouped(launches)], own, clears=True)


def pointers(launch: Launch) -> tuple[str, ...]:
    """The memory that a launch has the addresses of, by the names of the call."""
    where = launch.where
    assert where is not None
    slots = arguments(where.analysis, launch.variant.nest, launch.variant.facts)
    arrays = [where.memory.get(s.array, s.array) for s in slots if s.kind == "pointer"]
    return *arrays, *(f"{where.path}.{name}" for name, *_ in launch.partial)


def own_memory(launch: Launch) -> tuple[Intermediate, ...]:
    """What a launch has besides the arrays of the call's function."""
    where = launch.where
    assert where is not None
    partial = (Intermediate(f"{where.path}.{name}", type_, n, launch.zero) for name, type_, n in launch.partial)
    mine = {*pointers(launch)}
    parts = {name: where.arrays[n] for n, name in where.memory.items() if name in mine}
    return *partial, *(Intermediate(name, g.dtype, g.span()) for name, g in parts.items())


def _pointers(program: Grouped) -> Iterator[str]:
    for item in program:
        if isinstance(item, Launch):
            yield from pointers(item)
        else:
            yield from _pointers(item[1])
