"""What a call must give: the plain Python in float64 (with stores that round, where what they round is read again), or
where that takes too long the CPU's own kernel, and how results are held against it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from weft.check.found import Comparison
from weft.language.text import function_of_text
from weft.loops.affine import evaluate
from weft.loops.ir import For, Function, Stmt, bodies, walk
from weft.loops.python import python
from weft.loops.types import SCALAR_TYPES
from weft.pytorch.call import argument_types, as_pairs, bind
from weft.pytorch.inspected import Inspected
from weft.pytorch.simulated import still_unwritten
from weft.pytorch.stores import StoresRound, rounds

# Iterations of the innermost loops that the plain Python is asked for: a few seconds of it. Its gradient goes through
# autograd, whose graph has a node a statement and whose backward copies the result at each.
MOST_ITERATIONS, MOST_ITERATIONS_OF_GRADIENTS = 250_000, 10_000

# Of the magnitude an element has: what reassociated sums of some thousand elements may lose, and one rounding of a result.
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.float64: 1e-10,
              torch.float8_e4m3fn: 0.125, torch.float8_e5m2: 0.25}  # fmt: skip
UNITS = {SCALAR_TYPES[str(dtype).removeprefix("torch.")]: tolerance for dtype, tolerance in TOLERANCES.items()}
# Below this an element may differ by as much as one of this magnitude may: cancelled terms leave their rounding behind.
_LEAST_MAGNITUDE = 1 / 16
_CPU_KERNEL = "weft's CPU kernel"
# An element may be off by so many times what it is off by in the same arithmetic, the most of RERUNS runs.
_TIMES, RERUNS = 32, 4


def iterations(function: Function, names: dict[str, Any]) -> int:
    """About how many iterations the loops of the Python run; loops of slices run in PyTorch and count once."""

    def count(statements: tuple[Stmt, ...], known: dict[str, Any]) -> int:
        total = 0
        for stmt in statements:
            inner = known
            times = 1
            if isinstance(stmt, For) and not stmt.implied:
                try:
                    values = range(evaluate(stmt.start, known), evaluate(stmt.stop, known), stmt.step)
                except KeyError:  # data decide it: as long as the longest size
                    values = range(max((int(v) for v in names.values()), default=1))
                times = len(values)
                inner = known | {stmt.var: values[len(values) // 2] if values else 0}
            total += times * max(1, sum(count(body, inner) for body in bodies(stmt))) if bodies(stmt) else 0
        return total

    return count(function.body, dict(names))


def wide(args: Sequence[Any]) -> list[Any]:
    """Copies of arguments, float tensors in float64."""
    return [_copied(a, torch.float64) for a in args]


def rounded(args: Sequence[Any], seed: int) -> list[Any]:
    """Copies of arguments, each element of a float tensor off by up to a rounding and in the type of its arithmetic:
    float64 for float64, float32 for the others.
    """
    generator = torch.Generator().manual_seed(seed)
    out = []
    for a in args:
        own = _copied(a, torch.float64)
        if isinstance(a, torch.Tensor) and a.is_floating_point():
            arithmetic = torch.float64 if a.dtype is torch.float64 else torch.float32
            noise = torch.rand(a.shape, dtype=torch.float64, generator=generator) - 0.5
            own = (own * (1 + torch.finfo(arithmetic).eps * noise)).to(arithmetic)
        out.append(own)
    return out


def _copied(value: Any, floats: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    own = value.detach().clone()
    return own.to(floats) if own.is_floating_point() else own


@dataclass(frozen=True)
class Rounding:
    """How a function runs whose stores round: plain Python for it, and the dtypes of its tensors, None of other arguments.

    Python that works on whole tensors does not say which of them are stored; the loops that it is read as do.
    """

    run: Callable[..., Any]
    dtypes: tuple[torch.dtype | None, ...]
    loops: bool


def rounding(kernel: Inspected, args: Sequence[Any]) -> Rounding | None:
    """How the function of a call runs if it reads again what it has stored rounded; args: the call's own."""
    function = kernel.specializable.function(argument_types(kernel.signature, args), False)
    if not rounds(function):
        return None
    dtypes = tuple(a.dtype if isinstance(a, torch.Tensor) and a.is_floating_point() else None for a in args)
    loops = any(isinstance(s, For) and s.implied for s in walk(function.body))
    default = SCALAR_TYPES[str(torch.get_default_dtype()).removeprefix("torch.")]
    return Rounding(function_of_text(python(function, default)) if loops else kernel.py, dtypes, loops)


def reference(
    kernel: Inspected, function: Function, args: Sequence[Any], stores: Rounding | None = None
) -> tuple[dict[str, torch.Tensor], str]:
    """The arrays that a call writes, by name; and in words what computed them. args: as `wide` or `rounded` give them,
    since those that the function writes are written. stores: how they round, where that matters.

    Memory that the Python leaves unwritten is NaN, or the largest integer.
    """
    call, who = _computed_by(kernel, function, args, MOST_ITERATIONS, stores)
    with _uninitialised_memory_filled(), torch.no_grad():
        values = dict(zip(function.results, _results(call(*args)), strict=True))
    given = dict(zip(function.parameters, args, strict=True))
    return values | {a.name: given[a.name] for a in function.arrays if a.role == "inout"}, who


def reference_gradients(
    kernel: Inspected,
    function: Function,
    args: Sequence[Any],
    cotangents: Sequence[torch.Tensor],
    wanted: Sequence[str],
    stores: Rounding | None,
) -> tuple[dict[str, torch.Tensor], str]:
    """The gradients of the arguments `wanted`, by their names; and in words what computed them.

    cotangents: one for each float result.
    """
    call, who = _computed_by(kernel, function, args, MOST_ITERATIONS_OF_GRADIENTS, stores)
    with _LeavesAutograd() as watch:
        try:
            found = _gradients(call, function, args, cotangents, wanted)
        except RuntimeError as error:
            if "inplace operation" not in str(error):
                raise
            with _ElementsCopied():
                found = _gradients(call, function, args, cotangents, wanted)
    if watch.left and not who.startswith(_CPU_KERNEL):
        call, own = _cpu_kernel(kernel, stores)
        who = f"{own} (the plain Python turns tensors into numbers, which autograd cannot follow)"
        found = _gradients(call, function, args, cotangents, wanted)
    return found, who


def _gradients(
    call: Callable[..., Any],
    function: Function,
    args: Sequence[Any],
    cotangents: Sequence[torch.Tensor],
    wanted: Sequence[str],
) -> dict[str, torch.Tensor]:
    given = dict(zip(function.parameters, args, strict=True))
    leaves = [given[name].detach().requires_grad_() for name in wanted]
    given |= dict(zip(wanted, leaves, strict=True))
    with _uninitialised_memory_filled(), torch.enable_grad():
        floats = [r for r in _results(call(*given.values())) if r.is_floating_point()]
        reached = [(r, g.to(r.dtype)) for r, g in zip(floats, cotangents, strict=True) if r.requires_grad]
        results, weights = [r for r, _ in reached], [g for _, g in reached]
        found = torch.autograd.grad(results, leaves, weights, allow_unused=True) if results else (None,) * len(leaves)
    pairs = zip(wanted, leaves, found, strict=True)
    return {n: torch.zeros_like(leaf) if gradient is None else gradient for n, leaf, gradient in pairs}


class _LeavesAutograd(TorchFunctionMode):
    """Watches for tensors with a gradient that are turned into Python's numbers, as by `math.exp`."""

    left = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("__float__", "item", "tolist") and args[0].requires_grad:
            self.left = True
        return func(*args, **(kwargs or {}))


class _ElementsCopied(TorchFunctionMode):
    """Elements are read as copies: autograd needs the value of `y[i - 1]` that `y[i] = x[i] * y[i - 1]` read, and would
    find that its tensor has been written since.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        element = getattr(func, "__name__", "") == "__getitem__" and result.dim() == 0 and result.is_floating_point()
        return result.clone() if element else result


def _computed_by(
    kernel: Inspected, function: Function, args: Sequence[Any], most: int, stores: Rounding | None
) -> tuple[Callable[..., Any], str]:
    size = iterations(function, bind(function, args).names)
    if size > most:
        call, who = _cpu_kernel(kernel, stores)
        return call, f"{who} (the plain Python would run {size:,} iterations)"
    if stores is None:
        return kernel.py, "the plain Python in float64"

    def stores_round(*own: Any) -> Any:
        with StoresRound((a, to) for a, to in zip(own, stores.dtypes, strict=True) if to is not None):
            return stores.run(*own)

    return stores_round, f"the {'loops' if stores.loops else 'plain Python'} in float64, rounding what is stored"


def _cpu_kernel(kernel: Inspected, stores: Rounding | None) -> tuple[Callable[..., Any], str]:
    """weft's kernel for the CPU: in float64, or as it is where its stores must round."""
    if stores is None:
        return kernel.operator, f"{_CPU_KERNEL} in float64"

    def as_it_is(*wider: Any) -> Any:
        own = [a if to is None else a.to(to) for a, to in zip(wider, stores.dtypes, strict=True)]
        made = kernel.operator(*own)
        for parameter, a, b in zip(kernel.signature.parameters, wider, own, strict=True):
            if parameter.name in kernel.signature.written and b is not a:
                a.copy_(b)
        return made

    return as_it_is, _CPU_KERNEL


def _results(made: Any) -> tuple[torch.Tensor, ...]:
    """What a function returned as tensors, its numbers too, complex ones by their parts."""
    items = made if isinstance(made, (tuple, list)) else () if made is None else (made,)
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    tensors = (r if isinstance(r, torch.Tensor) else torch.tensor(r, dtype=kinds[type(r)]) for r in items)
    return tuple(as_pairs(t) if t.is_complex() else t for t in tensors)


@contextmanager
def _uninitialised_memory_filled() -> Iterator[None]:
    """PyTorch fills what `torch.empty` and its like give: NaN, the largest integer, true."""
    before, warn_only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        settings.fill_uninitialized_memory = filled


# ---------------------------------------------------------------- comparison


def compare(
    name: str,
    every: Sequence[torch.Tensor],
    seeds: Sequence[int],
    want: torch.Tensor,
    tolerance: float | None,
    reruns: Callable[[], Sequence[torch.Tensor]] | None = None,
    deviation: Callable[[], torch.Tensor | None] = lambda: None,
) -> Comparison:
    """Hold one array, as each seed gave it, against the reference.

    An element of a float array may differ by `tolerance` (None: TOLERANCES of its dtype) times its magnitude, or the
    median magnitude of the array, or 1/16, whichever is the largest; NaN equals NaN, and of two that overflow one may be
    the infinity that the other has turned to NaN. Other dtypes are equal or not. Where elements differ, these are asked for
    what else is allowed. deviation: how far the roundings of the terms of a sum may move an element (`deviations`), None
    where that is not known. reruns: the reference of runs in the kernel's own arithmetic on inputs that are off by a rounding
    each (see `rounded`); 32 times the most that an element is off by in those.
    """
    first = every[0]
    bits = _bits(first)
    differing_seeds = tuple(s for s, other in zip(seeds, every, strict=True) if not torch.equal(bits, _bits(other)))
    allowed = TOLERANCES.get(first.dtype, 0.0) if tolerance is None else tolerance
    worst: Comparison | None = None
    for got in every if differing_seeds else every[:1]:
        found = _compare(name, got, want, allowed if first.is_floating_point() else 0.0, differing_seeds)
        if worst is None or (found.unwritten, found.differing, found.error) > (worst.unwritten, worst.differing, worst.error):
            worst = found
    assert worst is not None

    def moved() -> torch.Tensor | None:
        if reruns is None:
            return None
        off = torch.stack([(other.double() - want.double()).abs() for other in reruns()])
        return _TIMES * off.nan_to_num(nan=float("inf")).amax(0)

    besides = torch.zeros(first.shape, dtype=torch.float64)
    for ask in (deviation, moved) if worst.differing else ():
        more = ask()
        if more is None:
            continue
        besides = torch.maximum(besides, more.nan_to_num(nan=0.0, posinf=float("inf")))
        again = [_compare(name, got, want, worst.tolerance, differing_seeds, besides) for got in every]
        if not any(c.differing for c in again):
            return replace(worst, differing=0, sensitive=True)
    return worst


def _compare(
    name: str,
    got: torch.Tensor,
    reference: torch.Tensor,
    tolerance: float,
    differing_seeds: tuple[int, ...],
    besides: torch.Tensor | float = 0.0,
) -> Comparison:
    want = reference.to(got.dtype)  # what overflows there is an infinity here
    shape = tuple(got.shape)
    dtype = str(got.dtype).removeprefix("torch.")
    empty = Comparison(name, dtype, shape, got.numel(), 0, 0, (), 0.0, 0.0, 0.0, 0.0, tolerance, differing_seeds)
    if got.numel() == 0:
        return empty
    if not got.is_floating_point():
        unequal = got != want
        gap = (got.double() - want.double()).abs()
        at = int(gap.argmax())
        return _at(empty, got, want, at, differing=int(unequal.sum()), ulps=float(gap.flatten()[at]))
    unwritten = still_unwritten(got) & ~want.isnan()
    g, w, held = got.double(), reference.double(), want.double()
    finite = held.isfinite()
    sizes = w[finite & (w != 0)].abs()
    typical = max(_LEAST_MAGNITUDE, float(sizes.median()) if len(sizes) else 0.0)
    same = (g == held) | ~(g.isfinite() | finite)
    gap = torch.where(same, 0.0, (g - w).abs()).nan_to_num(nan=float("inf"))
    excess = gap / w.abs().nan_to_num().clamp(min=typical)
    wrong = (excess > tolerance) & ~(gap <= besides) | (g.isfinite() != finite) & ~same
    at = int(excess.argmax())
    ulps = float(gap.flatten()[at]) / _ulp(float(want.flatten()[at]), got.dtype)
    return _at(empty, got, want, at, differing=int((wrong & ~unwritten).sum()), unwritten=int(unwritten.sum()), ulps=ulps)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def _at(
    empty: Comparison, got: torch.Tensor, want: torch.Tensor, at: int, *, differing: int, ulps: float, unwritten: int = 0
) -> Comparison:
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), got.shape)) if got.dim() else ()
    g, w = float(got[index]), float(want[index])
    error = 0.0 if g == w else abs(g - w)
    return replace(empty, index=index, got=g, want=w, error=error, ulps=ulps, differing=differing, unwritten=unwritten)


def _ulp(value: float, dtype: torch.dtype) -> float:
    """The unit in the last place of a number in a float dtype; that of its smallest normal number below it."""
    info = torch.finfo(dtype)
    if value != value or abs(value) == float("inf"):
        return info.eps * info.max
    magnitude = torch.tensor(max(abs(value), info.tiny), dtype=torch.float64)
    return float(2.0 ** torch.floor(torch.log2(magnitude))) * info.eps
