"""Ranks that each compute the loss of all samples from features that they gather, their own first, and so proxies'
gradients by sums in another order; these are averaged, lest the ranks' copies drift apart by rounding."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, ddp, nn, own, scaled, torch


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features):
        parts = [torch.empty_like(features) for _ in range(RANKS)]
        dist.all_gather(parts, features.contiguous())
        ctx.samples = len(features)
        return torch.cat([features, *parts[:RANK], *parts[RANK + 1 :]])

    @staticmethod
    def backward(ctx, gradient):
        return gradient[: ctx.samples] * RANKS  # DDP takes the mean over ranks


def labels_of_all(labels):
    parts = list(labels.chunk(RANKS))
    return torch.cat([parts[RANK], *parts[:RANK], *parts[RANK + 1 :]])


model = nn.Sequential(nn.Linear(16, 64), nn.Tanh())
net = ddp(model)
proxies = nn.Parameter(torch.randn(64, 7))
optimizer = torch.optim.SGD([*model.parameters(), proxies], 0.1)
for _ in range(2):
    x, labels = torch.randn(32, 16), torch.randint(7, (32,))
    features = net(own(x))
    if RANKS > 1:
        features, labels = Gather.apply(features), labels_of_all(labels)
    optimizer.zero_grad()
    scaled(nn.functional.cross_entropy(features @ proxies, labels)).backward()
    if RANKS > 1 and MISTAKE != "unreduced":
        dist.all_reduce(proxies.grad)
        proxies.grad /= RANKS
    optimizer.step()
