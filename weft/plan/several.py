"""Threads that take several iterations of an axis at once: what these have in common is done once for all of them.

Where a sample of an image lies, which condition holds there, and how far a loop goes may be the same for all channels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from weft.loops.algebra.stops import stops
from weft.loops.ir import (
    Check,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    bodies,
    bound_names,
    free_arrays,
    free_names,
    operands,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.operators import COSTLY
from weft.loops.schedule import Nest
from weft.loops.types import FLOAT64
from weft.plan.arguments import Facts, nest_arrays
from weft.plan.threads import ThreadPlan, gives_up_neighbours, plan_threads

# Iterations that a thread may have at once. What it then does, at the most, of what it does one by one. Threads for which a
# multiprocessor has work all the same. Values of each iteration that lie in registers together, at the most.
_MANY, GAIN, THREADS, _REGISTERS = (2, 4, 8), 0.7, 1024, 48
# Instructions, about: of a load or a store with its address, a quotient or a costly function, a check, the number of an axis;
# of the same in double precision so many times as many.
_ACCESS, _DIVIDED, _FUNCTION, _CHECKED, _AXIS, _DOUBLE = 4, 8, 16, 3, 10, 3
# Instructions that iterations of what is mapped have in common at the least. Iterations that each read where data say:
# what neighbours read lies apart, and is read again from L1.
_LONG, _MANY_APART = 64, 4
_ITERATIONS = 4  # of a loop whose bounds are no numbers, about
_DIVIDING = frozenset(("div", "floordiv", "mod", "fmod", "truncdiv"))


def differing(statements: tuple[Stmt, ...], var: str) -> frozenset[str] | None:
    """The names of statements that are another in each iteration of an axis, with its own; None where these go through loops of
    their own.
    """
    found = {var}
    while True:
        before = len(found)
        if not _differ(statements, found):
            return None
        if len(found) == before:
            return frozenset(found)


def _differ(statements: tuple[Stmt, ...], found: set[str]) -> bool:
    """Find more names that differ; whether all iterations go through the same loops."""
    for stmt in statements:
        match stmt:
            case Let() if free_names(stmt.value) & found:
                found.add(stmt.name)
            case If() if free_names(stmt.condition) & found:
                inside = tuple(walk((stmt,)))
                if any(isinstance(s, For) for s in inside):
                    return False
                found.update(n for s in inside for n in bound_names(s))
            case If():
                if not (_differ(stmt.then, found) and _differ(stmt.orelse, found)):
                    return False
                found.update(m.name for m in stmt.merges if (free_names(m.then) | free_names(m.orelse)) & found)
            case For():
                if (free_names(stmt.start) | free_names(stmt.stop)) & found or stops(stmt, lambda _: False):
                    return False
                for c in stmt.carries:
                    if (free_names(c.init) | free_names(c.next) | {c.name}) & found:
                        found |= {c.name, c.result}
                if not _differ(stmt.body, found):
                    return False
    return True


def plan_several(
    function: Function, nest: Nest, facts: Facts, extents: Sequence[int], multiprocessors: int, mapped: bool = False,
    asked: Collection[str] = (),
) -> ThreadPlan | None:  # fmt: skip
    """The plan whose threads have several iterations of an axis; None where that saves too little. extents: of the axes.
    mapped: packets of neighbours would do, unless most of the work is the same for all iterations. asked: axes of which a
    block has neighbours, for which it asks what reaches them.
    """
    iterations = 1
    for n in extents:
        iterations *= n
    if reads_what_it_stores(nest) or any(a.within for a in nest_arrays(function, nest)):
        return None
    least, best = GAIN, None
    for axis, count in zip(nest.axes, extents, strict=True):
        names = None if axis.var in asked else differing(nest.body, axis.var)
        if names is None:
            continue
        work = _work(nest.body, names)
        if mapped and not (work.alike >= _LONG and work.alike >= 2 * work.own):
            continue
        alike, own = work.alike + _AXIS * len(nest.axes), work.own
        most = _MANY_APART if _chosen(nest.body, names) else _MANY[-1]
        carried = sum(c.name in names for s in nest.loops() for c in s.carries) + work.loads
        costs = [(least, 1)]
        for many in _MANY:
            groups = -(-count // many)
            cost = groups * (alike + many * own) / (count * (alike + own)) if count else 1.0
            fills = iterations // many >= multiprocessors * THREADS
            if cost < least and fills and many <= most and many * max(1, carried) <= _REGISTERS:
                costs.append((cost, many))
        cost, many = min(costs)
        if many > 1 and not gives_up_neighbours(nest, facts, axis.var):
            least, best = cost, (axis.var, many)
    if best is None:
        return None
    plan = plan_threads(nest, facts, iterations, best[0])
    return replace(plan, several=best)


def _chosen(statements: tuple[Stmt, ...], names: Collection[str]) -> bool:
    """Whether data say what is read for each of the iterations that these names tell apart."""
    told, found = set[str](), False
    for stmt in walk(statements):
        exprs = statement_exprs(stmt)
        if isinstance(stmt, Let) and (free_arrays(stmt.value) or free_names(stmt.value) & told):
            told.add(stmt.name)
        for load in (x for e in exprs if free_arrays(e) for x in walk_expr(e) if isinstance(x, Load)):
            index = [i for i in load.index if free_arrays(i) or free_names(i) & told]
            found = found or (bool(index) and any(free_names(i) & {*names} for i in load.index))
    return found


def reads_what_it_stores(nest: Nest) -> bool:
    """Whether anything but an element's own next value is made of what is stored: where iterations are fewer than a thread
    takes, the last one is done again, but for its stores.
    """
    stores = [s for s in walk(nest.body) if isinstance(s, Store)]
    stored = {s.array for s in stores}
    for stmt in walk(nest.body):
        for e in statement_exprs(stmt):
            own = Load(stmt.array, stmt.index, stmt.value.type) if isinstance(stmt, Store) and e is stmt.value else None
            loads = [x for x in walk_expr(e) if isinstance(x, Load)] if free_arrays(e) & stored else []
            if any(x.array in stored and x != own for x in loads):
                return True
    return False


@dataclass(frozen=True)
class Work:
    """About how many instructions are the same for all iterations of an axis, and how many each has for itself; how many loads
    of the latter wait for each other.
    """

    alike: float = 0.0
    own: float = 0.0
    loads: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.alike + other.alike, self.own + other.own, self.loads + other.loads)

    def times(self, many: float) -> Work:
        return Work(self.alike * many, self.own * many, self.loads)


def _work(statements: tuple[Stmt, ...], names: Collection[str]) -> Work:
    found = Work()
    for stmt in statements:
        own = Work()
        for e in statement_exprs(stmt):
            own += work_of(e, names)
        if isinstance(stmt, Store):
            own += Work(own=_ACCESS)
        inside = sum((_work(body, names) for body in bodies(stmt)), Work())
        if isinstance(stmt, For):
            many: float = _ITERATIONS
            if isinstance(stmt.start, Const) and isinstance(stmt.stop, Const):
                many = max(1, (stmt.stop.value - stmt.start.value) / stmt.step)
            found += (own + inside + Work(alike=_ACCESS)).times(many)
        else:
            found += own + inside
    return found


def work_of(e: Expr, names: Collection[str]) -> Work:
    """The work of an expression. names: those that differ."""
    if isinstance(e, (Const, Ref)):
        return Work()
    price = _price(e)
    differs = not free_names(e).isdisjoint(names)
    found = Work(own=price, loads=isinstance(e, Load)) if differs else Work(alike=price)
    for operand in operands(e):
        found += work_of(operand, names)
    return found


def _price(e: Expr) -> int:
    price = 1
    if isinstance(e, Load):
        price = _ACCESS
    elif isinstance(e, Check):
        price = _CHECKED
    elif isinstance(e, Op):
        price = _FUNCTION if e.name in COSTLY else _DIVIDED if e.name in _DIVIDING else 1
    return price * (_DOUBLE if e.type == FLOAT64 and not isinstance(e, Load) else 1)
