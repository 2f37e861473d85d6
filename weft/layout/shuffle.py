"""Conversions within a warp by shuffles: rounds in which each lane gives one register and takes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.layout import f2
from weft.layout.linear import LinearLayout


@dataclass(frozen=True)
class Round:
    """One shuffle. In lane l of warp w, with x = l | w << lane bits:

    give(x): the register group that the lane gives (read by the lanes that want it); lane(x): the lane it reads;
    take(x): the register group it fills; takes(x) == 0 says that it keeps what it reads (other lanes read idly).
    """

    give: LinearLayout
    lane: LinearLayout
    take: LinearLayout
    takes: LinearLayout


@dataclass(frozen=True)
class Shuffles:
    """The rounds of a conversion. packed: bits of the value that travel together in one 32-bit register group.

    instructions: 32-bit shuffles of a warp. selects: choices of a register by lane, of each warp. slots: what it does.
    """

    rounds: tuple[Round, ...]
    packed: int
    instructions: int
    selects: int
    target_bits: int
    lane_bits: int
    slots: LinearLayout

    def run(self, held: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """held[thread][value] of the source, shuffled round by round: what each thread then holds."""
        group = 1 << self.packed
        threads = len(held)
        result: list[list[Any]] = [[None] * (1 << self.target_bits) for _ in range(threads)]
        warp = 1 << self.lane_bits
        for r in self.rounds:
            given = [[held[t][r.give(t) * group + k] for k in range(group)] for t in range(threads)]
            for t in range(threads):
                if r.takes(t) == 0:
                    values = given[t - t % warp + r.lane(t)]
                    result[t][r.take(t) * group : (r.take(t) + 1) * group] = values
        return result


def plan_shuffles(
    slots: LinearLayout, source_bits: int, target_bits: int, lane_bits: int, element_bits: int
) -> Shuffles:
    """The rounds for slots (value | lane | warp of the target -> the same of the source, warps unmoved).

    With target value v in lane l taken from value A v + B l of lane C v + D l, a round lets lane l take value
    v = r + h l. If l -> C h l + D l is injective, every lane reads another one, which knows what to give. h exists
    whenever each slot of the source is wanted once: on the lanes that D sends into the image of C, h makes up for what
    D lacks. Where lanes still want different registers of one lane, the round is repeated for each.
    """
    packed = _packed(slots, source_bits, target_bits, element_bits)
    v, s = target_bits - packed, source_bits - packed
    value_mask, lane_mask = (1 << s) - 1, (1 << lane_bits) - 1
    columns = [b >> packed for b in slots.bases[packed:]]
    values, lanes, warps = columns[:v], columns[v : v + lane_bits], columns[v + lane_bits :]
    a, c = [x & value_mask for x in values], [x >> s & lane_mask for x in values]
    b, d = [x & value_mask for x in lanes], [x >> s & lane_mask for x in lanes]
    h = _choice(a, b, c, d)
    give = [x ^ f2.apply(a, y) for x, y in zip(b, h, strict=True)]
    read = [x ^ f2.apply(c, y) for x, y in zip(d, h, strict=True)]
    # Lanes in the kernel of `read` all read one lane; those of them that want another register wait for another round.
    idle = f2.kernel(read)
    wanted = f2.extension([], [f2.apply(give, x) for x in idle])
    by_source = _give_by_source(give, read, wanted, lane_bits)
    warp_give = [x & value_mask for x in warps]
    warp_read = [x >> s & lane_mask for x in warps]
    conflict = _conflict(give, read, by_source, wanted, lane_bits)
    zero = (0,) * len(warps)
    rounds = []
    moves = 0
    for r in range(1 << v):
        for extra in range(1 << len(wanted)):
            offset = f2.apply(c, r)
            # The lane that is read from lane x and warp w reads as x' = read(x) + offset + warp_read(w); what it gives
            # is a function of x'.
            given = f2.apply(a, r) ^ f2.apply(by_source, offset) ^ f2.apply(wanted, extra)
            give_warps = [x ^ f2.apply(by_source, y) for x, y in zip(warp_give, warp_read, strict=True)]
            rounds.append(
                Round(
                    give=LinearLayout((*by_source, *give_warps), given),
                    lane=LinearLayout((*read, *warp_read), offset),
                    take=LinearLayout((*h, *zero), r),
                    takes=LinearLayout((*conflict, *zero), extra),
                )
            )
            own = offset == 0 and not any(warp_read) and read == [1 << k for k in range(lane_bits)]
            moves += not own
    words = -(-(element_bits << packed) // 32)
    groups = 1 << v
    selects = words * (groups * len(f2.echelon(h)) + len(rounds) * len(f2.echelon(by_source)))
    selects += words * len(rounds) * bool(wanted)
    return Shuffles(tuple(rounds), packed, moves * words, selects, target_bits, lane_bits, slots)


def _packed(slots: LinearLayout, source_bits: int, target_bits: int, element_bits: int) -> int:
    """How many of the lowest bits of the value keep their place: neighbours that fill a 32-bit register together."""
    packed = 0
    while packed < min(source_bits, target_bits) and element_bits << packed < 32:
        bit = 1 << packed
        others = [b for k, b in enumerate(slots.bases) if k != packed]
        if slots.bases[packed] != bit or any(b & bit for b in others):
            break
        packed += 1
    return packed


def _choice(a: list[int], b: list[int], c: list[int], d: list[int]) -> list[int]:
    """h, as the value that each bit of the lane adds: see plan_shuffles. Zero wherever it can be."""
    lanes = len(d)
    image = f2.echelon(c)
    # Bits of the lane (or sums of them) that D sends into the image of C, by a kernel of D modulo that image.
    inside = f2.kernel([f2.reduce(x, image) for x in d])
    outside = f2.extension(inside, [1 << k for k in range(lanes)])
    sent = [f2.apply(d, x) for x in inside]
    if f2.rank(sent) == len(sent):
        return [0] * lanes
    used = f2.echelon(f2.extension([], sent))
    pairs = []
    taken: list[int] = []
    for x, y in zip(inside, sent, strict=True):
        if f2.reduce(y, f2.echelon(taken)):
            taken.append(y)
            pairs.append((x, 0))
            continue
        free = next((u for u in image if f2.reduce(u, f2.echelon([*taken, *used]))), None)
        if free is not None:
            taken.append(free)
            step = f2.combination(c, y ^ free)
        else:
            # Nothing is left to read elsewhere: read the same lane, and the same register of it if that can be.
            step = f2.combination(c, y) or 0
            null = f2.kernel(c)
            fix = f2.combination([f2.apply(a, n) for n in null], f2.apply(b, x) ^ f2.apply(a, step))
            if fix is not None:
                step ^= f2.apply(null, fix)
        pairs.append((x, step or 0))
    basis = [x for x, _ in pairs] + outside
    steps = [step for _, step in pairs] + [0] * len(outside)
    h = []
    for k in range(lanes):
        mask = f2.combination(basis, 1 << k)
        assert mask is not None
        h.append(f2.apply(steps, mask))
    return h


def _give_by_source(give: list[int], read: list[int], wanted: list[int], lane_bits: int) -> list[int]:
    """give as a function of the lane that is read, modulo what it wants beside; zero for lanes that nobody reads."""
    space = f2.echelon(wanted)
    result = []
    image = f2.extension([], read)
    basis = [*image, *f2.extension(image, [1 << k for k in range(lane_bits)])]
    sources = [f2.combination(read, x) for x in image]
    values = [f2.reduce(f2.apply(give, x or 0), space) for x in sources] + [0] * (len(basis) - len(image))
    for k in range(lane_bits):
        mask = f2.combination(basis, 1 << k)
        assert mask is not None
        result.append(f2.apply(values, mask))
    return result


def _conflict(give: list[int], read: list[int], by_source: list[int], wanted: list[int], lane_bits: int) -> list[int]:
    """Which of the repeated rounds a lane takes from: the part of what it wants that its source alone does not tell."""
    result = []
    for k in range(lane_bits):
        rest = give[k] ^ f2.apply(by_source, read[k])
        mask = f2.combination(wanted, rest)
        assert mask is not None
        result.append(mask)
    return result
