"""Attention in one pass over the keys, written as loops over elements, and what weft finds in it.

The running maximum, the running sum and the running output are three cycles that each go round the loop over the keys.
"""

import math

import torch

import weft


@weft.kernel(example={"q": "float32[128,64]", "k": "float32[256,64]", "v": "float32[256,64]"})
def attention(q, k, v):
    queries, dim = q.shape
    keys, width = v.shape
    out = torch.empty_like(q)
    for i in range(queries):
        largest = -math.inf
        total = 0.0
        acc = torch.zeros(64)
        for j in range(keys):
            score = 0.0
            for e in range(dim):
                score = score + q[i, e] * k[j, e]
            new = max(largest, score)
            old = torch.exp(largest - new)
            p = torch.exp(score - new)
            total = total * old + p
            for e in range(64):
                acc[e] = acc[e] * old + p * v[j, e]
            largest = new
        for e in range(64):
            out[i, e] = acc[e] / total
    return out


def main() -> None:
    print(attention.explain())
    torch.manual_seed(0)
    q, k, v = torch.randn(20, 64), torch.randn(30, 64), torch.randn(30, 64)
    exact = torch.softmax(q.double() @ k.double().T, dim=1) @ v.double()
    print("largest difference to softmax(q @ k.T) @ v:", float((attention(q, k, v) - exact).abs().max()))


if __name__ == "__main__":
    main()
