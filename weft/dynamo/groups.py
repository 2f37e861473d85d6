"""Which operators of a graph weft takes, and in which groups: each group becomes one call of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from weft.dynamo.operators import (
    CONVERSIONS,
    DTYPES,
    ELEMENTWISE,
    FOLDS,
    HALVES,
    INSERTIONS,
    PARTS,
    PRODUCTS,
    RESHAPES,
    SCANS,
    SELECTIONS,
    SPLITS,
    arguments,
    base,
    dtype_of,
    factors,
    is_constant,
    is_reshape,
    is_view,
    meta,
    name_of,
    root,
    shape_of,
)
from weft.dynamo.sizes import known, order, size, sizes
from weft.dynamo.subscripts import reshape_groups

_MOST = 96  # operators in a group: the analysis of a program grows faster than the program
_TAKEN = {*ELEMENTWISE, *FOLDS, *SCANS, *PRODUCTS, *SELECTIONS, *INSERTIONS, *PARTS}
_LIBRARIES = (*PRODUCTS, "aten.bmm", "aten.baddbmm", "aten.convolution", "aten.convolution_backward")
_FEW_ROWS, _LONG = 16, 1024  # of a product that takes as long as it takes to read its matrix, and that is worth a kernel


@dataclass(frozen=True)
class Group:
    """members: in their order. inputs and outputs: tensors that it takes and returns."""

    members: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Division:
    """The groups of a graph, and why what is in none of them is left to PyTorch."""

    groups: tuple[Group, ...]
    left: tuple[tuple[fx.Node, str], ...]


def divide(graph: fx.Graph) -> Division:
    """The groups of a graph: an operator alone is one only where it is a scan."""
    reasons = {n: why for n in graph.nodes if (why := _reason(n)) is not None}
    made = _Grouping(graph, reasons).groups()
    groups, alone = [], {}
    for members in made:
        operators = [n for n in members if name_of(n) != "getitem"]
        if len(operators) > 1 or name_of(operators[0]) in SCANS:
            groups.append(members)
        else:
            alone[operators[0]] = "alone: one launch with weft or without"
    return Division(_bounded(graph, groups), tuple((n, w) for n, w in (*reasons.items(), *alone.items()) if w))


def random_before(graph: fx.Graph) -> dict[fx.Node, tuple[fx.Node, ...]]:
    """Of each operator that draws random numbers, the one before it: they draw in the order of the program."""
    drawing = [n for n in graph.nodes if torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())]
    return {n: (before,) for before, n in zip(drawing, drawing[1:], strict=False)}


# ---------------------------------------------------------------- what is taken


def _reason(node: fx.Node) -> str | None:
    """Why an operator is not taken; "" where there is nothing to take, None where it is taken or read through."""
    if node.op != "call_function":
        return ""
    name = name_of(node)
    if name == "getitem":
        parent = node.args[0]
        assert isinstance(parent, fx.Node)
        return None if name_of(parent) in (*SPLITS, "aten.var_mean") and _reason(parent) is None else ""
    value = meta(node)
    if isinstance(value, (torch.SymInt, int, torch.SymFloat, float, torch.SymBool, bool)):
        return ""
    if name in _LIBRARIES and not (name in PRODUCTS and has_few_rows(node)):
        return "a product, which PyTorch's libraries compute"
    if not (name in _TAKEN or is_view(node) or is_constant(node) or name in SPLITS):
        return "weft has no such operator"
    read = node.all_input_nodes
    tensors = [t for n in (node, *read) for t in _tensors(n)]
    if not tensors or any(not isinstance(meta(n), (torch.Tensor, torch.SymInt, int, tuple, list)) for n in read):
        return "what it is made of is not known"
    return _reason_of_tensors(node, tensors) or _reason_of_operator(node, name)


def has_few_rows(node: fx.Node) -> bool:
    """Whether a product reads a large matrix for a few rows of 16-bit numbers, on a GPU, and the rows meet other matrices, too:
    one launch then does for several.
    """
    a, b = (meta(n) for n in factors(node))
    given = arguments(node)
    if a.device.type != "cuda" or a.dtype not in HALVES or given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
        return False
    if _merges(factors(node)[0]) or len(_products_of(root(factors(node)[0]))) < 2:
        return False
    rows, length, columns = a.shape[0], a.shape[1], b.shape[1]
    fixed = all(isinstance(s, int) for s in (rows, length, columns))
    return fixed and rows <= _FEW_ROWS and length >= _LONG and columns >= _LONG


def _products_of(rows: fx.Node) -> list[fx.Node]:
    """The products whose rows are those of a value, or of a view of it."""
    found: list[fx.Node] = []
    left = [rows]
    while left:
        node = left.pop()
        for user in node.users:
            if is_view(user):
                left.append(user)
            elif name_of(user) in PRODUCTS and factors(user)[0] is node:
                found.append(user)
    return found


def _merges(node: fx.Node) -> bool:
    """Whether a view makes one dimension of several, which would be told apart again for each element."""
    while is_view(node):
        whole = base(node)
        if is_reshape(node):
            groups = reshape_groups(shape_of(whole), shape_of(node))
            if groups is None or any(len(own) > 1 for own, _ in groups):
                return True
        node = whole
    return False


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = meta(node)
    return [t for t in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(t, torch.Tensor)]


def _reason_of_tensors(node: fx.Node, tensors: Sequence[torch.Tensor]) -> str | None:
    strange = next((t for t in tensors if t.dtype not in DTYPES or t.layout is not torch.strided), None)
    if strange is not None:
        return f"a tensor of {strange.dtype if strange.layout is torch.strided else strange.layout}"
    if len({t.device for t in tensors}) > 1 or tensors[0].device.type not in ("cpu", "cuda"):
        return f"tensors on {', '.join(dict.fromkeys(str(t.device) for t in tensors))}"
    if not all(known(s) for t in tensors for s in t.shape):
        return "a size that only data tell"
    if any(size(s) == 0 for t in tensors for s in t.shape):
        return "tensors without elements"
    made = _tensors(node)
    if not is_view(node) and name_of(node) not in SPLITS and any(order(t.shape, t.stride()) is None for t in made):
        return "a result with gaps in memory"
    return None


def _reason_of_operator(node: fx.Node, name: str) -> str | None:
    given = arguments(node)
    if any(isinstance(v, complex) for v in given.values()):
        return "a complex number"
    numbers = [n for n in node.all_input_nodes if not _tensors(n)]
    if numbers and name in (*CONVERSIONS, *FOLDS, *SCANS):
        return "arguments that a call tells"
    match name.removeprefix("aten."):
        case "gather" | "scatter" | "scatter_add":
            return _reason_of_index(node, name)
        case "index":
            indices = [i for i in given["indices"] if i is not None]
            if len(indices) != 1 or dtype_of(indices[0]) not in (torch.int32, torch.int64):
                return "several indices, or a mask"
        case "index_select" if not meta(given["self"]).dim() or not meta(given["index"]).dim():
            return "a tensor without dimensions"
        case "slice":
            if not _from_the_first(given["start"]) or isinstance(given["step"], fx.Node):
                return "a slice that a call tells"
        case "select" if not _from_the_first(given["index"]):
            return "a place that a call tells"
        case "slice_scatter" if given["step"] != 1 or not all(map(_from_the_first, (given["start"], given["end"]))):
            return "a slice with steps, or one that a call tells"
        case "select_scatter" if not _from_the_first(given["index"]):
            return "a place that a call tells"
        case "constant_pad_nd":
            if numbers or any(not isinstance(p, int) for p in given["pad"]):
                return "a pad that a call tells"
        case "full" | "full_like" | "scalar_tensor" | "arange":
            if any(isinstance(given.get(k), fx.Node) for k in ("fill_value", "s", "start", "end", "step")):
                return "a value that a call tells"
            if name == "aten.arange" and dtype_of(node).is_floating_point:
                return "floats in steps"
        case "var" | "var_mean":
            correction = given.get("correction", 1)
            if correction is not None and int(correction) != correction:
                return "a correction that is no whole number"
        case "pow":
            if not dtype_of(node).is_floating_point:
                return "a power of integers"
        case "cumsum" | "cumprod" if meta(node).dim() == 0:
            return "a tensor without dimensions"
        case "_to_copy":
            if given["device"] is not None and torch.device(given["device"]) != meta(given["self"]).device:
                return "a copy to another device"
    return None


def _from_the_first(bound: Any) -> bool:
    """Whether it is known from which side a bound counts."""
    return not isinstance(bound, fx.Node) or bool(sympy.sympify(size(meta(bound))).is_nonnegative)


def _reason_of_index(node: fx.Node, name: str) -> str | None:
    given = arguments(node)
    x, index = shape_of(given["self"]), shape_of(given["index"])
    if not x or len(x) != len(index):
        return "a tensor without dimensions"
    if "reduce" in given:
        return "weft has no such operator"
    d = given["dim"] % len(x)
    others = all(a == b for k, (a, b) in enumerate(zip(x, index, strict=True)) if k != d)
    source = given.get("src")
    if source is not None and shape_of(source) != index:
        others = False
    if not others or (name != "aten.gather" and index[d] != 1):
        return "an index that is not one element a line"
    return None


# ---------------------------------------------------------------- groups


@dataclass
class _Grouping:
    """Merges operators that read each other's results, while no group would wait for what waits for it."""

    graph: fx.Graph
    reasons: dict[fx.Node, str]
    group_of: dict[fx.Node, set[fx.Node]] = field(default_factory=dict)

    def groups(self) -> list[tuple[fx.Node, ...]]:
        nodes = list(self.graph.nodes)
        self.place = {n: k for k, n in enumerate(nodes)}
        self.transparent = {n for n in nodes if n not in self.reasons and (is_constant(n) or self._inlined(n))}
        self.sources = {n: self._sources(n) for n in nodes}
        self.readers: dict[fx.Node, list[fx.Node]] = {n: [] for n in nodes}
        for node in nodes:
            if node not in self.transparent:
                for source in self.sources[node]:
                    self.readers[source].append(node)
        for node, (before,) in random_before(self.graph).items():
            self.readers[before].append(node)
        for node in nodes:
            if node in self.reasons or node in self.transparent or is_view(node) or name_of(node) in SPLITS:
                continue
            self.group_of[node] = {node}
            for source in self.sources[node]:
                if source in self.group_of:
                    self._merge(self.group_of[source], self.group_of[node])
            for source in self.sources[node]:
                for other in self.readers[source]:
                    if other in self.group_of and other is not node and self._alike(other, node):
                        self._merge(self.group_of[other], self.group_of[node])
        found = {id(g): g for g in self.group_of.values()}
        return [tuple(sorted(g, key=self.place.__getitem__)) for g in found.values()]

    def _inlined(self, node: fx.Node) -> bool:
        """Whether readers compute with a view's subscripts."""
        if not is_view(node):
            return False
        if not is_reshape(node):
            return True
        return reshape_groups(shape_of(base(node)), shape_of(node)) is not None

    def _sources(self, node: fx.Node) -> list[fx.Node]:
        """What a node reads, through views."""
        found: dict[fx.Node, None] = {}
        left = list(node.all_input_nodes)
        while left:
            one = left.pop(0)
            if one in self.transparent:
                left += [] if is_constant(one) else [base(one)]
            else:
                found[one] = None
        return list(found)

    def _alike(self, a: fx.Node, b: fx.Node) -> bool:
        """Whether two that read one tensor go over the same elements."""
        shapes = [[tuple(sizes(t.shape)) for t in _tensors(n)] for n in (a, b)]
        return shapes[0] == shapes[1] and len(shapes[0]) == 1

    def _merge(self, a: set[fx.Node], b: set[fx.Node]) -> None:
        if a is b:
            return
        forced = [name_of(n) for n in b] == ["getitem"]  # one of several results, which are made together
        if not forced and (len(a) + len(b) > _MOST or self._device(a) != self._device(b) or self._waits(a, b)):
            return
        a |= b
        for node in b:
            self.group_of[node] = a

    def _device(self, group: set[fx.Node]) -> torch.device:
        return _tensors(next(iter(group)))[0].device

    def _waits(self, a: set[fx.Node], b: set[fx.Node]) -> bool:
        """Whether, were both one group, something outside would read it and be read by it."""
        both = a | b
        last = max(self.place[n] for n in both)
        left = [r for n in both for r in self.readers[n] if r not in both]
        seen: set[fx.Node] = set()
        while left:
            node = left.pop()
            if node in both:
                return True
            if node in seen:
                continue
            whole = self.group_of.get(node, {node})
            seen |= whole
            # a group that starts after both have ended may still be read by nothing before
            if min(self.place[n] for n in whole) > last:
                continue
            left += [r for n in whole for r in self.readers[n] if r not in seen]
        return False


def _bounded(graph: fx.Graph, groups: Sequence[tuple[fx.Node, ...]]) -> tuple[Group, ...]:
    """Groups with what they take and return."""
    group_of = {n: k for k, members in enumerate(groups) for n in members}
    inputs = [_inputs(members, {*members}) for members in groups]
    taken = {n for found in inputs for n in found}
    needed: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in taken or node.op == "output" or (node.op == "call_function" and node.is_impure()):
            needed.add(node)
        if node in group_of:
            continue
        if node in needed or not (is_view(node) or is_constant(node) or name_of(node) in SPLITS):
            needed |= {*node.all_input_nodes}
    made = []
    for members, own in zip(groups, inputs, strict=True):
        outputs = tuple(n for n in members if n in needed)
        if outputs:
            made.append(Group(members, tuple(own), outputs))
    return tuple(made)


def _inputs(members: Sequence[fx.Node], own: set[fx.Node]) -> list[fx.Node]:
    """The tensors that members read from outside, through all views but those that give a tensor other dimensions."""
    found: dict[fx.Node, None] = {}
    for member in members:
        left = list(member.all_input_nodes)
        while left:
            node = left.pop(0)
            if node in own or not _tensors(node) or is_constant(node):
                continue
            if is_view(node) and (root(node) in own or name_of(node) not in RESHAPES):
                left.insert(0, base(node))
            else:
                found[node] = None
    return list(found)
