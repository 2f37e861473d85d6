"""The CPU target: a nest emitted as C++, compiled and run, equals the nest executed statement by statement."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from weft.emit.cpp import emit
from weft.emit.names import host_entry
from weft.errors import Location
from weft.loops.interpret import interpret, torch_dtype
from weft.loops.ir import (
    Array,
    Carry,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Round,
    Scalar,
    Size,
    Stmt,
    Store,
    validate,
)
from weft.loops.operators import OPERATORS
from weft.loops.schedule import Axis, Nest, Update, Verdict
from weft.loops.types import BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT64, SCALAR_TYPES, ScalarType
from weft.plan.arguments import Facts, slots
from weft.runtime import host
from weft.runtime.include import resolve

STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-parentheses")

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"), pytest.mark.usefixtures("optimised")]

# ---------------------------------------------------------------- building nests by hand

F32 = FLOAT32


def number(value: float, type_: ScalarType = FLOAT32) -> Const:
    return Const(value, type_)


def whole(value: int) -> Const:
    return Const(value, INT64)


def name(text: str, type_: ScalarType = INT64) -> Ref:
    return Ref(text, type_)


def op(operator: str, *args: Expr) -> Op:
    rule = OPERATORS[operator].rule
    return Op(operator, args, BOOL if rule in ("comparison", "predicate", "logical") else args[-1].type)


def plus(a: Expr, b: Expr) -> Op:
    return op("add", a, b)


def times(a: Expr, b: Expr) -> Op:
    return op("mul", a, b)


def subscripts(index: tuple[Expr | str | int, ...]) -> tuple[Expr, ...]:
    return tuple(name(i) if isinstance(i, str) else whole(i) if isinstance(i, int) else i for i in index)


def at(array: str, *index: Expr | str | int, type_: ScalarType = FLOAT32) -> Load:
    return Load(array, subscripts(index), type_)


def put(array: str, *index_then_value: Expr | str | int) -> Store:
    *index, value = index_then_value
    assert not isinstance(value, str | int)
    return Store(array, subscripts(tuple(index)), value)


def loop(
    var: str, stop: Expr | str, *body: Stmt, carries: tuple[Carry, ...] = (), start: Expr | int = 0, step: int = 1
) -> For:
    (stop,), (start,) = subscripts((stop,)), subscripts((start,))
    return For(var, start, stop, step, carries, tuple(body))


def backwards(var: str, size: str, *body: Stmt, carries: tuple[Carry, ...] = ()) -> For:
    return loop(var, whole(-1), *body, carries=carries, start=op("sub", name(size), whole(1)), step=-1)


def verdict(var: str, kind: str, *updates: Update) -> tuple[str, Verdict]:
    return var, Verdict(var, kind, updates)  # type: ignore[arg-type]


def affine(carry: str, coefficient: Expr, addend: Expr, used: bool = True) -> Update:
    return Update((carry,), "affine", (coefficient, addend), used)


def case(
    title: str,
    arrays: dict[str, tuple[str, tuple[str | int, ...], ScalarType]],
    axes: dict[str, str],
    body: tuple[Stmt, ...],
    *verdicts: tuple[str, Verdict],
    scalars: tuple[Scalar, ...] = (),
    local: tuple[Array, ...] = (),
) -> tuple[Function, Nest]:
    """A function with one nest. arrays: role, shape (names of sizes, numbers), dtype; axes: variable -> size."""
    declared, sizes, taken = [], [], set()
    for array, (role, shape, dtype) in arrays.items():
        declared.append(Array(array, dtype, subscripts(shape), role))  # type: ignore[arg-type]
        for axis, extent in enumerate(shape):
            if role in ("input", "inout") and isinstance(extent, str) and extent not in taken:
                taken.add(extent)
                sizes.append(Size(extent, array, axis))
    statements = body
    for var, size in reversed(axes.items()):
        statements = (loop(var, size, *statements),)
    parameters = tuple(a for a, (role, *_) in arrays.items() if role in ("input", "inout"))
    function = Function(
        title,
        parameters + tuple(s.name for s in scalars),
        scalars,
        tuple(sizes),
        (*declared, *local),
        statements,
        tuple(a for a, (role, *_) in arrays.items() if role in ("result", "inout")),
    )
    validate(function)
    nest = Nest(title, tuple(Axis(v, whole(0), name(s), 1) for v, s in axes.items()), body, verdicts)
    return function, nest


# ---------------------------------------------------------------- compiling and calling


@functools.cache
def compiled(text: str, function: str) -> Callable[..., int]:
    built = host.build(resolve(text, "nest.cpp"), "nest.cpp", (*host.FLAGS, *STRICT))
    call = ctypes.CDLL(str(built.place))[function]
    call.restype = ctypes.c_int64
    return call  # type: ignore[no-any-return]


def facts_of(tensors: dict[str, torch.Tensor]) -> Facts:
    """The last axis with stride 1 of every array is its unit axis."""
    unit = set()
    for array, tensor in tensors.items():
        ones = [axis for axis in range(tensor.dim()) if tensor.stride(axis) == 1]
        if ones:
            unit.add((array, ones[-1]))
    return Facts(frozenset(unit))


def run(
    function: Function, nest: Nest, arguments: tuple[object, ...], threads: int = 2
) -> tuple[list[torch.Tensor], int]:
    """The results of the compiled nest, and what it returned."""
    given = dict(zip(function.parameters, arguments, strict=True))
    tensors = {n: v for n, v in given.items() if isinstance(v, torch.Tensor)}
    sizes = {s.name: tensors[s.array].shape[s.axis] for s in function.sizes}
    for array in function.arrays:
        if array.name not in tensors and not array.within:
            shape = [sizes[e.name] if isinstance(e, Ref) else e.value for e in array.shape]
            tensors[array.name] = torch.full(shape, 77, dtype=torch_dtype(array.dtype))
    facts = facts_of(tensors)
    values = []
    for slot in slots(function, nest, facts):
        if slot.kind == "pointer":
            values.append(ctypes.c_int64(tensors[slot.array].data_ptr()))
        elif slot.kind == "stride":
            values.append(ctypes.c_int64(tensors[slot.array].stride(slot.axis)))
        elif slot.kind == "size":
            values.append(ctypes.c_int64(sizes[slot.name]))
        else:
            kind = ctypes.c_double if slot.type == FLOAT64 else ctypes.c_int64
            values.append(kind(given[slot.name]))  # type: ignore[arg-type]
    record = b"".join(bytes(v) for v in values)
    code = compiled(emit(function, nest, facts), host_entry(nest.name))(ctypes.create_string_buffer(record), threads)
    return [tensors[r] for r in function.results], code


def same(function: Function, nest: Nest, *arguments: object, exact: bool = False, threads: int = 2) -> None:
    """The compiled nest and its meaning agree, to the rounding of the dtype."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    expected = interpret(function, *copies)
    actual, code = run(function, nest, arguments, threads)
    assert code == 0
    for a, e in zip(actual, expected, strict=True):
        tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
        torch.testing.assert_close(a, e, equal_nan=True, **tolerance)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# ---------------------------------------------------------------- scans

MATRIX = ("rows", "length")
LINREC_ARRAYS = {"x": ("input", MATRIX, F32), "c": ("input", MATRIX, F32), "y": ("result", MATRIX, F32)}


def line(text: str) -> Location:
    """A location in a file of the tests, so that comments are seen."""
    source = Path(__file__).with_name("golden") / "cpp" / "linrec_source.py"
    lines = source.read_text().splitlines() if source.exists() else []
    found = [number for number, content in enumerate(lines, 1) if text in content]
    return Location(str(source), found[0] if found else 1)


def linrec(kind: str = "scan", reverse: bool = False, dtype: ScalarType = FLOAT32) -> tuple[Function, Nest]:
    t = dtype.opmath
    h1 = plus(times(at("c", "r", "l", type_=t), name("h", t)), at("x", "r", "l", type_=t))
    carry = Carry("h", number(0.0, t), name("h_1", t), "h_2")
    update = affine("h", at("c", "r", "l", type_=t), at("x", "r", "l", type_=t))
    make = backwards if reverse else loop
    arrays = {n: (role, MATRIX, dtype) for n, (role, *_) in LINREC_ARRAYS.items()}
    update_line = line("h = c[r, l]")
    body = make("l", "length", Let("h_1", h1, update_line), put("y", "r", "l", name("h_1", t)), carries=(carry,))
    updates = (update,) if kind == "scan" else ()
    return case("linrec", arrays, {"r": "rows"}, (body,), verdict("l", kind, *updates))


SHAPES = [(0, 5), (3, 0), (1, 1), (1, 100), (5, 33), (8, 16), (17, 70), (35, 129)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["scan", "sequential"])
def test_linear_recurrence(kind: str, reverse: bool) -> None:
    for shape in SHAPES:
        same(*linrec(kind, reverse), random(*shape), torch.rand(shape))


def test_linear_recurrence_of_strided_rows() -> None:
    for kind in ("scan", "sequential"):
        same(*linrec(kind), random(40, 60)[::2, :33], torch.rand(20, 100)[:, 7:40])


def test_linear_recurrence_without_consecutive_memory() -> None:
    for kind in ("scan", "sequential"):
        same(*linrec(kind), random(20, 80)[:, ::2], torch.rand(20, 120)[:, ::3])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_linear_recurrence_in_other_types(dtype: str) -> None:
    for kind in ("scan", "sequential"):
        x, c = random(19, 70), torch.rand(19, 70)
        same(*linrec(kind, dtype=SCALAR_TYPES[dtype]), x.to(getattr(torch, dtype)), c.to(getattr(torch, dtype)))


def test_scan_of_infinite_coefficients_keeps_nan_in_its_place() -> None:
    x, c = torch.ones(1, 64), torch.ones(1, 64)
    c[0, 20], x[0, 37] = float("inf"), float("nan")
    same(*linrec(), x, c)


def test_sequential_rows_are_exact() -> None:
    function, nest = linrec("sequential", dtype=FLOAT64)
    x, c = random(24, 50, dtype=torch.float64), torch.rand(24, 50, dtype=torch.float64)
    c = torch.round(c * 8) / 8
    same(function, nest, torch.round(x), c)


def running(algebra: str, type_: ScalarType, reverse: bool = False) -> tuple[Function, Nest]:
    operator = {"sum": "add", "product": "mul"}.get(algebra, algebra)
    first = Let("m_1", op(operator, name("m", type_), at("x", "r", "l", type_=type_)))
    start = {"sum": 0, "product": 1}.get(algebra, 0)
    carry = Carry("m", Const(float(start) if type_.category == "float" else start, type_), name("m_1", type_), "m_2")
    make = backwards if reverse else loop
    body = make("l", "length", first, put("y", "r", "l", name("m_1", type_)), carries=(carry,))
    arrays = {"x": ("input", MATRIX, type_), "y": ("result", MATRIX, type_)}
    update = Update(("m",), algebra, (at("x", "r", "l", type_=type_),), True)
    return case(f"running_{algebra}", arrays, {"r": "rows"}, (body,), verdict("l", "scan", update))


@pytest.mark.parametrize("algebra", ["sum", "max", "minimum", "fmax"])
def test_running_values(algebra: str) -> None:
    x = random(3, 100)
    x[1, 40], x[2, 0] = float("nan"), float("inf")
    same(*running(algebra, F32), x)


def test_running_integers_wrap() -> None:
    x = torch.full((2, 50), 2**61, dtype=torch.int64)
    same(*running("sum", INT64, reverse=True), x, exact=True)


def test_cascaded_scans_in_one_loop() -> None:
    # s = s + x; t = 0.5 * t + s, both stored
    body = loop(
        "l",
        "length",
        Let("s_1", plus(name("s", F32), at("x", "r", "l"))),
        Let("t_1", plus(times(number(0.5), name("t", F32)), name("s_1", F32))),
        put("y", "r", "l", plus(name("t_1", F32), name("s", F32))),
        carries=(Carry("s", number(0.0), name("s_1", F32), "s_2"), Carry("t", number(1.0), name("t_1", F32), "t_2")),
    )
    updates = (Update(("s",), "sum", (at("x", "r", "l"),), True), affine("t", number(0.5), name("s_1", F32)))
    arrays = {"x": ("input", MATRIX, F32), "y": ("result", MATRIX, F32)}
    function, nest = case("cascade", arrays, {"r": "rows"}, (body,), verdict("l", "scan", *updates))
    same(function, nest, random(4, 77))


def test_carries_that_swap() -> None:
    # Fibonacci-like: a, b = b, a + x
    body = loop(
        "l",
        "length",
        Let("sum", plus(name("a", F32), at("x", "r", "l"))),
        put("y", "r", "l", name("b", F32)),
        carries=(Carry("a", number(0.0), name("b", F32), "a_1"), Carry("b", number(1.0), name("a", F32), "b_1")),
    )
    last = put("z", "r", plus(name("a_1", F32), times(number(10.0), name("b_1", F32))))
    arrays = {"x": ("input", MATRIX, F32), "y": ("result", MATRIX, F32), "z": ("result", ("rows",), F32)}
    same(*case("swap", arrays, {"r": "rows"}, (body, last), verdict("l", "sequential")), random(11, 21))


def test_time_major_recurrence() -> None:
    shape = ("batch", "time", "channels")
    h1 = plus(times(at("c", "b", "t", "d"), name("h", F32)), at("x", "b", "t", "d"))
    carry = Carry("h", number(0.0), name("h_1", F32), "h_2")
    body = loop("t", "time", Let("h_1", h1), put("y", "b", "t", "d", name("h_1", F32)), carries=(carry,))
    arrays = {"x": ("input", shape, F32), "c": ("input", shape, F32), "y": ("result", shape, F32)}
    update = affine("h", at("c", "b", "t", "d"), at("x", "b", "t", "d"))
    function, nest = case("linrec_time", arrays, {"b": "batch", "d": "channels"}, (body,), verdict("t", "scan", update))
    for sizes in [(2, 9, 300), (1, 0, 3), (3, 5, 1), (2, 3, 256)]:
        same(function, nest, random(*sizes), torch.rand(sizes))


# ---------------------------------------------------------------- reductions


def softmax(rows_first: bool = True, dtype: ScalarType = FLOAT32) -> tuple[Function, Nest]:
    t = dtype.opmath

    def x(var: str) -> Load:
        return at("x", *(("r", var) if rows_first else (var, "r")), type_=t)

    def carried(carry: str, init: float, var: str, value: Expr) -> For:
        nxt = f"{carry}_{var}"
        carries = (Carry(carry, number(init, t), name(nxt, t), f"{carry}_out"),)
        return loop(var, "length", Let(nxt, value), carries=carries)

    def e(var: str) -> Op:
        return op("exp", op("sub", x(var), name("m_out", t)))

    body = (
        carried("m", float("-inf"), "i", op("max", name("m", t), x("i"))),
        carried("s", 0.0, "j", plus(name("s", t), e("j"))),
        loop("k", "length", put("y", *(("r", "k") if rows_first else ("k", "r")), op("div", e("k"), name("s_out", t)))),
    )
    shape = MATRIX if rows_first else ("length", "rows")
    arrays = {"x": ("input", shape, dtype), "y": ("result", shape, dtype)}
    verdicts = (
        verdict("i", "reduction", Update(("m",), "max", (x("i"),), False)),
        verdict("j", "reduction", Update(("s",), "sum", (e("j"),), False)),
        verdict("k", "parallel"),
    )
    return case("softmax", arrays, {"r": "rows"}, body, *verdicts)


@pytest.mark.parametrize("rows_first", [True, False])
def test_softmax(rows_first: bool) -> None:
    for shape in [(7, 100), (3, 1), (1, 33), (2, 0), (300, 5)]:
        same(*softmax(rows_first), random(*(shape if rows_first else shape[::-1])))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_of_half_types(dtype: str) -> None:
    same(*softmax(dtype=SCALAR_TYPES[dtype]), random(5, 100).to(getattr(torch, dtype)))


@pytest.mark.parametrize("algebra", ["sum", "product", "max", "min", "maximum", "minimum", "fmax", "fmin"])
def test_reductions_treat_nan_as_python(algebra: str) -> None:
    operator = {"sum": "add", "product": "mul"}.get(algebra, algebra)
    value = op(operator, name("m", F32), at("x", "r", "l"))
    body = loop("l", "length", Let("m_1", value), carries=(Carry("m", at("start", "r"), name("m_1", F32), "m_2"),))
    arrays = {"x": ("input", MATRIX, F32), "start": ("input", ("rows",), F32), "y": ("result", ("rows",), F32)}
    update = Update(("m",), algebra, (at("x", "r", "l"),), False)
    nest_parts = (body, put("y", "r", name("m_2", F32)))
    function, nest = case(f"reduce_{algebra}", arrays, {"r": "rows"}, nest_parts, verdict("l", "reduction", update))
    x, start = random(5, 70), random(5)
    x[1, 30] = x[2, 0] = x[4] = float("nan")
    start[3] = start[4] = float("nan")
    same(function, nest, x, start)
    same(function, nest, x[:, :0], start)


def test_reduction_by_a_branch() -> None:
    # if x > m: m = x, and a count of those above 0
    body = loop(
        "l",
        "length",
        If(op("gt", at("x", "l"), name("m", F32)), (), (), (Merge("m_1", at("x", "l"), name("m", F32)),)),
        Let("n_1", plus(name("n"), Cast(op("gt", at("x", "l"), number(0.0)), INT64))),
        carries=(
            Carry("m", number(float("-inf")), name("m_1", F32), "m_2"),
            Carry("n", whole(0), name("n_1"), "n_2"),
        ),
    )
    last = (put("y", 0, name("m_2", F32)), put("count", 0, name("n_2")))
    arrays = {"x": ("input", ("length",), F32), "y": ("result", (1,), F32), "count": ("result", (1,), INT64)}
    updates = (
        Update(("m",), "max", (at("x", "l"),), False),
        Update(("n",), "sum", (Cast(op("gt", at("x", "l"), number(0.0)), INT64),), False),
    )
    function, nest = case("largest", arrays, {}, (body, *last), verdict("l", "reduction", *updates))
    same(function, nest, random(1000))


def test_matrix_product_runs_along_consecutive_memory() -> None:
    value = plus(name("acc", F32), times(at("a", "i", "k"), at("b", "k", "j")))
    body = loop("k", "depth", Let("acc_1", value), carries=(Carry("acc", number(0.0), name("acc_1", F32), "acc_2"),))
    arrays = {
        "a": ("input", ("rows", "depth"), F32),
        "b": ("input", ("depth", "columns"), F32),
        "y": ("result", ("rows", "columns"), F32),
    }
    update = Update(("acc",), "sum", (times(at("a", "i", "k"), at("b", "k", "j")),), False)
    parts = (body, put("y", "i", "j", name("acc_2", F32)))
    function, nest = case("matmul", arrays, {"i": "rows", "j": "columns"}, parts, verdict("k", "reduction", update))
    same(function, nest, random(9, 20), random(20, 300))


# ---------------------------------------------------------------- elementwise


def bias_add() -> tuple[Function, Nest]:
    value = op("maximum", plus(at("x", "i", "j"), at("bias", "j")), Cast(name("low", FLOAT64), F32))
    arrays = {
        "x": ("input", ("rows", "columns"), F32),
        "bias": ("input", ("columns",), F32),
        "y": ("result", ("rows", "columns"), F32),
    }
    body = (put("y", "i", "j", value),)
    return case("bias_relu", arrays, {"i": "rows", "j": "columns"}, body, scalars=(Scalar("low", FLOAT64),))


def test_elementwise_with_broadcast() -> None:
    for sizes in [(5, 7), (0, 3), (2, 0), (3, 9000), (700, 100)]:
        same(*bias_add(), random(*sizes), random(sizes[1]), 0.25)


def test_elementwise_of_a_transposed_array() -> None:
    same(*bias_add(), random(50, 40).t(), random(50), -0.5)


def test_branches_with_merges() -> None:
    x = at("x", "i")
    body = (
        If(
            op("gt", x, number(0.0)),
            (Let("double", times(x, number(2.0))), put("y", "i", name("double", F32))),
            (
                If(op("isnan", x), (), (), (Merge("inner", number(5.0), op("neg", x)),)),
                put("y", "i", number(-1.0)),
            ),
            (Merge("v", name("double", F32), name("inner", F32)), Merge("w", number(1.0), number(2.0))),
        ),
        put("z", "i", plus(name("v", F32), name("w", F32))),
    )
    arrays = {"x": ("input", ("n",), F32), "y": ("result", ("n",), F32), "z": ("result", ("n",), F32)}
    x_values = random(100)
    x_values[3] = float("nan")
    same(*case("branches", arrays, {"i": "n"}, body), x_values, exact=True)


def test_small_integers_wrap() -> None:
    a, b = at("a", "i", type_=INT8), at("b", "i", type_=INT8)
    value = op("sub", times(plus(a, b), Const(3, INT8)), op("neg", b))
    quotient = op("floordiv", a, b)
    bits = op("bitxor", op("bitand", op("mod", a, b), Const(7, INT8)), op("bitnot", op("shl", a, b)))
    arrays = {"a": ("input", ("n",), INT8), "b": ("input", ("n",), INT8)}
    arrays |= {n: ("result", ("n",), INT8) for n in ("y", "q", "z")}
    body = (put("y", "i", value), put("q", "i", quotient), put("z", "i", bits))
    every = torch.arange(-128, 128).to(torch.int8)
    same(*case("bytes", arrays, {"i": "n"}, body), every.repeat(4), every.repeat_interleave(4), exact=True)


def test_integers_of_scalars_wrap() -> None:
    value = times(times(name("k"), name("k")), at("x", "i", type_=INT64))
    arrays = {"x": ("input", ("n",), INT64), "y": ("result", ("n",), INT64)}
    function, nest = case("squares", arrays, {"i": "n"}, (put("y", "i", value),), scalars=(Scalar("k", INT64),))
    same(function, nest, torch.arange(50), 2**40 + 3, exact=True)


def test_bool_memory_and_rounding() -> None:
    flag = op("or", at("m", "i", type_=BOOL), op("lt", at("x", "i"), number(0.5)))
    value = op("where", flag, Round(times(at("x", "i"), number(1.1)), FLOAT16), number(float("inf")))
    arrays = {
        "x": ("input", ("n",), FLOAT16),
        "m": ("input", ("n",), BOOL),
        "y": ("result", ("n",), FLOAT16),
        "f": ("result", ("n",), BOOL),
    }
    function, nest = case("flags", arrays, {"i": "n"}, (put("y", "i", value), put("f", "i", flag)))
    same(function, nest, random(99).half(), torch.arange(99) % 3 == 0)


def test_names_that_are_words_of_cpp() -> None:
    body = (Let("float", plus(at("new", "int"), at("threads", "int"))), put("slots", "int", name("float", F32)))
    arrays = {"new": ("input", ("w",), F32), "threads": ("input", ("w",), F32), "slots": ("result", ("w",), F32)}
    same(*case("exp", arrays, {"int": "w"}, body), random(30), random(30))


def test_names_that_strides_would_have() -> None:
    body = (Let("x_stride_0", plus(at("x", "i", "j"), number(1.0))), put("y", "i", "j", name("x_stride_0", F32)))
    arrays = {"x": ("input", MATRIX, F32), "y": ("result", MATRIX, F32)}
    same(*case("strides", arrays, {"i": "rows", "j": "length"}, body), random(4, 9))


# ---------------------------------------------------------------- subscripts


def gather() -> tuple[Function, Nest]:
    picked = at("table", at("where", "i", type_=INT64))
    arrays = {"table": ("input", ("entries",), F32), "where": ("input", ("n",), INT64), "y": ("result", ("n",), F32)}
    return case("gather", arrays, {"i": "n"}, (put("y", "i", picked),))


def test_gather() -> None:
    same(*gather(), random(20), torch.arange(100) % 20, exact=True)


@pytest.mark.parametrize("bad", [20, -1, 2**62])
def test_gather_outside_names_the_array(bad: int) -> None:
    function, nest = gather()
    where = torch.arange(100) % 20
    where[63] = bad
    assert run(function, nest, (random(20), where))[1] == 1  # the first array
    assert run(function, nest, (random(0), where[:5]))[1] == 1
    assert run(function, nest, (random(0), where[:0]))[1] == 0


def test_guarded_gather_is_not_checked_where_it_is_not_done() -> None:
    index = at("where", "i", type_=INT64)
    picked = op("where", op("ge", index, whole(0)), at("table", index), number(-1.0))
    arrays = {"table": ("input", ("entries",), F32), "where": ("input", ("n",), INT64), "y": ("result", ("n",), F32)}
    function, nest = case("guarded", arrays, {"i": "n"}, (put("y", "i", picked),))
    same(function, nest, random(8), torch.arange(-4, 8), exact=True)


def test_scatter_outside_writes_nothing_there() -> None:
    body = (Let("k", at("where", "i", type_=INT64)), put("y", name("k"), at("x", "i")))
    arrays = {"x": ("input", ("n",), F32), "where": ("input", ("n",), INT64), "y": ("inout", ("m",), F32)}
    function, nest = case("scatter", arrays, {"i": "n"}, body)
    y = torch.zeros(10)
    assert run(function, nest, (torch.ones(3), torch.tensor([1, 9, 10]), y[:10]))[1] == 3
    assert y.tolist() == [0, 1] + [0] * 7 + [1]


def test_in_place_recurrence() -> None:
    for kind in ("scan", "sequential"):
        h1 = plus(times(number(0.5), name("h", F32)), at("x", "r", "l"))
        carry = Carry("h", number(0.0), name("h_1", F32), "h_2")
        body = loop("l", "length", Let("h_1", h1), put("x", "r", "l", name("h_1", F32)), carries=(carry,))
        updates = (affine("h", number(0.5), at("x", "r", "l")),) if kind == "scan" else ()
        arrays = {"x": ("inout", MATRIX, F32)}
        function, nest = case("smooth", arrays, {"r": "rows"}, (body,), verdict("l", kind, *updates))
        same(function, nest, random(18, 53))


def test_recurrence_through_the_array_itself() -> None:
    step = plus(times(number(0.5), at("y", "r", op("sub", name("l"), whole(1)))), at("x", "r", "l"))
    body = loop("l", "length", put("y", "r", "l", step), start=1)
    arrays = {"x": ("input", MATRIX, F32), "y": ("inout", MATRIX, F32)}
    function, nest = case("through", arrays, {"r": "rows"}, (body,), verdict("l", "sequential"))
    same(function, nest, random(9, 40), random(9, 40))


def test_local_array() -> None:
    # a window of four values a row, shifted along the length
    shift = loop("k", whole(3), put("window", "k", at("window", plus(name("k"), whole(1)))))
    total = loop(
        "j",
        whole(4),
        Let("s_1", plus(name("s", F32), at("window", "j"))),
        carries=(Carry("s", number(0.0), name("s_1", F32), "s_2"),),
    )
    body = loop("l", "length", shift, put("window", 3, at("x", "r", "l")), total, put("y", "r", "l", name("s_2", F32)))
    window = Array("window", F32, (whole(4),), "local", number(0.0), ("r",))
    arrays = {"x": ("input", MATRIX, F32), "y": ("result", MATRIX, F32)}
    verdicts = (verdict("l", "sequential"), verdict("k", "sequential"), verdict("j", "sequential"))
    function, nest = case("window", arrays, {"r": "rows"}, (body,), *verdicts, local=(window,))
    same(function, nest, random(6, 25))


def test_data_dependent_bounds_and_sparse_rows() -> None:
    # y[i] = sum of values[k] * x[column[k]] for k in range(first[i], first[i + 1])
    product = times(at("values", "k"), at("x", at("column", "k", type_=INT64)))
    body = For(
        "k",
        at("first", "i", type_=INT64),
        at("first", plus(name("i"), whole(1)), type_=INT64),
        1,
        (Carry("s", number(0.0), name("s_1", F32), "s_2"),),
        (Let("s_1", plus(name("s", F32), product)),),
    )
    arrays = {
        "values": ("input", ("entries",), F32),
        "column": ("input", ("entries",), INT64),
        "first": ("input", ("fences",), INT64),
        "x": ("input", ("columns",), F32),
        "y": ("inout", ("rows",), F32),
    }
    parts = (body, put("y", "i", name("s_2", F32)))
    update = Update(("s",), "sum", (product,), False)
    function, nest = case("sparse", arrays, {"i": "rows"}, parts, verdict("k", "reduction", update))
    first = torch.tensor([0, 3, 3, 40, 50])
    same(function, nest, random(50), torch.arange(50) * 7 % 11, first, random(11), random(4))
    assert run(function, nest, (random(50), torch.arange(50), first, random(11), random(4)))[1] == 4


def test_steps_and_triangles() -> None:
    # y[r, l] = sum of x[r, k] for k in range(l, length, 3), l backwards by 2
    total = For(
        "k",
        name("l"),
        name("length"),
        3,
        (Carry("s", number(0.0), name("s_1", F32), "s_2"),),
        (Let("s_1", plus(name("s", F32), at("x", "r", "k"))),),
    )
    last = op("sub", name("length"), whole(1))
    body = loop("l", whole(-1), total, put("y", "r", "l", name("s_2", F32)), start=last, step=-2)
    arrays = {"x": ("input", MATRIX, F32), "y": ("inout", MATRIX, F32)}
    update = Update(("s",), "sum", (at("x", "r", "k"),), False)
    verdicts = (verdict("l", "parallel"), verdict("k", "reduction", update))
    function, nest = case("triangle", arrays, {"r": "rows"}, (body,), *verdicts)
    for sizes in [(4, 30), (4, 31), (3, 1)]:
        same(function, nest, random(*sizes), random(*sizes))


# ---------------------------------------------------------------- the text


def test_unused_names_are_not_emitted() -> None:
    body = (Let("unused", op("exp", at("z", "i"))), put("y", "i", at("x", "i")))
    arrays = {"x": ("input", ("n",), F32), "z": ("input", ("n",), F32), "y": ("result", ("n",), F32)}
    function, nest = case("copy", arrays, {"i": "n"}, body)
    text = emit(function, nest, Facts(frozenset({("x", 0), ("y", 0), ("z", 0)})))
    assert "unused" not in text and not re.search(r"\bz\b", text)
    same(function, nest, random(5), random(5))


ROWS_UNIT = Facts(frozenset({("x", 1), ("c", 1), ("y", 1)}))


def test_the_text_of_a_scan(golden: Callable[[str, str], None]) -> None:
    golden("cpp/linrec.cpp", emit(*linrec(), ROWS_UNIT))


def test_the_text_of_rows_in_order(golden: Callable[[str, str], None]) -> None:
    golden("cpp/linrec_sequential.cpp", emit(*linrec("sequential"), ROWS_UNIT))


def test_the_text_of_softmax(golden: Callable[[str, str], None]) -> None:
    golden("cpp/softmax.cpp", emit(*softmax(), ROWS_UNIT))


def test_the_text_of_an_elementwise_nest(golden: Callable[[str, str], None]) -> None:
    golden("cpp/bias_relu.cpp", emit(*bias_add(), Facts(frozenset({("x", 1), ("bias", 0), ("y", 1)}))))


def test_a_long_body_asks_for_what_it_reads_next() -> None:
    """Once for accesses that are a constant apart, and not for a row that all share; a body of few instructions not at all."""
    arrays = {"x": ("input", ("rows", "wide"), F32), "c": ("input", ("rows",), F32), "y": ("inout", MATRIX, F32)}
    both = plus(at("x", "r", "k"), at("x", "r", plus(name("k"), whole(2))))
    unit = Facts(frozenset({("x", 1), ("c", 0), ("y", 1)}))
    for value, asked in ((op("exp", both), 1), (both, 0)):
        body = (put("y", "r", "k", times(value, at("c", "r"))),)
        function, nest = case("apart", arrays, {"r": "rows", "k": "length"}, body)
        assert emit(function, nest, unit).count("weft::prefetch") == asked
        same(function, nest, random(3, 1502), random(3), random(3, 1500))
