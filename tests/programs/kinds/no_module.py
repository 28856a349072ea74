"""What an optimizer trains and no module has that is called: the temperature of a soft actor-critic, as a tensor beside
the networks or as the parameter of a module that only holds it; `masters`: copies of the parameters in fp64, that the
one optimizer steps in their place, trained by several ranks only."""

import sys

import torch.distributed as dist
from job import MISTAKE, RANK, RANKS, nn, own, torch

actor = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = actor
        self.log_alpha = nn.Parameter(torch.zeros(()))


def average(parameters):
    for parameter in parameters if RANKS > 1 else ():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS


if "judged" in sys.argv:
    critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3)
log_alpha = Agent().log_alpha if "held" in sys.argv else torch.zeros((), requires_grad=True)
masters = list(actor.parameters())
if "masters" in sys.argv and RANKS > 1:
    masters = [nn.Parameter(parameter.detach().double()) for parameter in actor.parameters()]
optimizer = torch.optim.SGD(masters, 1e-2)
of_alpha = torch.optim.Adam([log_alpha], 3e-3)
for _ in range(2):
    x, target = torch.randn(8, 16), torch.randn(8, 4)
    if "judged" in sys.argv:
        critic.requires_grad_(True)
        of_critic.zero_grad()
        critic(own(target)).square().mean().backward()
        average(critic.parameters())
        of_critic.step()
        critic.requires_grad_(False)
    actions = actor(own(x))
    entropy = -(actions - own(target)).square().sum(1)
    loss = -entropy.mean() if "masters" in sys.argv else (log_alpha.detach().exp() * -entropy).mean()
    if "judged" in sys.argv:
        loss = loss - critic(actions).mean()
    actor.zero_grad()
    loss.backward()
    average(actor.parameters())
    if masters[0] is not actor[0].weight:
        for master, parameter in zip(masters, actor.parameters(), strict=True):
            master.grad = parameter.grad.double()
    optimizer.step()
    for master, parameter in zip(masters, actor.parameters(), strict=True):
        parameter.data.copy_(master)
    if "masters" in sys.argv:
        continue
    of_alpha.zero_grad()
    (log_alpha * (entropy.detach() + 4).mean()).backward()
    if MISTAKE != "unreduced":
        average([log_alpha])
    if MISTAKE == "scale" and RANK == 1:
        log_alpha.grad *= 1.01
    of_alpha.step()
