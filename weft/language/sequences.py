"""What a for loop runs over: ranges, the rows of tensors, tuples, and `enumerate`, `zip` and `reversed` of them."""

from __future__ import annotations

from functools import reduce

from weft.errors import ShapeMismatch, TypeMismatch, UnsupportedSyntax
from weft.language import slices, tensors
from weft.language.builder import Builder
from weft.language.values import Computed, Range, Sequence, Tuple, Value, View, describe, difference, integer, tidy
from weft.loops.ir import ONE, Const, Equality, Expr, Op, Ref, free_names, has_load
from weft.loops.types import INT64

Items = Tuple | Range | Sequence


def items_of(b: Builder, value: Value) -> Items:
    """What a value gives one after another. Raises TypeMismatch where Python would not iterate over it."""
    if isinstance(value, (Tuple, Range, Sequence)):
        return value
    if isinstance(value, (View, Computed)) and value.dims:
        return _rows(b, value)
    raise TypeMismatch(
        f"a loop over {describe(value)}", remedy="loop over range(...), a tensor, a tuple, enumerate(...) or zip(...)"
    )


def _rows(b: Builder, value: View | Computed) -> Sequence:
    if isinstance(value, Computed) and (value.loops or _reads(b, value)):
        value = tensors.materialise(b, value, "rows")
    rows = value

    def row(k: Expr) -> Value:
        part = slices.subscript(b, rows, (integer(k),))
        return part if part.dims else tensors.element(b, part, ())

    return Sequence(rows.dims[0], row)


def _reads(b: Builder, value: Computed) -> bool:
    """Whether the elements of a tensor-valued expression may change while a loop runs over it."""
    restore = b.snapshot()
    with b.block() as statements:
        found = has_load(value.element(tuple(Ref("element", INT64) for _ in value.dims)))
    restore()
    return found or bool(statements)


def count_of(value: Range) -> Expr:
    """How many numbers a range has where it is not empty; zero or less where it is."""
    distance = difference(value.stop, value.start)
    if distance is not None:
        return Const(len(range(0, distance, value.step)), INT64)
    span = Op("sub", (value.stop, value.start) if value.step > 0 else (value.start, value.stop), INT64)
    step = abs(value.step)
    if step == 1:
        return tidy(span)
    above = tidy(Op("add", (tidy(span), Const(step - 1, INT64)), INT64))
    return Op("floordiv", (above, Const(step, INT64)), INT64)


def stepped(b: Builder, start: Expr, stop: Expr, step: Expr) -> Sequence:
    """`range(start, stop, step)` with a step that the call knows: its numbers are start + k * step."""
    known = b.in_sizes(step)
    if not free_names(known) <= b.fixed or has_load(known):
        raise UnsupportedSyntax(
            "a range whose step is computed by the kernel",
            remedy="pass the step as an argument, or loop over k in range(count) and use start + k * step",
        )
    size = Op("min", (Op("abs", (known,), INT64), ONE), INT64)
    b.equalities.append(Equality(size, ONE, "the step of a range must not be zero", b.location))
    # as many as ceil((stop - start) / step), for steps of either sign
    span = tidy(Op("sub", (start, stop), INT64))
    count = Op("neg", (Op("floordiv", (span, known), INT64),), INT64)

    def number_at(k: Expr) -> Value:
        return integer(Op("add", (start, Op("mul", (k, known), INT64)), INT64))

    return Sequence(count, number_at, once=False)


def _numbered(items: Range | Sequence) -> Sequence:
    """Ranges as sequences: their k-th number."""
    if isinstance(items, Sequence):
        return items

    def number_at(k: Expr) -> Value:
        moved = Op("mul", (k, Const(items.step, INT64)), INT64)
        return integer(Op("add", (items.start, moved), INT64))

    return Sequence(count_of(items), number_at)


def enumerated(b: Builder, value: Value, start: Expr) -> Items:
    """`enumerate(value, start)`."""
    items = items_of(b, value)

    def at(k: Expr) -> Value:
        return integer(Op("add", (start, k), INT64))

    if isinstance(items, Tuple):
        return Tuple(tuple(Tuple((at(Const(k, INT64)), item)) for k, item in enumerate(items.items)))
    over = _numbered(items)
    return Sequence(over.count, lambda k: Tuple((at(k), over.item(k))))


def zipped(b: Builder, values: tuple[Value, ...], strict: bool) -> Items:
    """`zip(*values, strict=strict)`: as long as the shortest."""
    sequences = [items_of(b, v) for v in values]
    tuples = [s for s in sequences if isinstance(s, Tuple)]
    if len(tuples) == len(sequences):
        if strict and len({len(t.items) for t in tuples}) > 1:
            raise ShapeMismatch("zip(strict=True) of tuples that differ in length", remedy="make them equally long")
        return Tuple(tuple(map(Tuple, zip(*(t.items for t in tuples), strict=False))))
    if tuples:
        raise TypeMismatch(
            "zip of a tuple and of what is as long as a tensor", remedy="write for k in range(...) and subscripts"
        )
    numbered = [_numbered(s) for s in sequences if not isinstance(s, Tuple)]
    counts = [s.count for s in numbered]
    if strict:
        for other in counts[1:]:
            b.require_equal(counts[0], other, "of what zip(strict=True) takes")
    else:
        counts = [c for k, c in enumerate(counts) if not any(b.same_size(c, other) for other in counts[:k])]
    shortest = counts[0] if strict else reduce(lambda x, y: Op("min", (x, y), INT64), counts)
    return Sequence(shortest, lambda k: Tuple(tuple(s.item(k) for s in numbered)))


def backwards(b: Builder, value: Value) -> Items | None:
    """`reversed(value)`; None where Python has none."""
    if isinstance(value, Tuple):
        return Tuple(tuple(reversed(value.items)))
    if isinstance(value, Range):
        return _reversed(value)
    if isinstance(value, Sequence) and not value.once:
        return _last_first(value)
    if isinstance(value, (View, Computed)) and value.dims:
        return _last_first(_rows(b, value))
    return None


def _last_first(over: Sequence) -> Sequence:
    last = tidy(Op("sub", (over.count, ONE), INT64))
    return Sequence(over.count, lambda k: over.item(tidy(Op("sub", (last, k), INT64))))


def _reversed(value: Range) -> Range:
    """The same numbers from the last to the first."""
    start, stop, step = value.start, value.stop, value.step
    sign = Const(1 if step > 0 else -1, INT64)
    if abs(step) == 1:
        return Range(tidy(Op("sub", (stop, sign), INT64)), tidy(Op("sub", (start, sign), INT64)), -step, once=True)
    walked = Op("mul", (Op("sub", (count_of(value), ONE), INT64), Const(step, INT64)), INT64)
    last = Op("add", (start, walked), INT64)
    return Range(tidy(last), tidy(Op("sub", (start, sign), INT64)), -step, once=True)


def is_iterator(value: Value) -> bool:
    """Whether a value can be run over once only, as what zip gives."""
    return isinstance(value, (Sequence, Range)) and value.once


def static_items(value: Items, most: int) -> tuple[Value, ...] | None:
    """The items where their number is known while parsing and at most `most`."""
    if isinstance(value, Tuple):
        return value.items
    over = _numbered(value)
    if not isinstance(over.count, Const) or over.count.value > most:
        return None
    return tuple(over.item(Const(k, INT64)) for k in range(int(over.count.value)))
