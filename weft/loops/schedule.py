"""What the analysis of a function ends in: nests that run one after another, each with its parallel axes outermost.

A nest is one kernel. Its axes are proven parallel; its body is what one iteration of them does, in order; every loop
left in the body has a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from weft.errors import Location
from weft.loops.ir import Expr, For, Function, Stmt, walk

Kind = Literal["parallel", "reduction", "scan", "sequential"]
KINDS: tuple[Kind, ...] = ("parallel", "reduction", "scan", "sequential")  # the most free first


@dataclass(frozen=True)
class Axis:
    """A parallel loop that became an axis of the grid. Its bounds use sizes and scalar parameters alone."""

    var: str
    start: Expr
    stop: Expr
    step: int


@dataclass(frozen=True)
class Update:
    """How a loop updates one carried scalar `name`: `name = coefficient * name + addend` for the affine algebra,
    `name = name (algebra) addend` for the others. Both expressions are in scope at the end of the body and do not
    depend on `name`. used: whether values other than the last are used (a scan rather than a reduction).
    """

    name: str
    algebra: str
    addend: Expr
    coefficient: Expr | None
    used: bool


@dataclass(frozen=True)
class Verdict:
    """The class of a loop and its proof: the updates it carries, or why it must run in order.

    why: one sentence for people. cycle: the names (scalars, arrays) on the dependence cycle, in order.
    requires: the transforms that the verdict needed, in order.
    """

    var: str
    kind: Kind
    updates: tuple[Update, ...] = ()
    why: str = ""
    cycle: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    remedy: str = ""
    location: Location | None = field(default=None, compare=False)

    @property
    def algebra(self) -> tuple[str, ...]:
        return tuple(u.algebra for u in self.updates)


@dataclass(frozen=True)
class Nest:
    """One kernel: `axes` outermost (all parallel), `body` for one iteration of them, `verdicts` of its loops by variable."""

    name: str
    axes: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    verdicts: tuple[tuple[str, Verdict], ...]

    def verdict(self, loop: For) -> Verdict:
        return dict(self.verdicts)[loop.var]

    def loops(self) -> tuple[For, ...]:
        return tuple(s for s in walk(self.body) if isinstance(s, For))


@dataclass(frozen=True)
class Schedule:
    """A function and the nests that compute it, in order. loops: the verdicts of the function's own loops, as written."""

    function: Function
    nests: tuple[Nest, ...]
    loops: tuple[Verdict, ...]


@dataclass(frozen=True)
class Requirement:
    """What must hold for a call to stay inside its arrays: `condition`, a Python expression over the names of sizes and
    integer scalars, is true where axis `axis` of `array` is left by the subscript `index`.
    """

    condition: str
    array: str
    axis: int
    index: str
    write: bool
    location: Location | None
