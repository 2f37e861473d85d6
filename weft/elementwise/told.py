"""What an explanation says of the operands of a call: how each is read, in what it is computed with, and what keeps it from
being read in vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from weft.compiler import Launch
from weft.compiler.analysis import Lowered
from weft.language.pointwise import Elementwise, Operand
from weft.loops.types import COMPLEX_OF, ScalarType
from weft.plan.facts import Geometry
from weft.plan.map import ANY, MOST_ELEMENTS, NO_RUN, PACKET_BYTES, MapPlan, accesses


def operand_lines(
    call: Elementwise, args: Sequence[object], result: ScalarType, widths: Mapping[str, int]
) -> tuple[str, ...]:
    """A line for each operand and given result. args: tensors over the axes of the iteration, and numbers. result: what is
    computed. widths: of `widths_of`.
    """
    operands = [o for o in call.operands for _ in o.names]
    tensors = zip((*operands, *(None for _ in call.outs)), args, strict=False)
    names = [*(n for o in call.operands for n in o.names), *(name for name, _ in call.outs)]
    width = max(map(len, names), default=0)
    stored = max((dtype.size for _, dtype in call.outs), default=result.size)
    most = min(MOST_ELEMENTS, PACKET_BYTES // stored)  # neighbours of a thread
    lines = []
    for name, (operand, value) in zip(names, tensors, strict=True):
        number = operand is not None and operand.axes is None
        told = _number(operand) if number else _tensor(operand, value, call.rank, result, most, widths.get(name))  # type: ignore[arg-type]
        lines.append(f"{name:<{width}}  {told}")
    return tuple(lines)


def _number(operand: Operand) -> str:
    what = "a number" if operand.typed.weight == 0 else f"a tensor on the CPU without dimensions, {operand.typed.scalar}"
    return f"{what}, passed as {operand.number}; only comparisons round it to a tensor's dtype"


def widths_of(lowered: Sequence[Lowered], launches: Sequence[Launch]) -> dict[str, int]:
    """Of arrays that a plan of maps moves along its lane: how many elements an instruction moves, ANY for shifted packets."""
    found: dict[str, int] = {}
    for launch in launches:
        maps, plan = lowered[launch.variant.nest].maps, launch.variant.plan
        if maps is None or not isinstance(plan, MapPlan):
            continue
        for course, its in zip(maps.courses, plan.courses, strict=True):
            named = accesses(course)[: len(its.widths)]
            found |= {array: width for (array, _), width in zip(named, its.widths, strict=True) if width != NO_RUN}
    return found


def _tensor(
    operand: Operand | None, value: object, rank: int, result: ScalarType, most: int, width: int | None
) -> str:
    assert isinstance(value, torch.Tensor)
    from weft.pytorch.call import DTYPES

    dtype = DTYPES[value.dtype]
    axes = tuple(range(rank)) if operand is None else operand.axes or ()
    address = 0 if value.is_meta else value.data_ptr()
    geometry = Geometry(dtype, tuple(value.shape), value.stride(), address)
    computed = f"in {dtype.opmath}"
    if value.dim() > len(axes):  # complex numbers by their parts, which follow each other
        dtype, computed = COMPLEX_OF[dtype], f"as two {dtype.opmath}"
        geometry = Geometry(dtype, tuple(value.shape[:-1]), tuple(s // 2 for s in value.stride()[:-1]), address)
    use = f"stored as {dtype} from {result}" if operand is None else f"{dtype}, computed with {computed}"
    if not axes:
        return f"{use}; one value for all elements"
    if rank - 1 not in axes:
        return f"{use}; repeated along the innermost axis, where one value is loaded for many elements"
    return f"{use}; {'; '.join(_access(geometry, most, width))}"


def _access(geometry: Geometry, most: int, width: int | None) -> Iterator[str]:
    """How the elements are accessed along the innermost axis, of which a thread takes so many at the most, and what would make
    the accesses wider. width: elements an access, for all that the plan knows.
    """
    size, inner = geometry.dtype.size, len(geometry.shape) - 1
    if geometry.strides[inner] != 1 and geometry.shape[inner] > 1:
        if geometry.unit_axis is not None and geometry.shape[geometry.unit_axis] > 1:
            turned = "" if geometry.dtype.category == "complex" else ", and turned in shared memory"
            yield f"consecutive along another axis than the result{turned}"
        else:
            yield f"one element an access: neighbours lie {geometry.strides[inner]} elements apart"
            yield ".contiguous() of it would be read in vectors"
        return
    full = min(PACKET_BYTES // size, most)
    past = geometry.address % (full * size)
    if width == ANY:
        yield f"packets of {full} elements ({full * size} B), shifted into place"
    else:
        count = math.gcd(full if width is None else width, past // size)
        yield f"{count} {'elements' if count > 1 else 'element'} ({count * size} B) an access"
    if past:
        yield f"it begins {past} B past a multiple of {full * size}: a tensor of its own memory begins at one"
    if width is None or width == full:
        return
    others = [s for k, (n, s) in enumerate(zip(geometry.shape, geometry.strides, strict=True)) if k != inner and n > 1]
    odd = next((s for s in others if s % full), None)
    if odd is not None:
        yield f"its rows begin {odd} elements apart, and {full} are a vector: pad the rows"
    elif geometry.shape[inner] % full:
        yield f"rows of {geometry.shape[inner]} elements are no multiple of {full}, a vector: pad the rows"
