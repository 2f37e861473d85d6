"""Functions that mean something else of complex numbers than of real ones, and tensors of them as tensors of their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import arithmetic, tensors
from weft.language.arithmetic import as_type, choose, conjugate, of_parts, operate, part_of, power, truth
from weft.language.builder import Builder
from weft.language.kinds import kinds_of
from weft.language.values import PARTS, TWO, Scalar, Tensor, Value, View, number, place
from weft.loops.ir import Const
from weft.loops.types import COMPLEX64, COMPLEX128, FLOAT64, INT64, Typed

_Function = Callable[..., Scalar]


def is_complex(value: object) -> bool:
    """Whether a value is a complex number or a tensor of such, on some path."""
    if isinstance(value, Scalar):
        return any(kind.scalar.category == "complex" for kind in kinds_of(value))
    typed = getattr(value, "typed", None)
    return isinstance(typed, Typed) and typed.scalar.category == "complex"


# ---------------------------------------------------------------- element by element


def _zero(like: Scalar) -> Scalar:
    return as_type(number(0), like.typed)


def _share(b: Builder, *values: Scalar) -> tuple[Scalar, ...]:
    return tuple(b.share(v, "z") for v in values)


def _sgn(b: Builder, z: Scalar) -> Scalar:
    """z / |z|, and 0 of 0."""
    (z,) = _share(b, z)
    size = b.share(part_of("abs", z), "size")
    is_zero = operate("eq", (size, _zero(size)), b.default_float)
    return choose(is_zero, _zero(z), _divided(b, z, size), b.default_float)


def _divided(b: Builder, z: Scalar, by: Scalar) -> Scalar:
    """A complex number over a real one, part by part."""
    real, imag = (operate("div", (part_of(name, z), by), b.default_float) for name in ("real", "imag"))
    return of_parts(real, imag, b.default_float)


def _is_real(b: Builder, z: Scalar) -> Scalar:
    imag = part_of("imag", z)
    return operate("eq", (imag, _zero(imag)), b.default_float)


def _each_part(function: _Function) -> _Function:
    """A function of real numbers, of each part."""

    def both(b: Builder, z: Scalar, *others: Scalar | None) -> Scalar:
        (z,) = _share(b, z)
        real, imag = (function(b, part_of(name, z), *others) for name in ("real", "imag"))
        return of_parts(real, imag, b.default_float)

    return both


def _float_power(b: Builder, z: Scalar, exponent: Scalar) -> Scalar:
    def wide(value: Scalar) -> Scalar:
        to = COMPLEX128 if value.typed.scalar.category == "complex" else FLOAT64
        return arithmetic.convert(value, to)

    z = b.share(wide(z), "z")
    return power(z, exponent if exponent.constant is not None else wide(exponent), b.default_float)


def _logaddexp(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """log(e^x + e^y) by the number whose real part is larger, the second of two that are equal infinities."""
    typed = arithmetic.common((x, y), b.default_float)
    x, y = _share(b, as_type(x, typed), as_type(y, typed))
    low, high = (b.share(part_of("real", v), "re") for v in (x, y))
    later = operate("lt", (low, high), b.default_float)
    large, small = (b.share(choose(later, *sides, b.default_float), "z") for sides in ((y, x), (x, y)))
    ratio = operate("exp", (operate("sub", (small, large), b.default_float),), b.default_float)
    return operate("add", (large, operate("log1p", (ratio,), b.default_float)), b.default_float)


def _silu(b: Builder, z: Scalar) -> Scalar:
    (z,) = _share(b, z)
    return operate("mul", (z, operate("sigmoid", (z,), b.default_float)), b.default_float)


def functions(real: Callable[[str], _Function]) -> dict[str, _Function]:
    """What functions of PyTorch are of complex numbers where the expression for real ones is another. real: those."""
    return {
        "sgn": _sgn,
        "angle": lambda b, z: part_of("angle", z),
        "isreal": _is_real,
        "nan_to_num": _each_part(real("nan_to_num")),
        "float_power": _float_power,
        "logaddexp": _logaddexp,
        "silu": _silu,
        "logical_xor": lambda b, x, y: operate("ne", (truth(x), truth(y)), b.default_float),
    }


# Functions whose expression is one for complex numbers as it is for real ones.
ALIKE = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "square", "reciprocal", "pow"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinc", "neg", "abs"),
        *("mul", "true_divide", "eq", "ne", "isnan", "isinf", "isfinite", "isclose", "lerp", "addcmul", "addcdiv", "where"),
        *("ldexp", "softsign", "tanhshrink", "logical_not", "logical_and", "logical_or", "l1_loss"),
    )
)


# ---------------------------------------------------------------- parts of numbers and of tensors


def part(b: Builder, name: str, value: Value) -> Value:
    """`.real` or `.imag`: of a tensor, a view of the array of its parts."""
    if isinstance(value, View) and value.is_complex and not value.conjugate:
        axes = tuple(Const(int(name == "imag"), INT64) if axis == PARTS else axis for axis in value.axes)
        return replace(value, dtype=value.dtype.part, axes=axes)
    return tensors.lift(b, lambda _, z: replace(_part_of(b, name, z), alias=None), value)


def _part_of(b: Builder, name: str, value: Scalar) -> Scalar:
    if value.typed.scalar.category == "complex":
        return part_of(name, value)
    if name == "real" or value.typed.weight == 0:
        return value if name == "real" else as_type(number(0), value.typed)
    raise TypeMismatch("imag of a real tensor", remedy="PyTorch has it of complex ones alone: write torch.zeros_like(x)")


def conj(b: Builder, value: Value) -> Value:
    """`.conj()`: in PyTorch a view, which is read as it is and written nowhere here."""
    if isinstance(value, View) and value.is_complex:
        return replace(value, conjugate=not value.conjugate, copied=True)
    def one(_: Builder, z: Scalar) -> Scalar:
        return conjugate(z) if z.typed.scalar.category == "complex" else z

    found = tensors.lift(b, one, value)
    if isinstance(value, Scalar) and isinstance(found, Scalar) and value.objects.arrays:
        # a view of an element too, good until that is stored into
        objects = replace(value.objects, index=None, places=value.objects.elements)
        return replace(found, alias=replace(objects, names=frozenset(), sure=False))
    return found


def resolved(b: Builder, value: Value) -> Value:
    """`.resolve_conj()`: a copy of what is lazily conjugate, else itself."""
    if isinstance(value, View) and value.conjugate:
        return tensors.lift(b, lambda _, z: replace(z, alias=None), value)
    return value


def as_complex(b: Builder, value: Value) -> View:
    """torch.view_as_complex: a tensor of pairs as one of complex numbers."""
    if not isinstance(value, View) or value.dtype not in (COMPLEX64.part, FLOAT64):
        raise TypeMismatch("view_as_complex of what is no tensor of float32 or float64", remedy="write torch.complex(a, b)")
    if value.is_whole() and value.array in b.complexes:
        return b.complexes[value.array]
    last = len(value.dims) - 1
    if last < 0 or value.axes[-1] != place(last) or value.copied:
        raise UnsupportedSyntax(
            "view_as_complex of a tensor whose last dimension is a part of one",
            remedy="write torch.complex(x[..., 0], x[..., 1])",
        )
    b.require_equal(value.dims[last], TWO, "of view_as_complex and 2, the parts of a number")
    array = b.arrays[value.array]
    b.arrays[value.array] = replace(array, shape=(*array.shape[:-1], TWO))
    dtype = COMPLEX128 if value.dtype == FLOAT64 else COMPLEX64
    found = replace(value, dtype=dtype, dims=value.dims[:-1], axes=(*value.axes[:-1], PARTS))
    if value.is_whole() and value.array in b.given:
        b.complexes[value.array] = found
    return found


def as_real(b: Builder, value: Value) -> Tensor:
    """torch.view_as_real: a tensor of complex numbers as one of pairs."""
    if not isinstance(value, View) or not value.is_complex or value.conjugate:
        raise UnsupportedSyntax(
            "view_as_real of what is no tensor of complex numbers", remedy="store them into a tensor first"
        )
    rank = len(value.dims)
    axes = tuple(place(rank) if axis == PARTS else axis for axis in value.axes)
    return replace(value, dtype=value.dtype.part, dims=(*value.dims, TWO), axes=axes)


def made(b: Builder, name: str, first: Value, second: Value) -> Value:
    """torch.complex(real, imag), torch.polar(size, angle)."""
    def cartesian(b: Builder, x: Scalar, y: Scalar) -> Scalar:
        if x.typed.scalar != y.typed.scalar and x.typed.weight == y.typed.weight:
            raise TypeMismatch(f"{name} of {x.typed.scalar} and {y.typed.scalar}", remedy="pass two tensors of one dtype")
        if any(v.typed.scalar.category != "float" for v in (x, y)):
            raise TypeMismatch(f"{name} of {x.typed.scalar} and {y.typed.scalar}", remedy="pass tensors of floats")
        return of_parts(x, y, b.default_float)

    def polar(b: Builder, size: Scalar, angle: Scalar) -> Scalar:
        size, angle = _share(b, size, angle)
        x, y = (operate("mul", (size, operate(f, (angle,), b.default_float)), b.default_float) for f in ("cos", "sin"))
        return cartesian(b, x, y)

    return tensors.lift(b, cartesian if name == "complex" else polar, first, second)


def python_number(b: Builder, values: tuple[Scalar, ...]) -> Scalar:
    """Python's complex(z) and complex(real, imag)."""
    if len(values) == 1:
        return arithmetic.to_number(values[0], COMPLEX128)
    if len(values) != 2 or any(is_complex(v) for v in values):
        raise UnsupportedSyntax("complex(...) of two numbers that are complex", remedy="write a + 1j * b")
    real, imag = (arithmetic.to_number(v, FLOAT64) for v in values)
    return of_parts(real, imag, b.default_float)

