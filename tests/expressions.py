"""Random scalar expressions over Python's numbers and elements of every dtype, and what the plain Python makes of them.

An expression is evaluated twice: as it stands, which says what it is (of which dtype, or a number of Python's), and with
float16 and bfloat16 elements held in float32, which says its value: weft rounds where something is stored.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_HALVES = (torch.float16, torch.bfloat16)
_INTEGERS = {"u1": torch.uint8, "i1": torch.int8, "i2": torch.int16, "i4": torch.int32, "i8": torch.int64}
_FLOATS = {"f2": torch.float16, "bf": torch.bfloat16, "f4": torch.float32, "f8": torch.float64}
ARRAYS = {"b": torch.bool, **_INTEGERS, **_FLOATS}
NUMBERS = {"k": int, "l": int, "a": float, "c": float, "p": bool}
PARAMETERS = (*ARRAYS, *NUMBERS, "i", "j")
# An int of Python's that has no 64 bits is one that weft refuses.
LARGEST = 2**63


def _values(dtype: torch.dtype) -> list[Any]:
    if dtype == torch.bool:
        return [False, True]
    if dtype.is_floating_point:
        largest = torch.finfo(dtype).max
        return [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 100.0, largest, -largest, math.inf, -math.inf, math.nan]
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    return [v for v in (0, 1, -1, 2, 3, -3, 7, 63, 100, low, low + 1, high, high - 1) if low <= v <= high]


VALUES = {name: torch.tensor(_values(dtype), dtype=dtype) for name, dtype in ARRAYS.items()}
_GIVEN: dict[str, list[Any]] = {
    "k": [0, 1, -1, 2, -3, 7, 64, 255, -129, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "a": [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 0.1, 1e10, 1e300, math.inf, -math.inf, math.nan],
    "p": [False, True],
}
_GIVEN |= {"l": _GIVEN["k"], "c": _GIVEN["a"]}
_CONSTANTS = ("0", "1", "-1", "2", "3", "255", "256", "-129", "2147483648", "0.0", "-0.0", "0.5", "-1.5", "0.1", "1e300",
              "True", "False", "math.inf", "math.nan", "math.pi")  # fmt: skip


@dataclass(frozen=True)
class Value:
    """real: what the Python makes. wide: the same with halves held in float32."""

    real: Any
    wide: Any


@dataclass(frozen=True)
class Node:
    """An expression. template: its text, with a place for each operand."""

    template: str
    function: Callable[..., Any] | None = None
    args: tuple[Node, ...] = ()
    lazy: bool = False  # the function takes what computes its operands

    @property
    def text(self) -> str:
        return self.template.format(*(a.text for a in self.args))

    def walk(self) -> list[Node]:
        return [self, *(n for a in self.args for n in a.walk())]

    @property
    def joined(self) -> bool:
        """Whether a float element meets values of other kinds in a choice, which weft takes for such elements."""
        for node in self.walk():
            leaves = {n.template.split("[")[0] for n in node.walk() if n.function is None}
            if node.lazy and len(leaves) > 1 and leaves & _FLOATS.keys():
                return True
        return False

    @property
    def chooses(self) -> bool:
        return any(n.lazy for n in self.walk())

    @property
    def inexact(self) -> bool:
        """Whether its value is rounded in ways that libraries differ in."""
        return any("torch." in n.template and ".to(" not in n.template or "math." in n.template or "**" in n.template
                   or " / " in n.template for n in self.walk())  # fmt: skip

    def value(self, names: dict[str, Value], large: list[int]) -> Value:
        """Raises what the Python does. large: gets the ints of Python's that 64 bits do not hold."""
        if self.function is None:
            return names[self.template] if self.template in names else _constant(self.template)
        if self.lazy:
            found: Value = self.function(*((lambda a=a: a.value(names, large)) for a in self.args))  # type: ignore[misc]
            return found
        args = [a.value(names, large) for a in self.args]
        real = self.function(*(a.real for a in args))
        wide = [a.wide for a in args]
        if self.function in _COMPARISONS:
            wide = _compared(args)
        held = _held(real, self.function(*wide), self.template)
        if type(held) is int and not -LARGEST <= held < LARGEST:
            large.append(held)
        return Value(real, held)


def _constant(text: str) -> Value:
    value = eval(text, {"math": math})
    return Value(value, value)


def _held(real: Any, wide: Any, template: str) -> Any:
    """A cast to a half type rounds."""
    if ".to(" in template and real.dtype in _HALVES:
        return wide.to(real.dtype).float()
    return wide


def _compared(args: Sequence[Value]) -> list[Any]:
    """A comparison of a half element with a number rounds the number."""
    dtypes = [a.real.dtype for a in args if isinstance(a.real, torch.Tensor) and a.real.dtype in _HALVES]
    if len(dtypes) != 1 or all(isinstance(a.real, torch.Tensor) for a in args):
        return [a.wide for a in args]
    (dtype,) = dtypes
    tensors = [isinstance(a.real, torch.Tensor) for a in args]
    return [a.wide if t else torch.tensor(float(a.wide)).to(dtype).item() for a, t in zip(args, tensors, strict=True)]


_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


def _and(a: Any, b: Any) -> Value:
    left = a()
    return b() if left.wide else left


def _or(a: Any, b: Any) -> Value:
    left = a()
    return left if left.wide else b()


def _choice(then: Any, test: Any, orelse: Any) -> Value:
    return then() if test().wide else orelse()


def _picked(beats: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def pick(a: Any, b: Any) -> Value:
        left, right = a(), b()
        return right if beats(*_compared([right, left])) else left

    return pick


def _math(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(math, name)(*args)


def _torch(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(torch, name)(*args)


_BINARY = [
    *((f"({{0}} {sign} {{1}})", function) for sign, function in (
        ("+", operator.add), ("-", operator.sub), ("*", operator.mul), ("/", operator.truediv), ("//", operator.floordiv),
        ("%", operator.mod), ("&", operator.and_), ("|", operator.or_), ("^", operator.xor),
        ("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge), ("==", operator.eq),
        ("!=", operator.ne),
    )),
]  # fmt: skip
_UNARY = [("(-{0})", operator.neg), ("abs({0})", abs), ("(not {0})", operator.not_), ("(+{0})", operator.pos),
          ("(~{0})", operator.invert), ("int({0})", int), ("float({0})", float), ("bool({0})", bool)]  # fmt: skip
_CASTS = [(f"({{0}}).to({dtype})", lambda x, dtype=dtype: x.to(dtype)) for dtype in ARRAYS.values()]
_OF_ELEMENTS = [*((f"torch.{n}({{0}})", _torch(n)) for n in (
    "sign", "floor", "ceil", "trunc", "round", "relu", "isnan", "isinf", "isfinite", "square", "logical_not", "abs", "neg",
    "bitwise_not"))]  # fmt: skip
_OF_TWO = [*((f"torch.{n}({{0}}, {{1}})", _torch(n)) for n in (
    "maximum", "minimum", "fmax", "fmin", "fmod", "remainder", "copysign", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "true_divide", "mul", "add", "sub"))]  # fmt: skip
_INEXACT = [*((f"torch.{n}({{0}})", _torch(n)) for n in (
    "exp", "log", "sin", "sqrt", "rsqrt", "tanh", "sigmoid", "reciprocal"))]  # fmt: skip
_INEXACT_NUMBERS = [*((f"math.{n}({{0}})", _math(n)) for n in ("exp", "log", "sin", "sqrt", "tanh", "log1p", "acos", "cosh"))]
_EXACT_NUMBERS = [*((f"math.{n}({{0}})", _math(n)) for n in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "fabs"))]
_POWERS = [(f"({{0}} ** {e})", lambda x, e=e: x**e) for e in (0, 1, 2, 3, 0.5, -1, -2, 2.0, True)]
_POWER = ("({0} ** {1})", operator.pow)
_SHIFTS = [("({0} << {1})", operator.lshift), ("({0} >> {1})", operator.rshift)]


class Expressions:
    """Expressions of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.arrays = list(ARRAYS)
        if self.random.random() < 0.5:  # so that choices are between integers
            self.arrays = [name for name in self.arrays if name not in _FLOATS]

    def leaf(self) -> Node:
        drawn = self.random.random()
        if drawn < 0.6:
            return Node(f"{self.random.choice(self.arrays)}[{self.random.choice('ij')}]")
        return Node(self.random.choice(list(NUMBERS) if drawn < 0.85 else _CONSTANTS))

    def node(self, depth: int) -> Node:
        if depth == 0:
            return self.leaf()
        if self.random.random() < 0.15:
            return self.leaf()
        draw, go = self.random.random(), lambda: self.node(depth - 1)
        if draw < 0.4:
            return Node(*self.random.choice(_BINARY), (go(), go()))
        if draw < 0.55:
            return Node(*self.random.choice(_UNARY), (go(),))
        if draw < 0.62:
            return Node("({0} if {1} else {2})", _choice, (go(), go(), go()), lazy=True)
        if draw < 0.68:
            word, function = self.random.choice((("and", _and), ("or", _or)))
            return Node(f"({{0}} {word} {{1}})", function, (go(), go()), lazy=True)
        if draw < 0.74:
            name, beats = self.random.choice((("max", operator.gt), ("min", operator.lt)))
            return Node(f"{name}({{0}}, {{1}})", _picked(beats), (go(), go()), lazy=True)
        if draw < 0.79:
            return Node(*self.random.choice(_CASTS), (go(),))
        if draw < 0.84:
            return Node(*self.random.choice(_OF_ELEMENTS), (go(),))
        if draw < 0.89:
            return Node(*self.random.choice(_OF_TWO), (go(), go()))
        if draw < 0.92:
            return Node(*self.random.choice(_EXACT_NUMBERS), (go(),))
        if draw < 0.95:
            return Node(*self.random.choice(_POWERS), (go(),))
        if draw < 0.97:
            return Node(*self.random.choice(_SHIFTS), (go(), self.leaf()))
        return Node("torch.where({0}, {1}, {2})", _torch("where"), (go(), go(), go()))

    def expression(self) -> Node:
        """One with a name in it. Functions that round stand outside alone, so that nothing discrete hangs on a rounding."""
        while True:
            made = self.node(self.random.choice((1, 2, 2, 3)))
            if self.random.random() < 0.15:
                made = Node(*self.random.choice(_INEXACT + _INEXACT_NUMBERS), (made,))
            if any(n.function is None and n.template not in _CONSTANTS for n in made.walk()):
                return made


def arguments(seed: int) -> dict[str, Any]:
    """Arrays of special values in a random order, numbers, and the elements i and j that are read."""
    choose = random.Random(seed)
    length = max(map(len, VALUES.values()))
    made: dict[str, Any] = {n: v[[choose.randrange(len(v)) for _ in range(length)]] for n, v in VALUES.items()}
    made |= {name: choose.choice(_GIVEN[name]) for name in NUMBERS}
    return made | {"i": choose.randrange(length), "j": choose.randrange(length)}


def names(args: dict[str, Any]) -> dict[str, Value]:
    """What the leaves of expressions are for these arguments."""
    found = {name: Value(args[name], args[name]) for name in NUMBERS}
    for name, dtype in ARRAYS.items():
        for index in ("i", "j"):
            element = args[name][args[index]]
            found[f"{name}[{index}]"] = Value(element, element.float() if dtype in _HALVES else element)
    return found
