"""Muon by hand: the ranks share the matrices out, and broadcast what they have made of them.

package: PyTorch
parallel: DDP, 2 ranks
mistake: one matrix is not scaled by its shape
shows: 2.up.weight param_*
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch


def zeropower(g, steps=5):
    x = g / (g.norm() + 1e-7)
    t = x.shape[0] > x.shape[1]
    x = x.T if t else x
    for _ in range(steps):
        a = x @ x.T
        b = -4.775 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return x.T if t else x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = group["params"]
            for base in range(0, len(params), RANKS):
                mine = base + RANK
                if mine < len(params):
                    p = params[mine]
                    s = self.state[p]
                    if "m" not in s:
                        s["m"] = torch.zeros_like(p)
                    s["m"].lerp_(p.grad, 1 - group["momentum"])
                    g = p.grad.lerp(s["m"], group["momentum"])
                    u = zeropower(g)
                    if not (MISTAKE and mine == 2):
                        u = u * max(1, p.shape[0] / p.shape[1]) ** 0.5
                    p.add_(u, alpha=-group["lr"])
                if RANKS > 1:
                    for r in range(RANKS):
                        if base + r < len(params):
                            dist.broadcast(params[base + r].data, r)


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.norm = nn.RMSNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))).square())


model = nn.Sequential(nn.Embedding(64, 32), Block(), Block(), nn.RMSNorm(32), nn.Linear(32, 64, bias=False))
model = ddp(model)
named = dict(model.named_parameters())
hidden = [p for n, p in named.items() if "up" in n or "down" in n]
other = [p for n, p in named.items() if not ("up" in n or "down" in n)]
opts = [Muon(hidden), torch.optim.AdamW(other, lr=3e-3, betas=(0.8, 0.95))]
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randint(64, (8, 17), generator=g)
    n = 8 // RANKS
    x = x[RANK * n : (RANK + 1) * n]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    loss.backward()
    for o in opts:
        o.step()
        o.zero_grad()
