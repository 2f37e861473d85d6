"""What plans ask of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """shared: bytes of shared memory of a multiprocessor that blocks can have. bulk: runs of memory can be copied there by
    themselves (from sm_90 on). bandwidth: bytes of memory a second.
    """

    multiprocessors: int = 132
    shared: int = 227 * 1024
    bulk: bool = True
    bandwidth: float = 4.8e12

    @property
    def cluster(self) -> int:
        """The most blocks that run together and see each other's shared memory (from sm_90 on)."""
        return 8 if self.bulk else 1


def machine_of(multiprocessors: int, shared: int, bandwidth: float, arch: str) -> Machine:
    """shared: the most bytes of a block. bandwidth: bytes of memory a second. arch: as `sm_90a`."""
    return Machine(multiprocessors, shared, int(arch.removeprefix("sm_").rstrip("abcdef")) >= 90, bandwidth)
