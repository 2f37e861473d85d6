"""Cascades: sums whose terms use a running value of another reduction, and are repaired whenever it changes.

In online softmax `l = l * exp(m - m_new) + exp(s - m_new)` the sum l is kept relative to a running maximum m. An update
`h = c(d, d') * h + e(x, d')` with running values d, d' (before and after this iteration) and data x is a reduction, whatever
the order, if its terms decompose as e(x, d') = g(x) * H(d') and its coefficient repairs exactly that: c(d, d') = H(d') / H(d).
Then h / H(d) is a plain sum of g, and a part of it is brought to newer running values by c.

The terms decompose if and only if e(x, d) * e(x0, d0) = e(x, d0) * e(x0, d) for a fixed point (x0, d0) where e is not zero
(the fixed-point test); then H(d) = e(x0, d) up to a constant. SymPy decides the identities, for all real values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from weft.loops.ir import Cast, Const, Expr, Op, Ref, Round, free_names, operands, rewrite, substitute, with_operands
from weft.loops.show import show_expr
from weft.loops.simplify import is_number
from weft.loops.types import FLOAT32

if TYPE_CHECKING:
    import sympy

_ARITHMETIC = {"add", "sub", "mul", "div", "neg", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "pow"}


@dataclass(frozen=True)
class Running:
    """A value that is updated before the sum: its name in an iteration, and the expressions of its new value."""

    before: str
    after: tuple[Expr, ...]


@dataclass(frozen=True)
class Cascade:
    """repair: what brings a part of the sum to newer running values, as text; "" if there is none. disorder: why. factor:
    the same as an expression of the running values, m before and m' after. term: what is added, as an expression of m' alone
    and data: with the last m' in all of them, the terms add up to the last value of the sum.
    """

    repair: str = ""
    disorder: str = ""
    factor: Expr | None = None
    term: Expr | None = None


def cascade(name: str, coefficient: Expr, addend: Expr, running: tuple[Running, ...]) -> Cascade:
    """Whether the update `name = coefficient * name + addend` is a cascade over these running values."""
    before = {r.before for r in running}
    shown, those = _shown(_after(coefficient, running)), " and ".join(sorted(before))
    if isinstance(coefficient, Const):  # no need to ask SymPy
        return Cascade(disorder=f"the terms of {name} are not repaired when {those} changes")
    factor = _unmasked(coefficient, running)
    symbols = _Symbols(running)
    c = symbols.read(_after(factor, running))
    e = symbols.read(_after(_unguarded(addend), running))
    if c is None or e is None:
        return Cascade(disorder=f"how {name} depends on {those} is no arithmetic that can be proven")
    if symbols.data_of(c):
        return Cascade(disorder=f"what {name} is multiplied by, {shown}, depends on more than {those}")
    if symbols.old_of(e):
        return Cascade(disorder=f"what is added to {name} uses {those} as it was before")
    scale = symbols.scale(e)
    if scale is None:
        return Cascade(disorder=f"what is added to {name} is no product of the data and {those}")
    if not symbols.repairs(c, scale):
        wanted = symbols.ratio(scale)
        return Cascade(disorder=f"{name} is multiplied by {shown}, where {wanted} would keep its earlier terms right")
    term = _term(addend, running)
    if term is None:
        return Cascade(disorder=f"{those} decides which terms {name} gets")
    return Cascade(_shown(_after(factor, running)), "", _after(factor, running), term)


def rescales(term: Expr, scale: Expr, before: str, after: str) -> bool:
    """Whether a term, in which the name `before` is, times the scale is the same with the name `after` instead."""
    symbols = _Symbols((Running(before, ()),))
    symbols.new = {after: symbols.sympy.Symbol(after, real=True)}
    term = _unguarded(unrounded(term))
    first, last = (symbols.read(e) for e in (term, substitute(term, {before: Ref(after, FLOAT32)})))
    by = symbols.read(scale)
    return first is not None and last is not None and by is not None and symbols.same(first * by, last)


def unrounded(term: Expr) -> Expr:
    """A term of real numbers, none of whose factors is rounded: the error is that of one rounding, whatever these are relative
    to. What is rounded inside of an exponential stays so.
    """
    match term:
        case Round(value=value):
            return unrounded(value)
        case Op(name="mul" | "div" | "neg" | "where", args=args):
            return replace(term, args=tuple(map(unrounded, args)))
    return term


def _term(addend: Expr, running: tuple[Running, ...]) -> Expr | None:
    """The addend with newer running values; None where these decide which iterations count."""
    term = _after(addend, running)
    changing = {name for r in running for name in (r.before, f"{r.before}'")}
    match term:
        case Op(name="where", args=(condition, x, y)) if is_number(x, 0) or is_number(y, 0):
            return None if free_names(condition) & changing else term
    return term


def _shown(e: Expr) -> str:
    """An expression as text, without the conversions that Python has implicitly."""
    return show_expr(rewrite(e, lambda x: x.value if isinstance(x, Cast) else divisor(x)))


def divisor(e: Expr) -> Expr | None:
    """b where e is `b if b != 0 else 1`: what real numbers are divided by is no 0."""
    match e:
        case Op(name="where", args=(Op(name="ne", args=(by, zero)), same, one)):
            return by if by == same and is_number(zero, 0) and is_number(one, 1) else None
    return None


def _after(e: Expr, running: tuple[Running, ...]) -> Expr:
    """e with the new value of each running value as a name of its own."""
    for r in running:
        for new in r.after:
            if e == new:
                return Ref(f"{r.before}'", e.type)
    old = operands(e)
    new_operands = tuple(_after(o, running) for o in old)
    return e if new_operands == old else with_operands(e, new_operands)


def _unmasked(coefficient: Expr, running: tuple[Running, ...]) -> Expr:
    """The coefficient of the iterations that count: in others (`f if mask else 1`) the running values stay, and f is 1."""
    match coefficient:
        case Op(name="where", args=(condition, x, y)):
            same = any(
                isinstance(new, Op) and new.name == "where" and new.args[0] == condition for r in running for new in r.after
            )
            if same and is_number(y, 1):
                return x
            if same and is_number(x, 1):
                return y
    return coefficient


def _unguarded(addend: Expr) -> Expr:
    """The addend of the iterations that count: in others it is 0."""
    match addend:
        case Op(name="where", args=(_, x, y)) if is_number(y, 0):
            return x
        case Op(name="where", args=(_, x, y)) if is_number(x, 0):
            return y
    return addend


class _Symbols:
    """Expressions as SymPy's: running values before (d), after (d') and other data (x), all real."""

    def __init__(self, running: tuple[Running, ...]) -> None:
        import sympy

        self.sympy = sympy
        self.old = {r.before: sympy.Symbol(r.before, real=True) for r in running}
        self.new = {f"{r.before}'": sympy.Symbol(f"{r.before}'", real=True) for r in running}
        self.data: dict[Expr, sympy.Symbol] = {}

    def read(self, e: Expr) -> sympy.Expr | None:
        """None where a running value goes through what is no arithmetic."""
        match e:
            case Const(value=number):
                return self.sympy.nsimplify(number) if math.isfinite(number) else None
            case Ref(name=name) if name in self.old:
                return self.old[name]
            case Ref(name=name) if name in self.new:
                return self.new[name]
        if not free_names(e) & {*self.old, *self.new}:
            return self.data.setdefault(e, self.sympy.Symbol(f"x{len(self.data)}", real=True))
        divided = divisor(e)
        if divided is not None:
            return self.read(divided)
        match e:
            case Cast(value=inner):
                return self.read(inner)
            case Op(name=name, args=args) if name in _ARITHMETIC:
                found = [self.read(a) for a in args]
                return None if None in found else self._operation(name, found)
        return None

    def _operation(self, name: str, a: list[Any]) -> sympy.Expr:
        s = self.sympy
        meaning = {
            "add": lambda: a[0] + a[1],
            "sub": lambda: a[0] - a[1],
            "mul": lambda: a[0] * a[1],
            "div": lambda: a[0] / a[1],
            "neg": lambda: -a[0],
            "exp": lambda: s.exp(a[0]),
            "exp2": lambda: s.exp(a[0] * s.log(2)),
            "log": lambda: s.log(a[0]),
            "log2": lambda: s.log(a[0]) / s.log(2),
            "sqrt": lambda: s.sqrt(a[0]),
            "rsqrt": lambda: 1 / s.sqrt(a[0]),
            "pow": lambda: a[0] ** a[1],
        }
        return meaning[name]()

    def data_of(self, e: sympy.Expr) -> bool:
        return bool(e.free_symbols & set(self.data.values()))

    def old_of(self, e: sympy.Expr) -> bool:
        return bool(e.free_symbols & set(self.old.values()))

    def scale(self, e: sympy.Expr) -> sympy.Expr | None:
        """H(d') of a term g(x) * H(d'), by the fixed-point test; None where the term is no such product."""
        s = self.sympy
        x0 = {x: s.Symbol(f"{x}_0", real=True) for x in self.data.values()}
        d0 = {d: s.Symbol(f"{d}_0", real=True) for d in self.new.values()}
        swapped = e * e.subs({**x0, **d0}, simultaneous=True) - e.subs(d0, simultaneous=True) * e.subs(x0, simultaneous=True)
        return e if self._zero(swapped) else None

    def ratio(self, scale: sympy.Expr) -> sympy.Expr:
        """H(d') / H(d)."""
        back = {new: self.old[name.removesuffix("'")] for name, new in self.new.items()}
        return self.sympy.simplify(scale / scale.subs(back, simultaneous=True))

    def repairs(self, c: sympy.Expr, scale: sympy.Expr) -> bool:
        return self._zero(c - self.ratio(scale))

    def same(self, a: sympy.Expr, b: sympy.Expr) -> bool:
        return self._zero(a - b)

    def _zero(self, e: sympy.Expr) -> bool:
        return bool(self.sympy.simplify(self.sympy.powsimp(self.sympy.expand(e))) == 0)
