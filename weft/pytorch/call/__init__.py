"""One call of a kernel: its arguments checked, results allocated, nests launched.

`prepare` does all that depends on types, shapes, strides and alignment once, and leaves a function that does the rest:
allocate, take addresses, launch.
"""

from __future__ import annotations

from weft.pytorch.call.analyses import analysis_for, wraps_for
from weft.pytorch.call.arguments import (
    COMPLEX,
    DTYPES,
    Bound,
    argument_types,
    as_pairs,
    bind,
    call_types,
    common_device,
    gathered,
    plain,
    repeated,
)
from weft.pytorch.call.checks import check, check_joints, check_overlap
from weft.pytorch.call.plans import CallPlan, geometries, made_arrays, prepare
from weft.pytorch.call.results import allocate, finisher

__all__ = [
    "Bound",
    "COMPLEX",
    "CallPlan",
    "DTYPES",
    "allocate",
    "analysis_for",
    "argument_types",
    "as_pairs",
    "bind",
    "call_types",
    "check",
    "check_joints",
    "check_overlap",
    "common_device",
    "finisher",
    "gathered",
    "geometries",
    "made_arrays",
    "plain",
    "prepare",
    "repeated",
    "wraps_for",
]
