"""Random programs and their gradients: first and second derivatives against PyTorch's autograd of the plain Python.

`python -m tests.fuzz_gradients --first 0 --programs 5000` looks at that many; several processes may share the work, each
with seeds of its own. A failure shows the program made small. Three roads lead to a gradient: the adjoint nest executed
by its meaning, its schedule executed in a random order (of every SCHEDULES-th program: to analyse an adjoint and that of an
adjoint takes ten times as long as all the rest), and the compiled kernels (of every KERNELS-th).
"""

from __future__ import annotations

import argparse
import ast
import heapq
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

import weft
from tests.fuzz_oracle import Mismatch, replay
from tests.fuzz_programs import Generator, Program, arguments, compiled
from tests.fuzz_shrink import shrink
from tests.gradients import derivatives
from weft.errors import NotDifferentiable, WeftError
from weft.language import parse, read_signature
from weft.loops.adjoint import adjoint
from weft.loops.analyze import schedule
from weft.loops.interpret import interpret
from weft.loops.ir import Function, Store, walk
from weft.loops.schedule import Schedule
from weft.pytorch.call import argument_types

Outcome = Literal["equal", "refused", "skipped"]
KERNELS, SCHEDULES = 25, 4
_SIZES = ({"n": 3, "m": 4, "d": 2}, {"n": 2, "m": 5, "d": 3})
_SMALL = ({"n": 1, "m": 3, "d": 1}, {"n": 3, "m": 1, "d": 1}, {"n": 1, "m": 1, "d": 1})
_TOLERANCE = 1e-7


# ---------------------------------------------------------------- programs


class Gradients(Generator):
    """Programs of floats that can be differentiated: they store into what they make alone. Branches, choices at ties and
    functions whose derivative is infinite somewhere are frequent.
    """

    inout = 0.0
    forms = (
        "torch.sqrt(abs({0}) + {1} * {1} + x[0, 0] * 0.0)", "(1.0 / {0} if abs({0}) > 0.25 else {1})", "({0}) ** 2",
        "torch.relu({0} + x[0, 0] * 0.0)", "torch.clamp({0} + x[0, 0] * 0.0, -0.5, 0.5)", "({0} if {0} >= {1} else {1})",
        "torch.maximum(x[0, 0] * 0.0 + {0}, x[0, 0] * 0.0 + {1})", "({0} if {2} else 0.5)", "max({0}, {1}, 0.0)",
        "torch.where({2}, x[0, 0] * 0.0 + {0}, x[0, 0] * 0.0 + {1})", "min(max({0}, -1.0), 1.0)",
        "(math.sqrt({0}) if {0} > 0 else {1})",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.floating, self.dtype, self.wild = True, "float64", False


def generate(seed: int) -> Program:
    """The program of a seed. All of its memory is written: what was never written has no derivative."""
    made = Gradients(seed).program()
    source = made.source.replace("torch.empty_like(", "torch.zeros_like(").replace("torch.empty(", "torch.zeros(")
    return replace(made, source=source)


def given(program: Program, size: dict[str, int], seed: int) -> list[Any]:
    """Arguments; those of every second program are multiples of a half, so that many are equal."""
    finite = replace(program, seed=program.seed - program.seed % 6)
    args = arguments(finite, size, seed)
    if program.seed % 2:
        args = [(a * 3).round() / 2 if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
    return args


class _Math:
    """math, of which autograd sees the functions of tensors. It raises what math raises."""

    def __getattr__(self, name: str) -> Any:
        plain = getattr(math, name)
        if not callable(plain):
            return plain

        def function(x: Any) -> Any:
            number = plain(x)  # of a tensor too: raises outside the function's domain
            return getattr(torch, name)(x) if isinstance(x, Tensor) else number

        return function


# ---------------------------------------------------------------- roads


Run = Callable[..., tuple[Tensor, ...]]


@dataclass
class Differentiated:
    """A function, its schedule and its adjoints, each derived when it is first asked for."""

    made: Function
    adjoints: dict[tuple[tuple[Any, ...], ...], Differentiated] = field(default_factory=dict)

    def adjoint(self, wanted: tuple[str, ...], seeded: tuple[int, ...]) -> Differentiated:
        if (wanted, seeded) not in self.adjoints:
            self.adjoints[wanted, seeded] = Differentiated(adjoint(self.made, wanted, seeded))
        return self.adjoints[wanted, seeded]

    @cached_property
    def moved(self) -> tuple[bool, ...]:
        """Which results depend on anything: the gradients that are no constant 0, whatever they are multiplied with."""
        stored = {s.array for s in walk(self.made.body) if isinstance(s, Store)}
        return tuple(r in stored for r in self.made.results)

    @cached_property
    def scheduled(self) -> tuple[Schedule, float]:
        """The schedule, and the seconds that it took."""
        begin = time.perf_counter()
        found = schedule(self.made)
        return found, time.perf_counter() - begin

    def operation(self, run: Callable[[Differentiated], Run]) -> Callable[..., Any]:
        """It as an operation of PyTorch, whose derivative is its adjoint, to any order."""
        made = self.made
        scalars = {s.name for s in made.scalars}
        floating = [made.array(r).dtype.category == "float" for r in made.results]

        class Call(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                results = run(self)(*(a.detach() if isinstance(a, Tensor) else a for a in args))
                ctx.set_materialize_grads(False)  # an infinite derivative times a 0 that nothing handed on is a NaN
                ctx.plain = [None if isinstance(a, Tensor) else a for a in args]
                ctx.save_for_backward(*(a for a in args if isinstance(a, Tensor)), *results)
                ctx.mark_non_differentiable(*(r for r, f in zip(results, floating, strict=True) if not f))
                return results

            @staticmethod
            def backward(ctx: Any, *grads: Tensor) -> Any:
                wanted = tuple(p for p, need in zip(made.parameters, ctx.needs_input_grad, strict=True) if need)
                saved = list(ctx.saved_tensors)
                args = [v if p in scalars else saved.pop(0) for p, v in zip(made.parameters, ctx.plain, strict=True)]
                seeded = tuple(k for k, g in enumerate(grads) if g is not None)
                if not seeded:
                    return (None,) * len(made.parameters)
                pulled = self.adjoint(wanted, seeded)
                gradients = pulled.operation(run)(*args, *saved, *(grads[k] for k in seeded))
                found = {p: g if m else None for p, g, m in zip(wanted, gradients, pulled.moved, strict=True)}
                return tuple(found.get(p) for p in made.parameters)

        return lambda *args: Call.apply(*args)  # type: ignore[no-untyped-call]


@dataclass
class Roads:
    """What weft makes of one program. seconds: of its slowest analysis."""

    program: Program
    seconds: float = 0.0

    @cached_property
    def function(self) -> Callable[..., Any]:
        return compiled(self.program.source, f"<program {self.program.seed} for weft>")

    @cached_property
    def parsed(self) -> Differentiated:
        types = argument_types(read_signature(self.function), given(self.program, _SIZES[0], 0))
        return Differentiated(parse(self.function, dict(zip(self.program.parameters, types, strict=True))))

    def nest(self) -> Callable[..., Any]:
        """The nests by their meaning."""
        return self.parsed.operation(lambda of: lambda *args: interpret(of.made, *args))

    def scheduled(self) -> Callable[..., Any]:
        """The schedules in a random order."""

        def run(of: Differentiated) -> Run:
            found, seconds = of.scheduled
            self.seconds = max(self.seconds, seconds)
            return lambda *args: replay(of.made, found, args, random.Random(self.program.seed))

        return self.parsed.operation(run)

    def kernel(self) -> Callable[..., Any]:
        return weft.kernel(self.function)


# ---------------------------------------------------------------- the check


def _differentiated(args: Sequence[Any]) -> bool:
    return any(isinstance(a, Tensor) and a.is_floating_point() for a in args)


class _Copies(ast.NodeTransformer):
    """Every element that is read is a copy: autograd saves it, and the program may store into its place later. What is made
    is told to `_made`, what is returned comes from `_returned`.
    """

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        return ast.Call(ast.Name("_copied", ast.Load()), [node], [])

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        made = isinstance(node.func, ast.Attribute) and node.func.attr in ("zeros", "full", "zeros_like", "full_like", "clone")
        return ast.Call(ast.Name("_made", ast.Load()), [node], []) if made else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        if node.name == "program":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    inner.value = ast.Call(ast.Name("_returned", ast.Load()), [inner.value], [])
        return node


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


class _Handing:
    """Whether arrays that nothing was handed to hand back 0, as weft's do, or nothing, as PyTorch's."""

    def __init__(self, zeros: bool) -> None:
        self.zeros, self.arrays = zeros, list[Tensor]()

    def made(self, value: Tensor) -> Tensor:
        self.arrays.append(value)
        return value

    def returned(self, value: Any) -> Any:
        arrays = [a for a in self.arrays if a.is_floating_point()]
        self.arrays = []
        if not self.zeros:
            return value
        results = value if isinstance(value, tuple) else (value,)
        nothing = sum(torch.where(torch.zeros_like(a, dtype=torch.bool), a, 0.0).sum() for a in arrays)
        handed = [r + nothing if r.is_floating_point() else r for r in results]
        return tuple(handed) if isinstance(value, tuple) else handed[0]


def _oracle(program: Program, args: Sequence[Any], second: bool = True, zeros: bool = False) -> dict[str, Tensor] | None:
    """What the Python gives; None where it fails by itself, or gives something else for copies of elements. zeros: what
    arrays hand back to which nothing was handed.
    """
    copies = ast.unparse(ast.fix_missing_locations(_Copies().visit(ast.parse(program.source))))
    handing = _Handing(zeros)
    names = {"math": _Math(), "_copied": _copied, "_made": handing.made, "_returned": handing.returned}
    plain = compiled(program.source, f"<program {program.seed}>", names)
    try:
        with torch.no_grad():
            made = plain(*(_copied(a) for a in args))
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            found = derivatives(compiled(copies, f"<program {program.seed} of copies>", names), args, second)
    except (IndexError, OverflowError, RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return None
    results = made if isinstance(made, tuple) else (made,)
    same = all(torch.equal(found[f"result {k}"].nan_to_num(), r.nan_to_num()) for k, r in enumerate(results))
    return found if same else None


def difference(want: dict[str, Tensor], found: dict[str, Tensor], zeros: dict[str, Tensor] | None = None) -> str | None:
    """Where derivatives differ by more than rounding, in words. What is not finite in a second derivative may be an infinity
    or a NaN; where first ones are NaN, a NaN may be in second ones too: it is that of what is no number. zeros: what the
    Python gives where arrays hand back 0, of which each element may be instead: weft hands back of some arrays alone.
    """
    for name, value in want.items():
        got = found.get(name)
        if got is None or got.shape != value.shape:
            return f"{name} is {None if got is None else list(got.shape)}, not {list(value.shape)}"
        if not value.is_floating_point():
            continue
        good = _agreeing(name, got, want)
        if zeros is not None:
            good = good | _agreeing(name, got, zeros)
        if not good.all():
            at = tuple((~good).nonzero()[0].tolist())
            return f"{name} at {list(at)}: {got[at].item()}, the Python gives {value[at].item()} ({int((~good).sum())} differ)"
    return None


def _agreeing(name: str, got: Tensor, want: dict[str, Tensor]) -> Tensor:
    """Which elements of a derivative are those that are wanted."""
    value = want[name]
    finite = value[value.isfinite()]
    tolerance = _TOLERANCE * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    good = (value == got) | ((value - got).abs() <= tolerance) | (value.isnan() & got.isnan())
    if name.startswith("second"):
        undefined = any(bool(v.isnan().any()) for n, v in want.items() if n.startswith("gradient"))
        good = good | ~(value.isfinite() | got.isfinite()) | (got.isnan() & undefined)
    return good


def _ill_conditioned(program: Program, args: Sequence[Any], want: dict[str, Tensor]) -> bool:
    """Whether rounding decides: noise in the arguments changes the derivatives."""
    noise = torch.Generator().manual_seed(1)
    for _ in range(3):
        moved = [a * (1 + 1e-14 * torch.randn(a.shape, dtype=a.dtype, generator=noise)) if isinstance(a, Tensor)
                 and a.is_floating_point() else a for a in args]  # fmt: skip
        again = _oracle(program, moved)
        if again is None or difference(want, again) is not None:
            return True
    return False


def check(program: Program, kernels: bool = False, roads: Roads | None = None) -> tuple[Outcome, WeftError | None]:
    """Compare weft's derivatives with autograd's at several sizes. Raises Mismatch."""
    roads = roads or Roads(program)
    outcome: Outcome = "skipped"
    for k, size in enumerate((_SIZES[program.seed % 2], _SMALL[program.seed % 3])):
        args = given(program, size, k)
        want = _oracle(program, args)
        if want is None or not _differentiated(args):
            continue
        # where infinities have made NaN of a result, its second derivative hangs on the order of products
        results = (v for n, v in want.items() if n.startswith("result") and v.is_floating_point())
        finite = "math.inf" not in program.source or all(bool(r.isfinite().all()) for r in results)
        ways: list[tuple[str, Any, bool]] = [("nest", roads.nest, finite)]
        if k == 0 and program.seed % SCHEDULES == 0:
            ways.append(("schedule", roads.scheduled, False))
        if kernels:
            ways.append(("kernel", roads.kernel, finite))
        for name, road, second in ways:
            try:
                found = derivatives(road(), args, second)
            except WeftError as error:
                return "refused", error
            except Mismatch as error:
                raise Mismatch(f"{name}: {error}, at {size}") from error
            except Exception as error:
                raise Mismatch(f"{name}: {type(error).__name__}: {error}") from error
            asked = {n: v for n, v in want.items() if second or not n.startswith("second")}
            wrong = difference(asked, found)
            if wrong is not None and ": nan, the Python gives 0.0" in wrong:
                wrong = difference(asked, found, _oracle(program, args, second, zeros=True))
            if wrong is not None:
                if program.seed % 2 == 0 and _ill_conditioned(program, args, want):
                    break
                raise Mismatch(f"{name}: {wrong}, at {size}")
            outcome = "equal"
    return outcome, None


def report(program: Program, mismatch: Mismatch, kernels: bool, tries: int) -> str:
    """The failing program made small, and what is wrong with it."""
    kind = str(mismatch)[:12]

    def fails(candidate: Program) -> bool:
        try:
            check(candidate, kernels)
        except Mismatch as again:
            return str(again)[:12] == kind
        return False

    small = shrink(program, fails, tries)
    try:
        check(small, kernels)
    except Mismatch as again:
        mismatch = again
    return f"gradients of program {program.seed}: {mismatch}\n\n{small.source}"


@dataclass
class Summary:
    outcomes: Counter[str]
    refusals: list[tuple[int, WeftError]]
    failures: list[str]
    slowest: list[tuple[float, int]]


def check_all(seeds: Iterable[int], tries: int, kernels: int = KERNELS, stop: bool = True) -> Summary:
    """Check the programs of these seeds. kernels: compile every so many of them, none if 0. stop: at the first failure."""
    found = Summary(Counter(), [], [], [])
    for seed in seeds:
        program = generate(seed)
        roads = Roads(program)
        compile_ = bool(kernels) and seed % kernels == 0
        try:
            outcome, refusal = check(program, compile_, roads)
        except Mismatch as mismatch:
            found.outcomes["failed"] += 1
            found.failures.append(report(program, mismatch, compile_, tries))
            print(found.failures[-1], end="\n\n", flush=True)
            if stop:
                return found
            continue
        found.outcomes[outcome] += 1
        if refusal is not None:
            found.refusals.append((seed, refusal))
        found.slowest = heapq.nlargest(5, [*found.slowest, (roads.seconds, seed)])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--programs", type=int, default=200, help="how many programs")
    parser.add_argument("--kernels", type=int, default=KERNELS, help="compile every so many of them; 0: none")
    parser.add_argument("--tries", type=int, default=300, help="programs looked at to make a failing one small")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    seeds = range(options.first, options.first + options.programs)
    found = check_all(seeds, options.tries, options.kernels, stop=False)
    kinds = Counter(type(e).__name__ + (": " + str(e).splitlines()[0][-60:] if isinstance(e, NotDifferentiable) else "")
                    for _, e in found.refusals)  # fmt: skip
    for kind, count in kinds.most_common():
        print(f"refused {count:5}  {kind}")
    print("slowest analyses: " + ", ".join(f"{t:.1f} s (seed {s})" for t, s in found.slowest))
    print(f"{dict(found.outcomes)} in {time.perf_counter() - begin:.0f} s")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
