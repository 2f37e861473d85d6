"""The plot of a results file: `python -m bench.plot [FILE]` writes FILE with the ending .png (needs matplotlib)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import RESULTS, load

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(path: Path) -> Path:
    """Draw what the file has: the recurrence by length on the left, kernels of rows on the right. Returns the image."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = load(path)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    _recurrence(left, [r for r in results["rows"] if r["bench"] in ("linrec", "cpu") and "add" in (r["peer"] or "")])
    _rows(right, [r for r in results["rows"] if r["bench"] == "rows"])
    about = results["meta"]
    commit = str(about.get("commit", "?"))[:12]
    figure.suptitle(f"{about.get('device', '?')}, torch {about.get('versions', {}).get('torch', '?')}, weft {commit}")
    image = path.with_suffix(".png")
    figure.savefig(image, dpi=120)
    pyplot.close(figure)
    return image


def _speed(row: dict[str, Any], key: str) -> float:
    return float(row["case"]["bytes"]) / float(row[key]) / 1e6


def _recurrence(axes: Axes, rows: list[dict[str, Any]]) -> None:
    for direction, style in (("forward", "-"), ("backward", "--")):
        chosen = sorted((r for r in rows if r["case"]["pass"] == direction), key=lambda r: int(r["case"]["length"]))
        if not chosen:
            continue
        lengths = [r["case"]["length"] for r in chosen]
        yardstick = f"torch.add, bytes of {direction}"
        curves = (("weft_ms", f"weft {direction}", "o", "C0"), ("peer_ms", yardstick, "x", "C7"))
        for key, label, marker, color in curves:
            axes.plot(lengths, [_speed(r, key) for r in chosen], style, marker=marker, color=color, label=label)
    axes.set(title="linear recurrence, float32", xlabel="length", ylabel="GB/s", xscale="log", ylim=(0, None))
    if rows:
        axes.legend()


def _rows(axes: Axes, rows: list[dict[str, Any]]) -> None:
    kernels = list(dict.fromkeys(r["case"]["kernel"] for r in rows))
    peers = ["weft", *dict.fromkeys(r["peer"] for r in rows)]
    width = 0.8 / len(peers)
    for i, peer in enumerate(peers):
        speeds = []
        for kernel in kernels:
            row = next(r for r in rows if r["case"]["kernel"] == kernel and peer in ("weft", r["peer"]))
            speeds.append(_speed(row, "weft_ms" if peer == "weft" else "peer_ms"))
        axes.bar([k + i * width for k in range(len(kernels))], speeds, width, label=peer)
    axes.set_xticks([k + width * (len(peers) - 1) / 2 for k in range(len(kernels))], kernels)
    axes.set(title="rows, [16384, 4096] bfloat16", ylabel="GB/s")
    if rows:
        axes.legend()


if __name__ == "__main__":
    print(draw(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "h200.json"))
