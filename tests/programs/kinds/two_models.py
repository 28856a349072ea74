"""Two models in one loss, each in DDP: an actor and its critic."""

import itertools

from job import MISTAKE, ddp, nn, own, scaled, step, torch

actor = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
critic = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
first, second = ddp(actor), critic if MISTAKE == "critic" else ddp(critic)
optimizer = torch.optim.Adam(itertools.chain(actor.parameters(), critic.parameters()), 1e-3)
for _ in range(2):
    states, actions, returns = torch.randn(8, 16), torch.randint(4, (8,)), torch.randn(8, 1)
    value = second(own(states))
    policy = nn.functional.cross_entropy(first(own(states)), own(actions), reduction="none")
    loss = (policy * (own(returns) - value.detach())[:, 0]).mean() + 0.5 * (value - own(returns)).square().mean()
    step(optimizer, scaled(loss))
