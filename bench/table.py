"""The tables of results in README.md and docs/pointwise.md, written between their markers from bench/results: `python -m
bench.table`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, ROOT, load

BEGIN, END = "<!-- results: written by `make table` -->", "<!-- end of results -->"


def render(results: dict[str, Any]) -> str:
    """Markdown: one line a row of the results, under what they were measured with."""
    if not results["rows"]:
        return "Nothing is recorded yet: `make bench` measures, `make table` writes the table here."
    about = results["meta"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if name != "weft")
    lines = [
        f"{about['device']}; {versions}; commit `{about['commit'][:12]}`; `{about['command']}`.",
        "",
        "| benchmark | case | weft ms | GB/s | peer | peer ms | ratio |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in results["rows"]:
        case = ", ".join(_fact(k, v) for k, v in row["case"].items() if k != "bytes")
        speed = f"{row['case']['bytes'] / row['weft_ms'] / 1e6:,.0f}" if "bytes" in row["case"] else ""
        peer_ms, ratio = ("" if row[k] is None else f"{row[k]:.4g}" for k in ("peer_ms", "ratio"))
        if row.get("spread"):
            ratio += " ({:.3g} to {:.3g})".format(*row["spread"])
        cells = (row["bench"], case, f"{row['weft_ms']:.4g}", speed, row["peer"] or "", peer_ms, ratio)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def insert(text: str, table: str) -> str:
    """The text with what stands between the markers replaced. Raises ValueError where a marker is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the markers {BEGIN} and {END} are missing")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def _fact(name: str, value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return f"{name} {value:,}" if isinstance(value, int) else str(value)


def tables() -> dict[Path, str]:
    """The table of each document: README.md has all of the H200, docs/pointwise.md what is about it, the CPU's rows too."""
    gpu, cpu = (load(RESULTS / f"{name}.json") for name in ("h200", "cpu"))
    operators, sizes = _only("pointwise", gpu), _only("compiled_bytes", cpu)
    about = "\n\n".join(render(found) for found in (operators, sizes) if found["rows"])
    return {ROOT / "README.md": render(gpu), ROOT / "docs" / "pointwise.md": about or render(operators)}


def _only(bench: str, results: dict[str, Any]) -> dict[str, Any]:
    return {**results, "rows": [row for row in results["rows"] if row["bench"] == bench]}


def main() -> int:
    for document, table in tables().items():
        document.write_text(insert(document.read_text(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
