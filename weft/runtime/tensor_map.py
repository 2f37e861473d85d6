"""Tensor maps: how a bulk copy finds a box of a tensor in global memory and lays it into shared memory.

A map is plain data here, so that tests and the simulator can read it; the driver's 128 bytes are made late, when the
tensor's address is known, and passed to a kernel by value as `const __grid_constant__ weft::TensorMap`.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import LaunchError
from weft.runtime.cuda import Driver

BYTES = 128  # of an encoded map

# The driver's CUtensorMapDataType, and the bytes of an element.
_DTYPES = {
    "uint8": (0, 1),
    "int8": (0, 1),  # as bytes
    "uint16": (1, 2),
    "uint32": (2, 4),
    "int32": (3, 4),
    "uint64": (4, 8),
    "int64": (5, 8),
    "float16": (6, 2),
    "float32": (7, 4),
    "float64": (8, 8),
    "bfloat16": (9, 2),
    "tfloat32": (11, 4),
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_FILLS = {"zero": 0, "nan": 1}
_SIMULATED = "=QII5Q4Q5H5BBB"


@dataclass(frozen=True)
class TensorMap:
    """A tensor of rank 1 to 5 and a box of it, the contiguous dimension first.

    dtype: the name of an element's type, as in torch; "tfloat32" for float32 that is rounded on the way.
    shape: in elements. strides: of all dimensions but the first, in bytes. box: in elements of each dimension.
    element_strides: of the box, every so manieth element is moved, () for each one. swizzle: of lines of shared memory,
    0, 32, 64 or 128 bytes, as weft.layout.shared_swizzle. fill: what is read outside the tensor, "zero" or "nan".
    promotion: bytes that the L2 cache fetches at a time, 0, 64, 128 or 256.

    Raises LaunchError with everything that the driver would refuse.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    fill: str = "zero"
    promotion: int = 128

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.shape))
        if faults := _faults(self):
            raise LaunchError(
                f"there is no tensor map of {self.dtype} {list(self.shape)} with boxes of {list(self.box)}",
                evidence=faults,
                remedy="choose another box or swizzle, or copy the tensor to aligned strides",
            )

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element_bytes(self) -> int:
        return _DTYPES[self.dtype][1]

    @property
    def moved(self) -> tuple[int, ...]:
        """Elements of a box that are moved, of each dimension."""
        return tuple(-(-b // s) for b, s in zip(self.box, self.element_strides, strict=True))

    @property
    def box_bytes(self) -> int:
        """What one load counts at its barrier and takes of shared memory."""
        return math.prod(self.moved) * self.element_bytes

    @property
    def shared_alignment(self) -> int:
        """What the box's place in shared memory is a multiple of, in bytes."""
        return max(128, 8 * self.swizzle)

    def encode(self, driver: Driver, address: int) -> bytes:
        """The driver's encoding for the tensor at this address of device memory.

        Raises LaunchError for an address that is no multiple of 16, or if the driver refuses.
        """
        if address % 16 or not 0 <= address < 2**64:
            raise LaunchError(
                "a tensor map needs an address that is a multiple of 16",
                evidence=(f"the tensor is at {address:#x}",),
                remedy="copy the tensor, or slice it at a multiple of 16 bytes",
            )
        rank = self.rank
        buffer = ctypes.create_string_buffer(BYTES + 64)
        aligned = -ctypes.addressof(buffer) % 64
        driver.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(buffer) + aligned),
            _DTYPES[self.dtype][0],
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*self.shape),
            (ctypes.c_uint64 * rank)(*self.strides),
            (ctypes.c_uint32 * rank)(*self.box),
            (ctypes.c_uint32 * rank)(*self.element_strides),
            0,  # no interleaving
            _SWIZZLES[self.swizzle],
            _PROMOTIONS[self.promotion],
            _FILLS[self.fill],
        )
        return buffer.raw[aligned : aligned + BYTES]

    def simulated(self, address: int) -> bytes:
        """What stands for the encoding on the host, for the tensor at this address (weft/runtime/sim/tensors.hpp)."""
        def padded(values: Sequence[int], count: int) -> tuple[int, ...]:
            return (*values, *(1,) * (count - len(values)))

        fields = (address, self.rank, self.element_bytes, *padded(self.shape, 5), *padded(self.strides, 4))
        fields += (*padded(self.box, 5), *padded(self.element_strides, 5), self.swizzle, _FILLS[self.fill])
        return struct.pack(_SIMULATED, *fields).ljust(BYTES, b"\0")


def row_major(
    dtype: str, shape: Sequence[int], box: Sequence[int], *, swizzle: int = 0, fill: str = "zero", promotion: int = 128
) -> TensorMap:
    """The map of a contiguous tensor. shape, box: in torch's order, the contiguous dimension last."""
    size = _DTYPES.get(dtype, (0, 1))[1]
    inner_first = tuple(reversed(shape))
    strides = tuple(size * math.prod(inner_first[:d]) for d in range(1, len(inner_first)))
    return TensorMap(
        dtype, inner_first, strides, tuple(reversed(box)), swizzle=swizzle, fill=fill, promotion=promotion
    )


def _faults(tensor: TensorMap) -> list[str]:
    """What the driver would refuse: the rules of cuTensorMapEncodeTiled without interleaving."""
    if tensor.dtype not in _DTYPES:
        return [f"there is no element type {tensor.dtype!r}, only {', '.join(_DTYPES)}"]
    rank, size = len(tensor.shape), _DTYPES[tensor.dtype][1]
    if not 1 <= rank <= 5:
        return [f"the rank is {rank}, and maps have 1 to 5 dimensions"]
    lengths = {
        "strides": (len(tensor.strides), rank - 1),
        "box": (len(tensor.box), rank),
        "element_strides": (len(tensor.element_strides), rank),
    }
    faults = [f"{name} has {got} entries, and rank {rank} takes {need}" for name, (got, need) in lengths.items() if got != need]
    for name, value, known in (
        ("swizzle", tensor.swizzle, _SWIZZLES),
        ("promotion", tensor.promotion, _PROMOTIONS),
        ("fill", tensor.fill, _FILLS),
    ):
        if value not in known:
            faults.append(f"{name} is {value!r}, not one of {', '.join(map(repr, known))}")
    if faults:
        return faults
    faults += [f"dimension {d} has size {n}, not 1 to 2^32" for d, n in enumerate(tensor.shape) if not 1 <= n <= 2**32]
    for d, stride in enumerate(tensor.strides, 1):
        if stride % 16 or not 0 < stride < 2**40:
            faults.append(f"dimension {d} has a stride of {stride} bytes, not a multiple of 16 below 2^40")
    for d, n in enumerate(tensor.box):
        if not 1 <= n <= 256:
            faults.append(f"the box has {n} elements of dimension {d}, not 1 to 256")
    for d, step in enumerate(tensor.element_strides):
        if not 1 <= step <= 8:
            faults.append(f"dimension {d} has an element stride of {step}, not 1 to 8")
    if tensor.element_strides[0] != 1:
        faults.append(f"the contiguous dimension has an element stride of {tensor.element_strides[0]}, which is not applied")
    line = tensor.box[0] * size
    if line % 16:
        faults.append(f"a line of the box has {line} bytes, not a multiple of 16")
    if tensor.swizzle and line > tensor.swizzle:
        faults.append(f"a line of the box has {line} bytes, more than the swizzle of {tensor.swizzle}")
    if tensor.fill == "nan" and "float" not in tensor.dtype:
        faults.append(f"{tensor.dtype} has no NaN to fill with")
    return faults
