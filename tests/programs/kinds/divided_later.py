"""Steps of each rank's shards, into which the summed gradients are divided on the way; shards are gathered then."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, scaled, torch

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
parameters = list(model.parameters())
shards = [nn.Parameter(parameter.detach().chunk(RANKS)[RANK].clone()) for parameter in parameters]
optimizer = torch.optim.SGD(shards if RANKS > 1 else parameters, 1e-2, momentum=0.9)
for _ in range(3):
    x, labels = torch.randn(8, 16), torch.randint(4, (8,))
    model.zero_grad()
    scaled(nn.functional.cross_entropy(model(own(x)), own(labels))).backward()
    for parameter, shard in zip(parameters, shards, strict=True) if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        shard.grad = parameter.grad.chunk(RANKS)[RANK] / RANKS
    optimizer.step()
    for parameter, shard in zip(parameters, shards, strict=True) if RANKS > 1 else ():
        parts = [torch.empty_like(shard) for _ in range(RANKS)]
        dist.all_gather(parts, shard.detach())
        if not (MISTAKE == "kept" and parameter is parameters[-1]):
            parameter.data.copy_(torch.cat(parts))
