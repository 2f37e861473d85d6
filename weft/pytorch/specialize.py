"""Analyses of a function by the types of its arguments: in memory, on disk, or made now."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from weft.compiler import Analysis, analyze
from weft.errors import UnsupportedSyntax
from weft.language import ArgumentType, Capture, Signature, TensorType, default_float
from weft.loops.ir import Function, Store, Tiles, walk
from weft.loops.schedule import ORDINARY, Circumstances
from weft.runtime import cache
from weft.runtime.collection import uncollected
from weft.runtime.stack import deep


class Specializable(Protocol):
    """What has analyses for the types of its arguments: one for calls whose sizes agree as expected, one for any.

    identity: equal for what means the same, in another process too.
    """

    @property
    def identity(self) -> str: ...
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function: ...
    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        circumstances: Circumstances = ORDINARY,
    ) -> Analysis: ...


@functools.lru_cache(maxsize=1)
def compiler_version() -> str:
    """What an analysis on disk depends on besides the function: this package's own code."""
    return digest_of(Path(__file__).parent.parent)


def digest_of(root: Path) -> str:
    """Of the modules in a package's rooms up to `compiler`, and in the rooms in those; not of their text."""
    rooms = [root / room for room in ("language", "loops", "graph", "plan", "emit", "compiler")]
    places = [str(root), *(place for room in rooms for place, *_ in os.walk(room))]
    return hashlib.sha256("".join(sorted(f for place in places for f in _modules(place, str(root)))).encode()).hexdigest()


def _modules(place: str, root: str) -> Iterator[str]:
    """What tells the modules in a directory from what they were. There are hundreds: `Path` takes four times as long."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                facts = entry.stat()
                yield f"{entry.path.removeprefix(root)} {facts.st_size} {facts.st_mtime_ns}\n"


class Specializer:
    """The analyses of one Python function, all its names, and PyTorch's default dtype, being what they were when it was
    captured.
    """

    def __init__(self, capture: Capture, signature: Signature, tiles: Tiles = ()) -> None:
        self._capture = capture
        self._tiles = tiles
        self._default = default_float()
        self._signature = signature
        self._analyses: dict[Any, Analysis] = {}

    @property
    def identity(self) -> str:
        return f"{self._capture.identity} {self._default}{f' in {self._tiles}' if self._tiles else ''}"

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool, checked: frozenset[str] = frozenset()) -> Function:
        from weft.language import parse
        from weft.loops.agree import agreeing

        given = dict(zip(self._signature.names, types, strict=True))
        function = parse(self._capture.source, given, default=self._default, checked=checked)
        function = replace(function, tiles=self._tiles)
        return agreeing(function)[0] if agree else function

    @deep
    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        circumstances: Circumstances = ORDINARY,
    ) -> Analysis:
        key = (types, agree, circumstances)
        found = self._analyses.get(key)
        if found is None:
            make = functools.partial(self.function, types, False, circumstances.checked)
            found = recalled(self.identity, types, agree, make, circumstances)
            _refuse_untold(found.function, self._signature, types)
            self._analyses[key] = found
        return found


def _refuse_untold(function: Function, signature: Signature, types: tuple[ArgumentType, ...]) -> None:
    """Raise UnsupportedSyntax where an argument is stored into and the signature, which autograd and torch.compile go by, does
    not tell.
    """
    told = {*signature.written, *(t.same for t in types if isinstance(t, TensorType) and t.same is not None)}
    arguments = {a.name for a in function.arrays if a.role == "inout"}
    for stmt in walk(function.body):
        if isinstance(stmt, Store) and stmt.array in arguments - told:
            raise UnsupportedSyntax(
                f"a store into {stmt.array} by a name that does not tell so before types are known",
                location=stmt.location,
                remedy=f"store into {stmt.array} itself, or into a view of it: t = {stmt.array}[i], then t[j] = ...",
            )


def recalled(
    identity: str,
    types: Sequence[ArgumentType],
    agree: bool,
    function: Callable[[], Function],
    circumstances: Circumstances,
) -> Analysis:
    """The analysis that the disk cache holds for this function and these types, else a new one, which it then holds."""
    told = [sorted(c) for c in (circumstances.checked, circumstances.wraps, circumstances.empty, circumstances.untold)]
    key = cache.key("analysis", compiler_version(), identity, repr((tuple(types), agree, told)))
    kept = cache.load(key)
    if kept is not None:
        try:
            analysis = pickle.loads(kept)
        except Exception:  # written by another Python: any failure to read it is a miss
            analysis = None
        if isinstance(analysis, Analysis):
            return analysis
    with uncollected():
        analysis = _made(function, agree, circumstances, key)
    cache.store(key, pickle.dumps(analysis, protocol=pickle.HIGHEST_PROTOCOL))
    return analysis


def _made(function: Callable[[], Function], agree: bool, circumstances: Circumstances, key: str) -> Analysis:
    from weft.loops.agree import agreeing
    from weft.loops.automatic.guards import guarded
    from weft.loops.sized import sized
    from weft.loops.unused import with_faults, without_loops
    from weft.loops.wrapping import wrapped

    empty = frozenset(var for of, var in circumstances.empty if of == agree)
    made = wrapped(without_loops(function(), empty), circumstances.wraps)
    made = replace(made, checked=circumstances.checked)
    made = with_faults(made) if circumstances.checked or circumstances.empty else made
    made = sized(made, circumstances.untold)
    made, pairs = agreeing(made) if agree else (made, ())
    made = guarded(made) if agree else made
    return analyze(made, pairs).known_by(key)
