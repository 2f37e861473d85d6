"""What a kernel reads from outside: each call is the plain Python of that moment, or refused."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import weft
from weft.errors import SourceMismatch, StateChanged, TypeMismatch, UnsupportedSyntax
from weft.pytorch.specialize import digest_of

X = torch.linspace(-2.0, 3.0, 7, dtype=torch.float64)

OUTSIDE = types.ModuleType("outside")
OUTSIDE.scale = 2.0  # type: ignore[attr-defined]
OUTSIDE.inner = types.ModuleType("inner")  # type: ignore[attr-defined]
OUTSIDE.inner.shift = 1.0  # type: ignore[attr-defined]
SCALE: Any = 2.0
PAIR: Any = (1.0, 2.0)
LIST: Any = [1.0, [2.0, 3.0]]
DEEP = 3.0


def helper(v, d=1.5, *, e=0.5):
    return v * DEEP + d - e


def other(v, d=1.5, *, e=0.5):
    return v - d * e


CHOSEN: Any = (helper, other)


@weft.kernel
def everything(x):
    y = torch.empty_like(x)
    alias = OUTSIDE
    for i in range(x.shape[0]):
        y[i] = x[i] * SCALE + PAIR[1] + LIST[0] - LIST[1][1] + helper(x[i]) + OUTSIDE.scale
        y[i] += alias.inner.shift + CHOSEN[0](x[i])
    return y


def _agrees(kernel: weft.Kernel, *args: Any) -> None:
    """A kernel is its plain Python: in the first call, in the quick one, and in its gradients."""
    want = kernel.py(*args)
    for _ in range(3):
        torch.testing.assert_close(kernel(*args), want)
    tracked = [a.detach().requires_grad_() for a in args]
    leaves = [a.detach().requires_grad_() for a in args]
    kernel(*tracked).sum().backward()
    kernel.py(*leaves).sum().backward()
    for a, b in zip(tracked, leaves, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


class _Item:
    """An element of a list as an attribute, which `monkeypatch` puts back."""

    def __init__(self, items: list[Any], index: int) -> None:
        self.__dict__.update(items=items, index=index)

    @property
    def value(self) -> Any:
        return self.__dict__["items"][self.__dict__["index"]]

    @value.setter
    def value(self, new: Any) -> None:
        self.__dict__["items"][self.__dict__["index"]] = new


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a global": lambda patch: patch.setattr(sys.modules[__name__], "SCALE", 5.0),
    "a global's type": lambda patch: patch.setattr(sys.modules[__name__], "SCALE", 2),
    "a tuple": lambda patch: patch.setattr(sys.modules[__name__], "PAIR", (1.0, 7.0)),
    "an element of a list": lambda patch: patch.setattr(_Item(LIST, 0), "value", 4.0),
    "an element of a list in a list": lambda patch: patch.setattr(_Item(LIST[1], 1), "value", 4.0),
    "a helper": lambda patch: patch.setattr(sys.modules[__name__], "helper", other),
    "a helper's global": lambda patch: patch.setattr(sys.modules[__name__], "DEEP", 4.0),
    "a helper's default": lambda patch: patch.setattr(helper, "__defaults__", (2.5,)),
    "a helper's default by name": lambda patch: patch.setattr(helper, "__kwdefaults__", {"e": 9.0}),
    "a helper's default by name, in place": lambda patch: patch.setitem(helper.__kwdefaults__, "e", 8.0),
    "a helper's code": lambda patch: patch.setattr(helper, "__code__", other.__code__),
    "a function in a tuple": lambda patch: patch.setattr(sys.modules[__name__], "CHOSEN", (other, helper)),
    "an attribute of a module": lambda patch: patch.setattr(OUTSIDE, "scale", 6.0),
    "an attribute of a module under another name": lambda patch: patch.setattr(OUTSIDE.inner, "shift", 6.0),
    "an object for a module": lambda patch: patch.setattr(OUTSIDE, "inner", types.SimpleNamespace(shift=2.0)),
    "a builtin's name": lambda patch: patch.setattr(sys.modules[__name__], "range", _every_other, raising=False),
}


def _every_other(n):
    return n


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_read_anew(change: str) -> None:
    _agrees(everything, X)
    with pytest.MonkeyPatch.context() as patch:
        CHANGES[change](patch)
        if change == "a builtin's name":  # no part of the language
            with pytest.raises((UnsupportedSyntax, TypeMismatch)):
                everything(X)
        else:
            assert not torch.equal(everything.py(X), everything(X) * 0 + 1e9)
            _agrees(everything, X)
    _agrees(everything, X)


def test_a_value_that_comes_back_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    program = everything.program
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 11.0)
    changed = everything.program
    monkeypatch.setattr(sys.modules[__name__], "SCALE", float("2"))  # the same value, another object
    assert changed is not program and everything.program is program
    _agrees(everything, X)


def test_a_name_of_the_kernels_own_is_not_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    program = everything.program
    monkeypatch.setattr(sys.modules[__name__], "y", 1.0, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "i", 1.0, raising=False)
    assert everything.program is program


def _closure() -> tuple[weft.Kernel, Callable[[Any], None], Callable[[], None]]:
    value: Any = 2.0

    @weft.kernel
    def scaled(x, y: float = 3.0):
        z = torch.empty_like(x)
        for i in range(x.shape[0]):
            z[i] = x[i] * value + y
        return z

    def put(new: Any) -> None:
        nonlocal value
        value = new

    def remove() -> None:
        nonlocal value
        del value

    return scaled, put, remove


def test_closures_and_defaults_of_the_kernel() -> None:
    scaled, put, remove = _closure()
    for value in (2.0, 3.0, 3, True, -0.0, 2.0):
        put(value)
        _agrees(scaled, X)
    scaled.py.__defaults__ = (7.0,)
    torch.testing.assert_close(scaled(X), scaled.py(X))
    torch.testing.assert_close(scaled(x=X), scaled.py(X))
    remove()
    with pytest.raises(NameError, match="value is not defined"):
        scaled(X)
    put(1.0)
    _agrees(scaled, X)


def test_two_kernels_of_one_factory_have_their_own_values() -> None:
    (first, put, _), (second, _, _) = _closure(), _closure()
    put(5.0)
    _agrees(first, X)
    _agrees(second, X)


def test_the_gradient_is_of_the_call_that_was_made() -> None:
    scaled, put, _ = _closure()
    x = X.clone().requires_grad_()
    put(4.0)
    out = scaled(x)
    put(9.0)
    out.sum().backward()
    assert x.grad is not None and x.grad.eq(4.0).all()


def test_the_gradient_has_the_default_dtype_of_the_call() -> None:
    @weft.kernel
    def halves(k):
        total = torch.zeros(k.shape[0])
        for i in range(k.shape[0]):
            total[i] = k[i] / 3
        return total

    x = torch.tensor([1.0, 2.0]).double().requires_grad_()
    torch.set_default_dtype(torch.float64)
    try:
        out = halves(x)
        assert out.dtype == torch.float64
        torch.set_default_dtype(torch.float32)
        (grad,) = torch.autograd.grad(out.sum(), x)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(grad, torch.full_like(x, 1 / 3))
    assert halves(x.detach()).dtype == torch.float32


def test_a_kernel_whose_parameters_change_is_another_operator() -> None:
    def forth(x, y):
        y[0] = x[0]

    def back(x, y):
        x[0] = y[0]

    act = forth

    @weft.kernel
    def outer(x, y):
        act(x, y)

    act = back
    a, b = X.clone(), X.clone() + 1
    outer(a, b)
    assert a[0] == b[0] == X[0] + 1


def test_many_values_are_told_once() -> None:
    scaled, put, _ = _closure()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for value in range(12):
            put(float(value))
            scaled(X)
    messages = [str(w.message) for w in told if "as an argument" in str(w.message)]
    assert len(messages) == 1 and "value" in messages[0] and "scaled" in messages[0]


def test_a_wrapper_is_not_what_it_wraps() -> None:
    import functools

    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(v):
            return function(v) * 2

        return call

    @twice
    def same(v):
        return v

    @weft.kernel
    def doubled(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = same(x[i])
        return y

    _agrees(doubled, X)


@pytest.mark.parametrize("value", [types.SimpleNamespace(a=1), {"a": 1.0}, torch.ones(1), object()])
def test_what_the_language_does_not_know_is_refused_when_it_comes(value: Any) -> None:
    scaled, put, _ = _closure()
    _agrees(scaled, X)
    put(value)
    with pytest.raises((UnsupportedSyntax, TypeMismatch)):
        scaled(X)
    put(3.0)
    _agrees(scaled, X)


@dataclasses.dataclass
class Settings:
    taps: tuple[float, ...] = (0.5, 0.25)
    limit: float = 1.0

    @property
    def double(self) -> float:
        return 2 * self.limit


class Constants:
    WIDTH = 2


def test_what_objects_and_classes_outside_hold_is_read_at_each_call() -> None:
    settings_, more = Settings(), types.SimpleNamespace(inner=Settings(limit=3.0))

    def scaled(given, v):
        return v * given.limit

    @weft.kernel
    def filtered(x):
        y = torch.zeros_like(x)
        for i in range(Constants.WIDTH - 1, len(x)):
            for k, tap in enumerate(settings_.taps):
                y[i] += tap * x[i - k] if settings_ is not None else 0.0
            y[i] = scaled(settings_, y[i]) + more.inner.limit
        return y

    _agrees(filtered, X)
    settings_.taps, more.inner.limit = (2.0, 3.0), 5.0
    _agrees(filtered, X)
    more.inner = Settings(limit=7.0)
    _agrees(filtered, X)
    with pytest.raises(UnsupportedSyntax, match="no attribute double of settings_"):  # it is computed
        weft.kernel(lambda x: x * settings_.double)(X)
    with pytest.raises(UnsupportedSyntax, match="may be compared with None alone"):
        weft.kernel(lambda x: x if settings_ == more else x * 2)(X)


def test_numbers_of_numpy_outside_are_refused_with_what_to_write() -> None:
    numpy = pytest.importorskip("numpy")
    scaled, put, _ = _closure()
    put(numpy.float64(2.0))
    with pytest.raises(TypeMismatch, match=r"use float\(value\)"):
        scaled(X)


@weft.kernel
def filled(x, value):
    return torch.full((x.shape[0],), value)


def test_the_type_of_a_number_is_that_of_each_call() -> None:
    for value in (2.0, 2.0, 2, 2, True, True, 2.0, 3):
        made, want = filled(X, value), filled.py(X, value)
        assert made.dtype == want.dtype and torch.equal(made, want)


# ---------------------------------------------------------------- torch.compile


def test_torch_compile_sees_what_changes() -> None:
    scaled, put, _ = _closure()
    torch.compiler.reset()
    call = torch.compile(lambda x: scaled(x) * 2, backend="aot_eager", fullgraph=True)
    for value in (2.0, 3.0, 4.0, 2.0):
        put(value)
        x = X.clone().requires_grad_()
        out = call(x)
        torch.testing.assert_close(out, scaled.py(X) * 2)
        out.sum().backward()
        assert x.grad is not None and x.grad.eq(2 * value).all()
    torch.compiler.reset()


def test_a_graph_of_what_is_no_more_is_refused() -> None:
    scaled, put, _ = _closure()
    stale = scaled.operator
    put(5.0)
    with pytest.raises(StateChanged, match=r"value has changed[\s\S]*torch.compiler.reset"):
        stale(X, 3.0)
    put(float("2"))  # the same again
    torch.testing.assert_close(stale(X, 3.0), scaled.py(X, 3.0))


def test_a_graph_kept_on_disk_whose_gradient_is_gone_is_told_what_to_do() -> None:
    with pytest.raises(weft.errors.UnknownOperator, match="remedy: remove PyTorch's cache"):
        torch.ops.weft.kernel_adjoint_0123abcd  # noqa: B018
    assert not hasattr(torch.ops.weft, "no_such_kernel")


# ---------------------------------------------------------------- tensors without memory, functions without effects


@weft.kernel
def shifted(x, c):
    y = torch.empty_like(x)
    count = torch.zeros(x.shape[0], dtype=torch.int64)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] + c[j]
            count[i] += j
    return y, count


@weft.kernel
def into(x, c):
    before = torch.empty_like(x)
    for i in range(x.shape[0]):
        before[i] = x[i]
        x[i] = x[i] * c[i]
    return before, x


def test_meta_tensors_give_meta_tensors() -> None:
    x, c = torch.randn(4, 3).t(), torch.randn(4)
    for _ in range(2):
        made = shifted(x.to("meta"), c.to("meta"))
        for m, w in zip(made, shifted(x, c), strict=True):
            assert (m.device.type, m.shape, m.stride(), m.dtype) == ("meta", w.shape, w.stride(), w.dtype)
    tracked = x.to("meta").requires_grad_()
    shifted(tracked, c.to("meta"))[0].sum().backward()
    assert tracked.grad is not None and tracked.grad.device.type == "meta" and tracked.grad.shape == x.shape
    given = c.to("meta")
    assert into(given, given.clone())[1] is given


def test_functionalize() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def part(x):
        v = x.clone()
        before, after = into(v[1:3], x[:2])
        return v * before.sum() + after.sum()

    def argument(x):
        into(x, x.clone())
        return x * 3

    def plain(x):
        return shifted(x.view(2, 2), x[:2])[0] * 2

    for function in (part, argument, plain):
        x, own = torch.arange(4.0), torch.arange(4.0)
        made, want = torch.func.functionalize(function)(x), function(own)
        torch.testing.assert_close((made, x), (want, own))
    graph = make_fx(torch.func.functionalize(part))(torch.arange(4.0))
    torch.testing.assert_close(graph(torch.arange(4.0)), part(torch.arange(4.0)))


# ---------------------------------------------------------------- the text of a function

PROGRAM = """
import torch, weft

def helper(v):
    return v * 2

@weft.kernel
def kernel(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = {}
    return y

def later(v):
    return v + 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Callable[[str], Any], Path]]:
    """A function that imports a module with the given body of the kernel, and the module's file."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "edited_module.py"

    def load(body: str) -> Any:
        path.write_text(PROGRAM.format(body))
        os.utime(path, (1e9, 1e9))  # older than any edit, to the second, which is how Python tells
        sys.modules.pop("edited_module", None)
        importlib.invalidate_caches()
        return importlib.import_module("edited_module")

    yield load, path
    sys.modules.pop("edited_module", None)


def test_a_file_edited_before_the_first_call(module: tuple[Callable[[str], Any], Path]) -> None:
    load, path = module
    loaded = load("helper(x[i])")
    path.write_text(path.read_text().replace("v * 2", "v * 500").replace("helper(x[i])", "x[i] - 100 "))
    torch.testing.assert_close(loaded.kernel(X), X * 2)


def test_a_helper_whose_text_was_edited_before_it_was_read(module: tuple[Callable[[str], Any], Path]) -> None:
    load, path = module
    loaded = load("later(x[i])")  # which is not there yet when the kernel is made
    path.write_text(path.read_text().replace("v + 3", "v + 4"))
    with pytest.raises(SourceMismatch, match=r"the text of later is not what Python runs[\s\S]*importlib.reload"):
        loaded.kernel(X)
    importlib.reload(loaded)
    torch.testing.assert_close(loaded.kernel(X), X + 4)


def test_a_file_that_lost_the_function(module: tuple[Callable[[str], Any], Path]) -> None:
    load, path = module
    loaded = load("later(x[i])")
    path.write_text("x = 1\n")
    with pytest.raises((SourceMismatch, UnsupportedSyntax), match="later"):
        loaded.kernel(X)


def test_every_form_of_function_has_its_text() -> None:
    a, b = 1.0, 2.0

    class Holder:
        @staticmethod
        @weft.kernel
        def inside(x):
            """With a docstring, a closure, a lambda's name and a comprehension's."""
            assert x.dim() == 1
            y = torch.empty_like(x)
            for i in range(x.shape[0]):
                y[i] = x[i] * a + b - (0.0 if x[i] > -0.0 else -0.0)
            return y

    _agrees(Holder.inside, X)


# ---------------------------------------------------------------- copies, threads, processes


class Layer(torch.nn.Module):
    def __init__(self, kernel: weft.Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = torch.nn.Parameter(torch.ones(7, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(x * self.weight)  # type: ignore[no-any-return]


def test_copies_and_pickles_of_modules_that_hold_kernels() -> None:
    layer = Layer(everything)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.kernel is everything
        torch.testing.assert_close(twin(X), layer(X))


def test_first_calls_of_many_threads() -> None:
    scaled, _, _ = _closure()
    barrier, made = threading.Barrier(8), []

    def run() -> None:
        barrier.wait()
        made.append(scaled(X))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    want = scaled.py(X)
    assert len(made) == 8
    for m in made:
        torch.testing.assert_close(m, want)


def test_a_value_changed_by_another_thread_is_the_old_or_the_new_one() -> None:
    scaled, put, _ = _closure()
    values = (2.0, 3.0, 5.0)
    for v in values:
        put(v)
        scaled(X)
    done = threading.Event()

    def change() -> None:
        for k in range(3000):
            put(values[k % 3])
        done.set()

    changer = threading.Thread(target=change)
    changer.start()
    wanted = [X * v + 3.0 for v in values]
    while not done.is_set():
        made = scaled(X)
        assert any(torch.equal(made, w) for w in wanted)
    changer.join()


FORKED = """
import os, sys, torch, weft

@weft.kernel
def kernel(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * 2
    return y

@weft.kernel
def another(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * 3
    return y

x = torch.ones(5)
kernel(x)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    os._exit(0 if kernel(x).eq(2).all() and another(x).eq(3).all() else 1)
sys.exit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(sys, "platform") or sys.platform == "win32", reason="there is no fork")
def test_a_fork_after_the_first_call(tmp_path: Path) -> None:
    script = tmp_path / "forked.py"
    script.write_text(textwrap.dedent(FORKED))
    subprocess.run([sys.executable, script], check=True, timeout=120)


INTERRUPTED = """
import contextlib, os, shutil, signal, subprocess, sys, tempfile, threading, time, torch, weft
import islpy  # which cannot be imported again where that was interrupted
from unittest import mock
from weft.runtime import host
from weft.runtime.include import resolve

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, it is ignored

@weft.kernel
def kernel(x, c):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        h = 0.0
        for j in range(x.shape[1]):
            h = c[i, j] * h + x[i, j]
            y[i, j] = h
    return y

x, c = torch.randn(3, 5), torch.randn(3, 5)
stopped = 0
for delay in (0.01, 0.1, 0.3, 0.6, 1.0):
    timer = threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGINT))
    try:
        timer.start()
        kernel(x, c)
        timer.join()
        time.sleep(0.1)
    except KeyboardInterrupt:
        stopped += 1
    timer.join()
assert stopped
torch.testing.assert_close(kernel(x, c), kernel.py(x, c))

def interrupted(change, name):  # right before and right after a step that makes or removes a directory
    step = getattr(change, name)
    def around(*args, **options):
        os.kill(os.getpid(), signal.SIGINT)
        done = step(*args, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return done
    return mock.patch.object(change, name, around)

for k, (change, name) in enumerate([(tempfile, "mkdtemp"), (shutil, "rmtree"), (subprocess, "Popen")]):
    with interrupted(change, name):
        try:
            source = resolve(f'extern "C" int value() {{ return {k}; }}', "value.cpp")
            host.build(source, "value.cpp")
            time.sleep(0.1)
            raise AssertionError(f"{name} was not interrupted")
        except KeyboardInterrupt:
            pass
    while threading.active_count() > 1:  # the second Ctrl-C ended the wait for what cleans up
        time.sleep(0.01)
left = [f for f in os.listdir(os.environ["TMPDIR"]) if f.startswith("weft-")]
left += [f for _, _, files in os.walk(os.environ["WEFT_CACHE"]) for f in files if "." in f]
assert not left, left
running = []
for process in filter(str.isdigit, os.listdir("/proc")):
    with contextlib.suppress(OSError):  # others end meanwhile
        state, parent, *_ = open(f"/proc/{process}/stat").read().rpartition(")")[2].split()
        running += [process] if parent == str(os.getpid()) and state != "Z" else []
assert not running, running
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_stops_a_first_call_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    (tmp_path / "temporary").mkdir()
    places = {"TMPDIR": str(tmp_path / "temporary"), "WEFT_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, script], check=True, timeout=120, env={**os.environ, **places})


# ---------------------------------------------------------------- any order of changes and calls


class Changing(RuleBasedStateMachine):
    """A kernel whose surroundings change between calls of every kind."""

    @initialize()
    def build(self) -> None:
        self.scaled, self.put, _ = _closure()
        self.patch = pytest.MonkeyPatch()

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    @rule(value=st.sampled_from([2.0, 3, 0.0, -0.0, True, 0.5]))
    def set_closure(self, value: Any) -> None:
        self.put(value)

    @rule(value=st.sampled_from([2.0, 3, 0.25]))
    def set_global(self, value: Any) -> None:
        self.patch.setattr(sys.modules[__name__], "SCALE", value)

    @rule(value=st.sampled_from([(1.0, 2.0), (1, 3), (0.5, 0.5)]))
    def set_pair(self, value: Any) -> None:
        self.patch.setattr(sys.modules[__name__], "PAIR", value)

    @rule(value=st.sampled_from([1.0, 4]))
    def set_in_list(self, value: Any) -> None:
        self.patch.setattr(_Item(LIST, 0), "value", value)

    @rule(value=st.sampled_from([1.5, 2]))
    def set_default(self, value: Any) -> None:
        self.patch.setattr(helper, "__defaults__", (value,))

    @rule(value=st.sampled_from([helper, other]))
    def set_helper(self, value: Any) -> None:
        self.patch.setattr(sys.modules[__name__], "helper", value)

    @rule(value=st.sampled_from([2.0, 6]))
    def set_attribute(self, value: Any) -> None:
        self.patch.setattr(OUTSIDE, "scale", value)

    @rule(
        which=st.booleans(),
        size=st.sampled_from([0, 1, 5]),
        dtype=st.sampled_from([torch.float32, torch.float64]),
        step=st.sampled_from([1, 2]),
        how=st.sampled_from(["plain", "gradient", "no_grad", "inference"]),
    )
    def call(self, which: bool, size: int, dtype: torch.dtype, step: int, how: str) -> None:
        kernel = self.scaled if which else everything
        x = torch.linspace(-1.0, 1.0, size * step).to(dtype)[::step]
        x.requires_grad_(how in ("gradient", "no_grad"))
        with torch.inference_mode(how == "inference"), torch.set_grad_enabled(how != "no_grad"):
            made = kernel(x)
            want = kernel.py(x.detach())
        torch.testing.assert_close(made.detach(), want, equal_nan=True)
        assert made.dtype == want.dtype and made.requires_grad == (how == "gradient")
        if how == "gradient":
            leaf = x.detach().requires_grad_()
            (got,) = torch.autograd.grad(made.sum(), x)
            plain = kernel.py(leaf).sum()
            if plain.requires_grad:  # a loop without iterations leaves the leaf out
                plain.backward()
            torch.testing.assert_close(got, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


@pytest.mark.filterwarnings("ignore:.*as an argument")
def test_any_order_of_changes_and_calls() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    own = settings(max_examples=4, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Changing, settings=own)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*as an argument")
def test_any_order_of_changes_and_calls_for_long() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    own = settings(max_examples=200, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Changing, settings=own)


@pytest.mark.parametrize("module", ["compiler/planning.py", "loops/automatic/renaming.py", "emit/deep/er/cpp.py", "errors.py"])
def test_analyses_on_disk_are_of_this_code(module: str, tmp_path: Path) -> None:
    path = tmp_path / module
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one")
    before = digest_of(tmp_path)
    path.write_text("another")
    assert digest_of(tmp_path) != before
