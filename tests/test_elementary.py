"""Elementary functions of floats on the host: how far off they are, where they end, and that loops over them vectorise."""

from __future__ import annotations

import ctypes
import itertools
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from tests.test_scalar_functions import FLAGS, RUNTIME, call, compiled, wrapper

pytestmark = pytest.mark.usefixtures("optimised")

# The functions of one number and of two, and how many units of the last place they may be off.
OF_ONE = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "log": 1.0, "log2": 1.5, "log10": 1.7, "log1p": 1.7, "sin": 1.6, "cos": 1.6,
    "tan": 3.8, "asin": 2.5, "acos": 1.5, "atan": 1.5, "sinh": 1.7, "cosh": 1.5, "tanh": 1.5, "atanh": 2.3, "erf": 1.4,
    "erfc": 5.0,
}  # fmt: skip
OF_TWO = {"atan2": 1.6, "hypot": 1.3, "power": 1.0, "nextafter": 0.0}
# Those that are right up to where they say so, and how many units they may be off there.
RARE_OF_ONE = {"sin": 2.0, "cos": 2.0, "tan": 4.0}
RARE_OF_TWO = ("fmod", "modulo", "floor_divide")
SPECIAL = [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, float("inf"), 1e-45, 1e-40, 1e38, 3.4e38, 16777216.0, 16777215.0, 8388607.5, 1.25]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> object:
    text = '#include "weft/host.hpp"\n#include "weft/special.cuh"\n'
    for arguments, name in [("a[i]", n) for n in RARE_OF_ONE] + [("a[i], b[i]", n) for n in RARE_OF_TWO]:
        text += f'''extern "C" void {name}_near(const float* a, const float* b, float* y, int* rare, int64_t n) {{
            (void)b;
            for (int64_t i = 0; i < n; ++i) rare[i] = 0, y[i] = weft::{name}({arguments}, rare[i]);
        }}'''
    text += "".join(wrapper(f"weft::{n}", "float", 2, "float", f"{n}_of") for n in RARE_OF_TWO)
    text += "".join(wrapper(f"weft::{n}", "float", 1, "float", f"{n}_of") for n in OF_ONE)
    text += "".join(wrapper(f"weft::{n}", "float", 2, "float", f"{n}_of") for n in OF_TWO)
    return compiled(tmp_path_factory.mktemp("elementary"), text)


def in_double(name: str) -> Callable[..., np.ndarray]:
    function = torch.pow if name == "power" else getattr(torch, name)

    def evaluate(*values: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.asarray(function(*(torch.from_numpy(v.astype(np.float64)) for v in values)))

    return evaluate


def off_by(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How far floats are from doubles, in units of their last place; infinite where one is a NaN, an infinity or a zero's sign
    that the other is not.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = want.astype(np.float32)
    unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1] - 24, -149))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype(np.float64) - want) / unit
    edge = np.isinf(got) | np.isinf(rounded)
    largest = np.float32(3.4028235e38)
    near_the_edge = edge & (np.abs(got) >= largest) & (np.abs(want) > 0.9999998 * largest) & (np.sign(got) == np.sign(want))
    apart = np.where(edge, np.where((got == rounded) | near_the_edge, 0.0, np.inf), apart)
    apart = np.where(np.isnan(got) | np.isnan(want), np.where(np.isnan(got) & np.isnan(want), 0.0, np.inf), apart)
    zeros = (want == 0) & (got == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(zeros, np.inf, apart)


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_number(library: object, name: str) -> None:
    bits = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array(SPECIAL, np.float32), -np.array(SPECIAL, np.float32)])
    got = call(library, f"{name}_of", x, result=np.float32)  # type: ignore[arg-type]
    apart = off_by(got, in_double(name)(x))
    worst = int(apart.argmax())
    assert apart[worst] <= OF_ONE[name], f"{name}({x[worst]}) = {got[worst]}, {apart[worst]} units off"


@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_numbers(library: object, name: str) -> None:
    random = np.random.default_rng(3)
    every = random.integers(0, 1 << 32, (2, 400_000), dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = random.normal(size=(2, 400_000)).astype(np.float32) * np.float32(8)
    whole = np.round(near)
    special = [s * v for v in SPECIAL for s in (1.0, -1.0)] + [float("nan")]
    pairs = np.array(list(itertools.product(special, repeat=2)), dtype=np.float32).T
    a, b = (np.ascontiguousarray(np.concatenate([every[k], near[k], (near, whole)[k][k], pairs[k]])) for k in range(2))
    got = call(library, f"{name}_of", a, b, result=np.float32)  # type: ignore[arg-type]
    with np.errstate(invalid="ignore"):
        want = np.nextafter(a, b).astype(np.float64) if name == "nextafter" else in_double(name)(a, b)
    apart = off_by(got, want)
    worst = int(apart.argmax())
    assert apart[worst] <= OF_TWO[name], f"{name}({a[worst]}, {b[worst]}) = {got[worst]}, {apart[worst]} units off"


def near(library: Any, name: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a function that is rarely wrong gives, and where it says that it is."""
    y, rare = np.empty_like(a), np.empty(len(a), np.int32)
    library[f"{name}_near"](*(ctypes.c_void_p(v.ctypes.data) for v in (a, b, y, rare)), ctypes.c_int64(len(a)))
    return y, rare != 0


@pytest.mark.parametrize("name", RARE_OF_ONE)
def test_angles_up_to_where_they_end(library: object, name: str) -> None:
    x = np.arange(0, 1 << 32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    multiples = (np.arange(1, 20000) * np.pi / 2).astype(np.float32)
    x = np.concatenate([x, multiples, np.array(SPECIAL, np.float32), -np.array(SPECIAL, np.float32)])
    got, rare = near(library, name, x, x)
    assert (rare == ((np.abs(x) > 32768) & np.isfinite(x))).all()
    apart = off_by(got, in_double(name)(x))[~rare]
    assert apart.max() <= RARE_OF_ONE[name], f"{name}({x[~rare][apart.argmax()]})"


@pytest.mark.parametrize("name", RARE_OF_TWO)
def test_remainders_up_to_where_they_end(library: object, name: str) -> None:
    """They have the bits of those that do not end."""
    random = np.random.default_rng(3)
    every = random.integers(0, 1 << 32, (2, 400_000), dtype=np.uint64).astype(np.uint32).view(np.float32)
    usual = random.normal(size=(2, 400_000)).astype(np.float32) * np.array([[1000], [3]], np.float32)
    whole = np.round(usual)
    pairs = [s * v for v in SPECIAL for s in (1.0, -1.0)] + [float("nan")]
    pairs = np.array(list(itertools.product(pairs, repeat=2)), dtype=np.float32).T
    a, b = (np.ascontiguousarray(np.concatenate([every[k], usual[k], whole[k], pairs[k]])) for k in range(2))
    got, rare = near(library, name, a, b)
    with np.errstate(all="ignore"):
        assert (rare == ((np.abs(a) >= np.abs(b) * np.float32(2**22)) & (b != 0) & np.isfinite(a))).all()
    want = call(library, f"{name}_of", a, b, result=np.float32)  # type: ignore[arg-type]
    alike = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want) | rare
    assert alike.all(), [(a[k], b[k], got[k], want[k]) for k in (~alike).nonzero()[0][:5]]


def test_what_is_rare_is_right_too() -> None:
    """In blocks with it and without, and where what is read is written."""
    x = torch.randn(5000)
    x[[3, 4999]] = torch.tensor([1e30, -40000.0])
    y = torch.randn(5000)
    for function, args in ((weft.ops.sin, (x,)), (weft.ops.cos, (x,)), (weft.ops.tan, (x,)), (weft.ops.fmod, (x, y)),
                           (weft.ops.remainder, (x, y)), (weft.ops.floor_divide, (x, y))):  # fmt: skip
        assert ("reduction(| : rare)" in function.source(*args)) and ("if (rare)" in function.source(*args))
        want = function.py(*(a.double() for a in args)).float()
        torch.testing.assert_close(function(*args), want, rtol=4e-7, atol=1e-38)
        own = x.clone()
        torch.testing.assert_close(function(own, *args[1:], out=own), want, rtol=4e-7, atol=1e-38)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="flags of an x86")
def test_loops_over_them_are_vectorised(tmp_path: Path) -> None:
    """GCC says so of each, for a CPU with AVX2. Angles of any size it vectorises only where it takes gathers to be worth it."""
    rare = {f"{n}_near": n for n in (*RARE_OF_ONE, *RARE_OF_TWO)}
    special = [f"special::{n}" for n in ("ndtr", "erfinv", "i0e", "i1e", "i0", "i1")]
    names = [*(n for n in OF_ONE if n not in RARE_OF_ONE), *OF_TWO, "sigmoid", "gelu", *rare, *special]
    text = '#include "weft/host.hpp"\n#include "weft/special.cuh"\n'
    for name in names:
        arguments = "a[i], b[i]" if name in OF_TWO or rare.get(name) in RARE_OF_TWO else "a[i]"
        parameters = "const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y, int64_t n"
        text += f'\n#line {1 + names.index(name)} "loops"\n'
        if name in rare:
            loop = f"for (int64_t i = 0; i < n; ++i) y[i] = weft::{rare[name]}({arguments}, seen);"
            text += f'int {name}({parameters}) {{ int seen = 0; _Pragma("omp simd reduction(| : seen)") {loop} return seen; }}'
            continue
        loop = f"for (int64_t i = 0; i < n; ++i) y[i] = weft::{name}({arguments});"
        text += f'void {name.replace("::", "_")}({parameters}) {{ _Pragma("omp simd") {loop} }}'
    (tmp_path / "weft").symlink_to(RUNTIME / "device")
    (tmp_path / "loops.cpp").write_text(text)
    flags = [f for f in FLAGS.split() if f != "-march=native"] + ["-march=haswell", "-fopt-info-vec-optimized"]
    command = ["g++", *flags, f"-I{tmp_path}", "loops.cpp", "-o", "loops.so"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    done = {int(line.split(":")[1]) for line in told.stderr.splitlines() if line.startswith("loops:") and "vectorized" in line}
    assert [n for k, n in enumerate(names, 1) if k not in done] == []
