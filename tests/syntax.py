"""Texts that are simulated are read by NVRTC, and no more: it spends a fifth of a compilation on that.

Whether a text is CUDA C++ is known then. What registers and memory it needs, and that ptxas takes it, is what `tests.gate`,
golden texts, every kind of plan (tests/test_every_plan.py) and `make fuzz` ask.
"""

from __future__ import annotations

import functools

from weft.check.limits import Target
from weft.pytorch import simulated
from weft.runtime import nvrtc
from weft.runtime.include import resolve

whole = simulated._resources


def install() -> None:
    """From now on, in this process."""
    simulated._resources = read  # type: ignore[assignment]


@functools.lru_cache(maxsize=256)
def read(source: str, entry: str, name: str, target: Target, threads: int) -> None:
    """What stands for `weft.pytorch.simulated._resources`. Raises CompileError, with NVRTC's log, for what it refuses."""
    # of a virtual architecture: for a real one ptxas would be given what is empty, which takes as long as reading
    arch = target.arch.replace("sm_", "compute_")
    with nvrtc._compiled(resolve(source, name), name, (f"-arch={arch}", "-std=c++17", "--minimal", "-fdevice-syntax-only")):
        pass
