"""What torch.compile's caches on disk have to know a graph by.

A graph has the names of its operators alone, so that one of a kernel whose text has changed since would be taken for the
one before: with its sizes of results, and without what it writes. The tag of the caches' keys is what kernels mean.
"""

from __future__ import annotations

import hashlib

import torch.compiler.config as config

_MARK = " weft "
_meant: set[str] = set()


def tag_caches(identity: str) -> None:
    """Have graphs that are compiled from now on be kept for what this kernel means."""
    if identity not in _meant:
        _meant.add(identity)
        digest = hashlib.sha256("\n".join(sorted(_meant)).encode()).hexdigest()
        config.cache_key_tag = f"{config.cache_key_tag.partition(_MARK)[0]}{_MARK}{digest[:16]}"
