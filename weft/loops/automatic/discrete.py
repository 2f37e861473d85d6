"""Whether a value decides something: a comparison, a conversion to an integer, a subscript. There the last bit counts.

A sum that is taken in another grouping, or replaced by a product, is off by a rounding. That is the reassociation which the
language allows where the sum is a quantity. Steps of one size, though, meet the numbers that programs compare them with:
ten times 0.1 is less than 1 in Python's order and 1 in most others.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.loops.ir import Cast, Expr, For, Function, If, Let, Load, Op, Ref, Round, Store, operands, walk

# What moves little where its operands do, wherever they lie.
_SMOOTH = frozenset(
    {"add", "sub", "mul", "neg", "abs", "max", "min", "maximum", "minimum", "fmax", "fmin", "exp", "exp2", "expm1"}
    | {"sin", "cos", "tanh", "sigmoid", "erf", "gelu", "atan", "sinh", "cosh", "where"}
)


def decides(function: Function, names: Iterable[str]) -> bool:
    """Whether anything in the function, through names and memory, is decided by the values of these names."""
    return _Use(function, set(names)).found


class _Use:
    """tainted: names whose values depend on those; arrays: that hold such values."""

    def __init__(self, function: Function, tainted: set[str]) -> None:
        self.tainted, self.arrays, self.found = tainted, set[str](), False
        statements = tuple(walk(function.body))
        before = (-1, -1)
        while before != (before := (len(self.tainted), len(self.arrays))) and not self.found:
            for stmt in statements:
                match stmt:
                    case Let(name=name, value=value):
                        self._bind(value, name)
                    case Store(array=array, index=index, value=value):
                        self._discrete(*index)
                        if self._depends(value):
                            self.arrays.add(array)
                    case If(condition=condition):
                        self._discrete(condition)
                        for m in stmt.merges:
                            self._bind(m.then, m.name)
                            self._bind(m.orelse, m.name)
                    case For():
                        self._discrete(stmt.start, stmt.stop)
                        for c in stmt.carries:
                            self._bind(c.init, c.name, c.result)
                            self._bind(c.next, c.name, c.result)

    def _bind(self, value: Expr, *names: str) -> None:
        if self._depends(value):
            self.tainted.update(names)

    def _discrete(self, *exprs: Expr) -> None:
        for e in exprs:
            self.found = self._depends(e) or self.found

    def _depends(self, e: Expr) -> bool:
        """Whether a value depends on what is tainted; notes where that decides something."""
        match e:
            case Ref(name=name):
                return name in self.tainted
            case Load(array=array, index=index):
                self._discrete(*index)
                return array in self.arrays
            case Op(name="where", args=(condition, then, orelse)):
                self._discrete(condition)
                return self._depends(then) | self._depends(orelse)
            case Op(name="check", args=(value, _)):  # it tells an error, and no value
                return self._depends(value)
        inner = [self._depends(o) for o in operands(e)]
        smooth = isinstance(e, Round) or isinstance(e, Cast) and e.type.category == "float"
        if any(inner) and not (smooth or isinstance(e, Op) and e.name in _SMOOTH):
            self.found = True
        return any(inner)
