"""Sources made whole: `#include "weft/..."` replaced by the header's text, so that a source is one string.

One string can be hashed, compiled by NVRTC without a search path, and shown to people. `#line` directives keep the
compiler's messages pointing at the file a person would open.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from weft.errors import CompileError

HEADERS = Path(__file__).parent / "device"
HOST_TWINS = Path(__file__).parent / "sim"  # headers that give device functions a meaning on the host
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*"weft/([^"]+)"')
_PRAGMA_ONCE = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+once\b")
_ERROR = re.compile(r"^(?P<file>[^\s(:][^(:\n]*)(?:\((?P<a>\d+)\)|:(?P<b>\d+)(?::\d+)?): (?:\w+ )?error", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """text: what the compiler gets. files: (name, text) of the source and of each header in it, as they were."""

    text: str
    files: tuple[tuple[str, str], ...]


def resolve(
    text: str, name: str, headers: tuple[Path, ...] = (HEADERS,), known: Collection[str] = ()
) -> Source:
    """`text`, called `name` in messages, with every header of weft put in where it is first included.

    headers: the directories that are searched, in order. known: the headers that stand before the text already.

    Includes are textual: one inside `#if` counts as taken. Raises CompileError for a header that is not there.
    """
    files: dict[str, str] = {}

    def expand(text: str, name: str) -> list[str]:
        files[name] = text
        lines = [f'#line 1 "{name}"']
        for before, include, number in _parts(text):
            lines += before
            if not include:
                continue
            if (header := f"weft/{include}") in files or header in known:
                lines.append("")
            else:
                lines += expand(_read(headers, include, f"{name}:{number}"), header)
                lines.append(f'#line {number + 1} "{name}"')
        return lines

    whole = "\n".join(expand(text, name)) + "\n"
    return Source(whole, tuple(files.items()))


@functools.lru_cache(maxsize=256)
def _parts(text: str) -> tuple[tuple[tuple[str, ...], str, int], ...]:
    """The lines before each include, as one, the header that it names, "" at the end, and its line."""
    found: list[tuple[tuple[str, ...], str, int]] = []
    before: list[str] = []
    for number, line in enumerate((*text.splitlines(), None), 1):
        include = None if line is None else _INCLUDE.match(line)
        if line is not None and include is None:
            before.append("" if _PRAGMA_ONCE.match(line) else line)
            continue
        found.append((("\n".join(before),) if before else (), "" if include is None else include[1], number))
        before = []
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _read(headers: tuple[Path, ...], header: str, where: str) -> str:
    place = next((h / header for h in headers if (h / header).exists()), headers[-1] / header)
    try:
        return place.read_text(encoding="utf-8")
    except OSError as error:
        remedy = "reinstall weft: its headers are part of the package"
        raise CompileError(
            f'the header "weft/{header}" is missing', evidence=(f"included at {where}", str(error)), remedy=remedy
        ) from error


def excerpts(source: Source, log: str, radius: int = 3, most: int = 3) -> str:
    """The numbered lines around the first errors in a compiler's log ("" where it names none)."""
    files = dict(source.files)
    shown: list[str] = []
    places = dict.fromkeys((m["file"], int(m["a"] or m["b"])) for m in _ERROR.finditer(log))
    for name, line in [p for p in places if p[0] in files][:most]:
        lines = files[name].splitlines()
        first, last = max(1, line - radius), min(len(lines), line + radius)
        shown.append(f"{name}, lines {first} to {last}:")
        shown += [f"{'>' if n == line else ' '} {n:4} | {lines[n - 1]}" for n in range(first, last + 1)]
    return "\n".join(shown)


def refusal(compiler: str, source: Source, log: str, remedy: str) -> CompileError:
    """The error for a compiler's refusal: its log and the source around what it complains of."""
    name = source.files[0][0]
    log = log.replace("\0", "").strip()
    evidence = [text.replace("\n", "\n    ") for text in (log, excerpts(source, log)) if text]
    return CompileError(f"{compiler} refuses {name}", evidence=evidence, remedy=remedy)
