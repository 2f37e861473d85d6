"""Systems of affine constraints, as isl's sets, and points of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import TypeVar

import islpy

from weft.loops.accesses import Access
from weft.loops.affine import Affine, affine
from weft.loops.conditions import OPPOSITE, SIGNS
from weft.loops.ir import Const, Expr, For, Function, Op, Ref
from weft.loops.polynomials import Polynomial, polynomial
from weft.loops.types import INT64

S = TypeVar("S", bound="System")


@dataclass(frozen=True)
class Witness:
    """A concrete collision: sizes, and the two iterations (loop variable -> value) that touch the same element."""

    sizes: tuple[tuple[str, int], ...]
    first: tuple[tuple[str, int], ...]
    second: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        def text(values: tuple[tuple[str, int], ...]) -> str:
            return "(" + ", ".join(f"{n} = {v}" for n, v in values) + ")"

        if self == UNTOLD:
            return "iterations that would take too long to find"
        with_sizes = f" with {', '.join(f'{n} = {v}' for n, v in self.sizes)}" if self.sizes else ""
        return f"iterations {text(self.first)} and {text(self.second)}{with_sizes}"


UNTOLD = Witness((), (), ())  # where nobody knows whether there is one
UNDECIDED = "True"  # a condition on sizes where nobody knows which


class System:
    """A set under construction: dimensions, parameters, constraints. Names are the program's; isl sees x0, x1, p0 ...

    exact: nothing that was asked for has been left out.
    """

    def __init__(self, parameters: Iterable[str]) -> None:
        self.parameters = {name: f"p{k}" for k, name in enumerate(parameters)}
        self.dimensions: dict[str, str] = {}
        self.lines: list[str] = []
        self.exact = True
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

    def holds(self, condition: Expr, holds: bool, rename: dict[str, str]) -> str:
        """isl's text of a condition or of its contrary. What isl cannot be told is taken to hold."""
        match condition:
            case Const(value=value):
                return "true" if bool(value) == holds else "false"
            case Op(name="not", args=(inner,)):
                return self.holds(inner, not holds, rename)
            case Op(name="and" | "or" as name, args=(a, b)):
                joined = "and" if (name == "and") == holds else "or"
                return f"({self.holds(a, holds, rename)} {joined} {self.holds(b, holds, rename)})"
            case Op(name="where", args=(test, a, b)):
                sides = ((test, True), (a, holds)), ((test, False), (b, holds))
                texts = (" and ".join(self.holds(c, h, rename) for c, h in side) for side in sides)
                return f"(({') or ('.join(texts)}))"
            case Op(name=name, args=(a, b)) if name in SIGNS and a.type == INT64:
                left, right = self.bound(a, rename), self.bound(b, rename)
                if left is not None and right is not None:
                    return f"({left}) {SIGNS[name if holds else OPPOSITE[name]]} ({right})"
        self.exact = False
        return "true"

    def add_loop(self, loop: For, rename: dict[str, str]) -> None:
        """The iterations of a loop: its variable (renamed) runs over its range."""
        symbol = self.dimension(rename.get(loop.var, loop.var))
        if loop.segment is not None:
            limits = [self.bound(limit, {}) for limit in loop.segment.limits]
            self.lines += [f"{symbol} >= 0", *(f"{symbol} < {limit}" for limit in limits if limit is not None)]
        signs = (">=", "<") if loop.step > 0 else ("<=", ">")
        for sign, limit in zip(signs, (loop.start, loop.stop), strict=True):
            self.lines += self._beside(symbol, sign, limit, rename)
        if abs(loop.step) != 1 and (low := self.bound(loop.start, rename)) is not None:
            self._fresh += 1
            k = f"k{self._fresh}"
            self.lines.append(f"exists ({k} : {symbol} - ({low}) = {abs(loop.step)}*{k})")

    def _beside(self, symbol: str, sign: str, limit: Expr, rename: dict[str, str]) -> list[str]:
        """isl's texts of where a dimension lies beside a bound of its loop, as far as it can be told that. No less than the
        largest of some is no less than each: isl would part the set by which of them it is.
        """
        if isinstance(limit, Op) and limit.name == ("max" if sign[0] == ">" else "min"):
            return [line for one in limit.args for line in self._beside(symbol, sign, one, rename)]
        text = self.bound(limit, rename)
        if text is None:
            self.exact = False
            return []
        return [f"{symbol} {sign} {text}"]

    def add_segments(self, a: For, b: For, rename_a: dict[str, str], rename_b: dict[str, str]) -> None:
        """That ranges of different owners have no number in common, where two loops have ranges of one kind."""
        if a.segment is None or b.segment is None or a.segment.name != b.segment.name:
            return
        told = [(a.segment.owner, b.segment.owner), *zip(a.segment.among, b.segment.among, strict=True)]
        owners, *among = ((self.bound(x, rename_a), self.bound(y, rename_b)) for x, y in told)
        x, y = (self.dimensions[rename.get(f.var, f.var)] for f, rename in ((a, rename_a), (b, rename_b)))
        if all(None not in pair for pair in (owners, *among)):
            others = "".join(f" or {one} != {other}" for one, other in among)
            self.lines.append(f"{x} != {y} or {owners[0]} = {owners[1]}{others}")

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

    def equal(self, a: Expr, b: Expr, rename_a: dict[str, str], rename_b: dict[str, str]) -> str | None:
        """isl's text of what follows if two integer expressions are equal; None where that is nothing isl can be told."""
        left, right = self.bound(a, rename_a), self.bound(b, rename_b)
        if left is not None and right is not None:
            return f"{left} = {right}"
        if (told := self._divided(a, b, rename_a, rename_b)) is not None:
            return told
        first, second = polynomial(a), polynomial(b)
        return None if first is None or second is None else self._equal(first, second, rename_a, rename_b)

    def _divided(self, a: Expr, b: Expr, rename_a: dict[str, str], rename_b: dict[str, str]) -> str | None:
        """The same of remainders by one number, or quotients: numbers with equal remainders are equal, or at least the divisor
        apart, those with equal quotients are less than it apart.
        """
        found = []
        name = next((e.name for e in (a, b) if isinstance(e, Op) and e.name in ("floordiv", "mod")), "")
        for e, rename in ((a, rename_a), (b, rename_b)):
            match e:
                case Op(name=own, args=(divided, by), type=type_) if own == name and type_ == INT64:
                    found.append((self.bound(divided, rename), self.bound(by, rename)))
                case _ if name == "mod":  # a number below the divisor is its own remainder
                    found.append((self.bound(e, rename), None))
                case _:
                    return None
        (x, n), (y, m) = found
        divisor = n if m is None else m if n is None else n if n == m else None
        if x is None or y is None or divisor is None:
            return None
        if name == "mod":
            return f"(({x}) = ({y}) or ({x}) - ({y}) >= ({divisor}) or ({y}) - ({x}) >= ({divisor}))"
        return f"(({divisor}) < 0 or (({x}) - ({y}) < ({divisor}) and ({y}) - ({x}) < ({divisor})))"

    def _equal(self, a: Polynomial, b: Polynomial, rename_a: dict[str, str], rename_b: dict[str, str]) -> str | None:
        """The same of polynomials: s*q + r = s*p + t means q = p and r = t where r and t differ by less than the size s."""

        def same(name: str) -> bool:  # what isl does not know, a carried scalar perhaps, may be another in each iteration
            own = rename_a.get(name, name)
            return own == rename_b.get(name, name) and (own in self.dimensions or own in self.parameters)

        alike = {(m, c) for m, c in a.terms if all(map(same, m))} & set(b.terms)
        a, b = (Polynomial(tuple(t for t in x.terms if t not in alike)) for x in (a, b))
        left, right = a.affine, b.affine
        if left is not None and right is not None:
            texts = self.text(left, rename_a), self.text(right, rename_b)
            return None if None in texts else f"{texts[0]} = {texts[1]}"
        known: list[str] = []
        for stride, s in self.parameters.items():
            if stride not in a.factors | b.factors:
                continue
            (q, r), (p, t) = a.divided(stride), b.divided(stride)
            rests = r.affine, t.affine
            if rests[0] is None or rests[1] is None:
                continue
            low, high = self.text(rests[0], rename_a), self.text(rests[1], rename_b)
            if low is None or high is None:
                continue
            quotients = self._equal(q, p, rename_a, rename_b) or "true"
            apart = [f"({x}) - ({y}) >= {s} and ({x}) - ({y}) >= -{s}" for x, y in ((low, high), (high, low))]
            known.append(f"(({quotients} and {low} = {high}) or ({apart[0]}) or ({apart[1]}))")
        return " and ".join(known) or None

    def condition(self, text: str) -> str:
        """isl's text of a Python condition on parameters, as `free_when` gives it."""
        return re.sub(r"[^\W\d]\w*", lambda m: self.parameters.get(m.group(), m.group()), text.replace("==", "="))

    def named(self, text: str) -> str:
        """A Python condition on isl's parameters with the program's names for them."""
        names = {symbol: name for name, symbol in self.parameters.items()}
        return re.sub(r"\bp\d+\b", lambda m: names[m.group()], text)

    def add_domain(self, access: Access, rename: dict[str, str]) -> None:
        for loop in access.loops:
            self.add_loop(loop, rename)
        self.lines += [self.holds(condition, holds, rename) for condition, holds in access.guard]

    def build(self, extra: str = "") -> islpy.Set:
        return set_of(tuple(self.parameters.values()), tuple(self.dimensions.values()), self.said(extra))

    def points(self, extra: str = "") -> islpy.Set:
        """The same without the sizes of which no more is said than that they are sizes: isl takes time for each."""
        return _points(tuple(self.parameters.values()), tuple(self.dimensions.values()), self.said(extra))

    def said(self, extra: str) -> tuple[str, ...]:
        return (*self.lines, extra) if extra else tuple(self.lines)

    def build_map(self, outputs: Sequence[str | None]) -> islpy.Map:
        """From the dimensions to these coordinates; None: to every value of one."""
        parameters, dims = ", ".join(self.parameters.values()), ", ".join(self.dimensions.values())
        names = [f"e{k}" for k in range(len(outputs))]
        same = " and ".join(f"{name} = {output}" for name, output in zip(names, outputs, strict=True) if output is not None)
        every = islpy.Map(f"[{parameters}] -> {{ [{dims}] -> [{', '.join(names)}] : {same or 'true'} }}")
        return every.intersect_domain(self.build())

    def sample(self, points: islpy.Set) -> dict[str, int]:
        """One point of a non-empty set of `build` or `points`: every name with its value, as small as can be, those of
        parameters first.
        """
        symbols = [points.get_dim_name(islpy.dim_type.param, k) for k in range(points.dim(islpy.dim_type.param))]
        values = dict(zip([*symbols, *self.dimensions.values()], sampled(points), strict=True))
        return {name: values.get(symbol, 0) for name, symbol in (*self.parameters.items(), *self.dimensions.items())}


class Estimates(System):
    """A system that takes what isl cannot be told (products of names, remainders by them, what data decide) for a dimension
    of its own, of which little is known: its sets may be larger than the program's, and never smaller.
    """

    def __init__(self, parameters: Iterable[str]) -> None:
        super().__init__(parameters)
        self.unknown: dict[tuple[Expr, tuple[tuple[str, str], ...]], str] = {}

    def bound(self, expr: Expr, rename: dict[str, str]) -> str:
        exact = super().bound(expr, rename)
        return self._sum(expr, rename) if exact is None else exact

    def _sum(self, expr: Expr, rename: dict[str, str]) -> str:
        form = polynomial(expr)
        if form is None or form.affine is not None:
            return self._unknown(expr, rename)
        terms = []
        for monomial, coefficient in form.terms:
            factors: list[Expr] = [Ref(name, INT64) for name in monomial]
            product = reduce(lambda a, b: Op("mul", (a, b), INT64), factors) if factors else Const(1, INT64)
            text = self._unknown(product, rename) if len(factors) > 1 else self.bound(product, rename)
            terms.append(f"{coefficient}*({text})")
        return " + ".join(terms)

    def _unknown(self, expr: Expr, rename: dict[str, str]) -> str:
        """The dimension for an expression, with what is known of it."""
        key = expr, tuple(rename.items())
        if key in self.unknown:
            return self.unknown[key]
        symbol = self.unknown[key] = self.dimension(f"unknown {len(self.unknown)}")
        match expr:
            case Op(name="mul", args=(left, right)):
                a, b = self.bound(left, rename), self.bound(right, rename)
                grows, none = f"{symbol} >= {a} and {symbol} >= {b}", f"{symbol} = 0 and ({a} = 0 or {b} = 0)"
                self.lines.append(f"{a} < 0 or {b} < 0 or ({grows}) or ({none})")
            case Op(name="mod", args=(left, right)):
                b = self.bound(right, rename)
                self.lines.append(f"{b} <= 0 or (0 <= {symbol} and {symbol} < {b})")
            case Op(name="floordiv", args=(left, right)):
                a, b = self.bound(left, rename), self.bound(right, rename)
                self.lines.append(f"{b} <= 0 or {a} < 0 or (0 <= {symbol} and {symbol} <= {a})")
            case Op(name="where", args=(test, then, orelse)):
                a, b = self.bound(then, rename), self.bound(orelse, rename)
                then_, orelse_ = self.holds(test, True, rename), self.holds(test, False, rename)
                self.lines.append(f"({symbol} = {a} and {then_}) or ({symbol} = {b} and {orelse_})")
        return symbol


@lru_cache(maxsize=4096)
def set_of(parameters: tuple[str, ...], dimensions: tuple[str, ...], lines: tuple[str, ...]) -> islpy.Set:
    """A set by its names and constraints. An analysis asks for most of its sets several times."""
    constraints = [_where(parameters, dimensions, line) for line in dict.fromkeys(lines)]
    return reduce(islpy.Set.intersect, constraints) if constraints else _where(parameters, dimensions, "true")


@lru_cache(maxsize=16384)
def _where(parameters: tuple[str, ...], dimensions: tuple[str, ...], line: str) -> islpy.Set:
    """Where one constraint holds: sets have most of theirs in common, and isl takes longer to read one than to intersect."""
    return islpy.Set(f"[{', '.join(parameters)}] -> {{ [{', '.join(dimensions)}] : {line} }}")


_SIZE = re.compile(r"p\d+ >= 0")
_PARAMETER = re.compile(r"\bp\d+\b")


@lru_cache(maxsize=4096)
def _points(parameters: tuple[str, ...], dimensions: tuple[str, ...], lines: tuple[str, ...]) -> islpy.Set:
    """The same set, of the parameters that a line names besides those which say that one is a size."""
    named = {name for line in lines if not _SIZE.fullmatch(line) for name in _PARAMETER.findall(line)}
    kept = tuple(name for name in parameters if name in named)
    return set_of(kept, dimensions, tuple(line for line in lines if not _SIZE.fullmatch(line) or line.split()[0] in named))


def sampled(points: islpy.Set) -> list[int]:
    """The parameters and coordinates of one point of a non-empty set, none negative if that can be, each as near to 0 as
    those before it allow.
    """
    points = points.move_dims(islpy.dim_type.set, 0, islpy.dim_type.param, 0, points.dim(islpy.dim_type.param))
    count = points.dim(islpy.dim_type.set)
    positive = points.intersect(_orthant(count))
    first = None if positive.is_empty() else _least(positive)
    if first is not None:
        return _coordinates_of(first, count)
    values = []
    for k in range(points.dim(islpy.dim_type.set)):
        values.append(_nearest_to_zero(points, k))
        points = points.fix_val(islpy.dim_type.set, k, values[-1])
    return values


def _least(points: islpy.Set, largest: bool = False) -> islpy.Point | None:
    """The first point of a set, or the last one; None where isl fails to find it, as it may in sets with quantifiers."""
    try:
        point = (points.lexmax() if largest else points.lexmin()).sample_point()
    except islpy.Error:
        return None
    return None if point.is_void() or not islpy.Set.from_point(point).is_subset(points) else point


def _coordinates_of(point: islpy.Point, count: int) -> list[int]:
    return [int(point.get_coordinate_val(islpy.dim_type.set, k).to_python()) for k in range(count)]


@cache
def _orthant(count: int) -> islpy.Set:
    holds = " and ".join(f"x{k} >= 0" for k in range(count)) or "true"
    return islpy.Set(f"{{ {coordinates('x', count)} : {holds} }}")


def _nearest_to_zero(points: islpy.Set, k: int) -> int:
    """The value of coordinate k nearest to 0 in a non-empty set."""
    line = points.project_out(islpy.dim_type.set, k + 1, points.dim(islpy.dim_type.set) - k - 1)
    line = line.project_out(islpy.dim_type.set, 0, k)
    above = line.lower_bound_val(islpy.dim_type.set, 0, 0)
    below = line.upper_bound_val(islpy.dim_type.set, 0, -1)
    halves = [(half, largest) for half, largest in ((above, False), (below, True)) if not half.is_empty()]
    ends = [_least(half, largest) or half.sample_point() for half, largest in halves]
    found = [_coordinates_of(p, 1)[0] for p in ends]
    return min(found, key=abs)


def integer_names(function: Function) -> list[str]:
    return [s.name for s in function.sizes] + [s.name for s in function.scalars if s.type.name == "int64"]


def python_condition(parameters: islpy.Set, system: System) -> str:
    """A set of parameters as a Python expression over the program's names."""
    return system.named(as_python(parameters, tuple(system.parameters.values())))


def as_python(points: islpy.Set, parameters: tuple[str, ...]) -> str:
    build = islpy.AstBuild.from_context(islpy.Set("[" + ", ".join(parameters) + "] -> { : }"))
    text = build.expr_from_set(points).to_C_str()
    # isl divides only what is no less than 0, where its division and Python's are one
    return str(text.replace("&&", " and ").replace("||", " or ").replace("/", "//"))


def coordinates(letter: str, count: int) -> str:
    return "[" + ", ".join(f"{letter}{k}" for k in range(count)) + "]"
