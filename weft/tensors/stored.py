"""Tensor graphs as JSON."""

from __future__ import annotations

import json
from typing import Any

from weft.errors import TypeMismatch, WeftError
from weft.tensors.ir import Block, Dim, Graph, Node
from weft.tensors.shapes import validate

_VERSION = 1


def to_json(graph: Graph) -> str:
    told = {"version": _VERSION, "name": graph.name, "nodes": [_node(n) for n in graph.nodes], "outputs": graph.outputs}
    return json.dumps(told, indent=1)


def from_json(text: str) -> Graph:
    """The graph that a text describes. Raises TypeMismatch where it describes none."""
    try:
        told = json.loads(text)
        assert told["version"] == _VERSION, f"version {told['version']}"
        graph = Graph(told["name"], tuple(_node_of(n) for n in told["nodes"]), tuple(told["outputs"]))
        validate(graph)
    except WeftError:
        raise
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise TypeMismatch(
            f"this is no tensor graph: {error}", remedy="pass what KernelGraph.to_json gave, unchanged"
        ) from None
    return graph


def _node(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": node.name, "operator": node.operator, "inputs": node.inputs, "attributes": dict(node.attributes),
        "dims": [[d.size, *d.cut] for d in node.dims], "dtype": node.dtype,
    }  # fmt: skip
    told |= {"axes": node.axes} if node.axes else {}
    told |= {"after": True} if node.after else {}
    if node.block is not None:
        block = node.block
        told["block"] = {"name": block.name, "grid": block.grid, "loop": block.loop, "nodes": [_node(n) for n in block.nodes]}
        told["block"] |= {"fixed": True} if block.fixed else {}
    return told


def _node_of(told: dict[str, Any]) -> Node:
    block = None
    if "block" in told:
        own = told["block"]
        nodes = tuple(_node_of(n) for n in own["nodes"])
        block = Block(own["name"], tuple(own["grid"]), own["loop"], nodes, own.get("fixed", False))
    attributes = tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in told["attributes"].items())
    dims = tuple(Dim(size, tuple((axis, parts) for axis, parts in cut)) for size, *cut in told["dims"])
    return Node(
        told["name"], told["operator"], tuple(told["inputs"]), attributes, dims, told["dtype"],
        tuple(told.get("axes", ())), told.get("after", False), block,
    )  # fmt: skip
