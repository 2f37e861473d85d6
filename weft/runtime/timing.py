"""How long a call takes: medians of many, over inputs that rotate through more memory than the caches hold."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

Call = Callable[[], object]
Backward = tuple[torch.Tensor, Sequence[torch.Tensor], torch.Tensor]  # a result, what it is made of, its gradient

# Larger than the last-level caches this is run on (60 MB on an H200), twice over, so that no input survives a round.
CACHE_BYTES = 128 * 2**20


def rotations(bytes_per_call: int) -> int:
    """How many sets of inputs, of so many bytes each, it takes to leave the caches cold: 1 to 64."""
    return max(1, min(64, -(-CACHE_BYTES // max(1, bytes_per_call))))


def median_ms(
    calls: Sequence[Call], device: torch.device, *, seconds: float = 0.5, at_least: int = 7, graph: bool = False
) -> float:
    """Milliseconds of one call: the median over rounds, a round being all `calls` (the rotation) in turn.

    seconds: how long to measure, about; at_least: rounds, however long they take. On CUDA the clock is the device's own
    events around a round; graph: the round is captured once as a CUDA graph and replayed, so that the host's time to
    launch is left out. On the CPU the clock is `time.perf_counter` and graph has no meaning.
    """
    _play(calls)  # compiles, and fills the allocator
    if device.type == "cuda":
        return _median_cuda(calls, device, seconds, at_least, graph)
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < at_least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        _play(calls)
        times.append((time.perf_counter() - start) / len(calls))
    return 1e3 * median(times)


@dataclass(frozen=True)
class Gradients:
    """Milliseconds of one backward pass, of each way to compute it. captured: without the host's time, see `gradients_ms`."""

    ms: tuple[float, ...]
    captured: bool

    @property
    def note(self) -> dict[str, str]:
        """For the case of a row: nothing, where the times are what they should be."""
        return {} if self.captured else {"clock": "with the host's time"}


def gradients_ms(
    ways: Sequence[Sequence[Callable[[], Backward]]], device: torch.device, *, seconds: float = 0.5
) -> Gradients:
    """Times of backward passes alone. A way is the forward passes of a rotation, each run once.

    On CUDA the backward passes of a rotation are one CUDA graph: for one of them the host takes about as long as the device
    does for 400 MB. Autograd runs a node on the stream of its forward, so both are on the stream of the capture. Where that
    fails for one of the ways, all are timed as the host launches them.
    """
    if device.type != "cuda":
        times = [median_ms([_backward(*f()) for f in forwards], device, seconds=seconds) for forwards in ways]
        return Gradients(tuple(times), True)
    try:
        return Gradients(tuple(_gradients_cuda(f, device, seconds, graph=True) for f in ways), True)
    except RuntimeError as error:
        print(f"gradients are timed with the host: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    torch.cuda.synchronize(device)
    _end_capture_of_random_numbers(device)
    return Gradients(tuple(_gradients_cuda(f, device, seconds, graph=False) for f in ways), False)


def _backward(result: torch.Tensor, leaves: Sequence[torch.Tensor], gradient: torch.Tensor) -> Call:
    return partial(torch.autograd.grad, result, leaves, gradient, retain_graph=True)


def _gradients_cuda(
    forwards: Sequence[Callable[[], Backward]], device: torch.device, seconds: float, graph: bool
) -> float:
    with torch.cuda.device(device):
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            calls = [_backward(*forward()) for forward in forwards]
            _play(calls)  # compiles, and fills the allocator
            ms = _median_cuda(calls, device, seconds, 7, graph, side)
        torch.cuda.current_stream().wait_stream(side)
    return ms


def _median_cuda(
    calls: Sequence[Call],
    device: torch.device,
    seconds: float,
    at_least: int,
    graph: bool,
    side: torch.cuda.Stream | None = None,
) -> float:
    with torch.cuda.device(device):
        play = _captured(calls, side) if graph else lambda: _play(calls)
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        play()
        torch.cuda.synchronize(device)
        round_seconds = max(1e-6, time.perf_counter() - start)
        rounds = max(at_least, min(1000, int(seconds / round_seconds)))
        marks = [(_event(), _event()) for _ in range(rounds)]
        for before, after in marks:
            before.record()
            play()
            after.record()
        torch.cuda.synchronize(device)
        return median(float(before.elapsed_time(after)) / len(calls) for before, after in marks)


def _play(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _captured(calls: Sequence[Call], side: torch.cuda.Stream | None = None) -> Call:
    """The calls as one CUDA graph. side: the stream to capture them on, where it matters."""
    side = side or torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _play(calls)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        _play(calls)
    return graph.replay


def _end_capture_of_random_numbers(device: torch.device) -> None:
    """Give the device's generator of random numbers a state that no graph captures: of a capture that fails, PyTorch leaves it
    in one that draws nothing any more.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    generator, fresh = torch.cuda.default_generators[index], torch.Generator(torch.device("cuda", index))
    fresh.manual_seed(generator.initial_seed())
    generator.graphsafe_set_state(fresh.graphsafe_get_state())


def add_of_equal_bytes(total_bytes: int, device: torch.device, *, seconds: float = 0.5) -> float:
    """Milliseconds of a float32 `torch.add` that reads two tensors and writes one, `total_bytes` in all.

    The yardstick: what streaming so many bytes through memory costs PyTorch on this device.
    """
    numel = max(1, total_bytes // 12)
    sets = [
        (torch.randn(numel, device=device), torch.randn(numel, device=device)) for _ in range(rotations(total_bytes))
    ]
    return median_ms([partial(torch.add, a, b) for a, b in sets], device, seconds=seconds)
