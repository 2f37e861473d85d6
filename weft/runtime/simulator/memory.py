"""The arrays of a launch in the engine's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from weft.errors import LaunchError
from weft.runtime.simulator.arguments import Argument, Integer, Map, Real, Tensor


class Memory:
    """The arrays of a launch in the engine's memory; arrays that overlap share a region, as they do outside."""

    def __init__(self, engine: ctypes.CDLL, arguments: Sequence[Argument]) -> None:
        self.engine = engine
        self.tensors = [a for a in arguments if isinstance(a, Tensor)]
        spans = sorted((t.address, t.address + max(1, t.bytes)) for t in self.tensors)
        merged: list[list[int]] = []
        for low, high in spans:
            if merged and low < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])
        self.regions: list[tuple[int, int, int, int, bytearray | None]] = []  # low, high, new address, granule, states
        for k, (low, high) in enumerate(merged):
            self.regions.append(self._place(k, low, high))

    def inside(self, k: int) -> list[Tensor]:
        low, high = self.regions[k][:2]
        return [t for t in self.tensors if low <= t.address < high]

    def _place(self, slot: int, low: int, high: int) -> tuple[int, int, int, int, bytearray | None]:
        inside = [t for t in self.tensors if low <= t.address < high]
        place = self.engine.weft_place(slot, high - low, low)
        if not place:
            raise LaunchError(
                "there is no room to simulate an array", evidence=[f"{inside[0].name} has {high - low} bytes"],
                remedy="check smaller inputs",
            )  # fmt: skip
        if any(t.bytes for t in inside):
            ctypes.memmove(place, low, high - low)
        granule = min(t.element_bytes for t in inside)
        if any((t.address - low) % granule for t in inside):
            granule = 1
        read_only = all(t.role == "input" for t in inside)
        states = self._states(inside, low, high, granule)
        buffer = (ctypes.c_char * len(states)).from_buffer(states) if states is not None else None
        self.engine.weft_track(slot, granule, ctypes.addressof(buffer) if buffer is not None else None, read_only)
        return low, high, place, granule, states

    def _states(self, inside: Sequence[Tensor], low: int, high: int, granule: int) -> bytearray | None:
        """For each cell 0 (no value yet), 1 (a value), 2 (of no array); None where all have values."""
        if all(t.strides is None and t.written is None and t.role != "output" for t in inside) and len(inside) == 1:
            return None
        states = bytearray(b"\2") * (-(-(high - low) // granule))
        for t in inside:
            first, cells = (t.address - low) // granule, t.element_bytes // granule
            elements = t.bytes // t.element_bytes
            value = 0 if t.role == "output" else 1
            known = t.written if t.written is not None else bytearray([value]) * elements
            own = states[first : first + elements * cells]
            for c in range(cells):
                lane = own[c::cells]
                for start, stop, step in _runs(t, elements):
                    lane[start:stop:step] = known[start:stop:step]
                own[c::cells] = lane
            states[first : first + elements * cells] = own
        return states

    def slots(self, arguments: Sequence[Argument]) -> tuple[Any, list[Any]]:
        """The record of the arguments, and what must stay alive with it."""
        words: list[int] = []
        alive: list[Any] = []
        for a in arguments:
            match a:
                case Tensor():
                    words.append(self.moved(a))
                case Integer(value):
                    words.append(value & (2**64 - 1))
                case Real(value):
                    words.append(ctypes.c_uint64.from_buffer_copy(ctypes.c_double(value)).value)
                case Map(map, tensor):
                    encoded = ctypes.create_string_buffer(map.simulated(self.moved(tensor)), 128)
                    alive.append(encoded)
                    words.append(ctypes.addressof(encoded))
        return (ctypes.c_uint64 * max(1, len(words)))(*words), alive

    def moved(self, tensor: Tensor) -> int:
        for low, high, place, _, _ in self.regions:
            if low <= tensor.address < high:
                return place + tensor.address - low
        raise LaunchError(f"the array {tensor.name!r} is no argument", remedy="pass it")

    def take_back(self) -> None:
        """Write what the kernel wrote to where the arrays came from."""
        for slot, (low, high, place, granule, states) in enumerate(self.regions):
            inside = self.inside(slot)
            if any(t.role != "input" for t in inside) and any(t.bytes for t in inside):
                ctypes.memmove(low, place, high - low)
            if states is None or not any(t.written is not None for t in inside):
                continue
            buffer = (ctypes.c_char * len(states)).from_buffer(states)
            if self.engine.weft_states(slot, ctypes.addressof(buffer)):
                for t in inside:
                    if t.written is not None:
                        first, cells = (t.address - low) // granule, t.element_bytes // granule
                        t.written[:] = states[first : first + len(t.written) * cells : cells]

    def array(self, region: int, offset: int) -> tuple[Tensor, int] | None:
        """The array at an offset of a region, and the offset in it (outside it where it is beside them all)."""
        if region >= len(self.regions):
            return None
        inside = self.inside(region)
        low = self.regions[region][0]
        at = low + offset
        own = [t for t in inside if t.address <= at < t.address + t.bytes] or inside
        return own[0], at - own[0].address


def _runs(t: Tensor, elements: int) -> list[tuple[int, int, int]]:
    """Slices of an array's element places that hold its elements."""
    if t.shape is None or t.strides is None:
        return [(0, elements, 1)]
    if 0 in t.shape:
        return []
    axes = sorted((s, n) for n, s in zip(t.shape, t.strides, strict=True) if n > 1 and s != 0)
    if not axes:
        return [(0, 1, 1)]
    run, count = axes[0]
    rest = axes[1:]
    while rest and run == 1 and rest[0][0] == count:
        count *= rest.pop(0)[1]
    firsts = [0]
    for stride, n in rest:
        firsts = [f + stride * k for k in range(n) for f in firsts]
    return [(f, f + run * (count - 1) + 1, run) for f in firsts]
