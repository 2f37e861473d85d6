"""Operators of three operands, and of an order and an operand, each as PyTorch names and defines it."""

from __future__ import annotations

import torch

from weft.ops.operator import operator, with_parameters


@operator
def addcdiv(input, tensor1, tensor2, value=1):
    return torch.addcdiv(input, tensor1, tensor2, value=value)


@operator
def addcmul(input, tensor1, tensor2, value=1):
    return torch.addcmul(input, tensor1, tensor2, value=value)


@operator
def clamp(input, min=None, max=None):
    return torch.clamp(input, min, max)


@with_parameters("weight")
def lerp(input, end, weight):
    return torch.lerp(input, end, weight)


@operator
def where(condition, input, other):
    return torch.where(condition, input, other)


clip = clamp
