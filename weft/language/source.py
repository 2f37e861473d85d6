"""Where a function's source is: its syntax tree with true positions, and what its free names mean."""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import Location, UnsupportedSyntax
from weft.language.exits import Body, without_exits

_MISSING = object()


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

    lookup: what a free name of the function means (a Python object, a Source, a Module or a Known).
    """

    name: str
    file: str
    node: ast.FunctionDef
    lookup: Callable[[str], Any] = field(repr=False)
    line: int = 0
    column: int = 0
    text: str = field(default="", repr=False)

    @staticmethod
    def of(function: Any, name: str | None = None) -> Source:
        """The source of a function object, of a kernel (its `.py`), or of a text that defines a function.

        name: which function of a text (the last one where None). Raises UnsupportedSyntax where no source is found.
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
        return _of_function(plain)

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
        name = node.name if isinstance(node, ast.FunctionDef) else "lambda"
        return Source(name, self.file, _as_def(node), self.lookup, self.line, self.column, self.text)

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
        """The default of each parameter that has one."""
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


def _as_def(node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    if isinstance(node, ast.FunctionDef):
        return node
    result = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.FunctionDef(name="lambda", args=node.args, body=[result], decorator_list=[], returns=None)
    return ast.copy_location(made, node)


def _of_function(function: types.FunctionType) -> Source:
    if hasattr(function, "__wrapped__"):
        raise UnsupportedSyntax(
            f"{function.__qualname__} is wrapped by a decorator",
            evidence=["what the decorator does is not in the function's source"],
            remedy="decorate the function with weft.kernel alone, and apply the other decorator to the kernel",
        )
    if function.__name__ == "<lambda>":
        return _of_lambda(function)
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or function.__code__.co_filename
    except (OSError, TypeError):
        raise _no_source(function) from None
    text = "".join(lines)
    dedented = textwrap.dedent(text)
    column = len(lines[0]) - len(lines[0].lstrip())
    try:
        node = ast.parse(dedented).body[0]
    except (SyntaxError, IndexError):
        node = ast.Pass()
    if not isinstance(node, ast.FunctionDef):
        where = Location(file, first, column)
        raise UnsupportedSyntax(f"{function.__qualname__} is no plain def", location=where, remedy="write it with def")
    return Source(function.__name__, file, node, _FunctionNames(function), first - 1, column, dedented)


def _no_source(function: types.FunctionType) -> UnsupportedSyntax:
    return UnsupportedSyntax(
        f"the source of {function.__qualname__} cannot be found",
        evidence=["weft reads a function's source text"],
        remedy="define the function in a file, or pass its source text",
    )


def _of_lambda(function: types.FunctionType) -> Source:
    """The source of a lambda: the one in its file whose body's code stands where the function's does."""
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        raise _no_source(function) from None
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            body = node.body
            start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
            inside = [(a, c) >= start and (b, d) <= end for a, b, c, d in places if (a, b, c, d) != (a, a, 0, 0)]
            if inside and all(inside):
                found.append(node)
    if len(found) != 1:
        raise _no_source(function)
    segment = ast.get_source_segment(text, found[0]) or ""
    return Source("lambda", code.co_filename, _as_def(found[0]), _FunctionNames(function), text=segment)


@dataclass(frozen=True)
class _FunctionNames:
    """Names of a function object: its closure, then its module, then Python's own."""

    function: types.FunctionType

    def __call__(self, name: str) -> Any:
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__ is not None:
            try:
                return self.function.__closure__[code.co_freevars.index(name)].cell_contents
            except ValueError:  # the variable has no value yet
                raise KeyError(name) from None
        value = self.function.__globals__.get(name, _MISSING)
        if value is _MISSING:
            if hasattr(builtins, name):
                return Known(f"builtins.{name}")
            raise KeyError(name)
        return value


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


# ---------------------------------------------------------------- fingerprints


def _free_names(node: ast.FunctionDef) -> Iterator[tuple[str, ...]]:
    """Names (with the attributes read from them) that the function reads, in order, each once."""
    seen: set[tuple[str, ...]] = set()
    for inner in ast.walk(node):
        path: list[str] = []
        expr: ast.AST = inner
        while isinstance(expr, ast.Attribute):
            path.append(expr.attr)
            expr = expr.value
        if isinstance(expr, ast.Name) and isinstance(expr.ctx, ast.Load):
            key = (expr.id, *reversed(path))
            if key not in seen:
                seen.add(key)
                yield key


def _told(value: Any) -> str:
    """What a value outside the function is, as text that is the same in every process (no addresses)."""
    kind = type(value)
    if isinstance(value, (bool, int, float, str, tuple, list, type(None), Module, Known)):
        return repr(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return str(value)
    return f"{kind.__qualname__} {getattr(value, '__qualname__', '')}"


def fingerprint(function: Any) -> str:
    """A hash of everything the meaning of a function depends on: its source, the functions it calls, the constants
    of its module and closure that it reads, and where it stands in its file (errors and generated code cite lines).
    Equal in another process for the same function.
    """
    digest = hashlib.sha256()
    torch = sys.modules.get("torch")
    digest.update(str(torch.get_default_dtype() if torch is not None else "torch.float32").encode())
    done: set[tuple[str, int, str]] = set()

    def add(source: Source) -> None:
        key = (source.file, source.line + source.node.lineno, source.name)
        if key in done:
            return
        done.add(key)
        digest.update(f"{source.file}\0{source.line}\0{source.name}\0{source.text}\0".encode())
        for path in _free_names(source.node):
            try:
                value = source.lookup(path[0])
                for attribute in path[1:]:
                    if isinstance(value, (Source, Module, Known)):
                        break
                    value = getattr(value, attribute)
            except (KeyError, AttributeError):
                continue
            plain = value if isinstance(value, Source) else plain_function(value)
            if isinstance(plain, Source):
                add(plain)
            elif plain is not None:
                if (plain.__module__ or "").split(".")[0] in ("torch", "math"):
                    digest.update(f"{'.'.join(path)}={plain.__module__}.{plain.__qualname__}\0".encode())
                    continue
                try:
                    add(_of_function(plain))
                except UnsupportedSyntax:
                    digest.update(f"{path[0]}=?\0".encode())
            else:
                digest.update(f"{'.'.join(path)}={_told(value)}\0".encode())

    add(Source.of(function))
    return digest.hexdigest()
