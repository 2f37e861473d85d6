"""What weft found out about a kernel, for people: text, Mermaid, HTML."""

from weft.explain.report import explain

__all__ = ["explain"]
