"""An explanation in one of its formats."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from weft.errors import TypeMismatch
from weft.explain.explained import Explained
from weft.explain.page import page
from weft.explain.text import detailed, short


class Explanation(str):
    """An explanation: the text of its format, which a notebook shows as the page."""

    explained: Explained

    def _repr_html_(self) -> str:
        """The page, in a frame of its own: it has styles and a script that are not the notebook's."""
        title, whole = escape(self.explained.written.name), escape(page(self.explained))
        frame = 'style="width: 100%; height: 44em; border: 0" sandbox="allow-scripts"'
        return f'<iframe title="{title}" {frame} srcdoc="{whole}"></iframe>'


def explain(explained: Explained, format: str = "text", detail: bool = False) -> Explanation:
    """The explanation of a kernel. format: "text", "mermaid" or "html"; detail: the whole of the text rather than a line
    for each loop. Raises TypeMismatch for another format.
    """
    writers: dict[str, Callable[[Explained], str]] = {
        "text": detailed if detail else short,
        "mermaid": lambda e: e.graph.to_mermaid(),
        "html": page,
    }
    if format not in writers:
        raise TypeMismatch(f"{format!r} is no format of an explanation", remedy=f"use one of {', '.join(writers)}")
    explanation = Explanation(writers[format](explained))
    explanation.explained = explained
    return explanation
