"""`weft demo`: two kernels compiled from their loops, run at a real size, checked against their Python and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import weft
from weft.kernels import RowKernel, linrec, softmax
from weft.runtime.timing import Call, adds_of_equal_bytes, rotations, times_in_turn

# Rows that the plain Python is run on: whole rows, so that every carry is checked from its first element to its last.
CHECKED_ROWS = 2

# In float32 against the same Python in float64, relative to the largest magnitude of the result.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """A kernel, how its inputs are made from a shape and a generator, and how many arrays of that shape it moves."""

    kernel: RowKernel
    inputs: Callable[[tuple[int, int], torch.Generator], tuple[torch.Tensor, ...]]
    arrays: int


@dataclass(frozen=True)
class Measured:
    """first_s: seconds of the first call, compilation included. ms, add_ms: medians of a call and of a torch.add of
    equal bytes. error: the largest difference to the plain Python, relative to its largest magnitude.
    """

    case: Case
    first_s: float
    ms: float
    add_ms: float
    error: float


def _recurrence_inputs(shape: tuple[int, int], generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    x = torch.randn(shape, device=generator.device, generator=generator)
    c = torch.rand(shape, device=generator.device, generator=generator)  # decays, in [0, 1)
    return x, c


def _normal_inputs(shape: tuple[int, int], generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    return (torch.randn(shape, device=generator.device, generator=generator),)


CASES = (Case(linrec, _recurrence_inputs, 3), Case(softmax, _normal_inputs, 2))


def run(console: Console | None = None, shape: tuple[int, int] | None = None) -> int:
    """Print the table; returns 0, or 1 where a kernel differs from its Python.

    shape: [rows, length]; None takes 13,200 x 4,096 on a GPU and 2,048 x 4,096 on the CPU.
    """
    console = console or Console()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = shape or ((13200, 4096) if device.type == "cuda" else (2048, 4096))
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("starting")

        def say(text: str) -> None:
            progress.update(task, description=text)

        measured = [_measure(case, shape, device, say) for case in CASES]
    console.print(_table(measured, shape, device))
    rows = min(CHECKED_ROWS, shape[0])
    console.print(
        f"Checked: the first {rows} of {shape[0]:,} rows, whole, against the same loops run by Python in float64.\n"
        "Look inside: weft explain weft/kernels/linrec.py:linrec   weft source weft/kernels/linrec.py:linrec"
    )
    return 0 if all(m.error <= TOLERANCE for m in measured) else 1


def _measure(case: Case, shape: tuple[int, int], device: torch.device, say: Callable[[str], None]) -> Measured:
    name = case.kernel.name
    generator = torch.Generator(device).manual_seed(0)
    bytes_moved = case.arrays * 4 * shape[0] * shape[1]
    sets = [case.inputs(shape, generator) for _ in range(rotations(bytes_moved))]
    with torch.no_grad():
        say(f"{name}: loops to machine code")
        start = time.perf_counter()
        result = case.kernel(*sets[0])
        _wait(device)
        first_s = time.perf_counter() - start
        say(f"{name}: against the plain Python, {CHECKED_ROWS} rows")
        error = _difference(case, sets[0], result)
        say(f"{name}: timing, beside torch.add of equal bytes")
        own: list[Call] = [partial(case.kernel, *inputs) for inputs in sets]
        ms, add_ms = times_in_turn([own, adds_of_equal_bytes(bytes_moved, device)], device).ms
    return Measured(case, first_s, ms, add_ms, error)


def _difference(case: Case, inputs: tuple[torch.Tensor, ...], result: torch.Tensor) -> float:
    expected = case.kernel.py(*(t[:CHECKED_ROWS].cpu().double() for t in inputs))
    difference = (result[:CHECKED_ROWS].cpu().double() - expected).abs().max()
    return float(difference / expected.abs().max())


def _table(measured: list[Measured], shape: tuple[int, int], device: torch.device) -> Table:
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    table = Table(title=f"float32 [{shape[0]:,}, {shape[1]:,}] on {where}")
    for heading in ("kernel", "loops", "first call s", "time ms", "GB/s", "of torch.add", "against Python"):
        table.add_column(heading, justify="left" if heading in ("kernel", "loops") else "right")
    for m in measured:
        bytes_moved = m.case.arrays * 4 * shape[0] * shape[1]
        verdict = f"{'equal' if m.error <= TOLERANCE else '[red]differs[/red]'} ({m.error:.0e})"
        table.add_row(
            m.case.kernel.name,
            _loops(m.case.kernel),
            f"{m.first_s:.2f}",
            f"{m.ms:.3f}",
            f"{bytes_moved / m.ms / 1e6:,.0f}",
            f"{m.add_ms / m.ms:.2f}",
            verdict,
        )
    return table


def _loops(kernel: RowKernel) -> str:
    """One line for each loop: its variable, its class, its algebra."""
    verdicts: dict[str, Any] = dict(weft.analyze(kernel.py).loops)
    lines = []
    for variable, verdict in verdicts.items():
        algebra = f" ({', '.join(verdict.algebra)})" if verdict.algebra else ""
        lines.append(f"{variable}: {verdict.kind}{algebra}")
    return "\n".join(lines)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
