"""A tensor graph -> a function of loops in weft's language, which is then compiled like any other.

Each value that folds, and each that is used more than once, is an array that a nest of its own stores once per element; the
others are expressions. So the function has no more structure than the graph: which nests run together, in which order and cut
into which blocks is decided by the stages that all functions go through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.loops.names import fresh
from weft.tensors.elements import At, Fold, Form, Index, Lowered, Operand, Point, Terms, Text, along, array, broadcast, form_of
from weft.tensors.ir import GRID, LOOP, Block, Dim, Graph, Node
from weft.tensors.operators import ELEMENTWISE, opmath
from weft.tensors.shapes import is_one
from weft.tensors.telescoped import telescoped
from weft.tensors.tiles import exact, length, start, stop, valid, whole

_INDENT = "    "
_LETTERS = "ijklmnopqrsuvw"
_MOST_OPERATORS = 8  # in an expression; what has more is stored first
_TRANSPARENT = ("tile", "output")


def program(graph: Graph) -> str:
    """The text of the function."""
    return _Program(graph).text()


@dataclass(frozen=True)
class _Flat:
    """A node with names that are unique in the graph. block: where it is; None on whole tensors."""

    node: Node
    block: Block | None


def _flat(graph: Graph) -> tuple[list[_Flat], dict[str, str]]:
    """The nodes of a graph, those of its blocks among them; and which of them the values of the graph are."""
    found: list[_Flat] = []
    known: dict[str, str] = {}
    outputs: dict[str, list[str]] = {}
    taken = {n.name for n in graph.nodes}

    def add(node: Node, block: Block | None, names: Mapping[str, str], name: str) -> None:
        inputs = tuple(names[v] if isinstance(v, str) else v for v in node.inputs)
        found.append(_Flat(replace(node, name=name, inputs=inputs), block))

    for node in graph.nodes:
        if node.block is not None:
            tensors = iter(node.inputs)
            inside: dict[str, str] = {}
            for own in telescoped(node.block.nodes):
                name = own.name
                while name in taken:
                    name = f"{node.name}_{name}"
                taken.add(name)
                if own.operator == "tile":
                    own = replace(own, inputs=(next(tensors),))
                add(own, node.block, known if own.operator == "tile" else inside, name)
                inside[own.name] = name
            outputs[node.name] = [inside[o.name] for o in node.block.of("output")]
        elif node.operator == "result":
            (whole,) = node.inputs
            assert isinstance(whole, str)
            known[node.name] = outputs[whole][node.number("output")]
        else:
            add(node, None, known, node.name)
            known[node.name] = node.name
    return found, known


@dataclass
class _Program:
    graph: Graph
    lines: list[str] = field(default_factory=list)
    values: dict[str, Lowered] = field(default_factory=dict)

    def text(self) -> str:
        graph = self.graph
        flat, known = _flat(graph)
        outputs = [known[o] for o in graph.outputs]
        self.nodes = {f.node.name: f for f in flat}
        self.uses = self._uses(flat, outputs)
        sizes = {d.size for n in graph.inputs for d in n.dims if isinstance(d.size, str)}
        self.taken = {graph.name, *sizes, *(n.name for n in graph.inputs), *self.nodes}
        self.axes = {axis: fresh(f"b{axis}", self.taken) for axis in GRID} | {LOOP: fresh("t", self.taken)}
        letters = [c for c in _LETTERS if c not in self.taken]
        self.total = fresh("total", self.taken)
        self.letters = letters + [f"i{k}" for k in range(32) if f"i{k}" not in self.taken]
        self.device = f"{graph.inputs[0].name}.device"
        self.lines += self._sizes()
        for one in self._in_order([f for f in flat if self.uses[f.node.name]]):
            if not self._absorbed(one.node):
                self._lower(one.node, one.block)
        results = [self._returned(name, number) for number, name in enumerate(outputs)]
        parameters = ", ".join(n.name for n in graph.inputs)
        body = [*self.lines, f"return {', '.join(results)}"]
        return "\n".join([f"def {graph.name}({parameters}):", *(_INDENT + line for line in body)]) + "\n"

    def _uses(self, flat: Sequence[_Flat], outputs: Sequence[str]) -> dict[str, int]:
        """How often each value is read: what others are parts of, as often as these."""
        uses = {f.node.name: outputs.count(f.node.name) for f in flat}
        for one in reversed(flat):
            node = one.node
            read = uses[node.name] if node.operator in _TRANSPARENT else 1 + (node.operator == "rms_norm")
            for name in node.inputs:
                if isinstance(name, str) and uses[node.name]:
                    uses[name] += read
        return uses

    def _in_order(self, flat: Sequence[_Flat]) -> Iterator[_Flat]:
        """The nodes, each after its inputs, and products last of those that can come: what is done with their results is then
        known where these are made.
        """
        left = list(flat)
        done: set[str | float] = set()
        while left:
            ready = [f for f in left if all(isinstance(v, float) or v in done for v in f.node.inputs)]
            first = next((f for f in ready if not self._is_product(f.node)), ready[0])
            left.remove(first)
            done.add(first.node.name)
            yield first

    def _is_product(self, node: Node) -> bool:
        inner = self.nodes.get(str(node.inputs[0])) if node.operator == "accumulate" else None
        return node.operator == "matmul" or (inner is not None and inner.node.operator == "matmul")

    def _sizes(self) -> Iterator[str]:
        """Of the names of sizes what they are, and what else a call has to fit."""
        known: set[str] = set()
        checks = []
        for node in self.graph.inputs:
            sizes = [d.size for d in node.dims]
            new = [s for s in dict.fromkeys(sizes) if isinstance(s, str) and s not in known]
            if new == sizes and len(new) > 1:
                yield f"{', '.join(new)} = {node.name}.shape"
            else:
                yield from (f"{s} = {node.name}.shape[{sizes.index(s)}]" for s in new)
                told = [sizes.index(s) for s in new]
                checks += [f"assert {node.name}.shape[{d}] == {s}" for d, s in enumerate(sizes) if d not in told]
            known.update(new)
        yield from checks

    # ---- values

    def _lower(self, node: Node, block: Block | None) -> None:
        match node.operator:
            case "input":
                form = Form((), (True,) * len(node.dims))
                self.values[node.name] = array(node.name, node.dims, form, [True] * len(node.dims))
            case "tile":
                self.values[node.name] = _tile(self._array_of(node.inputs[0]), node)
            case "output":
                assert block is not None
                self._output(node, block)
            case "matmul" | "reduction" | "reduction_max" | "accumulate":
                self._fold(node, block)
            case "rms_norm":
                self._rms_norm(node, block)
            case "running_max":
                self._running_max(node, block)
            case "previous":
                self._previous(node, block)
            case "concat":
                self._concat(node, block)
            case _:
                self._elementwise(node, block)

    def _array_of(self, name: str | float) -> Lowered:
        """A value whose elements can be read anywhere: one that a fold makes is stored first."""
        assert isinstance(name, str)
        value = self.values[name]
        if value.before:
            node, block = self.nodes[name].node, self.nodes[name].block
            value = self.values[name] = self._stored(node, block, value)
        return value

    def _elementwise(self, node: Node, block: Block | None) -> None:
        known = ELEMENTWISE.get(node.operator)
        template = known.text if known is not None else f"{{0}}.to(torch.{node.attribute('dtype')})"
        tight = known is None or known.infix
        numbers = {name: _number(value) for name, value in node.attributes if isinstance(value, float)}
        operands: list[Operand | float] = []
        for name in node.inputs:
            if isinstance(name, str):
                value = self.values[name] if self.values[name].dims == node.dims else self._array_of(name)
                operands.append(Operand(value, broadcast(value.dims, node.dims)))
            else:
                operands.append(name)

        def text(point: Point) -> Text:
            parts = [o.at(node.dims, point) if isinstance(o, Operand) else Text(_number(o), o >= 0) for o in operands]
            texts = [p.tight if tight else p.text for p in parts]
            count = 1 + sum(p.operators for p in parts)
            return Text(template.format(*texts, **numbers), not (known and known.infix), count)

        self._expression(node, block, [o for o in operands if isinstance(o, Operand)], text)

    def _expression(
        self,
        node: Node,
        block: Block | None,
        operands: Sequence[Operand],
        text: Callable[[Point], Text],
        leading: Sequence[str] = (),
    ) -> None:
        """A value that is an expression, or an array where it is read more than once."""
        before = tuple(fold for o in operands for fold in o.value.before)
        value = Lowered(node.dims, form_of(node.dims, operands, leading=leading), text, before)
        if self.uses[node.name] > 1 or text(_somewhere(value)).operators > _MOST_OPERATORS:
            value = self._stored(node, block, value)
        self.values[node.name] = value

    def _stored(self, node: Node, block: Block | None, value: Lowered) -> Lowered:
        """An array of what an expression gives."""
        if value.before and value.before[0].node is node:  # whose name the array has
            value = _read(replace(value.before[0], name=self.total))
        ones = _multiplied(value)
        made = self._array(node, block, value.form, ones)
        nest = _Nest.of(self, block, value.form.leading)
        point = nest.over(value.dims, value.form, ones)
        nest.line(f"{made.at(point).text} = {self._text(value, nest, point)}")
        self.lines += nest.lines
        return made

    def _text(self, value: Lowered, nest: _Nest, point: Point) -> str:
        """An element of a value, after the loops of the folds that it is made of."""
        for fold in value.before:
            self._fold_lines(fold, nest, point)
        return value.at(point).text

    def _array(self, node: Node, block: Block | None, form: Form, ones: bool = False) -> Lowered:
        """A new array for a value, in the type that it is computed in. ones: with the dimensions of one element."""
        dtype = node.dtype if node.operator == "to" else opmath(node.dtype)
        kept = [ones or bool(d.cut) or d.size != 1 for d in node.dims]
        counts = {} if block is None else block.counts
        shape = [str(counts[axis]) for axis in form.leading]
        for dim, joined, keep in zip(node.dims, form.joined, kept, strict=True):
            if keep:
                shape.append(str(dim.size if joined else length(dim)))
        self._create(node.name, shape or ["1"], dtype)
        return array(node.name, node.dims, form, kept)

    def _create(self, name: str, shape: Sequence[str], dtype: str) -> None:
        sizes = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(shape)})"
        self.lines.append(f"{name} = torch.empty({sizes}, dtype=torch.{dtype}, device={self.device})")

    # ---- folds

    def _absorbed(self, node: Node) -> bool:
        """Whether a sum is read by nothing but the sum over the loop that it is a part of."""
        if not (node.operator == "matmul" or (node.operator == "reduction" and node.attribute("size") == 1)):
            return False
        readers = [f.node for f in self.nodes.values() if node.name in f.node.inputs and self.uses[f.node.name]]
        sums = [r for r in readers if r.operator == "accumulate" and r.attribute("kind") == "none"]
        return len(sums) == len(readers) == self.uses[node.name] == 1

    def _terms(self, node: Node) -> Terms:
        """What a fold folds."""
        names = [v for v in node.inputs if isinstance(v, str)]
        if node.operator == "accumulate":
            return self._accumulated(node, names)
        x = self._array_of(names[0])
        if node.operator != "matmul":
            size = dict(node.attributes).get("size", 1)
            assert isinstance(size, int)
            return along(x, node.number("dim"), size)
        other = self._array_of(names[1])
        rank = len(node.dims)  # the last dimension of the terms is folded
        batch = node.dims[:-2]
        first = (*broadcast(x.dims[:-2], batch), Index((rank - 2,)), Index((rank,)))
        second = (*broadcast(other.dims[:-2], batch), Index((rank,)), Index((rank - 1,)))
        contracted = x.dims[-1] if x.dims[-1] == other.dims[-2] else Dim(length(x.dims[-1]))
        return Terms((*node.dims, contracted), (Operand(x, first), Operand(other, second)), (rank,), "product")

    def _accumulated(self, node: Node, names: Sequence[str]) -> Terms:
        kind, inner = node.attribute("kind"), self.nodes[names[0]].node
        if self._absorbed(inner):
            return replace(self._terms(inner), over_loop=True)
        values = [self._array_of(n) for n in names]
        x = values[0]
        if kind in ("sum", "mean", "rms", "sum_to_dim"):
            size = dict(node.attributes).get("size", 1)
            assert isinstance(size, int)
            terms = along(x, len(x.dims) - 1, size)
            return replace(terms, over_loop=True, part="square" if kind == "rms" else terms.part)
        operands = tuple(Operand(v, broadcast(v.dims, x.dims)) for v in values)
        return Terms(x.dims, operands, (), "element", over_loop=True)

    def _fold(self, node: Node, block: Block | None) -> None:
        terms = self._terms(node)
        if node.operator == "accumulate" and not terms.folded and block is not None and block.loop == 1:  # of one turn, itself
            operand = terms.operands[0]
            self._expression(node, block, [operand], lambda point: operand.at(node.dims, point))
            return
        kind = node.attribute("kind") if node.operator == "accumulate" else node.operator
        how = "max" if kind in ("max", "reduction_max") else "rescaled" if kind == "rescaled_sum" else "sum"
        eps = node.attribute("eps") if kind == "rms" else None
        assert eps is None or isinstance(eps, float)
        value = self._folded(node, block, terms, how, kind in ("mean", "rms"), eps)
        self.values[node.name] = self._stored(node, block, value) if self.uses[node.name] > 1 else value

    def _folded(
        self,
        node: Node,
        block: Block | None,
        terms: Terms,
        how: str,
        mean: bool,
        eps: float | None,
        inverse: bool = False,
    ) -> Lowered:
        """What terms make together, where it is read."""
        form = form_of(terms.dims, terms.operands, terms.folded, terms.over_loop)
        return _read(Fold(node.name, node, block, terms, how, mean, eps, form, inverse))

    def _fold_lines(self, fold: Fold, nest: _Nest, point: Point) -> None:
        """The loops of a fold, for an element of what it makes."""
        terms, total = fold.terms, fold.name
        at: list[At] = [At("0")] * len(terms.dims)
        for k, d in enumerate(terms.kept(fold.node.dims)):
            if d is not None:
                at[d] = point.at[k] if fold.node.dims[k] == terms.dims[d] else At(point.at[k].text, False)
        nest.line(f"{total} = {self._first(fold)}")
        inner = nest.within(fold.block)
        if fold.by_turns:
            inner.turn(LOOP)
        for d in terms.folded:
            at[d] = inner.fold(terms.dims[d], fold.form.joined[d])
        parts = [o.at(terms.dims, Point(inner.places, tuple(at))) for o in terms.operands]
        first, last = parts[0], parts[-1]
        part = first.text if terms.part == "element" else f"{first.tight} * {last.tight}"
        if fold.how == "max":
            inner.line(f"{total} = torch.maximum({total}, {part})")
        elif fold.how == "rescaled":
            inner.line(f"{total} = {total} * {last.tight} + {first.tight}")
        else:
            inner.line(f"{total} += {part}")
        if fold.mean:
            value = f"{total} / {_count(terms, nest.places, fold.block)}"
            root = "rsqrt" if fold.inverse else "sqrt"
            value = value if fold.eps is None else f"torch.{root}({value} + {_number(fold.eps)})"
            nest.line(f"{total} = {value}")

    def _first(self, fold: Fold) -> str:
        """What a fold starts with: a tensor where that may be all it has, since functions take no number of Python's."""
        dtype = opmath(fold.node.dtype)
        if fold.how == "max":
            return _scalar(-math.inf, dtype, self.device)
        dims = [fold.terms.dims[d] for d in fold.terms.folded]
        return "0.0" if all(exact(d) and isinstance(d.size, int) for d in dims) else _scalar(0.0, dtype, self.device)

    def _rms_norm(self, node: Node, block: Block | None) -> None:
        x = self._array_of(node.inputs[0])
        terms = replace(along(x, len(x.dims) - 1, 1), part="square")
        root = replace(node, name=fresh(f"{node.name}_rms", self.taken), dims=(*node.dims[:-1], Dim(1)))
        eps = node.attribute("eps")
        assert isinstance(eps, float)
        below = self._stored(root, block, self._folded(root, block, terms, "sum", True, eps, inverse=True))
        operands = [Operand(v, broadcast(v.dims, node.dims)) for v in (x, below)]

        def text(point: Point) -> Text:
            left, right = (o.at(node.dims, point) for o in operands)
            return Text(f"{left.tight} * {right.tight}", False, 1 + left.operators)

        self._expression(node, block, operands, text)

    # ---- turns

    def _running_max(self, node: Node, block: Block | None) -> None:
        x = self._array_of(node.inputs[0])
        form = form_of(x.dims, [Operand(x, broadcast(x.dims, x.dims))], leading=(LOOP,))
        own = Form(form.leading, tuple(j or not d.cut for j, d in zip(form.joined, node.dims, strict=True)))
        made = self._array(node, block, own)
        nest = _Nest.of(self, block, tuple(a for a in own.leading if a != LOOP))
        outer = nest.over(node.dims, own)
        total = self.total
        nest.line(f"{total} = {_scalar(-math.inf, opmath(node.dtype), self.device)}")
        nest.turn(LOOP)
        at = tuple(
            a if d == e else At(a.text, False) for a, d, e in zip(outer.at, node.dims, x.dims, strict=True)
        )
        nest.line(f"{total} = torch.maximum({total}, {x.at(Point(nest.places, at)).text})")
        nest.line(f"{made.at(Point(nest.places, outer.at)).text} = {total}")
        self.lines += nest.lines
        self.values[node.name] = made

    def _previous(self, node: Node, block: Block | None) -> None:
        x = self._array_of(node.inputs[0])
        operand = Operand(x, broadcast(x.dims, node.dims))
        first = _number(node.attribute("first"))

        def text(point: Point) -> Text:
            turn = point.places[LOOP]
            before = operand.at(node.dims, Point({**point.places, LOOP: f"({turn} - 1)"}, point.at))
            return Text(f"{first} if {turn} == 0 else {before.text}", False, 1 + before.operators)

        self._expression(node, block, [operand], text, leading=(LOOP,))

    # ---- side by side

    def _concat(self, node: Node, block: Block | None) -> None:
        along = node.number("dim")
        a, b = (self._array_of(v) for v in node.inputs)
        before = length(a.dims[along])
        wide = "double" if opmath(node.dtype) == "float64" else "float"
        plain = [Index((d,)) for d in range(len(node.dims))]
        shifted = [Index((d,), f"{{0}} - {before}") if d == along else i for d, i in enumerate(plain)]
        operands = (Operand(a, tuple(plain)), Operand(b, tuple(shifted)))

        def text(point: Point) -> Text:
            left, right = (o.at(node.dims, point) for o in operands)
            chosen = f"{left.tight}.{wide}() if {point.at[along].text} < {before} else {right.tight}.{wide}()"
            return Text(chosen, False, 1 + left.operators + right.operators)

        self._expression(node, block, operands, text)

    # ---- tensors

    def _output(self, node: Node, block: Block) -> None:
        """What the tiles of all blocks make: the same value where subscripts tell the block."""
        (name,) = node.inputs
        assert isinstance(name, str)
        value = self.values[name]
        mapped = zip(GRID, node.integers("output_map"), strict=False)
        along = {dim: axis for axis, dim in mapped if dim >= 0 and block.counts[axis] > 1}
        operand = Operand(value, broadcast(value.dims, value.dims))
        apart = [a for dim, a in along.items() if value.dims[dim].axes != (a,)]
        apart += [a for dim, own in enumerate(value.dims) for a in own.axes if along.get(dim) != a]
        form = form_of(value.dims, [operand], leading=apart)
        if not form.leading:

            def text(point: Point) -> Text:
                return value.at(Point({}, point.at))

            made = Lowered(node.dims, Form((), (True,) * len(node.dims)), text, value.before)
            self.values[node.name] = made if self.uses[node.name] == 1 else self._stored(node, block, made)
            return
        made = self._array(node, None, Form((), (True,) * len(node.dims)))
        nest = _Nest.of(self, block, form.leading)
        point = nest.over(value.dims, form)
        places = []
        for dim, own, at in zip(range(len(value.dims)), value.dims, point.at, strict=True):
            if own.cut and at.joined or dim not in along:
                places.append(At(at.text))
            else:
                spread = Dim(node.dims[dim].size, ((along[dim], block.counts[along[dim]]),))
                first = start(spread, nest.places)
                places.append(At(first if at.text == "0" else f"{first} + {at.text}"))
        nest.line(f"{made.at(Point({}, tuple(places))).text} = {self._text(value, nest, point)}")
        self.lines += nest.lines
        self.values[node.name] = made

    def _returned(self, name: str, number: int) -> str:
        """The name of an array that the function returns."""
        node, value = self.nodes[name].node, self.values[name]
        result = fresh("result" if len(self.graph.outputs) == 1 else f"result_{number}", self.taken)
        self._create(result, [str(d.size) for d in node.dims], node.dtype)
        nest = _Nest(self, None)
        form = Form((), (True,) * len(node.dims))
        point = nest.over(node.dims, form, _multiplied(value))
        made = array(result, node.dims, form, [True] * len(node.dims))
        nest.line(f"{made.at(point).text} = {self._text(value, nest, point)}")
        self.lines += nest.lines
        return result


# ---------------------------------------------------------------- nests


@dataclass
class _Nest:
    """Loops around each other, as lines."""

    program: _Program
    block: Block | None
    lines: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    depth: int = 0
    used: int = 0

    @staticmethod
    def of(program: _Program, block: Block | None, leading: Sequence[str]) -> _Nest:
        """Loops over axes that are subscripts of their own."""
        nest = _Nest(program, block)
        for axis in leading:
            nest.turn(axis)
        return nest

    def line(self, text: str) -> None:
        self.lines.append(_INDENT * self.depth + text)

    def loop(self, name: str, bounds: str) -> None:
        self.line(f"for {name} in range({bounds}):")
        self.depth += 1

    def turn(self, axis: str) -> None:
        assert self.block is not None
        name = self.program.axes[axis]
        self.loop(name, str(self.block.counts[axis]))
        self.places[axis] = name

    def within(self, block: Block | None) -> _Nest:
        """The inside of the innermost loop, for loops that end before what comes after. block: whose axes these go over."""
        return replace(self, block=block, places={**self.places})

    def letter(self) -> str:
        self.used += 1
        return self.program.letters[self.used - 1]

    def over(self, dims: Sequence[Dim], form: Form, ones: bool = False) -> Point:
        """Loops over all elements. ones: over a single one too."""
        at = []
        for dim, joined in zip(dims, form.joined, strict=True):
            if (dim == Dim(1) and not ones) or (is_one(dim) and not joined):
                at.append(At("0", joined))
                continue
            name = self.letter()
            self.loop(name, str(dim.size) if joined else valid(dim, self.places))
            at.append(At(name, joined))
        return Point(self.places, tuple(at))

    def fold(self, dim: Dim, joined: bool) -> At:
        """A loop over what is folded along a dimension: a tile, or all tiles of the axes that have no places."""
        if dim == Dim(1) or (is_one(dim) and not joined):
            return At("0", joined)
        name = self.letter()
        if not joined:
            self.loop(name, valid(dim, self.places))
            return At(name, False)
        first, last = start(dim, self.places), stop(dim, self.places)
        self.loop(name, f"{first}, {last}" if first else last)
        return At(name)


def _count(terms: Terms, places: Mapping[str, str], block: Block | None) -> str:
    """How many elements a mean is of, as text: of all tiles along axes that have no places."""
    (d,) = terms.folded
    dim = terms.dims[d]
    turns = block.loop if block is not None and terms.over_loop and LOOP not in dim.axes else 1
    if exact(dim) and isinstance(dim.size, int):
        left = dim.size * turns
        for axis, parts in dim.cut:
            left //= parts if axis in places else 1
        return str(left)
    first, last = start(dim, places), stop(dim, places)
    count = f"max(1, {last} - ({first}))" if first else f"max(1, {last})"
    return count if turns == 1 else f"({count} * {turns})"


def _tile(tensor: Lowered, node: Node) -> Lowered:
    """A tile of a tensor, which is the tensor at other subscripts."""

    def text(point: Point) -> Text:
        at = (a.text if a.joined else whole(d, a.text, point.places) for d, a in zip(node.dims, point.at, strict=True))
        return tensor.at(Point({}, tuple(map(At, at))))

    return Lowered(node.dims, Form((), (True,) * len(node.dims)), text)


def _read(fold: Fold) -> Lowered:
    """What a fold makes, as the number that its loops leave."""

    def text(_: Point) -> Text:
        return Text(fold.name)

    return Lowered(fold.node.dims, fold.own, text, (fold,))


def _multiplied(value: Lowered) -> bool:
    """Whether a value is made of products: a single row of these is one of a plan's rows only where it is looped over."""
    return any(f.terms.part == "product" for f in value.before)


def _somewhere(value: Lowered) -> Point:
    """A point of a value, to see how long its text is."""
    places = {axis: axis for axis in (*GRID, LOOP)}
    return Point(places, tuple(At("0", joined) for joined in value.form.joined))


def _scalar(value: float, dtype: str, device: str) -> str:
    return f"torch.full((), {_number(value)}, dtype=torch.{dtype}, device={device})"


def _number(value: object) -> str:
    assert isinstance(value, float)
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    return repr(value)
