"""Random programs whose names are of several kinds: a Python number on one path, an element of one dtype or another on the
next, carried through loops and merged at branches.

Of three families: integers and bools, Python's and elements; elements of integers and floats; Python's ints, floats and bools,
which meet elements in comparisons alone. (A Python number that meets a float element in one name is taken for one: no such
program is drawn.) All floats are such that no result is rounded.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

import torch

_WHOLE = {"u1": torch.uint8, "i1": torch.int8, "i2": torch.int16, "i4": torch.int32, "i8": torch.int64}
_FLOATS = {"f2": torch.float16, "bf": torch.bfloat16, "f4": torch.float32, "f8": torch.float64}
ARRAYS = {"b1": torch.bool, **_WHOLE, **_FLOATS}
PARAMETERS = (*ARRAYS, "q", "r", "p")
LENGTHS = (0, 1, 2, 5)


@dataclass(frozen=True)
class Program:
    """parameters: the arrays and numbers that it takes. seed: of the program and of its arguments."""

    source: str
    parameters: tuple[str, ...]
    seed: int


class Family:
    """What the expressions of a family are made of. e: element templates; u, b: of one and two operands."""

    arrays: tuple[str, ...]
    starts: tuple[str, ...]
    unary: tuple[str, ...]
    binary: tuple[str, ...]
    narrow: tuple[str, ...] = ("uint8", "int8", "int16", "int32", "int64", "float32")
    leaves: tuple[str, ...] = ()


_COMPARED = ("({0} < {1})", "({0} <= {1})", "({0} > {1})", "({0} >= {1})", "({0} == {1})", "({0} != {1})")
_CHOSEN = ("max({0}, {1})", "min({0}, {1})", "({0} and {1})", "({0} or {1})", "({0} if {0} > {1} else {1})",
           "({1} if p else {0})")  # fmt: skip


class Whole(Family):
    arrays = ("b1", *_WHOLE)
    starts = ("0", "0", "1", "-1", "3", "100", "200", "300", "True", "False", "q", "p")
    unary = ("(-{0})", "(~{0})", "abs({0})", "(not {0})", "(+{0})", "int({0})", "bool({0})", "({0} ** 2)", "({0} << 1)",
             "({0} >> 2)", "({0} // 3)", "({0} % 7)", "({0} // -2)", "({0}).to(torch.int16)", "({0}).long()", "torch.sign({0})",
             "torch.abs({0})", "i4[{0} % n]", "i8[int({0}) % n]", "torch.square({0})", "torch.relu({0})", "({0}).item()",
             "torch.bitwise_not({0})", "round({0})", "math.floor({0})", "({0} & 15)", "({0} + 1)", "({0} - 1)")  # fmt: skip
    binary = (*(2 * ("({0} + {1})", "({0} - {1})", "({0} * {1})")), "({0} & {1})", "({0} | {1})", "({0} ^ {1})",
              "({0} // ({1} | 1))", "({0} % ({1} | 1))", "({0} << ({1} & 3))", "({0} >> ({1} & 3))", "({0} // {1})",
              "torch.maximum({0}, {1})",
              "torch.clamp({0}, -3, 9)", "torch.remainder({0}, {1} | 1)",
              "torch.where({0} > 1, {0}, 7)", "torch.logical_and({0}, {1})", "torch.fmod({0}, {1} | 1)",
              *_COMPARED, *_COMPARED, *_CHOSEN)  # fmt: skip


class Elements(Family):
    arrays = (*_WHOLE, *_FLOATS)
    starts = ("u1[0]", "i1[0]", "i4[n - 1]", "f4[0]", "f8[0]", "i8[0]", "f2[0]", "bf[0]")
    unary = ("(-{0})", "abs({0})", "({0} * 2)", "({0} * 0.5)", "({0} + 1)", "({0} - 100)", "torch.floor({0})", "({0} // 2)",
             "({0}).to(torch.float64)", "({0}).float()", "({0}).to(torch.int64)", "torch.sign({0})", "torch.isnan({0})",
             "int({0})", "float({0})", "(not {0})", "torch.square({0} % 4)", "torch.relu({0})", "torch.trunc({0})", "({0} % 4)",
             "({0} / 2)", "torch.abs({0})", "math.ceil({0})", "({0}).item()", "bool({0})", "torch.round({0})",
             "({0} > 1)", "({0} <= 0.5)", "torch.clamp({0}, -2, 3)")  # fmt: skip
    binary = ("({0} + {1})", "({0} - {1})", "torch.maximum({0}, {1})", "torch.minimum({0}, {1})",
              "torch.where({0} > {1}, {0}, {1})", "torch.where({0} > {1}, {0}, 3)", *_COMPARED, *_CHOSEN)  # fmt: skip


class Numbers(Family):
    arrays = ("b1", *_WHOLE, "f4", "f8")
    starts = ("0", "1", "0.5", "-1.5", "300", "True", "False", "q", "r", "p", "2.0", "-1")
    leaves = ("int(i1[{i}])", "float(f4[{i}])", "bool(b1[{i}])", "i4[{i}].item()", "int(i2[{i}])", "0", "0.5", "3", "q", "r",
              "p", "f8[{i}].item()", "float(u1[{i}])", "i")  # fmt: skip
    unary = ("(-{0})", "abs({0})", "({0} * 2)", "({0} * 0.5)", "({0} + 1)", "({0} - 100)", "({0} // 2)", "({0} % 4)",
             "int({0})", "float({0})", "bool({0})", "(not {0})", "({0} / 2)", "round({0})", "math.floor({0})",
             "math.sqrt(abs({0}) * 0)",
             "(i1[{i}] <= {0})", "(u1[{i}] > {0})", "(i8[{i}] == {0})", "(i4[{i}] < {0})", "(1 / {0} > 0)", "(3 // {0} > 0)",
             "(+{0})", "({0} ** 2 > 3)", "math.isnan({0})")  # fmt: skip
    binary = ("({0} + {1})", "({0} - {1})", *_COMPARED, *_CHOSEN)
    narrow = ("int8", "int64", "float32", "float64", "uint8")


class Programs:
    """The program of a seed."""

    def __init__(self, seed: int) -> None:
        self.random, self.seed = random.Random(seed), seed
        self.family: type[Family] = self.random.choice((Whole, Whole, Whole, Elements, Elements, Numbers))
        arrays = [a for a in self.family.arrays if a != "b1" or self.random.random() < 0.4]
        self.used = self.random.sample(arrays, self.random.choice((2, 3, 4)))
        self.lines: list[str] = []
        self.columns = 0

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def element(self, i: str) -> str:
        if self.family.leaves:
            return self.random.choice(self.family.leaves).replace("{i}", i)
        return f"{self.random.choice(self.used)}[{i}]"

    def leaf(self, names: list[str], i: str) -> str:
        drawn = self.random.random()
        if drawn < 0.55:
            return self.random.choice(names)
        if drawn < 0.9 or self.family is Elements:
            return self.element(i) if i else self.random.choice(names)
        return self.random.choice(self.family.starts)

    def expression(self, names: list[str], i: str, depth: int) -> str:
        if depth == 0 or self.chance(0.1):
            return self.leaf(names, i)
        choose = self.random.choice
        made = choose(self.family.unary if self.chance(0.4) else self.family.binary)
        if "{i}" in made and not i:
            return self.leaf(names, i)
        operands = [self.expression(names, i, depth - 1) for _ in range(2)]
        return made.replace("{i}", i).format(*operands)

    def condition(self, names: list[str], i: str) -> str:
        if self.chance(0.3) and i:
            return self.random.choice((f"{i} % 2", f"{i} > 1", "p", f"{i} == 0"))
        return self.expression(names, i, 1)

    def step(self, names: list[str], i: str, depth: int, indent: str, nested: bool) -> None:
        choose, add = self.random.choice, lambda line: self.lines.append(indent + line)
        s = choose(names)
        drawn = self.random.random()
        if drawn < 0.3:
            add(f"y[{i}, {self.columns}] = {self.expression(names, i, choose((1, 1, 2)))}")
            self.columns += 1
        elif drawn < 0.36:
            add(f"z[{i}] {choose(('=', '=', '+='))} {self.expression(names, i, choose((0, 0, 1)))}")
        elif drawn < 0.62:
            made = self.expression(names, i, choose((0, 1, 1, 2)))
            # no number of Python's meets an element in a name of this family
            number = self.family is Elements and re.search(r"int\(|\bfloat\(|bool\(|item\(|ceil\(|not ", made)
            add(f"{s} = {s} + {self.element(i)}" if number or self.chance(0.5) else f"{s} = {made}")
        elif drawn < 0.68:
            # (a half element that is changed in place would be rounded, which the reference does not do)
            sign = choose(("+=", "-=", "*=", "+=")) if self.family is Whole else "=" if {"f2", "bf"} & {*self.used} else "+="
            add(f"{s} {sign} {self.expression(names, i, choose((0, 1)))}")
        elif drawn < 0.88 and depth:
            add(f"if {self.condition(names, i)}:")
            for _ in range(choose((1, 1, 2))):
                self.step(names, i, depth - 1, indent + "    ", nested)
            if self.chance(0.4):
                add("else:")
                self.step(names, i, depth - 1, indent + "    ", nested)
        elif drawn < 0.95 and not nested and depth:
            add(f"for j in range({choose(('n', '2', i, '3 - i'))}):")
            for _ in range(choose((1, 2))):
                self.step(names, i, depth - 1, indent + "    ", True)
        elif depth < 2:
            add(f"{s} = {choose(self.family.starts) if self.family is not Elements else self.element(i)}")
        else:
            add(f"if {self.condition(names, i)}:")
            self.lines.append(f"{indent}    {choose(('break', 'continue'))}")

    def program(self) -> Program:
        choose = self.random.choice
        names = ["s", "t"][: choose((1, 2))]
        for s in names:
            self.lines.append(f"    {s} = {choose(self.family.starts)}")
        if self.chance(0.2) and self.family is not Numbers:
            self.lines.append(f"    if {choose(('p', 'n > 1'))}:")
            self.lines.append(f"        {choose(names)} = {choose(self.used)}[0]")
        self.lines.append("    for i in range(n):")
        for _ in range(choose((2, 3, 3, 4))):
            self.step(names, "i", 2, "        ", False)
        for k, s in enumerate(names):
            self.lines.append(f"    y[n, {2 * k}] = {s}")
            self.lines.append(f"    y[n, {2 * k + 1}] = {self.expression(names, '', choose((1, 1, 2)))}")
        body = "\n".join(self.lines)
        mentioned = [a for a in PARAMETERS if _word(a, body)]
        types = {"q": "int", "r": "float", "p": "bool"}
        signature = ", ".join(f"{a}: {types.get(a, 'torch.Tensor')}" for a in mentioned)
        head = [f"def program({signature}{', ' if signature else ''}n: int):"]
        head.append(f"    y = torch.zeros(n + 1, {max(4, self.columns)}, dtype=torch.float64)")
        head.append(f"    z = torch.zeros(n + 1, dtype=torch.{choose(self.family.narrow)})")
        return Program("\n".join((*head, body, "    return y, z", "")), (*mentioned, "n"), self.seed)


def _word(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def arguments(program: Program, draw: int, n: int | None = None) -> list[Any]:
    """Arguments of a draw: small values, and the largest and smallest of narrow integers; arrays of n + 1 elements."""
    choose = random.Random(1000 * program.seed + draw)
    n = LENGTHS[draw % len(LENGTHS)] if n is None else n
    floats = any(_word(f, program.source) for f in _FLOATS)

    def value(name: str, dtype: torch.dtype) -> Any:
        if dtype == torch.bool:
            return choose.random() < 0.5
        if dtype.is_floating_point:
            return choose.randrange(-16, 17) / 4
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        small = [v for v in (0, 0, 1, 2, 3, -1, 5, 9) if low <= v <= high]
        wide = [low, high, high - 1, 100, 127, 200, 300, -100, 1000, 70000, 5_000_000_000]
        if floats:
            wide = [100, 127, 200, -100]
        return choose.choice(small if choose.random() < 0.5 else [v for v in wide if low <= v <= high])

    def argument(name: str) -> Any:
        if name in ARRAYS:
            made = [value(name, ARRAYS[name]) for _ in range(n + 1)]
            return torch.tensor(made, dtype=ARRAYS[name])
        return {"q": choose.choice((0, 1, -1, 7, 200, 300)), "r": choose.choice((0.0, 0.5, -2.25, 3.0)),
                "p": choose.random() < 0.5, "n": n}[name]  # fmt: skip

    return [argument(name) for name in program.parameters]
