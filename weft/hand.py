"""`weft.schedule`: a function transformed by hand, one step after another, each of them checked."""

from __future__ import annotations

import hashlib
import linecache
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from weft.analysis import LoopAnalysis
from weft.language import ArgumentType
from weft.loops.ir import Function
from weft.loops.python import python
from weft.loops.schedule import Verdict

if TYPE_CHECKING:
    from weft.loops.dependences import Dependence, Statement
    from weft.loops.transforms.nest import Proposal
    from weft.pytorch.kernel import Kernel


@dataclass(frozen=True)
class Step:
    """A transform that was made. why: the sentence that says why it changes no result; where it was forced, the error that
    it would have given. text: the program after it.
    """

    transform: str
    why: str
    text: str
    forced: bool = False

    def __str__(self) -> str:
        return f"{self.transform}: {'forced; ' if self.forced else ''}{self.why}"


@dataclass(frozen=True)
class HandSchedule:
    """A program and the transforms that made it what it is. Every transform gives a new one, or raises.

    function: the program as a nest; types: of its arguments, by name. `print` shows it as Python. A loop is named by its
    variable, a statement by its label (`statements`), a scalar or an array by its name in the text.

    Every transform raises IllegalTransform where it may change a result, unless `force=True`, and InapplicableTransform
    where it does not fit the loops.
    """

    function: Function
    types: Mapping[str, ArgumentType]
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    @cached_property
    def text(self) -> str:
        """The program as Python."""
        return self.steps[-1].text if self.steps else python(self.function)

    # ---- what it is

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """S1, S2, ... of the program as it is now."""
        from weft.loops.dependences import statements

        return statements(self.function)

    @cached_property
    def dependences(self) -> tuple[Dependence, ...]:
        """What each statement of the program needs from which."""
        from weft.loops.dependences import dependences

        return dependences(self.function)

    def analyze(self) -> LoopAnalysis:
        """What the analysis finds for the program as it is now."""
        from weft.loops.analyze import schedule
        from weft.loops.automatic.guards import guarded

        return LoopAnalysis(schedule(guarded(self.function)), self.function)

    @cached_property
    def loops(self) -> dict[str, Verdict]:
        """The class of each loop of the program, by variable."""
        return self.analyze().loops

    @cached_property
    def py(self) -> Callable[..., Any]:
        """The program as a plain Python function."""
        import torch

        file = _file(self.text, f"{self.function.name} after {len(self.steps)} steps")
        names: dict[str, Any] = {"torch": torch, "math": math, "__name__": "weft.by_hand"}
        exec(compile(self.text, file, "exec"), names)
        return names[self.function.name]  # type: ignore[no-any-return]

    def kernel(self, **options: Any) -> Kernel:
        """The program as a kernel. options: those of `weft.kernel`."""
        from weft.pytorch.kernel import kernel

        made: Kernel = kernel(self.py, **options)
        return made

    # ---- transforms

    def interchange(self, outer: str, inner: str, *, force: bool = False) -> HandSchedule:
        """The loop over `inner` around the one over `outer`, both in one nest in which each is all of the other's body."""
        from weft.loops.transforms.reorder import interchange

        return self._after(interchange(self.function, outer, inner), force)

    def reverse(self, loop: str, *, force: bool = False) -> HandSchedule:
        """The iterations of a loop from the last to the first."""
        from weft.loops.transforms.reorder import reverse

        return self._after(reverse(self.function, loop), force)

    def skew(self, inner: str, by: str, factor: int = 1, *, force: bool = False) -> HandSchedule:
        """`inner` counts from `factor * by` later on, `by` being a loop around it."""
        from weft.loops.transforms.reorder import skew

        return self._after(skew(self.function, inner, by, factor), force)

    def strip_mine(self, loop: str, size: int, *, force: bool = False) -> HandSchedule:
        """A loop over blocks of `size` iterations around one over the iterations of a block."""
        from weft.loops.transforms.reorder import strip_mine

        return self._after(strip_mine(self.function, loop, size), force)

    def split(self, loop: str, size: int, *, force: bool = False) -> HandSchedule:
        """A reduction in parts of `size` iterations that start anew and are combined by its algebra."""
        from weft.loops.transforms.split import split

        return self._after(split(self.function, loop, size), force)

    def tile(self, loops: Sequence[str], sizes: Sequence[int], *, force: bool = False) -> HandSchedule:
        """Loops over tiles around loops over the iterations of a tile."""
        from weft.loops.transforms.reorder import tile

        return self._after(tile(self.function, tuple(loops), tuple(sizes)), force)

    def fuse(self, first: str, second: str, *, force: bool = False) -> HandSchedule:
        """One loop in the place of two neighbours over the same range, over the variable of the first."""
        from weft.loops.transforms.parts import fuse

        return self._after(fuse(self.function, first, second), force)

    def distribute(self, loop: str, at: str | None = None, *, force: bool = False) -> HandSchedule:
        """Several loops in the place of one, each with a part of its body. at: the label of the statement that the second
        one starts with; None: as many as is legal. They are named after the loop: i, i_1, ...
        """
        from weft.loops.transforms.parts import distribute

        return self._after(distribute(self.function, loop, at), force)

    def peel(self, loop: str, *, first: int = 0, last: int = 0, force: bool = False) -> HandSchedule:
        """The first, or the last, iterations of a loop by themselves."""
        from weft.loops.transforms.parts import peel

        return self._after(peel(self.function, loop, first, last), force)

    def hoist(self, what: str, loop: str, *, force: bool = False) -> HandSchedule:
        """A scalar, or the statement of a label, from the body of a loop to before the loop."""
        from weft.loops.transforms.motion import hoist

        return self._after(hoist(self.function, what, loop), force)

    def expand(self, name: str, *loops: str, force: bool = False) -> HandSchedule:
        """A scalar, or an array made in the function, with a place of its own for every iteration of these loops."""
        from weft.loops.transforms.storage import expand

        return self._after(expand(self.function, name, loops), force)

    def rename(self, array: str, loop: str | None = None, *, force: bool = False) -> HandSchedule:
        """Reads of what is overwritten only later, from a copy. loop: one of the nest meant; None: the first that fits."""
        from weft.loops.transforms.storage import rename

        return self._after(rename(self.function, array, loop), force)

    def substitute(self, name: str, *, force: bool = False) -> HandSchedule:
        """An induction variable, told by the number of the iteration."""
        from weft.loops.transforms.scalars import substitute_induction

        return self._after(substitute_induction(self.function, name), force)

    def convert_if(self, statement: str, *, force: bool = False) -> HandSchedule:
        """The condition around a statement (a label) as a choice between values."""
        from weft.loops.transforms.scalars import convert_if

        return self._after(convert_if(self.function, statement), force)

    def parallel(self, loop: str, *, force: bool = False) -> HandSchedule:
        """The same program, with the proof that no iteration of a loop needs another one."""
        from weft.loops.transforms.motion import parallel

        return self._after(parallel(self.function, loop), force)

    def _after(self, proposal: Proposal, force: bool) -> HandSchedule:
        """The schedule after a transform. The text is parsed again, so that what was written is what there is."""
        from weft.language import Source, parse

        if proposal.refusal is not None and not force:
            raise proposal.refusal
        text = python(proposal.function)
        file = _file(text, f"{self.function.name} after {len(self.steps) + 1} steps")
        why = proposal.why if proposal.refusal is None else str(proposal.refusal)
        step = Step(proposal.transform, why, text, forced=proposal.refusal is not None)
        function = parse(Source.of_text(text, file=file), dict(self.types))
        return replace(self, function=function, steps=(*self.steps, step))


def _file(text: str, what: str) -> str:
    """A name for a program's text under which errors can cite its lines."""
    name = f"<{what}, {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return name


def schedule(function: Callable[..., Any] | str, types: Mapping[str, ArgumentType] | None = None) -> HandSchedule:
    """A function, a kernel, or the source text of a function, to be transformed by hand.

    types: of the arguments, by name; those that are not given are float32 tensors and numbers, as in `weft.analyze`.
    Raises the errors of the language.
    """
    from weft.language import infer_types, parse

    plain = getattr(function, "py", function)
    found = {**infer_types(plain), **(types or {})}
    return HandSchedule(parse(plain, found), found)
