"""What a GPU gives a kernel, and how many of its blocks are on a multiprocessor at a time.

The numbers are those of the tables "Technical Specifications per Compute Capability" and "Arithmetic Instructions" of
NVIDIA's CUDA C++ Programming Guide; multiprocessors and bandwidths are those of the GPU's data sheet that stands for an
architecture.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
# Registers are given to a warp in units of 256, shared memory to a block in units of 128 bytes, and one unit of 1024
# bytes more for the system.
_REGISTER_UNIT, _SHARED_UNIT, _SHARED_RESERVED = 256, 128, 1024


@dataclass(frozen=True)
class Target:
    """A GPU. registers: of a multiprocessor, 32 bits each; shared: bytes of a multiprocessor, of a block at the most;
    threads, blocks: resident on a multiprocessor; bandwidth: bytes of its memory a second; the `most_` ones: of one thread and
    of one block.
    """

    arch: str
    device: str
    multiprocessors: int
    shared: int
    shared_per_block: int
    threads: int
    blocks: int
    bandwidth: float
    registers: int = 1 << 16
    most_registers: int = 255
    most_threads: int = 1024


TARGETS = {
    target.arch: target
    for target in (
        Target("sm_80", "A100", 108, 164 * 1024, 163 * 1024, 2048, 32, 2.039e12),
        Target("sm_86", "A40", 84, 100 * 1024, 99 * 1024, 1536, 16, 0.696e12),
        Target("sm_89", "L40S", 142, 100 * 1024, 99 * 1024, 1536, 24, 0.864e12),
        Target("sm_90a", "H200", 132, 228 * 1024, 227 * 1024, 2048, 32, 4.8e12),
    )
}


@dataclass(frozen=True)
class Occupancy:
    """blocks: resident on a multiprocessor at a time, 0 where not one fits. limit: what there would have to be more of."""

    blocks: int
    limit: str


def occupancy(target: Target, threads: int, registers: int, shared: int) -> Occupancy:
    """For blocks of `threads`, with `registers` a thread and `shared` bytes a block."""
    warps = -(-threads // WARP)
    by_warp = _up(registers * WARP, _REGISTER_UNIT)
    fits = {
        "threads": target.threads // WARP // warps,
        "registers": target.registers // (by_warp * warps) if registers else target.blocks,
        "shared memory": target.shared // (_up(shared, _SHARED_UNIT) + _SHARED_RESERVED),
        "blocks": target.blocks,
    }
    limit = min(fits, key=lambda what: fits[what])
    if threads > target.most_threads or shared > target.shared_per_block or registers > target.most_registers:
        return Occupancy(0, limit)
    return Occupancy(fits[limit], limit)


def refusals(target: Target, threads: int, registers: int, shared: int) -> tuple[str, ...]:
    """Why a block cannot be launched on a target; nothing where it can."""
    out = []
    if threads > target.most_threads:
        out.append(f"a block has {threads:,} threads; {target.arch} allows {target.most_threads:,}")
    if shared > target.shared_per_block:
        out.append(f"a block has {shared:,} bytes of shared memory; {target.arch} allows {target.shared_per_block:,}")
    if not out and occupancy(target, threads, registers, shared).blocks == 0:
        out.append(f"{threads:,} threads of {registers} registers need more than the {target.registers:,} there are")
    return tuple(out)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
