"""Along which axis neighbouring threads lie, where each works through the whole body of an iteration."""

from __future__ import annotations

import torch

import weft
from weft.plan.threads import ThreadPlan
from weft.pytorch.inspection import examine


@weft.kernel
def handed_back(g, w):
    """What windows of 5 that begin 2 apart hand to each element: images side by side lie far apart."""
    images, channels, width = g.shape
    y = torch.empty(images, channels, 2 * width)
    for c in range(channels):
        for b in range(2 * width):
            for n in range(images):
                s = 0.0
                for j in range(max(0, (b - 3) // 2 + 1), min(width, (b + 2) // 2 + 1)):
                    s += g[n, c, j] * w[c, b - 2 * j + 2]
                y[n, c, b] = s
    return y


def test_neighbours_lie_along_memory_where_a_window_moves_with_an_axis() -> None:
    (launch,) = examine(handed_back, ("float32[32,100,56]", "float32[100,5]")).launches()
    assert isinstance(launch.variant.plan, ThreadPlan) and launch.variant.plan.order[-1] == "b"


def test_a_bound_with_a_choice_in_it_is_compared_as_a_whole() -> None:
    @weft.kernel
    def polynomials(x, degrees):
        """Coefficients in an array of a row's own; so many of them as a number that is no integer tells."""
        rows, many = x.shape
        y = torch.empty(rows)
        for i in range(rows):
            own = torch.empty(5)
            for k in range(5):
                own[k] = x[i, k % many]
            s = 0.0
            for k in range(int(degrees[i])):
                s = s * degrees[i] + own[k]
            y[i] = s
        return y

    report = polynomials.check(torch.randn(6, 4), torch.tensor([0.0, 1.0, 2.5, 3.0, 4.0, 5.0]))
    assert report.ok, report
