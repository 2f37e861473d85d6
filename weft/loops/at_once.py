"""A nest that stores something at every point, and the next one, which folds at the same points, as one nest.

The gradient of a bias beside what a layer hands back: both go through the same elements, or one reads what the other has
stored. Together they read once, and what is stored is still at hand. The points are then gone through as the folds need them,
with fewer rows side by side, so this is for machines where many threads share the points of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

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
    rewrite,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.rounding import Rounding
from weft.loops.schedule import Axis, Nest
from weft.loops.types import INT64

_Place = tuple[str, tuple[Expr, ...]]


def at_once(function: Function, first: Nest, second: Nest) -> Nest | None:
    """The first nest's stores in the innermost of the loops that the second one folds in; None where its points are others, or
    where one of the nests would meet the other's arrays earlier or later than it does.
    """
    inner = _innermost(second.body)
    if inner is None or not all(isinstance(s, Let | Store) for s in first.body) or not _apart(function, first, second):
        return None
    axes = _same_points(first, second, inner)
    if axes is None:
        return None
    names = Names.of(function)
    names.taken |= names_bound_in((*first.body, *second.body)) | {a.var for a in (*first.axes, *second.axes)}
    known: dict[str, Expr] = {own: Ref(its, INT64) for own, its in axes.items()}
    stored: dict[_Place, Ref] = {}
    body: list[Stmt] = []
    for s in first.body:
        if isinstance(s, Let):
            let = replace(s, name=names.fresh(s.name), value=substitute(s.value, known))
            body.append(let)
            known[s.name] = Ref(let.name, s.value.type)
        elif isinstance(s, Store):
            value = Let(names.fresh(f"{s.array}_value"), substitute(s.value, known), s.location)
            index = tuple(substitute(i, known) for i in s.index)
            stored[s.array, index] = own = Ref(value.name, value.value.type)
            body += [value, Store(s.array, index, own, s.location)]
    rounding = Rounding.of(function, body)
    found = {place: rounding.stored(place[0], value) for place, value in stored.items()}
    written = {array for array, _ in stored}
    for e in _loads(_exprs((inner,))):
        if e.array in written and ((e.array, e.index) not in found or found[e.array, e.index].type != e.type):
            return None
    if any(e.array in written for e in _loads(_exprs(_without(second.body, inner)))):
        return None

    def at_hand(e: Expr) -> Expr | None:
        return found.get((e.array, e.index)) if isinstance(e, Load) else None

    carries = tuple(replace(c, next=rewrite(c.next, at_hand)) for c in inner.carries)
    lets = (replace(s, value=rewrite(s.value, at_hand)) for s in inner.body if isinstance(s, Let))
    own_loop = replace(inner, carries=carries, body=(*body, *lets))
    return replace(second, name=first.name, body=_with(second.body, inner, own_loop))


def _innermost(statements: tuple[Stmt, ...]) -> For | None:
    """The innermost loop, where loops that fold lie around each other, one in each; it stores nothing."""
    loops = [s for s in statements if isinstance(s, For)]
    if len(loops) != 1 or not loops[0].carries or not all(isinstance(s, Let | Store | For) for s in statements):
        return None
    (loop,) = loops
    if any(isinstance(s, For) for s in loop.body):
        return None if any(isinstance(s, Store) for s in loop.body) else _innermost(loop.body)
    return loop if all(isinstance(s, Let) for s in loop.body) else None


def _apart(function: Function, first: Nest, second: Nest) -> bool:
    """Whether what one nest stores, the other one does not touch, but for what the second reads of the first."""
    stores = [s for s in first.body if isinstance(s, Store)]
    written, others = {s.array for s in stores}, {s.array for s in walk(second.body) if isinstance(s, Store)}
    read = {e.array for e in _loads(_exprs(first.body))}
    touched = written | others | read | {e.array for e in _loads(_exprs(second.body))}
    if written & (others | read) or read & others or len(written) < len(stores):
        return False
    if touched & function.checked or any(a.within for a in function.arrays if a.name in touched):
        return False
    variables = {a.var for a in first.axes}
    each = ([i.name for i in s.index if isinstance(i, Ref) and i.name in variables] for s in stores)
    return all(len(own) == len({*own}) == len(variables) for own in each) and not any(
        has_check(e) for e in _exprs((*first.body, *second.body))
    )


def _same_points(first: Nest, second: Nest, inner: For) -> dict[str, str] | None:
    """Which axis or loop of the second nest each axis of the first one is, as something that both touch tells."""
    ranges = {a.var: (a.start, a.stop, a.step) for a in second.axes}
    ranges |= {s.var: (s.start, s.stop, s.step) for s in walk(second.body) if isinstance(s, For)}
    own = [(s.array, s.index) for s in first.body if isinstance(s, Store)]
    own += [(e.array, e.index) for e in _loads(_exprs(first.body))]
    for array, index in own:
        for load in _loads(_exprs((inner,))):
            axes = _axes(first.axes, index, load.index) if load.array == array else {}
            same = all((a.start, a.stop, a.step) == ranges.get(axes.get(a.var, "")) for a in first.axes)
            if same and len({*axes.values()}) == len(axes) == len(ranges):
                return axes
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
