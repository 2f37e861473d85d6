"""Expressions of the loop nest as C++ text, the same for the CPU and for CUDA.

Functions are those of `runtime/device/scalar.cuh`; parentheses stand only where C++ needs them.

For CUDA, whose compiler is told to contract nothing, the text states which multiply-adds round once, so that whoever
compiles it gets the same bits: a sum or difference of floats with a product, perhaps negated, as one of its operands
(the left one where both are) is `weft::fma`. A product that has a name is rounded before it is added.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from weft.emit.subscripts import simplify
from weft.loops.ir import Cast, Check, Const, Expr, Fault, Load, Op, Ref, Round, walk_expr
from weft.loops.operators import COSTLY, OPERATORS
from weft.loops.types import BOOL, FLOAT8_E4M3FN, FLOAT32, FLOAT64, INT64, ScalarType, saturates

# How tightly C++ binds, loosest first. Text of one level can stand unparenthesised where a looser one is allowed.
TERNARY, OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQUALITY, RELATION, SUM, PRODUCT, UNARY, PRIMARY = range(1, 13)
_BINDS = {"?": TERNARY, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}  # between what spells a name

_INFIX = {
    "add": (" + ", SUM),
    "sub": (" - ", SUM),
    "mul": (" * ", PRODUCT),
    "div": (" / ", PRODUCT),
    "lt": (" < ", RELATION),
    "le": (" <= ", RELATION),
    "gt": (" > ", RELATION),
    "ge": (" >= ", RELATION),
    "eq": (" == ", EQUALITY),
    "ne": (" != ", EQUALITY),
    "and": (" && ", AND),
    "or": (" || ", OR),
    "bitand": (" & ", BIT_AND),
    "bitor": (" | ", BIT_OR),
    "bitxor": (" ^ ", BIT_XOR),
}
# Functions of float32 without a branch on a GPU.
_STRAIGHT = frozenset({"exp", "exp2", "erf", "gelu", "rsqrt", "sigmoid", "tanh"})
# Functions of float32 that weft/rare.hpp has too, quicker and with an end.
RARELY_WRONG = frozenset({"sin", "cos", "tan", "fmod", "mod", "floordiv"})
_SHORT = {"floordiv": "quotient", "mod": "remainder"}
_WRAPPING = {"add": "wrapping_add", "sub": "wrapping_sub", "mul": "wrapping_mul", "neg": "wrapping_neg"}


def register_type(type_: ScalarType) -> str:
    """The C++ type that arithmetic on this type runs in."""
    return _cpp(type_.opmath)


def memory_type(type_: ScalarType) -> str:
    """The C++ type of an element in memory."""
    if type_.category == "float" and type_ != type_.opmath:
        return f"weft::{_rounding(type_)}"
    return "weft::boolean" if type_ == BOOL else _cpp(type_)


def _rounding(type_: ScalarType) -> str:
    """A type of memory whose op-math type is another one, and how it rounds."""
    return f"{type_.name}_saturated" if type_ == FLOAT8_E4M3FN and saturates() else type_.name


def _cpp(type_: ScalarType) -> str:
    return {"bool": "bool", "float32": "float", "float64": "double"}.get(type_.name, f"{type_.name}_t")


def literal(value: bool | int | float, type_: ScalarType, typed: bool = False) -> str:
    """A constant of a register type. typed: the text alone has that type, as an argument of a template needs."""
    if type_ == BOOL:
        return "true" if value else "false"
    if type_.category == "int":
        wrapped = int(value) & ((1 << 8 * type_.size) - 1)
        number = wrapped - (1 << 8 * type_.size) if type_.signed and wrapped >> (8 * type_.size - 1) else wrapped
        text = "-9223372036854775807 - 1" if number == -(1 << 63) else str(number)
        return f"{_cpp(type_)}({text})" if typed or number == -(1 << 63) else text
    real = float(value)
    if math.isnan(real) or math.isinf(real):
        text = "NAN" if math.isnan(real) else "INFINITY"
        text = f"double({text})" if type_ == FLOAT64 else text
        return "-" + text if real < 0 else text
    if type_ == FLOAT64:
        return repr(real)
    return _shortest_float32(real)


def _shortest_float32(number: float) -> str:
    """The shortest decimal text of the float32 nearest to a number."""
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))  # of the machine's own kind, packing overflows silently
    except OverflowError:
        nearest = math.copysign(math.inf, number)
    if math.isinf(nearest):
        return "INFINITY" if number > 0 else "-INFINITY"
    for digits in range(1, 10):
        text = repr(float(f"{nearest:.{digits}g}"))
        if struct.unpack("f", struct.pack("f", float(text)))[0] == nearest:
            return text + "f"
    return repr(nearest) + "f"


@dataclass(frozen=True)
class Text:
    """C++ text and how tightly it binds."""

    text: str
    level: int = PRIMARY

    def within(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"

    @staticmethod
    def of(spelling: str) -> Text:
        """What a name is spelled as, which may be a sum or a product of others."""
        depth, level = 0, PRIMARY
        for character, before in zip(spelling, " " + spelling, strict=False):
            depth += (character in "([{") - (character in ")]}")
            if depth == 0 and before == " " and character in _BINDS:
                level = min(level, _BINDS[character])
        return Text(spelling, level)


@dataclass(frozen=True)
class Product:
    """A product of floats, perhaps negated: its factors."""

    first: Expr
    second: Expr
    negated: bool = False

    @staticmethod
    def of(expr: Expr) -> Product | None:
        match expr:
            case Op(name="mul", args=(first, second)) if expr.type.category == "float":
                return Product(first, second)
            case Op(name="neg", args=(inner,)):
                product = Product.of(inner)
                return product and replace(product, negated=not product.negated)
            case Cast(value=value, type=type_) if value.type == type_:
                return Product.of(value)
        return None


@dataclass(frozen=True)
class Printer:
    """Prints expressions; the target says how names and elements of arrays are spelled.

    bounded: whether an int64 name stays far from overflow (sizes, loop variables), so that sums and products of such
    names need not wrap. fuses: state multiply-adds of floats as `weft::fma`; otherwise they are left to the compiler.
    narrow: whether an int64 name is a C++ variable of 32 bits, which subscripts may compute with, but values not. fault: the
    number of a fault and where it is noted. rare: the variable that tells that a function of `weft/rare.hpp` was wrong, where
    those are to be called. short: quotients and remainders of integers, and the C++ types of 32 bits that they are computed in.
    under: where a condition holds.
    """

    name: Callable[[Ref], str]
    load: Callable[[Load], Text]
    bounded: Callable[[str], bool]
    fuses: bool = False
    narrow: Callable[[str], bool] = lambda name: False
    fault: Callable[[Fault], str] = lambda fault: ""
    rare: str = ""
    short: Mapping[Expr, str] = field(default_factory=dict)
    under: Callable[[Expr], AbstractContextManager[None]] = lambda condition: nullcontext()

    def value(self, expr: Expr, level: int = TERNARY) -> str:
        """A value, parenthesised if it binds less tightly than `level`."""
        return self._print(expr, wrap=True).within(level)

    def exact(self, expr: Expr, level: int = TERNARY) -> str:
        """A value whose C++ type alone is its register type, as a template's argument needs."""
        return self._exact(expr, wrap=True).within(level)

    def accumulated(self, total: str, value: Expr) -> str | None:
        """`total + value` as a multiply-add, where this printer fuses and the value is a product of floats."""
        product = Product.of(value)
        return self._fma(product, Text(total), wrap=True).text if self.fuses and product else None

    def index(self, expr: Expr, level: int = TERNARY) -> str:
        """A subscript or a bound: simplified, and plain arithmetic where nothing in it was loaded."""
        expr = simplify(expr)
        return self._print(expr, wrap=any(isinstance(e, Load) for e in walk_expr(expr))).within(level)

    def _print(self, expr: Expr, wrap: bool) -> Text:
        match expr:
            case Const(value=value, type=type_):
                text = literal(value, type_)
                return Text(text, UNARY if text.startswith("-") else PRIMARY)
            case Ref():
                return Text.of(self.name(expr))
            case Load():
                return self.load(expr)
            case Cast(value=value, type=type_):
                return self._cast(value, type_, wrap)
            case Round(value=value, to=to):
                return self._round(value, to, wrap)
            case Op():
                return self._operator(expr, wrap)
        raise TypeError(expr)

    def _cast(self, value: Expr, type_: ScalarType, wrap: bool) -> Text:
        if value.type == type_:
            return self._print(value, wrap)
        if isinstance(value, Const) and type_.category == "float" and not isinstance(value.value, bool):
            return self._print(Const(float(value.value), type_), wrap)
        text = self._print(value, wrap).text
        if value.type.category == "float" and type_.category == "int" and type_.size < 4:
            text = f"int64_t({text})"  # wraps, where a direct conversion would be undefined
        return Text(f"{_cpp(type_)}({text})")

    def _round(self, value: Expr, to: ScalarType, wrap: bool) -> Text:
        inner = self._cast(value, to.opmath, wrap)
        return Text(f"weft::round_{_rounding(to)}({inner.text})") if to != to.opmath else inner

    def _operator(self, expr: Op, wrap: bool) -> Text:
        name, args, type_ = expr.name, expr.args, expr.type
        narrow = type_ == BOOL or (type_.category == "int" and type_.size < 4)  # C++ promotes these to int
        if self.fuses and name in ("add", "sub"):
            first, second = args
            if product := Product.of(first):
                addend = self._print(second, wrap)
                return self._fma(product, addend if name == "add" else _minus(addend), wrap)
            if product := Product.of(second):
                negated = product.negated != (name == "sub")
                return self._fma(replace(product, negated=negated), self._print(first, wrap), wrap)
        if expr in self.short:
            dividend, divisor = (self._exact(a, wrap).text for a in args)
            return Text(f"weft::{_SHORT[name]}<{self.short[expr]}>({dividend}, {divisor})")
        if isinstance(expr, Check):
            noted = self.fault(expr.fault)
            value = self._exact(args[0], wrap).within(OR)
            condition = self._print(args[1], wrap).text
            return Text(f"weft::holds({condition}, {noted}) ? {value} : {literal(0, type_, typed=True)}", TERNARY)
        if name == "where":
            condition = self._print(args[0], wrap).within(OR)
            with self.under(args[0]):
                then = self._exact(args[1], wrap)
            orelse = self._exact(args[2], wrap)
            return Text(f"{condition} ? {then.within(OR)} : {orelse.within(TERNARY)}", TERNARY)
        wraps = wrap or type_ != INT64  # subscripts count in 64 bits, elements wrap in them too
        if name in _WRAPPING and type_.category == "int" and wraps and not self._stays_small(expr):
            return self._call(_WRAPPING[name], args, wrap)
        if name in ("neg", "not"):
            inner = self._operand(args[0], type_, wrap)
            return _minus(inner) if name == "neg" else Text(f"!{inner.within(UNARY)}", UNARY)
        if name in _INFIX:
            spelling, level = _INFIX[name]
            constants = all(isinstance(a, Const) for a in args)
            left = self._exact(args[0], wrap) if constants else self._operand(args[0], type_, wrap)
            with self.under(args[0]) if name == "and" else nullcontext():
                right = self._operand(args[1], type_, wrap)
            text = Text(f"{left.within(level)}{spelling}{right.within(level + 1)}", level)
            return Text(f"{_cpp(type_)}({text.text})") if narrow and name.startswith("bit") else text
        call = self._call(OPERATORS[name].spelling, args, wrap)
        return Text(f"{call.text[:-1]}, {self.rare})") if self.rare and is_rarely_wrong(expr) else call

    def _fma(self, product: Product, addend: Text, wrap: bool) -> Text:
        first, second = self._print(product.first, wrap), self._print(product.second, wrap)
        if product.negated and first.level < UNARY <= second.level:
            second = _minus(second)  # exact on either factor; here it needs no parentheses
        elif product.negated:
            first = _minus(first)
        return Text(f"weft::fma({first.text}, {second.text}, {addend.text})")

    def _call(self, function: str, args: tuple[Expr, ...], wrap: bool) -> Text:
        return Text(f"weft::{function}({', '.join(self._exact(a, wrap).text for a in args)})")

    def _exact(self, expr: Expr, wrap: bool) -> Text:
        """Text whose C++ type is exactly the register type."""
        while isinstance(expr, Cast) and expr.value.type == expr.type:
            expr = expr.value
        if isinstance(expr, Const) and expr.type.category == "int":
            return Text(literal(expr.value, expr.type, typed=True))
        text = self._operand(expr, expr.type, wrap)
        if expr.type != INT64:
            return text
        parts = [*walk_expr(expr)]
        of_numbers = all(isinstance(e, Const | Op) for e in parts)  # which C++ counts in 32 bits
        if of_numbers or (not wrap and any(isinstance(e, Ref) and self.narrow(e.name) for e in parts)):
            return Text(f"int64_t({text.text})")
        return text

    def _operand(self, expr: Expr, result: ScalarType, wrap: bool) -> Text:
        """An operand of an operation with this type of result, widened where that is an integer's and it is narrow."""
        text = self._print(expr, wrap)
        if wrap and result.category == "int" and isinstance(expr, Ref) and expr.type == INT64 and self.narrow(expr.name):
            return Text(f"int64_t({text.text})")
        return text

    def _stays_small(self, expr: Expr) -> bool:
        """Whether an int64 expression is a sum or product of sizes, loop variables and small constants."""
        match expr:
            case Const(value=value):
                return expr.type == INT64 and abs(value) < 1 << 31
            case Ref(name=name):
                return expr.type == INT64 and self.bounded(name)
            case Op(name="add" | "sub" | "mul" | "neg", args=args):
                return expr.type == INT64 and all(map(self._stays_small, args))
        return False


@dataclass(frozen=True)
class DividingPrinter(Printer):
    """divisors: what many elements are divided by, and the C++ names of its `weft::Divisor`s or `weft::ExactDivisor`s. places:
    comparisons of the place of an element with what is the same for its neighbours, as text.
    """

    divisors: dict[Expr, str] = field(default_factory=dict)
    places: dict[Expr, str] = field(default_factory=dict)

    def _operator(self, expr: Op, wrap: bool) -> Text:
        match expr:
            case Op(name="div", args=(a, by)) if by in self.divisors:
                return Text(f"weft::divide({self.value(a)}, {self.divisors[by]})")
            case Op(name="eq") if expr in self.places:
                return Text(self.places[expr], EQUALITY)
            case Op(name="where", args=(condition, *sides)) if expr.type == FLOAT32 and self._worth_both(sides):
                then, orelse = (self._exact(side, wrap).text for side in sides)
                return Text(f"weft::select({self._print(condition, wrap).text}, {then}, {orelse})")
        return super()._operator(expr, wrap)

    def _worth_both(self, sides: Sequence[Expr]) -> bool:
        """Whether to compute both sides of a choice: some functions, which the compiler would leave out by a branch for each
        element, and nothing that takes one itself, or must not be done in vain.
        """
        parts = [e for side in sides for e in walk_expr(side)]
        whole = not any(isinstance(e, Load | Check) for e in parts)
        ops = [e for e in parts if isinstance(e, Op)]
        branching = any(e.name in COSTLY - _STRAIGHT or (e.name == "div" and e.args[1] not in self.divisors) for e in ops)
        return whole and not branching and any(e.name in _STRAIGHT for e in ops)


def is_rarely_wrong(expr: Expr) -> bool:
    """Whether `weft/rare.hpp` has the function that this calls."""
    return isinstance(expr, Op) and expr.name in RARELY_WRONG and expr.type == FLOAT32


def _minus(value: Text) -> Text:
    inner = value.within(UNARY)
    return Text(f"-({inner})" if inner.startswith("-") else f"-{inner}", UNARY)


def zero(type_: ScalarType) -> str:
    """The text of 0 in a register type."""
    return literal(0, type_.opmath)
