"""The first call of a kernel in a fresh process, beyond importing torch and weft: cold, then from the disk cache.

Each figure is the median of fresh processes. The clock starts when torch and weft are imported, the device is awake and
the inputs lie on it, and stops when the result is complete. The peer is torch.compile, measured the same way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median

import torch

from bench.harness import ROOT, Options, Row
from bench.rows import WORKS

KERNELS = ("linrec", *(work.kernel for work in WORKS))

_CHILD = """
import sys, time, torch, torch.nn.functional
import weft, weft.kernels
from bench import first_call
print(first_call.measure(*sys.argv[1:]))
"""


def run(options: Options) -> list[Row]:
    repeats = 1 if options.quick else 3
    kernels = KERNELS[1:2] if options.quick else KERNELS
    compilable = {work.kernel for work in WORKS} if not options.quick else set()
    measured = []
    for kernel in kernels:
        weft_ms = _cold_and_cached("weft", kernel, options.device, repeats)
        peer_ms = _cold_and_cached("torch.compile", kernel, options.device, 1) if kernel in compilable else (None, None)
        for state, ours, theirs in zip(("cold", "from the disk cache"), weft_ms, peer_ms, strict=True):
            peer = None if theirs is None else "torch.compile"
            measured.append(Row("first_call", {"kernel": kernel, "state": state}, ours, peer, theirs))
    return measured


def measure(who: str, kernel: str, device_name: str) -> float:
    """Milliseconds of the first call in this process; runs in the child."""
    import time

    from bench.rows import inputs
    from weft.kernels import LIBRARY

    device = torch.device(device_name)
    shape = (1024, 1024)
    work = next((w for w in WORKS if w.kernel == kernel), None)
    if work is None:
        tensors: tuple[torch.Tensor, ...] = (torch.randn(shape, device=device), torch.rand(shape, device=device))
    else:
        tensors = inputs(work, shape, device, seed=0)
    wait(device)
    start = time.perf_counter()
    if who == "weft":
        LIBRARY[kernel](*tensors)
    else:
        assert work is not None
        torch.compile(work.eager, fullgraph=True)(*tensors)
    wait(device)
    return 1e3 * (time.perf_counter() - start)


def _cold_and_cached(who: str, kernel: str, device: torch.device, repeats: int) -> tuple[float, float]:
    cold, cached = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_child(who, kernel, device, cache))
            cached.append(_child(who, kernel, device, cache))
    return median(cold), median(cached)


def _child(who: str, kernel: str, device: torch.device, cache: str) -> float:
    return float(in_a_fresh_process(_CHILD, (who, kernel, str(device)), cache)[-1])


def in_a_fresh_process(program: str, words: tuple[str, ...], cache: str) -> list[str]:
    """The words that a program prints, given others as its arguments, with nothing cached outside of this directory but
    modules, which are compiled already, as those of an installed package are: by a child before.
    """
    caches = {"WEFT_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", program, *words]
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=ROOT, env={**environment, **caches, "PYTHONPATH": path}, stdout=subprocess.PIPE)
    done.check_returncode()
    return done.stdout.decode().split()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
