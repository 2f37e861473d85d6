"""What the analysis of a function ends in: nests that run one after another, each with its parallel axes outermost.

A nest is one kernel. Its axes are proven parallel; its body is what one iteration of them does, in order; every loop
left in the body has a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from weft.errors import Location
from weft.loops.ir import Expr, For, Function, If, Let, Stmt, walk

if TYPE_CHECKING:
    from weft.loops.polyhedra import Witness

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
    """What an iteration of a loop does to some of the scalars it carries, as an element of an algebra.

    names: the scalars, which change together. algebra, parts: the algebra and the parts of one iteration's element (see
    `weft.loops.algebra.table`), expressions in scope at the end of the body that do not depend on `names`; no parts where loops
    inside the body make the element. used: whether values other than the last are used (a scan rather than a reduction).
    feeds: whether updates after it in the same iteration need its values, which are used for nothing else.
    repair: of an update that another's values feed: the factor that brings a part of its result to a newer value of those,
    as text, where it is proven that this makes the result independent of the order; "": there is none.
    disorder: why there is none. factor: the repair as an expression of those values, m before and m' after.
    term: what an iteration adds, relative to newer values m' (`weft.loops.algebra.cascades`).
    nested: the parts where loops inside make some of them, told by elements of these: `h@value` is the part of that name of
    the element that a loop inside makes of its carry h.
    """

    names: tuple[str, ...]
    algebra: str
    parts: tuple[Expr, ...]
    used: bool
    feeds: bool = False
    repair: str = ""
    disorder: str = ""
    factor: Expr | None = None
    term: Expr | None = None
    nested: tuple[Expr, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0]


# "RAW": what was written is read; "WAR": what was read is written; "WAW": what was written is written again.
EvidenceKind = Literal["RAW", "WAR", "WAW"]


@dataclass(frozen=True)
class Evidence:
    """The dependence that keeps a loop in its order, as `weft.loops.dependences` has it.

    name: the array or scalar. source, sink: the labels of the statements (S1, S2, ...), which come in this order.
    loops: the variables of the loops around both; distance: how far each moves from source to sink, in values of its
    variable along its direction, a number or "<", ">", "<=", ">=", "*". witness: two iterations that collide, with small
    sizes. sure: it does exist; otherwise it cannot be excluded, and the witness only shows where it may.
    """

    kind: EvidenceKind
    name: str
    source: str
    sink: str
    loops: tuple[str, ...]
    distance: tuple[int | str, ...]
    witness: Witness | None
    sure: bool


@dataclass(frozen=True)
class Verdict:
    """The class of a loop and its proof: the updates it carries, or why it must run in order.

    why: one sentence for people. cycle: the names (scalars, arrays) on the dependence cycle, in order.
    requires: the transforms that the verdict needed, in order. remedy: what to write instead, "" where nothing is known.
    evidence: the dependence that keeps it in order, once `weft.loops.evidence` has been asked.
    """

    var: str
    kind: Kind
    updates: tuple[Update, ...] = ()
    why: str = ""
    cycle: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    remedy: str = ""
    location: Location | None = field(default=None, compare=False)
    evidence: Evidence | None = None

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

    @property
    def rare(self) -> bool:
        """Whether all that it does is under a condition that nobody expects to hold."""
        return all(isinstance(s, Let) or (isinstance(s, If) and s.rare) for s in self.body)

    def around(self) -> tuple[For, ...]:
        """The axes, as loops around the body."""
        return tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in self.axes)

    def in_loops(self) -> tuple[Stmt, ...]:
        """The body in the loops that the axes are."""
        body = self.body
        for loop in reversed(self.around()):
            body = (replace(loop, body=body),)
        return body

    def loops(self) -> tuple[For, ...]:
        return tuple(s for s in walk(self.body) if isinstance(s, For))


@dataclass(frozen=True)
class Schedule:
    """A function and the nests that compute it, in order. loops: the verdicts of the function's own loops, as written."""

    function: Function
    nests: tuple[Nest, ...]
    loops: tuple[Verdict, ...]


# Axes of arrays, (array, axis), in whose subscripts one below 0 counts from the end.
Wrapped = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Circumstances:
    """What is true, besides their types, of the calls that an analysis is for.

    checked: the arrays whose subscripts the kernels themselves check. wraps: the axes where those below 0 count from the end.
    empty: the loops that run for no iteration, by variable in the function whose sizes agree, or do not. untold: what sizes do
    not show (`weft.loops.sized`), by name.
    """

    checked: frozenset[str] = frozenset()
    wraps: Wrapped = frozenset()
    empty: frozenset[tuple[bool, str]] = frozenset()
    untold: frozenset[str] = frozenset()


ORDINARY = Circumstances()


@dataclass(frozen=True)
class Requirement:
    """What must hold for a call to stay inside its arrays: `condition`, a Python expression over the names of sizes and
    integer scalars, is true where axis `axis` of `array` is left by the subscript `index`.

    sure: the program then surely evaluates such a subscript; else that is for data to decide.
    beyond: the condition under which it leaves the axis though one below 0 counts from the end; None where it never is below.
    """

    condition: str
    array: str
    axis: int
    index: str
    write: bool
    sure: bool
    beyond: str | None
    location: Location | None
