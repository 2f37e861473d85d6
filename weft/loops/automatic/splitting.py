"""Splitting: a loop becomes several, one after another, that run through parts of its range.

In `for i in range(n): a[i] = a[n // 2] + b[i]` the element that every iteration reads is written by one of them: before it
and after it nothing depends on anything. In `a[i] = a[n - 1 - i]` it is the middle where what is read begins to be what was
written. Parts that run in the order of the loop are always the loop; where to part it follows from the subscripts of two
accesses that conflict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Guard, Nested, loops_in, pairs_in
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.automatic.rewriting import Rewriting, copied, keeps_array, replaced
from weft.loops.ir import Const, Expr, For, Function, Op, Ref, Stmt, free_names, has_load
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.show import show_expr
from weft.loops.types import BOOL, INT64

# Where a loop is parted: the first iterations of the second part and of those after it, in ascending order.
Cut = tuple[Expr, ...]

_MOST_CUTS = 4  # of one loop that are tried: each costs an analysis


def splittings(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with one of the loops `stuck` in parts, and with all of them."""
    polyhedra = Polyhedra(function)
    cuts = [(n, _cuts(function, polyhedra, n)) for n in loops_in(function.body) if n.loop.var in stuck]
    found = [(n, own) for n, own in cuts if own]
    for nested, own in found:
        for cut in own:
            yield _split(function, polyhedra, [(nested, cut)])
    if len(found) > 1:
        yield _split(function, polyhedra, [(nested, own[0]) for nested, own in found])


# ---------------------------------------------------------------- where


def _cuts(function: Function, polyhedra: Polyhedra, nested: Nested) -> list[Cut]:
    loop = nested.loop
    if abs(loop.step) != 1 or keeps_array(function, loop) or has_load(loop.start) or has_load(loop.stop):
        return []
    inside = names_bound_in((loop,))
    found: dict[Cut, None] = {}
    for a, b, private in pairs_in(function, nested):
        if polyhedra.carried(a, b, loop, private) is not None:
            for i, j in zip(a.index, b.index, strict=True):
                cut = _cut(i, j, loop.var, inside)
                if cut is not None and all(is_bound(e, _known(function, nested)) for e in cut):
                    found[cut] = None
    return list(found)[:_MOST_CUTS]


def _known(function: Function, nested: Nested) -> set[str]:
    scalars = {s.name for s in function.scalars if s.type == INT64}
    return {s.name for s in function.sizes} | scalars | {f.var for f in nested.loops}


def _cut(i: Expr, j: Expr, var: str, inside: set[str]) -> Cut | None:
    """The iterations around the one in which two subscripts of the same iteration are equal: that one has a part of its own
    where one of the subscripts is the same in all iterations, and is in the second part where they move in opposite
    directions.
    """
    moving, other = (i, j) if var in free_names(i) else (j, i)
    form = affine(moving)
    if form is None or abs(form.coefficient(var)) != 1:
        return None
    sign = form.coefficient(var)
    rest = form - Affine(((var, sign),), 0)
    if rest.names & inside:
        return None
    if not free_names(other) & inside:  # var = (other - rest) * sign
        at = _times(Op("sub", (other, rest.expr()), INT64), sign)
        return at, _shifted(at, 1)
    second = affine(other)
    if second is None or second.coefficient(var) != -sign:
        return None
    remaining = second - Affine(((var, -sign),), 0)
    if remaining.names & inside:
        return None
    twice = (remaining - rest) * sign  # 2 var = (remaining - rest) * sign
    return (simplify(Op("floordiv", ((twice + Affine((), 1)).expr(), Const(2, INT64)), INT64)),)


def _times(e: Expr, sign: int) -> Expr:
    e = simplify(_plain(e))
    return e if sign > 0 else simplify(Op("neg", (e,), INT64))


def _plain(e: Expr) -> Expr:
    """Without subtracting nothing."""
    return e.args[0] if isinstance(e, Op) and e.name == "sub" and e.args[1] == Const(0, INT64) else e


def _shifted(e: Expr, steps: int) -> Expr:
    return simplify(Op("add", (e, Const(steps, INT64)), INT64))


# ---------------------------------------------------------------- the parts


def _split(function: Function, polyhedra: Polyhedra, cuts: list[tuple[Nested, Cut]]) -> Rewriting:
    names = Names.of(function)
    origin: dict[str, str] = {}
    reasons: dict[str, tuple[str, ...]] = {}
    body = function.body
    # an inner loop first, so that a loop around it is copied with its parts
    for nested, cut in reversed(cuts):
        whole = nested.loop.var
        places = " and ".join(show_expr(e) for e in cut)
        reasons[whole] = (f"splitting: its range is parted at {places}",)

        def parts(loop: For, nested: Nested = nested, cut: Cut = cut) -> tuple[Stmt, ...]:
            made = _parts(loop, cut, polyhedra, nested.loops, nested.guard, names)
            for _, came_from in made:
                for new, old in came_from.items():
                    origin[new] = origin.get(old, old)
            return tuple(part for part, _ in made)

        body = replaced(body, whole, parts)
    return Rewriting(replace(function, body=body), reasons, frees=frozenset(reasons), origin=origin)


def _parts(
    loop: For, cut: Cut, polyhedra: Polyhedra, loops: tuple[For, ...], guard: Guard, names: Names
) -> list[tuple[For, dict[str, str]]]:
    """The loops that run through the parts of a loop, each with where its loops come from."""

    def limited(at: Expr, limit: Expr, name: str) -> Expr:
        """The larger (`max`) or smaller of two values, where it is not known which."""
        beyond = Op("lt" if name == "max" else "gt", (at, limit), BOOL)
        if not polyhedra.possible(loops, (*guard, (beyond, True))):
            return at
        return Op(name, (limit, at), INT64)

    if loop.step > 0:
        ranges = list(zip((None, *cut), (*cut, None), strict=True))
    else:  # the part that runs first has the largest values
        first = [_shifted(at, -1) for at in reversed(cut)]
        ranges = list(zip((None, *first), (*first, None), strict=True))
    inwards, outwards = ("max", "min") if loop.step > 0 else ("min", "max")
    ends = [
        (
            loop.start if low is None else limited(low, loop.start, inwards),
            loop.stop if high is None else limited(high, loop.stop, outwards),
        )
        for low, high in ranges
    ]
    runs = [polyhedra.possible(loops, (*guard, (Op("lt" if loop.step > 0 else "gt", pair, BOOL), True))) for pair in ends]
    ends = [pair for k, pair in enumerate(ends) if runs[k] or k == len(ends) - 1]
    made: list[tuple[For, dict[str, str]]] = []
    for k, (start, stop) in enumerate(ends):
        part, came_from = (loop, {}) if k == len(ends) - 1 else copied(loop, names)
        carries = part.carries
        if made:
            earlier = made[-1][0].carries
            carries = tuple(replace(c, init=Ref(e.result, e.type)) for c, e in zip(carries, earlier, strict=True))
        made.append((replace(part, start=start, stop=stop, carries=carries), came_from))
    return made
