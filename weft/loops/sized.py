"""What sizes tell, beyond sums: that subscripts of quotients, remainders and products are inside their arrays.

`x[i // r, j % r]` and `x[i * width + j]` are no sums of loop variables, of which polyhedra tell whether they leave an array. As
soon as sizes are numbers, intervals do. `sized` writes a function for the calls in which they show that: subscripts have no
checks then, nor do the products in them that might leave 64 bits. `untold` looks at a call, and names what it does not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accesses import Guard, rewrite_loads
from weft.loops.affine import affine, is_bound
from weft.loops.intervals import Intervals, NeverRuns, Untold, is_counted
from weft.loops.ir import (
    Asked,
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
    holds where they are; open: those with subscripts that are not. perhaps: how many loops are around of which data decide
    whether they have any iterations.
    """

    function: Function
    without: frozenset[str]
    known: dict[str, Expr] = field(default_factory=dict)
    asked: dict[Asked, None] = field(default_factory=dict)
    open: set[tuple[str, int]] = field(default_factory=set)
    sums: set[str] = field(default_factory=set)
    told: set[tuple[str, int]] = field(default_factory=set)
    guarded: set[tuple[str, int]] = field(default_factory=set)
    perhaps: int = 0

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
        if free_arrays(e) or not free_names(e) <= self.known.keys() or not is_counted(e):
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
                self.perhaps += None in ends
                body = self.block(stmt.body, inside, guard)
                carries = tuple(replace(c, next=self.expr(c.next, inside, guard)) for c in carries)
                self.perhaps -= None in ends
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
                everywhere = isinstance(i, Ref | Const) and (guard or self.perhaps)
                everywhere = everywhere and self.ask(name + EVERYWHERE, i, extent, loops, ())
                if guard and not everywhere:
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


# ---------------------------------------------------------------- a call

def untold(found: Sized | None, extents: Mapping[str, int]) -> frozenset[str]:
    """What the sizes of a call do not show of what is asked, by name. extents: the values of sizes and integers."""
    return frozenset(a.name for a in found.asked if not _shows(a, extents)) if found is not None else frozenset()


def _shows(asked: Asked, names: Mapping[str, int]) -> bool:
    try:
        ranges = Intervals(names)
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
