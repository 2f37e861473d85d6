"""The rules of pointwise iteration against PyTorch's own operators, over all layouts of small shapes.

The oracle is PyTorch on the CPU. It copies operands to the common dtype before it looks at their strides, which a GPU does not:
where dtypes differ, the oracle is `torch.where`, which converts no condition, and a GPU where there is one.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from weft.elementwise.iteration import Iteration, broadcast, coalesce, iterate, permutation
from weft.elementwise.layouts import contiguous_strides, is_channels_last, is_contiguous, is_dense
from weft.elementwise.memory import check_memory
from weft.elementwise.operands import Operand
from weft.errors import OverlapError, ShapeMismatch

Shape = tuple[int, ...]


def permuted(shape: Shape, order: Sequence[int], **options: Any) -> torch.Tensor:
    """A dense tensor whose axes lie in memory in an order, outermost first."""
    inverse = [list(order).index(k) for k in range(len(shape))]
    return torch.empty([shape[k] for k in order], **options).permute(inverse)


def layouts(shape: Shape, **options: Any) -> Iterator[torch.Tensor]:
    """Tensors that broadcast to a shape: in all orders of axes, with gaps, repeated, of size 1, and with fewer axes."""
    rank = len(shape)
    for order in itertools.permutations(range(rank)):
        yield permuted(shape, order, **options)
    for k in range(rank):
        with_gaps = (slice(None),) * k + (slice(None, None, 2),)
        one = (*shape[:k], 1, *shape[k + 1 :])
        yield torch.empty((*shape[:k], 2 * shape[k], *shape[k + 1 :]), **options)[with_gaps]
        yield permuted((*shape[:k], 2 * shape[k], *shape[k + 1 :]), range(rank)[::-1], **options)[with_gaps]
        yield torch.empty(one, **options)
        yield torch.empty(one, **options).expand(shape)
        yield permuted(one, range(rank)[::-1], **options).expand(shape)
        yield torch.empty(shape[k:], **options)
    yield torch.empty((), **options).expand(shape)
    yield torch.empty((), **options)


SMALL: list[Shape] = [(), (3,), (1,), (0,), (2, 3), (2, 2), (3, 1), (0, 2), (2, 3, 4), (2, 2, 2), (2, 1, 3), (3, 1, 1)]
LARGER: list[Shape] = [(2, 0, 3), (2, 3, 2, 4), (2, 2, 2, 2), (2, 3, 1, 1), (1, 3, 2, 2), (2, 1, 3, 2), (2, 3, 0, 2)]


def operands(*values: Any) -> list[Operand]:
    return [Operand.of(f"x{k}", value) for k, value in enumerate(values)]


def result(*values: Any) -> tuple[Shape, tuple[int, ...]]:
    """The shape and strides of a new result."""
    iteration = iterate(operands(*values))
    return iteration.shape, iteration.results[0]


def lies(tensor: torch.Tensor) -> tuple[Shape, tuple[int, ...]]:
    return tuple(tensor.shape), tensor.stride()


def facts(*tensors: torch.Tensor) -> list[tuple[Shape, tuple[int, ...]]]:
    return [lies(t) for t in tensors]


def raised(call: Callable[[], object], *kinds: type[Exception]) -> bool:
    try:
        call()
    except kinds:
        return True
    return False


# ---------------------------------------------------------------- strides of new results


@pytest.mark.parametrize("shape", [*SMALL, *LARGER], ids=str)
def test_one_operand(shape: Shape) -> None:
    for x in layouts(shape):
        assert result(x) == lies(torch.neg(x)), facts(x)


@pytest.mark.parametrize("shape", [*SMALL, *LARGER], ids=str)
def test_an_operand_and_a_number(shape: Shape) -> None:
    for x in layouts(shape):
        assert result(x, 2.0) == lies(torch.add(x, 2.0)), facts(x)


@pytest.mark.parametrize("shape", [*SMALL, *LARGER], ids=str)
def test_two_operands(shape: Shape) -> None:
    for a, b in itertools.product(layouts(shape), repeat=2):
        assert result(a, b) == lies(torch.add(a, b)), facts(a, b)


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_on_the_cpu_operands_of_other_dtypes_are_copied_first(shape: Shape) -> None:
    for a, b in itertools.product(layouts(shape), layouts(shape, dtype=torch.int32)):
        converted = b if b.dim() == 0 < a.dim() else b.to(torch.float32)
        assert result(a, converted) == lies(torch.add(a, b)), facts(a, b)


@pytest.mark.gpu
def test_two_operands_on_a_gpu() -> None:
    for shape in (*SMALL, *LARGER):
        for a, b in itertools.product(layouts(shape, device="cuda"), layouts(shape, device="cuda", dtype=torch.int32)):
            assert result(a, b) == lies(torch.add(a, b)), facts(a, b)
            assert result(a, a) == lies(torch.add(a, a)), facts(a)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 2), (3, 1), (0, 2), (2, 3, 2)], ids=str)
def test_three_operands(shape: Shape) -> None:
    for a, b, c in itertools.product(layouts(shape), repeat=3):
        assert result(a, b, c) == lies(torch.addcmul(a, b, c)), facts(a, b, c)


@pytest.mark.parametrize("shape", [(2, 3), (3, 1), (2, 1, 3)], ids=str)
def test_a_condition_and_two_operands(shape: Shape) -> None:
    for c, a, b in itertools.product(layouts(shape, dtype=torch.bool), layouts(shape), layouts(shape)):
        assert result(c, a, b) == lies(torch.where(c, a, b)), facts(c, a, b)
        assert result(c, a, 1.0) == lies(torch.where(c, a, 1.0)), facts(c, a)


@pytest.mark.parametrize("shape", [*SMALL, *LARGER], ids=str)
def test_layouts_are_named_as_pytorch_names_them(shape: Shape) -> None:
    for x in layouts(shape):
        assert is_contiguous(*lies(x)) == x.is_contiguous(), facts(x)
        channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        assert x.numel() == 0 or is_channels_last(*lies(x)) == channels_last, facts(x)
        assert is_dense(*lies(x)) == torch.ops.aten.is_non_overlapping_and_dense(x), facts(x)
        assert contiguous_strides(lies(x)[0]) == torch.empty(x.shape).stride()


def test_the_first_operand_that_can_tell_decides() -> None:
    plain, turned = torch.empty(4, 5), torch.empty(5, 4).t()
    assert iterate(operands(plain, turned)).order == (0, 1)
    assert iterate(operands(turned, plain)).order == (1, 0)
    bias, images = torch.empty(3, 1, 1), torch.empty(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert iterate(operands(bias, images)).order == (0, 2, 3, 1)
    assert permutation((2, 3), [(0, 1), (1, 0), (1, 2)]) == (1, 0)


# ---------------------------------------------------------------- broadcasting


def test_shapes_broadcast_as_pytorch_s() -> None:
    shapes = [shape for rank in range(4) for shape in itertools.product((0, 1, 2, 3), repeat=rank)]
    for a, b in itertools.product(shapes, repeat=2):
        try:
            wanted: Shape | None = tuple(torch.broadcast_shapes(a, b))
        except RuntimeError:
            wanted = None
        try:
            assert broadcast([a, b]) == wanted
        except ShapeMismatch:
            assert wanted is None, (a, b)
    for three in itertools.product(shapes[:21], repeat=3):
        assert raised(lambda: broadcast(three), ShapeMismatch) == raised(  # noqa: B023
            lambda: torch.broadcast_shapes(*three), RuntimeError  # noqa: B023
        )


def test_what_does_not_broadcast_is_named() -> None:
    with pytest.raises(ShapeMismatch) as refused:
        iterate([Operand.of(n, torch.empty(s)) for n, s in (("x", (2, 1, 4)), ("bias", (3, 1)), ("scale", (2, 5, 4)))])
    text = str(refused.value)
    assert "bias and scale do not broadcast" in text and "remedy: make their sizes along axis -2 agree" in text
    assert "bias has shape [3, 1], size 3 along axis -2" in text and "scale has shape [2, 5, 4], size 5 along axis -2" in text
    with pytest.raises(ShapeMismatch, match="operand 0 and operand 1"):
        broadcast([(2,), (3,)])


# ---------------------------------------------------------------- results that are given


def given_outs(shape: Shape) -> Iterator[torch.Tensor]:
    """Results that might be given for a shape: dense in all orders, with gaps, of no elements, of another shape."""
    for order in itertools.permutations(range(len(shape))):
        yield permuted(shape, order)
    for k in range(len(shape)):
        yield torch.empty((*shape[:k], 2 * shape[k], *shape[k + 1 :]))[(slice(None),) * k + (slice(None, None, 2),)]
    yield torch.empty(0)
    yield torch.empty(2, 0)
    yield torch.empty(0, 3, 2, 1).to(memory_format=torch.channels_last)
    yield torch.empty(())
    yield torch.empty(1)
    yield torch.empty((1, *shape))
    yield torch.empty((*shape[:-1], 7))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1), (0, 2), (2, 3, 2), (2, 3, 1, 2)], ids=str)
def test_a_given_result(shape: Shape) -> None:
    pairs = [(a, b) for a in layouts(shape) for b in (a, permuted(shape, range(len(shape))[::-1]), torch.empty(()))]
    for a, b in pairs:
        for out in given_outs(shape):
            before = lies(out)
            inputs, target = operands(a, b), Operand.of("out", out)
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # that elements were there to be resized: refused here
                refused = raised(lambda: torch.add(a, b, out=out), RuntimeError, UserWarning)  # noqa: B023
            if refused:
                with pytest.raises(ShapeMismatch, match="another shape"):
                    iterate(inputs, [target])
            else:
                iteration = iterate(inputs, [target])
                assert (iteration.shape, iteration.results[0]) == lies(out), (facts(a, b), before)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2), (2, 1, 3)], ids=str)
def test_a_result_in_place(shape: Shape) -> None:
    ones = [torch.empty([1 if k in at else n for k, n in enumerate(shape)]) for at in ((), (0,), (1,), (0, 1))]
    for a, b in itertools.product([*ones, torch.empty(()), torch.empty(0), torch.empty(0, 1)], repeat=2):
        x, y = operands(a, b)
        try:
            a.add_(b)
        except RuntimeError:
            with pytest.raises(ShapeMismatch):
                iterate([x, y], [x])
        else:
            assert iterate([x, y], [x]).results == (a.stride(),)


def test_results_are_refused_with_a_remedy() -> None:
    x, y, out = (Operand.of(n, torch.empty(s)) for n, s in (("x", (3, 1)), ("y", (3, 4)), ("out", (4, 3))))
    with pytest.raises(ShapeMismatch, match=r"x is updated in place, and the operands broadcast to \[3, 4\]"):
        iterate([x, y], [x])
    with pytest.raises(ShapeMismatch, match=r"(?s)out has another shape.*\[4, 3\].*remedy.*\[3, 4\].*resize_\(0\)"):
        iterate([x, y], [out])


def test_several_results_keep_what_is_theirs() -> None:
    x, out = Operand.of("x", torch.empty(4, 3)), Operand.of("out", torch.empty(3, 4).t())
    iteration = iterate([x], [None, out])
    assert iteration.order == (1, 0) and iteration.results == ((1, 4), (1, 4))
    assert iteration.strides == (iterate([x], [out]).strides[0], *iterate([x], [out]).strides)


# ---------------------------------------------------------------- axes to count along


def offsets(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The offsets of all operands at every point of a nest."""
    points = itertools.product(*map(range, sizes))
    return [tuple(sum(i * s for i, s in zip(at, own, strict=True)) for own in strides) for at in points]


@st.composite
def given_operands(draw: st.DrawFn) -> tuple[list[Operand], list[Operand | None]]:
    shape = tuple(draw(st.lists(st.integers(0, 4) if draw(st.integers(0, 9)) == 0 else st.integers(1, 4), max_size=5)))

    def strided(name: str, of: Shape) -> Operand:
        order, strides, step = draw(st.permutations(range(len(of)))), [0] * len(of), 1
        for k in order:
            strides[k], step = step, step * of[k] * draw(st.sampled_from([1, 1, 1, 2, 3]))
        return Operand(name, of, tuple(strides), torch.float32)

    inputs = []
    for k in range(draw(st.integers(1, 3))):
        whole = strided(f"x{k}", tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in shape))
        missing = draw(st.integers(0, len(shape))) if draw(st.booleans()) else 0
        inputs.append(Operand(whole.name, whole.shape[missing:], whole.strides[missing:], whole.dtype))
    final = broadcast([operand.shape for operand in inputs])
    return inputs, [strided("out", final) if draw(st.booleans()) else None for _ in range(draw(st.integers(1, 2)))]


def nested(iteration: Iteration, inputs: list[Operand]) -> list[tuple[int, ...]]:
    """The offsets of all operands at every element of the results, in the user's axes, by indexing."""
    points = []
    for at in itertools.product(*map(range, iteration.shape)):
        own = [sum(i * s for i, s in zip(at, strides, strict=True)) for strides in iteration.results]
        for x in inputs:
            tail = at[len(at) - len(x.shape) :]
            own.append(sum((0 if n == 1 else i) * s for i, n, s in zip(tail, x.shape, x.strides, strict=True)))
        points.append(tuple(own))
    return points


@given(given_operands())
@examples(300)
def test_the_axes_visit_every_element_and_are_fewest(case: tuple[list[Operand], list[Operand | None]]) -> None:
    inputs, outs = case
    iteration = iterate(inputs, outs)
    assert sorted(offsets(iteration.sizes, iteration.strides)) == sorted(nested(iteration, inputs))
    assert iteration.elements == math.prod(iteration.shape) and 1 not in iteration.sizes
    rows = list(zip(*iteration.strides, strict=True))
    for (size, inner), outer in zip(list(zip(iteration.sizes, rows, strict=True))[1:], rows, strict=False):
        assert any(a != size * b for a, b in zip(outer, inner, strict=True)), "two axes are one"
    for out, strides in zip(outs, iteration.results, strict=True):
        assert out is None or strides == out.strides
        assert out is not None or is_dense(iteration.shape, strides)


def test_axes_of_a_few_operands() -> None:
    def axes(*values: Any) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        iteration = iterate(operands(*values))
        return iteration.sizes, iteration.strides

    x = torch.empty(4, 3, 8, 8)
    assert axes(x, x) == ((768,), ((1,), (1,), (1,)))
    assert axes(x.permute(2, 0, 3, 1)) == ((768,), ((1,), (1,)))
    assert axes(x, torch.empty(3, 1, 1)) == ((4, 3, 64), ((192, 64, 1), (192, 64, 1), (0, 1, 0)))
    assert axes(x, 2.0) == ((768,), ((1,), (1,), (0,)))
    assert axes(torch.empty(6, 4), torch.empty(4, 6).t()) == ((6, 4), ((4, 1), (4, 1), (1, 6)))
    assert axes(torch.empty(2, 1, 5)[:, :, ::2]) == ((2, 3), ((3, 1), (5, 2)))
    assert axes(torch.empty(())) == axes(torch.empty(1, 1)) == ((), ((), ()))
    assert axes(torch.empty(2, 0), torch.empty(1)) == ((0,), ((0,), (0,), (0,)))
    assert coalesce((), (), []) == ((), ())


def test_offsets_of_64_bits() -> None:
    most = 2**31 - 1

    def wide(shape: Shape, *strides: tuple[int, ...], widths: Sequence[int]) -> bool:
        inputs = [Operand(f"x{k}", shape, own, torch.int8) for k, own in enumerate(strides)]
        return iterate(inputs).wide(widths)

    assert not wide((most,), (1,), widths=(1, 1)) and wide((most + 1,), (1,), widths=(1, 1))
    assert wide((most + 1,), (0,), widths=(1, 1)), "elements"
    half = 2**29
    assert not wide((half,), (1,), widths=(2, 2)) and not wide((half,), (1,), widths=(2, 4))
    assert wide((half + 1,), (1,), widths=(2, 4)) and wide((half + 1,), (1,), widths=(4, 2)), "bytes, of any operand"
    assert wide((2,), (most,), widths=(1, 1)) and not wide((2,), (most - 1,), widths=(1, 1)), "a span with gaps"
    assert not wide((3, half), (0, 1), widths=(1, 4)), "1.5 * 2**30 elements, of which one operand has 2**31 bytes"


# ---------------------------------------------------------------- memory


def shared(a: torch.Tensor, b: torch.Tensor, shape: Shape) -> bool:
    """Whether elements of different indices share a byte, element by element."""

    def touched(x: torch.Tensor) -> list[set[int]]:
        spread = x.expand(shape)
        starts = [s for (s,) in offsets(shape, [spread.stride()])]
        return [{(x.storage_offset() + s) * x.itemsize + k for k in range(x.itemsize)} for s in starts]

    first, second = touched(a), touched(b)
    return any(p != q and first[p] & second[q] for p, q in itertools.product(range(len(first)), repeat=2))


def views(memory: torch.Tensor) -> Iterator[torch.Tensor]:
    for offset, size, stride in itertools.product(range(3), (1, 2, 3), range(4)):
        yield memory.as_strided((size,), (stride,), offset)
    for offset, outer, inner in itertools.product((0, 1), (0, 1, 2, 3, 4), (0, 1, 2, 3)):
        yield memory.as_strided((2, 2), (outer, inner), offset)
        yield memory.as_strided((1, 2), (outer, inner), offset)


def test_memory_is_refused_where_pytorch_does_and_where_elements_meet() -> None:
    memory = torch.zeros(64, dtype=torch.int16)
    for out, x in itertools.product(views(memory), [*views(memory), memory[3], memory[:0], *views(memory.view(torch.int8))]):
        shape = tuple(out.shape)
        if raised(lambda: x.expand(shape), RuntimeError):  # noqa: B023
            continue
        theirs = raised(lambda: torch.add(x, torch.zeros(shape, dtype=torch.int16), out=out), RuntimeError)  # noqa: B023
        ours = raised(lambda: check_memory([Operand.of("out", out)], operands(x, 0), shape), OverlapError)  # noqa: B023
        meets = shared(out, out, shape) or shared(out, x, shape)
        assert ours == (theirs or meets), (lies(out), out.storage_offset(), lies(x), x.storage_offset(), x.dtype)


def test_in_place_and_several_results() -> None:
    y = torch.zeros(4, 4)
    x, turned, row = Operand.of("y", y), Operand.of("turned", y.t()), Operand.of("row", y[:1])
    check_memory([x], [x, x], (4, 4))
    check_memory([x], [Operand.of("again", y[:])], (4, 4))
    check_memory([None], [x], (4, 4))
    check_memory([Operand.of("diagonal", y.diagonal())], [Operand.of("column", y[:, 0])], (4,))
    check_memory([Operand.of("even", y[:, ::2])], [Operand.of("odd", y[:, 1::2])], (4, 2))
    for other in (turned, row):
        with pytest.raises(OverlapError, match=f"(?s)y is written, and {other.name} shares memory.*pass {other.name}.clone"):
            check_memory([x], [x, other], (4, 4))
    with pytest.raises(OverlapError, match="column shares memory"):  # PyTorch divides by what it just wrote, or not
        check_memory([x], [x, Operand.of("column", y[:, :1])], (4, 4))
    with pytest.raises(OverlapError, match="y is written too"):
        check_memory([x, turned], [], (4, 4))
    with pytest.raises(OverlapError, match="two of its elements share memory"):
        check_memory([Operand.of("rows", y[:1].expand(4, 4))], [], (4, 4))
    with pytest.raises(OverlapError, match="two of its elements share memory"):
        check_memory([Operand.of("windows", torch.empty(5).unfold(0, 2, 1))], [], (4, 2))


def test_memory_that_is_none_and_storages_apart() -> None:
    a, b = torch.empty(8, device="meta"), torch.empty(8, device="meta")
    for step in (1, 2):
        check_memory([Operand.of("a", a[:-2:step])], [Operand.of("b", b[2::step])], (6 // step,))
    with pytest.raises(OverlapError):
        check_memory([Operand.of("a", a[1:])], [Operand.of("b", a[:-1])], (7,))
    check_memory([Operand("a", (7,), (1,), torch.float32)], operands(a[1:], 2), (7,))
    large = torch.empty(2**20, 2**10, device="meta")
    check_memory([Operand.of("left", large[:, :512])], [Operand.of("right", large[:, 512:])], (2**20, 512))
