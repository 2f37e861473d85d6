"""A group of operators -> a function of loops in weft's language, which is compiled like any other.

What folds along a dimension has a nest and an array of its own; so has what the group returns. Everything else is an
expression of the subscripts of its element, views among it, and is computed where it is read: which nests run together, what
is kept in registers and what is read again is decided by the stages that all functions go through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from weft.dynamo.arrays import DEVICE, Arrays, Item, constant, memory_order, nodes_in, parts_of, stored_dtype
from weft.dynamo.dimensions import Dimensions
from weft.dynamo.nest import INDENT, Nest
from weft.dynamo.operators import HALVES, PRODUCTS, arguments, dtype_of, factors, meta, name_of, root, shape_of
from weft.dynamo.sizes import Size, product, size, sizes, symbols, text, tight


@dataclass(frozen=True)
class Loops:
    """The text of a group's function. symbols: of sizes that it takes as ints, after its tensors."""

    text: str
    symbols: tuple[str, ...]


def loops_of(members: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node], apart: bool = True) -> Loops:
    """members: in their order; outputs: those of them that are returned, each in the order in which it lies in memory. apart:
    whether dimensions of one length that do not meet have names instead, so that loops over one are not loops over the other.
    """
    return _Writer(tuple(members), tuple(inputs), tuple(outputs), apart).loops()


def _dims(given: Any, rank: int) -> tuple[int, ...]:
    if given is None or given == []:
        return tuple(range(rank))
    listed = given if isinstance(given, (list, tuple)) else [given]
    return tuple(sorted(d % max(rank, 1) for d in listed)) if rank else ()


@dataclass
class _Writer:
    members: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    apart: bool
    lines: list[str] = field(default_factory=list)

    def loops(self) -> Loops:
        self.names = {n: f"a{k}" for k, n in enumerate(self.inputs)}
        self.own = frozenset(self.members)
        multiplied = [root(n) for m in self.members if name_of(m) in PRODUCTS for n in factors(m)]
        self.arrays = Arrays(self.names, self.own, frozenset(n for n in multiplied if n in self.own))
        self.all = (*self._inside(), *self.members)
        self.dimensions = Dimensions(self.all, self.inputs) if self.apart else None
        own = self._sizes()
        returned = self._nests()
        parameters = [*self.names.values(), *own]
        body = [*self.heads, *self.lines, f"return {', '.join(returned)}"]
        made = "\n".join([f"def fused({', '.join(parameters)}):", *(INDENT + line for line in body)]) + "\n"
        return Loops(made, tuple(own))

    # ---- sizes

    def _sizes(self) -> list[str]:
        """Write down what the symbols of sizes are and what the tensors have to fit; the symbols that no tensor tells."""
        self.heads: list[str] = []
        known: set[str] = set()
        checks = []
        for node, name in self.names.items():
            for d, value in enumerate(self.shape(node) or (1,)):
                if not isinstance(value, int) and value.is_Symbol and str(value) not in known:
                    known.add(str(value))
                    self.heads.append(f"{value} = {name}.shape[{d}]")
                elif isinstance(value, int) or value.is_Symbol:
                    checks.append(f"assert {name}.shape[{d}] == {value}")
        self.heads += checks
        used = {str(s) for n in self.all for v in _sizes_in(n) for s in symbols(v)}
        return sorted(used - known)

    def shape(self, node: fx.Node) -> tuple[Size, ...]:
        """The sizes of a value as loops go over them: by names where two that are equal are not the same."""
        named = [self.dimensions.name(node, d) if self.dimensions else None for d in range(meta(node).dim())]
        return tuple(s if n is None else sympy.Symbol(n) for n, s in zip(named, shape_of(node), strict=True))

    def _inside(self) -> Iterator[fx.Node]:
        """The views and constants that members read through."""
        seen: set[fx.Node] = set()
        left = [n for m in self.members for n in m.all_input_nodes]
        while left:
            node = left.pop()
            if node not in seen and node not in self.own and node not in self.names:
                seen.add(node)
                yield node
                left += node.all_input_nodes

    # ---- the order of the nests

    def _nests(self) -> list[str]:
        stores = [Item(n, part) for n in self.members for part in parts_of(n)]
        multiplied = self.arrays.multiplied
        results = {n: Item(n, "result") for n in self.outputs}
        beside = {n: Item(n, "result") for n in self.members if n in multiplied and not self.arrays.folds_to(n)}
        items = [*stores, *dict.fromkeys((*results.values(), *beside.values()))]
        self.read = {i: self._reads(i) for i in items}
        inside = {i for reads in self.read.values() for i in reads}
        direct: dict[Item, Item] = {}  # results that an array of a fold or a scan is
        for node in (*multiplied, *results):
            source = self.arrays.folds_to(node)
            if source is None:
                continue
            if node in multiplied or source not in inside:
                self.arrays.halves[source] = dtype_of(node)
            as_returned = source not in inside or source in self.arrays.halves or dtype_of(node) not in HALVES
            if node in results and as_returned and memory_order(node) == tuple(range(len(shape_of(node)))):
                direct[results[node]] = source
        self._write([i for i in items if i not in direct])
        return [self.arrays.stored[direct.get(r, r)] for r in results.values()]

    def _write(self, left: list[Item]) -> None:
        """The nests, each after what it reads; of those that can come, one over the same rows as the one before."""
        done: set[Item] = set()
        before: tuple[str, ...] = ()
        while left:
            ready = [i for i in left if self.read[i] <= done]
            chosen = next((i for i in ready if self._rows(i)[: len(before)] == before), ready[0])
            together = [i for i in ready if self._alike(i, chosen)]
            rows = self._rows(chosen)
            before = before if before and rows[: len(before)] == before else rows
            left = [i for i in left if i not in together]
            done |= {*together}
            match chosen.kind:
                case "result":
                    self._results(together)
                case "scan":
                    self._scan(chosen)
                case "product":
                    self._products(together)
                case _:
                    self._folds(together)

    def _reads(self, item: Item) -> set[Item]:
        """The arrays that a nest reads."""
        node = item.node
        found = {Item(node, "mean")} if item.part == "var" else set()
        if item.kind == "product":
            left = [*factors(node)]
        else:
            left = [node] if item.kind == "result" and self.arrays.source(node) != item else [*nodes_in(node)]
        seen: set[fx.Node] = set()
        while left:
            one = left.pop()
            if one in seen or one in self.names:
                continue
            seen.add(one)
            source = self.arrays.source(one)
            if source is not None:
                found.add(source)
            elif name_of(one) == "aten.addmm" and one in self.own:
                found.add(Item(one, "product"))
                left += nodes_in(one)[:1]
            else:
                left += nodes_in(one)
        return found

    def _alike(self, a: Item, b: Item) -> bool:
        """Whether two nests have the same loops."""
        if a == b or a.kind != b.kind or a.kind == "scan":
            return a == b
        if a.kind == "result":
            return self.shape(a.node) == self.shape(b.node) and memory_order(a.node) == memory_order(b.node)
        x, y = (nodes_in(i.node) if i.kind == "fold" else factors(i.node) for i in (a, b))
        alike = [self.shape(n) for n in x] == [self.shape(n) for n in y]
        return alike and (a.kind == "product" or self._folded(a.node) == self._folded(b.node))

    def _rows(self, item: Item) -> tuple[str, ...]:
        """The sizes of the outer loops of a nest."""
        if item.kind in ("result", "product"):
            shape = self.shape(item.node)
            return tuple(text(shape[d]) for d in memory_order(item.node) if shape[d] != 1)
        (x,) = nodes_in(item.node)
        folded = self._folded(item.node)
        return tuple(text(s) for d, s in enumerate(self.shape(x)) if d not in folded and s != 1)

    def _folded(self, node: fx.Node) -> tuple[int, ...]:
        (x,) = nodes_in(node)
        return _dims(arguments(node).get("dim"), len(shape_of(x)))

    # ---- nests

    def _array(self, item: Item, shape: Sequence[Size], dtype: torch.dtype) -> str:
        """A new array; in the dtype of what is returned or multiplied, where it is."""
        dtype = self.arrays.halves.get(item, dtype)
        name = self.arrays.stored[item] = f"r{len(self.arrays.stored)}"
        told = ", ".join(map(text, shape)) if len(shape) > 1 else f"{text(shape[0]) if shape else 1},"
        self.lines.append(f"{name} = torch.empty(({told}), dtype={dtype}, device={DEVICE})")
        return name

    def _results(self, items: Sequence[Item]) -> None:
        node = items[0].node
        shape, dims = self.shape(node), memory_order(node)
        names = [self._array(i, [shape[d] for d in dims], dtype_of(i.node)) for i in items]
        nest = Nest(self.arrays)
        at = ["0"] * len(shape)
        for d in dims:
            at[d] = nest.loop("i", shape[d])
        for name, item in zip(names, items, strict=True):
            made = nest.stored(item, tuple(at))
            nest.last(f"{name}[{', '.join([at[d] for d in dims] or ['0'])}] = {made.text}")
        self.lines += nest.lines()

    def _folds(self, items: Sequence[Item]) -> None:
        (x,) = nodes_in(items[0].node)
        folded, own = self._folded(items[0].node), self.shape(x)
        kept = [d for d in range(len(own)) if d not in folded]
        names = []
        for item in items:
            shape = [1 if d in folded else s for d, s in enumerate(own) if _keeps(item) or d not in folded]
            names.append(self._array(item, shape, stored_dtype(item)))
        nest = Nest(self.arrays)
        at = ["0"] * len(own)
        for d in kept:
            at[d] = nest.loop("i", own[d])
        totals = [nest.state(_first(i.part, stored_dtype(i))) for i in items]
        for d in folded:
            at[d] = nest.loop("j", own[d])
        for name, total, item in zip(names, totals, items, strict=True):
            element = self._folded_element(nest, item, at, folded)
            nest.last(f"{total} = {_UPDATES.get(item.part, '{0} + {1}').format(total, element)}")
            count = product([shape_of(x)[d] for d in folded])
            if item.part == "var":
                count = count - _correction(item.node)
            divisor = f" / {tight(count)}" if item.part in ("mean", "var") else ""
            subscripts = ["0" if d in folded else at[d] for d in range(len(own)) if _keeps(item) or d in kept]
            nest.after(f"{name}[{', '.join(subscripts or ['0'])}] = {total}{divisor}")
        self.lines += nest.lines()

    def _folded_element(self, nest: Nest, item: Item, at: Sequence[str], folded: Sequence[int]) -> str:
        """What is folded, in the type that the fold has."""
        (x,) = nodes_in(item.node)
        term = nest.as_element(nest.element(x, tuple(at)), dtype_of(x))
        element = nest.converted(term, dtype_of(x), stored_dtype(item)).text
        if item.part != "var":
            return element
        subscripts = ["0" if d in folded else t for d, t in enumerate(at) if _keeps(item) or d not in folded]
        mean = f"{self.arrays.stored[Item(item.node, 'mean')]}[{', '.join(subscripts or ['0'])}]"
        off = nest.let(f"{element} - {nest.let(mean)}")
        return f"{off} * {off}"

    def _products(self, items: Sequence[Item]) -> None:
        names = [self._array(i, self.shape(i.node), stored_dtype(i)) for i in items]
        nest = Nest(self.arrays)
        rows, columns = (nest.loop("i", s) for s in self.shape(items[0].node))
        totals = [nest.state("0.0") for _ in items]
        along = nest.loop("j", self.shape(factors(items[0].node)[0])[1])
        for name, total, item in zip(names, totals, items, strict=True):
            a, b = factors(item.node)
            x, y = nest.element(a, (rows, along)).text, nest.element(b, (along, columns)).text
            nest.last(f"{total} = {total} + {x} * {y}")
            nest.after(f"{name}[{rows}, {columns}] = {total}")
        self.lines += nest.lines()

    def _scan(self, item: Item) -> None:
        node = item.node
        (x,) = nodes_in(node)
        own, dtype = self.shape(x), stored_dtype(item)
        (along,) = self._folded(node)
        name = self._array(item, own, dtype)
        nest = Nest(self.arrays)
        at = [nest.loop("i", s) if d != along else "" for d, s in enumerate(own)]
        total = nest.state(_first(item.part, dtype))
        at[along] = nest.loop("j", own[along])
        term = nest.as_element(nest.element(x, tuple(at)), dtype_of(x))
        element = nest.converted(term, dtype_of(x), dtype).text
        nest.last(f"{total} = {_UPDATES.get(item.part, '{0} + {1}').format(total, element)}")
        nest.last(f"{name}[{', '.join(at)}] = {total}")
        self.lines += nest.lines()

_UPDATES = {
    "amax": "torch.maximum({0}, {1})", "amin": "torch.minimum({0}, {1})", "prod": "{0} * {1}", "cumprod": "{0} * {1}",
    "any": "torch.logical_or({0}, {1})", "all": "torch.logical_and({0}, {1})",
}  # fmt: skip


def _first(part: str, dtype: torch.dtype) -> str:
    """What a fold starts with."""
    if part in ("amax", "amin"):
        if dtype.is_floating_point:
            return constant("-math.inf" if part == "amax" else "math.inf", dtype)
        if dtype is torch.bool:
            return constant(str(part == "amin"), dtype)
        return constant(str(torch.iinfo(dtype).min if part == "amax" else torch.iinfo(dtype).max), dtype)
    if part in ("any", "all"):
        return constant(str(part == "all"), dtype)
    number = 1 if part in ("prod", "cumprod") else 0
    return str(float(number)) if dtype.is_floating_point else constant(str(number), dtype)


def _keeps(item: Item) -> bool:
    """Whether what is folded stays as dimensions of 1."""
    return bool(arguments(item.node).get("keepdim"))


def _correction(node: fx.Node) -> int:
    given = arguments(node)
    if "correction" in given:
        return 1 if given["correction"] is None else int(given["correction"])
    return int(given["unbiased"])


def _sizes_in(node: fx.Node) -> Iterator[Size]:
    value = meta(node)
    for one in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(one, torch.Tensor):
            yield from sizes(one.shape)
        elif isinstance(one, torch.SymInt):
            yield size(one)
