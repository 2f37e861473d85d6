"""What torch.compile must see of a kernel that it does not trace: the values that its function reads from outside.

A witness is a plain function with the globals and the closure of one that was captured, which returns those values. Where
it is traced, torch.compile guards them as it guards a global that a traced function reads, and compiles anew where one
has changed.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from weft.language import Capture

_PLAIN = (bool, int, float, str, torch.dtype)


@dataclass(frozen=True)
class Witness:
    """read: gives the values of a function's captured names now; values: what they were."""

    read: Callable[[], tuple[Any, ...]]
    values: tuple[Any, ...]


def witnesses(captured: Capture) -> tuple[Witness, ...]:
    """A witness for each function of a capture that reads something torch.compile can guard."""
    found = []
    for function, paths in captured.reads:
        guarded = [path for path in paths if _plain(_value(function, path))]
        if guarded:
            read = _reading(function, guarded)
            found.append(Witness(read, copy.deepcopy(read())))  # a list may change where it is
    return tuple(found)


def _plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)


def _value(function: types.FunctionType, path: tuple[str, ...]) -> Any:
    try:
        return _reading(function, [path])()[0]
    except (NameError, AttributeError):
        return None


def _reading(function: types.FunctionType, paths: list[tuple[str, ...]]) -> Callable[[], tuple[Any, ...]]:
    """A function that returns what these names and attributes are where `function` was defined."""
    free = [path[0] for path in paths if path[0] in function.__code__.co_freevars]
    bound = "".join(f"    {name} = None\n" for name in free)
    values = "".join(f"{'.'.join(path)}, " for path in paths)
    text = f"def enclosing():\n{bound}    def values():\n        return ({values})\n    return values\n"
    scope: dict[str, Any] = {}
    exec(compile(text, f"<values that {function.__name__} reads>", "exec"), scope)
    code = scope["enclosing"]().__code__
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    return types.FunctionType(code, function.__globals__, "values", None, closure)
