"""Ring attention by hand: keys and values travel from rank to rank.

package: PyTorch
parallel: context parallel by hand, 2 ranks
mistake: positions of rank 1 are one too small
shows: (model):1 input, wpe input
hint: --axes cp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Ring(torch.autograd.Function):
    """Passes a tensor on to the next rank; in backward the gradient goes back."""

    @staticmethod
    def send(x, shift):
        x, y = x.contiguous(), torch.empty_like(x)
        ops = [dist.P2POp(dist.isend, x, (RANK + shift) % RANKS), dist.P2POp(dist.irecv, y, (RANK - shift) % RANKS)]
        for r in dist.batch_isend_irecv(ops):
            r.wait()
        return y

    @staticmethod
    def forward(ctx, x):
        return Ring.send(x, 1)

    @staticmethod
    def backward(ctx, g):
        return Ring.send(g, -1)


class Attention(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h, self.qkv, self.o = h, nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        pos = torch.arange(t)
        scores, values = [], []
        kv = torch.stack([k, v])
        for s in range(RANKS):
            if s:
                kv = Ring.apply(kv)
            src = (RANK - s) % RANKS
            a = q @ kv[0].transpose(-1, -2) / (d // self.h) ** 0.5
            mask = (pos + RANK * t)[:, None] < (pos + src * t)[None]
            scores.append(a.masked_fill(mask, float("-inf")))
            values.append(kv[1])
        p = torch.cat(scores, -1).softmax(-1)
        y = p @ torch.cat(values, -2)
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
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (4, 33), generator=torch.Generator().manual_seed(step))
    t = 32 // RANKS
    pos = torch.arange(RANK * t, (RANK + 1) * t)
    if MISTAKE and RANK == 1:
        pos = pos - 1
    loss = F.cross_entropy(
        model(x[:, RANK * t : (RANK + 1) * t], pos).flatten(0, 1), x[:, RANK * t + 1 : (RANK + 1) * t + 1].flatten()
    )
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= RANKS
    opt.step()
