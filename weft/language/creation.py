"""Calls that make tensors: torch.empty and its kin, torch.tensor, torch.arange."""

from __future__ import annotations

import math
from dataclasses import replace

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import checks, sequences, tensors
from weft.language.arguments import Arguments, dtype_of, sizes_of, static_int
from weft.language.arithmetic import convert, operate
from weft.language.builder import Builder
from weft.language.kinds import cast, converted
from weft.language.subscripts import position
from weft.language.values import Computed, Range, Scalar, Value, View, describe, integer, number, tidy
from weft.loops.ir import Const, Expr
from weft.loops.types import INT64, ScalarType, Typed, complex_of

_CREATE = {"empty": None, "zeros": 0, "ones": 1}


def create(b: Builder, arguments: Arguments, kind: str, like: View | Computed | None, hint: str) -> View:
    """torch.empty, zeros, ones, full and their forms that take a shape or a dtype from a tensor (`like`)."""
    value: Value | None = None
    if like is not None and kind.endswith("_like"):
        dims = like.dims
    elif kind == "full" or arguments.args:
        first = arguments.need("size")
        dims = sizes_of((first,)) if kind in ("full", "new_full") else sizes_of((first, *arguments.rest()))
    else:
        dims = sizes_of((arguments.need("size"),))
    base = kind.removesuffix("_like").removeprefix("new_")
    if base == "full":
        value = arguments.need("fill_value")
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    layout = [arguments.named(name) for name in ("layout", "memory_format", "requires_grad", "pin_memory")]
    if any(isinstance(v, Scalar) and v.constant is True for v in layout):
        raise UnsupportedSyntax(
            f"{arguments.name} with requires_grad or pin_memory inside a kernel", remedy="leave it out"
        )
    arguments.done()
    contiguous = not kind.endswith("_like")
    model = like.array if not contiguous and isinstance(like, View) and like.is_whole() else ""
    if base == "full":
        filler = tensors.scalar_of(b, value) if value is not None else None
        if filler is None:
            raise TypeMismatch("the fill value is not a number", remedy="fill with a number")
        if dtype is None:
            filler = tensors.of_one_dtype(filler, arguments.name)
            inferred = filler.typed.scalar
            dtype = like.typed.scalar if like is not None else (
                of_numbers(b, inferred) if filler.typed.weight == 0 else inferred
            )  # fmt: skip
        if filler.constant is not None and dtype.category != "complex":
            return b.allocate(hint, dtype, dims, filler.constant, contiguous=contiguous, like=model)
        view = b.allocate(hint, dtype, dims, contiguous=contiguous, like=model)
        tensors.assign(b, view, filler)
        return view
    if dtype is None:
        dtype = like.typed.scalar if like is not None else b.default_float
    if base == "ones" and dtype.category == "complex":
        view = b.allocate(hint, dtype, dims, contiguous=contiguous, like=model)
        tensors.assign(b, view, number(1))
        return view
    return b.allocate(hint, dtype, dims, _CREATE[base], contiguous=contiguous, like=model)


def of_numbers(b: Builder, scalar: ScalarType) -> ScalarType:
    """The dtype of a tensor that PyTorch makes of Python's numbers."""
    return {"float": b.default_float, "complex": complex_of(b.default_float)}.get(scalar.category, scalar)


def constant_tensor(b: Builder, arguments: Arguments) -> Value:
    """torch.tensor of a number: one element. torch.as_tensor of a tensor: itself."""
    value = arguments.need("data")
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    arguments.done()
    scalar = tensors.scalar_of(b, value)
    typed = value.typed if isinstance(value, (Scalar, View, Computed)) else None
    if arguments.name.endswith("as_tensor") and typed is not None and typed.weight and dtype in (None, typed.scalar):
        return value
    if scalar is None:
        raise TypeMismatch(f"{arguments.name} of {describe(value)}", remedy="make it with torch.zeros and store into it")
    if dtype is None:
        kind = tensors.of_one_dtype(scalar, arguments.name).typed
        dtype = of_numbers(b, kind.scalar) if kind.weight == 0 else kind.scalar
    return replace(convert(checks.stored(b, scalar, dtype), dtype), alias=None)


def arange(b: Builder, arguments: Arguments) -> Computed:
    """torch.arange of ints, or of constants: its elements are the numbers."""
    values = [tensors.scalar_of(b, v) for v in arguments.rest()]
    named = {name: arguments.named(name) for name in ("start", "end", "step")}
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    arguments.done()
    if len(values) == 1:
        values = [None, values[0]]
    given = [v or tensors.scalar_of(b, n) if n is not None else v
             for v, n in zip((*values, None, None, None), named.values(), strict=False)]  # fmt: skip
    first, last, by = given[0] or number(0), given[1], given[2] or number(1)
    if last is None:
        raise TypeMismatch("arange without an end", remedy="pass the number of its elements")
    numbers = (first, last, by)
    if any(v.typed.scalar.category == "complex" for v in numbers) or (dtype is not None and dtype.category == "complex"):
        raise TypeMismatch("arange of complex numbers", remedy="multiply it: torch.arange(n) * 1j")
    if all(v.typed.scalar.category == "int" for v in numbers):
        step = static_int(by)
        if not step:
            raise UnsupportedSyntax("an arange whose step is not a constant", remedy="multiply it: torch.arange(n) * s")
        start, stop = (b.steady(tidy(position(b, converted(v, INT64))), "bound") for v in (first, last))
        count = sequences.count_of(Range(start, stop, step))
        typed = Typed(dtype or INT64, 2)
    else:
        low, high, distance = (v.constant for v in numbers)
        if low is None or high is None or not distance:
            raise UnsupportedSyntax("an arange of floats that are not constants", remedy="compute it from arange(n)")
        count = Const(max(0, math.ceil((high - low) / distance)), INT64)
        typed = Typed(dtype or b.default_float, 2)

    def at(index: tuple[Expr, ...]) -> Expr:
        k = integer(index[0])
        moved = operate("add", (first, operate("mul", (k, by), b.default_float)), b.default_float)
        return cast(moved.expr, typed.register)

    return Computed((count,), typed, at)
