"""Random tensor graphs, with tensors to call them on, and what they are held against."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from weft.errors import ShapeMismatch, TypeMismatch
from weft.graph import BlockGraph, KernelGraph
from weft.tensors.builder import Builder, Value

_SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12)
_KINDS = ("none", "none", "sum", "mean", "rms", "sum_to_dim", "max", "rescaled_sum")
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-4, "float64": 1e-8}


@dataclass
class Drawn:
    """A graph and what a call of it takes. smooth: no derivative has two sides. rounds: values are rounded inside."""

    graph: KernelGraph
    tensors: list[torch.Tensor]
    smooth: bool
    rounds: bool


class _Drawing:
    def __init__(self, chooser: random.Random) -> None:
        self.chooser = chooser
        self.smooth = True
        self.rounds = False
        self.sizes: dict[str, int] = {}

    def one(self, builder: Builder, pool: list[Value]) -> Value | None:
        """A value of a random operator and operands; None where they do not fit."""
        c = self.chooser
        a = c.choice(pool[-6:])
        b = c.choice(pool)
        operator = c.choice(
            ["exp", "silu", "gelu", "relu", "clamp", "square", "sqrt", "mul_scalar", "pow", "rms_norm", "to"]
            + ["add", "sub", "mul", "div"] * 2 + ["matmul", "reduction", "reduction_max", "concat"] * 3
        )  # fmt: skip
        rank = len(a.node.dims)
        try:
            match operator:
                case "exp":
                    return builder.exp(builder.clamp(a, -3, 2))
                case "clamp" | "relu":
                    self.smooth = False
                    return builder.relu(a) if operator == "relu" else builder.clamp(a, -0.5, c.choice([0.75, 1e-7]))
                case "silu" | "gelu" | "square":
                    return getattr(builder, operator)(a)  # type: ignore[no-any-return]
                case "sqrt":
                    return builder.sqrt(builder.add(builder.square(a), 0.5))
                case "mul_scalar":
                    return builder.mul_scalar(a, c.choice([1e-7, -3.25, 1e4]))
                case "pow":
                    return builder.pow(a, c.choice([2.0, 3.0]))
                case "rms_norm":
                    return builder.rms_norm(a, eps=c.choice([1e-3, 0.5]))
                case "to":
                    if a.dtype == "float64":
                        return None
                    self.rounds = True
                    return builder.to(a, c.choice(["float16", "bfloat16", "float32"]))
                case "add" | "sub" | "mul":
                    operands = [a, c.choice([b, b, 0.3])]
                    c.shuffle(operands)
                    return getattr(builder, operator)(*operands)  # type: ignore[no-any-return]
                case "div":
                    return builder.div(a, builder.add(builder.square(b), 0.75))
                case "matmul":
                    return builder.matmul(a, b)
                case "reduction":
                    return builder.reduction(a, c.randrange(-rank, rank), c.choice([1, 1, 2, 3]))
                case "reduction_max":
                    self.smooth = False
                    return builder.reduction_max(a, c.randrange(-rank, rank))
                case _:
                    return builder.concat(a, b, c.randrange(rank))
        except (ShapeMismatch, TypeMismatch):
            return None

    def block(self, graph: KernelGraph, pool: list[Value]) -> list[Value]:
        """What a random block graph makes of tensors of a graph."""
        c = self.chooser
        axes = c.choice([1, 1, 2, 3])
        block = BlockGraph(tuple(c.choice([1, 2, 3, 4]) for _ in range(axes)), c.choice([1, 2, 3, 4]))
        tensors, tiles = [], []
        for _ in range(c.choice([1, 2, 2, 3])):
            tensor = c.choice(pool)
            rank = len(tensor.node.dims)
            dims = c.sample([*range(rank), *(-1,) * axes], axes)
            try:
                tiles.append(block.input(tensor, dims, c.choice([-1, *range(rank)])))
            except ShapeMismatch:
                continue
            tensors.append(tensor)
        if not tiles:
            return []
        values = list(tiles)
        for _ in range(c.randrange(2, 7)):
            made = self.turning(block, values) if c.random() < 0.4 else self.one(block, values)
            if made is not None:
                values.append(made)
        outputs = 0
        for value in reversed(values):
            if "loop" in value.node.axes:
                try:
                    value = block.accumulate(value, c.choice(["none", "sum", "mean"]))
                except ShapeMismatch:
                    continue
            dims = c.sample([*range(len(value.node.dims)), *(-1,) * axes], axes)
            for axis, name in enumerate("xyz"[:axes]):
                if name in value.node.axes and c.random() < 0.8:
                    own = [d for d, dim in enumerate(value.node.dims) if name in dim.axes]
                    dims[axis] = own[0] if own else dims[axis]
            try:
                block.output(value, dims)
            except ShapeMismatch:
                continue
            outputs += 1
            if outputs == c.choice([1, 2]):
                break
        return list(graph.customized(tensors, block)) if outputs else []

    def turning(self, block: BlockGraph, values: list[Value]) -> Value | None:
        """A value that puts turns together."""
        c = self.chooser
        x = c.choice(values)
        try:
            if c.random() < 0.2:
                self.smooth = False
                largest = block.running_max(x)
                return block.sub(block.previous(largest, c.choice([-2.0, 0.5])), largest)
            kind = c.choice(_KINDS)
            self.smooth &= kind != "max"
            scale = c.choice(values) if kind == "rescaled_sum" else None
            size = c.choice([2, 3]) if kind == "sum_to_dim" else None
            return block.accumulate(x, kind, size=size, scale=scale, eps=0.25 if kind == "rms" else None)
        except (ShapeMismatch, TypeMismatch):
            return None


def draw(chooser: random.Random) -> Drawn:
    """A random graph: operators on tensors, and up to two block graphs among them."""
    drawing = _Drawing(chooser)
    graph = KernelGraph("drawn")
    dtypes = [chooser.choice(["float64", "float64", "float32", "float16", "bfloat16"])]
    if dtypes[0] != "float64" and chooser.random() < 0.2:
        dtypes.append(chooser.choice(["float32", "float16"]))
    sizes = chooser.sample(_SIZES, 4)
    sizes.append(chooser.choice(sizes))
    named = {chooser.choice(sizes): "n"} if chooser.random() < 0.3 else {}
    pool: list[Value] = []
    tensors: list[torch.Tensor] = []
    for k in range(chooser.choice([1, 2, 3])):
        shape = [chooser.choice(sizes) for _ in range(chooser.choice([1, 2, 2, 2, 3]))]
        dtype = chooser.choice(dtypes)
        pool.append(graph.input(f"x{k}", [named.get(s, s) for s in shape], dtype))
        tensor = torch.empty(shape).uniform_(-1, 1).to(getattr(torch, dtype))
        if chooser.random() < 0.3:  # strides with gaps
            tensor = tensor.repeat_interleave(2, -1)[..., ::2]
        tensors.append(tensor)
    if len(pool) > 1 and chooser.random() < 0.8 and len(pool[1].shape) > 1:
        # something to multiply with
        rows, inner = tensors[1].shape[-2:]
        other = chooser.choice([s for s in sizes])
        shape = (inner, other) if chooser.random() < 0.5 else (other, rows)
        pool.append(graph.input("w", [named.get(s, s) for s in shape], pool[1].dtype))
        tensors.append(torch.empty(shape).uniform_(-1, 1).to(tensors[1].dtype))
    for _ in range(chooser.randrange(1, 7)):
        if chooser.random() < 0.35:
            pool += drawing.block(graph, pool)
        else:
            made = drawing.one(graph, pool)
            pool += [made] if made is not None else []
    graph.output(pool[-1])
    if chooser.random() < 0.3:
        graph.output(chooser.choice(pool))
    return Drawn(graph, tensors, drawing.smooth, drawing.rounds)


def disagreement(drawn: Drawn, device: str = "cpu") -> str:
    """What a call, its gradient or the graph's text has that it should not; "" for nothing. device: of the call, or
    "simulator", where what is emitted must be clean of findings.
    """
    graph, tensors, tolerance = drawn.graph, drawn.tensors, _tolerance(drawn)
    if device == "simulator":  # where values are rounded inside, PyTorch rounds those that are made of them, too
        report = graph.check(
            *tensors, gradients=drawn.smooth and not drawn.rounds, tolerance=tolerance if drawn.rounds else None
        )
        return "" if report.ok and not report.findings else str(report.text())
    if KernelGraph.from_json(graph.to_json()) != graph:
        return "JSON gives another graph"
    given = [t.detach().to(device).requires_grad_() for t in tensors]
    made, exact, rounded = graph(*given), graph.reference(*given, double=True), graph.reference(*given)
    if not isinstance(made, tuple):
        made, exact, rounded = (made,), (exact,), (rounded,)
    for k, (a, e, r) in enumerate(zip(made, exact, rounded, strict=True)):
        if (a.dtype, a.shape) != (r.dtype, r.shape):
            return f"result {k} is {a.dtype}{list(a.shape)} instead of {r.dtype}{list(r.shape)}"
        told = _apart(a, r if drawn.rounds else e, r, tolerance)
        if told:
            return f"result {k}: {told}"
    if not drawn.smooth or drawn.rounds:
        return ""
    weights = [torch.empty(e.shape, dtype=torch.float64).uniform_(0.5, 1).to(device) for e in exact]
    own, wanted = (
        torch.autograd.grad(
            sum((w * r).sum() for w, r in zip(weights, results, strict=True) if r.requires_grad), given, allow_unused=True
        )
        for results in (made, exact)
    )
    for k, (a, e) in enumerate(zip(own, wanted, strict=True)):
        zero = torch.zeros_like(given[k])
        told = _apart(zero if a is None else a, zero if e is None else e, zero, tolerance * 4)
        if told:
            return f"gradient of x{k}: {told}"
    return ""


def _tolerance(drawn: Drawn) -> float:
    """How far results may be off: by the widest rounding of any value."""
    nodes = list(drawn.graph.graph.nodes)
    nodes += [inner for n in nodes if n.block is not None for inner in n.block.nodes]
    dtypes = {n.dtype for n in nodes if n.dtype}
    return max(TOLERANCES[d] for d in dtypes) * (8 if drawn.rounds else 1)


def _apart(made: torch.Tensor, exact: torch.Tensor, rounded: torch.Tensor, tolerance: float) -> str:
    a, e, r = (t.detach().double() for t in (made, exact, rounded))
    same = (a == e) | (a.isnan() & (e.isnan() | r.isnan()))
    scale = torch.where(e.isfinite(), e.abs(), 0.0)
    bound = tolerance * (1 + scale.max() if scale.numel() else 1) + 8 * (r - e).abs().nan_to_num()
    near = same | ((a - e).abs() <= bound) | ((a == r) & ~e.isnan())
    if bool(near.all()):
        return ""
    at = (~near).nonzero()[0].tolist()
    return f"{a[tuple(at)].item()} instead of {e[tuple(at)].item()} at {at}"
