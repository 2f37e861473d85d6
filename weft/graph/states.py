"""Arrays that a loop carries: which of their elements its iterations change, each of them a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.loops.accesses import Access, collect
from weft.loops.affine import affine
from weft.loops.ir import ZERO, Array, Expr, For, Load, Ref, free_names, substitute, walk_expr
from weft.loops.names import names_bound_in
from weft.loops.types import INT64


@dataclass(frozen=True)
class Own:
    """A dimension of the states: they are at `start <= name < stop` (by one, in either direction)."""

    name: str
    start: Expr
    stop: Expr
    step: int


@dataclass(frozen=True)
class Pattern:
    """The elements `index` of an array, for all values of `own`. all: the loops of every iteration that store to the array run
    over all of them. follows: loops of the body that run over one of these.
    """

    index: tuple[Expr, ...]
    own: tuple[Own, ...]
    all: bool = True
    follows: Mapping[str, str] = field(default_factory=dict)


def pattern(loop: For, array: Array) -> Pattern | None:
    """The elements that iterations of a loop store to, the same ones in each of them; None where that is not told: an
    iteration's number, a value or a condition in the subscript chooses.

    Where stores run over different ranges of a dimension, or over such as depend on the iteration, it is all of the dimension.
    """
    bound = names_bound_in((loop,))
    accesses = [a for a in collect((loop,)) if a.array == array.name]
    stores = [a for a in accesses if a.write]
    index: list[Expr] = []
    own: list[Own] = []
    for k, extent in enumerate(array.shape):
        found = [_variable(a, k, bound) for a in stores]
        if any(f is None for f in found):
            return None
        first = stores[0].index[k]
        if not any(found):
            if any(a.index[k] != first for a in stores):
                return None
            index.append(first)
            continue
        ranges = {_range(a, v) for a, v in zip(stores, found, strict=True)}
        shapes = {_spelled(a, k, v, found[0]) for a, v in zip(stores, found, strict=True)}
        (start, stop, step), *others = ranges
        name = next(v for v in found if v)
        if others or len(shapes) > 1 or abs(step) != 1 or (free_names(start) | free_names(stop)) & bound:
            name = f"{name}*"
            own.append(Own(name, ZERO, extent, 1))
            index.append(Ref(name, INT64))
        else:
            own.append(Own(name, start, stop, step))
            index.append(first)
    if len({o.name for o in own}) < len(own):
        return None
    whole = any(o.name.endswith("*") for o in own)
    return Pattern(tuple(index), tuple(own), not whole, _follows(accesses, bound, tuple(index), own))


def _variable(access: Access, k: int, bound: set[str]) -> str | None:
    """The one variable of a loop inside in a subscript, by whose values it tells elements apart: "" where it has nothing that
    the loop around binds, None where it has anything else.
    """
    index = access.index[k]
    names = free_names(index) & bound
    if not names and not any(isinstance(e, Load) for e in walk_expr(index)):
        return ""
    form = affine(index)
    inner = {f.var for f in access.loops[1:]}
    if len(names) != 1 or not names <= inner or form is None:
        return None
    (name,) = names
    return name if abs(form.coefficient(name)) == 1 else None


def _range(access: Access, var: str | None) -> tuple[Expr, Expr, int]:
    loop = next((f for f in access.loops if f.var == var), None)
    return (ZERO, ZERO, 0) if loop is None else (loop.start, loop.stop, loop.step)


def _spelled(access: Access, k: int, var: str | None, like: str | None) -> Expr:
    index = access.index[k]
    return substitute(index, {var: Ref(like, INT64)}) if var and like else index


def _follows(accesses: list[Access], bound: set[str], index: tuple[Expr, ...], own: list[Own]) -> dict[str, str]:
    found: dict[str, str] = {}
    by_name = {o.name: o for o in own}
    for a in accesses:
        for k, i in enumerate(index):
            name = next((n for n in free_names(i) if n in by_name), None)
            var = _variable(a, k, bound)
            if name and var:
                o = by_name[name]
                if _range(a, var) == (o.start, o.stop, o.step):
                    found.setdefault(var, name)
    return found
