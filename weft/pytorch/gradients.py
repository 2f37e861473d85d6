"""Gradients of executables: what autograd asks of them, and calls that it records with nothing else between.

A call is recorded by a class of `torch.autograd.Function`: its forward is handed what the call made, and keeps it with the
arguments; its backward runs the adjoint, an executable like any other, by the quick way of the last call like it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from weft.compiler import tuned
from weft.language import ArgumentType, Signature
from weft.loops.handed_on import handed_on
from weft.loops.ir import Store, walk
from weft.loops.schedule import Wrapped
from weft.pytorch.call import DTYPES, CallPlan, argument_types, wraps_for
from weft.pytorch.quick import MISS, PLAIN, Recorder, Seen, Ways, eager, never
from weft.pytorch.specialize import Specializable
from weft.pytorch.views import Views, geometry_of, is_same_memory


class Differentiable(Protocol):
    """What autograd asks of an executable."""

    name: str
    signature: Signature
    specializable: Specializable

    @property
    def operator(self) -> Callable[..., Any]: ...

    def plan(self, args: tuple[Any, ...]) -> CallPlan: ...


# The executable for the gradients of arguments of these types: of which ones, of which results, below 0 in which axes.
Adjoint = Callable[[tuple[ArgumentType, ...], tuple[str, ...], "tuple[int, ...] | None", Wrapped], Differentiable]


@dataclass(frozen=True, eq=False)
class _Layout:
    """Which arguments of a call are tensors. What is kept of a call is its tensors, then its outputs; and its numbers."""

    are_tensors: tuple[bool, ...]

    @functools.cached_property
    def tensors(self) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """The tensors among the arguments."""
        return _picker([k for k, is_tensor in enumerate(self.are_tensors) if is_tensor])

    @functools.cached_property
    def numbers(self) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """The others."""
        return _picker([k for k, is_tensor in enumerate(self.are_tensors) if not is_tensor])

    def split(self, saved: Sequence[torch.Tensor], numbers: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arguments and the outputs of what was kept."""
        tensors, others = iter(saved), iter(numbers)
        return tuple(next(tensors) if t else next(others) for t in self.are_tensors), tuple(tensors)

    def adjoint(self, positions: Sequence[int], outputs: int, seeded: Sequence[int]) -> Callable[..., tuple[Any, ...]]:
        """The arguments of an adjoint, of what was kept of a call with so many outputs, then its numbers and all gradients.

        positions: the arguments of the call that it takes.
        """
        count = sum(self.are_tensors)
        tensors, numbers = iter(range(count)), iter(range(count + outputs, len(self.are_tensors) + outputs))
        inputs = [next(tensors) if t else next(numbers) for t in self.are_tensors]
        grads = [len(self.are_tensors) + outputs + k for k in seeded]
        return _picker([*(inputs[k] for k in positions), *range(count, count + outputs), *grads])


def _picker(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What gives the items of a tuple at these places, as one."""
    if len(places) == 1:
        (place,) = places
        return lambda items: (items[place],)
    return itemgetter(*places) if places else lambda items: ()


_layout = functools.lru_cache(maxsize=None)(_Layout)


class _Adjoints:
    """The executables that compute the gradients of one, by the arguments that need them."""

    def __init__(self, executable: Differentiable, adjoint: Adjoint) -> None:
        self._executable, self._adjoint = executable, adjoint
        self._made: dict[tuple[Any, ...], tuple[Differentiable, tuple[str, ...]]] = {}
        self._as_they_are: dict[tuple[ArgumentType, ...], dict[str, int]] = {}

    def handed_on(self, inputs: tuple[Any, ...], wanted: tuple[str, ...], grads: tuple[Any, ...]) -> dict[str, int]:
        """Arguments of a call of which the gradient of an output is the gradient, and the place of that output."""
        signature = self._executable.signature
        given = self._handed_on(argument_types(signature, inputs))
        shapes = {name: tensor.shape for name, tensor in zip(signature.names, inputs, strict=True) if name in given}
        found = {n: given[n] for n in wanted if n in given and grads[given[n]] is not None}
        return {n: k for n, k in found.items() if grads[k].shape == shapes[n]}

    def _handed_on(self, types: tuple[ArgumentType, ...]) -> dict[str, int]:
        """Arguments whose gradients are those of an output as they are, where both have one shape: the output's place."""
        if types not in self._as_they_are:
            found: dict[str, int] = {}
            if not self._executable.signature.written:
                function = self._executable.specializable.analysis(types, True).function
                found = {name: function.results.index(result) for name, result in handed_on(function).items()}
            self._as_they_are[types] = found
        return self._as_they_are[types]

    def of(
        self, inputs: tuple[Any, ...], wanted: tuple[str, ...], seeded: tuple[int, ...] | None = None
    ) -> tuple[Differentiable, tuple[str, ...]]:
        """What computes the gradients of the arguments `wanted` for those of a call's float outputs (or of those at the places
        `seeded`), and the arguments whose gradients can be anything but zero: there is nothing to hand to the others.
        """
        executable = self._executable
        types = argument_types(executable.signature, inputs)
        wraps = wraps_for(executable.specializable, types, inputs)
        key = (types, wanted, seeded, wraps)
        if key not in self._made:
            made = self._adjoint(types, wanted, seeded, wraps)
            function = made.specializable.analysis((), True).function
            stored = {s.array for s in walk(function.body) if isinstance(s, Store)}
            depends = tuple(r in stored for r in function.results)
            self._made[key] = made, tuple(w for w, d in zip(wanted, depends, strict=True) if d)
        return self._made[key]


class _Pulled:
    """Calls of an adjoint that were made before, asked for in one way.

    arguments: its arguments, of what was kept, then the numbers and all gradients. places: of its results, None and what it was
    given, what there is to hand to each argument. generation: of what was measured of plans by then.
    """

    def __init__(self, arguments: Callable[[tuple[Any, ...]], tuple[Any, ...]], places: list[int]) -> None:
        self.arguments, self.places, self.results = arguments, places, _picker(places)
        self.ways = Ways()
        self.generation = tuned.generation.value

    def gradients(self, made: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.results((*made, None, *grads) if isinstance(made, tuple) else (made, None, *grads))


class _Backward:
    """The backward of calls of an executable, with its own arguments or with what these are views of.

    names: of the executable's arguments, by their places among those of a call.
    """

    def __init__(self, executable: Differentiable, adjoints: _Adjoints, views: Views | None) -> None:
        names = executable.signature.names
        self._adjoints, self._views = adjoints, views
        self._names = dict(enumerate(names) if views is None else zip(views.positions, names, strict=True))
        self._pulled: dict[tuple[Any, ...], _Pulled] = {}  # by what was asked for

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        saved, compiling = ctx.saved_tensors, is_compiling()
        asked = (ctx.layout, ctx.needs_input_grad, tuple([g is None for g in grads]))
        if not compiling and (last := self._pulled.get(asked)) is not None and last.generation == tuned.generation.value:
            made = last.ways.quick(*last.arguments((*saved, *ctx.numbers, *grads)))
            if made is not MISS:
                return last.gradients(made, grads)
        observed = torch.is_grad_enabled() or compiling or not eager()
        return self._first(asked, ctx.layout.split(saved, ctx.numbers), grads, observed)

    def _first(
        self,
        asked: tuple[_Layout, tuple[bool, ...], Any],
        kept: tuple[tuple[Any, ...], tuple[Any, ...]],
        grads: tuple[Any, ...],
        observed: bool,
    ) -> tuple[Any, ...]:
        """The gradients of a call that is not like the last one. asked: its layout, and which gradients it needs. kept: its
        arguments and outputs. observed: whether autograd, a mode or torch.compile sees what is done.
        """
        names, views = self._names, self._views
        layout, needs, _ = asked
        inputs, outputs = kept
        nothing = (None,) * len(needs)  # what records a call is handed one thing more than the arguments
        wanted = tuple(name for k, name in names.items() if needs[k])
        floating = [k for k, o in enumerate(outputs) if _is_float(o)]
        seeded = tuple(k for k in floating if grads[k] is not None)
        if not seeded:
            return nothing
        given = self._adjoints.handed_on(inputs, wanted, grads) if views is None else {}
        wanted = tuple(name for name in wanted if name not in given)
        if not wanted:
            return tuple(grads[given[names[k]]] if k in names and names[k] in given else None for k in range(len(needs)))
        args = own = (*(inputs[k] for k in names), *outputs, *(grads[k] for k in seeded))
        if views is not None:
            inputs, own = views.of_adjoint(inputs, outputs, grads, seeded, needs)
        inner = own[: len(names)]
        adjoint, moved = self._adjoints.of(inner, wanted, None if len(seeded) == len(floating) else seeded)
        if not moved and not given:
            return nothing
        from_where = {name: k for k, name in enumerate(wanted) if name in moved}
        from_where |= {name: len(wanted) + 1 + k for name, k in given.items()}
        places = [from_where.get(names.get(k, ""), len(wanted)) for k in range(len(needs))]
        now = _Pulled(layout.adjoint(tuple(names), len(outputs), seeded), places)
        if observed or not all(_in_memory(a) for a in own if isinstance(a, torch.Tensor)):
            found = now.gradients(adjoint.operator(*own), grads)
            return found if views is None else views.gradients(inputs, inner, found)
        plan = adjoint.plan(own)
        made, way = plan.known(own)
        found = now.gradients(made, grads)
        if views is not None:
            found = views.gradients(inputs, inner, found)
            way = _viewed(plan, args, own, [found[k] for k, need in enumerate(needs) if need], made)
        last = self._pulled.get(asked)
        if last is None or last.generation != now.generation or last.places != now.places:
            last = self._pulled[asked] = now
        last.ways.add(way)
        return found


class Rules:
    """What autograd asks of an operator: the rules by which it differentiates an executable. setup, backward, jvp: as
    `torch.autograd.Function` has them.
    """

    def __init__(self, executable: Differentiable, adjoint: Adjoint) -> None:
        self._executable = executable
        self._adjoints = _Adjoints(executable, adjoint)
        self._recorders: dict[tuple[bool, ...], Recorder] = {}  # of calls with the executable's own arguments
        self.backward: Callable[..., Any] = _Backward(executable, self._adjoints, None)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else () if output is None else (output,)
        ctx.layout = layout = _layout(tuple([isinstance(a, torch.Tensor) for a in inputs]))
        tensors = layout.tensors(tuple(inputs))
        ctx.save_for_backward(*tensors, *outputs)
        if hasattr(ctx, "save_for_forward"):  # a graph's context knows no forward mode
            ctx.save_for_forward(*tensors, *outputs)
        ctx.set_materialize_grads(False)
        ctx.numbers = layout.numbers(tuple(inputs))

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        """The gradients are linear in those of the outputs; the transpose of that map is the derivative forwards."""
        parameters = self._executable.signature.parameters
        wanted = tuple(p.name for p, t in zip(parameters, tangents, strict=True) if t is not None)
        # the values alone: with their tangents they would ask for a second derivative
        values = [forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]  # type: ignore[no-untyped-call]
        inputs, outputs = ctx.layout.split(values, ctx.numbers)
        adjoint, _ = self._adjoints.of(inputs, wanted)

        def gradients(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = adjoint.operator(*inputs, *outputs, *given)
            return made if isinstance(made, tuple) else (made,)

        zeros = [torch.zeros_like(o) for o in outputs if _is_float(o)]
        push = torch.func.vjp(gradients, *zeros)[1]
        pushed = iter(push(tuple(t for t in tangents if t is not None)))
        found = tuple(next(pushed) if _is_float(o) else None for o in outputs)
        return found[0] if len(found) == 1 else found

    def recorder(self, are_tensors: tuple[bool, ...], views: Views | None) -> Recorder:
        """What records calls of arguments of which these are tensors, seen by views or not."""
        if views is not None:
            return self._recorder(are_tensors, _Backward(self._executable, self._adjoints, views))
        if are_tensors not in self._recorders:
            self._recorders[are_tensors] = self._recorder(are_tensors, self.backward)
        return self._recorders[are_tensors]

    def _recorder(self, are_tensors: tuple[bool, ...], backward: Callable[..., Any]) -> Recorder:
        layout = _layout(are_tensors)
        tensors, numbers = layout.tensors, layout.numbers

        def forward(ctx: Any, *given: Any) -> Any:
            made = given[-1]
            ctx.save_for_backward(*tensors(given), *made)
            ctx.set_materialize_grads(False)
            ctx.layout, ctx.numbers = layout, numbers(given)
            return made[0] if len(made) == 1 else made

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made = type(self._executable.name, (torch.autograd.Function,), methods)
        # past what Function.apply does for torch.func's transforms, of which there are none
        apply = super(torch.autograd.Function, made).apply  # type: ignore[misc]
        return Recorder(apply, len(self._executable.signature.results))


def _viewed(
    plan: CallPlan, args: tuple[Any, ...], own: tuple[Any, ...], given: Sequence[torch.Tensor | None], made: Any
) -> Callable[..., Any]:
    """The quick way of calls of an adjoint whose own arguments and results are views of these; `never` where there is none."""
    results = made if isinstance(made, tuple) else (made,)
    outside = [r if g is None else g for r, g in zip(results, given, strict=True)]
    if not plan.results or not is_same_memory((*args, *outside), (*own, *results)):
        return never
    return plan.seen(Seen(args, dict(zip(plan.results, map(geometry_of, outside), strict=True))))


def _in_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of PyTorch's own with memory, no wrapper of others."""
    try:
        return type(tensor) in PLAIN and bool(tensor.data_ptr() or not tensor.numel())
    except RuntimeError:
        return False


def _is_float(tensor: torch.Tensor) -> bool:
    return DTYPES[tensor.dtype].category == "float"
