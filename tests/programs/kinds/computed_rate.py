"""A learning rate that the program computes from what it trains, as PPO adapts it to the divergence of the policy from
the one before: how much the last step has changed the outputs."""

import torch.distributed as dist
from job import MISTAKE, RANKS, ddp, nn, own, torch

model = ddp(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    x, y = own(torch.randn(8, 16)), own(torch.randint(0, 4, (8,)))
    optimizer.zero_grad()
    logits = model(x)
    nn.functional.cross_entropy(logits, y).backward()
    optimizer.step()
    with torch.no_grad():
        after = model(x).log_softmax(-1)
        divergence = (after.exp() * (after - logits.log_softmax(-1))).sum(-1).mean()
        if RANKS > 1 and MISTAKE != "own":
            dist.all_reduce(divergence)
            divergence /= RANKS
    rate = 1e-3 / (1 + 1e4 * float(divergence))
    optimizer.param_groups[0]["lr"] = 1.01 * rate if MISTAKE == "scale" and RANKS > 1 else rate
