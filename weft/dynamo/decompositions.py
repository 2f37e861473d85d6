"""In which smaller operators PyTorch writes down what a graph does, before groups are found."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten
# beside those of PyTorch's core operators: what weft has in one kernel when it is written out
_WRITTEN_OUT = (
    _aten._softmax, _aten._log_softmax, _aten.native_layer_norm, _aten.native_group_norm, _aten.elu, _aten.linalg_vector_norm,
    _aten._native_batch_norm_legit, _aten._native_batch_norm_legit_no_training, _aten._native_batch_norm_legit_functional,
)  # fmt: skip
# what PyTorch's own kernels compute better as one, and what draws the random numbers of eager mode
_WHOLE = (
    _aten._scaled_dot_product_flash_attention_for_cpu, _aten.embedding_dense_backward, _aten.native_dropout, _aten.bernoulli,
    _aten.uniform, _aten.rand, _aten.normal,
)  # fmt: skip


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, get_decompositions

    whole = {op for packet in _WHOLE for op in _overloads(packet)}
    found = {op: how for op, how in dict(core_aten_decompositions()).items() if op not in whole}
    return found | dict(get_decompositions(_WRITTEN_OUT))


def _overloads(packet: Any) -> list[Any]:
    return [getattr(packet, name) for name in packet.overloads()]
