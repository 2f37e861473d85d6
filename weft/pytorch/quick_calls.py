"""The quick call of what was prepared: compiled, where its launches have parts, else a function of Python's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from weft.compiler import Workspace, tuned
from weft.loops.ir import Array, Function
from weft.plan.facts import Geometry
from weft.pytorch.quick import MISS, PLAIN, Seen, never
from weft.runtime import cuda
from weft.runtime.guard import Guard
from weft.runtime.host import HostParts
from weft.runtime.quick import ALIGNMENT, Made, QuickLaunch, Returned, Source
from weft.runtime.quick import make as compile_quick

Parts = cuda.LaunchParts | cuda.ClearParts | HostParts

_WORKSPACE = " workspace"  # no name of an array


@dataclass(frozen=True)
class Prepared:
    """What is done in every call that was prepared alike, on a device.

    made: the arrays that it allocates, of these geometries. launches: (launch, names of arrays and scalars whose addresses and
    values it takes, its parts on CUDA), in order. guard: what must hold besides. shared: where intermediates lie, of which none
    is in `made`. same: (argument, an earlier one) of those that are one tensor, which is one parameter of the function.
    largest: the size up to which finite values of a float are taken.
    """

    function: Function
    made: Sequence[Array]
    arrays: Mapping[str, Geometry]
    launches: Sequence[tuple[Callable[..., Any], tuple[str, ...], Parts | None]]
    device: torch.device
    guard: Guard | None = None
    shared: Workspace = Workspace()
    same: Sequence[tuple[int, int]] = ()
    largest: Mapping[str, float] = field(default_factory=dict)

    def quick(self, seen: Seen) -> Callable[..., Any]:
        """A function of the arguments, for calls like this one; `never` where there is no quick way for it."""
        args, constants = seen.args, seen.constants
        places = [k for k in range(len(args)) if k not in constants]
        same = {places[k]: places[earlier] for k, earlier in self.same}
        if any(args[k] is not args[earlier] for k, earlier in same.items()):
            return never
        again = _again(args)
        tensors = [a for k, a in enumerate(args) if isinstance(a, torch.Tensor) and k not in again]
        check = _check_of(tensors, seen)
        if check is None:
            return never
        every = {a.name: _made(a, seen.results.get(a.name) or self.arrays[a.name]) for a in self.made}
        if self.shared.offsets:
            every[_WORKSPACE] = Made((self.shared.size,), (1,), torch.uint8)
        empty, on_current = eager_allocator(self.device)
        call = _Call(self, seen, every, {*same, *constants}, again, check, empty, on_current)
        compiled = call.compiled()
        return compiled if compiled is not None else call.spelled()


def eager_allocator(device: torch.device) -> tuple[Callable[..., torch.Tensor], bool]:
    """The quickest (sizes, strides, dtype) -> tensor, and whether it takes the current device."""
    guards = torch._C._dynamo.guards
    name = f"_empty_strided_{device.type}"
    found = getattr(guards, name, None)
    if found is not None:
        return found, True
    return (lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)), False


def _check_of(tensors: Sequence[torch.Tensor], seen: Seen) -> Callable[..., bool] | None:
    """PyTorch's own check that tensors are like these; None where there is none, or where they are none that it tells."""
    recorded = any(t.requires_grad for t in tensors) and torch.is_grad_enabled()
    if not tensors or recorded is not (seen.recorder is not None):
        return None
    if any(type(t) not in PLAIN for t in tensors):
        return None
    if any(t.is_neg() or t.is_conj() for t in tensors):  # the guard would ask for that bit, no launch does
        return None
    try:
        guard = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        check: Callable[..., bool] = guard.check
        return check if check(*tensors) else None
    except (AttributeError, TypeError, RuntimeError):  # another PyTorch
        return None


@dataclass(frozen=True)
class _Call:
    """A call, of which quick calls are made. every: what it allocates, by name. apart: positions of arguments that are no
    parameters of the function; again: of those that are the very tensor that an earlier one is, which. check: of the tensors.
    empty: what allocates; on_current: on the current device.
    """

    prepared: Prepared
    seen: Seen
    every: Mapping[str, Made]
    apart: Set[int]
    again: Mapping[int, int]
    check: Callable[..., bool]
    empty: Callable[..., torch.Tensor]
    on_current: bool

    def compiled(self) -> Callable[..., Any] | None:
        """Without Python between its steps; None where that is not possible."""
        prepared, made, apart, seen = self.prepared, self.every, self.apart, self.seen
        function, launches, device = prepared.function, prepared.launches, prepared.device
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
        where |= {n: replace(where[_WORKSPACE], offset=offset) for n, offset in prepared.shared.offsets.items()}
        returned = Returned(
            frozenset(places[a.name] for a in function.arrays if a.role == "inout"),
            self.again,
            tuple(places.get(n) for n in function.results),
        )
        objects = {
            "miss": MISS, "data_ptr": torch._C.TensorBase.data_ptr, "is_nested": "is_nested", "plain": False,
            "check": self.check, "modes": torch._C._len_torch_dispatch_stack,
            "forward_mode": torch.autograd.forward_ad, "level": "_current_level", "empty": self.empty,
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
        sizes = {places[n]: size for n, size in prepared.largest.items()}
        results = [made[n] for n in order]
        return compile_quick(
            objects, args, results, returned, items, int(on_gpu), prepared.guard, tuned.generation, sizes, seen.defaults
        )

    def spelled(self) -> Callable[..., Any]:
        """As a function of Python's; `never` where it would have to ask for more."""
        prepared, args = self.prepared, self.seen.args
        function = prepared.function
        if self.again or self.seen.constants or self.seen.recorder is not None:
            return never
        if any(a.role == "inout" for a in function.arrays):  # whether what is written lies apart is not asked here
            return never
        if any(m.fill is not None for m in self.every.values()):
            return never
        scope: dict[str, Any] = {
            "stack": torch._C._len_torch_dispatch_stack, "check": self.check, "MISS": MISS, "empty": self.empty,
            "ad": torch.autograd.forward_ad, "default": torch.get_default_dtype, "dtype": torch.get_default_dtype(),
            "inf": math.inf, "generation": tuned.generation, "then": tuned.generation.value,
        }  # fmt: skip
        local = {n: f"a{k}" for k, n in enumerate(function.parameters)}
        checked = [local[n] for n, a in zip(function.parameters, args, strict=True) if isinstance(a, torch.Tensor)]
        conditions = ["stack()", "ad._current_level >= 0", "default() is not dtype", "generation.value != then"]
        conditions += [f"getattr({t}, 'is_nested', True)" for t in checked]  # on which the check ends the process
        conditions.append(f"not check({', '.join(checked)})")
        if any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):  # under no_grad they are tensors like others
            scope["recording"] = torch.is_grad_enabled
            conditions.insert(0, "recording()")
        if prepared.guard is not None:
            scope["guard"] = prepared.guard
            conditions.insert(0, "not guard.holds()")
        for name, value in zip(function.parameters, args, strict=True):
            if isinstance(value, float):
                conditions.append(f"type({local[name]}) is not float")
                if name in prepared.largest:
                    conditions.append(f"{prepared.largest[name]!r} < abs({local[name]}) < inf")
            elif not isinstance(value, torch.Tensor):
                scope[f"v_{local[name]}"] = value
                conditions.append(f"type({local[name]}) is not type(v_{local[name]}) or {local[name]} != v_{local[name]}")
        if prepared.device.type == "cuda":
            index = torch.cuda.current_device() if prepared.device.index is None else prepared.device.index
            scope |= {"first": cuda.current_stream(), "index": index, "current": cuda.find_driver().current_device}
            first = "first(index)"
            if self.on_current and torch.cuda.device_count() > 1:
                conditions.append("current() != index")
        else:
            scope["first"] = torch.get_num_threads
            first = "first()"
        lines = [f"if {' or '.join(conditions)}: return MISS"]
        lines += [f"p_{t} = {t}.data_ptr()" for t in checked]
        named = zip(function.parameters, args, strict=True)
        past = {local[n]: a.data_ptr() & ALIGNMENT for n, a in named if local[n] in checked}
        lines.append(f"if ({' | '.join(f'p_{t} ^ {past[t]}' for t in checked)}) & {ALIGNMENT}: return MISS")
        addresses = {n: f"p_{local[n]}" for n, a in zip(function.parameters, args, strict=True) if isinstance(a, torch.Tensor)}
        for k, (name, own) in enumerate(self.every.items()):
            local[name] = f"r{k}"
            scope |= {f"size{k}": own.shape, f"stride{k}": own.strides, f"dtype{k}": own.dtype}
            lines.append(f"r{k} = empty(size{k}, stride{k}, dtype{k})")
            addresses[name] = f"r{k}.data_ptr()"
        if prepared.shared.offsets:
            lines.append(f"w = {addresses[_WORKSPACE]}")
            addresses |= {n: f"w + {offset}" for n, offset in prepared.shared.offsets.items()}
        for k, (launch, given, parts) in enumerate(prepared.launches):
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
