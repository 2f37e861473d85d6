"""Names of the user's against those of C++, CUDA, their headers and the generated code itself."""

from __future__ import annotations

import keyword
import linecache
import re
import subprocess
from typing import Any

import pytest
import torch

import weft
from weft.emit.names import identifier, words
from weft.runtime.host import find_compiler
from weft.runtime.include import HEADERS, HOST_TWINS, resolve
from weft.runtime.nvrtc import compile_cubin

# What Python allows, and C++, its headers, CUDA or the generated code give a meaning.
pytestmark = pytest.mark.usefixtures("quickly_compiled")

HOSTILE = sorted(words("""
    M_PI NULL INFINITY NAN EOF CHAR_BIT FLT_MAX WEFT_FUNCTION BUFSIZ T N I _A __x a__b _ __FILE__ __CUDA_ARCH__
    int float double void char unsigned template typename operator this new delete namespace using auto struct union
    int32_t int64_t size_t threadIdx blockIdx blockDim gridDim warpSize half dim3 float2
    max min abs exp errno stdin linux unix major minor isnan offsetof signgam printf malloc memcpy main
    weft std thread threads teams tile tile_columns chunk v turn row outside fault item slots lanes block most k program
    x_stride_0 y_stride_1 x_tile i_run h_last h_own h_before program_rows program_32 program_1 float_values
    é ß 变量 x_ue9
"""))
FUNCTIONS = ["exp", "printf", "main", "memcpy", "cosf", "M_PI", "int", "weft", "étude"]


def kernel_named(function: str, names: list[str]) -> weft.Kernel:
    number, state, column, row, rows, local, array = names
    text = f"""
def {function}({array}, {number}: float):
    {rows}, length = {array}.shape
    y = torch.empty_like({array})
    for {row} in range({rows}):
        {state} = 0.0
        for {column} in range(length):
            {local} = {array}[{row}, {column}] * {column}
            {state} = {number} * {state} + torch.exp({local}) * {local}
            y[{row}, {column}] = {state}
    return y
"""
    label = f"<{function} of {names}>"
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    scope: dict[str, Any] = {"torch": torch, "__name__": "programs"}
    exec(compile(text, label, "exec"), scope)
    return weft.kernel(scope[function])


def compiles_and_agrees(kernel: weft.Kernel) -> None:
    x = torch.linspace(-0.02, 0.02, 74).reshape(2, 37)
    torch.testing.assert_close(kernel(x, 0.5), kernel.py(x, 0.5))
    compile_cubin(kernel.source(x, 0.5, arch="sm_90a"), "sm_90a", name="names.cu")


def test_every_name_of_the_list_is_a_name_in_python() -> None:
    assert [n for n in HOSTILE + FUNCTIONS if not n.isidentifier() or keyword.iskeyword(n)] == []


@pytest.mark.parametrize("k", range(0, len(HOSTILE), 7))
def test_names_of_all_kinds(k: int) -> None:
    compiles_and_agrees(kernel_named("program", (HOSTILE + HOSTILE)[k : k + 7]))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_names_of_kernels(function: str) -> None:
    kernel = kernel_named(function, ["a", "h", "i", "r", "n", "t", "x"])
    compiles_and_agrees(kernel)
    if function in ("exp", "M_PI", "étude"):
        report = kernel.check("float32[2,37]", 0.5)
        assert report.ok, report.text()


@pytest.mark.parametrize(("rows", "length"), [("k", "chunk"), ("memory", "k"), ("stage", "v")])
def test_sizes_with_names_that_the_text_uses_itself(rows: str, length: str) -> None:
    """A size of one name with the counter of a loop told how many points a row has."""
    text = f"""
def normalized(x, w):
    {rows}, {length} = x.shape
    y = torch.empty_like(x)
    for i in range({rows}):
        squares = 0.0
        for j in range({length}):
            squares += x[i, j] * x[i, j]
        scale = torch.rsqrt(squares / {length})
        for j in range({length}):
            y[i, j] = x[i, j] * scale * w[j]
    return y
"""
    label = f"<normalized of {rows} and {length}>"
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    scope: dict[str, Any] = {"torch": torch, "__name__": "programs"}
    exec(compile(text, label, "exec"), scope)
    assert weft.kernel(scope["normalized"]).check("float32[9,1000]", "float32[1000]", gradients=True).ok


def test_no_name_is_a_macro() -> None:
    """Of all that the compiler defines with the headers of the C++ and of the simulated CUDA."""
    command = find_compiler().command
    texts = {
        "c++": (resolve('#include "weft/host.hpp"\n', "k.cpp").text, ("-fopenmp", "-march=native")),
        "cuda": (
            resolve('#include "weft/cuda.hpp"\n', "s.cpp", (HOST_TWINS,)).text
            + resolve('#include "weft/memory.cuh"\n#include "weft/team.cuh"\n', "k.cu", (HOST_TWINS, HEADERS)).text,
            ("-D__CUDA_ARCH__=900",),
        ),
    }
    for text, flags in texts.values():
        run = subprocess.run(
            [*command, "-std=gnu++17", *flags, "-dM", "-E", "-x", "c++", "-"],
            input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        macros = set(re.findall(r"^#define (\w+)", run.stdout, re.MULTILINE))
        assert len(macros) > 300
        assert {m for m in macros if identifier(m) in macros} == set()
