"""Which of ATen's operators weft takes: element by element, along dimensions, by other subscripts."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from weft.dynamo.sizes import Size, sizes

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Elementwise:
    """text: in weft's language, of arguments by the names that ATen's schema gives them. takes: what operands are converted to
    first: the dtype of the result, the one that they have in common, or bool.
    """

    text: str
    takes: str = "result"

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(re.findall(r"{(\w+)}", self.text)))


_UNARY = (
    "abs", "neg", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "sigmoid",
    "lgamma", "digamma", "floor", "ceil", "trunc", "round", "frac", "sign", "sgn", "relu", "square", "bitwise_not",
)  # fmt: skip
_BINARY = (
    "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "fmod", "remainder", "copysign", "logaddexp", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
)  # fmt: skip
_INFIX = {"mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

ELEMENTWISE: dict[str, Elementwise] = {
    **{f"aten.{name}": Elementwise(f"torch.{name}({{self}})") for name in _UNARY},
    **{f"aten.{name}": Elementwise(f"torch.{name}({{self}}, {{other}})") for name in _BINARY},
    **{
        f"aten.{name}": Elementwise(f"{{self}} {sign} {{other}}", "result" if name == "mul" else "common")
        for name, sign in _INFIX.items()
    },
    **{
        f"aten.logical_{name}": Elementwise(f"torch.logical_{name}({{self}}, {{other}})", "bool")
        for name in ("and", "or", "xor")
    },
    **{f"aten.{name}": Elementwise(f"torch.{name}({{self}})", "common") for name in ("isnan", "isinf", "signbit")},
    "aten.logical_not": Elementwise("torch.logical_not({self})", "bool"),
    "aten.add": Elementwise("{self} + {other}"),
    "aten.sub": Elementwise("{self} - {other}"),
    "aten.div": Elementwise("{self} / {other}"),
    "aten.pow": Elementwise("torch.pow({self}, {exponent})"),
    "aten.where": Elementwise("torch.where({condition}, {self}, {other})"),
    "aten.gelu": Elementwise("F.gelu({self}, approximate={approximate!r})"),
    "aten.leaky_relu": Elementwise("F.leaky_relu({self}, {negative_slope})"),
    "aten.hardtanh": Elementwise("torch.clamp({self}, {min_val}, {max_val})"),
    "aten.clamp": Elementwise("torch.clamp({self}, {min}, {max})"),
    "aten.clone": Elementwise("{self}"),
    "aten._to_copy": Elementwise("{self}"),
    "prims.convert_element_type": Elementwise("{a}"),
}  # fmt: skip
CONVERSIONS = ("aten._to_copy", "prims.convert_element_type")
FOLDS = ("aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.prod", "aten.any", "aten.all", "aten.var", "aten.var_mean")
PRODUCTS = ("aten.mm", "aten.addmm")
SCANS = ("aten.cumsum", "aten.cumprod")
SELECTIONS = ("aten.gather", "aten.embedding", "aten.index", "aten.index_select")
INSERTIONS = ("aten.scatter", "aten.scatter_add")
PARTS = ("aten.cat", "aten.constant_pad_nd", "aten.slice_scatter", "aten.select_scatter", "aten.flip")
CONSTANTS = ("aten.full", "aten.full_like", "aten.scalar_tensor", "aten.arange")
# What PyTorch does without a launch, and a kernel by its subscripts
VIEWS = (
    "aten.view", "aten._unsafe_view", "aten.reshape", "aten.permute", "aten.transpose", "aten.t", "aten.expand",
    "aten.unsqueeze", "aten.squeeze", "aten.slice", "aten.select", "aten.alias", "aten.detach",
)  # fmt: skip
SPLITS = ("aten.split", "aten.split_with_sizes")
RESHAPES = ("aten.view", "aten._unsafe_view", "aten.reshape")

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)


def name_of(node: fx.Node) -> str:
    """Of an operator: its namespace and name, without the overload."""
    target = node.target
    if node.op != "call_function":
        return node.op
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.replace("::", ".")
    return "getitem" if target is operator.getitem else str(getattr(target, "__name__", target))


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments by the names of the schema, defaults among them."""
    assert isinstance(node.target, torch._ops.OpOverload)
    found: dict[str, Any] = {}
    for number, argument in enumerate(node.target._schema.arguments):
        if number < len(node.args):
            found[argument.name] = node.args[number]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def opmath(dtype: torch.dtype) -> torch.dtype:
    """What values of a dtype are computed in."""
    return torch.float32 if dtype in HALVES else dtype


def meta(node: fx.Node) -> Any:
    return node.meta.get("val")


def dtype_of(node: fx.Node) -> torch.dtype:
    made: torch.dtype = meta(node).dtype
    return made


def shape_of(node: fx.Node) -> tuple[Size, ...]:
    return sizes(meta(node).shape)


def is_view(node: fx.Node) -> bool:
    """Whether it is another look at a tensor, one part of what is split among them."""
    if name_of(node) == "getitem":
        return name_of(_given(node)) in SPLITS
    return node.op == "call_function" and name_of(node) in VIEWS and "dtype" not in str(node.target)


def is_reshape(node: fx.Node) -> bool:
    return is_view(node) and name_of(node) in RESHAPES


def is_constant(node: fx.Node) -> bool:
    return node.op == "call_function" and name_of(node) in CONSTANTS


def base(node: fx.Node) -> fx.Node:
    """What a view, or a part of several results, is of."""
    made = _given(node)
    return _given(made) if name_of(made) in SPLITS else made


def root(node: fx.Node) -> fx.Node:
    """What a view of views is of; a value that is none is its own."""
    while is_view(node):
        node = base(node)
    return node


def factors(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """Of a product."""
    a, b = node.args[-2:]
    assert isinstance(a, fx.Node) and isinstance(b, fx.Node)
    return a, b


def _given(node: fx.Node) -> fx.Node:
    made = node.args[0]
    assert isinstance(made, fx.Node)
    return made
