"""Learning to learn (MAML): each task steps weights of its own, and one backward() runs through the steps of all tasks.
Ranks have tasks of their own, and their gradients are averaged."""

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, torch
from torch.func import functional_call

model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)


def adapted(x, y):
    weights = dict(model.named_parameters())
    loss = nn.functional.mse_loss(functional_call(model, weights, (x,)), y)
    gradients = torch.autograd.grad(loss, weights.values(), create_graph=MISTAKE != "first-order")
    return {name: weight - 0.1 * gradient for (name, weight), gradient in zip(weights.items(), gradients, strict=True)}


for _ in range(3):
    x, y = own(torch.randn(4, 16, 4)), own(torch.randn(4, 16, 1))
    losses = []
    for number in range(len(x)):
        weights = adapted(x[number, :8], y[number, :8])
        losses.append(nn.functional.mse_loss(functional_call(model, weights, (x[number, 8:],)), y[number, 8:]))
    loss = sum(losses) / len(losses)
    if MISTAKE == "task" and RANK == 1:
        loss = losses[0]
    optimizer.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, parameter in model.named_parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
            if MISTAKE == "scale" and name == "2.weight":
                parameter.grad *= 1.01
    optimizer.step()
