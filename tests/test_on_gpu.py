"""The programs of the other tests on a GPU: the same results as their plain Python on the CPU, and the same bits every time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import weft
from tests import (
    test_conditions,
    test_extrema,
    test_gradients,
    test_gradients_of_nests,
    test_objects,
    test_one_row,
    test_ordinary_kernels,
    test_overflow,
    test_rounding_stores,
    test_row_branches,
)
from tests.fuzz_programs import compiled
from tests.test_language_document import kernels as kernels_of_the_document
from weft.pytorch.specs import make_arguments, parse

pytestmark = pytest.mark.gpu


def placed(value: Any) -> Any:
    """A copy on the GPU, with the same strides."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda").copy_(value)


def own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def tensors(results: Any, args: Sequence[Any]) -> list[Any]:
    """What a call made and what it left of its arguments, on the CPU."""
    made = list(results) if isinstance(results, (tuple, list)) else [results]
    return [v.detach().cpu() if isinstance(v, torch.Tensor) else v for v in (*made, *args)]


def compare(kernel: weft.Kernel, args: Sequence[Any], same: Callable[[Any, Any], None] | None = None, runs: int = 1) -> None:
    theirs = [own(a) for a in args]
    want = tensors(kernel.py(*theirs), theirs)
    first: list[Any] = []
    for _ in range(runs):
        ours = [placed(a) for a in args]
        found = tensors(kernel(*ours), ours)
        for a, b in zip(found, want, strict=True):
            if same is not None and isinstance(b, torch.Tensor):
                same(a, b)
            elif isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
            else:
                assert a == b and type(a) is type(b)
        for a, b in zip(found, first or found, strict=True):
            assert not isinstance(a, torch.Tensor) or torch.equal(a.nan_to_num(), b.nan_to_num())
        first = found


def roughly(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("form", test_one_row.FORMS)
@pytest.mark.parametrize("state", test_one_row.STATES)
def test_nests_without_rows(form: str, state: str) -> None:
    if (form, state) == ("then an update in place", "conjunction"):
        return  # PyTorch subtracts no bool
    kernel = test_one_row.kernel_of(form, state)
    for n in (1, 31, 512, 513, 2049):
        x, c = test_one_row.vectors(n)
        compare(kernel, [x, c, torch.tensor([0.25])][: len(kernel.signature.parameters)], runs=3)


@pytest.mark.parametrize("form", ["reduction", "added", "scan in place"])
@pytest.mark.parametrize("state", ["sum", "affine", "argmax", "segmented"])
def test_long_nests_without_rows(form: str, state: str) -> None:
    kernel = test_one_row.kernel_of(form, state)
    x, c = test_one_row.vectors(20_000)
    compare(kernel, [x, 0.9 * c, torch.tensor([0.25])][: len(kernel.signature.parameters)], runs=3)


@pytest.mark.parametrize("kernel", test_row_branches.KERNELS, ids=lambda k: k.name)
def test_branches_between_loops(kernel: weft.Kernel) -> None:
    for n in (5, 700):
        x = torch.randn(*test_row_branches.KERNELS[kernel], n) / n
        for sign in (1.0, -1.0):
            compare(kernel, [sign * x, torch.randn(8)])


@pytest.mark.parametrize("kernel", test_ordinary_kernels.CASES, ids=lambda k: k.name)
def test_ordinary_kernels_at_any_size(kernel: weft.Kernel) -> None:
    for n in (0, 1, 33, 1000):
        args = test_ordinary_kernels.CASES[kernel](n)
        halves = any(a.dtype == torch.float16 for a in args)  # which PyTorch rounds after every operation
        compare(kernel, args, roughly if halves else None)


@pytest.mark.parametrize("program", test_overflow.PROGRAMS, ids=lambda f: f.__name__)
def test_scans_that_overflow(program: Callable[..., Any]) -> None:
    kernel = weft.kernel(program)
    for n in (70, 2100):
        x, c = test_overflow.rows_of(n)
        want = program(x.clone(), c)
        test_overflow.alike(kernel(x.cuda(), c.cuda()).cpu(), want)


@pytest.mark.parametrize("program", [test_rounding_stores.running_sum, test_rounding_stores.total], ids=lambda f: f.__name__)
def test_what_is_stored_is_rounded(program: Callable[..., Any]) -> None:
    compare(weft.kernel(program), [torch.ones(1000, dtype=torch.bfloat16)])


@pytest.mark.parametrize("kernel", list(kernels_of_the_document()), ids=lambda k: k.name)
def test_the_programs_of_the_document(kernel: weft.Kernel) -> None:
    example = {n: parse(v) if isinstance(v, str) else v for n, v in kernel.example.items()}
    compare(kernel, list(make_arguments(example).values()))


@pytest.mark.parametrize("body", test_objects.EQUAL.values(), ids=test_objects.EQUAL)
def test_views_and_copies(body: str) -> None:
    text, python = test_objects.program(body)
    kernel = test_objects.kernel_of(text.replace("(x, z, c, k)", "(x: torch.Tensor, z: torch.Tensor, c: torch.Tensor, k: int)"))
    args = [torch.randn(4), torch.randn(4) + 1, torch.randn(4, 3), 1]
    theirs = [own(a) for a in args]
    want = tensors(python(*theirs), theirs)
    ours = [placed(a) for a in args]
    for a, b in zip(tensors(kernel(*ours), ours), want, strict=True):
        torch.testing.assert_close(a, b) if isinstance(b, torch.Tensor) else None


@pytest.mark.parametrize(("function", "args"), test_gradients.CASES, ids=[f.__name__ for f, _ in test_gradients.CASES])
def test_gradients_at_places_and_ties(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    kernel = weft.kernel(function)

    def first(run: Callable[..., Any], place: Callable[[Any], Any]) -> list[Any]:
        leaves = [place(a) for a in args]
        moving = [a.requires_grad_() for a in leaves if isinstance(a, torch.Tensor) and a.is_floating_point()]
        made = run(*leaves)
        made = made if isinstance(made, tuple) else (made,)
        total = sum(((k + 1) * m.double().square().sum() for k, m in enumerate(made) if m.is_floating_point()))
        return [g.cpu() for g in torch.autograd.grad(total, moving, allow_unused=True, materialize_grads=True)]

    for found, want in zip(first(kernel, placed), first(kernel.py, own), strict=True):
        torch.testing.assert_close(found, want, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (test_gradients_of_nests.advantages, (test_gradients_of_nests.double(6), test_gradients_of_nests.double(9), 0.9)),
        (
            test_gradients_of_nests.banded_attention,
            (*(test_gradients_of_nests.double(6, 3, seed=k) for k in range(3)), 2),
        ),
        (test_gradients_of_nests.packed_products, (test_gradients_of_nests.double(10), torch.tensor([0, 3, 3, 7, 10]))),
    ],
    ids=lambda p: p.__name__ if callable(p) else "",
)
def test_gradients_of_nests_on_a_gpu(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    kernel = weft.kernel(function)
    on_cpu = test_gradients_of_nests.derivatives(kernel, args)

    def moved(*given: Any) -> Any:
        made = kernel(*(g.cuda() if isinstance(g, torch.Tensor) else g for g in given))
        return tuple(m.cpu() for m in made) if isinstance(made, tuple) else made.cpu()

    for found, want in zip(test_gradients_of_nests.derivatives(moved, args), on_cpu, strict=True):
        torch.testing.assert_close(found, want)


def test_what_a_mask_guards_is_not_evaluated() -> None:
    x, mask = torch.randn(1000), torch.rand(1000) > 0.5
    mask[-1] = False
    compare(weft.kernel(test_conditions.masked), [x, mask])


def test_columns_of_one_storage() -> None:
    @weft.kernel
    def doubled(x, z):
        n, m = x.shape
        for i in range(n):
            for j in range(m):
                z[i, j] = x[i, j] * 2

    whole = torch.randn(64, 6, device="cuda")
    want = whole.clone()
    want[:, 3:] = want[:, :3] * 2
    doubled(whole[:, :3], whole[:, 3:])
    torch.testing.assert_close(whole, want)


_OF_ONE_ROW = (test_one_row.prefix_sums, test_one_row.softmax, test_one_row.squared_norm)


@pytest.mark.parametrize("kernel", _OF_ONE_ROW, ids=lambda k: k.name)
def test_gradients_of_one_row(kernel: weft.Kernel) -> None:
    for n in (5, 1000):
        x = test_one_row.vectors(n)[0]
        ours, theirs = x.cuda().requires_grad_(), x.double().requires_grad_()
        (mine,) = torch.autograd.grad(kernel(ours).square().sum(), ours)
        (other,) = torch.autograd.grad(kernel.py(theirs).square().sum(), theirs)
        torch.testing.assert_close(mine.cpu(), other.float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("spelled", test_extrema.SPELLINGS)
def test_choices_keep_zeros_and_nan_apart(spelled: str) -> None:
    function = compiled(test_extrema.text(test_extrema.ELEMENTS, spelled), f"<elements {spelled} on a GPU>")
    values = itertools.product(test_extrema.VALUES, test_extrema.VALUES)
    a, b = (torch.tensor(v) for v in zip(*values, strict=True))
    assert test_extrema.identical(weft.kernel(function)(a.cuda(), b.cuda()).cpu(), function(a, b))
