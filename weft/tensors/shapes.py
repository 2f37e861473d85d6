"""Which dimensions and dtype a value has: the rules by which graphs are checked as they are built."""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft.errors import ShapeMismatch, TypeMismatch
from weft.tensors.ir import AXES, GRID, LOOP, Attribute, Block, Dim, Graph, Node, Size
from weft.tensors.operators import ACCUMULATORS, DTYPES, ELEMENTWISE, promoted
from weft.tensors.tiles import exact, length, shape_told, told, without_loop

_ONE = Dim(1)


@dataclass(frozen=True)
class Making:
    """An operator that is about to make a value. block: the one that it is inside, None on whole tensors."""

    operator: str
    inputs: tuple[Node | float, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    block: Block | None = None

    @property
    def values(self) -> tuple[Node, ...]:
        return tuple(v for v in self.inputs if isinstance(v, Node))

    def told(self) -> str:
        parts = [f"{v.name}: {shape_told(v.dims, v.dtype)}" if isinstance(v, Node) else repr(v) for v in self.inputs]
        return f"{self.operator}({', '.join(parts)})"

    def shape_error(self, what: str, remedy: str, *evidence: str) -> ShapeMismatch:
        return ShapeMismatch(f"{self.told()}: {what}", evidence=evidence, remedy=remedy)

    def type_error(self, what: str, remedy: str, *evidence: str) -> TypeMismatch:
        return TypeMismatch(f"{self.told()}: {what}", evidence=evidence, remedy=remedy)


def made(making: Making, name: str) -> Node:
    """The value that an operator makes. Raises ShapeMismatch or TypeMismatch where its inputs do not fit."""
    operator, values = making.operator, making.values
    _require_loop(making)
    if operator in ELEMENTWISE:
        _require_elementwise(making)
        dims = _broadcast(making, [v.dims for v in values])
    else:
        dims = _RULES[operator](making)
    dtype = making.attributes["dtype"] if operator == "to" else promoted([v.dtype for v in values])
    assert isinstance(dtype, str)
    axes = {a for v in values for a in v.axes}
    after = any(v.after for v in values) or operator == "accumulate"
    if operator == "accumulate":
        axes -= {LOOP}
    if operator == "running_max":
        axes |= {LOOP}
    inputs = tuple(v.name if isinstance(v, Node) else v for v in making.inputs)
    return Node(name, operator, inputs, tuple(making.attributes.items()), dims, dtype, ordered(axes), after)


def ordered(axes: set[str]) -> tuple[str, ...]:
    return tuple(a for a in AXES if a in axes)


# ---------------------------------------------------------------- what every operator asks for


def _require_loop(making: Making) -> None:
    """What is known after the loop alone meets nothing that differs from turn to turn."""
    after = [v for v in making.values if v.after]
    turning = [v for v in making.values if LOOP in v.axes]
    if after and (turning or making.operator in ("accumulate", "running_max", "previous")):
        evidence = [f"{v.name} is accumulated over the loop, and known after it" for v in after]
        evidence += [f"{v.name} differs from turn to turn" for v in turning]
        raise making.shape_error(
            "one is known after the loop, the operator runs in it" if not turning else "in the loop and after it",
            "accumulate the other first, or use another block graph for a second loop",
            *evidence,
        )


def _require_elementwise(making: Making) -> None:
    known = ELEMENTWISE[making.operator]
    if not making.values:
        raise making.type_error("no operand is a tensor", "compute with numbers in Python")
    for number in making.inputs:
        if isinstance(number, float) and math.isnan(number):
            raise making.type_error("an operand is nan", "pass a number")
    for name in known.attributes:
        value = making.attributes[name]
        if not isinstance(value, float) or math.isnan(value):
            raise making.type_error(f"{name} is {value!r}", f"pass a number as {name}")
    if making.operator == "clamp" and making.attributes["low"] > making.attributes["high"]:  # type: ignore[operator]
        raise making.type_error(
            f"low is {making.attributes['low']}, high is {making.attributes['high']}", "pass the smaller bound as low"
        )


def _broadcast(making: Making, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    rank = max(map(len, shapes))
    padded = [(*(_ONE,) * (rank - len(s)), *s) for s in shapes]
    return tuple(_joined(making, [s[d] for s in padded], d - rank) for d in range(rank))


def _joined(making: Making, dims: Sequence[Dim], position: int) -> Dim:
    """What dimensions that meet element by element become: one of 1 is repeated."""
    long = [d for d in dims if not is_one(d)]
    if not long:
        return dims[0] if all(d == dims[0] for d in dims) else _ONE
    if all(d == long[0] for d in long):
        return long[0]
    if all(exact(d) and length(d) == length(long[0]) for d in long) and exact(long[0]):
        return Dim(length(long[0]))
    raise making.shape_error(
        f"dimension {position} has {' and '.join(dict.fromkeys(map(told, long)))} elements",
        "give both the same size, or 1 to the one that is to be repeated"
        if all(not d.cut for d in long)
        else "let the same axes of the grid and the loop cut both, or choose numbers of tiles that divide the sizes",
        *_last_tiles(long),
    )


def _last_tiles(dims: Sequence[Dim]) -> tuple[str, ...]:
    ragged = dict.fromkeys(d for d in dims if d.cut and not exact(d))
    return tuple(f"the last tiles of {d.size} in {' times '.join(str(n) for _, n in d.cut)} are shorter" for d in ragged)


def is_one(dim: Dim) -> bool:
    """Whether a tile has one element along it, and is repeated where others have more."""
    return length(dim) == 1 and exact(dim)


def agree(first: Dim, second: Dim) -> bool:
    """Whether tiles have the same elements along both."""
    return first == second or (exact(first) and exact(second) and length(first) == length(second))


# ---------------------------------------------------------------- one rule an operator


def _matmul(making: Making) -> tuple[Dim, ...]:
    a, b = making.values
    if len(a.dims) < 2 or len(b.dims) < 2:
        raise making.shape_error("a matrix has two dimensions", "give it a dimension of 1")
    if not agree(a.dims[-1], b.dims[-2]):
        raise making.shape_error(
            f"the rows of the first have {told(a.dims[-1])} elements, the columns of the second {told(b.dims[-2])}",
            "what is summed over is the last dimension of the first and the last but one of the second",
            *_last_tiles((a.dims[-1], b.dims[-2])),
        )
    batch = _broadcast(making, [a.dims[:-2], b.dims[:-2]])
    return (*batch, a.dims[-2], b.dims[-1])


def _reduction(making: Making) -> tuple[Dim, ...]:
    (x,) = making.values
    dim, size = making.attributes["dim"], making.attributes.get("size", 1)
    assert isinstance(dim, int) and isinstance(size, int)
    if not 0 <= dim < len(x.dims):
        raise making.shape_error(f"there is no dimension {dim}", f"dimensions are 0 to {len(x.dims) - 1}")
    return (*x.dims[:dim], _grouped(making, x.dims[dim], size), *x.dims[dim + 1 :])


def _grouped(making: Making, dim: Dim, size: int) -> Dim:
    """What a dimension becomes that is summed in groups of neighbours."""
    whole = length(dim)
    if size == 1:
        return _ONE
    if size < 1 or not isinstance(whole, int) or not exact(dim) or whole % size:
        raise making.shape_error(
            f"{told(dim)} elements are not {size} groups of equally many",
            "choose a size that divides them; the tiles must all be whole and their size a number",
        )
    return Dim(size)


def _rms_norm(making: Making) -> tuple[Dim, ...]:
    (x,) = making.values
    if not x.dims:
        raise making.shape_error("a row has a dimension", "give it a dimension of 1")
    _require_number(making, "eps")
    return x.dims


def _concat(making: Making) -> tuple[Dim, ...]:
    a, b = making.values
    dim = making.attributes["dim"]
    assert isinstance(dim, int)
    if len(a.dims) != len(b.dims) or not 0 <= dim < len(a.dims):
        raise making.shape_error(f"along dimension {dim}", "both have the same number of dimensions, that one among them")
    if a.dtype != b.dtype:
        raise making.type_error("of two dtypes", "convert one with to(x, dtype)")
    sizes = [length(v.dims[dim]) for v in (a, b)]
    if not all(isinstance(s, int) and exact(v.dims[dim]) for s, v in zip(sizes, (a, b), strict=True)):
        raise making.shape_error(
            f"along dimension {dim} they have {told(a.dims[dim])} and {told(b.dims[dim])} elements",
            "choose sizes that are numbers, and numbers of tiles that divide them",
        )
    for d, (first, second) in enumerate(zip(a.dims, b.dims, strict=True)):
        if d != dim and not agree(first, second):
            raise making.shape_error(
                f"dimension {d} has {told(first)} and {told(second)} elements", "all others have equal sizes"
            )
    others = [p if p == q else Dim(length(p)) for p, q in zip(a.dims, b.dims, strict=True)]
    others[dim] = Dim(sum(s for s in sizes if isinstance(s, int)))
    return tuple(others)


def _to(making: Making) -> tuple[Dim, ...]:
    _require_dtype(making.attributes["dtype"], making.told())
    return making.values[0].dims


def _accumulate(making: Making) -> tuple[Dim, ...]:
    kind, x = making.attributes["kind"], making.values[0]
    if kind not in ACCUMULATORS:
        raise making.type_error(f"kind is {kind!r}", f"kinds are {', '.join(ACCUMULATORS)}")
    dims = x.dims
    if kind == "rescaled_sum":
        dims = _broadcast(making, [v.dims for v in making.values])
        if dims != x.dims:
            raise making.shape_error("the scale has more elements than the tile", "a scale is repeated over the tile")
    if kind == "rms":
        _require_number(making, "eps")
    last: tuple[Dim, ...] = ()
    if kind in ("sum", "mean", "rms", "sum_to_dim"):
        if not dims:
            raise making.shape_error("a row has a dimension", "give it a dimension of 1")
        size = making.attributes.get("size", 1)
        assert isinstance(size, int)
        dims, last = dims[:-1], (_grouped(making, dims[-1], size),)
    for position, dim in enumerate(dims):
        if LOOP in dim.axes and not exact(dim):
            raise making.shape_error(
                f"the tiles along dimension {position} are not all of one length",
                "let the loop cut it into tiles of one length, or reduce it in the loop first",
                *_last_tiles([dim]),
            )
    return (*map(without_loop, dims), *last)


def _running_max(making: Making) -> tuple[Dim, ...]:
    for position, dim in enumerate(making.values[0].dims):
        if LOOP in dim.axes and not exact(dim):
            raise making.shape_error(
                f"the tiles along dimension {position} are not all of one length", "let the loop cut it into equal tiles"
            )
    return tuple(map(without_loop, making.values[0].dims))


def _previous(making: Making) -> tuple[Dim, ...]:
    (x,) = making.values
    if LOOP not in x.axes:
        raise making.shape_error(f"{x.name} is the same in every turn", "use it itself")
    _require_number(making, "first")
    if any(LOOP in dim.axes for dim in x.dims):
        raise making.shape_error(f"{x.name} has other elements in every turn", "reduce the dimension that the loop cuts")
    return x.dims


_RULES: dict[str, Callable[[Making], tuple[Dim, ...]]] = {
    "matmul": _matmul,
    "reduction": _reduction,
    "reduction_max": _reduction,
    "rms_norm": _rms_norm,
    "concat": _concat,
    "to": _to,
    "accumulate": _accumulate,
    "running_max": _running_max,
    "previous": _previous,
}


def _require_number(making: Making, name: str) -> None:
    value = making.attributes[name]
    if not isinstance(value, float) or math.isnan(value):
        raise making.type_error(f"{name} is {value!r}", f"pass a number as {name}")


def _require_dtype(dtype: object, what: str) -> None:
    if dtype not in DTYPES:
        raise TypeMismatch(f"{what}: dtype is {dtype}", remedy=f"use one of {', '.join(DTYPES)}")


# ---------------------------------------------------------------- tensors and their tiles


def input_node(name: str, shape: Sequence[Size], dtype: str) -> Node:
    """A tensor that a graph takes."""
    told_so = f"input {name}: {dtype}[{', '.join(map(str, shape))}]"
    _require_dtype(dtype, told_so)
    if not shape:
        raise ShapeMismatch(f"{told_so}: it has no dimension", remedy="give it a dimension of 1")
    for size in shape:
        fine = is_name(size) if isinstance(size, str) else not isinstance(size, bool) and isinstance(size, int) and size >= 0
        if not fine:
            raise ShapeMismatch(f"{told_so}: {size!r} is no size", remedy="sizes are numbers from 0 on, or names")
    return Node(name, "input", (), (), tuple(Dim(s) for s in shape), dtype)


def is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and text not in ("torch", "math", "F", "range", "min", "max")


def tile(name: str, tensor: Node, block: Block, input_map: Sequence[int], forloop_dim: int) -> Node:
    """What a block has of a tensor in a turn: for each axis of the grid the dimension that it cuts, and that of the loop; -1
    for none.
    """
    making = Making("input", (tensor,), {}, block)
    input_map = _mapped(making, "input_map", input_map, len(tensor.dims))
    _require_dimension(making, "forloop_dim", forloop_dim, len(tensor.dims))
    cuts: list[list[tuple[str, int]]] = [[] for _ in tensor.dims]
    for axis, parts, dim in zip(GRID, block.grid, input_map, strict=False):
        if dim >= 0 and parts > 1:
            cuts[dim].append((axis, parts))
    for dim, cut in enumerate(cuts):
        if len(cut) > 1:
            raise making.shape_error(
                f"axes {' and '.join(a for a, _ in cut)} of the grid cut dimension {dim}",
                "let one axis cut it, into as many tiles as both",
            )
    if forloop_dim >= 0 and block.loop > 1:
        cuts[forloop_dim].append((LOOP, block.loop))
    dims = tuple(Dim(d.size, tuple(cut)) for d, cut in zip(tensor.dims, cuts, strict=True))
    axes = {a for d in dims for a in d.axes}
    attributes = (("input_map", input_map), ("forloop_dim", forloop_dim))
    return Node(name, "tile", (tensor.name,), attributes, dims, tensor.dtype, ordered(axes))


def output(name: str, value: Node, block: Block, output_map: Sequence[int]) -> Node:
    """The tensor that the tiles of all blocks make, each axis of the grid putting them side by side along a dimension."""
    making = Making("output", (value,), {}, block)
    output_map = _mapped(making, "output_map", output_map, len(value.dims))
    if LOOP in value.axes:
        raise making.shape_error(f"{value.name} differs from turn to turn", "accumulate it over the loop first")
    sizes = [d.size for d in value.dims]
    for dim in range(len(sizes)):
        along = [
            (axis, parts)
            for axis, parts, d in zip(GRID, block.grid, output_map, strict=False)
            if d == dim and parts > 1
        ]
        if len(along) > 1:
            raise making.shape_error(
                f"axes {' and '.join(a for a, _ in along)} of the grid lie along dimension {dim}",
                "let one axis lie along a dimension",
            )
        own, tiles = value.dims[dim], length(value.dims[dim])
        if own.cut and tuple(along) == own.cut:
            continue
        if own.cut and not exact(own):
            raise making.shape_error(
                f"the tiles along dimension {dim} are not all of one length",
                f"map axis {own.cut[0][0]} to dimension {dim}, or let it cut tiles of one length",
                *_last_tiles([own]),
            )
        parts = along[0][1] if along else 1
        if parts > 1 and not isinstance(tiles, int):
            raise making.shape_error(
                f"{parts} tiles of {told(own)} elements lie along dimension {dim}",
                "give that dimension a size that is a number",
            )
        sizes[dim] = tiles * parts if isinstance(tiles, int) else tiles
    for axis, parts, dim in zip(GRID, block.grid, output_map, strict=False):
        if dim < 0 and parts > 1 and axis in value.axes:
            raise making.shape_error(
                f"{value.name} differs along axis {axis} of the grid, which output_map maps to no dimension",
                f"map axis {axis} to a dimension, or reduce over it with another graph",
            )
    dims = tuple(Dim(s) for s in sizes)
    return Node(name, "output", (value.name,), (("output_map", output_map),), dims, value.dtype)


def _mapped(making: Making, what: str, given: Sequence[int], rank: int) -> tuple[int, ...]:
    assert making.block is not None
    if len(given) != len(making.block.grid):
        raise making.shape_error(
            f"{what} is {tuple(given)}, the grid {making.block.grid}", "give one dimension, or -1, for each axis of the grid"
        )
    for dim in given:
        _require_dimension(making, what, dim, rank)
    return tuple(given)


def _require_dimension(making: Making, what: str, dim: int, rank: int) -> None:
    if not isinstance(dim, int) or not -1 <= dim < rank:
        raise making.shape_error(f"{what} names dimension {dim}", f"dimensions are 0 to {rank - 1}, and -1 stands for none")


def block_of(name: str, grid: Sequence[int], loop: int) -> Block:
    """A block without nodes."""
    told_so = f"block graph {name}: grid {tuple(grid)}, {loop} turns"
    if not 1 <= len(grid) <= 3 or any(not isinstance(n, int) or n < 1 for n in grid):
        raise ShapeMismatch(told_so, remedy="a grid has 1 to 3 axes, of 1 place or more each")
    if not isinstance(loop, int) or loop < 1:
        raise ShapeMismatch(told_so, remedy="a loop has 1 turn or more")
    return Block(name, tuple(grid), loop, ())


# ---------------------------------------------------------------- the rules of a graph


def validate(graph: Graph) -> None:
    """Assert that a graph is one: names are made once and before they are used, and every value is what its operator makes of
    its inputs.
    """
    known: dict[str, Node] = {}
    for node in graph.nodes:
        assert node.name not in known, node.name
        inputs = tuple(known[v] if isinstance(v, str) else v for v in node.inputs)
        if node.operator == "customized":
            assert node.block is not None
            _validate_block(node.block, [v for v in inputs if isinstance(v, Node)])
        elif node.operator == "result":
            (block,) = (v.block for v in inputs if isinstance(v, Node))
            assert block is not None
            own = block.of("output")[node.number("output")]
            assert (node.dims, node.dtype) == (own.dims, own.dtype), node.name
        elif node.operator == "input":
            assert node == input_node(node.name, [d.size for d in node.dims], node.dtype), node.name
        else:
            assert node == made(Making(node.operator, inputs, dict(node.attributes)), node.name), node.name
        known[node.name] = node
    assert graph.outputs and all(o in known for o in graph.outputs)


def _validate_block(block: Block, tensors: Sequence[Node]) -> None:
    known: dict[str, Node] = {}
    tiles = iter(tensors)
    for node in block.nodes:
        assert node.name not in known, node.name
        if node.operator == "tile":
            tensor = next(tiles)
            now = tile(node.name, tensor, block, node.integers("input_map"), node.number("forloop_dim"))
            assert (node.dims, node.dtype, node.axes) == (now.dims, now.dtype, now.axes), node.name
        elif node.operator == "output":
            (value,) = node.inputs
            assert isinstance(value, str)
            assert node == output(node.name, known[value], block, node.integers("output_map")), node.name
        else:
            inputs = tuple(known[v] if isinstance(v, str) else v for v in node.inputs)
            assert node == made(Making(node.operator, inputs, dict(node.attributes), block), node.name), node.name
        known[node.name] = node
    assert next(tiles, None) is None and block.of("output")
