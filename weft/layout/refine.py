"""Layouts of the same size seen together: common refinements and sums.

Written as jumps, a layout of N elements is a sum of floors of x / p for boundaries p < N, in one way only. So sums are
exact, and are layouts if, and only if, the boundaries that are left divide one another.
"""

from __future__ import annotations

from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, from_flat


def common_refinement(a: Layout, b: Layout) -> tuple[Layout, Layout]:
    """The two layouts, each with its own values, written with one flat shape: the coarsest that serves both.

    Raises LayoutError where the sizes differ or the boundaries of the two do not divide one another.
    """
    size = same_size(a, b, "common_refinement")
    forms = a.coalesce(), b.coalesce()
    cuts = _chain({p: None for form in forms for p in form.jumps.boundaries}, size, "common_refinement", a, b)
    shape = tuple([q // p for p, q in zip([1, *cuts], [*cuts, size], strict=True)])
    first, second = [from_flat(shape, tuple([form.jumps(p) for p in [1, *cuts]])) for form in forms]
    return first, second


def layout_add(a: Layout, b: Layout) -> Layout:
    """The coalesced layout whose value at every index is a(i) + b(i).

    Raises LayoutError where the sizes differ, or where the sum is no layout: with the index at which it fails.
    """
    size = same_size(a, b, "layout_add")
    forms = a.coalesce().jumps, b.coalesce().jumps
    total: dict[Any, Any] = {}
    for form in forms:
        for p, jump in zip(form.boundaries, form.jumps, strict=True):
            total[p] = total.get(p, 0) + jump
    cuts = _chain({p: None for p, jump in total.items() if jump != 0}, size, "layout_add", a, b)
    shape = tuple([q // p for p, q in zip([1, *cuts], [*cuts, size], strict=True)])
    stride = tuple([forms[0](p) + forms[1](p) for p in [1, *cuts]])
    return from_flat(shape, stride).coalesce()


def same_size(a: Layout, b: Layout, operation: str) -> Any:
    """The size of both. Raises LayoutError where they differ."""
    size = a.size()
    if size != b.size():
        raise LayoutError(f"{a} has {size} elements and {b} has {b.size()}", operation=operation)
    return size


def _chain(boundaries: dict[Any, None], size: Any, operation: str, a: Layout, b: Layout) -> list[Any]:
    """The boundaries in ascending order, if each divides the next and the last divides the size."""
    cuts = sorted(boundaries)
    for p, q in zip(cuts, [*cuts, size][1:], strict=True):
        if q % p != 0:
            raise LayoutError(
                f"{a} and {b} have no common shape: the boundaries {p} and {q} do not divide one another",
                operation=operation,
                boundary=p,
                load=q,
                witness=q if operation == "common_refinement" else p,
            )
    return cuts
