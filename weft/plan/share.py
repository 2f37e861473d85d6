"""Tiles kept between the stages of a held row: what is costly to compute and needed by several stages is computed once."""

from __future__ import annotations

from dataclasses import replace

from weft.graph.block import BlockGraph, Input, Map, Operator, Output, Reduce, Scan, Stage, made
from weft.loops.ir import Expr, Op, Ref, free_names, operands, substitute, walk_expr, with_operands
from weft.loops.operators import COSTLY


def share(graph: BlockGraph, most: int) -> BlockGraph:
    """The graph with up to `most` costly tiles kept for later stages."""
    stages = graph.stages()
    uses: dict[Expr, set[int]] = {}
    for k, stage in enumerate(stages):
        known = _Expansion(stage)
        for o in stage.operators:
            for e in _exprs(o):
                for inner in walk_expr(e):
                    if isinstance(inner, Op) and inner.name in COSTLY and known.shareable(inner):
                        uses.setdefault(known.expand(inner), set()).add(k)
    shared = {e for e, where in uses.items() if len(where) > 1}
    # the largest first: what is inside one of them is not needed by itself
    shared -= {inner for e in shared for inner in walk_expr(e) if inner != e and uses.get(inner) == uses[e]}
    kept: dict[Expr, str] = {}
    taken = {n for s in stages for o in s.operators for n in made(o)}
    for e in list(uses):
        if e in shared and len(kept) < most:
            assert isinstance(e, Op)
            name, number = f"{e.name}_tile", 1
            while name in taken:
                number += 1
                name = f"{e.name}_tile_{number}"
            taken.add(name)
            kept[e] = name
    if not kept:
        return graph
    placed: set[str] = set()
    steps = tuple(_with_kept(s, kept, placed) if isinstance(s, Stage) else s for s in graph.steps)
    return replace(graph, steps=steps)


def _exprs(o: Operator) -> tuple[Expr, ...]:
    match o:
        case Map():
            return (o.value,)
        case Output():
            return (o.value,) if o.guard is None else (o.value, o.guard)
        case Reduce() | Scan():
            return o.parts
        case Input():
            return ()


class _Expansion:
    """Expressions of a stage in terms of input tiles and row scalars alone, so that stages can be compared."""

    def __init__(self, stage: Stage) -> None:
        self.maps: dict[str, Expr] = {}
        self.tiles = {o.name for o in stage.inputs()}
        self.own = {stage.column} | {n for o in stage.carried() for n in o.names}
        for o in stage.operators:
            if isinstance(o, Map):
                self.maps[o.name] = substitute(o.value, self.maps)

    def expand(self, e: Expr) -> Expr:
        return substitute(e, self.maps)

    def shareable(self, e: Expr) -> bool:
        names = free_names(self.expand(e))
        return not names & self.own and bool(names & self.tiles)


def _with_kept(stage: Stage, kept: dict[Expr, str], placed: set[str]) -> Stage:
    known = _Expansion(stage)
    out: list[Operator] = []

    def rewrite(e: Expr) -> Expr:
        if isinstance(e, Op) and e.name in COSTLY and known.shareable(e):
            name = kept.get(known.expand(e))
            if name is not None:
                if name not in placed:
                    placed.add(name)
                    out.append(Map(name, e, kept=True))
                return Ref(name, e.type)
        inner = tuple(rewrite(o) for o in operands(e))
        return e if inner == operands(e) else with_operands(e, inner)

    for o in stage.operators:
        match o:
            case Map():
                new: Operator = replace(o, value=rewrite(o.value))
            case Output():
                new = replace(o, value=rewrite(o.value))
            case Reduce() | Scan():
                new = replace(o, parts=tuple(map(rewrite, o.parts)))
            case Input():
                new = o
        out.append(new)
    return replace(stage, operators=tuple(out))
