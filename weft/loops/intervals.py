"""Integers by intervals: what a call's sizes and the ranges of loops leave of an expression, from the least to the largest."""

from __future__ import annotations

from collections.abc import Mapping

from weft.loops.affine import Affine, affine
from weft.loops.conditions import MIRRORED, OPPOSITE, comparisons
from weft.loops.ir import Check, Const, Expr, For, Op, Ref, free_arrays, free_names, rewrite, walk_expr
from weft.loops.types import BOOL, INT64

# Integers that a call computes with stay so far from 64 bits.
_MOST = 1 << 62
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max", "floordiv", "mod"})
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_LOGIC = frozenset({"and", "or", "not"})
_FITS = {"fits_add": "add", "fits_sub": "sub", "fits_mul": "mul"}

# From the least to the largest value; of variables, by name.
Interval = tuple[int, int]
Ranges = Mapping[str, Interval]


class Untold(Exception):  # noqa: N818 - it is no error: a check stays
    """Ranges do not show something."""


class NeverRuns(Exception):  # noqa: N818 - nor is this
    """No iteration gets there."""


def is_counted(e: Expr) -> bool:
    """Whether intervals say something of an integer expression, or of a condition on integers."""
    match e:
        case Const() | Ref():
            return e.type in (INT64, BOOL)
        case Check(args=(value, condition)):
            return is_counted(value) and is_counted(condition)
        case Op(name="where", args=(condition, then, orelse)):
            return e.type == INT64 and all(map(is_counted, (condition, then, orelse)))
        case Op(name=name, args=args) if name in _COMPARISONS | _FITS.keys():
            return all(a.type == INT64 and is_counted(a) for a in args)
        case Op(name=name, args=args) if name in _LOGIC:
            return all(map(is_counted, args))
        case Op(name=name, args=args) if name in _ARITHMETIC:
            return e.type == INT64 and all(map(is_counted, args))
    return False


class Intervals:
    """Ranges of integers over names with values and variables of loops."""

    def __init__(self, names: Mapping[str, int]) -> None:
        self.known: dict[str, Interval] = {n: (int(v), int(v)) for n, v in names.items() if isinstance(v, int)}
        self.assumed: dict[Expr, Interval] = {}  # of what is more than a name

    def open(self, loop: For) -> None:
        """Give a loop's variable its range. Raises NeverRuns."""
        starts, stops = self.of(loop.start), self.of(loop.stop)
        low, high = (starts[0], stops[1] - 1) if loop.step > 0 else (stops[0] + 1, starts[1])
        if low > high:
            raise NeverRuns
        self.known[loop.var] = low, high

    def assume(self, condition: Expr, holds: bool) -> None:
        """Narrow the ranges of names to where a condition holds, or does not. Raises NeverRuns where it never does."""
        for c in comparisons(condition, holds).all:
            a, b = c.args
            try:
                self._narrow(c.name, a, b)
                self._narrow(MIRRORED[c.name], b, a)
            except Untold:
                continue

    def _narrow(self, name: str, left: Expr, right: Expr) -> None:
        """`left name right` for a sum on the left: each of its names, given the rest."""
        form, other = affine(left), self.of(right)
        if form is None:
            self.assumed[left] = _narrowed(name, self.of(left), other)
            return
        if len(form.terms) > 1:
            alone = Affine(form.terms, 0).expr()
            self.assumed[alone] = _narrowed(name, self.of(alone), (other[0] - form.constant, other[1] - form.constant))
        for var, factor in form.terms:
            if var not in self.known or abs(factor) != 1:
                continue
            rest = self.of((form + affine(Ref(var, INT64)) * -factor).expr())  # type: ignore[operator]
            # factor * var lies in [other - rest] by the comparison
            low, high = other[0] - rest[1], other[1] - rest[0]
            own = name if factor > 0 else MIRRORED[name]
            low, high = (low, high) if factor > 0 else (-high, -low)
            self.known[var] = _narrowed(own, self.known[var], (low, high))

    def of(self, e: Expr) -> Interval:
        """The range of an integer; of a condition, of 0 and 1. Raises Untold where it is not known, or where what it checks, or
        a divisor above 0, is not shown.
        """
        low, high = self.assumed.get(e) or self._of(e)
        if not -_MOST < low <= high < _MOST:
            raise Untold
        return low, high

    def _of(self, e: Expr) -> Interval:
        match e:
            case Const(value=value, type=type_) if type_ in (INT64, BOOL):
                return int(value), int(value)
            case Ref(name=name):
                if name not in self.known:
                    raise Untold
                return self.known[name]
            case Check(args=(value, condition)):
                if self.of(condition) != (1, 1):
                    raise Untold
                return self.of(value)
            case Op(name="where", args=(condition, *sides)):
                return self._choice(condition, sides)
            case Op(name=name, args=(a, b)) if name in _COMPARISONS:
                return self._compared(name, self.of(a), self.of(b))
            case Op(name=name, args=args) if name in _FITS:
                self.of(Op(_FITS[name], args, INT64))
                return 1, 1
            case Op(name="not", args=(a,)):
                low, high = self.of(a)
                return 1 - high, 1 - low
            case Op(name="and" | "or" as name, args=(a, b)):
                (a0, a1), (b0, b1) = self.of(a), self.of(b)
                return (min(a0, b0), min(a1, b1)) if name == "and" else (max(a0, b0), max(a1, b1))
            case Op(name="add" | "sub" | "mul" | "neg") if (form := affine(e)) is not None:  # a name that occurs twice is one
                alone = self.assumed.get(Affine(form.terms, 0).expr())
                ends = [sorted(c * end for end in self.of(Ref(n, INT64))) for n, c in form.terms]
                low, high = alone or (sum(own[0] for own in ends), sum(own[1] for own in ends))
                return form.constant + low, form.constant + high
            case Op(name=name, args=args):
                return _applied(name, [self.of(a) for a in args])
        raise Untold

    def _choice(self, condition: Expr, sides: list[Expr]) -> Interval:
        found = []
        for holds, side in zip((True, False), sides, strict=True):
            here = Intervals({})
            here.known, here.assumed = dict(self.known), dict(self.assumed)
            try:
                here.assume(condition, holds)
                if here.of(condition) == (not holds, not holds):
                    continue
            except NeverRuns:
                continue
            found.append(here.of(side))
        if not found:
            raise Untold
        return min(low for low, _ in found), max(high for _, high in found)

    @staticmethod
    def _compared(name: str, a: Interval, b: Interval) -> Interval:
        match name:
            case "lt":
                return int(a[1] < b[0]), int(a[0] < b[1])
            case "le":
                return int(a[1] <= b[0]), int(a[0] <= b[1])
            case "eq":
                return int(a[0] == a[1] == b[0] == b[1]), int(a[0] <= b[1] and b[0] <= a[1])
        low, high = Intervals._compared(OPPOSITE[name], a, b)
        return 1 - high, 1 - low


def _narrowed(name: str, own: Interval, other: Interval) -> Interval:
    """The part of a range where a comparison with some number of another one holds. Raises NeverRuns where there is none."""
    (first, last), (low, high) = own, other
    match name:
        case "lt":
            last = min(last, high - 1)
        case "le":
            last = min(last, high)
        case "gt":
            first = max(first, low + 1)
        case "ge":
            first = max(first, low)
        case "eq":
            first, last = max(first, low), min(last, high)
    if first > last:
        raise NeverRuns
    return first, last


def _applied(name: str, args: list[Interval]) -> Interval:
    match name, args:
        case "neg", [(a0, a1)]:
            return -a1, -a0
        case "abs", [(a0, a1)]:
            return 0 if a0 <= 0 <= a1 else min(abs(a0), abs(a1)), max(abs(a0), abs(a1))
        case "add", [(a0, a1), (b0, b1)]:
            return a0 + b0, a1 + b1
        case "sub", [(a0, a1), (b0, b1)]:
            return a0 - b1, a1 - b0
        case "mul", [(a0, a1), (b0, b1)]:
            ends = a0 * b0, a0 * b1, a1 * b0, a1 * b1
            return min(ends), max(ends)
        case "min", [(a0, a1), (b0, b1)]:
            return min(a0, b0), min(a1, b1)
        case "max", [(a0, a1), (b0, b1)]:
            return max(a0, b0), max(a1, b1)
        case "floordiv", [(a0, a1), (b0, b1)] if b0 > 0:
            return min(a0 // b0, a0 // b1), max(a1 // b0, a1 // b1)
        case "mod", [(a0, a1), (b0, b1)] if b0 > 0:
            if b0 == b1 and a0 // b0 == a1 // b0:
                return a0 % b0, a1 % b0
            return 0, min(b1 - 1, a1) if a0 >= 0 else b1 - 1
    raise Untold


# ---------------------------------------------------------------- bounds


def farthest_apart(low: Expr, high: Expr, names: Mapping[str, int], ranges: Ranges) -> int:
    """How far the second is beyond the first at the most: ends that move together, as those of a window do, are never as far
    apart as the ends of all windows. Raises KeyError as `bounds` does.
    """
    choice = next((e for end in (low, high) for e in walk_expr(end) if isinstance(e, Op) and e.name == "where"), None)
    sides = None if choice is None else _sides(choice.args[0], names, ranges)
    if choice is None or sides is None:
        low, high = (_with_numbers(e, names, ranges) for e in (low, high))
        lengths = [Op("sub", (b, a), INT64) for a in _operands("max", low) for b in _operands("min", high)]
        return min(bounds(length, names, ranges)[1] for length in lengths)

    def taken(end: Expr, side: Expr) -> Expr:
        return rewrite(end, lambda e: side if e == choice else None)

    found = (
        farthest_apart(taken(low, side), taken(high, side), names, {**ranges, var: (first, last)})
        for side, (var, first, last) in zip(choice.args[1:], sides, strict=True)
        if first <= last
    )
    return max(found, default=0)


def _with_numbers(e: Expr, names: Mapping[str, int], ranges: Ranges) -> Expr:
    """An expression with what is the same for all variables as a number: a quotient of sizes is in the way of sums."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Op) or e.type != INT64 or free_arrays(e) or not free_names(e) <= names.keys() - ranges.keys():
            return None
        try:
            low, high = bounds(e, names, {})
        except KeyError:
            return None
        return Const(low, INT64) if low == high else None

    return rewrite(e, rule)


def _sides(
    condition: Expr, names: Mapping[str, int], ranges: Ranges
) -> tuple[tuple[str, int, int], tuple[str, int, int]] | None:
    """The values of a variable for which a condition holds, and those for which it does not: from the first to the last; None
    where it is not of one variable.
    """
    compares = isinstance(condition, Op) and condition.name == "le"
    form = affine(Op("sub", condition.args, INT64)) if isinstance(condition, Op) and compares else None
    if form is None:
        return None
    own = [n for n in form.names if n in ranges]
    if len(own) != 1 or abs(form.coefficient(own[0])) != 1:
        return None
    (var,), rest = own, form.constant + sum(c * names[n] for n, c in form.terms if n not in ranges)
    low, high = ranges[var]
    if form.coefficient(var) > 0:
        return (var, low, min(high, -rest)), (var, max(low, 1 - rest), high)
    return (var, max(low, rest), high), (var, low, min(high, rest - 1))


def _operands(name: str, expr: Expr) -> tuple[Expr, ...]:
    """What an extremum is the largest, or the least, of."""
    if isinstance(expr, Op) and expr.name == name:
        return tuple(part for arg in expr.args for part in _operands(name, arg))
    return (expr,)


def _quotients_apart(a: Expr, b: Expr, names: Mapping[str, int], ranges: Ranges) -> Interval | None:
    """Bounds of a difference of quotients by one number, which are at most a part of 1 farther apart than what is divided."""
    (x, divisor, above), (z, other, below) = _quotient(a), _quotient(b)
    if divisor != other or divisor < 2:
        return None
    low, high = bounds(Op("sub", (x, z), INT64), names, ranges)
    return low // divisor + above - below, -(-high // divisor) + above - below


def _quotient(e: Expr) -> tuple[Expr, int, int]:
    """e as expression // number + number; what is no quotient is one by 1."""
    match e:
        case Op(name="floordiv", args=(x, Const(value=divisor))):
            return x, int(divisor), 0
        case Op(name="add", args=(quotient, Const(value=added))):
            x, divisor, above = _quotient(quotient)
            return x, divisor, above + int(added)
    return e, 1, 0


def bounds(expr: Expr, names: Mapping[str, int], ranges: Ranges) -> Interval:
    """Bounds of an integer expression of names with values, and of variables in ranges. Raises KeyError for others."""
    match expr:
        case Const(value=value):
            return int(value), int(value)
        case Ref(name=name):
            return ranges[name] if name in ranges else (names[name], names[name])
        case Op(name="neg", args=(a,)):
            low, high = bounds(a, names, ranges)
            return -high, -low
        case Op(name="add" | "sub" | "mul" | "min" | "max" | "floordiv" | "mod" as name, args=(a, b)):
            form = affine(expr)
            if form is not None and name in ("add", "sub", "mul"):  # a variable that occurs twice is one
                sides = [sorted([c * e for e in bounds(Ref(n, INT64), names, ranges)]) for n, c in form.terms]
                return form.constant + sum(s[0] for s in sides), form.constant + sum(s[1] for s in sides)
            apart = _quotients_apart(a, b, names, ranges) if name == "sub" else None
            try:
                return apart or _applied(name, [bounds(a, names, ranges), bounds(b, names, ranges)])
            except Untold:
                raise KeyError(expr) from None
        case Op(name="where", args=(Op(name="lt", args=(a, Const(value=0))), below, other)):  # as subscripts count from the end
            low, high = bounds(a, names, ranges)
            if low >= 0 or high < 0:
                return bounds(other if low >= 0 else below, names, ranges)
        case Op(name="where", args=(Op(name="le"), one, other)):
            (a0, a1), (b0, b1) = bounds(one, names, ranges), bounds(other, names, ranges)
            return min(a0, b0), max(a1, b1)
    raise KeyError(expr)
