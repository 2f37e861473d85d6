"""The simulator's counts against the hardware's: `python -m bench.counters [--out FILE]` on a machine with a GPU.

Kernels of one access pattern each, and kernels that weft generates, run once under Nsight Compute, which reads the
counters of the GPU, and once on the simulator. Of shared memory, turns are wavefronts, and the turns beyond the fewest are
bank conflicts; of global memory, sectors and requests go by the same names. Where the profiler may not read counters, the
reason is recorded and the status is 0.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import weft
from bench.evidence import Facts, record
from bench.harness import ROOT
from weft.kernels import LIBRARY
from weft.pytorch.simulated import simulate_call
from weft.runtime import cuda, nvrtc, simulator
from weft.runtime.slots import Given, pack

BENCH = "counters"
Size3 = tuple[int, int, int]

_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_INSTRUCTIONS = "smsp__inst_executed_op_shared_{}.sum"

METRICS = {
    f"{what}, {action}s": metric.format(short)
    for action, short in (("load", "ld"), ("store", "st"))
    for what, metric in (
        ("turns", _WAVEFRONTS),
        ("conflicts", _CONFLICTS),
        ("shared requests", _INSTRUCTIONS),
        ("sectors", _SECTORS),
        ("global requests", _REQUESTS),
    )
}
"""Nsight Compute's names of what is compared."""


# ---------------------------------------------------------------- kernels of one pattern


@dataclass(frozen=True)
class Pattern:
    """A hand-written kernel: entry, its text, and how it is launched on x and y, of so many bytes each."""

    name: str
    text: str
    grid: Size3 = (1, 1, 1)
    block: Size3 = (32, 1, 1)
    bytes: int = 1 << 15


WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "weft::Packet<uint32_t, 2>", 16: "weft::Packet<uint32_t, 4>"}


def _kernel(name: str, word: str, body: str) -> str:
    return f'extern "C" __global__ void {name}(const {word}* x, {word}* y) {{\n    const int t = threadIdx.x;\n{body}}}\n'


def _loads(name: str, width: int, index: str, lanes: str = "") -> Pattern:
    """y[t] = tile[index], by the lanes for which `lanes` holds."""
    word, size = WORDS[width], min(16384 // width, 2048)
    body = f"""    __shared__ alignas(128) {word} tile[{size}];
    for (int k = t; k < {size}; k += 32) tile[k] = x[k];
    __syncthreads();
    {f"if ({lanes}) " if lanes else ""}y[t] = tile[{index}];
"""
    return Pattern(name, _kernel(name, word, body))


def _stores(name: str, width: int, index: str) -> Pattern:
    """tile[index] = x[t], then the whole tile."""
    word, size = WORDS[width], min(16384 // width, 2048)
    body = f"""    __shared__ alignas(128) {word} tile[{size}];
    for (int k = t; k < {size}; k += 32) tile[k] = x[k];
    __syncthreads();
    tile[{index}] = x[{size} + t];
    __syncthreads();
    for (int k = t; k < {size}; k += 32) y[k] = tile[k];
"""
    return Pattern(name, _kernel(name, word, body))


def _global(name: str, width: int, load: str, store: str = "t") -> Pattern:
    return Pattern(name, _kernel(name, WORDS[width], f"    y[{store}] = x[{load}];\n"))


def _transpose(name: str, columns: int, place: str, back: str) -> Pattern:
    """Tiles of 32 x 32 words by blocks of 32 x 8 threads; rows are written to the tile, columns read."""
    body = f"""    __shared__ uint32_t tile[32][{columns}];
    const int w = threadIdx.y, first = blockIdx.x * 1024;
    for (int r = w; r < 32; r += 8) tile[r][{place}] = x[first + r * 32 + t];
    __syncthreads();
    for (int r = w; r < 32; r += 8) y[first + r * 32 + t] = tile[t][{back}];
"""
    return Pattern(name, _kernel(name, "uint32_t", body), (4, 1, 1), (32, 8, 1))


PATTERNS: tuple[Pattern, ...] = (
    _transpose("transpose_plain", 32, "t", "r"),
    _transpose("transpose_padded", 33, "t", "r"),
    _transpose("transpose_swizzled", 32, "t ^ r", "r ^ t"),
    *(_loads(f"load_1_{k}", 1, i) for k, i in enumerate(("t", "4 * t", "t / 4 + 128 * (t % 4)"))),
    *(_loads(f"load_2_{k}", 2, i) for k, i in enumerate(("t", "2 * t", "64 * t", "32 * t + t"))),
    *(
        _loads(f"load_4_{k}", 4, i)
        for k, i in enumerate(("t", "2 * t", "4 * t", "32 * t", "33 * t", "0", "t % 4 * 32", "t / 2"))
    ),
    *(
        _loads(f"load_8_{k}", 8, i)
        for k, i in enumerate(
            ("t", "2 * t", "4 * t", "16 * t", "17 * t", "0", "t / 2", "t & 29", "t & 15", "t & 27", "t & 23", "t % 4", "t % 8",
             "t / 4", "t / 16", "t / 2 * 16", "t / 2 * 2", "t % 16 * 2", "t % 4 * 16")
        )
    ),
    # lanes in another order, so that phases of neighbours differ from those of any other lanes
    _loads("load_8_order", 8, "t & 7 | (t & 8) << 1 | (t & 16) >> 1"),
    _loads("load_8_far_pairs", 8, "t / 2 & 7 | (t & 1) << 4"),
    _loads("load_16_order", 16, "t & 19 | (t & 4) << 1 | (t & 8) >> 1"),
    _loads("load_16_far_pairs", 16, "t / 4 & 3 | (t & 1) << 3"),
    _loads("load_8_by_5", 8, "t", "t < 5"),
    _loads("load_8_by_odd", 8, "t", "t & 1"),
    _loads("load_8_by_16", 8, "t", "t >= 16"),
    *(
        _loads(f"load_16_{k}", 16, i)
        for k, i in enumerate(
            ("t", "2 * t", "4 * t", "8 * t", "9 * t", "0", "t / 2", "t & 29", "t & 27", "t & 23", "t & 15", "t % 4", "t % 8",
             "t / 4", "t / 8", "t / 16", "t / 2 * 2", "t % 2 * 8")
        )
    ),
    _loads("load_16_by_5", 16, "t", "t < 5"),
    _loads("load_16_by_odd", 16, "t", "t & 1"),
    *(_stores(f"store_4_{k}", 4, i) for k, i in enumerate(("t", "2 * t", "32 * t", "33 * t"))),
    *(_stores(f"store_8_{k}", 8, i) for k, i in enumerate(("t", "2 * t", "16 * t", "17 * t", "t ^ 24", "31 - t"))),
    *(_stores(f"store_16_{k}", 16, i) for k, i in enumerate(("t", "2 * t", "8 * t", "9 * t"))),
    _stores("store_16_order", 16, "t & 19 | (t & 4) << 1 | (t & 8) >> 1"),
    *(_stores(f"store_2_{k}", 2, i) for k, i in enumerate(("t", "64 * t"))),
    *(_global(f"global_4_{k}", 4, i) for k, i in enumerate(("t", "t + 1", "2 * t", "8 * t", "31 - t", "0", "t / 4", "t * 33"))),
    *(_global(f"global_2_{k}", 2, i) for k, i in enumerate(("t", "t + 3", "17 * t"))),
    *(_global(f"global_8_{k}", 8, i) for k, i in enumerate(("t", "t + 1", "3 * t", "t / 2"))),
    *(_global(f"global_16_{k}", 16, i) for k, i in enumerate(("t", "t + 1", "2 * t", "5 * t", "0", "t / 2", "t % 8"))),
    *(_global(f"global_to_{w}", w, "t", "t * 3 + 1") for w in WORDS),
)

SOURCE = '#include "weft/memory.cuh"\n' + "".join(p.text for p in PATTERNS)


# ---------------------------------------------------------------- kernels that weft generates


@weft.kernel
def logistic(x):  # type: ignore[no-untyped-def]
    """A cycle that no algebra knows: a thread a row, which reads its neighbours' rows apart."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.5
        for l in range(length):
            h = 0.5 * h * (1.0 - h) + 0.1 * x[r, l]
            y[r, l] = h
    return y


@dataclass(frozen=True)
class Generated:
    name: str
    kernel: weft.Kernel
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype

    def arguments(self) -> tuple[Any, ...]:
        """Tensors in CPU memory, and the defaults of the other parameters."""
        generator = torch.Generator().manual_seed(0)
        return self.kernel.bind(tuple(torch.rand(s, generator=generator).to(self.dtype) for s in self.shapes), {})


def _rows(name: str, dtype: torch.dtype, rows: int, length: int, extra: Sequence[tuple[int, ...]] = ()) -> Generated:
    word = str(dtype).removeprefix("torch.")
    return Generated(f"{name} {word} {rows}x{length}", LIBRARY[name].kernel, ((rows, length), *extra), dtype)


def generated() -> tuple[Generated, ...]:
    f32, bf16 = torch.float32, torch.bfloat16
    return (
        _rows("linrec", f32, 8, 1024, [(8, 1024)]),
        _rows("linrec", f32, 8, 16384, [(8, 16384)]),
        _rows("linrec", f32, 5, 1001, [(5, 1001)]),
        _rows("linrec", bf16, 8, 4096, [(8, 4096)]),
        _rows("cumsum", f32, 8, 4096),
        _rows("softmax", bf16, 16, 4096),
        _rows("softmax", f32, 16, 300),
        _rows("layer_norm", f32, 16, 4096, [(4096,), (4096,)]),
        _rows("rms_norm", bf16, 16, 1000, [(1000,)]),
        _rows("gelu_bias_residual", bf16, 16, 4096, [(4096,), (16, 4096)]),
        Generated("logistic float32 256x40", logistic, ((256, 40),), f32),
    )


# ---------------------------------------------------------------- both


@dataclass(frozen=True)
class Counted:
    """What a launch did: entry, grid, and the numbers of METRICS."""

    case: str
    entry: str
    numbers: dict[str, int]


def of_sites(case: str, entry: str, sites: Iterable[simulator.Site]) -> Counted:
    numbers = dict.fromkeys(METRICS, 0)
    for s in sites:
        if s.action not in ("load", "store"):
            continue
        if s.space == "shared":
            numbers[f"turns, {s.action}s"] += s.turns
            numbers[f"conflicts, {s.action}s"] += s.turns - s.ideal_turns
            numbers[f"shared requests, {s.action}s"] += s.requests
        else:
            numbers[f"sectors, {s.action}s"] += s.sectors
            numbers[f"global requests, {s.action}s"] += s.requests
    return Counted(case, entry, numbers)


def simulated() -> list[Counted]:
    """Every launch, in order, on the simulator."""
    out = []
    for p in PATTERNS:
        x, y = torch.zeros(p.bytes, dtype=torch.uint8), torch.zeros(p.bytes, dtype=torch.uint8)
        given = [simulator.Tensor(n, t.data_ptr(), p.bytes, 1, "inout") for n, t in (("x", x), ("y", y))]
        made = simulator.simulate(SOURCE, name="patterns.cu", entry=p.name, grid=p.grid, block=p.block, arguments=given)
        if made.findings:
            raise SystemExit(f"{p.name}: {made.findings[0].message}")
        out.append(of_sites(p.name, p.name, made.sites))
    for g in generated():
        for launched in simulate_call(g.kernel, g.arguments(), "sm_90a", 0, "forward").launches:
            out += [of_sites(g.name, launched.entry, s.sites) for s in launched.simulations]
    return out


def launch() -> None:
    """Every launch, in order, on the GPU, once each; what else runs there is no kernel of these names."""
    device = torch.cuda.current_device()
    arch = cuda.device_properties(device).arch
    binary = nvrtc.compile_cubin(SOURCE, arch, name="patterns.cu").binary
    stream = torch.cuda.current_stream().cuda_stream
    for p in PATTERNS:
        x, y = (torch.zeros(p.bytes, dtype=torch.uint8).cuda() for _ in range(2))
        slots = pack([Given.POINTER, Given.POINTER])
        cuda.Launcher(cuda.load(binary, p.name, device), p.grid, p.block, 0, slots).launch(stream, x.data_ptr(), y.data_ptr())
        torch.cuda.synchronize()
    with torch.no_grad():
        for g in generated():
            g.kernel(*(a.cuda() if isinstance(a, torch.Tensor) else a for a in g.arguments()))
            torch.cuda.synchronize()


# ---------------------------------------------------------------- Nsight Compute


class NoCounters(Exception):
    """The hardware's counters cannot be read here, and why."""


@lru_cache
def known_metrics(ncu: str) -> frozenset[str]:
    """Those of METRICS that this profiler has for this GPU."""
    said = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True, check=False).stdout
    names = {line.split()[0] for line in said.splitlines() if line.strip()}
    found = frozenset(m for m in METRICS.values() if m.rpartition(".")[0] in names)
    return found or frozenset(METRICS.values())


def profiled(entries: Sequence[str]) -> list[dict[str, int]]:
    """The counters of each launch of `launch`, in order. Raises NoCounters."""
    ncu = shutil.which("ncu") or next((str(p) for p in sorted(Path("/opt/nvidia").glob("nsight-compute/*/ncu"))), None)
    if ncu is None:
        raise NoCounters("Nsight Compute (ncu) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "ncu.csv")
        command = [
            ncu, "--clock-control", "none", "--csv", "--print-units", "base", "--target-processes", "all",
            "--kernel-name-base", "function", "--kernel-name", f"regex:^({'|'.join(sorted(set(entries)))})$",
            "--metrics", ",".join(sorted(known_metrics(ncu))), "--log-file", str(log),
            sys.executable, "-m", "bench.counters", "--launch",
        ]  # fmt: skip
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        text = log.read_text() if log.is_file() else ""
    launches = parsed(text)
    if not launches:
        said = [line for line in (text + ran.stdout + ran.stderr).splitlines() if "==" in line or "rror" in line]
        raise NoCounters("Nsight Compute gave no counters: " + " | ".join(said[:4] or [f"status {ran.returncode}"]))
    got = [name for name, _ in launches]
    if got != list(entries):
        first = next((k for k, (a, b) in enumerate(zip(got, entries, strict=False)) if a != b), min(len(got), len(entries)))
        seen, ours = got[first : first + 3], list(entries[first : first + 3])
        raise SystemExit(f"of {len(entries)} launches the profiler saw {len(got)}; from {first} on {seen}, we have {ours}")
    return [numbers for _, numbers in launches]


def parsed(text: str) -> list[tuple[str, dict[str, int]]]:
    """(kernel, counters by their names) of each launch in the profiler's CSV, a line a counter."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    names = {metric: name for name, metric in METRICS.items()}
    launches: dict[str, tuple[str, dict[str, int]]] = {}
    for row in csv.DictReader(lines):
        _, numbers = launches.setdefault(row["ID"], (row["Kernel Name"].partition("(")[0], {}))
        value = row["Metric Value"].replace(",", "")
        if row["Metric Name"] in names and value.replace(".", "").isdigit():
            numbers[names[row["Metric Name"]]] = round(float(value))
    return [launches[key] for key in sorted(launches, key=int)]


# ---------------------------------------------------------------- results


def compared(ours: Sequence[Counted], theirs: Sequence[dict[str, int]]) -> list[Facts]:
    return [
        {"bench": BENCH, "case": {"kernel": own.case, "entry": own.entry}, "metric": name, "simulator": own.numbers[name],
         "ncu": found[name], "equal": own.numbers[name] == found[name]}
        for own, found in zip(ours, theirs, strict=True)
        for name in METRICS
        if name in found
    ]  # fmt: skip


def show(rows: Sequence[Facts], console: Console) -> None:
    """How many launches agree by metric, then those that do not."""
    table = Table("metric", "launches", "equal", "simulator", "ncu")
    for name in METRICS:
        own = [r for r in rows if r["metric"] == name and (r["simulator"] or r["ncu"])]
        sums = [str(sum(r[who] for r in own)) for who in ("simulator", "ncu")]
        table.add_row(name, str(len(own)), str(sum(r["equal"] for r in own)), *sums)
    console.print(table)
    unequal: dict[str, list[str]] = {}
    for r in rows:
        if not r["equal"]:
            unequal.setdefault(r["case"]["kernel"], []).append(f"{r['metric']} {r['simulator']}/{r['ncu']}")
    index = {p.name: p.text.rpartition("= tile[")[2].partition("]")[0] for p in PATTERNS if p.name.startswith("load")}
    for kernel, differences in unequal.items():
        where = f" [{index[kernel]}]" if kernel in index else ""
        console.print(f"{kernel}{where}: simulator/ncu {'; '.join(differences)}", markup=False, highlight=False)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.counters")
    parser.add_argument("--launch", action="store_true", help="only launch the kernels, for the profiler")
    parser.add_argument("--simulate", action="store_true", help="only print what the simulator counts; needs no GPU")
    parser.add_argument("--out", type=Path, help="results file; bench/results/simulator.json if left out")
    given = parser.parse_args(argv)
    console = Console(width=140)
    if given.launch:
        launch()
        return 0
    ours = simulated()
    if given.simulate:
        for own in ours:
            some = ", ".join(f"{n} {v}" for n, v in own.numbers.items() if v)
            console.print(f"{own.case} ({own.entry}): {some}", markup=False, highlight=False)
        return 0
    command = "python -m bench.counters"  # where it is written is no part of what is measured
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[Facts]
    try:
        rows = compared(ours, profiled([own.entry for own in ours]))
        show(rows, console)
    except NoCounters as reason:
        console.print(str(reason), markup=False)
        rows = [{"bench": BENCH, "case": {}, "not_measured": str(reason)}]
    console.print(f"recorded in {record(BENCH, rows, device, command, given.out)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
