"""What is looked into, checked and tuned: a kernel, or a function of `weft.pointwise` at arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from weft.language import Signature
from weft.pytorch.executable import Executable
from weft.pytorch.operator import Operator
from weft.pytorch.specialize import Specializable


class Inspected(Protocol):
    """name: in messages. py: the plain Python. example: arguments, by name, where none are given."""

    @property
    def name(self) -> str: ...
    @property
    def py(self) -> Callable[..., Any]: ...
    @property
    def example(self) -> Mapping[str, Any]: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def specializable(self) -> Specializable: ...
    @property
    def program(self) -> Executable: ...
    @property
    def operator(self) -> Operator: ...
