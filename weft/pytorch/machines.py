"""Devices as plans see them."""

from __future__ import annotations

import torch

from weft.check import limits
from weft.plan.machine import LARGEST_CLUSTER, Machine, has_clusters, machine_of
from weft.runtime import cuda


def machine_for(arch: str) -> Machine:
    """The device that stands for an architecture."""
    target = limits.TARGETS[arch]
    return machine_of(target.multiprocessors, target.shared_per_block, target.bandwidth, arch)


def machine_on(device: torch.device) -> Machine:
    """A CUDA device of this process."""
    found = cuda.device_properties(index_of(device))
    clusters = cuda.clusters_at_once(index_of(device), LARGEST_CLUSTER) if has_clusters(found.arch) else None
    return machine_of(found.multiprocessors, found.shared_per_block_optin, found.bandwidth, found.arch, clusters)


def index_of(device: torch.device) -> int:
    """The number of a CUDA device."""
    return torch.cuda.current_device() if device.index is None else device.index
