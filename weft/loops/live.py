"""Which names the stores of some statements depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from weft.loops.ir import Expr, For, If, Let, Stmt, Store, free_names, reachable

_NONE: frozenset[str] = frozenset()


@dataclass
class Uses:
    """What each name of some statements is computed from, found in one walk. A carry is computed from what it starts as, from
    what follows it and from the bounds of its loop; what a branch merges, from its condition too.

    direct: what the value of a name refers to. stores: what each store, and whether it runs, refers to; in the order of the
    text. within: for each loop, by its identity, the places in `places` and in `stores` of what is inside.
    """

    names_of: Callable[[Expr], frozenset[str]] = free_names
    direct: dict[str, frozenset[str]] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    stores: list[frozenset[str]] = field(default_factory=list)
    within: dict[int, tuple[range, range]] = field(default_factory=dict)

    @staticmethod
    def of(statements: tuple[Stmt, ...], names_of: Callable[[Expr], frozenset[str]] = free_names) -> Uses:
        """names_of: the names that an expression refers to."""
        made = Uses(names_of)
        made._block(statements, _NONE)
        return made

    def needed(self, names: Iterable[str] = (), loop: For | None = None) -> set[str]:
        """These names and those in the stores, and all that they are computed from; of a loop alone, if one is given: its
        stores, and what is bound inside it or carried by it.
        """
        inside, stores = (range(len(self.places)), range(len(self.stores))) if loop is None else self.within[id(loop)]
        start = {*names, *(n for k in stores for n in self.stores[k])}

        def bound(names: Iterable[str]) -> Iterator[str]:
            return (n for n in names if self.places.get(n, -1) in inside)

        return reachable(bound(start), lambda name: bound(self.direct[name]))

    def closure(self, names: Iterable[str]) -> set[str]:
        """These names and all that they are computed from, variables of loops among them."""
        return reachable(names, lambda name: self.direct.get(name, _NONE))

    def _bind(self, name: str, names: frozenset[str]) -> None:
        self.direct[name] = names
        self.places[name] = len(self.places)

    def _all(self, exprs: Iterable[Expr]) -> frozenset[str]:
        return _NONE.union(*map(self.names_of, exprs))

    def _block(self, statements: tuple[Stmt, ...], around: frozenset[str]) -> None:
        for stmt in statements:
            match stmt:
                case Let():
                    self._bind(stmt.name, self.names_of(stmt.value))
                case Store():
                    self.stores.append(around | self._all((*stmt.index, stmt.value)))
                case If():
                    condition = self.names_of(stmt.condition)
                    self._block(stmt.then, around | condition)
                    self._block(stmt.orelse, around | condition)
                    for m in stmt.merges:
                        self._bind(m.name, condition | self._all((m.then, m.orelse)))
                case For():
                    bounds = self._all((stmt.start, stmt.stop))
                    names, stores = len(self.places), len(self.stores)
                    for c in stmt.carries:
                        self._bind(c.name, bounds | self._all((c.init, c.next)))
                    self._block(stmt.body, around | bounds)
                    self.within[id(stmt)] = range(names, len(self.places)), range(stores, len(self.stores))
                    for c in stmt.carries:
                        self._bind(c.result, frozenset((c.name,)))
