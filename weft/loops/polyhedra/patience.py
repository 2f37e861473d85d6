"""How long isl may think: questions are bounded in steps, searches in questions, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import islpy

from weft.loops.accesses import Access

# Steps of isl (some 200 ns each) after which a question is too hard: what it asks for then counts as not proven. A number of
# steps, and no time, so that an analysis gives the same answers on every machine.
_PATIENCE = 200_000
P = ParamSpec("P")
R = TypeVar("R")


class TooHard(Exception):
    """isl has taken more steps than a question may take."""


@contextmanager
def patient() -> Iterator[None]:
    """Raise TooHard for what takes isl too long in the block. Of blocks in each other the outer one counts."""
    context = islpy.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(_PATIENCE)
    try:
        yield
    except islpy.Error:  # of a text that it gives up reading, isl says that it is no set
        raise TooHard from None
    finally:
        context.set_max_operations(0)


class SearchOver(Exception):
    """A search has asked as many questions as it may."""


class Search:
    """Work that is worth some questions and no more: what comes after them raises SearchOver. Questions, and no seconds, so
    that a search ends at the same place on every machine; what else takes time is told as the questions that would take as
    long. A search in another one uses up both.
    """

    def __init__(self, questions: int) -> None:
        self.left = questions

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """What is asked in the block counts."""
        token = _searches.set((*_searches.get(), self))
        try:
            yield
        finally:
            _searches.reset(token)

    def count(self, questions: int) -> None:
        self.left -= questions
        if self.left < 0:
            raise SearchOver


_searches: ContextVar[tuple[Search, ...]] = ContextVar("searches", default=())


def spend(questions: int = 1) -> None:
    """Count questions, or work that takes as long, in the searches that are going on."""
    for search in _searches.get():
        search.count(questions)


def unless_too_hard(answer: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A question with the answer that claims nothing, for where isl takes too long. Before that it is asked without the
    conditions of its accesses, which are what makes sets large: of more iterations, less can be claimed.
    """

    def decorate(question: Callable[P, R]) -> Callable[P, R]:
        @wraps(question)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            spend()
            with suppress(TooHard), patient():
                return question(*args, **kwargs)
            if answer is not False and any(isinstance(a, Access) and a.guard for a in args):
                plain = tuple(replace(a, guard=()) if isinstance(a, Access) else a for a in args)
                with suppress(TooHard), patient():
                    return question(*plain, **kwargs)  # type: ignore[arg-type]
            return cast(R, answer)

        return ask

    return decorate
