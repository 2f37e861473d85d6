"""A nest printed as Python: the language parses it to the same meaning again, and plain PyTorch runs it."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests import fuzz_programs
from tests.examples import chunks
from tests.suites.classify import SUITES
from tests.test_kernels_meaning import inputs
from weft.errors import WeftError
from weft.kernels import LIBRARY
from weft.language import ArgumentType, Source, TensorType, parse
from weft.loops.interpret import interpret
from weft.loops.ir import Function, validate
from weft.loops.python import python
from weft.loops.types import BOOL, FLOAT64, INT64, SCALAR_TYPES

CASES = {name: case for suite in SUITES.values() for name, case in suite.items()}


def type_of(value: Any) -> ArgumentType:
    """The type of an argument."""
    if isinstance(value, torch.Tensor):
        return TensorType(SCALAR_TYPES[str(value.dtype).removeprefix("torch.")], value.dim())
    return BOOL if isinstance(value, bool) else INT64 if isinstance(value, int) else FLOAT64


def executed(text: str) -> Callable[..., Any]:
    """The function that a text defines, in plain Python."""
    names: dict[str, Any] = {"torch": torch, "math": math}
    exec(compile(text, "<printed>", "exec"), names)
    function: Callable[..., Any] = next(v for k, v in reversed(names.items()) if callable(v))
    return function


def outcome(run: Callable[..., Any], arguments: dict[str, Any]) -> list[torch.Tensor]:
    """What a function leaves in copies of its arguments, and what it returns."""
    own = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(*own.values())
    results = result if isinstance(result, tuple) else () if result is None else (result,)
    return [*(v for v in own.values() if isinstance(v, torch.Tensor)), *results]


def assert_same(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)


def assert_round_trip(function: Function, arguments: dict[str, Any], plain: Callable[..., Any] | None = None) -> None:
    """The printed text means what the nest does: parsed again, and run. plain: what it must do where it is run, if PyTorch
    rounds or fails otherwise than the nest. Printing what was printed gives the same text, but where names are of several
    kinds: what tells their kinds is then a name of the program, and is told anew.
    """
    arguments = {name: arguments[name] for name in function.parameters}
    text = python(function)
    again = parse(text, {k: type_of(v) for k, v in arguments.items()})
    validate(again)
    wanted = outcome(lambda *a: interpret(function, *a), arguments)
    assert_same(outcome(lambda *a: interpret(again, *a), arguments), wanted)
    assert_same(outcome(executed(text), arguments), wanted if plain is None else outcome(plain, arguments))
    once_more = parse(python(again), {k: type_of(v) for k, v in arguments.items()})
    kinds = re.search(r"_is_(int|uint|float|bool)", text)
    assert kinds or python(once_more) == python(again), "printing what was printed gives the same text"


@pytest.mark.parametrize("name", CASES)
def test_suites(name: str) -> None:
    for arguments in CASES[name].arguments(1):
        function = parse(CASES[name].function, {k: type_of(v) for k, v in arguments.items()})
        assert_round_trip(function, arguments)


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_library(name: str, dtype: torch.dtype) -> None:
    arguments = dict(zip(LIBRARY[name].example, inputs(name, (3, 5), dtype), strict=True))
    types = {k: type_of(v) for k, v in arguments.items()}
    assert_round_trip(parse(LIBRARY[name].kernel.py, types), arguments)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tensors hold what the interpreter's hold where nothing is written."""

    def empty(*shape: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:
        dtype = dtype or torch.get_default_dtype()
        sizes = shape[0] if len(shape) == 1 else shape
        return torch.full(
            (sizes,) if isinstance(sizes, int) else sizes, math.nan if dtype.is_floating_point else 77, dtype=dtype
        )

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch, "empty_like", lambda x, dtype=None: empty(x.shape, dtype=dtype or x.dtype))
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, *s, dtype=None: empty(*s, dtype=dtype or x.dtype))


@pytest.mark.parametrize("first", chunks(80, 20, 20))
def test_random_programs(first: int, poisoned: None) -> None:
    checked = 0
    for seed in range(first, first + 20):
        program = fuzz_programs.generate(seed)
        given = dict(zip(program.parameters, fuzz_programs.arguments(program, {"n": 3, "m": 4, "d": 2}), strict=True))
        plain = fuzz_programs.compiled(program.source, f"<fuzz {seed}>")
        try:
            function = parse(Source.of_text(program.source, "program"), {k: type_of(v) for k, v in given.items()})
            outcome(lambda *a, f=function: interpret(f, *a), {k: given[k] for k in function.parameters})
            outcome(plain, given)
        except (WeftError, IndexError, RuntimeError, ValueError, ArithmeticError):
            continue  # one of those that mean nothing
        assert_round_trip(function, given, plain)
        checked += 1
    assert checked > 10
