"""Exponentials of scores relative to their maximum, as powers of two: one multiply-add, and one instruction for the power.

e^(x - m) is 2^(slope x - slope m). What slope m loses where it is rounded is the same for all of a row, and goes with the sums
that are made of the powers. Where it is too large, the scores themselves are made relative first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from weft.emit.text import Writer
from weft.graph.chains import Chain
from weft.graph.running import before
from weft.graph.tile import Map, Read, names_of
from weft.loops.ir import Expr, Op, Ref, free_names
from weft.loops.types import FLOAT32

# The name, which no value has, of a power; log2 e as C++.
POWER, LOG2_E = "power'", "0x1.715476p+0f"


@dataclass(frozen=True)
class Powers:
    """maximum: its name. own: where a thread has what it is of. unit: what all of that is multiplied or divided by, as `by`
    says: it is left without.
    """

    maximum: str
    own: str
    unit: Expr | None = None
    by: str = "*"

    @classmethod
    def of(
        cls,
        chain: Chain,
        early: Iterable[Read | Map],
        late: Iterable[Read | Map],
        exprs: Iterable[Expr],
        places: Mapping[str, str],
    ) -> Powers | None:
        """The powers of a chain whose scores are masked, if all that is made of them is exponentials. early, late: what is made
        before the maximum is known, and after. exprs: what is folded of that. places: where values are that threads keep.
        """
        if len(chain.leading) != 1 or not isinstance(part := chain.leading[0].parts[0], Ref):
            return None
        m, sums = chain.leading[0].results[0], {f.results[0] for f in (*chain.following, *chain.sums.folds)}
        exponential = _relative(part, Ref(m, part.type))
        powers = {v.name for v in late if isinstance(v, Map) and v.value == exponential}
        plain = all(r.factor == _relative(Ref(before(m), part.type), Ref(m, part.type)) for r in chain.repairs)
        told = all(isinstance(e, Ref) and e.name in powers for e in exprs)
        if not plain or not told or {r.sum for r in chain.repairs} != sums:
            return None
        match [*early]:
            case [Map(name=name, value=Op(name="mul" | "div" as by, args=(Ref(name=raw), unit)))] if name == part.name:
                changing = {*chain.axes, *(n for v in chain.values for n in names_of(v))}
                if places.get(raw) == places[name] and not free_names(unit) & changing:
                    return cls(m, places[name], unit, "*" if by == "mul" else "/")
        return cls(m, places[part.name])

    def told(self, v: Read | Map) -> Read | Map:
        """A value that is made of scores: all are powers."""
        return replace(v, value=Ref(POWER, FLOAT32)) if isinstance(v, Map) else v

    def slope(self, writer: Writer, unit: str) -> None:
        """What the exponents rise by. unit: the factor of scores, as C++."""
        if self.unit is None:
            writer.line(f"const float slope = {LOG2_E};")
            return
        writer.line(f"const float factor_of_scores = {unit};")
        writer.line(f"const bool rising = {LOG2_E} {self.by} factor_of_scores > 0.0f;  // the maximum goes up with the scores")
        writer.line(f"const float unit = rising ? factor_of_scores : 1.0f, slope = {LOG2_E} {self.by} unit;")


def _relative(x: Expr, m: Expr) -> Op:
    return Op("exp_flushed", (Op("sub", (x, m), FLOAT32),), FLOAT32)
