"""`weft.analyze`: the classes of a function's loops, without tensors and without compiling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.loops.schedule import Schedule, Verdict


@dataclass(frozen=True)
class LoopAnalysis:
    """loops: the verdict of each loop by its variable; schedule: all that was found. As text: a line for each loop,
    and why.
    """

    loops: dict[str, Verdict]
    schedule: Schedule

    def __str__(self) -> str:
        from weft.explain import loop_lines

        return "\n".join(loop_lines(self.schedule))


def analyze(function: Callable[..., Any] | str) -> LoopAnalysis:
    """Analyse a function, or the source text of one, with ranks inferred from its subscripts and float32 tensors.

    Raises the errors of the language.
    """
    from weft.language import infer_types, parse
    from weft.loops.analyze import schedule

    plain = getattr(function, "py", function)
    found = schedule(parse(plain, infer_types(plain)))
    return LoopAnalysis({v.var: v for v in found.loops}, found)
