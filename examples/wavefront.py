"""A stencil that must run in order, transformed by hand until a loop is parallel; every step is checked."""

import torch

import weft
from weft.errors import IllegalTransform


def relax(a):
    n, m = a.shape
    for i in range(1, n):
        for j in range(1, m - 1):
            a[i, j] = (a[i - 1, j + 1] + a[i, j - 1] + a[i, j]) / 3.0


def main() -> None:
    schedule = weft.schedule(relax)
    try:
        schedule.interchange("i", "j")
    except IllegalTransform as error:
        print(error, end="\n\n")

    wavefront = schedule.skew("j", by="i", factor=2).interchange("i", "j").parallel("i")
    print(wavefront, end="\n\n")
    print(*wavefront.steps, sep="\n")
    print({var: verdict.kind for var, verdict in wavefront.loops.items()})

    torch.manual_seed(0)
    a = torch.randn(12, 20)
    expected = a.clone()
    relax(expected)
    wavefront.kernel()(a)
    torch.testing.assert_close(a, expected)
    print("the kernel gives what the loops give")


if __name__ == "__main__":
    main()
