"""Lines of generated code: indentation, blocks, and comments that cite the user's source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from os.path import basename

from weft.errors import Location


class Writer:
    """Collects lines at the current depth of braces."""

    def __init__(self, indent: str = "    ", depth: int = 0) -> None:
        self._indent = indent
        self._depth = depth
        self._lines: list[str] = []
        self._cited: tuple[str, int] | None = None

    def line(self, text: str = "") -> None:
        self._lines.append(self._indent * self._depth + text if text else "")

    def wrapped(self, start: str, items: list[str], end: str, width: int = 120) -> None:
        """`start`, the items separated by commas, and `end`, on as many lines as they need."""
        lines = [start]
        for item in [*(f"{i}, " for i in items[:-1]), *(f"{i}" for i in items[-1:])]:
            if len(lines[-1]) + len(item) > width - len(self._indent) * self._depth:
                lines[-1] = lines[-1].rstrip()
                lines.append(2 * self._indent)
            lines[-1] += item
        lines[-1] += end
        for line in lines:
            self.line(line)

    def append(self, other: Writer) -> None:
        """What another writer collected, at this depth."""
        self._lines += [self._indent * self._depth + line if line else "" for line in other._lines]

    def pragma(self, text: str) -> None:
        """A preprocessor line stands at the margin."""
        self._lines.append("#pragma " + text)

    @contextmanager
    def block(self, header: str, end: str = "}") -> Iterator[None]:
        """`header {`, what the body writes one level deeper, and `end` (none where it is empty)."""
        self.line(f"{header} {{" if header else "{")
        self._depth += 1
        yield
        self._depth -= 1
        if end:
            self.line(end)
        self._cited = None

    @contextmanager
    def blocks(self, headers: list[str]) -> Iterator[None]:
        """Blocks one in the other."""
        with ExitStack() as stack:
            for header in headers:
                stack.enter_context(self.block(header))
            yield

    def cite(self, location: Location | None) -> None:
        """Name the source line that the following lines come from, unless the lines before cite it already."""
        if location is None:
            return
        key = (location.file, location.line)
        if key != self._cited:
            self.line(comment(citation(location)))
            self._cited = key

    def mark(self) -> int:
        """Where the text stands now, for `mentions` and `insert`."""
        return len(self._lines)

    def mentions(self, name: str, since: int) -> bool:
        """Whether code written since a mark uses a name."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(word.search(line) for line in self._lines[since:] if not line.lstrip().startswith("//"))

    def insert(self, at: int, text: str) -> None:
        """Put a line at a mark, at the current depth."""
        self._lines.insert(at, self._indent * self._depth + text)

    def drop(self, at: int) -> None:
        """Leave out the line at a mark."""
        del self._lines[at]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def citation(location: Location) -> str:
    """`file:line: source`, the file without its folder."""
    head = f"{basename(location.file)}:{location.line}"
    source = location.text().strip()
    return f"{head}: {source}" if source else head


def comment(text: str) -> str:
    """A comment to the end of the line, whatever the text: what would end the line is written as an escape, and what would
    continue the comment on the next line (a backslash at the end, or its trigraph) is left out.
    """
    visible = "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text).rstrip()
    while visible.endswith(("\\", "??/")):
        visible = visible.removesuffix("\\").removesuffix("??/").rstrip()
    return f"// {visible}"
