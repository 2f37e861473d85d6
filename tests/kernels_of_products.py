"""Products as users write them: of matrices in any order of loops, of batches, of windows; distances, extrema of sums, bits."""

from __future__ import annotations

import math

import torch
from torch import Tensor

import weft

# ---------------------------------------------------------------- matrices, in several orders of loops


@weft.kernel
def product(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s
    return c


@weft.kernel
def columns_first(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for j in range(b.shape[1]):
        for i in range(a.shape[0]):
            s = 0.0
            for k in range(a.shape[1]):
                s += b[k, j] * a[i, k]
            c[i, j] = s
    return c


@weft.kernel
def points_first(a, b):
    """As row after row is added."""
    c = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


@weft.kernel
def points_between(a, b):
    c = torch.zeros(a.shape[0], b.shape[1])
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


@weft.kernel
def by_operator(a, b):
    return a @ b


@weft.kernel
def of_transposed(a, b):
    """a and b have the points first and last."""
    c = torch.empty(a.shape[1], b.shape[0], dtype=a.dtype)
    for i in range(a.shape[1]):
        for j in range(b.shape[0]):
            s = 0.0
            for k in range(a.shape[0]):
                s += a[k, i] * b[j, k]
            c[i, j] = s
    return c


@weft.kernel
def stored_transposed(x, w):
    c = torch.empty(w.shape[0], x.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[j, k]
            c[j, i] = s
    return c


# ---------------------------------------------------------------- what is made of the results


@weft.kernel
def linear_gelu(x, w, bias):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[b, k] * w[n, k]
            z = s + bias[n]
            y[b, n] = 0.5 * z * (1.0 + math.erf(z * 0.7071067811865476))
    return y


@weft.kernel
def residual(x, w, r):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[b, k] * w[n, k]
            y[b, n] = r[b, n] + s
    return y


@weft.kernel
def gated(x, gate, up):
    """Two products, of one operand that they share."""
    y = torch.empty(x.shape[0], gate.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for n in range(gate.shape[0]):
            g = 0.0
            u = 0.0
            for k in range(x.shape[1]):
                g += x[b, k] * gate[n, k]
                u += x[b, k] * up[n, k]
            y[b, n] = g / (1.0 + math.exp(-g)) * u
    return y


@weft.kernel
def accumulated(c, a, b):
    """In place, from what is there."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


@weft.kernel
def from_bias(x, w, bias):
    y = torch.empty(x.shape[0], w.shape[0])
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            y[b, n] = bias[n]
            for k in range(x.shape[1]):
                y[b, n] += x[b, k] * w[n, k]
    return y


@weft.kernel
def scaled_in_place(c, a, b, beta: float):
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = beta * c[i, j] + s


# ---------------------------------------------------------------- batches


@weft.kernel
def batched(a, b):
    c = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=a.dtype)
    for z in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                s = 0.0
                for k in range(a.shape[2]):
                    s += a[z, i, k] * b[z, k, j]
                c[z, i, j] = s
    return c


@weft.kernel
def of_one(x, w):
    """All of the batch meet the same."""
    y = torch.empty(x.shape[0], x.shape[1], w.shape[0], dtype=x.dtype)
    for z in range(x.shape[0]):
        for i in range(x.shape[1]):
            for n in range(w.shape[0]):
                s = 0.0
                for k in range(x.shape[2]):
                    s += x[z, i, k] * w[n, k]
                y[z, i, n] = s
    return y


@weft.kernel
def of_heads(q, k):
    """q: [batch, position, head, d]; the results are [batch, head, position, position]."""
    y = torch.empty(q.shape[0], q.shape[2], q.shape[1], k.shape[1], dtype=q.dtype)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            for i in range(q.shape[1]):
                for j in range(k.shape[1]):
                    s = 0.0
                    for d in range(q.shape[3]):
                        s += q[b, i, h, d] * k[b, j, h, d]
                    y[b, h, i, j] = 0.125 * s
    return y


# ---------------------------------------------------------------- several axes


@weft.kernel
def of_each_head(q, k):
    batch, heads, size, width = q.shape
    y = torch.empty(batch, heads, size, k.shape[2], dtype=torch.float32)
    for b in range(batch):
        for h in range(heads):
            for i in range(size):
                for j in range(k.shape[2]):
                    dot = 0.0
                    for d in range(width):
                        dot += q[b, h, i, d] * k[b, h, j, d]
                    y[b, h, i, j] = dot
    return y


@weft.kernel
def convolution(x, w):
    """x: [image, channel, row, column], w: [filter, channel, row, column]."""
    rows = x.shape[2] - w.shape[2] + 1
    columns = x.shape[3] - w.shape[3] + 1
    y = torch.empty(x.shape[0], w.shape[0], rows, columns, dtype=x.dtype)
    for n in range(x.shape[0]):
        for f in range(w.shape[0]):
            for i in range(rows):
                for j in range(columns):
                    s = 0.0
                    for c in range(x.shape[1]):
                        for p in range(w.shape[2]):
                            for q in range(w.shape[3]):
                                s += x[n, c, i + p, j + q] * w[f, c, p, q]
                    y[n, f, i, j] = s
    return y


@weft.kernel
def dilated(x, w):
    """Channels lie side by side, and windows have every other row."""
    y = torch.empty(x.shape[0], x.shape[1] - 2 * (w.shape[0] - 1), x.shape[2] - w.shape[1] + 1, w.shape[3], dtype=x.dtype)
    for n in range(x.shape[0]):
        for h in range(y.shape[1]):
            for v in range(y.shape[2]):
                for o in range(w.shape[3]):
                    s = 0.0
                    for r in range(w.shape[0]):
                        for q in range(w.shape[1]):
                            for c in range(x.shape[3]):
                                s += x[n, h + 2 * r, v + q, c] * w[r, q, c, o]
                    y[n, h, v, o] = s
    return y


@weft.kernel
def along_time(x, w, bias):
    y = torch.empty(x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1, dtype=x.dtype)
    for n in range(x.shape[0]):
        for o in range(w.shape[0]):
            for t in range(y.shape[2]):
                s = 0.0
                for k in range(w.shape[2]):
                    for c in range(x.shape[1]):
                        s += x[n, c, t + k] * w[o, c, k]
                y[n, o, t] = torch.relu(s + bias[o])
    return y


@weft.kernel
def contracted(a, b):
    """Over two axes, which do not lie beside each other in both."""
    c = torch.empty(a.shape[1], b.shape[2], dtype=a.dtype)
    for i in range(a.shape[1]):
        for j in range(b.shape[2]):
            s = 0.0
            for p in range(a.shape[0]):
                for q in range(a.shape[2]):
                    s += a[p, i, q] * b[q, p, j]
            c[i, j] = s
    return c


# ---------------------------------------------------------------- of anything but products


@weft.kernel
def squared_distances(x, y):
    d = torch.empty(x.shape[0], y.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += (x[i, k] - y[j, k]) * (x[i, k] - y[j, k])
            d[i, j] = s
    return d


@weft.kernel
def absolute_distances(x, y):
    d = torch.empty(x.shape[0], y.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(y.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += abs(x[i, k] - y[j, k])
            d[i, j] = s
    return d


@weft.kernel
def longest_paths(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            m = -math.inf
            for k in range(a.shape[1]):
                m = max(m, a[i, k] + b[k, j])
            c[i, j] = m
    return c


@weft.kernel
def shortest_paths(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            m = math.inf
            for k in range(a.shape[1]):
                m = min(m, a[i, k] + b[k, j])
            c[i, j] = m
    return c


@weft.kernel
def of_integers(a, b):
    c = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += a[i, k] * b[k, j]
    return c


@weft.kernel
def reachable(a, b):
    c = torch.zeros(a.shape[0], b.shape[1], dtype=torch.bool)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] |= a[i, k] & b[k, j]
    return c


# ---------------------------------------------------------------- operands that are made of reads


@weft.kernel
def scaled(x, g, w):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[b, k] * g[k] * w[n, k]
            y[b, n] = s
    return y


@weft.kernel
def low_rank(x, w, low, up):
    """Two products with axes of their own to fold."""
    y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[k, j]
            t = 0.0
            for r in range(low.shape[1]):
                t += low[i, r] * up[r, j]
            y[i, j] = s + t
    return y


@weft.kernel
def divided_columns(x, w, g):
    """Columns of a matrix divided by one number each."""
    y = torch.empty(x.shape[0], w.shape[1])
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * (w[k, j] / g[j]).to(torch.bfloat16).to(torch.float32)
            y[i, j] = s
    return y


@weft.kernel
def gated_by_rows(x, gate, w):
    """Rows of two matrices, which meet the same columns."""
    y = torch.empty(x.shape[0], w.shape[1])
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            g = 0.0
            for k in range(w.shape[0]):
                s += x[i, k] * w[k, j]
                g += gate[i, k] * w[k, j]
            y[i, j] = s * torch.sigmoid(g)
    return y


@weft.kernel
def triangle(a, b):
    """Where the number of a row is no less than that of a column, 0 elsewhere."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j] * 2 if j <= i else 0.0
            c[i, j] = s
    return c


@weft.kernel
def divided_points(x, w, g):
    """The same of columns that lie along the points, in the type of the result."""
    y = torch.empty(x.shape[0], w.shape[0])
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * (w[j, k] / g[j] + g[k])
            y[i, j] = s
    return y


@weft.kernel
def normed(x, w):
    """A sum of rows, and a product that is divided by its root."""
    r = torch.empty(x.shape[0])
    for i in range(x.shape[0]):
        s = 0.0
        for k in range(x.shape[1]):
            s += x[i, k] * x[i, k]
        r[i] = s
    y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[k, j]
            y[i, j] = s / torch.sqrt(r[i] / x.shape[1] + 1e-5)
    return y


@weft.kernel
def rounded(x, w):
    """float32 tensors, by factors of bfloat16."""
    y = torch.empty(x.shape[0], w.shape[0])
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[b, k].to(torch.bfloat16).to(torch.float32) * w[n, k].to(torch.bfloat16).to(torch.float32)
            y[b, n] = s
    return y


@weft.kernel
def gathered(x, w, index):
    y = torch.empty(index.shape[0], x.shape[0], dtype=x.dtype)
    for i in range(index.shape[0]):
        for j in range(x.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += w[index[i], k] * x[j, k]
            y[i, j] = s
    return y


@weft.kernel
def powers(x, w):
    """An axis is a number in an operand."""
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for n in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += (x[b, k] + 0.25 * k) * w[n, k]
            y[b, n] = s
    return y


@weft.kernel
def inner(x, w):
    """Neither rows, columns nor points begin where the tensors do."""
    y = torch.zeros(x.shape[0], w.shape[0], dtype=x.dtype)
    for b in range(2, x.shape[0]):
        for n in range(8, w.shape[0]):
            s = 0.0
            for k in range(2, x.shape[1]):
                s += x[b, k] * w[n, k]
            y[b, n] = s
    return y


# ---------------------------------------------------------------- what bounds and loops around do


@weft.kernel
def causal(a, b):
    """The points of a row end at it."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(i + 1):
                s += a[i, k] * b[k, j]
            c[i, j] = s
    return c


@weft.kernel
def recurrent(h, w, x):
    """Each step's product needs the one before."""
    for t in range(x.shape[0]):
        for b in range(h.shape[1]):
            for i in range(w.shape[0]):
                s = 0.0
                for j in range(w.shape[1]):
                    s += w[i, j] * h[t, b, j]
                h[t + 1, b, i] = math.tanh(s + x[t, b, i])


# ---------------------------------------------------------------- no products


@weft.kernel
def with_factor(a, b, mask):
    """A factor has all axes."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * mask[i, j, k] * b[k, j]
            c[i, j] = s
    return c


@weft.kernel
def of_vector(a, x):
    """The results have one axis."""
    y = torch.empty(a.shape[0], dtype=a.dtype)
    for i in range(a.shape[0]):
        s = 0.0
        for k in range(a.shape[1]):
            s += a[i, k] * x[k]
        y[i] = s
    return y


@weft.kernel
def of_columns(a, b):
    """Of each column apart, with itself."""
    y = torch.empty(a.shape[0], a.shape[2], dtype=a.dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[2]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k, j] * b[i, k, j]
            y[i, j] = s
    return y


@weft.kernel
def lower(l, b):
    """The rows of a triangular matrix have ever more points."""
    y = torch.empty(l.shape[0], b.shape[1], dtype=l.dtype)
    for i in range(l.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(i + 1):
                s += l[i, k] * b[k, j]
            y[i, j] = s
    return y


@weft.kernel
def earlier(x, w):
    """Of a row, the points are those before it: another row has none there."""
    y = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[1]):
            s = 0.0
            for k in range(i + 1):
                s += x[i - k] * w[k, j]
            y[i, j] = s
    return y


# ---------------------------------------------------------------- tensors


def drawn(*shape: int, dtype: torch.dtype = torch.float32, way: str = "", seed: int = 0) -> Tensor:
    """A random tensor. way: "transposed" (of the last two dimensions), "sliced" (rows lie apart), "offset" (it begins
    between packets), "expanded" (the first dimension has a stride of 0), else contiguous.
    """
    generator = torch.Generator().manual_seed(seed + sum(shape))
    wide = list(shape)
    if way == "transposed":
        wide[-1], wide[-2] = shape[-2], shape[-1]
    if way == "sliced":
        wide[-1] += 16
    if way == "offset":
        wide[-1] += 5
    if way == "expanded":
        wide[0] = 1
    if dtype == torch.bool:
        made = torch.rand(wide, generator=generator) < 0.3
    elif dtype.is_floating_point:
        made = torch.randn(wide, generator=generator).to(dtype)
    else:
        made = torch.randint(-9, 10, wide, generator=generator, dtype=dtype)
    if way == "transposed":
        return made.transpose(-1, -2)
    if way == "sliced":
        return made[..., : shape[-1]]
    if way == "offset":
        return made[..., 5:]
    return made.expand(shape) if way == "expanded" else made


# ---------------------------------------------------------------- of other types than what they are summed in


@weft.kernel
def of_bytes(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.int32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = torch.zeros((), dtype=torch.int32)
            for k in range(a.shape[1]):
                s += a[i, k].to(torch.int32) * b[k, j].to(torch.int32)
            c[i, j] = s
    return c


@weft.kernel
def of_numbers(a, b):
    """In Python's own integers."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.int64)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0
            for k in range(a.shape[1]):
                s += int(a[i, k]) * int(b[k, j])
            c[i, j] = s
    return c


@weft.kernel
def of_wrapping_bytes(a, b):
    """Products that wrap before they are summed."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.int32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = torch.zeros((), dtype=torch.int32)
            for k in range(a.shape[1]):
                s += (a[i, k] * b[k, j]).to(torch.int32)
            c[i, j] = s
    return c


@weft.kernel
def batched_bytes(a, b):
    c = torch.empty(a.shape[0], a.shape[1], b.shape[2], dtype=torch.int32)
    for z in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                s = torch.zeros((), dtype=torch.int32)
                for k in range(a.shape[2]):
                    s += a[z, i, k].to(torch.int32) * b[z, k, j].to(torch.int32)
                c[z, i, j] = s
    return c


@weft.kernel
def quantised_linear(x, w, of_rows, of_columns, bias):
    y = torch.empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = torch.zeros((), dtype=torch.int32)
            for k in range(x.shape[1]):
                s += x[i, k].to(torch.int32) * w[j, k].to(torch.int32)
            y[i, j] = s.to(torch.float32) * (of_rows[i] * of_columns[j]) + bias[j]
    return y


@weft.kernel
def of_floats(a, b):
    """Of floats in any type, in float32."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k].float() * b[k, j].float()
            c[i, j] = s
    return c


@weft.kernel
def in_double(a, b):
    """Of float32, in float64."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=torch.float64)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = torch.zeros((), dtype=torch.float64)
            for k in range(a.shape[1]):
                s += a[i, k].double() * b[k, j].double()
            c[i, j] = s
    return c


@weft.kernel
def of_names_of_ours(first, packets):
    """What texts declare has names of its own."""
    c = torch.empty(first.shape[0], packets.shape[2])
    for i in range(first.shape[0]):
        for j in range(packets.shape[2]):
            s = 0.0
            for points in range(first.shape[1]):
                for tile in range(first.shape[2]):
                    s += first[i, points, tile] * packets[points, tile, j]
            c[i, j] = s
    return c


# ---------------------------------------------------------------- rows that fold results


@weft.kernel
def normed_linear(x, w, bias, g):
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        t = torch.empty(w.shape[0])
        squares = 0.0
        for j in range(w.shape[0]):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            t[j] = total + bias[j]
            squares += t[j] * t[j]
        scale = torch.rsqrt(squares / w.shape[0] + 1e-6)
        for j in range(w.shape[0]):
            y[i, j] = t[j] * scale * g[j]
    return y


@weft.kernel
def weights(q, k):
    p = torch.empty(q.shape[0], k.shape[0], dtype=q.dtype)
    for i in range(q.shape[0]):
        s = torch.empty(k.shape[0])
        most = torch.tensor(-math.inf)
        for j in range(k.shape[0]):
            t = 0.0
            for c in range(q.shape[1]):
                t += q[i, c] * k[j, c]
            s[j] = t
            most = torch.maximum(most, t)
        whole = 0.0
        for j in range(k.shape[0]):
            whole += torch.exp(s[j] - most)
        for j in range(k.shape[0]):
            p[i, j] = torch.exp(s[j] - most) / whole
    return p


@weft.kernel
def centred(x, w, r):
    y = torch.empty(x.shape[0], x.shape[1], w.shape[0], dtype=x.dtype)
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            t = torch.empty(w.shape[0])
            s = 0.0
            for j in range(w.shape[0]):
                total = 0.0
                for k in range(x.shape[2]):
                    total += x[b, i, k] * w[j, k]
                t[j] = total + r[b, i, j]
                s += t[j]
            mean = s / w.shape[0]
            v = 0.0
            for j in range(w.shape[0]):
                v += (t[j] - mean) * (t[j] - mean)
            for j in range(w.shape[0]):
                y[b, i, j] = (t[j] - mean) * torch.rsqrt(v / w.shape[0] + 1e-5)
    return y
