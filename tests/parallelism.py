"""How much of the parallelism that analysis proves is used by kernels for a GPU: the loops that programs leave in order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

import weft
from tests.kernels_of_folds import CASES
from tests.suites.classify import SUITES
from weft.compiler import Analysis, Unused, launches, unused
from weft.kernels import LIBRARY
from weft.loops.affine import evaluate
from weft.plan.facts import Geometry
from weft.pytorch.call import argument_types, bind
from weft.pytorch.executable import adjoint_of
from weft.pytorch.specs import TensorSpec, parse

SIZE = 1024  # of every axis of an argument


def programs() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """(name, kernel, arguments by name) of the suites, of the library, and of the programs whose folds are tested."""
    for suite, cases in SUITES.items():
        for name, case in cases.items():
            yield f"{suite} {name}", weft.kernel(case.function), next(case.arguments(1))
    for name, kernel in LIBRARY.items():
        own = kernel.kernel
        given = {n: _tensor(v) if isinstance(v, TensorSpec | str) else v for n, v in own.example.items()}
        given = {p.name: given.get(p.name, p.default) for p in own.signature.parameters}
        yield f"library {name}", own, given
    for name, (kernel, makes) in CASES.items():
        yield f"folds {name}", kernel, dict(zip(kernel.signature.names, makes[0](), strict=True))


def _tensor(spec: Any) -> torch.Tensor:
    spec = parse(spec) if isinstance(spec, str) else spec
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")


def left_in_order(name: str, kernel: Any, given: dict[str, Any]) -> Iterator[tuple[str, tuple[Unused, ...]]]:
    """The loops that a program leaves in order, and those that its gradient does if it is one of the library."""
    args = tuple(given[n] for n in kernel.signature.names)
    types = argument_types(kernel.signature, args)
    analysis = kernel.specializable.analysis(types, True)
    names = {n: v for n, v in bind(analysis.function, args).names.items()}
    yield name, _left(analysis, names)
    if name.startswith("library"):
        wanted = tuple(n for n in kernel.signature.names if isinstance(given[n], torch.Tensor) and given[n].is_floating_point())
        adjoint = adjoint_of(kernel.program, types, wanted).specializable.analysis((), True)
        yield f"{name} gradient", _left(adjoint, names)


def _left(analysis: Analysis, given: dict[str, Any]) -> tuple[Unused, ...]:
    function = analysis.function
    names = {s.name: given.get(s.name, 1) for s in function.scalars} | {s.name: SIZE for s in function.sizes}
    for s in function.scalars:
        if s.value is not None:
            names[s.name] = evaluate(s.value, names)
    arrays = {}
    for a in function.arrays:
        if a.within:
            continue
        shape = tuple(evaluate(e, names) for e in a.shape)
        strides = torch.empty(shape, device="meta").stride()
        arrays[a.name] = Geometry(a.dtype, shape, strides, 0)
    found: list[Unused] = []
    for k in range(len(analysis.schedule.nests)):
        for launch in launches(analysis, k, arrays, names):
            found += unused(launch, names)
    return tuple(found)


def lines() -> list[str]:
    """A line for each program: its name, and the loops that it leaves in order, with the reason; last, for each group of
    programs how many use all.
    """
    found, count = [], Counter[tuple[str, bool]]()
    for program in programs():
        for name, left in left_in_order(*program):
            count[name.split()[0], not left] += 1
            why: dict[str, list[str]] = {}
            for u in left:
                why.setdefault(u.why, []).append(f"{u.loop.var} ({u.loop.kind})")
            found.append(name)
            found += [f"    {', '.join(loops)}: {text}" for text, loops in why.items()]
    groups = dict.fromkeys(group for group, _ in count)
    return [*found, *(f"all: {count[g, True]} of {count[g, True] + count[g, False]} of {g}" for g in groups)]


def whole(lines: list[str]) -> set[str]:
    """The programs that use all, by the lines of `lines`."""
    programs = [(line, after) for line, after in itertools.pairwise([*lines, ""]) if not line.startswith((" ", "all:"))]
    return {line for line, after in programs if not after.startswith(" ")}


if __name__ == "__main__":
    print("\n".join(lines()))
