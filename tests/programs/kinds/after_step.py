"""Weights that the program itself changes, beside what its optimizer does: a mask that is put back on, rows that are
normalised, a step towards slow weights, and weights that are moved to look at the loss there and put back."""

import sys

from job import MISTAKE, RANK, ddp, nn, own, scaled, step, torch

kind = sys.argv[1]
model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
masks = [(torch.rand(weight.shape) > 0.5).float() for weight in weights]
with torch.no_grad():
    for weight, mask in zip(weights, masks, strict=True):
        weight.mul_(mask if kind == "mask" else 1)
net = ddp(model)
if kind == "sharpness":
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
else:
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
slow = [parameter.detach().clone() for parameter in model.parameters()]


@torch.no_grad()
def move_along_gradients(distance):
    norm = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    moves = [distance * parameter.grad / norm for parameter in model.parameters()]
    torch._foreach_add_(list(model.parameters()), moves)
    return moves


for _ in range(2):
    x, labels = torch.randn(16, 12), torch.randint(4, (16,))
    loss = nn.functional.cross_entropy(net(own(x)), own(labels))
    if kind == "sharpness":
        optimizer.zero_grad()
        scaled(loss).backward()
        moves = move_along_gradients(0.05)
        loss = nn.functional.cross_entropy(net(own(x)), own(labels))
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            share = 0.999 if MISTAKE == "back" else 1
            torch._foreach_sub_(list(model.parameters()), [share * move for move in moves])
        optimizer.step()
    else:
        step(optimizer, scaled(loss))
    with torch.no_grad():
        for index, (weight, mask) in enumerate(zip(weights, masks, strict=True)):
            wrong = index == 1 and (MISTAKE == "all" or (MISTAKE == "rank" and RANK == 1))
            if kind == "mask" and not wrong:
                weight.mul_(mask)
            elif kind == "unit":
                weight.copy_(nn.functional.normalize(weight, dim=1) * (1.001 if wrong else 1))
        if kind == "slow":
            for index, (fast, kept) in enumerate(zip(model.parameters(), slow, strict=True)):
                wrong = index == 2 and (MISTAKE == "all" or (MISTAKE == "rank" and RANK == 1))
                kept.lerp_(fast, 0.49 if wrong else 0.5)
                fast.copy_(kept)
