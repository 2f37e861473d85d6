"""C++ to a shared library by the machine's compiler, and its functions called without Python's lock.

A generated function is `extern "C" int64_t NAME(const weft_slot* slots, int threads)`: it takes the record of its
arguments and how many threads to use, and gives 0 or a code of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import CompileError
from weft.runtime import cache
from weft.runtime.include import Source, refusal, resolve
from weft.runtime.precompiled import Prepared, prepare
from weft.runtime.sheltered import Processes, sheltered
from weft.runtime.slots import Frame, Slots

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-ffp-contract=fast",  # a*b + c rounded once, as on the GPU
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-exceptions",  # no kernel throws
    "-pipe",
    # libstdc++'s Bessel functions and their like, by the guard of their header. No kernel calls them, and <cmath> would have
    # them instantiated in each: a fifth of the time that a small one takes.
    "-D_GLIBCXX_BITS_SPECFUN_H",
)
_FORMAT = "host 1"
_HEADER = re.compile(r'^#include "weft/.*"\n', re.MULTILINE)
_TIMEOUT_SECONDS = 600
_CPU_FACTS = frozenset(
    ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")  # as x86 names them
    + ("Features", "CPU implementer", "CPU variant", "CPU part")  # as Arm does
)
_REMEDY = "install a C++17 compiler with OpenMP (g++ or clang++), or name it in the environment variable CXX"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the command that runs it, and what tells it from others (its file, size and date)."""

    command: tuple[str, ...]
    identity: str

    @property
    def gcc(self) -> bool:
        """Whether it is GCC, or says that it is."""
        return "clang" not in os.path.basename(os.path.realpath(self.command[0]))

    def linking(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        """Flags for linking one object: there is nothing to optimise then, and loading what would is most of the time. A kernel
        with OpenMP calls nothing of the library of C++, and that of C is there in every process: their names take as long to
        read.
        """
        if not self.gcc:
            return ()
        libraries = ("-nostdlib", "-lgomp", "-lm", "-lgcc") if "-fopenmp" in flags else ()
        return ("-fno-use-linker-plugin", *libraries)


def find_compiler() -> Compiler:
    """$CXX (which may carry arguments), else the first of c++, g++, clang++ on the PATH.

    Raises CompileError if there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    for command in [chosen] if chosen else [["c++"], ["g++"], ["clang++"]]:
        found = shutil.which(command[0])
        if found is not None:
            place = os.path.realpath(found)
            facts = os.stat(place)
            identity = f"{place} {facts.st_size} {facts.st_mtime_ns} {command[1:]}"
            return Compiler((found, *command[1:]), identity)
    sought = f"CXX={os.environ['CXX']}" if chosen else f"c++, g++ and clang++ on PATH={os.environ.get('PATH', '')}"
    raise CompileError("there is no C++ compiler", evidence=(f"looked for {sought}",), remedy=_REMEDY)


@functools.lru_cache(maxsize=1)
def cpu_model() -> str:
    """What `-march=native` depends on: a library built for one CPU may be illegal instructions on another."""
    facts = [platform.machine()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:  # the first CPU's lines; reading them all is slow where there are hundreds
            name, _, value = line.partition(":")
            if not value:
                break
            if name.strip() in _CPU_FACTS:
                facts.append(value.strip())
    return "\n".join(facts)


@dataclass(frozen=True)
class HostFunction:
    """A compiled function, its library kept open. `call(slots_address, threads)` runs it."""

    entry: str
    call: Callable[[int, int], int]


def load(source: str, entry: str, *, name: str) -> HostFunction:
    """Compile C++ (headers of weft included by `#include "weft/..."`) and open its function `entry`.

    name: what messages call the source. Taken from the disk cache where it is there. Raises CompileError with the
    compiler's log and the lines it complains of, or where there is no compiler.
    """
    return load_together([(source, entry)], name=name)[0]


def load_together(texts: Sequence[tuple[str, str]], *, name: str) -> list[HostFunction]:
    """As `load`, of several (source, entry), which are compiled as one: to start a compiler and to read headers takes as long
    as a nest. Their entries have different names.
    """
    sources = [source for source, _ in texts]
    built = build(resolve(sources[0] if len(texts) == 1 else _joined(sources), name), name)
    opened = _open(built.binary, built.place, name, ctypes.CDLL)
    try:
        functions = [opened[entry] for _, entry in texts]
    except AttributeError:  # the file was replaced since it was read
        opened = _open(built.binary, None, name, ctypes.CDLL)
        functions = [opened[entry] for _, entry in texts]
    for function in functions:
        function.argtypes = [ctypes.c_void_p, ctypes.c_int]
        function.restype = ctypes.c_int64
    return [HostFunction(entry, function) for (_, entry), function in zip(texts, functions, strict=True)]


def _joined(sources: Sequence[str]) -> str:
    """The headers of all, and then each of the sources in a namespace of its own."""
    headers = dict.fromkeys(line for source in sources for line in _HEADER.findall(source))
    bodies = [f"namespace nest_{k} {{\n{_HEADER.sub('', source)}}}\n" for k, source in enumerate(sources)]
    return "".join([*headers, *bodies])


def library(source: str, name: str, kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL:
    """Compile C++ and open the library, from the disk cache where it is there. Raises as `load` does."""
    built = build(resolve(source, name), name)
    return _open(built.binary, built.place, name, kind)


@dataclass(frozen=True)
class Built:
    """A shared library. place: the file where the cache keeps it, if it does. warnings: what the compiler said."""

    binary: bytes
    place: Path | None
    warnings: str


def build(whole: Source, name: str, flags: tuple[str, ...] = FLAGS, *, alone: bool = False) -> Built:
    """Compile C++ to a shared library, or take it from the disk cache. Raises CompileError.

    alone: no other text has its headers, so that they need not be parsed for others.
    """
    compiler = find_compiler()
    key = cache.key(_FORMAT, compiler.identity, cpu_model(), *flags, whole.text)
    entry = cache.load(key)  # whole and unharmed, or None: what is damaged must not reach the dynamic loader
    said = cache.key(key, "warnings")
    if entry is not None:
        return Built(entry, cache.path(key), (cache.load(said) or b"").decode())
    binary, warnings = sheltered(lambda processes: _compile(whole, compiler, name, flags, processes, alone))
    if warnings:
        cache.store(said, warnings.encode())
    return Built(binary, cache.store(key, binary), warnings)


def _compile(
    source: Source, compiler: Compiler, name: str, flags: tuple[str, ...], processes: Processes, alone: bool = False
) -> tuple[bytes, str]:
    def succeeds(arguments: tuple[str, ...], directory: str) -> bool:
        kept = [flag for flag in flags if flag != "-shared" and not flag.startswith(("-l", "-Wl,"))]  # nothing is linked
        return _run(processes, [*compiler.command, *kept, *arguments], directory, name)[0] == 0

    identity = (compiler.identity, cpu_model(), *flags)
    command = [*compiler.command, *flags, "kernel.cpp", "-o", "kernel.so", *compiler.linking(flags)]
    try:
        with tempfile.TemporaryDirectory(prefix="weft-", ignore_cleanup_errors=True) as directory:
            text = Path(directory, "kernel.cpp")
            prepared = Prepared(source.text, ()) if alone else prepare(source.text, directory, identity, succeeds)
            text.write_text(prepared.text, encoding="utf-8")
            code, log = _run(processes, [*command, *prepared.arguments], directory, name)
            if code != 0:  # what was kept of the headers may be harmed: the compiler's word counts without it
                text.write_text(source.text, encoding="utf-8")
                code, log = _run(processes, command, directory, name)
            output = Path(directory, "kernel.so")
            if code == 0 and output.exists():
                return output.read_bytes(), log
    except OSError as error:
        remedy = "set TMPDIR to a directory with room that may be written to"
        raise CompileError(f"{name} cannot be compiled here", evidence=(str(error),), remedy=remedy) from error
    log = log or f"{shlex.join(command)} ended with {code} and said nothing"
    remedy = f"see that {compiler.command[0]} compiles C++17 with -fopenmp; if it does, please report this"
    raise refusal(compiler.command[0], source, log, remedy)


def _run(processes: Processes, command: list[str], directory: str, name: str) -> tuple[int, str]:
    """The exit status of a compiler and what it said. Raises CompileError where it cannot be run or takes too long."""
    environment = {**os.environ, "LC_ALL": "C"}  # messages that can be searched for "error"
    try:
        return processes.run(command, directory, environment, _TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"the C++ compiler fails on {name}", evidence=(str(error),), remedy=_REMEDY) from error


def _open(binary: bytes, place: Path | None, name: str, kind: type[ctypes.CDLL]) -> ctypes.CDLL:
    """The library of these bytes, opened where the cache keeps it, else (a home that forbids execution) from a copy."""
    if place is not None:
        with contextlib.suppress(OSError):
            return kind(str(place))
    try:
        with tempfile.NamedTemporaryFile(prefix="weft-", suffix=".so") as copy:
            copy.write(binary)
            copy.flush()
            return kind(copy.name)
    except OSError as error:
        raise CompileError(
            f"{name} is compiled but cannot be opened",
            evidence=(str(error),),
            remedy="set TMPDIR or WEFT_CACHE to a directory with room whose files may be executed",
        ) from error


@dataclass(frozen=True)
class HostParts:
    """What running a function consists of, for callers that spell it out."""

    call: Callable[[int, int], int]
    slots: Slots


class HostKernel:
    """A compiled function with its fixed arguments; may be run by several threads at a time."""

    def __init__(self, function: HostFunction, slots: Slots) -> None:
        self._call = function.call
        self._slots = slots
        # Frames not in use. Taking one out and putting it back are atomic, so no two threads share a frame.
        self._frames = [Frame(slots)]

    def parts(self) -> HostParts:
        return HostParts(self._call, self._slots)

    def launch(self, threads: int, *values: int | float) -> int:
        """Run with so many threads and the given slots in order, Python's lock released. The function's own code."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self._slots)
        frame.write(*values)
        code = self._call(frame.address, threads)
        self._frames.append(frame)
        return code
