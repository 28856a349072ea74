"""ZeRO's first stage by hand: a flat master, of which each rank steps a slice.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: each rank clips by the norm of its own slice
shows: * param_after, * param_delta
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, 4, d // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(16, d)
        self.h = nn.ModuleList(Block(d) for _ in range(2))
        self.ln_f = nn.LayerNorm(d)
        self.head = nn.Linear(d, v, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for b in self.h:
            x = b(x)
        return self.head(self.ln_f(x))


class Zero1:
    """Every rank owns one slice of the flattened parameters, and AdamW's state of it."""

    def __init__(self, params, lr):
        self.params = list(params)
        self.n = sum(p.numel() for p in self.params)
        self.part = -(-self.n // RANKS)
        flat = self.pack([p.detach() for p in self.params])
        self.master = nn.Parameter(flat[RANK * self.part : (RANK + 1) * self.part].clone())
        self.opt = torch.optim.AdamW([self.master], lr=lr)

    def pack(self, ts):
        flat = torch.cat([t.reshape(-1) for t in ts])
        return F.pad(flat, (0, self.part * RANKS - self.n))

    def step(self, clip=0.5):
        g = self.pack([p.grad for p in self.params])
        if RANKS > 1:
            dist.all_reduce(g)
            g /= RANKS
        g = g[RANK * self.part : (RANK + 1) * self.part].clone()
        sq = g.pow(2).sum()
        if RANKS > 1 and not MISTAKE:
            dist.all_reduce(sq)
        g *= (clip / (sq.sqrt() + 1e-6)).clamp(max=1)
        self.master.grad = g
        self.opt.step()
        flat = self.master.detach()
        if RANKS > 1:
            parts = [torch.empty_like(flat) for _ in range(RANKS)]
            dist.all_gather(parts, flat)
            flat = torch.cat(parts)
        i = 0
        with torch.no_grad():
            for p in self.params:
                p.copy_(flat[i : i + p.numel()].view_as(p))
                p.grad = None
                i += p.numel()


model = GPT()
opt = Zero1(model.parameters(), 1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randint(64, (8, 17), generator=g)
    n = 8 // RANKS
    x = x[RANK * n : (RANK + 1) * n]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    loss.backward()
    opt.step()
