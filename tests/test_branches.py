"""Branches taken apart, so that what they store may be stored by loops of its own."""

from __future__ import annotations

import pytest
import torch

import weft


def either(a, b, c, d):
    for i in range(a.shape[0] - 1):
        if b[i] < 0.0:
            c[i + 1] = a[i] + d[i] * d[i]
        else:
            a[i] = c[i] + d[i] * b[i]


def nested(a, b, c, d):
    for i in range(a.shape[0] - 1):
        if a[i] < 0.0:
            if b[i] < 0.0:
                a[i] += c[i] * d[i]
            b[i + 1] = c[i] + d[i] * d[i]


def condition_overwritten(a, b, c, d):
    for i in range(a.shape[0] - 1):
        if a[i] < 0.0:
            a[i] = 1.0
            a[i + 1] = b[i] - 0.2
            c[i] = a[i] + d[i]


@pytest.mark.parametrize(
    ("function", "kind"), [(either, "parallel"), (nested, "parallel"), (condition_overwritten, "sequential")]
)
def test_branches_in_loops_of_their_own(function, kind: str) -> None:
    assert weft.analyze(function).loops["i"].kind == kind
    kernel = weft.kernel(function)
    for n in (1, 2, 9, 40):
        ours, theirs = ([torch.randn(n, generator=torch.Generator().manual_seed(s)) for s in range(4)] for _ in range(2))
        kernel(*ours)
        function(*theirs)
        torch.testing.assert_close(ours, theirs)


def test_what_a_condition_guards_compiles_and_stays_inside() -> None:
    """A tile that is loaded where some iterations ask for it stops at the end of its array."""
    report = weft.kernel(either).check(*["float32[70]"] * 4)
    assert report.ok, str(report)
