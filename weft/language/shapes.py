"""Views that split and merge dimensions: an element's subscripts in what is viewed, computed from those in the view.

A dimension of size n * m that is split into n and m is subscripted by `i * m + j`; two of sizes n and m that are merged
are subscripted by `k // m` and `k % m`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from weft.errors import ShapeMismatch, UnsupportedSyntax
from weft.language.builder import Builder
from weft.language.values import Tensor, View, has_place, place, select, tidy
from weft.loops.ir import ONE, ZERO, Expr, Joint, Op, free_names, has_load
from weft.loops.polynomials import Polynomial, polynomial
from weft.loops.types import INT64

Sizes = tuple[Expr, ...]


@dataclass(frozen=True)
class _Group:
    """Neighbouring dimensions of a tensor, and those of a view that are the same elements in the same order."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def times(a: Expr, b: Expr) -> Expr:
    if ONE in (a, b):
        return b if a == ONE else a
    return ZERO if ZERO in (a, b) else tidy(Op("mul", (a, b), INT64))


def product(sizes: Sizes) -> Expr:
    first: Expr = ONE
    return functools.reduce(times, sizes, first)


def resized(b: Builder, value: Tensor, sizes: tuple[Expr | None, ...], copies: bool) -> Tensor:
    """The elements of a tensor, in order, as a tensor of other sizes; None: the size that follows from the others.

    copies: where strides do not allow a view, PyTorch makes a copy (`reshape`), and else raises (`view`).
    Raises ShapeMismatch, here or at the call.
    """
    if sum(s is None for s in sizes) > 1:
        raise ShapeMismatch("more than one size is -1", remedy="give all sizes but one")
    sizes = tuple(s if s is None else b.quotient(s) for s in sizes)
    for size in sizes:
        if size is not None and (has_load(size) or b.is_dynamic(size)):
            raise UnsupportedSyntax("a view whose size depends on what a tensor holds", remedy="write a loop")
    new = [k for k, s in enumerate(sizes) if s != ONE]
    old = [k for k, s in enumerate(value.dims) if s != ONE]
    found: dict[int, Expr] = {k: ONE for k, s in enumerate(sizes) if s == ONE}
    groups = _groups(b, value.dims, sizes, old, new)
    for group in groups:
        found |= _sizes_of_group(b, value.dims, sizes, group)
    dims = tuple(found[k] for k in range(len(sizes)))
    axes: list[Expr] = [ZERO] * len(value.dims)
    for group in groups:
        flat: Expr = ZERO
        for k in group.new:
            flat = tidy(Op("add", (times(flat, dims[k]), place(k)), INT64)) if flat != ZERO else place(k)
        for k in reversed(group.old[1:]):
            axes[k] = Op("mod", (flat, value.dims[k]), INT64)
            flat = Op("floordiv", (flat, value.dims[k]), INT64)
        if group.old:
            axes[group.old[0]] = flat
    made = select(value, dims, tuple(axes))
    if isinstance(value, View) and isinstance(made, View):
        return _joined(b, value, made, [g for g in groups if len(g.old) > 1], copies)
    return made


def split(b: Builder, value: Tensor, dim: int, sizes: tuple[Expr | None, ...]) -> Tensor:
    """A dimension as several, of these sizes."""
    given = {k: s for k, s in enumerate(sizes) if s is not None}
    missing = [k for k in range(len(sizes)) if k not in given]
    if len(missing) == 1:
        given[missing[0]] = _quotient(b, value.dims[dim], product(tuple(given.values())))
        sizes = tuple(given[k] for k in range(len(sizes)))
    return resized(b, value, (*value.dims[:dim], *sizes, *value.dims[dim + 1 :]), copies=False)


def _groups(
    b: Builder, dims: Sizes, sizes: tuple[Expr | None, ...], old: list[int], new: list[int]
) -> list[_Group]:
    """The dimensions of both sides, taken together where their products agree, as few at a time as can be told."""
    before: list[_Group] = []
    while old and new and sizes[new[0]] is not None:
        group = _first_group(b, dims, sizes, old, new, 1)
        if group is None:
            break
        before.append(group)
        old, new = old[len(group.old) :], new[len(group.new) :]
    after: list[_Group] = []
    while old and new and sizes[new[-1]] is not None:
        group = _first_group(b, dims, sizes, old[::-1], new[::-1], -1)
        if group is None:
            break
        after.insert(0, group)
        old, new = old[: len(old) - len(group.old)], new[: len(new) - len(group.new)]
    rest = [_Group(tuple(old), tuple(new))] if old or new else []
    return [*before, *rest, *after]


def _first_group(
    b: Builder, dims: Sizes, sizes: tuple[Expr | None, ...], old: list[int], new: list[int], order: int
) -> _Group | None:
    """The shortest beginning of both lists with equal products; None where that is not known."""
    for many in range(1, len(old) + len(new)):
        for count in range(1, many + 1):
            one, other = old[:count], new[: many + 1 - count]
            if len(one) < count or len(other) < many + 1 - count:
                continue
            given = [sizes[k] for k in other]
            if len(one) > 1 and len(other) > 1:
                continue
            known = tuple(s for s in given if s is not None)
            if len(known) == len(given) and _same(b, product(tuple(dims[k] for k in one)), product(known)):
                return _Group(tuple(one[::order]), tuple(other[::order]))
    return None


def _polynomial(b: Builder, expr: Expr) -> Polynomial | None:
    return polynomial(b.canonical(expr))


def _same(b: Builder, one: Expr, other: Expr) -> bool:
    left, right = _polynomial(b, one), _polynomial(b, other)
    return b.same_size(one, other) or (left is not None and left == right)


def _sizes_of_group(
    b: Builder, dims: Sizes, sizes: tuple[Expr | None, ...], group: _Group
) -> dict[int, Expr]:
    """The sizes of a group's dimensions in the view, the one left out among them; what agrees only at some calls is
    checked at the call.
    """
    elements = product(tuple(dims[k] for k in group.old))
    given = {k: s for k in group.new if (s := sizes[k]) is not None}
    missing = [k for k in group.new if k not in given]
    known = product(tuple(given.values()))
    if missing:
        given[missing[0]] = _quotient(b, elements, known)
        known = product(tuple(given[k] for k in group.new))
    if not _same(b, elements, known):
        b.require_equal(known, elements, "of the view and what is viewed")
    return given


def _quotient(b: Builder, elements: Expr, known: Expr) -> Expr:
    if known == ONE:
        return elements
    whole, part = _polynomial(b, elements), _polynomial(b, known)
    if whole is not None and part is not None and len(part.terms) == 1 and part.terms[0][1] == 1:
        rest: Polynomial | None = whole
        for name in part.terms[0][0]:
            rest, left = rest.divided(name) if rest is not None else (None, None)
            rest = None if left is None or left.terms else rest
        if rest is not None:
            return rest.expr()
    return b.quotient(Op("floordiv", (elements, known), INT64))


def _joined(b: Builder, value: View, made: View, groups: list[_Group], copies: bool) -> View:
    """A view with dimensions merged: good for stores where strides certainly allow it, or the call sees to that."""
    if value.copied or not groups:
        return made
    if all(_adjacent(b, value, group) for group in groups):
        return made
    if copies:
        return replace(made, copied=True)
    for group in groups:
        parts = tuple(_part(b, value, k) for k in group.old)
        known = [p for p in parts if p is not None]
        if len(known) < len(parts):
            raise UnsupportedSyntax(
                f"a view that merges dimensions of a part of {value.array} whose strides are not known before the call",
                remedy="write reshape, if it is only read, or view the tensor itself",
            )
        joint = Joint(value.array, tuple(known), b.location)
        if joint not in b.joints:
            b.joints.append(joint)
    return made


def _adjacent(b: Builder, value: View, group: _Group) -> bool:
    """Whether merged dimensions are whole neighbouring axes of a contiguous array."""
    array = b.arrays[value.array]
    where = [[a for a, axis in enumerate(value.axes) if axis == place(k)] for k in group.old]
    if not array.contiguous or not all(len(w) == 1 for w in where):
        return False
    axes = [w[0] for w in where]
    return all(y == x + 1 for x, y in zip(axes, axes[1:], strict=False)) and all(
        b.same_size(array.shape[a], value.dims[k]) for a, k in zip(axes[1:], group.old[1:], strict=True)
    )


def _part(b: Builder, value: View, dim: int) -> tuple[int, Expr, Expr] | None:
    """The axis of the array that a dimension walks, by how many elements a step, and how far; None where that is not
    known before the call.
    """
    name = place(dim).name
    walked = [a for a, axis in enumerate(value.axes) if name in free_names(axis)]
    size = b.in_sizes(value.dims[dim])
    if len(walked) != 1 or has_load(size) or not free_names(size) <= b.fixed:
        return None
    form = polynomial(value.axes[walked[0]])
    if form is None:
        return None
    step, _ = form.divided(name)
    expr = b.in_sizes(step.expr())
    if has_place(expr) or not free_names(expr) <= b.fixed:
        return None
    return walked[0], expr, size
