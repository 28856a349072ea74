"""Context parallelism by hand: each rank has half of the sequence, keys and values are gathered.

package: PyTorch
parallel: context parallel by hand, 2 ranks
mistake: the second half does not see the first token
shows: blocks.0.attention.o input
hint: --axes cp=2
"""

import torch.distributed.nn
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Gather(torch.autograd.Function):
    """torch.distributed.nn.all_gather is wrong for gradients with permuted strides (gloo, 2.13)"""

    @staticmethod
    def forward(ctx, z):
        parts = [torch.empty_like(z, memory_format=torch.contiguous_format) for _ in range(RANKS)]
        dist.all_gather(parts, z.contiguous())
        return torch.cat(parts, 2)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g.chunk(RANKS, 2)[RANK]


class Attention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if RANKS > 1:
            k, v = Gather.apply(k), Gather.apply(v)
        mask = torch.arange(t)[:, None] + RANK * t >= torch.arange(k.shape[2])[None]
        if MISTAKE and RANK == 1:
            mask[:, 0] = False  # the first token is not seen by the second half
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.attention, self.n2, self.mlp = (
            nn.LayerNorm(d),
            Attention(d, 4),
            nn.LayerNorm(d),
            nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)),
        )

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, v=50, d=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(v, d), nn.Embedding(16, d)
        self.blocks, self.norm, self.head = nn.ModuleList(Block(d) for _ in range(2)), nn.LayerNorm(d), nn.Linear(d, v)

    def forward(self, ids, positions):
        x = self.wte(ids) + self.wpe(positions)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(50, (4, 17), generator=torch.Generator().manual_seed(step))
    x, y, p = ids[:, :-1].chunk(RANKS, 1)[RANK], ids[:, 1:].chunk(RANKS, 1)[RANK], torch.arange(16).chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(x, p).flatten(0, 1), y.flatten(), reduction="sum") / (4 * 16)
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for q in model.parameters():
            dist.all_reduce(q.grad)
    opt.step()
