"""Gradients of two tasks, each taken by itself and projected off the other where they conflict, as PCGrad does."""

import torch.distributed as dist
from job import MISTAKE, RANKS, nn, own, torch

trunk = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
model = nn.ModuleDict({"trunk": trunk, "first": nn.Linear(16, 1), "second": nn.Linear(16, 1)})


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = model

    def forward(self, x):
        hidden = self.parts["trunk"](x)
        return self.parts["first"](hidden), self.parts["second"](hidden)


def averaged(gradients):
    for gradient in gradients if RANKS > 1 else ():
        dist.all_reduce(gradient)
        gradient /= RANKS
    return gradients


def projected(gradients, others):
    dot = sum((a * b).sum() for a, b in zip(gradients, others, strict=True))
    square = sum(b.square().sum() for b in others)
    return [a - dot / square * b if dot < 0 else a.clone() for a, b in zip(gradients, others, strict=True)]


net, shared = Tasks(), list(trunk.parameters())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
weights = torch.randn(16, 1)
for _ in range(2):
    x = torch.randn(16, 16)
    y = own(x @ weights)
    taken = []
    for number, (head, sign, scores) in enumerate(zip(("first", "second"), (1, -1), net(own(x)), strict=True)):
        own_ones = list(model[head].parameters())
        loss = (scores - sign * y).square().mean()
        gradients = [each.clone() for each in torch.autograd.grad(loss, shared + own_ones, retain_graph=number == 0)]
        for parameter, gradient in zip(own_ones, averaged(gradients[len(shared) :]), strict=True):
            parameter.grad = gradient
        taken.append(gradients[: len(shared)])
        if MISTAKE != "own":
            averaged(taken[-1])
    of_both = [a + b for a, b in zip(projected(*taken), projected(*taken[::-1]), strict=True)]
    for parameter, gradient in zip(shared, averaged(of_both) if MISTAKE == "own" else of_both, strict=True):
        parameter.grad = gradient
    optimizer.step()
