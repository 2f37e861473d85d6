"""The text of a Python function: found in its file, and held against what Python runs."""

from __future__ import annotations
import __future__

import ast
import copy
import inspect
import itertools
import linecache
import os
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from weft.errors import Location, SourceMismatch, UnsupportedSyntax

ANONYMOUS = "anonymous"  # what a lambda is called
_numbers = itertools.count()
_FUTURE_FLAGS = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@dataclass(frozen=True, eq=False)
class FunctionText:
    """The syntax tree of a function, a lambda as a def: `line` and `column` are added to the tree's positions."""

    code: types.CodeType
    file: str
    node: ast.FunctionDef
    line: int
    column: int
    text: str


# A file may be edited while a program runs, so that a function's text is read once: when weft first sees the function.
_texts: WeakKeyDictionary[types.FunctionType, FunctionText] = WeakKeyDictionary()


def text_of(function: types.FunctionType) -> FunctionText:
    """The text that a function was compiled from.

    Raises UnsupportedSyntax where there is none or it is no `def`, SourceMismatch where it is not what Python runs.
    """
    known = _texts.get(function)
    if known is None or known.code is not function.__code__:
        known = _texts[function] = _read(function)
    return known


def function_of_text(
    text: str, names: Mapping[str, Any] | None = None, instead_of: types.FunctionType | None = None
) -> types.FunctionType:
    """The last function that a text defines, which is executed to define it; `torch`, `math` and `F` are known to it, and
    the names given. instead_of: the function where errors find it.

    Raises UnsupportedSyntax where it is no Python, or defines none.
    """
    import math

    import torch

    text = textwrap.dedent(text)
    file = f"<source {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        where = Location(file, error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise UnsupportedSyntax(f"this is not Python: {error.msg}", location=where, remedy="correct the syntax") from None
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not defined:
        raise UnsupportedSyntax("the text defines no function", remedy="write it with def")
    scope: dict[str, Any] = {"torch": torch, "math": math, "F": torch.nn.functional}
    scope |= names or {}
    exec(compile(tree, file, "exec"), scope)
    made = scope[defined[-1]]
    function = made if isinstance(made, types.FunctionType) else getattr(made, "py", None)
    if not isinstance(function, types.FunctionType):
        raise UnsupportedSyntax(f"{defined[-1]} of the text is no plain function", remedy="leave out its decorators")
    if instead_of is not None:
        shown, own = text_of(instead_of), text_of(function)
        name = ast.Name(shown.node.name)  # the place of the name: the one of the def is the other function's
        name.lineno = name.end_lineno = shown.node.lineno
        name.col_offset = shown.node.col_offset + len("def ")
        name.end_col_offset = name.col_offset + len(name.id)
        for node in ast.walk(own.node):
            if isinstance(node, (ast.stmt, ast.expr, ast.arg)):
                ast.copy_location(node, name)
        _texts[function] = replace(own, file=shown.file, line=shown.line, column=shown.column)
    return function


def as_def(node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef:
    """A lambda is a def that returns its expression."""
    if isinstance(node, ast.FunctionDef):
        return node
    result = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.FunctionDef(name=ANONYMOUS, args=node.args, body=[result], decorator_list=[], returns=None)
    return ast.copy_location(made, node)


def _read(function: types.FunctionType) -> FunctionText:
    code = function.__code__  # a wrapper has a text of its own, whatever it says that it wraps
    if code.co_name == "<lambda>":
        return _read_lambda(function)
    try:
        lines, first, file = _lines(code, function.__globals__)
    except (OSError, TypeError, IndexError, SyntaxError):
        raise _no_source(function) from None
    text = textwrap.dedent("".join(lines))
    column = len(lines[0]) - len(lines[0].lstrip())
    where = Location(file, first, column)
    try:
        node = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        node = ast.Pass()
    if isinstance(node, ast.AsyncFunctionDef):
        raise UnsupportedSyntax(f"{function.__qualname__} is no plain def", location=where, remedy="write it with def")
    if not isinstance(node, ast.FunctionDef) or not _is_text_of(node, function):
        raise _mismatch(function, where)
    return FunctionText(code, file, node, first - 1, column, text)


def _lines(code: types.CodeType, scope: dict[str, Any]) -> tuple[list[str], int, str]:
    """The lines of a def, the number of the first, their file. Raises what `inspect` raises, which is asked last: for a text
    that is no module's it looks through all modules there are.
    """
    file, first = code.co_filename, code.co_firstlineno
    made = file.startswith("<") and file.endswith(">")
    if made or os.path.isabs(file):
        linecache.checkcache(file)
        lines = linecache.getlines(file, None if made else scope)
        if first <= len(lines):
            return inspect.getblock(lines[first - 1 :]), first, file
    lines, first = inspect.getsourcelines(code)
    return lines, first, inspect.getsourcefile(code) or file


def _read_lambda(function: types.FunctionType) -> FunctionText:
    """The text of a lambda: the one in its file whose body's code stands where the function's does."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
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
    if text and not _defines(text, code):
        raise _mismatch(function, Location(code.co_filename, code.co_firstlineno))
    if len(found) != 1:
        raise _no_source(function)
    segment = ast.get_source_segment(text, found[0]) or ""
    return FunctionText(code, code.co_filename, as_def(found[0]), 0, 0, segment)


def _no_source(function: types.FunctionType) -> UnsupportedSyntax:
    return UnsupportedSyntax(
        f"the source of {function.__qualname__} cannot be found",
        evidence=["weft reads a function's source text"],
        remedy="define the function in a file, or pass its source text",
    )


def _mismatch(function: types.FunctionType, where: Location) -> SourceMismatch:
    return SourceMismatch(
        f"the text of {function.__qualname__} is not what Python runs",
        location=where,
        evidence=["its file was changed after Python read it, or something rewrites the code as it is imported"],
        remedy="import the module again (restart Python, or importlib.reload)",
    )


def _is_text_of(node: ast.FunctionDef, function: types.FunctionType) -> bool:
    """Whether compiling the text gives the function's code."""
    code = function.__code__
    if any(name.startswith("@") for name in (*code.co_names, *code.co_varnames)):
        return True  # pytest's rewritten asserts: names that no text can spell, so there is nothing to compare
    modules = [n for n in code.co_names if isinstance(function.__globals__.get(n), types.ModuleType)]
    bare = copy.copy(node)
    bare.decorator_list = []
    around = ast.parse("def enclosing(): pass")
    (enclosing,) = around.body
    assert isinstance(enclosing, ast.FunctionDef)
    # a variable of an enclosing function is one only where a function encloses it; and a call of an imported module's
    # function has a code of its own
    enclosing.body = [*(ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in code.co_freevars), bare]
    around.body = [*(ast.Import([ast.alias(n)]) for n in modules), enclosing]
    if _defines(ast.fix_missing_locations(around), code):
        return True
    return _defines("".join(linecache.getlines(code.co_filename)), code)  # for what the module around it decides


def _defines(what: ast.Module | str, code: types.CodeType) -> bool:
    try:
        compiled = compile(what, code.co_filename, "exec", code.co_flags & _FUTURE_FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return any(_alike(code, found) for found in _codes(compiled))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The codes of all that is defined inside."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes(inner)


def _alike(a: Any, b: Any) -> bool:
    """Whether two codes, or two of their constants, do the same; where they stand does not matter."""
    if type(a) is not type(b):
        return False
    if isinstance(a, types.CodeType):
        names = all(getattr(a, n) == getattr(b, n) for n in _COMPARED)
        return names and len(a.co_consts) == len(b.co_consts) and all(map(_alike, a.co_consts, b.co_consts))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, frozenset):
        return bool(a == b)
    return repr(a) == repr(b)  # 0.0 is not -0.0


_COMPARED = (
    *("co_name", "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)
