"""The block graph: what one block (or one warp, or one thread) computes for one iteration of the grid.

The grid's axes are rows. For each row the graph is a sequence of steps: statements on row scalars, and stages. A
stage runs over a range of the column axis, tile by tile; its operators turn tiles into tiles, into row scalars, or
into memory. Every operator names its result; expressions refer to results, axes, sizes and scalars by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.errors import Location
from weft.loops.affine import Affine
from weft.loops.ir import Expr, If, Let, Store, free_names, walk
from weft.loops.schedule import Axis
from weft.loops.types import ScalarType


@dataclass(frozen=True)
class Input:
    """A tile of `array`: its element at column j lies at `index`, where axis `axis` is j + offset and the others do not
    depend on j. Elements outside the array are not loaded (they are zero, and what uses them checks first where the call did
    not). always: the program loads it in every column, so that all of them are inside: the call has checked it, or the kernel
    does so before it loads any (`Stage.checked`).
    """

    name: str
    array: str
    index: tuple[Expr, ...]
    axis: int
    offset: Affine
    type: ScalarType
    always: bool
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Map:
    """A tile computed element by element. kept: later stages use it too, so it stays in registers."""

    name: str
    value: Expr
    kept: bool = False
    location: Location | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Carried:
    """What goes from column to column: the state `names`, which each column changes by an element of an algebra.

    parts: the parts of a column's element (`weft.loops.algebra.table`), expressions of the tiles. inits: the state before the
    first column; nexts: the state after a column; results: row scalars, the state after the last one. reverse: the first
    column is the one with the largest number.
    """

    names: tuple[str, ...]
    results: tuple[str, ...]
    algebra: str
    parts: tuple[Expr, ...]
    inits: tuple[Expr, ...]
    nexts: tuple[Expr, ...]
    reverse: bool = False
    location: Location | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def type(self) -> ScalarType:
        return self.inits[0].type


@dataclass(frozen=True)
class Reduce(Carried):
    """A state of which only the last value is needed, by an algebra that may take the columns in any order."""


@dataclass(frozen=True)
class Scan(Carried):
    """Tiles `names`: the state before each column."""


@dataclass(frozen=True)
class Output:
    """Stores a tile: the element of column j goes to `index`, under `guard` where there is one.

    axis: the array's axis that is j + offset while the others do not depend on j; None: each element by itself. told: the
    call knew the subscript, or the kernel checks all columns' (`Stage.checked`); else each is checked where it is stored.
    """

    array: str
    index: tuple[Expr, ...]
    axis: int | None
    offset: Affine
    value: Expr
    guard: Expr | None
    told: bool = True
    location: Location | None = field(default=None, compare=False)


Operator = Input | Map | Reduce | Scan | Output


def made(o: Operator) -> tuple[str, ...]:
    """The names that an operator gives its results."""
    match o:
        case Input() | Map():
            return (o.name,)
        case Reduce() | Scan():
            return o.names
    return ()


@dataclass(frozen=True)
class Stage:
    """Operators over the columns `start <= column < stop`; `reverse`: the scans run from the last column to the first.

    operators are in an order in which each uses only results before it; scans come where their states are first needed.
    told: the call knows the columns, and has checked the subscripts that they make. checked: (array, axis, offset) of what
    every column loads or stores where the call did not know it: the kernel checks that the first and the last are inside.
    """

    column: str
    start: Expr
    stop: Expr
    reverse: bool
    operators: tuple[Operator, ...]
    told: bool = True
    checked: tuple[tuple[str, int, Affine], ...] = ()
    location: Location | None = field(default=None, compare=False)

    def inputs(self) -> tuple[Input, ...]:
        return tuple(o for o in self.operators if isinstance(o, Input))

    def outputs(self) -> tuple[Output, ...]:
        return tuple(o for o in self.operators if isinstance(o, Output))

    def scans(self) -> tuple[Scan, ...]:
        return tuple(o for o in self.operators if isinstance(o, Scan))

    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(o for o in self.operators if isinstance(o, Reduce))

    def carried(self) -> tuple[Scan | Reduce, ...]:
        """What goes from column to column, scans first."""
        return (*self.scans(), *self.reductions())


Step = Let | Store | If | Stage


@dataclass(frozen=True)
class BlockGraph:
    """rows: the grid's axes, outermost first. steps: what is done for one row, in order.

    A branch either merges row scalars or stores: the one is for every thread of the row, the other for one of them.
    """

    name: str
    rows: tuple[Axis, ...]
    steps: tuple[Step, ...]

    def stages(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.steps if isinstance(s, Stage))

    @property
    def pointwise(self) -> bool:
        """Whether columns are independent of each other: one stage of maps."""
        return len(self.steps) == 1 and all(not s.scans() and not s.reductions() for s in self.stages())


def validate(graph: BlockGraph) -> None:
    """Raise AssertionError (an internal fault) if an operator uses a tile that no operator before it made."""
    rows: set[str] = {a.var for a in graph.rows}
    tiles_anywhere = {n for s in graph.stages() for o in s.operators for n in made(o)}
    for step in graph.steps:
        if isinstance(step, Let):
            rows.add(step.name)
        if isinstance(step, If):
            stores = any(isinstance(s, Store) for s in walk((step,)))
            assert not (step.merges and stores), "a branch merges for every thread what one thread stores"
            rows |= {m.name for m in step.merges}
        if not isinstance(step, Stage):
            continue
        known: set[str] = set()
        for o in step.operators:
            match o:
                case Input():
                    known.add(o.name)
                case Map():
                    missing = (free_names(o.value) & tiles_anywhere) - known - rows
                    assert not missing, f"{o.name} uses {missing} before they are made"
                    known.add(o.name)
                case Scan() | Reduce():
                    known |= set(o.names)
                case Output():
                    missing = (free_names(o.value) & tiles_anywhere) - known - rows
                    assert not missing, f"the store to {o.array} uses {missing} before they are made"
        rows |= {r for o in step.carried() for r in o.results}
