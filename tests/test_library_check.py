"""Every kernel of the library, forward and backward, executed by the simulator and held against the plain Python."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from tests.test_cuda import library_arguments
from weft.kernels import LIBRARY
from weft.pytorch import simulated

# tiny, ragged, within a tile of each size of team, and beyond one; tests below have others between 5 and 2,049
SHAPES = [(1, 1), (3, 5), (5, 33), (2, 700), (3, 2049), (2, 9001)]


def checked(name: str, shape: tuple[int, int], dtype: torch.dtype, **options: Any) -> None:
    with mock.patch.object(simulated, "_resources", lambda *_: None):  # what NVRTC says of the library is the gate's
        report = LIBRARY[name].check(*library_arguments(name, shape, dtype), gradients=True, **options)
    assert report.ok, report.text()
    assert {launch.part for launch in report.launches} == {"forward", "gradient"}


@pytest.mark.parametrize(
    "shape", [pytest.param(s, marks=[pytest.mark.long] if s in SHAPES[1:4] else []) for s in SHAPES], ids=str
)
@pytest.mark.parametrize("name", LIBRARY)
def test_nothing_is_found_in_a_kernel_of_the_library(name: str, shape: tuple[int, int]) -> None:
    checked(name, shape, torch.float32)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, *(pytest.param(d, marks=pytest.mark.long) for d in (torch.float16, torch.float64))], ids=str
)
@pytest.mark.parametrize("name", LIBRARY)
def test_nothing_is_found_in_other_types(name: str, dtype: torch.dtype) -> None:
    checked(name, (3, 1031), dtype)


@pytest.mark.parametrize("name", LIBRARY)
def test_nothing_is_found_for_older_gpus(name: str) -> None:
    checked(name, (3, 1024), torch.bfloat16, arch="sm_80")


@pytest.mark.parametrize("seeds", [4, pytest.param(20, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", LIBRARY)
def test_nothing_is_found_in_other_orders_of_the_threads(name: str, seeds: int) -> None:
    checked(name, (3, 130), torch.float32, seeds=seeds)
