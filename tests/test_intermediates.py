"""What launches of a call leave for each other: where it lies, how long, and that nobody finds another one's values there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from weft.compiler import Workspace, intermediates, layouts, workspace_of
from weft.loops.ir import Array, Const, Function
from weft.loops.types import FLOAT32, INT64
from weft.plan.facts import Geometry
from weft.pytorch.call import plans as calls
from weft.pytorch.inspection import examine
from weft.pytorch.simulated import simulate_call

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def turned(x, g):
    """Columns and rows in turn: each needs all of the one before."""
    n, m = x.shape
    a = torch.empty_like(x)
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += x[i, j]
            a[i, j] = s
    b = torch.empty_like(x)
    for j in range(m):
        s = 0.0
        for i in range(n):
            s += a[i, j] * g[j]
            b[i, j] = s
    c = torch.empty_like(x)
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += b[i, j]
            c[i, j] = s
    y = torch.empty_like(x)
    for j in range(m):
        s = 0.0
        for i in range(n):
            s += c[i, j]
            y[i, j] = s
    return y


def turned_by_torch(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return (x.cumsum(1) * g).cumsum(0).cumsum(1).cumsum(0)


@weft.kernel
def forwarded(x):
    """Nobody reads what the first loop stores: its values go on in registers."""
    n, m = x.shape
    p = torch.empty_like(x)
    y = torch.empty_like(x)
    for i in range(n):
        for j in range(m):
            p[i, j] = x[i, j] * 2.0
        s = 0.0
        for j in range(m):
            s += p[i, j]
            y[i, j] = s
    return y


@weft.kernel
def two_products(x, v, w):
    return (x @ v).tanh() @ w


@weft.kernel
def product(x, w):
    return x @ w


def memory_of(kernel: Any, *args: Any) -> Workspace:
    found = examine(kernel, args)
    return workspace_of(found.analysis.function, found.laid_out(), found.launches())


def launched(kernel: Any, *args: Any) -> int:
    return len(examine(kernel, args).launches())


def halves(rows: int, columns: int, width: int = 0) -> torch.Tensor:
    """Rows that begin `width` elements apart, infinities between them."""
    whole = torch.full((rows, max(columns, width)), torch.inf, dtype=torch.float16)
    return whole[:, :columns].copy_(torch.randn(rows, columns) / 8)


def agrees(kernel: Any, args: tuple[torch.Tensor, ...], wanted: torch.Tensor) -> None:
    """A call as CUDA on the CPU is clean of findings and right."""
    ran = simulate_call(kernel.program, args, "sm_90a", 0, "call")
    assert not any(one.findings for launch in ran.launches for one in launch.simulations)
    torch.testing.assert_close(ran.arrays[ran.results[0]].float(), wanted, rtol=2e-3, atol=2e-3)


# ---------------------------------------------------------------- by lifetime


def test_bytes_are_others_before_and_after() -> None:
    x, g = torch.randn(64, 48), torch.randn(48)
    found = memory_of(turned, x, g)
    large = {t.name: t for t in found.tenants if t.bytes == 64 * 48 * 4}
    assert {*large} == {"a", "b", "c"} and large["a"].last < large["c"].first
    assert found.offsets["a"] == found.offsets["c"] != found.offsets["b"]
    assert found.size == found.placement.bound < found.placement.apart


def test_calls_that_share_bytes_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call, and quick ones, and gradients, which have more of it."""
    sizes = []
    shared = calls.workspace

    def seen(*args: Any, **more: Any) -> Workspace:
        sizes.append(shared(*args, **more))
        return sizes[-1]

    monkeypatch.setattr(calls, "workspace", seen)
    x, g = torch.rand(13, 11), torch.rand(11)
    for _ in range(3):
        torch.testing.assert_close(turned(x, g), turned_by_torch(x, g))
    for t in (x, g):
        t.requires_grad_()
    for _ in range(2):
        made, wanted = turned(x, g), turned_by_torch(x, g)
        weights = torch.rand_like(made)
        own, exact = (torch.autograd.grad((r * weights).sum(), (x, g)) for r in (made, wanted))
        torch.testing.assert_close(own, exact)
    assert len(sizes) >= 2 and any(0 < s.size < s.placement.apart for s in sizes)


def test_what_is_0_at_first_is_cleared_before_it_is_used() -> None:
    """Little of it before all launches; much right before its first one, so that it may have been another one's."""

    def made(elements: int) -> Workspace:
        arrays = tuple(Array(n, FLOAT32, (Const(elements, INT64),), "local") for n in ("a", "b"))
        zero = Array("z", FLOAT32, (Const(elements, INT64),), "local", fill=Const(0.0, FLOAT32))
        function = Function("f", (), (), (), (*arrays, zero), (), ())
        geometry = dict.fromkeys("abz", Geometry(FLOAT32, (elements,), (1,), 0))
        return intermediates.workspace(function, geometry, [{"a"}, {"a", "b"}, {"b", "z"}], [], clears=True)

    little, much = made(64), made(intermediates.MUCH)
    assert [*little.cleared] == [0] and [*much.cleared] == [2]
    assert much.offsets["z"] == much.offsets["a"] and little.offsets["z"] not in (little.offsets["a"], little.offsets["b"])


def test_what_nobody_reads_is_not_stored() -> None:
    x = torch.randn(8, 40)
    assert not memory_of(forwarded, x).tenants and "float* __restrict__ p" not in forwarded.source(x, arch="cpu")
    torch.testing.assert_close(forwarded(x), (2 * x).cumsum(1))


def test_the_explanation_tells_how_long_each_is_there() -> None:
    text = str(turned.explain(torch.randn(64, 48), torch.randn(48), detail=True))
    told = text.partition("Memory that launches share\n")[2]
    assert told.startswith("  24.6 KB in one allocation, 36.9 KB if each had its own\n")
    assert "a  12.3 KB at 0       launches 1 to 2\n" in told and "c  12.3 KB at 0       launches 3 to 4" in told


# ---------------------------------------------------------------- rows that begin packets


@pytest.mark.usefixtures("separate_launches")
def test_rows_that_a_product_takes_are_stored_from_packets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are bytes enough; else a launch packs them first."""
    args = halves(72, 16), halves(16, 23, 24), halves(23, 72)
    packing = launched(two_products, *args)
    monkeypatch.setattr(layouts, "WORTH", 0)
    assert launched(two_products, *args) == packing - 1
    agrees(two_products, args, (args[0].float() @ args[1].float()).half().float().tanh().half().float() @ args[2].float())


def test_rows_of_arguments_that_begin_packets_are_not_packed() -> None:
    """Nothing of what is between them counts."""
    padded, dense = (halves(80, 71, 72), halves(71, 43, 48)), (halves(80, 71), halves(71, 43))
    assert (launched(product, *padded), launched(product, *dense)) == (1, 3)
    agrees(product, padded, padded[0].float() @ padded[1].float())


# ---------------------------------------------------------------- on a GPU


@weft.kernel
def counted(x):
    """Counters and results that are 0 at first; gradients have more of them."""
    n, m = x.shape
    total = torch.zeros(16, dtype=x.dtype, device=x.device)
    for i in range(n):
        for j in range(m):
            total[j % 16] += x[i, j]
    y = torch.zeros_like(x)
    for i in range(n):
        s = 0.0
        for j in range(m):
            s += x[i, j] * total[j % 16]
            y[i, j] += s
    return y


@pytest.mark.gpu
def test_graphs_capture_what_is_cleared() -> None:
    """Launched again, in a thread of autograd's too, which has no context of its own."""
    x = torch.rand(64, 512, device="cuda", requires_grad=True)
    own = torch.cuda.Stream()

    def called() -> tuple[torch.Tensor, torch.Tensor]:
        y = counted(x)
        return y, torch.autograd.grad(y.sum(), x)[0]

    with torch.cuda.stream(own):
        for _ in range(3):
            called()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=own):
        made = called()
    for _ in range(3):
        with torch.no_grad():
            x.uniform_()
        graph.replay()
        torch.cuda.synchronize()
        exact = x.detach().double().requires_grad_()
        total = exact.reshape(64, 32, 16).sum((0, 1)).repeat(32)
        y = (exact * total).cumsum(1)
        wanted = y, torch.autograd.grad(y.sum(), exact)[0]
        for a, b in zip(made, wanted, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
def test_calls_one_after_another_find_nothing_of_each_other() -> None:
    """Launches that begin early, of calls whose intermediates lie where those of the call before lay."""
    torch.manual_seed(0)
    sets = [tuple(t.cuda() for t in (torch.rand(512, 384), torch.rand(384))) for _ in range(4)]
    wanted = [turned(*given) for given in sets]
    torch.cuda.synchronize()
    made = [turned(*given) for _ in range(50) for given in sets]
    assert all(torch.equal(a, wanted[k % 4]) for k, a in enumerate(made))
    for a, given in zip(wanted, sets, strict=True):
        torch.testing.assert_close(a.double(), turned_by_torch(*(t.double() for t in given)), rtol=1e-4, atol=1e-3)
