"""Tensor specs: what they read, print, refuse and make."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DeviceMismatch, ShapeMismatch, TypeMismatch, WeftError
from weft.loops.types import SCALAR_TYPES
from weft.pytorch.specs import TensorSpec, make_arguments, parse, parse_named


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    strides = draw(st.none() | st.tuples(*(st.integers(0, 9) for _ in shape)))
    return TensorSpec(draw(st.sampled_from(sorted(SCALAR_TYPES))), shape, strides)


@given(specs())
def test_text_and_spec_say_the_same(spec: TensorSpec) -> None:
    assert TensorSpec.parse(str(spec)) == spec


@given(specs(), st.integers(0, 3))
def test_made_tensors_fit_their_spec_and_repeat(spec: TensorSpec, seed: int) -> None:
    once, again = (make_arguments({"x": spec}, seed=seed)["x"] for _ in range(2))
    assert isinstance(once, torch.Tensor) and isinstance(again, torch.Tensor)
    assert tuple(once.shape) == spec.shape and once.dtype == getattr(torch, spec.dtype)
    assert spec.strides is None or once.numel() == 0 or once.stride() == spec.strides
    assert torch.equal(once, again)


def test_two_tensors_of_one_call_differ() -> None:
    made = make_arguments({"x": TensorSpec("float32", (8,)), "y": TensorSpec("float32", (8,)), "n": 3})
    assert isinstance(made["x"], torch.Tensor) and isinstance(made["y"], torch.Tensor)
    assert made["n"] == 3 and not torch.equal(made["x"], made["y"])


def test_spaces_and_a_trailing_comma_are_read() -> None:
    assert TensorSpec.parse(" float16[2, 3] : (1, 2) ") == TensorSpec("float16", (2, 3), (1, 2))
    assert TensorSpec.parse("float16[2,]") == TensorSpec("float16", (2,))
    assert TensorSpec.parse("int64[]") == TensorSpec("int64", ())


def test_of_a_tensor() -> None:
    assert TensorSpec.of(torch.empty(2, 3)) == TensorSpec("float32", (2, 3))
    assert TensorSpec.of(torch.empty(3, 2, dtype=torch.int8).t()) == TensorSpec("int8", (2, 3), (1, 2))


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("-2", -2), ("1e-6", 1e-6), ("0.5", 0.5), ("true", True), ("False", False)]
)
def test_numbers(text: str, value: float) -> None:
    read = parse(text)
    assert read == value and type(read) is type(value)


def test_named_arguments() -> None:
    assert parse_named(["x=float32[2,3]", "eps=1e-5"]) == {"x": TensorSpec("float32", (2, 3)), "eps": 1e-5}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("float32", ShapeMismatch),
        ("float32[2", ShapeMismatch),
        ("float32[2,x]", ShapeMismatch),
        ("float32[2,,3]", ShapeMismatch),
        ("float32[-1]", ShapeMismatch),
        ("float32[2,3]:(1)", ShapeMismatch),
        ("float32[2]:(-1)", ShapeMismatch),
        ("floaty[2]", TypeMismatch),
        ("complex32[2]", TypeMismatch),
    ],
)
def test_bad_specs_are_named_errors_with_a_remedy(text: str, error: type[WeftError]) -> None:
    with pytest.raises(error) as caught:
        parse(text)
    assert caught.value.remedy


def test_an_argument_without_a_name_is_refused() -> None:
    with pytest.raises(WeftError, match="names no argument"):
        parse_named(["float32[2]"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(DeviceMismatch, match="no device cuda"):
        make_arguments({"x": TensorSpec("float32", (2,))}, "cuda")
