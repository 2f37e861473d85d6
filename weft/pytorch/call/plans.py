"""Calls that are prepared: what is checked, allocated and launched in each like one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from weft.compiler import Analysis, Unused, Workspace, is_cleared, laid_out, of_a_call, unused, workspace
from weft.compiler import launches as plan_launches
from weft.errors import ShapeMismatch, UnsupportedSyntax
from weft.language import Signature
from weft.loops.affine import evaluate
from weft.loops.ir import Array, Function
from weft.plan.facts import Geometry
from weft.pytorch.call.analyses import analysis_for
from weft.pytorch.call.arguments import Bound, Same, bind, common_device, gathered, repeated, single
from weft.pytorch.call.checks import check, check_demands, check_joints, check_overlap, demands_floats, largest_floats
from weft.pytorch.call.launchers import BoundLaunch, compile_side_by_side, cuda_launchers, host_launchers, with_clears
from weft.pytorch.call.results import allocate, empty_like, finisher, like, strides_of
from weft.pytorch.machines import machine_on
from weft.pytorch.quick import MISS, REMEMBERED, Recorder, Seen, never
from weft.pytorch.quick_calls import Prepared
from weft.pytorch.specialize import Specializable
from weft.runtime import cuda
from weft.runtime.collection import uncollected
from weft.runtime.guard import Guard

Run = Callable[[tuple[Any, ...]], Any]
Quick = Callable[..., Any]


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


def made_arrays(analysis: Analysis, launches: Sequence[BoundLaunch] | None = None) -> tuple[Array, ...]:
    """The arrays that a call allocates: results, and locals that a nest, or one of these launches, still touches."""
    from weft.plan.arguments import nest_arrays

    function = analysis.function
    touched = {a.name for nest in analysis.schedule.nests for a in nest_arrays(function, nest)}
    if launches is not None:
        touched = {n for launch in launches for n in launch.arrays}
    return tuple(
        a for a in function.arrays if a.role == "result" or (a.role == "local" and not a.within and a.name in touched)
    )


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
        compile_side_by_side([launch for own in planned for launch in own], device)
        for own in planned:
            launches += cuda_launchers(own, bound, device)
            idle += [u for launch in own for u in unused(launch, bound.names)]
    else:
        launches = host_launchers(analysis, arrays, bound)
    quotients = {s.name: repr(bound.names[s.name]) for s in function.scalars if s.value is not None}
    besides = (i for item in launches for i in item.own)
    shared = workspace(function, arrays, [item.arrays for item in launches], besides, clears=device.type == "cuda")
    made = [a for a in made_arrays(analysis, launches) if a.name not in shared.offsets]
    if device.type == "cuda":
        launches = with_clears(launches, shared, {a.name: arrays[a.name] for a in made if is_cleared(a)}, device)
        made = [replace(a, fill=None) if is_cleared(a) else a for a in made]
    run = _runner(analysis, device, launches, tuple(bound.tensors), quotients, made, shared)
    if function.numbers or function.container:
        assert finish is not None
        return CallPlan(lambda given: finish(run(given)), run, tuple(idle))
    writes = any(a.role == "inout" for a in function.arrays)
    largest = largest_floats(function)
    by_hand = largest is None or (writes and any(item.fails for item in launches))  # what failed halfway is not run again

    prepared = Prepared(
        function,
        made,
        arrays,
        [(item.launch, item.given, item.parts) for item in launches],
        device,
        guard,
        shared,
        same,
        largest or {},
    )

    def quick(seen: Seen) -> Quick:
        return never if by_hand else prepared.quick(seen)

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
        arrays[a.name] = _geometry(a, shape, strides_of(function, a, shape, bound), 0)
    return arrays


def _geometry(array: Array, shape: Sequence[int], strides: Sequence[int], address: int) -> Geometry:
    return Geometry(array.dtype, tuple(shape), tuple(strides), address)


def _runner(
    analysis: Analysis,
    device: torch.device,
    launches: list[BoundLaunch],
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
    if demands_floats(function):
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
