"""How far rounding may have moved the results of a call: the function that `loops.error_propagation` makes of its function,
run on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from weft.language import ArgumentType
from weft.loops.error_propagation import Units, variances
from weft.loops.ir import Function
from weft.pytorch.call import argument_types
from weft.pytorch.derived import Analyses
from weft.pytorch.executable import Executable
from weft.pytorch.specialize import Specializable


class _Variances(Analyses):
    """The analyses of the function that computes the variances of another one's results."""

    def __init__(self, parent: Specializable, units: Units, rounded: frozenset[str]) -> None:
        super().__init__()
        self._parent, self._units, self._rounded = parent, units, rounded
        self.identity = f"variances of {parent.identity}, {sorted(rounded)} rounded, by {units!r}"

    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        return variances(self._parent.function(types, agree), self._units, self._rounded)[0]


def deviations(
    executable: Executable, args: Sequence[Any], units: Units, rounded: frozenset[str] = frozenset()
) -> dict[str, torch.Tensor]:
    """The standard deviations of the float results that a call makes, by name; units, rounded: as for `variances`. args: may
    be written.
    """
    parent, signature = executable.specializable, executable.signature
    _, names = variances(parent.function(argument_types(signature, args), True), units, rounded)
    own = Executable(f"{executable.name}_variances", signature, _Variances(parent, units, rounded))
    made = own.execute(tuple(args)) if names else ()
    found = made if isinstance(made, tuple) else (made,)
    return {name: variance.sqrt() for name, variance in zip(names, found, strict=True)}
