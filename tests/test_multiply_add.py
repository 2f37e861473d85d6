"""Multiply-adds: CUDA's text states which round once, the compilers round everything else twice."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft.emit.expressions import Printer, Text
from weft.kernels import LIBRARY
from weft.loops.ir import Cast, Const, Expr, Op, Ref
from weft.loops.types import FLOAT32, FLOAT64, INT64, ScalarType
from weft.runtime import nvrtc
from weft.runtime.include import resolve

GXX = shutil.which("g++")
NAMES = ("a", "b", "c", "d")


def printer(fuses: bool) -> Printer:
    return Printer(lambda ref: ref.name, lambda load: Text(load.array), lambda name: False, fuses)


def op(name: str, *args: Expr) -> Op:
    return Op(name, args, args[0].type)


def names(type_: ScalarType) -> list[Ref]:
    return [Ref(name, type_) for name in NAMES]


A, B, C, D = names(FLOAT32)
AB, CD = op("mul", A, B), op("mul", C, D)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (op("add", AB, C), "weft::fma(a, b, c)"),
        (op("add", C, AB), "weft::fma(a, b, c)"),
        (op("sub", AB, C), "weft::fma(a, b, -c)"),
        (op("sub", C, AB), "weft::fma(-a, b, c)"),
        (op("add", op("neg", AB), C), "weft::fma(-a, b, c)"),
        (op("sub", C, op("neg", AB)), "weft::fma(a, b, c)"),
        (op("sub", C, op("mul", op("add", A, B), D)), "weft::fma(a + b, -d, c)"),
        (op("sub", C, op("mul", op("add", A, B), op("add", C, D))), "weft::fma(-(a + b), c + d, c)"),
        (op("sub", C, op("mul", Const(2.0, FLOAT32), B)), "weft::fma(-2.0f, b, c)"),
        (op("add", AB, CD), "weft::fma(a, b, c * d)"),
        (op("sub", AB, CD), "weft::fma(a, b, -(c * d))"),
        (op("add", op("add", AB, CD), AB), "weft::fma(a, b, weft::fma(a, b, c * d))"),
        (op("mul", op("add", AB, C), D), "weft::fma(a, b, c) * d"),
        (op("add", Cast(AB, FLOAT32), C), "weft::fma(a, b, c)"),
        (op("add", op("add", A, B), C), "a + b + c"),
        (op("add", Cast(AB, FLOAT64), Ref("e", FLOAT64)), "double(a * b) + e"),
        (op("add", op("div", A, B), C), "a / b + c"),
    ],
)
def test_the_text_states_what_rounds_once(expr: Expr, text: str) -> None:
    assert printer(fuses=True).value(expr) == text


def test_integers_are_never_fused() -> None:
    a, b, c, _ = names(INT64)
    text = printer(fuses=True).value(op("add", op("mul", a, b), c))
    assert text == "weft::wrapping_add(weft::wrapping_mul(a, b), c)"


def test_the_cpu_leaves_multiply_adds_to_its_compiler() -> None:
    assert printer(fuses=False).value(op("sub", C, AB)) == "c - a * b"
    assert printer(fuses=False).accumulated("total", AB) is None
    assert "weft::fma" not in LIBRARY["linrec"].source(arch="cpu")


@pytest.mark.parametrize(
    ("kernel", "statement"),
    [
        ("linrec", "weft::fma(c_tile[run][v], h, x_tile[run][v])"),
        ("rms_norm", "squares_own = weft::fma(x_run[v], x_run[v], squares_own);"),
        ("layer_norm", "weft::fma((x_run_3[v] - mean) * scale, weight_run[v], bias_run[v])"),
    ],
)
def test_kernels_state_their_multiply_adds(kernel: str, statement: str) -> None:
    assert statement in LIBRARY[kernel].source(arch="sm_90a")


@weft.kernel(example={"x": "float32[64,1024]"})
def running_energy(x: torch.Tensor) -> torch.Tensor:
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        total = 0.0
        for l in range(length):
            total = total + x[r, l] * x[r, l]
            y[r, l] = total
    return y


def test_a_scan_adds_products_as_its_replay_does() -> None:
    source = running_energy.source(arch="sm_90a")
    assert source.count("weft::fma(x_tile[run][v], x_tile[run][v], ") == 2
    assert "Sum<float>::combine(total_own" not in source


@weft.kernel(example={"x": "float32[4,64,32]", "w": "float32[64]"})
def a_thread_each(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    rows, length, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for k in range(width):
            before = 0.0
            for l in range(length):
                y[r, l, k] = before - w[l] * x[r, l, k]
                before = torch.sin(y[r, l, k])
    return y


def test_kernels_of_threads_state_them_too() -> None:
    source = a_thread_each.source(arch="sm_90a")
    assert "a thread for each" in source and "weft::fma(-w[l], " in source


# ---------------------------------------------------------------- values


def rounded(value: Fraction, type_: ScalarType) -> float:
    """The float nearest to a number, ties to even; numbers stay in the normal range."""
    if type_ == FLOAT64 or value == 0:
        return float(value)
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    return float(round(value / unit) * unit)


def factors(expr: Expr) -> tuple[int, Expr, Expr] | None:
    match expr:
        case Op(name="mul", args=(a, b)):
            return 1, a, b
        case Op(name="neg", args=(inner,)):
            found = factors(inner)
            return found and (-found[0], found[1], found[2])
    return None


def value(expr: Expr, given: dict[str, float]) -> float:
    """What the rule says: every operation rounds once, a sum or difference with a product together with it."""
    match expr:
        case Ref(name=name):
            return given[name]
        case Op(name="neg", args=(a,)):
            return -value(a, given)
        case Op(name="mul", args=(a, b)):
            return rounded(Fraction(value(a, given)) * Fraction(value(b, given)), expr.type)
        case Op(name="add" | "sub", args=(a, b)):
            side = 1 if expr.name == "add" else -1
            exact = [Fraction(1), Fraction(side)]
            terms = []
            fused = 0 if factors(a) else 1
            for k, (operand, sign) in enumerate(zip((a, b), exact, strict=True)):
                product = factors(operand) if k == fused else None
                if product is None:
                    terms.append(sign * Fraction(value(operand, given)))
                else:
                    negative, first, second = product
                    terms.append(sign * negative * Fraction(value(first, given)) * Fraction(value(second, given)))
            return rounded(sum(terms, Fraction(0)), expr.type)
    raise TypeError(expr)


def random_expr(source: random.Random, type_: ScalarType, depth: int) -> Expr:
    if depth == 0 or source.random() < 0.15:
        return source.choice(names(type_))
    kind = source.choice(["add", "sub", "mul", "mul", "neg"])
    args = [random_expr(source, type_, depth - 1) for _ in range(1 if kind == "neg" else 2)]
    return op(kind, *args)


@pytest.mark.skipif(GXX is None, reason="no g++")
@pytest.mark.parametrize("type_", [FLOAT32, FLOAT64], ids=str)
def test_emitted_expressions_have_the_values_of_the_rule(type_: ScalarType, tmp_path: Path) -> None:
    source = random.Random(7)
    cpp, ctype = ("float", ctypes.c_float) if type_ == FLOAT32 else ("double", ctypes.c_double)
    exprs = [random_expr(source, type_, 4) for _ in range(300)]
    parameters = ", ".join(f"{cpp} {name}" for name in NAMES)
    text = '#include "weft/scalar.cuh"\n' + "".join(
        f'extern "C" {cpp} f{k}({parameters}) {{ return {printer(fuses=True).value(e)}; }}\n' for k, e in enumerate(exprs)
    )
    file, library = tmp_path / "expressions.cpp", tmp_path / "expressions.so"
    file.write_text(resolve(text, file.name).text)
    command = ["g++", "-O2", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", str(file), "-o", str(library)]
    subprocess.run(command, check=True)
    made: Any = ctypes.CDLL(str(library))
    fused = 0
    for k, e in enumerate(exprs):
        function = made[f"f{k}"]
        function.restype, function.argtypes = ctype, [ctype] * len(NAMES)
        for _ in range(5):
            given = {name: rounded(Fraction(source.uniform(-2, 2)), type_) for name in NAMES}
            got, want = function(*given.values()), value(e, given)
            assert got == want, (printer(fuses=True).value(e), given)
            fused += "weft::fma" in printer(fuses=True).value(e)
    assert fused > 300  # the sample is about what it claims to be about


# ---------------------------------------------------------------- the compiler


def _entry(body: str) -> str:
    return (
        '#include "weft/scalar.cuh"\n'
        'extern "C" __global__ void entry(const float* a, const float* b, float* c) {\n'
        f"    const int i = threadIdx.x;\n    c[i] = {body};\n}}\n"
    )


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_contracts_nothing(arch: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    plain, twice, once = (
        nvrtc.compile_cubin(_entry(body), arch, name="entry.cu").binary
        for body in ("a[i] * b[i] + c[i]", "__fadd_rn(__fmul_rn(a[i], b[i]), c[i])", "weft::fma(a[i], b[i], c[i])")
    )
    assert plain == twice
    assert plain != once


@weft.kernel
def multiply_add(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(a)
    for i in range(a.shape[0]):
        y[i] = c[i] - a[i] * b[i]
    return y


@pytest.mark.gpu
def test_a_gpu_rounds_once_where_the_text_says_so() -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(4096, generator=generator) for _ in range(2))
    c = a * b  # what is left is the rounding of the product: nothing, where it rounds twice
    got = multiply_add(*(t.cuda() for t in (a, b, c))).cpu().numpy()
    want = (c.double() - a.double() * b.double()).numpy().astype(np.float32)  # exact but for this rounding
    assert (got == want).all() and (want != 0).mean() > 0.9


def test_what_is_of_numbers_alone_counts_in_64_bits_where_a_template_is_given_it() -> None:
    """As where an axis of one element is counted by a number."""
    zero, two = Const(0, INT64), Const(2, INT64)
    half = Op("floordiv", (Ref("n", INT64), two), INT64)
    shifted = Op("sub", (Op("add", (Op("neg", (zero,), INT64), two), INT64), half), INT64)
    assert printer(False).value(shifted) == "weft::wrapping_sub(int64_t(-0 + 2), weft::floor_divide(n, int64_t(2)))"
