"""Analyses of functions that are derived from others: adjoints, what also returns what gradients need, elements of batches."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.compiler import Analysis
from weft.errors import OverlapError
from weft.language import ArgumentType, Signature, TensorType
from weft.loops.ir import Function
from weft.loops.schedule import ORDINARY, Circumstances, Wrapped
from weft.pytorch.specialize import Specializable, compiler_version, recalled
from weft.runtime import cache
from weft.runtime.collection import uncollected
from weft.runtime.stack import deep

if TYPE_CHECKING:
    from weft.compiler.keeping import Kept


class Analyses:
    """The analyses of functions that are derived from those of another Specializable."""

    identity: str

    def __init__(self) -> None:
        self._made: dict[tuple[tuple[ArgumentType, ...], bool, Circumstances], Analysis] = {}

    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        raise NotImplementedError

    @deep
    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        circumstances: Circumstances = ORDINARY,
    ) -> Analysis:
        key = types, agree, circumstances
        if key not in self._made:
            self._made[key] = recalled(self.identity, types, agree, lambda: self.function(types, agree), circumstances)
        return self._made[key]


class AdjointAnalyses(Analyses):
    """The analyses of the adjoint of a function for the types that its arguments had."""

    def __init__(
        self,
        parent: Specializable,
        types: tuple[ArgumentType, ...],
        wanted: tuple[str, ...],
        seeded: tuple[int, ...] | None,
        wraps: Wrapped,
    ) -> None:
        super().__init__()
        self._parent, self._types, self._wanted, self._seeded = parent, types, wanted, seeded
        self._wraps = wraps
        self.identity = f"adjoint of {parent.identity} at {types!r} for {wanted} from {seeded}, below 0 in {sorted(wraps)}"
        self._derived: dict[bool, Function] = {}

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        from weft.compiler.recomputed import recomputing
        from weft.compiler.settled import settled
        from weft.loops.adjoint import adjoint
        from weft.loops.wrapping import wrapped

        if agree not in self._derived:
            forward = replace(wrapped(self._parent.function(self._types, agree), self._wraps), tiles=())
            again = recomputing(forward, self._wanted, self._seeded, agree)
            self._derived[agree] = again or adjoint(settled(forward), self._wanted, self._seeded)
        return self._derived[agree]

    def analysis(
        self,
        types: tuple[ArgumentType, ...],
        agree: bool,
        circumstances: Circumstances = ORDINARY,
    ) -> Analysis:
        return super().analysis((), agree, circumstances)  # its arguments have the types that they were derived from


class KeepingAnalyses(Analyses):
    """The analyses of a function that also returns what its gradients need of its folds."""

    def __init__(self, parent: Specializable) -> None:
        super().__init__()
        self._parent = parent
        self.identity = f"{parent.identity} keeping what it folds"

    @deep
    def kept(self, types: tuple[ArgumentType, ...]) -> Kept | None:
        """What the function keeps for arguments of these types, as sizes that agree tell; from the disk cache if it can be."""
        key = cache.key("kept folds", compiler_version(), self.identity, repr(types))
        known = cache.load(key)
        if known is not None:
            with contextlib.suppress(Exception):  # written by another Python: any failure to read it is a miss
                return pickle.loads(known) if known else None
        from weft.compiler.keeping import keeping, kept_folds

        with uncollected():
            found = kept_folds(self._parent.function(types, True))
            if found.folds and keeping(self._parent.function(types, False), found.folds) is None:
                found = replace(found, folds=())
        cache.store(key, pickle.dumps(found, protocol=pickle.HIGHEST_PROTOCOL) if found.folds else b"")
        return found if found.folds else None

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        from weft.compiler.keeping import keeping

        kept = self.kept(types)
        found = None if kept is None else keeping(self._parent.function(types, agree), kept.folds)
        assert found is not None
        return found


class BatchedAnalyses(Analyses):
    """The analyses of a function for the elements of a batch. carried: whether each argument has an axis of the batch."""

    def __init__(self, parent: Specializable, signature: Signature, carried: tuple[bool, ...]) -> None:
        super().__init__()
        self._parent, self._signature, self._carried = parent, signature, carried
        self.identity = f"{parent.identity} for a batch of {carried}"

    @deep
    def function(self, types: tuple[ArgumentType, ...], agree: bool) -> Function:
        from weft.loops.batched import batched

        names = self._signature.names
        wide = {n for n, c in zip(names, self._carried, strict=True) if c}
        elements: list[ArgumentType] = []
        for name, type_ in zip(names, types, strict=True):
            if isinstance(type_, TensorType) and type_.same is not None and (name in wide) != (type_.same in wide):
                raise OverlapError(
                    f"{self._signature.name} writes into {type_.same}, and {name} is the same tensor",
                    location=self._signature.location,
                    evidence=[f"one element of torch.vmap's batch is a part of it, and {name} all of it"],
                    remedy=f"pass {name}.clone()",
                )
            wider = isinstance(type_, TensorType) and name in wide
            elements.append(replace(type_, rank=type_.rank - 1) if wider else type_)  # type: ignore[arg-type,union-attr]
        function = self._parent.function(tuple(elements), agree)
        return batched(function, frozenset(wide.intersection(function.parameters)))
