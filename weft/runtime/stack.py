"""A deeper stack for functions that follow expressions to their leaves: a sum of a thousand terms is a tree as deep."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from weft.errors import UnsupportedSyntax

P = ParamSpec("P")
R = TypeVar("R")

_BYTES, _FRAMES = 512 << 20, 150_000  # of address space: what is not touched takes no memory
_changing = threading.Lock()  # the limit and the size of new stacks are the process's
_here = threading.local()


def deep(function: Callable[P, R]) -> Callable[P, R]:
    """A function without effects of its own, called again with a stack of its own where Python's limit was too low.

    Only what needs it pays. Raises UnsupportedSyntax where even that is not enough.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RecursionError:
            if getattr(_here, "deep", False):
                raise
        return _on_a_stack_of_its_own(lambda: function(*args, **kwargs))

    return call


def _on_a_stack_of_its_own(run: Callable[[], R]) -> R:
    results: list[R] = []
    errors: list[BaseException] = []

    def body() -> None:
        _here.deep = True
        try:
            results.append(run())
        except BaseException as error:
            errors.append(error)

    with _changing:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_BYTES)
        try:
            sys.setrecursionlimit(max(limit, _FRAMES))
            thread = threading.Thread(target=body, name="weft-deep", daemon=True)
            thread.start()
            threading.stack_size(size)
            thread.join()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
    if errors and isinstance(errors[0], RecursionError):
        raise UnsupportedSyntax(
            "an expression is nested too deeply", remedy="give its parts names, or write a loop over its terms"
        ) from None
    if errors:
        raise errors[0]
    return results[0]
