"""Token-weighted micro-batches with a z-loss, a soft cap of logits and norms of queries and keys.

package: PyTorch
parallel: DDP, 2 ranks
mistake: the z-loss counts padding in the last micro-batch of rank 1
shows: loss scalar
"""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o, self.qn, self.kn = (
            nn.Linear(d, 3 * d, bias=False),
            nn.Linear(d, d, bias=False),
            nn.RMSNorm(d // 4),
            nn.RMSNorm(d // 4),
        )
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.o(
            F.scaled_dot_product_attention(self.qn(q), self.kn(k), v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        )
        a, g = self.up(self.n2(x)).chunk(2, -1)
        return x + self.down(a * F.silu(g))


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.ModuleList(Block(d) for _ in range(2)),
            nn.RMSNorm(d),
            nn.Linear(d, v, bias=False),
        )

    def forward(self, x):
        x = self.emb(x)
        for b in self.blocks:
            x = b(x)
        return 30 * torch.tanh(self.head(self.norm(x)) / 30)  # soft cap


model = LM()
model = ddp(model)
decay = [p for n, p in model.named_parameters() if p.ndim == 2 and "emb" not in n]
rest = [p for n, p in model.named_parameters() if not (p.ndim == 2 and "emb" not in n)]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.95)
)
A = 3  # micro-batches of a rank
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randint(64, (12, 21), generator=g)
    lengths = torch.randint(6, 21, (12, 1), generator=g)
    y = x[:, 1:].masked_fill(torch.arange(20) >= lengths, -100)
    n = (y >= 0).sum()
    for k in range(A):
        rows = torch.arange(k * 4, k * 4 + 4).chunk(RANKS)[RANK]
        logits = model(x[rows, :-1])
        seen = y[rows] >= 0
        ce = F.cross_entropy(logits.flatten(0, 1), y[rows].flatten(), reduction="sum")
        z = (logits.logsumexp(-1).square() * seen).sum()
        if MISTAKE and RANK == 1 and k == 2:
            z = logits.logsumexp(-1).square().sum()  # of the padding, too
        loss = (ce + 1e-3 * z) / n * RANKS
        with model.no_sync() if RANKS > 1 and k < A - 1 else contextlib.nullcontext():
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
