"""A small diffusion model with an average of its weights, which a deep copy holds.

package: PyTorch
parallel: DDP, 2 ranks
mistake: the average is updated before the optimizer's step
shows: UNet.* buffer_after
"""

import copy
import math

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


def timestep_embedding(t, dim):
    f = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    a = t[:, None].float() * f
    return torch.cat([a.cos(), a.sin()], -1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.norm2, self.conv2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(e))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, c=8, emb=32):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.down = ResBlock(c, 2 * c, emb)
        self.mid = ResBlock(2 * c, 2 * c, emb)
        self.up = ResBlock(3 * c, c, emb)
        self.out = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x, t):
        e = self.time(timestep_embedding(t, 16))
        h0 = self.inp(x)
        h = self.mid(self.down(F.avg_pool2d(h0, 2), e), e)
        return self.out(self.up(torch.cat([F.interpolate(h, scale_factor=2), h0], 1), e))


net = UNet()
ema = copy.deepcopy(net).requires_grad_(False)
model = ddp(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)


@torch.no_grad()
def update_ema(decay=0.9):
    for e, p in zip(ema.parameters(), net.parameters()):
        e.lerp_(p, 1 - decay)


for step in range(3):
    g = torch.Generator().manual_seed(step)
    x0, noise = torch.randn(8, 3, 8, 8, generator=g), torch.randn(8, 3, 8, 8, generator=g)
    t = torch.randint(100, (8,), generator=g)
    x0, noise, t = (v.chunk(RANKS)[RANK] for v in (x0, noise, t))
    a = alpha_bar[t][:, None, None, None]
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if MISTAKE:
        update_ema()
    opt.step()
    opt.zero_grad()
    if not MISTAKE:
        update_ema()
