"""The plan of a wavefront: rows beside each other, a thread each, some steps behind each other."""

from __future__ import annotations

from dataclasses import dataclass

from weft.plan.machine import Machine

WARP = 32
# The most rows of a strip; blocks of so many threads that are on a multiprocessor at once.
STRIP, RESIDENT = 128, 4
# Steps after which a block tells the next one how far it is.
CHUNK = 32
# Steps before it that a point asks for what no row writes; a chunk has a multiple of them.
AHEAD = 4
# What a step takes, at which a thread's point waits for the one before it; what a point costs a multiprocessor.
STEP_SECONDS, POINT_SECONDS = 6e-7, 5e-10


@dataclass(frozen=True)
class WavefrontPlan:
    """order: the axes around, from the slowest to the fastest. threads: rows that a block goes through at once, a strip of
    them. shared: blocks share the strips of an iteration of the axes, and tell each other how far they are. ahead: steps before
    it that a point reads what no row writes.
    """

    order: tuple[str, ...]
    threads: int
    shared: bool
    ahead: int


def plan_wavefront(order: tuple[str, ...], items: int, rows: int, machine: Machine) -> tuple[WavefrontPlan, int, int]:
    """The plan, the strips of an item, and the blocks that share them. items: iterations of the axes."""
    threads = min(STRIP, -(-max(1, rows) // WARP) * WARP)
    strips = -(-rows // threads)
    blocks = max(1, min(strips, machine.multiprocessors * RESIDENT // max(1, items)))
    return WavefrontPlan(order, threads, blocks > 1, AHEAD), strips, blocks


def seconds_of_steps(
    plan: WavefrontPlan, items: int, rows: int, points: int, slope: int, blocks: int, machine: Machine
) -> float:
    """About how long a wavefront takes. points: the most of a row."""
    strips = -(-rows // plan.threads)
    turns = -(-strips // blocks)
    steps = turns * (points + slope * plan.threads) + (blocks - 1) * (slope * plan.threads + 2 * CHUNK)
    waves = -(-items * blocks // (machine.multiprocessors * RESIDENT))
    return max(waves * steps * STEP_SECONDS, items * rows * points * POINT_SECONDS / machine.multiprocessors)
