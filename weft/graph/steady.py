"""What is the same for all points: computed once, and taken out of sums. The sum of a * g is a times the sum of g.

A sum whose factors are made of earlier folds waits for these at each of its points. Without them it can be found beside them,
in one sweep over the points, at one barrier; and a point takes fewer instructions. That is the distributive law, of real
numbers: what is summed instead has to be a number that the program computes at the point too, before it multiplies it, so that
none is larger or smaller than what the program thought of. (x / m) * (x / m) stays as it is: x * x may overflow, which the
division is there to prevent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.graph.relative import related
from weft.graph.tile import Fold, Map, Read, TileGraph, Value, Write, axes_of_name, names_of, uses, uses_of_write
from weft.loops.ir import Check, Const, Expr, Load, Op, Ref, free_names, operands, walk_expr, with_operands
from weft.loops.names import Names
from weft.loops.simplify import fold as fold_expr
from weft.loops.simplify import is_number, number
from weft.loops.types import BOOL

_LARGEST = ("max", "maximum", "fmax")


def steady(graph: TileGraph, every: bool = False) -> TileGraph:
    """The graph, with what is the same for all points of a sum taken out of it where earlier folds are in that. every: whatever
    it is made of.
    """
    taking = _Taking(graph, every)
    found = {v.results[0]: f for v in graph.values if isinstance(v, Fold) and (f := taking.taken(v)) is not None}
    if not found:
        return graph
    taken = names_in(graph)
    values: list[Value] = []
    for v in graph.values:
        if not isinstance(v, Fold) or v.results[0] not in found:
            values.append(v)
            continue
        part, factors = found[v.results[0]]
        name = taken.fresh(f"{v.names[0]}_terms")
        whole: Expr = Ref(name, v.types[0])
        for factor in factors:
            whole = factor.of(whole)
        if v.results[0] in taking.of_rows(v):
            whole = of_some(graph, whole, v)
        values += [
            replace(v, names=(name,), results=(name,), parts=(part,), relative=(), scale=None),
            Map(v.results[0], v.axes, whole, v.location),
        ]
    return related(replace(graph, values=tuple(values)))


def once(graph: TileGraph, rows: Collection[str]) -> TileGraph:
    """The graph, in which what is written at points has what is the same for all points of a row as a value of its own. Left
    where it is, it is computed for each run of points that is looked at by itself.
    """
    naming = _Naming(graph, frozenset(rows))
    writes = tuple(w if set(w.axes) <= naming.rows else replace(w, value=naming.written(w)) for w in graph.writes)
    return replace(graph, values=(*graph.values, *naming.own.values()), writes=writes) if naming.own else graph


class _Naming:
    """Values of rows, in place of the parts of writes that they are.

    What may be evaluated wherever a row is goes there as it is. What loads is evaluated under what the program asks before it:
    the conditions on the way to it, where all are of the row, or those of the row alone, where the program loads the same under
    no others.
    """

    def __init__(self, graph: TileGraph, rows: frozenset[str]) -> None:
        self.graph, self.rows, self.taken, self.own = graph, rows, names_in(graph), dict[Expr, Map]()
        self.made, self.axes = graph.made, {a.name for a in graph.axes}
        self.written_to = {w.array for w in graph.writes}
        self.loaded: dict[Expr, list[set[Expr]]] = {}  # by what is loaded, the conditions of the row under which it surely is
        for w in graph.writes:
            for load, asked, surely in self._loads(w.value, *self._asked(w)):
                if surely:
                    self.loaded.setdefault(load, []).append({*asked})

    def written(self, write: Write) -> Expr:
        """What is written, of values of rows."""
        return self._named(write.value, *self._asked(write))

    def _asked(self, write: Write) -> tuple[tuple[Expr, ...], bool]:
        """The conditions of a row under which a write is evaluated, and whether they are all that there are."""
        ends = [self.graph.axis(name) for name in write.axes if name not in self.rows]
        points = (fold_expr(Op("lt", (a.start, a.stop), BOOL)) for a in ends)
        asked = [c for c in (*points, *([] if write.guard is None else [write.guard])) if c != Const(True, BOOL)]
        return tuple(filter(self._of_row, asked)), all(map(self._of_row, asked))

    def _of_row(self, e: Expr) -> bool:
        """Whether an expression is made of what is the same for a row."""
        if isinstance(e, Load) and e.array in self.written_to:
            return False
        if isinstance(e, Ref) and e.name in self.axes - self.rows:
            return False
        if isinstance(e, Ref) and e.name in self.made:
            return set(axes_of_name(self.made[e.name], e.name)) <= self.rows
        return all(map(self._of_row, operands(e)))

    def _within(self, e: Expr, asked: tuple[Expr, ...], all_: bool) -> Iterator[tuple[Expr, tuple[Expr, ...], bool]]:
        """The operands of an expression, each with what is asked before it."""

        def under(condition: Expr) -> tuple[tuple[Expr, ...], bool]:
            return ((*asked, condition), all_) if self._of_row(condition) else (asked, False)

        match e:
            case Op(name="where", args=(condition, then, orelse)):
                yield condition, asked, all_
                yield then, *under(condition)
                yield orelse, *under(Op("not", (condition,), BOOL))
            case Op(name="and" | "or" as name, args=(a, b)):
                yield a, asked, all_
                yield b, *under(a if name == "and" else Op("not", (a,), BOOL))
            case _:
                yield from ((o, asked, all_) for o in operands(e))

    def _loads(self, e: Expr, asked: tuple[Expr, ...], all_: bool) -> Iterator[tuple[Expr, tuple[Expr, ...], bool]]:
        if isinstance(e, Load | Check):
            yield e, asked, all_
        for part in self._within(e, asked, all_):
            yield from self._loads(*part)

    def _named(self, e: Expr, asked: tuple[Expr, ...], all_: bool) -> Expr:
        if isinstance(e, Op) and e.type.category == "float" and any(n in self.made for n in free_names(e)) and self._of_row(e):
            value = self._under(e, asked) if any(isinstance(x, Load | Check) for x in walk_expr(e)) else e
            loads = self._loads(value, (), True)
            if all(any(known <= {*own} for known in self.loaded.get(load, ())) for load, own, _ in loads):
                return Ref(self._value(e.name, value).name, e.type)
        below = tuple(self._named(*part) for part in self._within(e, asked, all_))
        return with_operands(e, below) if below else e

    def _under(self, e: Expr, asked: tuple[Expr, ...]) -> Expr:
        """An expression where these conditions hold, asked in this order, else 0."""
        while isinstance(e, Op) and e.name == "where" and e.args[0] in asked:
            e = e.args[1]
        for condition in reversed(tuple(dict.fromkeys(asked))):
            e = Op("where", (condition, e, number(0, e.type)), e.type)
        return e

    def _value(self, called: str, value: Expr) -> Map:
        if value not in self.own:
            inside = {a for n in free_names(value) if n in self.made for a in axes_of_name(self.made[n], n)}
            inside |= free_names(value) & self.rows
            self.own[value] = Map(self.taken.fresh(called), tuple(a.name for a in self.graph.axes if a.name in inside), value)
        return self.own[value]


def names_in(graph: TileGraph) -> Names:
    """All names of a graph are taken."""
    exprs = [e for v in graph.values for e in uses(v)] + [e for w in graph.writes for e in uses_of_write(w)]
    exprs += [e for a in graph.axes for e in (a.start, a.stop)]
    known = {n for e in exprs for n in free_names(e)} | {a.name for a in graph.axes} | {w.array for w in graph.writes}
    return Names(known | {n for v in graph.values for n in (*names_of(v), *([v.array] if isinstance(v, Read) else []))})


def of_some(graph: TileGraph, whole: Expr, fold: Fold) -> Expr:
    """What is made of a sum and its factors, where it has terms; else 0, whatever its factors are."""
    for name in fold.over:
        axis = graph.axis(name)
        terms = fold_expr(Op("lt", (axis.start, axis.stop), BOOL))
        if terms != Const(True, BOOL):
            whole = Op("where", (terms, whole, number(0, whole.type)), whole.type)
    return whole


@dataclass(frozen=True)
class _Factor:
    """What is done to a term, and to the sum instead. by: multiplied or divided by it; None: its sign changes."""

    name: str
    by: Expr | None = None

    def of(self, e: Expr) -> Expr:
        return Op(self.name, (e,) if self.by is None else (e, self.by), e.type)


@dataclass(frozen=True)
class _Taking:
    graph: TileGraph
    every: bool

    def taken(self, fold: Fold) -> tuple[Expr, tuple[_Factor, ...]] | None:
        """What is summed instead, and what is done to the sum of it."""
        if fold.algebra != "sum" or fold.types[0].category != "float" or not is_number(fold.inits[0], 0):
            return None
        if fold.results[0] in self.of_rows(fold) and not self.every:
            return None  # a sum of no terms is 0, whatever its factors are
        part, factors = self.term(fold.parts[0], fold)
        return (part, factors) if any(f.by is not None and (self.every or self.folded(f.by)) for f in factors) else None

    def of_rows(self, fold: Fold) -> set[str]:
        """What is needed where the fold has no points: there its result may be anything else."""
        writes = [w for w in self.graph.writes if not set(fold.over) & set(w.axes)]
        return self.graph.below(e for w in writes for e in uses_of_write(w))

    def term(self, e: Expr, fold: Fold) -> tuple[Expr, tuple[_Factor, ...]]:
        """A term without factors that are the same for all points, and these, from the first to the last that is applied."""
        match e:
            case Ref(name=name) if isinstance(value := self.graph.made.get(name), Map) and self.over(e, fold):
                inside, factors = self.term(value.value, fold)
                return (inside, factors) if factors else (e, ())
            case Op(name="neg", args=(a,)):
                inside, factors = self.term(a, fold)
                return inside, (*factors, _Factor("neg"))
            case Op(name="mul" | "div" as name, args=(a, by)) if not self.over(by, fold):
                inside, factors = self.term(a, fold)
                return inside, (*factors, _Factor(name, by))
            case Op(name="mul", args=(by, a)) if not self.over(by, fold):
                return self.term(Op("mul", (a, by), e.type), fold)
            case Op(name="mul", args=(a, b)):
                (left, first), (right, second) = self.term(a, fold), self.term(b, fold)
                if (self.small(left) or self.small(right)) and all(map(self.lessens, (*first, *second))):
                    return Op("mul", (left, right), e.type), (*first, *second)
        return e, ()

    def over(self, e: Expr, fold: Fold) -> bool:
        """Whether an expression is another one at other points of the fold."""
        made = self.graph.made
        return any(n in fold.over or (n in made and set(axes_of_name(made[n], n)) & set(fold.over)) for n in free_names(e))

    def folded(self, e: Expr) -> bool:
        """Whether folds are in an expression."""
        values = [self.graph.made[n] for n in free_names(e) if n in self.graph.made]
        return any(isinstance(v, Fold) or (isinstance(v, Map) and self.folded(v.value)) for v in values)

    # ---------------------------------------------------------------- how large numbers are

    def small(self, e: Expr) -> bool:
        """Whether a number is within 0 and 1."""
        return _maximum(e, self.graph.made) is not None

    def lessens(self, factor: _Factor) -> bool:
        """Whether a factor is none above 1."""
        return factor.by is None or (factor.name == "div" and counts_from_one(factor.by, self.graph.made))


def counts_from_one(e: Expr, made: Mapping[str, Value]) -> bool:
    """Whether a number is 1 or more, and no more than there are points: a sum of exponentials relative to their maximum, one of
    which is 1. (Without a point it is 0.)
    """
    total = made.get(e.name) if isinstance(e, Ref) else None
    if not isinstance(total, Fold) or total.algebra != "sum" or not is_number(total.inits[0], 0):
        return False
    top = _maximum(total.parts[0], made)
    return top is not None and top.over == total.over and is_number(top.inits[0], -math.inf)


def _maximum(e: Expr, made: Mapping[str, Value]) -> Fold | None:
    """The maximum of what an exponential is taken of, if that is relative to it."""
    match e:
        case Ref(name=name) if isinstance(value := made.get(name), Map):
            return _maximum(value.value, made)
        case Op(name="exp" | "exp2" | "exp_flushed", args=(Op(name="sub", args=(a, Ref(name=name))),)):
            top = made.get(name)
            if isinstance(top, Fold) and top.algebra in _LARGEST and top.parts[0] == a:
                return top
    return None
