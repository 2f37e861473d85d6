"""What `kernel.check` gives: what was found, as text and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.console import Group

from weft.check.found import Checked
from weft.check.page import page
from weft.check.text import plain, rendered
from weft.errors import TypeMismatch


@dataclass(frozen=True)
class Report(Checked):
    """What `kernel.check` gives: what was found, to be read as text or as a page."""

    def text(self, width: int = 120) -> str:
        """The report as plain text, lines of at most `width` columns where they can be broken."""
        return plain(self, width)

    def html(self) -> str:
        """The report as one HTML page that needs nothing else."""
        return page(self)

    def save(self, path: str | Path) -> None:
        """Write the page (a path that ends in .html) or the text (.txt). Raises TypeMismatch for another ending."""
        path = Path(path)
        writers = {".html": self.html, ".txt": self.text}
        if path.suffix not in writers:
            raise TypeMismatch(f"{path.name} says no format", remedy="end it in .html or .txt")
        path.write_text(writers[path.suffix](), encoding="utf-8")

    def __str__(self) -> str:
        return self.text()

    def __rich__(self) -> Group:
        return rendered(self)

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame, so that its style stays its own."""
        style = "width:100%;height:40rem;border:0"
        return f'<iframe title="check of {escape(self.kernel)}" style="{style}" srcdoc="{escape(self.html())}"></iframe>'
