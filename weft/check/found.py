"""What a check found: findings of the simulator, costs by line, the comparison with the plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.runtime.simulator import Finding, Place, Simulation, Site

SECTOR = 32
"""Bytes of a sector, the least that global memory moves."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, as the compiler says: registers and spilled bytes a thread, static shared bytes a block.

    blocks: resident on a multiprocessor at a time, by `limit`. problems: why it cannot be launched. notes: what makes it
    slower than it might be, as the compiler says.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    blocks: int
    limit: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launched:
    """One launch of the call. source: the kernel's text, which messages call `file`. part: "forward" or "gradient".

    resources: None where NVRTC is not here. simulations: one for each seed.
    """

    file: str
    entry: str
    source: str
    part: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    resources: Resources | None
    simulations: tuple[Simulation, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The counts of the first seed; they depend on no schedule."""
        return self.simulations[0].sites if self.simulations else ()


@dataclass(frozen=True)
class Comparison:
    """One array of the call against the reference.

    name: the array, or "gradient of x". differing: elements beyond the tolerance; unwritten: those that still hold what
    uninitialised memory was filled with, where the reference has a value. index, got, want: the element that is worst
    beside what it may differ by; error: its absolute error; ulps: the same in units in the last place of `want` in `dtype`.
    differing_seeds: seeds whose bits are not those of the first. sensitive: some elements differ by more than the
    tolerance and count as equal, since rounding moves the reference as much.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    differing: int
    unwritten: int
    index: tuple[int, ...]
    got: float
    want: float
    error: float
    ulps: float
    tolerance: float
    differing_seeds: tuple[int, ...] = ()
    sensitive: bool = False

    @property
    def ok(self) -> bool:
        return not self.differing and not self.unwritten and not self.differing_seeds


@dataclass(frozen=True)
class Found:
    """A finding of a launch, and the seeds of the schedules in which it showed."""

    launch: Launched
    finding: Finding
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Checked:
    """What a check found: findings, the comparison with the Python, resources and costs.

    device: the GPU that stands for `arch`. arguments: what the call was made with, in words. inputs: how random inputs
    were made, "" where tensors were given. reference: what results were compared with, in words. files: name and text of
    the user's sources and of headers that a finding or a site names.
    """

    kernel: str
    arch: str
    device: str
    arguments: tuple[str, ...]
    inputs: str
    reference: str
    seeds: tuple[int, ...]
    launches: tuple[Launched, ...]
    comparisons: tuple[Comparison, ...]
    files: tuple[tuple[str, str], ...] = ()

    @property
    def findings(self) -> tuple[Found, ...]:
        """What went wrong: equal findings of several seeds are one."""
        found: dict[tuple[object, ...], Found] = {}
        for k, launch in enumerate(self.launches):
            each = len(launch.simulations) // len(self.seeds)  # one for every iteration of the loops around it
            for n, simulation in enumerate(launch.simulations):
                seed = self.seeds[n // each]
                for finding in simulation.findings:
                    key = (k, finding.kind, finding.place, finding.header)
                    known = found.get(key)
                    if known is None:
                        found[key] = Found(launch, finding, (seed,))
                        continue
                    total = replace(known.finding, times=known.finding.times + finding.times)
                    seeds = known.seeds if seed in known.seeds else (*known.seeds, seed)
                    found[key] = Found(launch, total, seeds)
        return tuple(found.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Why a kernel cannot be launched on the target: a block that is too large."""
        return tuple(
            f"{launch.entry}: {problem}"
            for launch in self.launches
            if launch.resources is not None
            for problem in launch.resources.problems
        )

    @property
    def differences(self) -> tuple[Comparison, ...]:
        return tuple(c for c in self.comparisons if not c.ok)

    @property
    def ok(self) -> bool:
        """Nothing was found, and every array equals the reference within the tolerance, with the same bits every seed."""
        return not self.findings and not self.differences and not self.problems

    def line(self, launch: Launched | None, place: Place | None) -> str:
        """The text of a line, or "" where its file is not at hand."""
        if place is None:
            return ""
        text = launch.source if launch is not None and place.file == launch.file else dict(self.files).get(place.file)
        lines = (text or "").splitlines()
        return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""


@dataclass(frozen=True)
class Cost:
    """What the accesses of one site cost, beside what they need."""

    launch: Launched
    site: Site

    @property
    def moved(self) -> int:
        """Bytes of global memory, whole sectors."""
        return self.site.sectors * SECTOR

    @property
    def excess(self) -> int:
        """Bytes of global memory beyond the fewest sectors; for shared memory, 128 bytes a turn beyond the ideal."""
        if self.site.space == "shared":
            return (self.site.turns - self.site.ideal_turns) * 128
        return (self.site.sectors - self.site.ideal_sectors) * SECTOR

    @property
    def total(self) -> int:
        """Bytes moved, a turn of shared memory counted as the 128 bytes it could move."""
        return self.site.turns * 128 if self.site.space == "shared" else self.moved

    @property
    def ratio(self) -> float:
        """What it moves over what it needs to move; 1 where nothing is wasted."""
        return self.total / (self.total - self.excess) if self.total > self.excess else 1.0


def costs(checked: Checked) -> tuple[Cost, ...]:
    """The costs of all sites, worst first: by what is wasted, then by what is moved."""
    every = [Cost(launch, site) for launch in checked.launches for site in launch.sites]
    return tuple(sorted(every, key=lambda c: (-c.excess, -c.total, c.launch.file, c.site.place.line)))


def named_files(launches: Iterable[Launched]) -> Iterator[str]:
    """The names of the files, other than kernels, that findings and sites name."""
    for launch in launches:
        for simulation in launch.simulations:
            items: tuple[Finding | Site, ...] = (*simulation.findings, *simulation.sites)
            for item in items:
                yield from (p.file for p in (item.header, item.user) if p is not None)
