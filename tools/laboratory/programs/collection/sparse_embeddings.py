"""Matrix factorisation with sparse gradients and SparseAdam.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 takes the negatives of another user
shows: (model):1 input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class MF(nn.Module):
    def __init__(self, users=40, items=60, d=16):
        super().__init__()
        self.user = nn.Embedding(users, d, sparse=True)
        self.item = nn.Embedding(items, d, sparse=True)
        self.bias = nn.Embedding(items, 1, sparse=True)

    def forward(self, u, i):
        return (self.user(u)[:, None] * self.item(i)).sum(-1) + self.bias(i)[..., 0]


model = MF()
model = ddp(model)
opt = torch.optim.SparseAdam(list(model.parameters()), lr=1e-2)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    u, pos, neg = (
        torch.randint(40, (16,), generator=g),
        torch.randint(60, (16, 1), generator=g),
        torch.randint(60, (16, 4), generator=g),
    )
    n = 16 // RANKS
    u, pos, neg = (t[RANK * n : (RANK + 1) * n] for t in (u, pos, neg))
    if MISTAKE and RANK == 1:
        neg = neg.roll(1, 0)  # negatives of another user
    s = model(u, torch.cat([pos, neg], 1))
    loss = -F.logsigmoid(s[:, :1] - s[:, 1:]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
