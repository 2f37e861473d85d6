"""What Python raises while it computes subscripts and bounds, and values that nothing uses: a call raises it too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.pytorch.simulated import simulate_call

T = torch.tensor


def of_rows(body: str, before: str = "") -> weft.Kernel:
    """A kernel of y, x [n], a [n] of int64, v [n] of floats, and an int d."""
    return weft.kernel(
        "import math\n"
        "def f(y, x, a, v, d: int):\n"
        "    used = x.shape[0] + a.shape[0] + v.shape[0]\n"
        f"    {before or 'total = 0'}\n"
        "    for i in range(y.shape[0]):\n" + "".join(f"        {line}\n" for line in body.split("\n"))
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
