"""The plan of products of a few rows with many columns: what columns are made of is read once, as fast as memory gives it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from weft.graph.products import Products, exact_type
from weft.loops.ir import Function
from weft.loops.types import FLOAT32
from weft.plan.arguments import Facts
from weft.plan.fold import PACKET_BYTES, is_run, power_of_two
from weft.plan.machine import Machine
from weft.plan.product import FRAGMENT_ROWS, QUAD, ProductPlan, Staged, operand_read, runs_along, shared_bytes, streamed_read

# Rows at the most; columns and points at the least. Of fewer columns, by matrix instructions: how many at the least, and of how
# many points; of more, blocks that are no cluster take parts.
MOST_ROWS, FEWEST_COLUMNS, FEWEST_POINTS = 16, 64, 128
LEAST_COLUMNS, OF_POINTS = 8, (1024, 8192)
# Neighbours of a packet at the most, points of columns that are taken in packets along them.
MOST_VECTOR, POINTS_OF_COLUMNS = 8, 4
# Of a thread: columns of which it takes packets along the points, by matrix instructions and by multiply-adds; words of sums;
# bytes in flight. Warps of a block, bytes of its shared memory, blocks of a multiprocessor at the least.
COLUMNS_OF_POINTS, MOST_SUMS, BYTES_AHEAD = {"mma": 2, "fma": 4}, 64, 128
MOST_WARPS, MOST_SHARED, BLOCKS = 8, 48 * 1024, 1


def few_rows(
    function: Function, found: Products, plain: ProductPlan, facts: Facts, extents: Mapping[str, int], machine: Machine
) -> tuple[ProductPlan, int] | None:
    """The plan, and its blocks; None where rows are many, or columns lie otherwise."""
    groups = (found.batch, found.rows, found.columns, found.over)
    batch, rows, columns, points = (math.prod(extents[a] for a in axes) for axes in groups)
    if rows > MOST_ROWS or points < FEWEST_POINTS or len(found.over) > 1 or len(found.columns) > 1:
        return None
    reads = [streamed_read(found, o) for o in found.right]
    lanes = found.columns[0], found.over[0]
    along = [all(r is not None and runs_along(found, r, axis, facts) for r in reads) for axis in lanes]
    if not any(along):
        return None
    types = {exact_type(function, found, o) for o in found.operands}
    exact = len(types) == 1 and None not in types and all(found.neutral(f) and f.types[0] == FLOAT32 for f in found.folds)
    engine: Literal["mma", "fma"] = "mma" if exact else "fma"
    if columns < FEWEST_COLUMNS and not (exact and columns >= LEAST_COLUMNS and OF_POINTS[0] <= points <= OF_POINTS[1]):
        return None
    size = max(function.array(read.array).dtype.size for read in reads if read is not None)
    vector = min(MOST_VECTOR, PACKET_BYTES // size)
    if vector < 2:
        return None
    m = -(-rows // FRAGMENT_ROWS) * FRAGMENT_ROWS if exact else power_of_two(rows)
    run, across = (vector, COLUMNS_OF_POINTS[engine]) if along[1] else (POINTS_OF_COLUMNS, vector)
    words = sum(max(4, f.types[0].size) // 4 for f in found.folds)
    while across > 2 and m * across * words // (4 if exact else 1) > MOST_SUMS:
        across //= 2
    while across > 2 and QUAD * 2 * across >= 2 * columns:
        across //= 2
    stages = max(1, BYTES_AHEAD // (run * across * size * len(found.right)))

    def staged(k: int) -> Staged:
        operand, left = found.operands[k], k < len(found.left)
        lane = found.over[0] if along[1] or left else found.columns[0]
        own = run if along[1] or left else across
        read = operand_read(found, operand) if left else streamed_read(found, operand)
        if read is None or not runs_along(found, read, lane, facts):
            return Staged(along_points=True, vector=1, aligned=False)
        whole = is_run(read.array, read.index, lane, facts)
        whole = whole and facts.vector(read.array) >= min(own, PACKET_BYTES // function.array(read.array).dtype.size)
        return Staged(along[1] or left, own, aligned=whole and extents[lane] % own == 0)

    plan = replace(
        plain, tile=(m, QUAD * 2 * across, 0), each=(m, across), engine=engine, stages=stages, streamed=True,
        staged=tuple(map(staged, range(len(found.operands)))),
    )  # fmt: skip
    warps, turn = 1, QUAD * run * stages
    most = MOST_SHARED // shared_bytes(plan, found)
    while 2 * warps <= min(MOST_WARPS, most, points // turn):
        warps *= 2
    blocks, parts = batch * -(-columns // plan.tile[1]), 1
    while blocks * parts < BLOCKS * machine.multiprocessors and parts < machine.cluster and 2 * parts * warps * turn <= points:
        parts *= 2
    plan = replace(plan, tile=(*plan.tile[:2], turn * warps), groups=warps, parts=parts, together=parts > 1)
    return plan, blocks * parts
