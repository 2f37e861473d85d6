"""The adjoint of a nest computes the gradient that PyTorch's autograd finds for the same program."""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.examples import examples
from tests.fuzz_programs import compiled
from tests.test_scalar_functions import SPECIAL
from weft.errors import NotDifferentiable
from weft.kernels import LIBRARY
from weft.language import TensorType, parse
from weft.loops.adjoint import adjoint, differentiable
from weft.loops.affine import evaluate
from weft.loops.interpret import interpret
from weft.loops.ir import (
    Array,
    Carry,
    Cast,
    Const,
    Equality,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Scalar,
    Size,
    Stmt,
    Store,
    validate,
    walk,
)
from weft.loops.operators import OPERATORS, ROUGH
from weft.loops.types import BFLOAT16, BOOL, FLOAT32, FLOAT64, INT64, ScalarType

torch.set_num_threads(1)

# ---------------------------------------------------------------- building functions by hand


class V:
    """An expression with Python's operators."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def _op(self, name: str, other: Any, swap: bool = False) -> V:
        pair = (value(other, self.expr.type), self.expr) if swap else (self.expr, value(other, self.expr.type))
        return V(Op(name, pair, BOOL if OPERATORS[name].rule == "comparison" else self.expr.type))

    def __add__(self, other: Any) -> V:
        return self._op("add", other)

    def __radd__(self, other: Any) -> V:
        return self._op("add", other, True)

    def __sub__(self, other: Any) -> V:
        return self._op("sub", other)

    def __rsub__(self, other: Any) -> V:
        return self._op("sub", other, True)

    def __mul__(self, other: Any) -> V:
        return self._op("mul", other)

    def __rmul__(self, other: Any) -> V:
        return self._op("mul", other, True)

    def __truediv__(self, other: Any) -> V:
        return self._op("div", other)

    def __rtruediv__(self, other: Any) -> V:
        return self._op("div", other, True)

    def __neg__(self) -> V:
        return V(Op("neg", (self.expr,), self.expr.type))

    def __lt__(self, other: Any) -> V:
        return self._op("lt", other)

    def __gt__(self, other: Any) -> V:
        return self._op("gt", other)

    def __ge__(self, other: Any) -> V:
        return self._op("ge", other)

    def is_(self, other: Any) -> V:
        return self._op("eq", other)


def value(x: Any, type_: ScalarType = FLOAT64) -> Expr:
    if isinstance(x, V):
        return x.expr
    if isinstance(x, str):
        return Ref(x, type_)
    return Const(float(x) if type_.category == "float" else x, type_)


def index(*axes: Any) -> tuple[Expr, ...]:
    return tuple(value(a, INT64) for a in axes)


def n(name: str) -> V:
    """An integer name: a size or a loop variable."""
    return V(Ref(name, INT64))


def f(name: str, type_: ScalarType = FLOAT64) -> V:
    return V(Ref(name, type_))


def at(array: str, *axes: Any, type_: ScalarType = FLOAT64) -> V:
    return V(Load(array, index(*axes), type_))


def op(name: str, *args: Any) -> V:
    first = next(a.expr.type for a in args if isinstance(a, V) and a.expr.type != BOOL)
    exprs = tuple(value(a, first) for a in args)
    return V(Op(name, exprs, BOOL if OPERATORS[name].rule == "comparison" else exprs[-1].type))


def floating(x: V) -> V:
    return V(Cast(x.expr, FLOAT64))


def let(name: str, x: Any) -> Stmt:
    return Let(name, value(x))


def put(array: str, axes: Sequence[Any], x: Any, type_: ScalarType = FLOAT64) -> Stmt:
    return Store(array, index(*axes), value(x, type_))


def loop(
    var: str, start: Any, stop: Any, *body: Stmt, step: int = 1, carry: dict[str, tuple[Any, Any]] | None = None
) -> Stmt:
    """carry: name -> (value at the start, next value); the last value is called name_last."""
    carries = tuple(Carry(k, value(a), value(b), f"{k}_last") for k, (a, b) in (carry or {}).items())
    return For(var, value(start, INT64), value(stop, INT64), step, carries, body)


def branch(
    condition: V, then: Sequence[Stmt], orelse: Sequence[Stmt] = (), merge: dict[str, tuple[Any, Any]] | None = None
) -> Stmt:
    merges = tuple(Merge(k, value(a), value(b)) for k, (a, b) in (merge or {}).items())
    return If(condition.expr, tuple(then), tuple(orelse), merges)


def _extent(text: str) -> Expr:
    return Const(int(text), INT64) if text.isdigit() else Ref(text, INT64)


def function(
    name: str,
    inputs: dict[str, str],
    results: dict[str, str],
    *body: Stmt,
    local: dict[str, tuple[str, tuple[str, ...], float | None]] | None = None,
    fill: dict[str, float] | None = None,
    scalars: Sequence[str] = (),
    dtype: ScalarType = FLOAT64,
    dtypes: dict[str, ScalarType] | None = None,
) -> Function:
    """inputs, results: array -> names of its sizes (or constants), separated by spaces.

    A size belongs to the first input that names it; where another names it too, the two are declared equal.

    local: array -> (sizes or constants, the loops it is fresh in, fill).
    """
    sizes: list[Size] = []
    equalities: list[Equality] = []
    arrays: list[Array] = []
    for a, text in inputs.items():
        shape: list[Expr] = []
        for axis, size in enumerate(text.split()):
            own = size if size not in {s.name for s in sizes} else f"{a}_{axis}"
            sizes.append(Size(own, a, axis))
            shape.append(Ref(own, INT64))
            if own != size:
                equalities.append(Equality(Ref(size, INT64), Ref(own, INT64), "sizes agree"))
        arrays.append(Array(a, dtype, tuple(shape), "input"))
    for a, text in results.items():
        shape = [_extent(s) for s in text.split()]
        given = (fill or {}).get(a)
        arrays.append(Array(a, dtype, tuple(shape), "result", None if given is None else Const(given, dtype.opmath)))
    for a, (text, within, given) in (local or {}).items():
        extents = tuple(map(_extent, text.split()))
        start = None if given is None else Const(given, dtype.opmath)
        arrays.append(Array(a, dtype, extents, "local", start, within))
    arrays = [replace(a, dtype=(dtypes or {}).get(a.name, a.dtype)) for a in arrays]
    made = Function(
        name,
        (*inputs, *scalars),
        tuple(Scalar(s, FLOAT64) for s in scalars),
        tuple(sizes),
        tuple(arrays),
        body,
        tuple(results),
        tuple(equalities),
    )
    validate(made)
    return made


# ---------------------------------------------------------------- the library's programs, in the form of the nest


def _rows(*body: Stmt) -> Stmt:
    return loop("r", 0, "rows", *body)


def linrec(reverse: bool = False, stored: bool = True) -> Function:
    h = at("c", "r", "l") * f("h") + at("x", "r", "l")
    out = f("h1") if stored else op("tanh", f("h1")) * at("x", "r", "l")
    body = (let("h1", h), put("y", ("r", "l"), out))
    start, stop, step = (n("length") - 1, -1, -1) if reverse else (0, "length", 1)
    return function(
        "linrec",
        {"x": "rows length", "c": "rows length"},
        {"y": "rows length"},
        _rows(loop("l", start, stop, *body, step=step, carry={"h": (0.0, "h1")})),
    )


def linrec_torch(x: Tensor, c: Tensor, reverse: bool = False, stored: bool = True) -> Tensor:
    h, out = torch.zeros(x.shape[0], dtype=x.dtype), []
    for l in reversed(range(x.shape[1])) if reverse else range(x.shape[1]):
        h = c[:, l] * h + x[:, l]
        out.append(h if stored else torch.tanh(h) * x[:, l])
    return torch.stack(out[::-1] if reverse else out, 1)


def softmax(log: bool = False) -> Function:
    exp = op("exp", at("x", "r", "l3") - f("m_last"))
    whole = at("x", "r", "l3") - f("m_last") - op("log", f("s_last"))
    return function(
        "softmax",
        {"x": "rows length"},
        {"y": "rows length"},
        _rows(
            loop("l1", 0, "length", carry={"m": (-math.inf, op("max", f("m"), at("x", "r", "l1")))}),
            loop("l2", 0, "length", carry={"s": (0.0, f("s") + op("exp", at("x", "r", "l2") - f("m_last")))}),
            loop("l3", 0, "length", put("y", ("r", "l3"), whole if log else exp / f("s_last"))),
        ),
    )


def rms_norm() -> Function:
    x = at("x", "r", "l1")
    return function(
        "rms_norm",
        {"x": "rows length", "w": "length"},
        {"y": "rows length"},
        _rows(
            loop("l1", 0, "length", carry={"q": (0.0, f("q") + x * x)}),
            let("scale", op("rsqrt", f("q_last") / floating(n("length")) + f("eps"))),
            loop("l2", 0, "length", put("y", ("r", "l2"), at("x", "r", "l2") * f("scale") * at("w", "l2"))),
        ),
        scalars=("eps",),
    )


def layer_norm() -> Function:
    d2, d3 = at("x", "r", "l2") - f("mean"), at("x", "r", "l3") - f("mean")
    count = floating(n("length"))
    return function(
        "layer_norm",
        {"x": "rows length", "w": "length", "b": "length"},
        {"y": "rows length"},
        _rows(
            loop("l1", 0, "length", carry={"t": (0.0, f("t") + at("x", "r", "l1"))}),
            let("mean", f("t_last") / count),
            loop("l2", 0, "length", carry={"q": (0.0, f("q") + d2 * d2)}),
            let("scale", op("rsqrt", f("q_last") / count + f("eps"))),
            loop("l3", 0, "length", put("y", ("r", "l3"), d3 * f("scale") * at("w", "l3") + at("b", "l3"))),
        ),
        scalars=("eps",),
    )


def gelu_bias_residual() -> Function:
    z = f("z")
    return function(
        "gelu",
        {"x": "rows length", "b": "length", "u": "rows length"},
        {"y": "rows length"},
        _rows(
            loop(
                "l",
                0,
                "length",
                let("z", at("x", "r", "l") + at("b", "l")),
                put("y", ("r", "l"), 0.5 * z * (1.0 + op("erf", z * math.sqrt(0.5))) + at("u", "r", "l")),
            )
        ),
    )


# ---------------------------------------------------------------- oracles


def call(made: Function) -> Callable[..., Any]:
    """The function as a PyTorch operation whose derivative is its adjoint, to any order."""
    tensors = [p for p in made.parameters if p not in {s.name for s in made.scalars}]

    @functools.cache  # to check a derivative by differences asks for it dozens of times
    def adjoint_of(wanted: tuple[str, ...]) -> Callable[..., Any]:
        return call(adjoint(made, wanted))

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            results = interpret(made, *(a.detach() if isinstance(a, Tensor) else a for a in args))
            ctx.scalars = [a for a in args if not isinstance(a, Tensor)]
            ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)), *results)
            return results if len(results) > 1 else results[0]

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            needed = dict(zip(made.parameters, ctx.needs_input_grad, strict=True))
            wanted = tuple(p for p in made.parameters if needed[p])
            saved = ctx.saved_tensors
            given = dict(zip(tensors, saved, strict=False)) | dict(
                zip((s.name for s in made.scalars), ctx.scalars, strict=True)
            )
            found = adjoint_of(wanted)(*(given[p] for p in made.parameters), *saved[len(tensors) :], *grads)
            found = iter(found if isinstance(found, tuple) else (found,))
            return tuple(next(found) if needed[p] else None for p in made.parameters)

    def run(*args: Any) -> Any:
        return Call.apply(*args)  # type: ignore[no-untyped-call]

    return run


def rand(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 10 * sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def check(made: Function, plain: Callable[..., Any], *args: Any, wanted: Sequence[str] | None = None) -> Function:
    """The adjoint's gradients are autograd's of the plain program. Returns the adjoint."""
    names = tuple(wanted) if wanted is not None else differentiable(made)
    leaves = [a.clone().requires_grad_(p in names) if isinstance(a, Tensor) else a
              for p, a in zip(made.parameters, args, strict=True)]  # fmt: skip
    expected = plain(*leaves)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = interpret(made, *args)
    for a, b in zip(results, expected, strict=True):
        torch.testing.assert_close(a, b.detach(), equal_nan=True)
    grads = [rand(*r.shape, seed=5 + k) for k, r in enumerate(results)]
    inputs = [leaf for p, leaf in zip(made.parameters, leaves, strict=True) if p in names]
    moving = [(e, g) for e, g in zip(expected, grads, strict=True) if e.requires_grad]
    total = sum(((e * g).sum() for e, g in moving), start=torch.zeros((), dtype=torch.float64, requires_grad=True))
    want = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    backward = adjoint(made, names)
    validate(backward)
    assert len(backward.results) == len(names)
    found = interpret(backward, *args, *results, *grads)
    for name, a, b in zip(names, found, want, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, msg=f"the gradient of {name} is\n{a}\nand should be\n{b}")
    return backward


def loops(made: Function) -> list[For]:
    return [s for s in walk(made.body) if isinstance(s, For)]


SHAPES = [(2, 5), (1, 1), (3, 2), (0, 4), (2, 0)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_linear_recurrence(shape: tuple[int, int], reverse: bool, stored: bool) -> None:
    x, c = rand(*shape), rand(*shape, seed=1)
    if 0 in shape:
        backward = adjoint(linrec(reverse, stored), ("x", "c"))
        empty = torch.zeros(shape, dtype=torch.float64)
        assert all(g.shape == shape for g in interpret(backward, x, c, empty, empty))
        return
    check(linrec(reverse, stored), lambda x, c: linrec_torch(x, c, reverse, stored), x, c)


def test_the_adjoint_of_a_recurrence_is_the_reversed_recurrence() -> None:
    backward = adjoint(linrec(), ("x", "c"))
    rows, length = loops(backward)
    assert not rows.carries and rows.step == 1 and length.step == -1
    assert len(length.carries) == 1
    assert not [a for a in backward.arrays if a.role == "local"]  # the state is read back from y
    assert backward.array("grad_x").fill is None and backward.array("grad_c").fill is None


@pytest.mark.parametrize("shape", [(2, 5), (1, 1)])
def test_row_programs(shape: tuple[int, int]) -> None:
    x, w, b, u = rand(*shape), rand(shape[1]), rand(shape[1], seed=2), rand(*shape, seed=3)
    nn = torch.nn.functional
    check(softmax(), lambda x: torch.softmax(x, -1), x)
    check(softmax(log=True), lambda x: torch.log_softmax(x, -1), x)
    check(rms_norm(), lambda x, w, eps: nn.rms_norm(x, x.shape[-1:], w, eps), x, w, 1e-3)
    check(layer_norm(), lambda x, w, b, eps: nn.layer_norm(x, x.shape[-1:], w, b, eps), x, w, b, 1e-3)
    check(gelu_bias_residual(), lambda x, b, u: nn.gelu(x + b) + u, x, b, u)


def test_the_maximum_that_softmax_subtracts_has_no_adjoint() -> None:
    backward = adjoint(softmax(), ("x",))
    row, *inner = loops(backward)
    assert len(inner) == 4 and not row.carries  # maximum, sum, the sum of the adjoint, the gradient
    assert [len(f.carries) for f in inner] == [1, 1, 1, 0]


def test_gradients_shared_by_rows_are_sums_of_their_own() -> None:
    backward = adjoint(rms_norm(), ("x", "w"))
    first, second = (s for s in backward.body if isinstance(s, For))
    assert not first.carries and not second.carries
    (inner,) = second.body[:1]
    assert isinstance(inner, For) and len(inner.carries) == 1
    assert all(a.fill is None for a in backward.arrays if a.role == "result")


@pytest.mark.parametrize(
    ("made", "args"),
    [
        (linrec(), (rand(2, 3), rand(2, 3, seed=1))),
        (linrec(stored=False), (rand(1, 3), rand(1, 3, seed=1))),
        (softmax(), (rand(2, 3),)),
        (rms_norm(), (rand(2, 3), rand(3), 1e-2)),
    ],
    ids=["linrec", "tanh of linrec", "softmax", "rms_norm"],
)
def test_second_order(made: Function, args: tuple[Any, ...]) -> None:
    leaves = [a.clone().requires_grad_() if isinstance(a, Tensor) else a for a in args]
    assert torch.autograd.gradcheck(call(made), leaves)
    assert torch.autograd.gradgradcheck(call(made), leaves)


# ---------------------------------------------------------------- the nest itself, executed under autograd

TORCH: dict[str, Callable[..., Any]] = {
    "max": lambda a, b: b if b > a else a,
    "min": lambda a, b: b if b < a else a,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "mod": torch.remainder,
    "sign": torch.sign,
}


class Autograd:
    """Executes a function element by element on tensors without dimensions: autograd sees what the nest says."""

    def __init__(self, made: Function, args: Sequence[Any]) -> None:
        given = dict(zip(made.parameters, args, strict=True))
        self.made = made
        self.names: dict[str, Any] = {s.name: given[s.name] for s in made.scalars if s.value is None}
        self.names |= {s.name: given[s.array].shape[s.axis] for s in made.sizes}
        for s in made.scalars:
            if s.value is not None:
                self.names[s.name] = evaluate(s.value, self.names)
        self.arrays: dict[str, Any] = {a.name: given[a.name] for a in made.arrays if a.role == "input"}
        for a in made.arrays:
            if a.role != "input" and not a.within:
                self.fresh(a)
        self.run(made.body)

    def fresh(self, array: Array) -> None:
        shape = [int(self.of(e)) for e in array.shape]
        fill = math.nan if array.fill is None else array.fill.value
        self.arrays[array.name] = {i: torch.tensor(fill, dtype=torch.float64) for i in _indices(shape)}

    def results(self) -> tuple[Tensor, ...]:
        out = []
        for r in self.made.results:
            shape = [int(self.of(e)) for e in self.made.array(r).shape]
            out.append(torch.stack([self.arrays[r][i] for i in _indices(shape)]).reshape(shape))
        return tuple(out)

    def of(self, e: Expr) -> Any:
        match e:
            case Const(value=v, type=t):
                return torch.tensor(v, dtype=torch.float64) if t.category == "float" else v
            case Ref(name=name):
                v = self.names[name]
                return torch.tensor(v, dtype=torch.float64) if isinstance(v, float) else v
            case Load(array=array, index=i):
                at_ = tuple(int(self.of(k)) for k in i)
                assert all(k >= 0 for k in at_)
                return self.arrays[array][at_]
            case Cast(value=v, type=t):
                return torch.as_tensor(self.of(v), dtype=torch.float64) if t.category == "float" else int(self.of(v))
            case Op(name="where", args=(c, a, b)):
                return self.of(a) if self.of(c) else self.of(b)
            case Op(name="and", args=(a, b)):
                return bool(self.of(a)) and bool(self.of(b))
            case Op(name="or", args=(a, b)):
                return bool(self.of(a)) or bool(self.of(b))
            case Op(name=name, args=args) if args[0].type.category == "float":
                return (TORCH.get(name) or getattr(sys.modules[OPERATORS[name].module], name))(*map(self.of, args))
            case Op(name=name, args=args):
                return OPERATORS[name].evaluate(*map(self.of, args))
        raise TypeError(e)

    def run(self, statements: Sequence[Stmt]) -> None:
        for s in statements:
            match s:
                case Let():
                    self.names[s.name] = self.of(s.value)
                case Store():
                    self.arrays[s.array][tuple(int(self.of(i)) for i in s.index)] = self.of(s.value)
                case If():
                    taken = bool(self.of(s.condition))
                    self.run(s.then if taken else s.orelse)
                    self.names |= {m.name: self.of(m.then if taken else m.orelse) for m in s.merges}
                case For():
                    state = [self.of(c.init) for c in s.carries]
                    for k in range(self.of(s.start), self.of(s.stop), s.step):
                        self.names |= {s.var: k} | {c.name: v for c, v in zip(s.carries, state, strict=True)}
                        for a in self.made.arrays:
                            if a.within[-1:] == (s.var,):
                                self.fresh(a)
                        self.run(s.body)
                        state = [self.of(c.next) for c in s.carries]
                    self.names |= {c.result: v for c, v in zip(s.carries, state, strict=True)}


def _indices(shape: Sequence[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, shape)))


def check_itself(made: Function, *args: Any, wanted: Sequence[str] | None = None) -> Function:
    return check(made, lambda *leaves: Autograd(made, leaves).results(), *args, wanted=wanted)


def test_memory_recurrences() -> None:
    """y[l] = y[l-1] * c[l] + x[l], written through memory: guarded, peeled, and added to a copy."""
    term = at("y", "r", n("l") - 1) * at("c", "r", "l") + at("x", "r", "l")
    guarded = _rows(loop("l", 0, "length", put("y", ("r", "l"), op("where", n("l") > 0, term, at("x", "r", "l")))))
    peeled = _rows(put("y", ("r", 0), at("x", "r", 0)), loop("l", 1, "length", put("y", ("r", "l"), term)))
    added = (
        _rows(loop("l0", 0, "length", put("y", ("r", "l0"), at("x", "r", "l0")))),
        loop(
            "q",
            0,
            "rows",
            loop(
                "l", 1, "length", put("y", ("q", "l"), at("y", "q", "l") + at("y", "q", n("l") - 1) * at("c", "q", "l"))
            ),
        ),
    )
    time_major = (
        loop("r0", 0, "rows", put("y", ("r0", 0), at("x", "r0", 0))),
        loop("l", 1, "length", _rows(put("y", ("r", "l"), term))),
    )
    for body in ((guarded,), (peeled,), added, time_major):
        made = function("recurrence", {"x": "rows length", "c": "rows length"}, {"y": "rows length"}, *body)
        check_itself(made, rand(2, 4), rand(2, 4, seed=1))


def test_a_state_array() -> None:
    """A selective scan: N states a row, kept in a local array that is overwritten at every step."""
    made = function(
        "states",
        {"x": "rows length", "a": "n", "b": "n"},
        {"y": "rows length"},
        _rows(
            loop(
                "l",
                0,
                "length",
                loop(
                    "k",
                    0,
                    "n",
                    let("h1", op("exp", at("a", "k")) * at("h", "k") + at("b", "k") * at("x", "r", "l")),
                    put("h", ("k",), "h1"),
                    carry={"out": (0.0, f("out") + f("h1") * f("h1"))},
                ),
                put("y", ("r", "l"), "out_last"),
            )
        ),
        local={"h": ("3", ("r",), 0.0)},
    )
    check_itself(made, rand(2, 4), rand(3), rand(3, seed=1))


@pytest.mark.parametrize("operator", ["max", "min", "maximum", "minimum", "fmax", "fmin"])
def test_extrema(operator: str) -> None:
    start = -math.inf if "max" in operator else math.inf
    e = at("x", "r", "l") * at("c", "r", "l")
    body = _rows(
        loop("l", 0, "length", carry={"m": (start, op(operator, f("m"), e))}),
        put("y", ("r",), f("m_last") * f("m_last")),
    )
    made = function("extremum", {"x": "rows length", "c": "rows length"}, {"y": "rows"}, body)
    check_itself(made, rand(3, 4), rand(3, 4, seed=1))
    scan = _rows(
        loop("l", 0, "length", let("m1", op(operator, f("m"), e)), put("y", ("r", "l"), "m1"), carry={"m": (0.0, "m1")})
    )
    made = function("running", {"x": "rows length", "c": "rows length"}, {"y": "rows length"}, scan)
    check_itself(made, rand(3, 4), rand(3, 4, seed=1))


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("start", [-math.inf, 3.0])
@pytest.mark.parametrize("kind", ["keeps", "replaces", "replaces where equal", "halves"])
def test_ties_of_a_carried_maximum(kind: str, start: float, step: int) -> None:
    """Python's max gives the gradient to the object that it returns, torch.maximum halves it at every tie."""
    m, e = f("m"), at("x", "l")
    updates = {
        "keeps": op("max", m, e),
        "replaces": op("max", e, m),
        "replaces where equal": op("where", e >= m, e, m),
        "halves": op("maximum", m, e),
    }
    ends = (0, "length") if step > 0 else (n("length") - 1, -1)
    body = loop("l", *ends, step=step, carry={"m": (start, updates[kind])})
    made = function("largest", {"x": "length"}, {"y": "1"}, body, put("y", (0,), "m_last"))
    for values in ([1.0, 3.0, 2.0, 3.0, 3.0], [math.nan, 1.0, 1.0], [1.0, 1.0, math.nan], [3.0], []):
        check_itself(made, torch.tensor(values, dtype=torch.float64))


def test_ties_of_amax_share_the_gradient() -> None:
    largest = Op("maximum", (f("m").expr, at("x", "l").expr), FLOAT64, "amax")
    body = loop("l", 0, "length", carry={"m": (-math.inf, V(largest))})
    made = function("amax", {"x": "length"}, {"y": "1"}, body, put("y", (0,), "m_last"))
    check(made, lambda x: x.amax(0, keepdim=True), torch.tensor([1.0, 3.0, 2.0, 3.0, 3.0], dtype=torch.float64))


def test_matrix_product() -> None:
    body = loop(
        "i",
        0,
        "m",
        loop(
            "j",
            0,
            "n",
            loop("k", 0, "p", carry={"acc": (0.0, f("acc") + at("a", "i", "k") * at("b", "k", "j"))}),
            put("y", ("i", "j"), "acc_last"),
        ),
    )
    made = function("matmul", {"a": "m p", "b": "p n"}, {"y": "m n"}, body)
    backward = check(made, torch.matmul, rand(2, 3), rand(3, 4))
    assert all(a.fill is None for a in backward.arrays if a.role == "result")
    assert all(len(f.carries) == (f.var[0] not in "k") or not f.carries for f in loops(backward))


def test_programs_over_one_row() -> None:
    x, c = rand(6), rand(6, seed=1)
    at_x, at_c, l = at("x", "i"), at("c", "i"), n("i")
    programs = {
        "cumprod": loop("i", 0, "n", let("p1", f("p") * at_x), put("y", ("i",), "p1"), carry={"p": (1.0, "p1")}),
        "product": (
            loop("i", 0, "n", carry={"p": (1.0, f("p") * at_x)}),
            loop("j", 0, "n", put("y", ("j",), f("p_last") * at("c", "j"))),
        ),
        "branch": loop(
            "i",
            0,
            "n",
            branch(
                at_x > 0.0,
                [let("u", op("exp", at_x))],
                [let("v", at_c * at_x)],
                {"w": (f("u") * at_c, f("v"))},
            ),
            put("y", ("i",), f("w") * at_x),
        ),
        "stores under a branch": loop(
            "i",
            0,
            "n",
            branch(at_x > at_c, [put("y", ("i",), at_x * at_x)], [put("y", ("i",), at_c * at_x)]),
        ),
        "stencil": loop("i", 0, "n", put("y", ("i",), op("where", l > 0, at_x * at("x", l - 1), at_c * at_x))),
        "shifted and reversed": loop("i", 0, "n", put("y", ("i",), at("x", n("n") - l - 1) * at_c)),
        "masked recurrence": loop(
            "i",
            0,
            "n",
            branch(at_x > 0.0, [let("h1", f("h") * at_c + at_x)], [], {"h2": ("h1", "h")}),
            put("y", ("i",), f("h2") * f("h2")),
            carry={"h": (0.5, "h2")},
        ),
        "newton": loop(
            "i",
            0,
            "n",
            loop("k", 0, 3, carry={"z": (at_x * at_x + 1.0, (f("z") + (at_c * at_c) / f("z")) * 0.5)}),
            put("y", ("i",), "z_last"),
        ),
        "fibonacci": loop(
            "i",
            0,
            "n",
            let("a1", f("a") * at_c + f("b")),
            put("y", ("i",), f("a1")),
            carry={"a": (1.0, "a1"), "b": (0.0, "a")},
        ),
        "wrap around": loop(
            "i", 0, "n", put("y", ("i",), at_c * f("before") * f("before")), carry={"before": (0.5, at_x)}
        ),
        "every second": (
            loop("j", 0, "n", put("y", ("j",), at("c", "j"))),
            loop("i", 1, "n", put("y", ("i",), f("h") * f("h")), step=2, carry={"h": (0.1, op("sin", f("h") + at_x))}),
        ),
        "backwards by two": (
            loop("j", 0, "n", put("y", ("j",), at("c", "j"))),
            loop(
                "i",
                n("n") - 1,
                0,
                put("y", ("i",), f("h") * at_c),
                step=-2,
                carry={"h": (0.1, op("sin", f("h") + at_x))},
            ),
        ),
        "one weight for all": loop("i", 0, "n", put("y", ("i",), at_x * at("c", 2))),
        "triangle": loop(
            "i",
            0,
            "n",
            loop("j", 0, l + 1, carry={"s": (0.0, f("s") + at("x", "j") * at("c", l - n("j")))}),
            put("y", ("i",), "s_last"),
        ),
        "overwritten": (
            loop("j", 0, "n", put("y", ("j",), at("x", "j"))),
            loop("i", 0, "n", put("y", ("i",), op("exp", at("y", "i")) * at_c)),
            loop("k", 0, "n", put("y", ("k",), op("sin", at("y", "k")) * at("x", "k"))),
        ),
        "temporary": (
            loop("j", 0, "n", put("t", ("j",), at("x", "j") * at("c", "j"))),
            loop("i", 0, "n", put("y", ("i",), at("t", "i") * at("t", n("n") - 1 - l))),
        ),
        "histogram": (loop("i", 0, "n", put("y", (l - op("mod", l, 2),), at("y", l - op("mod", l, 2)) + at_x * at_c)),),
    }
    for name, body in programs.items():
        body = body if isinstance(body, tuple) else (body,)
        made = function(
            name.replace(" ", "_"),
            {"x": "n", "c": "n"},
            {"y": "n"},
            *body,
            fill={"y": 0.0},
            local={"t": ("n", (), None)},
        )
        try:
            check_itself(made, x, c)
        except Exception as error:
            raise AssertionError(name) from error


# ---------------------------------------------------------------- random programs


class Writer:
    """Writes a random program over rows: sums, products, extrema, scans, branches, arrays written and read again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def program(self) -> Function:
        scalars: list[str] = []
        body: list[Stmt] = []
        for _ in range(self.random.randint(1, 4)):
            body += self.random.choice([self.reduction, self.scan, self.scan, self.elementwise, self.elementwise,
                                        self.scalar, self.states])(scalars)  # fmt: skip
        body.append(put("s", ("r",), self.expr(None, scalars, 1)))
        return function(
            "random",
            {"x": "rows length", "w": "length"},
            {"y": "rows length", "s": "rows"},
            _rows(*body),
            fill={"y": 0.5, "s": 0.0},
            local={"t": ("rows length", (), 0.25), "u": ("2", ("r",), 0.0)},
        )

    def leaf(self, l: str | None, scalars: Sequence[str]) -> V:
        pick = self.random.randint(0, 9)
        if l is not None:
            i, last = n(l), n("length") - 1
            if pick < 5:
                return [at("x", "r", l), at("w", l), at("x", "r", last - i), at("y", "r", l), at("t", "r", l)][pick]
            if pick == 5:
                array = self.random.choice(["x", "y", "t"])
                return op("where", i > 0, at(array, "r", i - 1), at("w", 0))
            if pick == 6:
                return at(self.random.choice(["y", "t"]), "r", last - i)
        if scalars and pick < 9:
            return f(self.random.choice(list(scalars)))
        return [V(Const(0.75, FLOAT64)), at("x", "r", 0), at("u", self.random.randint(0, 1))][self.random.randint(0, 2)]

    def expr(self, l: str | None, scalars: Sequence[str], depth: int) -> V:
        if depth == 0:
            return self.leaf(l, scalars)
        a, b = self.expr(l, scalars, depth - 1), self.expr(l, scalars, self.random.randint(0, depth - 1))
        kind = self.random.choice(["add", "sub", "mul", "mul", "sin", "tanh", "where", "max", "square", "div"])
        match kind:
            case "sin" | "tanh":
                return op(kind, a)
            case "where":
                return op("where", a > b, b, a * 0.5)
            case "square":
                return a * a
            case "div":
                return a / (1.5 + b * b)
        return op(kind, a, b)

    def _loop(self, l: str, *body: Stmt, carry: dict[str, tuple[Any, Any]] | None = None) -> Stmt:
        if self.random.random() < 0.3:
            return loop(l, n("length") - 1, -1, *body, step=-1, carry=carry)
        return loop(l, self.random.choice([0, 0, 1]), "length", *body, carry=carry)

    def reduction(self, scalars: list[str]) -> list[Stmt]:
        l, name = self.fresh("l"), self.fresh("sum")
        e, own = self.expr(l, scalars, 1), f(name)
        init, update = self.random.choice(
            [(0.0, own + e), (1.0, own * (e * 0.5 + 0.75)), (-9.0, op("max", own, e)), (9.0, op("minimum", own, e))]
        )
        made = self._loop(l, carry={name: (init, update)})
        scalars.append(f"{name}_last")
        return [made]

    def scan(self, scalars: list[str]) -> list[Stmt]:
        l, name, after = self.fresh("l"), self.fresh("h"), self.fresh("h")
        inside = [*scalars, name]
        update = self.random.choice(
            [
                lambda: self.expr(l, scalars, 1) * f(name) * 0.5 + self.expr(l, scalars, 1),
                lambda: op("tanh", self.expr(l, inside, 1)),
                lambda: op("max", f(name), self.expr(l, scalars, 1)),
            ]
        )()  # type: ignore[no-untyped-call]
        stored: Any = self.random.choice([after, self.expr(l, [*inside, after], 1)])
        array = self.random.choice(["y", "t"])
        init = f(self.random.choice(scalars)) if scalars else 0.5
        made = self._loop(l, let(after, update), put(array, ("r", l), stored), carry={name: (init, after)})
        scalars.append(f"{name}_last")
        return [made]

    def elementwise(self, scalars: list[str]) -> list[Stmt]:
        l, array = self.fresh("l"), self.random.choice(["y", "t"])
        store = put(array, ("r", l), self.expr(l, scalars, 2))
        pick = self.random.randint(0, 3)
        if pick == 0:
            store = branch(self.expr(l, scalars, 1) > 0.2, [store], [put("y", ("r", l), self.expr(l, scalars, 1))])
        elif pick == 1:
            store = put(array, ("r", l), at(array, "r", l) + self.expr(l, scalars, 1))
        return [self._loop(l, store)]

    def scalar(self, scalars: list[str]) -> list[Stmt]:
        name = self.fresh("v")
        if scalars and self.random.random() < 0.5:
            inner = self.fresh("v")
            made = branch(
                f(scalars[0]) > 0.3,
                [let(inner, self.expr(None, scalars, 1))],
                [],
                {name: (inner, self.expr(None, scalars, 1))},
            )
        else:
            made = let(name, self.expr(None, scalars, 1))
        scalars.append(name)
        return [made]

    def states(self, scalars: list[str]) -> list[Stmt]:
        l, k, name = self.fresh("l"), self.fresh("k"), self.fresh("sum")
        factor = op("tanh", self.expr(l, scalars, 1))  # bounded, or sines of huge states would be noise
        update = put("u", (k,), at("u", k) * 0.5 + factor * at("u", 1 - n(k)) + at("x", "r", l))
        inner = loop(k, 0, 2, update, carry={name: (0.0, f(name) + op("sin", at("u", k)))})
        return [self._loop(l, inner, put("y", ("r", l), f"{name}_last"))]


@given(st.integers(0, 10**9))
@examples(10)
def test_random_programs(seed: int) -> None:
    made = Writer(seed).program()
    check_itself(made, rand(2, 3, seed=seed % 7), rand(3, seed=seed % 5))


@given(st.integers(0, 10**9))
@examples(6)
def test_the_adjoint_of_the_adjoint_of_random_programs(seed: int) -> None:
    made = Writer(seed).program()
    x, w = rand(2, 3, seed=seed % 7), rand(3, seed=seed % 5)
    results = interpret(made, x, w)
    grads = [rand(*r.shape, seed=3) for r in results]
    check_itself(adjoint(made, ("x", "w")), x, w, *results, *grads)


def test_the_adjoint_of_an_adjoint_where_elements_tie() -> None:
    """Elements that nothing was stored to are equal, and torch.maximum is carried over them."""
    made = Writer(1412).program()
    x, w = rand(2, 3, seed=1412 % 7), rand(3, seed=1412 % 5)
    results = interpret(made, x, w)
    check_itself(adjoint(made, ("x", "w")), x, w, *results, *[rand(*r.shape, seed=3) for r in results])


# ---------------------------------------------------------------- types, results, refusals


@pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT32])
def test_memory_types_round_at_stores_alone(dtype: ScalarType) -> None:
    memory = {BFLOAT16: torch.bfloat16, FLOAT32: torch.float32}[dtype]

    def load(array: str, *axes: Any) -> V:
        return at(array, *axes, type_=FLOAT32)

    body = loop(
        "i",
        0,
        "n",
        loop("j", 0, "m", put("y", ("i", "j"), load("x", n("i") + n("j")) * load("w", 0), FLOAT32)),
    )
    made = function("window", {"x": "p", "w": "one", "like": "n m"}, {"y": "n m"}, body, dtype=dtype)
    x, w = rand(6).to(memory), rand(1).to(memory)
    like, gy = torch.zeros(3, 4, dtype=memory), rand(3, 4).to(memory)
    backward = adjoint(made, ("x", "w"))
    assert [backward.array(r).dtype for r in backward.results] == [dtype, dtype]
    grad_x, grad_w = interpret(backward, x, w, like, like, gy)
    assert grad_x.dtype == grad_w.dtype == memory
    windows = x.double().unfold(0, 4, 1)
    expected = torch.zeros(6, dtype=torch.float64)
    for i in range(3):
        expected[i : i + 4] += gy[i].double() * w.double()
    torch.testing.assert_close(grad_x, expected.to(memory))
    torch.testing.assert_close(grad_w, (gy.double() * windows).sum().reshape(1).to(memory))


def test_float32_parameters_of_float64_arithmetic() -> None:
    body = loop("i", 0, "n", put("y", ("i",), op("exp", V(Cast(at("x", "i", type_=FLOAT32).expr, FLOAT64)))))
    made = function("widened", {"x": "n"}, {"y": "n"}, body, dtypes={"x": FLOAT32})
    x, gy = rand(4).float(), rand(4)
    (grad,) = interpret(adjoint(made, ("x",)), x, torch.exp(x.double()), gy)
    assert grad.dtype == torch.float32
    torch.testing.assert_close(grad, (gy * torch.exp(x.double())).float())


def test_several_results_and_integers() -> None:
    """Integer results get no gradient; a result that is returned twice gets two, which add up."""
    body = loop(
        "i",
        0,
        "n",
        put("y", ("i",), at("x", "i") * at("x", "i")),
        Store("k", index("i"), Cast(at("x", "i").expr, INT64)),
    )
    made = function("several", {"x": "n"}, {"y": "n", "k": "n"}, body, dtypes={"k": INT64})
    made = replace(made, results=("y", "k", "y"))
    x = rand(4)
    y, k, again = interpret(made, x)
    backward = adjoint(made, ("x",))
    assert len(backward.parameters) == 1 + 3 + 2
    (grad,) = interpret(backward, x, y, k, again, torch.full((4,), 2.0).double(), torch.ones(4).double())
    torch.testing.assert_close(grad, 6 * x)


def test_what_has_no_gradient() -> None:
    body = loop("i", 0, "n", put("y", ("i",), op("floor", at("x", "i"))))
    made = function("steps", {"x": "n"}, {"y": "n"}, body)
    check(made, torch.floor, rand(5))
    whole = loop("i", 0, "n", put("y", ("i",), V(Cast(at("x", "i", type_=INT64).expr, FLOAT64))))
    integers = function("steps", {"x": "n"}, {"y": "n"}, whole, dtypes={"x": INT64})
    assert differentiable(integers) == ()
    with pytest.raises(NotDifferentiable, match="x of steps has no gradient"):
        adjoint(integers, ("x",))
    written = replace(made, arrays=tuple(replace(a, role="inout") if a.name == "x" else a for a in made.arrays))
    assert differentiable(written) == ()
    with pytest.raises(NotDifferentiable, match="writes into its argument x"):
        adjoint(written, ("x",))


def test_values_that_are_gone_are_refused() -> None:
    """The state is needed, and takes a new value in a loop whose bounds are data: there is nowhere to save it."""
    inner = loop("k", 0, V(Cast(at("c", "i").expr, INT64)), carry={"z": (at("x", "i"), op("sin", f("z")))})
    body = loop("i", 0, "n", inner, put("y", ("i",), "z_last"))
    made = function("gone", {"x": "n", "c": "n"}, {"y": "n"}, body)
    with pytest.raises(NotDifferentiable, match="values that are gone"):
        adjoint(made, ("x",))


BINARY = {name for name, operator in OPERATORS.items() if operator.arity == 2}
FLOATING = [
    name
    for name, operator in OPERATORS.items()
    if operator.rule in ("arithmetic", "float")
    and name not in ("floordiv", "round", "nextafter", "binary_cross_entropy", *SPECIAL, *ROUGH)
    and not name.startswith("complex_")  # tests/test_complex.py
]


@pytest.mark.parametrize("name", FLOATING)
def test_every_operator(name: str) -> None:
    x = torch.tensor([0.3, 0.9, 0.5, 0.25], dtype=torch.float64) + (1.0 if name == "acosh" else 0.0)
    c = torch.tensor([0.7, 0.4, 1.3, 2.1], dtype=torch.float64)
    args = (at("x", "i"), at("c", "i")) if name in BINARY else (at("x", "i"),)
    made = function("one", {"x": "n", "c": "n"}, {"y": "n"}, loop("i", 0, "n", put("y", ("i",), op(name, *args))))
    check_itself(made, x, c)


def test_points_without_a_derivative_are_as_in_pytorch() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    for name, expected in (("sqrt", math.inf), ("abs", 0.0), ("rsqrt", -math.inf)):
        body = loop("i", 0, "n", put("y", ("i",), op(name, at("x", "i"))))
        made = function("point", {"x": "n"}, {"y": "n"}, body)
        (grad,) = interpret(adjoint(made, ("x",)), zero, zero, torch.ones(1).double())
        assert grad.item() == expected, name
    for name in ("max", "maximum", "minimum", "fmax", "fmin", "atan2"):
        body = loop("i", 0, "n", put("y", ("i",), op(name, at("x", "i"), at("c", "i"))))
        made = function("tie", {"x": "n", "c": "n"}, {"y": "n"}, body)
        check_itself(made, zero, zero)
    body = loop("i", 0, "n", put("y", ("i",), op("pow", at("x", "i"), V(Const(2.0, FLOAT64)))))
    check_itself(function("square", {"x": "n"}, {"y": "n"}, body), torch.tensor([-2.0, 0.0, 3.0]).double())


# ---------------------------------------------------------------- programs as people write them


def clone_and_add(x, c):  # type: ignore[no-untyped-def]
    y = x.clone()
    for l in range(1, x.shape[-1]):
        y[..., l] += c[..., l] * y[..., l - 1]
    return y


def first_step_peeled(x, c):  # type: ignore[no-untyped-def]
    y = torch.empty_like(x)
    y[..., 0] = x[..., 0]
    for l in range(1, x.shape[-1]):
        y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
    return y


def product_of_matrices(x, c):  # type: ignore[no-untyped-def]
    rows, length = x.shape
    y = torch.empty_like(x)
    for i in range(rows):
        y[i, :] = 0.0
        for j in range(length):
            for k in range(length):
                y[i, j] += x[i, k] * torch.tanh(c[k % rows, j])
    return y


def attention(x, c):  # type: ignore[no-untyped-def]
    """One query for each row, keys and values from c, the softmax computed online."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = -math.inf
        total = 0.0
        out = 0.0
        for l in range(length):
            score = x[r, 0] * c[r, l]
            new = max(largest, score)
            scale = math.exp(largest - new)
            weight = math.exp(score - new)
            total = total * scale + weight
            out = out * scale + weight * x[r, l]
            largest = new
        for l in range(length):
            y[r, l] = out / total + x[r, l]
    return y


def selective(x, c):  # type: ignore[no-untyped-def]
    rows, length = x.shape
    y = torch.zeros_like(x)
    for r in range(rows):
        h = torch.zeros(3)
        for l in range(length):
            for n in range(3):
                h[n] = h[n] * torch.sigmoid(c[r, l]) + x[r, l] * (n + 1.0)
                y[r, l] += h[n] * c[r, l]
    return y


@pytest.mark.parametrize("program", [clone_and_add, first_step_peeled, product_of_matrices, attention, selective])
def test_programs_in_python(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    matrix = TensorType(FLOAT64, 2)
    made = parse(program, {"x": matrix, "c": matrix})
    x, c = rand(2, 4), rand(2, 4, seed=1)
    torch.testing.assert_close(interpret(made, x, c)[0], program(x, c))
    check_itself(made, x, c)


@pytest.mark.parametrize("name", LIBRARY)
def test_library(name: str) -> None:
    """Against autograd of the kernel's own Python, which is differentiable as it stands."""
    kernel = LIBRARY[name]
    args = [
        0.3 if isinstance(given, float) else rand(*((2, 4)[-len(str(given).split(",")) :]))
        for given in kernel.example.values()
    ]
    types = {
        p: FLOAT64 if isinstance(a, float) else TensorType(FLOAT64, a.dim())
        for p, a in zip(kernel.example, args, strict=True)
    }
    check(parse(kernel.py, types), kernel.py, *args)


def test_a_state_whose_names_use_the_one_before_twice_is_saved() -> None:
    """Written out, sixteen of them would take tens of millions of operations."""
    chain = [f"v{k + 1} = 0.5 * v{k} + 0.25 * v{k} * v{k}" for k in range(16)]
    steps = "\n".join(f"            {line}" for line in ("v0 = state * x[r, t]", *chain, "state = v16", "y[r, t] = 2.0 * v16"))
    text = f"""def program(x):
    y = torch.empty_like(x)
    for r in range(x.shape[0]):
        state = 1.0
        for t in range(x.shape[1]):
{steps}
    return y
"""
    program = compiled(text, "<sixteen names>")
    check(parse(program, {"x": TensorType(FLOAT64, 2)}), program, 1.5 * rand(2, 4).abs())


@pytest.mark.parametrize(
    ("start", "stop", "turned"),
    [
        ("0", "t + 1", True),
        ("0", "t", True),
        ("1", "t", True),
        ("t", "length", True),
        ("t + 1", "length", True),
        ("t + 2", "length + 2", True),
        ("t + 1", "length + 3", True),
        ("0", "t + 3", True),
        ("t", "t + 3", True),
        ("0", "length - t", False),
    ],
)
def test_what_triangles_add_is_gathered_by_the_elements(start: str, stop: str, turned: bool) -> None:
    text = f"""def program(x, w):
    rows, length = w.shape
    y = torch.zeros_like(w)
    for r in range(rows):
        for t in range(length):
            for s in range({start}, {stop}):
                y[r, t] += x[r, s] * w[r, t]
    return y
"""
    program = compiled(text, f"<from {start} to {stop}>")
    made = parse(program, {"x": TensorType(FLOAT64, 2), "w": TensorType(FLOAT64, 2)})
    for length in (5, 1, 0):
        backward = check(made, program, rand(2, length + 3), rand(2, length, seed=1))
    sums = [f for f in loops(backward) if f.carries and any(c.name.startswith("grad_x") for c in f.carries)]
    assert bool(sums) == turned


@pytest.mark.parametrize(
    ("shared", "bounds"),
    [
        ("r % heads", "min(t + 1, width)"),
        ("r // 2", "max(t - 1, 0), min(t + 2, width)"),
        ("r // (rows // heads)", "t, min(t + 2, width)"),
    ],
)
def test_triangles_of_rows_that_share_what_they_read(shared: str, bounds: str) -> None:
    """As heads share keys, of which there may be fewer than queries."""
    text = f"""def program(x, w):
    rows, length = w.shape
    heads, width = x.shape
    y = torch.zeros_like(w)
    for r in range(rows):
        for t in range(length):
            for s in range({bounds}):
                y[r, t] += x[{shared}, s] * w[r, t]
    return y
"""
    program = compiled(text, f"<{shared} to {bounds}>")
    made = parse(program, {"x": TensorType(FLOAT64, 2), "w": TensorType(FLOAT64, 2)})
    for width in (3, 6):
        check(made, program, rand(2, width), rand(4, 5, seed=1))


@pytest.mark.parametrize("last", ["0.0", "m[length] * v[r, 0]"], ids=["loops", "and a read"])
@pytest.mark.parametrize("changed", [False, True])
def test_what_loops_read_of_an_array_of_a_row_is_gathered_before_it_is_used(changed: bool, last: str) -> None:
    between = "for t in range(length):\n            m[t] = m[t] * x[r, t]" if changed else ""
    text = f"""def program(x, v):
    rows, length = x.shape
    width = v.shape[1]
    y = torch.zeros_like(v)
    z = torch.zeros_like(v)
    for r in range(rows):
        m = torch.zeros(length + 1, dtype=torch.float64)
        for t in range(length):
            m[t + 1] = max(x[r, t], 0.5 * m[t])
        for e in range(width):
            for t in range(length):
                y[r, e] += (m[t + 1] - 0.3 * m[t]) * v[r, e] * x[r, t]
        {between}
        for e in range(width):
            for t in range(length - 1):
                z[r, e] += m[t + 1] * m[t] * v[r, e]
        z[r, 0] += {last}
    return y, z
"""
    program = compiled(text, f"<{between} {last}>")
    made = parse(program, {"x": TensorType(FLOAT64, 2), "v": TensorType(FLOAT64, 2)})
    check_itself(made, rand(2, 4), rand(2, 3, seed=1))
    check_itself(made, rand(2, 1), rand(2, 1, seed=1))
