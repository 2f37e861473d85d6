"""The one error of the layout algebra: it says what fails, where, and shows a coordinate at which it fails."""

from __future__ import annotations

from typing import Any


class LayoutError(ValueError):
    """A layout operation has no right answer, or its input is not a layout.

    message: what is wrong. operation: the name of the operation. mode: number of the flat mode (of the right operand)
    at fault. boundary: the size that a carry crosses (a prefix product of the left operand). load: how far the modes
    together reach towards that boundary; at or past it, a carry is lost. witness: a coordinate or index at which no
    layout of the asked form is right. expected: the true value there. found: the value that adding up the modes gives
    there. remedy: what to do about it. Whatever does not apply is None.
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        mode: int | None = None,
        boundary: Any = None,
        load: Any = None,
        witness: Any = None,
        expected: Any = None,
        found: Any = None,
        remedy: str = "",
    ) -> None:
        self.message = message
        self.operation = operation
        self.mode = mode
        self.boundary = boundary
        self.load = load
        self.witness = witness
        self.expected = expected
        self.found = found
        self.remedy = remedy
        super().__init__(self.render())

    def __reduce__(self) -> Any:
        names = ("operation", "mode", "boundary", "load", "witness", "expected", "found", "remedy")
        return (_rebuild, (type(self), self.message, {name: getattr(self, name) for name in names}))

    def render(self) -> str:
        """The message, then one line for each fact that is known."""
        head = f"{self.operation}: {self.message}" if self.operation else self.message
        lines = [head]
        if self.mode is not None:
            lines.append(f"  mode: {self.mode}")
        if self.boundary is not None:
            load = f", reached with {self.load}" if self.load is not None else ""
            lines.append(f"  boundary: {self.boundary}{load}")
        if self.witness is not None:
            values = f": {self.expected} is right, the modes give {self.found}" if self.expected is not None else ""
            lines.append(f"  witness: {self.witness}{values}")
        if self.remedy:
            lines.append(f"  remedy: {self.remedy}")
        return "\n".join(lines)


def _rebuild(kind: type[LayoutError], message: str, facts: dict[str, Any]) -> LayoutError:
    return kind(message, **facts)
