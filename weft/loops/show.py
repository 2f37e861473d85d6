"""A loop nest as text that reads like the Python it came from."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

from weft.errors import Location
from weft.loops.ir import Array, Cast, Const, Expr, For, Function, If, Let, Load, Op, Ref, Round, Stmt, Store, walk
from weft.loops.types import INT64

# How tightly an operator binds, as in Python.
INFIX = {
    "or": ("or", 1),
    "and": ("and", 2),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "mod": ("%", 10),
    "pow": ("**", 12),
}
PREFIX = {"not": ("not ", 3), "neg": ("-", 11), "bitnot": ("~", 11)}
SELECT = 0
ATOM = 13


def _constant(value: bool | int | float) -> tuple[str, int]:
    if isinstance(value, float) and not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    else:
        text = repr(value)
    return text, 11 if text.startswith("-") else ATOM


def show_expr(expr: Expr) -> str:
    """An expression as Python would write it; conversions look like calls of the type."""
    return _expr(expr)[0]


def _wrapped(expr: Expr, level: int) -> str:
    text, own = _expr(expr)
    return text if own >= level else f"({text})"


def _expr(expr: Expr) -> tuple[str, int]:
    match expr:
        case Const(value=value):
            return _constant(value)
        case Ref(name=name):
            return name, ATOM
        case Load(array=array, index=index):
            return f"{array}[{', '.join(map(show_expr, index)) or '()'}]", ATOM
        case Cast(value=value, type=type_):
            return f"{type_}({show_expr(value)})", ATOM
        case Round(value=value, to=to):
            return f"round_to_{to}({show_expr(value)})", ATOM
        case Op(name="check", args=(value, _)):
            return _expr(value)
        case Op(name="where", args=(condition, then, orelse)):
            return f"{_wrapped(then, 1)} if {_wrapped(condition, 1)} else {_wrapped(orelse, SELECT)}", SELECT
        case Op(name=name, args=(a, b)) if name in INFIX:
            sign, level = INFIX[name]
            return f"{_wrapped(a, level)} {sign} {_wrapped(b, level + 1)}", level
        case Op(name=name, args=(a,)) if name in PREFIX:
            sign, level = PREFIX[name]
            return f"{sign}{_wrapped(a, level)}", level
        case Op(name=name, args=args):
            return f"{name}({', '.join(map(show_expr, args))})", ATOM
    raise TypeError(expr)


def _array(array: Array) -> str:
    return f"{array.dtype}[{', '.join(map(show_expr, array.shape))}]"


def _fresh(array: Array) -> str:
    made = f"{array.name} = {array.role} {_array(array)}"
    return made if array.fill is None else f"{made} of {show_expr(array.fill)}"


def _statements(statements: tuple[Stmt, ...], arrays: tuple[Array, ...], indent: str) -> Iterator[str]:
    if not statements:
        yield f"{indent}pass"
    for stmt in statements:
        match stmt:
            case Let(name=name, value=value):
                yield f"{indent}{name} = {show_expr(value)}"
            case Store(array=array, index=index, value=value):
                yield f"{indent}{array}[{', '.join(map(show_expr, index)) or '()'}] = {show_expr(value)}"
            case If():
                yield f"{indent}if {show_expr(stmt.condition)}:"
                yield from _branch(stmt.then, [(m.name, m.then) for m in stmt.merges], arrays, indent + "    ")
                if stmt.orelse or stmt.merges:
                    yield f"{indent}else:"
                    yield from _branch(stmt.orelse, [(m.name, m.orelse) for m in stmt.merges], arrays, indent + "    ")
            case For():
                yield from _loop(stmt, arrays, indent)


def _branch(
    statements: tuple[Stmt, ...], merges: list[tuple[str, Expr]], arrays: tuple[Array, ...], indent: str
) -> Iterator[str]:
    if statements or not merges:
        yield from _statements(statements, arrays, indent)
    for name, value in merges:
        yield f"{indent}{name} = {show_expr(value)}"


def _loop(loop: For, arrays: tuple[Array, ...], indent: str) -> Iterator[str]:
    start, stop = show_expr(loop.start), show_expr(loop.stop)
    bounds = [stop] if loop.step == 1 and loop.start == Const(0, INT64) else [start, stop]
    if loop.step != 1:
        bounds.append(str(loop.step))
    for carry in loop.carries:
        yield f"{indent}{carry.name} = {show_expr(carry.init)}"
    yield f"{indent}for {loop.var} in range({', '.join(bounds)}):{'  # implied' if loop.implied else ''}"
    for array in arrays:
        if array.within and array.within[-1] == loop.var:
            yield f"{indent}    {_fresh(array)}"
    if loop.body or not loop.carries:
        yield from _statements(loop.body, arrays, indent + "    ")
    for carry in loop.carries:
        yield f"{indent}    {carry.name} = {show_expr(carry.next)}"
    for carry in loop.carries:
        yield f"{indent}{carry.result} = {carry.name}"


def show(function: Function) -> str:
    """A function as Python-like text: the carries of a loop as assignments before, in and after it."""
    arrays = {a.name: a for a in function.arrays}
    scalars = {s.name: s for s in function.scalars}
    parameters = [
        f"{name}: {scalars[name].type if name in scalars else _array(arrays[name])}" for name in function.parameters
    ]
    lines = [f"def {function.name}({', '.join(parameters)}):"]
    indent = "    "
    for equality in function.equalities:
        lines.append(f"{indent}assert {show_expr(equality.left)} == {show_expr(equality.right)}  # {equality.what}")
    for array in function.arrays:
        if array.name not in function.parameters and not array.within:
            lines.append(f"{indent}{_fresh(array)}")
    lines += _statements(function.body, function.arrays, indent) if function.body else []
    if function.results:
        lines.append(f"{indent}return {', '.join(function.results)}")
    return "\n".join(lines) + "\n"


def element_text(array: str, index: tuple[Expr, ...], location: Location | None) -> str:
    """An element as the user wrote it where the source has it at this place, else as the nest has it."""
    text = "" if location is None else location.text()[location.column : location.end_column]
    cited = re.match(rf"{re.escape(array)}\[", text)
    if cited is not None:
        depth = 0
        for k, letter in enumerate(text):
            depth += (letter in "[(") - (letter in ")]")
            if letter == "]" and depth == 0:
                return text[: k + 1]
    return f"{array}[{', '.join(map(show_expr, index))}]" if index else array


# ---------------------------------------------------------------- names


def user_names(function: Function) -> Callable[[str], str]:
    """The user's name for a name of the nest: passes number the values of one variable (`h_1`, `h_last`), and what is
    kept of an array is named after it (`y_previous`). A name that stands in the cited source is the user's own; sizes
    and loops keep theirs, which tell them apart.
    """
    words = {*function.parameters, *(s.name for s in function.sizes)}
    words |= {s.var for s in walk(function.body) if isinstance(s, For)}
    for cited in (*walk(function.body), *function.arrays):
        if cited.location is not None:
            words |= set(re.findall(r"\w+", cited.location.text()))

    def shown(name: str) -> str:
        base = name
        while base not in words and "_" in base.strip("_"):
            base = base.rpartition("_")[0]
        return base if base in words else name

    return shown


def renamed(text: str, shown: Callable[[str], str]) -> str:
    """A sentence with every name in it as the user knows it."""
    return re.sub(r"\b[^\W\d]\w*\b", lambda m: shown(m.group()) if "_" in m.group() else m.group(), text)
