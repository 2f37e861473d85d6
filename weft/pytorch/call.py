"""One call of a kernel: its arguments checked, results allocated, nests launched.

`prepare` does all that depends on types, shapes, strides and alignment once, and leaves a function that does the rest:
allocate, take addresses, launch.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from weft.compiler import (
    Analysis,
    Grouped,
    Intermediate,
    Launch,
    Unused,
    Variant,
    Workspace,
    arguments,
    cuda_source,
    grouped,
    host_source,
    hosted,
    is_cleared,
    laid_out,
    may_fail,
    of_a_call,
    own_memory,
    pointers,
    unused,
    workspace,
)
from weft.compiler import launches as plan_launches
from weft.compiler.boxes import tensor_map
from weft.errors import (
    DeviceMismatch,
    NumberOverflow,
    OutOfRange,
    OverlapError,
    ShapeMismatch,
    TypeMismatch,
    UnsupportedSyntax,
)
from weft.language import ArgumentType, Signature, TensorType
from weft.loops.affine import Affine, affine, evaluate
from weft.loops.faults import Faults
from weft.loops.ir import Array, Check, Const, Expr, Function, Op, Ref, free_names, walk_expr
from weft.loops.schedule import ORDINARY, Circumstances, Wrapped
from weft.loops.sized import untold
from weft.loops.types import BOOL, COMPLEX_TYPES, FLOAT64, INT64, SCALAR_TYPES, ScalarType
from weft.loops.unused import empty_loops
from weft.plan.arguments import Slot
from weft.plan.facts import Geometry
from weft.pytorch.failures import failed, failure
from weft.pytorch.machines import index_of, machine_on
from weft.pytorch.overlap import share_memory
from weft.pytorch.quick import MISS, REMEMBERED, Parts, Recorder, Seen, never, quick_call
from weft.pytorch.specialize import Specializable
from weft.runtime import cuda, host, nvrtc, steps
from weft.runtime.collection import uncollected
from weft.runtime.guard import Guard
from weft.runtime.slots import Given, pack

Run = Callable[[tuple[Any, ...]], Any]
Same = tuple[tuple[int, int], ...]  # (position, position of the earlier argument that it is)
Quick = Callable[..., Any]

_MAPS = 64  # of a launch's boxes that are kept, by address


@dataclass(frozen=True)
class CallPlan:
    """A prepared call. run: for arguments of these types, shapes, strides and alignment. tensors: as `run`, with tensors for
    the results that are numbers. unused: the loops that it leaves in order. seen: the quick way of calls as who makes them sees
    them. defaults: of arguments that may be left out, by position. results: names of what these give. ways: the quick ways of
    its calls, which differ in what PyTorch does with them: gradients, autocast, inference.
    """

    run: Run
    tensors: Run
    unused: tuple[Unused, ...] = ()
    seen: Callable[[Seen], Quick] = lambda seen: never
    defaults: Mapping[int, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ()
    ways: list[Quick] = field(default_factory=list)

    def known(self, args: tuple[Any, ...], recorder: Recorder | None = None) -> tuple[Any, Quick]:
        """What a call gives, and the quick way of calls like it. recorder: if it is recorded."""
        for way in self.ways:
            if (made := way(*args)) is not MISS:
                return made, way
        made, way = self.run(args), never
        if len(self.ways) < REMEMBERED and self.run is self.tensors:
            way = self.seen(Seen(args, recorder=recorder, defaults=self.defaults))
            self.ways.append(way)
        return made if recorder is None else recorder(args, made), way


DTYPES: dict[torch.dtype, ScalarType] = {getattr(torch, name): t for name, t in SCALAR_TYPES.items()}
COMPLEX: dict[torch.dtype, ScalarType] = {getattr(torch, name): t for name, t in COMPLEX_TYPES.items()}
_SUPPORTED = ", ".join(SCALAR_TYPES | COMPLEX_TYPES)


# ---------------------------------------------------------------- arguments


def argument_types(signature: Signature, args: Sequence[Any]) -> tuple[ArgumentType, ...]:
    """The types of the arguments. Raises TypeMismatch where one does not fit its parameter."""
    return tuple(_argument_type(signature, p.name, p.kind, a) for p, a in zip(signature.parameters, args, strict=True))


def _argument_type(signature: Signature, name: str, kind: str, value: Any) -> ArgumentType:
    def refuse(what: str, remedy: str) -> TypeMismatch:
        return TypeMismatch(f"{name} {what}", location=signature.location, remedy=remedy)

    use = f"{signature.name} uses it as {_ARTICLES[kind]}"
    if isinstance(value, torch.Tensor):
        if kind not in ("tensor", "number"):
            many = f"read one element of it at a time, as {name}[i] in a loop over i, or pass a number"
            raise refuse(f"is a tensor, and {use}", many if value.dim() else f"pass {name}.item(), or a number")
        if value.is_nested:
            raise refuse("is a nested tensor", f"pass {name}.to_padded_tensor(0.0), or each of {name}.unbind()")
        if value.layout is not torch.strided:
            raise refuse(f"is a tensor of layout {value.layout}", f"pass {name}.to_dense()")
        scalar = DTYPES.get(value.dtype)
        if scalar is None:
            raise refuse(f"is a tensor of {value.dtype}, which weft does not know", f"use one of {_SUPPORTED}")
        return TensorType(scalar, value.dim())
    if kind == "tensor":
        maker = "from_numpy" if type(value).__module__ == "numpy" else "tensor"
        numbers = type(value).__module__ in ("builtins", "numpy") and not isinstance(value, dict)
        remedy = f"pass a tensor, as torch.{maker}({name})" if numbers else "pass a tensor; of an object, the tensors it holds"
        raise refuse(f"is {_described(value)}, and {use}", remedy)
    if isinstance(value, bool):
        return FLOAT64 if kind == "float" else INT64 if kind == "int" else BOOL
    if isinstance(value, (int, torch.SymInt)):
        if isinstance(value, int) and kind in ("int", "number") and not -(2**63) <= value < 2**63:
            raise NumberOverflow(f"{name} is an int that leaves 64 bits", location=signature.location, remedy=_SMALLER)
        if isinstance(value, int) and kind == "float" and abs(value) > sys.float_info.max:
            raise NumberOverflow(f"{name} is an int beyond all floats", location=signature.location, remedy=_SMALLER)
        return {"float": FLOAT64, "bool": BOOL}.get(kind, INT64)
    if isinstance(value, (float, torch.SymFloat)) and kind in ("float", "number"):
        return FLOAT64
    raise refuse(f"is {_described(value)}, and {use}", f"pass {_ARTICLES[kind]}")


_SMALLER = "pass a smaller number, or a float"
_ARTICLES = {"tensor": "a tensor", "int": "an int", "float": "a float", "bool": "a bool", "number": "a number"}


def _described(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")


def as_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of complex numbers as one of their parts, which it shares its memory with unless it is lazily conjugate."""
    return torch.view_as_real(tensor.resolve_conj().resolve_neg())


def plain(value: Any) -> Any:
    """Python's number for one of numpy's; anything else as it is."""
    return value.item() if type(value).__module__ == "numpy" and value.ndim == 0 else value


def common_device(function: Function, tensors: Mapping[str, torch.Tensor]) -> torch.device:
    """The device all tensors lie on. Raises DeviceMismatch."""
    devices = {n: t.device for n, t in tensors.items()}
    if len(set(devices.values())) > 1:
        facts = [f"{n} lies on {d}" for n, d in devices.items()]
        raise DeviceMismatch(
            f"the tensors of {function.name} lie on different devices",
            location=function.location,
            evidence=facts,
            remedy="move them to one",
        )
    device = next(iter(devices.values()), torch.device("cpu"))
    if device.type not in ("cpu", "cuda", "meta"):
        raise DeviceMismatch(
            f"{function.name} cannot run on {device}",
            location=function.location,
            evidence=[f"{n} lies on {d}" for n, d in devices.items()],
            remedy="move the tensors to a CUDA GPU or to the CPU",
        )
    return device


def gathered(signature: Signature, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with tensors without dimensions moved from the CPU to where the others lie, as PyTorch takes them for
    numbers there; not those that are written or given back. The same tuple where there are none.
    """
    first = None
    mixed = False
    for a in args:
        if isinstance(a, torch.Tensor):
            first = a.device if first is None else first
            mixed = mixed or a.device != first
    if not mixed:
        return args
    numbers = [
        isinstance(a, torch.Tensor) and a.device.type == "cpu" and a.dim() == 0 and p.name not in signature.objects
        for p, a in zip(signature.parameters, args, strict=True)
    ]
    others = {a.device for a, is_number in zip(args, numbers, strict=True) if isinstance(a, torch.Tensor) and not is_number}
    if len(others) != 1 or not any(numbers):
        return args
    (device,) = others
    return tuple(a.to(device) if is_number else a for a, is_number in zip(args, numbers, strict=True))


@dataclass(frozen=True)
class Bound:
    """The arguments of a call by name: tensors, the values of sizes and scalars."""

    tensors: dict[str, torch.Tensor]
    names: dict[str, Any]


def bind(function: Function, args: Sequence[Any]) -> Bound:
    given = dict(zip(function.parameters, args, strict=True))
    tensors = {n: v for n, v in given.items() if isinstance(v, torch.Tensor)}
    names: dict[str, Any] = {s.name: given[s.name] for s in function.scalars if s.value is None}
    names |= {s.name: bool(given[s.name]) for s in function.scalars if s.type == BOOL}
    for s in function.sizes:
        names[s.name] = tensors[s.array].shape[s.axis]
    for scalar in function.scalars:
        if scalar.value is not None:
            try:
                names[scalar.name] = evaluate(scalar.value, names)
            except ZeroDivisionError:  # which is a demand's to tell
                names[scalar.name] = 0
    return Bound(tensors, names)


def repeated(signature: Signature, args: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The arguments whose elements are those of an earlier one, at the same subscripts, one of the two being written:
    (position, position of the earlier one). They are two names of one tensor.
    """
    if len(signature.parameters) < 2 or not signature.written:
        return ()
    first: dict[Any, int] = {}
    found = []
    for k, a in enumerate(args):
        if isinstance(a, torch.Tensor):
            place = (a.untyped_storage()._cdata, a.storage_offset()) if a.is_meta else a.data_ptr()
            other = first.setdefault(place, k)
            if other != k and _same_elements(args[other], a):
                found.append((k, other))
    names = signature.names
    written = {other for k, other in found if names[k] in signature.written or names[other] in signature.written}
    return tuple((k, other) for k, other in found if other in written)


def _same_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors that begin at one place are one, however PyTorch came by them."""
    if a.dtype != b.dtype or a.shape != b.shape or a.numel() == 0 or a.is_neg() != b.is_neg():
        return False
    return all(n == 1 or s == t for n, s, t in zip(a.shape, a.stride(), b.stride(), strict=True))


def single(args: Sequence[Any], same: tuple[tuple[int, int], ...]) -> tuple[Any, ...]:
    """The arguments without those that repeat an earlier one."""
    again = {k for k, _ in same}
    return tuple(a for k, a in enumerate(args) if k not in again)


def call_types(
    signature: Signature, args: Sequence[Any], same: tuple[tuple[int, int], ...]
) -> tuple[ArgumentType, ...]:
    """The types of the arguments of a call, of which some repeat others."""
    types = list(argument_types(signature, args))
    for k, other in same:
        type_ = types[k]
        assert isinstance(type_, TensorType)
        types[k] = replace(type_, same=signature.names[other])
    return tuple(types)


def analysis_for(specializable: Specializable, signature: Signature, args: Sequence[Any]) -> tuple[Analysis, Bound]:
    """The analysis for a call: the one for sizes and arguments as expected if they are so, else the one for any; with the
    subscripts that are below 0 for its sizes counted from the end, and those checked by the kernels that sizes do not show
    to be inside and that data may keep from being evaluated, or that loops tell which do not run.
    """
    same = repeated(signature, args)
    types, args = call_types(signature, args, same), single(args, same)
    analysis, bound = _expected_or_not(specializable, types, args, ORDINARY)
    circumstances = Circumstances(wraps=_wraps(analysis, bound), empty=_empty(specializable, types, analysis, bound))
    if circumstances != ORDINARY:
        analysis, bound = _expected_or_not(specializable, types, args, circumstances)
    doubtful = [r for r in analysis.requirements if _fails(r.condition, bound)]
    checked = {r.array for r in doubtful} | {i.array for i in analysis.function.idle if evaluate(i.condition, bound.names)}
    if checked and not any(r.sure for r in doubtful):
        analysis, bound = _expected_or_not(specializable, types, args, replace(circumstances, checked=frozenset(checked)))
    return analysis, bound


def wraps_for(specializable: Specializable, types: tuple[ArgumentType, ...], args: Sequence[Any]) -> Wrapped:
    """The axes in which a call has subscripts below 0, which count from the end."""
    return _wraps(*_expected_or_not(specializable, types, args, ORDINARY))


def _expected_or_not(
    specializable: Specializable,
    types: tuple[ArgumentType, ...],
    args: Sequence[Any],
    circumstances: Circumstances,
) -> tuple[Analysis, Bound]:
    """The analysis for sizes and arguments as expected if they are so, else the one for any; with checks of what sizes do not
    show.
    """
    while True:
        analysis = specializable.analysis(types, True, circumstances)
        bound = bind(analysis.function, args)
        agree = all(bound.names[a] == bound.names[b] for a, b in analysis.assumed)
        assumption = analysis.function.assumption
        if not (agree and (assumption is None or bool(eval(assumption.condition, {}, bound.names)))):
            analysis = specializable.analysis(types, False, circumstances)
            bound = bind(analysis.function, args)
        left = untold(analysis.function.sized, bound.names)
        if not left:
            return analysis, bound
        circumstances = replace(circumstances, untold=circumstances.untold | left)


def _wraps(analysis: Analysis, bound: Bound) -> Wrapped:
    """The axes that subscripts leave below 0 for these sizes; none where one is left otherwise and is surely evaluated,
    which is an error of the call.
    """
    if all(r.beyond is None for r in analysis.requirements):
        return frozenset()
    doubtful = [r for r in analysis.requirements if _fails(r.condition, bound)]
    if any(r.sure and (r.beyond is None or _fails(r.beyond, bound)) for r in doubtful):
        return frozenset()
    return frozenset((r.array, r.axis) for r in doubtful if r.beyond is not None)


def _empty(
    specializable: Specializable, types: tuple[ArgumentType, ...], analysis: Analysis, bound: Bound
) -> frozenset[str]:
    """The loops that run for no iteration of a call, if a nest may fail beside one of them: the Python evaluates what stands
    before such a loop, which as an axis would be around it.
    """
    function = analysis.function
    nests = [n for n in analysis.schedule.nests if empty_loops((*n.around(), *n.body), bound.names)]
    if not any(Faults(replace(function, body=n.body), n.around()).possible for n in nests):
        return frozenset()
    return empty_loops(specializable.function(types, False).body, bound.names)


def _fails(condition: str, bound: Bound) -> bool:
    """Whether the condition under which a subscript leaves its array holds for these sizes."""
    return bool(eval(condition, {"floord": lambda a, b: a // b, "min": min, "max": max}, bound.names))


def check(analysis: Analysis, bound: Bound, certain: bool = False) -> None:
    """Raise ShapeMismatch or OutOfRange where the Python would fail on these sizes. certain: only where it would whatever the
    tensors hold.
    """
    shapes = [f"{n} is {list(t.shape)}" for n, t in bound.tensors.items()]
    for e in analysis.function.equalities:
        left, right = evaluate(e.left, bound.names), evaluate(e.right, bound.names)
        if left != right:
            fact = f"{left} and {right}"
            raise ShapeMismatch(f"sizes differ: {e.what}", location=e.location, evidence=[fact, *shapes],
                                remedy="pass tensors whose sizes agree")  # fmt: skip
    check_demands(analysis.function, bound.names)
    outside = [r for r in analysis.requirements if (r.sure or not certain) and _fails(r.condition, bound)]
    for r in sorted(outside, key=lambda r: r.beyond is not None and not _fails(r.beyond, bound)):
        array = analysis.function.array(r.array)
        extent = evaluate(array.shape[r.axis], bound.names)
        verb, axis = "stores to" if r.write else "reads", r.axis if array.stands_for is None else array.stands_for
        raise OutOfRange(
            f"{analysis.function.name} {verb} {array.user_name} outside axis {axis}, at index {r.index}",
            location=r.location,
            evidence=[f"axis {axis} of {array.user_name} has size {extent}", *shapes],
            remedy="change the loop's range, or pass a larger tensor",
        )


def check_overlap(function: Function, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise OverlapError where a tensor that is written shares memory with itself or with another argument."""
    for array in function.arrays:
        if array.role != "inout":
            continue
        written = tensors[array.name]
        if written.numel() == 0:
            continue
        if _overlaps_itself(written):
            raise OverlapError(
                f"{array.name} is written, and two of its elements share memory",
                location=array.location,
                evidence=[f"shape {list(written.shape)}, strides {list(written.stride())}"],
                remedy=f"pass {array.name}.clone()",
            )
        for name, other in tensors.items():
            if name != array.name and share_memory(written, other):
                raise OverlapError(
                    f"{array.name} is written, and {name} shares memory with it",
                    location=array.location,
                    evidence=[f"both lie in the storage at {written.untyped_storage().data_ptr():#x}"],
                    remedy=f"pass {name}.clone()",
                )


def check_joints(function: Function, bound: Bound) -> None:
    """Raise ShapeMismatch where strides do not allow a view that merges dimensions."""
    for joint in function.joints:
        array = function.array(joint.array)
        shape = [evaluate(e, bound.names) for e in array.shape]
        strides = _strides(function, array, shape, bound)
        sizes = [evaluate(size, bound.names) for _, _, size in joint.parts]
        steps = [strides[axis] * evaluate(step, bound.names) for axis, step, _ in joint.parts]
        walked = [(n, step) for n, step in zip(sizes, steps, strict=True) if n != 1]
        if 0 not in sizes and any(outer != n * inner for (_, outer), (n, inner) in itertools.pairwise(walked)):
            raise ShapeMismatch(
                f"{function.name} views {joint.array} with dimensions merged, which its strides do not allow",
                location=joint.location,
                evidence=[f"{joint.array} is {shape} with strides {list(strides)}"],
                remedy=f"use reshape instead of view, or pass {joint.array}.contiguous()",
            )


def _strides(function: Function, array: Array, shape: Sequence[int], bound: Bound) -> tuple[int, ...]:
    """The strides of an argument, or of what the call makes."""
    if array.name in bound.tensors:
        return bound.tensors[array.name].stride()
    model = like(function, array)
    if model is None:
        return torch.empty(shape, device="meta").stride()
    return empty_like(bound.tensors[model], array.batches, torch.float32, torch.device("meta")).stride()


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether strides let two subscripts meet (sorted by stride, an axis must step past all smaller ones)."""
    reach = 0
    for stride, size in sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


# ---------------------------------------------------------------- results


def like(function: Function, array: Array) -> str | None:
    """The tensor argument whose sizes an array has: the array then takes its order of strides, as `empty_like` does."""
    if array.contiguous or not array.shape:
        return None
    same = [p.name for p in function.arrays if p.role in ("input", "inout") and p.shape == array.shape]
    return array.like if array.like in same else next(iter(same), None)


def empty_like(model: torch.Tensor, batches: int, dtype: torch.dtype, device: torch.device | None = None) -> torch.Tensor:
    """A tensor of a model's sizes, each element of its first `batches` axes strided as `torch.empty_like` of that element."""
    if batches == 0 or model.is_contiguous():
        return torch.empty_like(model, dtype=dtype, device=device)
    shape = model.shape[batches:]
    one = torch.empty_like(torch.empty_strided(shape, model.stride()[batches:], device="meta"))
    outer = torch.empty((*model.shape[:batches], one.numel()), device="meta").stride()[:-1]
    return torch.empty_strided(model.shape, (*outer, *one.stride()), dtype=dtype, device=device or model.device)


def allocate(function: Function, array: Array, bound: Bound, device: torch.device) -> torch.Tensor:
    """A new tensor for an array that the function makes; its fill is written if it has one."""
    dtype = getattr(torch, array.dtype.name)
    model = like(function, array)
    if model is not None:
        made = empty_like(bound.tensors[model], array.batches, dtype)
    else:
        made = torch.empty([evaluate(e, bound.names) for e in array.shape], dtype=dtype, device=device)
    if array.fill is not None:
        made.fill_(array.fill.value)
    return made


def finisher(function: Function) -> Callable[[Any], Any] | None:
    """What makes of a function's results what the Python returns; None where they are that already. A number costs
    waiting for the kernel, as `.item()` does.
    """
    numbers = [r in function.numbers for r in function.results]
    if not any(numbers) and not function.container and not function.pairs:
        return None
    pairs = [r in function.pairs for r in function.results]

    def finish(made: Any) -> Any:
        results = made if isinstance(made, tuple) else (made,)
        items = [_number(function, r) if number else torch.view_as_complex(r) if pair else r
                 for r, number, pair in zip(results, numbers, pairs, strict=True)]  # fmt: skip
        if function.container:
            return tuple(items) if function.container == "tuple" else items
        return items[0] if len(items) == 1 else tuple(items)

    return finish


def _number(function: Function, result: torch.Tensor) -> bool | int | float:
    functorch: Any = torch._C._functorch
    inner = result
    while functorch.is_functorch_wrapped_tensor(inner):
        if functorch.is_batchedtensor(inner):
            raise UnsupportedSyntax(
                f"{function.name} returns a number, and under torch.vmap every element of the batch has its own",
                location=function.location,
                remedy="return a tensor: torch.tensor(...) of the number",
            )
        inner = functorch.get_unwrapped(inner)
    return result.item()


def made_arrays(analysis: Analysis, launches: Sequence[_Launch] | None = None) -> tuple[Array, ...]:
    """The arrays that a call allocates: results, and locals that a nest, or one of these launches, still touches."""
    from weft.plan.arguments import nest_arrays

    function = analysis.function
    touched = {a.name for nest in analysis.schedule.nests for a in nest_arrays(function, nest)}
    if launches is not None:
        touched = {n for launch in launches for n in launch.arrays}
    return tuple(
        a for a in function.arrays if a.role == "result" or (a.role == "local" and not a.within and a.name in touched)
    )


# ---------------------------------------------------------------- plans


def prepare(
    specializable: Specializable,
    signature: Signature,
    args: tuple[Any, ...],
    guard: Guard | None = None,
) -> CallPlan:
    """A function that runs calls with arguments of these types, shapes, strides, alignment and integer values.

    guard: what a quick call asks besides.
    """
    if torch._C._get_tracing_state() is not None:
        raise UnsupportedSyntax(
            f"torch.jit.trace cannot record a call of {signature.name}",
            location=signature.location,
            remedy="use torch.compile or torch.export",
        )
    on_one_device = gathered(signature, args)
    if on_one_device is not args:
        return _of_gathered(prepare(specializable, signature, on_one_device, guard), signature)
    same = repeated(signature, args)
    if same:
        return _of_single(_prepared(specializable, signature, args, guard, same), signature, same)
    return _prepared(specializable, signature, args, guard)


def _of_gathered(plan: CallPlan, signature: Signature) -> CallPlan:
    """A plan for arguments on several devices, made of the plan for them on one."""
    return CallPlan(
        lambda args: plan.run(gathered(signature, args)),
        lambda args: plan.tensors(gathered(signature, args)),
        plan.unused,
    )


def _of_single(plan: CallPlan, signature: Signature, same: tuple[tuple[int, int], ...]) -> CallPlan:
    """A plan for arguments of which some repeat others, made of the plan for each tensor once."""

    def every(run: Run) -> Run:
        def call(args: tuple[Any, ...]) -> Any:
            made = run(single(args, same))
            given = dict(zip(signature.names, args, strict=True))
            if isinstance(made, (tuple, list)):
                return type(made)(m if r is None else given[r] for m, r in zip(made, signature.results, strict=True))
            return made if made is None or signature.results[0] is None else given[signature.results[0]]

        return call

    run = every(plan.run)
    tensors = run if plan.tensors is plan.run else every(plan.tensors)
    return CallPlan(run, tensors, plan.unused, plan.seen, plan.defaults, plan.results)


def _prepared(
    specializable: Specializable,
    signature: Signature,
    args: tuple[Any, ...],
    guard: Guard | None,
    same: Same = (),
) -> CallPlan:
    """A plan for arguments of which it takes each once. same: those that repeat others, which a quick call takes too."""
    analysis, bound = analysis_for(specializable, signature, args)
    function = analysis.function
    device = common_device(function, bound.tensors)
    check(analysis, bound)
    check_overlap(function, bound.tensors)
    check_joints(function, bound)
    finish = finisher(function)
    if device.type == "meta":
        bare = _without_memory(function, device)
        return CallPlan(bare if finish is None else lambda given: finish(bare(given)), bare)
    arrays = geometries(analysis, bound)
    nests, launches, idle = range(len(analysis.schedule.nests)), [], []
    if device.type == "cuda":
        with uncollected():
            arrays = laid_out(analysis, arrays, bound.names, machine_on(device))
            planned = of_a_call([plan_launches(analysis, k, arrays, bound.names, machine_on(device)) for k in nests])
        _compile_side_by_side([launch for own in planned for launch in own], device)
        for own in planned:
            launches += _cuda_launchers(own, bound, device)
            idle += [u for launch in own for u in unused(analysis, launch, bound.names)]
    else:
        launches = [_host_launcher(analysis, k, arrays, bound, device) for k in nests]
    quotients = {s.name: repr(bound.names[s.name]) for s in function.scalars if s.value is not None}
    besides = (i for item in launches for i in item.own)
    shared = workspace(function, arrays, [item.arrays for item in launches], besides, clears=device.type == "cuda")
    made = [a for a in made_arrays(analysis, launches) if a.name not in shared.offsets]
    if device.type == "cuda":
        launches = _with_clears(launches, shared, {a.name: arrays[a.name] for a in made if is_cleared(a)}, device)
        made = [replace(a, fill=None) if is_cleared(a) else a for a in made]
    run = _runner(analysis, device, launches, tuple(bound.tensors), quotients, made, shared)
    if function.numbers or function.container:
        assert finish is not None
        return CallPlan(lambda given: finish(run(given)), run, tuple(idle))
    writes = any(a.role == "inout" for a in function.arrays)
    largest = _largest_floats(function)
    by_hand = largest is None or (writes and any(item.fails for item in launches))  # what failed halfway is not run again

    def quick(seen: Seen) -> Quick:
        places = [k for k in range(len(seen.args)) if k not in seen.constants]
        return never if by_hand else quick_call(
            function,
            made,
            arrays,
            [(item.launch, item.given, item.parts) for item in launches],
            device,
            seen,
            guard,
            shared,
            [(places[k], places[earlier]) for k, earlier in same],
            largest or {},
        )

    defaults = {k: p.default for k, p in enumerate(signature.parameters) if p.has_default}
    if finish is not None:  # whose quick calls would give pairs
        return CallPlan(lambda given: finish(run(given)), run, tuple(idle), quick)
    return CallPlan(run, run, tuple(idle), quick, defaults, function.results)


def _without_memory(function: Function, device: torch.device) -> Run:
    """A call of tensors without memory: the results have none either."""

    def run(args: tuple[Any, ...]) -> Any:
        bound = bind(function, args)
        made = {a.name: allocate(function, a, bound, device) for a in function.arrays if a.role == "result"}
        results = tuple(made[r] if r in made else bound.tensors[r] for r in function.results)
        return None if not results else results[0] if len(results) == 1 else results

    return run


def _resolved(run: Run, function: Function, args: tuple[Any, ...]) -> Any:
    """A call with negated tensors, run on copies that are not, of the same strides, since the plan is for them."""

    def copied(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor) or not tensor.is_neg():
            return tensor
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
        return tensor.as_strided((span,), (1,)).resolve_neg().as_strided(tensor.shape, tensor.stride(), 0)

    given = tuple(map(copied, args))
    made = run(given)
    written = {a.name for a in function.arrays if a.role == "inout"}
    originals = {id(g): a for g, a in zip(given, args, strict=True)}
    for name, g, a in zip(function.parameters, given, args, strict=True):
        if name in written and g is not a:
            a.copy_(g)
    if isinstance(made, tuple):
        return tuple(originals.get(id(m), m) for m in made)
    return originals.get(id(made), made)


def geometries(analysis: Analysis, bound: Bound, aligned: bool = False) -> dict[str, Geometry]:
    """Where the arrays of a call lie: its arguments, and what it will allocate. aligned: as if they began a page."""
    function = analysis.function
    arrays = {
        n: _geometry(function.array(n), t.shape, t.stride(), 0 if aligned else t.data_ptr())
        for n, t in bound.tensors.items()
    }
    for a in made_arrays(analysis):
        shape = tuple(evaluate(e, bound.names) for e in a.shape)
        if any(n < 0 for n in shape):
            raise ShapeMismatch(
                f"{a.name} would have shape {list(shape)}", location=a.location, remedy="pass larger sizes"
            )
        arrays[a.name] = _geometry(a, shape, _strides(function, a, shape, bound), 0)
    return arrays


def _geometry(array: Array, shape: Sequence[int], strides: Sequence[int], address: int) -> Geometry:
    return Geometry(array.dtype, tuple(shape), tuple(strides), address)


@dataclass(frozen=True)
class _Launch:
    """A launch ready to go: `launch(...)` takes the values of `given`, names of arrays (their addresses) and scalars.

    own: memory that it has for the time of the call besides what the function makes, an array like the others. fails: whether
    it may tell of a failure when it has begun.
    """

    launch: Callable[..., Any]
    given: tuple[str, ...]
    arrays: frozenset[str]
    parts: Parts | None = None
    own: tuple[Intermediate, ...] = ()
    fails: bool = False


def _with_clears(
    launches: Sequence[_Launch], shared: Workspace, results: Mapping[str, Geometry], device: torch.device
) -> list[_Launch]:
    """The launches, and what clears memory before those that find it 0. results: what a call gives that is 0 at first."""

    def clear(name: str, count: int) -> _Launch:
        own = cuda.Clearer(cuda.find_driver(), index_of(device), count)
        return _Launch(own.launch, (name,), frozenset([name]), own.parts())

    found = [clear(name, g.span() * g.dtype.size) for name, g in results.items() if 0 not in g.shape]
    for step, item in enumerate(launches):
        found += [clear(t.name, t.bytes) for t in shared.cleared.get(step, ())]
        found.append(item)
    return found


def _slots(
    slots: Sequence[Slot], arrays: Mapping[str, Geometry], names: Mapping[str, Any]
) -> tuple[list[Given | int | float], tuple[str, ...], frozenset[str]]:
    values: list[Given | int | float] = []
    given: list[str] = []
    pointers: set[str] = set()
    for s in slots:
        match s.kind:
            case "pointer":
                values.append(Given.POINTER)
                given.append(s.array)
                pointers.add(s.array)
            case "stride":
                values.append(arrays[s.array].strides[s.axis])
            case "size":
                values.append(int(names[s.name]))
            case "scalar" if s.type == FLOAT64:
                values.append(Given.REAL)
                given.append(s.name)
            case "scalar":
                values.append(int(names[s.name]))
    return values, tuple(given), frozenset(pointers)


def check_demands(function: Function, names: Mapping[str, Any]) -> None:
    """Raise what the Python raises for these sizes and scalars."""
    if function.demands:
        from weft.loops.interpret import CheckFailed, value_of

        for demand in function.demands:
            try:
                holds = value_of(demand.condition, names)
            except CheckFailed as inner:  # what the condition is made of raises before
                raise failure(function, inner.check.fault, inner.check.args[1], names) from None
            if not holds:
                raise failure(function, demand.fault, demand.condition, names)


def _demands_floats(function: Function) -> bool:
    """Whether a call must check values that calls prepared alike may differ in."""
    floats = _floats(function)
    return any(free_names(d.condition) & floats for d in function.demands)


def _floats(function: Function) -> set[str]:
    return {s.name for s in function.scalars if s.type == FLOAT64}


def _largest_floats(function: Function) -> dict[str, float] | None:
    """The sizes up to which finite values of floats meet what the function demands of them, and infinities and nan do too; None
    where it demands anything else.
    """
    found: dict[str, float] = {}
    for demand in function.demands:
        if not free_names(demand.condition) & _floats(function):
            continue
        if any(isinstance(e, Check) for e in walk_expr(demand.condition)):
            return None
        either = {*_either(demand.condition)}
        for e in either:
            match e:
                case Op(name="le", args=(Op(name="abs", args=(Ref(name=name) as value,)), Const(value=largest))):
                    infinite = Op("not", (Op("isfinite", (value,), BOOL),), BOOL)
                    if infinite in either and name in function.parameters:
                        found[name] = min(largest, found.get(name, largest))
                        break
        else:
            return None
    return found


def _either(condition: Expr) -> Iterator[Expr]:
    """The conditions of which one is enough."""
    if isinstance(condition, Op) and condition.name == "or":
        for e in condition.args:
            yield from _either(e)
    else:
        yield condition


def _cuda_launchers(planned: Sequence[Launch], bound: Bound, device: torch.device) -> list[_Launch]:
    found = []
    for item in grouped(planned):
        if isinstance(item, Launch):
            own = _cuda_launcher(item, bound, device)
            launcher = own.launcher
            found.append(_Launch(launcher.launch, own.given, own.pointers, launcher.parts(), own.own))
        else:
            found.append(_stepper([item], bound, device))
    return found


@dataclass(frozen=True)
class _Kernel:
    """A launcher, and what its launches take: as of `_Launch`. steps: (slot, depth of the loop whose variable goes there)."""

    launcher: cuda.Launcher
    given: tuple[str, ...]
    pointers: frozenset[str]
    own: tuple[Intermediate, ...]
    steps: tuple[tuple[int, int], ...]


def _cuda_launcher(plan: Launch, bound: Bound, device: torch.device) -> _Kernel:
    index = index_of(device)
    where = plan.where
    assert where is not None
    handle = _loaded(where.analysis, plan.variant, plan.entry, cuda.device_properties(index).arch, index)
    depths = {a.var: k for k, a in enumerate(plan.steps)}
    names = {**bound.names, **dict.fromkeys(depths, 0)}
    slots = arguments(where.analysis, plan.variant.nest, plan.variant.facts)
    values, given, _ = _slots(slots, where.arrays, names)
    if plan.partial:
        values += [Given.POINTER] * len(plan.partial) + [plan.parts]
        given += tuple(f"{where.path}.{name}" for name, *_ in plan.partial)
    return _Kernel(
        cuda.Launcher(
            handle, plan.grid, plan.block, plan.shared, pack(values), cooperative=plan.together, dependent=plan.dependent,
            boxes=_boxes(plan, given),
        ),
        tuple(where.memory.get(n, n) for n in given),
        frozenset(pointers(plan)),
        own_memory(plan),
        tuple((slot, depths[s.name]) for slot, s in enumerate(slots) if s.kind == "scalar" and s.name in depths),
    )


def _boxes(plan: Launch, given: tuple[str, ...]) -> list[cuda.GivenMap]:
    """The maps of a launch, encoded once for each address. given: the arrays and scalars that it takes."""
    where = plan.where
    assert where is not None
    found = []
    for box in plan.boxes:
        encode = functools.partial(tensor_map(box, where.arrays).encode, cuda.find_driver())
        name = box.array if box.packed is None else f"{where.path}.{box.array}"
        found.append(cuda.GivenMap(given.index(name), functools.lru_cache(_MAPS)(encode)))
    return found


def _stepper(program: Grouped, bound: Bound, device: torch.device) -> _Launch:
    """Launches in loops as one."""
    given: dict[str, int] = {}
    kernels: list[_Kernel] = []

    def stepped(items: Grouped, around: tuple[str, ...]) -> tuple[steps.StepLaunch | steps.StepLoop, ...]:
        out: list[steps.StepLaunch | steps.StepLoop] = []
        for item in items:
            if isinstance(item, Launch):
                own = _cuda_launcher(item, bound, device)
                kernels.append(own)
                places = tuple(given.setdefault(n, len(given)) for n in own.given)
                guards = tuple(
                    steps.StepGuard(tuple((around.index(var), first, period) for var, first, period in g.turns), g.taken)
                    for g in item.when
                )
                out.append(steps.StepLaunch(own.launcher, places, own.steps, guards))
            else:
                loop, body = item
                start, stop = (_end(e, bound, around) for e in (loop.start, loop.stop))
                out.append(steps.StepLoop(start, stop, loop.step, stepped(body, (*around, loop.var))))
        return tuple(out)

    run = steps.Stepper(stepped(program, ())).launch
    own = tuple(dict.fromkeys(i for k in kernels for i in k.own))
    return _Launch(run, tuple(given), frozenset(n for k in kernels for n in k.pointers), None, own)


def _end(expr: Expr, bound: Bound, around: tuple[str, ...]) -> steps.End:
    """The end of a loop, as a multiple of each variable around it and a number."""
    form = affine(expr)
    if form is None or not form.names & {*around}:
        return evaluate(expr, bound.names), (0,) * len(around)
    rest = evaluate(Affine(tuple(t for t in form.terms if t[0] not in around), form.constant).expr(), bound.names)
    return rest, tuple(form.coefficient(v) for v in around)


_handles: dict[tuple[str, str, str, int], cuda.KernelHandle] = {}
_binaries: dict[tuple[str, str], bytes] = {}
_sources: dict[tuple[int, Variant], tuple[Analysis, str]] = {}


def _loaded(analysis: Analysis, variant: Variant, entry: str, arch: str, device: int) -> cuda.KernelHandle:
    """The kernel of a variant on a device; equal source text is compiled and loaded once."""
    source = _source(analysis, variant)
    handle = _handles.get((source, entry, arch, device))
    if handle is None:
        handle = _handles[source, entry, arch, device] = cuda.load(_binary(analysis, variant, arch), entry, device)
    return handle


def _source(analysis: Analysis, variant: Variant) -> str:
    known = _sources.get((id(analysis), variant))
    if known is None:  # the analysis is kept with its source, so that its id stays its own
        known = _sources[id(analysis), variant] = (analysis, cuda_source(analysis, variant))
    return known[1]


def _binary(analysis: Analysis, variant: Variant, arch: str) -> bytes:
    source = _source(analysis, variant)
    binary = _binaries.get((source, arch))
    if binary is None:
        name = analysis.schedule.nests[variant.nest].name
        binary = _binaries[source, arch] = nvrtc.compile_cubin(source, arch, name=f"{name}.cu").binary
    return binary


def _compile_side_by_side(planned: Sequence[Launch], device: torch.device) -> None:
    """Compile what launches run, all of it at a time: the compiler takes longer than all else of a first call."""
    arch = cuda.device_properties(index_of(device)).arch
    wanted = {}
    for launch in planned:
        assert launch.where is not None
        own = launch.where.analysis, launch.variant
        source = _source(*own)
        if (source, arch) not in _binaries:
            wanted[source] = own
    if len(wanted) > 1:
        with ThreadPoolExecutor(min(len(wanted), os.cpu_count() or 1)) as threads:
            for compiled in [threads.submit(_binary, *own, arch) for own in wanted.values()]:
                compiled.result()


def _host_launcher(
    analysis: Analysis, nest: int, arrays: Mapping[str, Geometry], bound: Bound, device: torch.device
) -> _Launch:
    from weft.emit.names import host_entry
    from weft.plan.arguments import nest_arrays

    function, own = analysis.function, analysis.schedule.nests[nest]
    used = {a.name: arrays[a.name] for a in nest_arrays(function, own)}
    plan = hosted(analysis, nest, arrays, bound.names)
    source = host_source(analysis, nest, plan.facts, plan.row)
    loaded = host.load(source, host_entry(own.name), name=f"{own.name}.cpp")
    values, given, pointers = _slots(arguments(analysis, nest, plan.facts), arrays, bound.names)
    kernel = host.HostKernel(loaded, pack(values))

    known = {n: v for n, v in bound.names.items() if not isinstance(v, float)}  # calls prepared alike differ in floats

    def run(threads: int, *values: Any) -> None:
        code = kernel.launch(threads, *values)
        if code:
            raise failed(function, own, used, known | dict(zip(given, values, strict=True)), code)

    return _Launch(run, given, pointers, kernel.parts(), fails=may_fail(source))


def _runner(
    analysis: Analysis,
    device: torch.device,
    launches: list[_Launch],
    given: tuple[str, ...],
    quotients: Mapping[str, str],
    made: Sequence[Array],
    shared: Workspace,
) -> Run:
    """The Python of a call, written out: allocation, addresses, launches, results. given: the tensors among the arguments.
    quotients: the numbers that sizes and ints decide. made: what is allocated; shared: where intermediates lie.
    """
    function = analysis.function
    scope: dict[str, Any] = {"function": function, "device": device}
    scope |= {"empty_like": torch.empty_like, "empty_batch_like": empty_like, "empty": torch.empty}
    position = {n: k for k, n in enumerate(function.parameters)}
    local = {n: f"a{k}" for n, k in position.items()}
    lines = [f"({', '.join(f'a{k}' for k in range(len(position)))},) = args"] if position else []
    scope["resolved"] = _resolved
    for n in given:  # the dispatcher resolves PyTorch's bit for a negation that is still to be done; a call past it must too
        lines.append(f"if {local[n]}.is_neg(): return resolved(run, function, args)")
    sizes = {s.name: f"{local[s.array]}.shape[{s.axis}]" for s in function.sizes}
    written = any(a.role == "inout" for a in function.arrays)
    if written:
        scope["check_overlap"] = check_overlap
        tensors = ", ".join(f"{n!r}: {local[n]}" for n in position if n not in {s.name for s in function.scalars})
        lines.append(f"check_overlap(function, {{{tensors}}})")
        scope["increment_version"] = torch.autograd.graph.increment_version  # what autograd saved is no more
        lines += [f"increment_version({local[a.name]})" for a in function.arrays if a.role == "inout"]
    if _demands_floats(function):
        scope["check_demands"] = check_demands
        known = sizes | {s.name: quotients.get(s.name) or local[s.name] for s in function.scalars}
        lines.append(f"check_demands(function, {{{', '.join(f'{n!r}: {t}' for n, t in known.items())}}})")
    for k, a in enumerate(made):
        local[a.name] = f"r{k}"
        scope[f"dtype{k}"] = getattr(torch, a.dtype.name)
        model = like(function, a)
        if model is not None:
            if a.batches:
                lines.append(f"r{k} = empty_batch_like({local[model]}, {a.batches}, dtype{k})")
            else:
                same = function.array(model).dtype == a.dtype
                lines.append(f"r{k} = empty_like({local[model]}{'' if same else f', dtype=dtype{k}'})")
        else:
            scope[f"shape{k}"] = a.shape
            known = sizes | {s.name: quotients.get(s.name) or local[s.name] for s in function.scalars}
            names = ", ".join(f"{n!r}: {t}" for n, t in known.items())
            scope["evaluate"] = evaluate
            lines.append(f"names = {{{names}}}")
            lines.append(f"r{k} = empty([evaluate(e, names) for e in shape{k}], dtype=dtype{k}, device=device)")
        if a.fill is not None:
            scope[f"fill{k}"] = a.fill.value
            lines.append(f"r{k}.fill_(fill{k})")
    if shared.offsets:
        scope["byte"] = torch.uint8
        lines += [f"workspace = empty([{shared.size}], dtype=byte, device=device)", "w = workspace.data_ptr()"]
    arrays = {n for launch in launches for n in launch.arrays}
    uses = [n for launch in launches for n in launch.given if n in arrays]
    addresses = {n: f"w + {offset}" for n, offset in shared.offsets.items()}
    for n in sorted(arrays - addresses.keys()):
        addresses[n] = f"{local[n]}.data_ptr()"
        if uses.count(n) > 1:
            lines.append(f"p_{local[n]} = {addresses[n]}")
            addresses[n] = f"p_{local[n]}"
    if device.type == "cuda":
        scope["stream_of"] = cuda.current_stream()
        scope["index"] = torch.cuda.current_device() if device.index is None else device.index
        first = "stream_of(index)"
    else:
        scope["threads"] = torch.get_num_threads
        first = "threads()"
    if len(launches) > 1:
        lines.append(f"first = {first}")
        first = "first"
    for k, item in enumerate(launches):
        scope[f"launch{k}"] = item.launch
        values = []
        for n in item.given:
            if n in addresses:
                values.append(addresses[n])
            else:
                values.append(f"float({local[n]})" if n in position else n)
        lines.append(f"launch{k}({', '.join([first, *values])})")
    results = [local[r] for r in function.results]
    if results:
        lines.append("return " + (results[0] if len(results) == 1 else f"({', '.join(results)})"))
    text = "def run(args):\n" + "".join(f"    {line}\n" for line in lines or ["pass"])
    exec(compile(text, f"<call of {function.name}>", "exec"), scope)
    run: Run = scope["run"]
    return run
