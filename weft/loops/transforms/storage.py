"""Transforms of where values are kept: expansion, which gives every iteration of a loop a place of its own, and renaming,
which keeps what is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.errors import IllegalTransform, InapplicableTransform
from weft.loops.accesses import collect, rewrite_loads
from weft.loops.affine import is_bound
from weft.loops.automatic.renaming import old_values_kept
from weft.loops.ir import (
    ZERO,
    Array,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Stmt,
    Store,
    bodies,
    bound_scalars,
    map_statement,
    rewrite,
    walk,
)
from weft.loops.names import Names
from weft.loops.normalize import simplify
from weft.loops.polyhedra import Relations
from weft.loops.transforms.bounds import hull
from weft.loops.transforms.nest import Header, Proposal, around, find_loop, refusal, replaced
from weft.loops.transforms.order import Order
from weft.loops.types import INT64, ScalarType
from weft.loops.variables import variables


def expand(function: Function, name: str, loops: Sequence[str]) -> Proposal:
    """A scalar, or an array that a function makes for itself, with a place of its own for every iteration of some loops."""
    what = f"expansion of {name} over {', '.join(loops)}"
    if not loops:
        raise InapplicableTransform(f"expansion of {name}: over no loop", remedy=f'name a loop: .expand("{name}", "i")')
    found = [find_loop(function, var) for var in loops]
    for outer, inner in zip(found, found[1:], strict=False):
        if not any(s is inner for s in walk(outer.body)):
            raise InapplicableTransform(
                f"{what}: the loop over {inner.var} is not inside the one over {outer.var}",
                location=inner.location, remedy="name loops from the outermost to the innermost",
            )  # fmt: skip
    places = [_place(function, loop, what) for loop in found]
    if any(a.name == name for a in function.arrays):
        return _expanded_array(function, function.array(name), found, places, what)
    return _expanded_scalar(function, name, found, places, what)


def _place(function: Function, loop: For, what: str) -> tuple[Expr, Expr]:
    """How many values a loop's variable has at most, whatever the loops around it do, and the number of this one."""
    path = (*around(function, loop), loop)
    header = hull(function, tuple(map(Header.of, path)), what)[-1]
    known = {s.name for s in function.sizes} | {s.name for s in function.scalars}
    for end in (header.start, header.stop):
        if not is_bound(end, known):
            raise InapplicableTransform(
                f"{what}: how often the loop over {loop.var} runs is not known before the call",
                location=loop.location, remedy="take its bounds from sizes and integer arguments",
            )  # fmt: skip
    var, step = Ref(loop.var, INT64), Const(abs(loop.step), INT64)
    up = loop.step > 0
    length = Op("sub", (header.stop, header.start) if up else (header.start, header.stop), INT64)
    passed = Op("sub", (var, header.start) if up else (header.start, var), INT64)
    if abs(loop.step) != 1:
        length = Op("floordiv", (Op("add", (length, Const(abs(loop.step) - 1, INT64)), INT64), step), INT64)
        passed = Op("floordiv", (passed, step), INT64)
    return Op("max", (simplify(length), ZERO), INT64), simplify(passed)


def _expanded_scalar(
    function: Function, name: str, loops: Sequence[For], places: Sequence[tuple[Expr, Expr]], what: str
) -> Proposal:
    shown = variables(function)
    inner = loops[-1]
    made = [(k, n, t) for k, s in enumerate(inner.body) for n, t in bound_scalars(s) if shown[n] == name]
    if not made:
        carried = any(shown[c.name] == name for c in inner.carries)
        why = f"the loop over {inner.var} carries it: an iteration starts with what the one before left" if carried else (
            f"no statement of the body of the loop over {inner.var} gives it a value")  # fmt: skip
        raise InapplicableTransform(
            f"{what}: {name} is no scalar that each iteration makes", location=inner.location, evidence=[why],
            remedy="name a scalar that the body of the innermost of these loops assigns",
        )  # fmt: skip
    names = Names.of(function)
    extents, index = tuple(e for e, _ in places), tuple(i for _, i in places)
    arrays: list[Array] = []
    body: list[Stmt] = []
    loads: dict[str, Expr] = {}
    uses = _uses_of(loads)
    stored: dict[int, list[tuple[str, ScalarType]]] = {}
    for k, n, t in made:
        stored.setdefault(k, []).append((n, t))
    for k, s in enumerate(inner.body):
        s = uses(s)
        own = stored.get(k, [])
        if own and isinstance(s, Let):
            array = _array(names, f"{name}_{'_'.join(f.var for f in loops)}", own[0][1], extents, s.location)
            arrays.append(array)
            body.append(Store(array.name, index, s.value, s.location))
            loads[own[0][0]] = Load(array.name, index, own[0][1], s.location)
            continue
        body.append(s)
        for n, t in own:
            array = _array(names, f"{name}_{'_'.join(f.var for f in loops)}", t, extents, s.location)
            arrays.append(array)
            body.append(Store(array.name, index, Ref(n, t), s.location))
            loads[n] = Load(array.name, index, t, s.location)
    carries = tuple(
        replace(c, next=rewrite(c.next, lambda e: loads.get(e.name) if isinstance(e, Ref) else None)) for c in inner.carries
    )
    new = replace(inner, body=tuple(body), carries=carries)
    function = replace(replaced(function, inner, (new,)), arrays=(*function.arrays, *arrays))
    why = f"every iteration of {inner.var} gives {name} its value before it is used, so each may keep its own"
    return Proposal(what, function, why)


def _array(names: Names, base: str, type_: ScalarType, shape: tuple[Expr, ...], location: object) -> Array:
    return Array(names.fresh(base), type_, shape, "local", location=location)  # type: ignore[arg-type]


def _uses_of(loads: dict[str, Expr]) -> Callable[[Stmt], Stmt]:
    """Statements with names replaced by what `loads` has for them by then."""

    def expr(e: Expr) -> Expr:
        return rewrite(e, lambda x: loads.get(x.name) if isinstance(x, Ref) else None)

    def statement(s: Stmt) -> Stmt:
        return map_statement(s, expr, lambda b: tuple(map(statement, b)))

    return statement


# ---------------------------------------------------------------- arrays


def _expanded_array(
    function: Function, array: Array, loops: Sequence[For], places: Sequence[tuple[Expr, Expr]], what: str
) -> Proposal:
    if array.role != "local":
        raise InapplicableTransform(
            f"{what}: {array.name} is {'an argument' if array.role != 'result' else 'a result'}, whose last values count",
            location=array.location, remedy="expand arrays that the function makes for itself",
        )  # fmt: skip
    variables_ = [f.var for f in loops]
    violation = None
    if array.within:
        if list(array.within) != variables_:
            raise InapplicableTransform(
                f"{what}: {array.name} is made in each iteration of {', '.join(array.within)}",
                location=array.location, remedy=f"expand it over {', '.join(array.within)} at once",
            )  # fmt: skip
        why = f"every iteration of {', '.join(variables_)} makes {array.name} anew, so each may keep its own"
    else:
        violation = _not_private(function, array.name, loops[-1], what)
        why = f"every iteration of {loops[-1].var} writes each element of {array.name} before it reads it"
    names = Names.of(function)
    shape = (*(e for e, _ in places), *array.shape)
    index = tuple(i for _, i in places)
    own = replace(array, name=names.fresh(f"{array.name}_{'_'.join(variables_)}"), shape=shape, within=())

    def expr(e: Expr) -> Expr:
        def rule(load: Load, _: object) -> Expr | None:
            return replace(load, array=own.name, index=(*index, *load.index)) if load.array == array.name else None

        return rewrite_loads(e, rule)

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(statement, statements))

    def statement(s: Stmt) -> Stmt:
        s = map_statement(s, expr, block)
        return replace(s, array=own.name, index=(*index, *s.index)) if isinstance(s, Store) and s.array == array.name else s

    inner = loops[-1]
    carries = tuple(replace(c, next=expr(c.next)) for c in inner.carries)
    made = replaced(function, inner, (replace(inner, body=block(inner.body), carries=carries),))
    elsewhere = array.name in _touched(made.body)
    arrays = [a for a in made.arrays if elsewhere or a.name != array.name]
    return Proposal(what, replace(made, arrays=(*arrays, own)), why, violation)


def _touched(statements: tuple[Stmt, ...]) -> set[str]:
    return {a.array for a in collect(statements)}


def _not_private(function: Function, name: str, loop: For, what: str) -> IllegalTransform | None:
    """The error where an element that an iteration of a loop reads may come from somewhere else."""
    order = Order.of(function)
    own = [i for i in order.instances if i.place == name]
    inside = [any(f.var == loop.var for f in i.access.loops) for i in own]
    relations = Relations(order.program.function)
    touches = [relations.touch(i.access, i.counters) for i in own]
    flows = relations.flow(touches)
    for k, instance in enumerate(own):
        if instance.access.write:
            continue
        private = []
        for j, source in enumerate(own):
            if (j, k) not in flows:
                continue
            flow, _ = flows[j, k]
            if not flow:
                continue
            level = [f.var for f in flow.common].index(loop.var) if inside[j] and inside[k] else -1
            across = next((c for m in range(level + 1) if (c := flow.carried(m))), None) if level >= 0 else flow
            if inside[j] != inside[k] or (inside[k] and across is not None):
                told = order.told(across or flow, source, instance, (), touches[j].exact and touches[k].exact)
                return refusal(what, told, loop.location, "expand what one iteration uses alone")
            if touches[j].exact:  # else it may not have been written
                private.append(flow)
        known = all(form is not None for form in instance.access.subscript)
        if inside[k] and not (known and relations.covers(touches[k], private)):
            raise InapplicableTransform(
                f"{what}: an iteration of {loop.var} may read an element of {name} that it has not written",
                location=instance.access.location, remedy="write all that is read first",
            )  # fmt: skip
    return None


# ---------------------------------------------------------------- renaming


def rename(function: Function, name: str, loop: str | None = None) -> Proposal:
    """The reads of elements of an array that are overwritten only later, from a copy made before the loops."""
    what = f"renaming of {name}" + (f" in {loop}" if loop else "")
    if not any(a.name == name for a in function.arrays):
        raise InapplicableTransform(f"{what}: there is no array {name}", remedy="name an array of the function")
    wanted = find_loop(function, loop) if loop is not None else None
    for position, stmt in enumerate(function.body):
        if wanted is not None and not any(s is wanted for s in walk((stmt,))):
            continue
        renamed = old_values_kept(function, position, name) if bodies(stmt) else None
        if renamed is not None:
            why = f"what is read from the copy of {name} has not been written by then, and is overwritten only later"
            return Proposal(what, renamed, why)
    raise InapplicableTransform(
        f"{what}: no loop reads an element of {name} that surely still has its old value, and overwrites it later",
        evidence=["what an iteration reads may have been written by an earlier one, or nothing is overwritten"],
        remedy="rename arrays that a loop reads ahead of what it writes, as in a[i] = a[i + 1]",
    )
