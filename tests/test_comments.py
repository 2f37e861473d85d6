"""Comments of generated code cite the user's files and lines, whatever those are called and hold."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.emit.text import comment

ENDS = st.sampled_from(["", "\\", "??/", "\\ \\", "\\??/", "\n", "\r", "\x0c", "\u2028", "*/", "\t"])


@given(st.text(), ENDS, ENDS)
def test_a_comment_is_one_line_that_ends(text: str, end: str, last: str) -> None:
    made = comment(text + end + last)
    assert len(made.splitlines()) == 1 and made.startswith("// ")
    assert not made.endswith(("\\", "??/"))
    assert made.encode().decode() == made


def test_what_can_stand_in_a_comment_does() -> None:
    assert comment('café.py:3: y = x  # "\\n" */') == '// café.py:3: y = x  # "\\n" */'
    assert comment("a\nb.py:3") == "// a\\nb.py:3"


@pytest.mark.parametrize("file", ["a\nb.py", "a\u2028b\\", "caf\u00e9 */.py", "a\udcffb.py"])
def test_kernels_of_any_file_compile(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "for i in range(x.shape[0]):\n        y[i] = x[i] + 1.0  # ??/ \\\n"
    text = f"def plus_one(x):\n    y = x.clone()\n    {loop}    return y\n"
    monkeypatch.setitem(linecache.cache, file, (len(text), None, text.splitlines(keepends=True), file))
    names: dict[str, Any] = {"__name__": "odd"}
    exec(compile(text, file, "exec"), names)
    kernel = weft.kernel(names["plus_one"])
    assert torch.equal(kernel(torch.zeros(5)), torch.ones(5))
    report = kernel.check(torch.zeros(5))
    assert report.ok, report.text()
    assert report.html()
    for form in ("text", "html"):
        assert str(kernel.explain(torch.zeros(5), format=form, detail=True))
