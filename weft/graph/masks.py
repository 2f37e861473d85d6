"""Conditions without which a row and a column of chained products have nothing to tell each other.

`s if document[i] == document[j] else -inf` is below any maximum, and its exponential is 0: where the condition is false, what
rows fold stays as it is. That is found by computing with what is known then: numbers that are 0, or negative infinity, and any
others. 0 times an infinity is NaN, so it holds where some values, and operands of sums, are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from weft.graph.tile import Fold, Map, Read, names_of, uses
from weft.loops.affine import affine
from weft.loops.ir import Cast, Check, Const, Expr, Load, Op, Ref, Round, free_names, walk_expr
from weft.loops.types import FLOAT32, FLOAT64, INT32, INT64

# What intervals of numbers tell of.
COMPARED, COMPARISONS = (INT32, INT64, FLOAT32, FLOAT64), frozenset({"eq", "lt", "le", "gt", "ge"})

_Known = Literal["zero", "lowest", "any"]
_IDENTITIES: dict[str, _Known] = {"sum": "zero", "max": "lowest", "maximum": "lowest"}
_EXPONENTIALS = frozenset({"exp", "exp2"})


@dataclass(frozen=True)
class Mask:
    """condition: of a row and a column; where it is false, they add nothing to any fold if the values in `finite`, each of
    rows or of columns alone, and the operands of sums in `operands` are finite. apart: it is asked apart from scores, not as a
    part of them.
    """

    condition: Expr
    finite: tuple[Expr, ...] = ()
    operands: tuple[str, ...] = ()
    apart: bool = False


@dataclass(frozen=True)
class Sides:
    """What is compared in a condition: values of rows, and of columns, of each of which the least and the largest tell whether
    some pair has it, or all have. finite: of a mask, those of rows, and those of columns.
    """

    rows: tuple[Expr, ...] = ()
    columns: tuple[Expr, ...] = ()
    finite_rows: tuple[Expr, ...] = ()
    finite_columns: tuple[Expr, ...] = ()


@dataclass
class Values:
    """Values by name, and what each is of."""

    made: Mapping[str, Read | Map | Fold]
    axes: Collection[str]

    @classmethod
    def of(cls, values: Iterable[Read | Map | Fold], axes: Collection[str]) -> Values:
        return cls({n: v for v in values for n in names_of(v)}, axes)

    def axes_of(self, e: Expr) -> frozenset[str]:
        names = free_names(e)
        own = frozenset(n for n in names if n in self.axes)
        return own.union(*(self.made[n].axes for n in names if n in self.made))

    def below(self, e: Expr) -> Iterator[Read | Map | Fold]:
        """The values that an expression is made of."""
        pending, seen = [*free_names(e)], set[str]()
        while pending:
            name = pending.pop()
            if name not in seen and name in self.made:
                seen.add(name)
                yield self.made[name]
                pending += [n for x in uses(self.made[name]) for n in free_names(x)]

    def plain(self, e: Expr) -> bool:
        """Whether an expression has a value wherever its axes have a point."""
        values = [*self.below(e)]
        exprs = [e, *(x for v in values for x in uses(v))]
        reads = all(isinstance(v, Map) or (isinstance(v, Read) and v.always and not v.checked) for v in values)
        return reads and not any(isinstance(x, Check | Load) for root in exprs for x in walk_expr(root))

    def at_columns(self, e: Expr, column: str) -> bool:
        """Whether what an expression reads of columns lies side by side, as many as an array has of them."""
        reads = [v for v in self.below(e) if isinstance(v, Read) and column in v.axes]
        return all(i == Ref(column, INT64) or column not in free_names(i) for v in reads for i in v.index)


def sides(mask: Mask, values: Values, row: str, column: str) -> Sides:
    """The values that a mask compares, and those that have to be finite."""
    found: dict[bool, list[Expr]] = {False: [], True: []}
    for e in _comparisons(mask.condition):
        own = [side_of(x, values, row, column) for x in e.args]
        if None not in own:
            for x, which in zip(e.args, own, strict=True):
                if which in ("row", "column"):
                    found[which == "column"].append(x)
    finite = {k: [e for e in mask.finite if (column in values.axes_of(e)) == k] for k in (False, True)}
    return Sides(*(tuple(dict.fromkeys(own)) for own in (found[False], found[True], finite[False], finite[True])))


def side_of(e: Expr, values: Values, row: str, column: str) -> Literal["row", "column", "alike", "places"] | None:
    """What an expression is of that is compared: of a row, of a column, of neither, of the places of both alone; None where
    nothing is known of it.
    """
    if e.type not in COMPARED:
        return None
    own = values.axes_of(e)
    form = affine(e) if e.type == INT64 else None
    if form is not None and form.names <= {row, column}:
        return "places"
    if {row, column} <= own or not values.plain(e):
        return None
    if column in own:
        return "column" if values.at_columns(e, column) else None
    return "row" if row in own else "alike"


def _comparisons(e: Expr) -> Iterator[Op]:
    match e:
        case Op(name="and" | "or" | "not", args=args):
            for x in args:
                yield from _comparisons(x)
        case Op(name=name) if name in COMPARISONS:
            yield e


def decides(mask: Mask, values: Values, row: str, column: str) -> bool:
    """Whether intervals may tell that no pair has a condition."""
    return _told(mask.condition, lambda x: side_of(x, values, row, column) is not None, "or")


def _told(e: Expr, known: Callable[[Expr], bool], together: str) -> bool:
    """Whether intervals may tell that a condition never holds, where all parts of an "or" have to be told together, or that it
    always does, where those of an "and" have to be.
    """
    match e:
        case Op(name="and" | "or" as name, args=args):
            return (all if name == together else any)(_told(x, known, together) for x in args)
        case Op(name="not", args=(x,)):
            return _told(x, known, "and" if together == "or" else "or")
        case Op(name=name, args=args) if name in COMPARISONS:
            return all(map(known, args))
    return False


def mask_of(
    values: Values, row: str, column: str, folds: Collection[Fold], sums: Collection[tuple[Fold, Expr, str]]
) -> Mask | None:
    """The condition without which a row and a column add nothing. folds: of a row; sums: each with the left factor, which is
    made of scores, and the name of the other operand.
    """
    extrema = {n for f in folds for n in f.results if f.algebra != "sum"}
    exprs = [e for f in folds for e in f.parts] + [left for _, left, _ in sums]
    conditions: dict[Expr, None] = {}
    for e in (e for root in exprs for e in (root, *(x for v in values.below(root) if isinstance(v, Map) for x in uses(v)))):
        for x in walk_expr(e):
            match x:
                case Op(name="where", args=(condition, _, _)) if {row, column} & values.axes_of(condition):
                    conditions[condition] = None
    for condition in conditions:
        known = _Absent(values, condition, extrema)
        same = all(known.value(f.parts[0]) == _IDENTITIES.get(f.algebra) for f in folds)
        if not same or not all(known.value(left) == "zero" for _, left, _ in sums):
            continue
        finite = [e for e in known.finite if not {row, column} <= values.axes_of(e) and values.plain(e)]
        columns = all(values.at_columns(e, column) for e in finite)
        found = Mask(condition, tuple(finite), tuple(dict.fromkeys(name for _, _, name in sums)))
        if len(finite) == len(known.finite) and columns and decides(found, values, row, column):
            return found
    return None


@dataclass
class _Absent:
    """What is known of values where a condition is false. finite: what has to be for that."""

    values: Values
    condition: Expr
    extrema: Collection[str]
    finite: dict[Expr, None] = field(default_factory=dict)

    def value(self, e: Expr) -> _Known:
        match e:
            case Ref(name=name) if isinstance(made := self.values.made.get(name), Map):
                return self.value(made.value)
            case Const(value=0):
                return "zero"
            case Const(value=value) if value == -math.inf:
                return "lowest"
            case Op(name="where", args=(condition, a, b)):
                then, otherwise = ("any" if condition == self.condition else self.value(a)), self.value(b)
                return otherwise if condition == self.condition or then == otherwise else "any"
            case Op(name="mul", args=(a, Const(value=by))) if by > 0 and self.value(a) == "lowest":
                return "lowest"
            case Op(name="mul", args=(a, b)):
                for own, other in ((a, b), (b, a)):
                    if self.value(own) == "zero":
                        return self.where_finite("zero", other)
            case Op(name="sub", args=(a, b)) if self.value(a) == "lowest":
                # of a maximum that is none yet, or stays one, no exponential is taken
                return "lowest" if isinstance(b, Ref) and b.name in self.extrema else self.where_finite("lowest", b)
            case Op(name=name, args=(a,)) if name in _EXPONENTIALS and self.value(a) == "lowest":
                return "zero"
            case Op(name="neg", args=(a,)) if self.value(a) == "zero":
                return "zero"
            case Cast(value=value, type=type_) | Round(value=value, to=type_) if type_.category == "float":
                return self.value(value)
        return "any"

    def where_finite(self, known: _Known, other: Expr) -> _Known:
        self.finite[other] = None
        return known
