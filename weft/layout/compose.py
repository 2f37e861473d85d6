"""Composition: composition(A, B)(c) == A(B(c)) for every coordinate c of B, in a shape that refines B's.

A result is a sum over the modes of B, so it exists only where A(B(c)) is one: where stepping along several modes at
once loses no carry at a boundary of A. The closed form below decides that from residues alone, for any strides. What it
cannot decide (carries that cancel, runs that only the values show) is decided by evaluation, up to a limit; and the
answer is either right or a LayoutError with a coordinate at which no layout is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import gcd
from typing import Any

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Jumps, Layout, concatenate, from_modes, trusted
from weft.layout.recognise import Misfit, recognise
from weft.layout.tuples import product, show, unflatten

# Coordinates that are evaluated, at most, to decide what the closed form leaves open.
EVALUATED = 1 << 16


def compose(a: Layout, b: Layout, offset: Any = 0) -> Layout:
    """The layout R with R(c) == a(offset + b(c)) - a(offset). Raises LayoutError where there is none."""
    function = a.jumps
    composed = _closed_form(function, b, offset)
    return composed if composed is not None else _by_values(function, b, offset)


def _closed_form(function: Jumps, b: Layout, offset: Any) -> Layout | None:
    """The composition where residues prove it, None where they do not.

    For a mode x:w and a boundary p, let r = w mod p. A mode that stays below the boundary, (x - 1) r < p, adds at most
    (x - 1) r to its load. One that does not must reach it exactly: t = p / r steps, t dividing x; it is cut there and
    adds at most p - r. No carry is lost if the cuts of a mode divide each other and every load is below its boundary.
    """
    slope, boundaries, jumps = function
    room = [p - offset % p for p in boundaries] if offset else list(boundaries)
    flat_shape: list[Any] = []
    flat_stride: list[Any] = []
    leaves_shape: list[Any] = []
    leaves_stride: list[Any] = []
    nested = False
    for x, w in zip(b._flat_shape, b._flat_stride, strict=True):
        if type(w) is Coordinates:
            raise LayoutError(
                f"{b} walks along axes, not over integers: nothing can be composed after it", operation="composition"
            )
        cuts: list[Any] | None = None
        stride = slope * w
        if x == 1:
            stride = 0
        elif w:
            for i, p in enumerate(boundaries):
                q, r = divmod(w, p)
                stride += jumps[i] * q
                if r:
                    reach = (x - 1) * r
                    if reach < p:
                        room[i] -= reach
                    else:
                        cut, rest = divmod(p, r)
                        if rest or x % cut:
                            return None
                        room[i] -= p - r
                        if cut != x:
                            if cuts is None:
                                cuts = [cut]
                            elif cut not in cuts:
                                cuts.append(cut)
        if cuts is None:
            flat_shape.append(x)
            flat_stride.append(stride)
            leaves_shape.append(x)
            leaves_stride.append(stride)
            continue
        mode = _cut(function, x, w, stride, cuts)
        if mode is None:
            return None
        sizes, strides = mode
        flat_shape += sizes
        flat_stride += strides
        if len(sizes) == 1:
            leaves_shape += sizes
            leaves_stride += strides
        else:
            nested = True
            leaves_shape.append(tuple(sizes))
            leaves_stride.append(tuple(strides))
    for left in room:
        if left <= 0:
            return None
    shape = b._shape
    if type(shape) is not tuple:
        return trusted(leaves_shape[0], leaves_stride[0], tuple(flat_shape), tuple(flat_stride))
    if shape is b._flat_shape:
        new_shape: Any = tuple(leaves_shape)
        new_stride: Any = tuple(leaves_stride)
    else:
        new_shape = unflatten(leaves_shape, shape) if nested else shape
        new_stride = unflatten(leaves_stride, shape)
    return trusted(new_shape, new_stride, tuple(flat_shape), tuple(flat_stride))


def _cut(function: Jumps, x: Any, w: Any, stride: Any, cuts: list[Any]) -> tuple[list[Any], list[Any]] | None:
    """Sizes and strides of a mode x:w cut at these steps; None where they do not divide one another."""
    if len(cuts) > 1:
        cuts.sort()
    sizes: list[Any] = []
    strides = [stride]
    before: Any = 1
    last: Any = 1
    for cut in cuts:
        if cut % before:
            return None
        before = cut
        size, value = cut // last, function(w * cut)
        if value == size * strides[-1]:
            # The jumps of several boundaries cancel here: the run goes on.
            continue
        sizes.append(size)
        strides.append(value)
        last = cut
    if x % before:
        return None
    sizes.append(x // last)
    return sizes, strides


def _by_values(function: Jumps, b: Layout, offset: Any) -> Layout:
    """The composition by evaluation: first each mode alone, then all of them together."""
    zero = function(offset)
    parts: list[Layout] = []
    for m, (x, w) in enumerate(zip(b._flat_shape, b._flat_stride, strict=True)):
        part = _closed_form(function, Layout(x, w), offset)
        if part is None:
            if type(x) is not int or type(w) is not int:
                raise _unproven(function, b, m)
            values = [function(offset + w * c) - zero for c in range(min(x, EVALUATED))]
            found = recognise(values, x)
            if found is None:
                raise _unproven(function, b, m)
            if isinstance(found, Misfit):
                raise _no_run(function, b, offset, m, found)
            part = from_modes(*found)
        parts.append(part)
    _check_jointly(function, b, offset, parts)
    result = concatenate(*parts)
    if type(b.shape) is not tuple:
        return parts[0]
    shape = unflatten([p.shape for p in parts], b.shape)
    stride = unflatten([p.stride for p in parts], b.shape)
    return trusted(shape, stride, result.flat_shape, result.flat_stride)


def _check_jointly(function: Jumps, b: Layout, offset: Any, parts: list[Layout]) -> None:
    """Raise LayoutError unless the values of all modes add up at every coordinate.

    A coordinate matters only modulo the steps after which its mode comes back to the same residue of every boundary,
    which is of the last one: the boundaries divide each other.
    """
    boundaries = function.boundaries
    zero = function(offset)
    last = boundaries[-1] if boundaries else 1
    if not all(type(x) is int for x in (*b._flat_shape, *b._flat_stride, *boundaries, offset)):
        raise _unproven(function, b, None)
    sizes = [min(x, last // gcd(w, last)) for x, w in zip(b._flat_shape, b._flat_stride, strict=True)]
    if product(tuple(sizes)) > EVALUATED:
        for flat in _far_corners(b, boundaries):
            value = function(offset + sum(c * w for c, w in zip(flat, b._flat_stride, strict=True)))
            total = zero + sum([part(c) for part, c in zip(parts, flat, strict=True)], 0 * zero)
            if value != total:
                raise _lost_carry(function, b, offset, flat, value, total)
        raise _unproven(function, b, None)
    reached = [offset]
    summed = [0 * zero]
    for m, (size, w) in enumerate(zip(sizes, b._flat_stride, strict=True)):
        values = [parts[m](c) for c in range(size)]
        reached = [v + w * c for c in range(size) for v in reached]
        summed = [v + value for value in values for v in summed]
    for i, (v, total) in enumerate(zip(reached, summed, strict=True)):
        if function(v) - zero != total:
            flat = []
            for size in sizes:
                i, c = divmod(i, size)
                flat.append(c)
            raise _lost_carry(function, b, offset, flat, function(v), total + zero)


def _far_corners(b: Layout, boundaries: tuple[int, ...]) -> Iterator[list[int]]:
    """Coordinates at which a carry is likely: single modes, pairs and more, as far towards a boundary as they go."""
    modes = range(len(b._flat_shape))
    for boundary in boundaries:
        corner = []
        for x, w in zip(b._flat_shape, b._flat_stride, strict=True):
            r = w % boundary
            corner.append(min(x - 1, (boundary - 1) // r) if r else 0)
        yield corner
        for i, j in combinations(modes, 2):
            yield [c if m in (i, j) else 0 for m, c in enumerate(corner)]
        for i in modes:
            yield [c if m <= i else 0 for m, c in enumerate(corner)]


def _lost_carry(function: Jumps, b: Layout, offset: Any, flat: list[int], expected: Any, found: Any) -> LayoutError:
    for boundary in function.boundaries:
        load = offset % boundary
        for m, (c, w) in enumerate(zip(flat, b._flat_stride, strict=True)):
            load += w * c % boundary
            if load >= boundary:
                total = offset % boundary + sum(w * c % boundary for c, w in zip(flat, b._flat_stride, strict=True))
                return LayoutError(
                    f"the modes of {b} carry over the boundary {boundary} of the left layout, so no layout of shape "
                    f"{show(b.shape)} or finer gives the values",
                    operation="composition",
                    mode=m,
                    boundary=boundary,
                    load=total,
                    witness=unflatten(flat, b.shape),
                    expected=expected,
                    found=found,
                    remedy="make the modes of the right layout step over disjoint digits of the left one's shape",
                )
    raise AssertionError("values differ only where a carry is lost")


def _no_run(function: Jumps, b: Layout, offset: Any, mode: int, misfit: Misfit) -> LayoutError:
    x, w = b._flat_shape[mode], b._flat_stride[mode]
    zero = function(offset)
    flat = [0] * len(b._flat_shape)
    flat[mode] = misfit.position
    # The boundary at fault is one that the mode crosses without stepping on it, or whose steps do not divide its size.
    boundary, load = None, None
    for p in function.boundaries:
        r = w % p
        if r and (x - 1) * r >= p and (p % r or x % (p // r)):
            boundary, load = p, (x - 1) * r
            break
    return LayoutError(
        f"the values along mode {x}:{w} of {b} are those of no layout ({misfit.reason})",
        operation="composition",
        mode=mode,
        boundary=boundary,
        load=load,
        witness=unflatten(flat, b.shape),
        expected=misfit.value + zero,
        found=misfit.found + zero,
        remedy="choose a size and a stride for this mode that divide the left layout's shape, or are divided by it",
    )


def _unproven(function: Jumps, b: Layout, mode: int | None) -> LayoutError:
    return LayoutError(
        f"{b} is not proven to distribute over the boundaries {show(function.boundaries)} of the left layout, "
        f"and has too many coordinates (or symbolic sizes) to evaluate them all",
        operation="composition",
        mode=mode,
        boundary=function.boundaries,
        remedy="compose mode by mode, or make the modes of the right layout divide the shape of the left one",
    )
