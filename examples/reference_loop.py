"""The reference loop people already have, over tensors of any leading dimensions, compiled as it is."""

import torch

import weft


@weft.kernel
def recurrence(x, c):  # x, c: [..., length]
    y = x.clone()
    for l in range(1, x.shape[-1]):
        y[..., l] = c[..., l] * y[..., l - 1] + x[..., l]
    return y


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x, c = torch.randn(2, 3, 100, device=device), torch.rand(2, 3, 100, device=device)
    difference = (recurrence(x, c) - recurrence.py(x, c)).abs().max()
    print("largest difference to the plain Python:", float(difference))
    for variable, verdict in weft.analyze(recurrence.py).loops.items():
        print(f"{variable}: {verdict.kind} {verdict.algebra}")


if __name__ == "__main__":
    main()
