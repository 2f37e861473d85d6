"""The adjoints of statements and expressions, last first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from weft.errors import NotDifferentiable
from weft.loops.accumulate import accumulate_into, accumulation
from weft.loops.adjoint.elements import Elements
from weft.loops.adjoint.extrema import Extremum, extremum_of
from weft.loops.adjoint.facts import Facts
from weft.loops.adjoint.scope import Scope
from weft.loops.adjoint.seeds import Seed, Seeds, both, negated
from weft.loops.adjoint.values import elementwise
from weft.loops.derivatives import contributions, is_unknown, keeps_zero, passed_through, taken
from weft.loops.ir import (
    FALSE,
    ONE,
    TRUE,
    Carry,
    Cast,
    Const,
    Equality,
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
    free_names,
    operands,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.simplify import add, base_name, drop_dead, fold, number, propagate
from weft.loops.types import BOOL, INT64


class Reverse(Elements):
    """The adjoints of the function's statements."""

    def __init__(self, facts: Facts, names: Names) -> None:
        super().__init__(facts, names)
        self.moving: dict[Expr, bool] = {}
        self.divided: dict[str, tuple[Extremum, Expr, Seed]] = {}  # extrema that a loop around goes on with, by the carry

    def build(self) -> Function:
        """The adjoint as it comes: sums in the order of the function's loops, last first. Raises NotDifferentiable."""
        scope = Scope()
        body: list[Stmt] = []
        for name in self.facts.copied:
            if not self.facts.arrays[name].within:
                scope.adjoints[name] = self._adjoint_array(name, scope)
                if self.facts.arrays[name].role == "result" and self.facts.kept[name] == "copied":
                    body += self._copy(scope.adjoints[name], name)
        block, _ = self.block(self.facts.function.body, scope, {}, ())
        body += block
        for w in self.facts.wanted:
            if w in self.facts.function.results:
                body += self._pass_through(w)
        whole = replace(self.frame.function, arrays=tuple(self.arrays), body=tuple(body), equalities=self._equalities())
        made = drop_dead(propagate(whole))
        self._check(made)
        return made

    def _equalities(self) -> tuple[Equality, ...]:
        """What the frame asks of sizes, and that those are above 0 without which no tape's size were known."""
        sizes: dict[Expr, str] = {Ref(s.name, INT64): f"{s.array}.shape[{s.axis}]" for s in self.facts.function.sizes}
        above = tuple(
            Equality(
                Op("min", (size, ONE), INT64), ONE,
                f"the gradient knows how far this loop goes where {sizes.get(size, 'the one inside')} is above 0 alone", where,
            )
            for size, where in self.asked.items()
        )  # fmt: skip
        return (*self.frame.function.equalities, *above)

    def block(
        self,
        statements: tuple[Stmt, ...],
        scope: Scope,
        seeds: Seeds,
        tail: Iterable[tuple[Expr, Seed]],
        extrema: Iterable[tuple[Extremum, Expr, Seed]] = (),
        branch: bool = False,
    ) -> tuple[list[Stmt], Seeds]:
        """The sweep of a block and its adjoint; returns the statements and the adjoints of the names from around it.

        tail: pairs (an expression at the end of the block, its adjoint). extrema: (which, the last value or the iteration
        that has the adjoint, the share of each such element). branch: the block is a branch, where no array has its home.
        """
        for array in self.facts.copied:
            within = self.facts.arrays[array].within
            if within and scope.path[-1:] == within[-1:] and not branch:
                scope.adjoints[array] = self._adjoint_array(array, scope)
        out = self.sweep_block(statements, scope, branch)
        adj = dict(seeds)
        for e, seed in tail:
            self.backward(e, seed, scope, adj, out)
        for extremum, at, share_ in extrema:
            self._hand_to_elements(extremum, at, share_, scope, adj, out)
        for stmt in reversed(statements):
            self.location = stmt.location
            match stmt:
                case Let():
                    self._reverse_let(stmt, scope, adj, out)
                case Store():
                    self._reverse_store(stmt, scope, adj, out)
                case If():
                    self._reverse_if(stmt, scope, adj, out)
                case For():
                    self._reverse_loop(stmt, scope, adj, out)
        return out, adj

    def _copy(self, adjoint_array: str, name: str) -> list[Stmt]:
        return elementwise(adjoint_array, self.facts.arrays[name].shape, lambda i: self._result_seed(name, i), self.names)

    def _pass_through(self, name: str) -> list[Stmt]:
        """An input that the function returns as it is."""
        gradient = self.frame.gradients[name]
        type_ = self.facts.arrays[name].dtype.opmath

        def value(index: tuple[Expr, ...]) -> Expr:
            return Op("add", (Load(gradient, index, type_), self._result_seed(name, index)), type_)

        return elementwise(gradient, self.facts.arrays[name].shape, value, self.names)

    def _result_seed(self, name: str, index: tuple[Expr, ...]) -> Expr:
        type_ = self.facts.arrays[name].dtype.opmath
        total: Expr = number(0, type_)
        for seed in self.frame.seeds.get(name, ()):
            total = add(total, Load(seed, index, type_))
        return total

    def _reverse_let(self, stmt: Let, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        seed = adj.pop(stmt.name, None)
        if seed is not None:
            bound = self._bind(self._rounded(stmt.name, seed.value), f"d_{stmt.name}", out)
            self.backward(stmt.value, replace(seed, value=bound), scope, adj, out)

    def _rounded(self, name: str, seed: Expr) -> Expr:
        """What is handed back to a name. To PyTorch a sum of products of two numbers of a 16-bit type is one of them, and so is
        its gradient: then the gradients of the factors are sums of products of two such numbers as well.
        """
        type_ = self.facts.half_sums.get(name)
        if type_ is None or isinstance(seed, Const) or (isinstance(seed, Ref) and self.rounded.get(seed.name) == type_):
            return seed
        return Round(seed, type_)

    def _reverse_store(self, stmt: Store, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        kept = self.facts.kept.get(stmt.array)
        role = self.facts.arrays[stmt.array].role
        if kept is None or (role == "local" and not self.facts.memory.loaded_after(stmt.array, stmt.index)):
            return
        type_ = stmt.value.type
        index = tuple(self.primal(i, scope) for i in stmt.index)
        own = accumulation(stmt, alone=False)
        seed: Expr = number(0, type_)
        if kept != "copied" and role == "result":
            seed = self._result_seed(stmt.array, index)
        if stmt.array in scope.adjoints:
            seed = add(seed, Load(scope.adjoints[stmt.array], index, type_))
        handed = self.handed.get(scope.adjoints.get(stmt.array, ""))
        there = None if handed is None else Load(handed, index, BOOL)
        seed = self._bind(seed, f"d_{stmt.array}", out)
        if kept == "copied" and own is None and not self.facts.memory.first(stmt.array, stmt.index):
            out.append(Store(scope.adjoints[stmt.array], index, number(0, type_), stmt.location))
        found = Seed(seed, there, across=there is not None)
        self.backward(stmt.value if own is None else own, found, scope, adj, out)

    def _reverse_if(self, stmt: If, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        seeds = {m.name: adj.pop(m.name) for m in stmt.merges if m.name in adj}
        bound = {n: replace(s, value=self._bind(s.value, f"d_{n}", out)) for n, s in seeds.items()}
        left, right = scope.fork(), scope.fork()
        then, a = self.block(stmt.then, left, {}, _pairs(stmt.merges, bound, "then"), branch=True)
        orelse, b = self.block(stmt.orelse, right, {}, _pairs(stmt.merges, bound, "orelse"), branch=True)
        self._join(self.primal(stmt.condition, scope), (then, a), (orelse, b), adj, out)

    def _join(
        self,
        condition: Expr,
        then: tuple[list[Stmt], Seeds],
        orelse: tuple[list[Stmt], Seeds],
        adj: Seeds,
        out: list[Stmt],
    ) -> None:
        """A branch whose two sides contribute to adjoints."""
        names = tuple(dict.fromkeys((*then[1], *orelse[1])))
        if names:
            condition = self._bind(condition, "taken", out)
        merges: list[Merge] = []
        for name in names:
            sides = (then[1].get(name), orelse[1].get(name))
            type_ = next(s.type for s in sides if s is not None)
            values = [number(0, type_) if s is None else s.settled for s in sides]
            merge = Merge(self.names.fresh(f"d_{name}"), *values)
            self.temporary.add(merge.name)
            merges.append(merge)
            there = [FALSE if s is None else TRUE if s.when is None else s.when for s in sides]
            when: Expr | None
            if there == [TRUE, TRUE]:
                when = None
            elif set(there) == {TRUE, FALSE}:
                when = condition if there[0] == TRUE else negated(condition)
            else:
                handed = Merge(self.names.fresh(f"d_{name}_there"), *there)
                merges.append(handed)
                when = Ref(handed.name, BOOL)
            across = any(s.across for s in sides if s is not None)
            self._contribute(adj, name, Seed(Ref(merge.name, type_), when, across))
        if merges or then[0] or orelse[0]:
            out.append(If(condition, tuple(then[0]), tuple(orelse[0]), tuple(merges), self.location))

    def _contribute(self, adj: Seeds, name: str, seed: Seed) -> None:
        adj[name] = adj[name] + seed if name in adj else seed

    def _reverse_loop(self, stmt: For, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        location = stmt.location
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        var = Ref(self.names.fresh(stmt.var), INT64)
        inner.names[stmt.var] = var
        prologue: list[Stmt] = []
        for c in stmt.carries:
            before = self._before(stmt, c, inner)
            ref = Ref(self.names.fresh(c.name), c.type)
            prologue.append(Let(ref.name, before, location))
            inner.names[c.name] = ref
        extrema: list[tuple[Extremum, Expr, Seed]] = []
        carried: dict[str, tuple[Carry, Seed, Seed | None]] = {}
        for c in stmt.carries:
            seed = adj.pop(c.result, None)
            if seed is not None:
                seed = replace(seed, value=self._bind(self._rounded(c.result, seed.value), f"d_{c.result}", out))
            if c.name in self.divided:
                extrema.append(self.divided.pop(c.name))
                continue
            if c.name not in self.facts.active and c.result not in self.facts.active:
                continue
            extremum = extremum_of(stmt, c)
            if extremum is not None and extremum.ties is not None:
                if seed is not None:
                    share_of, first = self._divided(stmt, extremum, seed, scope, out)
                    extrema.append(share_of)
                    if first is not None:
                        self.backward(c.init, first, scope, adj, out)
                continue
            ref = Ref(self.names.fresh(f"d_{c.name}"), c.type)
            there = Ref(self.names.fresh(f"d_{c.name}_there"), BOOL)
            carried[c.name] = (c, Seed(ref, there, across=True), seed)
        tail = [(c.next, own) for c, own, _ in carried.values()]
        body, contributed = self.block(stmt.body, inner, {}, tail, extrema)
        carries: list[Carry] = []
        handed: list[tuple[Carry, Seed]] = []
        unchanged = True
        for name, (c, own, last) in carried.items():
            after = contributed.pop(name, None)
            carries += self._carried_seed(own, last, after)
            unchanged = unchanged and after is not None and after.settled == own.value
            handed.append((c, Seed(Ref(carries[-2].result, c.type), Ref(carries[-1].result, BOOL), across=True)))
        for name, seed in contributed.items():
            total = Ref(self.names.fresh(f"d_{name}_sum"), seed.type)
            result = Ref(self.names.fresh(f"d_{name}_sum"), seed.type)
            carries.append(Carry(total.name, number(0, seed.type), add(total, seed.settled), result.name))
            self._contribute(adj, name, Seed(result, self._in_some_iteration(stmt, seed, scope, carries), across=True))
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        step = stmt.step
        if not unchanged or self._orders_memory(body, stmt.var):
            start, stop, step = _reversed(start, stop, step)
        loop = For(var.name, start, stop, step, tuple(carries), (*prologue, *body), stmt.implied, location)
        out.append(loop)
        self.location = location
        for c, seed in handed:
            self.backward(c.init, seed, scope, adj, out)

    def _carried_seed(self, own: Seed, init: Seed | None, after: Seed | None) -> tuple[Carry, Carry]:
        """The carries of the adjoint of a carried scalar and of where it is: what it starts with, and what comes after an
        iteration.
        """

        def value(seed: Seed | None) -> Expr:
            return number(0, own.type) if seed is None else seed.settled

        def there(seed: Seed | None) -> Expr:
            return FALSE if seed is None else TRUE if seed.when is None else seed.when

        assert isinstance(own.value, Ref) and isinstance(own.when, Ref)
        results = [self.names.fresh(base_name(n)) for n in (own.value.name, own.when.name)]
        return (
            Carry(own.value.name, value(init), value(after), results[0]),
            Carry(own.when.name, there(init), there(after), results[1]),
        )

    def _in_some_iteration(self, loop: For, seed: Seed, scope: Scope, carries: list[Carry]) -> Expr | None:
        """Where an iteration of a loop handed something on; loops over sizes are taken to have iterations."""
        if seed.when is None:
            sizes = {s.name for s in self.facts.function.sizes}
            if free_names(loop.start) | free_names(loop.stop) <= sizes:
                return None
            ends = (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start)
            return self.primal(Op("lt", ends, BOOL), scope)
        there, result = Ref(self.names.fresh("there"), BOOL), Ref(self.names.fresh("there"), BOOL)
        carries.append(Carry(there.name, FALSE, Op("or", (there, seed.when), BOOL), result.name))
        return result

    def _orders_memory(self, statements: Iterable[Stmt], var: str) -> bool:
        """Whether the statements change memory that iterations of the loop over `var` share, so that order matters."""
        gradients = set(self.frame.gradients.values())
        saved = {tape for tape, _ in self.tapes.values()}
        made = {s.array for s in walk(tuple(statements)) if isinstance(s, Store)}
        return any(self.facts.memory.shared(self.owner[a], var) for a in made - gradients - saved)

    def _hand_to_elements(
        self, extremum: Extremum, at: Expr, share_: Seed, scope: Scope, adj: Seeds, out: list[Stmt]
    ) -> None:
        if extremum.nested is not None:
            nested = replace(extremum.nested[1], around=(*extremum.around, scope.loops[-1]), kept=extremum.kept)
            self.divided[nested.carry.name] = (nested, at, share_)
            return
        inside: list[Stmt] = []
        taken_: Seeds = {}
        self.backward(extremum.element, share_, scope, taken_, inside)
        if extremum.ties == "shared":
            condition = self._attains(extremum, at, scope)
        else:
            condition = Op("eq", (self._place((*extremum.around, scope.loops[-1]), scope), at), BOOL)
        self._join(condition, (inside, taken_), ([], {}), adj, out)

    def _moves(self, e: Expr) -> bool:
        """Whether the expression has an active source."""
        known = self.moving.get(e)
        if known is None:
            match e:
                case Load():
                    known = e.type.category == "float" and e.array in self.facts.active_arrays
                case Ref():
                    known = e.type.category == "float" and e.name in self.facts.active
                case _:
                    known = any([self._moves(o) for o in passed_through(e)])
            self.moving[e] = known
        return known

    def backward(self, e: Expr, seed: Seed, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        """Hand the adjoint of an expression on to the names and elements it is made of."""
        if self._moves(e):
            self._backward(e, self.primal(e, scope), seed, scope, adj, out)

    def _backward(self, e: Expr, primal: Expr, seed: Seed, scope: Scope, adj: Seeds, out: list[Stmt]) -> None:
        """`backward`; primal: the expression evaluated in the adjoint."""
        if not self._moves(e) or (isinstance(seed.value, Const) and seed.value.value == 0):
            return
        match e:
            case Ref(name=name):
                self._contribute(adj, name, seed)
            case Load():
                self._deposit(e, seed, scope, out)
            case Cast(value=value) | Round(value=value):
                if seed.type != value.type:
                    seed = replace(seed, value=Cast(seed.value, value.type))
                self._backward(value, operands(primal)[0], seed, scope, adj, out)
            case Op(name="where", args=(_, a, b), derivative=""):
                condition, *sides = operands(primal)
                seed = replace(seed, value=self._bind(seed.value, "d", out))
                then: tuple[list[Stmt], Seeds] = ([], {})
                orelse: tuple[list[Stmt], Seeds] = ([], {})
                self._backward(a, sides[0], seed, scope, then[1], then[0])
                self._backward(b, sides[1], seed, scope, orelse[1], orelse[0])
                self._join(condition, then, orelse, adj, out)
            case Op():
                self._through_operator(e, operands(primal), seed, scope, adj, out)

    def _through_operator(
        self, e: Op, primal: tuple[Expr, ...], seed: Seed, scope: Scope, adj: Seeds, out: list[Stmt]
    ) -> None:
        if sum(map(self._moves, e.args)) > 1:
            seed = replace(seed, value=self._bind(seed.value, "d", out))
        args = e.args
        result = replace(e, args=primal)
        parts, chosen = contributions(e, seed.value, primal, result), taken(e, primal)
        if len(args) == 2 and args[0] == args[1] and None not in parts:
            args, parts, chosen = args[:1], (add(parts[0], parts[1]),), None  # type: ignore[arg-type]
        if seed.when is not None and not keeps_zero(result, seed.across and not self._may_be_infinite(e)):
            seed = replace(seed, spoilt=True)
        for k, (a, part) in enumerate(zip(args, parts, strict=True)):
            if not self._moves(a):
                continue
            if is_unknown(e, k):
                raise NotDifferentiable(
                    f"the derivative of {e.name} with respect to its operand {k} is not known",
                    location=self.facts.function.location,
                    remedy="compute it without gradients (torch.no_grad, detach), or write it as a function of your own",
                )
            if part is None:
                continue
            when = seed.when if chosen is None else both(seed.when, self._bind(chosen[k], "taken", out))
            self._backward(a, primal[k], replace(seed, value=part, when=when), scope, adj, out)

    def _may_be_infinite(self, e: Expr) -> bool:
        return bool(self.facts.infinite) and any(
            (isinstance(x, Const) and not math.isfinite(x.value))
            or (isinstance(x, Ref) and x.name in self.facts.infinite)
            or (isinstance(x, Load) and x.array in self.facts.infinite)
            for x in walk_expr(e)
        )

    def _deposit(self, load: Load, seed: Seed, scope: Scope, out: list[Stmt]) -> None:
        index = tuple(self.primal(i, scope) for i in load.index)
        target = self.frame.gradients.get(load.array) or scope.adjoints[load.array]
        location = load.location or self.location
        out.append(replace(accumulate_into(target, index, seed.settled), location=location))
        handed = self.handed.get(target)
        if handed is not None:
            there: Expr = TRUE if seed.when is None else Op("or", (Load(handed, index, BOOL), seed.when), BOOL)
            out.append(Store(handed, index, there, location))


def _pairs(merges: tuple[Merge, ...], seeds: Seeds, side: Literal["then", "orelse"]) -> list[tuple[Expr, Seed]]:
    return [(getattr(m, side), seeds[m.name]) for m in merges if m.name in seeds]


def _reversed(start: Expr, stop: Expr, step: int) -> tuple[Expr, Expr, int]:
    """The same iterations, last first."""
    one = Const(1, INT64)
    if step == 1:
        return fold(Op("sub", (stop, one), INT64)), fold(Op("sub", (start, one), INT64)), -1
    if step == -1:
        return fold(Op("add", (stop, one), INT64)), fold(Op("add", (start, one), INT64)), 1
    ends = (stop, start) if step > 0 else (start, stop)
    span = Op("sub", (fold(Op("sub", ends, INT64)), one), INT64)
    count = Op("floordiv", (fold(span), Const(abs(step), INT64)), INT64)
    last = Op("add", (start, Op("mul", (count, Const(step, INT64)), INT64)), INT64)
    return last, fold(Op("sub" if step > 0 else "add", (start, one), INT64)), -step
