"""CUDA C++ to a cubin, by NVRTC. Neither a GPU nor a CUDA toolkit is needed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from weft.errors import CompileError
from weft.runtime import cache
from weft.runtime.include import Source, refusal, resolve

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a")

_FORMAT = "cubin 2"
_LOSS = re.compile(r"C75\d\d|Potential Performance Loss")
_MISSING = "install NVIDIA's compiler: pip install cuda-bindings nvidia-cuda-nvrtc"
# minimal: without textures and the runtime's own types, which no kernel names and each would have declared
_OPTIONS = ("-std=c++17", "--fmad=false", "--minimal", "--ptxas-options=-v")
_HEADER = struct.Struct("<I")


@dataclass(frozen=True)
class Cubin:
    """A compiled program and what ptxas says of it.

    registers: a thread's. spill_stores, spill_loads, stack: bytes a thread. shared: static shared memory in bytes a
    block. Of several functions in one program the largest counts, for spills the sum. warnings: the lines of the
    log that warn. log: all of it.
    """

    binary: bytes
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    warnings: tuple[str, ...]
    log: str


def compile_cubin(source: str, arch: str, *, name: str) -> Cubin:
    """Compile CUDA C++ (headers of weft included by `#include "weft/..."`) for one of ARCHITECTURES.

    name: what messages call the source. Nothing is contracted: `a * b + c` rounds twice, and what shall round once says
    `weft::fma`. Taken from the disk cache where it is there. Raises CompileError with the compiler's log and the lines
    it complains of, or where NVRTC is missing.
    """
    if arch not in ARCHITECTURES:
        raise CompileError(f"weft does not compile for {arch!r}", remedy=f"use one of {', '.join(ARCHITECTURES)}")
    whole = resolve(source, name)
    key = cache.key(_FORMAT, nvrtc_version(), arch, whole.text)
    entry = cache.load(key)
    if entry is not None:
        return _decode(entry)
    cubin = _compile(whole, arch, name)
    cache.store(key, _encode(cubin))
    return cubin


def gate(cubin: Cubin) -> list[str]:
    """What makes a cubin unfit to ship: register spills, and performance ptxas says it gave up (serialised wgmma)."""
    problems = []
    if cubin.spill_stores or cubin.spill_loads:
        problems.append(
            f"registers spill: {cubin.spill_stores} bytes stored and {cubin.spill_loads} loaded a thread, "
            f"at {cubin.registers} registers"
        )
    problems += [line for line in cubin.warnings if _LOSS.search(line)]
    return problems


@functools.lru_cache(maxsize=1)
def nvrtc_version() -> str:
    """The version of the NVRTC that cuda.bindings loads, from the installed package's metadata where it is one:
    loading the library itself takes longer than everything else on the way to a cached kernel.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        major = version("cuda-bindings").partition(".")[0]
        return version("nvidia-cuda-nvrtc" if int(major) >= 13 else f"nvidia-cuda-nvrtc-cu{major}")
    except PackageNotFoundError:
        pass
    try:  # NVRTC of a CUDA toolkit on this machine
        _, release, minor = importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except Exception as error:
        raise CompileError("NVRTC is not here", evidence=(str(error),), remedy=_MISSING) from error
    return f"{release}.{minor}"


def _compile(source: Source, arch: str, name: str) -> Cubin:
    with _compiled(source, name, (f"-arch={arch}", *_OPTIONS)) as (nvrtc, program, log):
        return _read_log(_text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log)


@contextlib.contextmanager
def _compiled(source: Source, name: str, options: tuple[str, ...]) -> Iterator[tuple[Any, Any, str]]:
    """NVRTC's module, a program that it has compiled, kept as long as this is entered, and the log. Raises CompileError."""
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")  # slow to import: only where something is compiled
        _, program = _done(nvrtc.nvrtcCreateProgram, source.text.encode(), name.encode(), 0, [], [])
    except Exception as error:  # that of a library that is not found lives in a private module
        raise CompileError("NVRTC is not here", evidence=(str(error),), remedy=_MISSING) from error
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
        log = log.replace("\0", "").strip()
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
            remedy = "this is a fault of weft unless the source is yours; please report it with the lines above"
            raise refusal(f"NVRTC for {options[0].removeprefix('-arch=')}", source, log, remedy)
        if status:
            raise CompileError(f"NVRTC fails on {name}", evidence=(status.name, *log.splitlines()), remedy=_MISSING)
        yield nvrtc, program, log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _done(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of NVRTC gives, its status first. Raises RuntimeError where that is of a failure."""
    status, *_ = given = function(*arguments)
    if status:
        raise RuntimeError(status.name)
    return given


def _text(size: Callable[..., Any], read: Callable[..., Any], program: Any) -> bytes:
    """What a program has, by the functions that tell its size and write it."""
    text = bytearray(_done(size, program)[1])
    _done(read, program, text)
    return bytes(text)


def _read_log(binary: bytes, log: str) -> Cubin:
    def numbers(pattern: str) -> list[int]:
        return [int(n) for n in re.findall(pattern, log)] or [0]

    lines = [line.strip() for line in log.splitlines()]
    return Cubin(
        binary=binary,
        registers=max(numbers(r"Used (\d+) registers")),
        spill_stores=sum(numbers(r"(\d+) bytes spill stores")),
        spill_loads=sum(numbers(r"(\d+) bytes spill loads")),
        stack=max(numbers(r"(\d+) bytes stack frame")),
        shared=max(numbers(r"(\d+) bytes smem")),
        warnings=tuple(line for line in lines if _LOSS.search(line) or re.search(r"\bwarning\b", line)),
        log=log,
    )


def _encode(cubin: Cubin) -> bytes:
    facts = asdict(cubin)
    binary = facts.pop("binary")
    header = json.dumps(facts).encode()
    return _HEADER.pack(len(header)) + header + bytes(binary)


def _decode(entry: bytes) -> Cubin:
    end = _HEADER.size + _HEADER.unpack_from(entry)[0]
    facts = json.loads(entry[_HEADER.size : end])
    return Cubin(binary=entry[end:], **{**facts, "warnings": tuple(facts["warnings"])})
