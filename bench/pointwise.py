"""Operators of weft.ops and fused chains of them against PyTorch: a function for each group of cases.

Bytes are counted once each: every element that is read, every one that is written; what is broadcast as often as it is there.
What cannot be measured is left out, which standard error tells; a mean says over how many it is.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median
from typing import Any

import torch
import torch.nn.functional as F

from bench.first_call import in_a_fresh_process, wait
from bench.harness import Options, Row, copies, need_gpu, rows_of
from bench.pointwise_chains import CHAINS, Chain
from weft import ops
from weft.runtime.timing import Call, Times, host_times_in_turn, times_in_turn

Function = Callable[..., Any]
HALVES = (torch.float16, torch.bfloat16, torch.float32)
EAGER, COPY = "torch eager", "copy of equal bytes"


def run(options: Options) -> Iterator[Row]:
    need_gpu(options)
    for group in (g for g in (bandwidth, layouts, chains, mixed_dtypes, host, first_calls) if options.wants(g.__name__)):
        start, measured = time.perf_counter(), list[Row]()
        with torch.no_grad(), _or_left_out(group.__name__):
            measured = group(options)
        torch.compiler.reset()
        print(f"pointwise: {group.__name__} took {time.perf_counter() - start:.0f} s", file=sys.stderr)
        yield from measured


# ---------------------------------------------------------------- large tensors


@dataclass(frozen=True)
class Operator:
    """An operator of weft.ops by its name, PyTorch's own of the same arguments, and what these are: tensors by name (x; y,
    which has the layout; z and a condition, which lie as x does), others as they are.
    """

    name: str
    peer: Function
    wanted: tuple[Any, ...] = ("x", "y")

    @property
    def title(self) -> str:
        return " ".join([self.name, *(str(a) for a in self.wanted if a not in ("x", "y", "z", "condition"))])

    @property
    def ours(self) -> Function:
        """Raises AttributeError where weft.ops has no such operator."""
        return getattr(ops, self.name)

    def among(self, tensors: dict[str, torch.Tensor]) -> tuple[Any, ...]:
        """The arguments, of these tensors."""
        return tuple(tensors.get(a, a) for a in self.wanted)


LARGE = (
    Operator("add", torch.add),
    Operator("mul", torch.mul),
    Operator("gelu", F.gelu, ("x",)),
    Operator("silu", F.silu, ("x",)),
    Operator("where", torch.where, ("condition", "x", "y")),
    Operator("lerp", torch.lerp, ("x", "y", 0.3)),
)


def bandwidth(options: Options) -> list[Row]:
    """Six operators of 2^28 elements."""
    n, rows = 2**14 if options.quick else 2**28, []
    for dtype in HALVES[-1:] if options.quick else HALVES:
        x, y = (torch.randn(n, device=options.device).to(dtype) for _ in range(2))
        tensors = {"x": x, "y": y, "condition": x > 0}
        for one in LARGE:
            args = one.among(tensors)
            with _or_left_out(f"{one.title} of {dtype}"):
                moved = _bytes(one.ours, one.peer, args)
                times = _times([*(partial(f, *args) for f in (one.ours, one.peer)), copies(moved, options)[0]], options, 0.08)
                case = {"operator": one.title, "dtype": _name(dtype), "bytes": moved}
                rows += rows_of("pointwise", case, times, [EAGER, COPY])
    return rows


# ---------------------------------------------------------------- operators and layouts


def _named(name: str) -> Operator:
    return Operator(name, getattr(torch, name))


def _loss(name: str) -> Operator:
    """By PyTorch's operator alone: its function of that name warns where a target is broadcast."""
    return Operator(name, partial(getattr(torch.ops.aten, name), reduction=0))


_NAMES = (
    "add sub mul div pow remainder fmod floor_divide maximum minimum fmax fmin atan2 hypot copysign heaviside "
    "logaddexp logaddexp2 xlogy eq ne lt le gt ge logical_and logical_or logical_xor"
)
OPERATORS = (
    *map(_named, _NAMES.split()),
    Operator("xlog1py", torch.special.xlog1py),
    Operator("rsub", torch.rsub),
    Operator("add", lambda x, y, alpha: torch.add(x, y, alpha=alpha), ("x", "y", 2.5)),
    *map(_loss, ("mse_loss", "smooth_l1_loss", "huber_loss")),
    Operator("clamp_min", lambda x, y: torch.clamp(x, min=y)),
    Operator("clamp", torch.clamp, ("x", "z", "y")),
    Operator("where", torch.where, ("condition", "x", "y")),
    Operator("lerp", torch.lerp, ("x", "y", 0.3)),
    Operator("addcmul", torch.addcmul, ("z", "x", "y")),
    Operator("addcdiv", torch.addcdiv, ("z", "x", "y")),
)

New = Callable[..., torch.Tensor]


def _square(new: New, small: bool) -> torch.Tensor:
    return new(*(2 * (64 if small else 8192,)))


def _channels_last(new: New, small: bool) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = (2, 8, 4, 8) if small else (64, 256, 64, 64)
    return new(*sizes).to(memory_format=torch.channels_last), new(*sizes)


LAYOUTS: dict[str, Callable[[New, bool], tuple[torch.Tensor, torch.Tensor]]] = {
    "contiguous": lambda new, small: (_square(new, small), _square(new, small)),
    "bias [N, C] + [C]": lambda new, small: (x := _square(new, small), new(x.shape[1])),
    "transposed operand": lambda new, small: (_square(new, small), _square(new, small).T),
    "channels-last + contiguous": _channels_last,
}


def layouts(options: Options) -> list[Row]:
    """Forty operators of 2^26 bfloat16 elements: for each layout the geometric means over them, and over all."""

    def new(*shape: int) -> torch.Tensor:  # where every operator is defined
        return torch.rand(shape, device=options.device).mul_(0.8).add_(0.1).bfloat16()

    every, rows = [], []
    for layout, make in LAYOUTS.items():
        x, y = make(new, options.quick)
        z = torch.empty_like(x).copy_(new(*x.shape))
        tensors, found = {"x": x, "y": y, "z": z, "condition": z > 0.5}, {}
        for one in OPERATORS[::20] if options.quick else OPERATORS:
            args = one.among(tensors)
            with _or_left_out(f"{one.title} of {layout}"):
                _bytes(one.ours, one.peer, args)
                found[one.title] = _times([partial(f, *args) for f in (one.ours, one.peer)], options, 0.02).ms
        every += list(found.values())
        ratios = sorted((theirs / ours, name) for name, (ours, theirs) in found.items())
        lowest = ", ".join(f"{name} {ratio:.2f}" for ratio, name in ratios[:4])
        rows += _mean(list(found.values()), {"layout": layout, "dtype": "bfloat16", "lowest": lowest})
    return rows + _mean(every, {"layout": "all four", "dtype": "bfloat16"})


def _mean(times: Sequence[tuple[float, float]], case: dict[str, Any]) -> list[Row]:
    """A row whose ratio is the geometric mean of the ratios: that of the times by that of the times."""
    if not times:
        return []
    weft_ms, peer_ms = (geometric_mean(each) for each in zip(*times, strict=True))
    return [Row("pointwise", {"geometric mean of": len(times), **case}, weft_ms, EAGER, peer_ms)]


# ---------------------------------------------------------------- chains


def chains(options: Options) -> list[Row]:
    """Fused chains of bfloat16 (what they keep in float32 apart) against torch.compile of the same text, and eager."""

    def new(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, device=options.device).to(dtype)

    rows, compiled = [], []
    for chain in CHAINS:
        peers = {EAGER: chain.function}
        if options.device.type == "cuda" and importlib.util.find_spec("triton") is None:
            print("torch.compile is left out: Triton is not installed", file=sys.stderr)
        elif options.device.type == "cuda":
            torch.compiler.reset()
            peers["torch.compile"] = torch.compile(chain.function, fullgraph=True)
        with _or_left_out(chain.title):
            args = chain.make(new, options.quick)
            case = {"chain": chain.title, "operators": chain.operators, "bytes": _bytes_of_a_chain(chain, args)}
            calls = {"weft": partial(chain.fused, *args), **_that_run(peers, args)}
            # eight in a row: of one alone between two events, what the way before it left in L2 to be written is a part
            times = times_in_turn([[call] * 8 for call in calls.values()], options.device, seconds=min(0.2, options.seconds))
            rows += rows_of("pointwise", case, times, list(calls)[1:])
            if "torch.compile" in calls:
                compiled.append((times.ms[0], times.ms[-1]))
    if not compiled:
        return rows
    weft_ms, peer_ms = (geometric_mean(each) for each in zip(*compiled, strict=True))
    return [*rows, Row("pointwise", {"geometric mean of": len(compiled), "of": "chains"}, weft_ms, "torch.compile", peer_ms)]


def _that_run(functions: dict[str, Function], args: tuple[Any, ...]) -> dict[str, Call]:
    """The calls of those that run."""
    found: dict[str, Call] = {}
    for name, function in functions.items():
        with _or_left_out(name):
            function(*args)
            found[name] = partial(function, *args)
    return found


def _bytes_of_a_chain(chain: Chain, args: tuple[Any, ...]) -> int:
    """The bytes that it moves. Raises AssertionError where its results are not those of float32, rounded at the end."""
    exact = [a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    found, wanted = chain.fused(*args), chain.function(*exact)
    found, wanted = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        _require_close(a, b.to(a.dtype))
    return _sizes([*args, *found])


# ---------------------------------------------------------------- mixed dtypes

# title -> (the operator, dtypes of its operands, the one dtype that it is held against)
MIXED: dict[str, tuple[Function, Function, tuple[torch.dtype, torch.dtype], torch.dtype]] = {
    "float16 + float32": (ops.add, torch.add, (torch.float16, torch.float32), torch.float32),
    "bfloat16 * float32": (ops.mul, torch.mul, (torch.bfloat16, torch.float32), torch.float32),
    "int32 + float16": (ops.add, torch.add, (torch.int32, torch.float16), torch.float16),
    "uint8 * float32": (ops.mul, torch.mul, (torch.uint8, torch.float32), torch.float32),
}


def mixed_dtypes(options: Options) -> list[Row]:
    """Operators of 2^27 elements of two dtypes. The time of the same operator with one is scaled to as many bytes, so that the
    ratio is that of the bandwidths.
    """
    n, rows = 2**14 if options.quick else 2**27, []

    def new(dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(n, device=options.device).mul_(20).abs_().to(dtype)

    for title, (ours, theirs, dtypes, one) in MIXED.items():
        args, alike = tuple(map(new, dtypes)), (new(one), new(one))
        with _or_left_out(title):
            moved, moved_alike = (_bytes(ours, theirs, a) for a in (args, alike))
            calls = [partial(ours, *args), partial(ours, *alike), partial(theirs, *args)]
            mixed, alone, eager = _times(calls, options, 0.08).rounds
            times = Times((mixed, tuple(ms * moved / moved_alike for ms in alone), eager))
            case = {"mixed": title, "bytes": moved}
            rows += rows_of("pointwise", case, times, [f"{_name(one)} alone, scaled to equal bytes", EAGER])
    return rows


# ---------------------------------------------------------------- the host


def host(options: Options) -> list[Row]:
    """The host's time for a warm call on small tensors without autograd: the device has little to do."""
    x, y = (torch.randn(4, 64, device=options.device) for _ in range(2))
    half, out, chain = x.half(), torch.empty_like(x), CHAINS[0]
    args = (x, y[0], x > 0, y[1], y, 0.1)
    calls: dict[str, tuple[Function, Function]] = {
        "add of two tensors": (partial(ops.add, x, y), partial(torch.add, x, y)),
        "add with a row": (partial(ops.add, x, y[0]), partial(torch.add, x, y[0])),
        "add of a transposed one": (partial(ops.add, x.T, y.T[:, :1]), partial(torch.add, x.T, y.T[:, :1])),
        "add of float16 and float32": (partial(ops.add, half, y), partial(torch.add, half, y)),
        "mul by a float": (partial(ops.mul, x, 2.5), partial(torch.mul, x, 2.5)),
        "mul by an int": (partial(ops.mul, x, 3), partial(torch.mul, x, 3)),
        "add with alpha, an int": (partial(ops.add, x, y, 3), partial(torch.add, x, y, alpha=3)),
        "add with alpha=, by name": (partial(ops.add, x, y, alpha=3), partial(torch.add, x, y, alpha=3)),
        "add, out=": (partial(ops.add, x, y, out=out), partial(torch.add, x, y, out=out)),
        "div, rounding to floor": (partial(ops.div, x, y, "floor"), partial(torch.div, x, y, rounding_mode="floor")),
        f"{chain.title}, {chain.operators} operators": (partial(chain.fused, *args), partial(chain.function, *args)),
    }
    rows = []
    for title, (ours, theirs) in calls.items():
        with _or_left_out(title):
            case = {"host": title, "shape": [4, 64]}
            times = host_times_in_turn([ours, theirs], options.device, seconds=options.seconds)
            rows += rows_of("pointwise", case, times, [EAGER])
    return rows


# ---------------------------------------------------------------- first calls

_CHILD = """
import json, sys, torch, torch.nn.functional
import weft
from bench import pointwise
print(json.dumps(pointwise.measure_first_calls(*sys.argv[1:]), separators=(",", ":")))
"""
_FIRST = ("add", "mul", "sub", "div", "maximum", "sigmoid", "tanh", "sqrt", "exp")


def first_calls(options: Options) -> list[Row]:
    """First calls in fresh processes, with an empty cache, then from the disk: of the first operator of a process, and the
    median of the others, for which the compiler is awake.
    """
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(1 if options.quick else 3):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "from the disk cache"):
                words = in_a_fresh_process(_CHILD, (str(options.device), str(int(options.quick))), cache)
                first, *others = json.loads(words[-1])
                times.setdefault(("the first operator of a process", state), []).append(first)
                times.setdefault((f"the median of {len(others)} others", state), []).append(median(others))
    return [Row("pointwise", {"first call": of, "state": state}, median(ms)) for (of, state), ms in sorted(times.items())]


def measure_first_calls(device_name: str, quick: str) -> list[float]:
    """Milliseconds of the first call of each operator in this process; runs in the child."""
    device, found = torch.device(device_name), []
    x, y = (torch.rand(1024, 1024, device=device).bfloat16() + 1 for _ in range(2))
    for name in _FIRST[:: 4 if quick == "1" else 1]:
        operator = getattr(ops, name)
        args = (x, y)[: len(inspect.signature(operator).parameters)]
        wait(device)
        start = time.perf_counter()
        operator(*args)
        wait(device)
        found.append(1e3 * (time.perf_counter() - start))
    return found


# ---------------------------------------------------------------- what groups share


def _times(calls: Sequence[Call], options: Options, seconds: float) -> Times:
    """Of calls in turn. seconds: groups have many cases; what a kernel of a quarter of a millisecond needs, and no more."""
    return times_in_turn([[call] for call in calls], options.device, seconds=min(seconds, options.seconds))


def _bytes(ours: Function, theirs: Function, args: tuple[Any, ...]) -> int:
    """The bytes that a call moves. Raises AssertionError where its result is not PyTorch's."""
    found = ours(*args)
    wanted = theirs(*args)
    kinds = [(t.dtype, t.stride()) for t in (found, wanted)]
    assert kinds[0] == kinds[1], "its dtype and strides are {}, PyTorch's {}".format(*kinds)
    _require_close(found, wanted)
    return _sizes([*args, found])


def _require_close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Nearly all: PyTorch rounds intermediates of some operators to bfloat16, and beside a step that is another value."""
    wrong = float((~torch.isclose(found, wanted, rtol=2e-2, atol=1e-2, equal_nan=True)).float().mean())
    assert wrong < 0.01, f"{wrong:.1%} of the elements are not PyTorch's"


def _sizes(tensors: Sequence[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def _or_left_out(what: str) -> Iterator[None]:
    """One operator that does not run does not take the others with it."""
    try:
        yield
    except Exception as error:
        print(f"{what} is left out: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
