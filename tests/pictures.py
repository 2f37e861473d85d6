"""The pictures of the pages in docs/explain.md: `python -m tests.pictures` takes them anew, with Chromium."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

import weft
from examples.attention import attention
from examples.relaxation import relax
from tests import browser
from weft.kernels import linrec

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH = 1400
# What is open when a picture is taken: the loop whose verdict is clicked, the label that is pointed at.
OPEN = {"linrec": ("l", "l (0, 1)"), "attention": ("j", "total · j"), "relaxation": ("r", "(1, 0)")}


def main() -> int:
    lacking = browser.missing()
    if lacking:
        print(lacking, file=sys.stderr)
        return 1
    pages = {
        "linrec": linrec.explain(format="html"),
        "attention": attention.explain(format="html"),
        "relaxation": weft.analyze(relax).explain(format="html"),
    }
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as driver:
        for name, text in pages.items():
            page = Path(folder) / f"{name}.html"
            page.write_text(text, encoding="utf-8")
            for scheme in ("light", "dark"):
                browser.prefer(driver, scheme)
                browser.resize(driver, WIDTH)
                browser.show(driver, page)
                loop, label = OPEN[name]
                driver.find_element("css selector", f"[aria-controls=why-{loop}]").click()
                labels = driver.find_elements("css selector", ".label")
                driver.execute_script("arguments[0].focus()", next(e for e in labels if label in e.text))
                bottom = "return Math.ceil(document.querySelector('.tabs').getBoundingClientRect().top + scrollY)"
                browser.resize(driver, WIDTH, driver.execute_script(bottom) - 20)
                driver.execute_script("scrollTo(0, 0)")
                _save(driver.get_screenshot_as_png(), IMAGES / f"explain-{name}-{scheme}.png")
    return 0


def _save(png: bytes, path: Path) -> None:
    """A picture of the 256 colours that it has most of, which is half as large."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    colours = sorted(picture.getcolors(picture.width * picture.height), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _, colour in colours for channel in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
