"""What to write instead of a loop that must run in order. Each remedy, followed, changes the verdict; where there is none,
nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.loops.accesses import Access
from weft.loops.algebra.recurrences import definitions, dependents, expand
from weft.loops.dependences import Dependence, Program
from weft.loops.ir import Cast, Expr, For, Let, Load, Op, Ref, Round, free_names, walk, walk_expr
from weft.loops.schedule import Verdict
from weft.loops.show import element_text, show_expr


def for_memory(program: Program, loop: For, culprit: Dependence, read: Access | None, carried: Sequence[Dependence]) -> str:
    """For elements of an array that several iterations touch. read: the access that meets what was written, if one does.
    carried: all dependences between iterations of the loop.
    """
    name = culprit.name
    touches = (t.access for t in program.touched if t.access.array == name)
    inside = [a for a in touches if any(f.var == loop.var for f in a.loops)]
    lets = {s.name: s.value for s in walk(program.function.body) if isinstance(s, Let)}
    strangers = [expand(index, lets, set(lets)) for a in inside if a.write for index in _not_affine(a)]
    if any(isinstance(e, Load) for index in strangers for e in walk_expr(index)):
        return f"loop over the elements of {name} instead, and let each collect what belongs to it"
    alone = all(d.name == name and d.kind != "WAW" for d in carried)
    stencil = not culprit.exact or all(isinstance(x, int) for x in culprit.distance)  # else what it computes it needs
    if read is not None and alone and stencil and program.function.array(name).role == "inout":
        copied = element_text(read.array, read.index, read.location).replace(name, "old", 1)
        more = " and so on" if len({a.index for a in inside if not a.write}) > 1 else ""
        return (
            f"if it is meant to read what {name} held before the loop, read a copy: old = {name}.clone() before the "
            f"loop, {copied}{more} in it"
        )
    return ""


def _not_affine(access: Access) -> Iterator[Expr]:
    return (index for index, form in zip(access.index, access.subscript, strict=True) if form is None)


def for_updates(loop: For, names: Iterable[str]) -> str:
    """For carried scalars whose updates no algebra has."""
    lets = definitions(loop.body)
    for carry in loop.carries:
        if carry.name not in set(names):
            continue
        name = carry.name
        match expand(carry.next, lets, dependents(loop.body, name) & lets.keys()):
            case e if (rounding := next((x for x in walk_expr(e) if isinstance(x, Round)), None)) is not None:
                if rounding.to == carry.type:
                    return f"tell {name} by the number of the iteration (first + number * step), which needs no other one"
                return (
                    f"keep the running value in a name and store it: a name is not rounded ({rounding.to} only holds what "
                    f"is stored), and its updates may then combine in any grouping"
                )
            case Op(name="max" | "min" as op, args=(other, Ref(name=own))) if own == name and name not in free_names(other):
                return f"write {op}({name}, {show_expr(other)}): in this order it drops a NaN of {show_expr(other)}"
    return ""


def for_scan(loop: For, verdict: Verdict) -> str:
    """For a sum of exponentials, each relative to the largest so far: as written its value depends on the order."""
    lets = definitions(loop.body)
    algebras = {u.name: u.algebra for u in verdict.updates}
    for top in (name for name, algebra in algebras.items() if algebra in ("max", "maximum", "fmax")):
        running = dependents(loop.body, top)
        for carry in loop.carries:
            if algebras.get(carry.name) == "sum" and any(_relative(e, running) for e in _through(carry.next, lets)):
                total = carry.name
                return (
                    f"rescale {total} when {top} grows, or its terms are relative to different maxima: {total} = {total} * "
                    f"exp(old - new) + ..., old and new being {top} before and after its update"
                )
    return ""


def _through(expr: Expr, lets: dict[str, Expr]) -> Iterator[Expr]:
    """An expression and those of the Lets that it reads."""
    seen: set[str] = set()
    waiting = [expr]
    while waiting:
        for e in walk_expr(waiting.pop()):
            yield e
            if isinstance(e, Ref) and e.name in lets and e.name not in seen and not _is_maximum(lets[e.name]):
                seen.add(e.name)
                waiting.append(lets[e.name])


def _is_maximum(expr: Expr) -> bool:
    return isinstance(expr, Op) and expr.name in ("max", "maximum", "fmax")


def _relative(expr: Expr, running: set[str]) -> bool:
    """exp(x - m) of a running maximum m."""
    match expr:
        case Op(name="exp", args=(Cast(value=Op(name="sub", args=(_, Ref(name=name)))),)) if name in running:
            return True
        case Op(name="exp", args=(Op(name="sub", args=(_, Ref(name=name))),)) if name in running:
            return True
    return False
