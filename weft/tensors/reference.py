"""What a tensor graph means in PyTorch: operator by operator, block by block, turn by turn."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from weft.tensors.ir import GRID, LOOP, Block, Graph, Node
from weft.tensors.operators import ELEMENTWISE, opmath

Tensor = torch.Tensor


def evaluate(graph: Graph, tensors: Sequence[Tensor], double: bool) -> Any:
    """What the graph returns. double: computed and returned in float64, and rounded nowhere."""
    given = iter(tensors)
    values: dict[str, Tensor] = {}
    made: dict[str, list[Tensor]] = {}
    for node in graph.nodes:
        if node.operator == "input":
            values[node.name] = next(given).to(_dtype("float64" if double else opmath(node.dtype)))
        elif node.block is not None:
            made[node.name] = _block(node.block, [values[v] for v in node.inputs if isinstance(v, str)], double)
        elif node.operator == "result":
            (whole,) = node.inputs
            assert isinstance(whole, str)
            values[node.name] = made[whole][node.number("output")]
        else:
            values[node.name] = _value(node, values, double)
    dtypes = {n.name: n.dtype for n in graph.nodes}
    results = [values[o] if double else values[o].to(_dtype(dtypes[o])) for o in graph.outputs]
    return results[0] if len(results) == 1 else tuple(results)


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def _value(node: Node, values: Mapping[str, Tensor], double: bool) -> Tensor:
    operands = [values[v] if isinstance(v, str) else v for v in node.inputs]
    if node.operator in ELEMENTWISE:
        numbers = [value for _, value in node.attributes]
        made = ELEMENTWISE[node.operator].meaning(*operands, *numbers)
        assert isinstance(made, Tensor)
        return made if double else made.to(_dtype(opmath(node.dtype)))
    tensors = [v for v in operands if isinstance(v, Tensor)]
    x = tensors[0]
    match node.operator:
        case "to":
            return x if double else x.to(_dtype(node.dtype)).to(_dtype(opmath(node.dtype)))
        case "matmul":
            dtype = torch.promote_types(x.dtype, tensors[1].dtype)
            return x.to(dtype) @ tensors[1].to(dtype)
        case "reduction":
            return _grouped(x, node.number("dim"), node.number("size"))
        case "reduction_max":
            return _largest(x, node.number("dim"))
        case "rms_norm":
            return x / _root(x.square().sum(-1, keepdim=True), x.shape[-1], node)
        case "concat":
            return torch.cat(tensors, node.number("dim"))
    raise AssertionError(node.operator)


def _grouped(x: Tensor, dim: int, size: int) -> Tensor:
    """Sums of neighbours along a dimension, of which so many stay."""
    if size == 1:
        return x.sum(dim, keepdim=True)
    return x.reshape(*x.shape[:dim], size, x.shape[dim] // size, *x.shape[dim + 1 :]).sum(dim + 1)


def _largest(x: Tensor, dim: int) -> Tensor:
    if x.shape[dim] == 0:
        return x.new_full((*x.shape[:dim], 1, *x.shape[dim + 1 :]), -torch.inf)
    return functools.reduce(torch.maximum, [x.narrow(dim, k, 1) for k in range(x.shape[dim])])


def _root(squares: Tensor, count: int, node: Node) -> Tensor:
    eps = node.attribute("eps")
    assert isinstance(eps, float)
    return torch.sqrt(squares / max(1, count) + eps)


# ---------------------------------------------------------------- blocks


def _block(block: Block, tensors: Sequence[Tensor], double: bool) -> list[Tensor]:
    """What the blocks of a grid make together."""
    outputs = block.of("output")
    parts: list[dict[tuple[int, ...], Tensor]] = [{} for _ in outputs]
    for place in itertools.product(*map(range, block.grid)):
        values = _one(block, place, tensors, double)
        for found, node in zip(parts, outputs, strict=True):
            (name,) = node.inputs
            assert isinstance(name, str)
            found[place] = values[name]
    return [_side_by_side(block, n, found) for n, found in zip(outputs, parts, strict=True)]


def _side_by_side(block: Block, node: Node, parts: Mapping[tuple[int, ...], Tensor]) -> Tensor:
    """The tiles of all blocks, along the dimensions that the axes of the grid are mapped to."""
    found = dict(parts)
    for axis in reversed(range(len(block.grid))):
        dim = node.integers("output_map")[axis]
        groups: dict[tuple[int, ...], list[Tensor]] = {}
        for place in sorted(found):
            groups.setdefault(place[:axis], []).append(found[place])
        found = {place: torch.cat(tiles, dim) if dim >= 0 else tiles[0] for place, tiles in groups.items()}
    return found[()]


def _one(block: Block, place: tuple[int, ...], tensors: Sequence[Tensor], double: bool) -> dict[str, Tensor]:
    """The values of a block at a place of the grid: those known after the loop, and those of the last turn."""
    before: dict[str, Tensor] = {}
    states: dict[str, _State] = {}
    for turn in range(block.loop):
        places = {**dict(zip(GRID, place, strict=False)), LOOP: turn}
        given = iter(tensors)
        values: dict[str, Tensor] = {}
        for node in block.nodes:
            names = [v for v in node.inputs if isinstance(v, str)]
            if node.operator == "tile":
                values[node.name] = _tile(node, next(given), places)
            elif node.operator == "accumulate":
                states.setdefault(node.name, _State(node)).take([values[v] for v in names])
            elif node.operator == "running_max":
                x = values[names[0]]
                values[node.name] = torch.maximum(before[node.name], x) if turn else x
            elif node.operator == "previous":
                first = node.attribute("first")
                assert isinstance(first, float)
                values[node.name] = before[names[0]] if turn else torch.full_like(values[names[0]], first)
            elif node.operator != "output" and not node.after:
                values[node.name] = _value(node, values, double)
        before = values
    values = before | {name: state.value for name, state in states.items()}
    for node in block.nodes:
        if node.after and node.operator != "accumulate":
            values[node.name] = _value(node, values, double)
    return values


def _tile(node: Node, tensor: Tensor, places: Mapping[str, int]) -> Tensor:
    for dim, own in enumerate(node.dims):
        size = tensor.shape[dim]
        for axis, parts in own.cut:
            size = -(-size // parts)
            first = min(places[axis] * size, tensor.shape[dim])
            tensor = tensor.narrow(dim, first, min(size, tensor.shape[dim] - first))
    return tensor


class _State:
    """An accumulator."""

    def __init__(self, node: Node) -> None:
        self.node, self.kind = node, node.attribute("kind")
        self.total: Tensor | None = None
        self.count = 0

    def take(self, operands: Sequence[Tensor]) -> None:
        """The operands of a turn."""
        x = operands[0]
        if self.kind in ("sum", "mean", "rms"):
            self.count += x.shape[-1]
            x = (x.square() if self.kind == "rms" else x).sum(-1, keepdim=True)
        elif self.kind == "sum_to_dim":
            x = _grouped(x, x.dim() - 1, self.node.number("size"))
        if self.total is None:
            self.total = x
        elif self.kind == "max":
            self.total = torch.maximum(self.total, x)
        elif self.kind == "rescaled_sum":
            self.total = self.total * operands[1] + x
        else:
            self.total = self.total + x

    @property
    def value(self) -> Tensor:
        assert self.total is not None
        if self.kind == "mean":
            return self.total / max(1, self.count)
        return _root(self.total, self.count, self.node) if self.kind == "rms" else self.total
