"""Texts that are simulated are read by NVRTC, and no more: it spends a fifth of a compilation on that. Those of one file of
tests that have the same headers are read as one program when its tests have ended: the headers are most of each.

Whether a text is CUDA C++ is known then. What registers and memory it needs, and that ptxas takes it, is what `tests.gate`,
golden texts, every kind of plan (tests/test_every_plan.py) and `make fuzz` ask.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from weft.check.limits import Target
from weft.errors import CompileError
from weft.pytorch import simulated
from weft.runtime import nvrtc
from weft.runtime.include import resolve

whole = simulated._resources
_ENTRY = 'extern "C" '


@dataclass(frozen=True)
class Text:
    """A kernel's text that was simulated. headers: the lines that include them, which come first; rest: what follows."""

    headers: str
    rest: str
    arch: str
    name: str


_met: set[Text] = set()  # by this process
_unread: dict[Text, str] = {}  # the test that simulated it


def install() -> None:
    """From now on, in this process."""
    simulated._resources = meet  # type: ignore[assignment]


def meet(source: str, entry: str, name: str, target: Target, threads: int) -> None:
    """What stands for `weft.pytorch.simulated._resources`: the text will be read."""
    lines = source.splitlines()
    first = next((k for k, line in enumerate(lines) if line and not line.startswith("#include")), len(lines))
    # of a virtual architecture: for a real one ptxas would be given what is empty, which takes as long as reading
    arch = target.arch.replace("sm_", "compute_")
    text = Text("\n".join(lines[:first]), "\n".join(lines[first:]), arch, name)
    if text not in _met:
        _met.add(text)
        _unread[text] = os.environ.get("PYTEST_CURRENT_TEST", "")


def read() -> None:
    """Have NVRTC read the texts that were met since this was called last. Raises CompileError for what it refuses."""
    alike: dict[tuple[str, str], list[Text]] = {}
    for text in _unread:
        alike.setdefault((text.headers, text.arch), []).append(text)
    tests = dict(_unread)
    _unread.clear()
    for texts in alike.values():
        try:
            _read(texts)
        except CompileError:
            for text in texts:
                _read_alone(text, tests[text])
            raise


def _read_alone(text: Text, test: str) -> None:
    try:
        _read([text])
    except CompileError as error:
        raise CompileError(f"{text.name}, which {test} has simulated, is no CUDA C++", evidence=[str(error)]) from None


def _read(texts: list[Text]) -> None:
    """Each is in a namespace of its own, where its entry is a function as others are."""
    first = texts[0]
    own = [f"namespace text_{k} {{\n{text.rest.replace(_ENTRY, '')}\n}}" for k, text in enumerate(texts)]
    joined = resolve("\n".join([first.headers, *own]) + "\n", first.name)
    with nvrtc._compiled(joined, first.name, (f"-arch={first.arch}", "-std=c++17", "--minimal", "-fdevice-syntax-only")):
        pass
