"""Vectors, spaces and maps over F2, the field of two elements: a vector is an int, bit k its k-th coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def reduce(vector: int, echelon: Iterable[int]) -> int:
    """What is left of a vector modulo a space; echelon: its vectors, no leading bit twice, in the order they came."""
    for e in echelon:
        if vector ^ e < vector:
            vector ^= e
    return vector


def echelon(vectors: Iterable[int]) -> list[int]:
    """A basis of the space they span, leading bits descending, each leading bit in one vector alone."""
    basis: list[int] = []
    for v in vectors:
        for e in basis:
            v = min(v, v ^ e)
        if v:
            basis = [min(e, e ^ v) for e in basis]
            basis.append(v)
            basis.sort(reverse=True)
    return basis


def rank(vectors: Iterable[int]) -> int:
    """The dimension of the space they span."""
    basis: list[int] = []
    for v in vectors:
        for e in basis:
            if v ^ e < v:
                v ^= e
        if v:
            basis.append(v)
    return len(basis)


def extension(basis: Iterable[int], vectors: Iterable[int]) -> list[int]:
    """Those of the vectors, in order, that are independent of the basis and of those before them."""
    space = echelon(basis)
    kept = []
    for v in vectors:
        if reduce(v, space):
            kept.append(v)
            space = echelon([*space, v])
    return kept


def contains(space: Iterable[int], vector: int) -> bool:
    return reduce(vector, echelon(space)) == 0


def combination(vectors: Sequence[int], target: int) -> int | None:
    """A mask of vectors whose sum is the target, or None if there is none. Earlier vectors are preferred."""
    chosen = 0
    for e, m in sorted(_eliminated(vectors)[0], reverse=True):
        if target ^ e < target:
            target, chosen = target ^ e, chosen ^ m
    return None if target else chosen


def kernel(vectors: Sequence[int]) -> list[int]:
    """A basis of the masks of vectors whose sum is zero."""
    return _eliminated(vectors)[1]


def _eliminated(vectors: Sequence[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """A basis of the space of vectors, each with the mask of those whose sum it is; the masks of those whose sum is zero."""
    basis: list[tuple[int, int]] = []
    null = []
    for k, v in enumerate(vectors):
        mask = 1 << k
        for e, m in basis:
            if v ^ e < v:
                v, mask = v ^ e, mask ^ m
        if v:
            basis.append((v, mask))
        else:
            null.append(mask)
    return basis, null


def intersection(a: Iterable[int], b: Iterable[int]) -> list[int]:
    """A basis of the vectors in both spaces."""
    first, second = echelon(a), echelon(b)
    return echelon(apply(first, mask & ((1 << len(first)) - 1)) for mask in kernel([*first, *second]))


def apply(bases: Sequence[int], x: int) -> int:
    """The sum of the bases at the bits of x: the map whose columns they are."""
    total = 0
    while x:
        low = x & -x
        total ^= bases[low.bit_length() - 1]
        x ^= low
    return total


def common_complement(x: Iterable[int], y: Iterable[int], dimension: int, codimension: int) -> list[int]:
    """A basis of a space of this codimension that meets both given spaces in zero alone.

    There is one whenever neither space has more than `codimension` dimensions: grown to exactly that many, let u_i and
    v_i extend their intersection to the one and the other; the sums u_i + v_i, with whatever lies outside both, do.
    """
    units = [1 << k for k in range(dimension)]
    x, y = echelon(x), echelon(y)
    # Grow the two alike where possible, so that their intersection grows with them.
    x = x + extension(x, [*y, *units])[: codimension - len(x)]
    y = y + extension(y, [*x, *units])[: codimension - len(y)]
    both = intersection(x, y)
    outside = extension([*x, *y], units)
    sums = [u ^ v for u, v in zip(extension(both, x), extension(both, y), strict=True)]
    return echelon([*outside, *sums])
