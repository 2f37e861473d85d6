"""Layouts from their printed form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.layout.coordinates import Coordinates
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.swizzle import AnyLayout, Swizzle, composed
from weft.layout.symbolic import Size

_TOKEN = re.compile(r"\s*(?:(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>[(),:@+*]))")


def parse(text: str, symbols: Mapping[str, Size] | None = None) -> AnyLayout:
    """The layout printed as `(4,(2,3)):(1,(8,4))`, or as `Swizzle(3,4,3) o 0 o (8,8):(8,1)`.

    A shape alone is a compact layout. symbols: the symbolic sizes that names in the text stand for; a stride along an
    axis is `1@0`. Raises LayoutError, with the position, for text that is none of these.
    """
    if not isinstance(text, str):
        raise LayoutError(f"a layout is parsed from text, not from {type(text).__name__}", operation="parse")
    parts = re.split(r"\s+o\s+", text.strip())
    if len(parts) == 1:
        return _layout(text, symbols or {})
    if len(parts) == 3:
        matched = re.fullmatch(r"Swizzle\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(-?\d+)\s*\)", parts[0])
        if matched and re.fullmatch(r"-?\d+", parts[1]):
            swizzle = Swizzle(*map(int, matched.groups()))
            return composed(swizzle, int(parts[1]), _layout(parts[2], symbols or {}))
    raise LayoutError(
        f"{text!r} is no layout",
        operation="parse",
        remedy="write SHAPE:STRIDE or Swizzle(B,M,S) o OFFSET o SHAPE:STRIDE",
    )


def _layout(text: str, symbols: Mapping[str, Size]) -> Layout:
    reader = _Reader(text, symbols)
    shape = reader.tree()
    stride = None
    if reader.accept(":"):
        stride = reader.tree()
    reader.end()
    return Layout(shape, stride)


class _Reader:
    """A recursive-descent reader of nested tuples."""

    def __init__(self, text: str, symbols: Mapping[str, Size]) -> None:
        self.text = text
        self.symbols = symbols
        self.position = 0

    def accept(self, mark: str) -> bool:
        found = _TOKEN.match(self.text, self.position)
        if found is None or found["mark"] != mark:
            return False
        self.position = found.end()
        return True

    def tree(self) -> Any:
        if not self.accept("("):
            return self.leaf()
        items: list[Any] = []
        while not self.accept(")"):
            items.append(self.tree())
            if not self.accept(","):
                if not self.accept(")"):
                    raise self.error("`,` or `)`")
                break
        return tuple(items)

    def leaf(self) -> Any:
        value = self.term()
        while self.accept("+"):
            value = value + self.term()
        return value

    def term(self) -> Any:
        value = self.factor()
        while self.accept("*"):
            value = value * self.factor()
        if self.accept("@"):
            found = _TOKEN.match(self.text, self.position)
            if found is None or found["number"] is None or found["number"].startswith("-"):
                raise self.error("the number of an axis")
            self.position = found.end()
            return Coordinates({int(found["number"]): value})
        return value

    def factor(self) -> Any:
        found = _TOKEN.match(self.text, self.position)
        if found is not None and found["number"] is not None:
            self.position = found.end()
            return int(found["number"])
        if found is not None and found["name"] in self.symbols:
            self.position = found.end()
            return self.symbols[found["name"]]
        raise self.error("an integer")

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise self.error("the end")

    def error(self, wanted: str) -> LayoutError:
        return LayoutError(
            f"{self.text!r} is no layout: {wanted} is missing at position {self.position}",
            operation="parse",
            witness=self.position,
            remedy="write it as (4,(2,3)):(1,(8,4))",
        )
