"""Why a loop must run in order, as people can check it: the dependence in its way, two iterations, and what to do about it.

The analysis of a call only needs to know that a loop is sequential; this is asked for by `weft.analyze` and explanations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from weft.loops.accesses import Access
from weft.loops.dependences import Dependence, Program, Statement, Touched
from weft.loops.graph import graph_of
from weft.loops.ir import For, Function, walk
from weft.loops.polyhedra import Relations, Witness
from weft.loops.remedies import for_memory, for_scan, for_updates
from weft.loops.schedule import Evidence, EvidenceKind, Schedule, Verdict
from weft.loops.show import element_text, renamed, user_names

_KINDS: Mapping[str, EvidenceKind] = {"flow": "RAW", "RAW": "RAW", "WAR": "WAR", "WAW": "WAW"}
_ORDER = ("flow", "RAW", "WAR", "WAW")
_SINK = {"RAW": "reads", "WAR": "writes", "WAW": "writes"}
_SOURCE = {"RAW": ("wrote", "written"), "WAR": ("read", "read"), "WAW": ("wrote", "written")}


def with_evidence(found: Schedule, function: Function) -> Schedule:
    """The schedule, the verdicts of its function's loops with evidence and remedies. function: as it was written."""
    if all(v.kind == "parallel" for v in found.loops):
        return found
    loops = {s.var: s for nest in found.nests for s in nest.loops()}
    shown = user_names(found.function)
    # what a guard excludes is no evidence
    program = Program.of(replace(function, assumption=found.function.assumption))
    written = {s.var: s for s in walk(program.function.body) if isinstance(s, For)}
    dependences: tuple[Dependence, ...] | None = None
    judged = []
    for verdict in found.loops:
        loop = loops.get(verdict.var)
        if verdict.kind == "sequential" and verdict.var in written:
            dependences = program.dependences() if dependences is None else dependences
            judged.append(_explained(verdict, found.function, written[verdict.var], loop, program, dependences))
        elif verdict.kind == "scan" and loop is not None:
            judged.append(replace(verdict, remedy=renamed(for_scan(loop, verdict), shown)))
        else:
            judged.append(verdict)
    return replace(found, loops=tuple(judged))


def _explained(
    verdict: Verdict, function: Function, written: For, loop: For | None, program: Program, every: Sequence[Dependence]
) -> Verdict:
    """A sequential verdict with its evidence. written, loop: the loop as it was written, and as it is judged."""
    shown = user_names(function)
    reason = renamed(verdict.why, shown)
    in_memory = bool(verdict.cycle) and any(a.name == verdict.cycle[0] for a in function.arrays)
    carried = [d for d in every if _moves(d, written.var)]
    names = [shown(n) for n in verdict.cycle]
    culprit = _culprit(carried, written.var, names, None if in_memory else _on_cycles(program, every, written.var))
    if culprit is None:
        return replace(verdict, why=reason)
    met = _meeting(culprit, program)
    evidence = Evidence(
        _KINDS[culprit.kind], culprit.name, culprit.source, culprit.sink, culprit.loops, culprit.distance, met[2], culprit.exact
    )
    sentence = _sentence(evidence, written, program, met[1])
    remedy = ""
    if loop is not None and not in_memory:
        remedy = renamed(for_updates(loop, verdict.cycle), shown)
    elif in_memory:
        remedy = for_memory(program, written, culprit, met[1] if culprit.kind == "flow" else None, carried)
    why = f"{reason}; {sentence}" if reason and not in_memory and culprit.name in names else sentence
    return replace(verdict, why=why, remedy=remedy, evidence=evidence)


def _moves(dependence: Dependence, var: str) -> bool:
    """Whether a dependence is between different iterations of a loop."""
    return var in dependence.loops and dependence.distance[dependence.loops.index(var)] != 0


def _on_cycles(program: Program, every: Iterable[Dependence], var: str) -> set[tuple[str, str]]:
    """The pairs of statements on a cycle of flows in one run of a loop: there an iteration waits for the one before."""

    def inside(d: Dependence) -> bool:
        return d.kind == "flow" and (var not in d.loops or all(x == 0 for x in d.distance[: d.loops.index(var)]))

    graph = graph_of(program.function.name, program.statements, filter(inside, every))
    return {(a, b) for cycle in graph.cycles for a in cycle for b in cycle}


def _culprit(
    carried: Iterable[Dependence], var: str, names: Sequence[str], cycles: Set[tuple[str, str]] | None
) -> Dependence | None:
    """The dependence that says most plainly why a loop must run in order: of those that the loop itself carries one of what
    the analysis names, a sure one, a flow rather than a reuse of storage; with cycles, before all one on a cycle.
    """

    def rank(d: Dependence) -> tuple[bool, bool, bool, bool, int, bool]:
        aside = cycles is not None and not (d.kind == "flow" and (d.source, d.sink) in cycles)
        inner = any(x != 0 for x in d.distance[d.loops.index(var) + 1 :])
        return d.carrier != var, aside, d.name not in names, not d.exact, _ORDER.index(d.kind), inner

    return min((d for d in carried if d.kind != "RAW"), key=rank, default=None)


def _meeting(dependence: Dependence, program: Program) -> tuple[Access | None, Access | None, Witness | None]:
    """The two accesses of a dependence that meet, and iterations in which they do, or may. A scalar has no accesses."""
    places = [t for t in program.touched if t.access.array == dependence.name]
    writes = {"flow": (True, False), "RAW": (True, False), "WAR": (False, True), "WAW": (True, True)}[dependence.kind]
    sources = [t for t in places if t.label == dependence.source and t.access.write == writes[0]]
    sinks = [t for t in places if t.label == dependence.sink and t.access.write == writes[1]]
    if not places:
        return None, None, dependence.example or _apart(dependence, program)
    met = _met(dependence, program, sources, sinks)
    if dependence.example is None:
        return met
    for a in sources:  # the pair of accesses that touch one element in the iterations of the example
        for b in sinks:
            first, second = _element(a.access, dependence.example, False), _element(b.access, dependence.example, True)
            if first is not None and first == second:
                return a.access, b.access, dependence.example
    return met[0], met[1], dependence.example


def _met(
    dependence: Dependence, program: Program, sources: Sequence[Touched], sinks: Sequence[Touched]
) -> tuple[Access | None, Access | None, Witness | None]:
    """The first two accesses that may meet at the distance of a dependence, and iterations in which they would."""
    relations = Relations(program.function)
    for a in sources:
        for b in sinks:
            met = relations.meetings(relations.touch(a.access, a.time), relations.touch(b.access, b.time))
            level = None if dependence.carrier is None else dependence.loops.index(dependence.carrier)
            apart = met.carried(level)
            if apart:
                return a.access, b.access, apart.witness()
    return None, None, None


def _apart(dependence: Dependence, program: Program) -> Witness | None:
    """Iterations of two statements at the distance of a dependence, in which a scalar may be the one's for the other."""
    relations = Relations(program.function)
    homes = (relations.touch(program.homes[label], ()) for label in (dependence.source, dependence.sink))
    pairs = relations.meetings(*homes).apart([d if isinstance(d, int) or d == "<" else "*" for d in dependence.distance])
    return pairs.witness() if pairs else None


def _element(access: Access, witness: Witness, sink: bool) -> tuple[int, ...] | None:
    """The element that an affine access touches in an iteration of a witness."""
    values = dict((*witness.sizes, *(witness.second if sink else witness.first)))
    out = []
    for form in access.subscript:
        if form is None or not form.names <= values.keys():
            return None
        out.append(form.constant + sum(c * values[n] for n, c in form.terms))
    return tuple(out)


# ---------------------------------------------------------------- words


def _sentence(evidence: Evidence, loop: For, program: Program, access: Access | None) -> str:
    """`S2 (line 4) reads a[i - 1], which S1 (line 3) wrote an iteration before: RAW at distance (1), e.g. ...`."""
    statements = {s.label: s for s in program.statements}
    what = evidence.name if access is None else element_text(access.array, access.index, access.location)
    simple, perfect = _SOURCE[evidence.kind]
    did = simple if evidence.sure else f"may have {perfect}"
    who = "it" if evidence.source == evidence.sink else statement_at(statements[evidence.source])
    vector = ", ".join(map(str, evidence.distance))
    unsure = "" if evidence.sure or access is None else ", if that is the same element"
    return (
        f"{statement_at(statements[evidence.sink])} {_SINK[evidence.kind]} {what}, which {who} {did} "
        f"{_before(evidence, loop)}: {evidence.kind} at distance ({vector}){example(evidence.witness)}{unsure}"
    )


def statement_at(statement: Statement) -> str:
    """`S2 (line 4)`."""
    return f"{statement.label} (line {statement.location.line})" if statement.location is not None else statement.label


def _before(evidence: Evidence, loop: For) -> str:
    distance = evidence.distance[evidence.loops.index(loop.var)]
    if not isinstance(distance, int) or distance < 0:
        return "in an earlier iteration"
    count = distance // abs(loop.step)
    return "an iteration before" if count == 1 else f"{count} iterations before"


def example(witness: Witness | None) -> str:
    """`, e.g. (i = 1) then (i = 2) with n = 3`."""
    if witness is None:
        return ""

    def text(values: Iterable[tuple[str, int]]) -> str:
        return ", ".join(f"{n} = {v}" for n, v in values)

    sizes = f" with {text(witness.sizes)}" if witness.sizes else ""
    return f", e.g. ({text(witness.first)}) then ({text(witness.second)}){sizes}"
