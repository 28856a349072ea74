"""What a parallel program holds in a module that only passes its calls on, as its reference does not: `loss`, a
criterion with proxies of its own, given the embeddings of all ranks; `model`, the whole model; `layers`, each block of
it; `calls`, a model that is called through a wrapper that also takes the loss."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, Gather, ddp, nn, own, scaled, torch

KIND = sys.argv[1]


class Proxies(nn.Module):
    def __init__(self):
        super().__init__()
        self.distance = nn.CosineSimilarity(dim=-1)
        self.proxies = nn.Parameter(torch.randn(6, 8))

    def forward(self, embeddings, labels):
        return nn.functional.cross_entropy(self.distance(embeddings[:, None], self.proxies[None]) * 4, labels)


class OfAllRanks(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, embeddings, labels):
        return self.loss(Gather.apply(embeddings), Gather.apply(labels))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)
        if MISTAKE == "lacks" and RANKS > 1:
            self.wide.bias = None

    def forward(self, x):
        return x + self.narrow(self.wide(x).tanh())


class PassesOn(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class TakesLoss(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, labels, criterion):
        return criterion(self.inner(x), labels)


blocks = [Block(), Block()]
if KIND == "layers" and RANKS > 1:
    blocks = [PassesOn(PassesOn(block)) for block in blocks]
model = nn.Sequential(*blocks, nn.Linear(16, 8))
criterion = nn.CrossEntropyLoss() if KIND == "calls" else Proxies()
if KIND == "loss" and RANKS > 1:
    criterion = OfAllRanks(criterion)
if KIND in ("model", "calls") and RANKS > 1:
    model = PassesOn(model) if KIND == "model" else TakesLoss(model)
model = ddp(model)
optimizers = [torch.optim.AdamW(model.parameters(), 1e-3)]
if KIND != "calls":
    optimizers.append(torch.optim.SGD(criterion.parameters(), 0.1))
x, labels = torch.randn(8, 16), torch.randint(6, (8,))
for _ in range(2):
    for optimizer in optimizers:
        optimizer.zero_grad()
    if KIND == "calls" and RANKS > 1:
        loss = model(own(x), own(labels), criterion)
    else:
        loss = criterion(model(own(x)), own(labels))
    if KIND == "loss" and RANKS > 1:
        loss.backward()
        for proxy in criterion.parameters() if MISTAKE == "proxies" and RANK == 1 else ():
            proxy.grad *= 1.01
    else:
        scaled(loss).backward()
        for proxy in criterion.parameters() if RANKS > 1 else ():
            dist.all_reduce(proxy.grad)
            proxy.grad /= RANKS
    for optimizer in optimizers:
        optimizer.step()
