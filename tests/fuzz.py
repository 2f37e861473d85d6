"""Random programs against the plain Python, many of them: `python -m tests.fuzz --programs 20000 --jobs 16`.

Prints how many are equal, refused (by what) and skipped, the five slowest analyses, and every mismatch with its program made
small; ends with 1 if there is one. Odd seeds are programs of many dtypes, even ones of one. With `--device cuda` the
emitted CUDA runs on the GPU that there is, with `--road schedule` the schedules by their meaning in random orders, with
`--road parts` so with their nests taken apart around loops that stay in order; with `--gradients` programs are
differentiated (tests/fuzz_gradients.py), and with `--road mechanisms` they are those of tests/mechanisms.py, whose emitted CUDA
`--device simulator` executes.

Each process takes a chunk of seeds and prints a line of JSON for each. The seeds that a process did not come to, which
died or took too long, are run again in smaller chunks, until it is known which of them it was.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz_programs import Program
    from weft.errors import WeftError

CHUNK = 200  # programs of a process, which takes seconds to start
TOGETHER = 32  # programs whose kernels are compiled together
SLOW_SECONDS = 10.0  # of CPU; no analysis may take longer
_PATIENCE_SECONDS = 300.0  # for one program; a chunk has as many as it has programs, at most an hour


@dataclass
class Outcome:
    """What became of a program. kind: equal, refused, skipped, mismatch, crash or hang. seconds: of CPU, of its slowest
    analysis (a kernel and its gradients have several).
    """

    seed: int
    kind: str
    told: str = ""
    source: str = ""
    seconds: float = 0.0


# ---------------------------------------------------------------- a process


def work(seeds: Sequence[int], road: str, device: str, tries: int, tell: Callable[[Outcome], None]) -> None:
    """Tell the outcomes of the programs of these seeds. tries: how many smaller programs are looked at for a mismatch."""
    import torch

    from tests import validated
    from tests.fuzz_batch import Batch

    torch.set_num_threads(1)
    validated.install()
    clock = _Clock()
    if road not in ("kernel", "mechanisms") or device != "cpu":
        for seed in seeds:
            # what ends the work on a device ends it for the process: the seed is run again, by itself at last
            outcome = _outcome(seed, road, device, tries if device == "cpu" else 0, clock)
            lost = outcome.kind != "equal" and device != "cpu" and _lost()
            if not lost or len(seeds) == 1:
                tell(_outcome(seed, road, device, tries, clock) if outcome.kind == "mismatch" and not lost else outcome)
            if lost:
                return
        return
    wrong: list[int] = []

    def look(seed: int) -> None:
        outcome = _outcome(seed, road, device, 0, clock)
        if outcome.kind == "mismatch" and tries:
            wrong.append(seed)
        else:
            tell(outcome)

    batch = Batch()
    with batch.installed():
        batch.map(look, seeds, TOGETHER)
    for seed in wrong:
        tell(_outcome(seed, road, device, tries, clock))


def _lost() -> bool:
    """Whether the device no longer works for this process, as after a trap."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


class _Clock:
    """Keeps the CPU seconds of each thread's slowest analysis."""

    def __init__(self) -> None:
        import threading

        from weft.loops import analyze

        self._own = threading.local()
        for name in ("schedule", "requirements"):
            setattr(analyze, name, self._timed(getattr(analyze, name)))

    def _timed(self, function: Any) -> Any:
        def timed(*args: Any) -> Any:
            begin = time.thread_time()
            try:
                return function(*args)
            finally:
                self._own.seconds = max(self.seconds, time.thread_time() - begin)

        return timed

    def restart(self) -> None:
        self._own.seconds = 0.0

    @property
    def seconds(self) -> float:
        return float(getattr(self._own, "seconds", 0.0))


def _outcome(seed: int, road: str, device: str, tries: int, clock: _Clock) -> Outcome:
    from tests.fuzz_oracle import Mismatch

    clock.restart()
    program, check = _checked(seed, road, device)
    try:
        kind, refusal = check(program)
    except Mismatch as mismatch:
        seconds = clock.seconds
        told, source = _small(program, check, mismatch, tries) if tries else (str(mismatch), program.source)
        return Outcome(seed, "mismatch", told, source, seconds)
    return Outcome(seed, kind, f"{type(refusal).__name__}: {refusal}" if refusal is not None else "", "", clock.seconds)


def _checked(seed: int, road: Any, device: str) -> tuple[Program, Callable[[Program], tuple[str, WeftError | None]]]:
    """The program of a seed, and what is asked of it and of smaller ones."""
    from tests import fuzz_gradients, fuzz_mechanisms, fuzz_oracle, mechanisms
    from tests.fuzz_mixed import program_of

    def values(program: Program) -> tuple[str, WeftError | None]:
        found = fuzz_oracle.check(program, road, device)
        return found.outcome, found.refusal

    if road == "mechanisms":
        return mechanisms.generate(seed), lambda program: fuzz_mechanisms.check(program, device)
    if road == "gradients":
        kernels = seed % fuzz_gradients.KERNELS == 0
        return fuzz_gradients.generate(seed), lambda program: fuzz_gradients.check(program, kernels)
    return program_of(seed), values


def _small(program: Program, check: Callable[[Program], Any], mismatch: Exception, tries: int) -> tuple[str, str]:
    """What is told of a mismatch, and its program, made small."""
    from tests.fuzz_oracle import Mismatch
    from tests.fuzz_shrink import shrink

    kind = str(mismatch)[:10]

    def told(candidate: Program) -> str:
        try:
            check(candidate)
        except Mismatch as again:
            return str(again)
        return ""

    small = shrink(program, lambda candidate: told(candidate)[:10] == kind, tries)
    return told(small) or str(mismatch), small.source


# ---------------------------------------------------------------- all of them


@dataclass
class Tally:
    """What came out so far."""

    kinds: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    slowest: list[tuple[float, int]] = field(default_factory=list)
    wrong: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.kinds[outcome.kind] += 1
        if outcome.kind == "refused":
            self.refusals[outcome.told.split(":")[0]] += 1
        if outcome.kind in ("mismatch", "crash", "hang"):
            self.wrong.append(outcome)
            print(f"\n{outcome.kind} of program {outcome.seed}: {outcome.told}\n\n{outcome.source}", flush=True)
        heapq.heappush(self.slowest, (outcome.seconds, outcome.seed))
        if len(self.slowest) > 5:
            heapq.heappop(self.slowest)

    def __str__(self) -> str:
        lines = [", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())]
        if self.refusals:
            lines.append("refused: " + ", ".join(f"{count} {name}" for name, count in self.refusals.most_common()))
        slow = ", ".join(f"{seconds:.2f} s (program {seed})" for seconds, seed in sorted(self.slowest, reverse=True))
        lines.append(f"slowest analyses: {slow}")
        if self.wrong:
            lines.append("wrong: " + ", ".join(f"{w.seed} ({w.kind})" for w in sorted(self.wrong, key=lambda w: w.seed)))
        return "\n".join(lines)

    @property
    def good(self) -> bool:
        return not self.wrong and all(seconds <= SLOW_SECONDS for seconds, _ in self.slowest)


@dataclass
class _Process:
    """A process and the seeds that it is for."""

    seeds: list[int]
    running: subprocess.Popen[bytes]
    lines: Any
    until: float


def spread(seeds: Sequence[int], jobs: int, options: list[str]) -> Tally:
    """Run the programs in so many processes."""
    tally = Tally()
    waiting = [list(seeds[k : k + CHUNK]) for k in range(0, len(seeds), CHUNK)][::-1]
    running: list[_Process] = []
    begin = told = time.monotonic()
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_started(waiting.pop(), options))
        time.sleep(0.2)
        for process in list(running):
            late = time.monotonic() > process.until
            if process.running.poll() is None and not late:
                continue
            running.remove(process)
            if late:
                process.running.kill()
                process.running.wait()
            waiting += _collected(process, tally, late)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"after {told - begin:.0f} s: {sum(tally.kinds.values())} programs, {len(tally.wrong)} wrong", flush=True)
    return tally


def _started(seeds: list[int], options: list[str]) -> _Process:
    lines = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was read
    command = [sys.executable, "-m", "tests.fuzz", *options, "--worker", *map(str, seeds)]
    until = time.monotonic() + min(3600.0, _PATIENCE_SECONDS * len(seeds))
    return _Process(seeds, subprocess.Popen(command, stdout=lines, stderr=subprocess.DEVNULL), lines, until)


def _collected(process: _Process, tally: Tally, late: bool) -> list[list[int]]:
    """Count what a process printed. Gives the seeds that it did not come to, in smaller chunks."""
    process.lines.seek(0)
    seen = set()
    for line in process.lines.read().decode(errors="replace").splitlines():
        if line.startswith("{"):
            outcome = Outcome(**json.loads(line))
            seen.add(outcome.seed)
            tally.add(outcome)
    process.lines.close()
    missing = [seed for seed in process.seeds if seed not in seen]
    if missing and len(process.seeds) == 1:
        status = f"the process ended with {process.running.returncode}"
        tally.add(Outcome(missing[0], "hang" if late else "crash", "it takes too long" if late else status))
        return []
    few = max(1, -(-len(missing) // 8))
    return [missing[k : k + few] for k in range(0, len(missing), few)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="random programs against the plain Python")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--programs", type=int, default=200, metavar="N", help="how many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes at a time")
    parser.add_argument("--device", choices=("cpu", "cuda", "simulator"), default="cpu")
    parser.add_argument("--road", choices=("kernel", "schedule", "parts", "gradients", "mechanisms"), default="kernel")
    parser.add_argument("--gradients", dest="road", action="store_const", const="gradients", help="--road gradients")
    parser.add_argument("--tries", type=int, default=100, help="smaller programs that are looked at for each mismatch")
    parser.add_argument("--worker", type=int, nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        tell = lambda outcome: print(json.dumps(asdict(outcome)), flush=True)  # noqa: E731
        work(asked.worker, asked.road, asked.device, asked.tries, tell)
        os._exit(0)  # at once: what generated code has done to the process must not matter
    options = ["--device", asked.device, "--road", asked.road, "--tries", str(asked.tries)]
    begin, used = time.monotonic(), sum(os.times()[2:4])
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-", ignore_cleanup_errors=True) as cache:
        os.environ["WEFT_CACHE"] = cache
        os.environ["OMP_NUM_THREADS"] = "1"
        tally = spread(range(asked.first, asked.first + asked.programs), asked.jobs, options)
    print(f"\n{asked.programs} programs from {asked.first}, {asked.road} on {asked.device}: {tally}")
    each = (sum(os.times()[2:4]) - used) / max(asked.programs, 1)
    print(f"{time.monotonic() - begin:.0f} s, {each:.2f} core-seconds a program")
    return 0 if tally.good else 1


if __name__ == "__main__":
    sys.exit(main())
