"""The solver of what has to be chosen at once: CP-SAT of OR-tools, imported where a question needs it.

Its answers are the same in each run: one worker, one seed, and a limit on the work that it counts, not on time.
"""

from __future__ import annotations

import functools
from typing import Any

MOST_WORK = 20.0  # in the solver's own units: seconds, about


@functools.cache
def find_solver() -> Any:
    """The module `cp_model` of OR-tools; None where it is not installed."""
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        return None
    return cp_model


def solve(model: Any, most_work: float = MOST_WORK) -> tuple[Any, bool, bool]:
    """A solver that has tried to solve a model, whether it found an answer, and whether it knows that there is no better one:
    without an answer, that there is none.
    """
    cp_model = find_solver()
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.random_seed, parameters.max_deterministic_time = 1, 0, most_work
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver, found, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
