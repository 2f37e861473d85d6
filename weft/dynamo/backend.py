"""`torch.compile(model, backend="weft")`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from weft.dynamo.decompositions import decompositions
from weft.dynamo.fused import fused
from weft.dynamo.groups import divide
from weft.dynamo.report import GraphReport, Report
from weft.errors import TypeMismatch


class Backend:
    """Takes graphs from torch.compile, and gives back callables in which groups of operators are kernels of weft's.

    `weft.backend` is the one that `backend="weft"` names. `report` says what went where, and why, of all graphs that came.
    """

    def __init__(self) -> None:
        self.__name__ = "weft"
        self.report = Report()

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        if options:
            raise TypeMismatch(f"the backend weft has no option {next(iter(options))}", remedy="pass none")
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        compiler = aot_autograd(
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            decompositions=decompositions(),
            partition_fn=min_cut_rematerialization_partition,
        )
        made: Callable[..., Any] = compiler(module, inputs)
        return made

    def _compiler(self, kind: str) -> Callable[..., Any]:
        def compile_graph(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
            from torch._functorch._aot_autograd.utils import make_boxed_func

            told = GraphReport(kind)
            self.report.graphs.append(told)
            made: Callable[..., Any] = make_boxed_func(fused(module, divide(module.graph), told).forward)
            return made

        return compile_graph


backend = Backend()
