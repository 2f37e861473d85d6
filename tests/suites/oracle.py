"""What each loop of a program is, found by running it: no subscript is analysed, only executed.

A loop is judged from exact executions (`tests.suites.execute`) on small inputs. Every element and carried scalar is a cell;
a read flows from the statement that wrote the cell last. Flow between two iterations of one execution of the loop is
carried. The statements inside the loop with the flow (and control) between them form a graph, and

- no carried flow: the loop is "parallel". If iterations still share cells that one of them writes, it takes "renaming"
  (an iteration reads what was there before the loop, and a later one overwrites it), "privatisation" (each writes a cell
  before it reads it) or the "last value" (several write a cell that none of them reads);
- carried flow that is on no cycle: "parallel" after "distribution" over several loops;
- a cycle whose longest chain has one link (an iteration needs another, which needs none): "parallel" after "splitting";
- a cycle of scalars that take the same values on all inputs, a polynomial in the iteration: an "induction" variable;
- any other cycle is a state. Each iteration is executed again with the state disturbed: if what it does to the state is an
  affine map ("affine", or "sum" and "product" where it is one), or `min(max(state + a, low), high)` ("clamp"; "copy" and
  "select" where it is that), for independent parts of at most four cells, such maps compose and the loop is a "scan": a
  "reduction" if no one uses the state before the loop ends. A choice that a running extremum makes (argmax) is a part of
  that extremum, and using it so is no use.
- everything else is "sequential".

Limits. The oracle is exact on what it sees and knows nothing else: a dependence that no input shows is not there, and a
state map is called affine or a clamp by the points at which it was evaluated. Reassociation counts as free of rounding.
Chains are counted in iterations, not in elements: `a[i, j] = a[j, i]` over all i and j is a scan, though splitting it at the
diagonal makes it parallel.
Other laws (a quotient of affine maps, max-plus matrices, states of more than four cells) are "sequential" here though
algorithms for some exist. So are loops that only a change of the algorithm would make parallel. Loops are judged in the
order in which they are written: an outer loop that interchange or skewing would change is judged as it stands.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import permutations
from typing import Any, Literal

from tests.suites.case import Case
from tests.suites.execute import Cell, Machine, Node, Watch, control
from weft.language import infer_types, parse
from weft.loops.ir import For, Function, walk

Kind = Literal["parallel", "reduction", "scan", "sequential"]
KINDS: tuple[Kind, ...] = ("parallel", "reduction", "scan", "sequential")

_WIDEST = 4
_FEWEST_ITERATIONS = 4
_BIG = 10**7


@dataclass(frozen=True)
class Finding:
    """The class of a loop. needs: what it takes to run it so, or, for a sequential one, what stands in the way."""

    kind: Kind
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} ({', '.join(self.needs)})" if self.needs else self.kind


# ---------------------------------------------------------------- the trace of a loop


@dataclass
class _Version:
    """One value that a cell had: who wrote it, in which iteration, and the statements of later iterations that read it."""

    cell: Cell
    node: Node
    iteration: int
    readers: list[tuple[int, Node]] = field(default_factory=list)


@dataclass
class _Instance:
    """One execution of the loop: its versions, those that each iteration read from earlier ones, those left at its end."""

    versions: list[_Version] = field(default_factory=list)
    last: dict[Cell, _Version] = field(default_factory=dict)
    values: list[dict[str, Any]] = field(default_factory=list)
    trips: int = 0


class _Trace(Watch):
    def __init__(self, loop: For) -> None:
        self.loop = loop
        self.writers: dict[Cell, Node] = {}  # of every cell, as it is now
        self.everywhere: set[tuple[Node, Node]] = set()  # all flow of the program, this loop or not
        self.instances: list[_Instance] = []
        self.flow: set[tuple[Node, Node]] = set()
        self.carried: set[tuple[Node, Node]] = set()
        self.shared: dict[str, set[tuple[Node, Node]]] = {"renaming": set(), "privatisation": set(), "last value": set()}
        self.now: int | None = None
        self.readers: dict[Cell, tuple[int, Node]] = {}  # the first one since the last write, in its iteration

    def enter(self, machine: Machine) -> None:
        self.instances.append(_Instance())
        self.readers = {}

    def iteration(self, machine: Machine, k: int, body: Callable[[], None]) -> None:
        self.now = k
        self.instances[-1].values.append({c.name: machine.names[c.name] for c in self.loop.carries})
        self.instances[-1].trips += 1
        body()

    def leave(self, machine: Machine) -> None:
        self.now = None

    def read(self, cell: Cell, node: Node) -> None:
        if cell in self.writers:
            self.everywhere.add((self.writers[cell], node))
        if self.now is None:
            return
        version = self.instances[-1].last.get(cell)
        if version is not None:
            self.flow.add((version.node, node))
            if version.iteration != self.now:
                self.carried.add((version.node, node))
                version.readers.append((self.now, node))
        if cell[0] != "name":
            self.readers.setdefault(cell, (self.now, node))

    def write(self, cell: Cell, node: Node) -> None:
        self.writers[cell] = node
        if self.now is None:
            return
        instance = self.instances[-1]
        if cell[0] != "name":
            before = instance.last.get(cell)
            reader = self.readers.pop(cell, None)
            if reader is not None and reader[0] != self.now:
                own = before is not None and before.iteration == reader[0]
                self.shared["privatisation" if own else "renaming"].add((reader[1], node))
            elif before is not None and before.iteration != self.now:
                self.shared["last value"].add((before.node, node))
        version = _Version(cell, node, self.now)
        instance.last[cell] = version
        instance.versions.append(version)

    def forget(self, array: str) -> None:
        if self.now is not None:
            last = self.instances[-1].last
            for cell in [c for c in last if c[0] == array]:
                del last[cell]
            self.readers = {c: r for c, r in self.readers.items() if c[0] != array}


def _live_nodes(function: Function, traces: list[_Trace]) -> set[Node]:
    """What some array that outlives the call depends on: the rest computes for no one."""
    before: dict[Node, set[Node]] = defaultdict(set)
    for a, b in set().union(*(t.everywhere for t in traces), control(function.body)):
        before[b].add(a)
    kept = {a.name for a in function.arrays if a.role != "local"}
    pending = [node for t in traces for cell, node in t.writers.items() if cell[0] in kept]
    live: set[Node] = set()
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending += before[node]
    return live


def _components(edges: Iterable[tuple[Any, Any]]) -> list[frozenset[Any]]:
    """The strongly connected components with an edge inside."""
    after: dict[Any, set[Any]] = defaultdict(set)
    for a, b in edges:
        after[a].add(b)

    def reach(start: Any) -> set[Any]:
        seen: set[Any] = set()
        pending = list(after[start]) if start in after else []
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending += after.get(node, ())
        return seen

    reached = {node: reach(node) for node in list(after)}
    found = {frozenset(m for m in reached[n] if n in reached.get(m, ())) for n in reached if n in reached[n]}
    return sorted(found, key=lambda c: sorted(map(str, c)))


# ---------------------------------------------------------------- what an iteration does to a state

State = dict[Cell, Any]


@dataclass(frozen=True)
class _Part:
    """An independent part of a state: the algebras its maps belong to (None: none), and how many cells it has at most."""

    algebra: str | None
    width: int
    constant: frozenset[int]  # iterations that give it a value without looking at the one before


class _Probe(Watch):
    """Executes every iteration many times, its state disturbed, and finds the maps."""

    def __init__(self, live: list[list[list[Cell]]], generator: random.Random) -> None:
        self.live, self.generator = live, generator
        self.instance = -1
        self.parts: list[list[_Part]] = []
        self.changed: list[frozenset[int]] = []
        self.wide = False  # one cell depends on too many: there is no more to learn

    def enter(self, machine: Machine) -> None:
        self.instance += 1
        self.groups: dict[tuple[int, Cell], tuple[int, Cell]] = {}
        self.algebras: dict[tuple[int, Cell], list[str | None]] = defaultdict(list)
        self.moved: set[int] = set()

    def find(self, x: tuple[int, Cell]) -> tuple[int, Cell]:
        while self.groups.setdefault(x, x) != x:
            x = self.groups[x]
        return x

    def iteration(self, machine: Machine, k: int, body: Callable[[], None]) -> None:
        before, after = self.live[self.instance][k], self.live[self.instance][k + 1]
        if before and after and not self.wide:
            saved = machine.save()
            own = {c: machine.get(c) for c in before}

            def step(state: State) -> State:
                machine.restore(saved)
                for cell, value in state.items():
                    machine.set(cell, value)
                machine.lenient = True
                body()
                machine.lenient = False
                return {c: machine.get(c) for c in after}

            self.learn(k, own, step)
            machine.restore(saved)
            body()
            if any(machine.get(c) != own[c] for c in after if c in own):
                self.moved.add(k)
        else:
            body()

    def disturbed(self, value: Any, size: int = _BIG) -> Any:
        return self.generator.choice((True, False)) if isinstance(value, bool) else self.generator.randint(-size, size)

    def learn(self, k: int, own: State, step: Callable[[State], State]) -> None:
        """Which cells each new cell depends on, and by what map."""
        outputs = step(own)
        needs: dict[Cell, set[Cell]] = {o: set() for o in outputs}
        for cell in own:
            for size in (10, _BIG, _BIG):
                there = step({**own, cell: self.disturbed(own[cell], size)})
                for o in outputs:
                    if there[o] != outputs[o]:
                        needs[o].add(cell)
            if any(len(cells) > _WIDEST for cells in needs.values()):
                self.wide = True
                return
        flat = {c: (v if isinstance(v, bool) else 0) for c, v in own.items()}
        zero = step(flat)
        affine = {o: not isinstance(v, bool) for o, v in outputs.items()}
        if not any(isinstance(v, bool) for v in own.values()):
            near, far, other = ({c: self.disturbed(v, size) for c, v in own.items()} for size in (50, _BIG, _BIG))
            opposite = {c: -v for c, v in far.items()}
            for x, y in ((near, {c: v + 7 for c, v in near.items()}), (far, other), (far, opposite)):
                fx, fy, both = step(x), step(y), step({c: x[c] + y[c] for c in own})
                thrice = step({c: 3 * x[c] for c in own})
                for o in outputs:
                    if both[o] - fx[o] - fy[o] + zero[o] != 0 or thrice[o] - zero[o] != 3 * (fx[o] - zero[o]):
                        affine[o] = False
        else:
            affine = dict.fromkeys(outputs, False)
        for o in outputs:
            for cell in needs[o]:
                self.groups[self.find((k, cell))] = self.find((k + 1, o))
            self.algebras[k + 1, o].append(self.algebra(o, own, needs[o], affine[o], zero, step))

    def algebra(
        self, o: Cell, own: State, needs: set[Cell], affine: bool, zero: State, step: Callable[[State], State]
    ) -> str | None:
        if not needs:
            return "constant"
        if len(needs) == 1:
            (cell,) = needs
            if affine:
                unit = step({**{c: 0 for c in own}, cell: 1})[o] - zero[o]
                if unit == 1:
                    return "copy" if zero[o] == 0 else "sum"
                return "product" if zero[o] == 0 else "affine"
            if isinstance(own[cell], bool):
                return "logic"
            return "clamp" if _is_clamp(own[cell], lambda v: step({**own, cell: v})[o]) else None
        return "affine" if affine else "logic" if all(isinstance(own[c], bool) for c in needs) else None

    def leave(self, machine: Machine) -> None:
        groups: dict[Any, list[tuple[int, Cell]]] = defaultdict(list)
        for member in {*self.groups, *self.algebras}:
            groups[self.find(member)].append(member)
        parts = []
        for members in groups.values():
            at: dict[int, set[Cell]] = defaultdict(set)
            for k, cell in members:
                at[k].add(cell)
            names = {a for m in members for a in self.algebras[m]}
            constant = frozenset(k - 1 for k, cell in members if "constant" in self.algebras[k, cell])
            parts.append(_Part(_join(names), max(map(len, at.values())), constant))
        self.parts.append(parts)
        self.changed.append(frozenset(self.moved))


def _join(names: set[str | None]) -> str | None:
    """The smallest algebra of maps that has them all."""
    if None in names:
        return None
    for algebra in (
        {"constant", "copy"},
        {"copy", "sum"},
        {"copy", "product"},
        {"constant", "copy", "clamp"},
        {"constant", "copy", "logic"},
        {"constant", "copy", "sum", "product", "affine"},
        {"constant", "copy", "sum", "clamp"},
    ):
        if names <= algebra:
            named = [n for n in ("affine", "clamp", "logic", "product", "sum") if n in algebra & names]
            return "affine" if len(named) > 1 and "clamp" not in named else (named[0] if named else "select")
    return None


def _is_clamp(value: Any, f: Callable[[Any], Any]) -> bool:
    """Whether f(x) = min(max(x + a, low), high) at all the points tried, among them those around its corners."""
    low, high = f(-_BIG), f(_BIG)
    points = [-_BIG, _BIG, 0, value]
    for y in (low, high, f(0), f(value)):
        points += [y - 1, y, y + 1, 2 * y - value]
    points += [Fraction(i) for i in range(-100, 101, 7)]
    seen = [(x, f(x)) for x in points if -_BIG <= x <= _BIG]
    offsets = {y - x for x, y in seen}
    return any(all(y == min(max(x + a, low), high) for x, y in seen) for a in offsets)


# ---------------------------------------------------------------- the verdict


def _is_polynomial(values: list[Any]) -> bool:
    """Of degree 2 at most: the third differences are 0."""
    for _ in range(3):
        values = [b - a for a, b in zip(values, values[1:], strict=False)]
    return all(v == 0 for v in values)


def _induction(component: frozenset[Node], traces: list[_Trace]) -> bool:
    names = {
        v.cell[1] for t in traces for i in t.instances for v in i.versions
        if v.cell[0] == "name" and v.node in component and v.readers
    }  # fmt: skip
    arrays = any(n[0] == "store" for n in component)
    if arrays or not names <= {c.name for c in traces[0].loop.carries}:
        return False
    for name in names:
        runs = [[[values[name] for values in i.values] for i in t.instances] for t in traces]
        if any(run != runs[0] for run in runs) or not all(_is_polynomial(values) for values in runs[0]):
            return False
    return True


def _deepest(component: frozenset[Node], instance: _Instance) -> int:
    """The longest chain of iterations of which each reads what the one before it wrote, both in the component."""
    depth: dict[int, int] = defaultdict(int)
    links = sorted(
        (reader, v.iteration)
        for v in instance.versions
        if v.node in component
        for reader, node in v.readers
        if node in component
    )
    for reader, writer in links:
        depth[reader] = max(depth[reader], depth[writer] + 1)
    return max(depth.values(), default=0)


def _live(component: frozenset[Node], instance: _Instance) -> list[list[Cell]]:
    """For each iteration (and the end): the cells with a value of the component that it or a later iteration reads."""
    live: list[set[Cell]] = [set() for _ in range(instance.trips + 1)]
    for v in instance.versions:
        reads = [k for k, node in v.readers if node in component]
        if v.node in component and reads:
            for k in range(v.iteration + 1, max(reads) + 1):
                live[k].add(v.cell)
    return [sorted(cells, key=str) for cells in live]


def _survives(component: frozenset[Node], instance: _Instance, local: set[str]) -> bool:
    """Whether a value that later iterations needed is still there when the loop has ended."""
    return any(
        v.node in component and any(n in component for _, n in v.readers) and v.cell[0] != "name" and v.cell[0] not in local
        for v in instance.last.values()
    )


@dataclass(frozen=True)
class _Cycle:
    """A state: its algebra (None: none), how many cells its widest part has and how many it has in all, whether these are
    elements of arrays, who uses it early and which of its nodes they use, whether values that later iterations needed
    outlive the loop; and, for each execution of the loop, the iterations that change it and those that give it a value
    without looking at the one before (the first and the last iteration are not told).
    """

    nodes: frozenset[Node]
    algebra: str | None
    width: int
    cells: int
    stored: bool
    users: frozenset[Node]
    sources: frozenset[Node]
    survives: bool
    changed: tuple[frozenset[int], ...]
    renewed: tuple[frozenset[int], ...]

    @property
    def used(self) -> bool:
        return self.survives or bool(self.users)


def _cycle(
    component: frozenset[Node], function: Function, loop: For, runs: list[dict[str, Any]], traces: list[_Trace],
    edges: set[tuple[Node, Node]],
) -> _Cycle:  # fmt: skip
    parts: list[_Part] = []
    changed: list[frozenset[int]] = []
    renewed: list[frozenset[int]] = []
    wide = False
    for arguments, trace in zip(runs, traces, strict=True):
        probe = _Probe([_live(component, i) for i in trace.instances], random.Random(1))
        Machine(function, arguments, loop.var, probe).run()
        parts += [p for instance in probe.parts for p in instance]
        changed += [c & frozenset(range(1, i.trips - 1)) for c, i in zip(probe.changed, trace.instances, strict=True)]
        wide = wide or probe.wide
        for told, instance in zip(probe.parts, trace.instances, strict=True):
            looked = {k for v in instance.versions if v.node in component for k, n in v.readers if n in component}
            unread = frozenset(range(1, instance.trips - 1)) - looked
            renewed.append(unread.union(*(p.constant for p in told)) & frozenset(range(1, instance.trips - 1)))
    algebras = {p.algebra for p in parts} - {"select"}
    algebra = _join(algebras) if algebras else "select"
    if algebra in ("sum", "product") and any(renewed) and all(n[0] != "store" for n in component):
        algebra = "affine"
    local = {a.name for a in function.arrays if a.role == "local"}
    return _Cycle(
        component,
        algebra,
        _WIDEST + 1 if wide else max((p.width for p in parts), default=0),
        max((len(cells) for t in traces for i in t.instances for cells in _live(component, i)), default=0),
        any(n[0] == "store" for n in component),
        frozenset(b for a, b in edges if a in component and b not in component),
        frozenset(a for a, b in edges if a in component and b not in component),
        any(_survives(component, i, local) for t in traces for i in t.instances),
        tuple(changed),
        tuple(renewed),
    )


def judge(function: Function, loop: For, runs: list[dict[str, Any]]) -> tuple[Finding, int]:
    """What one loop is on some inputs, and the largest number of iterations that it had."""
    traces = []
    for arguments in runs:
        trace = _Trace(loop)
        Machine(function, arguments, loop.var, trace).run()
        traces.append(trace)
    trips = max((i.trips for t in traces for i in t.instances), default=0)
    live = _live_nodes(function, traces)
    carried = {(a, b) for t in traces for a, b in t.carried if b in live}
    edges = {(a, b) for a, b in set().union(*(t.flow for t in traces), control(loop.body)) if b in live}
    cycles: list[_Cycle] = []
    needs: list[str] = []
    inside: dict[Node, int] = {}
    induction: set[Node] = set()
    for k, component in enumerate(_components(edges)):
        if not any(a in component and b in component for a, b in carried):
            continue
        if _induction(component, traces):
            induction |= component
            needs.append("induction")
        else:
            inside |= dict.fromkeys(component, k)
            if max(_deepest(component, i) for t in traces for i in t.instances) <= 1:
                needs.append("splitting")
            else:
                cycles.append(_cycle(component, function, loop, runs, traces, edges))
    if any(a not in induction and (a not in inside or inside[a] != inside.get(b)) for a, b in carried):
        needs.append("distribution")
    for need in traces[0].shared:
        pairs = {(a, b) for t in traces for a, b in t.shared[need] if b in live}
        # a state is renamed as a whole, but what reads an array before a state overwrites it needs the old one
        if any(a not in inside and (b not in inside or need == "renaming") for a, b in pairs):
            needs.append(need)
    kind: Kind = "parallel"
    for cycle in cycles:
        of: Kind
        if cycle.algebra is None or cycle.width > _WIDEST:
            of = "sequential"
            needs.append("wide state" if cycle.width > _WIDEST else "no algebra")
        else:
            of = "scan" if cycle.used and not _argument(cycle, cycles) else "reduction"
            needs.append(cycle.algebra)
            if cycle.width > 1:
                needs.append(f"{cycle.width} cells")
            if cycle.stored:
                needs.append("array state" if cycle.cells > cycle.width else "element state")
        kind = max(kind, of, key=KINDS.index)
    return Finding(kind, tuple(dict.fromkeys(needs))), trips


def _argument(cycle: _Cycle, cycles: list[_Cycle]) -> bool:
    """Whether only choices use an extremum, each made exactly when the extremum changes, and no one uses those."""
    if cycle.algebra != "clamp" or cycle.survives:
        return False
    if any(a[0] != "if" for a in cycle.sources):
        return False  # what is chosen is more than whether it changes
    choices = [c for c in cycles if c is not cycle and c.nodes & cycle.users]
    if not cycle.users <= frozenset().union(*(c.nodes for c in choices)):
        return False
    return all(c.algebra == "select" and not c.used and c.renewed == cycle.changed for c in choices)


def find(case: Case, draws: int = 3) -> dict[str, Finding]:
    """The class of every loop of a case, by loop variable: the worst that its settings show."""
    function = parse(case.function, infer_types(case.function))
    arguments = list(case.arguments(draws))
    found: dict[str, Finding] = {}
    for loop in walk(function.body):
        if not isinstance(loop, For):
            continue
        judged = [judge(function, loop, arguments[k : k + draws]) for k in range(0, len(arguments), draws)]
        if max(trips for _, trips in judged) < _FEWEST_ITERATIONS:
            raise ValueError(f"{case.name}: {loop.var} has too few iterations to be judged")
        finding = max((f for f, _ in judged), key=lambda f: (KINDS.index(f.kind), len(f.needs)))
        _confirm(function, loop, arguments, finding)
        found[loop.var] = finding
    return found


# ---------------------------------------------------------------- the verdict, tried


class _Isolated(Watch):
    """Executes every iteration on the memory that the loop started with, and stores what they wrote at its end."""

    def __init__(self, function: Function, loop: For) -> None:
        self.private = {a.name for a in function.arrays if loop.var in a.within}
        self.written: set[Cell] = set()

    def enter(self, machine: Machine) -> None:
        self.saved = machine.save()
        self.results: list[State] = []

    def iteration(self, machine: Machine, k: int, body: Callable[[], None]) -> None:
        machine.restore(self.saved)
        self.written = set()
        body()
        self.results.append({c: machine.get(c) for c in self.written})

    def write(self, cell: Cell, node: Node) -> None:
        if cell[0] not in self.private:
            self.written.add(cell)

    def leave(self, machine: Machine) -> None:
        machine.restore(self.saved)
        for result in self.results:
            for cell, value in result.items():
                machine.set(cell, value)


def _confirm(function: Function, loop: For, runs: list[dict[str, Any]], finding: Finding) -> None:
    """Raise AssertionError unless execution bears a finding out: iterations without flow between them can be executed by
    themselves, those without any dependence, and those that only add up or multiply, in every order.
    """
    needs = set(finding.needs)
    isolated = finding.kind == "parallel" and needs <= {"renaming", "privatisation", "last value"}
    free = (isolated and not needs) or (
        finding.kind == "reduction" and needs <= {"sum", "product", "element state", "array state"}
    )
    for arguments in runs:
        plain = Machine(function, arguments).run().results()
        if isolated:
            alone = Machine(function, arguments, loop.var, _Isolated(function, loop)).run().results()
            assert alone == plain, f"{function.name}: the iterations of {loop.var} need each other"
        for order in _orders(loop, function, arguments) if free else ():
            permuted = Machine(function, arguments, loop.var, order=order).run().results()
            assert permuted == plain, f"{function.name}: the order of {loop.var} matters"


def _orders(loop: For, function: Function, arguments: dict[str, Any]) -> list[Callable[[list[int]], list[int]]]:
    """All orders of a loop of few iterations; else backwards and 20 random ones."""
    trips: list[int] = []

    def count(values: list[int]) -> list[int]:
        trips.append(len(values))
        return values

    Machine(function, arguments, loop.var, order=count).run()
    if max(trips, default=0) <= _FEWEST_ITERATIONS:
        ways = permutations(range(_FEWEST_ITERATIONS))
        return [lambda values, way=way: [values[i] for i in way if i < len(values)] for way in ways]  # type: ignore[misc]
    shuffled = [lambda values, seed=seed: random.Random(seed).sample(values, len(values)) for seed in range(20)]  # type: ignore[misc]
    return [lambda values: values[::-1], *shuffled]
