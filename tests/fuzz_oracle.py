"""What a random program must compute: the plain Python is run, and weft is held against it.

Three roads are checked: the compiled kernel; the schedule executed by its meaning with every loop that is called
parallel, and every commutative reduction, run in a random order; and the same with every nest taken apart around the
loops that stay in order.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

import weft
from tests import fuzz_reference
from tests.claims import Element, applied, close, combined, evaluated, possible, probes
from tests.fuzz_mixed import MixedProgram
from tests.fuzz_programs import Program, arguments, compiled
from weft.errors import OutOfRange, WeftError
from weft.language import parse, read_signature
from weft.loops.affine import evaluate
from weft.loops.algebra.table import in_order
from weft.loops.analyze import requirements, schedule
from weft.loops.interpret import _fit, _Machine
from weft.loops.ir import Array, Const, Expr, For, Function
from weft.loops.schedule import Nest, Requirement, Schedule, Update, Verdict, Wrapped
from weft.loops.steps import Apart, Part, expanded, taken_apart
from weft.loops.types import INT64, ScalarType
from weft.loops.wrapping import wrapped
from weft.pytorch.call import argument_types

Outcome = Literal["equal", "refused", "skipped"]
Road = Literal["kernel", "schedule", "parts"]

# Odd sizes, so that one compilation serves them all: what is a multiple of a vector is compiled apart.
_USUAL = ({"n": 5, "m": 5, "d": 3}, {"n": 3, "m": 21, "d": 3})
_SMALL = ({"n": 1, "m": 3, "d": 1}, {"n": 3, "m": 1, "d": 1}, {"n": 1, "m": 0, "d": 1}, {"n": 0, "m": 3, "d": 1})
_RELATIVE = 1e-7
_PROBES = 4


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
            return f"output {k} at {list(at)}: {got[at].item()}, the Python gives {value[at].item()} ({len(wrong)} differ)"
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
    """Executes nests, with everything that the schedule calls free of order in a random order, and holds the claims of every
    update against the numbers: its element does what the iteration does, from this state and from others; what is claimed
    to use no value but the last does nothing else with them; elements combine in any grouping to what the loop does.
    """

    def __init__(self, found: Schedule, arrays: dict[str, torch.Tensor], names: dict[str, Any], order: random.Random) -> None:
        super().__init__(found.function, arrays, names)
        self.schedule, self.order = found, order
        self.verdicts: dict[str, Verdict] = {}
        self.probed: dict[str, int] = {}  # iterations of each loop that were run from other states
        given = (v for v in arrays.values() if v.is_floating_point())
        self.finite = all(bool(v.isfinite().all()) for v in given)

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
        if verdict.kind == "parallel" and loop.carries:
            raise Mismatch(f"loop {loop.var} is called parallel and carries {[c.name for c in loop.carries]}")
        carried = {n for u in verdict.updates for n in u.names}
        if verdict.kind == "parallel" or (verdict.kind == "reduction" and self._commutes(verdict)):
            self.order.shuffle(values)
        elif verdict.kind != "sequential" and carried <= state.keys():
            return self._from_states(loop, values, fresh)
        for value in values:
            self._begin(loop, value, state, fresh)
            state = self._iterate(loop, state)
        self.names.update({c.result: state[c.name] for c in loop.carries})

    def _from_states(self, loop: For, values: list[int], fresh: list[Array]) -> None:
        """The iterations in a random order, each from the state that it begins with in order."""
        verdict = self.verdicts[loop.var]
        dry = _Machine(self.function, {n: v.clone() for n, v in self.arrays.items()}, dict(self.names))
        states = [{c.name: self.evaluate(c.init) for c in loop.carries}]
        for value in values:
            dry.names[loop.var] = value
            dry.names.update(states[-1])
            for array in fresh:
                dry.allocate(array)
            dry.run(loop.body)
            states.append({c.name: dry.evaluate(c.next) for c in loop.carries})
        shuffled = list(enumerate(values))
        self.order.shuffle(shuffled)
        found: dict[int, list[Element | None]] = {}
        for k, value in shuffled:
            self._begin(loop, value, states[k], fresh)
            after = self._iterate(loop, states[k])
            if not all(close(after[n], v, _rough(v)) for n, v in states[k + 1].items()):
                raise Mismatch(f"what {loop.var} carries depends on the order of its iterations: {after}, not {states[k + 1]}")
            found[k] = [self.element(u) if u.parts else None for u in verdict.updates]
        for u, update in enumerate(verdict.updates):
            own = [e for k in range(len(values)) if (e := found[k][u]) is not None]
            if len(own) > 1:
                self.check_grouping(loop, update, own, states[0], states[-1])
        self.names.update({c.result: states[-1][c.name] for c in loop.carries})

    def _begin(self, loop: For, value: int, state: dict[str, Any], fresh: list[Array]) -> None:
        self.names[loop.var] = value
        self.names.update(state)
        for array in fresh:
            self.allocate(array)

    def _iterate(self, loop: For, state: dict[str, Any]) -> dict[str, Any]:
        """The state after an iteration, whose updates are checked."""
        updates = self.verdicts[loop.var].updates
        for update in updates:
            if self.probed.get(loop.var, 0) < _PROBES and self.order.random() < 0.4:
                self.probed[loop.var] = self.probed.get(loop.var, 0) + 1
                self.probe(loop, update, state)
        self.run(loop.body)
        after = {c.name: self.evaluate(c.next) for c in loop.carries}
        for update in updates:
            if update.parts:
                self.check(loop, update, [after[n] for n in update.names])
        return after

    def _commutes(self, verdict: Verdict) -> bool:
        """Whether the claim is that any order will do. A cascade's does for finite numbers."""
        repaired = any(u.repair for u in verdict.updates)
        return (self.finite or not repaired) and not any(
            u.used or (in_order(u.algebra) and not u.repair) or (u.feeds and not repaired) for u in verdict.updates
        )

    def element(self, update: Update) -> Element:
        """The element of the iteration that was just run."""
        lazy = [_Lazy(self, e).value for e in update.parts]
        return evaluated(update.algebra, len(update.names), lazy)

    def check(self, loop: For, update: Update, wanted: list[Any]) -> None:
        """The update is what the loop does to the carries in this iteration."""
        before = [self.names[n] for n in update.names]
        got = applied(update.algebra, before, self.element(update), _type(loop, update))
        for name, found, right in zip(update.names, got, wanted, strict=True):
            if not close(found, right):
                raise Mismatch(f"the update of {name} by {update.algebra} gives {found}, the loop {right}")

    def check_grouping(
        self, loop: For, update: Update, elements: list[Element], start: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """Elements of neighbours, combined in any order, take the state before the loop to the one after it."""
        type_ = _type(loop, update)
        seen = [v for e in elements for v in e if isinstance(v, float)]
        if not all(map(math.isfinite, seen)):
            return
        while len(elements) > 1:
            k = self.order.randrange(len(elements) - 1)
            elements[k : k + 2] = [combined(update.algebra, elements[k], elements[k + 1], type_)]
        found = applied(update.algebra, [start[n] for n in update.names], elements[0], type_)
        scale = max((abs(v) for e in (seen, elements[0]) for v in e if isinstance(v, float)), default=0.0)
        for name, got in zip(update.names, found, strict=True):
            if not close(got, state[name], 1e3 * scale):
                raise Mismatch(f"the elements of {name} by {update.algebra} combine to {got}, the loop gives {state[name]}")

    # ---- one iteration from several states

    def probe(self, loop: For, update: Update, state: dict[str, Any]) -> None:
        """The iteration that begins now, from other states: the same element, or one that there can be; nothing else that
        differs, where only the last value is said to be used.
        """
        arrays = [n.removesuffix("[...]") for n in update.names if n not in state]
        if arrays and len(arrays) != len(update.names):
            return
        type_ = self.function.array(arrays[0]).dtype if arrays else _type(loop, update)
        own = [self.arrays[a].clone() for a in arrays]
        before = [[v.clone() for v in own] if arrays else [state[n] for n in update.names]]
        given = [0 if type_.category == "int" else 0.0] * len(update.names) if arrays else before[0]
        types = [type_ if arrays else next(c.type for c in loop.carries if c.name == n) for n in update.names]
        for probed in probes(update.algebra, given, type_):
            probed = [_fit(p, t) for p, t in zip(probed, types, strict=True)]
            before.append([torch.full_like(v, p) for v, p in zip(own, probed, strict=True)] if arrays else probed)
        runs = [self._run_from(loop, update, arrays, b) for b in before]
        if runs[0] is None or runs.count(None):
            return  # it leaves an array, from that state
        done = [r for r in runs if r is not None]
        element = done[0].element
        for b, r in zip(before[1:], done[1:], strict=True):
            if element is not None:
                wanted = applied(update.algebra, b, element, type_)
                if not all(close(x, y, 10.0) for x, y in zip(r.after, wanted, strict=True)):
                    raise Mismatch(f"from {b}, {update.names} by {update.algebra} become {r.after}, the element gives {wanted}")
            if not (update.used or update.feeds) and not all(map(_alike, r.others, done[0].others)):
                raise Mismatch(f"values of {update.names} are used, and not the last one alone")
            if not update.used and not _same_arrays(r.arrays, done[0].arrays):
                raise Mismatch(f"values of {update.names} go into arrays, and not the last one alone")
        if element is None:
            befores, afters = before[1:], [r.after for r in done[1:]]
            alone = [(befores, afters)]
            if arrays:  # each of their elements by itself
                alone = [(_element(befores, i), _element(afters, i)) for i in range(own[0].numel())]
            for b, a in alone:
                if not possible(update.algebra, b, a, type_):
                    raise Mismatch(f"{update.names} become {a} from {b}, which is no {update.algebra}")

    def _run_from(self, loop: For, update: Update, arrays: list[str], state: list[Any]) -> _Run | None:
        """The iteration in order, from this state; None where it leaves an array."""
        names = dict(self.names)
        copies = {n: v.clone() for n, v in self.arrays.items()}
        if arrays:
            for n, v in zip(arrays, state, strict=True):
                copies[n].copy_(v)
        else:
            names.update(zip(update.names, state, strict=True))
        machine = _Machine(self.function, copies, names)
        try:
            machine.run(loop.body)
            next_ = {c.name: machine.evaluate(c.next) for c in loop.carries}
            lazy = [_Lazy(machine, e).value for e in update.parts]
            element = evaluated(update.algebra, len(update.names), lazy) if lazy else None
        except (IndexError, ArithmeticError):  # a state that the loop never has may be none that it can go on from
            return None
        after = [copies[n] for n in arrays] or [next_[n] for n in update.names]
        others = tuple(v for n, v in next_.items() if n not in update.names)
        return _Run(after, others, {n: v for n, v in copies.items() if n not in arrays}, element)


@dataclass
class _Run:
    """An iteration from some state: what its values became, and the others that the loop carries, the arrays, its element."""

    after: list[Any]
    others: tuple[Any, ...]
    arrays: dict[str, torch.Tensor]
    element: Element | None


def _element(states: list[list[torch.Tensor]], at: int) -> list[list[Any]]:
    """One element of each array of each state."""
    return [[array.reshape(-1)[at].item() for array in state] for state in states]


def _same_arrays(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(bool(_same(a[n], b[n]).all()) for n in a)


def _rough(value: Any) -> float:
    """How much a number may differ that loops inside have added up in another order, in what `close` counts in."""
    return 1e3 * abs(value) if isinstance(value, float) and math.isfinite(value) else 0.0


def _alike(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


def _type(loop: For, update: Update) -> ScalarType:
    return next(c.type for c in loop.carries if c.name == update.name)


class _Lazy:
    """A part of an element, evaluated where it is needed: the parts that are not may be what no one can compute."""

    def __init__(self, machine: _Machine, expr: Expr) -> None:
        self.value = lambda: machine.evaluate(expr)


class Parts:
    """Nests taken apart, with the schedules of their parts; each is made once."""

    def __init__(self) -> None:
        self.made: dict[int, tuple[Nest, Apart | None, list[Schedule]]] = {}

    def of(self, function: Function, nest: Nest) -> tuple[Apart | None, list[Schedule]]:
        if id(nest) not in self.made:
            self.made[id(nest)] = nest, None, []
            for take in (expanded, taken_apart):
                apart = take(function, nest)
                schedules = [] if apart is None else [schedule(p.function) for p in apart.parts]
                loops = apart is not None and any(p.loop is not None for p in apart.parts)
                if loops or sum(len(s.nests) for s in schedules) > 1:
                    self.made[id(nest)] = nest, apart, schedules
                    break
        return self.made[id(nest)][1:]


def _in_parts(machine: _Replay, nest: Nest, parts: Parts, depth: int = 4) -> None:
    """A nest, taken apart where it can be, and so its parts."""
    apart, schedules = parts.of(machine.function, nest) if depth else (None, [])
    if apart is None:
        machine.nest(nest)
        return
    for array in apart.memory:  # of axes that have no points too
        shape = tuple(Const(max(0, machine.evaluate(e)), INT64) for e in array.shape)
        machine.allocate(replace(array, shape=shape))

    def run(part: Part, found: Schedule) -> None:
        inside = _Replay(found, machine.arrays, machine.names, machine.order)
        for array in found.function.arrays:
            if array.role == "local" and not array.within:
                inside.allocate(array)
        if part.when is None or inside.evaluate(part.when):
            for own in found.nests:
                _in_parts(inside, own, parts, depth - 1)

    together = itertools.groupby(zip(apart.parts, schedules, strict=True), lambda item: item[0].loop)
    for loop, items in ((loop, list(items)) for loop, items in together):
        values = [0] if loop is None else range(machine.evaluate(loop.start), machine.evaluate(loop.stop), loop.step)
        for value in values:
            if loop is not None:
                machine.names[loop.var] = value
            for part, found in items:
                run(part, found)


def computed(function: Function, names: Mapping[str, Any]) -> dict[str, int]:
    """The numbers that a call computes of sizes and arguments."""
    known = dict(names)
    for s in function.scalars:
        if s.value is not None:
            known[s.name] = evaluate(s.value, known)
    return known


def replay(
    function: Function, found: Schedule, args: Sequence[Any], order: random.Random, parts: Parts | None = None
) -> tuple[torch.Tensor, ...]:
    """The results of a schedule on these arguments. parts: its nests are taken apart."""
    given = dict(zip(function.parameters, args, strict=True))
    scalars = {s.name for s in function.scalars if s.value is None}
    names: dict[str, Any] = {n: given[n] for n in scalars}
    arrays = {n: v for n, v in given.items() if n not in scalars}
    names |= {s.name: arrays[s.array].shape[s.axis] for s in function.sizes}
    names |= computed(function, names)
    machine = _Replay(found, arrays, names, order)
    for array in found.function.arrays:
        if array.name not in arrays and not array.within:
            machine.allocate(array)
    for nest in found.nests:
        machine.nest(nest) if parts is None else _in_parts(machine, nest, parts)
    return tuple(machine.arrays[r] for r in found.function.results)


# ---------------------------------------------------------------- the check


@dataclass
class Verdicts:
    """What became of the runs of one program."""

    outcome: Outcome
    refusal: WeftError | None = None


def check(program: Program, road: Road, device: str = "cpu") -> Verdicts:
    """Compare weft with the Python at several sizes. Raises Mismatch."""
    sizes = (*_USUAL, _SMALL[program.seed % 4])
    label = f"<program {program.seed} for weft>"
    function = compiled(program.source, label)
    if isinstance(program, MixedProgram):
        return _check_mixed(program, function, road, device)
    runner = _kernel(function, device) if road == "kernel" else _scheduled(program, function, road)
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
            if device != "cpu":
                continue  # the trap that there might be ends all that the process does on the device
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
            if road != "kernel" and want is None:
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


def _check_mixed(program: MixedProgram, function: Callable[..., Any], road: Road, device: str) -> Verdicts:
    sizes = (*_USUAL, _SMALL[program.seed // 2 % 4])
    if road == "kernel":
        try:
            kernel = weft.kernel(function)
        except WeftError as error:
            return Verdicts("refused", error)

        def runner(args: list[Any]) -> tuple[torch.Tensor, ...]:
            outputs = _outputs(kernel(*args), args)
            return tuple(t.cpu() if isinstance(t, torch.Tensor) else fuzz_reference.number(t) for t in outputs)

    else:
        if any(i.storage.endswith("same") for i in program.inputs) or re.search(r"range\([^:]*, q", program.source):
            return Verdicts("skipped")  # calls with such arguments, or such steps, are other programs
        runner = _scheduled(program, function, road)

    wrong, refusal = fuzz_reference.check(program, sizes, runner, device, road != "kernel")
    if wrong and wrong != "skipped":
        raise Mismatch(wrong)
    return Verdicts("refused", refusal) if refusal is not None else Verdicts("skipped" if wrong else "equal")


def _keep_strides(a: Any) -> Any:
    if not isinstance(a, torch.Tensor):
        return a
    return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a)


def _well_formed(error: WeftError) -> bool:
    return error.location is not None and bool(error.remedy)


def _kernel(function: Callable[..., Any], device: str) -> Callable[[list[Any]], tuple[torch.Tensor, ...]]:
    try:
        kernel = weft.kernel(function)
    except WeftError as error:
        refusal = error

        def refused(args: list[Any]) -> tuple[torch.Tensor, ...]:
            raise refusal

        return refused

    def run(args: list[Any]) -> tuple[torch.Tensor, ...]:
        own = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
        return tuple(t.cpu() for t in _outputs(kernel(*own), own))

    return run


@dataclass(frozen=True)
class _Analysed:
    """A program with the subscripts of some axes that are below 0 counted from the end, and when others are outside."""

    function: Function
    schedule: Schedule
    outside: tuple[Requirement, ...]

    @staticmethod
    def of(parsed: Function, wraps: Wrapped) -> _Analysed:
        function = wrapped(parsed, wraps)
        return _Analysed(function, schedule(function), requirements(function))


def _fails(condition: str, names: Mapping[str, Any]) -> bool:
    return bool(eval(condition, {"floord": lambda a, b: a // b, "min": min, "max": max}, dict(names)))


def _wraps(outside: Sequence[Requirement], names: Mapping[str, Any]) -> Wrapped:
    """The axes in which subscripts are below 0 for these sizes, and otherwise inside."""
    doubtful = [r for r in outside if _fails(r.condition, names)]
    return frozenset((r.array, r.axis) for r in doubtful if r.beyond is not None and not _fails(r.beyond, names))


def _scheduled(program: Program, function: Callable[..., Any], road: Road) -> Callable[[list[Any]], tuple[torch.Tensor, ...]]:
    made: dict[Wrapped, _Analysed] = {}
    parsed: list[Function] = []
    parts = Parts() if road == "parts" else None

    def analysed(wraps: Wrapped) -> _Analysed:
        if wraps not in made:
            made[wraps] = _Analysed.of(parsed[0], wraps)
        return made[wraps]

    def run(args: list[Any]) -> tuple[torch.Tensor, ...]:
        given = dict(zip(program.parameters, args, strict=True))
        if not parsed:
            types = argument_types(read_signature(function), args)
            parsed.append(parse(function, dict(zip(program.parameters, types, strict=True))))
        names = {n: v for n, v in given.items() if not isinstance(v, torch.Tensor)}
        names |= {s.name: given[s.array].shape[s.axis] for s in parsed[0].sizes}
        names |= computed(parsed[0], names)
        known = analysed(frozenset())
        wraps = _wraps(known.outside, names)
        if wraps:
            known = analysed(wraps)
        for r in known.outside:
            if _fails(r.condition, names):
                raise OutOfRange(f"{r.array} is left at {r.index}", location=r.location, remedy="change the loop's range")
        results = replay(known.function, known.schedule, args, random.Random(program.seed), parts)
        return (*results, *(a for a in args if isinstance(a, torch.Tensor)))

    return run
