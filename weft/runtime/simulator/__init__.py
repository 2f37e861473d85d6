"""CUDA C++ executed on the CPU: the text that NVRTC would get, compiled by the host's compiler and watched.

Every access to memory that the text makes calls the engine (weft/runtime/sim), through the instrumentation that compilers
have for finding races; the engine's own threads, clocks and shadow memory judge it. `docs/check.md` says what is found.
"""

from weft.runtime.simulator.arguments import Argument, Integer, Map, Real, Tensor
from weft.runtime.simulator.launch import simulate
from weft.runtime.simulator.program import Program, load
from weft.runtime.simulator.results import Finding, Place, Simulation, Site

__all__ = [
    "Argument",
    "Finding",
    "Integer",
    "Map",
    "Place",
    "Program",
    "Real",
    "Simulation",
    "Site",
    "Tensor",
    "load",
    "simulate",
]
