"""From a nest to a block graph, where its body is a sequence of loops over columns; a reason where it is not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from weft.graph.block import BlockGraph, Input, Map, Operator, Output, Reduce, Scan, Stage, Step
from weft.loops.accesses import Access, collect
from weft.loops.affine import Affine, affine, is_bound
from weft.loops.algebra.evaluation import decided_by_state
from weft.loops.algebra.table import ALGEBRAS, EXTREMA, FIRST, overflows
from weft.loops.ir import (
    Check,
    Const,
    Expr,
    Fault,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    checks_in,
    free_names,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    substitute_statements,
    trapping,
    trapping_alone,
    walk,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.normalize import drop_unused
from weft.loops.polyhedra import Polyhedra
from weft.loops.schedule import Nest, Verdict
from weft.loops.types import BOOL, INT64


class NotRows(Exception):
    """Why a nest is not a block graph of rows and columns; it then runs with one thread for each iteration of its axes."""


def lower(function: Function, nest: Nest, column: str) -> BlockGraph:
    """The block graph of a nest. `column`: the axis to become the columns where the body has no loops ("" for none).

    Raises NotRows.
    """
    nest = _without_idle(function, _trapping(nest))
    if any(a.within for a in function.arrays if a.name in {x.array for x in collect(nest.body)}):
        raise NotRows("it keeps an array of its own in every iteration")
    if checks_in(nest.body):
        raise NotRows("it checks integers as it runs")
    rows, body = nest.axes, nest.body
    loops = nest.loops()
    if not loops and column:
        axis = next(a for a in rows if a.var == column)
        rows = tuple(a for a in rows if a is not axis)
        body = (For(axis.var, axis.start, axis.stop, axis.step, (), body, location=_first_location(body)),)
    elif not loops:
        raise NotRows("it has no columns")
    around = tuple(For(a.var, a.start, a.stop, a.step, (), ()) for a in rows)
    _check_memory(function, body, around)
    lowering = _Lowering(function, nest, around, Names.of(replace(function, body=body)))
    steps = tuple(step for s in body for step in lowering.steps(s))
    return BlockGraph(nest.name, rows, steps)


def _trapping(nest: Nest) -> Nest:
    """The nest with those of its checks alone that stop a GPU, in what its loops do as in its statements."""

    def told(verdict: Verdict) -> Verdict:
        updates = (replace(u, parts=tuple(map(trapping_alone, u.parts))) for u in verdict.updates)
        return replace(verdict, updates=tuple(updates))

    return replace(nest, body=trapping(nest.body), verdicts=tuple((var, told(v)) for var, v in nest.verdicts))


def _without_idle(function: Function, nest: Nest) -> Nest:
    """The nest without constants in arrays of its iterations that nothing loads: checks that do not stop a GPU left them."""
    own = {a.name for a in function.arrays if a.within} - {x.array for x in collect(nest.body) if not x.write}
    if not any(isinstance(s, Store) and s.array in own for s in walk(nest.body)):
        return nest

    def kept(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        idle = [isinstance(s, Store) and s.array in own and isinstance(s.value, Const) for s in body]
        return tuple(map_statement(s, lambda e: e, kept) for s, drop in zip(body, idle, strict=True) if not drop)

    return replace(nest, body=drop_unused(kept(nest.body)))


def _first_location(body: tuple[Stmt, ...]):  # type: ignore[no-untyped-def]
    return next((s.location for s in walk(body) if s.location is not None), None)


def _check_memory(function: Function, body: tuple[Stmt, ...], around: tuple[For, ...]) -> None:
    """What one column stores, no other column or later statement may load: lanes share registers, not memory."""
    accesses = collect(body, around)
    for a in accesses:
        if a.array in function.checked:
            raise NotRows(f"data decide which subscripts of {a.array} are evaluated")
        if None in a.subscript:
            raise NotRows(f"a subscript of {a.array} is no affine form of the loop variables")
        if not all(_told_by_sizes(a, i, e) for i, e in zip(a.index, function.array(a.array).shape, strict=True)):
            raise NotRows(f"the kernel itself checks subscripts of {a.array}: its size is a product of sizes")
    shared = frozenset(f.var for f in around)
    polyhedra = Polyhedra(function)
    for w in accesses:
        if not w.write:
            continue
        for a in accesses:
            if a.array != w.array or a is w:
                continue
            same = _in_column(a) == _in_column(w)
            if same and (a.write or a.position < w.position):
                continue
            if polyhedra.meet(a, w, shared):
                raise NotRows(f"{w.array} is stored by one column and used by another")


def _told_by_sizes(access: Access, index: Expr, extent: Expr) -> bool:
    """Whether the call has checked that a subscript is inside its array, or need not: it runs over all of the axis."""
    if is_bound(extent, free_names(extent)):
        return True
    return any((f.start, f.stop, f.step) == (Const(0, INT64), extent, 1) and index == Ref(f.var, INT64) for f in access.loops)


def _in_column(access: Access) -> tuple[Affine | None, ...]:
    """The subscript with the column variable under one name."""
    if not access.loops:
        return access.subscript
    var = access.loops[-1].var
    return tuple(
        None if s is None else Affine.make({("column" if n == var else n): c for n, c in s.terms}, s.constant)
        for s in access.subscript
    )


@dataclass
class _Lowering:
    function: Function
    nest: Nest
    around: tuple[For, ...]
    names: Names
    inputs: dict[tuple[str, tuple[Expr, ...], int], str] = field(default_factory=dict)

    @cached_property
    def bounded(self) -> set[str]:
        """The names that the call knows the range of."""
        arguments = {s.name for s in self.function.sizes} | {s.name for s in self.function.scalars}
        return arguments | {f.var for f in self.around}

    def told(self, *exprs: Expr) -> bool:
        """Whether the call knows these numbers, and so has checked what subscripts they make."""
        return all(is_bound(e, self.bounded) for e in exprs)

    def steps(self, stmt: Stmt) -> tuple[Step, ...]:
        match stmt:
            case For():
                return (self.stage(stmt),)
            case If():
                if any(isinstance(s, For) for s in walk((stmt,))):
                    raise NotRows("a loop stands under a condition")
                return self.branch(stmt)
        return (stmt,)

    def branch(self, stmt: If) -> tuple[Step, ...]:
        """A branch on row scalars: what it merges, which every thread needs, apart from what it stores, which one thread does.

        No merged value sees what the branch stores: nothing loads an element after it was stored (`_check_memory`).
        """
        if not stmt.merges or not any(isinstance(s, Store) for s in walk((stmt,))):
            return (stmt,)
        taken = Let(self.names.fresh("taken"), stmt.condition, stmt.location)
        stmt = replace(stmt, condition=Ref(taken.name, BOOL))
        (merging,) = needed_for((_without_stores(stmt),), {m.name for m in stmt.merges})
        (storing,) = needed_for((replace(stmt, merges=()),), set())
        assert isinstance(merging, If) and isinstance(storing, If)
        return taken, merging, storing

    def stage(self, loop: For) -> Stage:
        if any(isinstance(s, For) for s in walk(loop.body)):
            raise NotRows(f"loop {loop.var} has a loop inside it")
        if abs(loop.step) != 1:
            raise NotRows(f"loop {loop.var} steps by {loop.step}")
        is_axis = not self.nest.loops()
        verdict = None if is_axis else self.nest.verdict(loop)
        if verdict is not None and verdict.kind == "sequential":
            raise NotRows(f"loop {loop.var} is sequential: {verdict.why}")
        elsewhere = set() if verdict is None else {n for u in verdict.updates for n in u.names} - {c.name for c in loop.carries}
        if elsewhere:
            raise NotRows(f"loop {loop.var} carries {' and '.join(sorted(elsewhere))} in memory")
        for e in decided_by_state(loop) if loop.carries else ():
            # the call has checked subscripts of sizes, numbers and places in the grid
            if isinstance(e, Load) and set().union(*map(free_names, e.index)) - self.bounded - {loop.var}:
                raise NotRows(f"what loop {loop.var} carries decides which subscripts of {e.array} are evaluated")
        stage = _StageBuilder(self, loop)
        stage.block(loop.body, None)
        carried = []
        updates = verdict.updates if verdict is not None else ()
        carries = {c.name: c for c in loop.carries}
        for u in updates:
            own = [carries[n] for n in u.names]
            # an extremum tells its column, other elements of several parts combine in order; and a state that must not be
            # composed is computed in order while its tile is at hand
            free = (u.algebra in ALGEBRAS or u.algebra in EXTREMA) and not overflows(u.algebra, own[0].type)
            kind = Reduce if free and not (u.used or u.feeds) else Scan
            algebra, parts = u.algebra, u.parts
            if algebra == FIRST and len(own) == 1:  # nothing is taken as the flag falls: where it does is of no account
                algebra, parts = "and", parts[:1]
            parts = tuple(stage.tiles(e, loop.location) for e in parts)
            results, inits = tuple(c.result for c in own), tuple(c.init for c in own)
            nexts = tuple(stage.tiles(c.next, loop.location) for c in own)
            carried.append(kind(u.names, results, algebra, parts, inits, nexts, loop.step < 0, loop.location))
        loads = tuple(o for o in stage.operators if isinstance(o, Input))
        rest = _needed_only(tuple(o for o in stage.operators if not isinstance(o, Input)), tuple(carried))
        scans = tuple(o for o in carried if isinstance(o, Scan))
        reductions = tuple(o for o in carried if isinstance(o, Reduce))
        if loop.step > 0:
            start, stop = loop.start, loop.stop
        else:
            start, stop = _plus_one(loop.stop), _plus_one(loop.start)
        operators: tuple[Operator, ...] = (*loads, *scans, *rest, *reductions)
        checked = tuple(dict.fromkeys(stage.checked))
        return Stage(loop.var, start, stop, loop.step < 0, operators, stage.told, checked, loop.location)


def _without_stores(stmt: If) -> If:
    def kept(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_without_stores(s) if isinstance(s, If) else s for s in body if not isinstance(s, Store))

    return replace(stmt, then=kept(stmt.then), orelse=kept(stmt.orelse))


def needed_for(body: tuple[Stmt, ...], names: set[str]) -> tuple[Stmt, ...]:
    """Statements without loops: those that store, or that these names need."""
    needed = set(names)
    kept: list[Stmt] = []
    for stmt in reversed(body):
        match stmt:
            case Let() if stmt.name not in needed:
                continue
            case If():
                merges = tuple(m for m in stmt.merges if m.name in needed)
                then = needed_for(stmt.then, {n for m in merges for n in free_names(m.then)})
                orelse = needed_for(stmt.orelse, {n for m in merges for n in free_names(m.orelse)})
                if not (then or orelse or merges):
                    continue
                stmt = replace(stmt, then=then, orelse=orelse, merges=merges)
                inside = (*then, *orelse)
                needed |= {n for s in walk(inside) for e in statement_exprs(s) for n in free_names(e)}
                needed |= {n for m in merges for e in (m.then, m.orelse) for n in free_names(e)}
                needed |= free_names(stmt.condition)
            case _:
                needed |= {n for e in statement_exprs(stmt) for n in free_names(e)}
        kept.append(stmt)
    return tuple(reversed(kept))


def _needed_only(operators: tuple[Operator, ...], carried: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Without the maps that nothing needs: those that only led to a reduction's next value."""
    needed: set[str] = set()
    for o in carried:
        assert isinstance(o, (Scan, Reduce))
        needed |= {n for e in (*o.parts, *(o.nexts if isinstance(o, Scan) else ())) for n in free_names(e)}
    kept: list[Operator] = []
    for o in reversed(operators):
        match o:
            case Output():
                exprs = (o.value, o.guard, *o.index)
                needed |= {n for e in exprs if e is not None for n in free_names(e)}
            case Map():
                if o.name not in needed:
                    continue
                needed |= free_names(o.value)
        kept.append(o)
    return tuple(reversed(kept))


def _plus_one(expr: Expr) -> Expr:
    form = affine(expr)
    if form is None:
        return Op("add", (expr, Const(1, expr.type)), expr.type)
    return (form + Affine((), 1)).expr()


class _StageBuilder:
    """The operators of one loop over columns."""

    def __init__(self, lowering: _Lowering, loop: For) -> None:
        self.lowering, self.loop = lowering, loop
        self.operators: list[Operator] = []
        self.told = lowering.told(loop.start, loop.stop)
        self.checked: list[tuple[str, int, Affine]] = []
        self.inner = {s.name for s in walk(loop.body) if isinstance(s, Let)} | {loop.var}
        self.inner |= {c.name for c in loop.carries}

    def tiles(self, expr: Expr, location: object) -> Expr:
        """The expression with its loads along the column replaced by input tiles."""

        def rule(e: Expr) -> Expr | None:
            if not isinstance(e, Load):
                return None
            forms = [affine(i) for i in e.index]
            depends = [k for k, i in enumerate(e.index) if free_names(i) & self.inner or _loads_memory(i)]
            if len(depends) != 1:
                return None
            axis = depends[0]
            form = forms[axis]
            if form is None or form.coefficient(self.loop.var) != 1 or form.names & (self.inner - {self.loop.var}):
                return None
            if not self.safe(e, axis):
                return None
            return self.inside(Ref(self.input(e, axis, form), e.type), e, axis, form)

        return rewrite(expr, rule)

    def offset(self, form: Affine) -> Affine:
        """How far from its column a subscript is."""
        return form - Affine(((self.loop.var, 1),), 0)

    def known(self, form: Affine) -> bool:
        """Whether the call knew, in every column, a subscript that is one of these."""
        return self.told and self.offset(form).names <= self.lowering.bounded

    def inside(self, tile: Ref, load: Load, axis: int, form: Affine) -> Expr:
        """An element of a tile, with the check that the load is inside where neither the call nor the kernel, for all columns
        at once, has made it.
        """
        if self.known(form):
            return tile
        if _unguarded(self.loop, load):
            self.checked.append((load.array, axis, self.offset(form)))
            return tile
        index, extent = form.expr(), self.lowering.function.array(load.array).shape[axis]
        above, below = Op("ge", (index, Const(0, INT64)), BOOL), Op("lt", (index, extent), BOOL)
        fault = Fault("index", f"a subscript of {load.array}", location=load.location)
        return Check("check", (tile, Op("and", (above, below), BOOL)), tile.type, fault=fault)

    def safe(self, load: Load, axis: int) -> bool:
        """Whether all axes but the column's are inside the array whenever the row exists."""
        forms = tuple(affine(i) if k != axis else None for k, i in enumerate(load.index))
        if any(f is None or not f.names <= self.lowering.bounded for k, f in enumerate(forms) if k != axis):
            return False
        access = Access(load.array, forms, load.index, False, self.lowering.around, (), 0, None)
        polyhedra = Polyhedra(self.lowering.function)
        outside = polyhedra.outside(access, self.lowering.function.array(load.array).shape)
        # a condition on sizes is checked at the call wherever the loop runs at all; elsewhere nothing is loaded
        return outside is None or _unguarded(self.loop, load)

    def input(self, load: Load, axis: int, form: Affine) -> str:
        offset = self.offset(form)
        others = tuple(i for k, i in enumerate(load.index) if k != axis)
        key = (load.array, (*others, offset.expr()), axis)
        name = self.lowering.inputs.get(key)
        if name is None:
            name = self.lowering.names.fresh(f"{load.array}_tile")
            self.lowering.inputs[key] = name
        if not any(isinstance(o, Input) and o.name == name for o in self.operators):
            self.operators.append(
                Input(name, load.array, load.index, axis, offset, load.type, _unguarded(self.loop, load), load.location)
            )
        return name

    def block(self, statements: tuple[Stmt, ...], guard: Expr | None) -> None:
        for stmt in statements:
            match stmt:
                case Let():
                    self.operators.append(Map(stmt.name, self.tiles(stmt.value, stmt.location), location=stmt.location))
                case Store():
                    self.store(stmt, guard)
                case If():
                    self.branch(stmt, guard)

    def branch(self, stmt: If, guard: Expr | None) -> None:
        condition = self.lowering.names.fresh("taken")
        self.operators.append(Map(condition, self.tiles(stmt.condition, stmt.location), location=stmt.location))
        ref = Ref(condition, BOOL)
        refused = Op("not", (ref,), BOOL)
        lets: dict[str, Expr] = {}
        for body, holds in ((stmt.then, ref), (stmt.orelse, refused)):
            inner = holds if guard is None else Op("and", (guard, holds), BOOL)
            for s in body:
                match s:
                    case Let():
                        value = self.tiles(substitute(s.value, lets), s.location)
                        if _only_where_used(value):
                            lets[s.name] = value  # evaluated only where it is used, under the same condition
                        else:
                            self.operators.append(Map(s.name, value, location=s.location))
                    case Store():
                        index = tuple(substitute(i, lets) for i in s.index)
                        self.store(replace(s, index=index, value=substitute(s.value, lets)), inner)
                    case If():
                        if free_names(s.condition) & lets.keys():
                            raise NotRows("a condition under another one is an element that is read there")
                        (written_out,) = substitute_statements((s,), lets)
                        assert isinstance(written_out, If)
                        self.branch(written_out, inner)
        for m in stmt.merges:
            then, orelse = (self.tiles(substitute(e, lets), stmt.location) for e in (m.then, m.orelse))
            self.operators.append(Map(m.name, Op("where", (ref, then, orelse), m.type), location=stmt.location))
            self.inner.add(m.name)

    def store(self, stmt: Store, guard: Expr | None) -> None:
        value = self.tiles(stmt.value, stmt.location)
        index = tuple(self.tiles(i, stmt.location) for i in stmt.index)
        depends = [k for k, i in enumerate(index) if free_names(i) & self.inner or _loads_memory(i)]
        axis: int | None = None
        offset, told = Affine((), 0), True
        if len(depends) == 1 and self.lowering.told(*(i for k, i in enumerate(index) if k != depends[0])):
            form = affine(index[depends[0]])
            if form is not None and form.coefficient(self.loop.var) == 1 and not self.offset(form).names & self.inner:
                axis, offset, told = depends[0], self.offset(form), self.known(form)
                if not told and guard is None:
                    self.checked.append((stmt.array, axis, offset))
                    told = True
        self.operators.append(Output(stmt.array, index, axis, offset, value, guard, told, stmt.location))


def _loads_memory(expr: Expr) -> bool:
    return any(isinstance(e, Load) for e in walk_expr(expr))


def _only_where_used(expr: Expr) -> bool:
    """Whether an expression may not be evaluated where the program does not."""
    return any(isinstance(e, (Load, Check)) for e in walk_expr(expr))


def _unguarded(loop: For, load: Load) -> bool:
    """Whether a load is evaluated in every iteration of the loop."""
    return any(a.array == load.array and a.index == load.index and not a.guard for a in collect(loop.body))
