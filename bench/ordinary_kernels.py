"""Kernels that people write, as plain loops: what `weft bench ordinary` measures. Each of them may stand as an example."""

from __future__ import annotations

import math

import torch

import weft

# ---------------------------------------------------------------- norms


@weft.kernel
def group_norm(x, weight, bias):
    """x: (batch, groups, channels of a group, pixels)."""
    batch, groups, channels, pixels = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for g in range(groups):
            s = 0.0
            for c in range(channels):
                for p in range(pixels):
                    s += x[n, g, c, p]
            mean = s / (channels * pixels)
            v = 0.0
            for c in range(channels):
                for p in range(pixels):
                    v += (x[n, g, c, p] - mean) * (x[n, g, c, p] - mean)
            r = 1 / torch.sqrt(v / (channels * pixels) + 1e-5)
            for c in range(channels):
                for p in range(pixels):
                    y[n, g, c, p] = (x[n, g, c, p] - mean) * r * weight[g, c] + bias[g, c]
    return y


@weft.kernel
def instance_norm(x):
    batch, channels, height, width = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for c in range(channels):
            s = 0.0
            for i in range(height):
                for j in range(width):
                    s += x[n, c, i, j]
            mean = s / (height * width)
            v = 0.0
            for i in range(height):
                for j in range(width):
                    v += (x[n, c, i, j] - mean) * (x[n, c, i, j] - mean)
            r = 1 / torch.sqrt(v / (height * width) + 1e-5)
            for i in range(height):
                for j in range(width):
                    y[n, c, i, j] = (x[n, c, i, j] - mean) * r
    return y


@weft.kernel
def batch_statistics(x):
    batch, channels, length = x.shape
    mean = torch.empty(channels)
    variance = torch.empty(channels)
    for c in range(channels):
        s = 0.0
        for n in range(batch):
            for l in range(length):
                s += x[n, c, l]
        m = s / (batch * length)
        v = 0.0
        for n in range(batch):
            for l in range(length):
                v += (x[n, c, l] - m) * (x[n, c, l] - m)
        mean[c] = m
        variance[c] = v / (batch * length)
    return mean, variance


@weft.kernel
def batch_norm(x, mean, variance, weight, bias):
    batch, channels, length = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for c in range(channels):
            scale = weight[c] / torch.sqrt(variance[c] + 1e-5)
            for l in range(length):
                y[n, c, l] = (x[n, c, l] - mean[c]) * scale + bias[c]
    return y


@weft.kernel
def residual_rms_norm(x, residual, weight):
    """The sum and its norm, as blocks of a transformer need both."""
    rows, width = x.shape
    total = torch.empty_like(x)
    y = torch.empty_like(x)
    for i in range(rows):
        s = 0.0
        for j in range(width):
            t = x[i, j] + residual[i, j]
            total[i, j] = t
            s += t * t
        r = 1 / torch.sqrt(s / width + 1e-6)
        for j in range(width):
            y[i, j] = (x[i, j] + residual[i, j]) * r * weight[j]
    return total, y


@weft.kernel
def modulated_norm(x, scale, shift):
    """A layer norm whose scale and shift each sequence has of its own."""
    batch, length, width = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for l in range(length):
            s = 0.0
            for d in range(width):
                s += x[b, l, d]
            mean = s / width
            v = 0.0
            for d in range(width):
                v += (x[b, l, d] - mean) * (x[b, l, d] - mean)
            r = 1 / torch.sqrt(v / width + 1e-6)
            for d in range(width):
                y[b, l, d] = (x[b, l, d] - mean) * r * (1 + scale[b, d]) + shift[b, d]
    return y


@weft.kernel
def unit_rows(x):
    rows, width = x.shape
    y = torch.empty_like(x)
    for i in range(rows):
        s = 0.0
        for j in range(width):
            s += x[i, j] * x[i, j]
        length = torch.sqrt(s)
        for j in range(width):
            y[i, j] = x[i, j] / max(length, 1e-12)
    return y


# ---------------------------------------------------------------- gates and points


@weft.kernel
def swiglu(x, bias):
    rows, width = x.shape
    half = width // 2
    y = torch.empty(rows, half, dtype=x.dtype)
    for i in range(rows):
        for j in range(half):
            gate = x[i, j] + bias[j]
            y[i, j] = gate / (1 + torch.exp(-gate)) * (x[i, half + j] + bias[half + j])
    return y


@weft.kernel
def geglu(x, gate):
    rows, width = x.shape
    y = torch.empty_like(x)
    for i in range(rows):
        for j in range(width):
            g = gate[i, j]
            y[i, j] = x[i, j] * 0.5 * g * (1 + torch.tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)))
    return y


@weft.kernel
def dropout(x, keep, p: float):
    rows, width = x.shape
    y = torch.empty_like(x)
    for i in range(rows):
        for j in range(width):
            y[i, j] = x[i, j] / (1 - p) if keep[i, j] else 0
    return y


@weft.kernel
def mish(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * torch.tanh(torch.log1p(torch.exp(x[i, j])))
    return y


@weft.kernel
def soft_cap(scores, cap: float):
    heads, n, m = scores.shape
    y = torch.empty_like(scores)
    for h in range(heads):
        for i in range(n):
            for j in range(m):
                y[h, i, j] = cap * torch.tanh(scores[h, i, j] / cap)
    return y


@weft.kernel
def adamw(parameter, gradient, first, second, rate: float, step: int):
    """One step, in place."""
    correction = 1 - 0.9**step
    correction2 = 1 - 0.999**step
    for i in range(parameter.shape[0]):
        m = 0.9 * first[i] + 0.1 * gradient[i]
        v = 0.999 * second[i] + 0.001 * gradient[i] * gradient[i]
        first[i] = m
        second[i] = v
        update = m / correction / (torch.sqrt(v / correction2) + 1e-8)
        parameter[i] = parameter[i] * (1 - rate * 0.01) - rate * update


@weft.kernel
def complex_product(a, b):
    """Numbers as pairs: (..., 2)."""
    y = torch.empty_like(a)
    for i in range(a.shape[0]):
        y[i, 0] = a[i, 0] * b[i, 0] - a[i, 1] * b[i, 1]
        y[i, 1] = a[i, 0] * b[i, 1] + a[i, 1] * b[i, 0]
    return y


# ---------------------------------------------------------------- positions and masks


@weft.kernel
def rotary(qkv, cosine, sine):
    """Queries and keys of a packed (batch, length, 3, heads, width) turned, halves together; the values as they are."""
    batch, length, three, heads, width = qkv.shape
    half = width // 2
    y = torch.empty_like(qkv)
    for b in range(batch):
        for l in range(length):
            for k in range(3):
                for h in range(heads):
                    for d in range(half):
                        a = qkv[b, l, k, h, d]
                        c = qkv[b, l, k, h, half + d]
                        y[b, l, k, h, d] = a * cosine[l, d] - c * sine[l, d] if k < 2 else a
                        y[b, l, k, h, half + d] = c * cosine[l, d] + a * sine[l, d] if k < 2 else c
    return y


@weft.kernel
def alibi(scores, slopes):
    heads, n, m = scores.shape
    y = torch.empty_like(scores)
    for h in range(heads):
        for i in range(n):
            for j in range(m):
                y[h, i, j] = scores[h, i, j] - slopes[h] * (i - j) if j <= i else -math.inf
    return y


@weft.kernel
def causal_softmax(scores):
    heads, n, m = scores.shape
    y = torch.zeros_like(scores)
    for h in range(heads):
        for i in range(n):
            top = -math.inf
            for j in range(i + 1):
                top = max(top, scores[h, i, j])
            s = 0.0
            for j in range(i + 1):
                s += torch.exp(scores[h, i, j] - top)
            for j in range(i + 1):
                y[h, i, j] = torch.exp(scores[h, i, j] - top) / s
    return y


@weft.kernel
def padded(x, lengths):
    """What is past the length of a sequence becomes 0."""
    batch, length, width = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for l in range(length):
            for d in range(width):
                y[b, l, d] = x[b, l, d] if l < lengths[b] else 0
    return y


# ---------------------------------------------------------------- losses


@weft.kernel
def smoothed_cross_entropy(logits, target, smoothing: float):
    rows, classes = logits.shape
    loss = torch.empty(rows)
    for i in range(rows):
        top = -math.inf
        for j in range(classes):
            top = max(top, logits[i, j])
        s = 0.0
        total = 0.0
        for j in range(classes):
            s += torch.exp(logits[i, j] - top)
            total += logits[i, j]
        lse = top + torch.log(s)
        loss[i] = lse - (1 - smoothing) * logits[i, target[i]] - smoothing * total / classes
    return loss


@weft.kernel
def divergence(log_q, log_p):
    rows, classes = log_q.shape
    y = torch.empty(rows)
    for i in range(rows):
        s = 0.0
        for j in range(classes):
            s += torch.exp(log_p[i, j]) * (log_p[i, j] - log_q[i, j])
        y[i] = s
    return y


@weft.kernel
def focal_loss(x, target):
    rows, classes = x.shape
    s = 0.0
    for i in range(rows):
        for j in range(classes):
            p = 1 / (1 + torch.exp(-x[i, j]))
            t = target[i, j]
            right = p * t + (1 - p) * (1 - t)
            entropy = max(x[i, j], 0) - x[i, j] * t + torch.log1p(torch.exp(-abs(x[i, j])))
            s += entropy * (1 - right) * (1 - right)
    return s / (rows * classes)


@weft.kernel
def huber(x, z):
    s = 0.0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            d = abs(x[i, j] - z[i, j])
            s += 0.5 * d * d if d < 1 else d - 0.5
    return s / (x.shape[0] * x.shape[1])


@weft.kernel
def total_variation(image):
    n, m = image.shape
    s = 0.0
    for i in range(n - 1):
        for j in range(m - 1):
            s += abs(image[i + 1, j] - image[i, j]) + abs(image[i, j + 1] - image[i, j])
    return s


@weft.kernel
def cosine_similarity(x, z):
    rows, width = x.shape
    y = torch.empty(rows)
    for i in range(rows):
        dot = 0.0
        xx = 0.0
        zz = 0.0
        for j in range(width):
            dot += x[i, j] * z[i, j]
            xx += x[i, j] * x[i, j]
            zz += z[i, j] * z[i, j]
        y[i] = dot / torch.sqrt(max(xx * zz, 1e-16))
    return y


@weft.kernel
def log_sum_exp_of_columns(x):
    batch, length, width = x.shape
    y = torch.empty(batch, width)
    for b in range(batch):
        for d in range(width):
            top = -math.inf
            for l in range(length):
                top = max(top, x[b, l, d])
            s = 0.0
            for l in range(length):
                s += torch.exp(x[b, l, d] - top)
            y[b, d] = top + torch.log(s)
    return y


# ---------------------------------------------------------------- along a sequence


@weft.kernel
def running_product(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        p = 1.0
        for l in range(length):
            p = p * x[r, l]
            y[r, l] = p
    return y


@weft.kernel
def running_maximum(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        m = -math.inf
        for l in range(length):
            m = max(m, x[r, l])
            y[r, l] = m
    return y


@weft.kernel
def advantages(rewards, values, done, gamma: float, decay: float):
    """Generalised advantage estimates."""
    rows, length = rewards.shape
    y = torch.empty_like(rewards)
    for r in range(rows):
        a = 0.0
        for l in range(length - 1, -1, -1):
            alive = 1 - done[r, l]
            delta = rewards[r, l] + gamma * values[r, l + 1] * alive - values[r, l]
            a = delta + gamma * decay * alive * a
            y[r, l] = a
    return y


@weft.kernel
def gated_recurrence(x, gate):
    """(batch, length, channels): each channel forgets what its gate says."""
    batch, length, channels = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for c in range(channels):
            h = 0.0
            for l in range(length):
                f = 1 / (1 + torch.exp(-gate[b, l, c]))
                h = f * h + (1 - f) * x[b, l, c]
                y[b, l, c] = h
    return y


@weft.kernel
def causal_conv(x, weight, bias):
    """Four taps a channel of (batch, channels, length), as sequence mixers begin with."""
    batch, channels, length = x.shape
    y = torch.empty_like(x)
    for b in range(batch):
        for c in range(channels):
            for l in range(length):
                s = 0.0
                for k in range(4):
                    if l + k >= 3:
                        s += weight[c, k] * x[b, c, l + k - 3]
                s = s + bias[c]
                y[b, c, l] = s / (1 + torch.exp(-s))
    return y


# ---------------------------------------------------------------- images and grids


@weft.kernel
def depthwise(x, weight):
    batch, channels, height, width = x.shape
    y = torch.empty_like(x)
    for n in range(batch):
        for c in range(channels):
            for i in range(height):
                for j in range(width):
                    s = 0.0
                    for a in range(3):
                        for b in range(3):
                            if 0 <= i + a - 1 < height and 0 <= j + b - 1 < width:
                                s += weight[c, a, b] * x[n, c, i + a - 1, j + b - 1]
                    y[n, c, i, j] = s
    return y


@weft.kernel
def max_pool(x):
    channels, height, width = x.shape
    y = torch.empty(channels, height // 2, width // 2, dtype=x.dtype)
    for c in range(channels):
        for i in range(height // 2):
            for j in range(width // 2):
                a = max(x[c, 2 * i, 2 * j], x[c, 2 * i, 2 * j + 1])
                b = max(x[c, 2 * i + 1, 2 * j], x[c, 2 * i + 1, 2 * j + 1])
                y[c, i, j] = max(a, b)
    return y


@weft.kernel
def pixel_shuffle(x):
    """(batch, channels, 2, 2, height, width) to (batch, channels, height, 2, width, 2)."""
    batch, channels, two, two_, height, width = x.shape
    y = torch.empty(batch, channels, height, 2, width, 2, dtype=x.dtype)
    for n in range(batch):
        for c in range(channels):
            for a in range(2):
                for b in range(2):
                    for i in range(height):
                        for j in range(width):
                            y[n, c, i, a, j, b] = x[n, c, a, b, i, j]
    return y


@weft.kernel
def unfold(x, size: int):
    rows, length = x.shape
    y = torch.empty(rows, size, length - size + 1, dtype=x.dtype)
    for r in range(rows):
        for k in range(size):
            for l in range(length - size + 1):
                y[r, k, l] = x[r, l + k]
    return y


@weft.kernel
def bilinear(image, places):
    """Samples of (channels, height, width) at places (points, 2), in pixels."""
    channels, height, width = image.shape
    points = places.shape[0]
    y = torch.empty(channels, points, dtype=image.dtype)
    for c in range(channels):
        for p in range(points):
            fi = torch.floor(places[p, 0])
            fj = torch.floor(places[p, 1])
            i = int(fi)
            j = int(fj)
            u = places[p, 0] - fi
            v = places[p, 1] - fj
            upper = image[c, i, j] * (1 - v) + image[c, i, j + 1] * v
            lower = image[c, i + 1, j] * (1 - v) + image[c, i + 1, j + 1] * v
            y[c, p] = upper * (1 - u) + lower * u
    return y


@weft.kernel
def normalised_image(image, mean, deviation):
    """Bytes (height, width, channels) as floats (channels, height, width)."""
    height, width, channels = image.shape
    y = torch.empty(channels, height, width)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                y[c, i, j] = (image[i, j, c] / 255 - mean[c]) / deviation[c]
    return y


@weft.kernel
def game_of_life(alive):
    n, m = alive.shape
    y = torch.zeros_like(alive)
    for i in range(1, n - 1):
        for j in range(1, m - 1):
            count = 0
            for a in range(3):
                for b in range(3):
                    count += alive[i + a - 1, j + b - 1]
            count -= alive[i, j]
            y[i, j] = 1 if count == 3 or (count == 2 and alive[i, j] == 1) else 0
    return y


@weft.kernel
def heat(u):
    """A step in three dimensions; the faces are kept."""
    n, m, k = u.shape
    y = u.clone()
    for a in range(1, n - 1):
        for b in range(1, m - 1):
            for c in range(1, k - 1):
                around = u[a - 1, b, c] + u[a + 1, b, c] + u[a, b - 1, c] + u[a, b + 1, c] + u[a, b, c - 1] + u[a, b, c + 1]
                y[a, b, c] = u[a, b, c] + 0.1 * (around - 6 * u[a, b, c])
    return y


# ---------------------------------------------------------------- pairs


@weft.kernel
def outer(a, b):
    y = torch.empty(a.shape[0], b.shape[0])
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            y[i, j] = a[i] * b[j]
    return y


@weft.kernel
def distances(a, b):
    n, width = a.shape
    y = torch.empty(n, b.shape[0])
    for i in range(n):
        for j in range(b.shape[0]):
            s = 0.0
            for d in range(width):
                s += (a[i, d] - b[j, d]) * (a[i, d] - b[j, d])
            y[i, j] = torch.sqrt(s)
    return y


@weft.kernel
def overlaps(a, b):
    """Intersection over union of boxes (x0, y0, x1, y1)."""
    y = torch.empty(a.shape[0], b.shape[0])
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            w = max(min(a[i, 2], b[j, 2]) - max(a[i, 0], b[j, 0]), 0)
            h = max(min(a[i, 3], b[j, 3]) - max(a[i, 1], b[j, 1]), 0)
            one = (a[i, 2] - a[i, 0]) * (a[i, 3] - a[i, 1])
            two = (b[j, 2] - b[j, 0]) * (b[j, 3] - b[j, 1])
            y[i, j] = w * h / (one + two - w * h)
    return y


@weft.kernel
def nearest(x, centres):
    n, width = x.shape
    place = torch.empty(n, dtype=torch.int64)
    for i in range(n):
        best = math.inf
        where = 0
        for k in range(centres.shape[0]):
            s = 0.0
            for d in range(width):
                s += (x[i, d] - centres[k, d]) * (x[i, d] - centres[k, d])
            if s < best:
                best = s
                where = k
        place[i] = where
    return place


# ---------------------------------------------------------------- what data choose


@weft.kernel
def gathered_pages(pages, table):
    """(pages, 16, heads, width) as each sequence's table of pages says."""
    batch, count = table.shape
    many, size, heads, width = pages.shape
    y = torch.empty(batch, count, size, heads, width, dtype=pages.dtype)
    for b in range(batch):
        for k in range(count):
            for t in range(size):
                for h in range(heads):
                    for d in range(width):
                        y[b, k, t, h, d] = pages[table[b, k], t, h, d]
    return y


@weft.kernel
def stored_keys(cache, slots, keys):
    """Keys of new tokens put into their slots of a cache, in place."""
    tokens, heads, width = keys.shape
    for t in range(tokens):
        for h in range(heads):
            for d in range(width):
                cache[slots[t], h, d] = keys[t, h, d]


@weft.kernel
def segment_sums(x, starts):
    """Rows starts[s] to starts[s + 1], summed."""
    width = x.shape[1]
    y = torch.empty(starts.shape[0] - 1, width)
    for s in range(starts.shape[0] - 1):
        for d in range(width):
            total = 0.0
            for i in range(starts[s], starts[s + 1]):
                total += x[i, d]
            y[s, d] = total
    return y


@weft.kernel
def top_expert(logits):
    """The likeliest expert of each token, and its probability."""
    tokens, experts = logits.shape
    place = torch.empty(tokens, dtype=torch.int64)
    weight = torch.empty(tokens)
    for t in range(tokens):
        best = -math.inf
        where = 0
        for e in range(experts):
            if logits[t, e] > best:
                best = logits[t, e]
                where = e
        s = 0.0
        for e in range(experts):
            s += torch.exp(logits[t, e] - best)
        place[t] = where
        weight[t] = 1 / s
    return place, weight


@weft.kernel
def levels(image):
    """How often each byte occurs."""
    count = torch.zeros(256, dtype=torch.int64)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            count[int(image[i, j])] += 1
    return count


@weft.kernel
def quantised(x):
    """Rows as bytes, and the scale of each."""
    rows, width = x.shape
    y = torch.empty(rows, width, dtype=torch.int8)
    scale = torch.empty(rows)
    for i in range(rows):
        top = 1e-8
        for j in range(width):
            top = max(top, abs(x[i, j]))
        scale[i] = top / 127
        for j in range(width):
            y[i, j] = int(torch.round(x[i, j] * (127 / top)))
    return y, scale
