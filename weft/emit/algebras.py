"""Algebras in C++: the types of `runtime/device/algebra.cuh` and `algebra_of_one.cuh`, and how a state takes in a total."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weft.emit.expressions import Printer, register_type
from weft.graph.tile import Axis, Carried
from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, LINEAR, SELECT, segmented
from weft.loops.ir import Const, Expr, Op, Ref
from weft.loops.types import INT64, ScalarType

_ALGEBRA_TYPES = {
    "sum": "Sum", "product": "Product", "max": "Max", "min": "Min", "maximum": "Maximum", "minimum": "Minimum",
    "fmax": "FMax", "fmin": "FMin", "and": "And", "or": "Or", "bitand": "BitAnd", "bitor": "BitOr",
    "bitxor": "BitXor", AFFINE: "Affine", SELECT: "Select", CLAMP: "Clamp",
}  # fmt: skip
# What changes a state by a total, of operands that bind as products do; sums and products of integers wrap.
_JOIN = {"add": "{0} + {1}", "mul": "{0} * {1}", "and": "{0} && {1}", "or": "{0} || {1}"}
_JOIN |= {"bitand": "{0} & {1}", "bitor": "{0} | {1}", "bitxor": "{0} ^ {1}"}
_JOIN |= {"max": "weft::python_max({0}, {1})", "min": "weft::python_min({0}, {1})"}
_JOIN |= {"maximum": "weft::maximum({0}, {1})", "minimum": "weft::minimum({0}, {1})"}
_JOIN |= {"fmax": "weft::drop_nan_max({0}, {1})", "fmin": "weft::drop_nan_min({0}, {1})"}

_WRAPPED = {"add": "weft::wrapping_add({0}, {1})", "mul": "weft::wrapping_mul({0}, {1})"}


def algebra_type(name: str, type_: str) -> str:
    """The C++ type of an algebra of one state. type_: the state's."""
    inner = segmented(name)
    if inner is not None:
        return f"weft::Segmented<{algebra_type(inner, type_)}, {type_}>"
    return f"weft::{_ALGEBRA_TYPES[name]}<{type_}>"


def extremum_type(fold: Carried, index: str, axes: Mapping[str, Axis] = MappingProxyType({})) -> str:
    """The C++ type of an extremum with what goes with it, but for places: these are told by the one place, of type `index`.
    axes: those of its points, by name, where `is_place` shall know them.
    """
    ties = fold.algebra.endswith("_last")
    flags = [fold.algebra.startswith("argmax"), ties != fold.reverse, ties]
    types = [register_type(e.type) for k, e in enumerate(fold.inits) if k == 0 or not is_place(fold, k, axes)]
    return f"weft::Extremum<{', '.join([*('true' if f else 'false' for f in flags), index, *types])}>"


def is_place(fold: Carried, k: int, axes: Mapping[str, Axis] = MappingProxyType({})) -> bool:
    """Whether the k-th value of an extremum's state is an axis of its points, or the place of a point among all of them."""
    part = fold.parts[k + 1] if k else None
    return (isinstance(part, Ref) and part.name in fold.over) or (part is not None and part == place_among_all(fold, axes))


def place_among_all(fold: Carried, axes: Mapping[str, Axis]) -> Expr | None:
    """The place of a point among all of a fold over several axes, as programs write it; None where they do not begin at 0."""
    if len(fold.over) < 2 or any(a not in axes or axes[a].start != Const(0, INT64) for a in fold.over):
        return None
    place: Expr = Ref(fold.over[0], INT64)
    for name in fold.over[1:]:
        place = Op("add", (Op("mul", (place, axes[name].stop), INT64), Ref(name, INT64)), INT64)
    return place


def join(algebra: str, type_: ScalarType) -> str:
    """What makes of a state of one value and of all that has been combined since, in C++'s own types, the state after."""
    operator = ALGEBRAS[algebra].join
    wraps = type_.category == "int" and operator in _WRAPPED
    return (_WRAPPED if wraps else _JOIN)[operator]


def algebra_of(carried: Carried) -> str:
    """The C++ type of the algebra that changes states."""
    type_ = register_type(carried.types[0])
    if carried.algebra == LINEAR:
        return f"weft::Linear<{type_}, {len(carried.types)}>"
    return algebra_type(carried.algebra, type_)


def element_of(printer: Printer, carried: Carried, before: str) -> str:
    """What has been combined so far, with what a point does: sums of products fuse, as in the states themselves."""
    algebra, parts = algebra_of(carried), ", ".join(map(printer.value, carried.parts))
    if carried.algebra in ALGEBRAS:
        fused = printer.accumulated(before, carried.parts[0]) if carried.algebra == "sum" else None
        return fused or f"{algebra}::combine({before}, {parts})"
    if carried.algebra == AFFINE:
        return f"{algebra}::combine({before}, {{{parts}}})"
    return f"{algebra}::combine({before}, {algebra}::step({parts}))"
