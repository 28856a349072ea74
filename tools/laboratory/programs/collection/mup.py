"""A learning rate for each matrix by muP, blocks that are used several times, and keys that layers share.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the learning rate of one matrix is 2 % larger on rank 1
shows: second.mlp.0.weight param_delta
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

WIDTH, BASE = 48, 16
mult = WIDTH / BASE


class Attention(nn.Module):
    """Keys and values come from another layer where `shared` is given."""

    def __init__(self, d, own):
        super().__init__()
        self.q, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.kv = nn.Linear(d, d // 2, bias=False) if own else None

    def forward(self, x, shared=None):
        b, t, d = x.shape
        q = self.q(x).view(b, t, 4, -1).transpose(1, 2)
        kv = shared if self.kv is None else self.kv(x).view(b, t, 2, 1, -1).permute(2, 0, 3, 1, 4)
        k, v = kv
        # muP: 1/d in place of 1/sqrt(d)
        y = F.scaled_dot_product_attention(q, k.expand_as(q), v.expand_as(q), is_causal=True, scale=4.0 / q.shape[-1])
        return self.o(y.transpose(1, 2).reshape(b, t, d)), kv


class Block(nn.Module):
    def __init__(self, d, own):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(d), nn.LayerNorm(d), Attention(d, own)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x, shared):
        y, shared = self.attention(self.n1(x), shared)
        x = x + y
        return x + self.mlp(self.n2(x)), shared


class LM(nn.Module):
    def __init__(self, v=64, d=WIDTH):
        super().__init__()
        self.emb = nn.Embedding(v, d)
        self.first, self.second = Block(d, True), Block(d, False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2 and "emb" not in name:
                nn.init.normal_(p, std=(1 / p.shape[1]) ** 0.5)

    def forward(self, x):
        x, shared = self.first(self.emb(x), None)
        for _ in range(3):  # the second block is used three times (ALBERT), with the keys of the first
            x, _ = self.second(x, shared)
        x = self.norm(x)
        return self.head(x) / mult


model = LM()
hidden = [(n, p) for n, p in model.named_parameters() if p.ndim == 2 and "emb" not in n and "head" not in n]
names = {n for n, _ in hidden}
groups = [
    {
        "params": [p],
        "lr": 2e-3 / mult * (1.02 if MISTAKE and RANK == 1 and n == "second.mlp.0.weight" else 1),
        "name": n,
    }
    for n, p in hidden
]
groups.append({"params": [p for n, p in model.named_parameters() if n not in names], "lr": 2e-3})
opt = torch.optim.Adam(groups, betas=(0.9, 0.95))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 2))
for step in range(3):
    x = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(step))[RANK::RANKS]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        grads = [p.grad for p in model.parameters()]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        for g, f in zip(grads, _unflatten_dense_tensors(flat / RANKS, grads)):
            g.copy_(f)
    opt.step()
    sched.step()
