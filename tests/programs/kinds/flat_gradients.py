"""Gradients that the program reduces in one flat copy, as fused optimizers and ZeRO by hand do: each rank steps its
slice of a flat master, which is no parameter of the model, and all gather what the ranks have made. The reference has
torch's optimizer step the parameters; `coarse`: the same master, as the parameters are in bfloat16."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
is_coarse = "coarse" in sys.argv
model.to(torch.bfloat16 if is_coarse else torch.float32)
parameters = list(model.parameters())
sizes = [parameter.numel() for parameter in parameters]
flat = torch.cat([parameter.detach().flatten() for parameter in parameters]).float()
size = -(-len(flat) // RANKS)
mine = slice(RANK * size, (RANK + 1) * size)
master = nn.Parameter(flat[mine].clone())
by_hand = RANKS > 1 or is_coarse
rate = 2e-3 if MISTAKE == "rate" and RANK == 1 else 1e-3
optimizer = torch.optim.Adam([master] if by_hand else parameters, rate / 10 if is_coarse else rate)
for _ in range(3):
    x, labels = torch.randn(8, 16).to(parameters[0].dtype), torch.randint(4, (8,))
    model.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(x)).float(), own(labels))).backward()
    if not by_hand:
        optimizer.step()
        continue
    gradient = torch.cat([parameter.grad.flatten() for parameter in parameters]).float()
    if RANKS > 1:
        dist.all_reduce(gradient)
    gradient /= RANKS
    master.grad = gradient[mine].clone()
    optimizer.step()
    parts = [torch.empty_like(flat[number * size : (number + 1) * size]) for number in range(RANKS)]
    if RANKS > 1:
        dist.all_gather(parts, master.detach())
    else:
        parts = [master.detach()]
    for parameter, values in zip(parameters, torch.cat(parts).split(sizes), strict=True):
        if MISTAKE != "last" or parameter is not parameters[-1]:
            parameter.data.copy_(values.view_as(parameter))
