"""`weft.kernel`: a plain Python function with loops as a PyTorch operator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from weft.errors import TypeMismatch
from weft.language import read_signature
from weft.pytorch.call import argument_types, plain
from weft.pytorch.executable import Executable
from weft.pytorch.operator import define, has_tangent, no_forward_mode
from weft.pytorch.quick import MISS
from weft.pytorch.specialize import Specializer

if TYPE_CHECKING:
    from weft.check.report import Report

_TENSORS = (torch.Tensor, torch.nn.Parameter)


class Kernel(Executable):
    """A compiled function. Call it like the function; `.py` is the function itself, and its meaning.

    Results are new tensors; arguments that the function writes are written in place.
    """

    def __init__(self, function: Callable[..., Any], example: Mapping[str, Any] | None = None) -> None:
        signature = read_signature(function)
        super().__init__(function.__name__, signature, Specializer(function, signature))
        self.py = function
        self.example: Mapping[str, Any] = dict(example or {})
        self._arity = len(signature.parameters)
        self._operator = define(self)  # now: torch.compile cannot register an operator while it traces a call
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<weft.Kernel {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return self.operator(*(self.bind(args, kwargs) if kwargs or len(args) != self._arity else args))
        if not kwargs:
            try:
                made = self.quick(*args)
                if made is not MISS:
                    return made
            except TypeError:  # another number of arguments: told below
                pass
        if kwargs or len(args) != self._arity:
            args = self.bind(args, kwargs)
        if not _eager():
            return self._dispatched(args)
        # The next quickest, for plain tensors when nothing of PyTorch's wants to see the call: one look-up and go.
        key: list[Any] = [torch.get_default_dtype()]
        differentiable = False
        try:
            for a in args:
                kind = type(a)
                if kind in _TENSORS:
                    key += (a.dtype, a.shape, a.stride(), a.device, a.data_ptr() & 31)
                    differentiable = differentiable or a.requires_grad
                elif kind is float:
                    key.append(float)
                elif kind is int or kind is bool:
                    key += (kind, a)
                else:
                    return self._dispatched(args)
        except RuntimeError:  # a tensor without strides or storage
            return self._dispatched(args)
        if differentiable and torch.is_grad_enabled():
            return self._dispatched(args)
        call = self._calls.get(tuple(key))
        if call is None:
            call = self.prepared(tuple(key), args)
        self.quick = call.quick
        return call.run(args)

    def __reduce__(self) -> str:
        return self.py.__qualname__  # as functions do: by name, so that a copy is the kernel itself

    def _dispatched(self, args: tuple[Any, ...]) -> Any:
        """The call through PyTorch's dispatcher, which autograd, modes and transforms listen to."""
        args = tuple(map(plain, args))
        argument_types(self.signature, args)
        if forward_ad._current_level >= 0 and any(map(has_tangent, args)):
            raise no_forward_mode(self.signature)
        return self.operator(*args)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments in order, defaults filled in. Raises TypeMismatch."""
        parameters = self.signature.parameters
        names = [p.name for p in parameters]
        twice = [n for n in kwargs if n in names[: len(args)]]
        unknown = [n for n in kwargs if n not in names]
        if len(args) > len(names) or twice or unknown:
            fact = f"given {len(args)} arguments by position"
            if twice or unknown:
                fact = f"{(twice or unknown)[0]!r} is {'given twice' if twice else 'no parameter'}"
            raise TypeMismatch(
                f"{self.name} takes ({', '.join(names)})",
                location=self.signature.location,
                evidence=[fact],
                remedy="pass each parameter once",
            )
        bound = list(args)
        for p in parameters[len(args) :]:
            if p.name in kwargs:
                bound.append(kwargs[p.name])
            elif p.has_default:
                bound.append(p.default)
            else:
                raise TypeMismatch(
                    f"{self.name} needs its argument {p.name!r}",
                    location=self.signature.location,
                    evidence=[f"its parameters are ({', '.join(names)})"],
                    remedy=f"pass {p.name}",
                )
        return tuple(bound)

    # ---- looking inside

    def explain(self, *args: Any, format: str = "text", detail: bool = False) -> str:
        """The class of each loop and the plan, for these arguments (tensors or specs).

        detail: also why, the dependences and their cycles, the transforms, the program that runs, remedies. format: "text",
        "mermaid" (the dependence graph) or "html" (a page with everything). Without arguments the kernel's example stands in.
        """
        from weft.pytorch.inspection import explain

        return explain(self, args, format, detail)

    def source(self, *args: Any, arch: str | None = None) -> str:
        """The generated code: CUDA C++ for arch "sm_80", "sm_86", "sm_89" or "sm_90a", C++ for "cpu"; by default for
        what this machine has.
        """
        from weft.pytorch.inspection import source

        return source(self, args, arch)

    def resources(self, *args: Any, arch: str | None = None) -> Any:
        """Registers, spills and shared memory of each kernel, from the compiler, for a CUDA architecture."""
        from weft.pytorch.inspection import resources

        return resources(self, args, arch)

    def check(
        self, *args: Any, seeds: int = 1, arch: str = "sm_90a", tolerance: float | None = None, gradients: bool = False
    ) -> Report:
        """Execute on the CPU the CUDA that a call would launch, every thread and asynchronous copy of it, and hold the
        results against the plain Python; no GPU is needed.

        args: tensors (on any device; they are copied and never changed), specs such as "float32[64,1024]" (random
        tensors), numbers; without any, the kernel's example. seeds: how many schedules of the threads to try. arch: one of
        "sm_80", "sm_86", "sm_89", "sm_90a". tolerance: how far an element may be off, of its magnitude; None takes 2e-5
        for float32, 1e-10 for float64, 2e-3 for float16, 1.6e-2 for bfloat16. gradients: check the kernels of the
        gradients too, for the tensors that require one, or for all of a float dtype if none does.

        Returns a report: `.ok`, `.findings` (races, accesses out of bounds, reads of what no one wrote, deadlocks, ...),
        `.comparisons`, and costs by line (sectors, bank conflicts); `print(report)`, `report.save("check.html")`. Raises
        the errors of a call; NotDifferentiable where gradients are asked of a kernel that has none.
        """
        from weft.pytorch.check import check_call

        return check_call(self, args, seeds=seeds, arch=arch, tolerance=tolerance, gradients=gradients)


@overload
def kernel(function: Callable[..., Any], *, example: Mapping[str, Any] | None = None) -> Kernel: ...
@overload
def kernel(
    function: None = None, *, example: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | None = None, *, example: Mapping[str, Any] | None = None
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function whose loops weft compiles.

    example: inputs that stand in where none are given, as `{"x": "float32[64,1024]", "eps": 1e-6}`.
    """
    if function is None:
        return lambda f: Kernel(f, example)
    return Kernel(function, example)


def _eager() -> bool:
    """Whether no mode or transform of PyTorch's is active that must see every operator."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )
