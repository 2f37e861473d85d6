"""What weft found out about a kernel, for people: text, Mermaid, HTML."""

from weft.explain.explained import Explained
from weft.explain.page import refusal
from weft.explain.report import explain
from weft.explain.words import kind_text, loop_lines

__all__ = ["Explained", "explain", "kind_text", "loop_lines", "refusal"]
