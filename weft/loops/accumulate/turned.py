"""Loops whose ranges another loop bounds, as those of triangles and of windows that end at the ends of an array, the other way
around: for each of the one's values, the iterations of the other one that reach it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce

from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, For, Op, free_names
from weft.loops.simplify import fold
from weft.loops.types import INT64

_ONE = Affine((), 1)


def turned(loop: For, summed: Collection[For], known: set[str]) -> tuple[tuple[Affine, Affine, int], For, bool] | None:
    """Of `for t in range(a, b): for k in range(max(c, t + d), min(e, t + f))` the same points with k outside: its range, for
    each of its values the loop over t, and whether that has an iteration for each. None where that takes more than sums, bounds
    and names that are known, or none of the summed loops bounds it.
    """
    start, stop = loop.start, loop.stop
    if loop.step == -1:
        start, stop = (Op("add", (e, Const(1, INT64)), INT64) for e in (stop, start))
    own = [f for f in summed if f.var in free_names(start) | free_names(stop)]
    if len(own) != 1 or loop.step not in (1, -1) or own[0].step not in (1, -1):
        return None
    (t,) = own
    ends = (t.start, t.stop) if t.step > 0 else tuple(Op("add", (e, Const(1, INT64)), INT64) for e in (t.stop, t.start))
    first, last = map(affine, ends)
    lows, highs = _forms(start, "max"), _forms(stop, "min")
    if first is None or last is None or lows is None or highs is None:
        return None
    names = {n for e in (first, last, *lows, *highs) for n in e.names} - {t.var}
    if not names <= known or {e.coefficient(t.var) for e in (*lows, *highs)} - {0, 1}:
        return None
    moves, here = Affine(((t.var, 1),), 0), Affine(((loop.var, 1),), 0)

    def at(e: Affine, place: Affine) -> Affine:
        return e - moves + place if e.coefficient(t.var) else e

    least, most = _largest([at(e, first) for e in lows]), _least([at(e, last - _ONE) for e in highs])
    if len(least) > 1:  # further out there is no iteration
        least = [e for e in lows if not e.coefficient(t.var)]
    if len(most) > 1:
        most = [e for e in highs if not e.coefficient(t.var)]
    if len(least) != 1 or len(most) != 1:
        return None
    after = [here - (e - moves) + _ONE for e in highs if e.coefficient(t.var)]
    before = [here - (e - moves) + _ONE for e in lows if e.coefficient(t.var)]
    (low,), (high,) = least, most
    begins = _largest(after if any(_is_no_more(first, e - here + low) for e in after) else [first, *after])
    ends_at = _least(before if any(_is_no_more(e - here + high - _ONE, last) for e in before) else [last, *before])
    triangle = len(lows) == len(highs) == len(begins) == len(ends_at) == 1
    begin = reduce(lambda a, b: Op("max", (a, b), INT64), (f.expr() for f in begins))
    end = reduce(lambda a, b: Op("min", (a, b), INT64), (f.expr() for f in ends_at))
    return (low, high, 1), replace(t, start=fold(begin), stop=fold(end), step=1), triangle


def _forms(e: Expr, how: str) -> list[Affine] | None:
    """The sums that an end is the largest or the least of; None where it is none."""
    own = affine(e)
    if own is not None:
        return [own]
    match e:
        case Op(name=name, args=args) if name == how:
            found = [_forms(a, how) for a in args]
            return None if None in found else [f for forms in found for f in forms or ()]
        case Op(name="add" | "sub" as name, args=(a, b)):
            forms, by = _forms(a, how), affine(b)
            return None if forms is None or by is None else [f + by if name == "add" else f - by for f in forms]
    return None


def _largest(forms: list[Affine]) -> list[Affine]:
    """Sums, the largest of which is the largest of all these."""
    own = list(dict.fromkeys(forms))
    return [f for f in own if not any(_is_no_more(f, o) for o in own if o != f)]


def _least(forms: list[Affine]) -> list[Affine]:
    """Sums, the least of which is the least of all these."""
    own = list(dict.fromkeys(forms))
    return [f for f in own if not any(_is_no_more(o, f) for o in own if o != f)]


def _is_no_more(a: Affine, b: Affine) -> bool:
    """Whether a is at most b, as their constants alone show."""
    apart = b - a
    return not apart.terms and apart.constant >= 0
