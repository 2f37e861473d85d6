"""The meaning of a loop nest, executed statement by statement: slow, obvious, and independent of every later stage.

Floats are computed as Python floats (double precision) whatever their register type; stores round to the array's dtype.
Integers wrap at their register type. Subscripts outside an array raise IndexError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weft.loops.affine import evaluate
from weft.loops.ir import Array, Cast, Check, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt, Store
from weft.loops.operators import OPERATORS
from weft.loops.types import ScalarType


def torch_dtype(type_: ScalarType) -> torch.dtype:
    return getattr(torch, type_.name)  # type: ignore[no-any-return]


def _fit(value: Any, type_: ScalarType) -> Any:
    """Convert a Python number to a register type, as C does."""
    if type_.category == "bool":
        return bool(value)
    if type_.category == "float":
        return float(value)
    bits = 8 * type_.size
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if type_.signed and wrapped >> (bits - 1) else wrapped


class CheckFailed(ArithmeticError):
    """A check in an expression does not hold."""

    def __init__(self, check: Check) -> None:
        super().__init__(check.fault.what)
        self.check = check


class _Machine:
    def __init__(self, function: Function, arrays: dict[str, torch.Tensor], names: dict[str, Any]) -> None:
        self.function, self.arrays, self.names = function, arrays, names

    def evaluate(self, expr: Expr) -> Any:
        match expr:
            case Const(value=value, type=type_):
                return _fit(value, type_)
            case Ref(name=name):
                return self.names[name]
            case Load(array=array, index=index):
                return self.arrays[array][self.subscript(array, index)].item()
            case Cast(value=value, type=type_):
                return _fit(self.evaluate(value), type_)
            case Round(value=value, to=to):
                return torch.tensor(self.evaluate(value), dtype=torch.float64).to(torch_dtype(to)).item()
            case Op(name="where", args=(condition, then, orelse)):
                return self.evaluate(then) if self.evaluate(condition) else self.evaluate(orelse)
            case Op(name="check", args=(value, condition)):  # a value that has none is not computed
                if not self.evaluate(condition):
                    raise CheckFailed(expr) if isinstance(expr, Check) else ArithmeticError("a check does not hold")
                return self.evaluate(value)
            case Op(name="and", args=(a, b)):
                return self.evaluate(a) and self.evaluate(b)
            case Op(name="or", args=(a, b)):
                return self.evaluate(a) or self.evaluate(b)
            case Op(name=name, args=args, type=type_):
                return _fit(OPERATORS[name].evaluate(*map(self.evaluate, args)), type_)
        raise TypeError(expr)

    def subscript(self, array: str, index: tuple[Expr, ...]) -> tuple[int, ...]:
        values = tuple(int(self.evaluate(i)) for i in index)
        shape = self.arrays[array].shape
        if any(not 0 <= i < n for i, n in zip(values, shape, strict=True)):
            raise IndexError(f"{array}{list(values)} outside {list(shape)}")
        return values

    def allocate(self, array: Array) -> None:
        shape = [int(self.evaluate(e)) for e in array.shape]
        # an element that no one wrote shows itself: nan, or a value far off
        poison = float("nan") if array.dtype.category == "float" else 77
        fill = poison if array.fill is None else array.fill.value
        self.arrays[array.name] = torch.full(shape, fill, dtype=torch_dtype(array.dtype))

    def run(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value):
                    self.names[name] = self.evaluate(value)
                case Store(array=array, index=index, value=value):
                    result, place = self.evaluate(value), self.subscript(array, index)
                    try:
                        self.arrays[array][place] = result
                    except RuntimeError:  # beyond the largest number of the dtype: it is infinite there
                        self.arrays[array][place] = torch.tensor(result, dtype=torch.float64)
                case If(condition=condition):
                    taken = self.evaluate(condition)
                    self.run(stmt.then if taken else stmt.orelse)
                    merged = {m.name: self.evaluate(m.then if taken else m.orelse) for m in stmt.merges}
                    self.names.update(merged)
                case For():
                    self.loop(stmt)

    def loop(self, loop: For) -> None:
        state = [self.evaluate(c.init) for c in loop.carries]
        fresh = [a for a in self.function.arrays if a.within and a.within[-1] == loop.var]
        for value in range(self.evaluate(loop.start), self.evaluate(loop.stop), loop.step):
            self.names[loop.var] = value
            self.names.update(zip((c.name for c in loop.carries), state, strict=True))
            for array in fresh:
                self.allocate(array)
            self.run(loop.body)
            state = [self.evaluate(c.next) for c in loop.carries]
        self.names.update(zip((c.result for c in loop.carries), state, strict=True))


def value_of(expr: Expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression of names alone."""
    return _Machine(Function("", (), (), (), (), (), ()), {}, dict(names)).evaluate(expr)


def interpret(function: Function, *arguments: Any) -> tuple[torch.Tensor, ...]:
    """Run a function on CPU tensors and Python scalars, in the order of its parameters; "inout" arguments are written.

    Returns the results in order.
    """
    given = dict(zip(function.parameters, arguments, strict=True))
    names: dict[str, Any] = {s.name: _fit(given[s.name], s.type) for s in function.scalars if s.value is None}
    arrays = {n: v for n, v in given.items() if n not in names}
    names |= {s.name: arrays[s.array].shape[s.axis] for s in function.sizes}
    for s in function.scalars:
        if s.value is not None:
            names[s.name] = evaluate(s.value, names)
    machine = _Machine(function, arrays, names)
    for array in function.arrays:
        if array.name not in arrays and not array.within:
            machine.allocate(array)
    machine.run(function.body)
    return tuple(machine.arrays[r] for r in function.results)
