"""Sums that a loop rescales as a running maximum grows, relative to the last one from the start: `exp(x - so_far)` summed with
what there is times `exp(previous(so_far) - so_far)` is the sum of `exp(x - largest)`.

That is the law of `weft.loops.algebra.cascades`, for the operators of a block graph: what turns after a term multiply it by
telescopes, to the ratio of the last scale and its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.loops.algebra.cascades import Running, cascade, unrounded
from weft.loops.ir import Const, Expr, Op, Ref, Round
from weft.loops.types import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from weft.tensors.ir import LOOP, Node
from weft.tensors.shapes import is_one

_BEFORE, _AFTER = "before", "after"
_LINEAR = ("matmul", "reduction")
_TYPES = {t.name: t for t in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64)}
_ARITHMETIC = {"exp": "exp", "sqrt": "sqrt", "add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow"}


def telescoped(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes of a block, whose rescaled sums are plain ones where that is proven to be the same."""
    if not any(n.operator == "running_max" for n in nodes):
        return tuple(nodes)
    found = _Block(nodes)
    for node in nodes:
        found.made.append(found.plain(node) or node)
    return tuple(found.made)


class _Block:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = {n.name: n for n in nodes}
        self.made: list[Node] = []
        self.copies: dict[tuple[str, str], str] = {}

    def plain(self, node: Node) -> Node | None:
        """A rescaled sum as a plain one; None where it is none."""
        if node.operator != "accumulate" or node.attribute("kind") != "rescaled_sum":
            return None
        term, scale = (self.nodes[str(name)] for name in node.inputs)
        for running in (n for n in self.nodes.values() if n.operator == "running_max"):
            if any(LOOP in d.axes for d in running.dims) or not self.apart(term, running):
                continue
            coefficient, addend = self.expr(scale, running), self.expr(term, running, folds=True)
            if cascade(node.name, coefficient, unrounded(addend), (Running(_BEFORE, (Ref(_AFTER, FLOAT32),)),)).repair:
                return replace(node, inputs=(self.at_last(term, running),), attributes=(("kind", "none"),))
        return None

    def reaches(self, node: Node, target: Node) -> bool:
        inputs = () if node.operator == "tile" else (self.nodes[v] for v in node.inputs if isinstance(v, str))
        return node is target or any(self.reaches(n, target) for n in inputs)

    def apart(self, term: Node, running: Node) -> bool:
        """Whether what a term folds is along dimensions that the running value does not have."""
        if term.operator not in _LINEAR or not self.reaches(term, running):
            return True
        for position, name in enumerate(term.inputs):
            own = self.nodes[str(name)]
            dim = (-1, -2)[position] if term.operator == "matmul" else term.number("dim") - len(own.dims)
            if self.reaches(own, running) and len(running.dims) >= -dim and not is_one(running.dims[dim]):
                return False
        return True

    def expr(self, node: Node, running: Node, folds: bool = False) -> Expr:
        """What a node is of the running value, as a term of a sum. folds: products and sums of it are taken for their terms."""
        if node is running:
            return Ref(_AFTER, FLOAT32)
        if not self.reaches(node, running):
            return Ref(node.name, FLOAT32)
        own = [v if isinstance(v, float) else self.nodes[v] for v in node.inputs]
        if node.operator == "previous" and own == [running]:
            return Ref(_BEFORE, FLOAT32)
        parts = tuple(Const(v, FLOAT32) if isinstance(v, float) else self.expr(v, running) for v in own)
        if folds and node.operator in _LINEAR:
            return parts[0] if len(parts) == 1 else Op("mul", parts, FLOAT32)
        if node.operator == "to":
            return Round(parts[0], _TYPES[str(node.attribute("dtype"))])
        if node.operator == "mul_scalar":
            return Op("mul", (parts[0], Const(node.attribute("scalar"), FLOAT32)), FLOAT32)  # type: ignore[arg-type]
        if node.operator == "square":
            return Op("mul", (parts[0], parts[0]), FLOAT32)
        return Op(_ARITHMETIC.get(node.operator, node.operator), parts, FLOAT32)

    def at_last(self, node: Node, running: Node) -> str:
        """The name of a node that is made of the last running value instead."""
        if not self.reaches(node, running):
            return node.name
        key = node.name, running.name
        if key not in self.copies:
            if node is running:
                made = replace(node, operator="accumulate", attributes=(("kind", "max"),), after=True)
            else:
                inputs = tuple(v if isinstance(v, float) else self.at_last(self.nodes[v], running) for v in node.inputs)
                made = replace(node, inputs=inputs)
            name = f"{node.name}_at_last"
            while name in self.nodes or name in self.copies.values():
                name += "_"
            self.copies[key] = name
            self.made.append(replace(made, name=name))
        return self.copies[key]
