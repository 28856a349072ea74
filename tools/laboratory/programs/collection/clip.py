"""CLIP: two towers, a learned temperature, and the negatives of all ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: what is gathered has no gradient for the other ranks
shows: (model)* grad_output, image* grad_output, text* grad_output
"""

import torch.distributed.nn
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Flatten(), nn.Linear(16 * 9, 24))
        self.embedding = nn.Embedding(50, 32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.text = nn.Linear(32, 24)
        self.logit_scale = nn.Parameter(torch.tensor(2.6593))

    def forward(self, images, ids):
        i = F.normalize(self.image(images), dim=-1)
        t = F.normalize(self.text(self.encoder(self.embedding(ids)).mean(1)), dim=-1)
        return i, t, self.logit_scale.exp()


def data(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(12, 3, 12, 12, generator=g), torch.randint(50, (12, 7), generator=g)


net = CLIP()
model = ddp(net)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.2)


def gather(x):
    if RANKS == 1:
        return x
    if MISTAKE:
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x)
        parts[RANK] = x
        return torch.cat(parts)
    return torch.cat(torch.distributed.nn.all_gather(x))


for step in range(3):
    i, t, scale = model(*(v.chunk(RANKS)[RANK] for v in data(step)))
    all_i, all_t = gather(i), gather(t)
    labels = torch.arange(len(i)) + RANK * len(i)
    loss = (F.cross_entropy(scale * i @ all_t.T, labels) + F.cross_entropy(scale * t @ all_i.T, labels)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        net.logit_scale.clamp_(0, 4.6052)
