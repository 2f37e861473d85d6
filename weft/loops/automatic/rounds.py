"""Rounds: a loop whose subscripts are digits of its variable becomes loops over these.

Of `ring[t % steps]` every iteration of a round of `steps` has an element of its own, and the next round begins with the first
again: with t = round * steps + place, places run side by side. That divisors are above 0 is asked of the call
(`weft.loops.sized`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.loops.accesses import Nested, collect, loops_in
from weft.loops.affine import affine
from weft.loops.automatic.residues import independent
from weft.loops.automatic.rewriting import Rewriting, copied, keeps_array, replaced
from weft.loops.digits import Digits, digits
from weft.loops.digits import replaced as replaced_in
from weft.loops.ir import (
    ZERO,
    Const,
    Expr,
    For,
    Function,
    Op,
    Ref,
    Scalar,
    Stmt,
    free_names,
    map_statement,
    name_of,
    substitute,
    unchecked,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import simplify
from weft.loops.simplify import fold
from weft.loops.sized import EVERYWHERE
from weft.loops.types import INT64


def rounds(function: Function, stuck: frozenset[str]) -> Iterator[Rewriting]:
    """The function with one of the loops `stuck` as loops over the digits of its variable."""
    for nested in loops_in(function.body):
        loop = nested.loop
        if loop.var not in stuck or loop.carries or abs(loop.step) != 1 or keeps_array(function, loop):
            continue
        own = _digits(function, nested)
        made = None if own is None else _in_rounds(function, loop, own)
        if made is not None and all(independent(made.function, var) for var in made.frees):
            yield made


def _digits(function: Function, nested: Nested) -> Digits | None:
    """The digits of a loop's variable that those of its subscripts name of which the call has told that they are inside."""
    loop = nested.loop
    start, stop = (loop.start, loop.stop) if loop.step > 0 else (_plus(loop.stop, 1), _plus(loop.start, 1))
    if fold(start) != ZERO:
        return None
    accesses = collect((loop,), nested.loops, nested.guard)
    asked = {simplify(unchecked(a.index)) for a in function.sized.asked if a.name.endswith(EVERYWHERE)}
    index = [
        i
        for a in accesses
        for i in a.index
        if loop.var in free_names(i) and affine(i) is None and simplify(unchecked(i)) in asked
    ]
    changing = names_bound_in(nested.loops) | names_bound_in((loop,))
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars if s.type == INT64} - changing
    upward = replace(loop, start=ZERO, stop=fold(stop), step=1)
    found = digits((upward,), index, fixed)
    own = found[0] if found is not None else ()
    return own[0] if len(own) == 1 and len(own[0].loops) > 1 else None


def _in_rounds(function: Function, loop: For, own: Digits) -> Rewriting | None:
    """The loop as loops over digits, the places around the rounds, which keep the variable's name; then what no round has."""
    names = Names.of(function)
    fresh: dict[str, Expr] = {f.var: Ref(names.fresh(f"{loop.var}_place"), INT64) for f in own.loops}
    fresh[own.loops[0].var] = Ref(loop.var, INT64)
    known = {e: substitute(by, fresh) for e, by in own.named} | {Ref(loop.var, INT64): substitute(own.value, fresh)}
    body = _rewritten(loop.body, known)
    outer, *inner = (
        replace(f, var=name_of(fresh[f.var]), stop=substitute(f.stop, fresh), location=loop.location) for f in own.loops
    )
    scalars: tuple[Scalar, ...] = ()
    rest: tuple[Stmt, ...] = ()
    origin: dict[str, str] = {}
    if own.inside is not None:
        if len(inner) > 1:
            return None
        count = loop.stop if loop.step > 0 else _plus(loop.start, 1)
        whole, left = (Ref(names.fresh(f"{loop.var}_{what}"), INT64) for what in ("rounds", "left"))
        divided = (("floordiv", whole), ("mod", left))
        scalars = tuple(Scalar(ref.name, INT64, Op(name, (count, inner[0].stop), INT64)) for name, ref in divided)
        outer = replace(outer, stop=whole)
        last = _directed(replace(inner[0], stop=left, body=_rewritten(body, {Ref(outer.var, INT64): whole})), loop.step)
        copy, origin = copied(last, names)
        rest = (copy,)
    statements: tuple[Stmt, ...] = (_directed(replace(outer, body=body), loop.step),)
    for f in reversed(inner):
        statements = (replace(f, body=statements),)
    statements = (*statements, *rest) if loop.step > 0 else (*rest, *statements)
    made = replaced(function.body, loop.var, lambda _: statements)
    what = "rounds: the iterations of one are independent"
    places = frozenset(f.var for f in inner)
    origin = {new: old for new, old in origin.items() if old not in places}
    return Rewriting(
        replace(function, body=made, scalars=(*function.scalars, *scalars)), {loop.var: (what,)}, frees=places, origin=origin
    )


def _directed(loop: For, step: int) -> For:
    """A loop from 0 up, or the same iterations from the last down."""
    if step > 0:
        return loop
    return replace(loop, start=_plus(loop.stop, -1), stop=Const(-1, INT64), step=-1)


def _rewritten(body: tuple[Stmt, ...], known: dict[Expr, Expr]) -> tuple[Stmt, ...]:
    return tuple(map_statement(s, lambda e: replaced_in(e, known), lambda b: _rewritten(b, known)) for s in body)


def _plus(e: Expr, by: int) -> Expr:
    return fold(Op("add", (e, Const(by, INT64)), INT64))
