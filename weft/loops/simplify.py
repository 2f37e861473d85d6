"""General passes over the loop nest: arithmetic without needless operations, dead code, common subexpressions, and
accumulations into arrays turned into sums over scalars.

Each pass is a pure function from a Function to one of equal meaning up to reassociation of sums.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from weft.errors import Location
from weft.loops.accesses import Access, collect, constraints
from weft.loops.affine import Affine, affine
from weft.loops.ir import (
    Array,
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
    bodies,
    bound_names,
    free_names,
    map_statement,
    operands,
    rewrite,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.names import Names
from weft.loops.polyhedra import Polyhedra
from weft.loops.types import BOOL, INT64, ScalarType

# ---------------------------------------------------------------- arithmetic


def number(value: float, type_: ScalarType) -> Const:
    """A constant of an int or float type."""
    return Const(float(value) if type_.category == "float" else int(value), type_)


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
                return select(condition, then, orelse)
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
        if c.next == Ref(c.name, c.type):
            names[c.name] = names[c.result] = inits[c.name]
    body = _propagate(loop.body, names)
    carries = tuple(replace(c, init=inits[c.name], next=expr(c.next)) for c in loop.carries if c.name not in names)
    kept = replace(loop, start=start, stop=stop, carries=carries, body=body)
    if any(c.next == Ref(c.name, c.type) for c in carries):  # seen only now that the body is folded
        return _propagate_loop(kept, names)
    return kept


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


def loaded_arrays(statements: tuple[Stmt, ...]) -> set[str]:
    return {e.array for s in walk(statements) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)}


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
    return all(e.array in stable for e in walk_expr(expr) if isinstance(e, Load))


def _certain(expr: Expr) -> Iterator[Expr]:
    """The subexpressions that evaluating expr evaluates for certain, largest first."""
    yield expr
    below = operands(expr)
    if isinstance(expr, Op) and expr.name in ("where", "and", "or"):
        below = below[:1]
    for operand in below:
        yield from _certain(operand)


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
            own = _own_exprs(stmt)
            certain = [e for x in own for e in _certain(x) if _costly(e, stable)]
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


def _own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates for certain, in its own block."""
    match stmt:
        case For():
            return (stmt.start, stmt.stop, *(c.init for c in stmt.carries))
        case If():
            return (stmt.condition,)
    return statement_exprs(stmt)


def _share_with_ends(loop: For, known: dict[Expr, Ref], stable: frozenset[str], names: Names) -> For:
    """Share in a loop body, with the next values of its carries as its last statements."""
    ends = tuple(Let(f"{c.name} next", c.next) for c in loop.carries)
    done = _share((*loop.body, *ends), known, stable, names)
    last = {s.name: s.value for s in done if isinstance(s, Let) and s.name.endswith(" next")}
    body = tuple(s for s in done if not (isinstance(s, Let) and s.name.endswith(" next")))
    carries = tuple(replace(c, next=last[f"{c.name} next"]) for c in loop.carries)
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


def _without_invariants(loop: For, names: Names, before: list[Stmt]) -> For:
    bound = _bound_inside(loop)
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
        below = operands(e)
        if isinstance(e, Op) and e.name in ("where", "and", "or"):
            below = below[:1]
        for operand in below:
            visit(operand, location)

    for stmt in loop.body:
        for e in _own_exprs(stmt):
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
            and all(e.array in stable for e in walk_expr(stmt.value) if isinstance(e, Load))
        )

    def in_block(statements: tuple[Stmt, ...], ends: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], dict[str, Expr]]:
        values: dict[str, Expr] = {}
        out: list[Stmt] = []
        here = {n for s in statements for x in _own_exprs(s) for n in free_names(x)}
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


# ---------------------------------------------------------------- what memory holds when


@dataclass(frozen=True)
class Memory:
    """When the elements of written arrays get their values."""

    function: Function
    accesses: tuple[Access, ...]
    polyhedra: Polyhedra

    @staticmethod
    def of(function: Function) -> Memory:
        return Memory(function, collect(function.body), Polyhedra(function))

    def touching(self, array: str, write: bool) -> list[Access]:
        return [a for a in self.accesses if a.array == array and a.write == write]

    def last(self, array: str, index: tuple[Expr, ...], write: bool) -> bool:
        """Whether nothing is stored, after any of these accesses, to the element that it touches."""
        mine = [a for a in self.accesses if a.array == array and a.index == index and a.write == write]
        return not any(self.before(a, s) for a in mine for s in self.touching(array, True))

    def first(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether nothing touches, before any of these stores, the element that it stores to."""
        mine = [a for a in self.touching(array, True) if a.index == index]
        return not any(self.before(a, s) for a in self.accesses if a.array == array for s in mine)

    def stored_once(self, array: str) -> bool:
        """Whether no element is stored twice."""
        stores = self.touching(array, True)
        return not any(self.before(a, b) for a in stores for b in stores)

    def shared(self, array: str, var: str) -> bool:
        """Whether iterations of the loop over `var` touch elements of the array in common, one of them storing."""
        mine = [a for a in self.accesses if a.array == array and any(f.var == var for f in a.loops)]
        within = frozenset(self.function.array(array).within)
        if var in within or not mine:
            return False
        loop = next(f for f in mine[0].loops if f.var == var)
        return any(self.polyhedra.carried(a, b, loop, within) is not None for a in mine if a.write for b in mine)

    def before(self, a: Access, b: Access) -> bool:
        """Whether an instance of a may come before another of b that touches the same element."""
        common = [x for x, y in zip(a.loops, b.loops, strict=False) if x.var == y.var]
        within = frozenset(self.function.array(a.array).within)
        if any(f.var not in within and self._ordered(a, b, common, k) for k, f in enumerate(common)):
            return True
        if a.position >= b.position:
            return False
        opposite = any((c, not holds) in b.guard for c, holds in a.guard)
        return not opposite and self.polyhedra.meet(a, b, frozenset(f.var for f in common))

    def _ordered(self, a: Access, b: Access, common: list[For], k: int) -> bool:
        """The same, in different iterations of the k-th common loop and the same ones of those around it."""
        outer = {f.var for f in common[:k]}
        names_a = {f.var: f.var if f.var in outer else f"{f.var}'" for f in a.loops}
        names_b = {f.var: f.var if f.var in outer else f"{f.var}''" for f in b.loops}
        system = self.polyhedra.system()
        system.add_domain(a, names_a)
        system.add_domain(b, names_b)
        for i, j in zip(a.subscript, b.subscript, strict=True):
            if i is not None and j is not None:
                left, right = system.text(i, names_a), system.text(j, names_b)
                if left is not None and right is not None:
                    system.lines.append(f"{left} = {right}")
        loop = common[k]
        x, y = system.dimensions[names_a[loop.var]], system.dimensions[names_b[loop.var]]
        return not system.build(f"{x} < {y}" if loop.step > 0 else f"{x} > {y}").is_empty()


# ---------------------------------------------------------------- extents of loops


@dataclass(frozen=True)
class Extent:
    """The values of a loop variable lie in base, base + 1, ..., base + size - 1; both use sizes and scalars alone."""

    base: Affine
    size: Expr


def _never_negative(form: Affine, sizes: frozenset[str]) -> bool:
    return form.constant >= 0 and all(c >= 0 and n in sizes for n, c in form.terms)


def extents(function: Function, loops: Iterable[For]) -> tuple[Extent, ...] | None:
    """An extent of each of these nested loops, outermost first; None where bounds are not affine."""
    sizes = frozenset(s.name for s in function.sizes)
    fixed = sizes | {s.name for s in function.scalars if s.type == INT64}
    reach: dict[str, tuple[Affine, Affine]] = {}  # the least and the greatest value of each variable

    def extreme(form: Affine, greatest: bool) -> Affine | None:
        total = Affine((), form.constant)
        for name, coefficient in form.terms:
            if name in reach:
                total += reach[name][1 if (coefficient > 0) == greatest else 0] * coefficient
            elif name in fixed:
                total += Affine(((name, coefficient),), 0)
            else:
                return None
        return total

    out: list[Extent] = []
    for loop in loops:
        start, stop = affine(loop.start), affine(loop.stop)
        if start is None or stop is None:
            return None
        first, last = (start, stop + Affine((), -1)) if loop.step > 0 else (stop + Affine((), 1), start)
        low, high = extreme(first, False), extreme(last, True)
        if low is None or high is None:
            return None
        reach[loop.var] = (low, high)
        base = Affine((), 0) if _never_negative(low, sizes) else low
        count = high - base + Affine((), 1)
        size = count.expr()
        if not _never_negative(count, sizes):
            size = Op("max", (Const(0, INT64), size), INT64)
        out.append(Extent(base, size))
    return tuple(out)


def expanded(name: str, type_: ScalarType, found: tuple[Extent, ...], fill: Const | None = None) -> Array:
    """A local array with one element for every iteration of loops with these extents."""
    return Array(name, type_, tuple(e.size for e in found), "local", fill)


def expanded_index(found: tuple[Extent, ...], values: Iterable[Expr]) -> tuple[Expr, ...]:
    """Where such an array holds the iteration with these values of the loop variables."""
    return tuple(
        fold(Op("sub", (v, e.base.expr()), INT64)) if e.base != Affine((), 0) else v
        for e, v in zip(found, values, strict=True)
    )


# ---------------------------------------------------------------- accumulations into arrays


def accumulation(stmt: Store, alone: bool = True) -> Expr | None:
    """v where the statement is `array[index] += v`. alone: v may not load from the array itself."""
    own = Load(stmt.array, stmt.index, stmt.value.type)
    match stmt.value:
        case Op(name="add", args=(a, b)):
            if own in (a, b):
                v = b if a == own else a
                return None if alone and _loads(v, stmt.array) else v
        case Op(name="sub", args=(a, b)) if a == own and not (alone and _loads(b, stmt.array)):
            return neg(b)
    return None


def accumulate_into(array: str, index: tuple[Expr, ...], value: Expr, like: Store | None = None) -> Store:
    own = Load(array, index, value.type)
    return Store(array, index, Op("add", (own, value), value.type), like.location if like else None)


def _loads(expr: Expr, array: str) -> bool:
    return any(isinstance(e, Load) and e.array == array for e in walk_expr(expr))


@dataclass(frozen=True)
class _Step:
    """A loop or branch on the way to a statement, and what stands before the next step in its body."""

    stmt: For | If
    taken: bool
    before: tuple[Stmt, ...]


@dataclass(frozen=True)
class _Site:
    """One accumulation: its statement, the value it adds, the way to it from the function's body."""

    store: Store
    value: Expr
    path: tuple[_Step, ...]

    @property
    def loops(self) -> tuple[For, ...]:
        return tuple(s.stmt for s in self.path if isinstance(s.stmt, For))


def _sites(statements: tuple[Stmt, ...], array: str, path: tuple[_Step, ...] = ()) -> Iterator[_Site]:
    for stmt in statements:
        match stmt:
            case Store() if stmt.array == array:
                value = accumulation(stmt)
                assert value is not None, f"{array} is more than accumulated into"
                yield _Site(stmt, value, path)
            case For() | If():
                for n, body in enumerate(bodies(stmt)):
                    for j, inner in enumerate(body):
                        yield from _sites((inner,), array, (*path, _Step(stmt, n == 0, body[:j])))


@dataclass
class _Edit:
    """Changes to statements, found by identity: replaced, followed by others, or begun (loops) by others."""

    instead: dict[int, list[Stmt]] = field(default_factory=dict)
    after: dict[int, list[Stmt]] = field(default_factory=dict)
    start: dict[int, list[Stmt]] = field(default_factory=dict)

    def apply(self, statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in statements:
            mark = id(stmt)
            if mark in self.instead:
                out += self.instead[mark]
            elif isinstance(stmt, For):
                out.append(replace(stmt, body=(*self.start.get(mark, ()), *self.apply(stmt.body))))
            elif isinstance(stmt, If):
                out.append(replace(stmt, then=self.apply(stmt.then), orelse=self.apply(stmt.orelse)))
            else:
                out.append(stmt)
            out += self.after.get(mark, ())
        return tuple(out)


def accumulate(function: Function, targets: tuple[str, ...], names: Names) -> Function:
    """Give the accumulations into the arrays `targets` a form that runs in parallel.

    targets: arrays filled with 0 that the function touches by `array[index] += value` alone. Where an element gets
    many values, they become a sum carried by a loop of its own; where it gets one, a plain store. What cannot be
    brought into either form stays as it is.
    """
    for target in targets:
        function = replace(function, body=_hoist(function, function.body, target, (), names))
        function = _gather(function, target, names)
        function = _merge(function, target, names)
        function = store_once(function, target)
    return function


# ---- sums carried out of the loops that an index does not name


def _plain(index: tuple[Expr, ...]) -> set[str]:
    return {i.name for i in index if isinstance(i, Ref)}


def _surely_inside(function: Function, array: str, index: tuple[Expr, ...], loops: Iterable[For]) -> bool:
    """Whether the index is inside the array for all iterations of these loops, as their bounds alone show."""
    by_name = {f.var: f for f in loops}
    for i, extent in zip(index, function.array(array).shape, strict=True):
        loop = by_name.get(i.name) if isinstance(i, Ref) else None
        found = None if loop is None else _ascending(loop)
        if found is None or found[0].terms or found[0].constant < 0 or found[1] != affine(extent):
            return False
    return True


def _hoist(
    function: Function, statements: tuple[Stmt, ...], target: str, around: tuple[For, ...], names: Names
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case For():
                stmt = replace(stmt, body=_hoist(function, stmt.body, target, (*around, stmt), names))
                pieces: list[Stmt] = []
                while True:
                    found = _hoist_one(function, stmt, target, around, names)
                    if found is None:
                        break
                    stmt, after = found
                    pieces.append(after)
                out += [stmt, *pieces]
            case If():
                then = _hoist(function, stmt.then, target, around, names)
                out.append(replace(stmt, then=then, orelse=_hoist(function, stmt.orelse, target, around, names)))
            case _:
                out.append(stmt)
    return tuple(out)


def _hoist_one(
    function: Function, loop: For, target: str, around: tuple[For, ...], names: Names
) -> tuple[For, Stmt] | None:
    bound = _bound_inside(loop)
    nested = any(isinstance(s, For) for s in walk(loop.body))
    for site in _sites(loop.body, target):
        index = site.store.index
        if site.loops or any(free_names(i) & bound for i in index):
            continue
        if nested and not (around and all(f.var in _plain(index) for f in around)):
            continue
        inside = _surely_inside(function, target, index, around)
        if site.path and not inside:
            continue
        type_ = site.value.type
        total, result = Ref(names.fresh(f"{target}_sum"), type_), Ref(names.fresh(f"{target}_sum"), type_)
        body, end = _thread(loop.body, site, total, names)
        carry = Carry(total.name, number(0, type_), end, result.name)
        after: Stmt = accumulate_into(target, index, result, site.store)
        if not inside:
            after = If(_runs(loop), (after,), (), (), site.store.location)
        return replace(loop, carries=(*loop.carries, carry), body=body), after
    return None


def _runs(loop: For) -> Expr:
    """Whether a loop has an iteration."""
    bounds = _ascending(loop)
    if bounds is not None:
        return Op("lt", (bounds[0].expr(), bounds[1].expr()), BOOL)
    return Op("lt", (loop.start, loop.stop) if loop.step > 0 else (loop.stop, loop.start), BOOL)


def _bound_inside(loop: For) -> set[str]:
    bound = {loop.var, *(c.name for c in loop.carries)}
    for s in walk(loop.body):
        bound |= set(bound_names(s))
        if isinstance(s, For):
            bound |= {s.var, *(c.name for c in s.carries)}
    return bound


def _thread(statements: tuple[Stmt, ...], site: _Site, total: Expr, names: Names) -> tuple[tuple[Stmt, ...], Expr]:
    """The statements without the site's store, and the total with its value added."""
    out: list[Stmt] = []
    end = total
    for stmt in statements:
        if stmt is site.store:
            end = add(total, site.value)
        elif isinstance(stmt, If) and any(s.stmt is stmt for s in site.path):
            then, after_then = _thread(stmt.then, site, total, names)
            orelse, after_else = _thread(stmt.orelse, site, total, names)
            merge = Merge(names.fresh(f"{site.store.array}_sum"), after_then, after_else)
            out.append(replace(stmt, then=then, orelse=orelse, merges=(*stmt.merges, merge)))
            end = Ref(merge.name, merge.type)
        else:
            out.append(stmt)
    return tuple(out), end


# ---- what a value needs, to be computed elsewhere


def _ascending(loop: For) -> tuple[Affine, Affine, int] | None:
    """The same iterations as range(start, stop, step) with step > 0."""
    start, stop = affine(loop.start), affine(loop.stop)
    if start is None or stop is None:
        return None
    if loop.step > 0:
        return start, stop, loop.step
    return (stop + Affine((), 1), start + Affine((), 1), 1) if loop.step == -1 else None


def _bindings(stmt: Stmt) -> tuple[tuple[str, ScalarType], ...]:
    """Names that a statement binds for what follows it, with their types."""
    match stmt:
        case Let(name=name, value=value):
            return ((name, value.type),)
        case For(carries=carries):
            return tuple((c.result, c.type) for c in carries)
        case If(merges=merges):
            return tuple((m.name, m.type) for m in merges)
    return ()


class _Closure:
    """The computation of a site's value, to be repeated where its loop variables have other names.

    depth: the steps of the path that stay around the new place. certain: the branches on the path that are always taken
    there. spills: what cannot be repeated, by the step in whose body it is bound.
    """

    def __init__(self, site: _Site, depth: int, stable: frozenset[str], certain: frozenset[int] = frozenset()) -> None:
        self.site, self.depth, self.certain = site, depth, certain
        self.blocks: list[list[Let]] = []
        self.spills: dict[str, int] = {}
        self.types: dict[str, ScalarType] = {}
        self.innermost = max((k for k, s in enumerate(site.path) if isinstance(s.stmt, For)), default=-1)
        needed = free_names(site.value)
        self.repeatable = _stable(site.value, stable)
        tainted = self._tainted(stable)
        for k in range(len(site.path) - 1, depth - 1, -1):
            step = site.path[k]
            lets: list[Let] = []
            for stmt in reversed(step.before):
                if isinstance(stmt, Let) and stmt.name in needed and stmt.name not in tainted[k]:
                    lets.append(stmt)
                    needed |= free_names(stmt.value)
                    continue
                for name, type_ in _bindings(stmt):
                    if name in needed:
                        self._spill(name, type_, k)
            self.blocks.insert(0, lets[::-1])
            if isinstance(step.stmt, For):
                for c in step.stmt.carries:
                    if c.name in needed:
                        self._spill(c.name, c.type, k)
            else:
                needed |= free_names(step.stmt.condition)
                self.repeatable = self.repeatable and _stable(step.stmt.condition, stable)

    def _tainted(self, stable: frozenset[str]) -> list[set[str]]:
        """For each step of the path: the bindings of its body that are better saved than repeated.

        These are the results of loops and branches and, outside the innermost loop, all that is made from them.
        """
        below: set[str] = set()
        out: list[set[str]] = []
        for k, step in enumerate(self.site.path):
            if k < self.depth:
                out.append(set())
                continue
            if isinstance(step.stmt, For):
                below |= {c.name for c in step.stmt.carries}
            here: set[str] = set()
            for stmt in step.before:
                names = {n for n, _ in _bindings(stmt)}
                cheap = isinstance(stmt, Let) and _stable(stmt.value, stable)
                made = isinstance(stmt, Let) and bool(free_names(stmt.value) & (below | here))
                if not cheap or (made and k < self.innermost):
                    here |= names
            below |= here
            out.append(here)
        return out

    def _spill(self, name: str, type_: ScalarType, step: int) -> None:
        self.spills[name] = step
        self.types[name] = type_

    @property
    def whole(self) -> bool:
        """Whether the value itself must be spilled: it cannot be repeated, or needs as much memory as it is."""
        return not self.repeatable or any(k >= self.innermost for k in self.spills.values())

    @property
    def guarded(self) -> bool:
        """Whether the value is added under a condition only."""
        steps = range(self.depth, len(self.site.path))
        return any(isinstance(self.site.path[k].stmt, If) and k not in self.certain for k in steps)

    def repeat(
        self, known: dict[str, Expr], names: Names, use: Callable[[Expr], Stmt] | None = None
    ) -> tuple[list[Stmt], Expr]:
        """The statements and the value, with `known` in place of the names that the new place gives.

        use: what is done with the value; without it, the value is 0 where its conditions do not hold.
        """
        return self._from(0, dict(known), names, use)

    def _from(
        self, k: int, known: dict[str, Expr], names: Names, use: Callable[[Expr], Stmt] | None
    ) -> tuple[list[Stmt], Expr]:
        if k == len(self.blocks):
            value = substitute(self.site.value, known)
            return ([] if use is None else [use(value)]), value
        step = self.site.path[self.depth + k]
        lets: list[Stmt] = []
        condition = None
        if isinstance(step.stmt, If) and self.depth + k not in self.certain:
            condition = substitute(step.stmt.condition, known)
        for let in self.blocks[k]:
            name = names.fresh(let.name)
            lets.append(replace(let, name=name, value=substitute(let.value, known)))
            known[let.name] = Ref(name, let.value.type)
        below, value = self._from(k + 1, known, names, use)
        if condition is None:
            return [*lets, *below], value
        zero = number(0, value.type)
        name = names.fresh(f"{self.site.store.array}_part")
        merge = Merge(name, value, zero) if step.taken else Merge(name, zero, value)
        sides: tuple[tuple[Stmt, ...], tuple[Stmt, ...]] = ((*lets, *below), ())
        then, orelse = sides if step.taken else sides[::-1]
        return [If(condition, then, orelse, (merge,), self.site.store.location)], Ref(name, value.type)


def _stable(expr: Expr, stable: frozenset[str]) -> bool:
    return all(e.array in stable for e in walk_expr(expr) if isinstance(e, Load))


# ---- nests of their own


@dataclass(frozen=True)
class _Placed:
    """An index axis that a loop variable decides: index = sign * variable + rest; the index runs over a range."""

    axis: int
    var: str
    sign: int
    rest: Affine
    bounds: tuple[Affine, Affine, int]


@dataclass(frozen=True)
class _Plan:
    """How a site becomes a nest: `prefix` loops stay, `placed` index axes get loops, `summed` loops carry a sum.

    certain: the branches on the path that the bounds of the new loops make certain to be taken.
    """

    site: _Site
    prefix: int
    placed: tuple[_Placed, ...]
    summed: tuple[For, ...]
    certain: frozenset[int] = frozenset()

    @property
    def in_place(self) -> bool:
        return not self.placed and not self.summed

    @property
    def depth(self) -> int:
        """Steps of the path that stay around the new nest."""
        loops = [k for k, s in enumerate(self.site.path) if isinstance(s.stmt, For)]
        return 0 if self.prefix == 0 else loops[self.prefix - 1] + 1

    def key(self) -> tuple[object, ...]:
        around = tuple(id(s.stmt) for s in self.site.path[: self.depth])
        positions = {p.var: f"axis {p.axis}" for p in self.placed}
        summed = tuple(_renamed(_ascending(f), positions) for f in self.summed)
        return around, tuple((p.axis, p.bounds) for p in self.placed), summed


def _renamed(bounds: tuple[Affine, Affine, int] | None, names: dict[str, str]) -> object:
    if bounds is None:
        return None
    forms = tuple(Affine.make({names.get(n, n): c for n, c in b.terms}, b.constant) for b in bounds[:2])
    return (*forms, bounds[2])


def _plan(function: Function, site: _Site) -> _Plan | None:
    fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    loops = {f.var: f for f in site.loops}
    found: dict[str, tuple[int, int, Affine]] = {}
    for axis, i in enumerate(site.store.index):
        form = affine(i)
        if form is None:
            return None
        own = form.names & loops.keys()
        rest = Affine.make({n: c for n, c in form.terms if n not in own}, form.constant)
        if len(own) > 1 or not rest.names <= fixed:
            return None
        for var in own:
            sign = form.coefficient(var)
            if abs(sign) != 1 or var in found:
                return None
            found[var] = (axis, sign, rest)
    prefix = 0
    for loop in site.loops:
        if loop.var not in found or found[loop.var][1:] != (1, Affine((), 0)):
            break
        prefix += 1
    known = fixed | {f.var for f in site.loops[:prefix]}
    certain: set[int] = set()
    placed: list[_Placed] = []
    for loop in site.loops[prefix:]:
        if loop.var not in found:
            continue
        axis, sign, rest = found[loop.var]
        bounds = _ascending(loop)
        if bounds is None or not (bounds[0].names | bounds[1].names) <= known:
            return None
        start, stop, step = bounds
        if step == 1:
            start, stop = _tightened(site, loop.var, start, stop, frozenset(known), certain)
        if sign < 0 or rest != Affine((), 0):
            if step != 1:
                return None
            one = Affine((), 1)
            start, stop = (start + rest, stop + rest) if sign > 0 else (rest - stop + one, rest - start + one)
        placed.append(_Placed(axis, loop.var, sign, rest, (start, stop, step)))
    placed.sort(key=lambda p: p.axis)
    known |= {p.var for p in placed if p.sign > 0 and p.rest == Affine((), 0)}
    summed: list[For] = []
    for loop in site.loops[prefix:]:
        if loop.var in found:
            continue
        bounds = _ascending(loop)
        if bounds is None or not (bounds[0].names | bounds[1].names) <= known:
            return None
        known.add(loop.var)
        summed.append(loop)
    return _Plan(site, prefix, tuple(placed), tuple(summed), frozenset(certain))


def _tightened(
    site: _Site, var: str, start: Affine, stop: Affine, known: frozenset[str], certain: set[int]
) -> tuple[Affine, Affine]:
    """The range start .. stop of a variable without the iterations that a branch on the path leaves out.

    Adds to `certain` the branches that hold in all that is left.
    """
    for k, step in enumerate(site.path):
        if not isinstance(step.stmt, If):
            continue
        low, high, decided = start, stop, bool(constraints(step.stmt.condition, step.taken))
        for form, sign in constraints(step.stmt.condition, step.taken):
            own = form.coefficient(var)
            rest = Affine.make({n: c for n, c in form.terms if n != var}, form.constant)
            if abs(own) != 1 or not rest.names <= known or sign in ("=", "!="):
                decided = False
                break
            if sign in ("<", "<="):
                own, rest = -own, rest * -1
            margin = Affine((), 1 if sign in ("<", ">") else 0)
            # own * var + rest >= margin
            bound = margin - rest if own > 0 else rest - margin + Affine((), 1)
            moved = bound - (low if own > 0 else high)
            if moved.terms:
                decided = False
                break
            if own > 0 and moved.constant > 0:
                low = bound
            elif own < 0 and moved.constant < 0:
                high = bound
        if decided and _only_comparisons(step.stmt.condition, step.taken):
            start, stop = low, high
            certain.add(k)
    return start, stop


def _only_comparisons(condition: Expr, holds: bool) -> bool:
    """Whether the constraints of a condition say all of it."""
    match condition:
        case Op(name="not", args=(inner,)):
            return _only_comparisons(inner, not holds)
        case Op(name="and" | "or" as name, args=(a, b)):
            return (name == "and") == holds and _only_comparisons(a, holds) and _only_comparisons(b, holds)
        case Op(name="lt" | "le" | "gt" | "ge", args=(a, b)):
            return affine(a) is not None and affine(b) is not None
    return False


def _gather(function: Function, target: str, names: Names) -> Function:
    """Turn sites whose loops do not all stand, as they are, in the index into nests of their own."""
    left: set[int] = set()
    while True:
        plans = [_plan(function, s) for s in _sites(function.body, target)]
        todo = [p for p in plans if p is not None and not p.in_place and id(p.site.store) not in left]
        if not todo:
            return function
        group = [p for p in todo if p.key() == todo[0].key()]
        changed = _own_nest(function, group, names)
        if changed is None:
            # edits keep the identity of the stores they do not touch
            left |= {id(p.site.store) for p in group}
        else:
            function = changed


def _own_nest(function: Function, group: list[_Plan], names: Names) -> Function | None:
    first = group[0]
    target = first.site.store.array
    type_ = first.site.value.type
    variables = {p.axis: names.fresh(p.var) for p in first.placed}
    sums = [names.fresh(f.var) for f in first.summed]
    index = list(first.site.store.index)
    for p in first.placed:
        index[p.axis] = Ref(variables[p.axis], INT64)
    edit, arrays = _Edit(), list(function.arrays)
    statements: list[Stmt] = []
    total: Expr = number(0, type_)
    loops = [*first.site.loops[: first.prefix], *_placed_loops(first, variables)]
    inside = _surely_inside(function, target, tuple(index), loops)
    guarded = [p for p in group if any(isinstance(x.stmt, If) and k not in p.certain for k, x in _below(p))]
    use: Callable[[Expr], Stmt] | None = None
    if guarded and not inside:  # the condition may be what keeps the index inside the array
        if first.summed:
            return None
        group = guarded[:1]
        first = group[0]

        def use(value: Expr) -> Stmt:
            return accumulate_into(target, tuple(index), value, first.site.store)

    for plan in group:
        known: dict[str, Expr] = {}
        for p in plan.placed:
            at = Affine(((variables[p.axis], 1),), 0) - p.rest
            known[p.var] = (at * p.sign).expr()
        known |= {f.var: Ref(v, INT64) for f, v in zip(plan.summed, sums, strict=True)}
        repeated = _repeat(function, plan, known, names, edit, arrays, use)
        if repeated is None:
            return None
        statements += repeated[0]
        total = add(total, repeated[1])
    shown = {p.var: Ref(variables[p.axis], INT64) for p in first.placed}
    value = total
    around_sum: list[Expr] = []
    for f, var in reversed(list(zip(first.summed, sums, strict=True))):
        bounds = _ascending(f)
        assert bounds is not None
        start, stop = (fold(substitute(b.expr(), {**shown, **_names_of(first.summed, sums)})) for b in bounds[:2])
        carried, result = names.fresh(f"{target}_sum"), names.fresh(f"{target}_sum")
        carry = Carry(carried, number(0, type_), add(Ref(carried, type_), value), result)
        statements = [For(var, start, stop, bounds[2], (carry,), tuple(statements), location=f.location)]
        value = Ref(result, type_)
        around_sum.append(Op("lt", (start, stop), BOOL))
    if use is None:
        store: Stmt = accumulate_into(target, tuple(index), value, first.site.store)
        if around_sum and not inside:
            if len(around_sum) > 1:
                return None
            store = If(around_sum[0], (store,), (), (), first.site.store.location)
        statements.append(store)
    for loop in reversed(_placed_loops(first, variables)):
        statements = [replace(loop, body=tuple(statements))]
    last = group[-1].site
    place = last.path[group[-1].depth].stmt
    edit.after.setdefault(id(place), []).extend(statements)
    return replace(function, body=edit.apply(function.body), arrays=tuple(arrays))


def _names_of(summed: tuple[For, ...], sums: list[str]) -> dict[str, Expr]:
    return {f.var: Ref(v, INT64) for f, v in zip(summed, sums, strict=True)}


def _placed_loops(plan: _Plan, variables: dict[int, str]) -> list[For]:
    by_var = {f.var: f for f in plan.site.loops}
    return [
        For(
            variables[p.axis],
            p.bounds[0].expr(),
            p.bounds[1].expr(),
            p.bounds[2],
            (),
            (),
            location=by_var[p.var].location,
        )
        for p in plan.placed
    ]


def _below(plan: _Plan) -> list[tuple[int, _Step]]:
    """The steps of a plan's path that its new nest replaces."""
    return list(enumerate(plan.site.path))[plan.depth :]


def _repeat(
    function: Function,
    plan: _Plan,
    known: dict[str, Expr],
    names: Names,
    edit: _Edit,
    arrays: list[Array],
    use: Callable[[Expr], Stmt] | None,
) -> tuple[list[Stmt], Expr] | None:
    """The value of a site computed anew, `known` naming its loop variables; what cannot be is saved in local arrays."""
    stable = frozenset(a.name for a in function.arrays if a.role == "input")
    site = plan.site
    closure = _Closure(site, plan.depth, stable, plan.certain)
    variables = [Ref(f.var, INT64) for f in site.loops]
    moved = [known.get(v.name, v) for v in variables]
    target = site.store.array
    if closure.whole:
        found = extents(function, site.loops)
        if found is None:
            return None
        if use is not None:
            return None
        guarded = any(isinstance(s.stmt, If) for s in site.path)
        fill = number(0, site.value.type) if guarded else None
        array = expanded(names.fresh(f"{target}_parts"), site.value.type, found, fill)
        arrays.append(array)
        kept = Store(array.name, expanded_index(found, variables), site.value, site.store.location)
        edit.instead[id(site.store)] = [kept]
        return [], Load(array.name, expanded_index(found, moved), site.value.type)
    known = dict(known)
    for name, k in closure.spills.items():
        loops = tuple(s.stmt for s in site.path[: k + 1] if isinstance(s.stmt, For))
        found = extents(function, loops)
        if found is None:
            return None
        type_ = closure.types[name]
        array = expanded(names.fresh(f"{base_name(name)}_saved"), type_, found)
        arrays.append(array)
        kept = Store(array.name, expanded_index(found, variables[: len(loops)]), Ref(name, type_))
        step = site.path[k]
        binder = next((s for s in step.before if name in bound_names(s)), None)
        if binder is None:
            edit.start.setdefault(id(step.stmt), []).append(kept)
        else:
            edit.after.setdefault(id(binder), []).append(kept)
        known[name] = Load(array.name, expanded_index(found, moved[: len(loops)]), type_)
    edit.instead[id(site.store)] = []
    return closure.repeat(known, names, use)


# ---- sites in place


def _merge(function: Function, target: str, names: Names) -> Function:
    """Let the last of several sites over the same elements add what the others would."""
    refused: set[tuple[int, int]] = set()
    while True:
        sites = list(_sites(function.body, target))
        pairs = (
            (a, b)
            for k, a in enumerate(sites)
            for b in reversed(sites[k + 1 :])
            if (id(a.store), id(b.store)) not in refused
        )
        for a, b in pairs:
            changed = _merge_pair(function, a, b, names)
            if changed is not None:
                function = changed
                break
            refused.add((id(a.store), id(b.store)))
        else:
            return function


def _merge_pair(function: Function, a: _Site, b: _Site, names: Names) -> Function | None:
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
        if not isinstance(y, For) or _ascending(x) is None:
            return None
        if _renamed(_ascending(x), renamed) != _renamed(_ascending(y), {}):
            return None
        renamed[x.var] = y.var
    known: dict[str, Expr] = {n: Ref(v, INT64) for n, v in renamed.items()}
    if tuple(fold(substitute(i, known)) for i in a.store.index) != tuple(map(fold, b.store.index)):
        return None
    plain = all(f.var in _plain(a.store.index) for f in a.loops)
    if not plain:
        return None
    stable = frozenset(x.name for x in function.arrays if x.role == "input")
    closure = _Closure(a, depth, stable)
    if closure.spills or not closure.repeatable:
        return None
    statements, value = closure.repeat(known, names)
    edit = _Edit({id(a.store): []})
    edit.instead[id(b.store)] = [
        *statements,
        accumulate_into(b.store.array, b.store.index, add(value, b.value), b.store),
    ]
    return replace(function, body=edit.apply(function.body))


def store_once(function: Function, target: str) -> Function:
    """Let an accumulation store, where it is the first that reaches the element: the array is filled with 0."""
    memory = Memory.of(function)
    sites = list(_sites(function.body, target))
    stores = memory.touching(target, True)
    edit = _Edit()
    first: list[_Site] = []
    for site, own in zip(sites, stores, strict=True):
        if not any(memory.before(other, own) for other in stores):
            edit.instead[id(site.store)] = [replace(site.store, value=site.value)]
            first.append(site)
    arrays = function.arrays
    array = function.array(target)
    if array.role == "result" and any(_covers(function, s) for s in first):
        arrays = tuple(replace(a, fill=None) if a.name == target else a for a in arrays)
    return replace(function, body=edit.apply(function.body), arrays=arrays)


def _covers(function: Function, site: _Site) -> bool:
    """Whether the site reaches every element of its array."""
    shape = function.array(site.store.array).shape
    if len(site.loops) != len(shape) or any(isinstance(s.stmt, If) for s in site.path):
        return False
    for loop in site.loops:
        bounds = _ascending(loop)
        axis = next((k for k, i in enumerate(site.store.index) if i == Ref(loop.var, INT64)), None)
        if axis is None or bounds is None or bounds != (Affine((), 0), affine(shape[axis]), 1):
            return False
    return True
