"""The simulator's engine: kernels with one fault each, which it must find in its line, and sound ones, which it must leave."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.device_kernels import Array
from weft.errors import CompileError, LaunchError
from weft.runtime.simulator import Argument, Finding, Integer, Map, Real, Simulation, Site, Tensor, simulate
from weft.runtime.tensor_map import TensorMap, row_major

HERE = "// here"
INPUT, OUTPUT, INOUT = "input", "output", "inout"


def launch(
    body: str,
    arrays: Sequence[tuple[Array, str]],
    *,
    block: int | tuple[int, int, int] = 64,
    grid: int = 1,
    cluster: int = 1,
    seed: int = 0,
    shared: int = 0,
    headers: Sequence[str] = (),
    map: TensorMap | None = None,
) -> Simulation:
    """Run a kernel of that body: its parameters are `x0`, `x1`, ..., pointers to the arrays, and a `map` of the first."""
    kinds = {"f": "float", "i": "int", "u": "unsigned"}
    parameters = ", ".join(
        f"{'const ' if role == INPUT else ''}{kinds[array.dtype.kind]}* x{k}" for k, (array, role) in enumerate(arrays)
    )
    included = "\n".join(f'#include "weft/{header}.cuh"' for header in headers)
    tensors = [Tensor(f"x{k}", a.ctypes.data, a.nbytes, a.itemsize, role) for k, (a, role) in enumerate(arrays)]
    arguments: list[Argument] = [*tensors]
    if map is not None:
        parameters += ", const __grid_constant__ weft::TensorMap map"
        arguments.append(Map(map, tensors[0]))
    source = f'{included}\nextern "C" __global__ void kernel({parameters}) {{\n{body}\n}}\n'
    return simulate(
        source,
        name="kernel.cu",
        entry="kernel",
        grid=(grid, 1, 1),
        block=block if isinstance(block, tuple) else (block, 1, 1),
        cluster=(cluster, 1, 1),
        arguments=arguments,
        shared=shared,
        seed=seed,
    )


# A product of ones on a warpgroup, as it should be; lines are left out or changed to plant faults.
PRODUCT = """__shared__ alignas(1024) uint32_t a[2048], b[256];
for (int k = threadIdx.x; k < 2048; k += 128) a[k] = 0x3f803f80u;
for (int k = threadIdx.x; k < 256; k += 128) b[k] = 0x3f803f80u;
weft::fence_proxy_async();
__syncthreads();
const weft::SharedMatrix left = weft::shared_matrix<128>(a, 16, 1024), right = weft::shared_matrix<128>(b, 16, 1024);
float d[4];
weft::wgmma_fence(d);
weft::wgmma<weft::bfloat16>(d, left, right, false); // here
weft::wgmma_commit();
weft::wgmma_wait<0>(d);
x1[threadIdx.x] = d[0];"""


def changed(old: str, new: str) -> str:
    """The product with one piece of text replaced."""
    assert old in PRODUCT
    return PRODUCT.replace(old, new)


BOXED = """__shared__ alignas(1024) float tile[64 * 32];
__shared__ weft::Mbarrier full;
if (threadIdx.x == 0) {
    full.init(1);
    weft::fence_mbarrier_init();
    full.arrive_expect(BYTES);
    weft::tensor_load(tile, map, full, COORDINATES); // here
}
__syncthreads();
full.wait(0);
const weft::SharedMatrix matrix = weft::shared_matrix<SWIZZLE>(tile, 16, 8 * SWIZZLE);
float d[4];
weft::wgmma_fence(d);
weft::wgmma<weft::tfloat32>(d, matrix, matrix, false); // here
weft::wgmma_commit();
weft::wgmma_wait<0>(d);
x1[threadIdx.x] = d[0];"""


def boxed(swizzle: int = 128, bytes: int = 64 * 32 * 4, coordinates: str = "0, 0") -> str:
    return BOXED.replace("SWIZZLE", str(swizzle)).replace("BYTES", str(bytes)).replace("COORDINATES", coordinates)


@dataclass(frozen=True)
class Fault:
    """A kernel with one fault, told in a line marked `// here`; of two accesses either. x0: input, x1: output."""

    name: str
    kind: str
    body: str
    block: int = 64
    grid: int = 1
    cluster: int = 1
    headers: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # kinds that may follow from it
    evidence: str = ""  # words of the finding
    size: int = 256  # elements of x0 and x1
    role: str = OUTPUT  # of x1
    seeds: tuple[int, ...] = (0, 1, 2)
    map: TensorMap | None = None  # of x0


FAULTS = (
    # ---- races
    Fault(
        "lanes_without_syncwarp",
        "race",
        """__shared__ float s[32];
        s[threadIdx.x] = x0[threadIdx.x]; // here
        x1[threadIdx.x] = s[31 - threadIdx.x]; // here""",
        block=32,
        others=("uninitialised read",),
        evidence="s + ",
    ),
    Fault(
        "warps_without_barrier",
        "race",
        """__shared__ float s[64];
        s[threadIdx.x] = x0[threadIdx.x]; // here
        __syncwarp();
        x1[threadIdx.x] = s[63 - threadIdx.x]; // here""",
        others=("uninitialised read",),
    ),
    Fault(
        "second_barrier_of_a_loop",
        "race",
        """__shared__ float s[64];
        for (int k = 0; k < 3; ++k) {
            s[threadIdx.x] = x0[threadIdx.x]; // here
            __syncthreads();
            x1[k * 64 + threadIdx.x] = s[63 - threadIdx.x]; // here
        }""",
    ),
    Fault(
        "a_shuffle_orders_nothing",
        "race",
        """__shared__ float s[32];
        s[threadIdx.x] = x0[threadIdx.x]; // here
        float other = __shfl_xor_sync(0xffffffffu, x0[threadIdx.x], 1);
        x1[threadIdx.x] = s[threadIdx.x ^ 1] + other; // here""",
        block=32,
    ),
    Fault(
        "two_blocks_write_one_place",
        "race",
        """if (threadIdx.x == 0) x1[0] = x0[blockIdx.x]; // here""",
        grid=2,
    ),
    Fault(
        "a_message_without_a_fence",
        "race",
        """if (blockIdx.x == 0) {
            x1[threadIdx.x] = x0[threadIdx.x]; // here
            __syncthreads();
            if (threadIdx.x == 0) weft::store_relaxed<weft::Scope::gpu>(x1 + 100, 1.0f);
        } else {
            if (threadIdx.x == 0) while (weft::load_acquire<weft::Scope::gpu>(x1 + 100) != 1.0f) {}
            __syncthreads();
            x1[128 + threadIdx.x] = x1[threadIdx.x]; // here
        }""",
        grid=2,
        headers=("atomic",),
        role=INOUT,
    ),
    Fault(
        "a_scope_too_narrow",
        "race",
        """if (blockIdx.x == 0) {
            x1[threadIdx.x] = x0[threadIdx.x]; // here
            __syncthreads();
            if (threadIdx.x == 0) weft::store_release<weft::Scope::block>(x1 + 100, 1.0f);
        } else {
            if (threadIdx.x == 0) while (weft::load_acquire<weft::Scope::gpu>(x1 + 100) != 1.0f) {}
            __syncthreads();
            x1[128 + threadIdx.x] = x1[threadIdx.x]; // here
        }""",
        grid=2,
        headers=("atomic",),
        role=INOUT,
    ),
    Fault(
        "an_atomic_and_an_ordinary_access",
        "race",
        """atomicAdd(x1, x0[0]); // here
        x1[1 + threadIdx.x] = x1[0]; // here""",
        role=INOUT,
    ),
    # ---- bounds, values, alignment
    Fault("a_read_past_an_array", "out of bounds", "x1[threadIdx.x] = x0[threadIdx.x + 193]; // here", evidence="element 256"),
    Fault("a_read_far_from_all_arrays", "out of bounds", "x1[threadIdx.x] = x0[threadIdx.x + (1 << 28)]; // here"),
    Fault("a_wild_pointer", "out of bounds", "x1[0] = *reinterpret_cast<const float*>(uintptr_t(x0[0]) * 16); // here"),
    Fault(
        "a_loop_of_different_lengths",
        "divergent barrier",
        """x1[threadIdx.x] = x0[threadIdx.x];
        for (int k = 0; k < (threadIdx.x < 32 ? 2 : 3); ++k) __syncthreads(); // here""",
    ),
    Fault("a_read_before_an_array", "out of bounds", "x1[threadIdx.x] = x0[int(threadIdx.x) - 1]; // here"),
    Fault("a_write_past_an_array", "out of bounds", "x1[threadIdx.x + 193] = x0[0]; // here", evidence="x1"),
    Fault(
        "an_index_past_a_shared_array",
        "out of bounds",
        """__shared__ float s[64];
        s[threadIdx.x + 1] = x0[threadIdx.x]; // here
        __syncthreads();
        x1[threadIdx.x] = s[threadIdx.x ? threadIdx.x : 1];""",
        evidence="s",
    ),
    Fault(
        "a_shared_value_that_nobody_wrote",
        "uninitialised read",
        """__shared__ float s[65];
        s[threadIdx.x] = x0[threadIdx.x];
        __syncthreads();
        x1[threadIdx.x] = s[threadIdx.x + 1]; // here""",
        evidence="s + 256",
    ),
    Fault(
        "an_output_read_before_it_is_written",
        "uninitialised read",
        "x1[threadIdx.x] += x0[threadIdx.x]; // here",
        evidence="x1",
    ),
    Fault(
        "a_vector_at_an_odd_place",
        "misaligned",
        """float tile[4];
        weft::unpack(weft::fetch<4, 4>(x0 + 2 * threadIdx.x), tile); // here
        x1[threadIdx.x] = tile[0] + tile[3];""",
        headers=("memory",),
        evidence="x0",
    ),
    Fault(
        "a_row_at_an_odd_place",
        "misaligned",
        """__shared__ alignas(16) uint16_t rows[16][12];
        for (int k = threadIdx.x; k < 16 * 12; k += 32) (&rows[0][0])[k] = 1;
        __syncwarp();
        uint32_t r[1];
        weft::load_matrix(r, rows[threadIdx.x % 8]); // here
        x1[threadIdx.x] = float(r[0]) + x0[0];""",
        block=32,
        headers=("matrix",),
    ),
    Fault("a_write_to_an_input", "write to an input", "const_cast<float*>(x0)[threadIdx.x] = x1[0] = 1; // here", block=1),
    # ---- barriers
    Fault(
        "a_barrier_that_some_have_left",
        "divergent barrier",
        """if (threadIdx.x >= 32) return;
        x1[threadIdx.x] = x0[threadIdx.x];
        __syncthreads(); // here""",
    ),
    Fault(
        "a_barrier_in_each_branch",
        "divergent barrier",
        """if (threadIdx.x < 32) {
            __syncthreads(); // here
        } else {
            x1[threadIdx.x] = x0[threadIdx.x];
            __syncthreads(); // here
        }""",
    ),
    Fault(
        "a_named_barrier_of_two_counts",
        "barrier count",
        """x1[threadIdx.x] = x0[threadIdx.x];
        weft::barrier_sync(1, threadIdx.x < 32 ? 64 : 96); // here""",
        block=96,
        headers=("barrier",),
    ),
    # ---- warps
    Fault(
        "a_lane_outside_its_mask",
        "shuffle mask",
        "x1[threadIdx.x] = __shfl_sync(0x0000ffffu, x0[threadIdx.x], 0); // here",
        block=32,
        others=("divergent warp", "deadlock"),
    ),
    Fault(
        "a_shuffle_from_outside_the_mask",
        "shuffle mask",
        "if (threadIdx.x < 16) x1[threadIdx.x] = __shfl_sync(0x0000ffffu, x0[threadIdx.x], threadIdx.x + 8); // here",
        block=32,
    ),
    Fault(
        "a_full_mask_without_all_lanes",
        "shuffle mask",
        """if (threadIdx.x >= 24) return;
        x1[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x0[threadIdx.x], 1); // here""",
        block=32,
    ),
    Fault(
        "a_warp_that_does_not_exist",
        "shuffle mask",
        "x1[threadIdx.x] = __shfl_xor_sync(0xffffffffu, x0[threadIdx.x], 1); // here",
        block=48,
    ),
    Fault(
        "two_operations_of_one_warp",
        "divergent warp",
        """if (threadIdx.x < 16) x1[threadIdx.x] = __shfl_sync(0xffffffffu, x0[threadIdx.x], 0); // here
        else x1[threadIdx.x] = float(__ballot_sync(0xffffffffu, x0[threadIdx.x] > 0)); // here""",
        block=32,
    ),
    # ---- waiting for ever
    Fault(
        "a_flag_that_nobody_sets",
        "deadlock",
        """x1[threadIdx.x] = x0[0];
        while (weft::load_acquire<weft::Scope::gpu>(x0) == 5.0f) {} // here""",
        headers=("atomic",),
        block=1,
    ),
    Fault(
        "an_mbarrier_short_of_an_arrival",
        "deadlock",
        """__shared__ weft::Mbarrier done;
        if (threadIdx.x == 0) done.init(65);
        __syncthreads();
        x1[threadIdx.x] = x0[threadIdx.x];
        done.arrive();
        done.wait(0); // here""",
        headers=("mbarrier",),
        evidence="mbarrier",
    ),
    Fault("a_trap", "trap", "if (x0[0] == 5.0f) __trap(); // here\n        x1[0] = x0[1];", block=1),
    # ---- cp.async
    Fault(
        "a_copy_read_before_its_wait",
        "race",
        """__shared__ alignas(16) float s[64];
        weft::copy_async<4>(s + threadIdx.x, x0 + threadIdx.x); // here
        weft::commit_copies();
        x1[threadIdx.x] = s[threadIdx.x]; // here
        weft::wait_copies<0>();""",
        headers=("async",),
    ),
    Fault(
        "a_wait_for_too_few_groups",
        "race",
        """__shared__ alignas(16) float s[2][64];
        for (int k = 0; k < 2; ++k) {
            weft::copy_async<4>(s[k] + threadIdx.x, x0 + 64 * k + threadIdx.x); // here
            weft::commit_copies();
        }
        weft::wait_copies<1>();
        x1[threadIdx.x] = s[0][threadIdx.x] + s[1][threadIdx.x]; // here""",
        headers=("async",),
    ),
    Fault(
        "a_copy_of_another_thread",
        "race",
        """__shared__ alignas(16) float s[64];
        weft::copy_async<4>(s + threadIdx.x, x0 + threadIdx.x); // here
        weft::commit_copies();
        weft::wait_copies<0>();
        x1[threadIdx.x] = s[63 - threadIdx.x]; // here""",
        headers=("async",),
        others=("slot reused", "uninitialised read"),
    ),
    Fault(
        "a_copy_over_what_is_being_read",
        "slot reused",
        """__shared__ alignas(16) float s[64];
        for (int k = 0; k < 2; ++k) {
            weft::copy_async<4>(s + threadIdx.x, x0 + 64 * k + threadIdx.x); // here
            weft::commit_copies();
            weft::wait_copies<0>();
            __syncthreads();
            x1[64 * k + threadIdx.x] = s[63 - threadIdx.x]; // here
        }""",
        headers=("async",),
        others=("race",),
    ),
    Fault(
        "a_copy_at_an_odd_place",
        "misaligned",
        """__shared__ alignas(16) float s[256];
        weft::copy_async<16>(s + 4 * threadIdx.x, x0 + threadIdx.x); // here
        weft::commit_copies();
        weft::wait_copies<0>();
        x1[threadIdx.x] = s[4 * threadIdx.x];""",
        headers=("async",),
        block=32,
    ),
    # ---- mbarriers and bulk copies
    Fault(
        "an_mbarrier_that_is_not_initialised",
        "mbarrier not initialised",
        """__shared__ weft::Mbarrier done;
        x1[threadIdx.x] = x0[threadIdx.x];
        done.arrive(); // here""",
        headers=("mbarrier",),
    ),
    Fault(
        "an_initialisation_without_a_barrier",
        "mbarrier not initialised",
        """__shared__ weft::Mbarrier done;
        if (threadIdx.x == 0) done.init(2);
        x1[threadIdx.x] = x0[threadIdx.x];
        if (threadIdx.x == 0) done.arrive();
        if (threadIdx.x == 32) {
            done.arrive(); // here
        }""",
        headers=("mbarrier",),
    ),
    Fault(
        "a_bulk_copy_read_in_the_wrong_phase",
        "wrong phase",
        """__shared__ alignas(128) float s[2][64];
        __shared__ weft::Mbarrier full;
        if (threadIdx.x == 0) {
            full.init(1);
            weft::fence_mbarrier_init();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            full.arrive_expect(256);
            weft::bulk_load(s[0], x0, 256, full); // here
        }
        full.wait(0);
        x1[threadIdx.x] = s[0][threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) {
            full.arrive_expect(256);
            weft::bulk_load(s[1], x0 + 64, 256, full); // here
        }
        __syncthreads();
        full.wait(0);
        x1[64 + threadIdx.x] = s[1][threadIdx.x]; // here
        full.wait(1);""",
        headers=("bulk",),
        others=("race",),
        seeds=(0, 3, 6),  # copies as late as may be: one that comes early makes the second wait endless
    ),
    Fault(
        "a_bulk_store_without_a_proxy_fence",
        "missing proxy fence",
        """__shared__ alignas(128) float s[64];
        s[threadIdx.x] = x0[threadIdx.x]; // here
        __syncthreads();
        if (threadIdx.x == 0) {
            weft::bulk_store(x1, s, 256); // here
            weft::bulk_commit();
            weft::bulk_wait<0>();
        }""",
        headers=("bulk",),
    ),
    Fault(
        "a_bulk_store_without_a_barrier",
        "race",
        """__shared__ alignas(128) float s[64];
        s[threadIdx.x] = x0[threadIdx.x]; // here
        weft::fence_proxy_async();
        if (threadIdx.x == 0) {
            weft::bulk_store(x1, s, 256); // here
            weft::bulk_commit();
            weft::bulk_wait<0>();
        }""",
        headers=("bulk",),
        others=("uninitialised read",),
    ),
    Fault(
        "a_bulk_store_that_nobody_waits_for",
        "bulk copy unfinished",
        """__shared__ alignas(128) float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        weft::fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            weft::bulk_store(x1, s, 256); // here
            weft::bulk_commit();
        }""",
        headers=("bulk",),
    ),
    Fault(
        "a_slot_written_while_it_is_stored",
        "race",
        """__shared__ alignas(128) float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        weft::fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            weft::bulk_store(x1, s, 256); // here
            weft::bulk_commit();
            s[0] = 1; // here
            weft::bulk_wait_read<0>();
        }""",
        headers=("bulk",),
        others=("slot reused",),
    ),
    Fault(
        "more_bytes_than_were_announced",
        "byte count",
        """__shared__ alignas(128) float s[64];
        __shared__ weft::Mbarrier full;
        if (threadIdx.x == 0) {
            full.init(1);
            weft::fence_mbarrier_init();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            weft::bulk_load(s, x0, 256, full); // here
            full.arrive_expect(128);
        }
        full.wait(0);
        x1[threadIdx.x] = x0[threadIdx.x];""",
        headers=("bulk",),
    ),
    Fault(
        "fewer_bytes_than_were_announced",
        "byte count",
        """__shared__ alignas(128) float s[64];
        __shared__ weft::Mbarrier full;
        if (threadIdx.x == 0) {
            full.init(1);
            weft::fence_mbarrier_init();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            full.arrive_expect(512); // here
            weft::bulk_load(s, x0, 256, full); // here
        }
        full.wait(0); // here
        x1[threadIdx.x] = s[threadIdx.x];""",
        headers=("bulk",),
    ),
    # ---- instructions that say which memory they access
    Fault(
        "a_store_to_global_memory_into_shared",
        "wrong memory",
        """__shared__ alignas(16) float s[256];
        const float tile[4] = {};
        weft::store<4>(s + threadIdx.x * 4, tile); // here
        x1[threadIdx.x] = s[threadIdx.x];""",
        headers=("memory",),
    ),
    Fault(
        "a_load_of_global_memory_from_shared",
        "wrong memory",
        """__shared__ alignas(16) float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        __syncthreads();
        const auto run = weft::fetch_now<4, 4>(s + threadIdx.x / 4 * 4); // here
        x1[threadIdx.x] = run.lane[threadIdx.x % 4];""",
        headers=("memory",),
    ),
    Fault(
        "a_store_to_global_memory_into_registers",
        "wrong memory",
        """float own[4];
        const float tile[4] = {1.0f, 2.0f, 3.0f, x0[threadIdx.x]};
        weft::store<4>(own, tile); // here
        x1[threadIdx.x] = own[threadIdx.x % 4];""",
        headers=("memory",),
    ),
    Fault(
        "a_bulk_copy_from_shared_memory_as_if_it_were_global",
        "wrong memory",
        """__shared__ alignas(128) float s[64], own[64];
        __shared__ weft::Mbarrier full;
        own[threadIdx.x] = x0[threadIdx.x];
        weft::fence_proxy_async();
        if (threadIdx.x == 0) {
            full.init(1);
            weft::fence_mbarrier_init();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            full.arrive_expect(256);
            weft::bulk_load(s, own, 256, full); // here
        }
        full.wait(0);
        x1[threadIdx.x] = s[threadIdx.x];""",
        headers=("bulk",),
    ),
    Fault(
        "a_copy_to_global_memory_as_if_it_were_shared",
        "wrong memory",
        """weft::copy_async<4>(x1 + threadIdx.x, x0 + threadIdx.x); // here
        weft::commit_copies();
        weft::wait_copies<0>();""",
        headers=("async",),
    ),
    Fault(
        "a_product_of_what_is_in_global_memory",
        "wrong memory",
        PRODUCT.replace(" // here", "").replace("(a, 16, 1024), ", "(x0, 16, 1024), // here\n"),
        block=128,
        headers=("bulk", "wgmma"),
    ),
    Fault(
        "a_bulk_copy_of_an_odd_size",
        "bad copy",
        """__shared__ alignas(128) float s[64];
        __shared__ weft::Mbarrier full;
        if (threadIdx.x == 0) {
            full.init(1);
            weft::fence_mbarrier_init();
            full.arrive_expect(252);
            weft::bulk_load(s, x0, 252, full); // here
        }
        x1[threadIdx.x] = 0;""",
        headers=("bulk",),
    ),
    # ---- clusters and registers
    Fault(
        "a_peer_that_has_ended",
        "peer exited",
        """__shared__ float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        weft::cluster_sync();
        if (weft::cluster_rank() == 1) {
            if (threadIdx.x < 32) for (int k = 0; k < 100; ++k) weft::load_volatile(x0);
            x1[threadIdx.x] = *weft::peer(s + threadIdx.x, 0); // here
        }""",
        grid=2,
        cluster=2,
        headers=("cluster",),
    ),
    Fault(
        "a_peer_that_has_not_written",
        "race",
        """__shared__ float s[64];
        weft::cluster_sync();
        s[threadIdx.x] = x0[threadIdx.x]; // here
        __syncthreads();
        x1[blockIdx.x * 64 + threadIdx.x] = *weft::peer(s + threadIdx.x, weft::cluster_rank() ^ 1); // here
        weft::cluster_sync();""",
        grid=2,
        cluster=2,
        headers=("cluster",),
        others=("uninitialised read",),
    ),
    Fault(
        "registers_that_nobody_gives_up",
        "deadlock",
        """weft::increase_registers<256>(); // here
        x1[threadIdx.x % 64] = x0[0];""",
        block=384,
        headers=("registers",),
        others=("race", "register budget"),
    ),
    # ---- products of warpgroups, and boxes of tensors
    *(
        Fault(name, kind, body, block=128, headers=("bulk", "wgmma"), others=others, evidence=evidence)
        for name, kind, body, others, evidence in (
            ("a_product_without_a_proxy_fence", "missing proxy fence", changed("weft::fence_proxy_async();", ""), (), "a + "),
            (
                "a_product_without_a_barrier",
                "race",
                changed("__syncthreads();", "").replace("0x3f803f80u;", "0x3f803f80u; // here"),
                ("uninitialised read", "missing proxy fence"),
                "",
            ),
            ("a_product_without_its_fence", "missing wgmma fence", changed("weft::wgmma_fence(d);", ""), (), ""),
            (
                "a_product_read_too_early",
                "registers in flight",
                changed("weft::wgmma_wait<0>(d);", "x1[threadIdx.x] = d[0]; // here\nweft::wgmma_wait<0>(d);"),
                (),
                "",
            ),
            (
                "a_product_waited_for_too_little",
                "registers in flight",
                changed("weft::wgmma_wait<0>(d);", "weft::wgmma_wait<1>(d);").replace("d[0];", "d[0]; // here"),
                (),
                "",
            ),
            (
                "an_operand_written_too_early",
                "race",
                changed("weft::wgmma_wait<0>(d);", "a[threadIdx.x] = 0; // here\nweft::wgmma_wait<0>(d);"),
                (),
                "a + ",
            ),
            (
                "accumulators_without_a_value",
                "uninitialised read",
                changed("right, false)", "right, true)"),
                (),
                "accumulators of wgmma",
            ),
            (
                "a_product_beyond_shared_memory",
                "out of bounds",
                changed("(a, 16, 1024)", "(a + 1984, 16, 1024)"),
                ("uninitialised read",),
                "",
            ),
        )
    ),
    *(
        Fault(
            name,
            kind,
            body,
            block=128,
            headers=("bulk", "wgmma"),
            size=64 * 32,
            map=row_major("float32", (64, 32), (64, 32), swizzle=128),
        )
        for name, kind, body in (
            ("a_box_read_in_another_swizzle", "swizzle", boxed(swizzle=64)),
            ("a_box_of_more_bytes_than_announced", "byte count", boxed(bytes=4096)),
            ("a_box_with_too_few_coordinates", "bad copy", boxed(coordinates="0")),
            ("a_box_that_starts_at_an_odd_place", "bad copy", boxed(coordinates="1, 0")),
        )
    ),
)


def marked(body: str) -> set[int]:
    """The lines of the text with the mark."""
    return {number for number, line in enumerate(body.splitlines(), 1) if HERE in line}


@pytest.mark.parametrize(
    ("fault", "seed"), [pytest.param(fault, seed, id=f"{fault.name}-{seed}") for fault in FAULTS for seed in fault.seeds]
)
def test_a_planted_fault_is_found_in_its_line(fault: Fault, seed: int) -> None:
    x = np.full(fault.size, 5, np.float32)
    y = np.zeros(fault.size, np.float32)
    simulation = launch(
        fault.body,
        [(x, INPUT), (y, fault.role)],
        block=fault.block,
        grid=fault.grid,
        cluster=fault.cluster,
        headers=fault.headers,
        seed=seed,
        map=fault.map,
    )
    above = max(1, len(fault.headers)) + 1  # lines before the body
    lines = {line + above for line in marked(fault.body)}
    found = {(f.kind, f.place.line) for f in simulation.findings}
    assert {kind for kind, _ in found} <= {fault.kind, *fault.others}
    own = [f for f in simulation.findings if f.kind == fault.kind]
    assert own, simulation.findings
    assert {f.place.line for f in own} <= lines
    assert {f.place.file for f in own} == {"kernel.cu"}
    assert any(fault.evidence in text for f in own for text in (f.message, *f.evidence)), own


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_barrier_of_a_cluster_waits_for_no_thread_that_has_exited(seed: int) -> None:
    x, y = np.arange(256, dtype=np.float32), np.zeros(128, np.float32)
    body = """__shared__ float s[64];
    if (threadIdx.x >= 64) return;
    s[threadIdx.x] = x0[blockIdx.x * 64 + threadIdx.x];
    weft::cluster_sync();
    x1[blockIdx.x * 64 + threadIdx.x] = *weft::peer(s + threadIdx.x, weft::cluster_rank() ^ 1);
    weft::cluster_sync();"""
    arrays = [(x, INPUT), (y, OUTPUT)]
    simulation = launch(body, arrays, block=96, grid=2, cluster=2, headers=("cluster",), seed=seed)
    assert not simulation.findings and y.tolist() == [*range(64, 128), *range(64)]


def test_the_two_threads_and_the_element_of_a_race_are_named() -> None:
    y = np.zeros(4, np.float32)
    simulation = launch("if (threadIdx.x % 32 == 0) x0[2] = 1.0f;", [(y, OUTPUT)])
    (race,) = simulation.findings
    said = " ".join(race.evidence)
    assert "thread 0 of block 0" in said
    assert "thread 32 of block 0" in said
    assert "element 2 of x0" in said


# ---------------------------------------------------------------- no false alarms: kernels' own are in test_device_simulator.py

SOUND = {
    "lanes_of_one_warp": (
        """__shared__ float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        __syncwarp();
        x1[threadIdx.x] = s[threadIdx.x ^ 1];""",
        (),
    ),
    "parts_of_a_warp": (
        """float v = x0[threadIdx.x];
        if (threadIdx.x % 32 < 16) v += __shfl_xor_sync(0x0000ffffu, v, 1);
        else v -= __shfl_xor_sync(0xffff0000u, v, 1);
        x1[threadIdx.x] = v;""",
        (),
    ),
    "threads_that_leave_before_a_shuffle_of_the_rest": (
        """if (threadIdx.x >= 32) return;
        x1[threadIdx.x] = __shfl_down_sync(0xffffffffu, x0[threadIdx.x], 1);""",
        (),
    ),
    "atomics_on_one_place": (
        """__shared__ float sum;
        if (threadIdx.x == 0) sum = 0.0f;
        __syncthreads();
        atomicAdd(&sum, x0[threadIdx.x]);
        __syncthreads();
        x1[threadIdx.x] = sum;""",
        (),
    ),
    "equal_branches_with_a_counted_barrier": (
        """x1[threadIdx.x] = float(__syncthreads_count(x0[threadIdx.x] > 3.0f));
        x1[threadIdx.x] += float(__syncthreads_and(1) + __syncthreads_or(0));""",
        (),
    ),
    "a_named_barrier_of_two_warps": (
        """__shared__ float s[64];
        if (threadIdx.x < 32) {
            s[threadIdx.x] = x0[threadIdx.x];
            weft::barrier_arrive(2, 64);
        } else {
            weft::barrier_sync(2, 64);
            x1[threadIdx.x] = s[threadIdx.x - 32];
        }""",
        ("barrier",),
    ),
    "an_early_exit_after_the_last_barrier": (
        """__shared__ float s[64];
        s[threadIdx.x] = x0[threadIdx.x];
        __syncthreads();
        if (threadIdx.x > 10) return;
        x1[threadIdx.x] = s[63 - threadIdx.x];""",
        (),
    ),
    "the_older_of_two_groups": (
        """__shared__ alignas(16) float s[2][64];
        for (int k = 0; k < 2; ++k) {
            weft::copy_async<4>(s[k] + threadIdx.x, x0 + 64 * k + threadIdx.x);
            weft::commit_copies();
        }
        weft::wait_copies<1>();
        x1[threadIdx.x] = s[0][threadIdx.x];
        weft::wait_copies<0>();""",
        ("async",),
    ),
    "shared_memory_of_a_class": (
        """__shared__ weft::float16 s[2][64];
        s[0][threadIdx.x] = x0[threadIdx.x];
        __syncthreads();
        x1[threadIdx.x] = float(s[0][63 - threadIdx.x]);""",
        ("memory",),
    ),
}


# Between blocks; x1 holds -1 at first.
MESSAGES = {
    "a_flag_after_a_fence": (
        """if (blockIdx.x == 0) {
            x1[threadIdx.x] = x0[threadIdx.x];
            __syncthreads();
            if (threadIdx.x == 0) {
                __threadfence();
                weft::store_volatile(x1 + 200, 1.0f);
            }
        } else {
            if (threadIdx.x == 0) {
                while (weft::load_volatile(x1 + 200) != 1.0f) {}
                __threadfence();
            }
            __syncthreads();
            x1[blockIdx.x * 64 + threadIdx.x] = x1[63 - threadIdx.x];
        }""",
        3,
    ),
    "the_last_of_the_blocks": (
        """__shared__ bool last;
        if (threadIdx.x == 0) {
            x1[blockIdx.x] = x0[blockIdx.x];
            __threadfence();
            last = atomicAdd(x1 + 200, 1.0f) == gridDim.x - 2.0f;
            __threadfence();
        }
        __syncthreads();
        if (last && threadIdx.x < gridDim.x) x1[100 + threadIdx.x] = x1[threadIdx.x];""",
        5,
    ),
    "a_chain_of_blocks": (
        """if (threadIdx.x == 0) {
            float before = 0.0f;
            if (blockIdx.x > 0) {
                while (weft::load_acquire<weft::Scope::gpu>(x1 + 200 + blockIdx.x - 1) < 0.0f) {}
                before = x1[blockIdx.x - 1];
            }
            x1[blockIdx.x] = before + x0[blockIdx.x];
            weft::store_release<weft::Scope::gpu>(x1 + 200 + blockIdx.x, 1.0f);
        }""",
        6,
    ),
    "a_lock_by_cuda_s_own_atomics": (
        """if (threadIdx.x % 32 == 0) {
            while (atomicCAS(reinterpret_cast<unsigned*>(x1 + 200), 0xbf800000u, 1u) != 0xbf800000u) {}
            __threadfence();
            x1[0] += 1.0f;
            __threadfence();
            atomicExch(reinterpret_cast<unsigned*>(x1 + 200), 0xbf800000u);
        }""",
        4,
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_sound_messages_between_blocks_have_no_findings(name: str) -> None:
    body, grid = MESSAGES[name]
    results = []
    for seed in range(20):
        x, y = np.arange(256, dtype=np.float32), np.full(256, -1, np.float32)
        simulation = launch(body, [(x, INPUT), (y, INOUT)], headers=("atomic",), grid=grid, seed=seed)
        assert simulation.findings == ()
        results.append(y)
    np.testing.assert_array_equal(np.stack(results), np.broadcast_to(results[0], (20, 256)))


@pytest.mark.parametrize("name", ["a_flag_after_a_fence", "the_last_of_the_blocks", "a_lock_by_cuda_s_own_atomics"])
@pytest.mark.parametrize("which", (0, 1))
def test_each_fence_of_a_message_is_needed(name: str, which: int) -> None:
    body, grid = MESSAGES[name]
    parts = body.split("__threadfence();")
    body = "".join(part + ("__threadfence();" if k != which and k < 2 else "") for k, part in enumerate(parts))
    kinds = set()
    for seed in range(6):
        x, y = np.arange(256, dtype=np.float32), np.full(256, -1, np.float32)
        simulation = launch(body, [(x, INPUT), (y, INOUT)], headers=("atomic",), grid=grid, seed=seed)
        kinds |= {f.kind for f in simulation.findings}
    assert kinds == {"race"}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_text_has_no_findings_whatever_the_order(name: str) -> None:
    body, headers = SOUND[name]
    results = []
    for seed in range(20):
        x, y = np.arange(256, dtype=np.float32), np.full(256, -1, np.float32)
        simulation = launch(body, [(x, INPUT), (y, OUTPUT)], headers=headers, seed=seed)
        assert simulation.findings == ()
        results.append(y)
    np.testing.assert_array_equal(np.stack(results), np.broadcast_to(results[0], (20, 256)))


def test_a_sound_product_is_right_whatever_the_order() -> None:
    for seed in range(6):
        x, y = np.zeros(1, np.float32), np.zeros(128, np.float32)
        assert launch(PRODUCT, [(x, INPUT), (y, OUTPUT)], block=128, headers=("bulk", "wgmma"), seed=seed).findings == ()
        assert set(y) == {16.0}


def test_a_sound_product_of_a_box_is_right_whatever_the_order() -> None:
    x = np.random.default_rng(0).integers(-4, 5, (64, 32)).astype(np.float32)
    tensor_map = row_major("float32", (64, 32), (64, 32), swizzle=128)
    row = np.arange(128) // 32 * 16 + np.arange(128) % 32 // 4
    want = (x[:, :8] @ x[:8, :8].T)[row, np.arange(128) % 4 * 2]
    for seed in range(6):
        y = np.zeros(128, np.float32)
        simulation = launch(boxed(), [(x, INPUT), (y, OUTPUT)], block=128, headers=("bulk", "wgmma"), seed=seed, map=tensor_map)
        assert simulation.findings == ()
        np.testing.assert_array_equal(y, want)


# ---------------------------------------------------------------- counts


def site(simulation: Simulation, line: int, space: str) -> Site:
    (found,) = [s for s in simulation.sites if s.space == space and s.place.line == line + 2]
    return found


@pytest.mark.parametrize(
    ("index", "turns"),
    [("t", 1), ("t * 2", 2), ("t * 32", 32), ("t * 33", 1), ("0", 1), ("t % 4 * 32", 4), ("t / 2", 1), ("t ^ 5", 1)],
)
def test_turns_of_shared_memory(index: str, turns: int) -> None:
    body = f"""__shared__ float s[32 * 33];
    for (int k = threadIdx.x; k < 32 * 33; k += 32) s[k] = 0.0f;
    __syncwarp();
    const int t = threadIdx.x;
    x0[t] = s[{index}];"""
    counted = site(launch(body, [(np.zeros(32, np.float32), OUTPUT)], block=32), 5, "shared")
    assert (counted.requests, counted.turns, counted.degree) == (1, turns, turns)


@pytest.mark.parametrize(("index", "sectors"), [("t", 4), ("t * 2", 8), ("t * 8", 32), ("0", 1), ("31 - t", 4), ("t + 1", 5)])
def test_sectors_of_global_memory(index: str, sectors: int) -> None:
    base = np.zeros(264 + 8, np.float32)
    x = base[-(base.ctypes.data % 32) // 4 % 8 :][:264]  # from the beginning of a sector
    body = f"const int t = threadIdx.x;\n    x1[t] = x0[{index}];"
    simulation = launch(body, [(x, INPUT), (np.zeros(32, np.float32), OUTPUT)], block=32)
    counted = [s for s in simulation.sites if s.array == "x0"]
    assert [(s.requests, s.sectors) for s in counted] == [(1, sectors)]


def test_a_loop_counts_a_request_each_round_and_warp() -> None:
    body = "for (int k = 0; k < 3; ++k) x1[k * 64 + threadIdx.x] = x0[threadIdx.x];"
    simulation = launch(body, [(np.zeros(64, np.float32), INPUT), (np.zeros(192, np.float32), OUTPUT)], grid=1)
    assert [(s.requests, s.bytes) for s in simulation.sites if s.array == "x1"] == [(6, 768)]


def test_barriers_and_threads_are_counted() -> None:
    body = "x0[blockIdx.x * 64 + threadIdx.x] = 0.0f;\n    for (int k = 0; k < 5; ++k) __syncthreads();"
    simulation = launch(body, [(np.zeros(192, np.float32), OUTPUT)], grid=3)
    assert (simulation.barriers, simulation.blocks, simulation.threads) == (15, 3, 64)


# ---------------------------------------------------------------- launches


def test_threads_know_where_they_are() -> None:
    body = """const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    x0[blockIdx.x * 24 + t] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * gridDim.x;"""
    y = np.zeros(48, np.int32)
    assert launch(body, [(y, OUTPUT)], block=(4, 3, 2), grid=2).findings == ()
    want = [x + 10 * r + 100 * z + 1000 * b + 20000 for b in range(2) for z in range(2) for r in range(3) for x in range(4)]
    assert y.tolist() == want


def test_numbers_are_passed_by_value() -> None:
    source = """extern "C" __global__ void numbers(double* y, const int64_t n, const int m, const float f, const double d) {
    y[0] = double(n); y[1] = m; y[2] = f; y[3] = d;
}
"""
    y = np.zeros(4)
    arguments = [Tensor("y", y.ctypes.data, y.nbytes, 8, OUTPUT), Integer(-(2**40)), Integer(-3), Real(0.1, 32), Real(0.1)]
    simulate(source, name="numbers.cu", entry="numbers", grid=(1, 1, 1), block=(1, 1, 1), arguments=arguments)
    assert y.tolist() == [-(2.0**40), -3, float(np.float32(0.1)), 0.1]


def test_dynamic_shared_memory_has_the_size_of_the_launch() -> None:
    body = """extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = 1.0f; // here
    x0[threadIdx.x] = dynamic[threadIdx.x];"""
    y = np.zeros(64, np.float32)
    assert launch(body, [(y, OUTPUT)], shared=256).findings == ()
    for size in (252, 0):
        finding = launch(body, [(y, OUTPUT)], shared=size).findings[0]
        assert (finding.kind, finding.place.line) == ("out of bounds", 4)


def test_what_is_not_written_is_told() -> None:
    y, written = np.zeros(64, np.float32), bytearray(64)
    tensor = Tensor("y", y.ctypes.data, y.nbytes, 4, OUTPUT, written=written)
    source = 'extern "C" __global__ void half(float* y) {\n    if (threadIdx.x % 2) y[threadIdx.x] = 1.0f;\n}\n'
    simulate(source, name="half.cu", entry="half", grid=(1, 1, 1), block=(64, 1, 1), arguments=[tensor])
    assert list(written) == [0, 1] * 32


def test_the_line_of_a_finding_in_a_device_function_is_that_of_its_call() -> None:
    """Also where the function is called twice, so that a compiler might not inline it."""
    body = """__shared__ float s[2];
    float a = weft::reduce<weft::Sum<float>, 64>(x0[threadIdx.x], s);
    a += weft::reduce<weft::Sum<float>, 64>(x0[threadIdx.x], s); // here
    x1[threadIdx.x] = a;"""
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    (race,) = launch(body, [(x, INPUT), (y, OUTPUT)], headers=("team",)).findings
    assert race.kind == "race"
    assert race.place.line == 5
    assert race.header is not None
    assert race.header.file == "weft/team.cuh"


def test_a_text_that_is_no_kernel_is_refused() -> None:
    options = {"name": "none.cu", "grid": (1, 1, 1), "block": (1, 1, 1), "arguments": []}
    with pytest.raises(CompileError, match=r"none\.cu has no kernel"):
        simulate("int x;\n", entry="kernel", **options)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=r"refuses none\.cu"):
        simulate('extern "C" __global__ void kernel() { nonsense; }\n', entry="kernel", **options)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="no kernel 'other'"):
        simulate('extern "C" __global__ void kernel() {}\n', entry="other", **options)  # type: ignore[arg-type]


def test_one_fault_is_told_once() -> None:
    """However many threads make it, and in however many blocks."""
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    body = "x1[threadIdx.x] = x0[threadIdx.x + 64];"
    (finding,) = launch(body, [(x, INPUT), (y, OUTPUT)], grid=1).findings
    assert finding.times == 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block": (2048, 1, 1)}, "2048"),
        ({"grid": (0, 1, 1)}, "no blocks"),
        ({"grid": (3, 1, 1), "cluster": (2, 1, 1)}, "whole clusters"),
        ({"shared": 1 << 20}, "dynamic shared memory"),
    ],
)
def test_launches_that_no_device_takes_are_refused(options: dict[str, Any], message: str) -> None:
    given = {"grid": (1, 1, 1), "block": (32, 1, 1), **options}
    with pytest.raises(LaunchError, match=message):
        simulate('extern "C" __global__ void k() {}\n', name="k.cu", entry="k", arguments=[], **given)


def test_several_threads_may_simulate() -> None:
    def run(_: int) -> tuple[Finding, ...]:
        x = np.arange(64, dtype=np.float32)
        source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }\n'
        tensor = Tensor("x", x.ctypes.data, x.nbytes, 4, "inout")
        made = simulate(source, name="k.cu", entry="k", grid=(1, 1, 1), block=(64, 1, 1), arguments=[tensor])
        assert (x == 2 * np.arange(64)).all()
        return made.findings

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(run, range(16))) == {()}
