"""The operators that graphs of both levels have: each makes a value, and is checked as it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.errors import TypeMismatch
from weft.tensors.ir import Attribute, Block, Node, Size
from weft.tensors.operators import ELEMENTWISE
from weft.tensors.shapes import Making, is_name, made
from weft.tensors.tiles import shape_told, told


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a kernel graph, or a tile of a block graph."""

    graph: Builder = field(repr=False)
    node: Node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def dtype(self) -> str:
        return self.node.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        """Of a tile: of one that is whole. A length that a call decides is told as text."""
        texts = [told(d) for d in self.node.dims]
        return tuple(int(t) if t.isdigit() else t for t in texts)

    def __str__(self) -> str:
        return f"{self.name}: {shape_told(self.node.dims, self.dtype)}"


Operand = Value | int | float


class Builder:
    """What graphs of both levels have in common. A value is called after its operator unless `name` says otherwise."""

    def __init__(self, name: str) -> None:
        _require_name(name)
        self.name = name
        self._nodes: dict[str, Node] = {}

    @property
    def _block(self) -> Block | None:
        return None

    # ---- element by element; where shapes differ, dimensions of 1 are repeated, as in PyTorch

    def exp(self, x: Value, *, name: str = "") -> Value:
        return self._make("exp", (x,), {}, name)

    def silu(self, x: Value, *, name: str = "") -> Value:
        return self._make("silu", (x,), {}, name)

    def gelu(self, x: Value, *, name: str = "") -> Value:
        """By the error function."""
        return self._make("gelu", (x,), {}, name)

    def relu(self, x: Value, *, name: str = "") -> Value:
        return self._make("relu", (x,), {}, name)

    def clamp(self, x: Value, low: float, high: float, *, name: str = "") -> Value:
        return self._make("clamp", (x,), {"low": _number(low), "high": _number(high)}, name)

    def sqrt(self, x: Value, *, name: str = "") -> Value:
        return self._make("sqrt", (x,), {}, name)

    def square(self, x: Value, *, name: str = "") -> Value:
        return self._make("square", (x,), {}, name)

    def mul_scalar(self, x: Value, scalar: float, *, name: str = "") -> Value:
        return self._make("mul_scalar", (x,), {"scalar": _number(scalar)}, name)

    def add(self, a: Operand, b: Operand, *, name: str = "") -> Value:
        return self._make("add", (a, b), {}, name)

    def sub(self, a: Operand, b: Operand, *, name: str = "") -> Value:
        return self._make("sub", (a, b), {}, name)

    def mul(self, a: Operand, b: Operand, *, name: str = "") -> Value:
        return self._make("mul", (a, b), {}, name)

    def div(self, a: Operand, b: Operand, *, name: str = "") -> Value:
        return self._make("div", (a, b), {}, name)

    def pow(self, a: Operand, b: Operand, *, name: str = "") -> Value:
        return self._make("pow", (a, b), {}, name)

    def to(self, x: Value, dtype: Any, *, name: str = "") -> Value:
        """Rounded to a dtype. Nothing else rounds but what a graph returns."""
        return self._make("to", (x,), {"dtype": dtype_name(dtype)}, name)

    # ---- along dimensions

    def matmul(self, a: Value, b: Value, *, name: str = "") -> Value:
        """Of matrices [..., m, k] and [..., k, n]; dimensions before these are repeated where they are 1."""
        return self._make("matmul", (a, b), {}, name)

    def reduction(self, x: Value, dim: int, size: int = 1, *, name: str = "") -> Value:
        """Sums along a dimension, of which `size` elements stay: each the sum of equally many neighbours."""
        return self._make("reduction", (x,), {"dim": _dimension(x, dim), "size": size}, name)

    def reduction_max(self, x: Value, dim: int, *, name: str = "") -> Value:
        """The largest along a dimension, which stays as one of 1."""
        return self._make("reduction_max", (x,), {"dim": _dimension(x, dim)}, name)

    def rms_norm(self, x: Value, *, eps: float = 1e-6, name: str = "") -> Value:
        """`x / sqrt(mean(x * x) + eps)` along the last dimension."""
        return self._make("rms_norm", (x,), {"eps": _number(eps)}, name)

    def concat(self, a: Value, b: Value, dim: int, *, name: str = "") -> Value:
        """Side by side along a dimension."""
        return self._make("concat", (a, b), {"dim": _dimension(a, dim)}, name)

    # ---- making

    def _make(
        self, operator: str, inputs: Sequence[Operand], attributes: dict[str, Attribute], name: str
    ) -> Value:
        nodes = tuple(self._own(operator, v) for v in inputs)
        return self._add(made(Making(operator, nodes, attributes, self._block), self._named(name, operator)))

    def _own(self, operator: str, operand: Operand) -> Node | float:
        """The node of an operand, or the number."""
        if isinstance(operand, Value):
            if self._nodes.get(operand.name) is not operand.node:
                raise TypeMismatch(
                    f"{operator}({operand}): {operand.name} is of another graph",
                    remedy="pass values of this graph; a block graph has those of its inputs",
                )
            return operand.node
        if isinstance(operand, bool) or not isinstance(operand, (int, float)) or operator not in ELEMENTWISE:
            raise TypeMismatch(f"{operator}: {operand!r} is no value of a graph", remedy="pass what an operator gave")
        return float(operand)

    def _named(self, name: str, operator: str) -> str:
        """The name of a new value."""
        if name:
            _require_name(name)
            if name in self._nodes:
                raise TypeMismatch(f"{operator}: there is a value {name}", remedy="choose another name")
            return name
        known, number = operator, 1
        while known in self._nodes or not is_name(known):
            known, number = f"{operator}_{number}", number + 1
        return known

    def _add(self, node: Node) -> Value:
        self._nodes[node.name] = node
        return Value(self, node)


def dtype_name(dtype: Any) -> str:
    """Of a dtype of PyTorch, or of its name."""
    return str(dtype).removeprefix("torch.")


def _number(value: Any) -> float:
    """As a float; what is no number stays, and is refused where the operator is checked."""
    fine = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if fine else value


def _dimension(x: Value, dim: int) -> int:
    """Counted from the first."""
    return dim + len(x.node.dims) if dim < 0 else dim


def _require_name(name: str) -> None:
    if not is_name(name):
        raise TypeMismatch(f"{name!r} is no name", remedy="names are identifiers of Python, and not torch, math or F")
