"""What weft found out about a kernel, for people: text, Mermaid, HTML."""

from weft.explain.report import Explained, explain, kind_text, loop_lines

__all__ = ["Explained", "explain", "kind_text", "loop_lines"]
