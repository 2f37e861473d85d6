"""Folds whose points rows and columns share, as a product of matrices: a reading of sweeps, no graph of its own.

The axes of the results fall in two groups, *rows* and *columns*, so that what is folded is made of operands which have the axes
of one group alone, and those that are folded. So a point of an operand serves a whole row or column of results. What is made of
two operands may be anything: their product, the distance of two vectors, a sum whose largest is wanted. Axes that all operands
have are the *batch*. What a result has of its own, the same at all of its points, may be among what is made of them.

Products that are summed on conditions (the border of a convolution) are products of operands that are 0 elsewhere: the sum is
another one where that is multiplied by what is infinite or no number, and is then none itself. Such results are summed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Fold, Map, Read, Value, names_of, uses
from weft.loops.affine import affine
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import (
    Cast,
    Check,
    Const,
    Expr,
    Function,
    Load,
    Op,
    Ref,
    Round,
    free_names,
    operands,
    substitute,
    walk_expr,
    with_operands,
)
from weft.loops.polynomials import difference, no_less, polynomial
from weft.loops.simplify import fold
from weft.loops.types import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FLOATS8,
    INT8,
    INT32,
    INT64,
    UINT8,
    ScalarType,
    promote_types,
)

# Operators that do not evaluate all of their operands.
_LAZY = ("where", "and", "or")


@dataclass(frozen=True)
class Operand:
    """What folds take of one side at each of its points. name: by which they know it."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Products:
    """folds: their parts are made of the operands' names. rows, columns: the axes that left operands have alone, and right
    ones. Each group of axes from the slowest to the fastest. ending: what is folded for each result by itself, over other axes.
    owns: what each result has of its own. exact: the sums on conditions, as they are.
    """

    sweeps: Sweeps
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    over: tuple[str, ...]
    left: tuple[Operand, ...]
    right: tuple[Operand, ...]
    folds: tuple[Fold, ...]
    ending: tuple[Sweep, ...] = ()
    owns: tuple[Operand, ...] = ()
    exact: tuple[Fold, ...] = ()

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.left, *self.right)

    @property
    def inits(self) -> tuple[Expr, ...]:
        """What all folds begin with."""
        return tuple(e for folds in (self.folds, *(s.folds for s in self.ending)) for f in folds for e in f.inits)

    @property
    def across(self) -> tuple[tuple[Fold, ...], ...]:
        """What rows fold of results (`weft.graph.row_folds`), in stages: each waits for those before it."""
        own = {f.results[0] for stage in self.sweeps.stages for s in stage for f in s.folds}
        made = {n: v for v in self.sweeps.values for n in names_of(v)}
        levels: dict[str, int] = {}

        def level(name: str) -> int:
            if name not in levels:
                value = made.get(name)
                inner = () if value is None or name in own else (n for e in uses(value) for n in free_names(e))
                levels[name] = max(map(level, inner), default=0) + (isinstance(value, Fold) and name not in own)
            return levels[name]

        folds = [f for f in self.sweeps.folds if f.results[0] not in own]
        most = max((level(f.results[0]) for f in folds), default=0)
        return tuple(tuple(f for f in folds if level(f.results[0]) == n) for n in range(1, most + 1))

    def terms(self, fold: Fold) -> tuple[tuple[str, str], ...]:
        """The left and the right operand of each product that a fold sums; none where it sums anything else."""
        left, right = ({o.name for o in side} for side in (self.left, self.right))

        def of(e: Expr) -> tuple[tuple[str, str], ...]:
            match e:
                case Op(name="mul", args=(Ref(name=a), Ref(name=b))):
                    return ((a, b),) if a in left and b in right else ((b, a),) if a in right and b in left else ()
                case Op(name="add", args=(a, b)):
                    one, other = of(a), of(b)
                    return (*one, *other) if one and other else ()
            return ()

        return of(fold.parts[0]) if fold.algebra == "sum" else ()

    def neutral(self, fold: Fold) -> bool:
        """Whether points whose operands are all 0 leave a fold as it is, which sums products."""
        return bool(self.terms(fold))


def products(sweeps: Sweeps, lane: str, main: int = 0, apart: Collection[str] = ()) -> Products | None:
    """Sweeps as products, of which the columns have the axis `lane`; None where they are none. main: of sweeps over different
    axes, which is multiplied: the others are folded for each result. apart: axes that are of the batch, also where one side
    alone has them.
    """
    if len(sweeps.stages) != 1 or lane not in sweeps.rows:
        return None
    sweeps = _of_all_points(sweeps)
    sweep, ending = sweeps.stages[0][main], tuple(s for k, s in enumerate(sweeps.stages[0]) if k != main)
    for own in (sweep, *ending):
        if own.writes or own.bounded or own.repairs or not all(f.algebra in ALGEBRAS for f in own.folds):
            return None
    made = {v.name: v for v in sweeps.values if isinstance(v, Read | Map)}
    if any(free_names(e) & (sweeps.axes.keys() | made.keys()) for a in sweeps.axes.values() for e in (a.start, a.stop)):
        return None  # rows or columns that have points of their own
    reach = _Reach(sweeps, made)
    leaves = [leaf for f in sweep.folds for leaf in reach.leaves(f.parts[0])]
    steady = [leaf for leaf in leaves if not leaf & {*sweep.over}]
    found = _groups(sweeps.rows, lane, leaves, apart)
    found = found or _groups(sweeps.rows, lane, [leaf for leaf in leaves if leaf not in steady], apart)
    if found is None:
        return None
    batch, rows, columns = found
    split = _Split(reach, frozenset(sweep.over), batch, rows, columns)
    folds, exact = [], []
    for f in sweep.folds:
        tried = split.copy()
        part = tried.of(f.parts[0], strict=True)
        if part is not None:
            split = tried
        elif f.algebra == "sum" and f.types[0] == FLOAT32:
            part = split.masked(f.parts[0])
            exact.append(f)
        if part is None:
            return None
        folds.append(replace(f, parts=(part,)))
    left, right = (tuple(o for o in split.found if bool(reach.axes(o.value) & columns) == side) for side in (False, True))

    def ordered(axes: frozenset[str]) -> tuple[str, ...]:
        return tuple(a for a in sweeps.rows if a in axes)

    return Products(
        sweeps, ordered(batch), ordered(rows), ordered(columns), sweep.over, left, right, tuple(folds), ending, split.owns,
        tuple(exact),
    )  # fmt: skip


def source(found: Products, operand: Operand, widened: bool = False) -> Expr | Read:
    """What an operand is, beyond the names of maps. widened: and beyond what converts to larger types."""
    made = {v.name: v for v in found.sweeps.values if isinstance(v, Read | Map)}
    value = operand.value
    while True:
        if isinstance(value, Ref) and value.name in made:
            named = made[value.name]
            if isinstance(named, Read):
                return named
            value = named.value
        elif widened and isinstance(value, Cast) and _widens(value):
            value = value.value
        else:
            return value


def _widens(cast: Cast) -> bool:
    of, to = cast.value.type, cast.type
    if to.category == "float":
        return of in BYTES or of.category == "float" and of.size < to.size
    return of.category == to.category == "int" and promote_types(of, to) == to


BYTES = (INT8, UINT8)
# The type in which matrix instructions sum products of factors.
SUMS = {FLOAT16: FLOAT32, BFLOAT16: FLOAT32, FLOAT64: FLOAT64, INT8: INT32, UINT8: INT32}
# The largest product of two factors, and of what is summed in int32.
_LARGEST_PRODUCT, _LARGEST_SUM = {INT8: 1 << 14, UINT8: 255 * 255}, (1 << 31) - 1


def multiplied_type(function: Function, found: Products, points: int) -> ScalarType | None:
    """The type of all factors, where matrix instructions multiply them and sum so many products as the program does; None where
    they do not. Bytes and floats of 8 bits that are summed in float32 are values of either 16-bit type: instructions for the
    latter keep fewer bits of their sums. Where some are int8 and others uint8: uint8.
    """
    sums = {f.types[0] for f in found.folds}
    types = {factor_type(function, found, o) for o in found.operands}
    if sums == {FLOAT32}:
        types = types - {*BYTES, *FLOATS8} or {FLOAT16}
    elif types == {*BYTES}:
        types = {UINT8}  # each side has its own
    type_, *others = types
    if type_ is None or others or not all(map(found.neutral, found.folds)):
        return None
    if sums == {INT64} and points * _LARGEST_PRODUCT.get(type_, 0) <= _LARGEST_SUM:
        sums = {INT32}  # which holds all that they are
    return type_ if sums == {SUMS[type_]} else None


def factor_type(function: Function, found: Products, operand: Operand) -> ScalarType | None:
    """The least type of which all values of an operand are, of those that matrix instructions multiply; None: of none."""
    if operand.value.type == FLOAT64:
        return FLOAT64
    type_: ScalarType | None = source(found, _unmasked(operand), widened=True).type
    if type_ in BYTES:
        return type_
    type_ = _type_of_values(function, found, operand)
    return type_ if type_ in (FLOAT16, BFLOAT16, *FLOATS8) else None


def exact_type(function: Function, found: Products, operand: Operand) -> ScalarType | None:
    """The 16-bit type of which all values of an operand are; None where they may be others."""
    type_ = _type_of_values(function, found, operand)
    return type_ if type_ in (FLOAT16, BFLOAT16) else None


def _unmasked(operand: Operand) -> Operand:
    """An operand as it is where its condition holds; elsewhere it is 0, which is a value of any type."""
    match operand.value:
        case Op(name="where", args=(_, inner, Const(value=0))):
            return replace(operand, value=inner)
    return operand


def _type_of_values(function: Function, found: Products, operand: Operand) -> ScalarType | None:
    value = source(found, _unmasked(operand))
    if isinstance(value, Read | Load):
        return function.array(value.array).dtype
    return value.to if isinstance(value, Round) else None


def _of_all_points(sweeps: Sweeps) -> Sweeps:
    """Sweeps of sums over the points below or from a bound that one axis of the rows tells (`range(i + 1)`, `range(i, n)`), as
    sums over the points of the last, or the first, such row, of which each row takes its own: what rows and columns share they
    need not read for each result. The same sweeps where it is not so, or where a point of one row may be outside of an array at
    another one.
    """
    ((sweep, *others),) = sweeps.stages
    point, rows = sweeps.axes[sweep.over[-1]], {*sweeps.rows}
    if sweep.bounded or others or not all(f.algebra == "sum" and f.types[0].category == "float" for f in sweep.folds):
        return sweeps
    told = [free_names(e) & sweeps.axes.keys() for e in (point.start, point.stop)]
    form = affine(point.stop if told[1] else point.start)
    bounding = told[0] | told[1]
    if form is None or (told[1] and point.start != Const(0, INT64)) or len(bounding) != 1 or not bounding <= rows:
        return sweeps
    (row,) = bounding
    read = [i for v in sweeps.values if isinstance(v, Read) for i in v.index if point.name in free_names(i)]
    if form.coefficient(row) != 1 or any(i != Ref(point.name, INT64) for i in read):
        return sweeps
    here = Ref(point.name, INT64)
    if told[1]:
        last = Op("sub", (sweeps.axes[row].stop, Const(1, INT64)), INT64)
        inside, whole = Op("lt", (here, point.stop), BOOL), replace(point, stop=substitute(point.stop, {row: last}))
    else:
        first = fold(substitute(point.start, {row: sweeps.axes[row].start}))
        inside, whole = Op("le", (point.start, here), BOOL), replace(point, start=first)

    def masked(f: Fold) -> Fold:
        return replace(f, parts=(Op("where", (inside, f.parts[0], Const(0.0, f.types[0])), f.types[0]),))

    folds = {f.results[0]: masked(f) for f in sweep.folds}
    axes = {**sweeps.axes, point.name: whole}
    values = tuple(folds.get(v.results[0], v) if isinstance(v, Fold) else v for v in sweeps.values)
    return replace(sweeps, axes=axes, values=values, stages=((replace(sweep, folds=tuple(folds.values())),),))


def _groups(
    axes: tuple[str, ...], lane: str, leaves: Collection[frozenset[str]], apart: Collection[str]
) -> tuple[frozenset[str], frozenset[str], frozenset[str]] | None:
    """Batch, rows and columns: the smallest batch without which the axes of the results fall in groups that no leaf joins, and
    which has those that are apart.
    """
    others = [a for a in axes if a != lane and a not in apart]
    for batch in (frozenset((*apart, *b)) for n in range(len(others)) for b in itertools.combinations(others, n)):
        groups: list[frozenset[str]] = []
        for own in (leaf & frozenset(axes) - batch for leaf in leaves):
            if own:
                groups = [*(g for g in groups if not g & own), own.union(*(g for g in groups if g & own))]
        columns = next((g for g in groups if lane in g), None)
        if columns is not None and len(groups) > 1 and batch.union(*groups) == set(axes):
            return batch, frozenset().union(*groups) - columns, columns
    return None


class _Reach:
    """Which axes expressions depend on, through the values in them."""

    def __init__(self, sweeps: Sweeps, made: Mapping[str, Value]) -> None:
        self.made, self._axes, self._shapes = made, sweeps.axes, sweeps.shapes
        self._of_values: dict[str, frozenset[str]] = {}

    def axes(self, e: Expr) -> frozenset[str]:
        found: set[str] = set()
        for name in free_names(e):
            if name in self._axes:
                found.add(name)
            elif name in self.made:
                found |= self.of_value(name)
        return frozenset(found)

    def of_value(self, name: str) -> frozenset[str]:
        if name not in self._of_values:
            value = self.made[name]
            exprs = value.index if isinstance(value, Read) else (value.value,)  # type: ignore[union-attr]
            self._of_values[name] = frozenset().union(*map(self.axes, exprs))
        return self._of_values[name]

    def inside(self, e: Expr, conditions: Collection[Expr]) -> bool:
        """Whether all that an expression loads is inside of its array where these hold, as they say themselves."""
        at_least_0 = [difference(*pair) for c in conditions if (pair := no_less(c)) is not None]

        def holds(i: Expr, extents: tuple[Expr, ...]) -> bool:
            axis = self._axes.get(i.name) if isinstance(i, Ref) else None
            ends = [end for e in extents for end in (e.args if isinstance(e, Op) and e.name == "max" else (e,))]
            if axis is not None and self._above(axis.start) and fold(axis.stop) in map(fold, ends):
                return True
            below = any(difference(end, Op("add", (i, Const(1, INT64)), INT64)) in at_least_0 for end in ends)
            return below and (self._above(i) or difference(i, Const(0, INT64)) in at_least_0)

        loads = [x for x in walk_expr(e) if isinstance(x, Load | Check)]
        return all(isinstance(x, Load) and all(map(holds, x.index, self._shapes.get(x.array, ()))) for x in loads)

    def _above(self, e: Expr) -> bool:
        """Whether this is a sum of products of what is not below 0: of variables, and of how many points axes have."""
        counts = {a.stop.name for a in self._axes.values() if isinstance(a.stop, Ref)}
        counts |= {a.name for a in self._axes.values() if isinstance(a.start, Const) and a.start.value >= 0}
        form = polynomial(e)
        return form is not None and all(c > 0 and counts.issuperset(m) for m, c in form.terms)

    def leaves(self, e: Expr) -> list[frozenset[str]]:
        """The axes of each read in an expression, and of each axis that is a number in it."""
        match e:
            case Ref(name=name) if isinstance(value := self.made.get(name), Map):
                return self.leaves(value.value)
            case Ref() | Load():
                return [self.axes(e)]
        return [leaf for own in operands(e) for leaf in self.leaves(own)]


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _both(a: Expr, b: Expr) -> Expr:
    return Op("and", (a, b), BOOL)


class _Split:
    """The largest parts of expressions that one side alone makes, or that are a result's own."""

    def __init__(
        self, reach: _Reach, over: frozenset[str], batch: frozenset[str], rows: frozenset[str], columns: frozenset[str]
    ) -> None:
        self._reach, self._over, self._shared, self._sides = reach, over, over | batch, (rows, columns)
        self._names: dict[Expr, str] = {}
        self._owns: dict[Expr, str] = {}

    def copy(self) -> _Split:
        """The same, with what has been found so far."""
        made = _Split(self._reach, self._over, self._shared - self._over, *self._sides)
        made._names, made._owns = dict(self._names), dict(self._owns)
        return made

    @property
    def found(self) -> tuple[Operand, ...]:
        return tuple(Operand(name, e) for e, name in self._names.items())

    @property
    def owns(self) -> tuple[Operand, ...]:
        return tuple(Operand(name, e) for e, name in self._owns.items())

    def masked(self, e: Expr) -> Expr | None:
        """A product on conditions, else 0, as one of operands that are 0 where those of their side do not hold; None where it
        is no such.
        """
        match self._made(e):
            case Op(name="where", args=(condition, product, Const(value=0))):
                conditions: tuple[list[Expr], list[Expr]] = [], []
                every = self._parts("and", condition)
                while isinstance(inner := self._made(product), Op) and inner.name == "where" and _is_zero(inner.args[2]):
                    every += self._parts("and", inner.args[0])
                    product = inner.args[1]
                for c in every:
                    side = self._side(c)
                    if side is None or any(isinstance(x, Load | Check) for x in walk_expr(c)):
                        return None
                    conditions[side].append(c)
                made: list[Expr] = []
                asked = [bool(own) for own in conditions]
                for factor in self._parts("mul", product):
                    side = self._side(factor)
                    if side is None:
                        return None
                    own, others = conditions[side], conditions[1 - side]
                    looks = any(isinstance(x, Load | Check) for x in walk_expr(factor))
                    sure = not looks or self._reach.inside(factor, own)
                    if not sure and any(self._reach.axes(c) & self._over for c in others):
                        return None  # the other side's may be what keeps it inside
                    if own and (asked[side] or looks):
                        asked[side] = False
                        factor = Op("where", (reduce(_both, own), factor, Const(0.0, factor.type)), factor.type)
                        made.append(Ref(self._names.setdefault(factor, f"operand.{len(self._names)}"), factor.type))
                    elif (told := self.of(factor, strict=sure)) is not None:
                        made.append(told)
                    else:
                        return None
                return None if any(asked) else reduce(lambda a, b: Op("mul", (a, b), e.type), made)
        return None

    def _made(self, e: Expr) -> Expr:
        """An expression, or what the map is that it names."""
        while isinstance(e, Ref) and isinstance(value := self._reach.made.get(e.name), Map):
            e = value.value
        return e

    def _parts(self, name: str, e: Expr) -> list[Expr]:
        """What is joined by an operator."""
        e = self._made(e)
        if isinstance(e, Op) and e.name == name:
            return [part for own in e.args for part in self._parts(name, own)]
        return [e]

    def _side(self, e: Expr) -> int | None:
        axes = self._reach.axes(e)
        return next((k for k, side in enumerate(self._sides) if axes <= side | self._shared), None)

    def of(self, e: Expr, strict: bool) -> Expr | None:
        """The expression of operands; None where it is no such. strict: it is evaluated at every point."""
        axes = self._reach.axes(e)
        if not axes:
            return e
        if any(axes <= side | self._shared for side in self._sides):
            if not strict and any(isinstance(x, Load | Check) for x in walk_expr(e)):
                return None
            name = self._names.setdefault(e, e.name if isinstance(e, Ref) else f"operand.{len(self._names)}")
            return Ref(name, e.type)
        if not axes & self._over:
            if not strict and any(isinstance(x, Load | Check) for x in walk_expr(e)):
                return None
            name = self._owns.setdefault(e, e.name if isinstance(e, Ref) else f"own.{len(self._owns)}")
            return Ref(name, e.type)
        match e:
            case Ref(name=name) if isinstance(value := self._reach.made.get(name), Map):
                return self.of(value.value, strict)
            case Check():
                return None
            case Op() | Cast() | Round():
                inner = strict and not (isinstance(e, Op) and e.name in _LAZY)
                parts = [self.of(x, inner) for x in operands(e)]
                return None if any(p is None for p in parts) else with_operands(e, tuple(p for p in parts if p is not None))
        return None
