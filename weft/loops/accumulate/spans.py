"""Elements that a range of iterations reaches, whose ends are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accumulate.closure import Closure, Settled, repeated
from weft.loops.accumulate.ranges import as_long, in_range, summing, upwards
from weft.loops.accumulate.sites import Edit, Site, accumulate_into, all_of, between, often
from weft.loops.affine import affine
from weft.loops.extents import Extent, expanded, expanded_index, extents
from weft.loops.ir import (
    ZERO,
    Array,
    Cast,
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
    Round,
    Stmt,
    Store,
    free_arrays,
    free_names,
    name_of,
    operands,
    substitute,
)
from weft.loops.names import Names
from weft.loops.preimages import course, first_reaching
from weft.loops.simplify import add, number
from weft.loops.types import BOOL, INT64


def by_spans(function: Function, target: str, names: Names) -> Function:
    """Let elements gather from sites of which each subscript is a function of a variable of its own (`i * h // height`,
    `int(u)`, `abs(i - pad)`), or of that and of places in a window (`max(i + a - 1, 0)`). Of sums, bounds and quotients the
    element tells its iterations. Of others the subscripts, and of each element the least and the largest iteration, are found
    first, once; those between are asked where a subscript may turn (`abs`).
    """
    settled, tops = Settled(function), dict[int, list[_Spanned]]()
    for site in often(function, target):
        one = _spanned(function, site, settled)
        if one is not None:
            tops.setdefault(id(site.path[0].stmt), []).append(one)
    edit, arrays = Edit(), list(function.arrays)
    for top, sites in tops.items():
        spans: dict[tuple[Expr, ...], _Span] = {}
        nests: list[Stmt] = []
        for one in sites:
            for axis, (loop, subscript, around) in one.functions.items():
                extent = function.array(target).shape[axis]
                if _told(loop, subscript, ZERO) is not None:
                    continue
                own = (*around, loop)
                bare = substitute(subscript, {f.var: Ref(str(k), INT64) for k, f in enumerate(own)})
                key = bare, extent, *(e for f in own for e in (f.start, f.stop))
                if key not in spans:
                    spans[key] = _Span.made(function, loop, around, extent, names)
                    nests += spans[key].found(loop, around, subscript, names)
                    arrays += spans[key].arrays
                one.spans[axis] = spans[key]
        for one in sites:
            nests.append(_gathering(function, one, names, edit, arrays))
        edit.after.setdefault(top, []).extend(nests)
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays))


@dataclass(frozen=True)
class _Span:
    """What a subscript is in each iteration of a loop, and the least and the largest iteration of each element, of one without
    any none between them: for each place in a window, if it hangs on any.
    """

    at: Array
    first: Array
    last: Array
    reach: tuple[Extent, ...]

    @staticmethod
    def made(function: Function, loop: For, places: tuple[For, ...], extent: Expr, names: Names) -> _Span:
        reach = extents(function, (*places, loop))
        assert reach is not None, "the bounds of the loops are of sizes"
        at = expanded(names.fresh(f"{loop.var}_at"), INT64, reach)
        first, last = (
            Array(names.fresh(f"{loop.var}_{name}"), INT64, (*at.shape[:-1], extent), "local", Const(fill, INT64))
            for name, fill in (("first", 1 << 62), ("last", -1))
        )
        return _Span(at, first, last, reach)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.at, self.first, self.last

    def of(self, var: Expr, places: Iterable[Expr]) -> Load:
        """The subscript of an iteration."""
        return Load(self.at.name, expanded_index(self.reach, (*places, var)), INT64)

    def end(self, which: Array, element: Expr, places: Iterable[Expr]) -> Load:
        """The least or the largest iteration of an element."""
        return Load(which.name, (*expanded_index(self.reach[:-1], tuple(places)), element), INT64)

    def found(self, loop: For, places: tuple[For, ...], subscript: Expr, names: Names) -> tuple[Stmt, ...]:
        (one, *own), (other, *others) = ([Ref(names.fresh(f.var), INT64) for f in (loop, *places)] for _ in range(2))
        known: dict[str, Expr] = {f.var: ref for f, ref in zip((loop, *places), (one, *own), strict=True)}
        told = Store(self.at.name, self.of(one, own).index, substitute(subscript, known), loop.location)
        at = self.of(other, others)
        ends = tuple(
            Store(a.name, end.index, Op(how, (end, other), INT64), loop.location)
            for a, how in ((self.first, "min"), (self.last, "max"))
            for end in (self.end(a, at, others),)
        )
        # where other loops have no iteration, it may be none of the array's
        inside = If(between(at, ZERO, self.first.shape[-1]), ends, (), (), loop.location)
        made: tuple[Stmt, ...] = (
            replace(loop, var=one.name, carries=(), body=(told,)),
            replace(loop, var=other.name, carries=(), body=(inside,), apart=not places),
        )
        for k, f in reversed([*enumerate(places)]):
            made = tuple(
                replace(f, var=refs[k].name, carries=(), body=(s,), apart=k == 0 and refs is others)
                for s, refs in zip(made, (own, others), strict=True)
            )
        return made


@dataclass(frozen=True)
class _Spanned:
    """A site whose axes are functions of a loop's variable, and of places in windows, or variables by themselves; the spans of
    the functions.
    """

    site: Site
    closure: Closure
    functions: Mapping[int, tuple[For, Expr, tuple[For, ...]]]
    plain: Mapping[int, For]
    spans: dict[int, _Span] = field(default_factory=dict)


def _spanned(function: Function, site: Site, settled: Settled) -> _Spanned | None:
    lets = {s.name: s.value for step in site.path for s in step.before if isinstance(s, Let)}
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    loops = {f.var: upwards(f) for f in site.loops}
    functions: dict[int, tuple[For, Expr, tuple[For, ...]]] = {}
    plain: dict[int, For] = {}
    told = set[str]()
    if any(isinstance(step.stmt, If) for step in site.path):
        return None  # a subscript may be evaluated where the condition holds alone
    for axis, i in enumerate(site.store.index):
        while named := free_names(i) & lets.keys():
            i = substitute(i, {n: lets[n] for n in named})
        own = free_names(i) & loops.keys()
        if not own or not free_names(i) <= fixed | own or own & told or free_arrays(i):
            return None
        told |= own
        extent = function.array(site.store.array).shape[axis]
        long = [f for v, f in loops.items() if v in own and (len(own) == 1 or as_long(function, f, extent))]
        if len(long) != 1:
            return None
        (loop,) = long
        if i == Ref(loop.var, INT64):
            plain[axis] = loop
        elif _tame(i, loop.var):
            functions[axis] = loop, i, tuple(f for v, f in loops.items() if v in own and f is not loop)
        else:
            return None
    closure = Closure(site, 0, settled)
    if not functions:
        return None
    if told == loops.keys() and all(affine(i) is not None for _, i, _ in functions.values()):
        return None  # each iteration adds to an element of its own
    if any(f.step != 1 or not free_names(f.start) | free_names(f.stop) <= fixed for f in loops.values()):
        return None
    if extents(function, site.loops) is None:
        return None
    around = [f for f in loops.values() if f.var in told]
    sure = all(in_range(Ref(f.var, INT64), function.array(site.store.array).shape[a], around) for a, f in plain.items())
    return _Spanned(site, closure, functions, plain) if sure else None


def _tame(e: Expr, var: str) -> bool:
    """Whether neighbouring iterations have neighbouring values: e goes up or down with the variable, or turns."""
    if var not in free_names(e):
        return True
    match e:
        case Ref():
            return True
        case Cast(value=value) | Round(value=value):
            return _tame(value, var)
        case Op(name="where", args=(condition, then, orelse)):
            return all(_tame(x, var) for x in (*operands(condition), then, orelse))
        case Op(name="add" | "sub" | "mul" | "div" | "floordiv" | "min" | "max" as name, args=(a, b)):
            apart = var not in free_names(b) or (var not in free_names(a) and name not in ("div", "floordiv"))
            return apart and _tame(a, var) and _tame(b, var)
        case Op(name="neg" | "abs" | "floor" | "ceil" | "trunc" | "round", args=(a,)):
            return _tame(a, var)
    return False


def _told(loop: For, subscript: Expr, element: Expr) -> tuple[Expr, Expr] | None:
    """The first iteration that gives a subscript an element, and the one past the last, as the element tells them."""
    past = add(element, Const(1, INT64))
    first, last = (first_reaching(subscript, loop.var, e, loop.start, loop.stop) for e in (element, past))
    return None if first is None or last is None else (first, last)


def _gathering(function: Function, one: _Spanned, names: Names, edit: Edit, arrays: list[Array]) -> Stmt:
    """A nest over elements, each of which sums what the iterations in its spans add to it."""
    site, shape = one.site, function.array(one.site.store.array).shape
    index: list[Expr] = []
    over: list[For] = []
    here: list[Expr] = []
    windows = [f for _, _, places in one.functions.values() for f in places]
    known: dict[str, Expr] = {f.var: Ref(names.fresh(f.var), INT64) for f in windows}
    within = [replace(f, var=name_of(known[f.var]), carries=(), body=()) for f in windows]
    for axis, extent in enumerate(shape):
        loop, *function_of = one.functions.get(axis) or (one.plain[axis],)
        places = [known[f.var] for f in one.functions[axis][2]] if function_of else []
        element = Ref(names.fresh(loop.var), INT64)
        index.append(element)
        over.append(For(element.name, ZERO, extent, 1, (), (), location=loop.location))
        if not function_of:
            known[loop.var] = element
            continue
        var = Ref(names.fresh(loop.var), INT64)
        known[loop.var] = var
        subscript = substitute(one.functions[axis][1], {f: e for f, e in known.items() if f != loop.var})
        ends = _told(loop, subscript, element)
        if ends is None:
            span = one.spans[axis]
            ends = span.end(span.first, element, places), add(span.end(span.last, element, places), Const(1, INT64))
            if course(subscript, loop.var) is None:
                here.append(Op("eq", (span.of(var, places), element), BOOL))
        # iterations of the loop, as its bounds tell: no subscript of what they read is looked at
        first, past = Op("max", (ends[0], loop.start), INT64), Op("min", (ends[1], loop.stop), INT64)
        within.append(For(var.name, first, past, 1, (), (), location=loop.location))
    for loop in map(upwards, site.loops):
        if loop.var not in known:
            var = Ref(names.fresh(loop.var), INT64)
            known[loop.var] = var
            within.append(replace(loop, var=var.name, carries=(), body=()))
    again = repeated(function, one.closure, False, known, names, edit, arrays, {}, None, ())
    assert again is not None, "the bounds of the loops are of sizes"
    made, value = again
    merge = Merge(names.fresh(f"{site.store.array}_part"), value, number(0, value.type))
    statements: list[Stmt] = list(made)
    if here:
        statements, value = [If(all_of(here), tuple(made), (), (merge,), site.store.location)], Ref(merge.name, merge.type)
    for loop in reversed(within):
        statements, value = summing(loop, statements, value, site.store.array, names)
    body: tuple[Stmt, ...] = (*statements, accumulate_into(site.store.array, tuple(index), value, site.store))
    for loop in reversed(over):
        body = (replace(loop, body=body),)
    return body[0]
