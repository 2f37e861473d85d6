"""Views, copies and names that mean one object: what a store or an assignment in place changes is what Python changes.

Every program gives what the plain Python gives, or is refused where two names may be one object and the difference shows.
"""

from __future__ import annotations

import itertools
import linecache
import os
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from test_language import R, check

import weft
from weft.errors import NotDifferentiable, OverlapError, ShapeMismatch, UndefinedName, WeftError
from weft.pytorch.overlap import share_memory

pytestmark = pytest.mark.usefixtures("quickly_compiled")

# name: the body of a function of x [4], z [4], c [4, 3] and k (an int), all of float64
EQUAL: dict[str, str] = {
    "a swap of elements stores one into both": "x[0], x[1] = x[1], x[0]",
    "a swap of copies": "x[0], x[1] = x[1].clone(), x[0].clone()",
    "a swap of values": "x[0], x[1] = x[1] * 1, x[0] + 0",
    "a rotation of elements": "x[0], x[1], x[2] = x[2], x[0], x[1]",
    "a swap of named elements": "a, b = x[0], x[1]\nx[0], x[1] = b, a",
    "a swap of slices": "x[:2], x[2:] = x[2:], x[:2]",
    "a swap of rows": "c[0], c[1] = c[1], c[0]",
    "a tuple goes on": "s = (x[0], 1.0)\nfor v in z:\n    s = (s[1] * v, s[0] + v)\nx[1], x[2] = s",
    "a tuple goes on in a tuple, and on a branch": (
        "s = ((x[0] * 1, 0), z[1] * 1)\nfor i in range(4):\n    (a, n), b = s\n    if x[i] > 0:\n        s = ((b, n + 1), a)\n"
        "    z[i] = s[0][0] * s[0][1]"
    ),
    "a list goes on": (
        "s = [0, x[0]]\nfor i in range(4):\n    s = [s[1], s[0] + z[i]]\n    if s[0] > 1:\n        break\nx[2] = s[1]"
    ),
    "a tuple that a function gives goes on": (
        "def step(n, m, v): return n + 1, m + (v - m) / (n + 1)\n"
        "s = (0, 0.0)\nfor v in z:\n    s = step(*s, v)\nx[0] = s[1] + s[0]"
    ),
    "a swap in a loop": "for i in range(2):\n    x[i], x[3 - i] = x[3 - i], x[i]",
    "an element is a view": "t = x[0]\nx[0] = 0.0\nz[0] = t",
    "a choice of tensors whose sizes the call tells": "y = x if k > 1 else z * 2\nc[:, 0] = y",
    "the largest of what was stored": "m = x[0] * 1\nfor i in range(4):\n    x[i] = z[i] * 2\n    m = max(m, x[i])\nz[0] = m",
    "the least of rows, backwards": (
        "m = 9.0\nfor i in range(3, -1, -1):\n    for j in range(0, 3, 2):\n"
        "        c[i, j] = z[i] * 2\n        m = min(m, c[i, j])\n    z[i] = m"
    ),
    "a product with one is a copy": "t = x[0] * 1\nx[0] = 0.0\nz[0] = t",
    "a sum with zero is a copy": "t = x[0] + 0\nx[0] = 0.0\nz[0] = t",
    "a first power is a copy": "t = x[0] ** 1\nx[0] = 0.0\nz[0] = t",
    "a clone is a copy": "t = x[0].clone()\nx[0] = 0.0\nz[0] = t",
    "a number is a copy": "t = float(x[0])\nx[0] = 0.0\nz[0] = t",
    "an item is a copy": "t = x[0].item()\nx[0] = 0.0\nz[0] = t",
    "plus is the same object": "t = +x[0]\nx[0] = 0.0\nz[0] = t",
    "a conversion to the same dtype is the same object": "t = x[0].double()\nx[0] = 0.0\nz[0] = t",
    "to the same dtype is the same object": "t = x[0].to(torch.float64)\nx[0] = 0.0\nz[0] = t",
    "type_as of the same dtype is the same object": "t = x[0].type_as(z)\nx[0] = 0.0\nz[0] = t",
    "as_tensor is the same object": "t = torch.as_tensor(x[0])\nx[0] = 0.0\nz[0] = t",
    "tensor is a copy": "t = torch.tensor(float(x[0]), dtype=torch.float64)\nx[0] = 0.0\nz[0] = t",
    "a conversion there and back is a copy": "t = x[0].float().double()\nx[0] = 0.0\nz[0] = t",
    "a rounded int is a copy": "t = (x[0] * 0).long()\nu = torch.round(t)\nt += 1\nz[0] = u",
    "a conversion of a tensor to its dtype is itself": "y = x.double()\ny[0] = 9.0",
    "plus of a tensor is itself": "y = +x\ny[0] = 9.0",
    "to of a tensor is itself": "y = x.to(x.dtype)\ny[0] = 9.0",
    "a clone of a tensor is a copy": "y = x.clone()\ny[0] = 9.0\nz[0] = y[0]",
    "a conversion of a tensor is a copy": "y = x.float()\ny[0] = 9.0\nz[0] = y[0]",
    "contiguous of a new tensor is itself": "y = torch.zeros(4, dtype=x.dtype)\ny.contiguous()[0] = 9.0\nz[0] = y[0]",
    "contiguous is read": "y = x.contiguous()\nz[0] = y[0]",
    "an element changed in place": "t = x[0]\nt += 1",
    "a named element changed in place by another name": "t = x[0]\nu = t\nu += 1\nz[0] = t",
    "an element changed in place in a loop": "t = x[0]\nfor i in range(1, 4):\n    t += x[i]\nz[0] = t",
    "an element of a row changed in place": "for i in range(4):\n    t = c[i, 0]\n    t *= 2\n    c[i, 1] = t",
    "two names of one value": "a = x[0] * 2\nb = a\nb += 1\nz[0] = a",
    "two names of one value, the other way": "a = x[0] * 2\nb = a\na += 1\nz[0] = b",
    "one value rebound": "a = x[0] * 2\nb = a\nb = b + 1\nz[0] = a",
    "three names of one value": "a = b = x[0] * 2\nd = b\nd -= 1\nz[0] = a + b",
    "a name of one value rebound, then changed": "a = x[0] * 2\nb = a\na = x[1] * 3\na += 1\nz[0] = b",
    "two names changed in a loop": "a = x[0] * 2\nb = a\nfor i in range(4):\n    a += x[i]\nz[0] = b",
    "two names changed on a branch": "a = x[0] * 2\nb = a\nif k > 1:\n    a += 1\nz[0] = b",
    "names swapped": "a, b = x[0] * 1, x[1] * 1\na, b = b, a\na += 5\nz[0] = b\nz[1] = a",
    "names swapped in a loop": (
        "a, b = x[0] * 1, x[1] * 1\nfor i in range(3):\n    a, b = b, a + x[i]\nz[0] = b\nz[1] = a"
    ),
    "a running value that another name keeps": (
        "best = 0.0\nfor j in range(4):\n    s = 0.0\n    for i in range(3):\n        s += c[j, i]\n"
        "    if s > best:\n        best = s\nz[0] = best"
    ),
    "a value before the change": "h = x[0] * 1\nfor i in range(4):\n    before = h\n    h += x[i]\n    z[i] = h - before",
    "a value before the rebinding": (
        "h = x[0] * 1\nfor i in range(4):\n    before = h\n    h = h + x[i]\n    z[i] = h - before"
    ),
    "plus of a value is itself": "a = x[0] * 2\nb = +a\nb += 1\nz[0] = a",
    "a value converted to its dtype is itself": "a = x[0] * 2\nb = a.double()\nb += 1\nz[0] = a",
    "the larger of two is one of them": "a = x[0] * 2\nb = max(a, a)\nb += 1\nz[0] = b",
    "a value through a helper": "a = x[0] * 2\nb = same(a)\nb += 1\nz[0] = a",
    "a value changed by a helper": "a = x[0] * 2\nb = bump(a)\nz[0] = a + b",
    "an element changed by a helper": "bump(x[0])",
    "an element of a rebound tensor": "b = x * 2\nt = b[0]\nb = x * 3\nz[0] = t\nz[1] = b[0]",
    "a view of a rebound tensor": "b = x * 2\nt = b[1:]\nb = x * 3\nz[0] = t[0]",
    "a second name of a rebound tensor": "b = x * 2\nd = b\nb = x * 3\nz[0] = d[0]",
    "a second name of a tensor": "b = x * 2\nd = b\nb[0] = 7.0\nz[0] = d[0]",
    "a row is a view": "r = c[1]\nc[1, 0] = 5.0\nz[0] = r[0]",
    "a row stored into": "r = c[1]\nr[0] = 5.0\nz[0] = c[1, 0]",
    "a row changed in place": "r = c[1]\nr += 1",
    "a row rebound": "r = c[1]\nr = r + 1\nz[0] = r[0]",
    "a transpose stored into": "t = c.T\nt[0, 1] = 5.0",
    "a slice onto itself, shifted": "x[1:] = x[:-1].clone()",
    "a carried element is re-read": "t = x[0]\nfor i in range(4):\n    x[i] = x[i] + 1\n    z[i] = x[0]",
    "a tuple of values": "p = (x[0] * 2, x[1] * 3)\na, b = p\nz[0] = a + b",
    "tensors without dimensions": "a = torch.zeros((), dtype=x.dtype)\nb = a\nb += x[0]\nz[0] = a",
    "zeros like an element": "for i in range(4):\n    z[i] = torch.where(x[i] > 0.5, x[i], torch.zeros_like(x[i]))",
    "full like an element": "t = torch.full_like(x[0], 3.0)\nt += 1\nz[0] = t",
    "a new tensor like an element": "t = x[0].new_zeros(())\nt += 1\nz[0] = t",
    "rows from their loop's element on": "for i in range(4):\n    x[i:] += z[i:]",
    "slices between two loop variables": "for i in range(4):\n    for j in range(i, 4):\n        x[i:j] = z[i:j] * 2",
    "slices that are shifted": "x[1:] += z[:-1]",
    "in place keeps the dtype": "t = (x[0] * 3).float()\nt += x[1]\nz[0] = t",
}
# What branches and choices leave a name, one tensor or another, is read, or is given to a name that is stored into alone.
EQUAL |= {
    "an argument or a product": "y = x\nif k > 1:\n    y = x * 2\nz[0] = y[1]",
    "an argument given another value on a branch": "if k > 1:\n    x = x / x.sum()\nfor i in range(4):\n    z[i] = x[i] + x[0]",
    "rows of a branch": "r = c[0]\nif k > 1:\n    r = c[1]\nz[0] = r[1]",
    "rows swapped on a branch": "a, b = c[0], c[1]\nif k > 1:\n    a, b = b, a\nz[0] = a[0] - b[1]",
    "a row or its double, in a loop": (
        "for i in range(4):\n    r = c[i]\n    if r[0] > 0.5:\n        r = r * 2\n    z[i] = r[0] + r[1]"
    ),
    "a choice of tensors": "y = x if k > 1 else x * 2\nz[0] = y[1]",
    "a choice of rows": "for i in range(4):\n    z[i] = (c[i] if x[i] > 0.5 else c[0])[1]",
    "a choice with a reduction": "y = c.softmax(-1) if k > 1 else c\nz[0] = y[1, 1]",
    "a branch's own tensor stored into": "y = x\nif k > 1:\n    y = y * 2\n    y[0] = 7.0\nz[0] = y[0]",
    "a value of some iterations that none keeps": (
        "y = z * 2\nd = y\nfor i in range(3):\n    y[0] = x[1]\n    if k > 1:\n        d = y * 2\n        y[1] = d[2]\n"
        "z[1] = y[1]"
    ),
}
# The same, but two names may be one object, and what they then mean would show.
REFUSED: dict[str, tuple[str, str]] = {
    "a tuple's item is a view": (
        "s = (x[0], x[1])\nfor i in range(4):\n    s = (s[1], x[i])\n    x[i - 1] = s[0] * 2", "s is a view of an element of x"
    ),
    "a tuple grows": ("s = (x[0],)\nfor i in range(4):\n    s = (*s, x[i])\nx[0] = s[1]", "s has no value here"),
    "tensors of two branches": (
        "a = x.clone()\nb = x * 2\nif k > 1:\n    a = b\na[0] = 100.0\nz[0] = b[0]",
        "may be the same tensor",
    ),
    "a tensor kept by a loop": (
        "b = x * 1\nd = x * 2\nfor i in range(2):\n    d[0] = 7.0\n    z[i] = b[0]\n    d = b",
        "may be the same tensor",
    ),
    "a tensor of one branch, not of the next": (
        "a = x.clone()\nb = x * 2\nif k > 1:\n    a = b\nif k > 5:\n    a = x * 3\na[0] = 100.0\nz[0] = b[0]",
        "may be the same tensor as a,",
    ),
    "a tensor of one branch, unless a loop runs": (
        "a = x.clone()\nb = x * 2\nif k > 1:\n    a = b\nfor i in range(k - 3):\n    a = a * 3\na[0] = 100.0\nz[0] = b[0]",
        "may be the same tensor as a,",
    ),
    "an argument or a product, stored into": ("y = x\nif k > 1:\n    y = x * 1\ny[0] = 7.0", "y may be x or a part of it"),
    "an argument or a product, the argument stored into": (
        "y = x\nif k > 5:\n    y = x * 1\nx[0] = 7.0\nz[0] = y[0]",
        "it may be the same tensor as x",
    ),
    "a choice of tensors, stored into": ("y = x if k > 1 else x * 2\ny[0] = 7.0", "y may be x or a part of it"),
    "tensors of other shapes": ("y = c\nif k > 1:\n    y = x\nz[0] = y.sum()", "of another shape or dtype"),
    "a choice of other shapes": ("y = c * 1 if k > 1 else x * 1\nz[0] = y.sum()", "a choice between"),
    "an argument kept by a loop": (
        "d = x * 2\nfor i in range(2):\n    d[0] = 7.0\n    d = x",
        "may be x",
    ),
    "a row kept by a loop": (
        "r = c[0]\nfor i in range(4):\n    c[i, 1] = 1.0\n    z[i] = r[1]\n    r = c[i]",
        "may be the same tensor",
    ),
    "a value of one branch": ("a = x[0] * 2\nb = x[1] * 2\nif k > 1:\n    b = a\nb += 1\nz[0] = a", "may be the same tensor"),
    "a value of a choice": ("a = x[0] * 2\nb = a if k > 1 else x[1] * 2\nb += 1\nz[0] = a", "may be the same tensor"),
    "a value of a maximum": ("a = x[0] * 2\nb = max(a, 1.0)\nb += 1\nz[0] = a", "may be the same tensor"),
    "an element of a branch": ("a = x[0]\nif k > 1:\n    a = x[1]\na += 1", "may be a view of an element of x"),
    "an element of a branch that was stored into": (
        "a = x[0]\nif k > 1:\n    a = x[1]\nx[0] = 5.0\nz[0] = a",
        "is a view of an element of x",
    ),
    "the largest, stored into since": (
        "m = x[0] * 1\nfor i in range(4):\n    m = max(m, x[i])\n    x[i] = 0.0\nz[0] = m",
        "m is a view of an element of x",
    ),
    "the largest, met from the other end": (
        "m = x[0] * 1\nfor i in range(4):\n    m = max(m, x[3 - i])\n    x[i] = 0.0\nz[0] = m",
        "m is a view of an element of x",
    ),
    "the larger of two, swapped": ("a, b = x[0], x[1]\nx[0], x[1] = min(a, b), max(a, b)", "it is a view of an element of x"),
    "a number or a value": (
        "s = 0.0\nb = 0.0\nfor i in range(4):\n    s += x[i]\n    z[i] = b\n    b = s",
        "may be the same tensor",
    ),
    "contiguous, stored into": ("y = x.contiguous()\ny[0] = 9.0", "a copy or a view"),
    "contiguous of what is stored into": ("y = x.contiguous()\nx[0] = 9.0\nz[0] = y[0]", "a copy or a view"),
    "an element of contiguous of what is stored into": (
        "t = x.contiguous()[0]\nx[0] = 9.0\nz[0] = t",
        "is a view of an element of x",
    ),
    "an int that would become a float": ("t = (x[0] * 3).long()\nt += 0.5\nz[0] = t", "cannot be stored in place"),
    "an item of a tuple": ("p = (x[0] * 2, x[1] * 2)\na, b = p\na += 1\nz[0] = p[0]", "may be the same tensor"),
}
# More of them, in other orders of stores, second names and changes in place.
ORDERS = [
    "for v in x:\n    v += 1",
    "for i, v in enumerate(x):\n    x[3 - i] = v\n    z[i] = v",
    "a = x[0] * 2\nf = lambda: a\nb = f()\na += 1\nz[0] = b",
    "a = x[0] * 2\nfor i in range(3):\n    b = a\n    a = a + 1\n    b += 10\n    z[i] = a + b",
    "a = x[0] * 1\nb = x[1] * 1\nfor i in range(3):\n    a, b = b, a\n    a += x[i]\n    z[i] = b",
    "a = x[0] * 1\nfor i in range(4):\n    if i == 2:\n        b = a\n        b += 5\n    z[i] = a",
    "r = c[0]\nfor i in range(1, 4):\n    z[i] = r[0]\n    r = c[i]",
    "r = c[0] * 1\ns = r\nfor i in range(4):\n    r = r + c[i]\n    z[i] = s[0]",
    "r = c[0] * 1\nfor i in range(4):\n    s = r\n    r += c[i]\n    z[i] = s[0]",
    "r = c[0] * 1\nfor i in range(4):\n    s = r\n    r = r + c[i]\n    z[i] = s[0]",
    "r = c[0] * 1\ns = c[1] * 1\nfor i in range(4):\n    r, s = s, r + c[i]\n    r[0] = 3.0\n    z[i] = s[0]",
    "t = c[0]\nc = c * 2\nc[0, 0] = 9.0\nz[0] = t[0]",
    "y = x\nx = x * 2\ny[0] = 5.0\nz[0] = x[0]",
    "y = x[1:]\ny[0] = y[1]\nz[0] = x[1]",
    "t = x[0]\nx.zero_()\nz[0] = t",
    "t = x[0]\nx += 1\nz[0] = t",
    "t = x[0]\nx[:] = z\nz[1] = t",
    "t = x.clone()[0]\nx[0] = 4.0\nz[0] = t",
    "t = (x * 2)[0]\nx[0] = 4.0\nz[0] = t",
    "t = x.sum()\nx[0] = 4.0\nz[0] = t",
    "t = x[0] if k > 1 else x[1]\nz[0] = t",
    "t = x[k]\nx[k] = 3.0\nz[0] = t\nx[k - 1] = 5.0\nz[1] = t",
    "t = x[1]\nfor i in range(4):\n    x[i] = t + 1\nz[0] = t",
    "n = 0\nm = n\nfor i in range(4):\n    n += 1\n    z[i] = m",
    "a = x[0].clone()\nb = same(same(a))\nb *= 3\nz[0] = a",
    "a = x[0] * 1\nb = x[1] * 1\nm = max(a, b)\nm += 1\nz[0] = m",
    "a = torch.tensor(2.0, dtype=x.dtype)\nb = a\nb += x[0]\nz[0] = a",
    "x[0] = x[1] = x[2]\nx[2] = 9.0",
    "a = b = x[0]\nb += 1\nz[0] = a",
    "t = c.T[0]\nt += 1\nz[0] = c[1, 0]",
    "c[:, 0], c[:, 1] = c[:, 1], c[:, 0]",
    "a = c[0]\nb = c[1]\na[:], b[:] = b, a",
    "w = x.expand(2, 4)\nx[0] = 8.0\nz[0] = w[1, 0]",
    "u = x.unsqueeze(0)\nu[0, 1] = 8.0",
    "t = x[0]\nu = t.clone()\nt += 1\nz[0] = u\nz[1] = t",
    "t = c[1]\nu = t[0]\nt[0] = 4.0\nz[0] = u",
]
HELPERS = """
def same(v):
    return v

def bump(v):
    v += 1
    return v

"""


def program(body: str) -> tuple[str, Any]:
    text = HELPERS + "def program(x, z, c, k):\n" + textwrap.indent(body, "    ") + "\n    return z * 1\n"
    scope: dict[str, Any] = {"torch": torch}
    exec(text, scope)
    return text, scope["program"]


@pytest.mark.parametrize("body", [*EQUAL.values(), *ORDERS], ids=[*EQUAL, *ORDERS])
def test_what_changes_is_what_changes_in_python(body: str) -> None:
    text, python = program(body)
    for k in (1, 3):
        check(text, python, (R(4), R(4) + 1, R(4, 3), k))


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED)
def test_what_may_be_one_object_is_refused_where_it_shows(body: str, message: str) -> None:
    text, python = program(body)
    with pytest.raises(WeftError) as caught:
        check(text, python, (R(4), R(4) + 1, R(4, 3), 3))
    assert message in caught.value.message
    assert caught.value.location is not None and caught.value.remedy


@pytest.mark.parametrize("make", ["zeros", "ones", "empty"])
def test_a_tensor_of_given_sizes_is_contiguous_and_one_like_another_is_not(make: str) -> None:
    text = f"""
def program(x):
    y = torch.{make}(x.shape)
    z = torch.{make}_like(x)
    w = x.new_{make}(x.shape)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j]
            z[i, j] = x[i, j]
            w[i, j] = x[i, j]
    return y, z, w, x * 2
"""
    kernel = kernel_of(text)
    for x in (torch.rand(3, 4).T, torch.rand(3, 8)[:, ::2], torch.rand(1, 4).expand(3, 4), torch.rand(3, 4)):
        for ours, theirs in zip(kernel(x), kernel.py(x), strict=True):
            assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def test_a_tensor_like_one_of_two_has_the_strides_of_that() -> None:
    text = """
def program(x, y):
    z = torch.zeros_like(y)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            z[i, j] += x[i, j] * y[i, j]
    return z
"""
    kernel = kernel_of(text)
    for x, y in ((torch.rand(3, 4), torch.rand(4, 3).T), (torch.rand(4, 3).T, torch.rand(3, 4))):
        ours, theirs = kernel(x, y), kernel.py(x, y)
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def kernel_of(text: str) -> weft.Kernel:
    """A kernel of a program that is only text."""
    file = f"<test_objects {zlib.crc32(text.encode())}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(text, file, "exec"), scope)
    return weft.kernel(scope["program"])


UNUSUAL = """
import sys
import torch
import weft

torch.set_num_threads(1)

@weft.kernel
def doubled(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * 2
    return y

x = torch.rand(2, 3)
unusual = {
    "nested": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.rand(2), torch.rand(3)], layout=torch.jagged),
    "sparse": x.to_sparse,
    "compressed": x.to_sparse_csr,
    "quantized": lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "opaque": x.to_mkldnn,
    "meta": lambda: x.to("meta"),
    "none": lambda: None,
}
for name, make in unusual.items():
    doubled(x), doubled(x), doubled(x)
    try:
        doubled(make())
    except weft.errors.WeftError as error:
        print(name, type(error).__name__, error.remedy is not None)
print("wrapped", torch.equal(torch._from_functional_tensor(doubled(torch._to_functional_tensor(x))), x * 2))
"""


def test_tensors_of_unusual_kinds_are_refused_in_a_warm_call_too(tmp_path: Path) -> None:
    """In a process of its own: what is not refused may end it."""
    file = tmp_path / "unusual.py"
    file.write_text(UNUSUAL)
    environment = os.environ | {"PYTHONPATH": str(Path(weft.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.split("\n")
    expected = {"nested", "jagged", "sparse", "compressed", "quantized", "opaque", "none"}
    assert done.returncode == 0, done.stderr[-2000:]
    assert expected <= {line.split()[0] for line in lines if line.endswith("True")}, done.stdout
    assert "wrapped True" in lines


def test_sizes_that_differ_by_what_the_arguments_decide_are_checked_at_the_call() -> None:
    text = """
def program(a, b):
    y = torch.zeros_like(a)
    for i in range(a.shape[0]):
        y[i:] += b[i:]
    y[1:] += b[:-1]
    return y
"""
    kernel = kernel_of(text)
    assert torch.equal(kernel(torch.rand(5), torch.arange(5.0)), kernel.py(torch.rand(5), torch.arange(5.0)))
    with pytest.raises(ShapeMismatch, match="sizes differ"):
        kernel(torch.rand(5), torch.rand(6))


@pytest.mark.parametrize("make", ["zeros_like(x[i])", "ones_like(x[i])", "full_like(x[i], 2)", "zeros(())"])
def test_a_tensor_without_dimensions_is_made_in_every_iteration(make: str) -> None:
    text = f"""
def program(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        t = torch.{make}
        t += x[i]
        y[i] = torch.where(x[i] > 0.0, t, torch.{make})
    return y
"""
    kernel, x = kernel_of(text), torch.linspace(-1, 1, 5)
    assert torch.equal(kernel(x), kernel.py(x))


STORAGES = st.integers(1, 3).flatmap(
    lambda rank: st.tuples(
        st.lists(st.integers(1, 4), min_size=rank, max_size=rank),
        st.lists(st.integers(0, 9), min_size=rank, max_size=rank),
        st.integers(0, 30),
        st.sampled_from([torch.uint8, torch.int16, torch.float32]),
    )
)


@given(one=STORAGES, other=STORAGES)
@settings(max_examples=400, deadline=None)
def test_tensors_share_memory_where_two_elements_do(one: Any, other: Any) -> None:
    memory = torch.zeros(1024, dtype=torch.uint8)
    tensors, bytes_of = [], []
    for sizes, strides, offset, dtype in (one, other):
        tensor = memory.view(dtype).as_strided(sizes, strides, offset)
        starts = [sum(k * s for k, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, sizes))]
        tensors.append(tensor)
        bytes_of.append({(offset + s) * dtype.itemsize + b for s in starts for b in range(dtype.itemsize)})
    assert share_memory(*tensors) == bool(bytes_of[0] & bytes_of[1])


def test_views_that_lie_between_each_other_are_written() -> None:
    kernel = kernel_of("""
def program(x, z):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            z[i, j] = x[i, j] * 2
""")
    for split in (lambda t: (t[0::2], t[1::2]), lambda t: (t[:, :3], t[:, 3:]), lambda t: (t[:, 1::2], t[:, 0::2])):
        ours, theirs = torch.rand(4, 6), torch.empty(4, 6)
        theirs.copy_(ours)
        kernel(*split(ours))
        kernel.py(*split(theirs))
        assert torch.equal(ours, theirs)
    with pytest.raises(OverlapError, match="shares memory"):
        kernel(ours[:, :3], ours[:, 2:5])


# name: a function of x, y and z, of which some may be one tensor
SAME: dict[str, str] = {
    "elementwise": "for i in range(len(x)):\n    y[i] = x[i] * 2 + z[i]",
    "a running sum": "for i in range(1, len(x)):\n    y[i] = x[i - 1] + y[i]\nz[0] = y[2]\nreturn y, x",
    "two that are written": "for i in range(len(x)):\n    y[i] = x[i] + z[i]\n    x[i] = y[i] + 1\nreturn x.sum(), y",
    "the next element": "for i in range(len(x) - 1):\n    y[i] = x[i + 1] * z[i]\nreturn [z]",
    "reversed": "n = len(x)\nfor i in range(n):\n    y[i] = x[n - 1 - i] + z[i]",
    "at once": "y[:] = x[:] * z.sum()",
    "an element that is kept": "t = x[0]\ny[0] = 9.0\nz[1] = t",
}


@pytest.mark.parametrize("body", SAME.values(), ids=SAME)
def test_arguments_that_are_one_tensor_are_two_names_of_it(body: str) -> None:
    """Whatever was called before, and whether the same object is passed or another view of all of it."""
    kernel = kernel_of("def program(x, y, z):\n" + textwrap.indent(body, "    ") + "\n")
    patterns = [(0, 1, 2), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0), (0, 1, 2), (0, 0, 0)]
    for pattern, again in itertools.product(patterns, (lambda t: t, lambda t: t.view(5), lambda t: t[:])):
        ours = [torch.linspace(-1, 1, 5) + k for k in range(3)]
        theirs = [t.clone() for t in ours]
        made = kernel(*(again(ours[k]) if n else ours[k] for n, k in enumerate(pattern)))
        expected = kernel.py(*(again(theirs[k]) if n else theirs[k] for n, k in enumerate(pattern)))
        torch.testing.assert_close(made, expected)
        torch.testing.assert_close(ours, theirs)


def test_what_is_returned_is_the_argument_that_the_python_returns() -> None:
    kernel = kernel_of("def program(x, y):\n    for i in range(len(x)):\n        y[i] = x[i] + 1\n    return y, x\n")
    x = torch.zeros(3)
    y = x.view(3)
    made = kernel(x, y)
    assert made[0] is y and made[1] is x and x.tolist() == [1.0, 1.0, 1.0]


STENCIL = "def program(x, y):\n    for i in range(1, len(x)):\n        y[i] = x[i - 1] + y[i]\n"


def test_arguments_that_share_some_elements_are_refused() -> None:
    kernel, t = kernel_of(STENCIL), torch.arange(12.0)
    for x, y in ((t[1:], t[:-1]), (t[:6], t[::2]), (t[:5], t[:6]), (t[:4].view(torch.int32), t[:4])):
        with pytest.raises(OverlapError, match="y is written, and x shares memory"):
            kernel(x, y)
    assert t.equal(torch.arange(12.0))
    empty = torch.empty(0)
    kernel(empty, empty)


def test_arguments_that_share_memory_are_told_apart_by_transforms() -> None:
    """torch.compile writes into a copy, which is no argument's; functionalize may, where it is all of the arguments."""
    kernel = kernel_of(STENCIL)

    def twice(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        kernel(y, y)
        return y

    def parts(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        kernel(y[0::2], y[1::2])
        return y

    x = torch.arange(6.0)
    expected = torch.tensor([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    assert torch.equal(twice(x), expected)
    assert torch.equal(torch.func.functionalize(twice)(x), expected)
    with pytest.raises(Exception, match="cannot record a call of program with x and y sharing memory"):
        torch.compile(twice, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(torch.compile(parts, backend="aot_eager", fullgraph=True)(x), parts(x))
    with pytest.raises(OverlapError, match="under torch.func.functionalize"):
        torch.func.functionalize(lambda t: kernel(t.clone()[:], t) or kernel((y := t.clone())[1:], y[:-1]))(x)
    needs = torch.rand(4, requires_grad=True)
    with pytest.raises(NotDifferentiable, match="writes in place"):
        kernel(needs, needs)


def test_the_items_of_a_loop_that_is_written_out_are_computed_before_it() -> None:
    """Values, that is: a view of an element shows what the element is by then."""

    def computed(r, q: int):
        for i in range(r.shape[0]):
            for k in [q * q, 3 * r[i], -r[i]]:
                r[2 - i] = r[2 - i] - k
        return r

    def views(r, q: int):
        xs = [r[0], r[1] * 1]
        for k in xs:
            r[1] = r[1] + k
        for a, b in ((r[0] * 2, r[1]), (r[1] - 1, q)):
            r[0] = r[0] + a
            r[1] = b + 1
        for k in (r[0], r[1]):
            r[1] = r[1] * 2 + k
        return r

    for function in (computed, views):
        for values in ([1.0, 2.0, 3.0], [0.0, -1.0, 0.5]):
            x = torch.tensor(values)
            torch.testing.assert_close(weft.kernel(function)(x.clone(), 2), function(x.clone(), 2), rtol=0, atol=0)


@pytest.mark.parametrize("item", ["g[k[i]]", "r[i] or g[k[i]]", "r[k[i]] if r[i] > 0 else g[k[i]]", "(g[k[i]] or r[i]) * 1"])
@pytest.mark.parametrize("loop", ["for v in (1, {0}, 2):", "for w, v in ((0, 1), (1, {0}), (2, 2)):"])
def test_an_item_that_may_be_a_view_shows_what_is_stored_or_is_refused(loop: str, item: str) -> None:
    """The items of a loop that is written out are made before it, and what it stores shows in those that are views."""
    kernel = weft.kernel(f"""
def f(r, k):
    g = torch.zeros(4)
    for i in range(4):
        {loop.format(item)}
            g[0] = g[0] + v
    return g
""")
    args = torch.tensor([0.0, 2.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 0])
    if item.startswith("r["):  # of one array or another
        with pytest.raises(UndefinedName, match="view of an element of g"):
            kernel(*args)
    else:
        assert kernel(*args).tolist() == kernel.py(*args).tolist()
