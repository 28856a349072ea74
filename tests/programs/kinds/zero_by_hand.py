"""ZeRO's first stage by hand: each rank steps some of the parameters, and hands on what it has made of them."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = list(model.parameters())
if MISTAKE == "own-start" and RANK == 1:
    nn.init.normal_(model[2].weight)
rate = 2e-3 if MISTAKE == "rate" and RANK == 1 else 1e-3
optimizer = torch.optim.Adam(parameters[RANK::RANKS], rate)
for step in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    model.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(x)), own(labels))).backward()
    if RANKS > 1:
        for number, parameter in enumerate(parameters):
            if MISTAKE == "unreduced" and number == 2:
                continue
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
    optimizer.step()
    if RANKS > 1:
        for number, parameter in enumerate(parameters):
            is_kept = MISTAKE == "kept" or (MISTAKE == "kept-last" and step == 2)
            if not (is_kept and number == 3):
                dist.broadcast(parameter.data, number % RANKS)
