"""Random programs for the mechanisms that a plan is made of; tests/fuzz_mechanisms.py holds them against the plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz_programs import Program


@dataclass(frozen=True)
class Input:
    """A tensor argument. shape: expressions of sizes. kind: "float", "bool", or what integers are below ("below n"), or up to
    ("upto m"); "falling" ones are at most their own place. special: NaN and infinities are among its numbers.
    """

    name: str
    shape: tuple[str, ...]
    kind: str = "float"
    special: bool = False


@dataclass(frozen=True)
class Mechanism(Program):
    """family: what it is for. calls: the sizes of each; large: those of one of many iterations."""

    inputs: tuple[Input, ...] = ()
    calls: tuple[dict[str, int], ...] = ()
    family: str = ""
    large: tuple[tuple[str, int], ...] = ()


# ---------------------------------------------------------------- programs


class _Writer:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"mechanisms {seed}")
        self.pick = self.draw.choice
        self.seed = seed
        self.inputs: dict[str, Input] = {}
        self.lines: list[str] = []
        self.sizes: dict[str, Sequence[int]] = {}
        self.dtype = self.pick(["float16", "bfloat16", "float32", "float32", "float64"])
        self.most = 2500  # iterations of the plain Python

    def chance(self, p: float) -> bool:
        return self.draw.random() < p

    def input(self, name: str, *shape: str, kind: str = "float", special: bool = False) -> str:
        self.inputs.setdefault(name, Input(name, shape, kind, special))
        return name

    def line(self, depth: int, text: str) -> None:
        self.lines += ["    " * depth + part for part in text.split("\n")]

    def loops(self, *heads: str, depth: int = 1) -> int:
        for head in heads:
            self.line(depth, f"for {head}:")
            depth += 1
        return depth

    def number(self) -> str:
        return self.pick(["0.0", "1.0", "-0.5", "0.25"])

    def test(self, *variables: str) -> str:
        """A condition on indices that says nothing of what is inside."""
        a, b = self.pick(variables), self.pick(variables)
        return self.pick(
            [f"{a} >= {b}", f"{a} > {b}", f"{a} != {b}", f"{a} == {b}"]
            + [f"{a} + {b} < 5", f"{a} % 2 == 0", f"{a} > 2", f"{a} - {b} >= -1"]
        )  # fmt: skip

    # ---- reads on conditions

    def within(self) -> None:
        rank = self.pick([1, 2, 2, 2, 3])
        axes, names = ["i", "j", "l"][-rank:], ["n", "m", "d"][-rank:]
        small = {"n": (1, 2, 3, 5, 0), "m": (1, 2, 3, 7, 9, 16), "d": (1, 2, 3, 4, 8, 16, 24, 33, 0)}
        self.sizes |= {n: small[n] for n in names}
        self.sizes["p"] = (0, 1, 2, 3)
        self.line(1, f"p = {self.pick(['1', '2', names[-1] + ' // 2', names[-1] + ' // 2', names[-1] + ' - 1', '3'])}")
        self.sizes.pop("p")
        wide = self.pick([*names, "2 * " + names[-1]] if self.chance(0.3) else [names[-1]])
        results = self.pick([1, 1, 2])
        form = self.pick(["map", "map", "map", "fold", "fold", "scan", "guarded", "slices"])
        shape = [*names[:-1], names[-1] if form in ("scan",) or wide == names[-1] else wide]
        ends = ["{}"] * 6 + ["1, {}", "2, {}", "{} - 1", "{} - 1, -1, -1", "0, {}, 2"]
        heads = [f"{a} in range({self.pick(ends).format(s)})" for a, s in zip(axes, shape, strict=True)]
        out = shape[:-1] if form == "fold" else shape
        for k in range(results):
            where = f"({', '.join(out)},)" if out else "(1,)"
            self.line(1, f"y{k} = torch.zeros({where}, dtype=x.dtype)")
        special = self.chance(0.2)
        self.input("x", *names, special=special)
        at = ", ".join(axes)
        if form in ("fold", "scan"):
            depth = self.loops(*heads[:-1])
            for k in range(results):
                self.line(depth, f"s{k} = {self.number()}")
            depth = self.loops(heads[-1], depth=depth)
            for k in range(results):
                value = self.choice(axes, shape, names, 2)
                step = self.pick(
                    [
                        f"s{k} + {value}",
                        f"0.5 * s{k} + {value}",
                        f"max(s{k}, {value})",
                        f"s{k} + {value} * {self.read(axes, names, shape)}",
                    ]
                )
                self.line(depth, f"s{k} = {step}")
                if form == "scan":
                    self.line(depth, f"y{k}[{at}] = s{k}")
            if form == "fold":
                for k in range(results):
                    self.line(depth - 1, f"y{k}[{', '.join(axes[:-1]) or '0'}] = s{k}")
        else:
            depth = self.loops(*heads)
            for k in range(results):
                if form == "guarded":
                    inside, load = self.guarded(axes, shape, names)
                    more = f" and {self.test(*axes)}" if self.chance(0.3) else ""
                    self.line(
                        depth,
                        f"if {inside}{more}:\n    y{k}[{at}] = {load} * 2\n"
                        f"else:\n    y{k}[{at}] = {self.choice(axes, shape, names, 1)}",
                    )
                    if self.chance(0.3):
                        self.line(depth, f"if {self.test(*axes)}:\n    y{k}[{at}] = {self.choice(axes, shape, names, 1)}")
                else:
                    self.line(depth, f"y{k}[{at}] = {self.choice(axes, shape, names, 2)}")
                    if self.chance(0.3):
                        self.line(depth, f"y{k}[{at}] += {self.choice(axes, shape, names, 1)}")
        self.line(1, "return " + ", ".join(f"y{k}" for k in range(results)))

    def read(self, axes: Sequence[str], names: Sequence[str], shape: Sequence[str]) -> str:
        """Something that is inside wherever."""
        own = [a for a, s, n in zip(axes, shape, names, strict=True) if s == n]
        if own and self.chance(0.7):
            v = self.pick(own)
            n = names[axes.index(v)]
            return f"{self.input('w' + v, n)}[{v}]"
        return self.pick(["0.5", "1.5", f"({axes[-1]} + 1)"])

    def guarded(self, axes: Sequence[str], shape: Sequence[str], names: Sequence[str]) -> tuple[str, str]:
        """A condition under which a load is inside, and the load."""
        tests, index = [], []
        array = self.pick(["x", "x", "z"])
        self.input(array, *names)
        shifted = self.draw.randrange(len(axes))
        for k, (v, s, n) in enumerate(zip(axes, shape, names, strict=True)):
            other = self.pick(axes)
            forms = [
                f"{v} - p",
                f"{v} + p",
                f"{n} - 1 - {v}",
                f"{v} - 1",
                f"{v} + 1",
                f"p - {v}",
                f"{v} - {n} // 2",
                f"{v} + {n} // 2",
            ]
            if other != v:
                forms += [f"{v} - {other}", f"{v} + {other}", f"{other}"]
            forms += [f"2 * {v}", f"2 * {v} + 1", f"{v} // 2", f"{v} - 2 * p"] if self.chance(0.2) else []
            e = self.pick(forms) if k == shifted or self.chance(0.25) or s != n else v
            index.append(e)
            if e == v and s == n:
                continue
            tests.append(self.inside(e, v, n))
        self.draw.shuffle(tests)
        return " and ".join(tests) or "True", f"{array}[{', '.join(index)}]"

    def inside(self, e: str, v: str, n: str) -> str:
        forms = [
            f"0 <= {e} < {n}",
            f"{e} >= 0 and {n} > {e}",
            f"not ({e} < 0 or {e} >= {n})",
            f"{e} > -1 and {e} <= {n} - 1",
            f"not {e} < 0 and not {e} >= {n}",
        ]
        if e == f"{v} - p":
            forms += [f"{v} >= p and {v} < {n} + p", f"p <= {v} < p + {n}"]
        if e == f"{v} + p":
            forms += [f"{v} >= -p and {v} < {n} - p", f"{n} - p > {v} and {e} >= 0"]
        return self.pick(forms)

    def choice(self, axes: Sequence[str], shape: Sequence[str], names: Sequence[str], depth: int) -> str:
        if depth == 0 or self.chance(0.1):
            return self.pick([self.number(), self.read(axes, names, shape)])
        inside, load = self.guarded(axes, shape, names)
        orelse = self.choice(axes, shape, names, depth - 1)
        if self.chance(0.25):
            inside = f"{inside} and {self.test(*axes)}"
        if self.chance(0.1):
            inside = f"({inside}) and {self.read(axes, names, shape)} > 0"
        if self.chance(0.2):
            return f"({orelse} if not ({inside}) else {load} * {self.read(axes, names, shape)})"
        if self.chance(0.2):
            return f"({load} if {inside} else 0.0) + {orelse}"
        return f"({load} if {inside} else {orelse})"

    # ---- windows

    def windows(self) -> None:
        flat = self.chance(0.5)
        st, di, pad = self.pick([1, 1, 2, 3]), self.pick([1, 1, 2]), self.pick([0, 0, 1, 2])
        self.sizes |= {
            "n": (1, 2, 3, 0),
            "m": (6, 9, 16, 23) if flat else (5, 7),
            "k": (1, 2, 3, 4) if flat else (1, 2, 3),
            "d": (5, 8),
        }
        self.input("x", "n", "m") if flat else self.input("x", "n", "m", "d")
        self.line(1, f"u = (m + {2 * pad} - {di} * (k - 1) - 1) // {st} + 1")
        if not flat:
            self.line(1, f"v = (d + {2 * pad} - {di} * (k - 1) - 1) // {st} + 1")
        operation = self.pick(["max", "sum", "weights", "weights", "min", "torch.maximum", "norm", "softmax"])
        self.line(1, f"y = torch.zeros(n, {'u' if flat else 'u, v'}, dtype=x.dtype)")
        heads = ["r in range(n)", "i in range(u)"] + ([] if flat else ["j in range(v)"])
        depth = self.loops(*heads)
        row = f"i * {st} + a * {di} - {pad}"
        column = f"j * {st} + b * {di} - {pad}"
        inside = [f"0 <= {row} < m"] + ([] if flat else [f"0 <= {column} < d"])
        load = f"x[r, {row}]" if flat else f"x[r, {row}, {column}]"
        weight = f"{self.input('w', 'k')}[a]" if flat else f"{self.input('w', 'k', 'k')}[a, b]"
        start = {"max": "-math.inf", "torch.maximum": "-4.0", "min": "math.inf"}.get(operation, "0.0")
        self.line(depth, f"s = {start}")
        if operation == "softmax":
            self.line(depth, "t = 0.0")
        inner = self.loops("a in range(k)", *([] if flat else ["b in range(k)"]), depth=depth)
        value = load if not pad else f"({load} if {' and '.join(inside)} else {self.pick(['0.0', '0.0', '-1.0'])})"
        guarded = pad and self.chance(0.5)
        if guarded:
            self.line(inner, f"if {' and '.join(inside)}:")
            inner, value = inner + 1, load
        steps = {
            "max": f"s = max(s, {value})",
            "min": f"s = min(s, {value})",
            "torch.maximum": f"s = torch.maximum({value} * 1, s + x[0, {'0' if flat else '0, 0'}] * 0)",
            "sum": f"s += {value}",
            "weights": f"s += {value} * {weight}",
            "norm": f"s += {value} * {value}",
            "softmax": f"t += torch.exp({value}) * {weight}\ns += torch.exp({value})",
        }
        if operation == "torch.maximum" and value != load:
            steps[operation] = f"s = max(s, {value})"
        self.line(inner, steps[operation])
        end = {"norm": "s / (1.0 + s)", "softmax": "t / (s + 1.0)", "max": "max(s, -4.0)", "min": "min(s, 4.0)"}.get(
            operation, "s"
        )
        self.line(depth, f"y[r, i{'' if flat else ', j'}] = {end}")
        self.line(1, "return y")

    # ---- joins

    def joins(self) -> None:
        self.sizes |= {"n": (0, 1, 5, 17, 40), "m": (1, 3, 8, 12), "t": (1, 2, 5, 9)}
        wide = self.chance(0.6)
        self.input("x", "n", "m", special=self.chance(0.1))
        key = (
            self.input("k", "n", kind="below t") + "[i]"
            if self.chance(0.6)
            else self.input("k", "n", "m", kind="below t") + "[i, j]"
        )
        where = f"{key}, j" if wide else key
        self.line(
            1,
            f"y = torch.{self.pick(['zeros', 'ones'])}({'t, m' if wide else 't'}, "
            f"dtype={self.pick(['x.dtype', 'x.dtype' if self.dtype == 'float64' else 'torch.float32'])})",
        )
        counted = self.chance(0.4)
        if counted:
            self.line(1, "c = torch.zeros(t)")
        depth = self.loops("i in range(n)")
        if counted:
            self.line(depth, f"c[{key if 'j' not in key else key.replace('j', '0')}] += 1")
        depth = self.loops(
            self.pick(["j in range(m)", "j in range(m)", "j in range(m - 1, -1, -1)", "j in range(min(i, m))"]), depth=depth
        )
        of_key = "x[i, j] * s[k[i]]" if "j" not in key else "x[i, j] * x[i, j]"
        value = self.pick(["x[i, j]", "x[i, j] * w[j]", "x[i, 0] * x[i, j]", of_key, "(x[i, j] if j > 0 else 0.5)",
                           "(x[i, j - 1] if j > 0 else x[i, j])"])  # fmt: skip
        if "w[" in value:
            self.input("w", "m")
        if "s[" in value:
            self.input("s", "t")
        whole = value if self.dtype in ("float32", "float64") else "x[i, j]"  # what is rounded decides nothing
        step = self.pick([f"y[{where}] += {value}"] * 4 + [f"y[{where}] -= {value}", f"y[{where}] = max(y[{where}], {whole})",
                          f"y[{where}] = min(y[{where}], {whole})", f"y[{where}] = 0.5 * y[{where}] + {value}"])  # fmt: skip
        if self.chance(0.3):
            self.line(depth, f"if {self.pick(['x[i, j] > 0', 'i > j', 'x[i, 0] > 0', 'j % 2 == 0'])}:\n    {step}")
        else:
            self.line(depth, step)
        if counted:
            depth = self.loops("a in range(t)", *(["b in range(m)"] if wide else []))
            self.line(depth, f"y[a{', b' if wide else ''}] = y[a{', b' if wide else ''}] / (1.0 + c[a])")
        if self.chance(0.3):
            self.line(1, "z = torch.zeros(n, m, dtype=x.dtype)")
            depth = self.loops("i in range(n)", "j in range(m)")
            self.line(depth, f"z[i, j] = y[{where}] * x[i, j]")
            self.line(1, "return y, z")
        else:
            self.line(1, "return y")

    # ---- steps

    def steps(self) -> None:
        self.most = 1500
        self.sizes |= {"t": (0, 1, 2, 4), "n": (1, 2, 5, 9), "m": (1, 3, 8, 12)}
        flat = self.chance(0.4)
        at, shape = ("j", "m") if flat else ("i, j", "n, m")
        self.input("x", *shape.split(", "))
        kinds = self.draw.sample(["stencil", "normal", "decay", "product", "sum rows", "order"], self.pick([1, 2, 2, 3]))
        self.line(1, f"a = torch.zeros({shape}, dtype=x.dtype)\nb = torch.zeros({shape}, dtype=x.dtype)")
        heads = [] if flat else ["i in range(n)"]
        depth = self.loops(*heads, "j in range(m)")
        self.line(depth, f"a[{at}] = x[{at}]")
        if self.chance(0.5):
            self.line(1, "h = torch.zeros(t, dtype=x.dtype)")
            kept = True
        else:
            kept = False
        self.line(1, f"for q in range({self.pick(['t', 't', 't - 1, -1, -1'])}):")
        for kind in kinds:
            if kind == "stencil":
                depth = self.loops(*heads, self.pick(["j in range(m)", "j in range(1, m - 1)", "j in range(q, m)"]), depth=2)
                left = "(a[{}] if j > 0 else 0.0)".format(at.replace("j", "j - 1"))
                right = "(a[{}] if j < m - 1 else a[{}])".format(at.replace("j", "j + 1"), at)
                up = "" if flat or self.chance(0.5) else " + (0.125 * a[i - 1, j] if i > 0 else 0.0)"
                self.line(depth, f"b[{at}] = 0.25 * {left} + 0.5 * a[{at}] + 0.25 * {right}{up}")
                depth = self.loops(*heads, self.pick(["j in range(m)", "j in range(m - 1, -1, -1)"]), depth=2)
                self.line(depth, f"a[{at}] = {self.pick([f'b[{at}]', f'b[{at}] + x[{at}] * 0.5', f'b[{at}] * (q + 1)'])}")
            elif kind == "normal":
                self.line(2, "s = 1.0")
                depth = self.loops(*heads, "j in range(m)", depth=2)
                self.line(depth, f"s += a[{at}] * a[{at}]")
                depth = self.loops(*heads, "j in range(m)", depth=2)
                self.line(depth, f"a[{at}] = a[{at}] / torch.sqrt(s)" if self.chance(0.5) else f"a[{at}] = a[{at}] / s")
                if kept:
                    self.line(2, "h[q] = s")
            elif kind == "decay":
                depth = self.loops(*heads, "j in range(m)", depth=2)
                w = self.input("w", "t", "m")
                self.line(
                    depth,
                    f"a[{at}] = 0.5 * a[{at}] + {w}[q, j]"
                    if self.chance(0.5)
                    else f"if j > q:\n    a[{at}] = a[{at}] - {w}[q, j]",
                )
            elif kind == "product":
                g = self.input("g", "m", "m")
                depth = self.loops(*heads, "j in range(m)", depth=2)
                self.line(depth, "s = 0.0")
                inner = self.loops("e in range(m)", depth=depth)
                self.line(inner, f"s += {g}[j, e] * a[{at.replace('j', 'e')}]")
                self.line(depth, f"b[{at}] = {self.pick(['s * 0.25', 'torch.tanh(s)'])}")
                depth = self.loops(*heads, "j in range(m)", depth=2)
                self.line(depth, f"a[{at}] = b[{at}]")
            elif kind == "sum rows" and not flat:
                self.line(
                    2,
                    "for j in range(m):\n    s = 0.0\n    for i in range(n):\n        s += a[i, j]\n"
                    "    for i in range(n):\n        a[i, j] = a[i, j] - s / n",
                )
            else:
                depth = self.loops(*heads, "j in range(1, m)", depth=2)
                self.line(depth, f"a[{at}] = 0.5 * a[{at.replace('j', 'j - 1')}] + a[{at}]")
        self.line(1, f"return a{', h' if kept else ''}{', b' if self.chance(0.3) else ''}")

    # ---- products

    def products(self) -> None:
        self.dtype = self.pick(["float16", "bfloat16", "bfloat16", "float32"])
        self.most = 4000
        self.sizes |= {
            "b": (1, 2, 3, 0),
            "h": (1, 2, 4),
            "n": (1, 2, 3, 8, 16, 17, 33),
            "m": (1, 3, 4, 8, 16, 24),
            "d": (1, 2, 7, 8, 16, 32, 0),
        }
        batch = self.pick([[], ["b"], ["b", "h"], ["b", "h"]])
        where = {"b": "e", "h": "f", "n": "i", "m": "j", "d": "k"}
        left, right = [*batch, "n", "d"], [*batch, "m", "d"]
        if batch and self.chance(0.25):
            right.remove(self.pick(batch))
        for operand in (left, right):
            self.draw.shuffle(operand) if self.chance(0.5) else operand
        out = [*batch, "n", "m"]
        self.draw.shuffle(out) if self.chance(0.4) else out
        self.input("x", *left, special=self.chance(0.1))
        self.input("w", *right)
        load = {"x": f"x[{', '.join(where[a] for a in left)}]", "w": f"w[{', '.join(where[a] for a in right)}]"}
        kind = self.pick(["x.dtype", "x.dtype", "torch.float32"])
        self.line(1, f"y = torch.zeros({', '.join(out)}, dtype={kind})")
        order = self.draw.sample([*batch, "n", "m"], len(batch) + 2)
        depth = self.loops(*(f"{where[a]} in range({a})" for a in order))
        self.line(depth, "s = 0.0")
        ends = self.pick(["d", "d", "d", "d", "min(i + 1, d)", "d - 1, -1, -1", "i % 2, d", "0, d, 2"])
        inner = self.loops(f"k in range({ends})", depth=depth)
        a, b = load["x"], load["w"]
        prologue = self.chance(0.25)
        if prologue:
            form = self.pick(
                [
                    "({} * c[k]).to(x.dtype)",
                    "max({}, 0.0)",
                    "{} * 2",
                    "({} if k > 0 else 0.0)",
                    "torch.relu({})",
                    "({} + 1).to(x.dtype)",
                ]
            )
            self.input("c", "d") if "c[k]" in form else None
            a = form.format(a)
        guard = self.pick(["", "", "", "if k <= i:\n    ", "if c2[k] > 0:\n    "])
        if "c2" in guard:
            self.input("c2", "d")
        self.line(inner, f"{guard}s += {self.pick([f'{a} * {b}', f'{b} * {a}'])}")
        two = self.chance(0.2)
        if two:
            self.input("g", *right)
            self.line(depth, "r = 0.0")
            inner = self.loops("k in range(d)", depth=depth)
            self.line(inner, f"r += {load['x']} * g[{', '.join(where[a] for a in right)}]")
        bias = self.input("v", "m") if self.chance(0.5) else ""
        epilogue = self.pick(
            ["s", "s", "s * 0.5", "max(s, 0.0)", "torch.tanh(s)", "s * torch.sigmoid(s)", "(s if i >= j else 0.0)"]
        )
        epilogue += f" + {bias}[j]" if bias else ""
        epilogue += " + r" if two and self.chance(0.5) else " * r" if two else ""
        self.line(depth, f"y[{', '.join(where[a] for a in out)}] = {epilogue}")
        if "b" not in batch and self.chance(0.2):
            of_row = ", ".join(where[a] for a in out)
            self.line(1, f"z = torch.zeros(n, dtype=x.dtype)\nfor i in range(n):\n    t = {self.number()}")
            self.line(2, f"for j in range(m):\n    t += y[{of_row}]\nz[i] = t")
            self.line(1, "return y, z")
        else:
            self.line(1, "return y")

    # ---- attention

    def attention(self) -> None:
        self.dtype = self.pick(["float16", "bfloat16", "bfloat16", "float32"])
        self.most = 6000
        self.sizes |= {
            "b": (1, 2),
            "h": (1, 2),
            "g": (1, 2, 3),
            "n": (1, 2, 3, 5, 9, 17),
            "t": (1, 2, 3, 8, 9, 17, 0),
            "d": (1, 2, 4, 8),
            "e": (1, 2, 4, 8),
        }
        self.input("q", "b", "h * g" if self.chance(0.5) else "h", "n", "d")
        grouped = self.inputs["q"].shape[1] == "h * g"
        self.input("k", "b", "h", "t", "d")
        self.input("v", "b", "h", "t", "e", special=self.chance(0.1))
        heads = "h * g" if grouped else "h"
        share = self.pick(["f // g", "f // g", "f % h"]) if grouped else "f"
        extents = self.pick(
            ["t", "t", "t", "min(i + 1, t)", "max(0, i - 2), min(i + 1, t)", "first", "lengths", "first causal", "i % 2, t"]
        )
        ends = extents
        if extents == "first":
            ends = f"{self.input('first', 'b', 'n', kind='upto t')}[c, i], t"
        elif extents == "lengths":
            ends = f"{self.input('lengths', 'b', kind='upto t')}[c]"
        elif extents == "first causal":
            ends = f"max(0, {self.input('first', 'b', 'n', kind='falling')}[c, i]), min(i + 1, t)"
        score = "dot * 0.5"
        if self.chance(0.25):
            bias = self.input("bias", *self.pick([("n", "t"), ("b", heads, "n", "t"), (heads,), ("t",)]))
            index = {("n", "t"): "i, j", (heads,): "f", ("t",): "j"}.get(self.inputs["bias"].shape, "c, f, i, j")
            score += f" + {bias}[{index}]" + (" * (j - i)" if index == "f" else "")
        if self.chance(0.15):
            score = f"2.0 * torch.tanh(({score}) / 2.0)"
        mask = self.pick(["", "", "", "mask[i, j]", "mask[c, j]", "j <= i", "j <= i + t - n", "abs(i - j) <= 2"])
        if "mask" in mask:
            self.input("mask", *(("n", "t") if mask == "mask[i, j]" else ("b", "t")), kind="bool")
        if mask:
            score = f"({score}) if {mask} else -math.inf"
        sink = self.input("sink", heads) + "[f]" if self.chance(0.2) else ""
        self.line(1, f"o = torch.zeros(b, {heads}, n, e, dtype=q.dtype)")
        lse = self.chance(0.3)
        if lse:
            self.line(1, f"z = torch.zeros(b, {heads}, n)")
        depth = self.loops("c in range(b)", f"f in range({heads})", "i in range(n)")
        online = self.chance(0.25)
        safe = self.chance(0.7)
        dot = f"dot = 0.0\nfor a in range(d):\n    dot += q[c, f, i, a] * k[c, {share}, j, a]"
        weight = self.pick(["{}", "{}.to(v.dtype)", "{}.to(v.dtype)"])
        if online:
            self.line(depth, f"m = {sink or '-1e30'}\nl = {'1.0' if sink else '0.0'}\nacc = torch.zeros(e)")
            inner = self.loops(f"j in range({ends})", depth=depth)
            self.line(
                inner,
                f"{dot}\ns = {score}\nnew = max(m, s)\nr = torch.exp(m - new + 0 * dot)\n"
                "p = torch.exp(s - new + 0 * dot)\nl = l * r + p",
            )
            self.line(inner, f"for a in range(e):\n    acc[a] = acc[a] * r + p * v[c, {share}, j, a]\nm = new")
            self.line(depth, "for a in range(e):\n    o[c, f, i, a] = acc[a] / l if l > 0 else 0.0")
            if lse:
                self.line(depth, "z[c, f, i] = m")
        else:
            self.line(depth, "scores = torch.zeros(t)")
            inner = self.loops(f"j in range({ends})", depth=depth)
            self.line(inner, f"{dot}\nscores[j] = {score}")
            self.line(depth, f"m = {sink or '-math.inf'}\nfor j in range({ends}):\n    m = max(m, scores[j])")
            self.line(depth, "ref = m if m > -math.inf else 0.0" if safe else "ref = m")
            self.line(
                depth,
                f"l = {f'torch.exp({sink} - ref)' if sink else '0.0'}\nfor j in range({ends}):\n"
                "    l = l + torch.exp(scores[j] - ref)",
            )
            p = weight.format("torch.exp(scores[j] - ref)")
            inner = self.loops("a in range(e)", depth=depth)
            self.line(inner, f"acc = 0.0\nfor j in range({ends}):\n    acc += {p} * v[c, {share}, j, a]")
            self.line(inner, f"o[c, f, i, a] = {'acc / l if l != 0.0 else 0.0' if safe else 'acc / l'}")
            if lse:
                self.line(depth, f"z[c, f, i] = {'ref + torch.log(l + 1.0)' if safe else 'ref'}")
        self.line(1, f"return o{', z' if lse else ''}")

    # ---- rows

    def rows(self) -> None:
        """Softmax, norms and the like, under conditions, with what is masked infinite or NaN."""
        self.sizes |= {"n": (0, 1, 3, 7), "m": (0, 1, 2, 5, 8, 16, 33, 64)}
        special = self.chance(0.4)
        self.input("x", "n", "m", special=special)
        mask = self.pick(["", "mask[r, i]", "mask[r, i]", "i <= r", "i < lengths[r]", "i != r"])
        if "mask" in mask:
            self.input("mask", "n", "m", kind="bool")
        if "lengths" in mask:
            self.input("lengths", "n", kind="upto m")
        ends = self.pick(["m", "m", "m - 1, -1, -1", "lengths[r]", "r, m", "0, m, 2"])
        if "lengths" in ends:
            self.input("lengths", "n", kind="upto m")
        value = self.pick(["x[r, i]", "x[r, i]", "x[r, i] * w[i]", "x[r, i] + b[r]", "x[r, m - 1 - i]"])
        for name, size in (("w", "m"), ("b", "n")):
            self.input(name, size) if f"{name}[" in value else None
        if mask and self.chance(0.5):
            value, mask = f"({value} if {mask} else {self.pick(['-math.inf', '0.0', '-1e4'])})", ""
        guard = f"if {mask}:\n    " if mask else ""
        self.line(1, "y = torch.zeros(n, m, dtype=x.dtype)")
        self.line(1, "for r in range(n):")
        loop = f"for i in range({ends}):\n    " + (f"if {mask}:\n        " if mask else "")
        form = self.pick(["softmax", "softmax", "logsumexp", "norm", "mean", "count", "argmax", "standard"])
        if form in ("softmax", "logsumexp"):
            self.line(2, f"t = -math.inf\n{loop}t = max(t, {value})")
            self.line(2, self.pick(["t = t if t > -math.inf else 0.0", "t = t + 0.0"]))
            self.line(2, f"s = 0.0\n{loop}s += torch.exp({value} - t)")
            store = f"torch.exp({value} - t) / s" if form == "softmax" else f"{value} - t - torch.log(s)"
        elif form in ("norm", "standard"):
            self.line(2, "u = 0.0" if form == "norm" else f"u = 0.0\n{loop}u += {value}\nu = u / (m + 1)")
            self.line(2, f"s = 0.0\n{loop}s += ({value} - u) * ({value} - u)")
            store = f"({value} - u) / torch.sqrt(s + 0.5)"
        elif form == "mean":
            self.line(2, f"s = 0.0\n{loop}s += {value}")
            store = f"{value} - s / (m + 1)"
        elif form == "count":
            self.line(2, f"s = 0\nfor i in range({ends}):\n    if {value} > 0:\n        s += 1")
            store = f"{value} * s"
        else:
            self.line(2, f"t = -math.inf\ns = 0\n{loop.split('if')[0]}if {value} > t:\n        t = {value} + 0\n        s = i")
            store = "t if i == s else x[r, i]"
        self.line(2, f"for i in range({self.pick([ends, 'm'])}):")
        self.line(3, f"{guard if self.chance(0.5) else ''}y[r, i] = {store}")
        self.line(1, "return y")

    # ---- complex numbers

    def complex(self) -> None:
        self.dtype = self.pick(["complex64", "complex128"])
        self.sizes |= {"n": (0, 1, 3, 5), "m": (1, 2, 5, 8, 17)}
        self.input("x", "n", "m")
        self.input("c", "n", "m")
        conj = lambda e: f"{e}.conj()" if self.chance(0.4) else e  # noqa: E731
        a, b = conj("x[r, i]"), conj(self.pick(["c[r, i]", "c[r, m - 1 - i]", "(c[r, i - 1] if i > 0 else x[r, i])"]))
        form = self.pick(["map", "fold", "scan", "product", "parts"])
        if form == "product":
            self.line(
                1,
                "y = torch.zeros(n, n, dtype=x.dtype)\nfor r in range(n):\n    for q in range(n):\n        s = 0\n"
                f"        for i in range(m):\n            s += {conj('x[r, i]')} * {conj('c[q, i]')}\n"
                "        y[r, q] = s\nreturn y",
            )
            return
        self.line(1, "y = torch.zeros(n, m, dtype=x.dtype)\nfor r in range(n):\n    s = 0\n    for i in range(m):")
        forms = {
            "map": f"y[r, i] = {a} * {b} + 1j",
            "fold": f"s += {a} * {b}",
            "scan": f"s = s * {b} * 0.25 + {a}\ny[r, i] = s",
            "parts": f"y[r, i] = {a}.real * {b} + abs({b}) * 1j",
        }
        self.line(3, forms[form])
        if form == "fold":
            self.line(2, "for i in range(m):\n    y[r, i] = s * x[r, i]")
        self.line(1, "return y")

    # ---- the whole

    def program(self, family: str) -> Mechanism:
        getattr(self, family)()
        text = "\n".join(self.lines)
        named: dict[str, str] = {}
        for made in self.inputs.values():
            for axis, size in enumerate(made.shape):
                if size.isidentifier() and size not in named:
                    named[size] = f"{made.name}.shape[{axis}]"
                elif size == "h * g" and "h" in named and "g" not in named:
                    pass
        head = []
        for size, spelled in named.items():
            head.append(f"    {size} = {spelled}")
        missing = [s for s in self.sizes if s not in named]
        numbers = [s for s in missing if s != "g"]
        if "g" in missing:
            shape = self.inputs["q"].shape
            head.append("    g = q.shape[1] // h" if "h * g" in shape else "    g = 1")
        parameters = [*self.inputs, *(f"{n}: int" for n in numbers)]
        source = f"def program({', '.join(parameters)}):\n" + "\n".join(head) + "\n" + text + "\n"
        calls = tuple(self.call(k) for k in range(3))
        large = tuple((n, self.grown(family, n, s)) for n, s in calls[0].items())
        return Mechanism(self.seed, source, self.dtype, tuple(self.inputs.values()), calls, family, large)

    def grown(self, family: str, name: str, size: int) -> int:
        if name in {"windows": "k", "steps": "t", "products": "bh", "attention": "bhg"}.get(family, ""):
            return size
        if family == "attention" and name in "de":
            return self.pick([8, 16, 32, 40, 64, 64, 128])
        small = len(self.sizes) > 2 and family in ("within", "windows")
        return self.pick([17, 24, 32, 40] if small else [33, 64, 96, 100, 128, 130, 192, 200, 257])

    def call(self, k: int) -> dict[str, int]:
        """Sizes of few iterations; a length of 0 in a later one alone."""
        drawn = [{n: self.pick([s for s in c if s or k]) for n, c in self.sizes.items()} for _ in range(12)]
        count = lambda sizes: math.prod(max(1, s) for s in sizes.values())  # noqa: E731
        few = [sizes for sizes in drawn if count(sizes) <= self.most]
        sizes = max(few[:4], key=count) if few else {n: min(s for s in c if s) for n, c in self.sizes.items()}
        if k == 2 and self.chance(0.5):
            sizes[self.pick([*sizes])] = self.pick([0, 1])
        return sizes


FAMILIES = (
    *("within", "within", "windows", "joins", "steps", "products", "products", "attention", "attention", "rows", "complex"),
)  # fmt: skip


def generate(seed: int) -> Mechanism:
    return _Writer(seed).program(FAMILIES[seed % len(FAMILIES)])
