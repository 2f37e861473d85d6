"""The repository keeps its own rules: rooms import downwards, links lead somewhere, examples run."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "weft"

# Every room of the package and the rooms it may import. The ground is `errors`, which everyone may import.
GROUND: dict[str, set[str]] = {"errors": set(), "layout": set(), "runtime": set(), "loops": set()}
BELOW: dict[str, set[str]] = {
    **GROUND,
    "language": {"loops"},
    "graph": {"loops", "layout"},
    "plan": {"graph", "loops", "layout"},
    "emit": {"plan", "graph", "loops", "layout"},
    "explain": {"emit", "plan", "graph", "language", "loops", "layout"},
    "pytorch": {"explain", "emit", "plan", "graph", "language", "loops", "layout", "runtime"},
    "kernels": {"pytorch", "runtime"},
    "demo": {"kernels", "pytorch", "runtime"},
    "cli": {"demo", "kernels", "pytorch", "runtime"},
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


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import of weft in a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names = [f"weft.{a.name}" for a in node.names] if node.module == "weft" else [node.module]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "weft")


@pytest.mark.parametrize("room", BELOW)
def test_rooms_import_only_rooms_below(room: str) -> None:
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").is_file() else sorted((PACKAGE / room).rglob("*.py"))
    assert files, f"there is no room {room}"
    allowed = BELOW[room] | {room, "errors"}
    for path in files:
        for line, name in _imports(path):
            part = name.split(".")[1] if "." in name else ""
            fine = part in allowed or (part not in BELOW and room in DOOR)
            assert fine, f"{path.relative_to(ROOT)}:{line} imports {name}; {room} may import {sorted(allowed)}"


def test_every_room_is_known() -> None:
    rooms = {p.stem for p in PACKAGE.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    assert rooms - {"__init__"} == set(BELOW)


def test_imports_are_absolute() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}:{getattr(node, 'lineno', 0)}"


def test_one_module_uses_islpy() -> None:
    users = [p for p in PACKAGE.rglob("*.py") if re.search(r"^\s*(import|from) islpy", p.read_text(), re.MULTILINE)]
    assert len(users) <= 1, users


def test_inline_ptx_lives_in_device_headers_alone() -> None:
    for path in _files(".py", ".cuh", ".h"):
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "runtime" / "device"):
            assert not re.search(r"\basm\s*(volatile)?\s*\(", path.read_text()), path


def test_text_names_no_one_s_machine_and_leaves_nothing_open() -> None:
    machine = re.compile(r"(?<![\w.])/(home|root|work|Users|mnt)/\w")
    open_ends = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    for path in _files(".py", ".md", ".toml", ".cuh", ".json", "Makefile"):
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
    assert set(PACKAGE.rglob("*.cuh")) <= shipped


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip(), "an example shows something"


def test_the_readme_s_example_runs() -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    source = ROOT / ".pytest_cache" / "readme_example.py"  # weft reads a kernel's source from its file
    source.parent.mkdir(exist_ok=True)
    source.write_text(block[1])
    runpy.run_path(str(source))
