"""Conversion between register layouts: the cheapest way to hand a tile from one distribution over threads to another.

A register layout maps (thread, value) to the element that the thread holds there. Both are read as maps over F2, and
every slot of the target is given a slot of the source that holds the same element: its own, if it can be (nothing), one
of the same thread (a register permutation), of the same warp (shuffles), or of any warp (a round trip through shared
memory). A plan can be executed on lists, which is how its meaning is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.layout import f2
from weft.layout.banks import WARP, bank_conflicts
from weft.layout.errors import LayoutError
from weft.layout.layout import Layout
from weft.layout.linear import LinearLayout, linear
from weft.layout.shuffle import Shuffles, plan_shuffles

# What the parts of a conversion take, in turns of the shared-memory pipe for each warp: a select is arithmetic, a
# shuffle or an access is issued and has its address made, a barrier waits for the slowest warp and the store before it.
SELECT_COST = 0.25
ISSUE_COST = 0.5
WARP_BARRIER_COST = 2.0
BLOCK_BARRIER_COST = 16.0

Held = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Cost:
    """Of one warp: selects, shuffles, accesses of shared memory and their turns, barriers. shared_bytes: of a tile."""

    selects: int = 0
    shuffles: int = 0
    accesses: int = 0
    turns: int = 0
    block_barrier: bool = False
    warp_barrier: bool = False
    shared_bytes: int = 0

    @property
    def total(self) -> float:
        """One number to compare plans by, in turns of the shared-memory pipe."""
        barrier = BLOCK_BARRIER_COST * self.block_barrier + WARP_BARRIER_COST * self.warp_barrier
        issued = ISSUE_COST * (self.shuffles + self.accesses)
        return SELECT_COST * self.selects + issued + self.shuffles + self.turns + barrier


@dataclass(frozen=True)
class Registers:
    """A distribution of elements over threads. bases of values, of lanes within a warp and of warps, in that order."""

    values: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]

    @property
    def bases(self) -> tuple[int, ...]:
        return (*self.values, *self.lanes, *self.warps)

    @property
    def threads(self) -> int:
        return 1 << (len(self.lanes) + len(self.warps))

    def element(self, thread: int, value: int) -> int:
        return f2.apply(self.bases, value | thread << len(self.values))


@dataclass(frozen=True)
class SharedTrip:
    """Through shared memory. address: element -> offset in elements, a bijection without bank conflicts for both sides.

    store, load: "vector", or a matrix instruction "stmatrix", "ldmatrix" (".trans"); store_vector, load_vector: the
    elements that a thread accesses at once where it is "vector".
    """

    address: LinearLayout
    store: str
    load: str
    store_vector: int
    load_vector: int
    element_bits: int


@dataclass(frozen=True)
class Conversion:
    """kind: "nothing", "registers", "shuffles" or "shared". slots: (value | thread << value bits) of the target ->
    the same of the source that holds its element. shuffles or trip: how, for these kinds. cost: of one warp."""

    kind: str
    source: Registers
    target: Registers
    slots: LinearLayout
    cost: Cost
    shuffles: Shuffles | None = None
    trip: SharedTrip | None = None

    def run(self, held: Held) -> list[list[Any]]:
        """held[thread][value] of the source, converted step by step as planned: what each thread then holds."""
        if self.shuffles is not None:
            return self.shuffles.run(held)
        if self.trip is not None:
            return _run_trip(self, self.trip, held)
        bits = len(self.source.values)
        registers = (1 << bits) - 1
        result: list[list[Any]] = []
        for thread in range(self.target.threads):
            slots = [self.slots(v | thread << len(self.target.values)) for v in range(1 << len(self.target.values))]
            if any(slot >> bits != thread for slot in slots):
                raise AssertionError("registers of another thread")
            result.append([held[thread][slot & registers] for slot in slots])
        return result


@dataclass(frozen=True)
class Machine:
    """What the target machine has: ldmatrix from sm_75, stmatrix from sm_90 on."""

    ldmatrix: bool = True
    stmatrix: bool = False


AMPERE = Machine()
HOPPER = Machine(stmatrix=True)


def registers(layout: Layout) -> Registers:
    """A layout (thread, value) -> element as maps over F2. Raises LayoutError for other ranks and no powers of two."""
    if layout.rank() != 2:
        raise LayoutError(f"{layout} is not of two modes, (threads, values)", operation="convert")
    threads = linear(layout[0]).bases
    values = linear(layout[1]).bases
    linear(Layout((layout[0].shape, layout[1].shape), (layout[0].stride, layout[1].stride)))
    lanes = WARP.bit_length() - 1
    return Registers(values, threads[:lanes], threads[lanes:])


def convert(source: Layout, target: Layout, element_bits: int, machine: Machine = AMPERE) -> Conversion:
    """The cheapest conversion from one register layout to another.

    source, target: (thread, value) -> element, of power-of-two sizes and as many threads. element_bits: 8 to 128, a
    power of two. Raises LayoutError where the threads differ, where the layouts carry, and where the source does not
    hold an element of the target (the witness is the slot (thread, value) that wants it).
    """
    if element_bits not in (8, 16, 32, 64, 128):
        raise LayoutError(f"no register holds elements of {element_bits} bits", operation="convert")
    src, dst = registers(source), registers(target)
    if (len(src.lanes), len(src.warps)) != (len(dst.lanes), len(dst.warps)):
        raise LayoutError(
            f"{source} has {src.threads} threads, {target} has {dst.threads}",
            operation="convert",
            remedy="give idle threads a mode of stride 0: they hold copies",
        )
    _check_held(src, dst)
    nothing = _same(src, dst)
    if nothing is not None:
        return Conversion("nothing", src, dst, nothing, Cost())
    permutation = _in_thread(src, dst)
    if permutation is not None:
        return Conversion("registers", src, dst, permutation, Cost())
    plans = []
    within_warp = _in_warp(src, dst)
    if within_warp is not None:
        shuffles = plan_shuffles(within_warp, len(src.values), len(dst.values), len(src.lanes), element_bits)
        cost = Cost(selects=shuffles.selects, shuffles=shuffles.instructions)
        kind = "shuffles" if shuffles.instructions else "registers"
        plans.append(Conversion(kind, src, dst, within_warp, cost, shuffles=shuffles))
    anywhere = _anywhere(src, dst)
    assert anywhere is not None, "every element is held"
    crosses = within_warp is None
    plans += [
        Conversion("shared", src, dst, anywhere, cost, trip=trip)
        for trip, cost in _trips(src, dst, element_bits, machine, crosses)
    ]
    return min(plans, key=lambda plan: plan.cost.total)


def _check_held(src: Registers, dst: Registers) -> None:
    space = f2.echelon(src.bases)
    for k, b in enumerate(dst.bases):
        if f2.reduce(b, space):
            value, thread = 1 << k & ((1 << len(dst.values)) - 1), 1 << k >> len(dst.values)
            raise LayoutError(
                f"no thread of the source holds element {b}, value {value} of thread {thread} of the target",
                operation="convert",
                witness=(thread, value),
                expected=b,
            )


def _same(src: Registers, dst: Registers) -> LinearLayout | None:
    """Each slot of the target from the very same slot, or None."""
    count = len(dst.values)
    if dst.values != src.values[:count] or (dst.lanes, dst.warps) != (src.lanes, src.warps):
        return None
    return _slots([1 << k for k in range(count)], _own_threads(src))


def _in_thread(src: Registers, dst: Registers) -> LinearLayout | None:
    """Each slot from one of the same thread, by a permutation that is the same in all threads, or None."""
    if (dst.lanes, dst.warps) != (src.lanes, src.warps):
        return None
    return _slots([f2.combination(src.values, b) for b in dst.values], _own_threads(src))


def _in_warp(src: Registers, dst: Registers) -> LinearLayout | None:
    """Each slot from one of the same warp, and of the same lane where that can be; or None."""
    near = (*src.values, *src.lanes)
    own = _own_threads(src)
    threads = [_staying(src, b, mine, near, own[k]) for k, (b, mine) in enumerate(_paired(src.lanes, dst.lanes))]
    for k, (b, mine) in enumerate(_paired(src.warps, dst.warps)):
        rest = f2.combination(near, b ^ mine)
        threads.append(None if rest is None else own[len(src.lanes) + k] | rest)
    return _slots([f2.combination(near, b) for b in dst.values], threads)


def _anywhere(src: Registers, dst: Registers) -> LinearLayout | None:
    """Each slot from any that holds its element, in the same thread where that can be."""
    own = _own_threads(src)
    paired = _paired((*src.lanes, *src.warps), (*dst.lanes, *dst.warps))
    threads = [_staying(src, b, mine, src.bases, own[k]) for k, (b, mine) in enumerate(paired)]
    return _slots([f2.combination(src.bases, b) for b in dst.values], threads)


def _staying(src: Registers, b: int, mine: int, reachable: Sequence[int], own: int) -> int | None:
    """A slot that holds element b: that of its own thread where other values make up the difference, else another."""
    rest = f2.combination(src.values, b ^ mine)
    return own | rest if rest is not None else f2.combination(reachable, b)


def _own_threads(src: Registers) -> list[int]:
    return [1 << k for k in range(len(src.values), len(src.bases))]


def _paired(src: Sequence[int], dst: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(dst, src, strict=True))


def _slots(values: Sequence[int | None], threads: Sequence[int | None]) -> LinearLayout | None:
    found = [slot for slot in (*values, *threads) if slot is not None]
    return LinearLayout(tuple(found)) if len(found) == len(values) + len(threads) else None


@dataclass(frozen=True)
class _Side:
    """How one side meets shared memory. vector: its elements side by side, lowest offset bit first; None if free.

    phase: what the lanes of one turn add.
    """

    name: str
    vector: tuple[int, ...] | None
    phase: tuple[int, ...] = field(default=())


def _sides(r: Registers, instruction: str, offered: bool, element_bits: int) -> list[_Side]:
    """The free vector access, and the matrix instructions that fit the distribution."""
    sides = [_Side("vector", None)]
    if offered and element_bits == 16 and r.values and len(r.lanes) == 5:
        pair, lanes = r.values[0], r.lanes
        rows = _Side(instruction, (pair, *lanes[:2]), lanes[2:])
        columns = _Side(f"{instruction}.trans", lanes[2:], (pair, *lanes[:2]))
        sides += [side for side in (rows, columns) if f2.rank((*(side.vector or ()), *side.phase)) == 6]
    return sides


def _trips(
    src: Registers, dst: Registers, element_bits: int, machine: Machine, crosses: bool
) -> list[tuple[SharedTrip, Cost]]:
    found = []
    for store in _sides(src, "stmatrix", machine.stmatrix, element_bits):
        for load in _sides(dst, "ldmatrix", machine.ldmatrix, element_bits):
            for lead in _leads(src, dst, store, load, element_bits):
                trip = _trip(src, dst, store, load, lead, element_bits)
                if trip is not None:
                    found.append((trip, _trip_cost(src, dst, trip, crosses)))
    return found


def _leads(src: Registers, dst: Registers, store: _Side, load: _Side, element_bits: int) -> list[tuple[int, ...]]:
    """The elements that lie side by side in shared memory, to choose from: up to 16 bytes, lowest offset bit first."""
    if store.vector is not None and load.vector is not None:
        return [store.vector] if store.vector == load.vector else []
    for side in (store, load):
        if side.vector is not None:
            return [side.vector]
    most = (128 // element_bits).bit_length() - 1
    common = f2.intersection(src.values, dst.values)
    leads = [tuple([*common, *f2.extension(common, more)][:most]) for more in ((), src.values, dst.values)]
    return list(dict.fromkeys([(), *leads]))


def _trip(
    src: Registers, dst: Registers, store: _Side, load: _Side, lead: tuple[int, ...], element_bits: int
) -> SharedTrip | None:
    """The trip with an address map in which each turn of both sides meets different banks.

    A turn of a side reaches the space of its vector and of the lanes of one phase. Rows of 128 bytes are the cosets of
    a space H; no two elements of a turn share a place in their rows if H meets that space in zero alone.
    """
    bits = max((*src.bases, *dst.bases, 1)).bit_length()
    place = (1024 // element_bits).bit_length() - 1
    units = [1 << k for k in range(bits)]
    # A bank serves a word: elements that fill one up count as side by side, in whichever lanes they are.
    word = max(1, 32 // element_bits).bit_length() - 1
    lead = (*lead, *f2.extension(lead, [*src.lanes, *dst.lanes, *units])[: max(0, word - len(lead))])
    vectors = []
    reaches = []
    for r, side in ((src, store), (dst, load)):
        if side.vector is not None:
            vectors.append(3)
            reaches.append([*lead, *side.phase])
            continue
        depth = 0
        space = f2.echelon(r.values)
        while depth < len(lead) and f2.reduce(lead[depth], space) == 0:
            depth += 1
        vectors.append(depth)
        lanes = min(len(r.lanes), place - depth)
        reaches.append([*lead[: max(depth, word)], *r.lanes[:lanes]])
    if any(f2.rank(reach) > place for reach in reaches):
        return None
    rows = f2.common_complement(reaches[0], reaches[1], bits, place) if bits > place else []
    if f2.extension(rows, lead) != list(lead):
        # The side by side elements would lie in different rows.
        return None
    columns = [*lead, *f2.extension([*rows, *lead], [*reaches[0], *reaches[1], *src.bases, *dst.bases, *units])]
    basis = [*columns, *rows]
    address = LinearLayout(tuple([_coordinates(basis, u) for u in units]))
    for r, side, vector in zip((src, dst), (store, load), vectors, strict=True):
        # Elements of a vector go in the same order in every lane, and those of a matrix row in every matrix.
        others = (*r.lanes, *r.warps) if side.vector is None else (*r.values[1:], *side.phase, *r.warps)
        if any(address(b) & ((1 << vector) - 1) for b in others if b not in lead):
            return None
    return SharedTrip(address, store.name, load.name, 1 << vectors[0], 1 << vectors[1], element_bits)


def _coordinates(basis: Sequence[int], vector: int) -> int:
    found = f2.combination(basis, vector)
    assert found is not None
    return found


def _trip_cost(src: Registers, dst: Registers, trip: SharedTrip, crosses: bool) -> Cost:
    accesses, turns = 0, 0
    for r, how, vector in ((src, trip.store, trip.store_vector), (dst, trip.load, trip.load_vector)):
        if how == "vector":
            count = (1 << f2.rank(r.values)) // vector
            lanes = LinearLayout(tuple([trip.address(b) for b in r.lanes]))
            accesses += count
            turns += count * bank_conflicts(lanes, trip.element_bits // 8, vector).turns
        else:
            matrices = (1 << len(r.values)) // 2
            accesses += -(-matrices // 4)
            turns += matrices
    size = trip.address.size() * trip.element_bits // 8
    return Cost(accesses=accesses, turns=turns, block_barrier=crosses, warp_barrier=not crosses, shared_bytes=size)


def _run_trip(plan: Conversion, trip: SharedTrip, held: Held) -> list[list[Any]]:
    shared: dict[int, Any] = {}
    src, dst = plan.source, plan.target
    result: list[list[Any]] = [[None] * (1 << len(dst.values)) for _ in range(dst.threads)]

    def store(offset: int, thread: int, value: int) -> None:
        shared[offset] = held[thread][value]

    def load(offset: int, thread: int, value: int) -> None:
        result[thread][value] = shared[offset]

    for r, how, vector, move in (
        (src, trip.store, trip.store_vector, store),
        (dst, trip.load, trip.load_vector, load),
    ):
        if how == "vector":
            _through_vectors(r, trip.address, vector, move)
        else:
            _through_matrices(r, trip.address, how.endswith(".trans"), move)
    return result


def _through_vectors(r: Registers, address: LinearLayout, vector: int, move: Callable[[int, int, int], None]) -> None:
    """Move each value of each thread to or from its place, as aligned vectors that a thread holds as a whole."""
    for thread in range(r.threads):
        places: dict[int, set[int]] = {}
        for value in range(1 << len(r.values)):
            offset = address(r.element(thread, value))
            places.setdefault(offset // vector, set()).add(offset % vector)
            move(offset, thread, value)
        if any(len(held) != vector for held in places.values()):
            raise AssertionError("a vector that the thread does not hold as a whole")


def _through_matrices(
    r: Registers, address: LinearLayout, transposed: bool, move: Callable[[int, int, int], None]
) -> None:
    """Move each value of each thread to or from the place that the matrix instruction gives it.

    The address of row i of a matrix is that of its first element, as lane i knows it; a row is the 8 elements after it,
    of which lane 4 i + j gets columns 2 j and 2 j + 1, or lane 4 j + ... the transposed ones.
    """
    pairs = (1 << len(r.values)) // 2
    for warp in range(1 << len(r.warps)):
        for matrix in range(pairs):
            starts = []
            for row in range(8):
                # The holder of the first element of the row, by the instruction's own distribution.
                lane, half = (row // 2, row % 2) if transposed else (4 * row, 0)
                start = address(r.element(warp * WARP + lane, 2 * matrix + half))
                if start % 8:
                    raise AssertionError("a row that is not aligned")
                starts.append(start)
            for lane in range(WARP):
                for half in range(2):
                    near, far = lane // 4, 2 * (lane % 4) + half
                    row, column = (far, near) if transposed else (near, far)
                    move(starts[row] + column, warp * WARP + lane, 2 * matrix + half)
