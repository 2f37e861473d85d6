"""What has to hold of a call's sizes, numbers and tensors before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weft.compiler import Analysis
from weft.errors import OutOfRange, OverlapError, ShapeMismatch
from weft.loops.affine import evaluate
from weft.loops.ir import Check, Const, Expr, Function, Op, Ref, free_names, walk_expr
from weft.loops.types import BOOL, FLOAT64
from weft.pytorch.call.arguments import Bound
from weft.pytorch.call.results import strides_of
from weft.pytorch.failures import failure
from weft.pytorch.overlap import share_memory


def condition_fails(condition: str, bound: Bound) -> bool:
    """Whether the condition under which a subscript leaves its array holds for these sizes."""
    return bool(eval(condition, {"floord": lambda a, b: a // b, "min": min, "max": max}, bound.names))


def check(analysis: Analysis, bound: Bound, certain: bool = False) -> None:
    """Raise ShapeMismatch or OutOfRange where the Python would fail on these sizes. certain: only where it would whatever the
    tensors hold.
    """
    shapes = [f"{n} is {list(t.shape)}" for n, t in bound.tensors.items()]
    for e in analysis.function.equalities:
        left, right = evaluate(e.left, bound.names), evaluate(e.right, bound.names)
        if left != right:
            fact = f"{left} and {right}"
            raise ShapeMismatch(f"sizes differ: {e.what}", location=e.location, evidence=[fact, *shapes],
                                remedy="pass tensors whose sizes agree")  # fmt: skip
    check_demands(analysis.function, bound.names)
    outside = [r for r in analysis.requirements if (r.sure or not certain) and condition_fails(r.condition, bound)]
    for r in sorted(outside, key=lambda r: r.beyond is not None and not condition_fails(r.beyond, bound)):
        array = analysis.function.array(r.array)
        extent = evaluate(array.shape[r.axis], bound.names)
        verb, axis = "stores to" if r.write else "reads", r.axis if array.stands_for is None else array.stands_for
        raise OutOfRange(
            f"{analysis.function.name} {verb} {array.user_name} outside axis {axis}, at index {r.index}",
            location=r.location,
            evidence=[f"axis {axis} of {array.user_name} has size {extent}", *shapes],
            remedy="change the loop's range, or pass a larger tensor",
        )


def check_overlap(function: Function, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise OverlapError where a tensor that is written shares memory with itself or with another argument."""
    for array in function.arrays:
        if array.role != "inout":
            continue
        written = tensors[array.name]
        if written.numel() == 0:
            continue
        if _overlaps_itself(written):
            raise OverlapError(
                f"{array.name} is written, and two of its elements share memory",
                location=array.location,
                evidence=[f"shape {list(written.shape)}, strides {list(written.stride())}"],
                remedy=f"pass {array.name}.clone()",
            )
        for name, other in tensors.items():
            if name != array.name and share_memory(written, other):
                raise OverlapError(
                    f"{array.name} is written, and {name} shares memory with it",
                    location=array.location,
                    evidence=[f"both lie in the storage at {written.untyped_storage().data_ptr():#x}"],
                    remedy=f"pass {name}.clone()",
                )


def check_joints(function: Function, bound: Bound) -> None:
    """Raise ShapeMismatch where strides do not allow a view that merges dimensions."""
    for joint in function.joints:
        array = function.array(joint.array)
        shape = [evaluate(e, bound.names) for e in array.shape]
        strides = strides_of(function, array, shape, bound)
        sizes = [evaluate(size, bound.names) for _, _, size in joint.parts]
        steps = [strides[axis] * evaluate(step, bound.names) for axis, step, _ in joint.parts]
        walked = [(n, step) for n, step in zip(sizes, steps, strict=True) if n != 1]
        if 0 not in sizes and any(outer != n * inner for (_, outer), (n, inner) in itertools.pairwise(walked)):
            raise ShapeMismatch(
                f"{function.name} views {joint.array} with dimensions merged, which its strides do not allow",
                location=joint.location,
                evidence=[f"{joint.array} is {shape} with strides {list(strides)}"],
                remedy=f"use reshape instead of view, or pass {joint.array}.contiguous()",
            )


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether strides let two subscripts meet (sorted by stride, an axis must step past all smaller ones)."""
    reach = 0
    for stride, size in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def check_demands(function: Function, names: Mapping[str, Any]) -> None:
    """Raise what the Python raises for these sizes and scalars."""
    if function.demands:
        from weft.loops.interpret import CheckFailed, value_of

        for demand in function.demands:
            try:
                holds = value_of(demand.condition, names)
            except CheckFailed as inner:  # what the condition is made of raises before
                raise failure(function, inner.check.fault, inner.check.args[1], names) from None
            if not holds:
                raise failure(function, demand.fault, demand.condition, names)


def demands_floats(function: Function) -> bool:
    """Whether a call must check values that calls prepared alike may differ in."""
    floats = _floats(function)
    return any(free_names(d.condition) & floats for d in function.demands)


def _floats(function: Function) -> set[str]:
    return {s.name for s in function.scalars if s.type == FLOAT64}


def largest_floats(function: Function) -> dict[str, float] | None:
    """The sizes up to which finite values of floats meet what the function demands of them, and infinities and nan do too; None
    where it demands anything else.
    """
    found: dict[str, float] = {}
    for demand in function.demands:
        if not free_names(demand.condition) & _floats(function):
            continue
        if any(isinstance(e, Check) for e in walk_expr(demand.condition)):
            return None
        either = {*_either(demand.condition)}
        for e in either:
            match e:
                case Op(name="le", args=(Op(name="abs", args=(Ref(name=name) as value,)), Const(value=largest))):
                    infinite = Op("not", (Op("isfinite", (value,), BOOL),), BOOL)
                    if infinite in either and name in function.parameters:
                        found[name] = min(largest, found.get(name, largest))
                        break
        else:
            return None
    return found


def _either(condition: Expr) -> Iterator[Expr]:
    """The conditions of which one is enough."""
    if isinstance(condition, Op) and condition.name == "or":
        for e in condition.args:
            yield from _either(e)
    else:
        yield condition
