"""The tables of results, written between their markers from bench/results: `python -m bench.table`.

README.md has one line for each benchmark and peer, docs/measured.md every case, docs/pointwise.md what is about it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench.harness import RESULTS, ROOT, load

_EMPTY = "Nothing is recorded yet: `make bench` measures, `make table` writes the table here."
BEGIN, END = "<!-- results: written by `make table` -->", "<!-- end of results -->"


def render(results: dict[str, Any]) -> str:
    """Markdown: one line a row of the results, under what they were measured with."""
    if not results["rows"]:
        return _EMPTY
    lines = [
        _about(results["meta"]),
        "",
        "| benchmark | case | weft ms | GB/s | peer | peer ms | ratio |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in results["rows"]:
        speed = f"{row['case']['bytes'] / row['weft_ms'] / 1e6:,.0f}" if "bytes" in row["case"] else ""
        peer_ms, ratio = ("" if row[k] is None else f"{row[k]:.4g}" for k in ("peer_ms", "ratio"))
        if row.get("spread"):
            ratio += " ({:.3g} to {:.3g})".format(*row["spread"])
        cells = (row["bench"], _case(row), f"{row['weft_ms']:.4g}", speed, row["peer"] or "", peer_ms, ratio)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(results: dict[str, Any]) -> str:
    """Markdown: one line a benchmark, pass and peer: the geometric mean of ratios, their extremes, the case of the lowest."""
    if not results["rows"]:
        return _EMPTY
    compared: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in results["rows"]:
        if row["ratio"] is not None:
            passed = row["case"].get("pass")
            compared.setdefault((f"{row['bench']}, {passed}" if passed else row["bench"], row["peer"]), []).append(row)
    lines = [
        _about(results["meta"]),
        "",
        "| benchmark | peer | cases | mean ratio | lowest | highest | lowest at |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for (bench, peer), rows in compared.items():
        ratios = [row["ratio"] for row in rows]
        cells = (bench, peer, str(len(rows)), *(f"{r:.3g}" for r in (geometric_mean(ratios), min(ratios), max(ratios))))
        lines.append("| " + " | ".join((*cells, _case(min(rows, key=lambda row: row["ratio"])))) + " |")
    return "\n".join(lines)


def insert(text: str, table: str) -> str:
    """The text with what stands between the markers replaced. Raises ValueError where a marker is missing."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the markers {BEGIN} and {END} are missing")
    return f"{head}{BEGIN}\n{table}\n{END}{tail}"


def _about(meta: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in meta["versions"].items() if name != "weft")
    return f"{meta['device']}; {versions}; commit `{meta['commit'][:12]}`; `{meta['command']}`."


def _case(row: dict[str, Any]) -> str:
    return ", ".join(_fact(name, value) for name, value in row["case"].items() if name != "bytes" and value is not False)


def _fact(name: str, value: object) -> str:
    if value is True:
        return name
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return f"{name} {value:,}" if isinstance(value, int) else str(value)


def tables() -> dict[Path, str]:
    """The table of each document. Those of docs/pointwise.md have the CPU's rows too."""
    gpu, cpu = (load(RESULTS / f"{name}.json") for name in ("h200", "cpu"))
    operators, sizes = _only("pointwise", gpu), _only("compiled_bytes", cpu)
    about = "\n\n".join(render(found) for found in (operators, sizes) if found["rows"])
    docs = ROOT / "docs"
    return {
        ROOT / "README.md": summary(gpu),
        docs / "measured.md": render(gpu),
        docs / "pointwise.md": about or render(operators),
    }


def _only(bench: str, results: dict[str, Any]) -> dict[str, Any]:
    return {**results, "rows": [row for row in results["rows"] if row["bench"] == bench]}


def main() -> int:
    for document, table in tables().items():
        document.write_text(insert(document.read_text(), table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
