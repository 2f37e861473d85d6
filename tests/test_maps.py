"""Nests that carry nothing: their courses, their plans, and what the kernels compute, simulated and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.examples import examples
from tests.fuzz_programs import arguments, compiled, generate
from tests.kernels_of_maps import (
    CASES,
    add,
    biased,
    embedding,
    five_points,
    heads_first,
    inside,
    joined,
    of_rows,
    paged,
    rotated,
    transposed,
    up_to_lengths,
    where_kept,
)
from weft.compiler import Launch
from weft.errors import WeftError
from weft.plan.map import ANY, NO_RUN, CoursePlan, MapPlan, turned_layout
from weft.pytorch.inspection import examine
from weft.pytorch.simulated import simulate_call

Golden = Callable[[str, str], None]
EVERY = [pytest.param(name, k, id=f"{name}-{k}") for name, (_, makes) in CASES.items() for k in range(len(makes))]


def launches(kernel: Any, *args: Any) -> tuple[Launch, ...]:
    return examine(kernel, args).launches()


def plan(kernel: Any, *args: Any) -> CoursePlan:
    (launch,) = launches(kernel, *args)
    assert isinstance(launch.variant.plan, MapPlan)
    return launch.variant.plan.courses[launch.course]


# ---------------------------------------------------------------- plans


def test_axes_that_follow_each_other_everywhere_are_counted_as_one() -> None:
    x = "float32[4,16,1024,64]"
    assert plan(add, x, x).axes == (("i0", "i1", "i2", "i3"),)
    permuted = f"{x}:(1048576,64,1024,1)"
    assert plan(add, x, permuted).axes == (("i0",), ("i1",), ("i2",), ("i3",))
    assert plan(heads_first, "float32[4,1024,1,64]").axes == (("i", "k", "c"),)  # one head


def test_what_is_aligned_moves_in_packets_of_16_bytes() -> None:
    found = plan(biased, "bfloat16[64,4096]", "float32[4096]", "bfloat16[64,4096]")
    assert (found.vector, found.turns, found.whole, found.widths) == (8, 1, True, (8, 4, 8, 8))


def test_what_is_read_on_conditions_on_axes_moves_in_packets() -> None:
    found = plan(rotated, "bfloat16[64,128]", "bfloat16[128]", "bfloat16[128]")
    assert (found.vector, found.widths) == (8, (8, 8, 8, 8, 8, 8))
    found = plan(joined, "bfloat16[9,64]", "bfloat16[9,33]", "bfloat16[4,97]")
    assert len(found.at_need) == 3  # what begins between packets is read where it is needed


def test_rows_that_begin_anywhere_are_cut_where_the_results_packets_are() -> None:
    found = plan(add, "float32[64,4095]:(4098,1)", "float32[64,4095]:(4097,1)")
    assert found.wrapped == ((0, 1), (1, 1))
    found = plan(of_rows, "float32[64,4095]:(4098,1)", "float32[64]")
    assert found.shift is None and found.widths == (NO_RUN, ANY, 4)
    assert plan(inside, "float32[64,4096]").shift == 1


def test_packets_go_on_from_row_to_row_past_operands_that_begin_elsewhere() -> None:
    found = plan(biased, "float32[64,4095]", "float32[4095]", "float32[64,4095]")
    assert found.wrapped == ((1, 1),) and found.shift == 0 and found.lane == ("i", "j")
    assert not plan(biased, "float32[64,4096]", "float32[4096]", "float32[64,4096]").wrapped  # rows are whole packets
    column = plan(add, "bfloat16[64,4095]", "bfloat16[64,4095]:(1,0)")
    assert column.wrapped == ((1, 0),) and column.vector == 8
    assert not plan(of_rows, "float32[64,4095]", "float32[64]").wrapped  # what is computed once a row stays so


def test_neighbours_of_a_stencil_are_single_elements() -> None:
    assert (plan(five_points, "float32[64,4096]").vector, plan(inside, "float32[64,4096]").vector) == (1, 4)


def test_a_broadcast_operand_is_read_once_a_row() -> None:
    found = plan(add, "float32[64,4096]", "float32[64,4096]:(1,0)")
    assert found.still == (("z", 1),)
    assert "const float z_value = z[i0];" in add.source("float32[64,4096]", "float32[64,4096]:(1,0)", arch="sm_90a")


def test_rows_that_data_choose_are_counted_as_one_and_have_more_in_flight() -> None:
    args = "bfloat16[3001,16,1024]", "int64[37,75]"
    found = plan(paged, *args)
    assert found.axes == (("i", "j"), ("a", "b")) and (found.vector, found.turns, found.threads) == (8, 2, 128)
    assert "weft::store<8>(y_i_j + a_b_run, pages_tile[turn]);" in paged.source(*args, arch="sm_90a")  # not converted
    assert plan(paged, "float32[3001,16,1024]", "int64[37,75]:(1,37)").axes == (("i",), ("j",), ("a", "b"))
    turns = [plan(embedding, f"bfloat16[50,{n}]", "int64[300]").turns for n in (1024, 256, 128, 64)]
    assert turns == [2, 2, 1, 1]  # threads side by side have whole lines of memory


def test_whole_packets_are_streamed_by_small_blocks() -> None:
    for args in (("float32[64,4096]",) * 2, ("bfloat16[64,4096]",) * 2, ("float32[64,4096]", "bfloat16[4096]")):
        found = plan(add, *args)
        assert (found.threads, found.turns, found.whole) == (128, 1, True)
    for args in (("float32[64,4095]", "float32[64,4095]:(4097,1)"), ("float32[64,4096]", "float32[64,4096]:(8192,2)")):
        found = plan(add, *args)
        assert (found.threads, found.turns) == (256, 2)


def test_rows_that_store_under_one_condition_move_in_packets() -> None:
    found = plan(where_kept, "bfloat16[64,4096]", "int64[64]")
    assert (found.vector, found.whole) == (8, True)
    assert "if (!(keep_value > 0)) return;" in where_kept.source("bfloat16[64,4096]", "int64[64]", arch="sm_90a")


def test_what_lies_along_another_axis_is_turned_in_squares() -> None:
    found = plan(transposed, "float16[4096,4096]", "float16[4096,4096]")
    assert (found.turned, found.turns_over, found.side, found.vector, found.turns) == ("i", (1,), 64, 8, 2)
    assert plan(transposed, "float16[4096,5]", "float16[5,4096]").turned == ""  # less than a square is worth
    permuted = plan(add, "float32[8,64,16,64]", "float32[8,64,16,64]:(65536,1,4096,64)")
    assert (permuted.turned, permuted.axes[-1], permuted.turns_over) == ("i1", ("i2", "i3"), (1,))


@pytest.mark.parametrize("vector, side, size", [(8, 64, 4), (4, 64, 4), (2, 32, 4), (1, 32, 4), (2, 32, 8), (1, 32, 8)])
def test_no_bank_is_met_twice_in_a_turn(vector: int, side: int, size: int) -> None:
    """Of what a warp puts, and of what it gets, whichever of its neighbours; and the layout is that of the text."""
    layout, across = turned_layout(side, vector), side // vector
    lanes = [(lane % across * vector, lane // across) for lane in range(32)]
    best = 1 if size == 4 else 2
    for v in range(vector):
        for places in ([layout((x + v, y)) for x, y in lanes], [layout((y, x + v)) for x, y in lanes]):
            assert len({p * size // 4 % 32 for p in places}) * best >= 32
    assert sorted(layout.values()) == list(range(side * side))
    place = [x // vector + x % vector * across for x in range(side)]
    assert all(layout((x, y)) == place[y] * side + (place[x] ^ place[y] % 32) for x in range(side) for y in range(side))


def test_rows_beyond_32_bits_are_counted_in_64() -> None:
    assert plan(heads_first, "uint8[2,8192,32768,2]").narrow
    assert not plan(heads_first, "uint8[2,65536,32768,2]").narrow


# ---------------------------------------------------------------- what the kernels compute


@pytest.mark.parametrize("name, k", EVERY)
def test_the_kernels_compute_what_the_loops_do(name: str, k: int) -> None:
    kernel, makes = CASES[name]
    args = makes[k]()
    assert all(isinstance(x.variant.plan, MapPlan) for x in launches(kernel, *args))
    report = kernel.check(*args)
    assert not report.findings and report.ok, str(report)
    assert all(s.turns == s.ideal_turns for x in report.launches for s in x.sites if s.space == "shared")


@pytest.mark.parametrize(
    "kernel, args",
    [
        (embedding, (torch.ones(9, 40), torch.tensor([0, 9]))),
        (embedding, (torch.ones(9, 40), torch.tensor([-10, 1]))),
        (up_to_lengths, (torch.ones(3, 40), torch.tensor([5, 41, 2]))),
    ],
)
def test_a_subscript_that_leaves_its_array_ends_the_kernel(kernel: Any, args: tuple[torch.Tensor, ...]) -> None:
    ran = simulate_call(kernel.program, args, "sm_90a", 0, "forward")
    assert "trap" in {f.kind for x in ran.launches for s in x.simulations for f in s.findings}


DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.bool)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of a shape, in any order of memory, with gaps, expanded, overlapping, beginning anywhere."""
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), draw(st.sampled_from((1, 1, 1, 2)))
    for axis in order:
        kind = draw(st.sampled_from(("follows", "follows", "gap", "expanded", "overlaps")))
        strides[axis] = 0 if kind == "expanded" else step
        step = step if kind in ("expanded", "overlaps") else step * max(1, shape[axis]) + (3 if kind == "gap" else 0)
    first = draw(st.integers(0, 5))
    size = first + 1 + sum(max(0, n - 1) * s for n, s in zip(shape, strides, strict=True))
    memory = torch.randint(0, 5, (size,), generator=torch.Generator().manual_seed(size)).to(draw(st.sampled_from(DTYPES)))
    return memory.as_strided(shape, strides, first)


@examples(6)
@given(st.data())
def test_views_of_any_kind(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.sampled_from((0, 1, 2, 3, 8, 33, 64)), min_size=1, max_size=3)))
    x, z = data.draw(views(shape)), data.draw(views(shape))
    report = add.check(x, z)
    assert not report.findings and report.ok, str(report)


@examples(4)
@given(st.data())
def test_transposed_views_of_any_kind(data: st.DataObject) -> None:
    n, m = data.draw(st.sampled_from((1, 5, 33, 64, 70))), data.draw(st.sampled_from((1, 16, 40, 67, 128)))
    x, z = data.draw(views((n, m))), data.draw(views((m, n)))
    report = transposed.check(x, z)
    assert not report.findings and report.ok, str(report)


@st.composite
def conditional_programs(draw: st.DrawFn) -> str:
    """Reads at other places, where these are inside and some more conditions hold."""

    def condition() -> str:
        axis = draw(st.sampled_from(("i", "j", "i + j", "j - i", "2 * j")))
        sign = draw(st.sampled_from(("<", ">=", "==", "<=", ">")))
        text = f"{axis} {sign} {draw(st.sampled_from(('m // 2', 'n', '8', 'k')))}"
        return draw(st.sampled_from((text, f"not {text}", f"({text} or j < 16)", f"not ({text} and i > 1)")))

    def read() -> str:
        down, right = draw(st.integers(-1, 1)), draw(st.sampled_from((-16, -8, -3, 0, 1, 8, 16)))
        turned = draw(st.booleans()) and draw(st.booleans())
        inside = [f"i + {down} >= 0", f"i + {down} < n", f"j + {right} >= 0", f"j + {right} < m"]
        more = [condition() for _ in range(draw(st.integers(0, 2)))]
        where = " and ".join(draw(st.permutations(inside + more)))
        return f"({f'z[j + {right}, i + {down}]' if turned else f'x[i + {down}, j + {right}]'} if {where} else 1.0)"

    value = " + ".join(read() for _ in range(draw(st.integers(1, 4))))
    guard = draw(st.sampled_from(("", condition())))
    store = "            y[i, j] = " + value
    lines = [f"            if {guard}:", "    " + store] if guard else [store]
    head = ["import torch", "", "def program(x, z, k: int):", "    n, m = x.shape", "    y = torch.zeros(n, m, dtype=x.dtype)"]
    return "\n".join([*head, "    for i in range(n):", "        for j in range(m):", *lines, "    return y", ""])


@examples(5)
@given(conditional_programs(), st.sampled_from((torch.bfloat16, torch.float32)), st.sampled_from((64, 37)))
def test_reads_on_conditions_of_any_kind(source: str, dtype: torch.dtype, m: int) -> None:
    kernel = weft.kernel(compiled(source, f"conditions {hash(source)}"))
    generator = torch.Generator().manual_seed(m)
    x, z = (torch.randn(shape, generator=generator).to(dtype) for shape in ((5, m), (m, 5)))
    report = kernel.check(x, z, 9)
    assert not report.findings and report.ok, f"{source}\n{report}"


def test_random_programs() -> None:
    met = 0
    for seed in range(20, 29):
        program = generate(seed)
        kernel = weft.kernel(compiled(program.source, f"maps {seed}"))
        args = arguments(program, {"n": 21, "m": 17, "d": 3}, seed)
        try:
            met += any(isinstance(x.variant.plan, MapPlan) for x in launches(kernel, *args))
        except WeftError:
            continue
        report = kernel.check(*args)
        assert not report.differences, str(report)
    assert met >= 2


@pytest.mark.parametrize(
    "title, kernel, specs",
    [
        ("flat", add, ("float16[1024,4096]", "float16[1024,4096]")),
        ("rotated", rotated, ("bfloat16[4096,64]", "bfloat16[64]", "bfloat16[64]")),
        ("joined", joined, ("bfloat16[1024,64]", "bfloat16[1024,32]", "bfloat16[512,96]")),
        ("unaligned_rows", biased, ("bfloat16[1024,4095]", "bfloat16[4095]", "bfloat16[1024,4095]")),
        ("permuted", add, ("float16[4,16,1024,64]", "float16[4,16,1024,64]:(1048576,64,1024,1)")),
        ("transposed", transposed, ("float16[4096,4096]", "float16[4096,4096]")),
        ("embedding", embedding, ("float16[50304,1024]", "int64[8192]")),
        ("five_points", five_points, ("float32[8192,8192]",)),
        ("up_to_lengths", up_to_lengths, ("float32[1024,4096]", "int64[1024]")),
    ],
)
def test_the_text(title: str, kernel: Any, specs: tuple[str, ...], golden: Golden) -> None:
    golden(f"cuda/maps_{title}.cu", kernel.source(*specs, arch="sm_90a"))


def test_what_neighbours_beyond_the_end_are_computed_of_has_a_value() -> None:
    kernel = weft.kernel("""
def three(x):
    y = torch.empty(3, dtype=x.dtype)
    for i in range(3):
        y[i] = torch.sqrt(x[i] * x[i] + 0.5)
    return y
""")
    report = kernel.check(torch.randn(6, dtype=torch.float64)[::2])
    assert report.ok, str(report)


@pytest.mark.gpu
@pytest.mark.parametrize("name, k", EVERY)
def test_on_a_gpu(name: str, k: int) -> None:
    kernel, makes = CASES[name]
    args = makes[k]()
    want = kernel.py(*(a.clone() if isinstance(a, torch.Tensor) and a.is_contiguous() else a for a in args))
    given = [a.cuda() if isinstance(a, torch.Tensor) else a for a in args]
    found = kernel(*given)
    pairs = [(found, want)] if isinstance(want, torch.Tensor) else list(zip(found or (), want or (), strict=True))
    for got, expected in pairs:
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("given", "vector"), [(("float16", "float32"), 4), (("uint8", "float32"), 4), (("int32", "float16"), 8)]
)
def test_neighbours_of_a_thread_are_what_it_stores_in_one_packet(given: tuple[str, str], vector: int) -> None:
    """Of two packets that a thread stores one after the other, each would be half of a sector of memory."""
    from weft import ops

    text = ops.mul.source(*(f"{dtype}[4096]" for dtype in given), arch="sm_90a")
    assert f"weft::store<{vector}>" in text and f"float result_run[{vector}];" in text
