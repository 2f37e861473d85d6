"""What the benchmarks of the simulator compare: distances of results, the profiler's counters, the simulator's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bench import check_speed, counters, exactness
from bench.evidence import record
from bench.harness import Options, load
from weft.runtime.simulator import Place, Site, Tensor, simulate

CPU = torch.device("cpu")


def test_distances_are_in_units_of_the_last_place() -> None:
    ours = torch.tensor([1.0, 2.0, float("nan"), 0.0, 8.0])
    theirs = torch.tensor([1.0, 2.0 + 2 * 2.0**-22, float("nan"), -0.0, 8.0])
    theirs.view(torch.int32)[2] = 0x7FFFFFFF
    d = exactness.difference(ours, theirs)
    assert (d.elements, d.differing, d.nans) == (5, 2, 1), "-0 and 0 differ; a NaN is a NaN"
    assert (d.largest, d.of_op_math, d.of_array) == (2.0, 2.0, 0.5)


@pytest.mark.parametrize(("dtype", "of_op_math"), [(torch.bfloat16, 2.0**16), (torch.float16, 2.0**13), (torch.float64, 1)])
def test_distances_in_the_type_of_arithmetic(dtype: torch.dtype, of_op_math: float) -> None:
    ours = torch.tensor([1.0], dtype=dtype)
    d = exactness.difference(ours, ours + torch.finfo(dtype).eps)
    assert (d.differing, d.largest, d.of_op_math) == (1, 1.0, of_op_math)


def test_a_number_for_a_nan_is_infinitely_far() -> None:
    d = exactness.difference(torch.tensor([1.0]), torch.tensor([float("nan")]))
    assert (d.differing, d.largest) == (1, float("inf"))


def test_inputs_of_a_case_are_the_same_every_time() -> None:
    case = exactness.Case("layer_norm", torch.bfloat16, (40, 100), special=True)
    for a, b in zip(case.arguments(), case.arguments(), strict=True):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a.view(torch.int16), b.view(torch.int16))
    assert not case.arguments()[0].isfinite().all()


def test_bits_survive_the_way_between_processes() -> None:
    for dtype in exactness.DTYPES:
        tensor = torch.tensor([[1.5, float("nan")], [-0.0, 3.0]], dtype=dtype)
        back = exactness.Bits.of(tensor).tensor()
        assert back.dtype == dtype and back.shape == (2, 2) and exactness.difference(tensor, back).differing == 0


def test_the_simulator_has_the_devices_nan_and_zeros() -> None:
    source = """#include "weft/scalar.cuh"
extern "C" __global__ void bits(const float* x, uint16_t* halves, float* y) {
    halves[0] = weft::float16(x[0]).bits;
    halves[1] = weft::bfloat16(x[0]).bits;
    y[0] = weft::maximum(x[1], x[2]);
    y[1] = weft::maximum(x[2], x[1]);
    y[2] = weft::minimum(x[1], x[2]);
    y[3] = weft::drop_nan_max(x[1], x[2]);
    y[4] = weft::drop_nan_min(x[1], x[2]);
    y[5] = weft::drop_nan_max(x[0], x[2]);
}
"""
    x = np.array([np.nan, 0.0, -0.0], np.float32)
    x[:1].view(np.uint32)[:] = 0xFFC12345
    halves, y = np.zeros(2, np.uint16), np.zeros(6, np.float32)
    given = [Tensor(n, a.ctypes.data, a.nbytes, a.itemsize, "inout") for n, a in (("x", x), ("halves", halves), ("y", y))]
    simulate(source, name="bits.cu", entry="bits", grid=(1, 1, 1), block=(1, 1, 1), arguments=given)
    assert halves.tolist() == [0x7FFF, 0x7FFF]
    assert np.signbit(y).tolist() == [False, False, True, False, True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", exactness.DTYPES)
@pytest.mark.parametrize("kernel", ["linrec", "linrec_reverse", "cumsum", "ema"])
def test_kernels_without_functions_have_the_gpus_bits(kernel: str, dtype: torch.dtype) -> None:
    for case in (exactness.Case(kernel, dtype, (7, 1033)), exactness.Case(kernel, dtype, (40, 100), special=True)):
        rows = exactness.library_rows(case, exactness.simulated(case), torch.device("cuda"))
        assert len(rows) >= 2
        assert [(r["class"], r["differing"], r["findings"]) for r in rows] == [("exact", 0, 0)] * len(rows)


LOG = """==PROF== Connected to process 12
==PROF== Disconnected
"ID","Process ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"
"0","12","first","(32, 1, 1)","(1, 1, 1)","x","l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum","","1,032"
"0","12","first","(32, 1, 1)","(1, 1, 1)","x","l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum","sector","4"
"1","12","second(float *)","(32, 1, 1)","(1, 1, 1)","x","l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum","","0"
"1","12","second(float *)","(32, 1, 1)","(1, 1, 1)","x","something_else.sum","","7"
"""


def test_the_profilers_counters_are_read() -> None:
    first, second = counters.parsed(LOG)
    assert first == ("first", {"turns, loads": 1032, "sectors, stores": 4})
    assert second == ("second", {"conflicts, loads": 0})
    assert counters.parsed("==ERROR== The user does not have permission\n") == []


def test_the_simulators_counts_are_summed_by_kind() -> None:
    def site(space: str, action: str, **numbers: int) -> Site:
        counts = {n: 0 for n in ("requests", "bytes", "turns", "ideal_turns", "degree", "sectors", "ideal_sectors")}
        return Site(Place("k.cu", 1), None, None, space, action, 4, "x", **(counts | numbers))

    sites = [
        site("shared", "load", turns=40, ideal_turns=2, requests=2),
        site("shared", "load", turns=3, ideal_turns=3),
        site("global", "store", sectors=5, requests=1),
        site("shared", "async store", turns=9),
    ]
    counted = counters.of_sites("case", "k", sites)
    named = {name: value for name, value in counted.numbers.items() if value}
    assert named == {"turns, loads": 43, "conflicts, loads": 38, "shared requests, loads": 2, "sectors, stores": 5,
                     "global requests, stores": 1}  # fmt: skip


def test_patterns_have_names_of_their_own() -> None:
    names = [p.name for p in counters.PATTERNS]
    assert len(set(names)) == len(names) >= 90


def test_the_products_that_are_timed_are_right() -> None:
    rows = check_speed.run(Options(CPU, quick=True))
    assert [row.bench for row in rows] == ["check_speed"] * 2 and all(row.weft_ms > 0 for row in rows)


def test_rows_are_recorded_beside_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "simulator.json"
    for bench, value in (("counters", 1), ("exactness", 2), ("counters", 3)):
        assert record(bench, [{"bench": bench, "case": {}, "value": value}], CPU, f"python -m bench.{bench}", path) == path
    results = load(path)
    assert [(row["bench"], row["value"]) for row in results["rows"]] == [("counters", 3), ("exactness", 2)]
    assert results["meta"]["commands"] == {b: f"python -m bench.{b}" for b in ("counters", "exactness")}
