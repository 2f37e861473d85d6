"""The first pass over a function: one spelling for what the analysis must recognise.

Sizes that the call proves equal get one name, index arithmetic is folded into the subscripts, branches without effects
become `where`, comparisons-and-selects become min and max, and what nothing uses is dropped.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.affine import affine
from weft.loops.conditions import OPPOSITE, comparisons
from weft.loops.delays import without_rings
from weft.loops.faults import fails_as_it_runs, may_fail
from weft.loops.ir import (
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
    free_arrays,
    free_names,
    map_statement,
    operands,
    rewrite,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
    walk_expr,
)
from weft.loops.ir import Store as StoreStatement
from weft.loops.live import Uses
from weft.loops.types import BOOL, INT64

# An expression larger than this is bound to a name rather than copied into its uses.
_COPY_LIMIT = 64
# Index arithmetic that is no sum of names is copied up to this size.
_COPIED_INDEX = 16


def normalize(function: Function, derivatives: bool = False) -> Function:
    """The normal form. derivatives: operators keep the rules by which they are differentiated."""
    function = unify_sizes(function)
    if not derivatives:
        function = replace(function, body=_without_derivatives(function.body))
    function = replace(function, body=drop_unused(fold_names(function.body, {}, function.checked)))
    made = without_rings(function)
    return function if made is function else replace(made, body=drop_unused(made.body))


def _without_derivatives(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    def bare(e: Expr) -> Expr:
        return rewrite(e, lambda o: replace(o, derivative="") if isinstance(o, Op) and o.derivative else None)

    return tuple(map_statement(s, bare, _without_derivatives) for s in statements)


def fold_subscripts(function: Function) -> Function:
    """Index arithmetic copied into its uses, and nothing else changed: every access of the Python is still there."""
    return fold_index_arithmetic(unify_sizes(function))


def fold_index_arithmetic(function: Function) -> Function:
    """The same with sizes left as they are."""
    names: dict[str, Expr] = {}
    for stmt in walk(function.body):
        if isinstance(stmt, Let):
            value = substitute(stmt.value, names)
            if _is_index_arithmetic(value):
                names[stmt.name] = value
    return replace(function, body=substitute_statements(function.body, names))


def unify_sizes(function: Function) -> Function:
    """Give sizes that an Equality declares equal one name (the first one's); the Equality stays, for the call to check."""
    order = [s.name for s in function.sizes]
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while name in parent:
            name = parent[name]
        return name

    for equality in function.equalities:
        if isinstance(equality.left, Ref) and isinstance(equality.right, Ref):
            a, b = find(equality.left.name), find(equality.right.name)
            if a != b and a in order and b in order:
                first, second = sorted((a, b), key=order.index)
                parent[second] = first
    names: dict[str, Expr] = {name: Ref(find(name), INT64) for name in order if find(name) != name}
    if not names:
        return function

    def body(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_statement(s, lambda e: substitute(e, names), body) for s in statements)

    arrays = tuple(replace(a, shape=tuple(substitute(e, names) for e in a.shape)) for a in function.arrays)
    return replace(function, body=body(function.body), arrays=arrays)


def _size(expr: Expr) -> int:
    return sum(1 for _ in walk_expr(expr))


def _is_index_arithmetic(expr: Expr) -> bool:
    return expr.type == INT64 and (affine(expr) is not None or (_size(expr) <= _COPIED_INDEX and _is_integral(expr)))


def _is_integral(expr: Expr) -> bool:
    """Whether an expression is made of names by operations on integers that never fail."""
    match expr:
        case Const() | Ref():
            return expr.type == INT64
        case Op(name="add" | "sub" | "mul" | "neg" | "min" | "max", args=args):
            return all(map(_is_integral, args))
        case Op(name="floordiv" | "mod", args=(a, Const(value=divisor))):
            return divisor > 0 and _is_integral(a)
    return False


def simplify(expr: Expr) -> Expr:
    """Affine arithmetic in normal form, constant conditions decided, `where` as min or max where it is one."""

    def rule(e: Expr) -> Expr | None:
        match e:
            case Op(name="add" | "sub" | "mul" | "neg", type=type_) if type_ == INT64:
                form = affine(e)
                return None if form is None else form.expr()
            case Op(name="min" | "max", args=(a, b), type=type_) if a == b and type_ == INT64:
                return a
            case Op(name="lt" | "le" | "gt" | "ge" | "eq" | "ne", args=(a, b)):
                return _decide(e, a, b)
            case Op(name="where", args=(Const(value=value), then, orelse)):
                return then if value else orelse
            case Op(name="where", args=(Op(name="and", args=(Op(name="not", args=(seen,)), here)), Const(value=True), other)):
                return Op("or", (seen, here), BOOL) if seen == other else None  # `if not seen and here: seen = True`
            case Op(name="where", args=(first, then, other), type=type_) if type_ == BOOL and first in (then, other):
                return Op("and", (first, then), BOOL) if first == other else Op("or", (first, other), BOOL)
            case Op(name="where", args=(condition, then, orelse)):
                if then == orelse and not may_fail(condition):
                    return then
                return None if e.derivative else _select_as_extremum(condition, then, orelse)
            case Op(name="and" | "or" as name, args=(Const(value=value), other)):
                return other if value == (name == "and") else Const(name == "or", e.type)
            case Op(name="and" | "or" as name, args=(other, Const(value=value))):
                if value == (name == "and"):
                    return other
                return None if may_fail(other) else Const(name == "or", e.type)
            case Op(name="not", args=(Const(value=value),)):
                return Const(not value, e.type)
        return None

    return rewrite(expr, rule)


def _decide(e: Op, a: Expr, b: Expr) -> Expr | None:
    """A comparison of affine forms that differ by a constant."""
    if a.type != INT64:
        return None
    left, right = affine(a), affine(b)
    if left is None or right is None:
        return None
    difference = left - right
    if difference.terms:
        return None
    d = difference.constant
    holds = {"lt": d < 0, "le": d <= 0, "gt": d > 0, "ge": d >= 0, "eq": d == 0, "ne": d != 0}[e.name]
    return Const(holds, e.type)


def _select_as_extremum(condition: Expr, then: Expr, orelse: Expr) -> Expr | None:
    """`a if a > b else b` is Python's max(b, a): it differs from max(a, b) in what a NaN does, and is kept apart.

    So is `a if a >= b else b` of floats, which takes the other one where they are equal: another sign of zero, another
    derivative.
    """
    if not isinstance(condition, Op) or then.type == BOOL or (condition.name in ("ge", "le") and then.type.category == "float"):
        return None  # bools have no extrema
    match condition:
        case Op(name="gt" | "ge", args=(a, b)) if (a, b) == (then, orelse):
            return Op("max", (b, a), then.type)
        case Op(name="lt" | "le", args=(a, b)) if (b, a) == (then, orelse):
            return Op("max", (a, b), then.type)
        case Op(name="lt" | "le", args=(a, b)) if (a, b) == (then, orelse):
            return Op("min", (b, a), then.type)
        case Op(name="gt" | "ge", args=(a, b)) if (b, a) == (then, orelse):
            return Op("min", (a, b), then.type)
    return None


def fold_names(
    statements: tuple[Stmt, ...], names: dict[str, Expr], checked: frozenset[str] = frozenset()
) -> tuple[Stmt, ...]:
    """Copy index arithmetic, plain copies and constants into their uses; turn branches without effects into selects.

    `names` collects what was copied: names are unique, so one dictionary serves all scopes. checked: the arrays whose
    subscripts the kernels look at.
    """

    def expr(e: Expr) -> Expr:
        return simplify(substitute(e, names))

    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let(name=name, value=value):
                value = expr(value)
                if isinstance(value, (Ref, Const)) or _is_index_arithmetic(value):
                    names[name] = value
                else:
                    out.append(replace(stmt, value=value))
            case If():
                out += _fold_branch(stmt, names, checked)
            case For():
                start, stop = expr(stmt.start), expr(stmt.stop)
                inits = [expr(c.init) for c in stmt.carries]
                body = fold_names(stmt.body, names, checked)
                carries = tuple(
                    replace(c, init=init, next=expr(c.next)) for c, init in zip(stmt.carries, inits, strict=True)
                )
                out.append(replace(stmt, start=start, stop=stop, carries=carries, body=body))
            case StoreStatement():
                out.append(map_statement(stmt, expr, lambda b: b))
    return tuple(out)


def _fold_branch(stmt: If, names: dict[str, Expr], checked: frozenset[str]) -> list[Stmt]:
    condition = simplify(substitute(stmt.condition, names))
    then, orelse = (
        fold_names(_knowing(side, condition, holds), names, checked)
        for side, holds in ((stmt.then, True), (stmt.orelse, False))
    )
    merges = [
        replace(m, then=simplify(substitute(m.then, names)), orelse=simplify(substitute(m.orelse, names)))
        for m in stmt.merges
    ]
    if isinstance(condition, Const):
        for m in merges:
            names[m.name] = m.then if condition.value else m.orelse
        return list(then if condition.value else orelse)
    sides = (then, [m.then for m in merges]), (orelse, [m.orelse for m in merges])
    if all(isinstance(s, (Let, StoreStatement)) for s in (*then, *orelse)) and not any(
        _fails_before_a_choice(body, values, checked) for body, values in sides
    ):
        selects = _selects(condition, then, orelse, merges)
        if selects is not None:
            out: list[Stmt] = []
            for m, select in zip(merges, selects, strict=True):
                if isinstance(select, (Ref, Const)):
                    names[m.name] = select
                else:
                    out.append(Let(m.name, select, stmt.location))
            store = _common_store(condition, then, orelse)
            if store is not None:
                out.append(store)
            elif any(isinstance(s, StoreStatement) for s in (*then, *orelse)):
                out.append(replace(stmt, condition=condition, then=then, orelse=orelse, merges=()))
            return out
    return [replace(stmt, condition=condition, then=then, orelse=orelse, merges=tuple(merges))]


def _knowing(body: tuple[Stmt, ...], condition: Expr, holds: bool) -> tuple[Stmt, ...]:
    """The statements of a branch, without comparisons of elements that its condition decides: `k + n if k < 0 else k` where
    data say that k is not below 0.
    """
    stored = {s.array for s in walk(body) if isinstance(s, StoreStatement)}
    known: dict[Expr, Expr] = {}
    for told in comparisons(condition, holds).all:
        if free_arrays(told) and not free_arrays(told) & stored:
            known |= {told: Const(True, BOOL), replace(told, name=OPPOSITE[told.name]): Const(False, BOOL)}
    if not known:
        return body

    def expr(e: Expr) -> Expr:
        return simplify(rewrite(e, known.get)) if free_arrays(e) else e

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_statement(s, expr, block) for s in statements)

    return block(body)


def _fails_before_a_choice(body: tuple[Stmt, ...], values: list[Expr], checked: frozenset[str]) -> bool:
    """Whether a branch names what may fail as the kernel runs, and then uses it on one of several paths alone: written out
    there it would no longer fail on the others.
    """
    surely = {n for e in values for n in _surely_read(e)}
    read = {n for e in values for n in free_names(e)}
    for stmt in reversed(body):
        if isinstance(stmt, Let):
            if stmt.name in read - surely and fails_as_it_runs(stmt.value, checked):
                return True
            exprs: tuple[Expr, ...] = (stmt.value,) if stmt.name in read else ()
            surely |= {n for e in exprs if stmt.name in surely for n in _surely_read(e)}
        else:
            exprs = tuple(statement_exprs(stmt))
            surely |= {n for e in exprs for n in _surely_read(e)}
        read |= {n for e in exprs for n in free_names(e)}
    return False


def _surely_read(expr: Expr) -> frozenset[str]:
    """The names that are read whatever the conditions in an expression are."""
    match expr:
        case Op(name="where", args=(condition, then, orelse)):
            return _surely_read(condition) | (_surely_read(then) & _surely_read(orelse))
        case Op(name="and" | "or", args=(left, _)):
            return _surely_read(left)
        case Ref(name=name):
            return frozenset((name,))
    return frozenset(n for o in operands(expr) for n in _surely_read(o))


def _common_store(condition: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...]) -> StoreStatement | None:
    """One store for two branches whose only effect is to store one element each, the same one."""
    ends: list[StoreStatement] = []
    for branch in (then, orelse):
        local: dict[str, Expr] = {}
        for s in branch[:-1]:
            if not isinstance(s, Let):
                return None
            local[s.name] = substitute(s.value, local)
        if not branch or not isinstance(branch[-1], StoreStatement):
            return None
        ends.append(map_statement(branch[-1], lambda e, names=local: substitute(e, names), lambda b: b))  # type: ignore
    one, other = ends
    if (one.array, one.index) != (other.array, other.index):
        return None
    value = simplify(Op("where", (condition, one.value, other.value), one.value.type))
    return replace(one, value=value) if _size(value) <= _COPY_LIMIT else None


def _selects(
    condition: Expr, then: tuple[Stmt, ...], orelse: tuple[Stmt, ...], merges: list[Merge]
) -> list[Expr] | None:
    """The merges as selects evaluated before the branch; None where they would read what the branch stores, or be large."""
    local: dict[str, Expr] = {}
    stored = {s.array for s in (*then, *orelse) if isinstance(s, StoreStatement)}
    for s in (*then, *orelse):
        if isinstance(s, Let):
            local[s.name] = substitute(s.value, local)
    selects = [
        simplify(Op("where", (condition, substitute(m.then, local), substitute(m.orelse, local)), m.type))
        for m in merges
    ]
    if sum(map(_size, selects)) > _COPY_LIMIT:
        return None
    loaded = {e.array for select in selects for e in walk_expr(select) if isinstance(e, Load)}
    return None if loaded & stored else selects


def drop_unused(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Remove bindings, carries and merges that no store depends on, and loops and branches left without effect."""
    return _only(statements, Uses.of(statements).needed())


def _only(statements: tuple[Stmt, ...], needed: set[str]) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case Let() if stmt.name not in needed:
                continue
            case If():
                merges = tuple(m for m in stmt.merges if m.name in needed)
                then, orelse = _only(stmt.then, needed), _only(stmt.orelse, needed)
                if not (then or orelse or merges):
                    continue
                stmt = replace(stmt, then=then, orelse=orelse, merges=merges)
            case For():
                carries = tuple(c for c in stmt.carries if c.name in needed)
                body = _only(stmt.body, needed)
                if not body and not any(c.result in needed for c in carries):
                    continue
                stmt = replace(stmt, body=body, carries=carries)
        out.append(stmt)
    return tuple(out)
