"""How far the variables of loops reach, in sizes and scalars alone: what an array needs that keeps a value of each iteration.

The reach of a variable follows from the bounds of its loop: sums, products by constants, minima, maxima, divisions and
remainders by constants of sizes, scalars and the variables around it. Where data decide a bound, it follows from what
every iteration reads or stores: `x[b, t]` shows that t is below the size of x along it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

from weft.loops.accesses import counted_from_end
from weft.loops.affine import Affine, affine
from weft.loops.ir import (
    ZERO,
    Array,
    Cast,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Store,
    certain_operands,
    free_names,
    has_check,
    has_load,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.simplify import bound_inside, fold, own_exprs
from weft.loops.types import INT64, ScalarType


@dataclass(frozen=True)
class Extent:
    """The values of the loop variable `var` lie in base, base + 1, ..., base + size - 1.

    base: over sizes, scalars and the variables of the loops around. size: over sizes and scalars.
    """

    var: str
    base: Expr
    size: Expr


def expanded(name: str, type_: ScalarType, found: tuple[Extent, ...], fill: Const | None = None) -> Array:
    """A local array with one element for every iteration of loops with these extents."""
    return Array(name, type_, tuple(e.size for e in found), "local", fill)


def expanded_index(found: tuple[Extent, ...], values: Iterable[Expr]) -> tuple[Expr, ...]:
    """Where such an array holds the iteration with these values of the loop variables."""
    known: dict[str, Expr] = {}
    out: list[Expr] = []
    for extent, value in zip(found, values, strict=True):
        if extent.base == ZERO:
            out.append(value)
        else:
            out.append(fold(Op("sub", (value, substitute(extent.base, known)), INT64)))
        known[extent.var] = value
    return tuple(out)


def extents(function: Function, loops: Iterable[For], asked: list[Expr] | None = None) -> tuple[Extent, ...] | None:
    """An extent of each of these nested loops, outermost first; None where it cannot be known before the run.

    asked: takes the sizes that have to be above 0 for it, those of loops inside, whose elements show how far the others go.
    Without it these show nothing.
    """
    reach = _Reach(function, asked)
    found = [reach.enter(loop) for loop in loops]
    known = tuple(e for e in found if e is not None)
    return known if len(known) == len(found) else None


# ---------------------------------------------------------------- bounds


@dataclass(frozen=True)
class _Extremum:
    """The largest or the smallest of bounds."""

    name: Literal["min", "max"]
    args: tuple[_Bound, ...]


_Bound = Affine | _Extremum
_OTHER: dict[str, Literal["min", "max"]] = {"min": "max", "max": "min"}


def _plus(a: _Bound, b: _Bound) -> _Bound:
    if isinstance(a, Affine) and isinstance(b, Affine):
        return a + b
    if isinstance(a, _Extremum):
        return _Extremum(a.name, tuple(_plus(x, b) for x in a.args))
    return _plus(b, a)


def _times(a: _Bound, factor: int) -> _Bound:
    if isinstance(a, Affine):
        return a * factor
    return _Extremum(a.name if factor >= 0 else _OTHER[a.name], tuple(_times(x, factor) for x in a.args))


@dataclass
class _Reach:
    """The least and the greatest value of the loop variables entered so far.

    atoms: expressions over sizes and scalars that are no sums: named, and then as good as sizes.
    """

    function: Function
    asked: list[Expr] | None = None
    variables: dict[str, tuple[_Bound, _Bound]] = field(default_factory=dict)
    atoms: dict[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = frozenset(s.name for s in self.function.sizes)
        self.fixed = self.sizes | {s.name for s in self.function.scalars if s.type == INT64}
        self.named: dict[str, Expr] = {}  # what the program computes of these before all loops
        for s in self.function.body:
            if isinstance(s, Let) and s.value.type == INT64 and not has_load(s.value) and not has_check(s.value):
                value = substitute(s.value, self.named)
                if free_names(value) <= self.fixed:
                    self.named[s.name] = value

    def enter(self, loop: For) -> Extent | None:
        start, stop = (substitute(e, self.named) for e in (loop.start, loop.stop))
        first, last = (start, stop) if loop.step > 0 else (stop, start)
        shift = Affine((), 0 if loop.step > 0 else 1)
        one = Affine((), 1)
        below, above = self.bound(first, False), self.bound(last, True)
        low = None if below is None else self.eliminated(_plus(below, shift), False)
        end = None if above is None else self.eliminated(_plus(above, shift), True)
        width = None
        if below is not None and above is not None:
            width = self.eliminated(_plus(above, _times(below, -1)), True)
        if low is None or end is None:
            low, end = self._touched(loop, low, end)
        own = self.fixed | self.variables.keys()
        if affine(first) is None and width is not None and free_names(first) <= own and not has_load(first):
            base = fold(Op("add", (first, shift.expr()), INT64)) if shift.constant else first
            found = Extent(loop.var, base, self._size(width))
        elif low is None or end is None:
            return None
        else:
            from_zero = self._never_negative(low)
            count = end if from_zero else _plus(end, _times(low, -1))
            found = Extent(loop.var, ZERO if from_zero else self._expr(low), self._size(count))
        if low is not None and end is not None:
            self.variables[loop.var] = (low, _plus(end, one * -1))
        return found

    # ---- what bounds expressions

    def bound(self, e: Expr, greatest: bool) -> _Bound | None:
        """What e is never above (greatest) or never below, over sizes, scalars and loop variables."""
        form = affine(e)
        if form is not None:
            return form if form.names <= self.fixed | self.variables.keys() else None
        match e:
            case Cast(value=value, type=type_) if type_ == INT64 and value.type == INT64:
                return self.bound(value, greatest)
            case Op(name="add" | "sub" as name, args=(a, b)):
                left, right = self.bound(a, greatest), self.bound(b, greatest == (name == "add"))
                if left is None or right is None:
                    return None
                return _plus(left, right if name == "add" else _times(right, -1))
            case Op(name="neg", args=(a,)):
                inner = self.bound(a, not greatest)
                return None if inner is None else _times(inner, -1)
            case Op(name="mul", args=(a, Const(value=factor))) | Op(name="mul", args=(Const(value=factor), a)):
                return self._multiple(a, int(factor), greatest)
            case Op(name="min" | "max" as name, args=args):
                found = [self.bound(a, greatest) for a in args]
                known = tuple(b for b in found if b is not None)
                if len(known) < len(found) and (not known or (name == "min") != greatest):
                    return None
                return self._extremum(name, known)
            case Op(name="where", args=(_, a, b)):
                left, right = self.bound(a, greatest), self.bound(b, greatest)
                if left is None or right is None:
                    return None
                return self._extremum("max" if greatest else "min", (left, right))
            case Op(name="floordiv", args=(a, Const(value=divisor))) if divisor > 0:
                inner = self.bound(a, greatest)
                outer = None if inner is None else self.eliminated(inner, greatest)
                return None if outer is None else self._atom(Op("floordiv", (self._expr(outer), e.args[1]), INT64))
            case Op(name="mod", args=(_, Const(value=divisor))) if divisor > 0:
                return Affine((), int(divisor) - 1 if greatest else 0)
        if free_names(e) <= self.fixed and not has_load(e) and e.type == INT64:
            return self._atom(e)
        return None

    def _multiple(self, e: Expr, factor: int, greatest: bool) -> _Bound | None:
        match e:
            case Op(name="floordiv", args=(a, Const(value=divisor))) if divisor > 0 and factor % int(divisor) == 0:
                # a - (divisor - 1) <= (a // divisor) * divisor <= a
                inner = self.bound(a, greatest == (factor > 0))
                if inner is None:
                    return None
                slack = 0 if greatest == (factor > 0) else 1 - int(divisor)
                return _times(_plus(inner, Affine((), slack)), factor // int(divisor))
        inner = self.bound(e, greatest == (factor > 0))
        return None if inner is None else _times(inner, factor)

    def _atom(self, e: Expr) -> Affine:
        form = affine(e)
        if form is not None:
            return form
        name = next((n for n, x in self.atoms.items() if x == e), f"atom {len(self.atoms)}")
        self.atoms[name] = e
        return Affine(((name, 1),), 0)

    def eliminated(self, b: _Bound, greatest: bool) -> _Bound | None:
        """The bound over sizes and scalars alone."""
        if isinstance(b, _Extremum):
            found = [self.eliminated(x, greatest) for x in b.args]
            known = tuple(x for x in found if x is not None)
            if len(known) < len(found) and (not known or (b.name == "min") != greatest):
                return None
            return self._extremum(b.name, known)
        total: _Bound = Affine((), b.constant)
        for name, coefficient in b.terms:
            if name in self.variables:
                reach = self.variables[name][1 if (coefficient > 0) == greatest else 0]
                total = _plus(total, _times(reach, coefficient))
            elif name in self.fixed or name in self.atoms:
                total = _plus(total, Affine(((name, coefficient),), 0))
            else:
                return None
        return total

    def _extremum(self, name: Literal["min", "max"], args: tuple[_Bound, ...]) -> _Bound:
        """The largest or smallest, without arguments that another one makes needless."""
        flat = tuple(x for a in args for x in (a.args if isinstance(a, _Extremum) and a.name == name else (a,)))
        kept: list[_Bound] = []
        for a in dict.fromkeys(flat):
            if any(self._beats(name, b, a) for b in kept):
                continue
            kept = [b for b in kept if not self._beats(name, a, b)]
            kept.append(a)
        return kept[0] if len(kept) == 1 else _Extremum(name, tuple(kept))

    def _beats(self, name: str, a: _Bound, b: _Bound) -> bool:
        """Whether a is never the worse of the two for a minimum or maximum."""
        if not isinstance(a, Affine) or not isinstance(b, Affine):
            return False
        return self._never_negative(a - b if name == "max" else b - a)

    def _never_negative(self, b: _Bound) -> bool:
        if isinstance(b, _Extremum):
            return (any if b.name == "max" else all)(map(self._never_negative, b.args))
        return b.constant >= 0 and all(c >= 0 and n in self.sizes for n, c in b.terms)

    # ---- as expressions

    def _expr(self, b: _Bound) -> Expr:
        if isinstance(b, Affine):
            return substitute(b.expr(), self.atoms)
        return reduce(lambda x, y: Op(b.name, (x, y), INT64), map(self._expr, b.args))

    def _size(self, count: _Bound) -> Expr:
        return self._expr(count if self._never_negative(count) else self._extremum("max", (Affine((), 0), count)))

    # ---- what iterations touch

    def _touched(self, loop: For, low: _Bound | None, stop: _Bound | None) -> tuple[_Bound | None, _Bound | None]:
        """The least value and the end that the elements show which every iteration touches."""
        inside = bound_inside(loop)
        stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
        for array, axis, subscript, counts in _touches(loop):
            needed = [substitute(n, self.named) for n in counts]
            if counts and (self.asked is None or any(has_load(n) or not free_names(n) <= self.fixed for n in needed)):
                continue
            before = low, stop
            index, wraps = counted_from_end(subscript)
            size = self.bound(self.function.array(array).shape[axis], True)
            if size is None:
                continue
            least = _times(size, -1) if wraps else Affine((), 0)
            form = affine(index)
            if form is not None and form.coefficient(loop.var) == 1:
                # least <= var + shift < size
                shift = form - Affine(((loop.var, 1),), 0)
                if low is None:
                    low = self.eliminated(_plus(least, shift * -1), False)
                if stop is None:
                    stop = self.eliminated(_plus(size, shift * -1), True)
            elif stop is None and loop.step == 1:
                # the same shift, unknown, for all: there are no more iterations than values of the index
                shift_, start = _without(index, loop.var), self.bound(loop.start, True)
                known = shift_ is not None and not free_names(shift_) & inside and not _loaded(shift_) & stored
                if known and start is not None:
                    stop = self.eliminated(_plus(start, _plus(size, _times(least, -1))), True)
            if self.asked is not None and (low, stop) != before:
                self.asked.extend(n for n in needed if n not in self.asked)
            if low is not None and stop is not None:
                break
        return low, stop


def _touches(loop: For) -> list[tuple[str, int, Expr, tuple[Expr, ...]]]:
    """(array, axis, index, sizes) of each subscript with the loop's variable that every iteration evaluates where these sizes,
    those of loops inside, are above 0.
    """
    out: list[tuple[str, int, Expr, tuple[Expr, ...]]] = []
    lets: dict[str, Expr] = {}

    def subscript(array: str, index: tuple[Expr, ...], counts: tuple[Expr, ...]) -> None:
        named = (substitute(i, lets) for i in index)
        out.extend((array, k, i, counts) for k, i in enumerate(named) if loop.var in free_names(i))

    def visit(e: Expr, counts: tuple[Expr, ...]) -> None:
        if isinstance(e, Load):
            subscript(e.array, e.index, counts)
        for operand in certain_operands(e):
            visit(operand, counts)

    def statements(around: For, counts: tuple[Expr, ...]) -> None:
        for stmt in around.body:
            if isinstance(stmt, Store):
                subscript(stmt.array, stmt.index, counts)
            for e in own_exprs(stmt):
                visit(e, counts)
            if isinstance(stmt, Let) and stmt.value.type == INT64:
                lets[stmt.name] = substitute(stmt.value, lets)
            if isinstance(stmt, For):
                size = _size(stmt)
                if not isinstance(size, Const):
                    statements(stmt, (*counts, size))
                elif size.value > 0:
                    statements(stmt, counts)
        for c in around.carries:
            visit(c.next, counts)

    statements(loop, ())
    return sorted(out, key=lambda t: (len(t[3]), not isinstance(t[2], Ref)))


def _size(loop: For) -> Expr:
    """What is above 0 where a loop has an iteration."""
    first, last = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
    return fold(Op("sub", (last, first), INT64))


def _without(index: Expr, var: str) -> Expr | None:
    """e where the index is var + e."""
    match index:
        case Op(name="add", args=(a, b)) if a == Ref(var, INT64) or b == Ref(var, INT64):
            return b if a == Ref(var, INT64) else a
        case Op(name="add", args=(a, b)):
            for one, other in ((a, b), (b, a)):
                inner = _without(one, var)
                if inner is not None and var not in free_names(other):
                    return Op("add", (inner, other), INT64)
    return None


def _loaded(e: Expr) -> set[str]:
    return {x.array for x in walk_expr(e) if isinstance(x, Load)}
