"""Python's collector of cycles, put off."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
_was_enabled = False


@contextmanager
def uncollected() -> Iterator[None]:
    """No cycles are sought inside. An analysis makes many objects, nearly all of which stay; to go through them again and
    again, and through all others of the process, takes a fifth of its time.
    """
    global _inside, _was_enabled
    with _lock:
        if _inside == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_enabled:
                gc.enable()
