"""What the benchmarks of the simulator share: their results file, `bench/results/simulator.json`.

Its rows are `{"bench", "case", ...}` with the facts that a benchmark compares; `meta.commands` says by which command each
benchmark ran. Running one again replaces its own rows and leaves the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.harness import RESULTS, load, meta, save

FILE = RESULTS / "simulator.json"

Facts = dict[str, Any]


def record(bench: str, rows: Sequence[Facts], device: torch.device, command: str, out: Path | None) -> Path:
    """Write a benchmark's rows, and return where."""
    path = out or FILE
    old = load(path)
    about = meta(device, command)
    about["commands"] = {**old["meta"].get("commands", {}), bench: about.pop("command")}
    kept = [row for row in old["rows"] if row["bench"] != bench]
    save({"meta": about, "rows": sorted([*kept, *rows], key=lambda row: str(row["bench"]))}, path)
    return path
