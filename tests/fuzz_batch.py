"""The C++ of many programs compiled at once: most of what a compiler does for a small kernel is to start and to read headers.

Programs are checked by threads of which one runs at a time. One that needs a kernel waits and lets the next go on; when
all wait, what they wait for is one translation unit, each nest in a namespace of its own.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from weft.errors import CompileError
from weft.runtime import host
from weft.runtime.host import HostFunction

T = TypeVar("T")
_HEADER = re.compile(r'^#include "weft/.*"\n', re.MULTILINE)
_STACK = 64 << 20  # bytes of a thread: an analysis is recursive in its expressions


@dataclass
class _Asked:
    """A nest that a thread waits for, and what became of it."""

    source: str
    entry: str
    name: str
    found: HostFunction | Exception | None = None


class Batch:
    """What stands for `weft.runtime.host.load_together` while programs are checked together."""

    def __init__(self) -> None:
        self.units = 0  # translation units that were compiled
        self._load = host.load_together
        self._turn = threading.Lock()  # of the thread that runs, which alone looks at what follows
        self._ready = 0  # threads that do not wait for a kernel
        self._waiting: list[threading.Event] = []  # those of the others
        self._asked: dict[tuple[str, str], _Asked] = {}
        self._known: dict[tuple[str, str], HostFunction | Exception] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        host.load_together = self.load
        try:
            yield
        finally:
            host.load_together = self._load

    def map(self, function: Callable[[T], None], items: Iterable[T], threads: int) -> None:
        """Call the function for every item, so many at a time. It must not raise."""
        rest = iter(list(items))

        def work() -> None:
            with self._turn:
                try:
                    while (item := next(rest, rest)) is not rest:
                        function(item)  # type: ignore[arg-type]
                finally:
                    self._ready -= 1
                    if self._ready == 0 and self._waiting:
                        self._compile()

        before = threading.stack_size(_STACK)
        try:
            self._ready = threads
            workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
            for worker in workers:
                worker.start()
        finally:
            threading.stack_size(before)
        for worker in workers:
            worker.join()

    def load(self, texts: Sequence[tuple[str, str]], *, name: str) -> list[HostFunction]:
        if new := [text for text in texts if text not in self._known]:
            self._asked.update((text, _Asked(*text, name)) for text in new if text not in self._asked)
            self._ready -= 1
            if self._ready == 0:
                self._compile()
                self._ready += 1
            else:
                compiled = threading.Event()
                self._waiting.append(compiled)
                self._turn.release()
                compiled.wait()
                self._turn.acquire()
        functions = []
        for text in texts:
            found = self._known[text]
            if isinstance(found, Exception):
                raise found
            functions.append(found)
        return functions

    def _compile(self) -> None:
        """Compile all that is asked for. The threads that wait for it are ready then."""
        asked, self._asked = list(self._asked.values()), {}
        self.units += 1
        try:
            found = _together(asked)
        except CompileError as error:
            found = [self._alone(a) for a in asked]
            if not any(isinstance(f, Exception) for f in found):  # nothing is wrong but that they are put together
                found = [error for _ in asked]
        for a, f in zip(asked, found, strict=True):
            self._known[a.source, a.entry] = f
        waiting, self._waiting = self._waiting, []
        self._ready += len(waiting)
        for compiled in waiting:
            compiled.set()

    def _alone(self, asked: _Asked) -> HostFunction | Exception:
        try:
            return self._load([(asked.source, asked.entry)], name=asked.name)[0]
        except CompileError as error:
            return error


def _together(asked: list[_Asked]) -> list[HostFunction]:
    headers = dict.fromkeys(h for a in asked for h in _HEADER.findall(a.source))  # outside of every namespace
    parts = [*headers]
    for k, a in enumerate(asked):
        parts.append(f"namespace unit_{k} {{\n#define {a.entry} {a.entry}_{k}\n")
        parts.append(_HEADER.sub("", a.source) + f"\n#undef {a.entry}\n}}\n")
    library = host.library("".join(parts), "programs.cpp")
    out = []
    for k, a in enumerate(asked):
        function = library[f"{a.entry}_{k}"]
        function.argtypes = [ctypes.c_void_p, ctypes.c_int]
        function.restype = ctypes.c_int64
        out.append(HostFunction(a.entry, function))
    return out


def all_of(items: Sequence[T], told: Callable[[T], str | None]) -> None:
    """Fail with what is told of each item, if anything, or with what it raises. Their kernels are compiled together."""
    wrong: list[str] = []

    def look(item: T) -> None:
        try:
            wrong.append(told(item) or "")
        except Exception as error:
            wrong.append(f"{item}: {type(error).__name__}: {error}")

    batch = Batch()
    with batch.installed():
        batch.map(look, items, 128)
    assert len(wrong) == len(items)
    assert not any(wrong), "\n".join(w for w in wrong if w)
