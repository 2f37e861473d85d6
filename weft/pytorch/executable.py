"""What can be run for arguments of any types: a user's function, or the adjoint of one.

It keeps a prepared call for every combination of types, shapes, strides, alignment and integer values it has seen, so
that a call seen before costs a look-up, the allocation of its results, and the launches.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import torch

from weft.compiler import Analysis
from weft.language import ArgumentType, Parameter, Signature
from weft.loops.ir import Function
from weft.loops.schedule import Wrapped
from weft.pytorch.call import CallPlan, prepare, repeated
from weft.pytorch.operator import Operator, define, executables
from weft.pytorch.specialize import Specializable, recalled
from weft.runtime import cache
from weft.runtime.guard import Guard
from weft.runtime.stack import deep

_MOST_CALLS = 1024


class Executable:
    """A name, a signature, and the analyses behind it: one program, whatever happens around it.

    guard: what a quick call must ask before it runs the program.
    """

    def __init__(
        self,
        name: str,
        signature: Signature,
        specializable: Specializable,
        operator_name: str | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.name = name
        self.operator_name = operator_name
        self.signature = signature
        self.specializable = specializable
        self.guard = guard
        self._calls: dict[Any, CallPlan] = {}
        self._lock = threading.RLock()
        self._operator: Operator | None = None

    @property
    def operator(self) -> Operator:
        """The operator registered with PyTorch, as `torch.ops.weft.<name>`."""
        if self._operator is None:
            with self._lock:
                if self._operator is None:
                    self._operator = define(self, self.operator_name)
        return self._operator

    def execute(self, args: tuple[Any, ...]) -> Any:
        """Run on real tensors, without autograd; results are tensors."""
        return self.call(call_key(self.signature, args), args).tensors(args)

    def call(self, key: Any, args: tuple[Any, ...]) -> CallPlan:
        """The prepared call of a key, prepared now where there is none."""
        plan = self._calls.get(key)
        if plan is not None:
            return plan
        plan = prepare(self.specializable, self.signature, args, self.guard)
        with self._lock:
            if len(self._calls) >= _MOST_CALLS:
                self._calls.clear()
            self._calls[key] = plan
        return plan


def call_key(signature: Signature, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a prepared call of a kernel depends on."""
    key: list[Any] = [torch.get_default_dtype()]
    for a in args:
        if isinstance(a, torch.Tensor):
            key += (a.dtype, a.shape, a.stride(), a.device, a.data_ptr() & 31)
        elif isinstance(a, float):
            key.append(float)
        else:
            key += (type(a), a)
    key += repeated(signature, args)
    return tuple(key)


class _AdjointAnalyses:
    """The analysis of the adjoint of a function for the types that its arguments had."""

    def __init__(
        self,
        parent: Specializable,
        identity: str,
        types: tuple[ArgumentType, ...],
        wanted: tuple[str, ...],
        seeded: tuple[int, ...] | None,
        wraps: Wrapped,
    ) -> None:
        self._parent, self._types, self._wanted, self._seeded = parent, types, wanted, seeded
        self._wraps = wraps
        self.identity = f"adjoint of {identity} at {types!r} for {wanted} from {seeded}, below 0 in {sorted(wraps)}"
        self._made: dict[tuple[bool, frozenset[str], Wrapped], Analysis] = {}
        self._derived: dict[bool, Function] = {}

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        from weft.loops.adjoint import adjoint
        from weft.loops.wrapping import wrapped

        if agree not in self._derived:
            forward = wrapped(self._parent.function(self._types, agree), self._wraps)
            self._derived[agree] = adjoint(forward, self._wanted, self._seeded)
        return self._derived[agree]

    @deep
    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        checked: frozenset[str] = frozenset(),
        wraps: Wrapped = frozenset(),
    ) -> Analysis:
        key = agree, checked, wraps
        if key not in self._made:
            self._made[key] = recalled(self.identity, types, agree, lambda: self.function(types, agree), checked, wraps)
        return self._made[key]


def adjoint_of(
    parent: Executable,
    types: tuple[ArgumentType, ...],
    wanted: tuple[str, ...],
    seeded: tuple[int, ...] | None = None,
    wraps: Wrapped = frozenset(),
) -> Executable:
    """The executable for the gradients of the arguments `wanted`: takes the arguments, the results, and a gradient for
    each result at the places `seeded` (None: for each of a float type). Raises NotDifferentiable.

    wraps: the axes in which the call had subscripts below 0.
    """
    forward = parent.specializable
    analyses = _AdjointAnalyses(forward, forward.identity, types, wanted, seeded, wraps)
    function = analyses.analysis((), True).function  # from the disk cache without deriving it again
    tensors = {a.name for a in function.arrays if a.role == "input"}
    kinds = {p.name: p.kind for p in parent.signature.parameters}
    parameters = tuple(Parameter(name, "tensor" if name in tensors else kinds[name]) for name in function.parameters)
    signature = Signature(
        name=function.name,
        parameters=parameters,
        written=frozenset(),
        results=(None,) * len(function.results),
        location=parent.signature.location,
    )
    # a name that another process gives it too: torch.compile keeps graphs on disk that call it
    own = f"{function.name}_{cache.key(analyses.identity)[:8]}" if function.name.isascii() else None
    if own is not None:
        cache.store(cache.key("operator", own), pickle.dumps((parent.operator.name, types, wanted, seeded, wraps)))
    return Executable(function.name, signature, analyses, own)


def recall_adjoint(name: str) -> None:
    """Define the operator of an adjoint that another process defined, if its kernel is known to this one."""
    kept = cache.load(cache.key("operator", name))
    if kept is None:
        return
    try:
        parent_name, types, wanted, seeded, wraps = pickle.loads(kept)
    except Exception:  # written by another version: any failure to read it is a miss
        return
    getattr(torch.ops.weft, parent_name, None)  # itself perhaps an adjoint
    parent = executables.get(parent_name)
    if parent is not None:
        define(adjoint_of(parent, types, wanted, seeded, wraps), name)
