"""Nests that programs are full of and that statements at random hardly ever make: states of several scalars, restarts,
extrema with what goes with them, cascades, counters, arrays carried element by element, recurrences of every direction.

Each idiom has a right form and others nearby, some of which are no such thing: what the analysis must tell apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz_programs import Generator, Scope, Writer


class Idioms:
    """Writes idioms with what a generator offers. Lines are text indented relative to the place they go to."""

    def __init__(self, generator: Generator) -> None:
        self.g = generator
        self.pick = generator.random.choice

    def write(self, body: Writer, depth: int, scope: Scope) -> None:
        idiom: Callable[[Scope], list[str]] = self.pick(
            [
                self.steps,
                self.steps,
                self.steps,
                self.coupled,
                self.extremum,
                self.extremum,
                self.cascade,
                self.nested,
                self.nested,
                self.reread,
                self.counter,
                self.counter,
                self.elements,
                self.elements,
                self.dead,
                self.strided,
                self.diagonal,
                self.flat,
                self.temporary,
            ]
        )
        for line in idiom(scope):
            body.line(depth, line)

    # ---- parts

    def chance(self, p: float) -> bool:
        return self.g.chance(p)

    @property
    def half(self) -> str:
        return "0.5" if self.g.floating else "2"

    def constant(self) -> str:
        return self.pick(["0.0", "1.0", "-0.5", "2.0"] if self.g.floating else ["0", "1", "-3", "4"])

    def around(self) -> tuple[str, str, list[str], int]:
        """(row, the variable of a loop over columns, headers of the loops around its body, their depth)"""
        r, i = self.g.name("r"), self.g.name("i")
        rows, columns = ("m", "m") if self.g.square else ("n", "m")
        ends = self.pick(["{m}", "{m}", "{m}", "1, {m}", "{m} - 1", "{m} - 1, -1, -1", "0, {m}, 2"]).format(m=columns)
        inner = f"for {i} in range({ends}):"
        if self.chance(0.4):
            return "0", i, [inner], 1
        return r, i, [f"for {r} in range({rows}):", "    " + inner], 2

    def data(self, row: str, i: str) -> str:
        return self.pick(
            [
                f"x[{row}, {i}]",
                f"c[{row}, {i}]",
                f"w[{i}]",
                f"x[{row}, {i}] * c[{row}, {i}]",
                f"({self.half} * w[{i}] + x[{row}, {i}])",
                f"abs(x[{row}, {i}])",
            ]
        )

    def test(self, row: str, i: str, others: tuple[str, ...] = ()) -> str:
        """A condition, mostly on data."""
        zero = "0.0" if self.g.floating else "0"
        plain = [
            f"x[{row}, {i}] > {zero}",
            f"c[{row}, {i}] < {zero}",
            f"w[{i}] >= {self.constant()}",
            f"{i} % 3 == 0",
            f"{i} > 1",
            f"{i} == 0",
            f"not x[{row}, {i}] > c[{row}, {i}]",
            f"x[{row}, {i}] > {zero} and w[{i}] < x[{row}, {i}]",
        ]
        if others and self.chance(0.1):
            return f"{self.pick(list(others))} > {zero}"
        return self.pick(plain)

    def step(self, s: str, row: str, i: str, others: tuple[str, ...] = ()) -> list[str]:
        """Something that happens to a scalar."""
        # of whole numbers only linear steps: Python's own grow without end
        e = self.data(row, i) if self.chance(0.8) or not others or not self.g.floating else self.pick(list(others))
        k, c = self.constant(), self.test(row, i, (s, *others))
        forms = [
            "{s} = {s} + {e}",
            "{s} += {e}",
            "{s} = {e} - {s}",
            "{s} = {s} * {h} + {e}",
            "{s} = max({s}, {e})",
            "{s} = min({s}, {e})",
            "{s} = max({s}, {k})",
            "{s} = min({s}, {k})",
            "{s} = min(max({s}, {k}), {e})",
            "if {c}:\n    {s} = {e} + 0",
            "if {c}:\n    {s} = {k}",
            "if {c}:\n    {s} = {s} + {e}",
            "{s} = {e} + 0 if {c} else {s} * {h} + {e}",
            "{s} = -{s}",
            "if {c}:\n    {s} = {e} + 0\nelse:\n    {s} = max({s}, {e})",
            "{s} = ({k} if {c} else {s}) + {e}",
            "{s} = max({e}, {s})",
            "if {c}:\n    {s} = {s} * {k}\n    {s} = {s} + {e}",
            "{s} = {s} if {c} else {e} + 0",
            "{s} = {s} * {e}",
            "if {c}:\n    {s} = {k}\nelif {e} > {k}:\n    {s} = {s} + {k}",
            "if {e} > {s}:\n    {s} = {e} + 0",
            "{s} = {s} + {e} if {c} else {k}",
            "{s} = {s} - {s} * {e}",
        ]
        if self.chance(0.08):
            forms = [
                "{s} = abs({s})",
                "{s} = {s} * {s}" if self.g.floating else "{s} = {s} // 2",
                "if {s} > {k}:\n    {s} = {k}",
                "if {s} > {k}:\n    {s} = {s} - {k}",
                "{s} = {k} if {s} < {e} else {s}",
            ]
        text: str = self.pick(forms)
        return text.format(s=s, e=e, k=k, c=c, h=self.half).split("\n")

    def result(self, row: str, i: str, s: str, scope: Scope) -> list[str]:
        """A use of every value, perhaps."""
        if self.chance(0.5):
            return []
        wide = [a.name for a in scope.writable if a.axes == (("m", "m") if self.g.square else ("n", "m"))]
        if not wide:
            return []
        return [f"{self.pick(wide)}[{row}, {i}] = {self.pick([s, f'{s} + x[{row}, {i}]', f'{s} * {self.half}'])}"]

    def last(self, row: str, s: str, scope: Scope) -> list[str]:
        """A use of the last value."""
        narrow = [a for a in scope.writable if len(a.axes) == 1 and (a.axes[0] == "n" or self.g.square)]
        if narrow and row != "0":
            return [f"{self.pick(narrow).name}[{row}] = {s}"]
        target = self.g.target(scope) if row == "0" else None
        wide = [a.name for a in scope.writable if a.axes == (("m", "m") if self.g.square else ("n", "m"))]
        if target is not None:
            return [f"{target[0]} = {s}"]
        return [f"{self.pick(wide)}[{row}, 0] = {s}"] if wide else []

    def loops(
        self, row: str, heads: list[str], depth: int, before: list[str], inside: list[str], after: list[str]
    ) -> list[str]:
        """Statements before, inside and after the innermost of the loops."""
        pad = "    " * (depth - 1)
        return [
            *heads[:-1],
            *(pad + t for t in before),
            heads[-1],
            *(pad + "    " + t for t in inside),
            *(pad + t for t in after),
        ]

    # ---- scalars

    def steps(self, scope: Scope) -> list[str]:
        row, i, heads, depth = self.around()
        names = [self.g.name("s") for _ in range(self.pick([1, 1, 2]))]
        inside: list[str] = []
        for _ in range(self.pick([1, 2, 2, 3])):
            s = self.pick(names)
            inside += self.step(s, row, i, tuple(n for n in names if n != s))
            if self.chance(0.2):
                inside += self.result(row, i, s, scope)
        inside += self.result(row, i, self.pick(names), scope)
        after = [line for s in names for line in self.last(row, s, scope)]
        return self.loops(row, heads, depth, [f"{s} = {self.constant()}" for s in names], inside, after)

    def coupled(self, scope: Scope) -> list[str]:
        row, i, heads, depth = self.around()
        names = [self.g.name("h") for _ in range(self.pick([2, 2, 2, 3, 4, 5]))]
        small = ["0.5", "-0.25", "0.125"] if self.g.floating else ["1", "-1", "2"]

        def form() -> str:
            terms = [f"{self.pick(small)} * {n}" for n in names if self.chance(0.6)]
            if self.g.floating and self.chance(0.1):
                terms.append(f"{self.pick(names)} * {self.pick(names)}")
            return " + ".join([*terms, self.data(row, i)]) if terms else f"{self.data(row, i)} + 0"

        inside: list[str] = []
        if self.chance(0.4):
            inside.append(f"{', '.join(names)} = {', '.join([*names[1:], form()])}")
        elif self.chance(0.4):
            inside.append(f"{', '.join(names)} = {', '.join(form() for _ in names)}")
        else:
            inside += [f"{n} = {form()}" for n in names]
        if self.chance(0.3):
            inside = [f"if {self.test(row, i)}:", *("    " + t for t in inside)]
            if self.chance(0.5):
                inside += ["else:", f"    {self.pick(names)} = {self.constant()}"]
        inside += self.result(row, i, self.pick(names), scope)
        after = [line for n in names[: self.pick([1, len(names)])] for line in self.last(row, n, scope)]
        return self.loops(row, heads, depth, [f"{n} = {self.constant()}" for n in names], inside, after)

    def extremum(self, scope: Scope) -> list[str]:
        row, i, heads, depth = self.around()
        m, k, o = self.g.name("best"), self.g.name("k"), self.g.name("o")
        e, guard = f"x[{row}, {i}]" if self.chance(0.7) else self.data(row, i), self.test(row, i, (k,))
        op = self.pick([">", "<", ">=", "<="])
        swapped = {">": "<", "<": ">", ">=": "<=", "<=": ">="}[op]
        wins = self.pick(
            [
                f"{e} {op} {m}",
                f"{e} {op} {m}",
                f"{m} {swapped} {e}",
                f"{guard} and {e} {op} {m}",
                f"{e} {op} {m} and {guard}",
                f"not {e} {swapped} {m}",
            ]
        )
        taken = [f"{m} = {e} + 0", f"{k} = {self.pick([i, i, f'{i} + 1', '3', f'{k} + 1', f'2 * {k} + {i}'])}"]
        if self.chance(0.4):
            taken.append(
                f"{o} = {self.pick([f'c[{row}, {i}] + 0', f'w[{i}] + 0', f'{m} + 0', f'{o} + w[{i}]', f'{k} * {self.half}'])}"
            )
        self.g.random.shuffle(taken)
        inside = [f"if {wins}:", *("    " + t for t in taken)]
        if self.chance(0.2):
            inside = [f"if {guard}:", *("    " + t for t in inside)]
        if self.chance(0.15):
            inside += ["else:", f"    {self.pick([k, o])} = 0"]
        if self.chance(0.15):
            inside.append(f"{m} = {self.pick([f'max({m}, w[{i}])', f'{m} * {self.half}', f'{m} + w[{i}]'])}")
        inside += self.result(row, i, self.pick([m, o]), scope)
        start = (
            self.pick(["-math.inf", "math.inf", "0.0", f"x[{row}, 0] + 0" if row != "0" else "0.5"]) if self.g.floating else "0"
        )
        zero = "0.0" if self.g.floating else "0"
        after = self.last(row, m, scope) + self.last(row, f"{zero} + {k}", scope) + self.last(row, o, scope)
        return self.loops(row, heads, depth, [f"{m} = {start}", f"{k} = 0", f"{o} = {zero}"], inside, after)

    def cascade(self, scope: Scope) -> list[str]:
        if not self.g.floating:
            return self.steps(scope)
        row, i, heads, depth = self.around()
        m, s, o, t = self.g.name("m"), self.g.name("l"), self.g.name("o"), self.g.name("new")
        e = self.data(row, i)
        new = self.pick(
            [f"max({m}, {e})"] * 4 + [f"min({m}, {e})", f"{m} + {e}", f"0.5 * {m} + {e}", f"{e} if {e} > {m} else {m}"]
        )
        right = f"math.exp({m} - {t})"
        repair = self.pick(
            [right] * 5 + [f"math.exp({t} - {m})", "1.0", "0.5", f"math.exp({m} - {e})", f"math.exp(2.0 * ({m} - {t}))"]
        )
        term = self.pick([f"math.exp({e} - {t})"] * 4 + [f"math.exp({e} - {m})", f"{e}", f"math.exp({e} - 2.0 * {t})"])
        inside = [f"{t} = {new}", f"{s} = {s} * {repair} + {term}"]
        own = [s]
        if self.chance(0.4):
            value = self.pick([f"w[{i}]", f"c[{row}, {i}]"])
            inside.append(f"{o} = {o} * {self.pick([repair, right])} + {term} * {value}")
            own.append(o)
        if self.chance(0.2):
            inside = [inside[0], f"if {self.test(row, i)}:", *("    " + line for line in inside[1:])]
        inside.append(f"{m} = {t}")
        if self.chance(0.2):
            inside = [f"if {self.test(row, i)}:", *("    " + line for line in inside)]
        if self.chance(0.15):
            inside += self.result(row, i, self.pick([m, *own]), scope)
        after = [line for n in (m, *own) for line in self.last(row, n, scope)]
        start = self.pick(["0.0", "0.0", "-1.0", "-math.inf"])
        return self.loops(row, heads, depth, [f"{m} = {start}", f"{s} = {self.constant()}", f"{o} = 0.0"], inside, after)

    def nested(self, scope: Scope) -> list[str]:
        """Scalars carried through loops inside."""
        i, j = self.g.name("i"), self.g.name("j")
        rows = "m" if self.g.square else "n"
        names = [self.g.name("s") for _ in range(self.pick([1, 1, 2]))]
        others = tuple(names)
        inside: list[str] = []
        if self.chance(0.25):
            inside += self.step(names[0], i, "0", others[1:])
        if self.chance(0.2):
            inside.append(f"{self.g.name('t')} = {names[0]} * {self.half}")
            others = (*others, inside[-1].split(" ")[0])
        for _ in range(self.pick([1, 1, 2])):
            ends = self.pick(["m", "m", "m", "1, m", "m - 1", f"{i}" if self.g.square else "m"])
            inner: list[str] = []
            for _ in range(self.pick([1, 1, 2])):
                s = self.pick(names)
                inner += self.step(s, i, j, tuple(n for n in others if n != s))
            inner += self.result(i, j, self.pick(names), scope) if self.chance(0.5) else []
            inside += [f"for {j} in range({ends}):", *("    " + t for t in inner)]
        if self.chance(0.4):
            inside += self.step(self.pick(names), i, "0")
        if self.chance(0.3):
            inside += self.last(i, self.pick(names), scope)
        if self.chance(0.25):
            inside = [f"if {self.test(i, '0')}:", *("    " + t for t in inside)]
        before = [f"{s} = {self.constant()}" for s in names]
        after = [line for s in names for line in self.last("0", s, scope)]
        return [*before, f"for {i} in range({rows}):", *("    " + t for t in inside), *after]

    def reread(self, scope: Scope) -> list[str]:
        """Values that go through an array within the iteration."""
        row, i, heads, depth = self.around()
        s, y = self.g.name("s"), self.g.name("a")
        stored = self.pick([f"{s}", f"{s} + {self.data(row, i)}", f"{s} * {self.half}", self.data(row, i) + " + 0"])
        at = self.pick([i, i, "0", f"{i} // 2"])
        inside = [
            f"{y}[{at}] = {stored}",
            f"{s} = {self.pick(['', f'{s} + '])}{y}[{self.pick([at, at, i, '0'])}] * {self.half}",
        ]
        if self.chance(0.3):
            inside[1:1] = self.step(s, row, i)
        if self.chance(0.3):
            inside.append(f"{s} = {s} + {self.data(row, i)}")
        before = [f"{y} = torch.zeros(m, dtype=x.dtype)", f"{s} = {self.constant()}"]
        lines = self.loops(row, heads, depth, before[1:], inside, self.last(row, s, scope))
        return (
            [before[0], *lines] if self.chance(0.7) else self.loops(row, heads, depth, before, inside, self.last(row, s, scope))
        )

    # ---- subscripts by scalars

    def counter(self, scope: Scope) -> list[str]:
        row, i, heads, depth = self.around()
        k, y = self.g.name("k"), self.g.name("a")
        e, c = self.data(row, i), self.test(row, i)
        form = self.pick(
            [
                f"if {c}:\n    {y}[{k}] = {e}\n    {k} += 1",
                f"if {c}:\n    {k} += 1\n    {y}[{k}] = {e}",
                f"{y}[{k}] = {e}\n{k} += 1",
                f"if {c}:\n    {y}[{i}] = w[{k}]\n    {k} += 1",
                f"{y}[{k}] = {e}\nif {c}:\n    {k} += 1",
                f"if {c}:\n    {y}[{k}] = {e}\n    {y}[{k} + 1] = 1\n    {k} += {self.pick(['1', '2'])}",
                f"if {c}:\n    {y}[{k}] = {e}\nif {self.pick([c, self.test(row, i)])}:\n    {k} += 1",
                f"if {c}:\n    {y}[{k}] = {y}[{k} + 1] + {e}\n    {k} += 1",
                f"{k} = {k} + (1 if {c} else 0)\n{y}[{k}] = {y}[{k}] + {e}",
                f"if {c}:\n    {y}[{k}] = {e}\n    {k} += 1\nelse:\n    {k} = 0",
                f"{y}[{k}] += {e}\n{k} += 1",
                f"{y}[{k}] = {e}\n{k} += 1\nif {c}:\n    {y}[{k}] = 2\n    {k} += 1",
                f"if {c}:\n    {k} += 1\n{y}[{i}] = {e} * {k}",
                f"{y}[{i} + {k}] = {e}\nif {c}:\n    {k} += 1",
                f"{y}[{k}] = {e}\n{k} = {i}",
                f"{y}[{k}] = {e}\n{k} = {k} + {i} % 2",
                f"for j{k} in range(2):\n    {y}[{k}] = {e} * j{k}\n    {k} += 1",
                f"for j{k} in range({i}):\n    {y}[{k}] = {e}\n    {k} += 1",
                f"for j{k} in range(3):\n    if j{k} < {i}:\n        {y}[{k}] = {e}\n        {k} += 1",
                f"{k} = 0\nfor j{k} in range(m):\n    if w[j{k}] > x[{row}, {i}]:\n        {y}[{k}] = {e}\n        {k} += 1",
            ]
        )
        size = "m * m + 2 * m + 3"
        start = self.pick(["0", "0", "0", "1", "2"])
        outside = self.chance(0.3)
        before = [] if outside else [f"{k} = {start}"]
        lines = self.loops(row, heads, depth, before, form.split("\n"), self.last(row, f"{self.constant()} + {k}", scope))
        head = [f"{y} = torch.zeros({size if not outside else 'x.shape[0] * (m * m + 2 * m + 3)'}, dtype=x.dtype)"]
        total, j = self.g.name("s"), self.g.name("j")
        zero = "0.0" if self.g.floating else "0"
        weights = f"{y}[{j}] * ({j} + 1)"
        tail = [
            f"{total} = {zero}",
            f"for {j} in range({y}.shape[0]):",
            f"    {total} += {weights}",
            *self.last("0", total, scope),
        ]
        return [*head, *([f"{k} = {start}"] if outside else []), *lines, *tail]

    # ---- arrays carried by elements

    def elements(self, scope: Scope) -> list[str]:
        j, e, y = self.g.name("j"), self.g.name("e"), self.g.name("acc")
        rows = "m" if self.g.square else "n"
        a, b = f"x[{j}, {e}]", f"c[{j}, {e}]"
        forms = [
            f"{y}[{e}] = {y}[{e}] + {a}",
            f"{y}[{e}] += {a}",
            f"{y}[{e}] = {y}[{e}] * {b} + {a}",
            f"{y}[{e}] = max({y}[{e}], {a})",
            f"if {a} > {b}:\n    {y}[{e}] = {a} + 0",
            f"{y}[{e}] = {a} if {b} > {y}[{e}] else {y}[{e}]",
            f"{y}[{e}] = {a} - {y}[{e}]",
            f"{y}[{e}] = {y}[{e}] * {self.half} + s{y}",
            f"{y}[{e}] = {a} + 0",
            f"{y}[{e}] *= s{y}",
            f"{y}[{e}] = {y}[{e}] * {y}[{e}]",
            f"{y}[{e}] = {y}[{e}] + {a} if {b} > 0 else {a} * 1",
            f"{y}[{e}] = min(max({y}[{e}] + {a}, {self.constant()}), w[{e}])",
        ]
        if self.chance(0.3):
            forms = [
                f"{y}[{e}] = {y}[{e} - 1] + {a}",
                f"{y}[{e}] = {y}[m - 1 - {e}] + {a}",
                f"{y}[{e}] = {y}[{e}] + {y}[0]",
                f"{y}[{e} - 1] = {y}[{e}] * {b}",
                f"{y}[{e}] = {y}[{e}] + {a}\n{y}[{e} - 1] = {y}[{e} - 1] * {self.half}",
            ]
        inside: list[str] = []
        if self.chance(0.5):
            inside += self.step(f"s{y}", j, "0")
        for _ in range(self.pick([1, 1, 2])):
            ends = self.pick(["m", "m", "m", "1, m", "m - 1", "m - 1, -1, -1", "0, m, 2"])
            form: str = self.pick(forms)
            if f"{e} - 1" in form:
                ends = self.pick(["1, m", "1, m", "m - 1, 0, -1"])
            inside += [f"for {e} in range({ends}):", *("    " + t for t in form.split("\n"))]
        if self.chance(0.3):
            inside.append(self.pick([f"s{y} = s{y} + {y}[0]", f"{y}[0] = s{y}", f"{y}[m - 1] = {y}[0] + 1"]))
        if self.chance(0.2):
            inside = [f"if {self.test(j, '0')}:", *("    " + t for t in inside)]
        out: list[str] = []
        wide = [z.name for z in scope.writable if z.axes == ((rows, "m"))]
        if wide and self.chance(0.3):
            inside += [f"for {e} in range(m):", f"    {self.pick(wide)}[{j}, {e}] = {y}[{e}]"]
        elif wide:
            out = [f"for {e} in range(m):", f"    {self.pick(wide)}[0, {e}] = {y}[{e}]"]
        before = [f"{y} = torch.{self.pick(['zeros', 'ones'])}(m, dtype=x.dtype)", f"s{y} = {self.constant()}"]
        return [*before, f"for {j} in range({rows}):", *("    " + t for t in inside), *out, *self.last("0", f"s{y}", scope)]

    # ---- dependences through memory

    def wide(self, scope: Scope) -> str | None:
        found = [a.name for a in scope.writable if a.readable and a.axes == (("m", "m") if self.g.square else ("n", "m"))]
        return self.pick(found) if found else None

    def dead(self, scope: Scope) -> list[str]:
        row, i, heads, depth = self.around()
        y, j = self.wide(scope), self.g.name("j")
        if y is None:
            return self.steps(scope)
        e = self.data(row, i)
        at = self.pick([f"{y}[{row}, 0]", f"{y}[0, {i}]", f"{y}[0, 0]", f"{y}[{row}, {i} // 2]", f"{y}[{row}, m - 1]"])
        inside = [f"{at} = {e}"]
        if self.chance(0.3):
            inside = [f"if {self.test(row, i)}:", f"    {at} = {e}"]
        if self.chance(0.3):
            inside.append(f"{y}[{row}, {i}] = {self.pick([e, at + ' * ' + self.half])}")
        if self.chance(0.3):
            inside = [
                f"for {j} in range({self.pick(['m', i, f'{i} + 1', f'{i}, m', '3'])}):",
                f"    {y}[{row}, {self.pick([j, i])}] = {e}",
            ]
            if "range(3)" in inside[0]:
                inside[1] = f"    {y}[{row}, {i}] = {e} * {j}"
        return self.loops(row, heads, depth, [], inside, [])

    def strided(self, scope: Scope) -> list[str]:
        y, i = self.wide(scope), self.g.name("i")
        if y is None:
            return self.coupled(scope)
        row = self.g.name("r") if self.chance(0.6) else "0"
        d, rows = self.pick([1, 2, 3, 4]), "m" if self.g.square else "n"
        at = self.pick([f"{i} - {d}"] * 4 + [f"{i} - {max(1, d - 1)}", f"m - 1 - {i}", "m // 2", f"{i} // 2"])
        e = self.data(row, i)
        text = self.pick(
            [
                f"{y}[{row}, {i}] = {y}[{row}, {at}] * {self.half} + {e}",
                f"{y}[{row}, {i}] = {y}[{row}, {at}] + {e}",
                f"if {self.test(row, i)}:\n    {y}[{row}, {i}] = {y}[{row}, {at}] - {e}",
                f"{y}[{row}, {i}] = {e}\n{y}[{row}, {at}] = {y}[{row}, {i}] * {self.half}",
                f"{y}[{row}, {i}] = max({y}[{row}, {at}], {y}[{row}, {i} - {d}]) + {e}",
            ]
        )
        ends = self.pick([f"{d}, m", f"{d}, m", f"{d}, m, {self.pick([1, 2, 3])}", f"m - 1, {d} - 1, -1"])
        inside = [f"for {i} in range({ends}):", *("    " + t for t in text.split("\n"))]
        return inside if row == "0" else [f"for {row} in range({rows}):", *("    " + t for t in inside)]

    def diagonal(self, scope: Scope) -> list[str]:
        y, i, j = self.wide(scope), self.g.name("i"), self.g.name("j")
        if y is None:
            return self.elements(scope)
        near = [(-1, -1), (-1, 0), (0, -1), (-1, 1), (1, -1), (1, 0), (0, 1), (-2, -1), (-1, -2)]
        low, high, left, right = 0, 0, 0, 0
        terms = []
        for _ in range(self.pick([1, 1, 2, 3])):
            a, b = self.pick(near)
            low, high, left, right = max(low, -a), max(high, a), max(left, -b), max(right, b)
            terms.append(f"{y}[{i} + {a}, {j} + {b}]".replace("+ -", "- ").replace(" + 0", ""))
        rows = "m" if self.g.square else "n"
        value = " + ".join(f"{self.pick(['0.5', '0.25'] if self.g.floating else ['1', '2'])} * {t}" for t in terms)
        heads = [(i, f"{low}, {rows} - {high}"), (j, f"{left}, m - {right}")]
        if self.chance(0.3):
            heads.reverse()
        first, second = heads
        update = f"{y}[{i}, {j}] = {value} + {self.data(i, j)}"
        return [f"for {first[0]} in range({first[1]}):", f"    for {second[0]} in range({second[1]}):", f"        {update}"]

    def flat(self, scope: Scope) -> list[str]:
        """Subscripts that count in products of sizes."""
        y, i, j = self.g.name("flat"), self.g.name("i"), self.g.name("j")
        rows = "m" if self.g.square else "n"
        own = self.pick([f"{i} * m + {j}"] * 4 + [f"{j} * {rows} + {i}", f"{i} * {rows} + {j}", f"{i} + {j}"])
        other = self.pick(
            [
                own,
                f"({i} - 1) * m + {j}",
                f"{i} * m + {j} - 1",
                f"{i} * m",
                f"{i} * m + m - 1 - {j}",
                f"{j} * {rows} + {i}",
                f"({i} - 1) * m + {j} - 1",
            ]
        )
        size = f"{rows} * m + {rows} * {rows}" if f"{i} * {rows}" in own else f"{rows} * m + m + {rows}"
        e = self.data(i, j)
        text = self.pick(
            [
                f"{y}[{own}] = {e}",
                f"{y}[{own}] = {y}[{other}] * {self.half} + {e}",
                f"{y}[{own}] += {y}[{other}]",
                f"{y}[{own}] = {e}\n{self.g.name('t')} = {y}[{other}] + 0",
                f"{y}[{own}] = {e}\n{y}[{other}] = {e} * {self.half}",
            ]
        )
        low = self.pick(["0, ", "1, ", "1, "])
        k, s = self.g.name("j"), self.g.name("s")
        zero = "0.0" if self.g.floating else "0"
        return [
            f"{y} = torch.zeros({size}, dtype=x.dtype)",
            f"for {i} in range({low if '- 1)' not in other else '1, '}{rows}):",
            f"    for {j} in range({'1, ' if '- 1' in other else ''}m):",
            *("        " + t for t in text.split("\n")),
            f"{s} = {zero}",
            f"for {k} in range({y}.shape[0]):",
            f"    {s} += {y}[{k}] * ({k} + 1)",
            *self.last("0", s, scope),
        ]

    def temporary(self, scope: Scope) -> list[str]:
        """An array that every iteration writes before it reads, or nearly so."""
        y, i, j, t = self.wide(scope), self.g.name("i"), self.g.name("j"), self.g.name("t")
        if y is None:
            return self.reread(replace(scope))
        rows = "m" if self.g.square else "n"
        first, second = (self.pick(["m", "m", "m", "1, m", "m - 1"]) for _ in range(2))
        at = self.pick([j, j, f"{j} - 1", f"m - 1 - {j}", "0"])
        second = "1, m" if "- 1" in at and at.startswith(j) else second
        inside = [
            f"for {j} in range({first}):",
            f"    {t}[{j}] = {self.data(i, j)}",
            f"for {j} in range({second}):",
            f"    {y}[{i}, {j}] = {t}[{at}] * {self.half} + {t}[{self.pick([j, '0'])}]",
        ]
        if self.chance(0.3):
            inside[1:2] = [f"    if {self.test(i, j)}:", "    " + inside[1]]
        out = self.last("0", f"{t}[0]", scope) if self.chance(0.3) else []
        return [f"{t} = torch.zeros(m, dtype=x.dtype)", f"for {i} in range({rows}):", *("    " + line for line in inside), *out]
