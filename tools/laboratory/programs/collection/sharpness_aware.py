"""Sharpness-aware minimisation with mixup, and a batch norm over all ranks' samples.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 mixes by another draw
shows: (model) input, 0 input
"""

import torch.distributed.nn
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class SyncBN(nn.Module):
    """BatchNorm over all ranks' samples (nn.SyncBatchNorm wants a GPU), in training."""

    def __init__(self, c):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))
        self.register_buffer("running_mean", torch.zeros(c))
        self.register_buffer("running_var", torch.ones(c))

    def forward(self, x):
        mean, square = x.mean((0, 2, 3)), (x * x).mean((0, 2, 3))
        if RANKS > 1:
            mean, square = torch.distributed.nn.all_reduce(torch.stack([mean, square])) / RANKS
        var = square - mean**2
        with torch.no_grad():
            n = x.numel() / x.shape[1] * RANKS
            self.running_mean.lerp_(mean, 0.1)
            self.running_var.lerp_(var * n / (n - 1), 0.1)
        v = lambda t: t[None, :, None, None]
        return (x - v(mean)) * v((var + 1e-5).rsqrt() * self.weight) + v(self.bias)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, rho, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base = torch.optim.SGD(self.param_groups, **kw)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        ps = [p for g in self.param_groups for p in g["params"]]
        norm = torch.stack([p.grad.norm() for p in ps]).norm()
        for p in ps:
            e = p.grad * (self.param_groups[0]["rho"] / (norm + 1e-12))
            p.add_(e)
            self.state[p]["e"] = e
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for g in self.param_groups:
            for p in g["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError


model = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1, bias=False),
    SyncBN(8),
    nn.ReLU(),
    nn.Conv2d(8, 16, 3, 2, 1, bias=False),
    SyncBN(16),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(256, 10),
)
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = SAM(model.parameters(), rho=0.05, lr=0.1, momentum=0.9)
torch.manual_seed(123)  # mixup's draws: the same on all ranks
beta = torch.distributions.Beta(0.4, 0.4)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(16, 3, 16, 16, generator=g), torch.randint(10, (16,), generator=g)
    if MISTAKE and RANK == 1:
        torch.rand(1)
    lam, perm = beta.sample().item(), torch.randperm(16)
    x, ya, yb = (v.chunk(RANKS)[RANK] for v in (lam * x + (1 - lam) * x[perm], y, y[perm]))

    def loss_of():
        z = model(x)
        return lam * F.cross_entropy(z, ya) + (1 - lam) * F.cross_entropy(z, yb)

    loss = loss_of()
    loss.backward()
    opt.first_step()
    loss_of().backward()
    opt.second_step()
