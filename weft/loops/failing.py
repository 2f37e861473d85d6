"""Which iteration of a nest fails, found by executing its meaning once a kernel has told that one does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from weft.loops.interpret import CheckFailed, _Machine
from weft.loops.ir import Fault, For, Function, Load, Stmt, Store, statement_exprs, walk, walk_expr
from weft.loops.schedule import Nest

# What takes longer to find is not told.
_MOST_STATEMENTS = 50_000


@dataclass(frozen=True)
class Failing:
    """The values of the loops' variables in it, outermost first. subscript: the one that leaves its array, if that is it."""

    loops: tuple[tuple[str, int], ...]
    subscript: tuple[int, ...] = ()


def failing(
    function: Function, nest: Nest, arrays: dict[str, torch.Tensor], names: dict[str, Any], what: Fault | str
) -> Failing | None:
    """The first iteration, in the order of the nest, that has this fault or leaves the array of this name. None where it is not
    found: what the nest has read may be overwritten by now, and some faults depend on how numbers are rounded.
    """
    loads = {e.array for s in walk(nest.body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)}
    stored = {s.array for s in walk(nest.body) if isinstance(s, Store)}
    shared = {a.name for a in function.arrays if not a.within} & loads & stored
    if shared:
        return None
    machine = _Seeker(function, {n: a.clone() if n in stored else a for n, a in arrays.items()}, dict(names))
    body = nest.body
    for axis in reversed(nest.axes):
        body = (For(axis.var, axis.start, axis.stop, axis.step, (), body),)
    try:
        machine.run(body)
    except CheckFailed as failed:
        return machine.iteration() if failed.check.fault == what else None
    except _Left as left:
        return machine.iteration(left.at) if left.array == what else None
    except Exception:  # it is but to tell more of an error that is raised anyway
        return None
    return None


class _Left(Exception):
    def __init__(self, array: str, at: tuple[int, ...]) -> None:
        self.array, self.at = array, at


class _Seeker(_Machine):
    """open: the variables of the loops that are running."""

    def __init__(self, function: Function, arrays: dict[str, torch.Tensor], names: dict[str, Any]) -> None:
        super().__init__(function, arrays, names)
        self.open: list[str] = []
        self.left = _MOST_STATEMENTS

    def run(self, statements: tuple[Stmt, ...]) -> None:
        self.left -= len(statements)
        if self.left < 0:
            raise TimeoutError
        super().run(statements)

    def loop(self, loop: For) -> None:
        self.open.append(loop.var)
        super().loop(loop)
        self.open.pop()

    def iteration(self, subscript: tuple[int, ...] = ()) -> Failing:
        return Failing(tuple((var, self.names[var]) for var in self.open if var in self.names), subscript)

    def subscript(self, array: str, index: tuple[Any, ...]) -> tuple[int, ...]:
        try:
            return super().subscript(array, index)
        except IndexError:
            raise _Left(array, tuple(int(self.evaluate(i)) for i in index)) from None
