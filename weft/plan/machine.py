"""What plans ask of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """shared: bytes of shared memory of a multiprocessor that blocks can have. bulk: runs of memory can be copied there by
    themselves (from sm_90 on).
    """

    multiprocessors: int = 132
    shared: int = 227 * 1024
    bulk: bool = True


def machine_of(multiprocessors: int, shared: int, arch: str) -> Machine:
    """shared: the most bytes of a block. arch: as `sm_90a`."""
    return Machine(multiprocessors, shared, int(arch.removeprefix("sm_").rstrip("abcdef")) >= 90)
