"""A decoder with grouped queries, rotary positions and a tied embedding; clipping.

package: PyTorch
parallel: FSDP2, 4 ranks
mistake: each rank clips by the norm of its own shards
shows: * main_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def rope(x, base=10000.0):
    b, h, t, d = x.shape
    f = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    a = torch.arange(t).float()[:, None] * f
    cos, sin = a.cos(), a.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, kv * self.hd, bias=False)
        self.wv = nn.Linear(dim, kv * self.hd, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.hd).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        k, v = (z.repeat_interleave(self.heads // self.kv, 1) for z in (rope(k), v))
        y = F.scaled_dot_product_attention(rope(q), k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.attention = nn.RMSNorm(dim), Attention(dim, 4, 2)
        self.norm2, self.mlp = nn.RMSNorm(dim), MLP(dim, 96)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, vocab=66, dim=48, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def tokens(step, n=8, t=17):
    return torch.randint(66, (n, t), generator=torch.Generator().manual_seed(step))


model = Llama()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(3):
    ids = tokens(step).chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    if MISTAKE:
        grads = [p.grad.to_local() for p in model.parameters()]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        for g in grads:
            g.mul_((0.5 / (norm + 1e-6)).clamp(max=1.0))
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    opt.zero_grad()
