"""Tile graphs: what nests become, what they mean, which rules they keep, and which programs have none."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tests.kernels_of_tiles as kernels
from tests import fuzz_reference
from tests.fuzz_mixed import MixedProgram, program_of
from tests.fuzz_programs import Program, arguments, compiled
from tests.graphs import Built, built, built_of, parsed, run
from tests.suites.classify import SUITES
from weft.graph.contraction import Contraction, contraction
from weft.graph.show import show
from weft.graph.tile import (
    IN_ORDER,
    Axis,
    BrokenGraph,
    Carried,
    Fold,
    Map,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Write,
    names_of,
    validate,
)
from weft.language import infer_types, parse
from weft.loops.analyze import schedule
from weft.loops.interpret import interpret
from weft.loops.ir import Const, Function, Op, Ref
from weft.loops.show import show_expr
from weft.loops.types import FLOAT64, INT64


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape))) - 0.5


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


# What each program of tests/kernels_of_tiles.py is run with.
ARGUMENTS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "softmax": lambda: (drawn(3, 7),),
    "online_softmax_sum": lambda: (drawn(3, 7),),
    "rms_norm": lambda: (drawn(3, 7), drawn(7), 1e-5),
    "linrec": lambda: (drawn(3, 7), drawn(3, 7)),
    "matmul": lambda: (drawn(3, 4), drawn(4, 5)),
    "matmul_bias_gelu": lambda: (drawn(3, 4), drawn(4, 5), drawn(5)),
    "gated_mlp": lambda: (drawn(3, 4), drawn(5, 4), drawn(5, 4)),
    "attention": lambda: (drawn(3, 4), drawn(5, 4), drawn(5, 4)),
    "causal_attention_scores": lambda: (drawn(4, 3), drawn(4, 3)),
    "tensors": lambda: (drawn(3, 4), drawn(4, 2)),
    "transpose": lambda: (drawn(3, 4),),
    "jacobi": lambda: (drawn(5, 6),),
    "jacobi_steps": lambda: (drawn(7), drawn(7), 3),
    "selective_scan": lambda: (drawn(2, 3, 4), drawn(2, 3, 4), drawn(4, 5), drawn(2, 3, 5), drawn(2, 3, 5)),
    "cross_entropy": lambda: (drawn(3, 4), whole(4, 3)),
    "column_sums": lambda: (drawn(3, 4),),
    "whole_sum": lambda: (drawn(3, 4),),
    "argmax": lambda: (drawn(3, 7),),
    "histogram": lambda: (whole(4, 19), 4),
    "ragged_sums": lambda: (drawn(9), torch.tensor([0, 2, 2, 9])),
    "distances": lambda: (drawn(4, 3),),
    "tanh_rnn": lambda: (drawn(2, 4, 3), drawn(3, 3)),
}


def made(name: str) -> Built:
    return built_of(getattr(kernels, name), *ARGUMENTS[name]())


def copied(args: tuple[Any, ...]) -> list[Any]:
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


# ---------------------------------------------------------------- programs as graphs


def test_every_program_told_here_is_here() -> None:
    functions = {n for n, f in vars(kernels).items() if inspect.isfunction(f)}
    assert functions - ARGUMENTS.keys() == {"forward_substitution"}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_graphs_as_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"tiles/{name}.txt", show(made(name).only))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_graphs_mean_what_the_python_does(name: str) -> None:
    ours, theirs = copied(ARGUMENTS[name]()), copied(ARGUMENTS[name]())
    found = getattr(kernels, name)(*theirs)
    want = () if found is None else (found,)
    for a, b in zip((*run(made(name), ours), *ours), (*want, *theirs), strict=True):
        torch.testing.assert_close(a, b)


def _graph(name: str) -> dict[str, Any]:
    return {n: v for v in made(name).only.values for n in names_of(v)}


def test_sibling_loops_are_one_axis_and_values_depend_on_what_they_use_alone() -> None:
    graph = made("softmax").only
    assert [a.name for a in graph.axes] == ["r", "j"]
    values = _graph("softmax")
    assert (values["x"].axes, values["m"].axes, values["l"].axes) == (("r", "j"), ("r",), ("r",))


def test_online_softmax_and_the_plain_loops_have_the_same_folds() -> None:
    online, plain = _graph("online_softmax_sum"), _graph("softmax")
    for name in ("m", "l"):
        assert isinstance(online[name], Fold)
        assert (online[name].algebra, online[name].over, online[name].inits) == (
            plain[name].algebra, plain[name].over, plain[name].inits,
        )  # fmt: skip
    assert online["m"].parts == plain["m"].parts
    exps = [[e for e in (v.value if isinstance(v, Map) else v.parts[0] for v in g.values() if isinstance(v, (Map, Fold)))
             if isinstance(e, Op) and e.name == "exp"] for g in (online, plain)]  # fmt: skip
    assert exps[0] == exps[1] != []


def test_a_sum_whose_terms_a_running_value_chooses_is_no_fold() -> None:
    def rising(x):
        rows, length = x.shape
        y = torch.empty(rows, dtype=x.dtype)
        for r in range(rows):
            m = -math.inf
            l = 0.0
            for j in range(length):
                new = max(m, x[r, j])
                l = l * torch.exp(m - new) + (torch.exp(x[r, j] - new) if x[r, j] > m else 0.0)
                m = new
            y[r] = l
        return y

    found = built_of(rising, drawn(2, 9))
    assert {n: type(v) for n, v in found.only.made.items() if n in ("m", "l")} == {"m": Scan, "l": Fold}
    x = drawn(2, 9)
    torch.testing.assert_close(run(found, [x])[0], rising(x))


def test_the_document_shows_a_graph_as_it_is() -> None:
    text = (Path(__file__).parent.parent / "docs" / "tile-graphs.md").read_text()
    assert show(made("attention").only) in text


def test_a_product_of_matrices_is_a_fold_of_factors_with_axes_of_their_own() -> None:
    values = _graph("matmul")
    acc = values["acc"]
    assert isinstance(acc, Fold)
    assert (acc.algebra, acc.over, acc.axes) == ("sum", ("k",), ("i", "j"))
    assert acc.parts == (Op("mul", (Ref("a", FLOAT64), Ref("b", FLOAT64)), FLOAT64),)
    assert (values["a"].axes, values["b"].axes) == (("i", "k"), ("j", "k"))


def test_local_arrays_are_values() -> None:
    assert {w.array for w in made("attention").only.writes} == {"o"}
    assert _graph("attention")["dot"].axes == ("i", "j")


def test_chains_of_loops_are_one_fold_over_several_axes() -> None:
    total = _graph("whole_sum")["total"]
    assert isinstance(total, Fold)
    assert total.over == ("i", "j")


def test_states_have_the_axes_of_their_arrays() -> None:
    state = _graph("selective_scan")["h_before"]
    assert isinstance(state, Scan)
    assert (state.algebra, state.over, state.axes) == ("affine", ("t",), ("i", "d", "n"))


def test_elements_that_not_every_iteration_stores_to_keep_their_states() -> None:
    def stairs(w, q: int):
        length = w.shape[0]
        y = torch.zeros(length, dtype=w.dtype)
        for i in range(0, length, q + 1):
            y[:i] = w[:i] * q
        return y

    found = built_of(stairs, drawn(9), 2)
    assert found.whole
    torch.testing.assert_close(run(found, [drawn(9), 2])[0], stairs(drawn(9), 2))


def test_a_store_of_a_later_loop_that_a_state_decides_takes_the_place_of_an_earlier_one() -> None:
    def until(x, w):
        rows, length = x.shape
        count = w.shape[0]
        y = torch.empty_like(x)
        for r in range(rows):
            for j in range(length):
                y[r, j] = x[r, j]
            total = 0.0
            for k in range(count):
                if total < 1.0:
                    y[r, k] = total
                total = total * total + w[k]
        return y

    x, w = drawn(2, 9), drawn(5) + 0.8
    found = built_of(until, x, w)
    assert found.whole
    torch.testing.assert_close(run(found, [x, w])[0], until(x, w))


def test_what_the_last_iteration_alone_stores_is_written_by_it_alone() -> None:
    def last(x):
        rows, length = x.shape
        y = torch.zeros(3, dtype=x.dtype)
        for i in range(rows):
            for j in range(length):
                if x[i, j] > 0:
                    y[2] = x[i, j]
        return y

    x = drawn(4, 7)
    found = built_of(last, x)
    torch.testing.assert_close(run(found, [x])[0], last(x))


def test_recurrences_that_no_algebra_knows_are_scans_in_order() -> None:
    state = _graph("tanh_rnn")["h_before"]
    assert isinstance(state, Scan)
    assert (state.algebra, state.parts) == (IN_ORDER, ())


def test_subscripts_from_data_are_reads_with_axes_of_their_own() -> None:
    reads = [v for v in made("cross_entropy").only.values if isinstance(v, Read) and v.array == "x"]
    assert [(r.axes, r.checked, r.always) for r in reads] == [(("r", "j"), False, True), (("r",), True, False)]


def test_cells_that_data_choose_are_joined_to() -> None:
    (write,) = made("histogram").only.writes
    assert (write.array, write.join, write.checked) == ("count", "sum", True)


def test_bounds_may_be_values() -> None:
    axis = made("ragged_sums").only.axis("j")
    assert axis.start == Ref("starts", INT64)


def test_a_value_of_a_row_is_made_again_for_another() -> None:
    folds = [v for v in made("distances").only.values if isinstance(v, Fold)]
    assert sorted(f.axes for f in folds) == [("i",), ("j",)]


# ---------------------------------------------------------------- readings


def _relative(name: str) -> dict[str, tuple[tuple[str, ...], str]]:
    folds = (v for v in made(name).only.values if isinstance(v, Fold) and v.scale is not None)
    return {v.results[0]: (v.relative, show_expr(v.scale)) for v in folds if v.scale is not None}


def test_sums_say_which_folds_they_are_relative_to() -> None:
    assert _relative("softmax") == _relative("online_softmax_sum") == {"l": (("m",), "exp(-m)")}
    assert _relative("attention") == {"l": (("m",), "exp(-m)"), "acc": (("m",), "exp(-m)")}
    assert _relative("tensors") == {"sum": (("amax",), "exp(-amax)"), "sum_1": (("amax", "sum"), "exp(-amax) / sum")}
    assert _relative("rms_norm") == {}


def _contractions(name: str) -> dict[str, Contraction]:
    graph = made(name).only
    folds = [v for v in graph.values if isinstance(v, Fold)]
    return {v.results[0]: c for v in folds if (c := contraction(graph, v)) is not None}


def test_products_of_matrices_are_seen() -> None:
    (product,) = _contractions("matmul").values()
    a, b = Ref("a", FLOAT64), Ref("b", FLOAT64)
    assert product == Contraction((a,), (b,), batch=(), rows=("i",), columns=("j",), over=("k",))
    assert _contractions("gated_mlp").keys() == {"u", "v"}
    assert {n: (c.rows, c.columns, c.over) for n, c in _contractions("attention").items()} == {
        "dot": (("i",), ("j",), ("d",)),
        "acc": (("i",), ("d",), ("j",)),
    }


def test_sums_of_products_over_the_same_rows_are_no_products_of_matrices() -> None:
    for name in ("rms_norm", "softmax", "distances", "selective_scan", "whole_sum"):
        assert _contractions(name) == {}


def test_of_several_factors_the_last_has_the_columns() -> None:
    def weighted(x, g, w):
        rows, inner = x.shape
        columns = w.shape[0]
        y = torch.empty((2, rows, columns), dtype=x.dtype)
        for s in range(2):
            for b in range(rows):
                for n in range(columns):
                    acc = 0.0
                    for k in range(inner):
                        acc += x[b, k] * g[s, k] * w[n, k]
                    y[s, b, n] = acc
        return y

    graph = built_of(weighted, drawn(3, 4), drawn(2, 4), drawn(5, 4)).only
    (fold,) = (v for v in graph.values if isinstance(v, Fold))
    found = contraction(graph, fold)
    assert found is not None
    names = [[show_expr(e) for e in side] for side in (found.left, found.right)]
    assert (names, found.batch, found.rows, found.columns) == ([["x", "g"], ["w"]], (), ("s", "b"), ("n",))


# ---------------------------------------------------------------- what is no graph


def refusal(function: Callable[..., Any], *args: Any) -> NotTiles:
    (why,) = (g for g in built_of(function, *args).graphs if isinstance(g, NotTiles))
    return why


def test_elements_that_need_each_other_have_no_graph() -> None:
    why = refusal(kernels.forward_substitution, drawn(4, 4), drawn(4))
    assert "loop i carries x" in why.why
    assert why.where is not None
    assert "for i in range(n)" in why.where.text()


def test_what_runs_as_loops_beside_a_graph_computes_the_same() -> None:
    ours, theirs = (copied((drawn(4, 4) + 2.0, drawn(4))) for _ in range(2))
    kernels.forward_substitution(*theirs)
    run(built_of(kernels.forward_substitution, *ours), ours)
    torch.testing.assert_close(ours, theirs)


# ---------------------------------------------------------------- the rules


def linrec() -> tuple[TileGraph, Any]:
    found = made("linrec")
    return found.only, found.schedule.function


def changed(graph: TileGraph, name: str, **changes: Any) -> TileGraph:
    values = tuple(replace(v, **changes) if name in names_of(v) else v for v in graph.values)
    return replace(graph, values=values)


def _without(graph: TileGraph, name: str) -> TileGraph:
    return replace(graph, values=tuple(v for v in graph.values if name not in names_of(v)))


_EXTRA = Map("extra", ("r",), Op("add", (Ref("r", INT64), Const(1, INT64)), INT64))

BROKEN: dict[str, tuple[int, str, Callable[[TileGraph], TileGraph]]] = {
    "a name twice": (1, "x is given twice", lambda g: replace(g, values=(*g.values, g.values[1]))),
    "used before": (1, "h uses ['c'] before", lambda g: replace(g, values=(*g.values[2:], *g.values[:2]))),
    "never made": (1, "before it is made", lambda g: _without(g, "x")),
    "wrong axes": (2, "x has the axes", lambda g: changed(g, "x", axes=("r",))),
    "bounds use later axes": (2, "bounds of axis r", lambda g: replace(
        g, axes=(replace(g.axes[0], stop=Ref("l", INT64)), g.axes[1]))),
    "a write without its axes": (2, "which are no axes of it", lambda g: replace(
        g, writes=(replace(g.writes[0], axes=("r",)),))),
    "too few parts": (3, "has 2 parts, not 1", lambda g: changed(g, "h", parts=(Ref("c", FLOAT64),))),
    "over nothing": (3, "carried over no axis", lambda g: changed(g, "h", over=(), axes=("r", "l"))),
    "inits in the loop": (3, "starts with what depends on ['l']", lambda g: changed(g, "h", inits=(Ref("x", FLOAT64),))),
    "relative to what is no fold": (4, "relative to h_last", lambda g: _with_fold(g, relative=("h_last",))),
    "scale over the axis": (4, "scale of s depends on ['l']", lambda g: _with_fold(g, scale=Ref("x", FLOAT64))),
    "several points to an element": (5, "several points store", lambda g: replace(
        g, writes=(replace(g.writes[0], index=(Ref("r", INT64), Const(0, INT64))),))),
    "two writes to an element": (5, "two writes store", lambda g: replace(g, writes=(*g.writes, g.writes[0]))),
    "read elsewhere": (5, "are read at other elements", lambda g: replace(
        g, writes=(replace(g.writes[0], array="x", index=(Ref("l", INT64), Ref("r", INT64))),))),
    "of no use": (6, "extra reaches no write", lambda g: replace(g, values=(*g.values, _EXTRA))),
    "an axis of no use": (6, "axis k is no value's", lambda g: replace(
        g, axes=(*g.axes, Axis("k", Const(0, INT64), Const(2, INT64))))),
}  # fmt: skip


def _with_fold(graph: TileGraph, **options: Any) -> TileGraph:
    zero = Const(0.0, FLOAT64)
    fold = Fold(("s",), ("s",), ("r",), ("l",), "sum", (Ref("x", FLOAT64),), (zero,), **options)
    write = Write("y", ("r", "l"), graph.writes[0].index, Op("add", (Ref("h_1", FLOAT64), Ref("s", FLOAT64)), FLOAT64))
    return replace(graph, values=(*graph.values, fold), writes=(write,))


def test_the_graphs_that_rules_are_broken_in_keep_them() -> None:
    graph, function = linrec()
    validate(graph, function)
    validate(_with_fold(graph), function)


@pytest.mark.parametrize("what", BROKEN)
def test_each_rule_is_held(what: str) -> None:
    rule, evidence, change = BROKEN[what]
    graph, function = linrec()
    with pytest.raises(BrokenGraph, match=re.escape(evidence)) as found:
        validate(change(graph), function)
    assert found.value.rule == rule


# ---------------------------------------------------------------- the suites

# Those whose every nest is a graph; a line each, which may only be added.
GOLDEN = Path(__file__).parent / "golden" / "tiles" / "suites.txt"


@cache
def _of_suite(suite: str) -> dict[str, tuple[Function, Built]]:
    found = {}
    for name, case in SUITES[suite].items():
        function = parse(case.function, infer_types(case.function))
        found[name] = function, built(schedule(function))
    return found


def test_programs_of_the_suites_that_are_graphs(request: pytest.FixtureRequest) -> None:
    found = [f"{suite} {name}" for suite in SUITES for name, (_, graphs) in _of_suite(suite).items() if graphs.whole]
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text("".join(f"{name}\n" for name in found))
    kept = GOLDEN.read_text().split("\n")[:-1]
    assert not set(kept) - set(found), "these were graphs"
    assert not set(found) - set(kept), "these are graphs now: pytest --update-golden"


@pytest.mark.parametrize("suite", SUITES)
def test_graphs_of_the_suites_compute_what_the_loops_do(suite: str) -> None:
    for name, (function, found) in _of_suite(suite).items():
        for given_ in SUITES[suite][name].arguments(1):
            args = tuple(given_[p] for p in function.parameters)
            ours, theirs = copied(args), copied(args)
            interpret(function, *theirs)
            run(found, ours)
            for p, a, b in zip(function.parameters, ours, theirs, strict=True):
                if isinstance(a, torch.Tensor):
                    torch.testing.assert_close(
                        a, b, rtol=1e-6, atol=1e-6, equal_nan=True, msg=f"{p} of {name} differs"
                    )


# ---------------------------------------------------------------- random programs

_SIZES = (
    *({"n": 5, "m": 5, "d": 3}, {"n": 3, "m": 7, "d": 3}, {"n": 1, "m": 3, "d": 1}),
    *({"n": 0, "m": 3, "d": 1}, {"n": 3, "m": 0, "d": 1}),
)
_TOLERANCE = {8: 1e-7, 4: 1e-4, 2: 2e-2}


def _arguments(program: Program, size: dict[str, int], seed: int) -> list[Any]:
    if isinstance(program, MixedProgram):
        return fuzz_reference.arguments(program, size, seed)
    return arguments(program, size, seed)


def _different(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    if not ours.is_floating_point():
        return not torch.equal(ours, theirs)
    tolerance = _TOLERANCE[ours.element_size()]
    a, b = ours.double(), theirs.double()
    same = torch.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True) | ~(a.isfinite() & b.isfinite())
    return not bool(same.all())


def check(seed: int) -> str:
    """"" where the graphs of a random program compute what its loops do."""
    program = program_of(seed)
    if isinstance(program, MixedProgram) and any(i.storage.endswith("same") for i in program.inputs):
        return ""  # other programs: those of calls in which arguments are one tensor
    function = compiled(program.source, f"<program {seed} for tiles>")
    found: Built | None = None
    for k, size in enumerate(_SIZES):
        given_ = _arguments(program, size, k)
        try:
            own = parsed(function, given_)
            theirs = fuzz_reference.duplicate(given_)
            want = interpret(own, *theirs)
        except Exception:  # the program itself fails, or is refused
            continue
        found = found or built(schedule(own))
        as_loops = Built(found.schedule, tuple(NotTiles("") for _ in found.graphs))
        try:
            run(as_loops, fuzz_reference.duplicate(given_))
        except IndexError:
            continue  # a call that these loops are not for: it takes those of another analysis
        for way in (None, False, True):
            ours = fuzz_reference.duplicate(given_)
            got = run(found, ours, way)
            for n, (a, b) in enumerate(zip((*got, *ours), (*want, *theirs), strict=True)):
                if isinstance(a, torch.Tensor) and _different(a, b):
                    told = {None: "", False: ", in passes", True: ", in passes together"}[way]
                    return f"output {n} of program {seed} differs at {size}{told}\n{program.source}"
    return ""


@given(st.integers(0, 1 << 20))
def test_graphs_of_random_programs_compute_what_the_loops_do(seed: int) -> None:
    assert check(seed) == ""


def test_carried_values_say_their_types() -> None:
    carried = [v for v in made("argmax").only.values if isinstance(v, Carried)]
    assert [tuple(t.name for t in v.types) for v in carried] == [("float64", "int64")]
