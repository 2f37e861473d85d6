"""RMSNorm and a linear layer as a tensor graph with a block graph: what it is, the loops it becomes, and a call."""

from __future__ import annotations

import torch

from weft.graph import BlockGraph, KernelGraph


def rms_linear(rows: int, width: int, columns: int) -> KernelGraph:
    graph = KernelGraph("rms_linear")
    x = graph.input("x", (rows, width), "float16")
    w = graph.input("w", (width, columns), "float16")
    block = BlockGraph(grid=(columns // 64,), loop=width // 64)
    tile = block.input(x, input_map=(-1,), forloop_dim=1)  # all rows, 64 columns in each turn
    weights = block.input(w, input_map=(1,), forloop_dim=0)
    product = block.accumulate(block.matmul(tile, weights), name="product")
    rms = block.accumulate(tile, "rms", eps=1e-5, name="rms")
    block.output(block.div(product, rms), output_map=(1,), name="y")
    graph.output(*graph.customized((x, w), block))
    return graph


def main() -> None:
    graph = rms_linear(16, 256, 512)
    print(graph)
    print(graph.program)
    print(graph.explain())
    x, w = torch.randn(16, 256).half(), (torch.randn(256, 512) / 16).half()
    off = (graph(x, w) - graph.reference(x, w, double=True)).abs().max()
    print("largest difference to float64 is small:", bool(off < 4e-3))


if __name__ == "__main__":
    main()
