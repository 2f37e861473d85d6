"""A function's parameters and results, read from its syntax tree alone: what they are and which are written."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from weft.errors import Location, UnsupportedSyntax
from weft.language.capture import source_of
from weft.language.scopes import bound_in
from weft.language.source import Known, Module, Namespace, Source, plain_function

Kind = Literal["tensor", "int", "float", "bool", "number"]

_SIZED = frozenset(["empty", "zeros", "ones", "full", "new_empty", "new_zeros", "new_ones", "new_full"])
# Functions of torch that take a number where others of torch take a tensor.
_TAKES_NUMBERS = _SIZED | frozenset(["where", "arange", "tensor", "as_tensor"])
# Functions of Python that give the items of their arguments.
_OVER = frozenset(["enumerate", "zip", "reversed", "list", "tuple"])
# Attributes and methods whose value is (a view of) the tensor itself.
_VIEWS = frozenset(
    (
        *("T", "mT", "permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "unsqueeze", "squeeze"),
        *("expand", "expand_as", "view", "view_as", "reshape", "reshape_as", "flatten", "ravel", "unflatten"),
        *("narrow", "select", "unbind", "split", "split_with_sizes", "chunk"),
        *("contiguous", "to", "float", "double", "cfloat", "cdouble"),
        *("real", "imag", "conj", "resolve_conj", "view_as_real", "view_as_complex"),
    )
)


@dataclass(frozen=True)
class Parameter:
    """default: the value of a constant default; `has_default` tells whether there is any."""

    name: str
    kind: Kind
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True)
class Stored:
    """A statement that stores into a parameter. view: the name by which, where that is not the parameter's own. afresh: the
    assignment that would make a new value instead, where the statement is `name += ...`.
    """

    parameter: str
    text: str
    location: Location
    view: str = ""
    afresh: str = ""

    def evidence(self) -> str:
        seen = f", where {self.view} is a view of {self.parameter}" if self.view else ""
        return f"it writes into {self.parameter} at {self.location.file}:{self.location.line}: {self.text}{seen}"


@dataclass(frozen=True)
class Signature:
    """parameters: in order. written: parameters that are stored into. results: for each thing returned, the parameter
    that it is, or None where it is something new. name, location: of the function. objects: parameters that are written or
    given back where they are tensors, so that it matters which tensor they are. stores: for each of `written`, the first
    statement that stores into it.
    """

    parameters: tuple[Parameter, ...]
    written: frozenset[str]
    results: tuple[str | None, ...]
    name: str = ""
    location: Location | None = None
    objects: frozenset[str] = frozenset()
    stores: tuple[Stored, ...] = ()

    def evidence_of_writes(self) -> list[str]:
        """Of each parameter that is stored into: by which statement."""
        told = {s.parameter: s.evidence() for s in self.stores}
        return [told.get(name, f"it writes into {name}") for name in sorted(self.written)]

    def without_writes(self) -> str:
        """The remedy where no parameter may be stored into."""
        afresh = [s.afresh for s in self.stores if s.afresh]
        new = ["write to a new tensor (y = torch.empty_like(x))"] if len(afresh) < len(self.written) else []
        return ", ".join([*new, *(f"write {text}" for text in afresh)])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    def __getitem__(self, name: str) -> Parameter:
        return next(p for p in self.parameters if p.name == name)


def read_signature(function: Any) -> Signature:
    """The signature of a function object, a kernel, a Source or a text. Reads the syntax tree only."""
    source = source_of(function)
    check_parameters(source)
    return _read(source, _uses(source, ()))


def check_parameters(source: Source) -> None:
    """Raise UnsupportedSyntax where a function takes `*args` or `**kwargs`."""
    arguments = source.node.args
    for extra, stars in ((arguments.vararg, "*"), (arguments.kwarg, "**")):
        if extra is not None:
            raise UnsupportedSyntax(
                f"{source.name} takes {stars}{extra.arg}",
                location=source.location(extra),
                remedy="name each parameter",
            )


def _uses(source: Source, calls: tuple[ast.FunctionDef, ...]) -> _Uses:
    uses = _Uses(source, (*calls, source.node))
    uses.block(source.node.body)
    return uses


def _read(source: Source, uses: _Uses) -> Signature:
    defaults = source.defaults
    parameters = []
    for parameter in source.parameters:
        name = parameter.arg
        node = defaults.get(name)
        has_default = node is not None if source.default_values is None else name in source.default_values
        default = _default(source, name, node)
        kind = _annotated(parameter.annotation) or uses.kinds.get(name) or _kind_of_default(default) or "number"
        parameters.append(Parameter(name, kind, has_default, default))
    tensors = {p.name for p in parameters if p.kind == "tensor"}
    names = {p.name for p in parameters}
    written = frozenset(names & (uses.stored | (uses.augmented & tensors)))
    results = tuple(r if r in tensors else None for r in uses.results or ())
    objects = frozenset(names & {*uses.stored, *uses.augmented, *uses.given_back})
    stores = tuple(uses.places[name] for name in sorted(written))
    return Signature(tuple(parameters), written, results, source.name, source.where, objects, stores)


def _annotated(node: ast.expr | None) -> Kind | None:
    if node is None:
        return None
    text = ast.unparse(node).strip("'\"")
    if "Tensor" in text:
        return "tensor"
    kinds: tuple[Kind, ...] = ("bool", "int", "float")
    return next((k for k in kinds if text == k or text.startswith(f"{k} |")), None)


def _kind_of_default(value: Any) -> Kind | None:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else None


def _default(source: Source, name: str, node: ast.expr | None) -> Any:
    """The value of a parameter's default: what Python made of it, or what a text says, a literal or a number."""
    if source.default_values is not None:
        return source.default_values.get(name)
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        value = _lookup(source, node)
        return value if isinstance(value, (bool, int, float)) else None


def _lookup(source: Source, node: ast.expr) -> Any:
    """What a name, or an attribute of a module, is outside the function; None where it is nothing known."""
    if isinstance(node, ast.Name):
        try:
            return source.lookup(node.id)
        except KeyError:
            return None
    if isinstance(node, ast.Attribute):
        outer = _lookup(source, node.value)
        if isinstance(outer, (Module, Known)):
            return Known(f"{outer.name}.{node.attr}")
        if isinstance(outer, Namespace):
            return outer.members.get(node.attr)
        if outer is None or isinstance(outer, Source):
            return None
        return getattr(outer, node.attr, None)
    return None


def _names(node: ast.expr) -> Iterator[str]:
    """Names in index arithmetic: not those inside a subscript's base or a call."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, (ast.Subscript, ast.Call, ast.Attribute)):
        return
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _names(child)


# Among the parameters that a name may be: something new, or a part of one.
NEW = ""


class _Uses:
    """How a function uses its parameters.

    roots: the parameters that a name may be, or be a view of, at this point; with NEW where it may be something else
    than a parameter itself.
    """

    def __init__(self, source: Source, calls: tuple[ast.FunctionDef, ...]) -> None:
        self.source, self.calls = source, calls
        self.roots: dict[str, frozenset[str]] = {p.arg: frozenset((p.arg,)) for p in source.parameters}
        self.kinds: dict[str, Kind] = {}
        self.stored: set[str] = set()
        self.augmented: set[str] = set()
        self.places: dict[str, Stored] = {}  # where each of these is stored into first
        self.local = frozenset(bound_in(source.node.body))
        self.inner: dict[str, Source] = {}  # functions defined inside
        self.tuples: dict[str, ast.expr] = {}  # names of tuples that are written out
        self.results: tuple[str | None, ...] | None = None
        self.given_back: frozenset[str] = frozenset((NEW,))

    # ------------------------------------------------------------ statements

    def block(self, statements: list[ast.stmt]) -> None:
        for stmt in statements:
            match stmt:
                case ast.FunctionDef(name=name):
                    self.inner[name] = self.source.inner(stmt)
                    self.inside(stmt)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                    self.inner[name] = self.source.inner(value)
                    self.roots.pop(name, None)
                    self.expr(value)
                case ast.Assign(targets=targets, value=value):
                    self.expr(value)
                    for target in targets:
                        self.bind(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.expr(value)
                    self.bind(target, value)
                case ast.AugAssign(target=target, value=value):
                    self.expr(value)
                    self.expr(target)
                    if isinstance(target, ast.Name):
                        self.augmented |= self.writes(stmt, target)
                    else:
                        self.stored |= self.writes(stmt, target)
                case ast.For(target=target, iter=over, body=body, orelse=orelse):
                    self.expr(over)
                    for _ in range(2):  # what one iteration leaves is what the next one finds
                        before = dict(self.roots)
                        self.over(target, over)
                        self.block([*body, *orelse])
                        self.join(before)
                case ast.If(test=test, body=body, orelse=orelse):
                    self.expr(test)
                    before = dict(self.roots)
                    self.block(body)
                    then, self.roots = self.roots, before
                    self.block(orelse)
                    self.join(then)
                case ast.Return(value=value):
                    if value is not None:
                        self.expr(value)
                        self.returns(self.returned(value))
                        items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
                        self.given_back |= frozenset(r for item in items for r in self.root(item))
                case _:
                    for child in ast.iter_child_nodes(stmt):
                        if isinstance(child, ast.expr):
                            self.expr(child)
                    self.block([child for child in ast.iter_child_nodes(stmt) if isinstance(child, ast.stmt)])

    def inside(self, node: ast.FunctionDef) -> None:
        """What a function that is defined here does to the parameters, which it may read by their names."""
        roots, results, given_back = dict(self.roots), self.results, self.given_back
        for parameter in self.source.inner(node).parameters:
            self.roots[parameter.arg] = frozenset((NEW,))
        self.block(node.body)
        self.roots, self.results, self.given_back = roots, results, given_back

    def over(self, target: ast.expr, node: ast.expr) -> None:
        """The names of a loop's target may be views of what the loop runs over: its rows."""
        match self.python_call(node), node, target:
            case "zip", ast.Call(args=args), ast.Tuple(elts=targets) if self.pairs(targets, args):
                for t, arg in zip(targets, args, strict=True):
                    self.over(t, arg)
            case "enumerate", ast.Call(args=[arg, *_]), ast.Tuple(elts=[number, t]):
                self.bind(number, None)
                self.over(t, arg)
            case "reversed" | "list" | "tuple", ast.Call(args=[arg]), _:
                self.over(target, arg)
            case _:
                self.bind(target, None, self.rows(node))

    def rows(self, node: ast.expr) -> frozenset[str]:
        """The parameters that the items of what a loop runs over may be views of."""
        if self.python_call(node) in _OVER and isinstance(node, ast.Call):
            return frozenset((NEW,)).union(*map(self.rows, node.args))
        if isinstance(node, ast.Name):
            self.is_tensor(node)
        return self.root(node) | {NEW}

    def python_call(self, node: ast.expr) -> str:
        """The name of Python's own function that an expression calls."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id in self.local:
            return ""
        name = self.name_of(_lookup(self.source, node.func), node.func)
        return name.removeprefix("builtins.") if name.startswith("builtins.") else ""

    @staticmethod
    def pairs(targets: list[ast.expr], values: list[ast.expr]) -> bool:
        """Whether each of some targets takes what stands at its place."""
        return len(targets) == len(values) and not any(isinstance(e, ast.Starred) for e in (*targets, *values))

    def join(self, other: dict[str, frozenset[str]]) -> None:
        for name, roots in other.items():
            self.roots[name] = self.roots.get(name, frozenset((NEW,))) | roots

    def bind(self, target: ast.expr, value: ast.expr | None, roots: frozenset[str] | None = None) -> None:
        """roots: the parameters that the value may be, where no expression has it."""
        if roots is None:
            roots = self.root(value) if value is not None else frozenset((NEW,))
        for t, v, found in [*self.parts(target, value, roots)]:
            match t:
                case ast.Name(id=name):
                    self.tuples.pop(name, None)
                    if isinstance(v, (ast.Tuple, ast.List)):
                        self.tuples[name] = v
                    self.roots[name] = found
                case ast.Subscript():
                    self.expr(t)
                    self.stored |= self.writes(t, t)

    def parts(
        self, target: ast.expr, value: ast.expr | None, roots: frozenset[str]
    ) -> Iterator[tuple[ast.expr, ast.expr | None, frozenset[str]]]:
        """What an assignment binds, each with its value, where that is written out, and the parameters that it may be."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values: list[ast.expr | None] = [None] * len(targets)
                if isinstance(value, ast.Tuple) and self.pairs(targets, value.elts):
                    values = [*value.elts]
                for t, v in zip(targets, values, strict=True):
                    yield from self.parts(t, v, self.root(v) if v is not None else roots | {NEW})
            case ast.Starred(value=inner):
                yield from self.parts(inner, None, roots | {NEW})
            case _:
                yield target, value, roots

    def returns(self, results: tuple[str | None, ...]) -> None:
        """Note the results of one of the function's returns: a parameter where all return it."""
        before = self.results if self.results is not None and len(self.results) == len(results) else results
        self.results = tuple(a if a == b else None for a, b in zip(before, results, strict=True))

    def returned(self, value: ast.expr) -> tuple[str | None, ...]:
        if isinstance(value, ast.Name):
            value = self.tuples.get(value.id, value)
        if isinstance(value, ast.Constant) and value.value is None:
            return ()
        if isinstance(value, ast.Call):
            helper = self.helper(value)
            if helper is not None:
                results = _uses(helper, self.calls).results or ()
                given = _given(helper, value)
                return tuple(self.identity(given[r]) if r in given else None for r in results)
        items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        return tuple(self.identity(item) for item in items)

    def identity(self, node: ast.expr) -> str | None:
        """The parameter that an expression is. A tensor of pairs, seen as complex numbers, stands for these."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.view_as_complex":
            node = node.args[0]
        roots = self.roots.get(node.id, frozenset()) if isinstance(node, ast.Name) else frozenset()
        return next(iter(roots)) if len(roots) == 1 and NEW not in roots else None

    # ------------------------------------------------------------ expressions

    def writes(self, node: ast.stmt | ast.expr, target: ast.expr, within: Stored | None = None) -> frozenset[str]:
        """The parameters that a statement stores into by a target. within: the store of the helper that it calls."""
        base = target
        while isinstance(base, (ast.Subscript, ast.Attribute)):
            base = base.value
        name = base.id if isinstance(base, ast.Name) else ast.unparse(base)
        place = within
        if place is None:
            text, afresh = ast.unparse(node), ""
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                afresh = ast.unparse(ast.Assign([node.target], ast.BinOp(_loaded(node.target), node.op, node.value), lineno=0))
            elif isinstance(node, ast.Subscript):
                text += " = ..."
            place = Stored("", text, self.source.location(node), "", afresh)
        roots = self.root(target)
        for root in roots - {NEW}:
            view = place.view or (place.parameter or name)
            self.places.setdefault(root, replace(place, parameter=root, view="" if view == root else view))
        return roots

    def root(self, node: ast.expr) -> frozenset[str]:
        """The parameters that an expression may be a view of."""
        match node:
            case ast.Name(id=name):
                free = frozenset() if name in self.local else frozenset((name,))
                return self.roots.get(name, free)
            case ast.Subscript(value=inner):
                return self.root(inner) | {NEW}
            case ast.Attribute(value=inner, attr=attr) if attr in _VIEWS:
                return self.root(inner) | {NEW}
            case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args) if attr in _VIEWS:
                if _is_torch(self.source, inner):
                    inner = args[0] if args else inner
                return self.root(inner) | {NEW}
            case ast.Call():
                return self.root_of_call(node)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return frozenset(r for item in items for r in self.root(item)) | {NEW}
            case ast.IfExp(body=a, orelse=b):
                return self.root(a) | self.root(b)
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                return self.root(inner)
            case ast.ListComp(elt=item, generators=generators):
                before = dict(self.roots)
                for generator in generators:
                    self.over(generator.target, generator.iter)
                found, self.roots = self.root(item) | {NEW}, before
                return found
        return frozenset((NEW,))

    def root_of_call(self, node: ast.Call) -> frozenset[str]:
        """The parameters that what a helper returns may be, or be a view of."""
        helper = self.helper(node)
        found: frozenset[str] = frozenset((NEW,))
        if helper is not None:
            uses, given = _uses(helper, self.calls), _given(helper, node)
            if uses.results is not None and len(uses.results) == 1 and uses.results[0] in given:
                return self.root(given[uses.results[0]])
            for _, value in self.seen_by(helper, given, uses.given_back):
                found |= self.root(value)
        return found

    def mark(self, names: frozenset[str], kind: Kind) -> None:
        for name in names - {NEW}:
            if self.kinds.get(name) != "tensor":
                self.kinds[name] = kind

    def is_tensor(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            self.mark(self.roots.get(node.id, frozenset()), "tensor")

    def is_int(self, node: ast.expr) -> None:
        for name in _names(node):
            self.mark(self.roots.get(name, frozenset()), "int")

    def expr(self, node: ast.expr) -> None:
        for inner in ast.walk(node):
            match inner:
                case ast.Subscript(value=base, slice=index):
                    self.is_tensor(base)
                    self.is_int(index)
                case ast.Attribute(value=base):
                    self.is_tensor(base)
                case ast.BinOp(op=ast.MatMult(), left=left, right=right):
                    self.is_tensor(left)
                    self.is_tensor(right)
                case ast.Call():
                    self.call(inner)

    def call(self, node: ast.Call) -> None:
        helper = self.helper(node)
        if helper is not None:
            self.helper_call(helper, node)
            return
        target = _lookup(self.source, node.func)
        name = self.name_of(target, node.func)
        last = name.split(".")[-1]
        if name.endswith("range"):
            for arg in node.args:
                self.is_int(arg)
        elif last in _SIZED:
            sizes = node.args[:1] if name.endswith("full") else node.args
            for arg in sizes:
                self.is_int(arg)
        elif (
            name == "builtins.len"
            and node.args
            or name.startswith("torch.")
            and name.split(".")[-1] not in _TAKES_NUMBERS
            and node.args
        ):
            self.is_tensor(node.args[0])
        method = isinstance(node.func, ast.Attribute) and not name.startswith("torch.")
        if isinstance(node.func, ast.Attribute) and method and node.func.attr.endswith("_"):
            self.stored |= self.writes(node, node.func.value)

    def name_of(self, target: Any, node: ast.expr) -> str:
        """The full name of a function of Python, math or torch."""
        if isinstance(target, (Known, Module)):
            return target.name
        module = getattr(target, "__module__", None) or ""
        own = getattr(target, "__name__", "")
        if module.startswith("torch") or (isinstance(node, ast.Attribute) and _is_torch(self.source, node.value)):
            return f"torch.{own}"
        if isinstance(node, ast.Attribute):
            return node.attr
        return f"{module}.{own}"

    def helper(self, node: ast.Call) -> Source | None:
        """The user's own function that a call is of; None for others, and for one that is being read already."""
        if isinstance(node.func, ast.Name) and node.func.id in self.local:
            inner = self.inner.get(node.func.id)
            if inner is None or any(inner.node is n for n in self.calls):
                return None
            same = (ast.dump(inner.node) == ast.dump(n) for n in self.calls if n.name == inner.node.name)
            return None if any(same) else inner
        value = _lookup(self.source, node.func)
        if isinstance(value, Source):
            source = value
        else:
            plain = plain_function(value)
            if plain is None or (plain.__module__ or "").split(".")[0] in ("torch", "math"):
                return None
            source = source_of(plain)
        same = (ast.dump(source.node) == ast.dump(n) for n in self.calls if n.name == source.node.name)
        return None if any(same) else source

    def helper_call(self, helper: Source, node: ast.Call) -> None:
        uses = _uses(helper, self.calls)
        signature = _read(helper, uses)
        given = _given(helper, node)
        for name, value in given.items():
            kind = signature[name].kind
            if kind == "tensor":
                self.is_tensor(value)
            elif kind == "int":
                self.is_int(value)
        for name, value in self.seen_by(helper, given, uses.stored):
            self.stored |= self.writes(node, value, uses.places[name])
        for name, value in self.seen_by(helper, given, uses.augmented):
            self.augmented |= self.writes(node, value, uses.places[name])

    def seen_by(self, helper: Source, given: dict[str, ast.expr], names: Iterable[str]) -> Iterator[tuple[str, ast.expr]]:
        """What some names of a helper are here: arguments of a call of it, and what a function that is defined inside reads by
        the names around it.
        """
        own = {p.arg for p in helper.parameters}
        for name in names:
            if name in given:
                yield name, given[name]
            elif name in self.roots and name not in own:
                yield name, ast.Name(name, ast.Load())


def _given(helper: Source, node: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a call of a helper by its parameters."""
    names = [p.arg for p in helper.parameters]
    given = dict(zip(names, node.args, strict=False))
    return given | {k.arg: k.value for k in node.keywords if k.arg in names and k.arg is not None}


def _loaded(name: ast.Name) -> ast.Name:
    return ast.Name(name.id, ast.Load())


def _is_torch(source: Source, node: ast.expr) -> bool:
    value = _lookup(source, node)
    return (getattr(value, "__name__", None) or getattr(value, "name", "") or "").split(".")[0] == "torch"
