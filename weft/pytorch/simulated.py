"""A call executed by the simulator: the variants, grids and arguments that a CUDA device would be given, in CPU memory."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import basename
from typing import Any

import torch

from weft.check.found import Launched, Resources
from weft.check.limits import TARGETS, Target, occupancy, refusals
from weft.compiler import Analysis, Grouped, Launch, Where, arguments, cuda_source, grouped, laid_out, launches
from weft.compiler.boxes import tensor_map
from weft.errors import CompileError
from weft.loops.affine import evaluate
from weft.loops.ir import Array, Function, walk
from weft.loops.types import FLOAT64, ScalarType
from weft.plan.arguments import nest_arrays
from weft.plan.facts import Geometry
from weft.pytorch.call import (
    Bound,
    allocate,
    analysis_for,
    check,
    check_joints,
    check_overlap,
    common_device,
    geometries,
    made_arrays,
)
from weft.pytorch.executable import Executable
from weft.pytorch.machines import machine_for
from weft.runtime import nvrtc, simulator
from weft.runtime.simulator import Finding, Place

# Bits of a NaN that no arithmetic gives: memory that no one wrote is filled with them. (float8_e4m3fn has no such one.)
_UNWRITTEN = {torch.float8_e5m2: 0x7D, torch.float16: 0x7E5A, torch.bfloat16: 0x7FDA, torch.float32: 0x7FDA5A5A,
              torch.float64: 0x7FFA5A5A5A5A5A5A}  # fmt: skip
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Ran:
    """A call that was simulated. arrays: what it wrote, by name; results: the names of its results, in order.

    sources: the text of each of the user's files that the kernels cite, by the name they cite it by.
    """

    arrays: dict[str, torch.Tensor]
    results: tuple[str, ...]
    launches: tuple[Launched, ...]
    sources: dict[str, str]
    function: Function


@dataclass(frozen=True)
class _Array:
    """An array of a call. written: for each place of its memory whether it has a value, kept from launch to launch; None
    where all have one.
    """

    tensor: torch.Tensor
    written: bytearray | None = None

    def argument(self, name: str, role: str) -> simulator.Tensor:
        t = self.tensor
        places, size = span(t), t.element_size()
        shape, strides = tuple(t.shape), t.stride()
        return simulator.Tensor(name, t.data_ptr(), places * size, size, role, shape, strides, self.written)


def span(tensor: torch.Tensor) -> int:
    """Elements of memory from the first to the last, gaps between strides among them."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def simulate_call(executable: Executable, args: Sequence[Any], arch: str, seed: int, part: str) -> Ran:
    """Run an executable on CPU tensors as the CUDA road would, launch after launch; arguments that it writes are written.

    Raises the errors of a call.
    """
    analysis, bound = analysis_for(executable.specializable, executable.signature, args)
    function = analysis.function
    device = common_device(function, bound.tensors)
    check(analysis, bound)
    check_overlap(function, bound.tensors)
    check_joints(function, bound)
    arrays = laid_out(analysis, geometries(analysis, bound), bound.names, machine_for(arch))
    memory = {name: _Array(tensor) for name, tensor in bound.tensors.items()}
    for array in made_arrays(analysis):
        if array.role == "local" and array.fill is None:
            geometry = arrays[array.name]
            memory[array.name] = _partial(geometry.dtype, geometry.span(), geometry)
            continue
        made = allocate(function, array, bound, device)
        if array.fill is None:
            fill_unwritten(made)
        memory[array.name] = _Array(made, None if array.fill is not None else bytearray(span(made)))
    sources = _cited(function)
    nests = range(len(analysis.schedule.nests))
    found = [_simulate(analysis, k, arrays, bound, memory, arch, seed, part) for k in nests]
    # two nests may be launched at once: of the first one's results some are written with those of the second
    ran: list[Launched] = []
    for k in nests:  # a nest may be launched with one before it
        ran += found[k]
        ran[-1] = _with_unwritten(analysis, k, ran[-1], memory)
    written = {a.name for a in function.arrays if a.role == "inout"} | set(function.results)
    return Ran({n: a.tensor for n, a in memory.items() if n in written}, function.results, tuple(ran), sources, function)


def fill_unwritten(tensor: torch.Tensor) -> None:
    """Fill a tensor with what stands for memory that no one wrote: a NaN of its own, the largest integer, true."""
    if tensor.dtype in _UNWRITTEN:
        tensor.view(_BITS[tensor.element_size()]).fill_(_UNWRITTEN[tensor.dtype])
    elif tensor.dtype.is_floating_point:
        tensor.fill_(torch.nan)
    else:
        tensor.fill_(True if tensor.dtype is torch.bool else torch.iinfo(tensor.dtype).max)


def still_unwritten(tensor: torch.Tensor) -> torch.Tensor:
    """Where a tensor of floats holds what `fill_unwritten` left; nowhere for other dtypes, which cannot tell."""
    if tensor.dtype not in _UNWRITTEN:
        return torch.zeros(tensor.shape, dtype=torch.bool)
    return tensor.contiguous().view(_BITS[tensor.element_size()]) == _UNWRITTEN[tensor.dtype]


def _simulate(
    analysis: Analysis,
    nest: int,
    arrays: Mapping[str, Geometry],
    bound: Bound,
    memory: dict[str, _Array],
    arch: str,
    seed: int,
    part: str,
) -> tuple[Launched, ...]:
    """The launches of a nest, run one after another. What they make for themselves is added to the memory: those of the next
    nest may share it.
    """
    planned = launches(analysis, nest, arrays, bound.names, machine_for(arch))
    for plan in planned:
        where = plan.where
        assert where is not None
        memory |= {key: _partial(type_, elements, zero=plan.zero)
                   for n, type_, elements in plan.partial if (key := f"{where.path}.{n}") not in memory}  # fmt: skip
        memory |= {key: _partial(where.arrays[n].dtype, where.arrays[n].span(), where.arrays[n])
                   for n, key in where.memory.items() if key not in memory}  # fmt: skip
    ran: dict[int, Launched] = {}
    for plan, values in _runs(grouped(planned), bound.names):
        made = _launched(plan, values, memory, arch, seed, part)
        known = ran.get(id(plan))
        ran[id(plan)] = made if known is None else replace(known, simulations=(*known.simulations, *made.simulations))
    for plan in planned:
        if id(plan) not in ran:  # in a loop that has no iterations
            ran[id(plan)] = _launched(plan, None, memory, arch, seed, part)
    return tuple(ran[id(plan)] for plan in planned)


def _runs(items: Grouped, names: Mapping[str, Any]) -> Iterator[tuple[Launch, dict[str, Any]]]:
    """Launches in the order in which they happen, with the values of sizes, numbers and the variables around them."""
    for item in items:
        if isinstance(item, Launch):
            if all(g.holds(names) for g in item.when):
                yield item, dict(names)
        else:
            loop, body = item
            for value in range(evaluate(loop.start, names), evaluate(loop.stop, names), loop.step):
                yield from _runs(body, {**names, loop.var: value})


def _partial(type_: ScalarType, elements: int, geometry: Geometry | None = None, zero: bool = False) -> _Array:
    """What the launches of a nest share, with no values at first unless they are 0."""
    made = torch.zeros(elements, dtype=getattr(torch, type_.name))
    if zero:
        return _Array(made)
    fill_unwritten(made)
    tensor = made if geometry is None else made.as_strided(geometry.shape, geometry.strides)
    return _Array(tensor, bytearray(elements))


def _launched(
    plan: Launch,
    values: Mapping[str, Any] | None,
    memory: Mapping[str, _Array],
    arch: str,
    seed: int,
    part: str,
) -> Launched:
    """A launch with these values of sizes and numbers; None: it does not happen."""
    assert plan.where is not None
    source = cuda_source(plan.where.analysis, plan.variant)
    name = f"{plan.nest.name}.cu"
    target, threads = TARGETS[arch], plan.block[0] * plan.block[1] * plan.block[2]
    used = _resources(source, plan.entry, name, target, threads)
    grid = plan.grid
    simulations: tuple[simulator.Simulation, ...] = ()
    if all(grid) and values is not None:  # a grid without blocks is never launched
        simulations = (
            simulator.simulate(
                source,
                name=name,
                entry=plan.entry,
                grid=grid,
                block=plan.block,
                arguments=_arguments(plan, values, memory),
                cluster=(plan.cluster, 1, 1),
                shared=plan.shared,
                dependent=plan.dependent,
                first=plan.first,
                arch=arch,
                seed=seed,
            ),
        )
    return Launched(name, plan.entry, source, part, grid, plan.block, used, simulations)


def _arguments(plan: Launch, values: Mapping[str, Any], memory: Mapping[str, _Array]) -> list[simulator.Argument]:
    """The slots of a nest's kernel, with their values."""
    where, nest = plan.where, plan.variant.nest
    assert where is not None
    out: list[simulator.Argument] = []
    for s in arguments(where.analysis, nest, plan.variant.facts):
        match s.kind:
            case "pointer":
                array = where.analysis.function.array(s.array)
                out.append(memory[where.memory.get(s.array, s.array)].argument(s.array, _role(where, array, nest)))
            case "stride":
                out.append(simulator.Integer(where.arrays[s.array].strides[s.axis]))
            case "size":
                out.append(simulator.Integer(int(values[s.name])))
            case "scalar" if s.type == FLOAT64:
                out.append(simulator.Real(float(values[s.name]), 64))
            case "scalar":
                out.append(simulator.Integer(int(values[s.name])))
    if plan.partial:
        out += [memory[f"{where.path}.{name}"].argument(name, "inout") for name, _, _ in plan.partial]
        out.append(simulator.Integer(plan.parts))
    for box in plan.boxes:
        (tensor,) = (a for a in out if isinstance(a, simulator.Tensor) and a.name == box.array)
        out.append(simulator.Map(tensor_map(box, where.arrays), tensor))
    return out


def _role(where: Where, array: Array, nest: int) -> str:
    """What an array is for a launch. Of a result that has no value at first, the last nest that touches it must leave
    every element written; elements of an array that is not returned may stay unwritten.
    """
    if array.role in ("input", "inout"):
        return array.role
    analysis = where.analysis
    touching = [k for k, n in enumerate(analysis.schedule.nests) if array in nest_arrays(analysis.function, n)]
    whole = "." not in where.path  # a part of a nest may leave the rest to others
    return "output" if whole and array.role == "result" and array.fill is None and nest == touching[-1] else "inout"


def _with_unwritten(analysis: Analysis, nest: int, launched: Launched, memory: Mapping[str, _Array]) -> Launched:
    """A launch with findings for the elements of results that were its to write and have no value."""
    found = []
    for array in nest_arrays(analysis.function, analysis.schedule.nests[nest]):
        own = memory[array.name]
        if own.written is None or not own.written or _role(Where(analysis, {}), array, nest) != "output":
            continue
        places = torch.frombuffer(own.written, dtype=torch.uint8)
        missing = (places.as_strided(own.tensor.shape, own.tensor.stride()) == 0).nonzero()
        if not len(missing):
            continue
        cited = array.location
        found.append(
            Finding(
                kind="unwritten output",
                message=f"{len(missing):,} of {own.tensor.numel():,} elements of {array.name} are never written",
                evidence=(f"the first is {array.name}{missing[0].tolist()}",),
                remedy=f"write every element of {array.name}, or make it with torch.zeros",
                place=Place(launched.file, 0),
                header=None,
                user=Place(basename(cited.file), cited.line) if cited is not None else None,
                times=1,
            )
        )
    if not found or not launched.simulations:
        return launched
    last = launched.simulations[-1]
    return replace(launched, simulations=(replace(last, findings=(*last.findings, *found)),))


# ---------------------------------------------------------------- resources


@functools.lru_cache(maxsize=256)
def _resources(source: str, entry: str, name: str, target: Target, threads: int) -> Resources | None:
    """What the compiler says of an entry; None where NVRTC is not here. Raises CompileError where it refuses the text."""
    try:
        nvrtc.nvrtc_version()
    except CompileError:
        return None
    cubin = nvrtc.compile_cubin(source, target.arch, name=name)
    registers, shared = _of_entry(cubin.log, entry) or (cubin.registers, cubin.shared)
    fits = occupancy(target, threads, registers, shared)
    return Resources(
        registers=registers,
        spill_stores=cubin.spill_stores,
        spill_loads=cubin.spill_loads,
        shared=shared,
        blocks=fits.blocks,
        limit=fits.limit,
        problems=refusals(target, threads, registers, shared),
        notes=tuple(nvrtc.gate(cubin)),
    )


def _of_entry(log: str, entry: str) -> tuple[int, int] | None:
    """Registers and static shared bytes of one entry, from ptxas's log, where it says so."""
    own = re.search(rf"entry function '{re.escape(entry)}'(.*?)(?=entry function '|\Z)", log, re.DOTALL)
    registers = re.search(r"Used (\d+) registers", own[1]) if own is not None else None
    if own is None or registers is None:
        return None
    shared = re.search(r"(\d+) bytes smem", own[1])
    return int(registers[1]), int(shared[1]) if shared is not None else 0


# ---------------------------------------------------------------- sources


def _cited(function: Function) -> dict[str, str]:
    """The text of the files that a function's statements come from, by their names without folders."""
    places = [function.location, *(stmt.location for stmt in walk(function.body))]
    files = {place.file for place in places if place is not None}
    return {basename(f): "".join(linecache.getlines(f)) for f in sorted(files)}
