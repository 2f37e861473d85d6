"""An operator of your own from a scalar function: operands of any dtypes and strides, numbers, gradients, fused chains."""

import torch

import weft
from weft.ops import silu


@weft.pointwise
def capped(score, bias, cap=30.0):
    return cap * torch.tanh((score + bias) / cap)


@weft.pointwise
def gated(gate, up, limit):
    return silu(torch.clamp(gate, max=limit)) * (up + 1.0)


def main() -> None:
    torch.manual_seed(0)
    score, bias = torch.randn(4, 8).bfloat16(), torch.randn(8, requires_grad=True)
    y = capped(score, bias, 50.0)  # one kernel: a row is broadcast, two dtypes meet, a number comes along
    y.sum().backward()
    print(f"capped: {y.dtype}, {list(y.shape)}, gradient of the bias {list(bias.grad.shape)}")

    gate, up = torch.randn(6, 4).T, torch.randn(4, 6)
    assert torch.allclose(gated(gate, up, 7.0), gated.py(gate, up, 7.0))  # on tensors, its Python is plain PyTorch
    print(f"gated: strides {gated(gate, up, 7.0).stride()}, those that PyTorch gives {(gate * up).stride()}")

    print(capped.explain("bfloat16[64,1024]", "float32[1024]", 50.0))


if __name__ == "__main__":
    main()
