"""The repository keeps its own rules: rooms import downwards, links lead somewhere, examples run."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import tomllib
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "weft"

# Every room of the package and the rooms it may import. The ground is `errors`, which everyone may import.
_STAGES = {"emit", "plan", "graph", "language", "loops", "layout"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "markup": set(),
    "layout": set(),
    "runtime": set(),
    "loops": set(),
    "language": {"loops"},
    "graph": {"loops", "layout"},
    "plan": {"graph", "loops", "layout"},
    "emit": {"plan", "graph", "loops", "layout"},
    "compiler": {"runtime", *_STAGES},
    "explain": {"compiler", "markup", *_STAGES},
    "analysis": {"explain", *_STAGES},
    "check": {"markup", "runtime"},
    "pytorch": {"check", "explain", "compiler", "runtime", *_STAGES},
    "elementwise": {"check", "compiler", "explain", "pytorch", "runtime", *_STAGES},
    "ops": {"elementwise", "language"},
    "tensors": {"check", "explain", "loops", "pytorch"},
    "dynamo": {"pytorch", "runtime"},
    "hand": {"analysis", "pytorch", *_STAGES},
    "kernels": {"check", "pytorch", "runtime"},
    "demo": {"kernels", "pytorch", "runtime"},
    "cli": {"demo", "explain", "kernels", "pytorch", "runtime"},
}
# The package itself (`import weft`) is the public door of `pytorch` and what lies below it.
DOOR = {"kernels", "demo", "cli"}


def _files(*endings: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("no git checkout")
    return [path for name in listed.stdout.split("\n") if name.endswith(endings) and (path := ROOT / name).is_file()]


def _imports(path: Path, modules: Container[str] = ()) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import of weft in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            inner = [f"{node.module}.{a.name}" for a in node.names]
            names = [n if node.module == "weft" or n in modules else node.module for n in inner]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "weft")


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _room(name: str) -> str | None:
    """The room of a dotted name: the longest that is known; None for `weft` itself and what it exports."""
    parts = name.split(".")[1:]
    return next((room for n in (2, 1) if (room := ".".join(parts[:n])) in BELOW), None)


@pytest.mark.parametrize("room", BELOW)
def test_rooms_import_only_rooms_below(room: str) -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if _room(_module(path)) == room]
    assert files, f"there is no room {room}"
    allowed = BELOW[room] | {room, "errors"}
    for path in files:
        for line, name in _imports(path):
            imported = _room(name)
            fine = imported in allowed or (imported is None and room in DOOR)
            assert fine, f"{path.relative_to(ROOT)}:{line} imports {name}; {room} may import {sorted(allowed)}"


def test_every_module_is_in_a_room() -> None:
    homeless = [path for path in PACKAGE.rglob("*.py") if _room(_module(path)) is None]
    assert homeless == [PACKAGE / "__init__.py"]


def test_imports_are_absolute() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{getattr(node, 'lineno', 0)}"


# Modules that need each other by what they mean.
MUTUAL = (
    {"weft.layout.layout", "weft.layout.slicing", "weft.layout.swizzle"},  # a slice of a layout is one behind an offset
)


def test_modules_need_each_other_in_one_direction() -> None:
    """Imports inside functions, and those for types alone, are looked at too."""
    modules = {_module(path): path for path in PACKAGE.rglob("*.py")}
    one_of = {module: "".join(sorted(group)) for group in MUTUAL for module in group}
    needs: dict[str, set[str]] = {}
    for module, path in modules.items():
        mine = one_of.get(module, module)
        others = {one_of.get(name, name) for _, name in _imports(path, modules) if name in modules}
        needs.setdefault(mine, set()).update(others - {mine})
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(" needs ".join(reversed(error.args[1])))


@pytest.mark.parametrize("library", ["islpy", "ortools"])
def test_one_module_or_package_of_a_room_uses_a_large_library(library: str) -> None:
    users = [p for p in PACKAGE.rglob("*.py") if re.search(rf"^\s*(import|from) {library}", p.read_text(), re.MULTILINE)]
    homes = {p if len(p.relative_to(PACKAGE).parts) <= 2 else p.parent for p in users}
    assert len(homes) <= 1, homes


def test_inline_ptx_lives_in_device_headers_alone() -> None:
    for path in _files(".py", ".cuh", ".hpp", ".h"):
        outside = path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "runtime" / "device")
        if outside and path.name != "fiber.hpp":  # the host's own switch of stacks
            assert not re.search(r"\basm\s*(volatile)?\s*\(", path.read_text()), path


def test_text_names_no_one_s_machine_and_leaves_nothing_open() -> None:
    machine = re.compile(r"(?<![\w.])/(root/|work/|mnt/|Users/|home/(?!someone\b|user\b))\w")
    open_ends = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    for path in _files(".py", ".md", ".toml", ".cuh", ".hpp", ".json", "Makefile"):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not machine.search(line) and not open_ends.search(line), f"{path.relative_to(ROOT)}:{number}: {line}"


def test_links_between_documents_lead_somewhere() -> None:
    for path in _files(".md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
            if not re.match(r"[a-z]+:", target):
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_the_package_ships_its_device_headers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["weft"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert (PACKAGE / "py.typed") in shipped
    assert {path for path in (PACKAGE / "runtime" / "device").rglob("*") if path.is_file()} <= shipped
    assert {path for path in PACKAGE.rglob("*") if path.suffix in (".css", ".js")} <= shipped


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [str(example)])  # what is passed to pytest is not for them
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip(), "an example shows something"


def test_the_readme_s_example_runs(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    source = tmp_path / "readme_example.py"  # weft reads a kernel's source from its file
    source.write_text(block[1])
    runpy.run_path(str(source))
