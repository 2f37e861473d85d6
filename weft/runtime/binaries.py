"""Programs for GPUs being compiled: each source once, many at a time, while what asked for them goes on."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from weft.runtime import nvrtc

_begun: dict[tuple[str, str], Future[bytes]] = {}
_lock = threading.Lock()


@functools.lru_cache(maxsize=1)
def _compilers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, "weft-compiler")


def _forget() -> None:
    """In a process that was forked no thread works on what was begun."""
    _compilers.cache_clear()
    for key in [key for key, binary in _begun.items() if not binary.done()]:
        del _begun[key]


os.register_at_fork(after_in_child=_forget)


def begin(source: str, arch: str, name: str) -> Future[bytes]:
    """Have CUDA C++ compiled, if it is not yet."""
    with _lock:
        binary = _begun.get((source, arch))
        if binary is None:
            try:
                binary = _compilers().submit(_compiled, source, arch, name)
            except RuntimeError:  # no thread starts where Python ends
                binary = Future()
                binary.set_result(_compiled(source, arch, name))
            _begun[source, arch] = binary
    return binary


def get(source: str, arch: str, name: str) -> bytes:
    """The binary; raises what `weft.runtime.nvrtc.compile_cubin` does."""
    try:
        return begin(source, arch, name).result()
    except BaseException:
        with _lock:
            _begun.pop((source, arch), None)
        raise


def _compiled(source: str, arch: str, name: str) -> bytes:
    return nvrtc.compile_cubin(source, arch, name=f"{name}.cu").binary
