"""Sizes that nothing in the Python ties together but that a call is expected to have equal.

`c[r, l]` under `for l in range(length)`, with length a size of x, asks only that c be long enough. Nearly always it is
just as long; a function that may count on it needs no second size, no zeros for a gradient's tail, no checked loads.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accesses import collect
from weft.loops.affine import Affine, affine
from weft.loops.ir import Equality, For, Function, Ref


def expected(function: Function) -> tuple[Equality, ...]:
    """Equalities of sizes under which every loop over an axis of one argument runs over the whole of the others', besides
    those that the function has already.
    """
    sizes = {s.name for s in function.sizes}
    known = {frozenset((e.left, e.right)) for e in function.equalities}
    found: dict[tuple[str, str], Equality] = {}
    for access in collect(function.body):
        loops = {f.var: f for f in access.loops}
        for form, extent in zip(access.subscript, function.array(access.array).shape, strict=True):
            if form is None or len(form.terms) != 1 or form.constant or form.terms[0][1] != 1:
                continue
            loop = loops.get(form.terms[0][0])
            length = None if loop is None else _whole_range(loop)
            if length is None or not isinstance(extent, Ref) or extent.name not in sizes or length == extent.name:
                continue
            if length in sizes:
                what = f"the loop over {length} and the size of {access.array} along it"
                equality = Equality(Ref(length, extent.type), extent, what, access.location, expected=True)
                if frozenset((equality.left, equality.right)) not in known:
                    found.setdefault((length, extent.name), equality)
    return tuple(found.values())


def _whole_range(loop: For) -> str | None:
    """The size n of a loop over 0 .. n - 1, upwards or downwards by 1."""
    low, high = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
    first, last = affine(low), affine(high)
    shift = 0 if loop.step > 0 else 1
    if abs(loop.step) != 1 or first is None or last is None or first != Affine((), -shift):
        return None
    if len(last.terms) != 1 or last.terms[0][1] != 1 or last.constant != -shift:
        return None
    return last.terms[0][0]


def agreeing(function: Function) -> tuple[Function, tuple[tuple[str, str], ...]]:
    """The function for calls whose sizes are as expected, and the pairs of sizes that must then be equal.

    Those that the function itself was made for are among them: the adjoint of such a function is for the same calls.
    """
    equalities = (*function.equalities, *expected(function))
    pairs = []
    for e in equalities:
        if e.expected:
            assert isinstance(e.left, Ref) and isinstance(e.right, Ref)
            pairs.append((e.left.name, e.right.name))
    return replace(function, equalities=equalities), tuple(pairs)
