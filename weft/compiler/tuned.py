"""Which leaning of a nest was the fastest where `kernel.tune` measured, by the device and the class of the sizes."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from weft.compiler.analysis import Analysis
from weft.plan.leaning import LEANINGS, PLANNED, Leaning
from weft.plan.machine import Machine
from weft.runtime import cache

_asked: ContextVar[Mapping[int, Leaning]] = ContextVar("leanings by nest")  # of the calls that are measured
# Of what is known: calls that were prepared in an earlier one are prepared anew. Quick calls read it where it lies.
generation = ctypes.c_int64(0)
_known: dict[str, Leaning] = {}  # what the disk cache said, or this process kept


def leaning_of(analysis: Analysis, nest: int, names: Mapping[str, int], machine: Machine) -> Leaning:
    """What was measured to be the fastest; the planner's own choice where nothing was."""
    asked = _asked.get(None)
    if asked is not None:
        return asked.get(nest, PLANNED)
    if not analysis.key:
        return PLANNED
    key = _key(analysis, nest, names, machine)
    if key not in _known:
        name = (cache.load(key) or b"").decode(errors="replace")
        _known[key] = next((one for one in LEANINGS if one.name == name), PLANNED)
    return _known[key]


@contextlib.contextmanager
def asking(leanings: Mapping[int, Leaning]) -> Iterator[None]:
    """Within it, the nests of a call are planned so, whatever was measured before; others as their planners choose."""
    token = _asked.set(leanings)
    try:
        yield
    finally:
        _asked.reset(token)


def keep(analysis: Analysis, nest: int, names: Mapping[str, int], machine: Machine, leaning: Leaning) -> None:
    """Have later calls of this class take a leaning, in this process and, where there is a disk cache, in others."""
    if analysis.key:
        generation.value += 1
        key = _key(analysis, nest, names, machine)
        _known[key] = leaning
        cache.store(key, leaning.name.encode())


def _key(analysis: Analysis, nest: int, names: Mapping[str, int], machine: Machine) -> str:
    classes = sorted((n, max(0, v - 1).bit_length()) for n, v in names.items() if isinstance(v, int))  # by powers of two
    return cache.key("tuned", analysis.key, f"{nest} {machine!r} {classes}")
