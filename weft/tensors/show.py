"""Tensor graphs as text, and drawn."""

from __future__ import annotations

from collections.abc import Iterator

from weft.tensors.ir import GRID, Block, Graph, Node
from weft.tensors.tiles import shape_told


def graph_lines(graph: Graph) -> Iterator[str]:
    """One line a value, those of blocks below the operator that they are of."""
    inputs = ", ".join(f"{n.name}: {shape_told(n.dims, n.dtype)}" for n in graph.inputs)
    yield f"{graph.name}({inputs})"
    for node in graph.nodes:
        if node.block is not None:
            yield f"  {node.name} = customized({', '.join(map(str, node.inputs))})"
            yield from ("    " + line for line in block_lines(node.block))
        elif node.operator != "input":
            yield f"  {_line(node)}"
    yield f"  return {', '.join(graph.outputs)}"


def block_lines(block: Block) -> Iterator[str]:
    grid = ", ".join(f"{axis} = {n}" for axis, n in zip(GRID, block.grid, strict=False))
    yield f"{block.name}: grid {grid}; {block.loop} turns"
    yield from ("  " + _line(node) for node in block.nodes)


def _line(node: Node) -> str:
    return f"{node.name} = {_call(node)}  # {shape_told(node.dims, node.dtype)}{', after the loop' if node.after else ''}"


def _call(node: Node) -> str:
    operator = {"tile": "input", "result": "result of"}.get(node.operator, node.operator)
    parts = [*map(str, node.inputs), *(f"{name}={value}" for name, value in node.attributes)]
    return f"{operator}({', '.join(parts)})"


def mermaid(graph: Graph) -> str:
    """A flowchart in Mermaid's language: a node a value, a subgraph a block graph."""
    lines = ["flowchart TD"]
    edges: list[str] = []
    outputs: dict[tuple[str, int], str] = {}
    for node in graph.nodes:
        if node.block is not None:
            inside = f"{node.name}__"
            grid = " x ".join(map(str, node.block.grid))
            lines.append(f'    subgraph {node.name}["{node.block.name}: grid {grid}, {node.block.loop} turns"]')
            lines += ["    " + _shape(own, inside) for own in node.block.nodes]
            lines.append("    end")
            tensors = iter(node.inputs)
            for own in node.block.nodes:
                if own.operator == "tile":
                    edges.append(f"    {next(tensors)} --> {inside}{own.name}")
                else:
                    edges += [f"    {inside}{v} --> {inside}{own.name}" for v in own.inputs if isinstance(v, str)]
            for number, own in enumerate(node.block.of("output")):
                outputs[node.name, number] = inside + own.name
        else:
            lines.append(_shape(node, ""))
            sources = [v for v in node.inputs if isinstance(v, str)]
            if node.operator == "result":
                sources = [outputs[sources[0], node.number("output")]]
            edges += [f"    {v} --> {node.name}" for v in sources]
    lines += edges
    for number, output in enumerate(graph.outputs):
        lines += [f'    returned_{number}(["returned"])', f"    {output} --> returned_{number}"]
    return "\n".join(lines) + "\n"


def _shape(node: Node, inside: str) -> str:
    told = node.name if node.operator in ("input", node.name) else f"{node.name} = {node.operator.replace('tile', 'input')}"
    numbers = [f"{name}={value}" for name, value in node.attributes]
    numbers += [str(v) for v in node.inputs if isinstance(v, float)]
    label = "<br>".join([" ".join([told, *numbers]), shape_told(node.dims, node.dtype)])
    return f'    {inside}{node.name}["{label}"]'
