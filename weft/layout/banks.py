"""Banks of shared memory: how many turns a warp's access takes, and layouts under which it takes the fewest.

Shared memory has 32 banks of 4 bytes; in one turn each bank serves one of its words, to any number of lanes, so that 128
bytes move in a turn at the most. The lanes of a phase are served together: all 32 where each accesses up to 4 bytes, 16
that access 8 bytes, 8 that access 16. Two phases of 8 or 16 bytes are one where each lane wants what its neighbour does
(lane i what lane i ^ 1 does, or each what lane i ^ 2 does), so that the two want no more than 128 bytes. (As Nsight
Compute's counters say of an H200; bench/counters.py.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.layout import f2
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout, from_flat
from weft.layout.linear import LinearLayout, linear, swizzles
from weft.layout.swizzle import AnyLayout, composed
from weft.layout.tuples import unflatten

WARP = 32
BANK_BYTES = 4
ROW_BYTES = 128
WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Conflicts:
    """degree: the most turns that the lanes of one phase take, 1 without conflict. turns: of all phases together."""

    degree: int
    turns: int


@dataclass(frozen=True)
class Access:
    """What a warp does to a tile: lanes maps a lane to the index of the first of `vector` neighbouring elements."""

    lanes: Layout
    vector: int = 1


def bank_conflicts(
    layout: AnyLayout | LinearLayout, element_bytes: int, vector: int = 1, lanes: AnyLayout | None = None
) -> Conflicts:
    """The conflicts of one access of a warp, exactly.

    layout: lane -> offset in elements, of at most 32 lanes; or, with `lanes` (lane -> index), tile index -> offset.
    Each lane accesses `vector` elements from there on: 1, 2, 4, 8 or 16 bytes in all. Raises LayoutError for other
    widths, for more lanes, and for a lane whose access is not aligned to its width.
    """
    width = element_bytes * vector
    if width not in WIDTHS:
        raise LayoutError(
            f"{vector} elements of {element_bytes} bytes are no access", remedy=f"access one of {WIDTHS} bytes"
        )
    if lanes is not None:
        return _counted([element_bytes * layout(i) for i in lanes.values()], width)
    if isinstance(layout, LinearLayout):
        bases, constant = layout.bases, layout.constant
    elif (known := _bases(layout)) is not None:
        bases, constant = known
    else:
        return _counted([element_bytes * v for v in layout.values()], width)
    return _of_a_map(bases, constant, element_bytes, width)


def _bases(layout: AnyLayout) -> tuple[tuple[int, ...], int] | None:
    if isinstance(layout, Layout):
        used = 0
        bases: list[int] = []
        for s, d in zip(layout._flat_shape, layout._flat_stride, strict=True):
            if type(d) is not int or type(s) is not int:
                raise LayoutError(f"{layout} is not of known integers", operation="bank_conflicts")
            if s & (s - 1) or d < 0:
                return None
            while s > 1:
                if d & used:
                    return None
                used |= d
                bases.append(d)
                d += d
                s >>= 1
        return tuple(bases), 0
    try:
        map = linear(layout)
    except LayoutError:
        return None
    return map.bases, map.constant


def _of_a_map(bases: tuple[int, ...], constant: int, element_bytes: int, width: int) -> Conflicts:
    """By ranks: of a map over F2, every bank that is hit is hit by equally many words, those that differ elsewhere.

    With W the space of the words of a phase and B its image in the banks, a bank serves 2 ** (dim W - dim B) words.
    Phases are translates of one another, so they take equally long.
    """
    if len(bases) > 5:
        raise LayoutError(f"a warp has {WARP} lanes, not {1 << len(bases)}", operation="bank_conflicts")
    for k, b in enumerate((constant, *bases)):
        if element_bytes * b % width:
            raise _misaligned((1 << k) >> 1, element_bytes * (b if k == 0 else b ^ constant), width)
    unit = max(width, BANK_BYTES)
    banks = ROW_BYTES // unit
    lanes = _phase_lanes(width)
    if lanes < 1 << len(bases) and (bases[0] == 0 or bases[1] == 0):
        lanes *= 2
    phase = min(len(bases), lanes.bit_length() - 1)
    words = [element_bytes * b // unit for b in bases[:phase]]
    degree = 1 << (f2.rank(words) - f2.rank([w & banks - 1 for w in words]))
    return Conflicts(degree, degree << (len(bases) - phase))


def _phase_lanes(width: int) -> int:
    """How many lanes make a phase."""
    return min(WARP, ROW_BYTES // width)


def _phases(addresses: list[int], width: int) -> list[list[int]]:
    """The addresses of each phase."""
    lanes = _phase_lanes(width)
    if lanes == WARP:
        return [addresses]
    out = []
    for start in range(0, len(addresses), 2 * lanes):
        both = addresses[start : start + 2 * lanes]
        alike = any(all(a == both[k ^ bit] for k, a in enumerate(both) if k ^ bit < len(both)) for bit in (1, 2))
        out += [both] if alike else [part for part in (both[:lanes], both[lanes:]) if part]
    return out


def _counted(addresses: list[int], width: int) -> Conflicts:
    """By counting the words of each bank."""
    if len(addresses) > WARP:
        raise LayoutError(f"a warp has {WARP} lanes, not {len(addresses)}", operation="bank_conflicts")
    for lane, address in enumerate(addresses):
        if address % width:
            raise _misaligned(lane, address, width)
    unit = max(width, BANK_BYTES)
    banks = ROW_BYTES // unit
    degrees = []
    for phase in _phases(addresses, width):
        counts = [0] * banks
        for word in {address // unit for address in phase}:
            counts[word % banks] += 1
        degrees.append(max(counts))
    return Conflicts(max(degrees), sum(degrees))


def find_swizzle(tile: Layout, accesses: Sequence[Access], element_bytes: int) -> AnyLayout:
    """The tile behind the swizzle of the fewest bits under which no access has a conflict.

    The swizzle permutes the offsets of the tile among themselves. Raises LayoutError where no swizzle does it: all that
    differ on the tile's offsets are tried, and the error names the best.
    """
    extent = tile.cosize()
    width = max(1, (extent - 1).bit_length())
    indices = [access.lanes.values() for access in accesses]
    plain = [[tile(i) for i in lanes] for lanes in indices]
    best: tuple[int, Any] | None = None
    tried = 0
    for swizzle in swizzles(width):
        # Blocks up to the highest bit that changes stay whole; what is left over must stay within the tile.
        block = 1 << swizzle.target.bit_length()
        if any(swizzle(x) >= extent for x in range(extent - extent % block, extent)):
            continue
        tried += 1
        worst = 0
        for access, offsets in zip(accesses, plain, strict=True):
            addresses = [element_bytes * swizzle(v) for v in offsets]
            bytes_at_once = element_bytes * access.vector
            if any(a % bytes_at_once for a in addresses) or _splits(swizzle.target, swizzle.source, access.vector):
                worst = WARP + 1
                break
            worst = max(worst, _counted(addresses, bytes_at_once).degree)
        if worst == 1:
            return composed(swizzle, 0, tile)
        if best is None or worst < best[0]:
            best = worst, swizzle
    raise LayoutError(
        f"no swizzle of {tile} is free of conflicts: of {tried} tried, the best is {best[1] if best else 'none'} "
        f"with {best[0] if best else 0} turns",
        operation="find_swizzle",
        load=best[0] if best else None,
        remedy="pad the tile (find_padding), or use narrower accesses",
    )


def _splits(target: int, source: int, vector: int) -> bool:
    """Whether a swizzle moves elements of a vector apart, or depends on them."""
    return bool((target | source) & (vector - 1))


def find_padding(tile: Layout, accesses: Sequence[Access], element_bytes: int) -> Layout:
    """The tile with the least padding under which no access has a conflict.

    One mode is given a longer stride, and those of larger stride follow. Banks repeat after 128 bytes of padding, so
    less than that is tried for each mode. Raises LayoutError where none does it.
    """
    modes = sorted(
        (d, m) for m, (s, d) in enumerate(zip(tile.flat_shape, tile.flat_stride, strict=True)) if s != 1 and d > 0
    )
    indices = [access.lanes.values() for access in accesses]
    best = WARP + 1
    found: list[tuple[int, int, Layout]] = []
    for k, (stride, padded_mode) in enumerate(modes):
        if any(stride % access.vector for access in accesses):
            # Padding there would part the elements of a vector.
            continue
        for padding in range(ROW_BYTES // element_bytes):
            padded = _padded(tile, modes, k, padding)
            if padded is None:
                continue
            worst = 1
            for access, lanes in zip(accesses, indices, strict=True):
                addresses = [element_bytes * padded(i) for i in lanes]
                width = element_bytes * access.vector
                if any(a % width for a in addresses):
                    worst = WARP + 1
                    break
                worst = max(worst, _counted(addresses, width).degree)
            best = min(best, worst)
            if worst == 1:
                found.append((padded.cosize(), padded_mode, padded))
                break
    if not found:
        raise LayoutError(
            f"no padding of one mode of {tile} is free of conflicts; the best takes {best} turns",
            operation="find_padding",
            load=best,
            remedy="swizzle the tile (find_swizzle), or use narrower accesses",
        )
    return min(found, key=lambda entry: entry[:2])[2]


def _padded(tile: Layout, modes: list[tuple[int, int]], k: int, padding: int) -> Layout | None:
    """The tile with mode k (by stride) at a stride longer by `padding`; None where larger strides cannot follow."""
    strides = list(tile.flat_stride)
    start = modes[k][0]
    for d, m in modes[k:]:
        if d % start:
            return None
        strides[m] = d // start * (start + padding)
    shape = tile.flat_shape
    flat = from_flat(shape, tuple(strides))
    return flat if tile.shape == shape else Layout(tile.shape, unflatten(strides, tile.shape))


def _misaligned(lane: int, address: int, width: int) -> LayoutError:
    return LayoutError(
        f"lane {lane} accesses {width} bytes at {address}, which is no multiple of them",
        operation="bank_conflicts",
        witness=lane,
        boundary=width,
        load=address,
        remedy="align the layout to the vector, or access fewer elements at once",
    )
