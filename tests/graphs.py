"""The tile graphs of programs: built, held against their rules, and executed nest by nest in the place of the loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from weft.graph.build import build
from weft.graph.interpret import interpret
from weft.graph.tile import NotTiles, TileGraph, validate
from weft.language import parse, read_signature
from weft.loops.affine import evaluate
from weft.loops.analyze import schedule
from weft.loops.interpret import _fit, _Machine
from weft.loops.ir import For, Function
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


def run(made: Built, args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """The results of a schedule whose nests are executed as graphs where they are such, as loops where they are not."""
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
        if isinstance(graph, TileGraph):
            interpret(graph, function, machine.arrays, names)
        else:
            machine.run(_as_loops(nest))
    return tuple(machine.arrays[r] for r in function.results)


def _as_loops(nest: Nest) -> tuple[Any, ...]:
    body = nest.body
    for axis in reversed(nest.axes):
        body = (For(axis.var, axis.start, axis.stop, axis.step, (), body),)
    return body
