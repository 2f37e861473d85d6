"""Tensor maps as data, and launches that carry them, clusters and cooperation."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.test_runtime import StandIn, axpb_slots, stand_in, stand_in_library  # noqa: F401  the fixtures
from weft.errors import LaunchError
from weft.runtime import cuda
from weft.runtime.tensor_map import BYTES, TensorMap, row_major

GOOD: dict[str, Any] = {"dtype": "bfloat16", "shape": (320, 128), "strides": (640,), "box": (64, 128), "swizzle": 128}


def test_a_map_of_a_contiguous_tensor() -> None:
    tensor = row_major("bfloat16", (3, 128, 320), (1, 128, 64), swizzle=128)
    assert tensor == TensorMap("bfloat16", (320, 128, 3), (640, 81920), (64, 128, 1), (1, 1, 1), swizzle=128)
    assert (tensor.rank, tensor.element_bytes, tensor.box_bytes, tensor.shared_alignment) == (3, 2, 16384, 1024)


def test_element_strides_thin_a_box_out() -> None:
    tensor = TensorMap("float32", (20, 6), (80,), (8, 7), element_strides=(1, 2))
    assert tensor.moved == (8, 4) and tensor.box_bytes == 128 and tensor.shared_alignment == 128


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"dtype": "complex64"}, "no element type 'complex64'"),
        ({"shape": (), "strides": (), "box": ()}, "rank is 0"),
        ({"shape": (4,) * 6, "strides": (16,) * 5, "box": (4,) * 6}, "rank is 6"),
        ({"shape": (0, 128)}, "dimension 0 has size 0"),
        ({"shape": (320, 2**32 + 1)}, "dimension 1 has size 4294967297"),
        ({"strides": (648,)}, "dimension 1 has a stride of 648 bytes"),
        ({"strides": (2**40,)}, "dimension 1 has a stride"),
        ({"strides": ()}, "strides has 0 entries, and rank 2 takes 1"),
        ({"box": (64,)}, "box has 1 entries, and rank 2 takes 2"),
        ({"box": (64, 257)}, "257 elements of dimension 1"),
        ({"box": (0, 128)}, "0 elements of dimension 0"),
        ({"box": (12, 128)}, "a line of the box has 24 bytes, not a multiple of 16"),
        ({"swizzle": 64}, "128 bytes, more than the swizzle of 64"),
        ({"swizzle": 16}, "swizzle is 16, not one of 0, 32, 64, 128"),
        ({"element_strides": (1, 9)}, "element stride of 9"),
        ({"element_strides": (2, 1)}, "contiguous dimension has an element stride of 2"),
        ({"fill": "one"}, "fill is 'one'"),
        ({"dtype": "uint16", "fill": "nan"}, "uint16 has no NaN"),
        ({"promotion": 32}, "promotion is 32"),
    ],
)
def test_what_the_driver_would_refuse_is_named(change: dict[str, Any], fact: str) -> None:
    TensorMap(**GOOD)
    with pytest.raises(LaunchError) as caught:
        TensorMap(**(GOOD | change))
    assert fact in str(caught.value)


class Recorder:
    """In place of the driver: keeps what a function is called with, and writes a pattern for the encoding."""

    def call(self, function: str, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        assert arguments[0].value % 64 == 0
        ctypes.memmove(arguments[0].value, bytes(range(BYTES)), BYTES)


def test_encoding_hands_the_driver_every_argument() -> None:
    driver: Any = Recorder()
    tensor = TensorMap("float32", (20, 6), (80,), (8, 8), element_strides=(1, 2), swizzle=32, fill="nan", promotion=256)
    assert tensor.encode(driver, 0x7F0000000010) == bytes(range(BYTES))
    assert driver.function == "cuTensorMapEncodeTiled"
    _, dtype, rank, address, shape, strides, box, steps, interleave, swizzle, promotion, fill = driver.arguments
    assert (dtype, rank, address.value) == (7, 2, 0x7F0000000010)
    assert (list(shape), strides[0], list(box), list(steps)) == ([20, 6], 80, [8, 8], [1, 2])
    assert (interleave, swizzle, promotion, fill) == (0, 1, 3, 1)
    with pytest.raises(LaunchError, match="multiple of 16"):
        tensor.encode(driver, 0x7F0000000008)


# ---------------------------------------------------------------- launches


def test_a_plain_launch_has_no_attributes(stand_in: StandIn) -> None:  # noqa: F811
    launcher = cuda.Launcher(stand_in.handle(), (4, 1, 1), (32, 1, 1), 0, axpb_slots(0))
    launcher.launch(0, 0, 0)
    last = cuda._Config.in_dll(stand_in.library, "last")
    assert (last.attributes, last.attribute_count) == (None, 0)
    assert launcher.parts() is not None


def test_clusters_cooperation_and_maps_reach_the_driver(stand_in: StandIn) -> None:  # noqa: F811
    maps = [bytes([n]) * BYTES for n in (1, 2)]
    launcher = cuda.Launcher(
        stand_in.handle(), (4, 2, 1), (32, 1, 1), 0, axpb_slots(0), cluster=(2, 1, 1), cooperative=True, tensor_maps=maps
    )
    assert launcher.parts() is None  # the shorter road would leave them out
    launcher.launch(0, 0, 0)
    last = cuda._Config.in_dll(stand_in.library, "last")
    assert last.attribute_count == 2
    attributes = (cuda._Attribute * 2).from_address(last.attributes)
    assert [(a.number, list(a.value)[:3]) for a in attributes] == [(4, [2, 1, 1]), (2, [1, 0, 0])]
    frame = launcher._frames[0]
    for encoding, address in zip(maps, list(frame.parameters)[4:], strict=True):
        assert address is not None and address % 64 == 0
        assert ctypes.string_at(address, BYTES) == encoding


@pytest.mark.parametrize(
    ("grid", "options", "fact"),
    [
        ((3, 1, 1), {"cluster": (2, 1, 1)}, "not made of whole clusters"),
        ((16, 1, 1), {"cluster": (16, 1, 1)}, "16 blocks, and it can have 1 to 8"),
        ((4, 1, 1), {"cluster": (0, 1, 1)}, "0 blocks"),
        ((65025, 1, 1), {"cooperative": True}, "65025 blocks are to run at once, and 65024 fit"),
        ((1, 1, 1), {"tensor_maps": [b"short"]}, "128 bytes"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(
    stand_in: StandIn,  # noqa: F811
    grid: cuda.Size3,
    options: dict[str, Any],
    fact: str,
) -> None:
    with pytest.raises(LaunchError, match=fact):
        cuda.Launcher(stand_in.handle(), grid, (32, 1, 1), 0, axpb_slots(0), **options)
