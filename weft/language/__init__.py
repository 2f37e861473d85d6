"""Python source -> loop nest."""

from weft.language.builder import default_float
from weft.language.frontend import ArgumentType, parse
from weft.language.infer import infer_types
from weft.language.signature import Parameter, Signature, read_signature
from weft.language.source import Source, fingerprint
from weft.language.values import TensorType

__all__ = [
    "ArgumentType",
    "Parameter",
    "Signature",
    "Source",
    "TensorType",
    "default_float",
    "fingerprint",
    "infer_types",
    "parse",
    "read_signature",
]
