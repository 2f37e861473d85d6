"""docs/attention-from-loops.md shows what the tool prints (`pytest --update-golden` rewrites it), and what it says is so."""

from __future__ import annotations

import inspect
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.errors import InapplicableTransform
from weft.kernels.attention import attended_causal
from weft.loops.show import renamed, user_names

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "attention-from-loops.md"
SPECS = ("bfloat16[4,32,1,4096,64]", *("bfloat16[4,32,4096,64]",) * 2, 0.125)


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "attention_from_loops.py"))


def verdicts(found: weft.LoopAnalysis) -> str:
    width = max(map(len, found.loops))
    return "\n".join(
        f"{var:<{width}}  {v.kind}" + (f" ({', '.join(v.algebra)})" if v.algebra else "") for var, v in found.loops.items()
    )


def why(found: weft.LoopAnalysis) -> str:
    return renamed(found.loops["j"].why, user_names(found.function)).replace("; ", "\n")


def differences(example: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Of each program: to itself with the keys in another order, and to softmax(s) @ v."""
    generator = torch.Generator().manual_seed(0)
    s, v = torch.randn(1, 64, generator=generator), torch.randn(64, 8, generator=generator)
    order = torch.randperm(64, generator=generator)
    out = {}
    for name in ("attention", "forgetful"):
        one, other = torch.zeros(1, 8), torch.zeros(1, 8)
        example[name](s, v, one)
        example[name](s[:, order], v[order], other)
        exact = torch.softmax(s, dim=1) @ v
        out[name] = (float((one - other).abs().max()), float((one - exact).abs().max()))
    return out


def refusal(example: dict[str, Any]) -> str:
    with pytest.raises(InapplicableTransform) as refused:
        weft.schedule(example["forgetful"]).split("j", 64)
    return str(refused.value).replace(str(ROOT) + "/", "")


def plan_of_the_library() -> str:
    text = str(attended_causal.explain(*SPECS, detail=True))
    return textwrap.dedent(text.rpartition(" on a GPU\n")[2].partition("\n\n")[0])


def turns_of_the_library() -> str:
    """The loop over the turns of a tile."""
    lines = attended_causal.source(*SPECS, arch="sm_90a").splitlines()
    first = next(k for k, line in enumerate(lines) if line.strip() == "while (++turn != own_turns) {")
    depth = len(lines[first]) - len(lines[first].lstrip())
    last = next(k for k in range(first, len(lines)) if lines[k] == " " * depth + "}")
    return textwrap.dedent("\n".join(lines[first : last + 1]))


def shown(example: dict[str, Any]) -> dict[str, str]:
    written, hoisted, proven, in_parts = (example[n] for n in ("written", "hoisted", "proven", "in_parts"))
    found, forgotten = written.analyze(), weft.analyze(example["forgetful"])
    steps = [str(step) for step in proven.steps[-2:]]
    orders = [
        f"{name}: {'nothing but rounding' if order < 1e-5 else f'{order:.2f}'} between two orders of the keys, "
        f"{'nothing but rounding' if exact < 1e-5 else f'{exact:.2f}'} to softmax(s) @ v"
        for name, (order, exact) in differences(example).items()
    ]
    return {
        "attention": inspect.getsource(example["attention"]),
        "verdicts": verdicts(found),
        "graph": str(hoisted.analyze().graph),
        "why": why(found),
        "hoisted": str(hoisted),
        "parallel": "\n".join(steps),
        "split": str(in_parts),
        "verdicts of parts": verdicts(in_parts.analyze()),
        "forgetful": inspect.getsource(example["forgetful"]),
        "forgetful verdict": verdicts(forgotten) + "\n\n" + why(forgotten),
        "orders": "\n".join(orders),
        "refusal": refusal(example),
        "plan": plan_of_the_library(),
        "turns": turns_of_the_library(),
    }


def test_the_document_shows_what_is_printed(example: dict[str, Any], request: pytest.FixtureRequest) -> None:
    texts = shown(example)

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{texts.pop(match[2]).strip()}\n```"

    text = DOCUMENT.read_text()
    now = re.sub(r"(<!-- shown: (.*?) -->\n```\w*\n)(?:.*?\n)??```", fill, text, flags=re.DOTALL)
    assert not texts, f"not in the document: {texts.keys()}"
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(now)
    assert DOCUMENT.read_text() == now, "if the change is meant, run pytest --update-golden"


def test_its_three_cycles(example: dict[str, Any]) -> None:
    graph = example["hoisted"].analyze().graph
    written = {s.label: s.text.split(" = ")[0] for s in graph.statements}
    assert sorted(written[label] for (label,) in graph.cycles) == ["l", "m_next", "o[i, d]"]


def test_every_step_computes_attention(example: dict[str, Any]) -> None:
    s, v = torch.randn(5, 130), torch.randn(130, 3)
    for name in ("written", "hoisted", "proven", "in_parts"):
        o = torch.zeros(5, 3)
        example[name].kernel()(s, v, o)
        assert torch.allclose(o, torch.softmax(s, dim=1) @ v, atol=1e-5)


def test_parts_without_any_score_count_nothing(example: dict[str, Any]) -> None:
    s, v = torch.randn(2, 200), torch.randn(200, 3)
    s[:, 64:] = -torch.inf
    o = torch.zeros(2, 3)
    example["in_parts"].py(s, v, o)
    assert torch.allclose(o, torch.softmax(s, dim=1) @ v, atol=1e-5)


def test_what_forgets_to_rescale_depends_on_the_order(example: dict[str, Any]) -> None:
    found = differences(example)
    assert max(found["attention"]) < 1e-5
    assert min(found["forgetful"]) > 0.1
    assert weft.analyze(example["attention"]).loops["j"].kind == "reduction"
    assert weft.analyze(example["forgetful"]).loops["j"].kind == "scan"
