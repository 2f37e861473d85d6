"""The compilation gate: every library kernel through NVRTC, for the oldest and the newest architecture weft targets.

`python -m tests.gate` prints one line a program and fails on a register spill or a performance warning of ptxas. It
needs no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from weft.cli import arguments
from weft.kernels import LIBRARY, linear_attention
from weft.pytorch.kernel import Kernel
from weft.pytorch.specs import TensorSpec
from weft.runtime.nvrtc import Cubin, compile_cubin, gate

ARCHITECTURES = ("sm_80", "sm_90a")
DTYPES = ("float32", "bfloat16")


def programs(kernel: Kernel) -> Iterator[tuple[str, str, Cubin]]:
    """(dtype, architecture, what NVRTC made) of a kernel's example inputs, in every dtype and architecture."""
    example = arguments(kernel, {})
    for dtype in DTYPES:
        inputs = [replace(value, dtype=dtype) if isinstance(value, TensorSpec) else value for value in example]
        for arch in ARCHITECTURES:
            source = kernel.source(*inputs, arch=arch)
            yield dtype, arch, compile_cubin(source, arch, name=f"{kernel.name}_{dtype}.cu")


def main() -> int:
    unfit = 0
    kernels: list[Kernel] = [*LIBRARY.values(), linear_attention]
    for kernel in kernels:
        for dtype, arch, cubin in programs(kernel):
            problems = gate(cubin)
            unfit += bool(problems)
            facts = f"{cubin.registers} registers, {cubin.shared} bytes shared"
            print(f"{kernel.name:20} {dtype:10} {arch:8} {facts:36} {'; '.join(problems) or 'fit'}", flush=True)
    return 1 if unfit else 0


if __name__ == "__main__":
    sys.exit(main())
