"""Values that are others at other subscripts: views, parts side by side, selections by an index."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from weft.dynamo.operators import arguments, dtype_of, meta, name_of, shape_of
from weft.dynamo.sizes import Size, product, size, text, tight
from weft.dynamo.terms import Subscripts, Term, number


class Nest(Protocol):
    """Where elements are computed."""

    def element(self, node: fx.Node, at: Subscripts) -> Term: ...

    def converted(self, made: Term, own: torch.dtype, wanted: torch.dtype) -> Term: ...

    def operand(self, value: Any, node: fx.Node, at: Subscripts, dtype: torch.dtype) -> Term: ...

    def as_element(self, made: Term, dtype: torch.dtype) -> Term: ...

    def let(self, made: str) -> str: ...

    def choice(self, condition: str, yes: Callable[[], Term], no: Callable[[], Term], dtype: torch.dtype) -> Term: ...


def _size(value: Any) -> Size:
    """Of an argument: a number, or a node of the graph that is one."""
    return size(meta(value)) if isinstance(value, fx.Node) else size(value)


def _plus(at: str, offset: Size) -> str:
    """A subscript from an offset on."""
    if not isinstance(offset, int):
        return f"{_tight(at)} + {tight(offset)}"
    if offset == 0 or at.isdigit():
        return str(int(at) + offset) if offset else at
    return f"{_tight(at)} {'+' if offset > 0 else '-'} {abs(offset)}"


def _minus(at: str, offset: Size) -> str:
    return _plus(at, -offset) if isinstance(offset, int) else f"{_tight(at)} - {tight(offset)}"


def _tight(at: str) -> str:
    return at if at.isidentifier() or at.isdigit() else f"({at})"


def _clamped(value: Size, whole: Size) -> Size:
    """A bound of a slice, counted from the first."""
    if not isinstance(value, int):
        return value
    if value >= sys.maxsize:
        return whole
    if isinstance(whole, int):
        return min(max(value + whole, 0) if value < 0 else value, whole)
    return value + whole if value < 0 else value


# ---------------------------------------------------------------- views


def viewed(node: fx.Node, at: Subscripts) -> Subscripts:
    """The subscripts of an element of a view in what it is a view of."""
    name = name_of(node)
    if name == "getitem":
        return _split(node, at)
    given = arguments(node)
    own = shape_of(given["self"])
    rank = len(own)
    if name == "aten.permute":
        order = [d % rank for d in given["dims"]]
        return tuple(at[order.index(d)] for d in range(rank))
    if name in ("aten.transpose", "aten.t"):
        if rank < 2:
            return at
        pair = (given["dim0"] % rank, given["dim1"] % rank) if name == "aten.transpose" else (0, 1)
        swapped = list(at)
        swapped[pair[0]], swapped[pair[1]] = at[pair[1]], at[pair[0]]
        return tuple(swapped)
    if name == "aten.expand":
        return tuple("0" if s == 1 else t for s, t in zip(own, at[len(at) - rank :], strict=True))
    if name == "aten.unsqueeze":
        d = given["dim"] % (rank + 1)
        return at[:d] + at[d + 1 :]
    if name == "aten.squeeze":
        listed = given.get("dim", range(rank))
        dims = {d % rank for d in (listed if isinstance(listed, (list, tuple, range)) else [listed])} if rank else set()
        left = iter(at)
        return tuple("0" if s == 1 and d in dims else next(left) for d, s in enumerate(own))
    if name == "aten.slice":
        d, step = given["dim"] % rank, given["step"]
        first = 0 if given["start"] is None else _clamped(_size(given["start"]), own[d])
        along = at[d] if step == 1 else f"{_tight(at[d])} * {step}"
        return (*at[:d], _plus(along, first), *at[d + 1 :])
    if name == "aten.select":
        d = given["dim"] % rank
        return (*at[:d], text(_clamped(_size(given["index"]), own[d])), *at[d:])
    if name in ("aten.alias", "aten.detach"):
        return at
    return _reshaped(own, shape_of(node), at)


def _split(node: fx.Node, at: Subscripts) -> Subscripts:
    """Of one of the parts that a tensor is split into."""
    whole, part = node.args
    assert isinstance(whole, fx.Node) and isinstance(part, int)
    d = arguments(whole)["dim"] % len(at)
    before: Size = 0
    for value in meta(whole)[:part]:
        before = before + size(value.shape[d])
    return (*at[:d], _plus(at[d], before), *at[d + 1 :])


def reshape_groups(own: Sequence[Size], made: Sequence[Size]) -> list[tuple[list[int], list[int]]] | None:
    """Which dimensions become which, those of 1 left out; None where no dimensions, or several, become several."""
    mine, theirs = ([d for d, s in enumerate(shape) if s != 1] for shape in (own, made))
    groups = []
    while mine or theirs:
        if not mine or not theirs:
            return None
        group: tuple[list[int], list[int]] = ([mine.pop(0)], [theirs.pop(0)])
        while (a := product([own[d] for d in group[0]])) != (b := product([made[d] for d in group[1]])):
            if isinstance(a, int) and isinstance(b, int):
                taken, left = (group[0], mine) if a < b else (group[1], theirs)
            else:  # a symbol divides what has it
                taken, left = (group[1], theirs) if _divides(b, a) else (group[0], mine)
            if not left:
                return None
            taken.append(left.pop(0))
        if min(map(len, group)) > 1 or (len(group[0]) > 1 and not all(isinstance(own[d], int) for d in group[0])):
            return None
        groups.append(group)
    return groups


def _divides(a: Size, b: Size) -> bool:
    import sympy

    return bool((sympy.sympify(b) / sympy.sympify(a)).as_numer_denom()[1] == 1)


def _reshaped(own: Sequence[Size], made: Sequence[Size], at: Subscripts) -> Subscripts:
    groups = reshape_groups(own, made)
    assert groups is not None
    found = ["0"] * len(own)
    for mine, theirs in groups:
        if len(mine) == 1:
            terms = []
            for k, d in enumerate(theirs):
                inner = product([made[e] for e in theirs[k + 1 :]])
                if at[d] != "0":
                    terms.append(at[d] if inner == 1 else f"{_tight(at[d])} * {tight(inner)}")
            found[mine[0]] = " + ".join(terms) or "0"
        else:
            (d,) = theirs
            for k, e in enumerate(mine):
                inner = product([own[f] for f in mine[k + 1 :]])
                quotient = _tight(at[d]) if inner == 1 else f"{_tight(at[d])} // {inner}"
                found[e] = quotient if k == 0 else f"{_tight(quotient)} % {own[e]}"
    return tuple(found)


# ---------------------------------------------------------------- parts


def _with(at: Subscripts, d: int, subscript: str) -> Subscripts:
    return (*at[:d], subscript, *at[d + 1 :])


def _cat(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    dtype, rank = dtype_of(node), len(at)
    parts = [p for p in given["tensors"] if len(shape_of(p)) == rank]
    d = given["dim"] % rank

    def part(k: int, before: Size) -> Term:
        own = parts[k]

        def read() -> Term:
            made = nest.element(own, _with(at, d, _minus(at[d], before)))
            return nest.converted(made, dtype_of(own), dtype)

        if k + 1 == len(parts):
            return read()
        end = before + shape_of(own)[d]
        return nest.choice(f"{at[d]} < {text(end)}", read, lambda: part(k + 1, end), dtype)

    return part(0, 0)


def _padded(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given, dtype = arguments(node), dtype_of(node)
    own, pads = shape_of(given["self"]), [_size(p) for p in given["pad"]]
    conditions, inside = [], list(at)
    for k in range(len(pads) // 2):
        d = len(own) - 1 - k
        before, behind = pads[2 * k], pads[2 * k + 1]
        inside[d] = _minus(at[d], before)
        conditions += [f"{at[d]} >= {text(before)}"] if before > 0 else []
        conditions += [f"{at[d]} < {text(before + own[d])}"] if behind > 0 else []
    if not conditions:
        return nest.element(given["self"], tuple(inside))
    value = number(given["value"], dtype)
    return nest.choice(
        " and ".join(conditions), lambda: nest.element(given["self"], tuple(inside)), lambda: Term(value, True), dtype
    )


def _slice_scattered(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given, dtype = arguments(node), dtype_of(node)
    own = shape_of(given["self"])
    d = given["dim"] % len(own)
    first = 0 if given["start"] is None else _clamped(_size(given["start"]), own[d])
    end = own[d] if given["end"] is None else _clamped(_size(given["end"]), own[d])
    conditions = [f"{at[d]} >= {text(first)}"] if first != 0 else []
    conditions += [f"{at[d]} < {text(end)}"] if end != own[d] else []

    def inside() -> Term:
        source = given["src"]
        return nest.converted(nest.element(source, _with(at, d, _minus(at[d], first))), dtype_of(source), dtype)

    if not conditions:
        return inside()
    return nest.choice(" and ".join(conditions), inside, lambda: nest.element(given["self"], at), dtype)


def _select_scattered(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given, dtype = arguments(node), dtype_of(node)
    own, source = shape_of(given["self"]), given["src"]
    d = given["dim"] % len(own)
    index = _clamped(_size(given["index"]), own[d])
    return nest.choice(
        f"{at[d]} == {text(index)}",
        lambda: nest.converted(nest.element(source, at[:d] + at[d + 1 :]), dtype_of(source), dtype),
        lambda: nest.element(given["self"], at),
        dtype,
    )


def _flipped(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    own = shape_of(given["self"])
    dims = {d % len(own) for d in given["dims"]}
    last = [text(s - 1) if isinstance(s, int) else f"{tight(s)} - 1" for s in own]
    return nest.element(given["self"], tuple(f"{last[d]} - {_tight(t)}" if d in dims else t for d, t in enumerate(at)))


# ---------------------------------------------------------------- by an index


def _gathered(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    d = given["dim"] % len(at)
    index = given["index"]
    chosen = nest.as_element(nest.element(index, at), dtype_of(index))
    return nest.element(given["self"], _with(at, d, nest.let(chosen.text)))


def _embedded(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    chosen = nest.as_element(nest.element(given["indices"], at[:-1]), dtype_of(given["indices"]))
    return nest.element(given["weight"], (nest.let(chosen.text), at[-1]))


def _indexed(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    if "indices" in given:
        d, index = next((k, i) for k, i in enumerate(given["indices"]) if i is not None)
    else:
        d, index = given["dim"] % len(at), given["index"]
    rank = len(shape_of(index))
    chosen = nest.as_element(nest.element(index, at[d : d + rank]), dtype_of(index))
    return nest.element(given["self"], (*at[:d], nest.let(chosen.text), *at[d + rank :]))


def _scattered(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    """What stands at one place of each line: the index has one element along the dimension."""
    given, dtype = arguments(node), dtype_of(node)
    d, index = given["dim"] % len(at), given["index"]
    row = _with(at, d, "0")
    place = nest.let(nest.as_element(nest.element(index, row), dtype_of(index)).text)
    before = nest.element(given["self"], at)
    source = given["value"] if "value" in given else given["src"]
    put = nest.operand(source, node, row, dtype)
    if name_of(node) == "aten.scatter_add":
        before, put = nest.as_element(before, dtype), nest.as_element(put, dtype)
        put = Term(nest.let(f"{before.text} + {put.text}"))
    if before.number and put.number:
        put = nest.as_element(put, dtype)
    return Term(f"torch.where({place} == {at[d]}, {put.text}, {before.text})")


# ---------------------------------------------------------------- of nothing


def _full(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    value = given["fill_value"] if "fill_value" in given else given["s"]
    return Term(number(torch.tensor(value, dtype=dtype_of(node)).item(), dtype_of(node)), True)


def _arange(nest: Nest, node: fx.Node, at: Subscripts) -> Term:
    given = arguments(node)
    first, step = given.get("start", 0), given.get("step", 1)
    along = at[0] if step == 1 else f"{at[0]} * {step}"
    return Term(_tight(_plus(along, first)), True)


MADE: dict[str, Callable[[Nest, fx.Node, Subscripts], Term]] = {
    "aten.cat": _cat,
    "aten.constant_pad_nd": _padded,
    "aten.slice_scatter": _slice_scattered,
    "aten.select_scatter": _select_scattered,
    "aten.flip": _flipped,
    "aten.gather": _gathered,
    "aten.embedding": _embedded,
    "aten.index": _indexed,
    "aten.index_select": _indexed,
    "aten.scatter": _scattered,
    "aten.scatter_add": _scattered,
    "aten.full": _full,
    "aten.full_like": _full,
    "aten.scalar_tensor": _full,
    "aten.arange": _arange,
}
