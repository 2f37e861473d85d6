"""Where a function's source is: its syntax tree with true positions, and what its free names mean."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Location, UnsupportedSyntax
from weft.language.exits import Body, without_exits
from weft.language.text import ANONYMOUS, as_def


@dataclass(frozen=True)
class Module:
    """A module that the language knows, by its full name."""

    name: str


@dataclass(frozen=True)
class Known:
    """Something of a module that the language may know, by its full name: `torch.exp`, `builtins.max`."""

    name: str


@dataclass(frozen=True, eq=False)
class Source:
    """A function's syntax tree. `line` and `column` are added to the tree's to get those of the file.

    lookup: what a free name of the function means (a Python object, a Source, a Namespace, a Module or a Known).
    default_values: what the defaults of a function object are, by parameter; None where only a text tells them.
    one_operation: whether it stands for one operator of PyTorch, which rounds once.
    """

    name: str
    file: str
    node: ast.FunctionDef
    lookup: Callable[[str], Any] = field(repr=False)
    line: int = 0
    column: int = 0
    text: str = field(default="", repr=False)
    default_values: Mapping[str, Any] | None = field(default=None, repr=False)
    one_operation: bool = False

    @staticmethod
    def of_text(text: str, name: str | None = None, file: str = "<source>") -> Source:
        """The function `name` (the last one where None) that a text defines. Imports, functions and constants of the
        text are known to it; `torch`, `math` and `F` are where the text defines no such names.
        """
        text = textwrap.dedent(text)
        if file.startswith("<"):
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            where = Location(file, error.lineno or 1, max(0, (error.offset or 1) - 1))
            raise UnsupportedSyntax(
                f"this is not Python: {error.msg}", location=where, remedy="correct the syntax"
            ) from None
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        chosen = name if name is not None else next(reversed(functions), None)
        if chosen is None or chosen not in functions:
            what = f"a function {name}" if name else "a function"
            raise UnsupportedSyntax(f"the text defines no {what.removeprefix('a ')}", remedy="write it with def")
        names = _TextNames(tree, file, text)
        return names.function(chosen)

    def names(self) -> tuple[str, ...]:
        """The names that the function may read from outside, in order, each once."""
        loads = (n.id for n in ast.walk(self.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return tuple(dict.fromkeys(loads))

    def location(self, node: ast.AST) -> Location:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", None)
        end_column = end + self.column if end is not None and end_line == line else None
        return Location(self.file, line + self.line, column + self.column, end_column)

    @functools.cached_property
    def body(self) -> Body:
        """The statements that the function executes, without break, continue and early returns."""
        return without_exits(self.node)

    def inner(self, node: ast.FunctionDef | ast.Lambda) -> Source:
        """A function that is defined inside this one. A lambda is a def that returns its expression."""
        name = node.name if isinstance(node, ast.FunctionDef) else ANONYMOUS
        return Source(name, self.file, as_def(node), self.lookup, self.line, self.column, self.text)

    @property
    def where(self) -> Location:
        """The line of the def."""
        where = self.location(self.node)
        return Location(where.file, where.line, where.column, where.column + len("def ") + len(self.name))

    @property
    def parameters(self) -> tuple[ast.arg, ...]:
        return (*self.node.args.posonlyargs, *self.node.args.args, *self.node.args.kwonlyargs)

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """The default of each parameter that has one, as it is written."""
        arguments = self.node.args
        positional = (*arguments.posonlyargs, *arguments.args)
        count = len(arguments.defaults)
        found = {p.arg: d for p, d in zip(positional[len(positional) - count :], arguments.defaults, strict=True)}
        found |= {p.arg: d for p, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
        return found


def plain_function(value: Any) -> types.FunctionType | None:
    """The plain Python function behind a value: itself, or the `.py` of a kernel; None where there is none."""
    if isinstance(value, types.FunctionType):
        return value
    if isinstance(value, types.ModuleType):
        return None
    inner = getattr(value, "py", None)
    return inner if isinstance(inner, types.FunctionType) else None


@dataclass(frozen=True)
class _TextNames:
    """Names of a text: what its module level imports, defines and sets to constants. Nothing of it is executed."""

    tree: ast.Module
    file: str
    text: str
    usual: Mapping[str, Module] = field(
        default_factory=lambda: {
            "torch": Module("torch"),
            "math": Module("math"),
            "F": Module("torch.nn.functional"),
        }
    )

    def function(self, name: str) -> Source:
        node = next(n for n in reversed(self.tree.body) if isinstance(n, ast.FunctionDef) and n.name == name)
        segment = ast.get_source_segment(self.text, node) or ""
        return Source(name, self.file, node, self, text=segment)

    def __call__(self, name: str) -> Any:
        for node in reversed(self.tree.body):
            match node:
                case ast.FunctionDef() if node.name == name:
                    return self.function(name)
                case ast.Import(names=aliases):
                    for alias in aliases:
                        if (alias.asname or alias.name.split(".")[0]) == name:
                            return Module(alias.name if alias.asname else name)
                case ast.ImportFrom(module=str() as module, names=aliases, level=0):
                    for alias in aliases:
                        if (alias.asname or alias.name) == name:
                            full = f"{module}.{alias.name}"
                            return Module(full) if full == "torch.nn.functional" else Known(full)
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    try:
                        return ast.literal_eval(value)
                    except ValueError:
                        return Known(f"{self.file}.{name}")
        if name in self.usual:
            return self.usual[name]
        if hasattr(builtins, name):
            return Known(f"builtins.{name}")
        raise KeyError(name)


# ---------------------------------------------------------------- what is known of a module


@dataclass(frozen=True, eq=False)
class Namespace:
    """The attributes that a function may read of a user's module, object or class."""

    name: str
    members: Mapping[str, Any] = field(repr=False)
