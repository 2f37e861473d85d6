"""Errors that weft shows to its users.

Each error says where (file, line, caret), what is wrong, the evidence, and a remedy.
The rooms of weft raise these; nothing else may reach the user.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A span of the user's source: lines count from 1, columns from 0 (as in Python's ast)."""

    file: str
    line: int
    column: int = 0
    end_column: int | None = None

    def text(self) -> str:
        """The source line, or "" where the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """`file:line:column`, the line and a caret under the span."""
        head = f"{self.file}:{self.line}:{self.column + 1}"
        text = self.text()
        if not text:
            return head
        end = self.end_column if self.end_column is not None else self.column + 1
        width = max(1, min(end, len(text)) - self.column)
        stripped = text.lstrip()
        shift = len(text) - len(stripped)
        caret = " " * max(0, self.column - shift) + "^" * width
        return f"{head}\n    {stripped}\n    {caret}"


class WeftError(Exception):
    """Base of all errors for users.

    message: what is wrong, one sentence. location: where. evidence: facts (values, shapes, iterations).
    remedy: what to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        location: Location | None = None,
        evidence: tuple[str, ...] | list[str] = (),
        remedy: str = "",
    ) -> None:
        self.message = message
        self.location = location
        self.evidence = tuple(evidence)
        self.remedy = remedy
        super().__init__(self.render())

    def __reduce__(self):  # type: ignore[no-untyped-def]
        state = {"location": self.location, "evidence": self.evidence, "remedy": self.remedy}
        return (_rebuild, (type(self), self.message, state))

    def render(self) -> str:
        lines = [self.message]
        if self.location is not None:
            lines += ["  at " + self.location.render().replace("\n", "\n  ")]
        lines += [f"  because: {fact}" for fact in self.evidence]
        if self.remedy:
            lines += [f"  remedy: {self.remedy}"]
        return "\n".join(lines)


class PerformanceWarning(UserWarning):
    """A kernel computes what its Python says, and something of nearly the same meaning would be much faster; or loops that are
    proven parallel run in order inside a thread of a GPU.

    Given once for each place of a kernel, there. `warnings.filterwarnings("ignore", category=weft.PerformanceWarning)`
    silences it.
    """


def _rebuild(kind: type[WeftError], message: str, state: dict) -> WeftError:  # type: ignore[type-arg]
    return kind(message, **state)


class UnsupportedSyntax(WeftError, SyntaxError):
    """The function uses Python that is not in weft's language."""


class SourceMismatch(WeftError, RuntimeError):
    """The text of a function that can be read is not what Python runs."""


class StateChanged(WeftError, RuntimeError):
    """A graph holds a kernel as it was before something changed that its function reads from outside."""


class UnknownOperator(WeftError, AttributeError):
    """A graph that torch.compile kept names an operator that this process cannot make."""


class UndefinedName(WeftError, NameError):
    """A name is read before it has a value on every path."""


class TypeMismatch(WeftError, TypeError):
    """An expression or an argument has a type (dtype, kind, rank) that does not fit."""


class ShapeMismatch(WeftError, ValueError):
    """Sizes of arguments do not fit each other or the subscripts."""


class OutOfRange(WeftError, IndexError):
    """A subscript leaves its array."""


class DivisionByZero(WeftError, ZeroDivisionError):
    """A number is divided by zero where Python, or PyTorch for integer elements, raises."""


class NumberOverflow(WeftError, OverflowError):
    """A Python int leaves 64 bits, or a float has no integer."""


class StoreOverflow(NumberOverflow, RuntimeError):
    """A Python number is stored into a tensor whose integers do not hold it."""


class MathDomainError(WeftError, ValueError):
    """A function of math is given a number outside its domain."""


class DeviceMismatch(WeftError, RuntimeError):
    """Arguments lie on different devices, or the device asked for is not there."""


class OverlapError(WeftError, RuntimeError):
    """An array that is written shares memory with itself or with another argument."""


class NotDifferentiable(WeftError, RuntimeError):
    """A gradient is asked for that weft cannot derive."""


class DependenceError(WeftError, RuntimeError):
    """What was asked for would reorder iterations that depend on each other."""


class IllegalTransform(DependenceError):
    """A transform asked for by hand would reverse a dependence. violation: which, as `weft.schedule` found it."""

    violation: object = None

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return (*super().__reduce__(), {"violation": self.violation})  # type: ignore[no-untyped-call]


class InapplicableTransform(WeftError, ValueError):
    """A transform asked for by hand does not fit the loops it is asked for, whatever they compute."""


class CompileError(WeftError, RuntimeError):
    """The generated code could not be compiled (no compiler, or the compiler's refusal)."""


class LaunchError(WeftError, RuntimeError):
    """The CUDA driver refused to load or to launch a kernel."""
