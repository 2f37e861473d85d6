"""Drawings of layouts: as text for a terminal, as SVG for documents."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, concatenate
from weft.layout.swizzle import AnyLayout, ComposedLayout

# Cells that a drawing may have: more could not be read.
MOST = 1 << 14
CELL_WIDTH, CELL_HEIGHT, MARGIN = 34, 22, 30


def draw_text(layout: AnyLayout) -> str:
    """The values as a table: mode 0 downwards, all other modes rightwards. LayoutError for more than 16384 values."""
    rows, columns, cells = _grid(layout)
    return _table(rows, columns, [[str(v) for v in row] for row in cells])


def draw_svg(layout: AnyLayout, group: Callable[[Any], int] | None = None) -> str:
    """The same table as an SVG document. group: the colour of a value, by number; its value itself where left out."""
    rows, columns, cells = _grid(layout)
    colour = group or (lambda v: v if isinstance(v, int) else 0)
    return _svg(rows, columns, [[(str(v), colour(v)) for v in row] for row in cells], str(layout))


def draw_threads_text(layout: Layout, shape: tuple[int, int]) -> str:
    """A (thread, value) layout over a matrix: each cell says T3V1, the thread and the value that hold its element.

    shape: of the matrix, whose elements are counted down the columns. Cells that nobody holds are empty, cells held
    more than once name the first holder. Raises LayoutError where the layout leaves the matrix.
    """
    holders = _holders(layout, shape)
    return _table(*shape, [[_label(holder) for holder in row] for row in holders])


def draw_threads_svg(layout: Layout, shape: tuple[int, int]) -> str:
    """The same as an SVG document, a colour for each thread."""
    holders = _holders(layout, shape)
    cells = [[(_label(holder), holder[0] if holder else -1) for holder in row] for row in holders]
    return _svg(*shape, cells, str(layout))


def _grid(layout: AnyLayout) -> tuple[int, int, list[list[Any]]]:
    inner = layout.layout if isinstance(layout, ComposedLayout) else layout
    if any(type(s) is not int for s in inner.flat_shape) or inner.size() > MOST:
        raise LayoutError(f"{layout} is too large to draw", remedy=f"draw a part of it, of at most {MOST} elements")
    modes = list(inner)
    if len(modes) < 2:
        modes = [Layout(1, 0), *modes]
    down, right = modes[0], concatenate(*modes[1:])
    table = concatenate(down, right)
    shown: Callable[..., Any] = table if isinstance(layout, Layout) else layout.with_layout(table)
    rows, columns = down.size(), right.size()
    return rows, columns, [[shown(r, c) for c in range(columns)] for r in range(rows)]


def _holders(layout: Layout, shape: tuple[int, int]) -> list[list[tuple[int, int] | None]]:
    rows, columns = shape
    if layout.rank() != 2:
        raise LayoutError(f"{layout} is not of two modes, (threads, values)", operation="draw")
    if layout.size() > MOST or rows * columns > MOST:
        raise LayoutError(f"{layout} is too large to draw", remedy=f"draw at most {MOST} elements")
    threads = layout[0].size()
    found: list[list[tuple[int, int] | None]] = [[None] * columns for _ in range(rows)]
    for i, element in enumerate(layout.values()):
        if not 0 <= element < rows * columns:
            raise LayoutError(f"{layout} reaches element {element} outside {rows} x {columns}", witness=i)
        column, row = divmod(element, rows)
        if found[row][column] is None:
            found[row][column] = (i % threads, i // threads)
    return found


def _label(holder: tuple[int, int] | None) -> str:
    return "" if holder is None else f"T{holder[0]}V{holder[1]}"


def _table(rows: int, columns: int, cells: list[list[str]]) -> str:
    width = max([len(cell) for row in cells for cell in row] + [len(str(columns - 1)), 1])
    side = len(str(rows - 1))
    head = " " * side + " |" + "".join(f" {c:>{width}}" for c in range(columns))
    lines = [head, "-" * (side + 1) + "+" + "-" * ((width + 1) * columns)]
    lines += [f"{r:>{side}} |" + "".join(f" {cell:>{width}}" for cell in row) for r, row in enumerate(cells)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _svg(rows: int, columns: int, cells: list[list[tuple[str, int]]], title: str) -> str:
    longest = max([len(text) for row in cells for text, _ in row] + [1])
    cell = max(CELL_WIDTH, 8 * longest + 6)
    width, height = MARGIN + columns * cell + 1, MARGIN + rows * CELL_HEIGHT + 1
    colours = sorted({c for row in cells for _, c in row if c >= 0})
    styles = "".join(f".c{c}{{fill:{_colour(c)}}}" for c in colours)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(title)}</title>",
        "<style>text{font:11px monospace;text-anchor:middle;dominant-baseline:central}rect{fill:#fff;stroke:#666}"
        f".h{{fill:#666}}{styles}</style>",
        f'<rect width="{width}" height="{height}" stroke="none"/>',
    ]
    parts += [_text(MARGIN + c * cell + cell // 2, MARGIN // 2, str(c), "h") for c in range(columns)]
    for r, row in enumerate(cells):
        top = MARGIN + r * CELL_HEIGHT
        parts.append(_text(MARGIN // 2, top + CELL_HEIGHT // 2, str(r), "h"))
        for c, (text, colour) in enumerate(row):
            left = MARGIN + c * cell
            kind = f' class="c{colour}"' if colour >= 0 else ""
            parts.append(f'<rect{kind} x="{left}" y="{top}" width="{cell}" height="{CELL_HEIGHT}"/>')
            parts.append(_text(left + cell // 2, top + CELL_HEIGHT // 2, text))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{escape(text)}</text>'


def _colour(number: int) -> str:
    """A light colour; neighbours in number are far apart on the wheel (the golden angle)."""
    return f"hsl({number * 137 % 360},70%,{82 - number // 8 % 3 * 6}%)"
