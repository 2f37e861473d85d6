"""Accumulations into cells that the data choose: `count[index[i]] += 1`.

Whatever cells the iterations meet in, each is updated by one commutative operation, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import replace

from weft.loops.algebra.recurrences import expand
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Expr, For, Function, Let, Load, Op, Stmt, Store, statement_exprs, walk, walk_expr
from weft.loops.rounding import Rounding

_BY_JOIN = {a.join: name for name, a in ALGEBRAS.items()}


def accumulated(function: Function, loop: For, array: str) -> str | None:
    """The algebra by which every store of a loop to an array updates a cell, which the loop reads for nothing else; None
    where it does anything else, or where what the stores round depends on their order.
    """
    written = {s.array for s in walk(loop.body) if isinstance(s, Store)}
    steady = {
        s.name: s.value
        for s in walk(loop.body)
        if isinstance(s, Let) and not any(isinstance(e, Load) and e.array in written for e in walk_expr(s.value))
    }

    def told(e: Expr) -> Expr:
        """e, with the names of values that no store of the loop changes taken for these."""
        return expand(e, steady, set(steady))

    stores = [
        replace(s, index=tuple(map(told, s.index)), value=told(s.value))
        for s in walk(loop.body)
        if isinstance(s, Store) and s.array == array
    ]
    algebras = {_update(s) for s in stores}
    own = sum(1 for s in stores for e in walk_expr(s.value) if _is_cell(e, s))
    reads = sum(e.array == array for e in _loads((loop,)))
    if len(algebras) != 1 or not own == len(stores) == reads:
        return None
    rounding = Rounding.of(function)
    exact = all(isinstance(rounding.stored(array, s.value), Op) for s in stores)
    return algebras.pop() if exact else None


def _loads(statements: tuple[Stmt, ...]) -> list[Load]:
    return [e for s in walk(statements) for x in statement_exprs(s) for e in walk_expr(x) if isinstance(e, Load)]


def _is_cell(e: Expr, store: Store) -> bool:
    return isinstance(e, Load) and (e.array, e.index) == (store.array, store.index)


def _update(store: Store) -> str | None:
    """The algebra of `a[k] = a[k] (op) v`, where v does not read the array."""
    match store.value:
        case Op(name="max" | "min" as op, args=(cell, v)) if _is_cell(cell, store) and not _reads(v, store.array):
            return op
        case Op(name=op, args=(a, b)) if op in _BY_JOIN and op not in ("max", "min", "add"):
            for cell, v in ((a, b), (b, a)):
                if _is_cell(cell, store) and not _reads(v, store.array):
                    return _BY_JOIN[op]
            return None
        case Op(name="add", args=(a, b)):
            terms = (*_terms(a), *_terms(b))
            return "sum" if sum(_is_cell(t, store) for t in terms) == 1 else None
        case Op(name="sub", args=(a, b)) if not _reads(b, store.array):
            return "sum" if sum(_is_cell(t, store) for t in _terms(a)) == 1 else None
    return None


def _terms(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Op(name="add", args=(a, b)):
            return (*_terms(a), *_terms(b))
        case Op(name="sub", args=(a, _)):
            return _terms(a)
    return (e,)


def _reads(e: Expr, array: str) -> bool:
    return any(isinstance(x, Load) and x.array == array for x in walk_expr(e))

