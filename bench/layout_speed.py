"""Time of the operations of the layout algebra that a plan is made of, on one core: `weft bench layout_speed`.

Every call gets layouts of its own, made beforehand, so that nothing is remembered from one call to the next; a row is
the median over rounds, with the ceiling in microseconds that the project holds it to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.harness import Options, Row
from weft.layout import Layout, bank_conflicts, composition, convert, logical_divide, shared_atom, zipped_divide

CPU_ONLY = True
CALLS = 500

# name -> (ceiling in microseconds or None, makes the arguments, the operation)
CASES: dict[str, tuple[float | None, Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "composition, 6 modes, permutation": (
        20,
        lambda: (
            Layout((4, 2, 8, 2, 4, 2), (2, 1, 512, 256, 64, 8)),
            Layout((2, 4, 2, 8, 4, 2), (512, 1, 4, 8, 64, 256)),
        ),
        composition,
    ),
    "composition, 6 modes, mixed radix": (
        20,
        lambda: (
            Layout((2, 3, 4, 5, 6, 7), (1, 100, 7, 1000, 3, 50)),
            Layout((6, 2, 2, 10, 3, 7), (1, 6, 12, 24, 240, 720)),
        ),
        composition,
    ),
    "logical_divide by a layout": (
        20,
        lambda: (Layout((8, 8, 8), (64, 1, 8)), Layout((4, 2), (2, 64))),
        logical_divide,
    ),
    "logical_divide by mode": (
        20,
        lambda: (Layout((128, 64), (64, 1)), (Layout(16), Layout(8))),
        logical_divide,
    ),
    "zipped_divide by mode": (None, lambda: (Layout((128, 64), (64, 1)), (16, 8)), zipped_divide),
    "bank count, powers of two": (50, lambda: (Layout((8, 4), (64, 16)), 4, 4), bank_conflicts),
    "bank count, padded": (50, lambda: (Layout((8, 4), (33, 5)), 4), bank_conflicts),
    "bank count, swizzled": (
        50,
        lambda: (composition(shared_atom(128, 16), Layout((8, 4), (1, 64))), 2, 8),
        bank_conflicts,
    ),
    "conversion of registers": (None, lambda: (Layout((32, 4), (4, 1)), Layout((32, 4), (1, 32)), 32), convert),
}


def run(options: Options) -> list[Row]:
    rows = []
    for name, (ceiling, make, operation) in CASES.items():
        microseconds = _median_us(make, operation, rounds=3 if options.quick else 40)
        case = {"operation": name, "us": round(microseconds, 2), "ceiling_us": ceiling}
        rows.append(Row("layout_speed", case, microseconds / 1e3))
    return rows


def _median_us(make: Callable[[], tuple[Any, ...]], operation: Callable[..., Any], rounds: int) -> float:
    operation(*make())
    times = []
    for _ in range(rounds):
        arguments = [make() for _ in range(CALLS)]
        start = time.perf_counter()
        for one in arguments:
            operation(*one)
        times.append((time.perf_counter() - start) / CALLS)
    return 1e6 * median(times)
