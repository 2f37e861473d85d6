"""The plan of a nest whose iterations share nothing: a thread works through the whole body of one, or a block does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.loops.accesses import collect
from weft.loops.affine import Affine
from weft.loops.ir import Const, Expr, For, Function, Let, Op, Ref, Store, checks_in, free_names, walk
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts, nest_arrays


@dataclass(frozen=True)
class ThreadPlan:
    """order: the axes from the slowest to the fastest, along which neighbouring threads lie. block: threads a block. narrow:
    iterations of several axes are counted in 32 bits. shared: a block works through an iteration, whose threads share its
    parallel loops, one after another. several: an axis, and how many iterations of it a thread has at once (1: of none).
    tile: how many of each axis a block has, where it asks iterations of loops for all of its elements at once.
    """

    order: tuple[str, ...]
    block: int
    narrow: bool = False
    shared: bool = False
    several: tuple[str, int] = ("", 1)
    tile: tuple[tuple[str, int], ...] = ()

    @property
    def each(self) -> str:
        """What a thread has, for people."""
        var, many = self.several
        return ", ".join(f"{many} of {v}" if v == var else v for v in self.order)


# Iterations up to which they are counted in 32 bits: what is added to the number of one, the threads of a grid, is no more.
_NARROW = 1 << 31
BLOCK, SHARING = 128, 256
# Places between what neighbours read up to which it is in the same lines of memory.
_NEAR = 4
# Iterations of a loop inside, for each of which what it touches counts, where it is weighed what most of memory lies along.
_OFTEN = 8


def plan_threads(nest: Nest, facts: Facts, iterations: int, several: str = "") -> ThreadPlan:
    """Neighbouring threads take neighbours in memory: the fastest axis is the one most arrays have unit stride along.
    iterations: the most that there are. several: an axis of which threads have several at once, and thus not along it, if
    anything lies along another one.
    """
    order = [a.var for a in nest.axes]
    if order:
        fastest = _fastest(*_weighed(nest, facts), several)
        order.remove(fastest)
        order.append(fastest)
    return ThreadPlan(tuple(order), BLOCK, len(order) > 1 and iterations < _NARROW - BLOCK)


def gives_up_neighbours(nest: Nest, facts: Facts, several: str) -> bool:
    """Whether neighbours touch what is side by side along an axis, and do not where threads have several iterations of it."""
    votes, apart = _weighed(nest, facts)
    return bool(votes[several]) and _fastest(votes, apart) == several != _fastest(votes, apart, several)


def _fastest(votes: Mapping[str, int], apart: Mapping[str, int], several: str = "") -> str:
    """The axis along which neighbouring threads lie, of those that `_weighed` tells about."""
    others = [v for v in votes if v != several and votes[v]] if several else []
    return min(reversed(others or [*votes]), key=lambda v: (apart[v], -votes[v]))


def _weighed(nest: Nest, facts: Facts) -> tuple[dict[str, int], dict[str, int]]:
    """Of each axis, what neighbours along it touch side by side in memory, and what in places of their own."""
    around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in nest.axes)
    depends = _depending(nest)
    windows = _windows(nest, depends)
    votes = {a.var: 0 for a in nest.axes}
    apart = {a.var: 0 for a in nest.axes}  # what neighbours along an axis have in places of their own
    for access in collect(nest.body, around):
        often = _OFTEN ** (len(access.loops) - len(around))
        names = [{n for m in free_names(i) for n in (m, *depends.get(m, ()))} for i in access.index]
        for var in votes:
            unit = [
                k for k, form in enumerate(access.subscript)
                if (access.array, k) in facts.unit and form is not None and form == Affine(((var, 1),), form.constant)
            ]  # fmt: skip
            votes[var] += often * len(unit)
            near = [k for k, form in enumerate(access.subscript)
                    if (access.array, k) in facts.unit and form is not None and _near(form, var, depends, windows)]  # fmt: skip
            apart[var] += often * any(var in own for k, own in enumerate(names) if k not in (*unit, *near))
    return votes, apart


def _depending(nest: Nest) -> dict[str, set[str]]:
    """The axes that the names of a body depend on, as far as they tell places: those of loops where they begin."""
    found: dict[str, set[str]] = {a.var: {a.var} for a in nest.axes}
    for stmt in walk(nest.body):
        if isinstance(stmt, Let | For):
            name, e = (stmt.name, stmt.value) if isinstance(stmt, Let) else (stmt.var, stmt.start)
            found[name] = set[str]().union(*(found.get(n, ()) for n in free_names(e)))
    return found


def _windows(nest: Nest, depends: Mapping[str, set[str]]) -> dict[str, dict[str, float]]:
    """How far the loops of a body move with each axis: by their starts, where these are made of axes and sizes alone."""
    axes, found = {a.var for a in nest.axes}, dict[str, dict[str, float]]()
    for loop in (s for s in walk(nest.body) if isinstance(s, For)):
        names = free_names(loop.start)
        if all(n in axes for n in names if depends.get(n)):
            paces = {v: _pace(loop.start, v) for v in names & axes}
            found[loop.var] = {v: p for v, p in paces.items() if p is not None}
    return found


def _pace(e: Expr, var: str) -> float | None:
    """How far a number moves with a variable, about; None where that is not told."""
    match e:
        case Ref(name=name) if name == var:
            return 1.0
        case Op(name="add" | "sub" | "max" | "min" as name, args=(a, b)):
            one, other = _pace(a, var), _pace(b, var)
            if one is None or other is None:
                return None
            return abs(one) + abs(other) if name in ("add", "sub") else max(one, other)
        case Op(name="floordiv", args=(a, Const(value=divisor))) if divisor > 0:
            one = _pace(a, var)
            return None if one is None else one / divisor
        case Op(name="mul", args=(a, Const(value=factor))) | Op(name="mul", args=(Const(value=factor), a)):
            one = _pace(a, var)
            return None if one is None else one * abs(factor)
    return None if var in free_names(e) else 0.0


def _near(form: Affine, var: str, depends: Mapping[str, set[str]], windows: Mapping[str, dict[str, float]]) -> bool:
    """Whether a subscript along memory has places beside each other for neighbours along an axis: it counts that, or goes
    through a window that moves with it.
    """
    moving = [n for n in form.names if n == var or var in depends.get(n, ())]
    paces = [abs(form.coefficient(n)) * (1.0 if n == var else windows.get(n, {}).get(var, math.inf)) for n in moving]
    return bool(paces) and max(paces) <= _NEAR


def plan_sharing(function: Function, nest: Nest, facts: Facts, iterations: int) -> ThreadPlan | None:
    """The plan whose blocks share the loops of an iteration; None where it is not made of parallel loops and single stores."""
    own = {s.var for s in nest.body if isinstance(s, For) and not s.carries and nest.verdict(s).kind == "parallel"}
    if not own or not all(isinstance(s, Let | Store) or (isinstance(s, For) and s.var in own) for s in nest.body):
        return None
    axes = {a.var for a in nest.axes}
    if checks_in(nest.body) or any(a.within and a.within[-1] in axes for a in nest_arrays(function, nest)):
        return None
    return replace(plan_threads(nest, facts, iterations), block=SHARING, shared=True)
