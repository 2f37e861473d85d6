"""A scalar function applied to operands of some kinds: the program behind calls that differ in sizes and values alone."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from weft.compiler import Analysis
from weft.language import ArgumentType, Capture, Parameter, Signature, TensorType, default_float
from weft.language.pointwise import Elementwise, Operand, elementwise
from weft.language.signature import Kind
from weft.loops.ir import Function
from weft.loops.schedule import ORDINARY, Circumstances
from weft.pytorch.derived import Analyses
from weft.pytorch.executable import Executable
from weft.pytorch.watching import stale, watch
from weft.runtime import cache
from weft.runtime.guard import Guard
from weft.runtime.stack import deep


class _ElementwiseAnalyses(Analyses):
    def __init__(self, captured: Capture, call: Elementwise) -> None:
        super().__init__()
        self._source, self._call, self._default = captured.source, call, default_float()
        self.identity = f"elementwise {captured.identity} {self._default} {call!r}"
        self._functions: dict[tuple[tuple[str, str], ...], Function] = {}

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        from weft.loops.agree import agreeing

        names = (*(n for o in self._call.operands for n in o.names), *(name for name, _ in self._call.outs))
        given = zip(names, types, strict=False)
        same = tuple((n, t.same) for n, t in given if isinstance(t, TensorType) and t.same is not None)
        if same not in self._functions:
            self._functions[same] = elementwise(self._source, self._call, self._default, dict(same))
        function = self._functions[same]
        return agreeing(function)[0] if agree else function

    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        circumstances: Circumstances = ORDINARY,
    ) -> Analysis:
        """As that of the program, whose operands are the call's: of types, only which tensors are the same one counts."""
        repeated = any(isinstance(t, TensorType) and t.same is not None for t in types)
        return super().analysis(types if repeated else (), agree, circumstances)


class _Program(Executable):
    """An executable that a graph of torch.compile may call after what the function reads from outside has changed."""

    takes_pairs = True

    def __init__(self, name: str, signature: Signature, analyses: Analyses, own: str | None, captured: Capture) -> None:
        guard = Guard()
        watch(guard, captured)
        super().__init__(name, signature, analyses, own, guard)
        self._captured = captured

    def require_current(self) -> None:
        assert self.guard is not None
        if not self.guard.holds():
            raise stale(self.name, self._captured, self.signature.location)


@dataclass(frozen=True, eq=False)
class Applied:
    """What stands for a kernel where one is explained or checked. py: the plain PyTorch of it, an element at a time."""

    program: Executable
    py: Callable[..., Any]
    function: Function
    call: Elementwise

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def signature(self) -> Signature:
        return self.program.signature

    @property
    def specializable(self) -> Any:
        return self.program.specializable

    @property
    def example(self) -> Mapping[str, Any]:
        return {}


def applied(function: Callable[..., Any], captured: Capture, call: Elementwise) -> Applied:
    """The program of a scalar function for such calls. Its arguments: the operands in order, complex ones by their parts, then
    the arrays for results.
    """
    name = captured.source.name
    kinds = [Parameter(n, _kind(o)) for o in call.operands for n in o.names]
    outs = [Parameter(out, "tensor") for out, _ in call.outs]
    analyses = _ElementwiseAnalyses(captured, call)
    made = analyses.analysis((), True).function
    signature = Signature(
        name=name,
        parameters=(*kinds, *outs),
        written=frozenset(out for out, _ in call.outs),
        results=tuple(out for out, _ in call.outs) or (None,) * len(made.results),
        location=captured.source.where,
        objects=frozenset(out for out, _ in call.outs),
    )
    own = f"{name}_{cache.key(analyses.identity)[:8]}" if name.isascii() else None
    program = _Program(name, signature, analyses, own, captured)
    return Applied(program, _by_elements(function, call, len(made.results)), made, call)


def _kind(operand: Operand) -> Kind:
    if operand.axes is not None:
        return "tensor"
    kinds: dict[str, Kind] = {"bool": "bool", "int": "int"}
    return kinds.get(operand.typed.scalar.category, "float")


def _by_elements(function: Callable[..., Any], call: Elementwise, count: int) -> Callable[..., Any]:
    """The function of tensors, in plain PyTorch: a tensor with dimensions is one of a single element, so that promotion is that
    of the whole. count: of its results, which have a dtype where they have an element.
    """
    constants = {n: getattr(torch, v.name) if hasattr(v, "name") else v for n, v in call.constants}
    parameters = inspect.signature(function).parameters.values()
    only_positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]

    def py(*args: Any) -> Any:
        rest = iter(args)
        given = [_passed(o, rest) for o in call.operands]
        outs = [torch.view_as_complex(t) if d.category == "complex" else t for t, (_, d) in zip(rest, call.outs, strict=True)]
        extents = [0] * call.rank
        for o, value in zip(call.operands, given, strict=True):
            for axis, size in zip(o.axes or (), value.shape if o.axes else (), strict=True):
                extents[axis] = size
        made: list[torch.Tensor] = list(outs)
        for at in itertools.product(*map(range, extents)):
            values = {o.name: _element(o.axes, o.typed.weight, v, at) for o, v in zip(call.operands, given, strict=True)}
            values |= constants
            first = [values.pop(n) for n in only_positional]
            result = function(*first, **values)
            results = result if isinstance(result, (tuple, list)) else (result,)
            for k, one in enumerate(results):
                one = one if isinstance(one, torch.Tensor) else torch.tensor(one)
                if len(made) <= k:
                    made.append(torch.empty(extents, dtype=one.dtype))
                made[k][at] = one.reshape(())
        if 0 in extents:
            made += [torch.empty(extents) for _ in range(count - len(made))]
        made = [torch.view_as_real(t) if t.is_complex() else t for t in made]
        return made[0] if len(made) == 1 else tuple(made)

    return py


def _passed(operand: Operand, args: Iterator[Any]) -> Any:
    """What was passed for an operand, taken from the program's arguments."""
    first = next(args)
    if not operand.is_complex:
        return first
    return complex(first, next(args)) if operand.axes is None else torch.view_as_complex(first)


def _element(axes: tuple[int, ...] | None, weight: int, value: Any, at: tuple[int, ...]) -> Any:
    if axes is None:
        return value
    one = value[tuple(at[axis] for axis in axes)].clone()
    return one.reshape(1) if weight == 2 else one
