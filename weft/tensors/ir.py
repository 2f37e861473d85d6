"""The tensor graph: operators on tensors, and on tiles of tensors inside blocks."""

from __future__ import annotations

from dataclasses import dataclass

Size = int | str  # a number, or the name of a size that a call tells
Attribute = int | float | str | tuple[int, ...]

GRID = ("x", "y", "z")
LOOP = "loop"
AXES = (*GRID, LOOP)


@dataclass(frozen=True)
class Dim:
    """A dimension of a value. size: that of the tensor. cut: what cuts it into tiles, the outermost first, and into how many:
    at most one axis of the grid, then the loop. A tile is what all but the last ones have, rounded up.
    """

    size: Size
    cut: tuple[tuple[str, int], ...] = ()

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for axis, _ in self.cut)


@dataclass(frozen=True)
class Node:
    """A value and the operator that makes it. inputs: names of values, and numbers. axes: those of the grid and the loop that
    it differs along. after: it is known after the loop alone. block: of `customized`, which has no value by itself.
    """

    name: str
    operator: str
    inputs: tuple[str | float, ...]
    attributes: tuple[tuple[str, Attribute], ...]
    dims: tuple[Dim, ...]
    dtype: str
    axes: tuple[str, ...] = ()
    after: bool = False
    block: Block | None = None

    def attribute(self, name: str) -> Attribute:
        return dict(self.attributes)[name]

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is a tuple of ints."""
        value = self.attribute(name)
        assert isinstance(value, tuple)
        return value

    def number(self, name: str) -> int:
        value = self.attribute(name)
        assert isinstance(value, int)
        return value


@dataclass(frozen=True)
class Block:
    """What a block of a grid does in `loop` turns: nodes "tile" are what it has of tensors, "output" what all blocks make.
    fixed: whether the launch has this grid and these turns, where it can.
    """

    name: str
    grid: tuple[int, ...]
    loop: int
    nodes: tuple[Node, ...]
    fixed: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Of each axis, how many places it has."""
        return {**dict(zip(GRID, self.grid, strict=False)), LOOP: self.loop}

    def of(self, operator: str) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.operator == operator)


@dataclass(frozen=True)
class Graph:
    """Operators on tensors. The nodes "input" are its parameters; outputs: the names of what it returns."""

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.operator == "input")
