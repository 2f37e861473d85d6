"""Values that are a Python number on one path and an element of a tensor on another: what is computed with them is what the
plain Python computes, of each as what it is.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import weft
from tests import fuzz_reference
from tests.carried_kinds import ARRAYS, LENGTHS, Program, Programs, arguments
from tests.fuzz_batch import Batch
from tests.fuzz_programs import compiled
from tests.test_expressions import _FLAGS
from weft.errors import DivisionByZero, NumberOverflow, StoreOverflow, WeftError
from weft.runtime import host

_PROGRAMS, _TOGETHER, _DRAWS = 48, 48, 4 * len(LENGTHS)
_AT_THE_CALL = (ArithmeticError, ValueError, IndexError, RuntimeError)


@dataclass
class Outcome:
    """told: what is wrong, "" where nothing is. judged: how many draws were compared."""

    told: str = ""
    refusal: WeftError | None = None
    judged: int = 0


def check(program: Program) -> Outcome:
    kernel = weft.kernel(compiled(program.source, f"<carried {program.seed}>"))
    out = Outcome()
    for draw in range(_DRAWS):
        args = arguments(program, draw)
        raised: Exception | None = None
        want: tuple[torch.Tensor, ...] = ()
        try:
            want = fuzz_reference.run(program, args)[:2]  # type: ignore[arg-type]
        except Exception as error:
            raised = error
        if raised is not None and not of_values(raised):
            continue  # no program
        try:
            found = kernel(*fuzz_reference.duplicate(args))
        except WeftError as error:
            if raised is not None or (isinstance(error, NumberOverflow) and leaves_64_bits(program, args)):
                out.judged += raised is not None and isinstance(error, _AT_THE_CALL)
                continue
            if isinstance(error, _AT_THE_CALL):
                return Outcome(f"raises {type(error).__name__}: {error}; the Python gives {want} of {args}")
            out.refusal = error
            return out
        except Exception as error:
            return Outcome(f"{type(error).__name__}: {error} of {args}")
        if raised is not None:
            return Outcome(f"gives {found}, the Python raises {type(raised).__name__}: {raised} of {args}")
        for mine, theirs in zip(found, want, strict=True):
            if not torch.allclose(mine.double(), theirs.double(), rtol=1e-12, atol=0, equal_nan=True):
                return Outcome(f"gives {mine}, the Python {theirs} of {args}")
        out.judged += 1
    return out


def of_values(error: Exception) -> bool:
    """Whether an error of the plain Python is one about values, and not about types."""
    if isinstance(error, RuntimeError):
        return "ZeroDivisionError" in str(error) or "without overflow" in str(error)
    return isinstance(error, _AT_THE_CALL)


class _Traced(ast.NodeTransformer):
    """`seen(...)` around all that is computed."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call):
            return ast.copy_location(ast.Call(ast.Name("seen", ast.Load()), [node], []), node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = ast.Name(node.target.id, ast.Load())
            return ast.Assign([node.target], ast.Call(ast.Name("seen", ast.Load()), [ast.BinOp(name, node.op, node.value)], []))
        return node


def leaves_64_bits(program: Program, args: list[Any]) -> bool:
    """Whether an int of the plain Python does, which weft refuses then."""
    large: list[int] = []

    def seen(value: Any) -> Any:
        if type(value) is int and not -(2**63) <= value < 2**63:
            large.append(value)
        return value

    source = ast.unparse(ast.fix_missing_locations(_Traced().visit(ast.parse(program.source))))
    try:
        compiled(source, f"<traced {program.seed}>", {"seen": seen})(*fuzz_reference.duplicate(args))
    except Exception:
        return True
    return bool(large)


CARRIED = {
    "compared with a narrower element": """
s = 0
for i in range(n):
    if i1[i] <= s:
        s = s + i4[i]
    y[i] = s
""",
    "compared with an element before it grows": """
s = 200
for i in range(n):
    y[i] = i1[i] < s
    s = s + i4[i]
""",
    "an integer, then a float": """
s = u1[0]
for i in range(n):
    y[i] = torch.true_divide(s, 3)  # PyTorch's own sqrt of integers is not rounded right on every CPU
    s = f4[i]
""",
    "an element, then a wider one": """
s = u1[0]
for i in range(n):
    y[i] = torch.true_divide(s, 3) + torch.floor(s) // 2 + torch.sign(s)
    s = f4[i]
""",
    "a float, then an int": """
s = 0.5
for i in range(n):
    y[i] = s / 2 + (s == 0) + (s > 0.25)
    s = 3
""",
    "a bool element, then an int": """
s = b1[0]
for i in range(n):
    y[i] = ~s
    s = u1[i] + 0
""",
    "converted to the wider of its dtypes": """
s = u1[0]
for i in range(n):
    y[i] = s.to(torch.int32) - 9
    s = i4[i]
""",
    "kept where a loop in it does not run": """
s = 300
for i in range(n):
    for j in range(i - 1):
        s = i1[j] + 0
    y[i] = (s - 100) * 2
""",
    "used after the loop": """
s = 250
for i in range(n):
    if i4[i] > 3:
        s = u1[i]
    elif i4[i] == 2:
        s = s + 1
y[n] = s - 255
y[0] = s >= i1[0]
""",
    "the larger of two bools": """
for i in range(n):
    y[i] = (u1[i] > 3).item() if (u1[i] > 3).item() > (k > i4[i]) else k > i4[i]
    y[n] = max(k > 3, i4[i] > k) + (False if i else i1[i] < 2)
""",
    "a remainder that only one path divides": """
s = k > 9
for i in range(n):
    s = s + i4[i]
if n > 0:
    y[0] = torch.fmod(s, s | 1)
""",
    "divided by what was chosen before": """
for i in range(n):
    t = k if i == 0 else i1[i] if i1[i] % 2 else i2[i] | 1
    y[i] = (i2[i] > 3) > (3 // t)
    z = (i1[i] if i1[i] > 3 else 3) > (3 // t)
""",
    "divided where it is not 0": """
for i in range(n):
    v = i4[i] | 1 if i4[i] | 1 else 0
    y[i] = k // v
""",
    "a power of an element that another path does not read": """
for i in range(n):
    v = (i4[i + 2] & 15) if i < n - 1 else 3
    y[i] = v ** 2
""",
}


def kernel_of(body: str, y: str = "torch.float64") -> tuple[Any, list[str]]:
    """A kernel of vectors, of n + 1 elements each, and of the ints k and n, that fills y; and which vectors it takes."""
    used = [name for name in ARRAYS if f"{name}[" in body]
    head = f"def program({''.join(f'{name}: torch.Tensor, ' for name in used)}k: int, n: int):"
    lines = [f"y = torch.zeros(n + 1, dtype={y})", *body.strip().splitlines(), "return y, y"]
    source = "\n    ".join((head, *lines)) + "\n"
    return weft.kernel(compiled(source, f"<carried {hash(source)}>")), used


def given(used: list[str], n: int, draw: int = 0) -> list[Any]:
    return [*arguments(Program("", tuple(used), draw), 0, n), 7, n]


@pytest.mark.parametrize("body", CARRIED.values(), ids=CARRIED)
def test_each_value_is_computed_with_as_what_it_is(body: str) -> None:
    kernel, used = kernel_of(body)
    for n in (0, 1, 4):
        for draw in range(8):
            args = given(used, n, draw)
            torch.testing.assert_close(kernel(*args), kernel.py(*args), rtol=0, atol=0, equal_nan=True)


def test_a_carried_number_becomes_an_element_of_a_wider_type() -> None:
    kernel, _ = kernel_of(CARRIED["compared with a narrower element"])
    e, w = torch.tensor([0, 100, 5, 0], dtype=torch.int8), torch.tensor([200, 3, 4, 0], dtype=torch.int32)
    assert kernel(e, w, 7, 3)[0].tolist() == [200, 203, 207, 0]


RAISED = {
    "a number that does not fit": ("s = 300\nfor i in range(n):\n    y[i] = s\n    s = i4[i] + 0", StoreOverflow),
    "a number of a branch that does not fit": ("for i in range(n):\n    y[i] = i4[i] if i else 300", StoreOverflow),
    "a quotient of numbers": ("s = 0\nfor i in range(n):\n    y[i] = 1 / s\n    s = i4[i] + 0", DivisionByZero),
    "a quotient of an int or a float": ("s = 0\nfor i in range(n - 3):\n    s += 0.5\ny[0] = 1 / s", DivisionByZero),
    "a quotient of a branch": ("for i in range(n):\n    y[i] = 1.5 // (i4[i] if i else 0)", DivisionByZero),
    "a product": ("s = k << 40\nfor i in range(n):\n    y[i] = s * s > 0\n    s = i8[i] + 0", NumberOverflow),
    "a constant product": ("s = 1 << 40\nfor i in range(n):\n    y[i] = s * s > 0\n    s = i8[i] + 0", NumberOverflow),
}


@pytest.mark.parametrize(("body", "error"), RAISED.values(), ids=RAISED)
def test_numbers_raise_what_elements_do_not(body: str, error: type[Exception]) -> None:
    kernel, used = kernel_of(body, "torch.int8")
    args = given(used, 3)
    if error is not NumberOverflow:  # Python's ints have no width
        with pytest.raises((RuntimeError, ZeroDivisionError)):
            kernel.py(*args)
    with pytest.raises(error):
        kernel(*args)
    if "range(n):" in body:
        kernel(*args[:-1], 0)


@pytest.mark.parametrize("asked", ["torch.tensor(v)", "torch.zeros(3, dtype=v.dtype)[i]", "torch.full((3,), v)[i]", "i1 * v"])
def test_a_dtype_that_the_path_decides_is_refused(asked: str) -> None:
    other = "i2[i]" if "dtype" in asked else "0.5"
    kernel, used = kernel_of(f"for i in range(n):\n    v = i4[i] if i1[i] else {other}\n    y[i] = {asked}")
    with pytest.raises(WeftError, match="dtype depends on the path"):
        kernel(*given(used, 3))


def test_narrow_sums_wrap_in_subscripts_too() -> None:
    body = "s = i1[0]\nfor i in range(n):\n    y[i] = f8[s + 100]\n    s = i1[i] + 0\n    y[i] += i4[s - s]"
    kernel, _ = kernel_of(body)
    args = (torch.tensor([100, 2, 120, 0], dtype=torch.int8), torch.arange(4).int(), torch.arange(150.0).double(), 7, 3)
    torch.testing.assert_close(kernel(*args), kernel.py(*args), rtol=0, atol=0)


both = lambda a, b: (max(a, b), min(a, b) - 1)  # noqa: E731


def test_a_function_is_called_with_what_iterations_decide() -> None:
    def program(x):
        s = 1
        y = torch.zeros_like(x)
        for i in range(len(x)):
            s = min(both(s, 7)[1], s) + both(s, s)[0]
            s = x[i] + 0 if x[i] > both(2, s)[0] else s
            y[i] = s
        return y

    for dtype in (torch.uint8, torch.int32):
        x = torch.tensor([3, 200, 5, 7], dtype=dtype)
        assert weft.kernel(program)(x).tolist() == program(x).tolist()


def test_what_a_nested_choice_may_be_is_computed_on_its_own_path_alone() -> None:
    """s is an int, an int8 or an int32; where it is an int8 and r[0] is 0, nothing is divided by it."""

    @weft.kernel
    def program(r, b):
        y = torch.zeros(2, dtype=torch.int64)
        s = 1
        for i in range(len(b)):
            r[0] = ~b[i] | s
            s = s + (s // r[0] if r[0] != 0 else b[i])
        y[0] = s
        return y

    r, b = torch.zeros(1, dtype=torch.int8), torch.tensor([3, -1, -1, 5, -1, 2], dtype=torch.int32)
    assert program(r.clone(), b).tolist() == program.py(r.clone(), b).tolist()


def sums(terms: int) -> str:
    """A sum of numbers that become elements one after another."""
    names = [f"h{k}" for k in range(terms)]
    total = " + ".join(f"{(-1) ** k * (k + 2)} * {name}" for k, name in enumerate(names))
    lines = [f"    {name} = {k}\n" for k, name in enumerate(names)]
    moved = f"        {', '.join(names)} = {', '.join(names[1:])}, {total} + w[i]\n"
    loop = f"    for i in range(len(w)):\n{moved}        y[i] = h0\n"
    return f"def f(w):\n    y = w.clone()\n{''.join(lines)}{loop}    return y\n"


def test_a_sum_of_many_values_of_two_kinds_is_as_long_as_its_terms() -> None:
    """Each is a number or an element, and their sum is no more than that: 333 KB of C++, once, for five terms."""
    w = torch.arange(12)
    five, ten = (weft.kernel(sums(terms)) for terms in (5, 10))
    for kernel in (five, ten):
        assert kernel(w).tolist() == kernel.py(w).tolist()
    assert len(ten.source(w)) < 4 * len(five.source(w)) < 40_000


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        count = metafunc.config.getoption("--programs") or _PROGRAMS
        metafunc.parametrize("first", range(0, count, _PROGRAMS))


def outcomes(seeds: range) -> dict[int, Outcome]:
    found: dict[int, Outcome] = {}

    def look(seed: int) -> None:
        try:
            found[seed] = check(Programs(seed).program())
        except Exception as error:
            found[seed] = Outcome(f"{type(error).__name__}: {error}")

    batch = Batch()
    with batch.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch.map(look, seeds, _TOGETHER)
    return found


def test_random_programs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all dtypes, through loops and branches, and used after them."""
    monkeypatch.setattr(host, "FLAGS", _FLAGS)
    monkeypatch.setattr(host.build, "__defaults__", (_FLAGS,))
    found = outcomes(range(first, first + _PROGRAMS))
    told = [f"{seed}:\n{Programs(seed).program().source}\n    {o.told}" for seed, o in found.items() if o.told]
    assert not told, "\n".join(told)
    assert sum(bool(o.judged) for o in found.values()) > _PROGRAMS / 2
