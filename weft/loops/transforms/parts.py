"""Transforms that join loops or take them apart: fusion, distribution, peeling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from weft.errors import InapplicableTransform
from weft.loops.affine import affine
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Merge,
    Op,
    Ref,
    Stmt,
    Store,
    bound_names,
    free_names,
    has_load,
    map_statement,
    rewrite,
    statement_exprs,
    substitute,
    substitute_statements,
    walk,
)
from weft.loops.names import Names
from weft.loops.normalize import simplify
from weft.loops.show import show_expr
from weft.loops.transforms.nest import (
    Header,
    Proposal,
    around,
    checked,
    find_loop,
    loaded_by,
    refusal,
    renamed_copy,
    replaced,
    sentence,
    siblings,
    stored_in,
)
from weft.loops.transforms.order import Instance, Order, Retime, Time
from weft.loops.transforms.reorder import last_value, same_range
from weft.loops.types import BOOL, INT64
from weft.loops.variables import variables


def needs(statements: Sequence[Stmt]) -> set[str]:
    """The names that statements use, those that they bind included."""
    return {n for s in walk(tuple(statements)) for e in statement_exprs(s) for n in free_names(e)}


# ---------------------------------------------------------------- fusion


def fuse(function: Function, first: str, second: str) -> Proposal:
    """One loop over the variable of the first of two neighbours, its body that of the first and then that of the second."""
    what = f"fusion of {first} and {second}"
    a, b = find_loop(function, first), find_loop(function, second)
    block = siblings(function, a)
    at = next(k for k, s in enumerate(block) if s is a)
    after = next((k for k, s in enumerate(block) if s is b), None)
    if after is None or after < at or a is b:
        raise InapplicableTransform(
            f"{what}: the loop over {second} does not follow the one over {first} in the same body",
            location=b.location, remedy="name two loops next to each other, the first one first",
        )  # fmt: skip
    between = block[at + 1 : after]
    moved = needs(between) & set(bound_names(a)) or {
        x for s in between for e in statement_exprs(s) for x in loaded_by(e)
    } & stored_in((a,))
    if moved or not all(isinstance(s, Let) for s in between):
        raise InapplicableTransform(
            f"{what}: there are statements between the two that cannot be moved before them", location=b.location,
            remedy="distribute them to another place, or fuse with them",
        )  # fmt: skip
    if not same_range(a, b):
        ranges = [f"{s.var} runs over range({show_expr(s.start)}, {show_expr(s.stop)}, {s.step})" for s in (a, b)]
        raise InapplicableTransform(
            f"{what}: the two do not run over the same range",
            location=b.location, evidence=ranges, remedy="peel the iterations that only one of them has: .peel(loop, first=1)",
        )  # fmt: skip
    tied = needs((b,)) & set(bound_names(a))
    if tied:
        names = variables(function)
        raise InapplicableTransform(
            f"{what}: the loop over {second} needs what {', '.join(sorted({names[n] for n in tied}))} is after the other one",
            location=b.location, remedy="leave the two loops apart",
        )  # fmt: skip
    order = Order.of(function)
    depth = len(around(function, a))
    entry, start, entered = Const(order.entry(a), INT64), Const(order.start(a), INT64), order.entry(b)

    def retime(instance: Instance) -> Time | None:
        loops = [loop.var for loop in instance.access.loops]
        if b.var in loops:
            return (*instance.time[: 2 * depth], entry, *instance.time[2 * depth + 1 :])
        here = instance.time[2 * depth] if len(instance.time) > 2 * depth else None
        if isinstance(here, Const) and order.start(b) < here.value < entered and len(loops) == depth:
            return (*instance.time[: 2 * depth], start, *instance.time[2 * depth + 1 :])  # its bounds and initial values
        return None

    violation = checked(order, retime, what, b.location)
    var: dict[str, Expr] = {b.var: Ref(a.var, INT64)}
    carries = tuple(replace(c, next=substitute(c.next, var)) for c in b.carries)
    joined = replace(a, carries=(*a.carries, *carries), body=(*a.body, *substitute_statements(b.body, var)))
    made = replaced(function, b, ())
    for let in between:
        made = replaced(made, let, ())
    made = replaced(made, a, (*between, joined))
    arrays = tuple(replace(x, within=tuple(a.var if v == b.var else v for v in x.within)) for x in made.arrays)
    remedy = ""
    if violation is not None and violation.after and isinstance(violation.after[-1], int) and violation.after[-1] < 0:
        remedy = f"leave them apart: an iteration of {second} needs one of {first} that is {-violation.after[-1]} later"
    why = sentence(order, (a, b), f"lead from no iteration of {first} to an earlier one of {second}")
    return Proposal(what, replace(made, arrays=arrays), why, refusal(what, violation, b.location, remedy))


# ---------------------------------------------------------------- distribution


def distribute(function: Function, var: str, at: str | None = None) -> Proposal:
    """Several loops in the place of one, each with a part of its body, in the order of the text. at: the label of the
    statement that the second loop starts with; None: as many loops as is legal.
    """
    what = f"distribution of {var}" + (f" at {at}" if at else "")
    loop = find_loop(function, var)
    order = Order.of(function)
    if any(has_load(c.next) for c in loop.carries):
        raise InapplicableTransform(f"{what}: what it carries is read from an array at its end", location=loop.location)
    # a part is more than scalars
    places = [k for k, s in enumerate(loop.body) if not isinstance(s, Let)][1:]
    if at is not None:
        chosen = [k for k, s in enumerate(loop.body) if any(order.label(x) == at for x in walk((s,)))]
        if not chosen or chosen[0] == 0:
            known = ", ".join(s.label for s in order.program.statements if var in s.loops)
            raise InapplicableTransform(
                f"{what}: {at} is not a statement of the loop over {var} with another one before it", location=loop.location,
                evidence=[f"its statements are {known}"], remedy="name the statement that the second loop shall start with",
            )  # fmt: skip
        made, split = _split(function, loop, chosen, what)
        violation = checked(order, _apart(function, loop, order, chosen, split), what, loop.location)
        why = sentence(order, (loop,), f"lead from no statement from {at} on to one before it")
        remedy = "let the statements that depend on each other stay in one loop" if violation else ""
        return Proposal(what, made, why, refusal(what, violation, loop.location, remedy))
    legal: list[int] = []
    last_error: InapplicableTransform | None = None
    for k in places:
        try:
            _, split = _split(function, loop, [k], what)
            if checked(order, _apart(function, loop, order, [k], split), what, loop.location) is None:
                _split(function, loop, [*legal, k], what)
                legal.append(k)
        except InapplicableTransform as error:
            last_error = error
    if not legal:
        if last_error is not None:
            raise last_error
        first = next((k for k in places), None)
        if first is None:
            raise InapplicableTransform(f"{what}: it holds one statement", location=loop.location, remedy="name another loop")
        made, split = _split(function, loop, [first], what)
        violation = checked(order, _apart(function, loop, order, [first], split), what, loop.location)
        return Proposal(
            what, made, "", refusal(what, violation, loop.location, "its statements depend on each other: leave them together")
        )
    made, _ = _split(function, loop, legal, what)
    return Proposal(what, made, sentence(order, (loop,), "lead from no part to an earlier one"))


def _apart(function: Function, loop: For, order: Order, places: Sequence[int], split: dict[str, int]) -> Retime:
    """The times after a distribution: which part of the body it is, then the iteration. split: the part of each carry."""
    depth = len(around(function, loop))
    starts = [order.start(loop.body[k]) for k in places]

    def retime(instance: Instance) -> Time | None:
        if not any(f.var == loop.var for f in instance.access.loops):
            return None
        here = instance.time[2 * depth + 2]
        assert isinstance(here, Const)
        part = sum(here.value > s for s in starts)
        if instance.carry in split:
            part = split[instance.carry]
        return (*instance.time[: 2 * depth + 1], Const(part, INT64), *instance.time[2 * depth + 1 :])

    return retime


def _split(function: Function, loop: For, places: Sequence[int], what: str) -> tuple[Function, dict[str, int]]:
    """The loop as several, the second and the others starting with the statements at these places; the part of each carry."""
    ends = [*places, len(loop.body)]
    starts = [0, *places]
    parts = [loop.body[i:j] for i, j in zip(starts, ends, strict=True)]
    made_in = {n: k for k, part in enumerate(parts) for s in part for n in bound_names(s)}
    lets = {s.name: s for s in loop.body if isinstance(s, Let)}
    carried = {c.name: c for c in loop.carries}
    shown = variables(function)
    used_in: dict[str, set[int]] = {c.name: set() for c in loop.carries}
    repeated: list[list[Let]] = [[] for _ in parts]

    def need(part: int, names: set[str]) -> None:
        """What a part needs of other parts."""
        for name in sorted(names):
            if name in carried:
                used_in[name].add(part)
            elif name in made_in and made_in[name] != part:
                let = lets.get(name)
                if let is None or has_load(let.value):
                    raise InapplicableTransform(
                        f"{what}: {shown[name]} is made in one part and used in another", location=loop.location,
                        evidence=["each part has a loop of its own, and a scalar holds the value of one iteration"],
                        remedy=f'keep its values in an array: .expand("{shown[name]}", "{loop.var}")',
                    )  # fmt: skip
                if let not in repeated[part]:
                    need(part, set(free_names(let.value)))
                    repeated[part].append(let)

    for k, part in enumerate(parts):
        need(k, needs(part) - {n for s in part for n in bound_names(s)})
        need(k, {n for n in needs(part) if n in carried})
    split: dict[str, int] = {}
    for c in loop.carries:
        own = used_in[c.name] | {made_in[n] for n in free_names(c.next) if n in made_in}
        own |= {
            k
            for o in loop.carries
            if c.name in free_names(o.next)
            for k in {made_in[n] for n in free_names(o.next) if n in made_in}
        }
        if len(own) > 1:
            raise InapplicableTransform(
                f"{what}: {shown[c.name]} is carried from one part to another", location=loop.location,
                remedy="keep the statements that use it in one loop",
            )  # fmt: skip
        split[c.name] = next(iter(own), 0)
    for c in loop.carries:
        if {split[n] for n in free_names(c.next) if n in split} - {split[c.name]}:
            raise InapplicableTransform(
                f"{what}: {shown[c.name]} needs a scalar that another part carries", location=loop.location
            )
    again = loaded_by(loop.start, loop.stop, *(c.init for c in loop.carries if split[c.name] > 0))
    if again & stored_in(loop.body):
        raise InapplicableTransform(
            f"{what}: its bounds or initial values read {', '.join(sorted(again & stored_in(loop.body)))}, which it stores",
            location=loop.location,
            remedy="read them into a scalar before the loop",
        )  # fmt: skip
    touched = [{*stored_in(part), *(a for s in walk(part) for e in statement_exprs(s) for a in loaded_by(e))} for part in parts]
    within: dict[str, str] = {}
    names = Names.of(function)
    loops: list[Stmt] = []
    for k, part in enumerate(parts):
        var = loop.var if k == 0 else names.fresh(loop.var)
        new: dict[str, Expr] = {loop.var: Ref(var, INT64)} if k else {}
        body: list[Stmt] = []
        for let in repeated[k]:
            own_name = names.fresh(let.name)
            body.append(Let(own_name, substitute(let.value, new), let.location))
            new[let.name] = Ref(own_name, let.value.type)
        body += substitute_statements(part, new)
        carries = tuple(replace(c, next=substitute(c.next, new)) for c in loop.carries if split[c.name] == k)
        loops.append(replace(loop, var=var, carries=carries, body=tuple(body)))
        for array in function.arrays:
            if loop.var in array.within and array.name in touched[k]:
                if any(array.name in t for m, t in enumerate(touched) if m != k):
                    raise InapplicableTransform(
                        f"{what}: {array.name} is made in each iteration of {loop.var} and used in two parts",
                        location=array.location,
                        remedy=f'keep them all: .expand("{array.name}", "{loop.var}")',
                    )  # fmt: skip
                within[array.name] = var
    arrays = tuple(
        replace(a, within=tuple(within.get(a.name, v) if v == loop.var else v for v in a.within)) for a in function.arrays
    )
    return replace(replaced(function, loop, loops), arrays=arrays), split


# ---------------------------------------------------------------- peeling


def peel(function: Function, var: str, first: int = 0, last: int = 0) -> Proposal:
    """The first, or the last, iterations of a loop by themselves, each under the condition that there is one."""
    what = f"peeling of the {'first' if first else 'last'} {first or last} of {var}"
    if (first > 0) == (last > 0) or min(first, last) < 0:
        raise InapplicableTransform(
            f"peeling of {var}: {first} first and {last} last iterations", remedy="pass first=n or last=n"
        )
    loop = find_loop(function, var)
    names = Names.of(function)
    before: list[Stmt] = []

    def steady(e: Expr, base: str) -> Expr:
        if not has_load(e):
            return e
        name = names.fresh(base)
        before.append(Let(name, e, loop.location))
        return Ref(name, INT64)

    start, stop = steady(loop.start, f"{var}_start"), steady(loop.stop, f"{var}_stop")
    up = loop.step > 0
    made: list[Stmt] = []
    arrays = list(function.arrays)
    state: dict[str, Expr] = {c.name: c.init for c in loop.carries}

    def single(value: Expr, holds: Expr) -> None:
        """One iteration by itself."""
        copy, fresh, new = _iteration(loop, value, state, names, arrays)
        merges = []
        for c in loop.carries:
            end = substitute(substitute(c.next, fresh), {var: value, **state})
            merges.append(Merge(names.fresh(c.result), _in_arrays(end, new), state[c.name]))
        made.append(If(holds, copy, (), tuple(merges), loop.location))
        for c, m in zip(loop.carries, merges, strict=True):
            state[c.name] = Ref(m.name, c.type)

    def plus(e: Expr, amount: int) -> Expr:
        return simplify(Op("add", (e, Const(amount, INT64)), INT64))

    if first:
        for k in range(first):
            value = plus(start, k * loop.step)
            single(value, Op("lt" if up else "gt", (value, stop), BOOL))
        carries = tuple(replace(c, init=state[c.name]) for c in loop.carries)
        rest: list[Stmt] = [*made, replace(loop, start=plus(start, first * loop.step), stop=stop, carries=carries)]
    else:
        end = last_value(Header(var, start, stop, loop.step))
        main = replace(
            loop,
            start=start,
            stop=plus(end, -(last - 1) * loop.step),
            carries=tuple(replace(c, result=names.fresh(c.result)) for c in loop.carries),
        )
        state = {c.name: Ref(m.result, c.type) for c, m in zip(loop.carries, main.carries, strict=True)}
        for k in range(last):
            value = plus(end, -(last - 1 - k) * loop.step)
            single(value, Op("ge" if up else "le", (value, start), BOOL))
        rest = [main, *made, *(Let(c.result, state[c.name], loop.location) for c in loop.carries)]
    function = replace(replaced(function, loop, [*before, *rest]), arrays=tuple(arrays))
    return Proposal(what, function, f"the iterations of {var} happen in the same order")


def _iteration(
    loop: For, value: Expr, state: dict[str, Expr], names: Names, arrays: list[Array]
) -> tuple[tuple[Stmt, ...], dict[str, Expr], dict[str, str]]:
    """The body of a loop for one value of its variable, with names and arrays of its own; what names and arrays became."""
    copy, fresh = renamed_copy(loop.body, names)
    copy = substitute_statements(copy, {loop.var: value, **state})
    inner = {v: r.name for v, r in fresh.items() if isinstance(r, Ref)}
    new: dict[str, str] = {}
    for array in [a for a in arrays if loop.var in a.within]:
        new[array.name] = names.fresh(array.name)
        within = tuple(inner.get(v, v) for v in array.within if v != loop.var)
        arrays.append(replace(array, name=new[array.name], within=within))
    return tuple(_statement_in_arrays(_added_up(s), new) for s in copy), fresh, new


def _added_up(stmt: Stmt) -> Stmt:
    """A statement with its subscripts as plain sums."""

    def total(e: Expr) -> Expr:
        form = affine(e)
        return e if form is None else form.expr()

    def expr(e: Expr) -> Expr:
        return rewrite(e, lambda x: replace(x, index=tuple(map(total, x.index))) if isinstance(x, Load) else None)

    made = map_statement(stmt, expr, lambda b: tuple(map(_added_up, b)))
    return replace(made, index=tuple(map(total, made.index))) if isinstance(made, Store) else made


def _in_arrays(expr: Expr, new: dict[str, str]) -> Expr:
    return rewrite(expr, lambda e: replace(e, array=new[e.array]) if isinstance(e, Load) and e.array in new else None)


def _statement_in_arrays(stmt: Stmt, new: dict[str, str]) -> Stmt:
    made = map_statement(stmt, lambda e: _in_arrays(e, new), lambda b: tuple(_statement_in_arrays(s, new) for s in b))
    return replace(made, array=new[made.array]) if isinstance(made, Store) and made.array in new else made
