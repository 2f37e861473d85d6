"""Random programs in weft's language: a seed gives a module of plain Python, its arguments, and what to compare.

Subscripts stay inside their arrays by construction (each loop variable knows how far it stays from both ends of the axis it
runs over), values stay bounded, and every name has a value where it is read: so nearly every program means something.
A share of them leaves an array on purpose.
"""

from __future__ import annotations

import linecache
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.fuzz_idioms import Idioms

DTYPES = {"float64": torch.float64, "int64": torch.int64, "int32": torch.int32}


@dataclass(frozen=True)
class Program:
    """source: a module that defines `program` (and helpers), whose parameters name arguments of `arguments`."""

    seed: int
    source: str
    dtype: str

    @property
    def square(self) -> bool:
        """Whether x and c have as many rows as columns."""
        return "n, m = x.shape" not in self.source

    @property
    def parameters(self) -> list[str]:
        match = re.search(r"^def program\((.*?)\):", self.source, re.MULTILINE)
        assert match is not None
        return [p.split(":")[0].strip() for p in match.group(1).split(",") if p.strip()]


# ---------------------------------------------------------------- what the arguments are

# Arguments by name: their axes (names of sizes), and whether programs store into them.
ARRAYS: dict[str, tuple[tuple[str, ...], bool]] = {
    "x": (("n", "m"), False),
    "c": (("n", "m"), False),
    "w": (("m",), False),
    "u": (("n",), False),
    "p": (("n", "m", "d"), False),
    "z": (("n", "m"), True),
    "v": (("m",), True),
}
SCALARS = ("alpha", "q", "flag")


def arguments(program: Program, sizes: dict[str, int], seed: int = 0, strided: bool = False) -> list[Any]:
    """Arguments for the sizes n, m, d; the same seed gives the same values. strided: tensors that are not contiguous."""
    generator = torch.Generator().manual_seed(7919 * program.seed + seed)
    if program.square:
        sizes = {**sizes, "n": sizes["m"]}
    dtype = DTYPES[program.dtype]

    def tensor(shape: list[int]) -> torch.Tensor:
        stored = shape[::-1] if strided else shape
        if dtype.is_floating_point:
            made = 2 * torch.rand(stored, dtype=dtype, generator=generator) - 1
            if program.seed % 6 == 3:
                for value in (math.nan, math.inf, -math.inf):
                    made[torch.rand(stored, generator=generator) < 0.04] = value
        else:
            made = torch.randint(-6, 7, stored, dtype=dtype, generator=generator)
        return made.permute(*reversed(range(len(shape)))) if strided else made

    given: dict[str, Any] = {name: tensor([sizes[s] for s in axes]) for name, (axes, _) in ARRAYS.items()}
    m = sizes["m"]
    given["idx"] = torch.randint(0, max(m, 1), (m,), generator=generator)
    given["alpha"] = 0.75 if dtype.is_floating_point else 3
    given["q"] = int(torch.randint(0, 5, (), generator=generator))
    given["flag"] = bool(torch.randint(0, 2, (), generator=generator))
    return [given[name] for name in program.parameters]


def compiled(source: str, label: str, namespace: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The function `program` of a module's text; its source can be read by inspect under the file name `label`."""
    linecache.cache[label] = (len(source), None, source.splitlines(keepends=True), label)
    scope: dict[str, Any] = {"torch": torch, "math": math, "__name__": "programs", **(namespace or {})}
    exec(compile(source, label, "exec"), scope)
    function: Callable[..., Any] = scope["program"]
    return function


# ---------------------------------------------------------------- the generator


@dataclass(frozen=True)
class Index:
    """A loop variable: `low <= var <= size - 1 - slack`. size: the axis it runs over, a name or a constant."""

    var: str
    size: str
    low: int = 0
    slack: int = 0


@dataclass(frozen=True)
class Held:
    """An array in scope: its axes, whether it may be stored into, whether every element has a value to be read."""

    name: str
    axes: tuple[str, ...]
    writable: bool
    readable: bool = True


@dataclass(frozen=True)
class Scope:
    """What a statement may use. scalars: may be read; carried: may also be assigned."""

    loops: tuple[Index, ...] = ()
    scalars: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    arrays: tuple[Held, ...] = ()

    def with_scalar(self, name: str) -> Scope:
        return replace(self, scalars=tuple(dict.fromkeys((*self.scalars, name))))

    @property
    def readable(self) -> tuple[Held, ...]:
        return tuple(a for a in self.arrays if a.readable)

    @property
    def writable(self) -> tuple[Held, ...]:
        return tuple(a for a in self.arrays if a.writable)


@dataclass
class Writer:
    lines: list[str] = field(default_factory=list)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)


_HELPERS = {
    "mix": "def mix(a, b):\n    return 0.5 * a + 0.25 * b\n",
    "clamp": "def clamp(a, low, high):\n    return max(low, min(a, high))\n",
    "leaky": "def leaky(a):\n    small = 0.1 * a\n    return a if a > 0 else small\n",
    "whole_mix": "def whole_mix(a, b):\n    return 2 * a - b\n",
    "whole_pick": "def whole_pick(a, b):\n    if a > b:\n        t = a - b\n    else:\n        t = b + 0\n    return t\n",
}


class Generator:
    """Writes one program. Its choices are those of one `random.Random`, so a seed is a program."""

    inout = 0.2  # how often it stores into each of the arguments that may be stored into
    forms: tuple[str, ...] = ()  # expressions of floats besides its own: of two operands, a condition and a number

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.floating = self.chance(0.75)
        self.dtype = "float64" if self.floating else self.random.choice(["int64", "int32"])
        self.square = self.chance(0.15)  # x and c are [m, m] then, and may be read transposed
        self.wild = self.chance(0.03)  # leaves an array
        self.fresh = 0
        self.budget = self.random.randint(1, 6)  # statements besides loops and branches
        self.helpers: dict[str, None] = {}

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def name(self, base: str) -> str:
        self.fresh += 1
        return f"{base}{self.fresh}"

    # ---- the whole

    def program(self) -> Program:
        body = Writer()
        arrays = [Held(n, self.axes(n), writable) for n, (_, writable) in ARRAYS.items() if not writable]
        for inout in ("z", "v"):
            if self.chance(self.inout):
                arrays.append(Held(inout, self.axes(inout), True))
        if not self.chance(0.25):
            arrays = [a for a in arrays if a.name != "p"]
        results = self.results(body, arrays)
        scope = Scope(arrays=tuple(arrays))
        for _ in range(self.random.choice([1, 1, 1, 2, 2, 3])):
            self.budget = max(self.budget, 1)
            scope = self.top(body, scope)
        if results:
            body.line(1, "return " + ", ".join(results))
        text = "\n".join(body.lines)
        used = [n for n in (*ARRAYS, "idx", *SCALARS) if re.search(rf"\b{n}\b", text)]
        if "p" not in used and re.search(r"\bd\b", text):
            used.insert(0, "p")
        if "x" not in used:
            used.insert(0, "x")
        kinds = {"alpha": "float" if self.floating else "int", "q": "int", "flag": "bool"}
        for n in used:  # what is only ever used whole might be a number as well
            if n in ARRAYS and not re.search(rf"\b{n}[\[.]", text + ("x.p." if n in "xp" else "")):
                kinds[n] = "torch.Tensor"
        parameters = ", ".join(f"{n}: {kinds[n]}" if n in kinds else n for n in used)
        head = ["".join(_HELPERS[h] + "\n\n" for h in self.helpers) + f"def program({parameters}):"]
        head.append("    n, m = x.shape" if not self.square else "    m = x.shape[0]")
        if "p" in used:
            head.append("    d = p.shape[2]" if not self.chance(0.5) else "    _, _, d = p.shape")
        return Program(self.seed, "\n".join([*head, *body.lines]) + "\n", self.dtype)

    def axes(self, name: str) -> tuple[str, ...]:
        return tuple("m" if s == "n" and self.square else s for s in ARRAYS[name][0])

    def results(self, body: Writer, arrays: list[Held]) -> list[str]:
        out = []
        for name in ["y", "r", "o"][: self.random.choice([1, 1, 1, 2, 2, 3])]:
            made = self.random.choice(
                [("zeros_like(x)", ("n", "m")), ("empty_like(x)", ("n", "m")), ("zeros(n, dtype=x.dtype)", ("n",)),
                 ("zeros(m, dtype=x.dtype)", ("m",)), ("full((n, m), 2, dtype=x.dtype)", ("n", "m")),
                 ("zeros((m, n), dtype=x.dtype)", ("m", "n")), ("zeros(3, dtype=x.dtype)", ("3",)), ("x.clone()", ("n", "m")),
                 ("empty(n, m + 1, dtype=x.dtype)", ("n", "m+1")), ("x * 2", ("n", "m"))]
            )  # fmt: skip
            text, axes = made
            if self.square:
                text, axes = re.sub(r"\bn\b", "m", text), tuple("m" if a == "n" else a for a in axes)
            body.line(1, f"{name} = {text if text.startswith('x') else 'torch.' + text}")
            readable = "empty" not in text
            if not readable and len(axes) == 2 and axes[1] == "m" and self.chance(0.6):
                body.line(
                    1, f"{name}[{self.random.choice(['...', ':, :'])}] = {self.random.choice(['x', 'c', 'w', '1'])}"
                )
                readable = True
            arrays.append(Held(name, axes, True, readable))
            out.append(name)
        return out

    def top(self, body: Writer, scope: Scope) -> Scope:
        """One nest of the function, and the scalars before it."""
        for _ in range(self.random.choice([0, 0, 0, 1, 2])):
            scope = self.new_carry(body, 1, scope)
        if self.chance(0.5):
            Idioms(self).write(body, 1, scope)
        elif self.chance(0.12):
            self.sliced(body, 1, scope)
        else:
            self.loop(body, 1, scope, self.random.choice([1, 2, 2, 2, 3]))
        if scope.carried and self.chance(0.7):
            target = self.target(scope)
            if target is not None:
                body.line(1, f"{target[0]} = {self.random.choice(scope.carried)}")
        return scope

    # ---- loops

    def loop(self, body: Writer, depth: int, scope: Scope, levels: int) -> None:
        index, header = self.range(scope)
        body.line(depth, header)
        inner = replace(scope, loops=(*scope.loops, index))
        before = len(body.lines)
        self.block(body, depth + 1, inner, levels - 1)
        if len(body.lines) == before:
            body.line(depth + 1, "pass")

    def block(self, body: Writer, depth: int, scope: Scope, levels: int) -> None:
        """Statements of a loop body; `levels` loops still go below it."""
        if self.chance(0.12) and levels:
            scope = self.local_array(body, depth, scope)
        for _ in range(self.random.choice([0, 0, 1, 1, 2])):
            scope = self.new_carry(body, depth, scope) if levels else self.temporary(body, depth, scope)
        if levels:
            for _ in range(self.random.choice([0, 0, 1])):
                scope = self.statement(body, depth, scope)
            for _ in range(self.random.choice([1, 1, 1, 2])):
                self.loop(body, depth, scope, levels)
            for _ in range(self.random.choice([0, 1])):
                scope = self.statement(body, depth, scope)
            own = scope.carried
            if own and self.chance(0.7):
                target = self.target(scope)
                if target is not None:
                    body.line(depth, f"{target[0]} = {self.random.choice(own)}")
            return
        for _ in range(max(1, self.random.randint(1, max(1, self.budget)))):
            scope = self.statement(body, depth, scope)
            self.budget -= 1

    def range(self, scope: Scope) -> tuple[Index, str]:
        depth = len(scope.loops)
        var = "ijkl"[depth] if depth < 4 and self.chance(0.9) else self.name("k")
        symbols = ["m"] if self.square else ["n", "m", "m"]
        if any(a.name == "p" for a in scope.arrays):
            symbols.append("d")
        taken = [i.size for i in scope.loops]
        rest = [s for s in symbols if s not in taken] or symbols
        size = self.random.choice(rest if self.chance(0.85) else symbols)
        s = size
        if self.chance(0.08):
            constant = self.random.choice(["1", "2", "3"])
            return Index(var, constant), f"for {var} in range({constant}):"
        outer = [o for o in scope.loops if o.size == size]
        if outer and self.chance(0.6):
            o = self.random.choice(outer)
            triangular = [
                (f"{o.var}", 0, o.slack + 1), (f"{o.var} + 1", 0, o.slack), (f"{o.var}, {s}", o.low, 0),
                (f"{o.var} + 1, {s}", o.low + 1, 0), (f"{o.var}, -1, -1", 0, o.slack),
                (f"max(0, {o.var} - 2), {o.var} + 1", 0, o.slack), (f"{s} - 1, {o.var}, -1", o.low + 1, 0),
                (f"max({o.var} - 1, 0), min({o.var} + 2, {s})", 0, 0),
            ]  # fmt: skip
            bounds, low, slack = self.random.choice(triangular)
            return Index(var, size, low, slack), f"for {var} in range({bounds}):"
        plain = [
            (s, 0, 0), (s, 0, 0), (s, 0, 0), (f"1, {s}", 1, 0), (f"1, {s}", 1, 0), (f"2, {s}", 2, 0), (f"3, {s}", 3, 0),
            (f"{s} - 1", 0, 1), (f"{s} - 2", 0, 2), (f"1, {s} - 1", 1, 1), (f"{s} - 1, -1, -1", 0, 0),
            (f"{s} - 2, -1, -1", 0, 1), (f"{s} - 1, 0, -1", 1, 0), (f"{s} - 3, -1, -1", 0, 2), (f"0, {s}, 2", 0, 0),
            (f"1, {s}, 2", 1, 0), (f"{s} - 1, -1, -2", 0, 0), (f"2, {s}, 3", 2, 0), (f"min(q, {s})", 0, 0),
            (f"{s} - 2, 0, -3", 1, 1),
        ]  # fmt: skip
        bounds, low, slack = self.random.choice(plain)
        return Index(var, size, low, slack), f"for {var} in range({bounds}):"

    # ---- subscripts

    def subscript(self, axis: str, scope: Scope, gather: bool = False) -> str | None:
        """An index that stays inside an axis, or None where nothing fits."""
        extra = 0
        size = axis
        if axis == "m+1":
            size, extra = "m", 1
        if axis.isdigit():
            options = [i.var for i in scope.loops if i.size.isdigit() and int(i.size) <= int(axis)]
            if options and self.chance(0.8):
                return self.random.choice(options)
            return str(self.random.randrange(int(axis)))
        fitting = [i for i in scope.loops if i.size == size]
        if gather and size == "m" and fitting and self.chance(0.1):
            i = self.random.choice(fitting)
            return f"idx[{self.offset(i, 0)}]" if self.chance(0.5) else f"int(idx[{self.offset(i, 0)}])"
        if fitting and self.chance(0.93):
            return self.offset(self.random.choice(fitting[::-1] if self.chance(0.5) else fitting[-1:]), extra)
        if self.chance(0.85 if fitting else 0.5):
            return self.random.choice(["0", "0", "-1", f"{size} - 1" if not extra else size, "1"])
        return None

    def offset(self, i: Index, extra: int) -> str:
        if self.wild and self.chance(0.2):
            return f"{i.var} + {i.slack + extra + 1}"
        if self.chance(0.6):
            return i.var
        if self.chance(0.15):
            return f"{i.size} - 1 - {i.var}"
        shift = self.random.randint(-min(i.low, 3), min(i.slack + extra, 3))
        return i.var if shift == 0 else f"{i.var} {'+' if shift > 0 else '-'} {abs(shift)}"

    def element(self, array: Held, scope: Scope, gather: bool = True) -> str | None:
        parts = [self.subscript(a, scope, gather) for a in array.axes]
        return None if None in parts else f"{array.name}[{', '.join(p for p in parts if p is not None)}]"

    def load(self, scope: Scope) -> str:
        for _ in range(8):
            array = self.random.choice(scope.readable)
            if array.name == "p" and not any(i.size == "d" for i in scope.loops) and self.chance(0.8):
                continue
            text = self.element(array, scope)
            if text is not None:
                return text
        return "1.0" if self.floating else "1"

    def target(self, scope: Scope) -> tuple[str, Held] | None:
        for _ in range(8):
            array = self.random.choice(scope.writable)
            text = self.element(array, scope, gather=self.chance(0.15))
            if text is not None and not re.search(r"\[(0|-1|1)(, (0|-1|1))*\]$", text) or text and self.chance(0.3):
                return text, array
        return None

    # ---- expressions

    def expr(self, scope: Scope, depth: int = 2) -> str:
        if depth == 0 or self.chance(0.25):
            return self.atom(scope)
        a = lambda: self.expr(scope, depth - 1)  # noqa: E731
        if not self.floating:
            form = self.random.choice(
                ["{0} + {1}", "{0} - {1}", "{0} * 2 + {1}", "{0} * {1}", "-{0}", "abs({0})", "max({0}, {1})",
                 "min({0}, {1})", "{0} // 3", "{0} % 5", "({0} if {2} else {1})", "{0} & 7", "{0} ^ {1}", "whole_mix({0}, {1})",
                 "whole_pick({0}, {1})"]
            )  # fmt: skip
        else:
            form = self.random.choice(
                ["{0} + {1}", "{0} - {1}", "0.5 * {0} + {1}", "{0} * {1}", "-{0}", "abs({0})", "max({0}, {1})",
                 "min({0}, {1})", "math.tanh({0})", "math.exp(-abs({0}))", "{0} / (2.0 + abs({1}))", "({0} if {2} else {1})",
                 "math.sin({0})", "mix({0}, {1})", "clamp({0}, -1.0, 2.0)", "leaky({0})", "0.1 * {3}", "0.5 * ({0} + {1})",
                 *self.forms]
            )  # fmt: skip
        for helper in _HELPERS:
            if re.search(rf"\b{helper}\(", form):
                self.helpers[helper] = None
        text = form.format(
            f"({a()})" if not form.startswith("m") else a(), f"({a()})", self.condition(scope), self.number(scope)
        )
        return text

    def number(self, scope: Scope) -> str:
        """A Python number: a loop variable, or a constant."""
        return self.random.choice([*(i.var for i in scope.loops), "3"])

    def atom(self, scope: Scope) -> str:
        options: list[Callable[[], str]] = [lambda: self.load(scope)] * 4
        if scope.scalars:
            options += [lambda: self.random.choice(scope.scalars)] * 3
        constants = (
            ["0.5", "-0.25", "1.0", "2", "alpha"] if self.floating else ["2", "-1", "3", "alpha", *self.vars(scope)]
        )
        options.append(lambda: self.random.choice(constants))
        return self.random.choice(options)()

    def vars(self, scope: Scope) -> list[str]:
        return [i.var for i in scope.loops]

    def condition(self, scope: Scope) -> str:
        kind = self.random.random()
        if scope.loops and kind < 0.5:
            i = self.random.choice(scope.loops)
            choices = [f"{i.var} > 0", f"{i.var} == 0", f"{i.var} < {i.size} - 1", f"{i.var} % 2 == 0", f"{i.var} >= 2",
                       f"{i.var} != 1"]  # fmt: skip
            if len(scope.loops) > 1:
                o = self.random.choice(scope.loops)
                choices += [f"{i.var} <= {o.var}", f"{i.var} + {o.var} > 2", f"{i.var} == {o.var}"]
            return self.random.choice(choices)
        if kind < 0.55:
            return "flag"
        left = self.atom(scope)
        right = self.atom(scope) if self.chance(0.5) else ("0.0" if self.floating else "0")
        simple = f"{left} {self.random.choice(['>', '<', '>=', '<='])} {right}"
        if self.chance(0.15):
            return f"{simple} {self.random.choice(['and', 'or'])} {self.condition(scope)}"
        return f"not {simple}" if self.chance(0.07) else simple

    # ---- statements

    def statement(self, body: Writer, depth: int, scope: Scope, nested: bool = True) -> Scope:
        kinds: list[tuple[float, Callable[[], Scope | None]]] = [
            (4, lambda: self.store(body, depth, scope)),
            (1.5, lambda: self.accumulate(body, depth, scope)),
            (2, lambda: self.recurrence(body, depth, scope)),
            (1.5, lambda: self.temporary(body, depth, scope)),
            (0.4, lambda: self.sliced(body, depth, scope)),
        ]
        if scope.carried:
            kinds.append((6, lambda: self.update(body, depth, scope)))
        if nested:
            kinds.append((2, lambda: self.branch(body, depth, scope)))
        weights = [w for w, _ in kinds]
        return self.random.choices([k for _, k in kinds], weights)[0]() or scope

    def store(self, body: Writer, depth: int, scope: Scope) -> None:
        target = self.target(scope)
        if target is not None:
            body.line(depth, f"{target[0]} = {self.expr(scope)}")

    def accumulate(self, body: Writer, depth: int, scope: Scope) -> None:
        target = self.target(scope)
        if target is None or not target[1].readable:
            return
        value = self.expr(scope, 1)
        forms = ["{0} += {1}", "{0} -= {1}", "{0} = {0} + {1}", "{0} = {1} + {0}", "{0} = max({0}, {1})",
                 "if {1} < {0}:\n{2}    {0} = {1}", "{0} *= {1}"]  # fmt: skip
        for line in self.random.choice(forms).format(target[0], f"({value})", "    " * depth).split("\n"):
            body.line(depth if not line.startswith(" ") else 0, line)

    def recurrence(self, body: Writer, depth: int, scope: Scope) -> None:
        """An element from earlier ones of the same array, through memory."""
        loops = [i for i in scope.loops if i.low >= 1 or i.slack >= 1]
        arrays = [
            a
            for a in scope.writable
            if a.readable and any(i.size in (s, s.removesuffix("+1")) for s in a.axes for i in loops)
        ]
        if not arrays:
            return self.store(body, depth, scope)
        array = self.random.choice(arrays)
        axis = self.random.choice(
            [k for k, s in enumerate(array.axes) if any(i.size == s.removesuffix("+1") for i in loops)]
        )
        i = self.random.choice([i for i in loops if i.size == array.axes[axis].removesuffix("+1")])
        rest = [i.var if k == axis else self.subscript(s, scope) for k, s in enumerate(array.axes)]
        if None in rest:
            return None
        parts = [r for r in rest if r is not None]

        def at(shift: int) -> str:
            index = list(parts)
            index[axis] = i.var if shift == 0 else f"{i.var} {'+' if shift > 0 else '-'} {abs(shift)}"
            return f"{array.name}[{', '.join(index)}]"

        shifts = [s for s in range(-min(i.low, 3), min(i.slack, 3) + 1) if s]
        a, b = at(self.random.choice(shifts)), at(self.random.choice(shifts))
        value = self.expr(scope, 1)
        if self.floating:
            form = self.random.choice(
                ["0.5 * {0} + {1}", "{0} + {1}", "{0} * 0.4 + {2} * 0.4 + {1}", "max({0}, {1})", "{1} - {0}",
                 "math.tanh({0} + {1})", "{0} * {3} + {1}", "0.5 * {1} + {0} * {3}", "({0} if {4} else {1})"]
            )  # fmt: skip
        else:
            form = self.random.choice(
                [
                    "{0} + {1}",
                    "{0} + {1} - {2}",
                    "max({0}, {1})",
                    "{1} - {0}",
                    "{0} * {3} + {1}",
                    "({0} if {4} else {1})",
                ]
            )
        text = form.format(a, f"({value})", b, self.atom(scope), self.condition(scope))
        body.line(depth, f"{at(0)} = {text}")
        return None

    def temporary(self, body: Writer, depth: int, scope: Scope) -> Scope:
        name = self.name("t")
        # a number keeps a bare element from being a view of an array that is stored into later
        value = self.expr(scope)
        bare = re.fullmatch(r"\w+(\[.*\])?", value) is not None
        body.line(depth, f"{name} = {value}{' + 0' if bare and self.chance(0.9) else ''}")
        return scope.with_scalar(name)

    def new_carry(self, body: Writer, depth: int, scope: Scope) -> Scope:
        name = self.name(self.random.choice(["s", "h", "best"]))
        options = ["0.0", "0.0", "1.0", "-math.inf", "0.5"] if self.floating else ["0", "0", "1", "-100"]
        value = self.random.choice(options) if self.chance(0.85) else f"{self.load(scope)} + 0"
        body.line(depth, f"{name} = {value}")
        scope = scope.with_scalar(name)
        return replace(scope, carried=(*scope.carried, name))

    def update(self, body: Writer, depth: int, scope: Scope) -> Scope:
        h = self.random.choice(scope.carried)
        others = [s for s in scope.carried if s != h]
        e = self.expr(scope, 1)
        loaded = self.load(scope)
        bound = "alpha" if self.floating else "2"
        plain = [
            "{h} = {h} + {e}", "{h} += {e}", "{h} -= {e}", "{h} = {h} - {e}", "{h} = {e} + {h}", "{h} = {h} * {x}",
            "{h} = max({h}, {e})", "{h} = max({e}, {h})", "{h} = min({h}, {e})", "{h} = {e} if {e} > {h} else {h}",
            "if {e} > {h}:\n    {h} = {e}", "if {h} < {e}:\n    {h} = {e}", "{h} = {h} if {h} < {e} else {e}",
            "{h} = {x} * {h} + {e}", "{h} = {e} + {h} * {x}", "if {c}:\n    {h} = {h} + {e}",
            "if {c}:\n    {h} = {e}", "{h} = {h} + {e} if {c} else {h}", "{h} = {x} - {h}", "{h} = {e}",
            "{t} = {h} + {e}\n{h} = {t}", "{t} = max({h}, {e})\n{h} = {t}",
            "if {c}:\n    {h} = {h} * {x} + {e}\nelse:\n    {h} = {e}",
            "if {c}:\n    {h} = {h} + {e}\nelse:\n    {h} = {h} - {e}",
        ]  # fmt: skip
        if self.floating:
            plain += ["{h} = 0.5 * {h} + {e}", "{h} = math.tanh({h} + {e})", "{h} = {h} / 2 + {e}",
                      "{h} = 0.9 * {h} + 0.1 * {e}",
                      "{h} = ({h} + {e}) * 0.5", "{h} *= " + bound, "{h} = {e} - 0.5 * {h}"]  # fmt: skip
        if others:
            plain += ["{h}, {g} = {g}, {h}", "{h} = 0.5 * {h} + {g}" if self.floating else "{h} = {h} + {g}",
                      "{h}, {g} = {h} + {e}, {g} + {h}", "if {e} > {h}:\n    {h} = {e}\n    {g} = {x} + 0"]  # fmt: skip
            if self.floating:
                plain += ["{h}, {g} = 0.5 * {h} - 0.4 * {g}, 0.4 * {h} + 0.5 * {g}",
                          "{t} = max({h}, {e})\n{g} = {g} * math.exp({h} - {t}) + math.exp({e} - {t})\n{h} = {t}"]  # fmt: skip
        t = self.name("t")
        text = self.random.choice(plain).format(
            h=h, g=self.random.choice(others) if others else h, e=f"({e})", x=loaded, c=self.condition(scope), t=t
        )
        if "\n" not in text and re.search(r" = \([\w\[\], +-]*\]\)$| = \(\w+\)$", text) and self.chance(0.8):
            text += " + 0"  # a bare element would be a view of it
        for line in text.split("\n"):
            body.line(depth, line)
        return scope

    def branch(self, body: Writer, depth: int, scope: Scope) -> None:
        arms = ["if", "elif", "elif"][: self.random.choice([1, 1, 2, 3])]
        defines = self.name("t") if self.chance(0.2) else None
        for word in [*arms, "else"]:
            if word == "else" and self.chance(0.4) and defines is None:
                break
            body.line(depth, "else:" if word == "else" else f"{word} {self.condition(scope)}:")
            before = len(body.lines)
            inner = scope
            if defines is not None:
                body.line(depth + 1, f"{defines} = {self.expr(scope)} + 0")
                inner = scope.with_scalar(defines)
            for _ in range(self.random.choice([1, 1, 2])):
                inner = self.statement(body, depth + 1, inner, nested=self.chance(0.3))
            if len(body.lines) == before:
                body.line(depth + 1, "pass")
        if defines is not None:
            target = self.target(scope)
            if target is not None:
                body.line(depth, f"{target[0]} = {defines}")

    def local_array(self, body: Writer, depth: int, scope: Scope) -> Scope:
        name = self.name("a")
        size = self.random.choice(["2", "3"])
        body.line(depth, f"{name} = torch.{self.random.choice(['zeros', 'zeros', 'empty'])}({size}, dtype=x.dtype)")
        if "empty" in body.lines[-1]:
            for k in range(int(size)):
                body.line(depth, f"{name}[{k}] = {self.expr(scope, 1)}")
        held = Held(name, (size,), True)
        return replace(scope, arrays=(*scope.arrays, held, held))

    def sliced(self, body: Writer, depth: int, scope: Scope) -> None:
        """A statement over a whole axis at once."""
        wide = [
            a
            for a in scope.writable
            if a.readable and len(a.axes) == 2 and a.axes == (("m", "m") if self.square else ("n", "m"))
        ]
        if not wide:
            return
        y = self.random.choice(wide).name
        z = self.random.choice(wide).name
        rows = [i for i in scope.loops if i.size == ("m" if self.square else "n")]
        columns = [i for i in scope.loops if i.size == "m"]
        half = "0.5" if self.floating else "2"
        forms = ["{y}[:, :] = x * {half} + w", "{y}[:, 1:] = {z}[:, :-1] * {half} + x[:, 1:]", "{y}[..., 0] = x[..., 0]",
                 "{y}[0, :] = w", "{y}[:, :-1] += {z}[:, 1:]", "{y}[:, ::2] = {half} * x[:, ::2]",
                 "{y}[:, -1] = x[:, 0]"]  # fmt: skip
        if rows:
            r = self.offset(rows[-1], 0)
            forms += ["{y}[{r}, :] = x[{r}, :] * {half} + w", "{y}[{r}] = {y}[{r}] - {e}",
                      "{y}[{r}, 1:] = {z}[{r}, :-1] - w[1:]",
                      "{y}[{r}, :] += {e} * w", "{y}[{r}, :-1] = {z}[{r}, 1:]"]  # fmt: skip
            forms = [f.replace("{r}", r) for f in forms]
        if columns:
            i = columns[-1]
            forms += [f.replace("{l}", self.offset(i, 0)) for f in (
                "{y}[..., {l}] = x[..., {l}] + {e}", "{y}[:, {l}] = {half} * {z}[:, {l}] + c[:, {l}]",
                "{y}[:, {l}] += {e}")]  # fmt: skip
            if i.low:
                forms += [f"{{y}}[..., {i.var}] = {{y}}[..., {i.var} - 1] * c[..., {i.var}] + x[..., {i.var}]"] * 3
        # what torch makes of an element of y added to a slice of y in place depends on its order
        others = replace(scope, arrays=tuple(a for a in scope.arrays if a.name != y))
        body.line(depth, self.random.choice(forms).format(y=y, z=z, half=half, e=f"({self.atom(others)})"))


def generate(seed: int) -> Program:
    """The program of a seed."""
    return Generator(seed).program()
