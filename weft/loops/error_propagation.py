"""How far rounding may have moved results: for each float result of a function, the variance of its elements.

Every value is taken to be off by an independent error, of a unit times its own size, where it is rounded: where it is an
input or a number, which arithmetic rounds with; where the program rounds it to a narrower type; where it is read again from
memory that rounded it. Operators hand errors on as their partial derivatives say, to the first order, so that the error of a
sum is that of the terms that it was summed from, however small what is left of them is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.loops.derivatives import contributions
from weft.loops.ir import (
    Carry,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    validate,
    walk,
    without_checks,
)
from weft.loops.names import Names
from weft.loops.simplify import add, drop_dead, mul, number, select
from weft.loops.types import FLOAT64, ScalarType

Units = Mapping[ScalarType, float]


def variances(function: Function, units: Units, rounded: frozenset[str]) -> tuple[Function, tuple[str, ...]]:
    """The function that computes the variances of results, in float64, and which results these are: the float ones that it
    makes itself.

    units: by float type, of the size of a value, how far rounding to it may move the value. rounded: the arguments that were
    rounded to their own type after they were computed.
    """
    function = replace(function, body=without_checks(function.body), demands=())
    return _Variances(function, units, rounded).build()


def _wide(e: Expr) -> Expr:
    return e if e.type == FLOAT64 else Cast(e, FLOAT64)


def _square(e: Expr) -> Expr:
    return number(float(e.value) ** 2, FLOAT64) if isinstance(e, Const) else mul(_wide(e), _wide(e))


_NONE = number(0, FLOAT64)


@dataclass
class _Variances:
    function: Function
    units: Units
    rounded: frozenset[str]

    def __post_init__(self) -> None:
        self.names = Names.of(self.function)
        written = {s.array for s in walk(self.function.body) if isinstance(s, Store)}
        self.arrays = {
            a.name: replace(
                a, name=self.names.fresh(f"{a.name}_variance"), dtype=FLOAT64, fill=None if a.fill is None else _NONE
            )
            for a in self.function.arrays
            if a.role in ("result", "local") and a.dtype.category == "float" and a.name in written
        }
        self.of: dict[str, str] = {}

    def build(self) -> tuple[Function, tuple[str, ...]]:
        f = self.function
        results = tuple(r for r in dict.fromkeys(f.results) if r in self.arrays)
        body = self.block(f.body)
        arrays = (*(replace(a, role="local") if a.role == "result" else a for a in f.arrays), *self.arrays.values())
        made = replace(f, arrays=arrays, body=body, results=tuple(self.arrays[r].name for r in results))
        made = drop_dead(made)
        validate(made)
        return made, results

    # ---- statements

    def block(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value) if value.type.category == "float":
                    out += [Let(self.name(name), self.variance(value), stmt.location), stmt]
                case Store(array=array) if array in self.arrays:
                    own = self.arrays[array].name
                    out += [Store(own, stmt.index, self.variance(stmt.value), stmt.location), stmt]
                case For():
                    out.append(self.loop(stmt))
                case If():
                    out.append(self.branch(stmt))
                case _:
                    out.append(stmt)
        return tuple(out)

    def loop(self, loop: For) -> For:
        floats = [c for c in loop.carries if c.type.category == "float"]
        inits = [self.variance(c.init) for c in floats]
        names = [self.name(c.name) for c in floats]
        body = self.block(loop.body)
        nexts = [self.variance(c.next) for c in floats]
        results = [self.name(c.result) for c in floats]
        own = tuple(map(Carry, names, inits, nexts, results))
        return replace(loop, carries=(*loop.carries, *own), body=body)

    def branch(self, stmt: If) -> If:
        floats = [m for m in stmt.merges if m.type.category == "float"]
        then, orelse = self.block(stmt.then), self.block(stmt.orelse)
        own = tuple(Merge(self.name(m.name), self.variance(m.then), self.variance(m.orelse)) for m in floats)
        return replace(stmt, then=then, orelse=orelse, merges=(*stmt.merges, *own))

    def name(self, name: str) -> str:
        return self.of.setdefault(name, self.names.fresh(f"{name}_variance"))

    # ---- expressions

    def variance(self, e: Expr) -> Expr:
        match e:
            case Const():
                return _NONE
            case Ref(name=name) if name in self.of:
                return Ref(self.of[name], FLOAT64)
            case Load(array=array, index=index):
                dtype = self.function.array(array).dtype
                if array not in self.arrays:
                    return self.off(e, dtype if array in self.rounded else dtype.opmath)
                before = Load(self.arrays[array].name, index, FLOAT64)
                return add(before, self.off(e, dtype)) if dtype != dtype.opmath else before
            case Cast(value=value) if value.type.category == "float":
                return self.variance(value)
            case Round(value=value, to=to):
                return add(self.variance(value), self.off(value, to))
            case Op(name="where", args=(test, a, b)):
                return select(test, self.variance(a), self.variance(b))
            case Op():
                return self.through(e)
        return self.off(e, e.type)

    def through(self, e: Op) -> Expr:
        alike = all(a.type == e.type for a in e.args)
        parts = contributions(e, number(1, e.type), e.args, e) if alike else ()
        if not any(parts):
            return self.off(e, e.type)
        total: Expr = _NONE
        for a, part in zip(e.args, parts, strict=True):
            of = self.variance(a)
            if part is not None and of != _NONE:
                total = add(total, mul(_square(part), of))
        return total

    def off(self, e: Expr, to: ScalarType) -> Expr:
        return mul(number(self.units[to] ** 2, FLOAT64), _square(e))
