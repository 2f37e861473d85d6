"""Tile graphs. Tensor graphs, of which they are made too, live in `weft.tensors` and are found here by name."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # above this room, which imports nothing of it
    if name in ("KernelGraph", "BlockGraph"):
        from importlib import import_module

        return getattr(import_module("weft.tensors"), name)
    raise AttributeError(f"module 'weft.graph' has no attribute {name!r}")
