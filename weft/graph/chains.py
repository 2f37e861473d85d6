"""Products whose results are folded again, as a reading of a tile graph: attention is one.

The first products, the *scores*, are of rows and columns. What is made of them is folded over the columns: by itself, a
maximum or a sum a row, and in a second product, a *sum* of rows and lanes, whose other operand has columns and lanes. No
score need be in memory: whoever has all columns of a row goes through them once, where folds that wait for others are kept
relative to what these have so far (`weft.graph.running`). What is rounded to an operand of the second product is then rounded
relative to that too: the distributive law, of numbers with a unit of rounding of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from weft.graph.masks import Mask, Sides, Values, decides, mask_of, sides
from weft.graph.needs import by_need
from weft.graph.pages import Pages, paged
from weft.graph.parts import from_the_start
from weft.graph.passes import folded_alone
from weft.graph.products import Operand, Products
from weft.graph.relative import related
from weft.graph.running import Repair, repairs, unguarded
from weft.graph.sweeps import Sweep, Sweeps
from weft.graph.tile import (
    Axis,
    Fold,
    Map,
    Moved,
    NotTiles,
    Read,
    Scan,
    TileGraph,
    Write,
    dependence,
    mapped,
    names_of,
    starts_neutral,
    uses,
    uses_of_write,
)
from weft.loops.algebra.table import ALGEBRAS
from weft.loops.ir import Check, Const, Expr, Load, Op, Ref, Round, free_names, rewrite, walk_expr
from weft.loops.types import INT64


@dataclass(frozen=True)
class Chain:
    """scores: of rows and columns, over points. leading: folds of rows that wait for no other; following: those that are
    relative to such, by repairs. sums: of rows and lanes, over the columns; the left operands are made of scores. There may be
    none, and then there are no lanes. writes: once a row. Rows, columns, points and lanes are one axis each, all others of the
    results the batch. start, stop: how the first column of a row, and the one after the last, change from row to row: not (0),
    up (1), down (-1), or as each row tells by itself (None). asked: reads that a plan, and where data decide the columns, the
    kernel has to see inside their arrays: their subscripts are of axes and sizes. together: as many rows as have columns in
    common, by a division of their place (heads that share keys); None: all have. given: where sums alone are folded, what
    tells which of its columns a row has. mask: a condition without which these have nothing to tell each other, whose
    intervals may tell that of whole tiles. pages: operands whose columns lie in pages. divisors: of sizes, which are not 0.
    """

    scores: Products
    leading: tuple[Fold, ...]
    following: tuple[Fold, ...]
    sums: Products
    repairs: tuple[Repair, ...]
    writes: tuple[Write, ...]
    start: int | None = 0
    stop: int | None = 0
    asked: tuple[Read, ...] = ()
    together: Expr | None = None
    given: Expr | None = None
    mask: Mask | None = None
    pages: tuple[Pages, ...] = ()
    divisors: tuple[Expr, ...] = ()

    @property
    def bounded(self) -> bool:
        """Whether the columns of a row are not from 0 on, not as many as those of another one, of the batch too, end in a page,
        or are told by a condition.
        """
        axis = self.axes[self.column]
        if self.given is not None:
            return True
        told = {*self.axes, *(n for v in self.values for n in names_of(v))}
        return axis.start != Const(0, INT64) or bool(free_names(axis.stop) & told) or not all(map(self._whole, self.pages))

    def pages_of(self, operand: Operand) -> Pages | None:
        """How the columns of an operand lie in pages, if they do."""
        return next((p for p in self.pages if isinstance(operand.value, Ref) and p.read == operand.value.name), None)

    def _whole(self, pages: Pages) -> bool:
        stop = self.axes[self.column].stop
        return isinstance(stop, Op) and stop.name == "mul" and pages.size in stop.args

    @property
    def told_by_rows(self) -> bool:
        """Whether all rows of a tile have to be asked for their columns."""
        return self.start is None or self.stop is None

    @property
    def asks_rows(self) -> bool:
        """Whether each row is asked which columns it has, or whether these are inside their arrays."""
        return self.told_by_rows or bool(self.looked_at and self.row in free_names(self.axes[self.column].start))

    @property
    def looked_at(self) -> tuple[tuple[str, int], ...]:
        """The axes of arrays that no column must leave, where data decide which there are."""
        axis = self.axes[self.column]
        if not {n for e in (axis.start, axis.stop) for n in free_names(e)} & {n for v in self.values for n in names_of(v)}:
            return ()
        own = Ref(self.column, INT64)
        return tuple(dict.fromkeys((v.array, d) for v in self.asked for d, e in enumerate(v.index) if e == own))

    @property
    def sides(self) -> Sides:
        """What the mask compares."""
        if self.mask is None:
            return Sides()
        return sides(self.mask, Values.of(self.values, self.axes), self.row, self.column)

    @property
    def axes(self) -> Mapping[str, Axis]:
        return self.sums.sweeps.axes

    @property
    def values(self) -> tuple[Read | Map | Fold, ...]:
        return self.sums.sweeps.values

    @property
    def row(self) -> str:
        return self.scores.rows[0]

    @property
    def column(self) -> str:
        return self.scores.columns[0]

    @property
    def point(self) -> str:
        return self.scores.over[0]

    @property
    def lane(self) -> str:
        return self.sums.columns[0]

    @property
    def arrays(self) -> frozenset[str]:
        return self.sums.sweeps.arrays | {w.array for w in self.writes}

    @property
    def folds(self) -> tuple[Fold, ...]:
        return (*self.scores.folds, *self.leading, *self.following, *self.sums.folds)


def by_rows(chain: Chain) -> dict[str, Chain]:
    """A chain by each of the axes that its rows may be, its own first: of the batch, those that no columns have."""
    found = {chain.row: chain}
    if chain.together is not None:
        return found
    depends = dependence(TileGraph("", tuple(chain.axes.values()), chain.values, ()))
    rights = depends.of(o.value for p in (chain.scores, chain.sums) for o in p.right)
    column = chain.axes[chain.column]
    for row in (a for a in chain.sums.batch if a not in rights):
        batch = tuple(a for a in chain.axes if a in {*chain.sums.batch, chain.row} - {row})
        start, stop = (
            None if any(row in depends.of((Ref(n, INT64),)) for n in free_names(e) - {row}) else _direction(e, row)
            for e in (column.start, column.stop)
        )
        mask = chain.mask
        if mask is not None and not decides(mask, Values.of(chain.values, chain.axes), row, chain.column):
            mask = None
        scores, sums = (
            replace(p, batch=batch, rows=(row,), sweeps=replace(p.sweeps, rows=(*batch, row, *p.columns)))
            for p in (chain.scores, chain.sums)
        )
        found[row] = replace(chain, scores=scores, sums=sums, start=start, stop=stop, mask=mask)
    return found


def chain(graph: TileGraph, sizes: Collection[str]) -> Chain:
    """The chain that a graph is. sizes: names of numbers that are not below 0. Raises NotTiles."""
    moved = from_the_start(graph)
    if moved is not None:
        with suppress(NotTiles):
            return _as_it_is(moved, sizes)
    return _as_it_is(graph, sizes)


def _as_it_is(graph: TileGraph, sizes: Collection[str]) -> Chain:
    graph, pages, divisors = paged(graph, _operands_alone(graph))
    graph, asked = inside(graph)
    found = replace(_Reading(prepared(graph), frozenset(sizes)).found(), asked=asked, pages=pages, divisors=divisors)
    rights = {o.name for p in (found.scores, found.sums) for o in p.right}
    if any(p.read not in rights or p.column != found.column for p in pages) or (pages and found.given is not None):
        raise NotTiles("what lies in pages are no columns of its products")
    return found


def inside(graph: TileGraph) -> tuple[TileGraph, tuple[Read, ...]]:
    """A graph whose reads are inside their arrays, and those that have to be seen to be: they are of axes and sizes."""
    axes = [Ref(a.name, INT64) for a in graph.axes]
    checked = [v for v in graph.values if isinstance(v, Read) and v.checked]
    asked = tuple(v for v in checked if _of_axes(graph, [i for i in v.index if i not in axes]))
    seen = {v.name: replace(v, always=True, checked=False) for v in asked}
    return replace(graph, values=tuple(seen.get(names_of(v)[0], v) for v in graph.values)), asked


def prepared(graph: TileGraph) -> TileGraph:
    """A graph as chains are read off it: of reads, maps and folds that are folded alone. Raises NotTiles."""
    names = {a.name for a in graph.axes} | graph.made.keys()
    alike = {a.name for a in graph.axes if not (free_names(a.start) | free_names(a.stop)) & names}  # a plan has points of all
    operands = _operands_alone(graph)  # of which tiles have nothing beyond their arrays
    graph = by_need(
        graph,
        lambda read: read.name in operands or (not read.checked and read.given is not None and alike >= set(read.given)),
    )
    return folded_alone(graph)


def _of_axes(graph: TileGraph, exprs: Collection[Expr]) -> bool:
    """Whether integers are of sizes, and of axes whose bounds are such."""
    names = {n for e in exprs for n in free_names(e)}
    axes = [a for a in graph.axes if a.name in names]
    plain = not any(isinstance(x, Load | Check) for e in exprs for x in walk_expr(e)) and not names & graph.made.keys()
    return plain and all(_of_axes(graph, (a.start, a.stop)) for a in axes)


def _operands_alone(graph: TileGraph) -> set[str]:
    """The reads of which nothing is made but products that are summed."""
    sums = [v for v in graph.values if isinstance(v, Fold) and v.algebra == "sum"]
    factors = {a.name for f in sums for a in _factors(f) if isinstance(a, Ref)}
    others = [e for v in graph.values for e in (v.inits if v in sums else uses(v))]
    others += [a for f in sums for a in _factors(f) if not isinstance(a, Ref)]
    others += [e for w in graph.writes for e in uses_of_write(w)]
    return factors - {n for e in others for n in free_names(e)}


def _factors(fold: Fold) -> tuple[Expr, ...]:
    part = fold.parts[0]
    return part.args if isinstance(part, Op) and part.name == "mul" else (part,)


@dataclass
class _Reading:
    graph: TileGraph
    sizes: frozenset[str]

    def found(self) -> Chain:
        given = self.conditions()
        moving = repairs(related(_unrounded(self.graph)).values, self.sizes)
        graph = self.graph = replace(self.graph, values=unguarded(self.graph.values, moving))
        self.depends = dependence(graph)
        folds = [v for v in graph.values if isinstance(v, Fold)]
        scores = [f for f in folds if any({*f.results} & self.waits_for(g) and set(f.axes) & set(g.over) for g in folds)]
        rest = [f for f in folds if f not in scores]
        overs = {f.over for f in rest}, {f.over for f in scores}
        if len(overs[0]) != 1 or len(overs[1]) != 1 or any(len(over) != 1 for own in overs for over in own):
            raise NotTiles("it is no product whose results are folded again")
        ((column,),), ((point,),) = overs
        inside = {f.axes for f in scores}
        if len(inside) != 1 or column not in (own := inside.pop()):
            raise NotTiles("its products have different axes")
        made_of = [(b, a) if column in self.axes(a) else (a, b) for a, b in map(self.factors, scores)]
        alone = set(own) - {column}
        for _, right in made_of:
            alone -= self.axes(right)
        rows = [a for a in own if a in alone] or [a for a in own if a != column and self.divided(made_of, a) is not None]
        shared = all(column not in self.axes(left) and point in self.axes(left) & self.axes(right) for left, right in made_of)
        if not rows or not shared:
            raise NotTiles("its first products have no rows of their own")
        row = rows[-1]
        together = None if row in alone else self.divided(made_of, row)
        bounds = (graph.axis(column).start, graph.axis(column).stop)
        common = (set(own) | self.depends.of(bounds)) - {column}  # parts of columns have these, and no score of their own
        sums = [f for f in rest if set(f.axes) - common]
        lanes = {a for f in sums for a in f.axes} - common
        if len(lanes) > 1:
            raise NotTiles("its second products have other axes than one")
        batch = tuple(a.name for a in graph.axes if a.name in common and a.name != row)
        for name in (*batch, row, point, *lanes):
            axis = graph.axis(name)
            if (free_names(axis.start) | free_names(axis.stop)) & {*graph.made, *(a.name for a in graph.axes)}:
                raise NotTiles(f"the bounds of {name} are not the same everywhere")
        if not self.depends.of(bounds) <= {*batch, row}:
            raise NotTiles(f"the bounds of {column} are not those of rows")
        of_rows = [any(row in self.axes(Ref(n, INT64)) for n in free_names(e) - {row}) for e in bounds]
        start, stop = (None if of_row else _direction(e, row) for e, of_row in zip(bounds, of_rows, strict=True))
        leading, following, used = self.folded([f for f in rest if f not in sums], sums, moving)
        for w in graph.writes:
            if not {*batch, row} <= set(w.axes) or set(w.axes) - {*batch, row, *lanes}:
                raise NotTiles(f"{w.array} is written at points of a row")
        values = tuple(v for v in graph.values if isinstance(v, Read | Map | Fold))
        axes = {a.name: a for a in graph.axes}
        last = tuple(w for w in graph.writes if lanes & {*w.axes})
        if sums and not last:
            raise NotTiles("nothing of its second products is written")

        def swept(rows: tuple[str, ...], over: str, own: list[Fold], writes: tuple[Write, ...]) -> Sweeps:
            return Sweeps(axes, rows, values, ((Sweep((over,), False, tuple(own), ()),),), writes, False)

        first = Products(
            swept((*batch, row, column), point, scores, ()), batch, (row,), (column,), (point,),
            _operands(left for left, _ in made_of), _operands(right for _, right in made_of), tuple(scores),
        )  # fmt: skip
        pairs = [self.sides(f, row, column, lane) for lane in lanes for f in sums]
        of_row = any(row in self.axes(right) for _, right in (pairs or made_of))
        if of_row != (together is not None) or (of_row and pairs and self.divided(pairs, row) != together):
            raise NotTiles(f"its products have not the same of {row} together")
        if together is not None and any(row in self.axes(e) for e in bounds):
            raise NotTiles(f"{column} has other bounds for each {row}")
        lefts, rights = (_operands(pair[k] for pair in pairs) for k in (0, 1))
        named = {o.value: Ref(o.name, o.value.type) for o in (*lefts, *rights)}
        second = Products(
            swept((*batch, row, *lanes), column, sums, last), batch, (row,), (*lanes,), (column,), lefts, rights,
            tuple(replace(f, parts=(Op("mul", (named[a], named[b]), f.types[0]),))
                  for f, (a, b) in zip(sums, pairs, strict=True)),
        )  # fmt: skip
        writes = tuple(w for w in graph.writes if w not in last)
        if given is not None and (leading or following):
            raise NotTiles(f"a condition tells which {column} a row has")
        mask = self.mask(row, column, (*leading, *following), second, given)
        return Chain(first, leading, following, second, used, writes, start, stop, together=together, given=given, mask=mask)

    def mask(self, row: str, column: str, folds: tuple[Fold, ...], sums: Products, given: Expr | None) -> Mask | None:
        """The condition without which a row and a column have nothing to tell each other."""
        made = (v for v in self.graph.values if isinstance(v, Read | Map | Fold))
        values = Values.of(made, [a.name for a in self.graph.axes])
        if given is not None:
            found = Mask(given, apart=True)
            return found if decides(found, values, row, column) else None
        products = []
        for f in sums.folds:
            own = free_names(f.parts[0])
            left = next(o.value for o in sums.left if o.name in own)
            products.append((f, left, next(o.name for o in sums.right if o.name in own)))
        return mask_of(values, row, column, folds, products)

    def conditions(self) -> Expr | None:
        """The condition that all sums over an axis have in common, which they are left without."""
        found: dict[tuple[str, ...], set[Expr | None]] = {}
        inside: dict[str, Fold] = {}
        for f in self.graph.values:
            if not isinstance(f, Fold):
                continue
            match f.parts[0] if f.algebra == "sum" else None:
                case Op(name="where", args=(condition, Op(name="mul") as product, Const(value=0))):
                    found.setdefault(f.over, set()).add(condition)
                    inside[f.results[0]] = replace(f, parts=(product,))
                case _:
                    found.setdefault(f.over, set()).add(None)
        common = [next(iter(own)) for own in found.values() if len(own) == 1 and own != {None}]
        if len(common) != 1:
            return None
        values = tuple(inside.get(names_of(v)[-1], v) for v in self.graph.values)
        self.graph = replace(self.graph, values=values)
        return common[0]

    def divided(self, pairs: Iterable[tuple[Expr, Expr]], row: str) -> Expr | None:
        """What the places of rows are divided by in all subscripts of right operands, which have nothing else of rows."""
        changing, quotients = {*self.graph.made, *(a.name for a in self.graph.axes)}, set[Expr]()

        def quotient(e: Expr) -> Expr | None:
            match e:
                case Op(name="floordiv", args=(Ref(name=name), by)) if name == row and not free_names(by) & changing:
                    quotients.add(by)
                    return Const(0, INT64)
            return None

        for _, right in pairs:
            read = self.graph.made.get(right.name) if isinstance(right, Ref) else None
            if not isinstance(read, Read) or any(row in self.axes(rewrite(e, quotient)) for e in read.index):
                return None
        return quotients.pop() if len(quotients) == 1 else None

    def axes(self, e: Expr) -> frozenset[str]:
        return self.depends.of((e,))

    def factors(self, fold: Fold) -> tuple[Ref, Ref]:
        match fold.parts[0] if fold.algebra == "sum" else None:
            case Op(name="mul", args=(Ref() as a, Ref() as b)) if starts_neutral(fold):
                return a, b
        raise NotTiles(f"{fold.results[0]} is no sum of products", fold.location)

    def sides(self, fold: Fold, row: str, column: str, lane: str) -> tuple[Expr, Expr]:
        """What is made of scores in a product of rows and lanes, and its other operand."""
        match fold.parts[0] if fold.algebra == "sum" and starts_neutral(fold) else None:
            case Op(name="mul", args=(a, b)):
                for left, right in ((a, b), (b, a)):
                    has_lane = lane in self.axes(right) and lane not in self.axes(left)
                    own = row not in self.axes(right) or self.divided([(left, right)], row) is not None
                    if has_lane and {row, column} <= self.axes(left) and own and isinstance(right, Ref):
                        return left, right
        raise NotTiles(f"{fold.results[0]} is no sum of products", fold.location)

    def folded(
        self, rows: list[Fold], sums: list[Fold], moving: tuple[Repair, ...]
    ) -> tuple[tuple[Fold, ...], tuple[Fold, ...], tuple[Repair, ...]]:
        """The folds of rows that wait for no other, those that are kept relative to them, and the repairs of all."""
        own = {f.results[0]: f for f in rows}
        by_sum = {r.sum: r for r in moving}
        leading, following, used = [], [], []
        for f in (*rows, *sums):
            if f.algebra not in ALGEBRAS or not starts_neutral(f):
                raise NotTiles(f"{f.results[0]} is folded by {f.algebra}", f.location)
            before = self.waits_for(f) & own.keys()
            if before:
                repair = by_sum.get(f.results[0])
                if repair is None or before != {repair.extremum} or own[repair.extremum] not in leading:
                    raise NotTiles(f"{f.results[0]} waits for {', '.join(sorted(before))}", f.location)
                used.append(repair)
                following += [f] if f in rows else []
            elif f in rows:
                leading.append(f)
        return tuple(leading), tuple(following), tuple(used)

    def waits_for(self, fold: Fold) -> set[str]:
        """The results of folds that a fold's parts are made of."""
        found = self.graph.below(fold.parts, Read | Map | Moved | Scan)
        return {n for n in found if isinstance(self.graph.made.get(n), Fold)}


def _direction(e: Expr, row: str) -> int | None:
    """How an integer changes where a row's place goes up: not (0), up (1), down (-1); None where that is not told."""
    if row not in free_names(e):
        return 0
    match e:
        case Ref(name=name) if name == row:
            return 1
        case Op(name="add" | "max" | "min" | "maximum" | "minimum", args=(a, b)):
            return _together(_direction(a, row), _direction(b, row))
        case Op(name="sub", args=(a, b)):
            return _together(_direction(a, row), _direction(Op("neg", (b,), b.type), row))
        case Op(name="neg", args=(a,)):
            inner = _direction(a, row)
            return None if inner is None else -inner
        case Op(name="mul", args=(Const(value=value), a)) | Op(name="mul", args=(a, Const(value=value))):
            inner = _direction(a, row)
            return None if inner is None else inner * ((value > 0) - (value < 0))
        case Op(name="floordiv", args=(a, Const(value=value))) if value > 0:
            return _direction(a, row)
        case Op(name="where", args=(Op(name="lt" | "le" | "gt" | "ge", args=(a, b)), x, y)) if {a, b} == {x, y}:
            return _together(_direction(x, row), _direction(y, row))  # the larger, or the smaller, of two
    return None


def _together(a: int | None, b: int | None) -> int | None:
    if a is None or b is None or a * b < 0:
        return None
    return a or b


def _operands(exprs: Iterable[Expr]) -> tuple[Operand, ...]:
    """Operands by their names, each once."""
    return tuple(Operand(e.name if isinstance(e, Ref) else f"operand.{k}", e) for k, e in enumerate(dict.fromkeys(exprs)))


def _unrounded(graph: TileGraph) -> TileGraph:
    """The graph of real numbers, in which nothing is rounded to a narrower type."""

    def exact(e: Expr) -> Expr:
        return rewrite(e, lambda x: x.value if isinstance(x, Round) else None)

    return replace(graph, values=tuple(mapped(v, exact) for v in graph.values))
