"""The scalar functions of generated code: their host meaning against Python, numpy and torch; NVRTC compiles them."""

from __future__ import annotations

import ctypes
import itertools
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.loops.operators import OPERATORS, POLYNOMIALS, ROUGH, SPECIAL_OF_ONE, Operator
from weft.loops.types import BOOL, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, ScalarType
from weft.runtime import nvrtc
from weft.runtime.include import resolve

RUNTIME = Path(__file__).parent.parent / "weft" / "runtime"
FLAGS = "-O3 -march=native -std=c++17 -fopenmp -fPIC -shared -fno-math-errno -fno-trapping-math -ffp-contract=fast"
INTEGERS = (INT8, UINT8, INT16, INT32, INT64)
FLOATS = (FLOAT32, FLOAT64)
FUNCTIONS = {o.name: o for o in OPERATORS.values() if "{" not in o.spelling and o.name not in ROUGH}
CPP = {t: f"{t.name}_t" for t in INTEGERS} | {FLOAT32: "float", FLOAT64: "double", BOOL: "bool"}

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def types_of(operator: Operator) -> tuple[ScalarType, ...]:
    if operator.name in ("gcd", "lcm"):
        return INTEGERS
    kinds = {"arithmetic": INTEGERS + FLOATS, "float": FLOATS, "integer": (*INTEGERS, BOOL), "predicate": FLOATS}
    return kinds.get(operator.rule, ())


def wrapper(name: str, result: str, arity: int, type_: str, label: str) -> str:
    parameters = ", ".join(f"const {type_}* a{i}" for i in range(arity))
    arguments = ", ".join(f"a{i}[i]" for i in range(arity))
    return (
        f'extern "C" void {label}({parameters}, {result}* out, int64_t n) {{\n'
        f"    for (int64_t i = 0; i < n; ++i) out[i] = {name}({arguments});\n}}\n"
    )


def program(names: Iterable[str] = FUNCTIONS) -> str:
    text = '#include "weft/special.cuh"\n#include "weft/complex.cuh"\n'
    for operator in map(FUNCTIONS.__getitem__, names):
        for t in types_of(operator):
            result = "bool" if operator.rule == "predicate" else CPP[t]
            text += wrapper(f"weft::{operator.spelling}", result, operator.arity, CPP[t], f"{operator.name}_{t}")
    for name in ("add", "sub", "mul"):
        for t in INTEGERS:
            text += wrapper(f"weft::wrapping_{name}", CPP[t], 2, CPP[t], f"wrapping_{name}_{t}")
    for half in ("float16", "bfloat16"):
        text += wrapper("float", "float", 1, f"weft::{half}", f"from_{half}")
        text += wrapper("", f"weft::{half}", 1, "float", f"to_{half}")
        text += wrapper(f"weft::round_{half}", "float", 1, "float", f"round_{half}")
    return text


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compiled(tmp_path_factory.mktemp("scalar"), program())


def compiled(folder: Path, text: str) -> ctypes.CDLL:
    (folder / "weft").symlink_to(RUNTIME / "device")
    (folder / "scalar.cpp").write_text(text)
    command = ["g++", *FLAGS.split(), "-Wall", "-Wextra", f"-I{folder}", "scalar.cpp", "-o", "scalar.so"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and not result.stderr, result.stderr
    return ctypes.CDLL(str(folder / "scalar.so"))


def call(library: ctypes.CDLL, label: str, *arguments: np.ndarray, result: type | np.dtype) -> np.ndarray:
    out = np.empty(len(arguments[0]), dtype=result)
    pointers = (ctypes.c_void_p(a.ctypes.data) for a in (*arguments, out))
    library[label](*pointers, ctypes.c_int64(len(out)))
    return out


def numpy_type(t: ScalarType) -> np.dtype:
    return np.dtype(t.name)


def samples(t: ScalarType) -> list[float]:
    if t == BOOL:
        return [False, True]
    if t.category == "int":
        low, high = (np.iinfo(t.name).min, np.iinfo(t.name).max)
        edges = (low, low + 1, high, high - 1, *range(-9, 10), 31, 32, 33, 63, 64, 65)
        return sorted({v for v in edges if low <= v <= high})
    tiny = float(np.finfo(t.name).smallest_subnormal)
    huge = float(np.finfo(t.name).max)
    values = [0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 30.0, 100.0, 1e-7, tiny, huge, math.inf]
    return [s * v for v in values for s in (1.0, -1.0)] + [math.nan]


def grid(t: ScalarType, arity: int) -> list[np.ndarray]:
    rows = list(itertools.product(samples(t), repeat=arity))
    return [np.array(column, dtype=numpy_type(t)) for column in zip(*rows, strict=True)]


def wrapped(value: float, t: ScalarType) -> float:
    if t.category != "int":
        return bool(value) if t == BOOL else value
    bits = 8 * t.size
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if t.signed and number >> (bits - 1) else number


EXACT = (
    *("abs", "floordiv", "mod", "max", "min", "maximum", "minimum", "fmax", "fmin", "sign", "fmod", "copysign"),
    *("sqrt", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "bitnot", "shl", "shr", "gcd"),
)
SPECIAL = (  # see test_special.py
    *(*SPECIAL_OF_ONE, *POLYNOMIALS, "lgamma", "digamma", "erfinv", "i0", "polygamma", "zeta", "igamma", "igammac"),
)
SIGNED_ZERO = ("abs", "floordiv", "mod", "fmod", "copysign", "sqrt")  # whose zeros have the sign that Python gives


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n in EXACT])
def test_equals_the_table_of_operators(library: ctypes.CDLL, name: str) -> None:
    operator = FUNCTIONS[name]
    for t in types_of(operator):
        arguments = grid(t, operator.arity)
        result = np.dtype(bool) if operator.rule == "predicate" else numpy_type(t)
        actual = call(library, f"{name}_{t}", *arguments, result=result)
        for got, *values in zip(actual.tolist(), *(a.tolist() for a in arguments), strict=True):
            if name in ("floordiv", "mod") and t == FLOAT32 and not rounds_alike(values):
                continue
            expected = wrapped(operator.evaluate(*values), t)
            if t.category == "float":
                expected = float(np.asarray(expected, dtype=numpy_type(t)))
            assert got == expected or (got != got and expected != expected), f"{name}{values} of {t}"
            if t.category == "float" and name in SIGNED_ZERO:
                assert math.copysign(1, got) == math.copysign(1, expected) or got != got, f"{name}{values} of {t}"


def rounds_alike(values: list[float]) -> bool:
    """Whether the quotient in double precision is far from what the float32 computation may round to."""
    a, b = values
    return not (math.isfinite(a) and math.isfinite(b) and b != 0 and abs(a / b) > 2**20) and abs(b) > 1e-30


def in_torch(operator: Operator) -> Callable[..., torch.Tensor]:
    function = getattr(sys.modules[operator.module], operator.name)
    return partial(function, reduction="none") if operator.name == "binary_cross_entropy" else function


def test_the_number_next_to_another(library: ctypes.CDLL) -> None:
    for t in FLOATS:
        a, b = grid(t, 2)
        expected = torch.nextafter(torch.from_numpy(a), torch.from_numpy(b))
        actual = torch.from_numpy(call(library, f"nextafter_{t}", a, b, result=numpy_type(t)))
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


COMPLEX = tuple(n for n in FUNCTIONS if n.startswith("complex_"))  # see test_complex.py
ELSEWHERE = (*EXACT, *SPECIAL, "nextafter", "gelu", *COMPLEX)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [n for n, o in FUNCTIONS.items() if o.rule == "float" and n not in ELSEWHERE])
def test_mathematics_agrees_with_torch(library: ctypes.CDLL, name: str) -> None:
    operator = FUNCTIONS[name]
    for t in FLOATS:
        arguments = grid(t, operator.arity)
        if name == "binary_cross_entropy":  # of probabilities
            inside = np.all([(a >= 0) & (a <= 1) for a in arguments], axis=0)
            arguments = [a[inside] for a in arguments]
        actual = call(library, f"{name}_{t}", *arguments, result=numpy_type(t))
        doubles = [torch.from_numpy(a.astype(np.float64)) for a in arguments]
        expected = in_torch(operator)(*doubles).to(getattr(torch, t.name))
        tolerance = 4 * np.finfo(t.name).eps
        smallest = float(np.finfo(t.name).tiny)
        torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=tolerance, atol=smallest, equal_nan=True)


def test_exp_is_within_one_unit_in_the_last_place(library: ctypes.CDLL) -> None:
    x = np.linspace(-104, 89, 1_000_001).astype(np.float32)
    actual = call(library, "exp_float32", x, result=np.float32).astype(np.float64)
    exact = np.exp(x.astype(np.float64))
    with np.errstate(over="ignore"):
        unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    finite = exact < np.finfo(np.float32).max
    assert np.max(np.abs(actual - exact)[finite] / unit[finite]) <= 1.0
    assert np.all(np.isinf(actual[~finite]))


def test_powers(library: ctypes.CDLL) -> None:
    for t in FLOATS:
        a, b = grid(t, 2)
        expected = torch.pow(torch.from_numpy(a), torch.from_numpy(b))
        actual = torch.from_numpy(call(library, f"pow_{t}", a, b, result=numpy_type(t)))
        torch.testing.assert_close(actual, expected, rtol=1e-5 if t == FLOAT32 else 1e-13, atol=0, equal_nan=True)
    for t in INTEGERS:
        a, b = grid(t, 2)
        for got, base, exponent in zip(call(library, f"pow_{t}", a, b, result=a.dtype), a, b, strict=True):
            if exponent >= 0:
                modulus = 1 << (8 * t.size)
                assert wrapped(pow(int(base), int(exponent), modulus), t) == got
            else:
                assert got == (0 if abs(int(base)) != 1 else int(base) ** (int(exponent) % 2))


def test_integers_wrap(library: ctypes.CDLL) -> None:
    operations = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}
    for t, (name, operation) in itertools.product(INTEGERS, operations.items()):
        a, b = grid(t, 2)
        expected = [wrapped(operation(x, y), t) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert call(library, f"wrapping_{name}_{t}", a, b, result=a.dtype).tolist() == expected


def test_floor_division_of_a_tenth(library: ctypes.CDLL) -> None:
    one, tenth = np.array([1.0]), np.array([0.1])
    assert call(library, "floordiv_float64", one, tenth, result=np.float64)[0] == 9.0


# ---------------------------------------------------------------- types of memory


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half_becomes_its_float(library: ctypes.CDLL, half: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    expected = torch.from_numpy(bits.view(np.int16)).view(getattr(torch, half)).float()
    actual = torch.from_numpy(call(library, f"from_{half}", bits, result=np.float32))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    numbers = ~torch.isnan(expected)
    assert torch.equal(actual.view(torch.int32)[numbers], expected.view(torch.int32)[numbers])  # signs of zero too


def floats_to_round() -> Iterable[np.ndarray]:
    """Random floats, and for both half types every value, the midpoint above it, and the neighbours of the midpoint."""
    yield np.random.default_rng(0).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    for half in (torch.float16, torch.bfloat16):
        values = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(half).float().numpy().view(np.uint32)
        for distance in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001):
            yield (values + np.uint32(distance)).view(np.float32)
    yield np.array([65519.996, 65520.0, 2.0**-25, 2.0**-25 * 1.0001, 2.0**-24 * 1.5, -0.0], dtype=np.float32)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_floats_round_to_nearest_even(library: ctypes.CDLL, half: str) -> None:
    for values in floats_to_round():
        expected = torch.from_numpy(values).to(getattr(torch, half))
        actual = torch.from_numpy(call(library, f"to_{half}", values, result=np.int16)).view(expected.dtype)
        numbers = ~torch.isnan(expected)
        assert torch.equal(torch.isnan(actual), ~numbers)
        assert torch.equal(actual.view(torch.int16)[numbers], expected.view(torch.int16)[numbers])
        rounded = torch.from_numpy(call(library, f"round_{half}", values, result=np.float32))
        torch.testing.assert_close(rounded, expected.float(), rtol=0, atol=0, equal_nan=True)


# ---------------------------------------------------------------- the device


# To PTX; sm_86 has its own division of doubles, as others without many units for them.
@pytest.mark.parametrize("arch", ["compute_90a", *(pytest.param(a, marks=pytest.mark.long) for a in ("sm_90a", "sm_86"))])
def test_nvrtc_compiles_every_function(arch: str) -> None:
    text = program().replace('extern "C" void', 'extern "C" __global__ void')
    with nvrtc._compiled(resolve(text, "functions.cu"), "functions.cu", (f"-arch={arch}", *nvrtc._OPTIONS)):
        pass
