"""What texts of tile graphs have in common: the places of axes, the values that are needed, what data decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from weft.emit.cpp_body import Body
from weft.emit.expressions import SUM
from weft.emit.subscripts import affine, simplify, sub
from weft.graph.tile import Axis, Carried, Map, Read, Scan, Value, Write, names_of, uses
from weft.loops.affine import is_bound
from weft.loops.ir import ZERO as ZERO
from weft.loops.ir import Carry, Const, Expr, If, Let, Load, Ref, Stmt, Store, free_names
from weft.loops.types import INT64
from weft.plan.fold import PACKET_BYTES

# At the end of a kernel.
TRAP = "if (outside) __trap();  // a subscript or a value that the data decide is out of its range"


def deciding(axes: Mapping[str, Axis], given: Sequence[Value]) -> frozenset[str]:
    """The names of a graph that data decide, or that are no sums of axes and sizes."""
    values = {n for v in given for n in names_of(v)}
    found: set[str] = set()
    for axis in axes.values():
        if not all(is_bound(e, free_names(e) - values) for e in (axis.start, axis.stop)):
            found.add(axis.name)
    for value in given:
        told = isinstance(value, Map) and value.type == INT64
        if not told or not affine(simplify(value.value), free_names(value.value) - found):  # type: ignore[union-attr]
            found |= set(names_of(value))
    return frozenset(found)


@dataclass
class ValueBody(Body):
    """Statements over the values and axes of a graph. values: in order. leaves: values that are there, whatever they are made
    of.
    """

    axes: Mapping[str, Axis] = field(default_factory=dict)
    values: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.printer = replace(self.printer, fuses=True)
        self.known_below = {a.name: a.segment.limits for a in self.axes.values() if a.segment is not None}
        self.made = {n: v for v in self.values for n in names_of(v)}
        self.leaves: set[str] = set()

    def places(self, axes: Sequence[Axis], position: str, counts: dict[str, str], const: str = "const ") -> None:
        """The coordinates of a place in the order of some axes, the last the fastest. const: what they are declared as."""
        lines, rest = [], position
        for k in range(len(axes) - 1, -1, -1):
            own = f"{rest} % {counts[axes[k].name]}" if k else rest
            start = self.printer.index(axes[k].start, SUM)
            if start.startswith("-"):  # a place may be counted in 32 bits, without signs
                own = f"int64_t({own})"
            lines.append(f"{const}int64_t {self.declare(axes[k].name)} = {own if start == '0' else f'{start} + {own}'};")
            rest = f"{rest} / {counts[axes[k].name]}"
        for text in reversed(lines):
            self.writer.line(text)

    def span(self, axis: Axis, wanted: str) -> str:
        """How many points an axis has, as a name or a number."""
        stop = self.printer.index(axis.stop, SUM)
        if axis.start == ZERO and (isinstance(axis.stop, Const) or self.is_size(axis.stop)):
            return stop
        name = self.fresh.fresh(wanted)
        self.writer.line(f"const int64_t {name} = weft::maximum<int64_t>({self.printer.index(sub(axis.stop, axis.start))}, 0);")
        return name

    def is_size(self, e: Expr) -> bool:
        return isinstance(e, Ref) and any(s.name == e.name for s in self.function.sizes)

    def needed(self, exprs: Iterable[Expr]) -> list[Any]:  # of the kinds that `values` has
        """The values that expressions need, in order; not what carried ones are made of at their points."""
        pending = [n for e in exprs for n in free_names(e)]
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name in self.axes:
                pending += [n for e in (self.axes[name].start, self.axes[name].stop) for n in free_names(e)]
            if name in found or name in self.leaves or name not in self.made:
                continue
            found.add(name)
            value = self.made[name]
            pending += [n for e in (value.inits if isinstance(value, Carried) else uses(value)) for n in free_names(e)]
        return [v for v in self.values if set(names_of(v)) & found]

    @contextmanager
    def spelled(self, names: Mapping[str, str]) -> Iterator[None]:
        """Names of the graph are spelled so for a while."""
        others = {n: self.names.get(n) for n in names}
        self.names |= names
        yield
        for n, spelling in others.items():
            if spelling is None:
                del self.names[n]
            else:
                self.names[n] = spelling

    def let(self, value: Read | Map) -> Let:
        if isinstance(value, Read):
            if value.name not in self.names:
                wanted = f"{value.name}_value" if value.name in self.arrays else value.name
                self.names[value.name] = self.fresh.fresh(wanted)
            return Let(value.name, Load(value.array, value.index, value.type), value.location)
        return Let(value.name, value.value, value.location)

    def write(self, w: Write) -> None:
        store = Store(w.array, w.index, w.value, w.location)
        self.statements((store,) if w.guard is None else (If(w.guard, (store,), (), (), w.location),))

    def stop_outside(self, mark: int) -> None:
        """Stop a kernel, at its end, where data have decided what is out of its range. mark: where its statements begin."""
        if self.writer.mentions("outside", mark):
            self.writer.insert(mark, "int64_t outside = 0;")
            self.writer.line(TRAP)

    def statements_of(self, exprs: Sequence[Expr], writes: Iterable[Write] = ()) -> tuple[Stmt, ...]:
        """What expressions and writes need, and these, as statements: from them it is told what all have in common."""
        lets = [self.let(v) for v in self.needed(exprs) if not isinstance(v, Carried)]
        return (*lets, *(Let("", e) for e in exprs), *(Store(w.array, w.index, w.value) for w in writes))

    def advance_states(self, scans: Iterable[Scan]) -> None:
        """Go on to the states after a point."""
        self.advance(
            tuple(Carry(n, i, e, r) for s in scans for n, i, e, r in zip(s.names, s.inits, s.nexts, s.results, strict=True))
        )

    # ---------------------------------------------------------------- packets

    def width(self, array: str, vector: int) -> int:
        """How many elements one instruction moves, of `vector` neighbours."""
        return min(self.facts.vector(array), vector, PACKET_BYTES // self.function.array(array).dtype.size)

    def address(self, array: str, index: tuple[Expr, ...]) -> str:
        pointer, hoisted = self.pointers.get(array, (self.arrays[array], frozenset()))
        return f"{pointer} + {self.offset(array, index, hoisted)}"
