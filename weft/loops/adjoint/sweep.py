"""The sweep: the statements of a block again, without its results, for the values that derivatives need."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate import accumulate_into, accumulation
from weft.loops.adjoint.scope import Scope
from weft.loops.adjoint.values import Values
from weft.loops.ir import Carry, For, If, Let, Merge, Ref, Stmt, Store
from weft.loops.types import INT64


class Sweep(Values):
    """The function's statements, again."""

    def sweep_block(self, statements: tuple[Stmt, ...], scope: Scope, branch: bool, save: bool = True) -> list[Stmt]:
        """The sweep of a block; binds its names in scope. branch: it is a branch, where no array has its home.

        save: whether what the adjoints of the block's loops need of earlier iterations is saved.
        """
        depth = len(scope.path)
        here = [a for a in self.facts.written if self.facts.homes[a][:depth] == scope.path]
        if branch:
            here = [a for a in here if len(self.facts.homes[a]) > depth]
        for array in here:
            if all(v in scope.names for v in self.facts.arrays[array].within):
                scope.copies[array] = self._copy_array(array, scope)
        return self.sweep(statements, replace(scope, sweeping=frozenset(here), root=depth), save)

    def sweep(self, statements: tuple[Stmt, ...], scope: Scope, top: bool) -> list[Stmt]:
        """The statements again; binds their names in scope. top: they are the block's own, whose loops are saved."""
        out: list[Stmt] = []
        for stmt in statements:
            self.location = stmt.location
            match stmt:
                case Let():
                    self._sweep_let(stmt, scope, top, out)
                case Store():
                    if stmt.array in scope.sweeping:
                        index = tuple(self.primal(i, scope) for i in stmt.index)
                        own = accumulation(stmt, alone=False)
                        copy = scope.copies[stmt.array]
                        if own is not None:
                            out.append(accumulate_into(copy, index, self.primal(own, scope), stmt))
                        else:
                            out.append(Store(copy, index, self.primal(stmt.value, scope), stmt.location))
                case If():
                    self._sweep_if(stmt, scope, out)
                case For():
                    self._sweep_loop(stmt, scope, top, out)
        return out

    def _sweep_let(self, stmt: Let, scope: Scope, top: bool, out: list[Stmt]) -> None:
        if top and stmt.name in self.facts.stored:
            scope.names[stmt.name] = self.primal(self.facts.stored[stmt.name], scope)
            return
        array = self.facts.named.get(stmt.name)
        if array is not None and array not in scope.sweeping:
            scope.names[stmt.name] = self._saved_value(stmt.name, stmt.value.type, scope)
            return
        ref = Ref(self.names.fresh(stmt.name), stmt.value.type)
        out.append(Let(ref.name, self.primal(stmt.value, scope), stmt.location))
        scope.names[stmt.name] = ref
        if array is not None and len(self.facts.homes[array]) == scope.root:
            self._save(stmt.name, ref, scope.loops, scope, out)

    def _sweep_if(self, stmt: If, scope: Scope, out: list[Stmt]) -> None:
        condition = self.primal(stmt.condition, scope)
        left, right = scope.fork(), scope.fork()
        then, orelse = self.sweep(stmt.then, left, False), self.sweep(stmt.orelse, right, False)
        merges = []
        for m in stmt.merges:
            name = self.names.fresh(m.name)
            merges.append(Merge(name, self.primal(m.then, left), self.primal(m.orelse, right)))
            scope.names[m.name] = Ref(name, m.type)
        out.append(If(condition, tuple(then), tuple(orelse), tuple(merges), stmt.location))

    def _sweep_loop(self, stmt: For, scope: Scope, top: bool, out: list[Stmt]) -> None:
        var = self.names.fresh(stmt.var)
        inner = replace(scope.fork(), loops=(*scope.loops, stmt))
        inner.names[stmt.var] = Ref(var, INT64)
        body: list[Stmt] = []
        carried = {c.name: Ref(self.names.fresh(c.name), c.type) for c in stmt.carries}
        inner.names.update(carried)
        for array in self.facts.written:
            if array in scope.sweeping and self.facts.arrays[array].within[-1:] == (stmt.var,):
                inner.copies[array] = self._copy_array(array, inner)
        if top:
            for c in stmt.carries:
                self._save(c.name, carried[c.name], inner.loops, inner, body)
        body += self.sweep(stmt.body, inner, False)
        carries = []
        for c in stmt.carries:
            result = self.names.fresh(c.result)
            init, after = self.primal(c.init, scope), self.primal(c.next, inner)
            carries.append(Carry(carried[c.name].name, init, after, result))
            stored = self.facts.stored.get(c.result) if top else None
            scope.names[c.result] = Ref(result, c.type) if stored is None else self.primal(stored, scope)
        start, stop = self.primal(stmt.start, scope), self.primal(stmt.stop, scope)
        out.append(replace(stmt, var=var, start=start, stop=stop, carries=tuple(carries), body=tuple(body)))
