"""`kernel.check`: the CUDA that a call would launch, executed on the CPU and held against the plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from weft.check.found import Comparison, Launched, named_files
from weft.check.limits import TARGETS
from weft.check.report import Report
from weft.errors import NotDifferentiable, TypeMismatch
from weft.pytorch.call import argument_types, plain, wraps_for
from weft.pytorch.deviations import deviations
from weft.pytorch.executable import adjoint_of
from weft.pytorch.inspected import Inspected
from weft.pytorch.inspection import complete
from weft.pytorch.reference import RERUNS, UNITS, compare, reference, reference_gradients, rounded, rounding, wide
from weft.pytorch.simulated import Ran, simulate_call, span
from weft.pytorch.specs import TensorSpec, make_arguments, parse
from weft.runtime import include

_ALIGNMENT = 64  # of PyTorch's CPU memory; a kernel may rely on 32 bytes


def check_call(
    kernel: Inspected,
    args: Sequence[Any],
    *,
    seeds: int,
    arch: str,
    tolerance: float | None,
    gradients: bool,
) -> Report:
    """Check a kernel at tensors, specs and numbers; see `Kernel.check`."""
    if arch not in TARGETS:
        raise TypeMismatch(f"{arch!r} cannot be simulated", remedy=f"use one of {', '.join(TARGETS)}")
    if seeds < 1:
        raise TypeMismatch(f"{seeds} seeds check nothing", remedy="give seeds=1, or more")
    given = [parse(a) if isinstance(a, str) else plain(a) for a in complete(kernel, args)]
    names = [p.name for p in kernel.signature.parameters]
    values = list(make_arguments(dict(zip(names, given, strict=True))).values())
    wanted = _wanted(kernel, names, values) if gradients else ()
    every = range(seeds)

    runs = [simulate_call(kernel.program, [in_memory(a) for a in values], arch, seed, "forward") for seed in every]
    function = runs[0].function
    own = [in_memory(a) for a in values]
    stores = rounding(kernel, own)
    want, who = reference(kernel, function, wide(own), stores)
    reruns = functools.cache(lambda: [reference(kernel, function, rounded(own, k), stores)[0] for k in range(RERUNS)])
    off = functools.cache(lambda: deviations(kernel.program, [in_memory(a) for a in values], UNITS) if stores is None else {})
    comparisons = [
        _compared(n, [run.arrays[n] for run in runs], every, want[n], tolerance, reruns, off, n) for n in runs[0].arrays
    ]
    launches = _merged(runs)
    sources = dict(runs[0].sources)

    if wanted:
        cotangents = _cotangents(runs[0])
        want, gradients_who = reference_gradients(kernel, function, wide(own), cotangents, wanted, stores)
        who += f", gradients with {gradients_who}" if gradients_who != who else ""
        again = functools.cache(
            lambda: [
                reference_gradients(kernel, function, rounded(own, k), cotangents, wanted, stores)[0] for k in range(RERUNS)
            ]
        )
        results = [runs[0].arrays[r] for r in runs[0].results]
        types = argument_types(kernel.signature, own)
        adjoint = adjoint_of(kernel.program, types, wanted, wraps=wraps_for(kernel.specializable, types, own))
        backward = [
            simulate_call(adjoint, [in_memory(a) for a in (*values, *results, *cotangents)], arch, seed, "gradient")
            for seed in every
        ]
        saved = frozenset(adjoint.signature.names[len(values) : len(values) + len(results)])
        off = functools.cache(
            lambda: deviations(adjoint, [*own, *results, *cotangents], UNITS, saved) if stores is None else {}
        )
        for name, made in zip(wanted, backward[0].results, strict=True):
            found = [run.arrays[made] for run in backward]
            of = f"gradient of {name}"
            comparisons.append(_compared(of, found, every, want[name], tolerance, again, off, name, made))
        launches += _merged(backward)
        sources |= backward[0].sources

    return Report(
        kernel=kernel.name,
        arch=arch,
        device=TARGETS[arch].device,
        arguments=tuple(_described(n, v) for n, v in zip(names, values, strict=True)),
        inputs=_inputs(given, bool(wanted)),
        reference=who,
        seeds=tuple(every),
        launches=launches,
        comparisons=tuple(comparisons),
        files=_files(sources, launches),
    )


def _compared(
    name: str,
    made: Sequence[torch.Tensor],
    seeds: Sequence[int],
    want: torch.Tensor,
    tolerance: float | None,
    reruns: Callable[[], list[dict[str, torch.Tensor]]],
    off: Callable[[], dict[str, torch.Tensor]],
    key: str,
    result: str = "",
) -> Comparison:
    """One array against the reference; a tolerance that the user gives is meant as it stands. key: its name in `reruns`;
    result: in `off`, where that is another.
    """
    if tolerance is not None:
        return compare(name, made, seeds, want, tolerance)
    return compare(name, made, seeds, want, None, lambda: [run[key] for run in reruns()], lambda: off().get(result or key))


def in_memory(value: Any, device: str = "cpu") -> Any:
    """A copy of a tensor in memory of its own, with its strides and as well aligned; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    source = value.detach()
    places = span(source)
    past = source.data_ptr() % _ALIGNMENT // source.element_size() if places else 0
    memory = torch.empty(past + places, dtype=source.dtype, device=device)
    if places:
        memory[past:] = source.as_strided((places,), (1,)).resolve_neg()
    return memory.as_strided(source.shape, source.stride(), past)


def _wanted(kernel: Inspected, names: Sequence[str], values: Sequence[Any]) -> tuple[str, ...]:
    """The arguments whose gradients are checked: those that require one, or all of a float dtype where none does."""
    if kernel.signature.written:
        raise NotDifferentiable(
            f"{kernel.name} writes in place, and its gradients are to be checked",
            location=kernel.signature.location,
            evidence=kernel.signature.evidence_of_writes(),
            remedy=f"check it without gradients, or {kernel.signature.without_writes()}",
        )
    floats = [n for n, v in zip(names, values, strict=True) if isinstance(v, torch.Tensor) and v.is_floating_point()]
    asked = [n for n, v in zip(names, values, strict=True) if isinstance(v, torch.Tensor) and v.requires_grad]
    return tuple(asked or floats)


def _cotangents(run: Ran) -> tuple[torch.Tensor, ...]:
    """Random gradients of the float results."""
    generator = torch.Generator().manual_seed(1)
    results = [run.arrays[r] for r in run.results]
    return tuple(TensorSpec.of(r).make(generator=generator) for r in results if r.is_floating_point())


def _merged(runs: Sequence[Ran]) -> tuple[Launched, ...]:
    """The launches of a call, each with its simulations of every seed."""
    return tuple(
        replace(same[0], simulations=tuple(s for launch in same for s in launch.simulations))
        for same in zip(*(run.launches for run in runs), strict=True)
    )


def _described(name: str, value: Any) -> str:
    return f"{name} = {TensorSpec.of(value) if isinstance(value, torch.Tensor) else value}"


def _inputs(given: Sequence[Any], gradients: bool) -> str:
    """How random inputs are made, in words."""
    words = []
    if any(isinstance(g, TensorSpec) for g in given):
        words.append("random inputs: floats normal, integers in [0, 8), bools fair, from seed 0")
    if gradients:
        words.append("random gradients of the results: normal, from seed 1")
    return "; ".join(words)


def _files(sources: dict[str, str], launches: Sequence[Launched]) -> tuple[tuple[str, str], ...]:
    """The texts that a report cites: the user's, and those of weft's headers that it names."""
    files = dict(sources)
    for name in sorted(set(named_files(launches))):
        if name not in files and name.startswith("weft/"):
            homes = (include.HOST_TWINS, include.HEADERS)
            path = next((p for home in homes if (p := home / name.removeprefix("weft/")).is_file()), None)
            if path is not None:
                files[name] = path.read_text()
    return tuple(files.items())

