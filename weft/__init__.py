"""weft: loops in Python to CUDA kernels for PyTorch, with proof of which may run in parallel.

`weft.kernel` compiles a function; `weft.analyze` says how each of its loops may run; `weft.schedule` transforms it by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.analysis import LoopAnalysis, analyze
    from weft.dynamo.backend import Backend, backend
    from weft.elementwise.pointwise import Pointwise, pointwise
    from weft.errors import PerformanceWarning
    from weft.hand import HandSchedule, schedule
    from weft.pytorch.kernel import Kernel, kernel
    from weft.pytorch.specs import TensorSpec

__version__ = "0.1.0"
__all__ = [
    "Backend",
    "HandSchedule",
    "Kernel",
    "LoopAnalysis",
    "PerformanceWarning",
    "Pointwise",
    "TensorSpec",
    "analyze",
    "backend",
    "kernel",
    "pointwise",
    "schedule",
]

_HOMES = {
    "Backend": "weft.dynamo.backend",
    "backend": "weft.dynamo.backend",
    "Kernel": "weft.pytorch.kernel",
    "kernel": "weft.pytorch.kernel",
    "PerformanceWarning": "weft.errors",
    "TensorSpec": "weft.pytorch.specs",
    "LoopAnalysis": "weft.analysis",
    "analyze": "weft.analysis",
    "HandSchedule": "weft.hand",
    "schedule": "weft.hand",
    "Pointwise": "weft.elementwise.pointwise",
    "pointwise": "weft.elementwise.pointwise",
}


def __getattr__(name: str) -> Any:
    if name == "ops":
        from importlib import import_module

        return import_module("weft.ops")
    # PyTorch is imported when something here is used, so that `weft.layout` and the command line start quickly
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")
