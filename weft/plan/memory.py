"""Places in one memory for what is there for some of the steps of a program only.

Two tenants that are there at one step lie apart. The memory is as small as it can be: the bytes of all that are there at one
step are its lower bound, and one of a few ways of putting tenants down in order reaches it nearly always; where none does, a
solver is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.plan.solver import MOST_WORK, find_solver, solve

# Tenants whose places are searched for; those that are put down in each order and way: beyond, in the first order alone.
MOST_SEARCHED, MOST_TRIED = 64, 512


@dataclass(frozen=True)
class Tenant:
    """What needs `bytes` of memory from step `first` to step `last`, both of them too, at a multiple of `alignment`."""

    name: str
    bytes: int
    first: int
    last: int
    alignment: int = 1

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.alignment < 1 or self.last < self.first:
            raise ValueError(f"{self} is no tenant: bytes below 0, an alignment below 1, or an end before its first step")

    def meets(self, other: Tenant) -> bool:
        """Whether there is a step at which both are there."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Placement:
    """Where tenants lie. size: of the whole memory, a multiple of what all alignments are. bound: what no placement is smaller
    than. apart: the size if none shared its bytes with another one. least: whether it is certain that none is smaller.
    """

    offsets: Mapping[str, int]
    size: int
    bound: int
    apart: int
    least: bool


def placed(tenants: Iterable[Tenant], worth: int = 1, most_work: float = MOST_WORK) -> Placement:
    """Places for tenants, the same ones for equal tenants in any order. worth: the bytes above the bound from which on a
    smaller placement is searched for, if OR-tools is there; most_work: what the search may take.
    """
    every = sorted(tenants, key=lambda t: (t.first, t.last, -t.bytes, -t.alignment, t.name))
    if len({t.name for t in every}) < len(every):
        raise ValueError(f"tenants of one name: {', '.join(sorted(t.name for t in every))}")
    unit = math.gcd(*(t.alignment for t in every)) if every else 1
    rounded = [Tenant(t.name, -(-t.bytes // unit) * unit, t.first, t.last, t.alignment) for t in every]
    full = [t for t in rounded if t.bytes]
    offsets = dict.fromkeys((t.name for t in every), 0)
    bound, least = 0, True
    for group in _groups(full):  # no two of different groups meet
        own, own_bound = _shortest(_put_down(group)), _bound(group)
        proven = own.size == own_bound
        if not proven and own.size - own_bound >= worth and len(group) <= MOST_SEARCHED and find_solver() is not None:
            own, proven = _searched(group, own, own_bound, most_work)
        offsets |= own.offsets
        bound, least = max(bound, own_bound), least and proven
    size = max((offsets[t.name] + t.bytes for t in full), default=0)
    return Placement(offsets, size, bound, _apart(full), least or size == bound)


def _bound(tenants: Sequence[Tenant]) -> int:
    """The bytes of the most that are there at one step, which is one at which one of them comes."""
    return max(sum(t.bytes for t in tenants if t.first <= step <= t.last) for step in {t.first for t in tenants})


def _apart(tenants: Iterable[Tenant]) -> int:
    end = 0
    for t in tenants:
        end = _next(end, t.alignment) + t.bytes
    return end


def _next(offset: int, alignment: int) -> int:
    """The first multiple of an alignment from an offset on."""
    return -(-offset // alignment) * alignment


def _groups(tenants: Sequence[Tenant]) -> Iterator[list[Tenant]]:
    """Tenants by their first step, split where one step has none of those before."""
    group: list[Tenant] = []
    for t in tenants:
        if group and t.first > max(other.last for other in group):
            yield group
            group = []
        group.append(t)
    if group:
        yield group


# ---------------------------------------------------------------- in order


@dataclass(frozen=True)
class _Put:
    offsets: Mapping[str, int]
    size: int


# Of the gaps (offset, bytes) that a tenant fits in, the one that it takes; the last one is what is behind all others.
Fit = Callable[[Sequence[tuple[int, int]]], int]
_FITS: tuple[Fit, ...] = (
    lambda gaps: gaps[0][0],  # the first
    lambda gaps: min(gaps[:-1] or gaps, key=lambda gap: gap[1])[0],  # the best: the smallest
    lambda gaps: (gaps[:-1] or gaps)[-1][0],  # the last
)
_ORDERS: tuple[Callable[[Tenant], tuple[int, ...]], ...] = (
    lambda t: (t.first,),  # as they come
    lambda t: (-t.bytes, -(t.last - t.first)),
    lambda t: (-(t.last - t.first), -t.bytes),
    lambda t: (-t.bytes * (t.last - t.first + 1),),
    lambda t: (t.first, -t.bytes),
    lambda t: (-t.last, -t.bytes),
)


def _put_down(tenants: Sequence[Tenant]) -> Iterator[_Put]:
    """Tenants put down one after another, in several orders, each where it fits between those that it meets."""
    for order in _ORDERS if len(tenants) <= MOST_TRIED else _ORDERS[:1]:
        ordered = sorted(tenants, key=order)
        for fit in _FITS:
            yield _in_order(ordered, fit)


def _in_order(tenants: Sequence[Tenant], fit: Fit) -> _Put:
    down: list[tuple[int, Tenant]] = []
    size = 0
    for t in tenants:
        place = fit([*_gaps(t, [(offset, other) for offset, other in down if other.meets(t)])])
        down.append((place, t))
        size = max(size, place + t.bytes)
    return _Put({t.name: offset for offset, t in down}, size)


def _gaps(tenant: Tenant, around: list[tuple[int, Tenant]]) -> Iterator[tuple[int, int]]:
    """Where a tenant fits among others, by offset, and how many bytes are free there; at last behind all of them."""
    end = 0
    for offset, other in sorted(around, key=lambda down: down[0]):
        start = _next(end, tenant.alignment)
        if start + tenant.bytes <= offset:
            yield start, offset - end
        end = max(end, offset + other.bytes)
    yield _next(end, tenant.alignment), 0


def _shortest(ways: Iterable[_Put]) -> _Put:
    return min(ways, key=lambda put: put.size)  # the first of equal ones


# ---------------------------------------------------------------- by search


def _searched(tenants: Sequence[Tenant], known: _Put, bound: int, most_work: float) -> tuple[_Put, bool]:
    """The shortest placement, no longer than a known one, and whether it is known to be the shortest: rectangles, of steps and
    bytes, that do not overlap.
    """
    cp_model = find_solver()
    unit = math.gcd(*(t.bytes for t in tenants))
    if any(unit % t.alignment for t in tenants):
        unit = math.gcd(unit, *(t.alignment for t in tenants))
    # else what is pushed down lies at multiples of the unit by itself
    model = cp_model.CpModel()
    size = model.new_int_var(-(-bound // unit), known.size // unit, "size")
    steps, bytes_, places = [], [], {}
    for t in tenants:
        turn = max(1, t.alignment // unit)
        most = (known.size - t.bytes) // unit
        place = turn * model.new_int_var(0, most // turn, t.name)
        steps.append(model.new_fixed_size_interval_var(t.first, t.last - t.first + 1, ""))
        bytes_.append(model.new_fixed_size_interval_var(place, t.bytes // unit, ""))
        model.add(place + t.bytes // unit <= size)
        places[t.name] = place
    model.add_no_overlap_2d(steps, bytes_)
    model.add_cumulative(steps, [t.bytes // unit for t in tenants], size)
    model.minimize(size)
    solver, found, proven = solve(model, most_work)
    if not found:
        return known, proven
    return _Put({n: solver.value(p) * unit for n, p in places.items()}, solver.value(size) * unit), proven
