"""Linear equations over the integers."""

from __future__ import annotations

from collections.abc import Sequence


def solve(rows: Sequence[Sequence[int]], right: Sequence[int]) -> list[int] | None:
    """Integers x with sum_j rows[i][j] x[j] == right[i] for every i, or None if there are none.

    The columns are brought to echelon form by Euclid's algorithm; `moves` keeps what each is made of.
    """
    width = len(rows[0])
    columns = [list(column) for column in zip(*rows, strict=True)]
    moves = [[int(i == j) for i in range(width)] for j in range(width)]
    left = list(right)
    x = [0] * width
    pivot = 0
    for r in range(len(rows)):
        while len(live := [j for j in range(pivot, width) if columns[j][r]]) > 1:
            least = min(live, key=lambda j: abs(columns[j][r]))
            for j in live:
                if j != least:
                    times = columns[j][r] // columns[least][r]
                    columns[j] = [a - times * b for a, b in zip(columns[j], columns[least], strict=True)]
                    moves[j] = [a - times * b for a, b in zip(moves[j], moves[least], strict=True)]
        if not live:
            if left[r]:
                return None
            continue
        j = live[0]
        columns[pivot], columns[j] = columns[j], columns[pivot]
        moves[pivot], moves[j] = moves[j], moves[pivot]
        times, rest = divmod(left[r], columns[pivot][r])
        if rest:
            return None
        left = [a - times * b for a, b in zip(left, columns[pivot], strict=True)]
        x = [a + times * b for a, b in zip(x, moves[pivot], strict=True)]
        pivot += 1
    return x
