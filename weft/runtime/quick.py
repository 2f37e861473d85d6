"""Calls without Python between their steps: the records that `device/quick.hpp` reads, and the functions it makes."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import torch

from weft.errors import CompileError
from weft.runtime import host
from weft.runtime.cuda import ClearParts, LaunchParts
from weft.runtime.guard import Guard
from weft.runtime.host import HostParts

ALIGNMENT = 31  # the bits of an address that a plan is made for
_MOST, _MOST_LAUNCHES, _MOST_SLOTS, _MOST_MAPS = 16, 64, 64, 8
MOST_WAYS = 8  # calls of different kinds that one function tries in turn
_KINDS = {"argument": 0, "result": 1, "number": 2}
_FLOAT, _TENSOR, _SAME, _AGAIN = range(4)
# Types of arguments of which a call takes one value: equal ones do not differ.
_PLAIN = (int, bool, str, type(None))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Given(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int64), ("slot", ctypes.c_int64), ("index", ctypes.c_int64))


class _Map(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int64),
        ("index", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("encoding", ctypes.c_ubyte * 128),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("clear", ctypes.c_void_p),
        ("failed", ctypes.py_object),
        ("config", _Config),
        ("slots", ctypes.c_int64),
        ("given_count", ctypes.c_int64),
        ("words", ctypes.c_uint64 * _MOST_SLOTS),
        ("given", _Given * _MOST),
        ("replace_address", ctypes.c_void_p),
        ("map_count", ctypes.c_int64),
        ("map", _Map * _MOST_MAPS),
    )


_OBJECTS = (
    *("miss", "data_ptr", "is_nested", "check", "modes", "forward_mode", "level"),
    *("default_dtype", "dtype", "empty", "fill", "where", "device", "plain", "changed", "none"),
)


class _Call(ctypes.Structure):
    _fields_ = (
        ("guard", ctypes.c_void_p),
        ("generation", ctypes.c_void_p),
        ("then", ctypes.c_int64),
        *((name, ctypes.py_object) for name in _OBJECTS),
        ("current", ctypes.py_object),
        ("recording", ctypes.py_object),
        ("record", ctypes.py_object),
        ("shown", ctypes.c_int64),
        ("arguments", ctypes.c_int64),
        ("results", ctypes.c_int64),
        ("returned", ctypes.c_int64),
        ("launches", ctypes.c_int64),
        ("where_count", ctypes.c_int64),
        ("argument", ctypes.c_int64 * _MOST),
        ("same", ctypes.py_object * _MOST),
        ("otherwise", ctypes.py_object * _MOST),
        ("largest", ctypes.c_double * _MOST),
        ("earlier", ctypes.c_int64 * _MOST),
        ("bytes", ctypes.c_int64 * _MOST),
        ("written", ctypes.c_int64 * _MOST),
        ("past", ctypes.c_uint64 * _MOST),
        ("back", ctypes.c_int64 * _MOST),
        ("result", ctypes.py_object * 3 * _MOST),
        ("filled", ctypes.py_object * _MOST),
        ("launch", _Launch * _MOST_LAUNCHES),
    )


class _Ways(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int64), ("calls", ctypes.c_void_p * MOST_WAYS))


@dataclass(frozen=True)
class _Made:
    """A record of a call, with what it points at."""

    call: _Call
    guard: Guard | None
    generation: ctypes.c_int64
    launches: Sequence[QuickLaunch]


class _Address(int):
    """The address of a record of ways, which it keeps alive with what it points at."""

    record: _Ways
    made: tuple[_Made, ...]


@dataclass(frozen=True)
class Source:
    """What a slot takes: the address of an argument or a result, `offset` bytes on, or the value of an argument."""

    kind: Literal["argument", "result", "number"]
    index: int
    offset: int = 0


@dataclass(frozen=True)
class QuickLaunch:
    """parts: of the launch. given: for each slot given at launch, in order."""

    parts: LaunchParts | ClearParts | HostParts
    given: tuple[Source, ...]


@dataclass(frozen=True)
class Made:
    """A tensor that a call makes. fill: with what, None where its values are not looked at."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    fill: int | float | bool | None = None


@dataclass(frozen=True)
class Returned:
    """What a call does with its arguments besides reading them. written: those that it writes. again: of those that are to be
    the very tensor that an earlier one is, which. back: what it returns: the argument of a position, or None for the next that
    it makes.
    """

    written: frozenset[int]
    again: Mapping[int, int]
    back: tuple[int | None, ...]


@functools.lru_cache(maxsize=1)
def begin() -> Future[ctypes.PyDLL | None]:
    """Have the functions compiled, if they are not yet, while what calls this goes on, as a first call does to its analysis."""
    worker = ThreadPoolExecutor(1, "weft-quick")
    try:
        return worker.submit(_library)
    except RuntimeError:  # no thread starts where Python ends
        library: Future[ctypes.PyDLL | None] = Future()
        library.set_result(_library())
        return library
    finally:
        worker.shutdown(wait=False)


os.register_at_fork(after_in_child=begin.cache_clear)  # where nobody works on it


def _library() -> ctypes.PyDLL | None:
    """The compiled functions; None where there is no C++ compiler, or Python's own functions cannot be found."""
    try:
        library = host.library('#include "weft/quick.hpp"\n', "quick.cpp", ctypes.PyDLL)
        library.make_quick_call.argtypes = [ctypes.py_object]
        library.make_quick_call.restype = ctypes.py_object
        library.size_of_call.restype = ctypes.c_int64
    except (CompileError, OSError, AttributeError):
        return None
    return library if library.size_of_call() == ctypes.sizeof(_Call) else None  # type: ignore[return-value]


def make(
    objects: dict[str, Any],
    arguments: Sequence[Any],
    results: Sequence[Made],
    returned: Returned,
    launches: Sequence[QuickLaunch],
    where_count: int,
    guard: Guard | None,
    generation: ctypes.c_int64,
    largest: Mapping[int, float],
    defaults: Mapping[int, Any],
) -> Callable[..., Any] | None:
    """A function of the call's arguments: its results, or `objects["miss"]` for a call that is not like it, and for any
    where the guard no longer holds or the number `generation` is another one.

    objects: what `Call` in device/quick.hpp names. arguments: those of the call that it is made for: tensors, floats, of which
    it takes any (of those in `largest`, by position, finite ones up to this size), and values of which it takes the same.
    results: what is made; what is returned of it first. where_count: arguments of `objects["where"]`. defaults: of
    arguments that may be left out, by position. None where it cannot be made.

    A call that writes is like the one before only where what it writes lies apart from all else.
    """
    library = begin().result()
    if library is None or len(arguments) > _MOST or len(results) > _MOST or len(launches) > _MOST_LAUNCHES:
        return None
    if any(not isinstance(value, torch.Tensor) and type(value) not in (float, *_PLAIN) for value in arguments):
        return None
    if any(len(item.given) > _MOST or len(item.parts.slots) > _MOST_SLOTS for item in launches):
        return None
    if any(isinstance(item.parts, LaunchParts) and len(item.parts.boxes) > _MOST_MAPS for item in launches):
        return None
    if len(returned.back) > _MOST:
        return None
    call = _Call(**objects)
    call.guard = None if guard is None else guard.address
    call.generation, call.then = ctypes.addressof(generation), generation.value
    call.arguments, call.results, call.launches = len(arguments), len(results), len(launches)
    call.returned = len(returned.back)
    call.where_count = where_count
    somewhere = next((a.data_ptr() for a in arguments if isinstance(a, torch.Tensor)), 0)  # maps are encoded for it
    for k, value in enumerate(arguments):
        call.argument[k] = _TENSOR if isinstance(value, torch.Tensor) else _FLOAT if type(value) is float else _SAME
        call.written[k] = k in returned.written
        if k in returned.again:
            call.argument[k], call.earlier[k] = _AGAIN, returned.again[k]
        elif call.argument[k] == _TENSOR:
            call.bytes[k], call.past[k] = _extent(value), value.data_ptr() & ALIGNMENT
        elif call.argument[k] == _SAME:
            call.same[k] = value
        else:
            call.largest[k] = largest.get(k, math.inf)
    for k, default in defaults.items():
        call.otherwise[k] = default
    for k, position in enumerate(returned.back):
        call.back[k] = -1 if position is None else position
    for k, made in enumerate(results):
        call.result[k][0], call.result[k][1], call.result[k][2] = made.shape, made.strides, made.dtype
        if made.fill is not None:
            call.filled[k] = made.fill
    for k, item in enumerate(launches):
        own, parts = call.launch[k], item.parts
        if isinstance(parts, HostParts):
            own.host = ctypes.cast(parts.call, ctypes.c_void_p).value  # type: ignore[arg-type]
        elif isinstance(parts, ClearParts):
            own.clear = ctypes.cast(parts.clear, ctypes.c_void_p).value  # type: ignore[arg-type]
            own.failed = parts.failed
        else:
            own.launch = ctypes.cast(parts.launch_kernel, ctypes.c_void_p).value  # type: ignore[arg-type]
            own.function, own.failed = parts.function, parts.failed
            grid, block = parts.shape[:3], parts.shape[3:6]
            own.config = _Config((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), parts.shape[6])
            if parts.attributes is not None:
                own.config.attributes, own.config.attribute_count = ctypes.addressof(parts.attributes), len(parts.attributes)
            if parts.boxes:
                own.replace_address = ctypes.cast(parts.replace_address, ctypes.c_void_p).value  # type: ignore[arg-type]
            own.map_count = len(parts.boxes)
            for m, box in enumerate(parts.boxes):
                source = item.given[box.position]
                encoding = (ctypes.c_ubyte * 128).from_buffer_copy(box.encode(somewhere))
                own.map[m] = _Map(_KINDS[source.kind], source.index, source.offset, encoding)
        own.slots = len(parts.slots)
        ctypes.memmove(own.words, parts.slots.words, len(parts.slots.words))
        for (slot, format_), source in zip(parts.slots.given, item.given, strict=True):
            if source.kind == "number" and call.argument[source.index] == _SAME:
                struct.pack_into(f"={format_.value}", own.words, 8 * slot, arguments[source.index])
                continue
            own.words[slot] = source.offset
            own.given[own.given_count] = _Given(_KINDS[source.kind], slot, source.index)
            own.given_count += 1
    return _quick(library, (_Made(call, guard, generation, launches),))


def together(quick_calls: Sequence[Callable[..., Any]]) -> Callable[..., Any] | None:
    """A function that tries these in order; None where one of them is none that `make` made, or there are too many."""
    library, addresses = begin().result(), [getattr(q, "__self__", None) for q in quick_calls]
    made = tuple(m for a in addresses if isinstance(a, _Address) for m in a.made)
    if library is None or len(made) > MOST_WAYS or not all(isinstance(a, _Address) for a in addresses):
        return None
    return _quick(library, made)


def _quick(library: ctypes.PyDLL, made: tuple[_Made, ...]) -> Callable[..., Any]:
    calls = (ctypes.c_void_p * MOST_WAYS)(*(ctypes.addressof(m.call) for m in made))
    ways = _Ways(len(made), calls)
    address = _Address(ctypes.addressof(ways))
    address.record, address.made = ways, made
    quick: Callable[..., Any] = library.make_quick_call(address)
    return quick


def _extent(tensor: torch.Tensor) -> int:
    """The bytes from a tensor's first element to behind its last."""
    if not tensor.numel():
        return 0
    return tensor.element_size() * (1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)))
