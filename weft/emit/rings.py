"""Places in shared memory that one warp fills, turn after turn, and warpgroups that multiply give back."""

from __future__ import annotations

WARPS_OF_A_GROUP = 4


def given_back(place: str, when: str = "") -> str:
    """A warp gives a place back, where a condition holds if there is one. Its barrier awaits every warp that multiplies, not a
    thread of each warpgroup.

    That a warp's products are done says nothing of the other warps of its warpgroup. One that is behind would read what is
    being filled anew; one that is a ring behind would wait for a phase by a parity that has come back, and never go on.
    """
    return f"{place}.arrive_if({when and f'{when} && '}threadIdx.x % 32 == 0);"
