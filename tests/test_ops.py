"""`weft.ops`: every operator gives what PyTorch's of its name gives, of every dtype, and has its derivatives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import weft
from tests.fuzz_batch import all_of
from weft.elementwise.pointwise import Pointwise
from weft.errors import WeftError
from weft.runtime import host

DTYPES = {
    "float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16,
    "int32": torch.int32, "uint8": torch.uint8, "int64": torch.int64, "bool": torch.bool,
}  # fmt: skip
TOLERANCES = {
    torch.float32: (2e-5, 1e-6), torch.float64: (1e-11, 1e-13), torch.float16: (2e-3, 1e-4), torch.bfloat16: (1.6e-2, 1e-3),
    torch.complex64: (2e-5, 1e-6), torch.complex128: (1e-11, 1e-13),
}  # fmt: skip
OPERATORS = sorted(name for name, o in vars(weft.ops).items() if isinstance(o, Pointwise) and o.name == name)
LOSSES = {name for name in OPERATORS if name.endswith("_loss") or name in ("kl_div", "binary_cross_entropy")}
HARD = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, 0.1, -2.5, 7.0, 1e-7, -13.0, 88.0, math.inf, -math.inf, math.nan)


def reference(name: str) -> Callable[..., Any]:
    """PyTorch's own."""
    if name in LOSSES or name == "binary_cross_entropy_with_logits":
        return lambda *args: getattr(F, name)(*args, reduction="none")
    if name in ("clamp_min", "clamp_max", "rsub", "threshold"):
        return getattr(torch, name)
    for home in (torch, torch.special, F):
        if hasattr(home, name):
            return getattr(home, name)  # type: ignore[no-any-return]
    raise AssertionError(name)


def arguments(name: str, dtype: torch.dtype) -> tuple[Any, ...]:
    """Vectors of hard values: each value of the first operand with each of the second."""
    values = torch.tensor(HARD, dtype=torch.float64)
    if not dtype.is_floating_point:
        values = torch.tensor([0, 1, 2, 3, 5, 7, 100, 64] + ([] if dtype in (torch.uint8, torch.bool) else [-1, -2, -7, -100]))
    own = values.to(dtype)
    count = len(OPERANDS[name])
    if count == 1:
        return (own,)
    a, b = own.repeat_interleave(len(own)), own.repeat(len(own))
    if name in ("floor_divide", "remainder", "fmod", "div") and not dtype.is_floating_point:
        keep = b != 0  # PyTorch raises, and so does weft
        a, b = a[keep], b[keep]
    if "shift" in name or name == "ldexp":
        b = b % 5 if dtype in (torch.bool, torch.uint8) else b.abs() % 5
    if name == "pow" and not dtype.is_floating_point:
        b = b % 4 if dtype in (torch.bool, torch.uint8) else b.abs() % 4
    if name in ("binary_cross_entropy", "kl_div", "poisson_nll_loss"):
        a, b = (v.double().abs().nan_to_num(0.5).clamp(0.01, 0.9).to(dtype) for v in (a, b))
    if "polynomial" in name:
        b = (b.double().abs() % 6).nan_to_num(2.0).trunc().to(dtype)
    if count == 2:
        return (a, b)
    if name == "where":
        return (a > 0, a, b)
    return (a, b, a.flip(0).contiguous())


OPERANDS = {
    name: [p for p in getattr(weft.ops, name)._parameters.parameters.values() if p.default is p.empty] for name in OPERATORS
}
OWN: dict[str, Callable[[torch.dtype], tuple[Any, ...]]] = {
    "clamp": lambda dtype: (*arguments_of_one(dtype), 1, 3),
    "clamp_max": lambda dtype: (*arguments_of_one(dtype), 2),
    "clamp_min": lambda dtype: (*arguments_of_one(dtype), 2),
    "threshold": lambda dtype: (*arguments_of_one(dtype), 1, 3),
    "polygamma": lambda dtype: (2, *arguments_of_one(dtype)),
}


def arguments_of_one(dtype: torch.dtype) -> tuple[torch.Tensor]:
    return (arguments("neg", dtype)[0],)


def given(name: str, dtype: torch.dtype) -> tuple[Any, ...]:
    return OWN[name](dtype) if name in OWN else arguments(name, dtype)


# Their accuracy and edges are tests/test_special.py's.
SPECIAL = {name for name in OPERATORS if hasattr(torch.special, name) and not hasattr(torch, name)}
SPECIAL |= {"lgamma", "digamma", "erfinv", "polygamma"}
HALVES, INTEGERS = (torch.float16, torch.bfloat16), (torch.int32, torch.uint8, torch.int64)
# What is no question: losses of integers are float32 here; complex numbers of halves are complex32; PyTorch's vectors on a CPU
# give NaN for gelu(inf), its kernels on a GPU infinity.
NOT_ASKED = {("l1_loss", d) for d in INTEGERS} | {(n, d) for n in ("complex", "polar") for d in HALVES}
# What they give depends on the dtype, and is no rounding of what another dtype gives.
OF_THE_DTYPE = ("nan_to_num", "nextafter")
# Of doubles, PyTorch's kernels on a GPU multiply by a sixth of float32: those on a CPU tell what is right.
INEXACT_ON_A_GPU = ("hardsigmoid", "hardswish")


def outcome(name: str, dtype: torch.dtype, device: str = "cpu") -> str:
    """What is wrong, "" where nothing is."""
    if (name, dtype) in NOT_ASKED or (name in SPECIAL and dtype != torch.float32):
        return ""
    args = given(name, dtype)
    if name in SPECIAL:
        ordinary = torch.stack([(a > 0) & (a < 8) for a in args if isinstance(a, torch.Tensor)]).all(0)
        args = tuple(a[ordinary] if isinstance(a, torch.Tensor) else a for a in args)
    if name == "gelu":
        args = (args[0][args[0] != math.inf],)
    on_cpu = args
    args = tuple(a.to(device) if isinstance(a, torch.Tensor) else a for a in args)
    try:
        exact = dtype == torch.float64 and name in INEXACT_ON_A_GPU
        wanted = reference(name)(*(on_cpu if exact else args)).to(device)
    except (RuntimeError, NotImplementedError, TypeError):
        return ""  # PyTorch has none for this dtype
    try:
        found = getattr(weft.ops, name)(*args)
    except WeftError as error:
        return f"{name} of {dtype}: {type(error).__name__}: {error}"
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{name} of {dtype}: {found.dtype} {list(found.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if dtype in (torch.float16, torch.bfloat16) and wanted.dtype == dtype and name not in OF_THE_DTYPE:
        rounded = reference(name)(*(a.float() if isinstance(a, torch.Tensor) and a.dtype == dtype else a for a in args))
        wanted = rounded.to(dtype)  # PyTorch's CPU rounds in between
    relative, absolute = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
    wide = torch.complex128 if found.is_complex() else torch.float64
    good = torch.isclose(found.to(wide), wanted.to(wide), relative, absolute, equal_nan=True)
    if good.all():
        return ""
    k = int((~good).nonzero()[0])
    at = [a.reshape(-1)[k].item() if isinstance(a, torch.Tensor) else a for a in args]
    return f"{name} of {dtype} at {at}: {found[k].item()}, PyTorch gives {wanted[k].item()} ({int((~good).sum())} differ)"


pytestmark = pytest.mark.usefixtures("quickly_compiled")
_LONG = ("float64", "float16", "int32", "uint8")  # what another dtype says, too


@pytest.mark.parametrize("dtype", [d if d not in _LONG else pytest.param(d, marks=pytest.mark.long) for d in DTYPES])
def test_values_and_dtypes(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if dtype == "float32":  # in vectors, as users have it
        monkeypatch.setattr(host.build, "__defaults__", (tuple("-O1" if f == "-O3" else f for f in host.FLAGS),))
    all_of(OPERATORS, lambda name: outcome(name, DTYPES[dtype]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_dtypes_on_a_gpu(dtype: str) -> None:
    wrong = [outcome(name, DTYPES[dtype], "cuda") for name in OPERATORS]
    assert not any(wrong), "\n".join(w for w in wrong if w)


# Of numbers that no half has, one beyond the largest float16, and integers, one of which no half has.
NUMBERS = (0.1, 1 / 3, 70000.0, 2049.0, 1e-7, 2049, -3)
ROUNDED_ONCE = ("add", "sub", "rsub", "mul", "div", "true_divide", "remainder", "fmod", "floor_divide", "fmax", "fmin")
OF_TWO = [n for n in OPERATORS if len(OPERANDS[n]) == 2 and n not in {*LOSSES, *SPECIAL, *OWN, "nextafter", "isclose"}]
OF_TWO = [n for n in OF_TWO if n not in ("complex", "polar")]  # of halves, PyTorch gives complex32


def number_outcome(name: str, dtype: torch.dtype, device: str) -> str:
    """What is wrong with an operator of halves and numbers, on either side: its values are those of float32, rounded once. Only
    a comparison is with the number as a half, on a CPU and on a GPU.
    """
    x = torch.tensor([1.0, 3.0, 0.5, 1000.0, -2.0, 0.1, 7.0, -0.3, 0.0], dtype=torch.float64).to(device, dtype)
    wrong = []
    for s, swapped, tensor in itertools.product(NUMBERS, (False, True), (False, True)):
        number = torch.tensor(float(s), dtype=torch.float64) if tensor else s
        enters = x.new_full(x.shape, s, dtype=torch.float32)
        if name in ("eq", "ne", "lt", "le", "gt", "ge"):
            enters = enters.to(dtype).float()
        pair, wide = (x, number), (x.float(), enters)
        if name == "float_power":
            wide = (x.double(), x.new_full(x.shape, s, dtype=torch.float64))
        try:
            wanted = reference(name)(*(wide[::-1] if swapped else wide))
        except (RuntimeError, TypeError):
            return ""  # not of floats
        wanted = wanted.to(dtype) if wanted.dtype == torch.float32 else wanted
        found = getattr(weft.ops, name)(*(pair[::-1] if swapped else pair))
        relative = 0.0 if name in ROUNDED_ONCE or wanted.dtype == torch.bool else float(torch.finfo(wanted.dtype).eps)
        good = torch.isclose(found.double(), wanted.double(), relative, 2.0**-24 if relative else 0.0, equal_nan=True)
        if found.dtype != wanted.dtype or not good.all():
            wrong.append(f"{name} of {dtype}, {number!r} {'first' if swapped else 'second'}: {found}, not {wanted}")
    return "\n".join(wrong)


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.long)], ids=str)
def test_numbers_enter_in_the_precision_of_arithmetic(dtype: torch.dtype) -> None:
    all_of(OF_TWO, lambda name: number_outcome(name, dtype, "cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_numbers_on_a_gpu(dtype: torch.dtype) -> None:
    """PyTorch's own rounds the number first in remainder, fmod and others, so that it is not asked."""
    wrong = [number_outcome(name, dtype, "cuda") for name in OF_TWO]
    assert not any(wrong), "\n".join(w for w in wrong if w)


def test_bools_have_an_absolute_value() -> None:
    """They themselves, as PyTorch has it on a GPU; its CPU has none."""
    x = torch.tensor([True, False])
    found = weft.ops.abs(x)
    assert found.dtype == torch.bool
    assert found.tolist() == x.tolist()


def derivatives() -> Iterator[str]:
    """Those that PyTorch differentiates, but for one that has no derivative (PyTorch hands the gradient on)."""
    for name in OPERATORS:
        if name == "nextafter" or name in SPECIAL:
            continue
        args = given(name, torch.float64)
        leaves = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        try:
            if reference(name)(*leaves).requires_grad:
                yield name
        except (RuntimeError, NotImplementedError):
            continue


def gradient_outcome(name: str) -> str:
    """First derivatives at points where they are finite, against PyTorch's autograd."""
    args = list(given(name, torch.float64))
    if len(OPERANDS[name]) == 1:
        args = [a[torch.isfinite(a)] if isinstance(a, torch.Tensor) else a for a in args]

    def leaves() -> list[Any]:
        return [a.clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]

    def gradients(function: Callable[..., Any]) -> list[torch.Tensor]:
        own = leaves()
        out = function(*own)
        wrt = [a for a in own if isinstance(a, torch.Tensor) and a.requires_grad]
        return [
            torch.zeros_like(a) if g is None else g
            for a, g in zip(wrt, torch.autograd.grad(out.sum(), wrt, allow_unused=True), strict=True)
        ]

    try:
        wanted = gradients(reference(name))
    except (RuntimeError, NotImplementedError):
        return ""
    try:
        found = gradients(getattr(weft.ops, name))
    except (WeftError, RuntimeError) as error:
        return f"gradient of {name}: {type(error).__name__}: {error}"
    for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
        finite = torch.isfinite(w)
        good = torch.isclose(f, w, 1e-6, 1e-8) | ~finite
        if not good.all():
            at = int((~good).nonzero()[0])
            point = [a.reshape(-1)[at].item() if isinstance(a, torch.Tensor) else a for a in args]
            return f"gradient {k} of {name} at {point}: {f[at].item()}, autograd gives {w[at].item()}"
    return ""


def test_derivatives() -> None:
    all_of(list(derivatives()), gradient_outcome)


def test_other_names_are_the_same() -> None:
    assert weft.ops.multiply is weft.ops.mul
    assert weft.ops.arccos is weft.ops.acos


@pytest.mark.parametrize(
    "low, high",
    [
        (torch.tensor(-4), torch.tensor([2.25, 1.5, 300.0, 4.0])),  # which no uint8 is
        (torch.tensor(197.25).half(), torch.tensor(177.0).bfloat16()),  # what they have in common is neither's type
        (torch.tensor(2.25).half(), torch.tensor([78.0, 176.0, 197.0, 203.0]).bfloat16()),
    ],
)
def test_bounds_and_what_they_bound_have_one_type_before_two_of_them_meet(low: torch.Tensor, high: torch.Tensor) -> None:
    x = torch.tensor([0, 1, 200, 3], dtype=torch.uint8)
    ours, theirs = weft.ops.clamp(x, low, high), torch.clamp(x, low, high)
    assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
