"""Which ints a value may be, by how far sizes, loops and what is carried through them reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.language.builder import Builder
from weft.language.values import Loop
from weft.loops.ir import Cast, Const, Demand, Expr, Fault, Op, Ref, free_names
from weft.loops.types import BOOL, INT64

Span = tuple[int, int]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
# No tensor is larger along an axis, and no loop runs more often before the machine is scrapped.
MOST = 1 << 46
# Nor does any program do more updates, in all its loops together.
MOST_UPDATES = 1 << 56
# What sizes and bounds are where products of two must fit, and sums of such.
ORDINARY = 1 << 31, 1 << 29


def surely_fits(b: Builder, proof: Callable[[], bool], numbers: frozenset[str] = frozenset()) -> bool:
    """Whether a proof about ranges succeeds, if need be for tensors, loops and `numbers` of ordinary size; calls then see
    to that.
    """
    if proof():
        return True
    bounds = {n for loop in b.loops for e in (loop.start, loop.stop) for n in free_names(b.in_sizes(e))} & b.fixed | numbers
    sizes = sorted(n for n in b.fixed if n in b.spans or (n in bounds and n in b.integers))
    before = dict(b.spans)
    for limit in ORDINARY:
        b.spans = before | {n: (-limit if n not in before else 0, limit) for n in sizes}
        try:
            proven = proof()
        finally:
            b.spans = before
        if proven:
            for name in sizes:
                size = Ref(name, INT64) if name in before else Op("abs", (Ref(name, INT64),), INT64)
                small = Op("le", (size, Const(limit, INT64)), BOOL)
                if all(d.condition != small for d in b.demands):
                    fault = Fault("overflow", "a Python int may leave 64 bits", location=b.location)
                    b.demands.append(Demand(small, fault))
            return True
    return False


@dataclass(frozen=True)
class Moves:
    """Updates of a carried int by at least `low` and at most `high` each, `count` of them at most."""

    low: int
    high: int
    count: int = 1

    @property
    def far(self) -> int:
        return max(abs(self.low), abs(self.high)) * self.count


@dataclass(frozen=True)
class Advance:
    """What a loop leaves of a carried int: what it started from, and what an iteration did."""

    init: Expr
    end: Expr
    carry: str
    loop: Loop


def room(depth: int) -> int:
    """How far an int that a loop inside `depth` others carries may go from where it starts: outer loops leave room."""
    return 1 << min(62, 58 + depth)


def assumed(b: Builder, init: Expr, depth: int) -> Span | None:
    """The values that a carried int is first taken to have."""
    found = span(b, init)
    if found is None or max(-found[0], found[1]) + room(depth) > HIGHEST:
        return None
    return found[0] - room(depth), found[1] + room(depth)


def stays(b: Builder, advance: Advance, depth: int) -> bool:
    """Whether a carried int keeps to what it was taken to have: it gets values in small steps, or of a range of their own."""

    def proof() -> bool:
        steps = _steps(b, advance.end, advance.carry, 0)
        if steps is None:
            return False
        moves, values = steps
        trips = _trips(b, advance.loop)
        far = max((replace(m, count=min(MOST_UPDATES, m.count * trips)).far for m in moves), default=0)
        return far + max((abs(e) for s in values for e in s), default=0) <= room(depth)

    numbers = frozenset(n for n in free_names(b.in_sizes(advance.end)) if n in b.integers)
    return surely_fits(b, proof, numbers)


def span_left(b: Builder, expr: Expr) -> Span | None:
    """The values that a carried int has after its loop: fewer than it is taken to have inside; None where not known."""
    found = b.advances.get(expr.name) if isinstance(expr, Ref) else None
    if not isinstance(found, Advance):
        return None
    b.loops.append(found.loop)
    try:
        steps, init = _steps(b, found.end, found.carry, 0), span(b, found.init)
    finally:
        b.loops.pop()
    if steps is None or init is None:
        return None
    moves, values = steps
    far = sum(replace(m, count=min(MOST_UPDATES, m.count * _trips(b, found.loop))).far for m in moves)
    return min(init[0], *(low for low, _ in values), init[0]) - far, max(init[1], *(high for _, high in values), init[1]) + far


def _trips(b: Builder, loop: Loop) -> int:
    low, high = span(b, loop.start), span(b, loop.stop)
    if low is None or high is None:
        return MOST
    return min(MOST, max(0, high[1] - low[0] if loop.step > 0 else low[1] - high[0]))


def _steps(b: Builder, expr: Expr, carry: str, depth: int) -> tuple[list[Moves], list[Span]] | None:
    """How far from the carry an expression may be, and its values where it does not depend on it; None if unknown."""
    if depth > 20:
        return None
    match expr:
        case Ref(name=name) if name == carry:
            return [Moves(0, 0)], []
        case Ref(name=name) if isinstance(found := b.advances.get(name), Advance) and carry in b.reach(expr):
            before, inner = _steps(b, found.init, carry, depth + 1), _steps(b, found.end, found.carry, depth + 1)
            if before is None or inner is None or inner[1] or carry in b.reach(found.end) - b.reach(found.init):
                return None
            trips = _trips(b, found.loop)
            often = [replace(m, count=min(MOST_UPDATES, m.count * trips)) for m in inner[0]]
            moves = [
                Moves(min(m.low, n.low), max(m.high, n.high), min(MOST_UPDATES, m.count + n.count))
                for m in before[0]
                for n in often
            ]
            return moves, [(low - n.far, high + n.far) for low, high in before[1] for n in often]
        case Ref(name=name) if name in b.choices and carry in b.reach(expr):
            sides = [_steps(b, e, carry, depth + 1) for e in b.choices[name]]
        case Op(name="where", args=(_, *args)) | Op(name="max" | "min", args=args):
            sides = [_steps(b, e, carry, depth + 1) for e in args]
        case Op(name="check", args=(value, _)):
            return _steps(b, value, carry, depth + 1)
        case Op(name="add" | "sub" as name, args=(x, y)) if carry in b.reach(expr):
            if name == "add" and carry not in b.reach(x):
                x, y = y, x
            before, by = _steps(b, x, carry, depth + 1), span(b, y)
            if before is None or by is None or carry in b.reach(y):
                return None
            low, high = by if name == "add" else (-by[1], -by[0])
            return [replace(m, low=m.low + low, high=m.high + high) for m in before[0]], [
                (p + low, q + high) for p, q in before[1]
            ]
        case _:
            known = None if carry in b.reach(expr) else span(b, expr)
            return None if known is None else ([], [known])
    if any(s is None for s in sides):
        return None
    both = [s for s in sides if s is not None]
    return [m for s in both for m in s[0]], [v for s in both for v in s[1]]


def span(b: Builder, expr: Expr) -> Span | None:
    """The least and the largest value of an integer; None where 64 bits may not hold it."""
    found = _span(b, expr)
    return found if found is not None and found[0] >= LOWEST and found[1] <= HIGHEST else None


def _span(b: Builder, expr: Expr) -> Span | None:
    if expr.type == BOOL:
        return 0, 1
    whole = (LOWEST, HIGHEST)
    if expr.type != INT64:
        bits = 8 * expr.type.size - expr.type.signed
        return (-(1 << bits) if expr.type.signed else 0, (1 << bits) - 1) if expr.type.category == "int" else None
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Ref(name=name):
            return _of_name(b, name) or whole
        case Cast(value=value):
            return whole if value.type.category == "float" else _span(b, value)
        case Op(name="check", args=(value, _)):
            found = _span(b, value)
            return None if found is None else (max(found[0], LOWEST), min(found[1], HIGHEST))
        case Op(name="where", args=(_, *args)) | Op(args=args):
            spans = [_span(b, a) for a in args]
            if any(s is None for s in spans):
                return None
            return _combined(expr.name, [s for s in spans if s is not None]) or whole
    return whole


def _of_name(b: Builder, name: str) -> Span | None:
    if name in b.spans:
        return b.spans[name]
    if name in b.definitions:
        return span(b, b.definitions[name])
    for loop in b.loops:
        if loop.var == name:
            low, high = _span(b, loop.start), _span(b, loop.stop)
            if low is None or high is None:
                return None
            if loop.step < 0:
                return max(high[0] + 1, low[0] - MOST), low[1]
            return low[0], min(high[1] - 1, low[1] + MOST)
    return None


def _combined(name: str, spans: list[Span]) -> Span | None:
    match name, spans:
        case "neg", [(a, z)]:
            return -z, -a
        case "abs", [(a, z)]:
            return 0 if a <= 0 <= z else min(abs(a), abs(z)), max(abs(a), abs(z))
        case "add", [(a, z), (c, y)]:
            return a + c, z + y
        case "sub", [(a, z), (c, y)]:
            return a - y, z - c
        case "mul", [(a, z), (c, y)]:
            ends = [a * c, a * y, z * c, z * y]
            return min(ends), max(ends)
        case "floordiv", [(a, z), (c, y)]:
            return (min(a // c, a // y), max(z // c, z // y)) if c > 0 else None
        case "mod", [_, (c, y)]:
            return min(c + 1, 0), max(y - 1, 0)
        case "shl", [(a, z), (c, y)] if c >= 0 and y < 64:
            return min(a << c, a << y), max(z << c, z << y)
        case "shr", [(a, z), (c, y)] if c >= 0:
            return min(a >> c, a >> min(y, 64)), max(z >> c, z >> min(y, 64))
        case "bitand", [(a, z), (c, y)] if c >= 0 or a >= 0:
            return 0, min(high for low, high in ((a, z), (c, y)) if low >= 0)
        case "pow", [(a, z), (c, y)] if c == y and 0 <= c < 64:
            return (-(max(-a, z) ** c) if a < 0 else a**c), max(abs(a), abs(z)) ** c
        case "shl" | "pow", _:
            return 2 * LOWEST, 2 * HIGHEST
        case "max" | "maximum", [(a, z), (c, y)]:
            return max(a, c), max(z, y)
        case "min" | "minimum", [(a, z), (c, y)]:
            return min(a, c), min(z, y)
        case "where", [(a, z), (c, y)]:
            return min(a, c), max(z, y)
    return None
