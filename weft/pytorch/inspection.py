"""Generated code and its resources, for tensors, for descriptions of tensors, or for a kernel's own example."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from weft.compiler import Analysis, Launch, cuda_source, host_source, hosted, laid_out, launches, workspace_of
from weft.compiler.launch import H200
from weft.errors import TypeMismatch
from weft.loops.ir import Function
from weft.plan.facts import Geometry
from weft.plan.machine import Machine
from weft.pytorch.call import analysis_for, call_types, check, geometries, repeated
from weft.pytorch.inspected import Inspected
from weft.pytorch.machines import machine_for
from weft.pytorch.specs import TensorSpec, parse
from weft.runtime import nvrtc

if TYPE_CHECKING:
    from weft.explain import Explanation

ARCHITECTURES = ("cpu", *nvrtc.ARCHITECTURES)


@dataclass(frozen=True)
class Examined:
    """A kernel at some arguments: its analysis, the values of its sizes, where its arrays lie. source: what gives its nest
    as it was written.
    """

    analysis: Analysis
    names: dict[str, Any]
    arrays: dict[str, Geometry]
    source: Callable[[], Function]

    @property
    def written(self) -> Function:
        return self.source()

    def launches(self) -> tuple[Launch, ...]:
        nests, arrays = range(len(self.analysis.schedule.nests)), self.laid_out()
        return tuple(one for k in nests for one in launches(self.analysis, k, arrays, self.names))

    def laid_out(self, machine: Machine = H200) -> dict[str, Geometry]:
        """The arrays as they lie on a GPU."""
        return laid_out(self.analysis, self.arrays, self.names, machine)


def examine(kernel: Inspected, args: Sequence[Any]) -> Examined:
    """Analyse a kernel for arguments: tensors, specs (`TensorSpec` or text), numbers; none: the kernel's example."""
    args = complete(kernel, args)
    stand_ins = tuple(stand_in(a) for a in args)
    analysis, bound = analysis_for(kernel.specializable, kernel.signature, stand_ins)
    check(analysis, bound)
    types = call_types(kernel.signature, stand_ins, repeated(kernel.signature, stand_ins))
    written = functools.partial(kernel.specializable.function, types, bool(analysis.assumed))
    return Examined(analysis, bound.names, geometries(analysis, bound, aligned=True), written)


def complete(kernel: Inspected, args: Sequence[Any]) -> tuple[Any, ...]:
    """All the arguments of a kernel: those given and its defaults, or its example where none are given.

    Raises TypeMismatch.
    """
    parameters = kernel.signature.parameters
    if not args and parameters:
        known = [p for p in parameters if p.name in kernel.example or p.has_default]
        args = tuple(kernel.example.get(p.name, p.default) for p in known)
    args = (*args, *(p.default for p in parameters[len(args) :] if p.has_default))
    if len(args) != len(parameters):
        raise TypeMismatch(
            f"{kernel.name} is asked about without all of its arguments",
            location=kernel.signature.location,
            evidence=[f"{len(args)} given, {len(parameters)} needed"],
            remedy='pass tensors or specs, or give it an example: @weft.kernel(example={"x": "float32[64,1024]"})',
        )
    return tuple(args)


def explain(
    kernel: Inspected,
    args: Sequence[Any],
    format: str,
    detail: bool,
    operands: Callable[[Analysis, Sequence[Launch]], Sequence[str]] = lambda analysis, launches: (),
) -> Explanation:
    """The explanation of a kernel for arguments, as "text" (with detail or without), "mermaid" or "html". operands: lines on
    how each is read.
    """
    from weft.explain import Explained
    from weft.explain import explain as explained

    examined = examine(kernel, args)
    analysis, planned = examined.analysis, examined.launches()
    lines = operands(analysis, planned)
    shared = workspace_of(analysis.function, examined.laid_out(), planned)
    whole = Explained(examined.written, analysis.schedule, analysis, examined.names, planned, lines, shared)
    return explained(whole, format, detail)


def stand_in(value: Any) -> Any:
    """A tensor without memory for a spec; what is no spec is itself."""
    if isinstance(value, str):
        value = parse(value)
    if isinstance(value, TensorSpec):
        dtype = getattr(torch, value.dtype)
        if value.strides is None:
            return torch.empty(value.shape, dtype=dtype, device="meta")
        return torch.empty_strided(value.shape, value.strides, dtype=dtype, device="meta")
    return value


def default_arch() -> str:
    """The architecture of this machine's GPU, or "cpu"."""
    if not torch.cuda.is_available():
        return "cpu"
    from weft.runtime.cuda import target_arch

    return target_arch(torch.cuda.get_device_capability())


def sources(examined: Examined, arch: str) -> list[tuple[str, str]]:
    """(name, generated code) of each nest."""
    if arch not in ARCHITECTURES:
        raise TypeMismatch(f"{arch!r} is no architecture", remedy=f"use one of {', '.join(ARCHITECTURES)}")
    analysis, out = examined.analysis, []
    arrays = examined.arrays if arch == "cpu" else examined.laid_out(machine_for(arch))
    for k, nest in enumerate(analysis.schedule.nests):
        if arch == "cpu":
            own = hosted(analysis, k, arrays, examined.names)
            out.append((nest.name, host_source(analysis, k, own.facts, own.row)))
        else:
            planned = launches(analysis, k, arrays, examined.names, machine_for(arch))
            analyses = [(one.nest.name, one.where.analysis, one.variant) for one in planned if one.where is not None]
            texts = {(name, variant): cuda_source(own, variant) for name, own, variant in analyses}
            out += [(name, text) for (name, _), text in texts.items()]
    return list(dict.fromkeys(out))  # nests may be launched by one text


def source(kernel: Inspected, args: Sequence[Any], arch: str | None) -> str:
    """The generated code of all the kernels of a call, as one text."""
    texts = [text for _, text in sources(examine(kernel, args), arch or default_arch())]
    return "\n".join(texts)


@dataclass(frozen=True)
class Resources:
    """What the compiler says of one kernel: registers and spilled bytes a thread, shared bytes a block."""

    name: str
    arch: str
    registers: int
    spill_stores: int
    spill_loads: int
    shared: int


def resources(kernel: Inspected, args: Sequence[Any], arch: str | None) -> tuple[Resources, ...]:
    chosen = arch or default_arch()
    if chosen == "cpu":
        raise TypeMismatch("registers are counted for CUDA architectures", remedy='pass arch="sm_90a", or another one')
    out = []
    for name, text in sources(examine(kernel, args), chosen):
        cubin = nvrtc.compile_cubin(text, chosen, name=f"{name}.cu")
        out.append(Resources(name, chosen, cubin.registers, cubin.spill_stores, cubin.spill_loads, cubin.shared))
    return tuple(out)
