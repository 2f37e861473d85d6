"""What is a number of a 16-bit type to PyTorch: a sum of products of two such numbers, and what only adds such to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.loops.ir import Carry, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt
from weft.loops.types import BFLOAT16, FLOAT16, ScalarType

_HALVES = (FLOAT16, BFLOAT16)


def half_sums(function: Function) -> dict[str, ScalarType]:
    """The names of sums of products of two numbers of one 16-bit type, from all iterations of a loop, and of what adds numbers
    of that type to them; their types.
    """
    found = _HalfSums({a.name: a.dtype for a in function.arrays})
    found.block(function.body)
    return found.sums


class _HalfSums:
    def __init__(self, arrays: Mapping[str, ScalarType]) -> None:
        self.arrays = arrays
        self.lets: dict[str, Expr] = {}
        self.sums: dict[str, ScalarType] = {}

    def block(self, statements: Iterable[Stmt]) -> None:
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value):
                    self.lets[name] = value
                    type_ = self.added(value.value if isinstance(value, Round) else value)
                    if type_ is not None and not (isinstance(value, Round) and value.to != type_):
                        self.sums[name] = type_
                case For(carries=carries, body=body):
                    self.block(body)
                    for c in carries:
                        if (summed := self.summed(c)) is not None:
                            self.sums[c.result] = summed
                case If(then=then, orelse=orelse):
                    self.block(then)
                    self.block(orelse)
                case _:
                    pass

    def held(self, e: Expr) -> ScalarType | None:
        """The 16-bit type that an expression is a number of, as it is in memory."""
        match e:
            case Load(array=array):
                type_ = self.arrays[array]
                return type_ if type_ in _HALVES else None
            case Round(to=to):
                return to if to in _HALVES else None
            case Ref(name=name) if name in self.lets:
                return self.held(self.lets[name])
        return None

    def summed(self, carry: Carry) -> ScalarType | None:
        """The type of the products that a loop adds to what it carries, from 0 or from such a sum on."""
        value = self.lets.get(carry.next.name, carry.next) if isinstance(carry.next, Ref) else carry.next
        match value:
            case Op(name="add", args=(Ref(name=name), Op(name="mul", args=(a, b)))) if name == carry.name:
                type_ = self.held(a)
                return type_ if type_ == self.held(b) else None
        if isinstance(carry.next, Ref) and carry.next.name in self.sums:  # of a loop in it
            return self.sums[carry.next.name]
        return None

    def added(self, e: Expr) -> ScalarType | None:
        """The type of sums of products to which an expression adds numbers of this type alone, or subtracts them."""
        match e:
            case Ref(name=name) if name in self.sums:
                return self.sums[name]
            case Op(name="add" | "sub", args=(a, b)):
                sums, held = {self.added(a), self.added(b)}, {self.held(a), self.held(b)}
                types = (sums | held) - {None}
                apart = all(self.added(x) or self.held(x) or isinstance(x, Const) for x in (a, b))
                return types.pop() if apart and len(types) == 1 and sums != {None} else None
        return None
