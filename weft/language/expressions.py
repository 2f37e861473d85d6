"""Expressions: Python's syntax tree -> values, with what they need emitted before them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.errors import TypeMismatch, UndefinedName, UnsupportedSyntax, WeftError
from weft.language import arithmetic, checks, complexes, functions, precision, resolve, sequences, slices, tensors
from weft.language.arguments import Arguments, static_int
from weft.language.arithmetic import operate, truth
from weft.language.builder import Builder, Environment
from weft.language.kinds import distribute, kinds_of, select
from weft.language.scopes import bound_in
from weft.language.sharing import without
from weft.language.source import Known, Namespace, Source
from weft.language.values import (
    Computed,
    Helper,
    Method,
    Scalar,
    Scope,
    Static,
    Tuple,
    Unset,
    Value,
    View,
    describe,
    integer,
    number,
    one_of,
)
from weft.loops.ir import Const, Merge, Op, Round, Stmt, free_names
from weft.loops.types import BOOL, INT64, Typed

_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_UNSUPPORTED = {
    ast.GeneratorExp: ("generators", "write a for loop that adds up, or that leaves with break; or a list of constant length"),
    ast.SetComp: ("sets", "use tensors, numbers and tuples"),
    ast.DictComp: ("dicts", "use tensors, numbers and tuples"),
    ast.Dict: ("dicts", "use tensors, numbers and tuples"),
    ast.Set: ("sets", "use tensors, numbers and tuples"),
    ast.NamedExpr: ("assignment inside an expression", "assign on a line of its own"),
    ast.Await: ("await", "use plain functions"),
    ast.Yield: ("yield", "return tensors"),
    ast.JoinedStr: ("formatted strings", "use numbers and tensors"),
}


def binary(operator: ast.operator) -> Callable[..., Scalar]:
    """The scalar function of a binary operator of Python (@ excepted)."""
    if isinstance(operator, ast.Pow):
        return functions.power_of
    name = _BINARY[type(operator)]
    return lambda b, x, y: checks.operated(b, name, x, y)


def rounded(value: Value) -> Value:
    """What an operation on elements gives, rounded to their dtype."""
    if not isinstance(value, Scalar) or not value.typed.weight or value.typed.scalar == value.typed.register:
        return value
    if isinstance(value.expr, Round) or value.mixed is not None:
        return value
    return replace(value, expr=Round(value.expr, value.typed.scalar), exact=None)


# Calls a helper: the function, its arguments, keyword arguments, and whether the call is all of a statement.
Inline = Callable[[Helper, tuple[Value, ...], dict[str, Value], bool], Value]


class Evaluator:
    """Evaluates the expressions of one function. scopes: its own names and those of the functions around it, innermost
    first. inline: calls a helper.

    direct: the expression that is the whole right side of the statement being executed.
    """

    def __init__(
        self,
        builder: Builder,
        source: Source,
        environment: Environment,
        inline: Inline,
        scopes: tuple[Scope, ...],
    ) -> None:
        self.builder, self.source, self.environment = builder, source, environment
        self.inline, self.scopes = inline, scopes
        self.direct: ast.expr | None = None

    def __call__(self, node: ast.expr, hint: str = "t") -> Value:
        """The value of an expression; an array that it makes is named after `hint`."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        try:
            if method is None:
                what, remedy = _UNSUPPORTED.get(type(node), (f"{type(node).__name__} syntax", "rewrite it"))
                raise UnsupportedSyntax(f"weft's language has no {what}", remedy=remedy)
            value: Value = method(node, hint)
            if self.builder.strict and isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call)):
                return rounded(value)
            return value
        except WeftError as error:
            raise self.at(error, node) from None

    def at(self, error: WeftError, node: ast.AST) -> WeftError:
        """The error with the place of `node`, unless it has one."""
        if error.location is not None:
            return error
        where = self.source.location(node)
        return type(error)(error.message, location=where, evidence=error.evidence, remedy=error.remedy)

    def scalar(self, node: ast.expr, what: str) -> Scalar:
        """The value of an expression that must be a number or one element."""
        value = tensors.scalar_of(self.builder, self(node))
        if value is None:
            error = TypeMismatch(
                f"{describe(self(node))} where {what} needs a number", remedy="index one element, or reduce the tensor"
            )
            raise self.at(error, node)
        return value

    # ------------------------------------------------------------ names and attributes

    def _constant(self, node: ast.Constant, hint: str) -> Value:
        if isinstance(node.value, (bool, int, float, complex)):
            return number(node.value)
        if node.value is None or node.value is Ellipsis or isinstance(node.value, str):
            return Static(node.value)
        raise UnsupportedSyntax(
            f"weft's language has no {type(node.value).__name__} constants", remedy="use numbers"
        )

    def _name(self, node: ast.Name, hint: str) -> Value:
        for scope in self.scopes:
            value = scope.environment.get(node.id)
            if isinstance(value, Unset):
                evidence = [f"see line {value.location.line}"] if value.location else []
                raise UndefinedName(f"{node.id} has no value here: {value.why}", evidence=evidence, remedy=value.remedy)
            if value is not None:
                return self.builder.meaning(self.builder.frame_of(scope.environment), node.id, value)
            if node.id in scope.local:
                raise UndefinedName(f"{node.id} is read before it has a value", remedy=f"give {node.id} a value first")
        try:
            found = self.source.lookup(node.id)
        except KeyError:
            raise UndefinedName(
                f"{node.id} is not defined", remedy=f"define {node.id}, or make it a parameter"
            ) from None
        return resolve.value_of(found, node.id)

    def _attribute(self, node: ast.Attribute, hint: str) -> Value:
        value = self(node.value)
        if isinstance(value, Static):
            return resolve.attribute(value, node.attr)
        if node.attr in ("real", "imag") and isinstance(value, (View, Computed, Scalar)):
            return complexes.part(self.builder, node.attr, value)
        if node.attr == "conjugate" and isinstance(value, Scalar) and value.typed.weight == 0:
            return Method(value, "conj_physical")
        if isinstance(value, (View, Computed)) or (isinstance(value, Scalar) and value.typed.weight):
            return self._of_tensor(value, node.attr)
        remedy = "use attributes of tensors"
        if isinstance(value, Tuple):
            remedy = "its length is constant: store into a tensor made before (torch.empty), or write [f(k) for k in range(n)]"
        raise TypeMismatch(f"{describe(value)} has no attribute {node.attr} in weft's language", remedy=remedy)

    def _of_tensor(self, value: View | Computed | Scalar, name: str) -> Value:
        dims = () if isinstance(value, Scalar) else value.dims
        if name == "shape":
            return Tuple(tuple(integer(d) for d in dims))
        if name == "ndim":
            return number(len(dims))
        if name == "dtype":
            one = tensors.of_one_dtype(value, "a value") if isinstance(value, Scalar) else value
            return Static(one.typed.scalar)
        if name == "device":
            return Static("device")
        if name in ("T", "mT") and not isinstance(value, Scalar):
            rank = len(dims)
            if name == "mT" and rank < 2:
                raise TypeMismatch(f"mT of {describe(value)}", remedy="it needs two dimensions")
            order = tuple(reversed(range(rank))) if name == "T" else (*range(rank - 2), rank - 1, rank - 2)
            return tensors.permute(value, order)
        if name not in functions.METHODS:
            raise UnsupportedSyntax(
                f"weft's language has no tensor attribute or method {name}", remedy="write it with loops over elements"
            )
        return Method(value, name)

    def _tuple(self, node: ast.Tuple | ast.List, hint: str) -> Value:
        return Tuple(tuple(self._items(node.elts)), isinstance(node, ast.List))

    _list = _tuple

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of expressions, `*spliced` tuples included."""
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self(node.value)
                if not isinstance(inner, Tuple):
                    raise self.at(TypeMismatch(f"* of {describe(inner)}", remedy="splice a tuple"), node)
                values += inner.items
            else:
                values.append(self(node))
        return values

    # ------------------------------------------------------------ subscripts

    def _subscript(self, node: ast.Subscript, hint: str) -> Value:
        part = self.part(node)
        if isinstance(part, (View, Computed)) and not part.dims:
            outer, self.builder.location = self.builder.location, self.source.location(node)
            value = tensors.element(self.builder, part, ())
            self.builder.location = outer
            return value
        return part

    def part(self, node: ast.Subscript) -> Value:
        """What a subscript names, as a view where it can be stored into."""
        value = self(node.value)
        items = self._subscripts(node.slice)
        try:
            if isinstance(value, Tuple):
                return slices.take(value, items)
            if isinstance(value, (View, Computed)):
                return slices.subscript(self.builder, value, items)
        except WeftError as error:
            raise self.at(self._about(error, node.value, value), node) from None
        raise self.at(
            TypeMismatch(f"a subscript of {describe(value)}", remedy="only tensors and tuples have subscripts"), node
        )

    def _about(self, error: WeftError, node: ast.expr, value: Value) -> WeftError:
        if error.evidence or not isinstance(value, (View, Computed)):
            return error
        fact = f"{ast.unparse(node)} is {describe(value)} of dtype {value.typed.scalar}"
        return type(error)(error.message, location=error.location, evidence=[fact], remedy=error.remedy)

    def _subscripts(self, node: ast.expr) -> tuple[slices.Item, ...]:
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        items: list[slices.Item] = []
        for inner in nodes:
            if isinstance(inner, ast.Slice):
                parts = (self(p) if p is not None else None for p in (inner.lower, inner.upper, inner.step))
                bounds = [tensors.scalar_of(self.builder, p) or p if p is not None else None for p in parts]
                items.append(slices.Slice(*bounds))
            else:
                for value in self._items([inner]):
                    if not isinstance(value, Tuple):
                        items.append(tensors.scalar_of(self.builder, value) or value)
                    elif inner is node and not value.mutable:
                        items += value.items
                    else:  # PyTorch gathers what it names
                        what = "a list" if value.mutable else "a tuple among others"
                        remedy = "loop over its items, or write them as subscripts: x[i, j]"
                        raise self.at(TypeMismatch(f"{what} as a subscript", remedy=remedy), inner)
        return tuple(items)

    # ------------------------------------------------------------ operators

    def _binop(self, node: ast.BinOp, hint: str) -> Value:
        left, right = self(node.left), self(node.right)
        result = self.operate(node.op, left, right)
        precision.of_arithmetic(self.builder, node, (left, right), result, self.source.location(node))
        return result

    def operate(self, operator: ast.operator, left: Value, right: Value) -> Value:
        b = self.builder
        if isinstance(left, Tuple) or isinstance(right, Tuple):
            return _of_tuples(operator, left, right)
        if isinstance(operator, ast.MatMult):
            if not isinstance(left, (View, Computed)) or not isinstance(right, (View, Computed)):
                raise TypeMismatch(f"@ of {describe(left)} and {describe(right)}", remedy="it works on tensors")
            return tensors.matmul(b, left, right)
        return tensors.lift(b, binary(operator), left, right)

    def _unaryop(self, node: ast.UnaryOp, hint: str) -> Value:
        value = self(node.operand)
        b = self.builder
        if isinstance(node.op, ast.UAdd):
            return _plus(b, value) if isinstance(value, Scalar) else value
        if isinstance(node.op, ast.USub):
            return tensors.lift(b, lambda _, x: checks.operated(b, "neg", x), value)
        if isinstance(node.op, ast.Invert):
            return tensors.lift(b, lambda _, x: _invert(b, x), value)
        if isinstance(value, Static):
            return number(not value.value)
        test = truth(self.scalar(node.operand, "not"))
        return operate("not", (Scalar(test.expr, Typed(BOOL, 0)),), b.default_float)  # a bool of Python's, of elements too

    def _compare(self, node: ast.Compare, hint: str) -> Value:
        left = self(node.left)
        result: Value | None = None
        for k, (operator, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            right = self(right_node)
            if isinstance(right, Scalar) and k + 1 < len(node.ops):
                right = self.builder.share(right)
            one = self._compare_two(operator, left, right)
            if result is None:
                result = one
            else:
                both = (result, one)
                result = tensors.lift(self.builder, lambda b, x, y: operate("and", (x, y), b.default_float), *both)
            left = right
        assert result is not None
        return result

    def _compare_two(self, operator: ast.cmpop, left: Value, right: Value) -> Value:
        objects = [v.value for v in (left, right) if isinstance(v, Static) and isinstance(v.value, Namespace)]
        if objects and Static(None) not in (left, right):
            raise UnsupportedSyntax(f"{objects[0].name} may be compared with None alone", remedy="compare attributes of it")
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not (isinstance(right, Static) or isinstance(left, Static)):
                raise UnsupportedSyntax("weft's language compares with is only to None", remedy="write ==")
            return number((left == right) == isinstance(operator, ast.Is))
        if isinstance(operator, (ast.In, ast.NotIn)):
            if isinstance(right, Tuple) and all(isinstance(v, Static) for v in (left, *right.items)):
                return number((left in right.items) == isinstance(operator, ast.In))
            raise UnsupportedSyntax("weft's language has no `in`", remedy="compare with each value")
        if isinstance(left, Static) and isinstance(right, Static):
            if isinstance(operator, (ast.Eq, ast.NotEq)):
                return number((left == right) == isinstance(operator, ast.Eq))
        elif isinstance(left, Tuple) and isinstance(right, Tuple):
            same = len(left.items) == len(right.items) and all(
                isinstance(x, Scalar) and isinstance(y, Scalar) and self.builder.same_size(x.expr, y.expr)
                for x, y in zip(left.items, right.items, strict=True)
            )
            if isinstance(operator, (ast.Eq, ast.NotEq)) and (same or len(left.items) != len(right.items)):
                return number(same == isinstance(operator, ast.Eq))
            raise UnsupportedSyntax("a comparison of shapes", remedy="write assert x.shape == y.shape")
        name = _COMPARE[type(operator)]
        return tensors.lift(self.builder, lambda b, x, y: operate(name, (x, y), b.default_float), left, right)

    # ------------------------------------------------------------ conditions

    def condition(self, node: ast.expr, what: str) -> Scalar:
        """An expression as a bool: constant where it is known while parsing."""
        if isinstance(node, ast.BoolOp):
            parts: list[ast.expr] = node.values
            value = self._first_deciding(parts, isinstance(node.op, ast.And), "condition", self.condition)
        else:
            value = self(node)
        if isinstance(value, Static):
            return number(bool(value.value))
        if isinstance(value, Tuple):
            return number(bool(value.items))
        scalar = tensors.scalar_of(self.builder, value)
        if scalar is None:
            raise self.at(
                TypeMismatch(f"{describe(value)} as {what}", remedy="index one element, or use torch.where"), node
            )
        return truth(scalar)

    def _boolop(self, node: ast.BoolOp, hint: str) -> Value:
        """`a and b and c`: the first value that decides it, as Python gives; later ones are not evaluated then."""
        return self._first_deciding(node.values, isinstance(node.op, ast.And), hint, self)

    def _first_deciding(
        self, nodes: list[ast.expr], is_and: bool, hint: str, evaluate: Callable[[ast.expr, str], Value]
    ) -> Value:
        value = evaluate(nodes[0], hint)
        if len(nodes) == 1:
            return value
        rest = nodes[1:]
        b = self.builder
        if isinstance(value, (Static, Tuple)):
            known = bool(value.value if isinstance(value, Static) else value.items)
            return self._first_deciding(rest, is_and, hint, evaluate) if known == is_and else value
        first = tensors.scalar_of(b, value)
        if first is None:
            raise self.at(
                TypeMismatch(f"{describe(value)} as a condition", remedy="index one element, or use torch.where"),
                nodes[0],
            )
        if first.typed.scalar != BOOL:
            first = b.share(first)
        test = truth(first).expr
        if isinstance(test, Const):
            return self._first_deciding(rest, is_and, hint, evaluate) if bool(test.value) == is_and else first
        with b.block() as statements:
            held = self._first_deciding(rest, is_and, hint, evaluate)
            second = tensors.scalar_of(b, held)
        if second is None:
            raise self.at(
                TypeMismatch(f"a choice between {describe(value)} and {describe(held)}", remedy="write an if"), node=rest[0]
            )
        sides = (second, first) if is_and else (first, second)
        if statements:
            merges: list[Merge] = []
            merged = b.merge(hint if hint != "t" else "condition", *sides, test, merges)
            blocks: tuple[list[Stmt], list[Stmt]] = (statements, []) if is_and else ([], statements)
            b.branch(test, *blocks, tuple(merges))
            return merged
        if first.typed.scalar == second.typed.scalar == BOOL:
            typed = Typed(BOOL, max(first.typed.weight, second.typed.weight))
            one = Scalar(Op("and" if is_and else "or", (test, second.expr), BOOL), typed)
            mixed = select(test, *sides, b.default_float).mixed  # a bool of Python's or an element
            return one if mixed is None else replace(one, mixed=mixed)
        chosen = select(test, *sides, b.default_float)
        b.evaluated(test, chosen.expr)
        return replace(chosen, alias=one_of(first, second))

    def _ifexp(self, node: ast.IfExp, hint: str) -> Value:
        test = self.condition(node.test, "a condition")
        if isinstance(test.expr, Const):
            return self(node.body if test.expr.value else node.orelse, hint)
        b = self.builder
        with b.block() as then_block:
            then = self(node.body, hint)
            then_scalar = tensors.scalar_of(b, then)
        with b.block() as else_block:
            orelse = self(node.orelse, hint)
            else_scalar = tensors.scalar_of(b, orelse)
        if then_scalar is None or else_scalar is None:
            return self._choice(test, then, orelse, then_block, else_block, hint)
        alias = one_of(then_scalar, else_scalar)
        if not then_block and not else_block:
            chosen = select(test.expr, then_scalar, else_scalar, b.default_float)
            b.evaluated(test.expr, chosen.expr)
            return replace(chosen, alias=alias)
        merges: list[Merge] = []
        merged = b.merge(hint if hint != "t" else "choice", then_scalar, else_scalar, test.expr, merges)
        b.branch(test.expr, then_block, else_block, tuple(merges))
        return merged

    def _choice(
        self, test: Scalar, then: Value, orelse: Value, then_block: list[Stmt], else_block: list[Stmt], hint: str
    ) -> Value:
        """`then if test else orelse` where one of them is a tensor; the blocks are what computes them."""
        b = self.builder
        both = isinstance(then, (View, Computed)) and isinstance(orelse, (View, Computed))
        if both and then.typed == orelse.typed and len(then.dims) == len(orelse.dims):  # type: ignore[union-attr]
            for k, sizes in enumerate(zip(then.dims, orelse.dims, strict=True)):  # type: ignore[union-attr]
                if all(free_names(size) <= b.fixed for size in sizes):
                    b.require_equal(*sizes, f"along dimension {k} of the two tensors of a choice")
        if both and (isinstance(then, View) or isinstance(orelse, View) or then_block or else_block):
            view = tensors.merged(b, hint, then, orelse, then_block, else_block)  # type: ignore[arg-type]
            if view is not None:
                b.branch(test.expr, then_block, else_block, ())
                return view
        alike = not both or (then.typed == orelse.typed and b.same_sizes(then.dims, orelse.dims))  # type: ignore[union-attr]
        usable = all(isinstance(v, (Scalar, Computed)) for v in (then, orelse))
        if not alike or not usable or then_block or else_block:
            raise UnsupportedSyntax(
                f"a choice between {describe(then)} and {describe(orelse)}",
                evidence=[] if alike else ["their shapes or dtypes differ"],
                remedy="choose element by element with torch.where(condition, a, b)",
            )
        return tensors.lift(b, lambda _, c, x, y: arithmetic.choose(c, x, y, b.default_float), test, then, orelse)

    # ------------------------------------------------------------ functions and comprehensions

    def function(self, node: ast.FunctionDef | ast.Lambda) -> Helper:
        """A function that is defined here: its defaults are evaluated now, the names around it when it is called."""
        source = self.source.inner(node)
        defaults = tuple((name, self.settled(self(default))) for name, default in source.defaults.items())
        return Helper(source, self.scopes, defaults)

    def _lambda(self, node: ast.Lambda, hint: str) -> Value:
        return self.function(node)

    def settled(self, value: Value) -> Value:
        """A value that stores in other places do not change."""
        if isinstance(value, Scalar):
            return self.builder.share(value)
        return tensors.materialise(self.builder, value, "t") if isinstance(value, Computed) else value

    def _listcomp(self, node: ast.ListComp, hint: str) -> Value:
        """A list of as many values as are known while parsing; its variables are its own."""
        b = self.builder
        frame = b.frame_of(self.environment)
        if frame is None:
            raise UnsupportedSyntax("a list as the default of a parameter", remedy="make it inside the function")
        targets = bound_in([g.target for g in node.generators])
        before = {name: self.environment.get(name) for name in targets}
        own = {(frame, name) for name in targets}
        shared = {pair: sure for pair, sure in b.sharing.items() if pair & own}
        found: list[Value] = []

        def bind(target: ast.expr, item: Value) -> None:
            if isinstance(target, ast.Name):
                b.bind(frame, target.id, self.settled(item))
                return
            if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(item, Tuple):
                raise self.at(TypeMismatch(f"{describe(item)} cannot be unpacked", remedy="use one name"), target)
            if len(target.elts) != len(item.items):
                message = f"{len(item.items)} values for {len(target.elts)} names"
                raise self.at(TypeMismatch(message, remedy="use as many names as there are values"), target)
            for inner, value in zip(target.elts, item.items, strict=True):
                bind(inner, value)

        def run(generators: list[ast.comprehension]) -> None:
            if not generators:
                found.extend(b.hold(self.settled(self(node.elt))))
                return
            generator, *rest = generators
            items = sequences.static_items(sequences.items_of(self.builder, self(generator.iter)), functions.MOST_ITEMS)
            if items is None or generator.is_async:
                raise self.at(
                    UnsupportedSyntax(
                        "a list whose length is not a constant",
                        remedy="write a for loop over range(...) that stores into a tensor",
                    ),
                    generator.iter,
                )
            for item in items:
                bind(generator.target, item)
                conditions = [self.condition(test, "a condition") for test in generator.ifs]
                if any(not isinstance(c.expr, Const) for c in conditions):
                    error = UnsupportedSyntax(
                        "a list whose length depends on values", remedy="write a for loop that stores into a tensor"
                    )
                    raise self.at(error, node)
                if all(isinstance(c.expr, Const) and c.expr.value for c in conditions):
                    run(rest)

        run(node.generators)
        for name, value in before.items():
            self.environment.pop(name, None)
            if value is not None:
                self.environment[name] = value
        b.sharing = without(b.sharing, own.__contains__) | shared
        return Tuple(tuple(found), mutable=True)

    # ------------------------------------------------------------ calls

    def _call(self, node: ast.Call, hint: str) -> Value:
        direct = node is self.direct
        self.direct = None
        function = self(node.func)
        args = tuple(self._items(node.args))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise UnsupportedSyntax("weft's language has no ** arguments", remedy="write the arguments out")
            kwargs[keyword.arg] = self(keyword.value)
        arguments = Arguments(ast.unparse(node.func), args, kwargs)
        match function:
            case Helper():
                return self.inline(function, args, kwargs, direct)
            case Static(value=Known(name=name)):
                if name.removeprefix("math.") in functions.MATH_FLOAT and name.startswith("math."):
                    precision.of_math(self.builder, node, name.removeprefix("math."), args, self.source.location(node))
                return functions.call(self.builder, name, arguments, hint)
            case Method(value=value, name=name):
                return functions.method_call(self.builder, value, name, arguments, hint)
        raise TypeMismatch(f"a call of {describe(function)}", remedy="call functions")


def _plus(b: Builder, x: Scalar) -> Scalar:
    """A bool of Python's becomes an int, what else there is stays what it is."""
    if Typed(BOOL, 0) not in kinds_of(x):
        return x
    found = distribute(lambda v: _plus(b, v), (x,), b.default_float)
    return arithmetic.to_number(x, INT64) if found is None else found


def _invert(b: Builder, x: Scalar) -> Scalar:
    found = distribute(
        lambda v: _invert(b, v), (x,), b.default_float, lambda types: None if types[0].scalar == BOOL else types[0]
    )
    if found is not None:
        return found
    if x.typed.scalar == BOOL and x.typed.weight:
        return operate("not", (x,), b.default_float)
    if x.typed.scalar == BOOL:
        x = arithmetic.to_number(x, number(0).typed.scalar)
    return operate("bitnot", (x,), b.default_float)


def _of_tuples(operator: ast.operator, left: Value, right: Value) -> Value:
    if isinstance(operator, ast.Add) and isinstance(left, Tuple) and isinstance(right, Tuple):
        return replace(left, items=left.items + right.items)
    count = static_int(right)
    if isinstance(operator, ast.Mult) and isinstance(left, Tuple) and count is not None:
        return replace(left, items=left.items * count)
    raise TypeMismatch(f"an operator on {describe(left)} and {describe(right)}", remedy="use numbers and tensors")
