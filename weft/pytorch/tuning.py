"""`kernel.tune`: the plans that the nests of a call may have, measured, and the fastest kept for later calls."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from weft.compiler import Launch, Variant, cuda_source, laid_out
from weft.compiler.planning import candidates
from weft.compiler.tuned import asking, keep
from weft.errors import DeviceMismatch, NotDifferentiable
from weft.explain.drawn import drawn
from weft.plan.fold import FoldPlan
from weft.plan.leaning import PLANNED, Leaning
from weft.plan.machine import Machine
from weft.pytorch.call import analysis_for, argument_types, geometries, plain, prepare, wraps_for
from weft.pytorch.check import in_memory
from weft.pytorch.executable import Executable, adjoint_of
from weft.pytorch.inspected import Inspected
from weft.pytorch.inspection import complete
from weft.pytorch.machines import machine_on
from weft.pytorch.specs import make_arguments, parse
from weft.runtime import cuda, nvrtc
from weft.runtime.timing import median_ms, rotations

# A plan is taken in the place of the planner's own where the call takes this part of the time at most: less is noise.
_WORTH = 0.98


@dataclass(frozen=True)
class Measured:
    """A plan of a nest. nest: its name. ms: of the whole call, its other nests as they are by then. registers, spills: of its
    kernels, the most; spilled bytes a thread. chosen: later calls take it.
    """

    nest: str
    plan: str
    ms: float
    registers: int
    spills: int
    chosen: bool = False


@dataclass(frozen=True)
class Tuned:
    """The plans of a call that were measured. what: the kernel, or its gradient. bytes: what the call has to move, each element
    once; None where that is not known before it runs. floor_ms: what the memory needs for them.
    """

    what: str
    device: str
    rows: tuple[Measured, ...]
    bytes: int | None
    floor_ms: float | None


@dataclass(frozen=True)
class Tuning:
    """What `kernel.tune` measured; `print` shows it as tables."""

    calls: tuple[Tuned, ...]

    def text(self, width: int = 120) -> str:
        """The tables without colours."""
        out = io.StringIO()
        console = Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False)
        for call in self.calls:
            console.print(_table(call))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"

    def __str__(self) -> str:
        return self.text()

    def __rich_console__(self, console: Console, options: Any) -> Iterator[Table]:
        yield from map(_table, self.calls)


def tune_call(
    kernel: Inspected, args: Sequence[Any], *, gradients: bool, seconds: float, progress: bool
) -> Tuning:
    """Measure the plans of a call; see `Kernel.tune`."""
    if not torch.cuda.is_available():
        raise DeviceMismatch(
            "there is no GPU here to measure plans on",
            evidence=["torch.cuda.is_available() is False"],
            remedy="tune on a machine with a CUDA GPU; here, kernel.explain tells the plan and kernel.check executes it",
        )
    device = torch.device("cuda", torch.cuda.current_device())
    given = [parse(a) if isinstance(a, str) else plain(a) for a in complete(kernel, args)]
    names = [p.name for p in kernel.signature.parameters]
    values = tuple(in_memory(v, str(device)) for v in make_arguments(dict(zip(names, given, strict=True)), device).values())
    work: list[tuple[str, Executable, tuple[Any, ...]]] = [(kernel.name, kernel.program, values)]
    if gradients:
        work.append(_gradient(kernel, names, values))
    console = Console(stderr=True)
    shown = progress and (console.is_terminal or console.is_jupyter)
    with Progress(console=console, transient=True, disable=not shown) as bar:
        calls = tuple(_tuned(what, executable, own, device, seconds, bar) for what, executable, own in work)
    return Tuning(calls)


def _gradient(kernel: Inspected, names: Sequence[str], values: tuple[Any, ...]) -> tuple[str, Executable, tuple[Any, ...]]:
    """The gradients of all arguments of a float type, for random gradients of the results."""
    if kernel.signature.written:
        raise NotDifferentiable(
            f"{kernel.name} writes in place, and its gradients are to be tuned",
            location=kernel.signature.location,
            remedy="tune it without gradients",
        )
    wanted = tuple(n for n, v in zip(names, values, strict=True) if isinstance(v, torch.Tensor) and v.is_floating_point())
    made = kernel.program.execute(values)
    results = made if isinstance(made, tuple) else (made,)
    cotangents = tuple(torch.randn_like(r) for r in results if r.is_floating_point())
    types = argument_types(kernel.signature, values)
    adjoint = adjoint_of(kernel.program, types, wanted, wraps=wraps_for(kernel.specializable, types, values))
    return f"gradient of {kernel.name}", adjoint, (*values, *results, *cotangents)


def _tuned(
    what: str, executable: Executable, args: tuple[Any, ...], device: torch.device, seconds: float, bar: Progress
) -> Tuned:
    analysis, bound = analysis_for(executable.specializable, executable.signature, args)
    machine = machine_on(device)
    arrays = laid_out(analysis, geometries(analysis, bound), bound.names, machine)
    arch = cuda.device_properties(device.index).arch
    nests = range(len(analysis.schedule.nests))
    options = {k: candidates(analysis, k, arrays, bound.names, machine) for k in nests}
    size = sum(a.numel() * a.element_size() for a in args if isinstance(a, torch.Tensor))
    sets = [args, *(tuple(in_memory(a, str(device)) for a in args) for _ in range(rotations(size) - 1))]
    task = bar.add_task(what, total=sum(map(len, options.values())))
    chosen: dict[int, Leaning] = {}
    rows: list[Measured] = []
    for k, plans in options.items():
        measured: list[tuple[Leaning, Measured]] = []
        for leaning, launches in plans:
            with asking({**chosen, k: leaning}):
                call = prepare(executable.specializable, executable.signature, args, None)
            ms = median_ms([partial(call.tensors, own) for own in sets], device, seconds=seconds, graph=True)
            row = Measured(analysis.schedule.nests[k].name, leaning.name, ms, *_resources(launches, arch))
            measured.append((leaning, row))
            bar.advance(task)
        chosen[k] = _fastest(measured)
        keep(analysis, k, bound.names, machine, chosen[k])
        rows += [replace(row, chosen=leaning is chosen[k]) for leaning, row in measured]
    moved = _bytes([one for plans in options.values() for one in plans[0][1]], bound.names)
    return Tuned(what, torch.cuda.get_device_name(device), tuple(rows), moved, _floor_ms(moved, machine))


def _fastest(measured: Sequence[tuple[Leaning, Measured]]) -> Leaning:
    """The planner's own choice, unless another one is certainly faster."""
    leaning, best = min(measured, key=lambda m: m[1].ms)
    return leaning if best.ms < _WORTH * measured[0][1].ms else PLANNED


def _resources(launches: Sequence[Launch], arch: str) -> tuple[int, int]:
    """The most registers of kernels, and bytes that they spill."""
    registers = spills = 0
    for launch in launches:
        assert launch.where is not None
        cubin = nvrtc.compile_cubin(cuda_source(launch.where.analysis, launch.variant), arch, name=f"{launch.nest.name}.cu")
        registers, spills = max(registers, cubin.registers), max(spills, cubin.spill_stores + cubin.spill_loads)
    return registers, spills


def _bytes(launches: Sequence[Launch], names: Mapping[str, Any]) -> int | None:
    """What launches read and write, each element once; None where loops around them or data decide how much."""
    of_folds: list[Variant] = []  # whose launches are stages of one whole
    found = []
    for launch in launches:
        if launch.variant in of_folds:
            continue
        if isinstance(launch.variant.plan, FoldPlan):
            of_folds.append(launch.variant)
        found.append(None if launch.steps else drawn(launch, names))
    return None if None in found else sum(f.traffic.read + f.traffic.written for f in found if f is not None)


def _floor_ms(moved: int | None, machine: Machine) -> float | None:
    return None if moved is None else 1e3 * moved / machine.bandwidth


def _table(call: Tuned) -> Table:
    title = f"{call.what} on {call.device}"
    if call.bytes is not None and call.floor_ms is not None:
        title += f": {call.bytes / 1e6:,.1f} MB, at least {call.floor_ms * 1e3:,.1f} us"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in ("nest", "plan"):
        table.add_column(name)
    for name in ("us", "GB/s", "of the floor", "registers", "spilled"):
        table.add_column(name, justify="right")
    for row in call.rows:
        rate = "" if call.bytes is None else f"{call.bytes / row.ms / 1e6:,.0f}"
        part = "" if call.floor_ms is None else f"{call.floor_ms / row.ms:.2f}"
        cells = (row.nest, row.plan, f"{row.ms * 1e3:,.1f}", rate, part, str(row.registers), str(row.spills))
        table.add_row(*cells, style="bold green" if row.chosen else "")
    return table
