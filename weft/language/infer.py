"""Types of arguments guessed from how a function uses them, for an analysis without arguments."""

from __future__ import annotations

import ast
from typing import Any

from weft.language.capture import source_of
from weft.language.signature import read_signature
from weft.language.source import Source, plain_function
from weft.language.types import TensorType
from weft.loops.types import BOOL, FLOAT32, FLOAT64, INT64, ScalarType

# What a tensor is taken for whose number of dimensions nothing shows.
_USUAL_RANK = 2


def infer_types(function: Any) -> dict[str, TensorType | ScalarType]:
    """A type for each parameter: tensors of float32 (int64 where elements are subscripts or bounds of a range) with the
    dimensions that shapes and subscripts show, `...` counted as one; float64, int64 or bool for numbers.
    """
    source = source_of(function)
    signature = read_signature(source)
    ranks, integers = _ranks(source, ()), _integers(source)
    types: dict[str, TensorType | ScalarType] = {}
    for parameter in signature.parameters:
        if parameter.kind == "tensor":
            dtype = INT64 if parameter.name in integers else FLOAT32
            types[parameter.name] = TensorType(dtype, ranks.get(parameter.name, _USUAL_RANK))
        else:
            types[parameter.name] = {"int": INT64, "bool": BOOL}.get(parameter.kind, FLOAT64)
    return types


def _ranks(source: Source, calls: tuple[ast.FunctionDef, ...]) -> dict[str, int]:
    """The number of dimensions of each parameter that something shows."""
    found: dict[str, int] = {}
    parameters = {p.arg for p in source.parameters}
    exact: dict[str, int] = {}
    same: list[tuple[str, str]] = []

    def at_least(node: ast.expr, rank: int) -> None:
        if isinstance(node, ast.Name) and node.id in parameters:
            found[node.id] = max(found.get(node.id, 0), rank)

    for node in ast.walk(source.node):
        match node:
            case ast.Assign(
                targets=[ast.Tuple(elts=targets)], value=ast.Attribute(value=ast.Name(id=name), attr="shape")
            ):
                exact[name] = len(targets)
            case ast.Assign(targets=[ast.Name(id=left)], value=ast.Call(args=[ast.Name(id=right), *_])):
                same.append((left, right))
            case ast.Subscript(value=ast.Attribute(value=base, attr="shape"), slice=index):
                at_least(base, _axis(index))
            case ast.Call(func=ast.Attribute(value=base, attr="size"), args=[index]):
                at_least(base, _axis(index))
            case ast.Subscript():
                base, count = _subscripts(node)
                at_least(base, count)
            case ast.Attribute(value=base, attr="T" | "mT"):
                at_least(base, 2)
            case ast.Call():
                for name, rank in _helper_ranks(source, node, calls):
                    at_least(ast.Name(name), rank)
    found |= {name: rank for name, rank in exact.items() if name in parameters}
    _spread_over_arithmetic(source, found, parameters)
    return found


def _axis(node: ast.expr) -> int:
    try:
        axis = ast.literal_eval(node)
    except ValueError:
        return 1
    if not isinstance(axis, int):
        return 1
    return axis + 1 if axis >= 0 else -axis


def _subscripts(node: ast.Subscript) -> tuple[ast.expr, int]:
    """The base of a chain of subscripts and how many dimensions they take together."""
    count = 0
    inner: ast.expr = node
    while isinstance(inner, ast.Subscript):
        items = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        count += sum(1 for i in items if not (isinstance(i, ast.Constant) and i.value is None))
        inner = inner.value
    return inner, count


def _helper_ranks(source: Source, node: ast.Call, calls: tuple[ast.FunctionDef, ...]) -> list[tuple[str, int]]:
    """What a call of the user's own function shows of the arguments."""
    if not isinstance(node.func, ast.Name):
        return []
    try:
        value = source.lookup(node.func.id)
    except KeyError:
        return []
    plain = value if isinstance(value, Source) else plain_function(value)
    if plain is None or (getattr(plain, "__module__", "") or "").split(".")[0] == "torch":
        return []
    helper = source_of(plain)
    if any(ast.dump(helper.node) == ast.dump(n) for n in calls):
        return []
    ranks = _ranks(helper, (*calls, source.node, helper.node))
    given = dict(zip((p.arg for p in helper.parameters), node.args, strict=False))
    given |= {k.arg: k.value for k in node.keywords if k.arg is not None}
    return [(v.id, ranks[n]) for n, v in given.items() if n in ranks and isinstance(v, ast.Name)]


def _spread_over_arithmetic(source: Source, found: dict[str, int], parameters: set[str]) -> None:
    """A parameter used as a whole in arithmetic with another has its number of dimensions."""
    for node in ast.walk(source.node):
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            sides = [n.id for n in (node.left, node.right) if isinstance(n, ast.Name) and n.id in parameters]
            known = [found[s] for s in sides if s in found]
            if known:
                for side in sides:
                    found.setdefault(side, known[0])


def _integers(source: Source) -> set[str]:
    """Names of tensors whose elements are used as subscripts or as bounds of a range."""
    elements: dict[str, str] = {}
    for node in ast.walk(source.node):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                base = _element_of(value)
                if base is not None:
                    elements[name] = base
    found: set[str] = set()

    def collect(node: ast.expr) -> None:
        for inner in ast.walk(node):
            base = _element_of(inner) if isinstance(inner, ast.expr) else None
            if base is not None:
                found.add(base)
            if isinstance(inner, ast.Name) and inner.id in elements:
                found.add(elements[inner.id])

    for node in ast.walk(source.node):
        match node:
            case ast.Subscript(slice=index):
                collect(index)
            case ast.Call(func=ast.Name(id="range"), args=args):
                for arg in args:
                    collect(arg)
    return found


def _element_of(node: ast.expr) -> str | None:
    """The tensor that an expression is an element of: `idx[i]`, `int(idx[i])`, `idx[i].item()`."""
    match node:
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _element_of(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[]):
            return _element_of(inner)
        case ast.Subscript(value=ast.Name(id=name)):
            return name
    return None
