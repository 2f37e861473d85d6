"""Columns that lie in pages: an operand that is read at `column % size` of the page that `column // size` tells, as keys are
behind a block table.

All columns of a page lie as those of an array do, so bulk copies bring them, page by page; who brings a page looks whether it,
and all that tells which it is, are inside their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from weft.graph.tile import Map, Read, TileGraph, mapped, names_of, uses, uses_of_write
from weft.loops.ir import ZERO, Check, Const, Expr, Load, Op, Ref, free_names, operands, rewrite, walk_expr
from weft.loops.types import INT64


@dataclass(frozen=True)
class Pages:
    """read: the name of an operand's read. column: the axis whose points lie in pages of so many. place: the axis of the array
    along which a page has its columns; number: that along which pages lie. asked: reads that tell the page of a column.
    """

    read: str
    column: str
    size: Expr
    place: int
    number: int
    asked: tuple[str, ...]


def paged(graph: TileGraph, operands: Collection[str]) -> tuple[TileGraph, tuple[Pages, ...], tuple[Expr, ...]]:
    """The graph whose paged operands are inside their arrays, as whoever brings the pages sees to it; these; and integers of
    sizes that must not be 0, by which something is divided. Where nothing is paged the graph is as it was.
    """
    bare, divisors = _without_checks_of_sizes(graph)
    found = []
    for v in bare.values:
        if isinstance(v, Read) and v.name in operands and v.checked:
            found += [p for axis in v.axes if (p := _pages(bare, v, axis)) is not None][:1]
    asked = {n for p in found for n in p.asked}
    if not found or _told_elsewhere(bare, {p.read for p in found}, asked):
        return graph, (), ()
    seen = {n: p for p in found for n in (p.read, *p.asked)}
    values = tuple(
        replace(mapped(v, _not_below(bare, seen[v.name])), always=True, checked=False)
        if isinstance(v, Read) and v.name in seen
        else v
        for v in bare.values
    )
    return replace(bare, values=values), tuple(found), divisors


def _not_below(graph: TileGraph, pages: Pages) -> Callable[[Expr], Expr]:
    """What makes subscripts plain that count from the end where a place in a page, or the number of one, were below 0: with
    pages of more than 0 columns none is.
    """

    def plain(e: Expr) -> Expr | None:
        match e:
            case Op(name="where", args=(Op(name="lt", args=(a, Const(value=0))), _, b)) if a == b:
                own = _made(graph, a)
                of_pages = isinstance(own, Op) and own.name in ("mod", "floordiv")
                return a if of_pages and own.args == (Ref(pages.column, INT64), pages.size) else None  # type: ignore[union-attr]
        return None

    return lambda e: rewrite(e, plain)


def _without_checks_of_sizes(graph: TileGraph) -> tuple[TileGraph, tuple[Expr, ...]]:
    """The graph without the checks that divisors of sizes are not 0, and these."""
    changing = {*graph.made, *(a.name for a in graph.axes)}
    divisors: dict[Expr, None] = {}

    def bare(e: Expr) -> Expr | None:
        match e:
            case Check(args=(value, Op(name="ne", args=(by, Const(value=0))))) if not free_names(by) & changing:
                if not any(isinstance(x, Check | Load) for x in walk_expr(by)):
                    divisors[by] = None
                    return value
        return None

    return replace(graph, values=tuple(mapped(v, lambda e: rewrite(e, bare)) for v in graph.values)), tuple(divisors)


def _pages(graph: TileGraph, read: Read, axis: str) -> Pages | None:
    """How points of an axis lie in pages of what is read."""
    changing = {*graph.made, *(a.name for a in graph.axes)}
    sizes = {s for i in read.index if (s := _size(graph, i, axis)) is not None}
    alike = {a.name for a in graph.axes if not (free_names(a.start) | free_names(a.stop)) & changing}
    if len(sizes) != 1 or read.given is None or not alike >= {*read.given}:  # a plan has points of all of these
        return None
    (size,) = sizes
    if free_names(size) & changing or not _from_zero(graph.axis(axis).start):
        return None
    places = [d for d, i in enumerate(read.index) if _size(graph, i, axis) is not None]
    rest = [d for d, i in enumerate(read.index) if d not in places and axis in graph.below((i,), Read | Map)]
    if len(places) != 1 or len(rest) != 1 or not _by_page(graph, read.index[rest[0]], axis, size):
        return None
    told = graph.below((read.index[rest[0]],), Read | Map)
    asked = [graph.made[n] for n in sorted(told & graph.made.keys())]
    if not all(isinstance(v, Read | Map) for v in asked):
        return None
    reads = tuple(v.name for v in asked if isinstance(v, Read))
    if any(isinstance(e, Load | Check) for v in (read, *asked) for i in uses(v) for e in walk_expr(i)):
        return None
    return Pages(read.name, axis, size, places[0], rest[0], reads)


def _size(graph: TileGraph, e: Expr, axis: str) -> Expr | None:
    """The size of pages, where an integer is the place of an axis in one."""
    match _made(graph, e):
        case Op(name="mod", args=(Ref(name=name), size)) if name == axis and size.type == INT64:
            return size
        case Op(name="where", args=(Op(name="lt", args=(a, Const(value=0))), _, b)) if a == b:
            return _size(graph, a, axis)
    return None


def _from_zero(start: Expr) -> bool:
    """Whether nothing before 0 is a point."""
    return start == ZERO or (isinstance(start, Op) and start.name in ("max", "maximum") and ZERO in start.args)


def _made(graph: TileGraph, e: Expr) -> Expr:
    """What a name stands for, where a map makes it."""
    value = graph.made.get(e.name) if isinstance(e, Ref) else None
    return value.value if isinstance(value, Map) else e


def _by_page(graph: TileGraph, e: Expr, axis: str, size: Expr) -> bool:
    """Whether an expression is of an axis by the number of its pages alone."""
    match e:
        case Op(name="floordiv", args=(Ref(name=name), by)) if name == axis and by == size:
            return True
        case Ref(name=name):
            value = graph.made.get(name)
            return name != axis and (value is None or all(_by_page(graph, x, axis, size) for x in uses(value)))
    return all(_by_page(graph, x, axis, size) for x in operands(e))


def _told_elsewhere(graph: TileGraph, reads: Collection[str], asked: Collection[str]) -> bool:
    """Whether anything but the subscripts of some reads is made of what tells their pages."""
    inside = graph.below((i for v in graph.values if isinstance(v, Read) and v.name in reads for i in v.index), Read | Map)
    others = [v for v in graph.values if not {*names_of(v)} & {*reads, *inside}]
    exprs = [e for v in others for e in uses(v)] + [e for a in graph.axes for e in (a.start, a.stop)]
    used = {n for e in (*exprs, *(e for w in graph.writes for e in uses_of_write(w))) for n in free_names(e)}
    return any(graph.below((Ref(n, INT64),), Read | Map) & {*asked} for n in used & inside)
