"""What weft found out about a kernel, for people: text, Mermaid, HTML."""

from weft.explain.explained import Explained
from weft.explain.page import refusal
from weft.explain.report import Explanation, explain
from weft.explain.words import kind_text, loop_lines

__all__ = ["Explained", "Explanation", "explain", "kind_text", "loop_lines", "refusal"]
