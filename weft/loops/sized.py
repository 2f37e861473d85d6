"""What sizes tell, beyond sums: that subscripts of quotients, remainders and products are inside their arrays.

`x[i // r, j % r]` and `x[i * width + j]` are no sums of loop variables, of which polyhedra tell whether they leave an array. As
soon as sizes are numbers, intervals do. `sized` writes a function for the calls in which they show that: subscripts have no
checks then, nor do the products in them that might leave 64 bits. `untold` looks at a call, and names what it does not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accesses import Guard, rewrite_loads
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.conditions import MIRRORED, OPPOSITE, comparisons
from weft.loops.ir import (
    Asked,
    Check,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Scalar,
    Sized,
    Stmt,
    Store,
    free_arrays,
    free_names,
    has_check,
    substitute,
    unchecked,
    walk_expr,
)
from weft.loops.normalize import simplify
from weft.loops.polynomials import polynomial
from weft.loops.types import BOOL, INT64

# Nodes of an expression whose names are written out; what is larger is not looked at.
_LARGEST = 200
# Integers that a call computes with stay so far from 64 bits.
_MOST = 1 << 62
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max", "floordiv", "mod"})
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
_LOGIC = frozenset({"and", "or", "not"})
_FITS = {"fits_add": "add", "fits_sub": "sub", "fits_mul": "mul"}


# After the name of a subscript that is inside in all iterations of the loops around it, whatever the conditions.
EVERYWHERE = " everywhere"


def sized(function: Function, without: Collection[str] = ()) -> Function:
    """The function for calls whose sizes show what `Function.sized` asks. without: what is not to be asked, by name."""
    return _Writer(function, frozenset(without)).made()


def _with_numbers(function: Function, told: Collection[str]) -> Function:
    """The function with what it computes of sizes alone, before all loops, as numbers of a call, unless the polyhedra know what
    it is: loops may end at them.
    """
    lets = [s for s in function.body if isinstance(s, Let) and s.name in told and not is_bound(s.value, free_names(s.value))]
    made = [s for s in lets if s.value.type == INT64 and not has_check(s.value)]
    scalars = tuple(Scalar(s.name, INT64, s.value) for s in made)
    body = tuple(s for s in function.body if s not in made)
    return replace(function, body=body, scalars=(*function.scalars, *scalars)) if made else function


def subscript_name(array: str, axis: int) -> str:
    """What a subscript is asked for by."""
    return f"{array}[{axis}]"


def is_asked(found: Sized, name: str, index: Expr, ranges: Mapping[str, tuple[Expr, Expr]]) -> bool:
    """Whether a call is asked just this of a subscript: it is one as the program has it. ranges: of variables, by other names
    perhaps, from the first value to the one after the last.
    """
    asked = (a for a in found.asked if a.name == name)
    return any(_Same({f.var: _upward(f) for f in a.loops}, ranges).told(simplify(unchecked(a.index)), index) for a in asked)


def _upward(loop: For) -> tuple[Expr, Expr]:
    """The first and the last value of a loop's variable, and 1."""
    if loop.step > 0:
        return loop.start, loop.stop
    one = Const(1, INT64)
    return Op("add", (loop.stop, one), INT64), Op("add", (loop.start, one), INT64)


@dataclass
class _Same:
    """Whether expressions are one but for the names of variables, which have the same ranges."""

    own: Mapping[str, tuple[Expr, Expr]]
    other: Mapping[str, tuple[Expr, Expr]]
    names: dict[str, str] = field(default_factory=dict)

    def told(self, a: Expr, b: Expr) -> bool:
        match a, b:
            case Ref(name=x), Ref(name=y) if x in self.own and y in self.other:
                if x in self.names or y in self.names.values():
                    return self.names.get(x) == y
                self.names[x] = y
                return all(self._alike(simplify(e), simplify(f)) for e, f in zip(self.own[x], self.other[y], strict=True))
            case Ref(name=x), Ref(name=y):
                return x == y and x not in self.own and y not in self.other
            case Op(name=x, args=xs), Op(name=y, args=ys):
                return x == y and len(xs) == len(ys) and all(map(self.told, xs, ys))
        return a == b and isinstance(a, Const)

    def _alike(self, a: Expr, b: Expr) -> bool:
        """The same of bounds, whose sums and products may be written otherwise."""
        return (polynomial(a) is not None and polynomial(a) == polynomial(b)) or self.told(a, b)


@dataclass
class _Writer:
    """known: what names that sizes and loops tell stand for, over these alone. sums: those of which the polyhedra know the
    ranges. asked: in the order of the text. told: axes of arrays that are asked for; guarded: those of which it counts on what
    holds where they are; open: those with subscripts that are not.
    """

    function: Function
    without: frozenset[str]
    known: dict[str, Expr] = field(default_factory=dict)
    asked: dict[Asked, None] = field(default_factory=dict)
    open: set[tuple[str, int]] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    told: set[tuple[str, int]] = field(default_factory=set)
    guarded: set[tuple[str, int]] = field(default_factory=set)

    def made(self) -> Function:
        own = self.function
        numbers = [s.name for s in own.sizes] + [s.name for s in own.scalars if s.type == INT64]
        self.known = {n: Ref(n, INT64) for n in numbers}
        self.sums = set(numbers)
        body = self.block(own.body, (), ())
        axes = frozenset(self.told - self.open)
        made = replace(own, body=body, sized=Sized(axes, axes - self.guarded, tuple(self.asked)))
        return _with_numbers(made, {n for n, e in self.known.items() if free_names(e) <= {*numbers}})

    # ---- what is told

    def written_out(self, e: Expr) -> Expr | None:
        """An integer, or a condition on integers, over sizes and variables of loops; None where data decide it."""
        if free_arrays(e) or not free_names(e) <= self.known.keys() or not _is_counted(e):
            return None
        out = substitute(e, self.known)
        return out if sum(1 for _ in walk_expr(out)) <= _LARGEST else None

    def ask(self, name: str, e: Expr, extent: Expr | None, loops: tuple[For, ...], guard: Guard) -> bool:
        """Ask that an expression that is told, and what it checks, is as it should be."""
        out = self.written_out(e)
        if out is None or name in self.without:
            return False
        told = tuple((c, h) for g, h in guard if (c := self.written_out(g)) is not None)
        needed = set().union(*(free_names(x) for x in (out, *(c for c, _ in told))))
        own: tuple[For, ...] = ()
        for loop in reversed(loops):  # that others run for no iteration says nothing
            if loop.var in needed:
                own = (loop, *own)
                needed |= free_names(loop.start) | free_names(loop.stop)
        self.asked[Asked(name, out, extent, own, told)] = None
        return True

    # ---- statements

    def block(self, body: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard) -> tuple[Stmt, ...]:
        return tuple(self.statement(s, loops, guard) for s in body)

    def statement(self, stmt: Stmt, loops: tuple[For, ...], guard: Guard) -> Stmt:
        match stmt:
            case Let(name=name, value=value):
                value = self.expr(value, loops, guard)
                return replace(stmt, value=self.let(name, value, loops, guard))
            case Store():
                index = tuple(self.expr(i, loops, guard) for i in stmt.index)
                index = self.index(stmt.array, index, loops, guard)
                return replace(stmt, index=index, value=self.expr(stmt.value, loops, guard))
            case If():
                condition = self.expr(stmt.condition, loops, guard)
                sides = [(*guard, (condition, holds)) for holds in (True, False)]
                then, orelse = (self.block(b, loops, g) for b, g in zip((stmt.then, stmt.orelse), sides, strict=True))
                merges = tuple(
                    replace(m, then=self.expr(m.then, loops, sides[0]), orelse=self.expr(m.orelse, loops, sides[1]))
                    for m in stmt.merges
                )
                for m in merges:
                    self.merge(m.name, condition, m.then, m.orelse)
                return replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges)
            case For():
                start, stop = (
                    self.end(f"{end} of {stmt.var}", self.expr(e, loops, guard), loops, guard)
                    for end, e in (("start", stmt.start), ("stop", stmt.stop))
                )
                low, high = ("max", "min") if stmt.step > 0 else ("min", "max")
                ends = self.limit(start, low), self.limit(stop, high)
                carries = tuple(replace(c, init=self.expr(c.init, loops, guard)) for c in stmt.carries)
                inside = loops
                if is_bound(start, self.sums) and is_bound(stop, self.sums):
                    self.sums.add(stmt.var)
                if None not in ends:
                    self.known[stmt.var] = Ref(stmt.var, INT64)
                    inside = (*loops, For(stmt.var, ends[0], ends[1], stmt.step, (), ()))  # type: ignore[arg-type]
                body = self.block(stmt.body, inside, guard)
                carries = tuple(replace(c, next=self.expr(c.next, inside, guard)) for c in carries)
                return replace(stmt, start=start, stop=stop, carries=carries, body=body)
        raise TypeError(stmt)

    def let(self, name: str, value: Expr, loops: tuple[For, ...], guard: Guard) -> Expr:
        """The value of a name that is given, without the checks of which a call is asked."""
        if value.type not in (INT64, BOOL):
            return value
        out = self.written_out(value)
        if out is None or (has_check(value) and not self.ask(name, value, None, loops, guard)):
            return value
        self.known[name] = unchecked(out)
        return unchecked(value)

    def limit(self, e: Expr, how: str) -> Expr | None:
        """A bound of a loop as far as it is told: of the largest or the smallest of several, those that are."""
        out = self.written_out(e)
        if out is None and isinstance(e, Op) and e.name == how:
            told = [x for a in e.args if (x := self.limit(a, how)) is not None]
            return told[0] if len(told) == 1 else None
        return out

    def end(self, name: str, e: Expr, loops: tuple[For, ...], guard: Guard) -> Expr:
        """A bound of a loop, without the checks of which a call is asked."""
        return unchecked(e) if has_check(e) and self.ask(name, e, None, loops, guard) else e

    def merge(self, name: str, condition: Expr, then: Expr, orelse: Expr) -> None:
        if then.type in (INT64, BOOL):
            out = self.written_out(Op("where", (condition, then, orelse), then.type))
            if out is not None and not has_check(out):
                self.known[name] = out

    def expr(self, e: Expr, loops: tuple[For, ...], guard: Guard) -> Expr:
        def rule(load: Load, around: Guard) -> Expr | None:
            index = self.index(load.array, load.index, loops, (*guard, *around))
            return replace(load, index=index) if index != load.index else None

        return rewrite_loads(e, rule) if free_arrays(e) else e

    def index(self, array: str, index: tuple[Expr, ...], loops: tuple[For, ...], guard: Guard) -> tuple[Expr, ...]:
        """A subscript, asked for where it is no sum, or its array's extent is none."""
        out = []
        for axis, i in enumerate(index):
            name, extent = subscript_name(array, axis), self.function.array(array).shape[axis]
            if affine(i) is not None and free_names(i) <= self.sums and is_bound(extent, free_names(extent)):
                self.told.add((array, axis))  # by polyhedra
                # a loop that goes through an axis mostly does so whatever the conditions in it
                if guard and not (isinstance(i, Ref) and self.ask(name + EVERYWHERE, i, extent, loops, ())):
                    self.guarded.add((array, axis))
                out.append(i)
            elif self.ask(name + EVERYWHERE, i, extent, loops, ()):
                self.told.add((array, axis))
                out.append(unchecked(i))
            elif guard and self.ask(name, i, extent, loops, guard):
                self.told.add((array, axis))
                self.guarded.add((array, axis))
                out.append(unchecked(i))
            else:
                self.open.add((array, axis))
                out.append(i)
        return tuple(out)


def _is_counted(e: Expr) -> bool:
    """Whether intervals say something of an integer expression, or of a condition on integers."""
    match e:
        case Const() | Ref():
            return e.type in (INT64, BOOL)
        case Check(args=(value, condition)):
            return _is_counted(value) and _is_counted(condition)
        case Op(name="where", args=(condition, then, orelse)):
            return e.type == INT64 and all(map(_is_counted, (condition, then, orelse)))
        case Op(name=name, args=args) if name in _COMPARISONS | _FITS.keys():
            return all(a.type == INT64 and _is_counted(a) for a in args)
        case Op(name=name, args=args) if name in _LOGIC:
            return all(map(_is_counted, args))
        case Op(name=name, args=args) if name in _ARITHMETIC:
            return e.type == INT64 and all(map(_is_counted, args))
    return False


# ---------------------------------------------------------------- a call

Interval = tuple[int, int]


class Untold(Exception):  # noqa: N818 - it is no error: a check stays
    """Intervals do not show something."""


def untold(found: Sized | None, extents: Mapping[str, int]) -> frozenset[str]:
    """What the sizes of a call do not show of what is asked, by name. extents: the values of sizes and integers."""
    return frozenset(a.name for a in found.asked if not _shows(a, extents)) if found is not None else frozenset()


def _shows(asked: Asked, names: Mapping[str, int]) -> bool:
    try:
        ranges = Ranges(names)
        for loop in asked.loops:
            ranges.open(loop)
        for condition, holds in asked.guard:
            ranges.assume(condition, holds)
    except NeverRuns:
        return True
    except Untold:
        return False
    try:
        low, high = ranges.of(asked.index)
        return asked.extent is None or (low >= 0 and high < ranges.of(asked.extent)[0])
    except Untold:
        return False


class NeverRuns(Exception):  # noqa: N818 - nor is this
    """No iteration gets there."""


class Ranges:
    """Intervals of integers over names with values and variables of loops."""

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
            here = Ranges({})
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
        low, high = Ranges._compared(OPPOSITE[name], a, b)
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

