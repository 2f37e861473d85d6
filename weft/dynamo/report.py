"""What went where, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Taken:
    """A group of operators that is one call of a kernel. program: its loops. failed: why PyTorch runs it after all."""

    name: str
    operators: tuple[str, ...]
    program: str
    failed: str = ""


@dataclass
class GraphReport:
    """kind: "forward", "backward" or "inference". left: operators that PyTorch runs, each with the reason."""

    kind: str
    taken: list[Taken] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.kind}:"]
        for one in self.taken:
            counts = Counter(o.split(".", 1)[1] for o in one.operators)
            told = ", ".join(n if k == 1 else f"{n} x{k}" for n, k in counts.items())
            lines.append(f"  {one.name}: {told}" + (f"; run by PyTorch: {one.failed}" if one.failed else ""))
        for (operator, why), count in Counter(self.left).items():
            lines.append(f"  PyTorch: {operator}{f' x{count}' if count > 1 else ''}: {why}")
        return "\n".join(lines)


@dataclass
class Report:
    """Of all graphs that a backend has been given, in the order in which they came."""

    graphs: list[GraphReport] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "no graph has been compiled"
