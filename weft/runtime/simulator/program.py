"""A kernel's text, compiled by the host's compiler so that each access calls the engine, and the places of its code."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import CompileError
from weft.runtime import host
from weft.runtime.include import HEADERS, HOST_TWINS, Source, resolve
from weft.runtime.simulator.engine import engine, file_of
from weft.runtime.simulator.results import Place

_KERNEL_FLAGS = (
    "-std=c++17",
    "-O1",
    "-gdwarf-4",  # whose line tables every addr2line reads
    "-g1",  # lines and what is inlined, no variables
    "-march=native",
    "-fPIC",
    "-shared",
    "-Wl,-Bsymbolic-functions",  # a kernel that is called as a function of the C library is not that one
    "-pipe",
    "-D_GLIBCXX_BITS_SPECFUN_H",  # as in weft.runtime.host
    "-fsanitize=thread",  # the calls at every access; the engine defines them, so no library of the sanitizer is wanted
    "-nostdlib",
    "-ffp-contract=off",  # the text states its fused multiply-adds
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fno-extern-tls-init",
    "-ftrivial-auto-var-init=pattern",
    "-Wuninitialized",
    "-Werror=frame-larger-than=524288",  # of local memory, as on a GPU
    "-Wno-attributes",
    "-Wno-unknown-pragmas",
    "-lm",
)
_GCC_FLAGS = (
    "-gstatement-frontiers",  # each statement has a line, although there are no variables
    "-fno-tree-sra",  # a vector stays one access
    "-fno-var-tracking",
    "-fno-gnu-unique",  # texts that name alike share nothing
    # What takes a tenth of the time to compile, and gains nothing where every access is a call.
    "-fno-guess-branch-probability",
    "-fno-if-conversion",
    "-fno-tree-dominator-opts",
    "-fno-ipa-modref",
    "-fno-tree-pta",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
)
PRELUDE = '#include "weft/kernels.hpp"\n'
_ENTRY = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__(?:launch_bounds|cluster_dims)__\([^)]*\)\s*)*(?P<name>\w+)\s*\(')
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?P<before>[^;]*?)(?P<name>\w+)\s*\[\s*\]\s*;")
_CITED = re.compile(r"//\s*(?P<file>[^\s:]+\.py):(?P<line>\d+):")
_UNINITIALIZED = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):\d+: warning: (?P<what>.*) \[-Wuninitialized\]", re.MULTILINE)
MOST_DYNAMIC = 232448  # bytes of shared memory that a block of sm_90 may have


@dataclass(frozen=True)
class Variable:
    """A variable in shared memory: where it lies in a block's, in bytes.

    dynamic: its size is the launch's. guard: the compiler's own, which says that another needs no construction.
    """

    name: str
    offset: int
    bytes: int
    dynamic: bool = False
    guard: bool = False


@dataclass(frozen=True)
class Program:
    """A kernel's text compiled for the simulator."""

    name: str
    source: Source
    library: ctypes.CDLL
    file: Path
    variables: tuple[Variable, ...]
    uninitialized: tuple[tuple[str, int, str], ...]  # file, line, what the compiler says
    places: dict[int, tuple[Place, Place | None, Place | None]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.source.files[0][1]

    def user_place(self, line: int) -> Place | None:
        """The user's line that the nearest comment above a line of the kernel cites."""
        lines = self.text.splitlines()
        for k in range(min(line, len(lines)) - 1, -1, -1):
            if cited := _CITED.search(lines[k]):
                return Place(cited["file"], int(cited["line"]))
        return None


@functools.lru_cache(maxsize=256)
def load(source: str, name: str, arch: str = "sm_90a") -> Program:
    """Compile a kernel's text. Raises CompileError with the compiler's words and the lines it complains of."""
    engine()
    entries = list(dict.fromkeys(m["name"] for m in _ENTRY.finditer(source)))
    if not entries:
        remedy = 'write `extern "C" __global__ void NAME(...)`'
        raise CompileError(f"{name} has no kernel", evidence=["no extern C __global__ function"], remedy=remedy)
    prelude = resolve(PRELUDE, "weft/simulator", (HOST_TWINS, HEADERS))
    rest = resolve(source, name, (HOST_TWINS, HEADERS), known=dict(prelude.files))
    dynamic = dict.fromkeys((m["name"], m["before"]) for m in _DYNAMIC.finditer(source))
    tail = ['#line 1 "weft/entries"']
    for n, t in ((n, _type(before)) for n, before in dynamic):
        tail += [f"thread_local __attribute__((aligned(1024))) {t} {n}[{MOST_DYNAMIC} / sizeof({t})];"]
    tail += ["thread_local __attribute__((aligned(16))) char weft_anchor_place[16];"]
    tail += ['extern "C" void* weft_anchor() { return weft_anchor_place; }']
    tail += [f"WEFT_ENTRY({e}, {_parameters(source, e)})" for e in entries]
    whole = Source(prelude.text + rest.text + "\n".join(tail) + "\n", (*rest.files, *prelude.files))
    arch_flag = f"-D__CUDA_ARCH__={re.sub('[^0-9]', '', arch)}0"
    compiler = host.find_compiler()
    flags = (*_KERNEL_FLAGS, *(_GCC_FLAGS if compiler.gcc else ()), arch_flag)
    built = host.build(whole, name, flags)
    file = file_of(built)
    said = tuple((m["file"], int(m["line"]), m["what"]) for m in _UNINITIALIZED.finditer(built.warnings))
    own = resolve(source, name, (HOST_TWINS, HEADERS))
    return Program(name, own, ctypes.CDLL(str(file)), file, _variables(file, {n for n, _ in dynamic}), said)


def _type(before: str) -> str:
    """The element type in a declaration, without what aligns it."""
    return re.sub(r"(alignas|__align__)\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)", "", before).strip()


def _parameters(source: str, entry: str) -> int:
    """How many parameters an entry has."""
    found = next(m for m in _ENTRY.finditer(source) if m["name"] == entry)
    depth, count, some = 0, 0, False
    for c in source[found.end() :]:
        if c in "([{<":
            depth += 1
        elif c in ")]}>":
            if depth == 0:
                break
            depth -= 1
        elif c == "," and depth == 0:
            count += 1
        some = some or not c.isspace()
    return count + some


def _tool(name: str, *arguments: str, given: str = "") -> str:
    """What a tool that comes with the compiler says. Raises CompileError where it is not here."""
    where = shutil.which(name)
    if where is None:
        raise CompileError(
            f"{name} is not here, by which the simulator finds variables and lines",
            evidence=["it is part of binutils, as the linker is"],
            remedy="install binutils",
        )
    return subprocess.run([where, *arguments], input=given, capture_output=True, text=True, check=False).stdout


def _variables(file: Path, dynamic: set[str]) -> tuple[Variable, ...]:
    """The variables in shared memory, by the symbols of the library."""
    out = []
    for line in _tool("readelf", "-sWC", str(file)).splitlines():
        columns = line.split(None, 7)
        if len(columns) == 8 and columns[3] == "TLS" and columns[6] != "UND" and "weft_anchor_place" not in columns[7]:
            name, guard = columns[7].rpartition("::")[2], columns[7].startswith("guard variable")
            out.append(Variable(name, int(columns[1], 16), int(columns[2], 0), name in dynamic and not guard, guard))
    return tuple(sorted(dict.fromkeys(out), key=lambda v: v.offset))


# ---------------------------------------------------------------- places


def find_places(program: Program, addresses: Sequence[int]) -> None:
    """Put the places of return addresses (relative to the library) into `program.places`."""
    new = [a for a in addresses if a not in program.places]
    if not new:
        return
    said = _tool("addr2line", "-e", str(program.file), "-i", "-a", given="\n".join(hex(a - 1) for a in new) + "\n")
    names = sorted((n for n, _ in program.source.files), key=len, reverse=True)
    frames: dict[int, list[Place]] = {}
    at: list[Place] = []
    for line in said.splitlines():
        if line.startswith("0x"):
            at = frames.setdefault(int(line, 16) + 1, [])
            continue
        path, _, number = line.partition(" (")[0].rpartition(":")
        known = next((n for n in names if path == n or path.endswith("/" + n)), None)
        if known is not None and number.isdigit():
            at.append(Place(known, int(number)))
    for address in new:
        stack = frames.get(address, [])
        kernel = next((p for p in stack if p.file == program.name), None)
        inner = stack[0] if stack and stack[0].file != program.name else None
        place = kernel or Place(program.name, 0)
        program.places[address] = (place, inner, program.user_place(place.line) if kernel else None)


class _Located(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def base_address(program: Program) -> int:
    """Where the library lies in memory. The dynamic linker knows; the process's list of mappings grows with every library."""
    found = _Located()
    ctypes.CDLL(None).dladdr(ctypes.cast(program.library.weft_anchor, ctypes.c_void_p), ctypes.byref(found))
    return found.base or 0
