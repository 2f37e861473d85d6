"""The library: functions of `[..., length]` tensors, each written as plain loops over rows in a module of its name."""

from weft.kernels.attention import attention, paged_attention
from weft.kernels.cumsum import cumsum
from weft.kernels.ema import ema
from weft.kernels.gelu_bias_residual import gelu_bias_residual
from weft.kernels.layer_norm import layer_norm
from weft.kernels.linear_attention import gated_delta_rule, linear_attention
from weft.kernels.linrec import linrec, linrec_reverse
from weft.kernels.log_softmax import log_softmax
from weft.kernels.rms_norm import rms_norm
from weft.kernels.rows import RowKernel
from weft.kernels.softmax import softmax

LIBRARY: dict[str, RowKernel] = {
    kernel.name: kernel
    for kernel in (
        linrec,
        linrec_reverse,
        cumsum,
        ema,
        softmax,
        log_softmax,
        rms_norm,
        layer_norm,
        gelu_bias_residual,
    )
}
"""Every kernel of the library by its name."""

__all__ = [
    "LIBRARY",
    "RowKernel",
    "attention",
    "cumsum",
    "ema",
    "gated_delta_rule",
    "gelu_bias_residual",
    "layer_norm",
    "linear_attention",
    "linrec",
    "linrec_reverse",
    "log_softmax",
    "paged_attention",
    "rms_norm",
    "softmax",
]
