"""A network that solves a differential equation: derivatives by its inputs, two calls in one loss, and gradients that
are averaged by hand."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, torch

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)


def residual(x):
    x = x.requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    return du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * ddu[:, 0]


for _ in range(2):
    inside, boundary = own(torch.rand(32, 2)), own(torch.rand(16, 2))
    weight = 10.1 if MISTAKE == "weight" and RANK == 1 else 10
    loss = residual(inside).square().mean() + weight * (model(boundary)[:, 0] - boundary[:, 1].sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters() if RANKS > 1 else []:
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
