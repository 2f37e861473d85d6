"""What every benchmark shares: rows, the results file, options of the command line.

A row is `{"bench", "case": {...}, "weft_ms", "peer", "peer_ms", "ratio", "spread"}`: above a ratio of 1, weft is the faster.
weft and its peers take turns in the same rounds (`weft.runtime.timing.times_in_turn`): times are medians of rounds, the ratio
is the median of the rounds' own, and the spread their first and last quartile. A results file holds rows beside one `meta`
object. Running a benchmark again replaces its own rows and leaves the others; of one that is cut short, or of some cases
alone, what has been measured replaces what was of the same cases.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from weft.errors import DeviceMismatch
from weft.runtime.timing import Call, Times, median_ms, rotations

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PACKAGES = ("weft", "torch", "triton", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "islpy")


@dataclass(frozen=True)
class Options:
    """device: where to run. quick: small sizes and few rounds, to see that the benchmark works; never recorded. cases: the
    names that are wanted of the benchmarks whose cases have names; all of them where there are none.
    """

    device: torch.device
    quick: bool = False
    cases: tuple[str, ...] = ()

    def wants(self, name: str) -> bool:
        return not self.cases or name in self.cases

    @property
    def seconds(self) -> float:
        """How long to measure one case."""
        return 0.02 if self.quick else 0.5


@dataclass(frozen=True)
class Row:
    """One comparison. peer, peer_ms and ratio are None where weft alone is measured. ratios: those of the rounds in which they
    took turns; where they did not, the ratio is that of the times.
    """

    bench: str
    case: dict[str, Any]
    weft_ms: float
    peer: str | None = None
    peer_ms: float | None = None
    ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        if self.ratios:
            return median(self.ratios)
        return None if self.peer_ms is None else self.peer_ms / self.weft_ms

    @property
    def spread(self) -> tuple[float, float] | None:
        """The first and the last quartile of the ratios."""
        if len(self.ratios) < 2:
            return None
        first, _, last = quantiles(self.ratios, n=4)
        return first, last

    def as_json(self) -> dict[str, Any]:
        found = {**asdict(self), "weft_ms": _significant(self.weft_ms), "peer_ms": _significant(self.peer_ms)}
        del found["ratios"]
        spread = None if self.spread is None else [_significant(end) for end in self.spread]
        return {**found, "ratio": _significant(self.ratio), "spread": spread}


def rows_of(bench: str, case: dict[str, Any], times: Times, peers: Sequence[str]) -> list[Row]:
    """A row for each peer. times: of weft, then of the peers, in turn."""
    ours, *theirs = times.ms
    measured = enumerate(zip(peers, theirs, strict=True), 1)
    return [Row(bench, case, ours, peer, ms, times.ratios(way)) for way, (peer, ms) in measured]


Benchmark = Callable[[Options], Iterable[Row]]


def need_gpu(options: Options) -> None:
    """Raise DeviceMismatch where the benchmark is defined for a GPU and there is none."""
    if options.device.type != "cuda" and not options.quick:
        raise DeviceMismatch(
            "this benchmark is defined for a GPU",
            evidence=[f"the device is {options.device}"],
            remedy="run it on a machine with a CUDA GPU, or with --quick to see that it works",
        )


def copy_ms(bytes_moved: int, options: Options, seconds: float | None = None) -> float:
    """The time of a copy alone. seconds: how long to measure."""
    return median_ms(copies(bytes_moved, options), options.device, seconds=seconds or options.seconds)


def copies(bytes_moved: int, options: Options) -> list[Call]:
    """Device-to-device copies, a rotation of them, each of which reads half of the bytes and writes the other half."""
    numel = bytes_moved // 4
    pairs = []
    for _ in range(rotations(bytes_moved)):
        source = torch.randn(numel, device=options.device).bfloat16()
        pairs.append((torch.empty_like(source), source))
    return [partial(to.copy_, of) for to, of in pairs]


def meta(device: torch.device, command: str) -> dict[str, Any]:
    """Versions, device, commit and command of a run."""
    return {
        "device": device_name(device),
        "python": platform.python_version(),
        "versions": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "commit": _commit(),
        "command": command,
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU {platform.machine()}"


def results_file(device: torch.device) -> Path:
    """bench/results/NAME.json: cpu, h200, or the last word of another device's name."""
    return RESULTS / f"{'cpu' if device.type == 'cpu' else device_name(device).split()[-1].lower()}.json"


def load(path: Path) -> dict[str, Any]:
    """The results in a file; empty ones where there is none."""
    if not path.is_file():
        return {"meta": {}, "rows": []}
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def merge(old: dict[str, Any], rows: Sequence[Row], about: dict[str, Any], whole: bool = True) -> dict[str, Any]:
    """The results with the rows of every benchmark in `rows` replaced, ordered by benchmark. whole: those are all of its rows;
    where they are not, rows of other cases stay.
    """
    ran, made = {row.bench for row in rows}, [row.as_json() for row in rows]
    again = {_case_of(row) for row in made}
    kept = [row for row in old["rows"] if row["bench"] not in ran or not (whole or _case_of(row) in again)]
    return {"meta": about, "rows": sorted(kept + made, key=lambda row: str(row["bench"]))}


def _case_of(row: dict[str, Any]) -> str:
    return json.dumps([row["bench"], row["case"], row["peer"]])


def save(results: dict[str, Any], path: Path) -> None:
    """Write results, one row a line, so that a difference between two runs reads as one."""
    rows = ",\n".join("  " + json.dumps(row) for row in results["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(f'{{\n"meta": {json.dumps(results["meta"], indent=2)},\n"rows": [\n{rows}\n]\n}}\n')
    temporary.replace(path)


def show(rows: Sequence[Row], console: Console) -> None:
    """Print rows as a table."""
    table = Table()
    for heading in ("bench", "case", "weft ms", "GB/s", "peer", "peer ms", "ratio"):
        table.add_column(heading, justify="left" if heading in ("bench", "case", "peer") else "right")
    for row in rows:
        case = " ".join(f"{k}={v}" for k, v in row.case.items() if k != "bytes")
        speed = f"{row.case['bytes'] / row.weft_ms / 1e6:,.0f}" if "bytes" in row.case else ""
        peer_ms = "" if row.peer_ms is None else f"{row.peer_ms:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        ratio += "" if row.spread is None else " ({:.3f} to {:.3f})".format(*row.spread)
        table.add_row(row.bench, case, f"{row.weft_ms:.4g}", speed, row.peer or "", peer_ms, ratio)
    console.print(table)


def main(name: str, argv: Sequence[str] = ()) -> int:
    """Run the benchmark `name` with the options in argv, print its rows and record them. Returns 0."""
    parser = argparse.ArgumentParser(prog=f"weft bench {name}")
    parser.set_defaults(name="")
    parser.add_argument("--device", help="cuda or cpu; a GPU where there is one if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing recorded")
    parser.add_argument("--out", type=Path, help="results file; bench/results/DEVICE.json if left out")
    for part in getattr(importlib.import_module(f"bench.{name}"), "PARTS", ()):
        own = f"{name}_{part}"
        parser.add_argument(f"--{part}", dest="name", action="store_const", const=own, help=f"bench/{own}.py in its place")
    given = parser.parse_args(argv)
    command = shlex.join(["weft", "bench", name, *argv])
    return record([given.name or name], options_of(given.device, given.quick), command, given.out)


def options_of(device: str | None, quick: bool, cases: Sequence[str] = ()) -> Options:
    """Raises DeviceMismatch where a GPU is asked for and there is none."""
    if device is not None and device.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceMismatch("there is no GPU here", remedy="leave --device out, or use --device cpu")
    return Options(torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")), quick, tuple(cases))


def record(names: Sequence[str], options: Options, command: str, out: Path | None) -> int:
    """Run benchmarks one after another and record each row as it comes: what ends a benchmark takes none of them away."""
    console = Console()
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        device = torch.device("cpu") if getattr(module, "CPU_ONLY", False) else options.device
        path, about = out or results_file(device), meta(device, command)
        rows: list[Row] = []
        try:
            with console.status(f"bench {name} on {device_name(device)}"):
                for row in module.run(replace(options, device=device)):
                    rows.append(row)
                    if not options.quick:
                        save(merge(load(path), rows, about, whole=False), path)
            if rows and not options.quick and not options.cases:
                save(merge(load(path), rows, about, whole=True), path)
        finally:
            if rows:
                show(rows, console)
            if rows and not options.quick:
                console.print(f"recorded in {path}")
    return 0


def _significant(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """The commit of the checkout, marked where files differ from it; $WEFT_COMMIT where there is no git."""
    given = os.environ.get("WEFT_COMMIT")
    if given:
        return given
    try:
        head = _git("rev-parse", "HEAD")
        tables = (":!README.md", ":!docs/measured.md", ":!docs/pointwise.md")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results", *tables)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + (" with changes" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
