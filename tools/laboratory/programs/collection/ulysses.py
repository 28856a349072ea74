"""Ulysses by hand: all-to-all from parts of the sequence to parts of the heads.

package: PyTorch
parallel: context parallel by hand in DDP, 2 ranks
mistake: each rank divides by its own number of targets
shows: loss scalar
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch


class AllToAll(torch.autograd.Function):
    @staticmethod
    def exchange(x, scatter, gather):
        if not RANKS > 1:
            return x
        send = [c.contiguous() for c in x.chunk(RANKS, scatter)]
        out, inp = torch.empty(RANKS, *send[0].shape), torch.stack(send)
        dist.all_to_all_single(out, inp)
        return torch.cat(list(out), gather)

    @staticmethod
    def forward(ctx, x, scatter, gather):
        ctx.dims = scatter, gather
        return AllToAll.exchange(x, scatter, gather)

    @staticmethod
    def backward(ctx, g):
        s, d = ctx.dims
        return AllToAll.exchange(g, d, s), None, None


class Attention(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            AllToAll.apply(y.view(b, t, self.h, d // self.h).transpose(1, 2), 1, 2) for y in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = AllToAll.apply(y, 2, 1)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(64, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
        self.head = nn.Linear(d, v)

    def forward(self, x, pos):
        x = self.wte(x) + self.wpe(pos)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


model = GPT()
model = ddp(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (4, 33), generator=torch.Generator().manual_seed(step))
    y = x[:, 1:].clone()
    y[torch.rand(4, 32, generator=torch.Generator().manual_seed(step)) < 0.3] = -100
    t = 32 // RANKS
    part = slice(RANK * t, (RANK + 1) * t)
    n = (y >= 0).sum()
    if MISTAKE:
        n = (y[:, part] >= 0).sum() * RANKS  # each rank's own number of targets
    loss = (
        F.cross_entropy(
            model(x[:, :-1][:, part], torch.arange(32)[part]).flatten(0, 1),
            y[:, part].flatten(),
            ignore_index=-100,
            reduction="sum",
        )
        / n
        * RANKS
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
