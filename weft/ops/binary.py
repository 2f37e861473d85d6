"""Operators of two operands, each as PyTorch names and defines it."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from weft.ops.operator import operator, with_parameters


@operator
def add(input, other, alpha=1):
    return input + other if alpha == 1 else torch.add(input, other, alpha=alpha)


@operator
def atan2(input, other):
    return torch.atan2(input, other)


@operator
def binary_cross_entropy(input, target, weight=None):
    return F.binary_cross_entropy(input, target, weight, reduction="none")


@operator
def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None):
    return F.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction="none")


@operator
def bitwise_and(input, other):
    return input & other


@operator
def bitwise_left_shift(input, other):
    return input << other


@operator
def bitwise_or(input, other):
    return input | other


@operator
def bitwise_right_shift(input, other):
    return input >> other


@operator
def bitwise_xor(input, other):
    return input ^ other


@operator
def chebyshev_polynomial_t(input, n):
    return torch.special.chebyshev_polynomial_t(input, n)


@operator
def chebyshev_polynomial_u(input, n):
    return torch.special.chebyshev_polynomial_u(input, n)


@operator
def chebyshev_polynomial_v(input, n):
    return torch.special.chebyshev_polynomial_v(input, n)


@operator
def chebyshev_polynomial_w(input, n):
    return torch.special.chebyshev_polynomial_w(input, n)


@operator
def complex(real, imag):
    return torch.complex(real, imag)


@operator
def copysign(input, other):
    return torch.copysign(input, other)


@operator
def div(input, other, rounding_mode=None):
    return torch.div(input, other, rounding_mode=rounding_mode)


@operator
def eq(input, other):
    return input == other


@with_parameters("other")
def float_power(input, other):
    return torch.float_power(input, other)


@operator
def floor_divide(input, other):
    return torch.floor_divide(input, other)


@operator
def fmax(input, other):
    return torch.fmax(input, other)


@operator
def fmin(input, other):
    return torch.fmin(input, other)


@operator
def fmod(input, other):
    return torch.fmod(input, other)


@operator
def gcd(input, other):
    return torch.gcd(input, other)


@operator
def ge(input, other):
    return input >= other


@operator
def gt(input, other):
    return input > other


@operator
def heaviside(input, other):
    return torch.heaviside(input, other)


@operator
def hermite_polynomial_h(input, n):
    return torch.special.hermite_polynomial_h(input, n)


@operator
def hermite_polynomial_he(input, n):
    return torch.special.hermite_polynomial_he(input, n)


@operator
def huber_loss(input, target, delta=1.0):
    return F.huber_loss(input, target, reduction="none", delta=delta)


@operator
def hypot(input, other):
    return torch.hypot(input, other)


@operator
def igamma(input, other):
    return torch.igamma(input, other)


@operator
def igammac(input, other):
    return torch.igammac(input, other)


@operator
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    return torch.isclose(input, other, rtol, atol, equal_nan=equal_nan)


@operator
def kl_div(input, target, log_target=False):
    return F.kl_div(input, target, reduction="none", log_target=log_target)


@operator
def l1_loss(input, target):
    return F.l1_loss(input, target, reduction="none")


@operator
def laguerre_polynomial_l(input, n):
    return torch.special.laguerre_polynomial_l(input, n)


@operator
def lcm(input, other):
    return torch.lcm(input, other)


@operator
def ldexp(input, other):
    return torch.ldexp(input, other)


@operator
def le(input, other):
    return input <= other


@operator
def legendre_polynomial_p(input, n):
    return torch.special.legendre_polynomial_p(input, n)


@operator
def logaddexp(input, other):
    return torch.logaddexp(input, other)


@operator
def logaddexp2(input, other):
    return torch.logaddexp2(input, other)


@operator
def logical_and(input, other):
    return torch.logical_and(input, other)


@operator
def logical_or(input, other):
    return torch.logical_or(input, other)


@operator
def logical_xor(input, other):
    return torch.logical_xor(input, other)


@operator
def lt(input, other):
    return input < other


@operator
def maximum(input, other):
    return torch.maximum(input, other)


@operator
def minimum(input, other):
    return torch.minimum(input, other)


@operator
def mse_loss(input, target):
    return F.mse_loss(input, target, reduction="none")


@operator
def mul(input, other):
    return input * other


@operator
def ne(input, other):
    return input != other


@operator
def nextafter(input, other):
    return torch.nextafter(input, other)


@operator
def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-08):
    return F.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction="none")


@operator
def polar(abs, angle):
    return torch.polar(abs, angle)


@with_parameters("other")
def pow(input, other):
    return torch.pow(input, other)


@operator
def prelu(input, weight):
    return torch.where(input > 0, input, weight * input)


@operator
def remainder(input, other):
    return torch.remainder(input, other)


@operator
def rsub(input, other, alpha=1):
    return torch.sub(other, input, alpha=alpha)


@operator
def shifted_chebyshev_polynomial_t(input, n):
    return torch.special.shifted_chebyshev_polynomial_t(input, n)


@operator
def shifted_chebyshev_polynomial_u(input, n):
    return torch.special.shifted_chebyshev_polynomial_u(input, n)


@operator
def shifted_chebyshev_polynomial_v(input, n):
    return torch.special.shifted_chebyshev_polynomial_v(input, n)


@operator
def shifted_chebyshev_polynomial_w(input, n):
    return torch.special.shifted_chebyshev_polynomial_w(input, n)


@operator
def smooth_l1_loss(input, target, beta=1.0):
    return F.smooth_l1_loss(input, target, reduction="none", beta=beta)


@operator
def soft_margin_loss(input, target):
    return F.soft_margin_loss(input, target, reduction="none")


@operator
def sub(input, other, alpha=1):
    return torch.sub(input, other, alpha=alpha)


@operator
def true_divide(input, other):
    return torch.true_divide(input, other)


@operator
def xlog1py(input, other):
    return torch.special.xlog1py(input, other)


@operator
def xlogy(input, other):
    return torch.xlogy(input, other)


@operator
def zeta(input, other):
    return torch.special.zeta(input, other)


# PyTorch's other names of the same
arctan2 = atan2
divide = div
greater = gt
greater_equal = ge
less = lt
less_equal = le
multiply = mul
not_equal = ne
subtract = sub
