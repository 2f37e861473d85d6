"""The tile graphs of programs: built, held against their rules, and executed nest by nest in the place of the loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft.graph.build import build
from weft.graph.interpret import interpret
from weft.graph.passes import Passes, passes
from weft.graph.tile import NotTiles, TileGraph, validate
from weft.language import parse, read_signature
from weft.loops.affine import evaluate
from weft.loops.analyze import schedule
from weft.loops.interpret import _fit, _Machine
from weft.loops.ir import For, Function
from weft.loops.names import Names, names_bound_in
from weft.loops.schedule import Nest, Schedule
from weft.pytorch.call import argument_types


@dataclass(frozen=True)
class Built:
    """The graph of each nest of a schedule, or why it has none."""

    schedule: Schedule
    graphs: tuple[TileGraph | NotTiles, ...]

    @property
    def whole(self) -> bool:
        return all(isinstance(g, TileGraph) for g in self.graphs)

    @property
    def only(self) -> TileGraph:
        (graph,) = self.graphs
        assert isinstance(graph, TileGraph), graph
        return graph


def parsed(function: Callable[..., Any], args: Sequence[Any]) -> Function:
    signature = read_signature(function)
    types = argument_types(signature, list(args))
    return parse(function, dict(zip([p.name for p in signature.parameters], types, strict=True)))


def built(found: Schedule) -> Built:
    """The graphs of a schedule, each of them valid."""
    graphs: list[TileGraph | NotTiles] = []
    for nest in found.nests:
        try:
            graph = build(found, nest)
        except NotTiles as why:
            graphs.append(why)
            continue
        validate(graph, found.function)
        graphs.append(graph)
    return Built(found, tuple(graphs))


def built_of(function: Callable[..., Any], *args: Any) -> Built:
    return built(schedule(parsed(function, args)))


def run(made: Built, args: Sequence[Any], in_passes: bool | None = None) -> tuple[torch.Tensor, ...]:
    """The results of a schedule whose nests are executed as graphs where they are such, as loops where they are not.
    in_passes: as the passes of their graphs where they have these: as nests of their own, or together (True).
    """
    function = made.schedule.function
    given = dict(zip(function.parameters, args, strict=True))
    names: dict[str, Any] = {s.name: _fit(given[s.name], s.type) for s in function.scalars if s.value is None}
    arrays = {n: v for n, v in given.items() if n not in names}
    names |= {s.name: arrays[s.array].shape[s.axis] for s in function.sizes}
    for s in function.scalars:
        if s.value is not None:
            names[s.name] = evaluate(s.value, names)
    machine = _Machine(function, arrays, dict(names))
    for array in function.arrays:
        if array.name not in arrays and not array.within:
            machine.allocate(array)
    for nest, graph in zip(made.schedule.nests, made.graphs, strict=True):
        own = None if in_passes is None else in_passes_of(made.schedule, nest, graph, in_passes)
        if own is not None:
            for array in own.memory:
                machine.allocate(array)
            for statements in own.nests:
                machine.run(statements)
        elif isinstance(graph, TileGraph):
            interpret(graph, function, machine.arrays, names)
        else:
            machine.run(_as_loops(nest))
    return tuple(machine.arrays[r] for r in function.results)


def in_passes_of(found: Schedule, nest: Nest, graph: TileGraph | NotTiles, together: bool) -> Passes | None:
    """The passes of a nest's graph, if it has them."""
    names = Names.of(found.function)
    for own in found.nests:
        names.taken |= names_bound_in(own.body) | {a.var for a in own.axes}
    try:
        return passes(graph, found.function, names, together) if isinstance(graph, TileGraph) else None
    except NotTiles:
        return None


def _as_loops(nest: Nest) -> tuple[Any, ...]:
    body = nest.body
    for axis in reversed(nest.axes):
        body = (For(axis.var, axis.start, axis.stop, axis.step, (), body),)
    return body
