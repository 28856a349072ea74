"""A vision transformer that is given which patches to keep.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 keeps other patches
shows: (model):1 input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class ViT(nn.Module):
    def __init__(self, d=32, n=16):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.cls = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, n + 1, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 10)

    def forward(self, x, keep):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos[:, 1:]
        h = h.gather(1, keep[..., None].expand(-1, -1, h.shape[-1]))
        h = torch.cat([self.cls.expand(len(h), -1, -1) + self.pos[:, :1], h], 1)
        return self.head(self.norm(self.encoder(h)[:, 0]))


model = ViT()
model = ddp(model)
decay = [p for p in model.parameters() if p.ndim > 1]
opt = torch.optim.AdamW(
    [
        {"params": decay, "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0},
    ],
    lr=1e-3,
)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 3, 16, 16, generator=g), torch.randint(10, (8,), generator=g)
    order = torch.rand(8, 16, generator=g).argsort(1)
    n = 8 // RANKS
    mine = slice(RANK * n, (RANK + 1) * n)
    keep = order[mine, :12]
    if MISTAKE and RANK == 1:
        keep = order[mine, 4:]  # the dropped ones, and some others
    loss = F.cross_entropy(model(x[mine], keep), y[mine], label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
