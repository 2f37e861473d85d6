"""Every composition of small flat layouts, each checked by evaluation: `weft bench layout_universe`.

Left layouts have up to 3 modes, right ones up to 2, of sizes 2, 3, 4 and strides 0, 1, 2, 3, 4, 6: 2,111,508 pairs.
A second universe has sizes 2, 4 and strides 0, 1, 2, 4, 8, where right sides overlap. A result must have the right
values, size and shape; a refusal must show a coordinate that fails, and there must be no answer. The oracle that says
whether there is one knows nothing of weft: it tries all factorisations of each mode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product as choices
from typing import NamedTuple

from rich.progress import Progress

from bench.harness import Options, Row
from weft.layout import Layout, LayoutError, composition

CPU_ONLY = True

Flat = tuple[tuple[int, ...], tuple[int, ...]]


class Universe(NamedTuple):
    """Flat layouts of up to `left` and up to `right` modes with these sizes and strides."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    left: int = 3
    right: int = 2

    def layouts(self, modes: int) -> list[Flat]:
        return [
            (shape, stride)
            for n in range(1, modes + 1)
            for shape in choices(self.sizes, repeat=n)
            for stride in choices(self.strides, repeat=n)
        ]


UNIVERSES = (
    Universe("small", (2, 3, 4), (0, 1, 2, 3, 4, 6)),
    Universe("powers of two", (2, 4), (0, 1, 2, 4, 8)),
)


@dataclass
class Counts:
    """right: a layout with the right values, size and shape. refused: rightly, with a witness. The rest must be 0."""

    pairs: int = 0
    right: int = 0
    refused: int = 0
    wrong_value: int = 0
    wrong_size: int = 0
    refused_with_an_answer: int = 0
    witness_that_holds: int = 0

    @property
    def faults(self) -> int:
        return self.wrong_value + self.wrong_size + self.witness_that_holds


def run(options: Options) -> list[Row]:
    """One row a universe: its counts, and the time it took. Raises AssertionError where anything is wrong."""
    rows = []
    with Progress(transient=True) as progress:
        for universe in UNIVERSES:
            every = 97 if options.quick else 1
            total = len(universe.layouts(universe.left)) * len(universe.layouts(universe.right)) // every
            task = progress.add_task(f"universe of {universe.name}", total=total)
            start = time.perf_counter()
            counts = count(universe, every, lambda n, task=task: progress.advance(task, n))  # type: ignore[misc]
            elapsed = time.perf_counter() - start
            case = {"universe": universe.name, **{name: value for name, value in vars(counts).items()}}
            rows.append(Row("layout_universe", case, 1e3 * elapsed))
            assert not counts.faults, case
    return rows


def count(universe: Universe, every: int = 1, advance: Callable[[int], object] = lambda n: None) -> Counts:
    """The counts over every `every`-th pair of the universe."""
    counts = Counts()
    reported = 0
    for a, b in _pairs(universe, every):
        check(a, b, counts)
        if counts.pairs - reported == 4096:
            advance(4096)
            reported = counts.pairs
    return counts


def check(a: Flat, b: Flat, counts: Counts) -> None:
    """Compose one pair and enter what came of it."""
    counts.pairs += 1
    indices = _values(*b)
    truth = [evaluate(a, i) for i in indices]
    try:
        result = composition(Layout(*a), Layout(*b))
    except LayoutError as error:
        if _answer_exists(a, b, truth):
            counts.refused_with_an_answer += 1
        else:
            counts.refused += 1
        counts.witness_that_holds += not _fails(a, b, error)
        return
    if len(result.shape) != len(b[0]) or any(Layout(s).size() != x for s, x in zip(result.shape, b[0], strict=True)):
        counts.wrong_size += 1
    elif _values(result.flat_shape, result.flat_stride) != truth:
        counts.wrong_value += 1
    else:
        counts.right += 1


def evaluate(layout: Flat, index: int) -> int:
    """The value at an index, straight from the definition: the last mode takes what is left over."""
    shape, stride = layout
    value = 0
    for size, step in zip(shape[:-1], stride[:-1], strict=True):
        index, c = divmod(index, size)
        value += c * step
    return value + index * stride[-1]


def _pairs(universe: Universe, every: int) -> Iterator[tuple[Flat, Flat]]:
    left, right = universe.layouts(universe.left), universe.layouts(universe.right)
    for k in range(0, len(left) * len(right), every):
        yield left[k // len(right)], right[k % len(right)]


def _values(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    values = [0]
    for size, step in zip(shape, stride, strict=True):
        values = [v + k * step for k in range(size) for v in values]
    return values


def _answer_exists(a: Flat, b: Flat, truth: list[int]) -> bool:
    """Whether some layout whose shape refines b's has these values."""
    shape = b[0]
    alone = []
    inner = 1
    for size in shape:
        alone.append([truth[inner * c] for c in range(size)])
        inner *= size
    if not all(map(_is_layout, alone)):
        return False
    return all(value == sum(alone[m][c] for m, c in enumerate(_digits(i, shape))) for i, value in enumerate(truth))


def _is_layout(values: list[int]) -> bool:
    return any(
        all(values[i] == sum(c * values[p] for c, p in zip(_digits(i, sizes), _prefixes(sizes), strict=True))
            for i in range(len(values)))
        for sizes in _factorisations(len(values))
    )  # fmt: skip


def _factorisations(n: int) -> list[tuple[int, ...]]:
    """All ordered factorisations into factors above 1."""
    return [(n,)] + [(f, *rest) for f in range(2, n) if n % f == 0 for rest in _factorisations(n // f)]


def _prefixes(sizes: tuple[int, ...]) -> list[int]:
    prefixes = [1]
    for size in sizes[:-1]:
        prefixes.append(prefixes[-1] * size)
    return prefixes


def _digits(index: int, sizes: tuple[int, ...]) -> list[int]:
    digits = []
    for size in sizes:
        index, c = divmod(index, size)
        digits.append(c)
    return digits


def _fails(a: Flat, b: Flat, error: LayoutError) -> bool:
    """Whether the witness really fails: `expected` is the value there, and what the modes give is not.

    What they give is the sum over the modes; along one mode, the run of its first steps goes on from what came before.
    """
    shape, stride = b
    witness = error.witness
    if type(witness) is not tuple or not all(0 <= c < s for c, s in zip(witness, shape, strict=True)):
        return False
    value = evaluate(a, sum(c * w for c, w in zip(witness, stride, strict=True)))
    if value != error.expected or value == error.found:
        return False
    moved = [m for m, c in enumerate(witness) if c]
    if len(moved) > 1:
        return bool(error.found == sum(evaluate(a, c * w) for c, w in zip(witness, stride, strict=True)))
    (m,) = moved
    return _breaks_a_run([evaluate(a, c * stride[m]) for c in range(shape[m])], witness[m], error.found)


def _breaks_a_run(values: list[int], c: int, found: int) -> bool:
    """Whether every layout of so many values, right before c, gives `found` at c.

    The first run of equal steps must be its first size: it must divide the whole, and be repeated at its multiples.
    Then the same holds of the values at those.
    """
    while len(values) > 1:
        run = next((i for i in range(2, len(values)) if values[i] != i * values[1]), len(values))
        if len(values) % run:
            return c == run and found == run * values[1]
        if c % run:
            return found == values[c - c % run] + c % run * values[1]
        values, c = values[::run], c // run
    return False
