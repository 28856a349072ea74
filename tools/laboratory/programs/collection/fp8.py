"""Float8 by delayed scaling, whose history of largest values is that of all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank keeps a history of its own values
shows: *.history buffer_after
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP

FP8 = torch.float8_e4m3fn


class Cast(torch.autograd.Function):
    """To fp8 and back by a scale of its own in each direction."""

    @staticmethod
    def forward(ctx, x, scale):
        return (x * scale).clamp(-448, 448).to(FP8).to(x.dtype) / scale

    @staticmethod
    def backward(ctx, g):
        return g, None


class FP8Linear(nn.Linear):
    """Delayed scaling: the scale comes from the largest of the last amax, over all ranks."""

    def __init__(self, i, o):
        super().__init__(i, o, bias=False)
        self.register_buffer("history", torch.full((4,), 4.0))
        self.register_buffer("scale", torch.tensor(448 / 4.0))

    def forward(self, x):
        with torch.no_grad():
            self.scale.copy_(448 / self.history.max())
            amax = x.detach().abs().max()
            if RANKS > 1 and not MISTAKE:
                dist.all_reduce(amax, dist.ReduceOp.MAX)
            self.history.copy_(self.history.roll(1))
            self.history[0] = amax
        w = self.weight
        return F.linear(Cast.apply(x, self.scale), Cast.apply(w, 448 / w.detach().abs().max()))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o, self.up, self.down = (
            FP8Linear(d, 3 * d),
            FP8Linear(d, d),
            FP8Linear(d, 2 * d),
            FP8Linear(2 * d, d),
        )

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


model = nn.Sequential(nn.Embedding(64, 32), Block(32), Block(32), nn.RMSNorm(32), nn.Linear(32, 64, bias=False))
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
