"""A graph in which groups of operators are calls of kernels."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from weft.dynamo.arrays import memory_order
from weft.dynamo.groups import Division, Group, random_before
from weft.dynamo.loops import loops_of
from weft.dynamo.operators import meta, name_of
from weft.dynamo.report import GraphReport, Taken
from weft.dynamo.sizes import hint, size
from weft.errors import TypeMismatch, WeftError
from weft.pytorch.kernel import Kernel, kernel
from weft.runtime.stack import deep

_aten = torch.ops.aten


class Fused(torch.nn.Module):
    """A group as a call of a kernel; of PyTorch's operators where weft turns out to have none for the call.

    Takes the tensors and sizes of the kernel, then what PyTorch's operators need beside these.
    """

    def __init__(self, kernel: Kernel, count: int, plain: fx.GraphModule, told: Taken) -> None:
        super().__init__()
        self.kernel, self.count, self.plain, self.told = kernel, count, plain, told

    def forward(self, *args: Any) -> Any:
        if not self.told.failed:
            try:
                return self.kernel(*args[: self.count])
            except WeftError as error:
                if isinstance(error, (IndexError, ArithmeticError)):
                    raise  # of what the tensors hold, as PyTorch's operators raise
                self.told.failed = _first_line(error)
        return self.plain(*args)


def _first_line(error: WeftError) -> str:
    return str(error).splitlines()[0]


@functools.cache
def _kernel(text: str) -> Kernel:
    """One for all groups that are alike."""
    return kernel(text)


def fused(module: fx.GraphModule, division: Division, told: GraphReport) -> fx.GraphModule:
    """The graph with its groups as calls."""
    calls = []
    for group in division.groups:
        call = _call(module.graph, group, len(told.taken))
        told.taken.append(call.told)
        if not call.told.failed:
            calls.append(call)
    told.left += [(name_of(n), why) for n, why in division.left]
    return _Rebuilt(module, calls).module()


@dataclass(frozen=True)
class _Call:
    """arguments: tensors and sizes of the kernel, then sizes that PyTorch's operators need beside these."""

    group: Group
    told: Taken
    module: Fused | None = None
    arguments: tuple[fx.Node, ...] = ()


def _call(graph: fx.Graph, group: Group, number: int) -> _Call:
    operators = tuple(name_of(n) for n in group.members if name_of(n) != "getitem")
    told = Taken(f"weft_{number}", operators, "")
    if not group.inputs:
        told.failed = "it reads no tensor"
        return _Call(group, told)
    sources = {str(size(meta(n))): n for n in graph.nodes if isinstance(meta(n), torch.SymInt)}
    for apart in (True, False):
        try:
            loops = deep(loops_of)(group.members, group.inputs, group.outputs, apart)
            told.program, sized = loops.text, [sources[s] for s in loops.symbols]
            made = _kernel(loops.text)
            _require_results(made, group, [hint(meta(n)) for n in sized])
        except WeftError as error:
            told.failed = _first_line(error)
        except Exception as error:  # an operator in a form that nobody thought of is no reason to have no model
            told.failed = f"its loops cannot be written: {type(error).__name__}: {error}"
        else:
            told.failed = ""
            break
    if told.failed:
        return _Call(group, told)
    plain, beside = _plain(group, len(sized))
    own = (*group.inputs, *sized)
    return _Call(group, told, Fused(made, len(own), plain, told), (*own, *beside))


def _require_results(made: Kernel, group: Group, numbers: Sequence[int]) -> None:
    """Have the kernel analysed, and hold what it returns against what the graph expects."""
    tensors = [_like(n) for n in group.inputs]
    results = made(*tensors, *numbers)
    for node, result in zip(group.outputs, results if len(group.outputs) > 1 else (results,), strict=True):
        value = meta(node)
        expected = [hint(value.shape[d]) for d in memory_order(node)] or [1]
        if list(result.shape) != expected or result.dtype is not value.dtype:
            raise TypeMismatch(
                f"{node.name} is {result.dtype}{list(result.shape)} instead of {value.dtype}{expected}",
                remedy="leave the group to PyTorch",
            )


def _like(node: fx.Node) -> torch.Tensor:
    """A tensor without elements in memory, as the call that the graph was made for has it."""
    value = meta(node)
    shape, strides = [hint(s) for s in value.shape], [hint(s) for s in value.stride()]
    return torch.empty_strided(shape or [1], strides or [1], dtype=value.dtype, device="meta")


def _plain(group: Group, count: int) -> tuple[fx.GraphModule, tuple[fx.Node, ...]]:
    """The group by PyTorch's operators, on the arguments of its kernel; and the sizes that it takes after these."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    inputs = [graph.placeholder(f"a{k}") for k in range(len(group.inputs))]
    for k in range(count):
        graph.placeholder(f"s{k}")
    beside: dict[fx.Node, fx.Node] = {}

    def needed(node: fx.Node, found: dict[fx.Node, None]) -> None:
        if node in found or node in group.inputs:
            return
        if not isinstance(meta(node), (torch.Tensor, tuple, list)):
            beside.setdefault(node, node)
            return
        for one in node.all_input_nodes:
            needed(one, found)
        found[node] = None

    found: dict[fx.Node, None] = {}
    for member in group.members:
        needed(member, found)
    sizes_of = {n: graph.placeholder(f"n{k}") for k, n in enumerate(beside)}
    for node, given in zip(group.inputs, inputs, strict=True):
        made[node] = given if meta(node).dim() else graph.call_function(_aten.squeeze.dim, (given, 0))
    made |= sizes_of
    for node in found:
        made[node] = graph.node_copy(node, lambda n: made[n])
    graph.output(tuple(_as_kernel_returns(graph, made[n], n) for n in group.outputs))
    if len(group.outputs) == 1:
        output = next(n for n in graph.nodes if n.op == "output")
        output.args = (output.args[0][0],)
    return fx.GraphModule({}, graph), tuple(beside)


def _as_kernel_returns(graph: fx.Graph, made: fx.Node, node: fx.Node) -> fx.Node:
    if not meta(node).dim():
        return graph.call_function(_aten.unsqueeze.default, (made, 0))
    return graph.call_function(_aten.permute.default, (made, list(memory_order(node))))


class _Rebuilt:
    """Writes a graph down again, each node after what it reads, groups as one."""

    def __init__(self, module: fx.GraphModule, calls: Sequence[_Call]) -> None:
        self.old, self.calls = module, calls
        self.call_of = {n: c for c in calls for n in c.group.members}
        self.graph = fx.Graph()
        self.made: dict[fx.Node, fx.Node] = {}
        self.before = random_before(module.graph)

    def module(self) -> fx.GraphModule:
        result = fx.GraphModule(self.old, self.graph)
        for call in self.calls:
            assert call.module is not None
            result.add_submodule(call.told.name, call.module)
        for node in self.old.graph.nodes:
            self._write(node)
            if node.op == "get_attr":
                setattr(result, node.target, getattr(self.old, node.target))
        self.graph.eliminate_dead_code()
        self.graph.lint()
        result.recompile()
        return result

    def _write(self, node: fx.Node) -> None:
        left = [node]
        while left:  # depth first, without Python's own stack
            one = left[-1]
            waits = [n for n in self._reads(one) if n not in self.made]
            if one in self.made or not waits:
                left.pop()
                if one not in self.made:
                    self._copy(one)
            else:
                left += reversed(waits)

    def _reads(self, node: fx.Node) -> Sequence[fx.Node]:
        call = self.call_of.get(node)
        if call is not None:
            return call.arguments
        return [*node.all_input_nodes, *self.before.get(node, ())]

    def _copy(self, node: fx.Node) -> None:
        call = self.call_of.get(node)
        if call is None:
            self.made[node] = self.graph.node_copy(node, lambda n: self.made[n])
            return
        given = [
            self.graph.call_function(_aten.unsqueeze.default, (self.made[n], 0))
            if isinstance(meta(n), torch.Tensor) and not meta(n).dim() and n in call.group.inputs
            else self.made[n]
            for n in call.arguments
        ]
        whole = self.graph.call_module(call.told.name, tuple(given))
        several = len(call.group.outputs) > 1
        for member in call.group.members:  # those that are not returned are read by none but the group
            self.made[member] = whole
        for number, one in enumerate(call.group.outputs):
            part = self.graph.call_function(operator.getitem, (whole, number)) if several else whole
            self.made[one] = self._as_the_graph_has(part, one)

    def _as_the_graph_has(self, made: fx.Node, node: fx.Node) -> fx.Node:
        dims = memory_order(node)
        if not dims:
            made = self.graph.call_function(_aten.squeeze.dim, (made, 0))
        elif dims != tuple(range(len(dims))):
            made = self.graph.call_function(_aten.permute.default, (made, [dims.index(d) for d in range(len(dims))]))
        made.meta["val"] = meta(node)
        return made
