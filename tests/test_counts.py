"""What the simulator counts: turns by the layout algebra's own account, sectors by addresses counted in Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.device_kernels import Array
from weft.layout import ComposedLayout, Layout, Swizzle, bank_conflicts
from weft.layout.swizzle import AnyLayout, composed
from weft.runtime.simulator import Argument, Integer, Simulation, Site, Tensor, simulate

TILE_BYTES = 32768
WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "weft::Packet<uint32_t, 2>", 16: "weft::Packet<uint32_t, 4>"}

# `first` is used of what is loaded: a compiler that kept only that would have narrowed the access.
PRELUDE = f"""#include "weft/memory.cuh"
template <typename T> WEFT_FUNCTION uint32_t first(T word) {{ return word; }}
template <int n> WEFT_FUNCTION uint32_t first(weft::Packet<uint32_t, n> words) {{
    uint32_t all = 0;
    for (int k = 0; k < n; ++k) all ^= words.lane[k];
    return all;
}}
#define TILE __shared__ alignas(128) unsigned char tile[{TILE_BYTES}]; \\
    for (int k = threadIdx.x; k < {TILE_BYTES} / 4; k += blockDim.x) reinterpret_cast<uint32_t*>(tile)[k] = 0; \\
    __syncthreads()
"""


@dataclass(frozen=True)
class Case:
    """One access of a warp: lane -> element through a layout, `vector` elements of `element_bytes` each."""

    what: str
    layout: AnyLayout
    element_bytes: int
    vector: int

    @property
    def width(self) -> int:
        return self.element_bytes * self.vector

    def address(self) -> str:
        """Bytes from the tile's beginning, in CUDA C++, of lane t."""
        plain = self.layout.layout if isinstance(self.layout, ComposedLayout) else self.layout
        terms, below = [], 1
        for s, d in zip(plain.flat_shape, plain.flat_stride, strict=True):
            terms.append(f"t / {below} % {s} * {d}")
            below *= s
        text = " + ".join(terms)
        if isinstance(self.layout, ComposedLayout):
            swizzle = self.layout.swizzle
            field = f"(({text}) & {swizzle.source})"
            moved = f"{field} >> {swizzle.shift}" if swizzle.shift >= 0 else f"{field} << {-swizzle.shift}"
            text = f"({text}) ^ ({moved})"
        return f"{self.element_bytes} * ({text})"


def cases() -> list[Case]:
    """Rows, columns, blocks and broadcasts of a row-major tile: as it is, padded, and behind swizzles."""
    found: dict[tuple[AnyLayout, int, int], Case] = {}
    for element, vector in ((1, 1), (2, 1), (2, 2), (2, 8), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2)):
        row = 32 if element > 2 else 64
        bits = vector.bit_length() - 1  # a swizzle may not part a vector
        accesses = {
            "a row": Layout(32, vector),
            "a column": Layout(32, row),
            "every other": Layout(32, 2 * vector),
            "8 rows of 4": Layout((4, 8), (vector, row)),
            "4 rows of 8": Layout((8, 4), (vector, row)),
            "8 rows, then 4 columns": Layout((8, 4), (row, vector)),
            "2 rows, then 16 columns": Layout((2, 16), (row, vector)),
            "one for all": Layout(32, 0),
            "one for two": Layout((2, 16), (0, vector)),
            "one for 16": Layout((16, 2), (0, row)),
        }
        for what, lanes in accesses.items():
            padded = Layout(lanes.shape, _padded(lanes, row, vector))
            layouts = {what: lanes, f"{what}, padded": padded}
            for width in (1, 2, 3):
                swizzle = Swizzle(width, bits, max(width, row.bit_length() - 1 - bits))
                layouts[f"{what}, {swizzle}"] = composed(swizzle, 0, lanes)
            layouts[f"{what}, Swizzle(3,3,3)"] = composed(Swizzle(3, 3, 3), 0, lanes)
            for name, layout in layouts.items():
                reach = max(layout(lane) for lane in range(32)) + vector
                if reach * element <= TILE_BYTES:
                    found.setdefault((layout, element, vector), Case(name, layout, element, vector))
    return list(found.values())


def _padded(lanes: Layout, row: int, vector: int) -> object:
    """Strides of rows that are longer by a vector."""
    strides = tuple(d + d // row * vector for d in lanes.flat_stride)
    return strides if isinstance(lanes.shape, tuple) else strides[0]


CASES = cases()


@lru_cache
def counted(stores: bool) -> dict[int, Site]:
    """The sites of one warp that makes the accesses of all cases, by the number of the case."""
    entry = 'extern "C" __global__ void accesses(const uint32_t* x, uint32_t* y) {'
    lines = [*PRELUDE.splitlines(), entry, "TILE;", "const int t = threadIdx.x;", "uint32_t all = 0;"]
    start = len(lines) + 1
    for case in CASES:
        word = WORDS[case.width]
        place = f"*reinterpret_cast<{word}*>(tile + {case.address()})"
        access = f"{place} = *reinterpret_cast<const {word}*>(x);" if stores else f"all += first({place});"
        lines.append(f"{access} __syncwarp();")
    source = "\n".join([*lines, "y[t] = all;", "}", ""])
    x, y = np.zeros(4, np.uint32), np.zeros(32, np.uint32)
    simulation = run(source, "accesses", [tensor(x, "x", "input"), tensor(y, "y", "output")])
    return {s.place.line - start: s for s in simulation.sites if s.place.line >= start and s.space == "shared"}


def tensor(array: Array, name: str, role: str) -> Tensor:
    return Tensor(name, array.ctypes.data, array.nbytes, array.itemsize, role)


def run(source: str, name: str, arguments: list[Argument]) -> Simulation:
    return simulate(source, name=f"{name}.cu", entry=name, grid=(1, 1, 1), block=(32, 1, 1), arguments=arguments)


def test_there_are_many_cases() -> None:
    assert len(CASES) > 300
    assert {bank_conflicts(c.layout, c.element_bytes, c.vector).degree for c in CASES} >= {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("stores", (False, True), ids=("loads", "stores"))
def test_turns_are_those_of_the_layout_algebra(stores: bool) -> None:
    sites = counted(stores)
    wrong = []
    for k, case in enumerate(CASES):
        want = bank_conflicts(case.layout, case.element_bytes, case.vector)
        site = sites[k]
        got = (site.action, site.width, site.requests, site.degree, site.turns)
        if got != ("store" if stores else "load", case.width, 1, want.degree, want.turns):
            wrong.append((case.what, str(case.layout), case.width, got, want))
    assert wrong == []


# ---------------------------------------------------------------- any layout

ANY_LAYOUT = PRELUDE + "".join(
    f"""extern "C" __global__ void load{width}(const int* places, int lanes, uint32_t* y) {{
    TILE;
    if (threadIdx.x < lanes) y[threadIdx.x] = first(*reinterpret_cast<{word}*>(tile + places[threadIdx.x]));
}}
"""
    for width, word in WORDS.items()
)


@st.composite
def lane_layouts(draw: st.DrawFn) -> tuple[AnyLayout, int, int]:
    """(layout of at most 32 lanes, bytes of an element, elements): whole vectors inside the tile."""
    element, vector = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 4), (4, 2), (8, 1), (4, 4), (2, 8)]))
    shape: list[int] = []
    lanes = 1
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 32 // lanes))
        shape.append(size)
        lanes *= size
    strides = [vector * draw(st.integers(0, 1 << draw(st.integers(0, 7)))) for _ in shape]
    layout: AnyLayout = Layout(tuple(shape), tuple(strides))
    if draw(st.booleans()):
        width, base = draw(st.integers(0, 3)), draw(st.integers(vector.bit_length() - 1, 6))
        layout = composed(Swizzle(width, base, draw(st.integers(width, 5))), 0, layout)
    return layout, element, vector


@given(lane_layouts())
def test_turns_of_any_layout(drawn: tuple[AnyLayout, int, int]) -> None:
    layout, element, vector = drawn
    places = np.array([element * v for v in layout.values()], np.int32)
    if places.max() + element * vector > TILE_BYTES:
        return
    y = np.zeros(32, np.uint32)
    arguments: list[Argument] = [tensor(places, "places", "input"), Integer(len(places)), tensor(y, "y", "inout")]
    simulation = run(ANY_LAYOUT, f"load{element * vector}", arguments)
    (site,) = [s for s in simulation.sites if s.space == "shared" and s.action == "load"]
    want = bank_conflicts(layout, element, vector)
    assert (site.degree, site.turns, site.requests) == (want.degree, want.turns, 1)


# ---------------------------------------------------------------- sectors

GLOBAL = PRELUDE + "".join(
    f"""extern "C" __global__ void load{width}(const unsigned char* x, const int* places, int lanes, uint32_t* y) {{
    if (threadIdx.x < lanes) y[threadIdx.x] = first(*reinterpret_cast<const {word}*>(x + places[threadIdx.x]));
}}
extern "C" __global__ void store{width}(unsigned char* x, const int* places, int lanes, uint32_t* y) {{
    if (threadIdx.x < lanes) *reinterpret_cast<{word}*>(x + places[threadIdx.x]) = *reinterpret_cast<const {word}*>(y);
}}
"""
    for width, word in WORDS.items()
)


def sectors(addresses: list[int], width: int) -> int:
    return len({(a + k) // 32 for a in addresses for k in range(width)})


def in_sectors(size: int) -> Array:
    """Bytes that begin a sector."""
    memory = np.zeros(size + 128, np.uint8)
    past = -memory.ctypes.data % 128
    return memory[past : past + size]


def count_sectors(action: str, places: list[int], width: int) -> tuple[int, int, int]:
    """(requests, sectors, fewest sectors) of one warp's access to the bytes at `places`."""
    x, y = in_sectors(16384), np.zeros(32, np.uint32)
    numbers = np.array(places, np.int32)
    arguments: list[Argument] = [tensor(x, "x", "inout"), tensor(numbers, "places", "input")]
    simulation = run(GLOBAL, f"{action}{width}", [*arguments, Integer(len(places)), tensor(y, "y", "inout")])
    (site,) = [s for s in simulation.sites if s.array == "x"]
    assert site.action == action
    return site.requests, site.sectors, site.ideal_sectors


@pytest.mark.parametrize("action", ("load", "store"))
@pytest.mark.parametrize("width", WORDS)
def test_sectors_of_strided_and_misaligned_accesses(action: str, width: int) -> None:
    for stride, past, lanes in product((1, 2, 3, 5, 8, 16, 31), (0, 1, 2, 5), (1, 7, 32)):
        places = [width * (past + stride * lane) for lane in range(lanes)]
        want = (1, sectors(places, width), -(-lanes * width // 32))
        assert count_sectors(action, places, width) == want, (stride, past, lanes)


@given(st.sampled_from(list(WORDS)), st.lists(st.integers(0, 1000), min_size=1, max_size=32))
def test_sectors_of_any_access(width: int, elements: list[int]) -> None:
    places = [width * e for e in elements]
    fewest = -(-len(set(places)) * width // 32)
    assert count_sectors("load", places, width) == (1, sectors(places, width), fewest)
