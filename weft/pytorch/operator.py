"""A kernel as an operator of `torch.library`: schema, implementations, fake, autograd."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from weft.errors import NotDifferentiable
from weft.language import TensorType
from weft.loops.types import ScalarType
from weft.pytorch.call import DTYPES, allocate, argument_types, bind

if TYPE_CHECKING:
    from weft.pytorch.executable import Executable

LIBRARY = torch.library.Library("weft", "FRAGMENT")
_SCHEMA_TYPES = {"int": "SymInt", "float": "float", "bool": "bool", "number": "Scalar"}
_taken: set[str] = set()


def _unique(name: str) -> str:
    """The operator's name: the kernel's own, with a number where another kernel has it already."""
    for k in itertools.count():
        candidate = name if k == 0 else f"{name}_{k}"
        if candidate not in _taken:
            _taken.add(candidate)
            return candidate
    raise AssertionError


@dataclass(frozen=True)
class Operator:
    """An operator registered with PyTorch; called like the kernel."""

    overload: Any
    results: tuple[str | None, ...]
    parameters: tuple[str, ...]

    def __call__(self, *args: Any) -> Any:
        """The kernel's results: new tensors from the operator, written arguments as they were passed."""
        made = self.overload(*args)
        fresh = iter(() if made is None else made if isinstance(made, (tuple, list)) else (made,))
        given = dict(zip(self.parameters, args, strict=True))
        out = tuple(next(fresh) if r is None else given[r] for r in self.results)
        return None if not out else out[0] if len(out) == 1 else out


def define(executable: Executable) -> Operator:
    """Register an executable: its schema from its signature, and what PyTorch asks of an operator."""
    signature = executable.signature
    arguments = []
    for k, p in enumerate(signature.parameters):
        if p.kind == "tensor":
            mark = f"({chr(ord('a') + k)}!)" if p.name in signature.written else ""
            arguments.append(f"Tensor{mark} {p.name}")
        else:
            arguments.append(f"{_SCHEMA_TYPES[p.kind]} {p.name}")
    fresh = sum(r is None for r in signature.results)
    returns = "()" if fresh == 0 else "Tensor" if fresh == 1 else f"({', '.join(['Tensor'] * fresh)})"
    name = _unique(executable.name)
    LIBRARY.define(f"{name}({', '.join(arguments)}) -> {returns}", tags=(torch.Tag.pt2_compliant_tag,))

    def implementation(*args: Any) -> Any:
        made = executable.execute(args)
        made = made if isinstance(made, tuple) else () if made is None else (made,)
        made = tuple(m for m, r in zip(made, signature.results, strict=True) if r is None)
        return None if not made else made[0] if len(made) == 1 else made

    LIBRARY.impl(name, implementation, "CPU")
    LIBRARY.impl(name, implementation, "CUDA")
    torch.library.register_fake(f"weft::{name}", _fake(executable), lib=LIBRARY)
    setup, backward = _autograd(executable)
    torch.library.register_autograd(f"weft::{name}", backward, setup_context=setup, lib=LIBRARY)
    overload = getattr(torch.ops.weft, name).default
    return Operator(overload, signature.results, tuple(p.name for p in signature.parameters))


def _fake(executable: Executable) -> Callable[..., Any]:
    def fake(*args: Any) -> Any:
        types = argument_types(executable.signature, args)
        analysis = executable.specializable.analysis(types)
        function = analysis.function
        bound = bind(function, args)
        device = next((t.device for t in bound.tensors.values()), torch.device("cpu"))
        made = tuple(
            allocate(function, function.array(r), bound, device)
            for r in function.results
            if function.array(r).role == "result"
        )
        return None if not made else made[0] if len(made) == 1 else made

    return fake


# ---------------------------------------------------------------- autograd


@dataclass
class _Adjoints:
    """The executables that compute gradients, by the arguments that need them."""

    executable: Executable
    made: dict[tuple[Any, ...], Executable] = field(default_factory=dict)

    def of(self, types: tuple[TensorType | ScalarType, ...], wanted: tuple[str, ...]) -> Executable:
        from weft.pytorch.executable import adjoint_of

        key = (types, wanted)
        if key not in self.made:
            self.made[key] = adjoint_of(self.executable, types, wanted)
        return self.made[key]


def _autograd(executable: Executable) -> tuple[Callable[..., None], Callable[..., Any]]:
    signature = executable.signature
    adjoints = _Adjoints(executable)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        outputs = output if isinstance(output, (tuple, list)) else () if output is None else (output,)
        if signature.written:
            names = ", ".join(sorted(signature.written))
            raise NotDifferentiable(
                f"{executable.name} writes its argument(s) {names} in place, and a gradient is asked for",
                location=signature.location,
                remedy="write to a new tensor (`y = torch.empty_like(x)`), or call it under torch.no_grad()",
            )
        tensors = [a for a in inputs if isinstance(a, torch.Tensor)]
        ctx.save_for_backward(*tensors, *outputs)
        ctx.scalars = [None if isinstance(a, torch.Tensor) else a for a in inputs]
        ctx.is_tensor = [isinstance(a, torch.Tensor) for a in inputs]

    def backward(ctx: Any, *grads: Any) -> Any:
        saved = list(ctx.saved_tensors)
        inputs = [saved.pop(0) if t else s for t, s in zip(ctx.is_tensor, ctx.scalars, strict=True)]
        outputs = saved
        types = argument_types(signature, inputs)
        wanted = tuple(p.name for p, need in zip(signature.parameters, ctx.needs_input_grad, strict=True) if need)
        given = [
            torch.zeros_like(o) if g is None else g
            for o, g in zip(outputs, grads, strict=True)
            if DTYPES[o.dtype].category == "float"
        ]
        made = adjoints.of(types, wanted).operator(*inputs, *outputs, *given)
        found = dict(zip(wanted, made if isinstance(made, tuple) else (made,), strict=True))
        return tuple(found.get(p.name) for p in signature.parameters)

    return setup, backward


def flat(result: Any) -> Sequence[torch.Tensor]:
    """Results as a sequence."""
    return () if result is None else result if isinstance(result, tuple) else (result,)
