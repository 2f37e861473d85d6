"""The errors of calls whose numbers or subscripts are none that Python would take."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from weft.errors import (
    DivisionByZero,
    LaunchError,
    MathDomainError,
    NumberOverflow,
    OutOfRange,
    OverlapError,
    StoreOverflow,
    WeftError,
)
from weft.loops.failing import Failing, failing
from weft.loops.ir import Expr, Fault, Function, checks_in, free_names
from weft.loops.schedule import Nest
from weft.loops.show import renamed, show_expr, user_names
from weft.loops.types import ScalarType
from weft.plan.arguments import faults_of
from weft.plan.facts import Geometry

_FAILURES: dict[str, tuple[type[WeftError], str]] = {
    "division": (DivisionByZero, "divide by another number, or guard the division with if"),
    "overflow": (NumberOverflow, "use smaller numbers, or a float"),
    "index": (OutOfRange, "use subscripts of the view's own sizes"),
    "overlap": (OverlapError, "store a copy: add .clone() to the right side"),
    "store": (StoreOverflow, "store a number that fits, or use a wider dtype"),
    "power": (MathDomainError, "make the base a float, with float() or .float(), or pass an exponent of 0 or more"),
    "domain": (MathDomainError, "guard the call with if, or use torch's function, which gives nan or inf"),
}


def failure(
    function: Function, fault: Fault, condition: Expr, names: Mapping[str, Any], iteration: Failing | None = None
) -> WeftError:
    """The error for what the Python would raise, with the condition that does not hold and the numbers in it."""
    kind, remedy = _FAILURES[fault.kind]
    text = fault.condition or show_expr(condition)
    told = [n for n in sorted(free_names(condition)) if n in names and re.search(rf"\b{n}\b", text)]
    evidence = f"{text} does not hold" + "".join(f", {n} is {names[n]}" for n in told)
    shown = user_names(function)
    evidence = renamed(evidence, shown) + _at(iteration, shown)
    return kind(f"{fault.what} in {function.name}", location=fault.location, evidence=[evidence], remedy=remedy)


def failed(
    function: Function, nest: Nest, arrays: Mapping[str, Geometry], values: Mapping[str, Any], code: int
) -> WeftError:
    """The error that a nest's code on a CPU tells of. values: of sizes and scalars; of arrays, their addresses."""
    declared = {a.name: a for a in function.arrays}
    numbers = {n: v for n, v in values.items() if n not in declared}
    faults: list[Fault | str] = [*(a.name for a in function.arrays), *faults_of(nest)]
    if not 0 < code <= len(faults):
        return LaunchError(
            f"the machine code of {function.name} tells of a fault that there is none of",
            location=function.location,
            evidence=[f"it gives {code}, and there are {len(faults)}: it is not what the C++ means"],
            remedy="name another C++ compiler in the environment variable CXX, and please report this with kernel.source",
        )
    what = faults[code - 1]
    memory = {n: _tensor(address, arrays[n], declared[n].dtype) for n, address in values.items() if n in arrays}
    iteration = failing(function, nest, memory, numbers, what)
    if isinstance(what, Fault):
        known = {n: v for n, v in numbers.items() if not isinstance(v, float)}
        return failure(function, what, checks_in(nest.body)[what], known, iteration)
    array = declared[what]
    evidence = ["data decide the subscript, or whether it is evaluated"]
    if iteration is not None:
        shape = [] if what not in arrays else list(arrays[what].shape)
        where = ", ".join(map(str, iteration.subscript))
        if array.stands_for is not None:
            where, shape = ", ".join((*":" * array.stands_for, where)), []
        of = f", and {array.user_name} is {shape}" if shape else ""
        evidence.append(f"it is {array.user_name}[{where}]{_at(iteration, user_names(function))}{of}")
    return OutOfRange(
        f"{function.name} is given a subscript that leaves {array.user_name}",
        location=array.location,
        evidence=evidence,
        remedy=f"make every such value lie inside {array.user_name}",
    )


def _at(iteration: Failing | None, shown: Callable[[str], str]) -> str:
    if iteration is None or not iteration.loops:
        return ""
    return " at " + ", ".join(f"{shown(var)} = {value}" for var, value in iteration.loops)


def _tensor(address: int, geometry: Geometry, dtype: ScalarType) -> torch.Tensor:
    """The tensor at an address of this machine's memory."""
    own: torch.dtype = getattr(torch, dtype.name)
    if 0 in geometry.shape:
        return torch.empty(geometry.shape, dtype=own)
    count = 1 + sum((n - 1) * s for n, s in zip(geometry.shape, geometry.strides, strict=True))
    memory = (ctypes.c_char * (count * own.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=own).as_strided(geometry.shape, geometry.strides)
