"""The functions of the language: Python's, math's and PyTorch's, by their full names.

A function takes the builder, its arguments as values and a name for an array it may make.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import arithmetic, checks, sequences, shapes, slices, tensors
from weft.language.arithmetic import as_type, choose, common, convert, differentiated, operate, power, to_number, truth
from weft.language.bounds import check_elements
from weft.language.builder import Builder
from weft.language.kinds import (
    cast,
    common_type,
    converted,
    distribute,
    holds,
    is_rounded,
    joined,
    kinds_of,
    leaves,
    paths,
    plain,
    select,
    select_exactly,
)
from weft.language.values import (
    ONE,
    ZERO,
    Computed,
    Range,
    Scalar,
    Sequence,
    Static,
    Tuple,
    Value,
    View,
    describe,
    integer,
    number,
    one_of,
    tidy,
)
from weft.loops.ir import Const, Expr, Merge, Op, unchecked
from weft.loops.types import BOOL, FLOAT64, INT64, SCALAR_TYPES, ScalarType, Typed

ScalarFunction = Callable[..., Scalar]

# ---------------------------------------------------------------- functions of scalars, lifted over tensors


def _plain(name: str) -> ScalarFunction:
    return lambda b, *args: checks.of_all(b, lambda *vs: operate(name, vs, b.default_float), *args)


def _checked(name: str) -> ScalarFunction:
    """An operator that raises for integers that are divided by 0."""
    return lambda b, *args: checks.operated(b, name, *args)


def _rounding(name: str) -> ScalarFunction:
    """floor, ceil, trunc, round of PyTorch: integers stay as they are."""

    def function(b: Builder, x: Scalar) -> Scalar:
        return x if x.typed.scalar.category != "float" else operate(name, (x,), b.default_float)

    return function


def _of_each_kind(function: ScalarFunction) -> ScalarFunction:
    """A function of scalars that asks for their types, for scalars of several kinds too."""

    def each(b: Builder, *args: Scalar) -> Scalar:
        mixed = next((v.mixed for v in args if v.mixed is not None), None)
        if mixed is None:
            return function(b, *args)
        if mixed.test is None:
            with b.path():
                found = distribute(lambda *vs: each(b, *vs), args, b.default_float)
            assert found is not None
            return found
        sides = []
        for values in paths(args, mixed):
            with b.block() as statements:
                sides.append((each(b, *values), statements))
        (then, made), (orelse, other) = sides
        if not made and not other:
            return select(mixed.test, then, orelse, b.default_float)
        merges: list[Merge] = []
        merged = b.merge("t", then, orelse, mixed.test, merges)
        b.branch(mixed.test, made, other, tuple(merges))
        return merged

    return each


def _in(b: Builder, x: Scalar) -> Scalar:
    """x as a float, cheap to repeat."""
    return b.share(as_type(x, arithmetic.floating(x.typed, b.default_float)), "x")


def _op(b: Builder, name: str, *args: Scalar | float) -> Scalar:
    return operate(name, tuple(a if isinstance(a, Scalar) else number(a) for a in args), b.default_float)


def _silu(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return _op(b, "mul", x, _op(b, "sigmoid", x))


def _gelu(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return _op(b, "mul", _op(b, "mul", 0.5, x), _op(b, "add", 1.0, _op(b, "erf", _op(b, "mul", x, 0.5**0.5))))


def _gelu_tanh(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    cube = _op(b, "mul", _op(b, "mul", x, x), x)
    inner = _op(b, "mul", 0.7978845608028654, _op(b, "add", x, _op(b, "mul", 0.044715, cube)))
    return _op(b, "mul", _op(b, "mul", 0.5, x), _op(b, "add", 1.0, _op(b, "tanh", inner)))


def _softplus(b: Builder, x: Scalar) -> Scalar:
    x = _in(b, x)
    return choose(_op(b, "gt", x, 20.0), x, _op(b, "log1p", _op(b, "exp", x)), b.default_float)


def _relu(b: Builder, x: Scalar) -> Scalar:
    return as_type(differentiated(_op(b, "maximum", x, 0), "relu"), x.typed)


def _square(b: Builder, x: Scalar) -> Scalar:
    x = b.share(x, "x")
    return operate("mul", (x, x), b.default_float)


def _clamp(b: Builder, x: Scalar, low: Scalar | None, high: Scalar | None) -> Scalar:
    bounds = tuple(v for v in (low, high) if v is not None)
    typed = common((x, *bounds), b.default_float)
    low, high = (None if v is None else as_type(checks.taken(b, v, typed.scalar), typed) if v.typed.weight == 0 else v
                 for v in (low, high))  # fmt: skip
    if low is not None and high is not None and all(v.typed.weight and v.typed.scalar.category == "float" for v in bounds):
        # of bounds that are equal, PyTorch gives the lower one no gradient
        bound = differentiated(operate("minimum", (low, high), b.default_float), "none")
        low = choose(operate("eq", (low, high), b.default_float), bound, low, b.default_float)
    if low is not None:
        x = differentiated(operate("maximum", (x, low), b.default_float), "clamp_min")
    if high is not None:
        x = differentiated(operate("minimum", (x, high), b.default_float), "clamp_max")
    return as_type(x, typed)


def _pow(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    return power(b.share(x, "x"), y, b.default_float)


def power_of(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """Python's `x ** y`."""
    return _of_each_kind(_power_of)(b, x, y)


def _power_of(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    x = b.share(x, "x")
    y = b.share(y, "y") if x.typed.weight == y.typed.weight == 0 else y
    return checks.power(b, x, y, power(x, y, b.default_float))


def _whole(b: Builder, x: Scalar) -> Scalar:
    """Python's int() of a number or an element."""
    if x.mixed is not None and x.mixed.test is None:  # what it is held as has every value that it may have
        x = plain(x, x.typed)
    if x.mixed is not None:
        return _of_each_kind(_whole)(b, x)
    if x.typed.scalar.category == "float":
        x = b.share(x, "x")
    return checks.whole_number(b, x, to_number(x, INT64))


def _float_mod(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """C's fmod, the sign of the dividend, for integers too."""
    typed = common((x, y), b.default_float)
    if typed.scalar.category == "float":
        return operate("fmod", (x, y), b.default_float)
    x, y = b.share(as_type(x, typed), "x"), b.share(as_type(y, typed), "y")
    rest = b.share(checks.checked(b, _op(b, "mod", x, y)), "rest")  # of y's sign; the lowest number has no absolute value
    if typed.scalar.category == "bool" or not typed.scalar.signed:
        return rest
    other = _op(b, "ne", _op(b, "lt", x, 0), _op(b, "lt", rest, 0))
    return choose(_op(b, "and", _op(b, "ne", rest, 0), other), _op(b, "sub", rest, y), rest, b.default_float)


def _predicate(name: str, of_integer: bool) -> ScalarFunction:
    def function(b: Builder, x: Scalar) -> Scalar:
        if x.typed.scalar.category != "float":
            return Scalar(Const(of_integer, BOOL), Typed(BOOL, x.typed.weight))
        return operate(name, (x,), b.default_float)

    return function


def _leaky_relu(b: Builder, x: Scalar, slope: Scalar) -> Scalar:
    x = _in(b, x)
    return choose(_op(b, "gt", x, 0.0), x, _op(b, "mul", x, slope), b.default_float)


def _where(b: Builder, condition: Scalar, then: Scalar, orelse: Scalar) -> Scalar:
    typed = common((then, orelse), b.default_float)
    if typed.weight == 0:  # of two numbers, PyTorch makes a tensor
        typed = Typed(b.default_float if typed.scalar == FLOAT64 else typed.scalar, max(1, condition.typed.weight))
        then, orelse = (as_type(checks.taken(b, v, typed.scalar), typed) for v in (then, orelse))
    elif typed.scalar.category != "float" or typed.scalar.size > 2:  # elements of halves get infinities
        then, orelse = (checks.taken(b, v, typed.scalar) for v in (then, orelse))
    made = checks.of_all(b, lambda c, x, y: choose(c, x, y, b.default_float), condition, then, orelse)
    chosen = replace(made, alias=None)
    return chosen if isinstance(truth(condition).expr, Const) else differentiated(chosen, "both")


_FLOAT = [
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "erfc",
    "sqrt",
    "log",
    "log2",
    "log10",
    "log1p",
    "rsqrt",
    "sigmoid",
]

# Functions of torch, and methods of tensors, that work element by element: (function, number of operands).
ELEMENTWISE: dict[str, tuple[ScalarFunction, int]] = {
    **{name: (_plain(name), 1) for name in (*_FLOAT, "abs", "neg")},
    **{name: (_rounding(name), 1) for name in ("floor", "ceil", "trunc", "round")},
    "absolute": (_plain("abs"), 1),
    "negative": (_plain("neg"), 1),
    "sign": (lambda b, x: as_type(_op(b, "sign", x), x.typed), 1),
    "square": (_square, 1),
    "reciprocal": (lambda b, x: _op(b, "div", 1.0, as_type(x, arithmetic.floating(x.typed, b.default_float))), 1),
    "relu": (_relu, 1),
    "isnan": (_predicate("isnan", False), 1),
    "isinf": (_predicate("isinf", False), 1),
    "isfinite": (_predicate("isfinite", True), 1),
    "logical_not": (_plain("not"), 1),
    "bitwise_not": (_plain("bitnot"), 1),
    **{name: (_plain(name), 2) for name in ("mul", "maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign")},
    "multiply": (_plain("mul"), 2),
    "true_divide": (_plain("div"), 2),
    "floor_divide": (_checked("floordiv"), 2),
    "remainder": (_checked("mod"), 2),
    "fmod": (_float_mod, 2),
    "pow": (_pow, 2),
    "logical_and": (_plain("and"), 2),
    "logical_or": (_plain("or"), 2),
    "logical_xor": (lambda b, x, y: _op(b, "ne", arithmetic.truth(x), arithmetic.truth(y)), 2),
    "bitwise_and": (_plain("bitand"), 2),
    "bitwise_or": (_plain("bitor"), 2),
    "bitwise_xor": (_plain("bitxor"), 2),
    **{name: (_plain(name), 2) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "where": (_where, 3),
}
# Those that ask for the types of their operands.
_BY_TYPE = frozenset(
    (*("floor", "ceil", "trunc", "round", "sign", "square", "reciprocal", "relu", "isnan", "isinf", "isfinite"),
     *("bitwise_not", "fmod", "pow"))
)  # fmt: skip
_NEURAL: dict[str, ScalarFunction] = {
    "silu": _silu,
    "softplus": _softplus,
    "relu": _relu,
    "sigmoid": ELEMENTWISE["sigmoid"][0],
    "tanh": ELEMENTWISE["tanh"][0],
    "logsigmoid": lambda b, x: _op(b, "neg", _softplus(b, _op(b, "neg", x))),
}
_MATH_OF_TWO = frozenset(("atan2", "hypot", "copysign", "fmod", "pow"))
MATH_FLOAT = frozenset({*_FLOAT, "atan2", "hypot", "copysign", "fmod", "pow", "fabs"}) - {"rsqrt", "sigmoid"}
_DTYPES = {**SCALAR_TYPES, "float": SCALAR_TYPES["float32"], "double": FLOAT64, "half": SCALAR_TYPES["float16"],
           "long": INT64, "int": SCALAR_TYPES["int32"], "short": SCALAR_TYPES["int16"]}  # fmt: skip
_MATH_CONSTANTS = {"pi": 3.141592653589793, "e": 2.718281828459045, "tau": 6.283185307179586,
                   "inf": float("inf"), "nan": float("nan")}  # fmt: skip
_CREATE = {"empty": None, "zeros": 0, "ones": 1}


# The longest list that is made of a range or a tensor of constant length: its items are values of the parser.
MOST_ITEMS = 256

# The methods, and functions of torch, that give views.
VIEWS = frozenset(
    (
        *("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "unsqueeze", "squeeze"),
        *("expand", "expand_as", "view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "unflatten"),
        *("narrow", "select", "unbind", "split", "split_with_sizes", "chunk"),
    )
)

# What can be asked of a tensor besides its shape, dtype and transposes.
METHODS = frozenset(
    (
        *ELEMENTWISE,
        *tensors.REDUCTIONS,
        *("add", "sub", "subtract", "div", "divide", "max", "min", "softmax", "log_softmax", "clamp", "clip"),
        *("matmul", "mm", "mv", "bmm", "dot", "inner", "vdot", "clone", "contiguous", "detach", "item", "type_as"),
        *(f"new_{kind}" for kind in ("empty", "zeros", "ones", "full")),
        *VIEWS,
        *("size", "dim", "ndimension", "numel", "nelement", "to", "type"),
        *("float", "double", "half", "bfloat16", "long", "int", "short", "bool"),
    )
)


def constant(name: str) -> Value | None:
    """What a name of a module is where it is no function: a dtype, a mathematical constant."""
    module, _, last = name.rpartition(".")
    if module == "torch" and last in _DTYPES:
        return Static(_DTYPES[last])
    if module in ("math", "torch") and last in _MATH_CONSTANTS:
        return number(_MATH_CONSTANTS[last])
    return None


# ---------------------------------------------------------------- arguments


class Arguments:
    """The arguments of a call, taken by position or name; what is left over at the end is an error."""

    def __init__(self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        self.name, self.args, self.kwargs = name, list(args), dict(kwargs)

    def take(self, *names: str) -> Value | None:
        """The next positional argument, or the one of these names."""
        if self.args:
            return self.args.pop(0)
        return self.named(*names)

    def named(self, *names: str) -> Value | None:
        for name in names:
            if name in self.kwargs:
                return self.kwargs.pop(name)
        return None

    def need(self, *names: str) -> Value:
        value = self.take(*names)
        if value is None:
            raise TypeMismatch(f"{self.name} needs an argument {names[0]}", remedy=f"pass {names[0]}")
        return value

    def rest(self) -> tuple[Value, ...]:
        values, self.args = tuple(self.args), []
        return values

    def done(self) -> None:
        if self.args:
            raise UnsupportedSyntax(
                f"{self.name} has {len(self.args)} arguments more than weft knows", remedy="leave them out"
            )
        if self.kwargs:
            name = next(iter(self.kwargs))
            raise UnsupportedSyntax(
                f"{self.name} has an argument {name}, which weft does not know", remedy="leave it out"
            )


def static_int(value: Value | None) -> int | None:
    """The value of an int that is known while parsing."""
    if isinstance(value, Scalar) and isinstance(value.constant, int):
        return int(value.constant)
    return None


def static_bool(value: Value | None, default: bool = False) -> bool:
    if value is None:
        return default
    if isinstance(value, Scalar) and isinstance(value.constant, bool):
        return value.constant
    raise TypeMismatch(f"{describe(value)} where a constant True or False is needed", remedy="write True or False")


def size_of(value: Value) -> Expr:
    """A value as a size or a subscript that is a Python int."""
    if isinstance(value, Scalar) and value.typed.scalar.category == "int":
        return tidy(unchecked(converted(value, INT64)))
    raise TypeMismatch(f"{describe(value)} where an int is needed", remedy="use an int")


def sizes_of(values: tuple[Value, ...]) -> tuple[Expr, ...]:
    """A shape given as one tuple or as several ints."""
    if len(values) == 1 and isinstance(values[0], Tuple):
        values = values[0].items
    return tuple(size_of(v) for v in values)


def dtype_of(value: Value | None) -> ScalarType | None:
    match value:
        case None | Static(value=None):
            return None
        case Static(value=ScalarType() as dtype):
            return dtype
        case Static(value=found) if getattr(found, "name", "") in ("builtins.float", "builtins.int", "builtins.bool"):
            return {"float": FLOAT64, "int": INT64, "bool": BOOL}[found.name.split(".")[1]]
    raise TypeMismatch(
        f"{describe(value)} is not a dtype that weft knows", remedy="use one of torch." + ", torch.".join(SCALAR_TYPES)
    )


# ---------------------------------------------------------------- making tensors


def _create(b: Builder, arguments: Arguments, kind: str, like: View | Computed | None, hint: str) -> View:
    """torch.empty, zeros, ones, full and their forms that take a shape or a dtype from a tensor (`like`)."""
    value: Value | None = None
    if like is not None and kind.endswith("_like"):
        dims = like.dims
    elif kind == "full" or arguments.args:
        first = arguments.need("size")
        dims = sizes_of((first,)) if kind in ("full", "new_full") else sizes_of((first, *arguments.rest()))
    else:
        dims = sizes_of((arguments.need("size"),))
    base = kind.removesuffix("_like").removeprefix("new_")
    if base == "full":
        value = arguments.need("fill_value")
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    layout = [arguments.named(name) for name in ("layout", "memory_format", "requires_grad", "pin_memory")]
    if any(isinstance(v, Scalar) and v.constant is True for v in layout):
        raise UnsupportedSyntax(
            f"{arguments.name} with requires_grad or pin_memory inside a kernel", remedy="leave it out"
        )
    arguments.done()
    contiguous = not kind.endswith("_like")
    if base == "full":
        filler = tensors.scalar_of(b, value) if value is not None else None
        if filler is None:
            raise TypeMismatch("the fill value is not a number", remedy="fill with a number")
        if dtype is None:
            filler = tensors.of_one_dtype(filler, arguments.name)
            inferred = filler.typed.scalar
            dtype = like.typed.scalar if like is not None else (
                b.default_float if inferred.category == "float" and filler.typed.weight == 0 else inferred
            )  # fmt: skip
        if filler.constant is not None:
            return b.allocate(hint, dtype, dims, filler.constant, contiguous=contiguous)
        view = b.allocate(hint, dtype, dims, contiguous=contiguous)
        tensors.assign(b, view, filler)
        return view
    if dtype is None:
        dtype = like.typed.scalar if like is not None else b.default_float
    return b.allocate(hint, dtype, dims, _CREATE[base], contiguous=contiguous)


def _constant_tensor(b: Builder, arguments: Arguments) -> Value:
    """torch.tensor of a number: one element. torch.as_tensor of a tensor: itself."""
    value = arguments.need("data")
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    arguments.done()
    scalar = tensors.scalar_of(b, value)
    typed = value.typed if isinstance(value, (Scalar, View, Computed)) else None
    if arguments.name.endswith("as_tensor") and typed is not None and typed.weight and dtype in (None, typed.scalar):
        return value
    if scalar is None:
        raise TypeMismatch(f"{arguments.name} of {describe(value)}", remedy="make it with torch.zeros and store into it")
    if dtype is None:
        kind = tensors.of_one_dtype(scalar, arguments.name).typed
        dtype = b.default_float if kind.scalar.category == "float" and kind.weight == 0 else kind.scalar
    return replace(convert(checks.stored(b, scalar, dtype), dtype), alias=None)


def _arange(b: Builder, arguments: Arguments) -> Computed:
    """torch.arange of ints, or of constants: its elements are the numbers."""
    values = [tensors.scalar_of(b, v) for v in arguments.rest()]
    named = {name: arguments.named(name) for name in ("start", "end", "step")}
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("device")
    arguments.done()
    if len(values) == 1:
        values = [None, values[0]]
    given = [v or tensors.scalar_of(b, n) if n is not None else v
             for v, n in zip((*values, None, None, None), named.values(), strict=False)]  # fmt: skip
    first, last, by = given[0] or number(0), given[1], given[2] or number(1)
    if last is None:
        raise TypeMismatch("arange without an end", remedy="pass the number of its elements")
    numbers = (first, last, by)
    if all(v.typed.scalar.category == "int" for v in numbers):
        step = static_int(by)
        if not step:
            raise UnsupportedSyntax("an arange whose step is not a constant", remedy="multiply it: torch.arange(n) * s")
        start, stop = (b.steady(tidy(checks.position(b, converted(v, INT64))), "bound") for v in (first, last))
        count = sequences.count_of(Range(start, stop, step))
        typed = Typed(dtype or INT64, 2)
    else:
        low, high, distance = (v.constant for v in numbers)
        if low is None or high is None or not distance:
            raise UnsupportedSyntax("an arange of floats that are not constants", remedy="compute it from arange(n)")
        count = Const(max(0, math.ceil((high - low) / distance)), INT64)
        typed = Typed(dtype or b.default_float, 2)

    def at(index: tuple[Expr, ...]) -> Expr:
        k = integer(index[0])
        moved = operate("add", (first, operate("mul", (k, by), b.default_float)), b.default_float)
        return cast(moved.expr, typed.register)

    return Computed((count,), typed, at)


def _tensor(b: Builder, value: Value, what: str) -> View | Computed:
    if isinstance(value, (View, Computed)):
        return value
    if isinstance(value, Scalar) and value.typed.weight > 0:
        scalar = tensors.of_one_dtype(value, what)
        return Computed((), value.typed, lambda at: scalar.expr)
    raise TypeMismatch(f"{what} of {describe(value)}", remedy="it works on tensors")


def dimension(value: Value | None, rank: int) -> int:
    """A dimension given as a constant int, counted from the first."""
    dim = static_int(value)
    if dim is None:
        raise TypeMismatch("a dimension that is not a constant int", remedy="write it as a number")
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise TypeMismatch(
            f"dimension {dim} of a tensor of {rank} dimensions", remedy=f"use one from {-rank} to {rank - 1}"
        )
    return dim % max(rank, 1)


def _reduce(b: Builder, kind: str, arguments: Arguments, value: View | Computed) -> Value:
    given = arguments.take("dim", "axis")
    keep = static_bool(arguments.take("keepdim", "keepdims"))
    dtype = dtype_of(arguments.named("dtype"))
    arguments.done()
    if dtype is not None:
        converted = tensors.as_dtype(b, value, dtype)
        value = converted if not isinstance(converted, Scalar) else _tensor(b, converted, kind)
    rank = len(value.dims)
    if given is None or (isinstance(given, Static) and given.value is None):
        dims = tuple(range(rank))
    elif isinstance(given, Tuple):
        dims = tuple(sorted(dimension(d, rank) for d in given.items))
        if len({*dims}) < len(dims):
            raise TypeMismatch(f"{kind} over dimensions {list(dims)}", remedy="name each dimension once")
    else:
        dims = (dimension(given, rank),)
    if rank == 0:
        dims = ()
    if tensors.is_extremum(kind):
        check_elements(b, tuple(value.dims[d] for d in dims), kind.removesuffix("_of_all"))
    return tensors.reduce(b, kind, value, dims, keep)


def _softmax(b: Builder, arguments: Arguments, value: View | Computed, log: bool) -> Value:
    dim = dimension(arguments.need("dim"), len(value.dims))
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("_stacklevel")
    arguments.done()
    if dtype is not None:
        value = _tensor(b, tensors.as_dtype(b, value, dtype), "softmax")
    if value.typed.scalar.category != "float":
        raise TypeMismatch(f"softmax of {value.typed.scalar} elements", remedy="convert with .float() first")
    largest = tensors.reduce(b, "amax", value, (dim,), True)
    shifted = tensors.lift(b, _plain("sub"), value, largest)
    powers = tensors.lift(b, _plain("exp"), shifted)
    total = tensors.reduce(b, "sum", _tensor(b, powers, "softmax"), (dim,), True)
    if log:
        return tensors.lift(b, _plain("sub"), shifted, tensors.lift(b, _plain("log"), total))
    return tensors.lift(b, _plain("div"), powers, total)


# ---------------------------------------------------------------- calls


def _scaled(b: Builder, name: str, arguments: Arguments, x: Value) -> Value:
    """add and sub, with alpha."""
    y, alpha = arguments.need("other"), arguments.named("alpha")
    if alpha is not None:
        y = tensors.lift(b, _plain("mul"), y, alpha)
    arguments.done()
    return tensors.lift(b, _plain(name), x, y)


def _div(b: Builder, arguments: Arguments, x: Value) -> Value:
    y, mode = arguments.need("other"), arguments.named("rounding_mode")
    arguments.done()
    kind = mode.value if isinstance(mode, Static) else None
    if kind == "floor":
        return tensors.lift(b, _checked("floordiv"), x, y)
    if kind == "trunc":
        raise UnsupportedSyntax("div with rounding_mode='trunc'", remedy="write torch.trunc(a / b)")
    return tensors.lift(b, _plain("div"), x, y)


# The functions of torch that take two numbers, and give a tensor of them.
_OF_NUMBERS = frozenset(("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"))


def _of_numbers(b: Builder, arguments: Arguments, x: Value) -> Value:
    """The first argument of such a function: one element of a tensor if the other one is a number as it is."""
    other = arguments.args[0] if arguments.args else arguments.kwargs.get("other")
    if any(not isinstance(v, Scalar) or v.typed.weight or v.mixed is not None for v in (x, other)):
        return x
    assert isinstance(x, Scalar) and isinstance(other, Scalar)
    scalars = [b.default_float if v.typed.scalar.category == "float" else v.typed.scalar for v in (x, other)]
    if arguments.args:
        arguments.args[0] = convert(other, scalars[1])
    else:
        arguments.kwargs["other"] = convert(other, scalars[1])
    return convert(x, scalars[0])


def torch_call(b: Builder, name: str, arguments: Arguments, x: Value, hint: str) -> Value | None:
    """A function of torch whose first argument is x, or a method of x; None where weft knows none of this name."""
    if name in _OF_NUMBERS:
        x = _of_numbers(b, arguments, x)
    if name in ("add", "sub", "subtract"):
        return _scaled(b, name[:3], arguments, x)
    if name in ("div", "divide"):
        return _div(b, arguments, x)
    if name in ("max", "min"):
        if not arguments.args and not arguments.kwargs:
            return _reduce(b, f"{name}_of_all", arguments, _tensor(b, x, name))
        other = arguments.take("other", "dim")
        if isinstance(other, (View, Computed)) or (isinstance(other, Scalar) and other.typed.weight):
            arguments.done()
            return tensors.lift(b, _plain(f"{name}imum"), x, other)
        raise UnsupportedSyntax(f"{name} with a dimension gives values and indices", remedy=f"write a{name}(dim)")
    if name in tensors.REDUCTIONS:
        return _reduce(b, name, arguments, _tensor(b, x, name))
    if name in ("softmax", "log_softmax"):
        return _softmax(b, arguments, _tensor(b, x, name), name == "log_softmax")
    if name in ("clamp", "clip"):
        low, high = arguments.take("min"), arguments.take("max")
        arguments.done()
        bounds = [v for v in (low, high) if v is not None and not (isinstance(v, Static) and v.value is None)]
        if not bounds:
            raise TypeMismatch(f"{name} without a bound", remedy="pass min or max")
        has_low = bool(bounds) and bounds[0] is low

        def clamp(builder: Builder, value: Scalar, *limits: Scalar) -> Scalar:
            rest = list(limits)
            return _clamp(builder, value, rest.pop(0) if has_low else None, rest.pop(0) if rest else None)

        return tensors.lift(b, _of_each_kind(clamp), x, *bounds)
    if name in ("matmul", "mm", "mv", "bmm", "dot", "inner", "vdot"):
        y = arguments.need("other", "mat2", "vec2")
        arguments.done()
        return tensors.matmul(b, _tensor(b, x, name), _tensor(b, y, name))
    if name in ELEMENTWISE:
        function, count = ELEMENTWISE[name]
        if name in _BY_TYPE:
            function = _of_each_kind(function)
        others = [arguments.need("other", "exponent", "input") for _ in range(count - 1)]
        arguments.done()
        return tensors.lift(b, function, x, *others)
    return _shape_call(b, name, arguments, x, hint)


def _shape_call(b: Builder, name: str, arguments: Arguments, x: Value, hint: str) -> Value | None:
    """Copies, conversions and views."""
    if name in ("clone", "contiguous"):
        arguments.named("memory_format")
        arguments.done()
        if name == "contiguous":
            if not isinstance(x, View) or not x.dims or (x.is_whole() and b.arrays[x.array].contiguous):
                return x
            return replace(x, copied=True)
        return tensors.lift(b, lambda _, v: replace(v, alias=None), x)
    if name == "detach":
        raise UnsupportedSyntax("detach inside a kernel", remedy="detach the argument before the call")
    if name.endswith("_like") and name.removesuffix("_like") in ("empty", "zeros", "ones", "full"):
        return _create(b, arguments, name, _tensor(b, x, name), hint)
    if name.startswith("new_") and name.removeprefix("new_") in ("empty", "zeros", "ones", "full"):
        return _create(b, arguments, name, _tensor(b, x, name), hint)
    if name in VIEWS:
        return _view_call(b, name, arguments, _tensor(b, x, name))
    return None


def _view_call(b: Builder, name: str, arguments: Arguments, x: View | Computed) -> Value:
    result = _VIEW_CALLS[name](b, arguments, x, len(x.dims))
    arguments.done()
    return result


def _several(arguments: Arguments, *names: str) -> tuple[Value, ...]:
    """Ints that are given one by one, or as one tuple."""
    given = arguments.rest() or (arguments.need(*names),)
    return given[0].items if len(given) == 1 and isinstance(given[0], Tuple) else given


def _permuted(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dims = tuple(dimension(d, rank) for d in _several(arguments, "dims"))
    if sorted(dims) != list(range(rank)):
        raise TypeMismatch(f"permute of {rank} dimensions by {list(dims)}", remedy="name each dimension once")
    return tensors.permute(x, dims)


def _transposed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    first = dimension(arguments.need("dim0", "axis0"), rank)
    second = dimension(arguments.need("dim1", "axis1"), rank)
    swap = {first: second, second: first}
    return tensors.permute(x, tuple(swap.get(k, k) for k in range(rank)))


def _t(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    if rank > 2:
        raise TypeMismatch(f"t of {describe(x)}", remedy="write transpose(-2, -1)")
    return tensors.permute(x, tuple(reversed(range(rank))))


def _moved(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    def dims(value: Value) -> list[int]:
        return [dimension(d, rank) for d in (value.items if isinstance(value, Tuple) else (value,))]

    source, target = dims(arguments.need("source")), dims(arguments.need("destination"))
    if len(source) != len(target) or len({*source}) < len(source) or len({*target}) < len(target):
        raise TypeMismatch(f"movedim of {source} to {target}", remedy="name as many places as dimensions, each once")
    rest = iter([k for k in range(rank) if k not in source])
    place = dict(zip(target, source, strict=True))
    return tensors.permute(x, tuple(place[k] if k in place else next(rest) for k in range(rank)))


def _unsqueezed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    return tensors.unsqueeze(x, dimension(arguments.need("dim"), rank + 1))


def _squeezed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.take("dim")
    if given is None:
        dims = [k for k in range(rank) if x.dims[k] == ONE]
        if any(not isinstance(d, Const) for d in x.dims):
            raise TypeMismatch("squeeze of sizes that are not constants", remedy="name the dimension: squeeze(dim)")
    else:
        dims = [dimension(d, rank) for d in (given.items if isinstance(given, Tuple) else (given,))]
    for dim in sorted(dims, reverse=True):
        if isinstance(x.dims[dim], Const) and x.dims[dim] != ONE:
            continue  # as PyTorch does
        b.require_equal(x.dims[dim], ONE, "of squeeze, which leaves a dimension out that has size 1")
        x = tensors.squeeze(x, dim)
    return x


def _expanded(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    items = _several(arguments, "size")
    shift = len(items) - rank
    return tensors.expand(b, x, tuple(x.dims[k - shift] if static_int(v) == -1 else size_of(v) for k, v in enumerate(items)))


def _like_another(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    other = arguments.need("other")
    if not isinstance(other, (View, Computed)):
        raise TypeMismatch(f"{arguments.name} of {describe(other)}", remedy="pass a tensor")
    if arguments.name.endswith("expand_as"):
        return tensors.expand(b, x, other.dims)
    return shapes.resized(b, x, other.dims, copies=arguments.name.endswith("reshape_as"))


def _sizes(values: tuple[Value, ...]) -> tuple[Expr | None, ...]:
    """Sizes, of which one may be -1: the one that follows from the others."""
    return tuple(None if static_int(v) == -1 else size_of(v) for v in values)


def _viewed(copies: bool) -> Callable[[Builder, Arguments, View | Computed, int], Value]:
    def view(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
        given = _several(arguments, "shape", "size")
        if len(given) == 1 and isinstance(given[0], Static):
            raise UnsupportedSyntax("a view as another dtype", remedy="convert with .to(dtype)")
        return shapes.resized(b, x, _sizes(given), copies)

    return view


def _flattened(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    first, last = arguments.take("start_dim"), arguments.take("end_dim")
    start = 0 if first is None else dimension(first, rank)
    end = rank - 1 if last is None else dimension(last, rank)
    if rank and end < start:
        raise TypeMismatch(f"flatten from dimension {start} to {end}", remedy="name the first one first")
    return shapes.resized(b, x, (*x.dims[:start], shapes.product(x.dims[start : end + 1]), *x.dims[end + 1 :]), copies=True)


def _unflattened(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim, sizes = dimension(arguments.need("dim"), rank), arguments.need("sizes")
    if not isinstance(sizes, Tuple):
        raise TypeMismatch(f"unflatten to {describe(sizes)}", remedy="pass a tuple of sizes")
    return shapes.split(b, x, dim, _sizes(sizes.items))


def _part(b: Builder, x: View | Computed, dim: int, item: slices.Item) -> View | Computed:
    """`x[:, ..., item]` with the item at this dimension."""
    full = slices.Slice(None, None, None)
    return slices.subscript(b, x, (*(full,) * dim, item))


def _piece(b: Builder, x: View | Computed, dim: int, start: Expr, size: Expr) -> View | Computed:
    stop = tidy(Op("add", (start, size), INT64))
    return _part(b, x, dim, slices.Slice(integer(start), integer(stop), None))


def _narrowed(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim = dimension(arguments.need("dim"), rank)
    start, size = size_of(arguments.need("start")), size_of(arguments.need("length"))
    if isinstance(start, Const) and int(start.value) < 0:
        start = tidy(Op("add", (x.dims[dim], start), INT64))
    return _piece(b, x, dim, start, size)


def _selected(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    dim = dimension(arguments.need("dim"), rank)
    return _part(b, x, dim, arguments.need("index"))


def _unbound(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.take("dim")
    dim = 0 if given is None else dimension(given, rank)
    moved = tensors.permute(x, (dim, *(k for k in range(rank) if k != dim)))
    size = x.dims[dim]
    if not isinstance(size, Const):
        return moved
    return Tuple(tuple(_part(b, moved, 0, number(k)) for k in range(int(size.value))))


def _unknown_pieces(arguments: Arguments) -> tuple[Value, ...]:
    raise UnsupportedSyntax(
        f"{arguments.name} into a number of tensors that is not a constant",
        remedy="loop over them with range, or say how many: x.view(3, -1), x.split([a, b]), x.chunk(3)",
    )


def _split(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    given = arguments.need("split_size_or_sections", "split_size", "split_sizes")
    axis = arguments.take("dim")
    dim = 0 if axis is None else dimension(axis, rank)
    if isinstance(given, Tuple):
        sizes = tuple(map(size_of, given.items))
    else:
        size, whole = static_int(given), x.dims[dim]
        if not size or size < 0 or not isinstance(whole, Const):
            return Tuple(_unknown_pieces(arguments))
        count = range(0, int(whole.value), size)
        sizes = tuple(Const(min(size, int(whole.value) - k), INT64) for k in count)
    pieces: list[Value] = []
    start: Expr = ZERO
    for size_ in sizes:
        pieces.append(_piece(b, x, dim, start, size_))
        start = tidy(Op("add", (start, size_), INT64))
    b.require_equal(x.dims[dim], start, "of split and the dimension that is split")
    return Tuple(tuple(pieces))


def _chunked(b: Builder, arguments: Arguments, x: View | Computed, rank: int) -> Value:
    """Pieces of one size: that it divides the dimension is checked at the call."""
    count, axis = static_int(arguments.need("chunks")), arguments.take("dim")
    dim = 0 if axis is None else dimension(axis, rank)
    if count is None or count < 1:
        return Tuple(_unknown_pieces(arguments))
    parts = shapes.split(b, x, dim, (Const(count, INT64), None))
    return Tuple(tuple(_part(b, parts, dim, number(k)) for k in range(count)))


_VIEW_CALLS: dict[str, Callable[[Builder, Arguments, View | Computed, int], Value]] = {
    "permute": _permuted,
    **{name: _transposed for name in ("transpose", "swapaxes", "swapdims")},
    "t": _t,
    **{name: _moved for name in ("movedim", "moveaxis")},
    "unsqueeze": _unsqueezed,
    "squeeze": _squeezed,
    "expand": _expanded,
    **{name: _like_another for name in ("expand_as", "view_as", "reshape_as")},
    "view": _viewed(copies=False),
    "reshape": _viewed(copies=True),
    **{name: _flattened for name in ("flatten", "ravel")},
    "unflatten": _unflattened,
    "narrow": _narrowed,
    "select": _selected,
    "unbind": _unbound,
    **{name: _split for name in ("split", "split_with_sizes")},
    "chunk": _chunked,
}


def method_call(b: Builder, x: Value, name: str, arguments: Arguments, hint: str) -> Value:
    """`x.name(...)` of a tensor or an element."""
    shape = x.dims if isinstance(x, (View, Computed)) else ()
    if name in ("size", "dim", "ndimension", "numel", "nelement"):
        if name == "size":
            given = arguments.take("dim")
            arguments.done()
            if given is None:
                return Tuple(tuple(integer(d) for d in shape))
            return integer(shape[dimension(given, len(shape))])
        arguments.done()
        if name in ("dim", "ndimension"):
            return number(len(shape))
        return number_of_elements(shape)
    if name == "item":
        arguments.done()
        scalar = tensors.scalar_of(b, x)
        if scalar is None:
            raise TypeMismatch(f"item of {describe(x)}", remedy="index one element")
        return _of_each_kind(_item)(b, scalar)
    if name in ("float", "double", "half", "bfloat16", "long", "int", "short", "bool"):
        arguments.done()
        return tensors.as_dtype(b, x, _DTYPES[name])
    if name in ("to", "type"):
        dtype = dtype_of(arguments.need("dtype"))
        arguments.done()
        return x if dtype is None else tensors.as_dtype(b, x, dtype)
    if name == "type_as":
        other = arguments.need("other")
        arguments.done()
        return tensors.as_dtype(b, x, _tensor(b, other, name).typed.scalar)
    result = torch_call(b, name, arguments, x, hint)
    if result is None:
        raise UnsupportedSyntax(
            f"weft's language has no tensor method {name}", remedy="write it with loops over elements"
        )
    return result


def _item(b: Builder, x: Scalar) -> Scalar:
    return to_number(x, {"bool": BOOL, "int": INT64, "float": FLOAT64}[x.typed.scalar.category])


def number_of_elements(shape: tuple[Expr, ...]) -> Scalar:
    count: Expr = ONE
    for size in shape:
        count = size if count == ONE else Op("mul", (count, size), INT64)
    return integer(count)


def call(b: Builder, name: str, arguments: Arguments, hint: str) -> Value:
    """A call of a function by its full name."""
    module, _, last = name.rpartition(".")
    result: Value | None = None
    if module == "builtins":
        result = _python_call(b, last, arguments)
    elif module == "math":
        result = _math_call(b, last, arguments)
    elif module == "torch" and last in ("empty", "zeros", "ones", "full"):
        result = _create(b, arguments, last, None, hint)
    elif name == "torch.arange":
        result = _arange(b, arguments)
    elif name in ("torch.tensor", "torch.as_tensor"):
        result = _constant_tensor(b, arguments)
    elif module == "torch.nn.functional" and last in _NEURAL:
        x = arguments.need("input")
        arguments.named("inplace")
        arguments.done()
        result = tensors.lift(b, _of_each_kind(_NEURAL[last]), x)
    elif module == "torch.nn.functional" and last == "gelu":
        x, kind = arguments.need("input"), arguments.named("approximate")
        arguments.done()
        tanh = isinstance(kind, Static) and kind.value == "tanh"
        result = tensors.lift(b, _of_each_kind(_gelu_tanh if tanh else _gelu), x)
    elif module == "torch.nn.functional" and last == "leaky_relu":
        x, slope = arguments.need("input"), arguments.take("negative_slope") or number(0.01)
        arguments.done()
        result = tensors.lift(b, _of_each_kind(_leaky_relu), x, slope)
    elif module in ("torch", "torch.nn.functional", "torch.special", "torch.linalg"):
        first = arguments.need("condition") if last == "where" else arguments.need("input", "self", "x")
        result = torch_call(b, last, arguments, first, hint)
    if result is None:
        raise UnsupportedSyntax(
            f"weft's language has no {name.removeprefix('builtins.')}",
            remedy=_INSTEAD.get(name, "write it with loops over elements, or as a function of your own"),
        )
    return result


_INSTEAD = {
    "builtins.print": "return the value, and print it after the call",
    "builtins.isinstance": "write the function for one kind of argument, or ask x.ndim, x.dtype or x is None",
    "builtins.sum": "write a loop that adds up, or x.sum() of a tensor",
    "builtins.any": "write a loop that leaves with break, or x.any() of a tensor",
    "builtins.all": "write a loop that leaves with break, or x.all() of a tensor",
    "builtins.divmod": "write a // b and a % b",
}


def _numbers(b: Builder, arguments: Arguments) -> tuple[Scalar, ...]:
    values = []
    for value in arguments.rest():
        scalar = tensors.scalar_of(b, value)
        if scalar is None:
            raise TypeMismatch(
                f"{arguments.name} of {describe(value)}", remedy="use torch's function of that name for tensors"
            )
        values.append(scalar)
    arguments.done()
    return tuple(values)


def _so_many(b: Builder, arguments: Arguments, count: int) -> tuple[Scalar, ...]:
    """The arguments of a function of numbers that takes so many."""
    values = _numbers(b, arguments)
    if len(values) != count:
        plural = "s" * (count != 1)
        raise TypeMismatch(f"{arguments.name} of {len(values)} arguments", remedy=f"pass {count} number{plural}")
    return values


def _math_call(b: Builder, name: str, arguments: Arguments) -> Value | None:
    """Functions of math: of Python floats, in double precision."""
    operator = {"fabs": "abs"}.get(name, name)
    if name in MATH_FLOAT:
        count = 2 if name in _MATH_OF_TWO or name == "log" and len(arguments.args) == 2 else 1
        values = tuple(to_number(v, FLOAT64) for v in _so_many(b, arguments, count))
        if name == "log" and len(values) == 2:
            logarithms = tuple(b.share(_float_math(b, "log", (v,)), "log") for v in values)  # one after the other
            return checks.checked(b, operate("div", logarithms, b.default_float))
        return _float_math(b, operator, values)
    if name in ("floor", "ceil", "trunc"):
        (x,) = _so_many(b, arguments, 1)
        return _of_each_kind(lambda b, v: _rounded(b, name, v))(b, x)
    if name in ("isnan", "isinf", "isfinite"):
        (x,) = _so_many(b, arguments, 1)
        return replace(operate(name, (to_number(x, FLOAT64),), b.default_float), typed=Typed(BOOL, 0))
    return None


def _rounded(b: Builder, name: str, x: Scalar) -> Scalar:
    """floor, ceil and trunc of math."""
    if x.typed.scalar.category != "float" and not (x.typed.weight and x.typed.scalar == INT64):
        return to_number(x, INT64)  # an element becomes a float first, which has all integers of 32 bits
    return _whole(b, operate(name, (to_number(x, FLOAT64),), b.default_float))


def _float_math(b: Builder, name: str, values: tuple[Scalar, ...]) -> Scalar:
    if not checks.may_raise(b, name, values):
        return operate(name, values, b.default_float)
    values = tuple(b.share(v, "x") for v in values)
    return checks.of_math(b, name, values, operate(name, values, b.default_float))


def _extremum(b: Builder, name: str, x: Scalar, y: Scalar) -> Scalar:
    """Python's max or min of two values: one of them, of its kind."""
    kinds = kinds_of(x) + kinds_of(y)
    if len(joined(kinds, b.default_float)) == 1:
        found = checks.of_all(b, lambda *vs: operate(name, vs, b.default_float), x, y)
        if is_rounded(x, found.typed.register) or is_rounded(y, found.typed.register):
            second = operate("gt" if name == "max" else "lt", (y, x), b.default_float)
            return replace(found, exact=select_exactly(second.expr, y, x, found.typed))
        return found
    x, y = b.share(x), b.share(y)
    second = operate("gt" if name == "max" else "lt", (y, x), b.default_float)
    chosen = select(second.expr, y, x, b.default_float)
    typed = chosen.typed
    pairs = [(u, v, common_type((u.typed, v.typed), b.default_float)) for u in leaves(x) for v in leaves(y)]
    # compared as `typed`, they must be in the order in which Python finds them, each pair compared as its own type
    if not all(holds(t, u) and holds(t, v) for u, v, its in pairs for t in (its, typed)):
        return chosen
    return replace(chosen, expr=operate(name, (plain(x, typed), plain(y, typed)), b.default_float).expr)


def _python_call(b: Builder, name: str, arguments: Arguments) -> Value | None:
    if name in ("max", "min"):
        if len(arguments.args) == 1 and isinstance(arguments.args[0], Tuple):
            arguments.args = list(arguments.args[0].items)
        elif len(arguments.args) == 1:
            alone = describe(arguments.args[0])
            raise TypeMismatch(f"{name} of {alone} alone", remedy=f"pass two values, or write x.a{name}()")
        values = _numbers(b, arguments)
        if not values:
            return None
        result = values[0]
        for value in values[1:]:
            alias = one_of(result, value)
            result = replace(_extremum(b, name, result, value), alias=alias)
        return result
    if name == "abs":
        operand = arguments.need("x")
        arguments.done()
        return tensors.lift(b, lambda b, x: checks.operated(b, "abs", x), operand)
    if name in ("float", "int", "bool"):
        if not arguments.args:
            arguments.args = [number(0)]
        given = arguments.args[0]
        if isinstance(given, Static) and isinstance(given.value, str) and name == "float":
            try:
                return number(float(given.value))
            except ValueError:
                raise TypeMismatch(f"float({given.value!r}) is not a number", remedy="use a number") from None
        (x,) = _so_many(b, arguments, 1)
        return _whole(b, x) if name == "int" else to_number(x, FLOAT64 if name == "float" else BOOL)
    if name == "round":
        (x,) = _so_many(b, arguments, 1)
        if x.typed.scalar.category != "float":
            return to_number(x, INT64)
        return _whole(b, operate("round", (to_number(x, FLOAT64),), b.default_float))
    if name == "pow":
        x, y = _so_many(b, arguments, 2)
        return power_of(b, x, y)
    if name == "len":
        sized = arguments.need("obj")
        arguments.done()
        if isinstance(sized, Tuple):
            return number(len(sized.items))
        if isinstance(sized, (View, Computed)) and sized.dims:
            return integer(sized.dims[0])
        raise TypeMismatch(f"len of {describe(sized)}", remedy="it works on tensors and tuples")
    if name in ("tuple", "list"):
        if not arguments.args:
            return Tuple(())
        given = arguments.need("iterable")
        arguments.done()
        found = sequences.static_items(sequences.items_of(b, given), MOST_ITEMS)
        return None if found is None else Tuple(found)
    if name == "range":
        return _range(b, arguments)
    if name == "reversed":
        sequence = arguments.need("sequence")
        arguments.done()
        return sequences.backwards(b, sequence)
    if name == "enumerate":
        sequence, start = arguments.need("iterable"), arguments.take("start")
        arguments.done()
        return sequences.enumerated(b, sequence, ZERO if start is None else size_of(start))
    if name == "zip":
        strict, together = static_bool(arguments.named("strict")), arguments.rest()
        arguments.done()
        return sequences.zipped(b, together, strict) if together else Tuple(())
    return None


def _range(b: Builder, arguments: Arguments) -> Range | Sequence:
    bounds = []
    for value in arguments.rest():
        scalar = tensors.scalar_of(b, value)
        if scalar is None or scalar.typed.scalar.category == "float":
            raise TypeMismatch(f"range of {describe(value)}", remedy="use ints")
        bounds.append(scalar)
    arguments.done()
    if not 1 <= len(bounds) <= 3:
        raise TypeMismatch(f"range takes 1 to 3 arguments, not {len(bounds)}", remedy="pass start, stop, step")
    step = static_int(bounds[2]) if len(bounds) == 3 else 1
    if step == 0:
        raise UnsupportedSyntax("a range whose step is 0", remedy="use a step that is not 0")
    first = bounds[0] if len(bounds) > 1 else number(0)
    last = bounds[1] if len(bounds) > 1 else bounds[0]
    start, stop = (b.steady(tidy(checks.position(b, converted(v, INT64))), "bound") for v in (first, last))
    if step is None:
        return sequences.stepped(b, start, stop, tidy(checks.position(b, converted(bounds[2], INT64))))
    return Range(start, stop, step)
