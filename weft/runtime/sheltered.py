"""Work that makes files and starts processes, and leaves none behind when it is interrupted.

Python raises Ctrl-C between any two steps of its main thread: after a directory was made and before anyone knows of it, in the
middle of its removal. So the work has a thread of its own, which the interruption does not reach; it comes to the
thread that waits, which ends the work's processes, waits for it to clean up, and goes on with the interruption.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The work was told to stop; it goes no further than to clean up."""


class Processes:
    """The processes of one piece of work, which run one after another."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, command: list[str], directory: str, environment: dict[str, str], seconds: float) -> tuple[int, str]:
        """The exit status of a command and what it wrote to its standard error. Whatever ends the wait ends it and all that
        it started. Raises OSError, TimeoutExpired, and Interrupted where the work was told to stop.
        """
        with self._changing:
            if self._stopped:
                raise Interrupted
            process = self._running = subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,  # a group of its own: a compiler has others work for it
            )
        try:
            _, told = process.communicate(timeout=seconds)
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            with self._changing:
                self._running = None
        if self._stopped:
            raise Interrupted
        return process.returncode, told

    def stop(self) -> None:
        """End the process that runs now, and let none start after it."""
        with self._changing:
            self._stopped = True
            if self._running is not None and self._running.poll() is None:
                _end(self._running)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def sheltered(work: Callable[[Processes], T]) -> T:
    """What the work gives, or raises. When the wait for it is interrupted, the work ends at once, but for its cleaning up."""
    processes = Processes()
    outcome: Future[T] = Future()

    def body() -> None:
        try:
            outcome.set_result(work(processes))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=body, name="weft-compile")  # waited for when Python ends, too
    try:
        thread.start()
        return outcome.result()
    except BaseException:
        processes.stop()
        with contextlib.suppress(RuntimeError):  # interrupted before it has begun: it will see at once that it is to stop
            thread.join()
        raise
