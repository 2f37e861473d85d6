"""General passes over the loop nest: arithmetic without needless operations, dead code, common subexpressions.

Each pass is a pure function from a Function to one of equal meaning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from weft.errors import Location
from weft.loops.affine import affine
from weft.loops.ir import (
    FALSE,
    Carry,
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
    Stmt,
    Store,
    certain_in,
    certain_operands,
    free_arrays,
    free_names,
    loaded_arrays,
    map_statement,
    operands,
    rewrite,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.types import BOOL, INT64, ScalarType

# ---------------------------------------------------------------- arithmetic


def number(value: float, type_: ScalarType) -> Const:
    """A constant of an int or float type."""
    return Const(float(value) if type_.category == "float" else int(value), type_)


def zero(type_: ScalarType) -> Const:
    """0 of any type: what stands where a value is never used, too."""
    return FALSE if type_ == BOOL else number(0, type_)


def is_number(expr: Expr, value: float) -> bool:
    return isinstance(expr, Const) and not isinstance(expr.value, bool) and expr.value == value


def _negated(expr: Expr) -> Expr | None:
    """The operand of a negation."""
    return expr.args[0] if isinstance(expr, Op) and expr.name == "neg" else None


def neg(a: Expr) -> Expr:
    inner = _negated(a)
    if inner is not None:
        return inner
    if isinstance(a, Const) and a.type.category == "float":
        return Const(-a.value, a.type)
    return Op("neg", (a,), a.type)


def add(a: Expr, b: Expr) -> Expr:
    if is_number(a, 0):
        return b
    if is_number(b, 0):
        return a
    minus = _negated(b)
    if minus is not None:
        return sub(a, minus)
    minus = _negated(a)
    if minus is not None:
        return sub(b, minus)
    if a == b and a.type.category == "float":
        return mul(number(2, a.type), a)
    return Op("add", (a, b), a.type)


def sub(a: Expr, b: Expr) -> Expr:
    if is_number(b, 0):
        return a
    if is_number(a, 0):
        return neg(b)
    minus = _negated(b)
    if minus is not None:
        return add(a, minus)
    return Op("sub", (a, b), a.type)


def mul(a: Expr, b: Expr) -> Expr:
    for one, other in ((a, b), (b, a)):
        if is_number(one, 1):
            return other
        if is_number(one, -1):
            return neg(other)
    left, right = _negated(a), _negated(b)
    if left is not None and right is not None:
        return mul(left, right)
    if left is not None:
        return neg(mul(left, b))
    if right is not None:
        return neg(mul(a, right))
    return Op("mul", (a, b), a.type)


def div(a: Expr, b: Expr) -> Expr:
    if is_number(b, 1):
        return a
    minus = _negated(a)
    if minus is not None:
        return neg(div(minus, b))
    return Op("div", (a, b), a.type)


def select(condition: Expr, then: Expr, orelse: Expr) -> Expr:
    """`then if condition else orelse`."""
    if isinstance(condition, Const):
        return then if condition.value else orelse
    if then == orelse:
        return then
    if condition == orelse:
        return Op("and", (condition, then), condition.type)
    if condition == then:
        return Op("or", (condition, orelse), condition.type)
    return Op("where", (condition, then, orelse), then.type)


_CONSTRUCTORS: dict[str, Callable[[Expr, Expr], Expr]] = {"add": add, "sub": sub, "mul": mul, "div": div}


def fold(expr: Expr) -> Expr:
    """Drop operations that change nothing (x + 0, x * 1, x / 1, --x); bring index arithmetic to its affine form."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Op(name="add" | "sub" | "mul" | "neg", type=type_) if type_ == INT64:
                form = affine(e)
                return None if form is None else form.expr()
            case Op(name=name, args=(a, b), type=type_) if name in _CONSTRUCTORS and type_.category == "float":
                return _CONSTRUCTORS[name](a, b)
            case Op(name="neg", args=(a,), type=type_) if type_.category == "float":
                return neg(a)
            case Op(name="where", args=(condition, then, orelse)):
                chosen = select(condition, then, orelse)
                return None if chosen == e else chosen  # it keeps its own derivative
            case Cast(value=value, type=type_) if value.type == type_:
                return value
        return None

    return rewrite(expr, rule)


# ---------------------------------------------------------------- names and branches

# A branch whose values are larger than this stays a branch rather than being copied into `where`.
_COPY_LIMIT = 64


def propagate(function: Function) -> Function:
    """Fold arithmetic, copy plain values into their uses, drop carries that never change, and turn branches that only
    choose a value into `where`.
    """
    return replace(function, body=_propagate(function.body, {}))


def _propagate(statements: tuple[Stmt, ...], names: dict[str, Expr]) -> tuple[Stmt, ...]:
    def expr(e: Expr) -> Expr:
        return fold(substitute(e, names))

    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let():
                value = expr(stmt.value)
                if isinstance(value, (Ref, Const)) or (value.type == INT64 and affine(value) is not None):
                    names[stmt.name] = value
                else:
                    out.append(replace(stmt, value=value))
            case Store():
                store = map_statement(stmt, expr, lambda b: b)
                assert isinstance(store, Store)
                if store.value != Load(store.array, store.index, store.value.type):
                    out.append(store)
            case For():
                out.append(_propagate_loop(stmt, names))
            case If():
                condition = expr(stmt.condition)
                then, orelse = _propagate(stmt.then, names), _propagate(stmt.orelse, names)
                merges = [replace(m, then=expr(m.then), orelse=expr(m.orelse)) for m in stmt.merges]
                out += _select_branch(stmt, condition, then, orelse, merges, names)
    return tuple(out)


def _propagate_loop(loop: For, names: dict[str, Expr]) -> For:
    def expr(e: Expr) -> Expr:
        return fold(substitute(e, names))

    start, stop = expr(loop.start), expr(loop.stop)
    inits = {c.name: expr(c.init) for c in loop.carries}
    for c in loop.carries:
        if _never_changes(c, inits[c.name]):
            names[c.name] = names[c.result] = inits[c.name]
    body = _propagate(loop.body, names)
    carries = tuple(replace(c, init=inits[c.name], next=expr(c.next)) for c in loop.carries if c.name not in names)
    kept = replace(loop, start=start, stop=stop, carries=carries, body=body)
    if any(_never_changes(c, c.init) for c in carries):  # seen only now that the body is folded
        return _propagate_loop(kept, names)
    return kept


def _never_changes(carry: Carry, init: Expr) -> bool:
    return carry.next == Ref(carry.name, carry.type) or (isinstance(init, Const) and carry.next == init)


def _select_branch(
    stmt: If,
    condition: Expr,
    then: tuple[Stmt, ...],
    orelse: tuple[Stmt, ...],
    merges: list[Merge],
    names: dict[str, Expr],
) -> list[Stmt]:
    if isinstance(condition, Const):
        names |= {m.name: m.then if condition.value else m.orelse for m in merges}
        return list(then if condition.value else orelse)
    if any(not isinstance(s, Let) for s in (*then, *orelse)):
        names |= {m.name: m.then for m in merges if m.then == m.orelse and isinstance(m.then, (Ref, Const))}
        merges = [m for m in merges if m.name not in names]
        return [replace(stmt, condition=condition, then=then, orelse=orelse, merges=tuple(merges))]
    local: dict[str, Expr] = {}
    for s in (*then, *orelse):
        assert isinstance(s, Let)
        local[s.name] = substitute(s.value, local)
    chosen = [select(condition, substitute(m.then, local), substitute(m.orelse, local)) for m in merges]
    if local and sum(1 for e in chosen for _ in walk_expr(e)) > _COPY_LIMIT:
        return [replace(stmt, condition=condition, then=then, orelse=orelse, merges=tuple(merges))]
    out: list[Stmt] = []
    for m, value in zip(merges, chosen, strict=True):
        if isinstance(value, (Ref, Const)):
            names[m.name] = value
        else:
            out.append(Let(m.name, value, stmt.location))
    return out


# ---------------------------------------------------------------- dead code


def drop_dead(function: Function) -> Function:
    """Remove what no result depends on: bindings, carries, stores to arrays that nothing reads, and those arrays."""
    liveness = _Liveness({*function.results, *(a.name for a in function.arrays if a.role == "inout")})
    while liveness.mark(function.body):
        pass
    body = liveness.kept(function.body)
    touched = {s.array for s in walk(body) if isinstance(s, Store)} | loaded_arrays(body)
    arrays = tuple(a for a in function.arrays if a.role != "local" or a.name in touched)
    return replace(function, body=body, arrays=arrays)


class _Liveness:
    def __init__(self, arrays: set[str]) -> None:
        self.arrays, self.names = arrays, set[str]()

    def use(self, *exprs: Expr) -> None:
        for expr in exprs:
            for e in walk_expr(expr):
                if isinstance(e, Ref):
                    self.names.add(e.name)
                elif isinstance(e, Load):
                    self.arrays.add(e.array)

    def mark(self, statements: tuple[Stmt, ...]) -> bool:
        """Mark what live statements use; whether anything was new."""
        before = len(self.names) + len(self.arrays)
        self.block(statements)
        return len(self.names) + len(self.arrays) > before

    def block(self, statements: tuple[Stmt, ...]) -> bool:
        """Mark a block; whether anything in it is live."""
        live = False
        for stmt in reversed(statements):
            live |= self.statement(stmt)
        return live

    def statement(self, stmt: Stmt) -> bool:
        match stmt:
            case Let():
                if stmt.name in self.names:
                    self.use(stmt.value)
                return stmt.name in self.names
            case Store():
                if stmt.array in self.arrays:
                    self.use(*stmt.index, stmt.value)
                return stmt.array in self.arrays
            case If():
                live = False
                for m in stmt.merges:
                    if m.name in self.names:
                        live = True
                        self.use(m.then, m.orelse)
                live |= self.block(stmt.then) | self.block(stmt.orelse)
                if live:
                    self.use(stmt.condition)
                return live
            case For():
                live = False
                for c in stmt.carries:
                    if self.carry(c):
                        live = True
                        self.names |= {c.name, c.result}
                        self.use(c.init, c.next)
                live |= self.block(stmt.body)
                if live:
                    self.use(stmt.start, stmt.stop)
                return live
        raise TypeError(stmt)

    def carry(self, c: Carry) -> bool:
        return c.name in self.names or c.result in self.names

    def kept(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case Let():
                    if stmt.name in self.names:
                        out.append(stmt)
                case Store():
                    if stmt.array in self.arrays:
                        out.append(stmt)
                case If():
                    merges = tuple(m for m in stmt.merges if m.name in self.names)
                    then, orelse = self.kept(stmt.then), self.kept(stmt.orelse)
                    if merges or then or orelse:
                        out.append(replace(stmt, then=then, orelse=orelse, merges=merges))
                case For():
                    carries = tuple(c for c in stmt.carries if self.carry(c))
                    body = self.kept(stmt.body)
                    if carries or body:
                        out.append(replace(stmt, carries=carries, body=body))
        return tuple(out)


# ---------------------------------------------------------------- common subexpressions


def share(function: Function, names: Names) -> Function:
    """Bind float subexpressions that occur more than once to names, where they are certain to be evaluated."""
    stable = frozenset(a.name for a in function.arrays if a.role == "input")
    return replace(function, body=_share(function.body, {}, stable, names))


def _costly(expr: Expr, stable: frozenset[str]) -> bool:
    """Worth a name, and the same wherever it is evaluated."""
    if not isinstance(expr, Op) or expr.type.category != "float" or expr.name == "neg":
        return False
    if all(isinstance(a, Const) for a in expr.args):
        return False
    return free_arrays(expr) <= stable


def _replace_known(expr: Expr, known: dict[Expr, Ref]) -> Expr:
    """Replace the largest known subexpressions."""
    if expr in known:
        return known[expr]
    old = operands(expr)
    new = tuple(_replace_known(o, known) for o in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return expr
    expr = with_operands(expr, new)
    return known.get(expr, expr)


def _replace_in(statements: tuple[Stmt, ...], known: dict[Expr, Ref]) -> tuple[Stmt, ...]:
    def expr(e: Expr) -> Expr:
        return _replace_known(e, known)

    return tuple(map_statement(s, expr, lambda b: _replace_in(b, known)) for s in statements)


def _share(
    statements: tuple[Stmt, ...], known: dict[Expr, Ref], stable: frozenset[str], names: Names
) -> tuple[Stmt, ...]:
    known = dict(known)
    out: list[Stmt] = []
    for k, stmt in enumerate(statements):
        stmt = map_statement(stmt, lambda e: _replace_known(e, known), lambda b: b)
        while True:
            own = own_exprs(stmt)
            certain = [e for x in own for e in certain_in(x) if _costly(e, stable)]
            if isinstance(stmt, Let):
                certain = [e for e in certain if e is not stmt.value]
            if not certain:
                break
            later = dict(known)
            if isinstance(stmt, Let) and _costly(stmt.value, stable):
                later.setdefault(stmt.value, Ref(stmt.name, stmt.value.type))
            rest = _replace_in(statements[k + 1 :], later)
            counts = Counter(e for s in walk((stmt, *rest)) for x in statement_exprs(s) for e in walk_expr(x))
            found = next((e for e in certain if counts[e] > 1), None)
            if found is None:
                break
            ref = Ref(names.fresh("shared"), found.type)
            out.append(Let(ref.name, found, stmt.location))
            known[found] = ref
            stmt = map_statement(stmt, lambda e: _replace_known(e, known), lambda b: b)
        if isinstance(stmt, Let) and _costly(stmt.value, stable):
            known.setdefault(stmt.value, Ref(stmt.name, stmt.value.type))
        if isinstance(stmt, For):
            body = _share_with_ends(stmt, known, stable, names)
            stmt = body
        elif isinstance(stmt, If):
            then, orelse = _share(stmt.then, known, stable, names), _share(stmt.orelse, known, stable, names)
            stmt = replace(stmt, then=then, orelse=orelse)
        out.append(stmt)
    return tuple(out)


def own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates for certain, in its own block."""
    match stmt:
        case For():
            return (stmt.start, stmt.stop, *(c.init for c in stmt.carries))
        case If():
            return (stmt.condition,)
    return statement_exprs(stmt)


def _share_with_ends(loop: For, known: dict[Expr, Ref], stable: frozenset[str], names: Names) -> For:
    """Share in a loop body, with the next values of its carries as its last statements."""
    ends = tuple(Let(names.fresh(f"{c.name}_next"), c.next) for c in loop.carries)
    done = _share((*loop.body, *ends), known, stable, names)
    own = {s.name for s in ends}
    last = {s.name: s.value for s in done if isinstance(s, Let) and s.name in own}
    # an end that others are made of keeps its name
    used = {n for s in walk(done) for e in statement_exprs(s) for n in free_names(e)} & own
    body = tuple(s for s in done if not (isinstance(s, Let) and s.name in own - used))
    carries = tuple(
        replace(c, next=Ref(s.name, c.type) if s.name in used else last[s.name])
        for c, s in zip(loop.carries, ends, strict=True)
    )
    return replace(loop, carries=carries, body=body)


def hoist_invariants(function: Function, names: Names) -> Function:
    """Compute before a loop what every iteration of it would compute alike. Loops at the top keep everything: each is a
    kernel of its own.
    """

    def block(statements: tuple[Stmt, ...], top: bool) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case For():
                    stmt = replace(stmt, body=block(stmt.body, False))
                    if not top:
                        stmt = _without_invariants(stmt, names, out)
                case If():
                    stmt = replace(stmt, then=block(stmt.then, False), orelse=block(stmt.orelse, False))
            out.append(stmt)
        return tuple(out)

    return replace(function, body=block(function.body, True))


def bound_inside(loop: For) -> set[str]:
    """The names that a loop binds for its iterations: its variable, what it carries, what its body binds."""
    return {loop.var, *(c.name for c in loop.carries)} | names_bound_in(loop.body)


def _without_invariants(loop: For, names: Names, before: list[Stmt]) -> For:
    bound = bound_inside(loop)
    known: dict[Expr, Ref] = {}

    def invariant(e: Expr) -> bool:
        if not _costly(e, frozenset()) or free_names(e) & bound:
            return False
        assert isinstance(e, Op)
        return e.name == "div" or len(e.args) == 1 or sum(isinstance(x, Op) for x in walk_expr(e)) > 1

    def visit(e: Expr, location: Location | None) -> None:
        if invariant(e):
            if e not in known:
                known[e] = Ref(names.fresh("fixed"), e.type)
                before.append(Let(known[e].name, e, location))
            return
        for operand in certain_operands(e):
            visit(operand, location)

    for stmt in loop.body:
        for e in own_exprs(stmt):
            visit(e, stmt.location)
    for c in loop.carries:
        visit(c.next, loop.location)
    if not known:
        return loop
    carries = tuple(replace(c, next=_replace_known(c.next, known)) for c in loop.carries)
    return replace(loop, body=_replace_in(loop.body, known), carries=carries)


def inline(function: Function, temporary: Callable[[str], bool]) -> Function:
    """Put the value of a temporary that is used once in the place of its use, where no loop would repeat it."""
    stable = frozenset(a.name for a in function.arrays if a.role == "input")
    uses = Counter(
        e.name for s in walk(function.body) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Ref)
    )

    def movable(stmt: Stmt) -> bool:
        return (
            isinstance(stmt, Let)
            and temporary(stmt.name)
            and uses[stmt.name] == 1
            and free_arrays(stmt.value) <= stable
        )

    def in_block(statements: tuple[Stmt, ...], ends: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], dict[str, Expr]]:
        values: dict[str, Expr] = {}
        out: list[Stmt] = []
        here = {n for s in statements for x in own_exprs(s) for n in free_names(x)}
        here |= {n for e in ends for n in free_names(e)}
        for stmt in statements:
            match stmt:
                case Let() if movable(stmt) and stmt.name in here:
                    values[stmt.name] = substitute(stmt.value, values)
                    continue
                case For():
                    body, inner = in_block(stmt.body, tuple(c.next for c in stmt.carries))
                    carries = tuple(
                        replace(c, init=substitute(c.init, values), next=substitute(c.next, inner))
                        for c in stmt.carries
                    )
                    start, stop = substitute(stmt.start, values), substitute(stmt.stop, values)
                    stmt = replace(stmt, start=start, stop=stop, carries=carries, body=body)
                case If():
                    then, inner = in_block(stmt.then, tuple(m.then for m in stmt.merges))
                    orelse, other = in_block(stmt.orelse, tuple(m.orelse for m in stmt.merges))
                    merges = tuple(
                        replace(m, then=substitute(m.then, inner), orelse=substitute(m.orelse, other))
                        for m in stmt.merges
                    )
                    condition = substitute(stmt.condition, values)
                    stmt = replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges)
                case _:
                    stmt = map_statement(stmt, lambda e: substitute(e, values), lambda b: b)
            out.append(stmt)
        return tuple(out), values

    return replace(function, body=in_block(function.body, ())[0])


def base_name(name: str) -> str:
    """The name without the number that made it fresh."""
    return re.sub(r"(_\d+)+$", "", name) or name


def tidy_names(function: Function) -> Function:
    """Number the names that share a base without gaps, in textual order."""
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars} | {a.name for a in function.arrays}
    names, new = Names(set(fixed)), dict[str, str]()

    def bind(name: str) -> str:
        new[name] = names.fresh(base_name(name))
        return new[name]

    def expr(e: Expr) -> Expr:
        return rewrite(e, lambda x: Ref(new[x.name], x.type) if isinstance(x, Ref) and x.name in new else None)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            match stmt:
                case Let():
                    value = expr(stmt.value)
                    out.append(replace(stmt, name=bind(stmt.name), value=value))
                case For():
                    start, stop = expr(stmt.start), expr(stmt.stop)
                    inits = [expr(c.init) for c in stmt.carries]
                    var, carried = bind(stmt.var), [bind(c.name) for c in stmt.carries]
                    body = block(stmt.body)
                    nexts = [expr(c.next) for c in stmt.carries]
                    carries = tuple(
                        Carry(n, i, x, bind(c.result))
                        for n, i, x, c in zip(carried, inits, nexts, stmt.carries, strict=True)
                    )
                    out.append(replace(stmt, var=var, start=start, stop=stop, carries=carries, body=body))
                case If():
                    condition = expr(stmt.condition)
                    then, orelse = block(stmt.then), block(stmt.orelse)
                    values = [(expr(m.then), expr(m.orelse)) for m in stmt.merges]
                    merges = tuple(Merge(bind(m.name), a, b) for m, (a, b) in zip(stmt.merges, values, strict=True))
                    out.append(replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges))
                case Store():
                    out.append(map_statement(stmt, expr, lambda b: b))
        return tuple(out)

    body = block(function.body)
    arrays = tuple(replace(a, within=tuple(new.get(v, v) for v in a.within)) for a in function.arrays)
    return replace(function, body=body, arrays=arrays)
