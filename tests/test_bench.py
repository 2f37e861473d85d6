"""The benchmark harness: rows, merging, timing, the table in README.md, and that every benchmark runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
import torch

from bench import table
from bench.harness import Options, Row, load, merge, meta, record, rows_of, save
from weft.errors import DeviceMismatch
from weft.runtime import timing
from weft.runtime.timing import CACHE_BYTES, median_ms, rotations, times_in_turn

CPU = torch.device("cpu")
KEYS = {"bench", "case", "weft_ms", "peer", "peer_ms", "ratio", "spread"}


def test_a_row_has_the_agreed_keys_and_ratio() -> None:
    row = Row("linrec", {"rows": 2}, weft_ms=2.0, peer="torch.add", peer_ms=3.0)
    assert row.as_json() == {
        "bench": "linrec", "case": {"rows": 2}, "weft_ms": 2.0, "peer": "torch.add", "peer_ms": 3.0, "ratio": 1.5,
        "spread": None,
    }  # fmt: skip
    assert Row("x", {}, 1.0).as_json()["ratio"] is None


def test_a_benchmark_run_again_replaces_its_own_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    first = merge(load(path), [Row("b", {"n": 1}, 1.0), Row("a", {}, 1.0)], {"commit": "1"})
    save(first, path)
    save(merge(load(path), [Row("b", {"n": 2}, 5.0)], {"commit": "2"}), path)
    results = load(path)
    assert [(row["bench"], row["case"]) for row in results["rows"]] == [("a", {}), ("b", {"n": 2})]
    assert results["meta"] == {"commit": "2"} and all(set(row) == KEYS for row in results["rows"])
    assert not list(tmp_path.glob("*.[0-9]*")), "no temporary file is left"


def test_a_benchmark_that_is_cut_short_records_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    old = [Row("cut", {"n": n}, 1.0, peer, 2.0) for n in (1, 2) for peer in ("x", "y")]
    save(merge(load(path), old, {"commit": "1"}), path)

    def run(options: Options) -> Iterator[Row]:
        assert options.wants("any") == (not options.cases)
        yield Row("cut", {"n": 2}, 5.0, "y", 5.0)
        sys.exit("cut")

    monkeypatch.setitem(sys.modules, "bench.cut", SimpleNamespace(run=run))
    with pytest.raises(SystemExit):
        record(["cut"], Options(CPU), "", path)
    rows = [(r["case"]["n"], r["peer"], r["weft_ms"]) for r in load(path)["rows"]]
    assert rows == [(1, "x", 1.0), (1, "y", 1.0), (2, "x", 1.0), (2, "y", 5.0)]


def test_meta_names_versions_device_commit_and_command() -> None:
    about = meta(CPU, "weft bench x")
    assert about["command"] == "weft bench x" and about["device"].startswith("CPU")
    assert about["versions"]["torch"] == torch.__version__ and about["commit"]
    json.dumps(about)


def test_rotating_inputs_outgrow_the_caches() -> None:
    for size in (1, 10**6, 10**8, 10**10):
        assert rotations(size) == 64 or rotations(size) * size >= CACHE_BYTES
    assert rotations(10**10) == 1


def test_the_median_is_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the calls move: 2 ms each, but for the first two rounds and the last one."""
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    rounds = iter([500.0, 40.0, 2.0, 2.0, 2.0, 30.0])

    def first() -> None:
        clock.now += next(rounds) / 1e3

    def other() -> None:
        clock.now += 2.0 / 1e3

    assert median_ms([first, other, other], CPU, seconds=0.0, at_least=5) == pytest.approx(2.0)


def test_ratios_are_of_rounds_in_which_ways_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What slows a machine down in some rounds slows both, and the one that began a round ends the next."""
    clock, order = Clock(), []
    monkeypatch.setattr(timing, "time", clock)

    def way(name: str, ms: float) -> Callable[[], None]:
        def call() -> None:
            order.append(name)
            clock.now += ms / 1e3 * (1 + len(order) // 4)

        return call

    times = times_in_turn([[way("a", 2.0)], [way("b", 3.0)]], CPU, seconds=0.0, at_least=4)
    assert "".join(order) == "ab" + "abba" * 2  # the first two compile
    (row,) = rows_of("x", {}, times, ["b"])
    assert row.ratio == pytest.approx(1.5, rel=0.3) and row.ratio == pytest.approx(median(times.ratios(1)))
    assert (row.weft_ms, row.peer_ms) == times.ms
    low, high = row.as_json()["spread"]
    assert low <= row.ratio <= high


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_the_table_goes_between_its_markers() -> None:
    results = {
        "meta": {"device": "D", "versions": {"torch": "2"}, "commit": "abc", "command": "weft bench x"},
        "rows": [Row("x", {"rows": 13200, "shape": [2, 3], "bytes": 2_000_000}, 1.0, "add", 2.0).as_json()],
    }
    text = table.insert(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n", table.render(results))
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| x | rows 13,200, [2, 3] | 1 | 2 | add | 2 | 2 |" in text
    with pytest.raises(ValueError, match="markers"):
        table.insert("no markers", "")


def test_the_summary_has_a_line_for_each_benchmark_pass_and_peer() -> None:
    cases = [("forward", 8, 2.0), ("forward", 9, 8.0), ("backward", 8, 0.5)]
    rows = [Row("x", {"n": n, "pass": direction}, 1.0, "add", peer).as_json() for direction, n, peer in cases]
    text = table.summary({"meta": {"device": "D", "versions": {}, "commit": "abc", "command": "c"}, "rows": rows})
    assert "| x, forward | add | 2 | 4 | 2 | 8 | n 8, forward |" in text
    assert "| x, backward | add | 1 | 0.5 | 0.5 | 0.5 | n 8, backward |" in text


@pytest.mark.parametrize("document", table.tables(), ids=lambda path: path.name)
def test_the_table_in_a_document_is_what_the_results_give(document: Path) -> None:
    text = document.read_text()
    assert table.insert(text, table.tables()[document]) == text, "run `make table`"


_LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("cpu", "linrec", "pointwise", "compiled_bytes")]


@pytest.mark.parametrize("name", ["rows", "host_overhead", *_LONG])
def test_every_benchmark_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    benchmark = importlib.import_module(f"bench.{name}")
    monkeypatch.setattr(benchmark, "rotations", lambda _: 2, raising=False)  # small tensors fit into a cache many times
    rows = [*benchmark.run(Options(CPU, quick=True))]
    assert rows and all(row.weft_ms > 0 for row in rows)
    json.dumps([row.as_json() for row in rows])


@pytest.mark.long
def test_first_calls_are_measured_in_processes_of_their_own() -> None:
    from bench import first_call

    cold, cached = first_call.run(Options(CPU, quick=True))
    assert cold.case["state"] == "cold" and 0 < cached.weft_ms < cold.weft_ms


def test_the_chains_of_the_benchmark_compute_what_their_python_does() -> None:
    from bench.pointwise_chains import CHAINS

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype)

    torch.manual_seed(0)
    for chain in CHAINS:
        args = chain.make(new, True)
        torch.testing.assert_close(chain.fused(*args), chain.function(*args))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_benchmark_for_a_gpu_is_refused_without_one() -> None:
    from bench import rows

    with pytest.raises(DeviceMismatch, match="defined for a GPU"):
        list(rows.run(Options(CPU)))


def test_the_plot_is_drawn_from_the_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from bench import plot

    path = tmp_path / "results.json"
    size = {"bytes": 10**9}
    rows = [
        Row("linrec", {"pass": "forward", "length": 256, **size}, 1.0, "torch.add of equal bytes", 1.0),
        Row("rows", {"kernel": "softmax", **size}, 1.0, "torch eager", 2.0),
        Row("rows", {"kernel": "softmax", **size}, 1.0, "torch.compile", 2.0),
    ]
    save(merge(load(path), rows, meta(CPU, "")), path)
    assert plot.draw(path).stat().st_size > 1000


def _square(x: torch.Tensor) -> timing.Backward:
    leaf = x.detach().requires_grad_()
    return leaf * leaf, [leaf], torch.ones_like(leaf)


def test_gradients_are_timed_apart_from_the_forward_passes_which_run_once() -> None:
    runs: list[int] = []

    def forward() -> timing.Backward:
        runs.append(1)
        return _square(torch.ones(3))

    found = timing.gradients_ms([[forward, forward], [forward]], CPU, seconds=0.01)
    assert len(runs) == 3 and len(found.ms) == 2 and all(ms > 0 for ms in found.ms)
    assert found.captured and found.note == {}


@pytest.mark.gpu
def test_gradients_are_captured_in_a_graph_of_each_way() -> None:
    from functools import partial

    from bench.rows import WORKS, _forward, inputs

    device = torch.device("cuda")
    for work in (w for w in WORKS if w.gradient):
        sets = [inputs(work, (64, 512), device, seed) for seed in range(2)]
        ways = [[partial(_forward, f, tensors) for tensors in sets] for f in (work.ours, work.eager)]
        beside = [[partial(torch.add, *(torch.ones(3, device=device) for _ in range(2)))]]
        found = timing.gradients_ms(ways, device, seconds=0.01, beside=beside)
        assert found.captured and len(found.ms) == 3 and all(ms > 0 for ms in found.ms), work.kernel


@pytest.mark.gpu
def test_gradients_that_a_graph_cannot_hold_are_timed_with_the_host_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(calls: object, side: object) -> object:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(timing, "_captured", refused)
    device = torch.device("cuda")
    found = timing.gradients_ms([[lambda: _square(torch.ones(3, device=device))]], device, seconds=0.01)
    assert not found.captured and found.ms[0] > 0 and found.note == {"clock": "with the host's time"}
    assert bool((torch.rand(64, device="cuda") > 0).any())  # which a capture that failed leaves unable to draw
