"""docs/pointwise.md: its programs print what it says, and its frames are what examples/pointwise.py and weft print
(`pytest --update-golden` rewrites those).
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "pointwise.md"
_SHOWN = re.compile(r"(<!-- shown: (.*?) -->\n```\w*\n)(?:.*?\n)??```", re.DOTALL)
CALL = ("bfloat16[64,1024]", "float32[1024]", 50.0)


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", _SHOWN.sub("", DOCUMENT.read_text()), re.DOTALL)


def shown() -> dict[str, str]:
    capped = runpy.run_path(str(ROOT / "examples" / "pointwise.py"))["capped"]
    definition = (ROOT / "examples" / "pointwise.py").read_text().split("\n\n\n")
    return {
        "capped": next(text for text in definition if "def capped" in text),
        "explained": str(capped.explain(*CALL)),
        "emitted": capped.source(*CALL, arch="sm_90a").split("\n\n", 1)[1],
    }


def test_its_programs_print_what_it_says() -> None:
    scope: dict[str, Any] = {"__name__": __name__}
    for number, text in enumerate(programs()):
        file = f"<docs/pointwise.md, program {number}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # weft reads sources
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, file, "exec"), scope)
        said = re.findall(r"print\(.*\)  # (.*)", text)
        assert said or "print" not in text
        assert re.sub(r"\s*\n\s+", " ", printed.getvalue()).splitlines() == said


def test_its_frames_are_what_is_printed(request: pytest.FixtureRequest) -> None:
    texts = shown()
    text = DOCUMENT.read_text()
    now = _SHOWN.sub(lambda match: f"{match[1]}{texts.pop(match[2]).strip()}\n```", text)
    assert not texts, f"not in the document: {texts.keys()}"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(now)
    assert DOCUMENT.read_text() == now, "if the change is meant, run pytest --update-golden"
