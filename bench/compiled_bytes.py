"""The compiled size of twenty operators in the dtypes and scalars of a training step, against templates compiled ahead of time.

weft compiles what is called: a kernel for each kind of call, equal texts once. A library of templates has 3 variants of tensors
and scalars x 7 loops = 21 kernels for every operator and dtype. What those take is told by weft's own kernels of the same
operands, which no template comes out smaller than by much: for each of the variants (two tensors, a number on the left, one on
the right) that of contiguous tensors stands for the loops over vectors of three widths and over single elements, and there are
one for strides, one for other dtypes, and one for both. All are compiled for sm_90a; no GPU is needed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness import Options, Row
from weft import ops
from weft.runtime import nvrtc

CPU_ONLY = True
ARCH = "sm_90a"
SHAPE, ROW, SECOND = "[4096,4096]", "[4096]", "[4096,4096]:(8192,2)"
HALF, FLOAT = "bfloat16", "float32"
LOOPS = 7
_TENSORS, _BIAS, _NUMBER, _LEFT = (SHAPE, SHAPE), (SHAPE, ROW), (SHAPE, 0.5), (0.5, SHAPE)

# Of a transformer whose activations are bfloat16 and whose weights are float32: the operands of each call, and its dtype.
STEP: dict[str, tuple[tuple[str, tuple[Any, ...]], ...]] = {
    "add": ((HALF, _TENSORS), (HALF, _BIAS), (FLOAT, _TENSORS), (FLOAT, _NUMBER), (FLOAT, (SHAPE, SHAPE, -0.001))),
    "sub": ((FLOAT, _TENSORS), (FLOAT, _LEFT), (HALF, _TENSORS)),
    "mul": ((HALF, _TENSORS), (HALF, _BIAS), (HALF, _NUMBER), (FLOAT, _TENSORS), (FLOAT, _NUMBER)),
    "div": ((FLOAT, _TENSORS), (FLOAT, _NUMBER), (HALF, _NUMBER)),
    "pow": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "maximum": ((FLOAT, _TENSORS), (HALF, _TENSORS)),
    "minimum": ((FLOAT, _TENSORS), (HALF, _TENSORS)),
    "fmod": ((FLOAT, _NUMBER),),
    "remainder": ((FLOAT, _NUMBER),),
    "hypot": ((FLOAT, _TENSORS),),
    "eq": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "ne": ((FLOAT, _NUMBER), (HALF, _TENSORS)),
    "lt": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "gt": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "ge": ((FLOAT, _TENSORS), (HALF, _NUMBER)),
    "le": ((FLOAT, _TENSORS), (HALF, _NUMBER)),
    "rsub": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "clamp_min": ((FLOAT, _NUMBER), (HALF, _NUMBER)),
    "prelu": ((HALF, _BIAS), (FLOAT, _BIAS)),
    "atan2": ((FLOAT, _TENSORS),),
}


def run(options: Options) -> list[Row]:
    """One row: the sizes in its case, and the time that NVRTC took, for the templates by the kernel that stands for them."""
    step = {name: STEP[name] for name in ("maximum",)} if options.quick else STEP
    called, templates = Texts(), Texts()
    with _nothing_cached():
        for name, calls in step.items():
            for dtype, operands in calls:
                called.add(name, tuple(f"{dtype}{o}" if isinstance(o, str) else o for o in operands))
    with _nothing_cached():
        for name, calls in step.items():
            for dtype in dict.fromkeys(dtype for dtype, _ in calls):
                for operands, loops in _templates(dtype):
                    templates.add(name, operands, loops)
    own = sum(size for size, _ in called.made.values())
    case = {
        "compiled": "operators of a training step",
        "operators": len(step),
        "kernels": len(called.made),
        "KB": own // 1000,
        "template kernels": templates.kernels,
        "their KB": templates.bytes // 1000,
        "of theirs": f"1/{templates.bytes / own:.1f}",
    }
    return [Row("compiled_bytes", case, sum(ms for _, ms in called.made.values()), "templates", templates.ms)]


class Texts:
    """Kernels: the bytes and the milliseconds of each by its text, and the sums of both over the loops that they stand for."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[int, float]] = {}
        self.kernels, self.bytes, self.ms = 0, 0, 0.0

    def add(self, name: str, operands: tuple[Any, ...], loops: int = 1) -> None:
        text = getattr(ops, name).source(*operands, arch=ARCH)
        if text not in self.made:
            start = time.perf_counter()
            size = len(nvrtc.compile_cubin(text, ARCH, name=f"{name}.cu").binary)
            self.made[text] = size, 1e3 * (time.perf_counter() - start)
        size, ms = self.made[text]
        self.kernels += loops
        self.bytes += loops * size
        self.ms += loops * ms


@contextmanager
def _nothing_cached() -> Iterator[None]:
    """With an empty cache, so that what is timed is compiled."""
    before = os.environ.get("WEFT_CACHE")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["WEFT_CACHE"] = cache
        try:
            yield
        finally:
            os.environ.pop("WEFT_CACHE")
            if before is not None:
                os.environ["WEFT_CACHE"] = before


def _templates(dtype: str) -> Iterator[tuple[tuple[Any, Any], int]]:
    """The first two operands of an operator of a dtype, and how many of a library's loops they stand for."""
    other = HALF if dtype == FLOAT else FLOAT
    for of, layout, loops in ((dtype, SHAPE, LOOPS - 3), (dtype, SECOND, 1), (other, SHAPE, 1), (other, SECOND, 1)):
        one, another = f"{dtype}{layout}", f"{of}{layout}"
        yield (one, another), loops
        yield (0.5, another), loops
        yield (another, 0.5), loops
