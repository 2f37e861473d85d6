"""The frame of a page of HTML that needs nothing else: its style and script are in it."""

from __future__ import annotations

from html import escape


def document(title: str, style: str, body: str) -> str:
    """A whole page."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"/>\n<title>{escape(title)}</title>\n'
        f"<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
