"""What a function reads from outside: its globals, closure, helpers and their defaults, as they are at one moment.

A `Capture` is all that the meaning of a function depends on. The language reads nothing else, so that what was compiled
from a capture stays true exactly as long as its watches hold.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import hashlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from weft.errors import UnsupportedSyntax, WeftError
from weft.language.source import Known, Module, Namespace, Source, plain_function
from weft.language.text import text_of

# In place of the value of a name that has none.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()

# The attribute of a function that stands for one operator of PyTorch.
ONE_OPERATION = "__weft_one_operation__"

# Modules whose functions the language knows by name; what stands behind them is not the user's to change.
_OUTSIDE = ("torch", "math", "builtins")


@dataclass(frozen=True, eq=False)
class Watch:
    """A place that was read, and what was there.

    holder: a dict (name: the key), a cell, a list (value: a tuple of its items), or an object (name: the attribute).
    value: MISSING where there was nothing. label: what the user calls the place.
    """

    holder: Any
    name: str
    value: Any
    label: str

    @property
    def simple(self) -> bool:
        """Whether the place is the entry of a dict, a cell, or a function's own attribute."""
        return isinstance(self.holder, (dict, types.CellType, types.FunctionType))

    def holds(self) -> bool:
        """Whether the same object is there."""
        holder, value = self.holder, self.value
        if isinstance(holder, list):
            return len(holder) == len(value) and all(a is b for a, b in zip(holder, value, strict=True))
        return _at(holder, self.name) is value


def _at(holder: Any, name: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(name, MISSING)
    if isinstance(holder, types.CellType):
        try:
            return holder.cell_contents
        except ValueError:  # the variable has no value yet
            return MISSING
    return getattr(holder, name, MISSING)


@dataclass(frozen=True, eq=False)
class Captured:
    """A function's names outside, by what they meant; a `Source.lookup`."""

    names: Mapping[str, Any] = field(repr=False)

    def __call__(self, name: str) -> Any:
        value = self.names.get(name)
        if value is MISSING:
            raise KeyError(name)
        if name not in self.names and hasattr(builtins, name):  # no text reads it: the language writes it itself
            return Known(f"builtins.{name}")
        return self.names[name]


@dataclass(frozen=True, eq=False)
class Capture:
    """source: the function, whose names mean what they meant when it was captured. watches: what that was read from.
    reads: of the function and of each that it reaches, the names and attributes that it reads from outside.
    """

    source: Source
    watches: tuple[Watch, ...]
    reads: tuple[tuple[types.FunctionType, tuple[tuple[str, ...], ...]], ...] = ()

    @cached_property
    def identity(self) -> str:
        """Equal for captures of one meaning, in another process too."""
        return fingerprint(self.source)

    def changed(self) -> tuple[str, ...]:
        """What the user calls the places that hold something else now."""
        return tuple(dict.fromkeys(w.label for w in self.watches if not w.holds()))


def capture(function: types.FunctionType) -> Capture:
    """What a function and those that it calls are now. Raises UnsupportedSyntax or SourceMismatch for its own text."""
    attributes: frozenset[str] = frozenset()
    while True:
        reader = _Reader(attributes)
        source = reader.source(function)
        if not reader.whole_modules or reader.attributes <= attributes:
            return Capture(source, tuple(reader.watches.values()), tuple(reader.reads))
        attributes |= reader.attributes  # of a module that goes by another name, any attribute may be read


def source_of(function: Any, name: str | None = None) -> Source:
    """The source of a function object, of a kernel (its `.py`), or of a text that defines a function. What a function
    object reads from outside is captured as it is now.

    name: which function of a text (the last one where None). Raises UnsupportedSyntax where no source is found,
    SourceMismatch where what is found is not what Python runs.
    """
    if isinstance(function, Source):
        return function
    if isinstance(function, str):
        return Source.of_text(function, name)
    plain = plain_function(function)
    if plain is None:
        raise UnsupportedSyntax(
            f"{function!r} is not a Python function", remedy="pass a function written with def, or its source text"
        )
    return capture(plain).source


class _Reader:
    """Reads a function and all that it reaches. attributes: what may be read of a module that is used as a value."""

    def __init__(self, attributes: frozenset[str]) -> None:
        self.of_any = attributes
        self.attributes: frozenset[str] = frozenset()
        self.whole_modules = False
        self.watches: dict[tuple[int, str], Watch] = {}
        self.reads: list[tuple[types.FunctionType, tuple[tuple[str, ...], ...]]] = []
        self._sources: dict[types.FunctionType, Source] = {}

    def read(self, holder: Any, name: str, label: str) -> Any:
        """What is at a place, which is watched from now on."""
        known = self.watches.get((id(holder), name))
        if known is None:
            known = self.watches[id(holder), name] = Watch(holder, name, _at(holder, name), label)
        return known.value

    def source(self, function: types.FunctionType) -> Source:
        if function in self._sources:
            return self._sources[function]
        text = text_of(function)
        own = text.node.name if function.__name__ == "<lambda>" else function.__name__
        self.read(function, "__code__", own)
        names: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        once = bool(getattr(function, ONE_OPERATION, False))
        source = Source(own, text.file, text.node, Captured(names), text.line, text.column, text.text, defaults, once)
        self._sources[function] = source  # now: it may call itself
        defaults |= self._defaults(function, source)
        reads = Reads(text.node, frozenset((*text.code.co_varnames, *text.code.co_cellvars)))
        self.attributes |= reads.attributes
        self.reads.append((function, tuple((name, *path) for name, paths in reads.names.items() for path in paths)))
        for name, paths in reads.names.items():
            value = self._outside(function, name)
            names[name] = self._frozen(value, paths, name)
        return source

    def _defaults(self, function: types.FunctionType, source: Source) -> Iterator[tuple[str, Any]]:
        """The defaults of the parameters, which Python evaluated when it came to the def."""
        positional = (*source.node.args.posonlyargs, *source.node.args.args)
        values = self.read(function, "__defaults__", source.name) or ()
        for parameter, value in zip(positional[len(positional) - len(values) :], values, strict=True):
            yield parameter.arg, self._frozen(value, {()}, parameter.arg)
        by_name = self.read(function, "__kwdefaults__", source.name) or {}
        for parameter in source.node.args.kwonlyargs:
            if parameter.arg in by_name:
                value = self.read(by_name, parameter.arg, parameter.arg)
                yield parameter.arg, self._frozen(value, {()}, parameter.arg)

    def _outside(self, function: types.FunctionType, name: str) -> Any:
        """What a name means in a function: its closure's, its module's, Python's own."""
        code = function.__code__
        if name in code.co_freevars and function.__closure__ is not None:
            return self.read(function.__closure__[code.co_freevars.index(name)], "", name)
        value = self.read(function.__globals__, name, name)
        return Known(f"builtins.{name}") if value is MISSING and hasattr(builtins, name) else value

    def _frozen(self, value: Any, paths: set[tuple[str, ...]], label: str) -> Any:
        """A value as it is now. paths: the attributes that are read from it."""
        if isinstance(value, list):
            self.watches.setdefault((id(value), ""), Watch(value, "", tuple(value), label))
        if isinstance(value, (tuple, list)):
            return tuple(self._frozen(item, {()}, label) for item in value)
        if isinstance(value, types.ModuleType):
            return value if value.__name__.split(".")[0] in _OUTSIDE else self._module(value, paths, label)
        if _is_record(value):
            return self._record(value, paths, label)
        function = plain_function(value)
        if function is not None and (function.__module__ or "").split(".")[0] not in _OUTSIDE:
            if function is not value:  # a kernel is what its `.py` is
                self.read(value, "py", label)
            try:
                return self.source(function)
            except WeftError:
                return value  # told where it is called
        return value

    def _module(self, module: types.ModuleType, paths: set[tuple[str, ...]], label: str) -> Namespace:
        members = {}
        for name, inner in self._wanted(paths).items():
            place = f"{label}.{name}"
            value = self.read(vars(module), name, place)
            if value is MISSING:  # perhaps the module's own __getattr__ knows it
                value = self.read(module, name, place)
            if value is not MISSING:
                members[name] = self._frozen(value, inner, place)
        return Namespace(module.__name__, members)

    def _record(self, record: Any, paths: set[tuple[str, ...]], label: str) -> Namespace:
        members = {}
        for name, inner in self._wanted(paths).items():
            if _holds(record, name):
                place = f"{label}.{name}"
                members[name] = self._frozen(self.read(record, name, place), inner, place)
        return Namespace(label, members)

    def _wanted(self, paths: set[tuple[str, ...]]) -> dict[str, set[tuple[str, ...]]]:
        """The attributes that are read of what these paths are read of, and what is read of each."""
        wanted: dict[str, set[tuple[str, ...]]] = {}
        for path in paths:
            if path:
                wanted.setdefault(path[0], set()).add(path[1:])
            else:
                self.whole_modules = True
                for name in self.of_any:
                    wanted.setdefault(name, set()).add(())
        return wanted


def _is_record(value: Any) -> bool:
    """Whether a value is an object, or a class, of the user's, whose attributes are what it holds: no number, no container,
    no function, nothing of PyTorch's, and no member of an enumeration, which is one by being itself.
    """
    own = value if isinstance(value, type) else type(value)
    builtin = int, float, complex, str, bytes, tuple, list, dict, set, frozenset, enum.Enum
    modules = {base.__module__.split(".")[0] for base in own.__mro__ if base is not object}
    if issubclass(own, builtin) or modules & {*_OUTSIDE, "weft"}:
        return False
    if isinstance(type(value).__getattribute__, types.FunctionType):
        return False
    if not isinstance(value, type) and (callable(value) or hasattr(own, "__bool__") or hasattr(own, "__len__")):
        return False
    return hasattr(value, "__dict__") or dataclasses.is_dataclass(value)


def _holds(record: Any, name: str) -> bool:
    """Whether an attribute is held by an object, or by a class of it, and not computed."""
    own = record if isinstance(record, type) else type(record)
    entry = next((vars(base)[name] for base in own.__mro__ if name in vars(base)), MISSING)
    if entry is MISSING:
        return name in getattr(record, "__dict__", {})
    return isinstance(entry, types.MemberDescriptorType) or not hasattr(type(entry), "__get__")


class Reads:
    """The names that the body of a function reads and does not bind, each with the attributes that are read of it.

    names: for each name the paths of attributes, the empty one where the name is used as it is. attributes: of anything.
    """

    def __init__(self, node: ast.FunctionDef, bound: frozenset[str]) -> None:
        self.names: dict[str, set[tuple[str, ...]]] = {}
        self.attributes: frozenset[str] = frozenset()
        for stmt in node.body:
            self._visit(stmt, bound)

    def _visit(self, node: ast.AST, bound: frozenset[str]) -> None:
        path: list[str] = []
        expr = node
        while isinstance(expr, ast.Attribute):
            path.append(expr.attr)
            expr = expr.value
        self.attributes |= frozenset(path)
        match expr:
            case ast.Name(id=name, ctx=ast.Load()):
                if name not in bound:
                    self.names.setdefault(name, set()).add(tuple(reversed(path)))
            case ast.AnnAssign(target=target, value=value):
                self._all([target, value] if value is not None else [target], bound)
            case ast.Lambda(args=args, body=body):
                self._all([*args.defaults, *filter(None, args.kw_defaults)], bound)
                self._visit(body, bound | _parameters(args))
            case ast.FunctionDef(args=args, body=statements):
                self._all([*args.defaults, *filter(None, args.kw_defaults)], bound)
                self._all(statements, bound | _parameters(args) | _stored(expr))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._visit(expr.generators[0].iter, bound)
                self._all(ast.iter_child_nodes(expr), bound | _stored(expr))
            case _:
                self._all(ast.iter_child_nodes(expr), bound)

    def _all(self, nodes: Any, bound: frozenset[str]) -> None:
        for node in nodes:
            self._visit(node, bound)


def _parameters(args: ast.arguments) -> frozenset[str]:
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    return frozenset(a.arg for a in every)


def _stored(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


# ---------------------------------------------------------------- fingerprints


def fingerprint(function: Any) -> str:
    """A hash of everything the meaning of a function depends on: its source, the functions it calls, the constants
    of its module and closure that it reads, and where it stands in its file (errors and generated code cite lines).
    Equal in another process for the same function.
    """
    digest = hashlib.sha256()
    told: dict[int, int] = {}

    def add(source: Source) -> None:
        if id(source) in told:
            digest.update(f"again {told[id(source)]}\0".encode())
            return
        told[id(source)] = len(told)
        digest.update(f"{source.file}\0{source.line}\0{source.name}\0{source.text}\0{source.one_operation}\0".encode(errors="backslashreplace"))
        for name, value in (source.default_values or {}).items():
            digest.update(f"default {name}\0".encode())
            add_value(value)
        for name in source.names():
            try:
                value = source.lookup(name)
            except KeyError:
                continue
            digest.update(f"{name}\0".encode())
            add_value(value)

    def add_value(value: Any) -> None:
        if isinstance(value, Source):
            add(value)
        elif isinstance(value, Namespace):
            digest.update(f"{value.name} {len(value.members)}\0".encode())
            for name, member in sorted(value.members.items()):
                digest.update(f"{name}\0".encode())
                add_value(member)
        elif isinstance(value, (tuple, list)):
            digest.update(f"{len(value)} items\0".encode())
            for item in value:
                add_value(item)
        else:
            digest.update(f"{_told(value)}\0".encode())

    add(source_of(function))
    return digest.hexdigest()


def _told(value: Any) -> str:
    """What a value outside the function is, as text that is the same in every process (no addresses)."""
    kind = type(value)
    if isinstance(value, (bool, int, float, str, type(None), Module, Known)):
        return f"{kind.__name__} {value!r}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return str(value)
    return f"{kind.__qualname__} {getattr(value, '__module__', '')} {getattr(value, '__qualname__', '')}"
