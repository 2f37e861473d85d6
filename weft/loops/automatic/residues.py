"""Residue classes: in `b[i] = b[i - 4] + a[i]` every fourth iteration is a recurrence of its own.

Where all dependences of a loop reach over a multiple of d iterations, those whose numbers leave the same remainder by d form
a loop; the d loops have nothing to do with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Access, Nested, loops_in, pairs_in
from weft.loops.affine import Affine, affine
from weft.loops.automatic.rewriting import Rewriting, keeps_array, replaced
from weft.loops.ir import Const, For, Function, Op, substitute_statements
from weft.loops.names import Names
from weft.loops.normalize import fold_names, simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import INT64


def residues(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with one of the loops `stuck` in residue classes that are independent."""
    for nested in loops_in(function.body):
        loop = nested.loop
        start = affine(loop.start)
        if loop.var not in stuck or loop.carries or start is None or keeps_array(function, loop):
            continue
        distance = _common_distance(function, nested)
        stop = affine(loop.stop)
        if distance < 2 or stop is None:
            continue
        classes, var = _in_classes(loop, start, stop, distance, Names.of(function))
        body = replaced(function.body, loop.var, lambda _, made=classes: (made,))  # type: ignore[misc]
        made = replace(function, body=body)
        if independent(made, var):
            what = f"residue classes: iterations {distance} apart make {distance} independent loops"
            yield Rewriting(made, {loop.var: (what,)}, frees=frozenset({loop.var}))


def _in_classes(loop: For, start: Affine, stop: Affine, count: int, names: Names) -> tuple[For, str]:
    """A loop over the classes of a loop around a loop over each one's iterations, counted from 0; the class's variable."""
    var = names.fresh(f"{loop.var}_class")
    first = start + Affine(((var, loop.step),), 0)
    step = abs(loop.step) * count
    span = (stop - first) * (1 if loop.step > 0 else -1) + Affine((), step - 1)
    length = Op("floordiv", (span.expr(), Const(step, INT64)), INT64)
    at = first + Affine(((loop.var, loop.step * count),), 0)
    # the variable keeps its name, and counts the iterations of the class
    body = substitute_statements(loop.body, {loop.var: at.expr()})
    within = replace(loop, start=Const(0, INT64), stop=simplify(length), step=1, body=fold_names(body, {}))
    return For(var, Const(0, INT64), Const(count, INT64), 1, (), (within,), location=loop.location), var


def independent(function: Function, var: str) -> bool:
    """Whether no two iterations of a loop touch the same element with a write among them."""
    polyhedra = Polyhedra(function)
    nested = next(n for n in loops_in(function.body) if n.loop.var == var)
    if nested.loop.carries:
        return False
    return not any(polyhedra.carried(a, b, nested.loop, private) for a, b, private in pairs_in(function, nested))


def _common_distance(function: Function, nested: Nested) -> int:
    """The largest number of iterations of which all distances between conflicting ones are multiples; 0 where there are no
    conflicts or not all distances are constant.
    """
    polyhedra = Polyhedra(function)
    common = 0
    for a, b, private in pairs_in(function, nested):
        if polyhedra.carried(a, b, nested.loop, private) is None:
            continue
        apart = distance(a, b, nested.loop.var)
        if apart is None or apart % nested.loop.step:
            return 0
        common = math.gcd(common, apart // nested.loop.step)
    return common


def distance(a: Access, b: Access, var: str) -> int | None:
    """How much larger the variable of a loop is where b touches the element that a does, if that is constant."""
    found: int | None = None
    for i, j in zip(a.subscript, b.subscript, strict=True):
        if i is None or j is None:
            return None
        c = i.coefficient(var)
        if j.coefficient(var) != c:
            return None
        apart = i - j
        if c:
            if apart.terms or apart.constant % c or found not in (None, apart.constant // c):
                return None
            found = apart.constant // c
    return found
