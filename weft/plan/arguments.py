"""How a generated kernel takes its arguments, on every target alike: one 8-byte slot each, in the order given here.

A slot holds a pointer, an int64 (strides in elements, sizes, integer and bool scalars) or a float64. A CUDA kernel has
one parameter a slot; a C++ function takes the address of the slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from weft.loops.accesses import Access, collect
from weft.loops.affine import affine, is_bound
from weft.loops.ir import (
    ZERO,
    Array,
    Const,
    Expr,
    Fault,
    Function,
    Load,
    Ref,
    Stmt,
    Store,
    checks_in,
    free_arrays,
    free_names,
    statement_exprs,
    walk,
    walk_expr,
)
from weft.loops.schedule import Nest
from weft.loops.types import FLOAT64, INT64, ScalarType


@dataclass(frozen=True)
class Slot:
    """kind "pointer" (array `array`), "stride" (of its `axis`), "size" or "scalar"; `name` tells it apart from other names
    of the nest, and its C++ name is made of it.
    """

    kind: Literal["pointer", "stride", "size", "scalar"]
    name: str
    type: ScalarType
    array: str = ""
    axis: int = 0


def stride_name(array: str, axis: int) -> str:
    """The name of a stride, which no name of the user's can be."""
    return f"{array}.stride.{axis}"


@dataclass(frozen=True)
class Facts:
    """What a kernel is specialised to beyond ranks and dtypes; part of its cache key, checked at every call.

    unit: (array, axis) whose stride is 1 and so is not passed. vectors: arrays whose pointer, other strides and sizes
    along the unit axis are multiples of this many elements (absent: 1). wide: offsets need 64 bits. unused: (array, axis) whose
    stride the kernel does without; without: arrays that it keeps elsewhere than in memory. short: quotients and remainders of
    integers, and the C++ type of 32 bits that holds what is divided and the divisor, which is above 0.
    """

    unit: frozenset[tuple[str, int]] = frozenset()
    vectors: tuple[tuple[str, int], ...] = ()
    wide: bool = True
    unused: frozenset[tuple[str, int]] = frozenset()
    without: frozenset[str] = frozenset()
    short: tuple[tuple[Expr, str], ...] = ()

    @property
    def key(self) -> str:
        """A text that is the same for equal facts, in every process."""
        told = f"{sorted(self.unit)} {sorted(self.vectors)} {self.wide} {sorted(self.unused)} {sorted(self.without)}"
        return f"{told} {self.short!r}" if self.short else told

    def vector(self, array: str) -> int:
        return dict(self.vectors).get(array, 1)


def used_names(statements: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
    """Arrays touched, and names of all Refs, in these statements."""
    arrays: set[str] = set()
    names: set[str] = set()
    for stmt in walk(statements):
        if isinstance(stmt, Store):
            arrays.add(stmt.array)
        for expr in statement_exprs(stmt):
            arrays |= free_arrays(expr)
            names |= free_names(expr)
    return arrays, names


def subscripts(statements: tuple[Stmt, ...]) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Every access in these statements: the array and its subscript."""
    for stmt in walk(statements):
        if isinstance(stmt, Store):
            yield stmt.array, stmt.index
        for expr in filter(free_arrays, statement_exprs(stmt)):
            for e in walk_expr(expr):
                if isinstance(e, Load):
                    yield e.array, e.index


def nest_arrays(function: Function, nest: Nest) -> tuple[Array, ...]:
    """The arrays in global memory that a nest touches, in the function's order (those local to an iteration left out)."""
    touched, _ = used_names(nest.body)
    return tuple(a for a in function.arrays if a.name in touched and not a.within)


def slots(function: Function, nest: Nest, facts: Facts) -> tuple[Slot, ...]:
    """The arguments of a nest's kernel: pointers, then strides that are not 1, then sizes, then scalars."""
    arrays = tuple(a for a in nest_arrays(function, nest) if a.name not in facts.without)
    _, names = used_names(nest.body)
    for parallel in nest.axes:
        for expr in (parallel.start, parallel.stop):
            names |= free_names(expr)
    axes = {a.var for a in nest.axes}
    for name, index in subscripts(
        nest.body
    ):  # where a subscript is no axis of the nest, its array's extent may be needed
        for i, extent in zip(index, function.array(name).shape, strict=True):
            placed = isinstance(i, Const) or (isinstance(i, Ref) and i.name in axes)
            told = is_bound(extent, free_names(extent)) and name not in function.checked  # the call has told
            if not (placed and told):
                names |= free_names(extent)
    for stmt in walk(nest.body):
        if isinstance(stmt, Store) and any(affine(i) is None for i in stmt.index):  # where data decide, elements are counted
            names |= {n for extent in function.array(stmt.array).shape for n in free_names(extent)}
    for access in collect(nest.body):
        # where only some iterations load, a tile stops at the array's end; where there may be none, what they have in common
        # is asked for
        early = bool(access.loops) and not access.write and any(isinstance(i, Const) for i in access.index)
        if access.guard or early or _partly_common(function, nest, access):
            shape = function.array(access.array).shape
            names |= {name for extent in shape for name in free_names(extent)}
    out = [Slot("pointer", a.name, a.dtype, a.name) for a in arrays]
    for a in arrays:
        for axis in range(len(a.shape)):
            if (a.name, axis) not in facts.unit | facts.unused:
                out.append(Slot("stride", stride_name(a.name, axis), INT64, a.name, axis))
    out += [Slot("size", s.name, INT64) for s in function.sizes if s.name in names]
    out += [
        Slot("scalar", s.name, FLOAT64 if s.type == FLOAT64 else INT64) for s in function.scalars if s.name in names
    ]
    return tuple(out)


def _partly_common(function: Function, nest: Nest, access: Access) -> bool:
    """Whether all iterations of the loops in a nest load the same element, which an axis that does not end with its array
    names: where there are no iterations, it may be none of the array's.
    """
    if access.write or not access.loops or any(free_names(i) & {f.var for f in access.loops} for i in access.index):
        return False
    whole = {(Ref(a.var, INT64), a.stop) for a in nest.axes if a.start == ZERO}
    return any((i, extent) not in whole for i, extent in zip(access.index, function.array(access.array).shape, strict=True))


def faults_of(nest: Nest) -> tuple[Fault, ...]:
    """What the code of a nest checks its values for; on a CPU it returns the number of one that it met, counted from 1 after
    those of the function's arrays.
    """
    return tuple(checks_in(nest.body))
