"""In which loops an element gathers what a site adds to it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.loops.accesses import counted_from_end
from weft.loops.accumulate.closure import is_product
from weft.loops.accumulate.ranges import as_long, ascending, no_less_than_0, upwards
from weft.loops.accumulate.sites import Edit, Site, accumulate_into, conditions_of, in_full, sites_of
from weft.loops.accumulate.turned import turned
from weft.loops.affine import Affine, affine
from weft.loops.conditions import comparisons, constraints
from weft.loops.digits import Digits, Place, digits, places
from weft.loops.ir import ZERO, Expr, For, Function, Op, Ref, free_names, substitute
from weft.loops.polynomials import Polynomial, difference, no_less, polynomial
from weft.loops.simplify import add, fold, number
from weft.loops.types import INT64


@dataclass(frozen=True)
class _Placed:
    """An index axis that a loop variable decides: index = sign * stride * variable + rest; the index runs over a range. within:
    the range of the variable, where others in `rest` leave some of it out. reached: the elements, where the index runs over
    more. whole: how many iterations the variable has, of a digit, whose index runs over the whole axis. places: where the index
    tells several variables. asked: the range of the variable, where that is more than sums.
    """

    axis: int
    var: str
    sign: int
    rest: Affine
    bounds: tuple[Affine, Affine, int]
    within: tuple[Affine, Affine] | None = None
    reached: tuple[Affine, Affine] | None = None
    stride: int = 1
    whole: Expr | None = None
    places: tuple[Place, ...] = ()
    asked: tuple[Expr, Expr] | None = None


@dataclass(frozen=True)
class _Window:
    """index = stride * variable + place + rest, of a window that begins at each iteration of a loop: its places tell an index,
    and what reaches an element are few iterations of the loop. places: their range.
    """

    axis: int
    loop: int
    stride: int
    rest: Affine
    places: tuple[Affine, Affine]

    def around(self, element: Expr, loop: For) -> For:
        """The iterations of a loop whose windows have the element."""

        def last(form: Affine) -> Expr:
            past = fold(Op("sub", (element, form.expr()), INT64))
            return add(Op("floordiv", (past, number(self.stride, INT64)), INT64), number(1, INT64))

        first, past = (last(self.rest + end) for end in reversed(self.places))
        return replace(loop, start=Op("max", (loop.start, first), INT64), stop=Op("min", (loop.stop, past), INT64))


@dataclass(frozen=True)
class _Product:
    """name: what stands for a loop's variable, or for none, times a factor that is the same in all iterations."""

    name: str
    var: str | None
    factor: Expr

    def of(self, known: Mapping[str, Expr]) -> Expr:
        if self.var is None:
            return self.factor
        return Op("mul", (known.get(self.var, Ref(self.var, INT64)), self.factor), INT64)


@dataclass(frozen=True)
class Plan:
    """How a site becomes a nest: `prefix` loops stay, `placed` index axes get loops, `summed` loops carry a sum.

    certain: the branches on the path that the bounds of the new loops make certain to be taken. windows: of summed loops over
    windows, those that an element is in. digits: of loop variables, those that tell them; parts: those that are summed.
    products: what names in `rest` stand for that are products with loop variables. turned: summed loops with the iterations
    that reach an element, of which each has one at least.
    """

    site: Site
    prefix: int
    placed: tuple[_Placed, ...]
    summed: tuple[For, ...]
    certain: frozenset[int] = frozenset()
    windows: tuple[_Window, ...] = ()
    digits: tuple[Digits, ...] = ()
    parts: tuple[For, ...] = ()
    products: tuple[_Product, ...] = ()
    turned: frozenset[str] = frozenset()

    def variables(self, form: Affine) -> set[str]:
        """The names in a form, and in what its names stand for."""
        return {*form.names} | {x.var for x in self.products if x.name in form.names and x.var is not None}

    @property
    def in_place(self) -> bool:
        return not self.placed and not self.summed

    @property
    def depth(self) -> int:
        """Steps of the path that stay around the new nest."""
        loops = [k for k, s in enumerate(self.site.path) if isinstance(s.stmt, For)]
        return 0 if self.prefix == 0 else loops[self.prefix - 1] + 1

    def key(self) -> tuple[object, ...]:
        """Equal for sites that one nest can serve: the same loops around the same elements, in the same order."""
        around = tuple(id(s.stmt) for s in self.site.path[: self.depth])
        positions = {p.var: f"axis {p.axis}" for p in self.placed}
        elements = {p.axis: p.bounds for p in self.placed}
        index = tuple(elements.get(axis) or affine(i) for axis, i in enumerate(self.site.store.index))
        summed = tuple(with_names(ascending(f), positions) or _renamed(f, positions) for f in self.summed)
        return around, index, summed, self.windows, id(self.site.store) if self.digits else None


def with_names(bounds: tuple[Affine, Affine, int] | None, names: dict[str, str]) -> object:
    if bounds is None:
        return None
    forms = tuple(Affine.make({names.get(n, n): c for n, c in b.terms}, b.constant) for b in bounds[:2])
    return (*forms, bounds[2])


def _own_range(loop: For) -> tuple[Expr, Expr] | None:
    """Where the iterations of a loop begin and end, in ascending order; None where they lie apart."""
    loop = upwards(loop)
    return (loop.start, loop.stop) if loop.step == 1 else None


def _names(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset().union(*map(free_names, exprs))


def _renamed(loop: For, names: dict[str, str]) -> tuple[Expr, Expr]:
    known: dict[str, Expr] = {n: Ref(new, INT64) for n, new in names.items()}
    return substitute(loop.start, known), substitute(loop.stop, known)


def planned(function: Function, site: Site, most: int | None = None) -> Plan | None:
    """most: of the loops that may stay."""
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    subscripts, by_digits = _by_digits(function, site, fixed)
    counting = counting_loops(site, by_digits)
    loops, parts = {f.var: f for f in counting}, {f.var for d in by_digits for f in d.loops}
    told = _told_by_subscripts(function, site, subscripts, by_digits, counting, fixed)
    if told is None:
        return None
    found, windows = _with_windows(told.variables, loops, fixed)
    several, products = told.several, told.products
    prefix = 0
    if not is_product(function, site):
        in_place = (loop.var in found and found[loop.var][1:] == (1, Affine((), 0)) for loop in site.loops[:most])
        prefix = sum(itertools.takewhile(bool, in_place))
    if several.keys() & found.keys():
        return None
    known = fixed | {f.var for f in site.loops[:prefix]}
    branches, decided = conditions_of(function, site), dict[int, set[int]]()
    placed: list[_Placed] = []
    turns, reached = dict[str, For](), set[str]()
    for loop in counting[prefix:]:
        if loop.var not in found:
            continue
        axis, factor, rest = found[loop.var]
        sign, stride = (1 if factor > 0 else -1), abs(factor)
        if loop.var in parts:
            length = affine(function.array(site.store.array).shape[axis])
            if length is None:
                return None
            all_of_it = (sign, rest, affine(loop.stop)) == (1, Affine((), 0), length)
            asked = None if all_of_it else loop.stop
            placed.append(_Placed(axis, loop.var, sign, rest, (Affine((), 0), length, 1), whole=asked))
            continue
        bounds = ascending(loop)
        if sign == stride == 1 and rest == Affine((), 0):
            others = [f for f in counting[prefix:] if f.var not in {*found, *several, *parts, *turns}]
            if (around := turned(loop, others, known)) is not None:
                bounds, other, surely = around
                turns[other.var] = other
                reached |= {other.var} if surely else set()
        if bounds is None and stride == 1 and rest.names & loops.keys():
            own_range, extent = _own_range(loop), affine(function.array(site.store.array).shape[axis])
            left = known | {f.var for f in counting[prefix:] if f.var not in {*found, *several, *parts}}
            if own_range is None or extent is None or not _names(own_range) <= left:
                return None
            placed.append(_Placed(axis, loop.var, sign, rest, (Affine((), 0), extent, 1), asked=own_range))
            continue
        if bounds is None or not (bounds[0].names | bounds[1].names) <= known:
            return None
        start, stop, step = bounds
        if step == 1:
            start, stop = _tightened(branches, loop.var, Affine.make({loop.var: 1}, 0), (start, stop), known, decided)
        within = (start, stop) if stride > 1 or rest.names - fixed else None
        moved = sign < 0 or rest != Affine((), 0)
        span = _span(rest, loops, fixed) if moved and stride == 1 else None
        # elements ask what iterations reach them
        if stride > 1 or (moved and span is None) or any(place == loop.var for place, _ in windows.values()):
            extent = affine(function.array(site.store.array).shape[axis])
            if step != 1 or extent is None:
                return None
            start, stop = Affine((), 0), extent
        elif span is not None:
            if step != 1:
                return None
            one, (low, high) = Affine((), 1), span
            start, stop = (start + low, stop + high) if sign > 0 else (low - stop + one, high - start + one)
            index = Affine.make({loop.var: sign}, 0) + rest
            start, stop = _tightened(branches, loop.var, index, (start, stop), known, decided)
        placed.append(_Placed(axis, loop.var, sign, rest, (start, stop, step), within, stride=stride))
    if {(products[n].var or "") if n in products else n for p in placed for n in p.rest.names - fixed} & found.keys():
        return None
    placed += dict.fromkeys(several.values())
    placed.sort(key=lambda p: p.axis)
    known |= {p.var for p in placed if p.sign > 0 and p.rest == Affine((), 0) and not p.places and p.var not in parts}
    summed: list[For] = []
    for loop in counting[prefix:]:
        if loop.var in found or loop.var in several or loop.var in parts:
            continue
        loop = turns.get(loop.var, loop)
        names = free_names(loop.start) | free_names(loop.stop)
        if (ascending(loop) is None and loop.var not in turns) or not names <= known:
            return None
        known.add(loop.var)
        summed.append(loop)
    said = {k: comparisons(branches[k], True) for k in decided}
    certain = frozenset(k for k, told in said.items() if told.exact and len(decided[k]) == len(told.all))
    certain |= asking_inside(function, site, [p.axis for p in placed if p.bounds[:2] == _whole(function, site, p.axis)])
    found_windows = tuple(replace(windows[f.var][1], loop=k) for k, f in enumerate(summed) if f.var in windows)
    digit_loops = tuple(f for f in counting if f.var in parts and f.var not in found and f.var not in several)
    used = tuple(x for x in products.values() if any(x.name in p.rest.names for p in placed))
    always = frozenset(reached)
    return Plan(site, prefix, tuple(placed), tuple(summed), certain, found_windows, by_digits, digit_loops, used, always)


# Which axis of an array a variable tells the place along, by what it is multiplied with, and what is added to that.
_Place = tuple[int, int, Affine]


@dataclass(frozen=True)
class _Told:
    """What subscripts tell of loops: each variable by one axis, several by an axis together, products of names in them."""

    variables: dict[str, _Place]
    several: dict[str, _Placed]
    products: dict[str, _Product]


def _told_by_subscripts(
    function: Function,
    site: Site,
    subscripts: Sequence[Expr],
    by_digits: tuple[Digits, ...],
    counting: list[For],
    fixed: set[str],
) -> _Told | None:
    """None where a subscript is of no such form, or a variable is in more than one."""
    loops = {f.var: f for f in counting}
    found: dict[str, _Place] = {}
    several: dict[str, _Placed] = {}
    products: dict[str, _Product] = {}
    for axis, i in enumerate(subscripts):
        if by_digits and (several_told := _places(function, site, axis, i, counting, fixed)) is not None:
            own_names = {p.var for p in several_told.places}
            if own_names & (found.keys() | several.keys()):
                return None
            several |= dict.fromkeys(own_names, several_told)
            continue
        form = _of_products(i, loops, fixed, products)
        if form is None:
            return None
        own = _telling(function, site, axis, form, counting)
        rest = Affine.make({n: c for n, c in form.terms if n not in own}, form.constant)
        if not rest.names <= fixed | loops.keys() | products.keys() or (form.names & loops.keys() and not own):
            return None
        if not rest.names.isdisjoint(products):
            along = function.array(site.store.array).shape[axis]
            if not own or by_digits or not as_long(function, loops[own[0]], along):
                return None
        for var in own:
            factor = form.coefficient(var)
            if var in found:
                return None
            found[var] = (axis, factor, rest)
    strided = any(abs(factor) != 1 for _, factor, _ in found.values())
    if strided and by_digits:
        return None
    if strided and not any(_overlapping(loops, fixed, abs(factor), rest) for _, factor, rest in found.values()):
        return None
    return _Told(found, several, products)


def _with_windows(
    found: dict[str, _Place], loops: Mapping[str, For], fixed: set[str]
) -> tuple[dict[str, _Place], dict[str, tuple[str, _Window]]]:
    """The places, where windows a stride apart have those of their first ones; and the windows, by the variables over them."""
    found = dict(found)
    windows: dict[str, tuple[str, _Window]] = {}
    for var, (axis, factor, rest) in [*found.items()]:
        inside = _window(loops, fixed, axis, var, factor, rest) if factor > 1 else None
        if inside is not None and inside[0] not in found:
            place, window = windows[var] = inside
            del found[var]
            found[place] = axis, 1, Affine.make({var: factor}, 0) + window.rest
    return found, windows


def _whole(function: Function, site: Site, axis: int) -> tuple[Affine, Affine | None]:
    return Affine((), 0), affine(function.array(site.store.array).shape[axis])


def _of_products(e: Expr, loops: Mapping[str, For], fixed: set[str], known: dict[str, _Product]) -> Affine | None:
    """An index as an affine form of names, of which some stand for products of a loop's variable and what is fixed."""
    form = affine(e)
    found = polynomial(e) if form is None else None
    if found is None:
        return form
    terms: Counter[str] = Counter()
    for monomial, factor in found.terms:
        own = next((n for n in monomial if n in loops), None)
        left = list(monomial)
        if own is not None:
            left.remove(own)
        if len(monomial) > 1 and not {*left} <= fixed:
            return None
        name = "*".join(monomial)
        if len(monomial) > 1:
            known[name] = _Product(name, own, Polynomial.make([(tuple(left), 1)]).expr())
        terms[name] += factor
    constant = terms.pop("", 0)
    return Affine.make(terms, constant)


def asking_inside(function: Function, site: Site, axes: Collection[int]) -> frozenset[int]:
    """The branches of a site that ask whether its element is inside of these axes of the array, and nothing else."""
    shape = function.array(site.store.array).shape
    inside = set[Polynomial]()
    for axis in axes:
        at = in_full(site, site.store.index[axis])
        inside |= {difference(at, ZERO), difference(shape[axis], Op("add", (at, number(1, INT64)), INT64))}

    said = _said(function, site)
    return frozenset(k for k, forms in said.items() if all(form is not None and form in inside for form in forms))


def _said(function: Function, site: Site) -> dict[int, list[Polynomial | None]]:
    """What is not below 0 where the path of a site goes through a branch, of each part of its condition, if that says so."""

    def parts(condition: Expr) -> Iterator[Expr]:
        if isinstance(condition, Op) and condition.name == "and":
            for part in condition.args:
                yield from parts(part)
        else:
            yield condition

    def form(condition: Expr) -> Polynomial | None:
        pair = no_less(condition)
        return None if pair is None else difference(*pair)

    return {k: [*map(form, parts(in_full(site, c)))] for k, c in conditions_of(function, site).items()}


def from_the_start(function: Function, targets: tuple[str, ...]) -> Function:
    """The function, in whose accumulations no subscript counts from the end where a condition on the way says that it is not
    below 0.
    """
    edit = Edit()
    for site in (s for target in targets for s in sites_of(function.body, target)):
        bare = [counted_from_end(i) for i in site.store.index]
        if any(counts for _, counts in bare):
            known = [form for forms in _said(function, site).values() for form in forms]
            pairs = zip(site.store.index, bare, strict=True)
            index = tuple(a if counts and difference(in_full(site, a), ZERO) in known else i for i, (a, counts) in pairs)
            edit.instead[id(site.store)] = [accumulate_into(site.store.array, index, site.value, site.store)]
    return replace(function, body=edit.apply(function.body))


def _by_digits(function: Function, site: Site, fixed: set[str]) -> tuple[tuple[Expr, ...], tuple[Digits, ...]]:
    """The index of a site, and the digits of loop variables that it is of, if it is of any. Sums of what is not below 0 do not
    count from the end.
    """
    index = tuple(in_full(site, i) for i in site.store.index)
    bare = tuple(counted_from_end(i)[0] for i in index)
    found = digits(site.loops, bare, fixed)
    if found is not None:
        above = {e for d in found[0] for e in d.divisors}
        up = map(upwards, counting_loops(site, found[0]))
        above |= {Ref(f.var, INT64) for f in up if f.start == ZERO and f.step == 1}
        if all(i == j or no_less_than_0(function, k, above) for i, j, k in zip(index, bare, found[1], strict=True)):
            return found[1], found[0]
    return site.store.index, ()


def counting_loops(site: Site, told: tuple[Digits, ...]) -> list[For]:
    """The loops of a site, with those over digits in place of those of the variables that they tell."""
    by = {d.var: d.loops for d in told}
    return [one for f in site.loops for one in by.get(f.var, (f,))]


def _places(
    function: Function, site: Site, axis: int, index: Expr, loops: list[For], fixed: set[str]
) -> _Placed | None:
    """An index whose places are variables that count from 0, as `i * width + j`; None where it is another."""
    own = [upwards(f) for f in loops if f.var in free_names(index)]
    counts = all(f.start == ZERO and f.step == 1 and free_names(f.stop) <= fixed for f in own)
    found = places(index, own) if counts and len(own) > 1 else None
    extent = affine(function.array(site.store.array).shape[axis])
    if found is None or extent is None or (rest := found[1].affine) is None or not rest.names <= fixed:
        return None
    last = found[0][-1].var
    stop = next(f.stop for f in own if f.var == last)
    return _Placed(axis, last, 1, rest, (Affine((), 0), extent, 1), whole=stop, places=found[0])


def _overlapping(loops: Mapping[str, For], fixed: set[str], stride: int, rest: Affine) -> bool:
    """Whether windows that begin a stride apart, `rest` telling places in them, may have elements in common: others are reached
    once as it is, and the loops that reach them run in parallel.
    """
    span = _span(rest, loops, fixed) if rest.names - fixed else None
    if span is None:
        return False
    reach = span[1] - span[0]
    return bool(reach.terms) or reach.constant >= stride


def _window(
    loops: Mapping[str, For], fixed: set[str], axis: int, var: str, stride: int, rest: Affine
) -> tuple[str, _Window] | None:
    """The variable that tells places in windows that a loop begins a stride apart, and the windows; None where none does."""
    inside = rest.names - fixed
    bounds = ascending(loops[next(iter(inside))]) if len(inside) == 1 and inside <= loops.keys() else None
    around = ascending(loops[var])
    if bounds is None or around is None or bounds[2] != 1 or around[2] != 1:
        return None
    (place,) = inside
    if rest.coefficient(place) != 1 or not (bounds[0].names | bounds[1].names) <= fixed:
        return None
    return place, _Window(axis, 0, stride, rest - Affine.make({place: 1}, 0), bounds[:2])


def _telling(function: Function, site: Site, axis: int, form: Affine, loops: list[For]) -> list[str]:
    """The loop whose variable tells an index, if any does: of several, the outermost of those that are as long as the array,
    else, of those that sizes bound if any is, the one that moves it farthest, the innermost of such; the others are summed. One
    whose range moves with another one, as a window that ends at the ends of an array does, is told by that.
    """
    own = [f for f in loops if f.var in form.names]
    moving = [f for f in own if ascending(f) is None and _names((f.start, f.stop)) & {o.var for o in own}]
    if len(moving) == 1:
        return [moving[0].var]
    if len(own) > 1:
        extent = affine(function.array(site.store.array).shape[axis])
        ends = {f.var: ascending(f) for f in own}
        long = [f for f in own if extent is not None and (e := ends[f.var]) is not None and e[1].names & extent.names]
        sized = [f for f in own if (e := ends[f.var]) is not None and e[1].names] or own
        own = long or sorted(sized[::-1], key=lambda f: -abs(form.coefficient(f.var)))
    return [f.var for f in own[:1]]


def _span(rest: Affine, loops: Mapping[str, For], fixed: set[str]) -> tuple[Affine, Affine] | None:
    """The least and the largest value of a form, whose loops have bounds of these names alone and run."""
    low = high = Affine.make({n: c for n, c in rest.terms if n in fixed}, rest.constant)
    for name, c in rest.terms:
        if name in fixed:
            continue
        bounds = ascending(loops[name]) if name in loops else None
        if bounds is None or bounds[2] != 1 or not (bounds[0].names | bounds[1].names) <= fixed:
            return None
        ends = bounds[0], bounds[1] + Affine((), -1)
        low, high = low + ends[c < 0] * c, high + ends[c > 0] * c
    return low, high


def _tightened(
    branches: Mapping[int, Expr], var: str, place: Affine, ends: tuple[Affine, Affine], known: Iterable[str],
    decided: dict[int, set[int]],
) -> tuple[Affine, Affine]:
    """The range of a place, a variable or an index that it decides, without what branches on the path leave out.

    Adds to `decided`, for each branch, which of its constraints hold in all that is left.
    """  # fmt: skip
    start, stop = ends
    for k, condition in branches.items():
        for n, (form, sign) in enumerate(constraints(condition, True)):
            own = form.coefficient(var) * place.coefficient(var)
            rest = form - place * own
            if abs(own) != 1 or not rest.names <= {*known} or sign in ("=", "!="):
                continue
            if sign in ("<", "<="):
                own, rest = -own, rest * -1
            margin = Affine((), 1 if sign in ("<", ">") else 0)
            # own * place + rest >= margin
            bound = margin - rest if own > 0 else rest - margin + Affine((), 1)
            moved = bound - (start if own > 0 else stop)
            if moved.terms:
                continue
            if own > 0 and moved.constant > 0:
                start = bound
            elif own < 0 and moved.constant < 0:
                stop = bound
            decided.setdefault(k, set()).add(n)
    return start, stop
