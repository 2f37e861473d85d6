"""Exact integer questions about accesses, answered by isl. The only package that imports islpy.

A question is a set: integer points (iterations of loops, for given sizes) that satisfy affine constraints. What is not affine
in the program is left out of the constraints, so a set can only be too large: an empty one is a proof.
"""

from __future__ import annotations

from weft.loops.polyhedra.patience import Search, SearchOver, spend
from weft.loops.polyhedra.questions import Polyhedra
from weft.loops.polyhedra.relations import Relation, Relations, Touch
from weft.loops.polyhedra.systems import UNDECIDED, Witness

__all__ = [
    "Polyhedra",
    "Relation",
    "Relations",
    "Search",
    "SearchOver",
    "Touch",
    "UNDECIDED",
    "Witness",
    "spend",
]
