"""The runtime: the disk cache, CUDA C++ to cubins, C++ to shared libraries, and the launching of both."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.compiler import Workspace
from weft.errors import CompileError, DeviceMismatch, LaunchError, OutOfRange, WeftError
from weft.loops.types import FLOAT32
from weft.plan.facts import Geometry
from weft.plan.memory import Placement
from weft.pytorch.quick import MISS, Seen
from weft.pytorch.quick_calls import Prepared
from weft.runtime import cache, cuda, host, nvrtc, precompiled, steps
from weft.runtime.collection import uncollected
from weft.runtime.include import resolve
from weft.runtime.sheltered import Processes
from weft.runtime.simulator import program
from weft.runtime.slots import Frame, Given, Slots, pack

pytestmark = pytest.mark.usefixtures("optimised")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry_of(key: str) -> Path:
    place = cache.path(key)
    assert place is not None
    return place


# ---------------------------------------------------------------- cache


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40, deadline=None)
@given(st.binary(max_size=300))
def test_cache_gives_back_what_was_stored(payload: bytes) -> None:
    key = cache.key(b"roundtrip", payload)
    place = cache.store(key, payload)
    assert cache.load(key) == payload
    assert place is not None and place.read_bytes().startswith(payload)  # a shared library opens where it lies
    assert [p.name for p in place.parent.iterdir() if "." in p.name] == []  # no temporary file is left


def test_cache_key_tells_parts_apart() -> None:
    keys = [cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key(b"abc"), cache.key("abc", "")]
    assert len(set(keys)) == 5
    assert cache.key("a", b"b") == cache.key("a", b"b")


def test_absent_entry_is_a_miss() -> None:
    assert cache.load(cache.key("nothing")) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None)
@given(st.data())
def test_damaged_entry_is_a_miss_and_is_replaced(data: st.DataObject) -> None:
    key, payload = cache.key("damage"), b"the payload of an entry"
    cache.store(key, payload)
    whole = entry_of(key).read_bytes()
    if data.draw(st.booleans(), label="truncate"):
        damaged = whole[: data.draw(st.integers(0, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    entry_of(key).write_bytes(damaged)
    assert cache.load(key) is None
    cache.store(key, payload)
    assert cache.load(key) == payload


def test_an_entry_in_anothers_place_is_a_miss() -> None:
    texts = {cache.key("swapped", str(k)): bytes([k]) * 64 for k in range(2)}
    places = [cache.store(k, payload) for k, payload in texts.items()]
    assert places[0] is not None and places[1] is not None
    shutil.copy(places[0], places[1])
    first, second = texts
    assert cache.load(first) == texts[first] and cache.load(second) is None


def test_a_kernel_runs_whatever_happens_to_its_cache(own_cache: Path) -> None:
    source = """#include <cstdint>
extern "C" int64_t VALUE(const void*, int) { return ANSWER; }
"""
    one, two = (source.replace("VALUE", f"f{k}").replace("ANSWER", str(k)) for k in (3, 4))
    assert host.load(one, "f3", name="one.cpp").call(0, 1) == 3
    assert host.load(two, "f4", name="two.cpp").call(0, 1) == 4
    entries = [p for p in own_cache.rglob("*") if p.is_file()]
    for p, q in zip(entries, entries[1:] + entries[:1], strict=True):  # each is replaced by another one
        p.with_suffix(".new").write_bytes(q.read_bytes())
    for p in entries:
        os.replace(p.with_suffix(".new"), p)
    assert host.load(one, "f3", name="one.cpp").call(0, 1) == 3
    shutil.rmtree(own_cache)
    own_cache.write_text("a file where the directory was")
    with pytest.warns(RuntimeWarning, match="cannot (read|write) its cache"):
        assert host.load(two, "f4", name="two.cpp").call(0, 1) == 4


@pytest.mark.parametrize("stage", ["compile", "open"])
def test_no_room_for_temporary_files_is_named(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f'#include <cstdint>\nextern "C" int64_t full_{stage}(const void*, int) {{ return 0; }}\n'
    if stage == "open":
        host.load(source, f"full_{stage}", name="full.cpp")

        class Unopened(ctypes.CDLL):
            def __init__(self, *args: Any) -> None:
                raise OSError("failed to map segment from shared object")

        monkeypatch.setattr(host.ctypes, "CDLL", Unopened)

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", full)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.raises(CompileError, match=r"No space left on device[\s\S]*TMPDIR"):
        host.load(source, f"full_{stage}", name="full.cpp")


def test_cache_under_four_processes(own_cache: Path) -> None:
    """Each writes and reads the same entries over and over; none ever reads anything but a whole one."""
    program = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
cache = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cache)
for turn in range(40):
    for name in range(4):
        key = cache.key("shared", str(name))
        payload = bytes([name]) * (50_000 + 1000 * name)
        assert cache.store(key, payload) is not None
        assert cache.load(key) == payload, (turn, name)
"""
    command = [sys.executable, "-W", "error", "-c", program, str(cache.__file__)]
    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for run in runs:
        _, complaint = run.communicate(timeout=60)
        assert run.returncode == 0, complaint
    assert len([p for p in own_cache.rglob("*") if p.is_file()]) == 4


def test_unusable_directory_is_no_cache_and_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(RuntimeWarning, match="WEFT_CACHE"):
        assert cache.store(cache.key("a"), b"a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(cache.key("a")) is None
        assert cache.store(cache.key("b"), b"b") is None


def test_kernels_compile_and_run_without_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").write_text("")
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "occupied"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = host.load(AXPB, "axpb", name="axpb.cpp")
        run_axpb(function)


def test_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(cache.directory()).endswith("cache")
    monkeypatch.setenv("WEFT_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.directory() == Path("/somewhere/weft")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.directory() == Path("/home/someone/.cache/weft")


# ---------------------------------------------------------------- include


def test_headers_are_put_in_once_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "weft/b.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text("#pragma once\nint b;\n")
    text = '#include "weft/a.cuh"\n#include "weft/b.cuh"\n#include <stdint.h>\nint c;\n'
    source = resolve(text, "k.cu", headers=(tmp_path,))
    assert source.text.count("int b;") == 1
    assert "#pragma once" not in source.text and "#include <stdint.h>" in source.text
    place: dict[str, tuple[str, int]] = {}
    name, number = "", 0
    for line in source.text.splitlines():
        if line.startswith("#line"):
            _, at, quoted = line.split()
            name, number = quoted.strip('"'), int(at)
        else:
            place[line] = (name, number)
            number += 1
    assert (place["int a;"], place["int b;"], place["int c;"]) == (("weft/a.cuh", 3), ("weft/b.cuh", 2), ("k.cu", 4))


def test_missing_header_is_named(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r'"weft/none.cuh" is missing[\s\S]*k.cu:2'):
        resolve('\n#include "weft/none.cuh"\n', "k.cu", headers=(tmp_path,))


# ---------------------------------------------------------------- slots

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(INT64, st.booleans(), st.floats(allow_nan=False), st.sampled_from(Given))


@given(st.lists(VALUES, max_size=12), st.data())
def test_slots_hold_every_kind_in_order(values: list[Given | bool | int | float], data: st.DataObject) -> None:
    kinds = {Given.POINTER: st.integers(0, 2**64 - 1), Given.INTEGER: INT64, Given.REAL: st.floats(allow_nan=False)}
    at_launch = {n: data.draw(kinds[v]) for n, v in enumerate(values) if isinstance(v, Given)}
    slots = pack(values)
    assert len(slots) == len(values)
    frame = Frame(slots)
    frame.write(*at_launch.values())
    expected = b""
    for n, value in enumerate(values):
        given_value = at_launch.get(n, value)
        layout = value.value if isinstance(value, Given) else "d" if isinstance(value, float) else "q"
        expected += struct.pack("=" + layout, given_value)
    assert bytes(frame.buffer)[: len(expected)] == expected


@pytest.mark.parametrize("values", [[Given.POINTER, 1], [Given.POINTER, 1, Given.POINTER], [1]])
def test_slots_refuse_a_wrong_number_of_values(values: list[Given | int]) -> None:
    with pytest.raises((TypeError, struct.error)):
        Frame(pack(values)).write(1, 2, 3)


def test_slots_refuse_an_int_beyond_64_bits() -> None:
    with pytest.raises(OutOfRange, match="argument 1"):
        pack([0, 2**63])


# ---------------------------------------------------------------- NVRTC

ADD = """
extern "C" __global__ void add(const float* a, const float* b, float* c, long long n, double alpha) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + (float)alpha * b[i];
}
"""

SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spill(const float* a, float* b, int turns) {
  float r[200];
#pragma unroll
  for (int i = 0; i < 200; i++) r[i] = a[i * 1024 + threadIdx.x];
  for (int turn = 0; turn < turns; turn++) {
#pragma unroll
    for (int i = 0; i < 200; i++) r[i] = r[i] * r[(i + 7) % 200] + 1.0f;
  }
#pragma unroll
  for (int i = 0; i < 200; i++) b[i * 1024 + threadIdx.x] = r[i];
}
"""

SERIALISED_WGMMA = """
__device__ __noinline__ void other(float* p) { p[threadIdx.x] = 1; }
extern "C" __global__ void __launch_bounds__(128) k(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
  other(out);
  d[0] += 1;
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"""

needs_nvrtc = pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed")


@needs_nvrtc
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_compiles_for_every_architecture(arch: str) -> None:
    cubin = nvrtc.compile_cubin(ADD, arch, name="add.cu")
    assert cubin.binary.startswith(b"\x7fELF")
    assert 0 < cubin.registers < 64
    assert (cubin.spill_stores, cubin.spill_loads, cubin.stack, cubin.shared) == (0, 0, 0, 0)
    assert cubin.warnings == () and nvrtc.gate(cubin) == []


@needs_nvrtc
def test_a_cached_cubin_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = nvrtc.compile_cubin(ADD, "sm_90a", name="add.cu")
    with monkeypatch.context() as context:
        context.setattr(nvrtc, "_compile", None)
        assert nvrtc.compile_cubin(ADD, "sm_90a", name="add.cu") == first
        for arch, name in [("sm_80", "add.cu"), ("sm_90a", "other.cu")]:
            with pytest.raises(TypeError):  # it would compile
                nvrtc.compile_cubin(ADD, arch, name=name)


@needs_nvrtc
def test_a_damaged_cubin_is_compiled_again(own_cache: Path) -> None:
    first = nvrtc.compile_cubin(ADD, "sm_80", name="add.cu")
    (entry,) = (p for p in own_cache.rglob("*") if p.is_file())
    whole = entry.read_bytes()
    entry.write_bytes(whole[:2000])
    assert nvrtc.compile_cubin(ADD, "sm_80", name="add.cu").registers == first.registers
    assert len(entry.read_bytes()) > 2000


@needs_nvrtc
def test_refusal_shows_the_log_and_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void k(float* a) {\n  // fine\n  a[0] = missing_name;\n}\n'
    with pytest.raises(CompileError) as refused:
        nvrtc.compile_cubin(source, "sm_90a", name="wrong.cu")
    message = str(refused.value)
    assert 'wrong.cu(3): error: identifier "missing_name" is undefined' in message
    assert ">    3 |   a[0] = missing_name;" in message and "     2 |   // fine" in message
    assert cache.load(cache.key("wrong")) is None


@needs_nvrtc
def test_refused_ptx_is_a_compile_error() -> None:
    source = 'extern "C" __global__ void k() { asm volatile("no.such.instruction;"); }'
    with pytest.raises(CompileError, match="ptxas"):
        nvrtc.compile_cubin(source, "sm_90a", name="wrong.cu")


@needs_nvrtc
def test_gate_names_spills() -> None:
    cubin = nvrtc.compile_cubin(SPILLING, "sm_90a", name="spill.cu")
    assert cubin.spill_stores > 0 and cubin.spill_loads > 0 and cubin.stack > 0
    (problem,) = nvrtc.gate(cubin)
    assert "spill" in problem and str(cubin.spill_stores) in problem


@needs_nvrtc
def test_gate_names_serialised_wgmma() -> None:
    problems = nvrtc.gate(nvrtc.compile_cubin(SERIALISED_WGMMA, "sm_90a", name="wgmma.cu"))
    assert any("C75" in problem for problem in problems)


@needs_nvrtc
def test_resources_are_of_the_largest_function() -> None:
    source = """
    extern "C" __global__ void small(float* a) { a[0] = 1; }
    extern "C" __global__ void large(float* a) {
      __shared__ float s[100];
      s[threadIdx.x] = a[threadIdx.x];
      __syncthreads();
      a[threadIdx.x] = s[99 - threadIdx.x];
    }"""
    assert nvrtc.compile_cubin(source, "sm_80", name="two.cu").shared == 400


def test_unknown_architecture_is_refused() -> None:
    with pytest.raises(CompileError, match="sm_90a"):
        nvrtc.compile_cubin(ADD, "sm_70", name="add.cu")


def test_missing_nvrtc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "0")
    with pytest.raises(CompileError, match="pip install"):
        nvrtc.compile_cubin(ADD, "sm_90a", name="add.cu")


# ---------------------------------------------------------------- C++ on the host

AXPB = """
#include <stdint.h>
union slot { void* pointer; int64_t integer; double real; };
extern "C" int64_t axpb(const slot* slots, int threads) {
  const float* x = (const float*)slots[0].pointer;
  float* y = (float*)slots[1].pointer;
  int64_t n = slots[2].integer;
  float a = (float)slots[3].real;
  #pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < n; i++) y[i] = a * x[i] + 1.0f;
  return n == 0 ? 7 : 0;
}
"""


def run_axpb(function: host.HostFunction) -> None:
    x = torch.randn(10_000)
    y = torch.empty_like(x)
    kernel = host.HostKernel(function, pack([Given.POINTER, Given.POINTER, len(x), 2.5]))
    assert kernel.launch(torch.get_num_threads(), x.data_ptr(), y.data_ptr()) == 0
    torch.testing.assert_close(y, 2.5 * x + 1)


def test_host_kernel_runs_on_a_tensor() -> None:
    function = host.load(AXPB, "axpb", name="axpb.cpp")
    run_axpb(function)
    assert host.HostKernel(function, pack([0, 0, 0, 1.0])).launch(1) == 7  # its own code


def test_a_cached_library_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host.load(AXPB, "axpb", name="axpb.cpp")
    monkeypatch.setattr(host, "_compile", None)
    run_axpb(host.load(AXPB, "axpb", name="axpb.cpp"))


def test_libraries_are_cached_for_this_cpu_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    host.load(AXPB, "axpb", name="axpb.cpp")
    compiler = host.find_compiler()
    monkeypatch.setattr(host, "_compile", None)
    with monkeypatch.context() as context, pytest.raises(TypeError):  # it would compile
        context.setattr(host, "cpu_model", lambda: "another")
        host.load(AXPB, "axpb", name="axpb.cpp")
    with monkeypatch.context() as context, pytest.raises(TypeError):
        context.setattr(host, "find_compiler", lambda: host.Compiler(compiler.command, "another"))
        host.load(AXPB, "axpb", name="axpb.cpp")


@pytest.mark.parametrize("damage", ["truncate", "garble", "empty"])
def test_a_damaged_library_is_never_opened(own_cache: Path, damage: str) -> None:
    source = AXPB + f"// {damage}\n"
    whole = resolve(source, "axpb.cpp")
    key = cache.key(host._FORMAT, host.find_compiler().identity, host.cpu_model(), *host.FLAGS, whole.text)
    binary, _ = host._compile(whole, host.find_compiler(), "axpb.cpp", host.FLAGS, Processes())
    place = cache.store(key, binary)
    assert place is not None
    entry = place.read_bytes()
    damaged = {"truncate": entry[: len(entry) // 2], "garble": entry[:64] + bytes(4096) + entry[4160:], "empty": b""}
    place.write_bytes(damaged[damage])
    run_axpb(host.load(source, "axpb", name="axpb.cpp"))
    assert cache.load(key) is not None


def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The compilers that are run from now on."""
    made: list[list[str]] = []
    run = host._run

    def noted(processes: Processes, command: list[str], directory: str, name: str) -> tuple[int, str]:
        made.append(command)
        return run(processes, command, directory, name)

    monkeypatch.setattr(host, "_run", noted)
    return made


def test_system_headers_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = commands(monkeypatch)
    for k in range(3):
        run_axpb(host.load(f"{AXPB}// {k}\n", "axpb", name="axpb.cpp"))
    assert ["c++-header" in command for command in made] == [True, False, False, False]
    assert all("-include" in command for command in made[1:])
    monkeypatch.setattr(precompiled, "_known", {})  # as in another process
    run_axpb(host.load(f"{AXPB}// 3\n", "axpb", name="axpb.cpp"))
    assert len(made) == 5


@pytest.mark.parametrize("flags", [(*host.FLAGS, "-nodefaultlibs", "-lm", "-lc"), program._KERNEL_FLAGS])
def test_what_is_linked_is_no_reason_to_parse_system_headers_again(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """Nor are flags for the linker, as those of the simulator's kernels."""
    made = commands(monkeypatch)
    text = '#include <cstddef>\nextern "C" std::size_t one() { return 1; }\n'
    host.build(resolve(text, "one.cpp"), "one.cpp", flags)
    assert ["-include" in command for command in made] == [False, True]


def test_parsed_headers_are_those_of_the_flags(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def run(arguments: tuple[str, ...], directory: str) -> bool:
        asked.append(arguments)
        (Path(directory) / arguments[-1]).write_text("parsed")
        return True

    for identity in (("a", "-O3"), ("a", "-O1"), ("b", "-O3"), ("a", "-O3")):
        with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
            prepared = precompiled.prepare("#include <cmath>\n", directory, identity, run)
            assert prepared == precompiled.Prepared("#include <cmath>\n", ("-include", "headers.hpp"))
            assert Path(directory, "headers.hpp").read_text() == "#include <cmath>\n"
            assert Path(directory, "headers.hpp.gch").read_bytes().startswith(b"parsed")
    assert len(asked) == 3
    assert precompiled.prepare("int x;\n", str(tmp_path), ("a", "-O3"), run) == precompiled.Prepared("int x;\n", ())


def test_the_header_of_weft_that_a_source_begins_with_is_parsed_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = commands(monkeypatch)
    whole = '#include "weft/host.hpp"\nextern "C" int64_t value() {{ return weft::maximum<int64_t>({}, 1); }}\n'
    texts = [whole.format(k) for k in range(3)]
    assert [host.library(text, f"own{k}.cpp").value() for k, text in enumerate(texts)] == [1, 1, 2]
    assert ["c++-header" in command for command in made] == [True, False, False, False]
    with pytest.raises(CompileError, match=r"wrong\.cpp:3:"):  # places are still those of the source
        host.library(f"{texts[0]}int other() {{ return none; }}\n", "wrong.cpp")


@pytest.mark.parametrize("harm", ["garble", "empty", "gone"])
def test_harmed_headers_cost_only_time(own_cache: Path, harm: str) -> None:
    run_axpb(host.load(AXPB, "axpb", name="axpb.cpp"))
    (kept,) = (p for p in own_cache.rglob("*") if p.is_file() and p.stat().st_size > 1 << 20)
    whole = kept.read_bytes()
    harmed = {"garble": whole[: len(whole) // 2] + bytes(len(whole) // 2), "empty": b""}
    if harm == "gone":
        kept.unlink()
    else:
        kept.write_bytes(harmed[harm])
    run_axpb(host.load(f"{AXPB}// {harm}\n", "axpb", name="axpb.cpp"))


def test_a_compiler_that_parses_no_headers_ahead_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    run = host._run
    monkeypatch.setattr(host, "_run", lambda p, c, d, n: (1, "no") if "c++-header" in c else run(p, c, d, n))
    run_axpb(host.load(AXPB, "axpb", name="axpb.cpp"))


def test_no_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompileError, match=r"no C\+\+ compiler[\s\S]*remedy: install"):
        host.load(AXPB, "axpb", name="axpb.cpp")


def test_cxx_chooses_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -v")
    with pytest.raises(CompileError, match="CXX=no-such-compiler"):
        host.find_compiler()
    monkeypatch.setenv("CXX", "g++ -DSOME")
    assert host.find_compiler().command[1:] == ("-DSOME",)


def test_host_refusal_shows_the_log_and_the_lines() -> None:
    with pytest.raises(CompileError) as refused:
        host.load("int fine;\nint x = missing_name;\n", "x", name="wrong.cpp")
    message = str(refused.value)
    assert "wrong.cpp:2" in message and "missing_name" in message and ">    2 | int x = missing_name;" in message


def test_threads_are_as_many_as_asked_for() -> None:
    source = """
    #include <stdint.h>
    extern "C" int omp_get_num_threads();
    extern "C" int64_t count(const void*, int threads) {
      int64_t seen = 0;
      #pragma omp parallel num_threads(threads)
      {
        #pragma omp single
        seen = omp_get_num_threads();
      }
      return seen;
    }"""
    kernel = host.HostKernel(host.load(source, "count", name="count.cpp"), pack([]))
    assert [kernel.launch(n) for n in (1, 2, 3)] == [1, 2, 3]


def test_one_openmp_runtime_serves_torch_and_kernels() -> None:
    """Two would each keep threads that spin, and disturb each other."""
    source = """
    #include <stdint.h>
    extern "C" int omp_get_max_threads();
    extern "C" int64_t most(const void*, int) { return omp_get_max_threads(); }"""
    kernel = host.HostKernel(host.load(source, "most", name="most.cpp"), pack([]))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert kernel.launch(1) == 3
    finally:
        torch.set_num_threads(before)


def test_a_kernel_runs_without_pythons_lock_and_beside_itself() -> None:
    """The first launch waits for a flag that only Python code, and a second launch of the same kernel, can set."""
    source = """
    #include <stdint.h>
    extern "C" int64_t wait_or_set(volatile int64_t* const* slots, int) {
      volatile int64_t* flag = slots[0];
      if (*slots[1]) { *flag = 1; return 0; }
      for (int64_t n = 0; n < 20000000000; n++) if (*flag) return 0;
      return 1;
    }"""
    kernel = host.HostKernel(host.load(source, "wait_or_set", name="wait.cpp"), pack([Given.POINTER, Given.POINTER]))
    flag, wait, set_flag = (torch.tensor([n]) for n in (0, 0, 1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(kernel.launch, 1, flag.data_ptr(), wait.data_ptr())
        time.sleep(0.02)
        assert not waiting.done()
        assert kernel.launch(1, flag.data_ptr(), set_flag.data_ptr()) == 0
        assert waiting.result(timeout=30) == 0


# ---------------------------------------------------------------- the launcher, on a stand-in for the driver

STAND_IN = """
#include <stdint.h>
#include <string.h>
// Two devices, 90 and 100 by compute capability; one kernel, "axpb"; contexts are 0x1000 + device.
struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; };
extern "C" {
int64_t launches, pushes, last_shared_limit, fail_with, fail_from, maps, refuses_maps;
unsigned char last_maps[2][128];
Config last;
static thread_local uintptr_t stack[8];
static thread_local int depth;
static uintptr_t current() { return depth ? stack[depth - 1] : 0; }
void set_current(uintptr_t context) { depth = 1; stack[0] = context; }
int context_depth() { return depth; }
int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(uintptr_t* context, int device) { *context = 0x1000 + device; return 0; }
int cuCtxPushCurrent_v2(uintptr_t context) { pushes++; stack[depth++] = context; return 0; }
int cuCtxGetCurrent(uintptr_t* context) { *context = current(); return 0; }
int cuCtxSetCurrent(uintptr_t context) { set_current(context); return 0; }
int cuCtxPopCurrent_v2(uintptr_t* context) { *context = stack[--depth]; return 0; }
int cuDeviceGetName(char* name, int size, int) { strncpy(name, "stand-in", size); return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? (device ? 10 : 9) : attribute == 76 ? 0 : attribute == 97 ? 232448 : 1000 + attribute;
  return 0;
}
int cuModuleLoadData(void** module, const char* binary) {
  if (!strcmp(binary, "other")) return 209;
  *module = (void*)current();
  return strcmp(binary, "cubin") ? 200 : 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = module;
  return strcmp(name, "axpb") ? 500 : 0;
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = attribute == 0 ? 256 : attribute == 1 ? 1024 : 30 + attribute;
  return 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) { last_shared_limit = attribute == 8 ? value : -1; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t shared) {
  *blocks = 2048 / threads + (shared ? 100 : 0);
  return 0;
}
int cuTensorMapReplaceAddress(void* map, void* address) {
  if ((uintptr_t)map % 64) return 1;
  memcpy(map, &address, 8);
  return refuses_maps ? 1 : 0;
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void*) {
  if (fail_with && launches >= fail_from) return fail_with;
  if (!current()) return 201;
  memset((void*)address, value, bytes);
  return 0;
}
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void** extra) {
  if (fail_with && launches >= fail_from) return fail_with;
  if ((uintptr_t)function != current() || extra) return 201;
  last = *config;
  __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
  const float* x = *(const float**)parameters[0];
  float* y = *(float**)parameters[1];
  int64_t n = *(int64_t*)parameters[2];
  double a = *(double*)parameters[3];
  for (int64_t m = 0; m < maps; m++) memcpy(last_maps[m], parameters[4 + m], 128);
  for (int64_t i = 0; i < n; i++) y[i] = (float)a * x[i] + 1.0f;
  return 0;
}
int cuGetErrorName(int status, const char** text) {
  *text = status == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return 0;
}
int cuGetErrorString(int, const char** text) { *text = "words of the driver"; return 0; }
}
"""


class StandIn:
    """The stand-in for the driver, and what it saw."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.device = 0
        library.set_current.argtypes = [ctypes.c_void_p]
        library.set_current(0x1000)
        for name in ("launches", "pushes", "last_shared_limit", "fail_with", "fail_from", "maps", "refuses_maps"):
            self.set(name, 0)
        self.driver = cuda.Driver(library, lambda: self.device)

    def get(self, name: str) -> int:
        return ctypes.c_int64.in_dll(self.library, name).value

    def set(self, name: str, value: int) -> None:
        ctypes.c_int64.in_dll(self.library, name).value = value

    def handle(self, device: int = 0) -> cuda.KernelHandle:
        return cuda.load(b"cubin", "axpb", device, self.driver)


@pytest.fixture(scope="session")
def stand_in_library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("stand-in")
    (directory / "driver.cpp").write_text(STAND_IN)
    command = [*host.find_compiler().command, "-shared", "-fPIC", "-O1", "driver.cpp", "-o", "driver.so"]
    subprocess.run(command, cwd=directory, check=True, timeout=60)
    return ctypes.CDLL(str(directory / "driver.so"))


@pytest.fixture
def stand_in(stand_in_library: ctypes.CDLL) -> Iterator[StandIn]:
    yield StandIn(stand_in_library)


def axpb_slots(n: int, a: float | Given = 2.0) -> Slots:
    return pack([Given.POINTER, Given.POINTER, n, a])


def test_launch_hands_over_grid_stream_and_arguments(stand_in: StandIn) -> None:
    handle = stand_in.handle()
    assert (handle.registers, handle.static_shared, handle.max_threads) == (34, 1024, 256)
    x, y = torch.randn(100), torch.zeros(100)
    launcher = cuda.Launcher(handle, (3, 2, 1), (64, 2, 1), 512, axpb_slots(100, Given.REAL))
    pushed = stand_in.get("pushes")
    for a in (2.0, -0.5):
        launcher.launch(0x77, x.data_ptr(), y.data_ptr(), a)
        torch.testing.assert_close(y, a * x + 1)
    last = cuda._Config.in_dll(stand_in.library, "last")
    assert [getattr(last, name) for name, *_ in cuda._Config._fields_] == [3, 2, 1, 64, 2, 1, 512, 0x77, None, 0]
    assert stand_in.get("pushes") == pushed  # the quick way: the device was current


def test_launch_on_a_device_that_is_not_current(stand_in: StandIn) -> None:
    handle = stand_in.handle(device=1)
    x, y = torch.randn(8), torch.zeros(8)
    with pytest.raises(DeviceMismatch):  # the stand-in's second device is one weft cannot use
        cuda.Launcher(handle, (1, 1, 1), (32, 1, 1), 0, axpb_slots(8))
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(8))
    stand_in.device = 1
    stand_in.library.set_current(0x1001)
    launcher.launch(0, x.data_ptr(), y.data_ptr())
    torch.testing.assert_close(y, 2 * x + 1)
    assert stand_in.library.context_depth() == 1  # what was current is so again


def test_launch_in_a_thread_that_has_no_context(stand_in: StandIn) -> None:
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(8))
    x, y = torch.randn(8), torch.zeros(8)
    depths = []

    def launch() -> None:
        launcher.launch(0, x.data_ptr(), y.data_ptr())
        depths.append(stand_in.library.context_depth())  # the next launch finds one

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    torch.testing.assert_close(y, 2 * x + 1)
    assert depths == [1]


def test_threads_share_a_launcher(stand_in: StandIn) -> None:
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(4, Given.REAL))

    def work(a: int) -> None:
        x, y = torch.full((4,), float(a)), torch.zeros(4)
        for turn in range(300):
            launcher.launch(0, x.data_ptr(), y.data_ptr(), float(turn))
            assert y[3].item() == turn * a + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert stand_in.get("launches") == 1200


def test_an_empty_grid_launches_nothing(stand_in: StandIn) -> None:
    cuda.Launcher(stand_in.handle(), (0, 1, 1), (32, 1, 1), 0, axpb_slots(0)).launch(0, 0, 0)
    assert stand_in.get("launches") == 0


def counted(stand_in: StandIn, kernels: int) -> list[cuda.Launcher]:
    """Launchers whose kernel doubles the first elements and adds one; how many is a slot for steps."""
    return [cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(0)) for _ in range(kernels)]


@pytest.mark.parametrize("native", [True, False])
def test_launches_in_loops(stand_in: StandIn, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not native:
        monkeypatch.setattr(steps, "_native", lambda: None)
    first, second, third = counted(stand_in, 3)
    here, there = (0, 0), (1, 1)
    upward = steps.StepGuard(((0, 2, 3),), bytes([0, 1, 1]))
    odd = steps.StepGuard(((0, 2, 2), (1, 0, 2)), bytes([0, 1, 1, 0]))  # the sum of t - 2 and k is
    program = [
        steps.StepLoop(
            (2, ()),
            (5, ()),
            1,
            (
                steps.StepLaunch(first, here, ((2, 0),), (upward,)),
                steps.StepLoop((0, (2,)), (-1, (1,)), -2, (steps.StepLaunch(second, there, ((2, 1),), (odd,)),)),
            ),
        ),
        steps.StepLoop((3, ()), (3, ()), 1, (steps.StepLaunch(third, here, ((2, 0),)),)),
    ]
    a, b = torch.zeros(16), torch.zeros(16)
    steps.Stepper(program).launch(0x55, a.data_ptr(), b.data_ptr())
    want_a, want_b, launches = torch.zeros(16), torch.zeros(16), 0
    for t in range(2, 5):
        if t > 2:
            want_a[:t] = 2 * want_a[:t] + 1
            launches += 1
        for k in range(2 * t, t - 1, -2):
            if (t + k) % 2 == 0:
                continue
            want_b[:k] = 2 * want_b[:k] + 1
            launches += 1
    assert torch.equal(a, want_a) and torch.equal(b, want_b)
    assert stand_in.get("launches") == launches
    last = cuda._Config.in_dll(stand_in.library, "last")
    assert last.stream == 0x55


def test_launches_in_loops_fail_by_name(stand_in: StandIn) -> None:
    (launcher,) = counted(stand_in, 1)
    stepper = steps.Stepper([steps.StepLoop((0, ()), (9, ()), 1, (steps.StepLaunch(launcher, (0, 1), ()),))])
    stand_in.set("fail_with", 719)
    with pytest.raises(LaunchError, match="axpb was not launched: CUDA_ERROR_LAUNCH_FAILED"):
        stepper.launch(0, 0, 0)
    assert stand_in.library.context_depth() == 1
    stand_in.set("fail_with", 0)
    stepper.launch(0, 0, 0)
    assert stand_in.get("launches") == 9


def test_a_call_that_fails_halfway_is_not_run_again(stand_in: StandIn) -> None:
    """Of several launches that write an argument: where the first one fails, the long way may begin anew; where a later one
    does, nothing may.
    """
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(8))
    x, y = torch.randn(8), torch.zeros(8)
    arrays = [SimpleNamespace(name=name, role="inout") for name in ("x", "y")]
    function = SimpleNamespace(name="ping_pong", parameters=("x", "y"), arrays=arrays, results=())
    launches = [(launcher.launch, given, launcher.parts()) for given in (("x", "y"), ("y", "x"))]
    call = Prepared(function, (), {}, launches, torch.device("cpu")).quick(Seen((x, y)))  # type: ignore[arg-type]
    start = x.clone()
    assert call(x, y) is None
    torch.testing.assert_close(x, 2 * (2 * start + 1) + 1)
    stand_in.set("fail_with", 719)
    assert call(x, y) is MISS
    before = x.clone()
    stand_in.set("fail_from", stand_in.get("launches") + 1)
    with pytest.raises(LaunchError, match="CUDA_ERROR_LAUNCH_FAILED"):
        call(x, y)
    assert torch.equal(x, before) and torch.equal(y, 2 * before + 1)


def test_quick_calls_give_maps_the_addresses_of_their_tensors(stand_in: StandIn) -> None:
    boxes = [cuda.GivenMap(position, lambda _, n=position: bytes([7 + n]) * 128) for position in (1, 0)]  # type: ignore[misc]
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(8), boxes=boxes)
    x, y, z = torch.randn(8), torch.zeros(8), torch.randn(8)
    arrays = [SimpleNamespace(name="x", role="input"), SimpleNamespace(name="y", role="inout")]
    function = SimpleNamespace(name="axpb", parameters=("x", "y"), arrays=arrays, results=())
    launches = [(launcher.launch, ("x", "y"), launcher.parts())]
    call = Prepared(function, (), {}, launches, torch.device("cpu")).quick(Seen((x, y)))  # type: ignore[arg-type]
    stand_in.set("maps", 2)
    for tensor in (x, z):
        assert call(tensor, y) is None
        torch.testing.assert_close(y, 2 * tensor + 1)
        seen = bytes((ctypes.c_ubyte * 256).in_dll(stand_in.library, "last_maps"))
        addresses = [t.data_ptr().to_bytes(8, "little") for t in (y, tensor)]
        assert seen == addresses[0] + bytes([8]) * 120 + addresses[1] + bytes([7]) * 120
    stand_in.set("refuses_maps", 1)
    assert call(x, y) is MISS


@pytest.mark.parametrize("is_compiled", [True, False])
def test_quick_calls_put_intermediates_into_one_allocation(
    stand_in: StandIn, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x -> a -> b -> y, where some of b is cleared in between."""
    if not is_compiled:
        monkeypatch.setattr("weft.pytorch.quick_calls._Call.compiled", lambda self: None)
    made: list[torch.Tensor] = []

    def empty(*args: Any) -> torch.Tensor:
        made.append(torch.empty_strided(args[0], args[1], dtype=args[2]))
        return made[-1]

    monkeypatch.setattr("weft.pytorch.quick_calls.eager_allocator", lambda device: (empty, False))
    boxes = [cuda.GivenMap(0, lambda address: address.to_bytes(8, "little") * 16)]
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(8), boxes=boxes)
    clear = cuda.Clearer(stand_in.driver, 0, 16)
    steps = [(launcher, ("x", "a")), (launcher, ("a", "b")), (clear, ("b",)), (launcher, ("b", "y"))]
    launches = [(one.launch, given, one.parts()) for one, given in steps]
    y = SimpleNamespace(name="y", role="result", fill=None, dtype=FLOAT32)
    function = SimpleNamespace(
        name="chain", parameters=("x",), arrays=[SimpleNamespace(name="x", role="input"), y], results=("y",)
    )
    shared = Workspace((), Placement({"a": 256, "b": 512}, 1024, 1024, 1024, True))
    x, geometry = torch.randn(8), {"y": Geometry(FLOAT32, (8,), (1,), 0)}
    given: Any = (function, [y], geometry, launches, torch.device("cpu"))
    call = Prepared(*given, shared=shared).quick(Seen((x,)))
    stand_in.set("maps", 1)
    found = call(x)
    want = 2 * (2 * x + 1) + 1
    want[:4] = 0
    torch.testing.assert_close(found, 2 * want + 1)
    result, workspace = made
    assert found is result and workspace.dtype == torch.uint8 and workspace.shape == (1024,)
    seen = bytes((ctypes.c_ubyte * 8).in_dll(stand_in.library, "last_maps"))
    assert int.from_bytes(seen, "little") == workspace.data_ptr() + 512


def test_memory_is_cleared_in_a_thread_that_has_no_context(stand_in: StandIn) -> None:
    x, clear = torch.ones(8), cuda.Clearer(stand_in.driver, 0, 12)
    thread = threading.Thread(target=lambda: clear.launch(0, x.data_ptr()))
    thread.start()
    thread.join()
    assert x.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    stand_in.set("fail_with", 719)
    with pytest.raises(LaunchError, match="12 bytes of memory were not cleared: CUDA_ERROR_LAUNCH_FAILED"):
        clear.launch(0, x.data_ptr())


def test_threads_share_launches_in_loops(stand_in: StandIn) -> None:
    (launcher,) = counted(stand_in, 1)
    stepper = steps.Stepper([steps.StepLoop((1, ()), (4, ()), 1, (steps.StepLaunch(launcher, (0, 0), ((2, 0),)),))])

    def work(_: int) -> None:
        for _ in range(200):
            a = torch.zeros(4)
            stepper.launch(0, a.data_ptr())
            assert a.tolist() == [7.0, 3.0, 1.0, 0.0]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_large_shared_memory_is_asked_for(stand_in: StandIn) -> None:
    handle = stand_in.handle()
    cuda.Launcher(handle, (1, 1, 1), (32, 1, 1), 47 * 1024, axpb_slots(0))
    assert stand_in.get("last_shared_limit") == 0
    cuda.Launcher(handle, (1, 1, 1), (32, 1, 1), 47 * 1024 + 1, axpb_slots(0))
    assert stand_in.get("last_shared_limit") == 232448 - 1024
    assert handle.occupancy(128) == 16 and handle.occupancy(128, 1000) == 116


@pytest.mark.parametrize(
    ("grid", "block", "shared", "fact"),
    [
        ((1, 1, 1), (257, 1, 1), 0, "257 threads, and this kernel allows 256"),
        ((1, 1, 1), (0, 1, 1), 0, "0 threads"),
        ((1, 65536, 1), (32, 1, 1), 0, "beyond"),
        ((2**31, 1, 1), (32, 1, 1), 0, "beyond"),
        ((1, 1, 1), (32, 1, 1), 232448, "231424 are free"),
    ],
)
def test_a_launch_beyond_the_device_is_refused(
    stand_in: StandIn, grid: cuda.Size3, block: cuda.Size3, shared: int, fact: str
) -> None:
    with pytest.raises(LaunchError, match=fact):
        cuda.Launcher(stand_in.handle(), grid, block, shared, axpb_slots(0))


def test_driver_errors_are_named(stand_in: StandIn) -> None:
    launcher = cuda.Launcher(stand_in.handle(), (1, 1, 1), (32, 1, 1), 0, axpb_slots(0))
    stand_in.set("fail_with", 719)
    with pytest.raises(LaunchError, match=r"axpb was not launched: CUDA_ERROR_LAUNCH_FAILED[\s\S]*words of the driver"):
        launcher.launch(0, 0, 0)
    with pytest.raises(LaunchError, match="cannot be loaded"):
        cuda.load(b"junk", "axpb", 0, stand_in.driver)
    with pytest.raises(LaunchError, match="no kernel none"):
        cuda.load(b"cubin", "none", 0, stand_in.driver)
    with pytest.raises(DeviceMismatch, match="another architecture"):
        cuda.load(b"other", "axpb", 0, stand_in.driver)
    with pytest.raises(DeviceMismatch, match="no GPU 2"):
        cuda.load(b"cubin", "axpb", 2, stand_in.driver)
    assert stand_in.library.context_depth() == 1


def test_properties_and_targets(stand_in: StandIn) -> None:
    properties = cuda._properties(stand_in.driver, 0)
    assert (properties.name, properties.arch, properties.capability) == ("stand-in", "sm_90a", (9, 0))
    assert (properties.multiprocessors, properties.shared_per_block_optin, properties.l2_bytes) == (1016, 232448, 1038)
    assert [cuda.target_arch(c) for c in [(8, 0), (8, 6), (8, 9), (9, 0)]] == list(nvrtc.ARCHITECTURES)
    for capability in [(7, 5), (8, 7), (10, 0), (12, 0)]:
        with pytest.raises(DeviceMismatch, match=r"8\.0, 8\.6, 8\.9, 9\.0"):
            cuda.target_arch(capability)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_named() -> None:
    for ask in (lambda: cuda.device_properties(0), lambda: cuda.load(b"", "k", 0)):
        with pytest.raises(WeftError, match="remedy"):
            ask()


# ---------------------------------------------------------------- on a GPU

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def add_launcher(n: int, device: int = 0) -> cuda.Launcher:
    arch = cuda.device_properties(device).arch
    handle = cuda.load(nvrtc.compile_cubin(ADD, arch, name="add.cu").binary, "add", device)
    slots = pack([Given.POINTER, Given.POINTER, Given.POINTER, n, Given.REAL])
    return cuda.Launcher(handle, (-(-n // 256), 1, 1), (256, 1, 1), 0, slots)


def operands(n: int, device: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = (torch.randn(n, device=f"cuda:{device}") for _ in range(2))
    return a, b, torch.zeros_like(a)


@gpu
@needs_gpu
def test_gpu_launch_on_the_current_stream() -> None:
    launcher, (a, b, c) = add_launcher(100_001), operands(100_001)
    launcher.launch(cuda.current_stream()(0), a.data_ptr(), b.data_ptr(), c.data_ptr(), 2.0)
    torch.testing.assert_close(c, a + 2 * b)
    side: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert cuda.current_stream()(0) == side.cuda_stream
        launcher.launch(side.cuda_stream, a.data_ptr(), b.data_ptr(), c.data_ptr(), 3.0)
    side.synchronize()
    torch.testing.assert_close(c, a + 3 * b)


@gpu
@needs_gpu
def test_gpu_launch_is_captured_in_a_graph() -> None:
    launcher, (a, b, c) = add_launcher(5000), operands(5000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launcher.launch(cuda.current_stream()(0), a.data_ptr(), b.data_ptr(), c.data_ptr(), 2.0)
    assert not c.any()
    a.normal_()
    graph.replay()
    torch.testing.assert_close(c, a + 2 * b)


@gpu
@needs_gpu
def test_gpu_launch_from_a_fresh_thread() -> None:
    launcher, (a, b, c) = add_launcher(5000), operands(5000)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(launcher.launch, 0, a.data_ptr(), b.data_ptr(), c.data_ptr(), 2.0).result()
    torch.testing.assert_close(c, a + 2 * b)


@gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")
def test_gpu_launch_on_the_device_that_is_not_current() -> None:
    launcher, (a, b, c) = add_launcher(5000, device=1), operands(5000, device=1)
    with torch.cuda.device(0):
        launcher.launch(cuda.current_stream()(1), a.data_ptr(), b.data_ptr(), c.data_ptr(), 2.0)
        assert torch.cuda.current_device() == 0
        assert torch.ones(1, device="cuda").device.index == 0
    torch.testing.assert_close(c, a + 2 * b)


@gpu
@needs_gpu
def test_gpu_large_shared_memory_and_occupancy() -> None:
    source = """
    extern "C" __global__ void reverse(const float* a, float* b, long long n) {
      extern __shared__ float tile[];
      for (int i = threadIdx.x; i < n; i += blockDim.x) tile[n - 1 - i] = a[i];
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x) b[i] = tile[i];
    }"""
    properties = cuda.device_properties(0)
    n = properties.shared_per_block_optin // 4
    handle = cuda.load(nvrtc.compile_cubin(source, properties.arch, name="reverse.cu").binary, "reverse", 0)
    launcher = cuda.Launcher(handle, (1, 1, 1), (256, 1, 1), 4 * n, pack([Given.POINTER, Given.POINTER, n]))
    a = torch.randn(n, device="cuda")
    b = torch.empty_like(a)
    launcher.launch(cuda.current_stream()(0), a.data_ptr(), b.data_ptr())
    torch.testing.assert_close(b, a.flip(0))
    assert handle.occupancy(256, 4 * n) == 1
    assert handle.occupancy(256) == properties.threads_per_multiprocessor // 256


@gpu
@needs_gpu
def test_gpu_properties_agree_with_torch() -> None:
    properties, of_torch = cuda.device_properties(0), torch.cuda.get_device_properties(0)
    assert properties.name == of_torch.name
    assert properties.multiprocessors == of_torch.multi_processor_count
    assert properties.l2_bytes == of_torch.L2_cache_size


@gpu
@needs_gpu
def test_gpu_wrong_architecture_is_named() -> None:
    other = "sm_80" if cuda.device_properties(0).arch != "sm_80" else "sm_90a"
    with pytest.raises(DeviceMismatch, match="another architecture"):
        cuda.load(nvrtc.compile_cubin(ADD, other, name="add.cu").binary, "add", 0)


# ---------------------------------------------------------------- the collector of cycles


def test_cycles_are_sought_again_where_the_last_of_several_ends() -> None:
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
