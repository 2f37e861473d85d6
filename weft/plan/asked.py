"""Loops of which most iterations do nothing: a condition tells which elements each reaches. A block asks for all of its own.

`for r in range(rows): if low[r] <= i and i < high[r]: total += v[r]` lets each element ask each row. But elements of a block
lie beside each other: a row that reaches any of them begins before the last one and ends after the first. So each thread asks
that of a row of its own, for all elements of the block at once; they go through the rows that are left, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce

from weft.loops.affine import affine, is_bound
from weft.loops.ir import (
    Cast,
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
    free_arrays,
    free_names,
    has_check,
    rewrite,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.schedule import Nest
from weft.loops.simplify import fold
from weft.loops.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT64
from weft.plan.several import reads_what_it_stores

# Iterations of a loop for which it pays to ask for a whole block, and elements for each multiprocessor, at the least.
# Neighbours of a tile along memory.
ROWS, ASKING, _ALONG = 64, 128, 32
# Types whose arithmetic keeps the order: shorter ints begin again below 0 (or at it).
_NUMBERS = (BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT64)
_LONGEST = 100  # nodes of a condition whose names are written out


@dataclass(frozen=True)
class Asked:
    """A loop, by its variable, whose iterations change nothing unless a condition holds, which may be asked in all of them.
    comparisons: those in it of an axis and what iterations alone tell; axes: the ones that they are of.
    """

    var: str
    start: Expr
    stop: Expr
    condition: Expr
    comparisons: tuple[Op, ...]
    axes: tuple[str, ...]

    def reaches(self, first: Mapping[str, Expr], last: Mapping[str, Expr]) -> Expr:
        """Whether an iteration may change an element between the first and the last ones along each axis."""
        return reduce(lambda a, b: Op("and", (a, b), BOOL), (e for c in self.comparisons for e in _holds(c, first, last)))


def asked_loops(function: Function, nest: Nest) -> tuple[Asked, ...]:
    """The loops of a nest that a block may ask for all of its elements."""
    axes = {a.var for a in nest.axes if a.step == 1}
    if not axes or reads_what_it_stores(nest):
        return ()
    stored = {s.array for s in walk(nest.body) if isinstance(s, Store)}
    found = (_asked(function, axes, stored, loop) for loop in _reached_together(function, nest))
    return tuple(one for one in found if one)


def _reached_together(function: Function, nest: Nest) -> Iterator[For]:
    """The outermost loops that all iterations of the axes come to alike."""
    alike = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    pending: list[Stmt] = [*nest.body]
    while pending:
        stmt = pending.pop(0)
        if isinstance(stmt, For):
            yield stmt
        elif isinstance(stmt, If) and free_names(stmt.condition) <= alike:
            pending = [*(s for body in bodies(stmt) for s in body), *pending]


def _asked(function: Function, axes: Set[str], stored: Set[str], loop: For) -> Asked | None:
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    meanings = _meanings(loop)
    condition = None if meanings is None else _condition(loop, meanings)
    if meanings is None or condition is None or loop.step != 1 or not all(is_bound(e, fixed) for e in (loop.start, loop.stop)):
        return None
    # what is done in all iterations, and would be left out
    looked = [condition, *(_where_not(e, condition) for e in meanings.values())]
    if any(map(has_check, looked)) or any(free_arrays(e) & stored for e in looked):
        return None
    if any(loop.var in a.within for a in function.arrays):  # each iteration has an array of its own
        return None
    known = fixed | {loop.var}
    if not all(_is_there(function, x, known | axes) for e in looked for x in walk_expr(e) if isinstance(x, Load)):
        return None
    comparisons = [e for e in all_of(condition) if isinstance(e, Op) and _compares(e, axes, known)]
    if not any(free_arrays(e) for e in comparisons):
        return None
    own = dict.fromkeys(n for e in comparisons for n in sorted(free_names(e)) if n in axes)
    return Asked(loop.var, loop.start, loop.stop, condition, tuple(comparisons), tuple(own))


def _meanings(loop: For) -> dict[str, Expr] | None:
    """What is named in a loop, written out; None where that is long, or anything but a last condition is beside it."""
    meanings: dict[str, Expr] = {}
    for stmt in loop.body:
        if isinstance(stmt, Let):
            meanings[stmt.name] = substitute(stmt.value, meanings)
            if sum(1 for _ in walk_expr(meanings[stmt.name])) > _LONGEST:
                return None
        elif not (isinstance(stmt, If) and stmt is loop.body[-1] and not stmt.orelse):
            return None
    return meanings


def _condition(loop: For, meanings: Mapping[str, Expr]) -> Expr | None:
    """What has to hold for an iteration to change anything."""
    last = loop.body[-1] if loop.body else None
    nexts = {c.name: substitute(c.next, dict(meanings)) for c in loop.carries}
    if isinstance(last, If):
        conditions = [substitute(last.condition, dict(meanings))]
        others = {m.name: substitute(m.orelse, dict(meanings)) for m in last.merges}
        nexts = {name: substitute(e, others) for name, e in nexts.items()}
    else:
        inside = (x for e in nexts.values() for x in walk_expr(e))
        conditions = [*dict.fromkeys(x.args[0] for x in inside if isinstance(x, Op) and x.name == "where")]
    for condition in conditions:
        if all(fold(_where_not(nexts[c.name], condition)) == Ref(c.name, c.type) for c in loop.carries):
            return condition
    return None


def _where_not(e: Expr, condition: Expr) -> Expr:
    """A value where a condition does not hold."""

    def rule(e: Expr) -> Expr | None:
        return e.args[2] if isinstance(e, Op) and e.name == "where" and e.args[0] == condition else None

    return rewrite(e, rule)


def _is_there(function: Function, load: Load, known: Set[str]) -> bool:
    """Whether a read is inside of its array in all iterations, as the call has asked."""
    return load.array not in function.checked and all(affine(i) is not None and free_names(i) <= known for i in load.index)


def all_of(condition: Expr) -> Iterator[Expr]:
    """What a condition consists of."""
    match condition:
        case Op(name="and", args=args):
            for e in args:
                yield from all_of(e)
        case _:
            yield condition


def _compares(e: Op, axes: Container[str], known: Container[str]) -> bool:
    """Whether something that grows or falls with axes is compared with what iterations tell."""
    names = free_names(e)
    if e.name not in ("le", "lt", "ge", "gt", "eq") or not any(n in axes for n in names):
        return False
    return all(n in axes or n in known for n in names) and all(_ends(a, {}, {}, axes) is not None for a in e.args)


def _holds(e: Op, first: Mapping[str, Expr], last: Mapping[str, Expr]) -> Iterator[Expr]:
    """What holds if a comparison does anywhere between the ends of axes."""
    ends = [_ends(a, first, last, first.keys()) for a in e.args]
    assert ends[0] is not None and ends[1] is not None
    (low, high), (other_low, other_high) = ends[0], ends[1]
    wraps = [*_wraps(e, first, last)]

    def unless_one_wraps(name: str, a: Expr, b: Expr) -> Expr:
        return reduce(lambda a, b: Op("or", (a, b), BOOL), (Op(name, (a, b), BOOL), *wraps))

    if e.name in ("le", "lt", "eq"):
        yield unless_one_wraps("le" if e.name == "eq" else e.name, low, other_high)
    if e.name in ("ge", "gt", "eq"):
        yield unless_one_wraps("ge" if e.name == "eq" else e.name, high, other_low)


def _wraps(e: Expr, first: Mapping[str, Expr], last: Mapping[str, Expr]) -> Iterator[Expr]:
    """Whether an end of what becomes a shorter int, as PyTorch compares ints with elements of int8, is no such int. Where both
    ends are, all between them are.
    """
    for cast in (x for x in walk_expr(e) if isinstance(x, Cast) and _shortens(x) and free_names(x) & first.keys()):
        ends = _ends(cast.value, first, last, first.keys())
        assert ends is not None
        yield from (Op("ne", (Cast(Cast(end, cast.type), INT64), end), BOOL) for end in ends)


def _shortens(cast: Cast) -> bool:
    return cast.value.type == INT64 and cast.type.category == "int" and cast.type != INT64


def _ends(
    e: Expr, first: Mapping[str, Expr], last: Mapping[str, Expr], axes: Container[str]
) -> tuple[Expr, Expr] | None:
    """The least and the largest value between the ends of axes of what grows or falls with them; None where it may do both.
    Rounding does not change which of two is larger.
    """
    if not any(n in axes for n in free_names(e)):
        return e, e
    match e:
        case Ref(name=name):
            return first.get(name, e), last.get(name, e)
        case Cast(value=value, type=type_) if value.type in _NUMBERS and (type_ in _NUMBERS or _shortens(e)):
            ends = _ends(value, first, last, axes)
            return None if ends is None else (Cast(ends[0], type_), Cast(ends[1], type_))
        case Op(name="add" | "sub" | "min" | "max" as name, args=(a, b)) if e.type in _NUMBERS:
            one, other = _ends(a, first, last, axes), _ends(b, first, last, axes)
            if one is None or other is None:
                return None
            low, high = other if name != "sub" else other[::-1]
            return Op(name, (one[0], low), e.type), Op(name, (one[1], high), e.type)
        case Op(name="mul", args=(Const() as factor, a)) | Op(name="mul", args=(a, Const() as factor)) if (
            0 < factor.value < math.inf and e.type in _NUMBERS
        ):
            ends = _ends(a, first, last, axes)
            return None if ends is None else (Op("mul", (ends[0], factor), e.type), Op("mul", (ends[1], factor), e.type))
    return None


def tile_of(
    order: Sequence[str], asked: Sequence[Asked], counts: Mapping[str, int], threads: int
) -> tuple[tuple[str, int], ...]:
    """How many places of each axis a block has, whose product are its threads: some along memory, the others along what
    iterations are asked about.
    """
    lane = order[-1]
    ranged = {n for a in asked for e in a.comparisons if e.name != "eq" for n in free_names(e)}
    others = [v for v in reversed(order[:-1]) if v in ranged]
    tile = {v: 1 for v in order}

    def widen(var: str, most: int) -> None:
        while tile[var] < min(most, counts[var]) and threads_left() > 1:
            tile[var] *= 2

    def threads_left() -> int:
        return threads // reduce(lambda a, b: a * b, tile.values())

    for var in (lane, *others):
        widen(var, _ALONG)
    for var in (*others, lane, *reversed(order)):
        widen(var, threads)
    tile[lane] *= threads_left()  # few elements: some threads have none
    return tuple(tile.items())
