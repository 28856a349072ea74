"""Float16 autocast with GradScaler, two micro-batches a step, and clipping.

package: PyTorch
parallel: DDP, 2 ranks
mistake: gradients are clipped before they are unscaled
shows: * main_grad
"""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(24, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = self.inp(x)
        for n, l in zip(self.norms, self.layers):
            x = x + F.gelu(l(n(x)))
        return self.out(x)


model = Net()
model = ddp(model)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    opt.zero_grad()
    for i in range(2):
        x, y = torch.randn(16, 24, generator=g), torch.randint(10, (16,), generator=g)
        x, y = x.chunk(RANKS)[RANK], y.chunk(RANKS)[RANK]
        with model.no_sync() if RANKS > 1 and i == 0 else contextlib.nullcontext():
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(x).float(), y) / 2
            scaler.scale(loss).backward()
    if not (MISTAKE and RANKS > 1):
        scaler.unscale_(opt)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(opt)
    scaler.update()
