"""PyTorch's elementwise operators as scalar functions: each is a `weft.Pointwise`, for tensors, others of them and kernels."""

from weft.ops.binary import *  # noqa: F403
from weft.ops.ternary import *  # noqa: F403
from weft.ops.unary import *  # noqa: F403
