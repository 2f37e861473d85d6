"""Attention with the meaning and the signature of `torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

import weft
from weft.errors import ShapeMismatch, TypeMismatch, WeftError
from weft.pytorch.quick import MISS, Ways
from weft.pytorch.viewed import called_with_views

_GROUPED = {
    "q": "bfloat16[2,4,2,1024,64]",
    "k": "bfloat16[2,4,1024,64]",
    "v": "bfloat16[2,4,1024,64]",
}
_PAGED = {
    "q": "bfloat16[2,4,8,1,64]",
    "k": "bfloat16[80,16,4,64]",
    "v": "bfloat16[80,16,4,64]",
    "table": "int32[2,64]",
    "lengths": "int32[2]",
    "scale": 0.125,
}
_ALONE = {name: "bfloat16[2,8,1024,64]" for name in "qkv"}
_WAYS = {key: Ways() for key in itertools.product((False, True), repeat=3)}  # by what is asked for besides tensors and scale


def _beside(head: Any, j: Any) -> Any:
    """The place of the j-th key of a head, where all of them lie beside each other."""
    return (*head, j)


def _of_keys(
    q: Any, k: Any, v: Any, out: Any, head: Any, row: Any, to: Any, keys: Any, score: Callable[[Any, Any], Any],
    at: Callable[[Any, Any], Any] = _beside, room: Any = None,
) -> None:  # fmt: skip
    """One query's result: the mean of its first `keys` values, weighed by the exponentials of their scores. row: the place of
    the query; to: of its result; at: of a key of a head, and of its value. room: for how many scores.

    What weighs a value is rounded to the type of the values, relative to the largest score. A row of which every key is masked
    is 0.
    """
    own = k.shape[2] if room is None else room
    scores = torch.empty(own, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
    for j in range(keys):
        dot = 0.0
        for d in range(q.shape[-1]):
            dot += q[*row, d] * k[*at(head, j), d]
        scores[j] = score(dot, j)
    largest = -math.inf
    for j in range(keys):
        largest = max(largest, scores[j])
    reference = largest if largest > -math.inf else 0.0
    total = 0.0
    for j in range(keys):
        total += torch.exp(scores[j] - reference)
    for e in range(v.shape[3]):
        acc = 0.0
        for j in range(keys):
            acc += torch.exp(scores[j] - reference).to(v.dtype) * v[*at(head, j), e]
        out[*to, e] = acc / total if total != 0.0 else 0.0


@weft.kernel(example={**_GROUPED, "scale": 0.125})
def attended(q: Any, k: Any, v: Any, scale: float) -> Any:
    """q: [batch, heads, group, queries, width]; k: [batch, heads, keys, width]; v: [batch, heads, keys, lanes], which the heads
    of a group share. Returns [batch, queries, heads, group, lanes].
    """
    batch, heads, group, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, group, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for g in range(group):
                for i in range(queries):
                    row, to = (b, h, g, i), (b, i, h, g)
                    _of_keys(q, k, v, out, (b, h), row, to, k.shape[2], lambda dot, j: dot * scale)
    return out


@weft.kernel(example={**_ALONE, "scale": 0.125})
def attended_alone(q: Any, k: Any, v: Any, scale: float) -> Any:
    """`attended` where each head has keys of its own: q is [batch, heads, queries, width], the result [batch, queries, heads,
    lanes]. Gradients of keys and values need no sum over a group.
    """
    batch, heads, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row, to = (b, h, i), (b, i, h)
                _of_keys(q, k, v, out, (b, h), row, to, k.shape[2], lambda dot, j: dot * scale)
    return out


@weft.kernel(example={**_GROUPED, "scale": 0.125})
def attended_causal(q: Any, k: Any, v: Any, scale: float) -> Any:
    """`attended`, where a query has the keys up to its own place."""
    batch, heads, group, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, group, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for g in range(group):
                for i in range(queries):
                    row, to = (b, h, g, i), (b, i, h, g)
                    _of_keys(q, k, v, out, (b, h), row, to, min(i + 1, k.shape[2]), lambda dot, j: dot * scale)
    return out


@weft.kernel(example={**_ALONE, "scale": 0.125})
def attended_causal_alone(q: Any, k: Any, v: Any, scale: float) -> Any:
    """The same where each head has keys of its own."""
    batch, heads, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row, to = (b, h, i), (b, i, h)
                _of_keys(q, k, v, out, (b, h), row, to, min(i + 1, k.shape[2]), lambda dot, j: dot * scale)
    return out


@weft.kernel(example={**_GROUPED, "bias": "bfloat16[2,4,2,1024,1024]", "scale": 0.125})
def attended_biased(q: Any, k: Any, v: Any, bias: Any, scale: float) -> Any:
    """`attended` with bias, [batch, heads, group, queries, keys], added to the scores."""
    batch, heads, group, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, group, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for g in range(group):
                for i in range(queries):
                    row, to = (b, h, g, i), (b, i, h, g)
                    _of_keys(q, k, v, out, (b, h), row, to, k.shape[2], lambda dot, j: dot * scale + bias[*row, j])  # noqa: B023
    return out


@weft.kernel(example={**_ALONE, "bias": "bfloat16[2,8,1024,1024]", "scale": 0.125})
def attended_biased_alone(q: Any, k: Any, v: Any, bias: Any, scale: float) -> Any:
    """The same where each head has keys of its own."""
    batch, heads, queries, _ = q.shape
    out = torch.empty(batch, queries, heads, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row, to = (b, h, i), (b, i, h)
                _of_keys(q, k, v, out, (b, h), row, to, k.shape[2], lambda dot, j: dot * scale + bias[*row, j])  # noqa: B023
    return out


@weft.kernel(example={**_GROUPED, "mask": "bool[2,4,2,1024,1024]", "scale": 0.125})
def attended_masked(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """`attended`, where a query has the keys for which mask, [batch, heads, group, queries, keys], is true."""
    batch, heads, group, queries, _ = q.shape
    keys = k.shape[2]
    out = torch.empty(batch, queries, heads, group, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for g in range(group):
                for i in range(queries):
                    row, to = (b, h, g, i), (b, i, h, g)
                    _of_keys(q, k, v, out, (b, h), row, to, keys, lambda dot, j: dot * scale if mask[*row, j] else -math.inf)  # noqa: B023
    return out


@weft.kernel(example={**_ALONE, "mask": "bool[2,8,1024,1024]", "scale": 0.125})
def attended_masked_alone(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """The same where each head has keys of its own."""
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    out = torch.empty(batch, queries, heads, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row, to = (b, h, i), (b, i, h)
                _of_keys(q, k, v, out, (b, h), row, to, keys, lambda dot, j: dot * scale if mask[*row, j] else -math.inf)  # noqa: B023
    return out


@weft.kernel(example=_PAGED)
def attended_in_pages(q: Any, k: Any, v: Any, table: Any, lengths: Any, scale: float) -> Any:
    """`attended_causal` of keys in pages: k and v are [pages, page, heads, width] and [pages, page, heads, lanes], and the j-th
    key of b is in the page `table[b, j // page]`. b has `lengths[b]` of them, and queries where the last ones are.
    """
    batch, heads, group, queries, _ = q.shape
    page = k.shape[1]
    out = torch.empty(batch, queries, heads, group, v.shape[3], dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for g in range(group):
                for i in range(queries):
                    row, to, keys = (b, h, g, i), (b, i, h, g), lengths[b] - queries + i + 1
                    _of_keys(
                        q, k, v, out, (b, h), row, to, keys, lambda dot, j: dot * scale,
                        at=lambda head, j: (table[head[0], j // page], j % page, head[1]), room=table.shape[1] * page,
                    )  # fmt: skip
    return out


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`: softmax(query key^T * scale) value, without dropout.

    query: [..., queries, width]; key: [..., keys, width]; value: [..., keys, lanes], of one floating type and with leading
    dimensions that broadcast; with `enable_gqa` query has a multiple of the heads, [..., heads, queries, width], that key and
    value have. attn_mask: broadcasts to [..., queries, keys]; a bool says which keys a query has, a number is added to the
    score. scale: 1 / sqrt(width) where none is given.

    Returns [..., queries, lanes] of query's type, or of autocast's. Its heads lie beside each other in memory:
    `y.transpose(-3, -2).flatten(-2)` is a view. Scores and sums are float32 (float64 of float64); a query without keys gives 0.
    Raises ShapeMismatch, TypeMismatch, and WeftError for dropout.
    """
    if dropout_p:
        raise WeftError(
            f"attention drops no weights, and dropout_p is {dropout_p}",
            remedy="pass dropout_p=0.0, and call torch.nn.functional.dropout on the result",
        )
    if attn_mask is not None and is_causal:
        raise WeftError("attn_mask and is_causal are two masks", remedy="pass one of them, or a mask that is both")
    scale = 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale
    ways = _WAYS[is_causal, attn_mask is not None, enable_gqa]
    if not is_compiling():
        made = ways.quick(query, key, value, scale) if attn_mask is None else ways.quick(query, key, value, attn_mask, scale)
        if made is not MISS:
            return made  # type: ignore[no-any-return]
    query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
    _check_dtypes(query, key, value, attn_mask)
    tensors = {"query": query, "key": key, "value": value} | ({} if attn_mask is None else {"attn_mask": attn_mask})
    shapes = [f"{name} is {list(t.shape)}" for name, t in tensors.items()]
    if min(t.dim() for t in (query, key, value)) < 2 or (key.shape[-1], key.shape[-2]) != (query.shape[-1], value.shape[-2]):
        remedy = "pass query as [..., queries, width], key as [..., keys, width] and value as [..., keys, lanes]"
        raise ShapeMismatch("query, key and value do not fit each other", evidence=shapes, remedy=remedy)
    group = 1
    if enable_gqa and query.dim() > 2 and key.dim() > 2 and key.shape[-3]:
        group = _group(query.shape[-3], key.shape[-3], shapes)

    def misfit() -> ShapeMismatch:
        remedy = "expand them, or pass enable_gqa=True where heads of query share those of key and value"
        return ShapeMismatch("the leading dimensions do not broadcast", evidence=shapes, remedy=remedy)

    lead = (*query.shape[:-3], query.shape[-3] // group) if query.dim() > 2 else ()
    try:
        leading = _broadcast(query, lead, key.shape[:-2], value.shape[:-2])
    except RuntimeError:
        raise misfit() from None
    heads = [*leading[:-1], leading[-1] * group] if leading else []

    def inside(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> list[Any]:
        """What the kernel takes: heads that share a key are an axis of their own. It is kept, and so holds no tensor."""
        q = query.unflatten(-3, (-1, group)) if query.dim() > 2 else query.unsqueeze(0)  # type: ignore[no-untyped-call]
        given, ends = [q, key, value], [q.shape[-3:], key.shape[-2:], value.shape[-2:]]
        try:
            if len(others) > 1:
                mask = torch.atleast_2d(others[0])  # type: ignore[no-untyped-call]
                of_heads = mask.dim() > 2 and mask.shape[-3] != 1
                given.append(mask.unflatten(-3, (-1, group)) if of_heads else mask.unsqueeze(-3))
                ends.append(torch.Size((group, query.shape[-2], key.shape[-2])))
            given = [_batched(t.expand(*leading, *end), len(end) + 2) for t, end in zip(given, ends, strict=True)]
        except RuntimeError:
            raise misfit() from None
        if group == 1:  # of q and mask, one of each
            given = [t.squeeze(2) if t.dim() == 5 else t for t in given]
        return [*given, others[-1]]

    def outside(out: Tensor) -> Tensor:
        """[batch, heads of query, queries, lanes], with all leading dimensions."""
        out = (out if group == 1 else out.flatten(2, 3)).transpose(1, 2)
        return out.view(*heads, *out.shape[-2:])

    by = (attended_causal, attended_causal_alone) if is_causal else (attended, attended_alone)
    if attn_mask is not None:
        masked, biased = (attended_masked, attended_masked_alone), (attended_biased, attended_biased_alone)
        by = masked if attn_mask.dtype == torch.bool else biased
    return called_with_views(by[group == 1], ways, (*tensors.values(), scale), inside, outside)  # type: ignore[no-any-return]


def paged_attention(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, lengths: Tensor, scale: float | None = None
) -> Tensor:
    """Causal attention on keys and values that lie in pages, as a decoder's cache does.

    query: [batch, heads, queries, width], of the last tokens of each sequence: the i-th has the keys up to
    `lengths[b] - queries + i`. key: [pages, page, shared, width]; value: [pages, page, shared, lanes]; heads are a multiple of
    those that key and value share. table: integers, [batch, most]; the j-th token of b is in the page `table[b, j // page]`.
    What no query has of pages and table may be anything. lengths: integers, [batch]. scale: 1 / sqrt(width) if none is given.

    Returns [batch, heads, queries, lanes]; a query without keys gives 0. Raises ShapeMismatch and TypeMismatch; an entry of the
    table that is no page, or a length beyond the table, ends the kernel.
    """
    _check_dtypes(query, key, value, None)
    sizes = {"query": 4, "key": 4, "value": 4, "table": 2, "lengths": 1}
    given = dict(zip(sizes, (query, key, value, table, lengths), strict=True))
    shapes = [f"{name} is {list(t.shape)}" for name, t in given.items()]
    alike = all(t.dim() == sizes[name] for name, t in given.items()) and key.shape[:3] == value.shape[:3]
    if not alike or query.shape[-1] != key.shape[-1] or not query.shape[0] == table.shape[0] == lengths.shape[0]:
        remedy = "pass query as [batch, heads, queries, width], pages as [pages, page, shared, width], table as [batch, most]"
        raise ShapeMismatch("query, key, value and their table do not fit each other", evidence=shapes, remedy=remedy)
    group = _group(query.shape[1], max(key.shape[2], 1), shapes)
    q = query.unflatten(1, (-1, group))  # type: ignore[no-untyped-call]
    out = attended_in_pages(q, key, value, table, lengths, 1 / math.sqrt(max(query.shape[-1], 1)) if scale is None else scale)
    return out.flatten(2, 3).transpose(1, 2)  # type: ignore[no-any-return]


def _group(heads: int, shared: int, shapes: Sequence[str]) -> int:
    """How many heads of query share one of key and value. Raises ShapeMismatch where it is not as many for each."""
    group, left = divmod(heads, shared)
    if left or not group:
        remedy = "give query a multiple of the heads of key and value"
        raise ShapeMismatch("the heads of query cannot share those of key evenly", evidence=shapes, remedy=remedy)
    return group


def _autocast(*tensors: Tensor | None) -> list[Any]:
    """Tensors as autocast gives them to PyTorch's attention."""
    device = next(t.device.type for t in tensors if t is not None)
    if not torch.is_autocast_enabled(device):
        return [*tensors]
    dtype = torch.get_autocast_dtype(device)
    cast = [t is not None and t.is_floating_point() and t.dtype != torch.float64 for t in tensors]
    return [t.to(dtype) if t is not None and c else t for t, c in zip(tensors, cast, strict=True)]


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None) -> None:
    if not query.is_floating_point() or not query.dtype == key.dtype == value.dtype:
        raise TypeMismatch(
            "query, key and value are of one floating type",
            evidence=[f"{name} is {t.dtype}" for name, t in (("query", query), ("key", key), ("value", value))],
            remedy="convert them before",
        )
    if attn_mask is not None and attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise TypeMismatch(
            f"attn_mask is {attn_mask.dtype}",
            remedy="pass a bool, which says what keys a query has, or floats, which are added to scores",
        )


def _broadcast(tensor: Tensor, *shapes: Sequence[int]) -> torch.Size:
    """`torch.broadcast_shapes` without what that imports, which takes a first call most of a second. tensor: where to ask."""
    nothing = tensor.new_empty(())
    found: list[Tensor] = torch.broadcast_tensors(*(nothing.expand(tuple(s)) for s in shapes))  # type: ignore[no-untyped-call]
    return found[0].shape


def _batched(tensor: Tensor, dimensions: int) -> Tensor:
    """A tensor with so many dimensions, whose first is all that are more than that."""
    missing = dimensions - tensor.dim()
    return tensor[(None,) * missing] if missing >= 0 else tensor.flatten(0, -missing)
