"""What depends on a carried scalar in an iteration: through names, and through the memory that the iteration writes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from weft.loops.ir import Expr, For, If, Let, Load, Stmt, Store, free_names, walk_expr
from weft.loops.names import names_bound_in


@dataclass
class Flow:
    """names: those whose value depends on where the flow starts. reread: those of them that come from what the iteration (or
    one before it, of a loop in the body) has stored: no expression tells their value. arrays: those that hold dependent
    values. entered: the same, as each loop in the body begins.
    """

    names: set[str]
    reread: set[str] = field(default_factory=set)
    arrays: set[str] = field(default_factory=set)
    entered: dict[str, frozenset[str]] = field(default_factory=dict)

    @staticmethod
    def of(body: tuple[Stmt, ...], names: Iterable[str], arrays: Iterable[str] = ()) -> Flow:
        """The flow in a body from some names, and from arrays that hold dependent values when it begins."""
        flow = Flow(set(names), arrays=set(arrays))
        flow._visit(body, False)
        return flow

    def loads(self, *exprs: Expr) -> bool:
        """Whether expressions load from an array that holds dependent values."""
        return any(isinstance(e, Load) and e.array in self.arrays for x in exprs for e in walk_expr(x))

    def depends(self, *exprs: Expr) -> bool:
        return any(free_names(e) & self.names for e in exprs) or self.loads(*exprs)

    def _bind(self, name: str, *exprs: Expr) -> None:
        if self.depends(*exprs):
            self.names.add(name)
        if self.loads(*exprs) or any(free_names(e) & self.reread for e in exprs):
            self.reread.add(name)

    def _visit(self, statements: tuple[Stmt, ...], conditional: bool) -> None:
        """conditional: whether dependent values decide if these statements run."""
        for s in statements:
            match s:
                case Let():
                    self._bind(s.name, s.value)
                case Store():
                    if conditional or self.depends(*s.index, s.value):
                        self.arrays.add(s.array)
                case If():
                    inside = conditional or self.depends(s.condition)
                    before = self.loads(s.condition)
                    self._visit(s.then, inside)
                    self._visit(s.orelse, inside)
                    for m in s.merges:
                        self._bind(m.name, s.condition, m.then, m.orelse)
                        if before:
                            self.reread.add(m.name)
                case For():
                    self._loop(s, conditional or self.depends(s.start, s.stop))

    def _loop(self, loop: For, conditional: bool) -> None:
        self.entered.setdefault(loop.var, frozenset(self.arrays))
        while True:
            size = len(self.names) + len(self.arrays) + len(self.reread)
            for c in loop.carries:
                if conditional or self.depends(c.init, c.next):
                    self.names |= {c.name, c.result}
                if self.loads(c.init, c.next) or (free_names(c.init) | free_names(c.next)) & self.reread:
                    self.reread |= {c.name, c.result}
            self._visit(loop.body, conditional)
            if len(self.names) + len(self.arrays) + len(self.reread) == size:
                return


def leaks(inner: For, outside: Flow, own: Container[str]) -> Flow:
    """What depends, in a loop inside, on where a flow starts in another way than through what the carries `own` start with."""
    others = {c.name for c in inner.carries if c.name not in own and outside.depends(c.init)}
    flow = Flow((outside.names - names_bound_in((inner,))) | others, arrays=set(outside.entered.get(inner.var, ())))
    while True:
        size = len(flow.names) + len(flow.arrays)
        flow._visit(inner.body, flow.depends(inner.start, inner.stop))
        flow.names |= {c.name for c in inner.carries if flow.depends(c.next)}
        if len(flow.names) + len(flow.arrays) == size:
            return flow
