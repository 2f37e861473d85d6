"""Kernels on the CPU: operands whose memory is consecutive along different axes, what all iterations of an axis load alike, and
reductions of everything.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.errors import LaunchError, OutOfRange
from weft.runtime import host

pytestmark = pytest.mark.usefixtures("optimised")

SHAPES = [(1, 1), (3, 5), (16, 16), (17, 40), (70, 33), (1, 50), (50, 1), (0, 4)]
DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int16]


@weft.kernel
def turned(x, z):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + z[j, i]
    return y


@weft.kernel
def turned_away(x, z):
    y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[j, i] = x[i, j] - z[i, j]
    return y


@weft.kernel
def backwards(x, z):
    n, m = x.shape
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            y[i, j] = x[i, j] * 2 + z[m - 1 - j, n - 1 - i]
    return y


@weft.kernel
def in_place(x, z):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if z[j, i] > 0:
                x[i, j] += z[j, i]


@weft.kernel
def through_the_middle(x, z):
    a, b, c = x.shape
    y = torch.empty_like(x)
    for i in range(a):
        for j in range(b):
            for k in range(c):
                y[i, j, k] = x[i, j, k] + z[k, j, i] + z[k, 0, i]
    return y


def random(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 8).to(dtype)


def again(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def same(kernel: Any, *args: Any) -> None:
    """The kernel gives the bits that the plain Python gives."""
    own, plain = ([again(a) if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    found, want = kernel(*own), kernel.py(*plain)
    assert found is want is None or torch.equal(found, want)
    assert all(torch.equal(a, b) for a, b in zip(own, plain, strict=True) if isinstance(a, torch.Tensor))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tiles_of_all_sizes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, z = random(shape, dtype), random(shape[::-1], dtype, 1)
    for kernel in (turned, backwards, in_place):
        same(kernel, x, z)
    same(turned_away, x, z.T.contiguous())


@pytest.mark.parametrize("shape", [(2, 3, 4), (20, 3, 37), (1, 1, 40)], ids=str)
def test_axes_between(shape: tuple[int, int, int]) -> None:
    same(through_the_middle, random(shape, torch.float32), random(shape[::-1], torch.float32, 1))


def test_strides_decide() -> None:
    x = random((40, 30), torch.float32)
    same(turned, x, random((40, 30), torch.float32).T)  # nothing is turned
    same(turned, random((30, 40), torch.float32).T, random((30, 40), torch.float32))  # all is
    same(turned, x, random((60, 80), torch.float32)[::2, ::2])


@weft.kernel
def rows_of(w, places):
    y = torch.empty(len(places), w.shape[1], dtype=w.dtype)
    for i in range(len(places)):
        for k in range(w.shape[1]):
            y[i, k] = w[places[i], k]
    return y


@weft.kernel
def scaled_rows(w, places, scale):
    y = torch.zeros(len(places), w.shape[1], dtype=w.dtype)
    for i in range(len(places)):
        for k in range(w.shape[1]):
            if places[i] != 7:
                y[i, k] = w[places[i], k] + scale[places[i]] - scale[0]
    return y


@pytest.mark.parametrize("width", [0, 1, 5, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_data_choose(width: int, dtype: torch.dtype) -> None:
    w, places = random((9, width), dtype), torch.randint(-9, 9, (21,), generator=torch.Generator().manual_seed(0))
    same(rows_of, w, places)
    if dtype != torch.bfloat16:  # whose sums the plain Python rounds one by one
        same(scaled_rows, w, places, random((9,), dtype, 1))


@weft.kernel
def weighed_rows(w, places, x):
    y = torch.zeros(len(places), x.shape[1], dtype=x.dtype)
    for i in range(len(places)):
        place = places[i]  # of all lanes, though a loop inside of theirs reads it
        for k in range(x.shape[1]):
            total = 0.0
            for j in range(w.shape[1]):
                total += w[place, j] * x[j, k]
            y[i, k] = total
    return y


def test_what_all_lanes_have_alike_is_one_value() -> None:
    w, places = random((9, 5), torch.float64), torch.tensor([8, -9, 3])
    same(weighed_rows, w, places, random((5, 21), torch.float64, 1))
    assert "int64_t place[" not in weighed_rows.source(w, places, random((5, 21), torch.float64), arch="cpu")
    with pytest.raises(OutOfRange, match="leaves w"):
        weighed_rows(w, torch.tensor([9]), random((5, 21), torch.float64))


@weft.kernel
def added_at(y, places, x):
    for i in range(len(places)):
        for k in range(y.shape[1]):
            y[places[i], k] += x[i, k]


@weft.kernel
def moved_on(x, times: int):
    for _ in range(times):
        for i in range(1, x.shape[0]):
            for k in range(x.shape[1]):
                x[i, k] = x[i - 1, k]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool, torch.float16], ids=str)
def test_rows_that_are_met_again(dtype: torch.dtype) -> None:
    y, places = random((9, 70), dtype), torch.randint(-9, 9, (40,), generator=torch.Generator().manual_seed(0))
    if dtype not in (torch.bool, torch.float16, torch.bfloat16):
        same(added_at, y, places, random((40, 70), dtype, 1))
    for x in (y, y[:, ::2], y.T, y.T[::2]):
        same(moved_on, x, 2)


@weft.kernel
def arrays_of_their_own(x, p):
    y = torch.zeros(len(x), dtype=x.dtype)
    for i in range(len(x)):
        never_stored = torch.zeros(2, dtype=x.dtype)
        stored = torch.zeros(4, dtype=x.dtype)
        stored[p[i]] = x[i]
        y[i] = x[i] + never_stored[0] + stored[1] + stored[p[0]]
    return y


def test_arrays_of_an_iteration_are_its_own() -> None:
    places = torch.randint(0, 4, (70,), generator=torch.Generator().manual_seed(0))
    same(arrays_of_their_own, random((70,), torch.float32), places)


@pytest.mark.parametrize("bad", [9, -10])
def test_rows_outside_are_named(bad: int) -> None:
    w, places = random((9, 5), torch.float32), torch.tensor([3, bad])
    with pytest.raises(OutOfRange, match="leaves w"):
        rows_of(w, places)
    assert rows_of(w[:, :0], places).shape == (2, 0)  # no iteration reads there
    same(scaled_rows, w[:8].repeat(2, 1)[:9], torch.tensor([7, 3]), random((7,), torch.float32))  # nor does one here


def test_the_texts(golden: Callable[[str, str], None]) -> None:
    golden("cpp/turned.cpp", turned.source("float32[40,50]", "float32[50,40]", arch="cpu"))
    golden("cpp/rows_of.cpp", rows_of.source("bfloat16[40,50]", "int64[20]", arch="cpu"))


@weft.kernel
def of_everything(x, z):
    total, count, high, low, some = 0.25, 0, -9.0, 9.0, False
    y = torch.empty(5, dtype=torch.float64)
    doubled = torch.empty_like(x)
    for i in range(len(x) - 1, -1, -2):
        total += x[i] * z[i]
        count += 3
        high = max(high, x[i])
        low = min(low, z[i])
        some = some or x[i] > 30
        doubled[i] = x[i] * 2
    y[0] = total
    y[1] = count
    y[2] = high
    y[3] = low
    y[4] = some
    return y


@weft.kernel
def of_whole_numbers(x):
    total, both, either, odd = 5, -1, 0, 0
    y = torch.empty(4, dtype=torch.int64)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += int(x[i, j])
            both = both & int(x[i, j])
            either = either | int(x[i, j])
            odd = odd ^ int(x[i, j])
    y[0] = total
    y[1] = both
    y[2] = either
    y[3] = odd
    return y


@weft.kernel
def in_eight_bits(x):
    y = torch.zeros(1, dtype=torch.int8)
    for i in range(len(x)):
        y[0] += x[i]
    return y


@pytest.mark.parametrize("n", [0, 1, 2, 7, 70_001])
def test_everything_is_reduced_in_parts(n: int) -> None:
    x, z = random((n,), torch.float32), random((n,), torch.float32, 1)
    found, want = of_everything(x, z), of_everything.py(x, z)
    assert torch.allclose(found, want, rtol=1e-4) and torch.equal(found[1:], want[1:])
    assert torch.equal(found, of_everything(x, z))  # the same bits again
    whole = random((n // 4, 4), torch.int16)
    same(of_whole_numbers, whole)
    bytes_ = whole[:, 0].to(torch.int8)
    assert torch.equal(in_eight_bits(bytes_), bytes_.sum().to(torch.int8)[None])


@weft.kernel
def rows_if_there(w, places, z):
    y = torch.zeros(len(places), w.shape[1], dtype=w.dtype)
    for i in range(len(places)):
        for k in range(w.shape[1]):
            if places[i] < w.shape[0]:
                z[i, k] = 1.0
                value = w[places[i], k]
            else:
                value = z[i, k]
            y[i, k] = value
    return y


def test_what_a_branch_reads_is_looked_at_where_it_is_taken() -> None:
    same(rows_if_there, random((9, 5), torch.float32), torch.tensor([3, 50, 8]), torch.zeros(3, 5))


VECTORISED = {
    "two sums of ints under a condition": "y[i] = max(q, k[i]) * 2 - 7",
    "a gather": "y[i] = x[m[i]] if k[i] > 0 else x[m[i] - 1]",
    "a sum of gathers": "y[0] += x[m[i]] if k[i] > 0 else x[m[i] - 1]",
    "a row of gathers": "for j in range(len(x)):\n            y[j] = x[m[j]] + x[m[i]]",
}


@pytest.mark.parametrize("body", VECTORISED.values(), ids=VECTORISED)
def test_an_iteration_of_a_vectorised_loop_tells_once_what_failed(body: str) -> None:
    """GCC 13 makes of a reduction's variable that is changed twice, under conditions, what no iteration gave it."""
    head = "def f(x, k, m, q: int):\n    y = torch.zeros(len(x))\n    for i in range(len(x)):\n        "
    kernel = weft.kernel(f"{head}{body}\n    return y\n")
    x, k = torch.arange(70.0), (torch.arange(70) % 7 - 3).to(torch.int16)
    args = x, k, torch.arange(70).flip(0), 3
    torch.testing.assert_close(kernel(*args), kernel.py(*args))
    found = re.findall(r"#pragma omp simd.*\n( *)for .*\n((?:\1 .*\n)+)\1}", kernel.source(*args))
    checked = [loop for _, loop in found if re.search("weft::(holds|inside)", loop)]
    assert checked
    for loop in checked:
        told = [line.strip() for line in loop.splitlines() if re.search(r"\boutside\b", line)]
        assert told == ["uint64_t fault = outside;", "outside = fault;"]
    with pytest.raises((IndexError, OverflowError)):
        kernel(x, k, args[2] + 69, 1 << 62)


@pytest.mark.parametrize("code", [7_000, -1, 1 << 62])
def test_machine_code_that_tells_of_no_fault_is_named(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compiler has made it that was wrong."""
    kernel = weft.kernel("def f(x, k):\n    y = x.clone()\n    for i in range(len(x)):\n        y[i] = x[k[i]]\n    return y\n")
    machine_code = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int)(lambda slots, threads: code)
    monkeypatch.setattr(host, "load_together", lambda texts, name: [host.HostFunction(e, machine_code) for _, e in texts])
    with pytest.raises(LaunchError, match="CXX"):
        kernel(torch.ones(3), torch.tensor([0, 1, 2]))


@weft.kernel
def largest_kept(x):
    n = x.shape[1]
    y = torch.empty((8, n, n), dtype=x.dtype)
    for i in range(8):
        for j in range(n):
            for k in range(n):
                largest = torch.full((), -torch.inf, dtype=x.dtype)
                largest = torch.maximum(largest, x[i, j, k])
                y[i, j, k] = x[i, j, k] - largest
    return y


def test_arrays_of_an_iteration_are_its_own_where_the_innermost_loop_is_another() -> None:
    same(largest_kept, random((8, 1, 1), torch.float64))  # all neighbours are along the first axis
