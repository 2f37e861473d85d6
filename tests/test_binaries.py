"""Programs that are compiled while what asked for them goes on."""

from __future__ import annotations

import pytest

from weft.errors import CompileError
from weft.runtime import binaries


def test_each_source_is_compiled_once() -> None:
    source = 'extern "C" __global__ void nothing_once() {}\n'
    begun = [binaries.begin(source, "sm_90a", "nothing_once") for _ in range(2)]
    assert begun[0] is begun[1]
    assert binaries.get(source, "sm_90a", "nothing_once") is begun[0].result()


def test_what_was_refused_is_tried_again() -> None:
    for _ in range(2):
        with pytest.raises(CompileError, match="NVRTC for sm_90a refuses"):
            binaries.get("none of C++", "sm_90a", "refused")
