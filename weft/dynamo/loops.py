"""A group of operators -> a function of loops in weft's language, which is compiled like any other.

What folds along a dimension has a nest and an array of its own; so has what the group returns. Everything else is an
expression of the subscripts of its element, views among it, and is computed where it is read: which nests run together, what
is kept in registers and what is read again is decided by the stages that all functions go through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx

from weft.dynamo.dimensions import Dimensions
from weft.dynamo.operators import (
    CONVERSIONS,
    ELEMENTWISE,
    FOLDS,
    HALVES,
    PRODUCTS,
    SCANS,
    arguments,
    base,
    factors,
    is_constant,
    is_view,
    meta,
    name_of,
    opmath,
    root,
)
from weft.dynamo.sizes import Size, order, product, size, sizes, symbols, text, tight
from weft.dynamo.subscripts import MADE, viewed
from weft.dynamo.terms import Term, number

_INDENT = "    "
Subscripts = tuple[str, ...]


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


def memory_order(node: fx.Node) -> tuple[int, ...]:
    """The dimensions of a result in the order of its memory."""
    value = meta(node)
    found = order(value.shape, value.stride())
    assert found is not None, node
    return found


@dataclass(frozen=True)
class _Item:
    """What has a nest of its own: a fold or a scan ("mean" and "var" of one node are two), or a result."""

    node: fx.Node
    part: str

    @property
    def kind(self) -> str:
        if self.part in ("result", "product"):
            return self.part
        return "scan" if name_of(self.node) in SCANS else "fold"


def _dtype(node: fx.Node) -> torch.dtype:
    made: torch.dtype = meta(node).dtype
    return made


def _shape(node: fx.Node) -> tuple[Size, ...]:
    return sizes(meta(node).shape)


def _dims(given: Any, rank: int) -> tuple[int, ...]:
    if given is None or given == []:
        return tuple(range(rank))
    listed = given if isinstance(given, (list, tuple)) else [given]
    return tuple(sorted(d % max(rank, 1) for d in listed)) if rank else ()


def parts_of(node: fx.Node) -> tuple[str, ...]:
    """The arrays that a fold, a scan or a product stores."""
    name = name_of(node)
    if name in ("aten.var", "aten.var_mean"):
        return ("mean", "var")
    if name in PRODUCTS:
        return ("product",)
    return (name.split(".")[1],) if name in (*FOLDS, *SCANS) else ()


def _ones(node: fx.Node, at: Subscripts) -> Subscripts:
    """The subscripts, those of dimensions of 1 being 0."""
    return tuple("0" if s == 1 else t for s, t in zip(_shape(node), at, strict=True))


def nodes_in(node: fx.Node) -> tuple[fx.Node, ...]:
    """The tensors that an operator reads elements of: of what `full_like` is like, none."""
    if is_constant(node):
        return ()
    return tuple(n for n in node.all_input_nodes if isinstance(meta(n), (torch.Tensor, tuple, list)))


@dataclass
class _Writer:
    members: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    apart: bool
    lines: list[str] = field(default_factory=list)
    arrays: dict[_Item, str] = field(default_factory=dict)

    def loops(self) -> Loops:
        self.names = {n: f"a{k}" for k, n in enumerate(self.inputs)}
        self.device = "a0.device"
        self.own = {*self.members}
        self.all = (*self._inside(), *self.members)
        self.dimensions = Dimensions(self.all, self.inputs) if self.apart else None
        own = self._sizes()
        returned = self._nests()
        parameters = [*self.names.values(), *own]
        body = [*self.heads, *self.lines, f"return {', '.join(returned)}"]
        made = "\n".join([f"def fused({', '.join(parameters)}):", *(_INDENT + line for line in body)]) + "\n"
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
        return tuple(s if n is None else sympy.Symbol(n) for n, s in zip(named, _shape(node), strict=True))

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
        stores = [_Item(n, part) for n in self.members for part in parts_of(n)]
        multiplied = [root(n) for m in self.members if name_of(m) in PRODUCTS for n in factors(m)]
        self.multiplied = {n for n in multiplied if n in self.own}  # stored as they are in eager mode
        results = {n: _Item(n, "result") for n in self.outputs}
        beside = {n: _Item(n, "result") for n in self.members if n in self.multiplied and not self._folds_to(n)}
        items = [*stores, *dict.fromkeys((*results.values(), *beside.values()))]
        self.read = {i: self._reads(i) for i in items}
        inside = {i for reads in self.read.values() for i in reads}
        direct: dict[_Item, _Item] = {}  # results that an array of a fold or a scan is
        self.halves: dict[_Item, torch.dtype] = {}  # arrays that hold what is returned or multiplied, rounded
        for node in (*self.multiplied, *results):
            source = self._folds_to(node)
            if source is None:
                continue
            if node in self.multiplied or source not in inside:
                self.halves[source] = _dtype(node)
            as_returned = source not in inside or source in self.halves or _dtype(node) not in HALVES
            if node in results and as_returned and memory_order(node) == tuple(range(len(_shape(node)))):
                direct[results[node]] = source
        self._write([i for i in items if i not in direct])
        return [self.arrays[direct.get(r, r)] for r in results.values()]

    def _write(self, left: list[_Item]) -> None:
        """The nests, each after what it reads; of those that can come, one over the same rows as the one before."""
        done: set[_Item] = set()
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

    def source(self, node: fx.Node) -> _Item | None:
        """The array that holds a value's elements, where there is one."""
        if node not in self.own:
            return None
        return self._folds_to(node) or (_Item(node, "result") if node in self.multiplied else None)

    def _folds_to(self, node: fx.Node) -> _Item | None:
        """The fold, scan or product that a value is."""
        if name_of(node) == "getitem" and name_of(base(node)) == "aten.var_mean":
            return _Item(base(node), ("var", "mean")[node.args[1]])  # type: ignore[index]
        parts = parts_of(node)
        return _Item(node, parts[-1]) if parts and name_of(node) != "aten.addmm" else None

    def _reads(self, item: _Item) -> set[_Item]:
        """The arrays that a nest reads."""
        node = item.node
        found = {_Item(node, "mean")} if item.part == "var" else set()
        if item.kind == "product":
            left = [*factors(node)]
        else:
            left = [node] if item.kind == "result" and self.source(node) != item else [*nodes_in(node)]
        seen: set[fx.Node] = set()
        while left:
            one = left.pop()
            if one in seen or one in self.names:
                continue
            seen.add(one)
            source = self.source(one)
            if source is not None:
                found.add(source)
            elif name_of(one) == "aten.addmm" and one in self.own:
                found.add(_Item(one, "product"))
                left += nodes_in(one)[:1]
            else:
                left += nodes_in(one)
        return found

    def _alike(self, a: _Item, b: _Item) -> bool:
        """Whether two nests have the same loops."""
        if a == b or a.kind != b.kind or a.kind == "scan":
            return a == b
        if a.kind == "result":
            return self.shape(a.node) == self.shape(b.node) and memory_order(a.node) == memory_order(b.node)
        x, y = (nodes_in(i.node) if i.kind == "fold" else factors(i.node) for i in (a, b))
        alike = [self.shape(n) for n in x] == [self.shape(n) for n in y]
        return alike and (a.kind == "product" or self._folded(a.node) == self._folded(b.node))

    def _rows(self, item: _Item) -> tuple[str, ...]:
        """The sizes of the outer loops of a nest."""
        if item.kind in ("result", "product"):
            shape = self.shape(item.node)
            return tuple(text(shape[d]) for d in memory_order(item.node) if shape[d] != 1)
        (x,) = nodes_in(item.node)
        folded = self._folded(item.node)
        return tuple(text(s) for d, s in enumerate(self.shape(x)) if d not in folded and s != 1)

    def _folded(self, node: fx.Node) -> tuple[int, ...]:
        (x,) = nodes_in(node)
        return _dims(arguments(node).get("dim"), len(_shape(x)))

    # ---- nests

    def _array(self, item: _Item, shape: Sequence[Size], dtype: torch.dtype) -> str:
        """A new array; in the dtype of what is returned or multiplied, where it is."""
        dtype = self.halves.get(item, dtype)
        name = self.arrays[item] = f"r{len(self.arrays)}"
        told = ", ".join(map(text, shape)) if len(shape) > 1 else f"{text(shape[0]) if shape else 1},"
        self.lines.append(f"{name} = torch.empty(({told}), dtype={dtype}, device={self.device})")
        return name

    def _results(self, items: Sequence[_Item]) -> None:
        node = items[0].node
        shape, dims = self.shape(node), memory_order(node)
        names = [self._array(i, [shape[d] for d in dims], _dtype(i.node)) for i in items]
        nest = Nest(self)
        at = ["0"] * len(shape)
        for d in dims:
            at[d] = nest.loop("i", shape[d])
        for name, item in zip(names, items, strict=True):
            made = nest.stored(item, tuple(at))
            nest.last(f"{name}[{', '.join([at[d] for d in dims] or ['0'])}] = {made.text}")
        self.lines += nest.lines()

    def _folds(self, items: Sequence[_Item]) -> None:
        (x,) = nodes_in(items[0].node)
        folded, own = self._folded(items[0].node), self.shape(x)
        kept = [d for d in range(len(own)) if d not in folded]
        names = []
        for item in items:
            shape = [1 if d in folded else s for d, s in enumerate(own) if _keeps(item) or d not in folded]
            names.append(self._array(item, shape, self._stored_dtype(item)))
        nest = Nest(self)
        at = ["0"] * len(own)
        for d in kept:
            at[d] = nest.loop("i", own[d])
        totals = [nest.state(_first(i.part, self._stored_dtype(i), self)) for i in items]
        for d in folded:
            at[d] = nest.loop("j", own[d])
        for name, total, item in zip(names, totals, items, strict=True):
            element = self._folded_element(nest, item, at, folded)
            nest.last(f"{total} = {_UPDATES.get(item.part, '{0} + {1}').format(total, element)}")
            count = product([_shape(x)[d] for d in folded])
            if item.part == "var":
                count = count - _correction(item.node)
            divisor = f" / {tight(count)}" if item.part in ("mean", "var") else ""
            subscripts = ["0" if d in folded else at[d] for d in range(len(own)) if _keeps(item) or d in kept]
            nest.after(f"{name}[{', '.join(subscripts or ['0'])}] = {total}{divisor}")
        self.lines += nest.lines()

    def _folded_element(self, nest: Nest, item: _Item, at: Sequence[str], folded: Sequence[int]) -> str:
        """What is folded, in the type that the fold has."""
        (x,) = nodes_in(item.node)
        term = nest.as_element(nest.element(x, tuple(at)), _dtype(x))
        element = nest.converted(term, _dtype(x), self._stored_dtype(item)).text
        if item.part != "var":
            return element
        subscripts = ["0" if d in folded else t for d, t in enumerate(at) if _keeps(item) or d not in folded]
        mean = f"{self.arrays[_Item(item.node, 'mean')]}[{', '.join(subscripts or ['0'])}]"
        off = nest.let(f"{element} - {nest.let(mean)}")
        return f"{off} * {off}"

    def _products(self, items: Sequence[_Item]) -> None:
        names = [self._array(i, self.shape(i.node), self._stored_dtype(i)) for i in items]
        nest = Nest(self)
        rows, columns = (nest.loop("i", s) for s in self.shape(items[0].node))
        totals = [nest.state("0.0") for _ in items]
        along = nest.loop("j", self.shape(factors(items[0].node)[0])[1])
        for name, total, item in zip(names, totals, items, strict=True):
            a, b = factors(item.node)
            x, y = nest.element(a, (rows, along)).text, nest.element(b, (along, columns)).text
            nest.last(f"{total} = {total} + {x} * {y}")
            nest.after(f"{name}[{rows}, {columns}] = {total}")
        self.lines += nest.lines()

    def array_element(self, item: _Item, at: Subscripts) -> str:
        """An element of what an array holds."""
        if item.kind == "result":
            at = tuple(at[d] for d in memory_order(item.node))
        read = f"{self.arrays[item]}[{', '.join(at or ('0',))}]"
        dtype = _dtype(item.node) if item.kind == "result" else self.halves.get(item)
        return f"{read}.float()" if dtype in HALVES else read

    def _scan(self, item: _Item) -> None:
        node = item.node
        (x,) = nodes_in(node)
        own, dtype = self.shape(x), self._stored_dtype(item)
        (along,) = self._folded(node)
        name = self._array(item, own, dtype)
        nest = Nest(self)
        at = [nest.loop("i", s) if d != along else "" for d, s in enumerate(own)]
        total = nest.state(_first(item.part, dtype, self))
        at[along] = nest.loop("j", own[along])
        term = nest.as_element(nest.element(x, tuple(at)), _dtype(x))
        element = nest.converted(term, _dtype(x), dtype).text
        nest.last(f"{total} = {_UPDATES.get(item.part, '{0} + {1}').format(total, element)}")
        nest.last(f"{name}[{', '.join(at)}] = {total}")
        self.lines += nest.lines()

    def _stored_dtype(self, item: _Item) -> torch.dtype:
        value = meta(item.node)
        return opmath((value[0] if isinstance(value, (tuple, list)) else value).dtype)

    def constant(self, value: str, dtype: torch.dtype) -> str:
        """A number as an element."""
        return f"torch.full((), {value}, dtype={dtype}, device={self.device})"


_UPDATES = {
    "amax": "torch.maximum({0}, {1})", "amin": "torch.minimum({0}, {1})", "prod": "{0} * {1}", "cumprod": "{0} * {1}",
    "any": "torch.logical_or({0}, {1})", "all": "torch.logical_and({0}, {1})",
}  # fmt: skip


def _first(part: str, dtype: torch.dtype, writer: _Writer) -> str:
    """What a fold starts with."""
    if part in ("amax", "amin"):
        if dtype.is_floating_point:
            return writer.constant("-math.inf" if part == "amax" else "math.inf", dtype)
        if dtype is torch.bool:
            return writer.constant(str(part == "amin"), dtype)
        return writer.constant(str(torch.iinfo(dtype).min if part == "amax" else torch.iinfo(dtype).max), dtype)
    if part in ("any", "all"):
        return writer.constant(str(part == "all"), dtype)
    number = 1 if part in ("prod", "cumprod") else 0
    return str(float(number)) if dtype.is_floating_point else writer.constant(str(number), dtype)


def _keeps(item: _Item) -> bool:
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


# ---------------------------------------------------------------- a nest


@dataclass
class _Branch:
    """Lines under a condition. level: of the innermost loop that the condition depends on."""

    level: int
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[fx.Node, Subscripts], Term] = field(default_factory=dict)


class Nest:
    """Loops around each other, and the elements that are computed in them, each in the outermost loop that it can be in."""

    def __init__(self, writer: _Writer) -> None:
        self.writer = writer
        self.heads: list[str] = []
        self.levels: list[list[str]] = [[]]
        self.ends: list[str] = []
        self.end_level = 0
        self.level_of: dict[str, int] = {}
        self.known: dict[tuple[fx.Node, Subscripts], Term] = {}
        self.branches: list[_Branch] = []
        self.count = self.states = 0

    def loop(self, letter: str, extent: Size) -> str:
        """A loop inside those there are; none where it has one turn."""
        if extent == 1:
            return "0"
        name = f"{letter}{sum(v.startswith(letter) for v in self.level_of)}"
        self.heads.append(f"for {name} in range({text(extent)}):")
        self.levels.append([])
        self.level_of[name] = len(self.heads)
        return name

    def state(self, first: str) -> str:
        """What the loops that follow carry."""
        self.end_level = len(self.heads)
        name = f"total{self.states}" if self.states else "total"
        self.states += 1
        self.levels[-1].append(f"{name} = {first}")
        return name

    def last(self, line: str) -> None:
        """In the innermost loop."""
        self.levels[-1].append(line)

    def after(self, line: str) -> None:
        """After the loops that carry the state."""
        self.ends.append(line)

    def lines(self) -> list[str]:
        found = list(self.levels[0])
        for depth, (head, level) in enumerate(zip(self.heads, self.levels[1:], strict=True)):
            found.append(_INDENT * depth + head)
            found += [_INDENT * (depth + 1) + line for line in level]
        return found + [_INDENT * self.end_level + line for line in self.ends]

    def _level(self, made: str) -> int:
        return max((self.level_of.get(n, 0) for n in re.findall(r"[A-Za-z_]\w*", made)), default=0)

    def _lines(self, level: int) -> list[str]:
        for branch in reversed(self.branches):
            if level >= branch.level:
                return branch.lines
        return self.levels[level]

    def let(self, made: str, name: str = "") -> str:
        """A name for an expression, where it is more than one."""
        if not name and made.isidentifier():
            return made
        level = self._level(made)
        if not name:
            name, self.count = f"t{self.count}", self.count + 1
        self._lines(level).append(f"{name} = {made}")
        self.level_of[name] = level
        return name

    # ---- elements

    def element(self, node: fx.Node, at: Subscripts) -> Term:
        """An element of a value, in the type that it is computed in."""
        for known in (*(b.known for b in reversed(self.branches)), self.known):
            if (node, at) in known:
                return known[node, at]
        made = self._made(node, at)
        if not made.number:
            made = Term(self.let(made.text))
        level = self._level(made.text)
        holder = next((b.known for b in reversed(self.branches) if level >= b.level), self.known)
        holder[node, at] = made
        return made

    def _made(self, node: fx.Node, at: Subscripts) -> Term:
        writer = self.writer
        if node in writer.names:
            read = f"{writer.names[node]}[{', '.join(_ones(node, at) or ('0',))}]"
            return Term(f"{read}.float()" if _dtype(node) in HALVES else read)
        source = writer.source(node)
        if source is not None:
            return Term(writer.array_element(source, _ones(node, at)))
        if is_view(node):
            return self.element(base(node), viewed(node, at))
        return self.computed(node, at)

    def stored(self, item: _Item, at: Subscripts) -> Term:
        """What is stored into the array of a result, which rounds it."""
        node = item.node
        if name_of(node) in CONVERSIONS and _dtype(node) in HALVES:
            value = node.args[0]
            assert isinstance(value, fx.Node)
            if _dtype(value).is_floating_point:
                return self.element(value, at)
        return self.computed(node, at) if self.writer.source(node) == item else self.element(node, at)

    def computed(self, node: fx.Node, at: Subscripts) -> Term:
        """An element by what its operator does, whether an array holds it or not."""
        name = name_of(node)
        if name == "aten.addmm":
            product = self.let(self.writer.array_element(_Item(node, "product"), at))
            bias = self.operand(node.args[0], node, at, _dtype(node))
            return Term(self.let(f"{product} + {bias.text}"))
        if name in MADE:
            return MADE[name](self, node, at)
        return self._elementwise(node, at)

    def operand(self, value: Any, node: fx.Node, at: Subscripts, dtype: torch.dtype) -> Term:
        """An operand of what has these subscripts, as a dtype."""
        if isinstance(value, fx.Node) and isinstance(meta(value), torch.Tensor):
            own = _shape(value)
            shift = len(at) - len(own)
            repeated = tuple("0" if s == 1 else at[d + shift] for d, s in enumerate(own))
            return self.converted(self.element(value, repeated), _dtype(value), dtype)
        if isinstance(value, fx.Node):
            return Term(tight(size(meta(value))), True)
        return Term(number(value, dtype), True)

    def _elementwise(self, node: fx.Node, at: Subscripts) -> Term:
        name, given = name_of(node), arguments(node)
        known = ELEMENTWISE[name]
        if name in CONVERSIONS:
            return self._conversion(node, given["a"] if "a" in given else given["self"], at)
        dtype = _taken(node, known.takes, [given[n] for n in known.operands])
        operands: dict[str, Term] = {}
        for operand in known.operands:
            value = given[operand]
            if value is not None:
                if known.takes == "common" and dtype in HALVES and not isinstance(value, fx.Node):
                    value = torch.tensor(value, dtype=dtype).item()  # compared as one of them
                wanted = torch.bool if operand == "condition" else dtype
                operands[operand] = self.operand(value, node, at, wanted)
        if given.get("alpha", 1) != 1:
            factor = number(given["alpha"], dtype)
            operands["other"] = Term(f"({factor} * {operands['other'].text})", operands["other"].number)
        if all(o.number for o in operands.values()):
            operands = {n: self.as_element(o, dtype) for n, o in operands.items()}
        attributes = {n: v for n, v in given.items() if n not in operands}
        texts = {n: o.text for n, o in operands.items()}
        return Term(_text(name, known.text, given).format(**texts, **attributes))

    def _conversion(self, node: fx.Node, value: Any, at: Subscripts) -> Term:
        own, wanted = _dtype(value), _dtype(node)
        made = self.element(value, at)
        if wanted in HALVES and own is not wanted:  # said by the program, so it rounds
            made = self.as_element(made, own)
            return Term(f"{made.text}.to({wanted}).float()")
        return self.converted(made, own, wanted)

    def converted(self, made: Term, own: torch.dtype, wanted: torch.dtype) -> Term:
        """An element of a dtype as an operand of another: integers that meet halves are rounded to these, as in PyTorch."""
        if own is wanted or (opmath(own) is opmath(wanted) and own.is_floating_point):
            return made
        made = self.as_element(made, own)
        if wanted in HALVES:
            return Term(f"{made.text}.to({wanted}).float()")
        return Term(f"{made.text}.to({wanted})")

    def as_element(self, made: Term, dtype: torch.dtype) -> Term:
        """A number as an element of a dtype."""
        if not made.number:
            return made
        if self._level(made.text):
            return Term(f"({made.text} * {self.writer.constant('1', torch.int64)}).to({opmath(dtype)})")
        return Term(self.writer.constant(made.text, opmath(dtype)))

    def choice(self, condition: str, yes: Callable[[], Term], no: Callable[[], Term], dtype: torch.dtype) -> Term:
        """One element or another, of which only one is read."""
        name, self.count = f"t{self.count}", self.count + 1
        level = self._level(condition)
        parts = []
        for word, made in ((f"if {condition}:", yes), ("else:", no)):
            branch = _Branch(level)
            self.branches.append(branch)
            value = made()
            told = f"{self.as_element(value, dtype).text}.clone()" if value.number else value.text
            self.branches.pop()
            deepest = max([level, *(self._level(line) for line in (told, *branch.lines))])
            parts.append((word, [*branch.lines, f"{name} = {told}"], deepest))
        level = max(deepest for *_, deepest in parts)
        lines = self._lines(level)
        for word, inside, _ in parts:
            lines.append(word)
            lines += [_INDENT + line for line in inside]
        self.level_of[name] = level
        return Term(name)


def _taken(node: fx.Node, takes: str, operands: Sequence[Any]) -> torch.dtype:
    """The dtype that operands are converted to."""
    if takes == "bool":
        return torch.bool
    if takes == "result":
        return _dtype(node)
    first, *others = map(_like, operands)
    made: torch.dtype = torch.result_type(first, others[0]) if others else first.dtype
    return made


def _like(operand: Any) -> Any:
    """An operand as far as PyTorch's promotion looks at it."""
    if not isinstance(operand, fx.Node):
        return operand
    value = meta(operand)
    return torch.empty((1,) * value.dim(), dtype=value.dtype, device="meta") if isinstance(value, torch.Tensor) else 1


def _text(name: str, known: str, given: dict[str, Any]) -> str:
    """The text of an operator, where attributes choose it."""
    if name == "aten.div" and given.get("rounding_mode"):
        return "torch.div({self}, {other}, rounding_mode={rounding_mode!r})"
    if name == "aten.clamp" and given["min"] is None:
        return "torch.clamp_max({self}, {max})"
    if name == "aten.clamp" and given["max"] is None:
        return "torch.clamp_min({self}, {min})"
    if name == "aten.round" and given.get("decimals"):
        return "torch.round({self}, decimals={decimals})"
    return known
