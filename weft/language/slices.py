"""Subscripts: elements, slices, `...` and new axes, as views."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import OutOfRange, TypeMismatch, UnsupportedSyntax
from weft.language import bounds, parts
from weft.language.builder import Builder
from weft.language.kinds import converted, kinds_of
from weft.language.subscripts import position
from weft.language.values import Scalar, Static, Tensor, Tuple, Value, View, describe, difference, place, select, tidy
from weft.loops.ir import ONE, ZERO, Const, Expr, Op
from weft.loops.types import BOOL, INT64, UINT8


@dataclass(frozen=True)
class Slice:
    """`start:stop:step`; None where left out."""

    start: Value | None
    stop: Value | None
    step: Value | None


Item = Value | Slice


def subscript(builder: Builder, value: Tensor, items: tuple[Item, ...]) -> Tensor:
    """The part of a tensor that a subscript names."""
    items = _spread(items, len(value.dims))
    inside: Expr | None = None
    dims: list[Expr] = []
    axes: list[Expr] = []
    taken: list[tuple[int, Expr]] = []
    for item in items:
        if _is_none(item):
            dims.append(ONE)
            continue
        size = value.dims[len(axes)]
        if isinstance(item, Slice):
            offset, extent, step = _slice(builder, item, size)
            if isinstance(value, View) and (offset, extent) != (ZERO, size) and not _is_axis(builder, value, len(axes)):
                last = stepped(offset, step, tidy(Op("sub", (extent, ONE), INT64)))
                inside = both(inside, bounds.check(builder, offset, last, size))
            axes.append(stepped(offset, step, place(len(dims))))
            dims.append(extent)
        else:
            index = _index(builder, item, size, len(axes))
            if isinstance(value, View) and not _is_axis(builder, value, len(axes)):
                inside = both(inside, bounds.check(builder, index, index, size))
                builder.walks(value, len(axes))
            elif isinstance(value, View):
                taken.append((len(axes), index))
                constant = item.constant if isinstance(item, Scalar) else None
                if isinstance(constant, int) and constant < 0:
                    builder.ends.add((value.array, value.axes.index(place(len(axes))), -constant))
            axes.append(index)
    part = select(value, tuple(dims), tuple(axes))
    if isinstance(value, View) and dims:
        for dim, index in taken:
            parts.made(builder, value, dim, index)
        if inside is not None:
            parts.made_inside(builder, inside)
    return replace(part, inside=both(part.inside, inside)) if isinstance(part, View) and inside is not None else part


def both(one: Expr | None, other: Expr | None) -> Expr | None:
    return other if one is None else one if other is None else Op("and", (one, other), BOOL)


def _is_axis(builder: Builder, view: View, dim: int) -> bool:
    """Whether a dimension is all of an axis of the array, whose subscripts the call or the kernel checks."""
    shape = builder.arrays[view.array].shape
    return any(
        axis == place(dim) and builder.same_size(_unclipped(size), view.dims[dim])
        for axis, size in zip(view.axes, shape, strict=True)
    )


def _unclipped(size: Expr) -> Expr:
    """A size as the program writes it: an array has no less than 0 elements, whatever that is."""
    match size:
        case Op(name="max", args=(written, Const(value=0))):
            return written
    return size


def stepped(offset: Expr, step: int, at: Expr) -> Expr:
    """offset + step * at"""
    walked = at if step == 1 else Op("mul", (Const(step, INT64), at), INT64)
    return walked if offset == ZERO else tidy(Op("add", (offset, walked), INT64))


def _is_none(item: Item) -> bool:
    return isinstance(item, Static) and item.value is None


def _spread(items: tuple[Item, ...], rank: int) -> tuple[Item, ...]:
    """`...` and what is left out at the end, as full slices."""
    used = [k for k, item in enumerate(items) if not _is_none(item)]
    ellipses = [k for k in used if isinstance((e := items[k]), Static) and e.value is Ellipsis]
    if len(ellipses) > 1:
        raise UnsupportedSyntax("more than one ... in a subscript", remedy="write the slices out")
    missing = rank - (len(used) - len(ellipses))
    if missing < 0:
        raise TypeMismatch(
            f"{len(used) - len(ellipses)} subscripts for a tensor of {rank} dimension{'s' * (rank != 1)}",
            remedy="use one subscript for each dimension",
        )
    full = (Slice(None, None, None),) * missing
    if not ellipses:
        return (*items, *full)
    return (*items[: ellipses[0]], *full, *items[ellipses[0] + 1 :])


def _index(builder: Builder, item: Item, size: Expr, axis: int) -> Expr:
    """One subscript. Python's negative ones count from the end: constants, and those that tensors hold, are mapped."""
    if not isinstance(item, Scalar):
        what = describe(item)
        remedy = "write a loop over the elements and index with one int" if "tensor" in what else "use an int"
        raise TypeMismatch(f"a subscript that is {what}", remedy=remedy)
    if any(kind.scalar.category != "int" for kind in kinds_of(item)):
        raise TypeMismatch(f"a subscript that is {describe(item)}", remedy="use an int: int(...)")
    if any(kind.weight and kind.scalar == UINT8 for kind in kinds_of(item)):
        message = "a subscript that is one uint8 element"
        raise TypeMismatch(message, evidence=["PyTorch takes it for a mask"], remedy="use an int: int(...)")
    expr = position(builder, converted(item, INT64))
    if isinstance(expr, Const):
        return _constant(int(expr.value), size, axis)
    if builder.is_dynamic(expr):
        expr = builder.steady(expr)
        wrapped = Op("add", (expr, size), INT64)
        return Op("where", (Op("lt", (expr, ZERO), BOOL), wrapped, expr), INT64)
    return tidy(expr)


def _constant(index: int, size: Expr, axis: int) -> Expr:
    if isinstance(size, Const) and not -size.value <= index < size.value:
        raise OutOfRange(
            f"subscript {index} is outside dimension {axis}, which has size {size.value}",
            remedy=f"use a subscript from 0 to {int(size.value) - 1}" if size.value else "the dimension is empty",
        )
    if index >= 0:
        return Const(index, INT64)
    return tidy(Op("sub", (size, Const(-index, INT64)), INT64))


def _slice(builder: Builder, item: Slice, size: Expr) -> tuple[Expr, Expr, int]:
    """Where a slice starts, how many elements it has, and its step.

    Bounds are taken as they are, not cut off at the end of the array: reading beyond it is an error of the call.
    """
    step = 1
    if item.step is not None and not _is_none(item.step):
        constant = item.step.constant if isinstance(item.step, Scalar) else None
        if not isinstance(constant, int) or constant < 1:
            raise UnsupportedSyntax("a slice whose step is not a constant of 1 or more", remedy="write a loop")
        step = int(constant)
    start = _bound(builder, item.start, size, ZERO)
    stop = _bound(builder, item.stop, size, size)
    if item.stop is not None and stop != size:
        bounds.check_slice(builder, stop, size)
    extent = tidy(Op("sub", (stop, start), INT64))
    length = difference(builder.in_sizes(stop), builder.in_sizes(start))
    if length is not None:
        extent = Const(len(range(0, length, step)), INT64)
        if isinstance(size, Const) and isinstance(start, Const) and start.value + length > size.value:
            extent = Const(len(range(int(start.value), int(size.value), step)), INT64)
    elif step != 1:
        above = tidy(Op("add", (extent, Const(step - 1, INT64)), INT64))
        extent = Op("floordiv", (above, Const(step, INT64)), INT64)
    return start, extent, step


def _bound(builder: Builder, value: Value | None, size: Expr, default: Expr) -> Expr:
    if value is None or _is_none(value):
        return default
    if not isinstance(value, Scalar) or value.typed.scalar.category != "int":
        raise TypeMismatch(f"a slice bound that is {describe(value)}", remedy="use an int")
    if builder.is_dynamic(value.expr):
        raise UnsupportedSyntax("a slice bound that depends on what a tensor holds", remedy="write a loop")
    expr = position(builder, converted(value, INT64))
    if isinstance(expr, Const):
        if expr.value < 0:
            return tidy(Op("sub", (size, Const(-int(expr.value), INT64)), INT64))
        if isinstance(size, Const):
            return Const(min(int(expr.value), int(size.value)), INT64)
    return tidy(expr)


def take(value: Tuple, items: tuple[Item, ...]) -> Value:
    """A subscript of a tuple: a constant int or slice."""
    if len(items) != 1:
        raise TypeMismatch("several subscripts of a tuple", remedy="use one")
    item = items[0]
    count = len(value.items)
    if isinstance(item, Slice):
        ends: list[int | None] = []
        for bound in (item.start, item.stop, item.step):
            constant = bound.constant if isinstance(bound, Scalar) else None
            if not isinstance(constant, int) and bound is not None and not _is_none(bound):
                raise TypeMismatch("a slice of a tuple whose bounds are not constants", remedy="use numbers")
            ends.append(None if constant is None else int(constant))
        start, stop, step = ends
        return replace(value, items=value.items[start:stop:step])
    index = item.constant if isinstance(item, Scalar) else None
    if not isinstance(index, int):
        raise TypeMismatch(
            "a subscript of a tuple that is not a constant int",
            remedy="use a number, or loop over the tuple itself: for k, item in enumerate(...)",
        )
    if not -count <= index < count:
        raise OutOfRange(
            f"subscript {index} is outside a tuple of {count}", remedy=f"use one from {-count} to {count - 1}"
        )
    found: Value = value.items[index]
    return found
