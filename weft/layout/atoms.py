"""Matrix instructions as data: which thread holds which element of which fragment.

Every fragment is a layout (thread, value) -> element of its matrix, elements counted with the first index fastest: A is
[m, k], B is [n, k], C is [m, n]. Values are counted in the order of the instruction's registers, the halves of a
register in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.swizzle import AnyLayout, Swizzle, composed

# Bits of an element of the types that the instructions multiply.
BITS: Mapping[str, int] = {"float16": 16, "bfloat16": 16, "tfloat32": 32, "int8": 8, "uint8": 8, "float64": 64}


@dataclass(frozen=True)
class Atom:
    """A matrix multiplication C[m, n] += A[m, k] B[n, k] by `threads` threads.

    a, b, c: the fragments; a or b is None where the instruction reads that matrix from shared memory alone. dtype: of A
    and B; C is float32 (half types may also accumulate in float16, in the same places), int32 of integers, float64 of float64.
    """

    name: str
    dtype: str
    m: int
    n: int
    k: int
    threads: int
    a: Layout | None
    b: Layout | None
    c: Layout


@dataclass(frozen=True)
class MatrixCopy:
    """ldmatrix or stmatrix: 8x8 matrices of 16-bit elements between shared memory and registers of a warp.

    matrices: 1, 2 or 4. rows: the lane whose address is used -> row of the matrices one above the other; each row is 16
    aligned bytes. registers: (lane, value) -> element of [row, column] of those matrices, first index fastest;
    transposed: each matrix is transposed on the way.
    """

    name: str
    matrices: int
    transposed: bool
    rows: Layout
    registers: Layout


# Elements along k that mma.sync takes.
_DEPTHS = {8: (32,), 16: (8, 16), 32: (4, 8), 64: (8,)}


def mma(dtype: str, k: int) -> Atom:
    """mma.sync m16n8k8 or k16 for float16 and bfloat16, k4 or k8 for tfloat32, k32 for bytes, k8 for float64 (before sm_90 as
    four of m8n8k4). Raises LayoutError for others.
    """
    if dtype not in BITS or k not in _DEPTHS[BITS[dtype]]:
        raise LayoutError(
            f"there is no mma.sync m16n8k{k} for {dtype}",
            operation="mma",
            remedy="float16 and bfloat16 have k8 and k16, tfloat32 has k4 and k8, int8 and uint8 k32, float64 k8",
        )
    return Atom(f"mma.sync.m16n8k{k}.{dtype}", dtype, 16, 8, k, 32, _a(dtype, k, 16), _b(dtype, k), _c(8, 16))


def wgmma(dtype: str, n: int) -> Atom:
    """wgmma m64nNk16 (k8 for tfloat32, k32 for bytes) of one warpgroup, A in registers or shared memory, B in shared memory.

    n: a multiple of 8 from 8 to 256; of bytes 8, 24, or a multiple of 16. Raises LayoutError for others.
    """
    bits = BITS.get(dtype, 64)
    if bits == 64 or n % 8 or not 8 <= n <= 256 or (bits == 8 and n % 16 and n not in (8, 24)):
        raise LayoutError(
            f"there is no wgmma of {n} columns for {dtype}",
            operation="wgmma",
            remedy="n is a multiple of 8 from 8 to 256, of bytes 8, 24 or of 16; types have 8, 16 or 32 bits",
        )
    k = 256 // bits
    return Atom(f"wgmma.m64n{n}k{k}.{dtype}", dtype, 64, n, k, 128, _a(dtype, k, 64), None, _c(n, 64))


def ldmatrix(matrices: int, transposed: bool = False) -> MatrixCopy:
    """ldmatrix .x1, .x2 or .x4, with or without .trans. Raises LayoutError for other counts."""
    return _matrix_copy("ldmatrix", matrices, transposed)


def stmatrix(matrices: int, transposed: bool = False) -> MatrixCopy:
    """stmatrix .x1, .x2 or .x4, with or without .trans (sm_90). Raises LayoutError for other counts."""
    return _matrix_copy("stmatrix", matrices, transposed)


def shared_swizzle(swizzle_bytes: int, element_bits: int) -> Swizzle:
    """The swizzle of offsets in elements that wgmma and TMA call 32, 64 or 128 bytes; 0 for none.

    It XORs the 16-byte chunk within `swizzle_bytes` with the 128-byte line: bits 4... of the byte address with bits
    7... . Raises LayoutError for other sizes and for elements that are no power of two from 8 to 128 bits.
    """
    bits = {0: 0, 32: 1, 64: 2, 128: 3}.get(swizzle_bytes)
    if bits is None or element_bits not in (8, 16, 32, 64, 128):
        raise LayoutError(
            f"there is no swizzle of {swizzle_bytes} bytes for elements of {element_bits} bits",
            operation="shared_swizzle",
            remedy="swizzles are of 0, 32, 64 or 128 bytes",
        )
    return Swizzle(bits, 5 - (element_bits // 8).bit_length(), 3)


def shared_atom(swizzle_bytes: int, element_bits: int, *, contiguous: str = "k") -> AnyLayout:
    """The smallest tile that a swizzle repeats in: 8 lines of `swizzle_bytes` (16 for none), as [rows, k].

    contiguous: "k" where k runs along the lines (wgmma's K-major), "rows" where the rows do (MN-major, 16-bit types
    alone). Raises LayoutError for other sizes.
    """
    swizzle = shared_swizzle(swizzle_bytes, element_bits)
    width = max(16, swizzle_bytes) * 8 // element_bits
    if contiguous == "k":
        return composed(swizzle, 0, Layout((8, width), (width, 1)))
    if contiguous == "rows" and element_bits == 16:
        return composed(swizzle, 0, Layout((width, 8), (1, width)))
    raise LayoutError(
        f"there is no tile of {element_bits}-bit elements contiguous along {contiguous!r}",
        operation="shared_atom",
        remedy='say contiguous="k", or "rows" for 16-bit elements',
    )


@dataclass(frozen=True)
class Arrangement:
    """The threads of a tile: warps (warpgroups for wgmma) along m and n.

    calls: of the atom, by each warp. moved: bytes of A and B that all warps read into fragments. threads: (m, n) of a
    warp -> its number.
    """

    atom: Atom
    warps: tuple[int, int]
    calls: int
    moved: int

    @property
    def threads(self) -> Layout:
        return Layout(self.warps)


def arrange(m: int, n: int, k: int, atom: Atom, warps: int) -> Arrangement:
    """How to lay `warps` warps over a tile C[m, n] += A[m, k] B[n, k]: fewest calls, then the least data moved.

    A call that runs over the edge of the tile counts as a whole one. Of equals, the one with more warps along m.
    Raises LayoutError for sizes below 1.
    """
    if min(m, n, k, warps) < 1:
        raise LayoutError(f"there is no tile {m} x {n} x {k} for {warps} warps", operation="arrange")
    element = BITS[atom.dtype] // 8
    choices = []
    for along_m in range(warps, 0, -1):
        if warps % along_m == 0:
            along_n = warps // along_m
            calls = _up(m, along_m * atom.m) * _up(n, along_n * atom.n) * _up(k, atom.k)
            moved = element * k * (m * along_n + n * along_m)
            choices.append(Arrangement(atom, (along_m, along_n), calls, moved))
    return min(choices, key=lambda choice: (choice.calls, choice.moved))


def fragment(atom: Atom, operand: str) -> Layout:
    """The fragment of operand "a", "b" or "c". Raises LayoutError where the instruction has none in registers."""
    found: Any = {"a": atom.a, "b": atom.b, "c": atom.c}.get(operand)
    if found is None:
        raise LayoutError(f"{atom.name} has no operand {operand!r} in registers", operation="fragment")
    return found  # type: ignore[no-any-return]


def _up(x: int, unit: int) -> int:
    return -(-x // unit)


def _warps(rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The mode of the warps: none for one warp, four of 16 rows each for a warpgroup."""
    return ((), ()) if rows == 16 else ((rows // 16,), (16,))


def _packed(dtype: str) -> int:
    """Elements of a register."""
    return max(1, 32 // BITS[dtype])


def _a(dtype: str, k: int, m: int) -> Layout:
    (warps, rows), own = _warps(m), _packed(dtype)
    # Lanes (4 runs of columns, 8 rows); values (a run of columns, 2 halves of rows, what is left of columns).
    if own > 1:
        return Layout(((4, 8, *warps), (own, 2, k // (4 * own))), ((own * m, 1, *rows), (m, 8, 4 * own * m)))
    return Layout(((4, 8, *warps), (2, k // 4)), ((m, 1, *rows), (8, 4 * m)))


def _b(dtype: str, k: int) -> Layout:
    n, own = 8, _packed(dtype)
    if own > 1:
        return Layout(((4, 8), (own, k // (4 * own))), ((own * n, 1), (n, 4 * own * n)))
    return Layout(((4, 8), k // 4), ((n, 1), 4 * n))


def _c(n: int, m: int) -> Layout:
    warps, rows = _warps(m)
    return Layout(((4, 8, *warps), (2, 2, n // 8)), ((2 * m, 1, *rows), (m, 8, 8 * m)))


def _matrix_copy(name: str, matrices: int, transposed: bool) -> MatrixCopy:
    if matrices not in (1, 2, 4):
        raise LayoutError(f"there is no {name}.x{matrices}", operation=name, remedy="matrices come in 1, 2 and 4")
    height = 8 * matrices
    # Lane l holds row l / 4 and columns 2 (l % 4), 2 (l % 4) + 1 of each matrix; transposed, the same of columns.
    row, column = (height, 1) if transposed else (1, height)
    registers = Layout(((4, 8), (2, matrices)), ((2 * column, row), (column, 8)))
    label = f"{name}.x{matrices}" + (".trans" if transposed else "")
    return MatrixCopy(label, matrices, transposed, Layout(height, 1), registers)
