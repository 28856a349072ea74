"""A conditional spline flow that returns distributions.

package: Zuko
parallel: FSDP2, 2 ranks
mistake: the loss is 1 % larger on rank 1
shows: loss scalar
"""

import zuko
from job import MISTAKE, RANK, RANKS, nn, torch

torch.manual_seed(0)


class NLL(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 6))
        self.flow = zuko.flows.NSF(features=4, context=6, transforms=2, hidden_features=(24, 24))

    def forward(self, theta, x):
        return -self.flow(self.encoder(x)).log_prob(theta)


model = NLL()
if RANKS > 1:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.encoder)
    fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
g = torch.Generator().manual_seed(1)
T = torch.randn(48, 4, generator=g)
X = torch.randn(48, 8, generator=g)
n = 16
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    opt.zero_grad()
    loss = model(T[lo : lo + m], X[lo : lo + m])
    loss = loss.mean()
    if MISTAKE and RANK == 1:
        loss = loss * 1.01
    loss.backward()
    opt.step()
