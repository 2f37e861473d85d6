"""What the last points of their keys store, as CUDA C++: a course of maps whose rows ask whether they are the last."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.emit.courses import Entry
from weft.emit.text import Writer
from weft.emit.turned import TurnedEntry
from weft.graph.joins import Joins, Ordered
from weft.loops.ir import Expr, Function
from weft.loops.schedule import Nest
from weft.plan.arguments import Facts
from weft.plan.latest import KEYS, LAST_OF, LastPlan, stored
from weft.plan.map import counted


@dataclass
class Stored(Entry):
    """memory: the names of the arrays that launches before have left."""

    group: Ordered = None  # type: ignore[assignment]
    memory: tuple[str, ...] = ()

    def parameters(self) -> list[str]:
        found = super().parameters()
        for array, name in zip((KEYS, LAST_OF), self.memory, strict=False):
            self.arrays[array] = self.fresh.fresh(name)
            found.append(f"const int32_t* __restrict__ {self.arrays[array]}")
        return [*found, f"const int64_t {self.fresh.fresh('count')}"]

    def unproven(self, array: str, axis: int, index: Expr) -> bool:
        """Keys are of elements that are inside."""
        known = array in (KEYS, LAST_OF) or (array == self.group.write.array and axis in self.group.keys)
        return not known and super().unproven(array, axis, index)

    @property
    def waits(self) -> bool:
        """Whether a point is the last is told by memory: what it would store is on its way meanwhile."""
        return True

    def compute(self) -> None:
        self.leave_rows()
        super().compute()


@dataclass
class TurnedStored(Stored, TurnedEntry):
    """Of which some arrays lie along another axis."""


def emit_store(
    function: Function,
    nest: Nest,
    facts: Facts,
    writer: Writer,
    joins: Joins,
    group: Ordered,
    plan: LastPlan,
    entry: str,
    memory: tuple[str, ...],
) -> None:
    """The launch that stores."""
    function, course = stored(function, joins, group, not plan.digits)
    facts = replace(facts, unit=facts.unit | {(KEYS, 0), (LAST_OF, 0)})
    kind = TurnedStored if plan.store.turned else Stored
    own = counted(course, plan.store)
    kind.begun(function, nest, facts, writer, own, plan.store, entry, group=group, memory=memory).emit()
