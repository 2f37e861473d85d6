"""What tensor graphs refuse as they are built and called: errors with operator, dimensions and a remedy; and how they look."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from weft.errors import ShapeMismatch, TypeMismatch, WeftError
from weft.graph import BlockGraph, KernelGraph


def graphs() -> tuple[KernelGraph, Any, Any, BlockGraph, Any, Any]:
    g = KernelGraph("g")
    x, w = g.input("x", (10, "k"), "float16"), g.input("w", ("k", 12), "float16")
    block = BlockGraph((4,), 2)
    return g, x, w, block, block.input(x, (0,), 1), block.input(w, (-1,), 0)


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (lambda g, x, w, *_: g.matmul(w, x), r"matmul\(w: float16\[k, 12\], x: float16\[10, k\]\): .* 12 elements, .* 10"),
    (lambda g, x, w, *_: g.add(x, w), r"add\(.*\): dimension -2 has 10 and k elements"),
    (lambda g, x, *_: g.reduction(x, 2), r"reduction\(x: .*\): there is no dimension 2"),
    (lambda g, x, *_: g.reduction(x, 0, 3), r"10 elements are not 3 groups"),
    (lambda g, x, *_: g.reduction(x, 1, 2), r"k elements are not 2 groups"),
    (lambda g, x, *_: g.clamp(x, 2, 1), r"clamp\(.*\): low is 2.0, high is 1.0"),
    (lambda g, x, *_: g.mul_scalar(x, "2"), r"mul_scalar\(.*\): scalar is '2'"),
    (lambda g, x, *_: g.add(x, float("nan")), r"an operand is nan"),
    (lambda g, *_: g.add(1.0, 2.0), r"no operand is a tensor"),
    (lambda g, x, *_: g.to(x, torch.int32), r"to\(.*\): dtype is int32"),
    (lambda g, *_: g.input("y", (3,), "int64"), r"input y: int64\[3\]: dtype is int64"),
    (lambda g, *_: g.input("y", (-3,)), r"-3 is no size"),
    (lambda g, *_: g.input("x", (3,)), r"there is a value x"),
    (lambda g, *_: g.input("if", (3,)), r"'if' is no name"),
    (lambda g, x, w, block, tx, tw: g.exp(tx), r"exp\(.*\): x is of another graph"),
    (lambda g, x, w, block, *_: block.input(x, (2,)), r"input_map names dimension 2"),
    (lambda g, x, w, block, *_: block.input(x, (0, 1)), r"input_map is \(0, 1\), the grid \(4,\)"),
    (lambda g, x, w, block, *_: block.input(x, (0,), 3), r"forloop_dim names dimension 3"),
    (lambda g, x, *_: BlockGraph((2, 2)).input(x, (0, 0)), r"axes x and y of the grid cut dimension 0"),
    (lambda g, x, w, block, tx, tw: block.output(tx, (0,)), r"output\(.*\): x differs from turn to turn"),
    (
        lambda g, x, w, block, tx, tw: block.output(block.accumulate(block.reduction(tx, 0), "sum")),
        r"differs along axis x of the grid",
    ),
    (lambda g, x, w, block, tx, tw: block.accumulate(tx), r"accumulate\(.*\): the tiles along dimension 1 are not all"),
    (lambda g, x, w, block, tx, tw: block.mul(tx, block.accumulate(tx, "sum")), r"in the loop and after it"),
    (lambda g, x, w, block, tx, tw: block.accumulate(tx, "median"), r"kind is 'median'"),
    (lambda g, x, w, block, tx, tw: block.accumulate(tx, "sum_to_dim"), r"size is missing"),
    (lambda g, x, w, block, tx, tw: block.add(tx, block.input(x, (-1,), 1)), r"dimension -2 has 3 and 10 elements"),
    (lambda g, x, w, block, tx, tw: g.customized((x,), block), r"block has 2 inputs and 0 outputs"),
    (lambda g, *_: BlockGraph((0,)), r"grid \(0,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=lambda v: v if isinstance(v, str) else "")
def test_refused(build: Callable[..., Any], message: str) -> None:
    with pytest.raises(WeftError, match=message) as raised:
        build(*graphs())
    assert isinstance(raised.value, (ShapeMismatch, TypeMismatch)) and raised.value.remedy


def called() -> KernelGraph:
    g, x, w, *_ = graphs()
    g.output(g.matmul(x, w))
    return g


@pytest.mark.parametrize(
    ("shapes", "dtype", "error"),
    [
        (((10, 5), (5, 12)), torch.float32, TypeMismatch),
        (((10, 5),), torch.float16, TypeMismatch),
        (((10, 5), (5, 12, 1)), torch.float16, TypeMismatch),
        (((10, 5), (6, 12)), torch.float16, ShapeMismatch),
        (((9, 5), (5, 12)), torch.float16, ShapeMismatch),
    ],
)
def test_calls_are_checked(shapes: Any, dtype: torch.dtype, error: type[WeftError]) -> None:
    with pytest.raises(error) as raised:
        called()(*(torch.zeros(s, dtype=dtype) for s in shapes))
    assert raised.value.remedy


def test_a_graph_without_outputs_is_none() -> None:
    with pytest.raises(TypeMismatch, match="g has no outputs"):
        graphs()[0](torch.zeros(1))


@pytest.mark.parametrize("text", ["{}", "[", '{"version": 2}', called().to_json().replace('"float16"', '"float32"', 1)])
def test_texts_that_are_no_graph(text: str) -> None:
    with pytest.raises(WeftError):
        KernelGraph.from_json(text)


def test_it_prints_and_draws_itself() -> None:
    g = called()
    assert str(g) == "g(x: float16[10, k], w: float16[k, 12])\n  matmul = matmul(x, w)  # float16[10, 12]\n  return matmul"
    drawn = g.mermaid()
    assert drawn.startswith("flowchart TD\n") and re.search(r"\n    w --> matmul\n", drawn)


def test_a_graph_that_grows_is_another_one() -> None:
    g = called()
    given = torch.ones(10, 3).half(), torch.ones(3, 12).half()
    before = g.to_json()
    assert g(*given).shape == (10, 12)
    g.output(next(iter([g.input("z", (1,))])))
    assert g.to_json() != before and len(g(*given, torch.zeros(1))) == 2
