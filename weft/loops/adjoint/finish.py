"""The adjoint as it was written, made what a person would write: sums in the order of elements, nothing in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from weft.loops.accumulate import accumulate, accumulation, from_the_start, store_once
from weft.loops.adjoint.taken import taken_once
from weft.loops.adjoint.values import elementwise
from weft.loops.by_rows import by_rows
from weft.loops.in_steps import accumulate_before_use, accumulate_in_steps
from weft.loops.ir import Array, Expr, Function, Load, Store, validate, walk
from weft.loops.names import Names, rename_array
from weft.loops.orders import ordered_as_beside
from weft.loops.phases import in_phases
from weft.loops.simplify import base_name, drop_dead, hoist_invariants, inline, number, propagate, share, tidy_names


def finished(made: Function, targets: tuple[str, ...], sums: Iterable[str], temporary: Iterable[str], names: Names) -> Function:
    """The adjoint in the order of what it adds up. targets: its gradients. sums: arrays that begin as 0 and are added to alone.
    temporary: names that are written out where they are used once.
    """
    bases = {base_name(n) for n in temporary}
    made, phases = in_phases(from_the_start(made, targets), targets, names)
    made, rows = by_rows(made, targets, names)
    made = accumulate(made, (*phases, *rows, *targets), names)
    made = accumulate_before_use(accumulate_in_steps(made, names), names)
    kept = {a.name for a in made.arrays}
    stores = [s for s in walk(made.body) if isinstance(s, Store)]
    for array in sums:
        if array in kept and all(accumulation(s) for s in stores if s.array == array):
            made = store_once(made, array)
    made = drop_dead(propagate(made))
    made = share(hoist_invariants(share(made, names), names), names)
    made = inline(made, lambda n: base_name(n) in bases)
    made = _in_opmath(made, targets, names)
    made = taken_once(ordered_as_beside(tidy_names(drop_dead(propagate(made)))))
    validate(made)
    return made


def _in_opmath(made: Function, targets: tuple[str, ...], names: Names) -> Function:
    """Half-precision gradients that are summed in memory are summed in the op-math type and rounded at the end."""
    for target in targets:
        array = made.array(target)
        summed = any(isinstance(s, Store) and s.array == target and accumulation(s) for s in walk(made.body))
        if not summed or array.dtype == array.dtype.opmath:
            continue
        total = replace(array, name=names.fresh(f"{target}_sum"), dtype=array.dtype.opmath, role="local")
        total = replace(total, fill=number(0, total.dtype) if array.fill is not None else None)
        body = rename_array(made.body, target, total.name)
        body = (*body, *elementwise(target, array.shape, _loader(total), names))
        arrays = (*(replace(a, fill=None) if a.name == target else a for a in made.arrays), total)
        made = replace(made, body=body, arrays=arrays)
    return made


def _loader(array: Array) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda index: Load(array.name, index, array.dtype.opmath)
