"""Drawings, against what they must look like."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from typing import Any

import pytest

from weft.layout import (
    ComposedLayout,
    Layout,
    LayoutError,
    Swizzle,
    draw_svg,
    draw_text,
    draw_threads_svg,
    draw_threads_text,
    mma,
    symbol,
)


def test_text() -> None:
    assert draw_text(Layout((3, (2, 2)), (4, (1, 20)))) == (
        "  |  0  1  2  3\n"
        "--+------------\n"
        "0 |  0  1 20 21\n"
        "1 |  4  5 24 25\n"
        "2 |  8  9 28 29\n"
    )  # fmt: skip
    assert draw_text(Layout(4, 5)) == "  |  0  1  2  3\n--+------------\n0 |  0  5 10 15\n"


def test_text_of_swizzled_values() -> None:
    assert draw_text(ComposedLayout(Swizzle(1, 0, 1), 0, Layout((2, 2), (2, 1)))) == (
        "  | 0 1\n"
        "--+----\n"
        "0 | 0 1\n"
        "1 | 3 2\n"
    )  # fmt: skip


def test_text_of_threads() -> None:
    assert draw_threads_text(Layout((2, 2), (3, 1)), (2, 3)) == (
        "  |    0    1    2\n"
        "--+---------------\n"
        "0 | T0V0      T1V1\n"
        "1 | T0V1 T1V0\n"
    )  # fmt: skip


def test_svg() -> None:
    assert draw_svg(Layout((1, 2), (0, 9))) == (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 99 53" width="99" height="53">\n'
        "<title>(1,2):(0,9)</title>\n"
        "<style>text{font:11px monospace;text-anchor:middle;dominant-baseline:central}"
        "rect{fill:#fff;stroke:#666}.h{fill:#666}"
        ".c0{fill:hsl(0,70%,82%)}.c9{fill:hsl(153,70%,76%)}</style>\n"
        '<rect width="99" height="53" stroke="none"/>\n'
        '<text class="h" x="47" y="15">0</text>\n'
        '<text class="h" x="81" y="15">1</text>\n'
        '<text class="h" x="15" y="41">0</text>\n'
        '<rect class="c0" x="30" y="30" width="34" height="22"/>\n'
        '<text x="47" y="41">0</text>\n'
        '<rect class="c9" x="64" y="30" width="34" height="22"/>\n'
        '<text x="81" y="41">9</text>\n'
        "</svg>\n"
    )


def test_svg_of_threads_has_a_colour_for_each() -> None:
    picture = xml.fromstring(draw_threads_svg(mma("float16", 16).c, (16, 8)))
    cells = [e for e in picture if e.tag.endswith("rect") and "class" in e.attrib]
    texts = [e.text for e in picture if e.tag.endswith("text") and "class" not in e.attrib]
    assert len(cells) == 128 and len({e.attrib["class"] for e in cells}) == 32
    assert texts[:3] == ["T0V0", "T0V1", "T1V0"] and texts[64] == "T0V2"


def test_svg_groups_values_by_bank() -> None:
    picture = xml.fromstring(draw_svg(Layout((4, 32), (32, 1)), lambda v: v % 32))
    assert len({e.attrib["class"] for e in picture if e.tag.endswith("rect") and "class" in e.attrib}) == 32


@pytest.mark.parametrize(
    "call",
    [
        lambda: draw_text(Layout((1 << 8, 1 << 8))),
        lambda: draw_text(Layout((symbol("n"), 8))),
        lambda: draw_threads_text(Layout((32, 4)), (8, 8)),
        lambda: draw_threads_text(Layout(32), (8, 8)),
        lambda: draw_threads_svg(Layout((32, 2), (1, -1)), (8, 8)),
        lambda: draw_threads_svg(Layout((32, 2)), (1 << 10, 1 << 10)),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Any) -> None:
    with pytest.raises(LayoutError):
        call()
