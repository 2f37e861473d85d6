"""Statements: assignments, loops, branches, returns."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from weft.errors import Location, TypeMismatch, UndefinedName, UnsupportedSyntax, WeftError
from weft.language import checks, precision, sequences, tensors
from weft.language.arithmetic import as_type, common, operate
from weft.language.builder import Builder, Environment, Loop
from weft.language.expressions import Evaluator, Inline, binary, rounded
from weft.language.kinds import (
    KindMatters,
    Numbers,
    by_kind,
    cast,
    common_type,
    converted,
    distribute,
    expressions_of,
    holds,
    is_half,
    is_kind,
    is_number,
    joined,
    kinds_of,
    number_of,
    number_of_one,
    numbers_of,
    of_kind,
    unsure,
)
from weft.language.places import left_behind, left_to_later
from weft.language.scopes import bound_in
from weft.language.sharing import Sharing, either, without
from weft.language.source import Module, Source
from weft.language.values import (
    ZERO,
    Alias,
    Computed,
    Mixed,
    Number,
    Pending,
    Range,
    Scalar,
    Scope,
    Sequence,
    Static,
    Tuple,
    Unset,
    Value,
    View,
    any_of,
    describe,
    integer,
    mentions,
    one_of,
)
from weft.loops.ir import Carry, Const, Expr, Load, Merge, Ref, Stmt, free_names
from weft.loops.types import BOOL, CATEGORIES, INT64, ScalarType, Typed

_REMEDIES = {
    ast.While: ("while but to count", "write for i in range(most): and, first in its body, if not (condition): break"),
    ast.Try: ("try", "check the condition with if"),
    ast.With: ("with", "leave it outside the function"),
    ast.AsyncFunctionDef: ("async functions", "use plain functions"),
    ast.ClassDef: ("classes", "use functions"),
    ast.Delete: ("del", "leave the name; it costs nothing"),
    ast.Global: ("global", "return the value, and assign it after the call"),
    ast.Nonlocal: ("nonlocal", "return the value, and assign it where the function is called"),
    ast.Raise: ("raise", "check the arguments before the call"),
    ast.Match: ("match", "write if and elif"),
}


@dataclass
class Head:
    """What is known of the names that a loop carries when its body starts; grown until it holds at the body's end.

    scalars: the type of each carried scalar and what it may be a view of. kinds: the kinds it may be of. told: those
    whose kind is carried too, since something depends on it. numbers: those that are a Python number in some iterations.
    moving: those that are not always one number where they are a Python number. unset: names without a usable value.
    own: names whose array must be their own. held: other names (frame, name) whose meaning a store in the body changes.
    dynamic: carried scalars that depend on what tensors hold. carries: the user's name by that of its carry.
    also: names that the body does not bind, but changes in place by another name. sharing: which names mean one tensor.
    copies: which arrays stand for one tensor, those of names in `own` by ".name".
    wide: carried ints that may leave 64 bits, so that what they get is checked.
    """

    scalars: dict[str, tuple[Typed, Alias]] = field(default_factory=dict)
    kinds: dict[str, tuple[Typed, ...]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    numbers: set[str] = field(default_factory=set)
    moving: set[str] = field(default_factory=set)
    unset: dict[str, Unset] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    held: dict[tuple[int, str], Value] = field(default_factory=dict)
    dynamic: set[str] = field(default_factory=set)
    carries: dict[str, str] = field(default_factory=dict)
    also: set[str] = field(default_factory=set)
    sharing: Sharing | None = None
    copies: frozenset[frozenset[str]] = frozenset()
    wide: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Carried:
    """A scalar that a loop carries, in one part, or in parts that tell its kind: the common value, the tests of the kinds
    but the last, a value for each kind. names: of the parts' carries. inits: what they start from; first: the value
    that this is. numbers: as `numbers_of` gives them. may_be_number: an element of a half type that is a Python number in some
    iterations; of two names, the second's part says in which.
    """

    names: tuple[str, ...]
    inits: tuple[Expr, ...]
    typed: Typed
    kinds: tuple[Typed, ...]
    numbers: Numbers
    first: Scalar
    may_be_number: bool = False

    @staticmethod
    def start(b: Builder, name: str, value: Scalar, head: Head, numbers: Numbers) -> Carried:
        (typed, _), kinds, told = head.scalars[name], head.kinds[name], name in head.told
        may = name in head.numbers and is_half(typed) and len(kinds) == 1
        own = Carried((b.fresh(name),), (converted(value, typed.register),), typed, kinds, numbers, value, may)
        if not told or len(kinds) == 1 and not may:
            return own
        if may:
            own = replace(own, names=(*own.names, b.fresh(f"{name}_is_number")))
            return replace(own, inits=own.parts(value))
        tests = (b.fresh(f"{name}_is_{kind.scalar}") for kind in kinds[:-1])
        names = (*own.names, *tests, *(b.fresh(name) for _ in kinds))
        told_apart = replace(own, names=names)
        return replace(told_apart, inits=told_apart.parts(value))

    def parts(self, value: Scalar) -> tuple[Expr, ...]:
        """A value as these parts."""
        whole = converted(value, self.typed.register)
        if len(self.names) == 1:
            return (whole,)
        if self.may_be_number:
            return whole, is_number(number_of(value, self.typed))
        tests = (is_kind(value, kind) for kind in self.kinds[:-1])
        return (whole, *tests, *(of_kind(value, kind) for kind in self.kinds))

    def numbers_with(self, end: Scalar) -> Numbers:
        """The numbers that it is on all paths, if this is the value at the end of an iteration."""
        return numbers_of(self.kinds, (self.first, end))

    def value(self, names: tuple[str, ...], default_float: ScalarType) -> Scalar:
        """The scalar whose parts have these names."""
        whole = Ref(names[0], self.typed.register)
        if self.may_be_number:
            return Scalar(whole, self.typed, number=Number(Ref(names[1], BOOL) if names[1:] else None, name=names[0]))
        if len(self.kinds) == 1:
            return Scalar(whole, self.typed)
        if len(names) == 1:
            return unsure(whole, self.typed, self.kinds, names[0], self.numbers)
        tests: list[Expr] = [Ref(n, BOOL) for n in names[1 : len(self.kinds)]]
        parts = zip(names[len(self.kinds) :], self.kinds, self.numbers, strict=True)
        values = [Scalar(Ref(name, kind.register) if number is None else number, kind) for name, kind, number in parts]
        return Scalar(whole, self.typed, mixed=by_kind(tests, values, default_float).mixed)


class Executor:
    """Executes the statements of one function. `result`: what it returned, None before."""

    def __init__(
        self,
        builder: Builder,
        source: Source,
        environment: Environment,
        inline: Inline,
        enclosing: tuple[Scope, ...] = (),
    ) -> None:
        self.builder, self.source, self.environment = builder, source, environment
        frame = builder.frame_of(environment)
        self.frame = frame if frame is not None else -1
        local = frozenset((*bound_in(source.body.statements), *(p.arg for p in source.parameters)))
        self.evaluate = Evaluator(builder, source, environment, inline, (Scope(environment, local), *enclosing))
        self.result: Value | None = None
        self.depth = 0

    def execute(self) -> None:
        """Execute the function's statements."""
        body = self.source.body
        self.environment |= dict.fromkeys(body.pending, Pending())
        *statements, last = body.statements
        self.run(statements)
        for name in body.pending:
            value = self.environment[name]
            if isinstance(value, Unset):
                raise UnsupportedSyntax(
                    f"{self.source.name} returns different things on different paths",
                    location=value.location,
                    evidence=[value.why.replace("it is", "what it returns is", 1)],
                    remedy="give one name its value on every path, and return it at the end",
                )
        self.run([last])

    def run(self, statements: list[ast.stmt]) -> None:
        for stmt in statements:
            if self.result is not None:
                return
            self.builder.location = self.source.location(stmt)
            depth = len(self.builder.environments)
            method = getattr(self, f"_{type(stmt).__name__.lower()}", None)
            try:
                if method is None:
                    what, remedy = _REMEDIES.get(type(stmt), (f"{type(stmt).__name__} statements", "rewrite it"))
                    raise UnsupportedSyntax(f"weft's language has no {what}", remedy=remedy)
                method(stmt)
                self.builder.release(depth)
            except WeftError as error:
                raise self.evaluate.at(error, stmt) from None

    def _value(self, node: ast.expr, hint: str) -> Value:
        self.evaluate.direct = node
        return self.evaluate(node, hint)

    # ------------------------------------------------------------ assignments

    def _assign(self, stmt: ast.Assign) -> None:
        first = stmt.targets[0]
        hint = first.id if isinstance(first, ast.Name) else "t"
        value = self._value(stmt.value, hint)
        if len(stmt.targets) == 1:
            self._bind(first, value)
            return
        frame = len(self.builder.environments)
        self.builder.hold(self._settle(value, hint))
        for target in stmt.targets:
            self._bind(target, self.builder.held(frame, 0))
        self.builder.release(frame)

    def _annassign(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is not None:
            hint = stmt.target.id if isinstance(stmt.target, ast.Name) else "t"
            self._bind(stmt.target, self._value(stmt.value, hint))

    def _bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self._bind_name(name, value)
            case ast.Subscript():
                self._store(target, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(target, targets, value)
            case _:
                error = UnsupportedSyntax("an assignment to an attribute", remedy="assign to a name or an element")
                raise self.evaluate.at(error, target)

    def _bind_name(self, name: str, value: Value) -> None:
        b = self.builder
        if sequences.is_iterator(value):
            raise UnsupportedSyntax(
                f"{name} is {describe(value)}, which runs out when it was run over once",
                remedy="write it in the for itself, or as a list: list(...)",
            )
        held = self.environment.get(name)
        scalar = tensors.scalar_of(b, value) if not isinstance(value, View) else None
        if scalar is not None:
            if isinstance(held, View) and self._can_hold(held, name, scalar):
                b.overwritten({held.array})
                tensors.assign(b, held, scalar)
            else:
                b.bind(self.frame, name, self._settle(scalar, name))
        elif isinstance(value, Computed):
            if isinstance(held, View) and self._can_hold(held, name, value):
                b.overwritten({held.array})
                tensors.assign(b, held, value)
            else:
                b.bind(self.frame, name, tensors.materialise(b, value, name))
        else:
            b.bind(self.frame, name, self._settle(value, name))

    def _can_hold(self, held: View, name: str, value: Computed | Scalar) -> bool:
        """Whether the array that a name has can take the name's new value."""
        dims = value.dims if isinstance(value, Computed) else ()
        fits = held.dtype == value.typed.scalar and value.typed.weight > 0 and self.builder.same_sizes(held.dims, dims)
        return fits and self.builder.is_free(held, name)

    def _settle(self, value: Value, hint: str) -> Value:
        """A value that later statements cannot change: scalars under names, tensors in arrays, subscripts fixed."""
        b = self.builder
        match value:
            case Scalar(expr=Const() | Ref(), mixed=None):
                return value
            case Scalar():
                alias = value.alias
                if alias is not None and alias.index is not None:
                    alias = replace(alias, index=tuple(map(b.steady, alias.index)))
                return replace(b.share(value, hint), alias=alias)
            case Computed(dims=()):
                return self._settle(tensors.element(b, value, ()), hint)
            case Computed():
                return tensors.materialise(b, value, hint)
            case View():
                axes = tuple(map(b.steady, value.axes))
                return value if axes == value.axes else replace(value, axes=axes)
            case Tuple(items=items):
                return replace(value, items=tuple(self._settle(item, hint) for item in items))
        return value

    def _unpack(self, target: ast.expr, targets: list[ast.expr], value: Value) -> None:
        if not isinstance(value, Tuple):
            error = TypeMismatch(f"{describe(value)} cannot be unpacked", remedy="unpack a tuple or a shape")
            raise self.evaluate.at(error, target)
        items = list(value.items)
        starred = [k for k, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if starred:
            k = starred[0]
            extra = len(items) - len(targets) + 1
            if extra >= 0:
                items = [*items[:k], Tuple(tuple(items[k : k + extra])), *items[k + extra :]]
        if len(items) != len(targets):
            wanted = f"{len(targets) - len(starred)}{' or more' if starred else ''}"
            raise self.evaluate.at(
                TypeMismatch(
                    f"{len(value.items)} values for {wanted} names",
                    remedy="pass a tensor of that many dimensions, or unpack as many names as there are values",
                ),
                target,
            )
        names = [t.value if isinstance(t, ast.Starred) else t for t in targets]
        if all(isinstance(i, Scalar) and i.typed == Typed(INT64, 0) for i in items):
            for t, item in zip(names, items, strict=True):
                self._bind(t, item)
            return
        hints = [t.id if isinstance(t, ast.Name) else "t" for t in names]
        frame = len(self.builder.environments)
        self.builder.hold(*map(self._settle, items, hints))
        for k, t in enumerate(names):
            self._bind(t, self.builder.held(frame, k))
        self.builder.release(frame)

    def _store(self, target: ast.Subscript, value: Value) -> None:
        part = self._target(target)
        self._readable(value, "the value")
        scalar = tensors.scalar_of(self.builder, value)
        if scalar is None and not isinstance(value, (View, Computed)):
            raise self.evaluate.at(
                TypeMismatch(f"{describe(value)} cannot be stored into a tensor", remedy="store numbers or tensors"),
                target,
            )
        tensors.assign(self.builder, part, scalar if scalar is not None else value)  # type: ignore[arg-type]

    def _target(self, node: ast.Subscript) -> View:
        part = self.evaluate.part(node)
        if not isinstance(part, View):
            error = TypeMismatch(f"{describe(part)} cannot be stored into", remedy="store into a tensor")
            raise self.evaluate.at(error, node)
        steady = self._settle(part, "index")
        assert isinstance(steady, View)
        return steady

    def _augassign(self, stmt: ast.AugAssign) -> None:
        target = stmt.target
        if isinstance(target, ast.Attribute):
            raise UnsupportedSyntax("an assignment to an attribute", remedy="assign to a name or an element")
        held: Value
        if isinstance(target, ast.Subscript):
            held = self._target(target)
        else:
            held = self.evaluate(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        value = self._value(stmt.value, "t")
        if isinstance(held, View):
            self._in_place(held, stmt.op, value)
            return
        assert isinstance(target, ast.Name)
        held = self.evaluate(ast.copy_location(ast.Name(target.id, ast.Load()), target))  # the value may have changed it
        if isinstance(held, Scalar) and held.typed.weight:
            self._change(target.id, held, stmt.op, value)
        else:
            result = self.evaluate.operate(stmt.op, held, value)
            precision.of_arithmetic(self.builder, stmt, (held, value), result, self.source.location(stmt))
            self._bind_name(target.id, result)

    def _in_place(self, held: View, operator: ast.operator, value: Value) -> None:
        """`held op= value`: stored into the array, in its dtype."""
        result = self.evaluate.operate(operator, held, value)
        if not isinstance(result, (Scalar, Computed)):
            raise TypeMismatch(f"{describe(result)} cannot be stored into a tensor", remedy="store numbers or tensors")
        _fits_in_place(result.typed.scalar, held.dtype)
        tensors.assign(self.builder, held, result)

    def _change(self, name: str, held: Scalar, operator: ast.operator, value: Value) -> None:
        """`name op= value` of a tensor without dimensions: all that mean the same tensor see it."""
        b, objects = self.builder, held.objects
        if objects.arrays and objects.index is None:
            arrays = " or ".join(sorted({b.called(a) for a in objects.arrays}))
            raise UnsupportedSyntax(
                f"{name} may be a view of an element of {arrays}, and an assignment in place would change it there too",
                remedy=f"write {name} = {name} + ..., or store into the element",
            )

        def computed(types: tuple[Typed, ...]) -> Typed | None:
            """Of sums and the like of elements, that of the tensor as much as that of the operator."""
            typed = common_type(types, b.default_float)
            same = types[0].weight == 0 or typed.register == types[0].register
            return typed if same and isinstance(operator, ast.Add | ast.Sub | ast.Mult) else None

        def in_place(b: Builder, x: Scalar, y: Scalar) -> Scalar:
            """The value in the dtype of the tensor; that of the operator where it is a number, which is bound anew."""
            if x.mixed is not None or y.mixed is not None:
                with b.path():
                    found = distribute(lambda u, v: in_place(b, u, v), (x, y), b.default_float, computed, once=False)
                assert found is not None
                return found
            result = binary(operator)(b, x, y)
            if x.typed.weight == 0:
                return result
            _fits_in_place(result.typed.scalar, x.typed.scalar)
            if objects.number and result.typed != x.typed:
                raise TypeMismatch(
                    f"{name} may be a number or a tensor of {x.typed.scalar}, and which it is decides the dtype of the result",
                    remedy=f"write {name} = {name} + ..., or start from a tensor",
                )
            return as_type(result, x.typed)

        result = tensors.lift(b, in_place, replace(held, alias=None), value)
        if not isinstance(result, Scalar):
            raise TypeMismatch(f"{name} is one element, the right side {describe(value)}", remedy="write = instead")
        if b.strict:
            once = rounded(result)
            assert isinstance(once, Scalar)
            result = once
        if objects.arrays and objects.index is not None:
            (array,) = objects.arrays
            b.store(array, objects.index, converted(result, b.arrays[array].dtype.opmath))
        else:
            b.change((self.frame, name), b.share(result, name), isinstance(value, Scalar) and value.objects.number)

    def _readable(self, value: Value, what: str) -> None:
        if isinstance(value, Unset):
            raise UndefinedName(f"{what} cannot be told: {value.why}", remedy=value.remedy)

    # ------------------------------------------------------------ small statements

    def _pass(self, stmt: ast.Pass) -> None:
        pass

    def _functiondef(self, stmt: ast.FunctionDef) -> None:
        if stmt.decorator_list:
            raise UnsupportedSyntax(f"{stmt.name} has a decorator", remedy="define it without, or outside the function")
        self.environment[stmt.name] = self.evaluate.function(stmt)

    def _import(self, stmt: ast.Import) -> None:
        for alias in stmt.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            self.environment[alias.asname or name] = Static(Module(name))

    def _expr(self, stmt: ast.Expr) -> None:
        if isinstance(stmt.value, ast.Constant):  # a docstring
            return
        if not isinstance(stmt.value, ast.Call):
            raise UnsupportedSyntax("a statement without effect", remedy="remove it, or assign its value")
        if not self._method_in_place(stmt.value):
            value = self._value(stmt.value, "t")
            if isinstance(value, Scalar):
                self.builder.evaluated(value.expr)
            elif isinstance(value, Computed):
                tensors.materialise(self.builder, value, "t")

    def _method_in_place(self, call: ast.Call) -> bool:
        """`y.copy_(x)`, `y.zero_()`, `y.fill_(v)`, `y.add_(x)`, `y.sub_(x)`, `y.mul_(x)`, `y.div_(x)`."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_")):
            return False
        name = call.func.attr[:-1]
        operators: dict[str, ast.operator] = {"add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "div": ast.Div()}
        inner = call.func.value
        held = self.evaluate.part(inner) if isinstance(inner, ast.Subscript) else self.evaluate(inner)
        if not isinstance(held, View) or call.keywords or len(call.args) != (name != "zero"):
            return False
        if name == "zero":
            tensors.assign(self.builder, held, Scalar(Const(0, INT64), Typed(INT64, 0)))
        elif name in ("copy", "fill"):
            value = self.evaluate(call.args[0])
            scalar = tensors.scalar_of(self.builder, value)
            if scalar is None and not isinstance(value, (View, Computed)):
                return False
            tensors.assign(self.builder, held, scalar if scalar is not None else value)  # type: ignore[arg-type]
        elif name in operators:
            self._in_place(held, operators[name], self.evaluate(call.args[0]))
        else:
            return False
        return True

    def _assert(self, stmt: ast.Assert) -> None:
        """Asserts on shapes become checks of the call."""
        self._check(stmt.test)

    def _check(self, test: ast.expr) -> None:
        b = self.builder
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            for value in test.values:
                self._check(value)
            return
        if isinstance(test, ast.Compare) and all(isinstance(op, ast.Eq) for op in test.ops):
            values = [self.evaluate(node) for node in (test.left, *test.comparators)]
            pairs = zip(values, values[1:], strict=False)
            if all(self._equate(left, right, ast.unparse(test)) for left, right in pairs):
                return
        condition = self.evaluate.condition(test, "a condition")
        if not isinstance(condition.expr, Const):
            raise UnsupportedSyntax(
                "an assert that is not an equality of sizes", remedy="check it before the call", location=b.location
            )
        if not condition.expr.value:
            raise TypeMismatch(f"the assert {ast.unparse(test)} does not hold", remedy="pass other arguments")

    def _equate(self, left: Value, right: Value, what: str) -> bool:
        """Require two sizes or two shapes to be equal; False where they are no sizes."""
        b = self.builder
        if isinstance(left, Tuple) and isinstance(right, Tuple):
            if len(left.items) != len(right.items):
                return False
            return all(self._equate(x, y, what) for x, y in zip(left.items, right.items, strict=True))
        if not (isinstance(left, Scalar) and isinstance(right, Scalar)):
            return False
        if left.typed != Typed(INT64, 0) or right.typed != Typed(INT64, 0):
            return False
        if left.constant is not None and right.constant is not None and left.constant != right.constant:
            return False
        b.require_equal(left.expr, right.expr, f"in the assert {what}")
        return True

    def _return(self, stmt: ast.Return) -> None:
        if self.depth:
            where = "a loop or a branch"
            raise UnsupportedSyntax(
                f"weft's language has no return inside {where}",
                remedy="assign to a name, and return it at the end of the function",
            )
        self.result = Static(None) if stmt.value is None else self._value(stmt.value, "result")

    # ------------------------------------------------------------ branches

    def _if(self, stmt: ast.If) -> None:
        test = self.evaluate.condition(stmt.test, "the condition of an if")
        if isinstance(test.expr, Const):
            self.run(stmt.body if test.expr.value else stmt.orelse)
            return
        b = self.builder
        location = b.location
        before, sharing, copies = [dict(e) for e in b.environments], b.sharing, b.copies
        self.depth += 1
        with b.block() as then:
            self.run(stmt.body)
        after_then = [dict(e) for e in b.environments]
        _restore(b.environments, before)
        sharing_then, b.sharing = b.sharing, sharing
        copies_then, b.copies = b.copies, copies
        with b.block() as orelse:
            self.run(stmt.orelse)
        b.sharing = either(sharing_then, b.sharing)
        b.copies |= copies_then
        after_else = [dict(e) for e in b.environments]
        self.depth -= 1
        b.location = location
        merges: list[Merge] = []
        for environment, old, one, other in zip(b.environments, before, after_then, after_else, strict=True):
            for name in dict.fromkeys((*one, *other)):
                # what had no value before and gets one on one branch is told as that
                held = old.get(name)
                unset = held if isinstance(held, Unset) and not held.stale else None
                sides = [v if v is not unset else None for v in (one.get(name), other.get(name))]
                if sides == [None, None] and unset is not None:
                    environment[name] = unset
                else:
                    environment[name] = self._merge(name, sides[0], sides[1], then, orelse, merges, test)
        b.location = location
        b.branch(test.expr, then, orelse, tuple(merges))

    def _merge(
        self,
        name: str,
        one: Value | None,
        other: Value | None,
        then: list[Stmt],
        orelse: list[Stmt],
        merges: list[Merge],
        test: Scalar,
    ) -> Value:
        """What a name means after a branch that leaves it `one` or `other`."""
        b = self.builder
        if isinstance(one, Scalar) and isinstance(other, Scalar) and one == other:
            return replace(one, alias=one_of(one, other))
        if one == other and one is not None:
            return one
        if isinstance(one, Pending) or isinstance(other, Pending):
            known = other if isinstance(one, Pending) else one
            if isinstance(known, Scalar):
                one, other = (_nothing(known), known) if isinstance(one, Pending) else (known, _nothing(known))
            elif known is not None and not isinstance(known, Tuple):
                return known
        items = _pairs(one, other)
        if items is not None:
            whole = one if isinstance(one, Tuple) else other
            assert isinstance(whole, Tuple)
            merged_items = tuple(self._merge(name, x, y, then, orelse, merges, test) for x, y in items)
            return replace(whole, items=merged_items)
        if isinstance(one, Scalar) and isinstance(other, Scalar):
            return b.merge(name, one, other, test.expr, merges)
        if isinstance(one, View) and isinstance(other, View):
            merged = tensors.merged(b, name, one, other, then, orelse)
            if merged is not None:
                return merged
            why = "it is a tensor of another shape or dtype on each branch"
            return Unset(why, "use two names", b.location)
        for value in (one, other):
            if isinstance(value, Unset):
                return value
        if one is None or other is None:
            which = "if" if other is None else "else"
            return Unset(
                f"only the {which} branch gives it one", f"give {name} a value before the if, or on both branches",
                b.location,
            )  # fmt: skip
        return Unset(
            f"it is {describe(one)} on one branch and {describe(other)} on the other",
            "use two names",
            b.location,
        )

    # ------------------------------------------------------------ loops

    def _for(self, stmt: ast.For) -> None:
        b = self.builder
        if stmt.orelse:
            raise UnsupportedSyntax("weft's language has no else of a loop", remedy="write it after the loop")
        if any(isinstance(node, (ast.Subscript, ast.Attribute)) for node in ast.walk(stmt.target)):
            error = UnsupportedSyntax("a loop whose variable is an element", remedy="loop over a name, and store it")
            raise self.evaluate.at(error, stmt.target)
        try:
            over = sequences.items_of(b, self.evaluate(stmt.iter))
        except WeftError as error:
            raise self.evaluate.at(error, stmt.iter) from None
        if isinstance(over, Tuple):
            names = self._ahead(over, stmt)
            for name, item in zip(names, over.items, strict=True):
                self._bind(stmt.target, item if name is None else self.evaluate(name))
                self.run(stmt.body)
            for name in names:
                if name is not None:
                    self.environment.pop(name.id, None)
            return
        location = b.location
        head = Head(told={name for loop, name in b.told if loop == location})
        depth, carried = self.depth, set(b.carried)
        while True:
            restore = b.snapshot()
            try:
                if self._loop(stmt, over, head):
                    return
            except KindMatters as matters:
                if matters.name not in head.carries:
                    raise
                head.told.add(head.carries[matters.name])
            restore()
            b.location, self.depth, b.carried = location, depth, set(carried)

    def _ahead(self, over: Tuple, stmt: ast.For) -> list[ast.Name | None]:
        """Names for the items of a loop that is written out, which Python computes before it runs; None where an item is what
        it is: a number, or a view of an element, which shows what the element is by then.
        """
        names: list[ast.Name | None] = []
        for k, item in enumerate(over.items, 1):
            plain = isinstance(item, Scalar) and item.mixed is None and isinstance(item.expr, Const | Ref | Load)
            if plain and isinstance(item.expr, Ref) and item.objects.arrays:
                plain = False  # a copy of what may be an element of several arrays, good until one of them is stored into
            if len(over.items) == 1 or plain or not isinstance(item, Scalar | Computed | Tuple):
                names.append(None)
                continue
            name = ast.copy_location(ast.Name(f"item {k} of the loop over {ast.unparse(stmt.target)}", ast.Load()), stmt.iter)
            self.builder.bind(self.frame, name.id, self._settle(item, "item"))
            names.append(name)
        return names

    def _loop(self, stmt: ast.For, over: Range | Sequence, head: Head) -> bool:
        """Emit the loop as `head` says; False where head was not all there is to know (and has grown)."""
        b = self.builder
        targets = bound_in([stmt.target])
        target = ast.unparse(stmt.target)
        location = b.location
        # a target is carried where it had a value before: that is what it keeps if the loop does not run
        bound = [n for n in bound_in(stmt.body) if n not in targets]
        bound += [n for n in targets if isinstance(self.environment.get(n), Scalar)]
        bound += sorted(head.also - set(bound))
        for (frame, name), changed in head.held.items():
            b.environments[frame][name] = changed
        head.own -= head.unset.keys()
        for name in sorted(head.own):
            view = self.environment[name]
            assert isinstance(view, View)
            own = tensors.materialise(b, view, name)
            b.copied(own.array, view.array)
            self.environment[name] = own
        outside = frozenset(b.arrays)
        arrays = {name: view.array for name in head.own if isinstance(view := self.environment[name], View)}
        b.copies |= _renamed(head.copies, {f".{name}": array for name, array in arrays.items()})
        copies = b.copies
        before = [dict(e) for e in b.environments]
        env = self.environment
        mine = dict(env)
        carried: dict[str, Carried] = {}
        head.carries.clear()
        for name in bound:
            value: Value | None = mine.get(name)
            if isinstance(value, Pending) and name in head.scalars:
                value = _nothing(Scalar(ZERO, *head.scalars[name]))
            if name in head.unset:
                env[name] = head.unset[name]
            elif isinstance(value, Scalar):
                typed, alias = head.scalars.setdefault(name, (value.typed, value.objects))
                kinds = head.kinds.setdefault(name, joined(kinds_of(value), b.default_float))
                if len(kinds) > 1 and not holds(typed, value):
                    head.told.add(name)
                numbers = numbers_of(kinds, (value,)) if name not in head.moving else (None,) * len(kinds)
                if number_of(value, typed) is not None:
                    head.numbers.add(name)
                carry = Carried.start(b, name, value, head, numbers)
                head.carries |= {n: name for n in carry.names}
                b.carried.update(carry.names)
                carried[name] = carry
                env[name] = replace(carry.value(carry.names, b.default_float), alias=alias if typed.weight else None)
                if typed == Typed(INT64, 0) and len(kinds) == 1 and name not in head.wide:
                    values = checks.assumed(b, carry.inits[0], len(b.loops))
                    if values is not None:
                        b.spans[carry.names[0]] = values
                if name in head.dynamic:
                    b.dynamic.update(carry.names)
            elif value is None:
                env[name] = Unset(
                    f"only an earlier iteration of the loop over {target} would give it one",
                    f"give {name} a value before the loop", location,
                )  # fmt: skip
        results: dict[str, Scalar] = {}
        grown = False
        head.sharing = b.sharing if head.sharing is None else either(head.sharing, b.sharing)
        b.sharing = head.sharing
        self.depth += 1
        if isinstance(over, Range):
            start, stop, step, hint = over.start, over.stop, over.step, targets[0]
        else:
            start, stop, step, hint = ZERO, over.count, 1, b.implied_name(over.count)
        var = b.fresh(hint)
        with b.loop(var, start, stop, step) as carries:
            for name in targets:
                env.pop(name, None)
            self._bind(stmt.target, integer(Ref(var, INT64)) if isinstance(over, Range) else over.item(Ref(var, INT64)))
            self.run(stmt.body)
            b.location = location
            grown = self._learn(bound, mine, head)
            self._copy_back(bound, mine, head)
            for name, carry in carried.items():
                end = self._end_of(name, env.get(name), head)
                if end is None:
                    grown = True
                    continue
                if self._grow(name, end, head):
                    grown = True
                    continue
                if len(carry.kinds) > 1 and name not in head.moving and carry.numbers != carry.numbers_with(end):
                    head.moving.add(name)
                    grown = True
                    continue
                names = [b.fresh(f"{n}_last") for n in carry.names]
                ends = carry.parts(end)
                if carry.names[0] in b.spans:
                    advance = checks.Advance(carry.inits[0], ends[0], carry.names[0], Loop(var, start, stop, step))
                    if not checks.stays(b, advance, len(b.loops) - 1):
                        head.wide.add(name)
                        grown = True
                        continue
                    b.spans[names[0]] = b.spans[carry.names[0]]
                    b.choices[names[0]] = (carry.inits[0], ends[0])
                    b.advances[names[0]] = advance
                carries += map(Carry, carry.names, carry.inits, ends, names)
                b.left[names[0]] = (location, name)
                results[name] = self._last(carry, tuple(names), carry.first, end, Loop(var, start, stop, step))
        self.depth -= 1
        b.copies |= copies  # which is all there is where it does not run
        b.carried -= set(head.carries)
        grown |= self._other_names(before, bound, targets, head)
        grown |= self._other_objects(outside, {array: f".{name}" for name, array in arrays.items()}, head)
        if grown or any(name not in results for name in carried if name not in head.unset):
            return False
        if any(n in head.own and mine.get(n) != env.get(n) for n in bound):
            return False
        self._after(bound, mine, results, head, targets, target, location, outside)
        return True

    def _learn(self, bound: list[str], before: Environment, head: Head) -> bool:
        """Take the types of names that were pending before the loop from what an iteration leaves. Whether any has one."""
        b, found = self.builder, False
        for name in bound:
            value = self.environment.get(name)
            if isinstance(before.get(name), Pending) and isinstance(value, Scalar) and name not in head.scalars:
                objects = left_to_later(value.objects, b.loops, b.fixed)
                head.scalars[name] = (value.typed, replace(objects, index=None, places=objects.elements))
                found = True
        return found

    def _last(self, carry: Carried, names: tuple[str, ...], init: Scalar, end: Scalar, loop: Loop) -> Scalar:
        """What a carried scalar is after the loop."""
        b = self.builder
        found = carry.value(names, b.default_float)
        if carry.may_be_number and number_of(end, carry.typed) is None:  # it is one if the loop does not run
            ran = operate("lt" if loop.step > 0 else "gt", (integer(loop.start), integer(loop.stop)), b.default_float)
            return replace(found, number=number_of_one(ran.expr, end, init, carry.typed))
        if found.mixed is None or found.mixed.test is not None or len(joined(kinds_of(end), b.default_float)) > 1:
            return found
        # it is of the last kind if the loop runs at all
        ran = operate("lt" if loop.step > 0 else "gt", (integer(loop.start), integer(loop.stop)), b.default_float)
        last = Scalar(cast(found.expr, end.typed.register), end.typed)
        if isinstance(ran.expr, Const):
            return last if ran.expr.value else init
        return replace(found, mixed=Mixed(ran.expr, last, init))

    def _end_of(self, name: str, value: Value | None, head: Head) -> Scalar | None:
        """The value at the end of an iteration of a name that the loop carries; None where it is no scalar."""
        if isinstance(value, Scalar):
            return value
        if isinstance(value, Unset):
            head.unset[name] = value
        else:
            what = describe(value) if value is not None else "nothing"
            head.unset[name] = Unset(
                f"it is a number before the loop and {what} after an iteration",
                f"use two names, or give {name} its shape before the loop (torch.zeros...)",
                self.builder.location,
            )
        return None

    def _grow(self, name: str, end: Scalar, head: Head) -> bool:
        """Widen what head says of a carried scalar to hold for `end` too; whether it grew."""
        b, default = self.builder, self.builder.default_float
        typed, alias = head.scalars[name]
        wider = common((Scalar(Ref("a", typed.register), typed), end), default)
        kinds = joined((*head.kinds[name], *kinds_of(end)), default)
        place = any_of(alias, left_to_later(end.objects, b.loops, b.fixed)) or Alias()
        grown = (wider, place) != (typed, alias) or kinds != head.kinds[name]
        if is_half(wider) and name not in head.numbers and number_of(end, wider) is not None:
            head.numbers.add(name)
            grown = True
        head.scalars[name], head.kinds[name] = (wider, place), kinds
        if not grown and len(kinds) > 1 and name not in head.told and not holds(wider, end):
            head.told.add(name)
            grown = True
        if self.builder.is_dynamic(end.expr) and name not in head.dynamic:
            head.dynamic.add(name)
            grown |= wider.scalar.category == "int"
        return grown

    def _copy_back(self, bound: list[str], before: Environment, head: Head) -> None:
        """Bring the arrays of rebound names back to those they had when the iteration started."""
        b, env = self.builder, self.environment
        moved: list[tuple[str, View, View]] = []
        for name in bound:
            old, new = before.get(name), env.get(name)
            if not isinstance(old, View) or name in head.unset or old == new:
                continue
            if isinstance(new, Unset):
                head.unset[name] = new
            elif not isinstance(new, View) or new.dtype != old.dtype or not b.same_sizes(old.dims, new.dims):
                what = "of another shape or dtype" if isinstance(new, View) else describe(new)
                head.unset[name] = Unset(
                    f"it is {describe(old)} before the loop and {what} after an iteration", "use two names", b.location
                )
            elif b.created.get(old.array) != old or name not in head.own:
                head.own.add(name)
            else:
                moved.append((name, old, new))
        targets = {old.array for _, old, _ in moved}
        b.overwritten(targets)
        twins: dict[str, list[str]] = {}
        for _, old, new in moved:
            if new.array not in targets:
                twins.setdefault(new.array, []).append(old.array)
        moved = [
            (name, old, tensors.materialise(b, new, name) if any(mentions(new, t) for t in targets) else new)
            for name, old, new in moved
        ]
        for name, old, new in moved:
            tensors.assign(b, old, new)
            b.bind(self.frame, name, old)
        for array, own in twins.items():
            for one in own:
                b.copied(one, array)

    def _other_names(self, before: list[Environment], bound: list[str], targets: list[str], head: Head) -> bool:
        """Names that the body does not bind, but whose meaning a store changed: they start changed. Whether any did."""
        grown = False
        for frame, (old, new) in enumerate(zip(before, self.builder.environments, strict=True)):
            for name, value in old.items():
                own = self.environment is self.builder.environments[frame]
                if own and (name in bound or name in targets):
                    continue
                now = new.get(name)
                if now is None or now is value:
                    continue
                if now == value:
                    if isinstance(now, Scalar) and isinstance(value, Scalar) and now.objects != value.objects:
                        left = left_behind(now.objects, self.builder.loops, self.builder.fixed)
                        head.held[frame, name] = replace(value, alias=one_of(replace(now, alias=left), value))
                        grown = True
                elif isinstance(now, Scalar) and not isinstance(now.expr, Load):  # changed in place by another name
                    if own:
                        head.also.add(name)
                    else:
                        head.held[frame, name] = _changed_in_place(name, self.builder.location)
                    grown = True
                else:
                    head.held[frame, name] = now
                    grown = True
        for name in bound:
            old_value, new_value = before[self.frame].get(name), self.environment.get(name)
            plain = not isinstance(old_value, (Scalar, View, Unset, Pending)) and old_value is not None
            if plain and old_value != new_value and name not in head.unset:
                head.unset[name] = Unset(
                    "it is a different thing after an iteration", "use another name", self.builder.location
                )
                grown = True
        return grown

    def _other_objects(self, outside: frozenset[str], own: dict[str, str], head: Head) -> bool:
        """Widen what head says of names and arrays that are one in the plain Python; whether it grew. own: the names of the
        arrays that the loop has for names in `head.own`.
        """
        b = self.builder
        assert head.sharing is not None
        sharing = either(head.sharing, without(b.sharing, lambda slot: slot[0] > self.frame))
        copies = head.copies | _renamed(frozenset(pair for pair in b.copies if pair <= outside), own)
        grown = (sharing, copies) != (head.sharing, head.copies)
        head.sharing, head.copies = sharing, copies
        b.sharing = sharing
        return grown

    def _after(
        self,
        bound: list[str],
        before: Environment,
        results: dict[str, Scalar],
        head: Head,
        targets: list[str],
        target: str,
        location: Location | None,
        arrays: frozenset[str],
    ) -> None:
        """What names mean after the loop."""
        b, env = self.builder, self.environment
        b.location = location
        for name in bound:
            if name in results:
                typed, alias = head.scalars[name]
                left = left_behind(alias, b.loops, b.fixed)
                env[name] = replace(results[name], alias=left if typed.weight else None)
                if name in head.dynamic:
                    b.dynamic |= {n for e in expressions_of(results[name]) for n in free_names(e)}
            elif name in head.unset:
                env[name] = head.unset[name]
            elif before.get(name) is None:
                env[name] = Unset(
                    f"the loop over {target} gives it one only if it runs",
                    f"give {name} a value before the loop", b.location,
                )  # fmt: skip
            elif isinstance(before[name], Unset):
                env[name] = before[name]
            elif isinstance(before[name], Pending):
                now = env.get(name)
                kept = isinstance(now, View) and now.is_whole() and now.array in arrays
                if not kept and not isinstance(now, (Static, Pending)):
                    what = describe(now) if now is not None else "nothing"
                    env[name] = Unset(f"it is {what} of an iteration", "store what is returned, and leave by break", location)
            # arrays and known values are what they were
        for name in (n for n in targets if n not in results):
            env[name] = Unset(
                "it is the variable of a loop that has ended, and has one only if the loop ran",
                f"give {name} a value before the loop", b.location,
            )  # fmt: skip


def _renamed(copies: frozenset[frozenset[str]], names: dict[str, str]) -> frozenset[frozenset[str]]:
    """Pairs of arrays, by other names."""
    return frozenset(frozenset(names.get(array, array) for array in pair) for pair in copies)


def _nothing(like: Scalar) -> Scalar:
    """A value in place of `like` for paths where nothing reads it."""
    zero = cast(Const(0, INT64), like.typed.register)
    return replace(like, expr=zero)


def _pairs(one: Value | None, other: Value | None) -> list[tuple[Value, Value]] | None:
    """The items of two tuples side by side, where they may be merged one by one."""
    if isinstance(one, Pending) and isinstance(other, Tuple):
        return [(one, item) for item in other.items]
    if isinstance(other, Pending) and isinstance(one, Tuple):
        return [(item, other) for item in one.items]
    if isinstance(one, Tuple) and isinstance(other, Tuple) and _alike(one, other):
        return list(zip(one.items, other.items, strict=True))
    return None


def _fits_in_place(result: ScalarType, held: ScalarType) -> None:
    """Raise TypeMismatch where a result cannot be stored in place, as PyTorch does."""
    if CATEGORIES.index(result.category) > CATEGORIES.index(held.category):
        raise TypeMismatch(
            f"a result of {result} cannot be stored in place into {held}",
            remedy="convert the tensor first, or the value",
        )


def _alike(one: Tuple, other: Tuple) -> bool:
    return len(one.items) == len(other.items) and one.mutable == other.mutable


def _restore(environments: list[Environment], old: list[Environment]) -> None:
    for environment, values in zip(environments, old, strict=True):
        environment.clear()
        environment.update(values)


def _changed_in_place(name: str, location: Location | None) -> Unset:
    return Unset(
        "the tensor that it means is changed in place by another name in the loop",
        f"copy it where {name} gets its value, with .clone()",
        location,
        stale=True,
    )
