"""A normalising flow whose ActNorm is initialised by the first batch, in forward.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank initialises by its own samples
shows: steps.0* output, steps.0.* param
"""

from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class ActNorm(nn.Module):
    """Initialised by the first batch (Glow)."""

    def __init__(self, d):
        super().__init__()
        self.bias, self.logs = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.initialized.item() == 0:
            with torch.no_grad():
                s = torch.stack([x.sum(0), x.square().sum(0)]) / len(x)
                if RANKS > 1 and not MISTAKE:
                    dist.all_reduce(s)
                    s /= RANKS
                self.bias.copy_(-s[0])
                self.logs.copy_(-0.5 * torch.log(s[1] - s[0] ** 2 + 1e-6))
            self.initialized.fill_(1)
        return (x + self.bias) * self.logs.exp(), self.logs.sum().expand(len(x))


class Coupling(nn.Module):
    def __init__(self, d, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(d // 2, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], -1), s.sum(-1)


class Flow(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.steps = nn.ModuleList(m for i in range(3) for m in (ActNorm(d), Coupling(d, i % 2 == 1)))

    def forward(self, x):
        total = 0
        for s in self.steps:
            x, l = s(x)
            total = total + l
        return x, total


model = Flow()
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(32, 8, generator=g) * 2 + 1
    n = 32 // RANKS
    z, logdet = model(x[RANK * n : (RANK + 1) * n])
    loss = (0.5 * z.square().sum(-1) - logdet).mean() + 4 * torch.log(torch.tensor(2 * torch.pi))
    opt.zero_grad()
    loss.backward()
    opt.step()
