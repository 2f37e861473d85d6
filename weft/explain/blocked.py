"""The words of a plan of blocks: what is fused in registers, order and barriers, layouts and places in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.graph.blocks import Blocks
from weft.plan.block import BlockPlan, Cut, Levels, Tile
from weft.plan.fusion import Chain

Names = Callable[[str], str]  # of a value or an axis, as the user wrote it


def blocked_lines(blocks: Blocks, plan: BlockPlan, names: Names) -> list[str]:
    """How a block goes about it: a line each for its part of the axes, the chains of each stage, the layouts, the homes."""
    lines = [f"a block has {', '.join(_cut(c, names) for c in plan.cuts)}"]
    for stage in plan.stages:
        lines += _stage(blocks, stage, names)
    lines += [f"in shared memory: {_tile(t, names)}" for t in sorted(plan.tiles, key=lambda t: (t.first, t.offset))]
    saved = f", {plan.apart / 1024:.1f} KB if none shared its place" if plan.apart > plan.shared else ""
    return [*lines, f"{plan.shared / 1024:.1f} KB of shared memory{saved}"] if plan.shared else lines


def blocked_line(plan: BlockPlan, names: Names) -> str:
    """The same in a few words."""
    cut = " x ".join(f"{c.extent} of {names(c.axis)}" for c in plan.cuts if c.by == "grid")
    turns = "".join(f", in turns of {c.extent} of {names(c.axis)}" for c in plan.cuts if c.by == "turns")
    return f"all values' tiles for {cut or 'all points'}{turns}"


def _cut(c: Cut, names: Names) -> str:
    axis = names(c.axis)
    return {"grid": f"{c.extent} of {axis}", "turns": f"{axis} in turns of {c.extent}", "whole": f"all of {axis}"}[c.by]


def _stage(blocks: Blocks, stage: Levels, names: Names) -> Iterator[str]:
    """What is done in registers between two barriers, level by level."""
    when = f"in each turn along {names(stage.turns)}" if stage.turns else "once"
    if stage.copies:
        ahead = f", {stage.ring - 1} turns ahead" if stage.ring > 1 else ""
        yield f"{when}: {', '.join(names(c.name) for c in stage.copies)} copied{ahead}"
    for k, level in enumerate(stage.levels):
        told = "; ".join(_chain(blocks, c, names) for c in level)
        yield f"{f'{when}: ' if not k else 'then, after a barrier: '}{told}"


def _chain(blocks: Blocks, chain: Chain, names: Names) -> str:
    """`x, g -> m: folded over j`: what a chain takes from shared memory, what it leaves, and what it does."""
    ends = [names(n) for n in chain.makes] + [f"{names(blocks.graph.writes[k].array)}[...]" for k in chain.writes]
    made = ", ".join(ends or [names(f) for f in chain.folds])
    over = ", ".join(names(a) for a in chain.over)
    how = {
        "copy": "copied", "points": "in registers at each point", "fold": f"folded over {over} by lanes",
        "product": f"multiplied over {over} by mma.sync", "finish": "what the turns have folded",
    }[chain.kind]  # fmt: skip
    needs = ", ".join(sorted(names(n) for n in chain.needs))
    return f"{f'{needs} -> ' if needs else ''}{made} ({how})"


def _tile(t: Tile, names: Names) -> str:
    along = ", ".join(names(a) for a in t.along) or "one element"
    lines = f"{t.shape[0]} lines of " if t.lines else ""
    how = "shifted by 16 bytes a line" if t.step > t.shape[1] else "swizzled" if t.swizzled else "as they are"
    ring = f", {t.ring} turns" if t.ring > 1 else ""
    steps = f"step {t.first}" if t.first == t.last else f"steps {t.first} to {t.last}"
    return f"{names(t.value)}, {lines}{t.shape[1]} {t.type.name} along {along}, {how}{ring}, at {t.offset}, {steps}"

