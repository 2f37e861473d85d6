"""What an expression does to one carried scalar: the algebra it belongs to, and the parts of its element.

`match` knows the algebras of a single value (`weft.loops.algebra.table`); `extremum` and `linear_map` those of several.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft.loops.algebra.linear import both, choice, linear, negation
from weft.loops.algebra.search import kept
from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, FIRST, LINEAR, SEGMENTED, SELECT, WIDEST
from weft.loops.ir import FALSE, TRUE, Carry, Const, Expr, For, Op, Ref, free_names, rewrite, walk_expr
from weft.loops.simplify import is_number, number
from weft.loops.types import BOOL, ScalarType

# An algebra and the parts of an element.
Element = tuple[str, tuple[Expr, ...]]

_BY_OPERATOR = {"add": "sum", "mul": "product"} | {
    n: n for n in ("maximum", "minimum", "fmax", "fmin", "and", "or", "bitand", "bitor", "bitxor")
}


def match(carry: Carry, e: Expr, loop: For) -> Element | None:
    """What `carry.name = e` does, where e may depend on that name and on no other value that the loop carries."""
    return _by_operators(carry, e, loop) or _restarted(carry, e, loop) or _by_order(carry, e)


def _by_operators(carry: Carry, e: Expr, loop: For) -> Element | None:
    return _operator(carry.name, e) or _selected(carry.name, e) or _affine(carry, e, loop)


def _by_order(carry: Carry, e: Expr) -> Element | None:
    return _clamped(carry.name, e) or _searched(carry.name, e)


# ---------------------------------------------------------------- one operator


def _operator(name: str, e: Expr) -> Element | None:
    """h (op) e, e (op) h, and conditional forms `where(c, h (op) e, h)`."""
    match e:
        case Op(name="max" | "min" as op, args=(Ref(name=n), other)) if n == name and name not in free_names(other):
            return op, (other,)
        case Op(name="max" | "min" as op, args=(other, Ref(name=n))) if n == name and name not in free_names(other):
            # Python's max(e, h) keeps a NaN e until the next element: only without NaNs is it the same
            return (op, (other,)) if e.type.category == "int" else None
        case Op(name=op, args=(a, b)) if op in _BY_OPERATOR and op != "add":
            for own, other in ((a, b), (b, a)):
                if own == Ref(name, e.type) and name not in free_names(other):
                    return _BY_OPERATOR[op], (other,)
        case Op(name="where", args=(condition, value, Ref(name=n))) if n == name and name in free_names(condition):
            return _conditional_extremum(name, condition, value)
        case Op(name="where", args=(condition, then, orelse)) if name not in free_names(condition):
            own = Ref(name, e.type)
            if orelse == own or then == own:
                inner = _operator(name, then if orelse == own else orelse)
                if inner is None or inner[0] in ("sum", "product"):
                    return None  # the affine matcher does these
                algebra, (value,) = inner
                neutral = ALGEBRAS[algebra].identity(e.type)
                chosen = (condition, value, neutral) if orelse == own else (condition, neutral, value)
                return algebra, (Op("where", chosen, e.type),)
    return None


def _conditional_extremum(name: str, condition: Expr, value: Expr) -> Element | None:
    """`value if rest and value > h else h`, with any of the comparisons."""
    own = Ref(name, value.type)
    if name in free_names(value):
        return None
    for test in conjuncts(condition):
        if not isinstance(test, Op) or test.args not in ((value, own), (own, value)):
            continue
        grows = {"gt": True, "ge": True, "lt": False, "le": False}.get(test.name)
        algebra = None if grows is None else "max" if grows == (test.args == (value, own)) else "min"
        rest = [c for c in conjuncts(condition) if c != test]
        if algebra is None or any(name in free_names(c) for c in rest):
            continue
        valid = conjunction(rest)
        chosen = value if valid == TRUE else Op("where", (valid, value, ALGEBRAS[algebra].identity(value.type)), value.type)
        return algebra, (chosen,)
    return None


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conditions that hold if and only if this one does, all of them."""
    match condition:
        case Op(name="and", args=(a, b)):
            return (*conjuncts(a), *conjuncts(b))
        case Const(value=True):
            return ()
    return (condition,)


def conjunction(conditions: Iterable[Expr]) -> Expr:
    total: Expr = TRUE
    for c in conditions:
        total = both(total, c)
    return total


# ---------------------------------------------------------------- the last value given


def _selected(name: str, e: Expr) -> Element | None:
    """A value, or the one before. (Always a value is no state: another iteration's is copied, and needs another cure.)"""
    found = _given(name, e)
    return None if found is None or found[1] is None or found[0] == TRUE else (SELECT, (found[0], found[1]))


def _given(name: str, e: Expr) -> tuple[Expr, Expr | None] | None:
    """(whether a value is given, which): None for the value where none ever is."""
    if name not in free_names(e):
        return TRUE, e
    match e:
        case Ref():
            return FALSE, None
        case Op(name="where", args=(condition, x, y)) if name not in free_names(condition):
            left, right = _given(name, x), _given(name, y)
            if left is not None and right is not None:
                value = right[1] if left[1] is None else left[1] if right[1] is None else choice(condition, left[1], right[1])
                return choice(condition, left[0], right[0]), value
    return None


# ---------------------------------------------------------------- affine maps


def _affine(carry: Carry, e: Expr, loop: For) -> Element | None:
    if e.type.category == "bool":
        return None
    form = linear(frozenset({carry.name}), e)
    if form is None or (e.type.category == "float" and _forgets(loop, carry, e)):
        return None
    coefficient, addend = form.coefficient(carry.name), form.addend
    if is_number(coefficient, 1):
        return "sum", (addend,)
    if is_number(addend, 0) and not is_number(coefficient, 0):
        return "product", (coefficient,)
    return AFFINE, (coefficient, addend)


def _forgets(loop: For, carry: Carry, e: Expr) -> bool:
    """Whether some iteration gives the carry a value without looking at the one before, so that `0 * h + e` is not what
    the program does. In the first iteration that is harmless where h starts as a finite number.
    """
    if carry.name not in free_names(e):
        return True
    match e:
        case Op(name="where", args=(condition, then, orelse)):
            finite = isinstance(carry.init, Const) and math.isfinite(carry.init.value)
            at_start = _at_start(condition, loop) if finite else None
            sides = [x for x, here in ((then, True), (orelse, False)) if at_start is not here]
            return any(_forgets(loop, carry, x) for x in sides)
        case Op(name="add" | "sub" | "neg" | "mul" | "div", args=args):
            return any(_forgets(loop, carry, a) for a in args if carry.name in free_names(a))
    return False


def _at_start(condition: Expr, loop: For) -> bool | None:
    """The value that a condition has in the first iteration alone; None where it is no such condition."""
    var, start = Ref(loop.var, loop.start.type), loop.start
    match condition:
        case Op(name="eq" | "ne" as name, args=args) if set(args) == {var, start}:
            return name == "eq"
        case Op(name="gt" | "lt" as name, args=args) if set(args) == {var, start}:
            grows = (name == "gt") == (args[0] == var)
            return False if grows == (loop.step > 0) else None
    return None


def linear_map(names: tuple[str, ...], nexts: tuple[Expr, ...]) -> Element | None:
    """Several values, each a linear form of them all."""
    types = {e.type for e in nexts}
    if len(names) > WIDEST or len(types) != 1 or next(iter(types)).category == "bool":
        return None
    forms = [linear(frozenset(names), e) for e in nexts]
    if any(f is None for f in forms):
        return None
    known = [f for f in forms if f is not None]
    coefficients = tuple(f.coefficient(n) for f in known for n in names)
    present = tuple(f.present(n) for f in known for n in names)
    return LINEAR, (*coefficients, *present, *(f.addend for f in known))


# ---------------------------------------------------------------- restarts


def _restarted(carry: Carry, e: Expr, loop: For) -> Element | None:
    """An algebra whose state starts anew under some condition, without a look at the one before."""
    name = carry.name
    conditions = [
        x.args[0] for x in walk_expr(e) if isinstance(x, Op) and x.name == "where" and name not in free_names(x.args[0])
    ]
    for condition in dict.fromkeys(conditions):
        for holds in (True, False):
            state, rest = _where(e, condition, holds), _where(e, condition, not holds)
            if name in free_names(state) or name not in free_names(rest):
                continue
            inner = _by_operators(carry, rest, loop) or _by_order(carry, rest)
            if inner is not None:
                starts = condition if holds else negation(condition)
                return SEGMENTED + inner[0], (starts, state, *inner[1])
    return None


def _where(e: Expr, condition: Expr, holds: bool) -> Expr:
    """e where the condition is known."""

    def rule(x: Expr) -> Expr | None:
        if isinstance(x, Op) and x.name == "where" and x.args[0] == condition:
            return x.args[1] if holds else x.args[2]
        return None

    return rewrite(e, rule)


# ---------------------------------------------------------------- searches


def _searched(name: str, e: Expr) -> Element | None:
    stays = kept(name, e)
    return None if stays is None else (FIRST, (stays, TRUE))


# ---------------------------------------------------------------- sums between bounds


def _clamped(name: str, e: Expr) -> Element | None:
    """Additions, maxima and minima, one after another: h -> min(max(h + shift, low), high) with low <= high."""
    if e.type.category == "bool":
        return None
    bounds = _bounds(name, e)
    return None if bounds is None else (CLAMP, bounds)


def _bounds(name: str, e: Expr) -> tuple[Expr, Expr, Expr] | None:
    type_ = e.type
    match e:
        case Ref(name=n) if n == name:
            return number(0, type_), _extreme(type_, low=True), _extreme(type_, low=False)
        case Op(name="add" | "sub" as op, args=(x, y)):
            # of integers, shifts that are added up may wrap where no state does, and then the bounds are beside the point
            own, other = (x, y) if name in free_names(x) else (y, x)
            if type_.category == "int" or name in free_names(other) or (op == "sub" and own is y):
                return None
            inner = _bounds(name, own)
            if inner is None:
                return None
            shift, low, high = inner
            plain = is_number(shift, 0)
            moved = other if plain and op == "add" else Op("neg", (other,), type_) if plain else Op(op, (shift, other), type_)
            low, high = (b if _is_extreme(b) else Op(op, (b, other), type_) for b in (low, high))
            return moved, low, high
        case Op(name="max" | "min" as op, args=(x, y)):
            # of floats, Python's max(e, h) keeps a NaN e and drops a NaN h
            own, other = (x, y) if name in free_names(x) else (y, x)
            if name in free_names(other) or (own is y and type_.category == "float"):
                return None
            inner = _bounds(name, own)
            if inner is None:
                return None
            shift, *bounds = inner
            # the greatest of all stays what it is under a maximum, and says so: nothing is added to it later
            still = _extreme(type_, low=op == "min")
            low, high = (b if b == still else Op(op, (b, other), type_) for b in bounds)
            return shift, low, high
    return None


def _extreme(type_: ScalarType, low: bool) -> Const:
    return ALGEBRAS["max" if low else "min"].identity(type_)


def _is_extreme(e: Expr) -> bool:
    return e in (_extreme(e.type, True), _extreme(e.type, False))


# ---------------------------------------------------------------- extrema with what goes with them


def extremum(name: str, largest: Element, others: tuple[str, ...], nexts: tuple[Expr, ...]) -> Element | None:
    """argmax and argmin: `largest` is what an iteration does to the extremum `name`; each of `others` takes a new value
    exactly where the extremum does, the first time among equals or the last.
    """
    algebra, (value,) = largest[0], largest[1][:1]
    if algebra not in ("max", "min"):
        return None
    valid: Expr = TRUE
    neutral = ALGEBRAS[algebra].identity(value.type)
    match value:
        case Op(name="where", args=(condition, x, y)) if neutral in (x, y):
            valid, value = (condition, x) if y == neutral else (negation(condition), y)
    own = Ref(name, value.type)
    greater, less = ("gt", "lt") if algebra == "max" else ("lt", "gt")
    first = {Op(greater, (value, own), BOOL), Op(less, (own, value), BOOL)}
    last = {Op({"gt": "ge", "lt": "le"}[x.name], x.args, BOOL) for x in first}
    chosen: list[Expr] = []
    ties: set[bool] = set()
    for k, e in zip(others, nexts, strict=True):
        found = None
        for tests, late in ((first, False), (last, True)):
            found = next((p for t in tests if (p := _taken(k, e, t, valid)) is not None), None)
            if found is not None:
                ties.add(late)
                break
        if found is None or free_names(found) & {name, *others}:
            return None
        chosen.append(found)
    if len(ties) != 1:
        return None
    return f"arg{algebra}" + ("_last" if ties == {True} else ""), (value, valid, *chosen)


def _taken(name: str, e: Expr, test: Expr, valid: Expr) -> Expr | None:
    """p where `e` is `p if valid and test else name`."""
    own, all_ = Ref(name, e.type), {*conjuncts(valid), test}
    match e:
        case Op(name="where", args=(condition, p, rest)) if rest == own and {*conjuncts(condition)} == all_:
            return p
        case Op(name="where", args=(condition, inner, rest)) if rest == own and condition == valid:
            return _taken(name, inner, test, TRUE)
        case Op(name="where", args=(condition, rest, inner)) if rest == own and negation(condition) == valid:
            return _taken(name, inner, test, TRUE)
    return None
