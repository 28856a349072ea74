"""Gradients that the program reduces in one flat copy, as fused optimizers and ZeRO by hand do: each rank steps its
slice of a flat master, which is no parameter of the model, and all gather what the ranks have made."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = list(model.parameters())
sizes = [parameter.numel() for parameter in parameters]
flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
size = -(-len(flat) // RANKS)
mine = slice(RANK * size, (RANK + 1) * size)
master = nn.Parameter(flat[mine].clone())
rate = 2e-3 if MISTAKE == "rate" and RANK == 1 else 1e-3
optimizer = torch.optim.Adam([master] if RANKS > 1 else parameters, rate)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    model.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(x)), own(labels))).backward()
    if RANKS == 1:
        optimizer.step()
        continue
    gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
    dist.all_reduce(gradient)
    gradient /= RANKS
    master.grad = gradient[mine].clone()
    optimizer.step()
    parts = [torch.empty_like(flat[number * size : (number + 1) * size]) for number in range(RANKS)]
    dist.all_gather(parts, master.detach())
    for parameter, values in zip(parameters, torch.cat(parts).split(sizes), strict=True):
        if MISTAKE != "last" or parameter is not parameters[-1]:
            parameter.data.copy_(values.view_as(parameter))
