"""The headers of generated C++, parsed once for all kernels: to read them is most of what a compiler does for one.

A compiler takes `NAME.gch` for the header NAME that `-include` names if it made that file itself, with the same flags, and
reads the header where it did not. So nothing but time depends on it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weft.runtime import cache

_FORMAT = "precompiled 2"
_SYSTEM = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(<[^>]+>)", re.MULTILINE)
_FILE = re.compile(r'#line \d+ "(?P<file>.*)"')
_CODE = re.compile(r'^(?!\s*$|#line \d+ ")', re.MULTILINE)
_HEADER = "headers.hpp"

# Whether the compiler, called with these arguments besides its flags in a directory, did what it was asked.
Run = Callable[[tuple[str, ...], str], bool]


@dataclass(frozen=True)
class Prepared:
    """What a compiler gets instead of a text: the rest of it, and what to add to the command."""

    text: str
    arguments: tuple[str, ...]


def prepare(text: str, directory: str, identity: tuple[str, ...], run: Run) -> Prepared:
    """What compiles to the same as `text`, a source made whole, in a directory, where what that needs is put.

    identity: tells the compiler, its flags and the machine that it compiles for from others. It is the text itself where
    there is no cache that keeps what is parsed, where the compiler makes no such thing, and where it is nothing but headers.
    """
    first, rest = _split(text)
    if not _CODE.search(rest):
        return Prepared(text, ())
    headers = "".join(f"#include {name}\n" for name in dict.fromkeys((*_system(first), *_SYSTEM.findall(rest)))) + first
    place = _parsed(headers, identity, str(cache.directory()), run) if headers else None
    if place is None:
        return Prepared(text, ())
    Path(directory, _HEADER).write_text(headers, encoding="utf-8")
    with contextlib.suppress(OSError):
        os.symlink(place, Path(directory, f"{_HEADER}.gch"))
    return Prepared(rest, ("-include", _HEADER))


@functools.lru_cache(maxsize=32)
def _system(header: str) -> tuple[str, ...]:
    """The headers of the system that a header of weft includes, of which there are few, each in front of many texts."""
    return tuple(_SYSTEM.findall(header))


def _split(text: str) -> tuple[str, str]:
    """weft's header that a source begins with ("" where it begins with none), and the rest of the source."""
    own = _FILE.match(text)
    header = own and _FILE.match(text, own.end() + 1)
    if own is None or header is None or own["file"] == header["file"]:
        return "", text
    again = re.compile(rf'^#line \d+ "{re.escape(own["file"])}"', re.MULTILINE).search(text, header.end())
    end = len(text) if again is None else again.start()
    return text[header.start() : end], text[end:]


_known: dict[tuple[str, str], Path | None] = {}  # what was read and found whole, or could not be made, by this process


def _parsed(headers: str, identity: tuple[str, ...], root: str, run: Run) -> Path | None:
    """The file with these headers parsed, from the disk cache at `root` where it is there; None where it cannot be made."""
    key = cache.key(_FORMAT, *identity, headers)
    if (key, root) not in _known:
        _known[key, root] = cache.path(key) if cache.load(key) is not None else _parse(headers, key, run)
    return _known[key, root]


def _parse(headers: str, key: str, run: Run) -> Path | None:
    with tempfile.TemporaryDirectory(prefix="weft-", ignore_cleanup_errors=True) as directory:
        Path(directory, _HEADER).write_text(headers, encoding="utf-8")
        made = Path(directory, f"{_HEADER}.gch")
        if not run(("-x", "c++-header", _HEADER, "-o", made.name), directory) or not made.exists():
            return None
        return cache.store(key, made.read_bytes())
