"""Elements that a loop updates in place: kept in scalars, loops moved and distributed for them, and nothing else changed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.examples import chunks, examples
from tests.fuzz_oracle import replay
from tests.fuzz_programs import compiled
from weft.errors import OutOfRange, WeftError
from weft.language import parse, read_signature
from weft.loops.analyze import schedule
from weft.loops.ir import For, Function, validate
from weft.loops.schedule import Schedule
from weft.pytorch.call import argument_types

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


def parsed(function: Callable[..., Any], *args: Any) -> Function:
    signature = read_signature(function)
    types = argument_types(signature, args)
    return parse(function, dict(zip([p.name for p in signature.parameters], types, strict=True)))


def kinds(function: Callable[..., Any], *args: Any) -> dict[str, str]:
    return {v.var: v.kind for v in schedule(parsed(function, *args)).loops}


def as_function(found: Schedule) -> Function:
    """The nests of a schedule as one function, their axes as loops."""
    body = []
    for nest in found.nests:
        inner = nest.body
        for axis in reversed(nest.axes):
            inner = (For(axis.var, axis.start, axis.stop, axis.step, (), inner),)
        body += inner
    return Function(**{**vars(found.function), "body": tuple(body)})


def outputs(function: Callable[..., Any], *args: Any) -> list[torch.Tensor]:
    """What a function returns and leaves in copies of its arguments."""
    own = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    result = function(*own)
    results = () if result is None else result if isinstance(result, tuple) else (result,)
    return [a for a in (*results, *own) if isinstance(a, torch.Tensor)]


def same(function: Callable[..., Any], *args: Any, kernel: bool = True) -> None:
    """The schedule, in any order that it allows, and the compiled kernel give what the Python gives."""
    analysed = parsed(function, *args)
    found = schedule(analysed)
    validate(as_function(found))
    roads = [
        function,
        lambda *own: replay(analysed, found, own, random.Random(0)),
        *([weft.kernel(function)] if kernel else []),
    ]
    wanted, *others = [outputs(road, *args) for road in roads]
    for other in others:
        for a, b in zip(wanted, other, strict=True):
            torch.testing.assert_close(b, a, equal_nan=True)


# ---------------------------------------------------------------- sums in an element


def matrix_vector(a, x, y):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] += a[i, j] * x[j]


def below_diagonal(a, x, y):
    for i in range(a.shape[0]):
        for j in range(i):
            y[i] += a[i, j] * x[j]


def forward_substitution(l, x, b):
    for i in range(l.shape[0]):
        x[i] = b[i]
        for j in range(i):
            x[i] -= l[i, j] * x[j]
        x[i] = x[i] / (2.0 + l[i, i])


def triangular_product(a, b):
    m, n = b.shape
    for i in range(m):
        for j in range(n):
            for k in range(i + 1, m):
                b[i, j] += a[k, i] * b[k, j]


def chosen(a, y, limit: float):
    for i in range(a.shape[0]):
        if i + 1 < y.shape[0]:
            for j in range(a.shape[1]):
                if a[i, j] > limit:
                    y[i + 1] += a[i, j]


def to_where(a, p, y):
    for i in range(p.shape[0]):
        k = p[i]
        for j in range(a.shape[1]):
            y[k] += a[i, j]


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (1, 1), (3, 0), (0, 3)])
def test_a_sum_into_an_element_without_a_store_before_it(rows: int, columns: int) -> None:
    args = drawn(rows, columns), drawn(columns), drawn(rows)
    assert kinds(matrix_vector, *args) == {"i": "parallel", "j": "reduction"}
    same(matrix_vector, *args)


def test_an_element_that_no_iteration_touches_need_not_be_there() -> None:
    same(matrix_vector, drawn(3, 0), drawn(0), drawn(0))
    same(below_diagonal, drawn(1, 1), drawn(0), drawn(0))
    same(to_where, drawn(3, 0), torch.tensor([1, 7, 0]), drawn(2))
    with pytest.raises(OutOfRange):
        weft.kernel(matrix_vector)(drawn(3, 2), drawn(2), drawn(2))


def test_what_else_is_read_of_the_array_is_never_the_element() -> None:
    assert kinds(forward_substitution, drawn(4, 4), drawn(4), drawn(4))["j"] == "reduction"
    same(forward_substitution, drawn(4, 4), drawn(4), drawn(4))
    assert kinds(triangular_product, drawn(4, 4), drawn(4, 3))["k"] == "reduction"
    same(triangular_product, drawn(4, 4), drawn(4, 3))


def test_a_sum_of_chosen_elements() -> None:
    assert kinds(chosen, drawn(4, 5), drawn(9), 0.1) == {"i": "parallel", "j": "reduction"}
    for size in (9, 3, 0):
        same(chosen, drawn(4, 5), drawn(size), 0.1)


def test_an_element_that_may_be_another_one_stays_in_memory() -> None:
    def maybe_itself(a, where, k: int):
        for j in range(where.shape[0]):
            a[k] += a[where[j]]

    where = torch.tensor([1, 2, 0, 2])
    assert kinds(maybe_itself, drawn(6), where, 2)["j"] == "sequential"
    for k in (0, 2, 5):
        same(maybe_itself, drawn(6), where, k)


def test_a_subscript_that_the_loop_changes_names_no_one_element() -> None:
    def running(flat, b):
        k = 0
        for j in range(b.shape[0]):
            flat[k] += b[j]
            k += j + 1

    def beside(y, b):
        k = 0
        for i in range(1, b.shape[0]):
            y[i + k] = y[i + k - 1] + b[i]
            k = k + 2 * i

    same(running, drawn(30), drawn(5))
    same(beside, drawn(80), drawn(6))


def test_an_element_of_one_iteration_of_a_parallel_loop_is_not_stored_by_the_others() -> None:
    def first_alone(s, a, out):
        for i in range(a.shape[0]):
            if i == 1:
                for j in range(a.shape[1]):
                    s[0] += a[i, j]
            out[i] = a[i, 0]

    def inner_guard(s, a):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                if i == 0:
                    s[0] += a[i, j]

    def in_a_result(a):
        s = torch.zeros(2, dtype=a.dtype)
        out = torch.zeros(a.shape[0], dtype=a.dtype)
        for i in range(a.shape[0]):
            if i == 1:
                for j in range(a.shape[1]):
                    s[0] += a[i, j]
            out[i] = a[i, 0]
        return s, out

    same(first_alone, drawn(2), drawn(4, 5), drawn(4))
    same(in_a_result, drawn(9, 5))
    same(inner_guard, drawn(1), drawn(3, 5))


def test_a_bound_that_the_loop_overwrites_is_read_before_it() -> None:
    def shrinking(a, p, y):
        for i in range(a.shape[0]):
            for j in range(p[i]):
                y[i] += a[i, j]
                p[i] = 2

    same(shrinking, drawn(3, 6), torch.tensor([3, 0, 5]), drawn(3))


# ---------------------------------------------------------------- sums in arrays


def transposed_product(a, x, y, t):
    m, n = a.shape
    for i in range(m):
        t[i] = 0.0
        for j in range(n):
            t[i] = t[i] + a[i, j] * x[j]
        for j in range(n):
            y[j] = y[j] + a[i, j] * t[i]


def two_products(a, s, q, p, r):
    n, m = a.shape
    for i in range(n):
        q[i] = 0.0
        for j in range(m):
            s[j] = s[j] + r[i] * a[i, j]
            q[i] = q[i] + a[i, j] * p[j]


def symmetric_rank(c, a):
    n, m = a.shape
    for i in range(n):
        for k in range(m):
            for j in range(i + 1):
                c[i, j] += a[i, k] * a[j, k]


def symmetric_product(c, a, b):
    m, n = c.shape
    for i in range(m):
        for j in range(n):
            total = 0.0
            for k in range(i):
                c[k, j] += b[i, j] * a[i, k]
                total += b[k, j] * a[i, k]
            c[i, j] = 0.5 * c[i, j] + b[i, j] * a[i, i] + total


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_a_loop_adds_up_in_an_array(rows: int) -> None:
    args = drawn(rows, 3), drawn(3), drawn(3), drawn(rows)
    assert sorted(kinds(transposed_product, *args).values()) == ["parallel", "reduction", "reduction"] or rows == 0
    same(transposed_product, *args)
    args = drawn(rows, 3), drawn(3), drawn(rows), drawn(3), drawn(rows)
    assert kinds(two_products, *args) == {"i": "reduction", "j": "reduction"}
    same(two_products, *args)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_loop_adds_up_in_a_triangle(rows: int) -> None:
    assert kinds(symmetric_rank, drawn(rows, rows), drawn(rows, 3)) == {"i": "parallel", "k": "reduction", "j": "parallel"}
    same(symmetric_rank, drawn(rows, rows), drawn(rows, 3))
    args = drawn(rows, 3), drawn(rows, rows), drawn(rows, 3)
    assert kinds(symmetric_product, *args) == {"i": "reduction", "j": "parallel", "k": "reduction"}
    same(symmetric_product, *args)


def test_a_distributed_loop_says_so() -> None:
    found = {v.var: v for v in schedule(parsed(symmetric_product, drawn(4, 3), drawn(4, 4), drawn(4, 3))).loops}
    assert "distribution: in 2 loops" in found["i"].requires
    assert "interchange: moved into the loop in it" in found["i"].requires


# ---------------------------------------------------------------- on a GPU


def scaled_by_its_sum(a, y):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] += a[i, j]
        y[i] = 0.5 * y[i]
        for j in range(a.shape[1]):
            a[i, j] *= y[i]


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="no C++ compiler")
@pytest.mark.parametrize("columns", [5, 700, 5000])
def test_an_element_is_read_by_all_threads_before_one_stores_it(columns: int) -> None:
    report = weft.kernel(matrix_vector).check(drawn(3, columns), drawn(columns), drawn(3))
    assert report.ok, report.text()
    report = weft.kernel(scaled_by_its_sum).check(drawn(3, columns), drawn(3))
    assert report.ok, report.text()


# ---------------------------------------------------------------- random programs

_BOUNDS = ("range(n)", "range({outer})", "range({outer} + 1)", "range({outer}, n)", "range({outer} + 1, n)", "range(1, n)",
           "range(n - 1, -1, -1)", "range(0, n, 2)", "range(m // 2)")  # fmt: skip


def updates(seed: int) -> str:
    """Loops around updates of elements of a few square arrays, n by n and n."""
    order = random.Random(seed)
    parameters = ", ".join(f"{name}: torch.Tensor" for name in "abcxyz")
    lines = [f"def program({parameters}):", "    n = a.shape[0]", "    m = b.shape[1]"]

    def index(loops: list[str]) -> str:
        one = order.choice(loops)
        return order.choice([one] * 6 + ["0", f"n - 1 - {one}", f"max({one} - 1, 0)"])

    def element(loops: list[str], names: str = "abcxyz") -> str:
        name = order.choice(names)
        return f"{name}[{index(loops)}, {index(loops)}]" if name in "abc" else f"{name}[{index(loops)}]"

    def update(loops: list[str], indent: str) -> None:
        if order.random() < 0.15:
            lines.append(f"{indent}if {order.choice([f'{order.choice(loops)} == 1', f'{element(loops)} > 0.0'])}:")
            indent += "    "
        target, other = element(loops, "acxz"), element(loops)
        form = order.choice(("{t} += {o}", "{t} += {o} * {p}", "{t} -= 0.5 * {o}", "{t} = max({t}, {o})", "{t} = {o}",
                             "{t} = 0.5 * {t} + {o}", "{t} += {o}"))  # fmt: skip
        lines.append(indent + form.format(t=target, o=other, p=element(loops, "by")))

    def block(loops: list[str], indent: str, depth: int) -> None:
        for _ in range(order.randint(1, 2)):
            if depth and order.random() < 0.65:
                var = f"i{len(lines)}"
                bounds = order.choice(_BOUNDS if loops else [b for b in _BOUNDS if "outer" not in b])
                lines.append(f"{indent}for {var} in {bounds.format(outer=loops[-1] if loops else '')}:")
                block([*loops, var], indent + "    ", depth - 1)
            elif loops:
                update(loops, indent)
            else:
                lines.append(f"{indent}for e{len(lines)} in range(n):")
                block([f"e{len(lines) - 1}"], indent + "    ", depth - 1)

    block([], "    ", 3)
    return "\n".join(lines) + "\n"


def squares(n: int) -> list[torch.Tensor]:
    return [drawn(n, n + k) for k in (0, 1, 0)] + [drawn(n + k) for k in (0, 0, 2)]


@pytest.mark.fuzz
@examples(4)
@given(st.integers(0, 10**6))
def test_random_updates_in_any_order_that_the_schedule_allows(seed: int) -> None:
    source = updates(seed)
    function = compiled(source, f"<updates {seed}>")
    for n in (4, 5, 1):
        try:
            same(function, *squares(n), kernel=False)
        except AssertionError as error:
            raise AssertionError(f"{error}\n\n{source}") from error
        except WeftError:
            pass  # refused


@pytest.mark.parametrize("seed", chunks(12, 1, 4))
def test_random_updates_as_kernels(seed: int) -> None:
    function = compiled(updates(1000 + seed), f"<updates as kernel {seed}>")
    for n in (5, 2):
        same(function, *squares(n))


def test_an_element_is_not_looked_for_before_the_range_is_known_that_stores_it():
    @weft.kernel
    def filled(grid, v, b, k: int):
        n, m = grid.shape
        y, z = torch.zeros(n), torch.zeros(3)
        for i in range(m):
            for _j in range(b[0], -1, -1):
                y[i] = 1.0
            for _j in range(n, -1, -1):
                z[0] = v[k]
        return y

    v, none = torch.ones(1), torch.tensor([-1])
    for grid in (torch.ones(3, 3), torch.ones(1, 2)):
        torch.testing.assert_close(filled(grid, v, none, 0), filled.py(grid, v, none, 0))
        with pytest.raises(IndexError):
            filled.py(grid, v, none, 1)
        with pytest.raises(OutOfRange):
            filled(grid, v, none, 1)
