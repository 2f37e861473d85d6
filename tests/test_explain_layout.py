"""The layered layout of a graph: boxes and labels are apart, links run through none of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from weft.explain.layout import Box, Link, layered

Rectangle = tuple[float, float, float, float]


def apart(a: Rectangle, b: Rectangle) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def readable(boxes: Sequence[Box], links: Sequence[Link]) -> None:
    drawn = layered(boxes, links)
    corners = [(b, *drawn.corners[b.key]) for b in boxes]
    solid: list[Rectangle] = [(x, y, x + b.width + b.beside, y + b.height) for b, x, y in corners]
    for route, link in zip(drawn.routes, links, strict=True):
        assert route.label is not None
        x, y = route.label
        solid.append((x, y, x + link.width, y + link.height))
    for k, a in enumerate(solid):
        assert a[0] >= -0.01 and a[2] <= drawn.width + 0.01 and a[1] >= -0.01 and a[3] <= drawn.height + 0.01
        assert all(apart(a, b) for b in solid[k + 1 :])
    for route, link in zip(drawn.routes, links, strict=True):
        for (x, y), (_, z) in zip(route.points[::2], route.points[1::2], strict=True):  # straight down or up
            low, high = min(y, z), max(y, z)
            assert not any(a[0] < x < a[2] and a[1] + 0.01 < high and low < a[3] - 0.01 for a in solid)
        for (_, y), (_, z) in zip(route.points[1::2], route.points[2::2], strict=False):  # a bend, between two ranks
            low, high = min(y, z), max(y, z)
            assert not any(a[1] + 0.01 < high and low < a[3] - 0.01 for a in solid)
        for key, (x, y) in ((link.source, route.points[0]), (link.sink, route.points[-1])):
            box = next(b for b in boxes if b.key == key)
            left, top = drawn.corners[key]
            assert left < x < left + box.width and min(abs(y - top), abs(y - top - box.height)) < 0.01, "a loose end"


def test_all_graphs_of_three_boxes() -> None:
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    boxes = [Box(f"S{k}", 60.0 + 70.0 * (k % 2), 28.0, beside=40.0 * (k == 2)) for k in range(3)]
    for bits in range(1 << len(pairs)):
        chosen = [pair for k, pair in enumerate(pairs) if bits >> k & 1]
        readable(boxes, [Link(f"S{a}", f"S{b}", 20.0 + 60.0 * (a % 2), 14.0) for a, b in chosen])


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Link]]:
    count = draw(st.integers(2, 9))
    size = st.floats(10.0, 300.0)
    boxes = [
        Box(f"S{k}", draw(size), draw(st.sampled_from([28.0, 45.0])), draw(st.sampled_from([0.0, 90.0]))) for k in range(count)
    ]
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] != p[1])
    links = [
        Link(f"S{a}", f"S{b}", draw(size), draw(st.sampled_from([15.0, 30.0]))) for a, b in draw(st.lists(ends, max_size=16))
    ]
    return boxes, links


@given(graphs())
def test_any_graph(graph: tuple[list[Box], list[Link]]) -> None:
    readable(*graph)


def test_long_links_run_straight_where_there_is_room() -> None:
    boxes = [Box(f"S{k}", 80.0, 28.0) for k in range(6)]
    links = [Link(f"S{k}", f"S{k + 1}", 30.0, 14.0) for k in range(5)] + [Link("S0", "S5", 30.0, 14.0)]
    points = layered(boxes, links).routes[-1].points
    assert len({round(x, 3) for x, _ in points[2:-2]}) == 1, points


def test_links_that_need_not_cross_do_not() -> None:
    boxes = [Box(key, 50.0, 20.0) for key in "abcd"]
    drawn = layered(boxes, [Link("a", "d", 10.0, 10.0), Link("b", "c", 10.0, 10.0)])
    x = {key: corner[0] for key, corner in drawn.corners.items()}
    assert (x["a"] < x["b"]) == (x["d"] < x["c"])


def test_an_empty_graph_has_a_layout() -> None:
    assert layered([], []).corners == {}
