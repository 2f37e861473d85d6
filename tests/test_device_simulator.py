"""The host twins of the device functions: every kernel of tests/device_kernels.py gives its reference on the simulator."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.device_kernels import KERNELS, Array, DeviceKernel
from weft.layout import atoms
from weft.runtime.include import HEADERS, HOST_TWINS
from weft.runtime.simulator import Argument, Map, Simulation, Tensor, simulate

SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
# Headers with both meanings.
SHARED = {
    *("algebra.cuh", "algebra_of_one.cuh", "scalar.cuh", "special.cuh", "memory.cuh", "team.cuh", "cluster_team.cuh"),
    *("chain.cuh", "join.cuh", "sort.cuh", "turn.cuh", "latest.cuh", "complex.cuh", "row.cuh", "product.cuh"),
    *("matrix_tile.cuh", "airy.cuh", "incomplete_gamma.cuh", "fragment.cuh", "packet.cuh", "within.cuh", "bins.cuh"),
    *("power.cuh", "bounds.cuh", "byte_tile.cuh", "block.cuh", "chunk.cuh", "across.cuh", "turns.cuh", "relay.cuh"),
    *("shares.cuh", "parts.cuh"),
}  # fmt: skip


def tensor(array: Array, name: str, role: str) -> Tensor:
    return Tensor(name, array.ctypes.data, array.nbytes, array.itemsize, role)


def run_simulated(kernel: DeviceKernel, seed: int = 0) -> tuple[Simulation, tuple[Array, ...], tuple[Array, ...]]:
    """The simulation of a kernel, what it wrote, and its reference."""
    inputs = [np.array(array, order="C") for array in kernel.inputs(np.random.default_rng(seed))]
    want = tuple(np.ascontiguousarray(array) for array in kernel.reference(*(array.copy() for array in inputs)))
    got = tuple(np.frombuffer(bytearray(b"\xab" * array.nbytes), array.dtype).reshape(array.shape) for array in want)
    arguments: list[Argument] = [
        tensor(array, f"in{k}", "inout" if k in kernel.scratch else "input") for k, array in enumerate(inputs)
    ]
    arguments += [tensor(array, f"out{k}", "output") for k, array in enumerate(got)]
    for which, tensor_map in kernel.maps:
        mapped = arguments[which]
        assert isinstance(mapped, Tensor)
        arguments.append(Map(tensor_map, mapped))
    simulation = simulate(
        kernel.source,
        name=f"{kernel.name}.cu",
        entry=kernel.name,
        grid=kernel.grid,
        block=kernel.block,
        cluster=kernel.cluster,
        shared=kernel.shared,
        arguments=arguments,
        arch=kernel.architectures[seed % len(kernel.architectures)],
        seed=seed,
    )
    return simulation, got, want


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_gives_its_reference_on_the_simulator(kernel: DeviceKernel, seed: int) -> None:
    simulation, got, want = run_simulated(kernel, seed)
    assert simulation.findings == ()
    for g, w in zip(got, want, strict=True):
        if kernel.exact:
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g, w, rtol=kernel.tolerance, atol=kernel.tolerance)


def functions(text: str) -> set[str]:
    """The functions that a header gives to kernels, those of its macros included."""
    text = re.sub(r"namespace detail \{.*?\n\}  // namespace detail", "", text, flags=re.DOTALL)
    found = set(re.findall(r"WEFT_(?:HOST_)?FUNCTION (?:[\w:<>, ]+?[*&]? )??(\w+)\(", text)) - {"name", "place"}
    return {re.sub(r"_$", "", name) for name in found}


@pytest.mark.parametrize("header", sorted({path.name for path in HEADERS.glob("*.cuh")} - SHARED))
def test_a_header_of_the_device_has_a_twin_with_the_same_functions(header: str) -> None:
    device, twin = functions((HEADERS / header).read_text()), functions((HOST_TWINS / header).read_text())
    if header == "atomic.cuh":  # by macros, each in its own way; the kernel every_atomic calls them all
        device, twin = ({n for n in names if not n.startswith("atomic")} for names in (device, twin))
    assert device == twin
    assert device or header in {"address.cuh", "atomic.cuh"}


# ---------------------------------------------------------------- matrices, against the layouts


def one_warp(source: str, name: str, *arrays: tuple[Array, str]) -> Simulation:
    return simulate(
        source,
        name=f"{name}.cu",
        entry=name,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        arguments=[tensor(array, f"a{k}", role) for k, (array, role) in enumerate(arrays)],
    )


def coordinates(element: int, rows: int) -> tuple[int, int]:
    """Of an element counted with the first index fastest."""
    return element % rows, element // rows


@pytest.mark.parametrize("transposed", (False, True))
@pytest.mark.parametrize("matrices", (1, 2, 4))
def test_load_matrix_and_store_matrix_move_as_their_layouts_say(matrices: int, transposed: bool) -> None:
    suffix = "_transposed" if transposed else ""
    source = f"""#include "weft/matrix.cuh"
extern "C" __global__ void moved(const uint16_t* x, uint32_t* registers, uint16_t* back) {{
    __shared__ alignas(16) uint16_t from[32][8], to[32][8];
    const int lane = threadIdx.x, row = lane % {8 * matrices};
    for (int k = 0; k < 8; ++k) from[lane][k] = lane < {8 * matrices} ? x[lane * 8 + k] : 0;
    __syncwarp();
    uint32_t r[{matrices}];
    weft::load_matrix{suffix}(r, from[row]);
    for (int m = 0; m < {matrices}; ++m) registers[lane * {matrices} + m] = r[m];
    weft::store_matrix{suffix}(to[row], r);
    __syncwarp();
    if (lane < {8 * matrices})
        for (int k = 0; k < 8; ++k) back[lane * 8 + k] = to[lane][k];
}}
"""
    x = np.arange(8 * matrices * 8, dtype=np.uint16).reshape(-1, 8) + 7
    registers, back = np.zeros((32, 2 * matrices), np.uint16), np.zeros_like(x)
    words = registers.view(np.uint32)
    simulation = one_warp(source, "moved", (x, "input"), (words, "output"), (back, "output"))
    assert simulation.findings == ()
    copy = atoms.ldmatrix(matrices, transposed)
    for lane in range(32):
        for value in range(2 * matrices):
            row, column = coordinates(copy.registers((lane, value)), 8 * matrices)
            assert registers[lane, value] == x[row, column]
    np.testing.assert_array_equal(back, x)
    assert atoms.stmatrix(matrices, transposed).registers == copy.registers


def encoded(values: Array, dtype: str) -> Array:
    """float32 -> the operand's elements: 16 or 32 bits."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits >> 16).astype(np.uint16) if dtype == "bfloat16" else bits


PRODUCTS = [("float16", 16), ("float16", 8), ("bfloat16", 16), ("bfloat16", 8), ("tfloat32", 8), ("tfloat32", 4)]


@pytest.mark.parametrize(
    ("dtype", "k", "half"), [*((dtype, k, False) for dtype, k in PRODUCTS), ("float16", 16, True), ("float16", 8, True)]
)
def test_mma_multiplies_the_fragments_of_its_layouts(dtype: str, k: int, half: bool) -> None:
    atom = atoms.mma(dtype, k)
    assert atom.a is not None
    assert atom.b is not None
    generator = np.random.default_rng(k)
    a, b, c = (generator.integers(-8, 9, shape).astype(np.float32) for shape in ((16, k), (8, k), (16, 8)))
    registers = 2 * k // (4 if dtype == "tfloat32" else 8)
    element, count = ("uint32_t", 2) if half else ("float", 4)
    source = f"""#include "weft/matrix.cuh"
extern "C" __global__ void product(const uint32_t* a, const uint32_t* b, {element}* c) {{
    uint32_t left[{registers}], right[{registers // 2}];
    {element} sums[{count}];
    for (int r = 0; r < {registers}; ++r) left[r] = a[threadIdx.x * {registers} + r];
    for (int r = 0; r < {registers // 2}; ++r) right[r] = b[threadIdx.x * {registers // 2} + r];
    for (int r = 0; r < {count}; ++r) sums[r] = c[threadIdx.x * {count} + r];
    weft::mma<weft::{dtype}>(sums, left, right);
    for (int r = 0; r < {count}; ++r) c[threadIdx.x * {count} + r] = sums[r];
}}
"""

    def fragment(matrix: Array, layout: atoms.Layout, rows: int) -> Array:
        values = layout.size() // 32
        return np.array([[matrix[coordinates(layout((t, v)), rows)] for v in range(values)] for t in range(32)])

    sums = np.ascontiguousarray(fragment(c, atom.c, 16).astype(np.float16 if half else np.float32))
    left = encoded(fragment(a, atom.a, 16), dtype).view(np.uint32)
    right = encoded(fragment(b, atom.b, 8), dtype).view(np.uint32)
    words = sums.view(np.uint32) if half else sums
    assert one_warp(source, "product", (left, "input"), (right, "input"), (words, "inout")).findings == ()
    np.testing.assert_array_equal(sums, fragment(c + a @ b.T, atom.c, 16).astype(sums.dtype))


def test_a_half_accumulator_is_rounded_once() -> None:
    """1 + 2^-11 lies half way between two of float16; 2^-30 more decides, though no float32 holds both."""
    source = """#include "weft/matrix.cuh"
extern "C" __global__ void rounded(const uint32_t* c, const uint32_t* a, const uint32_t* b, uint32_t* y) {
    uint32_t left[2] = {a[0], a[0]}, right[1] = {b[0]}, sums[2] = {c[0], c[0]};
    weft::mma<weft::float16>(sums, left, right);
    y[threadIdx.x] = sums[0];
}
"""
    # the products of one lane's pair of k, each met by four lanes: 4 (2^-13 + 2^-32) over 1
    c = np.array([1, 1], np.float16).view(np.uint32)
    a = np.array([2.0**-7, 2.0**-16], np.float16).view(np.uint32)
    b = np.array([2.0**-6, 2.0**-16], np.float16).view(np.uint32)
    y = np.zeros(32, np.uint32)
    assert one_warp(source, "rounded", (c, "input"), (a, "input"), (b, "input"), (y, "output")).findings == ()
    assert set(y.view(np.float16)) == {np.float16(1 + 2.0**-10)}


def test_registers_without_a_value_are_found() -> None:
    source = """#include "weft/matrix.cuh"
extern "C" __global__ void unset(float* y, const uint32_t* x) {
    uint32_t left[4], right[2] = {x[0], x[1]};
    float sums[4] = {};
    for (int r = 0; r < 3; ++r) left[r] = x[r];
    weft::mma<weft::bfloat16>(sums, left, right);
    y[threadIdx.x] = sums[0];
}
"""
    y, x = np.zeros(32, np.float32), np.ones(4, np.uint32)
    findings = one_warp(source, "unset", (y, "output"), (x, "input")).findings
    assert [(f.kind, f.place.line) for f in findings] == [("uninitialised read", 6)]
    assert "operand A of mma" in findings[0].message


def test_rows_of_matrices_that_share_banks_are_counted() -> None:
    source = """#include "weft/matrix.cuh"
extern "C" __global__ void conflicts(uint32_t* y) {
    __shared__ alignas(128) uint16_t tile[32][64];
    for (int r = 0; r < 32; ++r) reinterpret_cast<uint32_t*>(tile[r])[threadIdx.x] = r;
    __syncwarp();
    uint32_t r[4];
    weft::load_matrix(r, tile[threadIdx.x]);
    weft::load_matrix(r, tile[threadIdx.x] + threadIdx.x % 8 * 8);
    for (int k = 0; k < 4; ++k) y[4 * threadIdx.x + k] = r[k];
}
"""
    y = np.zeros(128, np.uint32)
    simulation = one_warp(source, "conflicts", (y, "output"))
    assert simulation.findings == ()
    turns = {s.place.line: (s.turns, s.ideal_turns) for s in simulation.sites if s.space == "shared"}
    assert turns[7] == (32, 4)
    assert turns[8] == (4, 4)
