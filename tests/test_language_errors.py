"""What the language refuses: each refusal is one named error with its place, its facts and a remedy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.errors import OutOfRange, ShapeMismatch, TypeMismatch, UndefinedName, UnsupportedSyntax, WeftError
from weft.language import TensorType, infer_types, parse, read_signature, source_of
from weft.loops.interpret import interpret
from weft.loops.types import FLOAT64, INT64


@dataclass(frozen=True)
class Bad:
    """A refused program: the error, its message, the line it points at and what is under the caret."""

    name: str
    text: str
    error: type[WeftError]
    message: str
    line: int
    under: str


PROGRAMS = [
    Bad(
        "while",
        """\
        def f(x):
            y = torch.empty_like(x)
            i = 0
            while x[i] < 3:
                i += 1
            return y
        """,
        UnsupportedSyntax,
        "weft's language has no while but to count",
        4,
        "w",
    ),
    Bad(
        "with",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                with torch.no_grad():
                    break
            return y
        """,
        UnsupportedSyntax,
        "weft's language has no with",
        4,
        "w",
    ),
    Bad(
        "enumerate",
        """\
        def f(x):
            y = torch.empty_like(x)
            pairs = enumerate(x)
            for i, v in pairs:
                y[i] = v
            return y
        """,
        UnsupportedSyntax,
        "pairs is an iterator, which runs out when it was run over once",
        3,
        "pairs = enumerate(x)",
    ),
    Bad(
        "zip",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in zip(x, (1, 2)):
                y[0] = 1
            return y
        """,
        TypeMismatch,
        "zip of a tuple and of what is as long as a tensor",
        3,
        "zip(x, (1, 2))",
    ),
    Bad(
        "over a number",
        """\
        def f(x):
            y = torch.empty_like(x)
            for v in 3:
                y[0] = v
            return y
        """,
        TypeMismatch,
        "a loop over an int",
        3,
        "3",
    ),
    Bad(
        "undefined",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                y[i] = x[i] * alpha
            return y
        """,
        UndefinedName,
        "alpha is not defined",
        4,
        "alpha",
    ),
    Bad(
        "branch",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                if x[i] > 0:
                    t = x[i]
                y[i] = t
            return y
        """,
        UndefinedName,
        "t has no value here: only the if branch gives it one",
        6,
        "t",
    ),
    Bad(
        "after loop",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                t = x[i]
            y[0] = t
            return y
        """,
        UndefinedName,
        "t has no value here: the loop over i gives it one only if it runs",
        5,
        "t",
    ),
    Bad(
        "loop var",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                y[i] = x[i]
            y[i] = 0
            return y
        """,
        UndefinedName,
        "i has no value here: it is the variable of a loop that has ended, and has one only if the loop ran",
        5,
        "i",
    ),
    Bad(
        "before",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                y[i] = h
                h = x[i]
            return y
        """,
        UndefinedName,
        "h has no value here: only an earlier iteration of the loop over i would give it one",
        4,
        "h",
    ),
    Bad(
        "rank",
        """\
        def f(x):
            n, m = x.shape
            y = torch.empty_like(x)
            for i in range(n):
                y[i, 0, 0] = x[i, 0]
            return y
        """,
        TypeMismatch,
        "3 subscripts for a tensor of 2 dimensions",
        5,
        "y[i, 0, 0]",
    ),
    Bad(
        "number sub",
        """\
        def f(x, a: float):
            y = torch.empty_like(x)
            for i in range(3):
                y[i] = a[i] + x[i]
            return y
        """,
        TypeMismatch,
        "a subscript of a float",
        4,
        "a[i]",
    ),
    Bad(
        "elem sub",
        """\
        def f(x):
            n, m = x.shape
            y = torch.empty_like(x)
            for i in range(n):
                y[i, 0] = x[i, 0][0]
            return y
        """,
        TypeMismatch,
        "a subscript of one float32 element",
        5,
        "x[i, 0][0]",
    ),
    Bad(
        "const range",
        """\
        def f(x):
            t = torch.zeros(4)
            for i in range(3):
                t[4] = x[i]
            return t
        """,
        OutOfRange,
        "subscript 4 is outside dimension 0, which has size 4",
        4,
        "t[4]",
    ),
    Bad(
        "const range neg",
        """\
        def f(x):
            t = torch.zeros(4)
            t[-5] = x[0]
            return t
        """,
        OutOfRange,
        "subscript -5 is outside dimension 0, which has size 4",
        3,
        "t[-5]",
    ),
    Bad(
        "float index",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(3):
                y[i / 2] = x[i]
            return y
        """,
        TypeMismatch,
        "a subscript that is a float",
        4,
        "y[i / 2]",
    ),
    Bad(
        "float range",
        """\
        def f(x, n: float):
            y = torch.empty_like(x)
            for i in range(n):
                y[i] = x[i]
            return y
        """,
        TypeMismatch,
        "range of a float",
        3,
        "range(n)",
    ),
    Bad(
        "step0",
        """\
        def f(x):
            y = torch.empty_like(x)
            for i in range(0, 3, 0):
                y[i] = x[i]
            return y
        """,
        UnsupportedSyntax,
        "a range whose step is 0",
        3,
        "range(0, 3, 0)",
    ),
    Bad(
        "stepvar",
        """\
        def f(x, s: int):
            y = torch.empty_like(x)
            for i in range(3):
                s = s + i
                for j in range(0, 3, s):
                    y[i] = x[j]
            return y
        """,
        UnsupportedSyntax,
        "a range whose step is computed by the kernel",
        5,
        "range(0, 3, s)",
    ),
    Bad(
        "unknown torch",
        """\
        def f(x):
            return torch.fft(x)
        """,
        UnsupportedSyntax,
        "weft's language has no torch.fft",
        2,
        "torch.fft(x)",
    ),
    Bad(
        "unknown method",
        """\
        def f(x):
            return x.cummax(0)
        """,
        UnsupportedSyntax,
        "weft's language has no tensor attribute or method cummax",
        2,
        "x.cummax",
    ),
    Bad(
        "unknown attr",
        """\
        def f(x):
            return x.grad + 1
        """,
        UnsupportedSyntax,
        "weft's language has no tensor attribute or method grad",
        2,
        "x.grad",
    ),
    Bad(
        "lambda",
        """\
        def f(x):
            g = lambda v: g(v) + 1
            return g(x[0])
        """,
        UnsupportedSyntax,
        "anonymous calls itself",
        2,
        "g(v)",
    ),
    Bad(
        "listcomp",
        """\
        def f(x):
            y = [x[i] for i in range(x.shape[0])]
            return x
        """,
        UnsupportedSyntax,
        "a list whose length is not a constant",
        2,
        "range(x.shape[0])",
    ),
    Bad(
        "recursion",
        """\
        def f(x):
            return f(x)
        """,
        UnsupportedSyntax,
        "f calls itself",
        2,
        "f(x)",
    ),
    Bad(
        "different results",
        """\
        def f(x):
            if x[0] > 0:
                return x.sum()
            return x + 1
        """,
        UnsupportedSyntax,
        "f returns different things on different paths",
        2,
        "i",
    ),
    Bad(
        "matmul sizes",
        """\
        def f(x):
            a = torch.zeros(3, 4)
            b = torch.zeros(3, 4)
            return a @ b + x
        """,
        ShapeMismatch,
        "the sizes do not agree in the dimension that @ sums over",
        4,
        "a @ b",
    ),
    Bad(
        "broadcast",
        """\
        def f(x):
            a = torch.zeros(3)
            b = torch.zeros(4)
            return a + b
        """,
        ShapeMismatch,
        "the sizes do not agree along dimension -1 of tensors used together",
        4,
        "a + b",
    ),
    Bad(
        "tensor cond",
        """\
        def f(x):
            y = torch.empty_like(x)
            if x > 0:
                y[0] = 1
            return y
        """,
        TypeMismatch,
        "a tensor of 2 dimensions as the condition of an if",
        3,
        "x > 0",
    ),
    Bad(
        "try",
        """\
        def f(x):
            try:
                pass
            except ValueError:
                pass
            return x
        """,
        UnsupportedSyntax,
        "weft's language has no try",
        2,
        "t",
    ),
    Bad(
        "star",
        """\
        def f(*x):
            return x
        """,
        UnsupportedSyntax,
        "f takes *x",
        1,
        "x",
    ),
    Bad(
        "print",
        """\
        def f(x):
            print(x)
            return x
        """,
        UnsupportedSyntax,
        "weft's language has no print",
        2,
        "print(x)",
    ),
    Bad(
        "nothing",
        """\
        def f(x):
            y = x[0] + 1
        """,
        UnsupportedSyntax,
        "f returns nothing and writes into none of its arguments",
        1,
        "def f",
    ),
    Bad(
        "string",
        """\
        def f(x):
            y = torch.empty_like(x)
            y[0] = 'a'
            return y
        """,
        TypeMismatch,
        "'a' cannot be stored into a tensor",
        3,
        "y[0]",
    ),
    Bad(
        "max dim",
        """\
        def f(x):
            return x.max(dim=0)
        """,
        UnsupportedSyntax,
        "max with a dimension gives values and indices",
        2,
        "x.max(dim=0)",
    ),
    Bad(
        "assert",
        """\
        def f(x):
            assert x[0, 0] > 0
            return x + 1
        """,
        UnsupportedSyntax,
        "an assert that is not an equality of sizes",
        2,
        "assert x[0, 0] > 0",
    ),
    Bad(
        "attr assign",
        """\
        def f(x):
            x.foo = 3
            return x
        """,
        UnsupportedSyntax,
        "an assignment to an attribute",
        2,
        "x.foo",
    ),
    Bad(
        "bytes",
        """\
        def f(x):
            return x * b"1"
        """,
        UnsupportedSyntax,
        "weft's language has no bytes constants",
        2,
        'b"1"',
    ),
    Bad(
        "dtype",
        """\
        def f(x):
            return x.to(torch.complex32)
        """,
        TypeMismatch,
        "torch.complex32 is not a dtype that weft knows",
        2,
        "x.to(torch.complex32)",
    ),
    Bad(
        "triangular slice",
        """\
        def f(x):
            n, m = x.shape
            y = torch.zeros_like(x)
            for i in range(n):
                y[i, :i] = x[i]
            return y
        """,
        ShapeMismatch,
        "the sizes do not provably agree along dimension -1 of the two sides of =",
        5,
        "y[i, :i] = x[i]",
    ),
    Bad(
        "helper args",
        """\
        def g(a):
            return a + 1
        def f(x):
            return g(x, 1)
        """,
        TypeMismatch,
        "g takes 1 arguments, not 2",
        4,
        "g(x, 1)",
    ),
    Bad(
        "max tensor",
        """\
        def f(x, y):
            n, m = x.shape
            k, l = y.shape
            return max(x, y)
        """,
        TypeMismatch,
        "max of a tensor of 2 dimensions",
        4,
        "max(x, y)",
    ),
    Bad(
        "del",
        """\
        def f(x):
            del x
        """,
        UnsupportedSyntax,
        "weft's language has no del",
        2,
        "del x",
    ),
    Bad(
        "mask",
        """\
        def f(x):
            y = torch.empty_like(x)
            y[x > 0] = 1
            return y
        """,
        TypeMismatch,
        "a subscript that is a tensor of 2 dimensions",
        3,
        "y[x > 0]",
    ),
    Bad(
        "rows of a list",
        """\
        def f(x):
            rows = [0] + [2]
            return x[rows] * 1
        """,
        TypeMismatch,
        "a list as a subscript",
        3,
        "rows",
    ),
    Bad(
        "rows of a tuple among subscripts",
        """\
        def f(x):
            return x[(0, 1), 0] * 1
        """,
        TypeMismatch,
        "a tuple among others as a subscript",
        2,
        "(0, 1)",
    ),
    Bad(
        "walrus",
        """\
        def f(x):
            if (n := 3) > 2:
                pass
            return x + 1
        """,
        UnsupportedSyntax,
        "weft's language has no assignment inside an expression",
        2,
        "n := 3",
    ),
    Bad(
        "one tensor or another",
        """\
        def f(x, a, b):
            y = torch.empty_like(x)
            for i in range(3):
                if i % 2 == 0:
                    t = a
                else:
                    t = b
                y[i] = t[i]
            return y
        """,
        UndefinedName,
        "t has no value here: it is one tensor or another, and only the call tells whether their sizes agree",
        8,
        "t",
    ),
    Bad(
        "acc shape",
        """\
        def f(x):
            n, m = x.shape
            acc = 0.0
            for i in range(n):
                acc = acc + x[i]
            return acc
        """,
        UndefinedName,
        "acc has no value here: it is a number before the loop and a tensor of 1 dimension after an iteration",
        5,
        "acc",
    ),
    Bad(
        "data slice",
        """\
        def f(x, idx):
            y = x.clone()
            for i in range(3):
                y[: idx[i]] = 0
            return y
        """,
        UnsupportedSyntax,
        "a slice bound that depends on what a tensor holds",
        4,
        "y[: idx[i]]",
    ),
    Bad(
        "hoist",
        """\
        def f(x, idx):
            y = x.clone()
            n, m = x.shape
            for i in range(n):
                for j in range(idx[i]):
                    t = x[j] * 2
                    y[j] = t
            return y
        """,
        UnsupportedSyntax,
        "the size of t is not known before the loops around it",
        6,
        "t = x[j] * 2",
    ),
]


VIEWS = {
    "two names of one element": """
        s = 0.0
        best = 0.0
        y = torch.empty_like(x)
        for i in range(n):
            s += x[i]
            y[i] = best
            best = s
        return y
        """,
    "a view of an element that was stored into": """
        m = -1.0
        for i in range(n):
            m = max(m, x[i])
            x[i] = 0.0
            x[0] = m
        """,
    "a helper that writes in the middle of an expression": """
        x[1] = x[0] + put(x)
        """,
}


def _dedent(text: str) -> str:
    lines = text.rstrip().splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines) + "\n"


@pytest.mark.parametrize("bad", PROGRAMS, ids=lambda bad: bad.name)
def test_refused(bad: Bad) -> None:
    text = _dedent(bad.text)
    with pytest.raises(bad.error) as caught:
        parse(text, infer_types(text))
    error = caught.value
    assert error.message == bad.message
    assert error.remedy
    assert error.location is not None and error.location.line == bad.line
    line = text.splitlines()[bad.line - 1]
    end = error.location.end_column if error.location.end_column is not None else error.location.column + 1
    assert line[error.location.column : end] == bad.under
    rendered = str(error)
    assert line.strip() in rendered and "^" in rendered and "remedy:" in rendered


@pytest.mark.parametrize("name", VIEWS)
def test_what_only_looks_like_a_copy_is_refused(name: str) -> None:
    """In the plain Python these names are views of elements: a copy would compute something else."""
    body = "".join("    " + line for line in _dedent(VIEWS[name].lstrip("\n")).splitlines(keepends=True))
    text = f"def put(t):\n    t[0] = 1.0\n    return t[0]\n\ndef f(x):\n    n = x.shape[0]\n{body}"
    with pytest.raises(WeftError) as caught:
        parse(text, {"x": TensorType(FLOAT64, 1)}, name="f")
    assert caught.value.location is not None and caught.value.remedy


def test_not_python() -> None:
    with pytest.raises(UnsupportedSyntax, match="this is not Python") as caught:
        parse("def f(x):\n    y = = x\n", {})
    assert caught.value.location is not None and caught.value.location.line == 2


def test_text_without_a_function() -> None:
    with pytest.raises(UnsupportedSyntax, match="defines no function"):
        source_of("x = 1\n")


def test_builtins_have_no_source() -> None:
    with pytest.raises(UnsupportedSyntax, match="not a Python function"):
        read_signature(torch.exp)


def test_source_that_cannot_be_found() -> None:
    scope: dict[str, Any] = {}
    exec("def made(x):\n    return x + 1\n", scope)
    with pytest.raises(UnsupportedSyntax, match="cannot be found") as caught:
        source_of(scope["made"])
    assert caught.value.remedy


def test_a_decorated_function_is_not_taken_for_what_it_wraps() -> None:
    def doubled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(x: torch.Tensor) -> Any:
            return 2 * function(x)

        return wrapper

    @doubled
    def plain(x: torch.Tensor) -> Any:
        return x + 1

    nest = parse(plain, {"x": TensorType(FLOAT64, 1)})
    x = torch.arange(3.0, dtype=torch.float64)
    torch.testing.assert_close(interpret(nest, x)[0], plain(x))

    def counted(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return 2 * function(*args, **kwargs)

        return wrapper

    with pytest.raises(UnsupportedSyntax):
        parse(counted(plain), {"x": TensorType(FLOAT64, 1)})


def test_types_that_do_not_fit() -> None:
    text = "def f(x):\n    a, b, c = x.shape\n    return x + 1\n"
    with pytest.raises(TypeMismatch, match="2 values for 3 names"):
        parse(text, {"x": TensorType(FLOAT64, 2)})
    with pytest.raises(TypeMismatch, match="type of x is not given"):
        parse(text, {})
    with pytest.raises(TypeMismatch, match="cannot be stored in place into int64"):
        parse("def f(x):\n    x += 0.5\n", {"x": TensorType(INT64, 1)})


def outer_tensor_kernel(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * OUTER[i]
    return y


OUTER = torch.ones(3)


def test_place_is_that_of_the_users_file() -> None:
    with pytest.raises(TypeMismatch, match="OUTER is a tensor from outside") as caught:
        parse(outer_tensor_kernel, {"x": TensorType(FLOAT64, 1)})
    where = caught.value.location
    assert where is not None and where.file == __file__
    line = Path(__file__).read_text().splitlines()[where.line - 1]
    assert line[where.column : where.end_column] == "OUTER"


def test_error_inside_a_helper_points_into_the_helper() -> None:
    text = "def g(a):\n    return a.cummax(0)\n\ndef f(x):\n    return g(x)\n"
    with pytest.raises(UnsupportedSyntax, match="cummax") as caught:
        parse(text, {"x": TensorType(FLOAT64, 1)})
    assert caught.value.location is not None and caught.value.location.line == 2


def test_mutual_recursion() -> None:
    text = "def g(a):\n    return f(a)\n\ndef f(x):\n    return g(x)\n"
    read_signature(text)
    with pytest.raises(UnsupportedSyntax, match="calls itself"):
        parse(text, {"x": TensorType(FLOAT64, 1)})
