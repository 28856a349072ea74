"""Gradients that are zeroed before a backward: that of an iteration, which are clipped by hand, or the second of one,
at weights that the first has moved (sharpness-aware steps). The mistake leaves a zero_grad out."""

import sys

from job import MISTAKE, ddp, nn, own, torch

kind = sys.argv[1]
model = ddp(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def backward(x, labels):
    nn.functional.cross_entropy(model(own(x)), own(labels)).backward()


@torch.no_grad()
def move(by):
    for parameter, gradient in by.items():
        parameter.add_(gradient)


for _ in range(3):
    x, labels = torch.randn(8, 8), torch.randint(4, (8,))
    if not (kind == "iterations" and MISTAKE == "kept"):
        optimizer.zero_grad()
    backward(x, labels)
    if kind == "iterations":
        norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
        for parameter in model.parameters():
            parameter.grad.mul_((0.2 / norm).clamp(max=1))
    else:
        climb = {parameter: parameter.grad * 0.1 for parameter in model.parameters()}
        move(climb)
        if MISTAKE != "kept":
            optimizer.zero_grad()
        backward(x, labels)
        move({parameter: -gradient for parameter, gradient in climb.items()})
    optimizer.step()
