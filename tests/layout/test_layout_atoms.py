"""The fragments of the matrix instructions, against the formulas of the PTX ISA written out here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.layout import (
    Layout,
    LayoutError,
    Swizzle,
    arrange,
    fragment,
    is_bijective,
    ldmatrix,
    mma,
    shared_atom,
    shared_swizzle,
    stmatrix,
    wgmma,
)

Place = tuple[int, int]


def a_m16n8k8_half(lane: int, i: int) -> Place:
    group, thread = lane >> 2, lane % 4
    return (group if i < 2 else group + 8), thread * 2 + (i & 1)


def b_m16n8k8_half(lane: int, i: int) -> Place:
    return lane % 4 * 2 + i, lane >> 2


def a_m16n8k16_half(lane: int, i: int) -> Place:
    group, thread = lane >> 2, lane % 4
    row = group if i < 2 or 4 <= i < 6 else group + 8
    column = thread * 2 + (i & 1) + (0 if i < 4 else 8)
    return row, column


def b_m16n8k16_half(lane: int, i: int) -> Place:
    return lane % 4 * 2 + (i & 1) + (0 if i < 2 else 8), lane >> 2


def a_m16n8k4_tf32(lane: int, i: int) -> Place:
    return (lane >> 2) + 8 * i, lane % 4


def b_m16n8k4_tf32(lane: int, i: int) -> Place:
    return lane % 4, lane >> 2


def a_m16n8k8_tf32(lane: int, i: int) -> Place:
    row = lane >> 2 if i in (0, 2) else (lane >> 2) + 8
    return row, lane % 4 + (0 if i < 2 else 4)


def b_m16n8k8_tf32(lane: int, i: int) -> Place:
    return lane % 4 + (0 if i == 0 else 4), lane >> 2


def c_m16n8(lane: int, i: int) -> Place:
    return (lane >> 2 if i < 2 else (lane >> 2) + 8), lane % 4 * 2 + (i & 1)


def a_wgmma_half(thread: int, i: int) -> Place:
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    return row, 2 * (thread % 4) + i % 2 + 8 * (i // 4)


def a_wgmma_tf32(thread: int, i: int) -> Place:
    return 16 * (thread // 32) + thread % 32 // 4 + 8 * (i % 2), thread % 4 + 4 * (i // 2)


def c_wgmma(thread: int, i: int) -> Place:
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
    return row, 8 * (i // 4) + 2 * (thread % 4) + i % 2


def is_fragment(
    layout: Layout | None, rows: int, columns: int, threads: int, where: Callable[[int, int], Place]
) -> None:
    assert layout is not None
    values = rows * columns // threads
    assert layout[0].size() == threads and layout[1].size() == values and is_bijective(layout)
    for t in range(threads):
        for v in range(values):
            row, column = where(t, v)
            assert layout(t, v) == row + rows * column, (t, v)


def swapped(where: Callable[[int, int], Place]) -> Callable[[int, int], Place]:
    return lambda t, v: where(t, v)[::-1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mma_of_half_types(dtype: str) -> None:
    for k, a, b in ((8, a_m16n8k8_half, b_m16n8k8_half), (16, a_m16n8k16_half, b_m16n8k16_half)):
        atom = mma(dtype, k)
        is_fragment(atom.a, 16, k, 32, a)
        is_fragment(atom.b, 8, k, 32, swapped(b))
        is_fragment(atom.c, 16, 8, 32, c_m16n8)
        assert (atom.m, atom.n, atom.k, atom.threads) == (16, 8, k, 32)


def test_mma_of_tfloat32() -> None:
    for k, a, b in ((4, a_m16n8k4_tf32, b_m16n8k4_tf32), (8, a_m16n8k8_tf32, b_m16n8k8_tf32)):
        atom = mma("tfloat32", k)
        is_fragment(atom.a, 16, k, 32, a)
        is_fragment(atom.b, 8, k, 32, swapped(b))
        is_fragment(atom.c, 16, 8, 32, c_m16n8)


@pytest.mark.parametrize("n", [8, 16, 64, 96, 192, 256])
def test_wgmma(n: int) -> None:
    atom = wgmma("bfloat16", n)
    is_fragment(atom.a, 64, 16, 128, a_wgmma_half)
    is_fragment(atom.c, 64, n, 128, c_wgmma)
    assert atom.b is None
    is_fragment(wgmma("tfloat32", n).a, 64, 8, 128, a_wgmma_tf32)


@pytest.mark.parametrize("matrices", [1, 2, 4])
@pytest.mark.parametrize("copy", [ldmatrix, stmatrix])
def test_matrix_copies(copy: Callable[..., object], matrices: int) -> None:
    for transposed in (False, True):
        instruction = copy(matrices, transposed)
        height = 8 * matrices
        # Lane 8 j + i gives the address of row i of matrix j.
        assert [instruction.rows(8 * j + i) for j in range(matrices) for i in range(8)] == list(range(height))  # type: ignore[attr-defined]
        for lane in range(32):
            for matrix in range(matrices):
                for half in range(2):
                    row, column = lane // 4, lane % 4 * 2 + half
                    if transposed:
                        row, column = column, row
                    where = instruction.registers((lane, (half, matrix)))  # type: ignore[attr-defined]
                    assert where == 8 * matrix + row + height * column


def test_x4_feeds_an_mma_without_moving_a_value() -> None:
    # The four matrices of a 16 x 16 tile, in the order rows first, are the A fragment of m16n8k16.
    tile = ldmatrix(4).registers
    a = fragment(mma("float16", 16), "a")
    for lane in range(32):
        for v in range(8):
            stacked = tile(lane, v)
            row, column, matrix = stacked % 8, stacked // 32, stacked % 32 // 8
            assert a(lane, v) == row + matrix % 2 * 8 + 16 * (column + matrix // 2 * 8)


@pytest.mark.parametrize(("name", "bits"), [(32, 1), (64, 2), (128, 3)])
def test_shared_swizzles_in_bytes(name: int, bits: int) -> None:
    # Of a byte address, the 16-byte chunk (bits 4 ...) is XORed with the line of 128 bytes (bits 7 ...).
    for element_bits in (8, 16, 32):
        size = element_bits // 8
        swizzle = shared_swizzle(name, element_bits)
        for address in range(0, 2048, size):
            chunk = address >> 7 & (1 << bits) - 1
            assert swizzle(address // size) * size == address ^ chunk << 4
    assert shared_swizzle(name, 8) == Swizzle(bits, 4, 3)


def test_shared_tiles() -> None:
    assert str(shared_atom(128, 16)) == "Swizzle(3,3,3) o 0 o (8,64):(64,1)"
    assert str(shared_atom(64, 16)) == "Swizzle(2,3,3) o 0 o (8,32):(32,1)"
    assert str(shared_atom(0, 16)) == "(8,8):(8,1)"
    assert str(shared_atom(128, 16, contiguous="rows")) == "Swizzle(3,3,3) o 0 o (64,8):(1,64)"
    assert all(is_bijective(shared_atom(s, b)) for s in (0, 32, 64, 128) for b in (8, 16, 32))


def test_arrangements_take_the_fewest_calls_then_the_least_data() -> None:
    atom = mma("float16", 16)
    square = arrange(128, 128, 32, atom, 4)
    assert square.warps == (2, 2) and square.calls == 4 * 8 * 2 and square.moved == 2 * 32 * (128 * 2 + 128 * 2)
    assert arrange(16, 128, 32, atom, 4).warps == (1, 4) and arrange(128, 8, 32, atom, 4).warps == (4, 1)
    assert arrange(64, 256, 16, wgmma("float16", 256), 1).calls == 1
    assert [square.threads(m, n) for n in (0, 1) for m in (0, 1)] == [0, 1, 2, 3]
    for m in (16, 48, 128):
        for n in (8, 40, 256):
            for warps in (1, 2, 3, 4, 8):
                best = arrange(m, n, 16, atom, warps)
                for along_m in range(1, warps + 1):
                    if warps % along_m == 0:
                        along_n = warps // along_m
                        calls = -(-m // (16 * along_m)) * -(-n // (8 * along_n))
                        moved = 2 * 16 * (m * along_n + n * along_m)
                        assert (best.calls, best.moved) <= (calls, moved)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mma("float32", 8),
        lambda: mma("float16", 4),
        lambda: mma("tfloat32", 16),
        lambda: wgmma("float16", 12),
        lambda: wgmma("float16", 264),
        lambda: ldmatrix(3),
        lambda: stmatrix(8),
        lambda: shared_swizzle(16, 16),
        lambda: shared_swizzle(128, 12),
        lambda: shared_atom(128, 32, contiguous="rows"),
        lambda: fragment(wgmma("float16", 64), "b"),
        lambda: arrange(0, 8, 8, mma("float16", 16), 4),
    ],
)
def test_instructions_that_do_not_exist_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(LayoutError):
        call()
