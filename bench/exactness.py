"""The simulator's bits against the GPU's: `python -m bench.exactness [--out FILE] [--quick]` on a machine with a GPU.

Every kernel of the library, forward and gradient, in every float type, at ragged, tiny and large sizes, and every kernel
written against the device functions, run on both with the same inputs. A NaN equals a NaN: their bits are counted apart.

Three classes are told. `exact`: made of operations that IEEE 754 rounds in one way, so the bits are equal. `functions`: an
exponential, a logarithm or a reciprocal square root is in it, which CUDA's library and the host's compute differently.
`tensor cores`: the order and width in which products are summed are the hardware's own; of whole numbers they are exact.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.evidence import Facts, record
from bench.harness import options_of
from tests.device_kernels import KERNELS, Array, DeviceKernel, bfloat16_bits
from weft.kernels import LIBRARY
from weft.pytorch.call import argument_types
from weft.pytorch.executable import Executable, adjoint_of
from weft.pytorch.simulated import Ran, simulate_call
from weft.pytorch.specs import TensorSpec, parse

BENCH = "exactness"
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SIZES = ((3, 5), (7, 33), (130, 1000), (5, 4097), (4, 20000))
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SPECIAL = "special values"  # a case of its own: infinities, NaN, zeros of both signs, the smallest and the largest numbers

# Functions that are not rounded in one way everywhere, by what their kernels call in the generated text.
_FUNCTIONS = ("weft::exp(", "weft::log(", "weft::erf(", "weft::rsqrt(", "weft::tanh(", "weft::sigmoid(", "weft::power(")


@dataclass(frozen=True)
class Difference:
    """Two results of one type. nans: elements that are NaN in both with other bits. largest: the greatest distance in
    units in the last place of the element itself; of_op_math: in those of the type that arithmetic runs in; of_array: in
    those of the array's largest magnitude, in the type that is stored (of the tensor cores' products: of the sum of the
    magnitudes of an element's terms).
    """

    elements: int
    differing: int
    nans: int
    largest: float
    of_op_math: float
    of_array: float


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> Difference:
    a, b = ours.contiguous(), theirs.contiguous()
    bits = _BITS[a.element_size()]
    unequal = a.view(bits) != b.view(bits)
    if not a.is_floating_point():
        return Difference(a.numel(), int(unequal.sum()), 0, 0.0, 0.0, 0.0)
    both_nan = a.isnan() & b.isnan()
    nans, differs = int((unequal & both_nan).sum()), unequal & ~both_nan
    if not bool(differs.any()):
        return Difference(a.numel(), 0, nans, 0.0, 0.0, 0.0)
    wide = torch.maximum(a.double().abs(), b.double().abs())
    gap = (a.double() - b.double()).abs().nan_to_num(nan=float("inf"))[differs]
    opmath = a.dtype if a.dtype is torch.float64 else torch.float32
    own, finite = unit(wide, a.dtype), wide[wide.isfinite()]
    largest = finite.max() if len(finite) else torch.tensor(0.0, dtype=torch.float64)
    return Difference(
        a.numel(),
        int(differs.sum()),
        nans,
        float((gap / own[differs]).max()),
        float((gap / unit(wide, opmath)[differs]).max()),
        float(gap.max() / unit(largest, a.dtype)),
    )


def unit(magnitudes: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The units in the last place of magnitudes in a type; below its normal numbers, that of the smallest of them."""
    info = torch.finfo(dtype)
    return info.eps * torch.exp2(torch.floor(torch.log2(magnitudes.nan_to_num(posinf=info.max).clamp(min=info.tiny))))


# ---------------------------------------------------------------- the library


@dataclass(frozen=True)
class Case:
    kernel: str
    dtype: torch.dtype
    size: tuple[int, int]
    special: bool = False

    def arguments(self) -> list[Any]:
        """In CPU memory, the same in every process."""
        kernel = LIBRARY[self.kernel]
        generator = torch.Generator().manual_seed(self.size[1])
        out: list[Any] = []
        for given in kernel.example.values():
            spec = parse(given) if isinstance(given, str) else given
            if not isinstance(spec, TensorSpec):
                out.append(spec)
                continue
            shape = self.size if len(spec.shape) == 2 else self.size[1:]
            value = torch.randn(shape, generator=generator, dtype=torch.float64)
            if self.special and not out:
                value.view(-1)[:: max(1, value.numel() // 40)] = float("nan")
                marks = torch.tensor([float("inf"), -float("inf"), 0.0, -0.0, 1e-42, -1e-42, 6e4, -1e-7, 3e38, 1e-310])
                place = torch.randint(value.shape[1], (value.shape[0], 4), generator=generator)
                pick = marks.double()[torch.randint(len(marks), place.shape, generator=generator)]
                value[1:] = value[1:].nan_to_num(nan=0.5).scatter(1, place[1:], pick[1:])
            out.append(value.to(self.dtype))
        return out


@dataclass(frozen=True)
class Bits:
    """A tensor as it goes from process to process: torch's own way keeps a file open for each."""

    dtype: torch.dtype
    bits: Array

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Bits:
        return cls(tensor.dtype, tensor.contiguous().view(_BITS[tensor.element_size()]).numpy())

    def tensor(self) -> torch.Tensor:
        return torch.from_numpy(self.bits).view(self.dtype)


@dataclass(frozen=True)
class Simulated:
    """What the simulator gave: results forward, gradients, and for each whether a function of no fixed rounding is in it."""

    forward: dict[str, Bits]
    gradient: dict[str, Bits]
    functions: tuple[bool, bool]
    findings: int


def wanted_of(case: Case, args: Sequence[Any]) -> tuple[str, ...]:
    names = [p.name for p in LIBRARY[case.kernel].kernel.signature.parameters]
    return tuple(n for n, a in zip(names, args, strict=True) if isinstance(a, torch.Tensor))


def gradient_of(case: Case, args: Sequence[Any]) -> Executable:
    kernel = LIBRARY[case.kernel].kernel
    return adjoint_of(kernel.program, argument_types(kernel.signature, args), wanted_of(case, args))


def cotangent(result: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype)


def simulated(case: Case) -> Simulated:
    """A case on the simulator; the gradient takes the results of the simulator's own forward."""
    args = case.arguments()
    forward = simulate_call(LIBRARY[case.kernel].kernel.program, case.arguments(), "sm_90a", 0, "forward")
    results = [forward.arrays[r] for r in forward.results]
    given = [*args, *results, *map(cotangent, results)]
    backward = simulate_call(gradient_of(case, args), given, "sm_90a", 0, "gradient")
    findings = sum(len(s.findings) for ran in (forward, backward) for launch in ran.launches for s in launch.simulations)
    return Simulated(
        {r: Bits.of(forward.arrays[r]) for r in forward.results},
        {r: Bits.of(backward.arrays[r]) for r in backward.results},
        (_has_functions(forward), _has_functions(backward)),
        findings,
    )


def _has_functions(ran: Ran) -> bool:
    return any(name in launch.source for launch in ran.launches for name in _FUNCTIONS)


def on_gpu(executable: Executable, args: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
    with torch.no_grad():
        made = executable.execute(tuple(a.to(device) if isinstance(a, torch.Tensor) else a for a in args))
    return [m.cpu() for m in (made if isinstance(made, tuple) else (made,))]


def library_rows(case: Case, own: Simulated, device: torch.device) -> list[Facts]:
    args = case.arguments()
    kernel = LIBRARY[case.kernel].kernel
    results = [b.tensor() for b in own.forward.values()]
    passes = {
        "forward": (kernel.program, args, own.forward),
        "gradient": (gradient_of(case, args), [*args, *results, *map(cotangent, results)], own.gradient),
    }
    rows = []
    for k, (which, (executable, given, ours)) in enumerate(passes.items()):
        theirs = on_gpu(executable, given, device)
        for (name, mine), found in zip(ours.items(), theirs, strict=True):
            about = {"kernel": case.kernel, "pass": which, "array": name, "dtype": _name(case.dtype), "size": list(case.size)}
            if case.special:
                about["inputs"] = _SPECIAL
            kind = "functions" if own.functions[k] else "exact"
            rows.append(_row(about, kind, difference(mine.tensor(), found), own.findings))
    return rows


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _row(case: Facts, kind: str, d: Difference, findings: int) -> Facts:
    numbers = {"ulps": d.largest, "ulps_of_op_math": d.of_op_math, "ulps_of_largest": d.of_array}
    rounded = {k: float(f"{v:.3g}") if v < 1e300 else str(v) for k, v in numbers.items()}
    counts = {"elements": d.elements, "differing": d.differing, "nan_bits": d.nans, "findings": findings}
    return {"bench": BENCH, "case": case, "class": kind, **counts, **rounded}


# ---------------------------------------------------------------- operations

ROUNDED_ONE_WAY = (
    "a + b", "a - b", "a * b", "a / b", "weft::fma(a, b, T(0.75))", "weft::sqrt(a)", "weft::maximum(a, b)",
    "weft::minimum(a, b)", "weft::drop_nan_max(a, b)", "weft::drop_nan_min(a, b)", "weft::python_max(a, b)",
    "weft::python_min(a, b)", "weft::fmod(a, b)", "weft::modulo(a, b)", "weft::floor_divide(a, b)",
    "weft::divide(a, weft::Divisor<T>(b))", "weft::floor(a)", "weft::ceil(a)", "weft::trunc(a)", "weft::round(a)",
    "weft::absolute(a)", "weft::sign(a)", "weft::copysign(a, b)", "T(float(a))", "T(double(a))",
    "T(weft::round_float16(float(a)))", "T(weft::round_bfloat16(float(a)))",
)  # fmt: skip
FUNCTIONS = (
    "weft::exp(a)", "weft::exp2(a)", "weft::expm1(a)", "weft::log(weft::absolute(a))", "weft::log2(weft::absolute(a))",
    "weft::log10(weft::absolute(a))", "weft::log1p(weft::absolute(a))", "weft::rsqrt(weft::absolute(a))",
    "weft::erf(a)", "weft::erfc(a)", "weft::tanh(a)", "weft::sigmoid(a)", "weft::sinh(a)", "weft::cosh(a)", "weft::sin(a)",
    "weft::cos(a)", "weft::tan(a)", "weft::asin(a)", "weft::acos(a)", "weft::atan(a)", "weft::asinh(a)",
    "weft::acosh(weft::absolute(a))", "weft::atanh(a)", "weft::atan2(a, b)", "weft::hypot(a, b)",
    "weft::power(weft::absolute(a), b)",
)  # fmt: skip
OPERATIONS = (*ROUNDED_ONE_WAY, *FUNCTIONS)
_PAIRS = 1 << 16


def operations(dtype: str) -> DeviceKernel:
    """Every operation on pairs of numbers of "float" or "double": ordinary ones, and every kind of bits."""
    numbers = np.float32 if dtype == "float" else np.float64
    lines = "\n".join(f"    y[{k} * {_PAIRS} + i] = {text};" for k, text in enumerate(OPERATIONS))
    source = f"""#include "weft/scalar.cuh"
using T = {dtype};
extern "C" __global__ void operations(const T* x, T* y) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const T a = x[i], b = x[{_PAIRS} + i];
{lines}
}}
"""

    def inputs(generator: np.random.Generator) -> tuple[Array, ...]:
        ordinary = generator.normal(0, 4, (2, _PAIRS // 2)).astype(numbers)
        tiny, huge = np.finfo(numbers).tiny, np.finfo(numbers).max
        marks = np.array([0, -0.0, 1, -1, 0.5, 2, np.inf, -np.inf, np.nan, -np.nan, tiny, -tiny, tiny / 8, huge, -huge, 1e-3])
        some = np.concatenate([marks.astype(numbers), generator.normal(0, 1, 112).astype(numbers)])
        pairs = np.stack([np.repeat(some, 128), np.tile(some, 128)])
        bits = generator.integers(0, 256, (2, _PAIRS // 4 * np.dtype(numbers).itemsize), dtype=np.uint8).view(numbers)
        return (np.concatenate([ordinary, pairs, bits], axis=1),)

    def nothing(x: Array) -> tuple[Array, ...]:
        return (np.zeros((len(OPERATIONS), _PAIRS), numbers),)

    return DeviceKernel("operations", source, inputs, nothing, (_PAIRS // 256, 1, 1), (256, 1, 1), exact=False)


def operation_rows(dtype: str, findings: int, ours: Array) -> list[Facts]:
    from tests.test_device_functions import run_on_gpu

    (theirs,), _ = run_on_gpu(operations(dtype), 0)
    rows = []
    for k, text in enumerate(OPERATIONS):
        mine, found = (torch.from_numpy(np.array(array[k])) for array in (ours, theirs))
        kind = "exact" if text in ROUNDED_ONE_WAY else "functions"
        rows.append(_row({"operation": text, "dtype": dtype}, kind, difference(mine, found), findings))
    return rows


def simulated_operations(dtype: str) -> tuple[int, Array]:
    from tests.test_device_simulator import run_simulated

    simulation, (got,), _ = run_simulated(operations(dtype), 0)
    return len(simulation.findings), got


# ---------------------------------------------------------------- the device functions


def normal_inputs(kernel: DeviceKernel) -> DeviceKernel | None:
    """The kernel on normal numbers instead of whole ones, where it is a product of matrices; None where it is not."""
    if not any(word in kernel.name for word in ("mma", "product")):
        return None

    def normal(array: Array, generator: np.random.Generator) -> Array:
        values = generator.standard_normal(array.shape)
        if array.dtype != np.uint16:
            return values.astype(array.dtype)
        half = "float16" in kernel.name and "bfloat16" not in kernel.name
        return values.astype(np.float16).view(np.uint16) if half else bfloat16_bits(values.astype(np.float32))

    def inputs(generator: np.random.Generator) -> tuple[Array, ...]:
        return tuple(normal(array, generator) for array in kernel.inputs(generator))

    return replace(kernel, inputs=inputs, exact=False)


def magnitudes(kernel: DeviceKernel) -> tuple[Array, ...]:
    """What a product of matrices gives for the magnitudes of its inputs: what its rounding is in proportion to."""
    inputs = kernel.inputs(np.random.default_rng(0))
    return kernel.reference(*(a & np.uint16(0x7FFF) if a.dtype == np.uint16 else np.abs(a) for a in inputs))


def simulated_device_kernel(index: int, normal: bool) -> tuple[int, tuple[Array, ...]]:
    from tests.test_device_simulator import run_simulated

    simulation, got, _ = run_simulated(_device_kernel(index, normal), 0)
    return len(simulation.findings), got


def _device_kernel(index: int, normal: bool) -> DeviceKernel:
    made = normal_inputs(KERNELS[index]) if normal else KERNELS[index]
    assert made is not None
    return made


def device_rows(index: int, normal: bool, findings: int, ours: Sequence[Array]) -> list[Facts]:
    from tests.test_device_functions import run_on_gpu

    kernel = _device_kernel(index, normal)
    theirs, _ = run_on_gpu(kernel, 0)
    sums = magnitudes(kernel) if normal else ()
    rows = []
    for k, (mine, found) in enumerate(zip(ours, theirs, strict=True)):
        kind = "tensor cores" if normal else "exact" if kernel.exact else "functions"
        case = {"device_kernel": kernel.name, "array": k, "dtype": str(mine.dtype)}
        if normal:
            case["inputs"] = "normal"
        d = difference(torch.from_numpy(mine.copy().reshape(-1)), torch.from_numpy(found.copy().reshape(-1)))
        if normal:  # in units of the sum of the products' magnitudes, whatever cancels
            gap = np.abs(mine.astype(np.float64) - found)
            units = unit(torch.from_numpy(sums[k].astype(np.float64)), torch.from_numpy(mine).dtype).numpy()
            d = replace(d, of_array=float((gap / units.reshape(gap.shape)).max()))
        rows.append(_row(case, kind, d, findings))
    return rows


# ---------------------------------------------------------------- all of it


def cases(quick: bool) -> list[Case]:
    dtypes, sizes = (DTYPES[:2], SIZES[:2]) if quick else (DTYPES, SIZES)
    plain = [Case(name, dtype, size) for name in LIBRARY for dtype in dtypes for size in sizes]
    return plain + [Case(name, dtype, (40, 100), special=True) for name in LIBRARY for dtype in dtypes]


def compare(device: torch.device, quick: bool, console: Console) -> list[Facts]:
    """The simulator runs in processes beside, each on a core; the GPU in this one, as they come. A case that fails is a row
    with its error.
    """
    work = cases(quick)
    own = [(k, normal) for k in range(len(KERNELS)) for normal in (False, True) if not normal or normal_inputs(KERNELS[k])]
    if device.type != "cuda":
        own = []
    rows: list[Facts] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 1), context, initializer=_one_thread) as pool:
        library: list[tuple[Case, Future[Simulated]]] = [(c, pool.submit(simulated, c)) for c in work]
        kernels = [(k, n, pool.submit(simulated_device_kernel, k, n)) for k, n in own]
        singles = {dtype: pool.submit(simulated_operations, dtype) for dtype in ("float", "double") if own}
        for done, (case, future) in enumerate(library):
            about = {"kernel": case.kernel, "dtype": _name(case.dtype), "size": list(case.size)}
            rows += _attempted(about, lambda c=case, f=future: library_rows(c, f.result(), device))
            if done % 20 == 19:
                console.print(f"{done + 1} of {len(work)} cases of the library")
        for k, normal, made in kernels:
            about = {"device_kernel": KERNELS[k].name}
            rows += _attempted(about, lambda k=k, n=normal, f=made: device_rows(k, n, *f.result()))
        for dtype, single in singles.items():
            rows += _attempted({"operation": "all", "dtype": dtype}, lambda d=dtype, f=single: operation_rows(d, *f.result()))
    return rows


def _attempted(case: Facts, make: Callable[[], list[Facts]]) -> list[Facts]:
    try:
        return make()
    except Exception as error:
        return [{"bench": BENCH, "case": case, "error": f"{type(error).__name__}: {error}"}]


def _one_thread() -> None:
    torch.set_num_threads(1)


_WORST = ("ulps", "ulps_of_op_math", "ulps_of_largest")


def show(rows: Sequence[Facts], console: Console) -> None:
    """A line for each class and kind of case, then one for each kernel or operation that differs, then what must not be."""
    failed, rows = [r for r in rows if "error" in r], [r for r in rows if "error" not in r]
    summary = Table("class", "what", "arrays", "equal", "elements", "differing", "NaN bits", *_WORST, box=None)
    for key, own in _grouped(rows, lambda r: (r["class"], _what(r["case"]))).items():
        equal = sum(not r["differing"] for r in own)
        counts = [f"{sum(r[n] for r in own):,}" for n in ("elements", "differing", "nan_bits")]
        summary.add_row(*key, str(len(own)), str(equal), *counts, *_worst(own))
    console.print(summary)
    table = Table("differs", "type", "elements", "differing", *_WORST, box=None)
    plain = [r for r in rows if r["differing"] and r["case"].get("inputs") != _SPECIAL]
    for key, own in _grouped(plain, lambda r: (_named(r["case"]), r["case"]["dtype"])).items():
        table.add_row(*key, *(f"{sum(r[n] for r in own):,}" for n in ("elements", "differing")), *_worst(own))
    console.print(table)
    for r in failed:
        console.print(f"failed: {r['case']}: {r['error']}"[:400], markup=False, highlight=False)
    broken = [r for r in rows if (r["class"] == "exact" and r["differing"]) or r["findings"]]
    console.print(f"{len(failed)} failed; {len(broken)} exact that differ, or with findings")
    for r in broken[:20]:
        console.print(str({k: v for k, v in r.items() if k != "bench"}), markup=False, highlight=False)


def _grouped(rows: Sequence[Facts], key: Callable[[Facts], tuple[str, ...]]) -> dict[tuple[str, ...], list[Facts]]:
    groups: dict[tuple[str, ...], list[Facts]] = {}
    for r in rows:
        groups.setdefault(key(r), []).append(r)
    return groups


def _what(case: Facts) -> str:
    kind = "library" if "kernel" in case else "operations" if "operation" in case else "device kernels"
    return f"{kind}, {case['inputs']}" if "inputs" in case else kind


def _named(case: Facts) -> str:
    named = case.get("device_kernel") or case.get("operation") or f"{case['kernel']} {case['pass']}"
    return f"{named}, {case['inputs']}" if "inputs" in case else named


def _worst(rows: Sequence[Facts]) -> list[str]:
    return [f"{max(float(r[key]) for r in rows):.3g}" for key in _WORST]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.exactness")
    parser.add_argument("--device", help="cuda, or cpu to see that it works; a GPU where there is one if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing recorded")
    parser.add_argument("--out", type=Path, help="results file; bench/results/simulator.json if left out")
    given = parser.parse_args(argv)
    options = options_of(given.device, given.quick)
    console = Console(width=120)
    rows = compare(options.device, options.quick, console)
    show(rows, console)
    failed = any("error" in row for row in rows)
    if not given.quick:
        command = "python -m bench.exactness"
        console.print(f"recorded in {record(BENCH, rows, options.device, command, given.out)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
