"""`BlockGraph`: what one block of a grid computes of its tiles, turn by turn of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.errors import TypeMismatch
from weft.tensors.builder import Builder, Operand, Value, _number
from weft.tensors.ir import Attribute, Block, Node
from weft.tensors.shapes import block_of, output, tile
from weft.tensors.show import block_lines


class BlockGraph(Builder):
    """Tiles of tensors, operators on them, and what the blocks make together.

    grid: how many blocks there are along its axes x, y and z; loop: how many turns each of them has. fixed: whether the launch
    has just these, where that can be; else they say what is meant, and the planner cuts as it would.
    """

    def __init__(self, grid: Sequence[int], loop: int = 1, name: str = "block", *, fixed: bool = False) -> None:
        super().__init__(name)
        self._empty = replace(block_of(name, grid, loop), fixed=fixed)
        self._tensors: list[Node] = []

    @property
    def grid(self) -> tuple[int, ...]:
        return self._empty.grid

    @property
    def loop(self) -> int:
        return self._empty.loop

    @property
    def block(self) -> Block:
        """The graph as it is now."""
        return replace(self._empty, nodes=tuple(self._nodes.values()))

    @property
    def tensors(self) -> tuple[Node, ...]:
        """What its inputs are tiles of."""
        return tuple(self._tensors)

    @property
    def _block(self) -> Block:
        return self._empty

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockGraph):
            return NotImplemented
        return self.block == other.block

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<weft.graph.BlockGraph {self.name}>"

    def __str__(self) -> str:
        return "\n".join(block_lines(self.block))

    # ---- tensors and tiles

    def input(
        self, tensor: Value, input_map: Sequence[int] | None = None, forloop_dim: int = -1, *, name: str = ""
    ) -> Value:
        """The tile of a tensor of a kernel graph that a block has in a turn.

        input_map: for each axis of the grid, the dimension that it cuts into as many tiles as it has places; forloop_dim: the
        one that the loop cuts further; -1: none. Where tiles do not divide a dimension, the last ones are shorter.
        """
        if not isinstance(tensor, Value) or tensor.graph._block is not None:
            raise TypeMismatch(f"input: {tensor!r} is no tensor", remedy="pass a value of a kernel graph")
        given = (-1,) * len(self.grid) if input_map is None else input_map
        named = self._named(name or self._free(tensor.name), "input")
        made = self._add(tile(named, tensor.node, self._empty, given, forloop_dim))
        self._tensors.append(tensor.node)
        return made

    def output(self, value: Value, output_map: Sequence[int] | None = None, *, name: str = "") -> None:
        """Return the tensor that the blocks' tiles make: output_map says for each axis of the grid along which dimension its
        tiles lie side by side, and -1 where they are all the same.
        """
        node = self._own("output", value)
        assert isinstance(node, Node)
        given = (-1,) * len(self.grid) if output_map is None else output_map
        self._add(output(self._named(name, "output"), node, self._empty, given))

    def _free(self, name: str) -> str:
        known, number = name, 1
        while known in self._nodes:
            known, number = f"{name}_{number}", number + 1
        return known

    # ---- over the turns of the loop

    def accumulate(
        self, x: Value, kind: str = "none", *, size: int | None = None, eps: float | None = None,
        scale: Value | None = None, name: str = "",
    ) -> Value:  # fmt: skip
        """What the tiles of all turns make together, known after the loop.

        kind: "none" adds tiles element by element; "sum" adds all that is along the last dimension of all tiles, "mean" and
        "rms" (`sqrt(mean(x * x) + eps)`) divide by how many these are; "sum_to_dim" adds groups of neighbours along the
        last dimension, of which `size` stay; "max" takes the largest, element by element; "rescaled_sum" multiplies what
        there is by the turn's `scale` before it adds the turn's tile.
        """
        attributes: dict[str, Attribute] = {"kind": kind}
        inputs: tuple[Operand, ...] = (x,)
        for option, value, of in (("size", size, "sum_to_dim"), ("scale", scale, "rescaled_sum"), ("eps", eps, "rms")):
            if (value is None) != (kind != of) and not (option == "eps" and kind == "rms"):
                raise TypeMismatch(
                    f"accumulate({x.name}, {kind!r}): {option} is {'missing' if value is None else 'given'}",
                    remedy=f"pass {option} with the kind {of!r}, and with no other",
                )
        if kind == "sum_to_dim":
            assert size is not None
            attributes["size"] = size
        if kind == "rms":
            attributes["eps"] = _number(1e-6 if eps is None else eps)
        if scale is not None:
            inputs = (x, scale)
        return self._make("accumulate", inputs, attributes, name)

    def running_max(self, x: Value, *, name: str = "") -> Value:
        """The largest of the tiles of this turn and those before it, element by element, in every turn."""
        return self._make("running_max", (x,), {}, name)

    def previous(self, x: Value, first: float, *, name: str = "") -> Value:
        """What a tile was in the turn before; a number in the first one."""
        return self._make("previous", (x,), {"first": _number(first)}, name)
