"""The compilation gate: every library kernel through NVRTC, for the oldest and the newest architecture weft targets.

`python -m tests.gate` prints one line a program and fails on a register spill or a performance warning of ptxas. It
needs no GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from tests.gradients import examined_gradient
from weft.cli import arguments
from weft.kernels import LIBRARY, linear_attention
from weft.kernels.attention import attended_causal_alone
from weft.pytorch.inspection import sources
from weft.pytorch.kernel import Kernel
from weft.pytorch.specs import TensorSpec
from weft.runtime.nvrtc import Cubin, compile_cubin, gate

ARCHITECTURES = ("sm_80", "sm_90a")
DTYPES = ("float32", "bfloat16")
# Gradients of what tensor cores are for, in the dtype that these have.
GRADIENTS: tuple[tuple[Kernel, tuple[str | float, ...]], ...] = (
    (attended_causal_alone, (*("bfloat16[2,8,1024,64]",) * 3, 0.125)),
    (attended_causal_alone, (*("bfloat16[2,8,1024,128]",) * 3, 0.125)),
    (linear_attention, (*("bfloat16[1,16,4096,64]",) * 3, "float32[1,16,4096]")),
    (linear_attention, (*("bfloat16[1,16,4096,128]",) * 3, "float32[1,16,4096]")),
)


def programs(kernel: Kernel) -> Iterator[tuple[str, str, Cubin]]:
    """(dtype, architecture, what NVRTC made) of a kernel's example inputs, in every dtype and architecture."""
    example = arguments(kernel, {})
    for dtype in DTYPES:
        inputs = [replace(value, dtype=dtype) if isinstance(value, TensorSpec) else value for value in example]
        for arch in ARCHITECTURES:
            source = kernel.source(*inputs, arch=arch)
            yield dtype, arch, compile_cubin(source, arch, name=f"{kernel.name}_{dtype}.cu")


def gradients(kernel: Kernel, inputs: tuple[str | float, ...]) -> Iterator[tuple[str, Cubin]]:
    """(name, what NVRTC made) of each text of a kernel's gradients, for the newest architecture."""
    arch = ARCHITECTURES[-1]
    for name, source in sources(examined_gradient(kernel, *inputs), arch):
        yield name, compile_cubin(source, arch, name=f"{name}.cu")


def main() -> int:
    kernels: list[Kernel] = [*LIBRARY.values(), linear_attention]
    found = [told(kernel.name, dtype, arch, cubin) for kernel in kernels for dtype, arch, cubin in programs(kernel)]
    for kernel, inputs in GRADIENTS:
        found += [told(name, str(inputs[0]), ARCHITECTURES[-1], cubin) for name, cubin in gradients(kernel, inputs)]
    return 0 if all(found) else 1


def told(name: str, inputs: str, arch: str, cubin: Cubin) -> bool:
    """Whether a program is fit, which is printed."""
    problems = gate(cubin)
    facts = f"{cubin.registers} registers, {cubin.shared} bytes shared"
    print(f"{name:32} {inputs:24} {arch:8} {facts:36} {'; '.join(problems) or 'fit'}", flush=True)
    return not problems


if __name__ == "__main__":
    sys.exit(main())
