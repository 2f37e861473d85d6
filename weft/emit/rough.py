"""Exponentials that need not be right to the last bit of float32, on a GPU: there an exact one takes eight instructions, and
this one two. Quotients of what is 1 at the least (`v / (1 + exp(-v))`), and what a hyperbolic tangent is above -1, likewise.

A value is used roughly where it only goes, by arithmetic, into elements of 16 bits: an exponential that is right to |x| 2^-24
+ 2^-22 of itself is then rounded to 2^-12 or 2^-9. And where it is summed with all others relative to their maximum, one of
which is 1: sum p |x| <= log(n) bounds what the sum of n loses to log(n) 2^-24, no more than adding them up does. And where a
state is multiplied by it at every step: what the state loses is the sum of |x| 2^-24 over the steps that it remembers, over
which the exponentials' own product is e^-sum |x|.

Operands of chained products are 0 where exponentials would be subnormal, as weights are in the sums relative to a maximum.
A power of two takes three instructions more where subnormal ones are to be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from weft.graph.beside import Columns
from weft.graph.chains import Chain
from weft.graph.maps import Maps
from weft.graph.running import Repair
from weft.graph.scans import Scanned
from weft.graph.state_scans import StateScans
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import Fold, Map, Read, Scan, Write, uses_of_write
from weft.loops.algebra.table import AFFINE
from weft.loops.ir import Cast, Const, Expr, Function, Op, Ref, Round, free_names, operands, rewrite, with_operands
from weft.loops.types import BFLOAT16, FLOAT16, FLOAT32

# How a value is used: exactly, in a sum of what is relative to a maximum, on the way to 16 bits.
EXACT, SUMMED, NARROW = range(3)
# Arithmetic that hands on a relative error as it is, or one relative to what is added.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "neg", "abs"})
_HALVES = (FLOAT16, BFLOAT16)


def rough_sweeps(sweeps: Sweeps, columns: Columns | None, function: Function) -> tuple[Sweeps, Columns | None]:
    """The sweeps, and the folds of columns beside them, with rough exponentials where these do."""
    beside = columns.folds if columns is not None else ()
    rough = _Rough(function, {f.results[0]: f for f in sweeps.folds})
    rough.written(sweeps.writes)
    for fold in beside:
        rough.folded(fold)
    rough.made((*sweeps.values, *(columns.values if columns is not None else ())))

    def swept(sweep: Sweep) -> Sweep:
        return replace(
            sweep, folds=tuple(map(rough.fold, sweep.folds)), writes=tuple(map(rough.write, sweep.writes)),
            repairs=tuple(map(rough.repair, sweep.repairs)),
        )  # fmt: skip

    made = replace(
        sweeps,
        values=tuple(map(rough.value, sweeps.values)),
        stages=tuple(tuple(map(swept, stage)) for stage in sweeps.stages),
        last=tuple(map(rough.write, sweeps.last)),
    )
    if columns is None:
        return made, None
    values = tuple(replace(v, value=rough.expr(v.value, rough.level(v.name))) for v in columns.values)
    return made, replace(columns, values=values, folds=tuple(map(rough.fold, beside)))


def rough_chain(chain: Chain, function: Function) -> Chain:
    """The same of chained products."""
    folds = (*chain.leading, *chain.following)
    rough = _Rough(function, {f.results[0]: f for f in folds}, narrow="exp_flushed")
    rough.written((*chain.sums.sweeps.last, *chain.writes))
    rough.made(chain.values)
    sums = replace(
        chain.sums,
        sweeps=replace(
            chain.sums.sweeps,
            values=tuple(map(rough.value, chain.values)),
            last=tuple(map(rough.write, chain.sums.sweeps.last)),
        ),
        left=tuple(replace(o, value=rough.expr(o.value, SUMMED)) for o in chain.sums.left),
    )
    return replace(
        chain, sums=sums, leading=tuple(map(rough.fold, chain.leading)), following=tuple(map(rough.fold, chain.following)),
        repairs=tuple(map(rough.repair, chain.repairs)), writes=tuple(map(rough.write, chain.writes)),
    )  # fmt: skip


_Scans = TypeVar("_Scans", Scanned, StateScans)


def rough_scans(scans: _Scans, *written: Iterable[Write]) -> _Scans:
    """The scans, with rough exponentials for what their states are multiplied by, and for what is added to them relative to a
    maximum. written: all that is written.
    """
    made = {v.name: v.value for v in scans.values if isinstance(v, Map)}
    affine = [v for v in scans.values if isinstance(v, Scan) and v.algebra == AFFINE]
    coefficients, added = ({e.name for s in affine if isinstance(e := s.parts[k], Ref)} for k in (0, 1))
    rough = {n for n in coefficients & made.keys() if _is_exp(made[n])}
    rough |= {n for n in added & made.keys() if _is_exp(made[n]) and _below_maximum(operands(made[n])[0], made)}
    rough -= {n for writes in written for w in writes for e in uses_of_write(w) for n in free_names(e)}
    values = [replace(v, value=_flushed(v.value)) if isinstance(v, Map) and v.name in rough else v for v in scans.values]
    return replace(scans, values=tuple(values))


def _below_maximum(expr: Expr, made: Mapping[str, Expr]) -> bool:
    """Whether an expression is relative to a maximum of it and others."""
    match expr:
        case Op(name="sub", args=(a, Ref(name=name))):
            match made.get(name):
                case Op(name="max" | "maximum" | "fmax", args=chosen):
                    return a in chosen
    return False


def rough_maps(maps: Maps, function: Function) -> Maps:
    """The maps, with rough exponentials where these do."""
    courses = []
    for course in maps.courses:
        rough = _Rough(function, {})
        rough.written(course.writes)
        rough.made(course.values)
        values = tuple(rough.point(v) for v in course.values)
        courses.append(replace(course, values=values, writes=tuple(map(rough.write, course.writes))))
    return Maps(tuple(courses))


@dataclass
class _Rough:
    """levels: how names are used, by the most exact of their uses. folds: by their results. narrow: the exponential on the way
    to 16 bits. otherwise: names that are used as anything else than `1 + t` and `1 - t * t`, as the derivative of a hyperbolic
    tangent has them.
    """

    function: Function
    folds: Mapping[str, Fold]
    narrow: str = "exp_rough"
    levels: dict[str, int] = field(default_factory=dict)
    maps: dict[str, Expr] = field(default_factory=dict)
    otherwise: set[str] = field(default_factory=set)

    # ---------------------------------------------------------------- how values are used, from the last to the first

    def written(self, writes: Iterable[Write]) -> None:
        for w in writes:
            self.use(w.value, self.of_write(w))
            self.exactly((*w.index, *(() if w.guard is None else (w.guard,))))

    def folded(self, fold: Fold) -> None:
        for part in fold.parts:
            self.use(part, self.of_part(fold))
        self.exactly(fold.inits)

    def made(self, values: Iterable[Read | Map | Fold]) -> None:
        for value in reversed(list(values)):
            match value:
                case Fold():
                    self.folded(value)
                case Map():
                    self.maps[value.name] = value.value
                    self.use(value.value, self.level(value.name))
                case Read():
                    self.exactly(value.index)

    def level(self, name: str) -> int:
        return self.levels.get(name, NARROW)

    def of_write(self, w: Write) -> int:
        return NARROW if not w.join and self.function.array(w.array).dtype in _HALVES else EXACT

    def of_part(self, fold: Fold) -> int:
        return max(SUMMED, self.level(fold.results[0])) if fold.algebra == "sum" else EXACT

    def exactly(self, exprs: Iterable[Expr]) -> None:
        for name in {n for e in exprs for n in free_names(e)}:
            self.levels[name] = EXACT

    def use(self, expr: Expr, level: int) -> None:
        if (own := _near_one(expr)) is not None:
            self.levels[own.name] = min(level, self.level(own.name))
            return
        if isinstance(expr, Ref):
            self.levels[expr.name] = min(level, self.level(expr.name))
            self.otherwise.add(expr.name)
        for part, its in zip(operands(expr), _of_operands(expr, level), strict=True):
            self.use(part, its)

    # ---------------------------------------------------------------- the same with rough exponentials

    def value(self, value: Read | Map | Fold) -> Read | Map | Fold:
        return self.fold(value) if isinstance(value, Fold) else self.point(value)

    def point(self, value: Read | Map) -> Read | Map:
        if isinstance(value, Map) and self.is_tangent(value.name):  # its name is that of what it is the tangent of
            return replace(value, value=operands(value.value)[0])
        return replace(value, value=self.expr(value.value, self.level(value.name))) if isinstance(value, Map) else value

    def fold(self, fold: Fold) -> Fold:
        return replace(fold, parts=tuple(self.expr(e, self.of_part(fold)) for e in fold.parts))

    def write(self, w: Write) -> Write:
        return replace(w, value=self.expr(w.value, self.of_write(w)))

    def repair(self, repair: Repair) -> Repair:
        """What brings a sum to a later maximum is an exponential of what that has grown by."""
        return replace(repair, factor=_flushed(repair.factor))

    def expr(self, expr: Expr, level: int) -> Expr:
        if level == EXACT or not operands(expr):
            return expr
        if (own := _near_one(expr)) is not None and self.is_tangent(own.name):
            added = isinstance(expr, Op) and expr.name == "add"
            return Op("one_and_tanh" if added else "one_less_tanh_squared", (own,), FLOAT32)
        if _is_exp(expr):
            flushed = self.relative(operands(expr)[0])
            rough = "exp_flushed" if flushed else self.narrow
            return Op(rough, operands(expr), FLOAT32) if flushed or level == NARROW else expr
        if _is_power(expr) and level == NARROW and self.narrow == "exp_flushed":
            return Op("exp2_flushed", operands(expr), FLOAT32)
        levels = _of_operands(expr, level)
        found = with_operands(expr, tuple(self.expr(e, its) for e, its in zip(operands(expr), levels, strict=True)))
        if level == NARROW and isinstance(found, Op) and found.type == FLOAT32:
            match found:
                case Op(name="add", args=(Const(value=1.0), Op(name="tanh") as a) | (Op(name="tanh") as a, Const(value=1.0))):
                    return Op("one_and_tanh", a.args, FLOAT32)
                case Op(name="div", args=(_, by)) if self.from_one(by):
                    return replace(found, name="divide_rough")
        return found

    def is_tangent(self, name: str) -> bool:
        """Whether a value is a hyperbolic tangent that is used roughly, and only by `1 + t` and `1 - t * t`."""
        value = self.maps.get(name)
        is_tanh = isinstance(value, Op) and value.name == "tanh" and value.type == FLOAT32
        return is_tanh and self.level(name) == NARROW and name not in self.otherwise

    def from_one(self, e: Expr) -> bool:
        """Whether a value is 1 at the least, or NaN: 1 and an exponential."""
        match self.maps.get(e.name) if isinstance(e, Ref) else e:
            case Op(name="add", args=(Const(value=1.0), a) | (a, Const(value=1.0))):
                a = self.maps.get(a.name, a) if isinstance(a, Ref) else a
                return isinstance(a, Op) and a.name in ("exp", "exp_rough")
        return False

    def relative(self, expr: Expr) -> bool:
        """Whether an expression is relative to the maximum of its values: not above 0, and 0 at a point."""
        match expr:
            case Op(name="sub", args=(a, Ref(name=name))) if (fold := self.folds.get(name)) is not None:
                return fold.algebra in ("max", "maximum", "fmax") and fold.parts[0] == a
        return False


def _flushed(expr: Expr) -> Expr:
    return rewrite(expr, lambda e: Op("exp_flushed", operands(e), FLOAT32) if _is_exp(e) else None)


def _near_one(expr: Expr) -> Ref | None:
    """The value in `1 + t` and in `1 - t * t`."""
    match expr:
        case Op(name="add", args=(Const(value=1.0), Ref() as t) | (Ref() as t, Const(value=1.0)), type=type_):
            return t if type_ == FLOAT32 else None
        case Op(name="sub", args=(Const(value=1.0), Op(name="mul", args=(Ref() as t, other))), type=type_):
            return t if type_ == FLOAT32 and other == t else None
    return None


def _is_exp(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name == "exp" and expr.type == FLOAT32


def _is_power(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name == "exp2" and expr.type == FLOAT32


def _of_operands(expr: Expr, level: int) -> list[int]:
    """How the operands of an expression are used that is used at this level."""
    match expr:
        case Op(name="where"):
            return [EXACT, level, level]
        case Op(name=name) if name in _ARITHMETIC and expr.type == FLOAT32:
            return [level] * len(expr.args)
        case Cast(value=value) | Round(value=value) if value.type.category == expr.type.category == "float":
            return [level]
    return [EXACT] * len(operands(expr))
