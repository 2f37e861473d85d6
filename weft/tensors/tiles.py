"""How long tiles are, and where in their tensor: as numbers where sizes are known, else as Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from weft.tensors.ir import LOOP, Dim, Graph, Size

Places = Mapping[str, str]  # of each axis, the text of the place at which a tile is looked at


def ceil_div(size: Size, parts: int) -> Size:
    if isinstance(size, int):
        return -(-size // parts)
    return f"(({size} + {parts - 1}) // {parts})"


def length(dim: Dim) -> Size:
    """Of a tile that is whole."""
    size = dim.size
    for _, parts in dim.cut:
        size = ceil_div(size, parts)
    return size


def exact(dim: Dim) -> bool:
    """Whether all tiles are whole."""
    size = dim.size
    for _, parts in dim.cut:
        if not isinstance(size, int) or size % parts:
            return False
        size //= parts
    return isinstance(size, int) or not dim.cut


def times(factor: str, size: Size) -> str:
    return factor if size == 1 else f"{factor} * {size}"


def start(dim: Dim, at: Places) -> str:
    """Where a tile starts in its tensor; "" for 0. An axis that `at` does not have is at its first place."""
    size, terms = dim.size, []
    for axis, parts in dim.cut:
        size = ceil_div(size, parts)
        if axis in at:
            terms.append(times(at[axis], size))
    return " + ".join(terms)


def stop(dim: Dim, at: Places) -> str:
    """Where it ends: of an axis that `at` does not have, after its last tile."""
    size, before, ends = dim.size, "", [str(dim.size)]
    left = dim.size
    for axis, parts in dim.cut:
        size = ceil_div(size, parts)
        if axis not in at:
            break
        whole = isinstance(left, int) and left % parts == 0
        left = size
        before = f"{before} + {times(at[axis], size)}" if before else times(at[axis], size)
        ends = [*(ends[:-1] if whole else ends), f"{before} + {size}"]
    return ends[0] if len(ends) == 1 else f"min({', '.join(reversed(ends))})"


def valid(dim: Dim, at: Places) -> str:
    """How many elements a tile has there."""
    if exact(dim):
        return str(length(dim))
    first = start(dim, at)
    return f"max(0, {stop(dim, at)} - ({first}))" if first else stop(dim, at)


def whole(dim: Dim, element: str, at: Places) -> str:
    """The place in the tensor of an element of a tile."""
    first = start(dim, at)
    if not first or element == "0":
        return first or element
    return f"{first} + {element}"


def without_loop(dim: Dim) -> Dim:
    """A dimension of what has been put together over the loop, element by element: its tiles were whole."""
    if LOOP not in dim.axes:
        return dim
    return Dim(length(dim))


def told(dim: Dim) -> str:
    size = length(dim)
    return str(size) if isinstance(size, int) or not dim.cut else f"{dim.size} / {' / '.join(str(n) for _, n in dim.cut)}"


def shape_told(dims: tuple[Dim, ...], dtype: str) -> str:
    return f"{dtype}[{', '.join(map(told, dims))}]"


def tiles_of(graph: Graph) -> tuple[tuple[str, int, Literal["grid", "turns"], int], ...]:
    """Into how many parts the blocks that are fixed cut the dimensions of what the graph takes: as `weft.kernel` has it."""
    inputs = {n.name for n in graph.inputs}
    found: list[tuple[str, int, Literal["grid", "turns"], int]] = []
    for node in graph.nodes:
        if node.block is None or not node.block.fixed:
            continue
        for tensor, tile in zip(node.inputs, node.block.of("tile"), strict=True):
            for k, dim in enumerate(tile.dims):
                for axis, parts in dim.cut:
                    if isinstance(tensor, str) and tensor in inputs and parts > 1:
                        found.append((tensor, k, "turns" if axis == LOOP else "grid", parts))
    return tuple(dict.fromkeys(found))
