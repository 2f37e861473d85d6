"""What a block computes of a graph in registers, one value after another, and what it keeps in shared memory between: chains.

A chain goes through the points of a tile. It begins with what is in memory, or in shared memory, and ends with what it
folds, leaves in shared memory, or writes; all maps between are in registers, computed again in each chain that needs them. What
is made of folds alone, at the points of their results, is done where these are found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from weft.graph.blocks import Blocks
from weft.graph.tile import Fold, Map, NotTiles, Read, Write, uses_of_write
from weft.loops.ir import Expr, free_names

Kind = Literal["copy", "points", "fold", "product", "finish"]


@dataclass(frozen=True)
class Chain:
    """copy: elements of an array to shared memory. points: values at all points of `axes`. fold, product: what is folded over
    `over`, for each point of `axes`; where it goes on in the next turn, `finish` is what is done with it after the last, `of`
    the chain that has it in its registers.

    folds: what it folds, by their results. makes: values that it leaves in shared memory; writes: of the graph, by their place;
    needs: values that are in shared memory before. turns: the axis of whose points there are some in each turn.
    """

    name: str
    kind: Kind
    axes: tuple[str, ...]
    over: tuple[str, ...] = ()
    folds: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    writes: tuple[int, ...] = ()
    needs: frozenset[str] = frozenset()
    turns: str = ""
    of: str = ""

    @property
    def ends(self) -> bool:
        """Whether its results are there after the last turn only."""
        return self.turns in self.over


@dataclass(frozen=True)
class Stage:
    """Chains that are done once, or in each turn along an axis."""

    turns: str
    chains: tuple[Chain, ...]


@dataclass
class _Group:
    """Folds that are found together."""

    folds: list[Fold]
    kind: Kind
    rank: int = 0  # their place in an order in which each needs earlier ones alone
    finishing: list[str] = field(default_factory=list)  # maps of their results
    writes: list[int] = field(default_factory=list)

    @property
    def results(self) -> set[str]:
        return {f.results[0] for f in self.folds}

    @property
    def own(self) -> set[str]:
        return self.results | {*self.finishing}

    @property
    def axes(self) -> tuple[str, ...]:
        return self.folds[0].axes

    @property
    def over(self) -> tuple[str, ...]:
        return self.folds[0].over


@dataclass
class _Fusing:
    blocks: Blocks
    turned: Collection[str]

    def __post_init__(self) -> None:
        graph = self.blocks.graph
        self.made, self.order = graph.made, [a.name for a in graph.axes]
        self.reach: dict[str, frozenset[str]] = {}
        for v in graph.values:
            name = v.results[0] if isinstance(v, Fold) else v.name  # type: ignore[union-attr]
            uses = self.blocks.uses(name)
            self.reach[name] = uses.union(*(self.reach[n] for n in uses))
        self.groups = self.grouped()
        self.home: dict[str, _Group] = {n: g for g in self.groups for n in g.results}
        self.finishing()
        self.operands = {n for p in self.blocks.products for n in (p.left, p.right)}
        self.read_often: set[str] = set()

    def grouped(self) -> list[_Group]:
        """Folds over the same axes for results of the same axes, none of which needs another one."""
        groups: list[_Group] = []
        for v in self.blocks.folds:
            product = self.blocks.multiplied.get(v.results[0])
            kind: Kind = "fold" if product is None else "product"
            for g in groups:
                other = self.blocks.multiplied.get(g.folds[0].results[0])
                sides = (product and (product.rows, product.columns)) == (other and (other.rows, other.columns))
                alike = g.kind == kind and sides and (g.axes, g.over) == (v.axes, v.over)
                if alike and not self.reach[v.results[0]] & g.results and not self.later(g, v):
                    g.folds.append(v)
                    break
            else:
                groups.append(_Group([v], kind))
        return self.ranked(groups)

    def ranked(self, groups: list[_Group]) -> list[_Group]:
        """Folds in an order in which each comes after those that it needs, products and what has many axes as late as may be:
        what is made of several of them is then done where most points are.
        """
        done: list[_Group] = []
        while left := [g for g in groups if g not in done]:
            waiting = {r for g in left for r in g.results}
            ready = [g for g in left if not any(self.reach[r] & (waiting - g.results) for r in g.results)]
            g = min(ready, key=lambda g: (g.kind == "product", len(g.axes)))
            g.rank = len(done)
            done.append(g)
        return done

    def later(self, group: _Group, fold: Fold) -> bool:
        """Whether a fold needs one that another one of the group's is needed for."""
        return any(isinstance(self.made[n], Fold) and self.reach[n] & group.results for n in self.reach[fold.results[0]])

    def finishing(self) -> None:
        """Maps and writes at the points of folds' results, with the last folds that they are made of."""
        for v in self.blocks.graph.values:
            if isinstance(v, Map) and (g := self.at_results(v.axes, self.blocks.uses(v.name))) is not None:
                g.finishing.append(v.name)
                self.home[v.name] = g
        self.alone: list[int] = []
        for k, w in enumerate(self.blocks.graph.writes):
            g = self.at_results(w.axes, self.of_write(w))
            (self.alone if g is None else g.writes).append(k)

    def of_write(self, w: Write) -> frozenset[str]:
        return frozenset(n for e in uses_of_write(w) for n in free_names(e) if n in self.made)

    def at_results(self, axes: Iterable[str], uses: Collection[str]) -> _Group | None:
        """The folds with whose results, and nothing else that needs these, something of such axes is made."""
        reached = {*uses}.union(*(self.reach[n] for n in uses))
        found = [g for g in self.groups if g.results & reached]
        if not found:
            return None
        g = max(found, key=lambda g: g.rank)
        if {*axes} != {*g.axes} or any(n not in g.own and self.reach[n] & g.results for n in uses):
            return None
        return g

    # ---- what chains need

    def needed(self, roots: Iterable[str], own: Collection[str]) -> tuple[set[str], set[str]]:
        """Of what is made in registers for these: values in shared memory, and reads that are made in registers too."""
        shared, reads, seen, pending = set[str](), set[str](), set[str](), [*roots]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            value = self.made[name]
            if name in own and name in self.home and isinstance(value, Fold):
                continue
            if name not in own and (name in self.home or name in self.operands or name in self.read_often):
                shared.add(name)
            elif isinstance(value, Read) and not any(n in self.made for e in value.index for n in free_names(e)):
                reads.add(name)
            else:
                pending += self.blocks.uses(name)
        return shared, reads

    def turns(self, axes: Iterable[str]) -> str:
        found = [a for a in axes if a in self.turned]
        if len(found) > 1:
            raise NotTiles(f"turns along {found[0]} would be in those along {found[1]}")
        return found[0] if found else ""

    def parts(self, g: _Group) -> list[str]:
        """What folds take at each point, by name."""
        if g.kind == "product":
            products = [self.blocks.multiplied[f.results[0]] for f in g.folds]
            return [n for p in products for n in (p.left, p.right)]
        return [n for f in g.folds for n in self.names_in(f.parts)]

    def names_in(self, exprs: Iterable[Expr]) -> list[str]:
        return [n for e in exprs for n in free_names(e) if n in self.made]

    def chains(self) -> list[Chain]:
        for _ in range(2):  # reads that several chains make in registers are in shared memory instead
            found, reading = [], list[str]()
            for chain, reads in self.made_chains():
                found.append(chain)
                reading += reads
            self.read_often |= {n for n in reading if reading.count(n) > 1 and len(self.made_axes(n)) > 1}
        return self.keeping(found)

    def made_axes(self, name: str) -> tuple[str, ...]:
        value = self.made[name]
        assert isinstance(value, Read | Map | Fold)
        return value.axes

    def made_chains(self) -> Iterator[tuple[Chain, set[str]]]:
        writes = self.blocks.graph.writes
        for name in sorted((self.operands | self.read_often) - self.home.keys(), key=[*self.made].index):
            value, axes = self.made[name], self.made_axes(name)
            kind: Kind = "copy" if isinstance(value, Read) else "points"
            shared, reads = self.needed(self.blocks.uses(name), ())
            yield Chain(name, kind, axes, makes=(name,), needs=frozenset(shared), turns=self.turns(axes)), reads
        for g in self.groups:
            name, turns = g.folds[0].names[0], self.turns((*g.axes, *g.over))
            parts, reads = self.needed(self.parts(g), ())
            ending = [*g.finishing, *(n for k in g.writes for n in self.of_write(writes[k]))]
            after, more = self.needed(ending, g.own)
            folds = tuple(f.results[0] for f in g.folds)
            chain = Chain(name, g.kind, g.axes, g.over, folds, needs=frozenset(parts), turns=turns)
            if turns in g.over:
                yield chain, reads
                yield replace(
                    chain, name=f"{name} after", kind="finish", makes=tuple(g.own), writes=tuple(g.writes),
                    needs=frozenset(after), turns="", of=name,
                ), more  # fmt: skip
            else:
                yield replace(
                    chain, makes=tuple(g.own), writes=tuple(g.writes), needs=chain.needs | after
                ), reads | more
        alike: dict[tuple[str, ...], list[int]] = {}
        for k in self.alone:
            alike.setdefault(tuple(a for a in self.order if a in writes[k].axes), []).append(k)
        for axes, places in alike.items():
            shared, reads = self.needed((n for k in places for n in self.of_write(writes[k])), ())
            name = writes[places[0]].array
            yield Chain(name, "points", axes, writes=tuple(places), needs=frozenset(shared), turns=self.turns(axes)), reads

    def keeping(self, chains: list[Chain]) -> list[Chain]:
        """Chains that leave in shared memory what others need, and nothing else."""
        needed = {n for c in chains for n in c.needs}
        order = [*self.made]
        found = [replace(c, makes=tuple(sorted((n for n in c.makes if n in needed), key=order.index))) for c in chains]
        return [c for c in found if c.makes or c.writes or c.folds]


def chains(blocks: Blocks, turned: Collection[str] = ()) -> tuple[Chain, ...]:
    """The chains of a graph. turned: axes that blocks go through in turns. Raises NotTiles."""
    return tuple(_Fusing(blocks, turned).chains())


def stages(found: Iterable[Chain]) -> tuple[Stage, ...]:
    """Chains in stages, in order: what can be done once is, then the turns along one axis, and so on. What is made in a turn is
    made again in the turns of a later stage that need it. Raises NotTiles.
    """
    left = [*found]
    makers = {n: c for c in left for n in c.makes}
    there: set[str] = set()
    ended: set[str] = set()
    out: list[Stage] = []
    while True:
        now: list[Chain] = []
        while more := [c for c in left if not c.turns and c not in now and c.needs <= there and (not c.of or c.of in ended)]:
            now += more
            there |= {n for c in more for n in c.makes}
        if now:
            out.append(Stage("", tuple(now)))
            left = [c for c in left if c not in now]
        sinks = [c for c in left if c.turns and (c.ends or c.writes)]
        if not sinks:
            break
        ready: dict[str, list[Chain]] = {}
        for sink in sinks:
            wanted = _in_turns(sink, makers, there)
            if wanted is not None:
                own = ready.setdefault(sink.turns, [])
                own += [c for c in wanted if c not in own]
        if not ready:
            raise NotTiles("what is folded in turns needs what later turns tell")
        turns, own = next(iter(ready.items()))
        out.append(Stage(turns, tuple(own)))
        ended |= {c.name for c in own if c.ends}
        left = [c for c in left if c not in own or (c.makes and not c.ends and not c.writes)]
    if any(c for c in left if not c.turns):
        raise NotTiles("chains need each other")
    return tuple(out)


def _in_turns(sink: Chain, makers: dict[str, Chain], there: set[str]) -> list[Chain] | None:
    """What is made in a turn for a chain, and itself; None where it needs what is not there yet."""
    found: list[Chain] = []
    wanted = sink.needs - there
    if not wanted <= makers.keys():
        return None
    for maker in (makers[n] for n in makers if n in wanted):
        inner = None if maker.turns != sink.turns or maker.ends else _in_turns(maker, makers, there)
        if inner is None:
            return None
        found += [c for c in inner if c not in found]
    return [*found, sink]
