"""Complex numbers as pairs: statements of the language -> the same statements in real numbers alone.

While a function is parsed a complex number is one value, an expression of a complex type. What leaves the language has none:
a name of such a value becomes two names, an access to an array of complex numbers two accesses to the array of their parts, an
operator what it is of real parts. Functions of complex numbers are operators of weft.loops.operators for each part.

What is needed for both parts of a result gets a name, in front of the statement or in a branch of its own where the Python
computes it on one path alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.language.values import PARTS
from weft.loops.ir import (
    Carry,
    Cast,
    Check,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Stmt,
    Store,
    operands,
    statement_exprs,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.types import BOOL, INT64, ScalarType

Pair = tuple[Expr, Expr]
_TURNED = {"sin": "sinh", "tan": "tanh", "asin": "asinh", "atan": "atanh"}  # f(z) = -i g(i z)
# Functions of PyTorch that complex numbers have, besides arithmetic.
COMPLEX_FUNCTIONS = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sin", "cos", "tan", "asin", "acos", "atan"),
    )
)


def split(body: tuple[Stmt, ...], fresh: Callable[[str], str], spare: set[str]) -> tuple[Stmt, ...]:
    """Statements without complex numbers. fresh: makes names. spare: names that may be left out where nothing reads them, those
    of parts of such a name are added.
    """
    if not any(_is_complex(e) for s in walk(body) for top in _exprs(s) for e in walk_expr(top)):
        return body
    return _Splitter(fresh, spare).block(body)


def _is_complex(expr: Expr) -> bool:
    return expr.type.category == "complex"


def _exprs(stmt: Stmt) -> tuple[Expr, ...]:
    return statement_exprs(stmt)


def _op(name: str, *args: Expr) -> Op:
    return Op(name, args, args[0].type)


def _number(value: float, type_: ScalarType) -> Const:
    return Const(value, type_)


def _bool(name: str, *args: Expr) -> Op:
    return Op(name, args, BOOL)


@dataclass
class _Splitter:
    """names: the parts of each complex name. blocks: of statements that are being made, innermost last."""

    fresh: Callable[[str], str]
    spare: set[str]
    names: dict[str, Pair] = field(default_factory=dict)
    blocks: list[list[Stmt]] = field(default_factory=list)

    # ------------------------------------------------------------ statements

    @contextmanager
    def inside(self) -> Iterator[list[Stmt]]:
        self.blocks.append([])
        yield self.blocks[-1]
        self.blocks.pop()

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        with self.inside() as made:
            for stmt in body:
                self.statement(stmt)
        return tuple(made)

    def emit(self, stmt: Stmt) -> None:
        self.blocks[-1].append(stmt)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Let(name=name, value=value) if _is_complex(value):
                pair = self.named(self.pair(value), name, spare=name in self.spare)
                self.names[name] = pair
            case Let(value=value):
                self.emit(replace(stmt, value=self.real(value)))
            case Store(index=index, value=value) if _is_complex(value):
                at = tuple(map(self.real, index))
                pair = self.named(self.pair(value), stmt.array)  # both, before either is stored
                for k, part in enumerate(pair):
                    self.emit(replace(stmt, index=_part_of(at, k), value=part))
            case Store(index=index, value=value):
                self.emit(replace(stmt, index=tuple(map(self.real, index)), value=self.real(value)))
            case For():
                self.loop(stmt)
            case If():
                self.branch(stmt)

    def loop(self, loop: For) -> None:
        start, stop = self.real(loop.start), self.real(loop.stop)
        parts: list[tuple[Carry, tuple[str, str], Pair]] = []
        others: list[tuple[Carry, Expr]] = []
        for carry in loop.carries:
            if _is_complex(carry.init):
                own = self.two(carry.name, carry.type)
                parts.append((carry, own, self.pair(carry.init)))
            else:
                others.append((carry, self.real(carry.init)))
        with self.inside() as body:
            for stmt in loop.body:
                self.statement(stmt)
            carries = [replace(carry, init=init, next=self.real(carry.next)) for carry, init in others]
            for carry, own, init in parts:
                after = self.pair(carry.next)
                results = self.two(carry.result, carry.type)
                carries += map(Carry, own, init, after, results)
        self.emit(replace(loop, start=start, stop=stop, carries=tuple(carries), body=tuple(body)))

    def branch(self, stmt: If) -> None:
        condition = self.real(stmt.condition)
        sides: list[tuple[list[Stmt], list[Pair | Expr]]] = []
        for statements, chosen in (
            (stmt.then, [m.then for m in stmt.merges]),
            (stmt.orelse, [m.orelse for m in stmt.merges]),
        ):
            with self.inside() as body:
                for inner in statements:
                    self.statement(inner)
                sides.append((body, [self.pair(e) if _is_complex(e) else self.real(e) for e in chosen]))
        merges: list[Merge] = []
        (then, ones), (orelse, others) = sides
        for merge, one, other in zip(stmt.merges, ones, others, strict=True):
            if isinstance(one, tuple) and isinstance(other, tuple):
                merges += map(Merge, self.two(merge.name, merge.type), one, other)
            else:
                assert not isinstance(one, tuple) and not isinstance(other, tuple)
                merges.append(replace(merge, then=one, orelse=other))
        self.emit(replace(stmt, condition=condition, then=tuple(then), orelse=tuple(orelse), merges=tuple(merges)))

    def two(self, name: str, type_: ScalarType) -> tuple[str, str]:
        """The names of the parts of what a name means."""
        own = self.fresh(f"{name}_re"), self.fresh(f"{name}_im")
        self.names[name] = Ref(own[0], type_.part), Ref(own[1], type_.part)
        if name in self.spare:
            self.spare.update(own)
        return own

    def named(self, pair: Pair, hint: str, spare: bool = False) -> Pair:
        """A pair whose parts may be used several times, and before what they were computed from is stored into."""

        def part(expr: Expr, suffix: str) -> Expr:
            if isinstance(expr, (Ref, Const)):
                return expr
            name = self.fresh(f"{hint}_{suffix}")
            if spare:
                self.spare.add(name)
            self.emit(Let(name, expr))
            return Ref(name, expr.type)

        return part(pair[0], "re"), part(pair[1], "im")

    # ------------------------------------------------------------ expressions

    def real(self, expr: Expr) -> Expr:
        """A real expression, of which parts may be complex."""
        if not any(map(_is_complex, walk_expr(expr))):
            return expr
        if isinstance(expr, Op) and any(map(_is_complex, expr.args)) and expr.name not in ("where", "check"):
            return self.of_complex(expr)
        match expr:
            case Op(name="where", args=(test, then, orelse)):
                return self.choice(expr, self.real(test), lambda: (self.real(then),), lambda: (self.real(orelse),))[0]
            case Op(name="and", args=(one, other)):
                return self.choice(None, self.real(one), lambda: (self.real(other),), lambda: (Const(False, BOOL),))[0]
            case Op(name="or", args=(one, other)):
                return self.choice(None, self.real(one), lambda: (Const(True, BOOL),), lambda: (self.real(other),))[0]
        return with_operands(expr, tuple(map(self.real, operands(expr))))

    def of_complex(self, expr: Op) -> Expr:
        """What an operator gives whose operands are complex, and which itself is not."""
        pairs = [self.pair(a) for a in expr.args]
        re, im = pairs[0]
        match expr.name:
            case "real":
                return re
            case "imag":
                return im
            case "abs":
                return replace(_op("hypot", re, im), derivative="complex_abs")
            case "angle":
                return replace(_op("atan2", im, re), derivative="complex_angle")
            case "eq" | "ne":
                parts = (_bool(expr.name, a, b) for a, b in zip(*pairs, strict=True))
                return _bool("and" if expr.name == "eq" else "or", *parts)
            case "isnan" | "isinf":
                return _bool("or", _bool(expr.name, re), _bool(expr.name, im))
            case "isfinite":
                return _bool("and", _bool("isfinite", re), _bool("isfinite", im))
        raise AssertionError(expr.name)

    def pair(self, expr: Expr) -> Pair:
        """The parts of a complex expression."""
        part = expr.type.part
        match expr:
            case Ref(name=name):
                return self.names[name]
            case Load(array=array, index=index):
                at = tuple(map(self.real, index))
                loads = [replace(expr, index=_part_of(at, k), type=part) for k in (0, 1)]
                return self.named((loads[0], loads[1]), array)
            case Cast(value=value) if _is_complex(value):
                re, im = self.pair(value)
                return _converted(re, part), _converted(im, part)
            case Cast(value=value):
                return _converted(self.real(value), part), Const(0.0, part)
            case Check(args=(value, condition)):
                asked = self.real(condition)
                re, im = self.pair(value)
                return replace(expr, args=(re, asked), type=part), replace(expr, args=(im, asked), type=part)
            case Op(name="where", args=(test, then, orelse)):
                re, im = self.choice(expr, self.real(test), lambda: self.pair(then), lambda: self.pair(orelse))
                return re, im
            case Op(name="complex", args=(re, im)):
                return self.real(re), self.real(im)
            case Op(name=name, args=args):
                return self.operator(name, [self.pair(a) for a in args])
        raise AssertionError(expr)

    def choice(
        self, expr: Op | None, test: Expr, then: Callable[[], tuple[Expr, ...]], orelse: Callable[[], tuple[Expr, ...]]
    ) -> tuple[Expr, ...]:
        """`then if test else orelse`, of which one is computed, or both where PyTorch's own operator computes them. expr: the
        choice that it is, None of one of bools.
        """
        if expr is not None and expr.derivative == "both":
            pairs = zip(then(), orelse(), strict=True)
            return tuple(replace(expr, args=(test, a, b), type=a.type) for a, b in pairs)
        with self.inside() as first:
            ones = then()
        with self.inside() as second:
            others = orelse()
        if not first and not second:
            return tuple(Op("where", (test, a, b), a.type) for a, b in zip(ones, others, strict=True))
        names = [self.fresh("chosen") for _ in ones]
        self.emit(If(test, tuple(first), tuple(second), tuple(map(Merge, names, ones, others))))
        return tuple(Ref(name, one.type) for name, one in zip(names, ones, strict=True))

    # ------------------------------------------------------------ operators

    def operator(self, name: str, pairs: list[Pair]) -> Pair:
        """What an operator of the language is of the parts of its operands."""
        if name in ("add", "sub", "neg"):
            return _op(name, *(p[0] for p in pairs)), _op(name, *(p[1] for p in pairs))
        if name == "conj":
            return pairs[0][0], _op("neg", pairs[0][1])
        pairs = [self.named(p, "part") for p in pairs]
        if name == "mul":
            return self.product(*pairs)
        if name in ("div", "pow"):
            return self.function({"div": "divide", "pow": "power"}[name], *pairs[0], *pairs[1])
        (z,) = pairs
        re, im = z
        if name in _TURNED:
            y, x = self.function(_TURNED[name], _op("neg", im), re)
            return x, _op("neg", y)
        if name == "cos":
            return self.function("cosh", _op("neg", im), re)
        if name == "exp2":
            return self.function("exp", *self.scaled(z, math.log(2)))
        if name in ("log2", "log10"):
            return self.scaled(self.function("log", *z), 1 / math.log(int(name[3:])))
        if name == "rsqrt":
            return self.inverse(self.named(self.function("sqrt", *z), "root"))
        if name == "sigmoid":
            return self.sigmoid(z)
        return self.function(name, *z)

    def function(self, name: str, *parts: Expr) -> Pair:
        """An operator for each part of what a function gives, of parts under names."""
        args = tuple(p for k in range(0, len(parts), 2) for p in self.named((parts[k], parts[k + 1]), "part"))
        return _op(f"complex_{name}_re", *args), _op(f"complex_{name}_im", *args)

    def product(self, one: Pair, other: Pair) -> Pair:
        (a, b), (c, d) = one, other
        return (
            _op("sub", _op("mul", a, c), _op("mul", b, d)),
            _op("add", _op("mul", a, d), _op("mul", b, c)),
        )

    def scaled(self, z: Pair, factor: float) -> Pair:
        re, im = (_op("mul", p, _number(factor, p.type)) for p in z)
        return re, im

    def inverse(self, z: Pair) -> Pair:
        type_ = z[0].type
        return self.function("divide", _number(1.0, type_), _number(0.0, type_), *z)

    def sigmoid(self, z: Pair) -> Pair:
        """1 / (1 + e^-z), or e^z / (1 + e^z), by the power that is small."""
        re, im = z
        below = _bool("lt", re, _number(0.0, re.type))
        turned = tuple(Op("where", (below, p, _op("neg", p)), p.type) for p in z)
        x, y = self.named(self.function("exp", *turned), "power")
        one, zero = _number(1.0, re.type), _number(0.0, re.type)
        above = Op("where", (below, x, one), re.type), Op("where", (below, y, zero), re.type)
        return self.function("divide", *above, _op("add", one, x), y)


def _converted(expr: Expr, to: ScalarType) -> Expr:
    if expr.type == to:
        return expr
    if isinstance(expr, Const):
        return Const(float(expr.value), to)
    return Cast(expr, to)


def _part_of(index: tuple[Expr, ...], part: int) -> tuple[Expr, ...]:
    """The subscript of one part of a complex number."""
    assert index[-1] == PARTS
    return (*index[:-1], Const(part, INT64))
