"""Operators of one operand, each as PyTorch names and defines it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from weft.ops.operator import operator, with_parameters


@operator
def abs(input):
    return torch.abs(input)


@operator
def acos(input):
    return torch.acos(input)


@operator
def acosh(input):
    return torch.acosh(input)


@operator
def airy_ai(input):
    return torch.special.airy_ai(input)


@operator
def angle(input):
    return torch.angle(input)


@operator
def asin(input):
    return torch.asin(input)


@operator
def asinh(input):
    return torch.asinh(input)


@operator
def atan(input):
    return torch.atan(input)


@operator
def atanh(input):
    return torch.atanh(input)


@operator
def bessel_j0(input):
    return torch.special.bessel_j0(input)


@operator
def bessel_j1(input):
    return torch.special.bessel_j1(input)


@operator
def bessel_y0(input):
    return torch.special.bessel_y0(input)


@operator
def bessel_y1(input):
    return torch.special.bessel_y1(input)


@operator
def bitwise_not(input):
    return torch.bitwise_not(input)


@operator
def ceil(input):
    return torch.ceil(input)


@operator
def celu(input, alpha=1.0):
    return F.celu(input, alpha)


@with_parameters("max")
def clamp_max(input, max):
    return torch.clamp(input, max=max)


@with_parameters("min")
def clamp_min(input, min):
    return torch.clamp(input, min=min)


@operator
def conj(input):
    return torch.conj(input)


@operator
def conj_physical(input):
    return torch.conj_physical(input)


@operator
def cos(input):
    return torch.cos(input)


@operator
def cosh(input):
    return torch.cosh(input)


@operator
def deg2rad(input):
    return torch.deg2rad(input)


@operator
def digamma(input):
    return torch.digamma(input)


@operator
def elu(input, alpha=1.0):
    return F.elu(input, alpha)


@operator
def entr(input):
    return torch.special.entr(input)


@operator
def erf(input):
    return torch.erf(input)


@operator
def erfc(input):
    return torch.erfc(input)


@operator
def erfcx(input):
    return torch.special.erfcx(input)


@operator
def erfinv(input):
    return torch.erfinv(input)


@operator
def exp(input):
    return torch.exp(input)


@operator
def exp2(input):
    return torch.exp2(input)


@operator
def expm1(input):
    return torch.expm1(input)


@operator
def floor(input):
    return torch.floor(input)


@operator
def frac(input):
    return torch.frac(input)


@operator
def gelu(input, approximate="none"):
    return F.gelu(input, approximate=approximate)


@operator
def hardshrink(input, lambd=0.5):
    return F.hardshrink(input, lambd)


@operator
def hardsigmoid(input):
    return F.hardsigmoid(input)


@operator
def hardswish(input):
    return F.hardswish(input)


@operator
def hardtanh(input, min_val=-1.0, max_val=1.0):
    return F.hardtanh(input, min_val, max_val)


@operator
def i0(input):
    return torch.special.i0(input)


@operator
def i0e(input):
    return torch.special.i0e(input)


@operator
def i1(input):
    return torch.special.i1(input)


@operator
def i1e(input):
    return torch.special.i1e(input)


@operator
def imag(input):
    return torch.imag(input)


@operator
def isfinite(input):
    return torch.isfinite(input)


@operator
def isinf(input):
    return torch.isinf(input)


@operator
def isnan(input):
    return torch.isnan(input)


@operator
def isneginf(input):
    return torch.isneginf(input)


@operator
def isposinf(input):
    return torch.isposinf(input)


@operator
def isreal(input):
    return torch.isreal(input)


@operator
def leaky_relu(input, negative_slope=0.01):
    return F.leaky_relu(input, negative_slope)


@operator
def lgamma(input):
    return torch.lgamma(input)


@operator
def log(input):
    return torch.log(input)


@operator
def log10(input):
    return torch.log10(input)


@operator
def log1p(input):
    return torch.log1p(input)


@operator
def log2(input):
    return torch.log2(input)


@operator
def log_ndtr(input):
    return torch.special.log_ndtr(input)


@operator
def logical_not(input):
    return torch.logical_not(input)


@operator
def logit(input, eps=None):
    return torch.logit(input, eps)


@operator
def logsigmoid(input):
    return F.logsigmoid(input)


@operator
def mish(input):
    return F.mish(input)


@operator
def modified_bessel_i0(input):
    return torch.special.modified_bessel_i0(input)


@operator
def modified_bessel_i1(input):
    return torch.special.modified_bessel_i1(input)


@operator
def modified_bessel_k0(input):
    return torch.special.modified_bessel_k0(input)


@operator
def modified_bessel_k1(input):
    return torch.special.modified_bessel_k1(input)


@operator
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    return torch.nan_to_num(input, nan, posinf, neginf)


@operator
def ndtr(input):
    return torch.special.ndtr(input)


@operator
def ndtri(input):
    return torch.special.ndtri(input)


@operator
def neg(input):
    return torch.neg(input)


@with_parameters("n")
def polygamma(n, input):
    return torch.polygamma(n, input)


@operator
def positive(input):
    return torch.positive(input)


@operator
def rad2deg(input):
    return torch.rad2deg(input)


@operator
def real(input):
    return torch.real(input)


@operator
def reciprocal(input):
    return torch.reciprocal(input)


@operator
def relu(input):
    return torch.relu(input)


@operator
def relu6(input):
    return F.relu6(input)


@operator
def round(input, decimals=0):
    if decimals == 0:
        return torch.round(input)
    scale = 10.0**decimals if decimals > 0 else 10.0**-decimals
    return torch.round(input * scale) / scale if decimals > 0 else torch.round(input / scale) * scale


@operator
def rsqrt(input):
    return torch.rsqrt(input)


@operator
def scaled_modified_bessel_k0(input):
    return torch.special.scaled_modified_bessel_k0(input)


@operator
def scaled_modified_bessel_k1(input):
    return torch.special.scaled_modified_bessel_k1(input)


@operator
def selu(input):
    return F.selu(input)


@operator
def sgn(input):
    return torch.sgn(input)


@operator
def sigmoid(input):
    return torch.sigmoid(input)


@operator
def sign(input):
    return torch.sign(input)


@operator
def signbit(input):
    return torch.signbit(input)


@operator
def silu(input):
    return F.silu(input)


@operator
def sin(input):
    return torch.sin(input)


@operator
def sinc(input):
    return torch.sinc(input)


@operator
def sinh(input):
    return torch.sinh(input)


@operator
def softplus(input, beta=1.0, threshold=20.0):
    return F.softplus(input, beta, threshold)


@operator
def softshrink(input, lambd=0.5):
    return F.softshrink(input, lambd)


@operator
def softsign(input):
    return F.softsign(input)


@operator
def spherical_bessel_j0(input):
    return torch.special.spherical_bessel_j0(input)


@operator
def sqrt(input):
    return torch.sqrt(input)


@operator
def square(input):
    return torch.square(input)


@operator
def tan(input):
    return torch.tan(input)


@operator
def tanh(input):
    return torch.tanh(input)


@operator
def tanhshrink(input):
    return F.tanhshrink(input)


@with_parameters("threshold value")
def threshold(input, threshold, value):
    return F.threshold(input, threshold, value)


@operator
def trunc(input):
    return torch.trunc(input)


# PyTorch's other names of the same
absolute = abs
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctanh = atanh
expit = sigmoid
fix = trunc
negative = neg
