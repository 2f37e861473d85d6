"""Sums of products of two numbers of a 16-bit type: what is one, that what is handed back to one is such a number, and what
memory keeps of one that is rounded.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import weft
from tests import kernels_of_products as kernels
from tests.graphs import parsed
from tests.kernels_of_products import drawn
from weft.compiler import launches
from weft.loops.adjoint import adjoint
from weft.loops.algebra.half_sums import half_sums
from weft.loops.types import BFLOAT16, FLOAT16
from weft.plan.fold import FoldPlan
from weft.plan.product import ProductPlan
from weft.pytorch.call import analysis_for, argument_types, geometries
from weft.pytorch.executable import adjoint_of
from weft.pytorch.inspection import examine
from weft.pytorch.machines import machine_for

pytestmark = pytest.mark.usefixtures("quickly_compiled")

BF16 = torch.bfloat16


@weft.kernel
def mixed(x, w, bias, r):
    """One sum alone, with numbers of its type, with others, and what is made of it by more than a sum."""
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            s = 0.0
            for k in range(x.shape[1]):
                s += x[i, k] * w[j, k]
            near = s + bias[j] - 1.0
            wide = near + r[j]
            curved = torch.tanh(near)
            y[i, j] = wide * curved
    return y


def test_which_names_are_sums_of_halves() -> None:
    x, w, bias = drawn(4, 6, dtype=BF16), drawn(5, 6, dtype=BF16), drawn(5, dtype=BF16)
    found = half_sums(parsed(mixed.__wrapped__, (x, w, bias, drawn(5))))
    assert {name.partition("_")[0] for name in found} == {"s", "near"} and set(found.values()) == {BFLOAT16}
    assert not half_sums(parsed(mixed.__wrapped__, (x, w.float(), bias, drawn(5))))
    found = half_sums(parsed(mixed.__wrapped__, (x.half(), w.half(), bias, drawn(5))))
    assert {name.partition("_")[0] for name in found} == {"s"} and set(found.values()) == {FLOAT16}


def test_a_sum_of_several_loops_is_one() -> None:
    x, w = drawn(2, 3, 6, 6, dtype=BF16), drawn(4, 3, 3, 3, dtype=BF16)
    assert set(half_sums(parsed(kernels.convolution.__wrapped__, (x, w))).values()) == {BFLOAT16}


GRADIENTS = {
    "gated": (kernels.gated, [drawn(70, 96, dtype=BF16), *(drawn(136, 96, dtype=BF16, seed=k) for k in (1, 2))]),
    "linear_gelu": (kernels.linear_gelu, [drawn(67, 91, dtype=BF16), drawn(133, 91, dtype=BF16), drawn(133, dtype=BF16)]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_their_gradients_are_products_of_halves(name: str) -> None:
    """Nothing is kept but what is handed back to the sums, in 16 bits, and every product is by tensor cores."""
    kernel, args = GRADIENTS[name]
    made = adjoint(parsed(kernel.__wrapped__, args), tuple(p.name for p in kernel.signature.parameters))
    assert {a.dtype for a in made.arrays if a.role == "local"} == {BFLOAT16}
    large = [torch.empty(2048, 1024, dtype=BF16), torch.empty(4096, 1024, dtype=BF16)]
    large.append(torch.empty(4096, 1024, dtype=BF16) if name == "gated" else torch.empty(4096, dtype=BF16))
    result = torch.empty(2048, 4096, dtype=BF16)
    names = tuple(p.name for p in kernel.signature.parameters)
    program = adjoint_of(kernel.program, argument_types(kernel.signature, large), names)
    analysis, bound = analysis_for(program.specializable, program.signature, (*large, result, result))
    arrays, machine = geometries(analysis, bound, aligned=True), machine_for("sm_90a")
    nests = range(len(analysis.schedule.nests))
    planned = [one for k in nests for one in launches(analysis, k, arrays, bound.names, machine)]
    plans: list[Any] = [one.variant.plan for one in planned]
    multiplied = [p for p in plans if isinstance(p, ProductPlan)]
    assert len(multiplied) >= 3 and all(p.engine == "wgmma" and not any(p.packed) for p in multiplied)
    assert sum(len(one.partial) for one in planned if isinstance(one.variant.plan, ProductPlan)) == 0


@pytest.mark.parametrize("name", GRADIENTS)
def test_their_gradients_on_the_simulator(name: str) -> None:
    kernel, args = GRADIENTS[name]
    report = kernel.check(*args, gradients=True)
    assert report.ok and not report.findings, str(report)


def test_their_gradients_are_as_exact_as_those_of_torch() -> None:
    kernel, args = GRADIENTS["linear_gelu"]
    given = [a.clone().requires_grad_() for a in args]
    y = kernel(*given)
    seed = drawn(*y.shape, dtype=BF16, seed=7)
    exact = [a.double().requires_grad_() for a in args]
    x, w, bias = exact
    theirs = torch.autograd.grad(torch.nn.functional.gelu(x @ w.T + bias), exact, seed.double())
    for own, other in zip(torch.autograd.grad(y, given, seed), theirs, strict=True):
        assert (own.double() - other).norm() <= 4e-3 * other.norm()


@weft.kernel
def normed_product(x, w):
    """Rows of a product, rounded, divided by their roots."""
    y = torch.empty(x.shape[0], w.shape[0], dtype=x.dtype)
    for i in range(x.shape[0]):
        row = torch.empty(w.shape[0], dtype=x.dtype)
        squares = 0.0
        for j in range(w.shape[0]):
            total = 0.0
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            row[j] = total
        for j in range(w.shape[0]):
            squares += row[j] * row[j]
        for j in range(w.shape[0]):
            y[i, j] = row[j] / torch.sqrt(squares / w.shape[0] + 1e-5)
    return y


def test_what_is_left_of_a_product_is_what_it_is_rounded_to() -> None:
    """And a row of it is read once, by what folds it and what is written of it."""
    found = examine(normed_product, ("bfloat16[1000,1024]", "bfloat16[32768,1024]"))
    nests = range(len(found.analysis.schedule.nests))
    planned = [one for k in nests for one in launches(found.analysis, k, found.arrays, found.names, machine_for("sm_90a"))]
    first, second = (one.variant.plan for one in planned)
    assert isinstance(first, ProductPlan) and first.engine == "wgmma" and isinstance(second, FoldPlan) and second.chunks
    (left,) = {a.dtype for one in planned if one.where for a in one.where.analysis.function.arrays if a.role == "local"}
    assert left == BFLOAT16


def test_a_normed_product_on_the_simulator() -> None:
    report = normed_product.check(drawn(70, 96, dtype=BF16), drawn(136, 96, dtype=BF16, seed=1), seeds=2)
    assert report.ok and not report.findings, str(report)


def test_several_products_are_summed_as_one() -> None:
    @weft.kernel
    def two(a, b, c, d):
        y = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                s = 0.0
                for k in range(a.shape[1]):
                    s += a[i, k] * b[j, k] + c[i, k] * d[j, k]
                y[i, j] = s
        return y

    for rows in (70, 5):  # by warpgroups, and by what few rows have
        args = [drawn(rows if k % 2 == 0 else 136, 264, dtype=BF16, seed=k) for k in range(4)]
        for arch in ("sm_90a", "sm_80"):
            report = two.check(*args, arch=arch)
            assert report.ok and not report.findings, str(report)
            launch = report.launches[-1]
            assert "mma<" in launch.source or "multiply_points<" in launch.source


@weft.kernel
def asked_to_round(x, z):
    out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    for i in range(x.shape[0]):
        step = x[i] * z[i]
        out[i] = step.to(x.dtype).float() - step.to(z.dtype).float()
    return out


def test_what_is_computed_of_elements_is_rounded_where_that_is_written() -> None:
    x, z = (torch.randn(300).bfloat16() for _ in range(2))
    step = x.float() * z.float()
    assert torch.equal(asked_to_round(x, z), torch.zeros(300))
    assert not torch.equal(step, step.bfloat16().float())

    @weft.kernel
    def rounded(x, z):
        out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        for i in range(x.shape[0]):
            out[i] = (x[i] * z[i]).to(x.dtype).float() * 3.0
        return out

    assert torch.equal(rounded(x, z), step.bfloat16().float() * 3.0)
