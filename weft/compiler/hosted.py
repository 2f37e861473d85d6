"""How a nest runs for a call on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.compiler.analysis import Analysis
from weft.loops.affine import evaluate
from weft.plan.arguments import Facts, nest_arrays
from weft.plan.chain_rows import rows_in_lanes
from weft.plan.facts import Geometry, facts_of


@dataclass(frozen=True)
class Hosted:
    """row: of chained products, the axis whose rows lie side by side in lanes."""

    facts: Facts
    row: str | None = None


def hosted(analysis: Analysis, nest: int, arrays: Mapping[str, Geometry], names: Mapping[str, int]) -> Hosted:
    """arrays: of the call. names: the values of sizes and integer scalars."""
    function, own, chain = analysis.function, analysis.schedule.nests[nest], analysis.lowered[nest].chain
    used = {a.name: arrays[a.name] for a in nest_arrays(function, own)}
    extents = [len(range(evaluate(a.start, names), evaluate(a.stop, names), a.step)) for a in own.axes]
    facts = facts_of(used, extents)
    row = None if chain is None else rows_in_lanes(function, own, chain, names, arrays)
    if chain is None or row is None:
        return Hosted(facts)
    return Hosted(replace(facts, without=frozenset(used) - chain.arrays), row)
