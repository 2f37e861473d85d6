"""What plans ask of a device."""

from __future__ import annotations

from dataclasses import dataclass

# The most blocks of a cluster.
LARGEST_CLUSTER = 8


@dataclass(frozen=True)
class Machine:
    """shared: bytes of shared memory of a multiprocessor that blocks can have. bulk: runs of memory can be copied there by
    themselves (from sm_90 on). bandwidth: bytes of memory a second. clusters: how many of the largest there can be at
    once, each block with a multiprocessor for itself; None: as many as of as many multiprocessors.
    """

    multiprocessors: int = 132
    shared: int = 227 * 1024
    bulk: bool = True
    bandwidth: float = 4.8e12
    clusters: int | None = None

    @property
    def at_once(self) -> int:
        """How many of the largest clusters there can be at once."""
        return self.multiprocessors // self.cluster if self.clusters is None else self.clusters

    @property
    def cluster(self) -> int:
        """The most blocks that run together and see each other's shared memory (from sm_90 on)."""
        return LARGEST_CLUSTER if self.bulk else 1


def has_clusters(arch: str) -> bool:
    """arch: as `sm_90a`."""
    return int(arch.removeprefix("sm_").rstrip("abcdef")) >= 90


def machine_of(
    multiprocessors: int, shared: int, bandwidth: float, arch: str, clusters: int | None = None
) -> Machine:
    """shared: the most bytes of a block. bandwidth: bytes of memory a second. arch: as `sm_90a`."""
    return Machine(multiprocessors, shared, has_clusters(arch), bandwidth, clusters)
