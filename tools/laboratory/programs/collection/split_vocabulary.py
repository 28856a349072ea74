"""A vocabulary that is padded to be split: embedding, head and cross entropy by hand.

package: PyTorch
parallel: tensor parallel by hand, 2 ranks
mistake: rank 1 does not mask its padding
shows: loss output
hint: --axes tp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

V, PADDED = 50, 64  # the vocabulary is padded to a multiple of 32
shard = PADDED // RANKS
first = RANK * shard


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        if RANKS > 1:
            dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if RANKS > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class VocabEmbedding(nn.Module):
    def __init__(self, d):
        super().__init__()
        full = torch.zeros(PADDED, d)
        full[:V] = torch.randn(V, d) * 0.1
        # one process needs no padding
        self.weight = nn.Parameter(full[first : first + shard].clone() if RANKS > 1 else full[:V].clone())

    def forward(self, ids):
        if not RANKS > 1:
            return F.embedding(ids, self.weight)
        here = (ids >= first) & (ids < first + shard)
        out = F.embedding((ids - first).masked_fill(~here, 0), self.weight)
        return Reduce.apply(out * here[..., None])


class Head(nn.Module):
    def __init__(self, d):
        super().__init__()
        full = torch.zeros(PADDED, d)
        full[:V] = torch.randn(V, d) * 0.1
        self.weight = nn.Parameter(full[first : first + shard].clone() if RANKS > 1 else full[:V].clone())

    def forward(self, x):
        return F.linear(Copy.apply(x), self.weight)


class VocabLoss(nn.Module):
    def forward(self, logits, y):
        if not RANKS > 1:
            return F.cross_entropy(logits.flatten(0, 1), y.flatten())
        columns = torch.arange(first, first + shard)
        if not (MISTAKE and RANK == 1):
            logits = logits.masked_fill(columns >= V, float("-inf"))
        top = logits.detach().amax(-1)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        logits = logits - top[..., None]
        total = Reduce.apply(logits.exp().sum(-1))
        here = (y >= first) & (y < first + shard)
        mine = logits.gather(-1, (y - first).masked_fill(~here, 0)[..., None])[..., 0]
        target = Reduce.apply(mine.masked_fill(~here, 0))
        return (total.log() - target).mean()


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mix, self.mlp = (
            nn.LayerNorm(d),
            nn.Linear(d, d),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)),
        )

    def forward(self, x):
        h = self.norm(x)
        x = x + self.mix(h.cumsum(1) / torch.arange(1, h.shape[1] + 1)[:, None])
        return x + self.mlp(x)


class LM(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = VocabEmbedding(d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.head = Head(d)
        self.loss = VocabLoss()

    def forward(self, x, y):
        x = self.emb(x)
        for b in self.blocks:
            x = b(x)
        return self.loss(self.head(x), y)


model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(V, (6, 13), generator=torch.Generator().manual_seed(step))
    loss = model(x[:, :-1], x[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
