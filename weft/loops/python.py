"""A function written as Python: text that the language parses to the same nest again, and that PyTorch runs as it stands.

The nest computes in register types and converts where it says so. Python converts by what its values are, so the text of
an expression is built together with the type that it has in Python, and conversions are written out where the two differ.
"""

from __future__ import annotations

import builtins
import keyword
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

from weft.loops.ir import (
    Array,
    Cast,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Stmt,
    Store,
    free_names,
    statement_exprs,
    walk,
)
from weft.loops.names import Names
from weft.loops.operators import OPERATORS
from weft.loops.show import ATOM, INFIX, PREFIX, SELECT
from weft.loops.types import BOOL, FLOAT32, FLOAT64, FLOATS8, INT64, ScalarType, Typed, promote
from weft.loops.variables import Variables, variables

# Functions of math on Python floats; all of these and the others are functions of torch on tensors.
_MATH = frozenset(
    {"exp", "exp2", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}
    | {"erf", "erfc", "sqrt", "log", "log2", "log10", "log1p", "atan2", "hypot", "copysign", "fmod"}
    | {"isnan", "isinf", "isfinite"}
)
_WHOLE = {"floor": "math.floor", "ceil": "math.ceil", "trunc": "math.trunc", "round": "round"}
_NUMBERS = {"bool": "bool", "int64": "int", "float64": "float"}
_INDENT = "    "
_CALL = ATOM  # how tightly a call binds


@dataclass(frozen=True)
class Text:
    """An expression in Python. level: how tightly it binds. typed: its type there."""

    text: str
    level: int
    typed: Typed

    def at(self, level: int) -> str:
        """The text where something that binds at least so tightly must stand."""
        return self.text if self.level >= level else f"({self.text})"


def python(function: Function, default_float: ScalarType = FLOAT32) -> str:
    """The text of a function, ending in a newline. default_float: PyTorch's default dtype, what integers divide to.

    `torch` and `math` must be imported where it runs. Names that are no names in Python, or stand for something that the
    text needs, get an underscore.
    """
    writer = _Writer(function, default_float)
    while True:
        lines = list(writer.function_lines())
        if writer.wanted == writer.tensors:
            return "\n".join(lines) + "\n"
        writer = _Writer(function, default_float, frozenset(writer.wanted))


@dataclass
class _Writer:
    function: Function
    default_float: ScalarType
    tensors: frozenset[str] = frozenset()  # the names that must hold tensors; wanted: those found to, while writing
    names: dict[str, str] = field(default_factory=dict)
    typed: dict[str, Typed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables: Variables = variables(self.function)
        self.arrays = {a.name: a for a in self.function.arrays}
        self.sources = _sources(self.function.body)
        self.copied = self._copied()
        self.wanted = set(self.tensors)
        self.typed |= {s.name: Typed(INT64, 0) for s in self.function.sizes}
        self.typed |= {s.name: Typed(s.type, 0) for s in self.function.scalars}

    # ---- names

    def name(self, name: str) -> str:
        """The Python name of a variable, an array or a number."""
        variable = self.variables[name]
        if variable not in self.names:
            taken = variable.startswith("__") or keyword.iskeyword(variable)
            taken = taken or variable in ("torch", "math") or hasattr(builtins, variable)
            fresh = Names({*Names.of(self.function).taken, *self.names.values()})
            self.names[variable] = fresh.fresh(f"{variable.strip('_')}_") if taken else variable
        return self.names[variable]

    # ---- what names hold

    def _copied(self) -> frozenset[tuple[str, str]]:
        """(name, array): where the name gets an element of the array it must get a copy, since the element is stored into
        while the name is needed. In PyTorch an element is a view.
        """
        needed = set(self.variables.stored)
        waiting = list(needed)
        while waiting:
            name, array = waiting.pop()
            for source in self.sources.get(name, ()):
                for leaf in _leaves(source):
                    if isinstance(leaf, Ref) and (leaf.name, array) not in needed:
                        needed.add((leaf.name, array))
                        waiting.append((leaf.name, array))
        return frozenset(needed)

    def require(self, *exprs: Expr) -> None:
        """Note that these must be tensors: their names must hold one wherever they get a value, never a Python number."""
        waiting = [e for top in exprs for e in _numbers_in(top)]
        while waiting:
            name = waiting.pop().name
            if name not in self.wanted:
                self.wanted.add(name)
                waiting += [e for source in self.sources.get(name, ()) for e in _numbers_in(source)]

    # ---- the function

    def function_lines(self) -> Iterator[str]:
        function = self.function
        scalars = {s.name: _NUMBERS[s.type.name] for s in function.scalars}
        parameters = [f"{self.name(p)}: {scalars[p]}" if p in scalars else self.name(p) for p in function.parameters]
        yield f"def {self.name(function.name)}({', '.join(parameters)}):"
        lines = [*self._sizes(), *self._quotients(), *self._checks(), *self._made(()), *self.block(function.body)]
        if function.results:
            given = [f"{self.name(r)}.item()" if r in function.numbers else self.name(r) for r in function.results]
            alone = "," if function.container == "tuple" else ""
            text = ", ".join(given) + alone
            lines.append(f"return [{text}]" if function.container == "list" else f"return {text}")
        yield from (_INDENT + line for line in lines or ["pass"])

    def _sizes(self) -> Iterator[str]:
        """The sizes that the text needs, from the shapes of the arguments."""
        function = self.function
        tops = [e for s in walk(function.body) for e in statement_exprs(s)]
        tops += [e for a in function.arrays if a.name not in function.parameters for e in a.shape]
        tops += [e for q in function.equalities for e in (q.left, q.right)]
        tops += [s.value for s in function.scalars if s.value is not None]
        used = {n for e in tops for n in free_names(e)}
        for parameter in function.parameters:
            own = sorted((s for s in function.sizes if s.array == parameter), key=lambda s: s.axis)
            needed = [s for s in own if s.name in used]
            if needed and len(needed) == len(own) > 1:
                yield f"{', '.join(self.name(s.name) for s in own)} = {self.name(parameter)}.shape"
            else:
                yield from (f"{self.name(s.name)} = {self.name(parameter)}.shape[{s.axis}]" for s in needed)

    def _quotients(self) -> Iterator[str]:
        for scalar in self.function.scalars:
            if scalar.value is not None:
                yield f"{self.name(scalar.name)} = {self.expr(scalar.value).text}"

    def _checks(self) -> Iterator[str]:
        for equality in self.function.equalities:
            yield f"assert {self.expr(equality.left).at(5)} == {self.expr(equality.right).at(5)}"

    def _made(self, within: tuple[str, ...]) -> Iterator[str]:
        """The arrays that are made in these loops."""
        for array in self.function.arrays:
            if array.name not in self.function.parameters and array.within == within:
                yield f"{self.name(array.name)} = {self._creation(array)}"

    def _creation(self, array: Array) -> str:
        known = {s.name for s in self.function.sizes}
        sizes = [self.expr(_extent(e, known)).text for e in array.shape]
        shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
        options = [f"dtype=torch.{array.dtype}"]
        tensors = [p for p in self.function.parameters if p in self.arrays]
        options += [f"device={self.name(tensors[0])}.device"] if tensors else []
        fill = array.fill
        if fill is None:
            return f"torch.empty({', '.join([shape, *options])})"
        if fill.value == 0 and math.copysign(1, fill.value) > 0:
            return f"torch.zeros({', '.join([shape, *options])})"
        return f"torch.full({', '.join([shape, self.expr(fill).text, *options])})"

    # ---- statements

    def block(self, statements: Iterable[Stmt], within: tuple[str, ...] = ()) -> list[str]:
        lines: list[str] = []
        for stmt in statements:
            match stmt:
                case Let(name=name, value=value):
                    text = self.value(name, value)
                    self.typed[name] = text.typed
                    lines.append(f"{self.name(name)} = {text.text}")
                case Store(array=array, index=index, value=value):
                    lines.append(f"{self._element(array, index)} = {self.stored(value)}")
                case If():
                    lines += self._branch(stmt, within)
                case For():
                    lines += self._loop(stmt, within)
        return lines

    def stored(self, value: Expr) -> str:
        """A value that is stored, which converts it."""
        return self.expr(value.value if isinstance(value, Cast) else value).text

    def value(self, name: str, value: Expr, register: ScalarType | None = None) -> Text:
        """What a name gets: of this register type (that of the expression where None)."""
        owned = self._owned(name, value)
        text = self.tensor(owned) if name in self.tensors and self.expr(owned).typed.weight else self.expr(owned)
        register = register or value.type
        if text.typed.register != register or (name in self.tensors and text.typed.weight == 0 and _is_float(register)):
            text = self.converted(text, register, number=name not in self.tensors)
        return text

    def _owned(self, name: str, value: Expr) -> Expr:
        """The value with copies of elements where the name needs them."""
        match value:
            case Load(array=array) if (name, array) in self.copied:
                return Op("clone", (value,), value.type)
            case Op(name="where", args=(condition, then, orelse)):
                return Op("where", (condition, self._owned(name, then), self._owned(name, orelse)), value.type)
            case Op(name="max" | "min", args=args):
                return Op(value.name, tuple(self._owned(name, a) for a in args), value.type)
        return value

    def assignments(self, pairs: Iterable[tuple[str, Expr]]) -> Iterator[str]:
        """Names that get their values at once; those that are in the same variable already need nothing."""
        left: list[tuple[str, Expr, str]] = []
        for name, value in pairs:
            if isinstance(value, Ref) and self.variables[value.name] == self.variables[name]:
                continue
            left.append((self.variables[name], value, self._initial(name, value).text))
        while left:
            # one that no other needs any more can go first
            for k, (variable, _, text) in enumerate(left):
                others = {self.variables[n] for m, (_, value, _) in enumerate(left) if m != k for n in free_names(value)}
                if variable not in others:
                    yield f"{self.name(variable)} = {text}"
                    del left[k]
                    break
            else:
                yield f"{', '.join(self.name(v) for v, _, _ in left)} = {', '.join(t for _, _, t in left)}"
                return

    def _initial(self, name: str, value: Expr) -> Text:
        """What a carried or merged name gets: its type is then joined from all that it gets."""
        inner = value.value if isinstance(value, Cast) else value
        for candidate in dict.fromkeys((inner, value)):
            owned = self._owned(name, candidate)
            text = self.tensor(owned) if name in self.tensors and self.expr(owned).typed.weight else self.expr(owned)
            if promote(text.typed, self.typed[name], self.default_float) == self.typed[name] or text.typed == self.typed[name]:
                if text.typed.weight == 0 and (name in self.tensors and self.typed[name].weight or _wraps(self.typed[name])):
                    return self.converted(text, self.typed[name].register, number=False)
                return text
        return self.converted(text, self.typed[name].register, number=self.typed[name].weight == 0)

    def _joined(self, values: Iterable[Expr], register: ScalarType) -> Typed:
        """The type of a name that gets one of these values."""
        typeds = [self.expr(v.value if isinstance(v, Cast) else v).typed for v in values]
        joined = _common(typeds, self.default_float)
        if joined.register == register:
            return joined
        typeds = [self.expr(v).typed for v in values]
        joined = _common(typeds, self.default_float)
        return joined if joined.register == register else Typed(register, 0 if register.name in _NUMBERS else 1)

    def _branch(self, stmt: If, within: tuple[str, ...]) -> list[str]:
        lines = [f"if {self.expr(stmt.condition).text}:"]
        then, orelse = self.block(stmt.then, within), self.block(stmt.orelse, within)
        for merge in stmt.merges:
            self.typed[merge.name] = self._joined((merge.then, merge.orelse), merge.type)
        then += self.assignments((m.name, m.then) for m in stmt.merges)
        orelse += self.assignments((m.name, m.orelse) for m in stmt.merges)
        lines += [_INDENT + line for line in then or ["pass"]]
        if orelse:
            lines += ["else:", *(_INDENT + line for line in orelse)]
        return lines

    def _loop(self, loop: For, within: tuple[str, ...]) -> list[str]:
        inside = (*within, loop.var)
        self.typed[loop.var] = Typed(INT64, 0)
        for carry in loop.carries:
            self.typed[carry.name] = self._joined((carry.init,), carry.type)
        while True:  # a carried name has the type of all that it gets
            body = self.block(loop.body, inside)
            grown = {c.name: self._joined((c.init, c.next, Ref(c.name, c.type)), c.type) for c in loop.carries}
            if all(self.typed[name] == typed for name, typed in grown.items()):
                break
            self.typed |= grown
        self.typed |= {c.result: self.typed[c.name] for c in loop.carries}
        lines = list(self.assignments((c.name, c.init) for c in loop.carries))
        lines.append(f"for {self.name(loop.var)} in {self._range(loop)}:")
        body = [*self._made(inside), *body, *self.assignments((c.name, c.next) for c in loop.carries)]
        return [*lines, *(_INDENT + line for line in body or ["pass"])]

    def _range(self, loop: For) -> str:
        start, stop = self.expr(loop.start).text, self.expr(loop.stop).text
        bounds = [stop] if loop.step == 1 and loop.start == Const(0, INT64) else [start, stop]
        return f"range({', '.join([*bounds, *([str(loop.step)] if loop.step != 1 else [])])})"

    # ---- expressions

    def _element(self, array: str, index: tuple[Expr, ...]) -> str:
        shape = self.arrays[array].shape
        subscripts = [self.expr(_as_written(i, extent)).text for i, extent in zip(index, shape, strict=True)]
        return f"{self.name(array)}[{', '.join(subscripts) or '()'}]"

    def expr(self, expr: Expr) -> Text:
        """An expression with its type in Python, whose register type may differ from the nest's: see `operands`."""
        match expr:
            case Op(name="check", args=(value, _)):  # Python checks by itself
                return self.expr(value)
            case Op(name="clone", args=(Load(array=array, index=index),)):  # no operator of the nest: see `_owned`
                text = Text(f"{self._element(array, index)}.clone()", _CALL, Typed(self.arrays[array].dtype, 1))
                return _computable(text)
            case Const(value=value):
                return _constant(value)
            case Ref(name=name, type=type_):
                return Text(self.name(name), ATOM, self.typed.get(name) or Typed(type_, 1))
            case Load(array=array, index=index):
                return _computable(Text(self._element(array, index), ATOM, Typed(self.arrays[array].dtype, 1)))
            case Cast(value=Op(name=name, args=(inner,)), type=type_) if type_ == INT64 and name in _WHOLE:
                text = self.expr(inner)
                if text.typed == Typed(FLOAT64, 0):
                    return Text(f"{_WHOLE[name]}({text.text})", _CALL, Typed(INT64, 0))
                return self.converted(self.expr(expr.value), type_)
            case Cast(value=value, type=type_):
                if type_.name not in _NUMBERS:
                    self.require(value)
                text = self.expr(value)
                return self.converted(self.tensor(value) if text.typed.weight and type_.name not in _NUMBERS else text, type_)
            case Round(value=value, to=to) if to == value.type:  # what keeps steps in their order is no conversion
                return self.expr(value)
            case Round(value=value, to=to):
                self.require(value)
                text = self.expr(value)
                if text.typed == Typed(to, 1):  # said to be of this type already, without having been rounded
                    text = self.converted(text, to.opmath, number=False)
                if text.typed.weight == 0:
                    return _computable(Text(f"torch.tensor({text.text}, dtype=torch.{to})", _CALL, Typed(to, 1)))
                return _computable(Text(f"{text.at(ATOM)}.to(torch.{to})", _CALL, Typed(to, 1)))
            case Op():
                return self._operation(expr)
        raise TypeError(expr)

    def tensor(self, expr: Expr) -> Text:
        """An expression whose value must be a tensor, whichever of its operands it chooses."""
        text = self.expr(expr)
        match expr:
            case Op(name="where", args=(condition, then, orelse)):
                sides = [self._side(e, text.typed) for e in (then, orelse)]
                chosen = f"{sides[0].at(1)} if {self.expr(condition).at(1)} else {sides[1].at(SELECT)}"
                return Text(chosen, SELECT, text.typed)
            case Op(name="max" | "min", args=args):
                return Text(f"{expr.name}({', '.join(self._side(e, text.typed).text for e in args)})", _CALL, text.typed)
            case Op() if self._may_be_number(expr):
                return Text(f"torch.as_tensor({text.text}, dtype=torch.{text.typed.scalar})", _CALL, text.typed)
        return text

    def _may_be_number(self, expr: Expr) -> bool:
        """Whether Python may choose such operands that the value is a number."""
        match expr:
            case Op(name="where", args=(_, *chosen)) | Op(name="max" | "min", args=chosen):
                return any(self._may_be_number(e) for e in chosen)
            case Op(name=name, args=args) if name in INFIX or name in PREFIX or name == "abs":
                return all(self._may_be_number(e) for e in args)
            case Cast(value=value, type=type_) if type_.name not in _NUMBERS or self.expr(expr).typed.weight:
                return self._may_be_number(value)
        return self.expr(expr).typed.weight == 0

    def _whole(self, text: Text, expr: Expr) -> Text:
        """The text of an operand, a tensor whichever value it chooses."""
        for candidate in (expr, expr.value if isinstance(expr, Cast) else expr):
            if self.expr(candidate).text == text.text:
                return self.tensor(candidate)
        return text

    def _side(self, expr: Expr, typed: Typed) -> Text:
        """One of the values between which an expression of this type chooses."""
        inner = expr.value if isinstance(expr, Cast) and expr.type == typed.register else expr
        text = self.expr(inner)
        return self.converted(text, typed.register, number=False) if text.typed.weight == 0 else self.tensor(inner)

    def converted(self, text: Text, to: ScalarType, number: bool = True) -> Text:
        """The value as a register type: as a Python number where there is one, else (or without `number`) as a tensor."""
        if number and to.name in _NUMBERS:
            return Text(f"{_NUMBERS[to.name]}({text.text})", _CALL, Typed(to, 0))
        if text.typed.weight == 0:
            if to.category == "int" and to != INT64 and text.typed.scalar == INT64 and not text.text.lstrip("-").isdigit():
                return Text(f"torch.tensor({text.text}).to(torch.{to})", _CALL, Typed(to, 1))  # which lets it wrap
            return Text(f"torch.tensor({text.text}, dtype=torch.{to})", _CALL, Typed(to, 1))
        return Text(f"{text.at(ATOM)}.to(torch.{to})", _CALL, Typed(to, 1))

    def operands(self, expr: Op, args: tuple[Expr, ...]) -> tuple[list[Text], Typed]:
        """Operands of one register type, and the type that Python brings them to: conversions that it makes by itself are
        left out.
        """
        register = args[0].type
        bare = tuple(a.value if isinstance(a, Cast) and a.type == register else a for a in args)
        for candidates in dict.fromkeys((bare, args)):
            before = set(self.wanted)
            texts = [self.expr(a) for a in candidates]
            typed = self._brought_to(expr, texts)
            if typed.register == register:
                return texts, typed
            if candidates is not args:
                self.wanted = before
        texts = [t if t.typed.register == register else self.converted(t, register) for t in texts]
        if self._brought_to(expr, texts).register != register:
            texts = [self.converted(t, register, number=False) for t in texts]
        return texts, self._brought_to(expr, texts)

    def _brought_to(self, expr: Op, texts: list[Text]) -> Typed:
        typed = _common([t.typed for t in texts], self.default_float)
        rule = OPERATORS[expr.name].rule
        if rule in ("float", "predicate") and typed.scalar.category != "float":
            return Typed(FLOAT64 if typed.weight == 0 else self.default_float, typed.weight)
        if rule == "arithmetic" and typed == Typed(BOOL, 0):
            return Typed(INT64, 0)
        return typed

    def _chosen(self, expr: Op, args: tuple[Expr, ...]) -> tuple[list[Text], Typed]:
        """Operands one of which is the value: none stays a number where the other is an element that wraps."""
        texts, typed = self.operands(expr, args)
        if _wraps(typed):
            texts = [t if t.typed.weight else self.converted(t, typed.register, number=False) for t in texts]
        return texts, typed

    def _operation(self, expr: Op) -> Text:
        name = expr.name
        if name == "where":
            condition, then, orelse = expr.args
            texts, typed = self._chosen(expr, (then, orelse))
            text = f"{texts[0].at(1)} if {self.expr(condition).at(1)} else {texts[1].at(SELECT)}"
            return Text(text, SELECT, typed)
        if name in ("and", "or", "not"):
            parts = [self.expr(a) for a in expr.args]
            typed = Typed(BOOL, max(p.typed.weight for p in parts))
            sign, level = PREFIX[name] if name == "not" else INFIX[name]
            if name == "not":
                return Text(f"{sign}{parts[0].at(level)}", level, typed)
            return Text(f"{parts[0].at(level)} {sign} {parts[1].at(level + 1)}", level, typed)
        texts, typed = (self._chosen if name in ("max", "min") else self.operands)(expr, expr.args)
        result = Typed(BOOL, typed.weight) if expr.type == BOOL else typed
        if name in INFIX:
            sign, level = INFIX[name]
            # comparisons would chain, and ** groups from the right
            left = level + 1 if OPERATORS[name].rule == "comparison" or name == "pow" else level
            return Text(f"{texts[0].at(left)} {sign} {texts[1].at(level + 1)}", level, result)
        if name == "bitnot" and typed.scalar == BOOL and typed.weight == 0:
            return Text(f"not {texts[0].at(3)}", 3, result)
        if name in PREFIX:
            sign, level = PREFIX[name]
            return Text(f"{sign}{texts[0].at(level)}", level, result)
        if name in ("max", "min", "abs"):
            return Text(f"{name}({', '.join(t.text for t in texts)})", _CALL, result)
        if typed.weight == 0 and typed.scalar == FLOAT64 and name in _MATH:
            return Text(f"math.{name}({', '.join(t.text for t in texts)})", _CALL, result)
        self.require(*expr.args)
        tensors = [
            self.converted(t, typed.register, number=False) if t.typed.weight == 0 else self._whole(t, a)
            for t, a in zip(texts, expr.args, strict=True)
        ]
        typed = Typed(typed.scalar, 1)
        module = OPERATORS[name].module
        words = [t.text for t in tensors]
        text = module.format(*words) if "{" in module else f"{module}.{name}({', '.join(words)})"
        return Text(text, _CALL, Typed(BOOL, 1) if expr.type == BOOL else typed)


def _wraps(typed: Typed) -> bool:
    """Whether this is an element whose arithmetic a Python int's is not."""
    return typed.weight > 0 and typed.scalar.category == "int" and typed.scalar != INT64


def _computable(text: Text) -> Text:
    """A value in a type that there is arithmetic on."""
    if text.typed.scalar not in FLOATS8:
        return text
    return Text(f"{text.at(ATOM)}.float()", _CALL, Typed(FLOAT32, 1))


def _constant(value: bool | int | float) -> Text:
    if isinstance(value, bool):
        return Text(repr(value), ATOM, Typed(BOOL, 0))
    typed = Typed(INT64 if isinstance(value, int) else FLOAT64, 0)
    text = repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    return Text(text, PREFIX["neg"][1] if text.startswith("-") else ATOM, typed)


def _common(typeds: Iterable[Typed], default_float: ScalarType) -> Typed:
    """The type that arithmetic on such values has."""
    typed = reduce(lambda a, b: promote(a, b, default_float), typeds)
    return Typed(FLOAT64, 0) if typed.weight == 0 and typed.scalar.category == "float" else typed


def _extent(size: Expr, known: set[str]) -> Expr:
    """A size that is at least 0, said once."""
    match size:
        case Op(name="max", args=(Op(name="max", args=(_, Const(value=0))) as inner, Const(value=0))):
            return _extent(inner, known)
        case Op(name="max", args=(Ref(name=name) as inner, Const(value=0))) if name in known:
            return inner
    return size


def _as_written(index: Expr, extent: Expr) -> Expr:
    """A subscript without the words for what Python does by itself: count from the end where it is negative."""
    match index:
        case Op(name="where", args=(Op(name="lt", args=(a, Const(value=0))), Op(name="add", args=(b, c)), d)):
            if a == b == d and _of_some(c) == _of_some(extent):
                return a
    return index


def _of_some(size: Expr) -> Expr:
    """A size where there are elements at all: n for max(n, 0)."""
    match size:
        case Op(name="max", args=(inner, Const(value=0))) | Op(name="max", args=(Const(value=0), inner)):
            return _of_some(inner)
    return size


def _is_float(type_: ScalarType) -> bool:
    return type_.category == "float"


def _sources(statements: tuple[Stmt, ...]) -> dict[str, list[Expr]]:
    """What each name may get its value from."""
    found: dict[str, list[Expr]] = {}
    for stmt in walk(statements):
        match stmt:
            case Let(name=name, value=value):
                found[name] = [value]
            case For(carries=carries):
                for c in carries:
                    found[c.name] = [c.init, c.next]
                    found[c.result] = [Ref(c.name, c.type)]
            case If(merges=merges):
                for m in merges:
                    found[m.name] = [m.then, m.orelse]
    return found


def _leaves(expr: Expr) -> Iterator[Expr]:
    """What an expression may be the same tensor as."""
    match expr:
        case Op(name="where", args=(_, *chosen)) | Op(name="max" | "min", args=chosen):
            for e in chosen:
                yield from _leaves(e)
        case Cast(value=value) | Round(value=value):
            yield from _leaves(value)
        case _:
            yield expr


def _numbers_in(expr: Expr) -> Iterator[Ref]:
    """The names whose being numbers would make an expression a number."""
    match expr:
        case Ref():
            yield expr
        case Op(name="where", args=(_, *chosen)) | Op(name="max" | "min", args=chosen):
            for e in chosen:
                yield from _numbers_in(e)
        case Op(args=args):
            found = [list(_numbers_in(e)) for e in args if not isinstance(e, Const)]
            if all(found):  # an operand with no such name is a tensor by itself
                yield from (e for own in found for e in own)
        case Cast(value=value):
            yield from _numbers_in(value)
