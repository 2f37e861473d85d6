"""All benchmarks that this machine can run, or those named, recorded, then the plot: `python -m bench.all [NAME ...]`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from pathlib import Path

from bench.harness import options_of, record, results_file

ON_GPU = (
    "linrec", "rows", "folds", "maps", "joins", "steps", "scans", "selective_scan", "algebras", "ordinary", "pointwise",
    "products", "tensor_graphs", "attention", "attention_schedules", "attention_pages", "variants", "linear_attention",
    "compiled", "first_call", "host_overhead",
)  # fmt: skip
ON_CPU = ("cpu", "check_speed", "compiled_bytes", "first_call", "host_overhead")


MOST_SECONDS_TO_END = 10


def _end(*_: object) -> None:
    signal.alarm(MOST_SECONDS_TO_END)  # what torch.compile has begun may be waited for without end
    sys.exit("ended before all was measured")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.all")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; all if left out")
    parser.add_argument("--device", help="cuda or cpu; a GPU where there is one if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing recorded")
    parser.add_argument("--cases", nargs="+", default=[], metavar="CASE", help="names of cases; all if left out")
    parser.add_argument("--out", type=Path, help="results file; bench/results/DEVICE.json if left out")
    given = parser.parse_args(argv)
    options = options_of(given.device, given.quick, given.cases)
    signal.signal(signal.SIGTERM, _end)
    names = given.names or (ON_GPU if options.device.type == "cuda" else ON_CPU)
    status = record(names, options, shlex.join(["python", "-m", "bench.all", *argv]), given.out)
    if not given.quick:
        from bench import plot

        plot.draw(given.out or results_file(options.device))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
