"""Operands that windows move over, as the images of a convolution: an element serves several points, further along the rows.

Packed row by row for each point, such an operand would be as many times as large as windows have points. So it is packed once,
as its array has it, and all of the array's places are rows, also those at which no window begins: the tile of a point of the
window is then the same tile some rows further. What the rows between make is not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from weft.graph.products import Products
from weft.graph.tile import Axis, Read
from weft.loops.affine import affine
from weft.loops.ir import ZERO, Const, Expr, Op
from weft.loops.types import INT64


@dataclass(frozen=True)
class Window:
    """operand: which one. along: the points that stay, side by side in packets, a multiple of `turn` of them. moves: (point,
    row, how many places of the row's axis a step of the point is). ends: the stops of rows, and of `along`, that the program
    has.
    """

    operand: int
    along: str
    turn: int
    moves: tuple[tuple[str, str, int], ...]
    ends: tuple[tuple[str, Expr], ...]

    def end(self, axis: str) -> Expr | None:
        """Where an axis ends that goes on."""
        return dict(self.ends).get(axis)

    def extents(self, extents: Mapping[str, int]) -> dict[str, int]:
        """How many points the axes have that go on."""
        found = {**extents, self.along: -(-extents[self.along] // self.turn) * self.turn}
        for point, row, step in self.moves:
            found[row] += step * (extents[point] - 1)
        return found


def window_of(found: Products, k: int, read: Read | None, turn: int) -> Window | None:
    """The window that moves over the k-th operand, which is a read; None where there is none."""
    side = found.rows if k < len(found.left) else found.columns
    if read is None or read.checked or not read.always or len(found.operands) != 2 or found.batch or found.owns or found.exact:
        return None
    axes, alone, moves, rows = found.sweeps.axes, [], [], []
    if found.ending or found.across or any(axes[a].start != ZERO for a in (*side, *found.over)):
        return None
    for index in read.index:
        form = affine(index)
        if form is None or form.constant or not form.names <= {*side, *found.over}:
            return None
        own, points = ([(a, c) for a, c in form.terms if a in axes_] for axes_ in (side, found.over))
        if len(own) > 1 or any(c != 1 for _, c in own) or any(c < 1 for _, c in points):
            return None
        rows += [a for a, _ in own]
        moves += [(p, own[0][0], c) for p, c in points] if own else []
        alone += [] if own else points
    moved = [p for p, *_ in moves]
    if len(alone) != 1 or alone[0][1] != 1 or not moves or sorted(rows) != sorted(side):
        return None
    along = alone[0][0]
    if sorted((*moved, along)) != sorted(found.over):
        return None
    ends = tuple((a, axes[a].stop) for a in (*dict.fromkeys(row for _, row, _ in moves), along))
    return Window(k, along, turn, tuple(moves), ends)


def windowed(found: Products, window: Window) -> Products:
    """The products with all places of the operand's array as rows, the points that stay last."""
    axes = dict(found.sweeps.axes)
    for point, row, step in window.moves:
        more = Op("mul", (Const(step, INT64), Op("sub", (axes[point].stop, Const(1, INT64)), INT64)), INT64)
        axes[row] = _to(axes[row], Op("add", (axes[row].stop, more), INT64))
    turn = Const(window.turn, INT64)
    more = Op("add", (axes[window.along].stop, Const(window.turn - 1, INT64)), INT64)
    axes[window.along] = _to(axes[window.along], Op("mul", (Op("floordiv", (more, turn), INT64), turn), INT64))
    over = (*(a for a in found.over if a != window.along), window.along)
    ((sweep,),) = found.sweeps.stages
    sweeps = replace(found.sweeps, axes=axes, stages=((replace(sweep, over=over),),))
    return replace(found, sweeps=sweeps, over=over)


def _to(axis: Axis, stop: Expr) -> Axis:
    form = affine(stop)
    return replace(axis, stop=stop if form is None else form.expr())
