"""Calls that give views of a tensor."""

from __future__ import annotations

from collections.abc import Callable

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import shapes, slices, tensors
from weft.language.arguments import Arguments, dimension, size_of, static_int
from weft.language.builder import Builder
from weft.language.values import Computed, Static, Tuple, Value, View, describe, integer, number, tidy
from weft.loops.ir import ONE, ZERO, Const, Expr, Op
from weft.loops.types import INT64

# The methods, and functions of torch, that give views.
VIEWS = frozenset(
    (
        *("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "unsqueeze", "squeeze"),
        *("expand", "expand_as", "view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "unflatten"),
        *("narrow", "select", "unbind", "split", "split_with_sizes", "chunk"),
    )
)


def view_call(b: Builder, name: str, arguments: Arguments, x: View | Computed) -> Value:
    result = _VIEW_CALLS[name](b, arguments, x, len(x.dims))
    arguments.done()
    return result


def _several(arguments: Arguments, *names: str) -> tuple[Value, ...]:
    """Ints that are given one by one, or as one tuple."""
    given = arguments.rest() or (arguments.need(*names),)
    return given[0].items if len(given) == 1 and isinstance(given[0], Tuple) else given


def _permuted(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dims = tuple(dimension(d, rank) for d in _several(arguments, "dims"))
    if sorted(dims) != list(range(rank)):
        raise TypeMismatch(f"permute of {rank} dimensions by {list(dims)}", remedy="name each dimension once")
    return tensors.permute(x, dims)


def _transposed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    first = dimension(arguments.need("dim0", "axis0"), rank)
    second = dimension(arguments.need("dim1", "axis1"), rank)
    swap = {first: second, second: first}
    return tensors.permute(x, tuple(swap.get(k, k) for k in range(rank)))


def _t(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    if rank > 2:
        raise TypeMismatch(f"t of {describe(x)}", remedy="write transpose(-2, -1)")
    return tensors.permute(x, tuple(reversed(range(rank))))


def _moved(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    def dims(value: Value) -> list[int]:
        return [dimension(d, rank) for d in (value.items if isinstance(value, Tuple) else (value,))]

    source, target = dims(arguments.need("source")), dims(arguments.need("destination"))
    if len(source) != len(target) or len({*source}) < len(source) or len({*target}) < len(target):
        raise TypeMismatch(f"movedim of {source} to {target}", remedy="name as many places as dimensions, each once")
    rest = iter([k for k in range(rank) if k not in source])
    place = dict(zip(target, source, strict=True))
    return tensors.permute(x, tuple(place[k] if k in place else next(rest) for k in range(rank)))


def _unsqueezed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    return tensors.unsqueeze(x, dimension(arguments.need("dim"), rank + 1))


def _squeezed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.take("dim")
    if given is None:
        dims = [k for k in range(rank) if x.dims[k] == ONE]
        if any(not isinstance(d, Const) for d in x.dims):
            raise TypeMismatch("squeeze of sizes that are not constants", remedy="name the dimension: squeeze(dim)")
    else:
        dims = [dimension(d, rank) for d in (given.items if isinstance(given, Tuple) else (given,))]
    for dim in sorted(dims, reverse=True):
        if isinstance(x.dims[dim], Const) and x.dims[dim] != ONE:
            continue  # as PyTorch does
        b.require_equal(x.dims[dim], ONE, "of squeeze, which leaves a dimension out that has size 1")
        x = tensors.squeeze(x, dim)
    return x


def _expanded(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    items = _several(arguments, "size")
    shift = len(items) - rank
    return tensors.expand(b, x, tuple(x.dims[k - shift] if static_int(v) == -1 else size_of(v) for k, v in enumerate(items)))


def _like_another(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    other = arguments.need("other")
    if not isinstance(other, (View, Computed)):
        raise TypeMismatch(f"{arguments.name} of {describe(other)}", remedy="pass a tensor")
    if arguments.name.endswith("expand_as"):
        return tensors.expand(b, x, other.dims)
    return shapes.resized(b, x, other.dims, copies=arguments.name.endswith("reshape_as"))


def _sizes(values: tuple[Value, ...]) -> tuple[Expr | None, ...]:
    """Sizes, of which one may be -1: the one that follows from the others."""
    return tuple(None if static_int(v) == -1 else size_of(v) for v in values)


def _viewed(copies: bool) -> Callable[[Builder, Arguments, View | Computed, int], Value]:
    def view(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
        given = _several(arguments, "shape", "size")
        if len(given) == 1 and isinstance(given[0], Static):
            raise UnsupportedSyntax("a view as another dtype", remedy="convert with .to(dtype)")
        return shapes.resized(b, x, _sizes(given), copies)

    return view


def _flattened(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    first, last = arguments.take("start_dim"), arguments.take("end_dim")
    start = 0 if first is None else dimension(first, rank)
    end = rank - 1 if last is None else dimension(last, rank)
    if rank and end < start:
        raise TypeMismatch(f"flatten from dimension {start} to {end}", remedy="name the first one first")
    return shapes.resized(b, x, (*x.dims[:start], shapes.product(x.dims[start : end + 1]), *x.dims[end + 1 :]), copies=True)


def _unflattened(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim, sizes = dimension(arguments.need("dim"), rank), arguments.need("sizes")
    if not isinstance(sizes, Tuple):
        raise TypeMismatch(f"unflatten to {describe(sizes)}", remedy="pass a tuple of sizes")
    return shapes.split(b, x, dim, _sizes(sizes.items))


def _part(b: Builder, x: View | Computed, dim: int, item: slices.Item) -> View | Computed:
    """`x[:, ..., item]` with the item at this dimension."""
    full = slices.Slice(None, None, None)
    return slices.subscript(b, x, (*(full,) * dim, item))


def _piece(b: Builder, x: View | Computed, dim: int, start: Expr, size: Expr) -> View | Computed:
    stop = tidy(Op("add", (start, size), INT64))
    return _part(b, x, dim, slices.Slice(integer(start), integer(stop), None))


def _narrowed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim = dimension(arguments.need("dim"), rank)
    start, size = size_of(arguments.need("start")), size_of(arguments.need("length"))
    if isinstance(start, Const) and int(start.value) < 0:
        start = tidy(Op("add", (x.dims[dim], start), INT64))
    return _piece(b, x, dim, start, size)


def _selected(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim = dimension(arguments.need("dim"), rank)
    return _part(b, x, dim, arguments.need("index"))


def unpacked(b: Builder, x: View | Computed, count: int) -> tuple[View | Computed, ...]:
    """The parts of a tensor along its first dimension, which has as many as there are names."""
    b.require_equal(x.dims[0], Const(count, INT64), "of the names and the tensor that is unpacked")
    return tuple(_part(b, x, 0, number(k)) for k in range(count))


def _unbound(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.take("dim")
    dim = 0 if given is None else dimension(given, rank)
    moved = tensors.permute(x, (dim, *(k for k in range(rank) if k != dim)))
    size = x.dims[dim]
    if not isinstance(size, Const):
        return moved
    return Tuple(tuple(_part(b, moved, 0, number(k)) for k in range(int(size.value))))


def _unknown_pieces(arguments: Arguments) -> tuple[Value, ...]:
    raise UnsupportedSyntax(
        f"{arguments.name} into a number of tensors that is not a constant",
        remedy="loop over them with range, or say how many: x.view(3, -1), x.split([a, b]), x.chunk(3)",
    )


def _split(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.need("split_size_or_sections", "split_size", "split_sizes")
    axis = arguments.take("dim")
    dim = 0 if axis is None else dimension(axis, rank)
    if isinstance(given, Tuple):
        sizes = tuple(map(size_of, given.items))
    else:
        size, whole = static_int(given), x.dims[dim]
        if not size or size < 0 or not isinstance(whole, Const):
            return Tuple(_unknown_pieces(arguments))
        count = range(0, int(whole.value), size)
        sizes = tuple(Const(min(size, int(whole.value) - k), INT64) for k in count)
    pieces: list[Value] = []
    start: Expr = ZERO
    for size_ in sizes:
        pieces.append(_piece(b, x, dim, start, size_))
        start = tidy(Op("add", (start, size_), INT64))
    b.require_equal(x.dims[dim], start, "of split and the dimension that is split")
    return Tuple(tuple(pieces))


def _chunked(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    """Pieces of one size: that it divides the dimension is checked at the call."""
    count, axis = static_int(arguments.need("chunks")), arguments.take("dim")
    dim = 0 if axis is None else dimension(axis, rank)
    if count is None or count < 1:
        return Tuple(_unknown_pieces(arguments))
    parts = shapes.split(b, x, dim, (Const(count, INT64), None))
    return Tuple(tuple(_part(b, parts, dim, number(k)) for k in range(count)))


_VIEW_CALLS: dict[str, Callable[[Builder, Arguments, View | Computed, int], Value]] = {
    "permute": _permuted,
    **{name: _transposed for name in ("transpose", "swapaxes", "swapdims")},
    "t": _t,
    **{name: _moved for name in ("movedim", "moveaxis")},
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "expand": _expanded,
    **{name: _like_another for name in ("expand_as", "view_as", "reshape_as")},
    "view": _viewed(copies=False),
    "reshape": _viewed(copies=True),
    **{name: _flattened for name in ("flatten", "ravel")},
    "unflatten": _unflattened,
    "narrow": _narrowed,
    "select": _selected,
    "unbind": _unbound,
    **{name: _split for name in ("split", "split_with_sizes")},
    "chunk": _chunked,
}
