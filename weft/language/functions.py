"""The functions of the language: Python's, math's and PyTorch's, by their full names.

A function takes the builder, its arguments as values and a name for an array it may make.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import checks, complexes, elementwise, sequences, tensors
from weft.language.arguments import DTYPES, Arguments, dimension, dtype_of, size_of, static_bool, static_int, tensor_of
from weft.language.arithmetic import as_type, common, convert, in_common, operate, power, refuse_bools, to_number, truth
from weft.language.bounds import check_elements
from weft.language.builder import Builder
from weft.language.creation import arange, constant_tensor, create
from weft.language.elementwise import (
    ELEMENTWISE,
    FLOAT_FUNCTIONS,
    checked_operator,
    divide_towards_zero,
    of_each_kind,
    operator,
)
from weft.language.kinds import (
    common_type,
    converted,
    holds,
    is_half,
    is_rounded,
    joined,
    kinds_of,
    leaves,
    number_of,
    number_of_one,
    plain,
    select,
    select_exactly,
)
from weft.language.subscripts import position
from weft.language.values import (
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
from weft.language.views import VIEWS, view_call
from weft.loops.ir import ONE, ZERO, Expr, Op, free_names
from weft.loops.types import BOOL, CATEGORIES, COMPLEX64, COMPLEX128, FLOAT64, INT64, Typed, complex_of

_MATH_OF_TWO = frozenset(("atan2", "hypot", "copysign", "fmod", "pow"))
MATH_FLOAT = frozenset({*FLOAT_FUNCTIONS, "atan2", "hypot", "copysign", "fmod", "pow", "fabs"}) - {"rsqrt", "sigmoid"}
_MATH_CONSTANTS = {"pi": 3.141592653589793, "e": 2.718281828459045, "tau": 6.283185307179586,
                   "inf": float("inf"), "nan": float("nan")}  # fmt: skip

# The longest list that is made of a range or a tensor of constant length: its items are values of the parser.
MOST_ITEMS = 256


def exists(owner: str, name: str) -> bool:
    """Whether a module of torch, or its class of tensors, has this name (which is not known before torch is imported)."""
    found: object = sys.modules.get(owner) or getattr(sys.modules.get(owner.rpartition(".")[0]), owner.rpartition(".")[2], None)
    return found is None or hasattr(found, name)


# What can be asked of a tensor besides its shape, dtype and transposes.
METHODS = frozenset(
    (
        *(name for name in ELEMENTWISE if exists("torch.Tensor", name)),
        *tensors.REDUCTIONS,
        *tensors.CUMULATIVE,
        *("add", "sub", "subtract", "div", "divide", "max", "min", "softmax", "log_softmax", "polygamma"),
        *("positive", "conj", "conj_physical", "resolve_conj", "resolve_neg"),
        *("matmul", "mm", "mv", "bmm", "dot", "inner", "vdot", "clone", "contiguous", "detach", "item", "type_as"),
        *(f"new_{kind}" for kind in ("empty", "zeros", "ones", "full")),
        *VIEWS,
        *("size", "dim", "ndimension", "numel", "nelement", "to", "type"),
        *("float", "double", "half", "bfloat16", "long", "int", "short", "bool", "cfloat", "cdouble"),
        *("real", "imag", "view_as_real", "view_as_complex"),
    )
)


def constant(name: str) -> Value | None:
    """What a name of a module is where it is no function: a dtype, a mathematical constant."""
    module, _, last = name.rpartition(".")
    if module == "torch" and last in DTYPES:
        return Static(DTYPES[last])
    if module in ("math", "torch") and last in _MATH_CONSTANTS:
        return number(_MATH_CONSTANTS[last])
    return None


def _reduce(b: Builder, kind: str, arguments: Arguments, value: View | Computed) -> Value:
    given = arguments.take("dim", "axis")
    keep = static_bool(arguments.take("keepdim", "keepdims"))
    dtype = dtype_of(arguments.named("dtype"))
    arguments.done()
    if dtype is not None:
        converted = tensors.as_dtype(b, value, dtype)
        value = converted if not isinstance(converted, Scalar) else tensor_of(b, converted, kind)
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


def _cumulate(b: Builder, kind: str, arguments: Arguments, value: View | Computed) -> Value:
    given = arguments.need("dim")
    dtype = dtype_of(arguments.named("dtype"))
    arguments.done()
    if dtype is not None:
        value = tensor_of(b, tensors.as_dtype(b, value, dtype), kind)
    if value.typed.scalar.category == "complex":
        raise TypeMismatch(f"{kind} of complex numbers", remedy="write it as a loop that carries a complex number")
    return tensors.cumulate(b, kind, value, dimension(given, len(value.dims)))


def _softmax(b: Builder, arguments: Arguments, value: View | Computed, log: bool) -> Value:
    dim = dimension(arguments.need("dim"), len(value.dims))
    dtype = dtype_of(arguments.named("dtype"))
    arguments.named("_stacklevel")
    arguments.done()
    if dtype is not None:
        value = tensor_of(b, tensors.as_dtype(b, value, dtype), "softmax")
    if value.typed.scalar.category != "float":
        raise TypeMismatch(f"softmax of {value.typed.scalar} elements", remedy="convert with .float() first")
    largest = tensors.reduce(b, "amax", value, (dim,), True)
    shifted = tensors.lift(b, operator("sub"), value, largest)
    powers = tensors.lift(b, operator("exp"), shifted)
    total = tensors.reduce(b, "sum", tensor_of(b, powers, "softmax"), (dim,), True)
    if log:
        return tensors.lift(b, operator("sub"), shifted, tensors.lift(b, operator("log"), total))
    return tensors.lift(b, operator("div"), powers, total)


# ---------------------------------------------------------------- calls


def _scaled(b: Builder, name: str, arguments: Arguments, x: Value) -> Value:
    """add, sub and rsub, with alpha."""
    y, alpha = arguments.need("other"), arguments.named("alpha")
    if name == "rsub":
        name, x, y = "sub", y, x
    arguments.done()
    if alpha is None:
        return tensors.lift(b, operator(name), x, y)
    _check_alpha(b, name, x, y, alpha)
    return tensors.lift(b, of_each_kind(partial(_add_scaled, name)), x, y, alpha)


def _add_scaled(name: str, b: Builder, x: Scalar, y: Scalar, alpha: Scalar) -> Scalar:
    """x + alpha * y, both of the type that they have in common before they are scaled."""
    if name == "sub":
        refuse_bools((x, y))
    x, y = in_common((x, y), b.default_float)
    typed = common((x, y), b.default_float)
    if typed.scalar == BOOL:
        alpha = truth(alpha)
    elif typed.scalar.category == "int":
        alpha = checks.taken(b, alpha, typed.scalar)
    return operate(name, (x, operate("mul", (as_type(y, typed), alpha), b.default_float)), b.default_float)


def _check_alpha(b: Builder, name: str, *values: Value) -> None:
    """PyTorch's rule: alpha is of no higher category than what it scales, and a bool for bools alone."""
    x, y, alpha = (v.typed if isinstance(v, (Scalar, View, Computed)) else None for v in values)
    if x is None or y is None or alpha is None:
        return
    typed, own = common_type((x, y), b.default_float).scalar, alpha.scalar
    if CATEGORIES.index(own.category) > max(1, CATEGORIES.index(typed.category)) or (own.category == "bool" != typed.category):
        raise TypeMismatch(
            f"torch.{name} of {typed} with an alpha of {own}",
            evidence=[f"PyTorch takes no {own.category} alpha where the result is {typed}"],
            remedy="pass an int as alpha, or convert the operands with .to(dtype)",
        )


def _div(b: Builder, arguments: Arguments, x: Value) -> Value:
    y, mode = arguments.need("other"), arguments.named("rounding_mode")
    arguments.done()
    kind = mode.value if isinstance(mode, Static) else None if mode is None else describe(mode)
    if kind == "floor":
        return tensors.lift(b, checked_operator("floordiv"), x, y)
    if kind == "trunc":
        return tensors.lift(b, of_each_kind(divide_towards_zero), x, y)
    if kind is not None:
        raise TypeMismatch(f"rounding_mode={kind!r} of {arguments.name}", remedy="use 'floor', 'trunc' or None")
    return tensors.lift(b, operator("div"), x, y)


def _of_parts(b: Builder, name: str, x: Value) -> Value:
    """Functions of torch that show the parts of complex numbers."""
    if name == "view_as_real":
        return complexes.as_real(b, x)
    if name == "view_as_complex":
        return complexes.as_complex(b, x)
    if name == "imag" or (complexes.is_complex(x) and name == "real"):
        return complexes.part(b, name, x)
    if not complexes.is_complex(x):
        return x
    if name == "resolve_conj":
        return complexes.resolved(b, x)
    found = complexes.conj(b, x)
    return complexes.resolved(b, found) if name == "conj_physical" else found


# What gives its argument itself, where that is real.
ITSELF = frozenset(("positive", "real", "conj", "conj_physical", "resolve_conj", "resolve_neg"))

# The functions of torch that take two numbers, and give a tensor of them.
_OF_NUMBERS = frozenset(("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide"))


def _of_numbers(b: Builder, arguments: Arguments, x: Value) -> Value:
    """The first argument of such a function: one element of a tensor if the other one is a number as it is."""
    other = arguments.args[0] if arguments.args else arguments.kwargs.get("other")
    if any(not isinstance(v, Scalar) or v.typed.weight or v.mixed is not None for v in (x, other)):
        return x
    assert isinstance(x, Scalar) and isinstance(other, Scalar)
    own = {"float": b.default_float, "complex": complex_of(b.default_float)}
    scalars = [own.get(v.typed.scalar.category, v.typed.scalar) for v in (x, other)]
    if arguments.args:
        arguments.args[0] = convert(other, scalars[1])
    else:
        arguments.kwargs["other"] = convert(other, scalars[1])
    return convert(x, scalars[0])


def _polygamma(b: Builder, arguments: Arguments, x: Value) -> Value:
    """torch.polygamma(n, x) and x.polygamma(n)."""
    other = arguments.need("input", "n")
    arguments.done()
    n, of = (other, x) if isinstance(other, Scalar) and other.typed == Typed(INT64, 0) else (x, other)
    order = static_int(n)
    if not (isinstance(n, Scalar) and n.typed == Typed(INT64, 0)) or (order is not None and order < 0):
        raise TypeMismatch(f"polygamma of order {describe(n)}", remedy="the order is an int, 0 or more")
    number_of_order = checks.at_least_zero(b, n, "polygamma of an order below 0")
    return tensors.lift(
        b, lambda b, v: operate("polygamma", (to_number(number_of_order, FLOAT64), v), b.default_float), of
    )


def torch_call(b: Builder, name: str, arguments: Arguments, x: Value, hint: str) -> Value | None:
    """A function of torch whose first argument is x, or a method of x; None where weft knows none of this name."""
    if name in _OF_NUMBERS:
        x = _of_numbers(b, arguments, x)
    if name in ("add", "sub", "subtract", "rsub"):
        return _scaled(b, "rsub" if name == "rsub" else name[:3], arguments, x)
    if name in ("conj", "conj_physical", "resolve_conj", "real", "imag", "view_as_real", "view_as_complex"):
        arguments.done()
        return _of_parts(b, name, x)
    if name in ("complex", "polar"):
        second = arguments.need("imag", "angle")
        arguments.done()
        return complexes.made(b, name, x, second)
    if name == "is_complex":
        arguments.done()
        return number(complexes.is_complex(x))
    if name in ITSELF:
        arguments.done()
        if name == "positive" and isinstance(x, (Scalar, View, Computed)) and x.typed.scalar == BOOL:
            raise TypeMismatch("positive of bools", remedy="convert with .to(dtype) first")
        return x
    if name in ("div", "divide"):
        return _div(b, arguments, x)
    if name in ("max", "min"):
        if not arguments.args and not arguments.kwargs:
            return _reduce(b, f"{name}_of_all", arguments, tensor_of(b, x, name))
        other = arguments.take("other", "dim")
        if isinstance(other, (View, Computed)) or (isinstance(other, Scalar) and other.typed.weight):
            arguments.done()
            return tensors.lift(b, operator(f"{name}imum"), x, other)
        raise UnsupportedSyntax(f"{name} with a dimension gives values and indices", remedy=f"write a{name}(dim)")
    if name in tensors.REDUCTIONS:
        return _reduce(b, name, arguments, tensor_of(b, x, name))
    if name in tensors.CUMULATIVE:
        return _cumulate(b, name, arguments, tensor_of(b, x, name))
    if name in ("softmax", "log_softmax"):
        return _softmax(b, arguments, tensor_of(b, x, name), name == "log_softmax")
    if name in ("matmul", "mm", "mv", "bmm", "dot", "inner", "vdot"):
        y = arguments.need("other", "mat2", "vec2")
        arguments.done()
        return tensors.matmul(b, tensor_of(b, x, name), tensor_of(b, y, name))
    if name == "polygamma":
        return _polygamma(b, arguments, x)
    if name in ELEMENTWISE:
        return elementwise.call(b, ELEMENTWISE[name], arguments, x)
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
        return create(b, arguments, name, tensor_of(b, x, name), hint)
    if name.startswith("new_") and name.removeprefix("new_") in ("empty", "zeros", "ones", "full"):
        return create(b, arguments, name, tensor_of(b, x, name), hint)
    if name in VIEWS:
        return view_call(b, name, arguments, tensor_of(b, x, name))
    return None


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
        return of_each_kind(_item)(b, scalar)
    if name in ("float", "double", "half", "bfloat16", "long", "int", "short", "bool"):
        arguments.done()
        return tensors.as_dtype(b, x, DTYPES[name])
    if name in ("cfloat", "cdouble"):
        arguments.done()
        return tensors.as_dtype(b, x, COMPLEX64 if name == "cfloat" else COMPLEX128)
    if name in ("to", "type"):
        dtype = dtype_of(arguments.need("dtype"))
        arguments.done()
        return x if dtype is None else tensors.as_dtype(b, x, dtype)
    if name == "type_as":
        other = arguments.need("other")
        arguments.done()
        return tensors.as_dtype(b, x, tensor_of(b, other, name).typed.scalar)
    result = torch_call(b, name, arguments, x, hint)
    if result is None:
        raise UnsupportedSyntax(
            f"weft's language has no tensor method {name}", remedy="write it with loops over elements"
        )
    return result


def _item(b: Builder, x: Scalar) -> Scalar:
    return to_number(x, {"bool": BOOL, "int": INT64, "float": FLOAT64, "complex": COMPLEX128}[x.typed.scalar.category])


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
        result = create(b, arguments, last, None, hint)
    elif name == "torch.arange":
        result = arange(b, arguments)
    elif name in ("torch.tensor", "torch.as_tensor"):
        result = constant_tensor(b, arguments)
    elif module in ("torch", "torch.nn.functional", "torch.special", "torch.linalg") and exists(module, last):
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


def power_of(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """Python's `x ** y`."""
    return of_each_kind(_power_of)(b, x, y)


def _power_of(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    x = b.share(x, "x")
    y = b.share(y, "y") if x.typed.weight == y.typed.weight == 0 else y
    return checks.power(b, x, y, power(x, y, b.default_float))


def _whole(b: Builder, x: Scalar) -> Scalar:
    """Python's int() of a number or an element."""
    if x.mixed is not None and x.mixed.test is None:  # what it is held as has every value that it may have
        x = plain(x, x.typed)
    if x.mixed is not None:
        return of_each_kind(_whole)(b, x)
    if x.typed.scalar.category == "float":
        x = b.share(x, "x")
    return checks.whole_number(b, x, to_number(x, INT64))


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
        return of_each_kind(lambda b, v: _rounded(b, name, v))(b, x)
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
        half = is_half(found.typed)
        numbers = [n for v in (x, y) if half and (n := number_of(v, found.typed)) is not None]
        if numbers or is_rounded(x, found.typed.register) or is_rounded(y, found.typed.register):
            second = operate("gt" if name == "max" else "lt", (y, x), b.default_float)
            # a number is compared as a half, and may be none (what a loop carries is left to be a maximum)
            if any(n.test is not None and not n.held and not free_names(n.test) & b.carried for n in numbers):
                return select(second.expr, y, x, b.default_float)
            exact = select_exactly(second.expr, y, x, found.typed)
            return replace(found, exact=exact, number=number_of_one(second.expr, y, x, found.typed))
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
    if name == "complex" and arguments.args:
        return complexes.python_number(b, _numbers(b, arguments))
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
            return Tuple((), name == "list")
        given = arguments.need("iterable")
        arguments.done()
        found = sequences.static_items(sequences.items_of(b, given), MOST_ITEMS)
        return None if found is None else Tuple(found, name == "list")
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
    start, stop = (b.steady(tidy(position(b, converted(v, INT64))), "bound") for v in (first, last))
    if step is None:
        return sequences.stepped(b, start, stop, tidy(position(b, converted(bounds[2], INT64))))
    return Range(start, stop, step)
