"""Random programs of all dtypes, mixed: they ask what numbers, names, subscripts and views mean, more than what loops do.

Integers wrap, are divided, shifted and taken apart in bits; a name is a Python number on one path and an element on another;
subscripts come from memory and count from the end; slices are open; arguments share storage; conditions have names and guard
what is outside; loops are left. Floats are multiples of small powers of two, so that most arithmetic on them is exact and what
is rounded is what a store rounds. Some programs fail in Python, by a division by zero or a number that does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tests.fuzz_programs import Generator, Held, Index, Program, Scope, Writer
from tests.fuzz_programs import generate as generate_of_one_dtype

Category = Literal["bool", "int", "float"]
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
_ORDER = {"bool": 0, "int": 1, "float": 2}


def category(dtype: str) -> Category:
    return "bool" if dtype == "bool" else "float" if "float" in dtype else "int"


@dataclass(frozen=True)
class Input:
    """A tensor argument. values: which: "any", "wide" (all that the dtype has), or subscripts of an axis: "index n", "index m"
    (0 to its size - 1) or "signed m" (from the end too). storage: "" its own, else the name of another and which of its
    elements: "a odd" (a has the even ones of one tensor), "a next" (one element further), "a same".
    """

    name: str
    dtype: str
    axes: tuple[str, ...]
    values: str = "any"
    storage: str = ""


@dataclass(frozen=True)
class MixedProgram(Program):
    """inputs: its tensors; its numbers are those of every program, with alpha a float. dtype: "mixed"."""

    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True)
class Named:
    """A scalar in scope that may be read. number: a Python number that the program returns."""

    name: str
    category: Category
    number: bool = False


class Mixed(Generator):
    """Writes one program of many dtypes."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.square = self.wild = False
        self.floating = True
        self.inputs: dict[str, Input] = {}
        self.types: dict[str, str] = {}  # of all arrays
        self.named: dict[str, Named] = {}  # scalars, by name
        self.exact = self.chance(0.85)  # no division, no function of math
        self.whole = self.chance(0.35)  # integers and bools alone
        self.wraps = self.chance(0.15)  # subscripts that are negative where a loop begins
        self.fails = self.chance(0.12)  # divides by what may be 0, and the like

    # ---- the whole

    def dtype_of(self, kind: Category | None = None) -> str:
        if kind is None:
            kind = self.random.choices(["bool", "int", "float"], [1, 6, 0 if self.whole else 6])[0]  # type: ignore[assignment]
        if kind == "bool":
            return "bool"
        return self.random.choice(INTEGERS if kind == "int" else FLOATS)

    def argument(self, name: str, axes: tuple[str, ...], dtype: str, values: str = "any", storage: str = "") -> Held:
        if values == "any" and category(dtype) == "int" and self.chance(0.35):
            values = "wide"
        self.inputs[name], self.types[name] = Input(name, dtype, axes, values, storage), dtype
        return Held(name, axes, False)

    def program(self) -> Program:
        arrays = [self.argument("x", ("n", "m"), self.dtype_of())]
        for name, axes in (("c", ("n", "m")), ("w", ("m",)), ("u", ("n",)), ("b", ("m",))):
            if self.chance(0.7):
                arrays.append(self.argument(name, axes, self.dtype_of()))
        for name, axes in (("z", ("n", "m")), ("v", ("m",))):
            if self.chance(0.25):
                arrays.append(replace(self.argument(name, axes, self.dtype_of()), writable=True))
        if self.chance(0.25):
            dtype, how = self.dtype_of(), self.random.choice(["odd", "odd", "next", "same"])
            first = self.argument("e", ("m",), dtype)
            second = self.argument("o", ("m",), dtype, storage=f"e {how}")
            written = how == "odd" and self.chance(0.7)
            arrays += [replace(first, writable=written), replace(second, writable=written and self.chance(0.5))]
        dtype = self.random.choice(["int64", "int64", "int32", "uint8", "int16"])
        self.narrow = dtype in ("uint8", "int16")  # elements are no subscripts: int() makes them so
        self.argument("idx", ("m",), dtype, "index m")
        self.argument("ids", ("m",), self.random.choice(["int64", "int32"]), "index n")
        self.argument("neg", ("m",), "int64", "signed m")
        self.argument("mask", ("m",), "bool")
        body = Writer()
        results = []
        for name in ["y", "r", "g"][: self.random.choice([1, 2, 2, 3])]:
            arrays.append(self.result(body, name))
            results.append(name)
        scope = Scope(arrays=tuple(arrays))
        for _ in range(self.random.choice([1, 1, 2])):
            self.budget = self.random.randint(1, 5)
            self.nest(body, scope)
        numbers = [n.name for n in self.named.values() if n.number]
        body.line(1, "return " + ", ".join([*results, *numbers]))
        text = "\n".join(body.lines)
        used = [n for n in (*self.inputs, "alpha", "q", "flag") if re.search(rf"\b{n}\b", text) or n == "x"]
        kinds = {"alpha": "float", "q": "int", "flag": "bool"}
        for n in used:
            if n not in kinds and n != "x" and not re.search(rf"\b{n}[\[.]", text):
                kinds[n] = "torch.Tensor"
        parameters = ", ".join(f"{n}: {kinds[n]}" if n in kinds else n for n in used)
        helpers = "".join(_HELPERS[h] + "\n\n" for h in self.helpers)
        source = f"{helpers}def program({parameters}):\n    n, m = x.shape\n{text}\n"
        inputs = tuple(i for i in self.inputs.values() if i.name in (*used, "e"))  # the storage of e may be another's too
        return MixedProgram(self.seed, source, "mixed", inputs)

    def result(self, body: Writer, name: str) -> Held:
        dtype = self.dtype_of()
        axes = self.random.choice([("n", "m"), ("n", "m"), ("m",), ("n",)])
        shape = f"({', '.join(axes)},)" if len(axes) == 1 else "(n, m)"
        zero = {"bool": "False", "int": "0", "float": "0.0"}[category(dtype)]
        two = {"bool": "True", "int": "2", "float": "-0.5"}[category(dtype)]
        same = [i.name for i in self.inputs.values() if i.axes == axes and not i.values.startswith(("index", "signed"))]
        forms = [f"torch.zeros({shape}, dtype=torch.{dtype})"] * 3
        forms += [f"torch.full({shape}, {two}, dtype=torch.{dtype})", f"torch.full({shape}, {zero}, dtype=torch.{dtype})"]
        forms += [f"torch.ones({shape}, dtype=torch.{dtype})"]
        text = self.random.choice(forms)
        if same and self.chance(0.3):
            like = self.random.choice(same)
            dtype = self.types[like]
            text = self.random.choice([f"torch.zeros_like({like})", f"{like}.clone()"])
        self.types[name] = dtype
        body.line(1, f"{name} = {text}")
        return Held(name, axes, True)

    # ---- nests

    def nest(self, body: Writer, scope: Scope) -> None:
        if self.chance(0.12):
            return self.slices(body, 1, scope)
        if self.chance(0.35):
            scope = self.carry(body, 1, scope)
        row = self.chance(0.6)
        depth = 1
        if row:
            scope = self.header(body, depth, scope, "n")
            depth += 1
            if self.chance(0.5):
                scope = self.carry(body, depth, scope)
            if self.chance(0.3):
                self.step(body, depth, scope)
        if self.chance(0.15):
            self.search(body, depth, scope)
        inner = self.header(body, depth, scope, "m")
        for _ in range(self.budget):
            inner = self.step(body, depth + 1, inner)
        if body.lines[-1].endswith(":"):
            body.line(depth + 1, "pass")
        for name in scope.carried:
            self.last(body, depth, scope, name)
        return None

    def header(self, body: Writer, depth: int, scope: Scope, size: str) -> Scope:
        """The head of a loop over an axis, and the scope in it."""
        var = self.name("i" if size == "m" else "r")
        elements = [a for a in scope.readable if a.axes == (size,) and self.plain(a.name)]
        if elements and self.chance(0.2):
            v = self.name("t")
            array = self.random.choice(elements)
            self.named[v] = Named(v, category(self.types[array.name]))
            body.line(depth, f"for {var}, {v} in enumerate({array.name}):")
            return replace(scope.with_scalar(v), loops=(*scope.loops, Index(var, size)))
        if len(elements) > 1 and self.chance(0.1):
            a, b = self.random.sample(elements, 2)
            v, o = self.name("t"), self.name("t")
            self.named[v], self.named[o] = (Named(k, category(self.types[h.name])) for k, h in ((v, a), (o, b)))
            body.line(depth, f"for {var}, ({v}, {o}) in enumerate(zip({a.name}, {b.name})):")
            return replace(scope.with_scalar(v).with_scalar(o), loops=(*scope.loops, Index(var, size)))
        forms = [(f"range({size})", 0, 0)] * 5
        forms += [(f"range(1, {size})", 1, 0), (f"range({size} - 1)", 0, 1), (f"range({size} - 1, -1, -1)", 0, 0)]
        forms += [(f"range(0, {size}, 2)", 0, 0), (f"reversed(range({size}))", 0, 0), (f"range(1, {size} - 1)", 1, 1)]
        forms += [(f"range(min(q, {size}))", 0, 0), (f"range(0, {size}, q + 1)", 0, 0)]
        text, low, slack = self.random.choice(forms)
        body.line(depth, f"for {var} in {text}:")
        return replace(scope, loops=(*scope.loops, Index(var, size, low, slack)))

    def plain(self, name: str) -> bool:
        return name not in ("idx", "ids", "neg", "mask")

    # ---- values

    def subscript(self, axis: str, scope: Scope, gather: bool = True) -> str | None:
        fitting = [i for i in scope.loops if i.size == axis]
        along = [i for i in scope.loops if i.size == "m"]
        kind = self.random.random()
        if along and kind < 0.12:
            at = self.offset(self.random.choice(along), 0)
            found = f"int(idx[{at}])" if self.narrow or self.chance(0.2) else f"idx[{at}]"
            if axis == "n":
                return f"ids[{at}]" if self.chance(0.7) else f"ids[{found}]"
            twice = f"int(idx[{found}])" if self.narrow else f"idx[{found}]"
            return self.random.choice([found, found, twice, f"neg[{at}]", f"neg[{found}]"] if self.wraps else [found, twice])
        if self.wraps and fitting and kind < 0.3:
            i = self.random.choice(fitting)
            return self.random.choice([f"{i.var} - 1", f"{i.var} - 2", f"-1 - {i.var}"])
        if fitting and self.fails and self.chance(0.04):
            return f"{fitting[-1].var} + {fitting[-1].slack + 1}"  # outside, where the loop ends
        if fitting:
            return self.offset(fitting[-1], 0)
        if self.chance(0.6):
            return None
        return self.random.choice(["0", "-1", f"{axis} - 1"])

    def load(self, scope: Scope, kind: Category | None = None, most: Category = "float") -> str | None:
        fitting = [a for a in scope.readable if category(self.types[a.name]) == (kind or category(self.types[a.name]))]
        fitting = [a for a in fitting if _ORDER[category(self.types[a.name])] <= _ORDER[most]]
        for _ in range(6):
            if fitting and (text := self.element(self.random.choice(fitting), scope)) is not None:
                return text
        return None

    def atom_of(self, scope: Scope, kind: Category) -> str:
        scalars = [n for s in scope.scalars if (n := self.named.get(s)) is not None and n.category == kind]
        if scalars and self.chance(0.35):
            return self.random.choice(scalars).name
        if self.chance(0.75):
            text = self.load(scope, kind)
            if text is not None:
                return text
        if kind == "bool":
            return self.random.choice(["flag", *(f"mask[{i.var}]" for i in scope.loops if i.size == "m")])
        if kind == "int":
            return self.random.choice([*(i.var for i in scope.loops), "q", "2", "-1", "3", "7", "1"])
        return self.random.choice(["alpha", "0.5", "-0.25", "1.0", "2.0"])

    def value(self, scope: Scope, kind: Category, depth: int = 2) -> str:
        """An expression of a category."""
        if kind == "bool":
            return self.test(scope, depth)
        if depth == 0 or self.chance(0.2):
            return self.atom_of(scope, kind)
        form = self.random.choice(_WHOLE if kind == "int" else _EXACT if self.exact else _INEXACT)
        if self.fails and kind == "int" and self.chance(0.15):
            form = self.random.choice(["{a} // {b}", "{a} % {b}", "1 << ({a})", "{a} // (q - 2)"])
        if "{b}" in form and kind == "float" and self.chance(0.2):
            form = form.replace("{b}", "{j}")
        made = form
        for place, made_of in (("a", kind), ("b", kind), ("j", "int"), ("f", "float")):
            if f"{{{place}}}" in made:
                text = self.value(scope, made_of, depth - 1)  # type: ignore[arg-type]
                made = made.replace(f"{{{place}}}", f"({text})" if not re.fullmatch(r"\w+(\[[^\[\]]*\])?", text) else text)
        if made.startswith("pick("):
            self.helpers["pick"] = None
        if made.startswith("both("):
            self.helpers["both"] = None
        if "{s}" in made:
            made = made.replace("{s}", self.atom_of(scope, "int"))
        if "{c}" in made:
            made = made.replace("{c}", self.test(scope, depth - 1))
        return made

    def test(self, scope: Scope, depth: int = 1) -> str:
        kind = self.random.random()
        if kind < 0.15:
            return self.atom_of(scope, "bool")
        if depth > 0 and kind < 0.3:
            a, b = self.test(scope, depth - 1), self.test(scope, depth - 1)
            return self.random.choice([f"({a} and {b})", f"({a} or {b})", f"not ({a})", f"(({a}) == ({b}))"])
        if scope.loops and kind < 0.5:
            i = self.random.choice(scope.loops)
            v = i.var
            forms = [f"{v} > 0", f"{v} % 2 == 0", f"0 < {v} < {i.size} - 1", f"{v} >= q", f"{v} != 2", f"{v} & 1"]
            return self.random.choice(forms)
        one: Category = "int" if self.whole or self.chance(0.5) else "float"
        other: Category = one if self.chance(0.8) or self.whole else "int" if one == "float" else "float"
        a, b = self.value(scope, one, min(depth, 1)), self.atom_of(scope, other)
        simple = f"({a}) {self.random.choice(['<', '>', '<=', '>=', '==', '!='])} {b}"
        return f"-3 < ({a}) <= {b}" if self.chance(0.1) else simple

    def wanted(self) -> Category:
        return "int" if self.whole or self.chance(0.5) else "float"

    # ---- statements

    def step(self, body: Writer, depth: int, scope: Scope, nested: bool = True) -> Scope:
        """A statement, or a few."""
        kinds: list[tuple[float, Callable[[], Scope | None]]] = [
            (4, lambda: self.put(body, depth, scope)),
            (2, lambda: self.add(body, depth, scope)),
            (1.5, lambda: self.name_of(body, depth, scope)),
            (2, lambda: self.path(body, depth, scope)),
            (0.7, lambda: self.swap(body, depth, scope)),
            (1, lambda: self.reread(body, depth, scope)),
            (0.6, lambda: self.slices(body, depth, scope)),
            (0.5, lambda: self.view(body, depth, scope)),
            (0.4, lambda: self.few(body, depth, scope)),
        ]
        if scope.carried:
            kinds.append((4, lambda: self.change(body, depth, scope)))
        if nested and any(i.size == "m" for i in scope.loops):
            kinds += [(2, lambda: self.guard(body, depth, scope)), (1.5, lambda: self.arms(body, depth, scope))]
            kinds += [(0.6, lambda: self.leave(body, depth, scope))]
        return self.random.choices([k for _, k in kinds], [w for w, _ in kinds])[0]() or scope

    def place(self, scope: Scope) -> tuple[str, Category] | None:
        for _ in range(8):
            array = self.random.choice(scope.writable)
            text = self.element(array, scope)
            if text is not None and ("[" not in text[len(array.name) + 1 :] or self.chance(0.3)):
                return text, category(self.types[array.name])
        return None

    def fitting(self, scope: Scope, into: Category) -> str:
        """A value that may be stored where the dtype is of a category."""
        if into == "bool":
            return self.test(scope)
        if into == "int":
            if not self.whole and self.chance(0.07):
                return f"int({self.atom_of(scope, 'float')})"
            return self.value(scope, "int") if self.chance(0.93) else self.test(scope)
        return self.value(scope, self.random.choice(["float", "float", "float", "int"]))

    def put(self, body: Writer, depth: int, scope: Scope) -> None:
        place = self.place(scope)
        if place is not None:
            body.line(depth, f"{place[0]} = {self.fitting(scope, place[1])}")

    def add(self, body: Writer, depth: int, scope: Scope) -> None:
        place = self.place(scope)
        if place is None or place[1] == "bool":
            return self.put(body, depth, scope)
        text, kind = place
        value = self.value(scope, kind if self.chance(0.8) else "int", 1)
        forms = ["{0} += {1}", "{0} -= {1}", "{0} = {0} + {1}", "{0} = max({0}, {1})", "{0} = {1} - {0}", "{0} *= {1}"]
        if kind == "int":
            forms += ["{0} |= {1}", "{0} ^= {1}", "{0} = {0} * 3 + {1}", "{0} = {0} // 2 + {1}", "{0} = ({0} << 1) ^ {1}",
                      "{0} %= 5", "{0} >>= 1"]  # fmt: skip
        body.line(depth, self.random.choice(forms).format(text, f"({value})"))

    def name_of(self, body: Writer, depth: int, scope: Scope) -> Scope:
        kind = self.random.choices(["bool", "int", "float"], [1, 3, 0 if self.whole else 3])[0]
        name = self.name("t")
        body.line(depth, f"{name} = {self.value(scope, kind)}")  # type: ignore[arg-type]
        self.named[name] = Named(name, kind)  # type: ignore[arg-type]
        return scope.with_scalar(name)

    def path(self, body: Writer, depth: int, scope: Scope) -> Scope:
        """A name that is a Python number on one path and an element on another."""
        name, kind = self.name("v"), self.wanted()
        element = self.load(scope, kind, most=kind) or self.atom_of(scope, kind)
        number = self.random.choice(["0", "-1", "3", "q", *(i.var for i in scope.loops)])
        if kind == "float" and self.chance(0.5):
            number = self.random.choice(["0.0", "0.5", "alpha"])
        c = self.test(scope)
        self.named[name] = Named(name, kind)
        form = self.random.choice(
            ["{v} = {e} if {c} else {k}", "{v} = {k} if {c} else {e}", "{v} = {k}\nif {c}:\n    {v} = {e}",
             "{v} = {e} or {k}", "{v} = {e} and {k}", "{v} = {k} or {e}", "if {c}:\n    {v} = {e}\nelse:\n    {v} = {k}",
             "{v} = min({e}, {k})", "{v} = max({k}, {e})", "{v} = {k}\nif {c}:\n    {v} = {e} + {k}"]
        )  # fmt: skip
        for line in form.format(v=name, e=element, k=number, c=c).split("\n"):
            body.line(depth, line)
        inner = scope.with_scalar(name)
        place = self.place(scope)
        if place is not None and place[1] != "bool" and _ORDER[kind] <= _ORDER[place[1]]:
            after = self.random.choice(["{v} - 1", "{v} * 2 - 7", "-{v}", "{v}", "{v} // 2", "{v} + {v}", "{v} % 4"])
            body.line(depth, f"{place[0]} = {after.format(v=name)}")
        return inner

    def swap(self, body: Writer, depth: int, scope: Scope) -> None:
        arrays = [a for a in scope.writable if any(i.size in a.axes for i in scope.loops)]
        if not arrays:
            return None
        array = self.random.choice(arrays)
        a, b = self.element(array, scope), self.element(array, scope)
        if a is not None and b is not None:
            forms = ["{0}, {1} = {1}, {0}", "{0}, {1} = {1} + 0, {0} + 0", "k = {0} + 0\n{0} = {1}\n{1} = k"]
            if self.types[array.name] == "bool":
                forms = forms[:1]
            for line in self.random.choice(forms).format(a, b).replace("k = ", f"k{self.fresh} = ").split("\n"):
                body.line(depth, re.sub(r"= k$", f"= k{self.fresh}", line))
            self.fresh += 1
        return None

    def reread(self, body: Writer, depth: int, scope: Scope) -> None:
        """What a store has left is read again."""
        place, other = self.place(scope), self.place(scope)
        if place is None or other is None or "bool" in (place[1], other[1]) or _ORDER[place[1]] > _ORDER[other[1]]:
            return self.put(body, depth, scope)
        e = self.value(scope, place[1], 1)
        body.line(depth, f"{place[0]} = {e}")
        body.line(depth, f"{other[0]} = " + self.random.choice(["{e} - {p}", "{p} * 2", "{p} + {o}", "{p} - 1"]).format(
            e=f"({e})", p=place[0], o=other[0]))  # fmt: skip
        return None

    def view(self, body: Writer, depth: int, scope: Scope) -> Scope | None:
        """A row by a name of its own, or a sum over it."""
        rows = [a for a in scope.readable if a.axes == ("n", "m")]
        along = [i for i in scope.loops if i.size == "m"]
        at = self.subscript("n", scope)
        if not rows or at is None:
            return None
        array = self.random.choice(rows)
        kind = category(self.types[array.name])
        name = self.name("row")
        if kind == "int" and self.chance(0.3):
            end = f":{along[-1].var}" if along else "1:"
            body.line(depth, f"{name} = {array.name}[{at}, {end}].sum()")
            self.named[name] = Named(name, "int")
            return scope.with_scalar(name)
        if not along:
            return None
        body.line(depth, f"{name} = {array.name}[{at}]")
        i = self.offset(along[-1], 0)
        if array.writable and kind != "bool":
            body.line(depth, f"{name}[{i}] {self.random.choice(['=', '+=', '-='])} {self.value(scope, kind, 1)}")
        place = self.place(scope)
        if place is not None and _ORDER[kind] <= _ORDER[place[1]] and place[1] != "bool":
            body.line(depth, f"{place[0]} = {name}[{self.offset(along[-1], 0)}] * 2 - {name}[-1]")
        return None

    def few(self, body: Writer, depth: int, scope: Scope) -> None:
        """A loop that is written out, or over a list of values."""
        name, place = self.name("k"), self.place(scope)
        if place is None or place[1] == "bool":
            return None
        text, kind = place
        items = [self.value(scope, kind if self.chance(0.7) else "int", 1) for _ in range(self.random.choice([1, 2, 3]))]
        made = self.random.choice([f"({', '.join(items)},)", f"[{', '.join(items)}]", "[3 * e - 1 for e in range(3)]"])
        inner = scope.with_scalar(name)
        self.named[name] = Named(name, kind)
        body.line(depth, f"for {name} in {made}:")
        body.line(depth + 1, f"{text} = {text} {self.random.choice(['+', '-', '*'])} ({self.value(inner, kind, 1)})")
        return None

    def carry(self, body: Writer, depth: int, scope: Scope) -> Scope:
        name, kind = self.name("s"), self.wanted()
        start = self.random.choice(["0", "1", "-1", "q"] if kind == "int" else ["0.0", "1.0", "-0.5", "0"])
        if self.chance(0.25):
            start = f"{self.load(scope, kind) or '0'} + 0"
        body.line(depth, f"{name} = {start}")
        self.named[name] = Named(name, kind)
        scope = scope.with_scalar(name)
        return replace(scope, carried=(*scope.carried, name))

    def change(self, body: Writer, depth: int, scope: Scope) -> None:
        """A carried scalar changes. Of whole numbers only by steps that do not make Python's own grow without end."""
        s = self.random.choice(scope.carried)
        kind = self.named[s].category
        e, c = f"({self.value(scope, kind, 1)})", self.test(scope)
        forms = ["{s} = {s} + {e}", "{s} += {e} + 0", "{s} = {e} - {s}", "{s} = max({s}, {e})", "{s} = min({e}, {s})",
                 "if {c}:\n    {s} = {s} + {e}", "if {c}:\n    {s} = {e} + 0", "{s} = {s} + 1", "if {c}:\n    {s} += 1",
                 "{s} = {e} + 0 if {c} else {s}", "if {e} > {s}:\n    {s} = {e} + 0"]  # fmt: skip
        if kind == "int":
            forms += ["{s} = ({s} * 3 + {e}) % 17", "{s} = {s} ^ {e}", "{s} = ({s} << 1) & 255", "{s} = {s} // 2 + {e}",
                      "{s} = {s} | {e}"]  # fmt: skip
        else:
            forms += ["{s} = 0.5 * {s} + {e}", "{s} = {s} * 0.25", "{s} = -{s}", "{s} = {s} * {s} * 0.125 - {e}"]
        for line in self.random.choice(forms).format(s=s, e=e, c=c).split("\n"):
            body.line(depth, line)

    def last(self, body: Writer, depth: int, scope: Scope, name: str) -> None:
        place = self.place(scope)
        kind = self.named[name].category
        if place is not None and _ORDER[kind] <= _ORDER[place[1]] and place[1] != "bool":
            body.line(depth, f"{place[0]} = {name}")

    def guard(self, body: Writer, depth: int, scope: Scope) -> None:
        """What is outside is not read, by a condition that has a name, is chained or comes first."""
        i = self.random.choice([i for i in scope.loops if i.size == "m"])
        d = self.random.choice(["1", "2", "-1", "-2", "q", "-q", "int(idx[{i}])", "q - 2"]).format(i=i.var)
        at = f"{i.var} + {d}".replace("+ -", "- ")
        arrays = [a for a in scope.readable if a.axes[-1] == "m"]
        array = self.random.choice(arrays)
        rows = [self.subscript("n", scope)] if len(array.axes) == 2 else []
        place = self.place(scope)
        if None in rows or place is None or _ORDER[category(self.types[array.name])] > _ORDER[place[1]]:
            return self.put(body, depth, scope)
        load = f"{array.name}[{', '.join([*(r for r in rows if r is not None), at])}]"
        zero = {"bool": "False", "int": "0", "float": "0.0"}[place[1]]
        name = self.name("k")
        inside = self.random.choice([f"0 <= {at} < m", f"{at} >= 0 and {at} < m", f"not ({at} < 0 or {at} >= m)"])
        more = f"{inside} and {load} > 0" if self.chance(0.3) and place[1] != "bool" else inside
        form = self.random.choice(
            ["if {c}:\n    {p} = {l}", "{k} = {c}\nif {k}:\n    {p} = {l}", "{p} = {l} if {c} else {z}",
             "{k} = {a}\nif 0 <= {k} < m:\n    {p} = {m}", "if not ({c}):\n    {p} = {z}\nelse:\n    {p} = {l}",
             "if mask[{i}] and {c}:\n    {p} = {l}", "{k} = {l} if {c} else {z}\n{p} = {k}"]
        )  # fmt: skip
        text = form.format(c=more, p=place[0], l=load, k=name, z=zero, a=at, m=load.replace(at, name), i=i.var)
        for line in text.split("\n"):
            body.line(depth, line)
        return None

    def arms(self, body: Writer, depth: int, scope: Scope) -> None:
        test = self.test(scope)
        if self.chance(0.4):
            name = self.name("k")
            body.line(depth, f"{name} = {test}")
            test = name
        for word in ["if", "else"][: self.random.choice([1, 2])]:
            body.line(depth, f"if {test}:" if word == "if" else "else:")
            before = len(body.lines)
            inner = scope
            for _ in range(self.random.choice([1, 1, 2])):
                inner = self.step(body, depth + 1, inner, nested=False)
            if len(body.lines) == before:
                body.line(depth + 1, "pass")

    def leave(self, body: Writer, depth: int, scope: Scope) -> None:
        body.line(depth, f"if {self.test(scope)}:")
        if self.chance(0.3):
            self.put(body, depth + 1, scope)
        body.line(depth + 1, self.random.choice(["break", "continue"]))

    def search(self, body: Writer, depth: int, scope: Scope) -> None:
        """A loop that ends when something is found."""
        j, found = self.name("j"), self.name("k")
        inner = replace(scope, loops=(*scope.loops, Index(j, "m")))
        start = self.random.choice(["-1", "0", "m"])
        lines = [f"{found} = {start}", f"for {j} in range(m):", f"    if {self.test(inner)}:", f"        {found} = {j}"]
        lines.append("        break")
        if self.chance(0.3):
            lines += ["else:", f"    {found} = {self.random.choice(['-2', 'm + 1', 'q'])}"]
        for line in lines:
            body.line(depth, line)
        self.named[found] = Named(found, "int", number=depth == 1 and self.chance(0.6))
        place = self.place(scope)
        if place is not None and place[1] != "bool":
            body.line(depth, f"{place[0]} = {found}")

    def slices(self, body: Writer, depth: int, scope: Scope) -> None:
        """A statement over a part of an axis at once."""

        def lines_of(arrays: tuple[Held, ...]) -> list[tuple[str, str]]:
            out = []
            for a in arrays:
                if a.axes == ("m",):
                    out.append((a.name, f"{a.name}["))
                elif a.axes == ("n", "m") and any(i.size == "n" for i in scope.loops):
                    row = self.offset(self.random.choice([i for i in scope.loops if i.size == "n"]), 0)
                    out.append((a.name, f"{a.name}[{row}, "))
            return out

        written = [w for w in lines_of(scope.writable) if self.types[w[0]] != "bool"]
        if not written:
            return None
        name, a = self.random.choice(written)
        kind = category(self.types[name])
        rest = replace(scope, arrays=tuple(h for h in scope.arrays if h.name != name))
        reads = [r for _, r in lines_of(rest.readable) if 0 < _ORDER[category(self.types[_])] <= _ORDER[kind]]
        if not reads:
            return None
        b = self.random.choice(reads)
        e = self.atom_of(rest, kind) if kind == "float" else self.random.choice(["2", "3", "q"])
        forms = ["{a}1:] = {b}:-1]", "{a}:-1] = {b}1:] * {e}", "{a}::2] = {b}::2]", "{a}-1] = {b}0]", "{a}:] = {b}:] + {e}",
                 "{a}2:] += {b}2:]", "{a}q:] = {b}q:]", "{a}:q] = {b}:q] - {b}0]", "{a}-2:] = {b}-2:]",
                 "{a}1:-1] = {b}2:] + {b}:-2]"]  # fmt: skip
        inside = [i for i in scope.loops if i.size == "m"]
        if inside:
            v = inside[-1].var
            forms += [f.replace("{v}", v) for f in ("{a}{v}:] = {b}{v}:]", "{a}:{v}] = {b}:{v}] * {e}", "{a}{v} + 1:] += {e}",
                      "{a}{v}:] = {b}:m - {v}]", "{a}:{v} + 1] -= {b}:{v} + 1]")]  # fmt: skip
        body.line(depth, self.random.choice(forms).replace("{a}", a).replace("{b}", b).replace("{e}", e))
        return None


_HELPERS = {
    "pick": "def pick(a, b, c=1):\n    if c > 1:\n        return a\n    if a == b:\n        return 0\n    return b - c\n",
    "both": "both = lambda a, b: (max(a, b), min(a, b) - 1)\n",
}
_WHOLE = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * 2 + {b}", "{a} // 3", "{a} // -2", "{a} % 5", "{a} % -3", "{a} // ({s} | 1)",
    "{a} % ({s} | 1)", "{a} & {b}", "{a} | {b}", "{a} ^ {b}", "~{a}", "{a} << 2", "{a} >> 1", "{a} << ({s} & 3)",
    "{a} >> ({s} & 7)", "-{a}", "abs({a})", "max({a}, {b})", "min({a}, {b})", "({a} if {c} else {b})", "({a} and {b})",
    "({a} or {b})", "int({c})", "pick({a}, {b}, {s})", "both({a}, {b})[1]",
    "({a} // {s} if {s} != 0 else {b})", "{a} ** 2", "({a} < {b}) + {a}", "int({a}) - 3",
)  # fmt: skip
_EXACT = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "0.5 * {a} + {b}", "-{a}", "abs({a})", "max({a}, {b})", "min({a}, {b})",
    "({a} if {c} else {b})", "({a} and {b})", "({a} or {b})", "{a} + {j}", "pick({a}, {b}, {j})",
    "both({b}, {a})[0]", "{j} * {a}", "float({j})", "{a} - alpha",
    "{a} / 4", "float({a}) * 0.5", "({a} > {b}) * {a}",
)  # fmt: skip
_INEXACT = (*_EXACT, "{a} / (abs({b}) + 1.0)", "math.tanh({a})", "{j} / 3", "{a} % 1.5", "{a} // 0.75", "math.sqrt(abs({a}))")


def program_of(seed: int) -> Program:
    """The program of a seed: of many dtypes if it is odd, of one if it is even."""
    return Mixed(seed).program() if seed % 2 else generate_of_one_dtype(seed // 2)
