"""Exact integer questions about accesses, answered by isl. The only module that imports islpy.

A question is a set: integer points (iterations of loops, for given sizes) that satisfy affine constraints. What is not affine
in the program is left out of the constraints, so a set can only be too large: an empty one is a proof.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce, wraps
from typing import Any, ParamSpec, TypeVar, cast

import islpy

from weft.loops.accesses import Access, Guard, Pair
from weft.loops.affine import Affine, affine
from weft.loops.conditions import OPPOSITE, SIGNS
from weft.loops.ir import Const, Expr, For, Function, Op, Ref, free_names
from weft.loops.polynomials import Polynomial, merged_subscripts, polynomial
from weft.loops.types import INT64

_LARGE, _LONG = 64, 8  # a size and a number of iterations of calls that are worth an analysis of their own

# Steps of isl (some 200 ns each) after which a question is too hard: what it asks for then counts as not proven. A number of
# steps, and no time, so that an analysis gives the same answers on every machine.
_PATIENCE = 200_000

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="System")


class TooHard(Exception):
    """isl has taken more steps than a question may take."""


@contextmanager
def _patience() -> Iterator[None]:
    """Raise TooHard for what takes isl too long in the block. Of blocks in each other the outer one counts."""
    context = islpy.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(_PATIENCE)
    try:
        yield
    except islpy.Error:  # of a text that it gives up reading, isl says that it is no set
        raise TooHard from None
    finally:
        context.set_max_operations(0)


class SearchOver(Exception):
    """A search has asked as many questions as it may."""


class Search:
    """Work that is worth some questions and no more: what comes after them raises SearchOver. Questions, and no seconds, so
    that a search ends at the same place on every machine; what else takes time is told as the questions that would take as
    long. A search in another one uses up both.
    """

    def __init__(self, questions: int) -> None:
        self.left = questions

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """What is asked in the block counts."""
        token = _searches.set((*_searches.get(), self))
        try:
            yield
        finally:
            _searches.reset(token)

    def count(self, questions: int) -> None:
        self.left -= questions
        if self.left < 0:
            raise SearchOver


_searches: ContextVar[tuple[Search, ...]] = ContextVar("searches", default=())


def spend(questions: int = 1) -> None:
    """Count questions, or work that takes as long, in the searches that are going on."""
    for search in _searches.get():
        search.count(questions)


def _unless_too_hard(answer: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A question with the answer that claims nothing, for where isl takes too long. Before that it is asked without the
    conditions of its accesses, which are what makes sets large: of more iterations, less can be claimed.
    """

    def decorate(question: Callable[P, R]) -> Callable[P, R]:
        @wraps(question)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            spend()
            with suppress(TooHard), _patience():
                return question(*args, **kwargs)
            if answer is not False and any(isinstance(a, Access) and a.guard for a in args):
                plain = tuple(replace(a, guard=()) if isinstance(a, Access) else a for a in args)
                with suppress(TooHard), _patience():
                    return question(*plain, **kwargs)  # type: ignore[arg-type]
            return cast(R, answer)

        return ask

    return decorate


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
        return _set(tuple(self.parameters.values()), tuple(self.dimensions.values()), self.said(extra))

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
        values = dict(zip([*symbols, *self.dimensions.values()], _sample(points), strict=True))
        return {name: values.get(symbol, 0) for name, symbol in (*self.parameters.items(), *self.dimensions.items())}


class _Estimates(System):
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
def _set(parameters: tuple[str, ...], dimensions: tuple[str, ...], lines: tuple[str, ...]) -> islpy.Set:
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
    return _set(kept, dimensions, tuple(line for line in lines if not _SIZE.fullmatch(line) or line.split()[0] in named))


def _sample(points: islpy.Set) -> list[int]:
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
    return islpy.Set(f"{{ {_coordinates('x', count)} : {holds} }}")


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


def _integer_names(function: Function) -> list[str]:
    return [s.name for s in function.sizes] + [s.name for s in function.scalars if s.type.name == "int64"]


@dataclass(frozen=True)
class Polyhedra:
    """Questions about the accesses of one function."""

    function: Function

    def system(self) -> System:
        return self._with_facts(System(_integer_names(self.function)))

    def _with_facts(self, system: S) -> S:
        system.lines += [f"{system.parameters[s.name]} >= 0" for s in self.function.sizes]
        for scalar in self.function.scalars:
            value = None if scalar.value is None else system.bound(scalar.value, {})
            if value is not None:
                system.lines.append(f"{system.parameters[scalar.name]} = {value}")
        if self.function.assumption is not None:
            system.lines.append(system.condition(self.function.assumption.condition))
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
        for i, j in (*zip(a.index, b.index, strict=True), *merged_subscripts(a.index, b.index)):
            same = system.equal(i, j, rename_a, rename_b)
            if same is not None:
                system.lines.append(same)
        for one, other in itertools.product(a.loops, b.loops):
            system.add_segments(one, other, rename_a, rename_b)
        for var in private - shared:
            if f"{var}'" in system.dimensions and f"{var}''" in system.dimensions:
                system.lines.append(f"{system.dimensions[var + chr(39)]} = {system.dimensions[var + 2 * chr(39)]}")
        return system, rename_a, rename_b

    def apart(self, a: Access, b: Access) -> bool:
        """Whether one subscript tells two accesses of an array apart in whatever iterations, as in `y[0]` and `y[1]`: what a
        text of many such lines would ask isl of every two of them.
        """
        fixed = _integer_names(self.function)
        return any(
            i is not None and j is not None and i.terms == j.terms and i.constant != j.constant and i.names.issubset(fixed)
            for i, j in zip(a.subscript, b.subscript, strict=True)
        )

    def _witness(self, system: System, points: islpy.Set) -> Witness:
        values = system.sample(points)
        sizes = tuple((n, values[n]) for n in system.parameters)
        shared = [(n, v) for n, v in values.items() if n in system.dimensions and not n.endswith("'")]
        first = [(n[:-1], v) for n, v in values.items() if n.endswith("'") and not n.endswith("''")]
        second = [(n[:-2], v) for n, v in values.items() if n.endswith("''")]
        return Witness(sizes, (*shared, *first), (*shared, *second))

    @_unless_too_hard(UNTOLD)
    def carried(self, a: Access, b: Access, loop: For, private: frozenset[str]) -> Witness | None:
        """Two different iterations of `loop`, equal in the loops around it, in which a and b touch the same element.

        Both accesses lie in the loop. None proves that there are none.
        """
        outer = frozenset(f.var for f in _around(a, loop))
        system, rename_a, rename_b = self._pair(a, b, outer, private)
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        points = system.points(f"{x} != {y}")
        return None if points.is_empty() else self._witness(system, points)

    @_unless_too_hard(None)
    def free_when(self, pairs: tuple[Pair, ...], loop: For, flows_alone: bool) -> str | None:
        """A Python condition on sizes and integer scalars under which no pair is carried by the loop.

        flows_alone: only what is written and then read or written again counts. None where nothing is carried, where
        the condition leaves no large sizes or no long loops (one iteration is always free), or is not made of plain
        comparisons.
        """
        carried: islpy.Set | None = None
        for a, b, private in pairs:
            outer = frozenset(f.var for f in _around(a, loop))
            system, rename_a, rename_b = self._pair(a, b, outer, private)
            x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
            before = "<" if loop.step > 0 else ">"
            apart = f"{x} != {y}"
            if flows_alone and a.write != b.write:
                apart = f"{x} {before} {y}" if a.write else f"{y} {before} {x}"
            parameters = system.build(apart).params()
            carried = parameters if carried is None else carried.union(parameters)
        if carried is None or carried.is_empty():
            return None
        system = self.system()
        context = system.build().params()
        free = context.subtract(carried).coalesce()
        system.lines += [f"{system.parameters[s.name]} >= {_LARGE}" for s in self.function.sizes]
        for around in dict.fromkeys(f for a, b, _ in pairs for f in (*a.loops, *b.loops)):
            low, high = system.bound(around.start, {}), system.bound(around.stop, {})
            if low is not None and high is not None:
                system.lines.append(f"({high}) - ({low}) {'>=' if around.step > 0 else '<='} {_LONG * around.step}")
        if free.intersect(system.build().params()).is_empty():
            return None
        text = _python_condition(free.gist(context), system)
        return None if re.search(r"\b(?!and\b|or\b|not\b)[A-Za-z_]\w*\s*\(|%|/|\?", text) else text

    @_unless_too_hard(False)
    def follows(self, facts: Sequence[Affine], fact: Affine) -> bool:
        """Whether a form is not negative wherever all of `facts` are not; names that are no sizes may be any integers."""
        system = self.system()
        for name in dict.fromkeys(n for f in (*facts, fact) for n in sorted(f.names)):
            if name not in system.parameters:
                system.dimension(name)
        system.lines += [f"{system.text(f, {})} >= 0" for f in facts]
        return bool(system.points(f"{system.text(fact, {})} < 0").is_empty())

    @_unless_too_hard(True)
    def earlier(self, a: Access, b: Access, loop: For) -> bool:
        """Whether a, in some iteration of `loop`, touches the element that b does in a later one, equal in the loops around."""
        outer = frozenset(f.var for f in _around(a, loop))
        system, rename_a, rename_b = self._pair(a, b, outer, frozenset())
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        return not system.points(f"{x} {'<' if loop.step > 0 else '>'} {y}").is_empty()

    @_unless_too_hard(True)
    def late(
        self, a: Access, b: Access, loop: For, private: frozenset[str], slope: int, places: tuple[Expr, Expr]
    ) -> bool:
        """Whether a, in some iteration of `loop`, touches the element that b does in a later one, equal in the loops around, at
        no earlier step: that is `slope` times the number of the iteration, and the place of the access in it. True where isl
        cannot be told the places.
        """
        system, rename_a, rename_b = self._pair(a, b, frozenset(f.var for f in _around(a, loop)), private)
        x, y = system.dimensions[rename_a[loop.var]], system.dimensions[rename_b[loop.var]]
        before, after = system.bound(places[0], rename_a), system.bound(places[1], rename_b)
        if before is None or after is None:
            return True
        ahead, sign = ("<", "") if loop.step > 0 else (">", "-")
        late = f"{x} {ahead} {y} and {sign}{slope}*({y} - {x}) + ({after}) - ({before}) <= 0"
        return not system.points(late).is_empty()

    @_unless_too_hard(True)
    def possible(self, loops: tuple[For, ...], guard: Guard) -> bool:
        """Whether iterations of these loops in which the guard holds may exist at all."""
        system = self.system()
        system.add_domain(Access("", (), (), False, loops, guard, 0, None), {})
        return not system.points().is_empty()

    @_unless_too_hard(True)
    def meet(self, a: Access, b: Access, shared: frozenset[str]) -> bool:
        """Whether some iterations of a and b, equal in the shared loops, may touch the same element."""
        if self.apart(a, b):
            return False
        system, _, _ = self._pair(a, b, shared, frozenset())
        return not system.points().is_empty()

    @_unless_too_hard(False)
    def overwritten(self, store: Access, writes: Sequence[Access], loop: For, ahead: int) -> bool:
        """Whether each execution of a store that leaves `ahead` iterations of `loop` or more to come, and there are such, is
        of an element that one of the writes surely writes in a later iteration of the same run of the loop.
        """
        system = self.system()
        system.add_domain(store, {})
        var, stop = system.dimensions[loop.var], system.bound(loop.stop, {})
        if stop is None or not self._placed(store):
            return False
        up = loop.step > 0
        hidden = system.build(f"{var} + {ahead * loop.step} {'<' if up else '>'} {stop}")
        if hidden.is_empty():
            return False
        outer = frozenset(f.var for f in _around(store, loop))
        for write in writes:
            if self._sure(write):
                pair, rename_a, rename_b = self._pair(store, write, outer, frozenset())
                x, y = pair.dimensions[rename_a[loop.var]], pair.dimensions[rename_b[loop.var]]
                hidden = hidden.subtract(_first(pair.build(f"{x} {'<' if up else '>'} {y}"), len(store.loops)))
        return hidden.is_empty()

    @_unless_too_hard(False)
    def covered(self, read: Access, writes: Sequence[Access], loop: For) -> bool:
        """Whether each element that is read has surely been written by one of the writes before, in the same iteration of
        `loop`.
        """
        if not self._placed(read):
            return False
        system = self.system()
        system.add_domain(read, {})
        left = system.build()
        shared = frozenset(f.var for f in _around(read, loop)) | {loop.var}
        for write in writes:
            if self._sure(write):
                pair, rename_a, rename_b = self._pair(read, write, shared, frozenset())
                order = _before(write, read, pair, rename_b, rename_a)
                if order:
                    left = left.subtract(_first(pair.build(order), len(read.loops)))
        return left.is_empty()

    def certain(self, access: Access) -> bool:
        """Whether isl knows exactly when an access happens."""
        system = self.system()
        system.add_domain(access, {})
        return system.exact

    def _sure(self, access: Access) -> bool:
        """Whether isl knows exactly when an access happens, and to which element."""
        return self.certain(access) and self._placed(access)

    def _placed(self, access: Access) -> bool:
        """Whether isl knows which element an access is of: affine forms of carried scalars tell it nothing."""
        known = {f.var for f in access.loops} | set(_integer_names(self.function))
        return all(form is not None and form.names <= known for form in access.subscript)

    @_unless_too_hard(True)
    def precedes(self, a: Access, b: Access, apart: bool, shared: frozenset[str] = frozenset()) -> bool:
        """Whether a may touch, before b does, the element that b touches. Their positions are in the same statements.

        apart: in another iteration of a loop that they share. shared: loops of which it is the same iteration.
        """
        system, rename_a, rename_b = self._pair(a, b, shared, frozenset())
        order = _before(a, b, system, rename_a, rename_b, apart)
        return bool(order) and not system.points(order).is_empty()

    @_unless_too_hard(UNTOLD)
    def crossing(
        self, a: Access, b: Access, axis_a: For | None, axis_b: For | None, axis: For, shared: frozenset[str],
        private: frozenset[str],
    ) -> Witness | None:  # fmt: skip
        """Iterations of a and b, equal in the shared axes, that touch the same element for different values of an axis.

        axis_a, axis_b: the loop of each access that would become the axis; None: it would be repeated for every value of
        the axis, whose range `axis` gives.
        """
        if self.apart(a, b):
            return None
        system, rename_a, rename_b = self._pair(a, b, shared, private)
        symbols = []
        for own, rename, mark in ((axis_a, rename_a, "'"), (axis_b, rename_b, "''")):
            if own is None:
                name = f"axis {axis.var}{mark}"
                system.add_loop(axis, {axis.var: name})
                symbols.append(system.dimensions[name])
            else:
                symbols.append(system.dimensions[rename[own.var]])
        points = system.points(f"{symbols[0]} != {symbols[1]}")
        return None if points.is_empty() else self._witness(system, points)

    def outside(
        self, access: Access, shape: tuple[Expr, ...], only: int | None = None, wraps: bool = False
    ) -> tuple[str, int] | None:
        """For which sizes an affine subscript leaves its array: (Python condition over sizes, axis); None: for none. The
        condition may hold for more sizes than that, and is UNDECIDED where isl takes too long to tell.

        only: the one axis to look at. wraps: a subscript below 0 counts from the end.
        """
        with suppress(TooHard), _patience():
            if self._inside(access, shape, only, wraps):
                return None
        try:
            with _patience():
                return self._outside_when(access, shape, only, wraps)
        except TooHard:  # more may be asked of the sizes than the program needs, and never less
            bare = replace(access, guard=())
            return self.outside(bare, shape, only, wraps) if access.guard else (UNDECIDED, only or 0)

    def tells(self, access: Access, shape: tuple[Expr, ...], axis: int) -> bool:
        """Whether `outside` looks at an axis: it does where isl can be told the subscript and how long the axis is."""
        system, form = self.system(), access.subscript[axis]
        system.add_domain(access, {})
        return form is not None and _beyond(system, form, shape[axis], False) is not None

    @_unless_too_hard(True)
    def below(self, access: Access, axis: int) -> bool:
        """Whether an affine subscript may be below 0 for some sizes."""
        system = self.system()
        system.add_domain(access, {})
        form = access.subscript[axis]
        index = None if form is None else system.text(form, {})
        return index is None or not system.points(f"{index} < 0").is_empty()

    @_unless_too_hard(UNDECIDED)
    def below_when(self, access: Access, axis: int) -> str | None:
        """For which sizes a subscript, affine or not, may be below 0, as a Python condition on sizes and integer scalars that
        may hold for more; None: for none.
        """
        system = self._with_facts(_Estimates(_integer_names(self.function)))
        system.add_domain(access, {})
        points = system.build(f"{system.bound(access.index[axis], {})} < 0")
        return None if points.is_empty() else _python_condition(points.params().coalesce(), system)

    def _inside(self, access: Access, shape: tuple[Expr, ...], only: int | None, wraps: bool) -> bool:
        """Whether the loops that a subscript depends on keep it in its array, whatever else is known of the access. They do so
        mostly, and are few: a small set, which many accesses have in common.
        """
        for axis, form in enumerate(access.subscript):
            if form is None or only not in (None, axis):
                continue
            names, loops = set(form.names), list[For]()
            for loop in reversed(access.loops):
                if loop.var in names:
                    names |= free_names(loop.start) | free_names(loop.stop)
                    loops.append(loop)
            system = self.system()
            for loop in reversed(loops):
                system.add_loop(loop, {})
            beyond = _beyond(system, form, shape[axis], wraps)
            if beyond is not None and not system.points(beyond).is_empty():
                return False
        return True

    def _outside_when(
        self, access: Access, shape: tuple[Expr, ...], only: int | None, wraps: bool
    ) -> tuple[str, int] | None:
        system = self.system()
        system.add_domain(access, {})
        outside: list[tuple[int, tuple[str, ...]]] = []
        for axis, (form, extent) in enumerate(zip(access.subscript, shape, strict=True)):
            if form is None or only not in (None, axis):
                continue
            beyond = _beyond(system, form, extent, wraps)
            if beyond is not None:  # else the kernel itself checks it
                outside.append((axis, system.said(beyond)))
        found = _parameters_of_any(tuple(system.parameters.values()), tuple(system.dimensions.values()), tuple(outside))
        return None if found is None else (system.named(found[0]), found[1])

    @_unless_too_hard(True)
    def leaves(self, access: Access, shape: tuple[Expr, ...], accepted: tuple[tuple[Access, int], ...]) -> bool:
        """Whether an affine subscript leaves its array of this shape for sizes for which those `accepted`, each an access
        to the same array and the axis in question, do not.
        """
        bad = self._outside(access, shape, range(len(shape)))
        if bad is None:
            return False
        for other, axis in accepted:
            refused = self._outside(other, shape, (axis,))
            if refused is not None:
                bad = bad.intersect_params(refused.params().complement())
                if bad.is_empty():
                    return False
        return True

    def _outside(self, access: Access, shape: tuple[Expr, ...], axes: Iterable[int]) -> islpy.Set | None:
        """The iterations in which an access leaves its array along one of these axes, None if there are none."""
        system = self.system()
        system.add_domain(access, {})
        beyond = []
        for axis in axes:
            form = access.subscript[axis]
            index, extent = None if form is None else system.text(form, {}), system.bound(shape[axis], {})
            if index is not None and extent is not None:  # else the kernel itself checks it
                beyond.append(f"{index} < 0 or {index} >= {extent}")
        points = system.build(" or ".join(beyond)) if beyond else None
        return None if points is None or points.is_empty() else points


def _beyond(system: System, form: Affine, extent: Expr, wraps: bool) -> str | None:
    """isl's text of a subscript outside its extent; None where it is none that isl can be told."""
    index, bound = system.text(form, {}), system.bound(extent, {})
    return None if index is None or bound is None else f"{index} < {f'-({bound})' if wraps else 0} or {index} >= {bound}"


def _before(
    a: Access, b: Access, system: System, rename_a: dict[str, str], rename_b: dict[str, str], apart: bool = False
) -> str:
    """isl's text of a happening before b, in other iterations of a loop around both if `apart`; "" where it never does.
    Their positions are in the same statements.
    """
    orders: list[str] = []
    equal: list[str] = []
    for own, other in zip(a.loops, b.loops, strict=False):
        if own.var != other.var:
            break
        x, y = system.dimensions[rename_a[own.var]], system.dimensions[rename_b[own.var]]
        orders.append(" and ".join([*equal, f"{x} {'<' if own.step > 0 else '>'} {y}"]))
        equal.append(f"{x} = {y}")
    if a.position < b.position and not apart:
        orders.append(" and ".join(equal) or "true")
    return " or ".join(f"({o})" for o in orders)


def _first(points: islpy.Set, count: int) -> islpy.Set:
    """A set in its first coordinates."""
    return points.project_out(islpy.dim_type.set, count, points.dim(islpy.dim_type.set) - count)


def _around(access: Access, loop: For) -> tuple[For, ...]:
    names = [f.var for f in access.loops]
    return access.loops[: names.index(loop.var)]


@lru_cache(maxsize=4096)
def _parameters_of_any(
    parameters: tuple[str, ...], dimensions: tuple[str, ...], sets: tuple[tuple[int, tuple[str, ...]], ...]
) -> tuple[str, int] | None:
    """For which parameters any of these sets, told by their constraints, has points, as a Python expression, and the number of
    the first that has; None for none. Many accesses of a program are in the same loops.
    """
    found = [(number, points) for number, lines in sets if not (points := _set(parameters, dimensions, lines)).is_empty()]
    if not found:
        return None
    any_of = reduce(islpy.Set.union, (points for _, points in found))
    return _as_python(any_of.params().coalesce(), parameters), found[0][0]


def _python_condition(parameters: islpy.Set, system: System) -> str:
    """A set of parameters as a Python expression over the program's names."""
    return system.named(_as_python(parameters, tuple(system.parameters.values())))


def _as_python(points: islpy.Set, parameters: tuple[str, ...]) -> str:
    build = islpy.AstBuild.from_context(islpy.Set("[" + ", ".join(parameters) + "] -> { : }"))
    text = build.expr_from_set(points).to_C_str()
    # isl divides only what is no less than 0, where its division and Python's are one
    return str(text.replace("&&", " and ").replace("||", " or ").replace("/", "//"))


# ---------------------------------------------------------------- relations between iterations


@dataclass(frozen=True)
class Touch:
    """An access as isl sees it: the element that each of its iterations touches.

    time: when it happens, as counters of the text: where each loop around it is entered, then its own place.
    exact: nothing was left out, so that it happens in all these iterations.
    """

    access: Access
    time: tuple[int, ...]
    elements: islpy.Map
    exact: bool

    @property
    def loops(self) -> tuple[For, ...]:
        return self.access.loops


@dataclass(frozen=True)
class Relation:
    """Pairs of iterations of two accesses, the first before the second, for some values of the parameters."""

    parameters: tuple[str, ...]
    context: islpy.Set  # what always holds of the parameters
    first: tuple[For, ...]
    second: tuple[For, ...]
    pairs: islpy.Map

    @property
    def common(self) -> tuple[For, ...]:
        """The loops around both, outermost first."""
        shared = [a for a, b in zip(self.first, self.second, strict=False) if a.var == b.var]
        return tuple(shared)

    def __bool__(self) -> bool:
        return not self.pairs.is_empty()

    def __or__(self, other: Relation) -> Relation:
        return replace(self, pairs=self.pairs.union(other.pairs).coalesce())

    def possible_when(self, other: Relation) -> bool:
        """Whether wherever there are pairs of this one there are pairs of the other."""
        return bool(self.pairs.params().is_subset(other.pairs.params()))

    def carried(self, level: int | None) -> Relation:
        """The pairs that the common loop number `level` carries; None: those in one iteration of all of them."""
        steps = tuple(loop.step > 0 for loop in self.common)
        return replace(self, pairs=self.pairs.intersect(_order(len(self.first), len(self.second), steps, level)))

    def apart(self, vector: Sequence[int | str]) -> Relation:
        """The pairs at these distances: numbers, "<" for any that is positive, "*" for all."""
        lines = []
        for k, (distance, loop) in enumerate(zip(vector, self.common, strict=True)):
            difference = f"y{k} - x{k}" if loop.step > 0 else f"x{k} - y{k}"
            lines += {"<": [f"{difference} > 0"], "*": []}.get(str(distance), [f"{difference} = {distance}"])
        return replace(self, pairs=self.pairs.intersect(_between(len(self.first), len(self.second), lines)))

    def distance(self) -> tuple[int | str, ...]:
        """How far each common loop moves, in values of its variable along its direction: a number where it is constant,
        else its sign: "<" positive (the first iteration comes before the second), ">" negative, "<=", ">=", "*" any.
        """
        if not self.common:
            return ()
        count = self.pairs.dim(islpy.dim_type.param)
        apart = self.pairs.wrap().apply(_differences(len(self.first), len(self.second), len(self.common)))
        apart = apart.project_out(islpy.dim_type.param, 0, count)
        found: list[int | str] = []
        for k, loop in enumerate(self.common):
            low, high = apart.dim_min_val(k), apart.dim_max_val(k)
            if loop.step < 0:
                low, high = high.neg(), low.neg()
            found.append(_span(low, high))
        return tuple(found)

    def condition(self, but: Iterable[str] = ()) -> str | None:
        """For which parameters there are pairs, as a Python expression; None: for all.

        but: parameters that may be chosen so that there are pairs, as sizes that are large enough.
        """
        left_out = set(but)
        if left_out.issuperset(self.parameters):
            return None
        needed, context = self.pairs.params(), self.context
        for name in reversed(self.parameters):
            if name in left_out:
                at = self.parameters.index(name)
                needed = needed.project_out(islpy.dim_type.param, at, 1)
                context = context.project_out(islpy.dim_type.param, at, 1)
        needed = needed.gist(context).coalesce()
        if needed.plain_is_universe() or context.is_subset(needed):
            return None
        needed = needed.align_params(self.context.get_space())
        text = _python_condition(needed, System(self.parameters)).replace("  ", " ")
        return re.sub(r"<= -1\b", "< 0", re.sub(r">= 1\b", "> 0", text))

    def witness(self) -> Witness:
        """One of the pairs, with the smallest parameters, without those that do not matter."""
        values = _sample(self.pairs.wrap().flatten())
        names = self.parameters, [loop.var for loop in self.first], [loop.var for loop in self.second]
        cut = len(names[0]), len(names[0]) + len(names[1])
        parts = values[: cut[0]], values[cut[0] : cut[1]], values[cut[1] :]
        sizes, first, second = (tuple(zip(n, v, strict=True)) for n, v in zip(names, parts, strict=True))
        beyond = self.pairs.gist_params(self.context)
        sizes = tuple(s for k, s in enumerate(sizes) if beyond.involves_dims(islpy.dim_type.param, k, 1))
        return Witness(sizes, first, second)


class Relations:
    """The accesses of one function as relations. An access with an empty subscript stands for its statement."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.polyhedra = Polyhedra(function)
        self.parameters = tuple(_integer_names(function))
        self.context = self.polyhedra.system().build().params()

    def touch(self, access: Access, time: tuple[int, ...]) -> Touch:
        system = self.polyhedra.system()
        system.add_domain(access, {})
        # a fresh array for every iteration of a loop is told apart by that loop's variable
        fresh: tuple[str, ...] = ()
        if access.array:
            fresh = tuple(system.dimensions[var] for var in self.function.array(access.array).within)
        index = [None if form is None else system.text(form, {}) for form in access.subscript]
        exact = system.exact and None not in index
        return Touch(access, time, system.build_map([*fresh, *index]), exact)

    def meetings(self, first: Touch, second: Touch) -> Relation:
        """The iterations of two accesses that touch the same element, in any order."""
        pairs = first.elements.apply_range(second.elements.reverse())
        return Relation(self.parameters, self.context, first.loops, second.loops, pairs)

    def at_ends(self, relation: Relation, last: frozenset[str], first: frozenset[str]) -> Relation:
        """The pairs whose first iteration is the last one of some loops, and whose second is the first one of others."""
        pairs = relation.pairs
        for k, loop in enumerate(relation.first):
            if loop.var in last:
                pairs = pairs.intersect_domain(self._end(relation.first, k, latest=True))
        for k, loop in enumerate(relation.second):
            if loop.var in first:
                pairs = pairs.intersect_range(self._end(relation.second, k, latest=False))
        return replace(relation, pairs=pairs)

    def _end(self, loops: tuple[For, ...], level: int, latest: bool) -> islpy.Set:
        """The iterations that are the first, or the last, of the loop number `level`."""
        system = self.polyhedra.system()
        for loop in loops[: level + 1]:
            system.add_loop(loop, {})
        every = system.build()
        later = _order(level + 1, level + 1, tuple(loop.step > 0 for loop in loops[: level + 1]), level)
        ends = every.subtract(every.apply(later.reverse() if latest else later))
        return ends.insert_dims(islpy.dim_type.set, level + 1, len(loops) - level - 1)

    def before(self, first: Touch, second: Touch) -> Relation:
        """The iterations of two accesses that touch the same element in this order."""
        met = self.meetings(first, second)
        ordered = [met.carried(level) for level in range(len(met.common))]
        if first.time[len(met.common)] < second.time[len(met.common)]:
            ordered.append(met.carried(None))
        return replace(met, pairs=reduce(islpy.Map.union, (r.pairs for r in ordered), met.pairs.subtract(met.pairs)))

    def covers(self, read: Touch, relations: Iterable[Relation]) -> bool:
        """Whether every iteration of a read is the second one of a pair of these."""
        missing = read.elements.domain()
        for relation in relations:
            missing = missing.subtract(relation.pairs.range())
        return bool(missing.is_empty())

    def timed(self, loops: tuple[For, ...], time: Sequence[Expr]) -> islpy.Map | None:
        """From the iterations of these loops to when they happen: integer expressions in their variables, compared one
        after another. None where isl cannot be told one.
        """
        system = self.polyhedra.system()
        for loop in loops:
            system.dimension(loop.var)
        texts = [system.bound(e, {}) for e in time]
        return None if None in texts else system.build_map(texts)

    def overtaken(self, relation: Relation, first: islpy.Map, second: islpy.Map) -> Relation:
        """The pairs whose second iteration happens before the first one, at the times that `timed` gave."""
        return replace(relation, pairs=relation.pairs.intersect(first.lex_gt_map(second)))

    def moved(self, relation: Relation, first: islpy.Map, second: islpy.Map, places: Sequence[int]) -> tuple[int | str, ...]:
        """How far the pairs are apart at these places of their times, as `Relation.distance` tells it."""
        apart = relation.pairs.apply_domain(first).apply_range(second).deltas()
        apart = apart.project_out(islpy.dim_type.param, 0, apart.dim(islpy.dim_type.param))
        return tuple(_span(apart.dim_min_val(k), apart.dim_max_val(k)) for k in places)

    def flow(self, touches: Sequence[Touch]) -> dict[tuple[int, int], tuple[Relation, bool]]:
        """The writes from which each read may have its value: (place of a write, place of a read) -> the iterations, and
        whether surely all of them. A write that surely happens hides those before it.
        """
        flows: dict[tuple[int, int], tuple[Relation, bool]] = {}
        for array in dict.fromkeys(t.access.array for t in touches):
            writes = [k for k, t in enumerate(touches) if t.access.array == array and t.access.write]
            steps = {(j, k): self.before(touches[j], touches[k]) for j in writes for k in writes if touches[k].exact}
            for k, read in enumerate(touches):
                if read.access.write or read.access.array != array:
                    continue
                exact = read.exact and all(touches[j].exact for j in writes)
                reaching = {j: self.before(touches[j], read) for j in writes}
                for j, relation in reaching.items():
                    hidden = [(steps[j, m].pairs, reaching[m].pairs) for m in writes if touches[m].exact]
                    pairs = _unhidden(relation.pairs, hidden)
                    flows[j, k] = (relation, False) if pairs is None else (replace(relation, pairs=pairs), exact)
        return flows


def _unhidden(pairs: islpy.Map, detours: Sequence[tuple[islpy.Map, islpy.Map]]) -> islpy.Map | None:
    """The pairs between which none of the detours leads; None where that is too hard to tell."""
    try:
        with _patience():
            for there, back in detours:
                if pairs.is_empty():
                    break
                pairs = pairs.subtract(there.apply_range(back)).coalesce()
    except TooHard:
        return None
    return pairs


def _span(low: islpy.Val, high: islpy.Val) -> int | str:
    """Numbers from `low` to `high`: the number where it is one, else their sign as `Relation.distance` tells it."""
    if low.eq(high):
        return int(low.to_python())
    if low.is_nonneg():
        return "<" if low.is_pos() else "<="
    if high.is_nonpos():
        return ">" if high.is_neg() else ">="
    return "*"


def _coordinates(letter: str, count: int) -> str:
    return "[" + ", ".join(f"{letter}{k}" for k in range(count)) + "]"


@cache
def _order(first: int, second: int, steps: tuple[bool, ...], level: int | None) -> islpy.Map:
    """Iterations that agree in the common loops before `level` and in order there. steps: whether each counts upwards."""
    lines = [f"x{k} = y{k}" for k in range(len(steps) if level is None else level)]
    if level is not None:
        lines.append(f"x{level} {'<' if steps[level] else '>'} y{level}")
    return _between(first, second, lines)


def _between(first: int, second: int, lines: Sequence[str]) -> islpy.Map:
    holds = " and ".join(lines) or "true"
    return islpy.Map(f"{{ {_coordinates('x', first)} -> {_coordinates('y', second)} : {holds} }}")


@cache
def _differences(first: int, second: int, common: int) -> islpy.Map:
    """From a pair of iterations to how far the variables of the common loops are apart."""
    apart = ", ".join(f"y{k} - x{k}" for k in range(common))
    return islpy.Map(f"{{ [{_coordinates('x', first)} -> {_coordinates('y', second)}] -> [{apart}] }}")
