"""Accumulations into arrays, `array[index] += value`, turned into sums over scalars that run in parallel.

An adjoint hands every derivative on to the element that it is of, in whatever order the loops of the function have.
Here the loops are put in the order of the elements: sums are carried out of the loops that an index does not name, sites
become nests of their own that gather what an element gets, and the first to reach an element stores.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate.closure import Closure, Settled, reads_of_each_point, repeated
from weft.loops.accumulate.gather import gather
from weft.loops.accumulate.hoisting import hoist, summed_outside
from weft.loops.accumulate.in_place import merged, spread_out, store_once
from weft.loops.accumulate.plans import asking_inside, from_the_start
from weft.loops.accumulate.ranges import as_long, ascending, ascending_loop, has_state_arrays, in_range, reaches_all, upwards
from weft.loops.accumulate.sites import Edit, Site, accumulate_into, accumulation, all_of, between, in_full, often, sites_of
from weft.loops.accumulate.steady import Steady
from weft.loops.ir import Function
from weft.loops.names import Names

__all__ = [
    "Closure",
    "Edit",
    "Settled",
    "Site",
    "Steady",
    "accumulate",
    "accumulate_into",
    "accumulation",
    "all_of",
    "as_long",
    "ascending",
    "ascending_loop",
    "asking_inside",
    "between",
    "from_the_start",
    "has_state_arrays",
    "in_full",
    "in_range",
    "often",
    "reaches_all",
    "reads_of_each_point",
    "repeated",
    "sites_of",
    "store_once",
    "summed_outside",
    "upwards",
]


def accumulate(function: Function, targets: tuple[str, ...], names: Names) -> Function:
    """Give the accumulations into the arrays `targets` a form that runs in parallel.

    targets: arrays filled with 0 that the function touches by `array[index] += value` alone. Where an element gets
    many values, they become a sum carried by a loop of its own; where it gets one, a plain store. What cannot be
    brought into either form stays as it is.
    """
    for target in targets:
        steady = Steady(function, names)
        function = steady.named(function)
        function = replace(function, body=hoist(function, function.body, target, (), names))
        function = steady.written_out(gather(function, target, names))
        function = spread_out(function, target, names)
        function = merged(function, target, names)
        function = store_once(function, target)
    return function
