"""Lines of generated code: indentation, blocks, and comments that cite the user's source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os.path import basename

from weft.errors import Location


class Writer:
    """Collects lines at the current depth of braces."""

    def __init__(self, indent: str = "    ") -> None:
        self._indent = indent
        self._depth = 0
        self._lines: list[str] = []
        self._cited: tuple[str, int] | None = None

    def line(self, text: str = "") -> None:
        self._lines.append(self._indent * self._depth + text if text else "")

    def pragma(self, text: str) -> None:
        """A preprocessor line stands at the margin."""
        self._lines.append("#pragma " + text)

    @contextmanager
    def block(self, header: str, end: str = "}") -> Iterator[None]:
        """`header {`, what the body writes one level deeper, and `end`."""
        self.line(f"{header} {{" if header else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(end)
        self._cited = None

    def cite(self, location: Location | None) -> None:
        """Name the source line that the following lines come from, unless the lines before cite it already."""
        if location is None:
            return
        key = (location.file, location.line)
        if key != self._cited:
            self.line(f"// {citation(location)}")
            self._cited = key

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def citation(location: Location) -> str:
    """`file:line: source`, the file without its folder; nothing in it can end or continue a C++ comment."""
    head = f"{basename(location.file)}:{location.line}"
    source = location.text().strip().rstrip("\\").rstrip()
    return f"{head}: {source}" if source else head
