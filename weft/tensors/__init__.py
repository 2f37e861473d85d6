"""Tensor graphs: operators on whole tensors, and on the tiles that blocks have of them, as a way to weft's loops."""

from __future__ import annotations

from weft.tensors.block_graph import BlockGraph
from weft.tensors.kernel_graph import KernelGraph

__all__ = ["BlockGraph", "KernelGraph"]
