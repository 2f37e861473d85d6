"""Views that split, merge, reorder and cut dimensions: what is read and stored through them is what PyTorch's are."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from test_objects import kernel_of

import weft
from weft.errors import OutOfRange, OverlapError, ShapeMismatch, UnsupportedSyntax, WeftError

# name: the body of a function of x [2, 3, 8] and h, which divides 8
READ: dict[str, str] = {
    "heads": """
b, t, c = x.shape
d = c // h
q = x.view(b, t, h, d)
y = torch.zeros(b, t, h, d, dtype=x.dtype)
for i in range(b):
    for j in range(t):
        for g in range(h):
            for e in range(d):
                y[i, j, g, e] = q[i, j, g, e] * q[i, j, g, d - 1 - e]
return y""",
    "heads of what is left": """
b, t, c = x.shape
q = x.view(b, t, h, -1)
y = torch.empty_like(x)
z = y.view(b, t, h, -1)
for i in range(b):
    for g in range(h):
        for e in range(q.shape[-1]):
            s = 0.0
            for j in range(t):
                s = 0.5 * s + q[i, j, g, e]
                z[i, j, g, e] = s
return y""",
    "heads of a constant size": "return x.view(x.shape[0], x.shape[1], -1, 4).sum(-1)",
    "a constant number of heads": """
b, t, c = x.shape
d = c // 2
q = x.view(b, t, 2, d)
y = torch.empty_like(x)
z = y.view(b, t, 2, d)
for g in range(2):
    for e in range(d):
        z[:, :, g, e] = q[:, :, 1 - g, e] * 2
return y""",
    "flat": "q = x.reshape(-1)\ny = torch.zeros_like(q)\nfor i in range(len(q)):\n    y[i] = q[i] * i\nreturn y",
    "flat, written": "y = torch.empty_like(x)\nz = y.view(-1)\nfor i in range(len(z)):\n    z[i] = i * 0.5 + x[0, 0, 0]\nreturn y",  # noqa: E501
    "there and back": "b, t, c = x.shape\ny = (x * 2).view(b * t, c)\nreturn y.view(b, t, c), y",
    "merged and split": "b, t, c = x.shape\nreturn x.view(b * t, h, -1) * 2, x.view(-1, t, h, c // h) * 2, x.reshape(t, -1) * 1",  # noqa: E501
    "transposed": "b, t, c = x.shape\nq = x.view(b, t, h, -1).transpose(1, 2)\nreturn q.reshape(b, h, -1), q.flatten(2), q * 1",
    "attention's way back": "b, t, c = x.shape\nreturn x.view(b, t, h, -1).transpose(1, 2).transpose(1, 2).reshape(b, t, c) * 2",  # noqa: E501
    "contiguous, then a view": "b, t, c = x.shape\nreturn x.transpose(0, 1).contiguous().view(t, b * c) * 2",
    "chunk": "a, b = x.chunk(2, dim=-1)\nreturn a * b",
    "chunk of the first": "return x.chunk(2)[1] * 1, torch.chunk(x, 3, 1)[2] * 1",
    "split": "n = x.shape[-1]\na, b = x.split([1, n - 1], dim=-1)\nreturn a * b, torch.split(x, [2, n - 2], -1)[1] * 1",
    "unbind": "s = 0.0\nfor r in x.unbind(1):\n    s += r[0, 0] * r[1, 1]\nreturn s",
    "unpacked": """
(a, b, c), (d, *_) = x[0], (x[1] * 2).chunk(3)
y = a * b - c * d[0]
for i, (p, q, r) in enumerate(x):
    y += p * q[i] - r
return y""",
    "narrow, select, movedim": "return x.narrow(1, 1, 2) * 2, x.select(0, 1) * 1, x.select(-1, -1) * 1, x.movedim(0, -1) * 1",
    "movedim of several": "return x.movedim((0, 1), (2, 0)) * 1, torch.moveaxis(x, -1, 0) * 1, x.swapdims(0, 2) * 1",
    "ones": "return x.unsqueeze(1).squeeze(1) * 1, x.view(1, *x.shape, 1) * 1, x.narrow(1, 0, 1).squeeze(1) * 1",
    "T and mT": "return x.mT * 1, x[0].T * 1, x[0].t() * 1",
    "flatten": "return x.flatten() * 2, x.flatten(1) + 1, torch.flatten(x, 0, 1) * 1, x.ravel() * 1",
    "unflatten": "return x.unflatten(2, (h, -1)) * 1, x.unflatten(-1, (2, 2, -1)) * 1",
    "of torch": "return torch.reshape(x, (-1, h)) * 2, torch.transpose(x, 0, 1) * 1, torch.permute(x, (2, 0, 1)) * 1",
    "as another": "y = torch.zeros(x.shape[0] * x.shape[1], x.shape[2], dtype=x.dtype)\nreturn x.view_as(y) * 2, x.reshape_as(y) * 1",  # noqa: E501
    "expand": "return x[:, :1].expand(2, 4, 8) * 1, x[:, 1:2].expand_as(x) * 1",
    "the largest of a part": "return x.view(x.shape[0], -1).amax(1), x.view(x.shape[0], x.shape[1], h, -1).sum(-1)",
    "softmax of heads": "b, t, c = x.shape\nreturn torch.softmax(x.view(b, t, h, -1), -1).reshape(b, t, c)",
    "halves": """
b, t, c = x.shape
q = x.view(b, t, h, -1)
d = q.shape[-1] // 2
y = torch.empty_like(x)
z = y.view(b, t, h, -1)
for e in range(d):
    z[..., e] = q[..., e] - q[..., e + d]
    z[..., e + d] = q[..., e + d] + q[..., e]
return y""",
}
# The same, stored into: what is stored through a view is in x.
STORED: dict[str, str] = {
    "one element": "q = x.view(-1, h)\nq[1, 0] = 5.0",
    "each element": "q = x.view(-1)\nfor i in range(q.shape[0]):\n    q[i] = q[i] * 2",
    "heads": "b, t, c = x.shape\nq = x.view(b, t, h, -1)\nfor g in range(h):\n    q[:, :, g, 0] += g + 1",
    "chunk": "a, b = x.chunk(2, dim=-1)\na[:] = b * 2",
    "split": "a, b = x.split([3, 5], dim=-1)\nb[:] *= 2\na[0, 0, 0] = 1.0",
    "unpacked": "a, b = x\n(c, _, d), _ = x\na[0, 0] = 1.0\nd += b[0]\nc[1] = 3.0",
    "of torch": "y = torch.transpose(x, 0, 1)\ny[0, 1, 0] = 7.0",
    "narrow": "x.narrow(1, 1, 2)[0, 0, 0] = 3.0\nx.select(1, 0)[1, 2] = 4.0",
    "read through the other": "q = x.view(-1)\nx[0, 0, 1] = 9.0\nq[0] = q[1]",
}


def _kernel(body: str) -> weft.Kernel:
    return kernel_of("def program(x, h):\n" + textwrap.indent(body.strip(), "    ") + "\n")


def _x() -> torch.Tensor:
    return torch.linspace(-1, 1, 48, dtype=torch.float64).view(2, 3, 8)


@pytest.mark.parametrize("body", READ.values(), ids=READ)
def test_a_view_is_read_and_has_the_gradients_of_pytorch(body: str) -> None:
    kernel = _kernel(body)
    for h in (2, 4):
        ours, theirs = _x().requires_grad_(), _x().requires_grad_()
        made, expected = kernel(ours, h), kernel.py(theirs, h)
        torch.testing.assert_close(made, expected)
        for results in (made, expected):
            results = results if isinstance(results, tuple) else (results,)
            sum((r * torch.arange(1.0, r.numel() + 1).view(r.shape)).sum() for r in results).backward()  # type: ignore[union-attr]
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("body", STORED.values(), ids=STORED)
def test_what_is_stored_through_a_view_is_in_the_tensor(body: str) -> None:
    kernel = _kernel(body)
    ours, theirs = _x(), _x()
    kernel(ours, 2), kernel.py(theirs, 2)
    assert torch.equal(ours, theirs) and not torch.equal(ours, _x())


@pytest.mark.parametrize("name", ["heads", "heads of what is left", "a constant number of heads", "flat, written"])
def test_loops_over_views_are_parallel(name: str) -> None:
    text = str(_kernel(READ[name]).explain("float64[2,3,8]", 2))
    assert "parallel" in text and "sequential" not in text and "reduction" not in text


def test_a_view_of_strides_that_do_not_allow_it_raises_as_in_pytorch() -> None:
    flat = _kernel("return x.view(-1, x.shape[2]) * h")
    for x in (_x(), _x()[:, :, ::2], _x()[:, :1], _x().transpose(0, 1), _x()[:, :2], torch.empty(0, 3, 2).transpose(0, 1)):
        try:
            expected: Any = flat.py(x, 2)
        except RuntimeError:
            with pytest.raises(ShapeMismatch, match="dimensions merged"):
                flat(x, 2)
        else:
            assert torch.equal(flat(x, 2), expected)
    heads, flattened = _kernel("return x.view(*x.shape[:2], h, -1) * 2"), _kernel("return x.reshape(-1) * h")
    for x in (_x()[:, :, ::2], _x().transpose(0, 1), _x().permute(2, 1, 0)[..., :2]):
        assert torch.equal(heads(x, 2), heads.py(x, 2)) and torch.equal(flattened(x, 2), flattened.py(x, 2))


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("return x.view(2, 3, h, 3) * 1", ShapeMismatch, "of the view"),
        ("return x.view(x.shape[0], x.shape[1], h + 1, -1) * 1", ShapeMismatch, "of the view"),
        ("return x.view(-1, -1) * 1", ShapeMismatch, "more than one size is -1"),
        ("return x.chunk(3, dim=2)[0] * 1", ShapeMismatch, "of the view"),
        ("return x.split([3, 3], dim=2)[0] * 1", ShapeMismatch, "of split"),
        ("return x.squeeze(1) * 1", ShapeMismatch, "of squeeze"),
        ("a, b = x[0]\nreturn a * b", ShapeMismatch, "of the names and the tensor that is unpacked"),
        ("return x.split(h, dim=2)[0] * 1", UnsupportedSyntax, "not a constant"),
        ("q = x.reshape(-1, h)\nq[0, 0] = 1.0", UnsupportedSyntax, "a copy or a view"),
        ("q = x.view(2, 3, h, -1)\ny = torch.zeros(5)\nfor i in range(5):\n    y[i] = q[0, 0, 0, i]\nreturn y", OutOfRange, "outside"),  # noqa: E501
        ("q = x.view(2, 3, h, -1)\ny = torch.zeros(5)\nfor i in range(3):\n    y[i] = q[0, 0, 1, i - 1]\nreturn y", OutOfRange, "view"),  # noqa: E501
        ("t = x[0, 0, 0:3]\ny = torch.zeros(5)\nfor i in range(5):\n    y[i] = t[i]\nreturn y", OutOfRange, "outside a view"),
        ("t = x[0, 0, 2:5]\ny = torch.zeros(5)\nfor i in range(3):\n    y[i] = t[i - 1]\nreturn y", OutOfRange, "outside a view"),  # noqa: E501
        ("t = x[0, 0, 2:5]\nfor i in range(5):\n    if x[0, 0, i] < 9:\n        t[i] = 1.0", OutOfRange, "outside a view"),
        ("t = x[0, 0, 0:3]\nreturn t[1:h + 3] * 1", OutOfRange, "outside a view"),
    ],
)  # fmt: skip
def test_what_is_no_view_or_leaves_one_is_refused(body: str, error: type[WeftError], message: str) -> None:
    kernel = _kernel(body)
    with pytest.raises(error, match=message) as caught:
        kernel(_x(), 2)
    assert caught.value.location is not None and caught.value.remedy


APART = [
    "x[..., 4:] = x[..., :4]",
    "x[0, :, h:] = x[1, :, :6]",
    "x[..., ::2] += x[..., 1::2]",
    "for i in range(2):\n    x[0, i] = x[0, 2 - i]",
    "for i in range(2):\n    x[1, i, 1:] = x[1, i + 1, :-1]",
    "for k in range(4, 8):\n    x[0, 0, k:] = x[0, 0, :8 - k]",
    "x[1] = x[1]",
    "x[:, :, 0] = x[0, 0, 0:3]",
    "x[0, :, 5:8] = x[0, :, 2:5].T",
    "x[..., 1:] = x[..., :-1].clone()",
    "x[..., 1:] = x[..., :-1] * 1",
    "if h > 2:\n    x[..., 1:] = x[..., :-1]",
    "y = x[:, :, 0:1] * 1\ny[..., 1:] = y[..., :-1]\nx[..., :1] = y",
]


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("body", APART)
def test_parts_that_are_stored_into_others_beside_them(body: str) -> None:
    kernel, ours, theirs = _kernel(body), _x(), _x()
    kernel(ours, 2), kernel.py(theirs, 2)
    assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize(
    "body",
    [
        "x[..., 1:] = x[..., :-1]",
        "x[..., 1:] += x[..., :-1]",
        "x[..., 2:].copy_(x[..., :-2])",
        "x[0, 0, ::2] = x[0, 0, :4]",
        "t = x[:, 1:]\nx[:, :-1] = t",
        "x[0, :, :3] = x[0, :, :3].T",
        "for k in range(3, 8):\n    x[0, 0, k:] = x[0, 0, :8 - k]",
        "for i in range(2):\n    x[1, i, 1:] = x[1, 2 * i, :-1]",
        "if h > 1:\n    x[..., 1:] = x[..., :-1]",
    ],
)
def test_parts_that_are_stored_into_what_they_overlap_are_refused(body: str) -> None:
    with pytest.raises(OverlapError, match="PyTorch leaves open") as caught:
        _kernel(body)(_x(), 2)
    assert caught.value.location is not None and caught.value.evidence and "clone" in (caught.value.remedy or "")


def test_views_under_torch_compile_and_in_the_simulator() -> None:
    kernel = _kernel(READ["heads of what is left"])
    for dynamic in (False, True):
        torch.compiler.reset()
        compiled = torch.compile(lambda x: kernel(x, 2), backend="aot_eager", fullgraph=True, dynamic=dynamic)
        for length in (3, 5):
            x = torch.rand(2, length, 8)
            torch.testing.assert_close(compiled(x), kernel.py(x, 2))
    assert kernel.check(_x(), 2, gradients=True).ok
    with pytest.raises(ShapeMismatch, match="dimensions merged"):
        _kernel("return x.view(-1, x.shape[2]) * h").check(_x().transpose(0, 1), 2)


def test_the_rows_of_unbind_are_stored_into() -> None:
    kernel = _kernel("for r in x.unbind(1):\n    r[0, 0] = h")
    ours, theirs = _x(), _x()
    kernel(ours, 2), kernel.py(theirs, 2)
    assert torch.equal(ours, theirs)
