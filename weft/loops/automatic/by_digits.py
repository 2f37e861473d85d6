"""Loops over numbers of which only quotients and remainders are used, as loops over these: `x[i // 64, i % 64]` of an i below
128 is `x[i, j]` of two loops.

The iterations and their order are the same. Subscripts are sums of variables then: what lies side by side is told to, and no
kernel has to look whether a quotient is inside of its array.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from itertools import pairwise

from weft.loops.automatic.rewriting import keeps_array
from weft.loops.ir import (
    Carry,
    Const,
    Expr,
    For,
    Function,
    Op,
    Ref,
    Stmt,
    map_statement,
    operands,
    statement_exprs,
    walk,
    with_operands,
)
from weft.loops.names import Names
from weft.loops.types import INT64

_Digit = tuple[int, int]  # `var // low % (high // low)`, of the numbers below high


def by_digits(function: Function) -> Function:
    """The function with loops over the digits of variables where their bounds and divisors are numbers."""
    names = Names.of(function)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_loops(function, own, names) if isinstance(own, For) else own for own in map(inside, statements))

    def inside(statement: Stmt) -> Stmt:
        return map_statement(statement, lambda e: e, block)

    body = block(function.body)
    return replace(function, body=body)


def _loops(function: Function, loop: For, names: Names) -> For:
    """A loop, or loops over its digits around each other."""
    if loop.start != Const(0, INT64) or loop.step != 1 or not isinstance(loop.stop, Const) or loop.segment is not None:
        return loop
    count = int(loop.stop.value)
    exprs = [e for s in walk(loop.body) for e in statement_exprs(s)] + [c.next for c in loop.carries]
    found: set[_Digit] = set()
    for e in exprs:
        _collect(e, loop.var, count, found)
    cuts = sorted({end for digit in found for end in digit} | {1, count})
    chain = cuts[0] == 1 and cuts[-1] == count and not any(b % a for a, b in pairwise(cuts))
    if len(cuts) < 3 or not chain or (1, count) in found or keeps_array(function, loop):
        return loop
    lows = cuts[:-1]
    variables = {low: loop.var if low == lows[-1] else names.fresh(loop.var) for low in lows}

    def told(e: Expr) -> Expr:
        digit = _digit(e, loop.var, count)
        if digit is None:
            return with_operands(e, tuple(map(told, operands(e)))) if operands(e) else e
        terms = [_times(Ref(variables[low], INT64), low // digit[0]) for low in reversed(lows) if digit[0] <= low < digit[1]]
        return reduce(lambda a, b: Op("add", (a, b), INT64), terms)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map_statement(s, told, block) for s in statements)

    body, carries = block(loop.body), tuple(replace(c, next=told(c.next)) for c in loop.carries)
    for low, high in pairwise(cuts):
        stop = Const(high // low, INT64)
        if high == count:
            return replace(loop, stop=stop, carries=carries, body=body)
        around = [Carry(names.fresh(c.name), c.init, c.next, c.result) for c in carries]
        pairs = zip(carries, around, strict=True)
        inner = [replace(c, init=Ref(o.name, c.type), result=names.fresh(c.result)) for c, o in pairs]
        body = (replace(loop, var=variables[low], stop=stop, carries=tuple(inner), body=body),)
        carries = tuple(replace(o, next=Ref(i.result, i.type)) for o, i in zip(around, inner, strict=True))
    return loop


def _collect(e: Expr, var: str, count: int, found: set[_Digit]) -> None:
    digit = _digit(e, var, count)
    if digit is not None:
        found.add(digit)
        return
    for part in operands(e):
        _collect(part, var, count, found)


def _digit(e: Expr, var: str, count: int) -> _Digit | None:
    """Which digits of a variable below a count an expression is."""
    match e:
        case Ref(name=name) if name == var:
            return 1, count
        case Op(name="floordiv", args=(Ref(name=name), Const(value=low))) if name == var and 0 < low < count:
            return int(low), count
        case Op(name="mod", args=(Ref(name=name), Const(value=base))) if name == var and 0 < base < count:
            return 1, int(base)
        case Op(name="mod", args=(Op(name="floordiv", args=(Ref(name=name), Const(value=low))), Const(value=base))):
            return (int(low), int(low * base)) if name == var and low > 0 and base > 0 and low * base <= count else None
    return None


def _times(e: Expr, factor: int) -> Expr:
    return e if factor == 1 else Op("mul", (e, Const(factor, INT64)), INT64)
