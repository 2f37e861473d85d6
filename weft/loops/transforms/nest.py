"""Finding, taking apart and putting together the loops that a transform names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.errors import IllegalTransform, InapplicableTransform, Location
from weft.loops.ir import (
    Array,
    Carry,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Ref,
    Stmt,
    Store,
    bodies,
    free_names,
    map_statement,
    statement_exprs,
    substitute,
    walk,
    walk_expr,
)
from weft.loops.names import Names, names_bound_in
from weft.loops.show import show_expr
from weft.loops.transforms.order import NotAffine, Order, Retime, Violation
from weft.loops.types import INT64
from weft.loops.variables import variables


@dataclass(frozen=True)
class Proposal:
    """What a transform gives. why: why it changes no result, one sentence; refusal: the error where it may change one."""

    transform: str
    function: Function
    why: str
    refusal: IllegalTransform | None = None


# ---------------------------------------------------------------- finding


def loops_of(function: Function) -> Iterator[For]:
    return (s for s in walk(function.body) if isinstance(s, For))


def find_loop(function: Function, var: str) -> For:
    """The loop of a variable. Raises InapplicableTransform where there is none."""
    for loop in loops_of(function):
        if loop.var == var:
            return loop
    known = ", ".join(loop.var for loop in loops_of(function)) or "none"
    raise InapplicableTransform(
        f"{function.name} has no loop over {var}",
        evidence=[f"its loops are over {known}"],
        remedy="print the schedule and name one of its loops",
    )


def around(function: Function, inner: Stmt) -> tuple[For, ...]:
    """The loops around a statement, outermost first."""

    def search(statements: tuple[Stmt, ...], loops: tuple[For, ...]) -> tuple[For, ...] | None:
        for s in statements:
            if s is inner:
                return loops
            inside = (*loops, s) if isinstance(s, For) else loops
            for body in bodies(s):
                found = search(body, inside)
                if found is not None:
                    return found
        return None

    found = search(function.body, ())
    assert found is not None
    return found


def replaced(function: Function, old: Stmt, new: Sequence[Stmt]) -> Function:
    """The function with some statements in the place of one."""

    def block(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(x for s in statements for x in (new if s is old else (inside(s),)))

    def inside(s: Stmt) -> Stmt:
        if not any(x is old for body in bodies(s) for x in walk(body)):
            return s
        return map_statement(s, lambda e: e, block)

    return replace(function, body=block(function.body))


def siblings(function: Function, stmt: Stmt) -> tuple[Stmt, ...]:
    """The block in which a statement is."""

    def search(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...] | None:
        if any(s is stmt for s in statements):
            return statements
        return next((found for s in statements for body in bodies(s) if (found := search(body)) is not None), None)

    found = search(function.body)
    assert found is not None
    return found


def stored_in(statements: Sequence[Stmt]) -> set[str]:
    return {s.array for s in walk(tuple(statements)) if isinstance(s, Store)}


def loaded_by(*exprs: Expr) -> set[str]:
    return {e.array for top in exprs for e in walk_expr(top) if isinstance(e, Load)}


# ---------------------------------------------------------------- bands


@dataclass(frozen=True)
class Header:
    """A loop without its body."""

    var: str
    start: Expr
    stop: Expr
    step: int
    location: Location | None = None

    @staticmethod
    def of(loop: For) -> Header:
        return Header(loop.var, loop.start, loop.stop, loop.step, loop.location)


@dataclass(frozen=True)
class Chain:
    """A scalar that all loops of a band carry: its value before them, in the body, at the body's end and after them.

    outer: its name in the outermost loop.
    """

    outer: str
    init: Expr
    name: str
    next: Expr
    result: str


@dataclass(frozen=True)
class Band:
    """Loops that are each the whole body of the one around it, but for values that their bounds do not need."""

    loops: tuple[For, ...]
    chains: tuple[Chain, ...]
    body: tuple[Stmt, ...]

    @property
    def headers(self) -> tuple[Header, ...]:
        return tuple(map(Header.of, self.loops))

    @property
    def vars(self) -> tuple[str, ...]:
        return tuple(loop.var for loop in self.loops)

    def nested(self, headers: Sequence[Header], names: Names) -> For:
        """The body in other loops, which carry the same scalars."""
        last = len(headers) - 1
        names.taken -= {n for loop in self.loops for c in loop.carries for n in (c.name, c.result)}
        names.taken |= {n for c in self.chains for n in (c.name, c.result)}
        inside = [[names.fresh(c.outer) if k < last else c.name for c in self.chains] for k in range(len(headers))]
        after = [[names.fresh(c.result) if k > 0 else c.result for c in self.chains] for k in range(len(headers))]
        nest = self.body
        for k in range(last, -1, -1):
            carries = tuple(
                Carry(
                    inside[k][m],
                    chain.init if k == 0 else Ref(inside[k - 1][m], chain.init.type),
                    chain.next if k == last else Ref(after[k + 1][m], chain.init.type),
                    after[k][m],
                )
                for m, chain in enumerate(self.chains)
            )
            h = headers[k]
            nest = (For(h.var, h.start, h.stop, h.step, carries, nest, location=h.location),)
        (loop,) = nest
        assert isinstance(loop, For)
        return loop


def band(function: Function, over: Sequence[str], what: str) -> Band:
    """The loops of these variables, outermost first, as a band. Raises InapplicableTransform where they are none."""
    loops = [find_loop(function, var) for var in over]
    lets: list[Stmt] = []
    chains = [Chain(c.name, c.init, c.name, c.next, c.result) for c in loops[0].carries]
    for outer, inner in zip(loops, loops[1:], strict=False):
        *before, last = outer.body or (outer,)
        if last is not inner or not all(isinstance(s, Let) for s in before):
            apart = "" if any(s is inner for s in walk(outer.body)) else f"; {inner.var} is not inside {outer.var}"
            raise InapplicableTransform(
                f"{what}: the loop over {inner.var} is not all of the body of the loop over {outer.var}",
                location=outer.location,
                evidence=[f"the loop over {outer.var} also holds {_listed(outer, inner)}{apart}"],
                remedy=f'distribute the loop over {outer.var} first, or expand what it computes: .distribute("{outer.var}")',
            )
        bound = names_bound_in(before)
        uses = [inner.start, inner.stop, *(c.init for c in inner.carries)]
        if any(free_names(e) & bound for e in uses):
            raise InapplicableTransform(
                f"{what}: the loop over {inner.var} depends on what the loop over {outer.var} computes for it",
                location=inner.location,
                evidence=[
                    f"{', '.join(sorted({n for e in uses for n in free_names(e)} & bound))} is made in each of its iterations"
                ],
                remedy="write the expression into the bounds",
            )
        lets += before
        inits = {c.init.name: c for c in inner.carries if isinstance(c.init, Ref)}
        linked = []
        for chain, carry in zip(chains, outer.carries, strict=True):
            own = inits.get(carry.name)
            if own is None or carry.next != Ref(own.result, carry.type):
                break
            linked.append(Chain(chain.outer, chain.init, own.name, own.next, chain.result))
        if len(linked) != len(outer.carries) or len(linked) != len(inner.carries):
            names = ", ".join(c.name for c in (*outer.carries, *inner.carries))
            raise InapplicableTransform(
                f"{what}: the loops over {outer.var} and {inner.var} do not carry the same scalars",
                location=inner.location,
                evidence=[f"they carry {names}"],
                remedy="expand the scalar into an array first",
            )
        chains = linked
        held = {c.name for c in outer.carries}
        inside = [e for s in walk((*before, *inner.body)) for e in statement_exprs(s)]
        inside += [inner.start, inner.stop, *(c.next for c in inner.carries)]
        used = sorted({n for e in inside for n in free_names(e)} & held)
        if used:
            raise InapplicableTransform(
                f"{what}: the loop over {inner.var} uses what {variables(function)[used[0]]} was before it",
                location=inner.location, remedy="keep that value in an array",
            )  # fmt: skip
    stored = stored_in(loops[0].body)
    reads = {a for s in lets for e in statement_exprs(s) for a in loaded_by(e)}
    reads |= {a for loop in loops for a in loaded_by(loop.start, loop.stop)}
    if reads & stored:
        raise InapplicableTransform(
            f"{what}: what is read between the loops is stored inside them",
            location=loops[0].location,
            evidence=[f"both read and store {', '.join(sorted(reads & stored))}"],
            remedy="hoist it, or write it into the statements that use it",
        )
    return Band(tuple(loops), tuple(chains), (*lets, *loops[-1].body))


def _listed(outer: For, inner: For) -> str:
    others = [s for s in outer.body if not any(x is inner for x in walk((s,)))]
    texts = []
    for s in others[:3]:
        match s:
            case Store():
                texts.append(f"{s.array}[{', '.join(map(show_expr, s.index))}] = ...")
            case Let():
                texts.append(f"{s.name} = ...")
            case For():
                texts.append(f"a loop over {s.var}")
            case _:
                texts.append("an if")
    return ", ".join(texts) or "other statements"


def fresh_arrays_move(function: Function, old: tuple[str, ...], new: tuple[str, ...], what: str) -> tuple[Array, ...]:
    """The arrays of a function whose loops `old`, a band, became the loops `new` (outermost first). Raises
    InapplicableTransform where an array is fresh in the iterations of some of them alone.
    """
    arrays = []
    for array in function.arrays:
        inside = [v for v in array.within if v in old]
        if inside and len(inside) != len(old):
            raise InapplicableTransform(
                f"{what}: {array.name} is made in each iteration of {inside[-1]}, around the loop over {old[len(inside)]}",
                location=array.location,
                remedy=f'expand it first: .expand("{array.name}", "{inside[-1]}")',
            )
        if inside:
            at = array.within.index(inside[0])
            within = (*array.within[:at], *new, *array.within[at + len(inside) :])
            array = replace(array, within=within)
        arrays.append(array)
    return tuple(arrays)


# ---------------------------------------------------------------- verdicts


def refusal(what: str, violation: Violation | None, location: Location | None, remedy: str = "") -> IllegalTransform | None:
    """The error for a dependence that a transform would reverse."""
    if violation is None:
        return None
    problem = "may change a result" if not violation.exact else "would change a result"
    error = IllegalTransform(f"{what} {problem}", location=location, evidence=violation.evidence(), remedy=remedy)
    error.violation = violation
    return error


def checked(order: Order, retime: Retime, what: str, location: Location | None, strict: bool = False) -> Violation | None:
    """The dependence that a new order reverses. Raises InapplicableTransform where the new order is not affine."""
    try:
        return order.violation(retime, strict)
    except NotAffine:
        raise InapplicableTransform(
            f"{what}: the bounds of the loops are not affine",
            location=location,
            evidence=["isl cannot be told the new order of the iterations"],
            remedy="take the bounds from sizes and integer arguments",
        ) from None


def sentence(order: Order, inside: Sequence[Stmt], legal: str, retime: Retime | None = None) -> str:
    """Why a transform of some loops is legal: what the dependences through the places they share do, and which updates
    the new order, if it is given, takes in another order.
    """
    names = variables(order.function)
    arrays, bound = stored_in(inside), names_bound_in(inside)
    bound |= {i.place for i in order.instances if i.scalar and i.carry in bound}
    places = {i.place for i in order.instances if i.place in (bound if i.scalar else arrays)}
    loosened = order.loosened(retime) if retime is not None else {}
    told = ", ".join(sorted({names[p] for p in places} - set(loosened.values())))
    text = f"the dependences through {told} {legal}" if told else "no iteration touches what another one writes"
    if not loosened:
        return text
    any_order = f"{' and '.join(loosened)} may be taken in any order"
    return f"{any_order}; {text}" if told else any_order


def renamed_copy(statements: tuple[Stmt, ...], names: Names) -> tuple[tuple[Stmt, ...], dict[str, Expr]]:
    """Statements with names of their own for all that they bind, and what the old names became."""
    types: dict[str, Expr] = {}
    bound: dict[str, str] = {}

    def note(name: str, type_: object) -> None:
        bound[name] = names.fresh(name)
        types[name] = Ref(bound[name], type_)  # type: ignore[arg-type]

    for s in walk(statements):
        match s:
            case Let(name=name, value=value):
                note(name, value.type)
            case For(var=var, carries=carries):
                note(var, INT64)
                for c in carries:
                    note(c.name, c.type)
                    note(c.result, c.type)
            case If(merges=merges):
                for m in merges:
                    note(m.name, m.type)

    def expr(e: Expr) -> Expr:
        return substitute(e, types)

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(one, body))

    def one(s: Stmt) -> Stmt:
        match s:
            case Let():
                return replace(s, name=bound[s.name], value=expr(s.value))
            case Store():
                return replace(s, index=tuple(map(expr, s.index)), value=expr(s.value))
            case For():
                carries = tuple(Carry(bound[c.name], expr(c.init), expr(c.next), bound[c.result]) for c in s.carries)
                return replace(s, var=bound[s.var], start=expr(s.start), stop=expr(s.stop), carries=carries, body=block(s.body))
            case _:
                merges = tuple(replace(m, name=bound[m.name], then=expr(m.then), orelse=expr(m.orelse)) for m in s.merges)
                return replace(s, condition=expr(s.condition), then=block(s.then), orelse=block(s.orelse), merges=merges)

    return block(statements), types
