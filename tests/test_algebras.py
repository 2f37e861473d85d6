"""What loops may carry: the algebra of every kind of state is found however it is spelled, and computes what Python does."""

from __future__ import annotations

import inspect
import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

import weft
from tests import kernels_of_algebras
from tests.fuzz_oracle import replay
from weft.language import parse, read_signature
from weft.loops.algebra import match
from weft.loops.analyze import schedule
from weft.loops.ir import Carry, Const, Expr, For, Op, Ref, rewrite
from weft.loops.types import BOOL, INT64
from weft.pytorch.call import argument_types
from weft.pytorch.simulated import simulate_call

pytestmark = pytest.mark.usefixtures("quickly_compiled")

# The class and the algebra of the last loop of each kernel.
FOUND = {
    "argmax": ("reduction", ("argmax",)),
    "last_argmin": ("reduction", ("argmin_last",)),
    "argmax_from_the_end": ("reduction", ("argmax",)),
    "running_argmax": ("scan", ("argmax",)),
    "second_order": ("scan", ("linear",)),
    "rotation": ("scan", ("linear",)),
    "third_order": ("scan", ("linear",)),
    "filled_forward": ("scan", ("select",)),
    "last_positive": ("reduction", ("select",)),
    "segmented_sum": ("scan", ("segmented sum",)),
    "segmented_max": ("scan", ("segmented max",)),
    "segmented_decay": ("scan", ("segmented affine",)),
    "saturating": ("scan", ("clamp",)),
    "queue": ("scan", ("clamp",)),
    "parity": ("reduction", ("bitxor",)),
    "compaction": ("scan", ("sum",)),
    "expansion": ("scan", ("sum",)),
    "online_softmax": ("reduction", ("max", "affine")),
}
KERNELS = {n: f for n, f in vars(kernels_of_algebras).items() if inspect.isfunction(f)}


def test_every_kernel_is_judged() -> None:
    assert KERNELS.keys() == FOUND.keys()


def arguments(name: str, rows: int, n: int, dtype: torch.dtype, generator: torch.Generator) -> list[torch.Tensor]:
    """Tensors for a kernel, by the names of its parameters: masks are 0 or 1, coefficients small, extrema often equal."""

    def drawn(parameter: str) -> torch.Tensor:
        if name == "parity":
            return torch.randint(-9, 9, (rows, n), generator=generator)
        if parameter in ("given", "mask", "starts", "z"):
            return (torch.rand(rows, n, generator=generator) > 0.6).to(dtype)
        if parameter in ("a", "b", "decay"):
            return (torch.rand(rows, n, generator=generator) - 0.5).to(dtype)
        if "arg" in name:
            return torch.randint(-5, 6, (rows, n), generator=generator).to(dtype)
        return torch.randn(rows, n, generator=generator).to(dtype)

    return [drawn(p) for p in inspect.signature(KERNELS[name]).parameters]


def tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def scheduled(function: Callable[..., Any], args: list[Any]) -> Any:
    types = dict(zip(inspect.signature(function).parameters, argument_types(read_signature(function), args), strict=True))
    parsed = parse(function, types)
    return parsed, schedule(parsed)


def same(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> bool:
    return torch.allclose(found.double(), wanted.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("name", FOUND)
def test_the_algebra_of_each_kernel(name: str) -> None:
    args = arguments(name, 2, 3, torch.float64, torch.Generator())
    verdict = [v for v in scheduled(KERNELS[name], args)[1].loops if v.var.startswith("i")][0]
    assert (verdict.kind, verdict.algebra) == FOUND[name], verdict.why


@pytest.mark.parametrize("name", FOUND)
def test_kernels_compute_what_python_does(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    kernel = weft.kernel(KERNELS[name])
    for rows, n in ((3, 5), (2, 1), (9, 70), (0, 4), (1, 700)):
        args = arguments(name, rows, n, torch.float64, generator)
        for found, wanted in zip(tensors(kernel(*args)), tensors(KERNELS[name](*args)), strict=True):
            assert same(found, wanted, 1e-9), (rows, n)


@pytest.mark.parametrize("name", FOUND)
def test_updates_are_what_iterations_do(name: str) -> None:
    """The schedule executed with everything free of order in a random order, each update checked, odd values among them."""
    generator = torch.Generator().manual_seed(2)
    for seed in range(6):
        args = arguments(name, 2, 9, torch.float64, generator)
        if seed % 2 and name not in ("parity", "rotation"):
            flat = args[0].view(-1)
            odd = torch.tensor([float("inf"), float("nan")], dtype=torch.float64)
            flat[random.Random(seed).sample(range(flat.numel()), 2)] = odd
        parsed, found = scheduled(KERNELS[name], args)
        results = replay(parsed, found, [a.clone() for a in args], random.Random(seed))
        for got, wanted in zip(results, tensors(KERNELS[name](*args)), strict=True):
            assert same(got, wanted, 1e-9), (seed, got, wanted)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler that the simulator knows")
@pytest.mark.parametrize("name", FOUND)
def test_cuda_of_each_kernel_on_the_simulator(name: str) -> None:
    """Several warps work on a row of three tiles, the last of them not full."""
    generator = torch.Generator().manual_seed(3)
    args = arguments(name, 1, 1030 if name != "parity" else 700, torch.float32, generator)
    report = weft.kernel(KERNELS[name]).check(*args, tolerance=1e-4)
    assert report.ok, str(report)


# ---------------------------------------------------------------- however it is spelled

SPELLINGS = {
    "max": ("if x[i] > s: s = x[i]", "s = x[i] if x[i] > s else s", "s = max(s, x[i])", "t = x[i]; s = t if s < t else s"),
    "min": ("if x[i] < s: s = x[i]", "s = x[i] if s >= x[i] else s", "s = min(s, x[i])"),
    "sum": ("s = s + x[i]", "s += x[i]", "s -= x[i]", "s = x[i] + s", "t = s; s = t + x[i]", "if x[i] > 0: s += x[i]",
            "s = s + x[i] * x[i]", "t = s + x[i]; s = t - 1.0"),
    "product": ("s *= x[i]", "s = x[i] * s", "t = s * 2.0; s = t * x[i]", "s = s / x[i]", "s = -s"),
    "affine": ("s = 0.5 * s + x[i]", "s = x[i] - s", "s = (s + x[i]) * 0.5", "s = s + x[i] * (1.0 - s)",
               "s = s * x[i] if x[i] > 0 else s + 1.0"),
    "select": ("if x[i] > 0: s = x[i]", "s = s if x[i] > 0 else 2.0 * x[i]", "if x[i] > 1: s = x[i]\nelif x[i] < -1: s = 0.0"),
    "segmented affine": ("s = x[i] if x[i] > 0 else 0.5 * s + x[i]",),
    "segmented sum": ("if x[i] > 1: s = 0.0\ns += x[i]", "s = (0.0 if x[i] > 1 else s) + x[i]"),
    "clamp": ("s = min(max(s + x[i], 0.0), 1.0)", "s = max(min(s - x[i], 3.0), x[i])", "s = max(s, 0.0) + x[i]"),
}  # fmt: skip


def loop(update: str, before: str = "s = 1.0", after: str = "out[0] = s") -> str:
    lines = [line for part in update.split("\n") for line in part.split("; ")]
    return "\n".join([
        "def f(x, y, out):",
        *(f"    {line}" for line in before.split("; ")),
        "    for i in range(x.shape[0]):",
        *(f"        {line}" for line in lines),
        f"    {after}",
        "",
    ])  # fmt: skip


@pytest.mark.parametrize(("algebra", "update"), [(a, u) for a, us in SPELLINGS.items() for u in us])
def test_spellings(algebra: str, update: str) -> None:
    found = weft.analyze(loop(update)).loops["i"]
    assert (found.kind, found.algebra) == ("reduction", (algebra,)), found.why


@pytest.mark.parametrize(("algebra", "update"), [(a, u) for a, us in SPELLINGS.items() for u in us])
def test_spellings_that_are_used_are_scans(algebra: str, update: str) -> None:
    found = weft.analyze(loop(update + "\ny[i] = s")).loops["i"]
    assert (found.kind, found.algebra) == ("scan", (algebra,)), found.why


SEQUENTIAL = (
    "s = s * s + x[i]",
    "s = x[i] / s",
    "s = torch.exp(s) + x[i]",
    "if s > x[i]: s = s - x[i]",
    "s = x[i] if s > 0.5 else s + 1.0",
    "s = max(x[i], s)",  # Python's max keeps a NaN that comes first
    "s = s if s <= x[i] else x[i]",  # and so does this
    "s = max(s, x[i]) * x[i]",
    "s = max(s * x[i], 1.0)",
)


@pytest.mark.parametrize("update", SEQUENTIAL)
def test_what_is_no_algebra(update: str) -> None:
    assert weft.analyze("import torch\n" + loop(update)).loops["i"].kind == "sequential"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_shifts_of_integers_are_not_added_up(dtype: torch.dtype) -> None:
    """Every state is small, a sum of the shifts is not: in order. Bounds alone are composed."""

    def shortest(w, b):
        d = torch.zeros(w.shape[0] + 1, dtype=w.dtype)
        for i in range(w.shape[0]):
            d[i + 1] = min(d[i] + w[i], b[i])
        return d

    def held(w, b):
        d = torch.zeros(w.shape[0] + 1, dtype=w.dtype)
        for i in range(w.shape[0]):
            d[i + 1] = max(min(d[i], b[i]), w[i] % 7)
        return d

    large = torch.iinfo(dtype).max // 2
    generator = torch.Generator().manual_seed(7)
    w = torch.full((70,), large, dtype=dtype)
    b = torch.randint(-9, 50, (70,), generator=generator).to(dtype)
    for function, kind in ((shortest, "sequential"), (held, "scan")):
        assert scheduled(function, [w, b])[1].loops[0].kind == kind
        kernel, wanted = weft.kernel(function), function(w, b)
        assert torch.equal(kernel(w, b), wanted)
        run = simulate_call(kernel, [w.clone(), b.clone()], "sm_90a", 0, "forward")
        assert torch.equal(run.arrays["d"], wanted)


def test_five_values_are_too_many() -> None:
    names = ["a", "b", "c", "d", "e"]
    for k in (4, 5):
        own = names[:k]
        before = "; ".join(f"{n} = 0.0" for n in own)
        shifted = f"{', '.join(own)} = {', '.join([*own[1:], '0.5 * a + x[i]'])}"
        found = weft.analyze(loop(shifted, before, f"out[0] = {own[-1]}")).loops["i"]
        assert found.kind == ("reduction" if k == 4 else "sequential"), found.why


# ---------------------------------------------------------------- through loops inside

NESTED = {
    "s += x[i, j]": ("reduction", "sum"),
    "s = 0.5 * s + x[i, j]": ("reduction", "affine"),
    "if x[i, j] > s: s = x[i, j]": ("reduction", "max"),
    "if x[i, j] > 0: s = x[i, j]": ("reduction", "select"),
    "s = min(max(s + x[i, j], 0.0), 1.0)": ("reduction", "clamp"),
    "s = s * s + x[i, j]": ("sequential", ""),
}


@pytest.mark.parametrize("update", NESTED)
def test_what_a_loop_inside_carries_on(update: str) -> None:
    text = f"""
def f(x, out):
    n, m = x.shape
    s = 1.0
    for i in range(n):
        for j in range(m):
            {update}
    out[0] = s
"""
    kind, algebra = NESTED[update]
    for var in "ij":
        found = weft.analyze(text).loops[var]
        assert (found.kind, *found.algebra) == ((kind, algebra) if algebra else (kind,)), found.why


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("t = s\n        for j in range(m):\n            s = s + t * x[i, j]", "sequential"),
        ("for j in range(m):\n            s = s + x[i, j]\n        if s > 10.0:\n            s = 0.0", "sequential"),
        ("for j in range(m):\n            s = s + x[i, j]\n        s = s * 0.5 + 1.0", "reduction"),
        ("for j in range(m):\n            s = s + x[i, j]\n        for k in range(m):\n            s *= x[i, k]", "reduction"),
        ("for j in range(m):\n            s = max(s, x[i, j])\n        s = s + 1.0", "reduction"),  # a clamp
        ("for j in range(m):\n            s = s + x[i, j]\n        y[i] = s", "scan"),
        ("for j in range(m):\n            y[j] = s * x[i, j]\n            s = s + x[i, j]", "scan"),  # only the last y is kept
        ("if x[i, 0] > 0:\n            for j in range(m):\n                s = s + x[i, j]", "reduction"),
    ],
)
def test_what_is_made_of_it_afterwards(body: str, kind: str) -> None:
    text = f"""
def f(x, y, out):
    n, m = x.shape
    s = 1.0
    for i in range(n):
        {body}
    out[0] = s
"""
    found = weft.analyze(text).loops["i"]
    assert found.kind == kind, found.why


# ---------------------------------------------------------------- cascades

SOFTMAX = """
def attend(s, v, out):
    m = float("-inf")
    l = 0.0
    o = 0.0
    for j in range(s.shape[0]):
        m_new = max(m, s[j])
        p = torch.exp(s[j] - m_new)
        l_new = l * torch.exp(m - m_new) + p
        o = {repair} + p * v[j] / l_new
        m = m_new
        l = l_new
    out[0] = o
"""


def test_flash_attention_is_a_reduction_by_its_repairs() -> None:
    found = weft.analyze("import torch\n" + SOFTMAX.format(repair="o * torch.exp(m - m_new) * l / l_new")).loops["j"]
    assert found.kind == "reduction", found.why
    repairs = {u.name: u.repair for u in found.updates}
    assert repairs == {"m": "", "l": "exp(m - m')", "o": "exp(m - m') * l / l'"}
    assert [u.feeds for u in found.updates] == [True, True, False]


def test_attention_that_forgets_to_rescale_depends_on_the_order() -> None:
    found = weft.analyze("import torch\n" + SOFTMAX.format(repair="o * l / l_new")).loops["j"]
    assert found.kind == "scan"
    assert "o is multiplied by l / l', where l*exp(m - m')/l' would keep its earlier terms right" in found.why


CASCADES = {
    # name: (what comes before, the iteration, whether the sum is repaired)
    "log-sum-exp": ("m = 0.0; s = 0.0", "n = max(m, x[i]); s = s * torch.exp(m - n) + torch.exp(x[i] - n); m = n", True),
    "base two": ("m = 0.0; s = 0.0", "n = max(m, x[i]); s = s * torch.exp2(m - n) + torch.exp2(x[i] - n); m = n", True),
    "quantisation by the largest": ("m = 1.0; s = 0.0", "n = max(m, abs(x[i])); s = s * (m / n) + x[i] / n; m = n", True),
    "no repair": ("m = 0.0; s = 0.0", "n = max(m, x[i]); s = s + torch.exp(x[i] - n); m = n", False),
    "wrong sign": ("m = 0.0; s = 0.0", "n = max(m, x[i]); s = s * torch.exp(n - m) + torch.exp(x[i] - n); m = n", False),
    "variance": ("m = 0.0; s = 0.0", "n = 0.5 * m + x[i]; s = s + (x[i] - m) * (x[i] - n); m = n", False),
    "relu of the difference": ("m = 0.0; s = 0.0", "n = max(m, x[i]); s = s * 0.5 + max(x[i] - n, 0.0); m = n", False),
}


@pytest.mark.parametrize("name", CASCADES)
def test_cascades(name: str) -> None:
    before, update, repaired = CASCADES[name]
    found = weft.analyze("import torch\n" + loop(update, before, "out[0] = s + m")).loops["i"]
    s = next(u for u in found.updates if u.name.startswith("s"))
    assert bool(s.repair) == repaired, found.why
    assert found.kind == ("reduction" if repaired else "scan")
    assert repaired or s.disorder or s.algebra == "sum"


@pytest.mark.parametrize("name", [n for n, (_, _, repaired) in CASCADES.items() if repaired])
def test_repaired_sums_do_not_depend_on_the_order(name: str) -> None:
    """Two halves, each by itself, brought together by the repair: the whole."""
    before, update, _ = CASCADES[name]
    namespace: dict[str, Any] = {"torch": torch}
    exec(loop(update, before, "return torch.as_tensor(m), torch.as_tensor(s)"), namespace)
    run = namespace["f"]
    x = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    m, s = run(x, None, None)
    (m1, s1), (m2, s2) = run(x[:17], None, None), run(x[17:], None, None)
    factor = {"log-sum-exp": lambda a, b: torch.exp(a - b), "base two": lambda a, b: torch.exp2(a - b),
              "quantisation by the largest": lambda a, b: a / b}[name]  # fmt: skip
    top = max(m1, m2)
    assert m == top
    assert torch.isclose(s, s1 * factor(m1, top) + s2 * factor(m2, top), rtol=1e-12)


# ---------------------------------------------------------------- counters


def positions(body: str, start: str = "0") -> str:
    return f"""
def f(x, y, z):
    k = {start}
    for i in range(x.shape[0]):
        {body}
"""


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("if x[i] > 0:\n            y[k] = x[i]\n            k += 1", "scan"),
        ("if x[i] > 0:\n            k += 1\n            y[k] = x[i]", "scan"),
        ("y[k] = x[i]\n        k += 1\n        if x[i] > 0:\n            y[k] = 0.0\n            k += 1", "scan"),
        ("y[k] = x[i]\n        if x[i] > 0:\n            k += 1", "sequential"),  # written twice where nothing is counted
        ("if x[i] > 0:\n            y[k] = x[i]\n        if x[i] > 1:\n            k += 1", "sequential"),
        ("if x[i] > 0:\n            y[k] = x[i]\n            k -= 1", "sequential"),  # may wrap around the end
        ("if x[i] > 0:\n            y[k] = x[i]\n            y[k + 1] = 0.0\n            k += 1", "sequential"),
        ("if x[i] > 0:\n            y[k] = x[i]\n            y[k + 1] = 0.0\n            k += 2", "scan"),
        ("if x[i] > 0:\n            y[k] = y[k + 1]\n            k += 1", "sequential"),  # reads what the next one writes
        ("if x[i] > 0:\n            x[i] = -1.0\n            y[k] = 1\n        if x[i] > 0:\n            k += 1", "sequential"),
    ],
)
def test_elements_subscripted_by_counters(body: str, kind: str) -> None:
    found = weft.analyze(positions(body)).loops["i"]
    assert found.kind == kind, found.why


def test_a_compaction_into_too_small_an_array_is_refused_when_it_runs() -> None:
    @weft.kernel
    def positive(x, y):
        k = 0
        for i in range(x.shape[0]):
            if x[i] > 0:
                y[k] = x[i]
                k += 1

    x = torch.ones(5)
    y = torch.zeros(3)
    with pytest.raises(weft.errors.OutOfRange):
        positive(x, y)
    positive(-x, torch.zeros(3))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FOUND)
def test_cuda_kernels_compute_what_python_does(name: str) -> None:
    generator = torch.Generator().manual_seed(4)
    kernel = weft.kernel(KERNELS[name])
    for rows, n in ((3, 5), (2, 1), (70, 300), (5, 1030), (2, 9001)):
        args = arguments(name, rows, n, torch.float64, generator)
        on_gpu = tensors(kernel(*(a.cuda() for a in args)))
        for found, wanted in zip(on_gpu, tensors(weft.kernel(KERNELS[name])(*args)), strict=True):
            assert same(found.cpu(), wanted, 1e-9), (rows, n)


# ---------------------------------------------------------------- cells that the data choose

CELLS = {
    "h[int(k[i])] += x[i]": ("reduction", ("sum",)),
    "h[int(k[i])] = x[i] + h[int(k[i])] + 1.0": ("reduction", ("sum",)),
    "h[int(k[i])] -= x[i]": ("reduction", ("sum",)),
    "h[int(k[i])] = max(h[int(k[i])], x[i])": ("reduction", ("max",)),
    "h[int(k[i])] *= x[i]": ("reduction", ("product",)),
    "if x[i] > 0: h[int(k[i])] += 1.0": ("reduction", ("sum",)),
    "h[int(k[i])] += x[i]\n        h[0] += 1.0": ("reduction", ("sum",)),
    "h[int(k[i])] += x[i]\n        h[0] *= 2.0": ("sequential", ()),
    "h[int(k[i])] += h[0]": ("sequential", ()),
    "h[int(k[i])] += x[i]\n        x[i] = h[0]": ("sequential", ()),
    "h[int(k[i])] = 0.5 * h[int(k[i])] + x[i]": ("sequential", ()),
    "h[int(k[i])] = x[i] - h[int(k[i])]": ("sequential", ()),
    "h[int(k[i])] = h[int(x[i])] + 1.0": ("sequential", ()),
}


@pytest.mark.parametrize("update", CELLS)
def test_accumulations_into_cells(update: str) -> None:
    found = weft.analyze(f"def f(x, h, k):\n    for i in range(x.shape[0] - 1):\n        {update}\n").loops["i"]
    assert (found.kind, found.algebra) == CELLS[update], found.why


def test_what_a_loop_inside_hands_on_through_memory_is_no_algebra() -> None:
    """s1 reaches itself through y, from one iteration of j to the next: a maximum of it, so no affine map."""
    found = weft.analyze("""
def f(x, y, old, out):
    n, m = x.shape
    s = 0.5
    for i in range(m):
        for j in range(n):
            for k in range(i + 1):
                s = 0.5 * s + y[i]
            y[i] = max(old[i] * x[j, i], s)
        out[i] = s
""")
    assert found.loops["i"].kind == "sequential"


def test_what_a_loop_inside_computes_from_another_state_is_no_element() -> None:
    """The value that j gives s last is made of h, which starts with s."""
    found = weft.analyze("""
def f(x, c, y):
    n, m = x.shape
    s = 0.5
    for i in range(n):
        h = s
        for j in range(m):
            h = h * 0.5 + x[i, j]
            s = torch.sin(h) if c[j] > 0 else s
        y[i] = s
""")
    assert found.loops["j"].algebra == ("affine", "select")
    assert found.loops["i"].kind == "sequential"


@pytest.mark.parametrize(("start", "kind"), [("s", "sequential"), ("0", "reduction")])
def test_what_runs_along_the_elements_of_a_state_is_no_state_of_each(start: str, kind: str) -> None:
    """The counter is each element's own only where it starts anew."""
    found = weft.analyze(f"""
def f(x, v):
    n, m = x.shape
    s = 0
    for i in range(n):
        s = {start}
        for j in range(m):
            if x[0, j] > 0:
                s += 1
            v[j] = v[j] + s
""")
    assert found.loops["i"].kind == kind, found.why


def test_a_state_that_many_conditions_start_anew_is_looked_at_once_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each order of them."""
    state, count = Ref("h", INT64), 12
    update: Expr = Op("mod", (Op("mul", (state, state), INT64), Const(7, INT64)), INT64)  # of no algebra
    for k in range(count):
        update = Op("where", (Ref(f"c{k}", BOOL), Ref(f"x{k}", INT64), update), INT64)
    calls: list[Expr] = []
    monkeypatch.setattr(match, "rewrite", lambda e, rule: calls.append(e) or rewrite(e, rule))
    carry = Carry("h", Const(0, INT64), update, "h_last")
    assert match.match(carry, update, For("i", Const(0, INT64), Ref("n", INT64), 1, (carry,), ())) is None
    assert len(calls) <= 4 * count
