"""Whether subscripts of a part of a tensor are inside that part: seen while parsing, at the call, or as the kernel runs.

Subscripts of arrays themselves are no matter of this module: the analysis knows when they leave their array.
"""

from __future__ import annotations

from weft.language.builder import Builder
from weft.language.values import difference, tidy
from weft.loops.affine import affine
from weft.loops.ir import ZERO, Check, Const, Demand, Expr, Fault, FaultKind, Op, Ref, free_names, has_load, rewrite, substitute
from weft.loops.types import BOOL, INT64


def check(b: Builder, first: Expr, last: Expr, size: Expr) -> Expr | None:
    """None where all from the first subscript to the last is inside a dimension of this size, or the call sees to it; else
    what the kernel asks.
    """
    extent = _known(b, size)
    if not b.is_dynamic(first) and not b.is_dynamic(last):
        low, high = _extreme(b, first, least=True), _extreme(b, last, least=False)
        if low is not None and high is not None:
            if _at_least(low, 0) and _at_least(_minus(extent, high), 1):
                return None
            if len(b.blocks) == 1 + len(b.loops) and _at_call(b, _inside(low, high, extent)):
                return None
    return _inside(first, last, size)


def certain(b: Builder, first: Expr, last: Expr, size: Expr) -> bool:
    """Whether all from the first subscript to the last is inside a dimension of this size, for any sizes."""
    if b.is_dynamic(first) or b.is_dynamic(last):
        return False
    low, high = _extreme(b, first, least=True), _extreme(b, last, least=False)
    return low is not None and high is not None and _at_least(low, 0) and _at_least(_minus(_known(b, size), high), 1)


def checked(expr: Expr, inside: Expr | None, b: Builder) -> Expr:
    """The value of an element, where the kernel has to see that it is one of the tensor's."""
    if inside is None:
        return expr
    return Check("check", (expr, inside), expr.type, fault=Fault("index", "a subscript outside a view", location=b.location))


def _inside(low: Expr, high: Expr, size: Expr) -> Expr:
    return Op("and", (Op("ge", (low, ZERO), BOOL), Op("lt", (high, size), BOOL)), BOOL)


def _minus(a: Expr, b: Expr) -> Expr:
    return Op("sub", (a, b), INT64)


def _at_least(expr: Expr, least: int) -> bool:
    """Whether a size, less a constant, is this large."""
    known = difference(expr, ZERO)
    return known is not None and known >= least


def _known(b: Builder, expr: Expr) -> Expr:
    """An integer in sizes, scalars and the variables of loops, quotients by their names."""
    return rewrite(
        b.canonical(expr), lambda e: Ref(b.quotients[e], INT64) if isinstance(e, Op) and e in b.quotients else None
    )


def _extreme(b: Builder, index: Expr, least: bool) -> Expr | None:
    """The least or the largest value of an affine subscript over the loops that are open."""
    expr = _known(b, index)
    for loop in reversed(b.loops):
        if loop.var not in free_names(expr):
            continue
        form = affine(expr)
        if form is None:
            return None
        first, last = loop.start, _minus(loop.stop, Const(1 if loop.step > 0 else -1, INT64))
        at_first = (form.coefficient(loop.var) > 0) == (least == (loop.step > 0))
        expr = _known(b, substitute(expr, {loop.var: first if at_first else last}))
    return expr


def check_slice(b: Builder, bound: Expr, size: Expr) -> None:
    """Have the call see that Python takes a bound of a slice as it is: it counts those below 0 from the end, and cuts those
    beyond it. Bounds that a loop decides, or under a branch, are left to what is read there.
    """
    bound, extent = _known(b, bound), _known(b, size)
    if len(b.blocks) != 1 + len(b.loops) or (_at_least(bound, 0) and _at_least(_minus(extent, bound), 0)):
        return
    inside = Op("and", (Op("ge", (bound, ZERO), BOOL), Op("le", (bound, extent), BOOL)), BOOL)
    _at_call(b, inside, "a slice that goes outside a view or tensor, where Python cuts it")


def check_elements(b: Builder, sizes: tuple[Expr, ...], what: str) -> None:
    """Have the call see that an extremum is one of some elements, or the kernel where a loop or a branch decides how many
    there are.
    """
    told = f"{what} of a tensor without elements"
    for size in sizes:
        known = [None if b.is_dynamic(size) else _extreme(b, part, least=True) for part in _parts_of_least(_known(b, size))]
        doubtful = [low for low in known if low is None or not _at_least(_minus(low, Const(1, INT64)), 0)]
        at_call = None not in doubtful and len(b.blocks) == 1 + len(b.loops)
        if not all(at_call and low is not None and _at_call(b, Op("gt", (low, ZERO), BOOL), told) for low in doubtful):
            some = Op("gt", (size, ZERO), BOOL)
            b.evaluated(Check("check", (Const(True, BOOL), some), BOOL, fault=Fault("index", told, location=b.location)))


def require(b: Builder, condition: Expr, what: str, kind: FaultKind) -> None:
    """Have the call see to a condition, or the kernel where a loop or a branch decides."""
    known = _known(b, condition)
    if len(b.blocks) != 1 + len(b.loops) or not _at_call(b, known, what, kind):
        b.evaluated(Check("check", (Const(True, BOOL), condition), BOOL, fault=Fault(kind, what, location=b.location)))


def _parts_of_least(expr: Expr) -> tuple[Expr, ...]:
    """Expressions the least of which an integer is, as `i + 1 - max(0, i - w)` is that of i + 1 and w + 1."""
    match expr:
        case Op(name="min", args=parts):
            pass
        case Op(name="sub", args=(a, Op(name="max", args=less))):
            parts = tuple(_minus(a, x) for x in less)
        case Op(name="sub", args=(Op(name="min", args=more), a)):
            parts = tuple(_minus(x, a) for x in more)
        case _:
            return (tidy(expr),)
    return tuple(part for x in parts for part in _parts_of_least(x))


def _at_call(b: Builder, condition: Expr, what: str = "a subscript outside a view", kind: FaultKind = "index") -> bool:
    """Have the call see to a condition, unless a loop around does not run; whether it can."""
    for loop in b.loops:
        idle = Op("ge" if loop.step > 0 else "le", (b.in_sizes(loop.start), b.in_sizes(loop.stop)), BOOL)
        condition = Op("or", (idle, condition), BOOL)
    if not free_names(condition) <= b.fixed or has_load(condition):
        return False
    demand = Demand(condition, Fault(kind, what, location=b.location))
    if demand not in b.demands:
        b.demands.append(demand)
    return True
