"""Learning to learn with a clone of the model for each task, as learn2learn makes it: a module of the same class whose
parameters are computed from the model's, which is itself never called; or of a class that is made for each task, as
`higher` makes it. Ranks have tasks of their own."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, torch


class Learner(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def clone(self):
        return Learner(with_parameters(self.module, lambda parameter: parameter.clone()))

    def adapt(self, loss):
        before = list(self.parameters())
        gradients = torch.autograd.grad(loss, before, create_graph=True)
        rate = 0.101 if MISTAKE == "rate" and RANK == 1 else 0.1
        after = {id(old): old - rate * gradient for old, gradient in zip(before, gradients, strict=True)}
        self.module = with_parameters(self.module, lambda parameter: after[id(parameter)])


def with_parameters(module, change):
    other = module.__new__(class_like(type(module)) if "classes" in sys.argv else type(module))
    other.__dict__ = module.__dict__ | {
        "_parameters": {name: change(parameter) for name, parameter in module._parameters.items()},
        "_modules": {name: with_parameters(child, change) for name, child in module._modules.items()},
    }
    return other


def class_like(kind):
    kind = getattr(kind, "made_like", kind)
    return type(kind.__name__, (kind,), {"made_like": kind})


model = Learner(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    x, y = own(torch.randn(4, 16, 4)), own(torch.randn(4, 16, 1))
    optimizer.zero_grad()
    for number in range(len(x)):
        learner = model.clone()
        for _ in range(2):
            learner.adapt(nn.functional.mse_loss(learner(x[number, :8]), y[number, :8]))
        nn.functional.mse_loss(learner(x[number, 8:]), y[number, 8:]).backward()
    for name, parameter in model.named_parameters():
        if RANKS > 1 and not (MISTAKE == "unreduced" and name == "module.2.weight"):
            dist.all_reduce(parameter.grad)
        parameter.grad /= 4
    optimizer.step()
