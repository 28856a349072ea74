"""Weights of losses that optimizers train beside the model, which a parallel program steps in another order: those of
one optimizer's groups, or `optimizers`, each in its own; `alike`: which begin with one value."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, ddp, nn, own, torch

model = ddp(nn.Linear(16, 4))
begin = (-1.0, -1.0) if "alike" in sys.argv else (-1.0, -1.2)
weights = [torch.full((), value, requires_grad=True) for value in begin]
order = weights if RANKS == 1 else weights[::-1]
if "optimizers" in sys.argv:
    optimizers = [torch.optim.Adam([weight], 1e-2 if weight is weights[0] else 2e-2) for weight in order]
else:
    optimizers = [torch.optim.Adam([{"params": [weight]} for weight in order], 1e-2)]
optimizers.append(torch.optim.AdamW(model.parameters(), 1e-3))
x, y = torch.randn(8, 16), torch.randn(8, 4)
for _ in range(2):
    error = model(own(x)) - own(y)
    losses = error.square().mean(), error.abs().mean()
    loss = sum((-weight).exp() * part + weight for weight, part in zip(weights, losses, strict=True))
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for weight in weights if RANKS > 1 else ():
        dist.all_reduce(weight.grad)
        weight.grad /= RANKS
    if MISTAKE == "first" and RANKS > 1:
        weights[0].grad *= 1.01
    if MISTAKE == "last" and RANK == 1:
        weights[1].grad *= 1.01
    for optimizer in optimizers:
        optimizer.step()
