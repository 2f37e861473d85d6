"""`break`, `continue`, `else` of loops, early `return` and counting `while` in terms of `if` and `for`.

What follows an `if` that leaves goes under its `else`; where it is not plain from the text whether something left, a
flag tells, and the rest is under an `if` of the flag. A loop that was left runs on with nothing to do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard, TypeVar

from weft.language.scopes import bound_in, names_in
from weft.loops.names import fresh

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Body:
    """The statements of a function without exits; a return is the last of them, if any.

    pending: names that have a value where the function has returned one, and nothing that counts before.
    """

    statements: list[ast.stmt]
    pending: tuple[str, ...] = ()


def without_exits(function: ast.FunctionDef) -> Body:
    """The function with its exits written as branches; the function's own statements where it has none."""
    *first, last = function.body
    if not any(map(_leaves, first)) and (isinstance(last, ast.Return) or not _leaves(last)):
        return Body(function.body)
    rewriter = _Rewriter(function)
    returns = [n for s in function.body for n in _own(s) if isinstance(n, ast.Return)]
    if all(r is last for r in returns):
        return Body(rewriter.block(function.body, None)[0])
    end = ast.copy_location(ast.Return(None), last)
    counts = {len(r.value.elts) if _is_tuple(r.value) else None for r in returns}
    count = counts.pop() if len(counts) == 1 and not rewriter.falls_off(function.body) else None
    rewriter.results = [rewriter.fresh("returned") for _ in range(count or 1)]
    rewriter.going = rewriter.fresh("going")
    statements, _ = rewriter.block([*function.body, end], None)
    if any(rewriter.going in _read(s) for s in statements):
        statements = [_assign(rewriter.going, True, function.body[0]), *statements]
    else:
        statements = _without(statements, rewriter.going)
    names: list[ast.expr] = [ast.copy_location(ast.Name(n, ast.Load()), last) for n in rewriter.results]
    value = names[0] if count is None else ast.copy_location(ast.Tuple(names, ast.Load()), last)
    return Body([*statements, ast.copy_location(ast.Return(value), last)], tuple(rewriter.results))


def _is_tuple(node: ast.expr | None) -> TypeGuard[ast.Tuple]:
    return isinstance(node, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in node.elts)


def _own(stmt: ast.AST) -> Iterator[ast.AST]:
    """A statement and what lies inside it, inner functions left out."""
    pending = [stmt]
    while pending:
        stmt = pending.pop()
        yield stmt
        if not isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(reversed(list(ast.iter_child_nodes(stmt))))


def _leaves(stmt: ast.stmt) -> bool:
    exits = (ast.Return, ast.Break, ast.Continue, ast.While)
    return any(isinstance(n, exits) or (isinstance(n, ast.For) and n.orelse) for n in _own(stmt))


def _assign(name: str, value: bool, where: ast.AST) -> ast.stmt:
    target = ast.copy_location(ast.Name(name, ast.Store()), where)
    return ast.copy_location(ast.Assign([target], ast.copy_location(ast.Constant(value), where)), where)


def _guard(flags: list[str], body: list[ast.stmt], where: ast.AST) -> ast.stmt:
    """`if flag and flag: body`."""
    names: list[ast.expr] = [ast.copy_location(ast.Name(f, ast.Load()), where) for f in flags]
    test = names[0] if len(names) == 1 else ast.copy_location(ast.BoolOp(ast.And(), names), where)
    return ast.copy_location(ast.If(test, body, []), where)


@dataclass
class _Loop:
    """A loop around the statements being rewritten: the flags that say whether it goes on, and whether this iteration
    does; used: those that something sets.
    """

    running: str
    iteration: str
    used: set[str] = field(default_factory=set)


class _Rewriter:
    """results: the names that a return binds: one, or one for each item where all returns are tuples of as many.
    going: the flag that a return clears.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.taken = names_in(function)
        self.results: list[str] = []
        self.going = ""

    def fresh(self, hint: str) -> str:
        return fresh(hint, self.taken)

    def is_read_after(self, name: str, loop: ast.For) -> bool:
        """Whether a name may be read outside a loop that binds it."""
        inside = sum(n == name for s in loop.body for n in _read(s))
        return inside < sum(n == name for n in _read(self.function))

    def falls_off(self, statements: list[ast.stmt]) -> bool:
        """Whether the end of a function's statements can be reached."""
        match statements:
            case [*_, ast.Return()]:
                return False
            case [*_, ast.If(body=body, orelse=[*orelse])] if orelse:
                return self.falls_off(body) or self.falls_off(orelse)
        return True

    def block(self, statements: list[ast.stmt], loop: _Loop | None) -> tuple[list[ast.stmt], bool]:
        """The statements without exits, and whether they always leave the loop's iteration (or the function)."""
        out: list[ast.stmt] = []
        for k, stmt in enumerate(statements):
            rest = statements[k + 1 :]
            match stmt:
                case ast.Break() if loop is not None:
                    loop.used.add(loop.running)
                    return [*out, _assign(loop.running, False, stmt)], True
                case ast.Continue() if loop is not None:
                    loop.used.add(loop.iteration)
                    return [*out, _assign(loop.iteration, False, stmt)], True
                case ast.Return() if self.results:
                    return [*out, *self.returned(stmt)], True
                case ast.If() if _leaves(stmt):
                    made, ends = self.branch(stmt, rest, loop)
                    return [*out, *made], ends
                case ast.For() | ast.While() if _leaves(stmt):
                    counted = stmt if isinstance(stmt, ast.For) else _counted(stmt, self.fresh)
                    if counted is not None:
                        made, ends = self.around(counted, rest, loop)
                        return [*out, *made], ends
            out.append(stmt)
        return out, False

    def always_leaves(self, statements: list[ast.stmt]) -> bool:
        for stmt in statements:
            match stmt:
                case ast.Break() | ast.Continue():
                    return True
                case ast.Return() if self.results:
                    return True
                case ast.If(body=body, orelse=orelse) if self.always_leaves(body) and self.always_leaves(orelse):
                    return True
        return False

    def returned(self, stmt: ast.Return) -> list[ast.stmt]:
        value = stmt.value or ast.copy_location(ast.Constant(None), stmt)
        targets: list[ast.expr] = [ast.copy_location(ast.Name(n, ast.Store()), stmt) for n in self.results]
        target = targets[0] if len(targets) == 1 and not _is_tuple(value) else None
        if target is None:
            whole = len(targets) == 1 and _is_tuple(value) and len(value.elts) != 1
            target = targets[0] if whole else ast.copy_location(ast.Tuple(targets, ast.Store()), stmt)
        return [ast.copy_location(ast.Assign([target], value), stmt), _assign(self.going, False, stmt)]

    def branch(self, stmt: ast.If, rest: list[ast.stmt], loop: _Loop | None) -> tuple[list[ast.stmt], bool]:
        """An if that something may leave by, and what follows it."""
        one, other = self.always_leaves(stmt.body), self.always_leaves(stmt.orelse)
        inside = one == other
        # where one branch leaves, what follows is the other branch's alone
        body, first = self.block(stmt.body if one or inside else [*stmt.body, *rest], loop)
        orelse, second = self.block(stmt.orelse if other or inside else [*stmt.orelse, *rest], loop)
        made: list[ast.stmt] = [ast.copy_location(ast.If(stmt.test, body, orelse), stmt)]
        if one or other or not rest:
            return made, first and second
        more, ends = self.block(rest, loop)
        flags = self.flags_set(stmt, loop)
        return ([*made, _guard(flags, more, rest[0])] if flags else [*made, *more]), ends

    def around(self, stmt: ast.For, rest: list[ast.stmt], loop: _Loop | None) -> tuple[list[ast.stmt], bool]:
        """A loop that something may leave by, and what follows it."""
        made, guards = self.loop(stmt)
        returns = self.returns(*stmt.body)
        if stmt.orelse:
            rest = [_guard(guards, stmt.orelse, stmt.orelse[0]), *rest] if guards else [*stmt.orelse, *rest]
        if not rest:
            return made, False
        more, ends = self.block(rest, loop)
        return ([*made, _guard([self.going], more, rest[0])] if returns else [*made, *more]), ends

    def loop(self, stmt: ast.For) -> tuple[list[ast.stmt], list[str]]:
        """The loop, and the flags that are true after it unless it was left."""
        own = _Loop(self.fresh("running"), self.fresh("ongoing"))
        body, _ = self.block(stmt.body, own)
        if any(own.running in _read(s) for s in body):  # a break that is never come to leaves what asks for it
            own.used.add(own.running)
        if any(own.iteration in _read(s) for s in body):
            body = [_assign(own.iteration, True, stmt), *body]
        else:
            body = _without(body, own.iteration)
        guards = [own.running] if own.running in own.used else []
        guards += [self.going] if self.returns(*stmt.body) else []
        target = stmt.target
        if guards:
            if any(self.is_read_after(n, stmt) for n in bound_in([target])):  # they stay where the loop was left
                hint = target.id if isinstance(target, ast.Name) else "item"
                target = ast.copy_location(ast.Name(self.fresh(hint), ast.Store()), target)
                counter = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                body = [ast.copy_location(ast.Assign([stmt.target], counter), stmt.target), *body]
            body = [_guard(guards, body, stmt)]
        made: list[ast.stmt] = [ast.copy_location(ast.For(target, stmt.iter, body, []), stmt)]
        return ([_assign(own.running, True, stmt), *made] if own.running in own.used else made), guards

    def returns(self, *statements: ast.stmt) -> bool:
        return bool(self.results) and any(isinstance(n, ast.Return) for s in statements for n in _own(s))

    def flags_set(self, stmt: ast.If, loop: _Loop | None) -> list[str]:
        """The flags that exits of a branch may set, of this loop and of the function."""
        exits = list(_exits(stmt))
        found = []
        if loop is not None and any(isinstance(e, ast.Break) for e in exits):
            found.append(loop.running)
        if loop is not None and any(isinstance(e, ast.Continue) for e in exits):
            found.append(loop.iteration)
        return [*found, self.going] if self.returns(stmt) else found


def _exits(stmt: ast.AST) -> Iterator[ast.AST]:
    """The breaks and continues of the loop around a statement."""
    if isinstance(stmt, (ast.Break, ast.Continue)):
        yield stmt
    for name, value in ast.iter_fields(stmt):
        if isinstance(stmt, (ast.For, ast.While)) and name == "body":
            continue  # those are the inner loop's
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, (ast.stmt, ast.Break, ast.Continue)):
                yield from _exits(child)


def _read(stmt: ast.stmt) -> Iterator[str]:
    return (n.id for n in ast.walk(stmt) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))


def _without(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The statements without assignments to a flag that nothing reads."""
    out: list[ast.stmt] = []
    for stmt in statements:
        match stmt:
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                continue
            case ast.If(test=test, body=body, orelse=orelse):
                kept = _without(body, name) or [ast.copy_location(ast.Pass(), stmt)]
                stmt = ast.copy_location(ast.If(test, kept, _without(orelse, name)), stmt)
            case ast.For(target=over, iter=items, body=body):
                kept = _without(body, name) or [ast.copy_location(ast.Pass(), stmt)]
                stmt = ast.copy_location(ast.For(over, items, kept, []), stmt)
        out.append(stmt)
    return out


_COUNTS = {ast.Lt: (ast.Add, 0), ast.LtE: (ast.Add, 1), ast.Gt: (ast.Sub, 0), ast.GtE: (ast.Sub, -1)}


def _is_steady(node: ast.expr, changed: set[str]) -> bool:
    """Whether arithmetic on names and sizes has one value while the `changed` names change."""
    match node:
        case ast.Name(id=name):
            return name not in changed
        case ast.Constant():
            return True
        case ast.BinOp(left=left, right=right):
            return _is_steady(left, changed) and _is_steady(right, changed)
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=index):
            return name not in changed and _is_steady(index, changed)
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
            return name not in changed
    return False


def _counted(stmt: ast.While, fresh: Callable[[str], str]) -> ast.For | None:
    """`while i < stop: ...; i += step`, the step a constant and the stop unchanged by the loop, as a for; else None."""
    match stmt:
        case ast.While(
            test=ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[stop]),
            body=[*inner, ast.AugAssign(target=ast.Name(id=counted), op=sign, value=ast.Constant(value=int(step)))],
            orelse=orelse,
        ) if counted == name and type(operator) in _COUNTS and inner:
            pass
        case _:
            return None
    wanted, beyond = _COUNTS[type(operator)]
    changed = {*bound_in(inner), *bound_in([stmt.body[-1]])}
    steady = _is_steady(stop, changed)
    skips = any(isinstance(e, ast.Continue) for s in inner for e in _exits(s))
    if not steady or skips or name in bound_in(inner) or type(sign) is not wanted or step <= 0:
        return None
    counter = fresh(name)

    def at(node: _Node) -> _Node:
        return ast.fix_missing_locations(ast.copy_location(node, stmt.test))

    end = ast.BinOp(stop, ast.Add(), ast.Constant(beyond)) if beyond else stop
    by = ast.Constant(step if wanted is ast.Add else -step)
    over = at(ast.Call(ast.Name("range", ast.Load()), [ast.Name(name, ast.Load()), end, by], []))
    first = at(ast.Assign([ast.Name(name, ast.Store())], ast.Name(counter, ast.Load())))
    made = ast.For(at(ast.Name(counter, ast.Store())), over, [first, *stmt.body], orelse)
    return ast.copy_location(made, stmt)
