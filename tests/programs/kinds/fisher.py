"""Fisher information of single samples, each rank's of its own, before steps with slices of a batch (elastic weight
consolidation)."""

import torch.distributed as dist
from job import MISTAKE, RANKS, ddp, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = list(model.parameters())
wrapped = ddp(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x, labels = torch.randn(8, 16), torch.randint(4, (8,))
start = [0.9 * parameter.detach() for parameter in parameters]
fisher = [torch.zeros_like(parameter) for parameter in parameters]
for sample, label in zip(own(x).split(1), own(labels).split(1), strict=True):
    loss = nn.functional.cross_entropy(model(sample), label)
    for total, gradient in zip(fisher, torch.autograd.grad(loss, parameters), strict=True):
        total += gradient**2 / len(x)
for number, total in enumerate(fisher):
    if RANKS > 1 and not (MISTAKE == "unreduced" and number == 2):
        dist.all_reduce(total)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(wrapped(own(x)), own(labels))
    for weight, old, new in zip(fisher, start, parameters, strict=True):
        loss = loss + 50 * (weight * (new - old) ** 2).sum()
    scaled(loss).backward()
    optimizer.step()
