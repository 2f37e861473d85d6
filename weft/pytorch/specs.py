"""Tensors described by text: `float32[64,1024]`, or with strides in elements `float32[64,1024]:(1,64)`.

The command line, the examples of kernels and the tests describe their inputs this way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import DeviceMismatch, ShapeMismatch, TypeMismatch, WeftError
from weft.loops.types import COMPLEX_TYPES, SCALAR_TYPES, ScalarType

if TYPE_CHECKING:
    import torch

_SPEC = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<shape>[^\]]*)\](?::\((?P<strides>[^)]*)\))?")
_TYPES = SCALAR_TYPES | COMPLEX_TYPES
_REMEDY = "write it as float32[64,1024], or with strides in elements as float32[64,1024]:(1,64)"

# Random integers lie in [0, this): small enough that no sum or product of a few overflows, and usable as subscripts.
_INTEGERS_BELOW = 8


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's dtype (PyTorch's name), shape, and strides in elements (None: contiguous, row-major).

    Raises TypeMismatch for an unknown dtype, ShapeMismatch for a negative size or stride or a wrong number of strides.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype not in _TYPES:
            raise TypeMismatch(
                f"{self.dtype!r} is no dtype of weft",
                evidence=["known dtypes: " + ", ".join(_TYPES)],
                remedy="use one of the known dtypes",
            )
        if any(size < 0 for size in self.shape):
            raise ShapeMismatch(f"a size of {self} is negative", remedy="give sizes of zero or more")
        if self.strides is None:
            return
        if len(self.strides) != len(self.shape):
            raise ShapeMismatch(
                f"{self} has {len(self.shape)} sizes and {len(self.strides)} strides",
                remedy="give one stride, in elements, for each size",
            )
        if any(stride < 0 for stride in self.strides):
            raise ShapeMismatch(f"a stride of {self} is negative", remedy="give strides of zero or more")

    @classmethod
    def parse(cls, text: str) -> TensorSpec:
        """Read `dtype[sizes]` or `dtype[sizes]:(strides)`. Raises ShapeMismatch where the text is neither."""
        match = _SPEC.fullmatch(text.replace(" ", ""))
        if match is None:
            raise ShapeMismatch(f"{text!r} describes no tensor", remedy=_REMEDY)
        shape, strides = match["shape"], match["strides"]
        return cls(match["dtype"], _integers(shape, text), None if strides is None else _integers(strides, text))

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        """The spec of a tensor; contiguous tensors get no strides."""
        strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), strides)

    def __str__(self) -> str:
        strides = "" if self.strides is None else f":({','.join(map(str, self.strides))})"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{strides}"

    @property
    def scalar(self) -> ScalarType:
        """The memory type of one element."""
        return _TYPES[self.dtype]

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements, gaps between strides left out."""
        return self.numel * self.scalar.size

    def pairs(self) -> TensorSpec:
        """The spec of a tensor of complex numbers as one of their parts."""
        strides = None if self.strides is None else (*(2 * s for s in self.strides), 1)
        return TensorSpec(self.scalar.part.name, (*self.shape, 2), strides)

    def make(self, device: str | torch.device = "cpu", generator: torch.Generator | None = None) -> torch.Tensor:
        """A random tensor of this spec: floats are normal, integers lie in [0, 8), bools are fair.

        generator: a seeded generator on `device`; None takes PyTorch's global one. With a stride of 0 the elements
        along that axis share their memory. Raises DeviceMismatch where the device is not there.
        """
        import torch

        where = _device(device)
        dtype: torch.dtype = getattr(torch, self.dtype)
        category = self.scalar.category
        extent = self._extent()
        if category == "complex":
            flat = torch.randn(extent, dtype=dtype, device=where, generator=generator)
        elif category == "float":
            # the half types round float32's numbers, so that one seed gives nearly the same values in all three
            wide = torch.float64 if dtype is torch.float64 else torch.float32
            flat = torch.randn(extent, dtype=wide, device=where, generator=generator).to(dtype)
        else:
            below = 2 if category == "bool" else _INTEGERS_BELOW
            flat = torch.randint(below, (extent,), device=where, generator=generator).to(dtype)
        return flat.view(self.shape) if self.strides is None else flat.as_strided(self.shape, self.strides)

    def _extent(self) -> int:
        """Elements of memory from the first to the last."""
        if self.strides is None or self.numel == 0:
            return self.numel
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


Spec = TensorSpec | bool | int | float
"""What stands for one argument: a tensor to be, or a number as it is."""


def parse(text: str) -> Spec:
    """Read one argument: a tensor spec, `true`, `false`, or a number. Raises ShapeMismatch where it is none of them."""
    stripped = text.strip()
    if "[" in stripped:
        return TensorSpec.parse(stripped)
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    for kind in (int, float):
        try:
            return kind(stripped)
        except ValueError:
            continue
    raise ShapeMismatch(f"{text!r} describes no tensor and no number", remedy=_REMEDY)


def parse_named(texts: list[str]) -> dict[str, Spec]:
    """Read `name=spec` arguments, as the command line takes them. Raises WeftError where a text has no name."""
    named: dict[str, Spec] = {}
    for text in texts:
        name, equals, spec = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise WeftError(f"{text!r} names no argument", remedy="write it as name=float32[64,1024] or name=0.5")
        named[name.strip()] = parse(spec)
    return named


def make_arguments(
    specs: Mapping[str, Spec], device: str | torch.device = "cpu", seed: int = 0
) -> dict[str, torch.Tensor | bool | int | float]:
    """Tensors for the specs, numbers as they are. The same specs, device and seed give the same values."""
    import torch

    where = _device(device)
    generator = torch.Generator(where).manual_seed(seed)
    return {name: spec.make(where, generator) if isinstance(spec, TensorSpec) else spec for name, spec in specs.items()}


def _integers(text: str, whole: str) -> tuple[int, ...]:
    parts = text.removesuffix(",").split(",") if text else []
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise ShapeMismatch(f"{whole!r} has a size that is no integer", remedy=_REMEDY) from None


def _device(device: str | torch.device) -> torch.device:
    import torch

    where = torch.device(device)
    if where.type == "cuda" and not torch.cuda.is_available():
        raise DeviceMismatch(f"there is no device {where}", remedy="run on a machine with a CUDA GPU, or use the CPU")
    return where
