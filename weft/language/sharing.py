"""Which names may mean one and the same tensor without dimensions.

In the plain Python `b = a` gives a tensor a second name, and `a += 1` then changes what both mean. A slot is a name in a
frame; the relation says of two slots whether they certainly mean one tensor, or may.
"""

from __future__ import annotations

from collections.abc import Callable

Slot = tuple[int, str]
# Two slots that mean one tensor: certainly (True), or perhaps. Those that are left out do not.
Sharing = dict[frozenset[Slot], bool]


def either(one: Sharing, other: Sharing) -> Sharing:
    """What holds where one of the two does."""
    return {pair: one.get(pair, False) and other.get(pair, False) for pair in (one | other)}


def partners(sharing: Sharing, slot: Slot) -> dict[Slot, bool]:
    """The other slots that may mean what a slot means, and whether they certainly do."""
    return {next(iter(pair - {slot})): sure for pair, sure in sharing.items() if slot in pair}


def without(sharing: Sharing, gone: Callable[[Slot], bool]) -> Sharing:
    return {pair: sure for pair, sure in sharing.items() if not any(map(gone, pair))}


def bind(sharing: Sharing, slot: Slot, sources: frozenset[Slot], sure: bool) -> Sharing:
    """After `slot` was given what one of `sources` means (sure: there is one, and it is that), or a tensor of its own."""
    found: dict[Slot, bool] = {}
    for source in sources:
        found[source] = sure
        for other, same in partners(sharing, source).items():
            found[other] = found.get(other, False) or (sure and same)
    found.pop(slot, None)
    return without(sharing, lambda s: s == slot) | {frozenset((slot, other)): same for other, same in found.items()}
