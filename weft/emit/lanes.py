"""The body of a nest taken apart for execution in lanes: several iterations of one parallel axis side by side.

A body that runs in lanes is a sequence of straight pieces, each of which becomes one loop over the lanes, and of loops
with the same bounds for every lane. What a straight piece passes on to another is an array with one element a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from weft.emit.subscripts import coefficient
from weft.errors import Location
from weft.loops.ir import (
    Carry,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Stmt,
    Store,
    bodies,
    bound_names,
    certain_in,
    free_arrays,
    free_names,
    operands,
    statement_exprs,
    walk,
    walk_expr,
    with_operands,
)
from weft.plan.arguments import Facts


@dataclass(frozen=True)
class Begin:
    """A carry takes its initial value."""

    carry: Carry


@dataclass(frozen=True)
class Advance:
    """The carries of a loop take their next values, all at once."""

    carries: tuple[Carry, ...]


Item = Stmt | Begin | Advance


@dataclass(frozen=True)
class Straight:
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Nested:
    loop: For
    body: tuple[Piece, ...]


Piece = Straight | Nested


def pieces(statements: tuple[Stmt, ...], carries: tuple[Carry, ...] = ()) -> tuple[Piece, ...]:
    """The pieces of a block; carries: those that the loop around it advances at its end."""
    out: list[Piece] = []
    pending: list[Item] = []
    for stmt in statements:
        if isinstance(stmt, For):
            pending += [Begin(c) for c in stmt.carries]
            if pending:
                out.append(Straight(tuple(pending)))
            out.append(Nested(stmt, pieces(stmt.body, stmt.carries)))
            pending = []
        else:
            pending.append(stmt)
    if carries:
        pending.append(Advance(carries))
    if pending:
        out.append(Straight(tuple(pending)))
    return tuple(out)


def straights(body: tuple[Piece, ...]) -> Iterator[Straight]:
    for piece in body:
        if isinstance(piece, Straight):
            yield piece
        else:
            yield from straights(piece.body)


def item_exprs(item: Item) -> Iterator[Expr]:
    """All expressions of an item, those of nested branches included."""
    if isinstance(item, Begin):
        yield item.carry.init
    elif isinstance(item, Advance):
        yield from (c.next for c in item.carries)
    else:
        for stmt in walk((item,)):
            yield from statement_exprs(stmt)


def passed_on(body: tuple[Piece, ...]) -> frozenset[str]:
    """Names bound in one straight piece and read in another."""
    bound: dict[str, int] = {}
    passed: set[str] = set()
    all_straights = list(straights(body))
    for number, piece in enumerate(all_straights):
        for item in piece.items:
            if not isinstance(item, Begin | Advance):
                bound |= dict.fromkeys(bound_names(item), number)
    for number, piece in enumerate(all_straights):
        for name in {n for item in piece.items for e in item_exprs(item) for n in free_names(e)}:
            if bound.get(name, number) != number:
                passed.add(name)
    return frozenset(passed)


def runs_in_lanes(function: Function, body: tuple[Stmt, ...], varying: set[str]) -> bool:
    """Whether every loop has the same bounds in all lanes, where `varying` are the names that differ between lanes."""
    arrays = {a.name for a in function.arrays if a.within}
    varying = set(varying)
    for stmt in walk(body):
        varying |= set(bound_names(stmt)) | ({c.name for c in stmt.carries} if isinstance(stmt, For) else set())
    if arrays & arrays_of(body):
        return False
    for stmt in walk(body):
        if isinstance(stmt, If) and any(isinstance(s, For) for b in bodies(stmt) for s in walk(b)):
            return False
        if isinstance(stmt, For):
            bounds = [e for bound in (stmt.start, stmt.stop) for e in walk_expr(bound)]
            if any(isinstance(e, Load) or (isinstance(e, Ref) and e.name in varying) for e in bounds):
                return False
    return True


# ---------------------------------------------------------------- accesses


def loads(statements: Iterable[Stmt]) -> Iterator[Load]:
    for stmt in walk(tuple(statements)):
        for expr in statement_exprs(stmt):
            if free_arrays(expr):
                yield from (e for e in walk_expr(expr) if isinstance(e, Load))


def stores(statements: Iterable[Stmt]) -> Iterator[Store]:
    yield from (s for s in walk(tuple(statements)) if isinstance(s, Store))


def arrays_of(statements: tuple[Stmt, ...]) -> set[str]:
    """The arrays that statements load from or store to."""
    return {e.array for e in loads(statements)} | {s.array for s in stores(statements)}


def own_elements_only(body: tuple[Stmt, ...]) -> bool:
    """Whether a load from an array that the body stores to always reads what this iteration has not stored yet: the
    very element that the array's one unconditional store writes afterwards. Then no element passes from one iteration
    to another, and loads may run ahead of stores.
    """
    stored = list(stores(body))
    for array in {s.array for s in stored}:
        mine = [s for s in stored if s.array == array]
        reads = [e for e in loads(body) if e.array == array]
        if not reads:
            continue
        if len(mine) > 1 or mine[0] not in body or any(e.index != mine[0].index for e in reads):
            return False
        after = body[body.index(mine[0]) + 1 :]
        if any(e.array == array for e in loads(after)):
            return False
    return True


@dataclass(frozen=True)
class Tiles:
    """Accesses of a loop, along whose variable they are consecutive: tiles of several rows can serve them.

    direction: of memory as the loop runs, +1 or -1, for each access.
    """

    loads: tuple[tuple[Load, int], ...]
    stores: tuple[tuple[Store, int], ...]


def tiles(loop: For, lane: str, uniform: set[str], facts: Facts) -> Tiles:
    """What of a straight loop with step 1 or -1 can be read and written by tiles of rows along the axis `lane`.

    uniform: the names besides the loop's variable and the lane's that a subscript may use.
    """
    if abs(loop.step) != 1 or any(isinstance(s, For) for s in loop.body) or not own_elements_only(loop.body):
        return Tiles((), ())

    def direction(array: str, index: tuple[Expr, ...]) -> int:
        names = set().union(*(free_names(i) for i in index))
        if not names <= uniform | {loop.var, lane} or any(isinstance(e, Load) for i in index for e in walk_expr(i)):
            return 0
        along = [coefficient(i, loop.var) for i in index]
        across = [coefficient(i, lane) for i in index]
        moving = [axis for axis, c in enumerate(along) if c != 0]
        if len(moving) != 1 or (array, moving[0]) not in facts.unit or None in across or not any(across):
            return 0
        step = along[moving[0]]
        return step * loop.step if step in (1, -1) else 0

    exprs = [e for s in loop.body if not isinstance(s, If) for e in statement_exprs(s)]
    exprs += [s.condition for s in loop.body if isinstance(s, If)] + [c.next for c in loop.carries]
    sure = dict.fromkeys(e for x in exprs for e in certain_in(x) if isinstance(e, Load))
    written = [s.array for s in stores(loop.body)]
    single = [s for s in loop.body if isinstance(s, Store) and written.count(s.array) == 1]
    return Tiles(
        tuple((e, d) for e in sure if (d := direction(e.array, e.index))),
        tuple((s, d) for s in single if (d := direction(s.array, s.index))),
    )


# ---------------------------------------------------------------- what an axis leaves as it is


def steady(
    statements: tuple[Stmt, ...], varying: set[str], own: set[str], fresh: Callable[[str], str]
) -> tuple[tuple[Let, ...], tuple[Stmt, ...]]:
    """What every iteration of an axis loads alike, and statements that use it by name; both together do what `statements` do
    wherever there is an iteration.

    varying: the names that are another in every iteration. own: the arrays that each has for itself. fresh: makes a name from
    an array's.
    """
    written = own | {s.array for s in stores(statements)}
    found: list[Let] = []
    known: dict[Expr, Ref] = {}
    varying = set(varying)

    def named(expr: Expr, base: str, location: Location | None) -> Expr:
        if expr not in known:
            known[expr] = Ref(fresh(base), expr.type)
            found.append(Let(known[expr].name, expr, location))
        return known[expr]

    def subscripts(index: tuple[Expr, ...], location: Location | None) -> tuple[Expr, ...]:
        """Those that count from the end where they are below 0 are told by name too."""
        found = (split(i, location) for i in index)
        chosen = (isinstance(i, Op) and i.name == "where" and not free_names(i) & varying for i in index)
        return tuple(named(i, "place", location) if c and not free_arrays(i) else i for i, c in zip(found, chosen, strict=True))

    def split(expr: Expr, location: Location | None) -> Expr:
        arrays = free_arrays(expr)
        if not arrays:
            return expr
        if not arrays & written and not free_names(expr) & varying:
            return named(expr, min(arrays), location)
        if isinstance(expr, Load):
            return replace(expr, index=subscripts(expr.index, location))
        parts = operands(expr)
        sure = 1 if isinstance(expr, Op) and expr.name in ("where", "and", "or") else len(parts)
        return with_operands(expr, (*(split(e, location) for e in parts[:sure]), *parts[sure:]))

    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let() if not free_arrays(stmt.value) & written and not free_names(stmt.value) & varying:
                found.append(stmt)
                varying.discard(stmt.name)
                continue
            case Let():
                stmt = replace(stmt, value=split(stmt.value, stmt.location))
            case Store():
                index = subscripts(stmt.index, stmt.location)
                stmt = replace(stmt, index=index, value=split(stmt.value, stmt.location))
            case If():
                stmt = replace(stmt, condition=split(stmt.condition, stmt.location))
        varying |= set(bound_names(stmt))
        out.append(stmt)
    return tuple(found), tuple(out)


# ---------------------------------------------------------------- what is needed


def needed(statements: tuple[Stmt, ...], roots: Iterable[Expr], keep: Iterable[str] = ()) -> tuple[Stmt, ...]:
    """The statements without the names that neither a store, a bound, a condition nor `roots` needs.

    keep: names to be treated as needed.
    """
    depends: dict[str, tuple[Expr, ...]] = {}
    wanted = list(roots)
    for stmt in walk(statements):
        match stmt:
            case Let(name=name, value=value):
                depends[name] = (value,)
            case For(carries=carries):
                for c in carries:
                    depends[c.name] = depends[c.result] = (c.init, c.next)
                wanted += [stmt.start, stmt.stop]
            case If(merges=merges):
                depends |= {m.name: (m.then, m.orelse) for m in merges}
                if any(isinstance(s, Store) for b in bodies(stmt) for s in walk(b)):
                    wanted.append(stmt.condition)
                depends |= {m.name: (m.then, m.orelse, stmt.condition) for m in merges}
            case Store():
                wanted += statement_exprs(stmt)
    live = set(keep)
    names = [n for n in live if n in depends]
    while wanted or names:
        while names:
            wanted += depends[names.pop()]
        found = free_names(wanted.pop()) - live if wanted else set()
        live |= found
        names = [n for n in found if n in depends]
    return _only(statements, live)


def _only(statements: tuple[Stmt, ...], live: set[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let(name=name) if name not in live:
                continue
            case For():
                carries = tuple(c for c in stmt.carries if c.name in live or c.result in live)
                stmt = replace(stmt, carries=carries, body=_only(stmt.body, live))
                if not stmt.body and not carries:
                    continue
            case If():
                merges: tuple[Merge, ...] = tuple(m for m in stmt.merges if m.name in live)
                stmt = replace(stmt, merges=merges, then=_only(stmt.then, live), orelse=_only(stmt.orelse, live))
                if not stmt.then and not stmt.orelse and not merges:
                    continue
        out.append(stmt)
    return tuple(out)
