"""The suite itself looks at every nest that a transform makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.validated import BrokenNest
from weft.language import parse
from weft.language.types import TensorType
from weft.loops import analyze
from weft.loops.automatic.distribute import Distributed
from weft.loops.automatic.rewriting import Rewriting
from weft.loops.ir import Function, Ref, Store
from weft.loops.types import FLOAT32


def _function() -> Function:
    def first(x):
        for i in range(x.shape[0]):
            x[i] = 1.0

    return parse(first, {"x": TensorType(FLOAT32, 1)})


def _broken(function: Function) -> Function:
    store = next(s for s in analyze.walk(function.body) if isinstance(s, Store))
    return replace(function, body=(replace(store, value=Ref("nowhere", FLOAT32)),))


def test_a_broken_nest_is_found_where_it_is_made() -> None:
    good = _function()
    for make in (lambda f: Rewriting(f, {}), lambda f: Distributed(f, {})):
        assert make(good).function is good
        with pytest.raises(BrokenNest, match="is not in scope"):
            make(_broken(good))


def test_a_broken_schedule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert analyze.schedule(_function()).nests
    # what the wrapper around `schedule` sees is what the schedule itself gives
    broken = replace(analyze.schedule(_function()), function=_broken(_function()))
    monkeypatch.setattr(analyze, "_with_states_in_memory", lambda found: broken)
    with pytest.raises(BrokenNest, match="of a schedule"):
        analyze.schedule(_function())
