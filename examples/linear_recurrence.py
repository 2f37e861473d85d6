"""A linear recurrence from its loops: run, compared with its own plain Python, explained, differentiated."""

import torch

import weft


@weft.kernel
def linrec(x, c):  # x, c: [rows, length]
    rows, length = x.shape
    y = torch.empty_like(x)
    for r in range(rows):
        h = 0.0
        for l in range(length):
            h = c[r, l] * h + x[r, l]
            y[r, l] = h
    return y


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(4, 200, device=device, requires_grad=True)
    c = torch.rand(4, 200, device=device, requires_grad=True)

    y = linrec(x, c)
    print("largest difference to the plain Python:", float((y - linrec.py(x, c)).abs().max().detach()))

    y.square().sum().backward()
    print("gradient of c:", tuple(c.grad.shape), "mean", float(c.grad.mean()))

    print(linrec.explain(x, c))


if __name__ == "__main__":
    main()
