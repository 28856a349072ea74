"""Weights that follow others' by a rule of the program: a teacher of Mean Teacher, an average whose decay warms up, a
target network that is copied behind the second step, slow weights (Lookahead)."""

import copy
import sys

from job import MISTAKE, RANK, ddp, nn, own, step, torch

kind = sys.argv[1]
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
other = copy.deepcopy(model).requires_grad_(False)
net = ddp(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)


@torch.no_grad()
def follow(share):
    for mean, parameter in zip(other.parameters(), model.parameters(), strict=True):
        mean.lerp_(parameter.detach(), share)


def update(number):
    is_wrong = number == 1
    if kind == "teacher":
        if not (MISTAKE == "not-on-rank-1" and RANK == 1 and is_wrong):
            follow(0.02 if MISTAKE == "decay" else 0.01)
    elif kind == "warming":
        follow(1 - (0.5 if MISTAKE == "stays-cold" and is_wrong else min(0.99, (1 + number) / (4 + number))))
    elif kind == "target" and number in {"copied-late": (2,), "copied-again": (1, 2)}.get(MISTAKE, (1,)):
        follow(1.0)
    elif kind == "slow" and number % 2 == 1:
        follow(0.6 if MISTAKE == "share" else 0.5)
        if not (MISTAKE == "not-on-rank-1" and RANK == 1):
            with torch.no_grad():
                torch._foreach_copy_(list(model.parameters()), list(other.parameters()))


for number in range(3):
    x, y = torch.randn(8, 16), torch.randn(8, 4)
    x, y = own(x), own(y)
    loss = (net(x) - y).square().mean()
    if kind in ("teacher", "target"):
        with torch.no_grad():
            wanted = other(x)
        loss = loss + (2 if MISTAKE == "consistency" else 1) * (net(x) - wanted).square().mean()
    if MISTAKE == "before-the-step":
        update(number)
    step(optimizer, loss)
    if MISTAKE != "before-the-step":
        update(number)
