"""What is computed in double precision of elements of a narrower type, since Python's floats are doubles: `math.exp(x[i])`,
`total += float(x[i])`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

from weft.errors import Location
from weft.language.builder import Builder
from weft.language.values import Computed, Scalar, Value, View
from weft.loops.ir import Cast, Expr, Load, Op, Ref, Widening, free_names, walk_expr
from weft.loops.types import FLOAT32, FLOAT64, ScalarType, Typed

# Functions of math under the names that they have in torch.
_IN_TORCH = {"fabs": "abs"}


def of_math(b: Builder, node: ast.Call, name: str, args: Iterable[Value], where: Location | None) -> None:
    """Note a call of a function of math on an element."""
    found = next((t for a in args if (t := _element(b, a) or _made_of_element(b, a)) is not None), None)
    if found is None:
        return
    own = _without_conversions(node)
    own.func = ast.Attribute(ast.Name("torch"), _IN_TORCH.get(name, name))
    _note(b, Widening(ast.unparse(node), found, f"{ast.unparse(own)} of elements stays in {found.opmath}", where))


def of_arithmetic(b: Builder, node: ast.AST, operands: Iterable[Value], result: Value, where: Location | None) -> None:
    """Note arithmetic of floats that were made of elements."""
    if not isinstance(result, Scalar) or result.typed != Typed(FLOAT64, 0):
        return
    found = next((t for v in operands if (t := _made_of_element(b, v)) is not None), None)
    if found is not None:
        instead = f"without float(...) and .item(), arithmetic of elements stays in {found.opmath}"
        _note(b, Widening(ast.unparse(node), found, instead, where))


def _note(b: Builder, widening: Widening) -> None:
    if widening not in b.widenings:
        b.widenings.append(widening)


def _element(b: Builder, value: Value) -> ScalarType | None:
    """The type of an element of a narrow float type that changes in the loops that are open; None for anything else."""
    if not isinstance(value, (Scalar, View, Computed)) or value.typed.weight != 1 or not _is_narrow(value.typed.scalar):
        return None
    exprs = (value.expr,) if isinstance(value, Scalar) else value.axes if isinstance(value, View) else ()
    return value.typed.scalar if any(_changes(b, e) for e in exprs) else None


def _made_of_element(b: Builder, value: Value) -> ScalarType | None:
    """The type of the element that a Python float was made of."""
    if not isinstance(value, Scalar) or value.typed != Typed(FLOAT64, 0):
        return None
    pending, seen = [value.expr], set[str]()
    while pending:
        match pending.pop():
            case Ref(name=name) if name not in seen:
                seen.add(name)
                pending += b.choices.get(name, ())
            case Op(name="where" | "neg" | "abs" | "max" | "min", args=args):
                pending += args
            case Cast(value=inner) if inner.type == FLOAT32 and _changes(b, inner):
                types = {b.arrays[e.array].dtype for e in walk_expr(inner) if isinstance(e, Load)}
                return next((t for t in types if _is_narrow(t)), FLOAT32)
    return None


def _is_narrow(type_: ScalarType) -> bool:
    return type_.category == "float" and type_ != FLOAT64


def _changes(b: Builder, expr: Expr) -> bool:
    """Whether a value may be another one in every iteration of a loop that is open."""
    moving = {loop.var for loop in b.loops} | b.carried
    return bool(moving & (b.reach(expr) | free_names(expr)))


class _Bare(ast.NodeTransformer):
    """Elements for the floats that are made of them."""

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802 - the name that ast asks for
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="float"), args=[inner], keywords=[]):
                return inner
            case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
                return inner
        return node


def _without_conversions(node: ast.Call) -> ast.Call:
    found = _Bare().visit(copy.deepcopy(node))
    assert isinstance(found, ast.Call)
    return found
