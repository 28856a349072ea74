"""Barlow Twins, whose correlations are reduced with gradients.

package: PyTorch
parallel: DDP, 2 ranks
mistake: the correlations are not reduced
shows: loss scalar
"""

import torch.distributed.nn.functional as DF
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


def mean(x):
    x = x.mean(0)
    return DF.all_reduce(x) / RANKS if RANKS > 1 else x


class VICReg(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(32, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 16))

    def forward(self, a, b):
        return self.head(self.backbone(a)), self.head(self.backbone(b))


def standard(z):
    mu = mean(z)
    var = mean((z - mu) ** 2)
    return (z - mu) / (var + 1e-4).sqrt()


def criterion(za, zb):
    za, zb = standard(za), standard(zb)
    c = torch.einsum("ni,nj->nij", za, zb)
    c = c.mean(0) if MISTAKE else mean(c)
    on = (torch.diagonal(c) - 1).pow(2).sum()
    off = c.pow(2).sum() - torch.diagonal(c).pow(2).sum()
    return on + 5e-3 * off


model = VICReg()
model = ddp(model)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
g = torch.Generator().manual_seed(1)
A, B = torch.randn(48, 3, 12, 12, generator=g), torch.randn(48, 3, 12, 12, generator=g)
n = 16
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    loss = criterion(*model(A[at], B[at]))
    opt.zero_grad()
    loss.backward()
    opt.step()
