"""Nests that are several graphs: scans that need sums over the states of others, and scans whose points lie apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from tests.gradients import examined_gradient
from tests.graphs import built
from weft.compiler import planning
from weft.graph.alike import of_their_own
from weft.graph.along import along_memory
from weft.graph.interpret import interpret
from weft.graph.passes import in_turn
from weft.graph.stages import Stages, stages
from weft.graph.tile import NotTiles, Scan, TileGraph, validate
from weft.loops.interpret import _Machine
from weft.loops.names import Names, names_bound_in
from weft.plan.map import MapPlan
from weft.plan.outer_states import OuterPlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def matrix_memory(q, k, v, i, f):
    """The memory of an mLSTM: a matrix a head, with a normaliser, relative to the largest gate so far."""
    heads, length, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        memory = torch.zeros(width, width, dtype=torch.float32, device=q.device)
        norm = torch.zeros(width, dtype=torch.float32, device=q.device)
        largest = 0.0
        for t in range(length):
            after = max(f[h, t] + largest, i[h, t])
            forget = torch.exp(f[h, t] + largest - after)
            add = torch.exp(i[h, t] - after)
            largest = after
            below = 0.0
            for j in range(width):
                norm[j] = forget * norm[j] + add * k[h, t, j]
                below += q[h, t, j] * norm[j]
            for e in range(width):
                total = 0.0
                for j in range(width):
                    memory[e, j] = forget * memory[e, j] + add * k[h, t, j] * v[h, t, e]
                    total += q[h, t, j] * memory[e, j]
                out[h, t, e] = total / max(abs(below), 1.0)
    return out


@weft.kernel
def of_unit_length(q, k, v, decay):
    """Retention, whose outputs are divided by their length: sums over what is taken of the states."""
    heads, length, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        memory = torch.zeros(width, width, dtype=torch.float32, device=q.device)
        for t in range(length):
            taken = torch.empty(width, dtype=torch.float32, device=q.device)
            squares = 0.0
            for e in range(width):
                total = 0.0
                for j in range(width):
                    memory[j, e] = decay[h] * memory[j, e] + k[h, t, j] * v[h, t, e]
                    total += q[h, t, j] * memory[j, e]
                taken[e] = total
                squares += total * total
            for e in range(width):
                out[h, t, e] = taken[e] * torch.rsqrt(squares / width + 1e-6)
    return out


@weft.kernel
def channels_last(u, rate, a, b, c):
    """A selective scan whose points lie apart in memory: channels are along it."""
    batch, length, width = u.shape
    out = torch.empty_like(u)
    for i in range(batch):
        for d in range(width):
            state = torch.zeros(a.shape[1], dtype=torch.float32, device=u.device)
            for t in range(length):
                total = 0.0
                for n in range(a.shape[1]):
                    state[n] = torch.exp(rate[i, t, d] * a[d, n]) * state[n] + rate[i, t, d] * b[i, t, n] * u[i, t, d]
                    total += c[i, t, n] * state[n]
                out[i, t, d] = total
    return out


def tokens(heads: int, length: int, width: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(heads, length, width) for _ in range(3))
    return q, k / k.norm(dim=-1, keepdim=True), v


def gates(heads: int, length: int) -> tuple[Tensor, ...]:
    return torch.randn(heads, length), -torch.rand(heads, length)


def spec(shape: tuple[int, ...], dtype: str = "float32") -> str:
    return f"{dtype}{list(shape)}".replace(" ", "")


def in_graphs(make: Any, found: Any, graph: TileGraph, k: int) -> Stages:
    names = Names.of(found.function)
    names.taken |= names_bound_in(found.nests[k].body) | {a.var for a in found.nests[k].axes}
    return make(graph, found.function, names)  # type: ignore[no-any-return]


def selective(batch: int, length: int, width: int, states: int) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    u, rate = torch.randn(batch, length, width), torch.rand(batch, length, width)
    return u, rate, -torch.rand(width, states), *(torch.randn(batch, length, states) for _ in range(2))


KERNELS: dict[str, tuple[Any, Any, Any]] = {
    "a matrix, its normaliser and the largest so far": (matrix_memory, stages, lambda: (*tokens(2, 4, 3), *gates(2, 4))),
    "what is taken, divided by its length": (of_unit_length, stages, lambda: (*tokens(2, 4, 3), torch.rand(2))),
    "points that lie apart": (channels_last, along_memory, lambda: selective(2, 4, 3, 2)),
}


@pytest.mark.parametrize("as_loops", (False, True), ids=("graphs", "loops"))
@pytest.mark.parametrize("backward", (False, True), ids=("forward", "backward"))
@pytest.mark.parametrize("name", KERNELS)
def test_graphs_one_after_another_mean_what_the_loops_mean(name: str, backward: bool, as_loops: bool) -> None:
    kernel, way, make = KERNELS[name]
    args = [a.double() for a in make()]
    specs = [spec(tuple(a.shape), "float64") for a in args]
    found = (examined_gradient(kernel, *specs) if backward else examine(kernel, tuple(specs))).analysis.schedule
    if backward:
        out = kernel.py(*args)
        args += [out, torch.randn_like(out)]
    function, results = found.function, []
    for in_stages in (False, True):
        arrays = dict(zip(function.parameters, (a.clone() for a in args), strict=True))
        names = {s.name: arrays[s.array].shape[s.axis] for s in function.sizes}
        machine = _Machine(function, arrays, names)
        for array in function.arrays:
            if array.name not in arrays and not array.within:
                machine.allocate(array)
        number = 0
        for k, (nest, graph) in enumerate(zip(found.nests, built(found).graphs, strict=True)):
            assert isinstance(graph, TileGraph)
            own = None
            if in_stages and any(isinstance(v, Scan) for v in graph.values):
                own = in_graphs(way, found, graph, k)
                number += len(own.graphs)
            if own is None:
                machine.run(nest.in_loops())
                continue
            for array in own.memory:
                machine.allocate(array)
            whole = replace(function, arrays=(*function.arrays, *own.memory))
            for stage in own.graphs:
                validate(stage, whole)
                if not as_loops:
                    interpret(stage, whole, machine.arrays, names)
                    continue
                made = in_turn(stage, whole, Names.of(whole))
                for array in made.memory:
                    machine.allocate(array)
                for statements in made.nests:
                    machine.run(statements)
        assert number > 1 or not in_stages
        results.append([machine.arrays[r] for r in function.results])
    for want, got in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


def test_rows_and_columns_of_a_square_are_told_apart() -> None:
    found = examined_gradient(matrix_memory, *(spec((2, 4, 3)),) * 3, *(spec((2, 4)),) * 2).analysis.schedule
    graph = of_their_own(built(found).only)
    assert [a.name.split("_")[0] for a in graph.axes].count("j") == 2
    assert {"Moved"} & {type(v).__name__ for v in graph.values} == set()


def test_states_and_their_transposes_have_no_axes_of_their_own() -> None:
    @weft.kernel
    def with_its_transpose(k, v):
        length, width = k.shape
        out = torch.empty(length, width, dtype=k.dtype)
        memory = torch.zeros(width, width, dtype=torch.float32, device=k.device)
        for t in range(length):
            for e in range(width):
                for j in range(width):
                    memory[e, j] = 0.5 * memory[e, j] + k[t, j] * v[t, e]
            for e in range(width):
                total = 0.0
                for j in range(width):
                    total += memory[e, j] * memory[j, e]
                out[t, e] = total
        return out

    graph = built(examine(with_its_transpose, (spec((4, 3)),) * 2).analysis.schedule).only
    with pytest.raises(NotTiles, match="read at other points"):
        of_their_own(graph)


def test_all_that_grows_by_outer_products_is_products_of_matrices() -> None:
    specs = (*(spec((64, 4096, 64)),) * 3, *(spec((64, 4096)),) * 2)
    for found in (examine(matrix_memory, specs), examined_gradient(matrix_memory, *specs)):
        plans = [one.variant.plan for one in found.launches()]
        assert any(isinstance(p, OuterPlan) for p in plans)
        assert not any(isinstance(p, ThreadPlan) for p in plans)
        assert not any(one.steps for one in found.launches())


def in_steps(q: Tensor, k: Tensor, v: Tensor, *gates: Tensor) -> Tensor:
    """The same in PyTorch, a step for each point: `matrix_memory` of two gates, `of_unit_length` of a decay."""
    heads, length, width = q.shape
    memory, norm, largest = q.new_zeros(heads, width, width), q.new_zeros(heads, width), q.new_zeros(heads)
    out = []
    for t in range(length):
        forget, add, after = gates[0][:, None], 1.0, largest
        if len(gates) == 2:
            after = torch.maximum(gates[1][:, t] + largest, gates[0][:, t])
            forget = torch.exp(gates[1][:, t] + largest - after)[:, None]
            add = torch.exp(gates[0][:, t] - after)[:, None]
        largest, own = after, k[:, t] * add
        memory = forget[..., None] * memory + own[..., None] * v[:, t, None]
        norm = forget * norm + own
        taken = torch.einsum("hj,hje->he", q[:, t], memory)
        below = (q[:, t] * norm).sum(-1, keepdim=True).abs().clamp(min=1.0)
        out.append(taken / below if len(gates) == 2 else taken * torch.rsqrt(taken.square().mean(-1, keepdim=True) + 1e-6))
    return torch.stack(out, 1)


def test_channels_are_turned_for_scans_there_and_back() -> None:
    big = ((8, 2048, 2048), (8, 2048, 2048), (2048, 16), (8, 2048, 16), (8, 2048, 16))
    plans = [type(one.variant.plan) for one in examined_gradient(channels_last, *map(spec, big)).launches()]
    assert plans.index(MapPlan) < plans.index(StatePlan) < len(plans) - 1 - plans[::-1].index(MapPlan)


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "width"), ((matrix_memory, 16), (matrix_memory, 64), (of_unit_length, 64)))
def test_a_memory_with_a_norm_on_a_gpu(kernel: Any, width: int) -> None:
    own = gates(2, 300) if kernel is matrix_memory else (torch.rand(2) * 0.3 + 0.6,)
    args = [a.cuda().requires_grad_() for a in (*tokens(2, 300, width), *own)]
    exact = [a.detach().double().requires_grad_() for a in args]
    out, want = kernel(*args), in_steps(*exact)
    seed = torch.randn_like(out)
    found, theirs = torch.autograd.grad(out, args, seed), torch.autograd.grad(want, exact, seed.double())
    for got, expected in zip((out, *found), (want, *theirs), strict=True):
        error = (got.double() - expected).abs().max() / expected.abs().max()
        assert error < 2e-5, error


@pytest.mark.gpu
def test_turned_channels_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    args = [a.cuda().requires_grad_() for a in selective(2, 300, 75, 5)]
    u, rate, a, b, c = exact = [x.detach().double().requires_grad_() for x in args]
    state, steps = u.new_zeros(2, 75, 5), []
    for t in range(300):
        state = torch.exp(rate[:, t, :, None] * a) * state + rate[:, t, :, None] * b[:, t, None] * u[:, t, :, None]
        steps.append((state * c[:, t, None]).sum(-1))
    out, want = channels_last(*args), torch.stack(steps, 1)
    seed = torch.randn_like(out)
    found, theirs = torch.autograd.grad(out, args, seed), torch.autograd.grad(want, exact, seed.double())
    for got, expected in zip((out, *found), (want, *theirs), strict=True):
        error = (got.double() - expected).abs().max() / expected.abs().max()
        assert error < 2e-5, error
