"""Conditions on sizes and integer arguments under which a loop that must run in order may run in parallel after all.

`a[i + k] = a[i]` touches one element in two iterations only for some k. Where the conflicts of a loop depend on such
arguments, the function is analysed a second time, for calls in which there are none; which of the two analyses a call
takes is decided when its sizes and arguments are known.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from weft.loops.accesses import loops_in, pairs_in
from weft.loops.analyze import transformed
from weft.loops.ir import Assumption, Function
from weft.loops.normalize import normalize
from weft.loops.polyhedra import Polyhedra, Search, SearchOver

_MOST = 4  # conditions that are tried: each costs an analysis
_MOST_QUESTIONS = 10_000  # about accesses, some seconds of work; whatever the best condition is by then is taken


def guarded(function: Function) -> Function:
    """The function for calls in which more of its loops need not run in order, by its `assumption`; itself if none would.

    Of several conditions that could be assumed, the one that helps most loops, of equals the outermost loop's.
    """
    ordered = _in_order(function)
    if not ordered:
        return function
    plain = normalize(function)
    polyhedra = Polyhedra(plain)
    candidates: dict[str, None] = {}
    for nested in loops_in(plain.body):
        if nested.loop.var in ordered:
            pairs = tuple(pairs_in(plain, nested))
            for flows_alone in (False, True):
                condition = polyhedra.free_when(pairs, nested.loop, flows_alone)
                if condition is not None:
                    candidates[condition] = None
    best, fewest = function, len(ordered)
    with suppress(SearchOver), Search(_MOST_QUESTIONS).going_on():
        for condition in list(candidates)[:_MOST]:
            trial = replace(function, assumption=Assumption(condition, ()))
            left = _in_order(trial)
            if len(left) < fewest:
                helped = tuple(sorted(ordered - left))
                best, fewest = replace(function, assumption=Assumption(condition, helped)), len(left)
    return best


def _in_order(function: Function) -> set[str]:
    return {v.var for v in transformed(function).loops if v.kind == "sequential"}
