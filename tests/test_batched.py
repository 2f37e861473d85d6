"""Kernels under torch.vmap: what calls for each element of the batch would give, in the launches of one call."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import weft
from tests import kernels_for_tests
from tests.examples import examples
from tests.fuzz_programs import arguments, compiled, generate
from tests.gradients import draw
from tests.test_kernels_meaning import ORACLES, inputs
from weft.errors import OutOfRange, OverlapError, StateChanged, UnsupportedSyntax, WeftError
from weft.kernels import LIBRARY
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.batched import batched
from weft.loops.interpret import interpret
from weft.loops.ir import For
from weft.pytorch.call import argument_types

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def scaled(x, alpha: torch.Tensor, beta: float):
    """A tensor without dimensions beside a number."""
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = alpha * x[i] + beta
    return y


@weft.kernel
def in_parts(x, w):
    """Statements that share no scalar, a number between them that does, and arrays that are not returned."""
    rows, length = x.shape
    y = torch.empty_like(x)
    sums = torch.zeros(rows, dtype=x.dtype)
    for i in range(rows):
        for j in range(length):
            sums[i] += x[i, j] * w[j]
    total = 0.0
    for j in range(length):
        total = total + w[j]
    half = rows // 2
    for i in range(rows):
        for j in range(length):
            y[i, j] = x[i, j] / (1 + sums[i] * sums[i]) + total * (i - half)
    return y, sums[0]


@weft.kernel
def with_local_states(x):
    """An array of its own for every iteration, and one for the whole call."""
    rows, length = x.shape
    y = torch.empty_like(x)
    before = torch.zeros(4, dtype=x.dtype)
    for i in range(rows):
        states = torch.zeros(2, dtype=x.dtype)
        for j in range(length):
            states[j % 2] += x[i, j]
            y[i, j] = states[0] - states[1] + before[j % 4]
        before[i % 4] += states[0]
    return y


@weft.kernel
def searched(x, limit: torch.Tensor):
    """It ends at another place in each element."""
    y = torch.zeros_like(x)
    for i in range(len(x)):
        if x[i] > limit:
            break
        y[i] = 2 * x[i]
    else:
        return torch.full_like(x, 7.0)
    return y


@weft.kernel
def picked(table, index):
    y = torch.empty(index.shape[0], table.shape[1], dtype=table.dtype)
    for i in range(index.shape[0]):
        y[i, :] = table[index[i], :]
    return y


@weft.kernel
def wrapping(x):
    y = torch.empty_like(x)
    for i in range(len(x)):
        y[i] = x[i - 1] + x[i - 2]
    return y


@weft.kernel
def viewed(x, heads: int):
    length, channels = x.shape
    y = torch.empty_like(x)
    q, z = x.view(length, heads, -1), y.view(length * heads, -1)
    for l in range(length):
        for h in range(heads):
            for e in range(q.shape[-1]):
                z[l * heads + h, e] = q[l, h, e] * (h + 1)
    return y


@weft.kernel
def updated(x, w):
    """Writes into x, and returns it and something new."""
    for i in range(len(x)):
        x[i] += w[i]
    return x, x * 2


def _index(*shape: int) -> Tensor:
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(3))


# A kernel, its arguments for one element of a batch of b, and those that have to carry the batch.
CASES: dict[str, tuple[Any, Callable[[int], tuple[Any, ...]], tuple[int, ...]]] = {
    **{name: (kernel, lambda b, name=name: tuple(inputs(name, (3, 5))), ()) for name, kernel in LIBRARY.items()},
    **{
        name: (getattr(kernels_for_tests, name), lambda b, k=k: tuple(draw(3, 4, seed=s) for s in range(k)), ())
        for name, k in (("state_and_last", 2), ("running_max_and_sum", 1), ("column_sums", 1), ("neighbours", 1),
                        ("triangle", 1), ("reference_loop", 2), ("cloned_loop", 2))
    },  # fmt: skip
    "matmul": (kernels_for_tests.matmul, lambda b: (draw(3, 4), draw(4, 2)), ()),
    "scaled": (scaled, lambda b: (draw(5), torch.tensor(1.5, dtype=torch.float64), 0.25), ()),
    "in parts": (in_parts, lambda b: (draw(3, 4), draw(4)), ()),
    "with local states": (with_local_states, lambda b: (draw(3, 5),), ()),
    "searched": (searched, lambda b: (draw(6), torch.tensor(0.5, dtype=torch.float64)), ()),
    "picked": (picked, lambda b: (draw(4, 3), _index(5)), ()),
    "wrapping": (wrapping, lambda b: (draw(5),), ()),
    "viewed": (viewed, lambda b: (draw(2, 6), 3), ()),
    "updated": (updated, lambda b: (draw(4), draw(4, seed=1)), (0,)),
}


def batch_of(a: Any, dim: int, size: int, seed: int) -> Tensor:
    """A tensor with a batch of variations of `a` along a dimension."""
    order = random.Random(seed)
    made = [a if a.dtype is torch.int64 else a * (k + 1) + order.random() for k in range(size)]
    return torch.stack(made, dim) if made else a.new_empty([*a.shape[:dim], 0, *a.shape[dim:]])


def wide(args: Sequence[Any], in_dims: Sequence[int | None], size: int, seed: int = 0) -> list[Any]:
    """The arguments of a batch, made of those of one element."""
    given = enumerate(zip(args, in_dims, strict=True))
    return [a if d is None else batch_of(a, d, size, seed + k) for k, (a, d) in given]


def one_by_one(function: Callable[..., Any], in_dims: Sequence[int | None], args: Sequence[Any], size: int) -> list[Tensor]:
    """The results of a call for each element, stacked."""
    calls = []
    for k in range(max(size, 1)):
        def element(a: Any, d: int | None, k: int = k) -> Any:
            if d is None:
                return a
            return a.select(d, k) if size else a.new_zeros([*a.shape[:d], *a.shape[d + 1 :]])

        made = function(*(element(a, d) for a, d in zip(args, in_dims, strict=True)))
        calls.append(made if isinstance(made, tuple) else (made,))
    return [torch.stack([r.detach() for r in results])[:size] for results in zip(*calls, strict=True)]


def tensors(made: Any) -> tuple[Tensor, ...]:
    return made if isinstance(made, tuple) else (made,)


def assert_is_batched(kernel: Any, in_dims: Sequence[int | None], args: Sequence[Any], size: int, out_dim: int = 0) -> None:
    ours, theirs = ([a.clone() if isinstance(a, Tensor) else a for a in args] for _ in range(2))
    want = one_by_one(kernel.py, in_dims, theirs, size)
    out = [min(out_dim, w.dim() - 1) for w in want]
    found = tensors(torch.vmap(kernel, tuple(in_dims), tuple(out) if len(out) > 1 else out[0])(*ours))
    for f, w, d in zip(found, want, out, strict=True):
        torch.testing.assert_close(f.movedim(d, 0), w)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, Tensor):
            torch.testing.assert_close(a, b)


@st.composite
def calls(draws: st.DrawFn) -> tuple[str, tuple[int | None, ...], int, int, int]:
    name = draws(st.sampled_from(sorted(CASES)))
    _, args, needed = CASES[name]
    dims: list[int | None] = []
    for k, a in enumerate(args(0)):
        options: list[int | None] = list(range(a.dim() + 1)) if isinstance(a, Tensor) else [None]
        dims.append(draws(st.sampled_from(options if k in needed else [*dict.fromkeys((*options, None))])))
    if all(d is None for d in dims):
        dims[0] = 0
    return name, tuple(dims), draws(st.integers(0, 3)), draws(st.integers(0, 2)), draws(st.integers(0, 9))


@pytest.mark.parametrize("name", CASES)
def test_the_batch_may_be_any_axis(name: str) -> None:
    """What the function makes is strided as for each element alone: a view of it that merges axes is one here too."""
    kernel, make, _ = CASES[name]
    for dim in (1, 2, 3):
        in_dims = [min(dim, a.dim()) if isinstance(a, Tensor) else None for a in make(3)]
        assert_is_batched(kernel, in_dims, wide(make(3), in_dims, 3), 3)


@given(calls())
def test_a_batch_is_a_call_for_each_element(call: tuple[str, tuple[int | None, ...], int, int, int]) -> None:
    name, in_dims, size, out_dim, seed = call
    kernel, make, _ = CASES[name]
    args = wide(make(size), in_dims, size, seed)
    assert_is_batched(kernel, in_dims, args, size, out_dim)


@pytest.mark.parametrize("name", CASES)
def test_every_argument_carries_the_batch(name: str) -> None:
    kernel, make, _ = CASES[name]
    in_dims = [0 if isinstance(a, Tensor) else None for a in make(3)]
    args = wide(make(3), in_dims, 3)
    assert_is_batched(kernel, in_dims, args, 3)


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_is_what_vmap_of_pytorch_gives(name: str) -> None:
    args = inputs(name, (3, 5))
    in_dims = tuple(0 if isinstance(a, Tensor) else None for a in args)
    batch = [torch.stack([a, 2 * a, -a]) if isinstance(a, Tensor) else a for a in args]
    torch.testing.assert_close(torch.vmap(LIBRARY[name], in_dims)(*batch), torch.vmap(ORACLES[name], in_dims)(*batch))


# ---------------------------------------------------------------- one launch


class Operators(TorchDispatchMode):
    """The calls of kernels that come to the dispatcher's end."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "weft":
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_batch_is_one_call() -> None:
    x, c = draw(7, 3, 5), draw(7, 3, 5, seed=1)
    linrec = LIBRARY["linrec"]
    with Operators() as seen:
        torch.vmap(linrec)(x, c)
        torch.vmap(torch.vmap(scaled, (0, None, None)), (0, 0, None))(x, c[:, 0, 0], 0.5)
        torch.vmap(torch.func.grad(lambda x, c: linrec(x, c).sum()))(x, c)
    kinds = [name.split("_batched")[0] for name in seen.names]
    assert kinds == ["linrec", "scaled", "linrec", "linrec_adjoint"]
    assert all("_batched" in name for name in seen.names)


def test_the_kernels_of_a_batch_are_those_of_one_element(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.runtime.host import HostKernel

    launched: list[int] = []
    launch = HostKernel.launch
    monkeypatch.setattr(HostKernel, "launch", lambda self, *values: launched.append(1) or launch(self, *values))
    for name in ("softmax", "in parts", "searched", "rms_norm"):
        kernel, make, _ = CASES[name]
        args = make(9)
        launched.clear()
        kernel(*args)
        once = len(launched)
        batch = [torch.stack([a] * 9) if isinstance(a, Tensor) else a for a in args]
        launched.clear()
        torch.vmap(kernel, tuple(0 if isinstance(a, Tensor) else None for a in args))(*batch)
        assert 0 < len(launched) <= once


@examples(4)  # an analysis takes a second
@given(st.integers(0, 10**9))
def test_the_batch_of_a_random_program_is_parallel(seed: int) -> None:
    program = generate(seed)
    function = compiled(program.source, f"<program {seed} in a batch>")
    args = arguments(program, {"n": 3, "m": 4, "d": 2})
    try:
        parsed = parse(function, dict(zip(program.parameters, argument_types(read_signature(function), args), strict=True)))
    except WeftError:
        return
    order = random.Random(seed)
    tensor = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
    written = {a.name for a in parsed.arrays if a.role == "inout"}
    carried = [k for k in tensor if program.parameters[k] in written or order.random() < 0.6] or tensor
    size = order.randint(0, 3)
    calls = [[a.clone() if k in carried else a for k, a in enumerate(args)] for _ in range(size)]
    for call, k in itertools.product(calls, carried):
        call[k] *= order.randint(0, 2)
    batch = list(args)
    for k in carried:
        batch[k] = torch.stack([call[k] for call in calls]) if size else args[k].new_empty((0, *args[k].shape))

    made = batched(parsed, frozenset(program.parameters[k] for k in carried))
    loops = {s.var for s in made.body if isinstance(s, For)}
    found = schedule(made)
    assert all(v.kind == "parallel" for v in found.loops if v.var in loops)
    assert all(nest.axes for nest in found.nests)
    try:
        want = [interpret(parsed, *call) for call in calls]
        got = interpret(made, *batch)
    except (IndexError, ArithmeticError, ValueError):
        return
    for k, g in enumerate(got if size else ()):
        torch.testing.assert_close(g, torch.stack([w[k] for w in want]), equal_nan=True)
    for k in carried if size else ():
        torch.testing.assert_close(batch[k], torch.stack([call[k] for call in calls]), equal_nan=True)


# ---------------------------------------------------------------- with other transforms


def _loss(f: Callable[..., Any]) -> Callable[..., Tensor]:
    return lambda *args: tensors(f(*args))[0].square().sum()


def calls_in_turn(f: Callable[..., Any], in_dims: Any = 0, chunk_size: int | None = None) -> Callable[..., Any]:
    """What torch.vmap means."""

    def call(*args: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        made = [f(*(a if d is None else a.select(d, k) for a, d in zip(args, dims, strict=True))) for k in range(size)]
        return tuple(map(torch.stack, zip(*made, strict=True))) if isinstance(made[0], tuple) else torch.stack(made)

    return call


Function = Callable[..., Any]
DERIVED: dict[str, Callable[[Function, Function, Tensor, Tensor], Any]] = {
    "gradients of samples": lambda vmap, f, x, w: vmap(torch.func.grad(_loss(f), (0, 1)), (0, None))(x, w),
    "gradient of a batch": lambda vmap, f, x, w: torch.func.grad(_loss(vmap(f, (0, None))), (0, 1))(x, w),
    "backward of a batch": lambda vmap, f, x, w: torch.autograd.grad(
        _loss(vmap(f, (0, None)))(x.requires_grad_(), w.requires_grad_()), (x, w)
    ),
    "second derivatives of samples": lambda vmap, f, x, w: vmap(
        torch.func.hessian(lambda w, x: _loss(f)(x, w)), (None, 0)
    )(w, x),
    "gradient of gradients of samples": lambda vmap, f, x, w: torch.func.grad(
        lambda w: vmap(torch.func.grad(_loss(f)), (0, None))(x, w).square().sum()
    )(w),
    "jvp of a batch": lambda vmap, f, x, w: torch.func.jvp(vmap(f, (0, None)), (x, w), (x.cos(), w.cos()))[1],
    "batch of jvps": lambda vmap, f, x, w: vmap(
        lambda x: torch.func.jvp(lambda w: tensors(f(x, w))[0], (w,), (w.cos(),))[1]
    )(x),
    "batch of batches": lambda vmap, f, x, w: vmap(vmap(f, (None, 0)), (0, None))(x, torch.stack([w, 2 * w, -w])),
    "chunks": lambda vmap, f, x, w: vmap(f, (0, None), chunk_size=2)(x, w),
}


@weft.kernel
def weighted_states(x, w):
    """A recurrence with coefficients that all samples share."""
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = torch.tanh(w[l]) * h + x[r, l] * w[l]
            y[r, l] = h
    return y


@pytest.mark.parametrize("name", DERIVED)
@pytest.mark.parametrize("kernel", [weighted_states, in_parts], ids=["weighted_states", "in_parts"])
def test_batches_among_other_transforms(name: str, kernel: weft.Kernel) -> None:
    x, w = draw(3, 2, 4), draw(4, seed=1)
    found = DERIVED[name](torch.vmap, kernel, x.clone(), w.clone())
    want = DERIVED[name](calls_in_turn, kernel.py, x.clone(), w.clone())
    torch.testing.assert_close(found, want)


def test_a_compiled_batch() -> None:
    x, w = draw(3, 2, 4), draw(4, seed=1)

    def program(x: Tensor, w: Tensor) -> Tensor:
        return torch.vmap(weighted_states, (0, None))(x, w) * 2

    made = torch.compile(program, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(made(x, w), 2 * torch.stack([weighted_states.py(t, w) for t in x]))
    want = torch.autograd.grad(program(x, w.requires_grad_()).square().sum(), w)
    torch.testing.assert_close(torch.autograd.grad(made(x, w).square().sum(), w), want)


# ---------------------------------------------------------------- what is refused


def test_what_all_elements_share_is_not_written() -> None:
    with pytest.raises(OverlapError, match=r"updated writes into x, which all[\s\S]*remedy: give x"):
        torch.vmap(updated, (None, 0))(draw(4), draw(2, 4))
    with pytest.raises(OverlapError, match="two of its elements share memory"):
        torch.vmap(updated)(draw(4).expand(2, 4), draw(2, 4))
    square = draw(4, 4)
    with pytest.raises(OverlapError, match="shares memory with it"):
        torch.vmap(updated, (0, None))(square, square[1])

    @weft.kernel
    def summed(x, w):
        for i in range(len(x)):
            x[i] += w[i, 0]

    with pytest.raises(OverlapError, match=r"writes into x, and w is the same tensor[\s\S]*w\.clone"):
        torch.vmap(summed, (0, None))(square, square)


def test_an_argument_that_is_another_one() -> None:
    x, y = draw(3, 4), draw(3, 4)
    torch.vmap(updated)(x, x)
    torch.testing.assert_close(x, 2 * y)


def test_numbers_of_elements_are_no_numbers() -> None:
    @weft.kernel
    def counted(x):
        count = 0
        for i in range(len(x)):
            if x[i] > 0:
                count += 1
        return count

    with pytest.raises(UnsupportedSyntax, match=r"counted returns a number[\s\S]*remedy: return a tensor"):
        torch.vmap(counted)(draw(3, 4))


def test_faults_are_those_of_one_element() -> None:
    @weft.kernel
    def beyond(x):
        y = torch.empty_like(x)
        for i in range(len(x)):
            y[i] = x[i + 1]
        return y

    with pytest.raises(OutOfRange, match="reads x outside"):
        torch.vmap(beyond)(draw(3, 4))
    with pytest.raises(IndexError):
        torch.vmap(picked)(draw(2, 4, 3), torch.tensor([[0, 1], [2, 9]]))


_OFFSET = 1.0


def _moved(x):
    return x + _OFFSET


@weft.kernel
def moved_twice(x: torch.Tensor):
    return _moved(x) + _OFFSET


def test_a_batch_is_of_the_program_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(3, 4)
    made = torch.compile(lambda x: torch.vmap(moved_twice)(x), backend="aot_eager", fullgraph=True)
    for call in (torch.vmap(moved_twice), made):
        torch.testing.assert_close(call(x), x + 2)
    monkeypatch.setattr(sys.modules[__name__], "_OFFSET", 2.0)
    for call in (torch.vmap(moved_twice), made):
        torch.testing.assert_close(call(x), x + 4)
    monkeypatch.setattr(_moved, "__code__", (lambda x: x - 1.0).__code__)
    with pytest.raises(StateChanged, match="called from a graph"):
        made(x)


# ---------------------------------------------------------------- layouts


def test_no_copies_are_made_of_strided_batches() -> None:
    x = draw(5, 3, 4)
    seen: list[tuple[int, ...]] = []

    class Strides(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.namespace == "weft":
                seen.append(args[0].stride())
            else:
                assert func.is_view or "empty" in func.__name__, func
            return func(*args, **(kwargs or {}))

    for dim in range(3):
        w = draw(x.movedim(dim, 0).shape[-1])
        with Strides():
            torch.vmap(weighted_states, (dim, None))(x, w)
    assert seen == [x.movedim(d, 0).stride() for d in range(3)]


@pytest.mark.gpu
def test_batches_on_a_gpu() -> None:
    for (name, (kernel, make, _)), dim in itertools.product(CASES.items(), (0, 1)):
        args = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in make(5)]
        in_dims = [min(dim, a.dim()) if isinstance(a, Tensor) else None for a in args]
        batch = wide(args, in_dims, 5)
        want = one_by_one(kernel.py, in_dims, [a.clone() if isinstance(a, Tensor) else a for a in batch], 5)
        own = [a.cuda() if isinstance(a, Tensor) else a for a in batch]
        found = tensors(torch.vmap(kernel, tuple(in_dims))(*own))
        for f, w in zip(found, want, strict=True):
            torch.testing.assert_close(f.cpu(), w, rtol=1e-4, atol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.gpu
def test_a_batch_is_one_launch_on_a_gpu() -> None:
    x, c = (torch.randn(64, 128, device="cuda") for _ in range(2))
    torch.vmap(LIBRARY["linrec"])(x, c)
    captured = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(captured):
        torch.vmap(LIBRARY["linrec"])(x, c)
    status, _, nodes = pytest.importorskip("cuda.bindings.runtime").cudaGraphGetNodes(captured.raw_cuda_graph())
    assert (int(status), nodes) == (0, 1)
