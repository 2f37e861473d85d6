"""Along which axes of a graph what is loaded and stored lies side by side in memory."""

from __future__ import annotations

from collections.abc import Iterator

from weft.loops.accesses import counted_from_end
from weft.loops.affine import affine
from weft.loops.ir import Expr
from weft.plan.arguments import Facts


def neighbours(array: str, index: tuple[Expr, ...], facts: Facts) -> Iterator[str]:
    """The names, axes among them, of which the next or the previous value gives an element's neighbour in memory: one for each
    subscript that it is in so.
    """
    for k, i in enumerate(index):
        form = affine(counted_from_end(i)[0])
        if (array, k) in facts.unit and form is not None:
            yield from (name for name in form.names if abs(form.coefficient(name)) == 1)
