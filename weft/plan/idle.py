"""Loops whose iterations may run side by side, and that a thread goes through in order all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weft.loops.affine import evaluate
from weft.loops.ir import Expr, For, Stmt, bodies
from weft.loops.schedule import Axis, Nest

# Iterations from which on it matters how a loop runs, and from which on it counts with the loops around it; how many there
# are where data decide.
MANY, FEW, UNKNOWN = 32, 4, 1024


def in_order(nest: Nest, names: Mapping[str, int]) -> tuple[For, ...]:
    """The loops inside a nest that are no sequential ones and have iterations enough, by themselves or with those around them.
    names: the values of sizes and integers.
    """
    ends: dict[str, tuple[int, int]] = {}
    for axis in nest.axes:
        _iterations(axis, names, ends)
    return tuple(_found(nest, nest.body, names, ends, 1))


def _found(
    nest: Nest, statements: tuple[Stmt, ...], names: Mapping[str, int], ends: dict[str, tuple[int, int]], around: int
) -> Iterator[For]:
    for stmt in statements:
        inside = around
        if isinstance(stmt, For):
            count = _iterations(stmt, names, ends)
            if nest.verdict(stmt).kind != "sequential":
                inside = around * max(1, count)
                if count >= FEW and inside >= MANY:
                    yield stmt
        for body in bodies(stmt):
            yield from _found(nest, body, names, ends, inside)


def _iterations(loop: For | Axis, names: Mapping[str, int], ends: dict[str, tuple[int, int]]) -> int:
    """The most iterations of a loop, where those around it begin or end; its first and last value are noted."""
    try:
        starts, stops = (list(_values(e, names, ends)) for e in (loop.start, loop.stop))
    except (KeyError, ZeroDivisionError):
        ends[loop.var] = (0, UNKNOWN - 1)
        return UNKNOWN
    spans = [range(a, b, loop.step) for a, b in zip(starts, stops, strict=True)]
    values = [v for span in spans if span for v in (span[0], span[-1])] or starts
    ends[loop.var] = (min(values), max(values))
    return max(map(len, spans))


def _values(e: Expr, names: Mapping[str, int], ends: Mapping[str, tuple[int, int]]) -> Iterator[int]:
    """What an expression is with the loops around at their first values, and at their last."""
    for k in (0, 1):
        yield evaluate(e, {**names, **{name: both[k] for name, both in ends.items()}})
