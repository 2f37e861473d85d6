"""Which analysis of a function a call takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from weft.compiler import Analysis
from weft.language import ArgumentType, Signature
from weft.loops.affine import evaluate
from weft.loops.faults import Faults
from weft.loops.schedule import ORDINARY, Circumstances, Wrapped
from weft.loops.sized import untold
from weft.loops.unused import empty_loops
from weft.pytorch.call.arguments import Bound, bind, call_types, repeated, single
from weft.pytorch.call.checks import condition_fails
from weft.pytorch.specialize import Specializable


def analysis_for(specializable: Specializable, signature: Signature, args: Sequence[Any]) -> tuple[Analysis, Bound]:
    """The analysis for a call: the one for sizes and arguments as expected if they are so, else the one for any; with the
    subscripts that are below 0 for its sizes counted from the end, and those checked by the kernels that sizes do not show
    to be inside and that data may keep from being evaluated, or that loops tell which do not run.
    """
    same = repeated(signature, args)
    types, args = call_types(signature, args, same), single(args, same)
    analysis, bound = _expected_or_not(specializable, types, args, ORDINARY)
    circumstances = Circumstances(wraps=_wraps(analysis, bound), empty=_empty(specializable, types, analysis, bound))
    if circumstances != ORDINARY:
        analysis, bound = _expected_or_not(specializable, types, args, circumstances)
    doubtful = [r for r in analysis.requirements if condition_fails(r.condition, bound)]
    checked = {r.array for r in doubtful} | {i.array for i in analysis.function.idle if evaluate(i.condition, bound.names)}
    if checked and not any(r.sure for r in doubtful):
        analysis, bound = _expected_or_not(specializable, types, args, replace(circumstances, checked=frozenset(checked)))
    return analysis, bound


def wraps_for(specializable: Specializable, types: tuple[ArgumentType, ...], args: Sequence[Any]) -> Wrapped:
    """The axes in which a call has subscripts below 0, which count from the end."""
    return _wraps(*_expected_or_not(specializable, types, args, ORDINARY))


def _expected_or_not(
    specializable: Specializable,
    types: tuple[ArgumentType, ...],
    args: Sequence[Any],
    circumstances: Circumstances,
) -> tuple[Analysis, Bound]:
    """The analysis for sizes and arguments as expected if they are so, else the one for any; with checks of what sizes do not
    show.
    """
    while True:
        analysis = specializable.analysis(types, True, circumstances)
        bound = bind(analysis.function, args)
        agree = all(bound.names[a] == bound.names[b] for a, b in analysis.assumed)
        assumption = analysis.function.assumption
        if not (agree and (assumption is None or bool(eval(assumption.condition, {}, bound.names)))):
            analysis = specializable.analysis(types, False, circumstances)
            bound = bind(analysis.function, args)
        left = untold(analysis.function.sized, bound.names)
        if not left:
            return analysis, bound
        circumstances = replace(circumstances, untold=circumstances.untold | left)


def _wraps(analysis: Analysis, bound: Bound) -> Wrapped:
    """The axes that subscripts leave below 0 for these sizes; none where one is left otherwise and is surely evaluated,
    which is an error of the call.
    """
    if all(r.beyond is None for r in analysis.requirements):
        return frozenset()
    doubtful = [r for r in analysis.requirements if condition_fails(r.condition, bound)]
    if any(r.sure and (r.beyond is None or condition_fails(r.beyond, bound)) for r in doubtful):
        return frozenset()
    return frozenset((r.array, r.axis) for r in doubtful if r.beyond is not None)


def _empty(
    specializable: Specializable, types: tuple[ArgumentType, ...], analysis: Analysis, bound: Bound
) -> frozenset[tuple[bool, str]]:
    """The loops that run for no iteration of a call, if a nest may fail beside one of them: the Python evaluates what stands
    before such a loop, which as an axis would be around it. Each as the functions call it whose sizes agree, and do not.
    """
    function = analysis.function
    nests = [n for n in analysis.schedule.nests if empty_loops((*n.around(), *n.body), bound.names)]
    if not any(Faults(replace(function, body=n.body), n.around()).possible for n in nests):
        return frozenset()
    functions = ((agree, specializable.function(types, agree)) for agree in (True, False))
    return frozenset((agree, var) for agree, made in functions for var in empty_loops(made.body, bound.names))
