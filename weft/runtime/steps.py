"""Launches in loops, issued one after another by `device/steps.hpp` without Python between them.

What a launch of an iteration differs in from those of others are the loops' variables, which are written into its slots.
Nothing is allocated and nothing waits, so that a CUDA graph can capture them all.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.errors import CompileError
from weft.runtime import host
from weft.runtime.cuda import Launcher, LaunchFrame

MOST_STEPS = 8  # loops around a launch

# What a loop's end is: a number, and multiples of the variables around it, the outermost first.
End = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class StepGuard:
    """Whether there is a launch. turns: (depth of a loop, the first value of its variable, after how many it is the same again)
    of the loops that decide it; taken: 1 or 0 for each of their values, those of the last the fastest.
    """

    turns: tuple[tuple[int, int, int], ...]
    taken: bytes


@dataclass(frozen=True)
class StepLaunch:
    """given: for each value that the launcher takes, in order, which of the whole's it is. steps: (slot, depth of the loop
    whose variable goes there). guards: all of which must hold.
    """

    launcher: Launcher
    given: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    guards: tuple[StepGuard, ...] = ()


@dataclass(frozen=True)
class StepLoop:
    """What is launched in every iteration, in order."""

    start: End
    stop: End
    step: int
    body: tuple[StepLaunch | StepLoop, ...]


class _Guard(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        *((name, ctypes.c_int64 * MOST_STEPS) for name in ("depth", "first", "period")),
        ("taken", ctypes.c_void_p),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("launch", "config", "function", "parameters")),
        ("count", ctypes.c_int64),
        ("word", ctypes.c_void_p * MOST_STEPS),
        ("depth", ctypes.c_int64 * MOST_STEPS),
        ("guards", ctypes.c_int64),
        ("guard", _Guard * MOST_STEPS),
    )


class _Bound(ctypes.Structure):
    _fields_ = (("constant", ctypes.c_int64), ("factor", ctypes.c_int64 * MOST_STEPS))


class _Item(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("launch", "length", "step")),
        ("start", _Bound),
        ("stop", _Bound),
    )


@functools.lru_cache(maxsize=1)
def _native() -> Callable[..., int] | None:
    """The compiled function; None where there is no C++ compiler."""
    try:
        function: Callable[..., int] = host.library('#include "weft/steps.hpp"\n', "steps.cpp").run_steps
    except (CompileError, OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]  # type: ignore[attr-defined]
    return function


class Stepper:
    """Launches in loops, of one device; may be shared by threads."""

    def __init__(self, program: Sequence[StepLaunch | StepLoop]) -> None:
        self._launches: list[StepLaunch] = []
        items = list(self._items(program))
        self._items_array = (_Item * len(items))(*items)
        self._program = tuple(program)
        self._frames: list[_Frames] = []  # those not in use

    def _items(self, program: Sequence[StepLaunch | StepLoop]) -> list[_Item]:
        out: list[_Item] = []
        for one in program:
            if isinstance(one, StepLaunch):
                if not one.launcher.empty:
                    out.append(_Item(launch=len(self._launches)))
                    self._launches.append(one)
                continue
            body = self._items(one.body)
            start, stop = (_Bound(c, (ctypes.c_int64 * MOST_STEPS)(*f)) for c, f in (one.start, one.stop))
            out += [_Item(-1, len(body), one.step, start, stop), *body]
        return out

    def launch(self, stream: int, *values: int | float) -> None:
        """Launch all on a stream (the driver's handle). Raises LaunchError for the first that fails."""
        if not self._launches:
            return
        try:
            frames = self._frames.pop()
        except IndexError:
            frames = _Frames(self._launches)
        frames.write(stream, values)
        native = _native()
        launcher = self._launches[0].launcher
        with launcher.current():
            if native is not None:
                status = int(native(frames.address, ctypes.addressof(self._items_array), len(self._items_array)))
            else:
                status = _run(frames.records, self._items_array, 0, len(self._items_array), [])
        if status:
            raise launcher.error(status)
        self._frames.append(frames)


class _Frames:
    """The slots and shapes of all launches, of one call at a time."""

    def __init__(self, launches: Sequence[StepLaunch]) -> None:
        self._launches = launches
        self._frames: list[LaunchFrame] = []
        self._tables: list[ctypes.Array[ctypes.c_char]] = []
        self.records = (_Launch * len(launches))()
        for record, one in zip(self.records, launches, strict=True):
            frame, launch, function = one.launcher.taken()
            self._frames.append(frame)
            record.launch, record.config, record.function = launch, frame.config_address, function
            record.parameters, record.count = frame.parameters_address, len(one.steps)
            for k, (slot, depth) in enumerate(one.steps):
                record.word[k], record.depth[k] = frame.address + 8 * slot, depth
            record.guards = len(one.guards)
            for k, guard in enumerate(one.guards):
                taken = ctypes.create_string_buffer(guard.taken, len(guard.taken))
                self._tables.append(taken)
                turns = ((ctypes.c_int64 * MOST_STEPS)(*turn) for turn in zip(*guard.turns, strict=True))
                record.guard[k] = _Guard(len(guard.turns), *turns, ctypes.addressof(taken))
        self.address = ctypes.addressof(self.records)

    def write(self, stream: int, values: Sequence[int | float]) -> None:
        for frame, one in zip(self._frames, self._launches, strict=True):
            frame.write(*(values[k] for k in one.given))
            frame.config.stream = stream


def _run(launches: ctypes.Array[_Launch], items: ctypes.Array[_Item], first: int, last: int, variables: list[int]) -> int:
    """What the compiled function does."""

    def end(bound: _Bound) -> int:
        return sum((int(f) * v for f, v in zip(bound.factor, variables, strict=False)), int(bound.constant))

    at = first
    while at < last:
        item = items[at]
        at += 1
        if item.launch >= 0:
            own = launches[item.launch]
            if not all(_holds(guard, variables) for guard in own.guard[: own.guards]):
                continue
            for k in range(own.count):
                ctypes.c_int64.from_address(own.word[k]).value = variables[own.depth[k]]
            call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(own.launch)
            status: int = call(own.config, own.function, own.parameters, None)
            if status:
                return status
            continue
        for variable in range(end(item.start), end(item.stop), item.step):
            if status := _run(launches, items, at, at + item.length, [*variables, variable]):
                return status
        at += item.length
    return 0


def _holds(guard: _Guard, variables: list[int]) -> bool:
    place = 0
    for k in range(guard.count):
        place = place * guard.period[k] + (variables[guard.depth[k]] - guard.first[k]) % guard.period[k]
    return bool(ctypes.c_byte.from_address(guard.taken + place).value)
