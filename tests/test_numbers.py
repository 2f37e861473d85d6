"""Numbers as Python and PyTorch compute them: Python's own, elements of tensors, and names that are one or the other."""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from weft.errors import DivisionByZero, MathDomainError, NumberOverflow, StoreOverflow, TypeMismatch, WeftError
from weft.runtime import nvrtc

pytestmark = pytest.mark.usefixtures("quickly_compiled")

T = torch.tensor


def program(text: str) -> Callable[..., Any]:
    """The function `f` that a text defines."""
    label = f"<program {len(linecache.cache)}>"
    linecache.cache[label] = (len(text), None, text.splitlines(True), label)
    scope: dict[str, Any] = {"torch": torch, "math": math, "__name__": "programs"}
    exec(compile(text, label, "exec"), scope)
    found: Callable[..., Any] = scope["f"]
    return found


def _drawn(n: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(n))


def of_each(*expressions: str, before: str = "pass") -> Callable[..., Any]:
    """A kernel of the vectors x and z and the numbers k and a: column j of its result is the expression j, float64."""
    lines = [f"        y[i, {j}] = {e}" for j, e in enumerate(expressions)]
    head = [
        "def f(x: torch.Tensor, z: torch.Tensor, k: int, a: float):",
        f"    y = torch.zeros(x.shape[0], {len(expressions)}, dtype=torch.float64)",
        "    for i in range(x.shape[0]):",
        *(f"        {line}" for line in before.splitlines()),
    ]
    return program("\n".join([*head, *lines, "    return y", ""]))


def agree(function: Callable[..., Any], *args: Any) -> None:
    """The kernel gives what its Python gives, to the last bit."""
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    torch.testing.assert_close(weft.kernel(function)(*own), function(*args), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float32], ids=str)
def test_and_and_or_are_values(dtype: torch.dtype) -> None:
    """Each value with its own kind: a Python int does not wrap, an element does, whichever decides."""
    expressions = ["x[i] and z[i]", "x[i] or z[i]", "x[i] and z[i] or 7", "not (x[i] or z[i])", "(x[i] or 2.5) * 3"]
    expressions += ["x[i] and 2", "(z[i] and x[i] > 1) or 5", "x[i] or (z[i] or 9)", "(i or 4) - 1", "x[i] or z[i] or i"]
    expressions += ["(k or 0.5) // 2", "(k or a) / 3", "x[i] * (k or 0.5)", "(x[i] and k) + 1"]
    if dtype != torch.bool:
        expressions += ["(i and z[i]) - 1", "(x[i] or i) - 6", "(k and x[i] or k) - 3"]
    x, z = T([0, 1, 0, 5]).to(dtype), T([0, 0, 3, 2]).to(dtype)
    for k in (0, 3):
        agree(of_each(*expressions), x, z, k, 0.25)


def test_a_choice_keeps_the_kind_of_each_side() -> None:
    before = """
v = x[i] if x[i] > 3 else 0
w = v if i > 1 else 0.5
s = x[i + 1] if i < 3 else -1
t = 0
if x[i] > 3:
    t = x[i]
    t = t + 255
    u = z[i]
else:
    u = k
""".strip()
    expressions = ["v - 1", "(w * v - 1) * 7", "s - 1", "(t - 1 if t else t) - 1", "u - 5", "-u", "(u + v) * 3 - 9", "u // 2"]
    expressions += ["~v", "v << 7", "min(v, 0) - 1", "u == -1", "v > -1", "int(v) - 1", "float(v) - 1", "abs(v - 1)", "v / 2"]
    x, z = T([0, 4, 3, 9], dtype=torch.uint8), T([0, 0, 3, 200], dtype=torch.uint8)
    agree(of_each(*expressions, before=before), x, z, 3, 0.25)


CARRIED = {
    "a sum": "s = s + x[i]",
    "a sum read before": "y[i, 1] = s - 1\n        s = s + x[i]",
    "on a branch": "if x[i] > 3:\n            s = x[i]\n        elif x[i] == 2:\n            s = -1",
    "largest": "s = max(s, x[i])",
    "smallest": "s = min(s, x[i]) - 1",
    "polynomial": "s = s * 2 + x[i] - 3",
    "half of them": "s = s + x[i] if i % 2 else s + 1",
}


@pytest.mark.parametrize("start", [0, -1, 300])
@pytest.mark.parametrize("update", CARRIED.values(), ids=CARRIED)
def test_a_carried_name_has_the_kind_of_its_iteration(update: str, start: int) -> None:
    text = f"""
def f(x):
    y = torch.zeros(x.shape[0] + 1, 2, dtype=torch.int64)
    s = {start}
    for i in range(x.shape[0]):
        {update}
        y[i, 0] = s - 5
    y[x.shape[0], 0] = s - 7
    return y
"""
    function = program(text)
    for values in ([2, 4, 2, 0], [200, 100, 7], []):
        agree(function, T(values, dtype=torch.uint8))


def test_sums_from_a_python_zero_stay_reductions() -> None:
    def total(x):
        n, m = x.shape
        y = torch.zeros(n, 2, dtype=torch.int64)
        for r in range(n):
            s = 0
            largest = 0
            for c in range(m):
                s = s + x[r, c]
                largest = max(largest, x[r, c])
            y[r, 0] = s
            y[r, 1] = largest
        return y

    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.arange(200).reshape(2, 100).to(dtype)
        agree(total, x)
        assert re.search(r"c +reduction", str(weft.kernel(total).explain(x)))


def test_a_kind_that_iterations_decide_is_known_after_the_loop() -> None:
    def largest(x):
        y = torch.zeros(1, dtype=torch.int64)
        m = 0
        for i in range(x.shape[0]):
            m = max(m, x[i])
        y[0] = m - 5
        return y

    for values in ([0], [1, 7, 3], []):
        agree(largest, T(values, dtype=torch.uint8))
        agree(largest, T(values, dtype=torch.int64))


# ---------------------------------------------------------------- what Python raises

BINOMIALS = """
def f(x: torch.Tensor, n: int):
    y = torch.zeros(n + 1, dtype=torch.float64)
    c = 1
    for k in range(n):
        y[k] = float(c)
        c = c * (n - k) // (k + 1)
    return y
"""


def one_value(value: str, before: str = "pass") -> Callable[..., Any]:
    """A kernel that stores a value computed from i, k, a and the integer vectors x and z into each element of a vector."""
    return program(f"""
def f(x: torch.Tensor, z: torch.Tensor, k: int, a: float):
    y = torch.zeros(x.shape[0], dtype=torch.float64)
    {before}
    for i in range(x.shape[0]):
        y[i] = {value}
    return y
""")


def same_outcome(function: Callable[..., Any], *args: Any) -> type[BaseException] | None:
    """The kernel gives what its Python gives, or raises an error of the same kind. What the Python raised."""
    try:
        wanted = function(*args)
    except (ArithmeticError, ValueError) as error:
        kind = next(k for k in (ZeroDivisionError, OverflowError, ValueError) if isinstance(error, k))
    except RuntimeError as error:  # PyTorch, of integer elements
        assert "ZeroDivisionError" in str(error)
        kind = ZeroDivisionError
    else:
        torch.testing.assert_close(weft.kernel(function)(*args), wanted, rtol=0, atol=0, equal_nan=True)
        return None
    kernel = weft.kernel(function)
    for _ in range(2):  # the second call takes the quick way
        with pytest.raises(kind) as caught:
            kernel(*args)
        assert isinstance(caught.value, WeftError)
        assert caught.value.location is not None
    return kind


@pytest.mark.parametrize(
    ("value", "raised"),
    [
        ("i // k", ZeroDivisionError),
        ("i % k", ZeroDivisionError),
        ("x[i] // k", ZeroDivisionError),
        ("x[i] % z[i]", ZeroDivisionError),
        ("10 // i", ZeroDivisionError),
        ("i / k", ZeroDivisionError),
        ("1.0 / a", ZeroDivisionError),
        ("i % a", ZeroDivisionError),
        ("math.log(k)", ValueError),
        ("math.sqrt(i - 1)", ValueError),
        ("math.acos(a + 2.0)", ValueError),
        ("i // k if k else 3", None),
        ("k and i // k", None),
        ("i // (i + 1)", None),
        ("x[i] / k", None),
        ("float(x[i]) / 4", None),
    ],
)
def test_division_by_zero_and_domains(value: str, raised: type[BaseException] | None) -> None:
    x, z = T([5, 7, -3]), T([2, 0, 1])
    assert same_outcome(one_value(value), x, z, 0, 0.0) == raised
    assert same_outcome(one_value(value), x[:0], z[:0], 0, 0.0) is None, "Python does not come there"


def test_what_raises_before_the_loops() -> None:
    function = one_value("s", before="s = 1.0 / a + 3 // k")
    x = T([5, 7])
    assert same_outcome(function, x, x, 2, 0.5) is None
    assert same_outcome(function, x, x, 0, 0.5) is ZeroDivisionError
    assert same_outcome(function, x[:0], x[:0], 2, 0.0) is ZeroDivisionError
    kernel = weft.kernel(function)
    kernel(x, x, 2, 0.5)
    with pytest.raises(ZeroDivisionError):
        kernel(x, x, 2, 0.0)


def test_ints_of_more_than_64_bits_are_an_error() -> None:
    kernel = weft.kernel(program(BINOMIALS))
    for n in (0, 5, 30, 60):
        torch.testing.assert_close(kernel(torch.ones(1), n), kernel.py(torch.ones(1), n), rtol=0, atol=0)
    with pytest.raises(OverflowError, match="leaves 64 bits") as caught:
        kernel(torch.ones(1), 66)
    assert caught.value.location.line == 7
    squares = weft.kernel(one_value("float(int(x[i]) * int(x[i]))"))
    small = T([3, 2**31])
    torch.testing.assert_close(squares(small, small, 0, 0.0), squares.py(small, small, 0, 0.0))
    with pytest.raises(OverflowError):
        squares(T([2**32]), T([0]), 0, 0.0)


def test_a_gpu_stops_where_integers_fail() -> None:
    kernel = weft.kernel(program(BINOMIALS))
    source = kernel.source(torch.ones(1), 5, arch="sm_80")
    assert "weft::holds(weft::fits_mul(" in source
    assert "__trap()" in source
    assert nvrtc.compile_cubin(source, "sm_80", name="f.cu").binary
    assert kernel.check(torch.ones(1), 5).ok


def test_ordinary_integers_are_not_checked() -> None:
    def count(x):
        n, m = x.shape
        y = torch.zeros(n, 4, dtype=torch.int64)
        steps = 0
        for i in range(n):
            positive = 0
            places = 0
            last = -1
            for j in range(m):
                if x[i, j] > 0:
                    positive += 1
                    places = places + j
                    last = j * m + i
                steps += 1
            y[i, 0] = positive
            y[i, 1] = places // m
            y[i, 2] = last
            y[i, 3] = steps
        return y

    x = torch.randn(4, 50)
    agree(count, x)
    kernel = weft.kernel(count)
    assert "holds" not in kernel.source(x)
    assert re.search(r"j +reduction", str(kernel.explain(x)))


def test_a_constant_that_an_integer_type_does_not_hold() -> None:
    def store(x):
        for i in range(x.shape[0]):
            x[i] = 300

    with pytest.raises(TypeMismatch, match="does not fit into int8"):
        weft.kernel(store)(torch.zeros(2, dtype=torch.int8))
    agree(program("def f(x):\n    y = x.clone()\n    y[0] = -255\n    return y\n"), torch.zeros(1, dtype=torch.uint8))


@pytest.mark.parametrize("number", [-1.0, -0.5, -0.0, 0.5, 255.0, 255.5, -1, -255])
def test_negative_ints_wrap_in_bytes_and_floats_do_not(number: float) -> None:
    constant = program(f"def f(x):\n    y = x.clone()\n    y[0] = {number}\n    return y\n")
    given = program("def f(x, a: float):\n    y = x.clone()\n    y[0] = a\n    return y\n")
    of_a_path = program("def f(x, a: float):\n    y = x.clone()\n    y[0] = x[0] if x[1] else a\n    return y\n")
    x = torch.tensor([3, 0], dtype=torch.uint8)
    if isinstance(number, int) or 0.0 <= number <= 255.0:
        agree(constant, x)
        agree(given, x, float(abs(number)))
    else:
        for function, args in ((constant, (x,)), (given, (x, number)), (of_a_path, (x, number))):
            with pytest.raises(RuntimeError, match="without overflow"):
                function(*args)
            with pytest.raises(WeftError, match="does not fit into uint8"):
                weft.kernel(function)(*args)


def test_shifts_by_negative_amounts() -> None:
    agree(of_each("x[i] >> z[i]", "x[i] << z[i]"), T([-5, 5, -5, 5, 1]), T([-1, -1, 70, 64, 63]), 0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_number_chosen_beside_elements_is_itself_in_double_precision(dtype: torch.dtype) -> None:
    f = program("""
def f(x, c, a: float):
    r = torch.zeros(len(x), 8, dtype=torch.float64)
    for i in range(len(x)):
        r[i, 0] = max(math.sqrt(abs(x[i])), max(c[i], 0.5))
        v = min(x[i], 0.3)
        r[i, 1] = v
        if x[i] > 0:
            w = 0.7
        else:
            w = c[i]
        r[i, 2] = w
        r[i, 3] = 0.1 if x[i] < 0 else c[i]
        r[i, 4] = max(x[i], a)
        r[i, 5] = float(max(c[i], 0.2)) * 3
        r[i, 6] = c[i] and 0.1
        r[i, 7] = max(x[i], 16777217)
    return r
""")
    x, c = _drawn(20).to(dtype), _drawn(21)[1:].to(dtype)
    c[3] = 0
    assert torch.equal(weft.kernel(f)(x, c, 0.3), f(x, c, 0.3))


def test_in_the_precision_of_elements_nothing_is_chosen_twice() -> None:
    f = program("""
def f(x):
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = max(x[i], 0.1) * 2
    return y
""")
    assert "double" not in weft.kernel(f).source("float32[1000]", arch="sm_90a")


@pytest.mark.parametrize("spelled", ["max", "min"])
def test_a_choice_of_elements_is_compared_as_the_element_that_it_is(spelled: str) -> None:
    """A number is compared with an int32 as one, though both fit into the int64 of a choice between int32 and int64."""
    f = program(f"""
def f(p, w, n):
    r = torch.zeros(len(p), dtype=torch.int64)
    for i in range(len(p)):
        r[i] = {spelled}(min(p[i], w[i]), int(n[i]))
    return r
""")
    p, w = T([2, 2, -3, -3], dtype=torch.int32), T([431883473399, 1, 431883473399, -4])
    for numbers in ([431883473399, -4, 7, 3], [1 << 31, (1 << 31) + 1, (1 << 32) + 5, -(1 << 32)]):
        assert weft.kernel(f)(p, w, T(numbers)).tolist() == f(p, w, T(numbers)).tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.uint8, torch.int8], ids=str)
def test_comparisons_with_numbers_that_the_dtype_does_not_hold(dtype: torch.dtype) -> None:
    expressions = [f"x[i] {sign} {number}" for sign in ("==", "<", ">=") for number in ("0.1", "2049", "-1", "261", "a")]
    expressions += ["0.1 == x[i]", "a > x[i]", "0.05 < x[i] <= 0.1"]
    x = T([0.1, 2048.0, 5.0, -1.0, 1.0] if dtype.is_floating_point else [0, 127, 5, 1, 100]).to(dtype)
    agree(of_each(*expressions), x, x, 0, 0.1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
def test_a_python_int_that_does_not_fit_is_not_stored(dtype: torch.dtype) -> None:
    """Where an element would wrap."""
    text = """
def f(x, k: int):
    s = 1
    for i in range(x.shape[0]):
        v = x[i] if i % 2 else s
        x[i] = v
        s = s * k
    return x
"""
    function = program(text)
    for k, count in ((1, 6), (-3, 4), (-3, 7), (7, 6), (300, 3), (1 << 20, 3)):
        x = torch.arange(100, 100 + count).to(dtype)
        try:
            function(x.clone(), k)
        except RuntimeError as error:
            assert "without overflow" in str(error)
            with pytest.raises(NumberOverflow, match=f"does not fit into {str(dtype)[6:]}"):
                weft.kernel(function)(x, k)
        else:
            agree(function, x, k)


def test_ints_that_fit_are_stored_without_a_question() -> None:
    def first_largest(x):
        y = torch.zeros(x.shape[0], dtype=torch.int32)
        for r in range(x.shape[0]):
            best, at = -1.0, 0
            for c in range(x.shape[1]):
                if x[r, c] > best:
                    best = x[r, c]
                    at = c
            y[r] = at
        return y

    kernel = weft.kernel(first_largest)
    agree(first_largest, torch.rand(5, 7))
    assert "holds(" not in kernel.source(torch.rand(5, 7), arch="cpu")
    assert "threads a row" in str(kernel.explain(torch.rand(5, 1000)))


# ---------------------------------------------------------------- many expressions to a kernel

WHOLE = ["k * 100", "i * 100", "-i * 200", "a * 100", "i * k", "x[i] * 100", "x[i] if i else k", "int(x[i]) * 1000"]
WHOLE += ["(k if i else x[i]) * 100", "min(max(k * i, -100), 100)", "round(a)"]
INTS = ["k ** 2", "k ** 9", "1 << k", "k << 3", "-k", "abs(k)", "k >> i", "k << i", "i >> k", "k ** -1", "int(x[i]) ** 5"]
INTS += ["(x[i] if i else k) // z[i]", "(x[i] if i else k) * k", "int(x[i]) << int(z[i])", "-int(x[i])", "float(k) ** i"]
INTS += ["(k if i else 1) * k", "(-2) ** 5 * k", "int(x[i]) >> int(z[i])", "abs(int(x[i]) - 1)", "k & 255 << 2"]
INTS += ["2 ** i", "k ** i", "2 ** (i + 60)", "2 ** int(z[i])"]
FLOATS = ["int(x[i])", "round(float(x[i]))", "math.floor(x[i])", "1.0 / float(x[i])", "1.0 // x[i].item()", "a % float(x[i])"]
FLOATS += [f"math.{f}(x[i])" for f in ("exp", "exp2", "expm1", "sin", "tan", "sinh", "cosh", "sqrt", "log", "log1p", "acosh")]
FLOATS += [f"math.{f}(x[i])" for f in ("asin", "atanh", "ceil", "tanh", "atan")]
FLOATS += [f"math.{f}({v})" for f in ("fmod", "pow", "hypot") for v in ("x[i], a", "a, x[i]")] + ["math.log(x[i], a)"]
FLOATS += ["float(x[i]) ** 2", "float(x[i]) ** -1", "math.exp(-abs(x[i]))", "1.0 / (1.0 + math.exp(-abs(x[i])))"]
FLOATS += ["math.sqrt(a)", "math.exp(a)", "int(a)", "1.0 / math.exp(float(x[i]))"]
TENSORS = ["x[i] / 0", "1 / x[i]", "x[i] // 0", "torch.exp(x[i])", "torch.log(x[i])", "torch.sqrt(x[i])", "x[i] ** -1"]


def one_of_many(expressions: list[str], dtype: str) -> Callable[..., Any]:
    """A kernel that stores the expression of the number `which`, and computes no other."""
    lines = "".join(f"        if which == {j}:\n            y[i] = {e}\n" for j, e in enumerate(expressions))
    return program(f"""
def f(x: torch.Tensor, z: torch.Tensor, k: int, a: float, which: int):
    y = torch.zeros(x.shape[0], dtype=torch.{dtype})
    for i in range(x.shape[0]):
{lines}
    return y
""")


def of_one_kind(raised: BaseException, own: BaseException | None) -> bool:
    """Whether a kernel's error is the one that its Python raised."""
    if "ZeroDivisionError" in str(raised):  # PyTorch's, of elements
        return isinstance(own, ZeroDivisionError)
    if "unpacking long long" in str(raised) or isinstance(raised, MemoryError):  # a Python int of more than 64 bits
        return isinstance(own, OverflowError)
    return isinstance(own, WeftError) and any(isinstance(own, k) for k in KINDS if isinstance(raised, k))


KINDS = (ZeroDivisionError, OverflowError, ValueError, RuntimeError)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return error


def same_outcomes(expressions: list[str], calls: list[tuple[Any, ...]], dtype: str = "float64") -> set[type]:
    """Every expression gives at every call what its Python gives, or raises what it raises. The kinds that were raised."""
    function = one_of_many(expressions, dtype)
    kernel = weft.kernel(function)
    found = set()
    for which, expression in enumerate(expressions):
        for call in calls:
            wanted, own = outcome(function, *call, which), outcome(kernel, *call, which)
            what = f"{expression} of {[str(v) for v in call]}: {wanted!r}, {own!r}"
            if isinstance(wanted, Exception):
                assert of_one_kind(wanted, own), what
                assert own.location is not None
                found.add(type(own))
            elif isinstance(own, NumberOverflow):  # a Python int that goes on beyond 64 bits
                assert "64 bits" in str(own), what
            else:
                assert isinstance(own, torch.Tensor), what
                torch.testing.assert_close(own, wanted, rtol=1e-14, atol=0, equal_nan=True, msg=lambda m, w=what: f"{w}\n{m}")
    return found


def test_a_power_of_ints_that_is_a_float_in_python_is_refused_where_it_is_one() -> None:
    kernel = weft.kernel(program("def f(x, bits: int):\n    return x / (2 ** (bits - 1) - 1)\n"))
    assert torch.equal(kernel(T([7]), 4), kernel.py(T([7]), 4))
    with pytest.raises(MathDomainError, match="below 0, which is a float in Python") as caught:
        kernel(T([7]), 0)
    assert "bits - 1 >= 0 does not hold, bits is 0" in str(caught.value) and caught.value.location is not None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float32"])
def test_numbers_that_integer_tensors_do_not_hold(dtype: str) -> None:
    x, z = T([5, 7, -3]), T([2, 0, 1])
    numbers = [(1, 1.0), (3, 3.5), (-3, -3.0), (2**40, 1e30)]
    raised = same_outcomes(WHOLE, [(x, z, k, a) for k, a in numbers], dtype)
    assert (StoreOverflow in raised) == (dtype in ("int8", "uint8", "int64"))


def test_ints_that_grow_beyond_64_bits_and_shifts_that_python_refuses() -> None:
    numbers = (0, 1, -1, 3, 2**31, 2**62, -(2**63), 63, 64, 2**63 - 1)
    calls = [(x, T([2, 0, 1]), k, 1.0) for x in (T([5, 7, -3]), T([5, -(2**63), 1])) for k in numbers]
    assert same_outcomes(INTS, calls) == {NumberOverflow, DivisionByZero, MathDomainError}


def test_floats_of_tensors_raise_what_python_raises_and_torch_functions_nothing() -> None:
    values = [0.5, -1.0, math.inf, math.nan, 1000.0, 0.0, 1e300]
    numbers = (1.0, 0.0, -0.5, 2.0, math.inf, math.nan, 1000.0)
    calls = [(T([v], dtype=torch.float64), T([1]), 1, a) for a in numbers for v in values]
    assert same_outcomes(FLOATS, calls) == {NumberOverflow, DivisionByZero, MathDomainError}
    assert same_outcomes(TENSORS, calls) == set()


def test_messages_tell_the_numbers() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        weft.kernel(one_value("i // k"))(T([1]), T([1]), 0, 0.0)
    assert caught.value.evidence == ("k != 0 does not hold, k is 0",)
    with pytest.raises(OverflowError) as caught:
        weft.kernel(one_of_many(["1 << k"], "float64"))(T([1]), T([1]), 64, 0.0, 0)
    assert "k is 64" in str(caught.value)


def test_what_a_gpu_checks() -> None:
    """Python ints stop it; floats are IEEE's there and elements are divided as PyTorch divides them: rows stay tiles."""

    def source(value: str, dtype: torch.dtype) -> str:
        function = program("""
def f(x: torch.Tensor, z: torch.Tensor, k: int):
    y = torch.zeros_like(x)
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            y[r, i] = VALUE
    return y
""".replace("VALUE", value))
        text = weft.kernel(function).source(torch.ones(64, 512, dtype=dtype), torch.ones(64, 512, dtype=dtype), 3, arch="sm_80")
        assert nvrtc.compile_cubin(text, "sm_80", name="f.cu").binary
        return text

    for value in ("x[r, i] // k", "x[r, i] // z[r, i]", "x[r, i] % 7", "min(max(int(x[r, i]), -5), 5)"):
        assert "__trap" not in source(value, torch.int32), value
    for value in ("math.exp(x[r, i])", "1.0 / float(x[r, i])", "math.log(x[r, i])"):
        assert "__trap" not in source(value, torch.float32), value
    assert "__trap" in source("int(x[r, i]) * k", torch.int8)


def test_known_signs_need_no_check() -> None:
    """A softmax of Python floats stays the scan that it is."""

    def normaliser(x):
        y = torch.zeros(1, dtype=torch.float64)
        m = -math.inf
        total = 0.0
        for i in range(x.shape[0]):
            new = max(m, x[i])
            total = total * math.exp(m - new) + math.exp(x[i] - new)
            m = new
        y[0] = total
        return y

    x = torch.randn(20, dtype=torch.float64)
    kernel = weft.kernel(normaliser)
    torch.testing.assert_close(kernel(x), normaliser(x))
    assert "holds" not in kernel.source(x)
    assert re.search(r"i +(scan|reduction)", str(kernel.explain(x)))
