"""How many examples a property draws: few in the suite, as many as `--programs` asks for in `make fuzz`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings


def examples(usual: int) -> settings:
    """So many examples, where no number is asked for."""
    asked = not settings.default.derandomize  # as tests/conftest.py has it
    return settings() if asked else settings(max_examples=usual)


def chunks(count: int, each: int, usual: int) -> list[Any]:
    """The first seed of each chunk of random programs: of so many in all, those from the `usual`-th on for `make fuzz`."""
    return [pytest.param(k, marks=[pytest.mark.long] if k >= usual else []) for k in range(0, count, each)]
