"""Statements: assignments, loops, branches, returns."""

from __future__ import annotations

import ast
from dataclasses import replace

from weft.errors import TypeMismatch, UndefinedName, UnsupportedSyntax, WeftError
from weft.language import overlaps, precision, sequences, tensors, views
from weft.language.arithmetic import as_type
from weft.language.builder import Builder, Environment
from weft.language.carried import Attempt, Head, nothing
from weft.language.expressions import Evaluator, Inline, binary, rounded
from weft.language.kinds import KindMatters, common_type, converted, distribute
from weft.language.scopes import bound_in
from weft.language.sharing import either
from weft.language.source import Module, Source
from weft.language.values import Computed, Pending, Scalar, Scope, Static, Tuple, Unset, Value, View, describe, one_of
from weft.loops.ir import Const, Load, Merge, Ref, Stmt
from weft.loops.types import CATEGORIES, INT64, ScalarType, Typed

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
        starred = [k for k, t in enumerate(targets) if isinstance(t, ast.Starred)]
        if isinstance(value, (View, Computed)) and value.dims and not starred:
            value = Tuple(views.unpacked(self.builder, value, len(targets)))
        if not isinstance(value, Tuple):
            error = TypeMismatch(f"{describe(value)} cannot be unpacked", remedy="unpack a tuple or a shape, or use subscripts")
            raise self.evaluate.at(error, target)
        items = list(value.items)
        if starred:
            k = starred[0]
            extra = len(items) - len(targets) + 1
            if extra >= 0:
                items = [*items[:k], Tuple(tuple(items[k : k + extra]), mutable=True), *items[k + extra :]]
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
        if isinstance(value, View):
            overlaps.check(self.builder, held, value)
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
                one, other = (nothing(known), known) if isinstance(one, Pending) else (known, nothing(known))
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
            if one.typed == other.typed and len(one.dims) == len(other.dims):
                why = "it is one tensor or another, and only the call tells whether their sizes agree"
                return Unset(why, "assert that they do before (assert a.shape == b.shape), or use two names", b.location)
            return Unset("it is a tensor of another shape or dtype on each branch", "use two names", b.location)
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
        depth, carried, targets = self.depth, set(b.carried), bound_in([stmt.target])

        def turn(item: Value) -> None:
            self.depth += 1
            self._bind(stmt.target, item)
            self.run(stmt.body)
            self.depth -= 1

        while True:
            restore = b.snapshot()
            attempt = Attempt(
                b, self.environment, self.frame, over, ast.unparse(stmt.target), targets, bound_in(stmt.body), head, turn
            )
            try:
                if attempt.holds():
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
