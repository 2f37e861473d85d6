"""The arguments of a call, taken by position or name, and what they mean: constants, sizes, dtypes, tensors."""

from __future__ import annotations

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import tensors
from weft.language.builder import Builder
from weft.language.kinds import converted
from weft.language.values import Computed, Scalar, Static, Tuple, Value, View, describe, tidy
from weft.loops.ir import Expr, unchecked
from weft.loops.types import BOOL, COMPLEX64, COMPLEX128, COMPLEX_TYPES, FLOAT64, INT64, SCALAR_TYPES, ScalarType

DTYPES = {**SCALAR_TYPES, **COMPLEX_TYPES, "cfloat": COMPLEX64, "cdouble": COMPLEX128,
          "float": SCALAR_TYPES["float32"], "double": FLOAT64, "half": SCALAR_TYPES["float16"],
          "long": INT64, "int": SCALAR_TYPES["int32"], "short": SCALAR_TYPES["int16"]}  # fmt: skip
_OF_PYTHON = {"builtins.float": FLOAT64, "builtins.int": INT64, "builtins.bool": BOOL, "builtins.complex": COMPLEX128}


class Arguments:
    """The arguments of a call, taken by position or name; what is left over at the end is an error."""

    def __init__(self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        self.name, self.args, self.kwargs = name, list(args), dict(kwargs)

    def take(self, *names: str) -> Value | None:
        """The next positional argument, or the one of these names."""
        if self.args:
            return self.args.pop(0)
        return self.named(*names)

    def named(self, *names: str) -> Value | None:
        for name in names:
            if name in self.kwargs:
                return self.kwargs.pop(name)
        return None

    def need(self, *names: str) -> Value:
        value = self.take(*names)
        if value is None:
            raise TypeMismatch(f"{self.name} needs an argument {names[0]}", remedy=f"pass {names[0]}")
        return value

    def rest(self) -> tuple[Value, ...]:
        values, self.args = tuple(self.args), []
        return values

    def done(self) -> None:
        if self.args:
            raise UnsupportedSyntax(
                f"{self.name} has {len(self.args)} arguments more than weft knows", remedy="leave them out"
            )
        if self.kwargs:
            name = next(iter(self.kwargs))
            raise UnsupportedSyntax(
                f"{self.name} has an argument {name}, which weft does not know", remedy="leave it out"
            )


def static_int(value: Value | None) -> int | None:
    """The value of an int that is known while parsing."""
    if isinstance(value, Scalar) and isinstance(value.constant, int):
        return int(value.constant)
    return None


def static_bool(value: Value | None) -> bool:
    """A flag that is known while parsing: False where it is not given."""
    if value is None:
        return False
    if isinstance(value, Scalar) and isinstance(value.constant, bool):
        return value.constant
    raise TypeMismatch(f"{describe(value)} where a constant True or False is needed", remedy="write True or False")


def size_of(value: Value) -> Expr:
    """A value as a size or a subscript that is a Python int."""
    if isinstance(value, Scalar) and value.typed.scalar.category == "int":
        return tidy(unchecked(converted(value, INT64)))
    raise TypeMismatch(f"{describe(value)} where an int is needed", remedy="use an int")


def sizes_of(values: tuple[Value, ...]) -> tuple[Expr, ...]:
    """A shape given as one tuple or as several ints."""
    if len(values) == 1 and isinstance(values[0], Tuple):
        values = values[0].items
    return tuple(size_of(v) for v in values)


def dtype_of(value: Value | None) -> ScalarType | None:
    """What a `dtype` argument says; None where it says nothing. Raises TypeMismatch for what is no dtype."""
    match value:
        case None | Static(value=None):
            return None
        case Static(value=ScalarType() as dtype):
            return dtype
        case Static(value=found) if getattr(found, "name", "") in _OF_PYTHON:
            return _OF_PYTHON[found.name]
    raise TypeMismatch(
        f"{describe(value)} is not a dtype that weft knows", remedy="use one of torch." + ", torch.".join(SCALAR_TYPES)
    )


def dimension(value: Value | None, rank: int) -> int:
    """A dimension given as a constant int, counted from the first."""
    dim = static_int(value)
    if dim is None:
        raise TypeMismatch("a dimension that is not a constant int", remedy="write it as a number")
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise TypeMismatch(
            f"dimension {dim} of a tensor of {rank} dimensions", remedy=f"use one from {-rank} to {rank - 1}"
        )
    return dim % max(rank, 1)


def tensor_of(b: Builder, value: Value, what: str) -> View | Computed:
    if isinstance(value, (View, Computed)):
        return value
    if isinstance(value, Scalar) and value.typed.weight > 0:
        scalar = tensors.of_one_dtype(value, what)
        return Computed((), value.typed, lambda at: scalar.expr)
    raise TypeMismatch(f"{what} of {describe(value)}", remedy="it works on tensors")
