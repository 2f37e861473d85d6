"""What Python objects that a function's free names mean are in the language."""

from __future__ import annotations

import sys
import types
from typing import Any

from weft.errors import TypeMismatch, UnsupportedSyntax
from weft.language import functions
from weft.language.capture import source_of
from weft.language.source import Known, Module, Namespace, Source, plain_function
from weft.language.values import Helper, Static, Tuple, Value, number
from weft.loops.types import COMPLEX_TYPES, SCALAR_TYPES

# Modules whose functions the language knows; the first that has an object under its own name is where it comes from.
_MODULES = ("math", "torch", "torch.nn.functional", "torch.special", "builtins")
_SUBMODULES = frozenset(("torch.nn", "torch.nn.functional", "torch.special", "torch.linalg"))


def known(name: str) -> Value:
    """A name of a module that the language knows."""
    if name in _SUBMODULES:
        return Static(Module(name))
    constant = functions.constant(name)
    return constant if constant is not None else Static(Known(name))


def value_of(obj: Any, name: str) -> Value:
    """The value that a Python object, found under `name` outside the function, is. Raises where it cannot be used."""
    if type(obj) in (bool, int, float, complex):
        return number(obj)
    if isinstance(obj, (int, float)):
        plain = "int" if isinstance(obj, int) else "float"
        raise TypeMismatch(
            f"{name} is a {type(obj).__module__}.{type(obj).__qualname__}, whose arithmetic may be its own",
            evidence=[f"its value is {obj!r}"],
            remedy=f"use {plain}({name}) where {name} is made",
        )
    if obj is None or obj is Ellipsis or isinstance(obj, (str, Module, Namespace)):
        return Static(obj)
    if isinstance(obj, Known):
        return known(obj.name)
    if isinstance(obj, Source):
        return Helper(obj)
    if isinstance(obj, (tuple, list)):
        return Tuple(tuple(value_of(item, name) for item in obj))
    if isinstance(obj, types.ModuleType):
        return Static(Module(obj.__name__))
    kind = type(obj)
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        dtype = str(obj).removeprefix("torch.")
        known_types = SCALAR_TYPES | COMPLEX_TYPES
        if dtype not in known_types:
            raise TypeMismatch(
                f"weft has no dtype {dtype}", evidence=["it has " + ", ".join(known_types)], remedy="use one it has"
            )
        return Static(known_types[dtype])
    own = getattr(obj, "__name__", None)
    if isinstance(own, str):
        own = own.removeprefix("special_")  # as those of torch.special are called
        for module in _MODULES:
            if getattr(sys.modules.get(module), own, None) is obj:
                return known(f"{module}.{own}")
    function = plain_function(obj)
    if function is not None:
        return Helper(source_of(function))
    if kind.__name__ in ("Tensor", "Parameter") and kind.__module__.startswith("torch"):
        raise TypeMismatch(f"{name} is a tensor from outside the function", remedy=f"make {name} a parameter")
    raise UnsupportedSyntax(
        f"{name} is a {kind.__name__} from outside the function, which weft does not know",
        remedy="use numbers, dtypes and functions from outside; pass everything else as an argument",
    )


def attribute(value: Static, name: str) -> Value:
    """`module.name`."""
    if isinstance(value.value, Module):
        return known(f"{value.value.name}.{name}")
    if isinstance(value.value, Known):
        return known(f"{value.value.name}.{name}")
    if isinstance(value.value, Namespace) and name in value.value.members:
        return value_of(value.value.members[name], f"{value.value.name}.{name}")
    of = getattr(value.value, "name", None) or repr(value.value)
    if value.value is None or isinstance(value.value, str):
        raise TypeMismatch(f"{of} has no attribute {name}", remedy="pass a tensor")
    remedy = "read what it holds: no property, and no method" if isinstance(value.value, Namespace) else "write it out"
    raise UnsupportedSyntax(f"weft knows no attribute {name} of {of}", remedy=remedy)
