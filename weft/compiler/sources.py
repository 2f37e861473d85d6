"""The texts of kernels, from the disk cache where they are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

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

    function, nest, facts = analysis.function, analysis.schedule.nests[variant.nest], variant.facts
    lowered = analysis.lowered[variant.nest]
    around = Dependence(awaits=variant.overlaps, allows=variant.overlaps and not variant.crowded, ahead=not variant.first)
    match variant.plan:
        case BlockPlan() as plan:
            from weft.emit import blocks

            assert lowered.blocks is not None
            return blocks.emit(function, nest, lowered.blocks, plan, facts, around)
        case ScanPlan() as plan:
            from weft.emit import scans

            assert lowered.scans is not None
            return scans.emit(function, nest, lowered.scans, plan, facts, around)
        case StatePlan() as plan:
            from weft.emit import state_scans

            assert lowered.states is not None
            return state_scans.emit(function, nest, lowered.states, plan, facts)
        case RecurrencePlan() as plan:
            from weft.emit import recurrences

            assert lowered.recurrences is not None
            return recurrences.emit(function, nest, lowered.recurrences, plan, facts)
        case OuterPlan() as plan:
            from weft.emit import outer_states

            assert lowered.outer is not None
            return outer_states.emit(function, nest, lowered.outer, plan, facts)
        case FoldPlan() as plan:
            from weft.emit import folds
            from weft.emit.copied import CopiedEntry
            from weft.emit.held import HeldEntry
            from weft.emit.resident import ResidentEntry

            assert lowered.sweeps is not None
            held = CopiedEntry if plan.inside else HeldEntry if plan.chunks else None
            kind = ResidentEntry if plan.resident else held
            columns = lowered.columns if plan.columns else None
            return folds.emit(function, nest, lowered.sweeps, plan, facts, kind, columns, around)
        case ProductPlan() as plan:
            from weft.emit import product_launches

            assert lowered.multiplied is not None
            return product_launches.emit(function, nest, lowered.multiplied, plan, facts, around)
        case ChainPlan() as plan:
            from weft.emit import chained_products
            from weft.emit.chained_parts import ChainedPartsEntry, TicketsEntry

            assert lowered.chain is not None
            beside = TicketsEntry if plan.counts else ChainedPartsEntry
            return chained_products.emit(function, nest, plan.arranged(lowered.chain), plan, facts, beside, around)
        case JoinPlan() as plan:
            from weft.emit import joins

            assert lowered.joins is not None
            return joins.emit(function, nest, lowered.joins, plan, facts)
        case MapPlan() as plan:
            from weft.emit import maps

            assert lowered.maps is not None
            return maps.emit(function, nest, lowered.maps, plan, facts, around)
        case WavefrontPlan() as plan:
            from weft.emit import wavefronts

            assert lowered.wavefront is not None
            return wavefronts.emit(function, nest, lowered.wavefront, plan, facts)
        case ThreadPlan() as plan:
            from weft.emit import threads

            return threads.emit(function, nest, plan, facts, around)
        case other:
            assert_never(other)


def _host_source(analysis: Analysis, nest: int, facts: Facts, row: str | None) -> str:
    from weft.emit.chain_rows import emit as emit_chain
    from weft.emit.cpp import emit

    if row is not None:
        chain = analysis.lowered[nest].chain
        assert chain is not None
        return emit_chain(analysis.function, analysis.schedule.nests[nest], by_rows(chain)[row], facts)
    return emit(analysis.function, analysis.schedule.nests[nest], facts)
