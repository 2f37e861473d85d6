"""What a random program must compute: the plain Python is run, and weft is held against it.

Two roads are checked: the compiled kernel, and the schedule executed by its meaning with every loop that is called
parallel, and every commutative reduction, run in a random order.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

import weft
from tests.fuzz_programs import Program, arguments, compiled
from weft.errors import OutOfRange, WeftError
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.interpret import _Machine
from weft.loops.ir import For, Function
from weft.loops.operators import OPERATORS
from weft.loops.recurrences import AFFINE, ALGEBRAS
from weft.loops.schedule import Nest, Schedule, Update, Verdict
from weft.pytorch.call import argument_types

Outcome = Literal["equal", "refused", "skipped"]
Road = Literal["kernel", "schedule"]

# Odd sizes, so that one compilation serves them all: what is a multiple of a vector is compiled apart.
_USUAL = ({"n": 5, "m": 5, "d": 3}, {"n": 3, "m": 21, "d": 3})
_SMALL = ({"n": 1, "m": 3, "d": 1}, {"n": 3, "m": 1, "d": 1}, {"n": 1, "m": 0, "d": 1}, {"n": 0, "m": 3, "d": 1})
_RELATIVE = 1e-7


class Mismatch(AssertionError):
    """weft computed something else than the Python, or failed with what is no named error."""


@dataclass(frozen=True)
class Expected:
    """What the Python gave: the values of results and of the arguments (each with the elements that have a value)."""

    values: tuple[torch.Tensor, ...]
    defined: tuple[torch.Tensor, ...]


class _Poisoned:
    """torch, with the memory that no one wrote filled with a number."""

    def __init__(self, poison: float) -> None:
        self._poison = poison

    def __getattr__(self, name: str) -> Any:
        made = getattr(torch, name)
        if name not in ("empty", "empty_like"):
            return made

        def filled(*args: Any, **options: Any) -> torch.Tensor:
            tensor: torch.Tensor = made(*args, **options)
            scale = torch.arange(1, tensor.numel() + 1, dtype=torch.float64).view(tensor.shape) ** 1.5
            return tensor.copy_(self._poison * scale)

        return filled


def _copied(args: Sequence[Any]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def _outputs(result: Any, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    results = () if result is None else result if isinstance(result, tuple) else (result,)
    return (*results, *(a for a in args if isinstance(a, torch.Tensor)))


def _run(program: Program, args: Sequence[Any], poison: float) -> tuple[torch.Tensor, ...]:
    own = _copied(args)
    function = compiled(program.source, f"<program {program.seed}>", {"torch": _Poisoned(poison)})
    return _outputs(function(*own), own)


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | ((a != a) & (b != b))


def expected(program: Program, args: Sequence[Any], poisons: Sequence[float] = (77.0, -3.0)) -> Expected:
    """Run the Python. Elements that change with what uninitialised memory holds have no value."""
    runs = [_run(program, args, p) for p in (poisons if "empty" in program.source else poisons[:1])]
    defined = [torch.ones_like(v, dtype=torch.bool) for v in runs[0]]
    for other in runs[1:]:
        defined = [d & _same(v, o) for d, v, o in zip(defined, runs[0], other, strict=True)]
    return Expected(runs[0], tuple(defined))


def difference(want: Expected, found: tuple[torch.Tensor, ...]) -> str | None:
    """Where results differ by more than rounding, in words. What overflows may be an infinity or a NaN: it depends on the
    order of additions which.
    """
    if len(found) != len(want.values):
        return f"{len(found)} outputs, not {len(want.values)}"
    finite = [float(v[v.isfinite()].abs().max()) for v in want.values if v.is_floating_point() and v.isfinite().any()]
    tolerance = _RELATIVE * max([1.0, *finite])
    for k, (value, defined, got) in enumerate(zip(want.values, want.defined, found, strict=True)):
        if value.shape != got.shape or value.dtype != got.dtype:
            return f"output {k} is {got.dtype} {list(got.shape)}, not {value.dtype} {list(value.shape)}"
        good = _same(value, got)
        if value.is_floating_point():
            good = good | ((value - got).abs() <= tolerance) | ~(value.isfinite() | got.isfinite())
        wrong = (~good & defined).nonzero()
        if len(wrong):
            at = tuple(wrong[0].tolist())
            return (
                f"output {k} at {list(at)}: {got[at].item()}, the Python gives {value[at].item()} ({len(wrong)} differ)"
            )
    return None


def ill_conditioned(program: Program, args: Sequence[Any], want: Expected) -> bool:
    """Whether rounding decides the result: noise in the inputs changes it, or more of it hangs on uninitialised memory."""
    noise = torch.Generator().manual_seed(1)

    def noisy(a: Any) -> Any:
        if not isinstance(a, torch.Tensor) or not a.is_floating_point():
            return a
        factor = torch.randn(a.shape, dtype=a.dtype, generator=noise)
        return a + 1e-14 * factor * a

    for _ in range(4):
        moved = _run(program, [noisy(a) for a in args], 77.0)
        if difference(want, moved) is not None:
            return True
        if any(((v - o).abs() > 1e-11 * (1 + v.abs())).any() for v, o in zip(want.values, moved, strict=True)
               if v.is_floating_point()):  # fmt: skip
            return True
    return False


# ---------------------------------------------------------------- the schedule, executed


class _Replay(_Machine):
    """Executes nests, with everything that the schedule calls free of order in a random order; checks every Update."""

    def __init__(
        self, found: Schedule, arrays: dict[str, torch.Tensor], names: dict[str, Any], order: random.Random
    ) -> None:
        super().__init__(found.function, arrays, names)
        self.schedule, self.order = found, order
        self.verdicts: dict[str, Verdict] = {}

    def nest(self, nest: Nest) -> None:
        self.verdicts = dict(nest.verdicts)
        ranges = [range(self.evaluate(a.start), self.evaluate(a.stop), a.step) for a in nest.axes]
        points = list(itertools.product(*ranges))
        self.order.shuffle(points)
        axes = {a.var for a in nest.axes}
        fresh = [a for a in self.function.arrays if axes & set(a.within)]
        for point in points:
            self.names.update(zip((a.var for a in nest.axes), point, strict=True))
            for array in fresh:
                self.allocate(array)
            self.run(nest.body)

    def loop(self, loop: For) -> None:
        verdict = self.verdicts[loop.var]
        state = {c.name: self.evaluate(c.init) for c in loop.carries}
        fresh = [a for a in self.function.arrays if loop.var in a.within]
        values = list(range(self.evaluate(loop.start), self.evaluate(loop.stop), loop.step))
        commutes = all(u.algebra not in (AFFINE,) and not u.used for u in verdict.updates)
        if verdict.kind == "parallel" and loop.carries:
            raise Mismatch(f"loop {loop.var} is called parallel and carries {[c.name for c in loop.carries]}")
        if verdict.kind == "parallel" or (verdict.kind == "reduction" and commutes):
            self.order.shuffle(values)
        for value in values:
            self.names[loop.var] = value
            self.names.update(state)
            for array in fresh:
                self.allocate(array)
            self.run(loop.body)
            state = {c.name: self.evaluate(c.next) for c in loop.carries}
            for update in verdict.updates:
                self.check(loop, update, state[update.name])
        self.names.update({c.result: state[c.name] for c in loop.carries})

    def check(self, loop: For, update: Update, wanted: Any) -> None:
        """The update is what the loop does to the carry in this iteration."""
        own = next(c for c in loop.carries if c.name == update.name)
        addend = self.evaluate(update.addend)
        before = self.names[update.name]
        if update.algebra == AFFINE:
            assert update.coefficient is not None
            found = self.evaluate(update.coefficient) * before + addend
        else:
            found = OPERATORS[ALGEBRAS[update.algebra].join].evaluate(before, addend)
        if own.type.category == "int":
            bits = 8 * own.type.size
            close = (found - wanted) % (1 << bits) == 0
        elif own.type.category == "bool":
            close = bool(found) == bool(wanted)
        else:
            finite = math.isfinite(found), math.isfinite(wanted)
            close = not any(finite) or all(finite) and abs(found - wanted) <= 1e-9 * (1 + abs(wanted))
        if not close:
            raise Mismatch(f"the update of {update.name} by {update.algebra} gives {found}, the loop {wanted}")


def replay(function: Function, found: Schedule, args: Sequence[Any], order: random.Random) -> tuple[torch.Tensor, ...]:
    """The results of a schedule on these arguments."""
    given = dict(zip(function.parameters, args, strict=True))
    scalars = {s.name for s in function.scalars}
    names: dict[str, Any] = {n: given[n] for n in scalars}
    arrays = {n: v for n, v in given.items() if n not in scalars}
    names |= {s.name: arrays[s.array].shape[s.axis] for s in function.sizes}
    machine = _Replay(found, arrays, names, order)
    for array in found.function.arrays:
        if array.name not in arrays and not array.within:
            machine.allocate(array)
    for nest in found.nests:
        machine.nest(nest)
    return tuple(machine.arrays[r] for r in found.function.results)


# ---------------------------------------------------------------- the check


@dataclass
class Verdicts:
    """What became of the runs of one program."""

    outcome: Outcome
    refusal: WeftError | None = None


def check(program: Program, road: Road) -> Verdicts:
    """Compare weft with the Python at several sizes. Raises Mismatch."""
    sizes = (*_USUAL, _SMALL[program.seed % 4])
    label = f"<program {program.seed} for weft>"
    function = compiled(program.source, label)
    runner = _kernel(function) if road == "kernel" else _scheduled(program, function)
    outcome: Outcome = "skipped"
    for k, size in enumerate(sizes):
        if "p" in program.parameters and size["m"] > 8:
            size = {**size, "m": 8}
        strided = program.seed % 7 == 0
        args = arguments(program, size, k, strided)
        try:
            want: Expected | None = expected(program, args)
        except IndexError:
            want = None
        except (OverflowError, RuntimeError, ValueError, ZeroDivisionError):
            continue  # the Python itself fails: nothing is asked of weft
        own = [_keep_strides(a) for a in args]
        try:
            found = runner(own)
        except OutOfRange as error:
            if want is not None:
                if not _well_formed(error):
                    raise Mismatch(f"an error without location or remedy: {error}") from error
                return Verdicts("refused", error)
            outcome = "equal"
            continue
        except WeftError as error:
            if not _well_formed(error):
                raise Mismatch(f"an error without location or remedy: {type(error).__name__}: {error}") from error
            return Verdicts("refused", error)
        except IndexError as error:
            if road == "schedule" and want is None:
                continue
            raise Mismatch(f"IndexError: {error}") from error
        except Mismatch as error:
            raise Mismatch(f"{error}, at {size}") from error
        except Exception as error:
            raise Mismatch(f"{type(error).__name__}: {error}") from error
        if want is None:
            # torch looks at every subscript of a slice, weft at those of the elements that there are
            if road == "kernel" and not (0 in size.values() and re.search(r"\[[^]]*(:|\.\.\.)", program.source)):
                raise Mismatch(f"the Python raises IndexError at {size}, weft nothing")
            continue
        outcome = "equal"
        wrong = difference(want, found)
        if wrong is not None:
            want = expected(program, args, (77.0, -3.0, float("nan") if program.dtype == "float64" else 0.0, 0.5))
            wrong = difference(want, found)
            if wrong is not None and not (program.dtype == "float64" and ill_conditioned(program, args, want)):
                raise Mismatch(f"{wrong}, at {size}")
    return Verdicts(outcome)


def _keep_strides(a: Any) -> Any:
    if not isinstance(a, torch.Tensor):
        return a
    return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a)


def _well_formed(error: WeftError) -> bool:
    return error.location is not None and bool(error.remedy)


def _kernel(function: Callable[..., Any]) -> Callable[[list[Any]], tuple[torch.Tensor, ...]]:
    try:
        kernel = weft.kernel(function)
    except WeftError as error:
        refusal = error

        def refused(args: list[Any]) -> tuple[torch.Tensor, ...]:
            raise refusal

        return refused
    return lambda args: _outputs(kernel(*args), args)


def _scheduled(program: Program, function: Callable[..., Any]) -> Callable[[list[Any]], tuple[torch.Tensor, ...]]:
    made: list[tuple[Function, Schedule]] = []

    def run(args: list[Any]) -> tuple[torch.Tensor, ...]:
        if not made:
            types = argument_types(read_signature(function), args)
            parsed = parse(function, dict(zip(program.parameters, types, strict=True)))
            made.append((parsed, schedule(parsed)))
        results = replay(*made[0], args, random.Random(program.seed))
        return (*results, *(a for a in args if isinstance(a, torch.Tensor)))

    return run
