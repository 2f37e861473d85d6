"""The device functions: every kernel of tests/device_kernels.py compiles cleanly, and gives its reference on a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from tests.device_kernels import KERNELS, Array, DeviceKernel, swizzled
from weft.layout.atoms import shared_atom
from weft.runtime import cuda, nvrtc
from weft.runtime.include import HEADERS
from weft.runtime.slots import Given, pack

PAIRS = [pytest.param(k, arch, id=f"{k.name}-{arch}") for k in KERNELS for arch in k.architectures]


def assert_outputs(kernel: DeviceKernel, got: tuple[Array, ...], want: tuple[Array, ...]) -> None:
    for g, w in zip(got, want, strict=True):
        if kernel.exact:
            np.testing.assert_array_equal(g, w, err_msg=kernel.name)
        else:
            np.testing.assert_allclose(g, w, rtol=kernel.tolerance, atol=kernel.tolerance, err_msg=kernel.name)


def run_on_gpu(kernel: DeviceKernel, seed: int = 0) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """What the kernel writes on the current GPU, and its reference."""
    inputs = kernel.inputs(np.random.default_rng(seed))
    want = tuple(np.ascontiguousarray(array) for array in kernel.reference(*inputs))
    device = torch.cuda.current_device()
    read = [torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8)).cuda() for array in inputs]
    written = [torch.full((array.nbytes,), 0xAB, dtype=torch.uint8, device="cuda") for array in want]
    arrays = [*read, *written]
    binary = nvrtc.compile_cubin(kernel.source, cuda.device_properties(device).arch, name=f"{kernel.name}.cu").binary
    handle = cuda.load(binary, kernel.name, device)
    launcher = cuda.Launcher(
        handle,
        kernel.grid,
        kernel.block,
        kernel.shared,
        pack([Given.POINTER] * len(arrays)),
        cluster=kernel.cluster,
        cooperative=kernel.cooperative,
        tensor_maps=[tensor_map.encode(handle.driver, arrays[which].data_ptr()) for which, tensor_map in kernel.maps],
    )
    launcher.launch(torch.cuda.current_stream().cuda_stream, *(array.data_ptr() for array in arrays))
    torch.cuda.synchronize()
    got = tuple(a.cpu().numpy().view(w.dtype).reshape(w.shape) for a, w in zip(written, want, strict=True))
    return got, want


@pytest.mark.parametrize(("kernel", "arch"), PAIRS)
def test_a_kernel_compiles_without_spills_or_losses(kernel: DeviceKernel, arch: str) -> None:
    cubin = nvrtc.compile_cubin(kernel.source, arch, name=f"{kernel.name}.cu")
    assert nvrtc.gate(cubin) == []
    assert cubin.stack == 0
    assert cubin.warnings == ()


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_gives_its_reference_on_the_gpu(kernel: DeviceKernel) -> None:
    if kernel.arch == "sm_90a" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0")
    for seed in range(3):
        assert_outputs(kernel, *run_on_gpu(kernel, seed))


@pytest.mark.gpu
def test_a_grid_barrier_needs_no_reset() -> None:
    """Launches with other grids share one counter."""
    kernel = next(k for k in KERNELS if k.name == "relaxation")
    device = torch.cuda.current_device()
    binary = nvrtc.compile_cubin(kernel.source, cuda.device_properties(device).arch, name="relaxation.cu").binary
    handle = cuda.load(binary, kernel.name, device)
    counter = torch.zeros(1, dtype=torch.int32, device="cuda")
    for blocks in (4, 1, 7, 100):
        n = 64 * blocks
        x = torch.randint(-4, 5, (n,), dtype=torch.int32, device="cuda")
        planes = torch.empty(6, n, dtype=torch.int32, device="cuda")
        slots = pack([Given.POINTER] * 3)
        launcher = cuda.Launcher(handle, (blocks, 1, 1), kernel.block, 0, slots, cooperative=True)
        launcher.launch(
            torch.cuda.current_stream().cuda_stream, x.data_ptr(), counter.data_ptr(), planes.data_ptr()
        )
        want = x
        for plane in planes:
            want = want.roll(1) + want.roll(-1)
            torch.testing.assert_close(plane, want)


@pytest.mark.parametrize("header", sorted(path.name for path in HEADERS.glob("*.cuh")))
def test_a_header_stands_alone(header: str) -> None:
    """It includes what it needs, on every architecture that has its functions."""
    lowest = {"cluster.cuh", "bulk.cuh", "row.cuh", "wgmma.cuh", "registers.cuh"}
    for arch in ("sm_90a",) if header in lowest else ("sm_80", "sm_90a"):
        nvrtc.compile_cubin(f'#include "weft/{header}"\nextern "C" __global__ void nothing() {{}}\n', arch, name="nothing.cu")


def test_all_headers_go_together() -> None:
    text = "".join(f'#include "weft/{path.name}"\n' for path in sorted(HEADERS.glob("*.cuh")))
    nvrtc.compile_cubin(text + 'extern "C" __global__ void nothing() {}\n', "sm_90a", name="nothing.cu")


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_the_swizzle_of_the_references_is_that_of_the_layouts(swizzle: int) -> None:
    atom = shared_atom(swizzle, 16)
    places = [atom(row + 8 * column) for row in range(8) for column in range(swizzle // 2)]
    assert (swizzled(np.arange(4 * swizzle) * 2, swizzle) // 2).tolist() == places


@pytest.mark.parametrize("columns", range(8, 257, 8))
def test_wgmma_of_every_width_compiles(columns: int) -> None:
    source = f"""
#include "weft/wgmma.cuh"
extern "C" __global__ void __launch_bounds__(128) widths(const uint32_t* a, float* y) {{
    extern __shared__ __align__(1024) unsigned char tile[];
    const weft::SharedMatrix matrix = weft::shared_matrix<128>(tile, 16, 1024);
    const uint32_t registers[4] = {{a[0], a[1], a[2], a[3]}};
    float d[{columns // 2}];
    weft::wgmma_fence(d);
    weft::wgmma<weft::bfloat16>(d, matrix, matrix, false);
    weft::wgmma<weft::float16, weft::Major::rows>(d, registers, matrix, true);
    weft::wgmma_commit();
    weft::wgmma_wait<0>(d);
    for (int v = 0; v < {columns // 2}; ++v) y[v * 128 + threadIdx.x] = d[v];
}}
"""
    assert nvrtc.gate(nvrtc.compile_cubin(source, "sm_90a", name="widths.cu")) == []


def test_every_device_function_has_a_kernel() -> None:
    """A function of a header that no kernel calls would be tested by no one."""
    kernels = "\n".join(kernel.source for kernel in KERNELS)
    kernels += (HEADERS / "packet.cuh").read_text()  # whose function is called by one, and calls others
    covered = {"barrier.cuh", "atomic.cuh", "async.cuh", "mbarrier.cuh", "bulk.cuh", "matrix.cuh", "wgmma.cuh", "cluster.cuh"}
    missing = []
    covered |= {"product.cuh", "matrix_tile.cuh", "byte_tile.cuh", "dependent.cuh", "block.cuh"}
    for header in sorted(covered | {"registers.cuh", "memory.cuh", "turn.cuh"}):
        text = re.sub(r"namespace detail \{.*?\n\}  // namespace detail", "", (HEADERS / header).read_text(), flags=re.DOTALL)
        names = set(re.findall(r"WEFT_FUNCTION (?:[\w:<>, ]+?[*&]? )??(\w+)\(", text)) - {"name", "place_of_lane"}
        assert names, header
        missing += [f"{header}: {name}" for name in sorted(names) if not re.search(rf"\b{name}\b", kernels)]
    assert missing == []
