"""What Python raises while it computes subscripts and bounds, and values that nothing uses: a call raises it too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.pytorch.simulated import simulate_call

pytestmark = pytest.mark.usefixtures("quickly_compiled")

T = torch.tensor


def of_rows(body: str, before: str = "", after: str = "") -> weft.Kernel:
    """A kernel of y, x [n], a [n] of int64, v [n] of floats, and an int d."""
    return weft.kernel(
        "import math\n"
        "def f(y, x, a, v, d: int):\n"
        "    used = x.shape[0] + a.shape[0] + v.shape[0]\n"
        f"    {before or 'total = 0'}\n"
        "    for i in range(y.shape[0]):\n" + "".join(f"        {line}\n" for line in body.split("\n"))
        + (f"    {after}\n" if after else "")
    )


def raised(function: Any, *args: Any) -> type[Exception] | None:
    try:
        function(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
    except Exception as error:
        return type(error)
    return None


def arguments(a: list[int] | None = None, v: list[float] | None = None, d: int = 1) -> list[Any]:
    x = torch.arange(1.0, 11.0)
    return [torch.zeros(3), x, T(a or [1, 2, 3]), T(v or [1.0, 2.0, 3.0]), d]


def trapped(kernel: weft.Kernel, args: list[Any]) -> bool:
    launches = simulate_call(kernel.program, args, "sm_90a", 0, "forward").launches
    return {f.kind for launch in launches for s in launch.simulations for f in s.findings} == {"trap"}


NAN, INFINITY = float("nan"), float("inf")
# What is computed of a row, and arguments for which Python raises on the way.
PLACES = {
    "divisor": ("y[i] = x[6 // int(a[i])]", {"a": [1, 0, 2]}),
    "modulus": ("y[i] = x[6 % int(a[i])]", {"a": [1, 0, 2]}),
    "under data": ("if v[i] > 0:\n    y[i] = x[6 % int(a[i])]", {"a": [1, 0, 2]}),
    "store": ("x[6 % int(a[i])] = i", {"a": [1, 0, 2]}),
    "named": ("k = 6 // int(a[i])\ny[i] = x[k]", {"a": [1, 0, 2]}),
    "merged": ("k = i\nif v[i] > 0:\n    k = 6 // int(a[i])\ny[i] = x[k]", {"a": [1, 0, 2]}),
    "nan": ("y[i] = x[int(v[i]) % 3]", {"v": [1.0, NAN, 2.0]}),
    "infinity": ("y[i] = x[max(min(int(v[i]), 2), 0)]", {"v": [1.0, INFINITY, 2.0]}),
    "shift": ("y[i] = x[(1 << int(a[i])) % 10]", {"a": [1, -1, 2]}),
    "bound": ("for k in range(6 // int(a[i])):\n    y[i] += x[k]", {"a": [1, 0, 2]}),
    "bound of nan": ("for k in range(int(v[i])):\n    y[i] += x[k]", {"v": [1.0, NAN, 2.0]}),
    "bound of infinity": ("for k in range(min(int(v[i]), 5)):\n    y[i] += x[k]", {"v": [1.0, INFINITY, 2.0]}),
}


@pytest.mark.parametrize("body, given", PLACES.values(), ids=PLACES)
def test_what_python_raises_in_subscripts_and_bounds(body: str, given: dict[str, Any]) -> None:
    kernel = of_rows(body)
    expected = raised(kernel.py, *arguments(**given))
    found = raised(kernel, *arguments(**given))
    assert expected is not None and found is not None and issubclass(found, expected)
    assert trapped(kernel, arguments(**given))
    report = kernel.check(*arguments())
    assert report.ok, report.text()


OVERFLOWS = {
    "product": ("y[i] = x[int(a[i]) * d * d % 10]", ""),
    "sum": ("y[i] = x[(i + d * 4194304 + d * 4194304) % 10]", ""),
    "named": ("k = int(a[i]) * d * d\ny[i] = x[k % 10]", ""),
    "alone": ("y[i] = x[int(a[i]) * d * d]", ""),
    "of the index": ("y[i] = x[i * d * d]", ""),
    "carried": ("k = (k * d * d + 1) % 10\ny[i] = x[k]", "k = 1"),
    "bound": ("for k in range(int(a[i]) * d * d % 10):\n    y[i] += x[k]", ""),
}


@pytest.mark.parametrize("body, before", OVERFLOWS.values(), ids=OVERFLOWS)
def test_what_leaves_64_bits_is_no_other_place(body: str, before: str) -> None:
    """2 ** 40 squared is 0 in 64 bits, which is inside; Python's ints go on, weft's do not."""
    kernel = of_rows(body, before)
    assert raised(kernel, *arguments(d=2**40)) in (weft.errors.NumberOverflow, weft.errors.OutOfRange)
    y, *rest = arguments()
    expected = torch.zeros(3)
    kernel.py(expected, *rest)
    kernel(y, *rest)
    torch.testing.assert_close(y, expected)


def test_places_that_the_call_knows_need_no_check() -> None:
    """Their rows stay tiles."""
    kernel = weft.kernel(
        "def f(y, x, d: int, width: int):\n"
        "    n, m = x.shape\n"
        "    for r in range(n):\n"
        "        s = 0.0\n"
        "        for i in range(m - 2 * d):\n"
        "            k = i + d\n"
        "            s += x[r, k + d]\n"
        "        y[r] = s\n"
    )
    source = kernel.source(torch.zeros(64), torch.rand(64, 512), 3, 8, arch="sm_80")
    assert "weft::reduce<" in source and "__trap" not in source


FEW = [1.0, 9.0, 1.0]
GRID = "g = torch.zeros(5, 4)"
# Values that nothing uses, and arguments for which Python raises while it computes them.
UNUSED = {
    "division": ("t = 1 // int(a[i])\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "logarithm": ("t = math.log(v[i])\ny[i] = x[i]", {"v": [1.0, 0.0, 2.0]}),
    "nan": ("t = int(v[i])\ny[i] = x[i]", {"v": [1.0, NAN, 2.0]}),
    "subscript": ("t = x[a[i]] + 1\ny[i] = x[i]", {"a": [1, 20, 2]}),
    "view": ("t = x[a[i]]\ny[i] = x[i]", {"a": [1, 20, 2]}),
    "columns": ("for k in range(a[i]):\n    t = x[k] * 2\ny[i] = x[i]", {"a": [1, 20, 2]}),
    "overwritten": ("t = 1 // int(a[i])\nt = 2.0\ny[i] = t", {"a": [1, 0, 2]}),
    "branch": ("if v[i] > 0.5:\n    t = 1 // int(a[i])\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "condition": ("if 1 // int(a[i]) > 5:\n    pass\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "choice": ("t = 1 // int(a[i]) if v[i] > 0.5 else 0\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "conjunction": ("t = 1.0 if x[i] > 0 and 1 // int(a[i]) > 5 else 2.0\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "carried": ("t = 1\nfor k in range(3):\n    t = t + 1 // int(a[k])\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "range": ("for k in range(1 // int(a[i])):\n    pass\ny[i] = x[i]", {"a": [1, 0, 2]}),
    "item": ("t = (x[i], 1 // int(a[i]))\ny[i] = t[0]", {"a": [1, 0, 2]}),
    "argument": ("y[i] = (lambda p, q: p)(x[i], 1 // int(a[i]))", {"a": [1, 0, 2]}),
    "last of a loop": ("y[i] = s\ns = x[a[i]]", {"a": [1, 2, 20], "before": "s = 0.0"}),
    "division last of a loop": ("y[i] = s\ns = 6 // int(a[i])", {"a": [1, 2, 0], "before": "s = 0"}),
    "all but the last": ("s = x[a[i]]", {"a": [20, 1, 2], "before": "s = 0.0", "after": "y[0] = s"}),
    "stored again by the next": ("y[0] = x[a[i]]", {"a": [20, 1, 2]}),
    "division stored again": ("y[0] = 6 // int(a[i])", {"a": [0, 1, 2]}),
    "stored again at once": ("y[0] = x[a[i]]\ny[0] = 2.0", {"a": [20, 1, 2]}),
    "stored again under data": ("if v[i] > 0.5:\n    y[0] = x[a[i]]", {"a": [20, 1, 2]}),
    "row stored again": ("for k in range(3):\n    y[k] = x[a[i]]", {"a": [20, 1, 2]}),
    "logarithm stored again": ("y[0] = math.log(v[i])", {"v": [0.0, 1.0, 2.0]}),
    "number too large stored again": ("y[0] = float(v[i]) * float(v[i])", {"v": [1e30, 1.0, 2.0]}),
    "never read": ("z[0] = 6 // int(a[i])\ny[i] = x[i]", {"a": [1, 0, 2], "before": "z = torch.zeros(1)"}),
    "never read, stored again": ("z[0] = x[a[i]]\nz[0] = x[i]\ny[i] = x[i]", {"a": [20, 1, 2], "before": "z = torch.zeros(1)"}),
    "row": ("t = g[a[i]]\ny[i] = x[i]", {"a": [20, 1, 2], "before": GRID}),
    "row in part": ("t = g[a[i], 1:]\ny[i] = x[i]", {"a": [20, 1, 2], "before": GRID}),
    "row of a part": ("t = g[1:][a[i]]\ny[i] = x[i]", {"a": [4, 1, 2], "before": GRID}),
    "column": ("t = g[:, a[i]]\ny[i] = t.shape[0]", {"a": [20, 1, 2], "before": GRID}),
    "row that the call knows": ("t = g[i + d]\ny[i] = x[i]", {"d": 7, "before": GRID}),
    "row under data": ("if v[i] > 5:\n    t = g[i + 9]\ny[i] = x[i]", {"v": FEW, "before": GRID}),
    "row read under data": ("t = g[a[i]]\nif v[i] > 5:\n    y[i] = t[0]", {"a": [20, 1, 2], "before": GRID}),
    "row that no loop reads": (
        "t = g[a[i]]\nfor k in range(d):\n    y[i] = t[k]",
        {"a": [20, 1, 2], "d": 0, "before": GRID},
    ),
    "row of nothing": (
        "t = g[a[i]]\nfor k in range(g.shape[1]):\n    y[i] = t[k]",
        {"a": [20, 1, 2], "d": 0, "before": "g = torch.zeros(5, d)"},
    ),
    "rows zipped": ("for p, q in zip(g[a[i]], x[:0]):\n    y[i] = p", {"a": [20, 1, 2], "before": GRID}),
    "cancelled": ("k = int(x[a[i]])\ny[i] = x[k - k]", {"a": [20, 1, 2]}),
    "multiplied by 0": ("k = 6 // int(a[i])\ny[i] = x[0 * k]", {"a": [1, 0, 2]}),
    "multiplied by 0 at once": ("y[i] = x[0 * int(v[i])]", {"v": [1.0, NAN, 2.0]}),
    "compared with itself": ("k = 6 // int(a[i])\ny[i] = 1.0 if k < k + 1 else x[i]", {"a": [1, 0, 2]}),
    "choice of equals": ("y[i] = 1.0 if x[a[i]] > 0 else 1.0", {"a": [20, 1, 2]}),
    "choice by the index": ("y[i] = 1.0 if 6 // (i + d) > 0 else 1.0", {"d": -1}),
    "and what never holds": ("y[i] = 1.0 if x[a[i]] > 0 and i < 0 else 2.0", {"a": [20, 1, 2]}),
    "or what always holds": ("y[i] = 1.0 if 6 // int(a[i]) > 0 or i <= i else 2.0", {"a": [1, 0, 2]}),
    "statement": ("x[a[i]].item()\ny[i] = x[i]", {"a": [20, 1, 2]}),
    "under data": ("t = x[i + 9] if v[i] > 5 else 0.0\ny[i] = x[i]", {"v": FEW}),
    "under data, stored again": ("y[0] = x[i + 9] if v[i] > 5 else 0.0", {"v": FEW}),
    "under data, last of a loop": ("y[i] = s\ns = x[i + 9] if v[i] > 5 else 0.0", {"v": FEW, "before": "s = 0.0"}),
    "branch under data": ("if v[i] > 5:\n    t = x[i + 9]\ny[i] = x[i]", {"v": FEW}),
    "store under data": ("if v[i] > 5:\n    z[i + 2] = 1.0\ny[i] = x[i]", {"v": FEW, "before": "z = torch.zeros(3)"}),
    "read from a copy": ("if v[i] > 5:\n    y[i] = y[i + 2]", {"v": FEW}),
    "where a size is 0": (
        "t = e[0] if v[i] > 5 else 0.0\ny[i] = x[i]",
        {"v": FEW, "before": "e = torch.zeros(x.shape[0] - 10)"},
    ),
}


@pytest.mark.parametrize("body, given", UNUSED.values(), ids=UNUSED)
def test_what_python_raises_in_values_that_nothing_uses(body: str, given: dict[str, Any]) -> None:
    given = dict(given)
    kernel = of_rows(body, given.pop("before", ""), given.pop("after", ""))
    expected = raised(kernel.py, *arguments(**given))
    found = raised(kernel, *arguments(**given))
    assert expected is not None and found is not None and issubclass(found, expected)
    if "a" in given:  # floats that tensors hold stop no GPU
        assert trapped(kernel, arguments(**given))
    y, fine = torch.zeros(3), arguments()
    kernel.py(y, *fine[1:])
    kernel(*fine)
    torch.testing.assert_close(fine[0], y)


def test_unused_values_cost_a_gpu_nothing_where_they_do_not_stop_it() -> None:
    kernel = weft.kernel(
        "import math\n"
        "def f(x, z):\n"
        "    n, m = x.shape\n"
        "    y = torch.zeros(n)\n"
        "    for i in range(n):\n"
        "        s = 0.0\n"
        "        for j in range(m):\n"
        "            t = math.log(x[i, j])\n"
        "            s += x[i, j] // z[j]\n"
        "        t = int(s)\n"
        "        y[i] = s\n"
        "    return y\n"
    )
    source = kernel.source("float32[64,512]", "float32[512]", arch="sm_80")
    assert "weft::reduce<" in source and "unused" not in source and "is_nan" not in source


def test_unused_values_have_no_gradient() -> None:
    kernel = weft.kernel(
        "import math\n"
        "def f(x, a):\n"
        "    y = torch.zeros_like(x)\n"
        "    for i in range(x.shape[0]):\n"
        "        t = 6 // int(a[i])\n"
        "        u = x[a[i]] * math.sqrt(a[i])\n"
        "        y[i] = x[i] * x[i]\n"
        "    return y\n"
    )
    found = []
    for function in (kernel.py, kernel):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        function(x, T([1, 2, 1])).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)


def test_what_python_does_not_compute_is_no_fault() -> None:
    kernel = of_rows("t = 1 // int(a[i]) if a[i] != 0 else 0\nu = a[i] != 0 and 6 // int(a[i]) > 1\n"
                     "if a[i] > 0:\n    for k in range(int(a[i])):\n        t = x[k]\ny[i] = x[i]")  # fmt: skip
    y, *rest = arguments(a=[0, 10, 0])
    kernel(y, *rest)
    torch.testing.assert_close(y, rest[0][:3])


TOLD = {
    "k = int(a[i])\nk = k - 2\ny[i] = 6 // k": "k != 0 does not hold at i = 1",
    "for l in range(2):\n    y[i] = x[a[i] * l + 8 * l]": "it is x[10] at i = 1, l = 1, and x is [10]",
    "y[i] = x[i + 9] if a[i] == 2 else 0": "it is x[10] at i = 1, and x is [10]",
    "t = g[:, a[i] + 2]\ny[i] = x[i]": "it is g[:, 4] at i = 1",
}


@pytest.mark.parametrize("body", TOLD)
def test_errors_tell_the_iteration_and_the_names_of_the_user(body: str) -> None:
    with pytest.raises(weft.errors.WeftError) as caught:
        of_rows(body, GRID)(*arguments(a=[1, 2, 1]))
    assert caught.value.evidence[-1] == TOLD[body]


STORED = {
    "constant": "y[i] = 1e300",
    "scalar": "y[i] = s",
    "item": "y[i] = x[i].item()",
    "product": "y[i] = float(x[i]) * 2",
    "exponential": "y[i] = math.exp(x[i] / 1e298)",
    "slice": "y[:] = s",
    "under data": "if x[i] > 1:\n            y[i] = s",
}


def of_stores(body: str, dtype: str = "torch.float32") -> weft.Kernel:
    return weft.kernel(
        "import math\n"
        "def f(x, s: float):\n"
        f"    n, y = x.shape[0], torch.zeros(3, dtype={dtype})\n"
        "    for i in range(3):\n"
        f"        {body}\n"
        "    return y\n"
    )


@pytest.mark.parametrize("body", STORED.values(), ids=STORED)
def test_floats_that_no_float32_holds_are_not_stored(body: str) -> None:
    """As PyTorch refuses them; an element of float64 is rounded to infinity, and so is any float stored into a half type."""
    kernel, large = of_stores(body), T([1.0, 1e300, 2.0], dtype=torch.float64)
    for function in (kernel.py, kernel):
        with pytest.raises(RuntimeError):
            function(large, 1e300)
    x = T([1.0, 2.0, 3.0], dtype=torch.float64)
    for fine in () if body == STORED["constant"] else (3e38, INFINITY, -INFINITY, NAN):
        torch.testing.assert_close(kernel(x, fine), kernel.py(x, fine), rtol=0, atol=0, equal_nan=True)
    for other in ("y[i] = x[i]", "y[i] = x[i] * 2", "y[i] = y[i] + s", "y[i] = y[i] * 1e300"):
        torch.testing.assert_close(of_stores(other)(large, 1e300), of_stores(other).py(large, 1e300), equal_nan=True)
    half = of_stores("y[i] = s", "torch.float16")
    torch.testing.assert_close(half(x, 70000.0), half.py(x, 70000.0))


# Numbers that torch.where and clamp convert to the type of what they meet, used or not, and those that they do not.
TAKEN = {
    "torch.where(x[i] > 1, x[i], s)": (torch.float32, torch.float64, torch.float16, torch.int32),
    "torch.where(x[i] > 9, x[i], s)": (torch.float32, torch.int64),
    "torch.where(x[i] > 9, s, 2.0)": (torch.float32, torch.float16, torch.int8),
    "torch.where(x[i] > 1, x[i], 300)": (torch.int8, torch.uint8, torch.int16, torch.float16),
    "torch.where(x[i] > 1, x[i], -200)": (torch.int8, torch.uint8, torch.int64),
    "torch.where(x[i] > 1, i, 400)": (torch.uint8, torch.float32),
    "torch.where(x > 1, x, s)[i]": (torch.float32, torch.bfloat16),
    "x[i].clamp(max=s)": (torch.float32, torch.float64, torch.float16, torch.bfloat16),
    "x[i].clamp(-1, 70000.0)": (torch.float16, torch.bfloat16, torch.float32),
    "x[i].clamp(min=i * 200)": (torch.int8, torch.uint8, torch.int16),
    "x[i].clamp(min=-1)": (torch.uint8, torch.int8),
}


@pytest.mark.parametrize("expression, dtype", [(e, d) for e, dtypes in TAKEN.items() for d in dtypes], ids=str)
@pytest.mark.parametrize("number", [1e300, 2.0, INFINITY])
def test_numbers_that_functions_of_torch_convert(expression: str, dtype: torch.dtype, number: float) -> None:
    kernel = weft.kernel(
        "def f(x, s: float):\n"
        "    y = torch.zeros(x.shape, dtype=torch.float64)\n"
        "    for i in range(x.shape[0]):\n"
        f"        y[i] = {expression}\n"
        "    return y\n"
    )
    x = torch.tensor([1, 2, 3]).to(dtype)
    expected = raised(kernel.py, x, number)
    found = raised(kernel, x, number)
    assert (expected is None) == (found is None) and (expected is None or issubclass(found or int, expected))
    if expected is None:
        torch.testing.assert_close(kernel(x, number), kernel.py(x, number))


@pytest.mark.parametrize("numbers", ["0.1, 2.0", "1, 2", "True, False", "1, 2.5", "True, 3"])
@pytest.mark.parametrize("part", ["", "[0]"])
def test_a_choice_of_two_numbers_is_a_tensor(numbers: str, part: str) -> None:
    kernel = weft.kernel(f"def f(x):\n    return torch.where(x{part} > 1, {numbers})\n")
    x = T([1.0, 2.0])
    torch.testing.assert_close(kernel(x), kernel.py(x), rtol=0, atol=0)


# What stands before a loop, which runs as an axis around it or in order.
BEFORE = {
    "an element": "t = x[a[i]]\n        for j in range(m):\n            y[i, j] = t",
    "a division": "t = 1 // (int(a[i]) - 9)\n        for j in range(m):\n            y[i, j] = t",
    "a sum": "s = x[a[i]] * 1\n        for j in range(m):\n            s += x[j]\n            y[i, j] = s",
    "a branch": "t = 0.0\n        if x[i] > 0:\n            t = x[a[i]]\n        for j in range(m):\n            y[i, j] = t",
    "a condition": "if x[a[i]] > 0:\n            for j in range(m):\n                y[i, j] = 1.0",
    "around two": "t = x[a[i]]\n        for j in range(m):\n            for k in range(i):\n                y[i, j] += t * k",
    "after it": "for j in range(m):\n            y[i, j] = x[i]\n        t = x[a[i]]",
    "two": "t = x[a[i]]\n        for j in range(m):\n            y[i, j] = t\n        y[i, :] = 1",
}


@pytest.mark.parametrize("body", BEFORE.values(), ids=BEFORE)
def test_what_stands_before_a_loop_of_no_iterations_fails_as_in_python(body: str) -> None:
    kernel = weft.kernel(
        "def f(x, a, m: int):\n"
        "    n = x.shape[0]\n"
        "    y = torch.zeros(n, m)\n"
        "    for i in range(n):\n"
        f"        {body}\n"
        "    return y\n"
    )
    x = T([1.0, 2.0, 3.0])
    for m in (0, 2, 0):
        torch.testing.assert_close(kernel(x, T([2, 0, 1]), m), kernel.py(x, T([2, 0, 1]), m))
        expected = raised(kernel.py, x, T([0, 9, 1]), m)
        found = raised(kernel, x, T([0, 9, 1]), m)
        assert expected is not None and found is not None and issubclass(found, expected)


# What is computed in a branch and used on one of its paths alone.
CHOSEN = {
    "a name": "t = x[a[i]]\n            if b[i] > 1:\n                t = 1.0\n            y[i] = t",
    "one of two stores": "t = x[a[i]]\n            y[i] = t if b[i] > 1 else 1.0\n        else:\n            y[i] = 3.0",
    "stored over": "y[0] = x[a[i]]\n            if b[i] > 1:\n                y[0] = 1.0",
    "stored over surely": "y[0] = x[a[i]]\n            y[0] = b[i]",
    "known to the call": "y[0] = x[i + k]\n            if b[i] > 1:\n                y[0] = 1.0",
    "known to the call, stored over": "y[0] = x[i + k]\n            y[0] = b[i]",
}


@pytest.mark.parametrize("body", CHOSEN.values(), ids=CHOSEN)
def test_what_a_branch_uses_on_one_path_fails_on_all(body: str) -> None:
    kernel = weft.kernel(
        "def f(x, a, b, k: int):\n"
        "    y = torch.zeros(3)\n"
        "    for i in range(3):\n"
        "        if b[i] > 0:\n"
        f"            {body}\n"
        "    return y\n"
    )
    x, inside, outside = T([1.0, 2.0, 3.0]), T([2, 0, 1]), T([0, 9, 1])
    for b in (T([1.0, 1.0, 1.0]), T([2.0, 2.0, 2.0]), T([0.0, 0.0, 0.0]), T([0.0, 2.0, 1.0])):
        torch.testing.assert_close(kernel(x, inside, b, 0), kernel.py(x, inside, b, 0))
        for a, k in ((outside, 0), (inside, 2)):
            expected = raised(kernel.py, x, a, b, k)
            found = raised(kernel, x, a, b, k)
            assert (expected is None) == (found is None) and (expected is None or issubclass(found or int, expected))


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("most", [0, 21, 40000])
def test_what_does_not_fail_is_told_by_any_number_of_threads(threads: int, most: int) -> None:
    """Also by those that run no iteration: what they tell is that nothing has failed."""

    @weft.kernel
    def doubled(w, y, q: int):
        r = torch.zeros(y.shape[0], w.shape[0])
        for i in range(0, y.shape[0], 2):
            for j in range(w.shape[0]):
                v = max(q, w[j])
                r[i, j] = v * 2 - 7 + y[int(w[j]) % 3]
        return r

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        w, y = torch.arange(most, dtype=torch.int16) % 100, torch.arange(3.0)
        taken = torch.clamp(w, 2) * 2 - 7 + y[w.long() % 3]
        torch.testing.assert_close(doubled(w, y, 2), torch.stack((taken, taken * 0, taken)))
    finally:
        torch.set_num_threads(before)


# Operators that compute what does not decide their value.
WHOLE = [
    "torch.logical_and(b[i], c[a[i]])",
    "torch.logical_or(c[i], c[a[i]])",
    "b[i] * c[a[i]]",
    "c[i] + c[a[i]]",
    "torch.maximum(c[i], c[a[i]])",
    "max(c[i], c[a[i]])",
    "torch.logical_and(b[i], 6 // (a[i] - 9))",
    "torch.where(b[i], c[a[i]], c[i])",
    "torch.where(b[i], c[i + k], c[i])",
    "torch.where(b, c[a[i]], c)[i]",
    "(b & c[a[i]])[i]",
]


@pytest.mark.parametrize("expression", WHOLE)
def test_operators_of_torch_compute_all_of_their_operands(expression: str) -> None:
    kernel = weft.kernel(
        "def f(a, b, c, k: int):\n"
        "    y = torch.zeros(3)\n"
        "    for i in range(3):\n"
        f"        y[i] = {expression}\n"
        "    return y\n"
    )
    b = T([False, False, False])
    torch.testing.assert_close(kernel(T([2, 0, 1]), b, ~b, 0), kernel.py(T([2, 0, 1]), b, ~b, 0))
    expected, found = raised(kernel.py, T([2, 9, 1]), b, ~b, 1), raised(kernel, T([2, 9, 1]), b, ~b, 1)
    assert expected is not None and found is not None
    assert issubclass(found, expected) or issubclass(found, ZeroDivisionError)


@pytest.mark.parametrize("numbers", ["True, True", "True, False", "1, True", "2.5, True", "3, 2"])
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_functions_of_torch_make_tensors_of_two_numbers(name: str, numbers: str) -> None:
    kernel = weft.kernel(f"def f(x):\n    t = torch.{name}({numbers})\n    return t, x * t\n")
    for made, want in zip(kernel(T([1.0, 2.0])), kernel.py(T([1.0, 2.0])), strict=True):
        torch.testing.assert_close(made, want, rtol=0, atol=0)


def test_what_python_raises_beside_a_fold_in_a_value_that_nothing_uses() -> None:
    kernel = weft.kernel(
        "def f(x, a):\n"
        "    y = torch.zeros(1)\n"
        "    s = 0.0\n"
        "    for j in range(x.shape[0]):\n"
        "        t = 1 // int(a[j])\n"
        "        s += x[j]\n"
        "    y[0] = s\n"
        "    return y\n"
    )
    assert trapped(kernel, [torch.ones(5000), torch.zeros(5000, dtype=torch.int64)])
    assert kernel.check(torch.ones(5000), torch.ones(5000, dtype=torch.int64)).ok
