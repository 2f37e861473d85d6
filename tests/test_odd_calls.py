"""Odd programs are refused by name, where they are wrong: no error of Python's own machinery reaches the user."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch

import weft
from tests.test_numbers import program
from weft import errors
from weft.errors import DivisionByZero, MathDomainError, NumberOverflow, TypeMismatch, WeftError

REFUSED: dict[str, type[WeftError]] = {
    "round(x[0], 2)": TypeMismatch,
    "math.log(2, 2, 2)": TypeMismatch,
    "math.sqrt()": TypeMismatch,
    "math.atan2(1.0)": TypeMismatch,
    "math.floor(1, 2)": TypeMismatch,
    "max(1)": TypeMismatch,
    "min(x[0])": TypeMismatch,
    "x.sum(dim=(0, 0))": TypeMismatch,
    "x.clamp()[0]": TypeMismatch,
    "10**400": NumberOverflow,
    "10.0**400": NumberOverflow,
    "2**100": NumberOverflow,
    "9223372036854775808": NumberOverflow,
    "1 << 100": NumberOverflow,
    "1 << -1": MathDomainError,
    "1 // 0": DivisionByZero,
    "1 % 0": DivisionByZero,
    "1 / 0": DivisionByZero,
    "0.0 ** -1": DivisionByZero,
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_python_does_not_compute_is_refused_where_it_stands(expression: str) -> None:
    function = program(f"def f(x):\n    x[0] = {expression}\n    return x\n")
    with pytest.raises(Exception):  # noqa: B017 - whatever Python raises
        function(torch.ones(3))
    with pytest.raises(REFUSED[expression]) as caught:
        weft.kernel(function)(torch.ones(3))
    error = caught.value
    assert error.message and error.remedy
    assert error.location is not None and error.location.line == 2
    assert error.location.file == function.__code__.co_filename
    assert "^" in str(error)


def test_functions_of_more_arguments_than_weft_knows() -> None:
    for expression in ("pow(2, 3, 5)", "round(2.567, 2)"):
        with pytest.raises(TypeMismatch, match="arguments"):
            weft.kernel(program(f"def f(x):\n    x[0] = {expression}\n    return x\n"))(torch.ones(3))


def test_constants_that_python_computes_are_computed() -> None:
    for expression in ("int()", "float()", "1 << 62", "2**62", "0 << 100", "-7 // 2", "max((1, 2))", "round(2.5)"):
        function = program(f"def f(x):\n    x[0] = {expression}\n    return x\n")
        x = torch.ones(3, dtype=torch.float64)
        assert torch.equal(weft.kernel(function)(x.clone()), function(x.clone()))


def test_every_class_of_error_is_raised_and_tested() -> None:
    """Each class for users is raised somewhere in weft, and some test expects it."""
    root = Path(__file__).parent.parent
    package = "\n".join(p.read_text() for p in (root / "weft").rglob("*.py"))
    tests = "\n".join(p.read_text() for p in (root / "tests").glob("test_*.py"))
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, WeftError) and c is not WeftError]
    assert len(classes) > 15
    for cls in classes:
        made = re.search(rf"\b{cls.__name__}\(", package.replace(f"class {cls.__name__}(", ""))
        named = any(issubclass(c, cls) and re.search(rf"\b{c.__name__}\b", package) for c in classes)
        assert made or named, f"{cls.__name__} is raised nowhere"
        family = [c.__name__ for c in classes if issubclass(c, cls)]
        assert any(re.search(rf"\b{name}\b", tests) for name in family), f"no test expects {cls.__name__}"
        assert cls.__doc__, cls.__name__
