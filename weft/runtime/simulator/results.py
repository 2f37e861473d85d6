"""What a simulated launch gives: findings, and what accesses cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of a source: the kernel's text, a header of weft, or the user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Finding:
    """A fault of a kernel.

    kind: one of KINDS. message: one sentence. evidence: the threads, the address, the other access, the missing order.
    place: the line of the kernel's text; header: the line of the header that it called, if any; user: the user's line.
    times: how often it occurred.
    """

    kind: str
    message: str
    evidence: tuple[str, ...]
    remedy: str
    place: Place
    header: Place | None
    user: Place | None
    times: int


@dataclass(frozen=True)
class Site:
    """What the accesses of one place cost, summed over a launch.

    space: "shared" or "global". action: "load", "store", "atomic", "async load" or "async store". width: bytes a lane
    moves. array: the argument or the variable in shared memory. requests: instructions of warps. bytes: what lanes asked
    for. turns: how often banks were served, against ideal_turns without conflicts; degree: the most turns that lanes
    served together took. sectors: of 32 bytes, summed over requests; ideal_sectors: the fewest that hold those bytes.
    """

    place: Place
    header: Place | None
    user: Place | None
    space: str
    action: str
    width: int
    array: str
    requests: int
    bytes: int
    turns: int
    ideal_turns: int
    degree: int
    sectors: int
    ideal_sectors: int


@dataclass(frozen=True)
class Simulation:
    """A launch that was simulated. barriers: executed by blocks. shared_bytes: static and dynamic, of a block."""

    findings: tuple[Finding, ...]
    sites: tuple[Site, ...]
    barriers: int
    blocks: int
    threads: int
    shared_bytes: int
    seconds: float
