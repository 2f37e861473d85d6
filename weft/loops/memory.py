"""When the elements of arrays get their values."""

from __future__ import annotations

from dataclasses import dataclass

from weft.loops.accesses import Access, collect
from weft.loops.algebra.counters import distinct
from weft.loops.ir import Expr, Function
from weft.loops.polyhedra import Polyhedra


@dataclass(frozen=True)
class Memory:
    """When the elements of written arrays get their values."""

    function: Function
    accesses: tuple[Access, ...]
    polyhedra: Polyhedra

    @staticmethod
    def of(function: Function) -> Memory:
        return Memory(function, collect(function.body), Polyhedra(function))

    def touching(self, array: str, write: bool) -> list[Access]:
        return [a for a in self.accesses if a.array == array and a.write == write]

    def last(self, array: str, index: tuple[Expr, ...], write: bool) -> bool:
        """Whether nothing is stored, after any of these accesses, to the element that it touches."""
        mine = [a for a in self.accesses if a.array == array and a.index == index and a.write == write]
        return not any(self.before(a, s) for a in mine for s in self.touching(array, True))

    def first(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether nothing touches, before any of these stores, the element that it stores to."""
        mine = [a for a in self.touching(array, True) if a.index == index]
        return not any(self.before(a, s) for a in self.accesses if a.array == array for s in mine)

    def loaded_after(self, array: str, index: tuple[Expr, ...]) -> bool:
        """Whether the array, as any of these stores leaves it, is loaded from at all, this or another element."""
        within = frozenset(self.function.array(array).within)
        mine = [a for a in self.touching(array, True) if a.index == index]
        return any(
            (a.position < b.position and not _opposite(a, b))
            or any(x.var == y.var and x.var not in within for x, y in zip(a.loops, b.loops, strict=False))
            for a in mine
            for b in self.touching(array, False)
        )

    def stored_once(self, array: str) -> bool:
        """Whether no element is stored twice."""
        stores = self.touching(array, True)
        return not any(self.before(a, b) for a in stores for b in stores)

    def shared(self, array: str, var: str) -> bool:
        """Whether iterations of the loop over `var` touch elements of the array in common, one of them storing."""
        mine = [a for a in self.accesses if a.array == array and any(f.var == var for f in a.loops)]
        within = frozenset(self.function.array(array).within)
        if var in within or not mine:
            return False
        loop = next(f for f in mine[0].loops if f.var == var)
        return any(self.polyhedra.carried(a, b, loop, within) is not None for a in mine if a.write for b in mine)

    def before(self, a: Access, b: Access) -> bool:
        """Whether an instance of a may come before another of b that touches the same element."""
        if self.polyhedra.apart(a, b):
            return False
        common = [x for x, y in zip(a.loops, b.loops, strict=False) if x.var == y.var]
        within = frozenset(self.function.array(a.array).within)
        for loop in common:
            if loop.var not in within and self.polyhedra.earlier(a, b, loop) and not distinct(loop, a, b):
                return True
        if a.position >= b.position:
            return False
        return not _opposite(a, b) and self.polyhedra.meet(a, b, frozenset(f.var for f in common))


def _opposite(a: Access, b: Access) -> bool:
    """Whether two accesses are on the two sides of a branch."""
    return any((c, not holds) in b.guard for c, holds in a.guard)
