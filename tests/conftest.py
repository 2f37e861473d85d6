"""What the tests share: options, the marker `gpu`, golden files, and a kernel cache of their own."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

# Before OpenMP is loaded, with torch: threads that wait for work sleep. Tests run side by side, and those that spun for
# theirs would keep the others from the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import hypothesis
import pytest
import torch

from tests import syntax, validated
from weft.pytorch import reference, simulated
from weft.runtime import host
from weft.runtime.simulator.engine import engine

GOLDEN = Path(__file__).parent / "golden"
_CACHE = pytest.StashKey[str]()


def _with(*level: str) -> tuple[str, ...]:
    return tuple(own for flag in host.FLAGS for own in (level if flag == "-O3" else (flag,)))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("weft")
    group.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what the code gives now")
    group.addoption("--programs", type=int, metavar="N", help="examples of every property that sets no number itself")


def pytest_configure(config: pytest.Config) -> None:
    validated.install()
    programs = config.getoption("--programs")
    # The suite says the same of the same code: what is drawn at random is `make fuzz`'s, which asks for a number.
    hypothesis.settings.register_profile(
        "weft",
        max_examples=programs or 8,
        derandomize=programs is None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("weft")
    if programs is None:  # what takes the plain Python long is held against the kernel for the CPU, as larger calls are
        reference.MOST_ITERATIONS, reference.MOST_ITERATIONS_OF_GRADIENTS = 10_000, 2_000
        syntax.install()
        # To optimise a kernel takes longer than all else that most tests ask of it.
        host.build.__defaults__ = (_with("-O0"),)
    # One cache a run, shared by its workers (which inherit the environment) and apart from the user's own.
    if not hasattr(config, "workerinput"):
        config.stash[_CACHE] = os.environ["WEFT_CACHE"] = tempfile.mkdtemp(prefix="weft-tests-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ["WEFT_CACHE"], "inductor")
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.getoption("numprocesses", None):
            # The whole suite's workers compile it once, while they collect, and not one beside the other.
            threading.Thread(target=engine, daemon=True).start()


def pytest_unconfigure(config: pytest.Config) -> None:
    cache = config.stash.get(_CACHE, None)
    if cache is not None:
        shutil.rmtree(cache, ignore_errors=True)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws where it is imported is the same in every run, whatever was imported before it."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws is the same in every run, whatever ran before it in its process."""
    torch.manual_seed(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--programs") is None:
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection(session: pytest.Session) -> None:
    """What is made meanwhile stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: the collector of garbage need not look through it again and again."""
    gc.freeze()
    gc.set_threshold(20_000)  # expressions by the thousand are no cycles
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """So does what the tests of a file have loaded, and what they keep."""
    if nextitem is None or nextitem.path != item.path:
        syntax.read()
        gc.collect()
        gc.freeze()


@pytest.fixture
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of many programs, each called a few times: not optimised where the others are, either."""
    monkeypatch.setattr(host.build, "__defaults__", (_with("-O0"),))


@pytest.fixture
def rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that tell whether multiply-adds round once, as they do where GCC optimises, or twice."""
    monkeypatch.setattr(host.build, "__defaults__", (_with("-O1", "-fexpensive-optimizations"),))


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of kernels for the CPU as users have them."""
    monkeypatch.setattr(host.build, "__defaults__", (host.FLAGS,))


@pytest.fixture
def compiled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what NVRTC says of registers: the texts that they simulate are compiled, and not read alone."""
    monkeypatch.setattr(simulated, "_resources", syntax.whole)


@pytest.fixture
def separate_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nests are launches of their own, whatever one for several would cost."""
    from weft.compiler import blocks

    monkeypatch.setattr(blocks, "_known", {})
    monkeypatch.setattr(blocks, "GAIN", 0.0)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text equals tests/golden/NAME, which `pytest --update-golden` rewrites."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.is_file(), f"{path} is missing: run pytest --update-golden and read what it writes"
        assert text == path.read_text(), f"{path} differs: if the change is meant, run pytest --update-golden"

    return compare
