"""Models that follow others and that no optimizer updates: a mean teacher, and the targets of two critics, which are
updated between the steps of an iteration, since the actor steps two times for two steps of the critics."""

import copy
import sys

from job import MISTAKE, ddp, nn, own, torch

kind = sys.argv[1]


def net(inputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 4))


@torch.no_grad()
def follow(model, target):
    for mean, parameter in zip(target.parameters(), model.parameters(), strict=True):
        mean.lerp_(parameter, 0.3)


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


mse = nn.functional.mse_loss
critics = [net(8) for _ in range(1 if kind == "teacher" else 2)]
targets = [copy.deepcopy(each).requires_grad_(False) for each in critics]
optimizer = torch.optim.SGD([parameter for each in critics for parameter in each.parameters()], 0.1)
nets = [ddp(each) for each in critics]
if kind == "critics":
    actor_model = net(4)
    actor, of_actor = ddp(actor_model), torch.optim.SGD(actor_model.parameters(), 0.1)
for number in range(4):
    x, y, short = torch.randn(8, 8), torch.randn(8, 4), torch.randn(8, 4)
    with torch.no_grad():
        wanted = own(y) + sum(each(own(x)) for each in targets)
    loss = sum(mse(each(own(x)), wanted) for each in nets)
    if kind == "teacher" and MISTAKE == "before":
        follow(critics[0], targets[0])
    step(optimizer, loss)
    if kind == "critics" and number % 2 == 0:
        for _ in range(2):
            step(of_actor, mse(actor(own(short)), own(y)))
    for which, (critic, target) in enumerate(zip(critics, targets, strict=True)):
        if MISTAKE != "before" and not (MISTAKE == "second" and which == 1):
            follow(critic, target)
