"""The adjoint of a nest computes the gradient that PyTorch's autograd finds for the same program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.errors import NotDifferentiable
from weft.loops.adjoint import adjoint, differentiable
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
from weft.loops.operators import OPERATORS
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
) -> Function:
    """inputs, results: array -> names of its sizes, separated by spaces; a size belongs to the first input that names it.

    local: array -> (sizes or constants, the loops it is fresh in, fill).
    """
    sizes: list[Size] = []
    equalities: list[Equality] = []
    arrays: list[Array] = []
    for a, text in inputs.items():
        shape = []
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
            backward = adjoint(made, wanted)
            found = call(backward)(*(given[p] for p in made.parameters), *saved[len(tensors) :], *grads)
            found = iter(found if isinstance(found, tuple) else (found,))
            return tuple(next(found) if needed[p] else None for p in made.parameters)

    def run(*args: Any) -> Any:
        return Call.apply(*args)

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
        torch.testing.assert_close(a, b.detach())
    grads = [rand(*r.shape, seed=5 + k) for k, r in enumerate(results)]
    inputs = [leaf for p, leaf in zip(made.parameters, leaves, strict=True) if p in names]
    want = torch.autograd.grad(expected, inputs, grads, allow_unused=True, materialize_grads=True)
    backward = adjoint(made, names)
    validate(backward)
    assert len(backward.results) == len(names)
    found = interpret(backward, *args, *results, *grads)
    for name, a, b in zip(names, found, want, strict=True):
        torch.testing.assert_close(a, b, msg=lambda text, n=name: f"gradient of {n}: {text}")
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
    """Executes a function element by element on tensors without dimensions, so that autograd sees what the nest says."""

    def __init__(self, made: Function, args: Sequence[Any]) -> None:
        given = dict(zip(made.parameters, args, strict=True))
        self.made = made
        self.names: dict[str, Any] = {s.name: given[s.name] for s in made.scalars}
        self.names |= {s.name: given[s.array].shape[s.axis] for s in made.sizes}
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
                return (TORCH.get(name) or getattr(torch, name))(*map(self.of, args))
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
    peeled = _rows(
        put("y", ("r", 0), at("x", "r", 0)), loop("l", 1, "length", put("y", ("r", "l"), term))
    )
    added = (
        _rows(loop("l0", 0, "length", put("y", ("r", "l0"), at("x", "r", "l0")))),
        loop(
            "q",
            0,
            "rows",
            loop("l", 1, "length", put("y", ("q", "l"), at("y", "q", "l") + at("y", "q", n("l") - 1) * at("c", "q", "l"))),
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


def test_ties_of_a_maximum_share_the_gradient_as_in_amax() -> None:
    body = loop("l", 0, "length", carry={"m": (-math.inf, op("max", f("m"), at("x", "l")))})
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
        "stencil": loop(
            "i", 0, "n", put("y", ("i",), op("where", l > 0, at_x * at("x", l - 1), at_c * at_x))
        ),
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
            "i", 0, "n", let("a1", f("a") * at_c + f("b")), put("y", ("i",), f("a1")), carry={"a": (1.0, "a1"), "b": (0.0, "a")}
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
                "i", n("n") - 1, 0, put("y", ("i",), f("h") * at_c), step=-2, carry={"h": (0.1, op("sin", f("h") + at_x))}
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
        "histogram": (
            loop("i", 0, "n", put("y", (l - op("mod", l, 2),), at("y", l - op("mod", l, 2)) + at_x * at_c)),
        ),
    }
    for name, body in programs.items():
        body = body if isinstance(body, tuple) else (body,)
        made = function(
            name.replace(" ", "_"), {"x": "n", "c": "n"}, {"y": "n"}, *body, fill={"y": 0.0}, local={"t": ("n", (), None)}
        )
        try:
            check_itself(made, x, c)
        except Exception as error:
            raise AssertionError(name) from error
