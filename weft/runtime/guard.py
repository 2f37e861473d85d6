"""Places outside a call that must hold what they held: compared by identity, in a few nanoseconds each."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Sequence
from typing import Any

_DICT, _CELL, _CODE, _DEFAULTS, _KEYWORD_DEFAULTS, _ASK = range(6)
_OF_FUNCTIONS = {"__code__": _CODE, "__defaults__": _DEFAULTS, "__kwdefaults__": _KEYWORD_DEFAULTS}

# (holder, name, value): the key of a dict, the contents of a cell, an attribute of a function.
Place = tuple[Any, str, Any]


class _Place(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("holder", ctypes.c_void_p),
        ("name", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
    )


class _Record:
    """What `device/quick.hpp` reads: a count, then the places. Keeps the objects alive whose addresses it holds."""

    def __init__(self, places: Sequence[Place], absent: Any, ask: Callable[[], bool] | None) -> None:
        entries: list[tuple[int, Any, Any, Any]] = []
        for holder, name, value in places:
            kind = _DICT if isinstance(holder, dict) else _CELL
            if isinstance(holder, types.FunctionType):
                kind, value = _OF_FUNCTIONS[name], absent if value is None else value
            entries.append((kind, holder, name, value))
        if ask is not None:
            entries.append((_ASK, ask, "", absent))  # last: it may run any Python
        kind_of = type("_Guard", (ctypes.Structure,), {
            "_fields_": (("count", ctypes.c_int64), ("places", _Place * max(1, len(entries)))),
        })  # fmt: skip
        self.memory = kind_of()
        self.memory.count = len(entries)
        for k, (kind, holder, name, value) in enumerate(entries):
            self.memory.places[k] = _Place(kind, id(holder), id(name), 0 if value is absent else id(value))
        self.kept = entries


class Guard:
    """Whether what a program was made from is still so. `address`: of the pointer to the record of the places now.

    A call that is made after `watch` sees either the places of before or those of after, never a part of each.
    """

    def __init__(self) -> None:
        self._pointer = ctypes.c_void_p(0)
        self._record: _Record | None = None
        self._before: _Record | None = None
        self.address = ctypes.addressof(self._pointer)
        self.holds: Callable[[], bool] = lambda: False

    def watch(
        self, places: Sequence[Place], absent: Any, ask: Callable[[], bool] | None, holds: Callable[[], bool]
    ) -> None:
        """Hold these places from now on. absent: the value of a place that has none; ask: what no place can tell;
        holds: the same as all of these, in Python.
        """
        record = _Record(places, absent, ask)
        self._before, self._record = self._record, record  # another thread may be inside a question of the last one
        self._pointer.value = ctypes.addressof(record.memory)
        self.holds = holds
