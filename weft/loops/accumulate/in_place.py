"""Sites in place: different ones for different elements, one for those that add to the same, and the first one stores."""

from __future__ import annotations

import itertools
from dataclasses import replace

from weft.loops.accumulate.closure import Closure, Settled
from weft.loops.accumulate.plans import with_names
from weft.loops.accumulate.ranges import ascending, reaches_all
from weft.loops.accumulate.sites import Edit, Site, accumulate_into, all_of, names_alone, sites_of
from weft.loops.affine import Affine, affine
from weft.loops.ir import Expr, For, Function, If, Let, Merge, Op, Ref, Stmt, free_names, substitute
from weft.loops.memory import Memory
from weft.loops.names import Names
from weft.loops.simplify import add, base_name, fold, number
from weft.loops.types import BOOL, INT64


def spread_out(function: Function, target: str, names: Names) -> Function:
    """Let loops over all elements of a row add what is added to one of them before, which data choose, perhaps under a
    condition: each asks if it is that. The element is one of the array: the program has read it.
    """
    while True:
        sites = list(sites_of(function.body, target))
        pairs = ((a, b) for k, a in enumerate(sites) for b in sites[k + 1 :])
        found = next(((a, b, which) for a, b in pairs if (which := _one_of(function, a, b)) is not None), None)
        if found is None:
            return function
        a, b, which = found
        edit, type_ = Edit(), a.value.type
        told = [Let(names.fresh(f"{target}_there"), a.value, a.store.location)]
        told += [Let(names.fresh("there"), place, a.store.location) for place, _ in which]
        given: tuple[Stmt, ...] = tuple(told)
        top: Stmt = a.store
        for step in reversed(a.path[_in_common(a, b) :]):  # a branch that is not taken adds 0
            assert isinstance(step.stmt, If)
            inside, told = told, [replace(let, name=names.fresh(base_name(let.name))) for let in told]
            sides = [(Ref(x.name, x.value.type), number(0, x.value.type)) for x in inside]
            merges = [Merge(let.name, *(s if step.taken else s[::-1])) for let, s in zip(told, sides, strict=True)]
            body = (*step.before, *given, *step.body[step.at + 1 :])
            then, orelse = (body, step.stmt.orelse) if step.taken else (step.stmt.then, body)
            given = (replace(step.stmt, then=then, orelse=orelse, merges=(*step.stmt.merges, *merges)),)
            top = step.stmt
        value, *places = (Ref(let.name, let.value.type) for let in told)
        here = [Op("eq", (place, Ref(var, INT64)), BOOL) for place, (_, var) in zip(places, which, strict=True)]
        own = Op("where", (all_of(here), value, number(0, type_)), type_)
        edit.instead[id(top)] = [*given]
        edit.instead[id(b.store)] = [accumulate_into(target, b.store.index, add(b.value, own), b.store)]
        function = replace(function, body=edit.apply(function.body))


def _in_common(a: Site, b: Site) -> int:
    """How many steps the ways to two sites have in common."""
    pairs = zip(a.path, b.path, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda p: p[0].stmt is p[1].stmt and p[0].taken == p[1].taken, pairs))


def _one_of(function: Function, a: Site, b: Site) -> list[tuple[Expr, str]] | None:
    """The subscripts that data choose of the one element that `a` adds to, each with the variable of `b` that runs over all it
    may be; None where `b` does not follow, or does not add to all those elements.
    """
    depth = _in_common(a, b)
    if depth == 0 or len(b.path) <= depth or any(isinstance(s.stmt, For) for s in a.path[depth:]):
        return None
    inner = {s.stmt.var: s.stmt for s in b.path[depth:] if isinstance(s.stmt, For)}
    if len(inner) < len(b.path) - depth or a.path[depth - 1].at > b.path[depth - 1].at:
        return None
    which: list[tuple[Expr, str]] = []
    for i, j, extent in zip(a.store.index, b.store.index, function.array(a.store.array).shape, strict=True):
        loop = inner.pop(j.name, None) if isinstance(j, Ref) else None
        if loop is None:
            if fold(i) != fold(j) or free_names(j) & {f.var for f in b.loops[len(a.loops) :]}:
                return None
        elif ascending(loop) != (Affine((), 0), affine(extent), 1):
            return None
        else:
            which.append((i, loop.var))
    return None if inner or not which else which


def merged(function: Function, target: str, names: Names) -> Function:
    """Let the last of several sites over the same elements add what the others would."""
    refused: set[tuple[int, int]] = set()
    while True:
        sites, settled = list(sites_of(function.body, target)), Settled(function)
        pairs = (
            (a, b)
            for k, a in enumerate(sites)
            for b in reversed(sites[k + 1 :])
            if (id(a.store), id(b.store)) not in refused
        )
        for a, b in pairs:
            changed = _merge_pair(function, settled, a, b, names)
            if changed is not None:
                function = changed
                break
            refused.add((id(a.store), id(b.store)))
        else:
            return function


def _merge_pair(function: Function, settled: Settled, a: Site, b: Site, names: Names) -> Function | None:
    depth = 0
    while depth < min(len(a.path), len(b.path)):
        left, right = a.path[depth], b.path[depth]
        if left.stmt is not right.stmt or left.taken != right.taken:
            break
        depth += 1
    own = [s.stmt for s in a.path[depth:] if isinstance(s.stmt, For)]
    other = [s.stmt for s in b.path[depth:]]
    if len(own) != len(other):
        return None
    renamed: dict[str, str] = {}
    for x, y in zip(own, other, strict=True):
        if not isinstance(y, For) or ascending(x) is None:
            return None
        if with_names(ascending(x), renamed) != with_names(ascending(y), {}):
            return None
        renamed[x.var] = y.var
    known: dict[str, Expr] = {n: Ref(v, INT64) for n, v in renamed.items()}
    if tuple(fold(substitute(i, known)) for i in a.store.index) != tuple(map(fold, b.store.index)):
        return None
    plain = all(f.var in names_alone(a.store.index) for f in a.loops)
    if not plain:
        return None
    closure = Closure(a, depth, settled)
    if closure.spills or not closure.repeatable:
        return None
    statements, value = closure.repeat(known, names)
    edit = Edit({id(a.store): []})
    edit.instead[id(b.store)] = [
        *statements,
        accumulate_into(b.store.array, b.store.index, add(value, b.value), b.store),
    ]
    return replace(function, body=edit.apply(function.body))


def store_once(function: Function, target: str) -> Function:
    """Let an accumulation store, where it is the first that reaches the element: the array is filled with 0."""
    memory = Memory.of(function)
    sites = list(sites_of(function.body, target))
    stores = memory.touching(target, True)
    edit = Edit()
    first: list[Site] = []
    for site, own in zip(sites, stores, strict=True):
        if not any(memory.before(other, own) for other in stores):
            edit.instead[id(site.store)] = [replace(site.store, value=site.value)]
            first.append(site)
    arrays = function.arrays
    array = function.array(target)
    if array.role == "result" and any(_covers(function, s) for s in first):
        arrays = tuple(replace(a, fill=None) if a.name == target else a for a in arrays)
    return replace(function, body=edit.apply(function.body), arrays=arrays)


def _covers(function: Function, site: Site) -> bool:
    """Whether the site reaches every element of its array."""
    return not any(isinstance(s.stmt, If) for s in site.path) and reaches_all(function, site.store, site.loops)
