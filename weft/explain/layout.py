"""A layered drawing of a directed graph: boxes in ranks from top to bottom, links between them that run through no box.

The steps are the classical ones: links against the order are turned round; a box comes below all that link to it,
in a rank that has room;
a link over several ranks, and the label of a link, get places of their own in the ranks between; each rank is put in the
order that lets fewest links cross; and the places of each rank move towards their neighbours, as near as their widths allow.
Links bend in the gaps between ranks alone, so they meet no box and no label.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SEPARATION = 14.0  # between neighbours in a rank
_GAP = 18.0  # between ranks, at least
_SWEEPS = 12
_STRAIGHT = 6.0  # how much more a long link is kept straight than a short one
_WIDEST = 640.0  # the boxes of a rank, together, unless one is wider

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A box of `width` x `height`; `beside` is room to its right that is its own (for what it says of itself).

    end: "first" or "last" for what has to be in the first or the last rank.
    """

    key: str
    width: float
    height: float
    beside: float = 0.0
    end: str = ""


@dataclass(frozen=True)
class Link:
    """A link with a label of this size. tail, head: where it leaves its source and enters its sink, from their left edges;
    None: wherever there is room.
    """

    source: str
    sink: str
    width: float = 0.0
    height: float = 0.0
    tail: float | None = None
    head: float | None = None


@dataclass(frozen=True)
class Route:
    """points: from source to sink, by turns the ends of a straight line and the ends of a bend. label: its left upper
    corner.
    """

    points: tuple[Point, ...]
    label: Point | None


@dataclass(frozen=True)
class Layout:
    """corners: the left upper corner of each box; routes: of each link, in the order they were given."""

    width: float
    height: float
    corners: dict[str, Point]
    routes: tuple[Route, ...]


@dataclass
class _Place:
    """A place in a rank: a box, a label or a point of a link. left, right: how far it reaches from its `x`."""

    left: float
    right: float
    height: float
    rank: int
    x: float = 0.0
    above: list[_Place] = field(default_factory=list)
    below: list[_Place] = field(default_factory=list)
    link: bool = False

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def layered(boxes: Sequence[Box], links: Sequence[Link]) -> Layout:
    """The drawing of a graph whose boxes come in the order in which they are best read."""
    order = {box.key: k for k, box in enumerate(boxes)}
    by_key = {box.key: box for box in boxes}
    downward = [(k.source, k.sink) if order[k.source] < order[k.sink] else (k.sink, k.source) for k in links]
    ranks = _ranks(boxes, links, downward)
    places = {b.key: _Place(b.width / 2, b.width / 2 + b.beside, b.height, ranks[b.key]) for b in boxes}
    chains = [_chain(places[a], places[b], link) for (a, b), link in zip(downward, links, strict=True)]
    rows = _rows([*places.values(), *(p for chain in chains for p in chain[1:-1])])
    _order_rows(rows)
    _set_x(rows, chains)
    ends = _ends(chains, links, downward, places, by_key)
    tops, bottoms = _set_y(rows, _spans(chains, ends))
    routes = []
    for chain, link, (upper, _), (leave, enter) in zip(chains, links, downward, ends, strict=True):
        points: list[Point] = []
        for k, p in enumerate(chain):
            middle = (tops[p.rank] + bottoms[p.rank]) / 2
            if k > 0:
                points += [(enter if p is chain[-1] else p.x, tops[p.rank])]
            if k == len(chain) - 1:
                points.append((enter, middle - p.height / 2))
            elif k == 0:
                points = [(leave, middle + p.height / 2), (leave, bottoms[p.rank])]
            else:
                points.append((p.x, bottoms[p.rank]))
        named = next((p for p in chain[1:-1] if p.right > 0), None)
        label = None
        if named is not None:
            label = named.x + _BESIDE, (tops[named.rank] + bottoms[named.rank] - link.height) / 2
        routes.append(Route(tuple(points if upper == link.source else reversed(points)), label))
    corners = {k: (p.x - p.left, (tops[p.rank] + bottoms[p.rank] - p.height) / 2) for k, p in places.items()}
    width = max((p.x + p.right for row in rows for p in row), default=0.0)
    return Layout(width, max(bottoms, default=0.0), corners, tuple(routes))


_BESIDE = 6.0  # from a link to its label


def _ranks(boxes: Sequence[Box], links: Sequence[Link], downward: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The rank of each box: below those that link to it, with a rank between for the label."""
    ranks: dict[str, int] = {}
    used: dict[int, float] = defaultdict(float)
    first = any(b.end == "first" for b in boxes)
    for box in boxes:
        needs = [ranks[a] + (2 if k.width else 1) for k, (a, b) in zip(links, downward, strict=True) if b == box.key]
        rank = max(needs, default=1 if first and box.end != "first" else 0)
        while not box.end and used[rank] and used[rank] + box.width + box.beside > _WIDEST:
            rank += 2
        ranks[box.key] = rank
        used[rank] += box.width + box.beside + _SEPARATION
    last = max((ranks[b.key] + (b.end != "last") for b in boxes), default=0)
    ranks |= {b.key: last for b in boxes if b.end == "last"}
    return ranks


def _chain(upper: _Place, lower: _Place, link: Link) -> list[_Place]:
    """The places of a link, from the upper box to the lower one; its label is in the first rank between."""
    chain = [upper]
    for rank in range(upper.rank + 1, lower.rank):
        labelled = link.width > 0 and rank == upper.rank + 1
        right, height = (link.width + _BESIDE, link.height) if labelled else (0.0, 0.0)
        chain.append(_Place(0.0, right, height, rank, link=True))
    chain.append(lower)
    for a, b in zip(chain, chain[1:], strict=False):
        a.below.append(b)
        b.above.append(a)
    return chain


def _rows(places: Sequence[_Place]) -> list[list[_Place]]:
    rows: list[list[_Place]] = [[] for _ in range(max((p.rank for p in places), default=-1) + 1)]
    for p in places:
        rows[p.rank].append(p)
    return rows


# ---------------------------------------------------------------- the order in a rank


def _order_rows(rows: list[list[_Place]]) -> None:
    """Order each rank by the middle of its neighbours, down and up by turns; the order with fewest crossings stays."""
    best, fewest = [list(row) for row in rows], _crossings(rows)
    at = {p: float(k) for row in rows for k, p in enumerate(row)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = {p: p.above if down else p.below for p in row}
            middle = {p: sum(at[n] for n in own) / len(own) if own else at[p] for p, own in near.items()}
            row.sort(key=middle.__getitem__)
            at |= {p: float(k) for k, p in enumerate(row)}
        crossings = _crossings(rows)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _crossings(rows: list[list[_Place]]) -> int:
    count = 0
    for upper, lower in zip(rows, rows[1:], strict=False):
        at = {p: k for k, p in enumerate(lower)}
        ends = [at[b] for a in upper for b in sorted(a.below, key=lambda p: at[p])]
        count += sum(x > y for k, x in enumerate(ends) for y in ends[k + 1 :])
    return count


# ---------------------------------------------------------------- coordinates


def _set_x(rows: list[list[_Place]], chains: Sequence[list[_Place]]) -> None:
    for row in rows:
        _spread(row, [0.0] * len(row), [1.0] * len(row))
    for sweep in range(4 * _SWEEPS):
        down, settling = sweep % 2 == 0, sweep >= 2 * _SWEEPS
        for row in rows if down else reversed(rows):
            wanted, weights = [], []
            for p in row:
                near = [*p.above, *p.below] if settling else p.above if down else p.below
                pulls = [(n.x, _STRAIGHT ** (n.link + p.link)) for n in near]
                total = sum(w for _, w in pulls)
                wanted.append(sum(x * w for x, w in pulls) / total if pulls else p.x)
                weights.append(total or 0.1)
            _spread(row, wanted, weights)
    for _ in range(_SWEEPS):
        _straighten(rows, chains)
    left = min((p.x - p.left for row in rows for p in row), default=0.0)
    for row in rows:
        for p in row:
            p.x -= left


def _straighten(rows: list[list[_Place]], chains: Sequence[list[_Place]]) -> None:
    """Let long links run straight down as far as their neighbours leave room."""
    beside: dict[_Place, tuple[_Place | None, _Place | None]] = {}
    for row in rows:
        for k, p in enumerate(row):
            beside[p] = row[k - 1] if k else None, row[k + 1] if k + 1 < len(row) else None
    for chain in chains:
        run: list[_Place] = []
        low, high = -math.inf, math.inf
        for p in chain[1:-1]:
            left, right = beside[p]
            least = -math.inf if left is None else left.x + left.right + _SEPARATION + p.left
            most = math.inf if right is None else right.x - right.left - _SEPARATION - p.right
            if run and max(low, least) > min(high, most):
                _line_up(run, low, high)
                run, low, high = [], -math.inf, math.inf
            run.append(p)
            low, high = max(low, least), min(high, most)
        _line_up(run, low, high)


def _line_up(run: Sequence[_Place], low: float, high: float) -> None:
    """Put places under each other, between two bounds."""
    x = min(max(sum(p.x for p in run) / max(1, len(run)), low), high)
    for p in run:
        p.x = x


def _spread(row: Sequence[_Place], wanted: Sequence[float], weights: Sequence[float]) -> None:
    """The places nearest to those wanted, by weighted squares, that keep their order and their distance: neighbours that
    come too near are merged into a group, which moves as one.
    """
    offset, shift = [], 0.0
    for k, p in enumerate(row):
        shift += (row[k - 1].right + _SEPARATION + p.left) if k else 0.0
        offset.append(shift)
    groups: list[tuple[float, float, int]] = []  # (where, weight, how many)
    for target, weight, own in zip(wanted, weights, offset, strict=True):
        groups.append((target - own, weight, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (x, w, n), (y, v, m) = groups[-2:]
            groups[-2:] = [((x * w + y * v) / (w + v), w + v, n + m)]
    where = [x for x, _, n in groups for _ in range(n)]
    for p, x, own in zip(row, where, offset, strict=True):
        p.x = x + own


def _spans(chains: Sequence[list[_Place]], ends: Sequence[tuple[float, float]]) -> dict[int, float]:
    """How far links go sideways below each rank, at most."""
    spans: dict[int, float] = defaultdict(float)
    for chain, (leave, enter) in zip(chains, ends, strict=True):
        xs = [leave, *(p.x for p in chain[1:-1]), enter]
        for place, x, y in zip(chain, xs, xs[1:], strict=False):
            spans[place.rank] = max(spans[place.rank], abs(x - y))
    return spans


def _set_y(rows: Sequence[Sequence[_Place]], spans: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Top and bottom of each rank; the farther links go sideways between two ranks, the more room they get."""
    tops, bottoms, y = [], [], 0.0
    heights = [max((p.height for p in row), default=0.0) for row in rows]
    for k, height in enumerate(heights):
        tops.append(y)
        bottoms.append(y + height)
        at_end = any(row and all(p.height == 0 and not p.link for p in row) for row in rows[k : k + 2])
        none = not rows[k] or (at_end and spans.get(k, 0.0) < 0.5)
        y += height + (0.0 if none else min(3 * _GAP, _GAP + 0.08 * spans.get(k, 0.0)))
    return tops, bottoms


def _ends(
    chains: Sequence[list[_Place]], links: Sequence[Link], downward: Sequence[tuple[str, str]],
    places: dict[str, _Place], boxes: dict[str, Box],
) -> list[tuple[float, float]]:  # fmt: skip
    """Where each link leaves the upper box and enters the lower one: side by side, in the order of where they go."""
    ends = [[0.0, 0.0] for _ in links]
    for side in (0, 1):
        at: dict[str, list[int]] = defaultdict(list)
        for k, pair in enumerate(downward):
            at[pair[side]].append(k)
        for key, own in at.items():
            left = places[key].x - places[key].left
            free = []
            for k in own:
                fixed = links[k].tail if key == links[k].source else links[k].head
                if fixed is None:
                    free.append(k)
                else:
                    ends[k][side] = left + fixed
            free.sort(key=lambda k: chains[k][1].x if side == 0 else chains[k][-2].x)
            step = min(boxes[key].width / (len(free) + 1), _SEPARATION)
            for n, k in enumerate(free):
                ends[k][side] = left + boxes[key].width / 2 + (n - (len(free) - 1) / 2) * step
    return [(a, b) for a, b in ends]
