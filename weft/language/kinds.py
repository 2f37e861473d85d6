"""Kinds of scalars that meet in one name: a Python int on one path, an element of a tensor on another.

In Python each value has its own kind, and arithmetic depends on it: `v - 1` of a uint8 element wraps, of an int it does
not. A scalar of several kinds (`Scalar.mixed`) is computed with for each of them, and what it is decides at the end.
Where both kinds give one type, as in `v + x[i]`, nothing is computed twice. An element of a half type and one of a wider float
are two kinds, since integers are rounded to the half that they meet. A Python number and a float element are one
kind: the number enters in the precision that the element computes in, but what is stored in double precision, or becomes
a Python float, is the number itself (`Scalar.exact`), and where an element of a half type would have other operands rounded
to it, the number has not (`Scalar.number`).
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce

from weft.errors import NumberOverflow, TypeMismatch, WeftError
from weft.language.values import Mixed, Number, Scalar
from weft.loops.ir import Cast, Check, Const, Expr, Op, walk_expr
from weft.loops.rounding import rounded
from weft.loops.types import BOOL, COMPLEX128, FLOAT32, FLOAT64, INT64, ScalarType, Typed, promote

NEVER = Const(False, BOOL)

# Of each kind of a value, the constant that it is wherever it is a Python number of that kind.
Numbers = tuple[Const | None, ...]


class KindMatters(Exception):  # noqa: N818 - no error: the loop that carries `name` starts again, and keeps its kind
    """What is computed depends on the kind of a carried name, which is not kept."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def cast(expr: Expr, to: ScalarType) -> Expr:
    """expr as register type `to`."""
    if expr.type == to:
        return expr
    if expr.type.category == "complex" and to.category in ("int", "float"):
        raise TypeMismatch(
            "a complex number where a real one is needed", remedy="say which: .real, .imag or abs(...) of the number"
        )
    if isinstance(expr, Const):
        if to.category == "complex":
            return Op("complex", (Const(float(expr.value), to.part), Const(0.0, to.part)), to)
        if to.category == "float":
            try:
                return Const(float(expr.value), to)
            except OverflowError:
                raise NumberOverflow("an int that is too large for a float", remedy="use a smaller number") from None
        if to.category == "bool":
            return Const(bool(expr.value), to)
        if expr.type.category != "float":
            return Const(int(expr.value), to)
    if to == BOOL:
        return Op("ne", (expr, cast(Const(0, INT64), expr.type)), BOOL)
    return Cast(expr, to)


def common_type(types: Iterable[Typed], default_float: ScalarType) -> Typed:
    """The type that arithmetic on values of these types has: those that weigh the same have one first, as in PyTorch."""

    def promoted(a: Typed, b: Typed) -> Typed:
        return promote(a, b, default_float)

    by_weight = itertools.groupby(sorted(types, key=lambda t: t.weight), lambda t: t.weight)
    typed = reduce(promoted, [reduce(promoted, alike) for _, alike in by_weight])
    if typed.weight == 0 and typed.scalar.category == "float":
        return Typed(FLOAT64, 0)
    if typed.weight == 0 and typed.scalar.category == "complex":
        return Typed(COMPLEX128, 0)
    return typed


def differ(a: Typed, b: Typed) -> bool:
    """Whether arithmetic tells values of these types apart by more than a rounding."""
    if a.scalar == b.scalar and (a.weight > 0) == (b.weight > 0):
        return False
    if a.scalar.category == b.scalar.category and a.scalar.category in ("float", "complex"):
        return is_half(a) and b.weight > 0 or is_half(b) and a.weight > 0  # integers are rounded to halves, not to others
    heavy, light = (a, b) if a.weight >= b.weight else (b, a)
    if light.scalar.category == "complex" != heavy.scalar.category:
        return True
    return not (light.weight == 0 < heavy.weight and heavy.scalar.category in ("float", "complex"))


def joined(kinds: Iterable[Typed], default_float: ScalarType) -> tuple[Typed, ...]:
    """The kinds that these types are of, each told apart from the others."""
    found: list[Typed] = []
    for typed in kinds:
        place = next((k for k, other in enumerate(found) if not differ(typed, other)), None)
        if place is None:
            found.append(typed)
        else:
            found[place] = common_type((found[place], typed), default_float)
    return tuple(found)


def leaves(value: Scalar) -> tuple[Scalar, ...]:
    """What a scalar may be, one for each path."""
    if value.mixed is None:
        return (value,)
    return (*leaves(value.mixed.then), *leaves(value.mixed.orelse))


def expressions_of(value: Scalar) -> tuple[Expr, ...]:
    """The expressions that a scalar is made of."""
    mixed = value.mixed
    if mixed is None:
        return (value.expr,)
    inner = (*expressions_of(mixed.then), *expressions_of(mixed.orelse))
    return (value.expr, *inner) if mixed.test is None else (value.expr, mixed.test, *inner)


def kinds_of(value: Scalar) -> tuple[Typed, ...]:
    return tuple(v.typed for v in leaves(value))


def choice(test: Expr, then: Expr, orelse: Expr) -> Expr:
    """`then if test else orelse`."""
    if isinstance(test, Const):
        return then if test.value else orelse
    if then == orelse:
        return then
    if isinstance(then, Const) and isinstance(orelse, Const) and then.type == BOOL:  # they are not equal
        return test if then.value else Op("not", (test,), BOOL)
    return Op("where", (test, then, orelse), then.type)


def converted(value: Scalar, to: ScalarType) -> Expr:
    """The value as register type `to`, whichever its kind is."""
    if value.exact is not None and to == FLOAT64:
        return value.exact
    if value.mixed is None or value.mixed.test is None or value.typed.register == to:
        return cast(value.expr, to)
    return choice(value.mixed.test, converted(value.mixed.then, to), converted(value.mixed.orelse, to))


def plain(value: Scalar, typed: Typed) -> Scalar:
    """The same value as one of type `typed` on every path."""
    return Scalar(converted(value, typed.register), typed, value.alias)


def is_kind(value: Scalar, kind: Typed) -> Expr:
    """Whether the value is of a kind, as a condition."""
    if value.mixed is None:
        return Const(not differ(value.typed, kind), BOOL)
    if value.mixed.test is None:
        raise KindMatters(value.mixed.name)
    return choice(value.mixed.test, is_kind(value.mixed.then, kind), is_kind(value.mixed.orelse, kind))


def of_kind(value: Scalar, kind: Typed) -> Expr:
    """The value where it is of a kind; anything elsewhere."""
    if value.mixed is None:
        known = not differ(value.typed, kind)
        return cast(value.expr, kind.register) if known else cast(Const(False, BOOL), kind.register)
    if value.mixed.test is None:
        raise KindMatters(value.mixed.name)
    return choice(value.mixed.test, of_kind(value.mixed.then, kind), of_kind(value.mixed.orelse, kind))


def by_kind(tests: list[Expr], values: list[Scalar], default_float: ScalarType) -> Scalar:
    """The first value whose test holds, the last where none does. tests: one less than values."""
    if not tests:
        return values[0]
    return select(tests[0], values[0], by_kind(tests[1:], values[1:], default_float), default_float)


def has_doubles(value: Scalar) -> bool:
    """Whether it has more alternatives, which can be told apart, than types that arithmetic tells apart."""
    parts = leaves(value)
    types = tuple(dict.fromkeys(v.typed for v in parts))
    if not 1 < len(types) < len(parts) or unsure_of(value) or any(v.exact is not None or v.number is not None for v in parts):
        return False
    return all(differ(a, b) for a, b in itertools.combinations(types, 2))


def one_of_each_kind(value: Scalar) -> Scalar:
    """The value with one alternative for each type that it may be of: what many paths lead to doubles in every operation."""
    kinds = tuple(dict.fromkeys(kinds_of(value)))
    sides = [Scalar(of_kind(value, kind), kind) for kind in kinds]
    found = by_kind([is_kind(value, kind) for kind in kinds[:-1]], sides, FLOAT32)
    return replace(value, mixed=found.mixed)


def select(test: Expr, then: Scalar, orelse: Scalar, default_float: ScalarType) -> Scalar:
    """Python's choice between two values: each keeps its kind."""
    if isinstance(test, Const):
        return then if test.value else orelse
    typed = common_type((then.typed, orelse.typed), default_float)
    expr = choice(test, converted(then, typed.register), converted(orelse, typed.register))
    if len(joined((*kinds_of(then), *kinds_of(orelse)), default_float)) == 1:
        exact = select_exactly(test, then, orelse, typed)
        return Scalar(expr, typed, exact=exact, number=number_of_one(test, then, orelse, typed))
    return Scalar(expr, typed, mixed=Mixed(test, replace(then, alias=None), replace(orelse, alias=None)))


def is_rounded(value: Scalar, to: ScalarType) -> bool:
    """Whether a number, or what may be one, is another one as a float of register type `to`."""
    if to.category != "float" or to == FLOAT64 or value.mixed is not None:
        return False
    if value.exact is not None:
        return True
    if value.typed.weight or value.typed.scalar == BOOL:
        return False
    if not isinstance(value.expr, Const):
        return True
    return math.isfinite(value.expr.value) and _single(float(value.expr.value)) != value.expr.value


def _single(number: float) -> float:
    """The nearest float of single precision."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf


def select_exactly(test: Expr, then: Scalar, orelse: Scalar, typed: Typed) -> Expr | None:
    """A choice of type `typed` in double precision, if that may be another number."""
    if not any(is_rounded(v, typed.register) for v in (then, orelse)):
        return None
    return choice(test, converted(then, FLOAT64), converted(orelse, FLOAT64))


def is_half(typed: Typed) -> bool:
    """Whether elements of this type round what they meet."""
    return typed.weight > 0 and typed.register != typed.scalar


def is_rounded_to(half: Typed, other: Typed) -> bool:
    """Whether an element of a type is rounded where it meets one of a half type."""
    return is_half(half) and other.weight > 0 and other.scalar.category == "int" and other.scalar.size > 1


def number_of(value: Scalar, typed: Typed) -> Number | None:
    """Where a value that counts as an element of type `typed` is a Python number; None: nowhere."""
    if value.typed.weight:
        return value.number
    constant = value.constant
    held = is_half(typed) and constant is not None and rounded(float(constant), typed.scalar) == constant
    return Number(Const(True, BOOL), held)


def number_of_one(test: Expr, then: Scalar, orelse: Scalar, typed: Typed) -> Number | None:
    """Where `then if test else orelse`, of one kind, is a Python number."""
    if not is_half(typed):
        return None
    found = number_of(then, typed), number_of(orelse, typed)
    name = next((n.name for n in found if n is not None and n.test is None), "")
    if name or found == (None, None):
        return Number(None, name=name) if name else None
    one = choice(test, *(NEVER if n is None or n.test is None else n.test for n in found))
    return None if one == NEVER else Number(one, all(n is None or n.held for n in found))


def number_of_all(values: Iterable[Scalar], typed: Typed) -> Number | None:
    """Where all of these values are Python numbers or integers, so that what is computed from them is no half: it is a number,
    or an element of the default float, which has every such value.
    """
    if typed.scalar.category == "int":  # of integers, tensors on the CPU are numbers beside others on a GPU
        numbers = [v.number for v in values if v.typed.weight]
        return numbers[0] if numbers and None not in numbers else None
    if not is_half(typed):
        return None
    test: Expr = Const(True, BOOL)
    unknown, held = "", False
    for value in values:
        if value.typed.weight and value.typed.scalar.category != "float":
            held = True
            continue
        found = number_of(value, typed)
        if found is None:
            return None
        if found.test is None:
            unknown = unknown or found.name
        else:
            test = choice(test, found.test, NEVER)
    return Number(None, name=unknown) if unknown else None if test == NEVER else Number(test, held)


def is_number(number: Number | None) -> Expr:
    """Whether a value is a Python number, as a condition."""
    if number is None:
        return NEVER
    if number.test is None:
        raise KindMatters(number.name)
    return number.test


def unsure(expr: Expr, typed: Typed, kinds: tuple[Typed, ...], name: str, numbers: Numbers = ()) -> Scalar:
    """A value held as `typed` that is of one of these kinds, it is not known which. numbers: as `numbers_of` gives them."""
    sides = [
        Scalar(cast(expr, kind.register) if number is None else number, kind)
        for kind, number in itertools.zip_longest(kinds, numbers)
    ]

    def alternatives(left: list[Scalar]) -> Scalar:
        if len(left) == 1:
            return left[0]
        return Scalar(expr, typed, mixed=Mixed(None, left[0], alternatives(left[1:]), name))

    return alternatives(sides)


def numbers_of(kinds: tuple[Typed, ...], values: Iterable[Scalar]) -> Numbers:
    """Of each kind, the constant that the values are wherever they are a Python number of it; None where there is no one."""
    sides = [leaf for value in values for leaf in leaves(value)]

    def number(kind: Typed) -> Const | None:
        found = {cast(leaf.expr, kind.register) for leaf in sides if not differ(leaf.typed, kind)}
        only = found.pop() if len(found) == 1 else None
        return only if isinstance(only, Const) and (kind.scalar.category == "float" or _fits(only, INT64)) else None

    return tuple(None if kind.weight else number(kind) for kind in kinds)


def unsure_of(value: Scalar) -> str:
    """The carried name whose kind decides the value's and is not known; "" where there is none."""
    if value.mixed is None:
        return ""
    if value.mixed.test is None:
        return value.mixed.name
    return unsure_of(value.mixed.then) or unsure_of(value.mixed.orelse)


def holds(typed: Typed, value: Scalar) -> bool:
    """Whether `typed` represents every value that this one may have where it is of another kind."""
    return all(not differ(v.typed, typed) or _fits(v.expr, typed.register) for v in leaves(value))


def _fits(expr: Expr, type_: ScalarType) -> bool:
    """Whether the type has the value of an expression."""
    type_ = type_.part
    if expr.type == BOOL:
        return True
    if isinstance(expr, Const):
        if expr.type.category == "float":
            return type_ == FLOAT64
        return low_and_high(type_)[0] <= expr.value <= low_and_high(type_)[1]
    if expr.type.category == "float" == type_.category:
        return expr.type.size <= type_.size
    if isinstance(expr, Cast) and expr.value.type.category == "int" == expr.type.category:
        return expr.value.type == type_ or _fits(Const(0, expr.value.type), type_) and _narrower(expr.value.type, type_)
    return expr.type.category == "int" and _narrower(expr.type, type_)


def _narrower(a: ScalarType, b: ScalarType) -> bool:
    low, high = low_and_high(a)
    least, most = low_and_high(b)
    return least <= low and high <= most


def low_and_high(type_: ScalarType) -> tuple[int, int]:
    """The integers that a register type has exactly."""
    if type_.category == "bool":
        return 0, 1
    if type_.category == "float":
        bits = 53 if type_ == FLOAT64 else 24
        return -(1 << bits), 1 << bits
    bits = 8 * type_.size - (1 if type_.signed else 0)
    return -(1 << bits) if type_.signed else 0, (1 << bits) - 1


def storable(number: ScalarType, dtype: ScalarType) -> tuple[int, int]:
    """The least and largest of Python's numbers of a type that PyTorch stores into integers of a dtype."""
    low, high = low_and_high(dtype)
    return (low if dtype.signed or number.category == "float" else -high), high  # negative ints wrap in unsigned ones


def distribute(
    function: Callable[..., Scalar],
    values: tuple[Scalar, ...],
    default_float: ScalarType,
    computed: Callable[[tuple[Typed, ...]], Typed | None] | None = None,
    once: bool = True,
) -> Scalar | None:
    """A function of scalars some of which are of several kinds, computed for each; None where all have one kind.

    computed: the type that the function converts operands of these types to, None where it does something else. Where that
    is one type whatever the kinds are, the function is computed once, in this type. once: also where the kinds are known.
    """
    mixed = next((v.mixed for v in values if v.mixed is not None), None)
    if mixed is None:
        return None
    errors: list[WeftError] = []
    results: list[Scalar] = []
    for side in paths(values, mixed):
        try:
            results.append(function(*side))
        except WeftError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    first, second = results
    kinds = joined((*kinds_of(first), *kinds_of(second)), default_float)
    typed = common_type(kinds, default_float)
    most = max(_checks(first.expr), _checks(second.expr))
    name = mixed.name or unsure_of(first) or unsure_of(second)
    shared = _one_type(values, computed, default_float) if computed is not None and (once or mixed.test is None) else None
    if shared is not None and all(k.register == typed.register for k in kinds):
        expr = function(*_as(values, shared)).expr
        if len(kinds) == 1 and _checks(expr) >= most:
            return Scalar(expr, typed)
        if len(kinds) > 1 and name:
            return unsure(expr, typed, kinds, name, numbers_of(kinds, results))
        if len(kinds) > 1:
            return Scalar(expr, typed, mixed=Mixed(mixed.test, _labelled(first, expr), _labelled(second, expr)))
    if mixed.test is not None:
        return select(mixed.test, first, second, default_float)
    several = len(kinds) > 1 or first.mixed is not None or second.mixed is not None
    rounded = {is_rounded_to(typed, kind) for value in values if value.mixed is not None for kind in kinds_of(value)}
    if several or typed.scalar.category != "float" or len(rounded) > 1:
        raise KindMatters(mixed.name)
    taken = plain(function(*_as(values, typed)), typed)  # for the float element that it may be
    if _checks(taken.expr) < most:
        raise KindMatters(mixed.name)
    return taken


def _checks(expr: Expr) -> int:
    """How many faults computing it may have."""
    return sum(isinstance(e, Check) for e in walk_expr(expr))


def paths(values: tuple[Scalar, ...], mixed: Mixed) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...]]:
    """What the values are where one of them is of its first kinds, and where it is of the others."""
    same = [v.mixed if v.mixed is not None and _same(v.mixed, mixed) else None for v in values]
    then = tuple(v if m is None else m.then for v, m in zip(values, same, strict=True))
    return then, tuple(v if m is None else m.orelse for v, m in zip(values, same, strict=True))


def _as(values: tuple[Scalar, ...], typed: Typed) -> tuple[Scalar, ...]:
    """Those of several kinds as a type."""
    return tuple(v if v.mixed is None else plain(v, replace(typed, weight=v.typed.weight)) for v in values)


def _labelled(value: Scalar, expr: Expr) -> Scalar:
    """The kinds of one scalar with the value of another."""
    mixed = value.mixed
    if mixed is not None:
        mixed = replace(mixed, then=_labelled(mixed.then, expr), orelse=_labelled(mixed.orelse, expr))
    return replace(value, expr=expr, mixed=mixed, alias=None)


def _one_type(
    values: tuple[Scalar, ...], computed: Callable[[tuple[Typed, ...]], Typed | None], default_float: ScalarType
) -> Typed | None:
    """The type that the values are computed with, if that is one register type whatever their kinds are."""
    kinds = [joined(kinds_of(v), default_float) for v in values]
    types = [computed(found) for found in itertools.product(*kinds)]
    one = types[0]
    if one is None or any(t is None or t.register != one.register for t in types):
        return None
    # bools add as integers where they are Python's, and as bools where they are elements
    return None if one.scalar == BOOL and any(t is None or differ(t, one) for t in types) else one


def compared_by_value(values: tuple[Scalar, ...], default_float: ScalarType) -> Typed | None:
    """A type in which numbers compare as they do for each of their kinds, though these are compared in several types: none of
    them changes a number that it gets. None where there is none.
    """
    types: list[Typed] = []
    for sides in itertools.product(*map(leaves, values)):
        typed = common_type((v.typed for v in sides), default_float)
        if typed.scalar.opmath != typed.scalar or not all(_is_held(v, typed) for v in sides):
            return None
        types.append(typed)
    if all(t.register == types[0].register for t in types):
        return None  # they are compared in this one
    typed = common_type((replace(t, weight=0) for t in types), default_float)
    return typed if all(_is_held(v, typed) for value in values for v in leaves(value)) else None


def _is_held(value: Scalar, typed: Typed) -> bool:
    return value.expr.type == typed.register or _fits(value.expr, typed.register)


def _same(a: Mixed, b: Mixed) -> bool:
    return a is b or (a.test == b.test and (a.test is not None or a.name == b.name))
