"""Calls of a function that is a kernel of views of its arguments: `outside(kernel(*inside(*args)))`.

PyTorch makes the views of a first call, and differentiates them; calls like it launch what that one did, on the same memory,
and autograd records them as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling

from weft.pytorch.call import gathered
from weft.pytorch.executable import Executable, call_key
from weft.pytorch.quick import MISS, Seen, Ways, eager, never
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
    own = tuple(inside(*args))
    program, made = kernel.program, kernel(*own)
    given = outside(made)
    if not program.has_variant(own):
        views = Views(inside, outside, (tuple(made.shape),), tuple(range(len(args))))
        ways.add(way_with_views(program, args, own, (made,), (given,), views), args)
    return given


def way_with_views(
    program: Executable, args: tuple[Any, ...], own: tuple[Any, ...], made: Sequence[Any], given: Sequence[Any], views: Views
) -> Callable[..., Any]:
    """The quick way of calls like one that was made; `never` where there is none. own: the program's arguments; made: its
    results; given: those of the call.
    """
    outer = (*(args[k] for k in views.positions), *given)
    if not eager() or not is_same_memory(outer, (*own, *made)):
        return never
    if gathered(program.signature, own) is not own or program.signature.written:
        return never
    executable, recorder, key = program, None, call_key(program.signature, own)
    if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in own):
        recorded = program.recorded(key, own, views)
        if recorded is None:
            return never
        executable, recorder = recorded
    plan = executable.call(key, own)
    if not plan.results:
        return never
    constants = frozenset(range(len(args))) - {*views.positions}
    results = dict(zip(plan.results, map(geometry_of, given), strict=False))  # what is kept lies as the program has it
    return plan.seen(Seen(args, results, constants, recorder, plan.defaults))
