"""Planted bugs: small changes of the CUDA that weft emits, of the headers it includes, and of the kernels of
device_kernels.py, each with what the simulator says of it and where.

`python -m tests.mutants [NAME ...]` prints which of twenty seeds find each.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from tests import kernels_for_tests as thread_kernels
from tests import kernels_of_joins
from tests.device_kernels import KERNELS, DeviceKernel
from tests.test_device_simulator import run_simulated
from weft.kernels import LIBRARY
from weft.plan import join as plan_join
from weft.pytorch import simulated
from weft.runtime import include
from weft.runtime.simulator import Finding, program

WRONG = ("wrong result",)  # not found by watching accesses: only by comparing
DEVICE = {kernel.name: kernel for kernel in KERNELS}


@dataclass(frozen=True)
class Mutant:
    """A text change that makes a kernel wrong.

    kernel: of DEVICE or CALLS. old, new: what is changed; `old` is there once, or `occurrence` says which one (from 0).
    kinds: the findings that tell of it, any of them. lines: parts of the lines it is told at, any of them, after the
    change: of the header's text if the change is in a header, else of the kernel's; of the user's file for a finding that
    has no line in the kernel. seeds: how many are tried in the tests.
    """

    name: str
    kernel: str
    old: str
    new: str
    kinds: tuple[str, ...]
    lines: tuple[str, ...] = ()
    header: str = ""
    occurrence: int | None = None
    seeds: int = 5

    def change(self, text: str) -> str:
        parts = text.split(self.old)
        if self.occurrence is None:
            assert len(parts) == 2, f"{self.name}: {self.old!r} is there {len(parts) - 1} times"
        at = self.occurrence or 0
        assert at < len(parts) - 1, f"{self.name}: {self.old!r} is there {len(parts) - 1} times"
        return self.old.join(parts[: at + 1]) + self.new + self.old.join(parts[at + 1 :])


# ---------------------------------------------------------------- calls whose emitted text is changed


@dataclass(frozen=True)
class Call:
    """A call of a kernel written in Python. threads: of a block, as the launch has them."""

    kernel: Any
    args: Callable[[], tuple[Any, ...]]
    threads: int


def _random(*shape: int, columns: int | None = None) -> torch.Tensor:
    """float32 rows; `columns`: the distance of two rows in memory."""
    wide = torch.randn(*shape[:-1], columns or shape[-1], generator=torch.Generator().manual_seed(len(shape)))
    return wide[..., : shape[-1]]


CALLS: dict[str, Call] = {
    "linrec_64": Call(LIBRARY["linrec"], lambda: (_random(2, 600), _random(2, 600)), 64),
    "linrec_256": Call(LIBRARY["linrec"], lambda: (_random(1, 8192), _random(1, 8192)), 256),
    "linrec_odd": Call(LIBRARY["linrec"], lambda: (_random(2, 601), _random(2, 601)), 64),
    "linrec_reverse": Call(LIBRARY["linrec_reverse"], lambda: (_random(2, 600), _random(2, 600)), 64),
    "cumsum": Call(LIBRARY["cumsum"], lambda: (_random(2, 600).bfloat16(),), 64),
    "cumsum_256": Call(LIBRARY["cumsum"], lambda: (_random(1, 8192),), 256),
    "softmax": Call(LIBRARY["softmax"], lambda: (_random(3, 1200),), 96),
    "softmax_short": Call(LIBRARY["softmax"], lambda: (_random(3, 20),), 128),
    "softmax_odd": Call(LIBRARY["softmax"], lambda: (_random(3, 1201),), 64),
    "softmax_sliced": Call(LIBRARY["softmax"], lambda: (_random(3, 1200, columns=1208),), 64),
    "log_softmax": Call(LIBRARY["log_softmax"], lambda: (_random(3, 1200).half(),), 64),
    "rms_norm": Call(LIBRARY["rms_norm"], lambda: (_random(3, 1200), _random(1200), 1e-6), 64),
    "layer_norm": Call(LIBRARY["layer_norm"], lambda: (_random(3, 1200), _random(1200), _random(1200), 1e-5), 96),
    "gelu": Call(LIBRARY["gelu_bias_residual"], lambda: (_random(3, 600), _random(600), _random(3, 600)), 256),
    "neighbours": Call(thread_kernels.neighbours, lambda: (_random(3, 600),), 256),
    "running_neighbours": Call(thread_kernels.running_neighbours, lambda: (_random(3, 600),), 64),
    "column_sums": Call(thread_kernels.column_sums, lambda: (_random(6, 70),), 128),
    "logistic_map": Call(thread_kernels.logistic_map, lambda: (_random(130, 9),), 128),
    "matmul": Call(thread_kernels.matmul, lambda: (_random(6, 24), _random(24, 7)), 256),
    "masked": Call(thread_kernels.masked, lambda: (_random(3, 70), 0.5), 128),
    "histogram": Call(kernels_of_joins.histogram, lambda: (kernels_of_joins.whole(9, 3000), 9), 256),
    "largest": Call(kernels_of_joins.CASES["largest"][0], kernels_of_joins.CASES["largest"][1][1], 256),
    "stored": Call(kernels_of_joins.CASES["stored"][0], kernels_of_joins.CASES["stored"][1][0], 256),
    "added": Call(kernels_of_joins.CASES["added_floats"][0], kernels_of_joins.CASES["added_floats"][1][0], 256),
    "gathered": Call(thread_kernels.gathered, lambda: (_random(3, 8), torch.tensor([7, 3, 0, 0, 1, 2, 6, 5])), 256),
}

# fmt: off
# ---------------------------------------------------------------- emitted code

_PIPELINE_READ = "result.element[i] ="
_RUNS, _REDUCE = "weft::scan_runs<", "weft::reduce<"

EMITTED: tuple[Mutant, ...] = (
    # ---- what the warps of a row tell each other
    Mutant("one_buffer_cumsum", "cumsum_256", "total_scratch[tile & 1]", "total_scratch[0]", ("race",), (_RUNS,)),
    Mutant(
        "one_buffer_softmax", "softmax",
        "float_values[turn ^= 1]", "float_values[turn]",
        ("race",), (_REDUCE,), occurrence=1,
    ),
    Mutant("buffer_past_its_end", "linrec_256", "h_scratch[tile & 1]", "h_scratch[tile + 1]", ("out of bounds",), (_RUNS,)),
    Mutant(
        "team_of_another_size", "softmax",
        "weft::reduce<weft::Max<float>, 96>", "weft::reduce<weft::Max<float>, 128>",
        ("out of bounds", "uninitialised read"), (_REDUCE,),
    ),
    Mutant(
        "threads_return_early", "softmax",
        "    int32_t turn = 0;\n", "    int32_t turn = 0;\n    if (threadIdx.x >= 32) return;\n",
        ("divergent barrier",), (_REDUCE,),
    ),
    Mutant(
        "reduction_by_half_of_the_warps", "layer_norm",
        "const float total = weft::reduce", "float total = 0.0f;\n        if (threadIdx.x < 32) total = weft::reduce",
        ("divergent barrier",), (_REDUCE,),
    ),
    Mutant(
        "accumulator_without_identity", "softmax_short",
        "float largest_own = weft::Max<float>::identity();", "float largest_own;",
        ("uninitialised read",), (_REDUCE,),
    ),
    Mutant("sum_without_identity", "rms_norm", " = weft::Sum<float>::identity();", ";", ("uninitialised read",), (_REDUCE,)),
    Mutant("state_of_the_tile_forgotten", "linrec_256", "weft::Affine<float>::apply(h_composed.all, h_last);", "", WRONG),
    # ---- bounds
    Mutant(
        "load_without_its_guard", "linrec_64",
        "if (l_ahead < length) x_next", "x_next",
        ("out of bounds",), ("x_r + l_ahead",),
    ),
    Mutant(
        "load_guarded_by_less_or_equal", "softmax",
        "if (l_run < length)", "if (l_run <= length)",
        ("out of bounds",), ("weft::fetch<",), occurrence=0,
    ),
    Mutant(
        "store_without_its_guard", "linrec_64",
        "if (l_run < length)", "if (true)",
        ("out of bounds", "race"), ("weft::store<4>",), occurrence=2,
    ),
    Mutant(
        "store_guarded_by_less_or_equal", "softmax",
        "if (l_run < length)", "if (l_run <= length)",
        ("out of bounds", "race"), ("weft::store<4>",), occurrence=3,
    ),
    Mutant(
        "load_of_the_next_tile_from_too_far", "linrec_256",
        "(tile + 1) * 4096", "(tile + 2) * 4096",
        WRONG,
    ),
    Mutant(
        "row_after_the_last", "softmax",
        "const float* x_r = x + r * x_stride_0;", "const float* x_r = x + (r + 1) * x_stride_0;",
        ("out of bounds",), ("weft::fetch<",),
    ),
    Mutant(
        "row_after_its_own", "gelu",
        "x + r * x_stride_0", "x + (r + 1) * x_stride_0",
        ("out of bounds",), ("weft::fetch<",),
    ),
    Mutant(
        "weight_of_the_next_column", "layer_norm",
        "weight + l_run", "weight + l_run + 4",
        ("out of bounds",), ("weight + l_run",),
    ),
    Mutant(
        "stride_of_another_array", "softmax_sliced",
        "x + r * x_stride_0", "x + r * y_stride_0",
        ("out of bounds",), ("weft::fetch<",),
    ),
    Mutant(
        "stride_of_the_input_for_the_output", "softmax_sliced",
        "y + r * y_stride_0", "y + r * x_stride_0",
        ("out of bounds",), ("weft::store<4>",),
    ),
    Mutant(
        "thread_beyond_the_columns", "column_sums",
        "item < l_count", "item <= l_count",
        ("out of bounds",), ("x_l[r", "y_l[0]"),
    ),
    Mutant("one_row_too_many", "column_sums", "r < rows", "r <= rows", ("out of bounds",), ("x_l[r",)),
    Mutant("column_before_the_row", "logistic_map", "x_r[l]", "x_r[l - 1]", ("out of bounds",), ("x_r[l - 1]",)),
    Mutant(
        "columns_by_the_wrong_stride", "matmul",
        "b_j[q * b_stride_0]", "b_j[q * a_stride_0]",
        ("out of bounds",), ("b_j[q",),
    ),
    Mutant("subscript_beyond_its_array", "gathered", "length, 1, outside)", "2, 1, outside)", ("trap",), ("__trap",)),
    Mutant(
        "subscript_not_checked", "gathered",
        "? x_r[x_at_1]", "? x_r[100 * x_at_1]",
        ("out of bounds",), ("100 * x_at_1",),
    ),
    # ---- vectors
    Mutant(
        "load_too_wide", "linrec_odd",
        "weft::fetch<4, 4>(x_r + l_ahead)", "weft::fetch<4, 4>(x_r + 1 + l_ahead)",
        ("misaligned",), ("x_r + 1 + l_ahead",),
    ),
    Mutant(
        "store_too_wide", "softmax_odd",
        "y_r[l] =",
        "float four[4] = {};\n                    weft::store<4>(y_r + l, four);\n                    y_r[l] =",
        ("misaligned",), ("weft::store<4>",),
    ),
    Mutant(
        "load_off_by_one", "cumsum",
        "weft::fetch<8, 8>(x_r + l_ahead)", "weft::fetch<8, 8>(x_r + l_ahead + 1)",
        ("misaligned",), ("x_r + l_ahead + 1",),
    ),
    # ---- outputs
    Mutant(
        "store_dropped", "softmax",
        "weft::store<4>(y_r + l_run, y_run);", "",
        ("unwritten output",), ("y = torch.empty",),
    ),
    Mutant(
        "last_columns_not_stored", "cumsum",
        "if (l_run < length) {\n            float y_run",
        "if (l_run + 8 < length) {\n            float y_run",
        ("unwritten output",), ("y = torch.empty",),
    ),
    Mutant("count_not_stored", "masked", "count_r[0] = n;", "", WRONG),
    Mutant(
        "store_in_the_next_place", "softmax_odd",
        "y_r[l] =", "y_r[l + 1] =",
        ("race", "out of bounds"), ("y_r[l + 1]",),
    ),
    Mutant(
        "all_blocks_take_one_row", "softmax",
        "float* y_r = y + r * y_stride_0;", "float* y_r = y;",
        ("race",), ("weft::store<4>",),
    ),
    Mutant(
        "two_threads_store_the_result", "masked",
        "if (threadIdx.x == 0) {", "if (threadIdx.x < 2) {",
        ("race",), ("count_r[0]",),
    ),
    Mutant(
        "store_to_an_input", "gelu",
        "weft::store<4>(y_r + l_run", "weft::store<4>((float*)x_r + l_run",
        ("write to an input",), ("weft::store<4>",),
    ),
    Mutant(
        "lanes_leave_the_warp", "cumsum",
        "    float total_last = 0.0f;\n", "    float total_last = 0.0f;\n    if (threadIdx.x % 32 == 31) return;\n",
        ("shuffle mask",), (_RUNS,),
    ),
)

# ---------------------------------------------------------------- headers

_SLOT_WRITTEN = "scratch[threadIdx.x / 32"
_SLOT_READ = "lane < warps ? scratch[lane"

IN_HEADERS: tuple[Mutant, ...] = (
    Mutant(
        "reduction_without_barrier", "softmax",
        "        __syncthreads();\n", "",
        ("race",), (_SLOT_WRITTEN, _SLOT_READ), header="team.cuh", occurrence=1,
    ),
    Mutant(
        "scan_without_barrier", "linrec_256",
        "        __syncthreads();\n", "",
        ("race",), ("scratch[warp]", "scratch[threadIdx.x % warps]"), header="team.cuh", occurrence=6,
    ),
    Mutant(
        "barrier_of_one_warp", "softmax",
        "        __syncthreads();\n", "        if (threadIdx.x < 32) __syncthreads();\n",
        ("divergent barrier",), ("__syncthreads",), header="team.cuh", occurrence=1,
    ),
    Mutant(
        "barrier_after_a_return", "linrec_256",
        "        __syncthreads();\n",
        "        if (threadIdx.x / 32 == 1) return {all, all};\n        __syncthreads();\n",
        ("divergent barrier",), ("__syncthreads",), header="team.cuh", occurrence=6,
    ),
    Mutant(
        "slot_of_the_next_warp", "softmax",
        "scratch[threadIdx.x / 32]", "scratch[threadIdx.x / 32 + 1]",
        ("out of bounds", "uninitialised read", "race"), (_SLOT_WRITTEN, _SLOT_READ), header="team.cuh",
    ),
    Mutant(
        "read_of_the_next_slot", "team_reduce",
        "lane < warps ? scratch[lane]", "lane < warps ? scratch[lane + 1]",
        ("out of bounds", "uninitialised read", "race"), (_SLOT_READ,), header="team.cuh",
    ),
    Mutant(
        "only_the_first_warp_tells", "linrec_64",
        "if (threadIdx.x % 32 == 0) scratch[warp] = all", "if (threadIdx.x == 0) scratch[warp] = all",
        ("uninitialised read",), ("scratch[threadIdx.x % warps]",), header="team.cuh",
    ),
    Mutant(
        "every_lane_tells", "team_scan",
        "if (threadIdx.x % 32 == 0) scratch[warp]", "scratch[warp]",
        ("race",), ("scratch[warp]",), header="team.cuh", occurrence=0,
    ),
    Mutant(
        "mask_of_half_a_warp", "softmax",
        "__shfl_xor_sync(lanes", "__shfl_xor_sync(lanes & 0x0000ffffu",
        ("shuffle mask",), ("__shfl_xor_sync",), header="team.cuh",
    ),
    Mutant(
        "shuffle_by_half_of_the_lanes", "team_scan",
        "auto before = moved(1);",
        "auto before = value;\n    if (lane < 16) before = moved(1);",
        ("divergent warp",), ("return T(__shfl",), header="team.cuh",
    ),
    # ---- rows side by side, and what blocks tell each other
    Mutant(
        "no_barrier_in_scan_down", "rows_of_blocks", "__syncthreads();", "",
        ("race",), ("scratch[(v * groups",), header="team.cuh", occurrence=7,
    ),
    Mutant(
        "no_barrier_in_reduce_down", "rows_of_blocks", "__syncthreads();", "",
        ("race",), ("scratch[",), header="team.cuh", occurrence=2,
    ),
    Mutant(
        "sum_of_groups_is_read_early", "rows_down", "__syncthreads();", "",
        ("race",), ("scratch[x]",), header="team.cuh", occurrence=3,
    ),
    Mutant(
        "groups_before_are_read_early", "rows_down", "__syncthreads();", "",
        ("race",), ("scratch[place(v, k",), header="team.cuh", occurrence=8,
    ),
    Mutant(
        "lanes_in_one_place", "rows_of_blocks", "position >= 32 - across", "position >= across",
        ("race",), ("scratch[(v * groups",), header="team.cuh",
    ),
    Mutant(
        "rows_of_a_warp_as_wide_as_it", "rows_of_blocks", "scratch[k * across + x]", "scratch[k * group + x]",
        ("out of bounds", "uninitialised read"), ("scratch[k",), header="team.cuh",
    ),
    Mutant(
        "words_of_all_turns_in_one_place", "rows_of_blocks", "((turn & 3) * turns", "((turn & 0) * turns",
        ("deadlock", "divergent warp"), ("__all_sync",), header="chain.cuh", occurrence=0,
    ),
    Mutant(
        "words_of_any_turn", "rows_of_blocks", "uint32_t(word[row][part][k] >> 32) == turn",
        "uint32_t(word[row][part][k] >> 32) != 0", WRONG, header="chain.cuh",
    ),
    Mutant(
        "a_block_hears_itself_first", "rows_of_blocks", "begin + j < part", "begin + j <= part",
        WRONG, header="chain.cuh",
    ),
    Mutant(
        "packets_after_the_row_are_its_own", "packets", "41 - first", "61 - first",
        ("out of bounds",), ("weft::copy_packet",),
    ),
    Mutant(
        "halves_read_before_a_thread_has_brought_them", "packets",
        "    weft::wait_copies<0>();\n    __syncthreads();", "    weft::wait_copies<0>();",
        ("race", "uninitialised read"), ("room[i]",),
    ),
    Mutant(
        "scan_skips_a_lane", "cumsum",
        "position >= distance", "position > distance",
        WRONG, header="team.cuh", occurrence=0,
    ),
    Mutant(
        "column_before_the_first", "running_neighbours",
        "if (first > 0) run", "run",
        ("out of bounds",), ("row[first - 1]",), header="memory.cuh",
    ),
    Mutant(
        "column_after_the_last", "running_neighbours",
        "if (first + count < size)", "if (first + count <= size)",
        ("out of bounds",), ("row[first + count]",), header="memory.cuh",
    ),
    Mutant(
        "run_read_from_the_next_element", "gelu",
        "Packet<T, width>*>(address + k);\n#pragma unroll\n            for (int v = 0; v < width; ++v) lane",
        "Packet<T, width>*>(address + k + 1);\n#pragma unroll\n            for (int v = 0; v < width; ++v) lane",
        ("misaligned",), ("address + k + 1",), header="memory.cuh",
    ),
    Mutant(
        "guard_of_a_run_dropped", "linrec_odd",
        "if (first + v >= low && first + v < high) run", "run",
        ("out of bounds",), ("run.set(v, address[v])",), header="memory.cuh",
    ),
    Mutant(
        "run_stored_over_the_next", "log_softmax",
        "put(reinterpret_cast<uint32_t*>(address + k)", "put(reinterpret_cast<uint32_t*>(address + k + width)",
        ("race", "out of bounds"), ("(address) = packet",), header="memory.cuh", occurrence=0,
    ),
)

# ---------------------------------------------------------------- asynchronous kernels

_LOAD = "weft::tensor_load(in[s].element"
_A_LOAD, _B_LOAD = "weft::tensor_load(stage[s].a", "weft::tensor_load(stage[s].b"
_WGMMA = "weft::wgmma<weft::bfloat16"

PIPELINE: tuple[Mutant, ...] = (
    Mutant("full_not_waited_for", "pipelined_scale", "full[s].wait(t / stages % 2);", "", ("race",), (_PIPELINE_READ,)),
    Mutant(
        "waited_after_the_read", "pipelined_scale",
        "full[s].wait(t / stages % 2);\n"
        "            for (int i = thread; i < rows * columns; i += consumers) result.element[i] = 2.0f *"
        " in[s].element[i] + 1.0f;",
        "for (int i = thread; i < rows * columns; i += consumers) result.element[i] = 2.0f * in[s].element[i] + 1.0f;\n"
        "            full[s].wait(t / stages % 2);",
        ("race", "wrong phase"), (_PIPELINE_READ,),
    ),
    Mutant(
        "parity_of_full_never_flips", "pipelined_scale",
        "full[s].wait(t / stages % 2)", "full[s].wait(0)",
        ("wrong phase",), (_PIPELINE_READ,),
    ),
    Mutant(
        "parity_of_full_is_flipped", "pipelined_scale",
        "full[s].wait(t / stages % 2)", "full[s].wait(t / stages % 2 ^ 1)",
        ("wrong phase",), (_PIPELINE_READ,),
    ),
    Mutant(
        "parity_of_empty_is_flipped", "pipelined_scale",
        "(t / stages % 2) ^ 1", "t / stages % 2",
        ("deadlock",), ("empty[s].wait",),
    ),
    Mutant(
        "parity_of_empty_never_flips", "pipelined_scale",
        "(t / stages % 2) ^ 1", "1",
        ("slot reused", "mbarrier phase"), (_LOAD, "arrive_expect"),
    ),
    Mutant(
        "empty_not_waited_for", "pipelined_scale",
        "empty[s].wait((t / stages % 2) ^ 1);", "",
        ("mbarrier phase", "race"), ("full[s].arrive_expect", _LOAD),
    ),
    Mutant(
        "too_few_bytes_expected", "pipelined_scale",
        "arrive_expect(sizeof(Tile))", "arrive_expect(sizeof(Tile) / 2)",
        ("byte count",), (_LOAD, "arrive_expect"),
    ),
    Mutant(
        "too_many_bytes_expected", "pipelined_scale",
        "arrive_expect(sizeof(Tile))", "arrive_expect(2 * sizeof(Tile))",
        ("byte count",), ("arrive_expect", "full[s].wait"),
    ),
    Mutant(
        "bytes_not_expected", "bulk_runs",
        "loaded.expect(sizeof run / 2);", "",
        ("byte count",), ("loaded.arrive_expect", "weft::bulk_load"),
    ),
    Mutant(
        "arrivals_of_full", "pipelined_scale",
        "full[s].init(1)", "full[s].init(2)",
        ("deadlock",), ("empty[s].wait", "full[s].wait"),
    ),
    Mutant(
        "arrivals_of_empty", "pipelined_scale",
        "init(consumers / 32)", "init(consumers)",
        ("deadlock",), ("empty[s].wait",),
    ),
    Mutant(
        "one_arrival_frees_a_slot", "pipelined_scale",
        "init(consumers / 32)", "init(1)",
        ("slot reused", "mbarrier phase"), (_LOAD, "empty[s].arrive"),
    ),
    Mutant(
        "arrival_missing", "pipelined_scale",
        "if (thread % 32 == 0) empty[s].arrive();", "",
        ("deadlock",), ("empty[s].wait",),
    ),
    Mutant(
        "arrival_twice", "pipelined_scale",
        "if (thread % 32 == 0) empty[s].arrive();",
        "if (thread % 32 == 0) {\n                empty[s].arrive();\n                empty[s].arrive();\n            }",
        ("slot reused", "mbarrier phase"), (_LOAD, "empty[s].arrive"),
    ),
    Mutant("arrival_before_the_reads_of_the_warp", "pipelined_scale", "__syncwarp();", "", ("slot reused",), (_LOAD,)),
    Mutant(
        "initialisation_without_fence", "pipelined_scale",
        "weft::fence_mbarrier_init();", "",
        ("missing proxy fence",), (_LOAD,),
    ),
    Mutant(
        "initialisation_without_barrier", "pipelined_scale",
        "}\n    __syncthreads();\n    if (threadIdx.x < 32) {", "}\n    if (threadIdx.x < 32) {",
        ("mbarrier not initialised",), ("full[s].wait", "empty[s].arrive"),
    ),
    Mutant(
        "results_not_fenced", "pipelined_scale",
        "weft::fence_proxy_async();", "",
        ("missing proxy fence",), ("weft::tensor_store",),
    ),
    Mutant(
        "results_not_awaited", "pipelined_scale",
        "weft::barrier_sync(2, consumers);", "",
        ("race",), ("weft::tensor_store",),
    ),
    Mutant(
        "store_not_committed", "pipelined_scale",
        "weft::bulk_commit();", "",
        ("race", "bulk copy unfinished"), (_PIPELINE_READ, "weft::tensor_store"),
    ),
    Mutant(
        "result_overwritten", "pipelined_scale",
        "if (thread == 0) weft::bulk_wait_read<1>();", "//",
        ("race",), (_PIPELINE_READ,),
    ),
    Mutant(
        "wait_for_one_store_too_few", "pipelined_scale",
        "bulk_wait_read<1>", "bulk_wait_read<2>",
        ("race",), (_PIPELINE_READ,),
    ),
    Mutant("one_result_buffer", "pipelined_scale", "out[t % 2]", "out[0]", ("race",), (_PIPELINE_READ,)),
    Mutant("wait_not_told_to_others", "pipelined_scale", "weft::barrier_sync(1, consumers);", "", ("race",), (_PIPELINE_READ,)),
    Mutant(
        "ends_before_its_stores", "pipelined_scale",
        "if (thread == 0) weft::bulk_wait_read<0>();", "",
        ("bulk copy unfinished",), ("weft::tensor_store",),
    ),
    Mutant(
        "barrier_for_too_many", "pipelined_scale",
        "weft::barrier_sync(2, consumers)", "weft::barrier_sync(2, 160)",
        ("deadlock", "divergent barrier"), ("weft::barrier_sync(2, 160)", "empty[s].wait"),
    ),
    Mutant(
        "barrier_for_too_few", "pipelined_scale",
        "weft::barrier_sync(2, consumers)", "weft::barrier_sync(2, 96)",
        ("deadlock", "race", "divergent barrier"),
        ("weft::barrier_sync(2, 96)", "weft::tensor_store", _PIPELINE_READ, "empty[s].wait"),
    ),
    Mutant(
        "barrier_of_a_part_of_a_warp", "pipelined_scale",
        "weft::barrier_sync(2, consumers)", "weft::barrier_sync(2, 120)",
        ("barrier count",), ("weft::barrier_sync(2",),
    ),
    Mutant(
        "slot_past_the_last", "pipelined_scale",
        "in[s].element, from", "in[s + 1].element, from",
        ("out of bounds", "slot reused"), (_LOAD, "in[s + 1]"),
    ),
    Mutant(
        "slot_misaligned", "pipelined_scale",
        "in[s].element, from", "in[s].element + 4, from",
        ("misaligned",), ("in[s].element + 4",),
    ),
    Mutant("coordinates_exchanged", "pipelined_scale", "full[s], t * columns, row", "full[s], row, t * columns", WRONG),
    Mutant(
        "part_of_a_warp_synchronised", "pipelined_scale",
        "__syncwarp();", "__syncwarp(0x0000ffffu);",
        ("shuffle mask",), ("__syncwarp",),
    ),
    Mutant(
        "a_tile_too_many", "pipelined_scale",
        "for (int t = 0; t < tiles; ++t) {\n                const int s",
        "for (int t = 0; t <= tiles; ++t) {\n                const int s",
        ("bulk copy unfinished",), ("weft::tensor_load",),
    ),
)

BULK: tuple[Mutant, ...] = (
    Mutant(
        "run_stored_without_fence", "bulk_runs",
        "weft::fence_proxy_async();", "",
        ("missing proxy fence",), ("weft::bulk_store",),
    ),
    Mutant(
        "run_stored_without_barrier", "bulk_runs",
        "weft::fence_proxy_async();\n    __syncthreads();", "weft::fence_proxy_async();",
        ("race",), ("weft::bulk_store",),
    ),
    Mutant("run_not_waited_for", "bulk_runs", "loaded.wait(0);", "", ("race",), ("run[i] *=",)),
    Mutant(
        "run_not_stored_at_the_end", "bulk_runs",
        "weft::bulk_wait<0>();", "",
        ("bulk copy unfinished",), ("weft::bulk_store",),
    ),
    Mutant("run_not_committed", "bulk_runs", "weft::bulk_commit();", "", ("bulk copy unfinished",), ("weft::bulk_store",)),
    Mutant(
        "run_too_long", "bulk_runs",
        "x + blockIdx.x * count, sizeof run", "x + blockIdx.x * count, sizeof run + 16",
        ("out of bounds",), ("weft::bulk_load",),
    ),
    Mutant(
        "run_from_an_odd_place", "bulk_runs",
        "x + blockIdx.x * count, sizeof", "x + 1 + blockIdx.x * count, sizeof",
        ("misaligned",), ("weft::bulk_load",),
    ),
    Mutant(
        "run_of_an_odd_size", "bulk_runs",
        "blockIdx.x * count, run, sizeof run", "blockIdx.x * count, run, sizeof run - 4",
        ("bad copy",), ("weft::bulk_store",),
    ),
    Mutant(
        "every_thread_announces", "bulk_runs",
        "if (threadIdx.x == 0) {\n        loaded.expect", "{\n        loaded.expect",
        ("mbarrier phase", "slot reused", "byte count"), ("loaded.arrive_expect", "weft::bulk_load", "loaded.expect"),
    ),
    Mutant(
        "global_stores_without_fence", "bulk_after_store",
        "weft::fence_proxy_async_global();", "",
        ("missing proxy fence",), ("weft::bulk_load",),
    ),
    Mutant(
        "global_stores_with_the_fence_of_shared", "bulk_after_store",
        "fence_proxy_async_global()", "fence_proxy_async()",
        ("missing proxy fence",), ("weft::bulk_load",),
    ),
    Mutant(
        "load_before_the_stores_of_others", "bulk_after_store",
        "weft::fence_proxy_async_global();\n    __syncthreads();", "weft::fence_proxy_async_global();",
        ("race", "mbarrier not initialised"), ("weft::bulk_load", "loaded.wait"),
    ),
    Mutant(
        "box_announced_without_bytes", "tensor_copy_2d",
        "loaded.arrive_expect(sizeof box);", "loaded.arrive();",
        ("byte count", "race", "wrong phase"), ("weft::tensor_load", "boxes["),
    ),
    Mutant(
        "box_stored_without_wait", "tensor_copy_3d",
        "weft::bulk_wait_read<0>();", "",
        ("bulk copy unfinished",), ("weft::tensor_store",),
    ),
    Mutant(
        "windows_share_a_place", "tensor_windows",
        "weft::tensor_load(window[1]", "weft::tensor_load(window[0]",
        ("race", "slot reused", "uninitialised read"), ("weft::tensor_load", "window[1]"),
    ),
    Mutant(
        "loaded_over_unread_writes", "bulk_runs",
        "loaded.wait(0);",
        "loaded.wait(0);\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x == 0) {\n"
        "        loaded.arrive_expect(sizeof run);\n"
        "        weft::bulk_load(run, x + blockIdx.x * count, sizeof run, loaded);\n"
        "    }",
        ("wrong phase",), ("run[i] *=",),
    ),
)

COPIES: tuple[Mutant, ...] = (
    Mutant(
        "a_tile_fetched_as_from_global_memory", "packets_in_banks",
        "weft::fetch_packets<16>(tile, weft::packet_place<4>(4 * i) * 4)", "weft::fetch_now<16, 4>(tile + 16 * i)",
        ("wrong memory",), ("weft::fetch_now",),
    ),
    Mutant(
        "a_tile_stored_as_to_global_memory", "packets_in_banks",
        "*reinterpret_cast<Packet*>(tile + weft::packet_place<4>(packet) * 4) = "
        "*reinterpret_cast<const Packet*>(x + packet * 4);",
        "weft::put(tile + packet * 4, *reinterpret_cast<const Packet*>(x + packet * 4));",
        ("wrong memory",), ("weft::put",),
    ),
    Mutant("one_group_too_few", "half_product", "wait_copies<1>", "wait_copies<2>", ("race",), ("weft::load_matrix(",)),
    Mutant(
        "copies_of_other_threads", "half_product",
        "weft::wait_copies<1>();\n        __syncthreads();", "weft::wait_copies<1>();",
        ("race",), ("weft::load_matrix(",),
    ),
    Mutant(
        "stage_reused", "half_product",
        "}\n        __syncthreads();\n    }", "}\n    }",
        ("slot reused",), ("weft::copy_async_or_zero",),
    ),
    Mutant("copies_not_committed", "half_product", "weft::commit_copies();", "", ("race",), ("weft::load_matrix(",)),
    Mutant(
        "commit_only_what_is_copied", "staged_tiles",
        "}\n        weft::commit_copies();\n        weft::wait_copies<1>();",
        "    weft::commit_copies();\n        }\n        weft::wait_copies<1>();",
        ("race",), ("= here[i]",),
    ),
    Mutant(
        "wait_without_barrier", "staged_tiles",
        "weft::wait_copies<1>();\n        __syncthreads();", "weft::wait_copies<1>();",
        ("race",), ("= here[i]",),
    ),
    Mutant(
        "barrier_before_wait", "staged_tiles",
        "weft::wait_copies<1>();\n        __syncthreads();", "__syncthreads();\n        weft::wait_copies<1>();",
        ("race",), ("= here[i]",),
    ),
    Mutant(
        "arrival_not_on_copies", "copy_sizes",
        "weft::arrive_on_copies(copied)", "copied.arrive()",
        ("race",), ("= stage[k ^ 32]",),
    ),
    Mutant(
        "copies_past_the_rows", "half_product",
        "a + (in_a ? (row + r) * depth + k : 0), in_a", "a + (row + r) * depth + k, true",
        ("out of bounds",), ("weft::copy_async_or_zero",),
    ),
    Mutant(
        "copy_at_an_odd_place", "half_product",
        "stage[t % 2][1][place]", "stage[t % 2][1][place + 4]",
        ("misaligned",), ("[place + 4]",),
    ),
    Mutant(
        "rows_beyond_the_tile", "half_product",
        "right_tile + right_row * side", "right_tile + (right_row + 8) * side",
        ("out of bounds",), ("(right_row + 8)",),
    ),
    Mutant(
        "row_at_an_odd_place", "half_product",
        "(left_row % 8)) * 8", "(left_row % 8)) * 4",
        ("misaligned",), ("weft::load_matrix(left",),
    ),
    Mutant(
        "operand_never_loaded", "half_product",
        "weft::load_matrix(left,", "if (t < 0) weft::load_matrix(left,",
        ("uninitialised read",), ("weft::mma<",),
    ),
    Mutant(
        "sums_not_set_to_zero", "half_product",
        "float sum[4][4] = {};", "float sum[4][4];",
        ("uninitialised read",), ("weft::mma<",),
    ),
    Mutant(
        "results_past_the_matrix", "half_product",
        "if (i < m && k < n) weft", "weft",
        ("out of bounds", "race"), ("weft::store<2>",),
    ),
    Mutant("rows_without_syncwarp", "load_matrices", "__syncwarp();", "", ("race",), ("weft::load_matrix(one, row)",)),
    Mutant("stored_rows_without_syncwarp", "store_matrices", "__syncwarp();", "", ("race",), ("y[i] =", "weft::store_matrix")),
    Mutant("initialised_by_all", "copy_sizes", "if (i == 0) copied.init(64);", "copied.init(64);", ("race",), ("copied.init",)),
    Mutant(
        "stored_over_a_copy", "half_product",
        "weft::commit_copies();",
        "if (t < tiles) stage[t % 2][0][threadIdx.x * 8] = weft::float16(0.0f);\n        weft::commit_copies();",
        ("race",), ("stage[t % 2][0][threadIdx.x",),
    ),
    Mutant(
        "copy_over_what_others_read", "half_product",
        "load(t + 1);\n        weft::wait_copies<1>();",
        "load(t + 1);\n"
        "        weft::wait_copies<1>();\n"
        "        if (t == tiles - 1) weft::copy_async<16>(&stage[0][0][0] + 8 * threadIdx.x, a);",
        ("slot reused", "race"), ("weft::copy_async<16>(&stage[0]", "weft::load_matrix("),
    ),
    Mutant(
        "wait_of_one_warp_only", "half_product",
        "weft::wait_copies<1>();", "if (warp == 0) weft::wait_copies<1>();",
        ("race",), ("weft::load_matrix(",),
    ),
    Mutant(
        "matrix_read_after_own_wait", "half_product",
        "weft::wait_copies<1>();\n        __syncthreads();", "weft::wait_copies<1>();\n        __syncwarp();",
        ("race",), ("weft::load_matrix(",),
    ),
    Mutant(
        "barrier_in_a_loop_of_some", "staged_tiles",
        "__syncthreads();\n    }\n}", "if (t < 3 || threadIdx.x < 32) __syncthreads();\n    }\n}",
        ("divergent barrier",), ("__syncthreads",),
    ),
)

WGMMA: tuple[Mutant, ...] = (
    Mutant(
        "wgmma_without_fence", "wgmma_bfloat16_n8_s128_k_k",
        "weft::wgmma_fence(d);", "",
        ("missing wgmma fence",), (_WGMMA,),
    ),
    Mutant(
        "tiles_without_proxy_fence", "wgmma_bfloat16_n8_s128_k_k",
        "weft::fence_proxy_async();", "",
        ("missing proxy fence",), (_WGMMA,),
    ),
    Mutant("tiles_without_barrier", "wgmma_bfloat16_n8_s128_k_k", "__syncthreads();", "", ("race",), (_WGMMA,)),
    Mutant(
        "sums_used_before_the_wait", "wgmma_bfloat16_n8_s128_k_k",
        "weft::wgmma_wait<0>(d);", "",
        ("registers in flight",), ("= d[v]",),
    ),
    Mutant("sums_not_set", "wgmma_bfloat16_n8_s128_k_k", "turn + s > 0", "true", WRONG),
    Mutant("fence_dropped_in_the_loop", "wgmma_product", "weft::wgmma_fence(sum);", "", ("missing wgmma fence",), (_WGMMA,)),
    Mutant("last_wait_dropped", "wgmma_product", "weft::wgmma_wait<0>(sum);", "", ("registers in flight",), ("pair[2] =",)),
    Mutant(
        "last_wait_too_short", "wgmma_product",
        "weft::wgmma_wait<0>(sum)", "weft::wgmma_wait<1>(sum)",
        ("registers in flight",), ("pair[2] =",),
    ),
    Mutant(
        "commit_dropped", "wgmma_product",
        "weft::wgmma_commit();", "",
        ("registers in flight", "slot reused"), ("pair[2] =", _A_LOAD, _B_LOAD),
    ),
    Mutant(
        "stage_freed_while_it_is_read", "wgmma_product",
        "weft::wgmma_wait<1>();", "//",
        ("slot reused",), (_A_LOAD, _B_LOAD),
    ),
    Mutant(
        "wait_after_the_arrival", "wgmma_product",
        "weft::wgmma_wait<1>();  // the products of the tile before are done: its stage is free\n"
        "        if (t > 0 && threadIdx.x % 32 == 0) empty[(t - 1) % stages].arrive();",
        "if (t > 0 && threadIdx.x % 32 == 0) empty[(t - 1) % stages].arrive();\n        weft::wgmma_wait<1>();",
        ("slot reused",), (_A_LOAD, _B_LOAD),
    ),
    Mutant(
        "stage_freed_too_early", "wgmma_product",
        "if (t > 0 && threadIdx.x % 32 == 0) empty[(t - 1) % stages].arrive()",
        "if (threadIdx.x % 32 == 0) empty[t % stages].arrive()",
        ("slot reused",), (_A_LOAD, _B_LOAD),
    ),
    Mutant("tiles_not_waited_for", "wgmma_product", "full[s].wait(t / stages % 2);", "", ("race",), (_WGMMA,)),
    Mutant(
        "parity_of_tiles_never_flips", "wgmma_product",
        "full[s].wait(t / stages % 2);", "full[s].wait(0);",
        ("wrong phase",), (_WGMMA,),
    ),
    Mutant(
        "bytes_of_one_tile", "wgmma_product",
        "arrive_expect(2 * tile_bytes)", "arrive_expect(tile_bytes)",
        ("byte count",), (_A_LOAD, _B_LOAD, "arrive_expect"),
    ),
    Mutant(
        "swizzle_of_the_descriptor", "wgmma_product",
        "shared_matrix<128>(stage[s].b", "shared_matrix<64>(stage[s].b",
        ("swizzle",), (_WGMMA,),
    ),
    Mutant(
        "rows_of_the_descriptor_too_far", "wgmma_product",
        "stage[s].b, 16, 1024", "stage[s].b, 16, 4096",
        ("out of bounds", "race", "uninitialised read", "wrong phase"), (_WGMMA,),
    ),
    Mutant(
        "registers_not_given_up", "wgmma_product",
        "weft::decrease_registers<40>();", "",
        ("deadlock",), ("increase_registers", "empty[s].wait"),
    ),
    Mutant(
        "results_of_two_warps_in_one_place", "wgmma_product",
        "v / 2 % 2 * 8", "v / 2 % 2 * 16",
        ("race", "out of bounds"), ("weft::store<2>",),
    ),
    Mutant(
        "operand_overwritten", "wgmma_bfloat16_n72_s128_k_registers_k",
        "weft::wgmma_commit();", "weft::wgmma_commit();\n    left[0][0] = 0;",
        ("registers in flight",), ("left[0][0] = 0",),
    ),
    Mutant(
        "sums_scaled_without_fence", "wgmma_bfloat16_n72_s128_k_registers_k",
        "weft::wgmma_wait<0>(d);",
        "weft::wgmma_wait<0>(d);\n"
        "    d[0] *= 2.0f;\n"
        "    weft::wgmma<weft::bfloat16, weft::Major::k>(d, left[0], right, true);\n"
        "    weft::wgmma_commit();\n"
        "    weft::wgmma_wait<0>(d);",
        ("missing wgmma fence",), ("left[0], right",),
    ),
)

ORDER: tuple[Mutant, ...] = (
    Mutant(
        "slot_not_full", "named_barriers",
        "weft::barrier_sync(full, 96);", "",
        ("race", "uninitialised read", "deadlock"), ("2.0f * slot", "slot[threadIdx.x"),
    ),
    Mutant(
        "slot_not_empty", "named_barriers",
        "if (round > 0) weft::barrier_sync(empty, 96);", "",
        ("race",), ("slot[threadIdx.x", "2.0f * slot"),
    ),
    Mutant(
        "barrier_of_another_count", "named_barriers",
        "barrier_sync(full, 96)", "barrier_sync(full, 64)",
        ("barrier count",), ("barrier_sync(full", "barrier_arrive(full"),
    ),
    Mutant(
        "nobody_arrives", "named_barriers",
        "if (round + 1 < rounds) weft::barrier_arrive(empty, 96);", "",
        ("deadlock", "divergent barrier"), ("barrier_sync(empty",),
    ),
    Mutant(
        "ring_not_full", "barrier_ring",
        "while (!full[s].test(parity)) {\n            }", "",
        ("race", "uninitialised read"), ("slot[s][63 - i]", "slot[s][threadIdx.x"),
    ),
    Mutant(
        "ring_not_empty", "barrier_ring",
        "empty[s].wait(parity ^ 1);", "",
        ("race", "mbarrier phase"), ("slot[s][threadIdx.x", "slot[s][63 - i]", "full[s].arrive"),
    ),
    Mutant(
        "ring_full_after_one_arrival", "barrier_ring",
        "full[s].init(32)", "full[s].init(1)",
        ("race", "uninitialised read"), ("slot[s][63 - i]", "slot[s][threadIdx.x"),
    ),
    Mutant(
        "ring_parity_never_flips", "barrier_ring",
        "test(parity)", "test(0)",
        ("race",), ("slot[s][63 - i]", "slot[s][threadIdx.x"),
    ),
    Mutant(
        "ring_arrival_missing", "barrier_ring",
        "full[s].arrive();", "",
        ("deadlock",), ("empty[s].wait", "full[s].test", "__syncthreads"),
    ),
    Mutant("release_is_relaxed", "message", "store_release", "store_relaxed", ("race",), ("= between[127 - i]",)),
    Mutant("acquire_is_relaxed", "message", "load_acquire", "load_relaxed", ("race",), ("= between[127 - i]",)),
    Mutant(
        "release_by_one_thread_alone", "message",
        "between[i] = 2.0f * x[i];\n        __syncthreads();", "between[i] = 2.0f * x[i];",
        ("race",), ("= between[127 - i]",),
    ),
    Mutant(
        "acquire_by_one_thread_alone", "message",
        "}\n        __syncthreads();\n        y[i]", "}\n        y[i]",
        ("race", "uninitialised read"), ("= between[127 - i]", "between[i] ="),
    ),
    Mutant(
        "release_of_the_block_only", "message",
        "store_release<weft::Scope::gpu>", "store_release<weft::Scope::block>",
        ("race",), ("= between[127 - i]",),
    ),
    Mutant(
        "fence_of_the_writer_dropped", "message_by_fence",
        "weft::fence<weft::Scope::gpu>();\n            weft::store", "weft::store",
        ("race",), ("= between[127 - i]",),
    ),
    Mutant(
        "fence_of_the_reader_dropped", "message_by_fence",
        "}\n            weft::fence<weft::Scope::gpu>();", "}",
        ("race",), ("= between[127 - i]",),
    ),
    Mutant(
        "count_is_relaxed", "last_block",
        "atomic_add_acquire_release", "atomic_add_relaxed",
        ("race",), ("? parts[threadIdx.x]",),
    ),
    Mutant(
        "last_is_not_awaited", "last_block",
        "__syncthreads();\n    if (last", "if (last",
        ("race", "uninitialised read"), ("if (last", "last = weft"),
    ),
    Mutant(
        "count_is_no_atomic", "last_block",
        "last = weft::atomic_add_acquire_release<weft::Scope::gpu>(finished, 1u)", "last = (*finished)++",
        ("race",), ("last = (*finished)++", "? parts"),
    ),
    Mutant("unlock_is_relaxed", "lock", "atomic_exchange_release", "atomic_exchange_relaxed", ("race",), ("*counter +=",)),
    Mutant(
        "lock_is_relaxed", "lock",
        "atomic_compare_exchange_acquire", "atomic_compare_exchange_relaxed",
        ("race",), ("*counter +=",),
    ),
    Mutant(
        "never_unlocked", "lock",
        "weft::atomic_exchange_release<weft::Scope::gpu>(taken, 0u);", "",
        ("deadlock",), ("atomic_compare_exchange",),
    ),
    Mutant(
        "add_is_no_atomic", "every_atomic",
        "weft::atomic_add_acquire<weft::Scope::gpu>(&own, 1u)", "own += 1u",
        ("race",), ("own += 1u",),
    ),
    Mutant(
        "rounds_without_grid_sync", "relaxation",
        "weft::grid_sync(counter);", "",
        ("race", "uninitialised read"), ("planes[i] =",),
    ),
    Mutant(
        "rounds_with_a_barrier_of_the_block", "relaxation",
        "weft::grid_sync(counter)", "__syncthreads()",
        ("race", "uninitialised read"), ("planes[i] =",),
    ),
    Mutant(
        "grid_not_waited_for", "turned_around",
        "if (threadIdx.x % 32 == 0) weft::wait_for_grid(round);", "",
        ("race",), ("y[i] =",),
    ),
    Mutant(
        "grid_waited_for_by_one_lane_alone", "turned_around",
        "__syncwarp();", "",
        ("race",), ("y[i] =",),
    ),
    Mutant("scratch_used_again", "team_scan", "x[i], scratch[1]", "x[i], scratch[0]", ("race",), ("weft::scan<",)),
    Mutant(
        "register_budget", "register_handover",
        "weft::decrease_registers<40>();", "",
        ("deadlock",), ("increase_registers", "barrier_sync"),
    ),
    Mutant(
        "invalidated_in_use", "barrier_ring",
        "__syncthreads();\n    if (threadIdx.x < slots) full", "if (threadIdx.x < slots) full",
        ("race", "mbarrier not initialised"), ("invalidate", "full[s]"),
    ),
    Mutant(
        "one_barrier_for_two", "named_barriers",
        "empty = 2", "empty = 1",
        ("race", "deadlock", "barrier count"), ("barrier_sync", "slot["),
    ),
    Mutant(
        "release_before_the_writes", "message",
        "between[i] = 2.0f * x[i];\n"
        "        __syncthreads();\n"
        "        if (i == 0) weft::store_release<weft::Scope::gpu>(ready, 1u);",
        "if (i == 0) weft::store_release<weft::Scope::gpu>(ready, 1u);\n        between[i] = 2.0f * x[i];",
        ("race", "uninitialised read"), ("= between[127", "between[i] ="),
    ),
)

CLUSTER: tuple[Mutant, ...] = (
    Mutant(
        "peer_ends_first", "cluster_reduction",
        "greatest[blockIdx.x / blocks] = all;\n    }\n    weft::cluster_sync();", "greatest[blockIdx.x / blocks] = all;\n    }",
        ("peer exited",), ("const float there",),
    ),
    Mutant(
        "peer_has_not_written", "cluster_reduction",
        "weft::cluster_sync();\n    if (rank == 0", "if (rank == 0",
        ("race",), ("const float there", "scratch[0][0] = most"),
    ),
    Mutant(
        "peer_has_not_begun", "cluster_reduction",
        "weft::cluster_wait();", "",
        ("race", "uninitialised read"), ("weft::peer(&arrived", "arrived = 0"),
    ),
    Mutant("sum_to_one_place", "cluster_reduction", "&sums[rank]", "&sums[0]", ("race",), ("weft::peer(&sums",)),
    Mutant(
        "rank_beyond_the_cluster", "cluster_reduction",
        "&scratch[0][0], k)", "&scratch[0][0], k + 1)",
        ("out of bounds",), ("const float there",),
    ),
    Mutant(
        "sums_released_relaxed", "cluster_reduction",
        "atomic_add_release", "atomic_add_relaxed",
        ("race",), ("total += sums[k]",),
    ),
    Mutant("sums_acquired_relaxed", "cluster_reduction", "load_acquire", "load_relaxed", ("race",), ("total += sums[k]",)),
    Mutant(
        "sums_not_told_to_the_block", "cluster_reduction",
        "}\n    }\n    __syncthreads();\n    float total", "}\n    }\n    float total",
        ("race", "uninitialised read"), ("total += sums[k]", "weft::peer(&sums"),
    ),
    Mutant(
        "sent_without_proxy_fence", "cluster_ring",
        "weft::fence_proxy_async();", "",
        ("missing proxy fence",), ("weft::bulk_send",),
    ),
    Mutant(
        "sent_before_the_peer_is_ready", "cluster_ring",
        "weft::cluster_sync();\n    if (threadIdx.x == 0) weft::bulk_send",
        "__syncthreads();\n    if (threadIdx.x == 0) weft::bulk_send",
        ("mbarrier not initialised",), ("weft::bulk_send", "arrive_at_peer"),
    ),
    Mutant(
        "sender_ends_first", "cluster_ring",
        "taken.wait<weft::Scope::cluster>(0);  // what this block has sent is read: it may exit\n    weft::cluster_sync();", "",
        ("peer exited",), ("arrive_at_peer", "weft::bulk_send"),
    ),
    Mutant(
        "sent_bytes_not_announced", "cluster_ring",
        "arrive_expect(sizeof got)", "arrive_expect(sizeof got / 2)",
        ("byte count",), ("weft::bulk_send", "arrive_expect"),
    ),
    Mutant(
        "sent_row_not_waited_for", "cluster_ring",
        "full.wait<weft::Scope::cluster>(0);", "",
        ("race", "uninitialised read"), ("10.0f * got", "weft::bulk_send"),
    ),
    Mutant(
        "row_read_before_threads_have_brought_its_ends", "row_anywhere",
        "    __syncthreads();\n    arrived.wait(0);", "    arrived.wait(0);",
        ("race", "uninitialised read", "mbarrier not initialised"), ("row[i]", "arrived.wait", "bulk_row"),
    ),
    Mutant(
        "row_not_waited_for", "row_anywhere",
        "    arrived.wait(0);\n", "",
        ("race", "uninitialised read", "peer exited"), ("row[i]", "bulk_row"),
    ),
    Mutant(
        "told_before_the_peer_is_ready", "cluster_told",
        "    weft::cluster_wait();\n", "    __syncthreads();\n",
        ("mbarrier not initialised",), ("weft::tell_cluster", "weft::send"),
    ),
    Mutant(
        "told_barrier_not_made_known", "cluster_told",
        "weft::fence_mbarrier_init();", "",
        ("mbarrier not initialised", "missing proxy fence"), ("weft::tell_cluster", "weft::send", "met[0].wait"),
    ),
    Mutant(
        "told_bytes_not_announced", "cluster_told",
        "sizeof sums + sizeof greatest", "sizeof sums",
        ("byte count", "race", "uninitialised read"), ("weft::t", "arrive_expect", "weft::send"),
    ),
    Mutant(
        "told_to_one_place", "cluster_told",
        "from + weft::cluster_rank(), double", "from, double",
        ("race", "uninitialised read"), ("weft::send", "from[blocks"),
    ),
    Mutant(
        "told_not_waited_for", "cluster_told",
        "met[0].wait<weft::Scope::cluster>(0);", "",
        ("race", "uninitialised read"), ("weft::t",),
    ),
    Mutant(
        "told_ends_first", "cluster_told",
        "met[1].wait<weft::Scope::cluster>(0);\n"
        "    if (threadIdx.x == 0) last[blockIdx.x] = from[blocks - 1 - weft::cluster_rank()];", "",
        ("peer exited",), ("weft::send",),
    ),
    Mutant(
        "multicast_before_the_peer_is_ready", "multicast",
        "weft::cluster_sync();", "__syncthreads();",
        ("mbarrier not initialised",), ("_multicast(",),
    ),
    Mutant(
        "multicast_to_one", "multicast",
        "both = 3", "both = 1",
        ("byte count", "mbarrier phase"), ("_multicast(", "arrive_expect", "loaded.wait"),
    ),
    Mutant(
        "multicast_to_one_place", "multicast",
        "tile + rank * half, x", "tile, x",
        ("race", "slot reused", "uninitialised read"), ("bulk_load_multicast", "y[blockIdx.x"),
    ),
    Mutant(
        "arrives_at_the_end_without_waiting", "cluster_reduction",
        "greatest[blockIdx.x / blocks] = all;\n    }\n    weft::cluster_sync();",
        "greatest[blockIdx.x / blocks] = all;\n    }\n    weft::cluster_arrive();",
        ("peer exited",), ("const float there",),
    ),
    Mutant(
        "multicast_ends_first", "multicast",
        "loaded.wait(0);\n    for", "if (rank == 0) loaded.wait(0);\n    else return;\n    for",
        ("peer exited", "bulk copy unfinished"), ("_multicast(",),
    ),
)

# fmt: on

JOINS: tuple[Mutant, ...] = (
    Mutant(
        "elements_are_not_awaited", "histogram",
        "__syncthreads();\n    for (int64_t place", "for (int64_t place",
        ("race",), ("weft::join<", "::identity()"),
    ),
    Mutant(
        "joins_are_not_awaited", "histogram",
        "__syncthreads();\n    for (int32_t k", "for (int32_t k",
        ("race",), ("weft::join<", "int32_t total =", "weft::joined<"),
    ),
    Mutant(
        "join_is_no_atomic", "largest",
        "atomic_compare_exchange_relaxed<Scope::gpu>(place, seen, made.bits)", "(*place = made.bits, seen)",
        ("race",), ("*place = made.bits", "load_volatile(place)"), header="join.cuh",
    ),
    Mutant(
        "count_of_digits_is_no_atomic", "added",
        "atomicAdd(&own[detail::digit<shift>(key)], 1)", "own[detail::digit<shift>(key)] += 1",
        ("race",), ("own[detail::digit<shift>(key)] += 1",), header="sort.cuh",
    ),
    Mutant(
        "places_are_changed_early", "added",
        "__syncwarp();\n        if (here", "if (here",
        ("race",), ("places[warp][digit]",), header="sort.cuh",
    ),
    Mutant(
        "places_of_a_round_are_not_awaited", "added",
        "places[warp][digit] += __popc(same);\n        __syncwarp();", "places[warp][digit] += __popc(same);",
        ("race",), ("places[warp][digit]",), header="sort.cuh",
    ),
    Mutant(
        "warps_are_not_awaited", "added",
        "__syncthreads();\n    int32_t held", "int32_t held",
        ("race",), ("places[",), header="sort.cuh",
    ),
    Mutant(
        "the_launch_before_is_not_awaited", "added",
        "weft::await_launch_before();", "", ("launch not awaited",), ("keys_0_1[first]", "keys_0_1[at]"), occurrence=1,
    ),
    Mutant(
        "the_last_is_found_by_no_atomic", "stored",
        "atomicMax(last + key, int32_t(point))", "last[key] = int32_t(point)",
        ("race",), ("last[key] = int32_t(point)",), header="latest.cuh",
    ),
    Mutant(
        "a_sum_that_goes_on_is_of_both_warps", "added",
        "first = beyond < 32 ? cut + beyond : cut;", "first = cut;",
        ("race",), ("*element = old[v] + sum;", "old[v] = *element;"), occurrence=0,
    ),
)

MUTANTS: tuple[Mutant, ...] = (*EMITTED, *IN_HEADERS, *PIPELINE, *BULK, *COPIES, *WGMMA, *ORDER, *CLUSTER, *JOINS)

# ---------------------------------------------------------------- running them


@dataclass(frozen=True)
class Outcome:
    """What one seed gives. texts: of the kernels and headers, after the change."""

    findings: tuple[Finding, ...]
    wrong: bool
    texts: dict[str, str]

    def line(self, finding: Finding, header: bool) -> str:
        """The text of the line that a finding names."""
        place = finding.header if header else finding.place if finding.place.line else finding.user
        if place is None:
            return ""
        lines = self.texts.get(place.file, "").splitlines()
        return lines[place.line - 1] if 0 < place.line <= len(lines) else ""


def found(mutant: Mutant, outcome: Outcome) -> Finding | bool | None:
    """The finding that tells of a mutant; True where it is the results that do."""
    if mutant.kinds == WRONG:
        return outcome.wrong or None
    for finding in outcome.findings:
        if finding.kind in mutant.kinds:
            text = outcome.line(finding, bool(mutant.header))
            if any(part in text for part in mutant.lines):
                return finding
    return None


@contextmanager
def _header_changed(mutant: Mutant) -> Iterator[dict[str, str]]:
    """Kernels include the changed header meanwhile; gives its text by its name."""
    if not mutant.header:
        yield {}
        return
    changed = mutant.change((include.HEADERS / mutant.header).read_text())
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        Path(folder, mutant.header).write_text(changed)

        def resolve(text: str, name: str, headers: tuple[Path, ...], known: Collection[str] = ()) -> include.Source:
            return include.resolve(text, name, (Path(folder), *headers), known)

        # the header that is changed is not among those that are parsed once for all kernels
        alone = mock.patch.object(program, "PRELUDE", '#include "weft/cuda.hpp"\n')
        with mock.patch.object(program, "resolve", resolve), alone:
            yield {f"weft/{mutant.header}": changed}


def _runs_device(mutant: Mutant, kernel: DeviceKernel, seeds: int) -> Iterator[Outcome]:
    source = kernel.source if mutant.header else mutant.change(kernel.source)
    kernel = replace(kernel, source=f"{source}// {mutant.name}\n")
    with _header_changed(mutant) as texts:
        for seed in range(seeds):
            simulation, got, want = run_simulated(kernel, seed)
            pairs = zip(got, want, strict=True)
            wrong = not all(np.allclose(g, w, rtol=1e-5, atol=1e-5, equal_nan=True) for g, w in pairs)
            yield Outcome(simulation.findings, wrong, {f"{kernel.name}.cu": kernel.source, **texts})


def _runs_call(mutant: Mutant, call: Call, seeds: int, first: int = 0) -> Iterator[Outcome]:
    emit = simulated.cuda_source
    args = call.args()

    def changed(analysis: Any, variant: Any) -> str:
        text = emit(analysis, variant)
        return f"{text if mutant.header else mutant.change(text)}// {mutant.name}\n"

    with (
        _header_changed(mutant) as texts,
        mock.patch.object(simulated, "cuda_source", changed),
        mock.patch.object(simulated, "_resources", lambda *_: None),
        mock.patch.object(plan_join, "POINTS_OF_A_BIN", 1 << 40),  # what is added is sorted, however few elements there are
    ):
        report = call.kernel.check(*args, seeds=seeds)
    texts = {**dict(report.files), **texts, **{launch.file: launch.source for launch in report.launches}}
    for seed in range(first, seeds):
        findings = tuple(f for launch in report.launches for f in launch.simulations[seed].findings)
        yield Outcome(findings, not all(c.ok for c in report.comparisons), texts)


def runs(mutant: Mutant, seeds: int) -> Iterator[Outcome]:
    """The mutant under each of the first `seeds` seeds."""
    if mutant.kernel in DEVICE:
        yield from _runs_device(mutant, DEVICE[mutant.kernel], seeds)
    else:
        yield from _runs_call(mutant, CALLS[mutant.kernel], 1)
        yield from _runs_call(mutant, CALLS[mutant.kernel], seeds, 1)


def main(names: Sequence[str], most: int = 20) -> None:
    """Print a line a mutant: its kinds, the seeds of twenty that find it, and the line it is told at."""
    chosen = [m for m in MUTANTS if not names or m.name in names]
    for mutant in chosen:
        outcomes = list(runs(mutant, most))
        hits = [found(mutant, o) for o in outcomes]
        first = next((h for h in hits if h), None)
        where = "-"
        if isinstance(first, Finding):
            where = f"{first.kind} at {first.header if mutant.header else first.place if first.place.line else first.user}"
        print(f"{mutant.name:42} {'/'.join(mutant.kinds):44} {sum(map(bool, hits)):2} of {most}  {where}", flush=True)
        if not all(hits[:1]) or names:
            seen: dict[tuple[str, str, str], int] = {}
            for outcome in outcomes:
                for f in outcome.findings:
                    key = f.kind, str(f.place), outcome.line(f, bool(mutant.header)).strip()
                    seen[key] = seen.get(key, 0) + 1
            for (kind, place, text), count in seen.items():
                print(f"    {count:2} {kind} at {place}: {text}")
            print(f"    wrong under {sum(o.wrong for o in outcomes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
