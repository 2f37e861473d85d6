"""The gradients of chained products, as graphs in which the scores are computed again.

A graph has no order and no memory, so its adjoint is its values again and, of each of them, the sum of what its uses hand
back; over the axes that a use has alone, that is a fold. What would be as large as rows and columns together, the scores and
what is made of them, is a value like any: whoever runs the graph computes it where it is needed. Rows keep a few numbers each
(of a softmax its maximum, its sum, and what its results hand back to that); one graph has what rows add up, one more what
columns do.

Of a product of two numbers of a 16-bit type PyTorch's gradient is of this type. So is it here: in a sum of a gradient, what an
element of such an array is multiplied by is rounded to its type, and the sum is float32.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from weft.graph.chains import Chain
from weft.graph.tile import Axis, Fold, Map, NotTiles, Read, TileGraph, Value, Write, dependence, names_of, uses
from weft.loops.affine import Affine, affine
from weft.loops.derivatives import Changes, contributions, is_unknown, passed_through, taken
from weft.loops.extents import expanded, expanded_index, extents
from weft.loops.ir import (
    Array,
    Cast,
    Const,
    Expr,
    Function,
    Load,
    Op,
    Ref,
    Round,
    free_names,
    free_names_of,
    reachable,
    walk_expr,
)
from weft.loops.names import Names
from weft.loops.simplify import add, div, mul, neg, number, select, sub
from weft.loops.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT64, ScalarType

# What a product is made of, by how: multiplied, or divided, by it, or 0 unless it holds. In this order.
_Factor = tuple[str, Expr]
_ORDER = ("mul", "div", "where")
_LOG2_E, _INFINITY = Const(math.log2(math.e), FLOAT32), Const(math.inf, FLOAT32)
_EXTREMA = ("max", "min", "maximum", "minimum", "fmax", "fmin")


@dataclass(frozen=True)
class Gradients:
    """graphs: run one after another. kept: what they tell each other, an element for each row."""

    graphs: tuple[TileGraph, ...]
    kept: tuple[Array, ...]


def gradients(
    graph: TileGraph,
    chain: Chain,
    function: Function,
    seeds: Mapping[str, Collection[str]],
    saved: Mapping[str, str],
    wanted: Mapping[str, str],
    names: Names,
) -> Gradients:
    """The gradients of the arrays `wanted`, into the arrays that are named there. graph: as `chains.prepared` makes it; chain:
    what it is. seeds: of each result, the arrays that hold gradients of it; saved: the one that holds it as it was returned.
    Raises NotTiles where these are no gradients of operands of products, or need another order.
    """
    return _Reverse(graph, chain, function, seeds, saved, wanted, names).gradients()


@dataclass(frozen=True)
class _Part:
    """What a use hands back, at points of these axes, where `when` holds. product: of which type both factors were, if the
    use is a product of such.
    """

    value: Expr
    axes: frozenset[str]
    when: Expr | None
    product: ScalarType | None = None

    @property
    def settled(self) -> Expr:
        return self.value if self.when is None else select(self.when, self.value, number(0, self.value.type))


@dataclass
class _Reverse:
    primal: TileGraph
    chain: Chain
    function: Function
    seeds: Mapping[str, Collection[str]]
    saved: Mapping[str, str]
    wanted: Mapping[str, str]
    names: Names
    parts: dict[str, list[_Part]] = field(default_factory=dict)
    returned: dict[Expr, Write] = field(default_factory=dict)
    across: dict[str, Expr] = field(default_factory=dict)  # sums over axes of the batch, of these values
    given: Expr | None = None  # whether a row has a column, of those that its bounds say

    def __post_init__(self) -> None:
        self.forward = [v for v in self.primal.values if isinstance(v, Read | Map | Fold)]
        self.values: list[Read | Map | Fold] = [*self.forward]
        self.made = {n: v for v in self.values for n in names_of(v)}
        self.own: set[str] = set()  # values that are made here
        self.writes = self.primal.writes
        self.varied = self._varied()
        self.known = self._known()

    # ---------------------------------------------------------------- the whole

    def gradients(self) -> Gradients:
        for write in self.writes:
            for array in self.seeds.get(write.array, ()):
                if write.guard is not None or write.join:
                    raise NotTiles(f"{write.array} is written under a condition")
                seed: Expr = Ref(self.read(array, write.index, write.value.type), write.value.type)
                self.returned[write.value] = write
                self.back(write.value, _Part(seed, frozenset(write.axes), None))
        found: dict[str, tuple[Read, Expr]] = {}
        for value in reversed(self.forward):
            name = names_of(value)[0] if not isinstance(value, Fold) else value.results[0]
            if name not in self.parts:
                continue
            seed = self.total(value, name)
            match value:
                case Read():
                    if value.array in found:
                        raise NotTiles(f"{value.array} is read in several ways")
                    found[value.array] = value, seed
                case Map():
                    self.back(value.value, _Part(self.named(seed, f"d_{name}"), frozenset(value.axes), None))
                case Fold():
                    self.back_fold(value, self.named(seed, f"d_{name}"))
        return self.apart(found)

    def back_fold(self, value: Fold, seed: Expr) -> None:
        (part,) = value.parts
        axes = frozenset((*value.axes, *value.over))
        match part:
            case Op(name="mul", args=(a, b)) if (type_ := self.held(a)) is not None and self.held(b) == type_:
                for own, other in ((a, b), (b, a)):
                    handed, inside = _Part(mul(seed, other), axes, None, type_), self.axes_of(own)
                    if not isinstance(own, Ref) and self.moves(own, self.varied):  # summed before it goes on
                        handed = _Part(self.named(self.folded(handed, inside, axes - inside, "d"), "d"), inside, None)
                    self.back(own, handed)
            case _:
                self.back(part, _Part(seed, axes, None))

    def _varied(self) -> set[str]:
        """The values that depend on what is wanted."""
        found: set[str] = set()
        for value in self.values:
            match value:
                case Read(array=array) if array in self.wanted:
                    found.add(value.name)
                case Map() if self.moves(value.value, found):
                    found.add(value.name)
                case Fold() if any(self.moves(e, found) for e in value.parts):
                    name = value.results[0]
                    if value.algebra == "sum":
                        found.add(name)
                    elif not (value.algebra in _EXTREMA and self.cancels(name)):
                        raise NotTiles(f"the gradient of {name} depends on which point is chosen", value.location)
        arrays = {e.array for v in self.values for e in self.loads(uses(v))} | {
            e.array for w in self.writes for e in self.loads((w.value,))
        }
        if arrays & self.wanted.keys():
            raise NotTiles("what is read where it is needed has a gradient")
        return found

    def loads(self, exprs: Collection[Expr]) -> list[Load]:
        return [x for e in exprs for x in walk_expr(e) if isinstance(x, Load)]

    def moves(self, e: Expr, varied: Collection[str]) -> bool:
        if e.type.category != "float":
            return False
        return e.name in varied if isinstance(e, Ref) else any([self.moves(x, varied) for x in passed_through(e)])

    def cancels(self, name: str) -> bool:
        """Whether all that has a gradient is the same whatever a value is: as the maximum that a softmax is relative to."""
        changes = Changes(name)
        for value in self.values:
            match value:
                case Map():
                    changes.set(value.name, changes.expr(value.value))
                case Fold():
                    changes.set(value.results[0], changes.folded(value.algebra, value.parts))
        return all(changes.free(w.value) for w in self.writes if self.seeds.get(w.array))

    def _known(self) -> dict[str, Read]:
        """Values that the function returned as they are."""
        found: dict[str, Read] = {}
        for w in self.writes:
            exact = isinstance(w.value, Ref) and self.function.array(self.saved[w.array]).dtype == w.value.type
            if exact and w.guard is None and isinstance(self.value(w.value), Fold):
                name = w.value.name  # type: ignore[union-attr]
                found[name] = Read(name, self.ordered(w.axes), self.saved[w.array], w.index, w.value.type, True)
        return found

    # ---------------------------------------------------------------- values

    def axes_of(self, e: Expr) -> frozenset[str]:
        graph = TileGraph("", tuple(self.chain.axes.values()), tuple(self.values), ())
        return dependence(graph).of((e,))

    def ordered(self, axes: Collection[str]) -> tuple[str, ...]:
        return tuple(a for a in self.chain.axes if a in axes)

    def add(self, value: Read | Map | Fold) -> None:
        self.values.append(value)
        self.made |= {n: value for n in names_of(value)}
        self.own |= {*names_of(value)}

    def read(self, array: str, index: tuple[Expr, ...], type_: ScalarType) -> str:
        name = self.names.fresh(array)
        self.add(Read(name, self.ordered({n for i in index for n in free_names(i)}), array, index, type_, True))
        return name

    def named(self, e: Expr, base: str) -> Expr:
        if isinstance(e, Ref | Const):
            return e
        known = next((n for n in self.own if isinstance(v := self.made[n], Map) and v.value == e), None)
        if known is not None:
            return Ref(known, e.type)
        name = self.names.fresh(base)
        self.add(Map(name, self.ordered(self.axes_of(e)), e))
        return Ref(name, e.type)

    def held(self, e: Expr) -> ScalarType | None:
        """The 16-bit type that a factor is of."""
        value = self.made.get(e.name) if isinstance(e, Ref) else None
        match value if value is not None else e:
            case Read(array=array):
                type_: ScalarType = self.function.array(array).dtype
            case Map(value=Round(to=to)) | Round(to=to):
                type_ = to
            case _:
                return None
        return type_ if type_ in (FLOAT16, BFLOAT16) else None

    # ---------------------------------------------------------------- expressions, backwards

    def back(self, e: Expr, part: _Part) -> None:
        """Hand back what an expression has to what it is made of."""
        if not self.moves(e, self.varied):
            return
        seed = part.value
        match e:
            case Ref(name=name):
                self.parts.setdefault(name, []).append(part)
            case Cast(value=value) | Round(value=value):
                self.back(value, replace(part, value=seed if seed.type == value.type else Cast(seed, value.type)))
            case Op(name="where", args=(condition, then, orelse), derivative=""):
                part = replace(part, value=self.named(seed, "d"))
                if e in self.returned:
                    self.returned[then] = self.returned[orelse] = self.returned[e]  # each where it is the result
                for side, holds in ((then, condition), (orelse, Op("not", (condition,), BOOL))):
                    self.back(side, replace(part, when=holds if part.when is None else Op("and", (part.when, holds), BOOL)))
            case Op(args=args):
                if sum(self.moves(a, self.varied) for a in args) > 1:
                    seed = self.named(seed, "d")
                known = self.result_of(e)
                chosen = taken(e, args)
                for k, (arg, handed) in enumerate(zip(args, contributions(e, seed, args, known), strict=True)):
                    if not self.moves(arg, self.varied):
                        continue
                    if is_unknown(e, k):
                        raise NotTiles(f"the derivative of {e.name} is not known")
                    if handed is None:
                        continue
                    when = part.when if chosen is None else _both(part.when, chosen[k])
                    self.back(arg, replace(part, value=handed, when=when, product=None))
            case _:
                raise NotTiles("what is read where it is needed has a gradient")

    def result_of(self, e: Expr) -> Expr:
        """An expression, by the name of the value that it is; what was returned as it was returned, rounded or not, as
        PyTorch's own derivatives take it: else all that made it would be computed again.
        """
        if (write := self.returned.get(e)) is not None:
            return Ref(self.read(self.saved[write.array], write.index, e.type), e.type)
        return next((Ref(v.name, v.type) for v in self.forward if isinstance(v, Map) and v.value == e), e)

    def total(self, value: Read | Map | Fold, name: str) -> Expr:
        """What all uses of a value hand back."""
        own, terms = frozenset(value.axes), []
        for part in self.parts[name]:
            over = part.axes - own
            terms.append(self.folded(part, own, over, f"d_{name}") if over else part.settled)
        return self.summed(terms)

    def summed(self, terms: list[Expr]) -> Expr:
        """A sum, with what all terms are multiplied or divided by outside of it."""
        if len(terms) == 1:
            return terms[0]
        factored = [self.factors(e) for e in terms]
        common = [f for f in factored[0][1] if all(f in factors for _, factors in factored)]
        total: Expr | None = None
        for negative, factors in factored:
            rest = [*factors]
            for f in common:
                rest.remove(f)
            e = _product(rest or [("mul", number(1, terms[0].type))])
            total = (neg(e) if negative else e) if total is None else sub(total, e) if negative else add(total, e)
        assert total is not None
        return _product(self.multiplied([("mul", total), *common]))

    def folded(self, part: _Part, own: frozenset[str], over: frozenset[str], base: str) -> Expr:
        """The sum of what a use hands back over the axes that it has alone."""
        across = over & {*self.chain.sums.batch}
        if across and across != over:  # all that columns have in common
            inner = self.named(self.folded(part, own | across, over - across, base), base)
            name, zero = self.names.fresh(base), number(0, inner.type)
            axes = self.ordered(self.axes_of(inner) - across)
            self.add(Fold((f"{name}_part",), (name,), axes, self.ordered(across), "sum", (inner,), (zero,)))
            self.across[name] = inner
            return Ref(name, inner.type)
        if len(over) > 1:
            raise NotTiles(f"{base} is a sum over several axes")
        negative, factors = self.factors(part.settled)
        factors = self.powers(factors, part.product)
        inside = [f for f in factors if self.axes_of(f[1]) & over]
        inside = self.multiplied(inside)
        product = self.rounded(inside, part.product) if part.product is not None else _product(inside)
        name = self.names.fresh(base)
        axes = self.ordered((self.axes_of(product) | self.axes_of_bounds(over)) - over)
        zero = number(0, product.type)
        self.add(Fold((f"{name}_part",), (name,), axes, self.ordered(over), "sum", (product,), (zero,)))
        total: Expr = Ref(name, product.type)
        outside = [f for f in factors if not self.axes_of(f[1]) & over]
        total = _product(self.multiplied([("mul", total), *outside]))
        return neg(total) if negative else total

    def multiplied(self, factors: list[_Factor]) -> list[_Factor]:
        """Factors, where what divides many points is inverted once for all of them."""
        axes = frozenset[str]().union(*(self.axes_of(e) for _, e in factors))
        found = []
        for how, e in factors:
            if how == "div" and self.axes_of(e) < axes:
                how, e = "mul", self.named(div(number(1, e.type), e), "inverse")
            found.append((how, e))
        return found

    def powers(self, factors: list[_Factor], type_: ScalarType | None) -> list[_Factor]:
        """Factors, where e^(x - m) that is divided by a sum of such, t, is 2^(x log2 e - p), p = m log2 e + log2 t: a number of
        each row, which is infinite where t is 0 and the factor 0 instead of 1 / t. type_: by which their product is rounded.
        """
        for k, (how, e) in enumerate(factors):
            own = e if type_ is None else self.exactly(e, type_)
            value = self.value(own)
            match value.value if how == "mul" and isinstance(value, Map) else own:
                case Op(name="exp", args=(Op(name="sub", args=(x, m)),), type=of) if of == FLOAT32:
                    pass
                case _:
                    continue
            of_row, of_pair = self.rows, self.axes_of(x)
            if not self.axes_of(m) <= of_row or of_pair <= of_row:
                continue
            for t in (e for how, e in factors if how == "div" and self.axes_of(e) <= of_row and self.is_positive(e)):
                rest = [f for n, f in enumerate(factors) if n != k and f != ("div", t)]
                power = add(mul(m, _LOG2_E), Op("log2", (t,), FLOAT32))
                asked = ("where", Op("ne", (t, number(0, FLOAT32)), BOOL))
                if known := asked in rest:
                    rest.remove(asked)
                    power = select(asked[1], power, _INFINITY)
                power = self.named(power, "power")
                if known and not all(how == "mul" and self.held(e) is not None for how, e in rest):
                    rest.append(("where", Op("lt", (power, _INFINITY), BOOL)))  # for 0 times an infinity
                relative = Op("exp2", (sub(self.doubling(x), power),), FLOAT32)
                return self.powers([*rest, ("mul", self.named(relative, "weight"))], type_)
        return factors

    def doubling(self, x: Expr) -> Expr:
        """x log2 e, of a product by what is the same for all as one product."""
        value = self.value(x)
        match value.value if isinstance(value, Map) else x:
            case Op(name="mul", args=(a, b)) if not self.axes_of(b):
                return mul(a, mul(b, _LOG2_E))
        return mul(x, _LOG2_E)

    def is_positive(self, e: Expr) -> bool:
        """Whether a number is a sum of exponentials, or 0."""
        value = self.value(e)
        match value.value if isinstance(value, Map) else e:
            case Op(name="exp"):
                return True
            case Op(name="add", args=(a, b)):
                return self.is_positive(a) and self.is_positive(b)
        return isinstance(value, Fold) and value.algebra == "sum" and self.is_positive(value.parts[0])

    def axes_of_bounds(self, over: Collection[str]) -> frozenset[str]:
        axes = [self.chain.axes[a] for a in over]
        return frozenset().union(*(self.axes_of(e) for a in axes for e in (a.start, a.stop)))

    def factors(self, e: Expr) -> tuple[bool, list[_Factor]]:
        """Whether a product is negative, and its factors, with what it is divided by."""
        match e:
            case Ref(name=name) if name in self.own and isinstance(value := self.made[name], Map) and _is_product(value.value):
                return self.factors(value.value)
            case Op(name="neg", args=(a,)):
                negative, found = self.factors(a)
                return not negative, found
            case Op(name="mul", args=(a, b)):
                (left, x), (right, y) = self.factors(a), self.factors(b)
                return left != right, [*x, *y]
            case Op(name="div", args=(a, b)):
                negative, found = self.factors(a)
                return negative, [*found, ("div", b)]
            case Op(name="where", args=(condition, a, Const(value=0))):
                negative, found = self.factors(a)
                return negative, [*found, ("where", condition)]
            case Const(value=1):
                return False, []
        return False, [("mul", e)]

    def rounded(self, factors: list[_Factor], type_: ScalarType) -> Expr:
        """A product with an element of an array of a 16-bit type, by whose type all else is rounded. What is rounded in the end
        is not rounded before.
        """
        exact = all(how == "mul" and self.held(e) == type_ for how, e in factors)
        halves = [(how, e) for how, e in factors if how == "mul" and self.held(e) == type_]
        read = next((f for f in halves if isinstance(self.value(f[1]), Read)), None)
        if read is None or (exact and len(factors) == 2):
            return _product(factors)
        rest = [(how, self.exactly(e, type_)) for how, e in factors if (how, e) != read]
        # what several gradients may have in common first
        own = [(how, e) for how, e in rest if how != "where" and not self.handed(e)]
        if own and len(own) < len(rest):
            rest = [("mul", self.named(_product(own), "weight")), *(f for f in rest if f not in own)]
        value = self.named(_product(rest), "weight")
        return mul(self.named(Round(value, type_), "weight"), read[1])

    def exactly(self, e: Expr, type_: ScalarType) -> Expr:
        value = self.value(e)
        whole = value.value if isinstance(value, Map) else e
        return whole.value if isinstance(whole, Round) and whole.to == type_ else e

    def handed(self, e: Expr) -> bool:
        """Whether an expression is made of what gradients of results hand back."""
        arrays = {a for own in self.seeds.values() for a in own}
        values = [self.made[n] for n in free_names(e) if n in self.made]
        return any((isinstance(v, Read) and v.array in arrays) or any(map(self.handed, uses(v))) for v in values)

    def value(self, e: Expr) -> Read | Map | Fold | None:
        return self.made.get(e.name) if isinstance(e, Ref) else None

    # ---------------------------------------------------------------- graphs

    def apart(self, found: Mapping[str, tuple[Read, Expr]]) -> Gradients:
        chain = self.chain
        sides: dict[bool, list[Write]] = {False: [], True: []}
        once: list[Write] = []  # of what all rows have in common
        arrays: list[Array] = []
        joined: dict[str, Read] = {}
        last: list[Write] = []
        for array, (read, seed) in found.items():
            if chain.row in read.axes and chain.column in read.axes:
                raise NotTiles(f"{array} has a gradient for each score")
            by_column = chain.column in read.axes
            alike = not by_column and chain.row not in read.axes
            if not all(isinstance(i, Ref) for i in read.index) or len(set(read.index)) < len(read.index):
                raise NotTiles(f"{array} is read at elements of others")
            axes = self.ordered({n for i in read.index for n in free_names(i)})
            parts = self.across.get(seed.name) if isinstance(seed, Ref) else None
            if parts is None and not {*chain.sums.batch} <= {*axes}:
                raise NotTiles(f"{array} has the same elements for all of the batch")
            write = Write(self.wanted[array], axes, read.index, self.named(seed, f"d_{array}"))
            own = once if alike else sides[by_column]
            if parts is None:
                own.append(write)
                continue
            memory, left = self.left_in_memory(parts, f"{array}_parts")
            arrays.append(memory)
            own.append(left)
            joined[parts.name] = Read(parts.name, left.axes, memory.name, left.index, parts.type, True)  # type: ignore[union-attr]
            last.append(write)
        needed = self.kept([w.value for own in sides.values() for w in own] + self.of_rows(once))
        ends = {n: t for n, t in needed.items() if self.of_lanes(self.made[n]) or not self.of_columns(self.made[n])}
        kept = {n: t for n, t in needed.items() if n not in ends}
        kept |= self.kept([e for n in ends for e in uses(self.made[n])], columns_alone=True)
        loops = [chain.axes[a].loop() for a in (*chain.sums.batch, chain.row)]
        sizes = extents(self.function, loops)
        if sizes is None:
            raise NotTiles("it is not told how many rows there are")
        before: dict[str, Write] = {}
        reads: dict[str, Read] = {**self.known}
        axes = (*chain.sums.batch, chain.row)
        index = expanded_index(sizes, [Ref(a, INT64) for a in axes])
        for name, type_ in (kept | ends).items():
            memory = expanded(self.names.fresh(f"{name}_saved"), type_, sizes)
            arrays.append(memory)
            before[name] = Write(memory.name, axes, index, Ref(name, type_))
            reads[name] = Read(name, axes, memory.name, index, type_, True)
        known = {n: r for n, r in reads.items() if n not in ends}
        graphs = [self.graph("rows", [before[n] for n in kept], {}, chain.axes)] if kept else []
        graphs += [self.graph("ends", [before[n] for n in ends], known, chain.axes)] if ends else []
        graphs += [self.graph("left", sides[False], reads, chain.axes)] if sides[False] else []
        graphs += [self.graph("once", once, reads, chain.axes)] if once else []
        right = self.asked(self.graph("right", sides[True], reads, self.turned)) if sides[True] else None
        graphs += [right] if right is not None else []
        graphs += [self.graph("joined", last, joined, self.turned)] if last else []
        return Gradients(tuple(graphs), tuple(arrays))

    def of_rows(self, writes: list[Write]) -> list[Expr]:
        """The values of rows that are summed for what all rows have in common."""
        pending, found = [w.value for w in writes], list[Expr]()
        while pending:
            for x in walk_expr(pending.pop()):
                value = self.value(x)
                if value is not None and self.chain.row not in value.axes:
                    pending += uses(value)
                elif value is not None:
                    found.append(x)
        return found

    def left_in_memory(self, value: Expr, name: str) -> tuple[Array, Write]:
        """Memory for a value of columns and lanes, an element for each of the batch, and its write."""
        axes, turned = self.ordered(self.axes_of(value)), self.turned
        sizes = extents(self.function, [turned[a].loop() for a in axes])
        if sizes is None:
            raise NotTiles(f"it is not told how many elements {name} has")
        memory = expanded(self.names.fresh(name), value.type, sizes)
        return memory, Write(memory.name, axes, expanded_index(sizes, [Ref(a, INT64) for a in axes]), value)

    def below(self, exprs: Iterable[Expr], known: Collection[str] = ()) -> set[str]:
        """The names that expressions are of, and those that values among them are made of. known: values that are there."""

        def after(name: str) -> Iterable[str]:
            return free_names_of(uses(self.made[name])) if name in self.made and name not in known else ()

        return reachable(free_names_of(exprs), after)

    def graph(self, name: str, writes: list[Write], known: Mapping[str, Read], axes: Mapping[str, Axis]) -> TileGraph:
        """A graph of all that some writes need."""
        bounds = (e for a in axes.values() for e in (a.start, a.stop))
        wanted = self.below((*(w.value for w in writes), *bounds), known)
        values = [known.get(names_of(v)[-1], v) for v in self.sorted() if wanted & {*names_of(v)}]
        used = {a for v in values for a in (*v.axes, *(v.over if isinstance(v, Fold) else ()))}
        used |= {a for w in writes for a in w.axes}
        return TileGraph(name, tuple(a for a in axes.values() if a.name in used), tuple(values), tuple(writes))

    def sorted(self) -> list[Read | Map | Fold]:
        """The values, each after those that it is made of."""
        done: dict[str, Read | Map | Fold] = {}

        def visit(value: Read | Map | Fold) -> None:
            name = names_of(value)[-1]
            if name in done:
                return
            for n in sorted({n for e in uses(value) for n in free_names(e)}):
                if n in self.made:
                    visit(self.made[n])
            done[name] = value

        for value in self.values:
            visit(value)
        return list(done.values())

    @property
    def rows(self) -> set[str]:
        return {*self.chain.sums.batch, self.chain.row}

    def of_lanes(self, value: Read | Map | Fold) -> bool:
        """Whether a value of a row is made of what is folded over its lanes."""
        if not {*value.axes} <= self.rows:
            return False
        own = isinstance(value, Fold) and value.over != (self.chain.column,)
        return own or any(self.of_lanes(self.made[n]) for e in uses(value) for n in free_names(e) if n in self.made)

    def of_columns(self, value: Read | Map | Fold) -> bool:
        """Whether a value waits for a fold over columns that nobody has returned."""
        if isinstance(value, Fold):
            return value.results[0] not in self.known and value.over == (self.chain.column,)
        return any(self.of_columns(self.made[n]) for e in uses(value) for n in free_names(e) if n in self.made)

    def kept(self, exprs: Collection[Expr], columns_alone: bool = False) -> dict[str, ScalarType]:
        """The values of a row that wait for a fold, as expressions need them. columns_alone: for one over its columns."""
        found: dict[str, ScalarType] = {}
        pending, seen = [*exprs], set[str]()
        while pending:
            e = pending.pop()
            for x in walk_expr(e):
                value = self.value(x)
                if value is None or x.name in seen or x.name in self.known:  # type: ignore[union-attr]
                    continue
                seen.add(x.name)  # type: ignore[union-attr]
                own = self.of_columns(value) if columns_alone else self.waits(value)
                if {*value.axes} <= self.rows and own and not (columns_alone and self.of_lanes(value)):
                    found[x.name] = x.type  # type: ignore[union-attr]
                else:
                    pending += uses(value)
        return found

    def waits(self, value: Read | Map | Fold) -> bool:
        if isinstance(value, Fold):
            return True
        return any(self.waits(self.made[n]) for e in uses(value) for n in free_names(e) if n in self.made)

    # ---------------------------------------------------------------- the rows of a column

    @cached_property
    def turned(self) -> dict[str, Axis]:
        """The axes with the columns before the rows: which rows have a column, instead of which columns a row has."""
        chain = self.chain
        row, column = chain.axes[chain.row], chain.axes[chain.column]
        starts, stops = _operands_of(column.start, "max"), _operands_of(column.stop, "min")
        of_data = {True: [e for e in starts if self.of_data(e)], False: [e for e in stops if self.of_data(e)]}
        starts, stops = ([e for e in own if not self.of_data(e)] for own in (starts, stops))
        if (free_names(column.start) | free_names(column.stop)) & (chain.axes.keys() - {row.name}) or not (starts and stops):
            raise NotTiles(f"the bounds of {column.name} are not the same for all of the batch")
        first, last = affine(row.start), affine(row.stop)
        if first is None or last is None:
            raise NotTiles(f"the bounds of {row.name} are no sums of sizes")
        lows, highs = list[Affine](), list[Affine]()  # of the rows
        from_, to = list[Expr](), list[Expr]()  # of the columns
        at = Affine(((column.name, 1),), 0)
        for exprs, same, up, down in ((starts, from_, highs, lows), (stops, to, lows, highs)):
            for e in exprs:
                own, rest = self._by_row(e)
                if own == 0:
                    same.append(e)
                elif own > 0:  # row + rest <= column, column < row + rest
                    up.append(at - rest + Affine((), 1))
                else:
                    down.append(rest - at)
        if not from_:
            from_ = [_at(*self._by_row(e), first, last, least=True) for e in starts]
        if not to:
            to = [_at(*self._by_row(e), first, last, least=False) for e in stops]
        to += [self.function.array(array).shape[d] for array, d in chain.looked_at]
        columns = Axis(column.name, _joined("max", from_), _joined("min", to))
        begin = [e.expr() for e in lows]
        if not (columns.start == row.start == Const(0, INT64) and begin == [Ref(column.name, INT64)]):
            begin = [row.start, *begin]
        rows = Axis(row.name, _joined("max", begin), _joined("min", [row.stop, *(e.expr() for e in highs)]))
        asked = [Op("le", (e, Ref(column.name, INT64)), BOOL) for e in of_data[True]]
        asked += [Op("lt", (Ref(column.name, INT64), e), BOOL) for e in of_data[False]]
        if asked:  # which data of each row tell: each is asked
            self.given = reduce(_both, asked, None)
        out: dict[str, Axis] = {}
        for name, axis in chain.axes.items():
            if name == row.name:
                out |= {column.name: columns, row.name: rows}
            elif name != column.name:
                out[name] = axis
        return out

    def of_data(self, e: Expr) -> bool:
        """Whether a bound of columns is of data of each row, or of its place in another way than by a sum."""
        made = free_names(e) & self.made.keys()
        if made and self.chain.row not in self.axes_of(e):
            raise NotTiles(f"the bounds of {self.chain.column} are not the same for all of the batch")
        form = affine(e)
        return bool(made) or (self.chain.row in free_names(e) and (form is None or abs(form.coefficient(self.chain.row)) > 1))

    def asked(self, graph: TileGraph) -> TileGraph:
        """A graph of columns, whose sums are of rows that have these."""
        if self.given is None:
            return graph

        def asked(value: Value) -> Value:
            if not isinstance(value, Fold) or value.over != (self.chain.row,):
                return value
            (part,) = value.parts
            return replace(value, parts=(select(self.given, part, number(0, part.type)),))  # type: ignore[arg-type]

        known = [v for v in self.sorted() if {*names_of(v)} & self.below((self.given,))]
        values = [*known, *(asked(v) for v in graph.values if v not in known)]
        axes = {a.name for a in graph.axes}
        return replace(graph, axes=tuple(a for a in self.turned.values() if a.name in axes), values=tuple(values))

    def _by_row(self, e: Expr) -> tuple[int, Affine]:
        """A bound as a multiple of the row, 1, -1 or none, and the rest."""
        form = affine(e)
        if form is None:
            raise NotTiles(f"which rows have a column is not told by {self.chain.column}'s bounds")
        own = form.coefficient(self.chain.row)
        if abs(own) > 1:
            raise NotTiles(f"the bounds of {self.chain.column} change by more than one from row to row")
        return own, Affine.make({n: c for n, c in form.terms if n != self.chain.row}, form.constant)


def _at(own: int, rest: Affine, first: Affine, last: Affine, least: bool) -> Expr:
    """The least, or the largest, of `own * row + rest` for the rows from the first to before the last."""
    row = first if (own > 0) == least else last + Affine((), -1)
    return (row * own + rest).expr()


def _both(a: Expr | None, b: Expr) -> Expr:
    return b if a is None else Op("and", (a, b), BOOL)


def _is_product(e: Expr) -> bool:
    match e:
        case Op(name="mul" | "div" | "neg") | Op(name="where", args=(_, _, Const(value=0))):
            return True
    return False


def _product(factors: list[_Factor]) -> Expr:
    total: Expr | None = None
    for how, e in sorted(factors, key=lambda f: _ORDER.index(f[0])):
        one = number(1, e.type) if total is None else total
        if how == "where":
            total = select(e, one, number(0, one.type))
        elif how == "div":
            total = div(one, e)
        else:
            total = e if total is None else mul(total, e)
    assert total is not None
    return total


def _operands_of(e: Expr, name: str) -> list[Expr]:
    """What a maximum, or a minimum, of integers is one of."""
    if isinstance(e, Op) and e.name in (name, f"{name}imum"):
        return [x for a in e.args for x in _operands_of(a, name)]
    return [e]


def _joined(name: str, exprs: list[Expr]) -> Expr:
    return reduce(lambda total, e: Op(name, (total, e), INT64), dict.fromkeys(exprs))
