"""A network that solves a differential equation: derivatives by its inputs, two calls in one loss, and gradients that
are averaged by hand. With `corner` rank 0 alone has the boundary, and a step takes two such losses."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, torch

CORNER = "corner" in sys.argv
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)


def residual(x):
    x = x.requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (ddu,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    return du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * ddu[:, 0]


for _ in range(2):
    optimizer.zero_grad()
    for _ in range(2 if CORNER else 1):
        inside, boundary = own(torch.rand(32, 2)), torch.rand(16, 2)
        loss = residual(inside).square().mean()
        if not CORNER or RANK == 0:
            boundary = boundary if CORNER else own(boundary)
            weight = 10.1 if MISTAKE == "weight" and RANK == 1 else 10
            term = weight * (model(boundary)[:, 0] - boundary[:, 1].sin()).square().mean()
            loss = loss + (term * RANKS if CORNER and MISTAKE != "averaged" else term)
        loss.backward()
    for parameter in model.parameters() if RANKS > 1 else []:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS
    optimizer.step()
