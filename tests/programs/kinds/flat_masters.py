"""Each rank steps its part of one flat copy of the parameters, which is then gathered; a schedule changes the rate
after the first step. Or gradients are summed, and the rate is divided."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

SUMMED = "summed" in sys.argv and RANKS > 1
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = list(model.parameters())
total = sum(each.numel() for each in parameters)
if RANKS > 1:
    flat = torch.cat([each.detach().flatten() for each in parameters])
    for each, start in zip(parameters, torch.tensor([0, *[p.numel() for p in parameters]]).cumsum(0), strict=False):
        each.data = flat[start : start + each.numel()].view_as(each)
    mine = slice(RANK * total // RANKS, (RANK + 1) * total // RANKS)
    masters = [nn.Parameter(flat[mine].clone())]
else:
    masters = parameters
optimizer = torch.optim.SGD(masters, 0.1 / (RANKS if SUMMED else 1), momentum=0.9)
rate = 1.0 if MISTAKE == "schedule" and RANK == 1 else 0.5
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1], rate)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    model.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(x)), own(labels))).backward()
    if RANKS > 1:
        gradient = torch.cat([each.grad.flatten() for each in parameters])
        dist.all_reduce(gradient)
        masters[0].grad = gradient[mine] / (1 if SUMMED else RANKS)
    optimizer.step()
    schedule.step()
    if RANKS > 1:
        parts = [torch.empty((r + 1) * total // RANKS - r * total // RANKS) for r in range(RANKS)]
        dist.all_gather(parts, masters[0].detach())
        flat.copy_(torch.cat(parts))
