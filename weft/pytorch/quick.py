"""The shortest way through a call that was made before.

PyTorch's own guard (the one torch.compile uses) tells in one C call whether the tensors are like those of the last call:
plain, strided, of the same dtype, device, sizes and strides, and without a gradient to record. If they are, and lie as
aligned, all that is left is to allocate the results, take addresses and launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd import forward_ad

from weft.compiler import Workspace, tuned
from weft.loops.ir import Array, Function
from weft.plan.facts import Geometry
from weft.runtime import cuda
from weft.runtime.guard import Guard
from weft.runtime.host import HostParts
from weft.runtime.quick import ALIGNMENT, MOST_WAYS, Made, QuickLaunch, Returned, Source, together
from weft.runtime.quick import make as compile_quick

# What a quick call gives when the call is not like the one it was made for.
MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS"})()


def never(*args: Any) -> Any:
    """The quick call of what was never called."""
    return MISS


Parts = cuda.LaunchParts | cuda.ClearParts | HostParts

REMEMBERED = MOST_WAYS  # quick ways of what is called with operands of several kinds in turn
_WORKSPACE, _NONE = " workspace", Workspace()  # no name of an array
_MOST_KINDS = 64  # of calls whose quick ways are known besides
PLAIN = (torch.Tensor, torch.nn.Parameter)


def eager() -> bool:
    """Whether no mode or transform of PyTorch's is active that must see every operator."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )


@dataclass(frozen=True)
class Recorder:
    """What records calls for autograd. apply: takes the arguments and then a tuple of what the call made, and gives that back
    as autograd knows it. shown: how many of it the call returns, from the first on; the rest is kept for gradients.
    """

    apply: Callable[..., Any]
    shown: int

    def __call__(self, args: tuple[Any, ...], made: Any) -> Any:
        recorded = self.apply(*args, made if isinstance(made, tuple) else (made,))
        if not isinstance(recorded, tuple):
            return recorded
        return recorded[0] if self.shown == 1 else recorded[: self.shown]


@dataclass(frozen=True)
class Seen:
    """A call as who makes it sees it. args: its arguments: tensors that begin where those of the function do, perhaps of other
    sizes and strides, and constants at some positions, which it takes besides and which have to be the same. results: the
    sizes, strides and dtypes of what it gives, where they are others than the function's. recorder: if autograd records it.
    defaults: what arguments are that are left out, by position.
    """

    args: tuple[Any, ...]
    results: Mapping[str, Geometry] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    recorder: Recorder | None = None
    defaults: Mapping[int, Any] = field(default_factory=dict)


class Ways:
    """The quick ways of the last calls, of several kinds, the last one first. quick: what tries them all."""

    def __init__(self) -> None:
        self._recorders: dict[Any, Recorder] = {}
        self.every: tuple[Callable[..., Any], ...] = ()
        self.quick: Callable[..., Any] = never
        self._known: dict[Any, Callable[..., Any]] = {}

    def add(self, way: Callable[..., Any], args: tuple[Any, ...] | None = None) -> None:
        """Take a quick way from now on, if it is one, in the place of the one that was not taken for longest. args: of a call
        that it is the way of, by which `earlier` finds it.
        """
        if way is never:
            return
        if args is not None:
            kind = _kind(args)
            if kind not in self._known and len(self._known) >= _MOST_KINDS:
                del self._known[next(iter(self._known))]
            self._known[kind] = way
        every = (way, *(w for w in self.every if w is not way))[:REMEMBERED]
        self.quick, self.every = one_of(every), every

    def earlier(self, args: tuple[Any, ...]) -> Any:
        """What a call gives that is like one before the last few, or MISS."""
        try:
            way: Callable[..., Any] = self._known.get(_kind(args), never)
            made = way(*args)
        except (TypeError, RuntimeError):  # what cannot be looked up, or has no strides
            return MISS
        if made is not MISS:
            self.add(way)
        return made

    def recorder(self, of: Any, args: tuple[Any, ...], make: Callable[[], Recorder]) -> Recorder:
        """What records calls like this one of something: the one that was made for it before, where there is one."""
        key = (of, _kind(args))
        if key not in self._recorders:
            if len(self._recorders) >= _MOST_KINDS:
                del self._recorders[next(iter(self._recorders))]
            self._recorders[key] = make()
        return self._recorders[key]


def _kind(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells calls with quick ways of their own apart, about: the ways tell exactly."""

    def of(value: Any) -> tuple[Any, ...]:
        if isinstance(value, torch.Tensor):
            return value.dtype, value.shape, value.stride(), value.requires_grad
        return type(value), None if type(value) is float else value

    return torch.is_grad_enabled(), *map(of, args)


def one_of(ways: tuple[Callable[..., Any], ...]) -> Callable[..., Any]:
    """The quick way of calls like any of those that these were made for, tried in order: a miss takes a third of a
    microsecond, or less than one where a way is a function of Python's.
    """
    if len(ways) == 1:
        return ways[0]
    if (compiled := together(ways)) is not None:
        return compiled

    def several(*args: Any) -> Any:
        for way in ways:
            try:
                made = way(*args)
            except TypeError:  # another number of arguments
                continue
            if made is not MISS:
                return made
        return MISS

    return several


def eager_allocator(device: torch.device) -> tuple[Callable[..., torch.Tensor], bool]:
    """The quickest (sizes, strides, dtype) -> tensor, and whether it takes the current device."""
    guards = torch._C._dynamo.guards
    name = f"_empty_strided_{device.type}"
    found = getattr(guards, name, None)
    if found is not None:
        return found, True
    return (lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)), False


def quick_call(
    function: Function,
    made: Sequence[Array],
    arrays: Mapping[str, Geometry],
    launches: Sequence[tuple[Callable[..., Any], tuple[str, ...], Parts | None]],
    device: torch.device,
    seen: Seen,
    guard: Guard | None = None,
    shared: Workspace = _NONE,
    same: Sequence[tuple[int, int]] = (),
    largest: Mapping[str, float] = MappingProxyType({}),
) -> Callable[..., Any]:
    """A function of the arguments, for calls like this one; `never` where there is no quick way for it.

    launches: (launch, names of arrays and scalars whose addresses and values it takes, its parts on CUDA), in order.
    guard: what must hold besides. shared: where intermediates lie, of which none is in `made`. same: (position, position of
    an earlier argument) of those that are one tensor, which is one parameter of the function. largest: the size up to which
    finite values of a float are taken.
    """
    args, constants = seen.args, seen.constants
    if any(args[k] is not args[earlier] for k, earlier in same):
        return never
    again = _again(args)
    tensors = [a for k, a in enumerate(args) if isinstance(a, torch.Tensor) and k not in again]
    leaves = any(t.requires_grad for t in tensors)  # under no_grad they are tensors like others
    if not tensors or (leaves and torch.is_grad_enabled()) is not (seen.recorder is not None):
        return never
    if any(type(t) not in PLAIN for t in tensors):
        return never
    if any(t.is_neg() or t.is_conj() for t in tensors):  # the guard would ask for that bit, no launch does
        return never
    try:
        tensor_guard = torch._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
        )
        if not tensor_guard.check(*tensors):
            return never
    except (AttributeError, TypeError, RuntimeError):  # another PyTorch
        return never
    empty, on_current = eager_allocator(device)
    scope: dict[str, Any] = {
        "stack": torch._C._len_torch_dispatch_stack, "check": tensor_guard.check, "MISS": MISS, "empty": empty,
        "ad": torch.autograd.forward_ad, "default": torch.get_default_dtype, "dtype": torch.get_default_dtype(),
        "inf": math.inf, "generation": tuned.generation, "then": tuned.generation.value,
    }  # fmt: skip
    every = {a.name: _made(a, seen.results.get(a.name) or arrays[a.name]) for a in made}
    if shared.offsets:
        every[_WORKSPACE] = Made((shared.size,), (1,), torch.uint8)
    apart = {*dict(same), *constants}
    compiled = _compiled(
        function, every, launches, device, seen, tensor_guard.check, empty, guard, apart, again, largest, shared
    )
    if compiled is not None:
        return compiled
    if again or constants or seen.recorder is not None:
        return never
    if any(a.role == "inout" for a in function.arrays):  # whether what is written lies apart is not asked here
        return never
    if any(m.fill is not None for m in every.values()):
        return never
    local = {n: f"a{k}" for k, n in enumerate(function.parameters)}
    checked = [local[n] for n, a in zip(function.parameters, args, strict=True) if isinstance(a, torch.Tensor)]
    conditions = ["stack()", "ad._current_level >= 0", "default() is not dtype", "generation.value != then"]
    conditions += [f"getattr({t}, 'is_nested', True)" for t in checked]  # on which the check ends the process
    conditions.append(f"not check({', '.join(checked)})")
    if leaves:
        scope["recording"] = torch.is_grad_enabled
        conditions.insert(0, "recording()")
    if guard is not None:
        scope["guard"] = guard
        conditions.insert(0, "not guard.holds()")
    for name, value in zip(function.parameters, args, strict=True):
        if isinstance(value, float):
            conditions.append(f"type({local[name]}) is not float")
            if name in largest:
                conditions.append(f"{largest[name]!r} < abs({local[name]}) < inf")
        elif not isinstance(value, torch.Tensor):
            scope[f"v_{local[name]}"] = value
            conditions.append(f"type({local[name]}) is not type(v_{local[name]}) or {local[name]} != v_{local[name]}")
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        scope |= {"first": cuda.current_stream(), "index": index, "current": cuda.find_driver().current_device}
        first = "first(index)"
        if on_current and torch.cuda.device_count() > 1:
            conditions.append("current() != index")
    else:
        scope["first"] = torch.get_num_threads
        first = "first()"
    lines = [f"if {' or '.join(conditions)}: return MISS"]
    lines += [f"p_{t} = {t}.data_ptr()" for t in checked]
    past = {local[n]: a.data_ptr() & ALIGNMENT for n, a in zip(function.parameters, args, strict=True) if local[n] in checked}
    lines.append(f"if ({' | '.join(f'p_{t} ^ {past[t]}' for t in checked)}) & {ALIGNMENT}: return MISS")
    addresses = {n: f"p_{local[n]}" for n, a in zip(function.parameters, args, strict=True) if isinstance(a, torch.Tensor)}
    for k, (name, own) in enumerate(every.items()):
        local[name] = f"r{k}"
        scope |= {f"size{k}": own.shape, f"stride{k}": own.strides, f"dtype{k}": own.dtype}
        lines.append(f"r{k} = empty(size{k}, stride{k}, dtype{k})")
        addresses[name] = f"r{k}.data_ptr()"
    if shared.offsets:
        lines.append(f"w = {addresses[_WORKSPACE]}")
        addresses |= {n: f"w + {offset}" for n, offset in shared.offsets.items()}
    for k, (launch, given, parts) in enumerate(launches):
        values = [addresses.get(n, local.get(n, "")) for n in given]
        if not isinstance(parts, cuda.LaunchParts):
            scope[f"launch{k}"] = launch
            lines.append(f"launch{k}({', '.join([first, *values])})")
            continue
        # spelled out: two calls fewer
        scope |= {f"frames{k}": parts.frames, f"fresh{k}": parts.fresh, f"launch{k}": parts.launch_kernel}
        scope |= {f"function{k}": parts.function, f"failed{k}": parts.failed}
        lines += [
            f"try: frame = frames{k}.pop()",
            f"except IndexError: frame = fresh{k}()",
            f"frame.write({', '.join(values)})",
            f"frame.config.stream = {first}",
            f"status = launch{k}(frame.config_address, function{k}, frame.parameters_address, None)",
            f"if status: failed{k}(status, frame)",
            f"frames{k}.append(frame)",
        ]
    results = [local[r] for r in function.results]
    lines.append(f"return {results[0] if len(results) == 1 else '(' + ', '.join(results) + ')' if results else 'None'}")
    text = f"def quick({', '.join(f'a{k}' for k in range(len(args)))}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, f"<quick call of {function.name}>", "exec"), scope)
    quick: Callable[..., Any] = scope["quick"]
    return quick


def _made(array: Array, geometry: Geometry) -> Made:
    fill = None if array.fill is None else array.fill.value
    return Made(geometry.shape, geometry.strides, getattr(torch, array.dtype.name), fill)


def _again(args: tuple[Any, ...]) -> dict[int, int]:
    """The positions of tensors that are an earlier argument, and of that one: PyTorch's guard takes each tensor once."""
    first: dict[int, int] = {}
    found = {k: first.setdefault(id(a), k) for k, a in enumerate(args) if isinstance(a, torch.Tensor)}
    return {k: earlier for k, earlier in found.items() if earlier != k}


def _compiled(
    function: Function,
    made: Mapping[str, Made],
    launches: Sequence[tuple[Callable[..., Any], tuple[str, ...], Parts | None]],
    device: torch.device,
    seen: Seen,
    check: Callable[..., bool],
    empty: Callable[..., torch.Tensor],
    guard: Guard | None,
    apart: Set[int],
    again: Mapping[int, int],
    largest: Mapping[str, float],
    shared: Workspace,
) -> Callable[..., Any] | None:
    """The quick call without Python between its steps; None where there is none. made: what it allocates, by name. again: of
    arguments that are the very tensor that an earlier one is, which; apart: positions of those that are no parameters of the
    function.
    """
    on_gpu, args, recorder = device.type == "cuda", seen.args, seen.recorder
    if not launches or any(parts is None for _, _, parts in launches):
        return None
    places = dict(zip(function.parameters, (k for k in range(len(args)) if k not in apart), strict=True))
    where = {n: Source("argument" if isinstance(args[k], torch.Tensor) else "number", k) for n, k in places.items()}
    fresh = [n for n in function.results if n in made]
    if len({*function.results}) < len(function.results):  # one twice
        return None
    if recorder is not None and fresh != [*function.results]:  # autograd would take an argument for another tensor
        return None
    order = [*fresh, *(n for n in made if n not in fresh)]
    where |= {n: Source("result", k) for k, n in enumerate(order)}
    where |= {n: replace(where[_WORKSPACE], offset=offset) for n, offset in shared.offsets.items()}
    returned = Returned(
        frozenset(places[a.name] for a in function.arrays if a.role == "inout"),
        again,
        tuple(places.get(n) for n in function.results),
    )
    objects = {
        "miss": MISS, "data_ptr": torch._C.TensorBase.data_ptr, "is_nested": "is_nested", "plain": False,
        "check": check, "modes": torch._C._len_torch_dispatch_stack,
        "forward_mode": torch.autograd.forward_ad, "level": "_current_level", "empty": empty,
        "default_dtype": torch.get_default_dtype, "fill": "fill_", "dtype": torch.get_default_dtype(),
        "where": cuda.current_stream() if on_gpu else torch.get_num_threads, "device": device.index or 0,
        "changed": torch._C._increment_version, "none": None,
    }  # fmt: skip
    if on_gpu and torch.cuda.device_count() > 1:
        objects["current"] = torch._C._cuda_getDevice
    if any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
        objects["recording"] = torch.is_grad_enabled
    if recorder is not None:
        objects |= {"record": recorder.apply, "shown": recorder.shown}
    items = [QuickLaunch(parts, tuple(where[n] for n in given)) for _, given, parts in launches if parts is not None]
    sizes = {places[n]: size for n, size in largest.items()}
    results = [made[n] for n in order]
    return compile_quick(
        objects, args, results, returned, items, int(on_gpu), guard, tuned.generation, sizes, seen.defaults
    )
