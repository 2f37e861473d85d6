"""The command line: how kernels and inputs are found, what is printed, how errors end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

import weft
from weft import demo
from weft.cli import arguments, load_kernel, main
from weft.errors import TypeMismatch, UndefinedName
from weft.kernels import linrec, rms_norm
from weft.pytorch.specs import TensorSpec

ROOT = Path(__file__).parent.parent
LINREC = f"{ROOT}/weft/kernels/linrec.py:linrec"

USER_FILE = """
import torch
import weft

def double(x):
    y = torch.empty_like(x)
    for i in range(x.shape[0]):
        y[i] = 2.0 * x[i]
    return y

scale = weft.kernel(double)
number = 3
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(USER_FILE)
    return path


def test_a_file_of_the_package_gives_the_kernel_that_importing_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_kernel(LINREC) is linrec
    monkeypatch.chdir(ROOT)
    assert load_kernel("weft/kernels/linrec.py:linrec") is linrec


def test_a_file_of_the_user(user_file: Path) -> None:
    assert load_kernel(f"{user_file}:scale").name == "double"
    assert isinstance(load_kernel(f"{user_file}:double"), weft.Kernel), "a plain function is taken as if decorated"


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("linrec.py", UndefinedName, "names no kernel"),
        ("nowhere.py:f", UndefinedName, "there is no file"),
        ("{file}:absent", UndefinedName, "defines no 'absent'"),
        ("{file}:number", TypeMismatch, "is no kernel but a int"),
    ],
)
def test_targets_that_are_no_kernel(user_file: Path, target: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load_kernel(target.format(file=user_file))


def test_arguments_come_from_the_command_line_then_the_example_then_the_defaults(user_file: Path) -> None:
    x = TensorSpec("float32", (64, 1024))
    assert arguments(linrec, {}) == (x, x)
    small = TensorSpec("float64", (2, 8))
    assert arguments(rms_norm, {"x": small, "eps": 0.5}) == (small, TensorSpec("float32", (1024,)), 0.5)
    with pytest.raises(TypeMismatch, match="no parameter 'z'"):
        arguments(linrec, {"z": x})
    with pytest.raises(TypeMismatch, match="needs its argument 'x'"):
        arguments(load_kernel(f"{user_file}:scale"), {})


def test_explain_says_what_the_loops_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LINREC]) == 0
    text = capsys.readouterr().out
    assert "parallel" in text and "scan" in text and "affine" in text
    assert main(["explain", LINREC, "x=float64[2,8]", "c=float64[2,8]", "--format", "mermaid"]) == 0


def test_explain_writes_files_and_details(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "linrec.html"
    assert main(["explain", LINREC, "--format", "html", "-o", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>") and capsys.readouterr().out == ""
    assert main(["explain", LINREC]) == 0
    short = capsys.readouterr().out
    assert main(["explain", LINREC, "--detail"]) == 0
    assert "S1 -> S1  h, carried by l (0, 1)" in capsys.readouterr().out and "S1" not in short


def test_explain_needs_no_inputs_for_all_but_the_plan(user_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{user_file}:double"]) == 0
    text = capsys.readouterr().out
    assert "i  parallel" in text and "plan" not in text
    assert main(["explain", f"{user_file}:double", "x=float32[1000]"]) == 0
    assert "plan on a GPU" in capsys.readouterr().out
    assert main(["explain", f"{user_file}:double", "--format", "html"]) == 0
    assert 'class="verdict parallel"' in capsys.readouterr().out


def test_explain_of_what_is_refused_is_a_page_and_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, page = tmp_path / "mine.py", tmp_path / "mine.html"
    source.write_text("def endless(x):\n    while True:\n        x[0] = 1.0\n")
    assert main(["explain", f"{source}:endless", "--format", "html", "-o", str(page)]) == 2
    assert "remedy:" in capsys.readouterr().err
    assert "refused" in page.read_text() and "while True:" in page.read_text()


def test_source_is_plain_text_where_it_is_piped(capsys: pytest.CaptureFixture[str]) -> None:
    for arch in ("cpu", "sm_90a"):
        assert main(["source", LINREC, "--arch", arch]) == 0
        text = capsys.readouterr().out
        assert "linrec" in text and "\x1b" not in text


def test_an_error_of_the_user_is_rendered_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["explain", "nowhere.py:f"], ["source", LINREC, "x=float32[2"], ["bench", "nothing"]):
        assert main(command) == 2
        text = capsys.readouterr().err
        assert "remedy:" in text and "Traceback" not in text


def test_the_demo_prints_a_table_and_agrees_with_python() -> None:
    output = io.StringIO()
    assert demo.run(Console(file=output, width=160), shape=(8, 64)) == 0
    text = output.getvalue()
    assert "linrec" in text and "softmax" in text and "scan (affine)" in text
    assert text.count("equal (") == 2 and "the first 2 of 8 rows" in text


def test_no_command_prints_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 2 and "usage: weft" in capsys.readouterr().err


def test_importing_the_command_line_is_light() -> None:
    import subprocess

    code = "import sys, weft.cli; print([m for m in ('torch', 'islpy', 'sympy', 'cuda') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
