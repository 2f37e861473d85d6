"""A nest that stores something at every point, and one beside it, which folds at the same points, as one nest.

The gradient of a bias beside what a layer hands back: both go through the same elements, or one reads what the other has
stored. Together they read once, and what is stored is still at hand. The points are then gone through as the folds need them,
with fewer rows side by side, so this is for machines where many threads share the points of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from weft.loops.automatic.rewriting import copied
from weft.loops.ir import (
    Expr,
    For,
    Function,
    Let,
    Load,
    Ref,
    Stmt,
    Store,
    free_names,
    has_check,
    map_statement,
    rewrite,
    statement_exprs,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.rounding import Rounding
from weft.loops.schedule import Axis, Nest
from weft.loops.types import INT64

_Place = tuple[str, tuple[Expr, ...]]


def at_once(function: Function, mapping: Nest, folding: Nest, first: bool = True) -> Nest | None:
    """The stores of one nest in the innermost of the loops that another one next to it folds in; None where its points are
    others, or where one of the nests would meet the other's arrays earlier or later than it does. first: whether the one that
    stores comes before the other.
    """
    inner = _innermost(folding.body)
    if inner is None or any(isinstance(s, For) for s in walk(mapping.body)) or not _apart(function, mapping, folding, first):
        return None
    places = _same_points(mapping, folding, inner)
    if places is None:
        return None
    names = Names.of(function)
    names.taken |= names_bound_in((*mapping.body, *folding.body)) | {a.var for a in (*mapping.axes, *folding.axes)}
    axis, *_ = mapping.axes
    own, _ = copied(For(axis.var, axis.start, axis.stop, axis.step, (), mapping.body), names)
    stored: dict[_Place, Ref] = {}
    body: list[Stmt] = []
    for s in substitute_statements(own.body, {**places, own.var: places[axis.var]}):
        if isinstance(s, Store):
            value = Let(names.fresh(f"{s.array}_value"), s.value, s.location)
            stored[s.array, s.index] = made = Ref(value.name, value.value.type)
            body += [value, replace(s, value=made)]
        else:
            body.append(s)
    rounding = Rounding.of(function, body)
    found = {place: rounding.stored(place[0], value) for place, value in stored.items()}
    written = {array for array, _ in stored}
    for e in _loads(_exprs((inner,))):
        if e.array in written and ((e.array, e.index) not in found or found[e.array, e.index].type != e.type):
            return None
    if any(e.array in written for e in _loads(_exprs(_without(folding.body, inner)))):
        return None

    def at_hand(e: Expr) -> Expr:
        return rewrite(e, lambda x: found.get((x.array, x.index)) if isinstance(x, Load) else None)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_statement(s, at_hand, block) for s in statements)

    carries = tuple(replace(c, next=at_hand(c.next)) for c in inner.carries)
    whole = replace(inner, carries=carries, body=(*body, *block(inner.body)))
    return replace(folding, name=mapping.name, body=_with(folding.body, inner, whole))


def _innermost(statements: tuple[Stmt, ...]) -> For | None:
    """The innermost loop, where loops that fold lie around each other, one in each; it stores nothing."""
    loops = [s for s in statements if isinstance(s, For)]
    if len(loops) != 1 or not loops[0].carries or not all(isinstance(s, Let | Store | For) for s in statements):
        return None
    (loop,) = loops
    if any(isinstance(s, For) for s in loop.body):
        return None if any(isinstance(s, Store) for s in loop.body) else _innermost(loop.body)
    return None if any(isinstance(s, Store | For) for s in walk(loop.body)) else loop


def _apart(function: Function, mapping: Nest, folding: Nest, first: bool) -> bool:
    """Whether what one nest stores, the other one does not touch, but for what the second folds of the first."""
    stores = [s for s in mapping.body if isinstance(s, Store)]
    written, others = {s.array for s in stores}, {s.array for s in walk(folding.body) if isinstance(s, Store)}
    read = {e.array for e in _loads(_exprs(mapping.body))}
    folded = {e.array for e in _loads(_exprs(folding.body))}
    touched = written | others | read | folded
    if written & (others | read) or read & others or not first and written & folded:
        return False
    if len(written) < sum(isinstance(s, Store) for s in walk(mapping.body)):  # twice, or on a condition
        return False
    if touched & function.checked or any(a.within for a in function.arrays if a.name in touched):
        return False
    variables = {a.var for a in mapping.axes}
    each = ([i.name for i in s.index if isinstance(i, Ref) and i.name in variables] for s in stores)
    return all(len(own) == len({*own}) == len(variables) for own in each) and not any(
        has_check(e) for e in _exprs((*mapping.body, *folding.body))
    )


def _same_points(mapping: Nest, folding: Nest, inner: For) -> dict[str, Expr] | None:
    """Which axis or loop of one nest each axis of the other is, as something that both touch tells."""
    ranges = {a.var: (a.start, a.stop, a.step) for a in folding.axes}
    ranges |= {s.var: (s.start, s.stop, s.step) for s in walk(folding.body) if isinstance(s, For)}
    own = [(s.array, s.index) for s in mapping.body if isinstance(s, Store)]
    own += [(e.array, e.index) for e in _loads(_exprs(mapping.body))]
    for array, index in own:
        for load in _loads(_exprs((inner,))):
            axes = _axes(mapping.axes, index, load.index) if load.array == array else {}
            same = all((a.start, a.stop, a.step) == ranges.get(axes.get(a.var, "")) for a in mapping.axes)
            if same and len({*axes.values()}) == len(axes) == len(ranges):
                return {own: Ref(its, INT64) for own, its in axes.items()}
    return None


def _axes(axes: Iterable[Axis], index: tuple[Expr, ...], other: tuple[Expr, ...]) -> dict[str, str]:
    """Of axes that are subscripts by themselves, what is in their place; nothing where the other subscripts differ."""
    variables, found = {a.var for a in axes}, {}
    for a, b in zip(index, other, strict=True):
        if isinstance(a, Ref) and a.name in variables and isinstance(b, Ref):
            found[a.name] = b.name
        elif a != b or free_names(a) & variables:
            return {}
    return found


def _exprs(statements: Iterable[Stmt]) -> Iterator[Expr]:
    return (e for s in walk(tuple(statements)) for e in statement_exprs(s))


def _loads(exprs: Iterable[Expr]) -> Iterator[Load]:
    return (x for e in exprs for x in walk_expr(e) if isinstance(x, Load))


def _without(statements: tuple[Stmt, ...], loop: For) -> tuple[Stmt, ...]:
    """The statements with a loop that does nothing."""
    return _with(statements, loop, replace(loop, carries=tuple(replace(c, next=c.init) for c in loop.carries), body=()))


def _with(statements: tuple[Stmt, ...], loop: For, other: For) -> tuple[Stmt, ...]:
    """The statements with another loop in the place of one."""
    return tuple(
        other if s is loop else replace(s, body=_with(s.body, loop, other)) if isinstance(s, For) else s
        for s in statements
    )
