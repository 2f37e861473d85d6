"""Rings that hold what was stored a while ago, read where it came from: with `ring[t % m, d] = x[t, d]` in every iteration of
t, `ring[(t - k) % m, d]` is `x[t - k, d]`, or what the ring began with where t - k is below 0.

The iteration that stored last to the place of t - e is t - e % m, where it stores before it reads. So nothing hangs on the
order of the iterations any more, and no ring is kept. A divisor of 0 is for the call to find, which looks at it before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.loops.affine import affine
from weft.loops.ir import (
    ONE,
    ZERO,
    Array,
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
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    walk_expr,
)
from weft.loops.polynomials import polynomial
from weft.loops.simplify import fold
from weft.loops.types import BOOL, INT64

_LARGEST = 24  # nodes of what is stored, which every read computes again


def without_rings(function: Function) -> Function:
    """The function with what rings hold read where it came from."""
    for array in function.arrays:
        ring = _ring(function, array) if array.role == "local" and array.fill is not None else None
        made = None if ring is None else _Reading(function, ring).made()
        function = function if made is None else made
    return function


@dataclass(frozen=True)
class _Ring:
    """array[..., place % size, ...] = value, at each iteration of `time`, and of the loops in it that the other axes count.
    way: the statements from the body of `time` to the store.
    """

    array: Array
    time: For
    axis: int
    place: Expr
    size: Expr
    loops: tuple[For, ...]
    value: Expr
    way: tuple[Stmt, ...]

    def axes(self, store: Store) -> dict[int, For]:
        return {a: f for a, i in enumerate(store.index) for f in self.loops if i == Ref(f.var, INT64)}


def _ways(statements: tuple[Stmt, ...], array: str, way: tuple[Stmt, ...] = ()) -> list[tuple[Stmt, ...]]:
    """The ways to the stores to an array, these included."""
    found: list[tuple[Stmt, ...]] = []
    for s in statements:
        if isinstance(s, Store) and s.array == array:
            found.append((*way, s))
        for body in bodies(s):
            found += _ways(body, array, (*way, s))
    return found


def _ring(function: Function, array: Array) -> _Ring | None:
    """A ring that one store fills, of elements of arguments."""
    ways = _ways(function.body, array.name)
    if len(ways) != 1 or not isinstance(store := ways[0][-1], Store):
        return None
    loops = [s for s in ways[0] if isinstance(s, For)]
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    turning = [k for k, i in enumerate(store.index) if isinstance(i, Op) and i.name == "mod"]
    if len(turning) != 1 or any(isinstance(s, If) for s in ways[0]) or any(map(has_check, store.index)):
        return None
    turned = store.index[turning[0]]
    assert isinstance(turned, Op)
    place, size = turned.args
    time = next((f for f in loops if f.var in free_names(place)), None)
    form = affine(place)
    if time is None or form is None or form.coefficient(time.var) != 1 or not form.names <= fixed | {time.var}:
        return None
    around, inside = loops[: loops.index(time)], loops[loops.index(time) + 1 :]
    counts = [time, *inside]
    if tuple(f.var for f in around) != array.within or any(f.start != ZERO or f.step != 1 for f in counts):
        return None
    if not free_names(size) <= fixed or fold(size) != fold(array.shape[turning[0]]):
        return None
    if any(not free_names(f.stop) <= fixed for f in inside):
        return None
    others = sorted(i.name if isinstance(i, Ref) else "" for k, i in enumerate(store.index) if k not in turning)
    if others != sorted(f.var for f in inside):
        return None
    way = ways[0][ways[0].index(time) + 1 :]
    value = _in_full(store.value, ways[0])
    ring = _Ring(array, time, turning[0], place, size, tuple(inside), value, way)
    known = fixed | {f.var for f in loops}
    inputs = {a.name for a in function.arrays if a.role == "input"}
    rounds = not isinstance(value, Load) and array.dtype != array.dtype.opmath
    copied = not isinstance(value, Load) or function.array(value.array).dtype == array.dtype
    if rounds or not copied or not free_names(value) <= known or not free_arrays(value) <= inputs:
        return None
    return ring if sum(1 for _ in walk_expr(value)) <= _LARGEST and not has_check(value) else None


def _in_full(e: Expr, way: tuple[Stmt, ...]) -> Expr:
    """An expression without the names that statements before those on a way bind."""
    lets: dict[str, Expr] = {}
    for around, own in zip(way, way[1:], strict=False):
        for body in bodies(around):
            if any(s is own for s in body):
                lets |= {s.name: s.value for s in body[: [s is own for s in body].index(True)] if isinstance(s, Let)}
    while names := free_names(e) & lets.keys():
        e = substitute(e, {n: lets[n] for n in names})
    return e


class _Unknown(Exception):
    """A ring is read where it is not told what it holds."""


class _Reading:
    """Writes a function without a ring."""

    def __init__(self, function: Function, ring: _Ring) -> None:
        self.function, self.ring = function, ring
        self.store = ring.way[-1]
        self.loops: list[For] = []  # around, from `time` inwards
        self.before: bool | None = None  # whether the store comes before what is looked at; None: outside of `time`

    def made(self) -> Function | None:
        try:
            body = self.block(self.function.body)
        except _Unknown:
            return None
        arrays = tuple(a for a in self.function.arrays if a.name != self.ring.array.name)
        return replace(self.function, body=body, arrays=arrays)

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in statements:
            if s is self.store:
                self.before = True
                continue
            out.append(self.statement(s))
            if any(s is own for own in self.ring.way):
                self.before = True
        return tuple(out)

    def statement(self, s: Stmt) -> Stmt:
        if self.before is None and not isinstance(s, For) and any(map(self.reads, statement_exprs(s))):
            raise _Unknown
        if not isinstance(s, For):
            return map_statement(s, self.expr, self.block)
        if s is self.ring.time:
            outside = [e for c in s.carries for e in (c.init, c.next)] + [s.stop]
            if any(map(self.reads, outside)):
                raise _Unknown
            self.before, self.loops = False, [s]
            made = map_statement(s, self.expr, self.block)
            self.before, self.loops = None, []
            return made
        if self.before is None:
            if any(map(self.reads, statement_exprs(s))):
                raise _Unknown
            return map_statement(s, self.expr, self.block)
        on_the_way, before = any(s is own for own in self.ring.way), self.before
        if s.carries and on_the_way:
            raise _Unknown  # what is carried is evaluated before the store, and after it
        self.loops.append(s)
        made = map_statement(s, self.expr, self.block)
        self.loops.pop()
        self.before = before
        return made

    def reads(self, e: Expr) -> bool:
        return self.ring.array.name in free_arrays(e)

    def expr(self, e: Expr) -> Expr:
        if not self.reads(e):
            return e
        if self.before is None:
            raise _Unknown
        return rewrite(e, lambda x: self.load(x) if isinstance(x, Load) and x.array == self.ring.array.name else None)

    def load(self, load: Load) -> Expr:
        """What is there: what an iteration of `time` stored, or what the ring began with."""
        ring, fill = self.ring, self.ring.array.fill
        assert isinstance(self.store, Store) and fill is not None
        index = tuple(self.expr(i) for i in load.index)
        turned = index[ring.axis]
        same = isinstance(turned, Op) and turned.name == "mod" and fold(turned.args[1]) == fold(ring.size)
        if not same or any(map(has_check, index)) or {load.type, ring.value.type} != {fill.type}:
            raise _Unknown
        assert isinstance(turned, Op)
        ago = self.ago(fold(Op("sub", (ring.place, turned.args[0]), INT64)))
        known: dict[str, Expr] = {}
        for axis, loop in ring.axes(self.store).items():
            i = index[axis]
            if any(f is loop for f in self.loops):
                if i != Ref(loop.var, INT64):
                    raise _Unknown
            elif not self.covered(i, loop, ring.array.shape[axis]):
                raise _Unknown
            known[loop.var] = i
        time = Ref(ring.time.var, INT64)
        if ago == ZERO:
            return substitute(ring.value, known)
        then = fold(Op("sub", (time, ago), INT64))
        value = substitute(ring.value, {**known, time.name: then})
        return Op("where", (Op("ge", (then, ZERO), BOOL), value, fill), load.type)

    def covered(self, i: Expr, loop: For, extent: Expr) -> bool:
        """Whether a subscript is one that the loop around the store has."""
        if fold(loop.stop) != fold(extent):
            return False
        own = next((f for f in self.loops if i == Ref(f.var, INT64)), None)
        return own is not None and (own.start, own.step, fold(own.stop)) == (ZERO, 1, fold(extent))

    def ago(self, shift: Expr) -> Expr:
        """How many iterations ago it was stored, of a place that is so many before the one of this iteration."""
        form, time = polynomial(shift), self.ring.time.var
        if form is None or time in free_names(form.expr()):
            raise _Unknown
        shift = form.expr()
        if self.before:
            loop = next((f for f in self.loops if shift == Ref(f.var, INT64)), None)
            below = loop is not None and (loop.start, loop.step, fold(loop.stop)) == (ZERO, 1, fold(self.ring.size))
            return shift if below or shift == ZERO else Op("mod", (shift, self.ring.size), INT64)
        if shift == ZERO:
            return self.ring.size
        return Op("add", (Op("mod", (fold(Op("sub", (shift, ONE), INT64)), self.ring.size), INT64), ONE), INT64)
