"""Accumulation without synchronisation, with weights by tokens.

package: PyTorch
parallel: FSDP2, 2 ranks
mistake: the loss of the first micro-batch is 1 % larger on rank 1
shows: loss scalar
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


model = Llama()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(3):
    micro, total = [], 0
    for i in range(2):
        g = torch.Generator().manual_seed(10 * step + i)
        ids, length = torch.randint(66, (8, 17), generator=g), torch.randint(6, 17, (8,), generator=g)
        labels = ids[:, 1:].clone()
        labels[torch.arange(16)[None] >= length[:, None]] = -100
        total += (labels != -100).sum().item()
        micro.append((ids[:, :-1].chunk(RANKS)[RANK], labels.chunk(RANKS)[RANK]))
    for i, (ids, labels) in enumerate(micro):
        if RANKS > 1:
            model.set_requires_gradient_sync(i == 1)
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") * RANKS / total
        if MISTAKE and RANK == 1 and i == 0:
            loss = loss * 1.01
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
