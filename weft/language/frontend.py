"""A Python function -> a `weft.loops.ir.Function`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from weft.errors import Location, NumberOverflow, TypeMismatch, UnsupportedSyntax
from weft.language import pairs, parts, tensors
from weft.language.builder import Builder, Environment
from weft.language.capture import source_of
from weft.language.expressions import Evaluator
from weft.language.kinds import KindMatters, converted, leaves
from weft.language.resolve import value_of
from weft.language.scopes import bound_in
from weft.language.sequences import is_iterator
from weft.language.signature import check_parameters
from weft.language.source import Source
from weft.language.spans import MOST
from weft.language.statements import Executor
from weft.language.subscripts import subscripts_unchecked
from weft.language.types import ArgumentType, TensorType, default_float
from weft.language.values import Computed, Helper, Scalar, Static, Tuple, Value, View, describe, whole
from weft.loops.ir import (
    Array,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Ref,
    Size,
    Stmt,
    Store,
    bodies,
    bound_names,
    free_names,
    map_statement,
    statement_exprs,
    validate,
    walk,
    walk_expr,
)
from weft.loops.ir import Scalar as ScalarParameter
from weft.loops.types import INT64, ScalarType, Typed
from weft.loops.unused import with_faults


def parse(
    function: Any,
    types: Mapping[str, ArgumentType | None],
    name: str | None = None,
    default: ScalarType | None = None,
    checked: frozenset[str] = frozenset(),
) -> Function:
    """The loop nest of a function (a function object, a kernel, a Source, or a text that defines it).

    types: the type of each argument: a TensorType; bool, int64 or float64 for a number; None for the argument None
    (which is then no parameter of the result, like a tensor that is the same as another argument). default: the dtype of
    floats that nothing else decides; None: PyTorch's as it is now. checked: arrays that the kernels check. Raises a
    WeftError where the function is not in weft's language.
    """
    source = source_of(function, name)
    told: frozenset[tuple[Location | None, str]] = frozenset()
    while True:
        parser = Parser(source, types, default or default_float(), told, checked)
        try:
            result = parser.parse()
        except KindMatters as matters:  # of a name after its loop, which has to carry it then
            told |= {parser.builder.left[matters.name]}
            continue
        validate(result)
        return result


@dataclass
class Parser:
    """Makes the nest of one function. told: (loop, name) of carried scalars whose kind is carried too. The rest is as `parse`
    has it.
    """

    source: Source
    types: Mapping[str, ArgumentType | None]
    default: ScalarType
    told: frozenset[tuple[Location | None, str]]
    checked: frozenset[str]

    def __post_init__(self) -> None:
        self.builder = Builder(self.source.name, self.default, told=self.told)
        self.calls: list[Source] = [self.source]
        self.sizes: list[Size] = []
        self.scalars: list[ScalarParameter] = []
        self.names: list[str] = []
        self.arguments: dict[str, View] = {}
        self.numbers: list[str] = []
        self.pairs: dict[str, bool] = {}  # arrays of results, and whether they are of complex numbers
        self.container: Literal["", "tuple", "list"] = ""

    def parse(self) -> Function:
        b = self.builder
        b.location = self.source.where
        environment: Environment = {}
        b.environments.append(environment)
        check_parameters(self.source)
        names = size_names(self.source, self.types)
        b.taken |= {p.arg for p in self.source.parameters} | set(names.values())
        b.named = set(names.values())
        for parameter in self.source.parameters:
            environment[parameter.arg] = self._parameter(parameter, names)
        executor = Executor(b, self.source, environment, self.inline)
        executor.execute()
        results = self._results(executor.result)
        return self._function(results)

    def _parameter(self, parameter: ast.arg, names: dict[tuple[str, int], str]) -> Value:
        b, name = self.builder, parameter.arg
        if name not in self.types:
            raise TypeMismatch(
                f"the type of {name} is not given",
                location=self.source.location(parameter),
                remedy=f"pass a value for {name}",
            )
        type_ = self.types[name]
        if type_ is None:
            return Static(None)
        if isinstance(type_, TensorType) and type_.same is not None:
            return self.arguments[type_.same]
        self.names.append(name)
        if isinstance(type_, ScalarType):
            self.scalars.append(ScalarParameter(name, type_))
            b.fixed.add(name)
            if type_ == INT64:
                b.integers.add(name)
            return Scalar(Ref(name, type_), Typed(type_, 0))
        dims: list[Expr] = []
        for axis in range(type_.rank):
            size = names.get((name, axis)) or b.fresh(f"{name}_size_{axis}")
            self.sizes.append(Size(size, name, axis))
            b.fixed.add(size)
            b.spans[size] = (0, MOST)
            dims.append(Ref(size, INT64))
        b.arrays[name] = Array(name, type_.dtype, tuple(dims), "input", location=self.source.location(parameter))
        b.given |= {name}
        self.arguments[name] = whole(name, type_.dtype, tuple(dims))
        return self.arguments[name]

    # ------------------------------------------------------------ calls of helpers

    def inline(self, helper: Helper, args: tuple[Value, ...], kwargs: dict[str, Value], direct: bool) -> Value:
        """The value of a call of the user's own function, its statements emitted here."""
        b, source = self.builder, helper.source
        if any(s.node is source.node or s.where == source.where for s in self.calls):
            raise UnsupportedSyntax(f"{source.name} calls itself", remedy="write it as a loop")
        if not all(any(s.environment is e for e in b.environments) for s in helper.enclosing):
            raise UnsupportedSyntax(
                f"{source.name} is called after the function that defines it has returned",
                remedy=f"define {source.name} outside, and pass it what it needs",
            )
        given = self._bind(helper, args, kwargs)
        outer, existing = b.location, set(b.arrays)
        place = len(b.environments)
        environment: Environment = {}
        b.environments += [{}, environment]  # the first is for what the call gives
        for name, value in given.items():
            b.bind(place + 1, name, value)
        self.calls.append(source)
        start, changes = len(b.blocks[-1]), len(b.changes)
        executor = Executor(b, source, environment, self.inline, helper.enclosing)
        strict, b.strict = b.strict, b.strict and not source.one_operation
        try:
            executor.execute()
        finally:  # the loop around the call may start again
            self.calls.pop()
            b.strict = strict
        result = executor.result if executor.result is not None else Static(None)
        written = {s.array for s in walk(tuple(b.blocks[-1][start:])) if isinstance(s, Store) and s.array in existing}
        written |= {name for frame, name in b.changes[changes:] if frame < place}
        b.bind(place, "result", result)
        result = b.meaning(place, "result", b.environments[place]["result"])
        b.release(place + 1)
        b.location = outer
        if written and not direct:
            raise UnsupportedSyntax(
                f"{source.name} writes into {', '.join(sorted(written))} in the middle of an expression",
                remedy=f"call {source.name} on a line of its own",
            )
        return result

    def _bind(self, helper: Helper, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Environment:
        """The parameters of a helper and what they mean."""
        b, source = self.builder, helper.source
        arguments, parameters = source.node.args, source.parameters
        if arguments.kwarg is not None:
            raise UnsupportedSyntax(
                f"{source.name} takes **{arguments.kwarg.arg}",
                location=source.location(arguments.kwarg),
                remedy="name each parameter",
            )
        positional = parameters[: len(parameters) - len(arguments.kwonlyargs)]
        if len(args) > len(positional) and arguments.vararg is None:
            raise TypeMismatch(
                f"{source.name} takes {len(positional)} arguments, not {len(args)}", remedy="pass each parameter once"
            )
        environment: Environment = {p.arg: v for p, v in zip(positional, args, strict=False)}
        only_positional = {p.arg for p in arguments.posonlyargs}
        for name, value in kwargs.items():
            if name in environment or name in only_positional or name not in {p.arg for p in parameters}:
                raise TypeMismatch(
                    f"{source.name} has no parameter {name} left to pass", remedy="pass each parameter once"
                )
            environment[name] = value
        defaults, values, evaluated = source.defaults, source.default_values, dict(helper.defaults)
        for parameter in parameters:
            name = parameter.arg
            if name in environment:
                environment[name] = self._argument(environment[name], name)
            elif name in evaluated:
                environment[name] = evaluated[name]
            elif values is not None and name in values:
                environment[name] = value_of(values[name], name)
            elif values is None and name in defaults:
                environment[name] = Evaluator(b, source, {}, self.inline, ())(defaults[name])
            else:
                raise TypeMismatch(f"{source.name} needs its argument {name}", remedy=f"pass {name}")
        if arguments.vararg is not None:
            name = arguments.vararg.arg
            environment[name] = Tuple(tuple(self._argument(v, name) for v in args[len(positional) :]))
        return environment

    def _argument(self, value: Value, name: str) -> Value:
        if is_iterator(value):
            raise UnsupportedSyntax(f"{name} is {describe(value)}", remedy="pass a list: list(...)")
        if isinstance(value, Scalar):
            return self.builder.share(value, name)
        if isinstance(value, Computed):
            return tensors.materialise(self.builder, value, name)
        return value

    # ------------------------------------------------------------ results

    def _results(self, value: Value | None) -> tuple[str, ...]:
        if value is None or value == Static(None):
            return ()
        if isinstance(value, Tuple):
            if value.mutable:
                self.container = "list"
            elif len(value.items) == 1:
                self.container = "tuple"
            return tuple(map(self._result, value.items))
        return (self._result(value),)

    def _result(self, value: Value) -> str:
        b = self.builder
        if isinstance(value, View) and value.is_whole() and self._of_one_meaning(value):
            array = b.arrays[value.array]
            if array.role == "local":
                b.arrays[value.array] = replace(array, role="result")
            if array.role != "input" or value is b.complexes.get(value.array, self.arguments[value.array]):
                return value.array  # a view that is as large as the argument is another tensor, and is copied below
        if isinstance(value, Scalar):
            mixed = value.mixed
            if mixed is not None and (value.typed.weight == 0 or mixed.test is not None):
                kinds = dict.fromkeys(describe(v) for v in leaves(value))
                raise UnsupportedSyntax(
                    f"{self.source.name} returns numbers of different kinds on different paths",
                    location=b.location,
                    evidence=[f"what it returns is {' or '.join(kinds)}"],
                    remedy="say which: int(...), float(...) or bool(...) of what it returns, or .to(dtype) of elements",
                )
            view = b.allocate("result", value.typed.scalar, ())
            self._of_one_meaning(view)
            b.store(view.array, view.axes, converted(value, view.dtype.opmath))
            if value.typed.weight == 0 and view.is_complex:
                raise UnsupportedSyntax(
                    f"{self.source.name} returns a complex number of Python's",
                    location=b.location,
                    remedy="return a tensor: torch.tensor(...) of the number",
                )
            if value.typed.weight == 0:
                self.numbers.append(view.array)
        elif isinstance(value, (View, Computed)):
            view = tensors.materialise(b, value, "result")
            self._of_one_meaning(view)
        else:
            raise TypeMismatch(
                f"{self.source.name} returns {describe(value)}",
                location=b.location,
                remedy="return tensors and numbers, or a tuple of them",
            )
        b.arrays[view.array] = replace(b.arrays[view.array], role="result")
        return view.array

    def _of_one_meaning(self, view: View) -> bool:
        """Note whether a result's array is of complex numbers; False where it is another result that is so and this is not, or
        the other way round.
        """
        return self.pairs.setdefault(view.array, view.is_complex) == view.is_complex

    def _function(self, results: tuple[str, ...]) -> Function:
        b = self.builder
        (block,) = b.blocks
        body, idle = parts.told(b, pairs.split(tuple(block), b.fresh, b.spare), self.checked)
        function = Function(
            self.source.name,
            tuple(self.names),
            (*self.scalars, *(ScalarParameter(name, INT64, value) for value, name in b.quotients.items())),
            tuple(self.sizes),
            tuple(b.arrays.values()),
            body,
            results,
            tuple(b.equalities),
            self.source.where,
            numbers=tuple(self.numbers),
            pairs=tuple(name for name, is_complex in self.pairs.items() if is_complex),
            container=self.container,
            demands=tuple(b.demands),
            joints=tuple(b.joints),
            idle=idle,
            widenings=tuple(b.widenings),
        )
        function = with_faults(function, frozenset(b.spare))
        body = drop_idle_carries(drop_spare(drop_idle_carries(function.body), b.spare))
        body = subscripts_unchecked(b, body)
        _refuse_long_numbers(body)
        stored = {s.array for s in walk(body) if isinstance(s, Store)}
        used = stored | set(results) | set(self.names) | _read(body)
        if not results and not stored & set(self.names):
            raise UnsupportedSyntax(
                f"{self.source.name} returns nothing and writes into none of its arguments",
                location=self.source.where,
                remedy="return the tensors it makes",
            )
        arrays = tuple(
            replace(a, role="inout" if a.role == "input" and a.name in stored else a.role, called=b.called(a.name))
            for a in function.arrays
            if a.name in used
        )
        direct = frozenset((a.name, k) for a in arrays for k in range(len(a.shape))) - b.indirect
        return replace(function, arrays=arrays, body=body, direct=direct, ends=frozenset(b.ends))


def _refuse_long_numbers(body: tuple[Stmt, ...]) -> None:
    """Python's constants have no width: those that 64 bits do not hold were computed with while parsing, and are left over."""
    for stmt in walk(body):
        for expr in (e for top in statement_exprs(stmt) for e in walk_expr(top)):
            if isinstance(expr, Const) and expr.type.category == "int" and not -(1 << 63) <= expr.value < 1 << 63:
                raise NumberOverflow(
                    f"the Python int {expr.value} leaves 64 bits",
                    location=stmt.location,
                    remedy="use float(...), or numbers that stay below 2 ** 63",
                )


def _read(body: tuple[Stmt, ...]) -> set[str]:
    exprs = (e for s in walk(body) for top in statement_exprs(s) for e in walk_expr(top))
    return {e.array for e in exprs if isinstance(e, Load)}


def _same(expr: Expr) -> Expr:
    return expr


def drop_idle_carries(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Leave out the carries that nothing but other such carries reads: names that are set before they are used."""
    loops = [s for s in walk(body) if isinstance(s, For)]
    idle = {c.name: c for loop in loops for c in loop.carries}
    used = {n for s in walk(body) for e in _own_exprs(s) for n in free_names(e)}
    while True:
        needed = [c for c in idle.values() if c.name in used or c.result in used]
        if not needed:
            break
        for c in needed:
            used |= free_names(c.init) | free_names(c.next)
            del idle[c.name]

    def clean(statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(clean_one, statements))

    def clean_one(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            stmt = replace(stmt, carries=tuple(c for c in stmt.carries if c.name not in idle))
        return map_statement(stmt, _same, clean) if bodies(stmt) else stmt

    return clean(body) if idle else body


def drop_spare(body: tuple[Stmt, ...], spare: set[str]) -> tuple[Stmt, ...]:
    """Leave out those names among `spare` that nothing reads."""
    while True:
        idle = spare - {n for s in walk(body) for e in statement_exprs(s) for n in free_names(e)}
        bound = {n for s in walk(body) if isinstance(s, (Let, If)) for n in bound_names(s)}
        if not idle & bound:
            return body

        def clean(statements: tuple[Stmt, ...], idle: set[str] = idle) -> tuple[Stmt, ...]:
            kept = []
            for stmt in statements:
                if isinstance(stmt, Let) and stmt.name in idle:
                    continue
                if isinstance(stmt, If):
                    stmt = replace(stmt, merges=tuple(m for m in stmt.merges if m.name not in idle))
                kept.append(map_statement(stmt, _same, clean) if bodies(stmt) else stmt)
            return tuple(kept)

        body = drop_idle_carries(clean(body))


def _own_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement, those of a loop's carries left out."""
    return (stmt.start, stmt.stop) if isinstance(stmt, For) else statement_exprs(stmt)


def size_names(source: Source, types: Mapping[str, ArgumentType | None]) -> dict[tuple[str, int], str]:
    """The user's names for sizes of arguments, where they are unpacked from a shape: (argument, axis) -> name."""
    found: dict[tuple[str, int], str] = {}
    parameters = {p.arg for p in source.parameters}
    bound = bound_in(source.node.body)

    def add(array: str, axis: int, target: ast.expr) -> None:
        type_ = types.get(array)
        if not isinstance(target, ast.Name) or not isinstance(type_, TensorType) or array in bound:
            return
        if -type_.rank <= axis < type_.rank and target.id not in parameters | set(found.values()) | {"_"}:
            found.setdefault((array, axis % type_.rank), target.id)

    for node in ast.walk(source.node):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            value = node.value
            array = _shape_of(value)
            if array is not None and isinstance(target, ast.Tuple):
                stars = [k for k, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
                for k, t in enumerate(target.elts):
                    if not stars or k < stars[0]:
                        add(array, k, t)
                    elif k > stars[0]:
                        add(array, k - len(target.elts), t)
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                for t, v in zip(target.elts, value.elts, strict=False):
                    place = _size_of(v)
                    if place is not None:
                        add(*place, t)
            else:
                place = _size_of(value)
                if place is not None:
                    add(*place, target)
    return found


def _shape_of(node: ast.expr) -> str | None:
    match node:
        case ast.Attribute(value=ast.Name(id=array), attr="shape"):
            return array
        case ast.Call(func=ast.Attribute(value=ast.Name(id=array), attr="size"), args=[], keywords=[]):
            return array
    return None


def _size_of(node: ast.expr) -> tuple[str, int] | None:
    match node:
        case ast.Subscript(value=shape, slice=index):
            array = _shape_of(shape)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=array), attr="size"), args=[index]):
            pass
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=array)]):
            return array, 0
        case _:
            return None
    try:
        axis = ast.literal_eval(index)
    except ValueError:
        return None
    return (array, axis) if array is not None and isinstance(axis, int) else None
