"""What an expression of the language evaluates to while a function is parsed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from weft.errors import Location
from weft.language.sharing import Slot
from weft.language.source import Source
from weft.loops.affine import affine
from weft.loops.ir import Const, Expr, Op, Ref, free_names, substitute
from weft.loops.types import BOOL, COMPLEX128, FLOAT64, INT64, ScalarType, Typed

_MOST_PLACES = 8  # elements that one value may be a view of, and that are told apart


@dataclass(frozen=True)
class Alias:
    """Which objects of the plain Python a scalar that is a tensor there may be; one that has no Alias is a new one.

    arrays: it may be a view of an element of these. index: of which, where it certainly is one. places: the elements that it
    may be, of which array at which subscript (weft.language.places), where it may be one of a few; None where it may be any.
    names: it may be what these mean; sure: it is what that one means. number: it may be a Python number.
    """

    arrays: frozenset[str] = frozenset()
    index: tuple[Expr, ...] | None = None
    places: frozenset[tuple[str, tuple[Expr, ...]]] | None = None
    names: frozenset[Slot] = frozenset()
    sure: bool = False
    number: bool = False

    @property
    def elements(self) -> frozenset[tuple[str, tuple[Expr, ...]]] | None:
        """The elements that it may be a view of; None where they may be any of `arrays`."""
        if self.index is not None:
            return frozenset((array, self.index) for array in self.arrays)
        return self.places if self.arrays else frozenset()


@dataclass(frozen=True)
class Scalar:
    """A number or one element of a tensor: an expression of the register type of `typed`.

    mixed: where it is a value of one kind on one path and of another kind on another, what it is on each; `typed` is
    then the type that both have in common, and `expr` the value converted to it. exact: the value in double precision, where
    it may be a number that `expr` has rounded to what elements compute in. number: where an element of float16 or bfloat16
    is a Python number instead, which other operands are not rounded for; an integer that has it is passed as a number, and
    not rounded itself. converted: an element without dimensions that PyTorch converts to the dtype of what it meets, as it
    does those with dimensions.
    """

    expr: Expr
    typed: Typed
    alias: Alias | None = field(default=None, compare=False)
    mixed: Mixed | None = None
    exact: Expr | None = None
    number: Number | None = None
    converted: bool = False

    @property
    def constant(self) -> bool | int | float | None:
        """The value of a real Python number known while parsing, else None."""
        return self.expr.value if isinstance(self.expr, Const) and self.typed.weight == 0 else None

    @property
    def objects(self) -> Alias:
        """Which objects of the plain Python it may be."""
        return self.alias or Alias(number=self.typed.weight == 0)


def one_of(*values: Scalar) -> Alias | None:
    """Which objects a value that is one of these may be; None where it is a number or a new tensor."""
    return any_of(*(v.objects for v in values)) if any(v.typed.weight for v in values) else None


def any_of(first: Alias, *rest: Alias) -> Alias | None:
    if all(a == first for a in rest):
        return None if first == Alias() else first
    every = (first, *rest)
    elements = [a.elements for a in every]
    places = frozenset().union(*(e for e in elements if e is not None))
    return Alias(
        frozenset().union(*(a.arrays for a in every)),
        places=places if None not in elements and 0 < len(places) <= _MOST_PLACES else None,
        names=frozenset().union(*(a.names for a in every)),
        number=any(a.number for a in every),
    )


@dataclass(frozen=True)
class Mixed:
    """`then` where `test` holds, else `orelse`: scalars of kinds that arithmetic tells apart (weft.language.kinds).

    test None: which of them it is is not computed, and both are conversions of the common value, without loss. name:
    the name of the user's that a loop carries so.
    """

    test: Expr | None
    then: Scalar
    orelse: Scalar
    name: str = ""


@dataclass(frozen=True)
class Number:
    """Where what counts as an element is a Python number: on which paths. test None: it is not computed; name: that of what a
    loop carries so. held: the element's type has every such number, so that a comparison does not round it.
    """

    test: Expr | None
    held: bool = False
    name: str = ""


@dataclass(frozen=True)
class View:
    """A tensor that is (a view of) an array; storing into it stores into the array. dims: its sizes, int64. axes: for each
    axis of the array, the subscript of the view's element at `place(0), place(1), ...`.

    A tensor of complex numbers is a view of an array of their parts, whose last axis, of size 2, it has the subscript PARTS of.
    copied: it may as well be a copy, as strides will have it (`contiguous`), so that it is good for reading, until a store.
    conjugate: its elements are the conjugates of those that the array holds; it is then `copied`.
    inside: what says at run time that the subscripts which made it were inside what they were subscripts of.
    """

    array: str
    dtype: ScalarType
    dims: tuple[Expr, ...]
    axes: tuple[Expr, ...]
    copied: bool = False
    inside: Expr | None = None
    conjugate: bool = False

    @property
    def typed(self) -> Typed:
        return Typed(self.dtype, 2 if self.dims else 1)

    def index(self, at: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The subscript in the array of the view's element `at`."""
        return tuple(at_places(axis, at) for axis in self.axes)

    def is_whole(self) -> bool:
        """Whether this is the array itself, not a part or a permutation of it."""
        own = places(len(self.dims))
        return self.axes == ((*own, PARTS) if self.is_complex else own) and not self.conjugate

    @property
    def is_complex(self) -> bool:
        return self.dtype.category == "complex"


@dataclass(frozen=True, eq=False)
class Computed:
    """A tensor-valued expression: `element(index)` is its element, an expression of the register type of `typed`.

    loops: computing an element emits a loop (a reduction), so that no element should be computed twice.
    """

    dims: tuple[Expr, ...]
    typed: Typed
    element: Callable[[tuple[Expr, ...]], Expr]
    loops: bool = False


@dataclass(frozen=True)
class Tuple:
    """A Python tuple, a list (`mutable`), a shape."""

    items: tuple[Any, ...]
    mutable: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Static:
    """A value known while parsing: None, a string, a dtype (ScalarType), a Module, a Known, an ellipsis."""

    value: Any


@dataclass(frozen=True)
class Scope:
    """The names of a function around another: what they mean now, and which of them it binds somewhere."""

    environment: dict[str, Value]
    local: frozenset[str]


@dataclass(frozen=True, eq=False)
class Helper:
    """A function of the user's.

    enclosing: the functions around it, innermost first. defaults: the values that its parameters had by default when
    a def or lambda inside another function was executed.
    """

    source: Source
    enclosing: tuple[Scope, ...] = ()
    defaults: tuple[tuple[str, Value], ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Helper):
            return NotImplemented
        return self.source.where == other.source.where and self.defaults == other.defaults

    def __hash__(self) -> int:
        return hash(self.source.where)


@dataclass(frozen=True)
class Method:
    """`value.name`, about to be called."""

    value: Any
    name: str


@dataclass(frozen=True)
class Loop:
    """A loop that is open while its body is emitted."""

    var: str
    start: Expr
    stop: Expr
    step: int


@dataclass(frozen=True)
class Range:
    """`range(start, stop, step)`. once: it is the iterator that `reversed` gives."""

    start: Expr
    stop: Expr
    step: int
    once: bool = False


@dataclass(frozen=True, eq=False)
class Sequence:
    """What zip, enumerate and the rows of a tensor are to a loop: `item(k)` for k from 0 while k < count.

    once: it is an iterator, which runs out; a range whose step is no constant is none.
    """

    count: Expr
    item: Callable[[Expr], Value]
    once: bool = True


@dataclass(frozen=True)
class Unset:
    """A name without a usable value, and why. stale: it had one, which a store changed since."""

    why: str
    remedy: str
    location: Location | None = field(default=None, compare=False)
    stale: bool = False


@dataclass(frozen=True)
class Pending:
    """What a name means on paths where nothing will read it: the result, before a return gives it a value."""


Tensor = View | Computed
Value = Scalar | View | Computed | Tuple | Static | Helper | Method | Range | Sequence | Pending | Unset

TWO = Const(2, INT64)
# The subscript of both parts of a complex number, as accesses to it have it until weft.language.pairs makes two of each.
PARTS = Ref("both parts", INT64)
NUMBER_TYPES = {bool: BOOL, int: INT64, float: FLOAT64, complex: COMPLEX128}


def number(value: bool | int | float | complex) -> Scalar:
    """A Python number."""
    type_ = NUMBER_TYPES[type(value)]
    if isinstance(value, complex):
        return Scalar(Op("complex", (Const(value.real, FLOAT64), Const(value.imag, FLOAT64)), type_), Typed(type_, 0))
    return Scalar(Const(value, type_), Typed(type_, 0))


def integer(expr: Expr) -> Scalar:
    """A Python int that is known when the function runs."""
    return Scalar(tidy(expr), Typed(INT64, 0))


def tidy(expr: Expr) -> Expr:
    """Index arithmetic in its normal form where it is affine, else as it is."""
    if isinstance(expr, (Const, Ref)) or expr.type != INT64:
        return expr
    form = affine(expr)
    return expr if form is None else form.expr()


@functools.cache
def place(dim: int) -> Ref:
    """What stands for the subscript of a dimension where the element at any subscripts is described."""
    return Ref(f"@{dim}", INT64)


def places(rank: int) -> tuple[Expr, ...]:
    return tuple(map(place, range(rank)))


def at_places(expr: Expr, at: tuple[Expr, ...]) -> Expr:
    """An expression with these subscripts in their places."""
    if not isinstance(expr, Ref):
        return tidy(substitute(expr, {f"@{k}": e for k, e in enumerate(at)}))
    return at[int(expr.name[1:])] if expr.name.startswith("@") else expr


def has_place(expr: Expr) -> bool:
    return any(name.startswith("@") for name in free_names(expr))


def difference(a: Expr, b: Expr) -> int | None:
    """a - b where it is a constant, else None."""
    left, right = affine(a), affine(b)
    if left is None or right is None:
        return 0 if a == b else None
    delta = left - right
    return None if delta.terms else delta.constant


def whole(array: str, dtype: ScalarType, dims: tuple[Expr, ...]) -> View:
    """The view of a whole array. dims: its sizes, of complex numbers without that of their parts."""
    own = places(len(dims))
    return View(array, dtype, dims, (*own, PARTS) if dtype.category == "complex" else own)


def select(view: Tensor, dims: tuple[Expr, ...], axes: tuple[Expr, ...]) -> Tensor:
    """The tensor of sizes `dims` whose element at `place(0), ...` is the one of `view` at the subscripts `axes`."""
    if isinstance(view, Computed):
        source = view
        return Computed(
            dims,
            Typed(view.typed.scalar, 2 if dims else 1),
            lambda at: source.element(tuple(at_places(axis, at) for axis in axes)),
            view.loops,
        )
    return replace(view, dims=dims, axes=tuple(at_places(axis, axes) for axis in view.axes))


def each(value: Value, change: Callable[[Value], Value]) -> Value:
    """A value with `change` done to it, or to what it holds; the same object where nothing changed, and what has no value
    any more in place of what holds it.
    """
    if not isinstance(value, (Tuple, Helper)):
        return change(value)
    before = held_by(value)
    after = tuple(each(item, change) for item in before)
    if all(a is b for a, b in zip(after, before, strict=True)):
        return value
    unset = next((item for item in after if isinstance(item, Unset)), None)
    if unset is not None:
        return unset
    if isinstance(value, Tuple):
        return replace(value, items=after)
    return replace(value, defaults=tuple(zip((n for n, _ in value.defaults), after, strict=True)))


def held_by(value: Tuple | Helper) -> tuple[Value, ...]:
    return value.items if isinstance(value, Tuple) else tuple(v for _, v in value.defaults)


def contents(value: Value) -> Iterator[Value]:
    """The value, or what it holds."""
    if not isinstance(value, (Tuple, Helper)):
        yield value
        return
    for item in held_by(value):
        yield from contents(item)


def mentions(value: Value, array: str) -> bool:
    """Whether a value is, or holds, a view of the array or of one of its elements."""
    match value:
        case View():
            return value.array == array
        case Scalar():
            return array in value.objects.arrays
        case Tuple() | Helper():
            return any(mentions(item, array) for item in contents(value))
    return False


def describe(value: object) -> str:
    """What a value is, for errors."""
    match value:
        case Scalar(typed=Typed(scalar=scalar, weight=0)):
            return {"bool": "a bool", "int": "an int", "float": "a float", "complex": "a complex number"}[scalar.category]
        case Scalar(typed=Typed(scalar=scalar)):
            return f"one {scalar} element"
        case View(dims=dims) | Computed(dims=dims):
            return f"a tensor of {len(dims)} dimension{'s' * (len(dims) != 1)}"
        case Tuple():
            return "a tuple"
        case Helper(source=source):
            return f"the function {source.name}"
        case Method(name=name):
            return f"the method {name}"
        case Range(once=True) | Sequence(once=True):
            return "an iterator"
        case Range() | Sequence():
            return "a range"
        case Static(value=None):
            return "None"
        case Static(value=ScalarType() as dtype):
            return f"the dtype torch.{dtype}"
        case Static(value=inner):
            return getattr(inner, "name", None) or repr(inner)
    return type(value).__name__
