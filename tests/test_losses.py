"""Losses that are divided by how many labels count, and other loops with a memory of a few flags."""

from __future__ import annotations

import math

import torch

import weft
from tests.test_joins_apart import function_of
from weft.loops.analyze import schedule


@weft.kernel
def labelled(logits, target):
    rows, classes = logits.shape
    loss, count = 0.0, 0.0
    for i in range(rows):
        top = -math.inf
        for c in range(classes):
            top = max(top, logits[i, c])
        total = 0.0
        for c in range(classes):
            total += torch.exp(logits[i, c] - top)
        if target[i] >= 0:
            loss += top + torch.log(total) - logits[i, target[i]]
            count += 1.0
    return loss / max(count, 1.0)


@weft.kernel
def drawn(p, u):
    rows, width = p.shape
    y = torch.empty(rows, dtype=torch.int64)
    for r in range(rows):
        total = 0.0
        found = width - 1
        done = False
        for i in range(width):
            total += p[r, i]
            if not done and total > u[r]:
                found = i
                done = True
        y[r] = found
    return y


@weft.kernel
def turned_pairs(x, c):
    rows, width = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        for i in range(width // 2):
            y[r, 2 * i] = x[r, 2 * i] * c[i] - x[r, 2 * i + 1]
            y[r, 2 * i + 1] = x[r, 2 * i + 1] * c[i] + x[r, 2 * i]
    return y


def kind(kernel: weft.Kernel, var: str, *args: torch.Tensor) -> str:
    return next(v.kind for v in schedule(function_of(kernel, args)).loops if v.var == var)


def test_whole_numbers_decide_nothing_that_their_order_changes():
    x, t = torch.randn(6, 5, requires_grad=True), torch.tensor([0, -1, 3, 4, -1, 2])
    assert kind(labelled, "i", x, t) == "reduction"
    own, other = labelled(x, t), torch.nn.functional.cross_entropy(x, t, ignore_index=-1)
    torch.testing.assert_close(own, other)
    torch.testing.assert_close(*(torch.autograd.grad(y, x)[0] for y in (own, other)))


def test_a_flag_that_is_raised_once_is_a_scan():
    p, u = torch.rand(4, 7).softmax(1), torch.tensor([0.0, 0.4, 0.99, 2.0])
    assert kind(drawn, "i", p, u) == "scan"
    torch.testing.assert_close(drawn(p, u), drawn.py(p, u))


def test_every_other_element_gets_its_gradient_in_place():
    x, c = torch.randn(3, 8, requires_grad=True), torch.randn(4)
    g = torch.randn(3, 8)
    own, other = (torch.autograd.grad(f(x, c), x, g)[0] for f in (turned_pairs, turned_pairs.py))
    torch.testing.assert_close(own, other)
