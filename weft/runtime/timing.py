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
# How long a turn on a GPU lasts at the least: its events, and what the turn before it left to be written, are small beside it.
_TURN_SECONDS = 5e-4


def rotations(bytes_per_call: int) -> int:
    """How many sets of inputs, of so many bytes each, it takes to leave the caches cold: 1 to 64."""
    return max(1, min(64, -(-CACHE_BYTES // max(1, bytes_per_call))))


@dataclass(frozen=True)
class Times:
    """Milliseconds of one call of each way, of every round in which they took turns: `rounds[way][round]`."""

    rounds: tuple[tuple[float, ...], ...]

    @property
    def ms(self) -> tuple[float, ...]:
        """Of each way, the median."""
        return tuple(map(median, self.rounds))

    def ratios(self, way: int) -> tuple[float, ...]:
        """How often as long as the first way another one took, in every round."""
        return tuple(other / first for first, other in zip(self.rounds[0], self.rounds[way], strict=True))


def times_in_turn(
    ways: Sequence[Sequence[Call]], device: torch.device, *, seconds: float = 0.5, at_least: int = 7, graph: bool = False
) -> Times:
    """Times of several ways that take turns in every round, so that what a machine does meanwhile (clocks, heat, neighbours)
    meets all of them; each round in the other order than the one before, so that none has always the same one before it.

    A way's turn is all its calls (the rotation); seconds: how long to measure each, about; at_least: rounds, however long they
    take. On CUDA the clock is the device's own events around a turn, which is played until it has half a millisecond; graph: it
    is captured once as a CUDA graph and replayed, so that the host's time to launch is left out. On the CPU the clock is
    `time.perf_counter` and graph has no meaning.
    """
    for calls in ways:
        _play(calls)  # compiles, and fills the allocator
    if device.type == "cuda":
        with torch.cuda.device(device):
            plays = [_captured(calls) if graph else partial(_play, calls) for calls in ways]
            return _turns_on_cuda(plays, [len(calls) for calls in ways], seconds, at_least)
    return _turns_by_the_host(ways, device, seconds, at_least)


def host_times_in_turn(calls: Sequence[Call], device: torch.device, *, seconds: float = 0.5, at_least: int = 7) -> Times:
    """The host's times for a call of each: turns of a hundred, before which the device has done all, so that its queue never
    fills. seconds: how long to measure each, about.
    """
    ways = [[call] * 100 for call in calls]
    for way in ways:
        _play(way)
    return _turns_by_the_host(ways, device, seconds, at_least)


def _turns_by_the_host(ways: Sequence[Sequence[Call]], device: torch.device, seconds: float, at_least: int) -> Times:
    times: list[list[float]] = [[] for _ in ways]
    begin = time.perf_counter()
    while len(times[0]) < at_least or time.perf_counter() - begin < seconds * len(ways):
        for k in _order(len(ways), len(times[0])):
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            start = time.perf_counter()
            _play(ways[k])
            times[k].append(1e3 * (time.perf_counter() - start) / len(ways[k]))
    return Times(tuple(map(tuple, times)))


def median_ms(
    calls: Sequence[Call], device: torch.device, *, seconds: float = 0.5, at_least: int = 7, graph: bool = False
) -> float:
    """Milliseconds of one call of a way alone: the median of its turns, as `times_in_turn` has them."""
    return times_in_turn([calls], device, seconds=seconds, at_least=at_least, graph=graph).ms[0]


@dataclass(frozen=True)
class Gradients:
    """Times of one backward pass, of each way to compute it. captured: without the host's time, see `gradients_ms`."""

    times: Times
    captured: bool

    @property
    def ms(self) -> tuple[float, ...]:
        return self.times.ms

    @property
    def note(self) -> dict[str, str]:
        """For the case of a row: nothing, where the times are what they should be."""
        return {} if self.captured else {"clock": "with the host's time"}


def gradients_ms(
    ways: Sequence[Sequence[Callable[[], Backward]]],
    device: torch.device,
    *,
    seconds: float = 0.5,
    beside: Sequence[Sequence[Call]] = (),
) -> Gradients:
    """Times of backward passes alone, in turn. A way is the forward passes of a rotation, each run once. beside: further ways,
    of calls as they are.

    On CUDA the backward passes of a rotation are one CUDA graph: for one of them the host takes about as long as the device
    does for 400 MB. Autograd runs a node on the stream of its forward, so both are on the stream of the capture. Where that
    fails for one of the ways, all are timed as the host launches them.
    """
    if device.type != "cuda":
        backwards = [[_backward(*forward()) for forward in forwards] for forwards in ways]
        return Gradients(times_in_turn([*backwards, *beside], device, seconds=seconds), True)
    try:
        return Gradients(_gradients_cuda(ways, beside, device, seconds, graph=True), True)
    except RuntimeError as error:
        print(f"gradients are timed with the host: {str(error).partition(chr(10))[0]}", file=sys.stderr)
    torch.cuda.synchronize(device)
    _end_capture_of_random_numbers(device)
    return Gradients(_gradients_cuda(ways, beside, device, seconds, graph=False), False)


def _backward(result: torch.Tensor, leaves: Sequence[torch.Tensor], gradient: torch.Tensor) -> Call:
    return partial(torch.autograd.grad, result, leaves, gradient, retain_graph=True)


def _gradients_cuda(
    ways: Sequence[Sequence[Callable[[], Backward]]],
    beside: Sequence[Sequence[Call]],
    device: torch.device,
    seconds: float,
    graph: bool,
) -> Times:
    with torch.cuda.device(device):
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            every = [*([_backward(*forward()) for forward in forwards] for forwards in ways), *beside]
            for calls in every:
                _play(calls)  # compiles, and fills the allocator
            plays = [_captured(calls, side) if graph else partial(_play, calls) for calls in every]
            times = _turns_on_cuda(plays, [len(calls) for calls in every], seconds, 7)
        torch.cuda.current_stream().wait_stream(side)
    return times


def _turns_on_cuda(plays: Sequence[Callable[[], None]], calls: Sequence[int], seconds: float, at_least: int) -> Times:
    """The times of plays of so many calls each, that take turns on the current device."""
    often = [max(1, round(_TURN_SECONDS / _once(play))) for play in plays]
    turns = [partial(_play, [play] * n) for play, n in zip(plays, often, strict=True)]
    round_seconds = sum(map(_once, turns))
    rounds = max(at_least, min(1000, int(seconds * len(plays) / round_seconds)))
    marks: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in plays]
    for turn in range(rounds):
        for k in _order(len(plays), turn):
            before, after = _event(), _event()
            before.record()
            turns[k]()
            after.record()
            marks[k].append((before, after))
    torch.cuda.synchronize()
    return Times(
        tuple(
            tuple(float(before.elapsed_time(after)) / (n * many) for before, after in own)
            for own, n, many in zip(marks, often, calls, strict=True)
        )
    )


def _once(play: Callable[[], None]) -> float:
    """Seconds of a play, with the host's."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    play()
    torch.cuda.synchronize()
    return max(1e-6, time.perf_counter() - start)


def _order(ways: int, turn: int) -> Sequence[int]:
    """The order of the ways in a round."""
    return range(ways) if turn % 2 == 0 else range(ways)[::-1]


def _play(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _captured(calls: Sequence[Call], side: torch.cuda.Stream | None = None) -> Callable[[], None]:
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


def adds_of_equal_bytes(total_bytes: int, device: torch.device) -> list[Call]:
    """A rotation of float32 `torch.add`, each of which reads two tensors and writes one, `total_bytes` in all.

    The yardstick: what streaming so many bytes through memory costs PyTorch on a device.
    """
    numel = max(1, total_bytes // 12)
    sets = [
        (torch.randn(numel, device=device), torch.randn(numel, device=device)) for _ in range(rotations(total_bytes))
    ]
    return [partial(torch.add, a, b) for a, b in sets]
