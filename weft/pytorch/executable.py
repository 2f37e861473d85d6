"""What can be run for arguments of any types: a user's function, the adjoint of one, or one for the elements of a batch.

It keeps a prepared call for every combination of types, shapes, strides, alignment and integer values it has seen, so
that a call seen before costs a look-up, the allocation of its results, and the launches.
"""

from __future__ import annotations

import functools
import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from weft.compiler import tuned
from weft.errors import UnknownOperator
from weft.language import ArgumentType, Parameter, Signature
from weft.loops.schedule import Wrapped
from weft.pytorch.call import CallPlan, argument_types, finisher, gathered, prepare, repeated
from weft.pytorch.derived import AdjointAnalyses, BatchedAnalyses, KeepingAnalyses
from weft.pytorch.gradients import Rules
from weft.pytorch.operator import Operator, define, executables
from weft.pytorch.quick import Recorder, never
from weft.pytorch.specialize import Specializable
from weft.pytorch.telling import Place, tell_unused
from weft.pytorch.views import Views
from weft.runtime import cache, quick
from weft.runtime.guard import Guard

if TYPE_CHECKING:
    from weft.compiler.keeping import Kept

_MOST_CALLS = 1024


class Executable:
    """A name, a signature, and the analyses behind it: one program, whatever happens around it.

    takes_pairs: who calls the operator knows complex results for the pairs that they are of.
    guard: what a quick call must ask before it runs the program. meaning: what it is to the user. told: what was warned of.
    """

    takes_pairs = False

    def __init__(
        self,
        name: str,
        signature: Signature,
        specializable: Specializable,
        operator_name: str | None = None,
        guard: Guard | None = None,
        meaning: str = "",
    ) -> None:
        self.name = name
        self.meaning = meaning or name
        self.told: set[Place] = set()
        self.operator_name = operator_name
        self.signature = signature
        self.specializable = specializable
        self.guard = guard
        self._calls: dict[Any, CallPlan] = {}
        self._recorded: dict[Any, Executable | None] = {}
        self._generation = tuned.generation.value
        self._lock = threading.RLock()
        self._operator: Operator | None = None

    @property
    def operator(self) -> Operator:
        """The operator registered with PyTorch, as `torch.ops.weft.<name>`."""
        if self._operator is None:
            with self._lock:
                if self._operator is None:
                    self._operator = _defined(self, self.operator_name)
        return self._operator

    @functools.cached_property
    def rules(self) -> Rules:
        """What autograd asks of the operator."""
        return Rules(self, functools.partial(adjoint_of, self))

    def execute(self, args: tuple[Any, ...]) -> Any:
        """Run on real tensors, without autograd; results are tensors."""
        return self.plan(args).tensors(args)

    def run(self, args: tuple[Any, ...]) -> tuple[Any, Callable[..., Any]]:
        """As `execute`, and the quick way of calls like this one."""
        plan = self.plan(args)
        return plan.known(args) if plan.run is plan.tensors else (plan.tensors(args), never)

    def recorded(self, key: Any, args: tuple[Any, ...]) -> Executable | None:
        """What runs a call of plain tensors that autograd records; None where the dispatcher does."""
        if key not in self._recorded:
            if len(self._recorded) >= _MOST_CALLS:
                self._recorded.clear()
            self._recorded[key] = self._recording(args)
        return self._recorded[key]

    def recorder(self, args: tuple[Any, ...], shown: int, views: Views | None = None) -> Recorder:
        """What records such a call. shown: how many of its results are returned; views: of what it is made with."""
        are_tensors = tuple(isinstance(a, torch.Tensor) for a in args)
        return replace(self.rules.recorder(are_tensors, views), shown=shown)

    def _recording(self, args: tuple[Any, ...]) -> Executable | None:
        names = self.signature.results
        if self.signature.written or not names or any(name is not None for name in names):
            return None
        if gathered(self.signature, args) is not args:
            return None
        types = argument_types(self.signature, args)
        function = self.specializable.analysis(types, True).function
        if finisher(function) is not None or len({*function.results}) < len(function.results):
            return None
        return self.recording(types, args)

    def recording(self, types: tuple[ArgumentType, ...], args: tuple[Any, ...]) -> Executable:
        """What runs calls that autograd records: itself, or what also returns what gradients need."""
        return self

    def plan(self, args: tuple[Any, ...]) -> CallPlan:
        """The prepared call of real tensors."""
        self.require_current()
        return self.call(call_key(self.signature, args), args)

    def require_current(self) -> None:
        """Raise StateChanged where this is no longer what the program means."""

    def call(self, key: Any, args: tuple[Any, ...]) -> CallPlan:
        """The prepared call of a key, prepared now where there is none."""
        if self._generation != tuned.generation.value:
            with self._lock:
                self._calls.clear()
                self._generation = tuned.generation.value
        plan = self._calls.get(key)
        if plan is not None:
            return plan
        quick.begin()
        plan = prepare(self.specializable, self.signature, args, self.guard)
        self.prepared(args)
        tell_unused(self.meaning, plan.unused, self.signature.location, self.told)
        with self._lock:
            if len(self._calls) >= _MOST_CALLS:
                self._calls.clear()
            self._calls[key] = plan
        return plan

    def prepared(self, args: tuple[Any, ...]) -> None:
        """What there is to tell of a call that was prepared."""


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
    analyses = AdjointAnalyses(parent.specializable, types, wanted, seeded, wraps)
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
    own = _named_alike(function.name, analyses.identity, "adjoint", parent, types, wanted, seeded, wraps)
    return Executable(function.name, signature, analyses, own, meaning=f"the gradient of {parent.meaning}")


def keeping_of(parent: Executable, types: tuple[ArgumentType, ...]) -> Keeping | None:
    """The executable whose results are those of the parent, and then what its gradients need of its folds; None where they need
    nothing of the kind for arguments of these types.
    """
    if parent.signature.written:
        return None
    analyses = KeepingAnalyses(parent.specializable)
    kept = analyses.kept(types)
    if kept is None:
        return None
    results = (*parent.signature.results, *(None for _ in kept.folds))
    name = f"{parent.name}_keeping"
    own = _named_alike(name, analyses.identity, "keeping", parent, types)
    return Keeping(parent, name, analyses, own, replace(parent.signature, results=results), parent.meaning, kept)


def batched_of(parent: Executable, carried: tuple[bool, ...]) -> Executable:
    """The executable for the elements of a batch: takes the arguments of the parent, those that are `carried` with an axis of
    the batch before their own, every written one among them; so have its results.
    """
    analyses = BatchedAnalyses(parent.specializable, parent.signature, carried)
    name = f"{parent.name}_batched"
    own = _named_alike(name, analyses.identity, "batched", parent, carried)
    return _Whole(parent, name, analyses, own, parent.signature, f"{parent.meaning} under torch.vmap")


class _Whole(Executable):
    """An executable that is current for as long as the one that it stands for is: for the elements of a batch, or for more
    results.
    """

    def __init__(
        self,
        parent: Executable,
        name: str,
        analyses: Specializable,
        operator_name: str | None,
        signature: Signature,
        meaning: str,
    ) -> None:
        super().__init__(name, signature, analyses, operator_name, parent.guard, meaning)
        self._parent = parent

    def require_current(self) -> None:
        self._parent.require_current()


class Keeping(_Whole):
    """An executable that also returns what gradients need, where that pays."""

    def __init__(
        self,
        parent: Executable,
        name: str,
        analyses: Specializable,
        operator_name: str | None,
        signature: Signature,
        meaning: str,
        kept: Kept,
    ) -> None:
        super().__init__(parent, name, analyses, operator_name, signature, meaning)
        self._kept = kept

    def pays(self, args: tuple[Any, ...]) -> bool:
        """Whether it does in a call with these arguments."""
        given = zip(self.signature.names, args, strict=True)
        return self._kept.pays({name: a.shape for name, a in given if isinstance(a, torch.Tensor)})


# ---------------------------------------------------------------- operators that another process defined

_DERIVED: dict[str, Callable[..., Any]] = {"adjoint": adjoint_of, "batched": batched_of, "keeping": keeping_of}


def _named_alike(name: str, identity: str, how: str, parent: Executable, *given: Any) -> str | None:
    """A name for the operator of what is derived from an executable that another process gives it too: torch.compile keeps
    graphs on disk that call it. None where the grammar of operators has none.
    """
    if not name.isascii():
        return None
    own = f"{name}_{cache.key(identity)[:8]}"
    cache.store(cache.key("operator", own), pickle.dumps((how, parent.operator.name, given)))
    return own


def _defined(executable: Executable, name: str | None) -> Operator:
    """The operator of an executable, and with it that of the elements of a batch."""
    return define(executable, name, functools.partial(batched_of, executable))


def _recall(name: str) -> None:
    """Define the operator that another process derived from a kernel, if that is known to this one."""
    kept = cache.load(cache.key("operator", name))
    if kept is None:
        return
    try:
        how, parent_name, given = pickle.loads(kept)
        derive = _DERIVED[how]
    except Exception:  # written by another version: any failure to read it is a miss
        return
    getattr(torch.ops.weft, parent_name, None)  # itself perhaps derived
    parent = executables.get(parent_name)
    if parent is not None:
        _defined(derive(parent, *given), name)


_OF_A_GRAPH = re.compile("_[0-9a-f]{8}$")  # how what is derived, and programs that a change outside made, are marked


class _Operators(torch._ops._OpNamespace):
    """`torch.ops.weft`. A graph that torch.compile kept on disk names the adjoints, and the kernels for batches, that the
    process which made it had defined; they are defined here when they are first asked for.
    """

    __module__ = torch._ops._OpNamespace.__module__  # operators take their module's name from it

    def __getattr__(self, name: str) -> Any:
        if name not in executables and not name.startswith("_"):
            _recall(name)
            if name not in executables and _OF_A_GRAPH.search(name):
                raise UnknownOperator(
                    f"weft has no operator {name} in this process",
                    evidence=["a graph that torch.compile kept on disk names it, and what weft kept of it is gone"],
                    remedy="remove PyTorch's cache too (TORCHINDUCTOR_CACHE_DIR, by default in the directory for temporary "
                    "files), or set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1",
                )
        return super().__getattr__(name)


setattr(torch.ops, "weft", _Operators("weft"))  # noqa: B010
