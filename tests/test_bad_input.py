"""What cannot be run is refused by one named error: where, what, the evidence, a remedy. Nothing else gets out."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.errors import (
    CompileError,
    DeviceMismatch,
    NotDifferentiable,
    OutOfRange,
    OverlapError,
    ShapeMismatch,
    TypeMismatch,
    UndefinedName,
    UnsupportedSyntax,
    WeftError,
)
from weft.kernels import LIBRARY

HERE = Path(__file__).name
CALLS = 0


def refused(call: Callable[[], Any], error: type[WeftError], *words: str, where: str | None = HERE) -> str:
    """The text of the error that a call ends in: of this class, with these words, and with a caret in file `where`."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert type(caught.value) is error, f"{type(caught.value)} is not {error}"
    for word in (*words, "remedy:"):
        assert word in text, f"{word!r} is not in\n{text}"
    if where is not None:
        location = caught.value.location
        assert location is not None and Path(location.file).name == where, text
        assert f"{where}:{location.line}:{location.column + 1}" in text
        lines = text.split("\n")
        at = next(k for k, line in enumerate(lines) if where in line)
        assert set(lines[at + 2].strip()) == {"^"}, text
    return text


# ---------------------------------------------------------------- syntax


def has_while(x):
    y = torch.empty_like(x)
    i = 0
    while x[i] < 0:
        i += 1
    y[i] = 0.0
    return y


def has_try(x):
    try:
        y = x.clone()
    finally:
        pass
    return y


def has_with(x):
    with torch.no_grad():
        y = x.clone()
    return y


def has_comprehension(x):
    y = torch.empty_like(x)
    weights = [i * 2 for i in range(x.shape[0])]
    for i in range(x.shape[0]):
        y[i] = x[i] * weights[0]
    return y


def has_early_return(x):
    for i in range(x.shape[0]):
        if x[i] > 2:
            return x[i:]
    return x[:]


def has_a_named_iterator(x):
    y = x.clone()
    rows = zip(x, y, strict=True)
    for v, _ in rows:
        y[0] = v
    return y


def has_print(x):
    print(x)
    return x.clone()


def has_global(x):
    global CALLS
    CALLS += 1
    return x.clone()


def has_class(x):
    class Inner:
        pass

    return x.clone()


def has_fft(x):
    return torch.fft.fft(x)


def has_zero_step(x):
    y = x.clone()
    for i in range(0, x.shape[0], 0):
        y[i] = 0.0
    return y


def has_float_range(x):
    y = x.clone()
    for i in range(x[0]):
        y[i] = 0.0
    return y


def has_string(x):
    y = x.clone()
    y[0] = "zero"
    return y


def has_tensor_condition(x):
    y = x.clone()
    if x > 0:
        y[0] = 0.0
    return y


def returns_a_string(x):
    s = 0.0
    for _ in range(x.shape[0]):
        s += 1.0
    return "s", s


def returns_nothing(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i]


def calls_itself(x: torch.Tensor):
    return calls_itself(x)


def reads_an_undefined_name(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = undefined_name * x[i]  # noqa: F821
    return y


def reads_a_name_set_on_one_branch(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        if x[i] > 0:
            t = 1.0
        y[i] = t
    return y


def reads_a_name_set_in_a_loop(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        t = x[i]
    y[0] = t
    return y


def past_the_end(x):
    y = torch.zeros(3)
    for i in range(3):
        y[i] = x[i]
    y[3] = 1.0
    return y


def before_the_start(x):
    y = torch.zeros(3)
    for i in range(3):
        y[i] = x[i]
    y[-4] = 1.0
    return y


def float_subscript(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i / 2] = x[i]
    return y


def too_many_subscripts(x):
    y = torch.empty(x.shape[0])
    for i in range(x.shape[0]):
        y[i, 0] = x[i]
    return y


def complex_result(x):
    return torch.zeros_like(x, dtype=torch.complex32)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (has_while, UnsupportedSyntax, "no while"),
        (has_try, UnsupportedSyntax, "no try"),
        (has_with, UnsupportedSyntax, "no with"),
        (has_comprehension, UnsupportedSyntax, "a list whose length is not a constant"),
        (has_early_return, UnsupportedSyntax, "returns different things on different paths"),
        (has_a_named_iterator, UnsupportedSyntax, "runs out when it was run over once"),
        (has_print, UnsupportedSyntax, "no print"),
        (has_global, UnsupportedSyntax, "no global"),
        (has_class, UnsupportedSyntax, "no classes"),
        (has_fft, UnsupportedSyntax, "no torch.fft.fft"),
        (has_zero_step, UnsupportedSyntax, "step is 0"),
        (has_float_range, TypeMismatch, "range of one float32 element"),
        (has_string, TypeMismatch, "'zero' cannot be stored"),
        (has_tensor_condition, TypeMismatch, "as the condition of an if"),
        (returns_a_string, TypeMismatch, "returns 's'"),
        (returns_nothing, UnsupportedSyntax, "returns nothing"),
        (calls_itself, UnsupportedSyntax, "calls itself"),
        (reads_an_undefined_name, UndefinedName, "undefined_name is not defined"),
        (reads_a_name_set_on_one_branch, UndefinedName, "only the if branch gives it one"),
        (reads_a_name_set_in_a_loop, UndefinedName, "only if it runs"),
        (past_the_end, OutOfRange, "subscript 3 is outside dimension 0, which has size 3"),
        (before_the_start, OutOfRange, "subscript -4 is outside dimension 0"),
        (float_subscript, TypeMismatch, "subscript"),
        (too_many_subscripts, TypeMismatch, "subscripts"),
        (complex_result, TypeMismatch, "torch.complex32"),
    ],
)
def test_functions_that_are_not_in_the_language(
    function: Callable[..., Any], error: type[WeftError], words: str
) -> None:
    refused(lambda: weft.kernel(function)(torch.rand(5)), error, words)


def test_what_is_no_function_with_a_source() -> None:
    for value, words in ((3, "3 is not a Python function"), (len, "is not a Python function")):
        refused(lambda value=value: weft.kernel(value), UnsupportedSyntax, words, where=None)
    for value, words in ((functools.partial(len, ()), "a partial of"), (classmethod(len), "a class method")):
        refused(lambda value=value: weft.kernel(value), UnsupportedSyntax, words, where=None)
    refused(lambda: weft.kernel("x = 1"), UnsupportedSyntax, "defines no function", where=None)
    refused(lambda: weft.kernel("def f(x:"), UnsupportedSyntax, "this is not Python", where=None)
    scope: dict[str, Any] = {}
    exec("def made(x):\n    return x * 2", scope)
    refused(lambda: weft.kernel(scope["made"]), UnsupportedSyntax, "the source of made cannot be found", where=None)

    def starred(x, **options):
        return x[0]

    refused(lambda: weft.kernel(starred), UnsupportedSyntax, "takes **options")


# ---------------------------------------------------------------- arguments


@weft.kernel
def transposed(x):
    n, m = x.shape
    y = torch.empty(m, n, dtype=x.dtype)
    for i in range(n):
        for j in range(m):
            y[j, i] = x[i, j]
    return y


@weft.kernel
def scale_(x, weight, alpha: float = 1.0):
    rows, length = x.shape
    for r in range(rows):
        for l in range(length):
            x[r, l] = x[r, l] * weight[l] + alpha


@weft.kernel
def gather(x, index, n: int):
    y = torch.empty(n, dtype=x.dtype)
    for i in range(n):
        y[i] = x[index[i]]
    return y


@weft.kernel
def scatter(x, index, size: int):
    y = torch.zeros(size, dtype=x.dtype)
    for i in range(x.shape[0]):
        y[index[i]] = x[i]
    return y


@weft.kernel
def shifted(x, by: int):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i + by]
    return y


@weft.kernel
def product(a, b):
    return a @ b


X, W = torch.rand(3, 5), torch.rand(5)


def test_wrong_kinds_of_arguments() -> None:
    numpy = pytest.importorskip("numpy")
    for value, words in (
        ([1.0, 2.0], "x is a list"),
        (None, "x is None"),
        ("abc", "x is 'abc'"),
        (2.5, "x is 2.5"),
    ):
        refused(lambda value=value: transposed(value), TypeMismatch, words, "uses it as a tensor", "torch.tensor(x)")
    refused(lambda: transposed(numpy.zeros((2, 2))), TypeMismatch, "x is a numpy.ndarray", "torch.from_numpy(x)")
    refused(lambda: torch.fx.symbolic_trace(lambda x: transposed(x)), TypeMismatch, "x is a torch.fx", "torch.export")
    refused(lambda: gather(W, torch.arange(5), torch.tensor(2.0)), TypeMismatch, "n is a tensor", "n.item()")
    refused(lambda: scale_(X, W, "1"), TypeMismatch, "alpha is '1'", "pass a float")
    refused(lambda: gather(W, torch.arange(5), 2.5), TypeMismatch, "n is 2.5", "pass an int")
    with torch.enable_grad():  # the road of autograd gives the same errors
        refused(lambda: gather(W.clone().requires_grad_(), [0], 1), TypeMismatch, "index is a list")


def test_wrong_kinds_of_arguments_after_a_call_that_was_right() -> None:
    linrec = LIBRARY["linrec"]
    for _ in range(3):
        transposed(X)
        linrec(X, X)
        gather(W, torch.arange(5), 2)
    for wrong in ([1.0], None, "abc", 2.5):
        refused(lambda wrong=wrong: transposed(wrong), TypeMismatch, "uses it as a tensor")
        refused(lambda wrong=wrong: linrec(X, wrong), TypeMismatch, "c is ", where="linrec.py")
        refused(lambda wrong=wrong: linrec(wrong, X), TypeMismatch, "x is ", where="linrec.py")
    refused(lambda: gather(W, torch.arange(5), [2]), TypeMismatch, "n is a list")
    refused(lambda: transposed(X.to_sparse()), TypeMismatch, "torch.sparse_coo")
    refused(lambda: linrec(X.to_sparse(), X), TypeMismatch, "torch.sparse_coo", where="linrec.py")
    refused(lambda: linrec(X[None].to_sparse(), X[None]), TypeMismatch, "torch.sparse_coo", where="linrec.py")
    refused(lambda: linrec(X.to("meta"), X), DeviceMismatch, "different devices", where="linrec.py")
    refused(lambda: linrec(X.to(torch.complex32), X), TypeMismatch, "torch.complex32", where="linrec.py")


def test_wrong_numbers_and_names_of_arguments() -> None:
    refused(lambda: transposed(X, X), TypeMismatch, "transposed takes (x)", "given 2 arguments")
    refused(lambda: scale_(X), TypeMismatch, "needs its argument 'weight'")
    refused(lambda: scale_(X, W, beta=1.0), TypeMismatch, "'beta' is no parameter")
    refused(lambda: scale_(X, W, weight=W), TypeMismatch, "'weight' is given twice")


def test_dtypes_that_weft_does_not_know() -> None:
    refused(lambda: transposed(X.to(torch.complex32)), TypeMismatch, "torch.complex32", "float32")
    refused(lambda: transposed(X.to(torch.float8_e4m3fnuz)), TypeMismatch, "torch.float8_e4m3fnuz")
    refused(lambda: gather(W, W, 2), TypeMismatch, "a subscript that is one float32 element")


def test_layouts_that_weft_does_not_know() -> None:
    refused(lambda: transposed(X.to_sparse()), TypeMismatch, "torch.sparse_coo", "x.to_dense()")
    refused(lambda: transposed(X.to_sparse_csr()), TypeMismatch, "torch.sparse_csr")


def test_wrong_ranks() -> None:
    for x in (W, X[None], torch.tensor(1.0)):
        refused(lambda x=x: transposed(x), TypeMismatch, "for 2 names")
    refused(lambda: scale_(X, X), ShapeMismatch, "x[r, l] = x[r, l] * weight[l] + alpha", "index or sum over")
    scalar = torch.tensor(1.0)
    refused(lambda: LIBRARY["linrec"](scalar, scalar), ShapeMismatch, "x of linrec has no dimension", where=None)


def test_sizes_that_differ() -> None:
    text = refused(lambda: product(X, X), ShapeMismatch, "sizes differ: in the dimension that @ sums over")
    assert "5 and 3" in text and "a is [3, 5]" in text
    linrec = LIBRARY["linrec"]
    text = refused(lambda: linrec(X, X[:, :3]), OutOfRange, "linrec reads c outside axis 1", where="linrec.py")
    assert "axis 1 of c has size 3" in text and "x is [3, 5]" in text
    refused(lambda: linrec(X, X[:2]), OutOfRange, "reads c outside axis 0", where="linrec.py")
    refused(lambda: scale_(X.clone(), W[:4]), OutOfRange, "reads weight outside axis 0")


def test_negative_sizes() -> None:
    refused(lambda: scatter(W, torch.arange(5), -1), ShapeMismatch, "y would have shape [-1]", "y = torch.zeros(size")


def test_subscripts_that_leave_an_array_for_the_sizes_of_a_call() -> None:
    torch.testing.assert_close(shifted(W, 0), W)
    refused(lambda: shifted(W, 1), OutOfRange, "reads x outside axis 0", "by + i", "x is [5]")
    torch.testing.assert_close(shifted(W, -1), shifted.py(W, -1))
    refused(lambda: shifted(W, -6), OutOfRange, "reads x outside axis 0")
    torch.testing.assert_close(shifted(W[:0], 7), W[:0])


def test_subscripts_that_leave_an_array_by_the_data() -> None:
    torch.testing.assert_close(gather(W, torch.tensor([4, -5]), 2), W[[4, 0]])
    for index in ([0, 5], [-6, 0], [1 << 40, 0]):
        refused(lambda index=index: gather(W, torch.tensor(index), 2), OutOfRange, "a subscript that leaves x")
        refused(lambda index=index: scatter(W[:2], torch.tensor(index), 5), OutOfRange, "a subscript that leaves y")


# ---------------------------------------------------------------- written subscripts that are not affine


def test_written_subscripts_that_are_not_affine_run_in_order() -> None:
    index = torch.tensor([3, 1, 3, 0, 1])
    torch.testing.assert_close(scatter(W, index, 4), scatter.py(W, index, 4))
    verdict = weft.analyze(scatter).loops["i"]
    assert verdict.kind == "sequential" and verdict.cycle == ("y",)

    @weft.kernel
    def squared(x):
        y = torch.zeros(30, dtype=x.dtype)
        for i in range(x.shape[0]):
            y[i * i] = x[i]
        return y

    torch.testing.assert_close(squared(W), squared.py(W))

    @weft.kernel
    def wrapped(x):
        y = torch.zeros(3, dtype=x.dtype)
        for i in range(x.shape[0]):
            y[i % 3] = 2.0 * y[i % 3] + x[i]
        return y

    torch.testing.assert_close(wrapped(W), wrapped.py(W))
    assert weft.analyze(wrapped).loops["i"].kind == "sequential"


# ---------------------------------------------------------------- devices


def test_devices() -> None:
    text = refused(lambda: scale_(X.clone(), W.to("meta")), DeviceMismatch, "lie on different devices")
    assert "x lies on cpu" in text and "weight lies on meta" in text
    tracked = W.clone().requires_grad_()
    refused(lambda: gather(tracked, torch.arange(5, device="meta"), 2), DeviceMismatch, "lie on different devices")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_where_one_is_asked_for() -> None:
    from weft.pytorch.specs import make_arguments, parse

    specs = {"x": parse("float32[2,3]")}
    refused(lambda: make_arguments(specs, device="cuda"), DeviceMismatch, "no device cuda", where=None)
    refused(lambda: transposed.resources(X), TypeMismatch, "CUDA architectures", 'arch="sm_90a"', where=None)


@pytest.mark.gpu
def test_mixed_devices_of_cpu_and_gpu() -> None:
    refused(lambda: scale_(X.cuda(), W), DeviceMismatch, "weight lies on cpu")


def test_architectures_that_weft_does_not_know() -> None:
    for call in (transposed.source, transposed.resources):
        refused(lambda call=call: call(X, arch="sm_70"), TypeMismatch, "'sm_70' is no", "sm_90a", where=None)


# ---------------------------------------------------------------- memory that is shared


def test_a_written_tensor_that_overlaps_itself() -> None:
    text = refused(lambda: scale_(X[:1].expand(3, 5), W), OverlapError, "two of its elements share memory")
    assert "strides [0, 1]" in text and "x.clone()" in text
    windows = torch.rand(8).as_strided((3, 5), (1, 1))
    refused(lambda: scale_(windows, W), OverlapError, "two of its elements share memory")


def test_a_written_tensor_that_overlaps_another_argument() -> None:
    x = X.clone()
    text = refused(lambda: scale_(x, x[1]), OverlapError, "weight shares memory with it", "weight.clone()")
    assert "def scale_" in text
    scale_(x[:2], x[2])  # neighbours in one storage that do not touch
    columns = torch.rand(3, 10)
    scale_(columns[:, :5], W)
    assert transposed(X[:1].expand(3, 5)).shape == (5, 3), "what is only read may overlap"


def test_overlap_is_seen_at_every_call_and_not_the_first_alone() -> None:
    x = torch.rand(4, 5)
    scale_(x[:3], torch.rand(5))
    refused(lambda: scale_(x[:3], x[1]), OverlapError, "weight shares memory with it")


# ---------------------------------------------------------------- gradients


def test_gradients_through_arguments_written_in_place() -> None:
    text = refused(lambda: scale_(X.clone().requires_grad_(), W), NotDifferentiable, "writes in place")
    assert "it writes into x at " in text and "x[" in text and "torch.no_grad()" in text
    refused(lambda: scale_(X.clone(), W.clone().requires_grad_()), NotDifferentiable, "weight requires a gradient")


def test_an_element_that_is_added_to_under_a_name_of_its_own() -> None:
    """`t = x[i]` is a view in PyTorch, so `t += w[i]` changes x: the statement is named, and what does not change it."""

    def halved(t):
        t *= 0.5
        return t

    def added(x, w):
        y = torch.empty_like(w)
        for i in range(w.shape[0]):
            t = x[i]
            t += w[i] * 2
            y[i] = halved(t) if i else t
        return y

    x, w = torch.rand(5), torch.rand(5, requires_grad=True)
    text = refused(lambda: weft.kernel(added)(x, w), NotDifferentiable, "t += w[i] * 2, where t is a view of x")
    assert "remedy: write t = t + w[i] * 2, or call it under torch.no_grad()" in text

    def by_a_helper(x):
        return halved(x[0])

    text = refused(lambda: weft.kernel(by_a_helper)(x.requires_grad_()), NotDifferentiable, "t *= 0.5, where t is a view of x")
    assert "remedy: write t = t * 0.5" in text


# ---------------------------------------------------------------- compilers


def a_new_kernel() -> weft.Kernel:
    """A kernel that no cache can know: its constant is this process's and this call's own."""
    global CALLS
    CALLS += 1
    unique = os.getpid() + CALLS / 1024

    @weft.kernel
    def new(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] + unique
        return y

    return new


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(lambda: a_new_kernel()(W), CompileError, "there is no C++ compiler", str(tmp_path), "CXX", where=None)
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(lambda: a_new_kernel()(W), CompileError, "CXX=no-such-compiler", where=None)
    kernel = a_new_kernel()
    refused(lambda: kernel(W), CompileError, "there is no C++ compiler", where=None)
    monkeypatch.undo()
    torch.testing.assert_close(kernel(W), kernel.py(W))  # a failure leaves nothing behind


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'kernel.cpp:3:1: error: it is broken' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    refused(lambda: a_new_kernel()(W), CompileError, "it is broken", where=None)
    monkeypatch.setenv("CXX", f"{sys.executable} -c pass")
    refused(lambda: a_new_kernel()(W), CompileError, "said nothing", where=None)


def test_nvrtc_refuses_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    import weft.pytorch.inspection as inspection

    whole = inspection.cuda_source
    monkeypatch.setattr(inspection, "cuda_source", lambda *given: whole(*given) + "\nint broken = undeclared;\n")
    text = refused(lambda: transposed.resources(X, arch="sm_90a"), CompileError, "int broken = undeclared;", where=None)
    assert 'identifier "undeclared" is undefined' in text and "report" in text


def test_nvrtc_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import weft.pytorch.inspection as inspection

    whole = inspection.cuda_source
    mark = f"// {os.getpid()} {math.pi}\n"
    monkeypatch.setattr(inspection, "cuda_source", lambda *given: whole(*given) + mark)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    refused(lambda: transposed.resources(X, arch="sm_80"), CompileError, "NVRTC is not here", "pip install", where=None)


# ---------------------------------------------------------------- what is asked of a kernel


def test_explaining_without_all_arguments() -> None:
    refused(lambda: transposed.explain(), TypeMismatch, "without all of its arguments", "example")
    refused(lambda: transposed.explain("float32[2,3]", format="pdf"), TypeMismatch, "'pdf' is no format", where=None)
    refused(lambda: transposed.explain("float32[2,x]"), ShapeMismatch, "a size that is no integer", where=None)


def test_analysing_what_is_not_in_the_language() -> None:
    refused(lambda: weft.analyze(has_while), UnsupportedSyntax, "no while")
    text = "def f(x):\n    return undefined"
    refused(lambda: weft.analyze(text), UndefinedName, "undefined is not defined", where=None)
    refused(lambda: weft.analyze("def f(x:"), UnsupportedSyntax, where=None)
    refused(lambda: weft.analyze(3), UnsupportedSyntax, "not a Python function", where=None)
