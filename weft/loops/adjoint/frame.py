"""What an adjoint takes and gives: the parameters it adds to those of its function, and its gradients, which begin as 0."""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.ir import Array, Equality, Expr, Function, Ref, Size
from weft.loops.names import Names
from weft.loops.simplify import number
from weft.loops.types import INT64


def differentiable(function: Function) -> tuple[str, ...]:
    """The parameters for which a gradient makes sense: floating arrays that are only read.

    Empty for a function that writes into its arguments.
    """
    arrays = {a.name: a for a in function.arrays}
    if any(a.role == "inout" for a in function.arrays):
        return ()
    named = (arrays[p] for p in function.parameters if p in arrays)
    return tuple(a.name for a in named if a.role == "input" and a.dtype.category == "float")


@dataclass(frozen=True)
class Frame:
    """An adjoint without its body: its gradients begin as 0. saved: the parameter that holds each result as it was returned.
    seeds: those that hold gradients of it. gradients: the array of each that is wanted.
    """

    function: Function
    saved: dict[str, str]
    seeds: dict[str, list[str]]
    gradients: dict[str, str]


def frame(f: Function, wanted: tuple[str, ...], seeded: tuple[int, ...], names: Names) -> Frame:
    """What an adjoint of a function takes and gives, as `adjoint` says."""
    parameters, sizes, equalities = list(f.parameters), list(f.sizes), list(f.equalities)
    arrays = [a for a in f.arrays if a.name in f.parameters]
    saved: dict[str, str] = {}
    seeds: dict[str, list[str]] = {}

    def parameter(name: str, like: Array) -> None:
        """A new input with the dtype and shape of an array of the function."""
        shape: list[Expr] = []
        for axis, extent in enumerate(like.shape):
            size = Size(names.fresh(f"{name}_size_{axis}"), name, axis)
            sizes.append(size)
            shape.append(Ref(size.name, INT64))
            equalities.append(Equality(shape[-1], extent, f"{name} has the shape of {like.name}", like.location))
        parameters.append(name)
        arrays.append(Array(name, like.dtype, tuple(shape), "input", location=like.location))

    for result in f.results:
        name = result if result not in parameters else names.fresh(result)
        saved.setdefault(result, name)
        parameter(name, f.array(result))
    for k in seeded:
        result = f.results[k]
        name = names.fresh(f"grad_{result}")
        seeds.setdefault(result, []).append(name)
        parameter(name, f.array(result))
    gradients = {w: names.fresh(f"grad_{w}") for w in wanted}
    for w, gradient in gradients.items():
        array = f.array(w)
        zero = number(0, array.dtype.opmath)
        arrays.append(Array(gradient, array.dtype, array.shape, "result", zero, rounds=False))
    made = Function(
        f"{f.name}_adjoint", tuple(parameters), f.scalars, tuple(sizes), tuple(arrays), (), tuple(gradients.values()),
        tuple(equalities), f.location,
    )  # fmt: skip
    return Frame(made, saved, seeds, gradients)


def floating_results(function: Function) -> tuple[int, ...]:
    """The places of the results that may have gradients."""
    floating = {a.name for a in function.arrays if a.dtype.category == "float"}
    return tuple(k for k, r in enumerate(function.results) if r in floating)
