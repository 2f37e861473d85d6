"""A scalar function -> the loops that apply it to every element of its operands.

An operand enters as one element, which weighs in promotion what the operand does in the plain PyTorch: a tensor with
dimensions more than one without, that more than a number. So what the function computes has the dtype that PyTorch gives to
the same function of tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from weft.errors import Location, TypeMismatch, UnsupportedSyntax
from weft.language.frontend import Parser
from weft.language.kinds import KindMatters, cast, converted, expressions_of, leaves
from weft.language.source import Source
from weft.language.values import PARTS, TWO, Helper, Number, Scalar, Static, Tuple, Value, describe, number
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    Function,
    Let,
    Load,
    Op,
    Ref,
    Round,
    Size,
    bound_names,
    free_names,
    statement_exprs,
    substitute,
    substitute_statements,
    validate,
    walk,
    without_checks,
)
from weft.loops.ir import Scalar as ScalarParameter
from weft.loops.types import BOOL, CATEGORIES, FLOAT64, INT64, ScalarType, Typed, complex_of


@dataclass(frozen=True)
class Operand:
    """What is passed for a parameter. typed: its dtype, and what it weighs. axes: of a tensor, the axes of the iteration that
    it is no broadcast along, outermost first; None: a number when the kernel runs.
    """

    name: str
    typed: Typed
    axes: tuple[int, ...] | None

    @property
    def number(self) -> ScalarType:
        """The type in which a number is passed."""
        return {"bool": BOOL, "int": INT64}.get(self.typed.scalar.category, FLOAT64)

    @property
    def names(self) -> tuple[str, ...]:
        """What the loops call it: a tensor by one name, of complex numbers one of their parts; a complex number, two floats."""
        return (f"{self.name}_re", f"{self.name}_im") if self.axes is None and self.is_complex else (self.name,)

    @property
    def is_complex(self) -> bool:
        return self.typed.scalar.category == "complex"


@dataclass(frozen=True)
class Elementwise:
    """A call of a scalar function as far as its loops depend on it.

    constants: parameters whose values the program is made for: numbers, None, text, dtypes. rank: axes of the iteration.
    outs: arrays of all axes that take the results, by name and dtype; none where the results are new. checked: whether what
    raises in PyTorch on a CPU is an error; where it is not, a quotient of integers by 0 is 0. strict: every operation rounds to
    the dtype of its result, as it does in eager mode.
    """

    operands: tuple[Operand, ...]
    constants: tuple[tuple[str, Any], ...]
    rank: int
    outs: tuple[tuple[str, ScalarType], ...] = ()
    checked: bool = True
    strict: bool = False


def elementwise(source: Source, call: Elementwise, default: ScalarType, same: Mapping[str, str]) -> Function:
    """The loop nest of a scalar function for such a call. default: the dtype of floats that nothing else decides. same: arrays
    that are an earlier one, at the same subscripts, and so no parameters. Raises a WeftError where the function is not in
    weft's language, or what it gives is no scalar.
    """
    told: frozenset[tuple[Location | None, str]] = frozenset()
    while True:
        parser = _ElementwiseParser(source, {}, default, told, frozenset(), call=call, same=same)
        try:
            function = parser.parse()
        except KindMatters as matters:  # as in weft.language.frontend.parse
            told |= {parser.builder.left[matters.name]}
            continue
        validate(function)
        return function


@dataclass
class _ElementwiseParser(Parser):
    call: Elementwise = Elementwise((), (), 0)
    same: Mapping[str, str] = field(default_factory=dict)

    def parse(self) -> Function:
        b, call = self.builder, self.call
        self.calls = []  # the function is called by its loops
        b.location, b.strict = self.source.where, call.strict
        b.taken |= {name for o in call.operands for name in o.names} | {name for name, _ in call.outs}
        extents = self._extents()
        for operand in call.operands:
            self._declared(operand, extents)
        for name, dtype in ((name, dtype) for name, dtype in call.outs if name not in self.same):
            self._array(name, dtype, tuple(range(call.rank)), extents)
        results: list[str] = []
        self.result = b.fresh("result")

        def body(at: tuple[Expr, ...]) -> None:
            given: dict[str, Value] = {o.name: self._element(o, at) for o in call.operands}
            given |= {name: _constant(value) for name, value in call.constants}
            first = tuple(given.pop(p.arg) for p in self.source.node.args.posonlyargs)
            value = self.inline(Helper(self.source), first, given, direct=True)
            values = value.items if isinstance(value, Tuple) else (value,)
            if isinstance(value, Tuple):
                self.container = "list" if value.mutable else "tuple" if len(values) == 1 else ""
            for k, one in enumerate(self._rounded_where_stored(tuple(values))):
                results.append(self._stored(one, k, len(values), extents, at))

        b.nest(extents, body)
        if call.outs and len(results) != len(call.outs):
            raise TypeMismatch(
                f"{self.source.name} gives {len(results)} results, and out= has {len(call.outs)}",
                location=self.source.where,
                remedy="pass one tensor for each result",
            )
        function = self._function(tuple(results))
        return function if call.checked else replace(function, body=without_checks(function.body))

    def _extents(self) -> tuple[Expr, ...]:
        names = [self.builder.fresh(f"n{k}" if self.call.rank > 1 else "n") for k in range(self.call.rank)]
        self.builder.named = set(names)
        return tuple(Ref(name, INT64) for name in names)

    def _declared(self, operand: Operand, extents: tuple[Expr, ...]) -> None:
        b = self.builder
        if operand.axes is not None:
            if operand.name not in self.same:
                self._array(operand.name, operand.typed.scalar, operand.axes, extents)
            return
        self.names += operand.names
        self.scalars += (ScalarParameter(name, operand.number) for name in operand.names)
        b.fixed.update(operand.names)
        if operand.number == INT64:
            b.integers.add(operand.name)

    def _array(self, name: str, dtype: ScalarType, axes: tuple[int, ...], extents: tuple[Expr, ...]) -> None:
        """An argument over some axes of the iteration, whose sizes the first that has them tells."""
        b = self.builder
        self.names.append(name)
        dims: list[Expr] = []
        for position, axis in enumerate(axes):
            extent = extents[axis]
            assert isinstance(extent, Ref)
            if extent.name not in b.fixed:
                b.fixed.add(extent.name)
                self.sizes.append(Size(extent.name, name, position))
                dims.append(extent)
            else:
                size = b.fresh(f"{name}_size_{position}")
                b.fixed.add(size)
                self.sizes.append(Size(size, name, position))
                dims.append(Ref(size, INT64))
                b.require_equal(extent, dims[-1], f"of {name} along axis {axis}")
        if dtype.category == "complex":
            dims.append(TWO)
        b.arrays[name] = Array(name, dtype.part, tuple(dims), "input", location=self.source.where)
        b.given |= {name}

    def _element(self, operand: Operand, at: tuple[Expr, ...]) -> Scalar:
        register = operand.typed.register
        if operand.axes is None and operand.is_complex:
            parts = tuple(cast(Ref(name, FLOAT64), register.part) for name in operand.names)
            return Scalar(Op("complex", parts, register), operand.typed)
        if operand.axes is None:
            whole = operand.typed.weight > 0 and operand.typed.scalar.category == "int"
            value = Scalar(cast(Ref(operand.name, operand.number), register), operand.typed)
            return replace(value, number=Number(Const(True, BOOL))) if whole else value
        index = _index(tuple(at[axis] for axis in operand.axes), register)
        array = self.same.get(operand.name, operand.name)
        element = Load(array, index, register, self.builder.location)
        # on a GPU PyTorch takes only tensors without dimensions of the CPU for numbers, which are passed as such
        return Scalar(element, operand.typed, converted=operand.typed.weight == 1 and not self.call.checked)

    def _rounded_where_stored(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The values, of which those that are stored as halves are so to whatever else uses them: a comparison sees what a
        reader of the result does.
        """
        for k in range(len(values)):
            value = values[k]
            if not isinstance(value, Scalar) or value.typed.register == value.typed.scalar:
                continue
            if isinstance(value.expr, Ref) and not self.call.strict:
                values = self._rounded(value.expr, value.typed.scalar, values, k)
        return values

    def _rounded(self, value: Ref, dtype: ScalarType, values: tuple[Value, ...], own: int) -> tuple[Value, ...]:
        """The values, with this one rounded from where it is computed on, if something besides its own store uses it."""
        b = self.builder
        block = b.blocks[-1]
        place = next((k for k, s in enumerate(block) if value.name in bound_names(s)), None)
        if place is None or (isinstance(s := block[place], Let) and isinstance(s.value, Load)):
            return values
        later = tuple(block[place + 1 :])
        others = [e for k, v in enumerate(values) if k != own and isinstance(v, Scalar) for e in expressions_of(v)]
        used = [e for s in walk(later) for e in statement_exprs(s)]
        if not any(value.name in free_names(e) for e in (*others, *used)):
            return values
        name = b.fresh(f"{value.name}_stored")
        now: dict[str, Expr] = {value.name: Ref(name, value.type)}
        block[place + 1 :] = [Let(name, Round(value, dtype), b.location), *substitute_statements(later, now)]
        return tuple(_substituted(v, now) for v in values)

    def _stored(self, value: Value, k: int, of: int, extents: tuple[Expr, ...], at: tuple[Expr, ...]) -> str:
        """Store an element of a result. Gives the array that it goes into."""
        b = self.builder
        if not isinstance(value, Scalar):
            raise TypeMismatch(
                f"{self.source.name} gives {describe(value)} for an element",
                location=self.source.where,
                remedy="return a number, or a tuple of numbers",
            )
        typed = value.typed if value.typed.weight else Typed(self._of_number(value), 1)
        if any(leaf.typed.scalar.category != typed.scalar.category for leaf in leaves(value)) and value.mixed is not None:
            self._refuse_kinds(value)
        result = converted(value, typed.register)
        if k < len(self.call.outs):
            name, dtype = self.call.outs[k]
            self._require_cast(typed.scalar, dtype, name)
            if typed.register != typed.scalar and dtype != typed.scalar:
                result = Round(result, typed.scalar)  # computed in the common dtype, then cast
            array = self.same.get(name, name)
            b.store(array, _index(at, dtype), cast(result, dtype.opmath))
            return array
        name = self.result if of == 1 else b.fresh(f"{self.result}_{k}")
        is_complex = self.pairs[name] = typed.scalar.category == "complex"
        shape = (*extents, TWO) if is_complex else extents
        b.arrays[name] = Array(name, typed.scalar.part, shape, "result", location=self.source.where, contiguous=True)
        b.store(name, _index(at, typed.scalar), result)
        return name

    def _require_cast(self, made: ScalarType, dtype: ScalarType, name: str) -> None:
        """A result may be narrowed, and not lose its category."""
        if CATEGORIES.index(made.category) > CATEGORIES.index(dtype.category):
            raise TypeMismatch(
                f"the result of {self.source.name} is {made}, and {name} is {dtype}",
                location=self.source.where,
                evidence=[f"a {made.category} is not written into a tensor of {dtype.category}s, as in PyTorch"],
                remedy=f"pass a tensor of a {made.category} dtype as {name}, or convert the result with .to(torch.{dtype})",
            )

    def _of_number(self, value: Scalar) -> ScalarType:
        own = {"float": self.default, "complex": complex_of(self.default)}
        return own.get(value.typed.scalar.category, value.typed.scalar)

    def _refuse_kinds(self, value: Scalar) -> None:
        kinds = dict.fromkeys(describe(v) for v in leaves(value))
        raise UnsupportedSyntax(
            f"{self.source.name} gives values of different kinds on different paths",
            location=self.source.where,
            evidence=[f"what it gives is {' or '.join(kinds)}"],
            remedy="say which: int(...), float(...) or bool(...) of what it returns, or .to(dtype) of elements",
        )


def _index(at: tuple[Expr, ...], type_: ScalarType) -> tuple[Expr, ...]:
    """The subscript in an array of elements of a type, of complex numbers in that of their parts."""
    return (*at, PARTS) if type_.category == "complex" else at


def _substituted(value: Value, names: dict[str, Expr]) -> Value:
    """A value with other names in its expressions."""
    if not isinstance(value, Scalar):
        return value
    mixed = value.mixed
    if mixed is not None:
        then, orelse = (_substituted(v, names) for v in (mixed.then, mixed.orelse))
        assert isinstance(then, Scalar) and isinstance(orelse, Scalar)
        test = None if mixed.test is None else substitute(mixed.test, names)
        mixed = replace(mixed, test=test, then=then, orelse=orelse)
    exact = None if value.exact is None else substitute(value.exact, names)
    where = value.number
    if where is not None and where.test is not None:
        where = replace(where, test=substitute(where.test, names))
    return replace(value, expr=substitute(value.expr, names), exact=exact, mixed=mixed, number=where)


def _constant(value: Any) -> Value:
    return number(value) if isinstance(value, (bool, int, float, complex)) else Static(value)
