"""What Python raises in values that nothing uses: such a value is left out, and what may be wrong with it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.affine import evaluate, is_bound
from weft.loops.faults import Faults
from weft.loops.ir import (
    Expr,
    For,
    Function,
    If,
    Let,
    Stmt,
    Store,
    filtered,
    free_names,
    loaded_arrays,
    map_statement,
    statement_exprs,
    substitute,
    walk,
)
from weft.loops.live import Uses
from weft.loops.names import Names
from weft.loops.normalize import drop_unused, fold_index_arithmetic, simplify

_NONE: frozenset[str] = frozenset()


def with_faults(function: Function, spare: frozenset[str] = _NONE) -> Function:
    """The function, with the faults of what no store depends on stored by themselves instead, if there are any. What the call
    looks at is stored with them, so that it still does.

    spare: names that may be left out, whatever they are.
    """
    if not Faults(function).possible:
        return function
    folded = fold_index_arithmetic(function)
    if _Reader(Faults(folded), spare).made() is folded:
        return function
    made = _Reader(Faults(folded, every=True), spare).made()
    return replace(made, body=drop_unused(made.body))  # what may be wrong with it is said once


def empty_loops(body: tuple[Stmt, ...], names: Mapping[str, int]) -> frozenset[str]:
    """The loops, by variable, that run for no iteration where sizes and integer scalars are these."""
    loops = [s for s in walk(body) if isinstance(s, For)]
    known = [f for f in loops if is_bound(f.start, names) and is_bound(f.stop, names)]
    return frozenset(f.var for f in known if not range(evaluate(f.start, names), evaluate(f.stop, names), f.step))


def without_loops(function: Function, empty: frozenset[str]) -> Function:
    """The function without these loops, which run for no iteration: what they carry is what it was before."""
    if not empty:
        return function
    names: dict[str, Expr] = {}
    for loop in walk(function.body):
        if isinstance(loop, For) and loop.var in empty:
            names |= {c.result: substitute(c.init, names) for c in loop.carries}

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        kept = (s for s in body if not (isinstance(s, For) and s.var in empty))
        return tuple(map_statement(s, lambda e: substitute(e, names), block) for s in kept)

    return replace(function, body=block(function.body))


def faults_kept(function: Function, spare: frozenset[str]) -> Function:
    """The function with the faults of what no store depends on stored beside it: the call looks at another one."""
    faults = Faults(function)
    return _Reader(faults, spare).made() if faults.possible else function


def dropped(function: Function, around: tuple[For, ...], names: Names) -> Function:
    """The function without what no store depends on but for its faults. around: the loops around its statements."""
    faults = Faults(function, around, names)
    made = _Reader(faults, _NONE).made() if faults.possible else function
    return replace(made, body=drop_unused(made.body))


def without_unread(
    function: Function, around: tuple[For, ...], body: tuple[Stmt, ...], alone: frozenset[str]
) -> tuple[Stmt, ...]:
    """The statements of a nest in which nothing can fail, without what they store in arrays that the function makes and nobody
    reads any more. alone: arrays that no other nest touches.
    """
    unread = {a.name for a in function.arrays if a.role == "local" and a.name in alone and a.name not in function.results}
    unread -= loaded_arrays(body) | function.checked  # a store may leave its array
    stored = {s.array for s in walk(body) if isinstance(s, Store)}
    if not unread & stored or Faults(replace(function, body=body), around).possible:
        return body
    return drop_unused(filtered(body, lambda s: not (isinstance(s, Store) and s.array in unread)))


@dataclass
class _Reader:
    """Walks statements backwards; `needed` are the names that what follows uses once it is simplified, `loops` the variables
    around.
    """

    faults: Faults
    spare: frozenset[str]
    uses: Uses = field(default_factory=Uses)

    def made(self) -> Function:
        function = self.faults.function
        self.uses = Uses.of(function.body, _names_of)
        body = self.block(function.body, set(), ())
        return function if body == function.body else self.faults.stored_in(body)

    def block(self, body: tuple[Stmt, ...], needed: set[str], loops: tuple[str, ...]) -> tuple[Stmt, ...]:
        out: tuple[Stmt, ...] = ()
        for stmt in reversed(body):
            made: tuple[Stmt, ...]
            match stmt:
                case Let(name=name, value=value) if name not in needed:
                    idle = () if name in self.spare else self.stores((value,), stmt, needed, loops)
                    made = (stmt, *idle)
                case If():
                    made = self.branch(stmt, needed, loops)
                case For():
                    made = self.loop(stmt, needed, loops)
                case _:
                    needed |= _names(statement_exprs(stmt))
                    made = (stmt,)
            out = (*made, *out)
        return out

    def branch(self, stmt: If, needed: set[str], loops: tuple[str, ...]) -> tuple[Stmt, ...]:
        merges = [m for m in stmt.merges if m.name in needed]
        idle = [m for m in stmt.merges if m.name not in needed and m.name not in self.spare]
        sides = []
        for body, values, unused in (
            (stmt.then, [m.then for m in merges], [m.then for m in idle]),
            (stmt.orelse, [m.orelse for m in merges], [m.orelse for m in idle]),
        ):
            needed |= _names(values)
            stores = self.stores(unused, stmt, needed, loops)
            sides.append((*self.block(body, needed, loops), *stores))
        then, orelse = sides
        if merges or _stores(then) or _stores(orelse):
            needed |= _names((stmt.condition,))
            return (replace(stmt, then=then, orelse=orelse),)
        return (*self.stores((stmt.condition,), stmt, needed, loops), stmt)

    def loop(self, stmt: For, needed: set[str], loops: tuple[str, ...]) -> tuple[Stmt, ...]:
        bounds = (stmt.start, stmt.stop)
        kept = self.needed_by_stores(stmt, needed)
        inside = _names(c.next for c in stmt.carries if c.name in kept)
        idle = [c for c in stmt.carries if c.name not in kept and c.name not in self.spare]
        stores = self.stores([c.next for c in idle], stmt, inside, (*loops, stmt.var))
        body = (*self.block(stmt.body, inside, (*loops, stmt.var)), *stores)
        while more := [c for c in stmt.carries if c.name in inside and c.name not in kept]:  # what decides a fault
            kept |= {c.name for c in more}
            inside |= _names(c.next for c in more)
        inits = [c.init for c in idle if c.name not in kept]
        needed |= inside | _names(c.init for c in stmt.carries if c.name in kept)
        if kept or _stores(body):
            needed |= _names(bounds)
            return (*self.stores(inits, stmt, needed, loops), replace(stmt, body=body))
        return (*self.stores((*inits, *bounds), stmt, needed, loops), stmt)

    def needed_by_stores(self, stmt: For, needed: set[str]) -> set[str]:
        """The carries that the loop's own stores, or what follows, depend on; not those that a fault alone does."""
        inside = self.uses.needed((c.name for c in stmt.carries if c.result in needed), stmt)
        return {c.name for c in stmt.carries if c.name in inside}

    def stores(self, exprs: Iterable[Expr], stmt: Stmt, needed: set[str], loops: tuple[str, ...]) -> tuple[Store, ...]:
        """What may be wrong with expressions that nothing uses."""
        stores = self.faults.stores(exprs, loops, stmt)
        needed |= _names(s.value for s in stores)
        return stores


def _names_of(expr: Expr) -> frozenset[str]:
    return free_names(simplify(expr)) if free_names(expr) else _NONE


def _names(exprs: Iterable[Expr]) -> set[str]:
    return {n for e in exprs for n in _names_of(e)}


def _stores(body: tuple[Stmt, ...]) -> bool:
    return any(isinstance(s, Store) for s in walk(body))
