"""What `weft.analyze` and `kernel.explain()` say; the texts are in golden/explain (`pytest --update-golden`)."""

from __future__ import annotations

import html
import math
import re
import shlex
import textwrap
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.cli import main
from weft.kernels import LIBRARY

Golden = Callable[[str, str], None]
ROWS = "float32[64,1024]"


@weft.kernel
def attention(q, k, v):
    queries, dim = q.shape
    keys, _ = k.shape
    out = torch.empty_like(q)
    for i in range(queries):
        largest = -math.inf
        total = 0.0
        acc = torch.zeros(64)
        for j in range(keys):
            score = 0.0
            for e in range(dim):
                score = score + q[i, e] * k[j, e]
            new = max(largest, score)
            old = math.exp(largest - new)
            p = math.exp(score - new)
            total = total * old + p
            for e in range(64):
                acc[e] = acc[e] * old + p * v[j, e]
            largest = new
        for e in range(64):
            out[i, e] = acc[e] / total
    return out


@weft.kernel
def online_softmax(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        largest = -math.inf
        total = 0.0
        for l in range(length):
            new = max(largest, x[r, l])
            total = total * math.exp(largest - new) + math.exp(x[r, l] - new)
            largest = new
        for l in range(length):
            y[r, l] = math.exp(x[r, l] - largest) / total
    return y


@weft.kernel
def logistic(x):
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.5
        for l in range(length):
            h = 3.5 * h * (1.0 - h) + x[r, l]
            y[r, l] = h
    return y


@weft.kernel
def histogram(index, bins: int):
    count = torch.zeros(bins, dtype=torch.int64)
    for i in range(index.shape[0]):
        count[index[i]] += 1
    return count


@weft.kernel
def reference_loop(x, c):
    y = torch.empty_like(x)
    y[..., 0] = x[..., 0]
    for l in range(1, x.shape[-1]):
        y[..., l] = y[..., l - 1] * c[..., l] + x[..., l]
    return y


def without_plan(text: str) -> str:
    return text.partition("\nPlan")[0]


# ---------------------------------------------------------------- golden texts


@pytest.mark.parametrize("name", ["linrec", "softmax"])
def test_the_library_in_words(name: str, golden: Golden) -> None:
    golden(f"explain/{name}.txt", LIBRARY[name].explain())
    golden(f"explain/{name}-detail.txt", LIBRARY[name].explain(detail=True))


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (attention, ("float32[128,64]", "float32[256,64]", "float32[256,64]")),
        (online_softmax, (ROWS,)),
        (logistic, (ROWS,)),
        (histogram, ("int64[1000]", 8)),
        (reference_loop, (ROWS, ROWS)),
    ],
    ids=lambda value: value.name if isinstance(value, weft.Kernel) else "",
)
def test_loops_and_statements_in_words(kernel: weft.Kernel, arguments: tuple[object, ...], golden: Golden) -> None:
    golden(f"explain/{kernel.name}.txt", without_plan(kernel.explain(*arguments, detail=True)))


def test_mermaid(golden: Golden) -> None:
    golden("explain/linrec.mmd", LIBRARY["linrec"].explain(format="mermaid"))
    golden("explain/attention.mmd", attention.explain(*["float32[128,64]"] * 3, format="mermaid"))


# ---------------------------------------------------------------- what they must say


def test_linrec_is_parallel_rows_and_a_scan_with_its_cycle_named() -> None:
    text = LIBRARY["linrec"].explain(detail=True)
    rows, length = (next(k for k in text.split("\n") if k.startswith(f"  {var}  ")) for var in ("r", "l"))
    assert "parallel" in rows and "for r in range(rows):" in rows
    assert "scan (affine)" in length and "for l in range(length):" in length
    assert "it carries h by affine composition" in text and "cycle: h -> h" in text and "h_1" not in text


def test_names_are_the_user_s() -> None:
    text = attention.explain(*["float32[128,64]"] * 3, detail=True).partition("The program that runs")[0]
    for made_up in ("total_", "largest_", "acc_", "score_", "p_1"):
        assert made_up not in text


def test_a_user_s_own_numbered_names_stay() -> None:
    @weft.kernel
    def numbered(x):
        y = torch.empty_like(x)
        h_1 = 0.0
        h_2 = 1.0
        for i in range(x.shape[0]):
            h_1 = h_1 + x[i]
            h_2 = h_2 * x[i]
            y[i] = h_1 + h_2
        return y

    text = numbered.explain("float32[100]", detail=True)
    assert "it carries h_1 by a sum, h_2 by a product" in text and "cycle: h_1 -> h_1" in text


@weft.kernel
def latest(index, bins: int):
    seen = torch.zeros(bins, dtype=torch.int64)
    for i in range(index.shape[0]):
        seen[index[i]] = i
    return seen


def test_a_sequential_loop_names_what_collides() -> None:
    verdict = weft.analyze(latest).loops["i"]
    assert verdict.kind == "sequential" and verdict.cycle == ("seen",)
    assert "seen" in verdict.why and "i = 0" in verdict.why and "i = 1" in verdict.why
    assert "S1 -> S1  WAW seen, carried by i" in latest.explain("int64[10]", 4, detail=True)


def test_a_histogram_is_a_reduction_of_cells() -> None:
    assert "it carries count[...] by a sum" in histogram.explain("int64[10]", 4, detail=True)


def test_the_plan_follows_the_sizes() -> None:
    specs = ([f"float32[{rows},{n}]"] * 2 for rows, n in ((1000, 32), (1000, 65536), (8, 65536)))
    short, long, few = (LIBRARY["linrec"].explain(*both, detail=True) for both in specs)
    assert "8 threads a row" in short and "256 threads a row" in long
    assert "length = 65536" in long and short != long
    assert "blocks share a row: all run at once" in few


def test_tensors_and_specs_say_the_same() -> None:
    x = torch.empty(64, 1024)
    assert logistic.explain(x) == logistic.explain(ROWS) == logistic.explain(weft.TensorSpec("float32", (64, 1024)))


def test_every_kernel_of_the_library_can_be_explained() -> None:
    for kernel in LIBRARY.values():
        for format in ("text", "html"):
            assert kernel.py.__name__ in kernel.explain(format=format)
        assert kernel.explain(format="mermaid").startswith("flowchart TD\n")


def test_html_is_one_page_that_needs_nothing_else() -> None:
    @weft.kernel
    def clipped(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            clip = 0.0 if x[i] < 0 and x[i] > -1.0 else x[i]
            y[i] = clip
        return y

    page = clipped.explain("float32[10]", format="html")
    assert "x[i] &lt; 0" in page and "x[i] < 0" not in page
    assert "http" not in page and "src=" not in page and "url(" not in page and "@import" not in page

    class Outline(HTMLParser):
        tags: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)

    outline = Outline()
    outline.feed(page)
    assert {"title", "h1", "table", "pre", "svg"} <= set(outline.tags)
    assert outline.tags.count("html") == outline.tags.count("main") == outline.tags.count("svg") - 2 == 1
    assert 'class="verdict parallel"' in page


def test_the_short_text_has_a_line_for_each_loop_and_one_for_the_plan() -> None:
    text = attention.explain(*["float32[128,64]"] * 3)
    told = [line for line in text.rstrip("\n").split("\n") if not line.startswith("  unused parallelism: ")]
    head, sizes, *lines, plan = told
    loops = [line for line in lines if "is computed in double" not in line]
    assert head.startswith("attention(q: float32[") and "queries = 128" in sizes
    assert [line.split()[0] for line in loops] == ["i", "j", "e", "e_1", "e_2"]
    assert plan.startswith("  plan on a GPU: ")


def test_several_kernels_are_one_line_of_the_plan() -> None:
    @weft.kernel
    def sorted_apart(x, y):
        for i in range(x.shape[0]):
            x[i] = 2.0 * x[i]
        for i in range(y.shape[0]):
            y[i] = torch.sin(y[i]) if i == 0 else y[i - 1] + y[i]

    text = sorted_apart.explain("float32[1000]", "float32[77]")
    assert len(text.rstrip("\n").split("\n")) == 5 and "plan on a GPU: 2 kernels: " in text


def test_the_program_that_runs_says_how_each_loop_does() -> None:
    program = LIBRARY["softmax"].explain(detail=True).partition("The program that runs")[2].partition("Plan")[0]
    notes = [line.partition("  # ")[2] for line in program.split("\n") if line.lstrip().startswith("for ")]
    assert notes == ["in parallel", "a reduction", "a reduction", "in parallel"]


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (attention, (torch.randn(5, 64), torch.randn(7, 64), torch.randn(7, 64))),
        (online_softmax, (torch.randn(3, 9),)),
        (logistic, (torch.rand(3, 9),)),
        (histogram, (torch.tensor([3, 0, 3, 5, 0, 2]), 7)),
        (reference_loop, (torch.randn(3, 9), torch.rand(3, 9))),
    ],
    ids=lambda value: value.name if isinstance(value, weft.Kernel) else "",
)
def test_the_program_that_runs_is_python_that_runs(kernel: weft.Kernel, arguments: tuple[Any, ...]) -> None:
    lines = kernel.explain(*arguments, detail=True).partition("The program that runs\n")[2].partition("\nPlan")[0]
    names: dict[str, Any] = {"torch": torch, "math": math}
    exec(textwrap.dedent(lines), names)
    expected = kernel.py(*(a.clone() if isinstance(a, torch.Tensor) else a for a in arguments))
    torch.testing.assert_close(names[kernel.name](*arguments), expected)


def test_without_tensors_there_is_all_but_a_plan() -> None:
    analysis = weft.analyze(latest)
    text = analysis.explain(detail=True)
    assert "i  sequential" in text and "remedy: " in text and "Plan" not in text
    assert "plan" not in analysis.explain() and "The plan on a GPU" not in analysis.explain(format="html")
    assert analysis.explain(format="mermaid") == analysis.graph.to_mermaid()


def test_a_loop_that_calls_a_helper_shows_both_functions() -> None:
    def decayed(h, x):
        less = 0.9 * h
        return less + x

    def averaged(x):
        y = torch.empty_like(x)
        h = 0.0
        for i in range(x.shape[0]):
            h = decayed(h, x[i])
            y[i] = h
        return y

    page = weft.analyze(averaged).explain(format="html")
    assert "decayed(h, x):" in page and "averaged(x):" in page and page.count('class="source"') == 2


def test_mermaid_labels_are_quoted() -> None:
    @weft.kernel
    def chosen(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] if x[i] > 0 else -x[i]  # "both" ways
        return y

    text = chosen.explain("float32[10]", format="mermaid")
    (box,) = [line for line in text.split("\n") if '["S1: ' in line]
    assert "x[i] #gt; 0" in box and box.count('"') == 2


# ---------------------------------------------------------------- weft.analyze


def test_analyze_takes_a_function_a_kernel_or_a_text() -> None:
    def squares(x):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            y[i] = x[i] * x[i]
        return y

    text = """
def squares(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = x[i] * x[i]
    return y
"""
    for given in (squares, weft.kernel(squares), text):
        analysis = weft.analyze(given)
        assert {var: verdict.kind for var, verdict in analysis.loops.items()} == {"i": "parallel"}
        assert "i  parallel" in str(analysis) and "for i in range(x.shape[0]):" in str(analysis)
    assert weft.analyze(LIBRARY["linrec"]).loops["l"].algebra == ("affine",)


def test_analyze_cites_the_file(tmp_path: Path) -> None:
    assert f"{Path(__file__).name}:" in str(weft.analyze(logistic))


# ---------------------------------------------------------------- the documentation


def test_the_documentation_shows_what_is_printed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every `$ weft explain ...` of docs/explain.md; a file that is not in the repository is the Python block before it."""
    root = Path(__file__).parent.parent
    document = root / "docs" / "explain.md"
    monkeypatch.chdir(root)

    def printed(block: re.Match[str]) -> str:
        if block["command"] is None:
            (tmp_path / "coupled.py").write_text(block["python"])
            return block[0]
        arguments = shlex.split(block["command"])
        if not Path(arguments[1].partition(":")[0]).exists():
            arguments[1] = f"{tmp_path}/{arguments[1]}"
        assert main(arguments) == 0
        return f"```\n$ weft {block['command']}\n{capsys.readouterr().out}```"

    text = document.read_text()
    pattern = r"```python\n(?P<python>.*?)```|```\n\$ weft (?P<command>[^\n]*)\n.*?```"
    now = re.sub(pattern, printed, text, flags=re.DOTALL)
    if request.config.getoption("--update-golden"):
        document.write_text(now)
    assert document.read_text() == now, "if the change is meant, run pytest --update-golden"


def test_a_notebook_shows_the_page() -> None:
    explanation = LIBRARY["linrec"].explain(ROWS, ROWS)
    assert isinstance(explanation, str) and explanation.splitlines()[0].startswith("linrec")
    analysis = weft.analyze(LIBRARY["linrec"].py)
    for shown, whole in (
        (explanation._repr_html_(), LIBRARY["linrec"].explain(ROWS, ROWS, format="html")),
        (analysis._repr_html_(), analysis.explain(format="html")),
    ):
        (frame,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', shown)
        assert html.unescape(frame) == whole


@pytest.mark.parametrize("length, how", [(100, "which are one team"), (100_000, "blocks share the points")])
def test_a_nest_without_rows_has_one_team_or_is_shared(length: int, how: str) -> None:
    def total(x):
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
        return s

    kernel = weft.kernel(total)
    short, detailed = (str(kernel.explain(f"float32[{length}]", detail=detail)) for detail in (False, True))
    assert how in short and "rows: none" in detailed
    assert "a row" not in short + detailed
