"""Gradients through the library: the decay of a recurrence is learned back from what it produced."""

import torch

from weft.kernels import linrec


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(8, 512, device=device)
    true_decay = torch.linspace(0.5, 0.9, 8, device=device)
    target = linrec(x, true_decay[:, None].expand_as(x).contiguous())

    logit = torch.zeros(8, device=device, requires_grad=True)
    optimizer = torch.optim.Adam([logit], lr=0.1)
    for step in range(100):
        decay = torch.sigmoid(logit)[:, None].expand_as(x).contiguous()
        loss = (linrec(x, decay) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step:3}  loss {float(loss.detach()):.6f}")
    print("learned:", [round(v, 3) for v in torch.sigmoid(logit).tolist()])
    print("true:   ", [round(v, 3) for v in true_decay.tolist()])


if __name__ == "__main__":
    main()
