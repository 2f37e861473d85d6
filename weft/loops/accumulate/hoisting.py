"""Sums carried out of the loops that an index does not name."""

from __future__ import annotations

from dataclasses import replace

from weft.loops.accumulate.ranges import runs_at_all, surely_inside
from weft.loops.accumulate.sites import Site, accumulate_into, in_full, names_alone, sites_of
from weft.loops.ir import Carry, Expr, For, Function, If, Merge, Op, Ref, Stmt, Store, free_arrays, free_names, walk
from weft.loops.names import Names
from weft.loops.simplify import add, bound_inside, number


def summed_outside(function: Function, statements: tuple[Stmt, ...], target: str, names: Names) -> tuple[Stmt, ...]:
    """The statements, which do nothing with the array `target` but `array[index] += value`, with sums that are carried out of
    the loops that an index does not name.
    """
    return hoist(function, statements, target, (), names)


def hoist(
    function: Function, statements: tuple[Stmt, ...], target: str, around: tuple[For, ...], names: Names
) -> tuple[Stmt, ...]:
    out: list[Stmt] = []
    for stmt in statements:
        match stmt:
            case For():
                stmt = replace(stmt, body=hoist(function, stmt.body, target, (*around, stmt), names))
                pieces: list[Stmt] = []
                while True:
                    found = _hoist_one(function, stmt, target, around, names)
                    if found is None:
                        break
                    stmt, after = found
                    pieces.append(after)
                out += [stmt, *pieces]
            case If():
                then = hoist(function, stmt.then, target, around, names)
                out.append(replace(stmt, then=then, orelse=hoist(function, stmt.orelse, target, around, names)))
            case _:
                out.append(stmt)
    return tuple(out)


def _hoist_one(
    function: Function, loop: For, target: str, around: tuple[For, ...], names: Names
) -> tuple[For, Stmt] | None:
    bound = bound_inside(loop)
    nested = any(isinstance(s, For) for s in walk(loop.body))
    stored = {s.array for s in walk(loop.body) if isinstance(s, Store)}
    for site in sites_of(loop.body, target):
        index = tuple(in_full(site, i, loop.body) if free_names(i) & bound else i for i in site.store.index)
        if site.loops or any(free_names(i) & bound or free_arrays(i) & stored for i in index):
            continue
        if nested and not _sums(loop) and not (around and all(f.var in names_alone(index) for f in around)):
            continue
        inside = surely_inside(function, target, index, around)
        if site.path and not inside:
            continue
        type_ = site.value.type
        total, result = Ref(names.fresh(f"{target}_sum"), type_), Ref(names.fresh(f"{target}_sum"), type_)
        body, end = _thread(loop.body, site, total, names)
        carry = Carry(total.name, number(0, type_), end, result.name)
        after: Stmt = accumulate_into(target, index, result, site.store)
        if not inside:
            after = If(runs_at_all(loop), (after,), (), (), site.store.location)
        return replace(loop, carries=(*loop.carries, carry), body=body), after
    return None


def _sums(loop: For) -> bool:
    """Whether a loop carries sums, and nothing else."""
    nexts = ((Ref(c.name, c.type), c.next) for c in loop.carries)
    return bool(loop.carries) and all(isinstance(e, Op) and e.name == "add" and own in e.args for own, e in nexts)


def _thread(statements: tuple[Stmt, ...], site: Site, total: Expr, names: Names) -> tuple[tuple[Stmt, ...], Expr]:
    """The statements without the site's store, and the total with its value added."""
    out: list[Stmt] = []
    end = total
    for stmt in statements:
        if stmt is site.store:
            end = add(total, site.value)
        elif isinstance(stmt, If) and any(s.stmt is stmt for s in site.path):
            then, after_then = _thread(stmt.then, site, total, names)
            orelse, after_else = _thread(stmt.orelse, site, total, names)
            merge = Merge(names.fresh(f"{site.store.array}_sum"), after_then, after_else)
            out.append(replace(stmt, then=then, orelse=orelse, merges=(*stmt.merges, merge)))
            end = Ref(merge.name, merge.type)
        else:
            out.append(stmt)
    return tuple(out), end
