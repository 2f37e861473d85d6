"""Gradients of executables: what autograd asks of them, and calls that it records with nothing else between.

A call is recorded by a class of `torch.autograd.Function`: its forward is handed what the call made, and keeps it with the
arguments; its backward runs the adjoint, an executable like any other, by the quick way of the last call like it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from weft.compiler import tuned
from weft.language import TensorType
from weft.loops.handed_on import handed_on
from weft.loops.ir import Store, walk
from weft.loops.schedule import Wrapped
from weft.loops.types import ScalarType
from weft.pytorch.call import DTYPES, CallPlan, argument_types, wraps_for
from weft.pytorch.quick import MISS, PLAIN, Recorder, Seen, Ways, eager, never
from weft.pytorch.views import Views, geometry_of, is_same_memory

if TYPE_CHECKING:
    from weft.pytorch.executable import Executable


@dataclass(frozen=True)
class Rules:
    """What autograd asks of an operator. setup, backward, jvp: as `torch.autograd.Function` has them. recorder: what records
    calls of arguments of which these are tensors, seen by views or not.
    """

    setup: Callable[..., None]
    backward: Callable[..., Any]
    jvp: Callable[..., Any]
    recorder: Callable[[tuple[bool, ...], Views | None], Recorder]


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


@dataclass
class _Adjoints:
    """The executables that compute gradients, by the arguments that need them."""

    executable: Executable
    made: dict[tuple[Any, ...], tuple[Executable, tuple[str, ...]]] = field(default_factory=dict)
    as_they_are: dict[tuple[TensorType | ScalarType, ...], dict[str, int]] = field(default_factory=dict)

    def handed_on(self, types: tuple[TensorType | ScalarType, ...]) -> dict[str, int]:
        """Arguments whose gradients are those of an output as they are, where both have one shape: the output's place."""
        if types not in self.as_they_are:
            found: dict[str, int] = {}
            if not self.executable.signature.written:
                function = self.executable.specializable.analysis(types, True).function
                found = {name: function.results.index(result) for name, result in handed_on(function).items()}
            self.as_they_are[types] = found
        return self.as_they_are[types]

    def of(
        self,
        types: tuple[TensorType | ScalarType, ...],
        wanted: tuple[str, ...],
        seeded: tuple[int, ...] | None,
        wraps: Wrapped,
    ) -> tuple[Executable, tuple[str, ...]]:
        """The executable, and the arguments that the results depend on: there is nothing to hand to the others."""
        from weft.pytorch.executable import adjoint_of

        key = (types, wanted, seeded, wraps)
        if key not in self.made:
            made = adjoint_of(self.executable, types, wanted, seeded, wraps)
            function = made.specializable.analysis((), True).function
            stored = {s.array for s in walk(function.body) if isinstance(s, Store)}
            depends = tuple(r in stored for r in function.results)
            self.made[key] = made, tuple(w for w, d in zip(wanted, depends, strict=True) if d)
        return self.made[key]


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


def rules_of(executable: Executable) -> Rules:
    """The rules by which autograd differentiates an executable: its adjoint, made for the gradients that are asked for."""
    signature = executable.signature
    adjoints = _Adjoints(executable)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else () if output is None else (output,)
        ctx.layout = layout = _layout(tuple([isinstance(a, torch.Tensor) for a in inputs]))
        tensors = layout.tensors(tuple(inputs))
        ctx.save_for_backward(*tensors, *outputs)
        if hasattr(ctx, "save_for_forward"):  # a graph's context knows no forward mode
            ctx.save_for_forward(*tensors, *outputs)
        ctx.set_materialize_grads(False)
        ctx.numbers = layout.numbers(tuple(inputs))

    def adjoint_for(
        inputs: tuple[Any, ...], wanted: tuple[str, ...], seeded: tuple[int, ...] | None = None
    ) -> tuple[Executable, tuple[str, ...]]:
        """What computes the gradients of the arguments `wanted` for those of a call's float outputs (or of those at the places
        `seeded`), and the arguments whose gradients can be anything but zero.
        """
        types = argument_types(signature, inputs)
        return adjoints.of(types, wanted, seeded, wraps_for(executable.specializable, types, inputs))

    def handed(inputs: tuple[Any, ...], wanted: tuple[str, ...], grads: tuple[Any, ...]) -> dict[str, int]:
        """Arguments of which the gradient of an output is the gradient, and the place of that output."""
        given = adjoints.handed_on(argument_types(signature, inputs))
        shapes = {name: tensor.shape for name, tensor in zip(signature.names, inputs, strict=True) if name in given}
        found = {n: given[n] for n in wanted if n in given and grads[given[n]] is not None}
        return {n: k for n, k in found.items() if grads[k].shape == shapes[n]}

    def backward_of(views: Views | None) -> Callable[..., Any]:
        pulled: dict[tuple[Any, ...], _Pulled] = {}  # by what was asked for
        names = dict(enumerate(signature.names) if views is None else zip(views.positions, signature.names, strict=True))

        def backward(ctx: Any, *grads: Any) -> Any:
            needs, saved, compiling = ctx.needs_input_grad, ctx.saved_tensors, is_compiling()
            asked = (ctx.layout, needs, tuple([g is None for g in grads]))
            if not compiling and (last := pulled.get(asked)) is not None and last.generation == tuned.generation.value:
                made = last.ways.quick(*last.arguments((*saved, *ctx.numbers, *grads)))
                if made is not MISS:
                    return last.gradients(made, grads)
            inputs, outputs = ctx.layout.split(saved, ctx.numbers)
            nothing = (None,) * len(needs)  # what records a call is handed one thing more than the arguments
            wanted = tuple(name for k, name in names.items() if needs[k])
            floating = [k for k, o in enumerate(outputs) if _is_float(o)]
            seeded = tuple(k for k in floating if grads[k] is not None)
            if not seeded:
                return nothing
            given = handed(inputs, wanted, grads) if views is None else {}
            wanted = tuple(name for name in wanted if name not in given)
            if not wanted:
                return tuple(grads[given[names[k]]] if k in names and names[k] in given else None for k in range(len(needs)))
            args = own = (*(inputs[k] for k in names), *outputs, *(grads[k] for k in seeded))
            if views is not None:
                inputs, own = views.of_adjoint(inputs, outputs, grads, seeded, needs)
            inner = own[: len(names)]
            adjoint, moved = adjoint_for(inner, wanted, None if len(seeded) == len(floating) else seeded)
            if not moved and not given:
                return nothing
            from_where = {name: k for k, name in enumerate(wanted) if name in moved}
            from_where |= {name: len(wanted) + 1 + k for name, k in given.items()}
            places = [from_where.get(names.get(k, ""), len(wanted)) for k in range(len(needs))]
            now = _Pulled(ctx.layout.adjoint(tuple(names), len(outputs), seeded), places)
            observed = torch.is_grad_enabled() or compiling or not eager()
            if observed or not all(_in_memory(a) for a in own if isinstance(a, torch.Tensor)):
                found = now.gradients(adjoint.operator(*own), grads)
                return found if views is None else views.gradients(inputs, inner, found)
            plan = adjoint.plan(own)
            made, way = plan.known(own)
            found = now.gradients(made, grads)
            if views is not None:
                found = views.gradients(inputs, inner, found)
                way = _viewed(plan, args, own, [found[k] for k, need in enumerate(needs) if need], made)
            last = pulled.get(asked)
            if last is None or last.generation != now.generation or last.places != now.places:
                last = pulled[asked] = now
            last.ways.add(way)
            return found

        return backward

    def jvp(ctx: Any, *tangents: Any) -> Any:
        """The gradients are linear in those of the outputs; the transpose of that map is the derivative forwards."""
        wanted = tuple(p.name for p, t in zip(signature.parameters, tangents, strict=True) if t is not None)
        # the values alone: with their tangents they would ask for a second derivative
        values = [forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]  # type: ignore[no-untyped-call]
        inputs, outputs = ctx.layout.split(values, ctx.numbers)
        adjoint, _ = adjoint_for(inputs, wanted)

        def gradients(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = adjoint.operator(*inputs, *outputs, *given)
            return made if isinstance(made, tuple) else (made,)

        zeros = [torch.zeros_like(o) for o in outputs if _is_float(o)]
        push = torch.func.vjp(gradients, *zeros)[1]
        pushed = iter(push(tuple(t for t in tangents if t is not None)))
        found = tuple(next(pushed) if _is_float(o) else None for o in outputs)
        return found[0] if len(found) == 1 else found

    backward = backward_of(None)

    def recorder(are_tensors: tuple[bool, ...], views: Views | None) -> Recorder:
        return plain(are_tensors) if views is None else made_recorder(are_tensors, backward_of(views))

    @functools.cache
    def plain(are_tensors: tuple[bool, ...]) -> Recorder:
        return made_recorder(are_tensors, backward)

    def made_recorder(are_tensors: tuple[bool, ...], backward: Callable[..., Any]) -> Recorder:
        layout = _layout(are_tensors)
        tensors, numbers = layout.tensors, layout.numbers

        def forward(ctx: Any, *given: Any) -> Any:
            made = given[-1]
            ctx.save_for_backward(*tensors(given), *made)
            ctx.set_materialize_grads(False)
            ctx.layout, ctx.numbers = layout, numbers(given)
            return made[0] if len(made) == 1 else made

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        made = type(executable.name, (torch.autograd.Function,), methods)
        # past what Function.apply does for torch.func's transforms, of which there are none
        apply = super(torch.autograd.Function, made).apply  # type: ignore[misc]
        return Recorder(apply, len(signature.results))

    return Rules(setup, backward, jvp, recorder)


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
