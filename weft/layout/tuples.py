"""Nested tuples of sizes: what shapes, strides and coordinates are made of.

A leaf is an int (or a symbolic size, or a coordinate stride); a profile is the nesting alone. Two tuples are congruent
if they have the same profile. A shape refines another if each leaf of the other is replaced by leaves of equal product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from weft.layout.errors import LayoutError


def leaves(t: Any) -> tuple[Any, ...]:
    """The leaves, left to right."""
    if type(t) is not tuple:
        return (t,)
    for leaf in t:
        if type(leaf) is tuple:
            break
    else:
        return t
    return tuple(_walk(t))


def _walk(t: Any) -> Iterator[Any]:
    for leaf in t:
        if type(leaf) is tuple:
            yield from _walk(leaf)
        else:
            yield leaf


def unflatten(flat: Iterable[Any], profile: Any) -> Any:
    """The leaves nested as `profile` is; a leaf may itself be a tuple."""
    if type(profile) is not tuple:
        return next(iter(flat))
    return _nest(iter(flat), profile)


def _nest(flat: Iterator[Any], profile: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([_nest(flat, p) if type(p) is tuple else next(flat) for p in profile])


def product(t: Any) -> Any:
    """The product of all leaves, 1 for none."""
    result = 1
    for leaf in leaves(t):
        result = result * leaf
    return result


def nesting(t: Any) -> int:
    """0 for a leaf, 1 for a flat tuple, and so on."""
    return 1 + max(map(nesting, t), default=0) if type(t) is tuple else 0


def congruent(a: Any, b: Any) -> bool:
    """Whether the two are nested alike."""
    if type(a) is not tuple or type(b) is not tuple:
        return type(a) is not tuple and type(b) is not tuple
    return len(a) == len(b) and all(map(congruent, a, b))


def refines(a: Any, b: Any) -> bool:
    """Whether shape `a` refines shape `b`: every coordinate of b is a coordinate of a."""
    if type(b) is not tuple:
        return bool(product(a) == b)
    return type(a) is tuple and len(a) == len(b) and all(map(refines, a, b))


def prefix_strides(shape: Any) -> Any:
    """The strides of the compact layout of this shape, first mode fastest."""
    flat = []
    current: Any = 1
    for s in leaves(shape):
        flat.append(current)
        current = current * s
    return unflatten(flat, shape)


def show(t: Any) -> str:
    """As `(4,(2,3))`."""
    return f"({','.join(map(show, t))})" if type(t) is tuple else str(t)


def normalise(t: Any, leaf: Any, what: str) -> Any:
    """The tuple with lists as tuples and every leaf passed through `leaf`, which raises LayoutError to refuse one."""
    if isinstance(t, (tuple, list)):
        return tuple([normalise(x, leaf, what) for x in t])
    return leaf(t, what)


def as_integer(x: Any, what: str) -> int:
    """An int, from anything that is an integer and no bool; LayoutError otherwise."""
    if type(x) is int:
        return x
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise LayoutError(f"{what} must be integers, not {x!r} ({type(x).__name__})")
    return int(x.__index__())
