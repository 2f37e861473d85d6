"""The engine (weft/runtime/sim): compiled once by the host's compiler, its symbols open to the kernels it runs."""

from __future__ import annotations

import ctypes
import functools
import tempfile
from pathlib import Path

from weft.runtime import host
from weft.runtime.include import HEADERS, HOST_TWINS, resolve

_ENGINE_FLAGS = ("-std=c++17", "-O2", "-march=native", "-fPIC", "-shared", "-pthread", "-pipe")


@functools.lru_cache(maxsize=1)
def engine() -> ctypes.CDLL:
    """The engine, its symbols open to kernels. Raises CompileError."""
    text = Path(HOST_TWINS / "engine.cpp").read_text(encoding="utf-8")
    built = host.build(resolve(text, "engine.cpp", (HOST_TWINS, HEADERS)), "engine.cpp", _ENGINE_FLAGS, alone=True)
    library = ctypes.CDLL(str(file_of(built)), mode=ctypes.RTLD_GLOBAL)
    library.weft_place.restype = ctypes.c_void_p
    library.weft_place.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64]
    library.weft_track.argtypes = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_bool]
    library.weft_states.argtypes = [ctypes.c_uint32, ctypes.c_void_p]
    library.weft_states.restype = ctypes.c_bool
    library.weft_finding.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    library.weft_finding.restype = ctypes.c_char_p
    library.weft_site.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
    for name in ("weft_finding_count", "weft_site_count", "weft_barriers"):
        getattr(library, name).restype = ctypes.c_uint64
    return library


_kept: dict[str, Path] = {}  # libraries that no cache keeps, by their text


def file_of(built: host.Built) -> Path:
    """A file that holds the library for as long as the process runs."""
    if built.place is not None:
        return built.place
    key = str(hash(built.binary))
    if key not in _kept:
        with tempfile.NamedTemporaryFile(prefix="weft-", suffix=".so", delete=False) as file:
            file.write(built.binary)
        _kept[key] = Path(file.name)
    return _kept[key]


class Options(ctypes.Structure):
    """weft_launch_options of weft/runtime/sim/hooks.hpp."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("registers", ctypes.c_uint32),
        ("dependent", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("entry", ctypes.c_void_p),
        ("anchor", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("shared_count", ctypes.c_uint64),
    )
