"""What an explanation is made from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from weft.compiler import Analysis, Launch, Unused, Workspace, unused
from weft.loops.evidence import with_evidence
from weft.loops.graph import DependenceGraph, dependence_graph
from weft.loops.ir import Function
from weft.loops.python import python
from weft.loops.schedule import Schedule, Verdict


@dataclass(frozen=True)
class Explained:
    """A function as it was written, and what was found. sizes: the values of sizes and numbers for which `launches` were
    planned. Without an analysis for such a call there is no plan. operands: a line for each, of how it is read. shared: where
    lies what launches leave for each other.
    """

    written: Function
    found: Schedule
    analysis: Analysis | None = None
    sizes: Mapping[str, object] = field(default_factory=dict)
    launches: Sequence[Launch] = ()
    operands: Sequence[str] = ()
    shared: Workspace = field(default_factory=Workspace)

    @cached_property
    def graph(self) -> DependenceGraph:
        """The statements and their dependences, as they were written."""
        return dependence_graph(self.written)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule with the evidence and the remedies of its verdicts."""
        return with_evidence(self.found, self.written)

    @cached_property
    def unused(self) -> tuple[Unused, ...]:
        """The loops that could run in parallel on a GPU and do not."""
        if self.analysis is None:
            return ()
        found = [u for launch in self.launches for u in unused(launch, self.numbers)]
        return tuple({u.loop.var: u for u in found}.values())

    @property
    def numbers(self) -> dict[str, int]:
        """The sizes and the whole numbers among them."""
        return {n: v for n, v in self.sizes.items() if isinstance(v, int)}

    @property
    def loops(self) -> tuple[Verdict, ...]:
        return self.schedule.loops

    @cached_property
    def program(self) -> str:
        """The program that is run, as Python: every loop with how it runs."""
        function = self.found.function
        body = tuple(s for nest in self.found.nests for s in nest.in_loops())
        verdicts = {var: v.kind for nest in self.found.nests for var, v in nest.verdicts}
        axes = {a.var for nest in self.found.nests for a in nest.axes}

        def noted(line: re.Match[str]) -> str:
            kind = "parallel" if line["var"] in axes else verdicts.get(line["var"], "")
            return line["head"] + (f"  # {_HOW[kind]}" if kind else "")

        text = python(replace(function, body=body))
        return re.sub(r"^(?P<head> *for (?P<var>\w+) in .*:)(?P<rest>.*)$", noted, text, flags=re.MULTILINE)


_HOW = {"parallel": "in parallel", "reduction": "a reduction", "scan": "a scan", "sequential": "in order"}
