"""Parts of a tensor that are stored into other parts of it.

PyTorch leaves open what `y[1:] = y[:-1]` leaves in y, or refuses it: elements may be read after they were stored into. The
call, or the kernel where loops decide, sees to it that the parts are one or have no element in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from weft.language import bounds
from weft.language.builder import Builder
from weft.language.values import View, at_places, place, places
from weft.loops.affine import Affine, affine
from weft.loops.ir import FALSE, TRUE, ZERO, Const, Expr, Op
from weft.loops.normalize import simplify
from weft.loops.types import BOOL, INT64

_TOLD = "a part of a tensor is stored into one that it overlaps: PyTorch leaves open what that then holds"


def check(b: Builder, target: View, source: View) -> None:
    """Have it seen that a store changes nothing of what is still to be read for it."""
    shift = len(target.dims) - len(source.dims)
    if target.array != source.array or source.copied or shift < 0:
        return
    sizes = {place(k).name: size for k, size in enumerate(target.dims)}
    forms = [affine(e) for e in target.axes]
    others = [affine(at_places(e, places(len(target.dims))[shift:])) for e in source.axes]
    apart: list[Expr] = []
    alike: list[Expr] = []
    moves = False
    for form, other in zip(forms, others, strict=True):
        own, its = _walked(form, sizes), _walked(other, sizes)
        if form is None or other is None or own is None or its is None or (own[1] == 0) != (its[1] == 0):
            return  # a row stored into a column, or into many: each element is as it was before
        ahead = Affine.make({n: c for n, c in (other - form).terms if n not in sizes}, (other - form).constant)
        distance = ahead.expr()
        moves = moves or (bool(own[1]) and (own != its or distance != ZERO))
        alike.append(Op("eq", (distance, ZERO), BOOL) if own == its else FALSE)
        if not own[1]:
            apart.append(Op("ne", (distance, ZERO), BOOL))
            continue
        apart += _past(distance, *own, sizes), _past((ahead * -1).expr(), *its, sizes)
        if own == its and own[1] > 1:
            left = Op("mod", (distance, Const(own[1], INT64)), INT64) if ahead.terms else Const(ahead.constant % own[1], INT64)
            apart.append(Op("ne", (left, ZERO), BOOL))
    if moves:
        ways = dict.fromkeys(map(simplify, (*apart, reduce(lambda x, y: Op("and", (x, y), BOOL), alike))))
        ways.pop(FALSE, None)
        if TRUE not in ways:
            bounds.require(b, reduce(lambda x, y: Op("or", (x, y), BOOL), ways or apart), _TOLD, "overlap")


def _walked(form: Affine | None, sizes: Mapping[str, Expr]) -> tuple[str, int] | None:
    """The place that a subscript goes along with, and by how many elements a step: 0 where it stays. None where there are
    several.
    """
    own = [] if form is None else [(n, c) for n, c in form.terms if n in sizes]
    return (own or [("", 0)])[0] if len(own) < 2 else None


def _past(distance: Expr, name: str, step: int, sizes: Mapping[str, Expr]) -> Expr:
    """Whether so many elements ahead is beyond the last of those that are walked."""
    last = Op("mul", (Const(step, INT64), Op("sub", (sizes[name], Const(1, INT64)), INT64)), INT64)
    return Op("gt", (distance, last), BOOL)

