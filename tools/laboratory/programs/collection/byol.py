"""BYOL: an online and a target network, trained by LARS.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 does not update its target's projector
shows: Sequential*.* buffer_after
"""

import copy

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Online(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 24)
        )
        self.projector = nn.Sequential(nn.Linear(24, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 12))
        self.predictor = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, a, b):
        return tuple(self.predictor(self.projector(self.encoder(v))) for v in (a, b))


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr=0.3, momentum=0.9, weight_decay=1e-4, trust=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad + g["weight_decay"] * p
                if p.ndim > 1:
                    d = d * (g["trust"] * p.norm() / d.norm().clamp(min=1e-12))
                buf = self.state[p].setdefault("mu", torch.zeros_like(p))
                buf.mul_(g["momentum"]).add_(d)
                p.sub_(buf, alpha=g["lr"])


online = Online()
target_encoder, target_projector = (copy.deepcopy(m).requires_grad_(False) for m in (online.encoder, online.projector))
model = ddp(online)
opt = LARS(model.parameters())
sim = lambda p, z: 2 - 2 * (F.normalize(p, dim=-1) * F.normalize(z, dim=-1)).sum(-1)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(8, 3, 12, 12, generator=g)
    a, b = x + 0.3 * torch.randn(x.shape, generator=g), x + 0.3 * torch.randn(x.shape, generator=g)
    a, b = (v.chunk(RANKS)[RANK] for v in (a, b))
    pa, pb = model(a, b)
    with torch.no_grad():
        za, zb = target_projector(target_encoder(a)), target_projector(target_encoder(b))
    loss = (sim(pa, zb) + sim(pb, za)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for m, t in ((online.encoder, target_encoder), (online.projector, target_projector)):
            if MISTAKE and m is online.projector and RANK == 1:
                continue
            for p, q in zip(m.parameters(), t.parameters()):
                q.mul_(0.99).add_(p, alpha=0.01)
