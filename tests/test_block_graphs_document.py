"""docs/block-graphs.md: its programs print what it says, and its frames are what weft prints (`pytest --update-golden` rewrites
those).
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parent.parent / "docs" / "block-graphs.md"
_SHOWN = re.compile(r"(<!-- shown: (.*?) -->\n```\w*\n)(?:.*?\n)??```", re.DOTALL)


def test_its_programs_print_what_it_says_and_its_frames_are_what_is_printed(request: pytest.FixtureRequest) -> None:
    text = DOCUMENT.read_text()
    scope: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", _SHOWN.sub("", text), re.DOTALL):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, scope)
        said = re.findall(r"print\(.*\)  # (.*)", program)
        assert said and printed.getvalue().splitlines() == said
    graph = scope["graph"]
    explained = re.sub(r"<source \d+>", "<source>", str(graph.explain()))
    texts = {"program": graph.program, "explained": explained}
    now = _SHOWN.sub(lambda match: f"{match[1]}{texts.pop(match[2]).strip()}\n```", text)
    assert not texts, f"not in the document: {texts.keys()}"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(now)
    assert DOCUMENT.read_text() == now, "if the change is meant, run pytest --update-golden"
