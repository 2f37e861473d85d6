"""The road from a function to kernels, in two halves.

`analyze` depends on the types of the arguments alone and is kept on disk: normal form, dependences, schedule, tile
graphs, and what a call must satisfy. `launches` decides, for the sizes, strides and addresses of one call, how each nest
runs; kernels are compiled for variants. Importing this is quick: the analysis is imported when it is needed.
"""

from weft.compiler.analysis import Analysis, Lowered, Refused, analyze
from weft.compiler.guards import Guard
from weft.compiler.hosted import hosted
from weft.compiler.idle import Unused, unused
from weft.compiler.intermediates import Intermediate, Workspace, is_cleared, own_memory, pointers, workspace, workspace_of
from weft.compiler.launch import Grouped, Launch, Variant, Where, grouped, of_a_call
from weft.compiler.layouts import laid_out
from weft.compiler.planning import launches
from weft.compiler.sources import arguments, cuda_source, host_source, may_fail

__all__ = [
    "Analysis", "Grouped", "Guard", "Intermediate", "Launch", "Lowered", "Refused", "Unused", "Variant", "Where",
    "Workspace", "analyze", "arguments", "cuda_source", "grouped", "host_source", "hosted", "is_cleared", "laid_out",
    "launches", "may_fail", "of_a_call", "own_memory", "pointers", "unused", "workspace", "workspace_of",
]  # fmt: skip
