"""Carried integers that never go down: what they count from, and that elements subscripted by them are different ones.

In a compaction `if x[i] > 0: y[k] = x[i]; k += 1` no affine form tells where iteration i stores. But k never goes down and
goes up wherever something is stored, so no two iterations store to the same element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.loops.accesses import Access, Guard
from weft.loops.affine import affine
from weft.loops.ir import (
    FALSE,
    Carry,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    map_statement,
    rewrite,
    walk,
    walk_expr,
)
from weft.loops.normalize import simplify
from weft.loops.types import INT64

# The least and the greatest value of an integer relative to a carried one, where they are known.
Range = tuple[int, int | None]


def settle(function: Function) -> Function:
    """The function without the tests for negative subscripts that its counters decide."""
    least = {s.name: 0 for s in function.sizes}
    return replace(function, body=_settled(function.body, least))


def _settled(statements: tuple[Stmt, ...], least: dict[str, int]) -> tuple[Stmt, ...]:
    """least: a lower bound of names, to which those bound here are added."""

    def expr(e: Expr) -> Expr:
        decided = rewrite(e, lambda x: FALSE if _never_negative(x, least) else None)
        return e if decided == e else simplify(decided)

    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let(name=name, value=value) if value.type == INT64:
                bound = _least(value, least)
                if bound is not None:
                    least[name] = bound
            case For():
                ascending = set(counters(stmt))
                for c in stmt.carries:
                    bound = _least(c.init, least)
                    if bound is not None and c.name in ascending:
                        least[c.name] = least[c.result] = bound
        out.append(map_statement(stmt, expr, lambda b: _settled(b, least)))
    return tuple(out)


def _never_negative(e: Expr, least: dict[str, int]) -> bool:
    """Whether e is a test `x < 0` that never holds."""
    match e:
        case Op(name="lt", args=(x, Const(value=0))) if x.type == INT64:
            bound = _least(x, least)
            return bound is not None and bound >= 0
    return False


def _least(e: Expr, least: dict[str, int]) -> int | None:
    form = affine(e)
    if form is None or any(c < 0 or n not in least for n, c in form.terms):
        return None
    return form.constant + sum(c * least[n] for n, c in form.terms)


# ---------------------------------------------------------------- counters


def counters(loop: For) -> tuple[str, ...]:
    """The integers that a loop carries and never makes smaller."""
    home = _Home.of(loop)
    found = []
    for c in loop.carries:
        if c.type == INT64:
            step = _relative(c.next, c.name, home, ())
            if step is not None and step[0] >= 0:
                found.append(c.name)
    return tuple(found)


def _meanings(statements: tuple[Stmt, ...]) -> dict[str, Expr]:
    """What the integers bound in a loop's body are; of a counter of a loop inside, what it starts with: it is no less then."""
    found: dict[str, Expr] = {}
    for s in statements:
        match s:
            case Let(name=name, value=value) if value.type == INT64:
                found[name] = value
            case If():
                found |= _meanings(s.then) | _meanings(s.orelse)
                found |= {m.name: Op("where", (s.condition, m.then, m.orelse), INT64) for m in s.merges if m.type == INT64}
            case For() if s.carries:
                ascending = set(counters(s))
                for c in s.carries:
                    if c.name in ascending:
                        found[c.result] = Op("max", (c.init, Ref(f"{c.result} itself", INT64)), INT64)
    return found


@dataclass(frozen=True)
class _Home:
    """A loop whose iterations count. meanings: of the integers bound in it. stored: arrays that it writes.

    ranges: what `_relative` has found: of a name, from a carried integer, where conditions hold that matter to it.
    """

    meanings: Mapping[str, Expr]
    stored: frozenset[str]
    ranges: dict[tuple[str, str, Guard], Range | None] = field(default_factory=dict, compare=False)
    _tests: dict[str, frozenset[Expr]] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(loop: For) -> _Home:
        return _Home(_meanings(loop.body), frozenset(s.array for s in walk(loop.body) if isinstance(s, Store)))

    def steady(self, guard: Guard) -> Guard:
        """The conditions that hold for the whole iteration if they hold once: what they load is not written in it."""
        return tuple(
            g for g in guard if not any(isinstance(e, Load) and e.array in self.stored for e in walk_expr(g[0]))
        )

    def tests(self, name: str) -> frozenset[Expr]:
        """The conditions that decide what a name is."""
        if name not in self._tests:
            parts = list(walk_expr(self.meanings[name]))
            own = {e.args[0] for e in parts if isinstance(e, Op) and e.name == "where"}
            inner = (self.tests(e.name) for e in parts if isinstance(e, Ref) and e.name in self.meanings)
            self._tests[name] = frozenset(own).union(*inner)
        return self._tests[name]


def _relative(e: Expr, name: str, home: _Home, guard: Guard) -> Range | None:
    """How far e is from the carried integer `name`, where the steady conditions of the guard hold."""
    match e:
        case Op(name="where", args=(condition, x, y)):
            if (condition, True) in guard:
                return _relative(x, name, home, guard)
            if (condition, False) in guard:
                return _relative(y, name, home, guard)
            left = _relative(x, name, home, (*guard, *home.steady(((condition, True),))))
            right = _relative(y, name, home, (*guard, *home.steady(((condition, False),))))
            if left is None or right is None:
                return None
            most = None if left[1] is None or right[1] is None else max(left[1], right[1])
            return min(left[0], right[0]), most
        case Op(name="max", args=(x, Ref(name=itself))) if itself.endswith(" itself"):
            found = _relative(x, name, home, guard)
            return None if found is None else (found[0], None)
    form = affine(e)
    if form is None or len(form.terms) != 1 or form.terms[0][1] != 1:
        return None
    own = form.terms[0][0]
    if own == name:
        return form.constant, form.constant
    if own not in home.meanings:
        return None
    tests = home.tests(own)
    key = own, name, tuple(g for g in guard if g[0] in tests)
    if key not in home.ranges:
        home.ranges[key] = _relative(home.meanings[own], name, home, key[2])
    found = home.ranges[key]
    if found is None:
        return None
    return found[0] + form.constant, None if found[1] is None else found[1] + form.constant


# ---------------------------------------------------------------- subscripts


def distinct(loop: For, a: Access, b: Access) -> bool:
    """Whether two accesses in different iterations of a loop (and the same ones of those around it) are of different
    elements, as a subscript by a counter shows that goes up in between.
    """
    for i, j in zip(a.index, b.index, strict=True):
        for home, carry in _carried_in(loop, a):
            if (home, carry) not in _carried_in(loop, b) or not _threaded(loop, a, home, carry):
                continue
            inside = _Home.of(home)
            first, second = (_relative(x, carry.name, inside, inside.steady(c.guard)) for x, c in ((i, a), (j, b)))
            steps = [_relative(carry.next, carry.name, inside, inside.steady(c.guard)) for c in (a, b)]
            if first is None or second is None or None in steps or first[1] is None or second[1] is None:
                continue
            after_a, after_b = (s[0] for s in steps if s is not None)
            if after_a + second[0] > first[1] and after_b + first[0] > second[1]:
                return True
    return False


def _carried_in(loop: For, access: Access) -> list[tuple[For, Carry]]:
    """The counters of the innermost loop around an access, which is the given loop or one in it."""
    home = access.loops[-1]
    if not any(f.var == loop.var for f in access.loops):
        return []
    ascending = set(counters(home))
    return [(home, c) for c in home.carries if c.name in ascending]


def _threaded(loop: For, access: Access, home: For, carry: Carry) -> bool:
    """Whether a counter of the loop `home` counts on through all iterations of `loop` around it."""
    chain = list(access.loops)
    chain = chain[next(k for k, f in enumerate(chain) if f.var == loop.var) :]
    inner, name = carry, home.var
    for outer in reversed(chain[:-1]):
        if not isinstance(inner.init, Ref):
            return False
        own = next((c for c in outer.carries if c.name == inner.init.name), None)
        child = next((s for s in outer.body if isinstance(s, For) and s.var == name), None)
        if own is None or child is None:
            return False
        # what the iteration leaves is no less than what the loop inside it has counted to
        around = _Home.of(outer)
        rest = {k: v for k, v in around.meanings.items() if k != inner.result}
        step = _relative(own.next, inner.result, _Home(rest, around.stored), ())
        if step is None or step[0] < 0:
            return False
        inner, name = own, outer.var
    return True
