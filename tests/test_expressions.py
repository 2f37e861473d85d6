"""Random scalar expressions of every kind of number: the value, its dtype and what is raised are the plain Python's."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import weft
from tests.expressions import ARRAYS, LARGEST, NUMBERS, PARAMETERS, Expressions, Node, Value, arguments, names
from tests.fuzz_batch import Batch
from tests.fuzz_programs import compiled
from weft.errors import NumberOverflow, UnsupportedSyntax, WeftError
from weft.runtime import host

POINTS = 40
_EXPRESSIONS, _TOGETHER = 96, 48  # in the ordinary suite; of one translation unit
_RAISED = (ZeroDivisionError, OverflowError, ValueError)


def kernel(expression: Node, label: str, stored: bool = False) -> tuple[Any, list[str]]:
    """A kernel that returns the value of an expression, or stores it, and the arguments that it takes."""
    text = expression.text
    used = [n for n in PARAMETERS if n in ("i", "j") or (n in NUMBERS and n in words(expression)) or f"{n}[" in text]
    of = {**dict.fromkeys(ARRAYS, "torch.Tensor"), **{n: t.__name__ for n, t in NUMBERS.items()}, "i": "int", "j": "int"}
    signature = ", ".join(f"{n}: {of[n]}" for n in used)
    body = f"    return {text}\n"
    if stored:
        body = f"    y = torch.zeros(1, dtype=torch.float64)\n    y[0] = {text}\n    return y\n"
    return weft.kernel(compiled(f"def program({signature}):\n{body}", label)), used


def words(expression: Node) -> set[str]:
    return {n.template for n in expression.walk() if n.function is None}


@dataclass
class Outcome:
    told: str = ""
    refusal: WeftError | None = None
    judged: int = 0


def check(expression: Node, seed: int, points: int = POINTS, stored: bool = False) -> Outcome:
    """What is wrong with a kernel of this expression, in words; "" where nothing is. What is of different kinds is stored."""
    made, used = kernel(expression, f"<expression {seed} {stored}>", stored)
    out = Outcome()
    for k in range(points):
        args = arguments(1000 * seed + k)
        given = names(args)
        want: Value | None = None
        error: Exception | None = None
        large: list[int] = []
        try:
            want = expression.value(given, large)
        except Exception as raised:
            error = raised
        must = None if error is None else failure(error)
        if error is not None and must is None:
            continue  # no program
        try:
            found = made(*(args[n] for n in used))
        except WeftError as raised:
            if must is not None and isinstance(raised, must):
                out.judged += 1
                continue
            if isinstance(raised, NumberOverflow) and large:
                continue
            if error is None and isinstance(raised, _RAISED):
                return Outcome(f"raises {type(raised).__name__}: {raised}; the Python gives {want} at {shown(args, used)}")
            if not stored and "of different kinds" in str(raised):
                return check(expression, seed, points, stored=True)
            return Outcome(refusal=raised, judged=out.judged)
        except Exception as raised:
            return Outcome(f"{type(raised).__name__}: {raised} at {shown(args, used)}")
        if error is not None:
            return Outcome(f"gives {found}, the Python raises {type(error).__name__}: {error} at {shown(args, used)}")
        assert want is not None
        if stored:
            want = Value(_double(want.real), _double(want.wide))
            found = found[0]
        wrong = difference(expression, want, found)
        if wrong:
            return Outcome(f"{wrong} at {shown(args, used)}")
        out.judged += 1
    return out


def _double(value: Any) -> torch.Tensor:
    return value.double() if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.float64)


def shown(args: dict[str, Any], used: list[str]) -> str:
    i, j = args["i"], args["j"]
    return str({n: (args[n][i].item(), args[n][j].item()) if n in ARRAYS else args[n] for n in used})


def failure(error: Exception) -> type[Exception] | None:
    if isinstance(error, _RAISED):
        return next(r for r in _RAISED if isinstance(error, r))
    if isinstance(error, RuntimeError) and "ZeroDivisionError" in str(error):
        return ZeroDivisionError
    return None


def difference(expression: Node, want: Value, found: Any) -> str:
    real, wide = want.real, want.wide
    if isinstance(real, torch.Tensor) != isinstance(wide, torch.Tensor):
        return ""  # rounding has decided the branch
    if expression.joined or isinstance(wide, complex):
        return ""
    if expression.chooses and isinstance(found, torch.Tensor) and found.is_floating_point() and type(wide) is float:
        return ""  # a number of Python's is taken for the float element that it might have been
    if not isinstance(real, torch.Tensor):
        if type(found) is not type(real):
            return f"gives {found!r}, the Python {real!r}"
        a, b = torch.tensor(wide, dtype=torch.float64), torch.tensor(found, dtype=torch.float64)
        if isinstance(wide, int) and not -LARGEST <= wide < LARGEST:
            return f"gives {found!r} without an error, the Python {wide!r}"
        if isinstance(wide, int):
            return "" if wide == found else f"gives {found!r}, the Python {wide!r}"
    else:
        floats = isinstance(found, torch.Tensor) and found.is_floating_point() and real.is_floating_point()
        if expression.chooses and floats and found.dtype != real.dtype:
            return ""  # floats that meet in a choice are of one dtype
        if not isinstance(found, torch.Tensor) or found.dtype != real.dtype:
            return f"gives {found!r}, the Python {real!r}"
        a, b = wide.to(real.dtype), found
        if not real.is_floating_point():
            return "" if torch.equal(a, b) else f"gives {found!r}, the Python {real!r}"
    if a.isnan() and b.isnan():
        return ""
    divides = any(sign in expression.text for sign in ("%", "//", "remainder", "floor_divide"))  # zeros of Python's sign
    if a == b and (a != 0 or divides or torch.signbit(a) == torch.signbit(b)):
        return ""
    size = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 4e-6, torch.float64: 1e-5}[a.dtype]
    if expression.inexact and abs(float(a) - float(b)) <= size * abs(float(a)):
        return ""
    return f"gives {found!r}, the Python {a!r} ({real!r})"


# Each kernel is compiled once and called some times: without optimisation it gives the same, its products unfused.
_FLAGS = tuple({"-O3": "-O0", "-ffp-contract=fast": "-ffp-contract=off"}.get(f, f) for f in host.FLAGS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        count = metafunc.config.getoption("--programs") or _EXPRESSIONS
        metafunc.parametrize("first", range(0, count, _EXPRESSIONS))


def test_random_expressions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over elements of all dtypes and Python's numbers, at their special points."""
    monkeypatch.setattr(host, "FLAGS", _FLAGS)
    monkeypatch.setattr(host.build, "__defaults__", (_FLAGS,))
    found: dict[int, Outcome] = {}

    def look(seed: int) -> None:
        try:
            found[seed] = check(Expressions(seed).expression(), seed)
        except Exception as error:
            found[seed] = Outcome(f"{type(error).__name__}: {error}")

    seeds = range(first, first + _EXPRESSIONS)
    batch = Batch()
    with batch.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch.map(look, seeds, _TOGETHER)
    assert batch.units < _EXPRESSIONS / 4
    told = [f"{seed}: {Expressions(seed).expression().text}\n    {o.told}" for seed, o in found.items() if o.told]
    assert not told, "\n".join(told)
    assert sum(bool(o.judged) for o in found.values()) > _EXPRESSIONS / 2


@pytest.mark.parametrize("raised", ["1 // 0", "1 % 0", "1.0 / 0", "1 << -1", "3.0 ** 1000", "0.0 ** -1", "math.log(0)"])
def test_constants_that_raise(raised: str) -> None:
    """Where Python evaluates them, and nowhere else."""
    source = f"def program(p: bool, k: int):\n    y = torch.zeros(1)\n    y[0] = k + ({raised} if p else 0)\n    return y\n"
    kernel = weft.kernel(compiled(source, f"<{raised}>"))
    with pytest.raises(_RAISED) as wanted:
        kernel.py(True, 2)
    with pytest.raises(next(r for r in _RAISED if isinstance(wanted.value, r))) as caught:
        kernel(True, 2)
    assert isinstance(caught.value, WeftError)
    assert kernel(False, 2) == 2


@pytest.mark.parametrize(("large", "small"), [("1 << 64", "(1 << 64) // (1 << 60)"), ("2 ** 64 - 1", "2 ** 64 % 7")])
def test_constants_have_no_width_where_they_are_computed(large: str, small: str) -> None:
    kernel = weft.kernel(compiled(f"def program(k: int):\n    return k + ({small})\n", f"<{small}>"))
    assert kernel(3) == kernel.py(3)
    kernel = weft.kernel(compiled(f"def program(k: int):\n    return k + ({large})\n", f"<{large}>"))
    with pytest.raises(NumberOverflow, match="leaves 64 bits"):
        kernel(3)


def test_what_is_returned_is_of_one_kind() -> None:
    kernel = weft.kernel(compiled("def program(x, k: int):\n    return x[0] if x[1] else k\n", "<two kinds>"))
    with pytest.raises(UnsupportedSyntax, match="different kinds") as caught:
        kernel(torch.tensor([1, 0], dtype=torch.uint8), 3)
    assert "one uint8 element or an int" in str(caught.value)


@pytest.mark.parametrize("name", ["remainder", "floor_divide", "fmod"])
def test_torch_divides_no_integer_by_zero(name: str) -> None:
    source = f"def program(x):\n    return torch.{name}(x[0], x[1])\n"
    kernel = weft.kernel(compiled(source, f"<torch.{name}>"))
    assert kernel(torch.tensor([7, -2])) == kernel.py(torch.tensor([7, -2]))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        kernel.py(torch.tensor([7, 0]))
    with pytest.raises(ZeroDivisionError):
        kernel(torch.tensor([7, 0]))


_OF_INTEGERS = [
    *(f"a[i] {sign} b[i]" for sign in ("+", "-", "*", "//", "%", "&", "|", "^", "==", "<", ">=")),
    *(f"torch.{name}(a[i], b[i])" for name in ("fmod", "remainder", "floor_divide", "maximum", "fmin")),
    "torch.fmod(a[i], 3)", "a[i] % -3", "a[i] // -1", "-a[i] // b[i]", "abs(a[i]) % 7", "a[i] ** 3", "a[i] << (b[i] & 7)",
    "a[i] >> (b[i] & 63)", "a[i] << 70", "max(a[i], -3)", "min(a[i], b[i])", "torch.sign(a[i])", "torch.clamp(a[i], -3, 5)",
    "~a[i]", "a[i].to(torch.int8)", "a[i].to(torch.uint8)", "a[i] * 3 - 100",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_at_the_ends_of_their_dtype(dtype: torch.dtype) -> None:
    rows = "".join(f"        y[{k}, i] = {e}\n" for k, e in enumerate(_OF_INTEGERS))
    source = (
        "def program(a, b, rows: int):\n    y = torch.zeros(rows, len(a), dtype=torch.int64)\n"
        f"    for i in range(len(a)):\n{rows}    return y\n"
    )
    ends = torch.iinfo(dtype)
    values = [v for v in (ends.min, ends.min + 1, -7, -1, 0, 1, 2, 3, ends.max - 1, ends.max) if v >= ends.min]
    a, b = (torch.tensor(v, dtype=dtype) for v in zip(*((x, y) for x in values for y in values if y), strict=True))
    function = compiled(source, f"<integers at the ends of {dtype}>")
    found, want = weft.kernel(function)(a, b, len(_OF_INTEGERS)), function(a, b, len(_OF_INTEGERS))
    wrong = [
        f"{_OF_INTEGERS[k]} of {a[i]} and {b[i]}: {found[k, i]}, not {want[k, i]}"
        for k, i in (found != want).nonzero().tolist()
    ]
    assert not wrong, "\n".join(wrong)
