"""Sequence mixers as papers write them, executed as CUDA on the CPU: what each found wrong once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests.gradients import examined_gradient
from weft.compiler import kernels, planning
from weft.plan.recurrence import RecurrencePlan
from weft.pytorch.inspection import examine

pytestmark = pytest.mark.usefixtures("quickly_compiled")


@weft.kernel
def bonus(r, k, v, w, u):
    """RWKV's sixth: states that decay by their own width, and a bonus for the token itself."""
    batch, length, heads, width = r.shape
    out = torch.empty_like(r)
    for b in range(batch):
        for h in range(heads):
            for e in range(width):
                state = torch.zeros(width, dtype=torch.float32, device=r.device)
                for t in range(length):
                    total = 0.0
                    for j in range(width):
                        now = k[b, t, h, j] * v[b, t, h, e]
                        total += r[b, t, h, j] * (state[j] + u[h, j] * now)
                        state[j] = state[j] * w[b, t, h, j] + now
                    out[b, t, h, e] = total
    return out


@weft.kernel
def diagonal(u, real, imaginary, left, right):
    """S4D: complex states by their parts."""
    batch, width, length = u.shape
    out = torch.zeros_like(u)
    for b in range(batch):
        for d in range(width):
            for s in range(real.shape[1]):
                x = 0.0
                y = 0.0
                for t in range(length):
                    next_x = real[d, s] * x - imaginary[d, s] * y + u[b, d, t]
                    y = real[d, s] * y + imaginary[d, s] * x
                    x = next_x
                    out[b, d, t] += left[d, s] * x - right[d, s] * y
    return out


@weft.kernel
def gated_output(x, f, o):
    """HGRN: states that no result holds as they are."""
    batch, length, width = x.shape
    out = torch.empty_like(x)
    for b in range(batch):
        for d in range(width):
            state = 0.0
            for t in range(length):
                gate = torch.sigmoid(f[b, t, d])
                state = gate * state + (1.0 - gate) * x[b, t, d]
                out[b, t, d] = torch.tanh(state) * torch.sigmoid(o[b, t, d])
    return out


@weft.kernel
def stabilised(q, k, v, i, f):
    """mLSTM: gates relative to the largest so far, which all columns have in common, as they have a normaliser."""
    heads, length, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        largest = torch.empty(length + 1, dtype=torch.float32, device=q.device)
        largest[0] = 0.0
        for t in range(length):
            largest[t + 1] = max(f[h, t] + largest[t], i[h, t])
        for e in range(width):
            memory = torch.zeros(width, dtype=torch.float32, device=q.device)
            norm = torch.zeros(width, dtype=torch.float32, device=q.device)
            for t in range(length):
                forget = torch.exp(f[h, t] + largest[t] - largest[t + 1])
                enter = torch.exp(i[h, t] - largest[t + 1])
                above = 0.0
                below = 0.0
                for j in range(width):
                    memory[j] = forget * memory[j] + enter * k[h, t, j] * v[h, t, e]
                    norm[j] = forget * norm[j] + enter * k[h, t, j]
                    above += q[h, t, j] * memory[j]
                    below += q[h, t, j] * norm[j]
                out[h, t, e] = above / max(abs(below), 1.0)
    return out


@weft.kernel
def normalised(q, k, v, f):
    """A matrix of states and what normalises it, points outermost, as papers have it."""
    heads, length, width = q.shape
    out = torch.empty_like(v)
    for h in range(heads):
        memory = torch.zeros(width, width, dtype=torch.float32, device=q.device)
        norm = torch.zeros(width, dtype=torch.float32, device=q.device)
        for t in range(length):
            below = 0.0
            for j in range(width):
                norm[j] = f[h, t] * norm[j] + k[h, t, j]
                below += q[h, t, j] * norm[j]
            for e in range(width):
                above = 0.0
                for j in range(width):
                    memory[e, j] = f[h, t] * memory[e, j] + k[h, t, j] * v[h, t, e]
                    above += q[h, t, j] * memory[e, j]
                out[h, t, e] = above / max(abs(below), 1.0)
    return out


@weft.kernel
def beyond_the_diagonal(x, w):
    """A scan over points of which only the first lie in the array that is read on a condition."""
    rows, length = x.shape
    out = torch.zeros_like(x)
    for r in range(rows):
        total = 0.0
        for t in range(length - 1):
            total = total + (x[t, t] if t < rows else 2.0) * w[t]
            out[r, t] = total
    return out


@weft.kernel
def from_the_diagonal(x):
    """Rows that begin anywhere, of arrays in whole packets."""
    rows, length = x.shape
    out = torch.zeros_like(x)
    for r in range(rows):
        total = 0.0
        for t in range(r, length):
            total = total + x[r, t]
            out[r, t] = total
    return out


def _of(*shape: int) -> torch.Tensor:
    return torch.rand(shape) * 0.5 + 0.3


CASES: dict[str, tuple[Any, Any]] = {
    "a read of states that is the same for all points": (
        bonus,
        lambda: (*(_of(1, 5, 2, 4).bfloat16() for _ in range(3)), _of(1, 5, 2, 4), _of(2, 4)),
    ),
    "two scans of two values each, of which both may overflow": (
        diagonal,
        lambda: (_of(1, 5, 70), *(_of(5, 3) for _ in range(4))),
    ),
    "rows that begin between packets": (from_the_diagonal, lambda: (_of(7, 64).double(),)),
    "a read on a condition, of another row at each point": (beyond_the_diagonal, lambda: (_of(7, 33), _of(33))),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mixer_and_its_gradients(name: str) -> None:
    kernel, make = CASES[name]
    torch.manual_seed(0)
    found = kernel.check(*make(), gradients=True)
    assert found.ok, found


def test_states_of_as_many_rows_as_columns_are_told_apart() -> None:
    """Loops of one range are axes by the dimensions that they run along, whatever stands around them."""
    specs = *("bfloat16[4,4096,16,64]",) * 3, "float32[4,4096,16,64]", "float32[16,64]"
    first = examined_gradient(bonus, *specs).launches()[:3]
    assert all(isinstance(launch.variant.plan, RecurrencePlan) for launch in first)


def test_what_is_kept_of_each_point_lies_as_what_is_read_there() -> None:
    found = examined_gradient(gated_output, *("float32[4,4096,1024]",) * 3)
    assert found.arrays["state_saved"].shape == (4, 4096, 1024)
    compared = gated_output.check(*(_of(1, 40, 33) for _ in range(3)), gradients=True)
    assert compared.ok, compared


def test_what_columns_have_in_common_gets_a_sum_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point of an array that the columns read, there and one further, gathers what they hand back, and no tape is kept."""
    found = examined_gradient(stabilised, *("float32[64,4096,64]",) * 3, *("float32[64,4096]",) * 2).launches()
    assert sum(isinstance(one.variant.plan, RecurrencePlan) for one in found) == 3
    assert not any(one.steps for one in found)
    monkeypatch.setattr(planning, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(planning, "ONCE_GAIN", 1e12)
    compared = stabilised.check(*(_of(2, 9, 5) for _ in range(3)), *(_of(2, 9) for _ in range(2)), gradients=True)
    assert compared.ok, compared


def test_a_matrix_and_its_normaliser_are_states_of_one_row() -> None:
    (one,) = examine(normalised, (*("bfloat16[64,96,64]",) * 3, "float32[64,96]")).launches()
    assert isinstance(one.variant.plan, RecurrencePlan)
    found = normalised.check(*(_of(2, 9, 6) for _ in range(3)), _of(2, 9))
    assert found.ok, found


def test_sums_of_each_state_go_through_the_points_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the gradients of what states are multiplied by."""
    shapes = ((8, 1024, 4096), *((1024, 32),) * 4)
    found = examined_gradient(diagonal, *(f"float32{list(s)}".replace(" ", "") for s in shapes)).launches()
    assert sum(isinstance(one.variant.plan, RecurrencePlan) for one in found) == 2
    monkeypatch.setattr(kernels, "_dear", lambda *args: True)
    compared = diagonal.check(_of(1, 3, 13), *(_of(3, 5) for _ in range(4)), gradients=True)
    assert compared.ok, compared
