"""Loads of elements that are stored to later on, which only the moment of the load can read, are given names."""

from __future__ import annotations

from dataclasses import replace

from weft.errors import Location
from weft.loops.accumulate import accumulate_into, accumulation
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
    Store,
    operands,
    walk,
    walk_expr,
    with_operands,
)
from weft.loops.memory import Memory
from weft.loops.names import Names
from weft.loops.types import BOOL


def name_passing_loads(function: Function, memory: Memory, names: Names) -> tuple[Function, dict[str, str]]:
    """Bind loads of elements that are stored to later on to names, which a sweep can save; also the array of each such name."""
    written = {s.array for s in walk(function.body) if isinstance(s, Store)}
    named: dict[str, str] = {}
    passing: dict[tuple[str, tuple[Expr, ...]], bool] = {}

    def passes(e: Expr) -> bool:
        if not isinstance(e, Load) or e.array not in written:
            return False
        key = (e.array, e.index)
        if key not in passing:
            passing[key] = not memory.last(*key, write=False)
        return passing[key]

    def pull(e: Expr, out: list[Stmt], location: Location | None) -> Expr:
        if not any(map(passes, walk_expr(e))):
            return e
        match e:
            case Op(name="where", args=(condition, a, b)):
                return choose(condition, a, b, out, location)
            case Op(name="and", args=(a, b)):
                return choose(a, b, Const(False, BOOL), out, location)
            case Op(name="or", args=(a, b)):
                return choose(a, Const(True, BOOL), b, out, location)
        new = with_operands(e, tuple(pull(o, out, location) for o in operands(e)))
        if not (isinstance(e, Load) and passes(e)):
            return new
        name = names.fresh(f"{e.array}_before")
        named[name] = e.array
        out.append(Let(name, new, e.location or location))
        return Ref(name, e.type)

    def choose(condition: Expr, a: Expr, b: Expr, out: list[Stmt], location: Location | None) -> Expr:
        """A branch in place of an expression that evaluates a or b, so that what is loaded there can be named."""
        condition = pull(condition, out, location)
        if not any(map(passes, (*walk_expr(a), *walk_expr(b)))):
            return Op("where", (condition, a, b), a.type)
        then, orelse = list[Stmt](), list[Stmt]()
        merge = Merge(names.fresh("chosen"), pull(a, then, location), pull(b, orelse, location))
        out.append(If(condition, tuple(then), tuple(orelse), (merge,), location))
        return Ref(merge.name, merge.type)

    def block(statements: tuple[Stmt, ...], ends: tuple[Expr, ...]) -> tuple[tuple[Stmt, ...], list[Expr]]:
        out: list[Stmt] = []
        for stmt in statements:
            at = stmt.location
            match stmt:
                case Let(value=Load(array=array)) if passes(stmt.value):
                    named[stmt.name] = array
                    out.append(stmt)
                case Let():
                    value = pull(stmt.value, out, at)
                    out.append(replace(stmt, value=value))
                case Store():
                    own = accumulation(stmt, alone=False)
                    if own is not None:  # its own element is added to, whatever it is
                        out.append(accumulate_into(stmt.array, stmt.index, pull(own, out, at), stmt))
                    else:
                        index = tuple(pull(i, out, at) for i in stmt.index)
                        out.append(replace(stmt, index=index, value=pull(stmt.value, out, at)))
                case For():
                    start, stop = pull(stmt.start, out, at), pull(stmt.stop, out, at)
                    inits = [pull(c.init, out, at) for c in stmt.carries]
                    body, nexts = block(stmt.body, tuple(c.next for c in stmt.carries))
                    carries = tuple(
                        replace(c, init=i, next=n) for c, i, n in zip(stmt.carries, inits, nexts, strict=True)
                    )
                    out.append(replace(stmt, start=start, stop=stop, carries=carries, body=body))
                case If():
                    condition = pull(stmt.condition, out, at)
                    then, a = block(stmt.then, tuple(m.then for m in stmt.merges))
                    orelse, b = block(stmt.orelse, tuple(m.orelse for m in stmt.merges))
                    merges = tuple(replace(m, then=x, orelse=y) for m, x, y in zip(stmt.merges, a, b, strict=True))
                    out.append(replace(stmt, condition=condition, then=then, orelse=orelse, merges=merges))
        last = [pull(e, out, None) for e in ends]
        return tuple(out), last

    return replace(function, body=block(function.body, ())[0]), named
