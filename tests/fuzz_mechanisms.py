"""Random programs for the mechanisms that a plan is made of: reads on conditions and in windows, joins to elements that data
choose, steps of several launches, products with batches in 16 bits, attention, rows with edges and NaN in what is masked.

Every program has several calls: sizes with a length of 0 in any place, operands whose strides are anything that PyTorch makes
(slices, transposed and expanded tensors, negative and conjugate views, storage that operands share). Results and gradients
are held against the plain Python on doubles; `device` is "cpu", "cuda", where there is a large call too, held against the CPU's
kernel, or "simulator", where what is emitted must be clean of findings.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

import weft
from tests.fuzz_oracle import Mismatch
from tests.fuzz_programs import compiled
from tests.gradients import draw
from tests.mechanisms import Input, Mechanism
from weft.errors import WeftError

Outcome = Literal["equal", "refused", "skipped"]
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-4, "float64": 1e-8, "complex64": 1e-4, "complex128": 1e-8}
_LAYOUTS = (
    *("plain", "plain", "plain", "plain", "transposed", "steps", "offset", "rows apart", "expanded", "overlapping", "negative"),
)  # fmt: skip


# ---------------------------------------------------------------- arguments


def arguments(program: Mechanism, sizes: dict[str, int], k: int) -> list[Any]:
    """Arguments of a call; the same numbers, and layouts, for the same k."""
    generator = torch.Generator().manual_seed(104729 * program.seed + k)
    choose = random.Random(104729 * program.seed + k)
    given: dict[str, Any] = {n: s for n, s in sizes.items()}
    for made in program.inputs:
        shape = [eval(s, {}, sizes) for s in made.shape]  # noqa: S307 - expressions of this module
        layout = choose.choice(_LAYOUTS) if k else "plain"
        given[made.name] = _tensor(program, made, shape, sizes, layout, generator)
    return [given[name] for name in program.parameters]


def _tensor(
    program: Mechanism, made: Input, shape: list[int], sizes: dict[str, int], layout: str, generator: torch.Generator
) -> Tensor:
    def values(*of: int) -> Tensor:
        if made.kind == "bool":
            return torch.rand(of, generator=generator) < 0.6
        if made.kind == "falling":
            return (torch.rand(of, generator=generator) * (torch.arange(of[-1]) + 1)).long()
        if made.kind.startswith(("below", "upto")):
            how, size = made.kind.split()
            high = sizes[size] + (how == "upto")
            return torch.randint(0, high, of, generator=generator) if high else torch.zeros(of, dtype=torch.int64)
        dtype = getattr(torch, program.dtype)
        if dtype.is_complex:
            return torch.complex(*(torch.randint(-64, 65, of, generator=generator).double() / 64 for _ in range(2))).to(dtype)
        out = (torch.randint(-96, 97, of, generator=generator) / 64).to(dtype)
        if made.special:
            few = torch.rand(of, generator=generator)
            for n, value in enumerate((math.nan, math.inf, -math.inf)):
                out[(0.04 * n <= few) & (few < 0.04 * (n + 1))] = value
        return out

    if not shape:
        return values()
    whole, last = shape[:-1], shape[-1]
    if layout == "transposed":
        return values(*shape[::-1]).permute(*reversed(range(len(shape))))
    if layout == "steps":
        return values(*whole, 2 * last)[..., ::2]
    if layout == "offset":
        return values(*whole, last + 3)[..., 1 : last + 1]
    if layout == "rows apart":
        return values(*(2 * s for s in whole[:1]), *whole[1:], last + (len(shape) == 1))[
            tuple(slice(None, None, 2) for _ in whole[:1])
        ][..., :last]
    if layout == "expanded" and made.kind != "falling":
        return values(1, *shape[1:]).expand(*shape)
    if layout == "overlapping" and made.kind == "float" and len(shape) > 1 and shape[0] and program.dtype[0] != "c":
        return values(*shape[1:-1], last + shape[0]).unfold(-1, last, 1).movedim(-2, 0)[: shape[0]]
    if layout == "negative" and made.kind == "float":
        made_up = values(*shape)
        if made_up.is_complex():
            return made_up.conj()
        if made_up.dtype in (torch.float32, torch.float64):
            return torch.complex(made_up, made_up).conj().imag
        return torch._neg_view(made_up)
    return values(*shape)


# ---------------------------------------------------------------- the check


def _double(args: Sequence[Any]) -> list[Any]:
    def double(a: Any) -> Any:
        if not isinstance(a, Tensor) or not (a.is_floating_point() or a.is_complex()):
            return a
        return a.detach().resolve_neg().resolve_conj().to(torch.complex128 if a.is_complex() else torch.float64)

    return [double(a) for a in args]


class _Elements:
    """A tensor of floats whose elements are tensors without dimensions each: autograd has no more to do than for numbers."""

    def __init__(self, flat: list[Tensor], shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.flat, self.shape, self.dtype = flat, shape, dtype

    def _place(self, key: Any) -> int:
        place = 0
        for k, size in zip(key if isinstance(key, tuple) else (key,), self.shape, strict=True):
            if not -size <= k < size:
                raise IndexError
            place = place * size + int(k) % size
        return place

    def __getitem__(self, key: Any) -> Tensor:
        return self.flat[self._place(key)].clone()

    def __setitem__(self, key: Any, value: Any) -> None:
        place = self._place(key)
        self.flat[place] = torch.as_tensor(value, dtype=self.dtype)

    def tensor(self) -> Tensor:
        return torch.stack(self.flat).view(self.shape) if self.flat else torch.zeros(self.shape, dtype=self.dtype)


class _Double:
    """torch, whose new tensors have elements in doubles."""

    def __getattr__(self, name: str) -> Any:
        if name in ("float16", "bfloat16", "float32"):
            return torch.float64
        if name in ("zeros", "ones"):
            return lambda *shape, dtype=torch.float64: self._made(float(name == "ones"), shape, dtype)
        return getattr(torch, name)

    def _made(self, value: float, shape: Any, dtype: torch.dtype) -> _Elements:
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        if min(shape) < 0:
            raise RuntimeError("a negative size")
        return _Elements([torch.tensor(value, dtype=dtype)] * math.prod(shape), shape, dtype)


def _cotangent(result: Tensor, k: int) -> Tensor:
    return ((draw(*result.shape, seed=31 + k) * 8).round() / 8).to(result.dtype).to(result.device)


def expected(program: Mechanism, args: Sequence[Any]) -> dict[str, Tensor] | None:
    """What the plain Python and its autograd give in doubles; None where that fails by itself."""
    function = compiled(program.source, f"<mechanism {program.seed} in doubles>", {"torch": _Double()})
    given, inputs = [], []
    for a in _double(args):
        if isinstance(a, Tensor) and (a.is_floating_point() or a.is_complex()):
            inputs.append(_Elements([e.requires_grad_() for e in a.flatten().clone().unbind()], tuple(a.shape), a.dtype))
        given.append(inputs[-1] if isinstance(a, Tensor) and (a.is_floating_point() or a.is_complex()) else a)
    leaves = [_Elements([*i.flat], i.shape, i.dtype) for i in inputs]
    try:
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            return _derived(function(*given), leaves)
    except (IndexError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return None


def _derived(made: Any, leaves: Sequence[_Elements]) -> dict[str, Tensor]:
    """Results by name, and the gradients of a weighted sum of them."""
    results = [r.tensor() for r in (made if isinstance(made, tuple) else (made,))]
    out = {f"result {k}": r.detach() for k, r in enumerate(results)}
    total = [(r * _cotangent(r, k)).sum() for k, r in enumerate(results) if r.is_floating_point() and r.requires_grad]
    for k, leaf in enumerate(leaf for leaf in leaves if leaf.dtype == torch.float64):
        grads: Sequence[Tensor] = [torch.zeros_like(e) for e in leaf.flat]
        if total and leaf.flat:
            of = torch.stack(total).sum()
            grads = torch.autograd.grad(of, leaf.flat, retain_graph=True, allow_unused=True, materialize_grads=True)
        out[f"gradient {k}"] = _Elements([*grads], leaf.shape, leaf.dtype).tensor().detach()
    return out


def found(kernel: Callable[..., Any], args: Sequence[Any], device: str) -> dict[str, Tensor]:
    """What a kernel gives on a device."""
    given = [_moved(a.detach(), device) if isinstance(a, Tensor) else a for a in args]
    inputs = [a.requires_grad_() for a in given if isinstance(a, Tensor) and a.is_floating_point()]
    made = kernel(*given)
    results = made if isinstance(made, tuple) else (made,)
    out = {f"result {k}": r.detach() for k, r in enumerate(results)}
    moving = [(r, _cotangent(r, k)) for k, r in enumerate(results) if r.is_floating_point() and r.requires_grad]
    first: Sequence[Tensor] = [torch.zeros_like(t) for t in inputs]
    if moving and inputs:
        outputs, weights = zip(*moving, strict=True)
        first = torch.autograd.grad(outputs, inputs, weights, allow_unused=True, materialize_grads=True)
    return out | {f"gradient {k}": g.detach() for k, g in enumerate(first)}


def _moved(tensor: Tensor, device: str) -> Tensor:
    """On a device, with its strides and views."""
    if device == "cpu" or tensor.is_neg() or tensor.is_conj() or not tensor.numel():
        return tensor.to(device)
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
    return flat.to(device).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def large(program: Mechanism, kernel: Callable[..., Any], device: str) -> str | None:
    """Where a call of many iterations differs from what the CPU's kernel makes of doubles."""
    args = arguments(program, dict(program.large), 0)
    return difference(program, found(kernel, _double(args), "cpu"), found(kernel, args, device))


def difference(program: Mechanism, want: dict[str, Tensor], got: dict[str, Tensor]) -> str | None:
    """Where results differ by more than rounding, in words. Which of infinities and NaNs a gradient is depends on the order of
    sums; products and arrays hand the 0 of what was not taken back to infinities, too.
    """
    for name, value in want.items():
        other = got.get(name)
        if other is None or other.shape != value.shape:
            return f"{name} is {None if other is None else list(other.shape)}, not {list(value.shape)}"
        wide = torch.complex128 if value.is_complex() else torch.float64
        a, b = value.to(wide), other.cpu().resolve_neg().resolve_conj().to(wide)
        finite = a[a.isfinite()]
        scale = max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
        bound = TOLERANCES[program.dtype] * scale * (3 if name.startswith("gradient") else 1)
        good = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= bound)
        if name.startswith("gradient"):
            good = good | ~(a.isfinite() | b.isfinite()) | (b.isnan() if program.family in ("products", "attention") else False)
        if not bool(good.all()):
            at = tuple((~good).nonzero()[0].tolist())
            return f"{name} at {list(at)}: {b[at].item()}, the Python gives {a[at].item()} ({int((~good).sum())} differ)"
    return None


def check(program: Mechanism, device: str = "cpu") -> tuple[Outcome, WeftError | None]:
    """Compare weft with the Python at every call. Raises Mismatch."""
    kernel = weft.kernel(compiled(program.source, f"<mechanism {program.seed}>"))
    outcome: Outcome = "skipped"
    refusal: WeftError | None = None
    rounds = program.family == "steps" and program.dtype in ("float16", "bfloat16")  # at every step
    calls = [*enumerate(program.calls)] + ([(-1, dict(program.large))] if device == "cuda" and not rounds else [])
    for k, sizes in calls:
        args = arguments(program, sizes, max(k, 0))
        want = expected(program, args) if k >= 0 else {}
        if want is None:
            continue
        strides = [tuple(a.stride()) for a in args if isinstance(a, Tensor)]
        try:
            if k < 0:
                told = large(program, kernel, device)
            elif device == "simulator":
                told = simulated(kernel, args)
            else:
                told = difference(program, want, found(kernel, args, device))
        except WeftError as error:
            refusal = error
            continue
        except Exception as error:
            raise Mismatch(f"{program.family}: {type(error).__name__}: {error}, at {sizes}") from error
        if told:
            raise Mismatch(f"{program.family}: {told}, at {sizes}, {program.dtype}, strides {strides}")
        outcome = "equal"
    return ("refused", refusal) if refusal is not None else (outcome, None)


def simulated(kernel: Any, args: Sequence[Any]) -> str | None:
    report = kernel.check(*args, gradients=any(isinstance(a, Tensor) and a.is_floating_point() for a in args))
    if report.ok and not report.findings:
        return None
    return str(report.text())
