"""The texts of kernels, from the disk cache where they are there."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler.analysis import Analysis
from weft.compiler.launch import Variant
from weft.graph.chains import by_rows
from weft.plan.arguments import Facts, Slot, slots
from weft.plan.block import BlockPlan
from weft.plan.chain import ChainPlan
from weft.plan.fold import FoldPlan
from weft.plan.join import JoinPlan
from weft.plan.map import MapPlan
from weft.plan.outer_states import OuterPlan
from weft.plan.product import ProductPlan
from weft.plan.recurrence import RecurrencePlan
from weft.plan.scan import ScanPlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.plan.wavefront import WavefrontPlan
from weft.runtime import cache
from weft.runtime.stack import deep


@deep
def arguments(analysis: Analysis, nest: int, facts: Facts) -> tuple[Slot, ...]:
    """What the kernels of a nest take, on every target."""
    return slots(analysis.function, analysis.schedule.nests[nest], facts)


@deep
def cuda_source(analysis: Analysis, variant: Variant) -> str:
    """The CUDA C++ of a variant; its entry is `weft.emit.names.kernel_entry` of the nest's name."""
    return _recalled(analysis, f"cuda {variant.key}", lambda: _cuda_source(analysis, variant))


@deep
def host_source(analysis: Analysis, nest: int, facts: Facts, row: str | None) -> str:
    """The C++ of a nest; its entry is `weft.emit.names.host_entry` of the nest's name. row: of chained products, the axis whose
    rows lie side by side in lanes.
    """
    return _recalled(analysis, f"host {nest} {facts.key} {row}", lambda: _host_source(analysis, nest, facts, row))


def may_fail(source: str) -> bool:
    """Whether the function of a nest's C++ can give anything but 0."""
    return "return int64_t(outside);" in source


def _recalled(analysis: Analysis, what: str, make: Callable[[], str]) -> str:
    """A text of an analysis, from the disk cache where it is there."""
    if not analysis.key:
        return _with_headers(make())
    key = cache.key("source", analysis.key, what)
    kept = cache.load(key)
    if kept is not None:
        return kept.decode()
    text = _with_headers(make())
    cache.store(key, text.encode())
    return text


def _with_headers(text: str) -> str:
    """The text with the headers of special functions, which are many, and of complex ones, where it calls one."""
    for room in ("special", "complex"):
        if f"weft::{room}::" in text:
            text = text.replace('#include "weft/', f'#include "weft/{room}.cuh"\n#include "weft/', 1)
    return text


def _cuda_source(analysis: Analysis, variant: Variant) -> str:
    from weft.emit.dependent import Dependence

    nest = analysis.schedule.nests[variant.nest]
    around = Dependence(awaits=variant.overlaps, allows=variant.overlaps and not variant.crowded, ahead=not variant.first)
    if isinstance(variant.plan, BlockPlan):
        from weft.emit.blocks import emit as emit_blocks

        blocks = analysis.lowered[variant.nest].blocks
        assert blocks is not None
        return emit_blocks(analysis.function, nest, blocks, variant.plan, variant.facts, around)
    if isinstance(variant.plan, ScanPlan):
        from weft.emit.scans import emit as emit_scans

        scans = analysis.lowered[variant.nest].scans
        assert scans is not None
        return emit_scans(analysis.function, nest, scans, variant.plan, variant.facts, around)
    if isinstance(variant.plan, StatePlan):
        from weft.emit.state_scans import emit as emit_states

        states = analysis.lowered[variant.nest].states
        assert states is not None
        return emit_states(analysis.function, nest, states, variant.plan, variant.facts)
    if isinstance(variant.plan, RecurrencePlan):
        from weft.emit.recurrences import emit as emit_recurrences

        recurrences = analysis.lowered[variant.nest].recurrences
        assert recurrences is not None
        return emit_recurrences(analysis.function, nest, recurrences, variant.plan, variant.facts)
    if isinstance(variant.plan, OuterPlan):
        from weft.emit.outer_states import emit as emit_outer_states

        outer = analysis.lowered[variant.nest].outer
        assert outer is not None
        return emit_outer_states(analysis.function, nest, outer, variant.plan, variant.facts)
    if isinstance(variant.plan, FoldPlan):
        from weft.emit.copied import CopiedEntry
        from weft.emit.folds import emit as emit_folds
        from weft.emit.held import HeldEntry
        from weft.emit.resident import ResidentEntry

        sweeps = analysis.lowered[variant.nest].sweeps
        assert sweeps is not None
        held = CopiedEntry if variant.plan.inside else HeldEntry if variant.plan.chunks else None
        kind = ResidentEntry if variant.plan.resident else held
        columns = analysis.lowered[variant.nest].columns if variant.plan.columns else None
        return emit_folds(analysis.function, nest, sweeps, variant.plan, variant.facts, kind, columns, around)
    if isinstance(variant.plan, ProductPlan):
        from weft.emit.product_launches import emit as emit_products

        sweeps = analysis.lowered[variant.nest].multiplied
        assert sweeps is not None
        return emit_products(analysis.function, nest, sweeps, variant.plan, variant.facts, around)
    if isinstance(variant.plan, ChainPlan):
        from weft.emit.chained_parts import ChainedPartsEntry, TicketsEntry
        from weft.emit.chained_products import emit as emit_chain

        chain = analysis.lowered[variant.nest].chain
        assert chain is not None
        beside = TicketsEntry if variant.plan.counts else ChainedPartsEntry
        chain = variant.plan.arranged(chain)
        return emit_chain(analysis.function, nest, chain, variant.plan, variant.facts, beside, around)
    if isinstance(variant.plan, JoinPlan):
        from weft.emit.joins import emit as emit_joins

        joins = analysis.lowered[variant.nest].joins
        assert joins is not None
        return emit_joins(analysis.function, nest, joins, variant.plan, variant.facts)
    if isinstance(variant.plan, MapPlan):
        from weft.emit.maps import emit as emit_maps

        maps = analysis.lowered[variant.nest].maps
        assert maps is not None
        return emit_maps(analysis.function, nest, maps, variant.plan, variant.facts, around)
    if isinstance(variant.plan, WavefrontPlan):
        from weft.emit.wavefronts import emit as emit_wavefront

        wavefront = analysis.lowered[variant.nest].wavefront
        assert wavefront is not None
        return emit_wavefront(analysis.function, nest, wavefront, variant.plan, variant.facts)
    from weft.emit.threads import emit as emit_threads

    assert isinstance(variant.plan, ThreadPlan)
    return emit_threads(analysis.function, nest, variant.plan, variant.facts, around)


def _host_source(analysis: Analysis, nest: int, facts: Facts, row: str | None) -> str:
    from weft.emit.chain_rows import emit as emit_chain
    from weft.emit.cpp import emit

    if row is not None:
        chain = analysis.lowered[nest].chain
        assert chain is not None
        return emit_chain(analysis.function, analysis.schedule.nests[nest], by_rows(chain)[row], facts)
    return emit(analysis.function, analysis.schedule.nests[nest], facts)
