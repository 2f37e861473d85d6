"""Programs whose rows have many states: selective scans with their loops in every order, first and last states."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch's own documents import it

import weft


@weft.kernel
def selective_scan(u, delta, a, b, c, skip, z):
    batch, dim, length = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    for i in range(batch):
        for d in range(dim):
            h = torch.zeros(states)
            for t in range(length):
                dt = F.softplus(delta[i, d, t])
                total = 0.0
                for n in range(states):
                    h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                    total += h[n] * c[i, n, t]
                y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    return y


@weft.kernel
def time_outside(u, delta, a, b, c, skip, z):
    batch, dim, length = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    h = torch.zeros(batch, dim, states)
    for t in range(length):
        for i in range(batch):
            for d in range(dim):
                dt = F.softplus(delta[i, d, t])
                total = 0.0
                for n in range(states):
                    h[i, d, n] = torch.exp(dt * a[d, n]) * h[i, d, n] + dt * b[i, n, t] * u[i, d, t]
                    total += h[i, d, n] * c[i, n, t]
                y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    return y


@weft.kernel
def states_outside(u, delta, a, b, c, skip, z):
    batch, dim, length = u.shape
    states = a.shape[1]
    y = torch.zeros_like(u)
    for i in range(batch):
        for d in range(dim):
            for n in range(states):
                h = 0.0
                for t in range(length):
                    dt = F.softplus(delta[i, d, t])
                    h = torch.exp(dt * a[d, n]) * h + dt * b[i, n, t] * u[i, d, t]
                    y[i, d, t] += h * c[i, n, t]
            for t in range(length):
                y[i, d, t] = (y[i, d, t] + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    return y


@weft.kernel
def channels_inside(u, delta, a, b, c, skip, z):
    batch, dim, length = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    for i in range(batch):
        h = torch.zeros(dim, states)
        for t in range(length):
            for d in range(dim):
                dt = F.softplus(delta[i, d, t])
                total = 0.0
                for n in range(states):
                    h[d, n] = torch.exp(dt * a[d, n]) * h[d, n] + dt * b[i, n, t] * u[i, d, t]
                    total += h[d, n] * c[i, n, t]
                y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    return y


@weft.kernel
def tensors_at_a_time(u, delta, a, b, c, skip, z):
    batch, dim, length = u.shape
    y = torch.empty_like(u)
    h = torch.zeros(batch, dim, a.shape[1])
    for t in range(length):
        dt = F.softplus(delta[:, :, t])
        h = torch.exp(dt[:, :, None] * a) * h + dt[:, :, None] * b[:, None, :, t] * u[:, :, None, t]
        y[:, :, t] = ((h * c[:, None, :, t]).sum(-1) + skip * u[:, :, t]) * F.silu(z[:, :, t])
    return y


ORDERS = {
    k.name: k for k in (selective_scan, time_outside, states_outside, channels_inside, tensors_at_a_time)
}  # fmt: skip


@weft.kernel
def biased(u, delta, a, b, c, bias):
    """No skip and no gate; what a point has is inside of what states have, and the exponent has a sign of its own."""
    batch, dim, length = u.shape
    states = a.shape[1]
    y = torch.empty_like(u)
    for i in range(batch):
        for d in range(dim):
            h = torch.zeros(states)
            for t in range(length):
                total = 0.0
                for n in range(states):
                    decay = torch.exp(-torch.exp(a[d, n]) * F.softplus(delta[i, d, t] + bias[d]))
                    h[n] = decay * h[n] + F.softplus(delta[i, d, t] + bias[d]) * u[i, d, t] * b[i, n, t]
                    total += h[n] * c[i, n, t]
                y[i, d, t] = total
    return y


@weft.kernel
def decays_alike(x, dt, a, b, c, gate):
    """All states of a channel decay alike; a sum over states has factors that none of them tells."""
    batch, heads, length = x.shape
    states = b.shape[1]
    y = torch.empty_like(x)
    for i in range(batch):
        for d in range(heads):
            h = torch.zeros(states)
            for t in range(length):
                total = 0.0
                for n in range(states):
                    h[n] = torch.exp(dt[i, d, t] * a[d]) * h[n] + dt[i, d, t] * x[i, d, t] * b[i, n, t]
                    total += gate[i, d, t] * h[n] * c[i, n, t] * a[d]
                y[i, d, t] = total
    return y


@weft.kernel
def decays_apart(x, w, k, r):
    """States decay as their own points tell; a sum has terms of several kinds."""
    batch, channels, length = x.shape
    states = w.shape[1]
    y = torch.empty_like(x)
    for i in range(batch):
        for d in range(channels):
            h = torch.zeros(states)
            for t in range(length):
                total = 0.0
                for n in range(states):
                    h[n] = torch.exp(-w[i, n, t]) * h[n] + k[i, n, t] * x[i, d, t]
                    total += h[n] * (r[i, n, t] - k[i, n, t]) * x[i, d, t] + k[i, n, t] * x[i, d, t]
                y[i, d, t] = total
    return y


@weft.kernel
def many_factors(u, v, w, s):
    """Backwards; what states are multiplied by, and what is added to them, are products of several factors."""
    rows, length = u.shape
    states = s.shape[0]
    y = torch.empty_like(u)
    for r in range(rows):
        h = torch.zeros(states)
        for t in range(length - 1, -1, -1):
            total = 0.0
            for n in range(states):
                h[n] = u[r, t] * v[r, t] * s[n] * h[n] + w[r, t] * u[r, t] * s[n] * s[n]
                total += h[n] * s[n] * u[r, t] * w[r, t]
            y[r, t] = total + u[r, t]
    return y


PRODUCTS = {k.name: k for k in (biased, decays_alike, decays_apart, many_factors)}


@weft.kernel
def first_and_last(x, decay, weight, start):
    """Time in the middle; states that go on from others, and are handed on; a sum of what each of them was."""
    batch, length, dim = x.shape
    states = start.shape[2]
    y = torch.empty_like(x)
    last = torch.empty_like(start)
    size = torch.zeros_like(start)
    for b in range(batch):
        for d in range(dim):
            for n in range(states):
                last[b, d, n] = start[b, d, n]
            for t in range(length - 1, -1, -1):
                y[b, t, d] = 0.0
                for n in range(states):
                    last[b, d, n] = decay[b, t, n] * last[b, d, n] + x[b, t, d]
                    size[b, d, n] += last[b, d, n] * last[b, d, n]
                    y[b, t, d] += last[b, d, n] * weight[n]
    return y, last, size


def selective(batch: int, dim: int, length: int, states: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Arguments of a selective scan."""
    rand = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rand)

    u, delta, z = (drawn(batch, dim, length).to(dtype) for _ in range(3))
    b, c = (drawn(batch, states, length).to(dtype) for _ in range(2))
    return u, delta, -torch.exp(drawn(dim, states) * 0.5), b, c, drawn(dim), z


def of_products(name: str, batch: int, dim: int, length: int, states: int) -> tuple[torch.Tensor, ...]:
    """Arguments of one of PRODUCTS."""
    rand = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rand)

    row, each = (batch, dim, length), (batch, states, length)
    if name == "biased":
        return drawn(*row), drawn(*row), drawn(dim, states) * 0.5, drawn(*each), drawn(*each), drawn(dim)
    if name == "decays_alike":
        return drawn(*row), drawn(*row).abs(), -drawn(dim).abs(), drawn(*each), drawn(*each), drawn(*row)
    if name == "decays_apart":
        return drawn(*row), drawn(*each).abs(), drawn(*each), drawn(*each)
    flat = (batch * dim, length)
    return drawn(*flat).sigmoid(), drawn(*flat).sigmoid(), drawn(*flat), drawn(states).sigmoid()


def selective_specs(batch: int, dim: int, length: int, states: int) -> tuple[str, ...]:
    row, each, own = f"[{batch},{dim},{length}]", f"[{batch},{states},{length}]", f"[{dim},{states}]"
    return tuple(f"float32{s}" for s in (row, row, own, each, each, f"[{dim}]", row))
