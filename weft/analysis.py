"""`weft.analyze`: the classes of a function's loops, without tensors and without compiling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.loops.ir import Function
from weft.loops.schedule import Schedule, Verdict

if TYPE_CHECKING:
    from weft.explain import Explanation
    from weft.loops.dependences import Dependence
    from weft.loops.graph import DependenceGraph


@dataclass(frozen=True)
class LoopAnalysis:
    """schedule: all that was found; function: the nest as it was written. As text: a line for each loop, and why.
    """

    schedule: Schedule
    function: Function

    @cached_property
    def loops(self) -> dict[str, Verdict]:
        """The verdict of each loop by its variable, with evidence and remedies."""
        return {v.var: v for v in self._explained.loops}

    @cached_property
    def _explained(self) -> Schedule:
        from weft.loops.evidence import with_evidence

        return with_evidence(self.schedule, self.function)

    def explain(self, format: str = "text", detail: bool = False) -> Explanation:
        """The explanation, without the plan that sizes decide. format, detail: as for `weft.Kernel.explain`."""
        from weft.explain import Explained, explain

        return explain(Explained(self.function, self.schedule), format, detail)

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """What each statement of the function needs from which, exactly where the function is affine."""
        from weft.loops.dependences import dependences

        return dependences(self.function)

    @cached_property
    def graph(self) -> DependenceGraph:
        """The statements, their dependences and the cycles among them: `print` it, or see `weft.loops.graph`."""
        from weft.loops.dependences import statements
        from weft.loops.graph import graph_of

        return graph_of(self.function.name, statements(self.function), self.dependences)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __str__(self) -> str:
        from weft.explain import loop_lines

        return "\n".join(loop_lines(self._explained))


def analyze(function: Callable[..., Any] | str) -> LoopAnalysis:
    """Analyse a function, or the source text of one, with ranks inferred from its subscripts and float32 tensors.

    Raises the errors of the language.
    """
    from weft.language import infer_types, parse
    from weft.loops.analyze import schedule
    from weft.loops.automatic.guards import guarded

    plain = getattr(function, "py", function)
    parsed = parse(plain, infer_types(plain))
    found = schedule(guarded(parsed))
    return LoopAnalysis(found, parsed)
