"""Which dimensions of a group's values are one, as they meet element by element, and which only happen to be equally long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import fx

from weft.dynamo.operators import (
    FOLDS,
    PRODUCTS,
    SELECTIONS,
    arguments,
    base,
    factors,
    is_constant,
    is_view,
    meta,
    name_of,
    shape_of,
)
from weft.dynamo.sizes import Size
from weft.dynamo.subscripts import viewed

Place = tuple[fx.Node, int]


class Dimensions:
    """The dimensions of values, in classes. inputs: values that a call tells the sizes of."""

    def __init__(self, nodes: Sequence[fx.Node], inputs: Sequence[fx.Node]) -> None:
        self._of: dict[Place, Place] = {}
        for node in nodes:
            for a, b in _meeting(node):
                self._of[self._class(a)] = self._class(b)
        places = [(n, d) for n in (*inputs, *nodes) if _is_tensor(n) for d in range(meta(n).dim())]
        classes = dict.fromkeys(self._class(p) for p in places if self.size(p) != 1)
        lengths = Counter(self.size(c) for c in classes)
        told = {self._class((n, d)) for n in inputs for d in range(meta(n).dim())}
        apart = [c for c in classes if c in told and isinstance(self.size(c), int) and lengths[self.size(c)] > 1]
        self._names = {c: f"n{k}" for k, c in enumerate(apart)}

    def size(self, place: Place) -> Size:
        return shape_of(place[0])[place[1]]

    def name(self, node: fx.Node, dim: int) -> str | None:
        """What a dimension is called that others are as long as without meeting it."""
        return self._names.get(self._class((node, dim)))

    def _class(self, place: Place) -> Place:
        while place in self._of and self._of[place] != place:
            place = self._of[place]
        return place


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(meta(node), torch.Tensor)


def _meeting(node: fx.Node) -> Iterator[tuple[Place, Place]]:
    """The dimensions of what an operator makes, and those that they are of what it reads."""
    if node.op != "call_function" or not _is_tensor(node) or is_constant(node):
        return
    name, own = name_of(node), shape_of(node)
    if is_view(node):
        at = tuple(f"d{k}" for k in range(len(own)))
        whole = base(node)
        for d, (subscript, length) in enumerate(zip(viewed(node, at), shape_of(whole), strict=True)):
            if subscript in at and own[at.index(subscript)] == length:
                yield (node, at.index(subscript)), (whole, d)
    elif name in PRODUCTS:
        a, b = factors(node)
        yield from [((node, 0), (a, 0)), ((node, 1), (b, 1)), ((a, 1), (b, 0))]
        yield from _aligned(node, [n for n in node.all_input_nodes if n not in (a, b)])
    elif name in FOLDS or name == "getitem":
        fold = base(node) if name == "getitem" else node
        yield from _kept(node, fold)
    elif name not in SELECTIONS and name != "aten.select_scatter":
        yield from _aligned(node, node.all_input_nodes)


def _aligned(node: fx.Node, operands: Sequence[fx.Node]) -> Iterator[tuple[Place, Place]]:
    """The dimensions of operands that are repeated where they are 1."""
    own = shape_of(node)
    for operand in filter(_is_tensor, operands):
        lengths = shape_of(operand)
        shift = len(own) - len(lengths)
        yield from [((node, d + shift), (operand, d)) for d, s in enumerate(lengths) if s != 1 and own[d + shift] == s]


def _kept(node: fx.Node, fold: fx.Node) -> Iterator[tuple[Place, Place]]:
    """The dimensions that a fold leaves."""
    whole, given = fold.args[0], arguments(fold)
    assert isinstance(whole, fx.Node)
    rank, dims = meta(whole).dim(), given.get("dim")
    listed = dims if isinstance(dims, (list, tuple)) else [] if dims is None else [dims]
    folded = {d % rank for d in listed} or set(range(rank))
    if given.get("keepdim"):
        yield from [((node, d), (whole, d)) for d in range(rank) if d not in folded]
    else:
        yield from [((node, k), (whole, d)) for k, d in enumerate(d for d in range(rank) if d not in folded)]
