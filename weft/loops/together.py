"""Nests that follow each other as one nest, without axes: what they tell each other through arrays of the call's own need then
be in no memory that all blocks see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.loops.ir import Stmt
from weft.loops.schedule import Nest, Verdict


def together(nests: Sequence[Nest]) -> Nest:
    """The nests as one, whose loops are those around them too."""
    body: list[Stmt] = []
    verdicts: list[tuple[str, Verdict]] = []
    for nest in nests:
        inner = nest.body
        for axis in reversed(nest.around()):
            inner = (replace(axis, body=inner),)
        body += inner
        verdicts += [*((a.var, Verdict(a.var, "parallel")) for a in nest.axes), *nest.verdicts]
    return Nest(nests[0].name, (), tuple(body), tuple(verdicts))
