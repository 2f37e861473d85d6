"""The adjoint of a function: a function whose loops compute the vector-Jacobian product, by reverse mode on the nest.

The adjoint of a block is the block again, without its stores, for the values that derivatives need (the sweep), then
the adjoints of its statements, last first. A loop becomes the loop over the same iterations, last first, whose body is
the adjoint of the body; it carries the adjoints of the scalars that the loop carried. What the adjoint needs of earlier
iterations is read back from results where the function stored it, and else saved by the sweep. Nothing is computed in
vain: what no gradient needs is dead code and dropped at the end.
"""

from __future__ import annotations

from dataclasses import replace

from weft.errors import NotDifferentiable
from weft.loops.adjoint.facts import facts_of
from weft.loops.adjoint.finish import finished
from weft.loops.adjoint.frame import Frame, differentiable, floating_results, frame
from weft.loops.adjoint.reverse import Reverse
from weft.loops.algebra.counters import settle
from weft.loops.ir import Function, without_checks
from weft.loops.names import Names
from weft.loops.normalize import normalize

__all__ = ["Frame", "adjoint", "differentiable", "floating_results", "frame"]


def adjoint(function: Function, wanted: tuple[str, ...], seeded: tuple[int, ...] | None = None) -> Function:
    """The function whose results are the gradients of `wanted` (names of floating input arrays of `function`).

    seeded: the places of the floating results that have a gradient, all of them if None. What only the others are made of
    has none: a zero for it would become NaN where a derivative is infinite.

    Its parameters: those of `function`; the results of `function` as they were returned; the gradient of each seeded
    result, of the result's dtype and shape. Its results: one gradient for each wanted name, of that array's dtype and
    shape. Raises NotDifferentiable.
    """
    # what it computes again has been checked
    function = replace(function, body=without_checks(function.body), demands=())
    _refuse(function, wanted)
    function = settle(normalize(function, derivatives=True))
    names = Names.of(function)
    reverse = Reverse(facts_of(function, wanted, floating_results(function) if seeded is None else seeded, names), names)
    made = reverse.build()
    return finished(made, tuple(reverse.frame.gradients.values()), reverse.sums, reverse.temporary, names)


def _refuse(function: Function, wanted: tuple[str, ...]) -> None:
    written = [a for a in function.arrays if a.role == "inout"]
    if written:
        raise NotDifferentiable(
            f"{function.name} writes into its argument {written[0].name}, so no gradient can pass through it",
            location=written[0].location or function.location,
            evidence=[f"the values that {written[0].name} had are overwritten by the call"],
            remedy="return a new array instead, or call it without gradients (torch.no_grad, detach)",
        )
    allowed = differentiable(function)
    for name in wanted:
        if name not in allowed:
            raise NotDifferentiable(
                f"{name} of {function.name} has no gradient",
                location=function.location,
                evidence=[f"the floating arrays it reads are ({', '.join(allowed)})"],
                remedy="ask for gradients of floating tensors alone",
            )
