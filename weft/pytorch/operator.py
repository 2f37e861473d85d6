"""A kernel as an operator of `torch.library`: schema, implementations, fake, autograd."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._guards import TracingContext
from torch.autograd import forward_ad

from weft.errors import NotDifferentiable, OverlapError, UnsupportedSyntax
from weft.language import Signature
from weft.loops.schedule import Circumstances
from weft.pytorch.call import allocate, argument_types, bind, check, common_device, wraps_for
from weft.pytorch.gradients import Differentiable, Rules
from weft.pytorch.overlap import share_memory
from weft.pytorch.quick import MISS, Ways


class Runnable(Differentiable, Protocol):
    """What PyTorch asks of an executable. takes_pairs: who calls the operator knows complex results for the pairs that they are
    of. run: what it gives for real tensors, and the quick way of calls like this one.
    """

    takes_pairs: bool

    @property
    def rules(self) -> Rules: ...
    @property
    def operator(self) -> Operator: ...

    def run(self, args: tuple[Any, ...]) -> tuple[Any, Callable[..., Any]]: ...


Batched = Callable[[tuple[bool, ...]], Runnable]

LIBRARY = torch.library.Library("weft", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA_TYPES = {"int": "SymInt", "float": "float", "bool": "bool", "number": "Scalar"}
executables: dict[str, Any] = {}  # by the names of their operators


def _named(executable: Runnable, name: str) -> str:
    """The name of an executable's operator: this one, with a number where another executable has it already."""
    for k in itertools.count():
        candidate = name if k == 0 else f"{name}_{k}"
        if executables.setdefault(candidate, executable) is executable:
            return candidate
    raise AssertionError


def _schema_name(name: str, position: int) -> str:
    """A parameter's name in a schema, whose grammar knows ASCII alone and keeps words such as `alias` for itself."""
    return name if name.isascii() else f"argument_{position}"


@dataclass(frozen=True)
class Operator:
    """An operator registered with PyTorch as `torch.ops.weft.<name>`; called like the kernel."""

    name: str
    overload: Any
    results: tuple[str | None, ...]
    parameters: tuple[str, ...]
    transformed: Callable[..., Any]  # what to call in forward mode and under torch.func's transforms

    def fresh(self, *args: Any) -> Any:
        """The new tensors among the kernel's results: one, a tuple of several, or None."""
        through = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
        if through and torch.compiler.is_compiling() and _batches_alone():
            through = False  # torch.compile records the operator itself
        return (self.transformed if through else self.overload)(*args)

    def __call__(self, *args: Any) -> Any:
        """The kernel's results: new tensors from the operator, written arguments as they were passed."""
        made = self.fresh(*args)
        fresh = iter(() if made is None else made if isinstance(made, (tuple, list)) else (made,))
        given = dict(zip(self.parameters, args, strict=True))
        out = tuple(next(fresh) if r is None else given[r] for r in self.results)
        return None if not out else out[0] if len(out) == 1 else out


def define(executable: Runnable, name: str | None, batched: Batched) -> Operator:
    """Register an executable: its schema from its signature, and what PyTorch asks of an operator.

    name: of the operator, if none has it yet; the executable's own name otherwise, with a number if that is taken.
    batched: the executable for the elements of a batch, where these arguments have an axis of it.
    """
    signature = executable.signature
    arguments = []
    for k, p in enumerate(signature.parameters):
        if p.kind == "tensor":
            mark = f"({chr(ord('a') + k)}!)" if p.name in signature.written else ""
            arguments.append(f"Tensor{mark} {_schema_name(p.name, k)}")
        else:
            arguments.append(f"{_SCHEMA_TYPES[p.kind]} {_schema_name(p.name, k)}")
    fresh = sum(r is None for r in signature.results)
    returns = "()" if fresh == 0 else "Tensor" if fresh == 1 else f"({', '.join(['Tensor'] * fresh)})"
    name = _named(executable, name or (executable.name if executable.name.isascii() else "kernel"))
    schema = f"{name}({', '.join(arguments)}) -> {returns}"
    LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]

    ways = Ways()
    all_fresh = fresh == len(signature.results)

    def implementation(*args: Any) -> Any:
        if all_fresh and (known := ways.quick(*args)) is not MISS:
            return known
        made, way = executable.run(args)
        ways.add(way)
        made = made if isinstance(made, tuple) else () if made is None else (made,)
        made = tuple(m for m, r in zip(made, signature.results, strict=True) if r is None)
        return None if not made else made[0] if len(made) == 1 else made

    takes_tensors = any(p.kind == "tensor" for p in signature.parameters)
    for key in ("CPU", "CUDA") if takes_tensors else ("CompositeExplicitAutograd",):
        LIBRARY.impl(name, implementation, key)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"weft::{name}", _fake(executable), lib=LIBRARY)
    overload = getattr(torch.ops.weft, name).default
    batch = _batch_rule(signature, batched)
    torch.library.register_vmap(f"weft::{name}", batch, lib=LIBRARY)
    transformed = overload
    if signature.written:
        refuse = _refuse_gradients(signature, overload)
        LIBRARY.impl(name, refuse, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
        transformed = _functional(signature, overload)
    elif fresh:
        rules = executable.rules
        torch.library.register_autograd(f"weft::{name}", rules.backward, setup_context=rules.setup, lib=LIBRARY)
        transformed = _transformable(executable.name, overload, rules, batch)
    return Operator(name, overload, signature.results, tuple(p.name for p in signature.parameters), transformed)


def _fake(executable: Runnable) -> Callable[..., Any]:
    def fake(*args: Any) -> Any:
        types = argument_types(executable.signature, args)
        recorded = _is_recorded()
        if recorded:
            _refuse_shared(executable.signature, args)
        analysis = executable.specializable.analysis(types, False)
        function = analysis.function
        if function.pairs and recorded and not executable.takes_pairs:
            raise UnsupportedSyntax(
                f"torch.compile cannot record a call of {function.name}, which returns complex numbers",
                location=function.location,
                remedy="return torch.view_as_real(...) of them, and use torch.view_as_complex outside",
            )
        if (function.numbers or function.container) and recorded:
            raise UnsupportedSyntax(
                f"torch.compile cannot record a call of {function.name}, which returns a number, a list or a tuple of one",
                location=function.location,
                remedy="return tensors: torch.tensor(...) of a number",
            )
        bound = bind(function, args)
        if all(isinstance(value, (int, float)) for value in bound.names.values()):  # none of them is symbolic
            wraps = wraps_for(executable.specializable, types, args)
            check(executable.specializable.analysis(types, False, Circumstances(wraps=wraps)), bound, certain=True)
        device = common_device(function, bound.tensors)
        made = tuple(
            allocate(function, function.array(r), bound, device)
            for r in function.results
            if function.array(r).role == "result"
        )
        return None if not made else made[0] if len(made) == 1 else made

    return fake


def _is_recorded() -> bool:
    """Whether torch.compile makes a graph. It asks for results without memory then, in some releases without saying why."""
    return torch.compiler.is_compiling() or TracingContext.try_get() is not None


def _refuse_shared(signature: Signature, args: tuple[Any, ...]) -> None:
    """Raise UnsupportedSyntax where an argument that is written shares memory with another one: the graphs of
    torch.compile write into a copy of the one, and the other is what it was.
    """
    tensors = {p.name: a for p, a in zip(signature.parameters, args, strict=True) if isinstance(a, torch.Tensor)}
    for (name, a), (other, b) in itertools.combinations(tensors.items(), 2):
        if {name, other} & signature.written and share_memory(a, b):
            raise UnsupportedSyntax(
                f"torch.compile cannot record a call of {signature.name} with {name} and {other} sharing memory",
                location=signature.location,
                evidence=[f"it writes into {' and '.join(sorted({name, other} & signature.written))}"],
                remedy=f"call it outside torch.compile, or pass {other}.clone()",
            )


def _functional(signature: Signature, overload: Any) -> Callable[..., Any]:
    """An operator that writes into arguments under torch.func's transforms. Functionalize has it write into copies, which
    then are the arguments; others take it as it is.
    """

    functional: Any = torch

    def transformed(*args: Any) -> Any:
        if not _functionalizing():
            return overload(*args)
        if len(torch._C._functorch.get_interpreter_stack() or ()) > 1:
            raise NotDifferentiable(
                f"{signature.name} writes in place, under torch.func.functionalize and another transform",
                location=signature.location,
                remedy="write to a new tensor (y = torch.empty_like(x))",
            )

        def inside(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not functional._is_functional_tensor(value):
                return value
            functional._sync(value)
            return functional._from_functional_tensor(value)

        given = [inside(a) for a in args]
        written = [k for k, p in enumerate(signature.parameters) if p.name in signature.written]
        with torch._C._DisableFuncTorch():
            own = {}
            for k in written:
                _refuse_parts(signature, args, given, k)
                if given[k] is not args[k]:
                    own[id(args[k])] = given[k].clone()
            given = [own.get(id(a), g) for a, g in zip(args, given, strict=True)]
            made = overload(*given)
        for k in written:
            if given[k] is not args[k]:
                functional._functionalize_replace(args[k], given[k])
                functional._functionalize_commit_update(args[k])
                functional._sync(args[k])
        if isinstance(made, torch.Tensor):
            return functional._to_functional_tensor(made)
        return None if made is None else tuple(map(functional._to_functional_tensor, made))

    return transformed


def _refuse_parts(signature: Signature, args: tuple[Any, ...], given: list[Any], k: int) -> None:
    """Raise OverlapError where another argument than the k-th shares memory with it: a copy of one is none of the other."""
    for name, a, g in zip(signature.names, args, given, strict=True):
        if isinstance(g, torch.Tensor) and a is not args[k] and share_memory(g, given[k]):
            raise OverlapError(
                f"{signature.names[k]} is written under torch.func.functionalize, and {name} shares memory with it",
                location=signature.location,
                remedy=f"pass {name}.clone()",
            )


# ---------------------------------------------------------------- autograd


def _refuse_gradients(signature: Signature, overload: Any) -> Callable[..., Any]:
    """Autograd of an operator that writes into arguments: there is none; what needs no gradient passes."""

    def implementation(keyset: Any, *args: Any) -> Any:
        if torch.is_grad_enabled():
            given = zip(signature.parameters, args, strict=True)
            tracked = [p.name for p, a in given if isinstance(a, torch.Tensor) and a.requires_grad]
            if tracked:
                raise NotDifferentiable(
                    f"{signature.name} writes in place, and a gradient is asked for",
                    location=signature.location,
                    evidence=[
                        *signature.evidence_of_writes(),
                        f"{', '.join(tracked)} require{'s' if len(tracked) == 1 else ''} a gradient",
                    ],
                    remedy=f"{signature.without_writes()}, or call it under torch.no_grad()",
                )
        with torch._C._AutoDispatchBelowAutograd():
            return overload.redispatch(keyset & torch._C._after_autograd_keyset, *args)

    return implementation


# ---------------------------------------------------------------- torch.func


def _batch_rule(signature: Signature, batched: Batched) -> Callable[..., Any]:
    """torch.vmap of an operator: the operator of the same loops in one more loop over the batch."""
    made: dict[tuple[bool, ...], Runnable] = {}

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        carried = tuple(d is not None for d in in_dims)
        for p, wide in zip(signature.parameters, carried, strict=True):
            if p.name in signature.written and not wide:
                raise OverlapError(
                    f"{signature.name} writes into {p.name}, which all elements of torch.vmap's batch share",
                    location=signature.location,
                    remedy=f"give {p.name} the batch's dimension too, as with {p.name}.expand(...).clone()",
                )
        if carried not in made:
            made[carried] = batched(carried)
        first = [a if d is None else a.movedim(d, 0) for a, d in zip(args, in_dims, strict=True)]
        results = made[carried].operator.fresh(*first)
        return results, tuple(0 for _ in results) if isinstance(results, (tuple, list)) else None if results is None else 0

    return rule


def _batches_alone() -> bool:
    """Whether there is no transform of PyTorch's but torch.vmap."""
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return forward_ad._current_level < 0 and all(s.key() == torch._C._functorch.TransformType.Vmap for s in stack)


_batches_alone._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile calls it and does not trace it


def _functionalizing() -> bool:
    """Whether torch.func.functionalize is the innermost transform."""
    inner = torch._C._functorch.peek_interpreter_stack()
    return inner is not None and inner.key() == torch._C._functorch.TransformType.Functionalize


def _transformable(name: str, overload: Any, rules: Rules, batch: Callable[..., Any]) -> Callable[..., Any]:
    """The operator with its derivatives in the form that forward mode and torch.func's transforms can see through."""
    methods = {
        "forward": staticmethod(lambda *args: overload(*args)),
        "setup_context": staticmethod(lambda ctx, inputs, output: rules.setup(ctx, inputs, output)),
        "backward": staticmethod(rules.backward),
        "jvp": staticmethod(rules.jvp),
        "vmap": staticmethod(batch),
    }
    differentiable = type(name, (torch.autograd.Function,), methods).apply  # type: ignore[attr-defined]

    def transformed(*args: Any) -> Any:
        return overload(*args) if _functionalizing() else differentiable(*args)

    return transformed


def has_tangent(value: Any) -> bool:
    """Whether a tensor carries a tangent of PyTorch's forward mode."""
    if not isinstance(value, torch.Tensor):
        return False
    return forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]
