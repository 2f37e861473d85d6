"""Sizes as text of weft's language: numbers, symbols of a call's sizes, and what is computed of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy
import torch

Size = Any  # an int, or an expression of SymPy


def size(value: int | torch.SymInt) -> Size:
    if isinstance(value, torch.SymInt):
        expression = value.node.expr
        return int(expression) if expression.is_Integer else expression
    return int(value)


def sizes(values: Sequence[int | torch.SymInt]) -> tuple[Size, ...]:
    return tuple(map(size, values))


def product(values: Sequence[Size]) -> Size:
    made = math.prod(values)
    return int(made) if isinstance(made, sympy.Integer) else made


def hint(value: int | torch.SymInt) -> int:
    """What a size is in the call that the graph was made for."""
    return int(value.node.hint) if isinstance(value, torch.SymInt) else int(value)


def text(value: Size) -> str:
    return str(value)


def tight(value: Size) -> str:
    made = str(value)
    return made if made.isidentifier() or made.isdigit() else f"({made})"


def symbols(value: Size) -> tuple[sympy.Symbol, ...]:
    return () if isinstance(value, int) else tuple(sorted(value.free_symbols, key=str))


def known(value: int | torch.SymInt) -> bool:
    """Whether a size is a number or is made of a call's sizes by what weft's language has."""
    if not isinstance(value, torch.SymInt):
        return True
    if value.node.hint is None:
        return False
    expression = value.node.expr
    names = {"Add", "Mul", "Symbol", "Integer", "FloorDiv", "One", "Zero", "NegativeOne"}
    return all(type(part).__name__ in names for part in sympy.preorder_traversal(expression)) or expression.is_Symbol


def order(shape: Sequence[int | torch.SymInt], strides: Sequence[int | torch.SymInt]) -> tuple[int, ...] | None:
    """The dimensions from the outermost of memory to the innermost, where a tensor lies there without gaps; else None."""
    dims = sorted(range(len(shape)), key=lambda d: -hint(strides[d]) if size(shape[d]) != 1 else 0)
    dims = _ones_in_place(dims, shape)
    expected: Size = 1
    for d in reversed(dims):
        if size(shape[d]) == 1:
            continue
        if not _equal(size(strides[d]), expected):
            return None
        expected = product([expected, size(shape[d])])
    return tuple(dims)


def _ones_in_place(dims: Sequence[int], shape: Sequence[int | torch.SymInt]) -> list[int]:
    """The order where dimensions of 1, whose strides mean nothing, stand before the dimension that follows them."""
    found = [d for d in dims if size(shape[d]) != 1]
    for d in reversed(range(len(shape))):
        if size(shape[d]) == 1:
            following = [k for k, e in enumerate(found) if e > d]
            found.insert(min(following, default=len(found)), d)
    return found


def _equal(a: Size, b: Size) -> bool:
    return bool(a == b) or bool(sympy.expand(_of_elements(a) - _of_elements(b)) == 0)


def _of_elements(value: Size) -> Size:
    """A stride where there are elements: PyTorch counts sizes of 0 as 1 in it."""
    if isinstance(value, int):
        return value
    return value.replace(lambda e: type(e).__name__ == "Max" and 1 in e.args, lambda e: math.prod(a for a in e.args if a != 1))
