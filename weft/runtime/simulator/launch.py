"""One launch of a kernel on the CPU, and what the engine found and counted of it."""

from __future__ import annotations

import ctypes
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from weft.errors import LaunchError
from weft.runtime.simulator.arguments import Argument, Map
from weft.runtime.simulator.engine import Options, engine
from weft.runtime.simulator.findings import Found, Places, told
from weft.runtime.simulator.memory import Memory
from weft.runtime.simulator.program import MOST_DYNAMIC, Program, Variable, base_address, find_places, load
from weft.runtime.simulator.results import Finding, Place, Simulation, Site

Size3 = tuple[int, int, int]

_ONE_AT_A_TIME = threading.Lock()  # the engine runs one launch
_ACTIONS = ("none", "load", "store", "atomic", "async load", "async store")


def simulate(
    source: str,
    *,
    name: str,
    entry: str,
    grid: Size3,
    block: Size3,
    arguments: Sequence[Argument],
    cluster: Size3 = (1, 1, 1),
    shared: int = 0,
    registers: int = 0,
    dependent: bool = False,
    first: bool = False,
    arch: str = "sm_90a",
    seed: int = 0,
) -> Simulation:
    """Run one launch of a kernel on the CPU; arrays are read and written in place.

    shared: dynamic shared memory in bytes. registers: of a thread at entry, for kernels that move registers between
    warps. dependent: it may begin before the launch before it has ended. first: that one is of another call, and may write all
    that this one reads. seed: 0 runs threads in order and asynchronous units
    as late as they may be; others permute both. Raises CompileError for a text that is refused, LaunchError for a launch that
    could not begin.
    """
    program = load(source, name, arch)
    library = engine()
    begun = time.perf_counter()
    function = getattr(program.library, f"weft_enter_{entry}", None)
    if function is None:
        raise LaunchError(f"{name} has no kernel {entry!r}", remedy="name one of its entries")
    if faults := _faults(grid, block, cluster, shared):
        raise LaunchError(f"{entry} cannot be launched so", evidence=faults, remedy="correct the launch")
    variables = program.variables
    sizes = [min(v.bytes, shared) if v.dynamic else v.bytes for v in variables]
    spans = [n for v, size in zip(variables, sizes, strict=True) for n in (v.offset, size, v.guard)]
    table = (ctypes.c_uint64 * max(1, len(spans)))(*spans)
    with _ONE_AT_A_TIME:
        try:
            memory = Memory(library, [a.tensor if isinstance(a, Map) else a for a in arguments])
            slots, alive = memory.slots(arguments)
            options = Options(
                grid, block, cluster, registers, dependent + (dependent and first), seed,
                ctypes.cast(function, ctypes.c_void_p), ctypes.cast(program.library.weft_anchor, ctypes.c_void_p),
                ctypes.addressof(slots), ctypes.addressof(table), len(variables),
            )  # fmt: skip
            library.weft_begin(ctypes.byref(options))
            findings, sites = _collect(library, program, memory, variables)
            barriers = int(library.weft_barriers())
            memory.take_back()
            del alive
        finally:
            library.weft_end()
            library.weft_forget()
    static = sum(v.bytes for v in variables if not v.dynamic and not v.guard)
    seconds = time.perf_counter() - begun
    return Simulation(findings, sites, barriers, math.prod(grid), math.prod(block), static + shared, seconds)


def _faults(grid: Size3, block: Size3, cluster: Size3, shared: int) -> list[str]:
    """What a device would refuse of a launch."""
    faults = []
    if not 0 < math.prod(block) <= 1024 or min(block) < 1:
        faults.append(f"a block of {block} threads: it can have 1 to 1024")
    if min(grid) < 1:
        faults.append(f"a grid of {grid} has no blocks")
    if min(cluster) < 1 or any(g % c for g, c in zip(grid, cluster, strict=True)):
        faults.append(f"a grid of {grid} is not made of whole clusters of {cluster}")
    if not 0 <= shared <= MOST_DYNAMIC:
        faults.append(f"{shared} bytes of dynamic shared memory: a block can have {MOST_DYNAMIC}")
    return faults


def _collect(
    library: ctypes.CDLL, program: Program, memory: Memory, variables: Sequence[Variable]
) -> tuple[tuple[Finding, ...], tuple[Site, ...]]:
    """What the engine found and counted, with the places of its sites."""
    base = base_address(program)
    numbers = (ctypes.c_uint64 * 10)()
    rows: list[tuple[int, ...]] = []
    for k in range(int(library.weft_site_count())):
        library.weft_site(k, ctypes.addressof(numbers))
        rows.append(tuple(numbers))
    addresses = [(r[0] & (1 << 63) - 1) - base if r[0] else None for r in rows]  # the highest bit marks a second site
    find_places(program, [a for a in addresses if a is not None])
    places = [None if a is None else program.places[a] for a in addresses]

    findings = []
    times = ctypes.c_uint64()
    for k in range(int(library.weft_finding_count())):
        facts = json.loads(library.weft_finding(k, ctypes.byref(times)).decode() + "}")
        finding = told(Found(facts, int(times.value), places, memory.array, variables))
        if finding is not None:
            findings.append(finding)
    findings += [_said(program, *said) for said in program.uninitialized]
    return tuple(findings), tuple(_sites(rows, places, memory, variables))


def _sites(
    rows: Sequence[tuple[int, ...]], places: Sequence[Places | None], memory: Memory, variables: Sequence[Variable]
) -> list[Site]:
    """The sites with their counts; those that the compiler made of one place (by unrolling) together, in order."""
    together: dict[Site, list[tuple[int, ...]]] = {}
    for row, at in zip(rows, places, strict=True):
        _, kind, where, requests, *_ = row
        if at is None or not requests:
            continue
        region, offset = where >> 40 & 0x7FFFFF, where & (1 << 40) - 1
        if where >> 63:
            space = "shared"
            own = next((v for v in variables if v.offset <= offset < v.offset + v.bytes), None)
            if own is None or own.guard:
                continue
            name = own.name
        else:
            space = "global"
            found = memory.array(region, offset)
            name = found[0].name if found is not None else ""
        what = Site(*at, space, _ACTIONS[kind & 7], kind >> 8, name, 0, 0, 0, 0, 0, 0, 0)
        together.setdefault(what, []).append(row[3:])
    out = []
    for site, counts in together.items():
        total = [sum(column) for column in zip(*counts, strict=True)]
        out.append(
            replace(
                site,
                requests=total[0],
                bytes=total[1],
                turns=total[2],
                ideal_turns=total[3],
                degree=max(c[4] for c in counts),
                sectors=total[5],
                ideal_sectors=total[6],
            )
        )
    return sorted(out, key=lambda s: (s.place.line, s.header.line if s.header else 0))


def _said(program: Program, file: str, line: int, what: str) -> Finding:
    """A variable that the host's compiler sees read without a value."""
    inside = file == program.name
    return Finding(
        kind="uninitialised read",
        message=f"the C++ compiler says that {what}",
        evidence=(),
        remedy="give the variable a value before it is read",
        place=Place(program.name, line if inside else 0),
        header=None if inside else Place(file, line),
        user=program.user_place(line) if inside else None,
        times=1,
    )
