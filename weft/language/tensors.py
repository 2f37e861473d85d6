"""Tensor-valued expressions as implied loops: broadcasting, elementwise functions, reductions, products, stores."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from weft.errors import NumberOverflow, ShapeMismatch, TypeMismatch, UnsupportedSyntax
from weft.language import arithmetic, bounds, checks, overlaps
from weft.language.arithmetic import as_type, operate
from weft.language.builder import Builder
from weft.language.kinds import cast, converted, leaves, low_and_high, storable
from weft.language.values import Alias, Computed, Scalar, Tensor, Value, View, describe, number, place, places, select
from weft.loops.ir import ONE, ZERO, Carry, Const, Expr, Ref, Stmt, Store, statement_exprs, walk, walk_expr
from weft.loops.ir import Load as LoadExpr
from weft.loops.types import BOOL, INT64, UINT8, ScalarType, Typed

ScalarFunction = Callable[..., Scalar]


def element(builder: Builder, value: Tensor | Scalar, at: tuple[Expr, ...]) -> Scalar:
    """One element of a tensor, or a scalar itself; `at` counts from the last dimension (leading ones are broadcast)."""
    if isinstance(value, Scalar):
        return value
    rank = len(value.dims)
    own = tuple(ZERO if d == ONE else i for d, i in zip(value.dims, at[len(at) - rank :], strict=True))
    if isinstance(value, View):
        index = None if value.copied else value.index(own)
        read = bounds.checked(builder.load(value, own), value.inside, builder)
        found = Scalar(read, value.typed, Alias(frozenset((value.array,)), index))
        return replace(arithmetic.conjugate(found), alias=found.alias) if value.conjugate else found
    return Scalar(value.element(own), value.typed)


def scalar_of(builder: Builder, value: Value) -> Scalar | None:
    """The value as one scalar where it is a number or a tensor without dimensions."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, (View, Computed)) and not value.dims:
        return element(builder, value, ())
    return None


def broadcast(builder: Builder, operands: tuple[Tensor | Scalar, ...]) -> tuple[Expr, ...]:
    """The sizes that operands are broadcast to. A size that is the constant 1 is repeated, others must agree."""
    shapes = [v.dims for v in operands if not isinstance(v, Scalar)]
    rank = max(map(len, shapes))
    dims: list[Expr] = []
    for axis in range(rank):
        chosen: Expr = ONE
        for shape in shapes:
            k = axis - rank + len(shape)
            if k < 0 or shape[k] == ONE:
                continue
            if chosen == ONE:
                chosen = shape[k]
            else:
                builder.require_equal(chosen, shape[k], f"along dimension {axis - rank} of tensors used together")
        dims.append(chosen)
    return tuple(dims)


def lift(builder: Builder, function: ScalarFunction, *operands: Value) -> Scalar | Computed:
    """An elementwise function of scalars and tensors. The function takes the builder, then Scalars."""
    values: list[Tensor | Scalar] = []
    for operand in operands:
        plain = scalar_of(builder, operand)
        if plain is None and not isinstance(operand, (View, Computed)):
            raise TypeMismatch(f"{describe(operand)} is not a number or a tensor", remedy="use numbers and tensors")
        values.append(plain if plain is not None else operand)  # type: ignore[arg-type]
    scalars = tuple(v for v in values if isinstance(v, Scalar))
    if len(scalars) == len(values):
        return replace(function(builder, *scalars), alias=None)
    dims = broadcast(builder, tuple(values))
    fixed = tuple(_hold(builder, v, dims) for v in values)
    with builder.block():  # what it emits for an element that is none
        sample = of_one_dtype(function(builder, *(_sample(v) for v in fixed)), "a tensor computed with a number or an element")
    loops = any(isinstance(v, Computed) and v.loops for v in fixed)
    return Computed(
        dims,
        Typed(sample.typed.scalar, 2),
        lambda at: function(builder, *(element(builder, v, at) for v in fixed)).expr,
        loops,
    )


def of_one_dtype(value: Scalar, what: str) -> Scalar:
    """The value; TypeMismatch where it is of one kind on one path and of another on another, which a dtype depends on."""
    if value.mixed is None:
        return value
    kinds = " or ".join(dict.fromkeys(describe(v) for v in leaves(value)))
    raise TypeMismatch(
        f"{what} whose dtype depends on the path",
        evidence=[f"it is {kinds}"],
        remedy="say which: int(...), float(...), or .to(dtype) of elements",
    )


def _sample(value: Tensor | Scalar) -> Scalar:
    if isinstance(value, Scalar):
        return value
    return Scalar(Ref("element", value.typed.register), value.typed)


def _hold(builder: Builder, value: Tensor | Scalar, dims: tuple[Expr, ...]) -> Tensor | Scalar:
    """An operand that may be used several times: what needs a loop for each element is computed once."""
    if isinstance(value, Scalar):
        return replace(builder.share(value), alias=None)
    if isinstance(value, Computed) and value.loops and not builder.same_sizes(value.dims, dims):
        return materialise(builder, value, "t")
    return value


# ---------------------------------------------------------------- stores


def materialise(builder: Builder, value: Tensor, hint: str) -> View:
    """A new local array that holds a tensor's elements."""
    view = builder.allocate(hint, value.typed.scalar, value.dims)
    _store_all(builder, view, value)
    return view


def _store_all(builder: Builder, target: View, value: Tensor | Scalar) -> None:
    """Store every element, in implied loops; the value must not depend on what is being stored."""
    register = target.dtype.opmath

    def body(at: tuple[Expr, ...]) -> None:
        result = converted(element(builder, value, at), register)
        builder.walks(target)
        builder.store(target.array, target.index(at), bounds.checked(result, target.inside, builder))

    builder.nest(target.dims, body)


def assign(builder: Builder, target: View, value: Tensor | Scalar) -> None:
    """`target[...] = value`: broadcast, converted to the target's dtype; the right side is as it was before."""
    if target.copied:
        name = builder.called(target.array)
        raise UnsupportedSyntax(
            f"a store into a copy or a view of {name}, as its strides will have it",
            remedy=f"store into {name}, or into {name}.clone()",
        )
    if value.typed.scalar.category == "complex" and not target.is_complex:
        raise TypeMismatch(
            f"a complex number is stored into a tensor of {target.dtype}", remedy="say which part: .real, .imag or abs(...)"
        )
    value = _fit_to(builder, target, value)
    if isinstance(value, View):
        overlaps.check(builder, target, value)
    if isinstance(value, Scalar):
        _check_fits(target, value)
        value = checks.stored(builder, value, target.dtype)
    if isinstance(value, Scalar) and target.dims:
        value = builder.share(value)
    restore = builder.snapshot()
    with builder.block() as trial:
        _store_all(builder, target, value)
    if not _reads_what_it_stores(builder, trial, target.array):
        for stmt in trial:
            builder.emit(stmt)
        return
    restore()
    assert not isinstance(value, Scalar)
    _store_all(builder, target, materialise(builder, value, f"{target.array}_new"))


def merged(builder: Builder, name: str, one: Tensor, other: Tensor, then: list[Stmt], orelse: list[Stmt]) -> View | None:
    """An array that the blocks of a branch copy these two to; None where they are of different dtypes or sizes. It stands for
    the one or the other until a store into any of the three.
    """
    if one.typed.scalar != other.typed.scalar or not builder.same_sizes(one.dims, other.dims):
        return None
    view = builder.allocate(name, one.typed.scalar, one.dims)
    for block, value in ((then, one), (orelse, other)):
        with builder.block() as copy:
            assign(builder, view, value)
        block += copy
    for value in (one, other):
        if isinstance(value, View):
            builder.copied(view.array, value.array)
    return view


def _check_fits(target: View, value: Scalar) -> None:
    """A constant that PyTorch does not store into integers of this type: it is no element, which would wrap."""
    number, type_ = value.constant, target.dtype
    if number is None or isinstance(number, bool):
        return
    if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
        raise NumberOverflow(f"{number} leaves 64 bits", remedy="store a float, or a smaller number")
    if type_.category != "int":
        return
    low, high = storable(value.typed.scalar, type_)
    if not (math.isfinite(number) and low <= number <= high):
        raise TypeMismatch(
            f"{number} does not fit into {type_}",
            evidence=[f"{type_} holds {low_and_high(type_)[0]} to {high}"],
            remedy="store a number that fits, or use a wider dtype",
        )


def _fit_to(builder: Builder, target: View, value: Tensor | Scalar) -> Tensor | Scalar:
    """The value with the target's number of dimensions at most, its sizes agreeing."""
    if isinstance(value, Scalar):
        return value
    while len(value.dims) > len(target.dims):
        if value.dims[0] != ONE:
            raise ShapeMismatch(
                f"a tensor of {len(value.dims)} dimensions does not fit into {len(target.dims)}",
                remedy="index or sum over the other dimensions",
            )
        rest = value.dims[1:]
        value = select(value, rest, (ZERO, *places(len(rest))))
    shift = len(target.dims) - len(value.dims)
    expands = any(d == ONE and t != ONE for d, t in zip(value.dims, target.dims[shift:], strict=True)) or shift
    for k, size in enumerate(value.dims):
        if size != ONE:
            builder.require_equal(target.dims[shift + k], size, f"along dimension {k - len(value.dims)} of the two sides of =")
    if isinstance(value, Computed) and value.loops and expands:
        return materialise(builder, value, "t")
    return value


def _reads_what_it_stores(builder: Builder, statements: list[Stmt], array: str) -> bool:
    """Whether loops that store into an array also read another element of it that they store into."""
    body = tuple(walk(tuple(statements)))
    stores = [s for s in body if isinstance(s, Store) and s.array == array]
    if len(body) == len(stores) == 1:  # one element, computed before it is stored
        return False
    reads = [e for s in body for top in statement_exprs(s) for e in walk_expr(top) if isinstance(e, LoadExpr)]
    local = {s.var for s in body if hasattr(s, "var")}

    def other(read: LoadExpr, store: Store) -> bool:
        pairs = list(zip(read.index, store.index, strict=True))
        moves = [any(isinstance(e, Ref) and e.name in local for i in pair for e in walk_expr(i)) for pair in pairs]
        if not any(a != b for (a, b), m in zip(pairs, moves, strict=True) if m):  # rows that are walked alike
            return False
        rows = [(ZERO, ZERO) if m else pair for pair, m in zip(pairs, moves, strict=True)]
        return not builder.apart(array, tuple(a for a, _ in rows), tuple(b for _, b in rows))

    return any(other(read, store) for read in reads if read.array == array for store in stores)


# ---------------------------------------------------------------- reductions

_REDUCTIONS = {
    "sum": "add",
    "mean": "add",
    "prod": "mul",
    "amax": "maximum",
    "amin": "minimum",
    # torch.max and min of a whole tensor: as those, with another gradient where there are NaNs
    "max_of_all": "maximum",
    "min_of_all": "minimum",
    "all": "and",
    "any": "or",
}  # noqa: E501
REDUCTIONS = frozenset(k for k in _REDUCTIONS if not k.endswith("_of_all"))
_EXTREMA = {"amax": False, "amin": True, "max_of_all": False, "min_of_all": True}  # whether it starts with the largest value


def is_extremum(kind: str) -> bool:
    """Whether a reduction gives one of its elements, of which there must be one."""
    return kind in _EXTREMA


def _accumulator(kind: str, typed: Typed) -> tuple[Typed, Expr]:
    """The type a reduction of elements of this type gives, and the value it starts from."""
    scalar = typed.scalar
    if kind in ("all", "any"):
        return replace(typed, scalar=BOOL), Const(kind == "all", BOOL)
    if kind == "mean" and scalar.category not in ("float", "complex"):
        raise TypeMismatch(f"mean of {scalar} elements", remedy="convert with .float() first")
    if kind in _EXTREMA and scalar.category == "complex":
        raise arithmetic.no_complex(kind.removesuffix("_of_all"))
    if kind in _EXTREMA:
        return typed, arithmetic.extreme(scalar, largest=_EXTREMA[kind])
    if scalar.category not in ("float", "complex"):
        scalar = INT64
    start = Const(1 if kind == "prod" else 0, INT64)
    return replace(typed, scalar=scalar), cast(start, scalar.opmath)


def reduce(builder: Builder, kind: str, value: Tensor, dims: tuple[int, ...], keep: bool) -> Scalar | Computed:
    """Reduce over `dims` (not negative, sorted): a scalar where none is left, else a tensor."""
    typed, first = _accumulator(kind, value.typed)
    # PyTorch has uint8 for bool here, which it had before there was bool
    made = replace(typed, scalar=UINT8) if kind in ("all", "any") and value.typed.scalar == UINT8 else typed
    inner = tuple(value.dims[d] for d in dims)
    outer = tuple(k for k in range(len(value.dims)) if k not in dims)

    def total(at: tuple[Expr, ...]) -> Expr:
        def term(over: tuple[Expr, ...]) -> Scalar:
            index: list[Expr] = [ZERO] * len(value.dims)
            for k, i in (*zip(outer, at, strict=True), *zip(dims, over, strict=True)):
                index[k] = i
            return as_type(element(builder, value, tuple(index)), Typed(typed.scalar, value.typed.weight))

        result = accumulate(builder, kind, typed, first, inner, term)
        if kind == "mean":
            counts = [Scalar(size, Typed(INT64, 0)) for size in inner] or [number(1)]
            count = functools.reduce(lambda a, b: operate("mul", (a, b), builder.default_float), counts)
            result = operate("div", (Scalar(result, typed), count), builder.default_float).expr
        return cast(result, made.register)

    if not outer:
        scalar = Scalar(total(()), Typed(made.scalar, 1))
        if not keep:
            return scalar
        return Computed((ONE,) * len(dims), made, lambda at: scalar.expr)
    kept = tuple(value.dims[k] for k in outer)
    if not keep:
        return Computed(kept, made, total, loops=True)
    sizes = tuple(ONE if k in dims else size for k, size in enumerate(value.dims))
    return Computed(sizes, made, lambda at: total(tuple(at[k] for k in outer)), loops=True)


def accumulate(
    builder: Builder,
    kind: str,
    typed: Typed,
    first: Expr,
    dims: tuple[Expr, ...],
    term: Callable[[tuple[Expr, ...]], Scalar],
) -> Expr:
    """Implied loops over `dims` that carry `first` updated with every term; the last value."""

    def go(k: int, at: tuple[Expr, ...], start: Expr) -> Expr:
        if k == len(dims):
            running = Scalar(start, typed)
            updated = operate(_REDUCTIONS[kind], (running, term(at)), builder.default_float)
            return (arithmetic.differentiated(updated, kind) if kind in _EXTREMA else updated).expr
        name = builder.fresh(kind)
        result = builder.fresh(f"{kind}_last")
        var = builder.fresh(builder.implied_name(dims[k]))
        with builder.loop(var, ZERO, dims[k], implied=True) as carries:
            after = go(k + 1, (*at, Ref(var, INT64)), Ref(name, first.type))
            carries.append(Carry(name, start, after, result))
        builder.dynamic.update((name, result))
        return Ref(result, first.type)

    return go(0, (), first)


CUMULATIVE = {"cumsum": "sum", "cumprod": "prod"}  # of which reduction each gives every value on the way


def cumulate(builder: Builder, kind: str, value: Tensor, dim: int) -> View:
    """A new local array: every value that a reduction over `dim` has on its way."""
    typed, first = _accumulator(CUMULATIVE[kind], value.typed)
    view = builder.allocate(kind, typed.scalar, value.dims)

    def line(around: tuple[Expr, ...]) -> None:
        name, var = builder.fresh(CUMULATIVE[kind]), builder.fresh(builder.implied_name(value.dims[dim]))
        with builder.loop(var, ZERO, value.dims[dim], implied=True) as carries:
            at = (*around[:dim], Ref(var, INT64), *around[dim:])
            term = as_type(element(builder, value, at), Typed(typed.scalar, value.typed.weight))
            before = Scalar(Ref(name, first.type), typed)
            after = builder.share(operate(_REDUCTIONS[CUMULATIVE[kind]], (before, term), builder.default_float), kind).expr
            builder.walks(view)
            builder.store(view.array, view.index(at), after)
            carries.append(Carry(name, first, after, builder.fresh(f"{name}_last")))

    builder.nest((*value.dims[:dim], *value.dims[dim + 1 :]), line)
    return view


# ---------------------------------------------------------------- products


def matmul(builder: Builder, a: Tensor, b: Tensor) -> Scalar | Computed:
    """`a @ b`: vectors, matrices, and stacks of matrices whose leading dimensions are broadcast."""
    if not a.dims or not b.dims:
        raise ShapeMismatch("@ of a tensor without dimensions", remedy="write * instead")
    if a.typed.scalar != b.typed.scalar:
        raise TypeMismatch(
            "the dtypes of the two sides of @ differ",
            evidence=[f"left: {a.typed.scalar}, right: {b.typed.scalar}"],
            remedy="convert one with .to(dtype)",
        )
    if a.typed.scalar == BOOL:
        raise TypeMismatch("@ of bool elements", remedy="convert both with .to(dtype)")
    rows, columns = len(a.dims) > 1, len(b.dims) > 1
    inner = a.dims[-1]
    shared = b.dims[-2] if columns else b.dims[-1]
    if inner == ONE:
        inner, shared = shared, inner
    builder.require_equal(inner, shared, "in the dimension that @ sums over")
    stacks = [v for v in (a, b) if len(v.dims) > 2]
    leading = broadcast(builder, tuple(select_leading(v) for v in stacks)) if stacks else ()
    a = a if isinstance(a, View) or not (columns or a.loops) else materialise(builder, a, "left")
    b = b if isinstance(b, View) or not (rows or b.loops) else materialise(builder, b, "right")
    typed = Typed(a.typed.scalar, 2)
    first = cast(Const(0, INT64), typed.register)

    def entry(at: tuple[Expr, ...]) -> Expr:
        stack = at[: len(leading)]
        i = (at[len(leading)],) if rows else ()
        j = (at[-1],) if columns else ()

        def term(over: tuple[Expr, ...]) -> Scalar:
            left = element(builder, a, (*stack, *i, *over)) if rows else element(builder, a, over)
            right = element(builder, b, (*stack, *over, *j)) if columns else element(builder, b, over)
            return operate("mul", (left, right), builder.default_float)

        return accumulate(builder, "sum", typed, first, (inner,), term)

    dims = (*leading, *((a.dims[-2],) if rows else ()), *((b.dims[-1],) if columns else ()))
    if not dims:
        return Scalar(entry(()), Typed(typed.scalar, 1))
    return Computed(dims, typed, entry, loops=True)


def select_leading(value: Tensor) -> Computed:
    """A stand-in with the dimensions of a stack of matrices that are not the matrices'."""
    return Computed(value.dims[:-2], value.typed, lambda at: ZERO)


# ---------------------------------------------------------------- shapes


def permute(value: Tensor, order: tuple[int, ...]) -> Tensor:
    """The dimensions of the result are the dimensions `order` of value."""
    axes = tuple(place(order.index(k)) for k in range(len(order)))
    return select(value, tuple(value.dims[k] for k in order), axes)


def unsqueeze(value: Tensor, dim: int) -> Tensor:
    dims = (*value.dims[:dim], ONE, *value.dims[dim:])
    return select(value, dims, tuple(place(k + (k >= dim)) for k in range(len(value.dims))))


def squeeze(value: Tensor, dim: int) -> Tensor:
    dims = (*value.dims[:dim], *value.dims[dim + 1 :])
    axes = (ZERO if k == dim else place(k - (k > dim)) for k in range(len(value.dims)))
    return select(value, dims, tuple(axes))


def expand(builder: Builder, value: Tensor, dims: tuple[Expr, ...]) -> Tensor:
    """value broadcast to `dims`."""
    shift = len(dims) - len(value.dims)
    axes: list[Expr] = []
    for k, size in enumerate(value.dims):
        if size == ONE and dims[shift + k] != ONE:
            axes.append(ZERO)
        else:
            builder.require_equal(dims[shift + k], size, "of expand")
            axes.append(place(shift + k))
    return select(value, dims, tuple(axes))


def as_dtype(builder: Builder, value: Value, dtype: ScalarType) -> Scalar | Tensor:
    """`.to(dtype)` of a tensor or an element: itself where that is its dtype. What was computed of elements is rounded to it
    even so: steps in between are not, and who writes this asks for it.
    """
    several = isinstance(value, Scalar) and value.mixed is not None
    own = isinstance(value, (Scalar, View, Computed)) and value.typed.scalar == dtype and value.typed.weight > 0
    if own and not several:
        if isinstance(value, View) or dtype == dtype.opmath:
            return value  # type: ignore[return-value]
        if isinstance(value, Scalar):
            return arithmetic.rounded(value)
        return lift(builder, lambda _, x: arithmetic.rounded(x), value)
    return lift(builder, lambda _, x: arithmetic.convert(x, dtype), value)
