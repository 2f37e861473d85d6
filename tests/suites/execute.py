"""Exact execution of a loop nest: rational numbers, every access seen, one chosen loop stopped, permuted or disturbed.

Sums and products of rationals do not depend on their order, so what differs between two executions does not come from
rounding. A function that leaves the rationals (`sqrt`, `exp`, a division by zero) is an arbitrary but fixed rational of its
arguments: equal arguments give equal values, and no law holds that a compiler could have used.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch

from weft.loops.affine import evaluate
from weft.loops.ir import Cast, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt, Store

# ("name", its name) or (array, index...): a place that holds one value.
Cell = tuple[Any, ...]
# What reads and writes: a statement, or one role of a loop's carry, a branch's merge, a condition, a loop's bounds.
Node = tuple[str, Any]

# Bits of a numerator that an execution may reach.
_LONGEST = 200_000


def _uninterpreted(name: str, *args: Any) -> Fraction:
    # the hash of a rational is its residue modulo a prime: the same in every run, and cheap for long ones
    return Fraction(2 + zlib.crc32(f"{name}{[hash(a) for a in args]}".encode()) % 997, 101)


def _divide(a: Any, b: Any) -> Any:
    return Fraction(a) / b if b else _uninterpreted("div", a)


def _multiply(a: Any, b: Any) -> Any:
    product = a * b
    if isinstance(product, Fraction) and product.numerator.bit_length() > _LONGEST:
        raise OverflowError("a value has grown too long to be computed exactly")
    return product


def _power(a: Any, b: Any) -> Any:
    whole = Fraction(b).denominator == 1 and abs(b) <= 8 and (b >= 0 or a != 0)
    return Fraction(a) ** int(b) if whole else _uninterpreted("pow", a, b)


_EXACT: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": _multiply,
    "neg": operator.neg,
    "abs": abs,
    "div": _divide,
    "pow": _power,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    **dict.fromkeys(("max", "maximum", "fmax"), max),
    **dict.fromkeys(("min", "minimum", "fmin"), min),
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "trunc": lambda a: Fraction(math.trunc(a)),
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "not": operator.not_,
    "check": lambda value, holds: value,  # these programs end where Python's do
}


def exact(value: Any) -> Any:
    """A number as this module computes with it: bool and int as they are, a float as the decimal it is written as, an
    infinity as a number larger than others, a NaN as some number.
    """
    if isinstance(value, (bool, int)):
        return value
    if math.isfinite(value):
        return Fraction(str(value))
    return _uninterpreted("nan") if math.isnan(value) else Fraction(int(math.copysign(10**40, value)))


class Watch:
    """What an execution tells about one loop. All methods do nothing here."""

    def enter(self, machine: Machine) -> None:
        """The loop starts: the next instance of it."""

    def iteration(self, machine: Machine, k: int, body: Callable[[], None]) -> None:
        """Iteration k of an instance, counted from 0 in the order of execution: `body` executes it."""
        body()

    def leave(self, machine: Machine) -> None:
        """The loop has ended."""

    def read(self, cell: Cell, node: Node) -> None: ...

    def write(self, cell: Cell, node: Node) -> None: ...

    def forget(self, array: str) -> None:
        """The array is a fresh one."""


class Machine:
    """Executes a function. target: the loop variable that `watch` is told of. order: permutes the target's iterations.

    arrays: the elements that have a value, by index. lenient: whether to read an arbitrary value, and write nothing,
    outside an array (a disturbed execution may go there).
    """

    def __init__(
        self,
        function: Function,
        arguments: dict[str, Any],
        target: str = "",
        watch: Watch | None = None,
        order: Callable[[list[int]], list[int]] | None = None,
    ) -> None:
        self.function, self.target, self.watch, self.order = function, target, watch or Watch(), order
        self.names: dict[str, Any] = {s.name: exact(arguments[s.name]) for s in function.scalars if s.value is None}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.arrays: dict[str, dict[tuple[int, ...], Any]] = {}
        self.lenient = False
        self.code: dict[int, Callable[[], Any]] = {}
        self.node: Node = ("start", None)
        for name, tensor in arguments.items():
            if isinstance(tensor, torch.Tensor):
                self.shapes[name] = tuple(tensor.shape)
                number = Fraction if tensor.is_floating_point() else int
                places = itertools.product(*map(range, tensor.shape))
                self.arrays[name] = dict(zip(places, map(number, tensor.flatten().tolist()), strict=True))
        self.names |= {s.name: self.shapes[s.array][s.axis] for s in function.sizes}
        for s in function.scalars:
            if s.value is not None:
                self.names[s.name] = evaluate(s.value, self.names)
        for array in function.arrays:
            if array.name not in self.arrays and not array.within:
                self.allocate(array.name)

    # ---- cells

    def get(self, cell: Cell) -> Any:
        return self.names[cell[1]] if cell[0] == "name" else self.arrays[cell[0]][cell[1:]]

    def set(self, cell: Cell, value: Any) -> None:
        if cell[0] == "name":
            self.names[cell[1]] = value
        else:
            self.arrays[cell[0]][cell[1:]] = value

    def save(self) -> tuple[dict[str, Any], dict[str, dict[tuple[int, ...], Any]]]:
        return dict(self.names), {name: dict(elements) for name, elements in self.arrays.items()}

    def restore(self, saved: tuple[dict[str, Any], dict[str, dict[tuple[int, ...], Any]]]) -> None:
        self.names = dict(saved[0])
        self.arrays = {name: dict(elements) for name, elements in saved[1].items()}

    def results(self) -> dict[str, dict[tuple[int, ...], Any]]:
        """The arrays that outlive the iterations of loops."""
        return {a.name: self.arrays[a.name] for a in self.function.arrays if not a.within}

    def bind(self, name: str, value: Any) -> None:
        self.names[name] = value
        self.watch.write(("name", name), self.node)

    def allocate(self, name: str) -> None:
        array = self.function.array(name)
        self.shapes[name] = tuple(int(self.evaluate(e)) for e in array.shape)
        self.arrays[name] = {}
        if array.fill is not None:
            self.arrays[name] = dict.fromkeys(itertools.product(*map(range, self.shapes[name])), exact(array.fill.value))
        self.watch.forget(name)

    # ---- expressions

    def evaluate(self, expr: Expr) -> Any:
        code = self.code.get(id(expr))
        if code is None:
            code = self.code[id(expr)] = self.compiled(expr)
        return code()

    def compiled(self, expr: Expr) -> Callable[[], Any]:
        """The expression as a closure: a nest evaluates it thousands of times."""
        read = None if type(self.watch).read is Watch.read else self.watch.read
        match expr:
            case Const(value=value, type=type_):
                constant = exact(float(value)) if type_.category == "float" else value
                return lambda: constant
            case Ref(name=name):
                if read is None:
                    return lambda: self.names[name]
                return lambda: (read(("name", name), self.node), self.names[name])[1]
            case Load(array=array, index=index):
                places = [self.compiled(i) for i in index]

                def load() -> Any:
                    place = tuple([int(i()) for i in places])
                    if read is not None:
                        read((array, *place), self.node)
                    if not self.lenient:
                        self.check(array, place)
                    elements = self.arrays[array]
                    return elements[place] if place in elements else _uninterpreted(array, *place)

                return load
            case Cast(value=value, type=type_):
                inner = self.compiled(value)
                convert: Callable[[Any], Any] = {"bool": bool, "int": int, "float": Fraction}[type_.category]
                return lambda: convert(inner())
            case Round(value=value):
                return self.compiled(value)
            case Op(name=name, args=args):
                codes = [self.compiled(a) for a in args]
                if name == "where":
                    condition, then, orelse = codes
                    return lambda: then() if condition() else orelse()
                if name in ("and", "or"):
                    left, right = codes
                    return (lambda: left() and right()) if name == "and" else (lambda: left() or right())
                apply = _EXACT.get(name) or functools.partial(_uninterpreted, name)
                if len(codes) == 2:
                    left, right = codes
                    return lambda: apply(left(), right())
                return lambda: apply(*[c() for c in codes])
        raise TypeError(expr)

    def check(self, array: str, place: Sequence[int]) -> None:
        if any([not 0 <= i < n for i, n in zip(place, self.shapes[array], strict=True)]):
            raise IndexError(f"{array}{list(place)} is outside {list(self.shapes[array])}")

    # ---- statements

    def run(self, statements: Iterable[Stmt] | None = None) -> Machine:
        for stmt in self.function.body if statements is None else statements:
            match stmt:
                case Let(name=name, value=value):
                    self.node = ("let", name)
                    self.bind(name, self.evaluate(value))
                case Store(array=array, index=index, value=value):
                    self.node = ("store", id(stmt))
                    result = self.evaluate(value)
                    place = tuple(int(self.evaluate(i)) for i in index)
                    if not self.lenient:
                        self.check(array, place)
                    self.arrays[array][place] = result
                    self.watch.write((array, *place), self.node)
                case If():
                    self.node = ("if", id(stmt))
                    taken = self.evaluate(stmt.condition)
                    self.run(stmt.then if taken else stmt.orelse)
                    for merge in stmt.merges:
                        self.node = ("merge", merge.name)
                        self.bind(merge.name, self.evaluate(merge.then if taken else merge.orelse))
                case For():
                    self.loop(stmt)
        return self

    def loop(self, loop: For) -> None:
        watched = loop.var == self.target
        self.node = ("bounds", loop.var)
        values = list(range(self.evaluate(loop.start), self.evaluate(loop.stop), loop.step))
        fresh = [a.name for a in self.function.arrays if a.within and a.within[-1] == loop.var]
        for c in loop.carries:
            self.node = ("init", c.name)
            self.bind(c.name, self.evaluate(c.init))
        if watched:
            values = self.order(values) if self.order else values
            self.watch.enter(self)
        for k, value in enumerate(values):

            def body(value: int = value) -> None:
                self.node = ("bounds", loop.var)
                self.bind(loop.var, value)
                for name in fresh:
                    self.allocate(name)
                self.run(loop.body)
                state = []
                for c in loop.carries:
                    self.node = ("next", c.name)
                    state.append(self.evaluate(c.next))
                for c, s in zip(loop.carries, state, strict=True):
                    self.node = ("next", c.name)
                    self.bind(c.name, s)

            if watched:
                self.watch.iteration(self, k, body)
            else:
                body()
        if watched:
            self.watch.leave(self)
        for c in loop.carries:
            self.node = ("result", c.name)
            self.watch.read(("name", c.name), self.node)
            self.bind(c.result, self.names[c.name])


def control(statements: Iterable[Stmt], over: tuple[Node, ...] = ()) -> Iterable[tuple[Node, Node]]:
    """(what decides whether a node executes, that node), for all nodes of some statements."""
    for stmt in statements:
        own: list[Node] = []
        match stmt:
            case Let(name=name):
                own = [("let", name)]
            case Store():
                own = [("store", id(stmt))]
            case If():
                own = [("if", id(stmt)), *(("merge", m.name) for m in stmt.merges)]
                yield from ((own[0], merge) for merge in own[1:])
                yield from control((*stmt.then, *stmt.orelse), (*over, own[0]))
            case For():
                bounds: Node = ("bounds", stmt.var)
                own = [bounds, *((role, c.name) for c in stmt.carries for role in ("init", "next", "result"))]
                yield from ((bounds, ("next", c.name)) for c in stmt.carries)
                yield from control(stmt.body, (*over, bounds))
        yield from ((decides, node) for decides in over for node in own)
