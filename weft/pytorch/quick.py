"""The shortest way through a call that was made before.

PyTorch's own guard (the one torch.compile uses) tells in one C call whether the tensors are like those of the last call:
plain, strided, of the same dtype, device, sizes and strides, and without a gradient to record. If they are, and lie as
aligned, all that is left is to allocate the results, take addresses and launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad

from weft.plan.facts import Geometry
from weft.runtime.quick import MOST_WAYS, together

# What a quick call gives when the call is not like the one it was made for.
MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS"})()


def never(*args: Any) -> Any:
    """The quick call of what was never called."""
    return MISS


REMEMBERED = MOST_WAYS  # quick ways of what is called with operands of several kinds in turn
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
