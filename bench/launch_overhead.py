"""Host time of one launch, by several roads, on a GPU machine: microseconds a call for the same trivial kernel.

    python -m bench.launch_overhead [--json FILE]

Each road adds two small float32 tensors; the device is left to finish between batches, so that what is timed is the
host alone. "weft" rows are what the runtime uses; the others are what it was chosen against.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from weft.runtime import cuda, nvrtc
from weft.runtime.slots import Given, pack

COUNT = 1024
SOURCE = """
extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def host_microseconds(call: Callable[[], object], batches: int = 200, calls: int = 200) -> float:
    """The median over batches of the host's time for one call; a batch is short enough not to fill the stream."""
    times = []
    for _ in range(batches):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - start) / calls / 1e3)
    torch.cuda.synchronize()
    return statistics.median(times)


def weft_roads(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], object]]:
    handle = cuda.load(nvrtc.compile_cubin(SOURCE, cuda.device_properties(0).arch, name="add.cu").binary, "add", 0)
    slots = pack([Given.POINTER, Given.POINTER, Given.POINTER, COUNT])
    launch = cuda.Launcher(handle, (-(-COUNT // 256), 1, 1), (256, 1, 1), 0, slots).launch
    stream, pointers, of_device = torch.cuda.current_stream().cuda_stream, [t.data_ptr() for t in (a, b, c)], a.device
    current_stream = cuda.current_stream()

    def whole() -> torch.Tensor:
        out = torch.empty_like(a)
        launch(current_stream(of_device.index), a.data_ptr(), b.data_ptr(), out.data_ptr())
        return out

    return {
        "weft: launch": lambda: launch(stream, *pointers),
        "weft: current stream, empty_like, addresses, launch": whole,
        "query of the current stream": lambda: current_stream(0),
        "query of the current device": handle.driver.current_device,
    }


def ctypes_roads(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], object]]:
    """`cuLaunchKernel` with everything prepared, and the lock of Python kept (PyDLL) or released (CDLL)."""
    handle = cuda.load(nvrtc.compile_cubin(SOURCE, cuda.device_properties(0).arch, name="add.cu").binary, "add", 0)
    words = (ctypes.c_uint64 * 4)(a.data_ptr(), b.data_ptr(), c.data_ptr(), COUNT)
    parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(words) + 8 * n for n in range(4)))
    config = cuda._Config(-(-COUNT // 256), 1, 1, 256, 1, 1, 0, torch.cuda.current_stream().cuda_stream)
    function, stream = ctypes.c_void_p(handle.function), ctypes.c_void_p(config.stream)
    roads: dict[str, Callable[[], object]] = {}
    grid = -(-COUNT // 256)
    for kind in (ctypes.CDLL, ctypes.PyDLL):
        library = kind("libcuda.so.1")
        plain, extended = library.cuLaunchKernel, library.cuLaunchKernelEx
        extended.argtypes = [ctypes.c_void_p] * 4

        def call(plain: Callable[..., int] = plain) -> int:
            return plain(function, grid, 1, 1, 256, 1, 1, 0, stream, parameters, None)

        def call_extended(extended: Callable[..., int] = extended, keep: object = (words, config)) -> int:
            return extended(ctypes.addressof(config), handle.function, ctypes.addressof(parameters), None)

        roads[f"ctypes.{kind.__name__}: cuLaunchKernel"] = call
        roads[f"ctypes.{kind.__name__}: cuLaunchKernelEx"] = call_extended
    return roads


def bindings_road(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], object]]:
    driver = importlib.import_module("cuda.bindings.driver")
    handle = cuda.load(nvrtc.compile_cubin(SOURCE, cuda.device_properties(0).arch, name="add.cu").binary, "add", 0)
    words = (ctypes.c_uint64 * 4)(a.data_ptr(), b.data_ptr(), c.data_ptr(), COUNT)
    parameters = (ctypes.c_void_p * 4)(*(ctypes.addressof(words) + 8 * n for n in range(4)))
    function, stream = driver.CUfunction(handle.function), driver.CUstream(torch.cuda.current_stream().cuda_stream)
    address, grid = ctypes.addressof(parameters), -(-COUNT // 256)

    def call(keep: object = (words, parameters)) -> object:
        return driver.cuLaunchKernel(function, grid, 1, 1, 256, 1, 1, 0, stream, address, 0)

    return {"cuda.bindings: cuLaunchKernel": call}


def core_road(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], object]]:
    core = importlib.import_module("cuda.core")
    core.Device(0).set_current()
    binary = nvrtc.compile_cubin(SOURCE, cuda.device_properties(0).arch, name="add.cu").binary
    kernel = core.ObjectCode.from_cubin(binary).get_kernel("add")
    stream = core.Stream.from_handle(torch.cuda.current_stream().cuda_stream)
    config = core.LaunchConfig(grid=-(-COUNT // 256), block=256)
    pointers = [t.data_ptr() for t in (a, b, c)]
    return {"cuda.core: launch": lambda: core.launch(stream, config, kernel, *pointers, COUNT)}


def torch_roads(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, Callable[[], object]]:
    return {
        "torch.add, out of place": lambda: torch.add(a, b),
        "torch.add, out=": lambda: torch.add(a, b, out=c),
        "torch.empty_like": lambda: torch.empty_like(a),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    a, b = (torch.randn(COUNT, device="cuda:0") for _ in range(2))
    c = torch.zeros_like(a)
    microseconds: dict[str, float] = {}
    with torch.no_grad():
        for make in (torch_roads, weft_roads, ctypes_roads, bindings_road, core_road):
            try:
                roads = make(a, b, c)
            except Exception as error:  # a road that this machine lacks is no reason to lose the others
                print(f"{make.__name__}: not here ({type(error).__name__}: {error})")
                continue
            for name, call in roads.items():
                c.zero_()
                call()
                microseconds[name] = host_microseconds(call)
                if "aunch" in name and "empty_like" not in name:
                    torch.testing.assert_close(c, a + b)
                print(f"{microseconds[name]:8.2f} us  {name}", flush=True)
    if arguments.json:
        ours, peer = "weft: current stream, empty_like, addresses, launch", "torch.add, out of place"
        rows = [{"bench": "launch_overhead", "case": {"call": n}, "host_us": us} for n, us in microseconds.items()]
        if ours in microseconds:
            weft_ms, peer_ms = microseconds[ours] / 1e3, microseconds[peer] / 1e3
            numbers = {"weft_ms": weft_ms, "peer": peer, "peer_ms": peer_ms, "ratio": peer_ms / weft_ms}
            rows.append({"bench": "launch_overhead", "case": {"call": "add"}, **numbers})
        meta = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "nvrtc": nvrtc.nvrtc_version()}
        arguments.json.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
