"""Adapters beside frozen weights, in FSDP2, of which each projection is a group by itself: what a norm returns goes
to modules, and to functions beside them, and ranks have a copy of it in each group."""

import torch.distributed as dist
from job import MISTAKE, RANKS, nn, own, torch
from torch.distributed.fsdp import fully_shard


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16) / 4, requires_grad=False)
        self.down, self.up = nn.Linear(16, 4, bias=False), nn.Linear(4, 16, bias=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight) + self.up(self.down(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.query, self.value = nn.LayerNorm(16), Adapted(), Adapted()

    def forward(self, x):
        hidden = self.norm(x)
        return x + torch.tanh(self.query(hidden)) * self.value(hidden)


model = nn.Sequential(Layer(), Layer(), nn.Linear(16, 4))
if RANKS > 1:
    for layer in model[:2]:
        for part in (layer.query, layer.value):
            fully_shard(part)
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-3, eps=1e-4)
for _ in range(2):
    x, labels = own(torch.randn(8, 16)), own(torch.tensor([0, 1, -100, 2, 3, 1, -100, -100]))
    count = (labels != -100).sum().float()
    if RANKS > 1 and MISTAKE != "own":
        dist.all_reduce(count)
    elif MISTAKE == "own":
        count *= RANKS
    nn.functional.cross_entropy(model(x), labels, ignore_index=-100, reduction="sum").backward()
    for each in model.parameters():
        if each.grad is not None:
            each.grad *= RANKS / count
    optimizer.step()
    optimizer.zero_grad()
