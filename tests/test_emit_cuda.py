"""The CUDA that calls get, as text: golden files for every kernel of the library and every kind of plan
(`pytest --update-golden`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.cli import arguments
from weft.kernels import LIBRARY

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", LIBRARY)
def test_the_text_of_a_library_kernel(name: str, golden: Golden) -> None:
    """At its example: rows held in registers, rows in tiles, columns shared by blocks."""
    golden(f"cuda/{name}.cu", LIBRARY[name].source(*arguments(LIBRARY[name], {}), arch="sm_90a"))


@pytest.mark.parametrize(
    "title, name, specs",
    [
        ("softmax_short", "softmax", ("float32[4096,100]",)),  # a row a warp, columns that no vector divides
        ("softmax_long", "softmax", ("bfloat16[8,262144]",)),  # too long to be held
        ("cumsum_one_row", "cumsum", ("float16[1,100]",)),
        ("cumsum_by_columns", "cumsum", ("float32[64,1024]:(1,64)",)),  # strided
    ],
)
def test_the_text_of_other_plans(title: str, name: str, specs: tuple[str, ...], golden: Golden) -> None:
    golden(f"cuda/{title}.cu", LIBRARY[name].source(*specs, arch="sm_90a"))
