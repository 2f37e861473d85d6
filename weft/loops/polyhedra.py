"""Exact integer questions about accesses, answered by isl. The only module that imports islpy.

A question is a set: integer points (iterations of loops, for given sizes) that satisfy affine constraints. What is not affine
in the program is left out of the constraints, so a set can only be too large: an empty one is a proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import islpy

from weft.loops.accesses import Access, Constraint, constraints
from weft.loops.affine import Affine, affine
from weft.loops.ir import Const, Expr, For, Function, Op


@dataclass(frozen=True)
class Witness:
    """A concrete collision: sizes, and the two iterations (loop variable -> value) that touch the same element."""

    sizes: tuple[tuple[str, int], ...]
    first: tuple[tuple[str, int], ...]
    second: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        def text(values: tuple[tuple[str, int], ...]) -> str:
            return "(" + ", ".join(f"{n} = {v}" for n, v in values) + ")"

        with_sizes = f" with {', '.join(f'{n} = {v}' for n, v in self.sizes)}" if self.sizes else ""
        return f"iterations {text(self.first)} and {text(self.second)}{with_sizes}"


class System:
    """A set under construction: dimensions, parameters, constraints. Names are the program's; isl sees x0, x1, p0 ..."""

    def __init__(self, parameters: Iterable[str]) -> None:
        self.parameters = {name: f"p{k}" for k, name in enumerate(parameters)}
        self.dimensions: dict[str, str] = {}
        self.lines: list[str] = []
        self._fresh = 0

    def dimension(self, name: str) -> str:
        """Add (or find) a dimension."""
        return self.dimensions.setdefault(name, f"x{len(self.dimensions)}")

    def text(self, form: Affine, rename: dict[str, str]) -> str | None:
        """isl's text of an affine form; None where it names something that is neither dimension nor parameter."""
        parts = [str(form.constant)]
        for name, coefficient in form.terms:
            name = rename.get(name, name)
            symbol = self.dimensions.get(name) or self.parameters.get(name)
            if symbol is None:
                return None
            parts.append(f"{coefficient}*{symbol}")
        return " + ".join(parts).replace("+ -", "- ")

    def require(self, constraint: Constraint, rename: dict[str, str]) -> None:
        form, sign = constraint
        text = self.text(form, rename)
        if text is not None:
            self.lines.append(f"{text} {sign} 0")

    def add_loop(self, loop: For, rename: dict[str, str]) -> None:
        """The iterations of a loop: its variable (renamed) runs over its range."""
        symbol = self.dimension(rename.get(loop.var, loop.var))
        low, high = self.bound(loop.start, rename), self.bound(loop.stop, rename)
        signs = (">=", "<") if loop.step > 0 else ("<=", ">")
        for sign, text in zip(signs, (low, high), strict=True):
            if text is not None:
                self.lines.append(f"{symbol} {sign} {text}")
        if abs(loop.step) != 1 and low is not None:
            self._fresh += 1
            k = f"k{self._fresh}"
            self.lines.append(f"exists ({k} : {symbol} - ({low}) = {abs(loop.step)}*{k})")

    def bound(self, expr: Expr, rename: dict[str, str]) -> str | None:
        """isl's text of a bound or an extent; None where it is none that isl can be told."""
        form = affine(expr)
        if form is not None:
            return self.text(form, rename)
        match expr:
            case Op(name="floordiv" | "mod" as name, args=(a, Const(value=divisor))) if divisor > 0:
                inner = self.bound(a, rename)
                if inner is None:
                    return None
                return f"floor(({inner})/{divisor})" if name == "floordiv" else f"(({inner}) mod {divisor})"
            case Op(name="add" | "sub" as name, args=(a, b)):
                left, right = self.bound(a, rename), self.bound(b, rename)
                if left is None or right is None:
                    return None
                return f"({left}) {'+' if name == 'add' else '-'} ({right})"
            case Op(name="neg", args=(a,)):
                inner = self.bound(a, rename)
                return None if inner is None else f"-({inner})"
            case Op(name="mul", args=(a, Const(value=factor))) | Op(name="mul", args=(Const(value=factor), a)):
                inner = self.bound(a, rename)
                return None if inner is None else f"{factor}*({inner})"
            case Op(name="min" | "max" as name, args=(a, b)):
                left, right = self.bound(a, rename), self.bound(b, rename)
                return None if left is None or right is None else f"{name}({left}, {right})"
        return None

    def add_domain(self, access: Access, rename: dict[str, str]) -> None:
        for loop in access.loops:
            self.add_loop(loop, rename)
        for condition, holds in access.guard:
            for constraint in constraints(condition, holds):
                self.require(constraint, rename)

    def build(self, extra: str = "") -> islpy.Set:
        parameters = "[" + ", ".join(self.parameters.values()) + "] -> "
        dims = "[" + ", ".join(self.dimensions.values()) + "]"
        lines = [f"({line})" for line in self.lines] + ([f"({extra})"] if extra else [])
        return islpy.Set(f"{parameters}{{ {dims} : {' and '.join(lines) or 'true'} }}")

    def sample(self, points: islpy.Set) -> dict[str, int]:
        """One point of a non-empty set, smallest parameters first: every name with its value."""
        everything = points.move_dims(islpy.dim_type.set, 0, islpy.dim_type.param, 0, len(self.parameters))
        point = everything.lexmin().sample_point() if _bounded(everything) else everything.sample_point()
        names = [*self.parameters, *self.dimensions]
        return {name: int(point.get_coordinate_val(islpy.dim_type.set, k).to_python()) for k, name in enumerate(names)}


def _bounded(points: islpy.Set) -> bool:
    return all(points.dim_has_lower_bound(islpy.dim_type.set, k) for k in range(points.dim(islpy.dim_type.set)))


def _integer_names(function: Function) -> list[str]:
    return [s.name for s in function.sizes] + [s.name for s in function.scalars if s.type.name == "int64"]


@dataclass(frozen=True)
class Polyhedra:
    """Questions about the accesses of one function."""

    function: Function

    def system(self) -> System:
        system = System(_integer_names(self.function))
        system.lines += [f"{system.parameters[s.name]} >= 0" for s in self.function.sizes]
        return system

    def _pair(
        self, a: Access, b: Access, shared: frozenset[str], private: frozenset[str]
    ) -> tuple[System, dict[str, str], dict[str, str]]:
        """The system of (iteration of a, iteration of b) that touch the same element, equal in the shared loops.

        private: loop variables in whose every iteration the array is a fresh one.
        """
        system = self.system()
        rename_a = {loop.var: loop.var if loop.var in shared else f"{loop.var}'" for loop in a.loops}
        rename_b = {loop.var: loop.var if loop.var in shared else f"{loop.var}''" for loop in b.loops}
        system.add_domain(a, rename_a)
        system.add_domain(b, rename_b)
        for i, j in zip(a.subscript, b.subscript, strict=True):
            if i is not None and j is not None:
                left, right = system.text(i, rename_a), system.text(j, rename_b)
                if left is not None and right is not None:
                    system.lines.append(f"{left} = {right}")
        for var in private - shared:
            if f"{var}'" in system.dimensions and f"{var}''" in system.dimensions:
                system.lines.append(f"{system.dimensions[var + chr(39)]} = {system.dimensions[var + 2 * chr(39)]}")
        return system, rename_a, rename_b

    def _witness(self, system: System, points: islpy.Set) -> Witness:
        values = system.sample(points)
        sizes = tuple((n, values[n]) for n in system.parameters)
        shared = [(n, v) for n, v in values.items() if n in system.dimensions and not n.endswith("'")]
        first = [(n[:-1], v) for n, v in values.items() if n.endswith("'") and not n.endswith("''")]
        second = [(n[:-2], v) for n, v in values.items() if n.endswith("''")]
        return Witness(sizes, (*shared, *first), (*shared, *second))

    def carried(self, a: Access, b: Access, loop: For, private: frozenset[str]) -> Witness | None:
        """Two different iterations of `loop`, equal in the loops around it, in which a and b touch the same element.

        Both accesses lie in the loop. None proves that there are none.
        """
        outer = frozenset(f.var for f in _around(a, loop))
        system, rename_a, rename_b = self._pair(a, b, outer, private)
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        points = system.build(f"{x} != {y}")
        return None if points.is_empty() else self._witness(system, points)

    def meet(self, a: Access, b: Access, shared: frozenset[str]) -> bool:
        """Whether some iterations of a and b, equal in the shared loops, may touch the same element."""
        system, _, _ = self._pair(a, b, shared, frozenset())
        return not system.build().is_empty()

    def crossing(
        self, a: Access, b: Access, axis_a: For | None, axis_b: For | None, axis: For, shared: frozenset[str],
        private: frozenset[str],
    ) -> Witness | None:  # fmt: skip
        """Iterations of a and b, equal in the shared axes, that touch the same element for different values of an axis.

        axis_a, axis_b: the loop of each access that would become the axis; None: it would be repeated for every value of
        the axis, whose range `axis` gives.
        """
        system, rename_a, rename_b = self._pair(a, b, shared, private)
        symbols = []
        for own, rename, mark in ((axis_a, rename_a, "'"), (axis_b, rename_b, "''")):
            if own is None:
                name = f"axis {axis.var}{mark}"
                system.add_loop(axis, {axis.var: name})
                symbols.append(system.dimensions[name])
            else:
                symbols.append(system.dimensions[rename[own.var]])
        points = system.build(f"{symbols[0]} != {symbols[1]}")
        return None if points.is_empty() else self._witness(system, points)

    def outside(self, access: Access, shape: tuple[Expr, ...], only: int | None = None) -> tuple[str, int] | None:
        """For which sizes an affine subscript leaves its array: (Python condition over sizes, axis); None: for none.

        only: the one axis to look at.
        """
        system = self.system()
        system.add_domain(access, {})
        total: islpy.Set | None = None
        worst = 0
        for axis, (form, extent) in enumerate(zip(access.subscript, shape, strict=True)):
            if form is None or only not in (None, axis):
                continue
            index, bound = system.text(form, {}), system.bound(extent, {})
            if index is None or bound is None:
                continue  # the kernel itself checks it
            bad = system.build(f"{index} < 0 or {index} >= {bound}")
            if bad.is_empty():
                continue
            worst = axis if total is None else worst
            total = bad if total is None else total.union(bad)
        if total is None:
            return None
        condition = total.params().coalesce()
        return _python_condition(condition, system), worst


def _around(access: Access, loop: For) -> tuple[For, ...]:
    names = [f.var for f in access.loops]
    return access.loops[: names.index(loop.var)]


def _python_condition(parameters: islpy.Set, system: System) -> str:
    """A set of parameters as a Python expression over the program's names."""
    build = islpy.AstBuild.from_context(islpy.Set("[" + ", ".join(system.parameters.values()) + "] -> { : }"))
    text = build.expr_from_set(parameters).to_C_str()
    text = text.replace("&&", " and ").replace("||", " or ")
    names = {symbol: name for name, symbol in system.parameters.items()}
    return re.sub(r"\bp\d+\b", lambda m: names[m.group()], text)
