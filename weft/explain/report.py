"""An explanation in one of its formats."""

from __future__ import annotations

from collections.abc import Callable

from weft.errors import TypeMismatch
from weft.explain.explained import Explained
from weft.explain.page import page
from weft.explain.text import detailed, short


def explain(explained: Explained, format: str = "text", detail: bool = False) -> str:
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
    return writers[format](explained)
