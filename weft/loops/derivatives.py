"""The derivative of every operator, as one table, and the proof that some values have none.

An entry maps (seed, operands, result) to what the operator hands back to each operand: the seed times the partial
derivative, or None where that is zero everywhere. Operators that are not in the table are piecewise constant, and so is
one whose own rule is "none". At points without a derivative the choice is PyTorch's, and Python's where Python chooses one
of two objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from weft.loops.holomorphic import RULES
from weft.loops.ir import Carry, Cast, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt, Store
from weft.loops.operators import POLYNOMIALS
from weft.loops.simplify import add, div, mul, neg, number, select, sub
from weft.loops.types import BOOL

Contributions = tuple[Expr | None, ...]
_Rule = Callable[[Expr, tuple[Expr, ...], Expr], Contributions]


def _compare(name: str, a: Expr, b: Expr) -> Expr:
    return Op(name, (a, b), BOOL)


def _apply(name: str, a: Expr) -> Expr:
    return Op(name, (a,), a.type)


def _zero(like: Expr) -> Const:
    return number(0, like.type)


def _one(like: Expr) -> Const:
    return number(1, like.type)


def _scaled(like: Expr, factor: float) -> Const:
    return number(factor, like.type)


def _square(a: Expr) -> Expr:
    return mul(a, a)


def _zero_where(condition: Expr, value: Expr) -> Expr:
    """0 in place of a partial derivative that is not finite, as PyTorch puts it there: both are evaluated, so that the second
    derivative is NaN.
    """
    chosen = select(condition, _zero(value), value)
    return replace(chosen, derivative="both") if isinstance(chosen, Op) else chosen


def _picked(beats: str) -> _Rule:
    """Python's max and min give b if it beats a, else a: the seed goes to the one given."""

    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        a, b = args
        taken = _compare(beats, b, a)
        return select(taken, _zero(g), g), select(taken, g, _zero(g))

    return rule


def _shared(loses: str) -> _Rule:
    """torch.maximum and minimum: ties share the seed equally."""

    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        a, b = args
        tied, half = _compare("eq", a, b), mul(_scaled(g, 0.5), g)
        first = select(tied, half, select(_compare(loses, a, b), _zero(g), g))
        second = select(tied, half, select(_compare(loses, b, a), _zero(g), g))
        return first, second

    return rule


def _clamped(outside: str, inside: str) -> _Rule:
    """torch.clamp: the value has the seed at its bound too."""

    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        a, bound = args
        return (
            select(_compare(inside, a, bound), g, _zero(g)),
            select(_compare(outside, a, bound), g, _zero(g)),
        )

    return rule


def _rectified(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    """torch.relu: no seed at 0."""
    return select(_compare("le", args[0], _zero(args[0])), _zero(g), g), None


def _dropping(keeps: str) -> _Rule:
    """torch.fmax and fmin: the first operand has the seed on ties and where the second is NaN."""

    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        a, b = args
        first = Op("or", (_compare(keeps, a, b), Op("isnan", (b,), BOOL)), BOOL)
        return select(first, g, _zero(g)), select(first, _zero(g), g)

    return rule


def _power(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    a, b = args
    if isinstance(b, Const):
        if b.value == 0:
            return None, None
        if b.value == 1:
            return g, None
        lowered = a if b.value == 2 else Op("pow", (a, number(b.value - 1, a.type)), a.type)
        return mul(g, mul(b, lowered)), None
    lowered = Op("pow", (a, sub(b, _one(b))), a.type)
    flat = _compare("eq", b, _zero(b))
    base = _zero_where(flat, mul(g, _zero_where(flat, mul(b, lowered))))  # whatever is handed on, and whatever to
    nought = Op("and", (_compare("eq", a, _zero(a)), _compare("ge", b, _zero(b))), BOOL)
    return base, mul(g, _zero_where(nought, mul(r, _apply("log", a))))


def _angle(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    y, x = args
    norm = add(_square(y), _square(x))
    inverse = _zero_where(_compare("eq", norm, _zero(norm)), div(_one(norm), norm))
    return mul(mul(g, x), inverse), neg(mul(mul(g, y), inverse))


def _copysign(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    a = args[0]
    return mul(g, _zero_where(_compare("eq", a, _zero(a)), div(r, a))), None


def _unary(partial: Callable[[Expr, Expr], Expr]) -> _Rule:
    """A function of one operand from its derivative in terms of (operand, result)."""
    return lambda g, args, r: (mul(g, partial(args[0], r)),)


def _reciprocal(denominator: Callable[[Expr, Expr], Expr]) -> _Rule:
    """A function of one operand whose derivative is 1 over this."""
    return lambda g, args, r: (div(g, denominator(args[0], r)),)


def _minus_square(a: Expr) -> Expr:
    return sub(_one(a), _square(a))


def _gamma_density(a: Expr, x: Expr) -> Expr:
    """x^(a - 1) e^-x / Gamma(a), as PyTorch's derivatives compute it."""
    power = sub(mul(sub(a, _one(a)), _apply("log", x)), add(x, _apply("lgamma", a)))
    return _apply("exp", power)


def _polygamma(n: Expr, a: Expr) -> Expr:
    return Op("polygamma", (n, a), a.type)


def _over(r: Expr, a: Expr) -> Expr:
    """The quotient of an odd function whose slope is 1/2 at 0."""
    return select(_compare("eq", a, _zero(a)), _scaled(a, 0.5), div(r, a))


def _slope_of_gelu(a: Expr, r: Expr) -> Expr:
    """The normal distribution function and a times its density, as PyTorch writes them."""
    below = mul(_scaled(a, 0.5), add(_one(a), _apply("erf", mul(_scaled(a, math.sqrt(0.5)), a))))
    density = mul(_scaled(a, 1 / math.sqrt(2 * math.pi)), _apply("exp", mul(_scaled(a, -0.5), _square(a))))
    return add(below, mul(a, density))


def _logit(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    a = args[0]
    outside = Op("or", (_compare("lt", a, _zero(a)), _compare("gt", a, _one(a))), BOOL)
    return (select(outside, number(math.nan, g.type), div(g, mul(a, sub(_one(a), a)))),)


def _product_of_log(log: str, low: float, of: Callable[[Expr], Expr]) -> _Rule:
    """a log(of(b)), 0 where a is 0."""

    def rule(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
        a, b = args
        none = Op("and", (_compare("eq", a, _zero(a)), _compare("le", b, _scaled(b, low))), BOOL)
        # of a seed of 0 PyTorch makes 0, as the product itself does
        seeded = select(_compare("eq", g, _zero(g)), _zero(g), mul(g, _apply(log, b)))
        return _zero_where(none, seeded), div(mul(g, a), of(b))

    return rule


def _cross_entropy(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    a, b = args
    rest = sub(_one(a), a)
    scale = Op("maximum", (mul(rest, a), _scaled(a, 1e-12)), a.type)
    return div(mul(g, sub(a, b)), scale), mul(g, sub(_apply("log", rest), _apply("log", a)))


def _complex_size(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    """torch.abs of a complex number: no seed at 0."""
    nought = _compare("eq", r, _zero(r))
    a, b = (_zero_where(nought, div(part, r)) for part in args)
    return mul(g, a), mul(g, b)


def _complex_angle(g: Expr, args: tuple[Expr, ...], r: Expr) -> Contributions:
    """torch.angle of a complex number: no seed at 0, and of sizes whose square leaves the range."""
    y, x = args
    size = Op("hypot", (x, y), r.type)
    nought = _compare("eq", size, _zero(size))
    cosine, sine = (_zero_where(nought, div(div(part, size), size)) for part in (x, y))
    return mul(g, cosine), neg(mul(g, sine))


_ROOT_PI = 2 / math.sqrt(math.pi)

_DERIVATIVES: dict[str, _Rule] = {
    "add": lambda g, args, r: (g, g),
    "sub": lambda g, args, r: (g, neg(g)),
    "mul": lambda g, args, r: (mul(g, args[1]), mul(g, args[0])),
    "div": lambda g, args, r: (div(g, args[1]), neg(mul(div(g, args[1]), r))),
    "neg": lambda g, args, r: (neg(g),),
    "abs": _unary(lambda a, r: _apply("sign", a)),
    "mod": lambda g, args, r: (g, neg(mul(g, Op("floordiv", args, r.type)))),
    "fmod": lambda g, args, r: (g, neg(mul(g, _apply("trunc", Op("div", args, r.type))))),
    "max": _picked("gt"),
    "min": _picked("lt"),
    "maximum": _shared("lt"),
    "minimum": _shared("gt"),
    "amax": _shared("lt"),
    "amin": _shared("gt"),
    "max_of_all": _shared("lt"),
    "min_of_all": _shared("gt"),
    "relu": _rectified,
    "clamp_min": _clamped("lt", "ge"),
    "clamp_max": _clamped("gt", "le"),
    "fmax": _dropping("ge"),
    "fmin": _dropping("le"),
    "pow": _power,
    "atan2": _angle,
    "complex_abs": _complex_size,
    "complex_angle": _complex_angle,
    **RULES,
    "hypot": lambda g, args, r: (mul(g, div(args[0], r)), mul(g, div(args[1], r))),
    "copysign": _copysign,
    "exp": _unary(lambda a, r: r),
    "exp2": _unary(lambda a, r: mul(_scaled(a, math.log(2)), r)),
    "expm1": _unary(lambda a, r: add(r, _one(a))),
    "sin": _unary(lambda a, r: _apply("cos", a)),
    "cos": _unary(lambda a, r: neg(_apply("sin", a))),
    "tan": _unary(lambda a, r: add(_one(a), _square(r))),
    "asin": _unary(lambda a, r: _apply("rsqrt", _minus_square(a))),
    "acos": _unary(lambda a, r: neg(_apply("rsqrt", _minus_square(a)))),
    "atan": _reciprocal(lambda a, r: add(_one(a), _square(a))),
    "sinh": _unary(lambda a, r: _apply("cosh", a)),
    "cosh": _unary(lambda a, r: _apply("sinh", a)),
    "tanh": _unary(lambda a, r: _minus_square(r)),
    "asinh": _unary(lambda a, r: _apply("rsqrt", add(_square(a), _one(a)))),
    "acosh": _unary(lambda a, r: _apply("rsqrt", sub(_square(a), _one(a)))),
    "atanh": _reciprocal(lambda a, r: _minus_square(a)),
    "erf": _unary(lambda a, r: mul(_scaled(a, _ROOT_PI), _apply("exp", neg(_square(a))))),
    "erfc": _unary(lambda a, r: mul(_scaled(a, -_ROOT_PI), _apply("exp", neg(_square(a))))),
    "sqrt": _reciprocal(lambda a, r: mul(_scaled(a, 2.0), r)),
    "rsqrt": _unary(lambda a, r: mul(_scaled(a, -0.5), mul(r, _square(r)))),
    # x ** -0.5, of which PyTorch takes the derivative as a power, whose 0 has no sign
    "inverse_root": _unary(lambda a, r: mul(_scaled(a, -0.5), mul(_apply("abs", r), _square(r)))),
    "log": _reciprocal(lambda a, r: a),
    "log2": _reciprocal(lambda a, r: mul(_scaled(a, math.log(2)), a)),
    "log10": _reciprocal(lambda a, r: mul(_scaled(a, math.log(10)), a)),
    "log1p": _reciprocal(lambda a, r: add(a, _one(a))),
    "sigmoid": _unary(lambda a, r: mul(r, sub(_one(a), r))),
    "gelu": _unary(_slope_of_gelu),
    "logit": _logit,
    "lgamma": _unary(lambda a, r: _apply("digamma", a)),
    "digamma": _unary(lambda a, r: _polygamma(number(1, a.type), a)),
    "polygamma": lambda g, args, r: (None, mul(g, _polygamma(add(args[0], _one(args[0])), args[1]))),
    "zeta": lambda g, args, r: (None, mul(g, neg(mul(args[0], Op("zeta", (add(args[0], _one(args[0])), args[1]), r.type))))),
    "igamma": lambda g, args, r: (None, mul(g, _gamma_density(*args))),
    "igammac": lambda g, args, r: (None, neg(mul(g, _gamma_density(*args)))),
    "erfinv": _unary(lambda a, r: mul(_scaled(a, 1 / _ROOT_PI), _apply("exp", _square(r)))),
    "erfcx": _unary(lambda a, r: sub(mul(mul(_scaled(a, 2.0), a), r), _scaled(a, _ROOT_PI))),
    "ndtri": _unary(lambda a, r: mul(_scaled(a, math.sqrt(2 * math.pi)), _apply("exp", mul(_scaled(a, 0.5), _square(r))))),
    "ndtr": _unary(lambda a, r: mul(_scaled(a, 1 / math.sqrt(2 * math.pi)), _apply("exp", mul(_scaled(a, -0.5), _square(a))))),
    "log_ndtr": _reciprocal(
        lambda a, r: mul(_scaled(a, math.sqrt(math.pi / 2)), _apply("erfcx", mul(_scaled(a, -math.sqrt(0.5)), a)))
    ),
    "entr": _unary(lambda a, r: sub(neg(_apply("log", a)), _one(a))),
    "i0": _unary(lambda a, r: _apply("i1", a)),
    "i0e": _unary(lambda a, r: sub(_apply("i1e", a), mul(_apply("sign", a), r))),
    "i1": _unary(lambda a, r: sub(_apply("i0", a), _over(r, a))),
    "i1e": _unary(lambda a, r: sub(_apply("i0e", a), add(mul(_apply("sign", a), r), _over(r, a)))),
    "bessel_j0": _unary(lambda a, r: neg(_apply("bessel_j1", a))),
    "bessel_j1": _unary(lambda a, r: sub(_apply("bessel_j0", a), _over(r, a))),
    "bessel_y0": _unary(lambda a, r: neg(_apply("bessel_y1", a))),
    "bessel_y1": _unary(lambda a, r: sub(_apply("bessel_y0", a), div(r, a))),
    "modified_bessel_k0": _unary(lambda a, r: neg(_apply("modified_bessel_k1", a))),
    "modified_bessel_k1": _unary(lambda a, r: sub(neg(_apply("modified_bessel_k0", a)), div(r, a))),
    "scaled_modified_bessel_k0": _unary(lambda a, r: sub(r, _apply("scaled_modified_bessel_k1", a))),
    "scaled_modified_bessel_k1": _unary(lambda a, r: sub(sub(r, _apply("scaled_modified_bessel_k0", a)), div(r, a))),
    "spherical_bessel_j0": _unary(lambda a, r: _zero_where(_compare("eq", a, _zero(a)), div(sub(_apply("cos", a), r), a))),
    **dict.fromkeys(POLYNOMIALS, lambda g, args, r: (None, None)),
    "airy_ai": lambda g, args, r: (None,),
    "xlogy": _product_of_log("log", 0.0, lambda b: b),
    "xlog1py": _product_of_log("log1p", -1.0, lambda b: add(b, _one(b))),
    "binary_cross_entropy": _cross_entropy,
}


# Operators that vary with an operand in a way that this table does not know.
_UNKNOWN = dict.fromkeys(("zeta", "polygamma", "igamma", "igammac", "airy_ai", *POLYNOMIALS), (0,))


def is_unknown(op: Op, operand: int) -> bool:
    """Whether the derivative with respect to this operand is not known."""
    return operand in _UNKNOWN.get(op.name, ())


def contributions(op: Op, seed: Expr, args: tuple[Expr, ...], result: Expr) -> Contributions:
    """What a float operator hands back to each operand; a `where` that evaluates one side alone is control flow, and not
    asked for here.
    """
    if op.name == "where":
        condition, *_ = args
        return None, select(condition, seed, _zero(seed)), select(condition, _zero(seed), seed)
    rule = _DERIVATIVES.get(op.derivative or op.name)
    return (None,) * len(args) if rule is None else rule(seed, args, result)


def taken(op: Op, args: tuple[Expr, ...]) -> tuple[Expr, Expr] | None:
    """When the result is the one operand and when it is the other, where Python's `max` or `min` chooses."""
    if op.name not in ("max", "min") or op.derivative:
        return None
    a, b = args
    second = _compare("gt" if op.name == "max" else "lt", b, a)
    return Op("not", (second,), BOOL), second


# Where the seed is 0, nothing is handed back, whatever the operands are.
_CHOICES = frozenset({"add", "sub", "neg", "where", "max", "min", "maximum", "minimum", "fmax", "fmin"})
# Finite operands have finite partial derivatives.
_TAME = frozenset({"mul", "abs", "copysign", "sin", "cos", "tanh", "atan", "asinh", "sigmoid", "erf", "erfc", "atan2", "gelu"})


def keeps_zero(op: Op, finite: bool) -> bool:
    """Whether an operator hands nothing back for a seed of 0, rather than NaN. finite: for finite operands at least."""
    if op.name == "mul" and any(isinstance(a, Const) and math.isfinite(a.value) for a in op.args):
        return True
    if op.name == "div" and isinstance(op.args[1], Const) and op.args[1].value != 0:
        return True
    return op.name in _CHOICES or (finite and op.name in _TAME)


def passed_through(expr: Expr) -> tuple[Expr, ...]:
    """The operands that an expression depends on with a derivative that is not zero everywhere."""
    if expr.type.category != "float":
        return ()
    match expr:
        case Op(name="where", args=(_, then, orelse)):
            return then, orelse
        case Op(name=name, args=args) if name in _DERIVATIVES:
            return args
        case Cast(value=value) | Round(value=value):
            return (value,)
    return ()


def sources(expr: Expr) -> Iterator[Ref | Load]:
    """The names and loads that an expression depends on with a derivative that is not zero everywhere."""
    pending = [expr]
    while pending:
        expr = pending.pop()
        if isinstance(expr, (Ref, Load)) and expr.type.category == "float":
            yield expr
        pending.extend(reversed(passed_through(expr)))


# ---------------------------------------------------------------- values that cancel

# A stabiliser is a value that the function uses but whose choice changes no result, like the maximum that softmax
# subtracts. Its derivative is zero, and the proof is symbolic: follow how every value changes with it.


@dataclass(frozen=True)
class _Change:
    """How a value v changes with the stabiliser m: dv/dm = amount ("shift"), or amount * v ("scale").

    No change is a shift by 0; a constant 0 is "any", for it fits every scale.
    """

    kind: str
    amount: float = 0.0


_NONE, _ANY = _Change("shift", 0.0), _Change("any")


def _scale(amount: float) -> _Change:
    return _Change("scale", amount) if amount else _NONE


def _as_scale(change: _Change) -> float | None:
    return change.amount if change.kind == "scale" else 0.0 if change in (_NONE, _ANY) else None


def _joined(a: _Change | None, b: _Change | None) -> _Change | None:
    """The change of a value that is one of two."""
    if a == b:
        return a
    if _ANY in (a, b):  # a constant 0, which is scaled by anything, and shifted by nothing
        rest = b if a == _ANY else a
        return rest if rest in (_NONE, None) or rest.kind == "scale" else None
    return None


def _sum(a: _Change, b: _Change, sign: float) -> _Change | None:
    if _ANY in (a, b):
        rest = b if a == _ANY else a
        return _Change("shift", sign * b.amount) if a == _ANY and b.kind == "shift" else rest
    if a.kind == b.kind == "shift":
        return _Change("shift", a.amount + sign * b.amount)
    return a if a == b else None


def _product(args: tuple[Expr, ...], a: _Change, b: _Change, sign: float) -> _Change | None:
    if a == _ANY or (b == _ANY and sign > 0):
        return _ANY
    left, right = _as_scale(a), _as_scale(b)
    if left is not None and right is not None:
        return _scale(left + sign * right)
    for (factor, other), usable in (((args[1], a), True), ((args[0], b), sign > 0)):
        if usable and isinstance(factor, Const) and factor.value and other.kind == "shift":
            value = float(factor.value)
            return _Change("shift", other.amount * value if sign > 0 else other.amount / value)
    return None


class Changes:
    """Follows the changes of all values with one of them, by name; any it cannot follow is None. cancels: all that was stored
    so far is free of it.
    """

    def __init__(self, name: str) -> None:
        self.of: dict[str, _Change | None] = {name: _Change("shift", 1.0)}
        self.name = name
        self.cancels = True

    def block(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            match stmt:
                case Let():
                    self.set(stmt.name, self.expr(stmt.value))
                case Store():
                    self.cancels = self.cancels and self.free(stmt.value)
                case If():
                    self.block(stmt.then)
                    self.block(stmt.orelse)
                    for m in stmt.merges:
                        self.set(m.name, _joined(self.expr(m.then), self.expr(m.orelse)))
                case For():
                    self.loop(stmt)

    def set(self, name: str, change: _Change | None) -> None:
        if name != self.name:
            self.of[name] = change

    def guarded(self, condition: Expr) -> bool:
        """Whether a condition asks if the value itself is infinite."""
        match condition:
            case (
                Op(name="eq" | "ne" | "lt" | "gt", args=(Ref(name=name), Const(value=bound)))
                | Op(name="eq" | "ne" | "lt" | "gt", args=(Const(value=bound), Ref(name=name)))
            ):
                return name == self.name and math.isinf(bound)
        return False

    def free(self, e: Expr) -> bool:
        return self.expr(e) in (_NONE, _ANY)

    def folded(self, algebra: str, parts: tuple[Expr, ...]) -> _Change | None:
        """The change of a fold that begins with the identity of its algebra."""
        changes = [self.expr(e) for e in parts]
        if algebra == "sum" and changes[0] is not None and (changes[0] in (_NONE, _ANY) or changes[0].kind == "scale"):
            return changes[0]
        return _NONE if all(c in (_NONE, _ANY) for c in changes) else None

    def loop(self, loop: For) -> None:
        # from what the starts allow, to a change that an iteration keeps
        guess = {c.name: self.expr(c.init) for c in loop.carries}
        for _ in range(len(loop.carries) + 2):
            self.of |= guess
            self.block(loop.body)
            after = {c.name: self.step(c, guess[c.name]) for c in loop.carries}
            if after == guess:
                break
            guess = after
        else:
            guess = dict.fromkeys(guess)
            self.of |= guess
            self.block(loop.body)
        for c in loop.carries:
            self.set(c.result, guess[c.name])

    def step(self, carry: Carry, before: _Change | None) -> _Change | None:
        return None if before is None else _joined(before, self.expr(carry.next))

    def expr(self, e: Expr) -> _Change | None:
        if e.type.category != "float":
            return _NONE
        match e:
            case Const(value=value):
                return _NONE if value else _ANY
            case Ref(name=name):
                return self.of.get(name, _NONE)
            case Load():
                return _NONE  # what is stored does not change, or the proof has failed
            case Cast(value=value):
                return self.expr(value) if value.type.category == "float" else _NONE
            case Round(value=value):
                return self.expr(value)
            case Op(name="where", args=(condition, then, orelse)):
                if self.guarded(condition):  # of what is infinite nothing is asked
                    return self.expr(orelse if isinstance(then, Const) else then)
                return _joined(self.expr(then), self.expr(orelse))
            case Op(name=name, args=args):
                changes = [self.expr(a) for a in args]
                known = [c for c in changes if c is not None]
                return self.operator(name, args, known) if len(known) == len(changes) else None
        return None

    def operator(self, name: str, args: tuple[Expr, ...], of: list[_Change]) -> _Change | None:
        a = of[0]
        match name:
            case "add" | "sub":
                return _sum(a, of[1], 1.0 if name == "add" else -1.0)
            case "mul" | "div":
                return _product(args, a, of[1], 1.0 if name == "mul" else -1.0)
            case "neg":
                return _Change("shift", -a.amount) if a.kind == "shift" else a
            case "exp" if a.kind == "shift":
                return _scale(a.amount)
            case "log" if a.kind == "scale":
                return _Change("shift", a.amount)
            case "sqrt" | "rsqrt" if a.kind == "scale":
                return _scale(a.amount * (0.5 if name == "sqrt" else -0.5))
            case "abs" if a.kind == "scale":
                return a
            case "max" | "min" | "maximum" | "minimum" | "fmax" | "fmin":
                return _joined(a, of[1]) if a.kind == "shift" else None
        return _NONE if all(c in (_NONE, _ANY) for c in of) else None


def cancels(function: Function, name: str) -> bool:
    """Whether every value that the function stores is provably free of `name`, however it is computed."""
    changes = Changes(name)
    changes.block(function.body)
    return changes.cancels
