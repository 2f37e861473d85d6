"""Chained products on a CPU: which axis has its rows side by side in lanes, if the products are such that they may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from weft.graph.chains import Chain, by_rows
from weft.graph.tile import Read, uses, uses_of_write
from weft.loops.ir import ZERO, Check, Expr, Function, Load, checks_in, walk_expr
from weft.loops.schedule import Nest
from weft.loops.types import FLOAT32, FLOAT64
from weft.plan.chain import all_inside
from weft.plan.extents import extents_of
from weft.plan.facts import Geometry

_FEWEST_ROWS = 8  # side by side, that a tile of lanes is worth it


def rows_in_lanes(
    function: Function, nest: Nest, chain: Chain, names: Mapping[str, int], arrays: Mapping[str, Geometry]
) -> str | None:
    """The axis of a chain whose rows lie side by side in lanes, for the sizes of a call; None where rows are few, where what
    the nest does is checked as it runs, or where its products are of other types than float and double.
    """
    if not _fits(function, nest, chain) or not all_inside(chain, names, arrays):
        return None
    extents = extents_of(chain.axes, names)
    most, row = max(((extents[a], a) for a in by_rows(chain)), key=lambda found: found[0])
    return row if most >= _FEWEST_ROWS else None


def _fits(function: Function, nest: Nest, chain: Chain) -> bool:
    folds = chain.folds
    types = {t for f in folds for t in f.types}
    if types not in ({FLOAT32}, {FLOAT64}) or chain.together is not None or chain.pages:
        return False
    if any(chain.axes[a].start != ZERO for a in (chain.row, chain.point, *chain.sums.columns)):
        return False
    exprs = [*_exprs(chain)]
    checked = bool(checks_in(nest.body)) or any(isinstance(v, Read) and v.checked for v in chain.values)
    checked = checked or any(isinstance(e, Check | Load) for root in exprs for e in walk_expr(root))
    return not checked and not any(function.array(a).within for a in chain.arrays)


def _exprs(chain: Chain) -> Iterator[Expr]:
    if chain.given is not None:
        yield chain.given
    for v in chain.values:
        yield from uses(v)
    for w in (*chain.writes, *chain.sums.sweeps.last):
        yield from uses_of_write(w)
