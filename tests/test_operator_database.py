"""`weft.ops` against PyTorch's own database of operators, its sample and reference inputs: values, dtypes, shapes and strides.

Values are those of PyTorch in the precision of the arithmetic, rounded once: its CPU rounds halves in between. Strides are
those that it gives on a GPU. Where there is none they are its CPU's for operands of one dtype: of operands of several it copies
some before it looks at their strides, and a GPU does not. Tensors without memory are no oracle of strides: those are told by
Python functions of PyTorch's (`torch._refs`), which differ from its kernels for tensors of no elements and in `clamp`.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import weft
from tests.fuzz_batch import all_of
from weft.elementwise.pointwise import Pointwise
from weft.errors import WeftError
from weft.runtime import host

pytest.importorskip("expecttest", reason="PyTorch's database of operators needs expecttest")
from torch.testing._internal import common_utils  # noqa: E402
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.testing._internal.opinfo import core  # noqa: E402

HALVES = (torch.float16, torch.bfloat16)
DTYPES = (*HALVES, torch.float32, torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64)
OPERATORS = sorted(name for name, o in vars(weft.ops).items() if isinstance(o, Pointwise) and o.name == name)
ENTRIES: dict[str, list[Any]] = defaultdict(list)  # of the database, by the names that they have in weft.ops
for _entry in op_db:
    ENTRIES[_entry.name.removeprefix("special.").removeprefix("nn.functional.")].append(_entry)

# Operators of weft.ops that the database has not: none but these.
MISSING: dict[str, str] = {}
LOSSES = {n for n in OPERATORS if n.endswith("_loss")} | {
    "kl_div", "binary_cross_entropy", "binary_cross_entropy_with_logits"
}  # fmt: skip
POLYNOMIALS = {n for n in OPERATORS if "polynomial" in n}
BESSEL = {n for n in OPERATORS if "bessel" in n}
TOLERANCES = {
    torch.float32: (2e-5, 1e-6), torch.float64: (1e-11, 1e-13), torch.float16: (2e-3, 1e-4), torch.bfloat16: (1.6e-2, 1e-3),
    torch.complex64: (2e-5, 1e-6), torch.complex128: (1e-11, 1e-13),
}  # fmt: skip
# What they give depends on the dtype, and is no rounding of what another dtype gives.
OF_THE_DTYPE = ("nan_to_num", "nextafter")
# PyTorch gives the tensor itself, or a view of it, where an operator of weft's gives a new one.
ITSELF = ("positive", "real", "imag", "conj", "conj_physical")
# PyTorch's is one of two operators after another, which says otherwise of tensors without elements.
COMPOSED = ("isinf", "isreal", "prelu")


@dataclass(frozen=True)
class Case:
    """A call of an operator of PyTorch's (given, options), and the same of weft's (args, named)."""

    name: str
    torch: Callable[..., Any]
    given: tuple[Any, ...]
    options: dict[str, Any]
    args: tuple[Any, ...]
    named: dict[str, Any]

    def __str__(self) -> str:
        told = [_told(a) for a in self.given] + [f"{n}={_told(a)}" for n, a in self.options.items()]
        return f"{self.name}({', '.join(told)})"

    @property
    def values(self) -> tuple[Any, ...]:
        return (*self.given, *self.options.values())

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(v for v in self.values if isinstance(v, torch.Tensor))

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells kernels apart, about: kinds and dtypes of the operands, how they broadcast, whether they lie densely."""
        return tuple(
            (v.dtype, tuple(n == 1 for n in v.shape), v.is_contiguous(), 0 in v.shape) if isinstance(v, torch.Tensor) else
            (type(v), v if isinstance(v, (bool, str)) else None)
            for v in self.values
        )  # fmt: skip

    def called(self, each: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """PyTorch's result for other tensors in the place of these."""

        def of(value: Any) -> Any:
            return each(value) if isinstance(value, torch.Tensor) else value

        found = self.torch(*map(of, self.given), **{n: of(v) for n, v in self.options.items()})
        assert isinstance(found, torch.Tensor)
        return found


def _told(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    lies = "" if value.is_contiguous() else f":{value.stride()}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{lies}"


# ---------------------------------------------------------------- the cases of the database


def cases(name: str, dtype: torch.dtype, device: str = "cpu") -> Iterator[Case]:
    """All that the database has for an operator of a dtype that PyTorch has on a GPU."""
    for entry in ENTRIES[name]:
        if dtype in entry.dtypesIfCUDA:
            for samples in (entry.sample_inputs, entry.reference_inputs):
                for sample in samples(device, dtype, requires_grad=False):
                    case = _case(name, entry.op, (sample.input, *sample.args), dict(sample.kwargs))
                    if not left_out(case):
                        yield case


def _case(name: str, function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> Case:
    if name in LOSSES:
        options["reduction"] = "none"
    args, named = given, {n: v for n, v in options.items() if n != "reduction"}
    if name == "where":  # the database calls condition.where with the first of two values in front
        args = (args[1], args[0], args[2])
    if name == "polygamma":  # the database has the order behind what it is of
        args = (named.pop("n") if "n" in named else args[1], args[0])
    if name == "prelu":  # whose weights are those of the channels, dimension 1; weft's broadcast as other operands do
        weight = named.pop("weight", None) if len(args) == 1 else args[1]
        args = (args[0], weight.reshape([-1 if d == 1 else 1 for d in range(args[0].dim())]))
    return Case(name, function, given, options, args, named)


def left_out(case: Case) -> bool:
    """What is no question of these dtypes."""
    if any(v.dtype == torch.complex32 for v in case.tensors):
        return True  # which weft does not have
    if case.name in ("complex", "polar") and any(v.dtype in HALVES for v in case.tensors):
        return True  # which make such
    if not case.tensors:
        return True  # numbers alone
    return common_dtype(case) == torch.complex32  # as a half makes beside a complex number


def except_where(case: Case) -> torch.Tensor | None:
    """The elements at which PyTorch is no oracle, each with its reason."""
    first = case.given[0]
    if case.name in BESSEL:
        return torch.isinf(first)  # its kernels give NaN, where the functions have limits (0, infinity)
    if case.name in POLYNOMIALS:  # degrees that are no integers, or beyond what a machine counts to
        degree = torch.as_tensor(case.given[1], device=case.tensors[0].device).double()
        return (~(degree.abs() < 2**30)).broadcast_to(torch.broadcast_shapes(*(t.shape for t in case.tensors)))
    return None


# ---------------------------------------------------------------- what PyTorch gives


def form(case: Case) -> torch.Tensor | Exception:
    """A tensor of the dtype, shape and strides that PyTorch's result has on a GPU, or what it raises."""
    if case.tensors[0].is_cuda:
        return tried(lambda: case.called(lambda t: t))
    bare = tried(lambda: case.called(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")))
    if isinstance(bare, Exception) and not unknown(bare):
        return bare
    dtypes = {t.dtype for t in case.tensors if not (case.name == "where" and t.dtype == torch.bool)}
    for dtype in (*(dtypes if len(dtypes) == 1 else ()), torch.float32, torch.int64):
        lying = tried(lambda dtype=dtype: case.called(lambda t: of_ones(t, t.dtype if t.dtype not in dtypes else dtype)))
        if isinstance(lying, torch.Tensor):
            dtype = lying.dtype if isinstance(bare, Exception) else bare.dtype
            return torch.empty_strided(lying.shape, lying.stride(), dtype=dtype, device="meta")
    return bare


def tried(call: Callable[[], torch.Tensor]) -> torch.Tensor | Exception:
    try:
        return call()
    except (RuntimeError, TypeError, ValueError) as error:
        return error


def unknown(error: Exception) -> bool:
    """Whether PyTorch merely has no kernel for a dtype there."""
    return isinstance(error, NotImplementedError) or "not implemented" in str(error)


def of_ones(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=dtype).fill_(1)


def common_dtype(case: Case) -> torch.dtype:
    operands = case.given[:1] + case.given[2:] if case.name == "where" else case.given
    found: Any = None
    for value in operands:
        if isinstance(value, (torch.Tensor, bool, int, float, complex)):
            dim = isinstance(value, torch.Tensor) and value.dim() > 0
            if found is None:
                dtype = value.dtype if isinstance(value, torch.Tensor) else torch.tensor(value).dtype
                found = value
            else:
                dtype = torch.result_type(found, value)
                dim = dim or (isinstance(found, torch.Tensor) and found.dim() > 0)
                found = torch.empty((1,) if dim else (), dtype=dtype)
    return dtype


def oracles(case: Case, dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """What the values may be: those of PyTorch in the precision of the arithmetic, and in float64. dtype: of the result."""
    common = common_dtype(case)

    def rounded(t: torch.Tensor) -> torch.Tensor:
        return t if t.dtype == torch.bool else t.to(common).float()

    def single(t: torch.Tensor) -> torch.Tensor:
        return t.float() if t.is_floating_point() else t

    def double(t: torch.Tensor) -> torch.Tensor:
        if t.is_complex():
            return t.to(torch.complex128)
        return t if t.dtype == torch.bool else t.to(common).double() if common in HALVES else t.double()

    def whole(t: torch.Tensor) -> torch.Tensor:
        return t.to(torch.uint8) if t.dtype == torch.bool else t

    own = case.name in OF_THE_DTYPE or case.tensors[0].is_cuda
    ways = [rounded, single, double] if common in HALVES else [double, whole]
    for way in [lambda t: t, *ways] if common not in HALVES or own else ways:
        found = tried(lambda way=way: case.called(way))
        if isinstance(found, torch.Tensor):
            yield found.to(dtype)


def outcome(case: Case) -> str:
    """What is wrong, "" where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        like = form(case)
        try:
            found = getattr(weft.ops, case.name)(*case.args, **case.named)
        except WeftError as error:
            return "" if isinstance(like, Exception) else f"{case}: {type(error).__name__}: {error.message}"
        if isinstance(like, Exception):
            return "" if unknown(like) else f"{case}: not refused, as by PyTorch: {like}"
        if (found.dtype, found.shape) != (like.dtype, like.shape):
            return f"{case}: {_told(found)}, not {_told(like)}"
        if found.stride() != like.stride() and case.name not in ITSELF and (found.numel() or case.name not in COMPOSED):
            return f"{case}: strides {found.stride()} of shape {list(found.shape)}, not {like.stride()}"
        return wrong_value(case, found) if found.numel() else ""


def size_of_terms(case: Case) -> torch.Tensor:
    """How large the terms are whose difference a polynomial is near its zeros: P_n(x) = a x P_n-1(x) - ..., a of about 2."""
    argument, degree = (torch.as_tensor(v, device=case.tensors[0].device).double() for v in case.given[:2])
    return (2 * argument * case.torch(argument, degree - 1)).abs()


def wrong_value(case: Case, found: torch.Tensor) -> str:
    relative, absolute = TOLERANCES.get(found.dtype, (0.0, 0.0))
    scale = 0.0
    if case.name in POLYNOMIALS:
        relative *= 10
        scale = relative * size_of_terms(case)
    good, values = torch.zeros_like(found, dtype=torch.bool), []
    for right in oracles(case, found.dtype):
        wide = torch.complex128 if found.is_complex() else torch.float64
        ours, theirs = found.to(wide), right.resolve_conj().to(wide)
        good |= torch.isclose(ours, theirs, relative, absolute, equal_nan=True) | ((ours - theirs).abs() < scale)
        values.append(right)
        if good.all():
            return ""
    left = except_where(case)
    good = good if left is None else good | left
    if good.all():
        return ""
    at = tuple((~good).nonzero()[0].tolist())
    given = [v.broadcast_to(found.shape)[at].item() if isinstance(v, torch.Tensor) else v for v in case.args]
    told = ", ".join(str(v[at].item()) for v in values)
    return f"{case} at {given}: {found[at].item()}, PyTorch gives {told} ({int((~good).sum())} of {good.numel()})"


# ---------------------------------------------------------------- the tests


def of_each_kind(found: Iterator[Case], most: int | None = None, elements: int = 1 << 20) -> Iterator[Case]:
    """The first cases of kinds that differ, of tensors that are not too large."""
    kinds: set[Any] = set()
    for case in found:
        if max(t.numel() for t in case.tensors) <= elements and case.kind not in kinds:
            kinds.add(case.kind)
            yield case
            if len(kinds) == most:
                return


@pytest.fixture(autouse=True)
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.build, "__defaults__", (tuple("-O1" if f == "-O3" else f for f in host.FLAGS),))


@pytest.fixture(autouse=True)
def no_unittest(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each sample the database looks through the stack, and the source of every frame, for a test of unittest."""
    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)


def test_the_database_has_them() -> None:
    assert {name for name in OPERATORS if not ENTRIES[name]} == {*MISSING}


def some(names: Sequence[str]) -> Iterator[Case]:
    """One of the first cases of an operator, of a dtype: another one of the next operator."""
    for name in names:
        turn = OPERATORS.index(name)
        dtypes = [d for d in DTYPES if any(d in entry.dtypesIfCUDA for entry in ENTRIES[name])]
        for k in range(len(dtypes)):  # the database has no cases of some that it lists
            first = itertools.islice(cases(name, dtypes[(turn + k) % len(dtypes)]), 16)
            if few := [*of_each_kind(first, elements=1000)]:
                yield few[5 * turn % len(few)]
                break


PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_some_of_the_database(part: int) -> None:
    all_of([*some(OPERATORS[part::PARTS])], outcome)


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_database(part: int, dtype: torch.dtype) -> None:
    all_of([c for name in OPERATORS[part::PARTS] for c in of_each_kind(cases(name, dtype), elements=100_000)], outcome)


# A kernel takes 50 ms to compile: so many kinds of each operator and dtype in the ordinary suite of a GPU.
MOST_KINDS = 5


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_some_of_the_database_on_a_gpu(name: str) -> None:
    wrong = [outcome(c) for dtype in DTYPES for c in of_each_kind(cases(name, dtype, "cuda"), MOST_KINDS)]
    assert not any(wrong), "\n".join(w for w in wrong if w)


@pytest.mark.gpu
@pytest.mark.long
@pytest.mark.parametrize("name", OPERATORS)
def test_the_database_on_a_gpu(name: str) -> None:
    wrong = [outcome(c) for dtype in DTYPES for c in of_each_kind(cases(name, dtype, "cuda"))]
    assert not any(wrong), "\n".join(w for w in wrong if w)
