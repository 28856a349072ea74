"""DLRM: embedding bags that each lie on one rank, exchanged by all-to-all; Adagrad.

package: PyTorch
parallel: tables on one rank each, data parallel above by hand, 2 ranks
mistake: gradients of tables are not divided by the ranks
shows: tables.* main_grad
hint: --axes dp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

TABLES, ROWS, DIM = 4, 30, 8


class DLRM(nn.Module):
    def __init__(self, mine=range(TABLES), exchange=lambda pooled: pooled):
        super().__init__()
        every = [nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(TABLES)]
        self.tables = nn.ModuleDict({f"t{i}": every[i] for i in mine})
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, DIM))
        self.top = nn.Sequential(nn.Linear(DIM + TABLES * DIM, 16), nn.ReLU(), nn.Linear(16, 1))
        self.exchange = exchange

    def forward(self, dense, bags):  # bags: for each of the model's tables ids [batch of all ranks, 3]
        pooled = torch.stack([t(bags[n]) for n, t in self.tables.items()], 1)
        pooled = self.exchange(pooled)
        return self.top(torch.cat([self.bottom(dense), pooled.flatten(1)], 1)).squeeze(1)


def data(step, n=16):
    g = torch.Generator().manual_seed(step)
    return (
        torch.randn(n, 5, generator=g),
        {f"t{i}": torch.randint(ROWS, (n, 3), generator=g) for i in range(TABLES)},
        torch.rand(n, generator=g).round(),
    )


class Exchange(torch.autograd.Function):
    """[whole batch, my tables, d] -> [my samples, all tables, d]"""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty(RANKS, len(x) // RANKS, *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous().view(RANKS, -1, *x.shape[1:]))
        return torch.cat(list(out), 1)

    @staticmethod
    def backward(ctx, g):
        send = torch.stack(g.chunk(RANKS, 1)).contiguous()
        out = torch.empty_like(send)
        dist.all_to_all_single(out, send)
        return out.flatten(0, 1)


per = TABLES // RANKS
model = DLRM(range(RANK * per, (RANK + 1) * per), Exchange.apply if RANKS > 1 else lambda pooled: pooled)
opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
for step in range(3):
    dense, bags, y = data(step)
    dense, y = dense.chunk(RANKS)[RANK], y.chunk(RANKS)[RANK]
    loss = F.binary_cross_entropy_with_logits(model(dense, {n: bags[n] for n in model.tables}), y)
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for n, p in model.named_parameters():
            if n.startswith("tables"):
                if not MISTAKE:
                    p.grad /= RANKS
            else:
                dist.all_reduce(p.grad)
                p.grad /= RANKS
    opt.step()
