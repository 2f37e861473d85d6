"""Accumulations into places of windows that begin a stride apart, `array[stride * i + k] += v`, by the phases of these places.

An element `stride * q + r` is the r-th of its phase, and its iterations are those of i = q - j and k = stride * j + r: with an
array that has an axis for q and one for r, windows are a stride of 1 apart, and what adds to an element is told by sums of
variables. Of a convolution that skips elements that is the gradient as a product of matrices, of which each phase has columns
of its own and nothing is multiplied in vain. The array's elements are read from there at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

from weft.loops.accumulate import (
    Closure,
    Edit,
    Settled,
    Site,
    Steady,
    accumulate_into,
    all_of,
    as_long,
    ascending,
    ascending_loop,
    asking_inside,
    between,
    in_full,
    in_range,
    often,
    repeated,
)
from weft.loops.affine import Affine
from weft.loops.ir import (
    ONE,
    ZERO,
    Array,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Scalar,
    Stmt,
    free_names,
    name_of,
    substitute,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.polynomials import Polynomial, polynomial
from weft.loops.simplify import fold, number
from weft.loops.types import BOOL, INT64


def in_phases(function: Function, targets: tuple[str, ...], names: Names) -> tuple[Function, tuple[str, ...]]:
    """The function, and the arrays of phases that are accumulated into instead. targets: arrays filled with 0 that the function
    touches by `array[index] += value` alone.
    """
    steady = Steady(function, names)
    function = steady.named(function)
    made: list[str] = []
    for target in targets:
        edit, settled = Edit(), Settled(function)
        arrays, scalars = list(function.arrays), list(function.scalars)
        for site in often(function, target):
            found = _windows(function, site)
            phases = None if found is None else _phases(function, site, found, settled, names, edit, arrays)
            if phases is not None:
                statements, array, strides = phases
                made.append(array)
                scalars += (replace(s, value=s.value and steady.in_full(s.value)) for s in strides)
                edit.after.setdefault(id(site.path[0].stmt), []).extend(statements)
        body = edit.apply(function.body)
        function = replace(function, body=body, arrays=tuple(arrays), scalars=tuple(scalars))
    return steady.written_out(function), tuple(made)


@dataclass(frozen=True)
class _Windows:
    """index = stride * begins + place + rest, along an axis, where places count from 0."""

    axis: int
    begins: For
    place: For
    stride: Expr
    rest: Expr


def _windows(function: Function, site: Site) -> tuple[_Windows, ...] | None:
    """The axes of a site along which its loops are windows, where elements cannot be told as they are, or sums over other loops
    are to be products; None where there are none, or where its loops have other bounds than sizes.
    """
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    loops = {f.var: f for f in site.loops}
    if any(ascending(f) is None or not free_names(f.start) | free_names(f.stop) <= fixed for f in site.loops):
        return None
    index = tuple(in_full(site, i) for i in site.store.index)
    if any(not free_names(i) <= fixed | loops.keys() for i in index):
        return None
    found: list[_Windows] = []
    for axis, i in enumerate(index):
        form = polynomial(i)
        own = free_names(i) & loops.keys()
        if form is None:
            return None
        if len(own) == 2 and not any(own & free_names(other) for k, other in enumerate(index) if k != axis):
            extent = function.array(site.store.array).shape[axis]
            found += (
                w
                for w in _along(axis, form, sorted(own), loops)
                if as_long(function, w.begins, extent) or not as_long(function, w.place, extent)
            )
    summed = loops.keys() - {n for i in index for n in free_names(i)}
    told = all(isinstance(w.stride, Const) or polynomial(w.place.stop) == polynomial(w.stride) for w in found)
    return tuple(found) if found and (summed or not told) else None


def _along(axis: int, form: Polynomial, own: list[str], loops: dict[str, For]) -> Iterator[_Windows]:
    for var, place in (own, own[::-1]):
        stride, rest = form.divided(var)
        one, rest = rest.divided(place)
        bounds = ascending(loops[place])
        if one != Polynomial.make([((), 1)]) or {*own} & {n for p in (stride, rest) for m, _ in p.terms for n in m}:
            continue
        apart = stride.terms and (stride.terms[0][0] != () or stride.terms[0][1] > 1)
        if apart and bounds is not None and bounds[0] == Affine((), 0) and bounds[2] == 1:
            yield _Windows(axis, loops[var], ascending_loop(loops[place], {}), stride.expr(), rest.expr())
            return


def _phases(
    function: Function,
    site: Site,
    windows: tuple[_Windows, ...],
    settled: Settled,
    names: Names,
    edit: Edit,
    arrays: list[Array],
) -> tuple[list[Stmt], str, list[Scalar]] | None:
    """A nest that accumulates into phases, and one that reads them; the array of phases, and strides that are above 0."""
    closure = Closure(site, 0, settled, _certain(function, site, windows))
    if closure.whole:
        return None
    target = function.array(site.store.array)
    known: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in site.loops}
    index = [[substitute(in_full(site, i), known)] for i in site.store.index]
    shape = [[extent] for extent in target.shape]
    elements: list[Expr] = [Ref(names.fresh(f"{target.name}_at"), INT64) for _ in shape]
    read = [[e] for e in elements]
    numbers = _Numbers(names)
    told = tuple(dict.fromkeys(w.stride for w in windows if not isinstance(w.stride, Const)))
    asked: list[Expr] = [Op("lt", (ZERO, stride), BOOL) for stride in told]
    for w in windows:
        stride = w.stride if isinstance(w.stride, Const) else numbers.name("stride", Op("max", (w.stride, ONE), INT64))
        first, past = (b.expr() for b in (ascending(w.begins) or ())[:2])
        begun = fold(Op("sub", (known[w.begins.var], first), INT64))
        place = known[w.place.var]
        index[w.axis] = [Op("add", (begun, _by("floordiv", place, stride)), INT64), _by("mod", place, stride)]
        most = Op("add", (Op("sub", (past, first), INT64), fold(_by("floordiv", w.place.stop, stride))), INT64)
        count = numbers.name("count", Op("max", (fold(most), ZERO), INT64))
        shape[w.axis] = [count, stride]
        before = Op("add", (w.rest, Op("mul", (w.stride, first), INT64)), INT64)
        at = fold(Op("sub", (elements[w.axis], before), INT64))
        read[w.axis] = [_by("floordiv", at, stride), _by("mod", at, stride)]
        asked += [between(read[w.axis][0], ZERO, count)]
    phases = replace(target, name=names.fresh(f"{target.name}_phases"), shape=tuple(e for s in shape for e in s), role="local")
    saved: dict[tuple[Expr, tuple[Expr, ...]], str] = {}

    def nest(own: Closure, known: dict[str, Expr], array: str, index: tuple[Expr, ...]) -> tuple[Stmt, ...] | None:
        """What the site adds, in loops of its own, added to an array."""

        def added(value: Expr) -> Stmt:
            return accumulate_into(array, index, value, site.store)

        again = repeated(function, own, False, known, names, edit, arrays, saved, added, ())
        if again is None:
            return None
        outside = [Op("lt", (known[var], extent), BOOL) for var, extent in _ends(function, own, site, windows)]
        body = (If(all_of(outside), tuple(again[0]), (), ()),) if outside else tuple(again[0])
        for f in reversed(site.loops):
            body = (replace(ascending_loop(f, {}), var=name_of(known[f.var]), body=body),)
        return body

    made = nest(closure, known, phases.name, tuple(e for i in index for e in i))
    there = Load(phases.name, tuple(e for r in read for e in r), site.value.type)
    statements = [*(made or ()), *_read(target, elements, there, asked, names)]
    if told:
        known = {f.var: Ref(names.fresh(f.var), INT64) for f in site.loops}
        places = tuple(substitute(in_full(site, i), known) for i in site.store.index)
        late = nest(Closure(site, 0, settled), known, target.name, places)
        if late is None:
            return None
        none = reduce(lambda a, b: Op("or", (a, b), BOOL), (Op("lt", (e, ONE), BOOL) for e in told))
        statements.append(If(none, late, (), (), site.store.location, rare=True))
    if made is None:
        return None
    arrays.append(phases)
    return statements, phases.name, numbers.made


class _Numbers:
    """Names for what is computed of sizes before all loops."""

    def __init__(self, names: Names) -> None:
        self.names, self.made = names, list[Scalar]()

    def name(self, called: str, value: Expr) -> Expr:
        if isinstance(value, Const):
            return value
        same = next((s for s in self.made if s.value == value), None)
        if same is None:
            same = Scalar(self.names.fresh(called), INT64, value)
            self.made.append(same)
        return Ref(same.name, INT64)


def _ends(
    function: Function, closure: Closure, site: Site, windows: tuple[_Windows, ...]
) -> tuple[tuple[str, Expr], ...]:
    """The places of windows that choose elements of arrays which end elsewhere, and where: the program loads none beyond."""
    lets = [s for block in closure.blocks for s in block]
    loads = [e for top in (site.value, *(s.value for s in lets)) for e in walk_expr(top) if isinstance(e, Load)]
    places = {w.place.var for w in windows}
    found: dict[tuple[str, Expr], None] = {}
    for load in loads:
        for i, extent in zip(load.index, function.array(load.array).shape, strict=True):
            at = in_full(site, i)
            if isinstance(at, Ref) and at.name in places and not in_range(at, extent, site.loops):
                found[at.name, extent] = None
    return tuple(found)


def _read(target: Array, at: list[Expr], value: Load, asked: list[Expr], names: Names) -> tuple[Stmt, ...]:
    """A nest that adds to each element what phases have of it, where they have any."""
    own, part = names.fresh(f"{target.name}_part"), names.fresh(f"{target.name}_part")
    merge = Merge(part, Ref(own, value.type), number(0, value.type))
    body: tuple[Stmt, ...] = (
        If(all_of(asked), (Let(own, value),), (), (merge,)),
        accumulate_into(target.name, tuple(at), Ref(part, value.type)),
    )
    for e, extent in zip(reversed(at), reversed(target.shape), strict=True):
        body = (For(name_of(e), ZERO, extent, 1, (), body),)
    return body


def _certain(function: Function, site: Site, windows: tuple[_Windows, ...]) -> frozenset[int]:
    """The branches of a site that ask whether its element is one of the array: what phases have beyond, nobody reads. None of
    them, where what is loaded below has other subscripts than variables.
    """
    found = asking_inside(function, site, [w.axis for w in windows])
    below = [s for step in site.path[min(found, default=0) :] for s in step.before if isinstance(s, Let)]
    loads = [e for top in (site.value, *(s.value for s in below)) for e in walk_expr(top) if isinstance(e, Load)]
    index = (i for e in loads for i in e.index)
    named = {Ref(f.var, INT64) for f in site.loops}
    return found if all(in_full(site, i) in named or not free_names(i) for i in index) else frozenset()


def _by(name: str, e: Expr, stride: Expr) -> Expr:
    return Op(name, (e, stride), INT64)
