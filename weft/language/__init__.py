"""Python source -> loop nest.

What a call needs that was made before is imported here; the front end itself when something is parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.language.capture import MISSING, Capture, capture, fingerprint, source_of
from weft.language.signature import Parameter, Signature, read_signature
from weft.language.source import Source
from weft.language.types import ArgumentType, TensorType, default_float

if TYPE_CHECKING:
    from weft.language.frontend import parse
    from weft.language.infer import infer_types

__all__ = [
    "MISSING",
    "ArgumentType",
    "Capture",
    "Parameter",
    "Signature",
    "Source",
    "TensorType",
    "capture",
    "default_float",
    "fingerprint",
    "infer_types",
    "parse",
    "read_signature",
    "source_of",
]


def __getattr__(name: str) -> Any:
    if name == "parse":
        from weft.language.frontend import parse

        return parse
    if name == "infer_types":
        from weft.language.infer import infer_types

        return infer_types
    raise AttributeError(f"module 'weft.language' has no attribute {name!r}")
