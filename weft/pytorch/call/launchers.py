"""What launches the kernels of a call, once they are compiled."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from weft.compiler import (
    Analysis,
    Grouped,
    Intermediate,
    Launch,
    Variant,
    Workspace,
    arguments,
    cuda_source,
    grouped,
    host_source,
    hosted,
    may_fail,
    own_memory,
    pointers,
)
from weft.compiler.boxes import tensor_map
from weft.loops.affine import Affine, affine, evaluate
from weft.loops.ir import Expr
from weft.loops.types import FLOAT64
from weft.plan.arguments import Facts, Slot
from weft.plan.facts import Geometry
from weft.pytorch.call.arguments import Bound
from weft.pytorch.failures import failed
from weft.pytorch.machines import index_of
from weft.pytorch.quick_calls import Parts
from weft.runtime import cuda, host, nvrtc, steps
from weft.runtime.slots import Given, pack

_MAPS = 64  # of a launch's boxes that are kept, by address


@dataclass(frozen=True)
class BoundLaunch:
    """A launch ready to go: `launch(...)` takes the values of `given`, names of arrays (their addresses) and scalars.

    own: memory that it has for the time of the call besides what the function makes, an array like the others. fails: whether
    it may tell of a failure when it has begun.
    """

    launch: Callable[..., Any]
    given: tuple[str, ...]
    arrays: frozenset[str]
    parts: Parts | None = None
    own: tuple[Intermediate, ...] = ()
    fails: bool = False


def with_clears(
    launches: Sequence[BoundLaunch], shared: Workspace, results: Mapping[str, Geometry], device: torch.device
) -> list[BoundLaunch]:
    """The launches, and what clears memory before those that find it 0. results: what a call gives that is 0 at first."""

    def clear(name: str, count: int) -> BoundLaunch:
        own = cuda.Clearer(cuda.find_driver(), index_of(device), count)
        return BoundLaunch(own.launch, (name,), frozenset([name]), own.parts())

    found = [clear(name, g.span() * g.dtype.size) for name, g in results.items() if 0 not in g.shape]
    for step, item in enumerate(launches):
        found += [clear(t.name, t.bytes) for t in shared.cleared.get(step, ())]
        found.append(item)
    return found


def _slots(
    slots: Sequence[Slot], arrays: Mapping[str, Geometry], names: Mapping[str, Any]
) -> tuple[list[Given | int | float], tuple[str, ...], frozenset[str]]:
    values: list[Given | int | float] = []
    given: list[str] = []
    pointers: set[str] = set()
    for s in slots:
        match s.kind:
            case "pointer":
                values.append(Given.POINTER)
                given.append(s.array)
                pointers.add(s.array)
            case "stride":
                values.append(arrays[s.array].strides[s.axis])
            case "size":
                values.append(int(names[s.name]))
            case "scalar" if s.type == FLOAT64:
                values.append(Given.REAL)
                given.append(s.name)
            case "scalar":
                values.append(int(names[s.name]))
    return values, tuple(given), frozenset(pointers)


def cuda_launchers(planned: Sequence[Launch], bound: Bound, device: torch.device) -> list[BoundLaunch]:
    """The launches of a nest on a GPU; those that loops repeat are one, which issues them all."""
    found = []
    for item in grouped(planned):
        if isinstance(item, Launch):
            own = _cuda_launcher(item, bound, device)
            launcher = own.launcher
            found.append(BoundLaunch(launcher.launch, own.given, own.pointers, launcher.parts(), own.own))
        else:
            found.append(_stepper([item], bound, device))
    return found


@dataclass(frozen=True)
class _Kernel:
    """A launcher, and what it takes: as of `BoundLaunch`. steps: (slot, depth of the loop whose variable goes there)."""

    launcher: cuda.Launcher
    given: tuple[str, ...]
    pointers: frozenset[str]
    own: tuple[Intermediate, ...]
    steps: tuple[tuple[int, int], ...]


def _cuda_launcher(plan: Launch, bound: Bound, device: torch.device) -> _Kernel:
    index = index_of(device)
    where = plan.where
    assert where is not None
    handle = _loaded(where.analysis, plan.variant, plan.entry, cuda.device_properties(index).arch, index)
    depths = {a.var: k for k, a in enumerate(plan.steps)}
    names = {**bound.names, **dict.fromkeys(depths, 0)}
    slots = arguments(where.analysis, plan.variant.nest, plan.variant.facts)
    values, given, _ = _slots(slots, where.arrays, names)
    if plan.partial:
        values += [Given.POINTER] * len(plan.partial) + [plan.parts]
        given += tuple(f"{where.path}.{name}" for name, *_ in plan.partial)
    return _Kernel(
        cuda.Launcher(
            handle, plan.grid, plan.block, plan.shared, pack(values), cooperative=plan.together, dependent=plan.dependent,
            boxes=_boxes(plan, given),
        ),
        tuple(where.memory.get(n, n) for n in given),
        frozenset(pointers(plan)),
        own_memory(plan),
        tuple((slot, depths[s.name]) for slot, s in enumerate(slots) if s.kind == "scalar" and s.name in depths),
    )


def _boxes(plan: Launch, given: tuple[str, ...]) -> list[cuda.GivenMap]:
    """The maps of a launch, encoded once for each address. given: the arrays and scalars that it takes."""
    where = plan.where
    assert where is not None
    found = []
    for box in plan.boxes:
        encode = functools.partial(tensor_map(box, where.arrays).encode, cuda.find_driver())
        name = box.array if box.packed is None else f"{where.path}.{box.array}"
        found.append(cuda.GivenMap(given.index(name), functools.lru_cache(_MAPS)(encode)))
    return found


def _stepper(program: Grouped, bound: Bound, device: torch.device) -> BoundLaunch:
    """Launches in loops as one."""
    given: dict[str, int] = {}
    kernels: list[_Kernel] = []

    def stepped(items: Grouped, around: tuple[str, ...]) -> tuple[steps.StepLaunch | steps.StepLoop, ...]:
        out: list[steps.StepLaunch | steps.StepLoop] = []
        for item in items:
            if isinstance(item, Launch):
                own = _cuda_launcher(item, bound, device)
                kernels.append(own)
                places = tuple(given.setdefault(n, len(given)) for n in own.given)
                guards = tuple(
                    steps.StepGuard(tuple((around.index(var), first, period) for var, first, period in g.turns), g.taken)
                    for g in item.when
                )
                out.append(steps.StepLaunch(own.launcher, places, own.steps, guards))
            else:
                loop, body = item
                start, stop = (_end(e, bound, around) for e in (loop.start, loop.stop))
                out.append(steps.StepLoop(start, stop, loop.step, stepped(body, (*around, loop.var))))
        return tuple(out)

    run = steps.Stepper(stepped(program, ())).launch
    own = tuple(dict.fromkeys(i for k in kernels for i in k.own))
    return BoundLaunch(run, tuple(given), frozenset(n for k in kernels for n in k.pointers), None, own)


def _end(expr: Expr, bound: Bound, around: tuple[str, ...]) -> steps.End:
    """The end of a loop, as a multiple of each variable around it and a number."""
    form = affine(expr)
    if form is None or not form.names & {*around}:
        return evaluate(expr, bound.names), (0,) * len(around)
    rest = evaluate(Affine(tuple(t for t in form.terms if t[0] not in around), form.constant).expr(), bound.names)
    return rest, tuple(form.coefficient(v) for v in around)


_handles: dict[tuple[str, str, str, int], cuda.KernelHandle] = {}
_binaries: dict[tuple[str, str], bytes] = {}
_sources: dict[tuple[int, Variant], tuple[Analysis, str]] = {}


def _loaded(analysis: Analysis, variant: Variant, entry: str, arch: str, device: int) -> cuda.KernelHandle:
    """The kernel of a variant on a device; equal source text is compiled and loaded once."""
    source = _source(analysis, variant)
    handle = _handles.get((source, entry, arch, device))
    if handle is None:
        handle = _handles[source, entry, arch, device] = cuda.load(_binary(analysis, variant, arch), entry, device)
    return handle


def _source(analysis: Analysis, variant: Variant) -> str:
    known = _sources.get((id(analysis), variant))
    if known is None:  # the analysis is kept with its source, so that its id stays its own
        known = _sources[id(analysis), variant] = (analysis, cuda_source(analysis, variant))
    return known[1]


def _binary(analysis: Analysis, variant: Variant, arch: str) -> bytes:
    source = _source(analysis, variant)
    binary = _binaries.get((source, arch))
    if binary is None:
        name = analysis.schedule.nests[variant.nest].name
        binary = _binaries[source, arch] = nvrtc.compile_cubin(source, arch, name=f"{name}.cu").binary
    return binary


def compile_side_by_side(planned: Sequence[Launch], device: torch.device) -> None:
    """Compile what launches run, all of it at a time: the compiler takes longer than all else of a first call."""
    arch = cuda.device_properties(index_of(device)).arch
    wanted = {}
    for launch in planned:
        assert launch.where is not None
        own = launch.where.analysis, launch.variant
        source = _source(*own)
        if (source, arch) not in _binaries:
            wanted[source] = own
    if len(wanted) > 1:
        with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as threads:
            for compiled in [threads.submit(_binary, *own, arch) for own in wanted.values()]:
                compiled.result()


def host_launchers(analysis: Analysis, arrays: Mapping[str, Geometry], bound: Bound) -> list[BoundLaunch]:
    """The runs of all nests on the CPU, whose first value is the number of threads."""
    from weft.emit.names import host_entry

    nests = analysis.schedule.nests
    plans = [hosted(analysis, k, arrays, bound.names) for k in range(len(nests))]
    texts = [(host_source(analysis, k, p.facts, p.row), host_entry(nests[k].name)) for k, p in enumerate(plans)]
    name = nests[0].name if len(nests) == 1 else analysis.function.name
    functions = host.load_together(texts, name=f"{name}.cpp") if nests else []
    return [
        _host_launcher(analysis, k, arrays, bound, plan.facts, function, may_fail(source))
        for k, (plan, (source, _), function) in enumerate(zip(plans, texts, functions, strict=True))
    ]


def _host_launcher(
    analysis: Analysis,
    nest: int,
    arrays: Mapping[str, Geometry],
    bound: Bound,
    facts: Facts,
    function: host.HostFunction,
    fails: bool,
) -> BoundLaunch:
    from weft.plan.arguments import nest_arrays

    own = analysis.schedule.nests[nest]
    used = {a.name: arrays[a.name] for a in nest_arrays(analysis.function, own)}
    values, given, pointers = _slots(arguments(analysis, nest, facts), arrays, bound.names)
    kernel = host.HostKernel(function, pack(values))
    known = {n: v for n, v in bound.names.items() if not isinstance(v, float)}  # calls prepared alike differ in floats

    def run(threads: int, *values: Any) -> None:
        code = kernel.launch(threads, *values)
        if code:
            raise failed(analysis.function, own, used, known | dict(zip(given, values, strict=True)), code)

    return BoundLaunch(run, given, pointers, kernel.parts(), fails=fails)
