"""`KernelGraph`: operators on whole tensors, called like a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft.errors import ShapeMismatch, TypeMismatch
from weft.tensors.block_graph import BlockGraph
from weft.tensors.builder import Builder, Value, dtype_name
from weft.tensors.ir import Graph, Node, Size
from weft.tensors.loops import program
from weft.tensors.shapes import input_node, validate
from weft.tensors.show import graph_lines, mermaid
from weft.tensors.stored import from_json, to_json
from weft.tensors.tiles import shape_told, tiles_of

if TYPE_CHECKING:
    import torch

    from weft.check.report import Report
    from weft.explain import Explanation
    from weft.pytorch.kernel import Kernel


class KernelGraph(Builder):
    """Tensors and operators on them; call it on tensors when it has inputs and outputs.

    Values are computed in the op-math type of their dtype and rounded where they are returned, or by `to`.
    """

    def __init__(self, name: str = "graph") -> None:
        super().__init__(name)
        self._outputs: list[str] = []
        self._made: tuple[Graph, Kernel] | None = None  # the graph as it was called last, and its kernel

    @property
    def graph(self) -> Graph:
        """The graph as it is now."""
        return Graph(self.name, tuple(self._nodes.values()), tuple(self._outputs))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KernelGraph):
            return NotImplemented
        return self.graph == other.graph

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<weft.graph.KernelGraph {self.name}>"

    def __str__(self) -> str:
        return "\n".join(graph_lines(self.graph))

    # ---- tensors

    def _add(self, node: Node) -> Value:
        self._made = None
        return super()._add(node)

    def input(self, name: str, shape: Sequence[Size], dtype: Any = "float32") -> Value:
        """A tensor that the graph takes. shape: sizes that are numbers, or names of what a call tells, equal names being equal
        sizes.
        """
        return self._add(input_node(self._named(name, "input"), shape, dtype_name(dtype)))

    def output(self, value: Value) -> None:
        """Return a value, rounded to its dtype; several make a tuple."""
        node = self._own("output", value)
        assert isinstance(node, Node)
        self._outputs.append(node.name)
        self._made = None

    def customized(self, inputs: Sequence[Value], block: BlockGraph, *, name: str = "") -> tuple[Value, ...]:
        """What a block graph makes of tensors, one for each of its inputs."""
        nodes = [self._own("customized", v) for v in inputs]
        wanted = block.tensors
        given = ", ".join(map(str, inputs))
        if len(nodes) != len(wanted) or not block.block.of("output"):
            raise TypeMismatch(
                f"customized({given}): {block.name} has {len(wanted)} inputs and {len(block.block.of('output'))} outputs",
                remedy="pass a tensor for each input of a block graph that has outputs",
            )
        for node, tensor in zip(nodes, wanted, strict=True):
            assert isinstance(node, Node)
            if (node.dims, node.dtype) != (tensor.dims, tensor.dtype):
                raise ShapeMismatch(
                    f"customized({given}): {node.name} is {shape_told(node.dims, node.dtype)}, and the block graph's "
                    f"input {tensor.name} {shape_told(tensor.dims, tensor.dtype)}",
                    remedy="pass tensors of the shapes and dtypes that the block graph was made for",
                )
        names = tuple(v.name for v in inputs)
        whole = Node(self._named(name, block.name), "customized", names, (), (), "", block=block.block)
        self._add(whole)
        made = []
        for number, own in enumerate(block.block.of("output")):
            named = self._named("", f"{whole.name}_{own.name}")
            made.append(self._add(Node(named, "result", (whole.name,), (("output", number),), own.dims, own.dtype)))
        return tuple(made)

    # ---- calling it

    def __call__(self, *tensors: torch.Tensor) -> Any:
        self._prepare()
        made: Any = self._made
        require_fitting(made[0], tensors)
        return made[1](*tensors)

    def _prepare(self) -> str:
        """Make the kernel where there is none."""
        if self._made is None:
            from weft.pytorch.kernel import kernel

            graph = self.graph
            self._made = graph, kernel(self.program, tiles=tiles_of(graph))
        return self.name

    _prepare._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile calls it and does not trace it

    @property
    def kernel(self) -> Kernel:
        """The kernel of the graph's loops."""
        self._prepare()
        assert self._made is not None
        return self._made[1]

    @property
    def program(self) -> str:
        """The graph in weft's language: a Python function of loops."""
        graph = self.graph
        if not graph.outputs or not graph.inputs:
            raise TypeMismatch(f"{self.name} has no {'outputs' if graph.inputs else 'inputs'}", remedy="add one")
        validate(graph)
        return program(graph)

    def reference(self, *tensors: torch.Tensor, double: bool = False) -> Any:
        """The graph by PyTorch's operators, block by block and turn by turn. double: in float64, rounded nowhere."""
        from weft.tensors.reference import evaluate

        graph = self.graph
        require_fitting(graph, tensors)
        return evaluate(graph, tensors, double)

    # ---- looking inside

    def explain(self, *args: Any, format: str = "text", detail: bool = False) -> Explanation:
        """How its loops run; see `weft.Kernel.explain`. args: tensors or specs; none where all sizes are numbers."""
        return self.kernel.explain(*(args or self._specs()), format=format, detail=detail)

    def source(self, *args: Any, arch: str | None = None) -> str:
        """The generated code; see `weft.Kernel.source`."""
        return self.kernel.source(*(args or self._specs()), arch=arch)

    def check(self, *args: Any, **options: Any) -> Report:
        """Execute the generated CUDA on the CPU; see `weft.Kernel.check`."""
        return self.kernel.check(*(args or self._specs()), **options)

    def _specs(self) -> tuple[str, ...]:
        named = [d.size for n in self.graph.inputs for d in n.dims if isinstance(d.size, str)]
        if named:
            raise TypeMismatch(
                f"{self.name}: a call tells how large {', '.join(dict.fromkeys(named))} is",
                remedy='pass tensors, or specs such as "float32[64,1024]"',
            )
        return tuple(f"{n.dtype}[{','.join(str(d.size) for d in n.dims)}]" for n in self.graph.inputs)

    def mermaid(self) -> str:
        """A drawing of the graph, in Mermaid's language."""
        return mermaid(self.graph)

    # ---- as text

    def to_json(self) -> str:
        return to_json(self.graph)

    @classmethod
    def from_json(cls, text: str) -> KernelGraph:
        """The graph that `to_json` wrote, built and checked again."""
        made = cls()
        made._take(from_json(text))
        return made

    def _take(self, graph: Graph) -> None:
        self.name, self._nodes, self._outputs = graph.name, {n.name: n for n in graph.nodes}, list(graph.outputs)


def require_fitting(graph: Graph, tensors: Sequence[torch.Tensor]) -> None:
    """Raise TypeMismatch or ShapeMismatch where tensors are none that the graph takes."""
    inputs = graph.inputs
    sizes: dict[str, tuple[int, str]] = {}
    if len(tensors) != len(inputs):
        raise TypeMismatch(
            f"{graph.name} takes {len(inputs)} tensors, and is given {len(tensors)}", remedy="pass one for each input"
        )
    for node, tensor in zip(inputs, tensors, strict=True):
        is_tensor = hasattr(tensor, "dtype") and hasattr(tensor, "shape")
        if not is_tensor or dtype_name(tensor.dtype) != node.dtype or len(tensor.shape) != len(node.dims):
            given = f"{dtype_name(tensor.dtype)}{list(tensor.shape)}" if is_tensor else repr(tensor)
            raise TypeMismatch(
                f"{graph.name} takes {node.name}: {shape_told(node.dims, node.dtype)}, and is given {given}",
                remedy="pass a tensor of that dtype and so many dimensions",
            )
        for position, (dim, size) in enumerate(zip(node.dims, tensor.shape, strict=True)):
            if isinstance(dim.size, str):
                wanted, since = sizes.setdefault(dim.size, (size, f"{dim.size} is that of {node.name}"))
            else:
                wanted, since = dim.size, "the graph is made for it"
            if size != wanted:
                raise ShapeMismatch(
                    f"{graph.name}: dimension {position} of {node.name} has {size} elements instead of {wanted}",
                    evidence=[since],
                    remedy=f"pass {node.name}: {shape_told(node.dims, node.dtype)}",
                )
