"""Calls of a function that is a kernel of views of its arguments: `outside(kernel(*inside(*args)))`.

PyTorch makes the views of a first call; calls like it launch what that one did, on the same memory. Autograd records each as
one step on the function's own arguments, which it keeps; PyTorch's derivatives of the views lead from the kernel's to those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling

from weft.pytorch.call import gathered
from weft.pytorch.executable import Executable, call_key
from weft.pytorch.quick import MISS, Seen, Ways, eager
from weft.pytorch.views import Views, geometry_of, is_same_memory

if TYPE_CHECKING:
    from weft.pytorch.kernel import Kernel


def called_with_views(
    kernel: Kernel,
    ways: Ways,
    args: tuple[Any, ...],
    inside: Callable[..., Sequence[Any]],
    outside: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    """The call, whose quick way is one of `ways` afterwards if it has one."""
    if is_compiling():
        return outside(kernel(*inside(*args)))
    if (known := ways.earlier(args)) is not MISS:
        return known
    program, positions = kernel.program, tuple(range(len(args)))
    if is_recorded(args):
        with torch.no_grad():
            own = tuple(inside(*args))
        if not program.has_variant(own):
            made = recorded_with_views(program, ways, args, own, inside, outside, positions)
            if made is not MISS:
                return made
        return outside(kernel(*inside(*args)))
    own = tuple(inside(*args))
    made = kernel(*own)
    given = outside(made)
    if eager() and not program.has_variant(own) and is_same_memory((*args, given), (*own, made)) and _is_whole(program, own):
        plan = program.plan(own)
        if plan.results:
            ways.add(plan.seen(Seen(args, {plan.results[0]: geometry_of(given)}, defaults=plan.defaults)), args)
    return given


def recorded_with_views(
    program: Executable,
    ways: Ways,
    args: tuple[Any, ...],
    own: tuple[Any, ...],
    inside: Callable[..., Sequence[Any]],
    outside: Callable[[torch.Tensor], torch.Tensor],
    positions: tuple[int, ...],
) -> Any:
    """A call that autograd records as one step on its arguments, whose quick way is one of `ways` afterwards if it has one;
    MISS where it cannot be. own: the program's arguments, views of those at `positions` that are not recorded.
    """
    passed = [args[k] for k in positions]
    if not eager() or not is_same_memory(passed, own):
        return MISS
    key = call_key(program.signature, own)
    executable = program.recorded(key, own)
    if executable is None:
        return MISS
    shown = len(program.signature.results)
    with torch.no_grad():
        plan = executable.call(key, own)
        made = plan.tensors(own)
        made = made if isinstance(made, tuple) else (made,)
        given = tuple(_of_its_own(outside(m)) for m in made[:shown])
    if not is_same_memory(given, made[:shown]):
        return MISS
    views = Views(inside, outside, tuple(tuple(m.shape) for m in made[:shown]), positions)
    recorder = ways.recorder(executable, args, lambda: executable.recorder(args, shown, views))
    if plan.results:
        constants = frozenset(range(len(args))) - {*positions}
        results = dict(zip(plan.results, map(geometry_of, given), strict=False))  # what is kept lies as the program has it
        ways.add(plan.seen(Seen(args, results, constants, recorder, plan.defaults)), args)
    return recorder(args, (*given, *made[shown:]))


def is_recorded(args: Sequence[Any]) -> bool:
    """Whether autograd records a call."""
    return torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


def _is_whole(program: Executable, own: tuple[Any, ...]) -> bool:
    """Whether a call of a program is one on tensors that lie on one device, none of which it writes."""
    return gathered(program.signature, own) is own and not program.signature.written


def _of_its_own(view: torch.Tensor) -> torch.Tensor:
    """A view as a tensor of the same memory that is no view to autograd."""
    return view.new_empty(0).set_(view.untyped_storage(), view.storage_offset(), view.shape, view.stride())
