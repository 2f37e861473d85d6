"""What iterations have in common is named before the loops around, where it stands in a subscript."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate.sites import mapped
from weft.loops.ir import (
    Expr,
    Function,
    Let,
    Op,
    Ref,
    Scalar,
    free_arrays,
    free_names,
    operands,
    substitute,
    substitute_statements,
    with_operands,
)
from weft.loops.names import Names
from weft.loops.types import INT64


class Steady:
    """Names for what is the same in all iterations and no sum of names, as `width // 2`: subscripts and bounds that are sums
    of it and of variables are affine in those names. What the program itself names so is a number of the call meanwhile.
    """

    def __init__(self, function: Function, names: Names) -> None:
        self.names, self.made = names, dict[Expr, Ref]()
        self.fixed = {s.name for s in function.sizes} | {s.name for s in function.scalars}
        self.lets: list[Let] = []
        for s in function.body:
            if isinstance(s, Let) and s.value.type == INT64 and free_names(s.value) <= self.fixed and not free_arrays(s.value):
                self.lets.append(s)
                self.fixed.add(s.name)

    def named(self, function: Function) -> Function:
        arrays = tuple(replace(a, shape=tuple(map(self._name, a.shape))) for a in function.arrays)
        body = mapped(tuple(s for s in function.body if s not in self.lets), self._name)
        own = (*((s.name, s.value) for s in self.lets), *((ref.name, e) for e, ref in self.made.items()))
        scalars = (*function.scalars, *(Scalar(name, INT64, e) for name, e in own))
        return replace(function, arrays=arrays, body=body, scalars=scalars)

    def written_out(self, function: Function) -> Function:
        arrays = tuple(replace(a, shape=tuple(map(self.in_full, a.shape))) for a in function.arrays)
        known: dict[str, Expr] = {ref.name: e for e, ref in self.made.items()}
        own = known.keys() | {s.name for s in self.lets}
        scalars = tuple(s for s in function.scalars if s.name not in own)
        body = (*self.lets, *substitute_statements(function.body, known))
        return replace(function, arrays=arrays, body=body, scalars=scalars)

    def in_full(self, e: Expr) -> Expr:
        """An expression of sizes and numbers of a call alone."""
        known: dict[str, Expr] = {ref.name: e for e, ref in self.made.items()} | {s.name: s.value for s in self.lets}
        while names := free_names(e) & known.keys():
            e = substitute(e, {n: known[n] for n in names})
        return e

    def _name(self, e: Expr, term: bool = False) -> Expr:
        """term: it is one of a sum, in which a product is a number like others; by itself it may be told by its factors."""
        no_sum = isinstance(e, Op) and e.type == INT64 and e.name in ("floordiv", "mod", "min", "max")
        no_sum = no_sum or (term and isinstance(e, Op) and e.name == "mul" and all(map(free_names, e.args)))
        if no_sum and free_names(e) and free_names(e) <= self.fixed and not free_arrays(e):
            return self.made.setdefault(e, Ref(self.names.fresh("steady"), INT64))
        terms = isinstance(e, Op) and e.name in ("add", "sub")
        below = operands(e)
        return with_operands(e, tuple(self._name(o, terms) for o in below)) if below else e
