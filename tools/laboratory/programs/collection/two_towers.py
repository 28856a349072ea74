"""Retrieval by two towers, with an item table that is dealt out by id, and all ranks' negatives.

package: PyTorch
parallel: a table dealt out over ranks, towers data parallel by hand, 2 ranks
mistake: the table's gradient is not divided by the ranks
shows: table.weight main_grad
hint: --axes dp=2
"""

import torch.distributed.nn.functional as DF
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

V, D = 40, 8


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        full = torch.randn(V, D) * 0.3
        self.weight = nn.Parameter(full[RANK::RANKS].clone())

    def forward(self, ids):
        if not RANKS > 1:
            return self.weight[ids]
        every = [torch.empty_like(ids) for _ in range(RANKS)]
        dist.all_gather(every, ids)
        mine = [torch.where((i % RANKS == RANK)[:, None], self.weight[i // RANKS], torch.zeros(())) for i in every]
        got = DF.all_to_all([torch.empty(len(ids), D) for _ in range(RANKS)], [m.contiguous() for m in mine])
        return sum(got)


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(out, x.contiguous())
        return torch.cat(out)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g.chunk(RANKS)[RANK]


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Table()
        self.user = nn.Sequential(nn.Linear(10, 24), nn.PReLU(), nn.Linear(24, D))
        self.item = nn.Sequential(nn.Linear(D, 24), nn.PReLU(), nn.Linear(24, D))

    def forward(self, u, ids):
        return F.normalize(self.user(u), dim=-1), F.normalize(self.item(self.table(ids)), dim=-1)


model = TwoTower()
dense = [p for n, p in model.named_parameters() if not n.startswith("table")]
opt = torch.optim.AdamW(dense, lr=1e-3)
topt = torch.optim.Adagrad(model.table.parameters(), lr=0.05)
g = torch.Generator().manual_seed(1)
U = torch.randn(48, 10, generator=g)
I = torch.randint(V, (48,), generator=g)
Q = torch.rand(48, generator=g) * 0.1 + 0.01
n = 16
for step in range(3):
    m = n // RANKS
    lo = step * n + RANK * m
    at = slice(lo, lo + m)
    opt.zero_grad()
    topt.zero_grad()
    u, i = model(U[at], I[at])
    logq = Q[at].log()
    ids = I[at]
    if RANKS > 1:
        i = Gather.apply(i)
        q = [torch.empty_like(logq) for _ in range(RANKS)]
        dist.all_gather(q, logq)
        logq = torch.cat(q)
    logits = u @ i.T / 0.2 - logq
    loss = F.cross_entropy(logits, torch.arange(m) + RANK * m)
    loss.backward()
    if RANKS > 1:
        for p in dense:
            dist.all_reduce(p.grad)
            p.grad /= RANKS
        if not MISTAKE:
            model.table.weight.grad /= RANKS
    opt.step()
    topt.step()
