"""How arrays lie that a call makes between its launches: their rows as they follow each other, or each from a packet on.

Rows of 1,023 elements begin anywhere. What multiplies them has to have them in packets, and packs them first, in a launch of
its own; where they are stored so that each begins a packet, nothing is packed. Which arrays are depends on each other through
the nests that touch several: it is chosen for all at once (weft.plan.choices), by what the launches of each nest leave for each
other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace

from weft.compiler.analysis import Analysis
from weft.compiler.intermediates import own_memory
from weft.compiler.launch import Launch
from weft.compiler.planning import launches
from weft.plan.arguments import nest_arrays
from weft.plan.choices import Choice, NoChoice, Pair, choose
from weft.plan.facts import Geometry
from weft.plan.fold import PACKET_BYTES
from weft.plan.machine import Machine
from weft.plan.traffic import LAUNCH_SECONDS, REACHED

# Bytes of an array from which on its rows may be set apart; arrays of a nest of which each way is looked at.
WORTH, MOST_TOGETHER = 1 << 20, 3


def laid_out(
    analysis: Analysis, arrays: Mapping[str, Geometry], names: Mapping[str, int], machine: Machine
) -> dict[str, Geometry]:
    """The arrays of a call, those that it makes between its launches as they are best stored."""
    function, nests = analysis.function, analysis.schedule.nests
    local = [a for a in function.arrays if a.role == "local" and not a.within and a.fill is None and a.name in arrays]
    padded = {a.name: own for a in local if a.name not in function.results and (own := _padded(arrays[a.name])) is not None}
    touched = [[a.name for a in nest_arrays(function, nest) if a.name in padded] for nest in nests]
    together = [k for k, own in enumerate(touched) if own]
    if not padded or any(len(touched[k]) > MOST_TOGETHER for k in together):
        return dict(arrays)

    def cost(k: int, ways: tuple[int, ...]) -> int:
        at = {**arrays, **{n: padded[n] for n, way in zip(touched[k], ways, strict=True) if way}}
        moved = sum(at[n].span() * at[n].dtype.size for n in touched[k])
        return _nanoseconds(launches(analysis, k, at, names, machine), moved, machine)

    if not any(_packs(launches(analysis, k, arrays, names, machine)) for k in together):
        return dict(arrays)
    choices, pairs = [Choice(n, (0, 0)) for n in padded], []
    for k in together:
        combinations = [*itertools.product((0, 1), repeat=len(touched[k]))]
        choices.append(Choice(f"nest {k}", tuple(cost(k, ways) for ways in combinations)))
        for place, name in enumerate(touched[k]):  # a nest is planned for the arrays as they are
            agree = tuple(tuple(0 if ways[place] == way else None for way in (0, 1)) for ways in combinations)
            pairs.append(Pair(f"nest {k}", name, agree))
    try:
        chosen = choose(choices, pairs)
    except NoChoice:  # too many to try, and no solver
        return dict(arrays)
    return {**arrays, **{n: own for n, own in padded.items() if chosen.options[n]}}


def _padded(geometry: Geometry) -> Geometry | None:
    """An array with rows that begin packets; None where they do, or it is none of several rows, or small."""
    count, axis = PACKET_BYTES // geometry.dtype.size, geometry.unit_axis
    others = [k for k, n in enumerate(geometry.shape) if k != axis and n > 1]
    if axis is None or not others or count < 2 or geometry.span() * geometry.dtype.size < WORTH:
        return None
    if geometry.in_packets(count) or any(geometry.strides[k] <= geometry.strides[axis] for k in others):
        return None
    width = -(-geometry.shape[axis] // count) * count
    inner = sorted(others, key=lambda k: geometry.strides[k])
    strides = list(geometry.strides)
    for place, k in enumerate(inner):
        strides[k] = width * math.prod(geometry.shape[j] for j in inner[:place])
    return replace(geometry, strides=tuple(strides))


def _packs(program: tuple[Launch, ...]) -> bool:
    return any(".packed" in i.name for one in program for i in own_memory(one))


def _nanoseconds(program: tuple[Launch, ...], moved: int, machine: Machine) -> int:
    """What launches cost, what they leave for each other, and so many bytes more that are moved."""
    own = {i.name: i.bytes for one in program for i in own_memory(one)}
    return round(1e9 * (len(program) * LAUNCH_SECONDS + (2 * sum(own.values()) + moved) / (REACHED * machine.bandwidth)))
