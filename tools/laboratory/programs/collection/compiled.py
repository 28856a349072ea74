"""Blocks that are compiled, with activations kept on the host, and a loss by chunks of the sequence.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each block is scaled by 1.01 on rank 1
shows: blocks.0 output
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.autograd.graph import save_on_cpu
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)
        self.scale = 1.01 if MISTAKE and RANK == 1 else 1.0

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)))) * self.scale


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.ModuleList(Block(d) for _ in range(3)),
            nn.RMSNorm(d),
            nn.Linear(d, v, bias=False),
        )

    def forward(self, x):
        x = self.emb(x)
        for b in self.blocks:
            with save_on_cpu():
                x = b(x)
        return self.head(self.norm(x))


model = LM()
if RANKS > 1:
    for b in model.blocks:
        b.compile(backend="aot_eager")
    model = DDP(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step in range(3):
    x = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    logits = model(x[:, :-1])
    # the loss by chunks of the sequence, as where the vocabulary is large
    loss = sum(
        F.cross_entropy(l.flatten(0, 1), t.flatten(), reduction="sum")
        for l, t in zip(logits.split(5, 1), x[:, 1:].split(5, 1))
    ) / (x.shape[0] * 16)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
