"""Arithmetic of scalars as PyTorch and Python do it: promotion, explicit casts, constants folded.

Every function takes and gives `Scalar`s and emits nothing. Errors are raised without a location; who evaluates the
expression adds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.errors import TypeMismatch
from weft.language.kinds import (
    NEVER,
    cast,
    choice,
    common_type,
    compared_by_value,
    converted,
    distribute,
    is_half,
    is_number,
    is_rounded_to,
    number_of,
    number_of_all,
    plain,
)
from weft.language.pairs import COMPLEX_FUNCTIONS
from weft.language.values import Scalar, describe, number
from weft.loops.ir import Const, Expr, Load, Op, Round
from weft.loops.operators import OPERATORS
from weft.loops.types import BOOL, COMPLEX64, COMPLEX128, FLOAT64, FLOATS8, INT64, ScalarType, Typed, no_arithmetic

# Up to this exponent x**n is a product, as PyTorch computes small squares and cubes.
_PRODUCT_POWERS = 4
_LARGEST_SHIFT = 1024
# What PyTorch computes with the one element at its right as it stands, on a CPU.
_BY_ELEMENTS = ("mul", "div", "floordiv")


def common(values: tuple[Scalar, ...], default_float: ScalarType) -> Typed:
    """The type that arithmetic on these values has."""
    return common_type((v.typed for v in values), default_float)


def as_type(value: Scalar, typed: Typed) -> Scalar:
    """The same value as type `typed` (a conversion that the promotion made; nothing is rounded)."""
    if value.typed == typed:
        return value
    return plain(value, typed)


# What operators of bool elements are.
_OF_BOOLS = {"add": "or", "mul": "and", "maximum": "or", "minimum": "and", "fmax": "or", "fmin": "and"}


def _operands(name: str, values: tuple[Scalar, ...], typed: Typed) -> tuple[Scalar, ...]:
    """Values as type `typed`. PyTorch converts an element of another dtype to the common one before it computes, which rounds
    integers of more bits than a half has; not numbers, nor floats without dimensions beside others, unless they lie on a GPU.
    It compares an element of a half type with the number that a tensor of this type would hold.
    """
    made = tuple(as_type(v, typed) for v in values)
    if not is_half(typed):
        return made
    compares = OPERATORS[name].rule == "comparison"

    def operand(k: int, value: Scalar, expr: Expr) -> Expr:
        if compares and (own := number_of(value, typed)) is not None and own.test is not None:
            others = number_of_all((v for place, v in enumerate(values) if place != k), typed)
            apart = is_number(others) if others is not None and others.test is not None else NEVER
            number = expr if own.held else choice(apart, expr, Round(expr, typed.scalar))
            return choice(own.test, number, expr)
        by_element = name in _BY_ELEMENTS and k == 1 and value.typed.weight == 1
        if compares and value.typed.weight < typed.weight and value.typed.scalar != typed.scalar:
            return Round(expr, typed.scalar)
        if value.converted and value.typed.weight < typed.weight and value.typed.scalar != typed.scalar:
            return Round(expr, typed.scalar)
        if not is_rounded_to(typed, value.typed) or by_element or value.number is not None:
            return expr
        halves = (v for v in values if v.typed.weight and v.typed.scalar.category == "float")
        return choice(is_number(number_of_all(halves, typed)), expr, Round(expr, typed.scalar))

    return tuple(replace(m, expr=operand(k, v, m.expr)) for k, (v, m) in enumerate(zip(values, made, strict=True)))


def refuse_bools(subtracted: tuple[Scalar, ...]) -> None:
    """Of tensors, with numbers too: Python itself subtracts its bools."""
    bools = [v.typed.weight for v in subtracted if v.typed.scalar == BOOL]
    if bools and any(v.typed.weight for v in subtracted):
        what, remedy = ("tensor", "convert it with .to(dtype), or use ^") if any(bools) else ("beside a tensor", "use an int")
        raise TypeMismatch(f"sub of a bool {what}", remedy=remedy)


def in_common(values: tuple[Scalar, ...], default_float: ScalarType) -> tuple[Scalar, ...]:
    """Elements as the type that they have in common, to compute with numbers in it before they meet; of halves as in
    `_operands`.
    """
    typed = common(values, default_float)

    def own(value: Scalar) -> Scalar:
        integer = is_rounded_to(typed, value.typed) and value.number is None
        if integer or (value.converted and is_half(typed)):
            return convert(value, typed.scalar)
        return as_type(value, typed) if value.typed.weight else value

    return tuple(map(own, values))


def operate(name: str, values: tuple[Scalar, ...], default_float: ScalarType) -> Scalar:
    """An operator of weft.loops.operators on values of any types."""
    operator = OPERATORS[name]
    if any(v.mixed is not None for v in values):
        return of_each_kind(lambda *vs: operate(name, vs, default_float), name, values, default_float)
    typed = common(values, default_float)
    if any(v.typed.scalar in FLOATS8 for v in values):
        raise no_arithmetic(typed.scalar)
    if typed.scalar.category == "complex" and operator.rule != "logical":
        return _of_complex(name, values, typed)
    if name == "sub":
        refuse_bools(values)
    if operator.rule == "logical":
        return _make(name, tuple(truth(v) for v in values), Typed(BOOL, typed.weight))
    if operator.rule == "integer":
        if typed.scalar.category == "float":
            raise TypeMismatch(f"{name} of {describe(values[0])}", remedy="it works on ints and bools")
        if name in ("gcd", "lcm") and typed.scalar == BOOL:
            raise TypeMismatch(f"{name} of bools", remedy="convert with .to(dtype) first")
        if name in ("shl", "shr") and typed.scalar == BOOL:
            typed = Typed(INT64, typed.weight)
    elif operator.rule == "float":
        typed = floating(typed, default_float)
    elif name in ("max", "min") and typed.scalar == BOOL:
        return _make("or" if name == "max" else "and", values, typed)
    elif operator.rule == "arithmetic" and typed.scalar == BOOL:
        if typed.weight == 0:
            typed = Typed(INT64, 0)
        else:
            logical = _OF_BOOLS.get(name)
            if logical is None:
                raise TypeMismatch(f"{name} of bool tensors", remedy="convert with .to(dtype) first")
            return _make(logical, values, typed)
    if operator.rule == "predicate":
        typed = floating(typed, default_float)
    if name == "div" and typed.weight == 0 and all(isinstance(v.constant, int) for v in values) and values[1].constant:
        return number(values[0].constant / values[1].constant)  # type: ignore[operator]  # rounded once
    operands = _operands(name, values, typed)
    if operator.rule in ("comparison", "predicate"):
        return _make(name, operands, Typed(BOOL, typed.weight))
    return replace(_make(name, operands, typed), number=number_of_all(values, typed))


# The operators that complex numbers have, by what they give.
_COMPLEX = frozenset(("add", "sub", "mul", "div", "neg", "pow", *COMPLEX_FUNCTIONS))
_REAL_OF_COMPLEX = frozenset(("abs", "angle", "real", "imag"))
_BOOL_OF_COMPLEX = frozenset(("eq", "ne", "isnan", "isinf", "isfinite"))
_FOLDED = frozenset(("add", "sub", "mul", "div", "neg", "abs", "eq", "ne"))


def no_complex(name: str) -> TypeMismatch:
    """What is told where a function is not one of complex numbers."""
    return TypeMismatch(
        f"{name} of complex numbers", remedy="it is one of real numbers, as in PyTorch: write it with .real, .imag and abs(...)"
    )


def _of_complex(name: str, values: tuple[Scalar, ...], typed: Typed) -> Scalar:
    """An operator on complex numbers."""
    operands = tuple(as_type(v, typed) for v in values)
    exprs = tuple(v.expr for v in operands)
    constants = [c for e in exprs if (c := _constant(e)) is not None]
    if typed.weight == 0 and len(constants) == len(exprs) and name in _FOLDED and not (name == "div" and constants[1] == 0):
        return number(OPERATORS[name].evaluate(*constants))
    if name in _COMPLEX:
        return Scalar(Op(name, exprs, typed.register), typed)
    if name in _REAL_OF_COMPLEX:
        return Scalar(Op(name, exprs, typed.scalar.part), Typed(typed.scalar.part, typed.weight))
    if name in _BOOL_OF_COMPLEX:
        return Scalar(Op(name, exprs, BOOL), Typed(BOOL, typed.weight))
    raise no_complex(name)


def _constant(expr: Expr) -> complex | None:
    """The value of a complex number known while parsing."""
    match expr:
        case Op(name="complex", args=(Const(value=re), Const(value=im))):
            return complex(re, im)
    return None


def part_of(name: str, value: Scalar) -> Scalar:
    """abs, angle, real or imag of a complex number."""
    assert value.mixed is None and value.typed.scalar.category == "complex"
    return _of_complex(name, (value,), value.typed)


def conjugate(value: Scalar) -> Scalar:
    """The conjugate of a complex number."""
    return Scalar(Op("conj", (value.expr,), value.expr.type), value.typed)


def of_parts(real: Scalar, imag: Scalar, default_float: ScalarType) -> Scalar:
    """The complex number of two real ones, of their common type."""
    typed = floating(common((real, imag), default_float), default_float)
    if typed.scalar.opmath != typed.scalar:
        raise TypeMismatch(f"a complex number of {typed.scalar} parts", remedy="convert them with .float() first")
    scalar = COMPLEX128 if typed.scalar == FLOAT64 else COMPLEX64
    exprs = tuple(as_type(v, typed).expr for v in (real, imag))
    return Scalar(Op("complex", exprs, scalar), Typed(scalar, typed.weight))


def of_each_kind(
    function: Callable[..., Scalar], name: str, values: tuple[Scalar, ...], default_float: ScalarType
) -> Scalar:
    """A function that is this operator, where values are of several kinds."""
    rule = OPERATORS[name].rule
    known = next(v.mixed.test is not None for v in values if v.mixed is not None)
    by_value = compared_by_value(values, default_float) if rule == "comparison" and not known else None

    def computed(types: tuple[Typed, ...]) -> Typed | None:
        typed = common_type(types, default_float) if by_value is None else by_value
        exact = all(t.weight and t.scalar.category == "float" for t in types) and all(v.number is None for v in values)
        if is_half(typed) and (rule == "comparison" and not exact or any(is_rounded_to(typed, t) for t in types)):
            return None  # some are rounded to a half type, others are not
        if rule == "logical":
            return replace(typed, scalar=BOOL)
        return floating(typed, default_float) if rule in ("float", "predicate") else typed

    # integers that become floats do so by themselves, not first as the integers that they have in common
    once = rule not in ("float", "predicate")
    found = distribute(function, values, default_float, computed, once)
    assert found is not None
    return found


def differentiated(value: Scalar, rule: str) -> Scalar:
    """What an operator gave, with a rule of its own for its derivative."""
    if value.mixed is not None or not isinstance(value.expr, Op):
        return value
    return replace(value, expr=replace(value.expr, derivative=rule))


def _make(name: str, operands: tuple[Scalar, ...], typed: Typed) -> Scalar:
    constants: list[Any] = [v.expr.value for v in operands if isinstance(v.expr, Const)]
    if typed.weight == 0 and len(constants) == len(operands) and not _raises(name, constants):
        value = constants[0] << constants[1] if name == "shl" else OPERATORS[name].evaluate(*constants)
        return Scalar(Const(value, typed.register), typed)
    if name in ("mul", "div") and typed.scalar != BOOL:
        for one, other in (operands, operands[::-1])[name == "div" :]:
            if isinstance(one.expr, Const) and one.expr.value == 1:
                return Scalar(other.expr, typed)
    return Scalar(Op(name, tuple(v.expr for v in operands), typed.register), typed)


def _raises(name: str, constants: list[Any]) -> bool:
    """Whether Python raises for these numbers, or gives one that is far too large: it is left to the checks then."""
    if name in ("floordiv", "mod", "div"):
        return bool(constants[1] == 0)
    if name in ("shl", "shr"):
        return not 0 <= constants[1] <= _LARGEST_SHIFT
    if name == "pow":
        try:
            constants[0] ** constants[1]
        except ArithmeticError:
            return True
    return False


def floating(typed: Typed, default_float: ScalarType) -> Typed:
    """The type of a float operator on `typed`."""
    if typed.scalar.category in ("float", "complex"):
        return typed
    return Typed(FLOAT64 if typed.weight == 0 else default_float, typed.weight)


def truth(value: Scalar) -> Scalar:
    """value as a condition."""
    return Scalar(converted(value, BOOL), Typed(BOOL, value.typed.weight))


def convert(value: Scalar, dtype: ScalarType) -> Scalar:
    """`.to(dtype)`: rounded to the memory type."""
    register = dtype.opmath
    typed = Typed(dtype, max(1, value.typed.weight))
    expr = converted(value, register)
    if dtype != register and dtype.category == "float" and value.typed != typed:
        expr = Round(expr, dtype)
    return Scalar(expr, typed)


def rounded(value: Scalar) -> Scalar:
    """An element as its memory type holds it, and the same object."""
    dtype = value.typed.scalar
    if isinstance(value.expr, (Load, Round)) or dtype.category != "float" or dtype == dtype.opmath:
        return value
    return Scalar(Round(converted(value, dtype.opmath), dtype), value.typed, value.alias)


def to_number(value: Scalar, type_: ScalarType) -> Scalar:
    """Python's float(), int() or bool()."""
    if isinstance(value.expr, Const) and type_ == INT64 and math.isfinite(value.expr.value):
        return number(int(value.expr.value))
    return Scalar(converted(value, type_), Typed(type_, 0))


def power(base: Scalar, exponent: Scalar, default_float: ScalarType) -> Scalar:
    """`base ** exponent`; base should be cheap to repeat."""
    found = distribute(lambda x, y: power(x, y, default_float), (base, exponent), default_float)
    if found is not None:
        return found
    constant = exponent.constant
    if base.constant is not None and constant is not None:
        try:
            result = base.constant**constant
        except (OverflowError, ZeroDivisionError):
            return operate("pow", (to_number(base, FLOAT64), to_number(exponent, FLOAT64)), default_float)
        if isinstance(result, complex):
            raise TypeMismatch(f"{base.constant} ** {constant} is complex", remedy="use real numbers")
        return number(result)
    typed = common((base, exponent), default_float)
    if constant is not None and float(constant).is_integer() and 0 <= constant <= _PRODUCT_POWERS:
        base = as_type(base, typed)
        if constant == 0:
            return Scalar(cast(Const(1, INT64), typed.register), typed)
        product = base
        for _ in range(int(constant) - 1):
            product = operate("mul", (product, base), default_float)
        return product
    if typed.scalar.category in ("float", "complex"):
        if constant == 0.5:
            return operate("sqrt", (as_type(base, typed),), default_float)
        if constant == -0.5 and typed.scalar.category == "float":
            return differentiated(operate("rsqrt", (as_type(base, typed),), default_float), "inverse_root")
        if constant == -1:
            return operate("div", (as_type(number(1), typed), as_type(base, typed)), default_float)
        return operate("pow", (base, exponent), default_float)
    if constant is not None and constant < 0 and typed.weight == 0:
        return operate("pow", (to_number(base, FLOAT64), to_number(exponent, FLOAT64)), default_float)
    if exponent.typed.weight:
        if typed.scalar == BOOL:
            return operate("or", (base, operate("not", (exponent,), default_float)), default_float)
        return operate("pow", (base, exponent), default_float)
    if constant is not None and constant < 0:
        raise TypeMismatch("an element of ints to the power of an int below 0", remedy="write float(a) ** b")
    return operate("pow", (base, exponent), default_float)


def choose(condition: Scalar, then: Scalar, orelse: Scalar, default_float: ScalarType) -> Scalar:
    """`torch.where`: both as the type that they have in common."""
    found = distribute(
        lambda x, y: choose(condition, x, y, default_float),
        (then, orelse),
        default_float,
        lambda types: common_type(types, default_float),
    )
    if found is not None:
        return found
    typed = common((then, orelse), default_float)
    a, b = as_type(then, typed), as_type(orelse, typed)
    test = truth(condition)
    if isinstance(test.expr, Const):
        return a if test.expr.value else b
    return Scalar(Op("where", (test.expr, a.expr, b.expr), typed.register), typed)


def extreme(type_: ScalarType, largest: bool) -> Const:
    """The largest (or smallest) value of a memory type, as a constant of its register type."""
    if type_.category == "float":
        return Const(math.inf if largest else -math.inf, type_.opmath)
    if type_ == BOOL:
        return Const(largest, BOOL)
    bits = 8 * type_.size - (1 if type_.signed else 0)
    return Const((1 << bits) - 1 if largest else (-(1 << bits) if type_.signed else 0), type_)
