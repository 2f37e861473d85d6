"""A nest of a group's function: its loops, and the elements that are computed in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from weft.dynamo.arrays import Arrays, Item, constant, ones
from weft.dynamo.operators import (
    CONVERSIONS,
    ELEMENTWISE,
    HALVES,
    arguments,
    base,
    dtype_of,
    is_view,
    meta,
    name_of,
    opmath,
    shape_of,
)
from weft.dynamo.sizes import Size, size, text, tight
from weft.dynamo.subscripts import MADE, viewed
from weft.dynamo.terms import Subscripts, Term, number

INDENT = "    "


@dataclass
class _Branch:
    """Lines under a condition. level: of the innermost loop that the condition depends on."""

    level: int
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[fx.Node, Subscripts], Term] = field(default_factory=dict)


class Nest:
    """Loops around each other, and the elements that are computed in them, each in the outermost loop that it can be in."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
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
            found.append(INDENT * depth + head)
            found += [INDENT * (depth + 1) + line for line in level]
        return found + [INDENT * self.end_level + line for line in self.ends]

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
        arrays = self.arrays
        if node in arrays.given:
            read = f"{arrays.given[node]}[{', '.join(ones(node, at) or ('0',))}]"
            return Term(f"{read}.float()" if dtype_of(node) in HALVES else read)
        source = arrays.source(node)
        if source is not None:
            return Term(arrays.element(source, ones(node, at)))
        if is_view(node):
            return self.element(base(node), viewed(node, at))
        return self.computed(node, at)

    def stored(self, item: Item, at: Subscripts) -> Term:
        """What is stored into the array of a result, which rounds it."""
        node = item.node
        if name_of(node) in CONVERSIONS and dtype_of(node) in HALVES:
            value = node.args[0]
            assert isinstance(value, fx.Node)
            if dtype_of(value).is_floating_point:
                return self.element(value, at)
        return self.computed(node, at) if self.arrays.source(node) == item else self.element(node, at)

    def computed(self, node: fx.Node, at: Subscripts) -> Term:
        """An element by what its operator does, whether an array holds it or not."""
        name = name_of(node)
        if name == "aten.addmm":
            product = self.let(self.arrays.element(Item(node, "product"), at))
            bias = self.operand(node.args[0], node, at, dtype_of(node))
            return Term(self.let(f"{product} + {bias.text}"))
        if name in MADE:
            return MADE[name](self, node, at)
        return self._elementwise(node, at)

    def operand(self, value: Any, node: fx.Node, at: Subscripts, dtype: torch.dtype) -> Term:
        """An operand of what has these subscripts, as a dtype."""
        if isinstance(value, fx.Node) and isinstance(meta(value), torch.Tensor):
            own = shape_of(value)
            shift = len(at) - len(own)
            repeated = tuple("0" if s == 1 else at[d + shift] for d, s in enumerate(own))
            return self.converted(self.element(value, repeated), dtype_of(value), dtype)
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
        own, wanted = dtype_of(value), dtype_of(node)
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
            return Term(f"({made.text} * {constant('1', torch.int64)}).to({opmath(dtype)})")
        return Term(constant(made.text, opmath(dtype)))

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
            lines += [INDENT + line for line in inside]
        self.level_of[name] = level
        return Term(name)


def _taken(node: fx.Node, takes: str, operands: Sequence[Any]) -> torch.dtype:
    """The dtype that operands are converted to."""
    if takes == "bool":
        return torch.bool
    if takes == "result":
        return dtype_of(node)
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
