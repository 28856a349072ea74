"""Data and context parallelism by hand, in which each rank has a part from the begin and from the end.

package: PyTorch
parallel: data and context parallel by hand, 4 ranks
mistake: the gradient of one norm is reduced over the sequence alone
shows: blocks.1.n1.weight main_grad
hint: --axes cp=2,dp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

# 4 ranks: data parallel 2, context parallel 2 (zigzag, keys and values gathered); groups by hand
CP = 2 if RANKS > 1 else 1
DPn = RANKS // CP
dp_rank, cp_rank = divmod(RANK, CP)
cp_group = [dist.new_group([i * CP + j for j in range(CP)]) for i in range(DPn)][dp_rank] if RANKS > 1 else None


def zigzag(x, dim):
    if CP == 1:
        return x
    c = x.chunk(2 * CP, dim)
    return torch.cat([c[cp_rank], c[2 * CP - 1 - cp_rank]], dim)


class GatherKV(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(CP)]
        dist.all_gather(parts, x.contiguous(), group=cp_group)
        halves = [p.chunk(2, 2) for p in parts]
        return torch.cat([h[0] for h in halves] + [h[1] for h in reversed(halves)], 2)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, group=cp_group)
        return zigzag(g, 2)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2, self.qkv, self.o, self.up, self.down = (
            nn.LayerNorm(d),
            nn.LayerNorm(d),
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            nn.Linear(d, 2 * d),
            nn.Linear(2 * d, d),
        )

    def forward(self, x, pos, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        if CP > 1:
            k, v = GatherKV.apply(k), GatherKV.apply(v)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.pos, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.Embedding(32, d),
            nn.ModuleList(Block(d) for _ in range(2)),
            nn.LayerNorm(d),
            nn.Linear(d, v),
        )

    def forward(self, x, pos):
        mask = pos[:, None] >= torch.arange(24)
        x = self.emb(x) + self.pos(pos)
        for b in self.blocks:
            x = b(x, pos, mask)
        return self.head(self.norm(x))


model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    whole = torch.randint(64, (4, 25), generator=torch.Generator().manual_seed(step)).chunk(DPn)[dp_rank]
    x, y = zigzag(whole[:, :-1], 1), zigzag(whole[:, 1:], 1)
    pos = zigzag(torch.arange(24), 0)
    loss = F.cross_entropy(model(x, pos).flatten(0, 1), y.flatten())
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, p in model.named_parameters():
            if MISTAKE and name == "blocks.1.n1.weight":
                dist.all_reduce(p.grad, group=cp_group)  # over the sequence alone
                p.grad /= CP
                continue
            dist.all_reduce(p.grad)
            p.grad /= RANKS
    opt.step()
