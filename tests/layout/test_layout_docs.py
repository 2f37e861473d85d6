"""The page on layouts: its examples run, and its drawings are what the code draws."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.layout import Layout, Swizzle, composition, draw_svg, draw_threads_svg, mma

DOCS = Path(__file__).parents[2] / "docs"

DRAWINGS: dict[str, Callable[[], str]] = {
    "layout-nested": lambda: draw_svg(Layout((4, (2, 3)), (1, (8, 4))), lambda v: v // 4),
    "layout-tiles": lambda: draw_svg(Layout((8, 8), (1, 8)), lambda v: v % 8 // 4 + v // 32 * 2),
    "layout-swizzle": lambda: draw_svg(composition(Swizzle(3, 0, 3), Layout((8, 8), (8, 1))), lambda v: v % 8),
    "layout-mma-c": lambda: draw_threads_svg(mma("float16", 16).c, (16, 8)),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_up_to_date(name: str, request: pytest.FixtureRequest) -> None:
    path = DOCS / "images" / f"{name}.svg"
    drawn = DRAWINGS[name]()
    if request.config.getoption("--update-golden"):
        path.write_text(drawn)
    assert path.read_text() == drawn
    assert f"images/{name}.svg" in (DOCS / "layouts.md").read_text() and len(drawn) < 20_000


def test_examples_run() -> None:
    failed, tried = doctest.testfile(str(DOCS / "layouts.md"), module_relative=False)
    assert tried > 20 and failed == 0
