"""What an update of a loop claims, held against numbers: elements of the algebras applied to states and combined with each
other, and whether a map that is known by some of its values can be an element at all.

States are lists of Python numbers, elements tuples of them. A part that an iteration does not evaluate is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from weft.loops.algebra.table import AFFINE, ALGEBRAS, CLAMP, EXTREMA, FIRST, LINEAR, SELECT, segmented
from weft.loops.interpret import _fit
from weft.loops.operators import OPERATORS
from weft.loops.types import ScalarType

Element = tuple[Any, ...]
State = list[Any]

_BETTER = {"argmax": "gt", "argmin": "lt", "argmax_last": "ge", "argmin_last": "le", FIRST: "lt"}  # a flag falls
_TOLERANCE = 1e-6  # some programs are of float32


def _operate(name: str, *args: Any) -> Any:
    return OPERATORS[name].evaluate(*args)


def evaluated(algebra: str, values: int, parts: Sequence[Callable[[], Any]]) -> Element:
    """An element, each part evaluated only where the algebra looks at it: no one may be able to compute the others."""
    inner = segmented(algebra)
    if inner is not None:
        return (True, parts[1]()) if parts[0]() else (False, None, *evaluated(inner, values, parts[2:]))
    if algebra == SELECT:
        return (True, parts[1]()) if parts[0]() else (False, None)
    if algebra in EXTREMA:
        if not parts[1]():
            return (None, False, *(None for _ in parts[2:]))
        value = parts[0]()
        return (value, True, *(_of_a_winner(p) for p in parts[2:]))
    if algebra == LINEAR:
        square = values * values
        present = [p() for p in parts[square : 2 * square]]
        coefficients = [p() if here else None for p, here in zip(parts, present, strict=False)]
        return (*coefficients, *present, *(p() for p in parts[2 * square :]))
    return tuple(p() for p in parts)


def _of_a_winner(part: Callable[[], Any]) -> Any:
    """What is kept beside an extremum: only the one that wins is asked for it, so another one's may fail."""
    try:
        return part()
    except (IndexError, ArithmeticError):
        return None


def applied(algebra: str, state: State, element: Element, type_: ScalarType) -> State:
    """An element applied to a state. type_: the first value's; integers wrap."""
    inner = segmented(algebra)
    if inner is not None:
        return [element[1]] if element[0] else applied(inner, state, element[2:], type_)
    if algebra in ALGEBRAS:
        return [_fit(_operate(ALGEBRAS[algebra].join, state[0], element[0]), type_)]
    if algebra == AFFINE:
        return [_fit(element[0] * state[0] + element[1], type_)]
    if algebra == SELECT:
        return [element[1]] if element[0] else state
    if algebra == CLAMP:
        shift, low, high = element
        return [_operate("min", _operate("max", _fit(state[0] + shift, type_), low), high)]
    if algebra in EXTREMA:
        wins = element[1] and _operate(_BETTER[algebra], element[0], state[0])
        return [element[0], *element[2:]] if wins else state
    assert algebra == LINEAR
    n = len(state)
    return [
        _fit(element[2 * n * n + i] + sum(element[i * n + j] * state[j] for j in range(n) if element[n * n + i * n + j]), type_)
        for i in range(n)
    ]


def combined(algebra: str, first: Element, second: Element, type_: ScalarType) -> Element:
    """The element that does what `first` does and then what `second` does."""
    inner = segmented(algebra)
    if inner is not None:
        if second[0]:
            return second
        if first[0]:
            return True, applied(inner, [first[1]], second[2:], type_)[0]
        return (False, None, *combined(inner, first[2:], second[2:], type_))
    if algebra in ALGEBRAS:
        return (_fit(_operate(ALGEBRAS[algebra].combine, first[0], second[0]), type_),)
    if algebra == AFFINE:
        return _fit(second[0] * first[0], type_), _fit(second[0] * first[1] + second[1], type_)
    if algebra == SELECT:
        return second if second[0] else first
    if algebra == CLAMP:
        shift, low, high = second
        bounds = (_operate("min", _operate("max", b + shift, low), high) for b in first[1:])
        return (_fit(first[0] + shift, type_), *bounds)
    if algebra in EXTREMA:
        if not (first[1] and second[1]):
            return second if second[1] else first
        if first[0] != first[0]:  # never wins
            return second
        return second if _operate(_BETTER[algebra], second[0], first[0]) else first
    assert algebra == LINEAR
    n = math.isqrt(len(first) // 2)
    a, b = ([[e[i * n + j] if e[n * n + i * n + j] else None for j in range(n)] for i in range(n)] for e in (first, second))

    def product(i: int, j: int) -> Any:
        terms = [b[i][k] * a[k][j] for k in range(n) if b[i][k] is not None and a[k][j] is not None]
        return _fit(sum(terms), type_) if terms else None

    coefficients = [product(i, j) for i in range(n) for j in range(n)]
    addends = applied(algebra, list(first[2 * n * n :]), second, type_)
    return (*coefficients, *(c is not None for c in coefficients), *addends)


def close(found: Any, wanted: Any, scale: float = 0.0) -> bool:
    """Whether two numbers are the same but for rounding. What is not finite may be an infinity or a NaN. scale: the size of
    the numbers that they were computed from.
    """
    if found is None:  # it could not be computed
        return False
    if isinstance(wanted, (bool, int)):
        return bool(found == wanted)
    if not (math.isfinite(found) and math.isfinite(wanted)):
        return not (math.isfinite(found) or math.isfinite(wanted))
    return abs(found - wanted) <= _TOLERANCE * (1 + abs(wanted) + scale)


def probes(algebra: str, state: State, type_: ScalarType) -> list[State]:
    """States from which an element of the algebra can be told, besides the one given; the neutral ones come first."""
    inner = segmented(algebra) or algebra
    if type_.category == "bool":
        return [[flag, *state[1:]] for flag in (True, False)]
    n, number = len(state), (float if type_.category == "float" else int)
    some = [number(v) for v in (0, 1, -2, 3, 5)] + ([0.37, -1.625] if type_.category == "float" else [])
    if inner == LINEAR:
        units = [[number(i == j) for i in range(n)] for j in range(n)]
        return [[number(0)] * n, *units, [number(k + 2) for k in range(n)], [number(3 - 2 * k) for k in range(n)]]
    if inner in EXTREMA:
        neutral = ALGEBRAS["min" if inner == FIRST else inner[3:6]].identity(type_).value
        return [[v, *state[1:]] for v in (neutral, *some)]
    if inner in ALGEBRAS:
        return [[ALGEBRAS[inner].identity(type_).value], *([v] for v in some)]
    if inner == CLAMP:
        bound = math.inf if type_.category == "float" else 10**6
        return [[-bound], [bound], *([v] for v in some)]
    return [[v] for v in some]


def possible(algebra: str, before: Sequence[State], after: Sequence[State], type_: ScalarType) -> bool:
    """Whether some element takes each of these states, those of `probes` first, to what it became."""
    inner = segmented(algebra)
    if inner is not None:
        anew = all(close(a[0], after[0][0]) for a in after)
        return anew or possible(inner, before, after, type_)
    if algebra == SELECT:
        kept = all(close(a[0], b[0]) for a, b in zip(after, before, strict=True))
        return kept or all(close(a[0], after[0][0]) for a in after)
    elements: list[Element]
    if algebra == "sum":
        elements = [(_fit(after[0][0] - before[0][0], type_),)]
    elif algebra in ALGEBRAS:  # the first state is the neutral one
        elements = [(after[0][0],)]
    elif algebra == AFFINE:
        elements = [(_fit(after[1][0] - after[0][0], type_), after[0][0])]
    elif algebra == CLAMP:
        low, high = after[0][0], after[1][0]
        shifts = {_fit(a[0] - b[0], type_) for a, b in zip(after[2:], before[2:], strict=True)}
        elements = [(s, low, high) for s in shifts]
        if all(close(a[0], low) or close(a[0], high) for a in after):  # a step: where it is does not show
            rising = [a[0] for _, a in sorted(zip(before, after, strict=True), key=lambda p: p[0][0])]
            if all(x <= y or close(x, y) for x, y in zip(rising, rising[1:], strict=False)):
                return True
    elif algebra in EXTREMA:
        taken = next((a for b, a in zip(before, after, strict=True) if a != b), None)
        elements = [(None, False)] if taken is None else [(taken[0], True, *taken[1:])]
    else:
        assert algebra == LINEAR
        n = len(before[0])
        columns = [[a - b for a, b in zip(after[1 + j], after[0], strict=True)] for j in range(n)]
        elements = [(*(columns[j][i] for i in range(n) for j in range(n)), *(True,) * n * n, *after[0])]
    pairs = list(zip(before, after, strict=True))

    def leads(element: Element, b: State, a: State) -> bool:
        return all(close(x, y, _size(b)) for x, y in zip(applied(algebra, b, element, type_), a, strict=True))

    return any(all(leads(e, b, a) for b, a in pairs) for e in elements)


def _size(state: State) -> float:
    return max((abs(v) for v in state if math.isfinite(v)), default=0.0)
