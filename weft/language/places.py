"""Which elements the views of elements are: as later iterations see them, and whether two subscripts name one element.

A subscript that an iteration leaves to later ones has, instead of the loop's variable, a name that means an earlier value of
it. What depends on more than that, on loops around it and on sizes may be any by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.language.values import Alias, Loop
from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, Ref, free_names, substitute
from weft.loops.types import INT64

if TYPE_CHECKING:
    from collections.abc import Set

_ANY = Ref("any value", INT64)  # no name of the program has a space


def left_to_later(objects: Alias, loops: Sequence[Loop], fixed: Set[str]) -> Alias:
    """What a value of an iteration of the last of the open loops may be a view of, as its later iterations see it."""
    return _seen(objects, {loops[-1].var: Ref(_earlier(len(loops)), INT64)}, _steady(loops, fixed) - {loops[-1].var})


def left_behind(objects: Alias, loops: Sequence[Loop], fixed: Set[str]) -> Alias:
    """What a value of a loop may be a view of after it, inside the open loops."""
    return _seen(objects, {}, _steady(loops, fixed))


def apart(
    left: Sequence[Expr],
    index: Sequence[Expr],
    shape: Sequence[Expr],
    loops: Sequence[Loop],
    least: Mapping[str, int],
) -> bool:
    """Whether two subscripts provably name different elements: `index`, and `left`, which earlier iterations of the open loops
    may have left. least: what names are at the least; the variables of loops are told by their ranges.
    """
    for x, y, size in zip(left, index, shape, strict=True):
        one, other = affine(x), affine(y)
        if one is None or other is None:
            continue
        distance, earlier = other - one, {_earlier(k): loop for k, loop in enumerate(loops, 1)}
        met = [(name, earlier[name]) for name in distance.names & earlier.keys()]
        if not met and (distance.terms or distance.constant == 0):
            continue
        if met and not _never_0(distance, *met[0]):
            continue
        now = Affine.make({}, one.constant)
        for name, coefficient in one.terms:
            now += Affine(((earlier[name].var if name in earlier else name, coefficient),), 0)
        if all(_least(f, loops, least) >= 0 for f in (now, other)):  # neither counts from the end
            return True
        if not met and isinstance(size, Const) and size.value and distance.constant % int(size.value):
            return True
    return False


def _earlier(depth: int) -> str:
    """The name of any value that the variable of a loop had before."""
    return f"earlier of loop {depth}"


def _steady(loops: Sequence[Loop], fixed: Set[str]) -> frozenset[str]:
    """The names that are the same in all iterations of a loop inside these."""
    return frozenset((*fixed, *(loop.var for loop in loops), *(_earlier(k) for k in range(1, len(loops) + 1))))


def _seen(objects: Alias, later: Mapping[str, Expr], steady: Set[str]) -> Alias:
    """`objects`, whose subscripts have `later` for names, and what is not steady is anything."""
    places = objects.elements
    if not places:
        return objects

    def seen(e: Expr) -> Expr:
        return substitute(e, dict(later)) if affine(e) is not None and free_names(e) <= steady | later.keys() else _ANY

    moved = frozenset((array, tuple(map(seen, index))) for array, index in places)
    return objects if moved == places else replace(objects, index=None, places=moved)


def _never_0(distance: Affine, name: str, loop: Loop) -> bool:
    """Whether `a * (i - earlier i) + b` is 0 in no iteration of the loop over i."""
    a, b = distance.coefficient(loop.var), distance.constant
    alone = distance.names == {name, loop.var} and distance.coefficient(name) == -a
    return alone and (b == 0 or (b > 0) == (a * loop.step > 0) or b % (a * loop.step) != 0)


def _least(form: Affine, loops: Sequence[Loop], least: Mapping[str, int]) -> int:
    """What a subscript is at the least; below 0 where that is not known."""
    for loop in reversed(loops):
        factor = form.coefficient(loop.var)
        first, last = affine(loop.start), affine(loop.stop)
        end = first if (factor > 0) == (loop.step > 0) else last and last - Affine((), loop.step // abs(loop.step))
        if factor:
            if end is None:
                return -1
            form = form + (end - Affine(((loop.var, 1),), 0)) * factor
    if any(name not in least or factor < 0 for name, factor in form.terms):
        return -1
    return form.constant + sum(factor * least[name] for name, factor in form.terms)
