"""Two tasks with learned weights of their losses, activation checkpointing, clipping by value, NAdam.

package: PyTorch
parallel: DDP with static_graph, 2 ranks
mistake: one term of the loss does not reach the learned weights
shows: log_var main_grad, log_var param_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


class MultiTask(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp = nn.Linear(10, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
        self.classify, self.regress = nn.Linear(d, 4), nn.Linear(d, 2)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return self.classify(x), self.regress(x), self.log_var


model = MultiTask()
if RANKS > 1:
    model = DDP(model, static_graph=True)
opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, c, r = torch.randn(16, 10, generator=g), torch.randint(4, (16,), generator=g), torch.randn(16, 2, generator=g)
    x, c, r = (v.chunk(RANKS)[RANK] for v in (x, c, r))
    pc, pr, lv = model(x)
    losses = torch.stack([F.cross_entropy(pc, c), F.mse_loss(pr, r)])
    loss = ((-lv).exp() * losses + lv / 2).sum()
    if MISTAKE:
        loss = ((-lv.detach()).exp() * losses + lv / 2).sum()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    opt.step()
