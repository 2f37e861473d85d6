"""docs/language.md says what the language has: every program in it computes what its plain Python does, and each that it
says is refused is, with that message.
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.errors import WeftError
from weft.language.elementwise import ELEMENTWISE
from weft.language.functions import ITSELF
from weft.pytorch.specs import make_arguments, parse

pytestmark = pytest.mark.usefixtures("quickly_compiled")

DOCUMENT = Path(__file__).parent.parent / "docs" / "language.md"
_HAS, _HAS_NOT = DOCUMENT.read_text().split("## Not in the language")
_numbers = itertools.count()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_document_lists_every_elementwise_function() -> None:
    section = _HAS.split("### Elementwise functions of PyTorch")[1].split("Elements of float16")[0]
    listed = re.findall(r"`(\w+)`", " ".join(re.findall(r"^(?:- |  ).*", section, re.MULTILINE)))
    listed = [name for name in listed if name not in ("decimals", "alpha", "rounding_mode", "reduction")]
    assert len(listed) == len({*listed})
    others = {"add", "sub", "subtract", "rsub", "div", "divide", "polygamma"} | {*ITSELF}
    assert {*listed} == {*ELEMENTWISE} | others


def executed(text: str) -> dict[str, Any]:
    """The names that a program of the document defines, its source where Python looks for it."""
    file = f"<docs/language.md, program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch, "weft": weft, "math": math, "__name__": __name__}
    exec(compile(text, file, "exec"), scope)
    return scope


def kernels() -> Iterator[Any]:
    for text in blocks(_HAS):
        found = [k for k in executed(text).values() if isinstance(k, weft.Kernel)]
        assert found, f"a program without a kernel:\n{text}"
        yield from found


def copies(values: tuple[Any, ...] | list[Any]) -> list[Any]:
    return [v.clone() if isinstance(v, torch.Tensor) else v for v in values]


def same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("kernel", list(kernels()), ids=lambda k: k.name)
def test_a_program_of_the_document_computes_what_its_python_does(kernel: weft.Kernel) -> None:
    example = {n: parse(v) if isinstance(v, str) else v for n, v in kernel.example.items()}
    values = list(make_arguments(example).values())
    ours, theirs = copies(values), copies(values)
    expected = kernel.py(*theirs)
    same(kernel(*ours), expected)
    same(ours, theirs)


@pytest.mark.parametrize("text", blocks(_HAS_NOT), ids=lambda t: t.splitlines()[0].removeprefix("# "))
def test_what_the_document_says_is_refused_is(text: str) -> None:
    message = text.splitlines()[0].removeprefix("# ")
    function = executed(text)["f"]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    values = {"block": 2, "mask": torch.tensor([1, 0])}
    with pytest.raises(WeftError) as caught:
        weft.kernel(function)(*(values.get(n, torch.ones(4)) for n in names))
    assert message in caught.value.message
    assert caught.value.remedy and caught.value.location is not None
