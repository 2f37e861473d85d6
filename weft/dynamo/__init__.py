"""`torch.compile` by weft: operators of an FX graph in groups, each one kernel of loops; the rest is left to PyTorch."""

from __future__ import annotations

from weft.dynamo.backend import Backend, backend
from weft.dynamo.report import GraphReport, Report, Taken

__all__ = ["Backend", "GraphReport", "Report", "Taken", "backend"]
