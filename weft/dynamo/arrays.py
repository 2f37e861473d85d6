"""The arrays of a group's function: what has a nest of its own, and how an element of it is read."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import fx

from weft.dynamo.operators import FOLDS, HALVES, PRODUCTS, SCANS, base, dtype_of, is_constant, meta, name_of, opmath, shape_of
from weft.dynamo.sizes import order
from weft.dynamo.terms import Subscripts


@dataclass(frozen=True)
class Item:
    """What has a nest of its own: a fold or a scan ("mean" and "var" of one node are two), or a result."""

    node: fx.Node
    part: str

    @property
    def kind(self) -> str:
        if self.part in ("result", "product"):
            return self.part
        return "scan" if name_of(self.node) in SCANS else "fold"


def memory_order(node: fx.Node) -> tuple[int, ...]:
    """The dimensions of a result in the order of its memory."""
    value = meta(node)
    found = order(value.shape, value.stride())
    assert found is not None, node
    return found


def parts_of(node: fx.Node) -> tuple[str, ...]:
    """The arrays that a fold, a scan or a product stores."""
    name = name_of(node)
    if name in ("aten.var", "aten.var_mean"):
        return ("mean", "var")
    if name in PRODUCTS:
        return ("product",)
    return (name.split(".")[1],) if name in (*FOLDS, *SCANS) else ()


def ones(node: fx.Node, at: Subscripts) -> Subscripts:
    """The subscripts, those of dimensions of 1 being 0."""
    return tuple("0" if s == 1 else t for s, t in zip(shape_of(node), at, strict=True))


def nodes_in(node: fx.Node) -> tuple[fx.Node, ...]:
    """The tensors that an operator reads elements of: of what `full_like` is like, none."""
    if is_constant(node):
        return ()
    return tuple(n for n in node.all_input_nodes if isinstance(meta(n), (torch.Tensor, tuple, list)))


def stored_dtype(item: Item) -> torch.dtype:
    """What a fold, a scan or a product is computed in."""
    value = meta(item.node)
    return opmath((value[0] if isinstance(value, (tuple, list)) else value).dtype)


@dataclass
class Arrays:
    """given: the tensors that come in, by name. members: the operators of the group. multiplied: those of them that are stored
    as they are in eager mode, for products. stored: the arrays that nests have made. halves: of those that hold what is
    returned or multiplied, rounded, what they hold.
    """

    given: dict[fx.Node, str]
    members: frozenset[fx.Node]
    multiplied: frozenset[fx.Node]
    stored: dict[Item, str] = field(default_factory=dict)
    halves: dict[Item, torch.dtype] = field(default_factory=dict)

    def source(self, node: fx.Node) -> Item | None:
        """The array that holds a value's elements, where there is one."""
        if node not in self.members:
            return None
        return self.folds_to(node) or (Item(node, "result") if node in self.multiplied else None)

    def folds_to(self, node: fx.Node) -> Item | None:
        """The fold, scan or product that a value is."""
        if name_of(node) == "getitem" and name_of(base(node)) == "aten.var_mean":
            return Item(base(node), ("var", "mean")[node.args[1]])  # type: ignore[index]
        parts = parts_of(node)
        return Item(node, parts[-1]) if parts and name_of(node) != "aten.addmm" else None

    def element(self, item: Item, at: Subscripts) -> str:
        """An element of what an array holds."""
        if item.kind == "result":
            at = tuple(at[d] for d in memory_order(item.node))
        read = f"{self.stored[item]}[{', '.join(at or ('0',))}]"
        dtype = dtype_of(item.node) if item.kind == "result" else self.halves.get(item)
        return f"{read}.float()" if dtype in HALVES else read


DEVICE = "a0.device"


def constant(value: str, dtype: torch.dtype) -> str:
    """A number as an element."""
    return f"torch.full((), {value}, dtype={dtype}, device={DEVICE})"
