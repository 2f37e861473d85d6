"""Where an element of a value is: the subscripts of what several values make together, and what each of them needs for that.

A dimension that axes of the grid or the loop cut is *joined* where its subscript is that of the tensor, which tells the tile
too; elsewhere the axes are subscripts of their own, *leading* ones, and the element is counted from the start of its tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weft.tensors.ir import LOOP, Block, Dim, Node
from weft.tensors.shapes import is_one, ordered
from weft.tensors.tiles import length, whole


@dataclass(frozen=True)
class Form:
    """leading: the axes that are subscripts of their own. joined: for each dimension, whether its subscript tells its tile."""

    leading: tuple[str, ...]
    joined: tuple[bool, ...]


@dataclass(frozen=True)
class At:
    """A subscript along a dimension: in the tensor, or in a tile of it."""

    text: str
    joined: bool = True


@dataclass(frozen=True)
class Point:
    """An element of a value. places: of the axes that are subscripts of their own."""

    places: Mapping[str, str]
    at: tuple[At, ...]


@dataclass(frozen=True)
class Text:
    """An expression in weft's language. atom: whether it binds as tightly as a name. operators: how many are in it."""

    text: str
    atom: bool = True
    operators: int = 0

    @property
    def tight(self) -> str:
        return self.text if self.atom else f"({self.text})"


@dataclass(frozen=True)
class Lowered:
    """A value as far as loops read it. at: the text of an element. before: folds that it is made of, whose loops come first."""

    dims: tuple[Dim, ...]
    form: Form
    at: Callable[[Point], Text]
    before: tuple[Fold, ...] = ()


@dataclass(frozen=True)
class Index:
    """A subscript of an operand, by those of what is made of it: of these dimensions, "{0}" and so on in the text. Along none
    it is repeated.
    """

    of: tuple[int, ...]
    text: str = "{0}"

    @property
    def plain(self) -> bool:
        return self.text == "{0}"


@dataclass(frozen=True)
class Operand:
    """A value that an operator reads. indices: the subscript of each of its dimensions, by those of what is made."""

    value: Lowered
    indices: tuple[Index, ...]

    def at(self, dims: Sequence[Dim], point: Point) -> Text:
        """The operand's element for one of what is made of it, which has these dimensions."""
        found = []
        for own, index in zip(self.value.dims, self.indices, strict=True):
            if not index.of:
                found.append(At("0", not own.cut))
            elif index.plain and own == dims[index.of[0]]:
                found.append(point.at[index.of[0]])
            else:
                texts = [_tight(point.at[d].text) for d in index.of]
                found.append(At(index.text.format(*texts), not own.cut))
        return self.value.at(Point(point.places, tuple(found)))


@dataclass(frozen=True)
class Terms:
    """What is folded. dims: of the terms, which are made of the operands; folded: those that are folded, and over_loop: whether
    the turns of the loop are, too. part: a term is an operand's element, its square, or the product of those of both.
    """

    dims: tuple[Dim, ...]
    operands: tuple[Operand, ...]
    folded: tuple[int, ...]
    part: str
    over_loop: bool = False

    def kept(self, dims: Sequence[Dim]) -> list[int | None]:
        """Of each dimension of what terms make, which of theirs it is; None for one of 1 in the place of what is folded."""
        if len(dims) == len(self.dims) - len(self.folded):
            return [d for d in range(len(self.dims)) if d not in self.folded]
        return [None if d in self.folded else d for d in range(len(dims))]


@dataclass(frozen=True)
class Fold:
    """What terms make together, a number for each element. how: "sum", "max" or "rescaled". mean: divided by how many terms;
    eps: then added to, and the root taken; inverse: and 1 divided by it. form: that of the terms. block: where it is.
    """

    name: str
    node: Node
    block: Block | None
    terms: Terms
    how: str
    mean: bool
    eps: float | None
    form: Form
    inverse: bool = False

    @property
    def by_turns(self) -> bool:
        """Whether the turns of the loop need a loop: what is folded does not go through all tiles by itself."""
        if not self.terms.over_loop or LOOP in self.form.leading:
            return self.terms.over_loop
        through = any(LOOP in self.terms.dims[d].axes and self.form.joined[d] for d in self.terms.folded)
        return not through and self.block is not None and self.block.loop > 1

    @property
    def own(self) -> Form:
        """The form of what it makes."""
        leading = tuple(a for a in self.form.leading if not (self.terms.over_loop and a == LOOP))
        kept = self.terms.kept(self.node.dims)
        fits = (d is None or self.form.joined[d] or not own.cut for d, own in zip(kept, self.node.dims, strict=True))
        return Form(leading, tuple(fits))


def along(x: Lowered, dim: int, size: int) -> Terms:
    """Elements along a dimension, or groups of neighbours of which so many stay."""
    if size == 1:
        return Terms(x.dims, (Operand(x, tuple(Index((d,)) for d in range(len(x.dims)))),), (dim,), "element")
    own = length(x.dims[dim])
    assert isinstance(own, int)
    dims = (*x.dims[:dim], Dim(size), Dim(own // size), *x.dims[dim + 1 :])
    group = Index((dim, dim + 1), f"{{0}} * {own // size} + {{1}}")
    indices = (*(Index((d,)) for d in range(dim)), group, *(Index((d + 2,)) for d in range(dim, len(x.dims) - 1)))
    return Terms(dims, (Operand(x, indices),), (dim + 1,), "element")


def broadcast(own: Sequence[Dim], dims: Sequence[Dim]) -> tuple[Index, ...]:
    """The subscripts of an operand among dimensions that it is repeated to."""
    shift = len(dims) - len(own)
    return tuple(
        Index((d + shift,)) if dim == dims[d + shift] or not is_one(dim) else Index(()) for d, dim in enumerate(own)
    )


def _tight(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def array(name: str, dims: tuple[Dim, ...], form: Form, kept: Sequence[bool]) -> Lowered:
    """What an array holds. kept: whether it has a subscript for a dimension; one at least, or leading ones."""

    def at(point: Point) -> Text:
        subscripts = [point.places[axis] for axis in form.leading]
        for dim, joined, own, keep in zip(dims, form.joined, point.at, kept, strict=True):
            if keep:
                subscripts.append(whole(dim, own.text, point.places) if joined and not own.joined else own.text)
        return Text(f"{name}[{', '.join(subscripts or ['0'])}]")

    return Lowered(dims, form, at)


def form_of(
    dims: Sequence[Dim],
    operands: Sequence[Operand],
    folded: Sequence[int] = (),
    over_loop: bool = False,
    leading: Sequence[str] = (),
) -> Form:
    """Of what is made of operands. folded: the dimensions that are folded, which go through a tile whatever their subscripts;
    one that the loop cuts goes through all of its tiles, if the loop is folded too and nothing else differs from turn to turn.
    """
    lead = {*leading}
    joined = [True] * len(dims)
    for operand in operands:
        lead |= {*operand.value.form.leading}
        for own, index, fits in zip(operand.value.dims, operand.indices, operand.value.form.joined, strict=True):
            if index.plain and index.of and own == dims[index.of[0]]:
                joined[index.of[0]] &= fits
            else:
                lead |= {*own.axes}
    turned = [d for d in folded if joined[d] and LOOP in dims[d].axes]
    for d in folded:
        lead |= {*dims[d].axes} - ({LOOP} if over_loop and turned == [d] else set())
    if over_loop and any(LOOP in dim.axes for d, dim in enumerate(dims) if d not in folded):
        lead |= {LOOP}
    kept = [d for d in range(len(dims)) if d not in folded]
    twice = {a for d in kept for e in kept if d < e for a in {*dims[d].axes} & {*dims[e].axes}}
    lead |= twice
    while True:
        apart = [d for d in kept if joined[d] and lead & {*dims[d].axes}]
        if not apart:
            return Form(ordered(lead), tuple(joined))
        for d in apart:
            joined[d] = False
            lead |= {*dims[d].axes}
