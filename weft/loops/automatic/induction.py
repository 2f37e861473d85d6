"""Carried scalars that have a closed form: what an iteration starts with is told by its number alone, so nothing is carried.

Two kinds, each exact:
  induction    `k += c` with a c that the loop does not change: k0 + c * (number of iterations before);
  wrap-around  `before = b[i]`, told by the iteration itself: the value of the iteration before, in the first the initial one.
An increment by a floating constant is multiplied out, which reassociates the additions as a parallel sum does, unless the
sum decides something (weft.loops.automatic.discrete): steps of one size are then added up in their order, but for whole
numbers, whose sums are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from weft.loops.accesses import Guard
from weft.loops.affine import Affine, affine
from weft.loops.algebra.recurrences import definitions
from weft.loops.automatic.discrete import decides
from weft.loops.faults import may_fail
from weft.loops.ir import (
    Carry,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    bound_names,
    free_names,
    map_statement,
    rewrite,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.normalize import normalize, simplify
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import BOOL, FLOAT64, INT64
from weft.loops.unused import faults_kept

# A value of the iteration before is computed again only where that takes at most this many operations and loads; fewer where
# data decide a subscript, which is looked at again then.
_MOST_REPEATED, _MOST_LOOKED_AT = 48, 24
# A floating increment of at most this size does not overflow when it is multiplied by a number of iterations.
_LARGEST_INCREMENT = 1e15
# Whole numbers of at most this size: 2^33 of them have an exact sum in double precision.
_LARGEST_STEP = 1 << 20


@dataclass(frozen=True)
class Closed:
    """A function without the carries that have a closed form. transforms: what was done to each loop, by its variable."""

    function: Function
    transforms: dict[str, tuple[str, ...]]


def close(function: Function) -> Closed:
    """Give every carried scalar of a normal function its closed form where it has one; the result is normal again."""
    if not any(loop.carries for loop in walk(function.body) if isinstance(loop, For)):
        return Closed(function, {})
    closer = _Closer(function, Polyhedra(function), Names.of(function))
    body = closer.block(function.body, (), ())
    if not closer.transforms:
        return Closed(function, {})
    function = normalize(faults_kept(replace(function, body=body), frozenset(closer.closed)))
    body = _Decider(Polyhedra(function)).block(function.body, (), ())
    function = normalize(replace(function, body=body))
    return Closed(function, {var: tuple(done) for var, done in closer.transforms.items()})


def close_one(function: Function, names: frozenset[str]) -> Closed:
    """Give the carried scalars of these names their closed form where they have one; the function stays as it is otherwise."""
    closer = _Closer(function, Polyhedra(function), Names.of(function), only=names)
    body = closer.block(function.body, (), ())
    return Closed(replace(function, body=body), {var: tuple(done) for var, done in closer.transforms.items()})


@dataclass(frozen=True)
class _Form:
    """A carry: its value in terms of the loop variable, its last one. inline: copied into its uses, else named once."""

    value: Expr
    result: Expr
    inline: bool
    what: str


@dataclass
class _Closer:
    function: Function
    polyhedra: Polyhedra
    names: Names
    transforms: dict[str, list[str]] = field(default_factory=dict)
    known: dict[str, Expr] = field(default_factory=dict)  # results of closed carries that are affine
    only: frozenset[str] | None = None  # the carries to close, None for all
    closed: set[str] = field(default_factory=set)  # names of what the iterations compute themselves

    def block(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case For():
                    out += self.loop(stmt, loops, guard)
                case If(condition=condition):
                    then = self.block(stmt.then, loops, (*guard, (condition, True)))
                    orelse = self.block(stmt.orelse, loops, (*guard, (condition, False)))
                    out.append(replace(stmt, then=then, orelse=orelse))
                case _:
                    out.append(stmt)
        return tuple(out)

    def loop(self, loop: For, loops: tuple[For, ...], guard: Guard) -> list[Stmt]:
        loop = self.in_order(replace(loop, body=self.block(loop.body, (*loops, loop), guard)))
        before: list[Stmt] = []
        after: list[Stmt] = []
        while (found := self._first(loop, loops, guard, before)) is not None:
            carry, form = found
            body = loop.body
            if form.inline:
                body = substitute_statements(body, {carry.name: form.value})
            else:
                body = (Let(carry.name, form.value, loop.location), *body)
            inlined = {carry.name: form.value} if form.inline else {}
            if may_fail(carry.next):  # that of the last iteration, with which none begins, is computed too
                last = Let(self.names.fresh(f"{carry.name}_next"), substitute(carry.next, inlined), loop.location)
                body = (*body, last)
            carries = tuple(replace(c, next=substitute(c.next, inlined)) for c in loop.carries if c is not carry)
            loop = replace(loop, body=body, carries=carries)
            after.append(Let(carry.result, form.result, loop.location))
            if affine(form.result) is not None:
                self.known[carry.result] = form.result
            self.closed |= {carry.name, carry.result}
            self.transforms.setdefault(loop.var, []).append(form.what)
        return [*before, loop, *after]

    def in_order(self, loop: For) -> For:
        """The loop, with the steps of one size that decide something rounded one after another."""
        steps = {
            c.name
            for c in loop.carries
            if c.type.category == "float"
            and _steady(loop, c, self._next(loop, c))
            and not _exact(c, self._next(loop, c))
            and decides(self.function, (c.name, c.result))
        }
        if not steps:
            return loop
        self.transforms.setdefault(loop.var, [])  # something is done to the loop, if nothing to tell of
        carries = (replace(c, next=Round(c.next, c.type)) if c.name in steps else c for c in loop.carries)
        return replace(loop, carries=tuple(carries))

    def _first(self, loop: For, loops: tuple[For, ...], guard: Guard, before: list[Stmt]) -> tuple[Carry, _Form] | None:
        start = affine(loop.start)
        stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
        if start is None or _loaded(loop.stop) & stored:  # the last value is told after the loop by where it stops
            return None
        changed = {loop.var} | {c.name for c in loop.carries}
        for stmt in walk(loop.body):
            changed |= set(bound_names(stmt))
            if isinstance(stmt, For):
                changed |= {stmt.var, *(c.name for c in stmt.carries)}
        for carry in loop.carries:
            if self.only is not None and carry.name not in self.only:
                continue
            next_ = self._next(loop, carry)
            form = self._induction(loop, carry, next_, start, changed, loops, guard, before)
            form = form or self._wrapped(loop, carry, next_, start, changed, before)
            if form is not None:
                return carry, form
        return None

    def _next(self, loop: For, carry: Carry) -> Expr:
        """The next value in terms of what the body does not bind, as far as its Lets tell it."""
        lets = definitions(loop.body)
        next_: Expr = carry.next
        for _ in range(len(lets) + 1):
            next_ = simplify(rewrite(substitute(next_, self.known), _alike))
            own = {n: lets[n] for n in free_names(next_) if n in lets}
            if not own or sum(1 for _ in walk_expr(next_)) > _MOST_REPEATED:
                break
            next_ = substitute(next_, own)
        return next_

    # ---- k += c

    def _induction(
        self, loop: For, carry: Carry, next_: Expr, start: Affine, changed: set[str], loops: tuple[For, ...],
        guard: Guard, before: list[Stmt],
    ) -> _Form | None:  # fmt: skip
        passed = (Affine(((loop.var, 1),), 0) - start) * (1 if loop.step > 0 else -1)  # step times the number of iterations
        step = abs(loop.step)
        what = f"induction: {carry.name} in closed form"
        if carry.type == INT64:
            form = affine(next_)
            if form is None or form.coefficient(carry.name) != 1:
                return None
            rest = form - Affine(((carry.name, 1),), 0)
            if rest.names & changed or (rest.terms and step != 1) or (not rest.terms and rest.constant % step):
                return None
            init = self._named(carry, before)
            first = affine(init)
            assert first is not None
            trips = self._trips(loop, loops, guard)
            if not rest.terms:
                result = _sum(init, _product(rest.expr(), trips))
                return _Form((first + passed * (rest.constant // step)).expr(), result, True, what)
            value = _sum(init, _product(rest.expr(), passed.expr()))
            return _Form(value, _sum(init, _product(rest.expr(), trips)), False, what)
        increment = _float_increment(carry, next_)
        if increment is None or step != 1:
            return None
        init = self._named(carry, before)

        def grown(count: Expr) -> Expr:
            amount = Op("mul", (increment, Cast(count, carry.type)), carry.type)
            return Op("add", (init, amount), carry.type)

        return _Form(grown(passed.expr()), grown(self._trips(loop, loops, guard)), False, what)

    def _trips(self, loop: For, loops: tuple[For, ...], guard: Guard) -> Expr:
        """The number of iterations."""
        ends = (loop.stop, loop.start) if loop.step > 0 else (loop.start, loop.stop)
        distance = simplify(Op("sub", ends, INT64))
        none = Const(0, INT64)
        negative = Op("lt", (distance, none), BOOL)
        at_least = affine(distance) is not None and not self.polyhedra.possible(loops, (*guard, (negative, True)))
        count = distance
        if abs(loop.step) != 1:
            step = Const(abs(loop.step), INT64)
            rounded = simplify(_sum(distance, Const(abs(loop.step) - 1, INT64)))
            count = Op("floordiv", (rounded, step), INT64)
        return count if at_least else Op("max", (none, count), INT64)

    def _named(self, carry: Carry, before: list[Stmt]) -> Expr:
        """The initial value as a name, a constant or a sum of such."""
        if isinstance(carry.init, (Const, Ref)) or (carry.type == INT64 and affine(carry.init) is not None):
            return carry.init
        name = self.names.fresh(f"{carry.name}_first")
        before.append(Let(name, carry.init))
        return Ref(name, carry.type)

    # ---- before = b[i]

    def _wrapped(
        self, loop: For, carry: Carry, next_: Expr, start: Affine, changed: set[str], before: list[Stmt]
    ) -> _Form | None:
        by_data = any(isinstance(e, Load) and any(map(_loaded, e.index)) for e in walk_expr(next_))
        most = _MOST_LOOKED_AT if by_data else _MOST_REPEATED
        if free_names(next_) & (changed - {loop.var}) or sum(1 for _ in walk_expr(next_)) > most:
            return None
        if _loaded(next_) & {s.array for s in walk(loop.body) if isinstance(s, Store)}:
            return None
        init = self._named(carry, before)
        var = Ref(loop.var, INT64)

        def at(iteration: Expr) -> Expr:
            return simplify(substitute(next_, {loop.var: iteration}))

        def earlier(expr: Expr, steps: int) -> Expr:
            form = affine(expr)
            return (form + Affine((), -steps)).expr() if form else Op("sub", (expr, Const(steps, INT64)), INT64)

        is_first = Op("eq", (var, start.expr()), BOOL)
        value = Op("where", (is_first, init, at(earlier(var, loop.step))), carry.type)
        ends = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
        if abs(loop.step) == 1:
            last = earlier(loop.stop, loop.step)
        else:  # the multiple of the step that is reached before the stop
            ahead = Op("sub", (earlier(loop.stop, 1 if loop.step > 0 else -1), loop.start), INT64)
            size = Const(abs(loop.step), INT64)
            whole = Op("floordiv", (ahead if loop.step > 0 else Op("neg", (ahead,), INT64), size), INT64)
            last = _sum(loop.start, _product(Const(loop.step, INT64), whole))
        result = Op("where", (Op("lt", ends, BOOL), at(last), init), carry.type)
        return _Form(value, result, False, f"wrap-around: {carry.name} is what the iteration before gives")


def _steady(loop: For, carry: Carry, next_: Expr) -> bool:
    """Whether a loop adds the same number to a carry, or multiplies it by the same, in every iteration or in some."""
    own = Ref(carry.name, carry.type)
    bound = {loop.var, *(c.name for c in loop.carries), *names_bound_in(loop.body)}
    stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}

    def same(e: Expr) -> bool:
        return not free_names(e) & bound and not _loaded(e) & stored

    match next_:
        case Op(name="add" | "sub" | "mul" | "div", args=(a, b)):
            return (a == own and same(b)) or (b == own and same(a))
        case Op(name="where", args=(_, then, orelse)):
            sides = [e for e in (then, orelse) if e != own]
            return bool(sides) and all(same(e) or _steady(loop, carry, e) for e in sides)
    return False


def _exact(carry: Carry, next_: Expr) -> bool:
    """Whether a loop adds whole numbers to one, in some iterations or in all, whose sums no loop is long enough to round."""
    own = Ref(carry.name, carry.type)

    def whole(e: Expr) -> bool:
        return isinstance(e, Const) and math.isfinite(e.value) and abs(e.value) <= _LARGEST_STEP and e.value == int(e.value)

    def steps(e: Expr) -> bool:
        match e:
            case Op(name="add" | "sub" as name, args=(a, b)):
                return (a == own and whole(b)) or (name == "add" and b == own and whole(a))
            case Op(name="where", args=(_, then, orelse)):
                return steps(then) and steps(orelse)
        return e == own

    return carry.type == FLOAT64 and whole(carry.init) and steps(next_)


def _loaded(expr: Expr) -> set[str]:
    return {e.array for e in walk_expr(expr) if isinstance(e, Load)}


def _alike(e: Expr) -> Expr | None:
    """A choice between equals is no choice."""
    return e.args[1] if isinstance(e, Op) and e.name == "where" and e.args[1] == e.args[2] else None


def _float_increment(carry: Carry, next_: Expr) -> Const | None:
    own = Ref(carry.name, carry.type)
    match next_:
        case Op(name="add", args=(a, b)) if carry.type.category == "float":
            constant = b if a == own else a if b == own else None
        case Op(name="sub", args=(a, Const(value=value, type=type_))) if a == own and carry.type.category == "float":
            constant = Const(-value, type_)
        case _:
            return None
    if isinstance(constant, Const) and math.isfinite(constant.value) and abs(constant.value) <= _LARGEST_INCREMENT:
        return constant
    return None


def _sum(a: Expr, b: Expr) -> Expr:
    return simplify(Op("add", (a, b), INT64))


def _product(a: Expr, b: Expr) -> Expr:
    return simplify(Op("mul", (a, b), INT64))


# ---------------------------------------------------------------- conditions that the loops around decide


@dataclass(frozen=True)
class _Decider:
    """Decides comparisons of sums of loop variables where the loops around leave one answer: `j < 0` once j is i + 1."""

    polyhedra: Polyhedra

    def block(self, statements: tuple[Stmt, ...], loops: tuple[For, ...], guard: Guard) -> tuple[Stmt, ...]:
        return tuple(self.statement(s, loops, guard) for s in statements)

    def statement(self, stmt: Stmt, loops: tuple[For, ...], guard: Guard) -> Stmt:
        def expr(e: Expr) -> Expr:
            return rewrite(e, lambda x: self.decided(x, loops, guard))

        match stmt:
            case For():
                inner = (*loops, stmt)
                carries = tuple(
                    replace(c, init=expr(c.init), next=rewrite(c.next, lambda x: self.decided(x, inner, guard)))
                    for c in stmt.carries
                )
                body = self.block(stmt.body, inner, guard)
                return replace(stmt, start=expr(stmt.start), stop=expr(stmt.stop), carries=carries, body=body)
            case If(condition=condition):
                then = self.block(stmt.then, loops, (*guard, (condition, True)))
                orelse = self.block(stmt.orelse, loops, (*guard, (condition, False)))
                return map_statement(replace(stmt, then=then, orelse=orelse), expr, lambda b: b)
        return map_statement(stmt, expr, lambda b: b)

    def decided(self, e: Expr, loops: tuple[For, ...], guard: Guard) -> Expr | None:
        if not (isinstance(e, Op) and e.name == "where" and e.type == INT64 and loops):
            return None
        condition, then, orelse = e.args
        match condition:
            case Op(name="lt" | "le" | "gt" | "ge" | "eq" | "ne", args=(a, b)) if a.type == INT64:
                if affine(a) is None or affine(b) is None:
                    return None
                if not self.polyhedra.possible(loops, (*guard, (condition, True))):
                    return orelse
                if not self.polyhedra.possible(loops, (*guard, (condition, False))):
                    return then
        return None
