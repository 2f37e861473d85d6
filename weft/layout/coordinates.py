"""Coordinate strides: a stride that moves along named axes instead of along memory, as the boxes of TMA need.

`axis(0)` is one step along axis 0, `2 * axis(1)` two along axis 1; the values of a layout with such strides are
coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.symbolic import Size, substitute


class Coordinates:
    """A sum of steps along axes, immutable: a vector of integers (or symbolic sizes) with finitely many not 0."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Mapping[int, Any]) -> None:
        if any(type(a) is not int or a < 0 for a in steps):
            raise LayoutError(f"axes are numbered from 0: {list(steps)}")
        self._steps = tuple(sorted((a, step) for a, step in steps.items() if step != 0))

    @property
    def steps(self) -> tuple[tuple[int, Any], ...]:
        """(axis, steps) for each axis with any, ascending."""
        return self._steps

    def along(self, axis: int) -> Any:
        """The steps along one axis."""
        return dict(self._steps).get(axis, 0)

    def as_tuple(self, rank: int) -> tuple[Any, ...]:
        """The steps along axes 0 ... rank - 1. LayoutError where it steps along others."""
        if self._steps and self._steps[-1][0] >= rank:
            raise LayoutError(f"{self} steps along more than {rank} axes")
        return tuple([self.along(a) for a in range(rank)])

    def __add__(self, other: Any) -> Coordinates:
        if other == 0:
            return self
        if not isinstance(other, Coordinates):
            return NotImplemented
        steps = dict(self._steps)
        for a, step in other._steps:
            steps[a] = steps.get(a, 0) + step
        return Coordinates(steps)

    __radd__ = __add__

    def __mul__(self, scale: Any) -> Coordinates:
        if not isinstance(scale, (int, Size)):
            return NotImplemented
        return Coordinates({a: step * scale for a, step in self._steps})

    __rmul__ = __mul__

    def __neg__(self) -> Coordinates:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __eq__(self, other: object) -> bool:
        """Equal to another sum of the same steps; no steps at all are equal to 0."""
        if isinstance(other, Coordinates):
            return self._steps == other._steps
        return other == 0 and not self._steps

    def __hash__(self) -> int:
        return hash(self._steps) if self._steps else 0

    def __bool__(self) -> bool:
        return bool(self._steps)

    def substitute(self, values: Mapping[str, int]) -> Coordinates:
        return Coordinates({a: substitute(step, values) for a, step in self._steps})

    def __str__(self) -> str:
        return "+".join(f"{step}@{a}" for a, step in self._steps) or "0"

    __repr__ = __str__


def axis(number: int) -> Coordinates:
    """One step along this axis. Raises LayoutError for a negative one."""
    return Coordinates({number: 1})
