"""Every nest that the analysis makes is held against the rules of `weft.loops.ir.validate`, so that a broken one is found
where it is made: each transform's result, each part of a distribution, and the nests that a schedule ends in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.loops import analyze
from weft.loops.automatic.distribute import Distributed
from weft.loops.automatic.rewriting import Rewriting
from weft.loops.ir import For, Function, validate
from weft.loops.schedule import Schedule


class BrokenNest(Exception):  # noqa: N818 - no AssertionError: a test that expects none of those must not swallow it
    """A transform made a nest that is none."""


def install() -> None:
    """From now on, in this process. Does nothing where it was done before."""
    if hasattr(analyze.schedule, "__wrapped__"):
        return
    for kind in (Rewriting, Distributed):
        kind.__init__ = _validated(kind.__init__)  # type: ignore[method-assign]
    for name in ("schedule", "transformed"):
        setattr(analyze, name, _scheduled(getattr(analyze, name)))


def _validated(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def made(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        _hold(self.function, "")

    return made


def _scheduled(schedule: Callable[[Function], Schedule]) -> Callable[[Function], Schedule]:
    @functools.wraps(schedule)
    def made(function: Function) -> Schedule:
        found = schedule(function)
        _hold(found.function, " of a schedule")
        for nest in found.nests:
            body = nest.body
            for axis in reversed(nest.axes):
                body = (For(axis.var, axis.start, axis.stop, axis.step, (), body),)
            _hold(replace(found.function, body=body), f" {nest.name} of a schedule")
        return found

    return made


def _hold(function: Function, what: str) -> None:
    try:
        validate(function)
    except (AssertionError, KeyError) as fault:
        raise BrokenNest(f"the nest{what} of {function.name} breaks a rule: {fault!r}") from fault
